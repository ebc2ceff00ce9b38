"""Weights of samples and groups of them in scalar systems: repetition, refits, finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from representer.objectives import (
    GeneralizedCrossValidation,
    HeldOut,
    HeldOutRisk,
    LeaveOneOut,
    LeaveOneOutRisk,
    RademacherBound,
    Ridge,
)
from representer.objectives.squared import OnFactor
from representer.systems import Groups
from representer.systems.scalar import DenseSystem, FactorSystem

N, ALPHA = 14, 0.07
GENERATOR = torch.Generator().manual_seed(0)
B = torch.randn(N, 6, generator=GENERATOR, dtype=torch.float64)
Y = torch.randn(N, 2, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.nn.functional.one_hot(torch.arange(N) % 3).double()
WEIGHT = 0.3 + torch.rand(N, generator=GENERATOR, dtype=torch.float64)
GROUPS = [0, 1, 2, 0, 1, 3, 3, 4, 5, 6, 6, 6, 7, 0]
HELD = [1, 4, 9]

OBJECTIVES = {
    "ridge": lambda **o: Ridge(Y, alpha=ALPHA, **o),
    "gcv": lambda **o: GeneralizedCrossValidation(Y, alpha=ALPHA, **o),
    "loo": lambda **o: LeaveOneOut(Y, alpha=ALPHA, **o),
    "group loo": lambda **o: LeaveOneOut(Y, alpha=ALPHA, groups=GROUPS, **o),
    "held out": lambda **o: HeldOut(Y, alpha=ALPHA, validation=HELD, **o),
    "rademacher": lambda **o: RademacherBound(LABELS, alpha=ALPHA, clip=0.05, weight=0.3, **o),
    "loo risk": lambda **o: LeaveOneOutRisk(LABELS, alpha=ALPHA, weight=0.3, **o),
    "group loo risk": lambda **o: LeaveOneOutRisk(LABELS, alpha=ALPHA, weight=0.3, groups=GROUPS, **o),
    "held out risk": lambda **o: HeldOutRisk(LABELS, alpha=ALPHA, validation=HELD, weight=0.3, loss="softmax", **o),
}
every_objective = pytest.mark.parametrize("make", OBJECTIVES.values(), ids=OBJECTIVES)
both_intercepts = pytest.mark.parametrize("intercept", [False, True])


def forms(matrix: Tensor, shift: float, **options):
    shift_tensor = torch.tensor(shift, dtype=torch.float64)
    return [
        DenseSystem(matrix @ matrix.mT, shift_tensor, **options),
        FactorSystem(matrix, shift_tensor, **options),
    ]


@both_intercepts
def test_integer_weights_are_repeated_samples(intercept):
    repeats = torch.arange(N) % 3 + 1
    rows = torch.arange(N).repeat_interleave(repeats)
    weighted = forms(B, 0.8, intercept=intercept, sample_weight=repeats.double())
    repeated = forms(B[rows], 0.8, intercept=intercept)
    for one, many in zip(weighted, repeated, strict=True):
        dual = torch.zeros(N, 2, dtype=torch.float64).index_add_(0, rows, many.solve(Y[rows]))
        torch.testing.assert_close(one.solve(Y), dual)
        if intercept:
            torch.testing.assert_close(one.g.mT @ Y, many.g.mT @ Y[rows])
        errors = many.left_out(many.solve(Y[rows]), Groups.of(rows.numpy())).errors
        torch.testing.assert_close(one.left_out(one.solve(Y)).errors[rows], errors)
    torch.testing.assert_close(weighted[0].unit_coefficients @ Y, weighted[1].solve(Y))
    theta = weighted[1].coefficients(Y)
    torch.testing.assert_close(theta, B.mT @ weighted[0].solve(Y))


@both_intercepts
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["equal", "weighted"])
def test_groups_left_out_are_refits_without_them(intercept, weight):
    for system in forms(B, 0.8, intercept=intercept, sample_weight=weight):
        errors = system.left_out(system.solve(Y), Groups.of(GROUPS)).errors
        for label in set(GROUPS):
            inside = torch.tensor([g == label for g in GROUPS])
            rest = None if weight is None else weight[~inside]
            refit = forms(B[~inside], 0.8, intercept=intercept, sample_weight=rest)[1]
            fitted = B[inside] @ refit.coefficients(Y[~inside])
            if intercept:
                fitted = fitted + refit.g.mT @ Y[~inside]
            torch.testing.assert_close(errors[inside], Y[inside] - fitted)


@every_objective
@both_intercepts
def test_gradients_with_weights_by_finite_differences(make, intercept):
    objective = make(intercept=intercept, sample_weight=WEIGHT)
    K, direction = B @ B.mT, torch.randn(N, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    direction = direction @ direction.mT
    dense, thin = objective.evaluate(K), OnFactor(objective).evaluate(B)
    torch.testing.assert_close(dense.value, thin.value)
    torch.testing.assert_close(dense.alpha_gradient, thin.alpha_gradient)
    torch.testing.assert_close(2.0 * dense.gram_gradient @ B, thin.factor_gradient)
    h = 1e-5
    change = (objective(K + h * direction) - objective(K - h * direction)) / (2 * h)
    assert (dense.gram_gradient * direction).sum().item() == pytest.approx(change.item(), rel=1e-5, abs=1e-8)
    change = (objective(K, ALPHA + h) - objective(K, ALPHA - h)) / (2 * h)
    assert dense.alpha_gradient.item() == pytest.approx(change.item(), rel=1e-5, abs=1e-8)


@every_objective
def test_weights_of_one_change_nothing_and_their_unit_does_not_matter(make):
    K = B @ B.mT
    plain = make(intercept=True).evaluate(K)
    ones = make(intercept=True, sample_weight=np.ones(N)).evaluate(K)
    scaled = make(intercept=True, sample_weight=7.0 * WEIGHT).evaluate(K)
    weighted = make(intercept=True, sample_weight=WEIGHT).evaluate(K)
    for one, two in ((plain, ones), (weighted, scaled)):
        torch.testing.assert_close(one.value, two.value)
        torch.testing.assert_close(one.gram_gradient, two.gram_gradient)
    assert abs(plain.value.item() - weighted.value.item()) > 1e-6


def test_a_batch_with_groups_is_its_members_and_a_failure_is_nan():
    K = torch.stack([B @ B.mT, 2.0 * B @ B.mT, -10.0 * B @ B.mT])
    objective = LeaveOneOut(Y, alpha=ALPHA, groups=GROUPS, intercept=True, sample_weight=WEIGHT)
    values = objective.evaluate(K)
    for i in range(2):
        one = objective.evaluate(K[i])
        torch.testing.assert_close(values.value[i], one.value)
        torch.testing.assert_close(values.gram_gradient[i], one.gram_gradient)
    assert values.value[2].isnan()


def test_bad_weights_and_groups_are_named():
    for weight in (np.zeros(N), np.ones(3), -WEIGHT, np.full(N, np.nan)):
        with pytest.raises(ValueError, match="sample_weight must"):
            Ridge(Y, alpha=1.0, sample_weight=weight)
    with pytest.raises(ValueError, match="one label for each of the 14"):
        LeaveOneOut(Y, alpha=1.0, groups=[1, 2])
    with pytest.raises(ValueError, match="at least two different labels"):
        LeaveOneOut(Y, alpha=1.0, groups=["a"] * N, intercept=True)
