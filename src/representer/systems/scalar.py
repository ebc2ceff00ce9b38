"""The linear system behind a fit by squared loss: K dense or by a factor, with or without an intercept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from torch import Tensor

from representer.linalg import factorize, shifted, symmetric_product, symmetric_products


class RidgeSystem(ABC):
    """P = W⁻¹ for W = K + shift·I; with an intercept P = W⁻¹ − W⁻¹11ᵀW⁻¹/(1ᵀW⁻¹1).

    The second is the limit c → ∞ of (K + c11ᵀ + shift·I)⁻¹: constant functions at no cost. So what follows from
    dP = −P dW P holds for both. The fit to Y is f + b, with the dual coefficients PY of f, and b = Yᵀg for
    g = W⁻¹1/(1ᵀW⁻¹1), whose differential is dg = −P dW g.

    Parameters
    ----------
    matrix : tensor (..., n, n) or (..., n, m)
        K or a factor of it.
    shift : tensor (...)
    rows : tensor of int (t,), optional
        The rows of K that W is made of. Default: all.
    intercept : bool
    """

    by_row: bool  # whether f has a coefficient for each row, or for each feature

    def __init__(self, matrix: Tensor, shift: Tensor, *, rows: Tensor | None, intercept: bool) -> None:
        self.matrix = matrix
        self.shift = shift
        self.rows = rows
        self.u: Tensor | None = None  # W⁻¹1 as a column
        self.g: Tensor | None = None
        if intercept:
            self.u = self._solve(matrix.new_ones(matrix.shape[-2] if rows is None else len(rows), 1))
            self.g = self.u / self.u.sum(-2, keepdim=True)

    def centred(self, right: Tensor) -> Tensor:
        """Y − 1bᵀ, for which PY = W⁻¹(Y − 1bᵀ)."""
        return right if self.g is None else right - self.g.mT @ right

    def solve(self, right: Tensor) -> Tensor:
        """PY for a Y (..., t, p)."""
        return self._solve(self.centred(right))

    @abstractmethod
    def _solve(self, right: Tensor) -> Tensor:
        """W⁻¹Y."""

    @abstractmethod
    def apply(self, dual: Tensor) -> Tensor:
        """KC for a C (..., n, p)."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """That of P, (..., t)."""

    @abstractmethod
    def coefficients(self, right: Tensor, dual: Tensor | None = None) -> Tensor:
        """Those of the fit to Y, by row or by feature; ``dual`` is PY if it is known."""

    @property
    @abstractmethod
    def unit_coefficients(self) -> Tensor:
        """Those of the fits to the t unit vectors, as columns."""

    @abstractmethod
    def gradient(
        self, left: Tensor, dual: Tensor, weights: Tensor | None, root: Tensor | None = None
    ) -> Tensor:
        """∂/∂matrix, if ∂/∂K = left dualᵀ + dual leftᵀ + P diag(weights) P. Weights need a fit to all rows.

        The last that is asked of a system: it may take the memory of the factorisation. Where the first two terms are
        −RRᵀ, the ``root`` R spares a pass over an n × n matrix.
        """

    @abstractmethod
    def trace(self, gradient: Tensor, left: Tensor, dual: Tensor, weights: Tensor | None) -> Tensor:
        """Of ∂/∂K, which is ``gradient`` in ``matrix``."""

    @abstractmethod
    def gram_diagonal(self) -> Tensor:
        """That of K, (..., n)."""

    @abstractmethod
    def add_diagonal(self, gradient: Tensor, diagonal: Tensor) -> None:
        """Add what ∂/∂K = diag(diagonal) is in ``matrix``, in place."""


class DenseSystem(RidgeSystem):
    """By a Cholesky factorisation of W."""

    by_row = True

    def __init__(
        self,
        matrix: Tensor,
        shift: Tensor,
        *,
        rows: Tensor | None = None,
        intercept: bool,
        name: str = "The regularised Gram matrix",
    ) -> None:
        block = matrix if rows is None else matrix[..., rows[:, None], rows]
        self.cholesky = factorize(
            lambda: shifted(block, shift[..., None]), name=name, strict=matrix.ndim == 2
        )
        super().__init__(matrix, shift, rows=rows, intercept=intercept)

    @cached_property
    def unit_coefficients(self) -> Tensor:
        """P itself, in the memory of the factor: solutions are products with it from here on."""
        less = None if self.u is None else self.u / self.u.sum(-2, keepdim=True).sqrt()
        return self.cholesky.inverse(less, overwrite=True)

    def solve(self, right: Tensor) -> Tensor:
        known = "unit_coefficients" in vars(self)
        return symmetric_product(self.unit_coefficients, right) if known else super().solve(right)

    def _solve(self, right: Tensor) -> Tensor:
        return self.cholesky.solve(right)

    def apply(self, dual: Tensor) -> Tensor:
        return self.matrix @ dual

    def diagonal(self) -> Tensor:
        return self.unit_coefficients.diagonal(dim1=-2, dim2=-1)

    def coefficients(self, right: Tensor, dual: Tensor | None = None) -> Tensor:
        return self.solve(right) if dual is None else dual

    def gradient(
        self, left: Tensor, dual: Tensor, weights: Tensor | None, root: Tensor | None = None
    ) -> Tensor:
        if root is not None and weights is None:
            return -root @ root.mT
        rows = None if weights is None else self.unit_coefficients
        memory = None if "unit_coefficients" in vars(self) else self.cholesky.factor
        return symmetric_products(left, dual, rows, weights, memory=memory)

    def trace(self, gradient: Tensor, left: Tensor, dual: Tensor, weights: Tensor | None) -> Tensor:
        return gradient.diagonal(dim1=-2, dim2=-1).sum(-1)

    def gram_diagonal(self) -> Tensor:
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    def add_diagonal(self, gradient: Tensor, diagonal: Tensor) -> None:
        gradient.diagonal(dim1=-2, dim2=-1).add_(diagonal)


class FactorSystem(RidgeSystem):
    """For K = BBᵀ, through the m × m matrix M = BᵀB + shift·I: W⁻¹ = (I − BM⁻¹Bᵀ)/shift. O(nm²), memory O(nm).

    Its coefficients θ = BᵀPY = M⁻¹Bᵀ(Y − 1bᵀ) are those of f(x_i) = B_i θ.
    """

    by_row = False

    def __init__(self, matrix: Tensor, shift: Tensor, *, rows: Tensor | None = None, intercept: bool) -> None:
        self.features = matrix if rows is None else matrix[..., rows, :]
        self.cholesky = factorize(
            lambda: shifted(self.features.mT @ self.features, shift[..., None]),
            name="The matrix BᵀB + n·alpha·I of the factor",
            strict=matrix.ndim == 2,
        )
        super().__init__(matrix, shift, rows=rows, intercept=intercept)

    def _theta(self, right: Tensor) -> Tensor:
        return self.cholesky.solve(self.features.mT @ right)

    def _solve(self, right: Tensor) -> Tensor:
        return (right - self.features @ self._theta(right)) / self.shift[..., None, None]

    def apply(self, dual: Tensor) -> Tensor:
        return self.matrix @ (self.matrix.mT @ dual)

    def diagonal(self) -> Tensor:
        leverage = self.cholesky.half_solve(self.features.mT).square().sum(-2)
        diagonal = (1.0 - leverage) / self.shift[..., None]
        return diagonal if self.u is None or self.g is None else diagonal - (self.u * self.g)[..., 0]

    def coefficients(self, right: Tensor, dual: Tensor | None = None) -> Tensor:
        return self._theta(self.centred(right))

    @cached_property
    def unit_coefficients(self) -> Tensor:
        """BᵀP."""
        theta = self.cholesky.solve(self.features.mT)
        return theta if self.g is None else theta - theta.sum(-1, keepdim=True) @ self.g.mT

    def gradient(
        self, left: Tensor, dual: Tensor, weights: Tensor | None, root: Tensor | None = None
    ) -> Tensor:
        B = self.matrix
        if root is None:
            gradient = left @ (dual.mT @ B) + dual @ (left.mT @ B)
        else:
            gradient = -root @ (root.mT @ B)
        if weights is not None:
            gradient += self.solve(weights[..., None] * self.unit_coefficients.mT)
        return 2.0 * gradient

    def trace(self, gradient: Tensor, left: Tensor, dual: Tensor, weights: Tensor | None) -> Tensor:
        """With the squared norms of the rows of P from PWP = P, which is P(BBᵀ + shift·I)P."""
        trace = 2.0 * (left * dual).sum((-2, -1))
        if weights is None:
            return trace
        norms = (self.diagonal() - self.unit_coefficients.square().sum(-2)) / self.shift[..., None]
        return trace + (weights * norms).sum(-1)

    def gram_diagonal(self) -> Tensor:
        return self.matrix.square().sum(-1)

    def add_diagonal(self, gradient: Tensor, diagonal: Tensor) -> None:
        gradient.add_(2.0 * diagonal[..., None] * self.matrix)
