"""Gram matrices kept on disk: found again by the content of the data and of the kernel."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import joblib
import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Kernel, Wrapped
from representer.kernels.features import Columns, ExplicitFeatures
from representer.values import Value, all_values

# Counts up when a stored file would be read or named differently.
FORMAT = 1


class Cached(Wrapped):
    """k(x, y), with Gram matrices and diagonals stored on disk and read again where data and kernel are the same.

    A file is named by a hash of the samples (strings, arrays, graphs, …), in their order, of the kernel with all its
    numbers, and of the version of the library. It is written to a temporary name and then moved, so several processes
    may share a directory; one that cannot be read, or whose checksum is wrong, is computed again with a warning. While
    a learner searches over hyperparameters nothing is stored, for no value comes twice.

    Objects without an obvious content are hashed through pickle: if theirs depends on more than their content, they are
    computed again, never mistaken. Functions and modules inside a kernel count by their code, constants, closure and
    weights, not by the global names they use. Nothing is ever deleted: remove the directory to be rid of it.

    Parameters
    ----------
    kernel : Kernel
        Any kernel.
    directory : str
        Made if need be. A subset, such as a fold of a cross-validation, is another content and has a file of its own.

    Examples
    --------
    >>> import tempfile
    >>> from representer.kernels import Cached, Callable
    >>> def shared_letters(x, y):
    ...     print("computing", x, y)
    ...     return len(set(x) & set(y))
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     k = Cached(Callable(shared_letters), directory)
    ...     once, again = k(["ab"], ["bc"]), k(["ab"], ["bc"])
    computing ab bc
    >>> again.tolist()
    [[1.0]]
    """

    def __init__(self, kernel: Kernel, directory: str):
        self.kernel = kernel
        self.directory = directory

    def features(self, X: Any) -> Tensor | None:
        """Those of the kernel inside."""
        return self.kernel.features(X)

    def _explicit_features(self, X: Any, columns: Columns | None) -> ExplicitFeatures:
        return self.kernel._explicit_features(X, columns)

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        return self._stored("gram", (X, Y), lambda: self.kernel._gram(X, Y))

    def _diag(self, X: Any) -> Tensor:
        return self._stored("diag", (X,), lambda: self.kernel._diag(X))

    def _stored(self, what: str, data: tuple[Any, ...], compute: Callable[[], Tensor]) -> Tensor:
        if _is_searched(self.kernel, data):
            return compute()
        key = content_hash((FORMAT, version("representer"), what, self.kernel, data))
        path = Path(self.directory) / f"{key}.gram"
        found = _read(path)
        if found is None:
            found = compute()
            _write(path, found)
        return found.to(data[0].device) if isinstance(data[0], Tensor) else found


def _is_searched(kernel: Kernel, data: tuple[Any, ...]) -> bool:
    """Does it hold tensors in the place of numbers, or could a gradient be asked?"""
    values = [getattr(v, name) for v in all_values(kernel) for name in v.hyperparameters]
    watched = any(isinstance(item, Tensor) and item.requires_grad for item in data)
    return watched or any(isinstance(value, Tensor) for value in values)


# -- files ----------------------------------------------------------------------------------------------------------
def _read(path: Path) -> Tensor | None:
    """The matrix in a file; None if there is none, or with a warning if it is damaged."""
    try:
        with path.open("rb") as file:
            checksum = file.read(32)
            array = np.load(file, allow_pickle=False)
        if _checksum(array) != checksum:
            raise ValueError("its checksum is wrong")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        warnings.warn(
            f"The stored Gram matrix {path} cannot be used ({error}); it is computed again.",
            RuntimeWarning,
            stacklevel=5,
        )
        return None
    return torch.from_numpy(array)


def _write(path: Path, matrix: Tensor) -> None:
    """Under a temporary name first: a reader sees the whole file or none."""
    array = np.ascontiguousarray(matrix.detach().cpu().numpy())
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_checksum(array))
            np.save(file, array, allow_pickle=False)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _checksum(array: np.ndarray) -> bytes:
    return hashlib.sha256(array.data if array.size else b"").digest()


# -- content --------------------------------------------------------------------------------------------------------
def content_hash(item: Any) -> str:
    """A hash of the content of data or of a kernel: equal contents give equal names in every process.

    Examples
    --------
    >>> from representer.kernels import Gaussian
    >>> from representer.kernels.cached import content_hash
    >>> content_hash((Gaussian(1.0), ["abc"])) == content_hash((Gaussian(1.0), ["a" + "bc"]))
    True
    >>> content_hash(Gaussian(1.0)) == content_hash(Gaussian(2.0))
    False
    """
    state = hashlib.sha256()
    _feed(state.update, item)
    return state.hexdigest()


def _feed(update: Callable[[bytes], None], item: Any) -> None:
    """Send an item to a hash, each part with its type and length so that no two contents read alike."""

    def part(kind: str, content: bytes) -> None:
        update(f"{kind} {len(content)}:".encode())
        update(content)

    def parts(kind: str, items: list[Any]) -> None:
        update(f"{kind} {len(items)}:".encode())
        for each in items:
            _feed(update, each)

    if item is None or isinstance(item, bool | int | float | complex | str):
        part(type(item).__name__, repr(item).encode())
    elif isinstance(item, bytes):
        part("bytes", item)
    elif isinstance(item, Value):
        parts("value", [_name(type(item)), item.get_params(deep=False)])
    elif isinstance(item, torch.nn.Module):
        parts("module", [_name(type(item)), repr(item), dict(item.state_dict())])
    elif isinstance(item, Tensor):
        parts("tensor", [str(item.dtype), item.detach().cpu().numpy()])
    elif isinstance(item, np.ndarray) and item.dtype != object and item.dtype.names is None:
        parts("array", [item.dtype.str, item.shape])
        part("entries", np.ascontiguousarray(item).tobytes())
    elif isinstance(item, np.ndarray):
        parts("objects", [item.shape, item.tolist()])
    elif isinstance(item, list | tuple):
        parts(type(item).__name__, list(item))
    elif isinstance(item, Mapping):
        parts(_name(type(item)), list(item.items()))
    elif isinstance(item, set | frozenset):
        parts("set", sorted(map(content_hash, item)))
    elif isinstance(item, FunctionType):
        cells = [cell.cell_contents for cell in item.__closure__ or ()]
        parts("function", [item.__code__, item.__defaults__, item.__kwdefaults__, cells])
    elif isinstance(item, CodeType):
        parts("code", [item.co_code, item.co_names, item.co_consts])
    elif is_dataclass(item):
        parts(_name(type(item)), [getattr(item, field.name) for field in fields(item)])
    elif hasattr(item, "is_multigraph"):  # networkx: its pickle changes when the graph is looked at
        parts(_name(type(item)), [item.graph, list(item.nodes(data=True)), list(item.edges(data=True))])
    else:
        part(_name(type(item)), _pickled(item))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _pickled(item: Any) -> bytes:
    try:
        return joblib.hash(item, hash_name="sha1").encode()
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"Cached cannot name the content of {item!r} ({error}). Use the kernel without Cached, or give objects "
            "that can be pickled."
        ) from error
