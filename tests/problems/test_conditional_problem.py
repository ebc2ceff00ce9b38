"""The problem of conditional embeddings: fits without folds against cloned estimators, gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from representer import ConditionalMeanEmbedding
from representer.approximation import Nystroem
from representer.estimators.validation import seed_of
from representer.kernels import Gaussian, Spectrum
from representer.problems.conditional_embedding import ConditionalProblem
from representer.problems.embedding import EmbeddingSettings


@pytest.fixture
def data(rng):
    X = rng.normal(size=(30, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=30)


def problem_of(model: ConditionalMeanEmbedding, X: Any, y: Any) -> ConditionalProblem:
    """The problem that an estimator solves."""
    fitted = clone(model).fit(X, y)
    given = fitted._model(fitted._compared_kernels(None)[0], fitted._given_output_kernel())
    samples, targets, flat = fitted._samples(given, X, y, None, None, reset=True)
    options = {"flat": flat, "seed": seed_of(model.random_state), "inputs": fitted.X_fit_}
    return ConditionalProblem(samples, targets, given, fitted._representation(), **options)


def settings(model: ConditionalMeanEmbedding) -> EmbeddingSettings:
    shared = (model.criterion, model.max_iter, model.tol, model.n_restarts, seed_of(model.random_state))
    return EmbeddingSettings(*shared, shrinkage=model.shrinkage)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel": Gaussian("median"), "fit_intercept": False},
        {"criterion": "validation"},
        {"criterion": None},
        {"approximation": Nystroem(0.5), "kernel": Gaussian(1.0)},
    ],
)
def test_held_out_repeats_the_fit_of_an_estimator(data, options):
    X, y = data
    model = ConditionalMeanEmbedding(**{"kernel": "rbf", "output_kernel": "rbf", "random_state": 0, **options})
    test = np.arange(0, 30, 4)
    train = np.setdiff1d(np.arange(30), test)
    (found,) = problem_of(model, X, y).held_out([(train, test)], settings(model))
    expected = clone(model).fit(X[train], y[train]).embedding(X[test])
    new = np.linspace(-1, 1, 7)[:, None]
    np.testing.assert_allclose(found(new), expected(new), atol=1e-7)


def test_held_out_words_and_gram_matrices(data):
    X, y = data
    words = ["ab" if value < 0 else "abba" for value in y]
    train, test = np.arange(20), np.arange(20, 30)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1))
    for kernel, inputs in ((Gaussian(1.0), X), ("precomputed", K)):
        model = ConditionalMeanEmbedding(kernel, Spectrum(2), 1e-2)
        (found,) = problem_of(model, inputs, words).held_out([(train, test)], settings(model))
        expected = ConditionalMeanEmbedding(Gaussian(1.0), Spectrum(2), 1e-2).fit(X[train], words[:20])
        np.testing.assert_allclose(found(words), expected.embedding(X[test])(words), atol=1e-10)


@pytest.mark.parametrize("criterion", ["loo", "validation"])
def test_the_gradient_of_the_criterion(data, criterion):
    X, y = data
    problem = problem_of(ConditionalMeanEmbedding("rbf", criterion=criterion, random_state=0), X, y)
    assert problem.free == ["lengthscale"]
    start = torch.tensor([0.1, -0.2, -3.0], dtype=torch.float64)
    for rows in (None, torch.arange(25)):
        _, gradient = problem.value_and_gradient(start[None], rows)
        for j in range(len(start)):
            step = torch.zeros_like(start)
            step[j] = 1e-5
            values, _ = problem.value_and_gradient(torch.stack([start - step, start + step]), rows)
            assert float(gradient[0, j]) == pytest.approx(float(values[1] - values[0]) / 2e-5, rel=1e-4, abs=1e-7)
