"""Features beside a constant: where their sums count from, and a direction in which they hardly vary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from representer.approximation import FeatureMap, LandmarkFeatures
from representer.kernels import Kernel
from representer.samples import Data, count, take
from representer.samples import rows as limits

# A function of the features is nearly constant if its deviation is less than this share of its mean.
NEARLY_CONSTANT = 0.1


@dataclass(frozen=True)
class Frame:
    """ψ = Tᵀ(φ − a), the features as they are summed beside a constant; T is the identity, or has a column v.

    a is near the mean of φ, so that variances do not drown in the rounding of sums of squares. Where a wide kernel has
    functions vᵀφ that are nearly constant, S has hardly any curvature along v, and sums of φ know it to ε‖S‖ only. So
    one of the features is replaced by vᵀφ, whose sums are right to ε of its own small size.

    Parameters
    ----------
    middle : tensor or array (m,)
        a.
    direction : tensor or array (m,), or None for no such function
        v, with 1 at ``place``.
    place : int
        The feature that is replaced.
    """

    middle: Any
    direction: Any = None
    place: int = 0

    def map(self, change: Callable[[Any], Any]) -> Frame:
        """The frame with every array changed: tensors to NumPy and back."""
        direction = None if self.direction is None else change(self.direction)
        return replace(self, middle=change(self.middle), direction=direction)

    def __call__(self, phi: Tensor) -> Tensor:
        """ψ as rows, of φ as rows."""
        psi = phi - self.middle.to(phi)
        if self.direction is not None:
            psi[:, self.place] = psi @ self.direction.to(phi)
        return psi

    # -- T, the identity plus (v − e)eᵀ -------------------------------------------------------------------------------
    def _rest(self) -> Tensor:
        """The vector v − e: the direction with a zero in its place."""
        rest = self.direction.double().clone()
        rest[self.place] = 0.0
        return rest

    def turned(self, coefficients: Tensor) -> Tensor:
        """T η (m, p): the coefficients of φ, of those of ψ."""
        return torch.addr(coefficients, self._rest(), coefficients[self.place])

    def turned_back(self, coefficients: Tensor) -> Tensor:
        """T⁻¹ θ (m, p): the coefficients of ψ, of those of φ."""
        return torch.addr(coefficients, self._rest(), coefficients[self.place], alpha=-1.0)

    def rows_back(self, psi: Tensor) -> Tensor:
        """ψ T⁻¹ (n, m): features as rows, centred ones but in their own directions."""
        found = psi.clone()
        found[:, self.place] -= psi @ self._rest()
        return found

    def metric(self) -> Tensor:
        """The matrix TᵀT, with which ‖Tη‖² = ηᵀTᵀTη."""
        T = torch.eye(len(self.direction), dtype=torch.float64, device=self.direction.device)
        T[:, self.place] = self.direction
        return T.mT @ T


@dataclass(frozen=True)
class CentredFeatures(FeatureMap):
    """A feature map whose features are those of another one, seen in a frame."""

    features: FeatureMap
    frame: Frame

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The kernel that the features are of."""
        return self.features.kernel

    @property
    def n_features(self) -> int:
        """The number of features, which a frame does not change."""
        return self.features.n_features

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features."""
        return self.features.dtype

    @property
    def state(self) -> Any:
        """The state of the features; the frame has none of its own."""
        return self.features.state

    def __call__(self, X: Data) -> Tensor:
        return self.frame(self.features(X))


def frame_of(features: FeatureMap, X: Data) -> Frame:
    """The frame of features, by some samples; the middle by the landmarks, which batches of any size share."""
    phi = features(take(X, torch.from_numpy(limits.evenly_spaced(count(X), limits.MIDDLE_ROWS))))
    if not isinstance(features, LandmarkFeatures):
        return Frame(phi.mean(0))
    frame = Frame(features.factor.factor.mean(0))
    if features.dtype != torch.float64:
        return frame
    direction, place = features.constant()
    values = phi @ direction
    if not bool(values.std(correction=0) < NEARLY_CONSTANT * values.mean().abs()):
        return frame
    return replace(frame, direction=direction, place=place)
