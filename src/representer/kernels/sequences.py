"""Strings, sequences of hashable symbols: what kernels accept as such, and as numbers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor

from representer.data import as_items, is_single
from representer.kernels.base import Domain, Kernel


class StringKernel(Kernel, ABC):
    """A kernel on strings: ``str``, ``bytes``, or tuples and lists (or one-dimensional arrays) of hashable symbols."""

    domain: Domain = "objects"

    def prepare(self, X: Any) -> list[Any]:
        """The strings as a list, checked: all of one kind, with symbols that can be compared."""
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        if is_single(X) or isinstance(X, Set):
            one = (
                f"one {type(X).__name__}. Pass [{X[:20]!r}]"
                if isinstance(X, str | bytes)
                else type(X).__name__
            )
            raise ValueError(f"{type(self).__name__} takes a list of strings; got {one}.")
        X = as_items(X)
        if isinstance(X, np.ndarray):
            X = self._rows(X)
        strings = X if isinstance(X, list) else list(X)
        if not strings:
            raise ValueError("Found 0 strings: a kernel needs at least one (which may be empty).")
        if one_kind(strings) not in (str, bytes):
            _check_symbols(strings)
        return strings

    def _rows(self, X: np.ndarray) -> Any:
        """One string a row."""
        if X.dtype.kind in "fc":
            raise ValueError(
                f"{type(self).__name__} takes strings, but X is an array of real numbers. Choose a kernel on "
                "vectors, or pass integer symbols."
            )
        rows = X.tolist()
        if X.ndim == 2 and any(
            isinstance(cell, str | bytes) and len(cell) > 1 for row in rows for cell in row
        ):
            raise ValueError(
                f"{type(self).__name__} takes one string a sample, but X has {X.shape[1]} columns of them. Choose one, "
                "or give each column a kernel: Columns({'name': Spectrum(3), …}). If each is one symbol of a longer "
                "string, pass [tuple(row) for row in X]."
            )
        return rows


def _kind(item: Any) -> type | None:
    if isinstance(item, str | bytes):
        return str if isinstance(item, str) else bytes
    is_sequence = isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim == 1)
    return tuple if is_sequence else None


def one_kind(strings: Sequence[Any]) -> type:
    """The kind of all strings: str, bytes, or tuple for every other sequence."""
    kinds: dict[type | None, int] = {}  # with the first position of each
    for i, item in enumerate(strings):
        kinds.setdefault(_kind(item), i)
    if None in kinds:
        wrong = [i for i, item in enumerate(strings) if _kind(item) is None]
        raise ValueError(
            f"A string is a str, bytes, or a tuple or list of hashable symbols; {len(wrong)} of {len(strings)} objects "
            f"are not, at positions {', '.join(map(str, wrong[:5]))}{' …' if len(wrong) > 5 else ''} (the first is "
            f"{strings[wrong[0]]!r:.60}). Convert or remove these samples."
        )
    if len(kinds) > 1:
        found = " and ".join(f"{kind.__name__} (position {i})" for kind, i in kinds.items() if kind)
        raise ValueError(
            f"The strings are of different kinds: {found}; their symbols would never be equal. Convert all to one kind."
        )
    return next(kind for kind in kinds if kind is not None)


def _check_symbols(strings: Sequence[Any]) -> None:
    """Every symbol is hashable and equal to itself."""
    try:
        if not any(map(_problem, set(chain.from_iterable(strings)))):
            return
    except TypeError:  # not hashable
        pass
    for i, string in enumerate(strings):
        for j, symbol in enumerate(string):
            if problem := _problem(symbol):
                raise ValueError(
                    f"Symbol {j} of string {i}, {symbol!r:.60}, {problem}. Symbols are numbers, str, tuples of them "
                    "…; give a gap a symbol of its own."
                )


def _problem(symbol: Any) -> str | None:
    try:
        hash(symbol)
    except TypeError:
        return "is not hashable"
    try:
        return None if symbol == symbol else "is not equal to itself"
    except (TypeError, ValueError):
        return "cannot be compared"


@dataclass(frozen=True)
class Coded:
    """Strings one after another, their symbols numbered from 0 on."""

    symbols: np.ndarray
    lengths: np.ndarray
    alphabet: list[Hashable]  # the symbol of each number

    def rows(self) -> np.ndarray:
        """The string that each position belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


def coded(strings: Sequence[Any], others: Sequence[Any] | None = None) -> Coded:
    """Number the symbols of strings of one kind, and of others after them."""
    if others is not None:
        kinds = one_kind(strings).__name__, one_kind(others).__name__
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"X and Y (in learners, the training data) hold strings of different kinds, {kinds[0]} and {kinds[1]}: "
                "their symbols would never be equal. Convert all to one kind."
            )
        strings = [*strings, *others]
    kind = one_kind(strings)
    lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
    if kind is tuple:
        flat = list(chain.from_iterable(strings))
        numbers = {symbol: i for i, symbol in enumerate(dict.fromkeys(flat))}
        symbols = np.fromiter(map(numbers.__getitem__, flat), dtype=np.int64, count=len(flat))
        return Coded(symbols, lengths, list(numbers))
    if kind is str:
        points = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    else:
        points = np.frombuffer(b"".join(strings), dtype=np.uint8)
    present = np.bincount(points) > 0  # there are little more than a million code points
    alphabet: list[Any] = np.flatnonzero(present).tolist()
    symbols = (np.cumsum(present) - 1)[points]
    return Coded(symbols, lengths, list(map(chr, alphabet)) if kind is str else alphabet)
