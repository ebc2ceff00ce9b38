"""Convex losses beside a squared norm: their envelope theorem, and Newton's method for the smooth ones."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from representer.objectives.base import inner
from representer.objectives.curvature import Curvature
from representer.objectives.inner_problem import Fit, InnerProblem, NotConvergedError

# A Newton step that left more than this part of the gap calls for a new factorisation; others are cheaper without.
WELL_REDUCED = 0.1
# Where a Newton step is too long, the line is searched until this part of its slope is left.
FLAT = 0.1


class ConvexLoss(InnerProblem, ABC):
    """min_{f,b} 1/n Σ ℓ(y_i, f(x_i) + b) + α‖f‖².

    By duality the optimum is max_β −1/n Σ ℓ*(y_i, −2nα β_i) − α tr(βᵀKβ), with an intercept over Σ_i β_i = 0.
    """

    couples_columns: ClassVar[bool] = False  # or is ℓ a sum over the columns of y, each a problem of its own?

    def __init__(
        self, targets: Tensor, *, alpha: float | Tensor, intercept: bool, tol: float, max_iter: int
    ) -> None:
        if not tol > 0:
            raise ValueError(f"tol must be positive, got {tol}; a value near 1e-9 suits most problems.")
        self.tol = tol
        self.max_iter = max_iter
        super().__init__(targets, alpha=alpha, intercept=intercept)
        self._check_targets()

    def _check_targets(self) -> None:
        """Raise if these targets have no solution."""

    @abstractmethod
    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss Σℓ, and R = −∂Σℓ/∂F (at a kink, one of its values)."""

    @abstractmethod
    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        """The solution for columns that are one problem."""

    @abstractmethod
    def _curvature(self, gram: Tensor, y: Tensor, alpha: float, fit: Fit) -> Curvature:
        """The curvature at the solution for columns that are one problem."""

    def on_rows(self, rows: Tensor) -> Self:
        """The same loss for some of the samples."""
        part = copy.copy(self)
        part.targets, part.n, part._latest = self.targets[rows], len(rows), []
        part._check_targets()
        return part

    def _problems(self, targets: Tensor) -> list[slice]:
        """The columns of each problem."""
        p = targets.shape[1]
        return [slice(0, p)] if self.couples_columns else [slice(j, j + 1) for j in range(p)]

    def _fit(self, gram: Tensor, targets: Tensor, alpha: float, near: Fit | None) -> Fit:
        return Fit.of_columns(
            [
                self._solve(gram, targets[:, j], alpha, near and _columns(near, j))
                for j in self._problems(targets)
            ]
        )

    def adjoint(self, gram: Tensor, alpha: float, fit: Fit, right: Tensor, sums: Tensor) -> Tensor:
        """How ⟨right, β⟩ + ⟨sums, b⟩ depends on K at the solution: its differential is −⟨a, dK β⟩; returns a."""
        targets = self.targets.to(gram)
        return torch.cat(
            [
                self._curvature(gram, targets[:, j], alpha, _columns(fit, j)).adjoint(
                    right[:, j], sums[j], intercept=self.intercept
                )
                for j in self._problems(targets)
            ],
            dim=1,
        )


def _columns(fit: Fit, j: slice) -> Fit:
    return Fit(fit.value, fit.beta[:, j], fit.intercept[j], fit.slope)


class SmoothLoss(ConvexLoss, ABC):
    """A convex loss with a continuous derivative, solved by Newton's method."""

    @abstractmethod
    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        """The curvature at F, c = 2nα."""

    def _cold_intercept(self, y: Tensor) -> Tensor:
        """The b (p,) to start from beside f = 0."""
        return y.new_zeros(y.shape[1])

    def _curvature(self, gram: Tensor, y: Tensor, alpha: float, fit: Fit) -> Curvature:
        return self._curvature_at(gram, y, gram @ fit.beta + fit.intercept, 2.0 * self.n * alpha)

    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        starts = [
            (torch.zeros_like(y), self._cold_intercept(y) if self.intercept else y.new_zeros(y.shape[1]))
        ]
        if near is not None:
            starts.append((near.beta.to(y), near.intercept.to(y)))
        return damped_newton(
            gram,
            starts,
            alpha=alpha,
            loss=lambda F: self._loss(y, F),
            curvature=lambda F: self._curvature_at(gram, y, F, 2.0 * self.n * alpha),
            intercept=self.intercept,
            tol=self.tol,
            max_iter=self.max_iter,
            name=type(self).__name__,
        )


def damped_newton(
    gram: Tensor,
    starts: list[tuple[Tensor, Tensor]],
    *,
    alpha: float,
    loss: Callable[[Tensor], tuple[Tensor, Tensor]],
    curvature: Callable[[Tensor], Curvature],
    intercept: bool,
    tol: float,
    max_iter: int,
    name: str,
) -> Fit:
    """Minimise 1/n Σ ℓ(F) + α tr(βᵀKβ) over β and b, F = Kβ + 1bᵀ: damped Newton steps.

    Parameters
    ----------
    starts : list of (β, b)
        The best is taken; the first also sets the scale of the gap.
    loss : function F -> (Σ ℓ, R)
        The summed loss and R = −∂Σℓ/∂F; at the optimum 2nα β = R, up to ``tol`` times the largest entry of R at the
        first start, and the rounding of F.
    curvature : function F -> Curvature
        Kept for the next step where the last one went well.
    """
    c = 2.0 * len(gram) * alpha
    largest = gram.abs().max()

    def evaluate(beta: Tensor, smooth: Tensor, b: Tensor) -> _Point:
        total, R = loss(smooth + b)
        return _Point(total / len(gram) + alpha * inner(beta, smooth), beta, smooth, b, R)

    points = [evaluate(beta, gram @ beta, b) for beta, b in starts]
    scale = points[0].R.abs().max().item()
    point = min(points, key=lambda point: point.value.nan_to_num(torch.inf).item())
    before = 0.0
    E: Curvature | None = None
    for steps in range(max_iter + 1):
        _, beta, smooth, b, R = point
        gap = (c * beta - R).abs().max().item()
        rounding = 16 * torch.finfo(gram.dtype).eps * (largest * beta.abs().sum(0).max() + b.abs().max())
        stale = gap >= WELL_REDUCED * before
        if gap <= rounding or (stale and gap <= tol * scale):  # while steps are cheap and good, take another
            return Fit(point.value, beta, b, alpha)
        if steps == max_iter:
            break
        if E is None or stale:
            E = curvature(smooth + b)
        before = gap
        d_beta, d_b = E.newton_step(gram, beta, R, c, intercept=intercept)
        point = _line_search(evaluate, point, d_beta, gram @ d_beta, d_b, alpha)
    raise NotConvergedError(
        f"Newton's method for {name} stopped after {max_iter} steps at an optimality gap of {gap:.2g} "
        f"(wanted {tol * scale:.2g}) for alpha={alpha:.3g}. Increase alpha, loosen tol, or check the scale of the "
        f"Gram matrix (its mean diagonal is {gram.diagonal().mean().item():.3g})."
    )


class _Point(NamedTuple):
    """Where Newton's method is: the value, β, Kβ, b and R."""

    value: Tensor
    beta: Tensor
    smooth: Tensor
    b: Tensor
    R: Tensor


def _line_search(
    evaluate: Callable[[Tensor, Tensor, Tensor], _Point],
    start: _Point,
    d_beta: Tensor,
    d_smooth: Tensor,
    d_b: Tensor,
    alpha: float,
) -> _Point:
    """The end of the full step if it is good (Armijo); otherwise where the line is nearly flat, by bisection."""

    def slope(point: _Point) -> Tensor:
        return 2.0 * alpha * inner(point.smooth, d_beta) - inner(point.R, d_smooth + d_b) / len(d_beta)

    initial = slope(start)
    enough = start.value + 1e-4 * initial + 64 * torch.finfo(d_beta.dtype).eps * start.value.abs()
    t, low, high = 1.0, 0.0, 1.0
    while True:
        end = evaluate(start.beta + t * d_beta, start.smooth + t * d_smooth, start.b + t * d_b)
        final = slope(end)
        if t == 1.0 and (end.value <= enough or final <= 0.0):
            return end
        lower = end.value <= start.value
        if (lower and final.abs() <= FLAT * initial.abs()) or high - low < 1e-9:
            return end
        low, high = (t, high) if final < 0 else (low, t)
        t = 0.5 * (low + high)
