"""
Two layers find the turn
========================

100 noisy values of a function with a kink along the diagonal, or with a jump along a curve. One layer with the tensor
Matérn kernel errs all along them. With an inner layer, a polynomial of degree p into the plane, the kernel is pulled
back to coordinates that suit it: a line suffices for the kink (p = 1), a bend for the jump (p = 2). Figure 3 of Bohn,
Griebel and Rieger, for one draw of the data; means over ten draws are in :doc:`/reproductions`, and where the inner
layers put the square is in :doc:`plot_deep_transformation`.
"""

import numpy as np

from representer import DeepKernelRegressor, plotting
from representer.datasets import jump, kink, make_jump, make_kink, square_grid
from representer.kernels import Polynomial, TensorMatern

grid = square_grid(61)
columns = {"one layer": [], "inner degree 1": [(Polynomial(1), 2)], "inner degree 2": [(Polynomial(2), 2)]}
figure, axes = plotting.panels(2, 3, column_labels=list(columns), row_labels=["kink", "jump"])
for row, make, function in zip(axes, (make_kink, make_jump), (kink, jump), strict=True):
    X, y = make(random_state=1)
    truth = function(grid)
    for ax, (name, layers) in zip(row, columns.items(), strict=True):
        model = DeepKernelRegressor(
            layers,
            kernel=TensorMatern(1, 1.0),
            loss="interpolate",
            alpha=1.0,
            fit_intercept=False,
            n_restarts=12,
        )
        error = np.abs(model.set_params(random_state=0).fit(X, y).predict(grid) - truth)
        print(f"{function.__name__}, {name}: R² = {1 - np.mean(error**2) / truth.var():.3f}")
        plotting.error_map(error / np.abs(truth).max(), points=X, colorbar=ax is row[-1], ax=ax)
figure.savefig("deep_layers.png")
