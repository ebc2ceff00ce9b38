"""Eigenvalues of positive semi-definite matrices, and the repair of nearly positive semi-definite ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from representer.linalg.cholesky import JITTER_GROWTH, NOT_FINITE, NotPositiveDefiniteError, is_finite, pivoted_cholesky
from representer.notices import warn


class IndefiniteGramWarning(UserWarning):
    """A Gram matrix had negative eigenvalues, which were set to zero."""


# A negative part below this share of the absolute spectrum comes from single precision, and is no reason to warn.
NEGLIGIBLE_SHARE = 1e-6
# From this many rows on, SciPy's eigendecomposition is faster than torch's, and needs no copy of the matrix.
SCIPY_ROWS = 200


@dataclass(frozen=True)
class Eigenpairs:
    """A positive semi-definite matrix A = U diag(e) Uᵀ; U has r ≤ n orthonormal columns, and A is 0 beside them.

    Every function of A + shift·I costs two products once U is known, whatever the shift (positive if A is singular).
    """

    vectors: Tensor
    values: Tensor

    def _complement(self, shift: Tensor | float) -> Tensor | float:
        """The factor by which (A + shift·I)⁻¹ scales the directions that U leaves out; 0 if there are none."""
        return shift * 0.0 if self.vectors.shape[-1] == self.vectors.shape[-2] else 1.0 / shift

    def solve(self, right: Tensor, shift: Tensor | float) -> Tensor:
        """The solution (A + shift·I)⁻¹ B."""
        rest = self._complement(shift)
        weights = 1.0 / (self.values + shift) - rest
        return self.vectors @ (weights[..., None] * (self.vectors.mT @ right)) + rest * right

    def inverse_diagonal(self, shifts: Tensor) -> Tensor:
        """The diagonals of (A + shift·I)⁻¹ by one product, with a row for each shift."""
        shifts = shifts[:, None]
        rest = self._complement(shifts)
        return (1.0 / (self.values + shifts) - rest) @ (self.vectors**2).mT + rest

    def root(self) -> Tensor:
        """The factor B = U diag(√e) with B Bᵀ = A."""
        return self.vectors * self.values.sqrt()[..., None, :]


def eigh(
    matrix: Tensor, *, name: str = "the matrix", overwrite: bool = False, dtype: torch.dtype | None = None
) -> Eigenpairs:
    """Eigenvalues (ascending, negative ones from rounding set to zero) and eigenvectors of a PSD matrix.

    Negative eigenvalues beyond rounding are an error; see ``repair_gram`` for matrices that are known to be indefinite.
    ``dtype`` is the precision in which the entries were computed, if it is less than their own. Only the lower triangle
    is read.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import eigh
    >>> spectrum = eigh(torch.ones(2, 2, dtype=torch.float64))
    >>> spectrum.values.round(decimals=6).tolist()
    [0.0, 2.0]
    """
    vectors, values = _eigh(matrix, name=name, overwrite=overwrite)
    rounding = matrix.shape[-1] * torch.finfo(dtype or matrix.dtype).eps * JITTER_GROWTH
    least, largest = values[..., :1], values[..., -1:]
    if values.numel() and bool((least < -rounding * torch.maximum(-least, largest)).any()):
        raise NotPositiveDefiniteError(
            f"{name} has an eigenvalue of {values.min().item():.3g} against a largest of {values.max().item():.3g}: it "
            "is not positive semi-definite. Check the kernel, or repair the matrix with "
            "representer.linalg.repair_gram."
        )
    return Eigenpairs(vectors, values.clamp(min=0.0))


def _eigh(matrix: Tensor, *, name: str, overwrite: bool = False) -> tuple[Tensor, Tensor]:
    """Eigenvectors and ascending eigenvalues of a symmetric matrix."""
    if not is_finite(matrix):  # LAPACK may not return from a NaN
        raise NotPositiveDefiniteError(f"{name} {NOT_FINITE}")
    by_scipy = matrix.device.type == "cpu" and matrix.ndim == 2 and len(matrix) >= SCIPY_ROWS
    try:
        if by_scipy and matrix.is_contiguous():
            # Read in the order of Fortran, the lower triangle is the upper one.
            turned = matrix.detach().numpy().T
            eigenvalues, eigenvectors = scipy.linalg.eigh(
                turned, lower=False, overwrite_a=overwrite, check_finite=False, driver="evd"
            )
            return torch.from_numpy(eigenvectors), torch.from_numpy(eigenvalues)
        values, vectors = torch.linalg.eigh(matrix)
    except (RuntimeError, np.linalg.LinAlgError) as error:
        message = f"The eigenvalues of {name} did not converge: are its entries in range?"
        raise NotPositiveDefiniteError(message) from error
    return vectors, values


def spectrum_of_factor(factor: Tensor) -> Eigenpairs:
    """The spectrum of B Bᵀ from an n × r factor B in O(n r²), without directions that vanish up to rounding.

    It comes from a thin singular value decomposition, because the products BᵀB would square the condition number.
    """
    vectors, roots, _ = nonzero_svd(factor)
    return Eigenpairs(vectors, roots.square())


def nonzero_svd(factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, σ (ascending, as in ``eigh``) and V of a factor U diag(σ) Vᵀ without σ that vanish up to rounding."""
    left, roots, right = thin_svd(factor)
    positive = (roots > roots[:1] * factor.shape[-1] * torch.finfo(factor.dtype).eps).flip(0)
    return left.flip(1)[:, positive], roots.flip(0)[positive], right.flip(1)[:, positive]


def thin_svd(factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (n, k), the k = min(n, r) singular values σ, descending, and V (r, k) of a factor U diag(σ) Vᵀ (n, r)."""
    if not is_finite(factor):
        raise NotPositiveDefiniteError(f"The factor of a Gram matrix {NOT_FINITE}")
    if len(factor) <= factor.shape[1]:
        U, roots, V = torch.linalg.svd(factor, full_matrices=False)
        return U, roots, V.mT
    Q, R = torch.linalg.qr(factor)  # the decomposition of a tall factor's triangle is cheap
    inner, roots, V = torch.linalg.svd(R)
    return Q @ inner, roots, V.mT


def repair_gram(gram: Tensor, *, tolerance: float = 0.1, name: str = "The Gram matrix") -> Tensor:
    """The positive semi-definite matrix nearest to a Gram matrix, if its negative part is small enough for a repair.

    For a positive semi-definite matrix it costs one Cholesky factorisation. Otherwise the negative eigenvalues are set
    to zero, with an ``IndefiniteGramWarning`` that gives their share of the absolute spectrum; above ``tolerance`` the
    matrix is refused. Gradients pass through.
    """
    matrix = gram.detach()
    scale = matrix.abs().max()
    if (matrix - matrix.mT).abs_().max() > torch.finfo(gram.dtype).eps ** 0.5 * scale:
        raise ValueError(f"{name} is not symmetric. If that is rounding, pass (gram + gram.T) / 2.")
    rounding = len(gram) * torch.finfo(gram.dtype).eps * JITTER_GROWTH
    lifted = matrix.clone()
    lifted.diagonal().add_(rounding * matrix.diagonal().abs().mean())
    if not torch.linalg.cholesky_ex(lifted)[1].item():
        return gram
    del lifted
    vectors, values = _eigh(matrix, name=name)
    if values[0] >= -rounding * values.abs().max():
        return gram
    share = (-values.clamp(max=0.0).sum() / values.abs().sum()).item()
    if share > tolerance:
        raise NotPositiveDefiniteError(
            f"{name} is indefinite: its negative eigenvalues hold {share:.1%} of the absolute spectrum (smallest "
            f"{values[0].item():.3g}, largest {values[-1].item():.3g}), more than the {tolerance:.0%} that may be "
            "clipped. Use a positive semi-definite kernel, or repair the matrix yourself (for example gram @ gram.T)."
        )
    repaired = _Clipped.apply(gram, vectors, values)
    if share < NEGLIGIBLE_SHARE:
        return repaired
    warn(
        f"{name} is indefinite; its negative eigenvalues ({share:.2%} of the absolute spectrum, smallest "
        f"{values[0].item():.3g}) were set to zero.",
        IndefiniteGramWarning,
    )
    return repaired


def gram_factor(gram: Tensor, *, repair: bool, name: str) -> tuple[Tensor, Tensor | None]:
    """A factor R of the Gram matrix R Rᵀ, and the eigenvectors of its positive part if it was repaired.

    R is triangular if the matrix is well conditioned; otherwise it has as many columns as the matrix has rank.
    """
    repaired = repair_gram(gram, name=name) if repair else gram
    rounding = len(gram) * torch.finfo(gram.dtype).eps
    if repaired is gram:
        factor, info = torch.linalg.cholesky_ex(gram)
        if not info.item() and factor.diagonal().square().min() > rounding * gram.diagonal().max():
            return factor, None
        factor = pivoted_cholesky(gram, tol=rounding)[0].contiguous()
        # The factor of a zero matrix is one column of zeros.
        return factor if factor.shape[1] else gram[:, :1] * 0.0, None
    spectrum = eigh(repaired, name=name)
    positive = spectrum.values > rounding * spectrum.values[-1]
    vectors, values = spectrum.vectors[:, positive], spectrum.values[positive]
    return vectors * values.sqrt(), vectors


class _Clipped(torch.autograd.Function):
    """The positive part U diag(e₊) Uᵀ of a matrix U diag(e) Uᵀ, with the derivative of Daleckii and Krein.

    Its ratios (e_i₊ − e_j₊) / (e_i − e_j), and their limits where e_i = e_j, are between 0 and 1: equal eigenvalues do
    no harm.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, matrix: Tensor, vectors: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, values)
        return (vectors * values.clamp(min=0.0)) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        vectors, values = ctx.saved_tensors
        positive = values.clamp(min=0.0)
        difference = values[:, None] - values
        equal = difference == 0.0
        ratios = torch.where(
            equal, (values > 0).to(positive), (positive[:, None] - positive) / difference.masked_fill(equal, 1.0)
        )
        return vectors @ (ratios * (vectors.mT @ gradient @ vectors)) @ vectors.mT, None, None


Product = Callable[[Tensor], Tensor]

# The number of Ritz vectors beyond the wanted ones: eigenvalues that they represent do not slow the others down.
GUARDS = 14
# Unit columns with less than DEPENDENT outside of the span of the others are too dependent for Cholesky's factor. With
# more than KEPT, making them orthonormal loses nothing, and need not be repeated.
DEPENDENT, KEPT = 1e-3, 0.9
# Below 1e-8, iterations end when STALLED rounds have not lowered the residual to the share PROGRESS. (With eigenvalues
# that are close to each other, rounds may gain little for long.)
PROGRESS, STALLED = 0.9, 3


@dataclass(frozen=True)
class RitzPairs:
    """Approximate eigenpairs, the leading ones first; only the first ``n`` have converged."""

    vectors: Tensor  # (N, p), orthonormal
    values: Tensor  # (p,), descending
    residual: float  # the largest ‖A v − θ v‖ of the first n, over the smallest |θ| among them


def orthonormal(block: Tensor, against: Tensor | None = None) -> Tensor:
    """An orthonormal basis of the columns of a block, orthogonal to another block; vanishing columns become random."""
    generator = torch.Generator().manual_seed(block.shape[1] if against is None else against.shape[1])
    for _ in range(3):  # the rounding of a projection is projected again
        before = block.norm(dim=0)
        if against is not None:
            block = block - against @ (against.mT @ block)
        norms = block.norm(dim=0)
        vanished = norms <= torch.finfo(block.dtype).tiny ** 0.5
        lost = bool(vanished.any())
        if lost:
            noise = torch.randn(block.shape, generator=generator, dtype=block.dtype).to(block.device)
            block = torch.where(vanished, noise, block)
            norms = block.norm(dim=0)
        block = block / norms
        # The diagonal of the Cholesky factor is the length of each unit column outside of the span of those before it.
        factor, failed = torch.linalg.cholesky_ex(block.mT @ block)
        outside = 0.0 if failed.item() else factor.diagonal().min().item()
        if outside < DEPENDENT:
            block = torch.linalg.qr(block).Q
            continue
        block = torch.linalg.solve_triangular(factor, block.mT, upper=False).mT
        if not lost and outside > KEPT and bool((norms > KEPT * before).all()):
            break
    return block


def leading(
    product: Product, start: Tensor, n: int, *, tol: float, share: float = 0.0, max_iter: int = 100
) -> RitzPairs:
    """The n largest eigenvalues of A, given by ``product`` V ↦ A V, and their eigenvectors.

    The method is block Lanczos with thick restarts: each round is Rayleigh–Ritz on the p best vectors so far, from the
    ``start`` (N, p) with p ≥ n, and on two products with the residuals. A start from a matrix close to A, as in a
    self-consistent iteration, needs one or two rounds. ``tol`` is relative to the smallest of the n eigenvalues, which
    may differ by orders of magnitude. A residual of ``share`` times the first one is enough, too.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import leading
    >>> A = torch.diag(torch.arange(100.0, dtype=torch.float64))
    >>> pairs = leading(lambda V: A @ V, torch.ones(100, 1, dtype=torch.float64), 2, tol=1e-12)
    >>> pairs.values[:2].round(decimals=6).tolist()
    [99.0, 98.0]
    """
    size = len(start)
    p = min(max(start.shape[1], n + GUARDS), size)
    if 3 * p >= size:
        return _dense(product, start, n)
    if start.shape[1] < p:
        start = torch.cat([start, start.new_zeros(size, p - start.shape[1])], 1)
    V = orthonormal(start)
    AV = product(V)
    V, AV, values = _rotated(V, AV, p)
    residual = _residual(V, AV, values, n)
    tol = max(tol, share * residual)
    best, stalled = residual, 0
    for _ in range(max_iter):
        if residual <= max(tol, _rounding(values, n, size)):
            break
        width = n if residual < 1e-2 else p  # far from convergence, the guards are improved, too
        W = orthonormal(AV[:, :width] - V[:, :width] * values[:width], V)
        AW = product(W)
        basis, images = torch.cat([V, W], 1), torch.cat([AV, AW], 1)
        U = orthonormal(AW, basis)
        basis, images = torch.cat([basis, U], 1), torch.cat([images, product(U)], 1)
        V, AV, values = _rotated(basis, images, p)
        residual = _residual(V, AV, values, n)
        best, stalled = (residual, 0) if residual < PROGRESS * best else (best, stalled + 1)
        if best < 1e-8 and stalled == STALLED:
            break
    return RitzPairs(V, values, residual)


def _dense(product: Product, like: Tensor, n: int) -> RitzPairs:
    """All eigenpairs by a dense decomposition."""
    matrix = product(torch.eye(len(like), dtype=like.dtype, device=like.device))
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    return RitzPairs(vectors.flip(1), values.flip(0), 0.0)


def _rotated(basis: Tensor, images: Tensor, p: int) -> tuple[Tensor, Tensor, Tensor]:
    """The p leading Ritz pairs of an orthonormal basis, with the products of the vectors."""
    small = basis.mT @ images
    values, vectors = torch.linalg.eigh(0.5 * (small + small.mT))
    best = vectors.flip(1)[:, :p]
    return basis @ best, images @ best, values.flip(0)[:p]


def _smallest(values: Tensor, n: int, size: int) -> Tensor:
    """The smallest |θ| of the n leading values, at least their rounding."""
    rounding = torch.finfo(values.dtype).eps * size * values.abs().max()
    return torch.maximum(values[:n].abs().min(), rounding).clamp(min=torch.finfo(values.dtype).tiny)


def _residual(V: Tensor, AV: Tensor, values: Tensor, n: int) -> float:
    """The largest ‖A v − θ v‖ of the n leading pairs over the smallest |θ| among them."""
    defects = (AV[:, :n] - V[:, :n] * values[:n]).norm(dim=0)
    return (defects.max() / _smallest(values, n, len(V))).item()


def _rounding(values: Tensor, n: int, size: int) -> float:
    """The residual that comes from the rounding of products with a matrix of ``size`` rows."""
    return (torch.finfo(values.dtype).eps * size**0.5 * values.abs().max() / _smallest(values, n, size)).item()
