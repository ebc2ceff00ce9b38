"""
Circles and moons
=================

One number for each point of a plane: ``KernelAutoencoder`` lays a curve through three circles, or two moons, and the
place on the curve also tells from which one a point is. Of two clusters on a line the code is a function that one can
draw: it rises through both and turns back beyond them (figures 3, 5 and 7 of Laforgue, Clémençon and d'Alché-Buc;
:doc:`/autoencoders`).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from representer import KernelAutoencoder
from representer.kernels import Gaussian

rng = np.random.default_rng(0)
ring, angle = rng.integers(1, 4, 150), rng.uniform(0, 2 * np.pi, 150)
circles = ring[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0, 0.05, (150, 2))
cluster = rng.integers(0, 2, 150)
line = (2.0 * cluster + rng.normal(0, 0.25, 150))[:, None]
data = {"circles": (circles, ring), "moons": make_moons(150, noise=0.05, random_state=0), "line": (line, cluster)}

figure, axes = plt.subplots(3, 2, figsize=(8, 12), layout="constrained")
for (left, right), (name, (X, y)) in zip(axes, data.items(), strict=True):
    model = KernelAutoencoder(1, Gaussian(0.5), alpha=1e-3, encoder_alpha=1e-3, tol=1e-4, max_iter=500, random_state=0)
    codes = model.fit_transform(X)
    accuracy = cross_val_score(KNeighborsClassifier(1), codes, y, cv=5).mean()
    print(f"{name:8} {model.explained_variance_ratio_:.0%} of the variance kept, accuracy = {accuracy:.2f}")
    if name == "line":
        places = np.linspace(X.min() - 0.5, X.max() + 0.5, 300)[:, None]
        left.plot(places, model.transform(places), color="lightgrey")
        left.scatter(X, codes, c=codes[:, 0], s=12)
        left.set(title="line: the code is a function of x", xlabel="x", ylabel="code")
    else:
        curve = model.inverse_transform(np.linspace(codes.min(), codes.max(), 1000)[:, None])
        left.plot(*curve.T, color="lightgrey")
        left.scatter(*X.T, c=codes[:, 0], s=12)
        left.set_title(f"{name}, and what codes stand for")
    right.scatter(codes[:, 0], y + rng.uniform(-0.2, 0.2, len(y)), c=codes[:, 0], s=12)
    right.set(title="codes", xlabel="code", ylabel="label")
figure.savefig("circles_autoencoder.png")
