"""Kernels of records: each field of a data frame has a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel, is_searched
from representer.linalg import combine
from representer.samples import Data, Record, Records, as_records, column_of, same_features
from representer.values import Hyperparameter, NonNegative, Setting, Value, Word, number, per_row, same

Field = str | tuple[str, ...]


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
        """Of a sum, the kernels of the fields, named by them."""
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
        """The Gram matrix of a field; while other numbers are searched, that of a fixed kernel is computed once."""
        kernel = self.kernels[field]
        if Y is None and isinstance(X, Records) and torch.is_grad_enabled() and not is_searched(kernel):
            whole = X.remembered((field, kernel), lambda _: kernel._gram(field_data(X, field, kernel), None), same)
            return whole.clone()
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
