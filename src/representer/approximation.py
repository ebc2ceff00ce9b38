"""Approximations of a kernel by finitely many features, for data too large for an n × n matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from representer.data import count, same_features, take
from representer.kernels.base import Kernel
from representer.linalg import (
    Cholesky,
    NotPositiveDefiniteError,
    eigh,
    factorize,
    pivoted_cholesky,
    repair_gram,
    spectrum_of_factor,
)
from representer.memory import row_blocks
from representer.parameters import is_count
from representer.values import Value


@dataclass(frozen=True)
class PositivePart:
    """The factor B = U diag(√e) (m × r) of an indefinite matrix's positive part, with the solves of a Cholesky one."""

    factor: Tensor

    def back_solve(self, right: Tensor) -> Tensor:
        """U diag(1/√e) C."""
        return (self.factor / (self.factor**2).sum(0)) @ right

    def half_solve(self, right: Tensor) -> Tensor:
        """diag(1/√e) Uᵀ C: the part outside of the positive one is left out."""
        return (self.factor / (self.factor**2).sum(0)).mT @ right


@dataclass(frozen=True)
class LandmarkFeatures:
    """φ(x) = L⁻¹ k(Z, x) with L Lᵀ = k(Z, Z): k(x, y) ≈ φ(x)ᵀφ(y), exactly so when x or y is a landmark.

    Examples
    --------
    >>> from representer.approximation import landmark_features
    >>> from representer.kernels import Linear
    >>> features = landmark_features(Linear(), Linear().prepare([[2.0]]))
    >>> features([[3.0], [-1.0]]).tolist()
    [[3.0], [-1.0]]
    """

    kernel: Kernel
    landmarks: Any
    factor: Cholesky | PositivePart

    def __call__(self, X: Any) -> Tensor:
        """Features (n, m), filled block by block."""
        X = self.kernel.prepare(X)
        if isinstance(X, Tensor) and self.kernel.domain == "vectors":
            X, _ = same_features(X.to(self.factor.factor), self.landmarks)
        m, r = self.factor.factor.shape
        features = torch.empty(count(X), r, dtype=self.factor.factor.dtype)
        for rows in row_blocks(len(features), m * features.element_size()):
            features[rows] = self.factor.half_solve(self.kernel._gram(X[rows], self.landmarks).mT).mT
        return features

    def coefficients(self, theta: Tensor) -> Tensor:
        """The C of φ(·)ᵀΘ = Σ_j k(·, z_j) c_j: a function of the features as an expansion in the landmarks."""
        return self.factor.back_solve(theta)


def landmark_features(kernel: Kernel, landmarks: Any) -> LandmarkFeatures:
    """The features of given landmarks (prepared data); of an indefinite k(Z, Z), those of its positive part."""
    name = "The Gram matrix of the landmarks"
    try:
        factor = factorize(lambda: kernel._gram(landmarks, None), name=name)
        return LandmarkFeatures(kernel, landmarks, factor)
    except NotPositiveDefiniteError:
        repaired = repair_gram(kernel._gram(landmarks, None), name=name)
    return LandmarkFeatures(kernel, landmarks, PositivePart(spectrum_of_factor(eigh(repaired).root()).root()))


class Nystroem(Value):
    """Replace k(x, y) by k(x, Z) k(Z, Z)⁻¹ k(Z, y) for m landmarks Z: memory n·m instead of n².

    Parameters
    ----------
    n_components : int
        The number of landmarks m; at n it is exact.
    sampling : {"uniform", "pivots"}
        Landmarks drawn at random, or chosen one by one where the kernel is matched worst so far (pivoted Cholesky).

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import Nystroem
    >>> from representer.kernels import Gaussian
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> features = Nystroem(20, sampling="pivots").features(Gaussian(0.5), X, seed=0)
    >>> B = features(X)
    >>> bool((B @ B.T - Gaussian(0.5)(X)).abs().max() < 1e-6)
    True
    """

    def __init__(self, n_components: int = 1000, sampling: Literal["uniform", "pivots"] = "uniform"):
        self.n_components = n_components
        self.sampling = sampling

    def features(self, kernel: Kernel, X: Any, *, seed: int) -> LandmarkFeatures:
        """Choose landmarks among X and factor their Gram matrix; the kernel has numbers for all hyperparameters."""
        if kernel.domain == "gram":
            raise ValueError(
                "Nystroem needs a kernel that can be evaluated; a precomputed Gram matrix is already n × n."
            )
        X = kernel.prepare(X)
        chosen = self._choose(kernel, X, seed)
        return landmark_features(kernel, take(X, chosen))

    def _choose(self, kernel: Kernel, X: Any, seed: int) -> Tensor:
        n = count(X)
        if not is_count(self.n_components) or self.n_components > n:
            raise ValueError(
                f"n_components of Nystroem must be an integer from 1 to the number of samples, {n}; got "
                f"{self.n_components!r}. Use approximation=None for an exact fit."
            )
        if self.sampling == "uniform":
            generator = torch.Generator().manual_seed(seed)
            return torch.randperm(n, generator=generator)[: self.n_components].sort().values
        if self.sampling == "pivots":

            def column(index: int) -> Tensor:
                return kernel._gram(X, X[index : index + 1])[:, 0]

            return pivoted_cholesky(column, diagonal=kernel._diag(X), max_rank=self.n_components)[1]
        raise ValueError(f"sampling of Nystroem must be 'uniform' or 'pivots'; got {self.sampling!r}.")
