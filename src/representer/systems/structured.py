"""Ridge regression of structured outputs with the kernel k ⊗ A, in coordinates of the outputs where A is diagonal.

The outputs φ(y_i) are rows of R (n, r): any factor L = R Rᵀ of their Gram matrix is an isometry of their span. In it A
is an r × r matrix Q diag(a) Qᵀ, and the (n·r) × (n·r) system k ⊗ A + nα comes apart into one ridge regression for each
coordinate z_j = R q_j, with the matrix a_j k + nα. With k = U diag(e) Uᵀ they all cost products with U, for every α:

    c_j = (a_j k + nα)⁻¹ z_j,    g(x) = Σ_j a_j (k_xᵀ c_j) q_j,    leave-one-out residuals c_ij / [(a_j k + nα)⁻¹]_ii .

So equation (8) of Kadri et al. takes O(n³) time and O(n²) memory, and its exact leave-one-out error two products of
O(n² r) for each α: without sample i the coordinates still come apart, for A stays. A group S of samples that is left
out together has the residuals ([(a_j k + nα)⁻¹]_SS)⁻¹ c_Sj. Weights w_i of the samples multiply the rows of k, its
columns and the rows of R by √w_i, and n is then their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from representer.linalg import Spectrum, eigh
from representer.linalg.memory import row_blocks
from representer.operators import ConditionalCovariance, Covariance, Operator, PrincipalComponents
from representer.operators.outputs import clipped_spectrum
from representer.systems.groups import Groups
from representer.systems.sums import NormalRidge, NormalSums, symmetric

CONDITIONAL = "The conditional covariance of the outputs"


@dataclass(frozen=True)
class Unexplained:
    """P = I − (N/n) U diag(e / (e + Nε)) Uᵀ: (1/n) Rᵀ P R is the conditional covariance C_YY − C_YX (C_XX + ε)⁻¹ C_XY.

    The C_XX of inputs of total weight N has the spectrum (U, e); those with outputs have the total weight n, and U has
    their rows. For N = n, P = nε(k + nε)⁻¹.
    """

    inputs: Spectrum
    total: float
    weight: float

    def apply(self, Z: Tensor, epsilon: float) -> Tensor:
        """P Z."""
        U, shift = self.inputs.vectors, self.total * epsilon
        share = (self.total / self.weight) * self.inputs.values / (self.inputs.values + shift)
        return Z - U @ (share[:, None] * (U.mT @ Z))


@dataclass(frozen=True)
class HeldOutputs:
    """Samples to leave out where the rows of a regression stand for all samples by their second moments (``standing``).

    Parameters
    ----------
    cross : tensor (h, N)
        k between h of the samples and the N rows.
    R : tensor (h, r)
        The outputs of these samples.
    weights : tensor (h,) or None for ones
        The weights of these samples.
    """

    cross: Tensor
    R: Tensor
    weights: Tensor | None = None

    def coordinates(self, inputs: Spectrum) -> Tensor:
        """The samples' features in the eigenvectors of the features' covariance, (h, m), times √w."""
        known = inputs.values > len(inputs.values) * torch.finfo(self.R.dtype).eps * inputs.values.max()
        scale = torch.where(known, torch.where(known, inputs.values, 1.0).rsqrt(), 0.0)
        features = self.cross @ inputs.vectors * scale
        return features if self.weights is None else features * self.weights.sqrt()[:, None]


@dataclass(frozen=True)
class OutputRegression:
    """The regression of n outputs R (n, r) on inputs with the spectrum k = U diag(e) Uᵀ; an operator makes it definite.

    Parameters
    ----------
    inputs : Spectrum
        Of k(X), rows and columns times √w; U may have fewer columns than rows.
    R : tensor (n, r)
        Coordinates of the outputs, rows times √w.
    weight : float
        The sum of the weights w, the number of samples if all are 1.
    unexplained : Unexplained, optional
        Where inputs without outputs take part in the conditional covariance.
    held : HeldOutputs, optional
        The samples that can be left out, if these are not the rows.
    sums : NormalSums, optional
        What the rows stand for, if they are not the samples: the fit is computed from it, with more digits.
    anchored : bool, default=False
        Are predictions sums of the n outputs? Then nobody asks for the eigenvectors of an operator in coordinates.
    """

    inputs: Spectrum
    R: Tensor
    weight: float
    unexplained: Unexplained | None = None
    held: HeldOutputs | None = None
    sums: NormalSums | None = None
    anchored: bool = False

    @property
    def is_whole(self) -> bool:
        """Has U as many columns as rows?"""
        return self.inputs.vectors.shape[0] == self.inputs.vectors.shape[1]

    @cached_property
    def rotated(self) -> Tensor:
        """Uᵀ R, (m, r)."""
        return self.inputs.vectors.mT @ self.R

    @cached_property
    def outside(self) -> Tensor | None:
        """R − U Uᵀ R, None where that is zero."""
        return None if self.is_whole else self.R - self.inputs.vectors @ self.rotated

    # -- operators ----------------------------------------------------------------------------------------------------
    def under(self, operator: Operator | None) -> DiagonalRegression:
        """The regression with an operator: None is the identity, and numbers are given for what one chooses."""
        if operator is None:
            return self.identity()
        if isinstance(operator, Covariance):
            return self.covariance()
        if isinstance(operator, ConditionalCovariance):
            return self.conditional_covariance(float(operator.epsilon))
        if isinstance(operator, PrincipalComponents):
            components = self.components()
            return components if operator.n_components == "auto" else components.leading(operator.checked())
        spectrum = operator.spectrum(self.R.shape[1], self.R)
        return DiagonalRegression(self, spectrum.values, spectrum.vectors)

    def identity(self) -> DiagonalRegression:
        """A = I: the outputs as they are (Cortes et al., 2005; input-output kernel regression)."""
        return DiagonalRegression(self, self.R.new_ones(1), None)

    def covariance(self) -> DiagonalRegression:
        """A = (1/n) Σ φ(y_i) ⊗ φ(y_i), with a_j q_j = (1/n) Σ_i z_ij φ(y_i)."""
        matrix = (self.R.mT @ self.R).div_(self.weight)
        spectrum = eigh(matrix, name="The covariance of the outputs", overwrite=True)
        return DiagonalRegression(self, spectrum.values, spectrum.vectors, lambda own: own.Z / self.weight)

    def conditional_covariance(self, epsilon: float) -> DiagonalRegression:
        """A = (1/n) Σ_ij P_ij φ(y_i) ⊗ φ(y_j), a_j q_j = (1/n) Σ_i [P z_j]_i φ(y_i)."""
        n, unexplained = self.weight, self.unexplained
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
            spectrum = eigh((B @ B.mT).div_(n), name=CONDITIONAL, overwrite=True)
            rotated = (spectrum.vectors * (n * spectrum.values).sqrt()).div_(p.sqrt())
            return DiagonalRegression(self, spectrum.values, None, expand, rotated)
        matrix = B.mT @ B
        if self.outside is not None:
            matrix += self.outside.mT @ self.outside
        spectrum = eigh(matrix.div_(n), name=CONDITIONAL, overwrite=True)
        return DiagonalRegression(self, spectrum.values, spectrum.vectors, expand)

    def components(self) -> DiagonalRegression:
        """A = I in the basis of principal components, the leading ones first; ``leading`` keeps some of them.

        Those whose variance is rounding error are left out: their directions are, too.
        """
        spectrum = eigh((self.R.mT @ self.R), name="The covariance of the outputs", overwrite=True)
        values = spectrum.values.flip(0)
        known = values > max(self.R.shape) * torch.finfo(values.dtype).eps * values[0]
        known[0] = True
        values, vectors = values[known], spectrum.vectors.flip(1)[:, known]
        inverse = torch.where(values > 0, 1.0 / torch.where(values > 0, values, 1.0), 0.0)
        return DiagonalRegression(
            self, self.R.new_ones(1), vectors, lambda own: own.Z * inverse[: own.Z.shape[1]]
        )


@dataclass(frozen=True)
class DiagonalRegression:
    """A regression in the coordinates Z = R Q (n, s) where the operator is diag(a): the systems a_j k + nα.

    Parameters
    ----------
    regression : OutputRegression
        The regression without its operator.
    values : tensor (s,) or (1,)
        The eigenvalues a; one value stands for all coordinates.
    vectors : tensor (r, s) or None
        The eigenvectors Q; None is the identity, or that ``turned`` is known in their place.
    expand : callable, optional
        Makes the E (n, s) with a_j q_j = Σ_i E_ij φ(y_i): the operator's eigenvectors as sums of outputs.
    turned : tensor (m, s), optional
        Uᵀ Z, where it is known without Q; U is then square.
    """

    regression: OutputRegression
    values: Tensor
    vectors: Tensor | None
    expand: Callable[[DiagonalRegression], Tensor] | None = None
    turned: Tensor | None = None

    @property
    def is_identity(self) -> bool:
        """Is the operator the identity, in the coordinates of the outputs themselves?"""
        return self.vectors is None and self.expand is None

    @cached_property
    def Z(self) -> Tensor:  # noqa: N802
        """The coordinates."""
        if self.turned is not None:
            return self.regression.inputs.vectors @ self.turned
        return self.regression.R if self.vectors is None else self.regression.R @ self.vectors

    @cached_property
    def rotated(self) -> Tensor:
        """Uᵀ Z."""
        if self.turned is not None:
            return self.turned
        inner = self.regression.rotated
        return inner if self.vectors is None else inner @ self.vectors

    @cached_property
    def outside(self) -> Tensor | None:
        """Z − U Uᵀ Z, None where that is zero."""
        inner = self.regression.outside
        return inner if inner is None or self.vectors is None else inner @ self.vectors

    @cached_property
    def _left(self) -> Tensor:
        """U, or what takes its place for samples that are held: the coordinates of those that can be left out."""
        held, inputs = self.regression.held, self.regression.inputs
        return inputs.vectors if held is None else held.coordinates(inputs)

    @cached_property
    def _squares(self) -> Tensor:
        return self._left.square()

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
        """The regression with the first coordinates only."""
        assert self.vectors is not None
        return DiagonalRegression(self.regression, self.values, self.vectors[:, :n_components], self.expand)

    # -- the systems --------------------------------------------------------------------------------------------------
    def _filters(self, alpha: float) -> Tensor:
        """1 / (a_j e_i + nα), (m, s) or (m, 1)."""
        products = self.regression.inputs.values[:, None] * self.values
        return products.add_(self.regression.weight * alpha).reciprocal_()

    def coefficients(self, alpha: float) -> Tensor:
        """The c_j as columns, (n, s)."""
        filters = self._filters(alpha)
        weighted = (
            filters.mul_(self.rotated) if filters.shape == self.rotated.shape else filters * self.rotated
        )
        C = self.regression.inputs.vectors @ weighted
        shift = self.regression.weight * alpha
        return C if self.outside is None else C.add_(self.outside, alpha=1.0 / shift)

    def residual(self, alpha: float) -> float:
        """The backward error ‖k C diag(a) + nα C − Z‖ / ‖Z‖ of the coefficients."""
        C, (U, e) = self.coefficients(alpha), (self.regression.inputs.vectors, self.regression.inputs.values)
        missing = (U @ (e[:, None] * (U.mT @ C))) * self.values + self.regression.weight * alpha * C - self.Z
        return float(missing.norm() / self.Z.norm().clamp(min=torch.finfo(C.dtype).tiny))

    def left_out(self, alpha: float, groups: Tensor | None = None) -> Tensor:
        """The coordinates (n, s) of √w_i (φ(y_i) − g₋(x_i)): g₋ is the fit without i, or without the group of i.

        The operator and nα stay. Rows are those of the regression, or the samples that are held.
        """
        held, filters = self.regression.held, self._filters(alpha)
        if held is None:
            right, sign, diagonal = self.coefficients(alpha), 1.0, None
            if self.outside is not None:
                diagonal = 1.0 / (self.regression.weight * alpha)
                filters = filters - diagonal
        else:
            right, sign, diagonal = held.R, -1.0, 1.0
            right = right if self.vectors is None else right @ self.vectors
            right = right - held.cross @ self.coefficients(alpha) * self.values
            right = right if held.weights is None else right * held.weights.sqrt()[:, None]
            filters = filters * self.values
        if groups is not None:
            return _group_residuals(self._left, sign * filters, diagonal, right, groups)
        own = self._squares @ filters
        if held is not None:
            return right / (1.0 - own).clamp(min=torch.finfo(own.dtype).eps)
        return right.div_(own if diagonal is None else own + diagonal)

    def errors(self, alpha: float, groups: Tensor | None = None) -> Tensor:
        """Σ_i w_i times the squared leave-one-out residuals of each coordinate, (s,)."""
        held = self.regression.held
        squares = self.left_out(alpha, groups).square_().sum(0)
        if held is None:
            return squares
        weight = len(held.R) if held.weights is None else float(held.weights.sum())
        return squares * (self.regression.weight / weight)

    def path(self, alphas: Tensor, groups: Tensor | None = None) -> Tensor:
        """The mean squared leave-one-out errors of many values of alpha, (a,)."""
        totals = [self.errors(alpha, groups).sum() for alpha in alphas.tolist()]
        return (torch.stack(totals) + self.missed) / self.regression.weight

    # -- the fitted function ------------------------------------------------------------------------------------------
    def coordinates(self, alpha: float) -> Tensor:
        """The Θ of g(x) = Σ_i k(x, x_i) Θ_i (n, r) in the coordinates of R; from sums, of g(x) = φ(x)ᵀΘ (m, r)."""
        sums, Q = self.regression.sums, self.vectors
        if sums is not None:
            scales = self.values.double().expand(sums.cross.shape[1] if Q is None else Q.shape[1])
            ridge = NormalRidge(sums, scales, None if Q is None else Q.double())
            return ridge.weighted_coefficients(alpha).to(self.values.dtype)
        C = self.coefficients(alpha) * self.values
        return C if Q is None else C @ Q.mT

    def dual(self, alpha: float) -> Tensor:
        """The D (n, n) of g(x) = Σ_ij k(x, x_i) D_ij φ(y_j), between rows times √w."""
        if self.is_identity:  # (k + nα)⁻¹
            U, shift = self.regression.inputs.vectors, self.regression.weight * alpha
            g = 1.0 / (self.regression.inputs.values + shift)
            if self.regression.is_whole:
                return (U * g) @ U.mT
            inverse = (U * (g - 1.0 / shift)) @ U.mT
            inverse.diagonal().add_(1.0 / shift)
            return inverse
        assert self.expand is not None  # other operators are fitted in coordinates
        return self.coefficients(alpha) @ self.expand(self).mT

    def left_out_coordinates(self, alpha: float, groups: Tensor | None = None) -> Tensor:
        """The √w_i g₋(x_i) (n, r) in the coordinates of R, of the samples that are held or of all."""
        residuals, held = self.left_out(alpha, groups), self.regression.held
        if held is None:
            predictions = self.Z - residuals
        else:
            R = held.R if held.weights is None else held.R * held.weights.sqrt()[:, None]
            predictions = (R if self.vectors is None else R @ self.vectors) - residuals
        return predictions if self.vectors is None else predictions @ self.vectors.mT

    def left_out_dual(self, alpha: float, groups: Tensor | None = None) -> Tensor:
        """The weights (n, n) of √w_i g₋(x_i) = Σ_j W_ij √w_j φ(y_j).

        Directions of which the operator knows next to nothing are left out.
        """
        if self.is_identity:
            inverse = self.dual(alpha)
            weights = inverse / -inverse.diagonal()[:, None]
            weights.diagonal().zero_()
            for rows in [] if groups is None else members(groups):
                weights[rows] = -torch.linalg.solve(inverse[rows[:, None], rows], inverse[rows])
                weights[rows[:, None], rows] = 0.0
            return weights
        assert self.expand is not None
        known = self.values > torch.finfo(self.values.dtype).eps ** 0.5 * self.values.max()
        scale = torch.where(known, 1.0 / torch.where(known, self.values, 1.0), 0.0)
        return ((self.Z - self.left_out(alpha, groups)) * scale) @ self.expand(self).mT


def members(groups: Tensor) -> Iterator[Tensor]:
    """The rows of each group."""
    for stack in Groups.of(groups.cpu().numpy(), groups.device).members:
        yield from stack


def _group_residuals(
    U: Tensor, filters: Tensor, diagonal: float | None, right: Tensor, groups: Tensor
) -> Tensor:
    """(U_S diag(f_j) U_Sᵀ + d)⁻¹ r_Sj for every group S of rows and every coordinate j."""
    residuals = torch.empty_like(right)
    for rows in members(groups):
        own = U[rows]
        per_coordinate = len(rows) * (own.shape[1] + 2 * len(rows)) * own.element_size()
        for columns in row_blocks(filters.shape[1], per_coordinate):
            blocks = (own * filters.mT[columns, None, :]) @ own.mT
            if diagonal is not None:
                blocks.diagonal(dim1=-2, dim2=-1).add_(diagonal)
            if filters.shape[1] == 1:
                residuals[rows] = torch.linalg.solve(blocks[0], right[rows])
            else:
                part = right[rows][:, columns].mT[:, :, None]
                residuals[rows, columns] = torch.linalg.solve(blocks, part)[:, :, 0].mT
    return residuals


# -- sums -------------------------------------------------------------------------------------------------------------
def summed_regression(
    sums: NormalSums, mean: Tensor, *, dtype: torch.dtype
) -> tuple[OutputRegression, Tensor]:
    """The regression whose few rows stand for all samples by their sums, and the features B (N, m) of its rows.

    The sums of products are those of all samples: BᵀB = S, BᵀR and RᵀR, with the targets taken from ``mean``. A ridge
    regression of R on B is that of all samples, for every alpha and operator; only who is left out is not seen.
    """
    cross = sums.cross - torch.outer(sums.feature_sum, mean)
    squares = sums.squares - sums.weight * torch.outer(mean, mean)
    S = eigh(
        symmetric(sums.gram), name="The inner products of the features", overwrite=True, dtype=torch.float32
    )
    eps = torch.finfo(S.values.dtype).eps
    known = S.values > len(S.values) * eps * S.values.max()
    vectors, root = S.vectors[:, known], S.values[known].sqrt()
    inside = (vectors.mT @ cross) / root[:, None]
    rest = squares - inside.mT @ inside  # what no function of the features explains
    values, directions = torch.linalg.eigh(0.5 * (rest + rest.mT))
    beyond = values > len(values) * eps * squares.diagonal().max()
    outside = (directions[:, beyond] * values[beyond].sqrt()).mT
    B = torch.cat([root[:, None] * vectors.mT, vectors.new_zeros(len(outside), len(vectors))]).to(dtype)
    spectrum = Spectrum(
        torch.eye(len(B), len(root), dtype=dtype, device=B.device), B[: len(root)].square().sum(1)
    )
    R = torch.cat([inside, outside]).to(dtype)
    return OutputRegression(spectrum, R, sums.weight, sums=replace(sums, cross=cross)), B
