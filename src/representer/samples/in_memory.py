"""Samples in memory, read in blocks; what a sum over them is; and those that a fit by sums keeps of all it has seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.linalg import recycling, row_blocks
from representer.samples.data import Data, SparseRows, count, plain, take
from representer.samples.rows import sample_groups, sample_rows, sampling_keys


@dataclass(frozen=True)
class Block:
    """Samples at hand: inputs, targets, weights and groups, row by row."""

    X: Data  # prepared inputs
    Y: Data  # a tensor (n, p) of targets, NaN where one is missing, or prepared outputs
    weights: Tensor | None = None  # (n,); None for ones
    groups: Tensor | None = None  # integers (n,) of what is left out together; None: each sample is a group of its own

    def __len__(self) -> int:
        return len(self.Y)

    @property
    def observed(self) -> Tensor | None:
        """Which targets are known, (n, p); None where all are."""
        if not isinstance(self.Y, Tensor):
            return None
        missing = self.Y.isnan()
        return ~missing if bool(missing.any()) else None

    def rows(self, index: np.ndarray) -> Block:
        """The samples with these numbers."""
        numbers = torch.from_numpy(np.asarray(index))
        weights = None if self.weights is None else self.weights[numbers]
        groups = None if self.groups is None else self.groups[numbers]
        return Block(take(self.X, numbers), take(self.Y, numbers), weights, groups)

    def positive_part(self, *, pairwise: bool = False) -> Block:
        """The samples of positive weight; those of weight zero are none. ``pairwise``: X is their Gram matrix."""
        if self.weights is None or bool((self.weights > 0).all()):
            return self
        index = self.weights.nonzero()[:, 0].cpu()
        block = self.rows(index.numpy())
        return replace(block, X=block.X[:, index]) if pairwise else block

    def prepared(self, kernel: Any) -> Block:
        """The samples as a kernel takes them."""
        return replace(self, X=kernel.prepare(self.X))


class Step(ABC):
    """One term of a sum over blocks. Totals are added by ``+``; a total that is given may be changed."""

    bytes_per_row: int  # of temporaries

    @abstractmethod
    def __call__(self, block: Block, total: Any | None) -> Any:
        """The total with the sum over this block added to it."""


class Samples(ABC):
    """n samples that are read in blocks: the data of every fit."""

    n: int

    @property
    @abstractmethod
    def weight(self) -> float:
        """The sum of the samples' weights."""

    @property
    @abstractmethod
    def observed(self) -> Tensor | None:
        """Which targets are known, (n, p); None where all are."""

    @property
    @abstractmethod
    def groups(self) -> np.ndarray | None:
        """The number of each sample's group, (n,); None where every sample is a group of its own."""

    @abstractmethod
    def rows(self, index: np.ndarray) -> Block:
        """The samples with these numbers, which are in order, in memory."""

    def prepared(self, kernel: Any) -> Samples:
        """The samples as a kernel takes them; blocks of numbers are read as all kernels of vectors take them."""
        return self

    def read_ahead(self, *indices: np.ndarray) -> None:  # noqa: B027
        """Samples that will be asked for, so that they can be read at once where reading takes a pass over all."""

    @abstractmethod
    def total(self, step: Step, *, limit: int | None = None) -> Any:
        """The sum of the step over all samples, with about ``limit`` bytes of temporaries at a time."""

    def random_rows(self, size: int, seed: int) -> np.ndarray:
        """About ``size`` random row numbers, in order, or all of them; of groups, whole ones."""
        if self.groups is None:
            return sample_rows(self.n, size, seed)
        return sample_groups(self.groups, size, seed)


class InMemory(Samples):
    """Samples in memory.

    Examples
    --------
    >>> import torch
    >>> from representer.samples import Block, InMemory
    >>> X, Y = torch.arange(6.0).reshape(3, 2), torch.ones(3, 1)
    >>> InMemory(Block(X, Y)).rows([0, 2]).X.tolist()
    [[0.0, 1.0], [4.0, 5.0]]
    """

    def __init__(self, samples: Block):
        self.samples = samples
        self.n = len(samples)

    @property
    def weight(self) -> float:
        """The sum of the weights: n, if there are none."""
        weights = self.samples.weights
        return float(self.n if weights is None else weights.double().sum())

    @property
    def observed(self) -> Tensor | None:
        """Which targets are known, (n, p); None where all are."""
        return self.samples.observed

    @property
    def groups(self) -> np.ndarray | None:
        """The number of each sample's group, (n,); None where every sample is a group of its own."""
        return None if self.samples.groups is None else self.samples.groups.cpu().numpy()

    def rows(self, index: np.ndarray) -> Block:
        """The samples with these numbers; if they are all, nothing is copied."""
        return self.samples if len(index) == self.n else self.samples.rows(index)

    def prepared(self, kernel: Any) -> InMemory:
        """The samples as a kernel takes them."""
        return InMemory(self.samples.prepared(kernel))

    def total(self, step: Step, *, limit: int | None = None) -> Any:
        """The sum over blocks, one after the other."""
        X, Y, weights = self.samples.X, self.samples.Y, self.samples.weights
        result = None
        with torch.no_grad(), recycling():
            for rows in row_blocks(count(X), step.bytes_per_row, limit):
                result = step(Block(X[rows], Y[rows], None if weights is None else weights[rows]), result)
        return result


@dataclass(frozen=True)
class HeldSamples:
    """A random sample of all samples seen so far: those with the least keys (see ``sampling_keys``).

    Samples of one group have the key of the group, and are held together. Groups of keys from ``bound`` on have been
    left away once, and are not complete: they never come back.
    """

    keys: np.ndarray
    X: Data
    Y: Data
    weights: np.ndarray | None
    groups: np.ndarray | None = None
    bound: np.uint64 | None = None

    @classmethod
    def of(cls, block: Block, rows: np.ndarray, seed: int, *, complete: bool = True) -> HeldSamples:
        """The samples of a block, whose numbers among all are ``rows``, in memory of their own; are they all?"""
        keys = sampling_keys(rows if block.groups is None else plain(block.groups), seed)
        bound = None if complete or block.groups is None else keys.max() + np.uint64(1)
        weights, groups = (None if a is None else plain(a, copy=True) for a in (block.weights, block.groups))
        return cls(keys, plain(block.X, copy=True), plain(block.Y, copy=True), weights, groups, bound)

    @classmethod
    def all_of(cls, block: Block, inputs: Data = None) -> HeldSamples:
        """All samples of a fit, in memory of their own; ``inputs``, if given, are stored instead of prepared ones."""
        arrays = (None if a is None else plain(a, copy=True) for a in (block.weights, block.groups))
        X = plain(block.X if inputs is None else inputs, copy=True)
        return cls(np.empty(0, dtype=np.uint64), X, plain(block.Y, copy=True), *arrays)

    def __len__(self) -> int:
        return len(self.keys)

    def joined(self, block: Block, seen: int, size: int, seed: int) -> HeldSamples:
        """The sample of all samples, after ``seen`` of them, with a block of more."""
        if block.groups is not None:
            return self._merged(HeldSamples.of(block, np.arange(len(block)), seed), size)
        keys = sampling_keys(np.arange(seen, seen + len(block)), seed)
        least = np.sort(np.argsort(keys)[:size])
        return self._merged(HeldSamples.of(block.rows(least), seen + least, seed), size)

    def block(self, kernel: Any, representation: Any) -> Block:
        """The samples as the tensors that a ``Representation`` makes of them."""
        weights = None if self.weights is None else representation.tensor(self.weights)
        groups = None if self.groups is None else torch.from_numpy(self.groups)
        X = representation.inputs(kernel, self.X)
        return Block(X, representation.tensor(self.Y), weights, groups)

    def _merged(self, other: HeldSamples, size: int) -> HeldSamples:
        """The ``size`` samples of least keys of both, in the order in which they came; of groups, whole ones."""
        keys, bound, groups = np.concatenate([self.keys, other.keys]), self.bound, None
        if self.groups is None or other.groups is None:
            least = np.sort(np.argsort(keys)[:size])
        else:
            labels, sizes = np.unique(keys if bound is None else keys[keys < bound], return_counts=True)
            enough = max(1, int((np.cumsum(sizes) <= size).sum()))
            bound = labels[enough] if enough < len(labels) else bound
            least = np.flatnonzero(np.isin(keys, labels[:enough]))
            groups = np.concatenate([self.groups, other.groups])[least]
        X, Y = rows_of_both(self.X, other.X, least), rows_of_both(self.Y, other.Y, least)
        weights = None
        if self.weights is not None or other.weights is not None:
            both = [np.ones(len(s)) if s.weights is None else s.weights for s in (self, other)]
            weights = np.concatenate(both)[least]
        return HeldSamples(keys[least], X, Y, weights, groups, bound)


def rows_of_both(one: Data, two: Data, rows: np.ndarray) -> Data:
    """The rows with these numbers of two collections of the same kind, one after the other."""
    if isinstance(one, SparseRows):
        return SparseRows(sparse.vstack([sparse.csr_array(X) for X in (one, two)]))[rows]
    if isinstance(one, np.ndarray):
        return np.concatenate([one, two])[rows]
    both = [*one, *two]
    return [both[i] for i in rows]
