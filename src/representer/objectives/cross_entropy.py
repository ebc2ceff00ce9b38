"""Mean cross entropies of decision values, with gradients: clipped probabilities, or a softmax with a scale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

# Of decisions of size one: beyond it, all that differ have the probabilities 0 and 1.
LARGEST_SCALE = 1e4


class CrossEntropy(ABC):
    """A mean over samples of a loss of decision values F (..., n, k) for one-hot labels Y (n, k)."""

    @abstractmethod
    def __call__(self, F: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
        """The value (...) and its gradient in F."""


@dataclass(frozen=True)
class ClippedCrossEntropy(CrossEntropy):
    """1/n Σ −log clip(F_{i,y_i}, ε, 1): equation (7) of Hsu et al.; the gradient of a clipped sample is zero."""

    epsilon: float = 1e-15

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon must lie in (0, 1): it clips the cross entropy; got {self.epsilon}.")

    def __call__(self, F: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
        """The value and its gradient."""
        q = (Y * F).sum(-1)
        value = -q.clamp(self.epsilon, 1.0).log().mean(-1)
        inside = (q > self.epsilon) & (q < 1.0)
        slope = torch.where(inside, -1.0 / (len(Y) * torch.where(inside, q, 1.0)), 0.0)
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

    def __call__(self, F: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
        """The value and its gradient."""
        targets, G = smoothed(Y), self.link(F)
        tau = best_scale(G, targets)[..., None, None]
        log_p = torch.log_softmax(tau * G, -1)
        value = -(targets * log_p).sum(-1).mean(-1)
        return value, tau * (log_p.exp() - targets) / (len(Y) * (F.square() + self.delta**2).sqrt())

    def link(self, F: Tensor) -> Tensor:
        """asinh(F/δ)."""
        return torch.asinh(F / self.delta)

    def scale(self, F: Tensor, Y: Tensor) -> Tensor:
        """The best τ, (...)."""
        return best_scale(self.link(F), smoothed(Y))


def smoothed(Y: Tensor) -> Tensor:
    """One-hot labels (n, k) as one more sample of each class would make them."""
    n, k = Y.shape
    return (n * Y + 1.0) / (n + k)


def best_scale(G: Tensor, targets: Tensor) -> Tensor:
    """The τ ≥ 0 (...) of least cross entropy of softmax(τG), convex in τ: Newton's method inside a bracket."""
    centred = G - G.mean(-1, keepdim=True)
    unit = centred.square().sum(-1).mean(-1).sqrt().clamp(min=torch.finfo(G.dtype).tiny)
    reward = (targets * centred).sum(-1).mean(-1) / unit
    # Classes before samples, so that sums over few classes are fast; below the largest, so that nothing overflows.
    G = (centred / unit[..., None, None]).mT.contiguous()
    below = G - G.amax(-2, keepdim=True)
    squares = G.square()
    low, high = torch.zeros_like(unit), torch.full_like(unit, LARGEST_SCALE)
    tau = torch.ones_like(unit)
    for _ in range(60):
        p = (tau[..., None, None] * below).exp_()
        p /= p.sum(-2, keepdim=True)
        mean = (p * G).sum(-2)
        slope = mean.mean(-1) - reward
        curvature = ((p * squares).sum(-2) - mean.square()).mean(-1)
        low, high = torch.where(slope < 0, tau, low), torch.where(slope < 0, high, tau)
        newton = tau - slope / curvature.clamp(min=torch.finfo(G.dtype).tiny)
        # Far above the minimum the curvature vanishes: there the geometric middle, or towards zero, is better.
        middle = torch.where(low > 0, (low * high).sqrt(), 0.1 * high)
        new = torch.where((newton > low) & (newton < high), newton, middle)
        # Newton's next step would be the square of this one.
        settled = (new - tau).abs() <= torch.finfo(G.dtype).eps ** 0.5 * tau
        tau = new
        if bool((settled | ~torch.isfinite(slope) | (tau < 1e-12)).all()):
            break
    return tau / unit
