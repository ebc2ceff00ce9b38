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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from representer.approximation import FeatureMap
from representer.linalg import Eigenpairs, eigh, factorize, shifted, spectrum_of_factor
from representer.operators import ConditionalCovariance, Covariance, Operator, PrincipalComponents, clipped_spectrum
from representer.samples import Block
from representer.systems.base import group_members, group_residuals
from representer.systems.sums import NormalRidge, NormalSums, symmetric

CONDITIONAL = "The conditional covariance of the outputs"


# -- both sides -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RegressionInputs:
    """k at N inputs, of which n have an output."""

    matrix: Tensor  # k, (N, N); or, by_factor, B (N, m) with k = B Bᵀ
    by_factor: bool
    labelled: Tensor | None = None  # the inputs that have an output; None: all
    weights: Tensor | None = None  # of the N inputs; None: all 1
    features: FeatureMap | None = None  # of an approximate fit: what makes B
    stayed: Tensor | None = None  # of a Gram matrix that was repaired: the eigenvectors that have stayed

    def known(self, values: Tensor) -> Tensor:
        """The rows of the inputs that have an output."""
        return values if self.labelled is None else values[self.labelled]

    @cached_property
    def shares(self) -> Tensor:
        """The weights (n,) of the inputs that have an output, over their sum."""
        ones = self.matrix.new_ones(len(self.matrix))
        return self.known(ones if self.weights is None else self.weights) / self.weight

    @cached_property
    def root(self) -> Tensor | None:
        """√w of the inputs that have an output; None where all weights are 1."""
        return None if self.weights is None else self.known(self.weights).sqrt()

    @cached_property
    def weight(self) -> float:
        """Σ w of the inputs that have an output."""
        if self.weights is None:
            return float(len(self.matrix if self.labelled is None else self.labelled))
        return float(self.known(self.weights).sum())

    @cached_property
    def spectrum(self) -> Eigenpairs:
        """The spectrum of √w k √w at the inputs that have an output."""
        return self._spectrum(self.labelled, self.root)

    def _spectrum(self, rows: Tensor | None, root: Tensor | None) -> Eigenpairs:
        if self.by_factor:
            return spectrum_of_factor(times(self.matrix if rows is None else self.matrix[rows], root))
        gram = self._gram(rows, root)
        return eigh(gram.clone() if gram is self.matrix else gram, name="The Gram matrix", overwrite=True)

    def _gram(self, rows: Tensor | None, root: Tensor | None) -> Tensor:
        gram = self.matrix if rows is None else self.matrix[rows[:, None], rows]
        return gram if root is None else gram * root[:, None] * root

    @cached_property
    def everywhere(self) -> tuple[Eigenpairs, float] | None:
        """(U, e) of all inputs, U at those that have an output, and Σ w of all; None if all that count have one."""
        w, rows = self.weights, self.labelled
        total = float(len(self.matrix) if w is None else w.sum())
        if rows is None or total <= self.weight:
            return None
        whole = self._spectrum(None, None if w is None else w.sqrt())
        return Eigenpairs(whole.vectors[rows], whole.values), total

    def unexplained(self, Z: Tensor, epsilon: float) -> Tensor:
        """P Z with P = I − (N/n) U diag(e / (e + Nε)) Uᵀ; N is the weight of all inputs, n that of those with outputs.

        (1/n) Rᵀ P R is the conditional covariance C_YY − C_YX (C_XX + ε)⁻¹ C_XY. For N = n, P = nε(k + nε)⁻¹.
        """
        whole, N = self.everywhere or (self.spectrum, self.weight)
        U, e = whole.vectors, whole.values
        return Z - U @ (((N / self.weight) * e / (e + N * epsilon))[:, None] * (U.mT @ Z))

    @property
    def scale(self) -> float:
        """The mean k(x, x): the scale of alpha."""
        diagonal = self.matrix.square().sum(1) if self.by_factor else self.matrix.diagonal()
        w = torch.ones_like(diagonal) if self.weights is None else self.weights
        return float((diagonal @ w) / w.sum())

    def place(self, coefficients: Tensor) -> Tensor:
        """Coefficients of √w_i k(·, x_i), x_i with an output, as those of all k(·, x_i), or of the features."""
        coefficients = times(coefficients, self.root)
        if self.features is not None:
            return self.known(self.matrix).mT @ coefficients
        if self.labelled is not None:
            everywhere = coefficients.new_zeros(len(self.matrix), coefficients.shape[1])
            everywhere[self.labelled] = coefficients
            coefficients = everywhere
        return coefficients if self.stayed is None else self.stayed @ (self.stayed.mT @ coefficients)

    def solve(self, shift: float, right: Tensor | None = None) -> Tensor | None:
        """(√w k √w + shift)⁻¹ right, the inverse without ``right``; None where the spectrum does it for less."""
        if self.by_factor or "spectrum" in vars(self):
            return None
        gram = self._gram(self.labelled, self.root)
        cholesky = factorize(lambda: shifted(gram, shift), name="The Gram matrix plus n·alpha")
        return cholesky.inverse() if right is None else cholesky.solve(right)


def times(rows: Tensor, root: Tensor | None) -> Tensor:
    """Rows times √w."""
    return rows if root is None else rows * root[:, None]


@dataclass(frozen=True)
class OutputCoordinates:
    """The n outputs as rows R (n, r) of coordinates, L = R Rᵀ, and what predictions are sums of.

    Without ``features`` and not ``on_axes``, predictions are sums of the n outputs: they are ``anchored``.
    """

    make: Callable[[], tuple[Tensor, Tensor | None]]  # R, and the eigenvectors that have stayed if L was repaired
    on_axes: bool  # are coordinates those of vectors? Then predictions are vectors
    features: FeatureMap | None = None  # those of landmarks that are the coordinates

    @property
    def anchored(self) -> bool:
        """Are predictions sums of the n outputs?"""
        return not self.on_axes and self.features is None

    @cached_property
    def made(self) -> tuple[Tensor, Tensor | None]:
        """R, and the eigenvectors that have stayed if L was repaired."""
        return self.make()

    def weigh(self, coordinates: Tensor) -> Tensor:
        """Coordinates (p, r) as weights of the axes or the landmarks."""
        return coordinates if self.features is None else self.features.coefficients(coordinates.mT).mT


# -- the regression ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class OutputRegression:
    """The regression of n outputs R (n, r) on inputs with the spectrum k = U diag(e) Uᵀ; an operator makes it definite.

    Rows and columns of k and rows of R are multiplied by √w; U may have fewer columns than rows. In a fit by sums, rows
    stand for all samples (see ``summed_regression``), and the samples that can be left out are ``held``: their features
    in the eigenvectors of the features' covariance, their outputs in coordinates, and their weights.
    """

    inputs: RegressionInputs
    outputs: OutputCoordinates
    centred: bool = False  # is the mean output taken away from R?
    groups: Tensor | None = None  # what is left out together, of the samples that can be left out
    sums: NormalSums | None = None  # what the rows stand for: the fit is computed from it, with more digits
    held: Block | None = None

    @cached_property
    def mean(self) -> Tensor | None:
        """The mean output (r,) in coordinates, where it is taken away."""
        if not self.centred:
            return None
        if self.sums is not None:
            return self.sums.target_sum / self.sums.weight
        R, uniform = self.outputs.made[0], self.inputs.weights is None
        return R.mean(0) if uniform else self.inputs.shares @ R

    @cached_property
    def R(self) -> Tensor:  # noqa: N802
        """The coordinates, from their mean if that is taken away, rows times √w."""
        R = self.outputs.made[0]
        if self.sums is not None:
            return R
        return times(R if self.mean is None else R - self.mean, self.inputs.root)

    @property
    def weight(self) -> float:
        """The sum of the weights w, the number of samples if all are 1."""
        return self.inputs.weight if self.sums is None else self.sums.weight

    @property
    def scale(self) -> float:
        """The mean k(x, x): the scale of alpha."""
        if self.sums is None:
            return self.inputs.scale
        return float(self.sums.gram.diagonal().sum() / self.weight)

    @cached_property
    def rotated(self) -> Tensor:
        """Uᵀ R, (m, r)."""
        return self.inputs.spectrum.vectors.mT @ self.R

    @property
    def is_whole(self) -> bool:
        """Has U as many columns as rows?"""
        return self.inputs.spectrum.vectors.shape[0] == self.inputs.spectrum.vectors.shape[1]

    @cached_property
    def outside(self) -> Tensor | None:
        """R − U Uᵀ R, None where that is zero."""
        return None if self.is_whole else self.R - self.inputs.spectrum.vectors @ self.rotated

    @property
    def left_out_root(self) -> Tensor | None:
        """√w of the samples that can be left out."""
        if self.held is None:
            return self.inputs.root
        return None if self.held.weights is None else self.held.weights.sqrt()

    def own_weights(self, weights: Tensor) -> Tensor:
        """Weights (p, n) of the √w φ(y) from their mean, as weights of the outputs themselves."""
        weights = weights if self.inputs.root is None else weights * self.inputs.root
        if self.centred:
            weights = weights - weights.sum(1, keepdim=True) * self.inputs.shares
        stayed = self.outputs.made[1] if "made" in vars(self.outputs) else None
        return weights if stayed is None else (weights @ stayed) @ stayed.mT

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
        return DiagonalRegression(self, self.inputs.matrix.new_ones(1), None)

    def covariance(self) -> DiagonalRegression:
        """A = (1/n) Σ φ(y_i) ⊗ φ(y_i), with a_j q_j = (1/n) Σ_i z_ij φ(y_i)."""
        matrix = (self.R.mT @ self.R).div_(self.weight)
        spectrum = eigh(matrix, name="The covariance of the outputs", overwrite=True)
        return DiagonalRegression(self, spectrum.values, spectrum.vectors, lambda own: own.Z / self.weight)

    def conditional_covariance(self, epsilon: float) -> DiagonalRegression:
        """A = (1/n) Σ_ij P_ij φ(y_i) ⊗ φ(y_j), a_j q_j = (1/n) Σ_i [P z_j]_i φ(y_i)."""
        n, inputs = self.weight, self.inputs.spectrum
        if self.inputs.everywhere is not None:  # what is negative of A is estimation error
            spectrum = clipped_spectrum(self.R.mT @ self.inputs.unexplained(self.R, epsilon) / n)
            share = (spectrum.values > 0).to(self.R) / n
            return DiagonalRegression(
                self,
                spectrum.values,
                spectrum.vectors,
                lambda own: self.inputs.unexplained(own.Z, epsilon) * share,
            )
        p = (n * epsilon / (inputs.values + n * epsilon))[:, None]

        def expand(own: DiagonalRegression) -> Tensor:
            inside = inputs.vectors @ (p * own.rotated)
            return (inside if own.outside is None else inside.add_(own.outside)).div_(n)

        B = p.sqrt() * self.rotated
        if self.outputs.anchored and self.is_whole and B.shape[0] == B.shape[1]:
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
        spectrum = eigh(self.R.mT @ self.R, name="The covariance of the outputs", overwrite=True)
        values = spectrum.values.flip(0)
        known = values > max(self.R.shape) * torch.finfo(values.dtype).eps * values[0]
        known[0] = True
        values, vectors = values[known], spectrum.vectors.flip(1)[:, known]
        inverse = torch.where(values > 0, 1.0 / torch.where(values > 0, values, 1.0), 0.0)
        return DiagonalRegression(self, self.R.new_ones(1), vectors, lambda own: own.Z * inverse[: own.Z.shape[1]])


@dataclass(frozen=True)
class DiagonalRegression:
    """A regression in the coordinates Z = R Q (n, s) where the operator is diag(a): the systems a_j k + nα."""

    regression: OutputRegression
    values: Tensor  # the eigenvalues a (s,) of the operator; one stands for all coordinates
    vectors: Tensor | None  # its eigenvectors Q (r, s); None is the identity, or that ``turned`` is known
    expand: Callable[[DiagonalRegression], Tensor] | None = None  # makes the E (n, s) with a_j q_j = Σ_i E_ij φ(y_i)
    turned: Tensor | None = None  # Uᵀ Z (m, s), where it is known without Q; U is then square

    @property
    def is_identity(self) -> bool:
        """Is the operator the identity, in the coordinates of the outputs themselves?"""
        return self.vectors is None and self.expand is None

    @cached_property
    def Z(self) -> Tensor:  # noqa: N802
        """The coordinates."""
        if self.turned is not None:
            return self.regression.inputs.spectrum.vectors @ self.turned
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
        products = self.regression.inputs.spectrum.values[:, None] * self.values
        return products.add_(self.regression.weight * alpha).reciprocal_()

    def coefficients(self, alpha: float) -> Tensor:
        """The c_j as columns, (n, s)."""
        shift = self.regression.weight * alpha
        direct = self.regression.inputs.solve(shift, self.regression.R) if self.is_identity else None
        if direct is not None:
            return direct
        filters = self._filters(alpha)
        inside = filters.mul_(self.rotated) if filters.shape == self.rotated.shape else filters * self.rotated
        C = self.regression.inputs.spectrum.vectors @ inside
        return C if self.outside is None else C.add_(self.outside, alpha=1.0 / shift)

    def residual(self, alpha: float) -> float:
        """The backward error ‖k C diag(a) + nα C − Z‖ / ‖Z‖ of the coefficients."""
        C, inputs = self.coefficients(alpha), self.regression.inputs.spectrum
        kC = inputs.vectors @ (inputs.values[:, None] * (inputs.vectors.mT @ C))
        missing = kC * self.values + self.regression.weight * alpha * C - self.Z
        return float(missing.norm() / self.Z.norm().clamp(min=torch.finfo(C.dtype).tiny))

    def left_out(self, alpha: float) -> Tensor:
        """The coordinates (n, s) of √w_i (φ(y_i) − g₋(x_i)): g₋ is the fit without i, or without the group of i.

        The operator and nα stay. Rows are those of the regression, or the samples that are held.
        """
        regression, filters = self.regression, self._filters(alpha)
        held, groups, left = regression.held, regression.groups, regression.inputs.spectrum.vectors
        if held is None:
            right, diagonal = self.coefficients(alpha), None
            if self.outside is not None:
                diagonal = 1.0 / (regression.weight * alpha)
                filters = filters - diagonal
        else:
            left, right, diagonal = times(held.X, regression.left_out_root), self._held, 1.0
            fitted = regression.inputs.spectrum.values.sqrt()[:, None] * filters * self.rotated
            right = right - left @ fitted * self.values
            filters = -filters * self.values
        if groups is not None:
            return group_residuals(left, filters, diagonal, right, groups)
        own = left.square() @ filters
        own = own if diagonal is None else own + diagonal
        return right.div_(own if held is None else own.clamp(min=torch.finfo(own.dtype).eps))

    @property
    def _held(self) -> Tensor:
        """The coordinates (n, s) of √w_i φ(y_i), of the samples that can be left out."""
        held = self.regression.held
        if held is None:
            return self.Z
        R = times(held.Y, self.regression.left_out_root)
        return R if self.vectors is None else R @ self.vectors

    def errors(self, alpha: float) -> Tensor:
        """Σ_i w_i times the squared leave-one-out residuals of each coordinate, (s,)."""
        held, squares = self.regression.held, self.left_out(alpha).square_().sum(0)
        if held is None:
            return squares
        weight = len(held) if held.weights is None else float(held.weights.sum())
        return squares * (self.regression.weight / weight)

    # -- the fitted function ------------------------------------------------------------------------------------------
    def solution(self, alpha: float) -> tuple[Tensor, Tensor | None]:
        """Coefficients and constant of the coordinates of g; where predictions are sums of outputs, of their weights.

        The coefficients are those of the N inputs, or of the features of an approximation.
        """
        regression = self.regression
        if regression.outputs.anchored:
            dual = regression.inputs.place(regression.own_weights(self._dual(alpha)))
            return dual, regression.inputs.shares if regression.centred else None
        if regression.sums is not None:
            theta = self._summed(alpha)
        else:
            C = self.coefficients(alpha) * self.values
            theta = regression.inputs.place(C if self.vectors is None else C @ self.vectors.mT)
        return theta, None if regression.mean is None else regression.mean.to(theta)

    def _summed(self, alpha: float) -> Tensor:
        sums, Q, mean = self.regression.sums, self.vectors, self.regression.mean
        assert sums is not None
        sums = sums if mean is None else replace(sums, cross=sums.cross - torch.outer(sums.feature_sum, mean))
        scales = self.values.double().expand(sums.cross.shape[1] if Q is None else Q.shape[1])
        ridge = NormalRidge(sums, scales, None if Q is None else Q.double())
        return ridge.weighted_coefficients(alpha).to(self.values.dtype)

    def _dual(self, alpha: float) -> Tensor:
        """The D (n, n) of g(x) = Σ_ij k(x, x_i) D_ij φ(y_j), between rows times √w."""
        if not self.is_identity:
            assert self.expand is not None  # other operators are fitted in coordinates
            return self.coefficients(alpha) @ self.expand(self).mT
        shift, inputs = self.regression.weight * alpha, self.regression.inputs
        direct = inputs.solve(shift)  # (k + nα)⁻¹
        if direct is not None:
            return direct
        U, g = inputs.spectrum.vectors, 1.0 / (inputs.spectrum.values + shift)
        if self.regression.is_whole:
            return (U * g) @ U.mT
        inverse = (U * (g - 1.0 / shift)) @ U.mT
        inverse.diagonal().add_(1.0 / shift)
        return inverse

    def left_out_weights(self, alpha: float) -> Tensor:
        """The weights of g₋(x_i) on the outputs, axes or landmarks, of the samples that can be left out."""
        regression = self.regression
        root = None if regression.left_out_root is None else regression.left_out_root.reciprocal()
        if regression.outputs.anchored:
            weights = regression.own_weights(times(self._left_out_dual(alpha), root))
            return weights + regression.inputs.shares if regression.centred else weights
        predictions = self._held - self.left_out(alpha)
        predictions = times(predictions if self.vectors is None else predictions @ self.vectors.mT, root)
        mean = regression.mean
        return regression.outputs.weigh(predictions if mean is None else predictions + mean.to(predictions))

    def _left_out_dual(self, alpha: float) -> Tensor:
        """The weights (n, n) of √w_i g₋(x_i) = Σ_j W_ij √w_j φ(y_j).

        Directions of which the operator knows next to nothing are left out.
        """
        if self.is_identity:
            inverse, groups = self._dual(alpha), self.regression.groups
            weights = inverse / -inverse.diagonal()[:, None]
            weights.diagonal().zero_()
            for stack in [] if groups is None else group_members(groups):
                for rows in stack:
                    weights[rows] = -torch.linalg.solve(inverse[rows[:, None], rows], inverse[rows])
                    weights[rows[:, None], rows] = 0.0
            return weights
        assert self.expand is not None
        known = self.values > torch.finfo(self.values.dtype).eps ** 0.5 * self.values.max()
        scale = torch.where(known, 1.0 / torch.where(known, self.values, 1.0), 0.0)
        return ((self.Z - self.left_out(alpha)) * scale) @ self.expand(self).mT

    def operator_root(self) -> Tensor:
        """The F (anchors of outputs × s) with A = Σ_s f_s ⊗ f_s, f_s = Σ_j F_js φ(y_j); A is not the identity."""
        a, outputs = self.values, self.regression.outputs
        if not outputs.anchored:
            assert self.vectors is not None
            return outputs.weigh((self.vectors * a.sqrt()).mT).mT
        assert self.expand is not None
        known = a > len(a) * torch.finfo(a.dtype).eps * a.max()
        scale = torch.where(known, torch.where(known, a, 1.0).rsqrt(), 0.0)
        return self.regression.own_weights((self.expand(self) * scale).mT).mT


# -- sums -------------------------------------------------------------------------------------------------------------
def summed_regression(
    sums: NormalSums, features: FeatureMap, targets: FeatureMap | None, held: Block, *, centred: bool
) -> OutputRegression:
    """The regression whose few rows stand for all samples by their sums; some of the samples can be left out.

    The sums of products are those of all samples: BᵀB = S, BᵀR and RᵀR, with the targets from their mean where it is
    taken away. A ridge regression of R on B is that of all samples, for every alpha and operator.
    """
    dtype, W = features.dtype, sums.weight
    mean = sums.target_sum / W if centred else torch.zeros_like(sums.target_sum)
    cross = sums.cross - torch.outer(sums.feature_sum, mean)
    squares = sums.squares - W * torch.outer(mean, mean)
    name = "The inner products of the features"
    S = eigh(symmetric(sums.gram), name=name, overwrite=True, dtype=torch.float32)
    eps = torch.finfo(S.values.dtype).eps
    known = S.values > len(S.values) * eps * S.values.max()
    vectors, root = S.vectors[:, known], S.values[known].sqrt()
    inside = (vectors.mT @ cross) / root[:, None]
    rest = squares - inside.mT @ inside  # what no function of the features explains
    values, directions = torch.linalg.eigh(0.5 * (rest + rest.mT))
    beyond = values > len(values) * eps * squares.diagonal().max()
    outside = (directions[:, beyond] * values[beyond].sqrt()).mT
    B = torch.cat([root[:, None] * vectors.mT, vectors.new_zeros(len(outside), len(vectors))]).to(dtype)
    R = torch.cat([inside, outside]).to(dtype)
    inputs = RegressionInputs(B, True, features=features)
    vars(inputs)["spectrum"] = Eigenpairs(torch.eye(len(B), len(root)).to(B), B[: len(root)].square().sum(1))
    with torch.no_grad():
        Y = held.Y if targets is None else targets(held.Y)
        weights = None if held.weights is None else held.weights.to(dtype)
        rows = Block(features(held.X) @ vectors.to(dtype), (Y.double() - mean).to(dtype), weights)
    outputs = OutputCoordinates(lambda: (R, None), targets is None, targets)
    return OutputRegression(inputs, outputs, centred, held.groups, sums, rows)
