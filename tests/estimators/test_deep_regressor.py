"""DeepKernelRegressor: scikit-learn's contract, the formulas of Bohn et al., the learned kernel, data, bad input."""

from __future__ import annotations

import itertools
import pickle
import warnings
from dataclasses import replace

import naive_deep as nd
import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from naive_deep import functions_of
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from tiers import tiers

import naive
from representer import DeepKernelRegressor, Layer, OperatorRidge
from representer.approximation import Nystroem
from representer.estimators import GaussianProcessKernel
from representer.kernels import (
    Callable,
    Delta,
    Gaussian,
    Linear,
    Polynomial,
    Precomputed,
    Pullback,
    TensorMatern,
)
from representer.linalg import IndefiniteGramWarning, NotPositiveDefiniteError
from representer.objectives import NotConvergedError
from representer.operators import (
    Covariance,
    CurlFree,
    Decomposable,
    Dense,
    DivergenceFree,
    Separate,
)
from representer.problems.composition import (
    Composition,
    DeepProblem,
    convex_loss,
    custom_loss,
    interpolation_loss,
    squared_loss,
)
from representer.problems.deep import DeepRegression
from representer.testing import check_gradient

QUICK = {"n_restarts": 1, "max_iter": 100, "tol": 1e-2, "random_state": 0}
AFFINE, MATERN = Layer(Polynomial(1), 2, alpha=1e-3), TensorMatern(1, 1.0)

NOT_REPEATED = {"check_sample_weight_equivalence_on_dense_data": "the median of distances does not know weights"}
NO_GRAM = {"check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is refused as indefinite"}
CHECKED = {
    "fixed": (DeepKernelRegressor([AFFINE], alpha=1e-3, **QUICK), NOT_REPEATED),
    "precomputed": (DeepKernelRegressor([], "precomputed"), NO_GRAM),
}


@contract(CHECKED, quick=["fixed"])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def data(rng):
    """h₁ of the paper with noise: a kink along the diagonal."""
    X = rng.uniform(-1, 1, (30, 2))
    return X, 1 / (0.1 + abs(X[:, 0] - X[:, 1])) + 0.01 * rng.normal(size=30)


def fitted(data, layers=(AFFINE,), kernel=MATERN, loss="squared", alpha=1e-3, **options):
    """A model whose numbers are all given, and quick to fit."""
    arguments = {"n_restarts": 2, "max_iter": 60, "tol": 1e-4, "random_state": 0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return DeepKernelRegressor(list(layers), kernel, loss, alpha, **arguments).fit(*data)


# -- one layer is what scikit-learn has -------------------------------------------------------------------------------
def augmented(K, Y, alpha):
    """β and b of W β + 1 b = y, 1ᵀβ = 0."""
    n = len(K)
    ones = np.ones((n, 1))
    system = np.block([[K + n * alpha * np.eye(n), ones], [ones.T, np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.vstack([Y.reshape(n, -1), np.zeros((1, Y.size // n))]))
    return solution[:n], solution[n]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("outputs", [None, 3])
def test_one_layer_is_kernel_ridge(data, rng, intercept, outputs):
    X, y = data
    Y = y if outputs is None else np.column_stack([y, rng.normal(size=(len(y), outputs - 1))])
    alpha, new = 0.02, rng.uniform(-1, 1, (9, 2))
    model = DeepKernelRegressor([], Gaussian(0.7), alpha=alpha, fit_intercept=intercept).fit(X, Y)
    K = naive.gram(naive.gaussian(0.7), X)
    if intercept:
        beta, b = augmented(K, Y, alpha)
        expected = (naive.gram(naive.gaussian(0.7), new, X) @ beta + b).reshape(len(new), *Y.shape[1:])
        np.testing.assert_allclose(model.intercept_, b, rtol=1e-8)
    else:
        reference = KernelRidge(kernel="rbf", gamma=1 / (2 * 0.7**2), alpha=alpha * len(X)).fit(X, Y)
        beta, b, expected = reference.dual_coef_.reshape(len(X), -1), 0.0, reference.predict(new)
    np.testing.assert_allclose(model.predict(new), expected, rtol=1e-8, atol=1e-8)
    residuals = Y.reshape(len(X), -1) - K @ beta - b
    literal = np.sum(residuals**2) / len(X) + alpha * np.sum(beta * (K @ beta))
    np.testing.assert_allclose(model.objective_value_, literal, rtol=1e-8)
    np.testing.assert_allclose(model.layer_norms_, [np.sqrt(np.sum(beta * (K @ beta)))], rtol=1e-7)
    assert model.n_iter_ == 1 and model.history_ == [] and model.criterion_value_ is None


def test_one_layer_is_support_vector_regression(data, rng):
    X, y = data
    n, alpha, epsilon = len(X), 0.003, 0.3
    model = DeepKernelRegressor([], Gaussian(0.7), "epsilon_insensitive", alpha, epsilon=epsilon).fit(X, y)
    reference = SVR(C=1 / (2 * n * alpha), epsilon=epsilon, gamma=1 / (2 * 0.7**2), tol=1e-10).fit(X, y)
    new = rng.uniform(-1, 1, (9, 2))
    np.testing.assert_allclose(model.predict(new), reference.predict(new), rtol=1e-6, atol=1e-6)
    beta = reference.dual_coef_[0]
    K = naive.gram(naive.gaussian(0.7), reference.support_vectors_)
    tube = np.maximum(0, abs(y - reference.predict(X)) - epsilon)
    np.testing.assert_allclose(model.objective_value_, tube.mean() + alpha * beta @ K @ beta, rtol=1e-6)


def test_one_layer_with_huber_loss_minimises_its_objective(data):
    X, y = data
    alpha, delta = 0.01, 0.5
    K = naive.gram(naive.gaussian(0.7), X)

    def objective(point):
        F = K @ point[:-1] + point[-1]
        r = np.abs(y - F)
        huber = np.where(r <= delta, r**2, 2 * delta * r - delta**2)
        slope = -np.where(r <= delta, 2 * r, 2 * delta) * np.sign(y - F) / len(y)
        value = huber.mean() + alpha * point[:-1] @ K @ point[:-1]
        return value, np.append(K @ (slope + 2 * alpha * point[:-1]), slope.sum())

    model = DeepKernelRegressor([], Gaussian(0.7), "huber", alpha, delta=delta).fit(X, y)
    found = np.append(model.dual_coef_[:, 0], model.intercept_)
    value, gradient = objective(found)
    np.testing.assert_allclose(model.objective_value_, value, rtol=1e-6)
    assert np.abs(gradient).max() < 1e-7  # the problem is convex
    reference = minimize(objective, np.zeros(len(y) + 1), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    np.testing.assert_allclose(model.objective_value_, reference.fun, rtol=1e-6)


# -- the objective, literally -----------------------------------------------------------------------------------------
A = np.array([[1.0, 0.4], [0.4, 0.5]])


def curl_free(lengthscale):
    """−ℓ²∇∇ᵀ exp(−‖δ‖²/(2ℓ²)), δ = x − y."""

    def K(x, y):
        r = (x - y) / lengthscale
        return np.exp(-(r @ r) / 2) * (np.eye(len(r)) - np.outer(r, r))

    return K


INNER = {
    "affine": (Layer(Polynomial(1), 2, 1e-3), nd.times(nd.polynomial(1), np.eye(2))),
    "dense": (Layer(Gaussian(0.5), 2, 1e-3, Dense(A)), nd.times(nd.gaussian(0.5), A)),
    "separate": (
        Layer(Separate([Gaussian(0.5), Polynomial(2)]), 2, 1e-3),
        nd.separate(nd.gaussian(0.5), nd.polynomial(2)),
    ),
    "coupled": (Layer(CurlFree(0.8), 2, 1e-3), curl_free(0.8)),
}
OUTER = {
    "matern": (TensorMatern(1, 1.0), nd.tensor_matern(1, 2)),
    "gaussian": (Gaussian(0.7), nd.gaussian(0.7)),
}


def coefficients_on(X, function):
    """The coefficients of an expansion on all rows of X: its anchors are some of them."""
    c = np.zeros((len(X), function.coefficients.shape[1]))
    for anchor, row in zip(function.anchors.numpy(), function.coefficients.numpy(), strict=True):
        c[np.flatnonzero((anchor == X).all(1))[0]] = row
    return c


def literal(functions, intercept, X, kernels, loss, penalties):
    """(7) of the paper from fitted coefficients; every layer but the first has all images as anchors."""
    c = [coefficients_on(X, functions[0]), *(function.coefficients.numpy() for function in functions[1:])]
    return nd.general(kernels, c, X, lambda F: loss(F + intercept), penalties)


@pytest.mark.parametrize(
    ("outer", "inner"),
    tiers(
        [("matern", "affine"), *(("gaussian", inner) for inner in INNER)],
        lambda case: case[1] not in ("separate", "coupled"),
    ),
)
def test_two_layers_minimise_reg(data, outer, inner):
    """The value is (Reg) = (19), over n, and the point is a minimum of it."""
    X, y = data[0][:12], data[1][:12]
    (kernel, k), (layer, K) = OUTER[outer], INNER[inner]
    n, alpha, mu = len(X), 2e-3, layer.alpha
    model = fitted((X, y), [layer], kernel, alpha=alpha, fit_intercept=False, tol=1e-12, max_iter=300)
    c = coefficients_on(X, functions_of(model)[0])

    def reg(c):
        return nd.reg_objective(k, K, X, y, c, n * alpha, n * mu) / n

    np.testing.assert_allclose(model.objective_value_, reg(c), rtol=1e-6)
    M = nd.gram(k, nd.evaluate([K], [c], X, X)[0])
    printed = nd.equation_19(M, y, n * alpha, n * mu, nd.squared_norm(K, X, c)) / n
    np.testing.assert_allclose(model.objective_value_, printed, rtol=1e-6)
    np.testing.assert_allclose(model.layer_norms_[0] ** 2, nd.squared_norm(K, X, c), rtol=1e-6)
    outer_function = np.linalg.solve(M + n * alpha * np.eye(n), y)
    np.testing.assert_allclose(model.dual_coef_[:, 0], outer_function, rtol=1e-5, atol=1e-6)
    for seed in range(3):  # no neighbour is lower, also where the Matérn kernel has a kink
        direction = np.random.default_rng(seed).normal(size=c.shape)
        step = 1e-3 * model.layer_norms_[0] / np.sqrt(nd.squared_norm(K, X, direction))
        neighbours = [reg(c + sign * step * direction) for sign in (-1, 1)]
        assert min(neighbours) > model.objective_value_


def test_three_layers_with_custom_penalties_minimise_the_general_problem(data):
    """(7) with a joint loss of all samples, and with Θ of its own for every layer."""
    X, y = data[0][:10], data[1][:10]
    unit = np.abs(y).max()

    def worst(F, Y):  # nearly the largest error of all samples
        return torch.logsumexp(4 * ((F - Y) / unit) ** 2, 0).sum()

    layers = [
        Layer(Separate([Gaussian(0.8), Polynomial(1)]), 2, 1e-2, penalty=lambda s: torch.log1p(s) + s),
        Layer(Gaussian(1.0), 2, 2e-2, Dense(A), penalty=lambda s: s**2),
    ]
    model = fitted((X, y), layers, TensorMatern(1, 1.0), worst, 1e-3, penalty=lambda s: s + s**2 / 100, max_iter=15)
    kernels = [
        nd.separate(nd.gaussian(0.8), nd.polynomial(1)),
        nd.times(nd.gaussian(1.0), A),
        nd.times(nd.tensor_matern(1, 2), [[1.0]]),
    ]

    def value(functions):
        return literal(
            functions,
            model.intercept_,
            X,
            kernels,
            lambda F: float(np.log(np.sum(np.exp(4 * ((F[:, 0] - y) / unit) ** 2)))),
            [
                lambda s: 1e-2 * (np.log1p(s) + s),
                lambda s: 2e-2 * s**2,
                lambda s: 1e-3 * (s + s**2 / 100),
            ],
        )

    np.testing.assert_allclose(model.objective_value_, value(functions_of(model)), rtol=1e-6)
    *inner, outer = functions_of(model)
    for seed in range(3):  # no other outer function does better
        noise = 1e-2 * torch.from_numpy(np.random.default_rng(seed).normal(size=outer.coefficients.shape))
        other = replace(outer, coefficients=outer.coefficients * (1 + noise))
        assert value([*inner, other]) > model.objective_value_


def test_squared_loss_with_a_penalty_of_its_own(data):
    """Θ(s) = s is the ordinary problem; another Θ is minimised literally."""
    plain = fitted(data, fit_intercept=False, n_restarts=1)
    same = fitted(data, fit_intercept=False, penalty=lambda s: s, n_restarts=1)
    np.testing.assert_allclose(same.objective_value_, plain.objective_value_, rtol=1e-4)
    X, y = data
    curved = fitted(data, penalty=lambda s: s + s**2 / 10, max_iter=5)
    value = literal(
        functions_of(curved),
        curved.intercept_,
        X,
        [INNER["affine"][1], nd.times(nd.tensor_matern(1, 2), [[1.0]])],
        lambda F: float(np.mean((F[:, 0] - y) ** 2)),
        [lambda s: 1e-3 * s, lambda s: 1e-3 * (s + s**2 / 10)],
    )
    np.testing.assert_allclose(curved.objective_value_, value, rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "K", "intercept"),
    [
        (Decomposable(Gaussian(0.8), Dense(A)), nd.times(nd.gaussian(0.8), A), True),
        (Separate([Gaussian(0.8), Polynomial(1)]), nd.separate(nd.gaussian(0.8), nd.polynomial(1)), True),
        (CurlFree(0.9), curl_free(0.9), False),
    ],
    ids=["dense", "separate", "curl-free"],
)
def test_operator_valued_outer_kernels_minimise_the_general_problem(data, rng, kernel, K, intercept):
    X = data[0][:12]
    Y = np.column_stack([data[1][:12], X[:, 0] ** 2])
    model = fitted((X, Y), kernel=kernel, fit_intercept=intercept)
    value = literal(
        functions_of(model),
        model.intercept_,
        X,
        [INNER["affine"][1], K],
        lambda F: float(np.sum((F - Y) ** 2)) / len(X),
        [lambda s: 1e-3 * s, lambda s: 1e-3 * s],
    )
    np.testing.assert_allclose(model.objective_value_, value, rtol=1e-6)
    new = rng.uniform(-1, 1, (5, 2))
    images = nd.evaluate([INNER["affine"][1]], [coefficients_on(X, functions_of(model)[0])], X, new)[0]
    anchors = functions_of(model)[1].anchors.numpy()
    outer = np.array([nd.value(K, anchors, model.dual_coef_, z) for z in images]) + model.intercept_
    np.testing.assert_allclose(model.predict(new), outer, rtol=1e-8, atol=1e-8)
    with pytest.raises(AttributeError, match="no scalar deep kernel"):
        model.deep_kernel_  # noqa: B018


LOSSES = {
    "squared": squared_loss(True),
    "interpolate": interpolation_loss(False, 0.3),
    "epsilon_insensitive": convex_loss("epsilon_insensitive", True, epsilon=0.05),
    "huber": convex_loss("huber", True, delta=0.5),
    "custom": custom_loss(lambda F, Y: ((F - Y) ** 2).mean(), True, lambda s: 0.01 * (s + s**2)),
}
CHAINS = {
    "affine": [AFFINE],
    "two": [
        Layer(Gaussian(0.8), 2, 1e-3, Dense(A)),
        Layer(Separate([Gaussian(1.0), TensorMatern(2, 2.0)]), 2, 1e-2),
    ],
    "coupled": [Layer(CurlFree(1.0), 2, 1e-3, penalty=lambda s: s**1.5)],
}


@pytest.mark.parametrize(
    ("loss", "layers"),
    tiers(
        {f"{a}-{b}": (LOSSES[a], CHAINS[b]) for a, b in itertools.product(LOSSES, CHAINS)},
        lambda name: name not in ("custom-two", "custom-coupled"),
    ),
)
def test_the_gradient_of_the_objective_fits_its_values(data, loss, layers):
    X, y = torch.from_numpy(data[0][:8]), torch.from_numpy(data[1][:8, None])
    composition = Composition(layers, Decomposable(Gaussian(0.6)), 0.01)
    problem = DeepProblem(composition, X, y / y.abs().max(), loss.fit())
    point = torch.randn(problem.size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    check_gradient(lambda p: problem.value(p[None])[0], point, "the inner coordinates")
    batch = torch.stack([point, 0.5 * point, -point])  # each member of a batch by itself
    values, gradients = problem.value_and_gradient(batch)
    alone = [problem.value_and_gradient(member[None]) for member in batch]
    torch.testing.assert_close(values, torch.cat([v for v, _ in alone]), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(gradients, torch.cat([g for _, g in alone]), rtol=1e-5, atol=1e-7)


def test_an_affine_layer_has_three_unknowns_an_output(data):
    problem = DeepProblem(
        Composition([Layer(Polynomial(1), 5, 1.0)], Decomposable(Gaussian(1.0)), 0.1),
        torch.from_numpy(data[0]),
        torch.from_numpy(data[1][:, None]),
        squared_loss(True).fit(),
    )
    assert problem.size == 3 * 5


# -- interpolation ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_interpolation_meets_the_data(data, inner, intercept):
    X, y = data[0][:12], data[1][:12]
    layer, K = inner
    model = fitted((X, y), [layer], loss="interpolate", alpha="auto", fit_intercept=intercept)
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-6)
    assert model.alpha_ == 1.0  # as in the paper
    if not intercept:
        c = coefficients_on(X, functions_of(model)[0])
        norm = nd.squared_norm(K, X, c)
        expected = nd.int_objective(nd.tensor_matern(1, 2), K, X, y, c) - norm + layer.alpha * norm
        np.testing.assert_allclose(model.objective_value_, expected, rtol=1e-6)
        np.testing.assert_allclose(sum(np.square(model.layer_norms_) * [layer.alpha, 1]), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:The interpolant predicts a sample that is left out:UserWarning")  # of few samples
def test_separation_keeps_images_apart(data):
    """(15): the coth penalty is part of the value, and the closest images are farther apart with it."""
    X, y = data[0][:12], data[1][:12]
    closest = []
    for gamma in (0.0, 10.0):
        model = fitted((X, y), loss="interpolate", alpha=1.0, separation=gamma, fit_intercept=False)
        np.testing.assert_allclose(model.predict(X), y, rtol=1e-6)
        Z = model.transform_layers(X)[0]
        squares = np.array([np.sum((Z[i] - Z[j]) ** 2) for i in range(len(X)) for j in range(i)])
        closest.append(squares.min())
        value = np.square(model.layer_norms_) @ [AFFINE.alpha, 1] + gamma * np.sum(1 / np.tanh(squares))
        np.testing.assert_allclose(model.objective_value_, value, rtol=1e-6)
    assert closest[1] > 1.2 * closest[0]


def test_contradicting_duplicates_cannot_be_interpolated(data):
    X, y = data
    X = np.vstack([X, X[:1]])
    with pytest.raises(ValueError, match=r"(?s)(equal|same|duplicate|contradict)"):
        fitted((X, np.append(y, y[0] + 1)), loss="interpolate", alpha=1.0)


def test_agreeing_duplicates_are_interpolated(data):
    X, y = np.vstack([data[0], data[0][:1]]), np.append(data[1], data[1][0])
    np.testing.assert_allclose(fitted((X, y), loss="interpolate", alpha=1.0).predict(X), y, rtol=1e-6)


# -- the learned kernel -----------------------------------------------------------------------------------------------
@pytest.fixture
def deep(data):
    return fitted(data, [AFFINE, Layer(Gaussian(1.0), 2, 1e-3)])


def test_the_deep_kernel_is_the_outer_kernel_of_the_images(data, deep, rng):
    X, new = data[0], rng.uniform(-1, 1, (7, 2))
    images = deep.transform_layers(new)
    assert [image.shape for image in images] == [(7, 2), (7, 2)]
    kernels = [INNER["affine"][1], nd.times(nd.gaussian(1.0), np.eye(2))]
    first, second, _ = functions_of(deep)
    c = [coefficients_on(X, first), second.coefficients.numpy()]
    for image, expected in zip(images, nd.evaluate(kernels, c, X, new), strict=True):
        np.testing.assert_allclose(image, expected, rtol=1e-7, atol=1e-7)
    k = deep.deep_kernel_
    expected = nd.gram(nd.deep_kernel(nd.tensor_matern(1, 2), kernels, c, X), new, X[:5])
    np.testing.assert_allclose(k(new, X[:5]), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(k.diag(new), np.ones(7), rtol=1e-12)
    prediction = k(new, X).numpy() @ deep.dual_coef_ + deep.intercept_
    np.testing.assert_allclose(deep.predict(new), prediction[:, 0], rtol=1e-7)


def test_the_deep_kernel_is_a_kernel_like_any_other(data, deep):
    X, _ = data
    k = deep.deep_kernel_
    K = k(X).numpy()
    assert np.linalg.eigvalsh(K).min() > -1e-12 * len(X)
    again = pickle.loads(pickle.dumps(k))
    assert again == k == clone(k)
    np.testing.assert_array_equal(again(X), K)
    other = fitted(data, [AFFINE, Layer(Gaussian(1.5), 2, 1e-3)]).deep_kernel_
    assert other != k
    total = (2.0 * k + Linear()) * Gaussian(0.5)
    np.testing.assert_allclose(total(X), (2 * K + X @ X.T) * naive.gram(naive.gaussian(0.5), X), rtol=1e-10)
    assert fitted(data, []).deep_kernel_ == TensorMatern(1, 1.0)  # without inner layers, the outer kernel itself


def test_the_deep_kernel_in_other_learners(data, deep):
    X, y = data
    k = deep.deep_kernel_
    K = k(X).numpy()
    ridge = OperatorRidge(k, alpha=deep.alpha_, fit_intercept=False).fit(X, y - deep.intercept_)
    W = K + len(X) * deep.alpha_ * np.eye(len(X))
    np.testing.assert_allclose(ridge.dual_coef_, np.linalg.solve(W, y - deep.intercept_), rtol=1e-6)
    np.testing.assert_allclose(ridge.predict(X) + deep.intercept_, deep.predict(X), rtol=1e-7)
    direct, given = SVR(kernel=k, C=10.0).fit(X, y), SVR(kernel="precomputed", C=10.0).fit(K, y)
    np.testing.assert_allclose(direct.predict(X[:5]), given.predict(K[:5]), rtol=1e-6)
    assert clone(direct).fit(X, y).score(X, y) > 0.9
    few = X[:8]
    by_pairs, by_matrix = KernelPCA(2, kernel=k).fit(few), KernelPCA(2, kernel="precomputed").fit(K[:8, :8])
    np.testing.assert_allclose(by_pairs.eigenvalues_, by_matrix.eigenvalues_, rtol=1e-6)
    noise = len(X) * deep.alpha_
    process = GaussianProcessRegressor(GaussianProcessKernel(k), alpha=noise, optimizer=None)
    mean, std = process.fit(X, y - deep.intercept_).predict(X[:5] + 0.1, return_std=True)
    np.testing.assert_allclose(mean + deep.intercept_, deep.predict(X[:5] + 0.1), rtol=1e-5)
    cross = k(X[:5] + 0.1, X).numpy()
    np.testing.assert_allclose(std**2, 1 - np.sum(cross @ np.linalg.inv(W) * cross, 1), rtol=1e-4, atol=1e-9)


def test_the_network_predicts_the_same(data, deep, rng):
    new = rng.uniform(-1, 1, (7, 2))
    network = deep.to_torch()
    inputs = torch.from_numpy(new).requires_grad_()
    values = network(inputs)
    np.testing.assert_allclose(values.detach()[:, 0], deep.predict(new), rtol=1e-8, atol=1e-8)
    values.sum().backward()
    step = 1e-5  # the middle layer is ill conditioned: smaller steps drown in rounding
    for j in range(2):
        ends = [deep.predict(new + sign * step * np.eye(2)[j]) for sign in (1, -1)]
        np.testing.assert_allclose(inputs.grad[:, j], (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-4)
    assert {name for name, _ in network.named_parameters()} == {
        "coefficients_0",
        "coefficients_1",
        "coefficients_2",
        "intercept",
    }
    other = fitted((data[0], -data[1]), [AFFINE, Layer(Gaussian(1.0), 2, 1e-3)]).to_torch()
    assert not torch.allclose(other(inputs), values)
    other.load_state_dict(network.state_dict())
    for copied in (other, pickle.loads(pickle.dumps(network))):
        torch.testing.assert_close(copied(inputs), values, rtol=0, atol=0)
    with torch.no_grad():
        network.intercept += 1.0  # a copy: the model does not follow
    np.testing.assert_allclose(network(inputs).detach()[:, 0], deep.predict(new) + 1.0, rtol=1e-8)


# -- special cases of the paper ---------------------------------------------------------------------------------------
def test_a_linear_outer_kernel_learns_a_sum_of_kernels(data):
    """RLS2: the least value is that of the group lasso 1/n Σ(y − Σ_m h_m)² + 2√(αμ) Σ_m ‖h_m‖, which is convex."""
    X, y = data[0], data[1] - data[1].mean()
    n, alpha, mu = len(X), 1e-2, 3e-2
    kernels = [nd.gaussian(0.5), nd.polynomial(1), nd.gaussian(0.05)]
    inner = Layer(Separate([Gaussian(0.5), Polynomial(1), Gaussian(0.05)]), 3, mu)
    model = fitted((X, y), [inner], Linear(), alpha=alpha, fit_intercept=False, n_restarts=4, tol=1e-12, max_iter=500)
    roots = [np.linalg.cholesky(nd.gram(k, X) + 1e-12 * np.eye(n)) for k in kernels]

    def group_lasso(flat):  # h_m = R_m t_m with K_m = R_m R_mᵀ, so that ‖h_m‖ = ‖t_m‖
        t = flat.reshape(3, n)
        r = y - sum(R @ t_m for R, t_m in zip(roots, t, strict=True))
        norms = np.maximum(np.linalg.norm(t, axis=1), np.finfo(float).tiny)  # kernels that do not help are zero
        value = r @ r / n + 2 * np.sqrt(alpha * mu) * norms.sum()
        slopes = [-2 * R.T @ r / n for R in roots] + 2 * np.sqrt(alpha * mu) * t / norms[:, None]
        return value, slopes.ravel()

    # The roots of the found functions are feasible for the convex problem, and no descent from them gets lower.
    Z, w = model.transform_layers(X)[0], model.transform_layers(X)[0].T @ model.dual_coef_[:, 0]
    h = np.stack([np.linalg.solve(R, z * v) for R, z, v in zip(roots, Z.T, w, strict=True)])
    assert group_lasso(h.ravel())[0] <= model.objective_value_ * (1 + 1e-8)
    reference = minimize(
        group_lasso, h.ravel() + 1e-6, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 1e-14}
    )
    np.testing.assert_allclose(model.objective_value_, reference.fun, rtol=1e-4)


def test_a_radial_outer_kernel_of_one_dimension_is_multilayer_multiple_kernel_learning(data):
    """Section 3.3.2: exp(−|Σ_i ν_i (K₂(x_i, x) − K₂(x_i, y))|) is the deep kernel for D = 1."""
    X, _ = data
    model = fitted(data, [Layer(Polynomial(2), 1, 1e-3)])
    k2, nu = nd.polynomial(2), coefficients_on(X, functions_of(model)[0])[:, 0]
    inner = np.array([sum(v * k2(x_i, x) for v, x_i in zip(nu, X, strict=True)) for x in X])
    np.testing.assert_allclose(model.deep_kernel_(X), np.exp(-np.abs(inner[:, None] - inner)), rtol=1e-6, atol=1e-9)


# -- uncertainty ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("layers", [[AFFINE], [AFFINE, Layer(Gaussian(1.0), 2, 1e-3)]], ids=["small", "large"])
def test_standard_deviation_is_that_of_a_gaussian_process_on_the_images(data, rng, layers, intercept):
    """With an intercept, one of a prior so wide that it might as well be flat.

    Many unknowns are fitted to noise: refits without a fold then miss by far more than leave-one-out of the outer
    function.
    """
    X, y = data
    y = y if len(layers) == 1 else rng.normal(size=len(X))
    n, new = len(X), rng.uniform(-1, 1, (6, 2))
    model = fitted((X, y), layers, fit_intercept=intercept)
    k, noise, flat = model.deep_kernel_, n * model.alpha_, 1e6 * intercept
    W, cross = k(X).numpy() + noise * np.eye(n), k(new, X).numpy()
    explained = np.sum((cross + flat) * np.linalg.solve(W + flat, (cross + flat).T).T, 1)
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(new))
    ratio = std**2 / (1 + flat - explained + noise)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
    # the factor makes standardised residuals of new samples have mean square one
    P = np.linalg.inv(W)
    if len(layers) == 1:
        residuals = P @ (y - model.intercept_) / np.diag(P)  # of leave-one-out
        squares = np.minimum(residuals**2 * np.diag(P), 25.0 * ratio[0])  # those beyond five deviations count as five
        np.testing.assert_allclose(ratio[0], np.mean(squares), rtol=1e-4)
    else:
        assert ratio[0] > 1.3 * np.mean((P @ (y - model.intercept_)) ** 2 / np.diag(P))


def test_intervals_cover_new_observations(rng):
    X = rng.uniform(-1, 1, (260, 2))
    y = np.sin(3 * (X[:, 0] + X[:, 1])) + 0.2 * rng.normal(size=260)
    model = fitted((X[:60], y[:60]), [Layer(Polynomial(1), 1, 1e-3)], Gaussian(1.0), alpha=2e-3)
    mean, std = model.predict(X[60:], return_std=True)
    assert 0.85 < np.mean(np.abs(mean - y[60:]) < 1.96 * std) < 0.99
    several = fitted((X[:60], np.column_stack([y[:60], 10 * y[:60]])), kernel=Gaussian(1.0))
    mean, std = several.predict(X[60:], return_std=True)
    assert std.shape == mean.shape == (200, 2)
    np.testing.assert_allclose(std[:, 1], 10 * std[:, 0], rtol=1e-6)


def test_a_splitter_that_holds_out_some_samples_is_enough(data):
    layers = [Layer(Gaussian(0.5), 2, 1e-3)]
    part, whole = (
        fitted(data, layers, cv=cv).predict(data[0], return_std=True)[1]
        for cv in (ShuffleSplit(2, test_size=0.2, random_state=0), 5)
    )
    ratio = part / whole
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)
    assert 0.3 < ratio[0] < 3.0


def test_refits_wait_for_the_first_standard_deviations(data, monkeypatch):
    """They are the same for a copy, and whatever becomes of the arguments."""
    refits = []
    original = DeepRegression.refits
    monkeypatch.setattr(DeepRegression, "refits", lambda self, *given: refits.append(self) or original(self, *given))
    model = fitted(data, [Layer(Gaussian(0.5), 2, 1e-3)], cv=3)
    mean = model.predict(data[0])
    assert not refits
    copy = pickle.loads(pickle.dumps(model))
    _, std = model.predict(data[0], return_std=True)
    again = model.predict(data[0], return_std=True)[1]
    assert len(refits) == 1
    model.set_params(loss="huber", penalty=abs, fit_intercept=False, cv=2, dtype="float32", random_state=3)
    copy.set_params(loss="huber", penalty=abs, fit_intercept=False, cv=2, dtype="float32", random_state=3)
    for one in (model, copy):
        np.testing.assert_array_equal(one.predict(data[0]), mean)
        np.testing.assert_array_equal(one.predict(data[0], return_std=True)[1], std)
    np.testing.assert_array_equal(again, std)


def test_only_squared_loss_has_a_spread(data):
    for loss in ("huber", "interpolate"):
        with pytest.raises(ValueError, match="needs a fit with loss='squared'"):
            fitted(data, loss=loss, max_iter=5).predict(data[0], return_std=True)


# -- large data -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sampling", ["uniform", "pivots"])
def test_all_samples_as_landmarks_are_exact(data, sampling):
    options = {"max_iter": 30, "tol": 1e-12}
    exact = fitted(data, kernel=Gaussian(0.7), **options)
    landmarks = fitted(data, kernel=Gaussian(0.7), approximation=Nystroem(len(data[0]), sampling), **options)
    np.testing.assert_allclose(landmarks.objective_value_, exact.objective_value_, rtol=1e-6)
    np.testing.assert_allclose(landmarks.predict(data[0]), exact.predict(data[0]), rtol=1e-5, atol=1e-5)
    new = data[0] + 0.1
    for a, b in zip(landmarks.predict(new, True), exact.predict(new, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_few_landmarks_are_a_nystroem_fit_to_many_samples(rng):
    X = rng.uniform(-1, 1, (2000, 2))
    y = np.sin(4 * (X[:, 0] - X[:, 1])) + 0.1 * rng.normal(size=2000)
    model = fitted(
        (X, y),
        [(Polynomial(1), 2)],
        "rbf",
        alpha="auto",
        approximation=Nystroem(30),
        n_restarts=1,
        max_iter=40,
    )
    assert model.dual_coef_.shape == (30, 1)
    assert model.score(X, y) > 0.95
    _, std = model.predict([[0.0, 0.0], [9.0, -9.0]], return_std=True)
    assert std[1] > 2 * std[0]  # what the landmarks do not see is uncertain


def test_memory_is_bounded_by_landmarks(rng, monkeypatch):
    """Never a matrix of all samples: its allocation would be refused."""
    X = rng.uniform(-1, 1, (2000, 2))
    sizes = []
    original = Gaussian._gram

    def watched(self, X, Y):
        gram = original(self, X, Y)
        sizes.append(gram.shape[-2] * gram.shape[-1])
        return gram

    monkeypatch.setattr(Gaussian, "_gram", watched)
    fitted((X, X[:, 0] ** 2), kernel=Gaussian(1.0), approximation=Nystroem(20), max_iter=3, n_restarts=1)
    assert max(sizes) == 2000 * 20


# -- kinds of data ----------------------------------------------------------------------------------------------------
def test_several_outputs_share_the_inner_layers(data, rng):
    X, y = data
    Y = np.column_stack([y, np.abs(X[:, 0] - X[:, 1])])
    model = fitted((X, Y))
    assert model.predict(X).shape == Y.shape and model.dual_coef_.shape == Y.shape
    alone = OperatorRidge(model.deep_kernel_, alpha=model.alpha_, fit_intercept=False).fit(X, Y - model.intercept_)
    np.testing.assert_allclose(alone.predict(X) + model.intercept_, model.predict(X), rtol=1e-6, atol=1e-8)
    column = fitted((X, y[:, None]))
    assert column.predict(X).shape == (len(X), 1)
    np.testing.assert_array_equal(column.predict(X)[:, 0], fitted((X, y)).predict(X))


def letters(u, v):
    return float(sum(u.count(c) * v.count(c) for c in "abc"))


def test_strings_through_the_first_layer(rng):
    words = ["".join(rng.choice(list("abc"), size=rng.integers(3, 9))) for _ in range(40)]
    y = np.array([abs(w.count("a") - w.count("b")) for w in words], dtype=float)  # a kink that one layer cannot have
    options = {"kernel": Gaussian(1.0), "n_restarts": 16, "max_iter": 100, "tol": 1e-6}
    model = fitted((words[:30], y[:30]), [Layer(Callable(letters), 1, 1e-4)], **options)
    counts = np.array([[w.count(c) for c in "abc"] for w in words], dtype=float)
    vectors = fitted((counts[:30], y[:30]), [Layer(Linear(), 1, 1e-4)], **options)
    np.testing.assert_allclose(model.predict(words), vectors.predict(counts), atol=1e-2)
    assert model.score(words[30:], y[30:]) > 0.9
    assert model.transform_layers(words)[0].shape == (40, 1)
    np.testing.assert_allclose(
        model.deep_kernel_(words[:4], words[4:6]), vectors.deep_kernel_(counts[:4], counts[4:6]), atol=1e-2
    )
    network = pickle.loads(pickle.dumps(model)).to_torch()
    np.testing.assert_allclose(network(words).detach()[:, 0], model.predict(words), rtol=1e-10)
    _, std = model.predict(words[:3], return_std=True)
    assert np.isfinite(std).all()


@pytest.mark.parametrize("layers", [[Layer("precomputed", 2, 1e-3)], []], ids=["inner", "outer"])
def test_a_gram_matrix_as_input(data, layers):
    X, y = data
    kernel = Gaussian(0.8)
    K = kernel(X).numpy()
    outer = TensorMatern(1, 1.0) if layers else "precomputed"
    given = fitted((K, y), layers, outer, max_iter=15)
    direct = fitted(data, [Layer(kernel, 2, 1e-3)] if layers else [], outer if layers else kernel, max_iter=15)
    new = X[:5] + 0.1
    np.testing.assert_allclose(given.objective_value_, direct.objective_value_, rtol=1e-6)
    np.testing.assert_allclose(given.predict(kernel(new, X).numpy()), direct.predict(new), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        given.to_torch()(kernel(new, X)).detach()[:, 0], given.predict(kernel(new, X).numpy()), rtol=1e-10
    )
    split = cross_val_predict(clone(given).set_params(max_iter=100, tol=1e-2), K, y, cv=3)
    assert split.shape == y.shape and np.corrcoef(split, y)[0, 1] > 0.3
    with pytest.raises(ValueError, match="expecting 30 features"):
        given.predict(K[:, :10])
    with pytest.raises(ValueError, match="should be square"):
        fitted((K[:, :-1], y), layers, outer)
    with pytest.raises(NotPositiveDefiniteError, match="indefinite"):
        fitted((-K, y), layers, outer)
    with pytest.warns(IndefiniteGramWarning):
        fitted((K - 0.02 * np.eye(len(K)), y), layers, outer, max_iter=3)
    if not layers:
        with pytest.raises(ValueError, match="precomputed outer kernel"):
            given.predict(K, return_std=True)


def test_numpy_pandas_torch_and_lists_agree(data):
    X, y = data
    reference = fitted(data).predict(X)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for inputs, targets in (
        (frame, pd.Series(y)),
        (torch.tensor(X, requires_grad=True), torch.tensor(y)),
        (X.tolist(), y.tolist()),
        (np.asfortranarray(X), y),
    ):
        np.testing.assert_allclose(fitted((inputs, targets)).predict(inputs), reference, rtol=1e-9)
    assert list(fitted((frame, y)).feature_names_in_) == ["a", "b"]


def test_single_precision_follows_double(data):
    options = {"max_iter": 15, "kernel": Gaussian(1.0), "alpha": 1e-2}
    double, single = fitted(data, **options), fitted(data, dtype="float32", **options)
    assert single.dual_coef_.dtype == np.float32
    np.testing.assert_allclose(single.objective_value_, double.objective_value_, rtol=1e-2)
    assert single.to_torch()(torch.from_numpy(data[0])).dtype == torch.float32


def test_short_forms_of_layers(data):
    """Every short form is the layer it stands for."""
    X, y = data
    options = {"alpha": 1e-2, "n_restarts": 1, "max_iter": 30, "random_state": 0, "tol": 1e-2}
    short = DeepKernelRegressor([2, ("rbf", 1)], Gaussian(1.0), criterion="loo", **options).fit(X, y)
    assert [type(layer.kernel) for layer in short.layers_] == [Polynomial, Gaussian]
    assert [layer.size for layer in short.layers_] == [2, 1]
    assert all(layer.alpha > 0 for layer in short.layers_)
    auto = DeepKernelRegressor(kernel=Gaussian(1.0), criterion="loo", **options).fit(X, y)
    assert [(layer.kernel.degree, layer.size) for layer in auto.layers_] == [(1, 2)]
    assert auto.layers_[0].kernel.gamma == pytest.approx(1 / (2 * X.var()))
    common = DeepKernelRegressor([(letters, 1)], Gaussian(1.0), criterion="loo", **options).fit(list("abcab"), y[:5])
    assert common.layers_[0].kernel == Callable(letters)
    wide = np.random.default_rng(0).normal(size=(20, 22))
    many = DeepKernelRegressor(kernel=Gaussian(3.0), criterion="loo", **options).fit(wide, wide[:, 0])
    assert many.layers_[0].size == 20
    assert DeepKernelRegressor(kernel=Callable(letters), alpha=0.1).fit(["a", "bc"], [0.0, 1.0]).layers_ == []


def test_vector_fields_obey_their_physics(rng):
    X = rng.uniform(-1, 1, (20, 2))
    Y = np.column_stack([-X[:, 1], X[:, 0]])
    model = fitted((X, Y), [], DivergenceFree(0.8), alpha=1e-4, fit_intercept=False)
    reference = OperatorRidge(DivergenceFree(0.8), alpha=1e-4, fit_intercept=False).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), atol=1e-6)
    np.testing.assert_allclose(
        model.predict(X, return_std=True)[1], reference.predict(X, return_std=True)[1], rtol=1e-6
    )
    with pytest.raises(ValueError, match="coupled, for which no intercept"):
        fitted((X, Y), [], DivergenceFree(0.8))


# -- the scikit-learn world -------------------------------------------------------------------------------------------
def test_grid_search_reaches_into_layers_and_kernel(data):
    X, y = data
    model = DeepKernelRegressor([AFFINE], Gaussian(1.0), alpha=1e-3, **QUICK)
    grid = {"layers__0__alpha": [1e-4, 1e4], "kernel__lengthscale": [0.5, 1.0]}
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert search.best_params_["layers__0__alpha"] == 1e-4  # the other holds the layer at zero
    assert len(set(search.cv_results_["mean_test_score"][:2])) == 2
    assert model.layers[0].alpha == AFFINE.alpha == 1e-3  # clones, not the layer that was given
    nested = clone(model).set_params(layers__0__kernel__coef0=2.0, kernel__lengthscale=3.0)
    assert nested.layers[0].kernel == Polynomial(1, coef0=2.0) and nested.kernel == Gaussian(3.0)
    assert nested.get_params()["layers__0__size"] == 2
    for wrong in ("layers__1__alpha", "layers__0__alfa", "layers__0"):
        with pytest.raises(ValueError, match="parameter"):
            clone(model).set_params(**{wrong: 1.0})
    with pytest.raises(ValueError, match="is a Layer"):
        DeepKernelRegressor([2]).set_params(layers__0__alpha=1.0)


def test_pipeline_pickle_and_clone(data):
    X, y = data
    model = make_pipeline(StandardScaler(), DeepKernelRegressor([AFFINE], alpha=1e-3, **QUICK)).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for a, b in zip(again[-1].predict(X, return_std=True), model[-1].predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    assert repr(clone(model)) == repr(model)


def test_same_seed_same_model(data):
    one, two, other = (fitted(data, random_state=seed, n_restarts=3, max_iter=10) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.predict(data[0]), two.predict(data[0]))
    assert not np.array_equal(one.predict(data[0]), other.predict(data[0]))
    for model in (one, two):
        assert model.history_[-1].value == pytest.approx(model.objective_value_, rel=1e-9)


def test_fit_changes_neither_arguments_nor_data(data):
    X, y = data[0].copy(), data[1].copy()
    layers, kernel = [Layer(Gaussian("median"), 2, operator=Dense(A)), (Polynomial(1), 2)], Gaussian("auto")
    model = DeepKernelRegressor(layers, kernel, criterion="loo", max_iter=2, n_restarts=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert model.layers is layers and layers[0] == Layer(Gaussian("median"), 2, operator=Dense(A))
    assert model.kernel is kernel and kernel == Gaussian("auto")
    np.testing.assert_array_equal(X, data[0])
    np.testing.assert_array_equal(y, data[1])
    assert isinstance(model.layers_[0].kernel.lengthscale, float)
    assert model.layers_[0].operator == Dense(A)
    before = model.predict(X)
    layers[0].operator.set_params(matrix=np.eye(2))
    np.testing.assert_array_equal(model.predict(X), before)


def test_refit_forgets_the_first_fit(data):
    X, y = data
    model = fitted(data)
    model.predict(X, return_std=True)
    model.fit(X[:20], y[:20])
    for a, b in zip(model.predict(X, True), fitted((X[:20], y[:20])).predict(X, True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_more_restarts_never_end_higher(data):
    one, many = fitted(data, n_restarts=1), fitted(data, n_restarts=8)
    assert many.objective_value_ <= one.objective_value_ * (1 + 1e-9)
    values = [entry.value for entry in many.history_]
    assert values == sorted(values, reverse=True) and many.history_[0].active == 8


# -- searches that end early ------------------------------------------------------------------------------------------
def test_an_unconverged_search_warns_and_keeps_the_best(data):
    with pytest.warns(ConvergenceWarning, match=r"inner layers: max_iter=2.*best restart is kept"):
        model = DeepKernelRegressor([AFFINE], alpha=1e-3, max_iter=2, random_state=0).fit(*data)
    assert model.n_iter_ == 2
    assert model.objective_value_ < model.history_[0].value
    assert np.isfinite(model.predict(data[0])).all()


class Watcher:
    """Counts iterations; stops or interrupts at one of them."""

    def __init__(self, at=None, interrupt=False):
        self.at, self.interrupt, self.iterations = at, interrupt, 0

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name != "iteration":
            return False
        self.iterations += 1
        if self.iterations == self.at and self.interrupt:
            raise KeyboardInterrupt
        return self.iterations == self.at


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_callback_ends_the_search(data, interrupt):
    watcher = Watcher(3, interrupt)
    model = DeepKernelRegressor([AFFINE], alpha=1e-3, n_restarts=1, random_state=0).set_callbacks(watcher)
    with pytest.warns(ConvergenceWarning, match="interrupt" if interrupt else "callback"):
        model.fit(*data)
    assert watcher.iterations == 3
    assert model.objective_value_ == pytest.approx(min(entry.value for entry in model.history_))
    assert np.isfinite(model.predict(data[0])).all()


def test_verbose_shows_progress_and_reasons(data, capsys):
    DeepKernelRegressor([AFFINE], alpha=1e-3, verbose=2, **QUICK).fit(*data)
    assert "objective" in capsys.readouterr().err
    DeepKernelRegressor([AFFINE], alpha=1e-3, **QUICK).fit(*data)
    assert capsys.readouterr() == ("", "")


# -- bad input --------------------------------------------------------------------------------------------------------
def _bad(data, message, error=ValueError, X=None, y=None, layers=(AFFINE,), alpha=1e-3, **arguments):
    layers = list(layers) if isinstance(layers, tuple) else layers
    model = DeepKernelRegressor(layers, alpha=alpha, **arguments)
    with pytest.raises(error, match=message):
        model.fit(data[0] if X is None else X, data[1] if y is None else y)


def test_errors_about_arguments(data):
    for name, words in (
        ("loss", "'squared', 'interpolate', 'epsilon_insensitive', 'huber' or a function of your own"),
        ("criterion", "'auto', 'validation', 'loo', 'gcv'"),
        ("dtype", "'float64', 'float32'"),
    ):
        _bad(data, f"{name} must be one of {words}; got 'best'", **{name: "best"})
    _bad(data, "alpha must be positive and finite", alpha=0.0)
    _bad(data, "alpha must be positive and finite", alpha=-1.0)
    _bad(data, "alpha must be positive and finite", alpha="best")
    _bad(data, "alpha must be positive and finite", alpha=np.inf)
    _bad(data, "epsilon must be a finite number that is not negative", epsilon=-0.1)
    _bad(data, "delta must be a finite number that is positive", delta=0.0)
    _bad(data, "separation must be a finite number", separation=np.nan)
    _bad(data, "separation=1.0 is for loss='interpolate'", separation=1.0)
    _bad(data, "fit_intercept must be True or False", fit_intercept="yes")
    _bad(data, "approximation must be None or Nystroem", approximation=100)
    _bad(data, "n_components of Nystroem must be an integer from 1", approximation=Nystroem(0))
    _bad(data, "max_iter must be an integer", max_iter=0)
    _bad(data, "n_restarts must be an integer", n_restarts=0)
    _bad(data, "verbose must be an integer", verbose=-1)
    _bad(data, "tol must be a positive number", tol=0)
    _bad(data, "is not to be had here", device="nowhere")
    _bad(data, "is not a kernel", kernel="gausian")
    _bad(data, "Expected `cv` as an integer", layers=[2], cv="five", criterion="validation")
    _bad(data, "cv must be at least 2 folds", cv=1)
    _bad(data, "libsvm, which always fits an intercept", loss="epsilon_insensitive", fit_intercept=False)
    _bad(data, "penalty= is for loss='squared'", loss="huber", penalty=lambda s: s)
    _bad(data, "penalty must be None or a function", penalty=3)
    _bad(data, "cannot be learned together with a penalty", penalty=lambda s: s, alpha="auto")
    _bad(data, "must increase strictly", penalty=lambda s: -s)


def test_errors_about_layers(data):
    _bad(data, "layers must be 'auto' or a list", layers=2)
    _bad(data, "layers must be 'auto' or a list", layers="three")
    _bad(data, "layers lists sizes, pairs", layers=["rbf"])
    _bad(data, "layers lists sizes, pairs", layers=[0])
    _bad(data, "layers lists sizes, pairs", layers=[("rbf", 2, 0.1)])
    _bad(data, "size of a layer must be a positive integer", layers=[("rbf", 2.5)])
    _bad(data, "kernel of a layer must be a kernel", layers=[(3, 2)])
    _bad(data, "'gausian' is not a kernel", layers=[("gausian", 2)])
    _bad(data, "alpha of Layer must be positive", layers=[Layer("rbf", 2, -1.0)])
    _bad(data, "alpha of Layer must be a number or one of: 'auto'", layers=[Layer("rbf", 2, "best")])
    _bad(data, "penalty of a layer must be None", layers=[Layer("rbf", 2, 0.1, penalty=3)])
    _bad(data, "must increase strictly", layers=[Layer("rbf", 2, 0.1, penalty=lambda s: -s)])
    _bad(data, "by torch operations", layers=[Layer("rbf", 2, 0.1, penalty=lambda s: s.detach() ** 2)])
    _bad(data, "which has 2 outputs", layers=[Layer(Separate([Linear(), Gaussian(1.0)]), 3, 0.1)])
    _bad(data, "there are 3 outputs", layers=[Layer(Gaussian(1.0), 3, 0.1, Dense(np.eye(2)))])
    _bad(data, "3 lengthscales, but the data have 2", layers=[AFFINE, Layer(Gaussian([1.0, 2.0, 3.0]), 2, 0.1)])
    _bad(data, "2 outputs on these inputs, but the targets have 1", kernel=Separate([Linear(), Linear()]))
    _bad(data, "2 outputs on these inputs, but the targets have 1", kernel=CurlFree(1.0), fit_intercept=False)
    for later in (Delta(), Callable(letters), Precomputed()):
        _bad(data, "Layer 1 of layers takes data of the kind", layers=[AFFINE, Layer(later, 2, 0.1)])
        _bad(data, "The outer kernel takes data of the kind", kernel=later)


def test_kernels_that_cut_off_gradients_are_refused(data):
    deaf = Pullback(Gaussian(1.0), lambda X: X.detach())
    _bad(data, "outer kernel .* is not differentiable", kernel=deaf)
    _bad(data, "layer after the first is not differentiable", layers=[AFFINE, Layer(deaf, 2, 0.1)])
    fitted(data, [Layer(deaf, 2, 0.1)], Gaussian(1.0), max_iter=3)  # nothing comes before the first


@pytest.mark.slow
def test_units_of_the_inputs_do_not_matter(data):
    X, y = data
    options = {
        "kernel": "rbf",
        "alpha": 1e-3,
        "n_restarts": 1,
        "max_iter": 30,
        "tol": 1e-2,
        "random_state": 0,
    }
    models = [DeepKernelRegressor([1], **options).fit(scale * X, y) for scale in (1.0, 1e-8, 1e8)]
    expected = models[0].predict(X)
    np.testing.assert_allclose(models[1].predict(1e-8 * X), expected, rtol=1e-3)
    np.testing.assert_allclose(models[2].predict(1e8 * X), expected, rtol=1e-3)
    for kernel in (Polynomial(1), Gaussian(1.0)):
        with pytest.warns(UserWarning, match="maps all samples to the same point.*Standardise X"):
            fitted((1e-9 * X, y), [Layer(kernel, 1, 1e-3)], max_iter=3)


def test_a_custom_loss_that_turns_nan_is_an_error_at_once(data):
    calls = []

    def breaking(F, Y):
        calls.append(F)
        return ((F - Y) ** 2).mean() * (1.0 if len(calls) <= 20 else torch.nan)

    _bad(data, "The custom loss is nan at values F between .* first for sample 0", loss=breaking)
    assert len(calls) < 100


def test_errors_about_custom_losses(data):
    _bad(data, "The custom loss at f = 0 is nan", loss=lambda F, Y: (-Y.abs() - 1).log().mean() + F.sum())
    _bad(data, "must return a tensor with one number, got shape", loss=lambda F, Y: (F - Y) ** 2)
    _bad(data, "does not depend on its argument", loss=lambda F, Y: Y.mean())
    _bad(data, "The custom loss was not minimised", NotConvergedError, loss=lambda F, Y: F.mean())
    _bad(data, "no criterion by which layers__0__alpha", layers=[2], loss=lambda F, Y: ((F - Y) ** 2).mean())
    _bad(data, "no criterion by which kernel__kernel__lengthscale", kernel=Gaussian("auto"), loss="interpolate")


def test_errors_about_what_does_not_go_together(data):
    _bad(data, "only squared loss has", layers=[2], loss="huber", criterion="loo")
    _bad(data, "needs a scalar outer kernel and at least one inner layer", layers=[], approximation=Nystroem(5))
    _bad(data, "needs a scalar outer kernel", kernel=Separate([Gaussian(1.0)]), approximation=Nystroem(5))
    _bad(data, "approximation= is for loss='squared'", loss="huber", approximation=Nystroem(5))
    _bad(data, "computed from targets", layers=[Layer(Gaussian(1.0), 2, 0.1, Covariance())])


def test_errors_about_data(data):
    X, y = data
    _bad(data, "y contains NaN, first in row 3", y=np.where(np.arange(30) == 3, np.nan, y))
    _bad(data, "contains NaN, first in row 4", y=np.column_stack([y, np.where(np.arange(30) == 4, np.nan, y)]))
    _bad(data, "contains infinity", y=np.where(np.arange(30) == 3, np.inf, y))
    _bad(data, "NaN", X=X + np.nan)
    _bad(data, "inconsistent numbers of samples: 30 and 29", y=y[:-1])
    _bad(data, "1 sample", X=X[:1], y=y[:1], alpha="auto")
    _bad(data, "0 sample", X=np.empty((0, 2)), y=np.empty(0))
    _bad(data, "X holds strings", X=X.astype(str))
    with pytest.raises(ValueError, match="expecting 2 features"):
        fitted(data, max_iter=2).predict(X[:, :1])
    for method in ("predict", "transform_layers"):
        with pytest.raises(NotFittedError):
            getattr(DeepKernelRegressor(), method)(X)
    with pytest.raises(NotFittedError):
        DeepKernelRegressor().deep_kernel_  # noqa: B018
    with pytest.raises(NotFittedError):
        DeepKernelRegressor().to_torch()


@pytest.mark.parametrize("criterion", tiers(["loo", "validation"], lambda criterion: criterion == "loo"))
def test_degenerate_data_give_finite_answers(rng, criterion):
    y = rng.normal(size=10)
    options = {"criterion": criterion, "n_restarts": 1, "random_state": 0}
    for X in (np.ones((10, 2)), np.repeat(rng.normal(size=(2, 2)), 5, 0), np.zeros((10, 1))):
        mean, std = DeepKernelRegressor(**options).fit(X, y).predict(X, return_std=True)
        assert np.isfinite(mean).all() and np.isfinite(std).all()
    for arguments, rtol in ({"layers": [1], "kernel": "rbf"}, 1e-7), ({}, 1e-5):  # the least alpha of a stack is tiny
        model = DeepKernelRegressor(**arguments, **options).fit(np.ones((10, 2)), y)
        np.testing.assert_allclose(model.predict([[1.0, 1.0]]), y.mean(), rtol=rtol)
    X = rng.normal(size=(10, 2))
    np.testing.assert_allclose(DeepKernelRegressor(**options).fit(X, np.ones(10)).predict(X), 1.0)
    two = DeepKernelRegressor(**options).fit(X[:2], y[:2])
    assert np.isfinite(two.predict(X)).all()
    one = DeepKernelRegressor([AFFINE], alpha=0.1).fit(X[:1], y[:1])
    np.testing.assert_allclose(one.predict(X), y[0])  # the intercept
