"""The comparison of deep learners with their shallow form: problems, errors and paired differences."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from benchmarks import depth
from benchmarks.defaults import FOLDS, Problem
from benchmarks.depth import METHODS, errors, kink, measure, problems, summary


class Constant:
    """A model that says the same of every sample."""

    classes_ = np.array([0, 1])
    layers_ = ()

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.full(len(X), 2.0)

    def predict_proba(self, X):
        return np.tile([0.25, 0.75], (len(X), 1))


def test_differences_are_paired():
    result = {
        "shallow": {"error": [1.0, 3.0], "seconds": [1.0, 1.0], "layers": [0.0, 0.0]},
        "deep": {"error": [1.5, 3.1], "seconds": [2.0, 4.0], "layers": [1.0, 0.0]},
    }
    shown = summary(result)
    assert shown["difference"] == pytest.approx(0.3) and shown["times"] == 3.0 and shown["folds with layers"] == 1.0
    assert shown["standard error"] == pytest.approx(np.std([0.5, 0.1], ddof=1) / np.sqrt(2))


def test_errors_are_in_units_of_the_mean_or_log_losses():
    X, y = np.zeros((4, 1)), np.array([1.0, 3.0, 1.0, 3.0])
    regression = Problem("r", lambda: (X, y), "regression")
    assert errors(regression, Constant(), X, y, y) == {"error": pytest.approx(1.0)}  # the mean of y is 2
    labels = np.array([1, 1, 1, 0])
    found = errors(Problem("c", lambda: (X, labels), "classification"), Constant(), X, labels, labels)
    assert found == {"error": pytest.approx(-(3 * np.log(0.75) + np.log(0.25)) / 4), "wrong": 0.25}


def test_both_forms_see_the_same_folds(monkeypatch):
    X, y = np.zeros((15, 1)), np.arange(15.0)
    monkeypatch.setitem(depth.METHODS, "regression", {"shallow": Constant, "deep": Constant})
    regression = Problem("r", lambda: (X, y), "regression")
    result, targets = measure(regression, 15), regression.data(15)[1]
    folds = KFold(FOLDS, shuffle=True, random_state=0).split(targets)
    expected = [
        np.sqrt(np.mean((targets[b] - 2) ** 2) / np.mean((targets[b] - targets[a].mean()) ** 2)) for a, b in folds
    ]
    np.testing.assert_allclose(result["shallow"]["error"], expected)
    np.testing.assert_allclose(result["deep"]["error"], expected)


def test_every_kind_of_problem_has_methods():
    assert {problem.kind for problem in problems()} == set(METHODS)
    assert kink(0.01)[0].shape == (150, 2)
