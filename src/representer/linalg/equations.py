"""Many small systems of nonlinear equations at once, one in each row: Broyden's method, and a safer, slower one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# The step of forward differences, relative to the scale of the unknowns; in single precision it is √eps.
DIFFERENCE = 1e-7


Equations = Callable[[Tensor, Tensor], Tensor]  # F for each row, from the rows and their numbers


class Limits(NamedTuple):
    """The limits at which a row is solved: a step of ``tol * scale``, or no |F| above its ``noise``."""

    scale: float
    tol: float
    noise: Tensor | float = 0.0
    max_iter: int = 50


def broyden(equations: Equations, start: Tensor, inverse: Tensor, limits: Limits) -> tuple[Tensor, Tensor]:
    """Solve F(x_i) = 0 for every row x_i of ``start`` (m, S).

    ``inverse``, (S, S) or one a row, is near the inverse of the Jacobian. A step that more than doubles ‖F‖ is halved
    first. The answer has the solutions (m, S), and which of them converged (m,).

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import Limits, broyden
    >>> target = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    >>> start, inverse = torch.ones(2, 1, dtype=torch.float64), 0.5 * torch.eye(1, dtype=torch.float64)
    >>> roots, converged = broyden(lambda x, rows: x**2 - target[rows], start, inverse, Limits(1.0, 1e-12))
    >>> roots.round(decimals=6).tolist(), converged.tolist()
    ([[1.414214], [1.732051]], [True, True])
    """
    solutions, converged = start.clone(), torch.zeros(len(start), dtype=torch.bool, device=start.device)
    rows = torch.arange(len(start), device=start.device)
    x, B = start, inverse.expand(len(start), *inverse.shape[-2:])
    F = equations(x, rows)
    for _ in range(limits.max_iter):
        step = -(B @ F[:, :, None])[:, :, 0]
        step[(F.abs() <= limits.noise).all(1)] = 0.0
        small = step.abs().amax(1) <= limits.tol * limits.scale
        done = small & step.isfinite().all(1)
        solutions[rows[done]] = x[done] + step[done]
        converged[rows[done]] = True
        unsolved = ~done & step.isfinite().all(1)
        if not bool(unsolved.any()):
            break
        rows, x, B, F, step = rows[unsolved], x[unsolved], B[unsolved], F[unsolved], step[unsolved]
        new = equations(x + step, rows)
        for _ in range(3):
            grown = ~(new.norm(dim=1) <= 2.0 * F.norm(dim=1))
            if not bool(grown.any()):
                break
            step = torch.where(grown[:, None], 0.5 * step, step)
            new[grown] = equations((x + step)[grown], rows[grown])
        change = new - F
        Bchange = (B @ change[:, :, None])[:, :, 0]
        stepB = (step[:, None, :] @ B)[:, 0]
        denominator = (step * Bchange).sum(1)
        safe = denominator.abs() > torch.finfo(x.dtype).eps * step.norm(dim=1) * Bchange.norm(dim=1)
        factor = torch.where(safe, 1.0 / torch.where(safe, denominator, 1.0), 0.0)
        B = B + factor[:, None, None] * (step - Bchange)[:, :, None] * stepB[:, None, :]
        x, F = x + step, new
    return solutions, converged


def levenberg_marquardt(equations: Equations, start: Tensor, limits: Limits) -> tuple[Tensor, Tensor]:
    """Solve F(x_i) = 0 for every row by steps that always lower ‖F‖, with Jacobians by differences.

    Arguments and results are those of ``broyden``. A row can end where ‖F‖ has a minimum that is not 0.
    """
    solutions, converged = start.clone(), torch.zeros(len(start), dtype=torch.bool, device=start.device)
    rows, x = torch.arange(len(start), device=start.device), start
    F = equations(x, rows)
    damping = x.new_full((len(x),), 1e-3)
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    for _ in range(limits.max_iter):
        J = jacobian(equations, x, F, rows, limits.scale)
        normal, right = J.mT @ J, (J.mT @ F[:, :, None])
        usable = normal.isfinite().all((1, 2)) & right.isfinite().all((1, 2))
        if not bool(usable.all()):  # rows that overflow are given up
            normal, right = normal[usable], right[usable]
            rows, x, F, damping = rows[usable], x[usable], F[usable], damping[usable]
            if not len(rows):
                break
        weights = damping[:, None, None] * normal.diagonal(dim1=1, dim2=2).amax(1)[:, None, None]
        step = -least_squares(normal + weights * eye, right)[:, :, 0]
        new = equations(x + step, rows)
        better = new.norm(dim=1) < F.norm(dim=1)
        small = step.abs().amax(1) <= limits.tol * limits.scale
        done = small & (damping < 1e-6) | (F.abs() <= limits.noise).all(1)
        solutions[rows], converged[rows[done]] = torch.where(better[:, None], x + step, x), True
        damping = torch.where(better, 0.1 * damping, 10.0 * damping)
        unsolved = ~done & (damping < 1e6)
        if not bool(unsolved.any()):
            break
        x, F = torch.where(better[:, None], x + step, x), torch.where(better[:, None], new, F)
        rows, x, F, damping = rows[unsolved], x[unsolved], F[unsolved], damping[unsolved]
    return solutions, converged


def jacobian(equations: Equations, x: Tensor, F: Tensor, rows: Tensor, scale: float) -> Tensor:
    """The Jacobians ∂F_a/∂x_b of all rows (m, S, S), by forward differences."""
    t = max(DIFFERENCE, torch.finfo(x.dtype).eps ** 0.5) * scale
    columns = []
    for b in range(x.shape[1]):
        moved = x.clone()
        moved[:, b] += t
        columns.append((equations(moved, rows) - F) / t)
    return torch.stack(columns, 2)


def least_squares(matrix: Tensor, right: Tensor) -> Tensor:
    """The X of least norm that minimises ‖A X − B‖, for matrices A (..., n, m) and B (..., n, p).

    It is computed by singular values, because torch's default on processors, ``gelsy``, may round two calls with the
    same numbers differently.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import least_squares
    >>> least_squares(torch.ones(2, 1).double(), torch.tensor([[1.0], [2.0]]).double()).round(decimals=9).tolist()
    [[1.5]]
    """
    driver = "gelsd" if matrix.device.type == "cpu" else None
    return torch.linalg.lstsq(matrix, right, driver=driver).solution
