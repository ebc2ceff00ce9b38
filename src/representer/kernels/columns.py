"""Kernels of records: each field of a data frame has a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel
from representer.linalg import combine
from representer.samples import Data, first_positions, is_single, same_features
from representer.values import Hyperparameter, NonNegative, Setting, Value, Word, number, per_row, same

Field = str | tuple[str, ...]
Record = Mapping[Hashable, Any]

# How many results records remember: a stack has members with the same columns, and a search one kernel.
REMEMBERED = 4


class Columns(Kernel):
    """Σ_c w_c k_c(x_c, y_c) over the fields c of two records, or Π_c w_c k_c(x_c, y_c).

    The data are a data frame, a dictionary of columns, a structured array, or a list of dictionaries; in learners (and
    in cross-validation) a frame or a list of dictionaries. Other columns are ignored. Each kernel gets its column as it
    would get data by itself: numbers as an (n, 1) matrix, strings or other objects as a list.

    Parameters
    ----------
    kernels : dict
        The kernel of each field. A field is the name of a column, or a tuple of names: their numbers make one matrix
        (other kinds of data, tuples).
    combine : {"sum", "product"}
        In a sum two records are alike if some fields are, in a product if all are.
    weights : float, array (n_fields,) or "auto"
        One number for all, or one a field; ``"auto"``: learned, from 1 on. Of a product only their product counts.

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
        """Refuse what is inadmissible; there must be at least one kernel, and a name for each parameter."""
        if not isinstance(self.kernels, Mapping) or not self.kernels:
            raise ValueError(
                f"kernels of Columns must be a dictionary with a kernel for each field; got {self.kernels!r}."
            )
        for field, kernel in self.kernels.items():
            if not isinstance(kernel, Kernel) or kernel.domain == "gram":
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
    def prepare(self, X: Data) -> list[Record]:
        """The records as dictionaries with all columns, after each kernel has checked its own."""
        records = as_records(X)
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
    def _weights(self) -> list[Tensor]:
        """The weights of the fields, each a number or a batch of them (..., 1, 1)."""
        weights, q = number(self, "weights"), len(self.kernels)
        if weights.ndim == 0 or weights.shape[-1] == 1:
            return [weights if weights.ndim > 1 else weights.reshape(())] * q
        if weights.shape[-1] != q:
            raise ValueError(f"Columns has {q} fields, but weights of shape {tuple(weights.shape)}: give one a field.")
        return [weights[..., i : i + 1] if weights.ndim > 1 else weights[i] for i in range(q)]

    def _gram(self, X: Sequence[Record], Y: Sequence[Record] | None) -> Tensor:
        def grams() -> Iterator[Tensor]:
            for field, kernel in self.kernels.items():
                left = field_data(X, field, kernel)
                right = None if Y is None else field_data(Y, field, kernel)
                if isinstance(left, Tensor) and isinstance(right, Tensor):
                    left, right = same_features(left, right)
                yield kernel._gram(left, right)

        return self._combined(grams(), lambda weight: weight)

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


# -- records --------------------------------------------------------------------------------------------------------
def frame_columns(X: Data) -> dict[Any, Sequence[Any]] | None:
    """The columns of a frame (pandas, polars, pyarrow), a dictionary, a structured array or dictionaries, by name.

    None where the samples have no columns with names.
    """
    if isinstance(X, Mapping):
        single = [name for name, column in X.items() if is_single(column)]
        if single:
            raise ValueError(
                f"Columns takes records in a list, or a dictionary of columns; got a dictionary whose {single[0]!r} is "
                f"one {type(X[single[0]]).__name__}. Put a single record in a list."
            )
        return dict(X)
    if hasattr(X, "column_names") and hasattr(X, "column"):  # pyarrow, whose own columns are chunks of scalars
        names = list(X.column_names)
        _refuse_equal_names(names)
        return {name: X.column(name).to_pylist() for name in names}
    if hasattr(X, "columns"):
        names = list(X.columns)
        _refuse_equal_names(names)
        return {name: X[name] for name in names}
    if isinstance(X, np.ndarray) and X.dtype.names is not None:
        return {name: X[name] for name in X.dtype.names}
    return None


def _refuse_equal_names(names: list[Any]) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"The columns of the frame must have different names; {', '.join(twice)} stand(s) twice.")


class Records(list[Record]):
    """Records as a list of dictionaries, which remembers what was computed from its columns."""

    def __init__(self, records: Iterable[Record] = ()):
        super().__init__(records)
        self._memory: list[tuple[Any, Any]] = []

    def remembered(self, key: Any, compute: Callable[[Records], Any]) -> Any:
        """What was computed for an equal key, or is now."""
        for known, result in self._memory:
            if known is key or same(known, key):
                return result
        result = compute(self)
        self._memory = [*self._memory[-REMEMBERED:], (key, result)]
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return Records, (list(self),)  # what is remembered only saves time


def as_records(X: Data) -> Records:
    """The records of a frame, a dictionary of columns, a structured array or a list of dictionaries, as the latter.

    Examples
    --------
    >>> from representer.kernels import as_records
    >>> as_records({"name": ["a", "b"], "size": [1, 2]})
    [{'name': 'a', 'size': 1}, {'name': 'b', 'size': 2}]
    """
    columns = frame_columns(X)
    if columns is not None:
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"The columns must have the same length; got {lengths}.")
        X = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    records = X if isinstance(X, list) else list(X) if isinstance(X, Sequence | np.ndarray) else []
    strangers = [i for i, record in enumerate(records) if not isinstance(record, Mapping)]
    if strangers or isinstance(X, str) or not hasattr(X, "__len__"):
        at = f" with a {type(records[strangers[0]]).__name__} at position {strangers[0]}" if strangers else ""
        raise ValueError(
            "Columns takes a data frame, a dictionary of columns, a structured array or a list of dictionaries; got "
            f"{type(X).__name__}{at}. An array has no names: pandas.DataFrame(X, columns=[…]) gives it some."
        )
    if not records:
        raise ValueError("Found 0 records: a kernel needs at least one.")
    return records if isinstance(records, Records) else Records(records)


def field_data(records: Sequence[Record], field: Field, kernel: Kernel) -> Data:
    """The data of one field, prepared for its kernel: a matrix for a kernel on vectors, else a list."""
    columns = [column_of(records, name) for name in _names(field)]
    try:
        if kernel.domain == "vectors":
            return kernel.prepare(np.column_stack([np.asarray(c).reshape(len(c), -1) for c in columns]))
        return kernel.prepare(list(zip(*columns, strict=True)) if isinstance(field, tuple) else columns[0])
    except ValueError as error:
        raise ValueError(f"Column {field!r}: {error}") from error


def _names(field: Field) -> tuple[str, ...]:
    """The names of the columns of a field."""
    return field if isinstance(field, tuple) else (field,)


def column_of(records: Sequence[Record], name: str, *, gaps: bool = False) -> list[Data]:
    """The entries of a column, or an error where they are missing; ``gaps`` allows None and NaN."""
    absent = [i for i, record in enumerate(records) if name not in record]
    if absent:
        which = "The data have" if len(absent) == len(records) else f"Records {absent[:5]} have"
        present = ", ".join(map(repr, records[absent[0]]))
        raise ValueError(f"{which} no column {name!r}; there are: {present}.")
    column = [record[name] for record in records]
    missing = [] if gaps else [i for i, value in enumerate(column) if is_missing(value)]
    if missing:
        raise ValueError(
            f"Column {name!r} has no value in row(s) {first_positions(missing)} (None or NaN). Impute these values, "
            "leave the rows out, or use a kernel that takes gaps, such as Table."
        )
    return column


def is_missing(value: object) -> bool:
    """Is it None, NaN, or one of the missing values of pandas?"""
    missing = value is None or (isinstance(value, float | np.floating) and value != value)
    missing = missing or (isinstance(value, np.datetime64) and bool(np.isnat(value)))
    return missing or type(value).__name__ in ("NAType", "NaTType")
