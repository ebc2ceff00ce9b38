"""
Four levels of digits
=====================

How much of the variance of its own features does each of four levels hold in its first components? The second holds
far more than the first; here, nothing is gained above it. On the left all levels are found together, on the right one
after the other (figure 9(c) of Tonin et al., on the small digits of scikit-learn; :doc:`/deep_kernel_pca` has MNIST).
"""

import numpy as np
from sklearn.datasets import load_digits

from representer import DeepKernelPCA, plotting
from representer.kernels import Gaussian

X = load_digits().data[:100] / 16.0
kernels = [Gaussian(1.5), *(Gaussian(0.7) for _ in range(3))]
solvers = {"all levels at once": "scf", "one after the other": "levelwise"}
figure, axes = plotting.panels(1, 2, column_labels=list(solvers))
for ax, (name, solver) in zip(axes[0], solvers.items(), strict=True):
    model = DeepKernelPCA([10] * 4, kernels, center=False, solver=solver, random_state=0).fit(X)
    for level, values in enumerate(model.eigenvalues_, start=1):
        share = 100 * np.sort(values)[::-1].cumsum() / values.sum()
        print(f"{name}, level {level}: the first component has a share of {share[0]:.0f} %")
        ax.plot(np.arange(1, 11), share, "o-", markersize=3, label=f"level {level}")
    ax.set(xlabel="components", ylabel="% of what ten keep", ylim=(0, 102))
    ax.legend()
figure.savefig("deep_levels.png")
