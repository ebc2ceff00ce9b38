"""The error of ridge regression on new data: leave-one-out, generalised cross-validation, held-out rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from representer.objectives.base import inner
from representer.objectives.squared import Score, SquaredLoss
from representer.objectives.targets import ArrayLike
from representer.systems.scalar import DenseSystem, RidgeSystem


class _CrossValidation(SquaredLoss, ABC):
    """A function of the diagonals of P and N = PGP, P = W⁻¹ or its like for a fit with an intercept."""

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        alpha: float | Tensor,
        intercept: bool = False,
    ) -> None:
        super().__init__(targets, target_gram, alpha=alpha, intercept=intercept)
        if intercept and self.n < 2:
            raise ValueError(
                f"{type(self).__name__} with an intercept needs at least 2 samples, got 1: without it nothing "
                "is left to fit. Give more samples, or intercept=False."
            )

    @abstractmethod
    def _criterion(self, N: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The score of the diagonals of N and P; w = −n/2 ∂score/∂s and d = n ∂score/∂N, each (..., n)."""

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """From dP = −P dW P, dN_ii = −2[P dW N]_ii: ∂W = (2/n) sym(P (diag(w) P − diag(d) N)), N = CCᵀ."""
        value, w, d = self._criterion(C.square().sum(-1), system.diagonal())
        left = system.solve((-d / self.n)[..., None] * C)
        return Score(value, left, weights=w * (2.0 / self.n))


class LeaveOneOut(_CrossValidation):
    """1/n Σ‖y_i − f₋ᵢ(x_i)‖² = 1/n Σ N_ii/(P_ii)²: f₋ᵢ is the ridge fit without i and with the same shift nα.

    Exact for targets in any Hilbert space; P = (K + nαI)⁻¹, N = PGP. One Cholesky, one inverse, one product.

    Parameters
    ----------
    targets : array (n,) or (n, p), optional
    target_gram : array (n, n), optional
        Instead of ``targets``: the inner products of targets in any Hilbert space.
    alpha : float
    intercept : bool
        As for ``Ridge``: every f₋ᵢ has a constant b₋ᵢ of its own, and it remains exact.
    """

    def _criterion(self, N: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (N / s**2).mean(-1), N / s**3, 1.0 / s**2

    def residuals(self, gram: Tensor, *, alpha: float | Tensor | None = None) -> Tensor:
        """y_i − f₋ᵢ(x_i), (..., n, p); with ``target_gram`` its coefficients on the targets, (..., n, n)."""
        self._check_gram(gram)
        with torch.no_grad():
            system = self._system(DenseSystem, gram, self._alpha_for(gram, alpha))
            Y = self.targets.factor if self.targets.vectors is None else self.targets.vectors
            dual = system.unit_coefficients if self.targets.abstract else system.solve(Y.to(gram))
            return dual / system.diagonal()[..., None]


class GeneralizedCrossValidation(_CrossValidation):
    """1/n tr(N)/(tr(P)/n)²: leave-one-out with every P_ii replaced by their mean; it ignores rotations.

    Parameters
    ----------
    targets, target_gram, alpha, intercept
        As for ``LeaveOneOut``.
    """

    def _criterion(self, N: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        N, s = (x.mean(-1, keepdim=True).expand_as(s) for x in (N, s))
        return (N / s**2)[..., 0], N / s**3, 1.0 / s**2


class HeldOut(SquaredLoss):
    """1/m Σ_{i∈v}‖y_i − f(x_i)‖², v the m validation rows, f the ridge fit to the others t: W = K_tt + |t|αI.

    One Cholesky of size |t| and O(n²p). The dual coefficients of validation rows are zero.

    Parameters
    ----------
    targets, target_gram, alpha, intercept
        As for ``Ridge``; the rows of K and the targets are those of both parts.
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
        intercept: bool = False,
    ) -> None:
        super().__init__(targets, target_gram, alpha=alpha, intercept=intercept)
        self.validation = _held_out_rows(validation, self.n)
        kept = torch.ones(self.n, dtype=torch.bool)
        kept[self.validation] = False
        self.training = torch.nonzero(kept)[:, 0]

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """E = Y_v − H Y_t with H = K_vt P + 1gᵀ: dE = −dK_vt C + H dW C, so that left_v = −E/m, left_t = HᵀE/m."""
        t, m = system.rows, len(self.validation)
        assert t is not None  # the rows of the fit are those not held out
        E = Y - system.apply(C)
        if system.g is not None:
            E -= system.g.mT @ Y[t]
        E = E.index_fill_(-2, t, 0.0)
        HE = system.solve(system.apply(E)[..., t, :])
        if system.g is not None:
            HE += system.g @ E.sum(-2, keepdim=True)
        return Score(inner(E, E) / m, left=(-E).index_copy_(-2, t, HE).div_(m))


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
