"""Embeddings of many samples: ridge regressions on features from sums over blocks, in memory or on Dask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap
from representer.data import plain
from representer.functions import FeatureFunction, StoredFeatures
from representer.kernels import Kernel
from representer.linalg.memory import BLOCK_BYTES, as_bytes, require, row_blocks
from representer.objectives.operator_valued import alpha_grid
from representer.operators.adapted import Representation
from representer.optimize.search import best_alpha
from representer.samples import rows
from representer.samples.held import HeldSamples
from representer.samples.in_memory import Block, Samples
from representer.systems.frames import CentredFeatures, Frame, frame_of
from representer.systems.groups import Groups
from representer.systems.sums import NormalRidge, NormalSums


@dataclass(frozen=True)
class SummedFeatures:
    """The features of a fit by sums, and the frame in which they are summed beside a constant.

    Parameters
    ----------
    stored : StoredFeatures
        φ.
    frame : Frame of arrays, or None where there is no constant
    """

    stored: StoredFeatures
    frame: Frame | None

    @classmethod
    def choose(
        cls,
        approximation: Approximation,
        kernel: Kernel,
        samples: Samples,
        held: Any,
        representation: Representation,
        *,
        intercept: bool,
        seed: int,
    ) -> SummedFeatures:
        """The features of a kernel with numbers; near the mean of those of the ``held`` inputs sums count from."""
        X = samples.rows(approximation.rows(samples.n, seed)).X
        features = approximation.choose(kernel, X, seed)
        stored = StoredFeatures.of(approximation, features, representation)
        return cls(stored, frame_of(features, held).map(plain) if intercept else None)

    @property
    def _loaded(self) -> Frame | None:
        return None if self.frame is None else self.frame.map(self.stored.representation.tensor)

    @property
    def map(self) -> FeatureMap:
        """The features as they are summed."""
        return self.stored.map if self._loaded is None else CentredFeatures(self.stored.map, self._loaded)

    def ridge(self, sums: NormalSums) -> NormalRidge:
        """The regression of targets that have nothing in common, by their sums."""
        ones = torch.ones_like(sums.target_sum)
        return NormalRidge(sums, ones, intercept=self.frame is not None, frame=self._loaded)

    def function(self, ridge: NormalRidge, alpha: float) -> FeatureFunction:
        """The fit with this alpha, in the precision of the features."""
        theta = ridge.coefficients(alpha)
        dtype = self.stored.map.dtype
        arrays = plain(theta.to(dtype), copy=True), plain(ridge.intercepts(theta).to(dtype), copy=True)
        return FeatureFunction(self.stored, *arrays)


@dataclass(frozen=True)
class Batches:
    """What ``partial_fit`` adds to, as arrays: sums of the samples so far, and a random part of the samples."""

    features: SummedFeatures
    sums: NormalSums
    held: HeldSamples
    n: int
    seed: int

    def joined(self, sums: NormalSums, block: Block) -> Batches:
        """The sums and the samples with those of a block of more."""
        held = self.held.joined(block, self.n, rows.HELD_ROWS, self.seed)
        return Batches(self.features, sums.map(plain), held, self.n + len(block), self.seed)

    def held_block(self) -> Block:
        """The samples that are held, as tensors."""
        stored = self.features.stored
        return self.held.block(stored.map.kernel, stored.representation)


def block_limit(memory_limit: Any, m: int, p: int, *, held: int = 0) -> int | None:
    """What is left of a memory limit for blocks, when the sums of m features and p targets have taken their part.

    ``held`` is how many samples are left out one by one: their coordinates are kept while alpha is chosen.
    """
    limit = as_bytes(memory_limit)
    # The factor of the features, S, its eigenvectors in the place of a copy, and twice for LAPACK to work in; then
    # twice the coefficients, the targets' squares, and the coordinates.
    sums = 8 * (5 * m * m + 2 * m * p + p * p + held * m)
    if limit is None:
        require(sums + BLOCK_BYTES, what=f"A fit with {m} features", advice="Use fewer of them.")
        return None
    least = 64 * 3 * 8 * m
    if limit < sums + least:
        raise MemoryError(
            f"memory_limit={memory_limit!r} leaves no room for a fit with {m} features, which needs "
            f"{(sums + least) / 1e9:.3g} GB beside the data. Use fewer features, or a higher limit."
        )
    return limit - sums


# -- samples that are left out ----------------------------------------------------------------------------------------
def left_out_errors(
    ridge: NormalRidge, features: FeatureMap, held: Block, alpha: float, limit: int | None
) -> Tensor:
    """y_i − f₋ᵢ(x_i) (n, p) for samples of the fit, each left out alone or with its group, which is complete."""
    if held.groups is not None:
        return _group_errors(ridge, _coordinates(ridge, features, held.X, limit), held, alpha)
    parts = []
    for some in row_blocks(len(held), 4 * 8 * features.n_features, limit):
        block = held.rows(np.arange(len(held))[some])
        parts.append(ridge.left_out_at(features(block.X), block, alpha)[0])
    return torch.cat(parts)


def _coordinates(ridge: NormalRidge, features: FeatureMap, X: Any, limit: int | None) -> Tensor:
    """The features of some samples in the eigenvectors of the sums, in blocks: there are no copies of all of them."""
    n = len(X)
    coordinates = ridge.cross.new_empty(n, features.n_features)
    for some in row_blocks(n, 3 * 8 * features.n_features, limit):
        coordinates[some] = ridge.coordinates(features(X[some]))
    return coordinates


def _group_errors(ridge: NormalRidge, coordinates: Tensor, held: Block, alpha: float) -> Tensor:
    """The errors of a group S are (I − H_SS diag(w_S))⁻¹ r_S, with the leverages H and residuals r of the whole fit."""
    assert held.groups is not None
    filters = 1.0 / (ridge.spectrum.values + alpha * ridge.sums.weight)
    inside = ridge.spectrum.vectors.mT @ ridge.cross
    residuals = held.Y.double() - ridge.target_mean - coordinates @ (inside * filters[:, None])
    half = coordinates * filters.sqrt()
    w = residuals.new_ones(len(held)) if held.weights is None else held.weights.double()
    constant = 1.0 / ridge.sums.weight if ridge.intercept else 0.0
    groups, parts = Groups.of(held.groups.cpu()), []
    for members, r in zip(groups.members, groups.parts(residuals), strict=True):
        leverage = half[members] @ half[members].mT + constant
        rest = torch.eye(members.shape[1]).to(leverage) - leverage * w[members][:, None, :]
        parts.append(torch.linalg.solve(rest, r))
    return groups.joined(parts, residuals)


def best_alpha_by_sums(
    ridge: NormalRidge, features: FeatureMap, held: Block, limit: int | None
) -> tuple[float, float]:
    """The alpha of least leave-one-out error of the held samples, and the error: one eigendecomposition."""
    # Below the first alpha, the digits of the blocks are used up.
    largest = ridge.spectrum.values.sum() / ridge.sums.weight
    info = torch.finfo(features.dtype)
    alphas = alpha_grid((largest * info.eps ** (2 / 3)).clamp(min=info.tiny ** (1 / 2)))
    coordinates = _coordinates(ridge, features, held.X, limit)

    def errors(alphas: Tensor) -> Tensor:
        if held.groups is None:
            return ridge.leave_one_out(coordinates, held, alphas, limit)
        w = coordinates.new_ones(len(held)) if held.weights is None else held.weights.double()
        means = [_group_errors(ridge, coordinates, held, float(a)).square().sum(1) @ w for a in alphas]
        return torch.stack(means) / w.sum()

    return best_alpha(errors, alphas, refine=True)
