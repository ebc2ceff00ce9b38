"""Parts of a ridge regression on features: the samples it looks at more than once, its memory, its alpha."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import FeatureMap, LandmarkFeatures, landmark_features
from representer.data import count, take
from representer.estimators._ridge import RidgeProblem
from representer.linalg.memory import room_beside_sums, row_blocks
from representer.objectives.operator_valued import Criterion, alpha_grid, log_spaced
from representer.samples.held import HeldSamples as HeldSamples
from representer.samples.held import chosen_of_both as chosen_of_both
from representer.samples.in_memory import Block, Samples
from representer.samples.rows import HELD_ROWS, PILOT_LANDMARKS, SEARCH_ROWS, evenly_spaced, sample_rows
from representer.samples.rows import HEURISTIC_ROWS as HEURISTIC_ROWS
from representer.systems.frames import Frame
from representer.systems.separate import SeparateRidge
from representer.systems.sums import NormalRidge, NormalStep


def search_problem(source: Samples, seed: int) -> RidgeProblem:
    """The samples that hyperparameters are learned on."""
    block = source.rows(sample_rows(source.n, SEARCH_ROWS, seed))
    weights = torch.ones(len(block), dtype=block.Y.dtype, device=block.Y.device)
    missing = block.Y.isnan()
    observed = ~missing if bool(missing.any()) else None
    problem = RidgeProblem(block.X, block.Y.masked_fill(missing, 0.0), weights, observed)
    if block.weights is None:
        return problem
    problem = replace(problem, weights=block.weights)
    return problem.rows((block.weights > 0).nonzero()[:, 0])


def block_limit(memory_limit: Any, m: int, p: int, *, matrices: int = 5, held: int = HELD_ROWS) -> int | None:
    """What is left of a memory limit for blocks, when the sums of m features have taken their part."""
    return room_beside_sums(memory_limit, m, p, held=held, matrices=matrices)


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
        largest = ridge.spectrum.values.sum() * operator.max() / ridge.sums.weight
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


def pilot_alpha(
    features: FeatureMap,
    source: Samples,
    sample: Block,
    outputs: tuple[Tensor, Tensor | None],
    candidates: np.ndarray | None,
    criterion: Criterion,
    memory_limit: Any,
) -> tuple[float, float]:
    """alpha by the normal equations of fewer landmarks, and its criterion; ``outputs`` are those of ``NormalRidge``."""
    if isinstance(features, LandmarkFeatures):
        some = evenly_spaced(count(features.landmarks), PILOT_LANDMARKS)
        features = landmark_features(features.kernel, take(features.landmarks, torch.from_numpy(some)))
    m, p, held = features.n_features, sample.Y.shape[1], len(sample)
    limit = block_limit(memory_limit, m, p, matrices=6, held=held)  # two factors
    ridge = NormalRidge(source.total(NormalStep(features), limit=limit), *outputs)
    return choose_alpha_by_sums(ridge, candidates, criterion, features, sample, limit)


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
        variance = alpha * ridge.sums.weight / (w[:, None] * rest)
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
        parts.append(((variance + alpha * ridge.sums.weight) * scale).sqrt())
    return torch.cat(parts)
