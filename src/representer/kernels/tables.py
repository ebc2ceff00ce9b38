"""Kernels of tables: records, each field with a kernel of its own, and rows of numbers, categories and dates with gaps.

The latter become coordinates that a kernel on vectors compares.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel, Wrapped, is_searched
from representer.kernels.learned import Mapped
from representer.kernels.strings import Spectrum
from representer.linalg import combine
from representer.notices import warn
from representer.samples import (
    Column,
    Data,
    Record,
    Records,
    as_list,
    as_records,
    as_vectors,
    column_of,
    first_positions,
    in_seconds,
    is_missing,
    plain,
    same_features,
)
from representer.values import (
    Hyperparameter,
    NonNegative,
    Rule,
    Setting,
    Value,
    Word,
    as_tensor,
    instance_of,
    is_real,
    number,
    per_row,
    same,
)

Field = str | tuple[str, ...]


class Columns(Kernel):
    """Σ_c w_c k_c(x_c, y_c) over the fields c of two records, or Π_c w_c k_c(x_c, y_c).

    The data are a data frame, a dictionary of columns, a structured array, or a list of dictionaries; in learners (and
    in cross-validation) a frame or a list of dictionaries. Columns without a kernel are ignored. Each kernel gets its
    column as it would get data by itself: numbers as an (n, 1) matrix, strings or other objects as a list.

    Parameters
    ----------
    kernels : dict
        The kernel of each field. A field is the name of a column, or a tuple of names: their numbers make one matrix
        (other kinds of data, tuples).
    combine : {"sum", "product"}
        In a sum two records are alike if some fields are, in a product if all are.
    weights : float, array (n_fields,) or "auto"
        One number for all, or one a field; ``"auto"``: learned, starting from 1. For a product only the product of
        the weights matters.

    Examples
    --------
    >>> from representer.kernels import Columns, Delta, Gaussian
    >>> k = Columns({"colour": Delta(), ("width", "height"): Gaussian(1.0)})
    >>> k({"colour": ["red", "blue", "red"], "width": [1, 1, 2], "height": [0, 0, 0]}).round(decimals=2).tolist()
    [[2.0, 1.0, 1.61], [1.0, 2.0, 0.61], [1.61, 0.61, 2.0]]
    >>> k.free(), Columns({"size": Gaussian("auto")}, weights="auto").free()
    ([], ['weights', 'kernels__size__lengthscale'])
    """

    domain: Domain = "records"
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"weights": Hyperparameter(NonNegative())}

    def __init__(
        self, kernels: Mapping[Field, Kernel], combine: Literal["sum", "product"] = "sum", *, weights: Setting = 1.0
    ):
        self.kernels = kernels
        self.combine = combine
        self.weights = weights

    # -- a value with a dictionary of values --------------------------------------------------------------------------
    def _children(self) -> Iterator[tuple[str, Value]]:
        for i, (field, kernel) in enumerate(self.kernels.items()):
            label = "+".join(map(str, _names(field)))
            yield f"kernels__{i if '__' in label else label}", kernel

    def _rebuild(self, change: Callable[[str, Any], Any]) -> Self:
        new = super()._rebuild(lambda name, argument: argument if name == "kernels" else change(name, argument))
        new.kernels = {
            field: change(name, child) for field, (name, child) in zip(self.kernels, self._children(), strict=True)
        }
        return new

    def _own_specification(self, name: str) -> Hyperparameter:
        shape = (len(self.kernels),) if self.combine == "sum" else ()
        start = Word(lambda X: torch.ones(shape, dtype=torch.float64), learned=True)
        return replace(super()._own_specification(name), words={"auto": start})

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible; there must be at least one kernel, and a name of its own for each parameter."""
        if not isinstance(self.kernels, Mapping) or not self.kernels:
            raise ValueError(
                f"kernels of Columns must be a dictionary with a kernel for each field; got {self.kernels!r}."
            )
        for field, kernel in self.kernels.items():
            if not isinstance(kernel, Kernel):
                raise ValueError(
                    f"Each field of Columns has a kernel, such as Gaussian('auto'), Delta() or Spectrum(3); {field!r} "
                    f"has {kernel!r}. Number(), Category(), Ordered([…]) and Date() are for Table(kernel, {{…}})."
                )
            if kernel.domain == "gram":
                raise ValueError(
                    f"The kernel of field {field!r} of Columns must not take Gram matrices; got {kernel!r}."
                )
        names: dict[str, Field] = {}
        for (name, _), field in zip(self._children(), self.kernels, strict=True):
            if name in names:
                raise ValueError(
                    f"The fields {names[name]!r} and {field!r} of Columns would share the parameter name {name!r}. "
                    "Rename a column."
                )
            names[name] = field
        if self.combine not in ("sum", "product"):
            raise ValueError(f"combine of Columns must be 'sum' or 'product'; got {self.combine!r}.")
        super().check_hyperparameters()
        if not isinstance(self.weights, str):
            self._weights()

    # -- data ---------------------------------------------------------------------------------------------------------
    def prepare(self, X: Data) -> Records:
        """The records as dictionaries with all columns, after each kernel has checked its own."""
        records = as_records(X).view()
        for field, kernel in self.kernels.items():
            field_data(records, field, kernel)
        return records

    def _resolve(self, X: Sequence[Record]) -> Self:
        new = self._rebuild(lambda _, argument: argument)
        new.kernels = {f: kernel._resolve(field_data(X, f, kernel)) for f, kernel in self.kernels.items()}
        if isinstance(self.weights, str):
            new.weights = self._own_specification("weights").words[self.weights].value(X).numpy()
        return new

    # -- Gram matrices ------------------------------------------------------------------------------------------------
    def addends(self) -> list[tuple[str, Kernel]]:
        """The kernels of the fields, named by the fields; a product is its only addend."""
        if self.combine != "sum":
            return super().addends()
        weights = [float(w) for w in self._weights()]
        fields = zip(self.kernels.items(), weights, strict=True)
        return [("+".join(map(str, _names(f))), Columns({f: k}, weights=w)) for (f, k), w in fields]

    def _weights(self) -> list[Tensor]:
        """The weights of the fields, each a number or a batch of them (..., 1, 1)."""
        weights, q = number(self, "weights"), len(self.kernels)
        if weights.ndim == 0 or weights.shape[-1] == 1:
            return [weights if weights.ndim > 1 else weights.reshape(())] * q
        if weights.shape[-1] != q:
            raise ValueError(f"Columns has {q} fields, but weights of shape {tuple(weights.shape)}: give one a field.")
        return [weights[..., i : i + 1] if weights.ndim > 1 else weights[i] for i in range(q)]

    def _gram(self, X: Sequence[Record], Y: Sequence[Record] | None) -> Tensor:
        grams = (self._field_gram(field, X, Y) for field in self.kernels)
        return self._combined(grams, lambda weight: weight)

    def _field_gram(self, field: Field, X: Sequence[Record], Y: Sequence[Record] | None) -> Tensor:
        """The Gram matrix of a field; that of a fixed kernel is computed once for a search of other numbers."""
        kernel = self.kernels[field]
        if Y is None and isinstance(X, Records) and torch.is_grad_enabled() and not is_searched(kernel):
            gram = X.remembered((field, kernel), lambda _: kernel._gram(field_data(X, field, kernel), None), same)
            return gram.clone()
        left = field_data(X, field, kernel)
        right = None if Y is None else field_data(Y, field, kernel)
        if isinstance(left, Tensor) and isinstance(right, Tensor):
            left, right = same_features(left, right)
        return kernel._gram(left, right)

    def _diag(self, X: Sequence[Record]) -> Tensor:
        diagonals = (kernel._diag(field_data(X, field, kernel)) for field, kernel in self.kernels.items())
        return self._combined(diagonals, per_row)

    def _combined(self, terms: Iterator[Tensor], shaped: Callable[[Tensor], Tensor]) -> Tensor:
        """The weighted sum, or product, of the fields' Gram matrices or diagonals."""
        operation = "add" if self.combine == "sum" else "mul"
        total: Tensor | None = None
        for term, weight in zip(terms, self._weights(), strict=True):
            weighted = combine("mul", term, shaped(weight).to(term))
            total = weighted if total is None else _combine(operation, total, weighted)
        assert total is not None  # there is at least one field
        return total


def _combine(operation: str, a: Tensor, b: Tensor) -> Tensor:
    """The sum or product in the memory of the larger, as only one may have a batch of hyperparameters."""
    return combine(operation, a, b) if a.ndim >= b.ndim else combine(operation, b, a)


# -- one field ------------------------------------------------------------------------------------------------------
def field_data(records: Sequence[Record], field: Field, kernel: Kernel) -> Data:
    """The data of one field, prepared for its kernel: a matrix for a kernel on vectors, else a list."""
    columns = [column_of(records, name, gaps=kernel.takes_gaps) for name in _names(field)]
    try:
        if kernel.domain == "vectors":
            return kernel.prepare(np.column_stack([np.asarray(c).reshape(len(c), -1) for c in columns]))
        return kernel.prepare(list(zip(*columns, strict=True)) if isinstance(field, tuple) else columns[0])
    except ValueError as error:
        raise ValueError(f"Column {field!r}: {error}") from error


def _names(field: Field) -> tuple[str, ...]:
    """The names of the columns of a field."""
    return field if isinstance(field, tuple) else (field,)


Stated = Any  # numbers, or a word that lets the data decide

# The length of each cycle of a date, in seconds.
CYCLES = {"year": 365.2425 * 86_400.0, "week": 7 * 86_400.0, "day": 86_400.0}


# Words for gaps among numbers or dates, in lower case and without blanks around them.
WORDS_FOR_GAPS = {
    *("", "-", "--", "–", "—", ".", "..", "...", "?", "na", "n/a", "#n/a", "<na>", "n.a.", "nd", "n.d.", "nan", "nat"),
    *("none", "null", "missing", "unknown", "not available", "not determined", "#null!", "#value!", "#div/0!"),
}


def is_word_for_gap(entry: object) -> bool:
    """Is an entry one of the words for gaps among numbers or dates?"""
    return isinstance(entry, str) and entry.strip().lower() in WORDS_FOR_GAPS


def is_gap(entry: object) -> bool:
    """Is an entry of a column of numbers or dates missing, or a word for a gap?"""
    return is_missing(entry) or is_word_for_gap(entry)


def as_numbers(column: Column) -> np.ndarray:
    """The entries of a column as numbers (n,), lengths of time in seconds, with NaN for gaps and words for them."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    entries = [np.nan if is_gap(entry) else in_seconds(entry) for entry in column]
    numbers = np.array([as_number(entry) for entry in entries], dtype=object)
    wrong = [i for i, entry in enumerate(numbers) if entry is None]
    if wrong:
        raise ValueError(
            f"Row(s) {first_positions(wrong)} are no numbers; the first of them is {entries[wrong[0]]!r}. Convert the "
            "column (pandas.to_numeric), or take it for categories: Category()."
        )
    return numbers.astype(np.float64)


def as_number(entry: Any) -> float | None:
    """A real number, a truth value, or the text of a number; None for anything else."""
    if is_real(entry) or isinstance(entry, bool | np.bool_ | Decimal):
        return float(entry)
    try:
        return float(entry) if isinstance(entry, str) else None
    except ValueError:
        return None


# -- one column ---------------------------------------------------------------------------------------------------
class Encoding(Value, ABC):
    """The coordinates (n, q) of the entries of one column; ``fitted`` decides the arguments that are ``"data"``."""

    @abstractmethod
    def fitted(self, column: Column) -> Self:
        """The encoding with the mean and deviation, the levels or the cycles of a column."""

    @abstractmethod
    def coordinates(self, column: Column) -> np.ndarray:
        """The coordinates (n, q) of the entries of a column."""

    @abstractmethod
    def entry_numbers(self, column: Column) -> np.ndarray:
        """One number (n,) for each entry of a column, the same one for equal entries; NaN for gaps."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number q of coordinates of a fitted encoding."""


class Numeric(Encoding, ABC):
    """An encoding of the numbers x that stand for entries: (x − center) / scale, and a coordinate that marks gaps."""

    center: Stated
    scale: Stated
    gaps: Stated

    def fitted(self, column: Column) -> Self:
        return self._decided(self.entry_numbers(column))

    def _decided(self, numbers: np.ndarray, **others: object) -> Self:
        """The encoding with the mean and deviation of numbers, their gaps, and other arguments, in place of words."""
        _refuse_infinity(numbers)
        present = numbers[~np.isnan(numbers)]
        center, scale = _center_and_scale(present)
        decided = {"center": center, "scale": scale, "gaps": len(present) < len(numbers), **others}
        return self._rebuild(lambda name, v: decided.get(name, v) if isinstance(v, str) else v)

    def coordinates(self, column: Column) -> np.ndarray:
        return self._scaled(self.entry_numbers(column))

    def _scaled(self, numbers: np.ndarray) -> np.ndarray:
        _refuse_infinity(numbers)
        absent = np.isnan(numbers)
        scaled = np.where(absent, 0.0, (numbers - self.center) / self.scale)
        return np.stack([scaled, absent.astype(np.float64)] if self.gaps else [scaled], 1)

    @property
    def width(self) -> int:
        return 1 + bool(self.gaps)


class Number(Numeric):
    """(x − center) / scale; a gap is the center, and where the column had gaps, one more coordinate says so.

    Parameters
    ----------
    center, scale : float or "data"
        ``"data"``: the mean and the deviation of the column of the fit.
    gaps : bool or "data"
        Does a coordinate mark the gaps? ``"data"``: if the column of the fit has some.

    Examples
    --------
    >>> from representer.kernels import Number
    >>> Number().fitted([1.0, None, 3.0])
    Number(center=2.0, scale=1.0, gaps=True)
    >>> Number(2.0, 1.0, gaps=True).coordinates([5.0, None]).tolist()
    [[3.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, center: Stated = "data", scale: Stated = "data", gaps: Stated = "data"):
        self.center = center
        self.scale = scale
        self.gaps = gaps

    def entry_numbers(self, column: Column) -> np.ndarray:
        return as_numbers(column)


def _refuse_infinity(numbers: np.ndarray) -> None:
    infinite = np.flatnonzero(np.isinf(numbers)).tolist()
    if infinite:
        raise ValueError(
            f"The column has infinite entries, in row(s) {first_positions(infinite)}. Mark them as gaps (NaN), or cut "
            "them."
        )


def _center_and_scale(present: np.ndarray) -> tuple[float, float]:
    """The mean and the deviation of numbers; 0 and 1 without numbers, the deviation 1 where all are equal.

    They are computed in units of the largest number, so that squares are in range.
    """
    if not len(present):
        return 0.0, 1.0
    unit = float(np.abs(present).max()) or 1.0
    center, scale = float((present / unit).mean()), float((present / unit).std())
    constant = not scale > len(present) * np.finfo(np.float64).eps
    return unit * center, 1.0 if constant else unit * scale


class Category(Encoding):
    """One coordinate for each level, 1 where an entry has that level; a gap is a level of its own.

    Two levels are √2 apart, as two numbers with deviation one are in the mean square. A level that the column did
    not have has all coordinates 0: it is 1 away from every level, and equal to any other unknown one.

    Parameters
    ----------
    levels : list or "data"
        The levels, None for a gap among them.

    Examples
    --------
    >>> from representer.kernels import Category
    >>> Category().fitted(["red", "blue", "red"])
    Category(levels=['blue', 'red'])
    >>> Category(["blue", "red"]).coordinates(["red", "green"]).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    def __init__(self, levels: Stated = "data"):
        self.levels = levels

    def fitted(self, column: Column) -> Self:
        if not isinstance(self.levels, str):
            return self
        levels = sorted(set(map(as_level, column)), key=lambda level: (level is None, str(type(level)), str(level)))
        return self._with_arguments(levels=levels)

    def coordinates(self, column: Column) -> np.ndarray:
        codes = self._places(column)
        rows = np.flatnonzero(codes >= 0)
        coordinates = np.zeros((len(codes), len(self.levels)))
        coordinates[rows, codes[rows]] = 1.0
        return coordinates

    def entry_numbers(self, column: Column) -> np.ndarray:
        return Category().fitted(column)._places(column).astype(np.float64)

    def _places(self, column: Column) -> np.ndarray:
        """The places of the entries among the levels (n,), −1 for an unknown level."""
        place = {level: i for i, level in enumerate(self.levels)}
        return np.fromiter((place.get(as_level(entry), -1) for entry in column), np.int64, len(column))

    @property
    def width(self) -> int:
        return len(self.levels)


def as_level(entry: object) -> Hashable:
    """An entry as a level of a category: None for a gap, a number of NumPy as one of Python."""
    if is_missing(entry):
        return None
    entry = entry.item() if isinstance(entry, np.generic) else entry
    try:
        hash(entry)
    except TypeError:
        raise ValueError(f"A category is a word, a number or a tuple of them; got {entry!r:.60}.") from None
    return entry


class Ordered(Numeric):
    """The place of a level in a list of them, as a ``Number``; unknown levels are gaps.

    Parameters
    ----------
    levels : list
        The levels, from the least to the greatest.
    center, scale, gaps
        As in ``Number``, in places.

    Examples
    --------
    >>> from representer.kernels import Ordered
    >>> Ordered(["low", "mid", "high"]).fitted(["low", "high"]).coordinates(["mid"]).tolist()
    [[0.0]]
    """

    def __init__(self, levels: Stated, center: Stated = "data", scale: Stated = "data", gaps: Stated = "data"):
        self.levels = levels
        self.center = center
        self.scale = scale
        self.gaps = gaps

    def entry_numbers(self, column: Column) -> np.ndarray:
        place = {as_level(level): float(i) for i, level in enumerate(self.levels)}
        return np.array([place.get(as_level(entry), np.nan) for entry in column])


class Date(Numeric):
    """The time as a ``Number`` of seconds, and for each cycle two coordinates on a circle: trend and season.

    Parameters
    ----------
    center, scale, gaps
        As in ``Number``, in seconds since 1970.
    cycles : tuple of {"year", "week", "day"} or "data"
        ``"data"``: the cycles that the column spans at least twice and shows at more than one phase.

    Examples
    --------
    >>> from representer.kernels import Date
    >>> Date().fitted(["2020-01-01", "2021-07-01", "2023-03-01"]).cycles
    ('year', 'week')
    """

    def __init__(
        self,
        center: Stated = "data",
        scale: Stated = "data",
        gaps: Stated = "data",
        cycles: Stated = "data",
    ):
        self.center = center
        self.scale = scale
        self.gaps = gaps
        self.cycles = cycles

    def fitted(self, column: Column) -> Self:
        seconds = self.entry_numbers(column)
        cycles = tuple(name for name, period in CYCLES.items() if _has_cycle(seconds, period))
        return self._decided(seconds, cycles=cycles)

    def coordinates(self, column: Column) -> np.ndarray:
        seconds = self.entry_numbers(column)
        coordinates = [self._scaled(seconds)]
        for name in self.cycles:
            angle = 2.0 * np.pi * seconds / CYCLES[name]
            coordinates += [np.nan_to_num(np.stack([np.cos(angle), np.sin(angle)], 1))]
        return np.concatenate(coordinates, 1)

    def entry_numbers(self, column: Column) -> np.ndarray:
        return as_seconds_since_1970(column)

    @property
    def width(self) -> int:
        return super().width + 2 * len(self.cycles)


def as_seconds_since_1970(column: Column) -> np.ndarray:
    """Dates of Python, NumPy, pandas or ISO texts as seconds (n,), with NaN for gaps and words for them."""
    try:
        dates = [np.datetime64("NaT") if is_gap(entry) else _as_datetime(entry) for entry in column]
        moments = np.array(dates, dtype="datetime64[us]")
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"A date is a datetime, or a text like '2024-03-31' or '2024-03-31T12:00': {error}. Convert the column "
            "(pandas.to_datetime)."
        ) from None
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)


def is_period(entry: object) -> bool:
    """Is an entry a period of pandas, such as a month? It stands for the date at which it begins."""
    return type(entry).__name__ == "Period"


def _as_datetime(entry: Any) -> np.datetime64:
    """One date without its zone, in UTC."""
    entry = entry.to_timestamp() if is_period(entry) else entry
    entry = entry.to_pydatetime() if hasattr(entry, "to_pydatetime") else entry
    if getattr(entry, "tzinfo", None) is not None:
        entry = (entry - entry.utcoffset()).replace(tzinfo=None)
    return np.datetime64(entry.strip() if isinstance(entry, str) else entry, "us")


def _has_cycle(seconds: np.ndarray, period: float) -> bool:
    """Do the times span two periods, and have more than one phase of them?"""
    present = seconds[~np.isnan(seconds)]
    phases = np.unique(np.round(present % period / period, 2) % 1.0)
    return len(present) > 1 and float(np.ptp(present)) >= 2.0 * period and len(phases) > 1


# -- all columns ----------------------------------------------------------------------------------------------------
def _are_encodings(columns: object) -> bool:
    return isinstance(columns, Mapping) and bool(columns) and all(isinstance(v, Encoding) for v in columns.values())


class Table(Mapped):
    """A kernel on vectors, applied to the coordinates of the columns of a table: k(c(x), c(y)).

    The scale of a number, the name of a level and the order of the columns do not matter; columns that are not
    named are ignored. A lengthscale for each feature (``"ard"``) is one for each *column*, whatever the number of its
    coordinates.

    Parameters
    ----------
    kernel : Kernel
        On vectors, such as ``Gaussian("auto")``.
    columns : dict
        The encoding of each column: ``Number()``, ``Category()``, ``Ordered([…])`` or ``Date()``.

    Examples
    --------
    >>> from representer.kernels import Category, Gaussian, Number, Table
    >>> k = Table(Gaussian(1.0), {"size": Number(), "colour": Category()})
    >>> k({"size": [1.0, 3.0, None], "colour": ["red", "blue", "red"]}).round(decimals=3).tolist()
    [[1.0, 0.05, 0.368], [0.05, 1.0, 0.135], [0.368, 0.135, 1.0]]
    """

    domain: Domain = "records"
    rules = {
        "kernel": instance_of("a kernel on vectors", Kernel),
        "columns": Rule(
            "a dictionary with an encoding, Number(), Category(), Ordered([…]) or Date(), for each column",
            _are_encodings,
            " Kernels of columns are for Columns({…}).",
        ),
    }

    def __init__(self, kernel: Kernel, columns: Mapping[str, Encoding]):
        self.kernel = kernel
        self.columns = columns

    def _children(self) -> Iterator[tuple[str, Value]]:
        yield "kernel", self.kernel

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible; the kernel must be one on vectors."""
        super().check_hyperparameters()
        if self.kernel.domain != "vectors":
            raise ValueError(f"kernel of Table must take vectors; got {self.kernel!r}.")

    def prepare(self, X: Data) -> Records:
        """The records, which must have all columns."""
        records = as_records(X).view()
        for name in self.columns:
            column_of(records, name, gaps=True)
        return records

    def _resolve(self, X: Sequence[Record]) -> Self:
        fitted = {name: self._encoded(name, lambda e, column: e.fitted(column), X) for name in self.columns}
        new = self._with_arguments(columns=fitted)
        return new._with_arguments(kernel=new._with_one_a_column(self.kernel._resolve(new._image(X))))

    def _encoded(self, name: str, method: Callable[[Encoding, Column], Any], X: Sequence[Record]) -> Any:
        """The result of a method of the encoding of a column for its entries; an error names the column."""
        try:
            return method(self.columns[name], column_of(X, name, gaps=True))
        except ValueError as error:
            raise ValueError(f"Column {name!r}: {error}") from error

    # -- coordinates ------------------------------------------------------------------------------------------------
    def _image(self, X: Sequence[Record]) -> Tensor:
        """The coordinates (n, q) of all columns side by side, computed once for the same records."""
        if isinstance(X, Records):
            return X.remembered(self.columns, self._coordinates, same)
        return self._coordinates(X)

    def _coordinates(self, X: Sequence[Record]) -> Tensor:
        coordinates, begin = np.empty((len(X), int(self._widths.sum()))), 0
        for name, encoding in self.columns.items():
            column_coordinates = coordinates[:, begin : begin + encoding.width]
            column_coordinates[:] = self._encoded(name, lambda e, column: e.coordinates(column), X)
            begin += encoding.width
        return torch.from_numpy(coordinates)

    @property
    def bytes_per_row(self) -> int:
        """The memory of the coordinates of one record, with copies in units of lengthscales and for distances."""
        return 4 * 8 * int(self._widths.sum())

    def entry_numbers(self, X: Sequence[Record]) -> np.ndarray:
        """One number for each entry of the columns (n, n_columns): records are equal where their numbers are."""
        numbers = [self._encoded(name, lambda e, column: e.entry_numbers(column), X) for name in self.columns]
        return np.where(np.isnan(numbers), np.nan, numbers).T

    @property
    def _widths(self) -> Tensor:
        return torch.tensor([encoding.width for encoding in self.columns.values()])

    # -- a lengthscale for each column --------------------------------------------------------------------------------
    def _with_one_a_column(self, kernel: Kernel) -> Kernel:
        """The kernel whose vectors of hyperparameters have one number for each column: the mean of its coordinates."""
        means = {}
        for name, value in kernel.hyperparameter_values().items():
            if value.ndim == 1 and len(value) == int(self._widths.sum()):
                means[name] = torch.stack([column.mean() for column in value.split(self._widths.tolist())]).numpy()
        return kernel.replace(means)

    @property
    def _inner(self) -> Kernel:
        """The kernel whose vectors of hyperparameters have one number for each coordinate."""
        repeated = {}
        for name, value in self.kernel.hyperparameter_values().items():
            if value.ndim and value.shape[-1] == len(self.columns) > 1:
                repeated[name] = value.repeat_interleave(self._widths.to(value.device), -1)
        return self.kernel.replace(repeated) if repeated else self.kernel


class UnknownCategoryWarning(UserWarning):
    """A column of categories has no entry that the fit has seen."""


def _tables_of_records(kernel: Value) -> Iterator[Table]:
    """The tables that see the records themselves, not the entries of one of their columns."""
    if isinstance(kernel, Table):
        yield kernel
    elif not isinstance(kernel, Columns):
        for _, child in kernel._children():
            yield from _tables_of_records(child)


def warn_of_unknown(kernel: Value, X: Sequence[Record]) -> None:
    """Warn about columns of categories with several entries (or one in all) of which the fit has seen none.

    Examples
    --------
    >>> import warnings
    >>> from representer.kernels import Category, Gaussian, Table, warn_of_unknown
    >>> from representer.samples import as_records
    >>> kernel = Table(Gaussian(1.0), {"colour": Category(["red", "blue"])})
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_unknown(kernel, as_records({"colour": ["Red", "Blue"]}))
    >>> caught[0].category.__name__
    'UnknownCategoryWarning'
    """
    encodings = {name: encoding for table in _tables_of_records(kernel) for name, encoding in table.columns.items()}
    unknown = []
    for name, encoding in encodings.items():
        if isinstance(encoding, Category | Ordered) and not isinstance(encoding.levels, str):
            levels = [as_level(entry) for entry in column_of(X, name, gaps=True) if not is_missing(entry)]
            if len(levels) > min(1, len(X) - 1) and not set(map(as_level, encoding.levels)).intersection(levels):
                unknown.append(repr(name))
    if unknown:
        warn(
            f"No entry of column {', '.join(unknown)} is a category that the fit has seen: each is taken for one new "
            "category, equally far from the others. Look at how the column is coded: upper and lower case, blanks, "
            "numbers or text.",
            UnknownCategoryWarning,
        )


# -- vectors whose columns have units and gaps ------------------------------------------------------------------------
class Standardized(Mapped):
    """k((x − center) / scale, (y − center) / scale): the units of the columns do not matter.

    Parameters
    ----------
    kernel : Kernel
        On vectors.
    center, scale : array (n_features,) or "data"
        ``"data"``: the means and the deviations of the columns of the fit, for which gaps (NaN) do not count.

    Examples
    --------
    >>> from representer.kernels import Gaussian, Standardized
    >>> k = Standardized(Gaussian(1.0))
    >>> bool((k([[1.0, 20.0], [2.0, 10.0]]) - k([[-5.0, 2.0], [-4.0, 1.0]])).abs().max() < 1e-12)
    True
    """

    domain: Domain = "vectors"
    rules = {"kernel": instance_of("a kernel on vectors", Kernel)}

    def __init__(self, kernel: Kernel, center: Stated = "data", scale: Stated = "data"):
        self.kernel = kernel
        self.center = center
        self.scale = scale

    @property
    def takes_gaps(self) -> bool:
        """Does the kernel inside take NaN?"""
        return self.kernel.takes_gaps

    def prepare(self, X: Data) -> Data:
        """Numbers as a tensor, with gaps where the kernel inside takes them."""
        return as_vectors(X, gaps=self.takes_gaps)

    def _fitted(self, X: Tensor) -> Self:
        columns = X.detach().reshape(-1, X.shape[-1]).double().cpu().numpy()
        centers, scales = np.array([_center_and_scale(column[~np.isnan(column)]) for column in columns.T]).T
        fitted = {"center": centers, "scale": scales}
        return self._rebuild(lambda name, argument: fitted[name] if isinstance(argument, str) else argument)

    def _image(self, X: Tensor) -> Tensor:
        return (X - as_tensor(self.center).to(X)) / as_tensor(self.scale).to(X)


class Missing(Mapped):
    """A kernel on vectors with gaps (NaN): the mean stands in a gap, and one more coordinate says that it is one.

    Parameters
    ----------
    kernel : Kernel
        On vectors; it sees the columns, and beside them one more for each column in ``gaps``: 1 in a gap, else 0.
    center : array (n_features,) or "data"
        The numbers that stand in the gaps; ``"data"``: the means of the columns of the fit.
    gaps : array of int or "data"
        The columns whose gaps are marked; ``"data"``: those that have some in the fit.

    Examples
    --------
    >>> from representer.kernels import Linear, Missing
    >>> k = Missing(Linear()).resolve([[1.0, 5.0], [3.0, float("nan")]])
    >>> k
    Missing(kernel=Linear(), center=[2.0, 5.0], gaps=[1])
    >>> k.features(k.prepare([[float("nan"), float("nan")]])).tolist()
    [[2.0, 5.0, 1.0]]
    """

    domain: Domain = "vectors"
    rules = {"kernel": instance_of("a kernel on vectors", Kernel)}

    def __init__(self, kernel: Kernel, center: Stated = "data", gaps: Stated = "data"):
        self.kernel = kernel
        self.center = center
        self.gaps = gaps

    @property
    def takes_gaps(self) -> bool:
        """Yes: gaps (NaN) are what this kernel is for."""
        return True

    def prepare(self, X: Data) -> Data:
        """Numbers as a tensor, with NaN for gaps."""
        return as_vectors(X, gaps=True)

    def _fitted(self, X: Tensor) -> Self:
        columns = X.detach().reshape(-1, X.shape[-1]).double().cpu().numpy()
        absent = np.isnan(columns)
        means = np.array([_center_and_scale(column[~np.isnan(column)])[0] for column in columns.T])
        fitted = {"center": means, "gaps": np.flatnonzero(absent.any(0))}
        return self._rebuild(lambda name, argument: fitted[name] if isinstance(argument, str) else argument)

    def _image(self, X: Tensor) -> Tensor:
        absent = X.isnan()
        filled = torch.where(absent, as_tensor(self.center).to(X), X)
        columns = torch.as_tensor(np.asarray(self.gaps, dtype=np.int64), device=X.device)
        return torch.cat([filled, absent[..., columns].to(X)], -1)


# -- texts, pictures, gaps --------------------------------------------------------------------------------------------
class Words(Mapped):
    """A kernel of texts by their common words: the cosine between the counts of runs of words.

    Parameters
    ----------
    length : int or (int, int)
        The number of words in a run, or the least and the largest number.

    Examples
    --------
    >>> from representer.kernels import Words
    >>> Words()(["a red house", "The red, red rose"]).round(decimals=3).tolist()
    [[1.0, 0.471], [0.471, 1.0]]
    """

    domain: Domain = "objects"

    def __init__(self, length: int | tuple[int, int] = 1):
        self.length = length

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The kernel of lists of words."""
        return Spectrum(self.length).normalized()

    def prepare(self, X: Data) -> list[Any]:
        """The texts as lists of lower-case words; a list or a set of words is one already."""
        texts = as_list(X, "texts", "Words")
        wrong = [i for i, text in enumerate(texts) if not isinstance(text, str | list | tuple | set | frozenset)]
        if wrong:
            raise ValueError(
                f"Words takes texts, or lists of words; got {type(texts[wrong[0]]).__name__} at position {wrong[0]}."
            )
        return list(map(_as_words, texts))

    def _resolve(self, X: Data) -> Self:
        return self

    def _image(self, X: list[Any]) -> list[Any]:
        return X


def _as_words(text: Any) -> tuple[str, ...]:
    """The words of a text in lower case; of a set, in order. A text without words has one, the empty word."""
    if isinstance(text, tuple):
        return text
    if isinstance(text, str):
        words = re.findall(r"\w+", text.lower())
    else:
        words = sorted(text) if isinstance(text, set | frozenset) else text
    return tuple(words) or ("",)


class Pixels(Mapped):
    """A kernel on vectors, applied to the entries of arrays of one shape: pictures, or curves on a common grid.

    Parameters
    ----------
    kernel : Kernel
        On vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.kernels import Linear, Pixels
    >>> Pixels(Linear())(np.ones((2, 3, 4))).tolist()
    [[12.0, 12.0], [12.0, 12.0]]
    """

    domain: Domain = "objects"
    rules = {"kernel": instance_of("a kernel on vectors", Kernel)}

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def prepare(self, X: Data) -> list[Any]:
        """The arrays as a list, checked to have one shape."""
        arrays = [np.asarray(plain(item), dtype=np.float64) for item in as_list(X, "arrays", "Pixels")]
        shapes = sorted({array.shape for array in arrays})
        if len(shapes) > 1:
            raise ValueError(f"Pixels takes arrays of one shape; got {shapes[0]} and {shapes[1]}. Resize or cut them.")
        as_vectors(np.stack([array.reshape(-1) for array in arrays]))
        return arrays

    def _image(self, X: list[Any]) -> Tensor:
        return torch.from_numpy(np.stack([array.reshape(-1) for array in X]))


class Optional(Wrapped):
    """A kernel of objects that may be missing (None or NaN): 1 for two gaps, 0 for an object and a gap.

    Parameters
    ----------
    kernel : Kernel
        On objects.

    Examples
    --------
    >>> from representer.kernels import Optional, Spectrum
    >>> Optional(Spectrum(1).normalized())(["ab", None, "ac"]).round(decimals=3).tolist()
    [[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 1.0]]
    """

    rules = {"kernel": instance_of("a kernel object", Kernel)}
    takes_gaps = True

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def prepare(self, X: Data) -> list[Any]:
        """The objects as the kernel takes them, and None for gaps."""
        items = as_list(X, "objects", "Optional")
        present = [item for item in items if not is_missing(item)]
        prepared = iter(self.kernel.prepare(present) if present else [])
        return [None if is_missing(item) else next(prepared) for item in items]

    def _resolve(self, X: list[Any]) -> Self:
        present = [item for item in X if item is not None]
        return self._rebuild(lambda _, kernel: kernel._resolve(present) if present else kernel)

    def _gram(self, X: list[Any], Y: list[Any] | None) -> Tensor:
        left, right = _present(X), _present(X if Y is None else Y)
        if len(left) == len(X) and (Y is None or len(right) == len(Y)):
            return self.kernel._gram(X, Y)
        gaps = [torch.tensor([item is None for item in items]) for items in (X, X if Y is None else Y)]
        gram = (gaps[0][:, None] & gaps[1]).to(torch.float64)
        if len(left) and len(right):
            rows = [X[i] for i in left]
            inner = self.kernel._gram(rows, None if Y is None else [Y[j] for j in right])
            gram = gram.to(inner.dtype).expand(*inner.shape[:-2], *gram.shape).clone()
            gram[..., torch.tensor(left)[:, None], torch.tensor(right)] = inner
        return gram

    def _diag(self, X: list[Any]) -> Tensor:
        present = _present(X)
        diagonal = torch.ones(len(X), dtype=torch.float64)
        if present:
            inner = self.kernel._diag([X[i] for i in present])
            diagonal = diagonal.to(inner.dtype).expand(*inner.shape[:-1], len(X)).clone()
            diagonal[..., torch.tensor(present)] = inner
        return diagonal


def _present(X: list[Any]) -> list[int]:
    return [i for i, item in enumerate(X) if item is not None]
