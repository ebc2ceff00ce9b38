"""What an approximation is: a value that makes features φ of a kernel and data, with k(x, y) ≈ φ(x)ᵀφ(y)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.data import count, take
from representer.kernels.base import Kernel
from representer.values import Value

# The error of an approximation is that of so many columns of the Gram matrix, seen at so many rows; of no more columns
# than there are features, so that it costs less than they do.
ERROR_ROWS, ERROR_COLUMNS, LEAST_COLUMNS = 500, 100, 10


def evenly_spaced(n: int, size: int) -> np.ndarray:
    """Row numbers from the first to the last: ``size`` of n, or all."""
    return np.arange(n) if n <= size else np.linspace(0, n - 1, size).round().astype(np.int64)


class FeatureMap(ABC):
    """φ with k(x, y) ≈ φ(x)ᵀφ(y): called with data, it gives a tensor (n, m)."""

    kernel: Kernel

    @abstractmethod
    def __call__(self, X: Any) -> Tensor:
        """Features (n, m)."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """m."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The precision of the features."""

    @property
    @abstractmethod
    def state(self) -> Any:
        """What was chosen or drawn: with the kernel, it makes the features again (``Approximation.restore``)."""

    def columns(self, X: Any) -> Tensor:
        """Functions of x that span the features; the features themselves unless others are cheaper."""
        return self(X)

    def coefficients(self, theta: Tensor) -> Tensor:
        """The C with φ(x)ᵀΘ = columns(x)ᵀC."""
        return theta

    def transposed(self, sums: Tensor) -> Tensor:
        """Σ_i φ(x_i) v_iᵀ from Σ_i columns(x_i) v_iᵀ."""
        return sums


class Approximation(Value, ABC):
    """A value of ``approximation=``: how a kernel is replaced by finitely many features."""

    @abstractmethod
    def size(self, n: int) -> int:
        """How many features to expect for n samples; raises if there cannot be so many."""

    @abstractmethod
    def rows(self, n: int, seed: int) -> np.ndarray:
        """Which of n samples ``choose`` needs to see: few, however many there are."""

    @abstractmethod
    def choose(self, kernel: Kernel, X: Any, seed: int) -> FeatureMap:
        """The features of a kernel with numbers, from those samples (prepared data)."""

    @abstractmethod
    def restore(self, kernel: Kernel, state: Any, prepare: Callable[[Any], Any]) -> FeatureMap:
        """The features that were chosen before, from their ``state`` as arrays; ``prepare`` makes tensors of data."""

    def features(self, kernel: Kernel, X: Any, *, seed: int) -> Any:
        """The features of a kernel with numbers for all hyperparameters, from data in memory."""
        X = kernel.prepare(X)
        rows = self.rows(count(X), seed)
        return self.choose(kernel, X if len(rows) == count(X) else take(X, torch.from_numpy(rows)), seed)


def approximation_error(features: FeatureMap, X: Any) -> float:
    """‖K − ΦΦᵀ‖/‖K‖ in the Frobenius norm, from some columns of both.

    Parameters
    ----------
    features : FeatureMap
        φ, of ``Nystroem(…).features(kernel, X, seed=…)`` or another approximation.
    X : data
        Of which at most 500 evenly spaced samples are looked at, and 100 of their columns.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import Nystroem, approximation_error
    >>> from representer.kernels import Gaussian
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> errors = [approximation_error(Nystroem(m).features(Gaussian(1.0), X, seed=0), X) for m in (10, 100)]
    >>> errors[1] < 0.1 * errors[0]
    True
    """
    X = features.kernel.prepare(X)
    X = take(X, torch.from_numpy(evenly_spaced(count(X), ERROR_ROWS)))
    columns = max(LEAST_COLUMNS, min(ERROR_COLUMNS, features.n_features))
    chosen = torch.from_numpy(evenly_spaced(count(X), columns))
    with torch.no_grad():
        exact = features.kernel._gram(X, take(X, chosen)).double()
        B = features(X)
        found = (B @ B[chosen].mT).double()
        size = torch.linalg.vector_norm(exact)
        return float(torch.linalg.vector_norm(exact - found) / torch.where(size > 0, size, 1.0))
