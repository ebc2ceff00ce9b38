"""Objectives of squared loss on a factor B of the Gram matrix: what Nyström and random features need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from representer.objectives.base import Evaluation, _ClosedForm
from representer.objectives.squared import Interpolation, SquaredLoss
from representer.systems.scalar import FactorSystem


@dataclass(frozen=True)
class FactorEvaluation:
    """One evaluation of an objective on a factor B (..., n, m), or on a batch (...) of them.

    Attributes
    ----------
    value : tensor (...)
        NaN for a member of a batch that could not be evaluated.
    factor_gradient : tensor (..., n, m), optional
        ∂value/∂B.
    alpha_gradient : tensor (...), optional
    coefficients : tensor (..., m, p), optional
        The θ of f(x) = φ(x)ᵀθ + intercept, φ(x_i) the rows of B; with ``target_gram`` it maps to coefficients
        on the targets, p = n.
    intercept : tensor (..., p), optional
        None where f has no intercept.
    """

    value: Tensor
    factor_gradient: Tensor | None
    alpha_gradient: Tensor | None
    coefficients: Tensor | None
    intercept: Tensor | None


class OnFactor:
    """An objective of squared loss as a function of a factor B (..., n, m) of K = BBᵀ, m ≪ n.

    Through the m × m matrix BᵀB + nαI: O(nm²) and memory O(nm), where the objective on K costs O(n³) and O(n²).
    For Ridge with C = W⁻¹Y, ∂/∂B = −2α C(CᵀB).

    Parameters
    ----------
    objective : Ridge, LeaveOneOut, GeneralizedCrossValidation or HeldOut
        With its targets, alpha, rows held out, and intercept or none.

    Examples
    --------
    >>> import torch
    >>> from representer.objectives import LeaveOneOut
    >>> from representer.objectives.low_rank import OnFactor
    >>> x = torch.linspace(0, 1, 2000, dtype=torch.float64)[:, None]
    >>> B = torch.cat([x, x**2, x**3], 1).requires_grad_()
    >>> error = OnFactor(LeaveOneOut(torch.exp(x), alpha=1e-9, intercept=True))
    >>> error(B).backward()
    >>> B.grad.shape
    torch.Size([2000, 3])
    >>> error.evaluate(B).intercept
    tensor([0.9991], dtype=torch.float64)
    """

    def __init__(self, objective: SquaredLoss) -> None:
        if not isinstance(objective, SquaredLoss) or isinstance(objective, Interpolation):
            raise TypeError(
                "OnFactor expects Ridge, LeaveOneOut, GeneralizedCrossValidation or HeldOut; got "
                f"{type(objective).__name__}. Interpolation needs a Gram matrix of full rank; use Ridge with a "
                "small alpha."
            )
        self.objective = objective

    def evaluate(
        self, factor: Tensor, *, alpha: float | Tensor | None = None, gradient: bool = True, dual: bool = True
    ) -> FactorEvaluation:
        """Value, gradients and coefficients at once, detached from autograd; see ``Objective.evaluate``."""
        self._check_factor(factor)
        with torch.no_grad():
            alphas = self.objective._alpha_for(factor, alpha)
            e = self._evaluate(factor.detach(), alphas, gradient=gradient, dual=dual)
        return FactorEvaluation(e.value, e.gram_gradient, e.alpha_gradient, e.dual, e.intercept)

    def envelope(self, factor: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The values (b,) and ∂value/∂B (b, n, m), as ``Objective.envelope``."""
        evaluation = self._evaluate(factor, alpha, gradient=True, dual=False)
        assert evaluation.gram_gradient is not None
        return evaluation.value, evaluation.gram_gradient

    def __call__(self, factor: Tensor, alpha: float | Tensor | None = None) -> Tensor:
        """The value (...), differentiable once in ``factor`` and ``alpha`` through torch's autograd."""
        self._check_factor(factor)
        value: Tensor = _ClosedForm.apply(self, factor, self.objective._alpha_for(factor, alpha))
        return value

    def _evaluate(self, factor: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        """The objective's own evaluation, with ∂/∂B and θ in the places of ∂/∂K and the dual coefficients."""
        return self.objective._evaluate_by(FactorSystem, factor, alpha, gradient=gradient, dual=dual)

    def _check_factor(self, factor: Tensor) -> None:
        if not isinstance(factor, Tensor):
            raise TypeError(f"The factor must be a torch tensor; got {type(factor).__name__}.")
        if factor.ndim < 2 or factor.shape[-2] != self.objective.n:
            raise ValueError(
                f"The factor must be (..., n, m) with a row for each of the {self.objective.n} targets of "
                f"{type(self.objective).__name__}; got {tuple(factor.shape)}. Compute both from the same rows."
            )
