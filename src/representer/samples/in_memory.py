"""Users' data turned into the data that kernels compute with, and samples in memory."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.linalg import is_finite, recycling, row_blocks
from representer.samples.journal import summed
from representer.samples.records import Data, Records
from representer.samples.rows import sample_groups, sample_rows, sampling_keys

Array = Any  # a tensor, or the NumPy array in which it is stored


def as_vectors(X: object, *, gaps: bool = False) -> Tensor:
    """Finite numbers (..., n, d) as a floating tensor: torch tensors keep their precision, all else becomes double.

    With ``gaps``, entries may be missing (NaN).

    Examples
    --------
    >>> from representer.samples import as_vectors
    >>> as_vectors([[1, 2], [3, 4]]).dtype
    torch.float64
    """
    tensor = _as_floats(X)
    if tensor.ndim < 2:
        raise ValueError(
            f"Expected a 2D array (n_samples, n_features), got a {tensor.ndim}D array of shape {tuple(tensor.shape)}. "
            "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one sample."
        )
    if not tensor.numel():
        raise ValueError(
            f"Found {tensor.shape[-2]} sample(s) of {tensor.shape[-1]} feature(s) (shape {tuple(tensor.shape)}): a "
            "kernel needs at least one of each."
        )
    if not is_finite(tensor.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf) if gaps else tensor):
        place = torch.nonzero(~torch.isfinite(tensor.detach()))[0].tolist()
        raise ValueError(
            f"The data contain NaN or infinity, first at row {place[-2]}, column {place[-1]}. Impute or remove such "
            "entries (for example with sklearn.impute.SimpleImputer), or take gaps for what they are: Missing(kernel)."
        )
    return tensor


def _as_floats(X: object) -> Tensor:
    if isinstance(X, Tensor) and not X.is_complex() and X.layout == torch.strided:
        return X if X.is_floating_point() else X.to(torch.float64)
    if hasattr(X, "toarray") or (isinstance(X, Tensor) and X.layout != torch.strided):
        raise ValueError(
            f"This kernel takes dense arrays; got {type(X).__name__}. Pass X.toarray() (torch: X.to_dense()) if it "
            "fits in memory, or reduce its columns first (for example with sklearn.decomposition.TruncatedSVD)."
        )
    try:
        array = np.asarray(X)
        if array.dtype.kind not in "biufO":  # strings of digits and dates would convert silently
            raise ValueError(f"entries of type {array.dtype}")
        array = np.asarray(array, dtype=np.float64, order="C")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"This kernel takes real vectors, an array of shape (n_samples, n_features); got {type(X).__name__} that "
            f"does not convert ({error}). For other data choose a kernel of their kind, or Callable."
        ) from error
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():  # torch warns of read-only arrays, which are only read here
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def same_features(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """Two sets of vectors, checked to have the same features, in the wider of their precisions."""
    if X.shape[-1] != Y.shape[-1]:
        raise ValueError(
            f"X has {X.shape[-1]} features, but Y has {Y.shape[-1]}: a kernel compares vectors with the same features."
        )
    dtype = torch.promote_types(X.dtype, Y.dtype)
    return X.to(dtype), Y.to(dtype=dtype, device=X.device)


class SparseRows(sparse.csr_array):
    """A sparse matrix whose length is its number of rows, like that of any other collection of samples."""

    def __len__(self) -> int:
        return int(self.shape[0])


def as_scipy(X: Data) -> Data:
    """Sparse samples as SciPy's own type, for users; anything else as it is."""
    return sparse.csr_array(X) if isinstance(X, SparseRows) else X


def count(X: Data) -> int:
    """The number of samples of data: rows of a tensor (after batch dimensions) or an array, items of anything else."""
    if isinstance(X, Tensor) and X.ndim > 1:
        return X.shape[-2]
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def n_passed(X: Data) -> int | None:
    """The number of samples as a user passed them; None where that is not known yet, as on Dask."""
    if is_dask(X):
        return None
    try:
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    except (TypeError, IndexError):
        return None


def is_single(X: object) -> bool:
    """Is X a single object (a string, a graph, a record, a number) instead of a collection with one for each sample?

    Examples
    --------
    >>> from representer.samples import is_single
    >>> is_single("abc"), is_single(["abc"])
    (True, False)
    """
    return (
        isinstance(X, str | bytes | Mapping)
        or not isinstance(X, Iterable)
        or getattr(X, "ndim", 1) == 0
        or hasattr(X, "is_multigraph")  # networkx: a graph is a collection of its nodes
    )


def is_dask(X: object) -> bool:
    """Is X a Dask array, frame or series? Dask need not be installed to ask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "dask")


def as_items(X: Data) -> Data:
    """The items of a collection, one for each sample: rows of a frame or an array, or the entries of its only column.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import as_items
    >>> as_items(np.array([["ab"], ["cde"]])).tolist(), as_items(["ab", "cde"])
    (['ab', 'cde'], ['ab', 'cde'])
    """
    rows = X.to_numpy() if hasattr(X, "to_numpy") else X  # iterating over a frame gives its columns
    column = isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == 1 and rows.dtype.kind in "OSU"
    return rows[:, 0] if column else rows


def as_list(X: Data, noun: str, who: str = "A kernel") -> list[Any]:
    """The samples of a collection as a list of at least one; ``noun`` and ``who`` are words for an error.

    Examples
    --------
    >>> from representer.samples import as_list
    >>> as_list(("ab", "cde"), "strings")
    ['ab', 'cde']
    """
    if is_single(X):
        raise ValueError(f"{who} takes a sequence of {noun}; got {type(X).__name__}. Put a single one in a list.")
    samples = X if isinstance(X, list) else list(as_items(X))
    if not samples:
        raise ValueError(f"Found 0 {noun}: at least one is needed.")
    return samples


def take(X: Data, rows: Tensor) -> Data:
    """The samples with these numbers of prepared data."""
    if isinstance(X, Tensor):
        return X[rows]
    if isinstance(X, Records):
        return X.take(rows.cpu().numpy())
    # NumPy would read a tensor of one row number as that number.
    return X[rows.cpu().numpy()] if isinstance(X, np.ndarray | SparseRows) else [X[int(i)] for i in rows]


def plain(X: Data, *, copy: bool = False) -> Data:
    """Tensors as NumPy arrays, anything else, such as None, as it is; with ``copy``, in memory of its own."""
    if isinstance(X, Tensor):
        array = X.detach().cpu().numpy()
        return array.copy() if copy else array
    if copy:
        return list(X) if isinstance(X, list) else X.copy() if hasattr(X, "copy") else X
    return X


@dataclass(frozen=True)
class Block:
    """Samples in memory: their inputs, targets, weights and groups, row by row."""

    X: Data  # prepared inputs
    Y: Data  # a tensor (n, p) of targets, NaN where one is missing, or prepared outputs
    weights: Tensor | None = None  # (n,), or (n, p) with a weight for each target; None for ones
    groups: Tensor | None = None  # numbers (n,) of groups that are left out together; None: every sample by itself

    def __len__(self) -> int:
        return len(self.Y)

    @property
    def observed(self) -> Tensor | None:
        """A mask (n, p) of the targets that are not missing; None if none is missing."""
        if not isinstance(self.Y, Tensor):
            return None
        missing = self.Y.isnan()
        return ~missing if bool(missing.any()) else None

    def full_weights(self, like: Tensor) -> Tensor:
        """The weights in the precision of a tensor, and ones where there are none."""
        return like.new_ones(len(self)) if self.weights is None else self.weights.to(like)

    def rows(self, index: np.ndarray) -> Block:
        """The samples with these numbers."""
        numbers = torch.from_numpy(np.asarray(index))
        weights = None if self.weights is None else self.weights[numbers]
        groups = None if self.groups is None else self.groups[numbers]
        return Block(take(self.X, numbers), take(self.Y, numbers), weights, groups)

    def positive_part(self, *, pairwise: bool = False) -> Block:
        """The samples of positive weight, because others do not count. ``pairwise``: X is their Gram matrix."""
        if self.weights is None or bool((self.weights > 0).all()):
            return self
        index = (self.weights > 0).reshape(len(self.weights), -1).any(1).nonzero()[:, 0].cpu()
        block = self.rows(index.numpy())
        return replace(block, X=block.X[:, index]) if pairwise else block

    def prepared(self, kernel: Any) -> Block:
        """The samples with inputs that a kernel has prepared."""
        return replace(self, X=kernel.prepare(self.X))


class Step(ABC):
    """A quantity that is summed over blocks. Totals are added by ``+``; the total that is passed may be changed."""

    bytes_per_row: int  # the memory of temporaries

    @abstractmethod
    def __call__(self, block: Block, total: Any | None) -> Any:
        """The total with the sum over this block added to it."""


class Samples(ABC):
    """The n samples of a fit, which are read in blocks."""

    n: int

    @property
    @abstractmethod
    def weight(self) -> float:
        """The sum of the samples' weights."""

    @property
    @abstractmethod
    def observed(self) -> Tensor | None:
        """A mask (n, p) of the targets that are not missing; None if none is missing."""

    @property
    @abstractmethod
    def groups(self) -> np.ndarray | None:
        """The number of each sample's group (n,); None if every sample is a group of its own."""

    @property
    def held(self) -> Block | None:
        """All samples as one block if they are in memory, else None."""
        return None

    @abstractmethod
    def rows(self, index: np.ndarray) -> Block:
        """The samples with these numbers, in ascending order, as a block in memory."""

    def recalled(self, X: Data, targets: Callable[[np.ndarray], Data], *, pairwise: bool) -> TrainingSamples | None:
        """The samples as a user could pass them again, with stored inputs X; None if they are not in memory.

        ``targets`` turns Y back into the user's targets.
        """
        return None

    def weighty(self) -> np.ndarray:
        """The numbers of the samples of positive weight."""
        return np.arange(self.n)

    def positive_part(self, *, pairwise: bool) -> Samples:
        """The samples of positive weight, because others do not count. ``pairwise``: X is their Gram matrix."""
        return self

    def prepared(self, kernel: object) -> Samples:
        """The samples with inputs that a kernel has prepared; blocks of plain numbers suit all kernels on vectors."""
        return self

    def read_ahead(self, *indices: np.ndarray) -> None:  # noqa: B027
        """Announce samples that will be asked for, so that one pass over the data can read them all."""

    @abstractmethod
    def total(self, step: Step, *, limit: int | None = None) -> Any:
        """The sum of the step over all samples, with about ``limit`` bytes of temporaries at a time."""

    def random_rows(self, size: int, seed: int) -> np.ndarray:
        """About ``size`` random row numbers, in order, or all of them; groups stay whole."""
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
        """A mask (n, p) of the targets that are not missing; None if none is missing."""
        return self.samples.observed

    @property
    def groups(self) -> np.ndarray | None:
        """The number of each sample's group (n,); None if every sample is a group of its own."""
        return None if self.samples.groups is None else self.samples.groups.cpu().numpy()

    @property
    def held(self) -> Block:
        """All samples as one block."""
        return self.samples

    def rows(self, index: np.ndarray) -> Block:
        """The samples with these numbers; all samples are not copied."""
        return self.samples if len(index) == self.n else self.samples.rows(index)

    def recalled(self, X: Data, targets: Callable[[np.ndarray], Data], *, pairwise: bool) -> TrainingSamples:
        """The samples of positive weight as a user could pass them again."""
        Y, w = map(plain, (self.samples.Y, self.samples.weights))
        return TrainingSamples.of(X, targets(Y), w, self.groups, pairwise=pairwise)

    def weighty(self) -> np.ndarray:
        """The numbers of the samples of positive weight."""
        w = self.samples.weights
        return np.arange(self.n) if w is None else np.flatnonzero(plain(w > 0).reshape(self.n, -1).any(1))

    def positive_part(self, *, pairwise: bool) -> InMemory:
        """The samples of positive weight, because others do not count. ``pairwise``: X is their Gram matrix."""
        positive = self.samples.positive_part(pairwise=pairwise)
        return self if positive is self.samples else InMemory(positive)

    def prepared(self, kernel: object) -> InMemory:
        """The samples with inputs that a kernel has prepared."""
        return InMemory(self.samples.prepared(kernel))

    def total(self, step: Step, *, limit: int | None = None) -> Any:
        """The sum over blocks, one after the other."""
        X, Y, weights = self.samples.X, self.samples.Y, self.samples.weights

        def add(rows: slice, result: object) -> Any:
            return step(Block(X[rows], Y[rows], None if weights is None else weights[rows]), result)

        blocks = list(row_blocks(count(X), step.bytes_per_row, limit))
        with torch.no_grad(), recycling():
            return summed(f"{type(step).__name__} of {self.n} samples in {len(blocks)} blocks", blocks, add)


@dataclass(frozen=True)
class HeldSamples:
    """A random subset of all samples seen so far: those with the least keys (see ``sampling_keys``).

    Samples of one group share a key, and are held together. Groups with keys of at least ``bound`` were dropped before.
    Because they are incomplete, they never come back.
    """

    keys: np.ndarray
    X: Data
    Y: Data
    weights: np.ndarray | None
    groups: np.ndarray | None = None
    bound: np.uint64 | None = None

    @classmethod
    def of(cls, block: Block, rows: np.ndarray, seed: int, *, complete: bool = True) -> HeldSamples:
        """The samples of a block in memory of their own; ``rows`` are their numbers, ``complete``: they are all."""
        keys = sampling_keys(rows if block.groups is None else plain(block.groups), seed)
        bound = None if complete or block.groups is None else keys.max() + np.uint64(1)
        X, Y, weights, groups = (plain(a, copy=True) for a in (block.X, block.Y, block.weights, block.groups))
        return cls(keys, X, Y, weights, groups, bound)

    @classmethod
    def all_of(cls, block: Block, inputs: Data = None) -> HeldSamples:
        """All samples of a fit in memory of their own; ``inputs``, if any, take the place of the prepared ones."""
        X = block.X if inputs is None else inputs
        arrays = (plain(a, copy=True) for a in (X, block.Y, block.weights, block.groups))
        return cls(np.empty(0, dtype=np.uint64), *arrays)

    def __len__(self) -> int:
        return len(self.keys)

    def joined(self, block: Block, seen: int, size: int, seed: int) -> HeldSamples:
        """The subset after a further block, which follows ``seen`` samples."""
        if block.groups is not None:
            return self._merged(HeldSamples.of(block, np.arange(len(block)), seed), size)
        keys = sampling_keys(np.arange(seen, seen + len(block)), seed)
        least = np.sort(np.argsort(keys)[:size])
        return self._merged(HeldSamples.of(block.rows(least), seen + least, seed), size)

    def block(self, kernel: Any, representation: Any) -> Block:
        """The samples as a block of tensors in a ``Representation``."""
        weights = None if self.weights is None else representation.tensor(self.weights)
        groups = None if self.groups is None else torch.from_numpy(self.groups)
        X = representation.inputs(kernel, self.X)
        return Block(X, representation.tensor(self.Y), weights, groups)

    def _merged(self, other: HeldSamples, size: int) -> HeldSamples:
        """The ``size`` samples with the least keys of both, in the order in which they came; groups stay whole."""
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


# -- samples as a user could pass them again --------------------------------------------------------------------------
@dataclass(frozen=True)
class TrainingSamples:
    """The samples of a fit as a user could pass them again: inputs, targets, and other arguments of ``fit``."""

    X: Data
    y: Data
    options: dict[str, Any]  # sample_weight, groups, noise: arrays of n rows, or None
    pairwise: bool = False

    @classmethod
    def of(cls, X: Data, y: Data, weights: object, groups: object, *, pairwise: bool) -> TrainingSamples:
        """The samples of positive weight; weights and groups may be None."""
        return cls(X, y, {"sample_weight": weights, "groups": groups}, pairwise).positive()

    @property
    def n(self) -> int:
        """The number of samples."""
        return count(self.X)

    @property
    def groups(self) -> Tensor | None:
        """The numbers of the samples' groups; None if there are no groups."""
        groups = self.options.get("groups")
        return None if groups is None else torch.from_numpy(np.asarray(groups))

    def positive(self) -> TrainingSamples:
        """The samples of positive weight."""
        weights = self.options.get("sample_weight")
        if weights is None or bool((weights > 0).all()):
            return self
        return self.part(np.flatnonzero(weights > 0))

    def part(self, rows: np.ndarray) -> TrainingSamples:
        """The samples with these numbers."""
        X = self.inputs(rows)
        options = {name: None if values is None else values[rows] for name, values in self.options.items()}
        y = take(self.y, torch.from_numpy(rows))
        return TrainingSamples(X[:, rows] if self.pairwise else X, y, options, self.pairwise)

    def inputs(self, rows: np.ndarray) -> Data:
        """The inputs of the samples with these numbers."""
        return take(self.X, torch.from_numpy(rows))
