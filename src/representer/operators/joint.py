"""Joint kernels of pairs (x, y) as operator-valued kernels (Kadri et al., section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from torch import Tensor

from representer.kernels import Domain, Kernel, is_bounded
from representer.linalg import row_blocks
from representer.operators.base import (
    Decomposable,
    DiagonalForm,
    Identity,
    OperatorKernel,
    OperatorSum,
    VectorOperatorKernel,
    diagonal_blocks,
)
from representer.samples import Data, as_vectors, count
from representer.values import Hyperparameter, NonNegative, Rule, is_real, number


class Coordinatewise(VectorOperatorKernel):
    """K(x, y) = weight · diag(x ∘ y): output a sees coordinate a of the input, linearly.

    Parameters
    ----------
    weight : float
        Not negative.

    Examples
    --------
    >>> from representer.operators import Coordinatewise
    >>> K = Coordinatewise()
    >>> K.dense(K.prepare([[2.0, 3.0]]), None, p=2).tolist()
    [[4.0, 0.0], [0.0, 9.0]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"weight": Hyperparameter(NonNegative(), scalar=True)}

    def __init__(self, weight: float | Tensor = 1.0):
        self.weight = weight

    def dense(self, X: Tensor, Y: Tensor | None, p: int) -> Tensor:
        """The block matrix, in which every block is diagonal."""
        return diagonal_blocks(number(self, "weight", X) * X[:, None, :] * (X if Y is None else Y))

    def apply(self, X: Tensor, anchors: Tensor, coefficients: Tensor) -> Tensor:
        """The products weight · X ∘ Σ_j z_j ∘ c_j."""
        return number(self, "weight", X) * X * (anchors * coefficients).sum(0)

    def diag(self, X: Tensor, p: int) -> Tensor:
        """The squares of the coordinates, weighted."""
        return number(self, "weight", X) * X**2

    def diagonal_form(self, p: int, like: Tensor) -> DiagonalForm:
        """The kernel itself, which is diagonal."""
        eye = torch.eye(p, dtype=like.dtype, device=like.device)
        return DiagonalForm(None, tuple(map(_Coordinate, range(p))), number(self, "weight", like) * eye)


class _Coordinate(Kernel):
    """The linear kernel k(x, y) = x_a y_a of one coordinate a."""

    def __init__(self, index: int):
        self.index = index

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return torch.outer(X[:, self.index], (X if Y is None else Y)[:, self.index])

    def _diag(self, X: Tensor) -> Tensor:
        return X[:, self.index] ** 2


class Patchwise(VectorOperatorKernel):
    """K(x, y) = Σ_w k(x_w, y_w) diag(1_w): output a sees the patches w of the input in which coordinate a lies.

    It is for outputs that have the inputs' coordinates, such as pictures. Its joint kernel Σ_w k(x_w, x'_w) ⟨y_w, y'_w⟩
    is the patch-wise one of joint kernel maps (Weston et al., 2007), which ``OperatorRidge(Patchwise(...))`` fits by
    least squares.

    Parameters
    ----------
    kernel : Kernel
        k, on vectors: the entries of a patch. Its hyperparameters are learnable.
    patches : array-like of shape (n_patches, size)
        The coordinates of each patch; ``square_patches`` makes those of pictures.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> from representer.operators import Patchwise
    >>> K = Patchwise(Linear(), [[0, 1], [1, 2]])
    >>> K.dense(K.prepare([[1.0, 2.0, 3.0]]), None, p=3).diagonal().tolist()
    [5.0, 18.0, 13.0]
    """

    rules = {"kernel": Rule("a kernel on vectors", lambda k: isinstance(k, Kernel) and k.domain == "vectors")}

    def __init__(self, kernel: Kernel, patches: ArrayLike):
        self.kernel = kernel
        self.patches = patches

    def prepare(self, X: Data) -> Tensor:
        """The data as a floating tensor (n, d) that has the coordinates of all patches."""
        X = as_vectors(X)
        patches = np.asarray(self.patches)
        if patches.ndim != 2 or patches.dtype.kind not in "iu" or not patches.size or patches.min() < 0:
            raise ValueError(
                "patches of Patchwise must be an array (n_patches, size) of numbers of coordinates; got one of shape "
                f"{patches.shape} and type {patches.dtype}."
            )
        if patches.max() >= X.shape[-1]:
            raise ValueError(f"A patch has the coordinate {patches.max()}, but the samples have {X.shape[-1]}.")
        return X

    def _windows(self) -> tuple[_Window, ...]:
        return tuple(_Window(self.kernel, tuple(patch)) for patch in np.asarray(self.patches).tolist())

    def _masks(self, p: int, like: Tensor) -> Tensor:
        """Masks (n_patches, p) with 1 where an output lies in a patch."""
        places = torch.from_numpy(np.asarray(self.patches, dtype=np.int64)).to(like.device)
        return like.new_zeros(len(places), p).scatter_(1, places, 1.0)

    def _resolve(self, X: Tensor) -> Self:
        entries = torch.cat([window.entries(X) for window in self._windows()])
        return self._with_arguments(kernel=self.kernel._resolve(entries))

    def dense(self, X: Tensor, Y: Tensor | None, p: int) -> Tensor:
        """The block matrix, in which every block is diagonal."""
        return diagonal_blocks(torch.stack([window._gram(X, Y) for window in self._windows()], -1) @ self._masks(p, X))

    def apply(self, X: Tensor, anchors: Tensor, coefficients: Tensor) -> Tensor:
        """The sum of the products of all patches."""
        masks = self._masks(coefficients.shape[-1], X)
        terms = (w._gram(X, anchors) @ coefficients * mask for w, mask in zip(self._windows(), masks, strict=True))
        return reduce(torch.add, terms)

    def diag(self, X: Tensor, p: int) -> Tensor:
        """The sums of k(x_w, x_w) over the patches of each output."""
        return torch.stack([window._diag(X) for window in self._windows()], -1) @ self._masks(p, X)

    def diagonal_form(self, p: int, like: Tensor) -> DiagonalForm:
        """The kernel itself, which is diagonal: outputs in the same patches share their Gram matrix."""
        return DiagonalForm(None, self._windows(), self._masks(p, like))


class _Window(Kernel):
    """The kernel k(x_w, y_w) of the coordinates w in a patch."""

    def __init__(self, kernel: Kernel, coordinates: tuple[int, ...]):
        self.kernel = kernel
        self.coordinates = coordinates

    def entries(self, X: Tensor) -> Tensor:
        """The entries of all samples at the coordinates w."""
        return X[..., list(self.coordinates)]

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return self.kernel._gram(self.entries(X), None if Y is None else self.entries(Y))

    def _diag(self, X: Tensor) -> Tensor:
        return self.kernel._diag(self.entries(X))


def square_patches(height: int, width: int, size: int, step: int) -> np.ndarray:
    """The numbers of the pixels of all square patches (n_patches, size²) of a picture that is stored row by row.

    Examples
    --------
    >>> from representer.operators import square_patches
    >>> square_patches(2, 3, size=2, step=1).tolist()
    [[0, 1, 3, 4], [1, 2, 4, 5]]
    """
    numbers = np.arange(height * width).reshape(height, width)
    return sliding_window_view(numbers, (size, size))[::step, ::step].reshape(-1, size * size)


class OutputMean(Kernel):
    """The mean tr K(x, y) / p of the outputs' kernels, a scalar kernel by which the support of samples is measured.

    Parameters
    ----------
    kernel : OperatorKernel
        K.
    n_outputs : int
        p.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> from representer.operators import Separate
    >>> from representer.operators.joint import OutputMean
    >>> OutputMean(Separate([Linear(), 3.0 * Linear()]), 2)([[1.0], [2.0]]).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """

    def __init__(self, kernel: OperatorKernel, n_outputs: int):
        self.kernel = kernel
        self.n_outputs = n_outputs

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """The kind of data that K takes."""
        return self.kernel.domain

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Are all scalar kernels inside bounded, and none of them one of coordinates?"""
        return _is_bounded(self.kernel)

    def prepare(self, X: Data) -> Data:
        """The data as K takes them."""
        return self.kernel.prepare(X)

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        p = self.n_outputs
        blocks = self.kernel.dense(X, Y, p)
        return torch.stack([blocks[a::p, a::p] for a in range(p)]).mean(0)

    def _diag(self, X: Data) -> Tensor:
        return self.kernel.diag(X, self.n_outputs).mean(1)


def _is_bounded(kernel: OperatorKernel) -> bool:
    """Is K(x, x) known to be bounded for all x?"""
    if isinstance(kernel, Coordinatewise):
        return False
    children = [child for _, child in kernel._children()]
    scalar = all(is_bounded(child) for child in children if isinstance(child, Kernel))
    return scalar and all(_is_bounded(child) for child in children if isinstance(child, OperatorKernel))


def mean_kernel(kernel: OperatorKernel, n_outputs: int) -> Kernel:
    """The scalar kernel k of k(x, y) A; the mean of the outputs' kernels for any other operator-valued kernel.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable, Separate
    >>> from representer.operators.joint import mean_kernel
    >>> mean_kernel(Decomposable(Linear()), 2)
    Linear()
    >>> mean_kernel(Separate([Linear(), 3.0 * Linear()]), 2)([[2.0]]).tolist()
    [[8.0]]
    """
    return kernel.kernel if isinstance(kernel, Decomposable) else OutputMean(kernel, n_outputs)


def diagonal_regularization(kernel: Kernel, weight: float) -> OperatorSum:
    """The kernel (1 − weight) k(x, x') I + weight · diag(x ∘ x'), for outputs with the inputs' coordinates (images).

    Its joint kernel is the diagonal regularisation of Weston et al. (2007),
    (1 − weight) k(x, x')⟨y, y'⟩ + weight Σ_a x_a x'_a y_a y'_a.

    Parameters
    ----------
    kernel : Kernel
        k, on vectors.
    weight : float
        Between 0 and 1.

    Returns
    -------
    kernel : OperatorSum
        The kernel, for ``OperatorRidge`` and ``joint_kernel``.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> from representer.operators import diagonal_regularization
    >>> K = diagonal_regularization(Linear(), 0.25)
    >>> K.dense(K.prepare([[2.0, 0.0]]), None, p=2).tolist()
    [[4.0, 0.0], [0.0, 3.0]]
    """
    if not (is_real(weight) and 0 <= weight <= 1):
        raise ValueError(f"weight must lie between 0 and 1; got {weight!r}.")
    return OperatorSum([Decomposable((1.0 - weight) * kernel), Coordinatewise(weight)])


def joint_kernel(
    kernel: OperatorKernel | Kernel, X1: Data, Y1: Data, X2: Data, Y2: Data, *, output_kernel: Kernel | None = None
) -> Tensor:
    """The joint kernel J((x, y), (x', y')) = ⟨K(x, x') φ(y), φ(y')⟩ of an operator-valued kernel, as a matrix.

    Parameters
    ----------
    kernel : OperatorKernel or Kernel
        K; a scalar kernel k stands for k(x, x') I, whose joint kernel is the tensor product k(x, x') l(y, y').
    X1, Y1 : data
        The inputs and outputs of n pairs.
    X2, Y2 : data
        The inputs and outputs of m pairs.
    output_kernel : Kernel, optional
        l, for kernels k(x, x') I; otherwise, and by default, outputs are vectors and φ(y) = y.

    Returns
    -------
    joint : tensor (n, m)
        The joint kernel of all pairs with all pairs.

    Examples
    --------
    >>> from representer.kernels import Delta, Linear
    >>> from representer.operators import joint_kernel
    >>> joint_kernel(Linear(), [[2.0]], ["a"], [[3.0], [5.0]], ["a", "b"], output_kernel=Delta()).tolist()
    [[6.0, 0.0]]
    """
    K = Decomposable(kernel) if isinstance(kernel, Kernel) else kernel
    one, two = K.prepare(X1), K.prepare(X2)
    if K.domain == "vectors" and one.shape[-1] != two.shape[-1]:
        raise ValueError(f"X1 and X2 must have as many columns; got {one.shape[-1]} and {two.shape[-1]}.")
    if output_kernel is not None:
        if not (isinstance(K, Decomposable) and isinstance(K._operator, Identity)):
            raise ValueError(f"output_kernel= is for kernels k(x, x') I; got {kernel!r}, which acts on vectors.")
        return K.kernel._gram(one, two) * _paired(output_kernel(Y1, Y2), one, two)
    left, right = as_vectors(Y1), as_vectors(Y2)
    p = left.shape[-1]
    if right.shape[-1] != p:
        raise ValueError(f"Y1 and Y2 must have as many columns; got {p} and {right.shape[-1]}.")
    expected = K.n_outputs(one)
    if expected is not None and expected != p:
        raise ValueError(f"{K!r} acts on vectors of {expected} numbers; the outputs have {p}.")
    if isinstance(K, Decomposable):
        inner = left @ K._operator.as_matrix(p, left) @ right.mT
        return K.kernel._gram(one, two) * _paired(inner, one, two)
    if isinstance(K, Coordinatewise):
        return number(K, "weight", one) * _paired((one * left) @ (two * right).mT, one, two)
    if isinstance(K, OperatorSum):
        terms = zip(K.terms, K.views(one, two), strict=True)
        return torch.stack([joint_kernel(term, a, left, b, right) for term, (a, b) in terms]).sum(0)
    _paired(left @ right.mT, one, two)
    joint = left.new_empty(count(one), count(two))
    for rows in row_blocks(len(joint), p * p * count(two) * left.element_size()):
        blocks = K.dense(one[rows], two, p).reshape(-1, p, count(two), p)
        joint[rows] = torch.einsum("iajb,ia,jb->ij", blocks, left[rows], right)
    return joint


def _paired(inner: Tensor, X1: Data, X2: Data) -> Tensor:
    """The inner products of outputs, if these are as many as the inputs; an error otherwise."""
    if inner.shape != (count(X1), count(X2)):
        raise ValueError(
            f"Pairs have as many inputs as outputs; got {count(X1)} and {count(X2)} inputs, {inner.shape[0]} and "
            f"{inner.shape[1]} outputs."
        )
    return inner
