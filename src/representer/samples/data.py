"""Data as users hand them over, checked and turned into what kernels compute with."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.linalg import is_finite

Array = Any  # a tensor, or the NumPy array that is stored of one
Data = Any  # samples as a user passes them, or as a kernel has prepared them: vectors, strings, graphs, …


def as_vectors(X: object, *, gaps: bool = False) -> Tensor:
    """Finite numbers (..., n, d) as a floating tensor: torch tensors keep their precision, all else becomes double.

    With ``gaps``, NaN is allowed for what is not known.

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
        if array.dtype.kind not in "biufO":  # strings of digits and dates would convert, silently
            raise ValueError(f"entries of type {array.dtype}")
        array = np.asarray(array, dtype=np.float64, order="C")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"This kernel takes real vectors, an array of shape (n_samples, n_features); got {type(X).__name__} that "
            f"does not convert ({error}). For other data choose a kernel of their kind, or Callable."
        ) from error
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():  # torch fears for a read-only array; it is only read here
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
    """A sparse matrix that is as long as it has rows, like any other collection of samples."""

    def __len__(self) -> int:
        return int(self.shape[0])


def as_scipy(X: Data) -> Data:
    """Sparse samples as SciPy's own type, for users; anything else as it is."""
    return sparse.csr_array(X) if isinstance(X, SparseRows) else X


def count(X: Data) -> int:
    """The number of samples of prepared data: rows of a tensor (after batch dimensions), items of anything else."""
    return X.shape[-2] if isinstance(X, Tensor) and X.ndim > 1 else len(X)


def is_single(X: object) -> bool:
    """Is it one object (a string, a graph, a record, a number), where a collection with one for each sample is meant?

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
    """Is it a Dask array, frame or series? Dask need not be installed to ask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "dask")


def as_items(X: Data) -> Data:
    """One item a sample: the rows of a frame or an array, where a single column of objects is that column.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import as_items
    >>> as_items(np.array([["ab"], ["cde"]])).tolist(), as_items(["ab", "cde"])
    (['ab', 'cde'], ['ab', 'cde'])
    """
    rows = X.to_numpy() if hasattr(X, "to_numpy") else X  # a frame would give its columns
    column = isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == 1 and rows.dtype.kind in "OSU"
    return rows[:, 0] if column else rows


def as_list(X: Data, noun: str, who: str = "A kernel") -> list[Any]:
    """The samples of a collection as a list of at least one; ``who`` and ``noun`` are words for an error.

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


def first_positions(positions: Sequence[int]) -> str:
    """The first positions of faulty samples, as an error names them."""
    return ", ".join(map(str, positions[:5])) + (" …" if len(positions) > 5 else "")


def take(X: Data, rows: Tensor) -> Data:
    """The samples with these numbers of prepared data."""
    if isinstance(X, Tensor):
        return X[rows]
    # NumPy would read a tensor of one row number as that number.
    return X[rows.cpu().numpy()] if isinstance(X, np.ndarray | SparseRows) else [X[int(i)] for i in rows]


def plain(X: Data, *, copy: bool = False) -> Data:
    """Tensors as NumPy arrays, anything else as it is; with ``copy``, in memory that nobody else has."""
    if isinstance(X, Tensor):
        array = X.detach().cpu().numpy()
        return array.copy() if copy else array
    if copy:
        return list(X) if isinstance(X, list) else X.copy() if hasattr(X, "copy") else X
    return X
