"""StructuredPredictor: the dense system of equation (8), refits, explicit features, scikit-learn, bad input."""

from __future__ import annotations

import itertools
import pickle

import naive_structured as ns
import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tiers import tiers

from representer import StructuredPredictor
from representer.approximation import Nystroem
from representer.kernels import (
    Callable,
    Columns,
    Delta,
    Gaussian,
    Linear,
    Polynomial,
    Pullback,
    Spectrum,
    Tanimoto,
)
from representer.linalg import IndefiniteGramWarning, NotPositiveDefiniteError
from representer.operators import (
    ConditionalCovariance,
    Covariance,
    Dense,
    Diagonal,
    Identity,
    PrincipalComponents,
)
from representer.preimage import Candidates, Decoder, Direct, LabelSet

ALPHA, EPSILON, COMPONENTS = 2e-3, 5e-2, 4
NO_GRAM = {"check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is repaired beyond recognition"}
CHECKED = {
    "default": (StructuredPredictor("rbf", random_state=0), {}),
    "direct": (
        StructuredPredictor("rbf", "linear", "conditional_covariance", decoder="direct", random_state=0),
        {},
    ),
    "precomputed": (StructuredPredictor("precomputed", random_state=0), NO_GRAM),
}


@contract(CHECKED, quick=["default"])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(20, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]]) + 0.2 * rng.normal(size=(20, 2))
    return X, Y, rng.normal(size=(6, 3)), rng.normal(size=(5, 2))


def named(operator, epsilon=EPSILON):
    """The value that a name means, with a number for epsilon."""
    values = {"identity": None, "conditional_covariance": ConditionalCovariance(epsilon)}
    return values.get(operator, operator) if isinstance(operator, str) else operator


def fixed(operator, **options):
    given = {"n_components": COMPONENTS} | options
    if isinstance(operator, PrincipalComponents):
        given.pop("n_components")
    return StructuredPredictor(Gaussian(1.3), Gaussian(0.9), named(operator), ALPHA, **given)


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
    np.testing.assert_allclose(fixed("kpca").fit(X, Y).decision_embedding(new).weights, w @ V @ V.T, atol=1e-9)


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
    model = fixed(operator).set_params(output_kernel=Polynomial(2, gamma=1.0, coef0=1.0))
    np.testing.assert_allclose(model.fit(X, Y).score_candidates(new, candidates), scores, atol=1e-8)


def test_generalised_kernel_trick(data):
    """⟨Tφ(y), φ(y')⟩ = [T l(y, ·)](y') for T the covariance: the joint kernel of a fit, and both sides by numbers."""
    X, Y, new, candidates = data

    def phi(Y):  # of (yᵀy' + 1)²
        one = np.column_stack([Y, np.ones(len(Y))])
        return np.array([np.outer(y, y).ravel() for y in one])

    T = phi(Y).T @ phi(Y) / len(Y)
    left = phi(candidates) @ T @ phi(candidates).T
    # T l(y, ·) = (1/n) Σ_i l(y, y_i) l(·, y_i), evaluated at y'
    cross = (candidates @ Y.T + 1) ** 2
    np.testing.assert_allclose(left, cross @ cross.T / len(Y), atol=1e-12)
    model = fixed("covariance").set_params(output_kernel=Polynomial(2, gamma=1.0, coef0=1.0)).fit(X, Y)
    joint = model.joint_kernel(new[:5], candidates, new[:5], candidates)
    np.testing.assert_allclose(joint, ns.gaussian(new[:5], new[:5], 1.3) * left, atol=1e-8)


@pytest.mark.parametrize("operator", ["covariance", "conditional_covariance"])
def test_scores_of_pairs_are_an_expansion_in_the_joint_kernel(data, operator):
    """⟨f(x), φ(y)⟩ = Σ_ij α_ij J((x_i, y_j), (x, y)) with α from (13): the pre-image of a joint kernel is ours."""
    X, Y, new, candidates = data
    k, L, _ = grams(X, Y, new)
    T = ns.operator_matrix(operator, k, L, EPSILON)
    alpha = np.linalg.solve(np.kron(k, T) / 20 + 20 * ALPHA * np.eye(400), np.eye(20).ravel())
    model = fixed(operator).fit(X, Y)
    inputs, outputs = np.repeat(X, 20, axis=0), np.tile(Y, (20, 1))
    pairs = np.repeat(new, 5, axis=0), np.tile(candidates, (6, 1))
    inner = (alpha @ model.joint_kernel(inputs, outputs, *pairs)).reshape(6, 5)
    np.testing.assert_allclose(model.score_candidates(new, candidates), 2 * inner - 1, atol=1e-8)


@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_centred_outputs_by_explicit_features(data, operator):
    X, Y, new, _ = data
    k, _, cross = grams(X, Y, new)
    mean = Y.mean(0)
    A = ns.feature_operator(operator, k, Y - mean, EPSILON, 1)
    g = mean + cross @ ns.ridge_in_features(k, Y - mean, A, ALPHA) @ A
    model = fixed(operator, fit_intercept=True, n_components=1).set_params(output_kernel="linear", decoder="direct")
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
        (Identity(), None, {}),
        (Covariance(), "covariance", {}),
        (ConditionalCovariance("auto"), "conditional_covariance", {}),
        (PrincipalComponents(COMPONENTS), "kpca", {"n_components": COMPONENTS}),
    ],
)
def test_operators_by_value_are_those_by_name(data, value, name, options):
    X, Y, _, _ = data
    named = StructuredPredictor(Gaussian(1.3), Gaussian(0.9), name, ALPHA, **options).fit(X, Y)
    given = StructuredPredictor(Gaussian(1.3), Gaussian(0.9), value, ALPHA).fit(X, Y)
    np.testing.assert_array_equal(given.dual_coef_, named.dual_coef_)
    assert given.n_components_ == options.get("n_components") and given.epsilon_ == named.epsilon_
    assert (given.epsilon_ is None) == (name != "conditional_covariance")


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
            model.score_candidates(new, Y),
            2 * expected @ Y.T - (Y**2).sum(1),
            atol=1e-7 * np.abs(expected).max(),
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
        model = StructuredPredictor("linear", "linear", named(operator), [ALPHA]).fit(X, Y)
        np.testing.assert_allclose(model.criterion_value_, ns.loo_error(X @ X.T, Y, A, ALPHA), rtol=1e-9)


def test_automatic_numbers_are_the_best_of_their_neighbours(rng):
    X = rng.normal(size=(40, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + 0.3 * rng.normal(size=(40, 2))

    def error(**numbers):
        options = {"epsilon": best.epsilon_ or 1.0, "n_components": best.n_components_ or 1} | numbers
        alpha, epsilon = options.pop("alpha", best.alpha_), options.pop("epsilon")
        model = StructuredPredictor("rbf", operator=named(operator, epsilon), alpha=[alpha], **options)
        return model.fit(X, Y).criterion_value_

    for operator in ("identity", "kpca", "covariance", "conditional_covariance"):
        best = StructuredPredictor("rbf", operator=None if operator == "identity" else operator).fit(X, Y)
        np.testing.assert_allclose(best.criterion_value_, error(), rtol=1e-10)
        for factor in (0.5, 2.0):
            assert error(alpha=factor * best.alpha_) > best.criterion_value_
    best = StructuredPredictor("rbf", operator="kpca").fit(X, Y)
    operator = "kpca"
    for other in (best.n_components_ - 1, best.n_components_ + 1):
        assert error(n_components=other) > best.criterion_value_
    operator, best = (
        "conditional_covariance",
        StructuredPredictor("rbf", operator="conditional_covariance").fit(X, Y),
    )
    assert all(error(epsilon=epsilon) >= best.criterion_value_ for epsilon in (1e-4, 1e-3, 1e-2, 1e-1, 1.0))


# -- low rank ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_low_rank_at_full_rank_is_exact(data, operator, fit_intercept):
    X, Y, new, candidates = data
    exact = fixed(operator, fit_intercept=fit_intercept).fit(X, Y)
    for sampling in ("uniform", "pivots"):
        model = clone(exact).set_params(approximation=Nystroem(20, sampling=sampling)).fit(X, Y)
        np.testing.assert_allclose(
            model.score_candidates(new, candidates), exact.score_candidates(new, candidates), atol=1e-6
        )
        np.testing.assert_allclose(model.predict(new), exact.predict(new))
    chosen = [clone(exact).set_params(alpha="auto", approximation=a).fit(X, Y) for a in (None, Nystroem(20))]
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


@pytest.mark.parametrize("operator", ["covariance", "conditional_covariance"])
def test_exact_inputs_with_sketched_outputs(data, operator):
    """l replaced by that of the landmarks of outputs, k as it is."""
    X, Y, new, candidates = data
    model = fixed(operator, approximation=(None, Nystroem(6, sampling="pivots"))).fit(X, Y)
    T = model.output_landmarks_
    assert T.shape == (6, 2)

    def approximate(one, two):
        return ns.gaussian(one, T, 0.9) @ np.linalg.inv(ns.gaussian(T, T, 0.9)) @ ns.gaussian(T, two, 0.9)

    k = ns.gaussian(X, X, 1.3)
    T_matrix = ns.operator_matrix(operator, k, approximate(Y, Y), EPSILON)
    w = ns.kronecker_weights(k, T_matrix, ALPHA, ns.gaussian(new, X, 1.3))
    expected = -ns.costs(approximate(candidates, Y), np.ones(5), w)
    np.testing.assert_allclose(model.score_candidates(new, candidates), expected, atol=1e-6)


def test_low_rank_with_learned_kernels_and_folds(data):
    """Kernels are learned on an exact subset, folds have as many landmarks as they can."""
    X, Y, new, _ = data
    options = {"approximation": Nystroem(20), "random_state": 0}
    assert StructuredPredictor(Gaussian("auto"), **options).fit(X, Y).predict(new).shape == (6, 2)
    folds = StructuredPredictor("rbf", criterion="validation", cv=4, **options).fit(X, Y)
    exact = StructuredPredictor("rbf", criterion="validation", cv=4, random_state=0).fit(X, Y)
    np.testing.assert_allclose(folds.criterion_value_, exact.criterion_value_, rtol=1e-6)


def test_many_samples_choose_their_numbers_on_a_subset(data, monkeypatch):
    X, Y, new, _ = data
    monkeypatch.setattr("representer.samples.rows.STRUCTURED_ROWS", 12)
    for operator in (None, "kpca", "conditional_covariance"):
        for kernel in ("rbf", "precomputed"):
            model = StructuredPredictor(kernel, Gaussian(0.9), operator, random_state=0)
            model.fit(X if kernel == "rbf" else ns.gaussian(X, X, 1.3), Y)
            assert model.dual_coef_.shape == (20, 20) and model.criterion_value_ > 0
    wide = np.tile(Y, (1, 8))  # fewer features than samples, but more than in the subset
    linear = StructuredPredictor("rbf", "linear", decoder="direct", random_state=0).fit(X, wide)
    assert linear.dual_coef_.shape == (20, 16) and linear.predict(new).shape == (6, 16)
    L = ns.gaussian(Y, Y, 0.9)
    assert StructuredPredictor("rbf", "precomputed", random_state=0).fit(X, L).predict(new).max() < 20


def test_landmarks_that_are_equal_count_once(rng):
    X = rng.normal(size=(60, 2))
    y = np.array(["a", "b", "c"])[rng.integers(3, size=60)]
    model = StructuredPredictor("rbf", "delta", alpha=1e-2, approximation=Nystroem(30)).fit(X, y)
    assert sorted(model.output_landmarks_) == ["a", "b", "c"]
    exact = StructuredPredictor("rbf", "delta", alpha=1e-2).fit(X, y)
    assert np.mean(np.array(model.predict(X)) == np.array(exact.predict(X))) > 0.9


# -- inputs without outputs -------------------------------------------------------------------------------------------
def test_inputs_without_outputs_enter_the_conditional_covariance(rng):
    """C_XX of all inputs, C_XY and C_YY of those with an output, on explicit features."""
    X = rng.normal(size=(30, 3))
    Y = np.column_stack([X[:, 0] + 0.3 * rng.normal(size=30), rng.normal(size=30), X[:, 1]])
    known = np.arange(30) % 3 > 0
    gaps = np.where(known[:, None], Y, np.nan)
    new = rng.normal(size=(4, 3))
    n, N = known.sum(), 30
    C_xx = X.T @ X / N
    C_yx, C_yy = Y[known].T @ X[known] / n, Y[known].T @ Y[known] / n
    A = C_yy - C_yx @ np.linalg.solve(C_xx + EPSILON * np.eye(3), C_yx.T)
    values, vectors = np.linalg.eigh(A)
    assert values[-1] > 0
    A = (vectors * np.maximum(values, 0.0)) @ vectors.T
    k = X[known] @ X[known].T
    expected = new @ X[known].T @ ns.ridge_in_features(k, Y[known], A, ALPHA) @ A
    operator, options = named("conditional_covariance"), {"decoder": "direct"}
    model = StructuredPredictor("linear", "linear", operator, ALPHA, **options).fit(X, gaps)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-9)
    assert len(model.Y_fit_) == n
    gram = StructuredPredictor("precomputed", "linear", operator, ALPHA, **options)
    np.testing.assert_allclose(gram.fit(X @ X.T, gaps).predict(new @ X.T), expected, atol=1e-9)
    wide = np.column_stack([gaps, np.where(known[:, None], 0.0, np.nan) * np.ones((30, 40))])
    np.testing.assert_allclose(model.fit(X, wide).predict(new)[:, :3], expected, atol=1e-9)
    low = clone(model).set_params(approximation=Nystroem(30), kernel=Gaussian(2.0))
    exact = clone(model).set_params(kernel=Gaussian(2.0))
    np.testing.assert_allclose(low.fit(X, gaps).predict(new), exact.fit(X, gaps).predict(new), atol=1e-5)
    assert np.abs(exact.predict(new) - clone(exact).fit(X[known], Y[known]).predict(new)).max() > 1e-4


def test_objects_without_outputs(rng):
    X = rng.normal(size=(12, 2))
    y = ["ab", None, "ba", "abb", None, "b"] * 2
    model = StructuredPredictor("rbf", Spectrum(2), ConditionalCovariance(0.1), 0.01).fit(X, y)
    assert model.Y_fit_ == ["ab", "ba", "abb", "b"] * 2
    assert set(model.predict(X)) <= set(model.Y_fit_)
    with pytest.raises(ValueError, match=r"4 inputs have no output.*operator='conditional_covariance' only"):
        clone(model).set_params(operator="covariance").fit(X, y)
    with pytest.raises(ValueError, match="None of the 12 samples has an output"):
        model.fit(X, [None] * 12)
    L = np.full((12, 12), np.nan)
    known = np.flatnonzero([item is not None for item in y])
    L[np.ix_(known, known)] = Spectrum(2)([y[i] for i in known])
    numbers = clone(model).set_params(output_kernel="precomputed").fit(X, L).predict(X)
    assert [model.Y_fit_[i] for i in numbers] == model.predict(X)


# -- validation -------------------------------------------------------------------------------------------------------
def test_validation_minimises_the_task_loss_by_refits(rng):
    X = rng.normal(size=(40, 2))
    words = np.array(["aab", "abb", "bba"])
    y = words[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]

    def wrong(true, predicted):
        return np.mean(np.array(true) != np.array(predicted))

    alphas = [1e-4, 1e-2, 1.0, 100.0]
    folds = [(np.flatnonzero(np.arange(40) % 4 != i), np.flatnonzero(np.arange(40) % 4 == i)) for i in range(4)]
    for operator in ("identity", "conditional_covariance"):
        options = {"operator": named(operator, 0.1)}
        model = StructuredPredictor("rbf", Spectrum(2), criterion="validation", task_loss=wrong, cv=folds, **options)
        model.set_params(alpha=alphas).fit(X, y)
        losses = []
        for alpha in alphas:
            refit = StructuredPredictor(model.kernel_, Spectrum(2), alpha=alpha, **options)
            losses.append(np.mean([wrong(y[b], refit.fit(X[a], y[a]).predict(X[b])) for a, b in folds]))
        np.testing.assert_allclose(model.criterion_value_, min(losses))
        assert losses[alphas.index(model.alpha_)] == min(losses)
        assert len(set(losses)) > 1


@pytest.mark.parametrize("operator", ["kpca", "covariance", "conditional_covariance"])
def test_validation_computes_the_operator_of_each_fold_anew(operator, rng):
    """Of few samples, where leave-one-out with the operator of all is another number."""
    X, Y = rng.normal(size=(9, 2)), rng.normal(size=(9, 3))
    options = {"output_kernel": "linear", "decoder": "direct", "operator": operator}
    grid = {"alpha": [1e-3, 1e-1], "criterion": "validation", "cv": 9}
    model = StructuredPredictor(Gaussian(1.0), **options, **grid).fit(X, Y)
    chosen = {"alpha": model.alpha_, "operator": model.operator_}
    for numbers in (chosen, {**chosen, "alpha": 1e-3}, {**chosen, "alpha": 1e-1}):
        refit = StructuredPredictor(Gaussian(1.0), **{**options, **numbers})
        rest = [np.flatnonzero(np.arange(9) != i) for i in range(9)]
        errors = [((Y[i] - refit.fit(X[r], Y[r]).predict(X[i : i + 1])[0]) ** 2).sum() for i, r in enumerate(rest)]
        if numbers is chosen:
            np.testing.assert_allclose(model.criterion_value_, np.mean(errors), rtol=1e-8)
        assert np.mean(errors) >= model.criterion_value_ * (1 - 1e-8)
    fixed_operator = StructuredPredictor(Gaussian(1.0), **{**options, **chosen, "alpha": [model.alpha_]}).fit(X, Y)
    assert abs(fixed_operator.criterion_value_ / model.criterion_value_ - 1) > 1e-3


def test_validation_by_the_distance_in_the_rkhs(data):
    X, Y, _, _ = data
    model = StructuredPredictor("rbf", criterion="validation", operator="kpca", cv=3, random_state=0).fit(X, Y)
    assert 0 < model.criterion_value_ < 2 and model.n_components_ >= 1
    gram = StructuredPredictor("rbf", output_kernel="precomputed", criterion="validation", cv=3, random_state=0)
    by_numbers = gram.fit(X, Gaussian("median")(Y).numpy())
    by_vectors = StructuredPredictor("rbf", criterion="validation", cv=3, random_state=0).fit(X, Y)
    np.testing.assert_allclose(by_numbers.criterion_value_, by_vectors.criterion_value_)
    assert by_numbers.alpha_ == by_vectors.alpha_


def test_an_output_kernel_is_chosen_by_the_task_only(rng):
    """A narrow output kernel is needed to tell outputs apart by candidates: the task says so."""
    X = rng.uniform(-2, 2, size=(60, 1))
    Y = np.sign(rng.normal(size=(60, 1))) * np.abs(X) + 0.05 * rng.normal(size=(60, 1))  # two branches

    def distance(true, predicted):
        return np.abs(np.abs(true) - np.abs(predicted))

    options = {"criterion": "validation", "alpha": [1e-3, 1e-2], "cv": 3, "random_state": 0}
    model = StructuredPredictor("rbf", Gaussian("auto"), task_loss=distance, **options).fit(X, Y)
    heuristic = Gaussian("auto").resolve(Y).lengthscale
    factors = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    assert np.isclose(model.output_kernel_.lengthscale / heuristic, factors).any()
    losses = [
        StructuredPredictor("rbf", Gaussian(heuristic * f), task_loss=distance, **options).fit(X, Y).criterion_value_
        for f in factors
    ]
    np.testing.assert_allclose(model.criterion_value_, min(losses))
    assert model.output_kernel_.lengthscale < heuristic and max(losses) > 2 * min(losses)
    assert model.predict(X).shape == (60, 1)
    with pytest.raises(ValueError, match="cannot be chosen by the distance in its own RKHS"):
        StructuredPredictor("rbf", Gaussian("auto"), criterion="validation").fit(X, Y)
    assert StructuredPredictor("rbf", Gaussian("auto")).fit(X, Y).output_kernel_.lengthscale == heuristic


# -- learned kernels --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_the_input_kernel_is_learned_by_leave_one_out(rng, operator):
    X = rng.normal(size=(50, 3))
    Y = np.column_stack([np.sin(3 * X[:, 0]), np.cos(3 * X[:, 0])]) + 0.05 * rng.normal(size=(50, 2))
    operator = None if operator == "identity" else operator
    plain_model = StructuredPredictor("rbf", operator=operator, output_kernel=Gaussian(1.0)).fit(X, Y)
    learned = StructuredPredictor(Gaussian("ard"), Gaussian(1.0), operator).fit(X, Y)
    assert learned.criterion_value_ < 0.5 * plain_model.criterion_value_
    assert learned.kernel_.lengthscale[0] < 0.3 * learned.kernel_.lengthscale[1:].min()
    assert learned.n_iter_ > 1 and learned.history_[-1].value < learned.history_[0].value
    new = rng.normal(size=(50, 3))
    true = np.column_stack([np.sin(3 * new[:, 0]), np.cos(3 * new[:, 0])])
    assert learned.score(new, true) > plain_model.score(new, true)


# -- held-out predictions for decoders --------------------------------------------------------------------------------
class Recording(Decoder):
    """Keeps what it is calibrated with."""

    def calibrate(self, embedding, Y):
        new = Recording()
        new.seen = embedding, Y
        return new

    def decode(self, embedding, X=None):
        return [0] * len(embedding)


@pytest.mark.parametrize(
    ("operator", "fit_intercept"),
    tiers(
        itertools.product(["identity", "kpca", "covariance", "conditional_covariance"], [False, True]),
        lambda case: case[1] == (case[0] in ("identity", "covariance")),
    ),
)
def test_decoders_are_calibrated_on_leave_one_out_predictions(data, operator, fit_intercept):
    X, Y, _, _ = data
    k, components = ns.gaussian(X, X, 1.3), 2
    wide = np.column_stack([Y, Y[:, :1] * Y[:, 1:], np.zeros((20, 22))])  # weights of outputs, not of axes
    for outputs, approximation in ((wide, None), (wide[:, :3], None), (wide, Nystroem(20))):
        mean = outputs.mean(0) if fit_intercept else 0.0
        features = outputs - mean
        A = ns.feature_operator(operator, k, features, EPSILON, components)
        expected = []
        for i in range(20):
            rows = np.delete(np.arange(20), i)
            expected.append(mean + k[i, rows] @ ns.ridge_in_features(k, features, A, ALPHA, rows) @ A)
        options = {
            "n_components": components,
            "fit_intercept": fit_intercept,
            "decoder": Recording(),
            "approximation": approximation,
        }
        model = fixed(operator, **options).set_params(output_kernel="linear").fit(X, outputs)
        embedding, seen = model.decoder_.seen
        np.testing.assert_allclose(Direct().decode(embedding), expected, atol=1e-6)
        np.testing.assert_array_equal(seen, outputs)


# -- any data ---------------------------------------------------------------------------------------------------------
def test_precomputed_outputs_are_numbers_of_candidates(data):
    X, Y, new, candidates = data
    L = ns.gaussian(Y, Y, 0.9)
    exact = fixed("covariance").fit(X, Y)
    model = fixed("covariance").set_params(output_kernel="precomputed").fit(X, L)
    np.testing.assert_allclose(Y[model.predict(new)], exact.predict(new))
    rows = ns.gaussian(candidates, Y, 0.9)
    np.testing.assert_allclose(
        model.score_candidates(new, rows, diagonal=np.ones(5)),
        exact.score_candidates(new, candidates),
        atol=1e-10,
    )
    numbers, scores = model.predict_topk(new, 3)
    objects, expected = exact.predict_topk(new, 3)
    np.testing.assert_allclose(Y[numbers], objects)
    np.testing.assert_allclose(scores, expected, atol=1e-10)
    np.testing.assert_allclose(model.loss([0, 1], [1, 1]), exact.loss(Y[:2], Y[[1, 1]]), atol=1e-12)
    with pytest.raises(ValueError, match="outputs are numbers from 0 to 19"):
        model.loss([0, 1], [1, 20])
    with pytest.raises(ValueError, match="score needs l"):
        model.score(new, rows[:1].repeat(6, 0))


def test_explicit_features_of_objects(rng):
    """Features by a function: the same as their vectors, with less than n of them."""
    X = rng.normal(size=(30, 2))
    words = ["".join(rng.choice(list("abc"), size=4)) for _ in range(30)]

    def counts(items):
        return [[word.count(letter) for letter in "abc"] for word in items]

    for operator in ("identity", "covariance", "kpca"):
        options = {"operator": named(operator), "alpha": 1e-2, "n_components": 2}
        objects = StructuredPredictor("rbf", Pullback(Linear(), counts, domain="objects"), **options).fit(X, words)
        vectors = StructuredPredictor("rbf", "linear", **options).fit(X, np.array(counts(words), dtype=float))
        np.testing.assert_allclose(
            objects.score_candidates(X, words), vectors.score_candidates(X, counts(words)), atol=1e-9
        )
        assert objects.predict(X[:3])[0] in words


@pytest.mark.parametrize("operator", ["identity", "kpca", "covariance", "conditional_covariance"])
def test_strings_to_strings_sparse_bits_and_curves(rng, operator):
    words = ["".join(rng.choice(list("ab"), size=rng.integers(3, 7))) for _ in range(40)]
    backwards = [word[::-1] for word in words]
    for approximation in (None, Nystroem(20)):
        options = {"operator": named(operator, 0.1), "alpha": 1e-4, "n_components": 10}
        model = StructuredPredictor(Spectrum(3), Spectrum(3), approximation=approximation, random_state=0, **options)
        model.fit(words, backwards)
        objects, scores = model.predict_topk(words[:4], 2)
        assert len(objects) == 4 and scores.shape == (4, 2) and (scores[:, 0] >= scores[:, 1]).all()
        if approximation is None:
            losses = model.loss(model.predict(words), backwards)
            assert losses.mean() < 0.3 * model.loss(backwards[1:] + backwards[:1], backwards).mean()
    bits = sparse.csr_array((rng.random((30, 50)) < 0.1).astype(float))
    dense = StructuredPredictor("tanimoto", Spectrum(2), alpha=0.1, operator=named(operator, 0.1), n_components=3)
    thin = clone(dense).fit(bits, words[:30])
    np.testing.assert_allclose(
        thin.score_candidates(bits, words),
        dense.fit(bits.toarray(), words[:30]).score_candidates(bits.toarray(), words),
    )


def test_an_interrupted_validation_keeps_what_the_folds_have_said(data):
    X, Y, _, _ = data
    calls = []

    def loss(true, predicted):
        calls.append(len(true))
        if len(calls) > 3:
            raise KeyboardInterrupt
        return ((true - predicted) ** 2).sum(1)

    model = StructuredPredictor("rbf", criterion="validation", task_loss=loss, alpha=[1e-3, 1e-2], cv=4, random_state=0)
    with pytest.warns(ConvergenceWarning, match="interrupted: the folds so far decide"):
        model.fit(X, Y)
    assert model.alpha_ in (1e-3, 1e-2) and model.predict(X).shape == Y.shape
    calls.extend([0] * 3)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)


def test_labels_unseen_by_a_delta_kernel_score_as_if_nothing_was_near(rng):
    X = rng.normal(size=(20, 2))
    y = np.array(["a", "b"])[(X[:, 0] > 0).astype(int)]
    model = StructuredPredictor("rbf", Delta(), alpha=1e-2).fit(X, y)
    scores = model.score_candidates(X, ["a", "b", "z"])
    np.testing.assert_allclose(scores[:, 2], -1.0)
    np.testing.assert_allclose(model.loss(["z"], ["a"]), 2.0)
    assert np.mean(np.array(model.predict(X)) == y) > 0.9


def test_scores_losses_and_r2(data):
    X, Y, new, candidates = data
    model = StructuredPredictor(Gaussian(1.3), "linear", alpha=ALPHA, decoder="direct").fit(X, Y)
    true = np.random.default_rng(5).normal(size=(6, 2))
    expected = r2_score(true, model.predict(new), multioutput="variance_weighted")
    np.testing.assert_allclose(model.score(new, true), expected)
    np.testing.assert_allclose(model.loss(Y[:5], candidates), ((Y[:5] - candidates) ** 2).sum(1))
    rbf = fixed("identity").fit(X, Y)
    distances = ((Y[:5] - candidates) ** 2).sum(1)
    np.testing.assert_allclose(rbf.loss(Y[:5], candidates), 2 - 2 * np.exp(-distances / (2 * 0.9**2)))
    embedding = rbf.decision_embedding(new)
    norms = embedding.squared_norms().numpy()
    direct = norms[:, None] - embedding.distance(fixed("identity").fit(X, Y).decision_embedding(new)).numpy() ** 2
    assert direct.shape == (6, 6)
    assert rbf.loss(np.zeros((100, 2)), np.ones((100, 2))).shape == (100,)


def test_a_joint_kernel_is_that_of_the_fitted_operator(data):
    X, Y, new, candidates = data
    k, L, _ = grams(X, Y, new)
    pairs = new[:5], candidates, new[1:4], candidates[2:]
    inputs = ns.gaussian(pairs[0], pairs[2], 1.3)
    one, two = ns.gaussian(pairs[1], Y, 0.9), ns.gaussian(pairs[3], Y, 0.9)
    P = 20 * EPSILON * np.linalg.inv(k + 20 * EPSILON * np.eye(20))
    values, vectors = np.linalg.eigh(L)
    V, d = vectors[:, -COMPONENTS:], values[-COMPONENTS:]
    expected = {
        "identity": ns.gaussian(pairs[1], pairs[3], 0.9),
        "covariance": one @ two.T / 20,
        "conditional_covariance": one @ P @ two.T / 20,
        "kpca": (one @ V / d) @ (two @ V).T,
    }
    for operator, inner in expected.items():
        joint = fixed(operator).fit(X, Y).joint_kernel(*pairs)
        np.testing.assert_allclose(joint, inputs * inner, atol=1e-8)
    low = fixed("covariance", approximation=Nystroem(20)).fit(X, Y).joint_kernel(*pairs)
    np.testing.assert_allclose(low, inputs * expected["covariance"], atol=1e-6)


# -- scikit-learn and other libraries ---------------------------------------------------------------------------------
def test_pipelines_searches_pickles_and_clones(data):
    X, Y, new, _ = data
    grid = {
        "kernel__lengthscale": [0.5, 2.0],
        "output_kernel__lengthscale": [0.7],
        "operator": [None, "covariance"],
    }
    search = GridSearchCV(StructuredPredictor("rbf", alpha=1e-2), grid, cv=3).fit(X, Y)
    assert search.best_estimator_.kernel_.lengthscale in (0.5, 2.0)
    piped = make_pipeline(StandardScaler(), StructuredPredictor("rbf", alpha=1e-2)).fit(X, Y)
    assert piped.predict(new).shape == (6, 2)
    gram = ns.gaussian(X, X, 1.3)
    scores = cross_val_score(StructuredPredictor("precomputed", Gaussian(0.9), alpha=1e-2), gram, Y, cv=4)
    same = cross_val_score(StructuredPredictor(Gaussian(1.3), Gaussian(0.9), alpha=1e-2), X, Y, cv=4)
    np.testing.assert_allclose(scores, same, atol=1e-9)
    model = fixed("conditional_covariance").fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(clone(model).fit(X, Y).score_candidates(new, Y), model.score_candidates(new, Y))
    assert clone(model).get_params()["output_kernel__lengthscale"] == 0.9


def test_frames_tensors_and_precision(data):
    X, Y, new, _ = data
    model = fixed("conditional_covariance").fit(X, Y)
    frame = pd.DataFrame(X, columns=list("abc"))
    framed = clone(model).fit(frame, pd.DataFrame(Y))
    np.testing.assert_allclose(framed.predict(pd.DataFrame(new, columns=list("abc"))), model.predict(new))
    assert list(framed.feature_names_in_) == list("abc")
    tensors = clone(model).fit(torch.from_numpy(X), torch.from_numpy(Y))
    np.testing.assert_array_equal(tensors.predict(torch.from_numpy(new)), model.predict(new))
    single = clone(model).set_params(dtype="float32").fit(X, Y)
    assert single.dual_coef_.dtype == np.float32
    np.testing.assert_allclose(single.score_candidates(new, Y), model.score_candidates(new, Y), atol=1e-3)


def test_a_search_over_a_gram_matrix_of_outputs_uses_their_numbers(data):
    X, Y, _, _ = data
    L = ns.gaussian(Y, Y, 0.9)
    kernel = Callable(lambda i, j: L[int(i), int(j)])
    model = StructuredPredictor(Gaussian(1.3), kernel, alpha=1e-2)
    scores = cross_val_score(model, X, np.arange(20), cv=4)
    same = cross_val_score(StructuredPredictor(Gaussian(1.3), Gaussian(0.9), alpha=1e-2), X, Y, cv=4)
    np.testing.assert_allclose(scores, same, atol=1e-9)


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operator": "covarianc"}, "operator must be None, one of 'kpca', 'covariance'"),
        ({"operator": "identity"}, "operator must be None"),
        (
            {"operator": Dense(np.eye(2)), "output_kernel": Gaussian(1.0)},
            "acts on the features of the outputs",
        ),
        ({"operator": Dense(np.eye(3)), "output_kernel": "linear"}, "3, 3.*2 outputs"),
        ({"operator": ConditionalCovariance(0.0)}, "epsilon of ConditionalCovariance must be positive"),
        (
            {"operator": ConditionalCovariance("median")},
            "epsilon of ConditionalCovariance must be a number or",
        ),
        ({"n_components": 0}, "n_components must be a positive integer or 'auto'; got 0"),
        (
            {"operator": PrincipalComponents(0)},
            "n_components of PrincipalComponents must be a positive integer",
        ),
        ({"n_components": 2.0}, "n_components must be a positive integer or 'auto'; got 2.0"),
        ({"fit_intercept": "yes"}, "fit_intercept must be True or False"),
        ({"alpha": -1.0}, "alpha must be positive"),
        ({"criterion": "gcv"}, "criterion must be one of 'loo', 'validation'"),
        ({"task_loss": len}, "task_loss= is what criterion='validation' minimises"),
        ({"task_loss": "zero-one", "criterion": "validation"}, "task_loss must be a function"),
        ({"task_loss": lambda y, z: np.nan, "criterion": "validation"}, "task_loss is not finite"),
        ({"cv": 1, "criterion": "validation"}, "k-fold|cv"),
        ({"approximation": 5}, "approximation must be None, Nystroem"),
        ({"approximation": Nystroem(50)}, "n_components of Nystroem must be an integer from 1"),
        ({"decoder": "nearest"}, "decoder='nearest' is not a decoder"),
        ({"decoder": "direct"}, "Direct.. is for a linear output kernel"),
        ({"output_kernel": "gaussian kernel"}, "is not a kernel"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"tol": 0.0}, "tol must be a positive number"),
    ],
)
def test_bad_arguments(data, options, message):
    X, Y, _, _ = data
    with pytest.raises(ValueError, match=message):
        StructuredPredictor(**options).fit(X, Y)


def test_bad_outputs(data, rng):
    X, Y, new, _ = data
    model = StructuredPredictor("rbf", alpha=1e-2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples: 20 and 19"):
        model.fit(X, Y[1:])
    with pytest.raises(ValueError, match="contains NaN"):
        model.fit(X, np.where(np.arange(2) == 0, np.nan, Y))
    with pytest.raises(ValueError, match="target y is None"):
        model.fit(X, None)
    with pytest.raises(NotFittedError):
        StructuredPredictor("rbf").predict(X)
    model.fit(X, Y)
    with pytest.raises(ValueError, match="candidates must be a collection of outputs; got 'abc'"):
        model.score_candidates(new, "abc")
    with pytest.raises(ValueError, match="y is empty: its shape is"):
        StructuredPredictor("rbf").fit(X, [])
    with pytest.raises(ValueError, match="candidates is empty"):
        model.score_candidates(new, [])
    with pytest.raises(ValueError, match="3 features, but the training outputs have 2"):
        model.score_candidates(new, np.ones((4, 3)))
    with pytest.raises(ValueError, match="one prediction for each output; got 3 for 2"):
        model.loss(Y[:2], Y[:3])
    with pytest.raises(ValueError, match="inconsistent numbers of samples: 6 and 2"):
        model.score(new, Y[:2])
    with pytest.raises(ValueError, match="There are 20 candidates, not k=21"):
        model.predict_topk(new, 21)
    with pytest.raises(ValueError, match="needs a decoder that ranks candidates"):
        StructuredPredictor("rbf", output_kernel="linear", decoder="direct").fit(X, Y).predict_topk(new, 2)
    with pytest.raises(ValueError, match="at least 2 are needed"):
        StructuredPredictor("rbf").fit(X[:1], Y[:1])
    assert StructuredPredictor("rbf", alpha=1.0).fit(X[:1], Y[:1]).predict(new).shape == (6, 2)


def test_indefinite_gram_matrices_of_outputs(data, rng):
    X, Y, new, _ = data
    L = ns.gaussian(Y, Y, 0.9)
    with pytest.raises(NotPositiveDefiniteError, match="The Gram matrix of the outputs is indefinite"):
        StructuredPredictor("rbf", output_kernel="precomputed", alpha=1.0).fit(X, L - np.eye(20))
    with pytest.raises(ValueError, match="not symmetric"):
        StructuredPredictor("rbf", output_kernel="precomputed", alpha=1.0).fit(X, L + np.triu(L, 1))
    with pytest.raises(ValueError, match="square"):
        StructuredPredictor("rbf", output_kernel="precomputed", alpha=1.0).fit(X, L[:, :5])
    values, vectors = np.linalg.eigh(L)
    bent = (vectors * np.where(np.arange(20) < 3, -0.05, values)) @ vectors.T
    repaired = (vectors * np.where(np.arange(20) < 3, 0.0, values)) @ vectors.T
    for operator in ("identity", "covariance", "conditional_covariance", "kpca"):
        model = fixed(operator).set_params(output_kernel="precomputed")
        with pytest.warns(IndefiniteGramWarning, match="The Gram matrix of the outputs is indefinite"):
            weights = model.fit(X, bent).decision_embedding(new).weights.numpy()
        clean = fixed(operator).set_params(output_kernel="precomputed").fit(X, repaired)
        expected = clean.decision_embedding(new).weights.numpy() @ repaired  # values at the training outputs
        np.testing.assert_allclose(weights @ bent, expected, atol=1e-8)


def test_constant_and_equal_data(rng):
    X = rng.normal(size=(12, 2))
    for operator in (None, "kpca", "covariance", "conditional_covariance"):
        same = StructuredPredictor("rbf", operator=operator, output_kernel=Gaussian(1.0)).fit(X, np.ones((12, 2)))
        np.testing.assert_array_equal(same.predict(X), np.ones((12, 2)))
        twice = StructuredPredictor("rbf", operator=operator, alpha=1e-3).fit(np.tile(X, (2, 1)), np.tile(X, (2, 1)))
        assert np.isfinite(twice.dual_coef_).all()
    nothing = StructuredPredictor("rbf", output_kernel="linear", decoder="direct").fit(X, np.zeros((12, 2)))
    np.testing.assert_array_equal(nothing.predict(X), np.zeros((12, 2)))


def test_arguments_are_not_changed(data):
    X, Y, _, _ = data
    before = X.copy(), Y.copy()
    model = StructuredPredictor(Gaussian("auto"), Gaussian("median"), "conditional_covariance")
    model.fit(X, Y)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(Y, before[1])
    assert model.kernel == Gaussian("auto") and model.output_kernel == Gaussian("median")
    gram, L = ns.gaussian(X, X, 1.0), ns.gaussian(Y, Y, 1.0)
    kept = gram.copy(), L.copy()
    StructuredPredictor("precomputed", "precomputed", "conditional_covariance").fit(gram, L)
    np.testing.assert_array_equal(gram, kept[0])
    np.testing.assert_array_equal(L, kept[1])


# -- what must not pass silently --------------------------------------------------------------------------------------
def test_widths_of_outputs_are_compared_with_those_of_the_fit(data):
    X, Y, new, _ = data
    model = fixed("identity").fit(X, Y)
    narrow, message = np.ones((2, 1)), "1 features, but the training outputs have 2"
    with pytest.raises(ValueError, match=message):
        model.loss(Y[:2], narrow)
    with pytest.raises(ValueError, match=message):
        model.loss(narrow, Y[:2])
    with pytest.raises(ValueError, match=message):
        model.joint_kernel(new[:2], narrow, new[:2], narrow)


def test_an_indefinite_kernel_of_objects_is_noticed_by_every_operator(data):
    X, Y, _, _ = data
    kernel = Callable(lambda a, b: float(np.tanh(np.dot(a, b) - 1.0)))
    for operator in (None, "covariance"):
        with pytest.raises(NotPositiveDefiniteError, match="The Gram matrix of the outputs is indefinite"):
            StructuredPredictor("rbf", kernel, operator, alpha=0.1).fit(X, list(Y))


def test_a_kernel_is_learned_at_the_candidates_of_alpha(rng):
    X = rng.normal(size=(30, 2))
    y = np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(30, 1))
    kernels = [
        StructuredPredictor(Gaussian("auto"), "linear", alpha=alpha).fit(X, y).kernel_.lengthscale
        for alpha in (0.3, [0.3], "auto")
    ]
    np.testing.assert_allclose(kernels[1], kernels[0])
    assert abs(kernels[2] - kernels[0]) > 0.05 * kernels[0]


def test_a_joint_kernel_survives_new_parameters(data):
    X, Y, new, candidates = data
    pairs = new[:5], candidates, new[:5], candidates
    for operator, options in (
        ("covariance", {}),
        (Dense([[2.0, 1.0], [1.0, 3.0]]), {"output_kernel": "linear"}),
    ):
        model = fixed(operator).set_params(**options).fit(X, Y)
        expected = clone(model).fit(X, Y).joint_kernel(*pairs)
        if operator != "covariance":
            model.set_params(operator__matrix=np.eye(2))
        model.set_params(operator=None, fit_intercept=True, approximation=Nystroem(2))
        np.testing.assert_array_equal(model.joint_kernel(*pairs), expected)


@pytest.mark.parametrize("operator", [None, "kpca", "covariance", "conditional_covariance"])
@pytest.mark.parametrize("kernel", [Gaussian("auto"), Gaussian(1.0)])
def test_outputs_without_features(data, operator, kernel):
    X = data[0]
    for options in ({}, {"alpha": 0.1}, {"fit_intercept": True}):
        model = StructuredPredictor(kernel, Spectrum(3), operator, **options).fit(X, ["ab"] * 20)
        assert model.predict(X[:2]) == ["ab", "ab"]
    low = StructuredPredictor(kernel, Spectrum(3), operator, 0.1, approximation=Nystroem(5))
    with pytest.raises(ValueError, match=r"Spectrum.* is zero at all landmarks"):
        low.fit(X, ["ab"] * 20)


def test_messages_name_the_argument_and_what_to_do(data):
    X, Y, _, _ = data
    rbf, words = StructuredPredictor("rbf", alpha=0.1), ["ab", "b"] * 10
    sets = [{"a", "b"}] * 20
    for y in (sets, np.array(sets), pd.Series(sets)):
        with pytest.raises(ValueError, match=r"y holds sets.*MultiLabelBinarizer"):
            StructuredPredictor("rbf", output_kernel=Tanimoto(), alpha=0.1).fit(X, y)
    conditional = StructuredPredictor("rbf", operator=ConditionalCovariance(0.1), alpha=0.1)
    with pytest.raises(ValueError, match="y is no array of numbers"):
        conditional.fit(X, [None, [1.0], *([[1.0, 2.0]] * 18)])
    with pytest.raises(ValueError, match="y holds strings"):
        conditional.fit(X, [None, *words[1:]])
    for single in ("ab" * 10, 3.0, {"a": 1}):
        with pytest.raises(ValueError, match="y must hold one output for each sample"):
            StructuredPredictor("rbf", output_kernel=Spectrum(1), alpha=0.1).fit(X, single)
    with pytest.raises(ValueError, match="decoder=None has no parameters"):
        StructuredPredictor("rbf", decoder=None).set_params(decoder__max_iter=5)
    with pytest.raises(ValueError, match="output_kernel='foo' is not a kernel"):
        StructuredPredictor("rbf", output_kernel="foo").fit(X, Y)
    with pytest.raises(ValueError, match=r"y is empty: its shape is \(20, 0\)"):
        rbf.fit(X, Y[:, :0])
    validated = StructuredPredictor("rbf", criterion="validation", alpha=[0.1, 1.0], cv=KFold(3).split(X))
    with pytest.raises(ValueError, match="cv is an iterator"):
        validated.fit(X, Y)
    validated.set_params(cv=list(KFold(3).split(X))).fit(X, Y)
    validated.set_params(task_loss=lambda true, predicted: "bad")
    with pytest.raises(ValueError, match=r"task_loss must return a number, or one for each sample; .*'bad'"):
        validated.fit(X, Y)
    with pytest.raises(ValueError, match=r"contradicts operator=.*; give it once"):
        StructuredPredictor("rbf", operator=PrincipalComponents(2), n_components=3).fit(X, Y)


def test_outputs_from_a_generator_and_a_frame(data):
    X, Y, new, _ = data
    np.testing.assert_array_equal(
        fixed("identity").fit(X, (row for row in Y)).predict(new), fixed("identity").fit(X, Y).predict(new)
    )
    frame = pd.DataFrame({"size": Y[:, 0], "kind": ["a", "b"] * 10})
    kernel = Columns({"size": Gaussian(1.0), "kind": Delta()})
    records = frame.to_dict("records")
    models = [StructuredPredictor("rbf", kernel, alpha=0.1).fit(X, y) for y in (frame, records)]
    assert models[0].predict(new) == models[1].predict(new) and set(models[0].predict(new)[0]) == {
        "size",
        "kind",
    }
    np.testing.assert_array_equal(models[0].score_candidates(new, frame), models[1].score_candidates(new, records))
    np.testing.assert_allclose(models[0].loss(frame, iter(records)), 0.0)
    with pytest.raises(ValueError, match="target y is None"):
        StructuredPredictor("rbf", kernel).fit(X, None)
    assert models[0].score(X, frame) == models[1].score(X, records)
    chosen = StructuredPredictor("rbf", kernel, alpha=0.1, decoder=Candidates(frame[:5])).fit(X, frame)
    assert chosen.predict(new)[0] in records[:5]


def test_a_decoder_given_by_name_has_parameters(data):
    X, Y, new, _ = data
    model = StructuredPredictor(Gaussian(1.0), Gaussian(1.0), alpha=0.1, decoder="gradient")
    model.set_params(decoder__max_iter=5)
    assert model.decoder.max_iter == 5
    assert model.fit(X, Y).predict(new).shape == (6, 2)


def test_an_interrupt_ends_the_search_over_output_kernels(data):
    X, Y, _, _ = data
    calls = []

    def loss(true, predicted):
        calls.append(len(true))
        if len(calls) == stop:
            raise KeyboardInterrupt
        return ((true - predicted) ** 2).sum(1)

    model = StructuredPredictor(
        Gaussian(1.0),
        Gaussian("auto"),
        alpha=0.1,
        criterion="validation",
        task_loss=loss,
        cv=4,
        random_state=0,
    )
    stop = 10  # 4 folds of two kernels are done, and one of the third
    with pytest.warns(ConvergenceWarning, match="output kernels was interrupted: the best so far is kept"):
        model.fit(X, Y)
    assert len(calls) == stop
    compared = Gaussian("auto").resolve(torch.from_numpy(Y)).lengthscale / np.array([4.0, 2.0])
    assert np.isclose(compared, model.output_kernel_.lengthscale).any()
    stop = len(calls) + 3  # two folds of the first
    with pytest.warns(ConvergenceWarning, match="the folds so far decide"):
        model.fit(X, Y)
    assert len(calls) == stop


def test_numbers_as_candidates_of_numbers(data):
    X, Y, new, _ = data
    y = (Y[:, 0] > 0).astype(float)
    for decoder in (Candidates([0.0, 1.0]), Candidates(lambda x: [0.0, 1.0]), Candidates([[0.0], [1.0]])):
        model = StructuredPredictor("rbf", alpha=0.1, decoder=decoder).fit(X, y)
        found = np.asarray(model.predict(new))
        assert found.shape == (6,) and set(found) <= {0.0, 1.0}
        objects, _ = model.predict_topk(new, 2)
        assert np.asarray(objects).shape == (6, 2)
        np.testing.assert_array_equal(np.asarray(objects)[:, 0], found)
    expected = StructuredPredictor("rbf", alpha=0.1).fit(X, y).predict(new)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [np.int32, bool, np.uint8, float])
def test_answers_have_the_type_of_the_outputs(data, kind):
    X, Y, new, _ = data
    labels = (Y > 0).astype(kind)
    for y in (labels, labels[:, 0]):
        model = StructuredPredictor("rbf", alpha=0.1).fit(X, y)
        assert model.predict(new).dtype == np.dtype(kind) and model.predict_topk(new, 2)[0].dtype == np.dtype(kind)
        plainly = StructuredPredictor("rbf", alpha=0.1).fit(X, y.astype(float))
        np.testing.assert_array_equal(model.predict(new), plainly.predict(new))
    for decoder in ("labels", LabelSet("auto")):
        tagger = StructuredPredictor("rbf", "linear", alpha=0.1, decoder=decoder).fit(X, labels)
        assert tagger.predict(new).dtype == np.dtype(kind)
    assert StructuredPredictor("rbf", "linear", decoder="direct").fit(X, labels).predict(new).dtype == float


def test_attributes_tell_what_was_used(data):
    X, Y, _, _ = data
    assert fixed("identity").fit(X, Y).epsilon_ is None
    assert fixed("covariance").fit(X, Y).n_components_ is None
    assert fixed("identity").fit(X, Y).criterion_value_ is None
    learned = StructuredPredictor(Gaussian("auto"), "linear", alpha=0.1).fit(X, Y)
    same = StructuredPredictor(learned.kernel_, "linear", alpha=[0.1]).fit(X, Y)
    np.testing.assert_allclose(learned.criterion_value_, same.criterion_value_)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_components_that_are_rounding_error_are_left_out(rng, fit_intercept):
    X, Y, mixture = rng.normal(size=(40, 2)), list(rng.normal(size=(40, 2))), rng.normal(size=(2, 6))
    kernel = Pullback(Linear(), lambda rows: np.asarray(rows) @ mixture, domain="objects")  # 6 features of rank 2
    options = {"alpha": 1e-3, "fit_intercept": fit_intercept}
    kpca = StructuredPredictor(Gaussian(1.0), kernel, "kpca", n_components=6, **options).fit(X, Y)
    identity = StructuredPredictor(Gaussian(1.0), kernel, None, **options).fit(X, Y)
    assert kpca.n_components_ == 2
    np.testing.assert_allclose(kpca.score_candidates(X, Y), identity.score_candidates(X, Y), atol=1e-9)


def test_gaps_in_a_gram_matrix_of_outputs_number_those_that_are_there(data):
    X, Y, _, _ = data
    L, kept = ns.gaussian(Y, Y, 0.9), np.arange(20) % 3 > 0
    L[~kept] = L[:, ~kept] = np.nan
    gaps = [row if there else None for row, there in zip(Y, kept, strict=True)]
    numbers = fixed("conditional_covariance").set_params(output_kernel="precomputed").fit(X, L).predict(X)
    vectors = fixed("conditional_covariance").fit(X, gaps).predict(X)
    np.testing.assert_array_equal(Y[kept][numbers], vectors)
    with pytest.raises(ValueError, match="n_components of Nystroem must be an integer from 1"):
        fixed("conditional_covariance", approximation=Nystroem(15)).fit(X, gaps)
    pair = (Nystroem(15), Nystroem(13))
    assert fixed("conditional_covariance", approximation=pair).fit(X, gaps).predict(X).shape == (20, 2)
