"""Self-consistent fields: a fixed point on a product of Stiefel manifolds, with Anderson acceleration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from representer.optimize.runs import Monitor

Point = list[Tensor]

# Energies of two sweeps are compared to this, relative, for their eigenvectors are not exact.
ROUNDING = 1e-12
# Steps that an extrapolation looks back at.
MEMORY = 6
# A run that has not halved its residual in so many sweeps does not contract.
PATIENCE = 6


class State(Protocol):
    """What a sweep says of the point that it looked at."""

    @property
    def hidden(self) -> Point: ...
    @property
    def energy(self) -> float: ...
    @property
    def residual(self) -> float: ...


Sweep = Callable[[Point, float], tuple[State, Point]]


@dataclass(frozen=True)
class ManifoldResult:
    """Where a search on Stiefel manifolds ended, and why."""

    state: State
    converged: bool
    message: str
    n_iter: int
    interrupted: bool


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
    sweep: Sweep, start: Point, *, ascending: bool, tol: float, max_iter: int, monitor: Monitor
) -> ManifoldResult:
    """Repeat ``sweep`` from ``start`` until the residual is at most ``tol``, as long as it contracts.

    A sweep takes a point and the accuracy that is asked for in the end, and gives the state there and the point that
    solves every level's eigenvalue problem in the field of the others. The next point extrapolates from the last of
    these pairs (Anderson mixing), after each has been rotated towards the one before it: what is extrapolated are
    subspaces.

    A step that lowers the energy (if it should be ``ascending``) is taken back: an extrapolated one is replaced by the
    plain one, and after a plain one the run ends, as it does when the residual is not halved for some sweeps.
    """
    point, anderson, plain = list(start), Anderson(), None
    best: State | None = None
    lowest: State | None = None  # of smallest residual: the best where no energy rises
    mark, since = math.inf, 0  # the residual that is to be halved, and for how long it has not been
    interrupted, message, k = False, f"not converged in {max_iter} sweeps", 0
    try:
        for k in range(max_iter):
            state, proposal = sweep(point, 0.1 * tol)
            if monitor(k, state.energy, state.residual, 1):
                message = "stopped by the callback"
                best = best or state
                break
            if best is not None and _worse(state, best, ascending):
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
            if since > PATIENCE:
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


def _worse(state: State, best: State, ascending: bool) -> bool:
    """Is it a step back: a lower energy beyond rounding, or, where that says nothing, a larger residual?"""
    if ascending and state.residual > ROUNDING**0.5:
        return state.energy < best.energy - ROUNDING * abs(best.energy)
    return state.residual > 2.0 * best.residual


def add(left: Point, right: Point, factor: float = 1.0) -> Point:
    """V + factor·W."""
    return [a + factor * b for a, b in zip(left, right, strict=True)]
