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

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap, Landmarks, Nystroem, independent
from representer.functions import EmbeddingFunction, Expansion, FeatureFunction, FieldState, StoredFeatures
from representer.kernels import Kernel, Linear, unscaled
from representer.linalg import (
    Eigenpairs,
    by_rows,
    eigh,
    factorize,
    gram_factor,
    nonzero_svd,
    require,
    room_beside_sums,
    shifted,
    solve_blocks,
    spectrum_of_factor,
)
from representer.operators import (
    ConditionalCovariance,
    Covariance,
    DataDriven,
    Decomposable,
    Operator,
    PrincipalComponents,
    Representation,
    clipped_spectrum,
    original,
    repaired_gram,
    silent_repairs,
)
from representer.samples import Block, Data, HeldSamples, InMemory, Samples, count, plain, sampling_keys, take
from representer.samples import rows as limits
from representer.systems.base import Criterion, System, group_members, group_residuals, probes, relative_norm
from representer.systems.sums import NormalRidge, NormalStep, NormalSums, symmetric

CONDITIONAL = "The conditional covariance of the outputs"


# -- what is fitted ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StructuredModel:
    """What is fitted: kernels with numbers, the operator, how both sides are approximated."""

    kernel: Kernel  # k, adapted to the representation of the inputs
    output_kernel: Kernel  # l
    operator: Operator | None  # A; None is the identity, and "auto" in it is left to the criterion
    alpha: float | np.ndarray | None  # the weight of ‖g‖², candidates, or None to choose any positive number
    approximation: tuple[Approximation, Nystroem | Landmarks] | None  # of inputs and outputs; None is exact
    fit_intercept: bool  # is the mean output taken away before the regression, and added afterwards?
    representation: Representation  # how inputs become tensors
    seed: int  # of landmarks and random subsets
    memory_limit: int | str | None = None  # what sums over blocks may take

    @property
    def like(self) -> Tensor:
        """A number in the precision and on the device of the fit."""
        return torch.zeros((), dtype=self.representation.dtype, device=self.representation.device)

    @property
    def outputs(self) -> Representation:
        """How outputs become tensors."""
        return replace(self.representation, sparse=False)

    @property
    def opens_operator(self) -> bool:
        """Is a number of the operator left to the criterion?"""
        operator = self.operator
        if isinstance(operator, ConditionalCovariance):
            return isinstance(operator.epsilon, str)
        return isinstance(operator, PrincipalComponents) and isinstance(operator.n_components, str)

    @property
    def is_open(self) -> bool:
        """Is alpha or a number of the operator left to the criterion?"""
        return self.opens_operator or not isinstance(self.alpha, float)

    def capped(self, n: int) -> StructuredModel:
        """The model for n samples, which may be fewer than landmarks were asked for."""
        if self.approximation is None:
            return self
        inputs, outputs = self.approximation
        return replace(self, approximation=(inputs.capped(n), outputs.capped(n)))

    def on_axes(self, Y: Data) -> bool:
        """Are outputs vectors that are their own features, fewer of these than samples, or with a given operator?"""
        linear = isinstance(self.output_kernel, Linear) and isinstance(Y, Tensor)
        if self.operator is None or isinstance(self.operator, DataDriven):
            return linear and Y.shape[1] <= len(Y)
        if not linear:
            raise ValueError(
                f"operator={self.operator!r} acts on the features of the outputs, which must be vectors with "
                f"output_kernel='linear'; got {self.output_kernel!r}."
            )
        return True


# -- samples ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pairs(Block):
    """The N inputs of a fit in memory, the outputs of n of them, and the weights and groups of the inputs."""

    inputs: Data = None  # X as it is stored
    outputs: Data = None  # Y as it is stored
    labelled: Tensor | None = None  # the inputs that have an output; None: all
    pairwise: tuple[bool, bool] = (False, False)  # are inputs, are outputs Gram matrices?

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        output: Kernel,
        how: Representation,
        inputs: Data,
        outputs: Data,
        labelled: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Pairs:
        """Checked samples, also as the tensors and objects that kernels take."""
        X, Y = how.inputs(kernel, inputs), replace(how, sparse=False).inputs(output, outputs)
        w = None if weights is None else how.tensor(weights)
        numbers, known = (None if a is None else torch.from_numpy(a) for a in (groups, labelled))
        return cls(X, Y, w, numbers, inputs, outputs, known, (kernel.domain == "gram", output.domain == "gram"))

    @property
    def numbers(self) -> Tensor:
        """The numbers of the inputs that have an output."""
        return torch.arange(count(self.Y)) if self.labelled is None else self.labelled

    def known(self, values: Tensor | None) -> Tensor | None:
        """What belongs to the inputs that have an output."""
        return values if values is None or self.labelled is None else values[self.labelled]

    def rows(self, index: np.ndarray) -> Pairs:
        """Some of the samples that have an output, without the inputs that have none."""
        outputs = torch.from_numpy(np.asarray(index))
        return self._chosen(self.numbers[outputs], outputs)

    def sample(self, size: int, seed: int) -> Pairs:
        """At most ``size`` random samples that have an output."""
        return self.rows(limits.drawn_rows(count(self.Y), size, seed).numpy())

    def positive(self) -> Pairs:
        """The samples of positive weight; of a Gram matrix of inputs, the others stay as inputs without output."""
        if self.weights is None or bool((self.weights > 0).all()):
            return self
        outputs = (self.weights[self.numbers] > 0).nonzero()[:, 0]
        return self._chosen(None if self.pairwise[0] else (self.weights > 0).nonzero()[:, 0], outputs)

    def positive_part(self, *, pairwise: bool = False) -> Pairs:
        """The samples of positive weight that have an output; rows of a Gram matrix lose their columns as well."""
        if self.weights is None or bool((self.weights > 0).all()):
            return self
        return self.rows((self.weights[self.numbers] > 0).nonzero()[:, 0].cpu().numpy())

    def _chosen(self, kept: Tensor | None, outputs: Tensor) -> Pairs:
        """Some inputs in order, None for all, and some outputs."""
        Y, stored = (part(data, outputs, columns=self.pairwise[1]) for data in (self.Y, self.outputs))
        numbers = self.numbers[outputs]
        if kept is None:
            return replace(self, Y=Y, outputs=stored, labelled=numbers)
        X, inputs = (part(data, kept, columns=self.pairwise[0]) for data in (self.X, self.inputs))
        weights, groups = (None if a is None else a[kept] for a in (self.weights, self.groups))
        labelled = None if len(numbers) == len(kept) else torch.searchsorted(kept, numbers)
        return Pairs(X, Y, weights, groups, inputs, stored, labelled, self.pairwise)


def part(data: Data, rows: Tensor, *, columns: bool) -> Data:
    """Some samples; of a Gram matrix also the columns."""
    chosen = take(data, rows)
    return chosen[:, rows if isinstance(chosen, Tensor) else rows.numpy()] if columns else chosen


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

    @property
    def has_own_features(self) -> bool:
        """Is B made of the kernel's own features? Those of landmarks have no more digits than a Gram matrix."""
        return self.by_factor and self.features is None

    def known(self, values: Tensor) -> Tensor:
        """The rows of the inputs that have an output."""
        return values if self.labelled is None else values[self.labelled]

    @property
    def keeps_digits(self) -> bool:
        """Are small eigenvalues of B Bᵀ known to digits of their own, because B is made of explicit features?"""
        return self.by_factor and (self.features is None or self.features.is_explicit)

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
        if not self.by_factor:
            return self._spectrum(self.labelled, self.root)
        vectors, roots, _ = self.decomposition
        return Eigenpairs(vectors, roots.square())

    @cached_property
    def decomposition(self) -> tuple[Tensor, Tensor, Tensor]:
        """U, σ and V of √w B = U diag(σ) Vᵀ at the inputs that have an output."""
        return nonzero_svd(times(self.known(self.matrix), self.root))

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
        """Coefficients of √w_i k(·, x_i), x_i with an output, as those of all k(·, x_i)."""
        coefficients = times(coefficients, self.root)
        if self.labelled is not None:
            everywhere = coefficients.new_zeros(len(self.matrix), coefficients.shape[1])
            everywhere[self.labelled] = coefficients
            coefficients = everywhere
        return coefficients if self.stayed is None else self.stayed @ (self.stayed.mT @ coefficients)

    def product(self, columns: Tensor) -> Tensor:
        """√w k √w V at the inputs that have an output, for columns V (n, q)."""
        if self.by_factor:
            B = times(self.known(self.matrix), self.root)
            return B @ (B.mT @ columns)
        known = times(columns, self.root)
        if self.labelled is not None:
            return times(self.matrix[self.labelled][:, self.labelled] @ known, self.root)
        return times(self.matrix @ known, self.root)

    def solve(self, shift: float, right: Tensor | None = None) -> Tensor | None:
        """(√w k √w + shift)⁻¹ right, the inverse without ``right``; None where the spectrum does it for less."""
        if self.by_factor or "spectrum" in vars(self):
            return None
        gram = self._gram(self.labelled, self.root)
        cholesky = factorize(lambda: shifted(gram, shift), name="The Gram matrix plus n·alpha")
        return cholesky.inverse() if right is None else cholesky.solve(right)


def times(rows: Tensor, root: Tensor | None) -> Tensor:
    """Rows (n, m) times the square roots of the samples' weights."""
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
        """The coordinates of the outputs in the directions of this operator."""
        if self.turned is not None:
            return self.regression.inputs.spectrum.vectors @ self.turned
        return self.regression.R if self.vectors is None else self.regression.R @ self.vectors

    @cached_property
    def rotated(self) -> Tensor:
        """Uᵀ Z, the coordinates in the eigenvectors of the input Gram matrix."""
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
        """Σ_i z_ij² (s,), the sum of squares of each coordinate."""
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
        """The backward error ‖(k C diag(a) + nα C − Z) S‖ / ‖Z S‖ of the coefficients, with few random signs S."""
        C, regression = self.coefficients(alpha), self.regression
        signs = probes(C.shape[1], like=C)
        image = regression.inputs.product((C * self.values) @ signs)
        missing = image + regression.weight * alpha * (C @ signs) - self.Z @ signs
        return relative_norm(missing, self.Z @ signs)

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

    def leverage(self, alpha: float) -> Tensor:
        """The derivative (n, s) of each prediction in its own output, in each coordinate; a mean output moves, too."""
        regression, inputs = self.regression, self.regression.inputs
        U, explained = inputs.spectrum.vectors, inputs.spectrum.values[:, None] * self.values * self._filters(alpha)
        leverage = U.square() @ explained
        if regression.centred:
            root = U.new_ones(len(U)) if inputs.root is None else inputs.root
            fitted = U @ (explained * (U.mT @ root)[:, None]) / root[:, None]  # to ones
            leverage = leverage + inputs.shares[:, None] * (1.0 - fitted)
        return leverage

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
        regression, inputs = self.regression, self.regression.inputs
        if regression.sums is not None:
            theta = self._summed(alpha)
        elif inputs.features is not None:
            theta = self.slopes(alpha)
        elif regression.outputs.anchored:
            theta = inputs.place(regression.own_weights(self._dual(alpha)))
        else:
            C = self.coefficients(alpha) * self.values
            theta = inputs.place(C if self.vectors is None else C @ self.vectors.mT)
        if regression.outputs.anchored:
            return theta, inputs.shares if regression.centred else None
        return theta, None if regression.mean is None else regression.mean.to(theta)

    def residual_of_slopes(self, alpha: float) -> float:
        """‖(Bᵀ(Z − B θ diag(a)) − nα θ) S‖ over what its terms may round, ‖B‖ ‖Z S‖, with few random signs S."""
        inputs = self.regression.inputs
        B = times(inputs.known(inputs.matrix), inputs.root)
        left, roots, right = inputs.decomposition
        theta = right @ (roots[:, None] * self._filters(alpha) * (left.mT @ self.Z))
        signs = probes(theta.shape[1], like=theta)
        targets = self.Z @ signs
        fitted = B @ ((theta * self.values) @ signs)
        missing = B.mT @ (targets - fitted) - self.regression.weight * alpha * theta @ signs
        return relative_norm(missing, B.norm() * targets)

    def slopes(self, alpha: float) -> Tensor:
        """Bᵀ times the coefficients of all inputs: those of the features B, where k = B Bᵀ.

        They come from √w B = U diag(σ) Vᵀ as V diag(σ) UᵀC: in a sum over samples, large coefficients would cancel.
        """
        left, roots, right = self.regression.inputs.decomposition
        filters = roots[:, None] * self._filters(alpha)
        if not self.regression.outputs.anchored:
            inside = filters * self.rotated * self.values
            return right @ (inside if self.vectors is None else inside @ self.vectors.mT)
        if self.is_identity:
            return self.regression.own_weights(right @ (filters * left.mT))
        assert self.expand is not None  # other operators are fitted in coordinates
        return self.regression.own_weights(right @ ((filters * self.rotated) @ self.expand(self).mT))

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
                    weights[rows] = -solve_blocks(inverse[rows[:, None], rows], inverse[rows])
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
    name = "The Gram matrix of the features"
    eps = torch.finfo(sums.gram.dtype).eps
    if features.is_explicit:
        vectors, root, _ = nonzero_svd(graded_factor(symmetric(sums.gram)))
    else:
        S = eigh(symmetric(sums.gram), name=name, overwrite=True, dtype=torch.float32)
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


def graded_factor(gram: Tensor) -> Tensor:
    """A factor F with F Fᵀ = S of sums of squares that differ by many orders, right to ε of each of its rows.

    Eigenvectors of S itself would be right to ε‖S‖ only.
    """
    sizes = gram.diagonal().clamp(min=0.0).sqrt()
    sizes = torch.where(sizes > 0, sizes, 1.0)
    S = eigh(gram / sizes / sizes[:, None], name="The Gram matrix of the features", overwrite=True)
    known = S.values > len(S.values) * torch.finfo(gram.dtype).eps * S.values.max()
    return sizes[:, None] * (S.vectors[:, known] * S.values[known].sqrt())


# -- exact fits -------------------------------------------------------------------------------------------------------
def exact_regression(
    model: StructuredModel, pairs: Pairs, features: FeatureMap | None, targets: FeatureMap | None
) -> OutputRegression:
    """The regression of all samples: by features of an approximation, if there are some, or by Gram matrices."""
    options = (pairs.labelled, pairs.weights)
    if features is not None:
        inputs = RegressionInputs(features(pairs.X), True, *options, features)
    elif (factor := few_features(model.kernel, pairs.X)) is not None:
        inputs = RegressionInputs(factor, True, *options)
    else:
        gram, stayed = repaired_gram(model.kernel, pairs.X)
        inputs = RegressionInputs(gram, False, *options, stayed=stayed)
    Y = pairs.Y
    if targets is not None:
        outputs = OutputCoordinates(lambda: (targets(Y), None), False, targets)
    elif model.on_axes(Y):
        outputs = OutputCoordinates(lambda: (Y.to(model.like), None), True)
    else:
        outputs = OutputCoordinates(lambda: output_factor(model.output_kernel, Y, model.like), False)
    return OutputRegression(inputs, outputs, model.fit_intercept, pairs.known(pairs.groups))


def explicit_features(kernel: Kernel, X: Data) -> Tensor | None:
    """Explicit features of the kernel at prepared inputs, if it has some."""
    with torch.no_grad():
        return kernel.features(X) if kernel.domain != "gram" else None


def few_features(kernel: Kernel, X: Data) -> Tensor | None:
    """Explicit features of the kernel, where there are fewer of them than samples; None otherwise."""
    features = explicit_features(kernel, X)
    if not isinstance(features, Tensor) or features.ndim != 2:
        return None
    return features if 0 < features.shape[1] < len(features) else None


def output_factor(kernel: Kernel, Y: Data, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """R with R Rᵀ = l(Y), and, if that took a repair, the eigenvectors that have stayed."""
    features = few_features(kernel, Y)
    if features is not None:
        return features.to(like), None
    gram = kernel._gram(Y, None).to(like)
    return gram_factor(gram, repair=kernel.domain != "vectors", name="The Gram matrix of the outputs")


# -- the system of a fit ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StructuredSystem(FieldState, System):
    """The regression of a fitted predictor: a value of arrays, which factors itself when it is first asked.

    What it says of single outputs is said in the coordinates where the operator is diagonal, or in the weights that
    the fitted function gives.

    Parameters
    ----------
    model : StructuredModel
        With numbers in its kernels and, once they are settled, in its operator and for alpha.
    samples : HeldSamples
        Inputs and outputs as they are stored: all of the fit, or as many random ones as a fit by sums keeps.
    labelled : array or None
        The inputs that have an output; None: all.
    features, targets : StoredFeatures or None
        Of inputs and outputs, in an approximate fit.
    sums : NormalSums or None
        The sums of all samples, as arrays, in a fit by sums.
    held : array or None
        The numbers of the samples that the criterion of a fit by sums leaves out.
    """

    model: StructuredModel
    samples: HeldSamples
    labelled: np.ndarray | None = None
    features: StoredFeatures | None = None
    targets: StoredFeatures | None = None
    sums: NormalSums | None = None
    held: np.ndarray | None = None

    @cached_property
    def pairs(self) -> Pairs:
        """The samples as kernels take them."""
        model, samples = self.model, self.samples
        arrays = (self.labelled, samples.weights, samples.groups)
        return Pairs.of(
            original(model.kernel), model.output_kernel, model.representation, samples.X, samples.Y, *arrays
        )

    @cached_property
    def regression(self) -> OutputRegression:
        """The regression for any operator and alpha; the fit speaks of repairs, this does not."""
        held = None if self.held is None else self.pairs.rows(self.held)
        with silent_repairs():
            return self._regression(held)

    def _regression(self, held: Pairs | None) -> OutputRegression:
        features, targets = (None if stored is None else stored.map for stored in (self.features, self.targets))
        if self.sums is None or held is None:
            return exact_regression(self.model, self.pairs, features, targets)
        assert features is not None
        sums = self.sums.map(torch.from_numpy)
        return summed_regression(sums, features, targets, held, centred=self.model.fit_intercept)

    @cached_property
    def diagonal(self) -> DiagonalRegression:
        """The regression in the coordinates where the operator is diagonal."""
        return self.regression.under(self.model.operator)

    @property
    def alpha(self) -> float:
        """The weight of ‖g‖² in the mean loss."""
        assert isinstance(self.model.alpha, float)
        return self.model.alpha

    def settled(
        self, operator: Operator | None, alpha: float, diagonal: DiagonalRegression | None = None
    ) -> StructuredSystem:
        """The system with numbers in its operator and for alpha; what is factored already stays at hand."""
        system = replace(self, model=replace(self.model, operator=operator, alpha=alpha))
        vars(system).update({name: value for name, value in vars(self).items() if name in ("pairs", "regression")})
        if diagonal is not None:
            vars(system)["diagonal"] = diagonal
        return system

    def judged(self) -> StructuredSystem:
        """The system on which numbers are chosen: itself, or where it is exact, that of random ones of many samples."""
        if self.features is not None or len(self.pairs) <= limits.STRUCTURED_ROWS:
            return self
        with silent_repairs():
            return structured_system(self.model, self.pairs.sample(limits.STRUCTURED_ROWS, self.model.seed))

    def at_rest(self) -> StructuredSystem:
        """The system as a learner keeps it, without what it has factored."""
        return replace(self)

    # -- its solution -------------------------------------------------------------------------------------------------
    def coefficients(self) -> Tensor:
        """Of the inputs, or of their features: those of the weights of outputs, or of the coordinates of g."""
        return self.diagonal.solution(self.alpha)[0]

    def intercept(self) -> Tensor | None:
        """The mean output, where that is taken away."""
        return self.diagonal.solution(self.alpha)[1]

    def function(self) -> EmbeddingFunction:
        """The fitted function g into the RKHS of the output kernel."""
        model, anchored = self.model, self.regression.outputs.anchored
        anchors = self.samples.Y if anchored else None if self.targets is None else self.targets.landmarks
        solution = self.diagonal.solution(self.alpha)
        C, b = map(plain, solution)
        coordinates: Expansion | FeatureFunction
        if self.features is None:
            kernel = original(model.kernel)
            # The features of a multiple of xᵀy are a multiple of x.
            factor = unscaled(kernel)[1]
            slopes = plain(self.diagonal.slopes(self.alpha) / factor**0.5) if self._by_slopes else None
            coordinates = Expansion(Decomposable(kernel), self.samples.X, C, b, model.representation, slopes)
        else:
            assert C is not None
            coordinates = FeatureFunction(self.features, C, b)
        return EmbeddingFunction(original(model.output_kernel), anchors, coordinates, model.outputs, self.targets)

    def residual(self) -> float:
        """The backward error of the coefficients in all coordinates, or of the slopes."""
        return (self.diagonal.residual_of_slopes if self._by_slopes else self.diagonal.residual)(self.alpha)

    @property
    def _by_slopes(self) -> bool:
        """Are predictions products of few features with slopes, whose sums over samples would cancel?"""
        return self.regression.inputs.has_own_features and isinstance(unscaled(original(self.model.kernel))[0], Linear)

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """The weights that the fit without each sample that has an output, or without its group, gives it.

        They are those of ``function()``: of outputs, landmarks or axes. A fit by sums does so for all samples it keeps.
        """
        diagonal = self.diagonal
        if self.sums is not None:
            pairs = self.pairs
            everyone = self._regression(pairs if groups is None else replace(pairs, groups=groups))
            diagonal = replace(diagonal, regression=everyone)
        elif groups is not None:
            diagonal = replace(diagonal, regression=replace(self.regression, groups=groups))
        return diagonal.left_out_weights(self.alpha)

    def left_out_sample(self) -> tuple[Data, Tensor]:
        """The stored outputs of the samples that the criterion leaves out, and the weights of their predictions."""
        outputs = self.samples.Y if self.held is None else take(self.samples.Y, torch.from_numpy(self.held))
        return outputs, self.diagonal.left_out_weights(self.alpha)

    def leverage(self) -> Tensor:
        """The share (n, s) of each output in its own prediction, in the coordinates where the operator is diagonal."""
        if self.sums is not None:
            raise self._unavailable("Leverages of a fit by sums")
        return self.diagonal.leverage(self.alpha)

    def variance(self, X: Data) -> Tensor:
        """a_j k(x, x) − a_j² k_xᵀ(a_j k + nα)⁻¹k_x (m, s) at checked inputs, as if the mean output were certain."""
        model, inputs, a = self.model, self.regression.inputs, self.diagonal.values
        new = model.representation.inputs(model.kernel, X)
        known, U = times(inputs.known(inputs.matrix), inputs.root), inputs.spectrum.vectors
        right = (known.mT @ U) if inputs.by_factor else times(U, inputs.root)
        filters = self.diagonal._filters(self.alpha) * a.square()

        def variances(block: slice) -> Tensor:
            x = new[block]
            if inputs.features is not None:
                cross = inputs.features(x)
            elif inputs.by_factor:
                features = explicit_features(model.kernel, x)
                assert features is not None  # as in the fit
                cross = features
            else:
                cross = model.kernel._gram(x, self.pairs.X)
                if inputs.stayed is not None:
                    cross = (cross @ inputs.stayed) @ inputs.stayed.mT
                cross = cross if inputs.labelled is None else cross[:, inputs.labelled]
            return (model.kernel._diag(x)[:, None] * a - (cross @ right).square() @ filters).clamp(min=0.0)

        return by_rows(variances, count(new), 3 * len(known) * known.element_size())

    def path(self, alphas: Tensor, criterion: Criterion = "loo") -> Tensor:
        """The mean squared leave-one-out errors in the RKHS of the outputs for many alphas."""
        if criterion != "loo":
            raise self._unavailable("Generalised cross-validation errors")
        missed, weight = self.diagonal.missed, self.regression.weight
        return torch.stack([(self.diagonal.errors(alpha).sum() + missed) / weight for alpha in alphas.tolist()])

    @cached_property
    def operator_root(self) -> Tensor | None:
        """The F (anchors of outputs × s) with A = Σ_s f_s ⊗ f_s, f_s = Σ_j F_js φ(y_j); None for the identity."""
        return None if self.model.operator is None else self.diagonal.operator_root()

    # -- more samples -------------------------------------------------------------------------------------------------
    def joined(self, batch: Pairs) -> StructuredSystem:
        """The system of the samples of a fit by sums and of one more batch, with the same features."""
        if self.sums is None or self.features is None:
            raise ValueError("Only fits by sums take more samples. Give approximation=, and an output to each input.")
        seed, targets = self.model.seed, None if self.targets is None else self.targets.map
        fresh = sum_samples(self.model, InMemory(batch), self.features.map, targets)
        block = Block(batch.inputs, batch.outputs, batch.weights)
        samples = self.samples.joined(block, self.sums.n, limits.KNOWN_ROWS, seed)
        held = np.sort(np.argsort(samples.keys)[: limits.HELD_ROWS])
        sums = (self.sums.map(torch.from_numpy) + fresh).map(plain)
        return replace(self, sums=sums, samples=samples, held=held)


def structured_system(model: StructuredModel, pairs: Pairs, source: Samples | None = None) -> StructuredSystem:
    """The regression of samples in memory, for any operator and alpha; of all samples of a source, if there is one.

    Without an approximation it is exact. With one it goes by sums over the samples, unless some have no output.
    """
    weights, groups, labelled = map(plain, (pairs.weights, pairs.groups, pairs.labelled))
    samples = HeldSamples(np.empty(0, dtype=np.uint64), pairs.inputs, pairs.outputs, weights, groups)
    system = StructuredSystem(model, samples, labelled)
    if model.approximation is not None:
        (first, second), seed, how = model.approximation, model.seed, model.representation
        source = InMemory(pairs) if source is None else source
        everyone = labelled is not None  # inputs without outputs take part: features are chosen among all

        def choose(side: Approximation, kernel: Kernel, data: str) -> FeatureMap:
            if everyone:
                return independent(side.features(kernel, getattr(pairs, data), seed=seed))
            block = source.rows(side.rows(source.n, seed))
            return independent(side.choose(kernel, getattr(block, data), seed))

        features, targets = choose(first, model.kernel, "X"), None
        if not model.on_axes(pairs.Y):
            targets = choose(second, model.outputs.adapted(model.output_kernel, repair=False), "Y")
        stored = None if targets is None else StoredFeatures.of(second, targets, model.outputs)
        system = replace(system, features=StoredFeatures.of(first, features, how), targets=stored)
        if not everyone:
            kept, held = source.random_rows(limits.KNOWN_ROWS, seed), source.random_rows(limits.HELD_ROWS, seed)
            sums = sum_samples(model, source, features, targets).map(plain)
            samples = replace(samples, keys=sampling_keys(kept, seed))
            system = replace(system, samples=samples, sums=sums, held=np.searchsorted(kept, held))
    vars(system)["pairs"] = pairs
    vars(system)["regression"] = system._regression(None if system.held is None else pairs.rows(system.held))
    return system


def kept_pairs(model: StructuredModel, pairs: Pairs, source: Samples) -> Pairs:
    """The samples that a learner keeps: all, or some of many where the fit is a sum over those of a source."""
    if model.approximation is None or pairs.labelled is not None or len(pairs) <= limits.KNOWN_ROWS:
        return pairs
    return pairs.rows(source.random_rows(limits.KNOWN_ROWS, model.seed))


def sum_samples(
    model: StructuredModel, source: Samples, features: FeatureMap, targets: FeatureMap | None
) -> NormalSums:
    """The sums of the features of all samples."""
    width = source.rows(np.arange(1)).Y.shape[1] if targets is None else targets.n_features
    limit = room_beside_sums(model.memory_limit, features.n_features, width, held=limits.HELD_ROWS)
    total: NormalSums = source.total(NormalStep(features, targets), limit=limit)
    return total


def guard_memory(model: StructuredModel, pairs: Pairs, *, chooses: bool) -> None:
    """Estimate what a fit needs before anything of size n × n exists; fits by sums ask for themselves."""
    n = count(pairs.X)
    if model.approximation is None:
        # Measured peaks, in matrices: a Cholesky factor and its inverse; two eigendecompositions with products.
        direct = model.operator is None and model.output_kernel.domain == "vectors" and not chooses
        elements = (3 if direct else 10) * n**2
        advice = "Use approximation=Nystroem(m), fewer samples or dtype='float32'."
    else:
        labelled = pairs.labelled is not None
        elements = 4 * n * sum(a.size(n) for a in model.approximation) if labelled else 0
        advice = "Use fewer landmarks."
    require(elements * model.representation.dtype.itemsize, what=f"A fit to {n} samples", advice=advice)
