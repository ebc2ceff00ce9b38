"""The problem of structured outputs: fits without folds against cloned estimators, gradients against differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from representer import StructuredPredictor
from representer.approximation import Nystroem
from representer.estimators.validation import seed_of
from representer.kernels import Gaussian, Spectrum
from representer.optimize.search import SearchSettings
from representer.problems.structured import StructuredProblem

SETTINGS = SearchSettings("loo", max_iter=15, tol=1e-5, seed=seed_of(0))


@pytest.fixture
def data(rng):
    X = rng.normal(size=(30, 2))
    return X, np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * rng.normal(size=(30, 2))


def problem_of(model: StructuredPredictor, X: Any, y: Any) -> StructuredProblem:
    """The problem that a predictor solves."""
    fitted = clone(model).fit(X, y)
    kernel, output = (getattr(model, name).__sklearn_clone__().numbers() for name in model.kernel_arguments)
    seed = seed_of(model.random_state)
    pairs = fitted._read(kernel, output, X, y, None, None)
    return StructuredProblem(fitted._model(kernel, output, pairs.inputs, seed), pairs, None, fitted._task(seed))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"operator": "kpca", "fit_intercept": True},
        {"operator": "conditional_covariance"},
        {"kernel": Gaussian("auto"), "alpha": 1e-2},
        {"approximation": Nystroem(0.5)},
        {"criterion": "validation", "cv": 3, "alpha": [1e-3, 1e-1]},
    ],
)
def test_held_out_repeats_the_fit_of_an_estimator(data, options):
    X, Y = data
    options = {"kernel": Gaussian("median"), "output_kernel": Gaussian("median"), "max_iter": 15, **options}
    model = StructuredPredictor(random_state=0, **options)
    test = np.arange(0, 30, 4)
    train = np.setdiff1d(np.arange(30), test)
    (found,) = problem_of(model, X, Y).held_out([(train, test)], SETTINGS)
    expected = clone(model).fit(X[train], Y[train]).decision_embedding(X[test])
    new = Y[:7]
    np.testing.assert_allclose(found(new), expected(new), atol=1e-6)


def test_held_out_words_and_gram_matrices(data):
    X, Y = data
    words = ["ab" if value < 0 else "abba" for value in Y[:, 0]]
    train, test = np.arange(20), np.arange(20, 30)
    model = StructuredPredictor(Gaussian(1.0), Spectrum(2), alpha=1e-2)
    (found,) = problem_of(model, X, words).held_out([(train, test)], SETTINGS)
    expected = clone(model).fit(X[train], words[:20]).decision_embedding(X[test])
    np.testing.assert_allclose(found(words), expected(words), atol=1e-10)


def test_the_gradient_of_the_criterion(data):
    X, Y = data
    problem = problem_of(StructuredPredictor(Gaussian("ard"), Gaussian(1.0)), X, Y)
    assert problem.free == ["lengthscale"]
    start = problem._search.start("loo")
    for rows in (None, torch.arange(25)):
        _, gradient = problem.value_and_gradient(start[None], rows)
        for j in range(len(start)):
            step = torch.zeros_like(start)
            step[j] = 1e-5
            values, _ = problem.value_and_gradient(torch.stack([start - step, start + step]), rows)
            assert float(gradient[0, j]) == pytest.approx(float(values[1] - values[0]) / 2e-5, rel=1e-4, abs=1e-7)


def test_a_choice_without_its_system_is_solved(data):
    X, Y = data
    problem = problem_of(StructuredPredictor(Gaussian(1.0), Gaussian(1.0)), X, Y)
    choice = problem.choose(SETTINGS)
    (one, _), (two, system) = problem.solve(choice), problem.solve(replace(choice, system=None))
    np.testing.assert_allclose(one(X), two(X), atol=1e-10)
    assert system.residual() < 1e-9
