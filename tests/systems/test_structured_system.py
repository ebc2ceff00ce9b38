"""The system of a fitted StructuredPredictor: leave-one-out by refits, leverages by differences, variances densely."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from representer import StructuredPredictor
from representer.approximation import Landmarks, Nystroem
from representer.kernels import Gaussian

ALPHA = 5e-3


@pytest.fixture
def data(rng):
    X = rng.normal(size=(20, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * rng.normal(size=(20, 2))
    return X, Y, rng.uniform(0.5, 2.0, size=20), np.arange(20) // 3


def gram(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * ((A[:, None] - B) ** 2).sum(-1) / 1.3**2)


def predictor(**options: Any) -> StructuredPredictor:
    options = {"kernel": Gaussian(1.3), "output_kernel": Gaussian(0.9), "alpha": ALPHA, **options}
    return StructuredPredictor(random_state=0, **options)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("output_kernel", [Gaussian(0.9), "linear"])
def test_left_out_is_a_fit_without_the_group(data, grouped, fit_intercept, output_kernel):
    X, Y, w, groups = data
    model = predictor(fit_intercept=fit_intercept, output_kernel=output_kernel).fit(X, Y, sample_weight=w)
    labels = groups if grouped else np.arange(20)
    weights = model.system_.left_out(torch.from_numpy(labels))
    values = model.function_.element(weights)(Y[:5]).numpy()
    mean = np.average(Y, axis=0, weights=w)
    for label in (0, 2, 6):
        stay = labels != label
        # The weight of ‖g‖² and the mean output stay those of all samples.
        refit = predictor(alpha=ALPHA * w.sum() / w[stay].sum(), output_kernel=output_kernel)
        if not fit_intercept:
            refit.fit(X[stay], Y[stay], sample_weight=w[stay])
            expected = refit.decision_embedding(X[~stay])(Y[:5]).numpy()
        elif output_kernel == "linear":
            refit.fit(X[stay], Y[stay] - mean, sample_weight=w[stay])
            predicted = refit.decision_embedding(X[~stay]).weights.numpy() + mean
            expected = predicted @ Y[:5].T
        else:
            continue
        np.testing.assert_allclose(values[~stay], expected, atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_leverage_is_a_derivative(data, fit_intercept):
    X, Y, w, _ = data
    model = predictor(fit_intercept=fit_intercept, output_kernel="linear").fit(X, Y, sample_weight=w)
    leverage = model.system_.leverage().numpy()[:, 0]
    for i in (0, 7):
        moved = Y.copy()
        moved[i, 0] += 1.0  # the fit is linear in the outputs
        other = clone(model).fit(X, moved, sample_weight=w)
        change = other.function_(X[i : i + 1]) - model.function_(X[i : i + 1])
        assert leverage[i] == pytest.approx(float(change[0, 0]), abs=1e-10)


@pytest.mark.parametrize("operator", [None, "covariance"])
@pytest.mark.parametrize("approximation", [None, (Landmarks(np.zeros((1, 2))), Nystroem(5))])
def test_variance_is_that_of_dense_systems(data, operator, approximation):
    X, Y, w, _ = data
    if approximation is not None:
        approximation = (Landmarks(X), Landmarks(Y))
    model = predictor(operator=operator, approximation=approximation).fit(X, Y, sample_weight=w)
    system, new = model.system_, X[:6] + 0.3
    found = system.variance(new).numpy()
    K, cross = gram(X, X), gram(new, X)
    for j, a in enumerate(system.diagonal.values.numpy()[-3:] if operator else [1.0]):
        inverse = np.linalg.inv(a * K + np.diag(w.sum() * ALPHA / w))
        expected = a - a**2 * np.einsum("ij,jk,ik->i", cross, inverse, cross)
        np.testing.assert_allclose(found[:, j - 3 if operator else 0], expected, atol=1e-7)


@pytest.mark.parametrize("operator", [None, "kpca", "covariance", "conditional_covariance"])
@pytest.mark.parametrize("approximation", [None, Nystroem(12)])
def test_a_stored_system_gives_the_same_answers(data, operator, approximation):
    X, Y, _, groups = data
    model = predictor(operator=operator, approximation=approximation).fit(X, Y, groups=groups)
    one, two = model.system_, pickle.loads(pickle.dumps(model)).system_
    assert "regression" not in vars(model.system_)
    assert one.residual() < 1e-8
    np.testing.assert_allclose(one.coefficients(), two.coefficients(), atol=1e-9)
    np.testing.assert_allclose(one.left_out(), two.left_out(), atol=1e-7)
    np.testing.assert_allclose(plain(one.function()(X)), plain(model.function_(X)), atol=1e-8)
    assert one.left_out().shape == (20, len(model.function_.prepared_anchors))


def plain(values: torch.Tensor) -> np.ndarray:
    return values.numpy()


def test_sums_of_all_landmarks_leave_out_like_an_exact_fit(data):
    X, Y, w, groups = data
    exact = predictor().fit(X, Y, sample_weight=w)
    summed = predictor(approximation=(Landmarks(X), Landmarks(Y))).fit(X, Y, sample_weight=w)
    labels = torch.from_numpy(groups)
    one, two = (m.function_.element(m.system_.left_out(labels))(Y).numpy() for m in (exact, summed))
    np.testing.assert_allclose(one, two, atol=1e-6)
    with pytest.raises(ValueError, match="Leverages of a fit by sums are not known"):
        summed.system_.leverage()
    with pytest.raises(ValueError, match="Only fits by sums take more samples"):
        exact.system_.joined(exact.system_.pairs)


def test_the_path_of_alphas_has_the_criterion(data):
    X, Y, _, _ = data
    model = predictor(alpha="auto").fit(X, Y)
    errors = model.system_.path(torch.tensor([model.alpha_, 1.0]))
    assert float(errors[0]) == pytest.approx(model.criterion_value_, rel=1e-6)
    assert errors[1] > errors[0]
