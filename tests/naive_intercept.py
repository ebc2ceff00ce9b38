"""Squared loss with an unpenalised intercept by its textbook definition: stacked least squares and refits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from naive_objectives import HELD_OUT, Array
from torch import Tensor

from representer.objectives import (
    GeneralizedCrossValidation,
    HeldOut,
    Interpolation,
    LeaveOneOut,
    Objective,
    Ridge,
)


def fit(B: Array, Y: Array, shift: float) -> tuple[Array, Array, float]:
    """θ, b and the minimum of ‖Y − Bθ − 1bᵀ‖² + shift ‖θ‖²: ordinary least squares with shrinking rows below."""
    n, m = B.shape
    left = np.block([[B, np.ones((n, 1))], [np.sqrt(shift) * np.eye(m), np.zeros((m, 1))]])
    right = np.vstack([Y, np.zeros((m, Y.shape[1]))])
    solution = np.linalg.lstsq(left, right, rcond=None)[0]
    return solution[:m], solution[m], float(np.sum((right - left @ solution) ** 2))


def ridge(B: Array, Y: Array, alpha: float) -> float:
    return fit(B, Y, len(B) * alpha)[2] / len(B)


def interpolation(B: Array, Y: Array, alpha: float = 0.0) -> float:
    """‖f‖² of the interpolant with the b of least norm, for an invertible B: θ = B⁻¹(Y − 1bᵀ)."""
    theta, ones = np.linalg.solve(B, Y), np.linalg.solve(B, np.ones((len(B), 1)))
    b = np.linalg.lstsq(ones, theta, rcond=None)[0]
    return float(np.sum((theta - ones @ b) ** 2))


def leave_one_out_residuals(B: Array, Y: Array, alpha: float) -> Array:
    """From n refits, each with its own intercept and with the shift nα of the full problem."""
    n = len(B)
    rows = []
    for i in range(n):
        theta, b, _ = fit(np.delete(B, i, 0), np.delete(Y, i, 0), n * alpha)
        rows.append(Y[i] - B[i] @ theta - b)
    return np.array(rows)


def leave_one_out(B: Array, Y: Array, alpha: float) -> float:
    return float(np.sum(leave_one_out_residuals(B, Y, alpha) ** 2)) / len(B)


def generalized_cross_validation(B: Array, Y: Array, alpha: float) -> float:
    """With the hat matrix column by column, from fits to unit vectors."""
    n = len(B)
    theta, b, _ = fit(B, np.eye(n), n * alpha)
    rest = np.eye(n) - (B @ theta + b)
    return float(np.sum((rest @ Y) ** 2) / n / (np.trace(rest) / n) ** 2)


def held_out(B: Array, Y: Array, alpha: float) -> float:
    train = [i for i in range(len(B)) if i not in HELD_OUT]
    theta, b, _ = fit(B[train], Y[train], len(train) * alpha)
    return float(np.mean([np.sum((Y[i] - B[i] @ theta - b) ** 2) for i in HELD_OUT]))


@dataclass(frozen=True)
class Case:
    """An objective made from targets= or target_gram=, and its oracle on a factor of the Gram matrix."""

    make: Callable[..., Objective]
    oracle: Callable[[Array, Array, float], float]


def cases(*, alpha: float, intercept: bool = True) -> dict[str, Case]:
    common = {"alpha": alpha, "intercept": intercept}
    return {
        "ridge": Case(lambda Y=None, **given: Ridge(Y, **given, **common), ridge),
        "interpolation": Case(lambda Y=None, **given: Interpolation(Y, **given, intercept=intercept), interpolation),
        "leave-one-out": Case(lambda Y=None, **given: LeaveOneOut(Y, **given, **common), leave_one_out),
        "generalized cross-validation": Case(
            lambda Y=None, **given: GeneralizedCrossValidation(Y, **given, **common),
            generalized_cross_validation,
        ),
        "held-out": Case(lambda Y=None, **given: HeldOut(Y, **given, **common, validation=HELD_OUT), held_out),
    }


def central_difference(value: Callable[[Tensor], Tensor], at: Tensor, direction: Tensor) -> Tensor:
    h = 1e-5 / direction.norm()
    return (value(at + h * direction) - value(at - h * direction)) / (2 * h)
