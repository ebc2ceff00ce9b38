"""Probabilities from the estimates of an embedding: clip-normalised, or calibrated on left-out samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from representer.objectives.cross_entropy import SoftmaxCrossEntropy, smoothed
from representer.optimize import lbfgs, newton, with_gradient

# δ beyond these is a softmax of the estimates, or proportional to a power of them, anyway.
DELTAS = 1e-3, 10.0
SCALES = math.exp(-15.0), math.exp(15.0)


@dataclass(frozen=True)
class EmbeddingCalibration:
    """p = softmax(scale · asinh(F/delta)), which is increasing in F: the most probable class is the one predicted.

    Attributes
    ----------
    scale, delta : float
        Large estimates F ≫ delta have probabilities in proportion to F^scale, small ones softmax(scale·F/delta).
    """

    scale: float
    delta: float

    def __call__(self, estimates: np.ndarray) -> np.ndarray:
        """Probabilities (n, k) of estimates (n, k)."""
        logits = self.scale * np.arcsinh(estimates / self.delta)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)


def calibrate_embedding(estimates: Tensor, Y: Tensor, sample_weight: Tensor | None = None) -> EmbeddingCalibration:
    """The calibration of least cross entropy for estimates (n, k) of samples that were left out, one-hot labels Y."""
    estimates, targets = estimates.double().cpu(), smoothed(Y.double().cpu())
    weights = targets.new_ones(len(Y)) if sample_weight is None else sample_weight.double().cpu()
    shares = weights / weights.sum()
    first = SoftmaxCrossEntropy()
    lower, upper = targets.new_tensor([SCALES, DELTAS]).log().unbind(1)

    def loss(point: Tensor) -> Tensor:
        scale, delta = point.exp()
        log_p = torch.log_softmax(scale * torch.asinh(estimates / delta), -1)
        return -(targets * log_p).sum(-1) @ shares

    def losses(points: Tensor) -> Tensor:
        return torch.stack([loss(point.clamp(lower, upper)) for point in points])

    scale = min(max(first.scale(estimates, Y.double().cpu(), shares), 1e-6), 1e6)
    start = targets.new_tensor([scale, first.delta]).log()
    point = lbfgs(with_gradient(losses), start, max_iter=200, tol=1e-8).point
    # Scale and delta nearly make up for each other: in that valley the value is the same long before the minimum.
    scale, delta = newton(loss, point, lower, upper).exp()
    return EmbeddingCalibration(scale.item(), delta.item())


def clip_normalized(estimates: np.ndarray) -> np.ndarray:
    """Equation (6) of Hsu et al.; where no estimate is positive, their softmax."""
    clipped = np.maximum(estimates, 0.0)
    total = clipped.sum(1, keepdims=True)
    fallback = np.exp(estimates - estimates.max(1, keepdims=True))
    fallback /= fallback.sum(1, keepdims=True)
    return np.where(total > 0, clipped / np.where(total > 0, total, 1.0), fallback)


def entropy_of(probabilities: np.ndarray) -> np.ndarray:
    """The entropy −Σ_c p_c log p_c of each row of probabilities, equation (33)."""
    positive = probabilities > 0
    return -np.sum(np.where(positive, probabilities * np.log(np.where(positive, probabilities, 1.0)), 0.0), 1)


def embedding_entropy(estimates: np.ndarray) -> np.ndarray:
    """⟨μ, û⟩ with the information û_c = −log p̂_c, 0 where p̂_c is not positive: equation (37), clipped at zero."""
    return np.maximum(entropy_of(np.maximum(estimates, 0.0)), 0.0)
