"""A distribution for every x

Y has two branches, which no mean describes. `ConditionalMeanEmbedding` answers any question about Y given x: its
density, samples, and the expectation of whatever function you ask for.
"""

import numpy as np

from representer import ConditionalMeanEmbedding

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(400, 1))
branch = np.where(rng.random(400) < 0.5, 1.0, -1.0)
y = branch * np.cos(X[:, 0]) + 0.1 * rng.normal(size=400)

model = ConditionalMeanEmbedding(random_state=0).fit(X, y)
x, levels = np.linspace(-2, 2, 80)[:, None], np.linspace(-1.5, 1.5, 100)
mean, density, samples = model.mean(x), model.density(x, levels), model.sample(x, 20)

size = model.expect(np.abs, x)
truth = np.abs(np.cos(x[:, 0]))
results = {
    "E|Y| given x against |cos x|: R²": f"{1 - np.mean((size - truth) ** 2) / truth.var():.2f}",
    "P(Y > 0) at x = 0, where it is 0.5": f"{model.expect(lambda y: y > 0, [[0.0]])[0]:.2f}",
}
