"""
Eight learners, a picture of each
=================================

What each learner is for, on data that one can see. :doc:`/choosing` says what to type.
"""

import numpy as np
from sklearn.datasets import make_moons

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    OperatorRidge,
    StructuredPredictor,
)
from representer.datasets import kink, make_circles3, make_kink, square_grid
from representer.kernels import Gaussian, Polynomial, Spectrum, TensorMatern
from representer.plotting import panels

rng = np.random.default_rng(0)
figure, axes = panels(4, 2, size=3.0)
ridge, deep, classes, decisions, codes, levels, spread, words = axes.flat

# %%
# Numbers, with how sure they are; and a kink that no axis follows, which an inner layer turns until an axis does.
x = np.sort(np.r_[rng.uniform(-3, -0.5, 25), rng.uniform(1, 3, 20)])[:, None]
line = np.linspace(-4, 4, 200)[:, None]
y = np.sin(2 * x[:, 0]) + 0.15 * rng.normal(size=45)
mean, std = OperatorRidge(Gaussian("auto")).fit(x, y).predict(line, return_std=True)
ridge.fill_between(line[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3)
ridge.plot(line, mean)
ridge.plot(x, y, "k.", markersize=4)
ridge.set(title="OperatorRidge\nnumbers, and how sure", ylim=(-3, 3))

X, y = make_kink(100, noise=0.01, random_state=0)
kinked = DeepKernelRegressor([(Polynomial(1), 2)], TensorMatern(1, 1.0), random_state=0).fit(X, y)
grid = square_grid()
side = int(np.sqrt(len(grid)))
deep.imshow(kinked.predict(grid).reshape(side, side), origin="lower", extent=(-1, 1, -1, 1))
deep.set(title="DeepKernelRegressor\nfeatures that act together")
error = np.sqrt(np.mean((kinked.predict(grid) - kink(grid)) ** 2) / np.mean(kink(grid) ** 2))
print(f"relative error of the kink: {error:.1%}")

# %%
# Classes, with honest probabilities.
X, y = make_moons(120, noise=0.2, random_state=0)
plane = np.stack(np.meshgrid(np.linspace(-2, 3, 60), np.linspace(-1.5, 2, 60)), -1).reshape(-1, 2)
for ax, model, note in (
    (classes, EmbeddingClassifier(Gaussian("auto")), "classes, probabilities"),
    (decisions, DeepKernelClassifier([(Polynomial(1), 2)], random_state=0), "the same, in layers"),
):
    shares = model.fit(X, y).predict_proba(plane)[:, 1].reshape(60, 60)
    ax.imshow(shares, origin="lower", extent=(-2, 3, -1.5, 2), cmap="RdBu", vmin=0, vmax=1, aspect="auto")
    ax.scatter(*X.T, c=y, cmap="RdBu", s=12, edgecolor="0.2", linewidth=0.5)
    ax.set_title(f"{type(model).__name__}\n{note}")

# %%
# Codes and the way back; components in levels.
X, _ = make_circles3(120, noise=0.05, random_state=0)
coder = KernelAutoencoder(1, Gaussian(0.5), alpha=1e-3, encoder_alpha=1e-3, max_iter=300, random_state=0)
code = coder.fit_transform(X)[:, 0]
codes.plot(*coder.inverse_transform(np.linspace(code.min(), code.max(), 600)[:, None]).T, color="0.7", zorder=0)
codes.scatter(*X.T, c=code, s=12)
codes.set(title="KernelAutoencoder\ncodes, and the way back", aspect="equal")
components = DeepKernelPCA([4, 2], [Gaussian(0.5), Gaussian("median")]).fit(X)
levels.scatter(*X.T, c=components.hidden_[1][:, 0], s=12, cmap="coolwarm")
levels.set(title="DeepKernelPCA\ncomponents in levels", aspect="equal")

# %%
# Distributions; and outputs that are words.
x = rng.uniform(-2, 2, (250, 1))
y = rng.choice([-1, 1], 250) * np.cos(x[:, 0]) + 0.1 * rng.normal(size=250)
heights, line = np.linspace(-1.5, 1.5, 80), np.linspace(-2, 2, 60)[:, None]
density = ConditionalMeanEmbedding(random_state=0).fit(x, y).density(line, heights)
spread.pcolormesh(line[:, 0], heights, density.T)
spread.set(title="ConditionalMeanEmbedding\nwhole distributions")
X = rng.normal(size=(120, 2))
names = np.array(["cold", "colder", "warm", "warmer"])
y = [names[2 * (a > 0) + (b > 0)] for a, b in X]
reader = StructuredPredictor("rbf", Spectrum(2).normalized()).fit(X, y)
places = np.stack(np.meshgrid([-1.3, -0.4, 0.4, 1.3], [-1.2, -0.4, 0.4, 1.2]), -1).reshape(-1, 2)
for place, word in zip(places, reader.predict(places), strict=True):
    words.text(*place, word, ha="center", fontsize=9)
words.scatter(*X.T, s=6, color="0.75")
words.set(title="StructuredPredictor\nwords, sets, pictures", xlim=(-2, 2), ylim=(-2, 2))
figure.savefig("learners.png")
