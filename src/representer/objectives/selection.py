"""The error of ridge regression on new data: leave-one-out, generalised cross-validation, held-out rows."""

from __future__ import annotations

from abc import ABC
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.objectives.base import inner
from representer.objectives.squared import Score, SquaredLoss
from representer.objectives.targets import ArrayLike
from representer.systems import Groups
from representer.systems.scalar import DenseSystem, RidgeSystem


class LeftOutCriterion(SquaredLoss, ABC):
    """A function of errors of samples that a fit has not seen, or of their estimates."""

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        alpha: float | Tensor,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        super().__init__(targets, target_gram, alpha=alpha, intercept=intercept, sample_weight=sample_weight)
        if intercept and self.n < 2:
            raise ValueError(
                f"{type(self).__name__} with an intercept needs at least 2 samples, got 1: without it nothing "
                "is left to fit. Give more samples, or intercept=False."
            )


class LeaveOneOut(LeftOutCriterion):
    """1/n Σ‖y_i − f₋ᵢ(x_i)‖² = 1/n Σ N_ii/(P_ii)²: f₋ᵢ is the ridge fit without i and with the same shift nα.

    Exact for targets in any Hilbert space; P = (K + nαI)⁻¹, N = PGP. One Cholesky, one inverse, one product. With
    groups, the residuals of a group S are (P_SS)⁻¹C_S, C = PY.

    Parameters
    ----------
    targets : array (n,) or (n, p), optional
    target_gram : array (n, n), optional
        Instead of ``targets``: the inner products of targets in any Hilbert space.
    alpha : float
    intercept : bool
        As for ``Ridge``: every f₋ᵢ has a constant b₋ᵢ of its own, and it remains exact.
    sample_weight : array (n,), optional
        As for ``Ridge``; the mean over the samples is weighted, too.
    groups : array (n,), optional
        Labels of groups of samples that are left out together. Default: each sample alone.
    """

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        alpha: float | Tensor,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
    ) -> None:
        super().__init__(
            targets, target_gram=target_gram, alpha=alpha, intercept=intercept, sample_weight=sample_weight
        )
        self.groups = groups_of(groups, self.n, intercept)

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        left_out = system.left_out(C, self._groups_on(C))
        weighted = self._shares(C)[:, None] * left_out.errors
        Z, weights = left_out.pulled(2.0 * weighted)
        return Score(inner(weighted, left_out.errors), system.solve(-0.5 * Z), weights)

    def _groups_on(self, like: Tensor) -> Groups | None:
        return None if self.groups is None else self.groups.to(like.device)

    def residuals(self, gram: Tensor, *, alpha: float | Tensor | None = None) -> Tensor:
        """y_i − f₋ᵢ(x_i), (..., n, p); with ``target_gram`` its coefficients on the targets, (..., n, n)."""
        self._check_gram(gram)
        with torch.no_grad():
            system = self._system(DenseSystem, gram, self._alpha_for(gram, alpha))
            Y = self.targets.factor if self.targets.vectors is None else self.targets.vectors
            dual = system.unit_coefficients if self.targets.abstract else system.solve(Y.to(gram))
            return system.left_out(dual, self._groups_on(gram)).errors


class GeneralizedCrossValidation(LeftOutCriterion):
    """1/n tr(N)/(tr(P)/n)²: leave-one-out with every P_ii replaced by their mean; it ignores rotations.

    With weights w it is the weighted mean of the squared residuals over (tr(I − H)/n)², H the matrix of the fit.

    Parameters
    ----------
    targets, target_gram, alpha, intercept, sample_weight
        As for ``Ridge``.
    """

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """From dP = −P dW P and dN_ii = −2[P dW N]_ii, N = CCᵀ."""
        unit = 1.0 / self._total()
        scaled = system.per_weight(C)  # C/w
        N = unit * inner(scaled, C)
        s = system.per_weight(system.diagonal()[..., None])[..., 0].sum(-1) / self.n
        w = (2.0 * N / s**3 / self.n)[..., None]
        weights = w.expand(*w.shape[:-1], self.n)
        left = system.solve((-unit / s**2)[..., None, None] * scaled)
        return Score(N / s**2, left, system.per_weight(weights[..., None])[..., 0])


class HeldOut(SquaredLoss):
    """1/m Σ_{i∈v}‖y_i − f(x_i)‖², v the m validation rows, f the ridge fit to the others t: W = K_tt + |t|αI.

    One Cholesky of size |t| and O(n²p). The dual coefficients of validation rows are zero.

    Parameters
    ----------
    targets, target_gram, alpha, intercept, sample_weight
        As for ``Ridge``; the rows of K and the targets are those of both parts. Both means are weighted.
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
        sample_weight: ArrayLike | None = None,
    ) -> None:
        super().__init__(targets, target_gram, alpha=alpha, intercept=intercept, sample_weight=sample_weight)
        self.validation = held_out_indices(validation, self.n)
        kept = torch.ones(self.n, dtype=torch.bool)
        kept[self.validation] = False
        self.training = torch.nonzero(kept)[:, 0]

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """E = Y_v − H Y_t with H = K_vt P + 1gᵀ: dE = −dK_vt C + H dW C, so that left_v = −E/m, left_t = HᵀE/m."""
        t, v = system.rows, self.validation.to(C.device)
        assert t is not None  # the rows of the fit are those not held out
        E = Y - system.apply(C)
        if system.g is not None:
            E -= system.g.mT @ Y[t]
        shares = C.new_zeros(self.n).index_copy_(0, v, self._shares(C, v))[:, None]
        weighted = shares * E
        HE = system.solve(system.apply(weighted)[..., t, :])
        if system.g is not None:
            HE += system.g @ weighted.sum(-2, keepdim=True)
        return Score(inner(weighted, E), left=(-weighted).index_copy_(-2, t, HE))


def groups_of(labels: Any, n: int, intercept: bool) -> Groups | None:
    """The partition of n samples by labels, None for no labels; without a group something must be left to fit."""
    if labels is None:
        return None
    values = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(f"groups must have one label for each of the {n} targets; got shape {values.shape}.")
    if len(np.unique(values)) < 2 and intercept:
        raise ValueError(
            "groups must have at least two different labels: a group is judged by a fit to the others, and all "
            f"{n} samples are of the group {values[0]!r}."
        )
    return Groups.of(values)


def held_out_indices(validation: ArrayLike, n: int) -> Tensor:
    """Row numbers of samples that are held out, from numbers or a mask."""
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
