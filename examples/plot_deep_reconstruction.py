"""
Back from linear levels
=======================

With linear kernels in both levels, components go back to data exactly as far as the smaller level allows: as many
components as the data have directions reconstruct them without error. Left, points in six dimensions (figure 10 of
Tonin et al.); right, small pictures in place of 3DShapes (figure 11). :doc:`plot_deep_generation` shows the way back
from nonlinear levels.
"""

import warnings

import numpy as np

from representer import CollapsedComponentWarning, DeepKernelPCA, plotting
from representer.datasets import make_shapes, make_synth1

warnings.simplefilter("ignore", CollapsedComponentWarning)  # more components than directions are asked for
sets = {
    "six dimensions": (make_synth1(random_state=0), (1, 2, 3, 4, 5, 6)),
    "pictures of shapes": (make_shapes(100, random_state=0).data, (1, 2, 5, 10, 20, 50, 100)),
}
figure, axes = plotting.panels(1, 2, column_labels=list(sets))
for ax, (name, (X, sizes)) in zip(axes[0], sets.items(), strict=True):
    kept, errors = [], []
    for size in sizes:
        levels = [sizes[-1] if name == "six dimensions" else size, size]
        model = DeepKernelPCA(levels, ["linear", "linear"], center=False, random_state=0).fit(X)
        kept.append(100 * np.sum(model.explained_variance_ratio_[1]))
        errors.append(100 * ((X - model.reconstruct(X)) ** 2).sum() / (X**2).sum())
    print(f"{name}: R² of what {sizes[1]} components reconstruct = {1 - errors[1] / 100:.2f}")
    ax.plot(sizes, errors, "o-", label="error, % of ‖X‖²")
    ax.plot(sizes, kept, "s--", label="% of the variance, level 2")
    ax.set(xlabel="components of the last level", xscale="linear" if len(sizes) == 6 else "log")
    ax.legend()
figure.savefig("deep_reconstruction.png")
