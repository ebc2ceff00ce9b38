"""Ridge regression on features where some targets are missing: sums of their own for every output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from representer.approximation.base import FeatureMap
from representer.linalg import Spectrum
from representer.linalg.memory import row_blocks
from representer.samples.in_memory import Block, Step
from representer.systems.sums import NormalRidge, NormalSums, add_gram


@dataclass(frozen=True)
class SeparateSums:
    """The sums of each output over the samples that have it; ``weight`` is that of all samples."""

    weight: float
    parts: tuple[NormalSums, ...]

    def __add__(self, other: SeparateSums) -> SeparateSums:
        both = zip(self.parts, other.parts, strict=True)
        return SeparateSums(self.weight + other.weight, tuple(one + two for one, two in both))

    def map(self, change: Callable[[Any], Any]) -> SeparateSums:
        """With every array changed: tensors to NumPy and back."""
        return SeparateSums(self.weight, tuple(part.map(change) for part in self.parts))

    @property
    def cross(self) -> Any:
        """Σ w φyᵀ, (m, p)."""
        return torch.cat([torch.as_tensor(part.cross) for part in self.parts], 1)


@dataclass(frozen=True)
class SeparateStep(Step):
    """Adds the samples of a block to the sums; a target that is NaN does not count. Costs p·m² a sample."""

    features: FeatureMap

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """Columns, features, and those of one output."""
        return 4 * self.features.n_features * self.features.dtype.itemsize

    def __call__(self, block: Block, total: SeparateSums | None) -> SeparateSums:
        B, Y = self.features(block.X), block.Y.to(torch.float64)
        w = Y.new_ones(len(Y)) if block.weights is None else block.weights.double()
        if total is None:
            empty = (NormalSums.zeros(B.shape[1], 1, like=Y) for _ in range(Y.shape[1]))
            total = SeparateSums(0.0, tuple(empty))
        parts = []
        for part, y in zip(total.parts, Y.mT, strict=True):
            known = (~y.isnan() & (w > 0)).nonzero()[:, 0]
            root = w[known].sqrt()[:, None]
            rows, targets = B[known] * root.to(B), y[known, None] * root
            add_gram(part.gram, rows)
            part.cross.add_(rows.mT @ targets.to(rows))
            part.feature_sum.add_((rows.mT @ root.to(rows))[:, 0])
            part.squares.add_(targets.mT @ targets)
            part.target_sum.add_((root.mT @ targets)[0])
            parts.append(replace(part, n=part.n + len(known), weight=part.weight + float(w[known].sum())))
        return SeparateSums(total.weight + float(w.sum()), tuple(parts))


class SeparateRidge:
    """What ``NormalRidge`` is for complete targets, output by output; the operator is diagonal, diag(a).

    (a_j S_j + alpha Σ w) u_j = B_j, with the S_j of the samples that have output j, and the weight of all of them.

    Parameters
    ----------
    sums : SeparateSums
        Of tensors.
    scales : tensor (p,)
        The a_j.
    """

    rotation = None
    intercept = False

    def __init__(self, sums: SeparateSums, scales: Tensor):
        self.sums = sums
        self.scales = scales
        self.cross = sums.cross
        self.parts = [
            NormalRidge(replace(part, weight=sums.weight), scale[None])
            for part, scale in zip(sums.parts, scales, strict=True)
        ]

    @property
    def spectrum(self) -> Spectrum:
        """That of the output with the most samples."""
        return max(self.parts, key=lambda part: part.sums.n).spectrum

    def coefficients(self, alpha: float) -> Tensor:
        """U (m, p), with f(x) = φ(x)ᵀU A."""
        return torch.cat([part.coefficients(alpha) for part in self.parts], 1)

    def coordinates(self, features: Tensor) -> Tensor:
        """The features, of which every output has coordinates of its own."""
        return features.double()

    def left_out_at(self, features: Tensor, block: Block, alpha: float) -> tuple[Tensor, Tensor]:
        """As of ``NormalRidge``; NaN where there is no target."""
        found = [
            part.left_out_at(features, Block(block.X, y[:, None], block.weights), alpha)
            for part, y in zip(self.parts, block.Y.mT, strict=True)
        ]
        residuals, rest = zip(*found, strict=True)
        return torch.cat(residuals, 1), torch.cat(rest, 1)

    def leave_one_out(
        self, coordinates: Tensor, block: Block, alphas: Tensor, limit: int | None = None
    ) -> Tensor:
        """The mean squared leave-one-out errors of many alphas, over the known targets of some samples of the fit."""
        w = torch.ones(len(block), dtype=torch.float64) if block.weights is None else block.weights.double()
        errors = torch.zeros_like(alphas)
        for part, y in zip(self.parts, block.Y.double().mT, strict=True):
            all_known = (~y.isnan()).nonzero()[:, 0]
            for rows in row_blocks(len(all_known), 4 * 8 * coordinates.shape[1], limit):
                known = all_known[rows]
                some = Block(None, y[known, None], None if block.weights is None else block.weights[known])
                residuals, _ = part.left_out(part.coordinates(coordinates[known]), some, alphas)
                errors += torch.einsum("i,ija->a", w[known], residuals**2)
        return errors / w.sum()

    def generalised(self, alphas: Tensor) -> Tensor:
        """The generalised cross-validation errors of many alphas, from the sums alone."""
        return torch.stack([part.generalised(alphas) for part in self.parts]).sum(0)

    def variance(self, features: Tensor, alpha: float) -> Tensor:
        """The diagonal of the covariance of f at new points, (n, p)."""
        return torch.cat([part.variance(features, alpha) for part in self.parts], 1)
