"""Searches on a product of Stiefel manifolds, whose points are lists of matrices H_j with orthonormal columns.

``self_consistent`` repeats an eigenvalue problem for every H_j in the field of the others. ``trust_region`` climbs to a
maximum of an energy, and ``critical_point`` finds a saddle by Newton's method. ``projected_gradient`` and
``riemannian_adam`` are the first-order methods of Tonin et al. (2023), kept for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, minres
from torch import Tensor

from representer.optimize.runs import Monitor

Point = list[Tensor]

# Energies of two sweeps are compared to this relative accuracy, because their eigenvectors are not exact.
ENERGY_ROUNDING = 1e-12
# An Anderson extrapolation looks back at so many steps.
MEMORY = 6
# Sweeps that have not halved the residual in so many rounds do not contract; Newton's method that has not done so in so
# many steps circles around a place without a critical point.
SWEEP_PATIENCE, NEWTON_PATIENCE = 6, 20
# Gradients are differenced along a step of this length, relative to a point of unit columns; in single precision √eps.
DIFFERENCE = 1e-7
# A Newton step need not go further below the tolerance than this share of it.
WITHIN = 0.3
# The inner iterations of one Newton step end here, because the next step starts from a better place.
MAX_INNER = 60


class State(Protocol):
    """What is known of a point: its energy, how far it is from solving its equations, gradients and multipliers."""

    @property
    def hidden(self) -> Point: ...
    @property
    def energy(self) -> float: ...
    @property
    def residual(self) -> float: ...
    @property
    def gradients(self) -> Point: ...
    @property
    def multipliers(self) -> Point: ...


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class ManifoldResult(Generic[S]):
    """Where a search on Stiefel manifolds ended, and why."""

    state: S
    converged: bool
    message: str
    n_iter: int
    interrupted: bool


Precondition = Callable[[Point], Point]
Loss = Callable[[Point, Point], Tensor]  # of all H_j and the diagonals of all Λ_j, differentiable


# -- the manifold -----------------------------------------------------------------------------------------------------
def polar(matrix: Tensor) -> Tensor:
    """The nearest matrix with orthonormal columns, A (AᵀA)^(−1/2)."""
    values, vectors = torch.linalg.eigh(matrix.mT @ matrix)
    if values[0] <= torch.finfo(matrix.dtype).eps ** 0.5 * values[-1]:
        U, _, Vt = torch.linalg.svd(matrix, full_matrices=False)
        return U @ Vt
    return matrix @ (vectors / values.sqrt()) @ vectors.mT


def aligned(new: Tensor, old: Tensor) -> Tensor:
    """The rotation of new columns that comes closest to the old ones."""
    return new @ polar(new.mT @ old)


def tangent(point: Point, vectors: Point) -> Point:
    """The projection V − H sym(HᵀV) onto the tangent space."""
    parts = []
    for H, V in zip(point, vectors, strict=True):
        overlap = H.mT @ V
        parts.append(V - H @ (0.5 * (overlap + overlap.mT)))
    return parts


def retract(point: Point, step: Point) -> Point:
    """The nearest point of the manifold to H + V."""
    return [polar(H + V) for H, V in zip(point, step, strict=True)]


def inner(left: Point, right: Point) -> float:
    """The inner product Σ_j ⟨V_j, W_j⟩."""
    return sum((a * b).sum().item() for a, b in zip(left, right, strict=True))


def add(left: Point, right: Point, factor: float = 1.0) -> Point:
    """The sum V + factor·W."""
    return [a + factor * b for a, b in zip(left, right, strict=True)]


def _finished(k: int, state: State, tol: float, monitor: Monitor, steps: str = "iterations") -> str | None:
    """Record an iteration, and say why the search ends there if it does."""
    if monitor(k, state.energy, state.residual, 1):
        return "stopped by the callback"
    return f"residual {state.residual:.1e} after {k} {steps}" if state.residual <= tol else None


# -- self-consistent fields -------------------------------------------------------------------------------------------
class Anderson:
    """The fixed point that the last steps point to, if the map were affine."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.steps: list[Tensor] = []

    def next(self, point: Point, step: Point) -> Point:
        """The next point, orthonormal again."""
        self.inputs = [*self.inputs, torch.cat([H.flatten() for H in point])][-MEMORY:]
        self.steps = [*self.steps, torch.cat([d.flatten() for d in step])][-MEMORY:]
        flat = self.inputs[-1] + self.steps[-1]
        if len(self.steps) > 1:
            inputs, steps = (torch.stack(rows, 1).diff(dim=1) for rows in (self.inputs, self.steps))
            weights = torch.linalg.lstsq(steps, self.steps[-1][:, None]).solution
            flat = flat - ((inputs + steps) @ weights)[:, 0]
        parts = flat.split([H.numel() for H in point])
        return [polar(part.view_as(H)) for part, H in zip(parts, point, strict=True)]


def self_consistent(
    sweep: Callable[[Point, float], tuple[S, Point]],
    start: Point,
    *,
    ascending: bool,
    tol: float,
    max_iter: int,
    monitor: Monitor,
) -> ManifoldResult[S]:
    """Repeat ``sweep`` from ``start`` until the residual is at most ``tol``, as long as it contracts.

    A sweep takes a point and the accuracy that is asked for in the end, and gives the state there and the point that
    solves every level's eigenvalue problem in the field of the others. The next point extrapolates from the last of
    these pairs (Anderson mixing), after each has been rotated towards the one before it: what is extrapolated are
    subspaces.

    A step that lowers the energy (if it should be ``ascending``) is taken back: an extrapolated one is replaced by the
    plain one, and after a plain one the run ends, as it does when the residual is not halved for some sweeps.
    """
    point, anderson, plain = list(start), Anderson(), None
    best: S | None = None
    lowest: S | None = None  # the state of smallest residual, which is the best where no energy rises
    mark, since = math.inf, 0  # the residual that is to be halved, and for how long it has not been
    interrupted, message, k = False, f"not converged in {max_iter} sweeps", 0
    try:
        for k in range(max_iter):
            state, proposal = sweep(point, 0.1 * tol)
            if monitor(k, state.energy, state.residual, 1):
                message = "stopped by the callback"
                best = best or state
                break
            if best is not None and _is_worse(state, best, ascending):
                if plain is None:
                    message = f"the energy falls after {k} sweeps: they do not contract"
                    break
                point, plain, anderson = plain, None, Anderson()
                continue
            best = state
            if lowest is None or state.residual < lowest.residual:
                lowest = state
            if state.residual <= tol:
                message = f"residual {state.residual:.1e} after {k} sweeps"
                break
            if state.residual <= 0.5 * mark:
                mark, since = state.residual, 0
            since += 1
            if since > SWEEP_PATIENCE:
                message = f"the residual stays near {mark:.1e} after {k} sweeps: they do not contract"
                break
            step = [aligned(new, H) - H for new, H in zip(proposal, state.hidden, strict=True)]
            point = anderson.next(state.hidden, step)
            plain = None if len(anderson.steps) == 1 else add(state.hidden, step)
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted, message = True, f"interrupted after {k} sweeps; kept the best point so far"
    assert best is not None
    if not ascending and lowest is not None:
        best = lowest
    return ManifoldResult(best, best.residual <= tol, message, k, interrupted)


def _is_worse(state: State, best: State, ascending: bool) -> bool:
    """Is it a step back: a lower energy beyond rounding, or, where that says nothing, a larger residual?"""
    rounding = max(ENERGY_ROUNDING, 10.0 * torch.finfo(state.hidden[0].dtype).eps)
    if ascending and state.residual > rounding**0.5:
        return state.energy < best.energy - rounding * abs(best.energy)
    return state.residual > 2.0 * best.residual


# -- Newton's method --------------------------------------------------------------------------------------------------
def hessian(evaluate: Callable[[Point], S], state: S) -> Callable[[Point], Point]:
    """V ↦ Hess E [V], by a difference of Riemannian gradients: an error of 1e-7 slows Newton's method, no more."""
    point = state.hidden
    here = tangent(point, state.gradients)
    length = max(DIFFERENCE, torch.finfo(point[0].dtype).eps ** 0.5)

    def product(V: Point) -> Point:
        longest = max(max(v.abs().max().item() for v in V), torch.finfo(V[0].dtype).tiny)
        t = length * max(H.abs().max().item() for H in point) / longest
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
    if not 0.0 < rz < math.inf:  # The step is beyond the range of numbers.
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


def _enough(state: State, tol: float) -> Callable[[Point], bool]:
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
    evaluate: Callable[[Point], S],
    start: Point,
    preconditioner: Callable[[S], Precondition],
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
) -> ManifoldResult[S]:
    """Climb to a maximum of the energy: Riemannian trust region with preconditioned conjugate gradients.

    ``preconditioner`` gives for each new state an approximate inverse of −Hess E there, symmetric and positive.
    """
    state = evaluate(start)
    precondition: Precondition | None = None
    radius = 0.0
    interrupted, k, message = False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if end := _finished(k, state, tol, monitor):
                message = end
                break
            gradient = tangent(state.hidden, state.gradients)
            precondition = precondition or preconditioner(state)
            if (
                not radius
            ):  # The first radius is the length of the first preconditioned step, in its own norm.
                radius = math.sqrt(max(inner(gradient, precondition(gradient)), 0.0))
            product = hessian(evaluate, state)
            step, rise = truncated_cg(product, gradient, precondition, radius, _enough(state, tol))
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


def critical_point(
    evaluate: Callable[[Point], S],
    start: Point,
    preconditioner: Callable[[S], Precondition],
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
) -> ManifoldResult[S]:
    """Find a critical point of the energy near the start by Newton's method, each step by preconditioned MINRES.

    It serves saddles, where no energy rises. MINRES makes the linearised gradient smaller in the norm of the
    preconditioner, so the gradient itself falls along the step in that norm (not in the Euclidean one): the step is
    halved until that is so. The norm is another one after each step; the point with the smallest residual is kept.
    """
    state = best = evaluate(start)
    mark, since = best.residual, 0  # the residual that is to be halved, and when it last was
    interrupted, k, message = False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if end := _finished(k, state, tol, monitor):
                message = end
                break
            if best.residual <= 0.5 * mark:
                mark, since = best.residual, k
            if k - since > NEWTON_PATIENCE:
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
    sizes = [g.numel() for g in gradient]

    def flat(parts: Point) -> np.ndarray:
        return torch.cat([part.flatten() for part in parts]).cpu().numpy()

    def parts(vector: np.ndarray) -> Point:
        pieces = torch.from_numpy(np.ascontiguousarray(vector)).to(gradient[0]).split(sizes)
        return [piece.view_as(g) for piece, g in zip(pieces, gradient, strict=True)]

    def operator(function: Callable[[Point], Point]) -> LinearOperator:
        return LinearOperator(
            (sum(sizes),) * 2, matvec=lambda v: flat(function(parts(v.ravel()))), dtype=np.float64
        )

    right = -flat(gradient)
    solution, _ = minres(operator(product), right, M=operator(precondition), rtol=1e-3, maxiter=MAX_INNER)
    return parts(solution)


# -- first-order methods of the paper ---------------------------------------------------------------------------------
def _gradients(loss: Loss, point: Point, values: Point) -> tuple[float, Point, Point]:
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_(True) for part in (*point, *values)]
        value = loss(leaves[: len(point)], leaves[len(point) :])
        gradients = list(torch.autograd.grad(value, leaves))
    return value.item(), gradients[: len(point)], gradients[len(point) :]


def projected_gradient(
    loss: Loss, evaluate: Callable[[Point], S], start: Point, *, tol: float, max_iter: int, monitor: Monitor
) -> ManifoldResult[S]:
    """Algorithm 1: a gradient step for all H_j and Λ_j, H_j projected; the step size by backtracking.

    It ends when no entry moves by more than ``tol`` times the step size, or the residual of (6) is at most ``tol``.
    """
    state = evaluate(start)
    point, values = list(start), [multiplier.diagonal().clone() for multiplier in state.multipliers]
    rate, interrupted, k, message = 1.0, False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if end := _finished(k, state, tol, monitor):
                message = end
                break
            value, slopes, value_slopes = _gradients(loss, point, values)
            while True:
                new = [polar(H - rate * g) for H, g in zip(point, slopes, strict=True)]
                new_values = add(values, value_slopes, -rate)
                moves = add([*new, *new_values], [*point, *values], -1.0)
                with torch.no_grad():
                    fallen = loss(new, new_values).item() <= value - 1e-4 / rate * inner(moves, moves)
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
    loss: Loss,
    evaluate: Callable[[Point], S],
    start: Point,
    *,
    rate: float,
    tol: float,
    max_iter: int,
    monitor: Monitor,
) -> ManifoldResult[S]:
    """Adam on Stiefel manifolds (Bécigneul and Ganea, 2019): tangent moments, retraction by QR; Λ_j by Adam itself."""
    state = best = evaluate(start)
    point, values = list(start), [multiplier.diagonal().clone() for multiplier in state.multipliers]
    means, squares = ([torch.zeros_like(part) for part in (*point, *values)] for _ in range(2))
    interrupted, k, message = False, 0, f"not converged in {max_iter} iterations"
    try:
        for k in range(max_iter):
            if state.residual < best.residual:
                best = state
            if end := _finished(k, state, tol, monitor):
                message = end
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
            values = add(values, steps[len(point) :], -1.0)
            means = [*tangent(point, means[: len(point)]), *means[len(point) :]]
            state = evaluate(point)
    except KeyboardInterrupt:
        interrupted, message = True, f"interrupted after {k} iterations; kept the best point so far"
    return ManifoldResult(best, best.residual <= tol, message, k, interrupted)


def _qr(matrix: Tensor) -> Tensor:
    """The orthonormal factor whose triangular one has a positive diagonal."""
    Q, R = torch.linalg.qr(matrix)
    return Q * torch.where(R.diagonal() < 0, -1.0, 1.0)
