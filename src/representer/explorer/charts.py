"""The map of samples, by codes, components, or kernel PCA of any kernel, and the way back from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from representer.estimators import OperatorRidge
from representer.kernels import Gaussian, Kernel
from representer.linalg import row_blocks
from representer.operators import Representation
from representer.samples import Data, count, evenly_spaced, plain, take

# Kernel PCA is exact up to this many samples; beyond, this many of them stand for all.
EXACT_ROWS = 1000
# The number of components of kernel PCA, and the share of the largest eigenvalue below which one is rounding.
COMPONENTS, LEAST_SHARE = 6, 1e-10
# The way back from kernel PCA, ridge regression of the inputs on the components, is fitted to this many samples.
INVERSE_ROWS = 500


@dataclass(frozen=True)
class Chart:
    """Places (n, c) of samples on a map, and functions from objects to places and back.

    Parameters
    ----------
    codes : ndarray of shape (n, c)
        The places of the samples.
    words : str
        The meaning of the axes.
    place : callable
        A function from new samples to their places.
    decode : callable
        A function from places to objects.
    back : str
        The meaning of these objects.
    """

    codes: np.ndarray
    words: str
    place: Callable[[Data], np.ndarray]
    decode: Callable[[np.ndarray], Data]
    back: str

    def along(self, component: int, start: np.ndarray | None, steps: int, span: float = 2.0) -> np.ndarray:
        """Places along one axis, up to ``span`` standard deviations from a start, or from the mean."""
        middle = self.codes.mean(0) if start is None else start
        places = np.repeat(middle[None], steps, axis=0)
        places[:, component] += np.linspace(-span, span, steps) * self.codes[:, component].std()
        return places

    def drawn(self, n: int, seed: int) -> np.ndarray:
        """Places drawn from a density, which is a normal distribution around each sample by Scott's rule."""
        rng = np.random.default_rng(seed)
        rows, c = self.codes.shape
        scale = rows ** (-1.0 / (c + 4.0))
        noise = rng.multivariate_normal(np.zeros(c), np.cov(self.codes.T).reshape(c, c), n, method="eigh")
        return self.codes[rng.integers(rows, size=n)] + scale * noise

    def grid(self, size: int) -> np.ndarray:
        """Places (size², c) of a grid over the first two axes, lowest row first, with other axes at their means."""
        low, high = self.codes.min(0), self.codes.max(0)
        places = np.repeat(self.codes.mean(0)[None], size * size, axis=0)
        x = np.linspace(low[0], high[0], size)
        places[:, 0] = np.tile(x, size)
        if self.codes.shape[1] > 1:
            places[:, 1] = np.repeat(np.linspace(low[1], high[1], size), size)
        return places


# -- kernel PCA of any kernel -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class KernelComponents:
    """Kernel PCA of samples, or of some that stand for all: the components are centred k(·, Z) U diag(λ)^(−1/2).

    Parameters
    ----------
    kernel : Kernel
        The kernel of the data.
    Z : data
        The samples that define the components, unprepared.
    how : Representation
        The representation of arrays as tensors.
    """

    kernel: Kernel
    Z: Data
    how: Representation

    @classmethod
    def of(cls, kernel: Kernel, X: Data, how: Representation) -> KernelComponents:
        """Kernel PCA of all samples, or of evenly spaced ones if there are many."""
        n = count(X)
        return cls(kernel, take(X, torch.from_numpy(evenly_spaced(n, EXACT_ROWS))), how)

    @cached_property
    def adapted(self) -> Kernel:
        """The kernel in the precision of the learner."""
        return self.how.adapted(self.kernel, repair=False)

    @cached_property
    def _landmarks(self) -> Data:
        return self.how.inputs(self.adapted, self.Z)

    @cached_property
    def _solution(self) -> tuple[Tensor, Tensor]:
        """The means of the Gram matrix, and its eigenvectors over the roots of their eigenvalues."""
        with torch.no_grad():
            K = self.adapted._gram(self._landmarks, None).double()
        means = K.mean(0)
        values, vectors = torch.linalg.eigh(K - means - means[:, None] + means.mean())
        values, vectors = values.flip(0)[:COMPONENTS], vectors.flip(1)[:, :COMPONENTS]
        positive = (values > LEAST_SHARE * values[0]) & (values > 0)
        weights = vectors[:, positive] / values[positive].sqrt()
        largest = vectors[:, positive].abs().argmax(0)
        signs = weights.gather(0, largest[None]).sign()[0]  # a direction has no sign: the largest entry decides
        empty = weights.new_zeros(len(weights), max(0, 2 - weights.shape[1]))  # a plane has two axes
        return means, torch.cat([weights * signs, empty], 1)

    def __call__(self, X: Data) -> np.ndarray:
        """Components (n, c) of samples."""
        means, weights = self._solution
        inputs = self.how.inputs(self.adapted, X)
        places = []
        with torch.no_grad():
            for rows in row_blocks(count(inputs), 3 * len(means) * 8):
                cross = self.adapted._gram(inputs[rows], self._landmarks).double()
                places.append((cross - cross.mean(1, keepdim=True) - means + means.mean()) @ weights)
        return plain(torch.cat(places))


@dataclass(frozen=True)
class RidgeInverse:
    """The way from components back to vectors: ridge regression of the inputs on them, fitted at the first call."""

    codes: np.ndarray
    X: np.ndarray

    @cached_property
    def _fitted(self) -> tuple[OperatorRidge, float]:
        """The regression, and the unit of its components."""
        unit = float(np.linalg.norm(self.codes.std(0))) or 1.0
        rows = evenly_spaced(len(self.codes), INVERSE_ROWS)
        return OperatorRidge(Gaussian("auto"), random_state=0).fit(self.codes[rows] / unit, self.X[rows]), unit

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """The vectors at places of the map, by ridge regression."""
        ridge, unit = self._fitted
        answers: np.ndarray = ridge.predict(np.asarray(places) / unit)
        return answers


def nearest_samples(codes: np.ndarray, X: Data, places: np.ndarray) -> Data:
    """The way from places back to objects of any kind: the samples that are nearest on the map."""
    distances = ((np.asarray(places)[:, None] - codes[None]) ** 2).sum(2)
    return take(X, torch.from_numpy(distances.argmin(1)))
