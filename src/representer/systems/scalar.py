"""The linear system behind a fit by squared loss: K dense or by a factor, with or without an intercept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from representer.functions import Expansion, Function, Span
from representer.kernels import Kernel, unscaled
from representer.linalg import Cholesky, by_rows, factorize, factorize_products, shifted, symmetric_products
from representer.operators import Decomposable, Representation, repaired_gram, silent_repairs
from representer.samples import Data, count, plain
from representer.systems.base import Groups, linear_origin


# -- samples that are left out -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class BlockDiagonal:
    """A symmetric matrix (..., n, n) with a block for each group and zeros elsewhere."""

    groups: Groups
    blocks: list[Tensor]

    def __matmul__(self, right: Tensor) -> Tensor:
        parts = zip(self.blocks, self.groups.parts(right), strict=True)
        return self.groups.joined([block @ part for block, part in parts], right)

    def inner(self, blocks: list[Tensor]) -> Tensor:
        """The inner product with a matrix of which the diagonal blocks are given."""
        products = [(own * other).sum((-3, -2, -1)) for own, other in zip(self.blocks, blocks, strict=True)]
        return torch.stack(products).sum(0)


@dataclass(frozen=True)
class LeftOut:
    """The errors y_i − f₋ᵢ(x_i) of samples that were left out, one by one or in groups, and their derivatives.

    With S the group of i, they are E_S = P_SS⁻¹ C_S. From dP = −P dW P and dC = −P dW C follows, for a function whose
    gradient in E is Γ and with Z_S = P_SS⁻¹ Γ_S, that its gradient in W is P B P − (PZCᵀ + CZᵀP)/2, where B is
    block-diagonal with the symmetric parts of E_S Z_Sᵀ.

    Parameters
    ----------
    errors : tensor (..., n, q)
        E.
    inverse : tensor (..., n, 1), or list of Cholesky factors (..., g, s, s)
        The diagonal of P, or the factors of its blocks.
    groups : Groups or None
        None: every sample is a group of its own.
    """

    errors: Tensor
    inverse: Any
    groups: Groups | None = None

    def pulled(self, slope: Tensor) -> tuple[Tensor, Tensor | BlockDiagonal]:
        """Z (..., n, q) and B, or its diagonal (..., n), for a gradient Γ in the errors."""
        if self.groups is None:
            Z = slope / self.inverse
            return Z, (self.errors * Z).sum(-1)
        Z = _solved(self.groups, self.inverse, slope)
        halves = [E @ part.mT for E, part in zip(self.groups.parts(self.errors), self.groups.parts(Z), strict=True)]
        return Z, BlockDiagonal(self.groups, [0.5 * (half + half.mT) for half in halves])


def _solved(groups: Groups, factors: list[Tensor], right: Tensor) -> Tensor:
    parts = zip(factors, groups.parts(right), strict=True)
    return groups.joined([torch.cholesky_solve(part, factor) for factor, part in parts], right)


# -- systems -----------------------------------------------------------------------------------------------------------
class RidgeSystem(ABC):
    """P = W⁻¹ for W = K + N with the noise N = shift·diag(1/w); with an intercept P = W⁻¹ − W⁻¹11ᵀW⁻¹/(1ᵀW⁻¹1).

    The second is the limit c → ∞ of (K + c11ᵀ + N)⁻¹: constant functions at no cost. So what follows from
    dP = −P dW P holds for both. The fit to Y is f + b, with the dual coefficients PY of f, and b = Yᵀg for
    g = W⁻¹1/(1ᵀW⁻¹1), whose differential is dg = −P dW g. Weights w enter by D = diag(√w): W⁻¹ = D(DKD + shift·I)⁻¹D.

    Parameters
    ----------
    matrix : tensor (..., n, n) or (..., n, m)
        K or a factor of it.
    shift : tensor (...)
    rows : tensor of int (t,), optional
        The rows of K that W is made of. Default: all.
    intercept : bool
    sample_weight : tensor (t,), optional
        The positive weights w of these rows. Default: ones.
    with_gradient : bool
        Will a gradient be asked for? If not, the diagonal of P is computed without P.
    name : str, optional
        What errors call the matrix that is factored.
    """

    by_row: ClassVar[bool]  # whether f has a coefficient for each row, or for each feature
    name: ClassVar[str]

    def __init__(
        self,
        matrix: Tensor,
        shift: Tensor,
        *,
        rows: Tensor | None = None,
        intercept: bool,
        sample_weight: Tensor | None = None,
        with_gradient: bool = True,
        name: str | None = None,
    ) -> None:
        self.matrix = matrix
        self.with_gradient = with_gradient
        self.shift = shift
        self.rows = rows
        self.sample_weight = sample_weight
        self.root = None if sample_weight is None else sample_weight.sqrt()[:, None]
        self.cholesky = self._factored(self.name if name is None else name)
        self.u: Tensor | None = None  # W⁻¹1 as a column
        self.g: Tensor | None = None
        if intercept:
            self.u = self._solve(matrix.new_ones(matrix.shape[-2] if rows is None else len(rows), 1))
            self.g = self.u / self.u.sum(-2, keepdim=True)

    @abstractmethod
    def _factored(self, name: str) -> Cholesky:
        """The matrix by which W⁻¹ is known, factored."""

    def per_weight(self, values: Tensor) -> Tensor:
        """Rows (..., t, q) over the weights of the samples."""
        return values if self.sample_weight is None else values / self.sample_weight[:, None]

    def noise(self, dual: Tensor) -> Tensor:
        """NC, the residuals of the fit with dual coefficients C (..., t, q)."""
        return self.shift[..., None, None] * self.per_weight(dual)

    def centred(self, right: Tensor) -> Tensor:
        """Y − 1bᵀ, for which PY = W⁻¹(Y − 1bᵀ)."""
        return right if self.g is None else right - self.g.mT @ right

    def solve(self, right: Tensor) -> Tensor:
        """The product PY for a Y (..., t, p)."""
        return self._solve(self.centred(right))

    @abstractmethod
    def _solve(self, right: Tensor) -> Tensor:
        """The solution W⁻¹Y of the system without a constant."""

    @abstractmethod
    def apply(self, dual: Tensor) -> Tensor:
        """The product KC for a C (..., n, p)."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """The diagonal of P, (..., t)."""

    def _beside_constants(self, diagonal: Tensor) -> Tensor:
        """The diagonal of P from that of D⁻¹W⁻¹D⁻¹."""
        diagonal = diagonal if self.sample_weight is None else diagonal * self.sample_weight
        return diagonal if self.u is None or self.g is None else diagonal - (self.u * self.g)[..., 0]

    @abstractmethod
    def blocks(self, groups: Groups) -> list[Tensor]:
        """The blocks P_SS of groups S of rows."""

    def left_out(self, dual: Tensor, groups: Groups | None = None) -> LeftOut:
        """The errors y_S − f₋ₛ(x_S) of the fits without each sample, or each group, and with the same shift."""
        if groups is None:
            diagonal = self.diagonal()[..., None]
            return LeftOut(dual / diagonal, diagonal)
        factors = [torch.linalg.cholesky_ex(block)[0] for block in self.blocks(groups)]
        return LeftOut(_solved(groups, factors, dual), factors, groups)

    @abstractmethod
    def coefficients(self, right: Tensor, dual: Tensor | None = None) -> Tensor:
        """The coefficients of the fit to Y, by row or by feature; ``dual`` is PY if it is known."""

    @property
    @abstractmethod
    def unit_coefficients(self) -> Tensor:
        """The coefficients of the fits to the t unit vectors, as columns."""

    @abstractmethod
    def gradient(
        self,
        left: Tensor,
        dual: Tensor,
        weights: Tensor | BlockDiagonal | None,
        root: Tensor | None = None,
    ) -> Tensor:
        """∂/∂matrix, if ∂/∂K = left dualᵀ + dual leftᵀ + P B P, B given or by its diagonal. B needs a fit to all rows.

        Where the first two terms are −RRᵀ, the ``root`` R spares a pass over an n × n matrix.
        """

    @abstractmethod
    def trace(self, gradient: Tensor, left: Tensor, dual: Tensor, weights: Tensor | BlockDiagonal | None) -> Tensor:
        """The derivative in the shift that goes through W: tr(∂/∂K · diag(1/w)); ∂/∂matrix is ``gradient``."""

    @abstractmethod
    def gram_diagonal(self) -> Tensor:
        """The diagonal of K, (..., n)."""

    @abstractmethod
    def add_diagonal(self, gradient: Tensor, diagonal: Tensor) -> None:
        """Add what ∂/∂K = diag(diagonal) is in ``matrix``, in place."""

    def _inverse_weights(self) -> Tensor | None:
        """1/w of all n rows, zero for those that are not fitted."""
        if self.sample_weight is None or self.rows is None:
            return None if self.sample_weight is None else 1.0 / self.sample_weight
        return self.matrix.new_zeros(self.matrix.shape[-2]).index_copy(0, self.rows, 1.0 / self.sample_weight)


class DenseSystem(RidgeSystem):
    """By a Cholesky factorisation of DKD + shift·I, which is W without weights."""

    by_row = True
    name = "The Gram matrix plus n·alpha"

    def _factored(self, name: str) -> Cholesky:
        block = self.matrix if self.rows is None else self.matrix[..., self.rows[:, None], self.rows]
        block = block if self.root is None else block * self.root * self.root.mT
        shift = self.shift[..., None]
        return factorize(lambda: shifted(block, shift), name=name, strict=self.matrix.ndim == 2)

    @cached_property
    def unit_coefficients(self) -> Tensor:
        """P itself; in a search, solutions are products with it from here on."""
        less = None if self.u is None else self.u / self.u.sum(-2, keepdim=True).sqrt()
        if self.root is None:
            return self.cholesky.inverse(less)
        root = torch.where(self.root > 0, self.root, 1.0)  # rows of weight zero are zero already
        inverse = self.cholesky.inverse(None if less is None else less / root)
        return inverse * self.root * self.root.mT

    def solve(self, right: Tensor) -> Tensor:
        # Outside of a search answers must not depend, by rounding, on what was asked before.
        known = self.with_gradient and "unit_coefficients" in vars(self)
        return self.unit_coefficients @ right if known else super().solve(right)

    def _solve(self, right: Tensor) -> Tensor:
        if self.root is None:
            return self.cholesky.solve(right)
        return self.root * self.cholesky.solve(self.root * right)

    def explained(self, cross: Tensor) -> Tensor:
        """kᵀW⁻¹k (m,) of the rows k of a matrix (m, n)."""
        return self.cholesky.half_solve(self._rooted(cross).mT).square().sum(0)

    def explained_by_one(self, cross: Tensor) -> Tensor:
        """max_i k_i²/W_ii (m,), which is at most kᵀW⁻¹k by Cauchy and Schwarz, and solves no equations."""
        return (self._rooted(cross).square() / self._shifted_diagonal).amax(1)

    @cached_property
    def _shifted_diagonal(self) -> Tensor:
        """W_ii (n,), as it was factored."""
        return self.cholesky.factor.square().sum(1)

    def _rooted(self, cross: Tensor) -> Tensor:
        return cross if self.root is None else cross * self.root.mT

    def apply(self, dual: Tensor) -> Tensor:
        return self.matrix @ dual

    def diagonal(self) -> Tensor:
        if self.with_gradient or "unit_coefficients" in vars(self):
            return self.unit_coefficients.diagonal(dim1=-2, dim2=-1)
        return self._beside_constants(self.cholesky.inverse_diagonal())

    def blocks(self, groups: Groups) -> list[Tensor]:
        return groups.blocks(self.unit_coefficients)

    def coefficients(self, right: Tensor, dual: Tensor | None = None) -> Tensor:
        return self.solve(right) if dual is None else dual

    def gradient(
        self,
        left: Tensor,
        dual: Tensor,
        weights: Tensor | BlockDiagonal | None,
        root: Tensor | None = None,
    ) -> Tensor:
        if root is not None and weights is None:
            return -root @ root.mT
        if isinstance(weights, BlockDiagonal):
            P = self.unit_coefficients
            half = left @ dual.mT
            product = P @ (weights @ P)
            return half + half.mT + 0.5 * (product + product.mT)
        return symmetric_products(left, dual, None if weights is None else self.unit_coefficients, weights)

    def trace(self, gradient: Tensor, left: Tensor, dual: Tensor, weights: Tensor | BlockDiagonal | None) -> Tensor:
        diagonal = gradient.diagonal(dim1=-2, dim2=-1)
        scale = self._inverse_weights()
        return (diagonal if scale is None else diagonal * scale).sum(-1)

    def gram_diagonal(self) -> Tensor:
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    def add_diagonal(self, gradient: Tensor, diagonal: Tensor) -> None:
        gradient.diagonal(dim1=-2, dim2=-1).add_(diagonal)


class FactorSystem(RidgeSystem):
    """The system of K = BBᵀ and F = DB, through the m × m matrix M = FᵀF + shift·I: W⁻¹ = D(I − FM⁻¹Fᵀ)D/shift.

    It costs O(nm²) and memory O(nm). Its coefficients θ = BᵀPY = M⁻¹FᵀD(Y − 1bᵀ) are those of f(x_i) = B_i θ.
    """

    by_row = False
    name = "The matrix BᵀB + n·alpha·I of the factor"

    def _factored(self, name: str) -> Cholesky:
        return factorize_products(self.features, self.shift, name=name, strict=self.matrix.ndim == 2)

    @cached_property
    def features(self) -> Tensor:
        """F, the rows that are fitted."""
        return self._rooted(self.matrix if self.rows is None else self.matrix[..., self.rows, :])

    def _rooted(self, values: Tensor) -> Tensor:
        """The rows times the roots of their weights."""
        return values if self.root is None else self.root * values

    def _theta(self, right: Tensor) -> Tensor:
        return self.cholesky.solve(self.features.mT @ self._rooted(right))

    def _solve(self, right: Tensor) -> Tensor:
        return self._rooted(self._rooted(right) - self.features @ self._theta(right)) / self.shift[..., None, None]

    def apply(self, dual: Tensor) -> Tensor:
        return self.matrix @ (self.matrix.mT @ dual)

    def diagonal(self) -> Tensor:
        leverage = self.cholesky.half_solve(self.features.mT).square().sum(-2)
        return self._beside_constants((1.0 - leverage) / self.shift[..., None])

    def blocks(self, groups: Groups) -> list[Tensor]:
        found = []
        halves = groups.parts(self.cholesky.half_solve(self.features.mT).mT)
        for members, half in zip(groups.members, halves, strict=True):
            block = torch.eye(half.shape[-2]).to(half) - half @ half.mT
            block = block / self.shift[..., None, None, None]
            if self.root is not None:
                root = self.root[members]
                block = block * root * root.mT
            if self.u is not None and self.g is not None:
                block = block - self.u[..., members, :] @ self.g[..., members, :].mT
            found.append(block)
        return found

    def coefficients(self, right: Tensor, dual: Tensor | None = None) -> Tensor:
        return self._theta(self.centred(right))

    @cached_property
    def unit_coefficients(self) -> Tensor:
        """The matrix BᵀP: the coefficients of the features for unit targets."""
        theta = self.cholesky.solve(self._rooted(self.features).mT)
        return theta if self.g is None else theta - theta.sum(-1, keepdim=True) @ self.g.mT

    def gradient(
        self,
        left: Tensor,
        dual: Tensor,
        weights: Tensor | BlockDiagonal | None,
        root: Tensor | None = None,
    ) -> Tensor:
        B = self.matrix
        if root is None:
            gradient = left @ (dual.mT @ B) + dual @ (left.mT @ B)
        else:
            gradient = -root @ (root.mT @ B)
        if isinstance(weights, BlockDiagonal):
            gradient += self.solve(weights @ self.unit_coefficients.mT)
        elif weights is not None:
            gradient += self.solve(weights[..., None] * self.unit_coefficients.mT)
        return 2.0 * gradient

    def trace(self, gradient: Tensor, left: Tensor, dual: Tensor, weights: Tensor | BlockDiagonal | None) -> Tensor:
        """From PWP = P, which is P(BBᵀ + shift·diag(1/w))P, the blocks of P diag(1/w) P are known."""
        product, scale = left * dual, self._inverse_weights()
        trace = 2.0 * (product if scale is None else product * scale[:, None]).sum((-2, -1))
        if weights is None:
            return trace
        unit = self.unit_coefficients
        if isinstance(weights, BlockDiagonal):
            parts = zip(self.blocks(weights.groups), weights.groups.parts(unit.mT), strict=True)
            squares = [(block - part @ part.mT) / self.shift[..., None, None, None] for block, part in parts]
            return trace + weights.inner(squares)
        norms = (self.diagonal() - unit.square().sum(-2)) / self.shift[..., None]
        return trace + (weights * norms).sum(-1)

    def gram_diagonal(self) -> Tensor:
        return self.matrix.square().sum(-1)

    def add_diagonal(self, gradient: Tensor, diagonal: Tensor) -> None:
        gradient.add_(2.0 * diagonal[..., None] * self.matrix)


# -- weights of all samples -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Solved:
    """A kernel, prepared training inputs, and their factored system."""

    kernel: Kernel
    anchors: Data  # from the origin, where there is one
    system: DenseSystem
    kept: Tensor | None  # if the Gram matrix was repaired, the eigenvectors that have stayed
    origin: Tensor | None = None  # what a linear kernel beside a constant counts points from

    def _moved(self, X: Data) -> Data:
        """Prepared inputs from the origin."""
        return X if self.origin is None else X - self.origin

    def cross(self, X: Data) -> Tensor:
        """k(X, X_train), projected where the Gram matrix was repaired."""
        cross = self.kernel._gram(self._moved(X), self.anchors)
        return cross if self.kept is None else (cross @ self.kept) @ self.kept.mT

    def diagonal(self, X: Data) -> Tensor:
        """The k(x, x) of prepared inputs."""
        return self.kernel._diag(self._moved(X))


@dataclass(frozen=True)
class SampleWeights(Function):
    """w(x) = P k(X, x) + g: the fit to any targets Y takes the value Yᵀw(x), with P and g of the ridge system.

    The system is factored when it is first asked for; what is stored are the training inputs.

    Parameters
    ----------
    kernel : Kernel
        With numbers for all hyperparameters.
    anchors : data
        The training inputs X as they are stored.
    shift : float
        n·alpha, or alpha times the sum of the samples' weights.
    intercept : bool
        Do the weights sum to one?
    representation : Representation
        How stored arrays become tensors.
    sample_weight : array (n,) or None for ones
        The weights of the samples in the fit; zero leaves a sample out.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from representer.kernels import Gaussian
    >>> from representer.operators import Representation
    >>> from representer.systems.scalar import SampleWeights
    >>> w = SampleWeights(Gaussian(1.0), np.array([[0.0], [9.0]]), 1e-9, True, Representation(torch.float64))
    >>> w(np.array([[0.0], [9.0]])).round(decimals=6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    kernel: Kernel
    anchors: Data
    shift: float
    intercept: bool
    representation: Representation
    sample_weight: np.ndarray | None = None

    @cached_property
    def solved(self) -> Solved:
        """The system, factored when it is first asked for."""
        with silent_repairs():  # the fit has said it
            return self._solve(self.representation.adapted(self.kernel, repair=True))

    def with_system(self, kernel: Kernel) -> SampleWeights:
        """The same function with its system factored, for a kernel that is adapted; a repair is announced."""
        function = replace(self)
        vars(function)["solved"] = self._solve(kernel)
        return function

    def _solve(self, kernel: Kernel) -> Solved:
        how = self.representation
        anchors = how.inputs(kernel, self.anchors)
        weights = None if self.sample_weight is None else how.tensor(self.sample_weight)
        origin = linear_origin(kernel, anchors, weights) if self.intercept else None
        anchors = anchors if origin is None else anchors - origin
        gram, kept = repaired_gram(kernel, anchors)
        shift = gram.new_tensor(self.shift)
        system = DenseSystem(gram, shift, intercept=self.intercept, sample_weight=weights, with_gradient=False)
        return Solved(kernel, anchors, system, kept, origin)

    def _inputs(self, X: Data) -> Any:
        return self.representation.inputs(self.solved.kernel, X)

    def expansion(self, Y: Tensor) -> Expansion:
        """The fit Yᵀw to targets (n, p), as a function on the training inputs."""
        solved, system, slopes = self.solved, self.solved.system, None
        dual, b = system.solve(Y), None if system.g is None else (system.g.mT @ Y)[0]
        if b is not None and solved.origin is not None:
            slopes = solved.anchors.mT @ dual
            b = b - unscaled(self.kernel)[1] * (solved.origin @ slopes)
        arrays = (plain(dual), plain(b), self.representation, plain(slopes))
        return Expansion(Decomposable(self.kernel), self.anchors, *arrays)

    def __call__(self, X: Data) -> Tensor:
        """The weights w(x_i) of the training samples as rows, (q, n)."""
        solved = self.solved
        with torch.no_grad():
            # P is symmetric, and annihilates constants: P k = W⁻¹(k − 1 gᵀk).
            weights = solved.system.solve(solved.cross(self._inputs(X)).mT).mT
            return weights if solved.system.g is None else weights + solved.system.g[:, 0]

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """The condition of the system, which is solved for every question: at most k(x, x) / alpha."""
        if self.kernel.domain != "vectors" or not isinstance(self.anchors, np.ndarray):
            return 1.0
        n = len(self.anchors)
        total = n if self.sample_weight is None else self.sample_weight.sum()
        largest = float(self.solved.kernel._diag(self.solved.anchors[:: max(1, n // 64)]).max())
        return max(1.0, largest * total / self.shift)

    def spans(self) -> list[Span]:
        """The training inputs, which span the function."""
        return [Span(self.kernel, self.anchors, self.representation, weights=self.sample_weight)]

    def combined(self, X: Data, values: Tensor) -> Tensor:
        """w(x_i)ᵀV (q, p) for values V (n, p) of the samples, in blocks: no q × n matrix exists."""
        solved, inputs = self.solved, self._inputs(X)
        with torch.no_grad():
            dual = solved.system.solve(values)
            constant = 0.0 if solved.system.g is None else solved.system.g.mT @ values

            def sums(rows: slice) -> Tensor:
                cross = solved.cross(inputs[rows])
                # Beside constants the dual sums to zero: where k(x, ·) is nearly constant, its mean would cost digits.
                return (cross if solved.system.g is None else cross - cross.mean(-1, keepdim=True)) @ dual

            return by_rows(sums, count(inputs), 3 * len(dual) * dual.element_size()) + constant
