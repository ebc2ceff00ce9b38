"""Samples in Dask collections: sums over samples, a chunk at a time, on the active scheduler."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from sklearn.utils._set_output import _get_output_config

from representer.samples.groups import check_groups
from representer.samples.in_memory import Block, InMemory, Samples, Step
from representer.samples.in_memory import is_dask as is_dask
from representer.samples.journal import has_journal, summed, without_journal
from representer.samples.records import Data

# The number of partial sums that one task adds.
FAN_IN = 8
# The number of chunks that are summed between two notes in the journal of a fit.
RESUMED_CHUNKS = 64

MISSING = 'Dask collections need the extra "dask": pip install "representer[dask]".'


def require_dask() -> Any:
    """The package Dask, or an error that names the extra to install."""
    try:
        import dask
        import dask.array
    except ImportError as error:
        raise ModuleNotFoundError(MISSING, name="dask") from error
    return dask


def as_rows(collection: Data, name: str, *, sizes: bool = True, dimensions: tuple[int, ...] = ()) -> Data:
    """A Dask array of so many dimensions whose chunks are whole rows, with known sizes unless these are not needed."""
    require_dask()
    if hasattr(collection, "to_dask_array"):
        _refuse_words(collection, name)
        collection = collection.to_dask_array()
        if sizes:
            collection.compute_chunk_sizes()  # one pass; lengths=True fails where partitions are fused
    if not hasattr(collection, "rechunk"):
        raise ValueError(
            f"{name} is a Dask {type(collection).__name__}; a Dask array or DataFrame is expected. Call "
            f"{name}.to_dataframe() or dask.array.from_delayed(...)."
        )
    if collection.ndim == 0 or collection.ndim not in (dimensions or (collection.ndim,)):
        expected = " or ".join(f"{k}D" for k in dimensions or (1, 2))
        raise ValueError(
            f"{name} is expected to be {expected}, with one row for each sample; got a Dask array of shape "
            f"{collection.shape}. Reshape it: {name}.reshape(-1, 1) if it is one number a sample, "
            f"{name}.reshape(len({name}), -1) if it has more axes."
        )
    if collection.ndim > 1 and collection.numblocks[1] > 1:
        raise ValueError(
            f"{name} is cut along its columns into {collection.numblocks[1]} chunks, but every chunk must hold whole "
            f"rows. Pass {name}.rechunk({{0: 'auto', 1: -1}})."
        )
    if sizes and np.isnan(collection.shape[0]):
        raise ValueError(f"{name} has chunks of unknown sizes. Call {name}.compute_chunk_sizes() first.")
    return collection


def refuse_unknown_sizes(collections: Iterable[Data]) -> None:
    """Refuse Dask arrays whose numbers of rows are not known."""
    for values in collections:
        if is_dask(values) and hasattr(values, "rechunk") and np.isnan(values.shape[0]):
            raise ValueError(
                "A score needs to know how many samples there are, and a Dask array that it got has chunks of unknown "
                "sizes. Call compute_chunk_sizes() of it first."
            )


def _refuse_words(frame: Any, name: str) -> None:
    """Refuse a frame with columns of words, categories or dates, by their names."""
    types = list(frame.dtypes.items()) if frame.ndim == 2 else []
    words = [column for column, kind in types if kind.kind not in "biuf" and str(kind) != "object"]
    if words:
        raise ValueError(
            f"Samples in Dask collections are rows of numbers, and {name} has columns that are none: "
            f"{', '.join(map(repr, words))}. Encode them, or call {name}.compute() if the samples fit into memory: a "
            "fit there takes them as they are, and answers for a Dask frame."
        )


def largest_target(y: Data) -> float:
    """The largest absolute value of targets, by a pass over them if they are on Dask; 0 if they are no numbers."""
    if not is_dask(y):
        array = np.asarray(y)
        return _largest(array) if array.dtype.kind in "iuf" else 0.0
    rows = as_rows(y, "y", sizes=False)
    if rows.dtype.kind not in "iuf":
        return 0.0
    dask = require_dask()
    chunks = [dask.delayed(_largest)(chunk) for chunk in rows.to_delayed().ravel()]
    return max(dask.compute(*chunks), default=0.0)


def _largest(chunk: np.ndarray) -> float:
    """The largest finite absolute value of a chunk; other values are refused later."""
    return float(np.abs(chunk).max(initial=0.0, where=np.isfinite(chunk)))


def refuse_frames(transformer: object) -> None:
    """Refuse ``set_output`` for a Dask collection, because scikit-learn would make a frame in memory of it."""
    if _get_output_config("transform", transformer)["dense"] != "default":
        raise ValueError(
            "Features of a Dask collection are a lazy Dask array, and no frame in memory. Call "
            "set_output(transform='default')."
        )


def _check_form(array: Any, name: str) -> None:
    """Refuse an array whose width or type shows that it does not hold rows of numbers."""
    if array.ndim > 1 and array.shape[1] == 0:
        raise ValueError(f"{name} has no columns: its shape is {array.shape}. Give at least one number a sample.")
    if array.dtype.kind not in "biufO":
        raise ValueError(
            f"{name} should hold real numbers; its type is {array.dtype}. Encode it, or call {name}.astype(float)."
        )


def _numbers(values: Data, name: str) -> np.ndarray:
    """The numbers of a chunk, which are objects in a frame with columns of several types."""
    values = np.asarray(values)
    if values.dtype.kind == "O":
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"A chunk of {name} holds what is no number ({error}). Encode it first.") from error
    return values


def _chunk_block(X: Data, Y: Data, weights: Data | None, dtype: torch.dtype, rows: np.ndarray | None = None) -> Block:
    """A chunk as checked tensors, made where the chunk is; or samples with the numbers ``rows`` from all chunks."""

    def tensor(values: Data, name: str) -> torch.Tensor:
        values = _numbers(values, name)
        if not np.isfinite(values.sum(dtype=np.float64)):
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                row, column = int(bad[0][0]), "" if values.ndim == 1 else f", column {int(bad[0][1])}"
                where = (
                    f"A chunk of {name} contains NaN or infinity, first in its row {row}{column}"
                    if rows is None
                    else f"{name} contains NaN or infinity in row {int(rows[row])}{column}"
                )
                raise ValueError(f"{where}. Samples in Dask collections must be complete: drop or impute such rows.")
        largest, least = float(np.abs(values).max(initial=0.0)), torch.finfo(dtype).tiny
        if 0.0 < largest < least:
            raise ValueError(
                f"A chunk of {name} holds numbers up to {largest:.3g}, and {dtype} keeps the digits of numbers from "
                f"{least:.1e} on. Rescale {name}, or use dtype='float64'."
            )
        return torch.as_tensor(np.require(values, requirements=["C", "W"]), dtype=dtype)

    weights = None if weights is None else tensor(weights, "sample_weight")
    if weights is not None and bool((weights < 0).any()):
        raise ValueError("Negative values in sample_weight.")
    return Block(tensor(X, "X"), tensor(Y, "y"), weights)


def _counted(weights: np.ndarray) -> np.ndarray:
    """The number of weights that are not zero, as an array of one."""
    return np.array([np.count_nonzero(weights)])


def _counting(chunk: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The rows of a chunk whose weights are not zero."""
    return chunk[weights.reshape(len(weights)) != 0]


def _chunk_total(step: Step, X: Data, Y: Data, weights: Data, dtype: torch.dtype, limit: int | None) -> Any:
    """The total of a step over one chunk; None for an empty one."""
    if not len(X):
        return None
    with without_journal():  # chunks come in any order, in threads that may have the journal of the fit
        return InMemory(_chunk_block(X, Y, weights, dtype)).total(step, limit=limit)


def _merged(totals: list[Any]) -> Any:
    """The sum of totals, of which some may be None."""
    totals = [total for total in totals if total is not None]  # a chunk may be empty
    return reduce(add, totals) if totals else None


@contextmanager
def _one_large_object() -> Iterator[None]:
    """A context for graphs that hold landmarks and their factor: sent inside, they survive the loss of a worker."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield


class OnDask(Samples):
    """Samples in Dask arrays or frames; targets may also be an array, or None where there are none.

    ``groups`` are labels of samples that belong together; they are brought into memory.
    """

    def __init__(self, X: Data, Y: Data, weights: Data | None, *, dtype: torch.dtype, groups: Data | None = None):
        self.X = as_rows(X, "X", dimensions=(2,))
        _check_form(self.X, "X")
        self.n = int(self.X.shape[0])
        if not self.n:
            raise ValueError("Found 0 samples in X, while at least one is required.")
        rows = self.X.chunks[0]
        none = require_dask().array.zeros((self.n, 0), chunks=(rows, 1)) if Y is None else None
        self.Y = self._aligned(Y, "y", rows, (1, 2)) if none is None else none
        self.Y = self.Y[:, None] if self.Y.ndim == 1 else self.Y
        self.weights = None
        self._groups = check_groups(groups, self.n)
        if weights is not None:
            self.weights = self._aligned(weights, "sample_weight", rows, (1,))
            self._drop_weightless()
        self.dtype = dtype
        self._read: tuple[np.ndarray, Block] | None = None

    def _drop_weightless(self) -> None:
        """Drop samples of weight zero, which must not become landmarks, as ``InMemory`` does."""
        assert self.weights is not None
        ones = ((1,) * self.weights.numblocks[0],)
        counts = tuple(self.weights.map_blocks(_counted, dtype=int, chunks=ones).compute().tolist())
        if sum(counts) == self.n:
            return
        if not any(counts):
            raise ValueError("Sample weights must contain at least one non-zero number.")
        if self._groups is not None:
            self._groups = self._groups[self.weights.compute() != 0]
        column = self.weights[:, None]
        self.X, self.Y = (
            array.map_blocks(_counting, column, dtype=array.dtype, chunks=(counts, array.chunks[1]))
            for array in (self.X, self.Y)
        )
        self.weights = self.weights.map_blocks(_counting, self.weights, chunks=(counts,))
        self.n = sum(counts)

    @property
    def weight(self) -> float:
        """The sum of the weights: n, if there are none."""
        return float(self.n if self.weights is None else self.weights.sum().compute())

    @property
    def observed(self) -> torch.Tensor | None:
        """None, because targets in Dask collections are complete."""
        return None

    @property
    def groups(self) -> np.ndarray | None:
        """The number of each sample's group (n,); None if every sample is a group of its own."""
        return self._groups

    def _aligned(self, collection: Data, name: str, rows: tuple[int, ...], dimensions: tuple[int, ...]) -> Data:
        """A collection, or an array in memory, cut into the chunks of X."""
        if not is_dask(collection):
            if hasattr(collection, "toarray"):
                raise ValueError(
                    f"{name} is sparse, where dense numbers are expected beside X on Dask. Pass {name}.toarray()."
                )
            if np.ndim(collection) == 0:
                raise TypeError(
                    f"{name} should be an array with one row for each sample; got one {type(collection).__name__}. "
                    "Pass a list or an array of all samples."
                )
            collection = require_dask().array.from_array(np.asarray(collection), chunks=-1)
        array = as_rows(collection, name, dimensions=dimensions)
        _check_form(array, name)
        if array.shape[0] != self.n:
            raise ValueError(f"X and {name} have inconsistent numbers of samples: {self.n} and {array.shape[0]}.")
        return array.rechunk({0: rows})

    def read_ahead(self, *indices: np.ndarray) -> None:
        """Read samples that will be asked for by one pass over the chunks."""
        numbers = np.unique(np.concatenate(indices))
        self._read = (numbers, self._brought(numbers))

    def rows(self, index: np.ndarray) -> Block:
        """The samples with these numbers, read from Dask unless they have been read ahead."""
        if self._read is None:
            return self._brought(index)
        numbers, block = self._read
        places = np.searchsorted(numbers, index)
        if not np.array_equal(numbers[places.clip(max=len(numbers) - 1)], index):
            return self._brought(index)
        return block.rows(places)

    def _brought(self, index: np.ndarray) -> Block:
        """The samples with these numbers, read from Dask."""
        whole = [self.X, self.Y] + ([] if self.weights is None else [self.weights])
        X, Y, *weights = require_dask().compute(*(array[index] for array in whole))
        block = _chunk_block(X, Y, weights[0] if weights else None, self.dtype, index)
        return block if self._groups is None else replace(block, groups=torch.from_numpy(self._groups[index]))

    def total(self, step: Step, *, limit: int | None = None) -> Any:
        """The sum by one task for each chunk and a tree of sums; all chunks share one step in the graph."""
        delayed = require_dask().delayed
        shared = delayed(step, traverse=False, pure=False)
        columns = [array.to_delayed().ravel() for array in (self.X, self.Y)]
        columns.append([None] * len(columns[0]) if self.weights is None else self.weights.to_delayed())
        totals = [
            delayed(_chunk_total, pure=False)(shared, X, Y, w, self.dtype, limit)
            for X, Y, w in zip(*columns, strict=True)
        ]

        def add(parts: list[Any], result: object) -> Any:
            while len(parts) > 1:
                groups = [parts[i : i + FAN_IN] for i in range(0, len(parts), FAN_IN)]
                parts = [delayed(_merged, pure=False)(group) for group in groups]
            return _merged([result, parts[0].compute()])

        # A fit with a journal waits for some chunks at a time, so that it may go on after a crash.
        size = RESUMED_CHUNKS if has_journal() else len(totals)
        parts = [totals[i : i + size] for i in range(0, len(totals), size)]
        with _one_large_object():
            return summed(f"{type(step).__name__} of {self.n} samples in {len(totals)} chunks", parts, add)


def map_rows(
    function: Callable[[Any], np.ndarray], X: Data, width: int | None, dtype: Any, *, named: bool = False
) -> Any:
    """The lazy Dask array of function(chunk) for all chunks of rows: (n, width), or (n,) if the width is None.

    The function gets the chunks of a frame as arrays; if ``named``, as frames with the names and types of columns.
    """
    dask = require_dask()
    shape = () if width is None else (width,)
    if named:
        meta, applied = np.empty((0, *shape), dtype=dtype), dask.delayed(_applied, pure=False)
        chunks = [applied(partition, function, meta) for partition in X.to_delayed()]
        arrays = [dask.array.from_delayed(chunk, (np.nan, *shape), meta=meta) for chunk in chunks]
        return dask.array.concatenate(arrays, allow_unknown_chunksizes=True)
    rows = as_rows(X, "X", sizes=False)
    shared = dask.delayed(function, traverse=False, pure=False)
    options: dict[str, Any] = {"dtype": dtype, "meta": np.empty((0,) if width is None else (0, 0), dtype=dtype)}
    if width is None:
        options["drop_axis"] = 1
    else:
        options["chunks"] = (rows.chunks[0], (width,))
    return rows.map_blocks(_applied, function=shared, empty=np.empty((0, *shape), dtype=dtype), **options)


def _applied(chunk: Any, function: Callable[[Any], np.ndarray], empty: np.ndarray) -> np.ndarray:
    """The function of a chunk as an array or a frame; ``empty`` for a chunk without rows."""
    return function(chunk if hasattr(chunk, "columns") else np.asarray(chunk)) if len(chunk) else empty
