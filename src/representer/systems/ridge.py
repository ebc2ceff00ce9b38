"""The ridge system that a fitted learner keeps: a value of arrays that factors itself when it is first asked.

``ridge_system`` chooses its kind: nobody else tells exact, summed and iterative fits apart.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from representer.approximation import (
    Approximation,
    Falkon,
    FeatureMap,
    LandmarkFeatures,
    approximation_error,
    landmark_features,
)
from representer.functions import Expansion, FeatureFunction, FieldState, Function, KernelMap, StoredFeatures
from representer.kernels import Linear
from representer.linalg import by_rows, note_residual, room_beside_sums, row_blocks
from representer.notices import NumericalWarning, warn
from representer.operators import (
    Decomposable,
    Operator,
    OperatorKernel,
    Representation,
    original,
    silent_repairs,
)
from representer.samples import Block, Data, HeldSamples, InMemory, Samples, Step, count, plain, take
from representer.samples import rows as limits
from representer.systems.base import Criterion, System, least_shift, shift_range, whole_groups
from representer.systems.exact import IterativeOutputs, RidgeData, factor_system, training_data
from representer.systems.falkon import solve_falkon
from representer.systems.scope import goes_by_sums
from representer.systems.sums import (
    CentredFeatures,
    Frame,
    NormalRidge,
    NormalStep,
    NormalSums,
    SeparateRidge,
    SeparateStep,
    SeparateSums,
    frame_of,
)

AlphaRule = Callable[["FittedSystem"], tuple[float, float | None]]

# alpha is raised by no more than this factor, if replicates ask for more noise.
RAISED = 1e15
# The share of the noise, as a power of eps, up to which rounding of k(x, x) in a variance is no news: it leaves four
# digits, in single precision two.
DEVIATION_DIGITS = 0.25


@dataclass(frozen=True, kw_only=True)
class FittedSystem(FieldState, System):
    """A system as a learner keeps it: a value of arrays; what it computes once to save time is no part of its state.

    Parameters
    ----------
    alpha : float
        The weight of ‖f‖² beside the mean loss.
    fit_intercept : bool
        Is there a constant beside f?
    samples : HeldSamples or None
        All samples of the fit, where they are in memory; those of weight zero are among them.
    features : StoredFeatures or None
        What f is spanned by, if that are not the samples.
    value : float or None
        The criterion at alpha, where that was chosen by it.
    approximation_error : float or None
        That of the features.
    problem : str or None
        What kept the equations from being solved, for a warning.
    replicated : pair of arrays (p,) or None
        The scatter of targets with equal inputs and its degrees of freedom, where there are some.
    """

    alpha: float
    fit_intercept: bool = False
    samples: HeldSamples | None = None
    features: StoredFeatures | None = None
    value: float | None = None
    approximation_error: float | None = None
    problem: str | None = None
    replicated: tuple[np.ndarray, np.ndarray] | None = None

    @property
    @abstractmethod
    def weight(self) -> float:
        """The sum of the samples' weights."""

    @abstractmethod
    def function(self) -> Expansion | FeatureFunction:
        """The fitted f + b, as a learner keeps it."""

    def sample_function(self) -> Function:
        """The fitted f + b as a sum over the samples where it is exact; else over what it is spanned by."""
        return self.function()

    def with_all_samples(self) -> Self:
        """The system whose leave-one-out speaks of all samples, where they are in memory, and not of some."""
        return self

    def with_weightless(self, left_out: Tensor) -> Tensor:
        """The predictions of ``left_out_sample`` and, where all samples are known, those for samples of weight zero."""
        return left_out

    def left_out_moments(self) -> LeftOutMoments:
        """Samples of positive weight that stand for all, or all, each of which was left out with its group."""
        raise self._unavailable("Deviations")

    def prior_scale(self) -> Tensor:
        """s² (p,), with which leave-one-out residuals have the variance that the model gives them."""
        return self._calibration[0]

    @cached_property
    def _calibration(self) -> tuple[Tensor, Tensor]:
        """The prior's scale s² (p,), and how many times larger than alpha·Σw the noise is (p,)."""
        return self.left_out_moments().judged(self.alpha * self.weight, self.replicated)

    @property
    def _approximated(self) -> bool:
        """May the features miss something of k(x, x)?"""
        return self.features is not None and self.features.approximation is not None

    def noise(self) -> Tensor:
        """The variance (p,) of the noise of a sample of weight one: s²·alpha·Σw, or more where replicates show it."""
        return self.prior_scale() * self._own_noise

    @property
    def _own_noise(self) -> Tensor:
        """The noise of a sample of weight one in units of the prior's scale."""
        return self._calibration[1] * (self.alpha * self.weight)

    def observed_at(self, X: Data) -> tuple[Tensor, Tensor]:
        """Predictions (m, n, p) at new points without the group of each sample, and variances of new observations.

        The samples are those of ``left_out_moments``, the variances in squared units of the targets.
        """
        mean, variance = self.left_out_at(X)
        return mean, (variance.clamp(min=0.0) + self._own_noise) * self.prior_scale()

    def observed_left_out(self) -> LeftOutMoments:
        """Left-out samples as ``left_out_moments`` has them, with variances in squared units of the targets."""
        moments, (scale, excess) = self.left_out_moments(), self._calibration
        noise = 0.0 if moments.noise is None else (excess - 1.0) * moments.noise
        return replace(moments, variance=(moments.variance + noise) * scale)

    @abstractmethod
    def norm(self) -> float:
        """‖f‖, the norm of the fitted function in its RKHS."""

    def left_out_sample(self) -> tuple[Block, Tensor]:
        """Samples that stand for all, or all, and for each the prediction by the fit without its group."""
        raise self._unavailable("Leave-one-out predictions")

    @abstractmethod
    def report(self, samples: Samples, loss: Loss) -> FitReport:
        """The sum of a loss of the fitted values over the samples of the fit, and the largest k(x, x)."""

    @property
    def n(self) -> int:
        """The number of samples, those of weight zero not counted where they are not stored."""
        return 0 if self.samples is None else len(self.samples.Y)

    def added(self, block: Block) -> Self:
        """The system with the samples of one more block, at the same alpha."""
        raise self._unavailable("Fits to more samples")

    def deviation(self, X: Data) -> Tensor:
        """The standard deviation (m, p) of new observations: covariance s²K, and the ``noise`` of weight one."""
        scale = self.prior_scale()
        unknown = (~scale.isfinite()).nonzero()[:, 0].tolist() if scale.ndim else []
        if unknown:
            raise ValueError(
                f"Standard deviations of output {unknown[0]} are unknown: it has too few observed targets to leave one "
                "out. Leave that output out, or ask for predictions only."
            )
        self._warn_of_rounding()
        found = ((self.variance(X).clamp(min=0.0) + self._own_noise) * scale).sqrt()
        if not bool(found.isfinite().all()):
            raise ValueError(
                "Standard deviations leave the range of numbers: products of k(x, x) are too large. Scale X, for "
                "example by StandardScaler, or ask for predictions only."
            )
        return found

    def _variance_rounding(self) -> tuple[float, float]:
        """How much rounding may move a variance, in units of the prior's scale, and the ε of it."""
        raise self._unavailable("Variances")

    def _warn_of_rounding(self) -> None:
        """Warn where rounding outweighs the noise in variances."""
        (rounding, eps), noise = self._variance_rounding(), self.alpha * self.weight
        if rounding > eps**DEVIATION_DIGITS * noise:
            warn(
                f"Standard deviations have few digits: variances are differences of numbers as large as k(x, x), whose "
                f"rounding is {rounding:.1e}, and the noise n·alpha is {noise:.1e}. Scale X (is there an outlier?), or "
                "increase alpha.",
                NumericalWarning,
            )

    def changed(self, **changes: Any) -> Self:
        """The same system with other fields; what it has factored stays at hand, a solution only with its alpha."""
        system = replace(self, **changes)
        stale = {"_solution", "_function", "_system", "_calibration"} if "alpha" in changes else {"_calibration"}
        stay = {k: v for k, v in vars(self).items() if k not in vars(system) and k not in stale}
        vars(system).update(stay)
        return system

    def settled(self, alpha: float | AlphaRule) -> Self:
        """The system at an alpha, or at the one that a rule chooses for it."""
        alpha, value = (alpha, None) if isinstance(alpha, float) else alpha(self)
        system = self.changed(alpha=alpha, value=value)
        note_residual("the equations of the fit", system.residual)
        return system

    def raised(self, noise: Tensor) -> Self:
        """The system at the least alpha from its own on at which the noise of every output has such a variance (p,)."""
        system: Self = self
        while bool((system.noise() < noise.to(system.noise())).any()) and system.alpha < RAISED * self.alpha:
            system = system.changed(alpha=2.0 * system.alpha)
        return system

    @property
    def has_slopes(self) -> bool:
        """Is f found from the features themselves? Then coefficients of the samples have fewer digits than f."""
        return False

    def at_rest(self) -> Self:
        """The system as a learner keeps it, without matrices of all samples."""
        return self


@dataclass(frozen=True)
class LeftOutMoments:
    """Samples that stand for all, or all, each left out with its group: targets, predictions and variances (n, p).

    Variances are those of y_i − f₋ₛ(x_i) in units of the prior's scale; missing targets are NaN.
    """

    Y: Tensor
    mean: Tensor
    variance: Tensor
    groups: Tensor | None = None
    noise: Tensor | None = None  # what of the variance is noise, (n, p) or (n, 1)
    missed: Tensor | None = None  # what of the variance is k(x, x) that features miss, (n, p) or (n, 1)

    def judged(self, unit: float, replicated: tuple[np.ndarray, np.ndarray] | None) -> tuple[Tensor, Tensor]:
        """s² (p,), and how many times larger than ``unit``, that of a sample of weight one, the noise is (p,).

        Both follow from what was left out and, where there are some, from the scatter of replicates and its degrees of
        freedom, ``replicated``.
        """
        if self.noise is None or not unit > 0 or (replicated is None and self.missed is None):
            scale = robust_scale((self.Y - self.mean) ** 2 / self.variance)
            return scale, torch.ones_like(scale)
        nothing = np.zeros(self.Y.shape[1])
        scatter, freedom = (torch.from_numpy(values) for values in replicated or (nothing, nothing))
        return self.calibrated(unit, scatter, freedom)

    def calibrated(self, unit: float, scatter: Tensor, freedom: Tensor) -> tuple[Tensor, Tensor]:
        """s² (p,), and how many times the noise should be larger (p,), by the likelihood of residuals and replicates.

        Left-out residuals say little of the noise at inputs that were measured before, and the scatter (p,) of
        replicates with its degrees of freedom (p,) does; ``unit`` is the noise of a sample of weight one. Without
        replicates, what features miss may turn out to be noise everywhere, at the landmarks, too.
        """
        assert self.noise is not None
        squares, latent = (self.Y - self.mean) ** 2, (self.variance - self.noise).clamp(min=0.0)
        largest = 1.0 if self.missed is None else 1.0 + float(self.missed.mean()) / unit
        largest = max(largest, 100.0 * float(latent.nanmean()) / unit if bool(freedom.any()) else 1.0)
        scatter, freedom = scatter.to(squares), freedom.to(squares)
        scales, values, factors = [], [], torch.logspace(0.0, math.log10(largest), EXCESSES, dtype=squares.dtype)
        for factor in factors:
            variance = latent + factor * self.noise
            scale = robust_scale(squares / variance)
            level = (scale * factor * unit).clamp(min=torch.finfo(squares.dtype).tiny)
            own = (squares / (scale * variance)).clamp(max=OUTLYING**2) + (scale * variance).log()
            values.append(own.nansum(0) + scatter / level + freedom * level.log())
            scales.append(scale)
        best = torch.stack(values).argmin(0)
        return torch.stack(scales).gather(0, best[None])[0], factors[best]


# Residuals count as if they were at most so many standard deviations.
OUTLYING = 5.0
# So many values of the noise are compared where replicates speak of it.
EXCESSES = 60


def robust_scale(squares: Tensor) -> Tensor:
    """The s² (p,) that is the mean of min(u_i, 25 s²) over squared residuals u_i (n, p); NaN are left out.

    It is the mean itself unless some residuals are beyond five deviations (Huber's second proposal).

    Examples
    --------
    >>> import torch
    >>> from representer.systems.ridge import robust_scale
    >>> squares = torch.ones(100, 1)
    >>> squares[0] = 1e6
    >>> round(float(robust_scale(squares)), 4)
    1.32
    """
    scale = squares.nanmean(0)
    for _ in range(100):
        last, scale = scale, torch.minimum(squares, OUTLYING**2 * scale).nanmean(0)
        if not bool((scale < 0.999999 * last).any()):
            break
    return scale


# -- the fit at its own samples ---------------------------------------------------------------------------------------
Loss = Callable[[Tensor, Tensor], Tensor]  # fitted values and targets (n, p) -> losses (n,)


@dataclass(frozen=True)
class FitReport:
    """The sum of the weighted losses of a fit at its own samples, and the largest k(x, x)."""

    loss: float
    largest: float

    def __add__(self, other: FitReport) -> FitReport:
        return FitReport(self.loss + other.loss, max(self.largest, other.largest))

    @classmethod
    def of(cls, losses: Tensor, weights: Tensor | None, diagonal: Tensor) -> FitReport:
        """That of a block of samples."""
        total = losses.sum() if weights is None else losses @ weights.to(losses)
        return cls(float(total), float(diagonal.max()))


@dataclass(frozen=True)
class ReportStep(Step):
    """Adds a block to the report of a function of features."""

    function: FeatureFunction
    loss: Loss

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """The columns, and what the kernel needs to make them."""
        features = self.function.features.map
        return features.n_features * features.dtype.itemsize + features.bytes_per_row

    def __call__(self, block: Block, total: FitReport | None) -> FitReport:
        coefficients, b, by_columns = self.function.loaded
        features = self.function.features.map
        values = features.columns(block.X) if by_columns else features(block.X)
        losses = self.loss(values @ coefficients + b, block.Y.to(coefficients))
        report = FitReport.of(losses, block.weights, features.kernel._diag(block.X))
        return report if total is None else total + report


# -- all samples ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class ExactSystem(FittedSystem):
    """The system of all samples, or of all their features; samples of weight zero are predicted, and no part of it.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    representation : Representation
    seed : int
        Of the samples that a criterion looks at, where it cannot afford all.
    """

    kernel: OperatorKernel
    representation: Representation
    seed: int = 0

    @property
    def _held(self) -> HeldSamples:
        assert self.samples is not None
        return self.samples

    @property
    def weight(self) -> float:
        w = self._held.weights
        return float(len(self._held.Y) if w is None else len(w) * w.mean())

    @property
    def operator(self) -> Operator:
        """The output operator A of a kernel k(x, y)A."""
        assert isinstance(self.kernel, Decomposable)
        return self.kernel._operator

    @cached_property
    def _rows(self) -> np.ndarray | None:
        """The numbers of the samples that have a weight, if some have none."""
        w = self._held.weights
        return None if w is None or bool((w > 0).all()) else np.flatnonzero((w > 0).reshape(len(w), -1).any(1))

    @property
    def _adapted(self) -> OperatorKernel:
        return self.representation.adapted(self.kernel, repair=self.features is None)

    @cached_property
    def _block(self) -> Block:
        """The samples that have a weight, as tensors."""
        whole = self._held.block(self._adapted, self.representation)
        return whole.positive_part(pairwise=self.kernel.domain == "gram")

    @cached_property
    def _training(self) -> RidgeData:
        features = None if self.features is None else self.features.map
        with silent_repairs():  # the fit has said it
            data = training_data(self._adapted, self._block, intercept=self.fit_intercept, features=features)
            return data.with_gram() if features is None else data

    @cached_property
    def _judged(self) -> RidgeData:
        """The samples that a criterion can afford."""
        return self._training.subset(len(self._training.Y), self.seed)

    @cached_property
    def _system(self) -> System:
        return factor_system(self._training, self.alpha)

    def coefficients(self) -> Tensor:
        """C (n, p) of the samples, zero for those of weight zero, or U (m, p) of the features, with f(x) = φ(x)ᵀU A."""
        if self.features is not None:
            slopes = self._system.slopes()
            return self._training.X.mT @ self._system.coefficients() if slopes is None else slopes
        dual = self._system.coefficients()
        return self._scattered(self._training.at_new_points(dual), dual.new_zeros(()))

    def _scattered(self, values: Tensor, rest: Tensor) -> Tensor:
        """Values of the samples that have a weight among ``rest``, those of all others."""
        if self._rows is None:
            return values
        everything = rest.expand(len(self._held.Y), values.shape[1]).clone()
        everything[torch.from_numpy(self._rows)] = values
        return everything

    def intercept(self) -> Tensor | None:
        return self._system.intercept()

    @cached_property
    def _function(self) -> Expansion | FeatureFunction:
        if self.features is not None:
            return feature_function(self.features, self.operator, self.coefficients(), self.intercept())
        return self._expansion(self.coefficients(), self._system.slopes())

    def _expansion(self, coefficients: Tensor, slopes: Tensor | None = None) -> Expansion:
        """f + b as a sum over the samples, in memory of its own."""
        parts = (plain(a, copy=True) for a in (coefficients, self.intercept(), slopes))
        C, b, stored = parts
        return Expansion(self.kernel, self._held.X, C, b, self.representation, stored)

    def function(self) -> Expansion | FeatureFunction:
        return self._function

    def residual(self) -> float:
        return self._system.residual()

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """f₋ₛ(x_i) (n, p) for each sample without its group, or without it alone; the fit has not seen weight zero."""
        if self._rows is not None and groups is not None:
            groups = groups[torch.from_numpy(self._rows)]
        return self.with_weightless(self._system.left_out(groups))

    def with_weightless(self, left_out: Tensor) -> Tensor:
        return left_out if self._rows is None else self._scattered(left_out, self._function(self._held.X))

    def left_out_sample(self) -> tuple[Block, Tensor]:
        """All samples of positive weight, and the prediction for each by the fit without its group."""
        return self._block, self._system.left_out()

    def _left_out_variance(self) -> tuple[Tensor, Tensor | None]:
        """The variance (n, p) of y_i − f₋ₛ(x_i) for samples with a weight, and what of it features miss of K(x_i, x_i).

        The second is as uncertain at left-out samples as at new points.
        """
        variance = self._system.left_out_variance()
        if not self._approximated:
            return variance, None
        missed = self._features_of(self._block.X)[1]
        return variance + missed, missed

    def left_out_variance(self) -> Tensor:
        """The variance (n, p) of y_i − f₋ₛ(x_i) in units of the prior's scale; NaN where a sample has no weight."""
        variance = self._left_out_variance()[0]
        return self._scattered(variance, variance.new_tensor(torch.nan))

    def leverage(self) -> Tensor:
        leverage = self._system.leverage()
        return self._scattered(leverage, leverage.new_zeros(()))

    def _fitted(self) -> Tensor:
        """f(x_i) + b (n, p) at the samples of positive weight, from the residuals noise·C; all targets are known."""
        return self._training.Y - self._training.noise(self.alpha) * self._system.coefficients()

    def norm(self) -> float:
        b = self.intercept()
        fitted = self._fitted() if b is None else self._fitted() - b
        return float((self._system.coefficients() * fitted).sum().clamp(min=0.0).sqrt())

    def report(self, samples: Samples, loss: Loss) -> FitReport:
        data = self._training
        diagonal = data.diagonal if data.gram is None else data.gram.diagonal()
        return FitReport.of(loss(self._fitted(), data.Y), self._block.weights, diagonal)

    def left_out_moments(self) -> LeftOutMoments:
        data = self._training
        Y = data.targets if data.mask is None else torch.where(data.mask, data.targets, torch.nan)
        if data.mask is not None and self.fit_intercept:  # without its only target an output has no constant
            Y = torch.where(data.mask.sum(0) < 2, torch.nan, Y)
        variance, missed = self._left_out_variance()
        return LeftOutMoments(Y, self._system.left_out(), variance, data.groups, data.noise(self.alpha), missed)

    @cached_property
    def _calibration(self) -> tuple[Tensor, Tensor]:
        if not isinstance(self._system, IterativeOutputs):
            return self.left_out_moments().judged(self.alpha * self.weight, self.replicated)
        targets = self._training.targets  # without leave-one-out: maximum likelihood, yᵀQy over the entries
        scale = (targets * self._system.coefficients()).sum() / targets.numel()
        return scale, torch.ones_like(scale)

    def alpha_range(self) -> tuple[Tensor, Tensor]:
        return self._judged.alpha_range()

    def alpha_unit(self) -> tuple[Tensor, float]:
        return self._judged.alpha_unit()

    @cached_property
    def refinable(self) -> bool:  # type: ignore[override]
        """Does one eigendecomposition serve all outputs and alphas?"""
        return self._judged.refinable

    def path(self, alphas: Tensor, criterion: Criterion = "loo") -> Tensor:
        """The criterion for many alphas, from one eigendecomposition, which serves the fit, too."""
        return self._judged.path(alphas, criterion)

    @property
    def has_slopes(self) -> bool:
        return self._system.slopes() is not None

    def at_rest(self) -> ExactSystem:
        """The system as a learner keeps it: what was factored is factored again when it is asked for."""
        return replace(self)

    def _variance_rounding(self) -> tuple[float, float]:
        data = self._training
        largest = 0.0 if self.has_slopes else float(data.diagonal.max())
        eps = torch.finfo(data.Y.dtype).eps
        return eps * largest, eps

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f + b at new points (checked inputs), in blocks."""
        inputs, data = self._inputs(X), self._training
        # k(x, X) for all outputs, its distances, the solutions and their squares.
        bytes_per_row = 4 * data.Y.numel() * data.Y.element_size()
        return by_rows(lambda rows: self._variance(inputs[rows]), count(inputs), bytes_per_row)

    def _variance(self, inputs: Data) -> Tensor:
        if self.features is None:
            return self._system.variance(inputs)
        features, missed = self._features_of(inputs)
        return self._system.variance(features) + missed

    def _features_of(self, inputs: Data) -> tuple[Tensor, Tensor]:
        """The features of prepared inputs, and what they miss of K(x, x) (m, p): what no landmark sees is uncertain."""
        assert self.features is not None
        features = self.features.map(inputs)
        missed = self.features.map.missed(inputs, features).to(features)
        return features, missed[:, None] * self.operator.as_matrix(self._training.Y.shape[1], features).diagonal()

    def left_out_at(self, X: Data) -> tuple[Tensor, Tensor]:
        """Predictions (m, n, p) by the fits without the group of each sample of positive weight, and their variances.

        ``X`` are checked inputs.
        """
        inputs = self._inputs(X)
        if self.features is None:
            return self._system.left_out_at(inputs)
        features, missed = self._features_of(inputs)
        means, variances = self._system.left_out_at(features)
        return means, variances + missed[:, None]

    def _inputs(self, X: Data) -> Data:
        """Checked inputs as the system takes them; Gram rows of the samples that have a weight."""
        if self.kernel.domain == "gram" and self._rows is not None:
            X = X[:, self._rows]
        return self.representation.inputs(self._adapted, X)

    def influence(self, X: Data) -> Tensor:
        """f(x) − f₋ₛ(x) (m, n, p) at checked inputs, for all samples: those of weight zero do nothing."""
        inputs = self._inputs(X)
        changes = self._system.influence(inputs if self.features is None else self.features.map(inputs))
        if self._rows is None:
            return changes
        everything = changes.new_zeros(len(changes), len(self._held.Y), changes.shape[2])
        everything[:, torch.from_numpy(self._rows)] = changes
        return everything

    def sample_function(self) -> Expansion | FeatureFunction:
        """The fitted f + b as a sum over the samples where it is exact, also where the kernel has few features."""
        if self.features is None or self.features.approximation is not None:
            return self._function
        nothing = torch.zeros((), dtype=self.representation.dtype)
        return self._expansion(self._scattered(self._system.coefficients(), nothing))


# -- sums over the samples --------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class FeatureSystem(FittedSystem):
    """A system whose unknowns are the coefficients U (m, p) of features: f(x) = φ(x)ᵀU A.

    Parameters
    ----------
    features : StoredFeatures
        φ.
    operator : Operator
        The output operator A.
    """

    features: StoredFeatures
    operator: Operator

    @cached_property
    def _function(self) -> Expansion | FeatureFunction:
        return feature_function(self.features, self.operator, self.coefficients(), self.intercept())

    def function(self) -> Expansion | FeatureFunction:
        """The fitted f + b: an expansion in the landmarks, unless there are none or it would lose digits."""
        return self._function

    def norm(self) -> float:
        U = self.coefficients()
        return float((U * (U @ self.operator.as_matrix(U.shape[1], U))).sum().clamp(min=0.0).sqrt())

    def _limit(self) -> int | None:
        """The bytes that blocks of samples may take, or None for the usual ones."""
        return None

    def report(self, samples: Samples, loss: Loss) -> FitReport:
        function = feature_function(self.features, self.operator, self.coefficients(), self.intercept(), expand=False)
        assert isinstance(function, FeatureFunction)
        return samples.total(ReportStep(function, loss), limit=self._limit())


@dataclass(frozen=True, kw_only=True)
class SummedSystem(FeatureSystem):
    """The normal equations of features, from sums over the samples.

    Parameters
    ----------
    sums : NormalSums or SeparateSums
        Of arrays.
    held : HeldSamples
        The samples over which leave-one-out errors are averaged.
    frame : Frame or None
        Where sums beside a constant count from; of arrays.
    memory_limit : int, str or None
        What a fit may take beside the data.
    seed : int
        Of the held samples.
    """

    sums: NormalSums | SeparateSums
    held: HeldSamples
    frame: Frame | None = None
    memory_limit: Any = None
    seed: int = 0

    @property
    def weight(self) -> float:
        return float(self.sums.weight)

    @cached_property
    def ridge(self) -> NormalRidge | SeparateRidge:
        """The normal equations, as tensors."""
        return normal_equations(self.sums.map(torch.from_numpy), self.operator, self.fit_intercept, self._frame)

    @cached_property
    def _frame(self) -> Frame | None:
        return None if self.frame is None else self.frame.map(torch.from_numpy)

    @cached_property
    def map(self) -> FeatureMap:
        """The features as they are summed."""
        features = self.features.map
        return features if self._frame is None else CentredFeatures(features, self._frame)

    def block(self, held: HeldSamples) -> Block:
        """The stored samples as tensors."""
        return held.block(self.features._adapted, self.features.representation)

    @cached_property
    def _solution(self) -> Tensor:
        return self.ridge.coefficients(self.alpha)

    def coefficients(self) -> Tensor:
        return self._solution

    def intercept(self) -> Tensor | None:
        return self.ridge.intercepts(self._solution) if self.fit_intercept else None

    def residual(self) -> float:
        return self.ridge.residual(self.alpha)

    @property
    def _average(self) -> Tensor:
        """The mean of k(x, x) over the samples, of the output with the largest."""
        ridge = self.ridge
        own = ridge.scales if ridge.rotation is None else ridge.rotation**2 @ ridge.scales  # its diagonal
        return ridge.trace * own.max() / ridge.weight

    def alpha_range(self) -> tuple[Tensor, Tensor]:
        low, high = shift_range(self._average.to(self.features.map.dtype))
        return low.double(), high.double()

    def alpha_unit(self) -> tuple[Tensor, float]:
        average = self._average
        return average.clamp(min=least_shift(average)) / self.n, self.n

    def _limit(self, held: int = 0) -> int | None:
        """What is left of the memory limit for blocks, beside the coordinates of so many held samples."""
        m, p, complete = self.features.map.n_features, self.sums.cross.shape[1], isinstance(self.sums, NormalSums)
        return room_for_blocks(self.memory_limit, m, p, held=held, complete=complete)

    def path(self, alphas: Tensor, criterion: Criterion = "loo") -> Tensor:
        """The criterion for many alphas, from one eigendecomposition; leave-one-out is that of the held samples."""
        if criterion == "gcv":
            return self.ridge.generalised(alphas)
        held, coordinates = self._coordinates
        return self.ridge.leave_one_out(coordinates, held, alphas, self._limit(len(held)))

    @cached_property
    def _coordinates(self) -> tuple[Block, Tensor]:
        """The held samples, and their features in the eigenvectors of the sums."""
        held, features = self.block(self.held), self.map
        coordinates = self.ridge.cross.new_empty(len(held), features.n_features)
        for rows in row_blocks(len(held), 16 * features.n_features + features.bytes_per_row, self._limit(len(held))):
            coordinates[rows] = self.ridge.coordinates(features(held.X[rows]))
        return held, coordinates

    def _residuals(self, block: Block) -> tuple[Tensor, Tensor, Tensor]:
        """y_i − f₋ₛ(x_i), −f₋ₛ without a target; its variance; and, of samples alone, the leverages, (n, p) each."""
        ridge, features = self.ridge, self.map
        residuals = ridge.cross.new_empty(len(block), ridge.cross.shape[1])
        variances, leverages = torch.empty_like(residuals), torch.empty_like(residuals)
        for rows in whole_groups(block.groups, len(block), 4 * 8 * features.n_features):
            part = block.rows(rows.numpy())
            missed, rest = ridge.left_out_at(features(part.X), part, self.alpha)
            w = part.full_weights(missed)[:, None]
            variance, leverage = self.alpha * ridge.weight / (w * rest), 1.0 - rest
            if ridge.rotation is not None:
                squares = (ridge.rotation**2).mT
                missed, variance, leverage = missed @ ridge.rotation.mT, variance @ squares, leverage @ squares
            residuals[rows], variances[rows], leverages[rows] = missed, variance, leverage
        return residuals, variances, leverages

    @property
    def _own_scales(self) -> Tensor:
        """The diagonal (p,) of the output operator."""
        return self.operator.as_matrix(self.ridge.cross.shape[1], self.ridge.cross).diagonal()

    def _unseen(self, inputs: Data, phi: Tensor) -> Tensor:
        """What the features φ of prepared inputs miss of K(x, x) (m, p)."""
        own = self._own_scales
        return self.features.map.missed(inputs, phi).to(own)[:, None] * own

    def _missed(self, block: Block) -> Tensor | None:
        """What features miss of K(x_i, x_i) (n, p), which is as uncertain at left-out samples as at new points."""
        features, X = self.features.map, block.X
        if not self._approximated:
            return None
        return by_rows(lambda rows: self._unseen(X[rows], features(X[rows])), len(block), 4 * 8 * features.n_features)

    def with_all_samples(self) -> Self:
        return self if self.samples is None else self.changed(held=self.samples)

    def _everything(self) -> Block:
        """All samples of the fit."""
        if self.samples is None:
            raise ValueError(
                "Leave-one-out predictions need the training samples, and a fit by batches or on Dask keeps none."
            )
        return self.block(self.samples)

    def leverage(self) -> Tensor:
        block = self._everything()
        return torch.where(block.Y.isnan(), torch.nan, self._residuals(replace(block, groups=None))[2])

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        block = self._everything()
        block = block if groups is None else replace(block, groups=groups)
        return block.Y.double().nan_to_num(0.0) - self._residuals(block)[0]

    def left_out_sample(self) -> tuple[Block, Tensor]:
        """The held samples, and the prediction for each by the fit without its group."""
        held = self.block(self.held)
        return held, held.Y.double() - self._residuals(held)[0]

    def left_out_variance(self) -> Tensor:
        """The variance (n, p) of y_i − f₋ₛ(x_i) in units of the prior's scale, of the held samples."""
        held = self.block(self.held)
        variance, missed = self._residuals(held)[1], self._missed(held)
        return torch.where(held.Y.isnan(), torch.nan, variance if missed is None else variance + missed)

    def left_out_moments(self) -> LeftOutMoments:
        """The held samples, each of which was left out with its group."""
        held = self.block(self.held).positive_part()
        (residuals, variances, _), missed = self._residuals(held), self._missed(held)
        variances = variances if missed is None else variances + missed
        Y = held.Y.to(residuals)
        noise = (self.alpha * self.weight / held.full_weights(Y))[:, None]
        return LeftOutMoments(Y, Y.nan_to_num(0.0) - residuals, variances, held.groups, noise, missed)

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f + b at new points; what the features miss of k(x, x) counts as uncertain."""
        inputs, features, frame = self.features.inputs(X), self.features.map, self._frame

        def variances(rows: slice) -> Tensor:
            block = inputs[rows]
            phi = features(block)
            seen = phi if frame is None else frame(phi)
            return self.ridge.variance(seen, self.alpha) + self._unseen(block, phi)

        return by_rows(variances, count(inputs), 4 * 8 * features.n_features)

    def _variance_rounding(self) -> tuple[float, float]:
        features, largest = self.features.map, float(self._own_scales.max())
        return features.missed_rounding(self.block(self.held).X) * largest, torch.finfo(features.dtype).eps

    def left_out_at(self, X: Data) -> tuple[Tensor, Tensor]:
        """Predictions (m, n, p) by the fits without the group of each held sample, and their variances.

        Outputs with sums of their own, because targets are missing, are predicted by all samples.
        """
        held, ridge = self.block(self.held).positive_part(), self.ridge
        fitted, variance = self._function(X).double(), self.variance(X)
        means, variances = (values[:, None].repeat(1, len(held), 1) for values in (fitted, variance))
        if isinstance(ridge, SeparateRidge):
            return means, variances
        changes, added = ridge.left_out_changes(self.map(self.features.inputs(X)), self.map(held.X), held, self.alpha)
        return means - changes, variances + added

    def influence(self, X: Data) -> Tensor:
        """f(x) − f₋ₛ(x) (m, n, p) at checked inputs, for all samples where they are in memory."""
        ridge = self.ridge
        if self.samples is None or isinstance(ridge, SeparateRidge):
            raise ValueError(
                "Influences of samples need all samples with all of their targets, and a fit by batches or on Dask "
                "keeps a few of them. Fit in memory, without missing targets."
            )
        block = self.block(self.samples)
        known = block.positive_part()
        features = self.map(self.features.inputs(X)), self.map(known.X)
        changes = ridge.left_out_changes(*features, known, self.alpha)[0]
        if block.weights is None:
            return changes
        everything = changes.new_zeros(len(changes), len(block), changes.shape[2])
        everything[:, block.weights > 0] = changes
        return everything

    @property
    def n(self) -> int:
        """The number of samples of positive weight."""
        sums = (self.sums,) if isinstance(self.sums, NormalSums) else self.sums.parts
        return max(part.n for part in sums)

    def added(self, block: Block, step: Step | None = None) -> Self:
        """The system with the samples of one more block, at the same alpha; ``step`` is what is summed of them."""
        assert isinstance(self.sums, NormalSums)
        if step is None and (p := block.Y.shape[1]) != self.sums.cross.shape[1]:
            raise ValueError(f"y has {p} outputs, but {self.sums.cross.shape[1]} before.")
        fresh = InMemory(block).total(NormalStep(self.map) if step is None else step, limit=self._limit())
        held = self.held.joined(block, self.n, limits.HELD_ROWS, self.seed)
        return replace(self, sums=(self.sums.map(torch.from_numpy) + fresh).map(plain), held=held, samples=None)


def normal_equations(
    sums: NormalSums | SeparateSums, operator: Operator, intercept: bool, frame: Frame | None
) -> NormalRidge | SeparateRidge:
    """The normal equations for an output operator, from sums of tensors."""
    cross = sums.cross
    form = Decomposable(Linear(), operator).diagonal_form(cross.shape[1], cross.double())
    if isinstance(sums, SeparateSums):
        return SeparateRidge(sums, form.weights[0], intercept=intercept, frame=frame)
    return NormalRidge(sums, form.weights[0], form.rotation, intercept=intercept, frame=frame)


# -- conjugate gradients ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class FalkonSystem(FeatureSystem):
    """The solution of conjugate gradients, which know no more than itself.

    Parameters
    ----------
    solution : array (m, p)
        U, with f(x) = φ(x)ᵀU A.
    constant : array (p,) or None
    error : float
        The backward error that was reached.
    total_weight : float
        Σ w of the samples.
    """

    solution: np.ndarray
    constant: np.ndarray | None
    error: float
    total_weight: float
    leaves_out = False

    @property
    def weight(self) -> float:
        return self.total_weight

    def coefficients(self) -> Tensor:
        return torch.from_numpy(self.solution)

    def intercept(self) -> Tensor | None:
        return None if self.constant is None else torch.from_numpy(self.constant)

    def residual(self) -> float:
        return self.error

    def raised(self, noise: Tensor) -> Self:
        """The system itself, because its noise is not known."""
        return self

    def _unavailable(self, what: str) -> ValueError:
        return ValueError(
            "Standard deviations and leave-one-out predictions need the normal equations, and this fit went by "
            "conjugate gradients. Use solver='direct', or fewer landmarks."
        )


def feature_function(
    features: StoredFeatures, operator: Operator, U: Tensor, intercept: Tensor | None, *, expand: bool = True
) -> Expansion | FeatureFunction:
    """φ(·)ᵀU A + b: an expansion in the landmarks, unless there are none or it would lose digits."""
    full, how = features.map, features.representation
    U = U.to(full.dtype)
    weighted = U @ operator.as_matrix(U.shape[1], U)
    b = None if intercept is None else intercept.to(full.dtype)
    if expand and features.landmarks is not None and not full.loses_digits(weighted, 0.0 if b is None else b):
        kernel = Decomposable(full.kernel, operator)
        return Expansion(kernel, full.state, full.coefficients(U), b).stored(how)
    return FeatureFunction(features.factored(), plain(weighted, copy=True), plain(b, copy=True))


# -- choices ----------------------------------------------------------------------------------------------------------
def ridge_system(
    kernel: OperatorKernel,
    samples: Samples,
    alpha: float | AlphaRule,
    representation: Representation,
    *,
    intercept: bool = False,
    approximation: Approximation | None = None,
    explicit: bool = False,
    solver: str | Falkon = "auto",
    memory_limit: object = None,
    inputs: Data = None,
    data: RidgeData | None = None,
    seed: int = 0,
) -> FittedSystem:
    """min over f and b of the weighted mean of ‖y_i − f(x_i) − b‖² plus alpha‖f‖²: solved exactly, by sums, or Falkon.

    Parameters
    ----------
    kernel : OperatorKernel
        Adapted to the data, with numbers for all hyperparameters.
    samples : Samples
        In memory or on Dask; those of weight zero are predicted, and no part of the fit.
    alpha : float or callable
        A number, or what chooses one for a system: alpha, and the criterion there.
    representation : Representation
        How the system stores its data.
    intercept : bool
        Is there a constant beside f?
    approximation : Approximation or None
        What makes features; None is exact.
    explicit : bool
        Is an exact fit one in the space of the kernel's own features, where these are fewer than the samples?
    solver : {"auto", "direct", "cg"} or Falkon
        How a fit with features solves for its coefficients.
    memory_limit : int, str or None
        What a fit with features may take beside the data.
    inputs : data or None
        The inputs of samples in memory as they are stored, before a kernel has prepared them.
    data : RidgeData or None
        The samples as an exact system takes them, if they are at hand; other systems do not look at them.
    seed : int
        Of landmarks and of samples that stand for all.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> from representer.operators import Representation
    >>> from representer.samples import Block, InMemory
    >>> from representer.systems import ridge_system
    >>> X, Y = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double()
    >>> system = ridge_system(Decomposable(Linear()), InMemory(Block(X, Y)), 2.5, Representation(torch.float64))
    >>> round(system.function()([[4.0]]).item(), 4)  # the slope of ridge regression is xᵀy / (xᵀx + 2·2.5)
    2.0
    """
    stored, n = None if samples.held is None else HeldSamples.all_of(samples.held, inputs), samples.n
    samples = samples.positive_part(pairwise=kernel.domain == "gram")
    fit = RidgeTask(kernel, samples, alpha, representation, intercept, solver, memory_limit, stored, seed)
    if approximation is None:
        return fit.exactly(data, explicit=explicit)
    approximation = approximation.sized(n)
    return fit.by_sums(approximation) if goes_by_sums(samples, kernel) else fit.by_features(approximation)


@dataclass(frozen=True)
class RidgeTask:
    """What ``ridge_system`` has to solve: its arguments, samples of positive weight, and all samples as stored."""

    kernel: OperatorKernel
    samples: Samples
    alpha: float | AlphaRule
    representation: Representation
    intercept: bool
    solver: str | Falkon
    memory_limit: Any
    stored: HeldSamples | None
    seed: int

    @property
    def _scalar(self) -> Decomposable:
        assert isinstance(self.kernel, Decomposable)
        return self.kernel

    # -- all samples at once ------------------------------------------------------------------------------------------
    def exactly(self, data: RidgeData | None, *, explicit: bool) -> ExactSystem:
        """The system of all samples, or of their explicit features."""
        block = self._block
        size = self._scalar.kernel.n_features(block.X) if explicit and self.kernel.domain != "gram" else None
        if size is not None and size < len(block):
            features = KernelMap(self._scalar.kernel, size, self.representation.dtype)
            return self._of_features(StoredFeatures.of(None, features, self.representation), None)
        if data is None:
            data = training_data(self.kernel, block, intercept=self.intercept)
        return self._solved(data.with_gram(), None, None)

    def by_features(self, approximation: Approximation) -> ExactSystem:
        """The system of the features of all samples: coupled outputs with missing targets."""
        kernel = self.representation.adapted(original(self._scalar.kernel), repair=False)
        features = approximation.features(kernel, self._block.X, seed=self.seed)
        stored = StoredFeatures.of(approximation, features, self.representation)
        return self._of_features(stored, approximation_error(features, self._block.X))

    @cached_property
    def _block(self) -> Block:
        return self.samples.rows(np.arange(self.samples.n))

    def _of_features(self, features: StoredFeatures, error: float | None) -> ExactSystem:
        data = training_data(self.kernel, self._block, intercept=self.intercept, features=features.map)
        return self._solved(data, features, error)

    def _solved(self, data: RidgeData, features: StoredFeatures | None, error: float | None) -> ExactSystem:
        system = ExactSystem(
            alpha=0.0,
            fit_intercept=self.intercept,
            samples=self.stored,
            features=features,
            approximation_error=error,
            kernel=original(self.kernel),
            representation=self.representation,
            seed=self.seed,
        )
        vars(system).update(_training=data, _block=self._block)
        with silent_repairs():
            return system.settled(self.alpha)

    # -- sums over the samples ----------------------------------------------------------------------------------------
    def by_sums(self, approximation: Approximation) -> SummedSystem | FalkonSystem:
        """The normal equations of features, or conjugate gradients on them where there are many."""
        samples, seed = self.samples, self.seed
        drawn = samples.rows(approximation.rows(samples.n, seed)).X
        features = approximation.choose(self._scalar.kernel, drawn, seed)
        stored = StoredFeatures.of(approximation, features, self.representation)
        rows = samples.random_rows(limits.HELD_ROWS, seed)
        sample = samples.rows(rows)
        error = approximation_error(features, sample.X)
        held = HeldSamples.of(sample, rows, seed, complete=len(rows) == samples.n)
        falkon = iterates(self.solver, features.n_features)
        system: SummedSystem | FalkonSystem
        if falkon is None:
            system = self._summed(stored, held, sample).settled(self.alpha)
        else:
            system = self._iterated(falkon, stored, held, sample)
        function = system.function()
        if isinstance(function, FeatureFunction):
            system = system.changed(features=function.features)
        return system.changed(approximation_error=error, samples=self.stored)

    def _summed(self, features: StoredFeatures, held: HeldSamples, sample: Block) -> SummedSystem:
        """The normal equations for any alpha; ``sample`` are the held samples as tensors."""
        return summed_system(
            self.samples,
            features,
            held,
            sample,
            operator=self._scalar._operator,
            intercept=self.intercept,
            memory_limit=self.memory_limit,
            searched=not isinstance(self.alpha, float),
            seed=self.seed,
        )

    def _pilot_alpha(self, features: StoredFeatures, held: HeldSamples, sample: Block) -> tuple[float, float | None]:
        """The alpha of the normal equations of fewer landmarks, whose sums are given back, and the criterion there."""
        pilot = self._summed(pilot_features(features), held, sample).settled(self.alpha)
        return pilot.alpha, pilot.value

    def _iterated(self, falkon: Falkon, features: StoredFeatures, held: HeldSamples, sample: Block) -> FalkonSystem:
        """Conjugate gradients, with the alpha of the normal equations of fewer landmarks."""
        full, p = features.map, sample.Y.shape[1]
        if self.samples.observed is not None:
            raise ValueError(
                f"Missing targets (NaN) take normal equations; use solver='direct', and fewer than the "
                f"{full.n_features} features."
            )
        alpha, value = self.alpha, None
        if not isinstance(alpha, float):
            alpha, value = self._pilot_alpha(features, held, sample)
        operator = self._scalar._operator
        form = Decomposable(Linear(), operator).diagonal_form(p, sample.Y.double())
        # The features' factor, the preconditioner with two of its steps, and a factor for each distinct scale.
        matrices = 4 + len(form.weights[0].unique())
        solution = solve_falkon(
            falkon,
            full,
            self.samples,
            full(full.landmarks if isinstance(full, LandmarkFeatures) else sample.X),
            alpha=alpha,
            scales=form.weights[0],
            rotation=form.rotation,
            intercept=self.intercept,
            limit=room_beside_sums(self.memory_limit, full.n_features, p, held=0, matrices=matrices),
        )
        problem, b = solution.problem, solution.intercept
        found = solution.coefficients.to(full.dtype), 0.0 if b is None else b.to(full.dtype)
        lost = full.lost_share(*found)
        if lost > falkon.tol and full.loses_digits(*found):
            warn(
                f"Rounding of what conjugate gradients multiply is {lost:.1e} of the function, more than their "
                f"tol={falkon.tol}: landmarks nearly depend. Use solver='direct', fewer landmarks, or a larger alpha.",
                NumericalWarning,
            )
        return FalkonSystem(
            alpha=alpha,
            fit_intercept=self.intercept,
            features=features,
            value=value,
            problem=None if problem is None else f"Conjugate gradients {problem}, or use solver='direct'.",
            operator=operator,
            solution=plain(solution.coefficients),
            constant=plain(solution.intercept),
            error=solution.residual,
            total_weight=self.samples.weight,
        )


def summed_system(
    samples: Samples,
    features: StoredFeatures,
    held: HeldSamples,
    sample: Block,
    *,
    operator: Operator,
    intercept: bool,
    memory_limit: Any = None,
    searched: bool = True,
    seed: int = 0,
    step: Callable[[FeatureMap], Step] | None = None,
    width: int | None = None,
) -> SummedSystem:
    """The normal equations of all samples, for any alpha.

    ``sample`` are the held samples as tensors, ``searched`` says whether they are to choose alpha, and ``step`` what is
    summed of the features, if not their products with the targets, for how many outputs (``width``).
    """
    m, complete = features.map.n_features, samples.observed is None
    p = sample.Y.shape[1] if width is None else width
    frame = frame_of(features.map, sample.X) if intercept else None
    seen = features.map if frame is None else CentredFeatures(features.map, frame)
    limit = room_for_blocks(memory_limit, m, p, held=len(held) if searched else 0, complete=complete)
    total = (NormalStep if complete else SeparateStep) if step is None else step
    sums = samples.total(total(seen), limit=limit)
    if not sums.weight > 0:
        raise ValueError("Sample weights must contain at least one non-zero number.")
    system = SummedSystem(
        alpha=0.0,
        fit_intercept=intercept,
        features=features,
        operator=operator,
        sums=sums.map(plain),
        held=held,
        frame=None if frame is None else frame.map(plain),
        memory_limit=memory_limit,
        seed=seed,
    )
    vars(system)["ridge"] = normal_equations(sums, operator, intercept, frame)
    return system


def room_for_blocks(memory_limit: Any, m: int, p: int, *, held: int, complete: bool) -> int | None:
    """The bytes that a limit leaves for blocks beside sums; where targets are missing, each output has sums."""
    return room_beside_sums(memory_limit, m, p, held=held, matrices=5 if complete else 3 * p + 3)


def iterates(solver: str | Falkon, m: int) -> Falkon | None:
    """The settings of conjugate gradients for m features, or None for normal equations."""
    if isinstance(solver, Falkon):
        return solver
    return Falkon() if solver == "cg" or (solver == "auto" and m > limits.DIRECT_LIMIT) else None


def pilot_features(features: StoredFeatures) -> StoredFeatures:
    """The features of fewer landmarks, whose normal equations choose alpha for conjugate gradients."""
    full = features.map
    if not isinstance(full, LandmarkFeatures) or count(full.landmarks) <= limits.PILOT_LANDMARKS:
        return features
    some = limits.evenly_spaced(count(full.landmarks), limits.PILOT_LANDMARKS)
    fewer = landmark_features(full.kernel, take(full.landmarks, torch.from_numpy(some)))
    return StoredFeatures.of(features.approximation, fewer, features.representation)
