"""The objective that the published code of Tonin et al. minimises, by its own algorithm: a rival for comparison.

It differs from equation (9) in the last level, ‖K₂/η₂ − H₂Λ₂H₂ᵀ‖² in the place of a residual, and in keeping Λ
non-negative. Any eigenvectors make the residual of the first level vanish, not only the leading ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from representer.kernels import Gaussian
from representer.linalg import orthonormal
from representer.optimize.stiefel import polar
from representer.values import number

RATE, SHRINK = 0.01, 0.5


def authors_cost(gram: Tensor, kernel: Gaussian, eta: float, blocks: list[Tensor]) -> Tensor:
    """½ ‖K₁H₁ + G₁/η₂ − H₁Λ₁‖² + ½ ‖K₂(H₁)/η₂ − H₂Λ₂H₂ᵀ‖² for the blocks H₁, H₂, diag Λ₁, diag Λ₂; η₁ = 1."""
    H, above, values, values_above = blocks
    K = kernel._gram(H, None)
    weights = K * (above @ above.mT) / number(kernel, "lengthscale", H) ** 2
    coupling = weights @ H - weights.sum(1, keepdim=True) * H
    first = gram @ H + coupling / eta - H * values
    last = K / eta - (above * values_above) @ above.mT
    return 0.5 * (first.square().sum() + last.square().sum())


def projected_descent(
    gram: Tensor, kernel: Gaussian, sizes: tuple[int, int], *, eta: float = 1.0, seed: int = 0, n_steps: int = 5000
) -> list[Tensor]:
    """The blocks where projected gradients end: one step after the other, each of a length found by backtracking.

    H₁ and H₂ are projected on matrices with orthonormal columns, Λ₁ and Λ₂ on non-negative numbers; they start at
    random, as in the published code.
    """
    generator = torch.Generator().manual_seed(seed)
    hidden = [orthonormal(torch.randn(len(gram), s, generator=generator, dtype=gram.dtype)) for s in sizes]
    blocks = [*hidden, *(torch.rand(s, generator=generator, dtype=gram.dtype) for s in sizes)]
    for _ in range(n_steps):
        leaves = [block.detach().requires_grad_(True) for block in blocks]
        slopes = torch.autograd.grad(authors_cost(gram, kernel, eta, leaves), leaves)
        with torch.no_grad():
            for i, slope in enumerate(slopes):
                blocks = _moved(gram, kernel, eta, blocks, i, slope)
    return blocks


def _moved(gram: Tensor, kernel: Gaussian, eta: float, blocks: list[Tensor], i: int, slope: Tensor) -> list[Tensor]:
    """The blocks after a projected step of one of them, short enough for its quadratic bound to hold."""
    value, rate = authors_cost(gram, kernel, eta, blocks), RATE
    while True:
        step = blocks[i] - rate * slope
        moved = [*blocks[:i], polar(step) if i < 2 else step.clamp(min=0.0), *blocks[i + 1 :]]
        move = moved[i] - blocks[i]
        bound = value + (slope * move).sum() + move.square().sum() / (2.0 * rate)
        if rate < 1e-12 or authors_cost(gram, kernel, eta, moved) <= bound:
            return moved
        rate *= SHRINK
