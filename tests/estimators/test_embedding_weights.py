"""Weights of samples and classes, and groups of samples, in both learners of embeddings: exact, by sums, on Dask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tiers import tiers

from representer import ConditionalMeanEmbedding, EmbeddingClassifier
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.kernels import Gaussian, Linear

RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 2))
S = np.sin(2 * X[:, 0]) + 0.4 * RNG.normal(size=N)
Y = np.array(["a", "b", "c"])[np.digitize(S, [-0.4, 0.5])]
T = RNG.normal(size=(9, 2))
COUNTS = RNG.integers(0, 4, N)  # some are zero
ROWS = np.repeat(np.arange(N), COUNTS)
GROUPS = np.array([f"patient {i % 13}" for i in range(N)])
FORMS: Any = {
    "exact": None,
    "landmarks": Landmarks(RNG.normal(size=(15, 2))),
    "random features": RandomFeatures(30),
}
every_form = pytest.mark.parametrize("approximation", FORMS.values(), ids=FORMS)
both_intercepts = pytest.mark.parametrize("intercept", [False, True])


def classifier(approximation=None, intercept=True, **options):
    given = {"kernel": Gaussian(0.8), "alpha": 0.01, "random_state": 0, **options}
    return EmbeddingClassifier(approximation=approximation, fit_intercept=intercept, **given)


def conditional(approximation=None, intercept=True, **options):
    given = {
        "kernel": Gaussian(0.8),
        "output_kernel": Gaussian(0.6),
        "alpha": 0.01,
        "random_state": 0,
        **options,
    }
    if approximation is not None:
        approximation = (approximation, Landmarks(S[:20, None]))
    return ConditionalMeanEmbedding(approximation=approximation, fit_intercept=intercept, **given)


# -- weights ----------------------------------------------------------------------------------------------------------
@every_form
@both_intercepts
def test_weights_are_repetitions_and_zero_is_absence(approximation, intercept):
    model = classifier(approximation, intercept)
    weighted = clone(model).fit(X, Y, sample_weight=COUNTS)
    repeated = clone(model).fit(X[ROWS], Y[ROWS], groups=ROWS)
    np.testing.assert_allclose(weighted.embedding(T), repeated.embedding(T), atol=1e-8)
    assert weighted.complexity_ == pytest.approx(repeated.complexity_, rel=1e-8)
    assert weighted._training_loss == pytest.approx(repeated._training_loss, rel=1e-8)
    kept = np.flatnonzero(COUNTS)
    first = np.searchsorted(ROWS, kept)
    own = weighted.loo_estimates_[kept] if approximation is None else weighted.loo_estimates_
    np.testing.assert_allclose(own, repeated.loo_estimates_[first], atol=1e-8)
    mean = conditional(approximation, intercept)
    weighted, repeated = clone(mean).fit(X, S, sample_weight=COUNTS), clone(mean).fit(X[ROWS], S[ROWS])
    for method in ("mean", "var", "quantile"):
        np.testing.assert_allclose(getattr(weighted, method)(T), getattr(repeated, method)(T), atol=1e-8)
    if approximation is None:
        totals = np.zeros((9, N))
        np.add.at(totals, (slice(None), ROWS), repeated.weights(T))
        np.testing.assert_allclose(weighted.weights(T), totals, atol=1e-8)
    else:
        np.testing.assert_allclose(weighted.weights(T), repeated.weights(T), atol=1e-8)


@pytest.mark.parametrize("kernel", [Gaussian(0.8), Linear(), "precomputed"], ids=str)
def test_weights_with_explicit_features_and_gram_matrices(kernel):
    gram = kernel == "precomputed"
    data = Gaussian(0.8)(X).numpy() if gram else X
    new = Gaussian(0.8)(T, X).numpy() if gram else T
    model = classifier(kernel=kernel)
    weighted = clone(model).fit(data, Y, sample_weight=COUNTS)
    few = data[np.ix_(ROWS, ROWS)] if gram else data[ROWS]
    repeated = clone(model).fit(few, Y[ROWS])
    np.testing.assert_allclose(weighted.embedding(new), repeated.embedding(new[:, ROWS] if gram else new), atol=1e-8)
    assert np.isfinite(weighted.loo_estimates_).all() and len(weighted.loo_estimates_) == N


@pytest.mark.parametrize("criterion", ["loo", "rademacher", "erm", "validation"])
def test_searches_with_weights_and_groups_judge_all_criteria(criterion):
    options = {"kernel": "rbf", "alpha": "auto", "criterion": criterion, "max_iter": 5, "tol": 1e-2}
    model = classifier(**options).fit(X, Y, sample_weight=COUNTS, groups=GROUPS)
    kept = COUNTS > 0
    absent = classifier(**options).fit(X[kept], Y[kept], sample_weight=5.0 * COUNTS[kept], groups=GROUPS[kept])
    assert model.criterion_value_ == pytest.approx(absent.criterion_value_, rel=1e-6)
    np.testing.assert_allclose(model.predict_proba(T), absent.predict_proba(T), atol=1e-5)


def test_a_weighted_search_is_that_of_repeated_samples_in_groups():
    model = conditional(alpha="auto", tol=1e-10)
    weighted = clone(model).fit(X, S, sample_weight=COUNTS)
    repeated = clone(model).fit(X[ROWS], S[ROWS], groups=ROWS)
    assert weighted.criterion_value_ == pytest.approx(repeated.criterion_value_, rel=1e-8)
    assert weighted.alpha_ == pytest.approx(repeated.alpha_, rel=1e-3)


def test_classes_have_weights():
    three_to_one = np.arange(N) % 4 == 0
    y = np.where(three_to_one, "rare", "common")
    model = classifier()
    for weight, by_hand in (
        ("balanced", np.where(three_to_one, 2.0, 2 / 3)),
        ({"rare": 5.0}, np.where(three_to_one, 5.0, 1.0)),
    ):
        for sample_weight in (None, 1.0 + COUNTS):
            balanced = clone(model).set_params(class_weight=weight).fit(X, y, sample_weight=sample_weight)
            total = by_hand if sample_weight is None else by_hand * sample_weight
            if weight == "balanced" and sample_weight is not None:
                shares = [sample_weight[three_to_one].sum(), sample_weight[~three_to_one].sum()]
                total = sample_weight * sum(shares) / (2 * np.where(three_to_one, *shares))
            np.testing.assert_allclose(
                balanced.embedding(T), clone(model).fit(X, y, sample_weight=total).embedding(T), atol=1e-10
            )
    far = [[1e3, 1e3]]  # where the estimates are near the shares of the classes
    balanced = clone(model).set_params(class_weight="balanced").fit(X, y)
    rare, equal = model.fit(X, y).embedding(far)[0, 1], balanced.embedding(far)[0, 1]
    assert rare < 0.3 < 0.35 < equal < 0.65


# -- groups -----------------------------------------------------------------------------------------------------------
@every_form
@both_intercepts
@pytest.mark.parametrize("weight", [None, 0.5 + COUNTS], ids=["equal", "weighted"])
def test_estimates_without_a_group_are_refits_without_it(approximation, intercept, weight):
    model = classifier(approximation, intercept).fit(X, Y, sample_weight=weight, groups=GROUPS)
    total = N if weight is None else weight.sum()
    for label in ("patient 0", "patient 5", "patient 12"):
        inside = label == GROUPS
        rest = None if weight is None else weight[~inside]
        alpha = 0.01 * total / (np.sum(~inside) if rest is None else rest.sum())  # the same shift
        refit = classifier(approximation, intercept, alpha=alpha).fit(X[~inside], Y[~inside], sample_weight=rest)
        np.testing.assert_allclose(model.loo_estimates_[inside], refit.embedding(X[inside]), atol=1e-7)


@pytest.mark.parametrize("approximation", tiers(FORMS, lambda name: name != "exact"))
def test_the_criterion_leaves_groups_out(approximation):
    """With anchors at all targets, the criterion is the mean squared distance in the RKHS of l."""
    options: Any = {"alpha": "auto", "tol": 1e-8}
    model = conditional(None, **options)
    if approximation is not None:
        model.set_params(approximation=(approximation, Landmarks(S[:, None])))
    model.fit(X, S, groups=GROUPS)

    def refits(factor: float) -> float:
        losses = np.zeros(N)
        for label in set(GROUPS):
            inside = label == GROUPS
            # the loss in the RKHS needs no bandwidth, which the criterion would choose
            other = clone(model).set_params(criterion=None, alpha=factor * model.alpha_ * N / np.sum(~inside))
            other.fit(X[~inside], S[~inside])
            losses[inside] = [-other.score(X[[i]], S[[i]]) for i in np.flatnonzero(inside)]
        return float(losses.mean())

    assert model.criterion_value_ == pytest.approx(refits(1.0), rel=1e-5)
    assert min(refits(0.5), refits(2.0)) > model.criterion_value_


def test_copies_in_one_group_do_not_vouch_for_each_other():
    """Noise with every sample nearly twice: leaving one out, its copy predicts it; leaving both out, nothing does.

    Copies that are equal are left out together without being told.
    """
    twice, labels = np.repeat(X, 2, 0), np.repeat(RNG.integers(0, 2, N), 2)
    options = {"kernel": "rbf", "alpha": "auto", "max_iter": 30}
    nearly = twice + 1e-3 * RNG.normal(size=twice.shape)
    alone = classifier(**options).fit(nearly, labels)
    grouped = classifier(**options).fit(nearly, labels, groups=np.repeat(np.arange(N), 2))
    assert alone.criterion_value_ < 0.3 < 0.6 < grouped.criterion_value_
    assert classifier(**options).fit(twice, labels).criterion_value_ > 0.6


# -- large data -------------------------------------------------------------------------------------------------------
def test_dask_equals_memory_with_weights_and_groups():
    da: Any = pytest.importorskip("dask.array")
    dX, dY, dS = (da.from_array(a, chunks=(25, *a.shape[1:])) for a in (X, Y, S))
    dw, dg = da.from_array(COUNTS.astype(float), chunks=20), da.from_array(GROUPS, chunks=30)
    for weight in (None, "balanced", {"a": 3.0}):
        for approximation in (Nystroem(20), FORMS["landmarks"]):
            model = classifier(approximation, class_weight=weight)
            local = clone(model).fit(X, Y, COUNTS, GROUPS)
            remote = clone(model).fit(dX, dY, dw, dg)
            np.testing.assert_allclose(remote.embedding(T), local.embedding(T), atol=1e-8)
            np.testing.assert_allclose(remote.loo_estimates_, local.loo_estimates_, atol=1e-8)
            np.testing.assert_allclose(remote.predict_proba(dX).compute(), local.predict_proba(X), atol=1e-7)
    model = conditional(FORMS["landmarks"], alpha="auto")
    local, remote = clone(model).fit(X, S, COUNTS, GROUPS), clone(model).fit(dX, dS, dw, dg)
    assert remote.alpha_ == pytest.approx(local.alpha_, rel=1e-6)
    for method in ("mean", "var", "weights"):
        np.testing.assert_allclose(getattr(remote, method)(T), getattr(local, method)(T), atol=1e-7)
    labels = ConditionalMeanEmbedding(Gaussian(0.8), "delta", 0.01, approximation=Nystroem(20), random_state=0)
    local, remote = clone(labels).fit(X, Y, COUNTS), clone(labels).fit(dX, dY, dw)
    np.testing.assert_allclose(remote.weights(T), local.weights(T), atol=1e-8)


def test_batches_with_weights_equal_one_fit():
    landmarks, parts = FORMS["landmarks"], np.array_split(np.arange(N), 3)
    whole, batches = classifier(landmarks).fit(X, Y, COUNTS), classifier(landmarks)
    for rows in parts:
        batches.partial_fit(X[rows], Y[rows], np.unique(Y), COUNTS[rows])
    np.testing.assert_allclose(batches.embedding(T), whole.embedding(T), atol=1e-8)
    whole, batches = conditional(landmarks).fit(X, S, COUNTS), conditional(landmarks)
    for rows in parts:
        batches.partial_fit(X[rows], S[rows], COUNTS[rows])
    np.testing.assert_allclose(batches.mean(T), whole.mean(T), atol=1e-8)
    with pytest.raises(ValueError, match="labels of all samples"):
        classifier(landmarks, class_weight="balanced").partial_fit(X, Y, np.unique(Y))


# -- bad input --------------------------------------------------------------------------------------------------------
def test_bad_weights_and_groups_are_named():
    for model, target in ((classifier(), Y), (conditional(), S)):
        for approximation in (None, Nystroem(20)):
            learner = clone(model).set_params(approximation=approximation)
            with pytest.raises(ValueError, match=r"[Nn]egative"):
                learner.fit(X, target, sample_weight=-np.ones(N))
            with pytest.raises(ValueError, match="at least one non-zero"):
                learner.fit(X, target, sample_weight=np.zeros(N))
            with pytest.raises(ValueError, match="sample_weight"):
                learner.fit(X, target, sample_weight=np.ones(3))
            with pytest.raises(ValueError, match="one label for each of the 60"):
                learner.fit(X, target, groups=[1, 2])
    with pytest.raises(ValueError, match="at least two different labels"):
        classifier(alpha="auto").fit(X, Y, groups=np.zeros(N))
    with pytest.raises(ValueError, match="class_weight"):
        classifier(class_weight="heavy").fit(X, Y)
