"""
Mislabelled digits, found
=========================

Twenty of four hundred digits have a wrong label. ``suspects_`` ranks the training samples by the probability that a fit
without each of them gives its label; the first twenty are shown with the label that was told and the one that is
expected. A frame says that the label is wrong indeed. :doc:`/explain` says more about why a model says what it says.
"""

import numpy as np
from sklearn.datasets import load_digits

from representer import EmbeddingClassifier, plotting
from representer.kernels import Gaussian

rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
rows = rng.permutation(len(y))[:400]
X, y = X[rows] / 16.0, y[rows]
wrong = rng.permutation(len(y))[:20]
told = y.copy()
told[wrong] = (y[wrong] + rng.integers(1, 10, len(wrong))) % 10

model = EmbeddingClassifier(Gaussian("auto"), random_state=0).fit(X, told)
suspects = model.suspects_[:20]
found = np.isin(wrong, suspects).mean()
print(f"share of the {len(wrong)} wrong labels among the first {len(suspects)} suspects: {found:.0%}")

expected = model.loo_estimates_.argmax(1)  # by the fit without that digit
figure, axes = plotting.panels(2, 10, size=1.3)
for ax, i in zip(axes.flat, suspects, strict=True):
    ax.imshow(X[i].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"told {told[i]}\nexpected {expected[i]}", fontsize=8)
    ax.set(xticks=[], yticks=[])
    for side in ax.spines.values():
        side.set(color=plotting.CLASSES[5], linewidth=3.0, visible=told[i] != y[i])
figure.savefig("mislabelled_digits.png")
