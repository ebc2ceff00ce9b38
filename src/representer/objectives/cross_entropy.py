"""Mean cross entropies of decision values, with gradients: clipped probabilities, or a softmax with a scale."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

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
