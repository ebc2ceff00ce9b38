"""The error of ridge regression on new data: leave-one-out, generalised cross-validation, held-out rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from representer.objectives.base import Evaluation, Objective, factorize_shifted, inner, symmetric_part, trace
from representer.objectives.targets import ArrayLike, Targets, hilbert_targets


class _CrossValidation(Objective, ABC):
    """A function of the diagonals of P = W⁻¹ and N = W⁻¹GW⁻¹, W = K + nαI."""

    def __init__(
        self, targets: ArrayLike | None = None, *, target_gram: ArrayLike | None = None, alpha: float | Tensor
    ) -> None:
        self.targets = hilbert_targets(targets, target_gram)
        super().__init__(n=len(self.targets.factor), alpha=alpha)

    @abstractmethod
    def _score(self, N: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The score of the diagonals of N and P; w = −n/2 ∂score/∂s and d = n ∂score/∂N, each (..., n)."""

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        """From dP = −P dW P, dN_ii = −2[P dW N]_ii: ∂W = (2/n) sym(P (diag(w) P − diag(d) N)), N = CCᵀ."""
        targets = self.targets.map(lambda t: t.to(gram))
        cholesky = factorize_shifted(gram, self.n * alpha)
        P = cholesky.inverse()
        C = P @ targets.factor
        value, w, d = self._score(C.square().sum(-1), P.diagonal(dim1=-2, dim2=-1))
        gram_gradient = alpha_gradient = None
        if gradient:
            M = (w / self.n)[..., None] * P
            M -= ((d / self.n)[..., None] * C) @ C.mT
            S = P @ M
            gram_gradient = S + S.mT
            alpha_gradient = self.n * trace(gram_gradient)
        coefficients = (P if targets.abstract else targets.dual(cholesky, C)) if dual else None
        return Evaluation(value, gram_gradient, alpha_gradient, coefficients)


class LeaveOneOut(_CrossValidation):
    """1/n Σ‖y_i − f₋ᵢ(x_i)‖² = 1/n Σ N_ii/(P_ii)²: f₋ᵢ is the ridge fit without i and with the same shift nα.

    Exact for targets in any Hilbert space; P = (K + nαI)⁻¹, N = PGP. One Cholesky, one inverse, one product.

    Parameters
    ----------
    targets : array (n,) or (n, p), optional
    target_gram : array (n, n), optional
        Instead of ``targets``: the inner products of targets in any Hilbert space.
    alpha : float
    """

    def _score(self, N: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (N / s**2).mean(-1), N / s**3, 1.0 / s**2

    def residuals(self, gram: Tensor, *, alpha: float | Tensor | None = None) -> Tensor:
        """y_i − f₋ᵢ(x_i), (..., n, p); with ``target_gram`` its coefficients on the targets, (..., n, n)."""
        self._check_gram(gram)
        with torch.no_grad():
            cholesky = factorize_shifted(gram, self.n * self._alpha_for(gram, alpha))
            P = cholesky.inverse()
            Y = self.targets.factor if self.targets.vectors is None else self.targets.vectors
            dual = P if self.targets.abstract else P @ Y.to(gram)
            return dual / P.diagonal(dim1=-2, dim2=-1)[..., None]


class GeneralizedCrossValidation(_CrossValidation):
    """1/n tr(N)/(tr(P)/n)²: leave-one-out with every P_ii replaced by their mean; it ignores rotations.

    Parameters
    ----------
    targets, target_gram, alpha
        As for ``LeaveOneOut``.
    """

    def _score(self, N: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        N, s = (x.mean(-1, keepdim=True).expand_as(s) for x in (N, s))
        return (N / s**2)[..., 0], N / s**3, 1.0 / s**2


class HeldOut(Objective):
    """1/m Σ_{i∈v}‖y_i − f(x_i)‖², v the m validation rows, f the ridge fit to the others t: W = K_tt + |t|αI.

    One Cholesky of size |t| and O(n²p). The dual coefficients of validation rows are zero.

    Parameters
    ----------
    targets, target_gram, alpha
        As for ``LeaveOneOut``; the rows of K and the targets are those of both parts.
    validation : array of int, or bool (n,)
        The rows held out.
    """

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        alpha: float | Tensor,
        validation: ArrayLike,
    ) -> None:
        self.targets = hilbert_targets(targets, target_gram)
        super().__init__(n=len(self.targets.factor), alpha=alpha)
        self.validation = _held_out_rows(validation, self.n)
        kept = torch.ones(self.n, dtype=torch.bool)
        kept[self.validation] = False
        self.training = torch.nonzero(kept)[:, 0]

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        """E = R_v − K_vt C, C = W⁻¹R_t: ∂K_vt = −(2/m) E Cᵀ and ∂W = (2/m) sym(W⁻¹K_tv E Cᵀ)."""
        t, v = (rows.to(gram.device) for rows in (self.training, self.validation))
        everything = self.targets.map(lambda y: y.to(gram))
        training = everything.map(lambda y: y[t])
        m, n_t = len(v), len(t)
        K_vt = gram[..., v[:, None], t]
        cholesky = factorize_shifted(gram[..., t[:, None], t], n_t * alpha)
        C = cholesky.solve(training.factor)
        E = everything.factor[v] - K_vt @ C
        gram_gradient = alpha_gradient = None
        if gradient:
            D_tt = symmetric_part(cholesky.solve(K_vt.mT @ E) @ C.mT).mul_(2.0 / m)
            D_vt = (E @ C.mT).mul_(-1.0 / m)  # half here, half in the transposed block
            gram_gradient = torch.zeros_like(gram)
            gram_gradient[..., t[:, None], t] = D_tt
            gram_gradient[..., v[:, None], t] = D_vt
            gram_gradient[..., t[:, None], v] = D_vt.mT
            alpha_gradient = n_t * trace(D_tt)
        coefficients = _spread(training.dual(cholesky, C), t, training, self.n) if dual else None
        return Evaluation(inner(E, E) / m, gram_gradient, alpha_gradient, coefficients)


def _spread(dual: Tensor, rows: Tensor, targets: Targets, n: int) -> Tensor:
    """Dual coefficients of some rows as those of all n, zero elsewhere; abstract targets are columns too."""
    if targets.abstract:
        full = dual.new_zeros(*dual.shape[:-2], n, n)
        full[..., rows[:, None], rows] = dual
    else:
        full = dual.new_zeros(*dual.shape[:-2], n, dual.shape[-1])
        full[..., rows, :] = dual
    return full


def _held_out_rows(validation: ArrayLike, n: int) -> Tensor:
    rows = torch.as_tensor(validation if isinstance(validation, Tensor) else np.asarray(validation))
    if rows.dtype == torch.bool and rows.shape == (n,):
        rows = torch.nonzero(rows)[:, 0]
    elif rows.dtype == torch.bool or rows.is_floating_point() or rows.ndim != 1:
        raise ValueError(
            f"validation must be row numbers or a boolean mask of length {n}; got {rows.dtype} of shape "
            f"{tuple(rows.shape)}."
        )
    in_range = bool(((rows >= 0) & (rows < n)).all())
    if not 0 < len(rows) < n or len(torch.unique(rows)) != len(rows) or not in_range:
        raise ValueError(
            f"validation must be between 1 and {n - 1} different row numbers from 0 to {n - 1}; got "
            f"{len(rows)} rows, starting with {rows[:5].tolist()}. At least one row must stay for training."
        )
    return rows.long()
