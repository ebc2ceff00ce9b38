"""Ridge systems of operator-valued kernels without structure: by the block matrix, or by its action alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from representer.kernels.base import count
from representer.linalg import (
    conjugate_gradient,
    eigh,
    factorize,
    kronecker_solve,
    nearest_kronecker,
    pivoted_cholesky,
    woodbury,
)
from representer.linalg.memory import row_blocks
from representer.operators.base import Decomposable, OperatorKernel, OperatorSum
from representer.operators.outputs import clipped_spectrum

# Rank of the pivoted Cholesky preconditioner: its cost stays below that of a few products with the kernel.
PRECONDITIONER_RANK = 200


class System(ABC):
    """K + diag(noise) on the observed entries, factored."""

    @abstractmethod
    def solve(self, targets: Tensor) -> Tensor:
        """The coefficients C = Q Y (n, p); unobserved entries of Y are not read, and get coefficient 0."""

    @abstractmethod
    def loo_predictions(self, targets: Tensor, coefficients: Tensor) -> Tensor:
        """f₋ᵢ(x_i) (n, p), the predictions for each sample by the fit without it."""

    @abstractmethod
    def variance(self, X: Any) -> Tensor:
        """The diagonal of K(x, x) − K_x Q K_xᵀ at new points, (m, p)."""

    @abstractmethod
    def loo_variance(self) -> Tensor:
        """The variance of y_i − f₋ᵢ(x_i) in units of the prior's scale, the diagonal of [Q_ii]⁻¹, (n, p)."""


# -- any kernel, by its block matrix --------------------------------------------------------------------------------
class DenseSystem(System):
    """The block matrix of the observed entries, factored."""

    def __init__(self, kernel: OperatorKernel, X: Any, noise: Tensor, observed: Tensor):
        self.kernel = kernel
        self.X = X
        self.observed = observed
        self.index = observed.reshape(-1).nonzero()[:, 0]
        self.factor = factorize(lambda: self._matrix(noise), name="The block Gram matrix plus n·alpha")

    def _matrix(self, noise: Tensor) -> Tensor:
        p = self.observed.shape[1]
        block = self.kernel.dense(self.X, None, p)
        if len(self.index) < len(block):
            block = block[self.index[:, None], self.index]
        block.diagonal().add_(noise.repeat_interleave(p)[self.index])
        return block

    def solve(self, targets: Tensor) -> Tensor:
        """One triangular solve."""
        coefficients = torch.zeros_like(targets).reshape(-1)
        coefficients[self.index] = self.factor.solve(targets.reshape(-1)[self.index, None])[:, 0]
        return coefficients.reshape(targets.shape)

    def _sample_blocks(self, matrix: Tensor) -> Tensor:
        """The p × p block of each sample in a (n·p) × n_observed matrix, as (n, p, p); unobserved columns are 0."""
        n, p = self.observed.shape
        blocks = matrix.new_zeros(n, p, p)
        samples, outputs = self.index // p, self.index % p
        for a in range(p):
            blocks[samples, a, outputs] = matrix[samples * p + a, torch.arange(len(self.index))]
        return blocks

    def _inverse_blocks(self) -> Tensor:
        inverse = self.factor.inverse()
        full = inverse.new_zeros(self.observed.numel(), len(self.index))
        full[self.index] = inverse
        return self._sample_blocks(full)

    def _loo_blocks(self) -> Tensor:
        """[Q_ii] with a unit diagonal where a target is missing, so that it can be inverted."""
        return self._inverse_blocks() + torch.diag_embed((~self.observed).to(self.factor.factor.dtype))

    def loo_variance(self) -> Tensor:
        """The diagonals of the inverted blocks; NaN where a target is missing."""
        variance = torch.linalg.inv(self._loo_blocks()).diagonal(dim1=-2, dim2=-1)
        return torch.where(self.observed, variance, torch.nan)

    def loo_predictions(self, targets: Tensor, coefficients: Tensor) -> Tensor:
        """f(x_i) − [K Q]_ii ([Q]_ii)⁻¹ c_i, which holds for observed and unobserved outputs alike."""
        n, p = self.observed.shape
        block = self.kernel.dense(self.X, None, p)[:, self.index]
        fitted = (block @ coefficients.reshape(-1)[self.index]).reshape(n, p)
        hat = self._sample_blocks(self.factor.solve(block.mT).mT)
        residuals = torch.linalg.solve(self._loo_blocks(), coefficients)
        return fitted - (hat @ residuals[..., None])[..., 0]

    def variance(self, X: Any) -> Tensor:
        """From one triangular solve with the cross blocks."""
        p = self.observed.shape[1]
        cross = self.kernel.dense(X, self.X, p)[:, self.index]
        explained = (self.factor.half_solve(cross.mT) ** 2).sum(0).reshape(-1, p)
        return (self.kernel.diag(X, p) - explained).clamp(min=0.0)


# -- any kernel, by its action --------------------------------------------------------------------------------------
class IterativeSystem(System):
    """Preconditioned conjugate gradients on the implicit operator: nothing of size n·p squared exists."""

    def __init__(self, kernel: OperatorKernel, X: Any, noise: Tensor, observed: Tensor):
        self.kernel = kernel
        self.X = X
        self.noise = noise
        self.mask = observed.to(noise.dtype)
        self.precondition = _preconditioner(kernel, X, noise, self.mask)

    def _matvec(self, coefficients: Tensor) -> Tensor:
        masked = self.mask * coefficients
        blocks = row_blocks(len(masked), masked.numel() * masked.element_size())
        image = torch.cat([self.kernel.apply(self.X[rows], self.X, masked) for rows in blocks])
        return self.mask * image + self.noise[:, None] * coefficients

    def solve(self, targets: Tensor) -> Tensor:
        """Conjugate gradients; entries that are not observed decouple and stay 0."""
        observed = torch.where(self.mask > 0, targets, 0.0)
        name = "the operator-valued ridge system"
        return conjugate_gradient(self._matvec, observed, precondition=self.precondition, name=name)

    def loo_predictions(self, targets: Tensor, coefficients: Tensor) -> Tensor:
        """Not available: it needs the inverse that this solver avoids."""
        n, p = self.mask.shape
        raise ValueError(
            f"Leave-one-out predictions need the inverse of a {n * p} × {n * p} matrix, which the iterative solver "
            "avoids. Use cross_val_predict, fewer samples, or an operator that commutes (Identity, Diagonal)."
        )

    def loo_variance(self) -> Tensor:
        """Not available either."""
        return self.loo_predictions(self.mask, self.mask)

    def variance(self, X: Any) -> Tensor:
        """One solve for each new point and output."""
        p = self.mask.shape[1]
        diagonal = self.kernel.diag(X, p)
        explained = torch.zeros_like(diagonal)
        for i in range(count(X)):
            rows = self.kernel.dense(X[i : i + 1], self.X, p).reshape(p, -1, p)
            for a in range(p):
                explained[i, a] = (rows[a] * self.solve(rows[a])).sum()
        return (diagonal - explained).clamp(min=0.0)


def _preconditioner(
    kernel: OperatorKernel, X: Any, noise: Tensor, mask: Tensor
) -> Callable[[Tensor], Tensor]:
    """For sums of Kronecker products the nearest one; for any other kernel a pivoted Cholesky factor."""
    shift = noise.mean()
    n, p = mask.shape
    terms = _terms(kernel)
    products = [term for term in terms if isinstance(term, Decomposable)]
    if len(products) == len(terms):
        pairs = [(term.kernel._gram(X, None), term._operator.as_matrix(p, noise)) for term in products]
        gram, operator = nearest_kronecker(pairs)
        left, right = eigh(gram), clipped_spectrum(operator)
        return lambda residual: (
            mask * kronecker_solve(left, right, residual, shift) + (1 - mask) * residual / shift
        )

    flat_mask = mask.reshape(-1)

    def column(index: int) -> Tensor:
        sample, output = divmod(index, p)
        block = kernel.dense(X, X[sample : sample + 1], p)
        return flat_mask * block[:, output] * flat_mask[index]

    diagonal = kernel.diag(X, p) * mask
    rank = min(PRECONDITIONER_RANK, n * p)
    factor, _ = pivoted_cholesky(column, diagonal=diagonal.reshape(-1), max_rank=rank)
    inverse = woodbury(factor, shift.item())
    return lambda residual: inverse.solve(residual.reshape(-1, 1)).reshape(residual.shape)


def _terms(kernel: OperatorKernel) -> list[OperatorKernel]:
    """The terms of a sum, and of the sums in it."""
    return [t for term in kernel.terms for t in _terms(term)] if isinstance(kernel, OperatorSum) else [kernel]
