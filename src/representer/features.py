"""Explicit features of kernels, k(x, y) = ⟨φ(x), φ(y)⟩, and those of sums, multiples and normalised forms.

The functions are methods: a kernel class takes the one that fits as its ``_features``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from representer.data import count
from representer.values import all_values

Numbers = Mapping[Hashable, int]


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

    matrix: Any
    columns: Numbers


def explicit_features(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """φ(X) with k(X) = φ(X) φ(X)ᵀ, for linear models; with the ``columns`` of earlier features, in the same columns.

    Features that ``columns`` does not have are left out. Words such as ``"median"`` are given their numbers by X; with
    ``columns`` they must have them already. Sums, multiples and normalised forms of kernels with explicit features have
    them, too.

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
    kernel.check_hyperparameters()
    X = kernel.prepare(X)
    if columns is None:
        kernel = kernel._resolve(X)
    elif any(isinstance(getattr(v, name), str) for v in all_values(kernel) for name in v.hyperparameters):
        raise ValueError(
            f"{kernel!r} has words that data decide, and the earlier features have had theirs. Call kernel.resolve(X) "
            "with the training data first, and take the features of both from that kernel."
        )
    features = kernel._features(X, columns)
    return ExplicitFeatures(_short(features.matrix), features.columns)


def _short(matrix: Any) -> Any:
    """With short indices where they suffice: some of scikit-learn's linear models take no others."""
    if not sparse.issparse(matrix) or max(matrix.nnz, *matrix.shape) > np.iinfo(np.int32).max:
        return matrix
    matrix = matrix.tocsr()
    parts = matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return sparse.csr_array(parts, shape=matrix.shape)


def none(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """There are none."""
    raise ValueError(
        f"{kernel!r} has no explicit features, or not finitely many. A kernel machine needs none; for large data there "
        "is approximation=Nystroem(m)."
    )


def of_vectors(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """The vectors themselves."""
    return ExplicitFeatures(X.numpy(), {i: i for i in range(X.shape[1])})


def of_constant(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """One column."""
    return ExplicitFeatures(np.full((count(X), 1), math.sqrt(kernel.value)), {"constant": 0})


def of_inner(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """Those of the kernel inside, which has the same values."""
    return kernel.kernel._features(X, columns)


def of_multiple(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """√scale · φ."""
    inner = kernel.kernel._features(X, columns)
    return ExplicitFeatures(math.sqrt(kernel.scale) * inner.matrix, inner.columns)


def of_normalized(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """φ over its whole norm: the columns may hold a part of it only."""
    inner = kernel.kernel._features(X, columns)
    norms = kernel.kernel._diag(X).sqrt().numpy()
    weights = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return ExplicitFeatures(sparse.diags_array(weights) @ inner.matrix, inner.columns)


def of_sum(kernel: Any, X: Any, columns: Numbers | None = None) -> ExplicitFeatures:
    """The features of both, side by side; columns are named by the side and the name there."""
    matrices, names = [], []
    for side in ("left", "right"):
        own = None
        if columns is not None:
            given: Any = sorted(columns, key=columns.__getitem__)
            own = {name: i for i, name in enumerate(name for which, name in given if which == side)}
        features = getattr(kernel, side)._features(X, own)
        matrices.append(features.matrix)
        names += [(side, name) for name in features.columns]
    thin = any(map(sparse.issparse, matrices))
    matrix = sparse.hstack(matrices, format="csr") if thin else np.hstack(matrices)
    return ExplicitFeatures(matrix, {name: i for i, name in enumerate(names)})
