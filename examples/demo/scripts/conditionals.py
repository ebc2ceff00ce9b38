"""A distribution for every x

Y has two branches, which no mean describes. `ConditionalMeanEmbedding` answers any question about Y given x: its
density, samples, and the expectation of whatever function you ask for. A Gaussian around the mean is the rival.
"""

import numpy as np

from representer import ConditionalMeanEmbedding, OperatorRidge
from representer.kernels import Gaussian

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(400, 1))
branch = np.where(rng.random(400) < 0.5, 1.0, -1.0)
y = branch * np.cos(X[:, 0]) + 0.1 * rng.normal(size=400)

model = ConditionalMeanEmbedding(random_state=0).fit(X, y)
x, levels = np.linspace(-2, 2, 80)[:, None], np.linspace(-1.5, 1.5, 100)
mean, density, samples = model.mean(x), model.density(x, levels), model.sample(x, 20)

truth = np.abs(np.cos(x[:, 0]))
centre, std = OperatorRidge(Gaussian("auto")).fit(X, y).predict(x, return_std=True)
bell = np.abs(centre + std * rng.normal(size=(2000, 1))).mean(0)  # E|Y| of a Gaussian
results = {
    f"{name}: error of E|Y| given x, which is |cos x|": f"{np.sqrt(np.mean((size - truth) ** 2)):.2f}"
    for name, size in {"ConditionalMeanEmbedding": model.expect(np.abs, x), "a Gaussian": bell}.items()
}
