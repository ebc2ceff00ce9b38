"""Data and kernels adapted to a learner: to its precision, its device, and its repair of an indefinite kernel.

An indefinite Gram matrix K = U diag(e) Uᵀ is replaced by K₊ = U diag(e₊) Uᵀ. With P the projection onto the
eigenvectors of e₊, K₊ = K P: so k(x, X) P extends K₊ to new points, and the function Σ_j k(·, x_j) (P c)_j takes the
values K₊ c at the training points. Without P, the part of k(x, X) outside of these eigenvectors would be divided by the
ridge alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from representer.kernels import NAMES, Kernel, Pair, Stack, Table, Wrapped
from representer.kernels import Callable as FunctionKernel
from representer.linalg import IndefiniteGramWarning, eigh, repair_gram
from representer.notices import silenced
from representer.operators.base import Compound, Decomposable, OperatorKernel
from representer.samples import (
    Block,
    Data,
    SparseRows,
    count,
    equal_rows,
    evenly_spaced,
    groups_with_replicates,
    joined_groups,
    plain,
    take,
)
from representer.values import Value, all_values, map_children


class Adapted(Wrapped):
    """A kernel k in the precision and on the device of a learner, and with ``repair`` k(X) positive semi-definite.

    Kernels on dense vectors need no adapter: the vectors have a precision, and the kernels are positive semi-definite.
    Strings and bags have no precision, and some of their kernels are indefinite.
    """

    def __init__(self, kernel: Kernel, dtype: torch.dtype, device: str | None = None, *, repair: bool = False):
        self.kernel = kernel
        self.dtype = dtype
        self.device = device
        self.repair = repair

    def _moved(self, values: Tensor) -> Tensor:
        """Values in the precision and on the device of the learner."""
        return values.to(dtype=self.dtype, device=self.device)

    def unrepaired(self, X: Data) -> Tensor:
        """The Gram matrix k(X) without a repair."""
        return self._moved(self.kernel._gram(X, None))

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        if Y is not None:
            return self._moved(self.kernel._gram(X, Y))
        return repair_gram(self.unrepaired(X)) if self.repair else self.unrepaired(X)

    def _diag(self, X: Data) -> Tensor:
        return self._moved(self.kernel._diag(X))

    def features(self, X: Data) -> Tensor | None:
        """The explicit features of the kernel inside, if it has any."""
        features = self.kernel.features(X)
        return None if features is None else self._moved(features)

    def __repr__(self) -> str:
        return repr(self.kernel)


class Projected(Wrapped):
    """The kernel k(x, X) P with the training data X and the projection P = vectors · vectorsᵀ."""

    def __init__(self, kernel: Kernel, vectors: Tensor):
        self.kernel = kernel
        self.vectors = vectors

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        gram = self.kernel._gram(X, Y)
        return gram if Y is None else (gram @ self.vectors) @ self.vectors.mT

    def _diag(self, X: Data) -> Tensor:
        return self.kernel._diag(X)


def repaired_gram(kernel: Kernel, X: Data) -> tuple[Tensor, Tensor | None]:
    """The positive semi-definite Gram matrix k(X), and the eigenvectors of its positive part if it was repaired."""
    if not (isinstance(kernel, Adapted) and kernel.repair):
        return kernel._gram(X, None), None
    unrepaired = kernel.unrepaired(X)
    gram = repair_gram(unrepaired)
    if gram is unrepaired:
        return gram, None
    spectrum = eigh(gram, name="The repaired Gram matrix")
    rounding = len(gram) * torch.finfo(gram.dtype).eps * spectrum.values[-1]
    return gram, spectrum.vectors[:, spectrum.values > rounding]


def searched(kernel: Kernel, X: Data) -> Kernel:
    """The kernel for a search, which is not repaired if it is positive semi-definite at the start.

    Leave-one-out errors of repaired matrices are too small, because the left-out samples had a part in the repair.
    """
    if not (isinstance(kernel, Adapted) and kernel.repair) or repaired_gram(kernel, X)[1] is not None:
        return kernel
    return Adapted(kernel.kernel, kernel.dtype, kernel.device)


def silent_repairs() -> AbstractContextManager[None]:
    """Suppress warnings about repaired Gram matrices, in a search or after the first such warning."""
    return silenced(IndefiniteGramWarning)


@dataclass(frozen=True)
class Representation:
    """The form of a learner's data: the precision and the device of its tensors, and whether vectors are sparse."""

    dtype: torch.dtype
    device: str | None = None
    sparse: bool = False

    def tensor(self, array: np.ndarray | Tensor) -> Tensor:
        """An array, or another tensor, as a tensor of this precision and on this device."""
        if isinstance(array, Tensor):
            return array.to(dtype=self.dtype, device=self.device)
        writeable = np.require(array, requirements=["C", "W"])
        tensor = torch.as_tensor(writeable, dtype=self.dtype, device=self.device)
        if self.dtype == torch.float32 and bool(tensor.isinf().any()):
            raise ValueError(
                f"The data hold numbers up to {np.abs(writeable).max():.3g}, which dtype='float32' cannot. Rescale "
                "them (StandardScaler), or use dtype='float64'."
            )
        return tensor

    def inputs(self, kernel: Kernel | OperatorKernel | Stack, X: Data) -> Data:
        """Checked inputs in the form that the kernel's ``_gram`` takes; vectors are sparse if those of the fit are."""
        if kernel.domain in ("vectors", "gram") and not self.sparse:
            return kernel.prepare(self.tensor(X.toarray() if issparse(X) else X))
        return kernel.prepare(SparseRows(X) if self.sparse else X)

    def block(self, X: Data, Y: np.ndarray, weights: np.ndarray | None, groups: np.ndarray | None) -> Block:
        """The block of prepared inputs, their targets, and weights and groups where there are some."""
        w = None if weights is None else self.tensor(weights)
        return Block(X, self.tensor(Y), w, None if groups is None else torch.from_numpy(groups))

    @overload
    def adapted(self, kernel: Kernel, *, repair: bool) -> Kernel: ...
    @overload
    def adapted(self, kernel: OperatorKernel, *, repair: bool) -> OperatorKernel: ...
    def adapted(self, kernel: Kernel | OperatorKernel, *, repair: bool) -> Kernel | OperatorKernel:
        """The kernel adapted to this precision and device; definite kernels of dense vectors stay as they are.

        The scalar kernels of an operator-valued one are adapted. A repair is for one scalar kernel only, where a
        projection extends it to new points.
        """
        definite = all(getattr(value, "definite", True) for value in all_values(kernel))
        if kernel.domain == "vectors" and not self.sparse and definite:
            return kernel
        if isinstance(kernel, Kernel):
            return Adapted(kernel, self.dtype, self.device, repair=repair)
        repair = repair and isinstance(kernel, Decomposable)
        return _with_kernels(kernel, lambda k: Adapted(k, self.dtype, self.device, repair=repair))


@overload
def original(kernel: Kernel) -> Kernel: ...
@overload
def original(kernel: OperatorKernel) -> OperatorKernel: ...
def original(kernel: Kernel | OperatorKernel) -> Kernel | OperatorKernel:
    """The user's kernel inside an adapted one, scalar or operator-valued."""
    if isinstance(kernel, OperatorKernel):
        return _with_kernels(kernel, original)
    return kernel.kernel if isinstance(kernel, Adapted) else kernel


def _with_kernels(kernel: OperatorKernel, change: Callable[[Kernel], Kernel]) -> OperatorKernel:
    """The same operator-valued kernel with all its scalar kernels changed."""

    def replaced(_: str, value: Value) -> Value:
        if isinstance(value, OperatorKernel):
            return _with_kernels(value, change)
        return change(value) if isinstance(value, Kernel) else value

    return kernel._rebuild(lambda name, argument: map_children(name, argument, replaced))


def takes_sparse(kernel: object) -> bool:
    """Do all kernels inside a kernel take sparse matrices? A kernel that maps its data first does not.

    Examples
    --------
    >>> from representer.kernels import Gaussian, MinMax
    >>> from representer.operators import takes_sparse
    >>> takes_sparse(MinMax() + 1.0), takes_sparse(Gaussian())
    (True, False)
    """
    if isinstance(kernel, str) and kernel == "auto":
        return True  # there is a family of sparse rows
    if isinstance(kernel, str) and kernel in NAMES:
        kernel = NAMES[kernel]()
    if isinstance(kernel, Pair | Wrapped | Decomposable | Compound | Stack):
        return all(takes_sparse(k) for _, k in kernel._children() if isinstance(k, Kernel | OperatorKernel))
    return isinstance(kernel, Kernel) and kernel.takes_sparse


def takes_gaps(kernel: Kernel | OperatorKernel | Stack) -> bool:
    """Do all kernels take vectors with missing entries (NaN)?

    Examples
    --------
    >>> from representer.kernels import Gaussian, Missing
    >>> from representer.operators import takes_gaps
    >>> takes_gaps(Missing(Gaussian())), takes_gaps(Gaussian())
    (True, False)
    """
    if isinstance(kernel, Kernel):
        return kernel.takes_gaps
    return all(takes_gaps(k) for _, k in kernel._children() if isinstance(k, Kernel | OperatorKernel))


# -- inputs that a kernel cannot tell apart ---------------------------------------------------------------------------
# All objects are compared with this many of them; only those with equal similarities are compared with each other.
ANCHORS = 16
# The squared distance k(x, x) + k(y, y) − 2k(x, y), as a share of k(x, x) + k(y, y), up to which inputs are equal.
EQUAL = 1e-12


def replicates(kernel: Kernel | OperatorKernel | Stack, X: Data) -> np.ndarray | None:
    """Numbers (n,) of the prepared inputs, the same for equal inputs; None if all inputs are distinct.

    Vectors are equal if their numbers are, up to rounding. Other inputs are equal if the kernel has no distance between
    them, ‖k(x, ·) − k(y, ·)‖ = 0; if there are several kernels, one without a distance is enough. A function of whole
    collections cannot be asked about single inputs: for it all inputs are distinct.

    Examples
    --------
    >>> from representer.kernels import Spectrum
    >>> from representer.operators import replicates
    >>> replicates(Spectrum(1), ["ab", "abc", "ba"]).tolist()
    [0, 1, 0]
    """
    if kernel.domain == "vectors":
        numbers = equal_rows(X.detach().cpu().numpy() if isinstance(X, Tensor) else X)
    elif any(isinstance(value, FunctionKernel) and value.batched for value in all_values(kernel)):
        return None
    elif isinstance(kernel, Table):
        numbers = equal_rows(kernel.entry_numbers(kernel.prepare(X)))  # these are fewer than coordinates
    elif isinstance(kernel, Kernel):
        numbers = _equal_objects(kernel, kernel.prepare(X))  # each of several kernels prepares X in its own way
    elif isinstance(kernel, Compound):
        inner = zip(kernel.parts, kernel.views(kernel.prepare(X)), strict=True)
        return joined_groups(*(replicates(child, *view) for child, view in inner))
    else:
        children = [child for _, child in kernel._children() if isinstance(child, Kernel | OperatorKernel)]
        return joined_groups(*(replicates(child, X) for child in children))
    return None if len(np.unique(numbers)) == len(numbers) else numbers


def left_out_together(kernel: Kernel | OperatorKernel | Stack, X: Data, groups: np.ndarray | None) -> np.ndarray | None:
    """The numbers of the groups that are left out together: those of the user, joined by equal prepared inputs."""
    return groups_with_replicates(groups, replicates(kernel, X))


def _equal_objects(kernel: Kernel, X: Data) -> np.ndarray:
    """The numbers of groups of inputs without a distance, sought among inputs with equal similarities to anchors."""
    n = count(X)
    anchors = evenly_spaced(n, ANCHORS)
    with torch.no_grad():
        kernel = kernel._resolve(X)
        similarities = X[:, anchors] if kernel.domain == "gram" else kernel._gram(X, take(X, torch.from_numpy(anchors)))
        numbers = equal_rows(plain(similarities), far=False)
        _, members, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
        alike = np.argsort(members, kind="stable")
        for rows in np.split(alike, np.cumsum(sizes)[:-1]):
            if len(rows) > 1:
                numbers[rows] = rows[_together(kernel, X, rows)]
    return numbers


def _together(kernel: Kernel, X: Data, rows: np.ndarray) -> np.ndarray:
    """For each of these inputs the place of the first one among them that has no distance from it."""
    index = torch.from_numpy(rows)
    gram = X[index[:, None], index] if kernel.domain == "gram" else kernel._gram(take(X, index), None)
    squares = gram.diagonal()
    total = squares[:, None] + squares
    tolerance = max(EQUAL, 100.0 * torch.finfo(gram.dtype).eps)
    return plain((total - 2.0 * gram <= tolerance * total).to(torch.uint8).argmax(1))
