"""(Reg) on a grid of penalties: against equation (19), a composition searched pair by pair, and a known answer."""

from __future__ import annotations

import math
import warnings

import naive_deep
import numpy as np
import pytest
import torch
from sklearn.model_selection import KFold
from torch import Tensor

from papers.bohn.penalty_grid import (
    LinearOuter,
    Problem,
    TwoLayers,
    all_pairs,
    cross_validated,
    solve_grid,
)
from representer import DeepKernelRegressor, Layer
from representer.datasets import make_jump
from representer.kernels import Gaussian, Kernel, Polynomial, TensorMatern
from representer.operators import Separate

MIXTURE: list[Kernel] = [Gaussian(0.5), Polynomial(1), Polynomial(2)]
PENALTIES = [1.0, 0.1, 0.01]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return make_jump(20, random_state=0)


def test_the_value_is_equation_19(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    problem = TwoLayers(Layer(Polynomial(2), 2), Gaussian(0.7), X, y)
    points, pairs = problem.starts(3, seed=0), all_pairs([0.5, 0.02], len(y))[:3]
    found = problem.values(points, pairs)
    for point, pair, value in zip(points, pairs, found.tolist(), strict=True):
        (Z,) = problem.chain.images(problem.chain.split(point))
        M = naive_deep.gram(naive_deep.gaussian(0.7), Z.numpy())
        norm = float((point**2).sum())
        expected = naive_deep.equation_19(M, y, *(len(y) * pair).tolist(), norm)
        assert len(y) * value == pytest.approx(expected, rel=1e-9)


def test_a_linear_outer_kernel_is_multiple_kernel_learning(data: tuple[np.ndarray, np.ndarray]) -> None:
    """The convex problem in the weights has the value and the function of the search over w and g."""
    X, y = data
    weights = LinearOuter(MIXTURE, X, y)
    composed = TwoLayers(Layer(Separate(MIXTURE), len(MIXTURE)), Polynomial(1), X, y)
    pairs = all_pairs(PENALTIES, len(y))
    found, values = solve_grid(weights, PENALTIES, weights.starts(2, 0))
    slow, reached = solve_grid(composed, PENALTIES, composed.starts(2, 0))
    torch.testing.assert_close(values, reached, rtol=2e-3, atol=0.0)
    for i in (0, 4):
        ours, theirs = (p.predict(q[i], pairs[i], X) for p, q in ((weights, found), (composed, slow)))
        assert np.abs(ours - theirs).max() < 0.02


def test_neighbours_help_and_never_hurt(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    problem = TwoLayers(Layer(Separate(MIXTURE), len(MIXTURE)), TensorMatern(1, 1.0), X, y)
    penalties = [1e-1, 1e-3, 1e-5]
    points, values = solve_grid(problem, penalties, problem.starts(1, 0))
    torch.testing.assert_close(problem.values(points, all_pairs(penalties, len(y))), values)
    _, alone = solve_grid(problem, penalties, problem.starts(1, 0), sweeps=0)
    assert bool((values <= alone).all()) and bool((values < 0.9 * alone).any())
    # No minimum grows when a penalty falls; what is found may miss that by what neighbours are not told of.
    grid = values.reshape(3, 3)
    assert bool((grid.diff(dim=0) < 0).all()) and bool((grid.diff(dim=1) < 0.02 * grid[:, 1:]).all())


def test_no_worse_than_the_estimator(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    problem = TwoLayers(Layer(Polynomial(2), 2), Gaussian(0.5), X, y)
    _, values = solve_grid(problem, PENALTIES, problem.starts(4, 0))
    pairs = all_pairs(PENALTIES, len(y))
    for pair, value in [(pairs[i].tolist(), values[i].item()) for i in (1, 8)]:
        layers = [Layer(Polynomial(2), 2, alpha=pair[1])]
        model = DeepKernelRegressor(
            layers, kernel=Gaussian(0.5), alpha=pair[0], fit_intercept=False, n_restarts=4, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert value <= 1.02 * model.fit(X, y).objective_value_


class Known(Problem):
    """Predicts |log λ − log 0.1| + |log μ − log 0.01|, where all targets are 0."""

    size = 1

    def value(self, points: Tensor, penalties: Tensor) -> Tensor:
        return 1.0 + (points**2).sum(-1)

    def starts(self, count: int, seed: int) -> Tensor:
        return torch.ones(count, 1, dtype=torch.float64)

    def predict(self, point: Tensor, pair: Tensor, X: np.ndarray) -> np.ndarray:
        lam, mu = (len(self.y) * pair).tolist()
        return np.full(len(X), abs(math.log(lam / 0.1)) + abs(math.log(mu / 0.01)))


@pytest.mark.parametrize("stop", [None, 5])
def test_cross_validation_takes_the_pair_of_least_error(stop: int | None) -> None:
    X, y = np.zeros((10, 2)), np.zeros(10)
    splits = list(KFold(5).split(X))
    problem, point, pair = cross_validated(Known, PENALTIES, splits, X, y, starts=1, final_starts=2, stop=stop)
    assert np.allclose(problem.predict(point, pair, X), 0.0, atol=1e-12)
    assert abs(float(point)) < 1e-3
    torch.testing.assert_close(10 * pair, torch.tensor([0.1, 0.01], dtype=torch.float64))
