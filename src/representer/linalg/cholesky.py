"""Cholesky factors: of a whole matrix, and of a low-rank matrix plus a ridge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from torch import Tensor

from representer.linalg.blas import for_blas, invert_triangle, mirrored
from representer.linalg.memory import empty_matrix
from representer.threads import blas_threads_for

# Cholesky is backward stable to about n·eps times the size of the matrix, so the first jitter is of that size; each
# further try grows it a hundredfold, up to the cube root of eps (6e-6 of the mean diagonal in double precision): beyond
# that the matrix is not a rounded positive semi-definite matrix but an indefinite one.
JITTER_GROWTH = 100.0

# Rows of a triangular solve come in multiples of this, filled up with zeros. Otherwise the rounding of a row depends on
# where it stands and on the number of threads (OpenBLAS), and features must not depend on the block that x comes in.
ALIGNED_ROWS = 24

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
        if alike and for_blas(self.factor) and for_blas(right):
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

    def inverse(self, less: Tensor | None = None, *, overwrite: bool = False) -> Tensor:
        """A⁻¹, dense; less v vᵀ for a column v (..., n, 1). ``overwrite`` may put it in the place of the factor."""
        if not for_blas(self.factor) or (less is not None and not for_blas(less)):
            inverse = torch.cholesky_inverse(self.factor)
            return inverse if less is None else inverse - less @ less.mT
        columns = self.factor.numpy()
        if not (overwrite and columns.flags.f_contiguous):
            columns = empty_matrix(self.factor.shape, self.factor).copy_(self.factor.mT).numpy().T
        (lauum,), (syr,) = get_lapack_funcs(("lauum",), (columns,)), get_blas_funcs(("syr",), (columns,))
        with blas_threads_for(len(columns)):
            invert_triangle(columns)
            lauum(columns, lower=True, overwrite_c=True)
            if less is not None:
                syr(-1.0, less.numpy(), lower=True, a=columns, overwrite_a=True)
        return torch.from_numpy(mirrored(columns))

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
    if for_blas(matrix):  # SciPy's takes three quarters of the time of torch's
        (potrf,) = get_lapack_funcs(("potrf",), (factor.numpy(),))
        with blas_threads_for(len(factor)):
            _, pivot = potrf(factor.numpy(), lower=True, clean=True, overwrite_a=True)
        return factor, torch.tensor(pivot, dtype=torch.int32)
    info = torch.empty(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)
    torch.linalg.cholesky_ex(factor, out=(factor, info))
    return factor, info


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
