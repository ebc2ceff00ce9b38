"""Embeddings of many samples: ridge regressions on features from sums over blocks, in memory or on Dask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap
from representer.functions import FeatureFunction, StoredFeatures
from representer.kernels import Kernel
from representer.linalg import row_blocks
from representer.operators import Representation
from representer.optimize.search import alpha_grid, best_alpha
from representer.samples import Block, HeldSamples, Samples, plain, rows
from representer.systems.base import whole_groups
from representer.systems.frames import CentredFeatures, Frame, frame_of
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
class EmbeddingBatches:
    """What ``partial_fit`` adds to, as arrays: sums of the samples so far, and a random part of the samples."""

    features: SummedFeatures
    sums: NormalSums
    held: HeldSamples
    n: int
    seed: int

    def joined(self, sums: NormalSums, block: Block) -> EmbeddingBatches:
        """The sums and the samples with those of a block of more."""
        held = self.held.joined(block, self.n, rows.HELD_ROWS, self.seed)
        return EmbeddingBatches(self.features, sums.map(plain), held, self.n + len(block), self.seed)

    def held_block(self) -> Block:
        """The samples that are held, as tensors."""
        stored = self.features.stored
        return self.held.block(stored.map.kernel, stored.representation)


# -- samples that are left out ----------------------------------------------------------------------------------------
def left_out_errors(ridge: NormalRidge, features: FeatureMap, held: Block, alpha: float, limit: int | None) -> Tensor:
    """y_i − f₋ᵢ(x_i) (n, p) for samples of the fit, each left out alone or with its group, which is complete."""
    errors = ridge.cross.new_empty(len(held), held.Y.shape[1])
    for some in whole_groups(held.groups, len(held), 4 * 8 * features.n_features, limit):
        block = held.rows(some.numpy())
        errors[some] = ridge.left_out_at(features(block.X), block, alpha)[0]
    return errors


def best_alpha_by_sums(ridge: NormalRidge, features: FeatureMap, held: Block, limit: int | None) -> tuple[float, float]:
    """The alpha of least leave-one-out error of the held samples, and the error: one eigendecomposition."""
    # Below the first alpha, the digits of the blocks are used up.
    largest = ridge.spectrum.values.sum() / ridge.sums.weight
    info = torch.finfo(features.dtype)
    alphas = alpha_grid((largest * info.eps ** (2 / 3)).clamp(min=info.tiny ** (1 / 2)))
    coordinates = ridge.cross.new_empty(len(held), features.n_features)
    for some in row_blocks(len(held), 3 * 8 * features.n_features, limit):
        coordinates[some] = ridge.coordinates(features(held.X[some]))
    return best_alpha(lambda alphas: ridge.leave_one_out(coordinates, held, alphas, limit), alphas, refine=True)
