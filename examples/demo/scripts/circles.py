"""Codes of three circles

One number for each point of the plane: `KernelAutoencoder` lays a curve through three circles, and the place on the
curve also tells on which circle a point lies.
"""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from representer import KernelAutoencoder
from representer.datasets import make_circles3
from representer.kernels import Gaussian

X, ring = make_circles3(150, noise=0.05, random_state=0)
model = KernelAutoencoder(1, Gaussian(0.5), alpha=1e-3, encoder_alpha=1e-3, max_iter=500, random_state=0)
codes = model.fit_transform(X)
curve = model.inverse_transform(np.linspace(codes.min(), codes.max(), 1000)[:, None])

line = PCA(1).fit(X)
results = {}
for name, kept, numbers in (
    ("KernelAutoencoder", model.explained_variance_ratio_, codes),
    ("PCA", line.explained_variance_ratio_[0], line.transform(X)),
):
    accuracy = cross_val_score(KNeighborsClassifier(1), numbers, ring, cv=5).mean()
    results[f"{name}: variance that one number keeps"] = f"{kept:.0%}"
    results[f"{name}: circle told by that number, five folds"] = f"{accuracy:.0%}"
