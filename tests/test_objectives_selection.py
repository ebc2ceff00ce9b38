"""What is particular to leave-one-out, held-out and Rademacher objectives, and learning through them."""

from __future__ import annotations

import math

import naive_objectives as naive
import numpy as np
import pytest
import torch
from naive_objectives import (
    ALPHA,
    HELD_OUT,
    N,
    gaussian,
    gram_of,
    one_hot_targets,
    points,
    regression_targets,
)
from torch import Tensor

from representer.objectives import HeldOut, LeaveOneOut, RademacherBound, rademacher_complexity


def test_leave_one_out_residuals_equal_refits() -> None:
    K, Y = gram_of(points()), regression_targets()
    expected = torch.as_tensor(naive.leave_one_out_residuals(K.numpy(), Y.numpy(), ALPHA))
    objective = LeaveOneOut(Y, alpha=ALPHA)
    torch.testing.assert_close(objective.residuals(K), expected)
    wide = torch.as_tensor(np.random.default_rng(0).normal(size=(N, 30)))
    wide_expected = torch.as_tensor(naive.leave_one_out_residuals(K.numpy(), wide.numpy(), 0.2))
    torch.testing.assert_close(LeaveOneOut(wide, alpha=ALPHA).residuals(K, alpha=0.2), wide_expected)
    weights = LeaveOneOut(target_gram=Y @ Y.mT, alpha=ALPHA).residuals(K)
    torch.testing.assert_close(weights @ Y, expected)
    assert torch.isnan(objective.residuals(torch.stack([K, -K]))[1]).all()


def test_held_out_dual_predicts_and_a_mask_means_its_rows() -> None:
    K, Y = gram_of(points()), regression_targets()
    mask = np.isin(np.arange(N), HELD_OUT)
    evaluation = HeldOut(Y, alpha=ALPHA, validation=mask).evaluate(K)
    assert evaluation.dual is not None
    assert not evaluation.dual[HELD_OUT].any()
    error = (Y - K @ evaluation.dual)[HELD_OUT].square().sum() / len(HELD_OUT)
    torch.testing.assert_close(evaluation.value, error)
    torch.testing.assert_close(evaluation.value, HeldOut(Y, alpha=ALPHA, validation=HELD_OUT)(K))


def test_rademacher_complexity_and_weight() -> None:
    K, Y = gram_of(points()), one_hot_targets()
    unweighted = RademacherBound(Y, alpha=ALPHA, weight=0.0).evaluate(K)
    assert unweighted.dual is not None
    r = rademacher_complexity(K, unweighted.dual)
    expected = math.sqrt(
        float(torch.trace(unweighted.dual.mT @ K @ unweighted.dual)) * K.diagonal().max().item()
    )
    assert r.item() == pytest.approx(expected)
    published, printed = (
        RademacherBound(Y, alpha=ALPHA)(K),
        RademacherBound(Y, alpha=ALPHA, weight=4 * math.e)(K),
    )
    torch.testing.assert_close(published, unweighted.value + 4 * math.e / N * r)
    torch.testing.assert_close(printed, unweighted.value + 4 * math.e * r)
    known = rademacher_complexity(K, unweighted.dual, supremum=2.0)
    torch.testing.assert_close(known, r * (2.0 / K.diagonal().max()).sqrt())


def test_rademacher_clipped_samples_have_no_gradient() -> None:
    """With everything clipped from below, the cross entropy is the constant −log ε."""
    K, Y = gram_of(points()), one_hot_targets()
    evaluation = RademacherBound(Y, alpha=100.0, weight=0.0, epsilon=0.9).evaluate(K)
    assert evaluation.value.item() == pytest.approx(-math.log(0.9))
    assert evaluation.gram_gradient is not None
    assert evaluation.alpha_gradient is not None
    assert not evaluation.gram_gradient.any()
    assert evaluation.alpha_gradient.item() == 0.0


def test_rademacher_supremum_shared_by_equal_diagonal_entries() -> None:
    """The variance of a stationary kernel, whose diagonal is one tie, gets the right derivative."""
    objective, K = RademacherBound(one_hot_targets(), alpha=ALPHA), gaussian(points())
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    objective(scale * K).backward()
    h = 1e-5
    expected = (objective((1.3 + h) * K) - objective((1.3 - h) * K)) / (2 * h)
    assert scale.grad is not None
    assert scale.grad.item() == pytest.approx(expected.item(), rel=1e-6)


def test_learning_a_lengthscale_and_alpha_lowers_the_leave_one_out_error() -> None:
    """The door is used as a learner would: both through log, on a batch of starting points."""
    X = points(0, 30)
    y = torch.sin(X[:, 0])
    objective = LeaveOneOut(y, alpha=1.0)
    raw = torch.tensor([[0.0, -3.0], [0.5, -1.0]], dtype=torch.float64, requires_grad=True)

    def error() -> Tensor:
        lengthscale, alpha = raw.exp().unbind(1)
        return objective(torch.exp(-(torch.cdist(X, X) ** 2) / (2 * lengthscale[:, None, None] ** 2)), alpha)

    first = error().detach()
    optimiser = torch.optim.Adam([raw], lr=0.1)
    for _ in range(40):
        optimiser.zero_grad()
        error().sum().backward()
        optimiser.step()
    assert bool((error() < 0.7 * first).all())
