"""First-order methods of Tonin et al. (2023) for orthonormal H_j and numbers Λ_j, kept for comparison."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from representer.optimize.runs import Monitor
from representer.optimize.self_consistent import ManifoldResult, Point, polar
from representer.optimize.stiefel import Evaluate, tangent

Loss = Callable[[Point, Point], Tensor]  # of all H_j and the diagonals of all Λ_j, differentiable


def _gradients(loss: Loss, point: Point, values: Point) -> tuple[float, Point, Point]:
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_(True) for part in (*point, *values)]
        value = loss(leaves[: len(point)], leaves[len(point) :])
        gradients = list(torch.autograd.grad(value, leaves))
    return value.item(), gradients[: len(point)], gradients[len(point) :]


def projected_gradient(
    loss: Loss, evaluate: Evaluate, start: Point, *, tol: float, max_iter: int, monitor: Monitor
) -> ManifoldResult:
    """Algorithm 1: a gradient step for all H_j and Λ_j, H_j projected; the step size by backtracking.

    Ends when no entry moves by more than ``tol`` times the step size, or the residual of (6) is at most ``tol``.
    """
    state = evaluate(start)
    point, values = list(start), [multiplier.diagonal().clone() for multiplier in state.multipliers]
    rate, interrupted, k, message = 1.0, False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if monitor(k, state.energy, state.residual, 1):
                message = "stopped by the callback"
                break
            if state.residual <= tol:
                message = f"residual {state.residual:.1e} after {k} iterations"
                break
            value, slopes, value_slopes = _gradients(loss, point, values)
            while True:
                new = [polar(H - rate * g) for H, g in zip(point, slopes, strict=True)]
                new_values = [v - rate * g for v, g in zip(values, value_slopes, strict=True)]
                moves = [a - b for a, b in zip((*new, *new_values), (*point, *values), strict=True)]
                squared = sum((move**2).sum().item() for move in moves)
                with torch.no_grad():
                    fallen = loss(new, new_values).item() <= value - 1e-4 / rate * squared
                if fallen or rate < 1e-16:
                    break
                rate *= 0.5
            largest = max(move.abs().max().item() for move in moves)
            point, values, state = new, new_values, evaluate(new)
            if largest <= tol * rate:
                message = f"steps end at a residual of {state.residual:.1e}"
                break
            rate *= 2.0
    except KeyboardInterrupt:
        interrupted, message = True, f"interrupted after {k} iterations; kept the last point"
    return ManifoldResult(state, state.residual <= tol, message, k, interrupted)


def riemannian_adam(
    loss: Loss, evaluate: Evaluate, start: Point, *, rate: float, tol: float, max_iter: int, monitor: Monitor
) -> ManifoldResult:
    """Adam on Stiefel manifolds (Bécigneul and Ganea, 2019): tangent moments, retraction by QR; Λ_j by Adam itself."""
    state = best = evaluate(start)
    point, values = list(start), [multiplier.diagonal().clone() for multiplier in state.multipliers]
    parts = [*point, *values]
    means, squares = ([torch.zeros_like(part) for part in parts] for _ in range(2))
    interrupted, k, message = False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if state.residual < best.residual:
                best = state
            if monitor(k, state.energy, state.residual, 1):
                message = "stopped by the callback"
                break
            if state.residual <= tol:
                message = f"residual {state.residual:.1e} after {k} iterations"
                break
            _, slopes, value_slopes = _gradients(loss, point, values)
            slopes = [*tangent(point, slopes), *value_slopes]
            means = [0.9 * m + 0.1 * g for m, g in zip(means, slopes, strict=True)]
            squares = [0.999 * s + 0.001 * (g**2).sum() for s, g in zip(squares, slopes, strict=True)]
            corrections = 1.0 - 0.9 ** (k + 1), 1.0 - 0.999 ** (k + 1)
            steps = [
                rate * (m / corrections[0]) / ((s / corrections[1]).sqrt() + 1e-8)
                for m, s in zip(means, squares, strict=True)
            ]
            point = [_qr(H - step) for H, step in zip(point, steps, strict=False)]
            values = [v - step for v, step in zip(values, steps[len(point) :], strict=True)]
            means = [*tangent(point, means[: len(point)]), *means[len(point) :]]
            state = evaluate(point)
    except KeyboardInterrupt:
        interrupted, message = True, f"interrupted after {k} iterations; kept the best point so far"
    return ManifoldResult(best, best.residual <= tol, message, k, interrupted)


def _qr(matrix: Tensor) -> Tensor:
    """The orthonormal factor whose triangular one has a positive diagonal."""
    Q, R = torch.linalg.qr(matrix)
    return Q * torch.where(R.diagonal() < 0, -1.0, 1.0)
