"""Products of symmetric and triangular matrices by SciPy's BLAS: torch has none that do half of the work."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from scipy.linalg import cython_blas, get_blas_funcs, get_lapack_funcs
from torch import Tensor

from representer.linalg.memory import empty_matrix
from representer.threads import blas_threads_for

# What trmm looks like from C: four words, the sizes of B, the scale, A and its stride, B and its stride.
TRMM = re.compile(rb"void \((char \*, ){4}(int \*, ){2}(\w+ \*, ){2}int \*, \w+ \*, int \*\)")

# Triangles of so many rows are inverted by LAPACK, larger ones by halves.
SMALL_TRIANGLE = 128

# Two blocks of so many rows and columns fit into a processor's fast memory.
MIRRORED_ROWS = 128
BELOW_DIAGONAL = np.tri(MIRRORED_ROWS, k=-1, dtype=bool)

# So many rows a symmetric product takes at a time: enough for its full speed, few beside a large matrix.
WEIGHTED_ROWS = 1024

# So many rows of an elementwise product are formed at a time: few beside a large matrix, enough for several threads.
HADAMARD_ROWS = 256


def for_blas(matrix: Tensor) -> bool:
    """May NumPy and SciPy see the memory of this matrix?

    Their LAPACK takes two thirds of the time of torch's, but has threads of its own, for which torch's, which spin for
    a while when they have done their part, leave no processor: from a factorisation to what is made of it all is done
    by NumPy and SciPy, or small.
    """
    return (
        matrix.ndim == 2 and matrix.device.type == "cpu" and not matrix.requires_grad and matrix.numel() > 0
    )


def mirrored(columns: np.ndarray) -> np.ndarray:
    """The symmetric matrix of which a lower triangle is given, column by column: the other is filled, in place."""
    rows = columns.T  # contiguous: its upper triangle is given
    for i in range(0, len(rows), MIRRORED_ROWS):
        block = rows[i : i + MIRRORED_ROWS]
        square = block[:, i : i + MIRRORED_ROWS]
        np.copyto(square, square.T.copy(), where=BELOW_DIAGONAL[: len(square), : len(square)])
        for j in range(i + MIRRORED_ROWS, len(rows), MIRRORED_ROWS):
            rows[j : j + MIRRORED_ROWS, i : i + MIRRORED_ROWS] = block[:, j : j + MIRRORED_ROWS].T
    return rows


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
    if not (for_blas(left) and for_blas(right)):
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
    return torch.from_numpy(mirrored(columns))


def symmetric_product(matrix: Tensor, right: Tensor) -> Tensor:
    """A B of a symmetric A (..., n, n) and a B (..., n, p) of few columns."""
    if not (for_blas(matrix) and for_blas(right)) or not matrix.is_contiguous():
        return matrix @ right
    (symm,) = get_blas_funcs(("symm",), (matrix.numpy(),))
    return torch.from_numpy(symm(1.0, matrix.numpy().T, right.numpy(), lower=True))


def hadamard_products(left: Tensor, right: Tensor, points: Tensor) -> Tensor:
    """(M + Mᵀ) P of M = A ∘ B (..., n, n) and P (..., n, q), some rows of M at a time."""
    if not torch.is_grad_enabled():  # as in a backward pass, whose tensors still ask for gradients
        left, right, points = left.detach(), right.detach(), points.detach()
    if not all(map(for_blas, (left, right, points))):
        M = left * right
        return M @ points + M.mT @ points
    A, B, P = left.numpy(), right.numpy(), np.asfortranarray(points.numpy())
    (gemm,) = get_blas_funcs(("gemm",), (P,))
    total = np.zeros_like(P)
    memory = np.empty((min(HADAMARD_ROWS, len(P)), len(P)), dtype=P.dtype)
    for start in range(0, len(P), HADAMARD_ROWS):
        some = slice(start, start + HADAMARD_ROWS)
        # In the order of Fortran rows are columns, and nothing is copied.
        columns = np.multiply(A[some], B[some], out=memory[: len(A[some])]).T
        gemm(1.0, columns, P[some], beta=1.0, c=total, overwrite_c=True)
        total[some] += gemm(1.0, columns, P, trans_a=True)
    return torch.from_numpy(total)


def invert_triangle(L: np.ndarray) -> None:
    """L⁻¹ in the place of a lower triangle, column by column; what stands above the diagonal is undefined.

    By halves, [[A, 0], [B, C]]⁻¹ = [[A⁻¹, 0], [−C⁻¹BA⁻¹, C⁻¹]], as products are up to twice as fast as LAPACK's trtri.
    """
    multiply = _trmm() if L.dtype == np.float64 else None
    if len(L) <= SMALL_TRIANGLE or multiply is None:
        (trtri,) = get_lapack_funcs(("trtri",), (L,))
        L[:] = trtri(L, lower=True)[0]
        return
    half = len(L) // 2
    first, below, last = L[:half, :half], L[half:, :half], L[half:, half:]
    invert_triangle(first)
    invert_triangle(last)
    multiply(b"R", first, below, -1.0)
    multiply(b"L", last, below, 1.0)


@cache
def _trmm() -> Callable[[bytes, np.ndarray, np.ndarray, float], None] | None:
    """B ← scale·AB (left) or scale·BA (right), in place, for a lower triangle A and a B that are parts of a matrix.

    SciPy's trmm for Python would copy the parts; the one that it has for C takes them as they are. None where a SciPy
    has that in another form.
    """
    capsule = getattr(cython_blas, "__pyx_capi__", {}).get("dtrmm")
    text, address, anything = ctypes.c_char_p, ctypes.c_void_p, ctypes.py_object
    name = ctypes.PYFUNCTYPE(text, anything)(("PyCapsule_GetName", ctypes.pythonapi))
    pointer = ctypes.PYFUNCTYPE(address, anything, text)(("PyCapsule_GetPointer", ctypes.pythonapi))
    signature = b"" if capsule is None else name(capsule)
    if not TRMM.fullmatch(signature):
        return None
    function = ctypes.CFUNCTYPE(None, *[address] * 11)(pointer(capsule, signature))

    def multiply(side: bytes, A: np.ndarray, B: np.ndarray, scale: float) -> None:
        words = [ctypes.byref(ctypes.c_char(word)) for word in (side, b"L", b"N", b"N")]
        sizes = [ctypes.byref(ctypes.c_int(size)) for size in B.shape]
        strides = [ctypes.byref(ctypes.c_int(M.strides[1] // M.itemsize)) for M in (A, B)]
        factor = ctypes.byref(ctypes.c_double(scale))
        function(*words, *sizes, factor, A.ctypes.data, strides[0], B.ctypes.data, strides[1])

    return multiply
