"""What is particular to leave-one-out, held-out and Rademacher objectives, and learning through them."""

from __future__ import annotations

import math

import naive_intercept
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
    symmetric_directions,
)
from torch import Tensor

from representer.objectives import (
    GeneralizedCrossValidation,
    HeldOut,
    LeaveOneOut,
    RademacherBound,
    Ridge,
)

INTERCEPT_CASES = naive_intercept.cases(alpha=ALPHA)
every_intercept_case = pytest.mark.parametrize("case", INTERCEPT_CASES.values(), ids=INTERCEPT_CASES)


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
    norm = torch.trace(unweighted.dual.mT @ K @ unweighted.dual).sqrt()
    r = norm * K.diagonal().max().sqrt()
    published, printed = (
        RademacherBound(Y, alpha=ALPHA)(K),
        RademacherBound(Y, alpha=ALPHA, weight=4 * math.e)(K),
    )
    torch.testing.assert_close(published, unweighted.value + 4 * math.e / N * r)
    torch.testing.assert_close(printed, unweighted.value + 4 * math.e * r)
    known = RademacherBound(Y, alpha=ALPHA, weight=1.0, supremum=2.0)(K)
    torch.testing.assert_close(known, unweighted.value + norm * 2.0**0.5)


def test_rademacher_clipped_samples_have_no_gradient() -> None:
    """With everything clipped from below, the cross entropy is the constant −log ε."""
    K, Y = gram_of(points()), one_hot_targets()
    evaluation = RademacherBound(Y, alpha=100.0, weight=0.0, clip=0.9).evaluate(K)
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


@every_intercept_case
def test_intercept_equals_oracle(case: naive_intercept.Case) -> None:
    K, Y = gram_of(points()), 5.0 + regression_targets()
    expected = case.oracle(np.linalg.cholesky(K.numpy()), Y.numpy(), ALPHA)
    assert case.make(Y)(K).item() == pytest.approx(expected, rel=1e-9)
    assert case.make(target_gram=Y @ Y.mT)(K).item() == pytest.approx(expected, rel=1e-7)
    wide = torch.as_tensor(np.random.default_rng(0).normal(size=(N, 20)))
    expected = case.oracle(np.linalg.cholesky(K.numpy()), wide.numpy(), ALPHA)
    assert case.make(wide)(K).item() == pytest.approx(expected, rel=1e-9)


@every_intercept_case
def test_intercept_gradients_equal_finite_differences(case: naive_intercept.Case) -> None:
    objective, K = case.make(5.0 + regression_targets()), gram_of(points())
    evaluation = objective.evaluate(K)
    gradient = evaluation.gram_gradient
    assert gradient is not None
    torch.testing.assert_close(gradient, gradient.mT, rtol=0.0, atol=0.0)
    for D in symmetric_directions(4):
        numerical = naive_intercept.central_difference(objective, K, D)
        exact = (gradient * D).sum()
        assert abs(numerical - exact) <= 1e-6 * max(abs(exact), 0.01 * gradient.norm() * D.norm())
    if objective.alpha is not None:
        alpha = torch.tensor(ALPHA, dtype=torch.float64)
        numerical = naive_intercept.central_difference(lambda a: objective(K, a), alpha, alpha)
        assert evaluation.alpha_gradient is not None
        assert evaluation.alpha_gradient.item() == pytest.approx(numerical.item() / ALPHA, rel=1e-6)


@every_intercept_case
def test_intercept_in_a_batch_equals_a_loop(case: naive_intercept.Case) -> None:
    objective = case.make(5.0 + regression_targets())
    K = torch.stack([gram_of(points(seed)) for seed in range(4)]).reshape(2, 2, N, N)
    K[1, 1, 0, 0] = -50.0
    batch = objective.evaluate(K)
    assert batch.value.isnan().tolist() == [[False, False], [False, True]]
    for i, j in [(0, 0), (0, 1), (1, 0)]:
        single = objective.evaluate(K[i, j])
        for field in ("value", "gram_gradient", "alpha_gradient", "dual", "intercept"):
            if (expected := getattr(single, field)) is not None:
                torch.testing.assert_close(getattr(batch, field)[i, j], expected, rtol=1e-8, atol=1e-10)


@every_intercept_case
def test_a_constant_in_the_targets_is_the_intercepts_alone(case: naive_intercept.Case) -> None:
    K, Y = gram_of(points()), regression_targets()
    constant = torch.tensor([1e6, -3e4], dtype=torch.float64)
    plain, moved = case.make(Y).evaluate(K), case.make(Y + constant).evaluate(K)
    assert plain.intercept is not None
    assert plain.dual is not None
    torch.testing.assert_close(moved.value, plain.value, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(moved.dual, plain.dual, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(moved.intercept, plain.intercept + constant, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(plain.dual.sum(0), torch.zeros(2).double(), rtol=0.0, atol=1e-10)


@every_intercept_case
def test_intercept_and_dual_of_abstract_targets_are_coefficients_on_them(case: naive_intercept.Case) -> None:
    K, Y = gram_of(points()), 5.0 + regression_targets()
    vectors, abstract = case.make(Y).evaluate(K), case.make(target_gram=Y @ Y.mT).evaluate(K)
    assert abstract.dual is not None
    assert abstract.intercept is not None
    torch.testing.assert_close(abstract.dual @ Y, vectors.dual, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(abstract.intercept @ Y, vectors.intercept)


def test_leave_one_out_residuals_with_an_intercept_equal_refits() -> None:
    K, Y = gram_of(points()), 5.0 + regression_targets()
    B = np.linalg.cholesky(K.numpy())
    expected = torch.as_tensor(naive_intercept.leave_one_out_residuals(B, Y.numpy(), ALPHA))
    torch.testing.assert_close(LeaveOneOut(Y, alpha=ALPHA, intercept=True).residuals(K), expected)
    weights = LeaveOneOut(target_gram=Y @ Y.mT, alpha=ALPHA, intercept=True).residuals(K)
    torch.testing.assert_close(weights @ Y, expected)


def test_held_out_dual_and_intercept_predict() -> None:
    K, Y = gram_of(points()), 5.0 + regression_targets()
    evaluation = HeldOut(Y, alpha=ALPHA, validation=HELD_OUT, intercept=True).evaluate(K)
    train = [i for i in range(N) if i not in HELD_OUT]
    rest = Ridge(Y[train], alpha=ALPHA, intercept=True).evaluate(K[train][:, train])
    assert evaluation.dual is not None
    torch.testing.assert_close(evaluation.dual[train], rest.dual)
    torch.testing.assert_close(evaluation.intercept, rest.intercept)
    assert not evaluation.dual[HELD_OUT].any()


@pytest.mark.parametrize("objective", [LeaveOneOut, GeneralizedCrossValidation])
def test_nothing_is_left_of_one_sample_with_an_intercept(objective: type) -> None:
    with pytest.raises(ValueError, match="at least 2 samples"):
        objective([1.0], alpha=ALPHA, intercept=True)
