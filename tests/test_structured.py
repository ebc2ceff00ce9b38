"""StructuredPredictor: the dense system of equation (8), refits, explicit features, scikit-learn, bad input."""

from __future__ import annotations

import pickle

import naive_structured as ns
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from representer import StructuredPredictor
from representer.approximation import Nystroem
from representer.kernels import Callable, Delta, Gaussian, Linear, Polynomial, Pullback, Spectrum
from representer.linalg import IndefiniteGramWarning, NotPositiveDefiniteError
from representer.operators import (
    ConditionalCovariance,
    Covariance,
    Dense,
    Diagonal,
    Identity,
    PrincipalComponents,
)

ALPHA, EPSILON, COMPONENTS = 2e-3, 5e-2, 4
NO_GRAM = {
    "check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is repaired beyond recognition"
}
CHECKED = {
    "default": (StructuredPredictor(random_state=0), {}),
    "conditional covariance": (StructuredPredictor(operator="conditional_covariance", random_state=0), {}),
    "direct": (StructuredPredictor(output_kernel="linear", decoder="direct", random_state=0), {}),
    "precomputed": (StructuredPredictor("precomputed", random_state=0), NO_GRAM),
}


def _expected(estimator):
    return next(expected for model, expected in CHECKED.values() if repr(model) == repr(estimator))


@parametrize_with_checks([model for model, _ in CHECKED.values()], expected_failed_checks=_expected)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(20, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]]) + 0.2 * rng.normal(size=(20, 2))
    return X, Y, rng.normal(size=(6, 3)), rng.normal(size=(5, 2))


def fixed(operator, **options):
    given = {"epsilon": EPSILON, "n_components": COMPONENTS} | options
    return StructuredPredictor(Gaussian(1.3), Gaussian(0.9), operator, ALPHA, **given)


def grams(X, Y, new):
    return ns.gaussian(X, X, 1.3), ns.gaussian(Y, Y, 0.9), ns.gaussian(new, X, 1.3)


# -- the dense system -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", ["covariance", "conditional_covariance"])
def test_equation_8_by_the_dense_kronecker_system(data, operator):
    X, Y, new, candidates = data
    k, L, cross = grams(X, Y, new)
    w = ns.kronecker_weights(k, ns.operator_matrix(operator, k, L, EPSILON), ALPHA, cross)
    model = fixed(operator).fit(X, Y)
    np.testing.assert_allclose(model.decision_embedding(new).weights, w, atol=1e-8, rtol=0)
    costs = ns.costs(ns.gaussian(candidates, Y, 0.9), np.ones(5), w)
    np.testing.assert_allclose(model.score_candidates(new, candidates), -costs, atol=1e-8, rtol=0)
    best = ns.costs(L, np.ones(20), w).argmin(1)
    np.testing.assert_allclose(model.predict(new), Y[best])


def test_identity_and_kernel_pca_by_dense_inverses(data):
    X, Y, new, _ = data
    k, L, cross = grams(X, Y, new)
    w = cross @ np.linalg.inv(k + 20 * ALPHA * np.eye(20))
    np.testing.assert_allclose(fixed("identity").fit(X, Y).decision_embedding(new).weights, w, atol=1e-10)
    V = np.linalg.eigh(L)[1][:, -COMPONENTS:]
    np.testing.assert_allclose(
        fixed("kpca").fit(X, Y).decision_embedding(new).weights, w @ V @ V.T, atol=1e-9
    )


@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_every_form_on_explicit_features(data, rng, operator):
    """The generalised kernel trick of 8.1: no formula but the definition of the operator on a finite feature space."""
    X, Y, new, candidates = data
    k, _, cross = grams(X, Y, new)

    def phi(Y):  # of (yᵀy' + 1)²
        one = np.column_stack([Y, np.ones(len(Y))])
        return np.array([np.outer(y, y).ravel() for y in one])

    A = ns.feature_operator(operator, k, phi(Y), EPSILON, COMPONENTS)
    g = cross @ ns.ridge_in_features(k, phi(Y), A, ALPHA) @ A
    scores = 2 * g @ phi(candidates).T - (phi(candidates) ** 2).sum(1)
    options = {"epsilon": EPSILON, "n_components": COMPONENTS}
    model = StructuredPredictor(
        Gaussian(1.3), Polynomial(2, gamma=1.0, coef0=1.0), operator, ALPHA, **options
    )
    np.testing.assert_allclose(model.fit(X, Y).score_candidates(new, candidates), scores, atol=1e-8)


def test_generalised_kernel_trick(data):
    """⟨Tφ(y), φ(y')⟩ = [T l(y, ·)](y') for T the covariance, on both sides by numbers."""
    _, Y, _, candidates = data
    features = np.column_stack([Y, Y[:, :1] * Y[:, 1:]])
    new = np.column_stack([candidates, candidates[:, :1] * candidates[:, 1:]])
    T = features.T @ features / len(Y)
    left = new @ T @ new.T
    # T l(y, ·) = (1/n) Σ_i l(y, y_i) l(·, y_i), evaluated at y'
    cross = new @ features.T
    np.testing.assert_allclose(left, cross @ cross.T / len(Y), atol=1e-12)


@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_centred_outputs_by_explicit_features(data, operator):
    X, Y, new, _ = data
    k, _, cross = grams(X, Y, new)
    mean = Y.mean(0)
    A = ns.feature_operator(operator, k, Y - mean, EPSILON, 1)
    g = mean + cross @ ns.ridge_in_features(k, Y - mean, A, ALPHA) @ A
    model = fixed(operator, center=True, n_components=1).set_params(output_kernel="linear", decoder="direct")
    np.testing.assert_allclose(model.fit(X, Y).predict(new), g, atol=1e-9)
    wide = np.column_stack([Y, np.zeros((20, 40))])  # more features than samples: weights of the outputs
    np.testing.assert_allclose(model.fit(X, wide).predict(new)[:, :2], g, atol=1e-9)
    assert model.dual_coef_.shape == (20, 20)


# -- known special cases ----------------------------------------------------------------------------------------------
def test_identity_is_kernel_ridge_and_direct_gives_its_vectors(data):
    X, Y, new, _ = data
    expected = KernelRidge(kernel="rbf", gamma=1 / (2 * 1.3**2), alpha=20 * ALPHA).fit(X, Y).predict(new)
    model = StructuredPredictor(Gaussian(1.3), "linear", alpha=ALPHA, decoder="direct").fit(X, Y)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-10)
    np.testing.assert_allclose(model.score(new, expected), 1.0)
    one = StructuredPredictor(Gaussian(1.3), "linear", alpha=ALPHA, decoder="direct").fit(X, Y[:, 0])
    np.testing.assert_allclose(one.predict(new), expected[:, 0], atol=1e-10)


@pytest.mark.parametrize(
    ("value", "name", "options"),
    [
        (Identity(), "identity", {}),
        (Covariance(), "covariance", {}),
        (ConditionalCovariance(EPSILON), "conditional_covariance", {"epsilon": EPSILON}),
        (PrincipalComponents(COMPONENTS), "kpca", {"n_components": COMPONENTS}),
    ],
)
def test_operators_by_value_are_those_by_name(data, value, name, options):
    X, Y, new, _ = data
    named = StructuredPredictor(Gaussian(1.3), Gaussian(0.9), name, ALPHA, **options).fit(X, Y)
    given = StructuredPredictor(Gaussian(1.3), Gaussian(0.9), value, ALPHA).fit(X, Y)
    np.testing.assert_array_equal(given.dual_coef_, named.dual_coef_)


@pytest.mark.parametrize("width", [2, 30])  # fewer and more features than samples
def test_operators_on_the_features_of_vectors(data, rng, width):
    X, _, new, _ = data
    Y = rng.normal(size=(20, width))
    root = rng.normal(size=(width, width))
    for operator, A in (
        (Dense(root @ root.T), root @ root.T),
        (Diagonal(np.arange(1.0, width + 1.0)), np.diag(np.arange(1.0, width + 1.0))),
    ):
        k, _, cross = grams(X, Y, new)
        expected = cross @ ns.ridge_in_features(k, Y, A, ALPHA) @ A
        model = StructuredPredictor(Gaussian(1.3), "linear", operator, ALPHA, decoder="direct").fit(X, Y)
        np.testing.assert_allclose(model.predict(new), expected, atol=1e-8 * np.abs(expected).max())
        np.testing.assert_allclose(
            model.score_candidates(new, Y), 2 * expected @ Y.T - (Y**2).sum(1), atol=1e-7 * np.abs(expected).max()
        )


# -- leave-one-out ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_leave_one_out_is_the_error_of_refits(data, operator, linear):
    X, Y, _, _ = data
    k = ns.gaussian(X, X, 1.3)
    features = Y if linear else np.linalg.cholesky(ns.gaussian(Y, Y, 0.9) + 1e-13 * np.eye(20))
    components = 1 if linear else COMPONENTS
    A = ns.feature_operator(operator, k, features, EPSILON, components)
    model = fixed(operator, n_components=components).set_params(alpha=[ALPHA])
    model.set_params(output_kernel="linear" if linear else Gaussian(0.9)).fit(X, Y)
    np.testing.assert_allclose(model.criterion_value_, ns.loo_error(k, features, A, ALPHA), rtol=1e-7)
    assert model.alpha_ == ALPHA


def test_leave_one_out_of_inputs_with_few_features(rng):
    X, Y = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    for operator in ("identity", "covariance", "conditional_covariance"):
        A = ns.feature_operator(operator, X @ X.T, Y, EPSILON)
        model = StructuredPredictor("linear", "linear", operator, [ALPHA], epsilon=EPSILON).fit(X, Y)
        np.testing.assert_allclose(model.criterion_value_, ns.loo_error(X @ X.T, Y, A, ALPHA), rtol=1e-9)


def test_automatic_numbers_are_the_best_of_their_neighbours(rng):
    X = rng.normal(size=(40, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + 0.3 * rng.normal(size=(40, 2))

    def error(**numbers):
        options = {"epsilon": best.epsilon_ or 1.0, "n_components": best.n_components_ or 1} | numbers
        alpha = options.pop("alpha", best.alpha_)
        return StructuredPredictor(operator=operator, alpha=[alpha], **options).fit(X, Y).criterion_value_

    for operator in ("identity", "kpca", "covariance", "conditional_covariance"):
        best = StructuredPredictor(operator=operator).fit(X, Y)
        np.testing.assert_allclose(best.criterion_value_, error(), rtol=1e-10)
        for factor in (0.5, 2.0):
            assert error(alpha=factor * best.alpha_) > best.criterion_value_
    best = StructuredPredictor(operator="kpca").fit(X, Y)
    operator = "kpca"
    for other in (best.n_components_ - 1, best.n_components_ + 1):
        assert error(n_components=other) > best.criterion_value_
    operator, best = "conditional_covariance", StructuredPredictor(operator="conditional_covariance").fit(X, Y)
    assert all(error(epsilon=epsilon) >= best.criterion_value_ for epsilon in (1e-4, 1e-3, 1e-2, 1e-1, 1.0))


# -- low rank ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_low_rank_at_full_rank_is_exact(data, operator, center):
    X, Y, new, candidates = data
    exact = fixed(operator, center=center).fit(X, Y)
    for sampling in ("uniform", "pivots"):
        model = clone(exact).set_params(approximation=Nystroem(20, sampling=sampling)).fit(X, Y)
        np.testing.assert_allclose(
            model.score_candidates(new, candidates), exact.score_candidates(new, candidates), atol=1e-6
        )
        np.testing.assert_allclose(model.predict(new), exact.predict(new))
    chosen = [
        clone(exact).set_params(alpha="auto", approximation=a).fit(X, Y) for a in (None, Nystroem(20))
    ]
    np.testing.assert_allclose(chosen[0].criterion_value_, chosen[1].criterion_value_, rtol=1e-5)


def test_low_rank_by_landmarks_is_the_fit_with_their_kernels(data):
    """k and l replaced by k(x, Z) k(Z, Z)⁻¹ k(Z, x'), and nothing else."""
    X, Y, new, candidates = data
    pair = (Nystroem(8, sampling="pivots"), Nystroem(6, sampling="pivots"))
    model = fixed("conditional_covariance", approximation=pair).fit(X, Y)
    Z, T = model.landmarks_, model.output_landmarks_
    assert Z.shape == (8, 3) and T.shape == (6, 2) and model.dual_coef_.shape == (8, 6)

    def approximate(one, two, anchors, lengthscale):
        inner = np.linalg.inv(ns.gaussian(anchors, anchors, lengthscale))
        return ns.gaussian(one, anchors, lengthscale) @ inner @ ns.gaussian(anchors, two, lengthscale)

    k, L = approximate(X, X, Z, 1.3), approximate(Y, Y, T, 0.9)
    T_matrix = ns.operator_matrix("conditional_covariance", k, L, EPSILON)
    w = ns.kronecker_weights(k, T_matrix, ALPHA, approximate(new, X, Z, 1.3))
    expected = -ns.costs(approximate(candidates, Y, T, 0.9), np.ones(5), w)
    np.testing.assert_allclose(model.score_candidates(new, candidates), expected, atol=1e-8)


def test_landmarks_that_are_equal_count_once(rng):
    X = rng.normal(size=(60, 2))
    y = np.array(["a", "b", "c"])[rng.integers(3, size=60)]
    model = StructuredPredictor("rbf", "delta", alpha=1e-2, approximation=Nystroem(30)).fit(X, y)
    assert sorted(model.output_landmarks_) == ["a", "b", "c"]
    exact = StructuredPredictor("rbf", "delta", alpha=1e-2).fit(X, y)
    assert np.mean(np.array(model.predict(X)) == np.array(exact.predict(X))) > 0.9
