"""What is no array, no target and no weight is refused by every learner at every door, in words of the library."""

from __future__ import annotations

import traceback
import warnings
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score

import representer
from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Nystroem
from representer.kernels import Gaussian

rng = np.random.default_rng(0)
N = 30
X = rng.normal(size=(N, 2))
NUMBERS, LABELS = np.sin(X[:, 0]), np.where(X[:, 0] > 0, 1, 0)
DAYS = np.arange("2020-01-01", "2020-01-31", dtype="datetime64[D]")
FIXED = {"alpha": 0.1, "random_state": 0}

LEARNERS = {
    "ridge": (OperatorRidge(Gaussian(1.0), alpha=0.1), NUMBERS),
    "deep": (DeepKernelRegressor([], Gaussian(1.0), **FIXED), NUMBERS),
    "deep classifier": (DeepKernelClassifier([], Gaussian(1.0), **FIXED), LABELS),
    "embedding": (EmbeddingClassifier(Gaussian(1.0), **FIXED), LABELS),
    "structured": (StructuredPredictor(Gaussian(1.0), **FIXED), np.c_[NUMBERS, X[:, 1]]),
    "conditional": (ConditionalMeanEmbedding(Gaussian(1.0), **FIXED), NUMBERS),
    "autoencoder": (KernelAutoencoder([1], Gaussian(1.0), max_iter=1, random_state=0), None),
    "levels": (DeepKernelPCA([2], kernel=Gaussian(1.0), random_state=0), None),
    "features": (KernelFeatures(Gaussian(1.0), Nystroem(5), random_state=0), None),
}
SUPERVISED = [name for name, (_, targets) in LEARNERS.items() if targets is not None]
CLASSIFIERS = ("deep classifier", "embedding")

# What is no column of numbers, weights and targets alike.
NO_NUMBERS = {
    "dict": {"a": [1.0, 2.0]},
    "set": {1.0, 2.0},
    "function": len,
    "type": int,
    "object": object(),
    "text": "abc",
    "bytes": b"abc",
    "texts": ["a"] * N,
    "dates": DAYS,
    "date column": pd.DataFrame({"day": DAYS, "size": 1.0}),
    "functions": [len] * N,
    "dicts": [{"a": 1}] * N,
    "different lengths": [[1.0, 2.0]] * (N - 1) + [[1.0]],
    "complex": np.ones(N) * 1j,
    "fields": np.zeros(N, dtype=[("a", float), ("b", float)]),
    "masked": np.ma.masked_array(np.ones(N), mask=np.arange(N) < 3),
    "three axes": np.zeros((N, 2, 2)),
    "no column": np.empty((N, 0)),
    "sparse": sparse.csr_array(np.ones((N, 1))),
}
NO_ROWS = {**NO_NUMBERS, "None": None, "number": 5, "scalar": np.array(5.0), "flat": NUMBERS, "nothing": []}
NO_ROWS |= {"series": pd.Series(NUMBERS), "no row": np.empty((0, 2)), "few columns": X[:, :1]}
NO_TARGETS = {**NO_NUMBERS, "None": None, "number": 5, "scalar": np.array(5.0), "nothing": [], "few": NUMBERS[:-1]}
NO_TARGETS |= {"NaN": np.full(N, np.nan), "gap": np.where(np.arange(N) == 3, np.nan, NUMBERS)}
NO_WEIGHTS = {**NO_NUMBERS, "NaN": np.full(N, np.nan), "gap": np.where(np.arange(N) == 3, np.nan, 1.0)}
NO_WEIGHTS |= {"negative": -np.ones(N), "zeros": np.zeros(N), "few": np.ones(N - 1), "infinity": np.full(N, np.inf)}
LABELS_TOO = ("texts", "dates", "fields")  # labels may be texts and dates
OTHERS_SAY_IT_WELL = ("Sparse data was passed for", "is expecting 2 features")


@cache
def fitted(name):
    learner, targets = LEARNERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(learner).fit(X) if targets is None else clone(learner).fit(X, targets)


def assert_refused(question, what):
    """The error is our own, a sentence, and shows no place in memory."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            question()
    except (ValueError, TypeError) as error:
        message, place = str(error), traceback.extract_tb(error.__traceback__)[-1].filename
        if not any(words in message for words in OTHERS_SAY_IT_WELL):
            assert place.startswith(representer.__path__[0]), f"{what}: {place} says {message}"
            assert message.endswith((".", "None.")) and len(message) > 40, f"{what}: {message}"
            assert " at 0x" not in message and "unhashable" not in message, f"{what}: {message}"
    else:
        pytest.fail(f"{what} is accepted")


ANSWERS = ("predict", "predict_proba", "transform", "support", "explain", "sensitivity", "embedding")


@pytest.mark.parametrize("name", list(LEARNERS))
def test_inputs_that_are_no_rows_are_refused(name):
    learner, targets = LEARNERS[name]
    for kind, rows in NO_ROWS.items():
        if kind != "few columns":
            passed = (rows,) if targets is None else (rows, targets)
            assert_refused(partial(clone(learner).fit, *passed), f"fit({kind})")
        for answer in filter(partial(hasattr, fitted(name)), ANSWERS):
            assert_refused(partial(getattr(fitted(name), answer), rows), f"{answer}({kind})")
        if hasattr(fitted(name), "score"):
            passed = (rows,) if targets is None else (rows, targets)
            assert_refused(partial(fitted(name).score, *passed), f"score({kind})")


@pytest.mark.parametrize("name", ["autoencoder", "levels"])
def test_codes_that_are_no_rows_are_refused(name):
    for kind, rows in NO_ROWS.items():
        if kind != "series" and kind != "few columns":
            assert_refused(partial(fitted(name).inverse_transform, rows), kind)


@pytest.mark.parametrize("name", SUPERVISED)
def test_targets_that_are_none_are_refused(name):
    learner, _ = LEARNERS[name]
    for kind, targets in NO_TARGETS.items():
        if not (name in CLASSIFIERS and kind in (*LABELS_TOO, "masked")) and (name, kind) != ("structured", "gap"):
            assert_refused(partial(clone(learner).fit, X, targets), f"fit(y={kind})")
        if not (name in CLASSIFIERS and kind in ("fields", "masked")):
            assert_refused(partial(fitted(name).score, X, targets), f"score(y={kind})")


@pytest.mark.parametrize("name", SUPERVISED)
def test_weights_that_are_none_are_refused(name):
    learner, right = LEARNERS[name]
    for kind, weights in NO_WEIGHTS.items():
        assert_refused(partial(clone(learner).fit, X, right, sample_weight=weights), f"fit(sample_weight={kind})")
        if name not in ("structured", "conditional"):  # whose scores have no weights
            assert_refused(partial(fitted(name).score, X, right, sample_weight=weights), f"score({kind})")


def batch(labels, classes):
    model = EmbeddingClassifier(Gaussian(1.0), approximation=Nystroem(5), calibration=None, **FIXED)
    return model.partial_fit(X, labels, classes=classes)


def weighted(class_weight):
    return EmbeddingClassifier(Gaussian(1.0), class_weight=class_weight, **FIXED).fit(X, LABELS)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda: fitted("ridge").predict(NUMBERS), r"X has the shape \(30,\).*Reshape your data: X.reshape\(-1, 1\)"),
        (lambda: fitted("ridge").predict(None), "X should be an array.*got None"),
        (lambda: fitted("ridge").predict(5), "X should be an array.*got 5"),
        (lambda: fitted("ridge").score(X, DAYS), "y holds dates"),
        (lambda: fitted("ridge").score(X, np.full(N, np.nan)), "NaN only: none of the 30 targets is known"),
        (lambda: fitted("ridge").score(X, X), r"y has 2 outputs, but the fit has seen 1"),
        (lambda: fitted("ridge").fit(X, 5.0), "y should be an array.*got 5.0"),
        (lambda: fitted("ridge").fit(X, np.empty((N, 0))), "y has no outputs.*Give one column at least"),
        (lambda: fitted("ridge").fit(X, NUMBERS, noise=["a"] * N), "noise holds strings"),
        (lambda: fitted("embedding").score(X, DAYS), "cannot be compared with the predicted ones"),
        (lambda: fitted("embedding").score(X, ["a"] * N), "such as.*'a'.*cannot be compared"),
        (lambda: fitted("embedding").fit(X, X), r"shape \(30, 2\).*y.argmax\(1\)"),
        (lambda: fitted("structured").score(X, sparse.csr_array(X)), r"y is sparse.*y.toarray\(\)"),
        (lambda: batch(LABELS, classes=[[1], [1, 2]]), "classes must have one label.*entries differ in length"),
        (lambda: batch(LABELS, classes=[]), "There are no labels"),
        (lambda: batch(["0"] * N, classes=[0, 1]), "labels that are not among the classes: '0'"),
        (lambda: batch(X, classes=[0, 1]), r"y must have one label.*shape \(30, 2\)"),
        (lambda: batch([{"a": 1}] * N, classes=[0, 1]), "Unknown label type: y holds objects such as a dict"),
        (lambda: weighted("equal"), "class_weight must be None, 'balanced' or a dict from classes to weights"),
        (lambda: weighted({0: "a", 1: 1.0}), "class_weight must be"),
        (lambda: OperatorRidge(alpha=DAYS).fit(X, NUMBERS), "alpha must be a positive number, an array of candidates"),
        (lambda: OperatorRidge(random_state="x").fit(X, NUMBERS), "random_state must be an integer.*got 'x'"),
        (lambda: fitted("ridge").card(5, 5), "X should be an array.*got 5"),
        (lambda: fitted("conditional").cdf(X, DAYS), "y must be a number or an array"),
        (lambda: fitted("ridge").fit(X, NUMBERS, groups=[[1]] * (N - 1) + [[1, 2]]), "entries of different lengths"),
    ],
)
def test_errors_say_what_to_do(question, words):
    with pytest.raises((ValueError, TypeError), match=words):
        question()


def test_scores_are_those_of_scikit_learn():
    weights = rng.uniform(size=N)
    for name in ("ridge", "deep"):
        predictions = fitted(name).predict(X)
        assert fitted(name).score(X, NUMBERS) == pytest.approx(r2_score(NUMBERS, predictions), rel=1e-12)
        expected = r2_score(NUMBERS, predictions, sample_weight=weights)
        assert fitted(name).score(X, list(NUMBERS), sample_weight=list(weights)) == pytest.approx(expected, rel=1e-12)
    for name in CLASSIFIERS:
        predictions = fitted(name).predict(X)
        expected = accuracy_score(LABELS, predictions, sample_weight=weights)
        assert fitted(name).score(X, pd.Series(LABELS), pd.Series(weights)) == pytest.approx(expected, rel=1e-12)
        assert fitted(name).score(X[:3], LABELS[:3] + 7) == 0.0  # classes that the fit has not seen
