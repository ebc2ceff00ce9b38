"""
Clusters on a line
==================

What an encoder does to two clusters, around 0 and 2: it puts them far apart and keeps the points of each in order, so
that the decoder can tell them from each other.
"""

import matplotlib.pyplot as plt
import numpy as np

from representer import KernelAutoencoder
from representer.kernels import Gaussian

rng = np.random.default_rng(0)
label = np.repeat([0, 1], 40)
X = (2.0 * label + rng.normal(0.0, 0.1, 80))[:, None]
model = KernelAutoencoder(1, Gaussian(0.5), alpha=1e-4, encoder_alpha=1e-3, random_state=0).fit(X)
print(f"R² = {model.score(2.0 * label[:, None] + rng.normal(0.0, 0.1, (80, 1))):.3f} on new points")

grid = np.linspace(-0.8, 2.8, 300)[:, None]
codes = model.transform(grid)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(grid, codes, color="lightgrey")
left.scatter(X, model.transform(X), c=label, s=12)
left.set(title="encoder", xlabel="x", ylabel="code")
line = np.linspace(codes.min(), codes.max(), 300)[:, None]
right.plot(line, model.inverse_transform(line), color="lightgrey")
right.scatter(model.transform(X), X, c=label, s=12)
right.set(title="decoder", xlabel="code", ylabel="x")
figure.savefig("clusters_autoencoder.png")
