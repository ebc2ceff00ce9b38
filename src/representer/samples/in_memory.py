"""Where a fit by sums over the samples finds them: in memory, in blocks; and what such a sum is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.data import count, take
from representer.linalg.memory import recycling, row_blocks


@dataclass(frozen=True)
class Block:
    """Some samples: prepared inputs, targets (n, p) or prepared outputs, and weights (n,) or None for ones."""

    X: Any
    Y: Any
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.Y)

    def rows(self, index: np.ndarray) -> Block:
        """Some of them."""
        chosen = torch.from_numpy(np.asarray(index))
        weights = None if self.weights is None else self.weights[chosen]
        return Block(take(self.X, chosen), take(self.Y, chosen), weights)


class Step(ABC):
    """One term of a sum over blocks. Totals are added by ``+``; a total that is given may be changed."""

    bytes_per_row: int  # of temporaries

    @abstractmethod
    def __call__(self, block: Block, total: Any | None) -> Any:
        """The total with this block."""


class Samples(ABC):
    """n samples that are read in blocks."""

    n: int

    @property
    @abstractmethod
    def weight(self) -> float:
        """The sum of the samples' weights."""

    @abstractmethod
    def rows(self, index: np.ndarray) -> Block:
        """Some samples, in memory; the numbers are in order."""

    def read_ahead(self, *indices: np.ndarray) -> None:  # noqa: B027
        """Samples that will be asked for, so that they can be read at once where reading takes a pass over all."""

    @abstractmethod
    def total(self, step: Step, *, limit: int | None = None) -> Any:
        """The sum of the step over all samples, with about ``limit`` bytes of temporaries at a time."""


class InMemory(Samples):
    """Samples in memory.

    Examples
    --------
    >>> import torch
    >>> from representer.samples.in_memory import Block, InMemory
    >>> X, Y = torch.arange(6.0).reshape(3, 2), torch.ones(3, 1)
    >>> InMemory(Block(X, Y)).rows([0, 2]).X.tolist()
    [[0.0, 1.0], [4.0, 5.0]]
    """

    def __init__(self, samples: Block):
        self.samples = samples
        self.n = len(samples)

    @property
    def weight(self) -> float:
        """n, if there are no weights."""
        weights = self.samples.weights
        return float(self.n if weights is None else weights.double().sum())

    def rows(self, index: np.ndarray) -> Block:
        """Some samples; all of them are not copied."""
        return self.samples if len(index) == self.n else self.samples.rows(index)

    def total(self, step: Step, *, limit: int | None = None) -> Any:
        """Block after block."""
        X, Y, weights = self.samples.X, self.samples.Y, self.samples.weights
        result = None
        with torch.no_grad(), recycling():
            for rows in row_blocks(count(X), step.bytes_per_row, limit):
                part = Block(X[rows], Y[rows], None if weights is None else weights[rows])
                result = step(part, result)
        return result
