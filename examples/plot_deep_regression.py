"""
A kernel that is too narrow
===========================

A Gaussian kernel of width 0.1 hardly reaches from one of 100 points to the next: one layer cannot fill the gaps,
whatever its penalty. An inner layer may bring the points together that have equal values, and the narrow kernel is
wide enough. Figure 4 of Bohn, Griebel and Rieger, with both penalties learned by the error on new data
(``alpha="auto"``) instead of searched on a grid; :doc:`/deep_kernels` has what that costs.
"""

import numpy as np

from representer import DeepKernelRegressor, plotting
from representer.datasets import kink, make_kink, square_grid
from representer.kernels import Gaussian, Polynomial

X, y = make_kink(random_state=0)
grid = square_grid(61)
truth = kink(grid)
columns = {"one layer": [], "inner degree 1": [(Polynomial(1), 2)]}
figure, axes = plotting.panels(1, 2, column_labels=list(columns))
for ax, (name, layers) in zip(axes[0], columns.items(), strict=True):
    model = DeepKernelRegressor(layers, kernel=Gaussian(0.1), fit_intercept=False, n_restarts=4, random_state=0)
    error = np.abs(model.fit(X, y).predict(grid) - truth)
    print(f"{name}: R² = {1 - np.mean(error**2) / truth.var():.3f}")
    plotting.error_map(error / truth.max(), points=X, colorbar=ax is axes[0, -1], ax=ax)
figure.savefig("deep_regression.png")
