"""Explicit features with named columns: what ``Kernel.explicit_features`` returns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

Columns = Mapping[Hashable, int]


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


def side_by_side(parts: Mapping[str, ExplicitFeatures]) -> ExplicitFeatures:
    """The features of several kernels in one matrix; a column is named by the part and its name there."""
    matrices = [part.matrix for part in parts.values()]
    names = [(which, name) for which, part in parts.items() for name in part.columns]
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
