"""A kink along the diagonal

A function with a kink that no axis follows, from 100 noisy values. `DeepKernelRegressor` composes two functions: the
inner one turns the square until the kink lies along an axis, where an ordinary kernel can follow it.
"""

import numpy as np

from representer import DeepKernelRegressor
from representer.datasets import kink, make_kink, square_grid
from representer.kernels import Polynomial, TensorMatern

X, y = make_kink(100, noise=0.01, random_state=0)
models = {
    "one layer": DeepKernelRegressor([], TensorMatern(1, 1.0)),
    "two layers": DeepKernelRegressor([(Polynomial(1), 2)], TensorMatern(1, 1.0), n_restarts=16, random_state=0),
}
for model in models.values():
    model.fit(X, y)

grid = square_grid()
truth = kink(grid)
errors = {name: np.abs(model.predict(grid) - truth) for name, model in models.items()}
inner = models["two layers"].transform_layers(grid)[0]

size = np.sqrt(np.mean(truth**2))
results = {f"relative error, {name}": f"{np.sqrt(np.mean(e**2)) / size:.1%}" for name, e in errors.items()}
