"""
Five inner kernels
==================

Which kernel suits? An inner layer may hold several, one for each of its outputs: here Gaussians of three widths and
polynomials of two degrees (``Separate``). A linear outer kernel only weighs them, which is multiple kernel learning;
the tensor Matérn kernel on top composes them, and follows the kink better. Figure 5 of Bohn, Griebel and Rieger, for
one draw and fixed penalties; :doc:`/reproductions` tells where the paper's claim did not hold.
"""

import numpy as np

from representer import DeepKernelRegressor, plotting
from representer.datasets import kink, make_kink, square_grid
from representer.functions import Layer
from representer.kernels import Gaussian, Linear, Polynomial, TensorMatern
from representer.operators import Separate

X, y = make_kink(random_state=0)
grid = square_grid(61)
truth = kink(grid)
mixture = Separate([Gaussian(0.1), Gaussian(1.0), Gaussian(10.0), Polynomial(1), Polynomial(2)])
outer = {"linear outer kernel": Linear(), "outer tensor Matérn kernel": TensorMatern(1, 1.0)}
figure, axes = plotting.panels(1, 2, column_labels=list(outer))
for ax, (name, kernel) in zip(axes[0], outer.items(), strict=True):
    layers = [Layer(mixture, 5, alpha=1e-4)]
    model = DeepKernelRegressor(layers, kernel=kernel, alpha=1e-5, fit_intercept=False, n_restarts=2, tol=1e-4)
    error = np.abs(model.set_params(random_state=0).fit(X, y).predict(grid) - truth)
    print(f"{name}: R² = {1 - np.mean(error**2) / truth.var():.3f}")
    plotting.error_map(error / truth.max(), points=X, colorbar=ax is axes[0, -1], ax=ax)
figure.savefig("deep_mixture.png")
