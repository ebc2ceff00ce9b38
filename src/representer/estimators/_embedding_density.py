"""Distributions of vectors from the weights of a conditional embedding, some of which may be negative."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

# The least bandwidth, as a share of the marginal standard deviation: the conditional one, of a difference, may be zero.
LEAST_BANDWIDTH = 0.01
# Points of the quasi-Monte Carlo integral of a clipped density; it is then good to about three digits.
INTEGRATION_POINTS = 4096


def proper(weights: Tensor, shares: Tensor | None = None) -> Tensor:
    """Weights (q, n) in rows of sum one; ``shares``, or equal ones, where they have no positive sum: far from all."""
    total, size = weights.sum(1, keepdim=True), weights.abs().sum(1, keepdim=True)
    known = total > torch.finfo(weights.dtype).eps ** 0.5 * size  # else it is a rounding error, or nearly
    far = 1.0 / weights.shape[1] if shares is None else shares
    return torch.where(known, weights / torch.where(known, total, 1.0), far)


def moments(weights: Tensor, Y: Tensor, *, total_is_one: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """c, E[Y − c], E[(Y − c)²] and E[1], which is one exactly where weights sum to it but for rounding."""
    c = Y.mean(0)
    total = weights.new_ones(len(weights), 1) if total_is_one else weights.sum(1, keepdim=True)
    return c, weights @ (Y - c), weights @ (Y - c).square(), total


def variance_of_moments(c: Tensor, first: Tensor, second: Tensor, s: Tensor) -> Tensor:
    """E[Y²] − E[Y]² through the moments of centred targets Y − c, for the digits; s is E[1]."""
    return (second - first.square() + (1.0 - s) * (2.0 * c * first + c.square() * s)).clamp(min=0.0)


def bandwidths(weights: Tensor, Y: Tensor) -> Tensor:
    """Scott's rule (q, d) for proper weights; not below a share of the marginal standard deviations."""
    d, eps = Y.shape[1], torch.finfo(Y.dtype).eps
    effective = (1.0 / weights.square().sum(1)).clamp(1.0, len(Y))
    variance = variance_of_moments(*moments(weights, Y, total_is_one=True))
    scale = variance.sqrt() * effective[:, None] ** (-1.0 / (d + 4))
    largest = Y.abs().amax(0)
    # What is constant to half the digits: as narrow as they can show.
    constant = eps**0.5 * torch.where(largest > 0, largest, 1.0)
    return torch.maximum(scale, torch.maximum(LEAST_BANDWIDTH * Y.std(0, correction=0), constant))


def densities(weights: Tensor, Y: Tensor, points: Tensor, scale: Tensor, seed: int) -> Tensor:
    """max(0, Σ_i w_i N(y; y_i, scale²)) over its integral, (q, m), for proper weights (q, n) and scale (q, d)."""
    rows = []
    for w, h in zip(weights, scale, strict=True):
        clipped = (_normal(points, Y, h) @ w).clamp(min=0.0)
        rows.append(clipped / _mass(w, Y, h, seed))
    return torch.stack(rows)


def _normal(points: Tensor, Y: Tensor, h: Tensor) -> Tensor:
    squares = torch.cdist(points / h, Y / h, compute_mode="donot_use_mm_for_euclid_dist").square()
    return torch.exp(-0.5 * squares) / (h * (2.0 * math.pi) ** 0.5).prod()


def _mass(w: Tensor, Y: Tensor, h: Tensor, seed: int) -> Tensor:
    """∫ max(0, p), p = Σ_i w_i N(·; y_i, h²): the mean of max(0, p)/p₊ under p₊, of the positive weights alone."""
    positive = w.clamp(min=0.0)
    total = positive.sum()
    if not bool((w < 0).any()):
        return total
    uniform = torch.quasirandom.SobolEngine(Y.shape[1] + 1, scramble=True, seed=seed).draw(
        INTEGRATION_POINTS, dtype=torch.float64
    )
    order = Y[:, 0].argsort()
    first = uniform[:, 0].to(w).contiguous()
    index = torch.searchsorted(positive[order].cumsum(0) / total, first).clamp(max=len(Y) - 1)
    noise = torch.special.ndtri(uniform[:, 1:].clamp(1e-12, 1.0 - 1e-12)).to(w)
    normal = _normal(Y[order[index]] + h * noise, Y, h)
    above = normal @ positive
    share = ((normal @ w).clamp(min=0.0) / above.clamp(min=torch.finfo(w.dtype).tiny)).mean()
    return total * share.clamp(min=torch.finfo(w.dtype).eps)


def check_points(y: Any, d: int) -> np.ndarray:
    """Where a density is wanted: (m, d), or numbers if d is 1, or one point of d entries."""
    points = np.asarray(y, dtype=float)
    wanted = "(m,)" if d == 1 else f"(m, {d})"
    if points.ndim < 2 and (d == 1 or points.shape == (d,)):
        points = points.reshape(-1, d)
    if points.ndim != 2 or points.shape[1] != d or not np.isfinite(points).all():
        raise ValueError(
            f"y must be a finite array of shape {wanted} for targets with {d} outputs; got shape {np.shape(y)}"
            f"{'' if np.isfinite(points).all() else ', with NaN or infinity'}."
        )
    return points


def check_numbers(value: Any, name: str) -> np.ndarray:
    """One number or an array (m,) of them, none NaN."""
    numbers = np.atleast_1d(np.asarray(value, dtype=float))
    if numbers.ndim != 1 or np.isnan(numbers).any():
        raise ValueError(
            f"{name} must be a number or an array of shape (m,) without NaN; got "
            f"{'NaN' if numbers.ndim == 1 else f'shape {numbers.shape}'}."
        )
    return numbers
