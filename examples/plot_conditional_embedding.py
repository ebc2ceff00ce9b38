"""
A distribution for every x
==========================

Y has two branches, which no mean describes. A conditional mean embedding has the density, quantiles and samples of Y
for every x: one fit, and the expectation of every function of Y follows.
"""

import matplotlib.pyplot as plt
import numpy as np

from representer import ConditionalMeanEmbedding

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(400, 1))
branch = np.where(rng.random(400) < 0.5, 1.0, -1.0)
y = branch * np.cos(X[:, 0]) + 0.1 * rng.normal(size=400)

model = ConditionalMeanEmbedding(random_state=0).fit(X, y)
x, levels = np.linspace(-2, 2, 80)[:, None], np.linspace(-1.5, 1.5, 100)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True)
axes[0].scatter(X[:, 0], y, s=4)
axes[0].plot(x, model.mean(x), "k")
axes[0].set_title("samples and mean")
axes[1].pcolormesh(x[:, 0], levels, model.density(x, levels).T)
axes[1].set_title("density")
axes[2].plot(x, model.sample(x, 20), "k.", markersize=2)
axes[2].set_title("20 herded samples for each x")
figure.tight_layout()
figure.savefig("conditional_embedding.png")

share = model.expect(lambda y: y > 0, [[0.0]])[0]
spread = model.expect(lambda y: np.abs(y), x)
r2 = 1 - np.mean((spread - np.abs(np.cos(x[:, 0]))) ** 2) / np.var(np.abs(np.cos(x[:, 0])))
print(f"P[Y > 0 | x = 0] = {share:.2f}; E|Y| given x: R² = {r2:.2f}")
