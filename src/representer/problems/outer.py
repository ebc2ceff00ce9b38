"""Outer functions of many samples: inner layers come from a random part, the outer function from sums over all."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import FeatureMap, LandmarkFeatures, Nystroem, landmark_features
from representer.data import plain
from representer.estimators._large_parts import (
    block_limit,
    choose_alpha_by_sums,
    leave_one_out,
    predictive_std,
)
from representer.functions import Composed, Expansion, FeatureFunction, StoredFeatures
from representer.operators import Decomposable
from representer.operators.adapted import silent_repairs
from representer.samples import rows as limits
from representer.samples.in_memory import Block, Samples
from representer.systems.frames import CentredFeatures, Frame, frame_of
from representer.systems.sums import NormalRidge, NormalStep, NormalSums


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
    """The samples that a deep machine sees, and all of them if these are more.

    Parameters
    ----------
    X : checked inputs
        The samples that are seen.
    rows : array of int
        Their numbers among all.
    seed : int
        The seed with which they were drawn.
    source : Samples, optional
        All samples, if the outer function is to be fitted to them.
    """

    X: Any
    rows: np.ndarray
    seed: int = 0
    source: Samples | None = None


@dataclass(frozen=True)
class SummedSpread:
    """Standard deviations of new observations at images, from sums over all samples.

    Parameters
    ----------
    features : StoredFeatures
        The features of images.
    sums : NormalSums
        The sums, of NumPy arrays.
    frame : Frame, optional
        The frame of the features beside a constant, of NumPy arrays.
    images, targets : array
        Samples that the inner layers have not seen.
    alpha : float
    """

    features: StoredFeatures
    sums: NormalSums
    frame: Frame | None
    images: np.ndarray
    targets: np.ndarray
    alpha: float

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    @cached_property
    def _made(self) -> tuple[NormalRidge, Frame | None, Tensor]:
        tensor = self.features.representation.tensor
        frame = None if self.frame is None else self.frame.map(tensor)
        ridge = _outer_ridge(self.sums.map(torch.from_numpy), frame)
        seen = self.features.map if frame is None else CentredFeatures(self.features.map, frame)
        held = Block(tensor(self.images), tensor(self.targets))
        residuals, variances = leave_one_out(ridge, seen, held, self.alpha)
        return ridge, frame, (residuals**2 / variances).mean(0)

    def __call__(self, Z: Tensor) -> Tensor:
        """Standard deviations (m, p) at the images Z."""
        ridge, frame, scale = self._made
        return predictive_std(ridge, self.features.map, Z, self.alpha, scale, frame=frame)


@dataclass(frozen=True)
class OuterFit:
    """The outer function of all samples, and how it was found."""

    function: Composed
    alpha: float
    criterion: float | None  # None where alpha was given
    value: float  # mean loss + alpha·‖f‖²
    left_out: Tensor  # f₋ᵢ + b₋ᵢ at samples that the inner layers have not seen
    targets: np.ndarray  # of these
    spread: SummedSpread


def fit_outer(
    function: Composed, part: Part, alpha: float | None, *, intercept: bool, memory_limit: int | str | None
) -> OuterFit:
    """Fit the outer function once more, to all samples; alpha too, if it is None.

    Samples that the inner layers have not seen are left out one by one.
    """
    source = part.source
    assert source is not None
    outer = function.outer_expansion()
    assert (
        isinstance(outer.kernel, Decomposable) and outer.representation is not None
    )  # as an approximation needs
    with torch.no_grad(), silent_repairs():  # the fit has said it
        features: LandmarkFeatures = landmark_features(outer.kernel.kernel, outer.loaded.anchors)
        more = source.random_rows(len(part.rows) + limits.HELD_ROWS, part.seed)
        block = source.rows(np.setdiff1d(more, part.rows))
        inner = tuple(f.loaded for f in function.inner)
        held = replace(block, X=_image(inner, block.X))
        frame = frame_of(features, held.X) if intercept else None
        seen = features if frame is None else CentredFeatures(features, frame)
        limit = block_limit(memory_limit, features.n_features, block.Y.shape[1], held=len(held))
        sums = source.total(NormalStep(ImageFeatures(inner, seen)), limit=limit)
        ridge = _outer_ridge(sums, frame)
        criterion = None
        if alpha is None:
            alpha, criterion = choose_alpha_by_sums(ridge, None, "loo", seen, held, limit)
        theta = ridge.coefficients(alpha)
        residuals, _ = leave_one_out(ridge, seen, held, alpha, limit)
    stored = StoredFeatures.of(Nystroem(features.n_features), features, outer.representation)
    b = plain(ridge.intercepts(theta).to(features.dtype))
    fitted = FeatureFunction(stored, plain(theta.to(features.dtype)), b)
    norm = float(theta.square().sum())
    spread = SummedSpread(
        stored,
        sums.map(plain),
        None if frame is None else frame.map(plain),
        plain(held.X),
        plain(held.Y),
        alpha,
    )
    return OuterFit(
        replace(function, outer=fitted),
        alpha,
        criterion,
        ridge.training_error(alpha) + alpha * norm,
        held.Y.double() - residuals,
        plain(held.Y),
        spread,
    )


def _image(inner: tuple[Expansion, ...], X: Any) -> Any:
    for f in inner:
        X = f(X)
    return X


def _outer_ridge(sums: NormalSums, frame: Frame | None) -> NormalRidge:
    """The normal equations; beside a constant there is a frame."""
    return NormalRidge(sums, torch.ones_like(sums.target_sum), intercept=frame is not None, frame=frame)
