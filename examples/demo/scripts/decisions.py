"""Probabilities, and where to doubt them

Which of three vineyards is a wine from, by its alcohol and its flavanoids? `EmbeddingClassifier` learns a lengthscale
for each and calibrates its probabilities; their entropy shows where a decision is a guess. `DeepKernelClassifier`
composes two functions for the same task. A support vector machine and a Gaussian process are the rivals.
"""

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.svm import SVC

from representer import DeepKernelClassifier, EmbeddingClassifier

X, y = load_wine(return_X_y=True)
X = X[:, [0, 6]]
model = EmbeddingClassifier(random_state=0).fit(X, y)
low, high = X.min(0) - 0.5, X.max(0) + 0.5
grid = np.stack(np.meshgrid(*np.linspace(low, high, 100).T), -1).reshape(-1, 2)
probabilities, entropy = model.predict_proba(grid), model.entropy(grid)

others = {
    "DeepKernelClassifier": DeepKernelClassifier(random_state=0),
    "SVC with Platt scaling": CalibratedClassifierCV(SVC(), ensemble=False),
    "Gaussian process classifier": GaussianProcessClassifier(RBF(1.0)),
}
folds = StratifiedKFold(5, shuffle=True, random_state=0)
results = {}
for name, learner in {"EmbeddingClassifier": model, **others}.items():
    scores = cross_validate(learner, X, y, cv=folds, scoring=("accuracy", "neg_log_loss"))
    accuracy, loss = scores["test_accuracy"].mean(), -scores["test_neg_log_loss"].mean()
    results[f"{name}: accuracy and log loss, five folds"] = f"{accuracy:.0%}, {loss:.2f}"
