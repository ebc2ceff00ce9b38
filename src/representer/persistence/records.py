"""Records of fits: their time, the form of their data, and fingerprints of the data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from scipy import sparse
from torch import Tensor

from representer.persistence.container import ModelFileError
from representer.persistence.state import Writer, known
from representer.samples import Data, as_records, frame_library, is_dask, n_passed

# A fingerprint reads all rows of arrays up to WHOLE_BYTES, and SAMPLED_ROWS rows of larger ones and of objects.
WHOLE_BYTES = 2**24
SAMPLED_ROWS = 1000


@dataclass(frozen=True)
class FitRecord:
    """The record of a fit: its time and duration, and the form and fingerprints of its data."""

    began: str  # in UTC
    seconds: float
    n_samples: int | None  # None if a collection on Dask does not know it
    inputs: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, str | None] = field(default_factory=dict)
    batches: int = 1
    warnings: tuple[str, ...] = ()  # the texts of the fit's warnings
    memory: int | None = None  # the growth of the largest memory of the process in bytes; None if unknown

    @classmethod
    def of(cls, X: Data, y: Data, began: datetime, seconds: float) -> FitRecord:
        """The record of a fit to samples that a user passed."""
        marks = {"X": fingerprint(X), "y": fingerprint(y)}
        return cls(began.isoformat(timespec="seconds"), seconds, n_passed(X), schema(X), marks)

    def joined(self, batch: FitRecord) -> FitRecord:
        """The record of all batches, with ``batch`` as the last one."""
        sizes = [record.n_samples for record in (self, batch) if record.n_samples is not None]
        marks = {name: fingerprint([self.fingerprints.get(name), mark]) for name, mark in batch.fingerprints.items()}
        return replace(
            self,
            seconds=self.seconds + batch.seconds,
            n_samples=sum(sizes) if len(sizes) == 2 else None,
            fingerprints=marks,
            batches=self.batches + 1,
            warnings=tuple(dict.fromkeys((*self.warnings, *batch.warnings))),
        )


def schema(X: Data) -> dict[str, Any]:
    """The form of inputs: their container, the columns with their types, or the kinds of objects."""
    container = f"{type(X).__module__.partition('.')[0]}.{type(X).__name__}"
    described: dict[str, Any] = {"container": container.removeprefix("builtins.")}
    if not hasattr(X, "__len__"):
        return described
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        described["columns"] = {str(name): str(kind) for name, kind in zip(X.columns, X.dtypes, strict=True)}
    elif hasattr(X, "dtype") and hasattr(X, "shape"):
        described |= {"dtype": str(X.dtype).removeprefix("torch."), "shape": [_count(n) for n in X.shape[1:]]}
    else:
        described["kinds"] = sorted({type(item).__name__ for item in list(X)[:SAMPLED_ROWS]})
    return described


def _count(n: Any) -> int | None:
    """A size as an integer; None for NaN, which stands for unknown sizes on Dask."""
    return None if n != n else int(n)


def fingerprint(data: Data) -> str | None:
    """The SHA-256 digest of all rows of data, or of evenly spaced ones; None for data on Dask, which need a pass.

    Equal data have equal fingerprints. So may long data that differ in rows that are not read.

    Examples
    --------
    >>> from representer.persistence import fingerprint
    >>> fingerprint(["a", "b"]) == fingerprint(["a", "b"]), fingerprint(["a", "b"]) == fingerprint(["b", "a"])
    (True, False)
    """
    if is_dask(data) or not hasattr(data, "__len__"):
        return None
    digest = hashlib.sha256()
    if sparse.issparse(data):
        data = sparse.csr_array(data)
        for array in (data.indptr, data.indices, data.data):
            _add_array(digest, array)
        return digest.hexdigest()
    array = _as_array(data)
    if array is not None and array.dtype.kind != "O":
        _add_array(digest, array)
        return digest.hexdigest()
    if array is None and frame_library(data) is not None:
        return _objects_fingerprint(list(as_records(data)))
    return _objects_fingerprint(list(data if array is None else array))


def _as_array(data: Data) -> np.ndarray | None:
    """Data as an array; None if they are no array, such as objects, or columns of numbers beside durations."""
    data = data.detach().cpu() if isinstance(data, Tensor) else data
    try:
        data = data.to_numpy() if hasattr(data, "to_numpy") else data
        return np.asarray(data) if hasattr(data, "__array__") else None
    except TypeError:
        return None


def _add_array(digest: Any, array: np.ndarray) -> None:
    """Add the shape, the type and the rows of an array to a digest."""
    digest.update(f"{array.shape} {array.dtype.str}".encode())
    rows = array if array.nbytes <= WHOLE_BYTES or not array.ndim else array[_sampled(len(array))]
    digest.update(np.ascontiguousarray(rows).tobytes())


def _objects_fingerprint(objects: list[Any]) -> str | None:
    """The digest of objects in the form of a model file; None if a model file could not hold them."""
    digest = hashlib.sha256(str(len(objects)).encode())
    rows = [objects[i] for i in _sampled(len(objects))] if len(objects) > SAMPLED_ROWS else objects
    try:
        for row in rows:
            writer = Writer(known())
            root = writer.value(row)
            digest.update(json.dumps([root, writer.nodes]).encode())
            for array in writer.arrays.values():
                _add_array(digest, array)
    except ModelFileError:
        return None
    return digest.hexdigest()


def _sampled(n: int) -> np.ndarray:
    """The numbers of evenly spaced rows."""
    return np.linspace(0, n - 1, SAMPLED_ROWS).astype(int)
