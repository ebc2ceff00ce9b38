"""The kernel contract, and composition: sums, products, scaling, normalising, centring."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.data import as_vectors as as_vectors
from representer.data import count as count
from representer.data import same_features, take
from representer.kernels.features import Columns, ExplicitFeatures, side_by_side, with_short_indices
from representer.linalg.memory import combine as combine
from representer.linalg.memory import require_gram
from representer.parameters import Hyperparameter, NonNegative, Word, is_scalar
from representer.values import Value, all_values, argument_repr, map_children, number
from representer.values import per_row as per_row

Domain = Literal["vectors", "labels", "gram", "objects", "records"]

ONE = Word(lambda X: torch.ones((), dtype=torch.float64), learned=True)
FACTOR = Hyperparameter(NonNegative(), {"auto": ONE}, scalar=True)


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
    takes_sparse: ClassVar[bool] = False  # are vectors welcome as sparse matrices of SciPy, too?
    __array_ufunc__ = None  # so that a NumPy scalar times a kernel asks the kernel

    @abstractmethod
    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        """The matrix k(x_i, y_j) of prepared data; Y None means X."""

    @abstractmethod
    def _diag(self, X: Any) -> Tensor:
        """The vector k(x_i, x_i) of prepared data."""

    def _product(self, X: Any, Y: Any, coefficients: Tensor) -> Tensor:
        """k(X, Y) C; a kernel with few explicit features need not form k(X, Y)."""
        return self._gram(X, Y) @ coefficients

    def __call__(self, X: Any, Y: Any | None = None) -> Tensor:
        """The Gram matrix of X, or the cross-Gram matrix of X (rows) and Y (columns), as a tensor.

        A word such as ``lengthscale="median"`` is given its number by X here only if Y is None.
        """
        self.check_hyperparameters()
        if self.domain == "vectors" and all(isinstance(x, np.ndarray) and x.ndim == 1 for x in (X, Y)):
            return self([X], [Y])[0, 0]  # two points: scikit-learn's way with functions
        X = self.prepare(X)
        if Y is None:
            require_gram(count(X), count(X))
            return self._resolve(X)._gram(X, None)
        Y = self.prepare(Y)
        require_gram(count(X), count(Y))
        if self.domain == "vectors" and isinstance(X, Tensor) and isinstance(Y, Tensor):
            X, Y = same_features(X, Y)
        return self._gram(X, Y)

    def diag(self, X: Any) -> Tensor:
        """The diagonal of ``k(X)``, without the matrix."""
        self.check_hyperparameters()
        X = self.prepare(X)
        return self._resolve(X)._diag(X)

    # -- explicit features: k(x, y) = ⟨φ(x), φ(y)⟩ ------------------------------------------------------------------
    def features(self, X: Any) -> Tensor | None:
        """φ(X) (..., n, q) of data that ``prepare`` has checked, differentiable; None if there are none, or too many.

        The features of x do not depend on the other samples. A kernel on vectors with finitely many features defines
        this method; a kernel of objects, whose features are sparse, defines ``_explicit_features``.

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

    def n_features(self, X: Any) -> int | None:
        """How many columns ``features(X)`` has, from one sample; None if there are no such features."""
        one = X[..., :1, :] if isinstance(X, Tensor) and X.ndim > 1 else take(X, torch.arange(1))
        with torch.no_grad():
            features = self.features(one)
        return None if features is None else features.shape[-1]

    def explicit_features(self, X: Any, columns: Columns | None = None) -> ExplicitFeatures:
        """φ(X) with k(X) = φ(X) φ(X)ᵀ as an array or a sparse matrix with named columns, for linear models.

        With the ``columns`` of earlier features, those of X are given in the same columns; features that ``columns``
        does not have are left out. Words such as ``"median"`` are given their numbers by X; with ``columns`` they must
        have them already. Sums, multiples and normalised forms of kernels with explicit features have them, too.

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

    def _explicit_features(self, X: Any, columns: Columns | None) -> ExplicitFeatures:
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

    def prepare(self, X: Any) -> Any:
        """Checked data in the form that ``_gram`` takes: a tensor for vectors; idempotent."""
        return as_vectors(X) if self.domain == "vectors" else X

    def resolve(self, X: Any) -> Self:
        """The kernel with every word (``"median"``, ``"auto"`` …) replaced by the number that X gives it."""
        self.check_hyperparameters()
        return self._resolve(self.prepare(X))

    def _resolve(self, X: Any) -> Self:
        def change(name: str, argument: Any) -> Any:
            if name in self.hyperparameters and isinstance(argument, str):
                value = self._own_specification(name).words[argument].value(X)
                return value.item() if value.ndim == 0 else value.cpu().numpy()
            return map_children(name, argument, lambda _, v: v._resolve(X) if isinstance(v, Kernel) else v)

        return self._rebuild(change)

    # -- composition ------------------------------------------------------------------------------------------------
    def __add__(self, other: Kernel | float | Tensor) -> Sum:
        lifted = _lift(other)
        return NotImplemented if lifted is None else Sum(self, lifted)

    def __radd__(self, other: Kernel | float | Tensor) -> Sum:
        lifted = _lift(other)
        return NotImplemented if lifted is None else Sum(lifted, self)

    def __mul__(self, other: Kernel | float | Tensor) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other) if is_scalar(other) else NotImplemented

    def __rmul__(self, other: float | Tensor | str) -> Kernel:
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
        """k(x, y) / √(k(x, x) k(y, y)): the cosine in feature space."""
        return Normalized(self)

    def centered(self, anchors: Any = "data") -> Centered:
        """The kernel of features centred at the mean of the anchors; ``"data"``: of the data it is fitted to."""
        return Centered(self, anchors)


def _lift(value: Any) -> Kernel | None:
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

    takes_sparse = True
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"value": FACTOR}

    def __init__(self, value: Any = 1.0):
        self.value = value

    def prepare(self, X: Any) -> Any:
        """Any data will do."""
        return X

    def _filled(self, X: Any, *shape: int) -> Tensor:
        like = X if isinstance(X, Tensor) and X.is_floating_point() else torch.zeros((), dtype=torch.float64)
        value = number(self, "value", like)
        return (value if len(shape) > 1 else per_row(value)) * like.new_ones((*like.shape[:-2], *shape))

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        return self._filled(X, count(X), count(X if Y is None else Y))

    def _diag(self, X: Any) -> Tensor:
        return self._filled(X, count(X))

    def features(self, X: Any) -> Tensor:
        """One column, √value."""
        return self._filled(X, count(X), 1).sqrt()

    def _explicit_features(self, X: Any, columns: Columns | None) -> ExplicitFeatures:
        return ExplicitFeatures(self.features(X).detach().numpy(), {"constant": 0})


def _takes_anything(kernel: Value) -> bool:
    """Is it a constant, or made from constants only?"""
    parts = [child for _, child in kernel._children()]
    return isinstance(kernel, Constant) or (bool(parts) and all(map(_takes_anything, parts)))


class Pair(Kernel, ABC):
    """Two kernels on the same data."""

    def __init__(self, left: Kernel, right: Kernel):
        self.left = left
        self.right = right

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """The kind of data both parts take (a constant takes any)."""
        kinds = {k.domain for k in (self.left, self.right) if not _takes_anything(k)}
        if len(kinds) > 1:
            raise ValueError(
                f"{self.left!r} takes {self.left.domain} and {self.right!r} takes {self.right.domain}: kernels that "
                "are added or multiplied must take the same kind of data."
            )
        return kinds.pop() if kinds else "vectors"

    def prepare(self, X: Any) -> Any:
        """Checked by both parts."""
        self.domain  # noqa: B018  raises if the kinds differ
        return self.right.prepare(self.left.prepare(X))

    def _combined(self, operation: str, X: Any, Y: Any | None) -> Tensor:
        """Both Gram matrices added or multiplied; a constant stays a number."""
        first, second = sorted((self.left, self.right), key=lambda k: isinstance(k, Constant))
        gram = first._gram(X, Y)
        other = number(second, "value", gram) if isinstance(second, Constant) else second._gram(X, Y)
        return combine(operation, gram, other)


class Sum(Pair):
    """k₁(x, y) + k₂(x, y), written ``k1 + k2``.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> (Linear() + Linear())([[1.0], [2.0]]).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        return self._combined("add", X, Y)

    def _diag(self, X: Any) -> Tensor:
        return self.left._diag(X) + self.right._diag(X)

    def features(self, X: Any) -> Tensor | None:
        """Those of both, side by side."""
        left = self.left.features(X)
        right = None if left is None else self.right.features(X)
        return None if left is None or right is None else torch.cat([left, right], -1)

    def _explicit_features(self, X: Any, columns: Columns | None) -> ExplicitFeatures:
        """Columns are named by the side and the name there."""
        sides = {}
        for side in ("left", "right"):
            own = columns
            if columns is not None:
                ordered: Any = sorted(columns, key=columns.__getitem__)
                own = {name: i for i, name in enumerate(name for which, name in ordered if which == side)}
            sides[side] = getattr(self, side)._explicit_features(X, own)
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

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        return self._combined("mul", X, Y)

    def _diag(self, X: Any) -> Tensor:
        return self.left._diag(X) * self.right._diag(X)

    def __repr__(self) -> str:
        left, right = (
            f"({k!r})" if isinstance(k, Pair | Scaled) else repr(k) for k in (self.left, self.right)
        )
        return f"{left} * {right}"


# -- one kernel -----------------------------------------------------------------------------------------------------
class Wrapped(Kernel, ABC):
    """A kernel made from one other kernel, on the same data."""

    kernel: Kernel

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """That of the inner kernel."""
        return self.kernel.domain

    def prepare(self, X: Any) -> Any:
        """Checked by the inner kernel."""
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

    def __init__(self, kernel: Kernel, scale: Any = 1.0):
        self.kernel = kernel
        self.scale = scale

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        gram = self.kernel._gram(X, Y)
        return combine("mul", gram, number(self, "scale", gram))

    def _diag(self, X: Any) -> Tensor:
        diagonal = self.kernel._diag(X)
        return diagonal * per_row(number(self, "scale", diagonal))

    def features(self, X: Any) -> Tensor | None:
        """√scale · φ."""
        inner = self.kernel.features(X)
        return None if inner is None else number(self, "scale", inner).sqrt() * inner

    def _explicit_features(self, X: Any, columns: Columns | None) -> ExplicitFeatures:
        inner = self.kernel._explicit_features(X, columns)
        return ExplicitFeatures(math.sqrt(self.scale) * inner.matrix, inner.columns)

    def __repr__(self) -> str:
        scale = argument_repr(self.scale)
        if scale.startswith("["):  # a batch of scales: a list times a kernel is not code
            return super().__repr__()
        inner = f"({self.kernel!r})" if isinstance(self.kernel, Pair | Scaled) else repr(self.kernel)
        return f"{scale} * {inner}"


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

    def _weights(self, X: Any) -> Tensor:
        diagonal = self.kernel._up_to_scale()._diag(X)
        positive = diagonal > 0
        return torch.where(positive, torch.where(positive, diagonal, 1.0).rsqrt(), 0.0)

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        rows = self._weights(X)
        columns = rows if Y is None else self._weights(Y)
        gram = combine("mul", self.kernel._up_to_scale()._gram(X, Y), rows[..., :, None])
        return combine("mul", gram, columns[..., None, :])

    def _diag(self, X: Any) -> Tensor:
        diagonal = self.kernel._up_to_scale()._diag(X)
        return (diagonal > 0).to(diagonal.dtype)

    def _explicit_features(self, X: Any, columns: Columns | None) -> ExplicitFeatures:
        """φ over its whole norm, of which the columns may hold only a part."""
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

    def __init__(self, kernel: Kernel, anchors: Any = "data"):
        self.kernel = kernel
        self.anchors = anchors

    def _resolve(self, X: Any) -> Self:
        resolved = super()._resolve(X)
        if isinstance(self.anchors, str):
            resolved.anchors = X
        return resolved

    def _anchors(self, X: Any) -> Any:
        if isinstance(self.anchors, str):
            raise ValueError(
                "This centred kernel has no anchors yet: the data decide them. Call kernel.resolve(X) with the "
                f"training data first, or give anchors= (got {self.anchors!r})."
            )
        anchors = self.kernel.prepare(self.anchors)
        return anchors.to(X) if isinstance(anchors, Tensor) and isinstance(X, Tensor) else anchors

    def _means(self, X: Any, anchors: Any) -> Tensor:
        return self.kernel._gram(X, None if X is anchors else anchors).mean(-1)

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        anchors = self._anchors(X)
        gram = self.kernel._gram(X, Y)
        of_anchors = (X if Y is None else Y) is anchors  # then the means are at hand
        rows = gram.mean(-1) if of_anchors else self._means(X, anchors)
        columns = rows if Y is None else self._means(Y, anchors)
        grand = columns.mean(-1) if of_anchors else self._means(anchors, anchors).mean(-1)
        gram = combine("add", gram, (grand[..., None] - rows)[..., :, None])
        return combine("sub", gram, columns[..., None, :])

    def _diag(self, X: Any) -> Tensor:
        anchors = self._anchors(X)
        means = self._means(X, anchors)
        grand = means.mean(-1) if X is anchors else self._means(anchors, anchors).mean(-1)
        return self.kernel._diag(X) - 2.0 * means + grand[..., None]
