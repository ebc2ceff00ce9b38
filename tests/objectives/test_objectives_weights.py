"""Weights of samples in objectives with a solver of their own: repeated rows, gradients, held-out rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from naive_objectives import (
    ALPHA,
    HELD_OUT,
    N,
    binary_targets,
    gram_of,
    one_hot_targets,
    points,
    regression_targets,
    symmetric_directions,
)
from torch import Tensor

from representer.objectives import (
    CustomLoss,
    EpsilonInsensitive,
    HeldOutLoss,
    Hinge,
    Huber,
    Logistic,
    SquaredHinge,
)
from representer.objectives.base import InnerProblem
from representer.objectives.convex import ConvexLoss


def weighted_squares(F: Tensor, Y: Tensor, weights: Tensor | None = None) -> Tensor:
    squares = (F - Y).square()
    return (squares if weights is None else weights * squares).sum() / len(Y)


TARGETS = {
    "huber": regression_targets,
    "squared hinge": binary_targets,
    "logistic": lambda: binary_targets()[:, 0],
    "softmax": one_hot_targets,
    "hinge": binary_targets,
    "epsilon": regression_targets,
    "custom": regression_targets,
}
LOSSES: dict[str, Callable[..., InnerProblem]] = {
    "huber": lambda Y, **k: Huber(Y, alpha=ALPHA, delta=0.3, **k),
    "squared hinge": lambda Y, **k: SquaredHinge(Y, alpha=ALPHA, **k),
    "logistic": lambda Y, **k: Logistic(Y, alpha=ALPHA, **k),
    "softmax": lambda Y, **k: Logistic(Y, alpha=ALPHA, **k),
    "hinge": lambda Y, **k: Hinge(Y, alpha=ALPHA, **k),
    "epsilon": lambda Y, **k: EpsilonInsensitive(Y, alpha=ALPHA, **k),
    "custom": lambda Y, **k: CustomLoss(weighted_squares, Y, penalty=ALPHA, intercept=True, **k),
}
COUNTS = torch.as_tensor(np.random.default_rng(2).integers(1, 4, N))
CONVEX = [name for name in LOSSES if name != "custom"]
every_loss = pytest.mark.parametrize("name", LOSSES)


@every_loss
def test_integer_weights_repeat_rows(name: str) -> None:
    K, Y = gram_of(points()), TARGETS[name]()
    rows = torch.repeat_interleave(torch.arange(N), COUNTS)
    weighted = LOSSES[name](Y, sample_weight=COUNTS).evaluate(K)
    repeated = LOSSES[name](Y[rows]).evaluate(K[rows][:, rows])
    assert weighted.value.item() == pytest.approx(repeated.value.item(), rel=1e-7)
    assert weighted.alpha_gradient is not None
    assert repeated.alpha_gradient is not None
    torch.testing.assert_close(weighted.alpha_gradient, repeated.alpha_gradient, rtol=1e-5, atol=0.0)
    assert weighted.dual is not None
    assert repeated.dual is not None
    summed = torch.zeros_like(weighted.dual).index_add_(0, rows, repeated.dual)
    torch.testing.assert_close(K @ weighted.dual, K @ summed, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weighted.intercept, repeated.intercept, rtol=1e-5, atol=1e-6)


@every_loss
def test_only_ratios_of_weights_matter(name: str) -> None:
    K, Y = gram_of(points()), TARGETS[name]()
    first, second = (LOSSES[name](Y, sample_weight=s * COUNTS.double()).evaluate(K) for s in (1.0, 1e-6))
    torch.testing.assert_close(first.value, second.value)
    plain, constant = LOSSES[name](Y).evaluate(K), LOSSES[name](Y, sample_weight=[7.0] * N).evaluate(K)
    torch.testing.assert_close(plain.value, constant.value)
    torch.testing.assert_close(plain.dual, constant.dual, rtol=1e-6, atol=1e-8)
    assert abs(first.value - plain.value) > 1e-4


@pytest.mark.parametrize(("name", "held_out"), [(name, False) for name in LOSSES] + [(name, True) for name in CONVEX])
def test_gradients_with_weights_equal_finite_differences(name: str, held_out: bool) -> None:
    K = gram_of(points())
    weights = 0.5 + torch.as_tensor(np.random.default_rng(5).random(N))
    loss = LOSSES[name](TARGETS[name](), sample_weight=weights)
    objective = HeldOutLoss(loss, validation=HELD_OUT) if isinstance(loss, ConvexLoss) and held_out else loss
    evaluation = objective.evaluate(K)
    assert evaluation.gram_gradient is not None
    assert evaluation.alpha_gradient is not None
    for D in symmetric_directions(3):
        h = 1e-5 / D.norm()
        numerical = (objective(K + h * D) - objective(K - h * D)) / (2 * h)
        exact = (evaluation.gram_gradient * D).sum()
        assert abs(numerical - exact) <= 1e-5 * max(abs(exact), 0.01 * evaluation.gram_gradient.norm() * D.norm())
    h = 1e-5 * ALPHA
    numerical = (objective(K, ALPHA + h) - objective(K, ALPHA - h)) / (2 * h)
    assert evaluation.alpha_gradient.item() == pytest.approx(numerical.item(), rel=1e-5)


@pytest.mark.parametrize("name", CONVEX)
def test_held_out_loss_weighs_both_parts(name: str) -> None:
    """Repeated rows, held out together: the weighted mean over the validation rows of a weighted fit."""
    K, Y = gram_of(points()), TARGETS[name]()
    rows = torch.repeat_interleave(torch.arange(N), COUNTS)
    validation = torch.isin(rows, torch.tensor(HELD_OUT))
    weights, repetition = LOSSES[name](Y, sample_weight=COUNTS), LOSSES[name](Y[rows])
    assert isinstance(weights, ConvexLoss)
    assert isinstance(repetition, ConvexLoss)
    weighted = HeldOutLoss(weights, validation=HELD_OUT)(K)
    repeated = HeldOutLoss(repetition, validation=validation)(K[rows][:, rows])
    assert weighted.item() == pytest.approx(repeated.item(), rel=1e-5)


@pytest.mark.parametrize("weights", [[1.0] * (N - 1), [0.0] + [1.0] * (N - 1), [-1.0] + [1.0] * (N - 1)])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match=r"one positive number for each of the 14.*weight zero"):
        Huber(regression_targets(), alpha=ALPHA, sample_weight=weights)
