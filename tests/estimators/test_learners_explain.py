"""Explanations sum to predictions, influences are those of refits, and suspects are the labels that were flipped."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.inspection import partial_dependence
from sklearn.preprocessing import StandardScaler

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.kernels import Columns, Gaussian, Linear, Spectrum, Stack
from representer.operators import CurlFree, Dense

RNG = np.random.default_rng(5)
N = 30
X, NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(4, 2))
Y = np.c_[np.sin(X[:, 0]), X[:, 1] ** 2] + 0.2 * RNG.normal(size=(N, 2))
y = Y[:, 0]
CLASSES = np.array(["a", "b", "c"])[(y > -0.3).astype(int) + (y > 0.4)]
GAPS = np.where(RNG.uniform(size=(N, 2)) < 0.2, np.nan, Y)
WEIGHTS = np.where(np.arange(N) == 3, 0.0, 0.5 + RNG.uniform(size=N))
GROUPS = np.arange(N) // 2
DENSE = Dense([[1.0, 0.4], [0.4, 0.8]])
STACK = Stack([Gaussian(1.2), Linear()], weights=[0.3, 0.7], alphas=[0.1, 0.2])


def explained(model, queries=NEW):
    """What ``explain`` explains of each learner."""
    for name in ("embedding", "decision_function", "score_candidates", "predict", "transform"):
        if name == "embedding" and isinstance(model, ConditionalMeanEmbedding):
            continue
        if hasattr(model, name):
            ask = getattr(model, name)
            return ask(queries, model.predict(queries)) if name == "score_candidates" else ask(queries)
    raise AssertionError(model)


LEARNERS = {
    "ridge": (OperatorRidge("rbf", alpha=0.1), y),
    "ridge of vectors": (OperatorRidge(Gaussian(1.0), alpha=0.1), Y),
    "coupled": (OperatorRidge(CurlFree(1.2), alpha=0.1), Y),
    "gaps": (OperatorRidge(Gaussian(1.2), operator=DENSE, alpha=0.1), GAPS),
    "stack": (OperatorRidge(STACK), y),
    "nystroem": (OperatorRidge("rbf", alpha=0.1, approximation=Nystroem(10), random_state=0), y),
    "random features": (OperatorRidge("rbf", alpha=0.1, approximation=RandomFeatures(20), random_state=0), y),
    "deep": (DeepKernelRegressor([1], Gaussian(1.0), alpha=0.1, max_iter=5, random_state=0), y),
    "deep classes": (DeepKernelClassifier([1], Gaussian(1.0), alpha=0.1, max_iter=5, random_state=0), CLASSES),
    "classes": (EmbeddingClassifier(Gaussian(1.0), alpha=0.1), CLASSES),
    "explicit classes": (EmbeddingClassifier("linear", alpha=0.1), CLASSES),
    "conditional": (ConditionalMeanEmbedding(Gaussian(1.0), alpha=0.1), y),
    "cells": (ConditionalMeanEmbedding(Gaussian(1.0), alpha=0.1, approximation=Nystroem(10), random_state=0), Y),
    "structured": (StructuredPredictor(Gaussian(1.0), alpha=0.1), Y),
    "structured landmarks": (StructuredPredictor(Gaussian(1.0), alpha=0.1, approximation=Nystroem(10)), Y),
    "codes": (KernelAutoencoder(1, Gaussian(1.0), max_iter=5, random_state=0), None),
    "components": (DeepKernelPCA([2], extension="smoother", random_state=0), None),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", LEARNERS)
def test_contributions_sum_to_what_the_learner_answers(case):
    model, targets = LEARNERS[case]
    model.fit(X, targets)
    values = explained(model)
    whole, some = model.explain(NEW), model.explain(NEW, top=3)
    for why in (whole, some, whole.top(3)):
        np.testing.assert_allclose(why.prediction, values, rtol=1e-10, atol=1e-10)
        sums = why.baseline + why.rest + why.contributions.sum(1)
        np.testing.assert_allclose(sums, values, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(some.contributions, whole.top(3).contributions)
    assert whole.n_terms == (20 if "features" in case else 10 if "landmark" in whole.terms else N)
    frame = whole.to_frame()
    assert len(frame) == whole.contributions.size
    np.testing.assert_array_equal(frame["contribution"], whole.contributions.reshape(-1))


def test_many_explanations_keep_the_largest_terms(monkeypatch):
    model = OperatorRidge("rbf", alpha=0.1).fit(X, y)
    whole = model.explain(NEW)
    monkeypatch.setattr("representer.inspection.explanation.KEPT_NUMBERS", 10)
    monkeypatch.setattr("representer.inspection.explanation.KEPT_TERMS", 4)
    kept = model.explain(NEW)
    assert kept.contributions.shape == (4, 4)
    largest = np.sort(np.abs(whole.contributions), 1)[:, ::-1][:, :4]
    np.testing.assert_allclose(np.abs(kept.contributions), largest)
    np.testing.assert_allclose(np.take_along_axis(whole.contributions, kept.numbers, 1), kept.contributions)


def test_contributions_of_landmarks_on_dask():
    da = pytest.importorskip("dask.array")
    model = OperatorRidge("rbf", alpha=0.1, approximation=Landmarks(X[:8]))
    model.fit(da.from_array(X, chunks=(10, 2)), da.from_array(y, chunks=10))
    why = model.explain(NEW)
    assert why.terms == "landmarks" and why.contributions.shape == (4, 8)
    np.testing.assert_allclose(why.baseline + why.contributions.sum(1), model.predict(NEW), atol=1e-10)
    with pytest.raises(ValueError, match="Fit in memory"):
        model.influence(NEW)
    with pytest.raises(ValueError, match="in memory"):
        model.explain(da.from_array(X, chunks=(10, 2)))


# -- kernels that add -------------------------------------------------------------------------------------------------
def test_members_of_sums_are_exact():
    model = OperatorRidge(Gaussian(1.0) + 2.0 * (Linear() + Gaussian(3.0)), alpha=0.1).fit(X, Y)
    why = model.explain(NEW)
    assert list(why.members) == ["Gaussian 1", "Linear", "Gaussian 2"]
    np.testing.assert_allclose(sum(why.members.values()) + why.baseline, model.predict(NEW), atol=1e-10)
    linear = 2.0 * NEW @ X.T @ model.dual_coef_
    np.testing.assert_allclose(why.members["Linear"], linear, atol=1e-10)


def test_columns_of_a_sum_are_exact():
    records = [{"size": row[0], "weight": row[1]} for row in X]
    model = OperatorRidge(Columns({"size": Gaussian(1.0), "weight": Linear()}), alpha=0.1).fit(records, y)
    queries = [{"size": row[0], "weight": row[1]} for row in NEW]
    why = model.explain(queries)
    assert list(why.members) == ["size", "weight"]
    np.testing.assert_allclose(why.members["weight"], NEW[:, 1] * (X[:, 1] @ model.dual_coef_), atol=1e-10)
    np.testing.assert_allclose(sum(why.members.values()) + why.baseline, model.predict(queries), atol=1e-10)


def test_members_of_a_stack_are_those_of_its_fits():
    model = OperatorRidge(STACK).fit(X, y)
    why = model.explain(NEW)
    single = OperatorRidge(Linear(), alpha=0.2).fit(X, y)
    np.testing.assert_allclose(why.members["Linear"], 0.7 * (single.predict(NEW) - single.intercept_), atol=1e-10)


def test_neighbours_labels_and_deviations():
    model = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, y)
    why = model.explain(NEW, coverage=0.8)
    distances = np.linalg.norm(NEW[:, None] - X, axis=2)
    np.testing.assert_array_equal(why.neighbours, np.argsort(distances, 1)[:, :5])
    np.testing.assert_allclose(why.std, model.predict(NEW, return_std=True)[1])
    np.testing.assert_allclose(why.interval, model.predict_interval(NEW, 0.8))
    np.testing.assert_array_equal(why.labels, y)
    classes = EmbeddingClassifier(Gaussian(1.0), alpha=0.1).fit(X, CLASSES).explain(NEW)
    by_class = classes.by_label()
    assert list(by_class) == ["a", "b", "c"] and classes.outputs == ("a", "b", "c")
    np.testing.assert_allclose(sum(by_class.values()) + classes.baseline, classes.prediction)
    own = classes.contributions[:, CLASSES == "b"].sum(1)
    np.testing.assert_allclose(by_class["b"], own)


def test_strings_and_hostile_labels_are_escaped():
    words = ["<b>ab</b>", "abab", "bcbc", "cbcb", "abcb", "<script>x"]
    labels = np.array(["<script>alert(1)</script>", "ok"] * 3)
    why = EmbeddingClassifier(Spectrum(2), alpha=0.1).fit(words, labels).explain(words[:2])
    html = why._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_bars_are_drawn():
    pytest.importorskip("matplotlib").use("agg")
    model = EmbeddingClassifier(Gaussian(1.0), alpha=0.1).fit(X, CLASSES)
    from matplotlib.figure import Figure

    ax = model.explain(NEW).plot(1, 4, ax=Figure().subplots())
    assert len(ax.patches) == 4 and "prediction" in ax.get_title()


# -- influence --------------------------------------------------------------------------------------------------------
RIDGES = {
    "identity": ({"kernel": Gaussian(1.2)}, Y),
    "dense": ({"kernel": Gaussian(1.2), "operator": DENSE}, Y),
    "gaps": ({"kernel": Gaussian(1.2), "operator": DENSE}, GAPS),
    "curl": ({"kernel": CurlFree(1.2)}, Y),
    "linear": ({"kernel": Linear()}, Y),
    "landmarks": ({"kernel": Gaussian(1.2), "approximation": Landmarks(X[:9])}, Y),
}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("case", RIDGES)
def test_influence_is_that_of_refits(case, grouped):
    arguments, targets = RIDGES[case]
    alpha, groups = 0.05, GROUPS if grouped else None
    model = OperatorRidge(**arguments, alpha=alpha).fit(X, targets, sample_weight=WEIGHTS, groups=groups)
    influence = model.influence(NEW)
    assert influence.shape == (4, N, 2)
    if not grouped:
        np.testing.assert_array_equal(influence[:, 3], 0.0)  # it has no weight
    labels = GROUPS if grouped else np.arange(N)
    for i in (0, 7, 20):
        rest = labels != labels[i]
        refit = OperatorRidge(**arguments, alpha=alpha * WEIGHTS.sum() / WEIGHTS[rest].sum())
        refit.fit(X[rest], targets[rest], sample_weight=WEIGHTS[rest])
        expected = model.predict(NEW) - refit.predict(NEW)
        np.testing.assert_allclose(influence[:, i], expected, rtol=1e-8, atol=1e-8)


def test_influence_of_a_stack_holds_its_weights():
    model = OperatorRidge(STACK).fit(X, y)
    rest = np.arange(N) != 4
    alphas = [0.1 * N / (N - 1), 0.2 * N / (N - 1)]
    refit = OperatorRidge(Stack([Gaussian(1.2), Linear()], weights=[0.3, 0.7], alphas=alphas)).fit(X[rest], y[rest])
    expected = model.predict(NEW) - refit.predict(NEW)
    np.testing.assert_allclose(model.influence(NEW)[:, 4], expected, atol=1e-8)


@pytest.mark.parametrize("learner", [EmbeddingClassifier, ConditionalMeanEmbedding])
def test_influence_on_classes_and_means_is_that_of_refits(learner):
    targets = CLASSES if learner is EmbeddingClassifier else Y
    model = learner(Gaussian(1.2), alpha=0.05).fit(X, targets)
    rest = np.arange(N) != 6
    refit = learner(Gaussian(1.2), alpha=0.05 * N / (N - 1)).fit(X[rest], targets[rest])
    expected = explained(model) - explained(refit)
    np.testing.assert_allclose(model.influence(NEW)[:, 6], expected, atol=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_influence_on_deep_learners_goes_through_the_deep_kernel():
    model = DeepKernelRegressor([1], Gaussian(1.0), alpha=0.1, max_iter=5, random_state=0).fit(X, y)
    rest = np.arange(N) != 4
    both = [
        OperatorRidge(model.deep_kernel_, alpha=0.1 * N / rows.sum()).fit(X[rows], y[rows]).predict(NEW)
        for rows in (np.ones(N, bool), rest)
    ]
    np.testing.assert_allclose(model.influence(NEW)[:, 4], both[0] - both[1], atol=1e-8)


def test_learners_without_a_system_say_who_has_one():
    with pytest.raises(ValueError, match="squared loss"):
        DeepKernelClassifier([], Gaussian(1.0), loss="logistic", alpha=0.1).fit(X, CLASSES).influence(NEW)
    model = DeepKernelPCA([2], random_state=0).fit(X)
    with pytest.raises(ValueError, match="extension='smoother'"):
        model.explain(NEW)
    with pytest.raises(AttributeError, match="no targets"):
        _ = model.suspects_
    with pytest.raises(ValueError, match="for regressors"):
        EmbeddingClassifier(Gaussian(1.0), alpha=0.1).fit(X, CLASSES).explain(NEW, coverage=0.9)
    with pytest.raises(ValueError, match="top must be"):
        OperatorRidge("rbf").fit(X, y).explain(NEW, top=0)


# -- sensitivity ------------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "case", ["ridge", "ridge of vectors", "stack", "nystroem", "random features", "deep", "classes", "codes"]
)
def test_sensitivity_is_the_slope_of_predictions(case):
    model, targets = LEARNERS[case]
    model.fit(X, targets)
    slopes, step = model.sensitivity(NEW), 1e-5
    for column in range(2):
        change = step * (np.arange(2) == column)
        expected = (explained(model, NEW + change) - explained(model, NEW - change)) / (2 * step)
        np.testing.assert_allclose(slopes[:, column], expected, rtol=1e-5, atol=1e-7)


def test_sensitivity_of_strings_is_by_removal():
    words = ["abab", "bcbc", "cbcb", "abcb", "aabb", "ccba"]
    model = OperatorRidge(Spectrum(2), alpha=0.1).fit(words, np.arange(6.0))
    first, second = model.sensitivity(["abcb", "ab"])
    expected = model.predict(["abcb"]) - model.predict(["bcb", "acb", "abb", "abc"])
    np.testing.assert_allclose(first, expected)
    assert second.shape == (2,)
    gram = OperatorRidge("precomputed", alpha=0.1).fit(X @ X.T, y)
    with pytest.raises(ValueError, match="Ask explain"):
        gram.sensitivity(NEW @ X.T)


def test_support_is_part_of_an_explanation_that_asks_for_it():
    model = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, y)
    np.testing.assert_allclose(model.explain(NEW, support=True).support, model.support(NEW))
    assert model.explain(NEW).support is None


# -- suspects ---------------------------------------------------------------------------------------------------------
def flipped(labels, rng, share=0.05):
    """Labels of which a share is replaced by another class, and which ones."""
    classes, wrong = np.unique(labels), rng.permutation(len(labels))[: round(share * len(labels))]
    changed = labels.copy()
    for i in wrong:
        changed[i] = rng.choice(classes[classes != labels[i]])
    return changed, wrong


@pytest.mark.parametrize("load", [load_digits, load_wine])
def test_flipped_labels_are_found(load):
    data, labels = load(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(labels))[:300]
    inputs = StandardScaler(with_std=load is load_wine).fit_transform(data[rows])
    changed, wrong = flipped(labels[rows], rng)
    model = EmbeddingClassifier(Gaussian("auto"), random_state=0).fit(inputs, changed)
    found = np.isin(wrong, model.suspects_[: len(wrong)]).mean()
    assert found >= 0.8


def test_wrong_numbers_are_found():
    changed = y.copy()
    changed[[5, 11]] += 3.0
    model = OperatorRidge(Gaussian(1.5), alpha=0.01).fit(X, changed)
    assert set(model.suspects_[:2]) == {5, 11}
    left_out = np.abs(changed - model.loo_predict_)
    weighted = OperatorRidge(Gaussian(1.5), alpha=0.01).fit(X, changed, sample_weight=WEIGHTS)
    assert np.isnan(weighted.misfit_[3]) and weighted.suspects_[-1] == 3
    assert model.misfit_.argmax() in np.argsort(-left_out)[:2]


def test_partial_dependence_of_scikit_learn():
    model = OperatorRidge(Gaussian(1.0), alpha=0.1).fit(X, y)
    curve = partial_dependence(model, X, [0], grid_resolution=5)
    column = np.asarray(curve["grid_values"][0])
    expected = [model.predict(np.c_[np.full(N, value), X[:, 1]]).mean() for value in column]
    np.testing.assert_allclose(curve["average"][0], expected)
