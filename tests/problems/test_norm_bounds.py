"""Bounded norms: coordinates of balls against differences and closed forms, the multiplier of the outer function."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from representer.functions import Layer
from representer.kernels import Gaussian
from representer.operators import Decomposable
from representer.problems.composition import Composition, DeepProblem, squared_loss
from representer.problems.norm_bounds import BoundedProblem, norm_multiplier

BOUNDS = (0.8, 1.1, 0.9)


@pytest.fixture
def problem():
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 2)))
    layers = [Layer(Gaussian(1.0), 2, alpha=1.0), Layer(Gaussian(0.7), 1, alpha=1.0)]
    composition = Composition(layers, Decomposable(Gaussian(0.5)), 1e-3)
    return BoundedProblem.of(DeepProblem(composition, X, X, squared_loss(True).fit()), BOUNDS, 1e-9)


@pytest.fixture
def points(problem):
    return torch.from_numpy(np.random.default_rng(1).normal(scale=0.4, size=(3, problem.size)))


def norms(problem, points):
    return torch.stack([theta.square().sum((-2, -1)).sqrt() for theta in problem.chain.split(points)], -1)


def test_free_coordinates_are_inside_the_bounds_and_lead_back(problem, points):
    limits = torch.tensor(BOUNDS[:-1], dtype=torch.float64)
    for scale in (0.1, 1.0, 10.0, 1e4):
        inside = problem.inside(scale * points)
        assert bool((norms(problem, inside) <= limits * (1.0 + 1e-12)).all())
    small = 0.1 * points
    torch.testing.assert_close(problem.inside(problem.free_coordinates(small)), small)
    large = problem.inside(problem.free_coordinates(100.0 * points))
    torch.testing.assert_close(norms(problem, large), (0.5**0.5 * limits).expand(3, -1))
    torch.testing.assert_close(norms(problem, problem.projected(100.0 * points[0])), limits)
    torch.testing.assert_close(problem.projected(small[0]), small[0])


def test_the_gradient_is_that_of_differences(problem, points):
    _, gradients = problem.value_and_gradient(points)
    h = 1e-4
    for i in range(0, problem.size, 5):
        step = torch.zeros(problem.size, dtype=torch.float64)
        step[i] = h
        differences = (problem.value(points + step) - problem.value(points - step)) / (2.0 * h)
        torch.testing.assert_close(gradients[:, i], differences, rtol=1e-5, atol=1e-7)


def test_the_outer_function_has_the_norm_of_its_bound_and_the_value_is_its_loss(problem, points):
    theta = problem.inside(points)[0]
    composition = problem.composition
    penalised = Composition(composition.layers, composition.kernel, problem.outer_multiplier(theta))
    outer, intercept, images, _ = DeepProblem(penalised, problem.X, problem.Y, squared_loss(True).fit()).solve(theta)
    assert outer.norm() == pytest.approx(BOUNDS[-1], rel=1e-6)
    loss = (outer(images[-1]) + intercept - problem.Y).square().sum(1).mean().item()
    assert problem.value(points[:1]).item() == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("start", [1e-12, 1e-3, 3.0, 1e6])
def test_the_multiplier_is_the_root_or_the_least_one(start):
    def norm(alpha):
        return 2.0 / (1.0 + alpha)

    assert norm_multiplier(norm, 0.5, start=start, least=1e-9) == pytest.approx(3.0, rel=1e-6)
    assert norm_multiplier(norm, 5.0, start=start, least=1e-9) == pytest.approx(1e-9)
    assert np.isnan(norm_multiplier(lambda alpha: np.nan, 5.0, start=start, least=1e-9))


def test_a_bound_out_of_reach_adds_nothing_to_the_value(problem, points):
    penalised = Composition(problem.composition.layers, problem.composition.kernel, problem.least_alpha)
    free = DeepProblem(penalised, problem.X, problem.Y, squared_loss(True).fit())
    for bound in (1e6, 1e100):
        far = BoundedProblem.of(problem, (bound,) * 3, problem.least_alpha)
        expected = free.at(far._with_multipliers([0.0, 0.0], problem.least_alpha).composition).value(points)
        torch.testing.assert_close(far.value(points), expected, rtol=1e-6, atol=0.0)
