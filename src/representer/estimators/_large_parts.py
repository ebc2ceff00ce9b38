"""Parts of a ridge regression on features: the samples it looks at more than once, its memory, its alpha."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import FeatureMap
from representer.data import count
from representer.linalg.memory import row_blocks
from representer.objectives.operator_valued import Criterion, alpha_grid, log_spaced
from representer.samples.held import HeldSamples as HeldSamples
from representer.samples.held import chosen_of_both as chosen_of_both
from representer.samples.in_memory import Block
from representer.samples.rows import HELD_ROWS as HELD_ROWS
from representer.samples.rows import HEURISTIC_ROWS as HEURISTIC_ROWS
from representer.samples.rows import SEARCH_ROWS as SEARCH_ROWS
from representer.systems.frames import Frame
from representer.systems.ridge import block_limit as block_limit
from representer.systems.sums import NormalRidge, SeparateRidge


def choose_alpha_by_sums(
    ridge: NormalRidge | SeparateRidge,
    candidates: np.ndarray | None,
    criterion: Criterion,
    features: FeatureMap,
    held: Block,
    limit: int | None = None,
) -> tuple[float, float]:
    """The candidate, or the positive number, of least criterion, and the criterion there: one eigendecomposition.

    Beside the coordinates of the held samples, about ``limit`` bytes are taken.
    """
    like = ridge.cross
    if candidates is not None:
        alphas = torch.as_tensor(candidates).to(like)
    else:
        # As for the exact fit: below it, the digits of the blocks are used up.
        operator = (
            ridge.scales if ridge.rotation is None else ridge.rotation**2 @ ridge.scales
        )  # its diagonal
        largest = ridge.spectrum.values.sum() * operator.max() / ridge.weight
        info = torch.finfo(features.dtype)
        alphas = alpha_grid((largest * info.eps ** (2 / 3)).clamp(min=info.tiny ** (1 / 2)))

    coordinates = None if criterion == "gcv" else _coordinates(ridge, features, held.X, limit)

    def errors(alphas: Tensor) -> Tensor:
        if coordinates is None:
            return ridge.generalised(alphas)
        return ridge.leave_one_out(coordinates, held, alphas, limit)

    best = _least(found := errors(alphas))
    if candidates is None:  # a finer grid between the neighbours
        low, high = alphas[max(best - 1, 0)], alphas[min(best + 1, len(alphas) - 1)]
        alphas = log_spaced(low, high, len(alphas))
        best = _least(found := errors(alphas))
    return float(alphas[best]), float(found[best])


def _coordinates(
    ridge: NormalRidge | SeparateRidge, features: FeatureMap, X: Any, limit: int | None
) -> Tensor:
    """Those of some samples, in blocks: there are no copies of all of them."""
    found = ridge.cross.new_empty(count(X), features.n_features)
    for rows in row_blocks(count(X), 3 * 8 * features.n_features, limit):
        found[rows] = ridge.coordinates(features(X[rows]))
    return found


def _least(errors: Tensor) -> int:
    if not bool(torch.isfinite(errors).any()):
        raise ValueError("The criterion is not finite for any alpha; check the scale of X and y.")
    return int(torch.where(torch.isfinite(errors), errors, torch.inf).argmin())


def leave_one_out(
    ridge: NormalRidge | SeparateRidge,
    features: FeatureMap,
    block: Block,
    alpha: float,
    limit: int | None = None,
) -> tuple[Tensor, Tensor]:
    """y_i − f₋ᵢ(x_i), and its variance in units of the prior's scale, for samples of the fit; in blocks."""
    residuals, variances = [], []
    for rows in row_blocks(len(block), 4 * 8 * features.n_features, limit):
        part = block.rows(np.arange(len(block))[rows])
        found, rest = ridge.left_out_at(features(part.X), part, alpha)
        w = found.new_ones(len(part)) if part.weights is None else part.weights.double()
        variance = alpha * ridge.weight / (w[:, None] * rest)
        if ridge.rotation is not None:
            found, variance = found @ ridge.rotation.mT, variance @ (ridge.rotation**2).mT
        residuals.append(found)
        variances.append(variance)
    return torch.cat(residuals), torch.cat(variances)


def predictive_std(
    ridge: NormalRidge | SeparateRidge,
    features: FeatureMap,
    inputs: Any,
    alpha: float,
    scale: Tensor,
    operator: Tensor | float = 1.0,
    frame: Frame | None = None,
) -> Tensor:
    """The deviations of new observations; what the features miss of k(x, x), times the operator's diagonal, counts.

    ``frame`` is that of the sums, if they have one.
    """
    parts = []
    for rows in row_blocks(count(inputs), 3 * 8 * features.n_features):
        block = inputs[rows]
        phi = features(block)
        missed = (features.kernel._diag(block).double() - phi.double().square().sum(1)).clamp(min=0.0)
        variance = ridge.variance(phi if frame is None else frame(phi), alpha) + missed[:, None] * operator
        parts.append(((variance + alpha * ridge.weight) * scale).sqrt())
    return torch.cat(parts)
