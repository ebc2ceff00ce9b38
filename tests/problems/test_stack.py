"""Stacks: weights against SciPy's optimisers, left-out predictions against refits, members against themselves."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.base import clone, is_regressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    EmbeddingClassifier,
    OperatorRidge,
    StructuredPredictor,
    kernels,
    operators,
)
from representer.approximation import Falkon, Landmarks, Nystroem, RandomFeatures
from representer.functions import Stacked
from representer.kernels import (
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Precomputed,
    Spectrum,
    Stack,
    suggest,
)
from representer.operators import CurlFree, Decomposable, Dense
from representer.optimize import attraction, indifference, system_alpha
from representer.optimize.search import WEAK
from representer.problems.ridge import Search
from representer.problems.stack import (
    OPTIMISM,
    LeastSquares,
    LogLoss,
    StackProblem,
    mixture_weights,
    simplex_weights,
)
from representer.samples import Block, plain
from representer.systems import RidgeData

FIXED = Stack([Gaussian(1.3), Laplacian(2.0), Linear()], weights=[0.5, 0.3, 0.2], alphas=[0.01, 0.02, 0.1])
LEARNED = Stack([Gaussian("auto"), Laplacian(2.0)])
REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": "medians of distances do not know weights",
}
# Of OperatorRidge() alone, whose family of sparse rows has nothing but alphas to choose.
SPARSE = {
    "check_sample_weight_equivalence_on_sparse_data": "targets are random there, and alpha ends at either end of its "
    "range; test_weights_and_repetition_choose_the_same_alpha shows the equivalence where they are not"
}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(40, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]])
    return X, Y + 0.1 * rng.normal(size=Y.shape)


# -- weights ----------------------------------------------------------------------------------------------------------
def by_slsqp(missed, decorrelation):
    norms = (missed**2).sum(0)
    m = missed.shape[1]
    scale = norms.min()

    def loss(w):
        return (np.sum((missed @ w) ** 2) + decorrelation * norms @ w**2) / scale

    options = {"ftol": 1e-14, "maxiter": 1000}
    constraint = {"type": "eq", "fun": lambda w: w.sum() - 1}
    starts = [np.full(m, 1 / m), *np.eye(m)]
    results = [minimize(loss, w, bounds=[(0, 1)] * m, constraints=constraint, options=options) for w in starts]
    return min(results, key=lambda result: result.fun).x


@pytest.mark.parametrize("decorrelation", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("size", [(30, 2), (30, 6), (4, 5)])
def test_weights_are_those_of_a_general_optimiser(rng, size, decorrelation):
    for scale in (1e-6, 1.0, 1e6):
        common = rng.normal(size=(size[0], 1))
        missed = scale * (common + rng.normal(size=size) * rng.uniform(0.1, 3.0, size[1]))
        w = simplex_weights(missed, decorrelation)
        expected = by_slsqp(missed, decorrelation)
        assert (w >= 0).all() and w.sum() == pytest.approx(1.0, abs=1e-12)
        norms = (missed**2).sum(0)
        loss = [np.sum((missed @ v) ** 2) + decorrelation * norms @ v**2 for v in (w, expected)]
        assert loss[0] <= loss[1] * (1 + 1e-9)
        if decorrelation:
            np.testing.assert_allclose(w, expected, atol=1e-5)


def test_many_residuals_are_believed(rng):
    scales = np.array([0.5, 1.0, 1.2])
    residuals = [rng.normal(size=(n, 1)) * scales + 0.1 * rng.normal(size=(n, 3)) for n in (100, 20_000)]
    few, many = map(simplex_weights, residuals)
    assert few[0] < 0.8 and many[0] > 0.95  # residuals that nearly agree but for their size: the smallest are best


def test_members_of_fixed_kernels_are_believed_more_than_those_that_learned(rng):
    """Weights of kernels that learn nothing but alpha are nearly least squares; one that learns brings λ back."""
    X = rng.normal(size=(150, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=150)
    fixed = OperatorRidge(Stack([Gaussian(0.5), Gaussian(30.0)])).fit(X, y)
    missed = np.column_stack([member - y for member in _left_out(fixed, X, y)])
    np.testing.assert_allclose(fixed.weights_, by_slsqp(missed, 1.0 / 150), atol=1e-4)
    learned = OperatorRidge(Stack([Gaussian(0.5), Gaussian("auto")])).fit(X, y)
    assert learned.weights_.min() > 0.1


def _left_out(model, X, y):
    """The left-out predictions of each member, by the closed form of kernel ridge regression with a constant."""
    n, one = len(X), np.ones((len(X), 1))
    for kernel, alpha in zip(model.kernel_.kernels, model.kernel_.alphas, strict=True):
        gram = kernel(torch.from_numpy(X), torch.from_numpy(X)).numpy() + n * float(alpha) * np.eye(n)
        inverse = np.linalg.inv(np.block([[gram, one], [one.T, np.zeros((1, 1))]]))[:n, :n]
        yield y - (inverse @ y) / np.diag(inverse)


def test_members_that_miss_nothing_share_the_weight(rng):
    missed = np.column_stack([rng.normal(size=10), np.zeros(10), np.zeros(10)])
    assert simplex_weights(missed).tolist() == [0.0, 0.5, 0.5]


def test_weights_do_not_depend_on_the_order_and_know_missing_targets_and_weights(rng):
    Y = torch.from_numpy(rng.normal(size=(25, 2)))
    P = torch.from_numpy(rng.normal(size=(4, 25, 2)))
    w = torch.from_numpy(rng.integers(1, 4, 25).astype(float))
    optimism = np.array([1.0, 1.2, 1.0, 1.5])
    weights = LeastSquares().weights(P, Block(None, Y, w), [], optimism)
    assert weights.shape == (4, 2)
    np.testing.assert_allclose(weights.sum(0), 1.0)
    order = [2, 0, 3, 1]
    permuted = LeastSquares().weights(P[order], Block(None, Y, w), [], optimism[order])
    np.testing.assert_allclose(permuted, weights[order], atol=1e-12)
    index = np.repeat(np.arange(25), w.numpy().astype(int))
    repeated = LeastSquares().weights(P[:, index], Block(None, Y[index]), [], optimism)
    np.testing.assert_allclose(repeated, weights, atol=1e-10)
    gaps = Y.clone()
    gaps[::3, 0] = torch.nan
    known = LeastSquares().weights(P, Block(None, gaps), [], optimism)
    there = ~gaps[:, 0].isnan()
    alone = LeastSquares().weights(P[:, there][..., :1], Block(None, Y[there][:, :1]), [], optimism)
    np.testing.assert_allclose(known[:, :1], alone, atol=1e-12)


def test_weights_of_a_mixture_are_those_of_a_general_optimiser(rng):
    losses = rng.exponential(size=(4, 30)) * np.array([[0.5], [1.0], [1.0], [3.0]])
    shares, prior = rng.integers(1, 4, 30).astype(float), np.array([4.0, 1.0, 2.0, 3.0])

    def loss(w):
        return -shares @ np.log(w @ np.exp(-losses)) - prior @ np.log(w)

    constraint = {"type": "eq", "fun": lambda w: w.sum() - 1}
    expected = minimize(loss, prior / 10, bounds=[(1e-6, 1)] * 4, constraints=constraint, options={"ftol": 1e-14}).x
    weights = mixture_weights(losses, shares, prior)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    index = np.repeat(np.arange(30), shares.astype(int))
    np.testing.assert_allclose(mixture_weights(losses[:, index], np.ones(len(index)), prior), weights, atol=1e-12)
    order = [2, 0, 3, 1]
    np.testing.assert_allclose(mixture_weights(losses[order], shares, prior[order]), weights[order], atol=1e-12)


def test_weights_of_classes_begin_with_inverse_cross_entropies_and_believe_many_samples(rng):
    def weights_of(n, scale=1.0):
        Y = torch.eye(3, dtype=torch.float64)[torch.arange(n) % 3]
        noise = torch.from_numpy(rng.normal(size=(2, n, 3)))
        estimates = [Y + 0.5 * noise[0], Y + 0.5 * noise[0] + noise[1]]  # the second adds nothing to the first
        block = Block(None, Y, torch.full((n,), scale, dtype=torch.float64))
        losses = [LogLoss().losses(own, block) for own in estimates]
        errors = np.array([LogLoss().error(own, block) for own in estimates])
        np.testing.assert_allclose(errors, [float(own.mean()) for own in losses], rtol=1e-12)
        weights = LogLoss().weights(torch.stack(estimates), block, losses, np.ones(2))[:, 0]
        return weights, (1 / errors) / (1 / errors).sum()

    few, inverse = weights_of(9)
    np.testing.assert_allclose(few, inverse, atol=0.1)
    many, inverse = weights_of(2000, scale=7.0)  # the unit of sample weights means nothing
    assert inverse[0] < 0.85 and many[0] > 0.95


# -- the stack of regressions -----------------------------------------------------------------------------------------
def parts(**options):
    return [
        OperatorRidge(kernel, alpha=alpha, fit_intercept=True, **options)
        for kernel, alpha in zip(FIXED.kernels, FIXED.alphas, strict=True)
    ]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_left_out_predictions_are_those_of_refits(data, rng, grouped, missing):
    X, Y = data
    w = rng.uniform(0.5, 2.0, len(X))
    if missing:
        Y[::5, 0] = np.nan
    groups = np.arange(40) // 4 if grouped else None
    model = OperatorRidge(FIXED, fit_intercept=True).fit(X, Y, sample_weight=w, groups=groups)
    numbers = np.arange(40) if groups is None else groups
    for group in np.unique(numbers)[::3]:
        rest, own = numbers != group, numbers == group
        total = w[rest].sum() / w.sum()  # alpha stands beside the mean loss: n·alpha stays
        alphas = [alpha / total for alpha in FIXED.alphas]
        refit = OperatorRidge(Stack(FIXED.kernels, FIXED.weights, alphas), fit_intercept=True)
        refit.fit(X[rest], Y[rest], sample_weight=w[rest])
        np.testing.assert_allclose(model.loo_predict_[own], refit.predict(X[own]), atol=1e-8)


def test_a_stack_is_the_weighted_sum_of_its_members(data):
    X, Y = data
    model = OperatorRidge(FIXED, fit_intercept=True).fit(X, Y)
    members = [member.fit(X, Y) for member in parts()]
    mean = sum(w * member.predict(X) for w, member in zip(FIXED.weights, members, strict=True))
    np.testing.assert_allclose(model.predict(X), mean, atol=1e-10)
    np.testing.assert_allclose(
        model.loo_predict_, sum(w * m.loo_predict_ for w, m in zip(FIXED.weights, members, strict=True)), atol=1e-10
    )
    b = sum(w * member.intercept_ for w, member in zip(FIXED.weights, members, strict=True))
    np.testing.assert_allclose(model.intercept_, b, atol=1e-10)
    terms = model.function_.contributions(X[:5]).numpy()
    assert terms.shape == (5, 40, 2)
    np.testing.assert_allclose(terms.sum(1) + model.intercept_, model.predict(X[:5]), atol=1e-8)
    norms = [member.function_.norm() for member in members]
    assert model.function_.norm() == pytest.approx(np.dot(FIXED.weights, norms))
    assert model.system_.norm() == pytest.approx(np.dot(FIXED.weights, norms))
    assert model.system_.residual() < 1e-10
    leverage = sum(w * m.system_.leverage() for w, m in zip(FIXED.weights, members, strict=True))
    np.testing.assert_allclose(model.system_.leverage(), leverage, atol=1e-10)
    with pytest.raises(ValueError, match="no coefficients of its own"):
        model.system_.coefficients()
    with pytest.raises(AttributeError, match=r"function_\.functions"):
        model.dual_coef_  # noqa: B018


def test_a_stack_of_one_member_is_the_member(data):
    X, Y = data
    alone = OperatorRidge(Gaussian("auto"), fit_intercept=True).fit(X, Y)
    stack = OperatorRidge(Stack([Gaussian("auto")]), fit_intercept=True).fit(X, Y)
    np.testing.assert_allclose(stack.weights_, 1.0)
    np.testing.assert_allclose(stack.predict(X), alone.predict(X), atol=1e-10)
    assert stack.kernel_.kernels[0] == alone.kernel_ and stack.alpha_[0] == alone.alpha_
    new = np.linspace(-2, 2, 12).reshape(4, 3)
    ratio = stack.predict(new, return_std=True)[1] / alone.predict(new, return_std=True)[1]
    np.testing.assert_allclose(ratio, 1.0 + OPTIMISM * 2 / 40, atol=1e-8)  # two numbers were learned


def test_lengthscales_that_the_data_do_not_decide_stay_near_them(rng):
    """A linear function: a wider kernel is as good as a wide one."""
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, 0.5, 0.0] + 0.5 * rng.normal(size=60)
    model = OperatorRidge().fit(X, y)
    widths = [np.max(member.kernel.kernel.lengthscale) for member in model.members_ if member.learned > 1]
    assert len(widths) == 5 and max(widths) < 200.0
    new, scale, order = rng.normal(size=(5, 3)), np.array([1e3, -1e-4, 7.0]), [2, 0, 1]
    rescaled = OperatorRidge().fit(scale * X + 5.0, y).predict(scale * new + 5.0)
    permuted = OperatorRidge().fit(X[:, order], y).predict(new[:, order])
    np.testing.assert_allclose(rescaled, model.predict(new), rtol=0, atol=1e-8)
    np.testing.assert_allclose(permuted, model.predict(new), rtol=0, atol=1e-8)


def test_attraction_is_a_normal_prior_around_where_the_data_put_them():
    moved = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    precision = 4.0 * (np.eye(3) - np.full((3, 3), 1 / 3)) + WEAK * np.full((3, 3), 1 / 9)
    assert attraction(moved, 4.0).item() == pytest.approx(moved.numpy() @ precision @ moved.numpy())
    assert attraction(moved[:1], 4.0).item() == pytest.approx(WEAK * 0.25)


def test_alpha_is_where_noise_is_as_large_as_the_kernel_if_nothing_else_decides_it(rng):
    X, Y = torch.zeros(20, 2).double(), torch.from_numpy(rng.normal(size=(20, 1)))  # any alpha fits a constant
    data = RidgeData(Decomposable(3.0 * Gaussian(1.0)), X, Y, torch.ones(20).double(), intercept=True)
    alpha, value = system_alpha(data)
    assert alpha == pytest.approx(3.0 / 20, rel=0.1)
    assert value == pytest.approx(float(Y.var()) * 20 / 19)


def test_units_and_repetition_do_not_matter_to_alpha(rng):
    X, Y = torch.from_numpy(rng.normal(size=(20, 2))), torch.from_numpy(rng.normal(size=(20, 1)))
    one = RidgeData(Decomposable(Gaussian(1.0)), X, Y, torch.ones(20).double(), groups=torch.arange(20))
    alpha, value = system_alpha(one)
    scaled, squared = system_alpha(replace(one, kernel=Decomposable(7.0 * Gaussian(1.0)), Y=3.0 * Y))
    assert (scaled, squared) == pytest.approx((7.0 * alpha, 9.0 * value))
    assert system_alpha(one.rows(torch.arange(20).repeat(2))) == pytest.approx((alpha, value))
    unit, n = one.alpha_unit()
    assert value * math.exp(indifference(torch.tensor(alpha), unit, n)) == pytest.approx(
        min(
            float(one.path(torch.tensor([a]).double())) * math.exp(0.01 * math.log(a * 20.0) ** 2 / 20)
            for a in np.geomspace(alpha / 3, 3 * alpha, 200)
        ),
        rel=1e-4,
    )


def test_the_learned_stack_makes_the_same_model_again(data):
    X, Y = data
    model = OperatorRidge("auto", fit_intercept=True, random_state=0).fit(X, Y)
    again = OperatorRidge(model.kernel_, fit_intercept=True).fit(X, Y)
    np.testing.assert_allclose(again.predict(X), model.predict(X), atol=1e-10)
    names = {**vars(kernels), **vars(operators)}
    assert again.kernel_ == model.kernel_ and eval(repr(model.kernel_), names) == model.kernel_
    assert model.weights_.shape == (8, 2) and (model.weights_ >= 0).all()
    np.testing.assert_allclose(model.weights_.sum(0), 1.0)
    assert model.kernel_.free() == [] and len(model.members_) == 8 and model.alpha_.shape == (8,)
    assert repr(model.members_).splitlines()[0].split() == ["weight", "error", "learned", "alpha", "seconds", "kernel"]
    assert [member.learned for member in model.members_] == [2, 2, 2, 1, 4, 4, 4, 4]
    assert model.criterion_value_ < max(member.score for member in model.members_)
    same = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    np.testing.assert_array_equal(same.loo_predict_, model.loo_predict_)
    assert isinstance(same.function_, Stacked) and clone(model).kernel == "auto"


def test_the_order_of_members_does_not_matter(data):
    X, Y = data
    kernels = [Gaussian("auto"), Laplacian("auto"), Linear()]
    one = OperatorRidge(Stack(kernels), fit_intercept=True).fit(X, Y)
    two = OperatorRidge(Stack(kernels[::-1]), fit_intercept=True).fit(X, Y)
    np.testing.assert_allclose(one.weights_, two.weights_[::-1], atol=1e-10)
    np.testing.assert_allclose(one.predict(X), two.predict(X), atol=1e-10)


def test_samples_of_weight_zero_are_none(data):
    X, Y = data
    w = np.ones(40)
    w[::4] = 0.0
    weighted = OperatorRidge(LEARNED, fit_intercept=True).fit(X, Y, sample_weight=w)
    without = OperatorRidge(LEARNED, fit_intercept=True).fit(X[w > 0], Y[w > 0])
    np.testing.assert_allclose(weighted.weights_, without.weights_, atol=1e-6)
    np.testing.assert_allclose(weighted.predict(X), without.predict(X), atol=1e-6)
    np.testing.assert_allclose(weighted.loo_predict_[w == 0], weighted.predict(X)[w == 0], atol=1e-10)
    deviations = [model.predict(X, return_std=True)[1] for model in (weighted, without)]
    np.testing.assert_allclose(*deviations, rtol=1e-6)


def test_deviations_cover_and_grow_where_members_disagree():
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = OperatorRidge("auto", fit_intercept=True).fit(X[:150], y[:150])
    mean, std = model.predict(X[150:], return_std=True)
    assert 0.85 < np.mean(np.abs(y[150:] - mean) < 1.645 * std) < 0.97
    far = model.predict(X[150:151] + 30.0, return_std=True)[1]
    assert far > 2 * std.max()
    variance = model.system_.variance(X[150:160]).sqrt().numpy()[:, 0]
    assert (variance > 0).all() and (variance < std[:10]).all()


def test_large_exact_stacks_search_on_a_part(data, monkeypatch):
    X, Y = data
    from representer.samples import rows

    whole = OperatorRidge(LEARNED, fit_intercept=True, random_state=0).fit(X, Y)
    monkeypatch.setattr(rows, "STACK_ROWS", 20)
    model = OperatorRidge(LEARNED, fit_intercept=True, random_state=0).fit(X, Y)
    assert model.kernel_ != whole.kernel_ and model.loo_predict_.shape == Y.shape
    assert np.mean((model.loo_predict_ - Y) ** 2) < 2 * np.mean((whole.loo_predict_ - Y) ** 2)


def test_approximations_and_batches(data):
    X, Y = data
    stack = Stack([Gaussian(1.3), Laplacian(2.0)])
    options = {"fit_intercept": True, "approximation": Landmarks(X[:15])}
    model = OperatorRidge(stack, **options).fit(X, Y)
    assert model.landmarks_.shape == (15, 3) and model.approximation_error_ > 0
    assert model.predict(X, return_std=True)[1].shape == Y.shape
    fixed = Stack(stack.kernels, model.weights_, model.alpha_)
    batches = OperatorRidge(fixed, **options)
    for rows in np.split(np.arange(40), 4):
        batches.partial_fit(X[rows], Y[rows])
    np.testing.assert_allclose(batches.predict(X), model.predict(X), atol=1e-7)
    assert batches.n_samples_seen_ == 40 and batches.X_fit_ is None
    whole = OperatorRidge("auto", fit_intercept=True, approximation=Nystroem(20), random_state=0).fit(X, Y)
    assert whole.score(X, Y) > 0.5
    drawn = OperatorRidge("auto", fit_intercept=True, approximation=RandomFeatures(60), random_state=0).fit(X, Y)
    assert len(drawn.members_) == 5 and drawn.score(X, Y) > 0.5  # a straight line has no random features
    with pytest.raises(ValueError, match="solver='direct'"):
        OperatorRidge(stack, approximation=Nystroem(20), solver=Falkon()).fit(X, Y)


def test_dask_collections(data):
    da = pytest.importorskip("dask.array")
    X, Y = data
    options = {"fit_intercept": True, "approximation": Landmarks(X[:15])}
    local = OperatorRidge(Stack([Gaussian(1.3), Laplacian(2.0)]), **options).fit(X, Y)
    lazy = OperatorRidge(Stack([Gaussian(1.3), Laplacian(2.0)]), **options)
    lazy.fit(da.from_array(X, chunks=(10, 3)), da.from_array(Y, chunks=(10, 2)))
    np.testing.assert_allclose(lazy.weights_, local.weights_, atol=1e-6)
    predicted = lazy.predict(da.from_array(X, chunks=(10, 3)))
    np.testing.assert_allclose(predicted.compute(), local.predict(X), atol=1e-6)


def test_operators_are_those_of_all_members(data):
    X, Y = data
    A = Dense([[1.0, 0.4], [0.4, 0.8]])
    model = OperatorRidge(FIXED, operator=A, fit_intercept=True).fit(X, Y)
    assert model.operator_ == A and isinstance(model.kernel_.kernels[0], Gaussian)
    learned = OperatorRidge(Stack([Gaussian(1.0), Linear()]), operator="learn", fit_intercept=True).fit(X, Y)
    assert all(isinstance(own, Decomposable) for own in learned.kernel_.kernels)  # each has learned its own
    assert learned.operator_ == [own.operator for own in learned.kernel_.kernels]
    again = OperatorRidge(learned.kernel_, fit_intercept=True).fit(X, Y)
    np.testing.assert_allclose(again.predict(X), learned.predict(X), atol=1e-8)


def test_other_data_are_stacked_too(data):
    X, Y = data
    words = ["".join("ab"[int(v > 0)] for v in row) * 2 for row in np.tile(X, 2)]
    model = OperatorRidge(Stack([Spectrum(1), Spectrum(2)]), fit_intercept=True).fit(words, Y)
    assert model.predict(words).shape == Y.shape
    gram = Gaussian(1.0)(X).numpy()
    pairwise = OperatorRidge(Stack([Precomputed(), Precomputed()]), alpha=0.1).fit(gram, Y)
    single = OperatorRidge("precomputed", alpha=0.1).fit(gram, Y)
    np.testing.assert_allclose(pairwise.predict(gram), single.predict(gram), atol=1e-10)


# -- the stack of classes ---------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, y, EmbeddingClassifier("auto").fit(X[::2], y[::2])


def test_classes_are_told_apart(iris):
    X, y, model = iris
    p = model.predict_proba(X[1::2])
    np.testing.assert_allclose(p.sum(1), 1.0)
    single = EmbeddingClassifier("rbf").fit(X[::2], y[::2])
    assert log_loss(y[1::2], p) < log_loss(y[1::2], single.predict_proba(X[1::2]))
    assert (model.predict(X) == model.classes_[model.predict_proba(X).argmax(1)]).all()
    assert model.weights_.shape == (6,) and model.weights_.sum() == pytest.approx(1.0)
    assert model.loo_estimates_.shape == (75, 3) and "Laplacian" in repr(model.members_)
    with pytest.raises(AttributeError, match="kernels"):
        model.dual_coef_  # noqa: B018
    with pytest.raises(ValueError, match="one kernel"):
        EmbeddingClassifier(LEARNED, fit_intercept=False).fit(X, y).risk_bound()


def test_the_learned_stack_of_classes_makes_the_same_model_again(iris):
    X, y, model = iris
    again = EmbeddingClassifier(model.kernel_).fit(X[::2], y[::2])
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-8)
    same = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(same.predict_proba(X), model.predict_proba(X))


def test_estimates_of_classes_are_weighted_sums(iris):
    X, y, model = iris
    total = np.zeros((len(X), 3))
    for kernel, alpha, w in zip(model.kernel_.kernels, model.alpha_, model.weights_, strict=True):
        member = EmbeddingClassifier(kernel, alpha=float(alpha)).fit(X[::2], y[::2])
        total += w * member.embedding(X)
    np.testing.assert_allclose(model.embedding(X), total, atol=1e-10)


def test_classes_with_groups_weights_and_approximations(iris):
    X, y, _ = iris
    w, groups = np.linspace(0.5, 1.5, 150), np.arange(150) // 3
    exact = EmbeddingClassifier(LEARNED).fit(X, y, sample_weight=w, groups=groups)
    assert exact.score(X, y) > 0.9
    options = {"approximation": Landmarks(X[::5]), "random_state": 0}
    model = EmbeddingClassifier(Stack([Gaussian(1.0), Laplacian(2.0)], [0.5, 0.5], [1e-3, 1e-3]), **options).fit(X, y)
    batches = clone(model)
    for rows in np.split(np.random.default_rng(0).permutation(150), 3):
        batches.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    np.testing.assert_allclose(batches.embedding(X), model.embedding(X), atol=1e-7)
    assert batches.predict_proba(X).shape == (150, 3)


# -- the value --------------------------------------------------------------------------------------------------------
def test_a_stack_is_a_value(data):
    X, Y = data
    stack = Stack([Gaussian("auto"), Matern(0.5, 2.0)], weights=np.array([0.25, 0.75]))
    assert eval(repr(stack)) == stack == clone(stack) and stack != Stack([Gaussian("auto")])
    assert stack.get_params()["kernels__1__lengthscale"] == 2.0 and stack.domain == "vectors"
    model = OperatorRidge(stack).set_params(kernel__kernels__1__lengthscale=3.0)
    assert model.kernel.kernels[1] == Matern(0.5, 3.0)
    grid = {"operatorridge__kernel": [LEARNED, "rbf"]}
    search = GridSearchCV(make_pipeline(StandardScaler(), OperatorRidge()), grid, cv=2).fit(X, Y)
    assert search.best_score_ > 0


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        (Stack([]), "a list of kernels"),
        (Stack(["rbf"]), "a list of kernels"),
        (Stack([Stack([Linear()])]), "a list of kernels"),
        (Stack([Linear(), Gaussian(1.0)], weights=[0.5, 0.6]), "sum to one"),
        (Stack([Linear(), Gaussian(1.0)], weights=[1.0]), "each of the 2 kernels"),
        (Stack([Linear(), Gaussian(1.0)], alphas=[1.0, -1.0]), "positive numbers"),
        (Stack([Linear(), Gaussian(1.0)], alphas=[1.0]), "each of the 2 kernels"),
        (Stack([Linear(), Spectrum(2)]), "same kind of data"),
        (Stack([Gaussian(-1.0)]), "lengthscale of Gaussian"),
    ],
)
def test_bad_stacks_are_refused(data, stack, message):
    with pytest.raises(ValueError, match=message):
        OperatorRidge(stack).fit(*data)


@pytest.mark.parametrize(
    "learner", tiers([ConditionalMeanEmbedding, StructuredPredictor], lambda own: own is StructuredPredictor)
)
def test_learners_of_one_kernel_take_the_best_of_a_family(data, learner):
    X, Y = data
    model, several = learner().fit(X, Y), suggest(X).kernel.kernels
    values = []
    for kernel in several:
        learned = {"auto": 1, "ard": X.shape[1]}.get(getattr(kernel.kernel, "lengthscale", ""), 0)
        alone = learner(kernel).fit(X, Y)
        values.append((alone.criterion_value_ * (1 + OPTIMISM * learned / len(X)) ** 2, type(alone.kernel_.kernel)))
    assert type(model.kernel_.kernel) is min(values, key=lambda pair: pair[0])[1]
    with pytest.raises(ValueError, match="several kernels"):
        learner(LEARNED).fit(X, Y)
    fixed = learner(model.kernel_, alpha=model.alpha_).fit(X, Y)
    np.testing.assert_allclose(fixed.predict(X), model.predict(X), atol=1e-8)


def test_sums_of_stacks_are_refused(data):
    with pytest.raises(ValueError, match="operator-valued"):
        OperatorRidge(Stack([CurlFree(1.0)]), approximation=Nystroem(5), operator=Dense(np.eye(2))).fit(*data)


def _expected(model):
    return (
        {} if model.kernel == FIXED else REPEATED | (SPARSE if model.kernel == "auto" and is_regressor(model) else {})
    )


@parametrize_with_checks([OperatorRidge(FIXED, fit_intercept=True)], expected_failed_checks=_expected)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# How long a search goes on is nothing that the contract speaks of.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:The search over hyperparameters ended at a bound")
@parametrize_with_checks(
    [OperatorRidge(), EmbeddingClassifier(Stack([Gaussian("auto"), Linear()]), max_iter=2, tol=0.1)],
    expected_failed_checks=_expected,
)
def test_scikit_learn_contract_of_searched_stacks(estimator, check):
    check(estimator)


def test_an_output_that_cannot_be_left_out_has_equal_weights(data):
    X, _ = data
    few = np.array([[np.nan, 1.0], [2.0, 3.0]])
    model = OperatorRidge(Stack([Linear(), Gaussian(1.0)]), alpha=0.1).fit(X[:2], few)
    np.testing.assert_allclose(model.weights_[:, 0], [0.5, 0.5])
    assert np.isfinite(model.predict(X)).all()


def test_lengthscales_of_features_are_searched_from_one_for_all(data, monkeypatch):
    """So a kernel with one for each feature never ends above the same kernel with one for all."""
    X, Y = data
    members = Stack([Gaussian("auto"), Laplacian("auto"), Laplacian("ard"), Gaussian("ard")])
    seen = []
    near = Search.near

    def watched(self, choice):
        search = near(self, choice)
        values = search.data.kernel.hyperparameter_values()["kernel__lengthscale"]
        known = choice.model.hyperparameter_values()["kernel__lengthscale"]
        assert values.shape == (3,) and known.numel() == 1
        np.testing.assert_allclose(values, known.expand(3))
        start = search.start("loo")
        value = search.value_and_gradient(start[None], "loo")[0] - search._penalty(start, *search.unpack(start))
        seen.append((float(value), choice.value))
        return search

    monkeypatch.setattr(Search, "near", watched)
    model = OperatorRidge(members, fit_intercept=True).fit(X, Y)
    assert len(seen) == 2
    np.testing.assert_allclose([np.exp(value) for value, _ in seen], [value for _, value in seen], rtol=1e-6)
    scores = [member.score for member in model.members_]
    assert scores[2] < scores[1] and scores[3] < scores[0]


# -- members by likelihood --------------------------------------------------------------------------------------------
def default_problems(X, y, model=None, **fit):
    """The problems of the members of a default fit, whose search is not made."""
    seen = []

    class Seen(Exception):  # noqa: N818
        pass

    def choose(self, settings):
        seen.extend(self.problems)
        raise Seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackProblem, "choose", choose)
        with pytest.raises(Seen):
            (OperatorRidge() if model is None else model).fit(X, y, **fit)
    return seen


def kinds(problems):
    """The kernels without what prepares their inputs; those of likelihood have a star."""
    scalars = [own.model.kernel.kernel for own in problems]
    pairs = zip(scalars, problems, strict=True)
    return [f"{getattr(k, 'kernel', k)!r}" + "*" * own.model.likelihood for k, own in pairs]


def test_a_lengthscale_for_each_feature_is_searched_by_likelihood(rng):
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    built = [
        "Laplacian(lengthscale='auto')",
        "Gaussian(lengthscale='auto')",
        "Linear()",
        "Gaussian(lengthscale='ard')",
        "Laplacian(lengthscale='ard')*",
        "Gaussian(lengthscale='ard')*",
    ]
    assert kinds(default_problems(X, y)) == built
    holes = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    assert [name.endswith("*") for name in kinds(default_problems(holes, y))] == [False] * 4 + [True] * 2
    twice = np.repeat(np.arange(30), 2)
    assert kinds(default_problems(X[twice], y[twice])) == built  # they are left out together, and stand for one
    assert kinds(default_problems(X, y, groups=rng.permutation(30))) == built  # groups of one sample join nothing


def test_where_likelihood_means_something_else_left_out_samples_choose(rng):
    """Groups of a user are no replicates; outputs, stated alphas, features and other criteria have other searches."""
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    names = kinds(default_problems(X, y, groups=np.arange(30) // 3))
    assert "Matern(nu=0.5, lengthscale='auto')" in names
    others = [OperatorRidge(alpha=0.1), OperatorRidge(criterion="gcv"), OperatorRidge(approximation=Nystroem(10))]
    cases = [default_problems(X, y, model) for model in others]
    cases += [default_problems(X, y, groups=np.arange(30) // 3), default_problems(X, np.column_stack([y, y**2]))]
    cases += [default_problems(X, y, OperatorRidge(Stack([Laplacian("ard"), Gaussian("ard")])))]
    cases += [default_problems(X[:4], y[:4]), default_problems(X, 0.0 * y + 1.0)]
    assert not any(own.model.likelihood for problems in cases for own in problems)


def test_numbers_that_the_likelihood_has_learned_make_residuals_less_optimistic(rng):
    X = rng.normal(size=(60, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=60)
    model = OperatorRidge().fit(X, y)
    left = np.column_stack([plain(own.left_out_sample()[1])[:, 0] for own in model.system_.systems])
    missed = model._unit * left - y[:, None]
    factors = 1.0 + np.array([4 * 2, 4 * 2, 4 * 1, 4 * 4, 1 * 4, 1 * 4]) / 60
    np.testing.assert_allclose(model.weights_, simplex_weights(missed * factors), atol=1e-8)
    assert [member.learned for member in model.members_] == [2, 2, 1, 4, 4, 4]


def test_the_likelihood_finds_the_features_that_matter(rng):
    """One of six features matters, and there is much noise: left-out residuals are not sure of that."""
    X = rng.normal(size=(80, 6))
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=80)
    members = OperatorRidge().fit(X, y).members_
    by_residuals, by_likelihood = (np.asarray(members[i].kernel.kernel.lengthscale) for i in (3, 5))
    assert by_likelihood[0] < 0.2 * by_likelihood[1:].min() and by_residuals[0] > 0.5 * by_residuals[1:].min()
