"""Kernels of objects through sparse explicit features: k(x, y) = ⟨φ(x), φ(y)⟩ with few non-zero entries in φ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.kernels.base import Columns, Domain, ExplicitFeatures, Kernel
from representer.linalg import row_blocks
from representer.samples import Data

# A dense product does this many multiplications in the time of one in a sparse product.
DENSE_ADVANTAGE = 100


class ExplicitKernel(Kernel):
    """A kernel of objects with sparse explicit features; a subclass gives ``_features``.

    The Gram matrix is one sparse product. Features of new objects that no training object has are in no product with
    them and drop out by themselves.
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

    Features that many objects have are multiplied as dense columns, the others as sparse ones: each in the way that is
    faster for it.
    """
    other = left if right is None else right
    common = _occupancy(left) * (DENSE_ADVANTAGE * _occupancy(other)) > left.shape[0] * other.shape[0]
    gram = torch.zeros(left.shape[0], other.shape[0], dtype=torch.float64)
    for share, add in ((~common, _add_sparse), (common, _add_dense)):
        if share.any():
            columns = slice(None) if share.all() else share
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
    """Add the product of rare features, in blocks, because it holds an index with each entry; half if symmetric."""
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
