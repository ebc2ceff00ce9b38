"""Cholesky factors of positive semi-definite matrices, with one policy of jitter; units that round nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from scipy.linalg import get_lapack_funcs
from torch import Tensor

from representer.linalg.resources import empty_matrix


def power_of_two(sizes: Tensor) -> Tensor:
    """The largest powers of two not above positive sizes; 1 for a size that is zero or not finite.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import power_of_two
    >>> power_of_two(torch.tensor([5.0, 0.3, 0.0])).tolist()
    [4.0, 0.25, 1.0]
    """
    _, exponents = torch.frexp(torch.where((sizes > 0) & sizes.isfinite(), sizes, 1.0).detach())
    return torch.ldexp(torch.ones_like(sizes), exponents - 1)


# Cholesky is backward stable to about n·eps times the size of the matrix, which is the first jitter. Each further try
# grows it a hundredfold, up to the cube root of eps (6e-6 of the mean diagonal in double precision): a matrix that
# needs more is not a rounded positive semi-definite matrix but an indefinite one.
JITTER_GROWTH = 100.0

# The factor of BᵀB comes from an orthogonal decomposition of B if BᵀB takes at most this many multiplications.
ORTHOGONAL_WORK = 10**7

# A strip of this many columns and its transpose fit into a processor's fast memory.
STRIP = 128

NOT_FINITE = "has NaN or infinite entries; check the scale of the data and the kernel's hyperparameters."


@dataclass
class RoundingNotes:
    """The notes about rounding in a fit: the jitter of its matrices, and the residuals of its equations, by name.

    The last note of a name counts, because a search may pass matrices that need jitter, where the final fit needs none.
    """

    jitters: dict[str, float] = field(default_factory=dict)  # relative to the mean diagonal
    residuals: dict[str, float] = field(default_factory=dict)  # of equations, relative to their right side


_notes: ContextVar[RoundingNotes | None] = ContextVar("notes of rounding", default=None)


@contextmanager
def noted_rounding() -> Iterator[RoundingNotes]:
    """A context that notes the jitter and the residuals of the factorisations and solves inside."""
    notes = RoundingNotes()
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def _note(name: str, share: float) -> None:
    """Note the jitter of a matrix as a share of its mean diagonal."""
    notes = _notes.get()
    if notes is not None:
        notes.jitters[name] = share


def note_residual(name: str, residual: Callable[[], float]) -> None:
    """Note the residual of solved equations; it is computed only inside of ``noted_rounding``."""
    notes = _notes.get()
    if notes is not None:
        notes.residuals[name] = residual()


class NotPositiveDefiniteError(ValueError):
    """A matrix that should be positive semi-definite is not, even up to rounding."""


@dataclass(frozen=True)
class Cholesky:
    """The factor L of A + jitter·I = L Lᵀ, and the solves that it gives."""

    factor: Tensor
    jitter: Tensor

    def solve(self, right: Tensor) -> Tensor:
        """The solution A⁻¹ B."""
        return self.back_solve(self.half_solve(right))

    def half_solve(self, right: Tensor) -> Tensor:
        """The first half L⁻¹ B of a solution, whose columns have the squared norms of Bᵀ A⁻¹ B."""
        return torch.linalg.solve_triangular(self.factor, right, upper=False)

    def half_solve_rows(self, rows: Tensor) -> Tensor:
        """The vectors L⁻¹ r of all rows r, as rows."""
        return self.half_solve(rows.mT).mT

    def back_solve(self, right: Tensor) -> Tensor:
        """The product L⁻ᵀ B, the second half of a solve."""
        return torch.linalg.solve_triangular(self.factor.mT, right, upper=True)

    def inverse(self, less: Tensor | None = None) -> Tensor:
        """The dense matrix A⁻¹, or A⁻¹ − v vᵀ for a column v (..., n, 1)."""
        inverse = self._inverse()
        if less is None or less.ndim > 2:
            return inverse if less is None else inverse - less @ less.mT
        return inverse.addmm_(less, less.mT, alpha=-1.0)

    def _inverse(self) -> Tensor:
        if not _for_scipy(self.factor):
            return torch.cholesky_inverse(self.factor)
        factor = empty_matrix(self.factor.shape, self.factor).copy_(self.factor.mT).numpy().T
        (potri,) = get_lapack_funcs(("potri",), (factor,))
        return mirrored(torch.from_numpy(potri(factor, lower=True, overwrite_c=True)[0].T))

    def inverse_diagonal(self) -> Tensor:
        """The diagonal of A⁻¹ (..., n), for half of the work of A⁻¹."""
        if not _for_scipy(self.factor):
            return torch.cholesky_inverse(self.factor).diagonal(dim1=-2, dim2=-1)
        factor = np.array(self.factor.numpy(), order="F")
        (trtri,) = get_lapack_funcs(("trtri",), (factor,))
        return torch.from_numpy(trtri(factor, lower=True, overwrite_c=True)[0]).tril_().square_().sum(0)


def factorize(matrix: Tensor | Callable[[], Tensor], *, name: str = "the matrix", strict: bool = True) -> Cholesky:
    """Cholesky factor of a symmetric positive semi-definite matrix, with the least jitter that works.

    Jitter is relative to the mean diagonal and is escalated only for the members of a batch (..., n, n) that need it.
    If a function makes the matrix, the factor overwrites it, so that one n × n buffer is enough; in the rare case that
    jitter is needed, the function is called again. If the last try fails, an error gives the ``name`` of the matrix;
    without ``strict``, such members of a batch get a factor full of NaN, which an optimiser treats as inadmissible.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import factorize
    >>> A = torch.tensor([[4.0, 2.0], [2.0, 5.0]], dtype=torch.float64)
    >>> factorize(A).factor.tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    if callable(matrix):
        build, matrix = matrix, matrix()
        if matrix.is_contiguous() and not matrix.requires_grad:
            factor, info = _overwritten_by_factor(matrix)
            if not bool(_failures(factor, info).any()):
                _note(name, 0.0)
                return Cholesky(factor, matrix.new_zeros(matrix.shape[:-2]))
            matrix = build()
    factor, info = torch.linalg.cholesky_ex(matrix)
    info = _failures(factor, info)
    if bool(info.any()):
        return _factorize_with_jitter(matrix, info, name=name, strict=strict)
    _note(name, 0.0)
    return Cholesky(factor, matrix.new_zeros(matrix.shape[:-2]))


def _for_scipy(matrix: Tensor) -> bool:
    """May SciPy work on the memory of this matrix? Its LAPACK is faster than torch's."""
    return matrix.ndim == 2 and matrix.device.type == "cpu" and not matrix.requires_grad and matrix.numel() > 0


def mirrored(matrix: Tensor) -> Tensor:
    """The symmetric matrix with this upper triangle; the lower one is filled in place, in strips."""
    for start in range(0, len(matrix), STRIP):
        stop = start + STRIP
        block = matrix[start:stop, start:stop]
        block.copy_(block.triu() + block.triu(1).mT)
        matrix[stop:, start:stop] = matrix[start:stop, stop:].mT
    return matrix


def _overwritten_by_factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The factor in the memory of a contiguous matrix, and 0 or the pivot that failed."""
    factor = matrix.mT  # LAPACK works on columns: it copies nothing from the transposed view
    if _for_scipy(matrix):
        (potrf,) = get_lapack_funcs(("potrf",), (factor.numpy(),))
        _, pivot = potrf(factor.numpy(), lower=True, clean=True, overwrite_a=True)
        return factor, torch.tensor(pivot, dtype=torch.int32)
    info = torch.empty(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(factor, out=(factor, info))
    return factor, info


def _failures(factor: Tensor, info: Tensor) -> Tensor:
    """Non-zero numbers for failed factorisations; a NaN that LAPACK passes silently shows in the last pivot."""
    if not factor.shape[-1]:
        return info
    return info + (~torch.isfinite(factor.detach()[..., -1, -1])).to(info.dtype)


def shifted(matrix: Tensor, shift: Tensor | float) -> Tensor:
    """The matrix A + diag(shift) in new, contiguous memory; one shift, or one for each row (..., n)."""
    if matrix.ndim > 2 or (matrix.requires_grad and torch.is_grad_enabled()):
        result = matrix.clone(memory_format=torch.contiguous_format)
    else:
        result = empty_matrix(matrix.shape, matrix).copy_(matrix)
    result.diagonal(dim1=-2, dim2=-1).add_(shift)
    return result


def _factorize_with_jitter(matrix: Tensor, info: Tensor, *, name: str, strict: bool) -> Cholesky:
    """The factor of a matrix whose plain factorisation failed, with growing jitter."""
    scale = matrix.detach().diagonal(dim1=-2, dim2=-1).abs().mean(-1)
    scale = torch.where(scale > 0, scale, 1.0)  # a matrix of zeros has no scale of its own
    eps = torch.finfo(matrix.dtype).eps
    share = matrix.shape[-1] * eps
    limit = max(share, eps ** (1.0 / 3.0))
    jitter = torch.zeros_like(scale)
    while True:
        jitter = torch.where(info > 0, share * scale, jitter)
        factor, info = torch.linalg.cholesky_ex(shifted(matrix, jitter[..., None]))
        if not bool(info.any()):
            _note(name, share)
            return Cholesky(factor, jitter)
        if share >= limit:
            break
        share = min(share * JITTER_GROWTH, limit)
    if strict:
        raise NotPositiveDefiniteError(_diagnose(matrix.detach(), info, name))
    return Cholesky(torch.where((info > 0)[..., None, None], torch.nan, factor), jitter)


def _diagnose(matrix: Tensor, info: Tensor, name: str) -> str:
    """The error for the first member of a batch that could not be factored."""
    index = torch.nonzero(info.reshape(-1))[0].item()
    failed = matrix.reshape(-1, *matrix.shape[-2:])[int(index)]
    if not bool(torch.isfinite(failed).all()):
        return f"{name} {NOT_FINITE}"
    n, lowest = failed.shape[-1], torch.linalg.eigvalsh(failed)[0].item()
    return (
        f"{name} ({n} × {n}) is not positive definite: its smallest eigenvalue is {lowest:.3g} against a mean "
        f"diagonal of {failed.diagonal().mean().item():.3g}. A kernel that is not positive semi-definite, or duplicate "
        "rows without regularisation, are the usual reasons: increase alpha, remove duplicates, or "
        "repair the Gram matrix with representer.linalg.repair_gram."
    )


def is_finite(matrix: Tensor) -> bool:
    """Are all entries finite? One pass without a temporary, unless the sum itself overflows."""
    matrix = matrix.detach()
    return math.isfinite(matrix.sum().item()) or bool(torch.isfinite(matrix).all())


def factorize_products(
    rows: Tensor, shift: Tensor, *, name: str = "The matrix BᵀB + shift·I", strict: bool = True
) -> Cholesky:
    """The Cholesky factor of BᵀB + shift·I for rows B (..., n, m) and shifts (...).

    Up to ``ORTHOGONAL_WORK`` it is the triangle R of [B; √shift·I] = Q R, because the products BᵀB would square the
    condition number of B.
    """
    if rows.shape[-2] * rows.shape[-1] ** 2 <= ORTHOGONAL_WORK and rows.shape[-1]:
        eye = torch.eye(rows.shape[-1], dtype=rows.dtype, device=rows.device)
        lower = shift.sqrt()[..., None, None] * eye
        _, R = torch.linalg.qr(torch.cat([rows, lower.expand(*rows.shape[:-2], *lower.shape[-2:])], -2), mode="r")
        diagonal = R.diagonal(dim1=-2, dim2=-1)
        if bool((diagonal != 0).all() & diagonal.isfinite().all()):
            return Cholesky(R.mT * diagonal.sign()[..., None, :], rows.new_zeros(rows.shape[:-2]))
    return factorize(lambda: shifted(rows.mT @ rows, shift[..., None]), name=name, strict=strict)


@torch.no_grad()
def pivoted_cholesky(
    matrix: Tensor | Callable[[int], Tensor],
    *,
    diagonal: Tensor | None = None,
    tol: float = 1e-12,
    max_rank: int | None = None,
) -> tuple[Tensor, Tensor]:
    """A factor B (n × r) with A ≈ B Bᵀ and the r pivots, r as small as the tolerance allows.

    It stops when the largest remaining diagonal entry is at most ``tol`` times the largest of A, or at ``max_rank``.
    The result has no derivative; a Cholesky factor of the rows at the pivots has one. If a function computes column i
    of the matrix, it is called for r columns only, and ``diagonal`` is needed.

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
        raise ValueError("pivoted_cholesky with a column function needs diagonal=, the diagonal of the matrix.")
    else:
        column = matrix
    residual = diagonal.clone()
    n = len(residual)
    limit = n if max_rank is None else min(n, max_rank)
    factor = residual.new_zeros(min(limit, 64), n)  # rows are factor columns: contiguous, grown by doubling
    pivots: list[int] = []
    threshold = tol * max(residual.max().item(), 0.0) if n else 0.0
    while (rank := len(pivots)) < limit:
        pivot = int(residual.argmax())  # it finds a NaN, too
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
    """The pivoted factor of a whole matrix by LAPACK, which works in blocks and is faster than column by column."""
    if not is_finite(matrix):
        raise NotPositiveDefiniteError(f"The matrix of a pivoted Cholesky factorisation {NOT_FINITE}")
    n = len(matrix)
    largest = matrix.diagonal().max().item() if n else 0.0
    if not largest > 0.0:
        return matrix.new_zeros(n, 0), torch.zeros(0, dtype=torch.long)
    array = matrix.contiguous().numpy().T
    (pstrf,) = get_lapack_funcs(("pstrf",), (array,))
    packed, order, rank, _ = pstrf(array, tol=tol * largest, lower=1)
    factor = torch.empty(n, rank, dtype=matrix.dtype)
    rows = torch.from_numpy(order.astype(np.int64)) - 1
    factor[rows] = torch.from_numpy(packed[:, :rank]).tril()
    return factor, rows[:rank]
