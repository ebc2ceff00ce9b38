"""predict_interval and predict_set of all learners: refits, shapes, pickles, bad input, and coverage on toys."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelRegressor,
    EmbeddingClassifier,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Nystroem, RandomFeatures
from representer.kernels import Gaussian

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(60, 2)), RNG.normal(size=(200, 2))


def curve(inputs: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * inputs[:, 0]) + 0.2 * RNG.normal(size=len(inputs))


Y, TARGETS = curve(X), curve(NEW)
LABELS = np.where(Y > 0.3, "high", np.where(Y < -0.3, "low", "middle"))
NEW_LABELS = np.where(TARGETS > 0.3, "high", np.where(TARGETS < -0.3, "low", "middle"))

REGRESSORS = {
    "leave-one-out": OperatorRidge(Gaussian(0.8), fit_intercept=True),
    "folds": OperatorRidge(Gaussian("ard"), fit_intercept=True, tol=1e-2, random_state=0),
    "sums": OperatorRidge(Gaussian(0.8), approximation=Nystroem(20), random_state=0),
    "deep": DeepKernelRegressor([2], n_restarts=1, max_iter=10, alpha=0.01, random_state=0),
    "huber": DeepKernelRegressor([], loss="huber", alpha=0.01, random_state=0),
    "conditional": ConditionalMeanEmbedding(Gaussian(0.8), random_state=0),
}
CLASSIFIERS = {
    "embedding": EmbeddingClassifier(Gaussian(0.8), random_state=0),
    "deep": DeepKernelClassifier([], Gaussian(0.8), alpha=0.01, random_state=0),
}


def inside(ends: np.ndarray) -> float:
    return float(np.mean((ends[:, 0] <= TARGETS) & (ends[:, 1] >= TARGETS)))


@pytest.mark.parametrize("name", tiers(list(REGRESSORS), lambda name: name not in ("conditional", "deep", "folds")))
def test_intervals_contain_new_targets_and_survive_a_pickle(name):
    model = clone(REGRESSORS[name]).fit(X, Y)
    ends = model.predict_interval(NEW, coverage=0.9)
    assert ends.shape == (200, 2) and (ends[:, 0] < ends[:, 1]).all()
    assert 0.82 < inside(ends) < 0.98
    narrow = model.predict_interval(NEW, coverage=0.5)
    assert 0.35 < inside(narrow) < 0.7
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict_interval(NEW[:5]), ends[:5], rtol=1e-6)
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        model.predict_interval(NEW, coverage=1.0)
    with pytest.raises(NotFittedError):
        clone(model).predict_interval(NEW)
    with pytest.warns(UserWarning, match="too few for a coverage of 0.99"):
        assert np.isinf(model.predict_interval(NEW[:2], coverage=0.99)).all()


def test_leave_one_out_intervals_are_jackknife_plus_by_refits():
    """Without local deviations, at a fixed alpha·n: every μ₋ᵢ is a refit."""
    model = OperatorRidge(Gaussian(0.8), alpha=0.02, fit_intercept=True).fit(X, Y)
    refits = [
        OperatorRidge(Gaussian(0.8), alpha=0.02 * 60 / 59, fit_intercept=True).fit(np.delete(X, i, 0), np.delete(Y, i))
        for i in range(60)
    ]
    errors, centres, scales, own = [], [], [], []
    for i, refit in enumerate(refits):
        unit = float((model.system_.prior_scale()[0] / refit.system_.prior_scale()[0]).sqrt())
        mean, std = refit.predict(X[i : i + 1], return_std=True)
        errors.append(abs(Y[i] - mean[0]))
        own.append(unit * std[0])
        mean, std = refit.predict(NEW[:7], return_std=True)
        centres.append(mean)
        scales.append(unit * std)
    errors, own, centres, scales = map(np.array, (errors, own, centres, scales))
    found = model.predict_interval(NEW[:7], coverage=0.9)
    candidates = []
    for power in (0.0, 0.5, 1.0):
        radii = scales**power * (errors / own**power)[:, None]
        upper, lower = np.sort(centres + radii, 0), np.sort(centres - radii, 0)
        candidates.append(np.column_stack([lower[60 - 55], upper[54]]))  # 55 = ⌈0.9 · 61⌉
    assert min(np.abs(found - expected).max() for expected in candidates) < 1e-6


def test_several_outputs_and_gaps_have_intervals_of_their_own():
    both = np.column_stack([Y, 10.0 * Y])
    both[::7, 1] = np.nan
    ends = OperatorRidge(Gaussian(0.8)).fit(X, both).predict_interval(NEW)
    assert ends.shape == (200, 2, 2)
    assert 0.8 < inside(ends[:, 0]) < 0.99 and 0.8 < inside(ends[:, 1] / 10.0) < 0.99


def test_precomputed_kernels_have_intervals_without_deviations():
    kernel = Gaussian(0.8)
    model = OperatorRidge("precomputed", random_state=0).fit(kernel(X).numpy(), Y)
    ends = model.predict_interval(kernel(NEW, X).numpy())
    assert 0.82 < inside(ends) < 0.99


def test_conjugate_gradients_say_why_they_have_none():
    model = OperatorRidge(Gaussian(0.8), alpha=0.01, approximation=Nystroem(10), solver="cg", random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="solver='direct'"):
        model.predict_interval(NEW)


def test_fits_by_batches_say_why_they_have_no_folds():
    options = {"approximation": Nystroem(10), "random_state": 0}
    distribution = ConditionalMeanEmbedding(Gaussian(0.8), alpha=0.01, **options).partial_fit(X, Y)
    classes = EmbeddingClassifier(Gaussian(0.8), **options).partial_fit(X, LABELS, classes=np.unique(LABELS))
    for ask in (distribution.predict_interval, classes.predict_set):
        with pytest.raises(ValueError, match=r"need all of them.*a fit by batches.*Fit to fewer"):
            ask(NEW)


def test_a_gram_matrix_of_new_samples_has_no_deviations():
    kernel = Gaussian(0.8)
    model = OperatorRidge("precomputed", alpha=0.01).fit(kernel(X).numpy(), Y)
    with pytest.raises(ValueError, match=r"k\(x, x\) is not contained .* Use a kernel object"):
        model.predict(kernel(NEW, X).numpy(), return_std=True)


def test_ten_samples_are_too_few_for_sets_and_for_intervals():
    rows = np.arange(10)
    regressors = (OperatorRidge(Gaussian(0.8), alpha=0.01), ConditionalMeanEmbedding(Gaussian(0.8), "rbf", alpha=0.01))
    for model in regressors:
        with pytest.warns(UserWarning, match="10 samples .* too few for a coverage of 0.99, which takes 99"):
            assert np.isinf(model.fit(X[rows], Y[rows]).predict_interval(NEW[:3], 0.99)).all()
    for model in (EmbeddingClassifier(Gaussian(0.8)), StructuredPredictor(Gaussian(0.8), "delta", alpha=0.01)):
        with pytest.warns(UserWarning, match="10 samples .* too few for a coverage of 0.99, which takes 99"):
            assert model.fit(X[rows], LABELS[rows]).predict_set(NEW[:3], 0.99).all()
        for coverage in (0, 1, 1.5, np.nan):
            with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
                model.predict_set(NEW[:3], coverage)


def test_training_targets_lie_inside_more_often_than_new_ones():
    model = OperatorRidge(Gaussian(0.3), alpha=1e-3).fit(X, Y)  # which follows the samples closely
    ends = model.predict_interval(X, coverage=0.8)
    assert np.mean((ends[:, 0] <= Y) & (ends[:, 1] >= Y)) > 0.95 > inside(model.predict_interval(NEW, coverage=0.8))


def test_a_new_fit_forgets_the_folds_of_the_old_one():
    model = OperatorRidge(Gaussian("ard"), tol=1e-2, random_state=0).fit(X, Y)
    before = model.predict_interval(NEW[:3])
    after = model.fit(X, Y + 100.0).predict_interval(NEW[:3])
    assert (after > before + 50.0).all()


@pytest.mark.parametrize("name", tiers(list(CLASSIFIERS), lambda name: name == "deep"))
def test_sets_contain_new_classes(name):
    model = clone(CLASSIFIERS[name]).fit(X, LABELS)
    sets = model.predict_set(NEW, coverage=0.9)
    assert sets.shape == (200, 3) and sets.dtype == bool and sets.any(1).all()
    assert (model.predict_set(NEW, coverage=0.6) <= sets).all()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_set(NEW[:9]), sets[:9])
    shares, everything, labels = [], np.vstack([X, NEW]), np.append(LABELS, NEW_LABELS)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(260)
        train, new = order[:60], order[60:]
        sets = clone(model).fit(everything[train], labels[train]).predict_set(everything[new])
        shares.append(sets[np.arange(200), np.searchsorted(model.classes_, labels[new])].mean())
        assert sets.sum(1).mean() < 2.5
    assert 0.86 < np.mean(shares) < 0.97


def test_candidates_that_cannot_be_excluded():
    model = StructuredPredictor(Gaussian(0.8), output_kernel="delta", random_state=0).fit(X, LABELS)
    names = ["high", "low", "middle"]
    sets = model.predict_set(NEW, candidates=names)
    true = sets[np.arange(200), [names.index(label) for label in NEW_LABELS]]
    assert sets.shape == (200, 3) and sets.any(1).all() and 0.84 < true.mean() < 0.99
    assert model.predict_set(NEW[:4]).shape == (4, 3)
    gram = (LABELS[:, None] == LABELS).astype(float)
    precomputed = StructuredPredictor(Gaussian(0.8), output_kernel="precomputed").fit(X, gram)
    with pytest.raises(ValueError, match="precomputed output kernel"):
        precomputed.predict_set(NEW)


SIDES = StructuredPredictor(Gaussian(0.8), output_kernel="delta", alpha=0.01, random_state=0)


@pytest.mark.parametrize(
    "model",
    [
        OperatorRidge(Gaussian("auto"), random_state=0),
        DeepKernelRegressor([1], Gaussian(0.8), alpha=0.01, max_iter=2, random_state=0),
        DeepKernelClassifier([1], Gaussian(0.8), alpha=0.01, max_iter=2, random_state=0),
        ConditionalMeanEmbedding(Gaussian(0.8), alpha=0.01, random_state=0),
        EmbeddingClassifier(Gaussian(0.8), alpha=0.01, random_state=0),
        SIDES,
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore:The search over the inner layers")
def test_fits_without_a_fold_have_no_more_landmarks_than_samples(model):
    answer = "predict_interval" if hasattr(model, "predict_interval") else "predict_set"
    targets = Y if answer == "predict_interval" else LABELS
    counted, shared = (clone(model).set_params(approximation=Nystroem(m)).fit(X, targets) for m in (60, 1.0))
    np.testing.assert_array_equal(getattr(counted, answer)(NEW[:9]), getattr(shared, answer)(NEW[:9]))
    with pytest.raises(ValueError, match="n_components of Nystroem"):
        clone(model).set_params(approximation=Nystroem(61)).fit(X, targets)


@pytest.mark.parametrize("pair", [(None, Nystroem(60)), (RandomFeatures(20), Nystroem(55))])
def test_both_sides_of_a_fit_without_a_fold_have_landmarks_among_its_samples(pair):
    model = clone(SIDES).set_params(approximation=pair).fit(X, LABELS)
    assert model.predict_set(NEW[:4]).shape == (4, 3)
