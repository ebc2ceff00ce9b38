"""
Faces: the other half
=====================

The right half of a face from its left half, of ten people whom the model has never seen. ``OperatorRidge`` predicts
2,048 pixels at once: they share one system. The nearest face of the training set is the rival. (The set is fetched by
``representer data fetch olivetti_faces.npz``.)
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsRegressor

from representer import OperatorRidge
from representer.datasets import load_faces
from representer.kernels import Gaussian

faces = load_faces()
left, right = (faces.images[:, :, side].reshape(400, -1) for side in (slice(0, 32), slice(32, 64)))
known, new = faces.target < 30, faces.target >= 30

answers = {"true": right[new]}
for name, model in {
    "OperatorRidge": OperatorRidge(Gaussian("median")),
    "nearest face": KNeighborsRegressor(1),
}.items():
    answers[name] = model.fit(left[known], right[known]).predict(left[new])
    error = np.sqrt(np.mean((answers[name] - right[new]) ** 2))
    print(f"{name:13} error {error:.3f} of the pixels (from 0 to 1) of people whom it has not seen")

figure, axes = plt.subplots(3, 5, figsize=(7, 4.6), layout="constrained")
for row, (name, halves) in zip(axes, answers.items(), strict=True):
    for ax, i in zip(row, range(0, 100, 20), strict=True):
        face = np.hstack([left[new][i].reshape(64, 32), halves[i].reshape(64, 32)])
        ax.imshow(face, cmap="gray", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
figure.savefig("faces.png")
