"""Structured prediction by formula (15) of Kadri, Ghavamzadeh and Preux (2013).

The baseline of ``bench_structured_decoders``: incomplete Cholesky factors k ≈ U Uᵀ and L ≈ V Vᵀ of m₁ and m₂ columns,
and a system of m₁m₂ unknowns for the covariance operator. Nothing of the library is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def incomplete_cholesky(gram: Array, rank: int) -> Array:
    """The first columns of a Cholesky factor with pivots (Bach and Jordan, 2002)."""
    factor, left = np.zeros((len(gram), rank)), gram.diagonal().copy()
    for j in range(rank):
        pivot = int(left.argmax())
        if left[pivot] <= 1e-14 * gram.diagonal().max():
            return factor[:, :j]
        factor[:, j] = (gram[:, pivot] - factor[:, :j] @ factor[pivot, :j]) / np.sqrt(left[pivot])
        left -= factor[:, j] ** 2
    return factor


def literal_scores(k: Array, L: Array, k_new: Array, L_new: Array, lam: float, rank: int) -> Array:
    """2⟨g(x), l(·, y)⟩ for inputs with k_new (q, n) and candidates with L_new (c, n), as in (15).

    ``lam`` is the paper's λ, beside the sum of the losses.
    """
    n = len(k)
    U, V = incomplete_cholesky(k, rank), incomplete_cholesky(L, rank)
    system = np.kron(U.T @ U, V.T @ V)
    system[np.diag_indices_from(system)] += n * lam
    z = np.linalg.solve(system, (V.T @ U).ravel(order="F"))
    Z = z.reshape(V.shape[1], U.shape[1], order="F")
    return 2.0 / (n * lam) * (L_new @ (L @ k_new.T - L @ (V @ (Z @ (U.T @ k_new.T))))).T
