"""Convex losses whose inner problem needs a solver: their envelope theorem, and Newton's method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from representer.linalg import NotPositiveDefiniteError
from representer.objectives.base import Evaluation, Objective, inner


class NotConvergedError(RuntimeError):
    """An inner solver ran out of iterations before reaching its tolerance."""


@dataclass(frozen=True)
class Fit:
    """The optimum of an inner problem: its value, β (n, p) and b (p,) of f = Σ_i k(·, x_i) β_i + b."""

    value: Tensor
    beta: Tensor
    intercept: Tensor


class ConvexLoss(Objective, ABC):
    """min_{f,b} 1/n Σ ℓ(y_i, f(x_i) + b) + α‖f‖², solved in double precision, one Gram matrix at a time.

    By duality the optimum is max_β −1/n Σ ℓ*(y_i, −2nα β_i) − α tr(βᵀKβ) over Σ_i β_i = 0. Whatever the loss,
    ∂/∂K = −α ββᵀ; and from the primal, ∂/∂α = ‖f‖² = tr(βᵀKβ).
    """

    def __init__(self, targets: Tensor, *, alpha: float | Tensor, tol: float) -> None:
        if not tol > 0:
            raise ValueError(f"tol must be positive, got {tol}; a value near 1e-9 suits most problems.")
        self.targets = targets
        self.tol = tol
        super().__init__(n=len(targets), alpha=alpha)

    @abstractmethod
    def _fit(self, gram: Tensor, targets: Tensor, alpha: float) -> Fit:
        """Solve the inner problem for one matrix (n, n) in double precision."""

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        batch = gram.shape[:-2]
        members = zip(gram.reshape(-1, self.n, self.n), alpha.reshape(-1).tolist(), strict=True)
        fits = [self._fit_member(member, a, strict=not batch) for member, a in members]
        value = torch.stack([fit.value for fit in fits]).reshape(batch).to(gram)
        beta = torch.stack([fit.beta for fit in fits]).reshape(*batch, self.n, -1).to(gram)
        b = torch.stack([fit.intercept for fit in fits]).reshape(*batch, -1).to(gram)
        if not gradient:
            return Evaluation(value, dual=beta, intercept=b)
        return Evaluation(
            value,
            gram_gradient=(-alpha[..., None, None] * beta) @ beta.mT,
            alpha_gradient=inner(beta, gram @ beta),
            dual=beta,
            intercept=b,
        )

    def _fit_member(self, gram: Tensor, alpha: float, *, strict: bool) -> Fit:
        targets = self.targets.to(device=gram.device, dtype=torch.float64)
        try:
            if not bool(torch.isfinite(gram).all()) or alpha != alpha:
                raise NotPositiveDefiniteError(
                    "The Gram matrix has NaN or infinite entries; check the data and the hyperparameters."
                )
            fit = self._fit(gram.double(), targets, alpha)
            _check_norm(gram.double(), fit.beta)
            return fit
        except (NotPositiveDefiniteError, NotConvergedError):
            if strict:
                raise
            nan = torch.full_like(targets, torch.nan)
            return Fit(nan[0, 0], nan, nan[0])


def _check_norm(gram: Tensor, beta: Tensor) -> None:
    """A solver that never factors the Gram matrix does not notice that it is indefinite; its solution may."""
    norm, scale = inner(beta, gram @ beta), inner(beta.abs(), gram.abs() @ beta.abs())
    if norm < -len(gram) * torch.finfo(gram.dtype).eps * scale:
        raise NotPositiveDefiniteError(
            f"The Gram matrix is not positive semi-definite: the solution has a squared norm of {norm.item():.3g}. "
            "Check the kernel, or repair the matrix with representer.linalg.repair_gram."
        )


class ColumnwiseLoss(ConvexLoss, ABC):
    """A convex loss that is a sum over the columns of the targets, each a problem of its own."""

    @abstractmethod
    def _fit_column(self, gram: Tensor, y: Tensor, alpha: float) -> Fit:
        """Solve the problem of the column y (n, 1)."""

    def _fit(self, gram: Tensor, targets: Tensor, alpha: float) -> Fit:
        fits = [self._fit_column(gram, y, alpha) for y in targets.split(1, dim=1)]
        return Fit(
            value=torch.stack([fit.value for fit in fits]).sum(),
            beta=torch.cat([fit.beta for fit in fits], dim=1),
            intercept=torch.cat([fit.intercept for fit in fits]),
        )


def damped_newton(
    gram: Tensor,
    *,
    alpha: float,
    n_columns: int,
    loss: Callable[[Tensor], tuple[Tensor, Tensor]],
    step: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    tol: float,
    max_iter: int,
    name: str,
) -> Fit:
    """Minimise 1/n Σ ℓ(F) + α tr(βᵀKβ) over β and b, F = Kβ + 1bᵀ: Newton steps with Armijo backtracking.

    Parameters
    ----------
    loss : function F -> (Σ ℓ, R)
        The summed loss and R = −∂Σℓ/∂F; at the optimum 2nα β = R, up to ``tol`` and the rounding of F.
    step : function β, b, R -> (Δβ, Δb)
        To the minimiser of the quadratic model: a change, so that its rounding errors vanish with it.
    """
    n = len(gram)
    eps = torch.finfo(gram.dtype).eps
    beta, b = gram.new_zeros(n, n_columns), gram.new_zeros(n_columns)
    smooth = torch.zeros_like(beta)  # Kβ
    total, R = loss(smooth + b)
    value = total / n
    largest = gram.abs().max()
    gap = R.abs().max()
    for _ in range(max_iter):
        d_beta, d_b = step(beta, b, R)
        d_smooth = gram @ d_beta
        slope = 2.0 * alpha * inner(smooth, d_beta) - inner(R, d_smooth + d_b) / n
        slack = 64 * eps * value.abs()
        t = 1.0
        while True:
            trial_beta, trial_smooth, trial_b = beta + t * d_beta, smooth + t * d_smooth, b + t * d_b
            total, R = loss(trial_smooth + trial_b)
            trial = total / n + alpha * inner(trial_beta, trial_smooth)
            if trial <= value + 1e-4 * t * slope + slack or t < 1e-9:
                break
            t *= 0.5
        beta, smooth, b, value = trial_beta, trial_smooth, trial_b, trial
        gap = (2.0 * n * alpha * beta - R).abs().max()
        if gap <= tol + 16 * eps * (largest * beta.abs().sum(0)).max():
            return Fit(value, beta, b)
    raise NotConvergedError(
        f"Newton's method for {name} stopped after {max_iter} steps at an optimality gap of {gap.item():.2g} "
        f"(wanted {tol:.2g}) for alpha={alpha:.3g}. Increase alpha, loosen tol, or check the scale of the "
        f"Gram matrix (its mean diagonal is {gram.diagonal().mean().item():.3g})."
    )
