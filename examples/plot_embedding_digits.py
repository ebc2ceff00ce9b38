"""
Few digits, and the pixels that matter
======================================

Left: the accuracy of ``EmbeddingClassifier`` on new digits, by the number of digits it has learned from, beside a
support vector classifier with scikit-learn's defaults. Right: one lengthscale for each pixel tells which pixels
separate two digits. Figure 2 of Hsu, Nock and Ramos, on the small digits of scikit-learn; :doc:`/embeddings` has the
measurements on MNIST, also with networks in the kernel.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from representer import EmbeddingClassifier, plotting
from representer.kernels import Gaussian

X, y = load_digits(return_X_y=True)
X, order = X / 16.0, np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]
sizes = (30, 60, 120, 240)
learners = {"EmbeddingClassifier": EmbeddingClassifier(Gaussian("auto"), random_state=0), "SVC": SVC()}
figure, axes = plotting.panels(1, 3, column_labels=["accuracy on new digits", "1 or 7?", "3 or 8?"])
for name, learner in learners.items():
    scores = [learner.fit(X[:n], y[:n]).score(X[800:], y[800:]) for n in sizes]
    print(f"{name}: accuracy {', '.join(f'{score:.2f}' for score in scores)}")
    axes[0, 0].semilogx(sizes, scores, "o-", label=name)
axes[0, 0].set(xlabel="digits to learn from", xticks=sizes, xticklabels=sizes)
axes[0, 0].minorticks_off()
axes[0, 0].legend()
for ax, pair in zip(axes[0, 1:], ((1, 7), (3, 8)), strict=True):
    rows = np.isin(y, pair)
    model = EmbeddingClassifier(Gaussian("ard"), max_iter=30, random_state=0).fit(X[rows][:150], y[rows][:150])
    print(f"{pair}: accuracy {model.score(X[rows][150:], y[rows][150:]):.3f}")
    relevance = X[rows].std(0) / np.asarray(model.kernel_.lengthscale)  # of a change as large as pixels have
    ax.imshow(relevance.reshape(8, 8), cmap="magma")
    ax.set_axis_off()
figure.savefig("embedding_digits.png")
