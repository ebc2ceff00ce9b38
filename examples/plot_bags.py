"""
Bags: a digit is a set of drops of ink
======================================

Forget the grid of pixels: a handwritten digit is a bag of points, where the ink is, as many as there are, in any
order. ``MeanMap`` compares bags as distributions, with a Gaussian on top. Around its own centre a bag does not know
where on the paper the digit stood; an array of pixels does. All digits have been shifted at random, and a support
vector machine on their pixels is the rival.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_predict
from sklearn.svm import SVC

from representer.kernels import Gaussian, MeanMap

rng = np.random.default_rng(0)
images, y = load_digits(n_class=6, return_X_y=True)
rows = rng.permutation(len(y))[:240]
bags, pixels, y = [], [], y[rows]
for image in images[rows].reshape(-1, 8, 8):
    points = np.argwhere(image > 6).astype(float)
    bags.append(points - points.mean(0))
    pixels.append(np.roll(np.pad(image, 4), rng.integers(-4, 5, 2), (0, 1)).ravel())  # on a larger paper

gram = MeanMap(Gaussian(1.0), outer=Gaussian("median")).resolve(bags)(bags).numpy()
by_bags = cross_val_predict(SVC(C=100.0, kernel="precomputed"), gram, y, cv=5)
by_pixels = cross_val_predict(SVC(C=100.0), np.array(pixels), y, cv=5)
print(f"accuracy {np.mean(by_bags == y):.2f} as bags, {np.mean(by_pixels == y):.2f} as pixels")

figure, axes = plt.subplots(2, 6, figsize=(8, 3), layout="constrained")
for ax, i in zip(axes.flat, range(12), strict=True):
    ax.scatter(bags[i][:, 1], -bags[i][:, 0], s=18, color="tab:blue" if by_bags[i] == y[i] else "tab:red")
    ax.set(xlim=(-5, 5), ylim=(-5, 5), aspect="equal", xticks=[], yticks=[], title=f"read {by_bags[i]}")
figure.savefig("bags.png")
