"""Objectives that are the optimum of a problem in f, solved for one Gram matrix at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from representer.linalg import NotPositiveDefiniteError
from representer.objectives.base import Evaluation, Objective, inner


class NotConvergedError(RuntimeError):
    """An inner solver ran out of iterations before reaching its tolerance."""


@dataclass(frozen=True)
class Fit:
    """The optimum of an inner problem: its value, and f = Σ_i k(·, x_i) β_i + b.

    Attributes
    ----------
    value : tensor ()
    beta : tensor (n, p)
    intercept : tensor (p,)
        Zero where f has none.
    slope : float
        Θ′(‖f‖²), the derivative of the penalty: α for α‖f‖².
    """

    value: Tensor
    beta: Tensor
    intercept: Tensor
    slope: float

    @classmethod
    def of_columns(cls, fits: Sequence[Self]) -> Self:
        """Independent problems with one alpha, side by side: their values add up."""
        return cls(
            value=torch.stack([fit.value for fit in fits]).sum(),
            beta=torch.cat([fit.beta for fit in fits], dim=1),
            intercept=torch.cat([fit.intercept for fit in fits]),
            slope=fits[0].slope,
        )


class InnerProblem(Objective, ABC):
    """min_{f,b} L(f(x_1) + b, …, f(x_n) + b) + Θ(‖f‖²), solved in double precision.

    With f = Σ_i k(·, x_i) β_i, at the optimum 2Θ′ β = −∂L/∂F. By the envelope theorem, at fixed β,
    ∂/∂K = ∂L/∂F βᵀ + Θ′ ββᵀ = −Θ′ ββᵀ; and ∂/∂α = ‖f‖² = tr(βᵀKβ) for Θ(s) = αs.
    """

    def __init__(self, targets: Tensor, *, alpha: float | Tensor | None, intercept: bool) -> None:
        self.targets = targets
        self.intercept = intercept
        self._latest: list[Fit] = []
        super().__init__(n=len(targets), alpha=alpha)

    @abstractmethod
    def _fit(self, gram: Tensor, targets: Tensor, alpha: float, near: Fit | None) -> Fit:
        """Solve for one matrix (n, n) in double precision; ``near`` may solve a similar problem."""

    def _fit_members(self, gram: Tensor, alpha: Tensor) -> list[Fit]:
        """The optimum for each member of a batch, each near the one that had its place in the call before."""
        members = gram.reshape(-1, self.n, self.n)
        near = self._latest if len(self._latest) == len(members) else [None] * len(members)
        fits = [
            self._fit_member(member, a, start, strict=gram.ndim == 2)
            for member, a, start in zip(members, alpha.reshape(-1).tolist(), near, strict=True)
        ]
        self._latest = fits
        return fits

    def _fit_member(self, gram: Tensor, alpha: float, near: Fit | None, *, strict: bool) -> Fit:
        targets = self.targets.to(device=gram.device, dtype=torch.float64)
        try:
            if not bool(torch.isfinite(gram).all()) or alpha != alpha:
                raise NotPositiveDefiniteError(
                    "The Gram matrix has NaN or infinite entries; check the data and the hyperparameters."
                )
            try:
                fit = self._fit(gram.double(), targets, alpha, near)
            except NotConvergedError:
                if near is None:
                    raise
                fit = self._fit(gram.double(), targets, alpha, None)
            _check_norm(gram.double(), fit.beta)
            return fit
        except (NotPositiveDefiniteError, NotConvergedError):
            if strict:
                raise
            nan = torch.full_like(targets, torch.nan)
            return Fit(nan[0, 0], nan, nan[0], torch.nan)

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        batch = gram.shape[:-2]
        fits = self._fit_members(gram, alpha)
        value = torch.stack([fit.value for fit in fits]).reshape(batch).to(gram)
        beta, b = stack_solutions(fits, gram)
        gram_gradient = alpha_gradient = None
        if gradient:
            slope = gram.new_tensor([fit.slope for fit in fits]).reshape(*batch, 1, 1)
            gram_gradient = (-slope * beta) @ beta.mT
            alpha_gradient = None if self.alpha is None else inner(beta, gram @ beta)
        return Evaluation(value, gram_gradient, alpha_gradient, beta, b if self.intercept else None)


def stack_solutions(fits: Sequence[Fit], gram: Tensor) -> tuple[Tensor, Tensor]:
    """β (..., n, p) and b (..., p) of the members of a batch of Gram matrices."""
    beta, b = (torch.stack(x).to(gram) for x in ([f.beta for f in fits], [f.intercept for f in fits]))
    batch = gram.shape[:-2]
    return beta.reshape(*batch, *beta.shape[1:]), b.reshape(*batch, *b.shape[1:])


def _check_norm(gram: Tensor, beta: Tensor) -> None:
    """A solver that never factors the Gram matrix does not notice that it is indefinite; its solution may."""
    norm, scale = inner(beta, gram @ beta), inner(beta.abs(), gram.abs() @ beta.abs())
    if norm < -len(gram) * torch.finfo(gram.dtype).eps * scale:
        raise NotPositiveDefiniteError(
            f"The Gram matrix is not positive semi-definite: the solution has a squared norm of {norm.item():.3g}. "
            "Check the kernel, or repair the matrix with representer.linalg.repair_gram."
        )
