"""Weights are repetitions, and groups are left out together, in every deep learner."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data
from tiers import tiers

from representer import DeepKernelClassifier, DeepKernelRegressor, EmbeddingClassifier, KernelAutoencoder, Layer
from representer.estimators.validation import folds_of
from representer.kernels import Gaussian, Polynomial

INNER = Layer(Polynomial(1, gamma=1.0), 2, alpha=1e-3)
SEARCH = {"n_restarts": 1, "max_iter": 1000, "tol": 1e-13, "random_state": 0}


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30, 2))
    weights = rng.integers(0, 4, 30)
    y = np.sin(3 * X[:, 0] + X[:, 1]) + 0.1 * rng.normal(size=30)
    return X, y, weights


def custom(F, Y, weights=None):
    errors = ((F - Y) ** 2).sum(1, keepdim=True)
    return errors.mean() if weights is None else (weights * errors).mean()


@pytest.mark.parametrize(
    ("layers", "loss"),
    tiers(
        itertools.product([[], [INNER]], ["squared", "epsilon_insensitive", "huber", custom]),
        lambda case: not case[0] or case[1] in ("squared", "huber"),
    ),
)
def test_weights_of_a_regressor_are_repetitions(samples, loss, layers):
    X, y, weights = samples
    model = DeepKernelRegressor(layers, Gaussian(0.7), loss, 1e-2, epsilon=0.05, delta=0.5, **SEARCH)
    with warnings.catch_warnings():  # tolerances at which a search may run out of digits
        warnings.simplefilter("ignore", ConvergenceWarning)
        weighted = model.fit(X, y, sample_weight=weights).predict(X)
        value = model.objective_value_
        rows = np.repeat(np.arange(30), weights)
        repeated = model.fit(X[rows], y[rows]).predict(X)
    assert value == pytest.approx(model.objective_value_, rel=1e-8)
    np.testing.assert_allclose(weighted, repeated, atol=1e-4 if layers else 1e-7)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "squared"])
def test_weights_of_a_classifier_are_repetitions(samples, loss):
    X, y, weights = samples
    model = DeepKernelClassifier([], Gaussian(0.7), loss, 1e-2, calibration=None)
    weighted = model.fit(X, y > 0, sample_weight=weights).decision_function(X)
    rows = np.repeat(np.arange(30), weights)
    repeated = model.fit(X[rows], y[rows] > 0).decision_function(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_class_weights_multiply_the_weights_of_samples(samples):
    X, y, _ = samples
    labels = np.where(y > 0.3, "high", "low")
    options = {"alpha": 1e-2, "calibration": None}
    model = DeepKernelClassifier([], Gaussian(0.7), "squared", class_weight={"high": 3.0, "low": 1.0}, **options)
    by_class = model.fit(X, labels).decision_function(X)
    model.set_params(class_weight=None)
    by_sample = model.fit(X, labels, sample_weight=np.where(labels == "high", 3.0, 1.0)).decision_function(X)
    np.testing.assert_allclose(by_class, by_sample, atol=1e-12)
    assert np.abs(by_class - model.fit(X, labels).decision_function(X)).max() > 1e-3


@pytest.mark.parametrize(
    "model",
    [
        DeepKernelClassifier([], Gaussian(0.7), "squared", 1e-2, calibration=None, class_weight="balanced"),
        EmbeddingClassifier(Gaussian(0.7), alpha=1e-2, calibration=None, class_weight="balanced"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_balanced_classes_count_repetitions(samples, model):
    X, y, weights = samples
    decide = "decision_function" if isinstance(model, DeepKernelClassifier) else "predict_proba"
    weighted = getattr(clone(model).fit(X, y > 0.3, sample_weight=weights), decide)(X)
    rows = np.repeat(np.arange(30), weights)
    np.testing.assert_allclose(weighted, getattr(clone(model).fit(X[rows], y[rows] > 0.3), decide)(X), atol=1e-8)
    unbalanced = clone(model).set_params(class_weight=None).fit(X, y > 0.3, sample_weight=weights)
    assert np.abs(weighted - getattr(unbalanced, decide)(X)).max() > 1e-3


def test_weights_of_an_autoencoder_are_repetitions(samples):
    X, _, weights = samples
    options = {"alpha": 1e-2, "encoder_alpha": 1e-3, **SEARCH}
    model = KernelAutoencoder(1, Gaussian(0.7), Gaussian(1.0), **options)
    weighted, value = model.fit(X, sample_weight=weights).reconstruct(X), model.objective_value_
    rows = np.repeat(np.arange(30), weights)
    repeated = model.fit(X[rows]).reconstruct(X)
    assert value == pytest.approx(model.objective_value_, rel=1e-7)
    np.testing.assert_allclose(weighted, repeated, atol=1e-3)


@pytest.mark.parametrize(
    "model",
    [
        DeepKernelRegressor([], Gaussian(2.0), alpha=1e-2),
        DeepKernelClassifier([], Gaussian(2.0), alpha=1e-2, random_state=0),
        DeepKernelClassifier([INNER], Gaussian(2.0), alpha=1e-2, **SEARCH),
        KernelAutoencoder(1, Gaussian(2.0), Gaussian(1.0), alpha=1e-2, encoder_alpha=1e-2, **SEARCH),
    ],
    ids=["regressor", "calibrated", "calibrated-deep", "autoencoder"],
)
def test_scikit_learn_finds_weights_equivalent_to_repetitions(model):
    """Also those of calibrations, for the check gives folds that hold copies out together. Numbers are given: a word
    such as the median of distances would see other samples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check_sample_weight_equivalence_on_dense_data(type(model).__name__, model)


def test_weightless_samples_of_a_gram_matrix_keep_their_columns(samples):
    X, y, weights = samples
    gram = Gaussian(0.7)(X).numpy()
    model = DeepKernelRegressor([], "precomputed", alpha=1e-2).fit(gram, y, sample_weight=weights)
    vectors = DeepKernelRegressor([], Gaussian(0.7), alpha=1e-2).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.predict(gram), vectors.predict(X), atol=1e-9)


def test_leave_one_out_leaves_groups_out(samples):
    """The criterion is the error of refits without each group, with the same n·alpha."""
    X, y, _ = samples
    groups = np.arange(30) // 3
    model = DeepKernelRegressor([], Gaussian(0.7), criterion="loo").fit(X, y, groups=groups)
    errors = []
    for group in range(10):
        rest = groups != group
        alpha = model.alpha_ * 30 / rest.sum()
        refit = DeepKernelRegressor([], Gaussian(0.7), alpha=alpha).fit(X[rest], y[rest])
        errors.extend((refit.predict(X[~rest]) - y[~rest]) ** 2)
    assert model.criterion_value_ == pytest.approx(np.mean(errors), rel=1e-6)


@pytest.mark.parametrize("labels", [None, np.arange(30) % 2])
def test_folds_and_searches_take_whole_groups(labels):
    groups = np.arange(30) // 3
    folds = folds_of(30, 4, 0, labels, groups)
    for training, held_out in folds():
        assert not set(groups[training]) & set(groups[held_out])
    rows = folds.some(12)
    assert len(rows) == 12 and len(set(groups[rows])) == 4
    for training, held_out in folds(rows):
        assert not set(groups[rows[training]]) & set(groups[rows[held_out]])
    with pytest.raises(ValueError, match="at least two groups"):
        folds_of(30, 4, 0, labels, np.zeros(30, dtype=int))()


def test_a_fit_by_folds_holds_groups_out_together(samples):
    """Copies of a sample in one group say nothing of each other: with them, validation asks for a larger alpha.

    They differ a little, because equal ones are a group by themselves.
    """
    X, y, _ = samples
    X, y, groups = np.repeat(X, 3, axis=0), np.repeat(y, 3), np.repeat(np.arange(30), 3)
    X = X + 1e-6 * np.arange(90)[:, None]
    model = DeepKernelRegressor([], Gaussian(0.7), criterion="validation", random_state=0)
    alone, together = model.fit(X, y).criterion_value_, model.fit(X, y, groups=groups).criterion_value_
    assert together > 2 * alone
    coded = KernelAutoencoder(1, random_state=0, n_restarts=1)
    alone, together = coded.fit(X).criterion_value_, coded.fit(X, groups=groups).criterion_value_
    assert together > alone
