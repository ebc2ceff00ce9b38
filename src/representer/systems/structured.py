"""Ridge regression of structured outputs with the kernel k ⊗ A, in coordinates of the outputs where A is diagonal.

The outputs φ(y_i) are rows of R (n, r): any factor L = R Rᵀ of their Gram matrix is an isometry of their span. In it A
is an r × r matrix Q diag(a) Qᵀ, and the (n·r) × (n·r) system k ⊗ A + nα comes apart into one ridge regression for each
coordinate z_j = R q_j, with the matrix a_j k + nα. With k = U diag(e) Uᵀ they all cost products with U, for every α:

    c_j = (a_j k + nα)⁻¹ z_j,    g(x) = Σ_j a_j (k_xᵀ c_j) q_j,    leave-one-out residuals c_ij / [(a_j k + nα)⁻¹]_ii .

So equation (8) of Kadri et al. takes O(n³) time and O(n²) memory, and its exact leave-one-out error two products of
O(n² r) for each α: without sample i the coordinates still come apart, for A stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from representer.linalg import Spectrum, eigh, rotated_factor, self_product
from representer.operators.outputs import Operator, clipped_spectrum


@dataclass(frozen=True)
class Unexplained:
    """P = I − (N/n) U diag(e / (e + Nε)) Uᵀ: (1/n) Rᵀ P R is the conditional covariance C_YY − C_YX (C_XX + ε)⁻¹ C_XY.

    The C_XX of N inputs with the spectrum (U, e), of which n have outputs: U has the rows of these n. For N = n,
    P = nε(k + nε)⁻¹.
    """

    inputs: Spectrum
    total: int

    def apply(self, Z: Tensor, epsilon: float) -> Tensor:
        """P Z."""
        U, ratio, shift = self.inputs.vectors, self.total / len(Z), self.total * epsilon
        share = ratio * self.inputs.values / (self.inputs.values + shift)
        return Z - U @ (share[:, None] * (U.mT @ Z))


@dataclass(frozen=True)
class HeldOutputs:
    """Samples to leave out one by one, where the rows of a regression are not the samples but stand for n of them.

    Such rows have the second moments of the samples, and so their fit (see ``summed_problem``).

    Parameters
    ----------
    cross : tensor (h, N)
        k between some of the samples and the N rows.
    R : tensor (h, r)
        The outputs of these samples.
    ratio : float
        N/n.
    """

    cross: Tensor
    R: Tensor
    ratio: float

    def squares(self, inputs: Spectrum) -> Tensor:
        """The squared coordinates (h, m) of the samples' features in the eigenvectors of the features' covariance."""
        known = inputs.values > len(inputs.values) * torch.finfo(self.R.dtype).eps * inputs.values.max()
        scale = torch.where(known, torch.where(known, inputs.values, 1.0).rsqrt(), 0.0)
        return (self.cross @ inputs.vectors * scale).square()


CONDITIONAL = "The conditional covariance of the outputs"


@dataclass(frozen=True)
class OutputRegression:
    """The regression of n outputs R (n, r) on inputs with the spectrum k = U diag(e) Uᵀ; an operator makes it definite.

    Parameters
    ----------
    inputs : Spectrum
        Of k(X); U may have fewer columns than rows.
    R : tensor (n, r)
        Coordinates of the outputs.
    unexplained : Unexplained, optional
        Where inputs without outputs take part in the conditional covariance.
    held : HeldOutputs, optional
        Whom to leave out, if not the rows.
    anchored : bool, default=False
        Are predictions sums of the n outputs? Then nobody asks for the eigenvectors of an operator in coordinates.
    """

    inputs: Spectrum
    R: Tensor
    unexplained: Unexplained | None = None
    held: HeldOutputs | None = None
    anchored: bool = False

    @property
    def is_whole(self) -> bool:
        """Has U as many columns as rows?"""
        return self.inputs.vectors.shape[0] == self.inputs.vectors.shape[1]

    @cached_property
    def rotated(self) -> Tensor:
        """Uᵀ R, (m, r)."""
        return rotated_factor(self.inputs.vectors, self.R)

    @cached_property
    def outside(self) -> Tensor | None:
        """R − U Uᵀ R, None where that is zero."""
        return None if self.is_whole else self.R - self.inputs.vectors @ self.rotated

    # -- operators ----------------------------------------------------------------------------------------------------
    def identity(self) -> DiagonalRegression:
        """A = I: the outputs as they are (Cortes et al., 2005; input-output kernel regression)."""
        return DiagonalRegression(self, self.R.new_ones(1), None)

    def covariance(self) -> DiagonalRegression:
        """A = (1/n) Σ φ(y_i) ⊗ φ(y_i), with a_j q_j = (1/n) Σ_i z_ij φ(y_i)."""
        matrix = self_product(self.R, mirrored=False).div_(len(self.R))
        spectrum = eigh(matrix, name="The covariance of the outputs", overwrite=True)
        return DiagonalRegression(self, spectrum.values, spectrum.vectors, lambda own: own.Z / len(self.R))

    def conditional_covariance(self, epsilon: float) -> DiagonalRegression:
        """A = (1/n) Σ_ij P_ij φ(y_i) ⊗ φ(y_j), a_j q_j = (1/n) Σ_i [P z_j]_i φ(y_i)."""
        n, unexplained = len(self.R), self.unexplained
        if unexplained is not None:  # inputs without outputs: what is negative of A is estimation error
            spectrum = clipped_spectrum(self.R.mT @ unexplained.apply(self.R, epsilon) / n)
            positive = (spectrum.values > 0).to(self.R)
            return DiagonalRegression(
                self,
                spectrum.values,
                spectrum.vectors,
                lambda own: unexplained.apply(own.Z, epsilon) * (positive / n),
            )
        p = (n * epsilon / (self.inputs.values + n * epsilon))[:, None]

        def expand(own: DiagonalRegression) -> Tensor:
            inside = self.inputs.vectors @ (p * own.rotated)
            return (inside if own.outside is None else inside.add_(own.outside)).div_(n)

        B = p.sqrt() * self.rotated
        if self.anchored and self.is_whole and B.shape[0] == B.shape[1]:
            # B Bᵀ has the same eigenvalues, and its eigenvectors V are B Q / √(na): a product less.
            spectrum = eigh(self_product(B.mT, mirrored=False).div_(n), name=CONDITIONAL, overwrite=True)
            rotated = (spectrum.vectors * (n * spectrum.values).sqrt()).div_(p.sqrt())
            return RotatedRegression(self, spectrum.values, None, expand, rotated)
        matrix = self_product(B, mirrored=False)
        if self.outside is not None:
            matrix += self_product(self.outside, mirrored=False)
        spectrum = eigh(matrix.div_(n), name=CONDITIONAL, overwrite=True)
        return DiagonalRegression(self, spectrum.values, spectrum.vectors, expand)

    def components(self) -> DiagonalRegression:
        """A = I in the basis of principal components, the leading ones first; ``leading`` keeps some of them.

        Those whose variance is rounding error are left out: their directions are, too.
        """
        spectrum = eigh(
            self_product(self.R, mirrored=False), name="The covariance of the outputs", overwrite=True
        )
        values = spectrum.values.flip(0)
        known = values > max(self.R.shape) * torch.finfo(values.dtype).eps * values[0]
        known[0] = True
        values, vectors = values[known], spectrum.vectors.flip(1)[:, known]
        inverse = torch.where(values > 0, 1.0 / torch.where(values > 0, values, 1.0), 0.0)
        return DiagonalRegression(
            self, self.R.new_ones(1), vectors, lambda own: own.Z * inverse[: own.Z.shape[1]]
        )

    def under(self, operator: Operator) -> DiagonalRegression:
        """A given operator on the coordinates themselves."""
        spectrum = operator.spectrum(self.R.shape[1], self.R)
        return DiagonalRegression(self, spectrum.values, spectrum.vectors)


@dataclass(frozen=True)
class DiagonalRegression:
    """A regression in the coordinates Z = R Q (n, s) where the operator is diag(a).

    Parameters
    ----------
    regression : OutputRegression
    values : tensor (s,) or (1,)
        a; one value stands for all coordinates.
    vectors : tensor (r, s) or None
        Q; None is the identity.
    expand : callable, optional
        Makes the E (n, s) with a_j q_j = Σ_i E_ij φ(y_i): the operator's eigenvectors as sums of outputs.
    """

    regression: OutputRegression
    values: Tensor
    vectors: Tensor | None
    expand: Callable[[DiagonalRegression], Tensor] | None = None

    @cached_property
    def Z(self) -> Tensor:  # noqa: N802
        """The coordinates."""
        return self.regression.R if self.vectors is None else self.regression.R @ self.vectors

    @cached_property
    def rotated(self) -> Tensor:
        """Uᵀ Z."""
        inner = self.regression.rotated
        return inner if self.vectors is None else inner @ self.vectors

    @cached_property
    def outside(self) -> Tensor | None:
        """Z − U Uᵀ Z, None where that is zero."""
        inner = self.regression.outside
        return inner if inner is None or self.vectors is None else inner @ self.vectors

    @cached_property
    def squares(self) -> Tensor:
        """U², (n, m); of samples that are held, what takes its place."""
        held, inputs = self.regression.held, self.regression.inputs
        return inputs.vectors.square() if held is None else held.squares(inputs)

    @cached_property
    def missed(self) -> Tensor:
        """Σ_i ‖φ(y_i)‖² in the directions that the operator sends to zero, or that were left out."""
        total = self.regression.R.square().sum()
        return (total - self.variances.sum()).clamp(min=0.0)

    @cached_property
    def variances(self) -> Tensor:
        """Σ_i z_ij² (s,)."""
        inside = self.rotated.square().sum(0)
        return inside if self.outside is None else inside + self.outside.square().sum(0)

    def leading(self, n_components: int) -> DiagonalRegression:
        """With the first coordinates only."""
        assert self.vectors is not None
        return DiagonalRegression(self.regression, self.values, self.vectors[:, :n_components], self.expand)

    def _filters(self, alpha: float) -> Tensor:
        """1 / (a_j e_i + nα), (m, s) or (m, 1)."""
        products = self.regression.inputs.values[:, None] * self.values
        return products.add_(len(self.regression.R) * alpha).reciprocal_()

    def coefficients(self, alpha: float) -> Tensor:
        """The c_j as columns, (n, s)."""
        filters = self._filters(alpha)
        weighted = (
            filters.mul_(self.rotated) if filters.shape == self.rotated.shape else filters * self.rotated
        )
        C = self.regression.inputs.vectors @ weighted
        return C if self.outside is None else C.add_(self.outside, alpha=1.0 / (len(C) * alpha))

    def residuals(self, alpha: float) -> Tensor:
        """The coordinates (n, s) of φ(y_i) − g₋ᵢ(x_i): g₋ᵢ is the fit without i, with the same operator and nα."""
        if (held := self.regression.held) is not None:
            fitted = held.cross @ self.coefficients(alpha) * self.values
            leverage = held.ratio * (self.squares @ (self._filters(alpha) * self.values))
            return (self._left_out - fitted) / (1.0 - leverage).clamp(min=torch.finfo(fitted.dtype).eps)
        shift = len(self.regression.R) * alpha
        diagonals = self.squares @ self._filters(alpha)
        if self.outside is not None:
            diagonals += (1.0 - self.squares.sum(1, keepdim=True)) / shift
        return self.coefficients(alpha).div_(diagonals)

    def errors(self, alpha: float) -> Tensor:
        """Σ_i of the squared leave-one-out residuals of each coordinate, (s,)."""
        residuals = self.residuals(alpha)
        return residuals.square_().sum(0) * (len(self.regression.R) / len(residuals))

    @property
    def _left_out(self) -> Tensor:
        """The coordinates of the samples that are left out: of all, or of those that are held."""
        held = self.regression.held
        if held is None:
            return self.Z
        return held.R if self.vectors is None else held.R @ self.vectors

    # -- the fitted function ------------------------------------------------------------------------------------------
    def coordinates(self, alpha: float) -> Tensor:
        """The Θ (n, r) of g(x) = Σ_i k(x, x_i) Θ_i in the coordinates of R."""
        C = self.coefficients(alpha) * self.values
        return C if self.vectors is None else C @ self.vectors.mT

    def dual(self, alpha: float) -> Tensor:
        """The D (n, n) of g(x) = Σ_ij k(x, x_i) D_ij φ(y_j)."""
        if self.vectors is None and self.expand is None:  # (k + nα)⁻¹
            U, shift = self.regression.inputs.vectors, len(self.regression.R) * alpha
            g = 1.0 / (self.regression.inputs.values + shift)
            if self.regression.is_whole:
                return (U * g) @ U.mT
            inverse = (U * (g - 1.0 / shift)) @ U.mT
            inverse.diagonal().add_(1.0 / shift)
            return inverse
        assert self.expand is not None  # other operators are fitted in coordinates
        return self.coefficients(alpha) @ self.expand(self).mT

    def loo_coordinates(self, alpha: float) -> Tensor:
        """The g₋ᵢ(x_i) (n, r) in the coordinates of R."""
        predictions = self._left_out - self.residuals(alpha)
        return predictions if self.vectors is None else predictions @ self.vectors.mT

    def loo_dual(self, alpha: float) -> Tensor:
        """The weights (n, n) of g₋ᵢ(x_i) = Σ_j w_ij φ(y_j); directions of which the operator knows next to nothing are
        left out."""
        if self.vectors is None and self.expand is None:
            inverse = self.dual(alpha)
            weights = inverse / -inverse.diagonal()[:, None]
            weights.diagonal().zero_()
            return weights
        assert self.expand is not None
        known = self.values > torch.finfo(self.values.dtype).eps ** 0.5 * self.values.max()
        scale = torch.where(known, 1.0 / torch.where(known, self.values, 1.0), 0.0)
        return ((self.Z - self.residuals(alpha)) * scale) @ self.expand(self).mT


@dataclass(frozen=True)
class RotatedRegression(DiagonalRegression):
    """A regression whose Uᵀ Z is known without Q, for a U with as many columns as rows."""

    known: Tensor | None = None

    @cached_property
    def rotated(self) -> Tensor:
        """Uᵀ Z."""
        assert self.known is not None
        return self.known

    @cached_property
    def Z(self) -> Tensor:  # noqa: N802
        """The coordinates."""
        return self.regression.inputs.vectors @ self.rotated
