"""Leading eigenvectors of a symmetric matrix that is known by its products, from a subspace that is nearly right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]

# Ritz vectors kept beyond those that are asked for: what they hold cannot slow the others down.
GUARDS = 14
# Columns with less than this outside of the span of the others are too dependent for Cholesky's factor; with more than
# that nothing was lost in making them orthonormal, to be looked at again.
DEPENDENT, KEPT = 1e-3, 0.9
# Below 1e-8, a search ends when the residual has not fallen to this share in so many rounds. (Between eigenvalues that
# are close to each other a round may gain little for long.)
PROGRESS, STALLED = 0.9, 3


@dataclass(frozen=True)
class RitzPairs:
    """Approximate eigenpairs, the leading ones first; only the first ``n`` have converged."""

    vectors: Tensor  # (N, p), orthonormal
    values: Tensor  # (p,), descending
    residual: float  # the largest ‖A v − θ v‖ of the first n, over the smallest |θ| among them


def orthonormal(block: Tensor, against: Tensor | None = None) -> Tensor:
    """An orthonormal basis of the columns of a block, orthogonal to those of another; random where they vanish."""
    generator = torch.Generator().manual_seed(block.shape[1] if against is None else against.shape[1])
    for _ in range(3):  # what is left of a column within the others is rounding, and is looked at again
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
        # Cholesky's factor of unit columns has on its diagonal how much of each is outside of the span of those before.
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

    Rayleigh–Ritz on the ``start`` (N, p), p ≥ n, two products with the residuals, and the p best of what came before:
    block Lanczos with thick restarts. A start from a matrix close to A, as in a self-consistent iteration, needs one or
    two rounds; ``tol`` is relative to the smallest of the n eigenvalues: they may differ by orders of magnitude. With
    ``share``, that much of the first Rayleigh–Ritz residual is enough, too.

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
        width = n if residual < 1e-2 else p  # from afar the guards need company, too
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
    """The smallest |θ| of the n wanted, as far as that is more than rounding."""
    rounding = torch.finfo(values.dtype).eps * size * values.abs().max()
    return torch.maximum(values[:n].abs().min(), rounding).clamp(min=torch.finfo(values.dtype).tiny)


def _residual(V: Tensor, AV: Tensor, values: Tensor, n: int) -> float:
    """The largest ‖A v − θ v‖ of the n wanted over the smallest |θ| among them."""
    defects = (AV[:, :n] - V[:, :n] * values[:n]).norm(dim=0)
    return (defects.max() / _smallest(values, n, len(V))).item()


def _rounding(values: Tensor, n: int, size: int) -> float:
    """The residual that products with a matrix of so many rows have by rounding alone."""
    return (torch.finfo(values.dtype).eps * size**0.5 * values.abs().max() / _smallest(values, n, size)).item()
