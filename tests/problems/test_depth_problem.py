"""Depth that the data decide: shallow stacks, a composition beside them, and what is asked of both."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from representer import DeepKernelRegressor, OperatorRidge
from representer.datasets import make_kink
from representer.functions import Composed, Layer
from representer.kernels import Gaussian, Matern, Polynomial, Stack
from representer.operators import Decomposable, Representation
from representer.optimize import SearchSettings
from representer.problems.composition import Composition, squared_loss
from representer.problems.deep import DeepModel, Splits
from representer.problems.depth import LightRegression, deepened
from representer.problems.stack import FittedMember, LeastSquares
from representer.samples import Block, InMemory


@pytest.fixture(scope="module")
def kink():
    X, y = make_kink(240, noise=0.1, random_state=0)
    return X[:80], y[:80], X[80:], y[80:]


@pytest.fixture(scope="module")
def deep(kink):
    X, y, _, _ = kink
    return DeepKernelRegressor(n_restarts=4, cv=3, random_state=0).fit(X, y)


def test_without_layers_it_is_the_stack_of_operator_ridge(kink):
    X, y, new, _ = kink
    model, ridge = (
        DeepKernelRegressor([], random_state=0).fit(X, y),
        OperatorRidge("auto", fit_intercept=True).fit(X, y),
    )
    np.testing.assert_allclose(model.predict(new), ridge.predict(new), rtol=1e-9)
    np.testing.assert_allclose(model.weights_, ridge.weights_)
    for values, expected in zip(model.predict(new, return_std=True), ridge.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert model.layers_ == [] and model.transform_layers(new) == []


def test_a_layer_is_accepted_where_it_pays(kink, deep):
    X, y, new, truth = kink
    shallow = DeepKernelRegressor([], random_state=0).fit(X, y)
    assert [layer.size for layer in deep.layers_] == [2]
    assert 1.0 - deep.score(new, truth) < 0.6 * (1.0 - shallow.score(new, truth))
    assert deep.criterion_value_ < shallow.criterion_value_
    np.testing.assert_allclose(deep.weights_.sum(0), 1.0)
    assert isinstance(deep.function_.functions[-1], Composed)
    assert "Composition" in repr(deep.members_)


def test_no_layer_is_accepted_where_nothing_can_be_learned():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    model = DeepKernelRegressor(n_restarts=1, cv=3, random_state=0).fit(X, y)
    new = rng.normal(size=(200, 3))
    assert np.std(model.predict(new)) < 0.5  # hardly more than a constant


def test_answers_of_a_stack_with_a_composition(kink, deep):
    X, _, new, truth = kink
    mean, deviation = deep.predict(new, return_std=True)
    parts = [f(new).numpy()[:, 0] for f in deep.function_.functions]
    np.testing.assert_allclose(mean, np.average(parts, axis=0, weights=deep.weights_))
    assert 0.2 < np.mean(((truth - mean) / deviation) ** 2) < 5.0
    np.testing.assert_allclose(deep.to_torch()(torch.from_numpy(new)).detach()[:, 0], mean)
    again = pickle.loads(pickle.dumps(deep))
    np.testing.assert_array_equal(again.predict(new, return_std=True), (mean, deviation))
    weighted = sum(
        w * f.kernel_of_data()(X[:4]) if isinstance(f, Composed) else w * f.kernel.kernel(X[:4])
        for f, w in zip(deep.function_.functions, deep.weights_.tolist(), strict=True)
    )
    np.testing.assert_allclose(deep.deep_kernel_(X[:4]), weighted)


def test_the_system_of_a_composition_is_that_of_its_deep_kernel(kink, deep):
    """The composition is ridge regression with a kernel of the data, which has the same equations."""
    X, y, new, _ = kink
    system, function = deep.system_.systems[-1], deep.function_.functions[-1]
    ridge = OperatorRidge(function.kernel_of_data(), alpha=float(system.alpha), fit_intercept=True).fit(X, y)
    np.testing.assert_allclose(function(new)[:, 0], ridge.predict(new), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(system.leverage(), ridge.system_.leverage(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(system.variance(new), ridge.system_.variance(new), rtol=1e-3, atol=1e-6)
    assert system.norm() == pytest.approx(ridge.system_.norm(), rel=1e-4)
    left_out = (values.numpy()[:, 0] for values in (system.left_out(), ridge.system_.left_out()))
    honest, fixed = (np.mean((values - y) ** 2) for values in left_out)
    assert honest > 0.9 * fixed  # leave-one-out with fixed layers, which have seen the sample, is the optimistic one


def test_samples_of_weight_zero_are_none(kink):
    X, y, new, _ = kink
    weights = np.ones(80)
    weights[::4] = 0.0
    options = {"n_restarts": 1, "cv": 3, "random_state": 0}
    model = DeepKernelRegressor(**options).fit(X, y, sample_weight=weights)
    without = DeepKernelRegressor(**options).fit(X[weights > 0], y[weights > 0])
    np.testing.assert_allclose(model.predict(new), without.predict(new), rtol=1e-4, atol=1e-4)
    assert model.system_.left_out().shape == (80, 1)


def test_a_composition_begins_as_the_best_shallow_fit():
    """An affine layer that divides by the lengthscales, before the same kernel of unit lengthscale."""
    block = Block(torch.zeros(30, 2), torch.zeros(30, 1))

    def member(kernel, error):
        return FittedMember(Decomposable(kernel), None, None, (block, torch.full((30, 1), error)), 2, 0.0)

    members = [member(Gaussian(3.0), 2.0), member(Matern(0.5, [2.0, 4.0]), 1.0)]
    (smooth, first), (rough, metric) = deepened(members, LeastSquares(), 2, "auto")
    assert smooth.kernel.kernel == Gaussian(1.0) and rough.kernel.kernel == Matern(0.5, 1.0)
    np.testing.assert_allclose([first, metric], [[1 / 3, 1 / 3], [0.5, 0.25]])
    ((alone, none),) = deepened(members[:1], LeastSquares(), 2, 0.5)
    assert alone.kernel.kernel == Gaussian(3.0) and none is None and alone.alpha == 0.5


def test_a_stack_of_outer_kernels_needs_layers_that_the_data_decide(kink):
    X, y, _, _ = kink
    stack = Stack([Gaussian(0.5), Matern(0.5, 1.0)])
    assert len(DeepKernelRegressor([], stack).fit(X, y).members_) == 2
    with pytest.raises(ValueError, match=r"A Stack of outer kernels needs layers='auto' or \[\]"):
        DeepKernelRegressor([2], stack).fit(X, y)


def test_interpolation_has_a_rough_kernel_and_reports_one_that_is_too_smooth(kink):
    X, y, new, truth = kink
    model = DeepKernelRegressor([], loss="interpolate").fit(X, y)
    assert model.kernel_.nu == 0.5 and model.score(new, truth) > 0.5
    with pytest.warns(UserWarning, match="too smooth"):
        DeepKernelRegressor([], Gaussian(0.4), loss="interpolate").fit(X, y)


@pytest.mark.slow
def test_units_of_the_features_hardly_matter_and_many_of_them_have_a_narrower_layer():
    """They matter as much as rounding matters to a search that ends early."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 22))
    y = X[:, 0] - X[:, 1] + 0.05 * rng.normal(size=40)
    units = 10.0 ** rng.integers(-3, 4, 22)
    options = {"n_restarts": 1, "cv": 2, "max_iter": 5, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model, other = (DeepKernelRegressor(**options).fit(own, y) for own in (X, X * units + units))
    new = rng.normal(size=(50, 22))
    assert np.corrcoef(model.predict(new), other.predict(new * units + units))[0, 1] > 0.98
    assert all(layer.size == 20 for layer in model.layers_)


@pytest.mark.parametrize(("n_features", "forgets"), [(8, True), (2, False)])
def test_refits_of_many_unknowns_do_not_begin_where_the_fit_to_all_samples_ended(n_features, forgets):
    """Few iterations would not forget the held-out samples; those of few unknowns converge from anywhere near."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(40, n_features)))
    y = torch.sin(X[:, :1] + X[:, 1:2])
    affine = Layer(Decomposable(Polynomial(1, gamma="scale")), n_features, 1e-2)
    composition = Composition([affine], Decomposable(Gaussian(1.0)), 1e-2)
    halves = [(torch.arange(0, 40, 2), torch.arange(1, 40, 2))]
    model = DeepModel(composition, squared_loss(True), lambda seen: Splits(torch.arange(40), lambda rows: halves))
    problem = LightRegression(InMemory(Block(X, y)), model, Representation(torch.float64, None))
    settings = SearchSettings(max_iter=1)
    assert problem.inner_is_small is not forgets
    images = [torch.from_numpy(rng.normal(size=(40, n_features))) for _ in range(2)]
    first, second = (next(iter(problem.refits(problem.start, [image], settings)))[0] for image in images)
    assert torch.allclose(first, second) is forgets
