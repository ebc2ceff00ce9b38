"""
Balanced complexity
===================

Two attributes of iris do not separate its species. From an overfitted and an underfitted start, the Rademacher bound
leads to the same probabilities (figure 1 of Hsu, Nock and Ramos). Colours are those of the three species, mixed
by their probabilities.
:doc:`/embeddings` tells what the bound is.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

from representer import EmbeddingClassifier, plotting
from representer.kernels import Gaussian

X, y = load_iris(return_X_y=True)
X = MinMaxScaler().fit_transform(X[:, :2])
train, test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)
side = np.linspace(-0.05, 1.05, 80)
grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
paper = {"fit_intercept": False, "calibration": None}

figure, axes = plt.subplots(2, 3, figsize=(9, 6))
for row, (alpha, lengthscale) in zip(axes, ((1e-6, 0.02), (10.0, 3.0)), strict=True):
    first = EmbeddingClassifier(Gaussian(lengthscale), None, alpha, **paper).fit(train, y_train)
    start = {"alpha": alpha, "lengthscale": lengthscale}
    options = {"start": start, "tol": 0.0, **paper}  # tol=0: the objective is flat where samples are islands
    last = EmbeddingClassifier(Gaussian("auto"), "rademacher", **options).fit(train, y_train)
    for ax, model, name in ((row[0], first, "before"), (row[1], last, "after")):
        picture = plotting.class_colors(model.predict_proba(grid)).reshape(80, 80, 3)
        ax.imshow(picture, origin="lower", extent=(-0.05, 1.05, -0.05, 1.05))
        ax.scatter(*train.T, c=plotting.class_colors(np.eye(3)[y_train]), edgecolor="white", s=12, linewidth=0.5)
        ax.set_title(f"{name}: r = {model.complexity_:.2f}, {100 * model.score(test, y_test):.0f} %")
    row[2].plot([entry.value for entry in last.history_], label="objective")
    row[2].plot([entry.loss for entry in last.history_], label="cross entropy")
    row[2].set_title("iterations")
    row[2].legend()
    print(f"accuracy {first.score(test, y_test):.2f} -> {last.score(test, y_test):.2f}, r = {last.complexity_:.2f}")
figure.tight_layout()
figure.savefig("embedding_classifier.png")
