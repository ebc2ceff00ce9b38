"""The system of a fitted ConditionalMeanEmbedding: leave-one-out by refits, leverages, variances densely, sums."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from representer import ConditionalMeanEmbedding
from representer.approximation import Landmarks, Nystroem
from representer.kernels import Gaussian, Sigmoid
from representer.linalg import IndefiniteGramWarning

ALPHA = 1e-2


@pytest.fixture
def data(rng):
    X = rng.normal(size=(18, 2))
    weights = rng.uniform(0.5, 2.0, size=18)
    weights[4] = 0.0
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=18), weights, np.arange(18) // 3


def embedding(alpha: Any = ALPHA, **options: Any) -> ConditionalMeanEmbedding:
    return ConditionalMeanEmbedding(Gaussian(1.3), Gaussian(0.9), alpha, random_state=0, **options)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_left_out_is_a_fit_without_the_group(data, fit_intercept, grouped):
    X, y, w, groups = data
    model = embedding(fit_intercept=fit_intercept).fit(X, y, sample_weight=w, groups=groups if grouped else None)
    found, labels = model.system_.left_out().numpy(), groups if grouped else np.arange(18)
    assert model.system_.residual() < 1e-10
    for i in (0, 4, 9, 17):
        stay = (labels != labels[i]) if w[i] else np.ones(18, bool)
        refit = embedding(ALPHA * w.sum() / w[stay].sum(), fit_intercept=fit_intercept)
        refit.fit(X[stay], y[stay], sample_weight=w[stay])
        np.testing.assert_allclose(found[i, stay], refit.weights(X[i : i + 1])[0], atol=1e-8)
        assert not found[i, ~stay].any()


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_leverages_and_variances(data, fit_intercept):
    X, y, w, _ = data
    model = embedding(fit_intercept=fit_intercept).fit(X, y, sample_weight=w)
    own = model.weights(X).diagonal()
    np.testing.assert_allclose(model.system_.leverage()[:, 0], own, atol=1e-10)
    np.testing.assert_allclose(model.weights(X).diagonal(), own, atol=1e-10)  # by the inverse, which is at hand now
    seen, new = w > 0, X[:5] + 0.3
    constant = 1e7 if fit_intercept else 0.0

    def gram(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * ((A[:, None] - B) ** 2).sum(-1) / 1.3**2) + constant

    noise = np.diag(w.sum() * ALPHA / w[seen])
    cross = gram(new, X[seen])
    dense = 1.0 + constant - (cross * np.linalg.solve(gram(X[seen], X[seen]) + noise, cross.T).T).sum(1)
    np.testing.assert_allclose(model.system_.variance(new)[:, 0], dense, atol=1e-5)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_sums_of_all_landmarks_are_the_exact_system(data, fit_intercept):
    X, y, w, groups = data
    w, new = np.where(w > 0, w, 1.0), X[:5] + 0.3
    exact = embedding(fit_intercept=fit_intercept).fit(X, y, sample_weight=w).system_
    pair = (Landmarks(X), Landmarks(y[:, None]))
    summed = embedding(approximation=pair, fit_intercept=fit_intercept).fit(X, y, sample_weight=w).system_
    labels = torch.from_numpy(groups)
    np.testing.assert_allclose(summed.left_out(labels)[:, :18], exact.left_out(labels), atol=1e-6)
    np.testing.assert_allclose(summed.leverage()[:, :1], exact.leverage(), atol=1e-6)
    np.testing.assert_allclose(summed.variance(new)[:, :1], exact.variance(new), atol=1e-6)
    assert summed.residual() < 1e-9


def test_batches_keep_no_samples_to_leave_out(data):
    X, y, _, _ = data
    model = embedding(approximation=Nystroem(6)).partial_fit(X, y)
    for ask in ("left_out", "leverage"):
        with pytest.raises(ValueError, match="need the training samples, and a fit by batches or on Dask keeps none"):
            getattr(model.system_, ask)()


@pytest.mark.parametrize("approximation", [None, Nystroem(8)])
def test_a_stored_system_gives_the_same_answers(data, approximation):
    X, y, _, groups = data
    model = embedding("auto", approximation=approximation).fit(X, y, groups=groups)
    one, two = model.system_, pickle.loads(pickle.dumps(model)).system_
    np.testing.assert_allclose(one.coefficients(), two.coefficients(), atol=1e-9)
    np.testing.assert_allclose(one.left_out(), two.left_out(), atol=1e-9)
    np.testing.assert_allclose(two.function()(X), model.weights(X), atol=1e-9)


def test_a_stored_system_repairs_an_indefinite_kernel_of_vectors_as_the_fit_did():
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = ConditionalMeanEmbedding(Sigmoid(0.2, 0.2), Gaussian(1.0), alpha=1e-3, criterion=None)
    with pytest.warns(IndefiniteGramWarning):
        model.fit(X, np.sin(X[:, 0]))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.mean(X[:3]), model.mean(X[:3]), rtol=1e-9)
