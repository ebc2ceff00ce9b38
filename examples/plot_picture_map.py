"""
A map of pictures to walk through
=================================

Two numbers for each picture, and a decoder from any two numbers back to a picture: between the samples lie pictures
that nobody has taken. ``explorer.save("page.html")`` writes a page to walk through: point at a sample to see it, click
an empty place to decode it there. Faces are shown where the data folder is at hand, handwritten digits otherwise.
:doc:`/explore` says what else the page can do; ``representer explore model/`` serves it live.
"""

import numpy as np
from sklearn.datasets import load_digits

from representer import KernelAutoencoder, datasets, plotting
from representer.explorer import Explorer

try:
    X, shape = datasets.load_isomap_faces().data, (32, 32)
except datasets.MissingDataError:
    X, shape = load_digits().data[:400] / 16.0, (8, 8)
X = np.asarray(X).reshape(len(X), -1)
train, test = X[::3], X[1::3]

model = KernelAutoencoder(2, random_state=0).fit(train)
print(f"share of the variance of unseen pictures that two numbers keep: {model.score(test):.2f}")

explorer = Explorer(model, shape=shape)
explorer.save("page.html")

places = explorer.chart.grid(9)
figure, axes = plotting.panels(1, 2, size=5.0, column_labels=("the samples", "what is decoded between them"))
axes[0, 0].scatter(*explorer.chart.codes[:, :2].T, s=4)
walk = model.inverse_transform(places).reshape(9, 9, *shape)[::-1]
axes[0, 1].imshow(walk.transpose(0, 2, 1, 3).reshape(9 * shape[0], -1), cmap="gray_r" if shape == (8, 8) else "gray")
axes[0, 1].set_axis_off()
figure.savefig("picture_map.png")
