"""Functions of explicit features: φ(·)ᵀΘ + b, with the features of an approximation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap, LandmarkFeatures, PositivePart
from representer.functions.base import FieldState, Function, Span, in_units
from representer.kernels import Kernel, Linear, unscaled
from representer.linalg import Cholesky, by_rows, row_blocks
from representer.operators import Representation, original, silent_repairs
from representer.samples import Data, as_scipy, count, evenly_spaced, plain, take


@dataclass(frozen=True)
class KernelMap(FeatureMap):
    """The explicit features of a kernel that has finitely many: no approximation."""

    kernel: Kernel
    size: int
    precision: torch.dtype

    @property
    def n_features(self) -> int:
        """The number of the kernel's features."""
        return self.size

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features."""
        return self.precision

    @property
    def state(self) -> int:
        """The number of features: nothing was drawn."""
        return self.size

    def __call__(self, X: Data) -> Tensor:
        features = self.kernel.features(X)
        assert features is not None  # as many as were counted
        return features


@dataclass(frozen=True)
class StoredFeatures(FieldState):
    """The feature map of a fitted learner as it is stored; the map itself is made when it is first asked for.

    Parameters
    ----------
    approximation : Approximation or None
        What made the features; None: the kernel has them itself.
    kernel : Kernel
        With numbers for all hyperparameters.
    drawn : array or data
        What was chosen or drawn: landmarks, frequencies, hash functions.
    representation : Representation
        How arrays become tensors.
    factor : array (m, r) or None
        The factor of the landmarks' Gram matrix, where functions are evaluated by the features: another number of
        threads would compute another one, and nearly dependent landmarks make much of its last digits.
    """

    approximation: Approximation | None
    kernel: Kernel
    drawn: Any
    representation: Representation
    factor: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        approximation: Approximation | None,
        features: FeatureMap,
        representation: Representation,
        *,
        factored: bool = False,
    ) -> StoredFeatures:
        """The features that an approximation has made; the map is at hand until it is stored.

        With ``factored``, the factor of landmarks is stored, too.
        """
        kernel, drawn = original(features.kernel), plain(features.state, copy=True)
        stored = cls(approximation, kernel, drawn, representation)
        vars(stored)["map"] = features
        return stored.factored() if factored else stored

    def factored(self) -> StoredFeatures:
        """The same features with the factor of landmarks, if there are some and it is all that makes them."""
        features = self.map
        if not isinstance(features, LandmarkFeatures) or features.basis is not None:
            return self
        stored = replace(self, factor=plain(features.factor.factor, copy=True))
        vars(stored)["map"] = features
        return stored

    @cached_property
    def map(self) -> FeatureMap:
        """The features as a function of prepared data."""
        kernel, how = self._adapted, self.representation
        if self.approximation is None:
            return KernelMap(kernel, self.drawn, how.dtype)
        if self.factor is not None:
            factor = how.tensor(self.factor.T).mT  # in columns, as LAPACK leaves it: solves round the same way
            triangular = len(factor) == factor.shape[1] and not bool(factor.triu(1).any())
            solver = Cholesky(factor, factor.new_zeros(())) if triangular else PositivePart(factor)
            return LandmarkFeatures(kernel, how.inputs(kernel, self.drawn), solver)
        with silent_repairs():  # the fit has said it
            return self.approximation.restore(kernel, self.drawn, lambda points: how.inputs(kernel, points))

    def span(self) -> Span:
        """The landmarks, or nothing where features are drawn, or the kernel's own."""
        points = None if self.landmarks is None else self.drawn
        return Span(self.kernel, points, self.representation)

    @property
    def feature_kernel(self) -> Kernel:
        """The kernel whose features these are."""
        return self.kernel

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """How many times larger than k the numbers are that cancel in it, at a few landmarks of vectors; else 1."""
        features = self.map
        if not isinstance(features, LandmarkFeatures) or self.kernel.domain != "vectors":
            return 1.0
        points = take(features.state, torch.from_numpy(evenly_spaced(count(features.state), limit)))
        with torch.no_grad():
            largest = features.kernel._gram(points, None).abs().amax().clamp(min=size)
            return float(features.kernel._magnitudes(points, points).amax() / largest) if bool(largest > 0) else 1.0

    @property
    def _adapted(self) -> Kernel:
        return self.representation.adapted(self.kernel, repair=False)

    @property
    def landmarks(self) -> Any:
        """The landmarks, or None where the approximation has none."""
        return as_scipy(self.drawn) if hasattr(self.map, "landmarks") else None

    def inputs(self, X: Data) -> Data:
        """Checked inputs as the map takes them."""
        return self.representation.inputs(self._adapted, X)


@dataclass(frozen=True)
class FeatureFunction(Function):
    """f = φ(·)ᵀΘ + b.

    Parameters
    ----------
    features : StoredFeatures
        φ.
    coefficients : array (m, p)
        Θ.
    intercept : array (p,), or None for zero
        b.
    """

    features: StoredFeatures
    coefficients: np.ndarray
    intercept: np.ndarray | None = None

    @cached_property
    def loaded(self) -> tuple[Tensor, Tensor, bool]:
        """Coefficients, constant, and whether the coefficients belong to the columns that span the features."""
        how = self.features.representation
        theta = how.tensor(self.coefficients)
        b = theta.new_zeros(()) if self.intercept is None else how.tensor(self.intercept)
        by_columns = not self.features.map.loses_digits(theta, b)
        return self.features.map.coefficients(theta) if by_columns else theta, b, by_columns

    @property
    def _basis(self) -> Callable[[Data], Tensor]:
        """What the loaded coefficients belong to, as a function of prepared inputs: the features, or their columns."""
        return self.features.map.columns if self.loaded[2] else self.features.map

    @property
    def dual_coef(self) -> np.ndarray:
        """The coefficients of the columns that span the features: of the landmarks, where there are some."""
        theta = self.features.representation.tensor(self.coefficients)
        return plain(self.features.map.coefficients(theta))

    def __call__(self, X: Data) -> Tensor:
        """f(x_i), (n, p), in blocks of rows."""
        X = self.features.inputs(X)
        values, (coefficients, b, _) = self._basis, self.loaded
        with torch.no_grad():
            bytes_per_row = 2 * len(coefficients) * coefficients.element_size()
            return by_rows(lambda rows: values(X[rows]) @ coefficients, count(X), bytes_per_row).add_(b)

    def spans(self) -> list[Span]:
        """The landmarks, or nothing where features are drawn, or the kernel's own."""
        return [self.features.span()]

    def norm(self) -> float:
        """‖f‖ = ‖Θ‖: the features are orthonormal functions."""
        return float(np.linalg.norm(self.coefficients))

    def contributions(self, X: Data) -> Tensor:
        """The terms (n, m, p) of the landmarks, or of the features where there are none."""
        values, coefficients = self._basis, self.loaded[0]
        X, (m, p) = self.features.inputs(X), coefficients.shape
        terms = coefficients.new_empty(count(X), m, p)
        with torch.no_grad():
            for rows in row_blocks(count(X), 2 * m * p * coefficients.element_size()):
                terms[rows] = values(X[rows])[:, :, None] * coefficients
        return terms

    @property
    def terms_of(self) -> Data:
        """The landmarks, where f is a sum over them."""
        return self.features.landmarks if self.loaded[2] else None

    def magnitudes(self, X: Data) -> Tensor:
        """The sums (n, p) of the absolute values of the terms, with what the solve that makes features may round."""
        coefficients, _, by_columns = self.loaded
        with torch.no_grad():
            if isinstance(full := self.features.map, LandmarkFeatures) and full.basis is not None and not by_columns:
                return full.magnitudes(self.features.inputs(X)) @ coefficients.abs()
            features = self._basis(self.features.inputs(X)).abs()
            return (features if by_columns else self._grown(features)) @ coefficients.abs()

    def _grown(self, features: Tensor) -> Tensor:
        """|L⁻¹||L| times features φ = L⁻¹k(Z, x): their rounding is relative to it, where landmarks nearly depend."""
        full = self.features.map
        if not (isinstance(full, LandmarkFeatures) and isinstance(full.factor, Cholesky)):
            return features
        L = full.factor.factor
        inverse = torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype, device=L.device), upper=False)
        return features @ (inverse.abs() @ L.abs()).mT

    @property
    def feature_kernel(self) -> Kernel:
        """The kernel of the features φ."""
        return self.features.kernel

    @property
    def is_affine(self) -> bool:
        """Are the features the points themselves beside a constant? Then the fit has centred them."""
        own = self.features.approximation is None and isinstance(unscaled(self.features.kernel)[0], Linear)
        return own and self.intercept is not None

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """That of any function; of landmarks that are objects from k(Z, Z) = L Lᵀ, without their kernel."""
        full = self.features.map
        if not isinstance(full, LandmarkFeatures) or full.kernel.domain == "vectors":
            return super().cancellation(limit, size)
        (coefficients, b, by_columns), L = self.loaded, full.factor.factor
        features = L @ L.mT if by_columns else L
        grown = features.abs() if by_columns else self._grown(L.abs())
        terms = (grown @ coefficients.abs()).amax(0)
        values = (features @ coefficients + b).abs().amax(0).clamp(min=size)
        return float(torch.where(terms == 0, 1.0, terms / values).max())

    def own_points(self, limit: int) -> Data:
        """Some of the landmarks, where there are some and they are vectors."""
        if not isinstance(self.features.map, LandmarkFeatures) or self.features.kernel.domain != "vectors":
            return None
        return take(self.features.drawn, torch.from_numpy(evenly_spaced(count(self.features.drawn), limit)))

    def in_units(self, unit: float) -> Self:
        """The function unit·f, whose coefficients are those of f times the unit."""
        b = None if self.intercept is None else in_units(unit, self.intercept)
        return replace(self, coefficients=in_units(unit, self.coefficients), intercept=b)

    def part(self, columns: int, shift: np.ndarray) -> Self:
        """The first outputs, plus a constant."""
        b = 0.0 if self.intercept is None else self.intercept[:columns]
        return replace(self, coefficients=self.coefficients[:, :columns], intercept=b + shift)


class Trusting(Protocol):
    """How much a function counts at an input: t(x) between 0 and 1."""

    def __call__(self, X: Data) -> Tensor:
        """The trust t(x) of each of q inputs, (q, 1)."""

    def faded_network(self, network: torch.nn.Module, far: Tensor) -> torch.nn.Module:
        """t f + (1 − t) c of a network f and a constant c (p,)."""


@dataclass(frozen=True, kw_only=True)
class FadingFeatures(FeatureFunction):
    """t f + (1 − t) c of a function f of features: a constant c where an input is not trusted.

    Parameters
    ----------
    trust : Trusting
        t.
    far : array (p,)
        c.
    """

    trust: Trusting
    far: np.ndarray

    def __call__(self, X: Data) -> Tensor:
        """t f(x_i) + (1 − t) c, (n, p)."""
        values, t = super().__call__(X), self.trust(X)
        return t * values + (1.0 - t) * self.features.representation.tensor(self.far)

    def contributions(self, X: Data) -> Tensor:
        """The terms of f times t; what is missing to c is shared by all of them."""
        terms, t, b = super().contributions(X), self.trust(X)[:, :, None], self.loaded[1]
        rest = (self.features.representation.tensor(self.far) - b) / terms.shape[1]
        return t * terms + (1.0 - t) * rest

    def faded(self, network: Callable[[FeatureFunction], torch.nn.Module]) -> torch.nn.Module:
        """The network of f, which another function makes, faded."""
        alone = FeatureFunction(self.features, self.coefficients, self.intercept)
        return self.trust.faded_network(network(alone), self.features.representation.tensor(self.far))

    def in_units(self, unit: float) -> Self:
        """The function unit·f, which fades to unit·c."""
        return replace(super().in_units(unit), far=in_units(unit, self.far))

    def part(self, columns: int, shift: np.ndarray) -> Self:
        """The first outputs, plus a constant."""
        return replace(super().part(columns, shift), far=self.far[:columns] + shift)
