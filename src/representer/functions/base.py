"""What a function of an RKHS is to a fitted learner, a frozen value that evaluates itself in blocks; and expansions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Kernel, unscaled
from representer.linalg import by_rows, cached_bytes, row_blocks
from representer.operators import Decomposable, OperatorKernel, Representation, mean_kernel, original
from representer.samples import Array, Data, count, evenly_spaced, plain, same_features, take
from representer.values import Value, tree_html


@dataclass(frozen=True)
class Span:
    """Points z_j whose k(·, z_j) span a function, or what it is learned from.

    Parameters
    ----------
    kernel : Kernel
        k, with numbers for all hyperparameters.
    points : data or None
        The z_j as they are stored; None where a function has features instead.
    representation : Representation
        How stored arrays become tensors.
    inner : tuple of Function
        What inputs go through before the kernel sees them.
    weights : array (n,) or None
        The weights of the points in the fit, where they are known.
    """

    kernel: Kernel
    points: Data
    representation: Representation
    inner: tuple[Function, ...] = ()
    weights: np.ndarray | None = None


class FieldState:
    """A frozen dataclass whose state, where it is copied or stored, are its fields.

    What it computes once to save time is a ``cached_property``, which is no part of the state.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class Function(FieldState, ABC):
    """A function of an RKHS; a subclass is a frozen dataclass of kernels, other functions and arrays.

    A learner keeps functions of NumPy arrays with a ``Representation`` that says how they become tensors; inside of a
    problem the same classes hold tensors.
    """

    @abstractmethod
    def __call__(self, X: Data) -> Tensor:
        """f(x_i) as rows, (n, p), in blocks of bounded memory."""

    def norm(self) -> float:
        """‖f‖ in the RKHS, without the intercept."""
        raise ValueError(f"The norm of {type(self).__name__} is not known.")

    def contributions(self, X: Data) -> Tensor:
        """The terms (n, terms, p) of the sum that f(x) is: with the intercept they sum to f(x)."""
        raise ValueError(f"{type(self).__name__} is no sum over samples, landmarks or features.")

    @property
    def terms_of(self) -> Data:
        """The points, as they are stored, that the terms of ``contributions`` belong to; None: they are of features."""
        return None

    def magnitudes(self, X: Data) -> Tensor:
        """The sums (n, p) of the absolute values of the terms: the rounding of f(x) is relative to them."""
        return self.contributions(X).abs().sum(1)

    def spans(self) -> list[Span]:
        """The points of the kernel that the function is made of, or of those of all its layers."""
        raise ValueError(f"{type(self).__name__} is not spanned by points.")

    @property
    def feature_kernel(self) -> Kernel | None:
        """The kernel whose features, or centred values, f is made of; None where f is a sum over points."""
        return None

    @property
    def data_kernel(self) -> Kernel | None:
        """The scalar kernel of the data themselves whose Gram matrix gives f; None where f has slopes or features."""
        return None

    def network(self) -> torch.nn.Module:
        """The function of vectors as a ``torch.nn.Module`` on the processor, whose parameters are the coefficients."""
        raise ValueError(f"{type(self).__name__} is no network: its values are not computed by sums of kernels alone.")

    def own_points(self, limit: int) -> Data:
        """At most so many of the inputs that the function is made of; None where it has none."""
        return None

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """How many times larger than f, or the least size that matters, the sum of its terms' absolute values is.

        A few of its own points are looked at. It is 1 where nothing cancels, or nothing is known of it; of several
        outputs it is the largest. NaN says that the function is not finite.
        """
        points = self.own_points(limit)
        if points is None:
            return 1.0
        terms, values = self.magnitudes(points).amax(0), self(points).abs().amax(0).clamp(min=size)
        return float(torch.where(terms == 0, 1.0, terms / values).max())

    def _repr_html_(self) -> str:
        """The function in a notebook: its kernels as trees, functions inside of it, and the shapes of its arrays."""
        rows = "".join(_field_html(name, value) for name, value in self.__getstate__().items() if value is not None)
        return f"<div style='font-size:.9em'><b>{type(self).__name__}</b><ul style='margin:0'>{rows}</ul></div>"


def _field_html(name: str, value: Any) -> str:
    """A field of a function as an entry of a list."""
    if isinstance(value, Value):
        return f"<li>{tree_html(value, name)}</li>"
    if isinstance(value, tuple) and value and all(isinstance(part, Function) for part in value):
        return f"<li>{name}: {''.join(part._repr_html_() for part in value)}</li>"
    if isinstance(value, Function):
        return f"<li>{name}: {value._repr_html_()}</li>"
    shape = getattr(value, "shape", None)
    text = f"{type(value).__name__} {tuple(shape)}" if shape is not None else repr(value)
    return f"<li>{name}: <code>{escape(text[:80])}</code></li>"


# Coefficients sum to zero if their sum is below so many roundings: samples of unequal noise leave a few.
ROUNDED_SUM = 16.0
# One of so many anchors is looked at if their kernel is one of objects: a row for each takes a small part of a fit.
ANCHORS_OF_OBJECTS = 64


def in_units(unit: float, array: Array) -> Array:
    """The numbers of a function of targets that were divided by a unit, or a ValueError where they leave the range."""
    if unit == 1.0:
        return array
    with np.errstate(over="ignore"):
        scaled = unit * array
    if not np.isfinite(plain(scaled)).all():
        raise ValueError(
            f"The coefficients of a function of targets near {unit:.0e} leave the range of numbers: rescale y, for "
            f"example y / {unit:.0e}."
        )
    return scaled


@dataclass(frozen=True)
class Expansion(Function):
    """f = Σ_j K(·, z_j) c_j + b.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    anchors : data
        The m points z_j: prepared, or with a ``representation`` as they are stored.
    coefficients : tensor or array (m, p)
        The c_j.
    intercept : tensor or array (p,), or None for zero
        b.
    representation : Representation or None
        How stored arrays become tensors; None: they are tensors.
    slopes : tensor or array (d, p), or None
        Σ_j z_j c_jᵀ of a linear kernel, where that is known to more digits than the sum over large coefficients.

    Examples
    --------
    >>> import torch
    >>> from representer.functions import Expansion
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> f = Expansion(Decomposable(Linear()), torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]]))
    >>> f([[1.0], [10.0]]).tolist(), f.norm()
    ([[3.0], [30.0]], 3.0)
    """

    kernel: OperatorKernel
    anchors: Data
    coefficients: Array
    intercept: Array = None
    representation: Representation | None = None
    slopes: Array = None

    def stored(self, representation: Representation) -> Expansion:
        """The same function as a learner keeps it, in memory of its own."""
        arrays = (self.anchors, self.coefficients, self.intercept, self.slopes)
        anchors, coefficients, b, slopes = (plain(a, copy=True) for a in arrays)
        return Expansion(original(self.kernel), anchors, coefficients, b, representation, slopes)

    @cached_property
    def loaded(self) -> Expansion:
        """The same function of tensors and prepared anchors."""
        how = self.representation
        if how is None:
            return self
        kernel = how.adapted(self.kernel, repair=False)
        b, slopes = (None if a is None else how.tensor(a) for a in (self.intercept, self.slopes))
        anchors, coefficients = how.inputs(kernel, self.anchors), how.tensor(self.coefficients)
        return Expansion(kernel, anchors, coefficients, b, slopes=slopes)

    def _inputs(self, X: Data) -> Data:
        """New inputs as the kernel takes them."""
        f = self.loaded
        X = f.kernel.prepare(X) if self.representation is None else self.representation.inputs(f.kernel, X)
        if isinstance(X, Tensor) and f.kernel.domain in ("vectors", "gram"):
            X = X.to(f.coefficients)
            if f.kernel.domain == "vectors" and isinstance(f.anchors, Tensor):
                same_features(X, f.anchors)
        return X

    def __call__(self, X: Data) -> Tensor:
        """f(x_i), (n, p), in blocks of rows: no n × m matrix exists unless a gradient needs it."""
        f, X = self.loaded, self._inputs(X)
        if f.slopes is not None:
            values = X @ f.mixed_slopes
        elif isinstance(X, Tensor) and (X.requires_grad or X.ndim > 2):
            values = f._sum(X)
        else:
            m, p = f.coefficients.shape[-2:]
            numbers = 2 * (m + p) if isinstance(f.kernel, Decomposable) else m * p
            bytes_per_row = numbers * f.coefficients.element_size()
            values = by_rows(lambda rows: f._sum(X[rows]), count(X), bytes_per_row, cached_bytes(X))
        return values if f.intercept is None else values + f.intercept

    def _sum(self, X: Data) -> Tensor:
        """Σ_j K(x_i, z_j) c_j (n, p) of tensors and prepared inputs."""
        if self._middle is None:
            return self.kernel.apply(X, self.anchors, self.coefficients)
        assert isinstance(self.kernel, Decomposable)
        return self.kernel.kernel._product(X, self.anchors, self.kernel.mixed(self.coefficients), self._middle)

    @cached_property
    def _middle(self) -> Tensor | None:
        """Weights q (m, 1) of the mean Σ_j q_j k(x, z_j) that k(x, ·) is taken from; None where it must not be.

        Beside a free constant the coefficients sum to zero, and k(x, ·) may be shifted by any number. With the squares
        of coefficients for weights the terms have the least sum of squares: those of wide kernels, nearly one
        everywhere, would be huge otherwise, and their sum would lose digits. Coefficients that are learned through
        a gradient may sum to anything.
        """
        C = self.coefficients
        learned = C.requires_grad and torch.is_grad_enabled()
        if not isinstance(self.kernel, Decomposable) or learned or C.ndim != 2:
            return None
        weights = self.kernel.mixed(C)
        rounding = ROUNDED_SUM * len(weights) * torch.finfo(weights.dtype).eps * weights.abs().sum(0)
        size = weights.abs().max()
        if not 0 < size < torch.inf or not bool((weights.sum(0).abs() <= rounding).all()):
            return None
        squares = (weights / size).square().sum(1, keepdim=True)
        return squares / squares.sum()

    @cached_property
    def mixed_slopes(self) -> Tensor:
        """The matrix c·SA (d, p) of a kernel c·xᵀy A with slopes S: f(x) is its product with x."""
        kernel = self.kernel
        assert isinstance(kernel, Decomposable) and self.slopes is not None
        return unscaled(kernel.kernel)[1] * kernel.mixed(self.slopes)

    def contributions(self, X: Data) -> Tensor:
        """The terms K(x_i, z_j) c_j, (n, m, p), of the anchors, in blocks of rows: those that a prediction sums.

        Beside a free constant they are those with the least sum of squares.
        """
        f, X = self.loaded, self._inputs(X)
        m, p = f.coefficients.shape
        terms = f.coefficients.new_empty(count(X), m, p)
        with torch.no_grad():
            for rows in row_blocks(count(X), 2 * m * p * p * terms.element_size()):
                block = X[rows]
                if isinstance(f.kernel, Decomposable):
                    k, q = f.kernel.kernel, f._middle
                    gram = k._gram(block, f.anchors) if q is None else k._gram_around(block, f.anchors, q)
                    terms[rows] = gram[:, :, None] * f.kernel.mixed(f.coefficients)
                elif (form := f.kernel.diagonal_form(p, f.coefficients)) is not None and form.rotation is None:
                    for weights, outputs in form.groups():
                        gram = form.gram(weights, block, f.anchors)
                        terms[rows, :, outputs] = gram[:, :, None] * f.coefficients[:, outputs]
                else:
                    blocks = f.kernel.dense(block, f.anchors, p).reshape(-1, p, m, p)
                    terms[rows] = torch.einsum("iajb,jb->ija", blocks, f.coefficients)
        return terms

    def spans(self) -> list[Span]:
        """The anchors with k of k(x, y) A, or with the mean of the outputs' kernels."""
        assert self.representation is not None  # it is a stored function
        return [Span(mean_kernel(self.kernel, self.coefficients.shape[1]), self.anchors, self.representation)]

    @property
    def terms_of(self) -> Data:
        """The anchors, to which the terms of the sum belong."""
        return self.anchors

    @property
    def data_kernel(self) -> Kernel | None:
        """The kernel k of k(x, y) A, unless slopes take its place."""
        return self.kernel.kernel if isinstance(self.kernel, Decomposable) and self.slopes is None else None

    def own_points(self, limit: int) -> Data:
        """Some of the anchors; few if their kernel is one of objects, of which a row may cost a good part of a fit."""
        n = len(self.coefficients)
        if self.kernel.domain not in ("vectors", "gram"):
            limit = min(limit, max(2, n // ANCHORS_OF_OBJECTS))
        return take(self.anchors, torch.from_numpy(evenly_spaced(n, limit)))

    def magnitudes(self, X: Data) -> Tensor:
        """The sums Σ_j |K(x_i, z_j) c_j|, (n, p); of a linear kernel with slopes, over features instead of anchors."""
        f = self.loaded
        if not isinstance(f.kernel, Decomposable):
            return super().magnitudes(X)
        prepared = self._inputs(X)
        with torch.no_grad():
            if f.slopes is not None:
                return prepared.abs() @ f.mixed_slopes.abs()
            return f.kernel.kernel._magnitudes(prepared, f.anchors) @ f.kernel.mixed(f.coefficients).abs()

    def in_units(self, unit: float) -> Expansion:
        """The function unit·f, whose coefficients are those of f times the unit."""
        arrays = (self.coefficients, self.intercept, self.slopes)
        c, b, slopes = (None if array is None else in_units(unit, array) for array in arrays)
        return replace(self, coefficients=c, intercept=b, slopes=slopes)

    def squared_norm(self) -> Tensor:
        """‖f‖² = Σ_ij ⟨c_i, K(z_i, z_j) c_j⟩, differentiable."""
        f = self.loaded
        if f.slopes is not None:
            return (f.slopes * f.mixed_slopes).sum()
        return f.kernel.squared_norm(f.anchors, f.coefficients)

    def norm(self) -> float:
        """‖f‖, the square root of Σ_ij ⟨c_i, K(z_i, z_j) c_j⟩."""
        return float(self.squared_norm().clamp(min=0.0).sqrt())
