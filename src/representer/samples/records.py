"""Samples with named columns: frames of any library, dictionaries of columns, lists of dictionaries."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from representer.values import same

Data = Any  # samples as a user passes them
Record = Mapping[Hashable, Any]
Column = Sequence[Any] | np.ndarray

# The number of results that records remember, enough for the members of a stack and the kernel of a search.
REMEMBERED = 4


class Absent:
    """The placeholder in a column for a dictionary that has no entry of that name."""

    def __repr__(self) -> str:
        return "absent"

    def __reduce__(self) -> str:
        return "ABSENT"  # a single object, compared by identity


ABSENT = Absent()


class Records(Sequence[Record]):
    """Samples stored as columns, which are a sequence of dictionaries and remember results computed from them.

    Parameters
    ----------
    columns : dict
        The entries of each column: arrays of numbers, or lists.

    Examples
    --------
    >>> from representer.samples import Records
    >>> records = Records({"name": ["a", "b"], "size": [1, 2]})
    >>> records[1], len(records)
    ({'name': 'b', 'size': 2}, 2)
    """

    def __init__(self, columns: Mapping[Any, Column]):
        self.columns = dict(columns)
        self._memory: list[tuple[Any, Any]] = []

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice | list[int] | np.ndarray) -> Records: ...
    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return Records({name: column[index] for name, column in self.columns.items()})
        if isinstance(index, list | np.ndarray):
            return self.take(np.asarray(index))
        return {name: column[index] for name, column in self.columns.items() if column[index] is not ABSENT}

    def take(self, rows: np.ndarray) -> Records:
        """The records with these numbers."""
        return Records({name: _taken(column, rows) for name, column in self.columns.items()})

    def view(self) -> Records:
        """The same columns with a memory of their own, which ends with the view."""
        return Records(self.columns)

    def copy(self) -> Records:
        """The same records in lists and arrays of their own."""
        return Records({name: column.copy() for name, column in self.columns.items()})

    def remembered(self, key: object, compute: Callable[[Records], Any], equal: Callable[[Any, Any], bool]) -> Any:
        """The result for this key, remembered from an equal key or computed now."""
        for earlier_key, result in self._memory:
            if earlier_key is key or equal(earlier_key, key):
                return result
        result = compute(self)
        self._memory = [*self._memory[1 - REMEMBERED :], (key, result)]
        return result

    def __iter__(self) -> Iterator[Record]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Records):
            return self.columns.keys() == other.columns.keys() and all(
                _equal_columns(column, other.columns[name]) for name, column in self.columns.items()
            )
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __getstate__(self) -> dict[str, Any]:
        return {"columns": self.columns, "_memory": []}  # remembered results only save time


def _equal_columns(one: Column, two: Column) -> bool:
    """Have two columns the same entries, and gaps at the same places?"""
    if one is two:
        return True
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return np.array_equal(one, two, equal_nan=one.dtype.kind == two.dtype.kind == "f")
    return len(one) == len(two) and all(
        a is b or (is_missing(a) and is_missing(b)) or same(a, b) for a, b in zip(one, two, strict=True)
    )


def _taken(column: Column, rows: np.ndarray) -> Column:
    return column[rows] if isinstance(column, np.ndarray) else [column[int(i)] for i in rows]


def frame_columns(X: Data) -> dict[Any, Any] | None:
    """The columns of a frame (pandas, polars, pyarrow), a dictionary, a structured array or dictionaries, by name.

    It is None for samples without named columns.
    """
    if isinstance(X, Records):
        return X.columns
    if isinstance(X, Mapping):
        return dict(X)
    if hasattr(X, "column_names") and hasattr(X, "column"):  # pyarrow, whose own columns are chunks of scalars
        refuse_equal_names(X)
        return {name: _of_pyarrow(X.column(name)) for name in X.column_names}
    if hasattr(X, "columns"):
        refuse_equal_names(X)
        return {name: X[name] for name in X.columns}
    if isinstance(X, np.ndarray):
        return None if X.dtype.names is None else {name: X[name] for name in X.dtype.names}
    if isinstance(X, list | tuple) and X and all(isinstance(row, Mapping) for row in X):
        names = list(dict.fromkeys(name for row in X for name in row))
        return {name: [row.get(name, ABSENT) for row in X] for name in names}
    return None


class Dictionary(list[Any]):
    """The entries of a dictionary column of pyarrow, with its levels in ``dtype``, as in other frames."""

    def __init__(self, entries: Sequence[Any], categories: Sequence[Any], ordered: bool):
        super().__init__(entries)
        self.categories, self.ordered = categories, ordered

    @property
    def dtype(self) -> Dictionary:
        """The object itself, which has the attributes ``categories`` and ``ordered`` of a categorical type."""
        return self


def _of_pyarrow(column: Any) -> list[Any]:
    """The entries of a column of pyarrow, in one chunk or several."""
    entries = column.to_pylist()
    if not hasattr(column.type, "ordered"):
        return list(entries)
    chunks = getattr(column, "chunks", [column])
    levels = dict.fromkeys(level for chunk in chunks for level in chunk.dictionary.to_pylist())
    return Dictionary(entries, list(levels), column.type.ordered)


def refuse_equal_names(X: Data) -> None:
    """Refuse a frame with several columns of the same name."""
    names = list(getattr(X, "column_names", getattr(X, "columns", ())))
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"The columns of the frame must have different names; {', '.join(map(repr, twice))} stand(s) for several."
        )


def as_records(X: Data) -> Records:
    """The records of a frame, a dictionary of columns, a structured array or a list of dictionaries.

    Examples
    --------
    >>> from representer.samples import as_records
    >>> as_records({"name": ["a", "b"], "size": [1, 2]})
    [{'name': 'a', 'size': 1}, {'name': 'b', 'size': 2}]
    """
    if isinstance(X, Records):
        return X
    columns = frame_columns(X)
    if columns is None:
        raise _no_records(X)
    single = [
        name for name, column in columns.items() if isinstance(column, str | bytes) or not hasattr(column, "__len__")
    ]
    if single:
        raise ValueError(
            f"Columns takes records in a list, or a dictionary of columns; got a dictionary whose {single[0]!r} is one "
            f"{type(columns[single[0]]).__name__}. Put a single record in a list."
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The columns must have the same length; got {lengths}.")
    if not any(lengths.values()):
        raise ValueError("Found 0 records: a kernel needs at least one.")
    return Records({name: _stored(column) for name, column in columns.items()})


def _no_records(X: Data) -> ValueError:
    """The error for samples that have no columns."""
    if hasattr(X, "__len__") and not len(X):
        return ValueError("Found 0 records: a kernel needs at least one.")
    rows = enumerate(X) if isinstance(X, list | tuple | np.ndarray) else ()
    stranger = next(((i, row) for i, row in rows if not isinstance(row, Mapping)), None)
    at = "" if stranger is None else f" with a {type(stranger[1]).__name__} at position {stranger[0]}"
    return ValueError(
        "Columns takes a data frame, a dictionary of columns, a structured array or a list of dictionaries; got "
        f"{type(X).__name__}{at}. An array has no names: pandas.DataFrame(X, columns=[…]) gives it some."
    )


def _stored(column: Any) -> Column:
    """Numbers as an array, anything else as a list, in which every gap is None, whatever library it came from."""
    array = column.to_numpy() if hasattr(column, "to_numpy") else column
    if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "biuf":
        return array
    return [None if is_missing(entry) else in_seconds(entry) for entry in column]


def in_seconds(entry: Any) -> Any:
    """A length of time as its number of seconds, anything else as it is."""
    if isinstance(entry, np.timedelta64):
        return float(entry / np.timedelta64(1, "s"))
    return entry.total_seconds() if isinstance(entry, datetime.timedelta) else entry


FRAMES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}  # the functions that make frames


def frame_library(X: Data) -> str | None:
    """The library of a frame, "pandas", "polars" or "pyarrow"; None for anything else."""
    library = type(X).__module__.partition(".")[0]
    return library if library in FRAMES and frame_columns(X) is not None else None


def as_frame(records: Sequence[Record], library: str) -> Data:
    """The records as a frame of a library, or as they are if nobody has imported the library."""
    module = sys.modules.get(library)
    columns = {name: list(column) for name, column in as_records(records).columns.items()}
    return records if module is None else getattr(module, FRAMES[library])(columns)


def column_of(records: Sequence[Record], name: object, *, gaps: bool = False) -> Column:
    """The entries of a column, or an error where they are missing; ``gaps`` allows None and NaN."""
    records = as_records(records)
    column: Any = records.columns.get(name, ())
    absent = list(range(len(records))) if not len(column) else _positions(column, lambda entry: entry is ABSENT)
    if absent:
        which = "The data have" if len(absent) == len(records) else f"Records {absent[:5]} have"
        present = ", ".join(map(repr, records[absent[0]]))
        raise ValueError(f"{which} no column {name!r}; there are: {present}.")
    missing = [] if gaps else _positions(column, is_missing)
    if missing:
        raise ValueError(
            f"Column {name!r} has no value in row(s) {first_positions(missing)} (None or NaN). Impute these values, "
            "leave the rows out, or use a kernel that takes gaps, such as Table."
        )
    return column


def _positions(column: Column, question: Callable[[Any], bool]) -> list[int]:
    """The positions of the entries for which the answer is yes; only an array of floats has gaps."""
    if isinstance(column, np.ndarray):
        return np.flatnonzero(column != column).tolist() if question is is_missing else []
    return [i for i, entry in enumerate(column) if question(entry)]


def first_positions(positions: Sequence[int]) -> str:
    """The first positions of faulty samples, as an error names them."""
    return ", ".join(map(str, positions[:5])) + (" …" if len(positions) > 5 else "")


def equals_itself(value: object) -> bool:
    """False of NaN, NaT and pandas' NA, whose comparison is NA again."""
    equal = value == value
    return isinstance(equal, bool | np.bool_) and bool(equal)


def is_missing(value: object) -> bool:
    """Is a value None, NaN, NaT or pandas' NA?"""
    missing = value is None or (isinstance(value, float | np.floating) and value != value)
    missing = missing or (isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value)))
    return missing or type(value).__name__ in ("NAType", "NaTType")
