"""Objectives on a factor B against the same objectives on K = BBᵀ, dense, and against refits."""

from __future__ import annotations

import naive_intercept
import numpy as np
import pytest
import torch
from naive_objectives import ALPHA, HELD_OUT, N, points, regression_targets
from torch import Tensor

from representer.linalg import NotPositiveDefiniteError
from representer.objectives import HeldOut, Hinge, Interpolation, LeaveOneOut, Ridge
from representer.objectives.squared import OnFactor, SquaredLoss

M = 4
CASES = {
    f"{name}, intercept" if intercept else name: case
    for intercept in (False, True)
    for name, case in naive_intercept.cases(alpha=ALPHA, intercept=intercept).items()
    if name != "interpolation"
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def features(seed: int = 0) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(N, M)))


def targets() -> Tensor:
    return 2.0 + regression_targets()


def made(case: naive_intercept.Case, **given: Tensor) -> SquaredLoss:
    objective = case.make(**(given or {"Y": targets()}))
    assert isinstance(objective, SquaredLoss)
    return objective


@every_case
def test_equals_the_dense_objective(case: naive_intercept.Case) -> None:
    objective, B = made(case), features()
    ours, dense = OnFactor(objective).evaluate(B), objective.evaluate(B @ B.mT)
    assert dense.gram_gradient is not None
    assert dense.dual is not None
    torch.testing.assert_close(ours.value, dense.value)
    torch.testing.assert_close(ours.factor_gradient, 2.0 * dense.gram_gradient @ B, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(ours.alpha_gradient, dense.alpha_gradient, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(ours.coefficients, B.mT @ dense.dual, rtol=1e-8, atol=1e-10)
    assert (ours.intercept is None) == (not objective.intercept)
    torch.testing.assert_close(ours.intercept, dense.intercept)


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("intercept")])
def test_equals_refits(name: str) -> None:
    expected = CASES[name].oracle(features().numpy(), targets().numpy(), ALPHA)
    assert OnFactor(made(CASES[name]))(features()).item() == pytest.approx(expected, rel=1e-10)


@every_case
def test_autograd_reaches_factor_and_alpha(case: naive_intercept.Case) -> None:
    objective, B = OnFactor(made(case)), features().requires_grad_()
    alpha = torch.tensor(ALPHA, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(objective, (B, alpha), rtol=1e-5)
    weights = torch.tensor([2.0, -3.0], dtype=torch.float64)
    both = torch.stack([features(1), features(2)]).requires_grad_()
    (objective(both) * weights).sum().backward()
    gradient = objective.evaluate(both).factor_gradient
    assert gradient is not None
    torch.testing.assert_close(both.grad, weights[:, None, None] * gradient)


@every_case
def test_targets_of_every_kind(case: naive_intercept.Case) -> None:
    B, Y = features(), targets()
    vectors = OnFactor(made(case)).evaluate(B)
    abstract = OnFactor(made(case, target_gram=Y @ Y.mT)).evaluate(B)
    assert abstract.coefficients is not None
    torch.testing.assert_close(abstract.value, vectors.value, rtol=1e-7, atol=0.0)
    torch.testing.assert_close(abstract.coefficients @ Y, vectors.coefficients)
    if abstract.intercept is not None:
        torch.testing.assert_close(abstract.intercept @ Y, vectors.intercept)
    wide = torch.as_tensor(np.random.default_rng(3).normal(size=(N, 20)))
    objective = made(case, Y=wide)
    ours, dense = OnFactor(objective).evaluate(B), objective.evaluate(B @ B.mT)
    assert dense.dual is not None
    torch.testing.assert_close(ours.value, dense.value)
    torch.testing.assert_close(ours.coefficients, B.mT @ dense.dual)
    torch.testing.assert_close(ours.intercept, dense.intercept)


@every_case
def test_batch_equals_loop_and_bad_members_are_nan(case: naive_intercept.Case) -> None:
    objective = OnFactor(made(case))
    B = torch.stack([features(seed) for seed in range(3)])
    alpha = torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64)
    B[2, 0, 0] = torch.nan
    batch = objective.evaluate(B, alpha=alpha)
    assert batch.value.isnan().tolist() == [False, False, True]
    for i in range(2):
        single = objective.evaluate(B[i], alpha=alpha[i])
        for field in ("value", "factor_gradient", "alpha_gradient", "coefficients", "intercept"):
            if (expected := getattr(single, field)) is not None:
                torch.testing.assert_close(getattr(batch, field)[i], expected)
    with pytest.raises(NotPositiveDefiniteError, match="NaN"):
        objective.evaluate(B[2])


@every_case
def test_parts_can_be_left_out_and_precision_follows_the_factor(case: naive_intercept.Case) -> None:
    objective, B = OnFactor(made(case)), features()
    small = objective.evaluate(B, gradient=False, dual=False)
    assert (small.factor_gradient, small.alpha_gradient, small.coefficients) == (None, None, None)
    torch.testing.assert_close(small.value, objective(B))
    assert objective(B.float()).dtype == torch.float32


def test_coefficients_predict() -> None:
    """Held-out rows included: φ(x)ᵀθ + b is the fit, wherever x is."""
    B, Y = features(), targets()
    evaluation = OnFactor(HeldOut(Y, alpha=ALPHA, validation=HELD_OUT, intercept=True)).evaluate(B)
    assert evaluation.coefficients is not None
    error = (Y - B @ evaluation.coefficients - evaluation.intercept)[HELD_OUT].square().sum() / len(HELD_OUT)
    torch.testing.assert_close(evaluation.value, error)


def test_small_alpha_keeps_the_digits_of_the_coefficients() -> None:
    """Least squares: θ comes from BᵀB, not from residuals divided by n·alpha."""
    B, Y = features(), targets()
    evaluation = OnFactor(Ridge(Y, alpha=1e-13)).evaluate(B)
    expected = torch.linalg.lstsq(B, Y).solution
    torch.testing.assert_close(evaluation.coefficients, expected, rtol=1e-10, atol=1e-10)


def test_nothing_of_size_n_by_n_is_made() -> None:
    """An n × n matrix would take 80 GB."""
    n = 100_000
    x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    B = torch.cat([x**k for k in range(1, 6)], 1)
    for make in (Ridge, LeaveOneOut):
        evaluation = OnFactor(make(x.exp(), alpha=1e-8, intercept=True)).evaluate(B)
        assert evaluation.value.item() < 1e-4


def test_bad_input_is_refused() -> None:
    Y = targets()
    for objective in (Interpolation(Y), Hinge(Y.sign(), alpha=ALPHA), "ridge"):
        with pytest.raises(TypeError, match=rf"got {type(objective).__name__}"):
            OnFactor(objective)  # type: ignore[arg-type]
    ridge = OnFactor(Ridge(Y, alpha=ALPHA))
    with pytest.raises(TypeError, match="must be a torch tensor"):
        ridge(points().numpy())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"each of the 14 targets of Ridge; got \(13, 4\)"):
        ridge(features()[1:])
    with pytest.raises(ValueError, match="alpha > 0"):
        ridge(features(), 0.0)
