"""Convex losses beside a squared norm, by Newton's method or libsvm: curvature, held-out errors, and each loss."""

from __future__ import annotations

import contextvars
import copy
import math
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from representer.linalg import NotPositiveDefiniteError, factorize
from representer.objectives.base import (
    ArrayLike,
    Evaluation,
    Fit,
    InnerProblem,
    NotConvergedError,
    Objective,
    columns,
    factorize_shifted,
    inner,
    one_hot,
    sign_columns,
    some_values,
    stack_solutions,
    symmetric_part,
)
from representer.objectives.squared import held_out_indices

if TYPE_CHECKING:
    from sklearn.svm import SVC, SVR


# A Newton step that left more than this part of the gap calls for a new factorisation; others are cheaper without.
WELL_REDUCED = 0.3
# Where a Newton step is too long, the line is searched until this part of its slope is left.
FLAT = 0.1


class ConvexLoss(InnerProblem, ABC):
    """min_{f,b} 1/n Σ w_i ℓ(y_i, f(x_i) + b) + α‖f‖², with weights w of mean one, which are ones by default.

    By duality the optimum is max_β −1/n Σ w_i ℓ*(y_i, −2nα β_i/w_i) − α tr(βᵀKβ), with an intercept over Σ_i β_i = 0.
    """

    couples_columns: ClassVar[bool] = False  # or is ℓ a sum over the columns of y, each a problem of its own?

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        intercept: bool = True,
        tol: float = 1e-9,
        max_iter: int = 100,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        if not tol > 0:
            raise ValueError(f"tol must be positive, got {tol}; a value near 1e-9 suits most problems.")
        self.tol = tol
        self.max_iter = max_iter
        super().__init__(self._encoded(targets), alpha=alpha, intercept=intercept, sample_weight=sample_weight)
        self._check_targets()

    def _encoded(self, targets: ArrayLike) -> Tensor:
        """The targets as the loss takes them, one column a problem, or all columns one."""
        return columns(targets)

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
        """The columns of each problem: all of them, or one after the other."""
        p = targets.shape[1]
        return [slice(0, p)] if self.couples_columns else [slice(j, j + 1) for j in range(p)]

    def _fit(self, gram: Tensor, targets: Tensor, alpha: float, near: Fit | None) -> Fit:
        fits, errors = [], []
        for i, j in enumerate(self._problems(targets)):
            try:
                fits.append(self._solve(gram, targets[:, j], alpha, near and _columns(near, j, i)))
            except NotConvergedError as error:
                if error.best is None:
                    raise
                fits.append(error.best)
                errors.append(error)
        fit = Fit.of_columns(fits)
        if errors:
            raise NotConvergedError(str(errors[0]), fit)
        return fit

    def adjoint(self, gram: Tensor, alpha: float, fit: Fit, right: Tensor, sums: Tensor) -> Tensor:
        """How ⟨right, β⟩ + ⟨sums, b⟩ depends on K at the solution: its differential is −⟨a, dK β⟩; returns a."""
        targets = self.targets.to(gram)
        return torch.cat(
            [
                self._curvature(gram, targets[:, j], alpha, _columns(fit, j, i)).adjoint(
                    right[:, j], sums[j], intercept=self.intercept
                )
                for i, j in enumerate(self._problems(targets))
            ],
            dim=1,
        )


def _columns(fit: Fit, j: slice, i: int) -> Fit:
    """The fit of the columns j alone, the i-th problem, as a start: the value stays that of all."""
    return Fit(fit.value, fit.beta[:, j], fit.intercept[j], fit.slope, fit.curvature[i : i + 1])


class SmoothLoss(ConvexLoss, ABC):
    """A convex loss with a continuous derivative, solved by Newton's method."""

    enough: float = 0.0  # see ``damped_newton``

    def envelope(self, gram: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """As ``Objective.envelope``, with two digits more than ``tol``: a search needs no solution up to rounding."""
        quick = copy.copy(self)
        quick.enough = 0.01
        envelope = super(SmoothLoss, quick).envelope(gram, alpha)
        self._latest = quick._latest
        return envelope

    @abstractmethod
    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        """The curvature of the weighted loss at F, with c = 2nα."""

    def _cold_intercept(self, y: Tensor) -> Tensor:
        """The b (p,) to start from beside f = 0."""
        return y.new_zeros(y.shape[1])

    def _curvature(self, gram: Tensor, y: Tensor, alpha: float, fit: Fit) -> Curvature:
        return self._curvature_at(gram, y, gram @ fit.beta + fit.intercept, 2.0 * self.n * alpha)

    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        starts = [(torch.zeros_like(y), self._cold_intercept(y) if self.intercept else y.new_zeros(y.shape[1]))]
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
            latest=near.curvature[0] if near is not None and near.curvature else None,
            enough=self.enough,
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
    latest: Curvature | None = None,
    enough: float = 0.0,
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
    latest : Curvature, optional
        That of a similar problem, of which the first step is tried.
    enough : float
        The gap in units of that of ``tol`` at which even cheap steps end; 0: only rounding ends them.
    """
    c = 2.0 * len(gram) * alpha

    def evaluate(beta: Tensor, smooth: Tensor, b: Tensor) -> _Point:
        total, R = loss(smooth + b)
        return _Point(total / len(gram) + alpha * inner(beta, smooth), beta, smooth, b, R)

    largest = gram.abs().max()

    def rounding(beta: Tensor, b: Tensor) -> Tensor:
        return 16 * torch.finfo(gram.dtype).eps * (largest * beta.abs().sum(0).max() + b.abs().max())

    points = [evaluate(beta, gram @ beta, b) for beta, b in starts]
    scale = points[0].R.abs().max().item()
    point = min(points, key=lambda point: point.value.nan_to_num(torch.inf).item())
    before, fresh = 0.0, False
    E = latest
    if latest is not None:
        d_beta, d_b = latest.newton_step(point.beta, point.R, c, intercept=intercept)
        step = evaluate(point.beta + d_beta, point.smooth + gram @ d_beta, point.b + d_b)
        before, after = ((c * at.beta - at.R).abs().max().item() for at in (point, step))
        point, before = (step, before) if after < WELL_REDUCED * before else (point, 0.0)
    for steps in range(max_iter + 1):
        _, beta, smooth, b, R = point
        gap = (c * beta - R).abs().max().item()
        stale = gap >= WELL_REDUCED * before
        # While steps are cheap and good, another is taken; at the end one of the curvature at its own start was not.
        ended = gap <= enough * tol * scale or (fresh and stale and gap <= tol * scale)
        if ended or ((stale or gap <= tol * scale) and gap <= rounding(beta, b)):
            return Fit(point.value, beta, b, alpha, () if E is None else (E,))
        if steps == max_iter:
            break
        fresh = E is None or stale
        if E is None or stale:
            E = curvature(smooth + b)
        before = gap
        d_beta, d_b = E.newton_step(beta, R, c, intercept=intercept)
        point = _line_search(evaluate, point, d_beta, gram @ d_beta, d_b, alpha)
    raise NotConvergedError(
        f"Newton's method for {name} stopped after {max_iter} steps at an optimality gap of {gap:.2g} "
        f"(wanted {tol * scale:.2g}) for alpha={alpha:.3g}. Increase alpha, loosen tol, or check the scale of the "
        f"Gram matrix (its mean diagonal is {gram.diagonal().mean().item():.3g}).",
        Fit(point.value, point.beta, point.b, alpha) if bool(point.value.isfinite()) else None,
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

    gram: Tensor
    c: float

    @abstractmethod
    def apply(self, right: Tensor) -> Tensor:
        """The product of E with a matrix (n, p)."""

    @abstractmethod
    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """The solution less E 1Δbᵀ, and the Δb (p,) that gives its columns these sums."""

    def newton_step(self, beta: Tensor, R: Tensor, c: float, *, intercept: bool) -> tuple[Tensor, Tensor]:
        """Δβ, Δb: c(β + Δβ) = R − D(KΔβ + 1Δbᵀ) with R = −∂L/∂F, and 1ᵀ(β + Δβ) = 0 or Δb = 0.

        The residual is that of c; K, D and the c of Δβ are those of this curvature, which may be of a similar problem.
        """
        rho = R - c * beta
        change = (rho - self.apply(self.gram @ rho)) / self.c
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
        self.gram, self.c, self.n = gram, c, len(gram)
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
        self.gram, self.c = gram, c
        root = P.mT.sqrt()[:, :, None]
        H = factorize_shifted(root * gram * root.mT, gram.new_full((P.shape[1],), c))
        E = H.inverse().mul_(root).mul_(root.mT)
        self.E = E if E.is_contiguous() else E.mT.contiguous()  # it is symmetric
        self.M = factorize(self.E.sum(0), name="The Hessian of the softmax")
        self.h = self.E.sum(-1).mT  # E_j 1

    @cached_property
    def _v(self) -> Tensor:
        """The columns M⁻¹E_j 1, one for each class j."""
        return self.M.solve(self.h)

    def _each(self, right: Tensor) -> Tensor:
        """The products of E_j with column j, or with the only column; single products are faster than a batch."""
        if right.shape[1] == 1:
            return (self.E.flatten(0, 1) @ right[:, 0]).unflatten(0, self.E.shape[:2]).mT
        return torch.stack([E_j @ column for E_j, column in zip(self.E, right.unbind(1), strict=True)], 1)

    def apply(self, right: Tensor) -> Tensor:
        separate = self._each(right)
        return separate - self._each(self.M.solve(separate.sum(1, keepdim=True)))

    @cached_property
    def _sums_to_b(self) -> Tensor:
        """The matrix (k, k) that gives the Δb by which the sums of β change so much.

        b is known up to a constant; the same number in every entry makes the matrix regular and picks Σ_j b_j = 0.
        """
        schur = torch.diag(self.h.sum(0)) - self.h.mT @ self._v
        return torch.linalg.pinv(schur + schur.diagonal().mean(), hermitian=True)

    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        b = self._sums_to_b @ (solution.sum(0) - sums)
        return solution - self.h * b + self._each((self._v @ b)[:, None]), b


class HeldOutLoss(Objective):
    """1/m Σ_{i∈v} ℓ(y_i, f(x_i) + b), v the m validation rows; f and b fitted to the others, α beside their mean loss.

    The gradients follow the fit by implicit differentiation of its optimality condition (see ``Curvature``): beyond the
    fit they cost one factorisation. The dual coefficients of validation rows are zero.

    Parameters
    ----------
    loss : Logistic, Huber, Hinge, SquaredHinge or EpsilonInsensitive
        With the targets of both parts, the default alpha, and weights if any: then both means are weighted.
    validation : array of int, or bool (n,)
        The rows held out.

    Examples
    --------
    >>> import torch
    >>> from representer.objectives import HeldOutLoss, Logistic
    >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    >>> loss = Logistic(torch.sign(x), alpha=1e-3)
    >>> alpha = torch.tensor(1e-3, dtype=torch.float64, requires_grad=True)
    >>> HeldOutLoss(loss, validation=range(0, 20, 3))(x @ x.T, alpha).backward()
    >>> bool(alpha.grad > 0)  # a line separates the classes: less alpha is better
    True
    """

    def __init__(self, loss: ConvexLoss, *, validation: ArrayLike) -> None:
        if not isinstance(loss, ConvexLoss):
            raise TypeError(
                f"HeldOutLoss takes a convex loss such as Logistic(targets, alpha=…), got {type(loss).__name__}. "
                "For squared loss use HeldOut."
            )
        super().__init__(n=loss.n, alpha=loss.alpha)
        self.loss = loss
        self.validation = held_out_indices(validation, self.n)
        self.training = torch.nonzero(~torch.isin(torch.arange(self.n), self.validation))[:, 0]
        self._on_training = loss.on_rows(self.training)
        self._on_training._check_targets()
        self._on_validation = loss.on_rows(self.validation)

    def _rows(self, gram: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the fit and those held out, on the device of the Gram matrix."""
        return self.training.to(gram.device), self.validation.to(gram.device)

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        t, _ = self._rows(gram)
        fits = self._on_training._fit_members(gram[..., t[:, None], t], alpha)
        members = zip(gram.reshape(-1, self.n, self.n), fits, strict=True)
        results = [self._member(member.double(), fit, gradient=gradient) for member, fit in members]
        value, in_gram, in_alpha = (torch.stack(result).to(gram) for result in zip(*results, strict=True))
        beta, b = stack_solutions(fits, gram)
        coefficients = beta.new_zeros(*beta.shape[:-2], self.n, beta.shape[-1])
        coefficients[..., t, :] = beta
        return Evaluation(
            value.reshape(alpha.shape),
            in_gram.reshape(gram.shape) if gradient else None,
            in_alpha.reshape(alpha.shape) if gradient else None,
            coefficients,
            b if self.loss.intercept else None,
        )

    def _member(self, gram: Tensor, fit: Fit, *, gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The value and its gradients in K and in α, for one Gram matrix and the fit to its training rows.

        With G = ∂/∂F_v and a the adjoint of β and b for K_tv G and Σ G: ∂K_vt = Gβᵀ, ∂K_tt = −sym(aβᵀ).
        ∂α follows because K → sK, α → sα is the same problem: ⟨∂K, K⟩ + α ∂α = 0.
        """
        t, v = self._rows(gram)
        beta, m = fit.beta, len(v)
        K_tt, K_vt = gram[t[:, None], t], gram[v[:, None], t]
        total, R = self._on_validation._summed(self._on_validation.targets.to(gram), K_vt @ beta + fit.intercept)
        value, G = total / m, -R / m
        if not gradient or not bool(torch.isfinite(value)):
            return value, torch.full_like(gram, torch.nan), torch.full_like(value, torch.nan)
        a = self._on_training.adjoint(K_tt, fit.slope, fit, K_vt.mT @ G, G.sum(0))
        D_vt = 0.5 * G @ beta.mT  # half here, half in the transposed block
        in_gram = torch.zeros_like(gram)
        in_gram[t[:, None], t] = -symmetric_part(a @ beta.mT)
        in_gram[v[:, None], t] = D_vt
        in_gram[t[:, None], v] = D_vt.mT
        return value, in_gram, -inner(in_gram, gram) / fit.slope


# In single precision libsvm cannot solve everything: a gap beyond this part of the value is an error.
LARGEST_GAP = 1e-4
# Each of libsvm's iterations looks at all samples, and no clock stops it: so many looks take some seconds.
MOST_LOOKS = 500_000_000
# A loss that is this much wider has a solution from which Newton's method reaches that of the narrow one.
WIDER = 2.0


class SupportVectorLoss(ConvexLoss, ABC):
    """max_β α(2yᵀβ − 2ε‖β‖₁ − βᵀKβ), |β_i| ≤ C_i = w_i/(2nα), Σβ_i = 0: the dual of a support vector machine.

    The value is that of the dual, whose error is of second order in the error of β. At the solution only the free
    support vectors, 0 < |β_i| < C_i, follow a small change: they stay on the edge of the margin.
    """

    epsilon: float = 0.0

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1_000_000,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        if not intercept:
            raise ValueError(
                f"{type(self).__name__} is solved by libsvm, which always fits an intercept; got intercept=False. "
                "Use a loss that can do without: SquaredHinge (squared_hinge) for labels, Huber (huber) for numbers."
            )
        super().__init__(targets, alpha=alpha, intercept=True, tol=tol, max_iter=max_iter, sample_weight=sample_weight)

    @property
    def _most_iterations(self) -> int:
        """The iterations of libsvm: no more than ``max_iter``, and none that would keep one solution for minutes."""
        return min(self.max_iter, max(10 * self.n, MOST_LOOKS // self.n))

    @abstractmethod
    def _machine(self, C: float) -> SVC | SVR:
        """The solver of libsvm for a precomputed Gram matrix."""

    def _fit_member(self, gram: Tensor, alpha: float, near: Fit | None, *, strict: bool) -> Fit:
        """As in ``InnerProblem``, but libsvm takes no start: what fails near a solution would fail again without."""
        return super()._fit_member(gram, alpha, None, strict=strict)

    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        if bool((y == y[0]).all()):  # the constant fits without error; libsvm refuses a single class
            return Fit(gram.new_zeros(()), torch.zeros_like(y), y[0], alpha)
        C = 1.0 / (2.0 * self.n * alpha)
        beta, b = _support_vectors(self._machine(C), gram, y, self._weights(y))
        polished = _polish(gram, beta, b, y - self.epsilon * beta.sign(), C * self._weights(y))
        gap, fit = min((self._certify(gram, y, alpha, *s) for s in ((beta, b), polished)), key=lambda s: s[0])
        if not gap <= LARGEST_GAP:
            raise NotConvergedError(
                f"libsvm stopped at a duality gap of {gap:.2g} of the value (wanted {LARGEST_GAP}) for alpha="
                f"{alpha:.3g}, that is C={C:.3g}. Increase alpha, scale X (StandardScaler), or use a "
                "loss that needs no libsvm, which is limited to single precision: squared, huber, squared_hinge or "
                "logistic.",
                fit,
            )
        return fit

    def _certify(self, gram: Tensor, y: Tensor, alpha: float, beta: Tensor, b: Tensor) -> tuple[float, Fit]:
        """The relative duality gap of a solution, and the solution with the value of the dual."""
        smooth = gram @ beta
        squared_norm = inner(beta, smooth)
        dual = alpha * (2.0 * inner(beta, y) - 2.0 * self.epsilon * beta.abs().sum() - squared_norm)
        primal = self._summed(y, smooth + b)[0] / self.n + alpha * squared_norm
        gap = (primal - dual) / primal.clamp(min=torch.finfo(y.dtype).tiny)
        return gap.item(), Fit(dual, beta, b, alpha)

    def _curvature(self, gram: Tensor, y: Tensor, alpha: float, fit: Fit) -> Curvature:
        return DiagonalCurvature(gram, _free(fit.beta, self._weights(gram) / (2.0 * self.n * alpha)).to(gram), 0.0)


class EpsilonInsensitive(SupportVectorLoss):
    """min_{f,b} 1/n Σ max(0, |y_i − f(x_i) − b| − ε) + α‖f‖², summed over the columns of y.

    Parameters
    ----------
    targets : array (n,) or (n, p)
    alpha : float
        libsvm's C is 1/(2nα).
    epsilon : float
        The half-width ε ≥ 0 of the tube in which errors cost nothing.
    intercept : bool
        libsvm knows no fit without b: False is refused.
    tol, max_iter : float, int
        The settings of libsvm, whose solution is polished in double precision. No clock stops one: it ends after
        max(10 n, 5·10⁸/n) iterations, if ``max_iter`` is not less, of which each looks at n samples.
    sample_weight : array (n,), optional
        Positive weights of the samples: those of a weighted mean in the place of 1/n Σ.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        epsilon: float = 0.1,
        intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1_000_000,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        if not (epsilon >= 0 and math.isfinite(epsilon)):
            raise ValueError(f"epsilon, the half-width of the tube, must be finite and ≥ 0; got {epsilon}.")
        self.epsilon = epsilon
        super().__init__(
            targets, alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter, sample_weight=sample_weight
        )

    def _machine(self, C: float) -> SVR:
        from sklearn.svm import SVR  # here, because few fits need it and its import takes long

        return SVR(kernel="precomputed", C=C, epsilon=self.epsilon, tol=self.tol, max_iter=self._most_iterations)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        residual = targets - F
        outside = (residual.abs() - self.epsilon).clamp(min=0.0)
        return outside.sum(1), residual.sign() * (outside > 0)


class Hinge(SupportVectorLoss):
    """min_{f,b} 1/n Σ max(0, 1 − y_i(f(x_i) + b)) + α‖f‖², summed over the columns of y.

    Parameters
    ----------
    targets : array (n,) or (n, p)
        Labels −1 and +1.
    alpha, intercept, tol, max_iter, sample_weight
        As for ``EpsilonInsensitive``.
    """

    def _encoded(self, targets: ArrayLike) -> Tensor:
        return sign_columns(targets, name="Hinge")

    def _machine(self, C: float) -> SVC:
        from sklearn.svm import SVC

        return SVC(kernel="precomputed", C=C, tol=self.tol, max_iter=self._most_iterations)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        inside = (1.0 - targets * F).clamp(min=0.0)
        return inside.sum(1), targets * (inside > 0)


class SquaredHinge(SmoothLoss):
    """min_{f,b} 1/n Σ max(0, 1 − y_i(f(x_i) + b))² + α‖f‖², summed over the columns of y.

    Newton's method in the primal (Chapelle 2007): a ridge problem on the points inside the margin, to finite
    convergence.

    Parameters
    ----------
    targets : array (n,) or (n, p)
        Labels −1 and +1.
    alpha : float
    intercept : bool
        Whether there is a b.
    tol : float
        The largest violation of 2nα β = −ℓ′ at the solution, relative to the largest ℓ′ of f = 0.
    max_iter : int
    sample_weight : array (n,), optional
        Positive weights of the samples: those of a weighted mean in the place of 1/n Σ.
    """

    def _encoded(self, targets: ArrayLike) -> Tensor:
        return sign_columns(targets, name="SquaredHinge")

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        inside = (1.0 - targets * F).clamp(min=0.0)
        return inside.square().sum(1), 2.0 * targets * inside

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        return DiagonalCurvature(gram, (2.0 * self._weights(gram) * (y * F < 1.0))[:, 0], c)


def _free(beta: Tensor, C: Tensor) -> Tensor:
    """Which samples are support vectors inside their bounds C (n, 1), up to what libsvm can tell."""
    return ((beta.abs() > 1e-8 * C) & (beta.abs() < (1.0 - 1e-8) * C))[:, 0]


def _support_vectors(machine: SVC | SVR, gram: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The solution β and b that libsvm finds."""
    with warnings.catch_warnings():
        # Running out of iterations is judged by the duality gap, not by libsvm's criterion.
        warnings.filterwarnings("ignore", message="Solver terminated early")
        arrays = [x.numpy(force=True) for x in (gram, y[:, 0], weights[:, 0])]
        try:
            _interruptible(lambda: machine.fit(*arrays))
        except ValueError as error:  # libsvm works in single precision, where such a Gram matrix overflows
            raise ValueError(
                f"libsvm fails on this Gram matrix, whose largest entry is {float(gram.abs().max()):.3g}: {error} "
                "Scale X and y (StandardScaler), increase alpha, or use a loss that needs no libsvm (squared, huber, "
                "squared_hinge, logistic)."
            ) from error
    beta = np.zeros((len(y), 1))
    beta[machine.support_, 0] = machine.dual_coef_[0]
    return torch.as_tensor(beta).to(y), torch.as_tensor(machine.intercept_).to(y)


def _interruptible(solve: Callable[[], object]) -> None:
    """Call a solver that does not listen to Ctrl-C: in a thread, which an interrupt leaves to its end."""
    if threading.current_thread() is not threading.main_thread():
        solve()  # Ctrl-C reaches the main thread only
        return
    answer: Future[object] = Future()

    def run() -> None:
        try:
            answer.set_result(solve())
        except BaseException as error:  # whatever it is, the caller gets it
            answer.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    answer.result()


def _polish(gram: Tensor, beta: Tensor, b: Tensor, level: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    """Solve K_FF β_F + b = level_F − K_FB β_B, Σβ = 0 for the free support vectors F; B are those at a bound.

    libsvm keeps K in single precision, so that β has seven digits less those of the condition of K_FF; given
    the active set, the optimum is a linear system. A solution that leaves the active set is not taken.
    """
    free = torch.nonzero(_free(beta, C))[:, 0]
    if len(free) == 0:
        return beta, b
    at_bounds = beta.clone()
    at_bounds[free] = 0.0
    right = (level - gram @ at_bounds)[free]
    try:
        K_FF = factorize(gram[free[:, None], free], name="The Gram matrix of the free support vectors")
    except NotPositiveDefiniteError:
        return beta, b
    g, h = K_FF.solve(torch.cat([right, torch.ones_like(right)], dim=1)).unbind(1)
    new_b = (g.sum() + at_bounds.sum()) / h.sum()
    new = g - new_b * h
    if not bool(((new * beta[free, 0] > 0) & (new.abs() <= C[free, 0])).all()):
        return beta, b
    at_bounds[free, 0] = new
    return at_bounds, new_b[None]


class Huber(SmoothLoss):
    """min_{f,b} 1/n Σ h(y_i − f(x_i) − b) + α‖f‖², h(r) = r² if |r| ≤ δ, else 2δ|r| − δ², summed over the columns.

    Twice the textbook's ½r², so that squared loss with the same alpha is the limit δ → ∞. Newton's method as for
    ``SquaredHinge``: a ridge problem on the samples with small errors, to finite convergence.

    Parameters
    ----------
    targets : array (n,) or (n, p)
    alpha : float
    delta : float
        δ > 0 in the units of y. 1.35 standard deviations of the noise give away 5 % of the precision of squared loss
        if the noise is normal; the default is for noise of size one.
    intercept, tol, max_iter, sample_weight
        As for ``SquaredHinge``, with the best constant in the place of f = 0.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        delta: float = 1.35,
        intercept: bool = True,
        tol: float = 1e-9,
        max_iter: int = 100,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        if not (delta > 0 and math.isfinite(delta)):
            raise ValueError(
                f"delta, where the loss turns from squared to linear, must be finite and > 0 (in the units of the "
                f"targets); got {delta}. For squared loss use Ridge."
            )
        self.delta = delta
        super().__init__(
            targets, alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter, sample_weight=sample_weight
        )

    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        spread = float((y - self._cold_intercept(y)).abs().max()) / self.delta
        if near is None and spread > WIDER:
            # Few errors are small at first: Newton's method would feel its way from one to the next. Steps are longer
            # where delta is hundreds of orders of magnitude away.
            wider = copy.copy(self)
            wider.delta = self.delta * max(WIDER, spread**0.05)
            near = wider._solve(gram, y, alpha, None)
        return super()._solve(gram, y, alpha, near)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        residual = targets - F
        clipped = residual.clamp(-self.delta, self.delta)
        return (clipped * (2.0 * residual - clipped)).sum(1), 2.0 * clipped

    def _cold_intercept(self, y: Tensor) -> Tensor:
        return y.median(0).values  # of a sample, so that at least one error is small

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        residual, weights = (y - F)[:, 0], self._weights(gram)[:, 0]
        small = residual.abs() <= self.delta
        if self.intercept and not bool(small.any()) and weights @ residual.sign() != 0:
            # The Hessian knows nothing of b, which must move: take the quadratic bound of reweighted least squares.
            return DiagonalCurvature(gram, 2.0 * self.delta * weights / residual.abs(), c)
        return DiagonalCurvature(gram, 2.0 * weights * small, c)


class Logistic(SmoothLoss):
    """min_{f,b} 1/n Σ −log p(y_i | f(x_i) + b) + α‖f‖², p logistic for one column and the softmax of k ≥ 2.

    At the optimum β = (y − p)/(2nα). A factorisation costs one Cholesky for one column; for a softmax k inverses, one
    more Cholesky and memory for k matrices. Solved again for a similar Gram matrix, one or two are needed.

    Parameters
    ----------
    targets : array (n,) or one-hot (n, k)
        One column: −1, +1 or 0, 1. With an intercept every class must occur: a missing one would have an infinite
        intercept.
    alpha, intercept, tol, max_iter, sample_weight
        As for ``SquaredHinge``.
    """

    couples_columns = True

    def _encoded(self, targets: ArrayLike) -> Tensor:
        """The targets as (n, 1) of 0 and 1 for two classes, otherwise one-hot (n, k)."""
        values = columns(targets)
        if values.shape[1] > 1:
            return one_hot(targets, name="Logistic")
        if not bool(((values == 1) | (values == values.min())).all()) or values.min() not in (-1, 0, 1):
            raise ValueError(
                f"Logistic expects labels −1, +1 or 0, 1 or a one-hot matrix (n, k); got "
                f"{some_values(values)}. Encode labels: (labels[:, None] == classes).astype(float)."
            )
        return (values == 1).to(values)

    def _check_targets(self) -> None:
        T = self.targets
        counts = (torch.cat([1 - T, T], 1) if T.shape[1] == 1 else T).sum(0)
        if self.intercept and bool((counts == 0).any()):
            raise ValueError(
                f"The logistic loss has no minimum when a class has no sample; got {counts.long().tolist()} "
                "samples a class. Leave the missing class out, stratify the split or the sub-batches, or set "
                "intercept=False."
            )

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        T = targets
        if T.shape[1] == 1:
            return (softplus(F) - T * F)[:, 0], T - torch.sigmoid(F)
        return torch.logsumexp(F, 1) - (T * F).sum(1), T - torch.softmax(F, 1)

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        if y.shape[1] == 1:
            P = torch.sigmoid(F)
            return DiagonalCurvature(gram, (self._weights(gram) * P * (1.0 - P))[:, 0], c)
        return SoftmaxCurvature(gram, self._weights(gram) * torch.softmax(F, 1), c)
