"""Autoencoders as deep problems: where reconstructions live, batches of samples, restarts where codes collapse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from representer.functions import Chain, Composed, Expansion, FieldState, Layer
from representer.functions.chain import pivot_candidates
from representer.kernels import Functional, Kernel, Linear
from representer.linalg import Cholesky, factorize, pivoted_cholesky, row_blocks, shifted
from representer.operators import Decomposable, Identity, OperatorKernel, Representation, original
from representer.optimize import OptimizeResult, SearchSettings, adam
from representer.preimage import combination, is_linear
from representer.problems.composition import Composition, DeepProblem, KnownTargets, flat, random_starts
from representer.problems.deep import (
    DeepChoice,
    DeepModel,
    DeepRegression,
    DeepSolution,
    InnerSolution,
    Restore,
    leave_one_out_path,
)
from representer.problems.norm_bounds import BoundedProblem, norm_multiplier
from representer.samples import Data, Samples, SparseRows, count, plain, take
from representer.values import is_real

# Codes between which the decoder's kernel is compared to estimate how fast it changes.
SOME_CODES = 500
# The penalties with which words in kernels are decided where norms are bounded.
FIRST_PENALTY = 1e-3
# The rounding of a mean of vectors, squared, in units of the rounding of one coordinate.
ROUNDED_COORDINATES = 64.0
# What bounds of norms may be: their squares, and the multipliers that belong to them, are numbers of double precision.
NORM_BOUNDS = (1e-100, 1e100)


@dataclass(frozen=True)
class GeneralizationBound:
    """ε(ĥ) − ε* ≤ C₀ · complexity + confidence, with probability 1 − delta.

    ``complexity`` = L M s t √(K p / n), ``confidence`` = 24 M² √(log(2/δ) / (2n)). The paper proves that a universal C₀
    exists but not how large it is; the other constants are estimated on the training data.

    Attributes
    ----------
    complexity, confidence : float
        The two terms, the first without C₀.
    M : float
        The largest norm of a sample in the target space.
    K : float
        The largest Tr K₁(x, x)/p of the encoder's kernel.
    L : float
        How fast the decoder's kernel changes: the largest Tr(K₂(z, z) − 2K₂(z, z') + K₂(z', z'))/‖z − z'‖², as a root.
        The trace is over the coordinates of the target space that the training data span.
    s, t : float
        The norms of encoder and decoder; a constant that was fitted with it is not counted.
    p, n : int
        The size of the code and the number of samples.
    delta : float
        The probability that the bound fails.
    """

    complexity: float
    confidence: float
    M: float
    K: float
    L: float
    s: float
    t: float
    p: int
    n: int
    delta: float

    def __call__(self, C0: float) -> float:
        """The bound for a value of the unknown constant."""
        return C0 * self.complexity + self.confidence


@dataclass(frozen=True)
class BoundData:
    """What the bound needs of the training data."""

    n: int
    M: float
    K: float
    L: float

    @classmethod
    def of(cls, functions: Sequence[Expansion], images: Sequence[Any], norms: Tensor, r: int) -> BoundData | None:
        """The estimates; None for more than two functions, of which the theorem does not speak."""
        if len(functions) != 2:
            return None
        encoder, decoder = functions
        p = encoder.coefficients.shape[-1]
        K = encoder.kernel.diag(images[0], p).mean(1).max().item()
        return cls(len(norms), norms.max().clamp(min=0.0).sqrt().item(), K, _lipschitz(decoder, images[1], r))


def _lipschitz(decoder: Expansion, codes: Tensor, r: int) -> float:
    Z = codes[:: max(1, len(codes) // SOME_CODES)]
    kernel = decoder.kernel
    if not isinstance(kernel, Decomposable):
        return math.nan
    gram = kernel.kernel._gram(Z, None)
    diagonal = gram.diagonal()
    change = diagonal[:, None] + diagonal - 2.0 * gram
    apart = torch.cdist(Z, Z).square()
    usable = apart > torch.finfo(Z.dtype).eps ** 0.5 * apart.max()
    if not bool(usable.any()):
        return math.nan
    trace = kernel._operator.as_matrix(r, gram).trace().item()
    return math.sqrt(trace * (change[usable] / apart[usable]).max().clamp(min=0.0).item())


def estimated_bound(functions: Sequence[Expansion], data: BoundData | None, delta: float) -> GeneralizationBound:
    """The bound of fitted functions."""
    if not (is_real(delta) and 0 < delta < 1):
        raise ValueError(f"delta must be a probability between 0 and 1; got {delta!r}.")
    if data is None:
        raise ValueError(
            "The bound is a theorem on one encoder and one decoder; this autoencoder has more layers. Give "
            "n_components as a number."
        )
    encoder, decoder = functions
    s, t = (math.sqrt(max(f.squared_norm().item(), 0.0)) for f in (encoder, decoder))
    p, n, M = encoder.coefficients.shape[-1], data.n, data.M
    complexity = data.L * M * s * t * math.sqrt(data.K * p / n)
    confidence = 24.0 * M**2 * math.sqrt(math.log(2.0 / delta) / (2.0 * n))
    return GeneralizationBound(complexity, confidence, M, data.K, data.L, s, t, p, n, float(delta))


@dataclass(frozen=True)
class FeatureSpace:
    """ℝᵈ: the coordinates of vectors are their differences from a point.

    Parameters
    ----------
    origin : array (d,) or None
        That point; None for zero. Near the data, differences keep the digits that coordinates far from zero would lose.
    """

    origin: np.ndarray | None = None

    @classmethod
    def around(cls, X: Tensor) -> FeatureSpace:
        """The space with the medians of vectors as its origin: numbers of the data, whose differences are exact."""
        return cls(plain(X.median(0).values, copy=True))

    def coordinates(self, X: Tensor, gram: Tensor | None = None) -> Tensor:
        """The differences of vectors from the origin."""
        return X if self.origin is None else X - torch.as_tensor(self.origin).to(X)

    def vectors(self, values: Tensor) -> Tensor:
        """The vectors with these coordinates."""
        return values if self.origin is None else values + torch.as_tensor(self.origin).to(values)

    def stored(self, representation: Representation) -> FeatureSpace:
        """The space as a learner keeps it."""
        return self

    def squared_norms(self, X: Tensor) -> Tensor:
        """The squared norms ‖x_i‖² of the vectors."""
        return X.square().sum(-1)

    def squared_distances(self, X: Tensor, values: Tensor, norms: Tensor) -> Tensor:
        """‖x − v‖² of vectors with these coordinates, row by row, without cancellation."""
        return (self.coordinates(X) - values).square().sum(-1)

    @staticmethod
    def rounding(norm: float, eps: float) -> float:
        """The squared distance that rounding makes of vectors with this squared norm."""
        return ROUNDED_COORDINATES * eps**2 * norm


@dataclass(frozen=True)
class KernelSpace:
    """The RKHS of a kernel, as far as the training samples span it.

    Parameters
    ----------
    kernel : Kernel
        With numbers for all hyperparameters.
    pivots : tensor of int
        The samples that span it.
    points : prepared data
        Those samples; of Gram rows, all of them.
    cholesky : Cholesky
        Of k(P, P).
    of_gram : bool
        Was it made from a Gram matrix of objects that the encoder works with, too?
    """

    kernel: Kernel
    pivots: Tensor
    points: Data
    cholesky: Cholesky
    of_gram: bool = False

    def stored(self, representation: Representation) -> StoredSpace:
        """The space as a learner keeps it, in memory of its own."""
        points = plain(self.points, copy=True)
        pivots, factor = plain(self.pivots, copy=True), plain(self.cholesky.factor, copy=True)
        return StoredSpace(self.kernel, pivots, points, factor, representation)

    @classmethod
    def of(
        cls, kernel: Kernel, X: Data, like: Tensor, *, gram: Tensor | None = None, max_rank: int | None = None
    ) -> KernelSpace:
        """The span of prepared data; with ``max_rank`` of so many of them at most, and no n × n matrix is made.

        ``like`` has the precision and device of the coordinates, ``gram`` is k(X) if it is known.
        """
        rows = torch.arange(count(X))
        of_gram = gram is not None
        if gram is None:
            rows = rows if kernel.domain == "gram" else pivot_candidates(rows, max_rank)
            gram = kernel._gram(X if len(rows) == count(X) else take(X, rows), None)
        gram = gram.to(like)
        rounding = len(gram) * torch.finfo(gram.dtype).eps
        _, spanning = pivoted_cholesky(gram, tol=rounding, max_rank=max_rank)
        if not len(spanning):
            raise ValueError(
                f"{kernel!r} is zero for all samples: in its RKHS there is nothing to reconstruct. Check the data, or "
                "choose another kernel."
            )
        cholesky = factorize(gram[spanning[:, None], spanning], name="The Gram matrix of the reconstruction space")
        pivots = rows[spanning]
        return cls(kernel, pivots, X if kernel.domain == "gram" else take(X, pivots), cholesky, of_gram)

    def _cross(self, X: Data) -> Tensor:
        if self.kernel.domain == "gram":
            return X[:, self.pivots]
        return self.kernel._gram(X, self.points)

    def coordinates(self, X: Data, gram: Tensor | None = None) -> Tensor:
        """k(x, P) L⁻ᵀ, (n, r), block by block; of the training samples from k(X), if that is known (and repaired)."""
        like = self.cholesky.factor
        if gram is not None and self.of_gram:
            return self.cholesky.half_solve(gram[self.pivots].to(like)).mT
        values = like.new_empty(count(X), len(self.pivots))
        for rows in row_blocks(len(values), len(self.pivots) * like.element_size()):
            values[rows] = self.cholesky.half_solve(self._cross(X[rows]).to(like).mT).mT
        return values

    def squared_norms(self, X: Data) -> Tensor:
        """The squared norms k(x_i, x_i) of the images."""
        return self.kernel._diag(X).to(self.cholesky.factor)

    def squared_distances(self, X: Data, values: Tensor, norms: Tensor) -> Tensor:
        """‖φ(x) − v‖² of elements v with these coordinates, row by row; ``norms`` are k(x, x)."""
        cross = (self.coordinates(X) * values).sum(-1)
        return norms - 2.0 * cross + values.square().sum(-1)

    @staticmethod
    def rounding(norm: float, eps: float) -> float:
        """The squared distance that rounding makes of elements with this squared norm, which cancel."""
        return eps * norm

    def weights(self, values: Tensor) -> Tensor:
        """The w of Σ_j w_j φ(p_j) that has these coordinates, (n, r)."""
        return torch.linalg.solve_triangular(self.cholesky.factor.mT, values.mT, upper=True).mT

    @property
    def is_linear(self) -> bool:
        """Has every element a pre-image?"""
        return is_linear(self.kernel)

    def combine(self, values: Tensor) -> Any:
        """The vectors, or curves with times of their own, Σ_j w_j p_j with these coordinates."""
        return combination(self.kernel, self.points, self.weights(values))


@dataclass(frozen=True)
class StoredSpace(FieldState):
    """A ``KernelSpace`` of arrays; the tensors are made when they are first asked for."""

    kernel: Kernel
    pivots: np.ndarray
    points: Data
    factor: np.ndarray
    representation: Representation

    @cached_property
    def loaded(self) -> KernelSpace:
        """The space of tensors."""
        how = self.representation
        factor = how.tensor(self.factor)
        points = how.inputs(self.kernel, self.points)
        cholesky = Cholesky(factor, factor.new_zeros(()))
        return KernelSpace(self.kernel, torch.from_numpy(self.pivots), points, cholesky)


TargetSpace = FeatureSpace | KernelSpace


@dataclass(frozen=True)
class TargetStatistics:
    """What is known of the training samples in the target space.

    Parameters
    ----------
    centre : array (r,)
        Their mean.
    mean_squared_norm : float
    constant_norm : float or None
        k(x, x), where all samples have the same.
    variance : float
        Their mean squared distance from the centre.
    """

    centre: np.ndarray
    mean_squared_norm: float
    constant_norm: float | None
    variance: float

    @classmethod
    def of(
        cls, space: TargetSpace, X: Data, coordinates: Tensor, norms: Tensor, weights: Tensor | None
    ) -> TargetStatistics:
        """The statistics of prepared data with weights of mean one."""
        w = torch.ones_like(norms) if weights is None else weights
        centre = (w[:, None] * coordinates).mean(0)
        mean = (w * norms).mean().item()
        spread = (norms.max() - norms.min()).item()
        constant = spread <= len(norms) * torch.finfo(norms.dtype).eps * abs(mean)
        variance = (w * space.squared_distances(X, centre[None], norms)).mean().item()
        return cls(plain(centre, copy=True), mean, mean if constant else None, variance)


def explained(space: TargetSpace, distortion: float, variance: float, norms: Tensor) -> float:
    """1 − distortion / variance; where there is no variance beyond rounding, 1 or 0. ``norms`` are those of samples."""
    eps, norm = torch.finfo(norms.dtype).eps, norms.abs().mean().item()
    if variance <= space.rounding(norm, eps):
        return 1.0 if distortion <= eps**0.5 * norm else 0.0
    return 1.0 - distortion / variance


def components_for(coordinates: Tensor, share: float) -> int:
    """The least number of principal components that keep a share of the variance."""
    variances = torch.linalg.svdvals(coordinates - coordinates.mean(0)).square()
    shares = variances.cumsum(0) / variances.sum()
    return int((shares < share * (1.0 - torch.finfo(shares.dtype).eps * len(shares))).sum().item()) + 1


def kernel_of_target(target: object, kernel: Kernel | None, *, sparse: bool) -> Kernel | None:
    """The kernel whose RKHS is meant by ``target``; None where vectors are reconstructed as they are."""
    if isinstance(target, Kernel):
        return target
    domain = "vectors" if kernel is None else kernel.domain
    dense = domain == "vectors" and not sparse
    if target == "features" or (target == "auto" and dense and not isinstance(kernel, Functional)):
        if not dense:
            raise ValueError(
                f"target='features' reconstructs dense vectors, but {kernel!r} takes "
                f"{'sparse ones' if sparse else repr(domain)}. Use target='kernel': reconstructions in its RKHS."
            )
        return None
    if kernel is None:
        raise ValueError(
            "target='kernel' is the RKHS of a scalar kernel; this one is operator-valued. Give the kernel of the "
            "reconstructions itself: target=Gaussian(…)."
        )
    if target == "auto" and isinstance(kernel, Functional):  # curves, with the inner product of L²
        return kernel.with_kernel(Linear())
    return kernel


# Codes whose spread is this share of that of kernel PCA are a constant: the encoder's penalty has won.
COLLAPSED = 1e-3
# Data differ by less than so many powers of two, either way: their squares, and shares of these, are penalties.
POWERS = {torch.float64: 400, torch.float32: 50}
# Starts of a second search from where the first has collapsed.
RESCUE_STARTS = 8
# Weights of labels that are compared, and the most iterations of the fits that compare them.
WEIGHTS, LABEL_ITERATIONS = (0.0, 0.3, 1.0, 3.0, 10.0), 60
# A step of Adam moves a coordinate by about this share of the size that coordinates have at the start.
RELATIVE_STEP = 0.1


@dataclass(frozen=True)
class AutoencoderModel(DeepModel):
    """What is fitted: the layers of the composition encode, its outer kernel decodes.

    Parameters
    ----------
    target : {"auto", "features", "kernel"} or Kernel
        Where reconstructions live.
    share : float or None
        Of the variance, which as many components keep as the first layer then has.
    supervision : float or "auto"
        The variance of label columns beside that of the data; "auto" until ``settled`` finds a number.
    batch_size : int or None
        How many samples a step of the search sees; None: all.
    norm_bounds : tuple of float or None
        Bounds of ‖f_l‖ from the input on, the decoder last, in the place of penalties.
    """

    target: str | Kernel = "auto"
    share: float | None = None
    supervision: float | Literal["auto"] = 0.0
    batch_size: int | None = None
    norm_bounds: tuple[float, ...] | None = None

    def bounded(self, bounds: Sequence[float]) -> Self:
        """The model of problem (7) of theorem 1: the least distortion with norms ‖f_l‖ of at most the bounds."""
        layers = [layer.replaced(alpha=FIRST_PENALTY, penalty=None) for layer in self.composition.layers]
        smallest, largest = NORM_BOUNDS
        array = np.asarray(bounds, dtype=object)
        limits = array.tolist() if array.ndim == 1 else []
        numbers = all(is_real(limit) and smallest <= float(limit) <= largest for limit in limits)
        if len(limits) != len(layers) + 1 or not numbers:
            raise ValueError(
                f"norm_bounds must be {len(layers) + 1} positive numbers, one for each function from the input on, the "
                f"decoder last, between {smallest:.0e} and {largest:.0e}; got {bounds!r}."
            )
        composition = Composition(layers, self.composition.kernel, FIRST_PENALTY)
        return replace(self, composition=composition, norm_bounds=tuple(map(float, limits)))

    @property
    def label_weight(self) -> float:
        """The number that supervision is, before it is chosen zero."""
        return 0.0 if isinstance(self.supervision, str) else self.supervision

    @property
    def whole(self) -> bool:
        """Do the inner layers see all samples that are in memory? In batches they do."""
        return super().whole or self.batch_size is not None


@dataclass(frozen=True)
class AutoencoderSolution(DeepSolution):
    """The fitted encoder and decoder.

    Parameters
    ----------
    code_layer : int
        The layer whose values are the codes.
    collapsed : bool
        Are all codes nearly the same, also from other starts?
    optimality_gap : float
        What the Karush-Kuhn-Tucker conditions of bounded norms miss, over the mean squared target; zero without bounds.
    """

    code_layer: int = 0
    collapsed: bool = False
    optimality_gap: float = 0.0


class AutoencoderProblem(DeepRegression):
    """Deep regression of samples on themselves: vectors as they are, anything else in the RKHS of a kernel.

    Parameters
    ----------
    labels : callable, optional
        Numbers of samples -> columns (n, q) that their codes shall serve, NaN where one is missing.
    """

    model: AutoencoderModel

    def __init__(
        self,
        samples: Samples,
        model: AutoencoderModel,
        representation: Representation,
        *,
        seed: int = 0,
        inputs: Data = None,
        labels: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        super().__init__(samples, model, representation, seed=seed, inputs=inputs)
        self.labels = labels

    # -- reconstructions ----------------------------------------------------------------------------------------------
    @cached_property
    def _encoded(self) -> tuple[Composition, Data, Restore]:
        return super()._prepare()

    @property
    def _gram(self) -> Tensor | None:
        """The Gram matrix of objects, which is computed once for encoder and targets."""
        _, data, restore = self._encoded
        return None if restore.kernel is None else data

    @cached_property
    def space(self) -> TargetSpace:
        """The space in which reconstructions live: vectors, or the RKHS of a kernel."""
        restore, data = self._encoded[2], self.data
        kernel = original(self.model.kernel if restore.kernel is None else restore.kernel)
        scalar = kernel.kernel if isinstance(kernel, Decomposable) else None
        target = kernel_of_target(self.model.target, scalar, sparse=isinstance(data, SparseRows))
        if target is None:
            return FeatureSpace.around(data) if self.model.loss.intercept else FeatureSpace()
        if target.domain != kernel.domain:
            raise ValueError(
                f"The target kernel {target!r} takes {target.domain!r}, but the data are {kernel.domain!r} for "
                f"{kernel!r}: both see the same data."
            )
        target = target.resolve(data)
        like = self.representation.tensor(np.zeros(1))
        gram = self._gram if target == scalar else None
        return KernelSpace.of(target, data, like, gram=gram, max_rank=self._max_rank)

    @cached_property
    def coordinates(self) -> Tensor:
        """Those of the samples in the target space, (n, r), of a size whose squares can be penalties."""
        coordinates = self.space.coordinates(self.data, self._gram)
        size = (coordinates - coordinates.mean(0)).abs().max().item() if coordinates.numel() else 0.0
        powers = POWERS[coordinates.dtype]
        if size != 0 and not 2.0**-powers < size < 2.0**powers:  # It may be NaN.
            raise ValueError(
                f"The data differ by up to {size:.1e}, and an autoencoder computes with squares of such differences, "
                "which leave the range of numbers. Scale X, for example by StandardScaler."
            )
        return coordinates

    def _prepare(self) -> tuple[Composition, Data, Restore]:
        composition, data, restore = self._encoded
        if self.model.share is not None:
            first = composition.layers[0].replaced(size=components_for(self.coordinates, self.model.share))
            composition = Composition([first, *composition.layers[1:]], composition.kernel, composition.alpha)
        layers, n = composition.layers, len(self.seen)
        if (size := layers[narrowest(layers)].size) >= n:
            raise ValueError(
                f"n_components={size} must be smaller than the number of samples, {n}: such codes could simply number "
                "the samples."
            )
        scalar = isinstance(composition.kernel, Decomposable) and composition.kernel.operator is None
        if not scalar and (isinstance(self.space, KernelSpace) or self.model.label_weight > 0):
            raise ValueError(
                f"decoder_kernel={composition.kernel!r} has an output operator, which is for vectors. For targets in "
                "an RKHS, or with supervision, give a scalar kernel."
            )
        return composition, data, restore

    def _values(self) -> Tensor:
        """The samples in the target space, and the labels that codes shall serve."""
        if not self.model.label_weight > 0:
            return self.coordinates
        assert self.labels is not None
        columns = self.labels(self.seen.numbers)
        return torch.cat([self.coordinates, scaled_labels(columns, self.coordinates, self.model.label_weight)], 1)

    @property
    def _is_fitted_to_all(self) -> bool:
        """Only decoders into vectors are fitted by sums."""
        return super()._is_fitted_to_all and isinstance(self.space, FeatureSpace) and not self.model.label_weight > 0

    # -- labels -------------------------------------------------------------------------------------------------------
    def settled(self, settings: SearchSettings) -> Self:
        """The problem with a number for the weight of the labels, if that is to be chosen; without labels it is zero.

        It is that of some weights with whose codes a linear ridge regression predicts the labels of held-out samples
        best, and zero unless that pays by more than a standard error. Penalties and widths are learned once, by all
        samples that a search looks at.
        """
        if not isinstance(self.model.supervision, str):
            return self
        if self.labels is None:
            return self._weighted(0.0, self.model.composition)
        middle = self._weighted(WEIGHTS[len(WEIGHTS) // 2], self.model.composition)
        chosen = middle._prepared[2].composition(middle.choose(settings).model)
        seen, rows = self.seen, self.splits.rows
        numbers, some = seen.numbers[rows.numpy()], None if len(rows) == len(seen) else rows
        folds = [(numbers[train.numpy()], numbers[test.numpy()]) for train, test in self.splits.folds(some)]
        errors = {
            weight: torch.cat([self._weighted(weight, chosen)._label_errors(*fold, settings) for fold in folds])
            for weight in WEIGHTS
        }
        return self._weighted(best_weight(errors), self.model.composition)

    def _weighted(self, weight: float, composition: Composition) -> Self:
        """The same problem with a number for the weight of the labels, and maybe numbers for what is learned."""
        model = replace(self.model, supervision=weight, composition=composition)
        options: dict[str, Any] = {"seed": self.seed, "inputs": self.inputs, "labels": self.labels}
        return type(self)(self.samples, model, self.representation, **options)

    def _label_errors(self, train: np.ndarray, test: np.ndarray, settings: SearchSettings) -> Tensor:
        """Squared errors (m,) of the labels of test samples, by codes of a fit to the others, over their variance."""
        part, labels = self.on_rows(train), self.labels
        assert labels is not None
        quick = replace(settings, n_restarts=1, max_iter=min(settings.max_iter, LABEL_ITERATIONS))
        solution = part.solve(part.choose(quick))
        function, layer = solution.function, solution.code_layer + 1
        seen, new = (function.images(function.inputs(X))[layer] for X in (part.stored_inputs, self.unseen(train, test)))
        columns = torch.as_tensor(labels(self.seen.numbers)).to(seen)
        old, fresh = (columns[np.searchsorted(self.seen.numbers, rows)] for rows in (train, test))
        center = old.nanmean(0)
        old, fresh = old - center, fresh - center
        known, asked = ~old.isnan().any(1), ~fresh.isnan().any(1)
        errors = ridge_errors(seen[known], old[known], new[asked], fresh[asked])
        return errors / old[known].square().sum(1).mean()

    # -- the solution -------------------------------------------------------------------------------------------------
    def minimise(
        self, problem: DeepProblem, starts: Tensor, settings: SearchSettings, *, description: str
    ) -> OptimizeResult:
        """Search the inner layers from some starts, in batches and within bounds if the model has them."""
        if self.model.norm_bounds is not None and not isinstance(problem, BoundedProblem):
            bounded = self._bounded(problem)
            result = self.minimise(bounded, bounded.free_coordinates(starts), settings, description=description)
            return replace(result, point=bounded.inside(result.point[None])[0])
        size = self.model.batch_size
        if size is None or problem.landmarks is None or size >= len(problem.rows):
            return super().minimise(problem, starts, settings, description=description)
        return _minimised_in_batches(problem, starts, settings, size, self.seed, description)

    def solve(self, choice: DeepChoice) -> AutoencoderSolution:
        """Encoder and decoder at the chosen hyperparameters; codes in order of variance where they turn freely."""
        generator, collapsed = self._generator(choice.random_state), False
        with self._prepared[2].advice():
            inner = self._inner(choice, generator)
            interrupted = choice.interrupted or (inner.result is not None and inner.result.interrupted)
            if not interrupted and self._has_collapsed(inner):
                inner = self._rescued(inner, choice.settings, generator)
                collapsed = self._has_collapsed(inner)
                inner = self._without_rounding(inner)
        chain, used = inner.problem.chain, inner.problem.composition
        assert chain is not None
        code = narrowest(used.layers)
        after = [*(layer.operator_kernel for layer in used.layers), used.kernel]
        inner = replace(inner, point=ordered(chain, inner.point, code, after[code + 1]))
        if self.model.norm_bounds is None:
            solution, gap = self._finished(choice, inner), 0.0
        else:
            solution, gap = self._finished_within_bounds(choice, inner)
        function = solution.function.first_columns(self.coordinates.shape[1])
        if solution.outer is not None:  # sums over all samples are of the vectors themselves
            function = self._around_origin(function)
        parts = {**vars(solution), "function": function, "norms": [*solution.norms[:-1], function.norm()]}
        return AutoencoderSolution(**parts, code_layer=code, collapsed=collapsed, optimality_gap=gap)

    def _around_origin(self, function: Composed) -> Composed:
        """A function with vectors as its values as one with their coordinates."""
        assert isinstance(self.space, FeatureSpace)
        if self.space.origin is None:
            return function
        return replace(function, outer=replace(function.outer, intercept=function.intercept - self.space.origin))

    def _bounded(self, problem: DeepProblem) -> BoundedProblem:
        """The problem of inner layers with bounds in the place of penalties."""
        assert self.model.norm_bounds is not None
        least_alpha = self._least_alpha(problem.composition, self.model.loss, len(problem.rows))
        # Norms are sums over the inverse of K + n·α: half of the digits of single precision are left at this α.
        rounding = math.sqrt(torch.finfo(problem.Y.dtype).eps) * self._kernel_size(problem.composition)
        return BoundedProblem.of(problem, self.model.norm_bounds, max(least_alpha, rounding / len(problem.rows)))

    def _finished_within_bounds(self, choice: DeepChoice, inner: InnerSolution) -> tuple[DeepSolution, float]:
        """The functions within their bounds, with multipliers as penalties, and what the conditions of a solution miss.

        The decoder's multiplier is that of its last fit, which may be to more samples than the inner layers have seen.
        """
        bounded = self._bounded(inner.problem)
        point = bounded.projected(inner.point)
        optimality = bounded.optimality(point)

        def finished(alpha: float) -> DeepSolution:
            composition = Composition(optimality.composition.layers, optimality.composition.kernel, alpha)
            problem = inner.problem.at(composition)
            value = problem.value(point[None]).item()
            return self._finished(choice, replace(inner, problem=problem, point=point, searched_value=value))

        alpha = norm_multiplier(
            lambda alpha: finished(alpha).norms[-1],
            bounded.bounds[-1],
            start=optimality.composition.alpha,
            least=bounded.least_alpha,
        )
        return finished(alpha), optimality.residual

    def judged(self, function: Composed) -> tuple[TargetStatistics, float, BoundData | None]:
        """What is known of the samples in the target space, their explained variance, and what a bound needs."""
        space, data, weights = self.space, self.data, self.targets.weights
        norms = space.squared_norms(data)
        statistics = TargetStatistics.of(space, data, self.coordinates, norms, weights)
        inner = [f.loaded for f in function.inner]
        images = [data]
        for f in inner:
            images.append(f(images[-1]))
        distortion = space.squared_distances(data, function.at_image(images[-1]), norms)
        distortion = distortion if weights is None else weights * distortion
        share = explained(space, distortion.mean().item(), statistics.variance, norms)
        functions = [*inner, function.outer_expansion().loaded]
        return statistics, share, BoundData.of(functions, images, norms, self.coordinates.shape[1])

    def _rescued(self, inner: InnerSolution, settings: SearchSettings, generator: torch.Generator) -> InnerSolution:
        """The better of collapsed codes and others from random starts, of which some are wider."""
        assert inner.problem.chain is not None
        principal = self.starts(inner.problem, settings.n_restarts, generator)[0]
        starts = random_starts(inner.problem.chain, principal, RESCUE_STARTS, generator)
        result = self.minimise(inner.problem, starts, settings, description="restarts")
        if result.value < inner.value:
            return replace(inner, point=result.point, searched_value=result.value, result=result)
        if result.interrupted and inner.result is not None:  # not the better point, but worth a word
            return replace(inner, result=replace(inner.result, interrupted=True))
        return inner

    def _has_collapsed(self, inner: InnerSolution) -> bool:
        """Are all codes nearly the same, against those of kernel PCA?"""
        principal = self.beginning.image
        assert principal is not None
        return bool(inner.images[-1].std(0).max() <= COLLAPSED * principal.std(0).max())

    def _without_rounding(self, inner: InnerSolution) -> InnerSolution:
        """Zero for layers whose images are, against kernel PCA, no more than rounding: the search cannot see them."""
        chain, principal = inner.problem.chain, self.beginning.image
        assert chain is not None and principal is not None
        least = torch.finfo(principal.dtype).eps * principal.abs().max()
        coordinates = chain.split(inner.point)
        images = chain.images(coordinates)
        layers = [C * bool(Z.abs().max() > least) for C, Z in zip(coordinates, images, strict=True)]
        return replace(inner, point=flat(layers))

    # -- refits -------------------------------------------------------------------------------------------------------
    def with_samples(self, samples: Samples, inputs: Data, rows: np.ndarray) -> Self:
        """The same problem for samples that are these rows of its own, with their labels."""
        labels = self.labels
        own = None if labels is None else (lambda numbers: labels(rows[numbers]))
        return type(self)(samples, self.model, self.representation, labels=own, seed=self.seed, inputs=inputs)

    def held_out(self, folds: Iterable[tuple[np.ndarray, np.ndarray]], settings: SearchSettings) -> list[Tensor]:
        """The squared distances ‖x − f(x)‖² of the test rows of each (train, test) in the target space of a fit without
        them that repeats the search."""
        errors = []
        for train, test in folds:
            part = self.on_rows(train)
            function = part.solve(part.choose(settings)).function
            X = function.inputs(self.unseen(train, test))
            norms = X.new_tensor(self.stored_inputs[test, test]) if self.pairwise else part.space.squared_norms(X)
            errors.append(part.space.squared_distances(X, function.from_image(X, 0), norms))
        return errors


def _minimised_in_batches(
    problem: DeepProblem, starts: Tensor, settings: SearchSettings, batch_size: int, seed: int, description: str
) -> OptimizeResult:
    """A search by Adam on so many samples at a time, each batch with the best decoder for it."""
    with torch.no_grad():  # Adam takes one start: the best for as many samples as a batch has
        few = problem.rows[:: max(1, len(problem.rows) // batch_size)]
        values = problem.restricted(few).value(starts)
    start = starts[torch.where(values.isfinite(), values, torch.inf).argmin()]

    def value_and_gradient(point: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = problem.restricted(rows).value_and_gradient(point[None])
        return values[0], gradients[0]

    result = adam(
        value_and_gradient,
        start,
        n_samples=len(problem.rows),
        batch_size=batch_size,
        learning_rate=RELATIVE_STEP * start.square().mean().sqrt().item(),
        random_state=seed,
        **replace(settings, tol=max(settings.tol, 1e-4)).limits(description),
    )
    with torch.no_grad():  # of all samples: batches have decoders of their own
        return replace(result, value=problem.value(result.point[None]).item())


def ridge_errors(Z: Tensor, Y: Tensor, new: Tensor, truth: Tensor) -> Tensor:
    """Squared errors (m,) of targets that linear ridge regression on Z predicts, with alpha by leave-one-out."""
    center = Z.mean(0)
    Z, new = Z - center, new - center
    alphas, errors = leave_one_out_path(Composition([], Decomposable(Linear()), 1.0), Z, KnownTargets(Y))
    system = shifted(Z @ Z.mT, len(Z) * alphas[errors.argmin()])
    C = factorize(system, name="A ridge regression on codes").solve(Y - Y.mean(0))
    return (truth - Y.mean(0) - new @ (Z.mT @ C)).square().sum(1)


def best_weight(errors: dict[float, Tensor]) -> float:
    """The weight of least mean error (m,), if it is ahead of the weight zero by more than a standard error."""
    best = min(errors, key=lambda weight: float(errors[weight].mean()))
    gain = errors[0.0] - errors[best]
    return best if gain.mean() > gain.std() / len(gain) ** 0.5 else 0.0


def scaled_labels(columns: np.ndarray, coordinates: Tensor, weight: float) -> Tensor:
    """Label columns around their mean, with ``weight`` times the variance of the data; NaN where one is missing."""
    columns = columns - np.nanmean(columns, axis=0)
    variance = np.nanmean(np.square(columns), axis=0).sum()
    if not variance > 0:
        raise ValueError("All labels in y are equal: there is nothing for codes to serve.")
    scale = (coordinates - coordinates.mean(0)).square().sum(1).mean().sqrt()
    return torch.as_tensor(columns / np.sqrt(variance)).to(coordinates) * scale * weight**0.5


def ordered(chain: Chain, point: Tensor, layer: int, after: OperatorKernel) -> Tensor:
    """The same functions with the codes of a layer turned to their principal axes, in order of variance.

    Only where nothing depends on the turn: the layer's own kernel is scalar, and the kernel ``after`` it is invariant.
    The largest code in absolute value of each component is positive.
    """
    coordinates = chain.split(point)
    codes = chain.images(coordinates)[layer]
    kernel = chain.layers[layer].operator_kernel
    scalar = isinstance(kernel, Decomposable) and isinstance(kernel._operator, Identity)
    if not scalar or not _is_turned_freely(after, codes):
        return point
    _, _, Vt = torch.linalg.svd(codes - codes.mean(0), full_matrices=len(codes) < codes.shape[1])
    turned = codes @ Vt.mT
    signs = turned.gather(0, turned.abs().argmax(0, keepdim=True)).sign()
    coordinates[layer] = coordinates[layer] @ (Vt.mT * torch.where(signs == 0, 1.0, signs))
    # Explicit features of a later layer turn with the codes, and its coordinates would have to follow.
    before, behind = (images[layer + 1 :] for images in (chain.images(chain.split(point)), chain.images(coordinates)))
    same = all(_is_close(a, b) for a, b in zip(before, behind, strict=True))
    return flat(coordinates) if same else point


def _is_turned_freely(kernel: OperatorKernel, codes: Tensor) -> bool:
    """Is k(QZ) = k(Z) for an orthogonal Q? Asked of a few codes and one Q that mixes all axes and turns one over."""
    if not isinstance(kernel, Decomposable):
        return False
    some = codes[:: max(1, len(codes) // 20)]
    size = codes.shape[1]
    mixing = torch.ones(size, size, dtype=codes.dtype).cumsum(0).sin() + torch.eye(size, dtype=codes.dtype)
    Q = torch.linalg.qr(mixing).Q
    Q[:, 0] *= -torch.linalg.det(Q).sign()  # a reflection, too: signs are chosen freely
    return _is_close(kernel.kernel._gram(some, None), kernel.kernel._gram(some @ Q.to(codes), None))


def _is_close(a: Tensor, b: Tensor) -> bool:
    """Up to half the digits."""
    return bool((a - b).abs().max() <= torch.finfo(a.dtype).eps ** 0.5 * a.abs().max())


def narrowest(layers: list[Layer]) -> int:
    """The layer whose values are the codes: the first of least size."""
    return min(range(len(layers)), key=lambda i: layers[i].size)
