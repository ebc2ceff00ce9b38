"""Pivoted Cholesky: the leading part of a positive semi-definite matrix, by rows of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from representer.linalg.cholesky import NOT_FINITE, NotPositiveDefiniteError, is_finite
from representer.threads import blas_threads_for


@torch.no_grad()
def pivoted_cholesky(
    matrix: Tensor | Callable[[int], Tensor],
    *,
    diagonal: Tensor | None = None,
    tol: float = 1e-12,
    max_rank: int | None = None,
) -> tuple[Tensor, Tensor]:
    """A factor B (n × r) with A ≈ B Bᵀ and the r pivots, r as small as the tolerance allows.

    Stops when the largest remaining diagonal entry is at most ``tol`` times the largest of A, or at ``max_rank``. The
    pivots have no derivative: a Cholesky factor of the rows they choose has.

    Parameters
    ----------
    matrix : tensor (n, n), or a function i -> column i
        With a function, only r columns are ever computed; then ``diagonal`` is needed.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import pivoted_cholesky
    >>> x = torch.tensor([[1.0], [3.0], [2.0]], dtype=torch.float64)
    >>> factor, pivots = pivoted_cholesky(x @ x.T)
    >>> factor.squeeze().tolist(), pivots.tolist()
    ([1.0, 3.0, 2.0], [1])
    """
    if isinstance(matrix, Tensor) and max_rank is None and diagonal is None and matrix.device.type == "cpu":
        return _pivoted_by_lapack(matrix, tol)
    if isinstance(matrix, Tensor):
        column: Callable[[int], Tensor] = partial(matrix.select, 1)
        diagonal = matrix.diagonal() if diagonal is None else diagonal
    elif diagonal is None:
        raise ValueError(
            "pivoted_cholesky with a column function needs diagonal=, the diagonal of the matrix."
        )
    else:
        column = matrix
    residual = diagonal.clone()
    n = len(residual)
    limit = n if max_rank is None else min(n, max_rank)
    factor = residual.new_zeros(min(limit, 64), n)  # rows are factor columns: contiguous, grown by doubling
    pivots: list[int] = []
    threshold = tol * max(residual.max().item(), 0.0) if n else 0.0
    while (rank := len(pivots)) < limit:
        pivot = int(residual.argmax())  # argmax finds a NaN, too
        if not residual[pivot] > threshold:
            break
        if rank == len(factor):
            factor = torch.cat([factor, factor.new_zeros(min(rank, limit - rank), n)])
        new = column(pivot) - factor[:rank, pivot] @ factor[:rank]
        new = new / residual[pivot].sqrt()
        factor[rank] = new
        residual = (residual - new**2).clamp_(min=0.0)
        residual[pivot] = 0.0
        pivots.append(pivot)
    if not (is_finite(residual) and is_finite(factor)):
        raise NotPositiveDefiniteError(f"The matrix of a pivoted Cholesky factorisation {NOT_FINITE}")
    return factor[: len(pivots)].mT, torch.tensor(pivots, dtype=torch.long)


def _pivoted_by_lapack(matrix: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """The same for a matrix at hand, in blocks: several times faster than column by column."""
    if not is_finite(matrix):
        raise NotPositiveDefiniteError(f"The matrix of a pivoted Cholesky factorisation {NOT_FINITE}")
    n = len(matrix)
    largest = matrix.diagonal().max().item() if n else 0.0
    if not largest > 0.0:
        return matrix.new_zeros(n, 0), torch.zeros(0, dtype=torch.long)
    array = matrix.contiguous().numpy().T
    (pstrf,) = scipy.linalg.get_lapack_funcs(("pstrf",), (array,))
    with blas_threads_for(n):
        packed, order, rank, _ = pstrf(array, tol=tol * largest, lower=1)
    factor = torch.empty(n, rank, dtype=matrix.dtype)
    rows = torch.from_numpy(order.astype(np.int64)) - 1
    factor[rows] = torch.from_numpy(packed[:, :rank]).tril()
    return factor, rows[:rank]
