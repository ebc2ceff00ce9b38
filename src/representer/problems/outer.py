"""Outer functions of many samples: inner layers come from a random part, the outer function from sums over all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import FeatureMap, Nystroem, landmark_features
from representer.functions import Composed, Expansion, FeatureFunction, StoredFeatures
from representer.operators import Decomposable, Identity, silent_repairs
from representer.optimize import system_alpha
from representer.samples import Data, HeldSamples, Samples, plain
from representer.samples import rows as limits
from representer.systems.ridge import SummedSystem, summed_system
from representer.systems.sums import NormalRidge, NormalStep


@dataclass(frozen=True)
class ImageFeatures(FeatureMap):
    """Features of the outer kernel, of images under the inner layers."""

    inner: tuple[Expansion, ...]
    outer: FeatureMap

    @property
    def kernel(self) -> Any:  # type: ignore[override]
        """The kernel of the outer function."""
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

    def __call__(self, X: Data) -> Tensor:
        for function in self.inner:
            X = function(X)
        return self.outer(X)


@dataclass(frozen=True)
class OuterFit:
    """The outer function of all samples, and how it was found."""

    function: Composed
    system: SummedSystem  # of features of images; its held samples are some that the inner layers have not seen
    criterion: float | None  # None where alpha was given
    value: float  # mean loss + alpha·‖f‖²

    def left_out(self) -> Tensor:
        """The predictions f₋ᵢ + b₋ᵢ for the held samples."""
        return replace(self.system, samples=self.system.held).left_out()


def fit_outer(
    function: Composed,
    samples: Samples,
    seen: np.ndarray,
    alpha: float | None,
    *,
    intercept: bool,
    memory_limit: int | str | None,
    seed: int,
) -> OuterFit:
    """Fit the outer function once more, to all samples; alpha too, if it is None, by leave-one-out errors of samples
    that are not among those which the inner layers have seen."""
    outer = function.outer_expansion()
    assert isinstance(outer.kernel, Decomposable) and outer.representation is not None  # as an approximation needs
    with torch.no_grad(), silent_repairs():  # the fit has said it
        features = landmark_features(outer.kernel.kernel, outer.loaded.anchors)
        stored = StoredFeatures.of(Nystroem(features.n_features), features, outer.representation)
        rows = np.setdiff1d(samples.random_rows(len(seen) + limits.HELD_ROWS, seed), seen)
        inner = tuple(f.loaded for f in function.inner)
        block = samples.rows(rows)
        sample = replace(block, X=_image(inner, block.X))
        system = summed_system(
            samples,
            stored,
            HeldSamples.of(sample, rows, seed),
            sample,
            operator=Identity(),
            intercept=intercept,
            memory_limit=memory_limit,
            step=lambda features: NormalStep(ImageFeatures(inner, features)),
        ).settled(system_alpha if alpha is None else alpha)
        theta, b = system.coefficients(), system.intercept()
    constant = np.zeros(theta.shape[1]) if b is None else plain(b.to(features.dtype))
    fitted = FeatureFunction(stored, plain(theta.to(features.dtype)), constant)
    assert isinstance(system.ridge, NormalRidge)
    value = system.ridge.training_error(system.alpha) + system.alpha * float(theta.square().sum())
    return OuterFit(replace(function, outer=fitted), system, system.value, value)


def _image(inner: tuple[Expansion, ...], X: Data) -> Any:
    for f in inner:
        X = f(X)
    return X
