"""The risk of conditional embedding classifiers and its Rademacher complexity bound (Hsu, Nock & Ramos)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from representer.objectives.base import ArrayLike, Targets, inner, one_hot
from representer.objectives.cross_entropy import ClippedCrossEntropy, CrossEntropy, SoftmaxCrossEntropy
from representer.objectives.squared import Score, SquaredLoss, groups_of, held_out_indices
from representer.systems.scalar import BlockDiagonal, RidgeSystem

Observer = Callable[[Tensor, Tensor, Tensor], None]


@dataclass(frozen=True)
class _Risk:
    """A mean cross entropy, ∂/∂W = left Cᵀ + C leftᵀ + P B P with left = P right + rest."""

    value: Tensor
    accuracy: Tensor  # of the decisions that the cross entropy judges
    right: Tensor  # (..., t, k), of the rows that are fitted
    rest: Tensor | None = None  # (..., n, k)
    weights: Tensor | BlockDiagonal | None = None  # B, or its diagonal (..., n)
    shift_gradient: Tensor | float = 0.0  # beside what the shift changes through W


class ClassRisk(SquaredLoss, ABC):
    """A mean cross entropy of f, or of what f would be without the samples that judge it, plus weight·r.

    f minimises squared loss to one-hot labels + α‖f‖²; r = √(tr(CᵀKC)·sup k(x, x)) with its dual coefficients C is the
    complexity in Theorem 4 of Hsu et al. A supremum attained at several diagonal entries shares its gradient among
    them. r costs no factorisation and no solve beyond those of the cross entropy. ``observer``, if there is one, is
    told the cross entropy, r and the accuracy at every evaluation.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        weight: float,
        loss: CrossEntropy,
        supremum: float | None,
        intercept: bool,
        sample_weight: ArrayLike | None = None,
        observer: Observer | None = None,
    ) -> None:
        labels = one_hot(targets, name=type(self).__name__)
        super().__init__(labels, None, alpha=alpha, intercept=intercept, sample_weight=sample_weight)
        self.targets = Targets(labels)  # also where there are more classes than samples
        if not (weight >= 0 and math.isfinite(weight)):
            raise ValueError(f"weight must be a finite number ≥ 0, the weight of the complexity; got {weight}.")
        if supremum is not None and not (supremum > 0 and math.isfinite(supremum)):
            raise ValueError(f"supremum must be positive, an upper bound of k(x, x); got {supremum}.")
        self.weight, self.loss, self.supremum, self.observer = weight, loss, supremum, observer

    @abstractmethod
    def _risk(self, system: RidgeSystem, Y: Tensor, C: Tensor) -> _Risk:
        """The risk of one-hot labels Y (n, k) with dual coefficients C (..., n, k)."""

    def _score(self, system: RidgeSystem, Y: Tensor, C: Tensor, alpha: Tensor) -> Score:
        """Add the complexity ρ to the risk, with ρ² = tr(CᵀKC).

        From KC = Y − 1bᵀ − NC follow ∂ρ²/∂W = −2 sym((C − PNC)Cᵀ) and ∂ρ²/∂K = ∂ρ²/∂W + CCᵀ.
        """
        risk = self._risk(system, Y, C)
        value, right, rest, diagonal = risk.value, risk.right, risk.rest, None
        shift_gradient, t = risk.shift_gradient, _fitted(system)
        own = C[..., t, :]
        if self.weight > 0 or self.observer is not None:
            entries = system.gram_diagonal()
            S = entries.amax(-1) if self.supremum is None else entries.new_tensor(self.supremum)
            squares = inner(own, system.centred(Y[t]) - system.noise(own))
            r = (squares * S).clamp(min=torch.finfo(C.dtype).tiny).sqrt()
            if self.observer is not None:
                self.observer(risk.value, r, risk.accuracy)
        if self.weight > 0:
            value = value + self.weight * r
            pull = (0.5 * self.weight * S / r)[..., None, None]
            right = right + pull * system.noise(own)
            rest = -0.5 * pull * C if rest is None else rest - 0.5 * pull * C
            shift_gradient = shift_gradient - pull[..., 0, 0] * inner(own, system.per_weight(own))
            if self.supremum is None:
                attained = (entries == S[..., None]).to(C)
                share = attained / attained.sum(-1, keepdim=True)
                diagonal = (0.5 * self.weight * r / S)[..., None] * share
        left = system.solve(right)
        if system.rows is not None:
            left = C.new_zeros(C.shape).index_copy_(-2, system.rows, left)
        left = left if rest is None else left + rest
        in_alpha = self._total() * shift_gradient
        return Score(value, left, risk.weights, alpha_gradient=in_alpha, diagonal=diagonal)


def _fitted(system: RidgeSystem) -> Tensor | slice:
    return slice(None) if system.rows is None else system.rows


def _accuracy(F: Tensor, Y: Tensor, shares: Tensor) -> Tensor:
    return (F.argmax(-1) == Y.argmax(-1)).to(F) @ shares


class RademacherBound(ClassRisk):
    """1/n Σ −log clip(f_{y_i}(x_i), ε, 1) + weight·r with f = KC, C = W⁻¹Y, r = √(tr(CᵀKC)·sup k(x, x)).

    Equation (12) of Hsu et al. has the weight 4e; their published code sums the cross entropies, which amounts to 4e/n
    and reproduces their results: the default here. The weight 0 is empirical risk minimisation. The gradient of a
    clipped sample is zero. One Cholesky and O(n²k).

    Parameters
    ----------
    targets : array (n, k)
        One-hot labels.
    alpha : float
    weight : float, optional
        Of the complexity r. Default 4e/n.
    clip : float
        Where the cross entropy is clipped, ε of equation (7); 0 < ε < 1.
    supremum : float, optional
        sup k(x, x) if known and constant. Default: the largest diagonal entry of K, with its derivative.
    intercept : bool
        As for ``Ridge``; r is that of f without the constant.
    sample_weight : array (n,), optional
        As for ``Ridge``; the cross entropies are averaged with the weights, too.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        weight: float | None = None,
        clip: float = 1e-15,
        supremum: float | None = None,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        observer: Observer | None = None,
    ) -> None:
        loss = ClippedCrossEntropy(clip)
        weight = 4.0 * math.e / max(1, len(one_hot(targets, name="RademacherBound"))) if weight is None else weight
        super().__init__(
            targets,
            alpha=alpha,
            weight=weight,
            loss=loss,
            supremum=supremum,
            intercept=intercept,
            sample_weight=sample_weight,
            observer=observer,
        )

    def _risk(self, system: RidgeSystem, Y: Tensor, C: Tensor) -> _Risk:
        """From f = Y − shift·C, dC = −P dW C."""
        F, shares = Y - system.noise(C), self._shares(C)
        value, slope = self.loss(F, Y, shares)
        change = -inner(slope, system.per_weight(C))
        return _Risk(value, _accuracy(F, Y, shares), 0.5 * system.noise(slope), shift_gradient=change)


class LeaveOneOutRisk(ClassRisk):
    """min_τ 1/n Σ −log softmax(τ asinh(f₋ᵢ(x_i)/δ))_{y_i} + weight·r, f₋ᵢ the fit without i and with the same shift nα.

    The cross entropy of calibrated leave-one-out predictions: f₋ᵢ(x_i) = y_i − C_i/P_ii, P = W⁻¹, in closed form; δ and
    the smoothing of the labels are those of ``SoftmaxCrossEntropy``. One Cholesky, one inverse, one product.

    Parameters
    ----------
    targets, alpha, supremum, intercept, sample_weight
        As for ``RademacherBound``.
    weight : float
        Of the complexity r.
    groups : array (n,), optional
        Labels of groups of samples that are left out together. Default: each sample alone.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        weight: float = 0.0,
        supremum: float | None = None,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(
            targets,
            alpha=alpha,
            weight=weight,
            loss=SoftmaxCrossEntropy(),
            supremum=supremum,
            intercept=intercept,
            sample_weight=sample_weight,
            observer=observer,
        )
        self.groups = groups_of(groups, self.n, intercept)

    def _risk(self, system: RidgeSystem, Y: Tensor, C: Tensor) -> _Risk:
        left_out = system.left_out(C, None if self.groups is None else self.groups.to(C.device))
        F, shares = Y - left_out.errors, self._shares(C)
        value, slope = self.loss(F, Y, shares)
        Z, weights = left_out.pulled(-slope)
        return _Risk(value, _accuracy(F, Y, shares), -0.5 * Z, weights=weights)


class HeldOutRisk(ClassRisk):
    """A mean cross entropy over validation rows of the fit f to the others, plus weight·r of that fit: equation (13).

    Parameters
    ----------
    targets, alpha, clip, supremum, intercept, sample_weight
        As for ``RademacherBound``; targets of both parts.
    validation : array of int, or bool (n,)
        The rows held out.
    weight : float
        The τ of equation (13).
    loss : {"clipped", "softmax"}
        Equation (7), or that of ``LeaveOneOutRisk``.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        validation: ArrayLike,
        weight: float = 0.0,
        loss: str = "clipped",
        clip: float = 1e-15,
        supremum: float | None = None,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        observer: Observer | None = None,
    ) -> None:
        if loss not in ("clipped", "softmax"):
            raise ValueError(f"loss must be 'clipped' or 'softmax'; got {loss!r}.")
        super().__init__(
            targets,
            alpha=alpha,
            weight=weight,
            loss=ClippedCrossEntropy(clip) if loss == "clipped" else SoftmaxCrossEntropy(),
            supremum=supremum,
            intercept=intercept,
            sample_weight=sample_weight,
            observer=observer,
        )
        self.validation = held_out_indices(validation, self.n)
        kept = torch.ones(self.n, dtype=torch.bool)
        kept[self.validation] = False
        self.training = torch.nonzero(kept)[:, 0]

    def _risk(self, system: RidgeSystem, Y: Tensor, C: Tensor) -> _Risk:
        """From F_v = K_vt C + b with dF_v = dK_vt C − H dW C, H = K_vt P + 1gᵀ."""
        t, v = system.rows, self.validation.to(C.device)
        assert t is not None  # the rows of the fit are those not held out
        F = system.apply(C)
        if system.g is not None:
            F = F + system.g.mT @ Y[t]
        F, shares = F[..., v, :], self._shares(C, v)
        value, slope = self.loss(F, Y[v], shares)
        rest = C.new_zeros(C.shape).index_copy_(-2, v, 0.5 * slope)
        right = -system.apply(rest)[..., t, :]
        if system.g is not None:
            rest = rest.index_copy_(-2, t, -system.g @ rest.sum(-2, keepdim=True))
        return _Risk(value, _accuracy(F, Y[v], shares), right, rest)


def rademacher_complexity(gram: Tensor, dual: Tensor, *, supremum: float | None = None) -> Tensor:
    """r = √(tr(VᵀKV)·sup k(x, x)) of Theorem 4 in Hsu et al.; V is the dual of an evaluation.

    ``supremum`` defaults to the largest diagonal entry of K.
    """
    squared_norm = inner(dual, gram @ dual)
    S = gram.diagonal(dim1=-2, dim2=-1).amax(-1) if supremum is None else supremum
    return (squared_norm * S).sqrt()
