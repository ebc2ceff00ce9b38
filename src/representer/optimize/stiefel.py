"""Searches on a product of Stiefel manifolds, whose points are lists of matrices H_j with orthonormal columns.

A search is an iterator of states, which ``follow`` follows until one of them solves its equations. ``sweeps`` repeat an
eigenvalue problem for every H_j in the field of the others. ``ascent`` climbs to a maximum of an energy, and
``newton_steps`` find a saddle. ``projected_steps`` and ``adam_steps`` are the first-order methods of Tonin et al.
(2023), for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, minres
from torch import Tensor

from representer.linalg import least_squares
from representer.optimize.search import Monitor

Point = list[Tensor]

# Energies of two sweeps are compared to this relative accuracy, because their eigenvectors are not exact.
ENERGY_ROUNDING = 1e-12
# An Anderson extrapolation looks back at so many steps.
MEMORY = 6
# Sweeps that have not halved the residual in so many rounds do not contract; Newton's method that has not done so in so
# many steps circles around a place without a critical point, or has come as close to one as rounding lets it.
SWEEP_PATIENCE, NEWTON_PATIENCE = 6, 21
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


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends: at a relative residual, after so many iterations, or where its monitor says so."""

    tol: float
    max_iter: int
    monitor: Monitor


class StalledError(Exception):
    """A search cannot go on; the message says why."""


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


def symmetric(matrix: Tensor) -> Tensor:
    """The symmetric part ½ (A + Aᵀ)."""
    return 0.5 * (matrix + matrix.mT)


def aligned(new: Tensor, old: Tensor) -> Tensor:
    """The rotation of new columns that comes closest to the old ones."""
    return new @ polar(new.mT @ old)


def tangent(point: Point, vectors: Point) -> Point:
    """The projection V − H sym(HᵀV) onto the tangent space."""
    return [V - H @ symmetric(H.mT @ V) for H, V in zip(point, vectors, strict=True)]


def retract(point: Point, step: Point) -> Point:
    """The nearest point of the manifold to H + V."""
    return [polar(H + V) for H, V in zip(point, step, strict=True)]


def inner(left: Point, right: Point) -> float:
    """The inner product Σ_j ⟨V_j, W_j⟩."""
    return sum((a * b).sum().item() for a, b in zip(left, right, strict=True))


def add(left: Point, right: Point, factor: float = 1.0) -> Point:
    """The sum V + factor·W."""
    return [a + factor * b for a, b in zip(left, right, strict=True)]


def follow(states: Iterator[S], limits: SearchLimits, is_better: Callable[[S, S], bool]) -> ManifoldResult[S]:
    """Follow a search from state to state until one solves its equations, and keep the best of them."""
    best: S | None = None
    interrupted, k, message = False, 0, f"not converged in {limits.max_iter} iterations"
    try:
        for k, state in enumerate(islice(states, limits.max_iter + 1)):
            if best is None or state.residual <= limits.tol or is_better(state, best):
                best = state
            if limits.monitor(k, state.energy, state.residual, 1):
                message = "stopped by the callback"
                break
            if state.residual <= limits.tol:
                message = f"residual {state.residual:.1e} after {k} iterations"
                break
            limits.monitor.deadline.check()
    except StalledError as reason:
        message = f"{reason} after {k} iterations"
    except KeyboardInterrupt:
        if best is None:
            raise
        why = "max_time reached" if limits.monitor.deadline.was_missed else "interrupted"
        interrupted, message = True, f"{why} after {k} iterations; kept the best point so far"
    assert best is not None
    return ManifoldResult(best, best.residual <= limits.tol, message, k, interrupted)


def is_later(state: State, best: State) -> bool:
    """The last state is the best where every step is an improvement."""
    return True


def is_closer(state: State, best: State) -> bool:
    """The state of smaller residual is the better one where no energy rises."""
    return state.residual < best.residual


class Patience:
    """The rounds that a search may take to halve its residual."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.since, self.mark = rounds, 0, math.inf

    def check(self, residual: float) -> None:
        """Count a round, and end a search that stays where it is."""
        if residual <= 0.5 * self.mark:
            self.mark, self.since = residual, 0
        self.since += 1
        if self.since > self.rounds:
            raise StalledError(f"the residual stays near {self.mark:.1e}")


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
            weights = least_squares(steps, self.steps[-1][:, None])
            flat = flat - ((inputs + steps) @ weights)[:, 0]
        parts = flat.split([H.numel() for H in point])
        return [polar(matrix.view_as(H)) for matrix, H in zip(parts, point, strict=True)]


def sweeps(
    sweep: Callable[[Point, float], tuple[S, Point]], point: Point, tol: float, *, ascending: bool
) -> Iterator[S]:
    """Repeat ``sweep`` from a point, as long as it contracts.

    A sweep takes a point and the accuracy that is asked for in the end, and gives the state there and the point that
    solves every level's eigenvalue problem in the field of the others. The next point extrapolates from the last of
    these pairs (Anderson mixing), after each has been rotated towards the one before it: what is extrapolated are
    subspaces. A step that lowers the energy (if it should be ``ascending``) is taken back: an extrapolated one is
    replaced by the plain one, and after a plain one the search ends.
    """
    anderson, plain, patience = Anderson(), None, Patience(SWEEP_PATIENCE)
    last: S | None = None
    while True:
        state, proposal = sweep(point, 0.1 * tol)
        yield state
        if last is not None and not (is_no_lower if ascending else is_not_far)(state, last):
            if plain is None:
                raise StalledError("sweeps do not contract")
            point, plain, anderson = plain, None, Anderson()
            continue
        last = state
        patience.check(state.residual)
        step = [aligned(new, H) - H for new, H in zip(proposal, state.hidden, strict=True)]
        point = anderson.next(state.hidden, step)
        plain = None if len(anderson.steps) == 1 else add(state.hidden, step)


def is_not_far(state: State, best: State) -> bool:
    """A step where no energy rises may double the residual."""
    return state.residual <= 2.0 * best.residual


def is_no_lower(state: State, best: State) -> bool:
    """The energy has not fallen beyond rounding, or where rounding hides it, the residual has not grown much."""
    rounding = max(ENERGY_ROUNDING, 10.0 * torch.finfo(state.hidden[0].dtype).eps)
    if state.residual > rounding**0.5:
        return state.energy >= best.energy - rounding * abs(best.energy)
    return is_not_far(state, best)


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


def ascent(
    evaluate: Callable[[Point], S], start: Point, preconditioner: Callable[[S], Precondition], tol: float
) -> Iterator[S]:
    """Climb to a maximum of the energy: Riemannian trust region with preconditioned conjugate gradients.

    ``preconditioner`` gives for each new state an approximate inverse of −Hess E there, symmetric and positive.
    """
    state, radius, widest = evaluate(start), 0.0, 0.0
    precondition: Precondition | None = None
    patience, least = Patience(NEWTON_PATIENCE), math.inf
    while True:
        yield state
        gradient = tangent(state.hidden, state.gradients)
        precondition = precondition or preconditioner(state)
        if not radius:
            radius, widest = _first_radii(state, gradient, precondition(gradient))
        product = hessian(evaluate, state)
        step, rise = truncated_cg(product, gradient, precondition, radius, _enough(state, tol))
        trial = evaluate(retract(state.hidden, step))
        rounding = 10.0 * torch.finfo(step[0].dtype).eps * abs(state.energy)
        ratio = (trial.energy - state.energy + rounding) / (rise + rounding)
        radius = min(radius * (0.25 if ratio < 0.25 else 2.0 if ratio > 0.75 else 1.0), widest)
        least = min(least, trial.residual)
        if rise <= rounding:  # which hides whether the step is one upwards
            patience.check(least)
        if ratio > 0.05:
            state, precondition = trial, None
        elif radius**2 <= rounding:
            raise StalledError(f"no step raises the energy any more; residual {state.residual:.1e}")


def _first_radii(state: State, gradient: Point, step: Point) -> tuple[float, float]:
    """The length of the first preconditioned step, in its own norm, and that of a step across the manifold."""
    radius = math.sqrt(max(inner(gradient, step), 0.0))
    across, length = 2.0 * math.sqrt(inner(state.hidden, state.hidden)), math.sqrt(inner(step, step))
    return radius, radius * max(1.0, across / length) if length else radius


def newton_steps(
    evaluate: Callable[[Point], S], start: Point, preconditioner: Callable[[S], Precondition]
) -> Iterator[S]:
    """Approach a critical point of the energy by Newton's method, each step by preconditioned MINRES.

    It serves saddles, where no energy rises. MINRES makes the linearised gradient smaller in the norm of the
    preconditioner, so the gradient itself falls along the step in that norm (not in the Euclidean one): the step is
    halved until that is so. The norm is another one after each step.
    """
    state, patience = evaluate(start), Patience(NEWTON_PATIENCE)
    least = state.residual
    while True:
        yield state
        least = min(least, state.residual)
        patience.check(least)
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
            raise StalledError(f"no step lowers the residual {state.residual:.1e} any more")
        state = trial


def _minres(product: Callable[[Point], Point], gradient: Point, precondition: Precondition) -> Point:
    """An approximate solution of H v = −g."""
    sizes = [g.numel() for g in gradient]

    def flat(parts: Point) -> np.ndarray:
        return torch.cat([part.flatten() for part in parts]).cpu().numpy()

    def parts(vector: np.ndarray) -> Point:
        pieces = torch.from_numpy(np.ascontiguousarray(vector)).to(gradient[0]).split(sizes)
        return [piece.view_as(g) for piece, g in zip(pieces, gradient, strict=True)]

    def operator(function: Callable[[Point], Point]) -> LinearOperator:
        return LinearOperator((sum(sizes),) * 2, matvec=lambda v: flat(function(parts(v.ravel()))), dtype=np.float64)

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


def projected_steps(loss: Loss, evaluate: Callable[[Point], S], point: Point, tol: float) -> Iterator[S]:
    """Algorithm 1: a gradient step for all H_j and Λ_j, H_j projected; the step size by backtracking.

    It ends when no entry moves by more than ``tol`` times the step size.
    """
    state, rate = evaluate(point), 1.0
    values = [multiplier.diagonal().clone() for multiplier in state.multipliers]
    while True:
        yield state
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
        point, values, state = new, new_values, evaluate(new)
        if max(move.abs().max().item() for move in moves) <= tol * rate:
            yield state
            raise StalledError(f"steps end at a residual of {state.residual:.1e}")
        rate *= 2.0


def adam_steps(loss: Loss, evaluate: Callable[[Point], S], point: Point, rate: float) -> Iterator[S]:
    """Adam on Stiefel manifolds (Bécigneul and Ganea, 2019): tangent moments, retraction by QR; Λ_j by Adam itself."""
    state = evaluate(point)
    values = [multiplier.diagonal().clone() for multiplier in state.multipliers]
    means, squares = ([torch.zeros_like(part) for part in (*point, *values)] for _ in range(2))
    for k in count(1):
        yield state
        _, slopes, value_slopes = _gradients(loss, point, values)
        slopes = [*tangent(point, slopes), *value_slopes]
        means = [0.9 * m + 0.1 * g for m, g in zip(means, slopes, strict=True)]
        squares = [0.999 * s + 0.001 * (g**2).sum() for s, g in zip(squares, slopes, strict=True)]
        steps = [
            rate * (m / (1.0 - 0.9**k)) / ((s / (1.0 - 0.999**k)).sqrt() + 1e-8)
            for m, s in zip(means, squares, strict=True)
        ]
        point = [_qr(H - step) for H, step in zip(point, steps, strict=False)]
        values = add(values, steps[len(point) :], -1.0)
        means = [*tangent(point, means[: len(point)]), *means[len(point) :]]
        state = evaluate(point)


def _qr(matrix: Tensor) -> Tensor:
    """The orthonormal factor whose triangular one has a positive diagonal."""
    Q, R = torch.linalg.qr(matrix)
    return Q * torch.where(R.diagonal() < 0, -1.0, 1.0)
