"""What rounding does to fits: linear ones far from the origin are right, others say what they have lost."""

from __future__ import annotations

import functools
import itertools
import pickle
import warnings

import mpmath
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.estimators import base
from representer.kernels import (
    Columns,
    Delta,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Spectrum,
    Stack,
    TensorMatern,
)
from representer.notices import NumericalWarning
from representer.operators import Decomposable, Dense, Diagonal, PrincipalComponents
from representer.systems import RidgeData, factor_system

ALPHA = 1e-3
RNG = np.random.default_rng(0)
X, Q = RNG.normal(size=(60, 2)), RNG.normal(size=(10, 2))
y = X[:, 0] - 0.5 * X[:, 1] + 0.1 * RNG.normal(size=60)
TIMES = 1.6e9 + RNG.uniform(0.0, 3e7, (70, 1))
FAR = {
    "origin": (X, Q),
    "offset": (X + 1e4, Q + 1e4),
    "timestamps": (np.hstack([X, TIMES[:60]]), np.hstack([Q, TIMES[60:]])),
}


def extended_ridge(X, y, Q, alpha, intercept):
    """Ridge regression in extended precision, by its normal equations in the space of few features."""
    X, y, Q = (np.asarray(values, np.longdouble) for values in (X, y, Q))
    n, middle, mean = len(X), np.zeros(X.shape[1], np.longdouble), np.longdouble(0)
    if intercept:
        middle, mean = X.mean(0), y.mean()
    X, Q = X - middle, Q - middle
    A, b = X.T @ X + n * np.longdouble(alpha) * np.eye(X.shape[1], dtype=np.longdouble), X.T @ (y - mean)
    for j in range(len(A)):  # elimination: NumPy solves in double precision only
        for i in range(j + 1, len(A)):
            factor = A[i, j] / A[j, j]
            A[i], b[i] = A[i] - factor * A[j], b[i] - factor * b[j]
    w = np.zeros_like(b)
    for j in reversed(range(len(A))):
        w[j] = (b[j] - A[j, j + 1 :] @ w[j + 1 :]) / A[j, j]
    return np.asarray(Q @ w + mean, float)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", FAR)
def test_linear_ridge_far_from_the_origin(name, intercept):
    points, new = FAR[name]
    expected = extended_ridge(points, y, new, ALPHA, intercept)
    model = OperatorRidge("linear", alpha=ALPHA, fit_intercept=intercept).fit(points, y)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-6)
    if name == "offset":
        np.testing.assert_allclose(model.predict(new), expected, atol=1e-9)
    if name == "offset" and not intercept:
        peer = KernelRidge(alpha=ALPHA * len(points), kernel="linear").fit(points, y).predict(new)
        assert np.abs(model.predict(new) - expected).max() < np.abs(peer - expected).max()


@pytest.mark.parametrize("operator", [None, Diagonal([1.0, 0.3]), Dense([[1.0, 0.5], [0.5, 2.0]])])
@pytest.mark.parametrize("unit", [1.0, 1e6, 1e50, 1e100])
def test_a_multiple_of_a_linear_kernel_is_one_with_another_alpha(unit, operator):
    points, new, Y = unit * (X + 1e4), unit * (Q + 1e4), np.column_stack([y, X[:, 1]])
    alpha = ALPHA * unit**2
    model = OperatorRidge(2.0 * (3.0 * Linear()), operator, alpha=6.0 * alpha).fit(points, Y)
    plain = OperatorRidge(Linear(), operator, alpha=alpha).fit(points, Y)
    for one, other in zip(model.predict(new, return_std=True), plain.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    np.testing.assert_allclose(model.function_.norm() * np.sqrt(6.0), plain.function_.norm(), rtol=1e-9)
    np.testing.assert_allclose(model.loo_predict_, plain.loo_predict_, rtol=1e-9)
    expected = [extended_ridge(X + 1e4, column, Q + 1e4, ALPHA, True) for column in Y.T]
    if operator is None:
        np.testing.assert_allclose(model.predict(new), np.column_stack(expected), atol=1e-8)


@pytest.mark.parametrize("name", ["offset", "timestamps"])
def test_structured_prediction_by_a_multiple_of_a_linear_kernel_far_from_the_origin(name):
    points, new = FAR[name]
    models = [
        StructuredPredictor(kernel, Linear(), alpha=alpha, fit_intercept=True).fit(points, y[:, None])
        for kernel, alpha in ((Linear(), ALPHA), (5.0 * Linear(), 5.0 * ALPHA))
    ]
    np.testing.assert_allclose(models[1].predict(new), models[0].predict(new), atol=1e-6)


def exact_ridge(points, target, new, alpha, intercept):
    """Ridge regression with forty digits, by its normal equations in the space of few features."""
    with mpmath.workdps(40):
        X, t, Q = (mpmath.matrix(np.asarray(a).tolist()) for a in (points, target, new))
        if intercept:
            X, Q = (mpmath.matrix([[1, *row] for row in M.tolist()]) for M in (X, Q))
        penalty = mpmath.diag([0] * intercept + [mpmath.mpf(alpha) * len(points)] * np.shape(points)[1])
        return np.array((Q * mpmath.lu_solve(X.T * X + penalty, X.T * t)).tolist(), float).ravel()


@functools.cache
def left_out_by_refits(name, alpha, intercept):
    """The mean squared leave-one-out error by refits with forty digits, at the n·alpha of all samples."""
    points, target = FARTHER[name][0], y + 3.0
    n, missed = len(points), []
    for i in range(n):
        rest = np.arange(n) != i
        predicted = exact_ridge(points[rest], target[rest], points[i : i + 1], alpha * n / (n - 1), intercept)
        missed.append(target[i] - predicted[0])
    return float(np.mean(np.square(missed)))


FARTHER = {"1e5": (X + 1e5, Q + 1e5), "1e7": (X + 1e7, Q + 1e7), "timestamps": FAR["timestamps"]}


@pytest.mark.parametrize(
    ("learner", "name", "intercept"),
    tiers(
        itertools.product([OperatorRidge, DeepKernelRegressor], FARTHER, [False, True]),
        lambda case: case[1] == "1e7" if case[0] is OperatorRidge else case[1:] == ("timestamps", True),
    ),
)
@pytest.mark.filterwarnings("ignore::representer.notices.NumericalWarning")
def test_alpha_is_found_far_from_the_origin(name, intercept, learner):
    points, new = FARTHER[name]
    target = y + 3.0
    options = {"alpha": "auto", "fit_intercept": intercept, "random_state": 0}
    model = (OperatorRidge("linear", **options) if learner is OperatorRidge else learner([], "linear", **options)).fit(
        points, target
    )
    np.testing.assert_allclose(model.predict(new), exact_ridge(points, target, new, model.alpha_, intercept), atol=1e-6)
    error = left_out_by_refits(name, model.alpha_, intercept)
    np.testing.assert_allclose(model.criterion_value_, error, rtol=1e-4)
    others = [left_out_by_refits(name, alpha, intercept) for alpha in (1e-6, 1e-3, 1.0, 1e6, 1e12)]
    assert error <= 1.001 * min(others)


def test_with_an_intercept_alpha_does_not_see_the_origin():
    fits = [OperatorRidge("linear", fit_intercept=True).fit(X + offset, y) for offset in (0.0, 2.0**24)]
    near, far = (fit.predict(Q + offset) for fit, offset in zip(fits, (0.0, 2.0**24), strict=True))
    np.testing.assert_allclose(far, near, atol=1e-5)


@pytest.mark.parametrize("operator", [None, PrincipalComponents(1)])
@pytest.mark.filterwarnings("ignore::representer.notices.NumericalWarning")
def test_structured_alpha_is_found_far_from_the_origin(operator):
    points, new = FARTHER["1e5"]
    model = StructuredPredictor("linear", "linear", operator, decoder="direct", fit_intercept=False)
    predicted = model.fit(points, np.column_stack([y, -y])).predict(new)[:, 0]
    expected = OperatorRidge("linear", fit_intercept=False).fit(points, y).predict(new)
    np.testing.assert_allclose(predicted, expected, atol=1e-3)


def test_the_deviation_of_linear_ridge_does_not_see_the_origin():
    near = OperatorRidge("linear", alpha=ALPHA, fit_intercept=True).fit(X, y)
    far = OperatorRidge("linear", alpha=ALPHA, fit_intercept=True).fit(X + 1e6, y)
    deviations = near.predict(Q, return_std=True)[1], far.predict(Q + 1e6, return_std=True)[1]
    np.testing.assert_allclose(deviations[1], deviations[0], rtol=1e-6)


def test_slopes_are_those_of_the_samples_coefficients():
    Y = np.column_stack([y, -y])
    Y[3, 1] = np.nan
    model = OperatorRidge("linear", alpha=ALPHA, fit_intercept=True).fit(X, Y, sample_weight=np.linspace(0.5, 2.0, 60))
    by_samples = Q @ (X.T @ model.dual_coef_) + model.intercept_
    np.testing.assert_allclose(model.predict(Q), by_samples, atol=1e-10)
    np.testing.assert_allclose(model.function_.norm(), np.linalg.norm(X.T @ model.dual_coef_), rtol=1e-8)


def test_classes_by_explicit_features_far_from_the_origin():
    labels = (y > 0).astype(int)
    near = EmbeddingClassifier(Linear() + 1.0, alpha=ALPHA, calibration=None, fit_intercept=True).fit(X, labels)
    far = EmbeddingClassifier(Linear() + 1.0, alpha=ALPHA, calibration=None, fit_intercept=True).fit(X + 1e4, labels)
    gap = far.decision_function(Q + 1e4) - near.decision_function(Q)
    assert np.abs(gap).max() < 1e-6


def mean_output(embedding, X):
    return embedding.expect(embedding.anchors).numpy()


LINEAR = {
    "structured": StructuredPredictor(Linear(), Linear(), None, ALPHA, decoder="direct"),
    "structured, by components": StructuredPredictor(
        Linear(), Linear(), PrincipalComponents(1), ALPHA, decoder="direct"
    ),
    "structured, by outputs": StructuredPredictor(Linear(), Polynomial(1, coef0=0.0), None, ALPHA, decoder=mean_output),
    "deep": DeepKernelRegressor([], Linear(), alpha=ALPHA, fit_intercept=False),
    "deep with intercept": DeepKernelRegressor([], Linear(), alpha=ALPHA),
}


@pytest.mark.parametrize("learner", LINEAR)
@pytest.mark.parametrize("name", FAR)
def test_other_linear_fits_far_from_the_origin(name, learner):
    points, new = FAR[name]
    expected = extended_ridge(points, y, new, ALPHA, learner == "deep with intercept")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        predicted = LINEAR[learner].fit(points, y[:, None]).predict(new).ravel()
    np.testing.assert_allclose(predicted, expected, atol=1e-6 if name == "timestamps" else 1e-9)


def test_weighted_linear_fits_have_the_slopes_of_their_coefficients():
    weights = np.linspace(0.5, 2.0, 60)
    deep = DeepKernelRegressor([], Linear(), alpha=ALPHA).fit(X, y, sample_weight=weights)
    ridge = OperatorRidge("linear", alpha=ALPHA, fit_intercept=True).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(deep.predict(Q), ridge.predict(Q), atol=1e-10)
    np.testing.assert_allclose(deep.dual_coef_.ravel(), ridge.dual_coef_.ravel(), atol=1e-8)
    structured = StructuredPredictor(Linear(), Linear(), None, ALPHA, decoder="direct", fit_intercept=True)
    structured.fit(X, np.column_stack([y, -y]), sample_weight=weights)
    outer = structured.function_.coordinates
    np.testing.assert_allclose(outer.slopes, X.T @ outer.coefficients, atol=1e-10)


# -- warnings ----------------------------------------------------------------------------------------------------------
def reasons(fit) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [str(w.message) for w in caught if issubclass(w.category, NumericalWarning)]


def twice(values):
    return np.concatenate([values, values])


BAD = {
    "alpha": (lambda: OperatorRidge(Gaussian(100.0), alpha=1e-14, fit_intercept=False).fit(X, y), "alpha is too small"),
    "duplicates": (
        lambda: OperatorRidge(Gaussian(1.0), alpha=1e-18, fit_intercept=False).fit(twice(X), twice(y)),
        "duplicate rows",
    ),
    "offset": (
        lambda: OperatorRidge(Polynomial(1), alpha=1e-3, fit_intercept=False).fit(X + 1e6, y),
        "Column 0 of X is far from zero",
    ),
    "drowned": (
        lambda: OperatorRidge(Polynomial(1), fit_intercept=False).fit(X + 1e5, y),
        "What tells samples apart in one direction is",
    ),
    "drowned, by a column": (
        lambda: OperatorRidge(Polynomial(1), fit_intercept=False).fit(FAR["timestamps"][0], y),
        "drowns it",
    ),
    "drowned, in a distribution": (
        lambda: ConditionalMeanEmbedding("linear").fit(X * [1.0, 1e6], y),
        "drowns it",
    ),
    "drowned, in classes": (
        lambda: EmbeddingClassifier("linear").fit(FAR["timestamps"][0], y > 0),
        "drowns it",
    ),
    "dependent landmarks": (
        lambda: ConditionalMeanEmbedding(
            Polynomial(3) + 0.5, alpha=6e-4, fit_intercept=False, approximation=Nystroem(30), random_state=0
        ).fit(1e3 * (X + 10.0), y),
        "times larger than their sum",
    ),
    "scale": (
        lambda: DeepKernelRegressor([], Polynomial(2), alpha=1e-6).fit(X * [1e5, 1.0], y),
        "very different scales",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_lost_digits_are_reported_once_with_the_reason(name):
    fit, reason = BAD[name]
    messages = reasons(fit)
    assert len(messages) == 1 and reason in messages[0]


MANY = np.random.default_rng(3).normal(size=(2100, 2))
SOLVED = {
    "ridge": lambda: OperatorRidge(Gaussian(1.0), alpha=ALPHA, fit_intercept=False).fit(X, y),
    "ridge by slopes": lambda: OperatorRidge("linear", alpha=ALPHA, fit_intercept=False).fit(X, y),
    "ridge by sums": lambda: OperatorRidge(
        Gaussian(1.0), alpha=ALPHA, approximation=Nystroem(9), fit_intercept=False
    ).fit(X, y),
    "ridge, many samples": lambda: OperatorRidge(Laplacian(1.0), alpha=ALPHA, fit_intercept=False).fit(
        MANY, MANY[:, 0]
    ),
    "many sums": lambda: OperatorRidge(Laplacian(1.0), alpha=ALPHA, approximation=Nystroem(9), fit_intercept=False).fit(
        MANY, MANY[:, 0]
    ),
    "deep": lambda: DeepKernelRegressor([], Gaussian(1.0), alpha=ALPHA).fit(X, y),
    "structured": lambda: StructuredPredictor(Gaussian(1.0), "rbf", None, ALPHA).fit(X, y[:, None]),
    "conditional": lambda: ConditionalMeanEmbedding(Gaussian(1.0), "rbf", ALPHA, criterion=None).fit(X, y),
    "cells": lambda: ConditionalMeanEmbedding(
        Gaussian(1.0), "rbf", ALPHA, criterion=None, approximation=Nystroem(9)
    ).fit(X, y),
    "classes": lambda: EmbeddingClassifier(Gaussian(1.0), None, ALPHA, calibration=None).fit(X, y > 0),
}


@pytest.mark.parametrize("name", SOLVED)
def test_every_fit_looks_at_its_residual(name, monkeypatch):
    noted = {}

    def keep(function, X, notes, dtype, **options):
        noted.update(notes.residuals)

    monkeypatch.setattr(base, "lost_digits", keep)
    SOLVED[name]()
    assert noted and max(noted.values()) < 1e-10


def test_some_rows_show_the_residual_of_many():
    target = torch.from_numpy(MANY[:, :1])
    data = RidgeData(Decomposable(Laplacian(1.0)), torch.from_numpy(MANY), target, torch.ones(2100).double())
    system = factor_system(data, ALPHA)
    assert system.residual() < 1e-12
    wrong = 1e-6 * torch.randn(2100, 1, generator=torch.Generator().manual_seed(0)).double()
    (part,) = system.parts
    vars(part)["dual"] = part.dual + wrong
    W = Laplacian(1.0)(MANY) + 2100 * ALPHA * torch.eye(2100)
    expected = float((W @ wrong).norm() / target.norm())
    np.testing.assert_allclose(system.residual(), expected, rtol=0.5)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rare_targets_are_no_reason_to_warn(fit_intercept):
    rare = np.zeros(len(MANY))
    rare[[5, 17, 333]] = 1.0  # none of them is among the rows whose residual is looked at
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OperatorRidge(Gaussian(1.0), alpha=ALPHA, fit_intercept=fit_intercept).fit(MANY, rare)
        deep = DeepKernelRegressor([], Gaussian(1.0), alpha=ALPHA, fit_intercept=fit_intercept).fit(MANY, rare)
    assert model.system_.residual() < 1e-10
    np.testing.assert_allclose(deep.predict(MANY[:9]), model.predict(MANY[:9]), atol=1e-9)


def random_fit(seed: int):
    """A learner with a moderate alpha on random data."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(5, 60)), int(rng.integers(1, 4))
    points = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    unit, alpha = float(np.std(points)), float(10.0 ** rng.uniform(-4, 0))
    kernels = (Gaussian, Laplacian, lambda scale: Matern(1.5, scale), lambda scale: Polynomial(2, gamma=scale**-2))
    kernel = kernels[seed % 4](unit * 10.0 ** rng.uniform(-0.5, 0.5))
    target = np.sin(points[:, 0] / unit) + 0.1 * rng.normal(size=n)
    options = {"max_iter": 3, "n_restarts": 1, "random_state": 0}
    return [
        lambda: OperatorRidge(kernel, alpha=alpha, fit_intercept=False).fit(points, target),
        lambda: OperatorRidge(kernel, alpha=alpha, fit_intercept=True, approximation=Nystroem(5)).fit(points, target),
        lambda: DeepKernelRegressor([], kernel, alpha=alpha).fit(points, target),
        lambda: StructuredPredictor(kernel, "linear", None, alpha, decoder="direct").fit(points, target[:, None]),
        lambda: ConditionalMeanEmbedding(kernel, "rbf", alpha, criterion=None).fit(points, target),
        lambda: EmbeddingClassifier(kernel, None, alpha, calibration=None).fit(points, target > np.median(target)),
        lambda: KernelAutoencoder(1, kernel, Laplacian(1.0), alpha=alpha, encoder_alpha=alpha, **options).fit(points),
    ][(seed // 4) % 7]


@pytest.mark.parametrize("n_fits", tiers([100, 300], lambda n_fits: n_fits == 100))
def test_well_conditioned_fits_do_not_warn(n_fits):
    warned = [seed for seed in range(n_fits) if reasons(random_fit(seed))]
    assert len(warned) <= n_fits / 100, f"{len(warned)} of {n_fits} fits have warned: {warned}"


def test_landmarks_of_products_far_from_zero_say_so(rng):
    """Their terms hardly cancel, and yet what tells samples apart is 10⁻⁶ of them: the order of samples mattered."""
    X = np.round(rng.normal(size=(32, 3)) * 2**20) / 2**20
    y = np.sin(X[:, 0])
    model = OperatorRidge(Polynomial(3), alpha=0.05, fit_intercept=True, approximation=Landmarks(X[:1] + 2.0**20))
    with pytest.warns(NumericalWarning, match="times farther from zero than apart"):
        model.fit(X + 2.0**20, y)


def outlier_far_from_zero(rng):
    points = np.round(rng.normal(size=(24, 3)) * 2**20) / 2**20
    points[0] *= 1e4
    return 1e3 * (points + 2.0**20)[:18], 1e3 * (points + 2.0**20)[18:]


@pytest.mark.parametrize("center", [True, "data"])
@pytest.mark.parametrize("upper", ["linear", "rbf"])
def test_levels_of_a_linear_kernel_do_not_see_the_origin(upper, center, rng):
    """Their products were as large as the squared offset: components were off by 1e-5 to 0.1."""
    points = np.round(rng.normal(size=(24, 3)) * [3.0, 2.0, 1.0] * 2**20) / 2**20
    near, far = (
        DeepKernelPCA([2, 1], ["linear", upper], center=center, random_state=0).fit(points[:18] + offset)
        for offset in (0.0, 2.0**20)
    )
    np.testing.assert_allclose(far.transform(points + 2.0**20), near.transform(points), atol=1e-10)
    codes = near.transform(points)[:, :2]
    np.testing.assert_allclose(
        far.inverse_transform(codes, level=0) - 2.0**20, near.inverse_transform(codes, level=0), atol=1e-8
    )
    network, new = far.to_torch(), torch.tensor(points[18:] + 2.0**20, requires_grad=True)
    np.testing.assert_allclose(network(new).detach(), near.transform(points[18:]), atol=1e-8)


def test_the_smoother_weighs_points_as_they_are(rng):
    """Products of positive points are weights; those of their differences from a mean are none."""
    X = rng.uniform(1.0, 2.0, (12, 2))
    model = DeepKernelPCA([1], "linear", extension="smoother", random_state=0).fit(X)
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize("kernel", ["linear", Linear().centered()], ids=repr)
def test_levels_of_a_centred_kernel_far_from_zero_keep_their_digits(kernel, rng):
    """The products of points cancelled: rows one by one had other components than all of them, and nothing said so."""
    X, new = outlier_far_from_zero(rng)
    model = DeepKernelPCA([2, 1], [kernel, "linear"], max_iter=30, random_state=0).fit(X)
    together, alone = model.transform(new), np.vstack([model.transform(row) for row in new[:, None]])
    np.testing.assert_allclose(alone, together, atol=1e-9 * np.abs(together).max())


@pytest.mark.parametrize("kernel", [Polynomial(1), Polynomial(3).centered()], ids=repr)
def test_levels_say_that_centring_has_cost_the_digits_of_a_weak_component(kernel, rng):
    """An outlier is the first component; the second is what rounding has left of the other samples."""
    X, _ = outlier_far_from_zero(rng)
    with pytest.warns(NumericalWarning, match="times larger than their sum"):
        DeepKernelPCA([2, 1], [kernel, "linear"], max_iter=30, random_state=0).fit(X)


def test_deviations_of_huge_products_say_that_they_have_few_digits():
    """Sums over landmarks were silent: one row at a time had another deviation, by a third, than all rows."""
    points = np.full((4, 3), 2.0**20 + 0.5)
    model = OperatorRidge(2.0 * Polynomial(3), alpha=ALPHA, approximation=Nystroem(1), random_state=0)
    model.fit(points, y[:4])
    with pytest.warns(NumericalWarning, match="Standard deviations have few digits"):
        model.predict(points, return_std=True)


def test_deviations_beyond_the_range_of_numbers_are_refused():
    """Products of 1e200 cancel beside a free constant; squares of their rounding do not."""
    X = np.full((5, 2), 5e99)
    with pytest.warns(NumericalWarning):
        model = OperatorRidge(Linear() + 0.5, alpha=2e-3, operator=Dense([[1.0, 0.4], [0.4, 0.8]])).fit(X, X[:, :2])
    with pytest.warns(NumericalWarning), pytest.raises(ValueError, match=r"range of numbers: .* Scale X"):
        model.predict(X, return_std=True)


def test_an_outlier_does_not_hide_that_single_precision_has_few_digits(rng):
    X = rng.normal(size=(21, 2)) + 2.0**20
    X[0] += 1e4
    with pytest.warns(NumericalWarning, match="float32"):
        OperatorRidge(Linear(), alpha=1e-2, fit_intercept=False, dtype="float32").fit(X, X[:, 0] - 2.0**20)


def test_deviations_from_landmarks_with_digits_are_silent():
    model = OperatorRidge(Gaussian(1.0), alpha=ALPHA, approximation=Nystroem(9), random_state=0).fit(X, y)
    model.predict(Q, return_std=True)


def test_landmarks_that_are_objects_know_what_cancels_between_them():
    """Only those of vectors did: in single precision rows one by one were off by a hundredth, without a word."""
    table = pd.DataFrame({"width": X[:17, 0], "colour": ["red", "blue"] * 8 + ["red"]})
    kernel = Columns({"width": Gaussian(0.6), "colour": Delta()})
    options = {"approximation": Nystroem(12), "dtype": "float32", "random_state": 0}
    with pytest.warns(NumericalWarning, match="times larger than their sum"):
        ConditionalMeanEmbedding(kernel, alpha=6e-9, **options).fit(table, y[:17])
    ConditionalMeanEmbedding(kernel, alpha=0.1, **options).fit(table, y[:17])


def test_objects_whose_terms_cancel_in_single_precision_say_so():
    """Only kernels of vectors were looked at: answers differed by five thousandths when samples were reordered."""
    words = ["".join(RNG.choice(list("abcd"), size=RNG.integers(5, 11))) for _ in range(44)]
    targets = np.cumsum(RNG.normal(size=44))
    with pytest.warns(NumericalWarning, match="times larger than their sum"):
        OperatorRidge(Spectrum((1, 2)), alpha=7.7e-5, fit_intercept=False, dtype="float32").fit(words, targets)
    OperatorRidge(Spectrum((1, 2)).normalized(), alpha=0.1, dtype="float32").fit(words, targets)
    OperatorRidge(Spectrum((1, 2)), alpha=7.7e-5, fit_intercept=False).fit(words, targets)


@pytest.mark.parametrize("unit", [2.0**500, 2.0**1015])
def test_huge_targets_of_nearly_dependent_landmarks_have_the_scaled_mean(unit):
    """Squares of the targets are beyond the range of numbers, and so were coefficients that need not be used."""
    near = 1e-12 * X
    model = ConditionalMeanEmbedding(
        2.0 * Polynomial(1), alpha=3e-4, fit_intercept=False, approximation=Landmarks(near[:5]), random_state=0
    )
    expected = model.fit(near, y).predict(near)
    np.testing.assert_allclose(model.fit(near, unit * y).predict(near) / unit, expected, rtol=1e-9)


def test_levels_of_products_without_digits_are_refused():
    """Points of 1e-160 have squares that are no numbers of full precision: their components were NaN."""
    with pytest.raises(ValueError, match="lose their digits"):
        DeepKernelPCA([2, 1], [Linear().centered(), "linear"], random_state=0).fit(1e-160 * X)
    with pytest.raises(ValueError, match="lose their digits"):
        DeepKernelPCA([1], "linear", random_state=0).fit(1e-150 * X)
    model, other = (DeepKernelPCA([1], "linear", random_state=0).fit(unit * X) for unit in (1.0, 1e-80))
    np.testing.assert_allclose(other.hidden_[0], model.hidden_[0], rtol=0, atol=1e-12)  # they were wrong


def test_conjugate_gradients_say_that_landmarks_nearly_depend():
    """Equal landmarks cancel in every product: another order of the samples had another answer, without a word."""
    options = {"alpha": 1e-9, "solver": "cg", "fit_intercept": True, "random_state": 0}
    model = OperatorRidge(TensorMatern(2, 2.0), approximation=Landmarks(X[[0, 0, 1, 1, 2, 3, 4, 5], :1]), **options)
    with pytest.warns(NumericalWarning, match="landmarks nearly depend"):
        model.fit(X[:, :1], y)
    OperatorRidge(Laplacian(1.0), approximation=Landmarks(X[:3]), **options | {"alpha": ALPHA}).fit(X, y)


def test_deviations_of_an_output_with_one_target_beside_a_constant_are_refused():
    """Its variance without that target is infinite: rounding made it negative, and the deviation NaN."""
    targets = np.array([[1.0, 1.0], [2.4, np.nan]])
    model = OperatorRidge(Gaussian(1.0), Dense([[1.0, 0.4], [0.4, 0.8]]), alpha=1e-6, fit_intercept=True)
    with pytest.raises(ValueError, match="deviations of output 1 are unknown"):
        model.fit(X[:2], targets).predict(X[:2], return_std=True)


def test_explanations_beyond_the_range_of_numbers_are_refused():
    model = EmbeddingClassifier("linear", alpha=ALPHA, calibration=None, fit_intercept=True)
    model.fit(1e160 * X, y > 0)
    assert np.isfinite(model.decision_function(1e160 * Q)).all()
    with pytest.raises(ValueError, match="leave the range of numbers"):
        model.explain(1e160 * Q)


def test_a_stack_says_what_a_member_with_a_weight_loses():
    kernels, points, approximation = [Gaussian(1e4), Polynomial(3)], 1e4 * X, Landmarks(1e4 * X[:20])

    def fitted(weights):
        return OperatorRidge(Stack(kernels, weights, [0.1, 1e-3]), approximation=approximation).fit(points, y)

    with pytest.warns(NumericalWarning, match="times larger than their sum"):
        model = fitted([0.5, 0.5])
    members = [np.asarray(f.magnitudes(points)) for f in model.function_.functions]
    np.testing.assert_allclose(model.function_.magnitudes(points), 0.5 * members[0] + 0.5 * members[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", NumericalWarning)
        fitted([1.0, 0.0])


CONSTANT = {
    "samples": (Gaussian(1.0), Nystroem(5)),
    "other points": (Gaussian(1.0), Landmarks([[0.0, 0.0], [1.0, 2.0], [0.5, 1.2]])),
    "products": (Polynomial(3, gamma=1.0), Landmarks([[1.0, 1.0], [1.0, 1.0]])),
    "random features": (Gaussian(1.0), RandomFeatures(16)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", CONSTANT)
def test_features_of_constant_inputs_leave_the_mean_of_the_targets(name, gaps, dtype):
    """Beside a constant their sums are rounding, of which a fit made alphas, answers, or an error."""
    kernel, approximation = CONSTANT[name]
    points, targets = np.full((20, 2), 0.37), np.sin(np.arange(40.0)).reshape(20, 2)
    weights = np.arange(20) + 0.5
    if gaps:
        targets[3, 0] = np.nan
    known = np.where(np.isnan(targets), 0.0, weights[:, None])
    means = (known * np.nan_to_num(targets)).sum(0) / known.sum(0)
    model = OperatorRidge(kernel, approximation=approximation, random_state=0, dtype=dtype)
    np.testing.assert_allclose(model.fit(points, targets, weights).predict(points[:1])[0], means, rtol=1e-6)
    if name == "samples":
        exact = OperatorRidge(kernel, dtype=dtype).fit(points, targets, weights)
        assert model.alpha_ == pytest.approx(exact.alpha_, rel=0.2)


def test_embeddings_by_features_of_constant_inputs_are_the_mean():
    points, targets = np.full((20, 2), 0.37), np.sin(np.arange(40.0)).reshape(20, 2)
    model = ConditionalMeanEmbedding(approximation=RandomFeatures(16), random_state=0).fit(points, targets)
    np.testing.assert_allclose(model.predict(points[:1])[0], targets.mean(0))


@pytest.mark.filterwarnings("ignore:The terms of the fitted function")
def test_wide_kernels_are_not_constant():
    """Their functions differ little, but by more than rounding."""
    x = 1.0 + 1e-7 * X[:, :1]
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(5), random_state=0).fit(x, X[:, 0])
    assert model.score(x, X[:, 0]) > 0.99


@functools.cache
def embeddings_fitted_at(offset):
    """Embeddings with a linear kernel and a constant, which search alpha, and what they say of new points."""
    points, new, weight = X + offset, Q + offset, np.linspace(0.5, 2.0, len(X))
    classes = EmbeddingClassifier("linear").fit(points, y > 0, sample_weight=weight)
    targets = ConditionalMeanEmbedding("linear").fit(points, y, sample_weight=weight)
    module = targets.to_torch()(torch.from_numpy(new)).detach().numpy().ravel()
    answers = classes.predict_proba(new), targets.mean(new).ravel(), targets.var(new).ravel(), module
    return (classes, targets), answers


@pytest.mark.filterwarnings("error::representer.notices.NumericalWarning")
@pytest.mark.parametrize("offset", [1e3, 1e4, 1e6, 1e8])
def test_searches_of_embeddings_with_a_linear_kernel_and_a_constant_know_no_origin(offset):
    (near, far), (expected, answers) = zip(*(embeddings_fitted_at(c) for c in (0.0, offset)), strict=True)
    for one, other in zip(near, far, strict=True):
        assert other.alpha_ == pytest.approx(one.alpha_, rel=1e-4)
    for values, exact in zip(answers, expected, strict=True):
        np.testing.assert_allclose(values, exact, atol=1e-5)


@pytest.mark.filterwarnings("error::representer.notices.NumericalWarning")
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e8])
def test_the_mean_of_a_conditional_embedding_with_a_linear_kernel_is_ridge_regression_on_centred_data(offset):
    model = ConditionalMeanEmbedding("linear", alpha=ALPHA, criterion=None).fit(X + offset, y)
    expected = exact_ridge(X, y, Q, ALPHA, True)
    np.testing.assert_allclose(model.mean(Q + offset).ravel(), expected, atol=1e-15 * offset + 1e-9)


@pytest.mark.parametrize("learner", [EmbeddingClassifier, ConditionalMeanEmbedding])
def test_embeddings_of_equal_points_with_a_linear_kernel_are_fitted(learner):
    target = (y > 0).astype(float)
    model = learner("linear", alpha=ALPHA).fit(np.full((60, 2), 3.0), target)
    values = model.predict(X) if learner is EmbeddingClassifier else model.mean(np.full((1, 2), 3.0)).ravel()
    mean = float(target.mean() > 0.5) if learner is EmbeddingClassifier else target.mean()
    np.testing.assert_allclose(values, mean)


MANY_UNITS = {
    "near": X,
    "1e4": X + 1e4,
    "1e8": X + 1e8,
    "timestamps": FAR["timestamps"][0],
    "units": np.column_stack([X[:, 0], X]) * [1e-6, 1.0, 1e6],
}


def exact_structured(points, targets, alpha):
    """Ridge regression of centred targets on points that are not, with forty digits."""
    mean = targets.mean(0)
    columns = [exact_ridge(points, column - m, points, alpha, False) for column, m in zip(targets.T, mean, strict=True)]
    return np.column_stack(columns) + mean


@pytest.mark.filterwarnings("error::representer.notices.NumericalWarning")
@pytest.mark.parametrize("name", MANY_UNITS)
@pytest.mark.parametrize("approximation", [Nystroem(60), Nystroem(20, "pivots"), "landmarks"], ids=repr)
def test_landmarks_that_span_the_space_of_a_linear_kernel_are_exact_far_from_the_origin(approximation, name):
    points, targets = MANY_UNITS[name], np.column_stack([y, X[:, 0] * X[:, 1]])
    approximation = Landmarks(points[:10]) if approximation == "landmarks" else approximation
    options = {"alpha": ALPHA, "decoder": "direct", "fit_intercept": True, "random_state": 0}
    model = StructuredPredictor("linear", "linear", None, approximation=approximation, **options).fit(points, targets)
    np.testing.assert_allclose(model.predict(points), exact_structured(points, targets, ALPHA), atol=2e-7)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict(points), model.predict(points), atol=2e-7)


@pytest.mark.filterwarnings("error::representer.notices.NumericalWarning")
@pytest.mark.parametrize("name", MANY_UNITS)
@pytest.mark.parametrize("operator", [None, "covariance", "conditional_covariance"])
def test_landmarks_of_a_linear_kernel_choose_the_alpha_of_the_exact_fit(operator, name):
    points, targets = MANY_UNITS[name], np.column_stack([y, X[:, 0] * X[:, 1]])
    options = {"decoder": "direct", "fit_intercept": True, "random_state": 0}
    exact = StructuredPredictor("linear", "linear", operator, **options).fit(points, targets)
    model = StructuredPredictor("linear", "linear", operator, approximation=Nystroem(60), **options)
    model.fit(points, targets)
    assert model.alpha_ == pytest.approx(exact.alpha_, rel=1e-4)
    np.testing.assert_allclose(model.predict(points), exact.predict(points), atol=2e-7)


@pytest.mark.filterwarnings("error::representer.notices.NumericalWarning")
def test_landmarks_as_many_as_monomials_keep_the_digits_of_all_of_them():
    kernel, points, new = Polynomial(3, gamma=0.5), 1e4 * X, 1e4 * Q
    model = OperatorRidge(kernel, alpha=ALPHA, approximation=Landmarks(points[:10])).fit(points, y)
    features = [np.asarray(kernel.features(kernel.prepare(a))) for a in (points, new)]
    expected = exact_ridge(features[0], y, features[1], ALPHA, model.fit_intercept)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-8)


@pytest.mark.parametrize("approximation", [None, Nystroem(40)], ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e2, 2.0**26, 1e8])
def test_layers_of_products_say_what_they_lose_far_from_the_origin(offset, approximation):
    learner = DeepKernelRegressor([(Polynomial(1), 2)], approximation=approximation, max_iter=10, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(X + offset, y)
    told = [str(entry.message) for entry in caught if entry.category is NumericalWarning]
    if offset <= 1e2:
        assert not told
        assert learner.score(X + offset, y) > 0.95
    else:
        assert any("StandardScaler" in text for text in told)
