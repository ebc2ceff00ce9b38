"""Samples that a fit by sums keeps: a random part of all that it has seen, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse

from representer.data import Data, SparseRows, plain
from representer.samples.in_memory import Block
from representer.samples.rows import sampling_keys


@dataclass(frozen=True)
class HeldSamples:
    """A random sample of all samples seen so far: those with the least keys (see ``sampling_keys``)."""

    keys: np.ndarray
    X: Data
    Y: Data
    weights: np.ndarray | None
    groups: np.ndarray | None = None

    @classmethod
    def of(cls, block: Block, rows: np.ndarray, seed: int) -> HeldSamples:
        """Some samples, whose numbers among all are ``rows``, in memory of their own."""
        arrays = (None if a is None else plain(a, copy=True) for a in (block.weights, block.groups))
        return cls(sampling_keys(rows, seed), plain(block.X, copy=True), plain(block.Y, copy=True), *arrays)

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
        keys = sampling_keys(np.arange(seen, seen + len(block)), seed)
        chosen = np.sort(np.argsort(keys)[:size])
        return self._merged(HeldSamples.of(block.rows(chosen), seen + chosen, seed), size)

    def block(self, kernel: Any, representation: Any) -> Block:
        """The samples as the tensors that a ``Representation`` makes of them."""
        weights = None if self.weights is None else representation.tensor(self.weights)
        groups = None if self.groups is None else torch.from_numpy(self.groups)
        X = representation.inputs(kernel, self.X)
        return Block(X, representation.tensor(self.Y), weights, groups)

    def _merged(self, other: HeldSamples, size: int) -> HeldSamples:
        """The ``size`` samples of least keys of both, in the order in which they came."""
        keys = np.concatenate([self.keys, other.keys])
        kept = np.sort(np.argsort(keys)[:size])
        X, Y = chosen_of_both(self.X, other.X, kept), chosen_of_both(self.Y, other.Y, kept)
        weights = None
        if self.weights is not None or other.weights is not None:
            parts = [np.ones(len(s)) if s.weights is None else s.weights for s in (self, other)]
            weights = np.concatenate(parts)[kept]
        return HeldSamples(keys[kept], X, Y, weights)


def chosen_of_both(one: Any, two: Any, rows: np.ndarray) -> Any:
    """Some rows of two collections of the same kind, one after the other."""
    if isinstance(one, SparseRows):
        return SparseRows(sparse.vstack([sparse.csr_array(X) for X in (one, two)]))[rows]
    if isinstance(one, np.ndarray):
        return np.concatenate([one, two])[rows]
    both = [*one, *two]
    return [both[i] for i in rows]
