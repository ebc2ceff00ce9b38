"""StructuredPredictor: the dense system of equation (8), refits, explicit features, scikit-learn, bad input."""

from __future__ import annotations

import naive_structured as ns
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

from representer import StructuredPredictor
from representer.kernels import Gaussian, Polynomial

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
    X, Y, new, candidates = data
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
