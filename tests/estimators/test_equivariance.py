"""What must not matter does not: the order of samples, an origin, units, batches of questions, asking twice."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    Layer,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.kernels import Gaussian, Laplacian, Matern, Polynomial

GRID = 2.0**20  # points are multiples of 1 / GRID: offsets up to 2³⁰ do not round them


def _points(n: int = 40, seed: int = 0) -> np.ndarray:
    return np.round(np.random.default_rng(seed).normal(size=(n, 2)) * GRID) / GRID


X, Q = _points(), _points(8, 1)
y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2
labels = (y > np.median(y)).astype(int)
DEEP = {"max_iter": 5, "n_restarts": 1, "random_state": 0}

# Learners with numbers for everything, in the units of X: what they answer, what they are fitted to.
FIXED = {
    "ridge": (lambda unit: OperatorRidge(Gaussian(0.9 * unit), alpha=1e-3), y),
    "ridge, intercept": (lambda unit: OperatorRidge(Matern(1.5, 0.9 * unit), alpha=1e-3, fit_intercept=True), y),
    "deep regressor": (
        lambda unit: DeepKernelRegressor(
            [Layer(Gaussian(2.0 * unit), 2, alpha=1e-2)], Laplacian(1.0), alpha=1e-3, **DEEP
        ),
        y,
    ),
    "deep classifier": (
        lambda unit: DeepKernelClassifier([], Gaussian(0.9 * unit), "squared", 1e-2, calibration=None, random_state=0),
        labels,
    ),
    "embedding": (lambda unit: EmbeddingClassifier(Gaussian(0.9 * unit), None, 1e-2, calibration=None), labels),
    "conditional": (
        lambda unit: ConditionalMeanEmbedding(Gaussian(0.9 * unit), Gaussian(0.5), 1e-2, criterion=None),
        y,
    ),
    "structured": (
        lambda unit: StructuredPredictor(Gaussian(0.9 * unit), "linear", None, 1e-2, decoder="direct"),
        np.column_stack([y, -y]),
    ),
    "autoencoder": (
        lambda unit: KernelAutoencoder(
            1, Laplacian(2.0 * unit), Laplacian(1.0), alpha=1e-2, encoder_alpha=1e-2, target="kernel", **DEEP
        ),
        None,
    ),
    "levels": (lambda unit: DeepKernelPCA([3, 2], [Gaussian(2.0 * unit), Gaussian(1.0)], random_state=0), None),
}
# What is searched, or an approximation: their answers to a fixed model are consistent, too.
OTHERS = {
    "ridge, searched": (lambda: OperatorRidge("rbf", random_state=0), y),
    "ridge, landmarks": (lambda: OperatorRidge(Gaussian(0.9), alpha=1e-3, approximation=Landmarks(X[:10])), y),
    "features": (lambda: KernelFeatures(Gaussian(0.9), Landmarks(X[:10])), None),
    "deep, polynomial": (lambda: DeepKernelRegressor([(Polynomial(1), 2)], **DEEP), y),
    "embedding, searched": (lambda: EmbeddingClassifier("rbf", random_state=0), labels),
}


def fitted(model, points, target):
    return model.fit(points) if target is None else model.fit(points, target)


def answers(model, points) -> np.ndarray:
    """Numbers that the model says of points: codes up to their signs."""
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(points))
    if isinstance(model, DeepKernelPCA | KernelAutoencoder):
        return np.abs(np.asarray(model.transform(points)))
    return np.asarray(model.transform(points) if hasattr(model, "transform") else model.predict(points), float)


def assert_close(values, expected, tolerance) -> None:
    gap = np.abs(values - expected).max() / np.abs(expected).max()
    assert gap <= tolerance, f"answers differ by {gap:.3g} of their size"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FIXED)
def test_the_order_of_samples_does_not_matter(name):
    make, target = FIXED[name]
    order = np.random.default_rng(2).permutation(len(X))
    model = fitted(make(1.0), X, target)
    other = fitted(make(1.0), X[order], None if target is None else target[order])
    assert_close(answers(other, Q), answers(model, Q), 1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("offset", [1.0, 2.0**20, 2.0**30])
def test_the_origin_does_not_matter_to_stationary_kernels(name, offset):
    make, target = FIXED[name]
    model, other = fitted(make(1.0), X, target), fitted(make(1.0), X + offset, target)
    assert_close(answers(other, Q + offset), answers(model, Q), 1e-8)


# Learners of vectors, of moved outputs, or with hyperparameters that the samples decide: what they are fitted to, and
# what they say of points, at an offset. What they say in the space of the data is known to about 2⁻²² at 2³⁰.
PAIRS = np.column_stack([y, -y])
VECTORS = {"alpha": 1e-2, "encoder_alpha": 1e-2, **DEEP}
MOVED = {
    "autoencoder": (lambda: KernelAutoencoder(1, "rbf", "rbf", **VECTORS), None, 1e-8),
    "autoencoder, learned": (lambda: KernelAutoencoder(1, **DEEP), None, 1e-8),
    "autoencoder, landmarks": (
        lambda: KernelAutoencoder(1, "rbf", "rbf", approximation=Nystroem(10), **VECTORS),
        None,
        1e-8,
    ),
    "autoencoder, a share": (lambda: KernelAutoencoder(0.6, "rbf", "rbf", **VECTORS), None, 1e-8),
    "embedding, searched": (lambda: EmbeddingClassifier("rbf", random_state=0), labels, 1e-8),
    "ridge, searched": (lambda: OperatorRidge("rbf", random_state=0), y, 1e-8),
    "ridge, clusters": (
        lambda: OperatorRidge("rbf", approximation=Nystroem(15, sampling="kmeans"), random_state=0),
        y,
        1e-8,
    ),
    "deep regressor": (
        lambda: DeepKernelRegressor([Layer(Gaussian(2.0), 2, alpha=1e-2)], Laplacian(1.0), alpha=1e-3, **DEEP),
        "y",
        1e-6,
    ),
    "conditional": (lambda: ConditionalMeanEmbedding("rbf", "rbf"), "y", 1e-6),
    "structured": (lambda: StructuredPredictor("rbf", "rbf", decoder="gradient", random_state=0), "pairs", 1e-6),
}


def moved_fit(name: str, offset: float):
    make, target, _ = MOVED[name]
    target = {"y": y + offset, "pairs": PAIRS + offset}[target] if isinstance(target, str) else target
    return fitted(make(), X + offset, target)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*far from zero")
@pytest.mark.parametrize("name", MOVED)
def test_the_origin_does_not_matter_to_what_is_learned_or_reconstructed(name):
    _, target, tolerance = MOVED[name]
    model, other = moved_fit(name, 0.0), moved_fit(name, 2.0**30)
    shift = 2.0**30 if isinstance(target, str) else 0.0
    assert_close(answers(other, Q + 2.0**30) - shift, answers(model, Q), tolerance)
    if isinstance(model, KernelAutoencoder):
        assert_close(other.reconstruction_error(Q + 2.0**30), model.reconstruction_error(Q), 1e-8)
        assert_close(other.reconstruct(Q + 2.0**30) - 2.0**30, model.reconstruct(Q), 1e-6)
        assert_close(other.intercept_ - 2.0**30, model.intercept_, 1e-6)
        assert other.score(X + 2.0**30) == pytest.approx(model.score(X), abs=1e-8)
        assert other.explained_variance_ratio_ == pytest.approx(model.score(X), abs=1e-8)


@pytest.mark.parametrize("preimage", ["ridge", "gradient"])
def test_the_origin_does_not_matter_to_data_that_levels_make(preimage):
    kernels = [Gaussian(2.0), Gaussian(1.0)]
    at = {c: DeepKernelPCA([3, 2], kernels, preimage=preimage, random_state=0).fit(X + c) for c in (0.0, 2.0**30)}
    moved = [model.reconstruct(Q + c) - c for c, model in at.items()]
    assert_close(moved[1], moved[0], 1e-6)


@pytest.mark.parametrize("unit", [1e-163, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_units_of_x_do_not_matter_to_the_median_heuristic(kernel, unit):
    model = OperatorRidge(kernel, alpha=1e-3).fit(X, y)
    other = OperatorRidge(kernel, alpha=1e-3).fit(X * unit, y)
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-8)


LEARNED = {
    "embedding": (lambda: EmbeddingClassifier("rbf", random_state=0), labels),
    "ridge": (lambda: OperatorRidge(Gaussian("auto"), random_state=0), y),
    "ridge, a lengthscale a feature": (lambda: OperatorRidge(Laplacian("ard"), random_state=0), y),
    "conditional": (lambda: ConditionalMeanEmbedding("rbf", "rbf"), y),
}


@pytest.mark.parametrize("unit", [2.0**-900, 2.0**-450, 1e-100, 1e100, 3e140, 2.0**900])
@pytest.mark.parametrize("name", LEARNED)
def test_units_of_x_do_not_matter_to_learned_lengthscales(name, unit):
    make, target = LEARNED[name]
    model, other = (make().fit(X * u, target) for u in (1.0, unit))
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-6)


@pytest.mark.parametrize("unit", [1e-300, 1e300])
@pytest.mark.parametrize("name", LEARNED)
def test_units_at_the_ends_of_the_range_of_numbers_are_refused_where_lengthscales_are_learned(name, unit):
    make, target = LEARNED[name]
    with pytest.raises(ValueError, match=r"lengthscale would start at .*StandardScaler"):
        make().fit(X * unit, target)


@pytest.mark.parametrize("unit", [2.0**-332, 2.0**-266, 2.0**332])
def test_units_of_x_do_not_matter_to_a_learned_alpha_beside_a_linear_kernel(unit):
    shallow = OperatorRidge("linear"), ConditionalMeanEmbedding("linear")
    for learner in (*shallow, DeepKernelClassifier([], "linear", calibration=None), EmbeddingClassifier("linear")):
        target = labels if hasattr(learner, "decision_function") else y
        model, other = (clone(learner).set_params(random_state=0).fit(X * u, target) for u in (1.0, unit))
        assert_close(answers(other, Q * unit), answers(model, Q), 1e-6)


@pytest.mark.parametrize("unit", [2.0**-332, 2.0**-100, 2.0**100, 2.0**332])
@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_units_of_x_do_not_matter_to_polynomials_in_units_of_the_data(unit, gamma):
    model, other = (OperatorRidge(Polynomial(3, gamma), random_state=0).fit(X * u, y) for u in (1.0, unit))
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-8)


@pytest.mark.parametrize("unit", [2.0**-266, 2.0**266, 2.0**332])
def test_units_do_not_matter_to_conjugate_gradients_beside_a_linear_kernel(unit):
    options = {"approximation": Landmarks(X[:10]), "solver": "cg"}
    model = OperatorRidge("linear", alpha=1e-3, **options).fit(X, y)
    options["approximation"] = Landmarks(X[:10] * unit)
    other = OperatorRidge("linear", alpha=1e-3 * unit**2, **options).fit(X * unit, y * unit)
    assert_close(other.predict(Q * unit) / unit, model.predict(Q), 1e-8)


# Learners and approximations with numbers in the units of X (first) and of y (second), and what they are fitted to.
SCALES = [1e-100, 1e-30, 1e-9, 1e9, 1e30, 1e100]
LANDMARKS = slice(0, 10)
APPROXIMATE = {
    "ridge, landmarks": (
        lambda unit: OperatorRidge(Gaussian(0.9 * unit), alpha=1e-3, approximation=Landmarks(X[LANDMARKS] * unit)),
        y,
    ),
    "ridge, random features": (
        lambda unit: OperatorRidge(
            Gaussian(0.9 * unit), alpha=1e-3, approximation=RandomFeatures(20, random_state=0), random_state=0
        ),
        y,
    ),
    "deep, landmarks": (
        lambda unit: DeepKernelRegressor(
            [Layer(Gaussian(2.0 * unit), 2, alpha=1e-2)],
            Laplacian(1.0),
            alpha=1e-2,
            approximation=Nystroem(10),
            **DEEP,
        ),
        y,
    ),
    "embedding, landmarks": (
        lambda unit: EmbeddingClassifier(
            Gaussian(0.9 * unit), None, 1e-2, calibration=None, approximation=Landmarks(X[LANDMARKS] * unit)
        ),
        labels,
    ),
    "conditional, landmarks": (
        lambda unit: ConditionalMeanEmbedding(
            Gaussian(0.9 * unit),
            Gaussian(0.5),
            1e-2,
            criterion=None,
            approximation=(Landmarks(X[LANDMARKS] * unit), Landmarks(y[LANDMARKS, None])),
        ),
        y,
    ),
    "structured, landmarks": (
        lambda unit: StructuredPredictor(
            Gaussian(0.9 * unit), "linear", None, 1e-2, decoder="direct", approximation=Nystroem(10), random_state=0
        ),
        np.column_stack([y, -y]),
    ),
    "features": (lambda unit: KernelFeatures(Gaussian(0.9 * unit), Landmarks(X[LANDMARKS] * unit)), None),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FIXED | APPROXIMATE)
@pytest.mark.parametrize("unit", tiers(SCALES, lambda unit: unit in (1e-100, 1e9)))
def test_units_of_x_do_not_matter_to_any_learner(name, unit):
    make, target = (FIXED | APPROXIMATE)[name]
    model, other = fitted(make(1.0), X, target), fitted(make(unit), X * unit, target)
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("unit", SCALES)
def test_an_autoencoder_of_vectors_reconstructs_them_in_any_unit(unit):
    def make(u):
        options = {"alpha": 1e-2, "encoder_alpha": 1e-2 * u * u, **DEEP}
        return KernelAutoencoder(1, Laplacian(2.0 * u), Laplacian(1.0), **options)

    model, other = make(1.0).fit(X), make(unit).fit(X * unit)
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-8)
    assert_close(other.reconstruct(Q * unit) / unit, model.reconstruct(Q), 1e-8)


@pytest.mark.parametrize("unit", tiers([1e-100, 2.0**30, 1e100], lambda unit: unit == 1e100))
def test_a_search_for_an_autoencoder_has_exact_second_derivatives_in_any_unit(unit):
    """Its objective is in units of x²; products of these with gradients are in units of x⁴."""
    points = np.random.default_rng(1).normal(size=(40, 3))
    model, other = (KernelAutoencoder(2, random_state=0).fit(points * u) for u in (1.0, unit))
    assert_close(other.reconstruct(points * unit) / unit, model.reconstruct(points), 1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("unit", tiers([1e-100, 1.0, 1e100], lambda unit: unit == 1e100))
def test_a_learned_penalty_of_the_encoder_is_in_units_of_squared_data(unit):
    options = {"max_iter": 50, "n_restarts": 1, "random_state": 0}
    model = KernelAutoencoder(1, "laplacian", "laplacian", **options).fit(X * unit)
    assert 1e-6 < model.layers_[0].alpha / unit / unit < 1e6
    assert model.score(X * unit) > 0.5  # rounding moves where a search ends


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_learned_penalty_of_the_encoder_moves_in_any_unit():
    options = {"max_iter": 5, "n_restarts": 1, "random_state": 0}
    models = {unit: KernelAutoencoder(1, **options).fit(X * unit) for unit in (1.0, 1e-60, 1e60)}
    expected = models.pop(1.0).layers_[0].alpha
    for unit, model in models.items():
        assert model.layers_[0].alpha / unit / unit == pytest.approx(expected, rel=0.02)  # where it begins: 10 % off


REGRESSORS = {
    "ridge": lambda unit: OperatorRidge(Gaussian(0.9), random_state=0),
    "ridge, given": lambda unit: OperatorRidge(Gaussian(0.9), alpha=1e-3),
    "ridge, landmarks": lambda unit: OperatorRidge(Gaussian(0.9), alpha=1e-3, approximation=Landmarks(X[:10])),
    "deep": lambda unit: DeepKernelRegressor([], Gaussian(0.9), alpha=1e-3),
    "deep, inner": lambda unit: DeepKernelRegressor(
        [Layer(Gaussian(2.0), 2, alpha=1e-2 * unit * unit)], Laplacian(1.0), alpha=1e-3, **DEEP
    ),
    "deep, searched": lambda unit: DeepKernelRegressor([(Gaussian(2.0), 2)], Laplacian(1.0), **DEEP),
    "conditional": lambda unit: ConditionalMeanEmbedding(Gaussian(0.9), "rbf", 1e-2, criterion=None),
    "structured": lambda unit: StructuredPredictor(Gaussian(0.9), "linear", None, 1e-2, decoder="direct"),
}


def targets_for(name):
    return y[:, None] if name == "structured" else y


@functools.cache
def fitted_in_units_of_one(name):
    return REGRESSORS[name](1.0).fit(X, targets_for(name))


UNITS = [1e-200, 1e-100, 1e-30, 1e30, 1e100, 1e200]
# A penalty in units of squared targets is no number at the ends; a search takes long: the ends, where targets are
# divided by a unit, and where they are not yet are its worst cases.
UNITS_OF = dict.fromkeys(REGRESSORS, UNITS) | {"deep, inner": UNITS[1:-1], "deep, searched": [1e-200, 1e-60, 1e200]}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "unit"),
    tiers([(name, unit) for name in REGRESSORS for unit in UNITS_OF[name]], lambda case: case[0] != "deep, searched"),
)
def test_units_of_y_scale_the_answer(name, unit):
    model, other = fitted_in_units_of_one(name), REGRESSORS[name](unit).fit(X, targets_for(name) * unit)
    if name == "deep, searched":  # rounding moves where a search ends
        if unit == 1e-60:  # a penalty that does not move from where it begins is a quarter of this
            assert other.layers_[0].alpha / unit / unit == pytest.approx(model.layers_[0].alpha, rel=0.2)
        np.testing.assert_allclose(r2_score(y, other.predict(X) / unit), model.score(X, y), atol=0.02)
        return
    assert_close(answers(other, Q) / unit, answers(model, Q), 1e-8)
    if name.startswith(("ridge", "deep")):
        deviations = [m.predict(Q, return_std=True)[1] for m in (model, other)]
        assert_close(deviations[1] / unit, deviations[0], 1e-6)


@pytest.mark.parametrize(
    ("approximation", "intercept"),
    tiers(
        {
            "exact": (None, True),
            "exact, no intercept": (None, False),
            "cells": (Landmarks(X[:10]), True),
            "cells, no intercept": (Landmarks(X[:10]), False),
        },
        lambda name: name in ("exact", "cells, no intercept"),
    ),
)
def test_units_of_y_scale_intervals_of_an_embedding(approximation, intercept):
    def fitted_in(unit):
        options = {"approximation": approximation, "fit_intercept": intercept, "random_state": 0}
        return ConditionalMeanEmbedding(Gaussian(0.9), alpha=1e-2, **options).fit(X, y * unit)

    model = fitted_in(1.0)
    expected = model.predict_interval(Q, 0.5)
    for unit in (1e-200, 1e300):
        other = fitted_in(unit)
        assert_close(other.predict_interval(Q, 0.5) / unit, expected, 1e-8)
        if unit > 1:
            with pytest.raises(ValueError, match=r"variance .* beyond the range.*Scale y"):
                other.var(Q)
    assert_close(fitted_in(1e100).var(Q) / 1e200, model.var(Q), 1e-6)


@pytest.mark.parametrize("unit", [1e-200, *SCALES, 1e200])
@pytest.mark.parametrize("name", ["ridge", "deep"])
def test_units_of_y_on_dask_scale_the_answer(name, unit):
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(X, chunks=(20, 2))

    def make(u):
        if name == "ridge":
            return OperatorRidge(Gaussian(0.9), approximation=Landmarks(X[:10]), random_state=0)
        layer = Layer(Gaussian(2.0), 2, alpha=1e-2 * u * u if 1e-150 < u < 1e150 else "auto")
        return DeepKernelRegressor([layer], Laplacian(1.0), alpha=1e-2, approximation=Nystroem(10), **DEEP)

    if name == "deep" and not 1e-150 < unit < 1e150:
        pytest.skip("a penalty in units of squared targets is no number there")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model, other = (make(u).fit(lazy, da.from_array(y * u, chunks=20)) for u in (1.0, unit))
    assert_close(answers(other, Q) / unit, answers(model, Q), 1e-8)


ALL = {name: (lambda make=make: make(1.0), target) for name, (make, target) in FIXED.items()} | OTHERS


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ALL)
def test_rows_one_by_one_and_twice_have_the_answers_of_the_batch(name):
    make, target = ALL[name]
    model = fitted(make(), X, target)
    batch = answers(model, Q)
    assert_close(answers(model, Q), batch, 0.0)
    assert_close(np.concatenate([answers(model, Q[i : i + 1]) for i in range(len(Q))]), batch, 1e-8)


def test_levels_of_six_points_in_equal_columns_answer_twice_alike():
    line = [-0.12376709444179299, 0.40850638715761844, 1.4596078228835825]
    line += [0.44599130949820154, -0.06643048567743838, 1.9330593592353995]
    points = np.column_stack([line, line])
    model = DeepKernelPCA([3, 2, 1], "rbf", max_iter=10, random_state=0).fit(points)
    new = np.random.default_rng(0).normal(size=(20, 2))
    first = model.transform(new)
    for _ in range(3):
        np.testing.assert_allclose(model.transform(new), first, rtol=1e-12, atol=1e-12)
    moved = clone(model).fit(points * (1 + 1e-14 * np.random.default_rng(1).normal(size=points.shape)))
    np.testing.assert_allclose(moved.transform(new), first, atol=1e-7)  # rounding decides nothing, hence no warning


def test_fits_of_the_same_samples_are_the_same_to_the_last_digit():
    """Also where a search stalls, and rounding would decide where it ends: nothing depends on what memory held."""
    points = np.repeat(X[:8], 6, 0)

    def transformed(seed):
        stirred = [np.full(int(n), seed, np.int32) for n in np.random.default_rng(seed).integers(1, 400, 9)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            deep = DeepKernelPCA([8, 2], "rbf", max_iter=30, random_state=0).fit(points)
            line = DeepKernelPCA([2, 1], ["linear", Gaussian(1.0)], max_iter=30, random_state=0).fit(1e-70 * X[:14])
        del stirred
        return np.hstack([deep.transform(Q), line.transform(1e-70 * Q)])

    first = transformed(0)
    assert all(np.array_equal(transformed(seed), first) for seed in range(1, 3))


def test_answers_of_an_embedding_do_not_depend_on_what_was_asked_before():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    model = ConditionalMeanEmbedding(Gaussian(3.0), alpha=1e-4).fit(X, y)
    before = model.predict(X)
    model.influence(X[:2])
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("kernel", ["auto", Gaussian(1.0)])
@pytest.mark.filterwarnings("ignore:.*max_iter=2 reached")
def test_weights_of_stacked_fits_are_in_single_precision_where_the_fit_is(kernel: str | Gaussian) -> None:
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(12, 2)), rng.uniform(0.5, 2.0, 12)
    X[::4, 0] = np.nan if kernel == "auto" else 0.0
    model, double = (
        DeepKernelRegressor([], kernel, alpha=0.01, max_iter=2, n_restarts=1, dtype=dtype, random_state=0).fit(
            X, np.sin(X[:, 1]), sample_weight=weight
        )
        for dtype in ("float32", "float64")
    )
    np.testing.assert_allclose(model.predict(X), double.predict(X), atol=0.05)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_influences_of_a_linear_kernel_far_from_zero_are_those_of_refits(offset: float) -> None:
    rng = np.random.default_rng(0)
    points = np.round(rng.normal(size=(12, 1)) * GRID) / GRID
    y, weight = points[:, 0] + 0.1 * rng.normal(size=12), rng.uniform(0.5, 2.0, 12)
    X = points + offset
    model = OperatorRidge("linear", alpha=1e-3, fit_intercept=True).fit(X, y, sample_weight=weight)

    def refitted(keep: np.ndarray) -> np.ndarray:
        w = 12 * (weight / weight.sum())[keep]
        middle, mean = w @ points[keep] / w.sum(), w @ y[keep] / w.sum()
        centred = (points[keep] - middle)[:, 0]
        slope = (w * centred) @ (y[keep] - mean) / ((w * centred) @ centred + 12 * 1e-3)
        return (points[:3] - middle)[:, 0] * slope + mean

    everyone = np.arange(12)
    expected = [refitted(everyone) - refitted(np.delete(everyone, i)) for i in everyone]
    np.testing.assert_allclose(model.influence(X[:3]), np.transpose(expected), atol=1e-9)
    np.testing.assert_allclose(model.influence(X[:1]), np.transpose(expected)[:1], atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", ["rbf", "linear"]])
def test_levels_of_many_equal_rows_do_not_depend_on_their_order(kernel: str | list[str]) -> None:
    rng = np.random.default_rng(0)
    samples, queries = rng.normal(size=(4, 2))[rng.integers(0, 4, 20)], rng.normal(size=(5, 2))
    order = rng.permutation(20)
    one, other = (
        DeepKernelPCA([2, 1], kernel, random_state=0).fit(rows).transform(queries) for rows in (samples, samples[order])
    )
    # A component is known up to its sign.
    np.testing.assert_allclose(np.abs(one), np.abs(other), atol=1e-9 * np.abs(one).max())
