"""Structured outputs: regression into the RKHS of an output kernel, and the choice of what is left open in it.

Both sides of the regression come first: the inputs as a spectrum, the outputs as coordinates. Exact fits read Gram
matrices, fits with an approximation sums over blocks of samples. Then the numbers: alpha, the operator, the kernels, by
leave-one-out in the RKHS of the outputs or by the loss of a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import (
    Approximation,
    FeatureMap,
    LandmarkFeatures,
    Landmarks,
    Nystroem,
    landmark_features,
)
from representer.data import count, plain, take
from representer.functions import Embedding, EmbeddingFunction, Expansion, FeatureFunction, StoredFeatures
from representer.kernels import Kernel, Linear
from representer.linalg import (
    NotPositiveDefiniteError,
    Spectrum,
    eigh,
    factorize,
    pivoted_cholesky,
    repair_gram,
    shifted,
    spectrum_of_factor,
)
from representer.linalg.memory import BLOCK_BYTES, require
from representer.objectives.operator_valued import CrossValidation, smallest_alpha
from representer.operators import (
    ConditionalCovariance,
    Decomposable,
    Dense,
    Operator,
    PrincipalComponents,
)
from representer.operators.adapted import (
    Adapted,
    Representation,
    original,
    repaired_gram,
    searched,
)
from representer.operators.outputs import DataDriven
from representer.optimize.runs import Monitor
from representer.optimize.search import Choice, SearchSettings, best_alpha, log_spaced, minimise
from representer.parameters import Positive
from representer.preimage import Decoder
from representer.samples import Block, InMemory, Samples, rows
from representer.systems.ridge import block_limit
from representer.systems.structured import (
    DiagonalRegression,
    HeldOutputs,
    OutputRegression,
    Unexplained,
    summed_regression,
)
from representer.systems.sums import NormalStep, NormalSums

# Values of alpha on a first grid, and on a finer one between the neighbours of its best.
COARSE, FINE = 13, 9
# A search over a kernel starts where leave-one-out is best among its lengthscales divided by these.
FACTORS = (1.0, 2.0, 4.0)
# By a task's loss, lengthscales of the output kernel are compared with their heuristics divided by these.
OUTPUT_FACTORS = (4.0, 2.0, 1.0, 0.5, 0.25)
# Values of epsilon that are compared, in units of the mean k(x, x).
EPSILONS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

Pair = tuple[Approximation, Nystroem | Landmarks]


@dataclass(frozen=True)
class StructuredModel:
    """What is fitted: kernels with numbers, the operator, how both sides are approximated.

    Parameters
    ----------
    kernel : Kernel
        k, adapted to the representation of the inputs.
    output_kernel : Kernel
        l.
    operator : Operator or None
        A; None is the identity, and ``"auto"`` in it is left to the criterion.
    approximation : pair of approximations or None
        Of inputs and outputs; None is exact.
    fit_intercept : bool
        Is the mean output taken away before the regression, and added afterwards?
    representation : Representation
        How inputs become tensors.
    seed : int
        Seeds landmarks and random subsets.
    memory_limit : int, str or None
        What sums over blocks may take.
    """

    kernel: Kernel
    output_kernel: Kernel
    operator: Operator | None
    approximation: Pair | None
    fit_intercept: bool
    representation: Representation
    seed: int
    memory_limit: int | str | None = None

    @property
    def like(self) -> Tensor:
        """A number in the precision and on the device of the fit."""
        return torch.zeros((), dtype=self.representation.dtype, device=self.representation.device)

    @property
    def outputs(self) -> Representation:
        """How outputs become tensors."""
        return replace(self.representation, sparse=False)

    @property
    def adapted_output(self) -> Kernel:
        """The output kernel, as features of outputs take it."""
        how = self.outputs
        return (
            self.output_kernel
            if self.output_kernel.domain == "vectors"
            else Adapted(self.output_kernel, how.dtype, how.device)
        )

    @property
    def is_open(self) -> bool:
        """Is a number of the operator left to the criterion?"""
        operator = self.operator
        if isinstance(operator, ConditionalCovariance):
            return isinstance(operator.epsilon, str)
        return isinstance(operator, PrincipalComponents) and isinstance(operator.n_components, str)

    def on_axes(self, Y: Any) -> bool:
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


@dataclass(frozen=True)
class Pairs:
    """The inputs and outputs of a fit, in memory; inputs may outnumber outputs.

    Parameters
    ----------
    X, Y : prepared data
        N inputs, and the outputs of n of them.
    inputs, outputs : ndarray, SparseRows or list
        The same as they are stored.
    labelled : tensor of int or None
        The inputs that have an output; None: all.
    weights : tensor (N,) or None
        Of the inputs; None: all 1.
    groups : tensor of int (n,) or None
        The groups of the samples that have an output, which are left out together.
    """

    X: Any
    Y: Any
    inputs: Any
    outputs: Any
    labelled: Tensor | None = None
    weights: Tensor | None = None
    groups: Tensor | None = None

    @property
    def rows(self) -> Tensor:
        """The numbers of the inputs that have an output."""
        return torch.arange(count(self.Y)) if self.labelled is None else self.labelled

    def subset(self, model: StructuredModel, index: Tensor) -> Pairs:
        """Some of the samples that have an output, without the inputs that have none."""
        rows = self.rows[index]
        given, output = model.kernel.domain == "gram", model.output_kernel.domain == "gram"
        X, inputs = (_part(data, rows, rows if given else None) for data in (self.X, self.inputs))
        Y, outputs = (_part(data, index, index if output else None) for data in (self.Y, self.outputs))
        weights = None if self.weights is None else self.weights[rows]
        return Pairs(
            X, Y, inputs, outputs, None, weights, None if self.groups is None else self.groups[index]
        )

    def sample(self, model: StructuredModel, size: int) -> Pairs:
        """At most ``size`` random samples that have an output."""
        n = count(self.Y)
        generator = torch.Generator().manual_seed(model.seed)
        return self.subset(model, torch.randperm(n, generator=generator)[:size].sort().values)


def _part(data: Any, rows: Tensor, columns: Tensor | None) -> Any:
    part = take(data, rows)
    if columns is None:
        return part
    return part[:, columns if isinstance(part, Tensor) else columns.numpy()]


# -- inputs -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Inputs:
    """The inputs of a fit: k at the N samples, in the form that the fit needs.

    Parameters
    ----------
    matrix : tensor (N, N), or (N, m)
        k; or B with k = B Bᵀ, where it has fewer columns than rows.
    by_factor : bool
        Is it B?
    labelled : tensor of int or None
        The samples that have an output; None: all N.
    weights : tensor (N,) or None
        Their weights; None: all 1.
    features : FeatureMap or None
        Of an approximate fit: what makes B.
    kept : tensor or None
        Of a Gram matrix that was repaired: the eigenvectors that have stayed.
    """

    matrix: Tensor
    by_factor: bool
    labelled: Tensor | None = None
    weights: Tensor | None = None
    features: FeatureMap | None = None
    kept: Tensor | None = None

    def known(self, values: Tensor) -> Tensor:
        """The rows of the samples that have an output."""
        return values if self.labelled is None else values[self.labelled]

    @property
    def n(self) -> int:
        """The number of samples that have an output."""
        return len(self.matrix) if self.labelled is None else len(self.labelled)

    @cached_property
    def root(self) -> Tensor | None:
        """√w of the samples that have an output; None where all weights are 1."""
        return None if self.weights is None else self.known(self.weights).sqrt()

    @cached_property
    def weight(self) -> float:
        """Σ w of the samples that have an output."""
        return float(self.n if self.weights is None else self.known(self.weights).sum())

    @cached_property
    def spectrum(self) -> Spectrum:
        """The spectrum of √w k √w at the samples that have an output."""
        return self._spectrum(self.labelled, self.root)

    def _spectrum(self, rows: Tensor | None, root: Tensor | None) -> Spectrum:
        if self.by_factor:
            return spectrum_of_factor(weighted(self.matrix if rows is None else self.matrix[rows], root))
        gram = self._gram(rows, root)
        return eigh(gram.clone() if gram is self.matrix else gram, name="The Gram matrix", overwrite=True)

    def _gram(self, rows: Tensor | None, root: Tensor | None) -> Tensor:
        gram = self.matrix if rows is None else self.matrix[rows[:, None], rows]
        return gram if root is None else gram * root[:, None] * root

    @cached_property
    def unexplained(self) -> Unexplained | None:
        """What the conditional covariance needs, if inputs without an output count."""
        w, rows = self.weights, self.labelled
        total = float(len(self.matrix) if w is None else w.sum())
        if rows is None or total <= self.weight:
            return None
        whole = self._spectrum(None, None if w is None else w.sqrt())
        return Unexplained(Spectrum(whole.vectors[rows], whole.values), total, self.weight)

    def mean_diagonal(self) -> float:
        """The mean k(x, x): the scale of alpha."""
        diagonal = self.matrix.square().sum(1) if self.by_factor else self.matrix.diagonal()
        w = torch.ones_like(diagonal) if self.weights is None else self.weights
        return float((diagonal @ w) / w.sum())

    def place(self, coefficients: Tensor) -> Tensor:
        """Coefficients of √w_i k(·, x_i), x_i with an output, as those of all k(·, x_i), or of the features."""
        coefficients = weighted(coefficients, self.root)
        if self.features is not None:
            return self.known(self.matrix).mT @ coefficients
        if self.labelled is not None:
            everywhere = coefficients.new_zeros(len(self.matrix), coefficients.shape[1])
            everywhere[self.labelled] = coefficients
            coefficients = everywhere
        return coefficients if self.kept is None else self.kept @ (self.kept.mT @ coefficients)

    def solve(self, shift: float, right: Tensor | None = None) -> Tensor:
        """(√w k √w + shift)⁻¹ right by a Cholesky factor, the whole inverse without ``right``."""
        gram = self._gram(self.labelled, self.root)
        cholesky = factorize(lambda: shifted(gram, shift), name="The Gram matrix plus n·alpha")
        return cholesky.inverse() if right is None else cholesky.solve(right)


def weighted(rows: Tensor, root: Tensor | None) -> Tensor:
    """Rows times √w."""
    return rows if root is None else rows * root[:, None]


def _inputs(model: StructuredModel, pairs: Pairs) -> Inputs:
    """By landmarks; or by few explicit features if the kernel has them, by its Gram matrix otherwise."""
    kernel, X = model.kernel, pairs.X
    placed: dict[str, Any] = {"labelled": pairs.labelled, "weights": pairs.weights}
    if model.approximation is not None:
        features = independent(model.approximation[0].features(kernel, X, seed=model.seed))
        return Inputs(features(X), True, features=features, **placed)
    factor = few_features(kernel, X)
    if factor is not None:
        return Inputs(factor, True, **placed)
    gram, kept = repaired_gram(kernel, X)
    return Inputs(gram, False, kept=kept, **placed)


def few_features(kernel: Kernel, X: Any) -> Tensor | None:
    """Explicit features of the kernel, where there are fewer of them than samples; None otherwise."""
    with torch.no_grad():
        features = kernel.features(X) if kernel.domain != "gram" else None
    if not isinstance(features, Tensor) or features.ndim != 2:
        return None
    return features if 0 < features.shape[1] < len(features) else None


def independent(features: FeatureMap) -> FeatureMap:
    """The same features without landmarks that are, to rounding, combinations of the others in the RKHS."""
    if not isinstance(features, LandmarkFeatures):
        return features
    kernel = features.kernel
    gram = kernel._gram(features.landmarks, None)
    _, pivots = pivoted_cholesky(gram, tol=torch.finfo(gram.dtype).eps ** 0.75)
    if len(pivots) == len(gram):
        return features
    if not len(pivots):
        raise ValueError(f"{original(kernel)!r} is zero at all landmarks: there is nothing to learn from.")
    return landmark_features(kernel, take(features.landmarks, pivots.sort().values))


# -- outputs ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outputs:
    """The outputs of a fit as rows R (n, r) of coordinates, L = R Rᵀ, and what their sums are expressed in.

    Parameters
    ----------
    make : callable
        Makes R, and the eigenvectors that have stayed if L was repaired: called if they are needed.
    on_axes : bool
        Are coordinates those of vectors? Then predictions are vectors.
    features : FeatureMap or None
        The features of landmarks that are the coordinates. Without them and not ``on_axes``, predictions are sums of
        the n outputs.
    """

    make: Callable[[], tuple[Tensor, Tensor | None]]
    on_axes: bool
    features: FeatureMap | None = None

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


def _outputs(model: StructuredModel, Y: Any) -> Outputs:
    """The training outputs, vectors in their own coordinates, or landmarks among the outputs."""
    if model.on_axes(Y):
        return Outputs(lambda: (Y.to(model.like), None), True)
    if model.approximation is not None:
        features = independent(model.approximation[1].features(model.adapted_output, Y, seed=model.seed))
        return Outputs(lambda: (features(Y), None), False, features)
    return Outputs(lambda: output_factor(model.output_kernel, Y, model.like), False)


def output_factor(kernel: Kernel, Y: Any, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """R with R Rᵀ = l(Y), and, if that took a repair, the eigenvectors that have stayed."""
    features = few_features(kernel, Y)
    if features is not None:
        return features.to(like), None
    given = kernel._gram(Y, None).to(like)
    gram = given if kernel.domain == "vectors" else repair_gram(given, name="The Gram matrix of the outputs")
    rounding = len(gram) * torch.finfo(gram.dtype).eps
    if gram is given:
        factor, info = torch.linalg.cholesky_ex(gram)
        smallest = factor.diagonal().square().min()
        if not info.item() and smallest > rounding * gram.diagonal().max():
            return factor, None
        factor = pivoted_cholesky(gram, tol=rounding)[0].contiguous()
        return factor if factor.shape[1] else gram[:, :1] * 0.0, None  # all φ(y) = 0: one coordinate, zero
    spectrum = eigh(gram, name="The repaired Gram matrix of the outputs")
    stays = spectrum.values > rounding * spectrum.values[-1]
    vectors, values = spectrum.vectors[:, stays], spectrum.values[stays]
    return vectors * values.sqrt(), vectors


# -- both -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StructuredProblem:
    """A fit but for its numbers: min (1/n) Σ w_i ‖l(·, y_i) − g(x_i)‖² + alpha ‖g‖² over functions of the kernel k A.

    Parameters
    ----------
    model : StructuredModel
        Kernels, operator, approximation.
    inputs, outputs : Inputs, Outputs
        Both sides.
    stored : pair of data
        The inputs and outputs that an exact fit's functions are sums of, as they are stored.
    groups : tensor of int or None
        The groups that are left out together, of the samples that can be left out.
    summed : SummedSamples or None
        What is known of all samples, where the fit is one by sums.
    """

    model: StructuredModel
    inputs: Inputs
    outputs: Outputs
    stored: tuple[Any, Any]
    groups: Tensor | None = None
    summed: SummedSamples | None = None

    @cached_property
    def mean(self) -> Tensor | None:
        """The mean output (r,) in coordinates, where it is taken away."""
        if not self.model.fit_intercept:
            return None
        if self.summed is not None:
            sums = self.summed.sums
            return sums.target_sum / sums.weight
        R, w = self.outputs.made[0], self.inputs.weights
        return R.mean(0) if w is None else (self.inputs.known(w) @ R) / self.inputs.weight

    @cached_property
    def coordinates(self) -> Tensor:
        """R, from the mean if there is an intercept, rows times √w."""
        R = self.outputs.made[0]
        return weighted(R if self.mean is None else R - self.mean, self.inputs.root)

    @cached_property
    def regression(self) -> OutputRegression:
        """The regression on the spectrum of the inputs."""
        if self.summed is not None:
            return self.summed.regression(self.mean)
        conditional = isinstance(self.model.operator, ConditionalCovariance)
        return OutputRegression(
            self.inputs.spectrum,
            self.coordinates,
            self.inputs.weight,
            self.inputs.unexplained if conditional else None,
            anchored=self.outputs.anchored,
        )

    @property
    def scale(self) -> float:
        """The mean k(x, x): the scale of alpha."""
        return self.inputs.mean_diagonal() if self.summed is None else self.summed.scale

    # -- the choice ---------------------------------------------------------------------------------------------------
    def operators(self) -> list[Operator | None]:
        """The operators to compare: the given one, or one for each epsilon of the grid."""
        operator = self.model.operator
        if isinstance(operator, ConditionalCovariance) and isinstance(operator.epsilon, str):
            return [ConditionalCovariance(self.scale * factor) for factor in EPSILONS]
        return [operator]

    def alphas(self, system: DiagonalRegression) -> Tensor:
        """From where rounding takes over to where nothing is fitted: alpha has the units of k(x, x) times A."""
        values = system.values
        unit = self.scale * float(values.max() if len(values) else 1.0)
        info = torch.finfo(values.dtype)
        low = values.new_tensor(max(unit * info.eps ** (2 / 3), info.tiny**0.5))
        return log_spaced(low, low * info.eps ** (-2 / 3) * 10.0, COARSE)

    def error(self, system: DiagonalRegression, alpha: float) -> tuple[float, int | None]:
        """The mean squared leave-one-out error, and the number of components that it is for."""
        errors, operator, kept = system.errors(alpha, self.groups), self.model.operator, None
        if isinstance(operator, PrincipalComponents):
            # Each component that is kept costs its error, each that is left out its variance.
            totals = (errors - system.variances).cumsum(0)
            number = operator.n_components
            kept = int(totals.argmin()) + 1 if isinstance(number, str) else operator.checked()
            total = totals[min(kept, len(totals)) - 1] + system.variances.sum()
        else:
            total = errors.sum()
        value = float(total + system.missed) / self.regression.weight
        return value if math.isfinite(value) else math.inf, kept

    def choose(self, alpha: float | np.ndarray | None) -> tuple[Choice, DiagonalRegression]:
        """The operator and the alpha of least leave-one-out error in the RKHS of the outputs, and their system.

        What is given stays; an alpha of None is looked for on a grid that is refined, epsilon on one that is not, the
        number of components among all.
        """
        best: tuple[float, Operator | None, LeaveOneOutErrors, Tensor] | None = None
        for operator in self.operators():
            errors = LeaveOneOutErrors(self, self._whole(operator))
            grid = (
                self.alphas(errors.system)
                if alpha is None
                else self.model.like.new_tensor(np.atleast_1d(alpha))
            )
            value = best_alpha(errors, grid, refine=False)[1]
            if best is None or value < best[0]:
                best = value, operator, errors, grid
        assert best is not None
        _, operator, errors, grid = best
        number, value = best_alpha(errors, grid, refine=alpha is None, size=FINE)
        system, kept = errors.system, errors.known[number][1]
        if kept is not None:
            operator, system = PrincipalComponents(kept), system.leading(kept)
        return Choice(operator, number, value), system

    def _whole(self, operator: Operator | None) -> DiagonalRegression:
        """The regression under an operator, with all principal components."""
        return self.regression.under(
            PrincipalComponents("auto") if isinstance(operator, PrincipalComponents) else operator
        )

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, choice: Choice, system: DiagonalRegression | None = None) -> EmbeddingFunction:
        """The function g at chosen numbers; without a system and with the identity, by a Cholesky factor."""
        by_cholesky = choice.model is None and not self.inputs.by_factor and system is None
        if system is None and not by_cholesky:
            system = self.regression.under(choice.model)
        model, alpha, outputs = self.model, choice.alpha, self.outputs
        output = original(model.output_kernel)
        if outputs.anchored:
            weights = self.inputs.solve(self.inputs.weight * alpha) if system is None else system.dual(alpha)
            dual = self.inputs.place(self._known(weights))
            return EmbeddingFunction(
                output, self.stored[1], self._expansion(dual, self._mean_weights(dual)), model.outputs
            )
        if system is None:
            theta = self.inputs.place(self.inputs.solve(self.inputs.weight * alpha, self.coordinates))
        else:
            theta = system.coordinates(alpha)
            theta = theta if self.summed is not None else self.inputs.place(theta)
        mean = None if self.mean is None else self.mean.to(theta)
        if outputs.features is None:
            return EmbeddingFunction(output, None, self._function(theta, mean), model.outputs)
        assert model.approximation is not None
        landmarks = StoredFeatures.of(model.approximation[1], outputs.features, model.outputs)
        return EmbeddingFunction(
            output, landmarks.landmarks, self._function(theta, mean), model.outputs, landmarks
        )

    def _function(self, theta: Tensor, mean: Tensor | None) -> Expansion | FeatureFunction:
        """The coordinates of g: sums over the samples, or functions of the features of an approximation."""
        if self.inputs.features is None:
            return self._expansion(theta, mean)
        assert self.model.approximation is not None
        features = StoredFeatures.of(
            self.model.approximation[0], self.inputs.features, self.model.representation
        )
        return FeatureFunction(
            features, plain(theta, copy=True), None if mean is None else plain(mean, copy=True)
        )

    def _expansion(self, coefficients: Tensor, constant: Tensor | None) -> Expansion:
        kernel = Decomposable(original(self.model.kernel))
        b = None if constant is None else plain(constant, copy=True)
        return Expansion(kernel, self.stored[0], plain(coefficients), b, self.model.representation)

    def _known(self, weights: Tensor) -> Tensor:
        """Weights (p, n) of the outputs' √w φ, as weights of the outputs themselves."""
        weights = weights if self.inputs.root is None else weights * self.inputs.root
        mean = self._mean_weights(weights)
        weights = weights if mean is None else weights - weights.sum(1, keepdim=True) * mean
        kept = self.outputs.made[1] if "made" in vars(self.outputs) else None
        return weights if kept is None else (weights @ kept) @ kept.mT

    def _mean_weights(self, like: Tensor) -> Tensor | None:
        """The weights (n,) of the n outputs in their mean; None where it is not taken away."""
        if not self.model.fit_intercept:
            return None
        w = self.inputs.weights
        return (like.new_ones(self.inputs.n) if w is None else self.inputs.known(w)) / self.inputs.weight

    # -- what is left out ---------------------------------------------------------------------------------------------
    def left_out(
        self, function: EmbeddingFunction, choice: Choice, system: DiagonalRegression | None
    ) -> Embedding:
        """The leave-one-out predictions for the samples, or for those that are held (``held_rows``)."""
        system = self.regression.under(choice.model) if system is None else system
        root = self.inputs.root if self.summed is None else self.summed.root
        if self.outputs.anchored:
            weights = system.left_out_dual(choice.alpha, self.groups)
            weights = self._known(weights if root is None else weights / root[:, None])
            offset = self._mean_weights(weights)
            return function.element(weights if offset is None else weights + offset)
        coordinates = system.left_out_coordinates(choice.alpha, self.groups)
        coordinates = coordinates if root is None else coordinates / root[:, None]
        return function.element(
            self.outputs.weigh(coordinates if self.mean is None else coordinates + self.mean.to(coordinates))
        )

    def operator_root(
        self, operator: Operator | None, system: DiagonalRegression | None = None
    ) -> Tensor | None:
        """The F (anchors of outputs × s) with A = Σ_s f_s ⊗ f_s, f_s = Σ_j F_js φ(y_j); None if A is the identity."""
        if operator is None:
            return None
        system = self.regression.under(operator) if system is None else system
        a, Q = system.values, system.vectors
        if not self.outputs.anchored:
            assert Q is not None
            return self.outputs.weigh((Q * a.sqrt()).mT).mT
        assert system.expand is not None
        known = a > len(a) * torch.finfo(a.dtype).eps * a.max()
        scale = torch.where(known, torch.where(known, a, 1.0).rsqrt(), 0.0)
        return self._known((system.expand(system) * scale).mT).mT


class LeaveOneOutErrors:
    """The errors of a system for many values of alpha; each is computed once."""

    def __init__(self, problem: StructuredProblem, system: DiagonalRegression):
        self.problem = problem
        self.system = system
        self.known: dict[float, tuple[float, int | None]] = {}

    def __call__(self, alphas: Tensor) -> Tensor:
        """The mean squared errors, (a,)."""
        for alpha in alphas.tolist():
            if alpha not in self.known:
                self.known[alpha] = self.problem.error(self.system, alpha)
        return alphas.new_tensor([self.known[alpha][0] for alpha in alphas.tolist()])


def structured_problem(
    model: StructuredModel, pairs: Pairs, source: Samples | None = None
) -> StructuredProblem:
    """The problem of samples in memory, or by sums of all samples of a source."""
    if source is not None:
        return summed_problem(model, source, pairs)
    stored = (pairs.inputs, pairs.outputs)
    return StructuredProblem(model, _inputs(model, pairs), _outputs(model, pairs.Y), stored, pairs.groups)


def guard_memory(model: StructuredModel, pairs: Pairs, *, chooses: bool) -> None:
    """Estimate what a fit needs before anything of size n × n exists."""
    n = count(pairs.X)
    if model.approximation is None:
        # Measured peaks, in matrices: a Cholesky factor and its inverse; two eigendecompositions with products.
        direct = model.operator is None and model.output_kernel.domain == "vectors" and not chooses
        elements, advice = (
            (3 if direct else 10) * n**2,
            "Use approximation=Nystroem(m), fewer samples or dtype='float32'.",
        )
    elif pairs.labelled is None:  # by sums, which ask for themselves
        return
    else:
        elements, advice = 4 * n * sum(a.size(n) for a in model.approximation), "Use fewer landmarks."
    needed = elements * model.representation.dtype.itemsize
    if needed > BLOCK_BYTES:  # less is not worth the question
        require(needed, what=f"A fit to {n} samples", advice=advice)


# -- sums -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SummedSamples:
    """All samples as their sums, and those that can be left out.

    Parameters
    ----------
    sums : NormalSums
        Of the features of inputs and outputs.
    features, targets : FeatureMap, and FeatureMap or None
        These features; None for vectors in their own coordinates.
    held : Block
        The samples that can be left out.
    held_rows : ndarray of int
        Their numbers among the samples that the learner keeps.
    """

    sums: NormalSums
    features: FeatureMap
    targets: FeatureMap | None
    held: Block
    held_rows: np.ndarray

    @property
    def scale(self) -> float:
        """The mean k(x, x) of the features."""
        return float(self.sums.gram.diagonal().sum() / self.sums.weight)

    @property
    def root(self) -> Tensor | None:
        """√w of the samples that can be left out."""
        return None if self.held.weights is None else self.held.weights.sqrt()

    def regression(self, mean: Tensor | None) -> OutputRegression:
        """The regression whose few rows stand for all samples."""
        dtype = self.features.dtype
        middle = torch.zeros_like(self.sums.target_sum) if mean is None else mean
        rows, B = summed_regression(self.sums, middle, dtype=dtype)
        with torch.no_grad():
            Y = self.held.Y if self.targets is None else self.targets(self.held.Y)
            R = (Y.double() - middle).to(dtype)
            weights = None if self.held.weights is None else self.held.weights.to(dtype)
            return replace(rows, held=HeldOutputs(self.features(self.held.X) @ B.mT, R, weights))


def sum_samples(
    model: StructuredModel, source: Samples, features: FeatureMap, targets: FeatureMap | None
) -> NormalSums:
    """The sums of the features of all samples."""
    width = source.rows(np.arange(1)).Y.shape[1] if targets is None else targets.n_features
    limit = block_limit(model.memory_limit, features.n_features, width)
    total: NormalSums = source.total(NormalStep(features, targets), limit=limit)
    return total


def summed_problem(model: StructuredModel, source: Samples, pairs: Pairs) -> StructuredProblem:
    """The regression of all samples on features of inputs and outputs, from one pass over them."""
    assert model.approximation is not None
    of_inputs, of_outputs = model.approximation
    features = independent(
        of_inputs.choose(model.kernel, source.rows(of_inputs.rows(source.n, model.seed)).X, model.seed)
    )
    targets = None
    if not model.on_axes(pairs.Y):
        some = source.rows(of_outputs.rows(source.n, model.seed)).Y
        targets = independent(of_outputs.choose(model.adapted_output, some, model.seed))
    sums = sum_samples(model, source, features, targets)
    known, held = known_rows(source, model.seed), source.random_rows(rows.HELD_ROWS, model.seed)
    return problem_of_sums(
        model, SummedSamples(sums, features, targets, source.rows(held), np.searchsorted(known, held))
    )


def known_rows(source: Samples, seed: int) -> np.ndarray:
    """The samples that the learner keeps."""
    return source.random_rows(rows.KNOWN_ROWS, seed)


def problem_of_sums(model: StructuredModel, summed: SummedSamples) -> StructuredProblem:
    """The problem of summed samples."""
    outputs = Outputs(lambda: (summed.held.Y, None), summed.targets is None, summed.targets)
    return StructuredProblem(
        model,
        Inputs(summed.sums.gram, True, features=summed.features),
        outputs,
        (None, None),
        summed.held.groups,
        summed,
    )


# -- the input kernel -------------------------------------------------------------------------------------------------
def learn_kernel(
    model: StructuredModel,
    pairs: Pairs,
    alpha: float | np.ndarray | None,
    free: list[str],
    settings: SearchSettings,
) -> tuple[Choice, str | None]:
    """What is free in the input kernel, by gradients of the leave-one-out error, and why the search ended early if so.

    The operator stays that of the kernel where the search starts; the fit computes it anew.
    """
    exact = replace(model, approximation=None)
    pairs = pairs.sample(model, rows.STRUCTURED_ROWS // 2)
    best: tuple[Choice, DiagonalRegression, Kernel] | None = None
    for candidate in rescaled(model.kernel, free, FACTORS):
        choice, system = structured_problem(replace(exact, kernel=candidate), pairs).choose(alpha)
        if best is None or choice.value < best[0].value:  # type: ignore[operator]
            best = choice, system, candidate
    assert best is not None
    choice, system, kernel = best
    if isinstance(model.operator, PrincipalComponents) and model.is_open:
        system = system.regression.identity()  # how many components there are is decided after the search
    # As a matrix, because the coordinates of a diagonal operator would be searched one by one.
    operator = Dense(np.diag(plain(system.values))) if len(system.values) > 1 else None
    Z, weights = system.Z, None
    if pairs.weights is not None:
        Z, weights = Z / pairs.weights.sqrt()[:, None], pairs.weights * (len(Z) / pairs.weights.sum())
    criterion = CrossValidation(pairs.X, Z, weights=weights, groups=pairs.groups)
    whole = Decomposable(searched(kernel, pairs.X), operator)
    packing, raw = whole.packing([f"kernel__{name}" for name in free])
    raw = raw.to(Z)
    fixed = alpha is not None  # of candidates, the one that is best where the search starts
    start = raw if fixed else torch.cat([raw, raw.new_tensor([choice.alpha]).log()])

    def unpack(point: Tensor) -> tuple[Decomposable, Tensor]:
        moved = whole.replace(packing.unpack(point[: packing.size]))
        if fixed:
            return moved, point.new_tensor(choice.alpha)
        return moved, smallest_alpha(moved, pairs.X, Z) + point[-1].exp()

    def log_error(point: Tensor) -> Tensor:
        """The logarithm, so that stopping rules mean the same whatever the units of the targets."""
        return criterion(*unpack(point)).clamp(min=torch.finfo(point.dtype).tiny).log()

    def value_and_gradient(points: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = zip(*(_differentiate(log_error, point) for point in points), strict=True)
        return torch.stack(values), torch.stack(gradients)

    result = minimise(value_and_gradient, start, settings)
    with torch.no_grad():
        learned, number = unpack(result.point)
    history = [entry._replace(value=math.exp(entry.value)) for entry in result.history]
    kernel = original(learned.kernel).numbers()
    return Choice(
        kernel, number.item(), math.exp(result.value), history
    ), None if result.converged else result.message


def _differentiate(function: Callable[[Tensor], Tensor], point: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient at a point; NaN where the kernel cannot be factored."""
    variable = point.detach().clone().requires_grad_()
    try:
        with torch.enable_grad():
            value = function(variable)
        if not value.requires_grad:  # a kernel that does not depend on what is learned
            return value, torch.zeros_like(point)
        (gradient,) = torch.autograd.grad(value, variable)
    except NotPositiveDefiniteError:
        return point.new_tensor(torch.nan), torch.full_like(point, torch.nan)
    return value.detach(), gradient


def rescaled(kernel: Kernel, free: list[str], factors: Sequence[float]) -> Iterator[Kernel]:
    """The kernel with what is free and positive divided by each of some factors; itself if nothing is."""
    packing, raw = kernel.packing(free)
    sizes = [packing.shapes[name].numel() for name in packing.shapes]
    positive = [isinstance(packing.constraints[name], Positive) for name in packing.shapes]
    shift = raw.new_tensor([float(p) for p, size in zip(positive, sizes, strict=True) for _ in range(size)])
    for factor in factors if bool(shift.any()) else (1.0,):
        yield kernel.replace(packing.unpack(raw - math.log(factor) * shift)).numbers()


# -- by the task ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Task:
    """How decoded predictions are judged.

    Parameters
    ----------
    decoder : Decoder
        What makes objects, before it knows the training outputs.
    loss : callable
        (output kernel, train rows, test rows, predictions) -> a number, or one for each of the test rows.
    splits : list of pairs of int arrays
        Train and test rows among the samples that have an output.
    verbose : int
        1 shows progress.
    """

    decoder: Decoder
    loss: Callable[[Kernel, np.ndarray, np.ndarray, Any], Any]
    splits: list[tuple[np.ndarray, np.ndarray]]
    verbose: int = 0


def choose_by_task(
    model: StructuredModel,
    pairs: Pairs,
    source: Samples | None,
    alpha: float | np.ndarray | None,
    free: list[str],
    task: Task,
) -> tuple[StructuredProblem, Choice, str | None]:
    """The numbers of least task loss, those of the output kernel included, their problem, and what interrupted it."""
    best: tuple[StructuredProblem, Choice] | None = None
    for output in rescaled(model.output_kernel, free, OUTPUT_FACTORS):
        try:
            problem = structured_problem(replace(model, output_kernel=output), pairs, source)
            choice = validate(problem, pairs, alpha, task, keep_partial=best is None)
        except KeyboardInterrupt:
            if best is None:
                raise
            return *best, "The search over output kernels was interrupted: the best so far is kept."
        if best is None or choice.value < best[1].value:  # type: ignore[operator]
            best = problem, choice
        if choice.interrupted:
            return *best, "The search by the task's loss was interrupted: the folds so far decide."
    assert best is not None
    return *best, None


def validate(
    problem: StructuredProblem,
    pairs: Pairs,
    alpha: float | np.ndarray | None,
    task: Task,
    *,
    keep_partial: bool,
) -> Choice:
    """The setting of least task loss over the folds; the number of components is that of least leave-one-out error.

    An interrupt ends it: with ``keep_partial`` the folds so far decide, if there are any.
    """
    settings: list[tuple[Operator | None, float]] = []
    for operator in problem.operators():
        system = problem._whole(operator)
        for number in problem.alphas(system).tolist() if alpha is None else np.atleast_1d(alpha).tolist():
            kept = problem.error(system, number)[1] if problem.model.is_open else None
            settings.append((operator if kept is None else PrincipalComponents(kept), number))
    totals, seen, interrupted = np.zeros(len(settings)), 0.0, False
    known = None if pairs.weights is None else plain(pairs.weights[pairs.rows])
    with Monitor(None, task.verbose, len(task.splits) * len(settings), "task loss") as monitor:
        for train, test in task.splits:
            weights = np.ones(len(test)) if known is None else known[test]
            try:
                losses = _fold_losses(problem.model, pairs, settings, task, train, test, weights, monitor)
            except KeyboardInterrupt:
                if not (seen and keep_partial):
                    raise
                interrupted = True
                break
            totals += weights.sum() * losses
            seen += weights.sum()
    totals /= max(seen, np.finfo(float).tiny)
    if not np.isfinite(totals).any():
        raise ValueError("task_loss is not finite for any alpha; check what it returns.")
    equal = np.flatnonzero(totals == np.nanmin(np.where(np.isfinite(totals), totals, np.nan)))
    best = int(equal[len(equal) // 2])  # losses of discrete objects tie: the middle of them is safest
    return Choice(*settings[best], float(totals[best]), interrupted=interrupted)


def _fold_losses(
    model: StructuredModel,
    pairs: Pairs,
    settings: list[tuple[Operator | None, float]],
    task: Task,
    train: np.ndarray,
    test: np.ndarray,
    weights: np.ndarray,
    monitor: Monitor,
) -> np.ndarray:
    """The mean loss of each setting on one fold: one eigendecomposition for each epsilon."""
    if model.approximation is not None:  # a fold may have fewer samples than landmarks were asked for
        one, two = (
            Nystroem(a.at_most(len(train)), a.sampling) if isinstance(a, Nystroem) else a
            for a in model.approximation
        )
        model = replace(model, approximation=(one, two))
    fold = pairs.subset(model, torch.from_numpy(train))
    rows = pairs.rows
    columns = rows[train] if model.kernel.domain == "gram" else None
    X_test = _part(pairs.inputs, rows[test], columns)
    problem = structured_problem(model, fold, samples_of(fold) if model.approximation is not None else None)
    decoder = task.decoder.resolve(model.output_kernel, fold.outputs)
    losses: list[float] = []
    whole, operator = None, None
    for chosen, alpha in settings:
        if whole is None or not (chosen == operator or isinstance(chosen, PrincipalComponents)):
            whole, operator = problem._whole(chosen), chosen
        system = whole.leading(chosen.checked()) if isinstance(chosen, PrincipalComponents) else whole
        choice = Choice(chosen, alpha)
        function = problem.solve(choice, system)
        fitted = calibrated(decoder, problem, function, choice, system, fold.outputs)
        predicted = fitted.decode(function.embedding(X_test), X_test)
        losses.append(mean_loss(task.loss(model.output_kernel, train, test, predicted), weights))
        monitor(len(monitor.history) + 1, losses[-1], math.nan, 1)
    return np.array(losses)


def samples_of(pairs: Pairs) -> Samples:
    """The samples as sums read them."""
    return InMemory(Block(pairs.X, pairs.Y, pairs.weights, pairs.groups))


def calibrated(
    decoder: Decoder,
    problem: StructuredProblem,
    function: EmbeddingFunction,
    choice: Choice,
    system: DiagonalRegression | None,
    outputs: Any,
) -> Decoder:
    """The decoder with its thresholds chosen on leave-one-out predictions, if it has some."""
    if type(decoder).calibrate is Decoder.calibrate:
        return decoder
    if problem.summed is not None:
        outputs = take(outputs, torch.from_numpy(problem.summed.held_rows))
    return decoder.calibrate(problem.left_out(function, choice, system), outputs)


def mean_loss(losses: Any, weights: np.ndarray) -> float:
    """The mean of what a task loss has returned: a number, or one for each sample."""
    try:
        values = np.asarray(plain(losses), dtype=np.float64)
        return float(
            np.average(values, weights=weights) if values.shape == weights.shape else np.mean(values)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"task_loss must return a number, or one for each sample; it returned {losses!r:.80}."
        ) from error
