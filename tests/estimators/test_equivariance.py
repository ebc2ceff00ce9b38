"""What must not matter does not: the order of samples, an origin, units, batches of questions, asking twice."""

from __future__ import annotations

import numpy as np
import pytest

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
from representer.approximation import Landmarks
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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("unit", [1e-100, 1e-9, 1e9, 1e100])
def test_units_of_x_do_not_matter_to_lengthscales_in_those_units(name, unit):
    make, target = FIXED[name]
    model, other = fitted(make(1.0), X, target), fitted(make(unit), X * unit, target)
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-8)


@pytest.mark.parametrize("unit", [1e-163, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_units_of_x_do_not_matter_to_the_median_heuristic(kernel, unit):
    model = OperatorRidge(kernel, alpha=1e-3).fit(X, y)
    other = OperatorRidge(kernel, alpha=1e-3).fit(X * unit, y)
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-8)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_units_of_x_do_not_matter_to_learned_lengthscales(unit):
    model, other = (EmbeddingClassifier("rbf", random_state=0).fit(X * u, labels) for u in (1.0, unit))
    assert_close(answers(other, Q * unit), answers(model, Q), 1e-6)


REGRESSORS = {
    "ridge": lambda: OperatorRidge(Gaussian(0.9), random_state=0),
    "ridge, given": lambda: OperatorRidge(Gaussian(0.9), alpha=1e-3),
    "ridge, landmarks": lambda: OperatorRidge(Gaussian(0.9), alpha=1e-3, approximation=Landmarks(X[:10])),
    "deep": lambda: DeepKernelRegressor([], Gaussian(0.9), alpha=1e-3),
    "conditional": lambda: ConditionalMeanEmbedding(Gaussian(0.9), "rbf", 1e-2, criterion=None),
}


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("unit", [1e-200, 1e-100, 1e100, 1e200])
def test_units_of_y_scale_the_answer(name, unit):
    model, other = REGRESSORS[name]().fit(X, y), REGRESSORS[name]().fit(X, y * unit)
    assert_close(answers(other, Q) / unit, answers(model, Q), 1e-8)
    if name.startswith("ridge"):
        deviations = [m.predict(Q, return_std=True)[1] for m in (model, other)]
        assert_close(deviations[1] / unit, deviations[0], 1e-6)


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
    model = DeepKernelPCA([3, 2, 1], "rbf", max_iter=10, random_state=0)
    with pytest.warns(UserWarning):
        model.fit(points)
    new = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.warns(UserWarning):
        first = model.transform(new)
        for _ in range(3):
            np.testing.assert_allclose(model.transform(new), first, rtol=1e-12, atol=1e-12)
