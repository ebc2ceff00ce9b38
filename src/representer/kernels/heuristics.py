"""What the data say about a hyperparameter before anything is learned: ``"median"``, ``"scale"``, ``"ard"``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Enough rows for a stable median; the heuristic is O(rows²).
MEDIAN_ROWS = 1000


def _evenly_spaced_rows(X: Tensor, rows: int) -> Tensor:
    """At most so many rows of X, in double precision."""
    flat = X.detach().reshape(-1, X.shape[-1]).to(torch.float64)
    if len(flat) <= rows:
        return flat
    return flat[torch.linspace(0, len(flat) - 1, rows, dtype=torch.float64).round().long()]


def median_of(distances: Tensor) -> Tensor:
    """The median of distances between pairs; of those above 0 if at least half of the pairs coincide, 1 if all do."""
    if not bool((distances > 0).any()):
        return torch.ones((), dtype=torch.float64)
    median = distances.median()
    return median if median > 0 else distances[distances > 0].median()


def _median_distance(X: Tensor, p: float) -> Tensor:
    """The median of the finite distances ‖x − y‖_p between samples."""
    distances = torch.nn.functional.pdist(_evenly_spaced_rows(X, MEDIAN_ROWS), p=p)
    return median_of(distances[distances.isfinite()])


def median_distance(X: Tensor) -> Tensor:
    """The median Euclidean distance between samples."""
    return _median_distance(X, 2.0)


def median_manhattan(X: Tensor) -> Tensor:
    """The median ℓ₁ distance between samples."""
    return _median_distance(X, 1.0)


def _deviation(entries: Tensor, dim: tuple[int, ...], *, otherwise: float) -> Tensor:
    """The standard deviation, or ``otherwise`` where it is not finite, or no more than the rounding of the entries."""
    deviation = entries.std(dim, correction=0)
    rounding = 8.0 * torch.finfo(entries.dtype).eps * entries.abs().amax(dim)
    return torch.where((deviation > rounding) & deviation.isfinite(), deviation, otherwise)


def ard_lengthscales(X: Tensor) -> Tensor:
    """One lengthscale a feature: √(2d) standard deviations, the median heuristic on standardised features."""
    sample = _evenly_spaced_rows(X, MEDIAN_ROWS)
    return math.sqrt(2.0 * sample.shape[-1]) * _deviation(sample, (0,), otherwise=1.0)


def inverse_size(X: Tensor) -> Tensor:
    """The number 1 / (d · variance), scikit-learn's ``gamma="scale"``; 1 for constant data."""
    d = X.shape[-1]
    deviation = _deviation(X.detach().to(torch.float64), (), otherwise=d**-0.5)
    return 1.0 / (d * deviation.clamp(1e-100, 1e100) ** 2)
