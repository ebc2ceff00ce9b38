"""Kernels of objects of any kind: equal labels, functions written by the user, Gram matrices computed elsewhere."""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel
from representer.linalg import is_finite
from representer.samples import Data, as_list, as_vectors, is_single


class Delta(Kernel):
    """k(x, y) = 1 if x = y else 0, for labels of any type (rows of labels are equal if all their entries are).

    Examples
    --------
    >>> from representer.kernels import Delta
    >>> Delta()(["a", "b", "a"]).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    domain: Domain = "labels"
    bounded = True

    def prepare(self, X: Data) -> list[Hashable]:
        """The labels as a list; a row of several labels is a tuple."""
        if is_single(X) or getattr(X, "ndim", 1) not in (1, 2):
            raise ValueError(
                "Delta takes a sequence of labels, of shape (n_samples,) or (n_samples, n_labels); got "
                f"{type(X).__name__} of shape {tuple(getattr(X, 'shape', ()))}."
            )
        if isinstance(X, Tensor):
            X = X.detach().cpu()
        labels = [as_label(item) for item in (X if isinstance(X, list | tuple) else np.asarray(X).tolist())]
        if not labels:
            raise ValueError("Found 0 labels: a kernel needs at least one.")
        return labels

    def _gram(self, X: Sequence[Hashable], Y: Sequence[Hashable] | None) -> Tensor:
        codes: dict[Hashable, int] = {}
        rows = torch.tensor([codes.setdefault(label, len(codes)) for label in X])
        columns = rows if Y is None else torch.tensor([codes.get(label, -1) for label in Y])
        return (rows[:, None] == columns[None, :]).to(torch.float64)

    def _diag(self, X: Sequence[Hashable]) -> Tensor:
        return torch.ones(len(X), dtype=torch.float64)


def as_label(item: object) -> Hashable:
    """A label, checked: a symbol, or a tuple of at least two."""
    if isinstance(item, np.ndarray | Tensor):
        item = item.tolist()
    if isinstance(item, list | tuple):
        return as_label(item[0]) if len(item) == 1 else tuple(map(as_label, item))
    if isinstance(item, float) and item != item:
        raise ValueError("The labels contain NaN, which is not equal to itself. Remove these samples or name the gap.")
    try:
        hash(item)
    except TypeError:
        raise ValueError(f"A label must be hashable (a number, a string, a tuple …); got {item!r}.") from None
    return item


class Precomputed(Kernel):
    """The data are Gram matrices: fit on k(X, X) (n × n), predict on k(X_new, X) (m × n).

    In ``k(X, Y)``, X is the cross-Gram matrix (m × n) and Y the Gram matrix (n × n) of the training samples.

    Examples
    --------
    >>> from representer.kernels import Precomputed
    >>> fitted = [[2.0, 1.0], [1.0, 3.0]]
    >>> Precomputed()(fitted).tolist()
    [[2.0, 1.0], [1.0, 3.0]]
    >>> Precomputed()([[0.5, 0.1]], fitted).tolist()
    [[0.5, 0.1]]
    """

    domain: Domain = "gram"

    def prepare(self, X: Data) -> Tensor:
        """The Gram matrix as a floating tensor (..., rows, columns)."""
        return as_vectors(X)

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        if Y is not None and X.shape[-1] != Y.shape[-2]:
            raise ValueError(
                f"The Gram matrix has {X.shape[-1]} columns, but {Y.shape[-2]} samples were used for fitting. "
                "Pass k(X_new, X_train), with one column for each training sample."
            )
        if Y is None and X.shape[-1] != X.shape[-2]:
            raise ValueError(f"A precomputed Gram matrix must be square; got shape {tuple(X.shape)}.")
        return X.clone()

    def _diag(self, X: Tensor) -> Tensor:
        if X.shape[-1] != X.shape[-2]:
            raise ValueError(
                f"k(x, x) is not contained in cross-Gram rows of shape {tuple(X.shape)}. Use a kernel object instead "
                "of kernel='precomputed' (Callable wraps any function) where k(x, x) of new points is needed."
            )
        return X.diagonal(dim1=-2, dim2=-1).clone()


WHOLE_COLLECTIONS = (
    "A function of whole collections is Callable(function, batched=True); a matrix that is known already goes with "
    "kernel='precomputed'."
)


class Callable(Kernel):
    """A kernel from a function: of two objects, or, with ``batched=True``, of two collections at once.

    Parameters
    ----------
    function : callable
        ``function(x, y) -> float``, or with ``batched`` ``function(X, Y) -> matrix`` (through which gradients pass if
        it is made of torch functions).
    batched : bool
        Does the function take whole collections?

    Examples
    --------
    >>> from representer.kernels import Callable
    >>> common_letters = Callable(lambda x, y: len(set(x) & set(y)))
    >>> common_letters(["kernel", "nerd"]).tolist()
    [[5.0, 3.0], [3.0, 4.0]]
    """

    domain: Domain = "objects"

    def __init__(self, function: Function[[Any, Any], object], batched: bool = False):
        self.function = function
        self.batched = batched

    def prepare(self, X: Data) -> Data:
        """The objects as a list, rows of a frame or an array as arrays; a batched function gets X as it is."""
        if not callable(self.function):
            raise ValueError(f"Callable takes a function of two objects; got {self.function!r}.")
        if self.batched and not is_single(X) and len(X):
            return X
        return as_list(X, "objects", "Callable")

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        if self.batched:
            gram = self._matrix(X, X if Y is None else Y)
        elif Y is not None:
            gram = torch.tensor([[self._number(x, y) for y in Y] for x in X], dtype=torch.float64)
        else:
            gram = torch.zeros(len(X), len(X), dtype=torch.float64)
            for i, x in enumerate(X):
                for j in range(i + 1):
                    gram[i, j] = gram[j, i] = self._number(x, X[j])
        if not is_finite(gram):
            i, j = torch.nonzero(~torch.isfinite(gram))[0].tolist()
            raise ValueError(f"{self!r} is {gram[i, j].item()} for object {i} and object {j}; it must be finite.")
        return gram

    def _number(self, x: object, y: object) -> float:
        """The kernel of two objects."""
        try:
            value = self.function(x, y)
        except (TypeError, ValueError, IndexError) as error:
            if self._takes_matrices(x, y):
                raise ValueError(
                    f"{self!r} is called with two samples and must give one number, but its function takes two "
                    f"matrices. {WHOLE_COLLECTIONS}"
                ) from error
            raise
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{self!r} must give one number, and a real one, for two objects; for {x!r} and {y!r} it gave "
                f"{value!r}. {WHOLE_COLLECTIONS}"
            ) from error

    def _takes_matrices(self, x: object, y: object) -> bool:
        """Does the function make a matrix of two matrices with one row each?"""
        try:
            result: Any = self.function(np.array([x]), np.array([y]))
            return np.shape(result) == (1, 1)
        except Exception:  # whatever it is: the first error says what was wrong
            return False

    def _matrix(self, X: Data, Y: Data) -> Tensor:
        """The kernel of two collections, by a function that takes them whole."""
        result = self.function(X, Y)
        try:
            gram = torch.as_tensor(result)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"The function of {self!r} must return a matrix of numbers; it returned {type(result).__name__}."
            ) from error
        if tuple(gram.shape[-2:]) != (len(X), len(Y)):
            raise ValueError(
                f"The function of Callable(batched=True) returned shape {tuple(gram.shape)} for {len(X)} and {len(Y)} "
                "objects; it must return one row for each of the first and one column for each of the second."
            )
        if isinstance(result, Tensor) and result.is_floating_point():  # tensors keep their precision
            return gram.clone()
        return gram.to(torch.float64, copy=True)

    def _diag(self, X: Data) -> Tensor:
        if self.batched:
            return torch.cat([self._matrix(X[i : i + 1], X[i : i + 1]).diagonal() for i in range(len(X))])
        return torch.tensor([self._number(x, x) for x in X], dtype=torch.float64)
