"""Probabilities from decision values: a temperature, fitted to held-out decisions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from representer.optimize import lbfgs, with_gradient

# Decision values that differ by less, relatively, are equal: a solver leaves as much.
SAME = 1e-6


@dataclass(frozen=True)
class Calibration:
    """p = softmax(slope · F), slope > 0; for one column of decisions, the logistic function of slope · F.

    No shifts: the most probable class is then the one that is predicted, as scikit-learn demands. None are needed where
    the loss puts the decision where two classes are equally probable.
    """

    slope: float
    rates: tuple[float, ...] | None = None  # of the classes, where decisions say nothing

    def __call__(self, decisions: np.ndarray) -> np.ndarray:
        """Probabilities (n, k) of decision values (n, k), or (n, 1) for two classes."""
        if self.rates is not None:
            return np.tile(np.asarray(self.rates, dtype=decisions.dtype), (len(decisions), 1))
        return torch.softmax(_two_columns(torch.as_tensor(self.slope * decisions)), 1).numpy()


def is_constant(decisions: Tensor) -> bool:
    """Do all samples have the same decision values, but for what a solver leaves?"""
    return bool((decisions - decisions[:1]).abs().max() <= SAME * decisions.abs().max())


def base_rates(labels: Tensor, n_classes: int, weights: Tensor | None = None) -> Calibration:
    """The shares of the classes, for decisions that do not depend on the sample.

    One against the rest, a margin loss says −1 for every class that is not a majority: equal decisions, which would be
    uniform probabilities for any slope.
    """
    counts = torch.bincount(labels, weights, minlength=n_classes).double() + 1.0
    return Calibration(0.0, tuple((counts / counts.sum()).tolist()))


def calibrate(decisions: Tensor, labels: Tensor, weights: Tensor | None = None) -> Calibration:
    """The calibration of least cross entropy for held-out decisions; ``labels`` are the positions of the classes.

    As Platt advises, the targets are not 0 and 1 but what one more sample of each class would make of them, so that
    separable classes have a finite slope. Weights are those of the samples in the mean.
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
    """One column is the logit of the second of two classes."""
    return logits if logits.shape[-1] > 1 else torch.cat([torch.zeros_like(logits), logits], -1)
