"""
How far the first level is from kernel PCA
==========================================

A linear second level draws the first one away from kernel PCA, by how much lemma 4.1 of Tonin et al. bounds from both
sides. The error, and the bounds, over η₂ of both signs and over the number of components (figure 4 of the paper);
``approximation_bounds`` computes them. More in :doc:`/deep_kernel_pca`.
"""

from representer import DeepKernelPCA, plotting
from representer.datasets import make_synth3

X = make_synth3(30, random_state=0)
series = {
    "η₂ > 0": [(eta, [30, 30], eta) for eta in (0.5, 1.0, 2.0, 5.0, 10.0)],
    "η₂ < 0": [(-eta, [30, 30], -eta) for eta in (1.5, 2.0, 5.0, 10.0, 20.0)],
    "components of level 1": [(size, [size, 5], 1.0) for size in (5, 10, 20, 30)],
}
figure, axes = plotting.panels(1, 3, column_labels=list(series))
for ax, (name, cases) in zip(axes[0], series.items(), strict=True):
    found = [
        DeepKernelPCA(sizes, ["rbf", "linear"], eta=[1.0, eta], center=False, random_state=0)
        .fit(X)
        .approximation_bounds()
        for _, sizes, eta in cases
    ]
    for kind, style in (("lower", "g--"), ("error", "k-"), ("upper", "r--")):
        ax.plot([place for place, _, _ in cases], [getattr(bound, kind) for bound in found], style, label=kind)
    ax.set_xlabel(name)
    inside = sum(bound.lower <= bound.error * 1.000001 <= bound.upper * 1.00001 + 1e-6 for bound in found)
    print(f"{name}: {inside} of {len(found)} errors lie between the bounds")
axes[0, 0].legend()
figure.savefig("deep_bounds.png")
