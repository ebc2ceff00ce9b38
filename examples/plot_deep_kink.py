"""
What one layer cannot do
========================

A kernel has its own directions. The tensor Matérn kernel interpolates a kink along an axis easily; the same kink
along the diagonal lies outside of its space, and the error stays. Turn the square by 45°, and it is easy again
(figure 1 of Bohn, Griebel and Rieger). :doc:`/deep_kernels` is about learning that turn: see :doc:`plot_deep_layers`.
"""

import numpy as np

from representer import DeepKernelRegressor, plotting
from representer.datasets import kink, square_grid, straight_kink
from representer.kernels import TensorMatern

X, grid = np.random.default_rng(0).uniform(-1, 1, (200, 2)), square_grid(101)
turn = np.array([[1, -1], [1, 1]]) / np.sqrt(2)
cases = {
    "along an axis": (straight_kink, np.eye(2)),
    "along the diagonal": (kink, np.eye(2)),
    "the diagonal, turned": (kink, turn),
}
figure, axes = plotting.panels(2, 3, column_labels=list(cases), row_labels=["interpolant", "error"])
for (above, below), (name, (function, R)) in zip(axes.T, cases.items(), strict=True):
    model = DeepKernelRegressor([], kernel=TensorMatern(1, 1.0), loss="interpolate", fit_intercept=False)
    surface, truth = model.fit(X @ R.T, function(X)).predict(grid @ R.T), function(grid)
    print(f"{name}: R² = {1 - np.mean((surface - truth) ** 2) / truth.var():.4f}")
    last = name == list(cases)[-1]
    plotting.surface_map(surface, limits=(0, 10), points=X, colorbar=last, ax=above)
    plotting.error_map(np.abs(surface - truth) / truth.max(), colorbar=last, ax=below)
figure.savefig("deep_kink.png")
