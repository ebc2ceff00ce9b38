"""The kernel contract, composition (sums, products, scaling, normalising, centring), and explicit features."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.linalg import combine, require_gram, row_blocks
from representer.samples import Data, as_vectors, count, same_features, take
from representer.values import (
    Hyperparameter,
    NonNegative,
    Setting,
    Value,
    Word,
    all_values,
    argument_repr,
    is_real,
    is_scalar,
    map_children,
    number,
    per_row,
)

Domain = Literal["vectors", "labels", "gram", "objects", "records"]

ONE = Word(lambda X: torch.ones((), dtype=torch.float64), learned=True)
FACTOR = Hyperparameter(NonNegative(), {"auto": ONE}, scalar=True)

Columns = Mapping[Hashable, int]  # the column of each explicit feature


@dataclass(frozen=True)
class ExplicitFeatures:
    """φ(X) as a matrix (n, q), and what its columns mean.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array, or ndarray where few entries are zero
        One row a sample.
    columns : dict
        The column of each feature, in the order of first appearance.
    """

    matrix: sparse.csr_array | np.ndarray
    columns: Columns


def side_by_side(features: Mapping[str, ExplicitFeatures]) -> ExplicitFeatures:
    """The features of several kernels in one matrix; a column is named by its kernel and by its name in that kernel."""
    matrices = [explicit.matrix for explicit in features.values()]
    names = [(kernel, name) for kernel, explicit in features.items() for name in explicit.columns]
    is_sparse = any(map(sparse.issparse, matrices))
    matrix = sparse.hstack(matrices, format="csr") if is_sparse else np.hstack(matrices)
    return ExplicitFeatures(matrix, {name: i for i, name in enumerate(names)})


def with_short_indices(matrix: sparse.csr_array | np.ndarray) -> sparse.csr_array | np.ndarray:
    """The matrix with 32-bit indices where they suffice: some of scikit-learn's linear models take no others."""
    if isinstance(matrix, np.ndarray) or max(matrix.nnz, *matrix.shape) > np.iinfo(np.int32).max:
        return matrix
    matrix = matrix.tocsr()
    arrays = matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return sparse.csr_array(arrays, shape=matrix.shape)


def is_searched(kernel: Value) -> bool:
    """Does a search ask for the gradient in one of the kernel's hyperparameters?"""
    numbers = kernel.hyperparameter_values().values()
    return torch.is_grad_enabled() and any(value.requires_grad for value in numbers)


def with_derivative(function: Callable[[float, bool], Sequence[Tensor]], argument: Tensor) -> Tensor:
    """A function of one number, or of a batch of them (..., 1, 1), that computes its own derivative.

    ``function(number, slope)`` gives a matrix of values, or a vector, and with ``slope`` also their derivatives.
    v + s·(θ − θ₀) has the value v and the derivative s at θ₀: autograd need not follow the computation.
    """
    slope = argument.requires_grad and torch.is_grad_enabled()
    members = [torch.stack(list(function(theta, slope))) for theta in argument.detach().reshape(-1).tolist()]
    batch = argument.shape[: argument.ndim - members[0].ndim + 1]
    values, *slopes = torch.stack(members, 1).reshape(len(members[0]), *batch, *members[0].shape[1:])
    return values + slopes[0] * (argument - argument.detach()) if slope else values


class Tangent(Protocol):
    """A Gram matrix K of points with its first and second derivatives in them."""

    gram: Tensor

    def pull(self, G: Tensor) -> Tensor:
        """The gradient of ⟨G, K⟩ in the points, for a symmetric G."""

    def push(self, dX: Tensor) -> Tensor:
        """The change dK that follows a change of the points."""

    def pull_change(self, G: Tensor, dG: Tensor, dX: Tensor, dK: Tensor) -> Tensor:
        """The change of ``pull(G)`` that follows changes of G and of the points; ``dK`` is ``push(dX)``."""


class Kernel(Value, ABC):
    """A positive semi-definite function k(x, y), called with data: ``k(X)``, ``k(X, Y)``, ``k.diag(X)``.

    A new kernel stores its hyperparameters in the constructor, declares them in ``hyperparameters`` and its data in
    ``domain`` (and ``takes_sparse``), and implements ``_gram`` and ``_diag`` on data that ``prepare`` has checked.
    Leading batch dimensions of X give a batch of Gram matrices. What ``_gram`` returns is fresh memory that the caller
    may overwrite. ``representer.testing.check_kernel`` tests a new one.

    Examples
    --------
    >>> from representer.kernels import Gaussian, Linear
    >>> k = 0.5 * Gaussian(lengthscale=2.0) + Linear() * Gaussian("auto")
    >>> k.free()
    ['right__right__lengthscale']
    >>> k([[0.0], [1.0]]).shape
    torch.Size([2, 2])
    """

    domain: Domain = "vectors"
    bounded: ClassVar[bool] = False  # is k(x, x) the same for all x?
    bounded_with_parts: ClassVar[bool] = False  # is k(x, x) bounded whenever all kernels inside are?
    of_products: ClassVar[bool] = False  # is k a function of ⟨x, y⟩, whose size an offset of X changes?
    definite: ClassVar[bool] = True  # is every Gram matrix of vectors positive semi-definite?
    takes_sparse: ClassVar[bool] = False  # may vectors be the rows of a sparse matrix of SciPy?
    __array_ufunc__ = None  # so that a NumPy scalar times a kernel asks the kernel

    @property
    def takes_gaps(self) -> bool:
        """May entries of vectors be missing (NaN)?"""
        return False

    @abstractmethod
    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        """The matrix k(x_i, y_j) of prepared data; Y None means X."""

    @abstractmethod
    def _diag(self, X: Data) -> Tensor:
        """The vector k(x_i, x_i) of prepared data."""

    def _magnitudes(self, X: Data, Y: Data) -> Tensor:
        """The magnitudes that rounding errors of k(X, Y) are relative to: |k|, or the terms that cancel in k."""
        return self._gram(X, Y).abs()

    def tangent(self, X: Tensor) -> Tangent | None:
        """The Gram matrix of points X (..., n, d) with its derivatives in closed form; None where autograd has them."""
        return None

    def _product(self, X: Data, Y: Data, coefficients: Tensor, middle: Tensor | None = None) -> Tensor:
        """The product k(X, Y) C; a kernel with few explicit features need not form k(X, Y).

        Where C sums to zero, k(x, ·) may be taken from its mean Σ_j q_j k(x, y_j) with the weights ``middle`` (m, 1).
        """
        gram = self._gram(X, Y) if middle is None else self._gram_around(X, Y, middle)
        return gram.to(coefficients) @ coefficients

    def _gram_around(self, X: Data, Y: Data, middle: Tensor) -> Tensor:
        """The matrix k(x_i, y_j) − Σ_l q_l k(x_i, y_l) for weights q (m, 1); with few features it is ⟨φ(x), φ(y) − m⟩.

        Numbers as large as φ(y) cancel there, instead of numbers as large as k(x, y): points far from zero keep digits.
        """
        size = self.n_features(Y) if isinstance(Y, Tensor) and self.domain == "vectors" else None
        left, right = (None, None) if size is None or size > count(Y) else (self.features(X), self.features(Y))
        if left is None or right is None:
            gram = self._gram(X, Y).to(middle)
            return combine("sub", gram, gram @ middle)
        return left @ (right - middle.mT @ right).mT

    def __call__(self, X: Data, Y: Data | None = None) -> Tensor:
        """The Gram matrix of X, or the cross-Gram matrix of X (rows) and Y (columns), as a tensor.

        A word such as ``lengthscale="median"`` gets its number from X here only if Y is None.
        """
        self.check_hyperparameters()
        if self.domain == "vectors" and all(isinstance(x, np.ndarray) and x.ndim == 1 for x in (X, Y)):
            return self([X], [Y])[0, 0]  # two single points, as scikit-learn passes them to a function
        X = self.prepare(X)
        if Y is None:
            require_gram(count(X), count(X))
            return self._resolve(X)._gram(X, None)
        Y = self.prepare(Y)
        require_gram(count(X), count(Y))
        if self.domain == "vectors" and isinstance(X, Tensor) and isinstance(Y, Tensor):
            X, Y = same_features(X, Y)
        return self._gram(X, Y)

    def diag(self, X: Data) -> Tensor:
        """The diagonal of ``k(X)``, without the matrix."""
        self.check_hyperparameters()
        X = self.prepare(X)
        return self._resolve(X)._diag(X)

    # -- explicit features: k(x, y) = ⟨φ(x), φ(y)⟩ ------------------------------------------------------------------
    def features(self, X: Data) -> Tensor | None:
        """The features φ(X) (..., n, q) of data that ``prepare`` has checked; None if there are none, or too many.

        They are differentiable, and φ(x) does not depend on the other samples. A kernel on vectors with finitely many
        features defines this method; a kernel of objects, whose features are sparse, defines ``_explicit_features``.

        Examples
        --------
        >>> from representer.kernels import Gaussian, Linear
        >>> k = 4.0 * Linear() + 1.0
        >>> k.features(k.prepare([[2.0], [3.0]])).tolist()
        [[4.0, 1.0], [6.0, 1.0]]
        >>> Gaussian(1.0).features(k.prepare([[2.0]])) is None
        True
        """
        return None

    def n_features(self, X: Data) -> int | None:
        """The number of columns of ``features(X)``, counted on one sample; None if there are no such features."""
        one = X[..., :1, :] if isinstance(X, Tensor) and X.ndim > 1 else take(X, torch.arange(1))
        with torch.no_grad():
            features = self.features(one)
        return None if features is None else features.shape[-1]

    def explicit_features(self, X: Data, columns: Columns | None = None) -> ExplicitFeatures:
        """The features φ(X), where k(X) = φ(X) φ(X)ᵀ, as an array or a sparse matrix with named columns.

        Linear models take such a matrix. With the ``columns`` of earlier features, φ(X) is written in the same columns,
        and features that ``columns`` does not have are left out. Words such as ``"median"`` get their numbers from X;
        with ``columns`` they must have them already. Sums, multiples and normalised forms of kernels with explicit
        features have them, too.

        Examples
        --------
        >>> from representer.kernels import Spectrum
        >>> k = Spectrum(1).normalized() + 1.0
        >>> features = k.explicit_features(["aab", "b"])
        >>> features.columns
        {('left', 'a'): 0, ('left', 'b'): 1, ('right', 'constant'): 2}
        >>> k.explicit_features(["bc"], features.columns).matrix.toarray().round(4).tolist()
        [[0.0, 0.7071, 1.0]]
        """
        self.check_hyperparameters()
        X = self.prepare(X)
        kernel = self
        if columns is None:
            kernel = self._resolve(X)
        elif any(isinstance(getattr(v, name), str) for v in all_values(self) for name in v.hyperparameters):
            raise ValueError(
                f"{self!r} has words that data decide, and the earlier features have had theirs. Call "
                "kernel.resolve(X) with the training data first, and take the features of both from that kernel."
            )
        features = kernel._explicit_features(X, columns)
        return ExplicitFeatures(with_short_indices(features.matrix), features.columns)

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        """The features of prepared data with named columns; a dense feature is named by its number."""
        features = self.features(X)
        if features is None:
            raise ValueError(
                f"{self!r} has no explicit features, or too many to write them down. A kernel machine needs none; for "
                "large data there is approximation=Nystroem(m)."
            )
        return ExplicitFeatures(features.detach().numpy(), {i: i for i in range(features.shape[-1])})

    def _up_to_scale(self) -> Kernel:
        """A multiple of the kernel whose numbers stay in range; its normalised form is the same."""
        return self

    def prepare(self, X: Data) -> Data:
        """Checked data in the form that ``_gram`` takes: a tensor for vectors; idempotent."""
        return as_vectors(X) if self.domain == "vectors" else X

    def resolve(self, X: Data) -> Self:
        """The kernel with every word (``"median"``, ``"auto"`` …) replaced by the number that X gives it."""
        self.check_hyperparameters()
        return self._resolve(self.prepare(X))

    def _resolve(self, X: Data) -> Self:
        """The same as ``resolve`` for prepared data."""

        def change(name: str, argument: object) -> Any:
            if name in self.hyperparameters and isinstance(argument, str):
                value = self._own_specification(name).words[argument].value(X)
                return value.item() if value.ndim == 0 else value.cpu().numpy()
            return map_children(name, argument, lambda _, v: v._resolve(X) if isinstance(v, Kernel) else v)

        return self._rebuild(change)

    def addends(self) -> list[tuple[str, Kernel]]:
        """The addends of a sum of kernels, each with a short name; a kernel that is no sum is its only addend.

        Examples
        --------
        >>> from representer.kernels import Gaussian, Linear
        >>> (Gaussian(1.0) + 2.0 * (Linear() + 1.0)).addends()
        [('Gaussian', Gaussian(lengthscale=1.0)), ('Linear', 2.0 * Linear()), ('Constant', 2.0 * Constant())]
        """
        return [(type(self).__name__, self)]

    # -- composition ------------------------------------------------------------------------------------------------
    def __add__(self, other: Kernel | Setting) -> Sum:
        lifted = _lift(other)
        return NotImplemented if lifted is None else Sum(self, lifted)

    def __radd__(self, other: Kernel | Setting) -> Sum:
        lifted = _lift(other)
        return NotImplemented if lifted is None else Sum(lifted, self)

    def __mul__(self, other: Kernel | Setting) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if is_scalar(other) else NotImplemented

    def __rmul__(self, other: Setting) -> Kernel:
        return Scaled(self, other) if is_scalar(other) else NotImplemented

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """``tensor * kernel`` and ``tensor + kernel``: torch asks here before it gives up."""
        if func in (torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__):
            return args[1] * args[0]
        if func in (torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__):
            return args[1].__radd__(args[0])
        return NotImplemented

    def normalized(self) -> Normalized:
        """The kernel k(x, y) / √(k(x, x) k(y, y)): the cosine in feature space."""
        return Normalized(self)

    def centered(self, anchors: Data = "data") -> Centered:
        """The kernel of features centred at the mean of the anchors; ``"data"``: of the data it is fitted to."""
        return Centered(self, anchors)


def _lift(value: Kernel | Setting) -> Kernel | None:
    """A kernel as it is, a number as a constant kernel, and None for anything else."""
    if isinstance(value, Kernel):
        return value
    return Constant(value) if is_scalar(value) else None


# -- two kernels ----------------------------------------------------------------------------------------------------
class Constant(Kernel):
    """k(x, y) = value ≥ 0: the offset of an affine function; ``"auto"``: learned, starting from 1.

    Examples
    --------
    >>> from representer.kernels import Constant, Linear
    >>> Linear() + 1.0 == Linear() + Constant(1.0)
    True
    """

    bounded = True
    takes_sparse = True
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"value": FACTOR}

    def __init__(self, value: Setting = 1.0):
        self.value = value

    @property
    def takes_gaps(self) -> bool:
        """Yes: a constant does not look at its data."""
        return True

    def prepare(self, X: Data) -> Data:
        """The data as they are: any will do."""
        return X

    def _filled(self, X: Data, *shape: int) -> Tensor:
        """An array of this shape (after the batch dimensions of X) full of the value."""
        like = X if isinstance(X, Tensor) and X.is_floating_point() else torch.zeros((), dtype=torch.float64)
        value = number(self, "value", like)
        return (value if len(shape) > 1 else per_row(value)) * like.new_ones((*like.shape[:-2], *shape))

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        return self._filled(X, count(X), count(X if Y is None else Y))

    def _diag(self, X: Data) -> Tensor:
        return self._filled(X, count(X))

    def features(self, X: Data) -> Tensor:
        """The one constant feature √value."""
        return self._filled(X, count(X), 1).sqrt()

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        return ExplicitFeatures(self.features(X).detach().numpy(), {"constant": 0})


def _takes_anything(kernel: object) -> bool:
    """Is the kernel a constant, or made from constants only?"""
    children = [child for _, child in kernel._children()] if isinstance(kernel, Value) else []
    return isinstance(kernel, Constant) or (bool(children) and all(map(_takes_anything, children)))


def _part(kernel: Kernel, name: str) -> Kernel:
    """The part of a kernel with this name, which is a kernel itself."""
    part = getattr(kernel, name)
    if not isinstance(part, Kernel):
        raise TypeError(
            f"{name} of {type(kernel).__name__} must be a kernel object, such as Gaussian(); got "
            f"{argument_repr(part):.60}. Names such as 'rbf' are for learners: as_kernel('rbf') is the object."
        )
    return part


class Pair(Kernel, ABC):
    """A kernel made from two kernels on the same data."""

    bounded_with_parts = True

    def __init__(self, left: Kernel, right: Kernel):
        self.left = left
        self.right = right

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """The kind of data that both kernels take (a constant takes any)."""
        kinds = {k.domain for k in (_part(self, "left"), _part(self, "right")) if not _takes_anything(k)}
        if len(kinds) > 1:
            raise ValueError(
                f"{self.left!r} takes {self.left.domain} and {self.right!r} takes {self.right.domain}: kernels that "
                "are added or multiplied must take the same kind of data."
            )
        return kinds.pop() if kinds else "vectors"

    @property
    def takes_gaps(self) -> bool:
        """Do both kernels take NaN?"""
        return self.left.takes_gaps and self.right.takes_gaps

    def prepare(self, X: Data) -> Data:
        """The data, checked by both kernels; objects that the two represent differently become ``Views``."""
        return prepare_for_each((self.left, self.right), X, self.domain)

    def _sides(self, *data: Data) -> tuple[list[Data], list[Data]]:
        """The collections as the left kernel takes them, and as the right one does."""
        left, right = zip(*(views(X, 2) for X in data), strict=True)
        return list(left), list(right)

    def _resolve(self, X: Data) -> Self:
        left, right = self._sides(X)
        sides = {"left": left[0], "right": right[0]}
        return self._rebuild(lambda name, kernel: kernel._resolve(sides[name]))

    def _grams(self, X: Data, Y: Data | None) -> tuple[Tensor, Tensor]:
        """Both Gram matrices; a constant stays a number."""
        left, right = self._sides(X, Y)
        (first, first_data), (second, second_data) = sorted(
            ((self.left, left), (self.right, right)), key=lambda side: isinstance(side[0], Constant)
        )
        gram = first._gram(*first_data)
        return gram, number(second, "value", gram) if isinstance(second, Constant) else second._gram(*second_data)

    def _diagonals(self, X: Data) -> tuple[Tensor, Tensor]:
        """The diagonals of the left and of the right kernel."""
        left, right = self._sides(X)
        return self.left._diag(*left), self.right._diag(*right)


# -- objects that several kernels represent differently --------------------------------------------------------------
class Views(tuple[Any, ...]):
    """One object as each of several kernels takes it: a molecule, say, and its graph."""

    __slots__ = ()


class Preparing(Protocol):
    """A kernel, scalar or operator-valued, that checks its data."""

    def prepare(self, X: Data) -> Data:
        """The data as the kernel computes with them."""


def prepare_for_each(kernels: Sequence[Preparing], X: Data, domain: Domain) -> Data:
    """The data, checked by all kernels; objects that the kernels represent differently become ``Views``.

    A constant takes any data: its view is that of the first other kernel.
    """
    if len(kernels) > 1 and domain == "objects":
        if _has_views(X):
            return X
        forms = [None if _takes_anything(kernel) else kernel.prepare(X) for kernel in kernels]
        prepared = [form for form in forms if form is not None]
        if _differ(prepared):
            items = zip(*(prepared[0] if form is None else form for form in forms), strict=True)
            return list(map(Views, items))
    for kernel in kernels:
        X = kernel.prepare(X)
    return X


def views(X: Data, n: int) -> list[Data]:
    """Data that ``prepare_for_each`` has checked for n kernels, as each of them takes them."""
    if n == 1 or not _has_views(X):
        return [X] * n
    return [[item[i] for item in X] for i in range(n)]


def _has_views(X: Data) -> bool:
    """Do the objects have a form for each of several kernels?"""
    return isinstance(X, list) and bool(X) and isinstance(X[0], Views)


def _differ(forms: Sequence[Data]) -> bool:
    """Do the forms of an object have different types, or hold the views of a kernel inside?"""
    if not all(isinstance(form, list) for form in forms):
        return False
    return any(isinstance(items[0], Views) or len(set(map(type, items))) > 1 for items in zip(*forms, strict=True))


class Sum(Pair):
    """k₁(x, y) + k₂(x, y), written ``k1 + k2``.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> (Linear() + Linear())([[1.0], [2.0]]).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """

    def addends(self) -> list[tuple[str, Kernel]]:
        """The addends of both sides; kernels of two views stay together, because each sees a view of its own."""
        addends = [*self.left.addends(), *self.right.addends()]
        return addends if {self.left.domain, self.right.domain} <= {self.domain} else super().addends()

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        return combine("add", *self._grams(X, Y))

    def _diag(self, X: Data) -> Tensor:
        left, right = self._diagonals(X)
        return left + right

    def features(self, X: Data) -> Tensor | None:
        """The features of both kernels, side by side."""
        left = self.left.features(X)
        right = None if left is None else self.right.features(X)
        return None if left is None or right is None else torch.cat([left, right], -1)

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        """The features of both kernels in columns that are named by the side and the name there."""
        sides = {}
        for side, (data,) in zip(("left", "right"), self._sides(X), strict=True):
            side_columns = columns
            if columns is not None:
                names = [name[1] for name in sorted(columns, key=columns.__getitem__) if name[0] == side]  # type: ignore[index]
                side_columns = {name: i for i, name in enumerate(names)}
            sides[side] = getattr(self, side)._explicit_features(data, side_columns)
        return side_by_side(sides)

    def __repr__(self) -> str:
        right = f"({self.right!r})" if isinstance(self.right, Sum) else repr(self.right)
        return f"{self.left!r} + {right}"


class Product(Pair):
    """k₁(x, y) · k₂(x, y), written ``k1 * k2``.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> (Linear() * Linear())([[1.0], [2.0]]).tolist()
    [[1.0, 4.0], [4.0, 16.0]]
    """

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        return combine("mul", *self._grams(X, Y))

    def _diag(self, X: Data) -> Tensor:
        left, right = self._diagonals(X)
        return left * right

    def __repr__(self) -> str:
        left, right = (f"({k!r})" if isinstance(k, Pair | Scaled) else repr(k) for k in (self.left, self.right))
        return f"{left} * {right}"


# -- one kernel -----------------------------------------------------------------------------------------------------
class Wrapped(Kernel, ABC):
    """A kernel made from one other kernel, on the same data."""

    bounded_with_parts = True
    kernel: Kernel

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """The kind of data that the inner kernel takes."""
        return _part(self, "kernel").domain

    @property
    def takes_gaps(self) -> bool:
        """Does the inner kernel take NaN?"""
        return self.kernel.takes_gaps

    def prepare(self, X: Data) -> Data:
        """The data, checked by the inner kernel."""
        return self.kernel.prepare(X)


class Scaled(Wrapped):
    """scale · k(x, y), scale ≥ 0, written ``2.0 * k``; ``"auto" * k``: learned, starting from 1.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> (3.0 * Linear())([[1.0], [2.0]]).tolist()
    [[3.0, 6.0], [6.0, 12.0]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"scale": FACTOR}

    def __init__(self, kernel: Kernel, scale: Setting = 1.0):
        self.kernel = kernel
        self.scale = scale

    def addends(self) -> list[tuple[str, Kernel]]:
        """The addends of the inner kernel, each scaled."""
        return [(name, Scaled(addend, self.scale)) for name, addend in self.kernel.addends()]

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        gram = self.kernel._gram(X, Y)
        return combine("mul", gram, number(self, "scale", gram))

    def _diag(self, X: Data) -> Tensor:
        diagonal = self.kernel._diag(X)
        return diagonal * per_row(number(self, "scale", diagonal))

    def features(self, X: Data) -> Tensor | None:
        """The features of the inner kernel times √scale."""
        inner = self.kernel.features(X)
        return None if inner is None else number(self, "scale", inner).sqrt() * inner

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        inner = self.kernel._explicit_features(X, columns)
        return ExplicitFeatures(math.sqrt(number(self, "scale").item()) * inner.matrix, inner.columns)

    def __repr__(self) -> str:
        scale = argument_repr(self.scale)
        if scale.startswith("["):  # a batch of scales: a list times a kernel is not code
            return super().__repr__()
        inner = f"({self.kernel!r})" if isinstance(self.kernel, Pair | Scaled) else repr(self.kernel)
        return f"{scale} * {inner}"


def unscaled(kernel: Kernel) -> tuple[Kernel, float]:
    """The kernel inside of positive numbers that multiply it, and their product.

    Examples
    --------
    >>> from representer.kernels import Linear, unscaled
    >>> unscaled(2.0 * (3.0 * Linear()))
    (Linear(), 6.0)
    """
    if not isinstance(kernel, Scaled) or not is_real(kernel.scale) or kernel.scale <= 0:
        return kernel, 1.0
    inside, factor = unscaled(kernel.kernel)
    return inside, float(kernel.scale) * factor


class Normalized(Wrapped):
    """k(x, y) / √(k(x, x) k(y, y)); an object whose features vanish has similarity 0 to everything.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> Linear().normalized()([[1.0, 0.0], [0.0, 3.0]]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def _weights(self, X: Data) -> Tensor:
        """The factor 1 / √k(x, x) of each sample; 0 where its features vanish."""
        diagonal = self.kernel._up_to_scale()._diag(X)
        positive = diagonal > 0
        return torch.where(positive, torch.where(positive, diagonal, 1.0).rsqrt(), 0.0)

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        rows = self._weights(X)
        columns = rows if Y is None else self._weights(Y)
        gram = combine("mul", self.kernel._up_to_scale()._gram(X, Y), rows[..., :, None])
        return combine("mul", gram, columns[..., None, :])

    def _diag(self, X: Data) -> Tensor:
        diagonal = self.kernel._up_to_scale()._diag(X)
        return (diagonal > 0).to(diagonal.dtype)

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        """The features divided by ‖φ(x)‖, in which features that ``columns`` leaves out count, too."""
        inner = self.kernel._explicit_features(X, columns)
        norms = self.kernel._diag(X).sqrt().numpy()
        weights = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        return ExplicitFeatures(sparse.diags_array(weights) @ inner.matrix, inner.columns)


class Centered(Wrapped):
    """⟨φ(x) − m, φ(y) − m⟩ with m the mean feature of the anchors; ``"data"``: of the data it is resolved on.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> Linear().centered()([[1.0], [3.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    def __init__(self, kernel: Kernel, anchors: Data = "data"):
        self.kernel = kernel
        self.anchors = anchors

    def _resolve(self, X: Data) -> Self:
        resolved = super()._resolve(X)
        if isinstance(self.anchors, str):
            resolved.anchors = X
        return resolved

    def _anchors(self, X: Data) -> Data:
        """The anchors, prepared, in the precision of the data."""
        if isinstance(self.anchors, str):
            raise ValueError(
                "This centred kernel has no anchors yet: the data decide them. Call kernel.resolve(X) with the "
                f"training data first, or give anchors= (got {self.anchors!r})."
            )
        anchors = self.kernel.prepare(self.anchors)
        return anchors.to(X) if isinstance(anchors, Tensor) and isinstance(X, Tensor) else anchors

    def _means(self, X: Data, anchors: Data) -> Tensor:
        """The mean of k(x, ·) over the anchors, for each sample."""
        return self.kernel._gram(X, None if X is anchors else anchors).mean(-1)

    def _centred_features(self, X: Data, anchors: Data) -> Tensor | None:
        """The features φ(x) − m of dense vectors, where they are few and the search needs no derivative of them.

        Numbers as large as φ(x) cancel in them. Numbers as large as ‖φ(x)‖² cancel in k(x, y) minus its means, which
        leaves no digits for points far from zero.
        """
        if not isinstance(X, Tensor) or self.domain != "vectors" or is_searched(self.kernel):
            return None
        size = self.kernel.n_features(anchors)
        if size is None or size > max(count(anchors), X.shape[-1]):
            return None
        features, of_anchors = self.kernel.features(X), self.kernel.features(anchors)
        return None if features is None or of_anchors is None else features - of_anchors.mean(-2, keepdim=True)

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        anchors = self._anchors(X)
        left = self._centred_features(X, anchors)
        right = left if Y is None or left is None else self._centred_features(Y, anchors)
        return self._from_means(X, Y, anchors) if left is None or right is None else left @ right.mT

    def _from_means(self, X: Data, Y: Data | None, anchors: Data) -> Tensor:
        """The centred kernel from k and its means over the anchors."""
        gram = self.kernel._gram(X, Y)
        of_anchors = (X if Y is None else Y) is anchors  # then the means are at hand
        rows = gram.mean(-1) if of_anchors else self._means(X, anchors)
        columns = rows if Y is None else self._means(Y, anchors)
        grand = columns.mean(-1) if of_anchors else self._means(anchors, anchors).mean(-1)
        gram = combine("add", gram, (grand[..., None] - rows)[..., :, None])
        return combine("sub", gram, columns[..., None, :])

    def _magnitudes(self, X: Data, Y: Data) -> Tensor:
        """The magnitudes of what cancels by centring: features and their mean, or else entries of k and their means."""
        anchors = self._anchors(X)
        left, right = (self._centred_features(points, anchors) for points in (X, Y))
        if left is not None and right is not None:
            rounded = [self._rounded(points, centred) for points, centred in ((X, left), (Y, right))]
            return rounded[0].abs() @ right.abs().mT + left.abs() @ rounded[1].abs().mT
        inner = self.kernel._magnitudes(X, Y)
        rows, columns = (self._means(points, anchors).abs() for points in (X, Y))
        return inner + rows[..., :, None] + columns[..., None, :]

    def _rounded(self, X: Tensor, centred: Tensor) -> Tensor:
        """The features that rounding errors of the centred ones are relative to; points as features are not rounded."""
        features = self.kernel.features(X)
        return centred if features is None or features is X else features

    def _diag(self, X: Data) -> Tensor:
        anchors = self._anchors(X)
        features = self._centred_features(X, anchors)
        if features is not None:
            return features.square().sum(-1)
        means = self._means(X, anchors)
        grand = means.mean(-1) if X is anchors else self._means(anchors, anchors).mean(-1)
        return self.kernel._diag(X) - 2.0 * means + grand[..., None]


def has_products(kernel: Kernel) -> bool:
    """Is a kernel, or a kernel inside it, a function of inner products of the points themselves?

    Examples
    --------
    >>> from representer.kernels import Gaussian, Linear, has_products
    >>> has_products(Gaussian() + 2.0 * Linear()), has_products(Gaussian())
    (True, False)
    """
    children = [child for _, child in kernel._children() if isinstance(child, Kernel)]
    return kernel.of_products or any(map(has_products, children))


def is_bounded(kernel: Kernel) -> bool:
    """Is k(x, x) known to be bounded, because every kernel inside is bounded or normalised?

    Examples
    --------
    >>> from representer.kernels import Gaussian, Linear, is_bounded
    >>> is_bounded(2.0 * Gaussian() + Linear().normalized()), is_bounded(Linear() + 1.0)
    (True, False)
    """
    if kernel.bounded or isinstance(kernel, Normalized):
        return True
    children = [child for _, child in kernel._children() if isinstance(child, Kernel)]
    return kernel.bounded_with_parts and all(map(is_bounded, children))


# -- kernels of objects by sparse explicit features ------------------------------------------------------------------
# A dense product does this many multiplications in the time of one in a sparse product.
DENSE_ADVANTAGE = 100


class ExplicitKernel(Kernel):
    """A kernel of objects with sparse explicit features; a subclass gives ``_explicit_features``.

    The Gram matrix is one sparse product. A feature that no training object has drops out of the products of new
    objects with training objects.
    """

    domain: Domain = "objects"

    @abstractmethod
    def _explicit_features(self, X: Data, columns: Columns | None = None) -> ExplicitFeatures:
        """The features of prepared objects, in earlier columns or in new ones."""

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        if Y is None:
            return inner_products(self._explicit_features(X).matrix, None)
        right = self._explicit_features(Y)
        return inner_products(self._explicit_features(X, right.columns).matrix, right.matrix)

    def _diag(self, X: Data) -> Tensor:
        return squared_norms(self._explicit_features(X).matrix)


class CountingKernel(ExplicitKernel):
    """A kernel that counts what an object contains; a subclass gives ``_counts``."""

    @abstractmethod
    def _counts(self, X: Sequence[Data]) -> Iterable[Mapping[Hashable, float]]:
        """The non-zero entries of φ, for each object."""

    def _explicit_features(self, X: Sequence[Data], columns: Columns | None = None) -> ExplicitFeatures:
        names: dict[Hashable, int] = {} if columns is None else dict(columns)
        indices: list[int] = []
        values: list[float] = []
        ends = [0]
        for counts in self._counts(X):
            for feature, value in counts.items():
                column = names.get(feature) if columns is not None else names.setdefault(feature, len(names))
                if column is not None:
                    indices.append(column)
                    values.append(value)
            ends.append(len(indices))
        shape = len(ends) - 1, len(names)
        return ExplicitFeatures(sparse.csr_array((values, indices, ends), shape=shape, dtype=np.float64), names)


def inner_products(left: sparse.csr_array, right: sparse.csr_array | None, weights: np.ndarray | None = None) -> Tensor:
    """The dense matrix left @ diag(weights) @ right.T of sparse features; ``right`` None means left, at half the work.

    Features that many objects have are multiplied as dense columns, the others as sparse ones, which is fastest.
    """
    other = left if right is None else right
    common = _occupancy(left) * (DENSE_ADVANTAGE * _occupancy(other)) > left.shape[0] * other.shape[0]
    gram = torch.zeros(left.shape[0], other.shape[0], dtype=torch.float64)
    for selected, add in ((~common, _add_sparse), (common, _add_dense)):
        if selected.any():
            columns = slice(None) if selected.all() else selected
            factor = None if right is None else right[:, columns]
            add(gram, left[:, columns], factor, None if weights is None else weights[columns])
    return gram


def _occupancy(matrix: sparse.csr_array) -> np.ndarray:
    """The number of rows that have each feature."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1])


def _add_dense(
    gram: Tensor, left: sparse.csr_array, right: sparse.csr_array | None, weights: np.ndarray | None
) -> None:
    """Add the product of features that many objects have, as dense matrices."""
    rows = torch.from_numpy(left.toarray())
    columns = rows if right is None else torch.from_numpy(right.toarray())
    gram.addmm_(rows if weights is None else rows * torch.from_numpy(weights), columns.mT)


def _add_sparse(
    gram: Tensor, left: sparse.csr_array, right: sparse.csr_array | None, weights: np.ndarray | None
) -> None:
    """Add the product of rare features in blocks, because it stores an index with each entry; half if symmetric."""
    transposed = (left if right is None else right).T.tocsr()
    if weights is not None:
        transposed.data *= np.repeat(weights, np.diff(transposed.indptr))
    for rows in row_blocks(len(gram), 3 * gram.shape[1] * gram.element_size()):
        if right is not None:
            gram[rows] += torch.from_numpy((left[rows] @ transposed).toarray())
            continue
        block = torch.from_numpy((left[rows] @ transposed[:, : rows.stop]).toarray())
        gram[rows, : rows.stop] += block
        gram[: rows.start, rows] += block[:, : rows.start].mT


def squared_norms(matrix: sparse.csr_array) -> Tensor:
    """The squared norm ‖φ‖² of each row."""
    return torch.from_numpy(np.asarray((matrix * matrix).sum(axis=1)).reshape(-1))
