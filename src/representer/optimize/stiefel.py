"""Searches on a product of Stiefel manifolds: a trust region for a maximum, Newton's method for a critical point."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, minres

from representer.optimize.runs import Monitor
from representer.optimize.self_consistent import ManifoldResult, Point, State, add, polar

# Of the step along which gradients are differenced, relative to a point of unit columns: √eps balances both errors.
DIFFERENCE = 1e-7
# A Newton step need not go further below the tolerance than this share of it.
WITHIN = 0.3
# The best use of the directions of one Newton step ends here; the next one starts from a better place.
MAX_INNER = 60
# Newton's method that has not halved its residual in so many steps circles around a place without a critical point.
PATIENCE = 20


class CriticalState(State, Protocol):
    """A state with gradients and the multipliers Λ_j = sym(H_jᵀ ∇_j)."""

    @property
    def gradients(self) -> Point: ...
    @property
    def multipliers(self) -> Point: ...


Evaluate = Callable[[Point], Any]
Precondition = Callable[[Point], Point]


def tangent(point: Point, vectors: Point) -> Point:
    """The projection V − H sym(HᵀV) onto the tangent space."""
    parts = []
    for H, V in zip(point, vectors, strict=True):
        inner = H.mT @ V
        parts.append(V - H @ (0.5 * (inner + inner.mT)))
    return parts


def retract(point: Point, step: Point) -> Point:
    """The nearest point of the manifold to H + V."""
    return [polar(H + V) for H, V in zip(point, step, strict=True)]


def inner(left: Point, right: Point) -> float:
    """Σ_j ⟨V_j, W_j⟩."""
    return sum((a * b).sum().item() for a, b in zip(left, right, strict=True))


def hessian(evaluate: Evaluate, state: CriticalState) -> Callable[[Point], Point]:
    """V ↦ Hess E [V], by a difference of Riemannian gradients: an error of 1e-7 slows Newton's method, no more."""
    point = state.hidden
    here = tangent(point, state.gradients)

    def product(V: Point) -> Point:
        longest = max(max(v.abs().max().item() for v in V), torch.finfo(V[0].dtype).tiny)
        t = DIFFERENCE * max(H.abs().max().item() for H in point) / longest
        end = evaluate(retract(point, [t * v for v in V]))
        there = tangent(point, tangent(end.hidden, end.gradients))
        return [(b - a) / t for a, b in zip(here, there, strict=True)]

    return product


def truncated_cg(
    product: Callable[[Point], Point],
    gradient: Point,
    precondition: Precondition,
    radius: float,
    enough: Callable[[Point], bool],
) -> tuple[Point, float]:
    """Steihaug's step for max ⟨g, v⟩ + ½⟨v, H v⟩ in the trust region, and the rise that this model predicts.

    ``enough`` says whether what is left of the gradient is as small as it need be.
    """
    v = [torch.zeros_like(g) for g in gradient]
    r = gradient
    z = precondition(r)
    d, rz = z, inner(r, z)
    if not 0.0 < rz < math.inf:  # beyond the range of numbers: no step
        return v, 0.0
    norm_v, vd, norm_d = 0.0, 0.0, rz  # squared, in the norm of the preconditioner
    rise = 0.0
    for _ in range(MAX_INNER):
        Hd = product(d)
        curvature = -inner(d, Hd)
        alpha = rz / curvature if curvature > 0 else math.inf
        longer = norm_v + 2.0 * alpha * vd + alpha**2 * norm_d if curvature > 0 else math.inf
        if longer >= radius**2:
            tau = (-vd + math.sqrt(vd**2 + norm_d * (radius**2 - norm_v))) / norm_d
            return add(v, d, tau), rise + tau * rz - 0.5 * tau**2 * curvature
        v = add(v, d, alpha)
        rise += 0.5 * alpha * rz
        norm_v = longer
        r = add(r, Hd, alpha)
        if enough(r):
            break
        z = precondition(r)
        before, rz = rz, inner(r, z)
        if not 0.0 < rz < math.inf:
            break
        beta = rz / before
        d = add(z, d, beta)
        vd = beta * (vd + alpha * norm_d)
        norm_d = rz + beta**2 * norm_d
    return v, rise


def _enough(state: Any, tol: float) -> Callable[[Point], bool]:
    """Is what is left of a gradient below the tolerance, or a share of it that falls as the search comes closer?

    The share is the root of the residual: Newton's method converges with order 1.5, and conjugate gradients do not work
    for digits that the next step would find wrong.
    """
    sizes = [gradient.norm().item() for gradient in state.gradients]
    goal = max(WITHIN * tol, min(0.1, math.sqrt(state.residual)) * state.residual)

    def enough(left: Point) -> bool:
        return all(part.norm().item() <= goal * size for part, size in zip(left, sizes, strict=True))

    return enough


def trust_region(
    evaluate: Evaluate,
    start: Point,
    preconditioner: Callable[[Any], Precondition],
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
) -> ManifoldResult:
    """Climb to a maximum of the energy: Riemannian trust region with preconditioned conjugate gradients.

    ``preconditioner`` gives for each new state an approximate inverse of −Hess E there, symmetric and positive.
    """
    state = evaluate(start)
    precondition = None
    radius = 0.0
    interrupted, k, message = False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if monitor(k, state.energy, state.residual, 1):
                message = "stopped by the callback"
                break
            if state.residual <= tol:
                message = f"residual {state.residual:.1e} after {k} iterations"
                break
            gradient = tangent(state.hidden, state.gradients)
            precondition = precondition or preconditioner(state)
            if not radius:  # the length of the first preconditioned step, in its own norm
                radius = math.sqrt(max(inner(gradient, precondition(gradient)), 0.0))
            step, rise = truncated_cg(
                hessian(evaluate, state), gradient, precondition, radius, _enough(state, tol)
            )
            trial = evaluate(retract(state.hidden, step))
            rounding = 10.0 * torch.finfo(step[0].dtype).eps * abs(state.energy)
            ratio = (trial.energy - state.energy + rounding) / (rise + rounding)
            radius *= 0.25 if ratio < 0.25 else 2.0 if ratio > 0.75 else 1.0
            if ratio > 0.05:
                state, precondition = trial, None
            elif radius**2 <= rounding:
                message = f"no step raises the energy any more; residual {state.residual:.1e}"
                break
    except KeyboardInterrupt:
        interrupted, message = True, f"interrupted after {k} iterations; kept the best point so far"
    return ManifoldResult(state, state.residual <= tol, message, k, interrupted)


def newton(
    evaluate: Evaluate,
    start: Point,
    preconditioner: Callable[[Any], Precondition],
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
) -> ManifoldResult:
    """A critical point of the energy near the start: Newton's method, each step by preconditioned MINRES.

    For saddles, where no energy rises. MINRES makes the linearised gradient smaller in the norm of the preconditioner,
    so the gradient itself falls along the step in that norm (not in the Euclidean one): it is halved until that is so.
    The norm is another one after each step; the point with the smallest residual is kept.
    """
    state = best = evaluate(start)
    mark, since = best.residual, 0  # the residual that is to be halved, and when it last was
    interrupted, k, message = False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if monitor(k, state.energy, state.residual, 1):
                message = "stopped by the callback"
                break
            if state.residual <= tol:
                message = f"residual {state.residual:.1e} after {k} iterations"
                break
            if best.residual <= 0.5 * mark:
                mark, since = best.residual, k
            if k - since > PATIENCE:
                message = f"the residual stays near {best.residual:.1e} after {k} iterations"
                break
            gradient = tangent(state.hidden, state.gradients)
            precondition = preconditioner(state)
            size = inner(gradient, precondition(gradient))
            step = _minres(hessian(evaluate, state), gradient, precondition)
            for halvings in range(20):
                trial = evaluate(retract(state.hidden, [0.5**halvings * v for v in step]))
                slope = tangent(state.hidden, tangent(trial.hidden, trial.gradients))
                if inner(slope, precondition(slope)) < (1.0 - 0.1 * 0.5**halvings) * size:
                    break
            else:
                message = f"no step lowers the residual {state.residual:.1e} any more"
                break
            state = trial
            if state.residual < best.residual:
                best = state
    except KeyboardInterrupt:
        interrupted, message = True, f"interrupted after {k} iterations; kept the best point so far"
    return ManifoldResult(best, best.residual <= tol, message, k, interrupted)


def _minres(product: Callable[[Point], Point], gradient: Point, precondition: Precondition) -> Point:
    """An approximate solution of H v = −g."""
    shapes = [g.shape for g in gradient]
    sizes = [g.numel() for g in gradient]

    def flat(parts: Point) -> np.ndarray:
        return torch.cat([part.flatten() for part in parts]).cpu().numpy()

    def parts(vector: np.ndarray) -> Point:
        pieces = torch.from_numpy(np.ascontiguousarray(vector)).to(gradient[0]).split(sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def operator(function: Callable[[Point], Point]) -> LinearOperator:
        return LinearOperator(
            (sum(sizes),) * 2, matvec=lambda v: flat(function(parts(v.ravel()))), dtype=np.float64
        )

    right = -flat(gradient)
    solution, _ = minres(operator(product), right, M=operator(precondition), rtol=1e-3, maxiter=MAX_INNER)
    return parts(solution)
