"""Cholesky factors: of a whole matrix, and of a low-rank matrix plus a ridge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from torch import Tensor

from representer.memory import empty_matrix
from representer.threads import blas_threads_for

# Cholesky is backward stable to about n·eps times the size of the matrix, so the first jitter is of that size; each
# further try grows it a hundredfold, up to the cube root of eps (6e-6 of the mean diagonal in double precision): beyond
# that the matrix is not a rounded positive semi-definite matrix but an indefinite one.
JITTER_GROWTH = 100.0

# Two blocks of so many rows and columns fit into a processor's fast memory.
MIRRORED_ROWS = 128
BELOW_DIAGONAL = np.tri(MIRRORED_ROWS, k=-1, dtype=bool)

# Triangles of so many rows are inverted by LAPACK, larger ones by halves.
SMALL_TRIANGLE = 128

# Rows of a triangular solve come in multiples of this, filled up with zeros. Otherwise the rounding of a row depends on
# where it stands and on the number of threads (OpenBLAS), and features must not depend on the block that x comes in.
ALIGNED_ROWS = 24

# So many rows a symmetric product takes at a time: enough for its full speed, few beside a large matrix.
WEIGHTED_ROWS = 1024

NOT_FINITE = "has NaN or infinite entries; check the data and the kernel's hyperparameters."


class NotPositiveDefiniteError(ValueError):
    """A matrix that should be positive semi-definite is not, beyond what rounding explains."""


@dataclass(frozen=True)
class Cholesky:
    """The factor L of A + jitter·I = L Lᵀ, and the solves that it gives."""

    factor: Tensor
    jitter: Tensor

    def solve(self, right: Tensor) -> Tensor:
        """A⁻¹ B; ``torch.cholesky_solve`` would copy the factor."""
        alike = right.ndim == 2 and right.dtype == self.factor.dtype and len(right) == len(self.factor)
        if alike and _for_lapack(self.factor) and _for_lapack(right):
            factor = self.factor.numpy()
            lower = factor.flags.f_contiguous  # otherwise its transpose is in the order of Fortran
            (potrs,) = get_lapack_funcs(("potrs",), (factor,))
            with blas_threads_for(len(factor)):
                found, _ = potrs(factor if lower else factor.T, right.numpy(), lower=lower)
            return torch.from_numpy(found)
        return self.back_solve(self.half_solve(right))

    def half_solve(self, right: Tensor) -> Tensor:
        """L⁻¹ B, whose columns have the squared norms of Bᵀ A⁻¹ B."""
        return torch.linalg.solve_triangular(self.factor, right, upper=False)

    def half_solve_rows(self, rows: Tensor) -> Tensor:
        """L⁻¹ r for each row r, as rows; those given may be overwritten. SciPy takes two thirds of torch's time."""
        plain = rows.device.type == "cpu" and rows.is_contiguous() and rows.ndim == self.factor.ndim == 2
        if not plain or rows.requires_grad or self.factor.requires_grad:
            return self.half_solve(rows.mT).mT
        left = rows.numpy()
        (trsm,) = get_blas_funcs(("trsm",), (left,))
        whole = len(left) - len(left) % ALIGNED_ROWS
        # In the order of Fortran the rows are columns, and both solves are in place.
        if whole:
            trsm(1.0, self.factor.numpy(), left[:whole].T, lower=1, overwrite_b=1)
        if rest := len(left) - whole:
            last = np.zeros((ALIGNED_ROWS, left.shape[1]), dtype=left.dtype)
            last[:rest] = left[whole:]
            trsm(1.0, self.factor.numpy(), last.T, lower=1, overwrite_b=1)
            left[whole:] = last[:rest]
        return rows

    def back_solve(self, right: Tensor) -> Tensor:
        """L⁻ᵀ B."""
        return torch.linalg.solve_triangular(self.factor.mT, right, upper=True)

    def inverse(self, less: Tensor | None = None) -> Tensor:
        """A⁻¹, dense; less v vᵀ for a column v (..., n, 1)."""
        if not _for_lapack(self.factor) or (less is not None and not _for_lapack(less)):
            inverse = torch.cholesky_inverse(self.factor)
            return inverse if less is None else inverse - less @ less.mT
        columns = empty_matrix(self.factor.shape, self.factor).numpy().T
        (lauum,), (syr,) = get_lapack_funcs(("lauum",), (columns,)), get_blas_funcs(("syr",), (columns,))
        work = empty_matrix(self.factor.shape, self.factor).numpy().ravel()
        with blas_threads_for(len(columns)):
            _invert_lower(self.factor.numpy(), columns, work)
            lauum(columns, lower=True, overwrite_c=True)
            if less is not None:
                syr(-1.0, less.numpy(), lower=True, a=columns, overwrite_a=True)
        return torch.from_numpy(_mirrored(columns))

    def logdet(self) -> Tensor:
        """log det A."""
        return 2.0 * self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def factorize(
    matrix: Tensor | Callable[[], Tensor], *, name: str = "the matrix", strict: bool = True
) -> Cholesky:
    """Cholesky factor of a symmetric positive semi-definite matrix, with the least jitter that works.

    Jitter is relative to the mean diagonal and is escalated only for the members of a batch that need it.

    Parameters
    ----------
    matrix : tensor (..., n, n), or a function that makes it
        Symmetric. What a function makes is overwritten by its own factor, so that one n × n buffer is enough; in the
        rare case that jitter is needed, the function is called again.
    name : str
        What to call the matrix in an error.
    strict : bool
        Raise when the last try fails; otherwise such members of the batch get a factor full of NaN, which an
        optimiser treats as an inadmissible point.

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
                return Cholesky(factor, matrix.new_zeros(matrix.shape[:-2]))
            matrix = build()
    factor, info = torch.linalg.cholesky_ex(matrix)
    info = _failures(factor, info)
    if bool(info.any()):
        return _factorize_with_jitter(matrix, info, name=name, strict=strict)
    return Cholesky(factor, matrix.new_zeros(matrix.shape[:-2]))


def _overwritten_by_factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The factor in the memory of a contiguous matrix, and 0 or the pivot that failed."""
    factor = matrix.mT  # LAPACK works on columns: on the transposed view nothing is copied
    if _for_lapack(matrix):  # SciPy's takes three quarters of the time of torch's
        (potrf,) = get_lapack_funcs(("potrf",), (factor.numpy(),))
        with blas_threads_for(len(factor)):
            _, pivot = potrf(factor.numpy(), lower=True, clean=True, overwrite_a=True)
        return factor, torch.tensor(pivot, dtype=torch.int32)
    info = torch.empty(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(factor, out=(factor, info))
    return factor, info


def symmetric_products(
    left: Tensor,
    right: Tensor,
    rows: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    memory: Tensor | None = None,
) -> Tensor:
    """A Bᵀ + B Aᵀ + Σ_i w_i r_i r_iᵀ, exactly symmetric: of A and B (..., m, p) and rows r_i (..., n, m), if any.

    The weights (..., n) may have either sign. By the symmetric products of BLAS, which torch has not: half the work of
    general ones. ``memory`` is a matrix that is needed no more: the result may take its place.
    """
    if not (_for_lapack(left) and _for_lapack(right)):
        half = left @ right.mT
        total = half + half.mT
        return total if rows is None or weights is None else total + rows.mT @ (weights[..., None] * rows)
    shape = (len(left), len(left))
    if memory is None or memory.shape != shape or not memory.mT.is_contiguous():
        memory = empty_matrix(shape, left).mT
    # In the order of Fortran rows are columns, and nothing is copied.
    columns = memory.numpy()
    syrk, syr2k = get_blas_funcs(("syrk", "syr2k"), (columns,))
    A, B = left.contiguous().numpy().T, right.contiguous().numpy().T
    with blas_threads_for(len(columns)):
        syr2k(1.0, A, B, trans=1, lower=True, c=columns, overwrite_c=True)
        if rows is not None and weights is not None:
            few = len(rows) <= WEIGHTED_ROWS  # then their memory may be recycled
            buffer = empty_matrix(rows.shape, rows) if few else rows.new_empty(WEIGHTED_ROWS, rows.shape[1])
            for sign, some in ((1.0, weights > 0), (-1.0, ~(weights >= 0))):  # NaN is not lost
                for chosen in torch.nonzero(some)[:, 0].split(WEIGHTED_ROWS):
                    part = torch.index_select(rows, 0, chosen, out=buffer[: len(chosen)])
                    part *= weights[chosen, None].abs().sqrt_()
                    syrk(sign, part.numpy().T, beta=1.0, c=columns, lower=True, overwrite_c=True)
    return torch.from_numpy(_mirrored(columns))


def _invert_lower(L: np.ndarray, out: np.ndarray, work: np.ndarray) -> None:
    """L⁻¹ in the lower triangle of ``out``, by halves, as products are twice as fast as LAPACK's.

    ``work`` is memory for as many numbers as L has: pages fresh from the system would cost more than the copies.
    """
    half = len(L) // 2
    if half < SMALL_TRIANGLE // 2:
        (trtri,) = get_lapack_funcs(("trtri",), (L,))
        out[:] = trtri(L, lower=True)[0]
        return
    rest = len(L) - half
    parts = []
    for rows, columns in ((half, half), (rest, rest), (rest, half)):
        parts.append(work[: rows * columns].reshape(rows, columns, order="F"))
        work = work[rows * columns :]
    first, last, below = parts
    _invert_lower(L[:half, :half], first, work)
    _invert_lower(L[half:, half:], last, work)
    below[:] = L[half:, :half]
    (trmm,) = get_blas_funcs(("trmm",), (L,))
    trmm(1.0, first, below, side=1, lower=1, overwrite_b=1)
    trmm(-1.0, last, below, lower=1, overwrite_b=1)
    out[:half, :half], out[half:, half:], out[half:, :half] = first, last, below


def _for_lapack(matrix: Tensor) -> bool:
    """May NumPy and SciPy see the memory of this matrix?

    Their LAPACK takes two thirds of the time of torch's, but has threads of its own, for which torch's, which spin for
    a while when they have done their part, leave no processor: from a factorisation to what is made of it all is done
    by NumPy and SciPy, or small.
    """
    return (
        matrix.ndim == 2 and matrix.device.type == "cpu" and not matrix.requires_grad and matrix.numel() > 0
    )


def _mirrored(columns: np.ndarray) -> np.ndarray:
    """The symmetric matrix of which a lower triangle is given, column by column: the other is filled, in place."""
    rows = columns.T  # contiguous: its upper triangle is given
    for i in range(0, len(rows), MIRRORED_ROWS):
        block = rows[i : i + MIRRORED_ROWS]
        square = block[:, i : i + MIRRORED_ROWS]
        np.copyto(square, square.T.copy(), where=BELOW_DIAGONAL[: len(square), : len(square)])
        for j in range(i + MIRRORED_ROWS, len(rows), MIRRORED_ROWS):
            rows[j : j + MIRRORED_ROWS, i : i + MIRRORED_ROWS] = block[:, j : j + MIRRORED_ROWS].T
    return rows


def _failures(factor: Tensor, info: Tensor) -> Tensor:
    """Which factorisations failed: some LAPACKs pass NaN through without a word, which then reaches the last pivot."""
    if not factor.shape[-1]:
        return info
    return info + (~torch.isfinite(factor.detach()[..., -1, -1])).to(info.dtype)


def shifted(matrix: Tensor, shift: Tensor | float) -> Tensor:
    """A + diag(shift) in new, contiguous memory; one shift, or one for each row (..., n)."""
    if matrix.ndim > 2 or (matrix.requires_grad and torch.is_grad_enabled()):
        result = matrix.clone(memory_format=torch.contiguous_format)
    else:
        result = empty_matrix(matrix.shape, matrix).copy_(matrix)
    result.diagonal(dim1=-2, dim2=-1).add_(shift)
    return result


def _factorize_with_jitter(matrix: Tensor, info: Tensor, *, name: str, strict: bool) -> Cholesky:
    scale = matrix.detach().diagonal(dim1=-2, dim2=-1).abs().mean(-1)
    scale = torch.where(scale > 0, scale, 1.0)  # a matrix of zeros has no scale of its own
    eps = torch.finfo(matrix.dtype).eps
    share = matrix.shape[-1] * eps
    limit = max(share, eps ** (1.0 / 3.0))
    jitter = torch.zeros_like(scale)
    while True:
        jitter = torch.where(info > 0, share * scale, jitter)
        shifted = matrix.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(jitter[..., None])
        factor, info = torch.linalg.cholesky_ex(shifted)
        if not bool(info.any()):
            return Cholesky(factor, jitter)
        if share >= limit:
            break
        share = min(share * JITTER_GROWTH, limit)
    if strict:
        raise NotPositiveDefiniteError(_diagnose(matrix.detach(), info, name))
    return Cholesky(torch.where((info > 0)[..., None, None], torch.nan, factor), jitter)


def _diagnose(matrix: Tensor, info: Tensor, name: str) -> str:
    index = torch.nonzero(info.reshape(-1))[0].item()
    bad = matrix.reshape(-1, *matrix.shape[-2:])[int(index)]
    if not bool(torch.isfinite(bad).all()):
        return f"{name} {NOT_FINITE}"
    lowest = torch.linalg.eigvalsh(bad)[0].item()
    return (
        f"{name} ({bad.shape[-1]} × {bad.shape[-1]}) is not positive definite: its smallest eigenvalue is {lowest:.3g} "
        f"against a mean diagonal of {bad.diagonal().mean().item():.3g}. A kernel that is not positive semi-definite, "
        "or duplicate rows without regularisation, are the usual reasons: increase alpha, remove duplicates, or "
        "repair the Gram matrix with representer.linalg.repair_gram."
    )


def is_finite(matrix: Tensor) -> bool:
    """Are all entries finite? One pass without a temporary, unless the sum itself overflows."""
    matrix = matrix.detach()
    return math.isfinite(matrix.sum().item()) or bool(torch.isfinite(matrix).all())


@dataclass(frozen=True)
class Woodbury:
    """(B Bᵀ + shift·I)⁻¹ for an n × r factor B, through the r × r matrix Bᵀ B + shift·I."""

    factor: Tensor
    shift: float
    inner: Cholesky

    def solve(self, right: Tensor) -> Tensor:
        """(B Bᵀ + shift·I)⁻¹ R."""
        return (right - self.factor @ self.inner.solve(self.factor.mT @ right)) / self.shift

    def inverse_diagonal(self) -> Tensor:
        """The diagonal of (B Bᵀ + shift·I)⁻¹."""
        return (1.0 - (self.inner.half_solve(self.factor.mT) ** 2).sum(-2)) / self.shift

    def logdet(self) -> Tensor:
        """log det (B Bᵀ + shift·I)."""
        n, r = self.factor.shape[-2:]
        return self.inner.logdet() + (n - r) * torch.log(torch.as_tensor(self.shift, dtype=self.factor.dtype))


def woodbury(factor: Tensor, shift: float) -> Woodbury:
    """Factor B Bᵀ + shift·I from the n × r factor B in O(n r²)."""
    inner = shifted(factor.mT @ factor, shift)
    return Woodbury(factor, shift, factorize(inner, name="The inner matrix of the low-rank factor"))
