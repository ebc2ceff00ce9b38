"""Cross entropies of decision values; the risk of embedding classifiers and its Rademacher bound (Hsu et al.)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.objectives.base import ArrayLike, Targets, inner, one_hot
from representer.objectives.squared import Score, SquaredLoss, groups_of
from representer.systems.scalar import BlockDiagonal, RidgeSystem

# Of decisions of size one: beyond it, all that differ have the probabilities 0 and 1.
LARGEST_SCALE = 1e4
# Estimates of labels, which are of size one, that do not differ by more than this multiple of the rounding say nothing.
NOISE = 64


class CrossEntropy(ABC):
    """A mean over samples of a loss of decision values F (..., n, k) for one-hot labels Y (n, k)."""

    @abstractmethod
    def __call__(self, F: Tensor, Y: Tensor, shares: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The value (...) and its gradient in F; the mean is weighted by ``shares`` (n,) of sum one, if given."""


@dataclass(frozen=True)
class ClippedCrossEntropy(CrossEntropy):
    """1/n Σ −log clip(F_{i,y_i}, ε, 1): equation (7) of Hsu et al.; the gradient of a clipped sample is zero."""

    clip: float = 1e-15

    def __post_init__(self) -> None:
        if not 0.0 < self.clip < 1.0:
            raise ValueError(f"clip must lie in (0, 1): it clips the cross entropy; got {self.clip}.")

    def __call__(self, F: Tensor, Y: Tensor, shares: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The value and its gradient."""
        shares = F.new_full((len(Y),), 1.0 / len(Y)) if shares is None else shares
        q = (Y * F).sum(-1)
        value = -(q.clamp(self.clip, 1.0).log() * shares).sum(-1)
        inside = (q > self.clip) & (q < 1.0)
        slope = torch.where(inside, -shares / torch.where(inside, q, 1.0), 0.0)
        return value, slope[..., None] * Y


@dataclass(frozen=True)
class SoftmaxCrossEntropy(CrossEntropy):
    """min_τ 1/n Σ_i −⟨t_i, log softmax(τ asinh(F_i/δ))⟩ over τ > 0, smooth in F by the envelope theorem.

    asinh is the bridge between two ways to probabilities: where decisions are small beside δ these are softmax(τF/δ),
    where they are large they are proportional to F^τ, for τ = 1 the clip-normalised ones of Hsu et al. The targets t_i
    are, as Platt advises, not 0 and 1, but what one more sample of each class would make of them: (n·y_i + 1)/(n + k).
    So τ is finite.
    """

    delta: float = 0.2

    def __post_init__(self) -> None:
        if not self.delta > 0.0:
            raise ValueError(f"delta must be positive; got {self.delta}.")

    def __call__(self, F: Tensor, Y: Tensor, shares: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The value and its gradient.

        By NumPy: torch wakes other threads for a few thousand exponentials, which takes ten times as long as those.
        """
        if F.ndim > 2:
            values, slopes = zip(*(self(part, Y, shares) for part in F.flatten(0, -3)), strict=True)
            return torch.stack(values).reshape(F.shape[:-2]), torch.stack(slopes).reshape(F.shape)
        estimates, targets, weights = by_class(F), by_class(smoothed(Y)), _as_shares(shares, len(Y))
        G = np.arcsinh(estimates / self.delta)
        tau = best_scale(G, targets, weights)
        logits = tau * (G - G.max(0))
        p = np.exp(logits)
        total = p.sum(0)
        value = float((np.log(total) - (targets * logits).sum(0)) @ weights)
        slope = tau * weights * (p / total - targets) / np.sqrt(estimates**2 + self.delta**2)
        return F.new_tensor(value), torch.from_numpy(slope.T).to(F)

    def scale(self, F: Tensor, Y: Tensor, shares: Tensor | None = None) -> float:
        """The best τ of decision values (n, k)."""
        G = np.arcsinh(by_class(F) / self.delta)
        return best_scale(G, by_class(smoothed(Y)), _as_shares(shares, len(Y)))


def _as_shares(shares: Tensor | None, n: int) -> np.ndarray:
    return np.full(n, 1.0 / n) if shares is None else shares.cpu().double().numpy()


def smoothed(Y: Tensor, *, sparing: bool = False) -> Tensor:
    """One-hot labels (n, k) as one more sample of each class would make them.

    With ``sparing``, as one more right and one more wrong label of all n would make them: this does not grow with k.
    """
    n, k = Y.shape
    if not sparing:
        return (n * Y + 1.0) / (n + k)
    return ((n + 1.0) * Y + (1.0 - Y) / max(k - 1, 1)) / (n + 2.0)


def by_class(values: Tensor) -> np.ndarray:
    """Values (n, k) as an array (k, n): sums over few classes are fast if these come first."""
    return np.ascontiguousarray(values.cpu().numpy().T)


def best_scale(G: np.ndarray, targets: np.ndarray, shares: np.ndarray) -> float:
    """The τ ≥ 0 of least cross entropy of softmax(τG), (k, n), convex in τ: Newton's method inside a bracket."""
    info = np.finfo(G.dtype)
    centred = G - G.mean(0)
    unit = math.sqrt((centred**2).sum(0) @ shares)
    if unit <= NOISE * info.eps:
        return 0.0
    G = centred / unit
    reward = (targets * G).sum(0) @ shares
    below = G - G.max(0)  # so that nothing overflows
    low, high, tau = 0.0, LARGEST_SCALE, 1.0
    for _ in range(60):
        p = np.exp(tau * below)
        p /= p.sum(0)
        weighted = p * G
        mean = weighted.sum(0)
        slope = mean @ shares - reward
        curvature = ((weighted * G).sum(0) - mean**2) @ shares
        low, high = (tau, high) if slope < 0 else (low, tau)
        new = tau - slope / max(curvature, info.tiny)
        if not low < new < high:
            # Far above the minimum the curvature vanishes: there the geometric middle, or towards zero, is better.
            new = math.sqrt(low * high) if low > 0 else 0.1 * high
        # Newton's next step would be the square of this one.
        settled = abs(new - tau) <= math.sqrt(info.eps) * tau
        tau = new
        if settled or tau < 1e-12 or not math.isfinite(slope):
            break
    return float(tau / unit)


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


class Risk(SquaredLoss, ABC):
    """A mean loss of f, or of what f would be without the samples that judge it, plus a function of its complexity r.

    f minimises squared loss + α‖f‖²; r = √(tr(CᵀKC)·sup k(x, x)) with its dual coefficients C is the complexity in
    Theorem 4 of Hsu et al. A supremum attained at several diagonal entries shares its gradient among them. r costs no
    factorisation and no solve beyond those of the loss. ``observer``, if there is one, is told the loss, r and the
    accuracy at every evaluation.
    """

    centres_targets = False  # they lie in a ball around zero, or are labels

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        weight: float = 1.0,
        supremum: float | None = None,
        intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(targets, alpha=alpha, intercept=intercept, sample_weight=sample_weight)
        if not (weight >= 0 and math.isfinite(weight)):
            raise ValueError(f"weight must be a finite number ≥ 0, the weight of the complexity; got {weight}.")
        if supremum is not None and not (supremum > 0 and math.isfinite(supremum)):
            raise ValueError(f"supremum must be positive, an upper bound of k(x, x); got {supremum}.")
        self.weight, self.supremum, self.observer = weight, supremum, observer

    @abstractmethod
    def _risk(self, system: RidgeSystem, Y: Tensor, C: Tensor) -> _Risk:
        """The risk of targets Y (n, k) with dual coefficients C (..., n, k)."""

    def _penalty(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """What the complexity costs, and the derivative in it."""
        return self.weight * r, torch.full_like(r, self.weight)

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
            cost, slope = self._penalty(r)
            value = value + cost
            pull = (0.5 * slope * S / r)[..., None, None]
            right = right + pull * system.noise(own)
            rest = -0.5 * pull * C if rest is None else rest - 0.5 * pull * C
            shift_gradient = shift_gradient - pull[..., 0, 0] * inner(own, system.per_weight(own))
            if self.supremum is None:
                attained = (entries == S[..., None]).to(C)
                share = attained / attained.sum(-1, keepdim=True)
                diagonal = (0.5 * slope * r / S)[..., None] * share
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


class ClassRisk(Risk, ABC):
    """A mean cross entropy of the fit to one-hot labels plus weight·r."""

    loss: CrossEntropy

    def _encoded(self, targets: ArrayLike | None, target_gram: ArrayLike | None) -> Targets:
        """The labels as they are, also where there are more classes than samples."""
        assert targets is not None  # they have no Gram matrix in the place of one-hot labels
        return Targets(one_hot(targets, name=type(self).__name__))


class EmbeddingBound(Risk):
    """1/n Σ‖y_i − f(x_i)‖² + weight·2(2√κ r + r²)/√n: a bound of the expected squared distance to targets in a ball.

    The squared radius of the ball is κ, for embeddings l(y, ·) the supremum of l(y, y). It holds with probability 1 − β
    if (√κ + r)²√(log(1/β)/(2n)) is added, and r was given beforehand; see ``embedding_risk_bound``.

    Parameters
    ----------
    targets : array (n, q)
        Coordinates of the targets.
    alpha, supremum, intercept, sample_weight
        As for ``RademacherBound``.
    weight : float
        Of the complexity.
    """

    @cached_property
    def radius(self) -> float:
        """√κ, the largest norm of a target."""
        return float(self.targets.factor.square().sum(-1).max()) ** 0.5

    def _penalty(self, r: Tensor) -> tuple[Tensor, Tensor]:
        scale = 2.0 * self.weight / math.sqrt(self.n)
        return scale * (2.0 * self.radius * r + r**2), scale * (2.0 * self.radius + 2.0 * r)

    def _risk(self, system: RidgeSystem, Y: Tensor, C: Tensor) -> _Risk:
        """From f − y = −shift·C, dC = −P dW C."""
        misses = -system.noise(C)
        slope = 2.0 * self._shares(C)[:, None] * misses
        value = 0.5 * inner(slope, misses)
        change = -inner(slope, system.per_weight(C))
        return _Risk(value, value, 0.5 * system.noise(slope), shift_gradient=change)


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
        self.loss = ClippedCrossEntropy(clip)
        weight = 4.0 * math.e / max(1, len(one_hot(targets, name="RademacherBound"))) if weight is None else weight
        super().__init__(
            targets,
            alpha=alpha,
            weight=weight,
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
            supremum=supremum,
            intercept=intercept,
            sample_weight=sample_weight,
            observer=observer,
        )
        self.loss = SoftmaxCrossEntropy()
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
        self.loss = ClippedCrossEntropy(clip) if loss == "clipped" else SoftmaxCrossEntropy()
        super().__init__(
            targets,
            alpha=alpha,
            weight=weight,
            supremum=supremum,
            intercept=intercept,
            sample_weight=sample_weight,
            observer=observer,
        )
        self.validation = self._hold_out(validation)

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


def radius_with_prior(r: float, unit: float) -> tuple[float, float]:
    """The least r_j = 2ʲ·unit that is not below r, and log(1/p_j) of its prior p_j = 2^(−|j|)/3, j = …, −1, 0, 1, ….

    A bound that holds for an r given beforehand holds for all r_j at once if that of r_j may fail with probability
    p_jβ, because these sum to β. So a complexity r that follows from the samples costs a factor of at most two, and
    log(1/p_j) beside log(1/β).
    """
    j = math.ceil(math.log2(max(r / unit, 2.0**-40)))
    return unit * 2.0**j, abs(j) * math.log(2.0) + math.log(3.0)


def embedding_risk_bound(
    loss: float, r: float, *, supremum: float, n: int, beta: float = 0.05, prior: bool = True
) -> float:
    """A bound of E‖l(Y, ·) − f(X)‖² for any targets with l(y, y) ≤ κ, from the mean over n independent samples.

    With probability 1 − β it is at most loss + 2(2√κ r + r²)/√n + (√κ + r)²√(log(1/β)/(2n)) for all functions of an
    RKHS that is given beforehand with ‖f‖√(sup k(x, x)) ≤ r. The page on embeddings derives it.

    Parameters
    ----------
    loss : float
        The mean ‖l(y_i, ·) − f(x_i)‖² over the samples.
    r : float
        ‖f‖√(sup k(x, x)).
    supremum : float
        κ, an upper bound of l(y, y).
    n : int
    beta : float
        The risk of being wrong.
    prior : bool
        Pay for an r that follows from the samples, by ``radius_with_prior``; False: r was given before.
    """
    root = math.sqrt(supremum)
    radius, surprise = radius_with_prior(r, root) if prior else (r, 0.0)
    complexity = 2.0 * (2.0 * root * radius + radius**2) / math.sqrt(n)
    return loss + complexity + (root + radius) ** 2 * math.sqrt((math.log(1.0 / beta) + surprise) / (2.0 * n))
