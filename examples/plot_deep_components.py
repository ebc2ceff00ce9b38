"""
Deep components
===============

``DeepKernelPCA`` finds principal components in several levels at once: each level sees the components of the one
below, and shapes them in turn. On a square, two spirals and a ring, how much of its level's variance does each
component hold? A second level with a negative η takes a constant off all eigenvalues of the first, whose leading
components then hold a larger share (Tonin et al., Lemma 4.2). Features of both levels are centred: otherwise the first
component of the second would be nearly a constant. Figures 9(a) and 9(b) of the paper; :doc:`/deep_kernel_pca`.
"""

import numpy as np

from representer import DeepKernelPCA, plotting
from representer.datasets import make_synth2
from representer.kernels import Gaussian

X, part = make_synth2(200, random_state=0)
n = 20
shallow = DeepKernelPCA([n], [Gaussian(1.0)]).fit(X)
deep = DeepKernelPCA([n, n], [Gaussian(1.0), Gaussian(1.0)], random_state=0).fit(X)
linear = DeepKernelPCA([n, n], [Gaussian(1.0), "linear"], random_state=0)
lemma = linear.set_params(eta=[1.0, shallow.eta_for_explained_variance()]).fit(X)
levels = {
    "KPCA": shallow.eigenvalues_[0],
    "two levels, first": deep.eigenvalues_[0],
    "two levels, second": deep.eigenvalues_[1],
    "first, second linear with η < 0": lemma.eigenvalues_[0],
}
for name, values in levels.items():
    share = values[:5].sum() / values.sum()
    print(f"{name}: the first five of {n} components hold {share:.0%} (R² of what they keep, to what all keep)")

figure, axes = plotting.panels(1, 3, column_labels=["points", "variance of components", "first component, level 2"])
axes[0, 0].scatter(*X.T, c=part, s=8, cmap="tab10")
for name, values in levels.items():
    axes[0, 1].plot(np.arange(1, n + 1), 100 * values.cumsum() / values.sum(), label=name)
axes[0, 1].set(xlabel="components", ylabel="% of the variance kept", ylim=(0, 101))
axes[0, 1].legend(fontsize="x-small", loc="lower right")
dots = axes[0, 2].scatter(*X.T, c=deep.hidden_[1][:, 0], s=8, cmap="coolwarm")
figure.colorbar(dots, ax=axes[0, 2])
figure.savefig("deep_components.png")
