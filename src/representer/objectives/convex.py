"""Convex losses beside a squared norm: their envelope theorem, and Newton's method for the smooth ones."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from representer.linalg import factorize
from representer.objectives.base import Fit, InnerProblem, NotConvergedError, factorize_shifted, inner
from representer.objectives.targets import ArrayLike

# A Newton step that left more than this part of the gap calls for a new factorisation; others are cheaper without.
WELL_REDUCED = 0.1
# Where a Newton step is too long, the line is searched until this part of its slope is left.
FLAT = 0.1


class ConvexLoss(InnerProblem, ABC):
    """min_{f,b} 1/n Σ w_i ℓ(y_i, f(x_i) + b) + α‖f‖², with weights w of mean one, which are ones by default.

    By duality the optimum is max_β −1/n Σ w_i ℓ*(y_i, −2nα β_i/w_i) − α tr(βᵀKβ), with an intercept over Σ_i β_i = 0.
    """

    couples_columns: ClassVar[bool] = False  # or is ℓ a sum over the columns of y, each a problem of its own?

    def __init__(
        self,
        targets: Tensor,
        *,
        alpha: float | Tensor,
        intercept: bool,
        tol: float,
        max_iter: int,
        sample_weight: ArrayLike | None,
    ) -> None:
        if not tol > 0:
            raise ValueError(f"tol must be positive, got {tol}; a value near 1e-9 suits most problems.")
        self.tol = tol
        self.max_iter = max_iter
        super().__init__(targets, alpha=alpha, intercept=intercept, sample_weight=sample_weight)
        self._check_targets()

    def _check_targets(self) -> None:
        """Refuse targets for which the problem has no solution."""

    @abstractmethod
    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        """The loss ℓ (n,) of each sample and −∂ℓ/∂F (n, p), at a kink one of its values; without weights."""

    def _summed(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted sum Σwℓ, and R = −∂Σwℓ/∂F."""
        losses, slopes = self._loss(targets, F)
        if self.sample_weight is None:
            return losses.sum(), slopes
        weights = self._weights(F)
        return weights[:, 0] @ losses, weights * slopes

    @abstractmethod
    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        """The solution for columns that are one problem."""

    @abstractmethod
    def _curvature(self, gram: Tensor, y: Tensor, alpha: float, fit: Fit) -> Curvature:
        """The curvature at the solution for columns that are one problem."""

    def on_rows(self, rows: Tensor) -> Self:
        """The same loss for a subset of the samples."""
        subset = copy.copy(self)
        subset.targets, subset.n, subset._latest = self.targets[rows], len(rows), []
        if self.sample_weight is not None:
            subset.sample_weight = self.sample_weight[rows.to(self.sample_weight.device)]
        return subset

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
    """The fit of the columns j alone, as a start: the value stays that of all."""
    return Fit(fit.value, fit.beta[:, j], fit.intercept[j], fit.slope)


class SmoothLoss(ConvexLoss, ABC):
    """A convex loss with a continuous derivative, solved by Newton's method."""

    @abstractmethod
    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        """The curvature of the weighted loss at F, with c = 2nα."""

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
            loss=lambda F: self._summed(y, F),
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
    """Minimise L(F)/n + α tr(βᵀKβ) over β and b, F = Kβ + 1bᵀ, by damped Newton steps.

    Parameters
    ----------
    starts : list of (β, b)
        The best is taken; the first also sets the scale of the gap.
    loss : function F -> (L, R)
        The summed loss and R = −∂L/∂F; at the optimum 2nα β = R, up to ``tol`` times the largest entry of R at the
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


class Curvature(ABC):
    """E = (cI + DK)⁻¹D, which is (K + c D⁻¹)⁻¹ where D, the Hessian of the summed loss L in F, is regular.

    Newton steps and derivatives of the solution share it: the solution obeys c β = −∂L/∂F at F = Kβ + 1bᵀ, c = 2nα.
    If F changes by Φ at fixed β and b, then β follows by −E(Φ + 1Δbᵀ), where Δb keeps Σ_i β_i = 0. Also
    (cI + DK)⁻¹ = (I − EK)/c: nothing is divided by D.
    """

    @abstractmethod
    def apply(self, right: Tensor) -> Tensor:
        """The product of E with a matrix (n, p)."""

    @abstractmethod
    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """The solution less E 1Δbᵀ, and the Δb (p,) that gives its columns these sums."""

    def newton_step(
        self, gram: Tensor, beta: Tensor, R: Tensor, c: float, *, intercept: bool
    ) -> tuple[Tensor, Tensor]:
        """Δβ, Δb: c(β + Δβ) = R − D(KΔβ + 1Δbᵀ) with R = −∂L/∂F, and 1ᵀ(β + Δβ) = 0 or Δb = 0."""
        rho = R - c * beta
        change = (rho - self.apply(gram @ rho)) / c
        return self.balance(change, -beta.sum(0)) if intercept else (change, beta.new_zeros(beta.shape[1]))

    def adjoint(self, right: Tensor, sums: Tensor, *, intercept: bool) -> Tensor:
        """The a (n, p) with ⟨right, Δβ⟩ + ⟨sums, Δb⟩ = −⟨a, Φ⟩ for every change Φ."""
        solution = self.apply(right)
        return self.balance(solution, sums)[0] if intercept else solution


class DiagonalCurvature(Curvature):
    """D = diag(w) for one column: E = w^½(w^½Kw^½ + cI)⁻¹w^½ on the rows with w > 0, and zero elsewhere.

    c = 0 means that D is infinite where w > 0: E is the inverse of K on these rows.
    """

    def __init__(self, gram: Tensor, weights: Tensor, c: float) -> None:
        self.n = len(gram)
        self.rows = torch.nonzero(weights)[:, 0]
        self.root = weights[self.rows].sqrt()[:, None]
        block = gram if len(self.rows) == self.n else gram[self.rows[:, None], self.rows]
        self.cholesky = factorize_shifted(self.root * block * self.root.mT, gram.new_tensor(c))

    def apply(self, right: Tensor) -> Tensor:
        result = torch.zeros_like(right)
        result[self.rows] = self.root * self.cholesky.solve(self.root * right[self.rows])
        return result

    @cached_property
    def _h(self) -> Tensor:
        """The product of E with a column of ones."""
        return self.apply(self.root.new_ones(self.n, 1))

    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        if len(self.rows) == 0:  # nothing depends on b
            return solution, torch.zeros_like(sums)
        b = (solution.sum(0) - sums) / self._h.sum()
        return solution - self._h * b, b


class SoftmaxCurvature(Curvature):
    """D = diag(q_i) − q_i q_iᵀ/Σ_j q_ij for each sample, where q_i are its weight times its probabilities.

    Here E_jl = δ_jl E_j − E_j M⁻¹E_l with E_j = (K + c diag(q_j)⁻¹)⁻¹ and M = Σ_j E_j, which stands for the direction
    in which the Hessian vanishes (Rasmussen & Williams, Algorithm 3.3). This costs k inverses, one factorisation, and
    memory for k matrices.
    """

    def __init__(self, gram: Tensor, P: Tensor, c: float) -> None:
        root = P.mT.sqrt()[:, :, None]
        H = factorize_shifted(root * gram * root.mT, gram.new_full((P.shape[1],), c))
        self.E = H.inverse().mul_(root).mul_(root.mT)
        self.M = factorize(self.E.sum(0), name="The Hessian of the softmax")
        self.h = self.E.sum(-1).mT  # E_j 1

    @cached_property
    def _v(self) -> Tensor:
        """The columns M⁻¹E_j 1, one for each class j."""
        return self.M.solve(self.h)

    def _each(self, right: Tensor) -> Tensor:
        """The products of E_j with column j, or with the only column."""
        return (self.E @ right.mT[:, :, None])[..., 0].mT

    def apply(self, right: Tensor) -> Tensor:
        separate = self._each(right)
        return separate - self._each(self.M.solve(separate.sum(1, keepdim=True)))

    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        schur = torch.diag(self.h.sum(0)) - self.h.mT @ self._v
        # b is known up to a constant; the same number in every entry makes the system regular and picks Σ_j b_j = 0.
        b = torch.linalg.solve(schur + schur.diagonal().mean(), solution.sum(0) - sums)
        return solution - self.h * b + self._each((self._v @ b)[:, None]), b
