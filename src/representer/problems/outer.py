"""Deep kernel machines of many samples: inner layers from a random part, the outer function by sums over all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import FeatureMap, LandmarkFeatures
from representer.approximation.sampling import sample_rows
from representer.data import plain, take
from representer.problems.deep import Solution
from representer.estimators._large_parts import (
    HELD_ROWS,
    block_limit,
    choose_alpha_by_sums,
    leave_one_out,
    predictive_std,
)
from representer.estimators._lazy import is_flat, source_on_dask
from representer.estimators.validation import DTYPES, check_inputs, check_targets, seed_of
from representer.functions import Expansion
from representer.operators.adapted import takes_sparse
from representer.samples.in_memory import Block, InMemory, Samples
from representer.samples.on_dask import is_dask
from representer.systems.frames import CentredFeatures, Frame, frame_of
from representer.systems.sums import NormalRidge, NormalStep, NormalSums

# With an approximation, inner layers and hyperparameters are learned on so many random samples.
INNER_ROWS = 10_000


@dataclass(frozen=True)
class ImageFeatures(FeatureMap):
    """Features of the outer kernel, of images under the inner layers."""

    inner: tuple[Expansion, ...]
    outer: FeatureMap

    @property
    def kernel(self) -> Any:  # type: ignore[override]
        """The outer one."""
        return self.outer.kernel

    @property
    def n_features(self) -> int:
        """Of the outer features."""
        return self.outer.n_features

    @property
    def dtype(self) -> torch.dtype:
        """Of the outer features."""
        return self.outer.dtype

    @property
    def state(self) -> Any:
        """The landmarks, which are images."""
        return self.outer.state

    def __call__(self, X: Any) -> Tensor:
        for function in self.inner:
            X = function(X)
        return self.outer(X)


@dataclass(frozen=True)
class Part:
    """The samples that a deep machine sees, and all of them if these are more."""

    X: Any
    Y: np.ndarray
    rows: np.ndarray
    seed: int  # of the draw
    source: Samples | None = None


def _refuse_too_many_landmarks(learner: Any, n: int) -> None:
    """More than all samples; inner fits, which see fewer, take as many as there are."""
    if learner.approximation is not None:
        learner.approximation.size(n)


def part_on_dask(learner: Any, kernel: Any, X: Any, Y: Any) -> Part:
    """Of samples in Dask collections, with numbers as targets."""
    source = source_on_dask(learner, kernel, X, Y, dtype=DTYPES[learner.dtype])
    _refuse_too_many_landmarks(learner, source.n)
    seed = seed_of(learner.random_state)
    rows = sample_rows(source.n, INNER_ROWS, seed)
    block = source.rows(rows)
    return Part(plain(block.X), plain(block.Y), rows, seed, source if source.n > len(rows) else None)


def part_in_memory(learner: Any, kernel: Any, X: Any, Y: np.ndarray) -> Part:
    """Of checked samples: all of them, unless an approximation meets too many."""
    _refuse_too_many_landmarks(learner, len(X))
    if learner.approximation is None or len(X) <= INNER_ROWS:
        return Part(X, Y, np.arange(len(X)), 0)
    seed = seed_of(learner.random_state)
    rows = sample_rows(len(X), INNER_ROWS, seed)
    learner._dtype, learner._sparse = DTYPES[learner.dtype], hasattr(X, "toarray")
    source = InMemory(Block(learner._prepared(kernel, X), learner._tensor(Y)))
    return Part(take(X, torch.from_numpy(rows)), Y[rows], rows, seed, source)


def regression_part(learner: Any, kernel: Any, X: Any, y: Any) -> Part:
    """Of samples with numbers as targets, checked."""
    if is_dask(X):
        learner._flat = is_flat(y)
        return part_on_dask(learner, kernel, X, y)
    X = check_inputs(learner, X, kernel.domain, reset=True, sparse=takes_sparse(kernel))
    targets, learner._flat = check_targets(y, len(X))
    if np.isnan(targets).any():
        raise ValueError(
            f"Input y contains NaN, first in row {int(np.argwhere(np.isnan(targets))[0][0])}. Leave those samples "
            "out, or use OperatorRidge, which takes missing targets."
        )
    return part_in_memory(learner, kernel, X, targets)


def autoencoder_part(learner: Any, kernel: Any, X: Any) -> Part:
    """Of samples that are their own targets, checked; batches see all of them."""
    if is_dask(X):
        return part_on_dask(learner, kernel, X, X)
    X = check_inputs(learner, X, kernel.domain, reset=True, sparse=takes_sparse(kernel))
    _refuse_too_many_landmarks(learner, len(X))
    if learner.batch_size is not None or kernel.domain == "gram":
        return Part(X, X, np.arange(len(X)), 0)
    if isinstance(X, np.ndarray) and kernel.domain == "vectors":
        return part_in_memory(learner, kernel, X, X)
    seed = seed_of(learner.random_state)
    rows = sample_rows(len(X), len(X) if learner.approximation is None else INNER_ROWS, seed)
    return Part(X if len(rows) == len(X) else take(X, torch.from_numpy(rows)), X, rows, seed)


@dataclass(frozen=True)
class OuterSums:
    """What the standard deviations of an outer function need: its sums, and samples whose images were not learned."""

    sums: NormalSums  # of NumPy arrays
    frame: Frame | None  # of the features, of NumPy arrays
    images: np.ndarray
    targets: np.ndarray


def fit_outer(learner: Any, part: Part, solution: Solution) -> tuple[Tensor, np.ndarray]:
    """The outer function once more, for all samples: its alpha too, if it is left to the learner.

    Samples that the inner layers have not seen are left out one by one; returned are f₋ᵢ + b₋ᵢ at them, and their
    targets.
    """
    source = part.source
    assert source is not None
    inner = tuple(learner._placed()[:-1])
    outer: LandmarkFeatures = learner._outer_features()
    with torch.no_grad():
        more = sample_rows(source.n, len(part.rows) + HELD_ROWS, part.seed)
        block = source.rows(np.setdiff1d(more, part.rows))
        held = Block(learner._image(block.X), block.Y)
        frame = frame_of(outer, held.X) if learner.fit_intercept else None
        seen = outer if frame is None else CentredFeatures(outer, frame)
        limit = block_limit(learner.memory_limit, outer.n_features, block.Y.shape[1], held=len(held))
        sums = source.total(NormalStep(ImageFeatures(inner, seen)), limit=limit)
        ridge = _outer_ridge(sums, frame)
        if isinstance(learner.alpha, str):
            found = choose_alpha_by_sums(ridge, None, "loo", seen, held, limit)
            learner.alpha_, learner.criterion_value_ = found
        theta = ridge.coefficients(learner.alpha_)
        learner._keep_outer(theta.to(outer.dtype), ridge.intercepts(theta).to(outer.dtype))
        norm = float(theta.square().sum())
        learner.layer_norms_[-1] = norm**0.5
        penalty = solution.problem.penalty(solution.point[None], solution.problem.composition).item()
        learner.objective_value_ = ridge.training_error(learner.alpha_) + learner.alpha_ * norm + penalty
        kept = None if frame is None else frame.map(plain)
        learner._outer_sums = OuterSums(sums.map(plain), kept, plain(held.X), plain(held.Y))
        residuals, _ = leave_one_out(ridge, seen, held, learner.alpha_, limit)
        return held.Y.double() - residuals, plain(held.Y)


def _outer_ridge(sums: NormalSums, frame: Frame | None) -> NormalRidge:
    """Beside a constant there is a frame."""
    return NormalRidge(sums, torch.ones_like(sums.target_sum), intercept=frame is not None, frame=frame)


class SummedSpread:
    """Standard deviations of new observations at images, as ``PredictiveSpread`` gives them, from sums."""

    def __init__(self, learner: Any):
        known: OuterSums = learner._outer_sums
        self.features: LandmarkFeatures = learner._outer_features()
        self.frame = None if known.frame is None else known.frame.map(learner._tensor)
        self.ridge = _outer_ridge(known.sums.map(torch.from_numpy), self.frame)
        self.alpha = learner.alpha_
        held = Block(learner._tensor(known.images), learner._tensor(known.targets))
        seen = self.features if self.frame is None else CentredFeatures(self.features, self.frame)
        residuals, variances = leave_one_out(self.ridge, seen, held, self.alpha)
        self.scale = (residuals**2 / variances).mean(0)

    def __call__(self, images: Tensor) -> Tensor:
        return predictive_std(self.ridge, self.features, images, self.alpha, self.scale, frame=self.frame)
