"""Kernels on anything: Gram matrices computed elsewhere, and functions written by the user."""

from __future__ import annotations

from collections.abc import Callable as Function
from typing import Any

import torch
from torch import Tensor

from representer.data import as_items, is_single
from representer.kernels.base import Domain, Kernel, as_vectors
from representer.linalg import is_finite


class Precomputed(Kernel):
    """The data are Gram matrices: fit on k(X, X) (n × n), predict on k(X_new, X) (m × n).

    As a kernel of two arguments: X is the cross-Gram matrix (m × n) and Y the Gram matrix (n × n) that was fitted to.

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

    def prepare(self, X: Any) -> Tensor:
        """A floating tensor (..., rows, columns)."""
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

    def __init__(self, function: Function[[Any, Any], Any], batched: bool = False):
        self.function = function
        self.batched = batched

    def prepare(self, X: Any) -> Any:
        """The objects as a list, rows of a frame or an array as arrays; a batched function gets X as it is."""
        if not callable(self.function):
            raise ValueError(f"Callable takes a function of two objects; got {self.function!r}.")
        if is_single(X):
            raise ValueError(
                f"Callable takes a list of objects; got one {type(X).__name__}. Put it in a list."
            )
        if not self.batched and not isinstance(X, list):
            X = list(as_items(X))
        if not len(X):
            raise ValueError("Found 0 objects: a kernel needs at least one.")
        return X

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
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
            raise ValueError(
                f"{self!r} is {gram[i, j].item()} for object {i} and object {j}; it must be finite."
            )
        return gram

    def _number(self, x: Any, y: Any) -> float:
        value = self.function(x, y)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{self!r} must give one real number for two objects; for {x!r} and {y!r} it gave {value!r}. A "
                "function of whole collections is Callable(function, batched=True)."
            ) from error

    def _matrix(self, X: Any, Y: Any) -> Tensor:
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
        keep = isinstance(result, Tensor) and result.is_floating_point()  # tensors keep their precision
        return gram.clone() if keep else gram.to(torch.float64, copy=True)

    def _diag(self, X: Any) -> Tensor:
        if self.batched:
            return torch.cat([self._matrix(X[i : i + 1], X[i : i + 1]).diagonal() for i in range(len(X))])
        return torch.tensor([self._number(x, x) for x in X], dtype=torch.float64)
