"""Mean cross entropies of decision values, with their gradients: clipped probabilities, or a softmax with a temperature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


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
    """min_τ 1/n Σ_i −⟨t_i, log softmax(τF_i)⟩ over the temperature 1/τ, smooth in F by the envelope theorem.

    The targets t_i are, as Platt advises, not 0 and 1 but what one more sample of each class would make of them:
    (n_c + 1)/(n_c + k) for the class c of the sample and 1/(n_c + k) for the others, so that τ is finite.
    """

    largest: float = 1e4  # of τ: probabilities of 1 to rounding wherever two decisions differ

    def __call__(self, F: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
        """The value and its gradient."""
        targets = smoothed(Y)
        tau = self.scale(F, Y)[..., None, None]
        log_p = torch.log_softmax(tau * F, -1)
        value = -(targets * log_p).sum(-1).mean(-1)
        return value, tau * (log_p.exp() - targets) / len(Y)

    def scale(self, F: Tensor, Y: Tensor) -> Tensor:
        """The best τ (...), by Newton's method inside a bracket on a convex function of one variable."""
        targets, centred = smoothed(Y), F - F.mean(-1, keepdim=True)
        unit = centred.square().sum(-1).mean(-1).sqrt().clamp(min=torch.finfo(F.dtype).tiny)
        G = centred / unit[..., None, None]
        reward = (targets * G).sum(-1).mean(-1)
        low, high = torch.zeros_like(unit), torch.full_like(unit, self.largest)
        tau = torch.ones_like(unit)
        for _ in range(60):
            p = torch.softmax(tau[..., None, None] * G, -1)
            mean = (p * G).sum(-1)
            slope = mean.mean(-1) - reward
            curvature = ((p * G.square()).sum(-1) - mean.square()).mean(-1)
            low, high = torch.where(slope < 0, tau, low), torch.where(slope < 0, high, tau)
            newton = tau - slope / curvature.clamp(min=1e-30)
            # Far above the minimum the curvature vanishes: then the geometric middle, or towards zero, is better.
            middle = torch.where(low > 0, (low * high).sqrt(), 0.1 * high)
            new = torch.where((newton > low) & (newton < high), newton, middle)
            settled = (new - tau).abs() <= 1e-12 * tau
            tau = new
            if bool((settled | ~torch.isfinite(slope) | (tau < 1e-12)).all()):
                break
        return tau / unit


def smoothed(Y: Tensor) -> Tensor:
    """One-hot labels (n, k) with the probabilities that one more sample of each class would give them."""
    k, counts = Y.shape[-1], Y.sum(0)
    own = (Y * counts).sum(-1, keepdim=True)
    return (Y * own + 1.0) / (own + k)
