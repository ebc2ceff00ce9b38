"""Beside a free constant predictions of nearly constant kernels keep their digits, and are the sums of their terms."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from representer import ConditionalMeanEmbedding, OperatorRidge
from representer.functions import Expansion
from representer.kernels import Gaussian, Linear
from representer.notices import NumericalWarning
from representer.operators import Decomposable, Dense

rng = np.random.default_rng(0)
X, Q = rng.normal(size=(30, 2)), rng.normal(size=(7, 2))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2])


@pytest.mark.parametrize("operator", [None, Dense([[1.0, 0.4], [0.4, 0.8]])])
@pytest.mark.filterwarnings("ignore::representer.notices.NumericalWarning")
def test_a_wide_kernel_predicts_what_the_exact_sum_of_its_terms_is(operator: Dense | None) -> None:
    model = OperatorRidge(Gaussian(100.0), operator=operator, alpha=1e-10, fit_intercept=True).fit(X, Y)
    f, A = model.function_, np.eye(2) if operator is None else np.array(operator.matrix)
    C = f.coefficients @ A
    assert np.abs(C).sum() > 1e6
    K = Gaussian(100.0)(Q, X).numpy()
    # The coefficients sum to zero but for rounding, which the first column takes out of an exact sum.
    exact = [[math.fsum((k - k[0]) * c) + b for c, b in zip(C.T, f.intercept, strict=True)] for k in K]
    size = np.abs(exact).max()
    np.testing.assert_allclose(model.predict(Q), exact, atol=1e-10 * size)
    why = model.explain(Q)
    np.testing.assert_allclose(why.contributions.sum(1) + why.baseline, model.predict(Q), atol=1e-12 * size)
    np.testing.assert_allclose(model.predict(X).mean(0), Y.mean(0), atol=1e-6)


@pytest.mark.filterwarnings("ignore::representer.notices.NumericalWarning")
def test_means_of_an_embedding_with_a_wide_kernel_are_those_of_the_ridge_regression():
    options = {"alpha": 1e-9, "fit_intercept": True}
    mean = ConditionalMeanEmbedding(Gaussian(30.0), **options).fit(X, Y[:, 0]).mean(Q)
    np.testing.assert_allclose(mean, OperatorRidge(Gaussian(30.0), **options).fit(X, Y[:, 0]).predict(Q), rtol=1e-5)


def test_coefficients_that_are_learned_have_the_gradient_of_the_whole_sum():
    anchors, C = torch.from_numpy(X), torch.zeros(30, 1, dtype=torch.float64)
    C[0], C[1] = 1.0, -1.0
    f = Expansion(Decomposable(Linear()), anchors, C.requires_grad_())
    f(torch.from_numpy(Q)).sum().backward()
    np.testing.assert_allclose(C.grad[:, 0], (Q @ X.T).sum(0))


@pytest.mark.parametrize("weights", [None, np.logspace(-3, 2, 30)])
def test_explanations_far_from_zero_sum_to_the_predictions(weights: np.ndarray | None) -> None:
    far, new = (2.0**20 + np.round(points * 2**20) / 2**20 for points in (X, Q))
    model = OperatorRidge(Linear(), alpha=0.03, fit_intercept=True).fit(far, 1e-3 * Y, sample_weight=weights)
    why, predictions = model.explain(new), model.predict(new)
    sums = why.contributions.sum(1) + why.baseline
    np.testing.assert_allclose(sums, predictions, atol=1e-7 * np.abs(predictions).max())


def test_explanations_whose_contributions_lose_the_digits_of_predictions_say_so() -> None:
    far = 2.0**20 + X
    model = OperatorRidge(Linear(), alpha=0.03, fit_intercept=False).fit(far, 1e-3 * Y)
    with pytest.warns(NumericalWarning, match="influence"):
        model.explain(2.0**20 + Q)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OperatorRidge(Linear(), alpha=0.03, fit_intercept=False).fit(X, Y).explain(Q)
