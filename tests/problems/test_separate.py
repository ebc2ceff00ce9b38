"""Members with kernels of each output: against fits to single outputs, and beside the fits to all outputs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from representer import DeepKernelClassifier, DeepKernelRegressor, OperatorRidge, load
from representer.approximation import Nystroem
from representer.kernels import Gaussian, Laplacian, Linear, Stack, suggest, unscaled
from representer.operators import Decomposable, Representation, Separate
from representer.optimize import SearchSettings
from representer.problems import separate
from representer.problems.ridge import RidgeModel, RidgeProblem
from representer.problems.separate import SeparateProblem, separate_problems
from representer.problems.stack import SHRINKAGE, LeastSquares, StackProblem
from representer.samples import Block, InMemory
from representer.systems.ridge import FittedSystem

SETTINGS = SearchSettings("loo", 60, 1e-4)


@pytest.fixture
def data(rng):
    """Two outputs, each of which depends on features of its own."""
    X = rng.uniform(-2, 2, size=(40, 3))
    Y = np.column_stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 1])])
    return X, Y + 0.1 * rng.normal(size=Y.shape)


def problem_of(X, Y, kernel=None, kind=SeparateProblem, **options):
    weights, groups = options.pop("weights", None), options.pop("groups", None)
    options = {"intercept": True, "shrinkage": SHRINKAGE, **options}
    model = RidgeModel(Decomposable(kernel or Gaussian("ard")), **options)
    tensors = [None if a is None else torch.from_numpy(a) for a in (weights, groups)]
    block = Block(torch.from_numpy(X), torch.from_numpy(Y), *tensors)
    return kind(InMemory(block), model, Representation(torch.float64))


def with_gaps(Y):
    gapped = Y.copy()
    gapped[::3, 0] = np.nan
    gapped[1::5, 1] = np.nan
    return gapped


# -- one function of all outputs --------------------------------------------------------------------------------------
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_function_is_that_of_fits_to_single_outputs(data, rng, gaps, weighted):
    """With its kernel and alpha, each output has the fit and the left-out predictions that it has by itself."""
    X, Y = data
    Y = with_gaps(Y) if gaps else Y
    weights = rng.uniform(0.5, 2.0, size=len(X)) if weighted else None
    problem = problem_of(X, Y, weights=weights)
    solution = problem.solve(problem.choose(SETTINGS))
    new = rng.uniform(-2, 2, size=(7, 3))
    values, left_out = solution.function(torch.from_numpy(new)).numpy(), solution.system.left_out().numpy()
    kernel = solution.choice.model
    assert isinstance(kernel, Separate) and not kernel.free()
    total = np.ones(len(X)) if weights is None else weights
    for j, scaled in enumerate(kernel.kernels):
        known = ~np.isnan(Y[:, j])
        inside, factor = unscaled(scaled)
        alpha = solution.choice.alpha / factor * total.sum() / total[known].sum()
        own = OperatorRidge(inside, alpha=alpha).fit(X[known], Y[known, j], total[known])
        np.testing.assert_allclose(values[:, j], own.predict(new), atol=1e-6)
        np.testing.assert_allclose(left_out[known, j], own.loo_predict_, atol=1e-6)


def test_every_output_finds_its_own_features(data):
    problem = problem_of(*data)
    first, second = (unscaled(kernel)[0].lengthscale for kernel in problem.choose(SETTINGS).model.kernels)
    common = problem_of(*data, kind=RidgeProblem).choose(SETTINGS).model.kernel.lengthscale
    assert first[0] / first[1] < 0.7 * common[0] / common[1] and second[1] / second[0] < 0.7 * common[1] / common[0]


def test_outputs_stay_where_all_are_if_the_prior_is_strong(data, monkeypatch):
    """The search of each output begins at what is best for all, and a prior draws it back there."""
    monkeypatch.setattr(separate, "POOLING", 1e9)
    joint = problem_of(*data, kind=RidgeProblem).choose(SETTINGS)
    choice = problem_of(*data).choose(SETTINGS, joint)
    logs = [np.log(unscaled(kernel)[0].lengthscale) for kernel in choice.model.kernels]
    expected = np.log(joint.model.kernel.lengthscale)
    for own in logs:
        moved = own - expected
        np.testing.assert_allclose(moved, moved.mean(), atol=1e-3)


def test_equal_outputs_have_equal_kernels(data):
    X, Y = data
    problem = problem_of(X, np.column_stack([Y[:, 0], -5.0 * Y[:, 0]]))
    (first, one), (second, two) = map(unscaled, problem.choose(SETTINGS).model.kernels)
    np.testing.assert_allclose(first.lengthscale, second.lengthscale, rtol=1e-6)
    assert one == pytest.approx(two, rel=1e-6) and one == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("gaps", [False, True])
def test_known_noise_raises_the_alpha_of_the_output_that_has_it(data, gaps):
    X, Y = data
    problem = problem_of(X, with_gaps(Y) if gaps else Y, noise=np.array([1e-9, 0.3]))
    choice = problem.choose(SETTINGS)
    solution = problem.solve(choice)
    before = [choice.alpha / unscaled(kernel)[1] for kernel in choice.model.kernels]
    after = [solution.system.alpha / unscaled(kernel)[1] for kernel in solution.system.kernel.kernels]
    assert after[0] == pytest.approx(before[0]) and after[1] > 1.5 * before[1]
    assert float(solution.system.noise()[1]) >= 0.3 * (1 - 1e-9)


def test_replicates_raise_the_alpha_of_the_output_that_needs_it(rng, monkeypatch):
    X = np.repeat(rng.uniform(-2, 2, size=(20, 2)), 2, axis=0)
    Y = np.column_stack([np.sin(X[:, 0]) + np.repeat(0.05 * rng.normal(size=20), 2), np.cos(X[:, 1])])
    Y[:, 1] += 0.05 * rng.normal(size=40)
    problem = problem_of(X, Y, groups=np.repeat(np.arange(20), 2))
    choice = problem.choose(SETTINGS)
    same = problem.solve(choice)
    assert same.raised_from is None and same.system.replicated is not None
    Y[1::2, 1] += 1.0  # replicates that differ, which the choice does not know
    problem = problem_of(X, Y, groups=np.repeat(np.arange(20), 2))
    monkeypatch.setattr(FittedSystem, "noise", lambda system: torch.full((1,), 1e-6 * system.alpha / choice.alpha))
    solution = problem.solve(choice)
    assert solution.raised_from is not None and solution.raised_from < solution.system.alpha
    (_, one), (_, two) = map(unscaled, solution.system.kernel.kernels)
    before = [unscaled(kernel)[1] for kernel in choice.model.kernels]
    assert solution.system.alpha / two > 1.5 * choice.alpha / before[1]
    assert solution.system.alpha / one == pytest.approx(choice.alpha / before[0])


def test_an_interrupted_search_leaves_the_other_outputs_where_all_are(data, monkeypatch):
    X, Y = data
    problem = problem_of(X, Y)
    joint = problem_of(X, Y, kind=RidgeProblem).choose(SETTINGS)
    asked = []

    def interrupted(self, choice, settings, precision):
        asked.append(self)
        return replace(choice, interrupted=True)

    monkeypatch.setattr(RidgeProblem, "chosen_around", interrupted)
    choice = problem.choose(SETTINGS, joint)
    assert choice.interrupted and len(asked) == 1
    for kernel in choice.model.kernels:
        np.testing.assert_array_equal(unscaled(kernel)[0].lengthscale, joint.model.kernel.lengthscale)


def test_there_is_no_criterion_of_all_that_is_free(data):
    with pytest.raises(ValueError, match="one by one"):
        problem_of(*data).value_and_gradient(torch.zeros(1, 4))


# -- which problems come apart ----------------------------------------------------------------------------------------
def test_which_problems_come_apart(data, monkeypatch):
    X, Y = data
    few = Y.copy()
    few[15:, 1] = np.nan

    def separable(*args, **options):
        return len(separate_problems([problem_of(*args, kind=RidgeProblem, **options)]))

    assert separable(X, Y) == separable(X, with_gaps(Y)) == separable(X, Y, alpha=0.1) == 1
    assert not separable(X, Y[:, :1])  # one output
    assert not separable(X, few)  # an output with few targets
    assert not separable(X, Y, Gaussian("auto")) and not separable(X, Y, Linear())  # one lengthscale, or none
    assert not separable(X, Y, alpha=np.array([0.1, 1.0])) and not separable(X, Y, learn_operator=True)
    assert not separable(X, Y, weights=np.ones_like(Y)) and not separable(X, Y, approximation=Nystroem(10))
    assert not separable(X, np.tile(Y, 5))  # many outputs
    monkeypatch.setattr(separate, "MOST_TARGETS", 79)
    assert not separable(X, Y)


# -- outputs in their own units ---------------------------------------------------------------------------------------
def test_units_of_outputs_do_not_decide(data, rng):
    """Hyperparameters, alphas and weights of the default fit are the same for outputs in other units."""
    X, Y = data
    new, units = rng.uniform(-2, 2, size=(20, 3)), np.array([2.0**10, 2.0**-7])
    model = OperatorRidge(tol=1e-2)
    one, two = clone(model).fit(X, Y), clone(model).fit(X, Y * units)
    np.testing.assert_allclose(two.weights_, one.weights_, atol=1e-6)
    np.testing.assert_allclose(two.alpha_, one.alpha_, rtol=1e-6)
    np.testing.assert_allclose(two.predict(new) / units, one.predict(new), atol=1e-6)


def test_a_constant_output_is_no_output_to_learn_from(data):
    """Rounding makes a constant vary in some units, and not in others: that decides nothing."""
    X, Y = data
    Y = np.column_stack([Y, np.full(len(Y), 1.0)])
    expected, model = (OperatorRidge(random_state=0).fit(X, Y * unit) for unit in (1.0, 1e100))
    assert len(model.members_) == 6
    np.testing.assert_allclose(model.predict(X) / 1e100, expected.predict(X), rtol=0, atol=1e-10)


def test_precise_outputs_count_as_much_as_noisy_ones(rng):
    """In their own units the noisy output, whose errors are as large as its targets, would decide the lengthscale."""
    X = rng.uniform(-2, 2, size=(80, 1))
    Y = np.column_stack([np.sin(6 * X[:, 0]) + 0.01 * rng.normal(size=80), 30.0 * rng.normal(size=80)])
    balanced, raw = (
        problem_of(X, Y, Gaussian("auto"), RidgeProblem, balanced=on).choose(SETTINGS) for on in (True, False)
    )
    alone = problem_of(X, Y[:, :1], Gaussian("auto"), RidgeProblem).choose(SETTINGS)
    assert abs(math.log(balanced.model.kernel.lengthscale / alone.model.kernel.lengthscale)) < 0.3
    assert raw.model.kernel.lengthscale > 2.0 * balanced.model.kernel.lengthscale


@pytest.mark.parametrize("alpha", [None, np.array([1e-4, 1e-2, 1.0])])
@pytest.mark.parametrize("kernel", [Linear(), Gaussian("auto")])
def test_alpha_is_chosen_in_own_units_too(data, alpha, kernel):
    X, Y = data
    units = np.array([1e4, 1.0])
    one, two = (problem_of(X, targets, kernel, RidgeProblem, balanced=True, alpha=alpha) for targets in (Y, Y * units))
    assert two.choose(SETTINGS).alpha == pytest.approx(one.choose(SETTINGS).alpha, rel=1e-3)


def test_one_output_is_fitted_as_ever(data):
    """Of one output, nothing depends on units and there is nothing to separate: all digits stay."""
    X, Y = data
    one, two = (
        problem_of(X, Y[:, :1], Gaussian("ard"), RidgeProblem, balanced=on).choose(SETTINGS) for on in (True, False)
    )
    assert one.model == two.model and one.alpha == two.alpha and one.value == two.value
    assert len(OperatorRidge(tol=0.1).fit(X, Y[:, 0]).members_) == 6


# -- in learners ------------------------------------------------------------------------------------------------------
def test_the_default_fit_has_members_with_kernels_of_each_output(data, rng):
    X, Y = data
    model = OperatorRidge(tol=1e-2).fit(X, Y)
    assert [isinstance(kernel, Separate) for kernel in model.kernel_.kernels] == [False] * 6 + [True] * 2
    assert [member.learned for member in model.members_] == [2, 2, 2, 1, 4, 4, 4, 4] and model.operator_ is None
    assert model.weights_[6:].sum() > 0.5  # the outputs depend on other features
    stated = Stack([Gaussian("ard"), Laplacian("ard")])
    assert len(OperatorRidge(stated, tol=0.1).fit(X, Y).members_) == 2  # members that a user states are all there are
    assert clone(model).kernel == "auto"


def test_outputs_with_features_of_their_own_are_predicted_better_than_by_common_lengthscales(rng):
    X = rng.uniform(-2, 2, size=(100, 4))
    F = np.column_stack([np.sin(3 * X[:, 0]), np.cos(3 * X[:, 1]), X[:, 2] ** 2])
    Y = F[:70] + 0.1 * rng.normal(size=(70, 3))
    model = OperatorRidge(tol=1e-2).fit(X[:70], Y)
    joint = StackProblem(
        [
            problem_of(X[:70], Y, kernel, RidgeProblem)
            for kernel in (Laplacian("auto"), Gaussian("auto"), Laplacian("ard"), Gaussian("ard"))
        ],
        LeastSquares(),
    )
    common = joint.solve(joint.choose(SETTINGS)).function(torch.from_numpy(X[70:])).numpy()
    errors = [np.sqrt(np.mean((values - F[70:]) ** 2, 0)) for values in (model.predict(X[70:]), common)]
    assert errors[0].mean() < 0.8 * errors[1].mean()


def test_a_model_with_kernels_of_each_output_answers_all_questions(data, tmp_path):
    X, Y = data
    model = OperatorRidge(tol=0.1).fit(X, with_gaps(Y))
    explanation = model.explain(X[:3], parts=True)
    np.testing.assert_allclose(
        explanation.baseline + explanation.contributions.sum(1) + explanation.rest, model.predict(X[:3]), atol=1e-8
    )
    assert {"Laplacian of each output", "Gaussian of each output"} <= set(explanation.members)
    assert explanation.neighbours.shape == (3, 5) and (explanation.neighbours[:, 0] == np.arange(3)).all()
    assert len(explanation.to_frame()) and model.report()._repr_html_()
    mean, std = model.predict(X, return_std=True)
    assert std.shape == (40, 2) and (std > 0).all() and model.sensitivity(X).shape[0] == 40
    assert (model.support(X + 100.0) < 1e-3).all()
    np.testing.assert_allclose(model.to_torch()(torch.from_numpy(X)).detach().numpy(), mean, atol=1e-8)
    light = model.compressed(0.05)
    assert np.abs(light.predict(X) - mean).max() <= 0.1 * np.abs(mean).max()
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), mean)
    again = OperatorRidge(model.kernel_).fit(X, with_gaps(Y))
    np.testing.assert_allclose(again.predict(X), mean, atol=1e-8)


def test_deep_regressions_have_them_and_classes_have_not(data):
    X, Y = data
    deep = DeepKernelRegressor(layers=[], kernel="auto", random_state=0, tol=0.1).fit(X, Y)
    assert sum(isinstance(kernel, Separate) for kernel in deep.kernel_.kernels) == 2
    np.testing.assert_allclose(deep.predict(X), OperatorRidge(tol=0.1).fit(X, Y).predict(X), atol=1e-8)
    assert deep.deep_kernel_(X[:4]).shape == (4, 4)
    classes = np.digitize(Y[:, 0], [-0.5, 0.5])
    model = DeepKernelClassifier(layers=[], kernel="auto", random_state=0, max_iter=3, tol=0.1).fit(X, classes)
    assert not any(isinstance(kernel, Separate) for kernel in model.kernel_.kernels)


def test_a_learned_operator_couples_outputs_in_their_own_units(data):
    """Outputs that an operator couples are neither separated nor balanced: the members are those that one may state."""
    X, Y = data
    options = {"operator": "learn", "tol": 0.1}
    word = OperatorRidge(**options).fit(X, Y)
    stated = OperatorRidge(suggest(X).kernel, **options).fit(X, Y)
    assert len(word.members_) == len(stated.members_) == 6
    np.testing.assert_array_equal(word.predict(X), stated.predict(X))
