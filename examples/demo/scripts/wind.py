"""Physics in the kernel

The wind over a plain, from 60 noisy stations. Every function in the space of `DivergenceFree` is a flow without
sources; the data need not teach it.
"""

import numpy as np

from representer import OperatorRidge
from representer.kernels import Gaussian
from representer.operators import CurlFree, DivergenceFree

rng = np.random.default_rng(0)
side = np.linspace(-1.5, 1.5, 15)
stations, grid = rng.uniform(-1.5, 1.5, (60, 2)), np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
(x, y) = np.concatenate([stations, grid]).T  # the wind is (∂ψ/∂y, −∂ψ/∂x) of ψ = sin(2x) cos(2y) + x y / 2
flow = np.column_stack([x / 2 - 2 * np.sin(2 * x) * np.sin(2 * y), -2 * np.cos(2 * x) * np.cos(2 * y) - y / 2])
winds, truth = flow[:60] + 0.2 * rng.normal(size=(60, 2)), flow[60:]

kernels = {
    "two outputs, unrelated": Gaussian("auto"),
    "curl-free (the wrong physics)": CurlFree("auto"),
    "divergence-free": DivergenceFree("auto"),
}
fields = {name: OperatorRidge(kernel).fit(stations, winds).predict(grid) for name, kernel in kernels.items()}

results = {
    f"relative error, {name}": f"{np.sqrt(np.mean((field - truth) ** 2) / np.mean(truth**2)):.0%}"
    for name, field in fields.items()
}
