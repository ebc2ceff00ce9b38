"""Probabilities from decisions and estimates: calibrated on left-out samples, or clip-normalised."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from representer.objectives.risk import SoftmaxCrossEntropy, smoothed
from representer.optimize import lbfgs, newton, with_gradient
from representer.samples import Data, plain, take
from representer.systems.support import Support, least_doubt, trust

# Decision values with a smaller relative difference are equal, because solvers stop that far from the optimum.
SAME = 1e-6


@dataclass(frozen=True)
class Calibration:
    """p = softmax(slope · F), slope > 0; for one column of decisions, the logistic function of slope · F.

    There are no shifts, so that the most probable class is the predicted one, as scikit-learn demands. None are needed
    for losses whose decision boundary lies where two classes are equally probable.
    """

    slope: float
    rates: tuple[float, ...] | None = None  # shares of the classes, for decisions that do not depend on the sample

    def __call__(self, decisions: np.ndarray) -> np.ndarray:
        """Probabilities (n, k) of decision values (n, k), or (n, 1) for two classes."""
        if self.rates is not None:
            return np.tile(np.asarray(self.rates, dtype=decisions.dtype), (len(decisions), 1))
        return torch.softmax(_two_columns(torch.as_tensor(self.slope * decisions)), 1).numpy()


def is_constant(decisions: Tensor) -> bool:
    """Do all samples have the same decision values, up to the tolerance of a solver?"""
    return bool((decisions - decisions[:1]).abs().max() <= SAME * decisions.abs().max())


def base_rates(labels: Tensor, n_classes: int, weights: Tensor | None = None) -> Calibration:
    """The shares of the classes, for decisions that do not depend on the sample.

    One against the rest, a margin loss decides −1 for every class without a majority. Such equal decisions would be
    uniform probabilities for any slope.
    """
    counts = torch.bincount(labels, weights, minlength=n_classes).double() + 1.0
    return Calibration(0.0, tuple((counts / counts.sum()).tolist()))


def calibrate(decisions: Tensor, labels: Tensor, weights: Tensor | None = None) -> Calibration:
    """The calibration of least cross entropy for held-out decisions; ``labels`` are the positions of the classes.

    As Platt advises, the targets are not 0 and 1, but the shares after one more sample of each class, so that separable
    classes have a finite slope. ``weights`` are the weights of the samples in the mean.
    """
    k = max(2, decisions.shape[1])
    counts = torch.bincount(labels, weights, minlength=k).to(decisions)
    share = torch.ones_like(decisions[:, 0]) if weights is None else weights.to(decisions)
    indicators = torch.nn.functional.one_hot(labels, k)
    targets = (indicators * counts + 1.0) / (counts[labels][:, None] + k)
    unit = decisions.abs().mean().item() or 1.0

    def loss(points: Tensor) -> Tensor:
        logits = points.exp()[..., None] * (decisions / unit)
        return -(share * (targets * torch.log_softmax(_two_columns(logits), -1)).sum(-1)).mean(-1)

    result = lbfgs(with_gradient(loss), decisions.new_zeros(1), max_iter=500, tol=1e-9)
    return Calibration(result.point.exp().item() / unit)


def _two_columns(logits: Tensor) -> Tensor:
    """The logits of all classes; a single column is the logit of the second of two classes."""
    return logits if logits.shape[-1] > 1 else torch.cat([torch.zeros_like(logits), logits], -1)


# Beyond these δ, probabilities are a softmax of the estimates, or proportional to a power of them, anyway.
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


def calibrate_embedding(
    estimates: Tensor, Y: Tensor, sample_weight: Tensor | None = None, *, sparing: bool = False
) -> EmbeddingCalibration:
    """The calibration of least cross entropy for estimates (n, k) of left-out samples and their one-hot labels Y.

    ``sparing`` smooths the labels less, so that classes that are predicted without a mistake may be nearly certain.
    """
    estimates, targets = estimates.double().cpu(), smoothed(Y.double().cpu(), sparing=sparing)
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
    # Scale and delta nearly make up for each other: L-BFGS stops in a flat valley, and Newton goes to its minimum.
    scale, delta = newton(loss, point, lower, upper).exp()
    return EmbeddingCalibration(scale.item(), delta.item())


@dataclass(frozen=True)
class CodesCalibration:
    """Probabilities from regressions F on codes −1 and 1, for which (1 + F)/2 estimates the probability of a class.

    Attributes
    ----------
    of_estimates : EmbeddingCalibration
        The calibration of the estimates (1 + F)/2.
    """

    of_estimates: EmbeddingCalibration

    def __call__(self, decisions: np.ndarray) -> np.ndarray:
        """Probabilities (n, k) of decision values (n, k), or (n, 1) for two classes."""
        return self.of_estimates(class_estimates(torch.as_tensor(decisions)).numpy())


def class_estimates(decisions: Tensor) -> Tensor:
    """The estimates (1 + F)/2 (n, k) for decisions F (n, k), or (n, 1) for two classes; codes ±1 become 0 and 1."""
    estimates = (1.0 + decisions) / 2.0
    return estimates if estimates.shape[1] > 1 else torch.cat([1.0 - estimates, estimates], 1)


def calibrate_codes(decisions: Tensor, codes: Tensor, sample_weight: Tensor | None = None) -> CodesCalibration:
    """The calibration of least cross entropy for decisions about left-out samples and their codes."""
    one_hot = class_estimates(codes)
    return CodesCalibration(calibrate_embedding(class_estimates(decisions), one_hot, sample_weight, sparing=True))


# -- far from the samples ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FarField:
    """Probabilities t p + (1 − t) π with the trust t = min(1, s/reference)^power, which are π far from all samples.

    Attributes
    ----------
    support : Support
        s(x), how much of x the samples explain.
    reference : float
        The support above which the probabilities p are trusted fully.
    power : float
        The rate at which trust fades below the reference.
    shares : tuple of float
        π, the shares of the classes.
    """

    support: Support
    reference: float
    power: float
    shares: tuple[float, ...]

    def __call__(self, probabilities: np.ndarray, X: Data) -> np.ndarray:
        """Probabilities (n, k) at checked inputs, from those of a calibration."""
        return self._mixed(probabilities, self.support(X))

    def _mixed(self, probabilities: np.ndarray, support: Tensor) -> np.ndarray:
        t = plain(trust(support, self.reference, self.power))[:, None].astype(probabilities.dtype)
        return t * probabilities + (1.0 - t) * np.asarray(self.shares, dtype=probabilities.dtype)

    def classes(self, classes: np.ndarray, probabilities: np.ndarray, X: Data) -> np.ndarray:
        """The numbers of the most probable classes, given those before the mixture; the most frequent class stays."""
        rows = np.flatnonzero(classes != np.argmax(self.shares))
        chosen = classes.copy()
        # The mixture is linear in t: a class that wins for a lower bound of t and for t = 1 wins in between, too.
        for support in (self.support.at_least, self.support):
            if len(rows):
                mixed = self._mixed(probabilities[rows], support(take(X, torch.from_numpy(rows))))
                chosen[rows] = mixed.argmax(1)
                rows = rows[chosen[rows] != classes[rows]]
        return chosen


def far_field(
    support: Support, probabilities: np.ndarray, Y: Tensor, weights: Tensor | None = None, rows: Tensor | None = None
) -> FarField | None:
    """The far field of least cross entropy for left-out samples; None for a kernel in which nothing is far away.

    Unless the shares of the classes predict left-out samples better, all of these are trusted: the reference is half of
    the least support among them.

    Parameters
    ----------
    support : Support
        The support by the samples of the fit.
    probabilities : array (n, k)
        The probabilities of left-out samples.
    Y : tensor (n, k)
        Their one-hot labels.
    weights : tensor (n,), optional
        Their weights.
    rows : tensor of int (n,), optional
        The numbers of these samples among all that the support leaves out; by default they are all of them.
    """
    if not support.bounded:
        return None
    w = torch.ones(len(Y), dtype=torch.float64) if weights is None else weights.double().cpu()
    Y, p = Y.double().cpu(), torch.as_tensor(probabilities, dtype=torch.float64)
    shares, tiny = (w @ Y) / w.sum(), torch.finfo(torch.float64).tiny
    left_out = support.left_out() if rows is None else support.left_out()[rows]
    likely, usual = (p * Y).sum(1), Y @ shares

    def loss(reference: float, power: float) -> float:
        t = trust(left_out, reference, power)
        return -float((t * likely + (1.0 - t) * usual).clamp(min=tiny).log() @ w)

    best = least_doubt(left_out, loss if len(left_out) == len(Y) else None)
    return FarField(support.at_rest(), *best, tuple(shares.tolist()))


def clip_normalized(estimates: np.ndarray) -> np.ndarray:
    """Clip-normalised estimates, equation (6) of Hsu et al.; their softmax where no estimate is positive."""
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
    """The entropy ⟨μ, û⟩ with û_c = −log p̂_c, or 0 where p̂_c is not positive: equation (37), clipped at zero."""
    return np.maximum(entropy_of(np.maximum(estimates, 0.0)), 0.0)
