"""The loss of a convex fit on rows that were held out, as a differentiable function of the Gram matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from representer.objectives.base import Evaluation, Fit, Objective, inner, stack_solutions, symmetric_part
from representer.objectives.convex import ConvexLoss
from representer.objectives.selection import held_out_indices
from representer.objectives.targets import ArrayLike


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
        kept = torch.ones(self.n, dtype=torch.bool)
        kept[self.validation] = False
        self.training = torch.nonzero(kept)[:, 0]
        self._on_training = loss.on_rows(self.training)
        self._on_training._check_targets()
        self._on_validation = loss.on_rows(self.validation)

    def decision(self, gram: Tensor, *, alpha: float | Tensor | None = None) -> Tensor:
        """f + b at the validation rows, (..., m, p), detached from autograd."""
        self._check_gram(gram)
        with torch.no_grad():
            t, v = self._rows(gram)
            fits = self._on_training._fit_members(gram[..., t[:, None], t], self._alpha_for(gram, alpha))
            beta, b = stack_solutions(fits, gram)
            return gram[..., v[:, None], t] @ beta + b[..., None, :]

    def _rows(self, gram: Tensor) -> tuple[Tensor, Tensor]:
        return self.training.to(gram.device), self.validation.to(gram.device)

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        t, _ = self._rows(gram)
        fits = self._on_training._fit_members(gram[..., t[:, None], t], alpha)
        members = zip(gram.reshape(-1, self.n, self.n), fits, strict=True)
        parts = [self._member(member.double(), fit, gradient=gradient) for member, fit in members]
        value, in_gram, in_alpha = (torch.stack(part).to(gram) for part in zip(*parts, strict=True))
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
        """With G = ∂/∂F_v and a the adjoint of β and b for K_tv G and Σ G: ∂K_vt = Gβᵀ, ∂K_tt = −sym(aβᵀ).

        ∂α follows because K → sK, α → sα is the same problem: ⟨∂K, K⟩ + α ∂α = 0.
        """
        t, v = self._rows(gram)
        beta, m = fit.beta, len(v)
        K_tt, K_vt = gram[t[:, None], t], gram[v[:, None], t]
        total, R = self._on_validation._summed(
            self._on_validation.targets.to(gram), K_vt @ beta + fit.intercept
        )
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
