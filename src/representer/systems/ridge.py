"""The ridge system that a fitted learner keeps: a value of arrays that factors itself when it is first asked.

``exact_system`` and ``feature_system`` choose its kind: nobody else tells exact, summed and iterative fits apart.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Falkon, FeatureMap, LandmarkFeatures, landmark_features
from representer.functions import StoredFeatures
from representer.kernels import Linear
from representer.linalg import room_beside_sums, row_blocks
from representer.operators import (
    Decomposable,
    Diagonal,
    Identity,
    Operator,
    OperatorKernel,
    Representation,
    silent_repairs,
)
from representer.samples import Block, Data, HeldSamples, InMemory, Samples, count, plain, take
from representer.samples import rows as limits
from representer.systems.base import Criterion, System, whole_groups
from representer.systems.exact import (
    IterativeOutputs,
    RidgeData,
    criterion_path,
    factor_system,
    training_data,
)
from representer.systems.falkon import solve_falkon
from representer.systems.frames import CentredFeatures, Frame, frame_of
from representer.systems.sums import (
    NormalRidge,
    NormalStep,
    NormalSums,
    SeparateRidge,
    SeparateStep,
    SeparateSums,
)


class FittedSystem(System):
    """A system as a learner keeps it; what it computes once to save time is no part of its state."""

    alpha: float

    @property
    @abstractmethod
    def weight(self) -> float:
        """The sum of the samples' weights."""

    @abstractmethod
    def prior_scale(self) -> Tensor:
        """s² (p,), with which leave-one-out residuals have the variance that the model gives them."""

    @abstractmethod
    def least_alpha(self) -> Tensor:
        """Below this, alpha·Σw leaves fewer than a third of the digits of a solution, and a criterion is rounding."""

    def deviation(self, X: Data) -> Tensor:
        """The standard deviation (m, p) of new observations: covariance s²K, noise s²·alpha·Σw."""
        return ((self.variance(X) + self.alpha * self.weight) * self.prior_scale()).sqrt()

    def changed(self, **changes: Any) -> Self:
        """The same system with other fields; what it has factored stays at hand, a solution only with its alpha."""
        system = replace(self, **changes)  # type: ignore[type-var]
        stale = {"_solution"} if "alpha" in changes else set()
        stay = {k: v for k, v in vars(self).items() if k not in vars(system) and k not in stale}
        vars(system).update(stay)
        return system

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def prior_scale_of(system: System, data: RidgeData) -> Tensor:
    """s² for each output, with which leave-one-out residuals have the variance that the model gives them."""
    if isinstance(system, IterativeOutputs):  # without leave-one-out: maximum likelihood, yᵀQy over the entries
        return (data.targets * system.coefficients()).sum() / data.Y.numel()
    ratios = (data.targets - system.left_out(torch.arange(len(data.Y)))) ** 2 / system.left_out_variance()
    return (ratios if data.mask is None else torch.where(data.mask, ratios, torch.nan)).nanmean(0)


# -- all samples ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ExactSystem(FittedSystem):
    """The system of all samples, or of their features.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    samples : HeldSamples
        All samples of positive weight.
    alpha : float
    fit_intercept : bool
    representation : Representation
    features : StoredFeatures or None
        The features of an approximation whose samples lack targets of coupled outputs.
    rows : integer array or None
        The numbers of the samples among those of the fit, if some had no weight.
    inputs : data or None
        All inputs of the fit, if some had no weight.
    """

    kernel: OperatorKernel
    samples: HeldSamples
    alpha: float
    fit_intercept: bool
    representation: Representation
    features: StoredFeatures | None = None
    rows: np.ndarray | None = None
    inputs: Data = None

    @property
    def weight(self) -> float:
        """The sum of the samples' weights."""
        w = self.samples.weights
        return float(len(self.samples.Y) if w is None else w.sum())

    @cached_property
    def _training(self) -> RidgeData:
        kernel = self.representation.adapted(self.kernel, repair=self.features is None)
        block = self.samples.block(kernel, self.representation)
        features = None if self.features is None else self.features.map
        with silent_repairs():  # the fit has said it
            found = training_data(kernel, block, intercept=self.fit_intercept, features=features)
            return found.with_gram() if features is None else found

    @cached_property
    def _system(self) -> System:
        return factor_system(self._training, self.alpha)

    def coefficients(self) -> Tensor:
        """C (n, p) of the samples, or U (m, p) of the features, with f(x) = φ(x)ᵀU A."""
        found = self._system.coefficients()
        if self.features is not None:
            return self._training.X.mT @ found
        return self._training.at_new_points(found)

    def intercept(self) -> Tensor | None:
        """The constant b (p,), or None where there is none."""
        return self._system.intercept()

    def residual(self) -> float:
        """The norm of what the equations miss, over that of the targets."""
        return self._system.residual()

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """The prediction f₋ₛ(x_i) (n, p) for each sample without its group, or without it alone."""
        return self._system.left_out(groups)

    def left_out_variance(self) -> Tensor:
        """The variance (n, p) of y_i − f₋ᵢ(x_i) in units of the prior's scale."""
        return self._system.left_out_variance()

    def leverage(self) -> Tensor:
        """The derivative ∂f(x_i)/∂y_i (n, p) of each prediction in its own target."""
        return self._system.leverage()

    def prior_scale(self) -> Tensor:
        """s² (p,), with which leave-one-out residuals have the variance that the model gives them."""
        return prior_scale_of(self._system, self._training)

    def least_alpha(self) -> Tensor:
        """The alpha below which a criterion is rounding."""
        return self._training.least_alpha()

    def path(self, alphas: Tensor, criterion: Criterion = "loo") -> Tensor:
        """The criterion for many alphas, from one eigendecomposition."""
        return criterion_path(self._training, alphas, criterion)[0]

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f + b at new points (checked inputs), in blocks."""
        kernel = self.representation.adapted(self.kernel, repair=self.features is None)
        if self.kernel.domain == "gram" and self.rows is not None:
            X = X[:, self.rows]
        inputs, data = self.representation.inputs(kernel, X), self._training
        blocks = row_blocks(count(inputs), data.Y.numel() * data.Y.element_size())
        return torch.cat([self._variance(inputs[rows]) for rows in blocks])

    def _variance(self, inputs: Data) -> Tensor:
        if self.features is None:
            return self._system.variance(inputs)
        features, kernel = self.features.map(inputs), self._training.kernel
        assert isinstance(kernel, Decomposable)
        missed = (self.features.map.kernel._diag(inputs) - (features**2).sum(1)).clamp(min=0.0)
        own = kernel._operator.as_matrix(self.samples.Y.shape[1], features).diagonal()
        return self._system.variance(features) + missed[:, None] * own  # what no landmark sees is uncertain


# -- sums over the samples --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SummedSystem(FittedSystem):
    """The normal equations of features, from sums over the samples.

    Parameters
    ----------
    features : StoredFeatures
    operator : Operator
        The output operator A.
    sums : NormalSums or SeparateSums
        Of arrays.
    held : HeldSamples
        The samples over which leave-one-out errors are averaged.
    alpha : float
    fit_intercept : bool
    frame : Frame or None
        Where sums beside a constant count from; of arrays.
    samples : HeldSamples or None
        All samples of the fit, where they are in memory.
    """

    features: StoredFeatures
    operator: Operator
    sums: NormalSums | SeparateSums
    held: HeldSamples
    alpha: float
    fit_intercept: bool
    frame: Frame | None = None
    samples: HeldSamples | None = None

    @property
    def weight(self) -> float:
        """The sum of the samples' weights."""
        return float(self.sums.weight)

    @cached_property
    def ridge(self) -> NormalRidge | SeparateRidge:
        """The normal equations, as tensors."""
        frame = None if self.frame is None else self.frame.map(torch.from_numpy)
        return normal_equations(self.sums.map(torch.from_numpy), self.operator, self.fit_intercept, frame)

    @cached_property
    def _map(self) -> FeatureMap:
        """The features as they are summed."""
        features = self.features.map
        frame = None if self.frame is None else self.frame.map(torch.from_numpy)
        return features if frame is None else CentredFeatures(features, frame)

    def block(self, held: HeldSamples) -> Block:
        """The stored samples as tensors."""
        return held.block(self.features._adapted, self.features.representation)

    @cached_property
    def _solution(self) -> Tensor:
        return self.ridge.coefficients(self.alpha)

    def coefficients(self) -> Tensor:
        """U (m, p), with f(x) = φ(x)ᵀU A."""
        return self._solution

    def intercept(self) -> Tensor | None:
        """The constant b (p,), or None where there is none."""
        return self.ridge.intercepts(self._solution) if self.fit_intercept else None

    def residual(self) -> float:
        """The norm of what the normal equations miss, over that of their right side."""
        return self.ridge.residual(self.alpha)

    def least_alpha(self) -> Tensor:
        """Below this, the digits of the blocks are used up."""
        ridge = self.ridge
        own = ridge.scales if ridge.rotation is None else ridge.rotation**2 @ ridge.scales  # its diagonal
        largest = ridge.spectrum.values.sum() * own.max() / ridge.weight
        info = torch.finfo(self.features.map.dtype)
        return (largest * info.eps ** (2 / 3)).clamp(min=info.tiny ** (1 / 2))

    def path(self, alphas: Tensor, criterion: Criterion = "loo", *, limit: int | None = None) -> Tensor:
        """The criterion for many alphas, from one eigendecomposition; leave-one-out is that of the held samples.

        Beside the coordinates of these, about ``limit`` bytes are taken.
        """
        if criterion == "gcv":
            return self.ridge.generalised(alphas)
        held, coordinates = self._held_coordinates(limit)
        return self.ridge.leave_one_out(coordinates, held, alphas, limit)

    def _held_coordinates(self, limit: int | None) -> tuple[Block, Tensor]:
        if "_coordinates" not in vars(self):
            held, features = self.block(self.held), self._map
            found = self.ridge.cross.new_empty(len(held), features.n_features)
            for rows in row_blocks(len(held), 3 * 8 * features.n_features, limit):
                found[rows] = self.ridge.coordinates(features(held.X[rows]))
            vars(self)["_coordinates"] = (held, found)
        return vars(self)["_coordinates"]

    def _residuals(self, block: Block) -> tuple[Tensor, Tensor]:
        """y_i − f₋ₛ(x_i), and the variance of y_i − f₋ᵢ(x_i) in units of the prior's scale; −f₋ₛ without a target."""
        ridge, features = self.ridge, self._map
        residuals = ridge.cross.new_empty(len(block), ridge.cross.shape[1])
        variances = torch.empty_like(residuals)
        for rows in whole_groups(block.groups, len(block), 4 * 8 * features.n_features):
            part = block.rows(rows.numpy())
            found, rest = ridge.left_out_at(features(part.X), part, self.alpha)
            w = found.new_ones(len(part)) if part.weights is None else part.weights.double()
            variance = self.alpha * ridge.weight / (w[:, None] * rest)
            if ridge.rotation is not None:
                found, variance = found @ ridge.rotation.mT, variance @ (ridge.rotation**2).mT
            residuals[rows], variances[rows] = found, variance
        return residuals, variances

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """f₋ₛ(x_i) (n, p) for the samples of the fit."""
        if self.samples is None:
            raise ValueError(
                "Leave-one-out predictions need the training samples, and a fit by batches or on Dask keeps none."
            )
        block = self.block(self.samples)
        block = block if groups is None else replace(block, groups=groups)
        return block.Y.double().nan_to_num(0.0) - self._residuals(block)[0]

    def left_out_variance(self) -> Tensor:
        """The variance (n, p) of y_i − f₋ᵢ(x_i) in units of the prior's scale, of the held samples."""
        held = self.block(self.held)
        return torch.where(held.Y.isnan(), torch.nan, self._residuals(held)[1])

    def prior_scale(self) -> Tensor:
        """The scale s² (p,) of the prior, from the leave-one-out errors of the held samples."""
        held = self.block(self.held)
        kept = np.arange(len(held)) if held.weights is None else (held.weights > 0).nonzero()[:, 0].numpy()
        held = replace(held.rows(kept), groups=None)
        residuals, variances = self._residuals(held)
        return torch.where(held.Y.isnan(), torch.nan, residuals**2 / variances).nanmean(0)

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f + b at new points; what the features miss of k(x, x) counts as uncertain."""
        inputs, features = self.features.inputs(X), self.features.map
        own = self.operator.as_matrix(self.ridge.cross.shape[1], self.ridge.cross).diagonal()
        frame = None if self.frame is None else self.frame.map(torch.from_numpy)
        parts = []
        for rows in row_blocks(count(inputs), 3 * 8 * features.n_features):
            block = inputs[rows]
            phi = features(block)
            missed = (features.kernel._diag(block).double() - phi.double().square().sum(1)).clamp(min=0.0)
            seen = phi if frame is None else frame(phi)
            parts.append(self.ridge.variance(seen, self.alpha) + missed[:, None] * own)
        return torch.cat(parts)

    def joined(self, block: Block, seen: int, seed: int, limit: int | None) -> SummedSystem:
        """The system with the samples of one more block."""
        assert isinstance(self.sums, NormalSums)
        if (p := block.Y.shape[1]) != self.sums.cross.shape[1]:
            raise ValueError(f"y has {p} outputs, but {self.sums.cross.shape[1]} before.")
        fresh = InMemory(block).total(NormalStep(self._map), limit=limit)
        held = self.held.joined(block, seen, limits.HELD_ROWS, seed)
        return replace(self, sums=(self.sums.map(torch.from_numpy) + fresh).map(plain), held=held)


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
@dataclass(frozen=True)
class FalkonSystem(FittedSystem):
    """The solution of conjugate gradients, which know no more than itself.

    Parameters
    ----------
    features : StoredFeatures
    operator : Operator
    solution : array (m, p)
        U, with f(x) = φ(x)ᵀU A.
    constant : array (p,) or None
    error : float
        The backward error that was reached.
    alpha : float
    total_weight : float
        Σ w of the samples.
    problem : str or None
        What kept the iterations from their tolerance.
    samples : HeldSamples or None
        All samples of the fit, where they are in memory.
    """

    features: StoredFeatures
    operator: Operator
    solution: np.ndarray
    constant: np.ndarray | None
    error: float
    alpha: float
    total_weight: float
    problem: str | None = None
    samples: HeldSamples | None = None

    @property
    def weight(self) -> float:
        """The sum of the samples' weights."""
        return self.total_weight

    def coefficients(self) -> Tensor:
        """U (m, p), with f(x) = φ(x)ᵀU A."""
        return torch.from_numpy(self.solution)

    def intercept(self) -> Tensor | None:
        """The constant b (p,), or None where there is none."""
        return None if self.constant is None else torch.from_numpy(self.constant)

    def residual(self) -> float:
        """The backward error that the iterations have reached."""
        return self.error

    def _unavailable(self, what: str) -> ValueError:
        return ValueError(
            "Standard deviations and leave-one-out predictions need the normal equations, and this fit went by "
            "conjugate gradients. Use solver='direct', or fewer landmarks."
        )

    def prior_scale(self) -> Tensor:
        """Refuse: the scale of the prior needs leave-one-out errors."""
        raise self._unavailable("Deviations")

    def least_alpha(self) -> Tensor:
        """Refuse: conjugate gradients have no criterion."""
        raise self._unavailable("Criteria")


# -- choices ----------------------------------------------------------------------------------------------------------
def comes_apart(operator: Operator) -> bool:
    """Do the outputs come apart, so that each can have the sums of the samples that know it?"""
    return isinstance(operator, Identity | Diagonal)


def goes_by_sums(samples: Samples, kernel: OperatorKernel, *, learned: bool = False) -> bool:
    """Is a fit with features a sum over the samples? Coupled outputs with missing targets need all samples at once.

    ``learned`` says whether the output operator is, which couples the outputs.
    """
    if not isinstance(kernel, Decomposable):
        return False
    return samples.observed is None or (not learned and comes_apart(kernel._operator))


def iterates(solver: str | Falkon, m: int) -> Falkon | None:
    """The settings of conjugate gradients for m features, or None for normal equations."""
    if isinstance(solver, Falkon):
        return solver
    return Falkon() if solver == "cg" or (solver == "auto" and m > limits.DIRECT_LIMIT) else None


def block_limit(memory_limit: Any, m: int, p: int, *, matrices: int = 5, held: int | None = None) -> int | None:
    """What is left of a memory limit for blocks, when the sums of m features have taken their part."""
    held = limits.HELD_ROWS if held is None else held
    return room_beside_sums(memory_limit, m, p, held=held, matrices=matrices)


def summed_system(
    samples: Samples,
    features: StoredFeatures,
    operator: Operator,
    held: HeldSamples,
    sample: Block,
    *,
    intercept: bool,
    limit: int | None,
) -> SummedSystem:
    """The normal equations of all samples, for any alpha; ``sample`` are the held samples as tensors."""
    frame = frame_of(features.map, sample.X) if intercept else None
    seen = features.map if frame is None else CentredFeatures(features.map, frame)
    step = NormalStep(seen) if samples.observed is None else SeparateStep(seen)
    sums = samples.total(step, limit=limit)
    if not sums.weight > 0:
        raise ValueError("Sample weights must contain at least one non-zero number.")
    stored = None if frame is None else frame.map(plain)
    system = SummedSystem(features, operator, sums.map(plain), held, 0.0, intercept, stored)
    vars(system)["ridge"] = normal_equations(sums, operator, intercept, frame)
    return system


def pilot_features(features: StoredFeatures) -> StoredFeatures:
    """The features of fewer landmarks, whose normal equations choose alpha for conjugate gradients."""
    full = features.map
    if not isinstance(full, LandmarkFeatures):
        return features
    some = limits.evenly_spaced(count(full.landmarks), limits.PILOT_LANDMARKS)
    fewer = landmark_features(full.kernel, take(full.landmarks, torch.from_numpy(some)))
    return StoredFeatures.of(features.approximation, fewer, features.representation)


def falkon_system(
    settings: Falkon,
    samples: Samples,
    features: StoredFeatures,
    operator: Operator,
    sample: Block,
    alpha: float,
    *,
    intercept: bool,
    memory_limit: Any,
) -> FalkonSystem:
    """The solution of conjugate gradients at an alpha."""
    full = features.map
    p = sample.Y.shape[1]
    form = Decomposable(Linear(), operator).diagonal_form(p, sample.Y.double())
    # The features' factor, the preconditioner with two of its steps, and a factor for each distinct scale.
    matrices = 4 + len(form.weights[0].unique())
    limit = block_limit(memory_limit, full.n_features, p, matrices=matrices, held=0)
    standing = full(full.landmarks if isinstance(full, LandmarkFeatures) else sample.X)
    found = solve_falkon(
        settings,
        full,
        samples,
        standing,
        alpha=alpha,
        scales=form.weights[0],
        rotation=form.rotation,
        intercept=intercept,
        limit=limit,
    )
    b = None if found.intercept is None else plain(found.intercept)
    solution = plain(found.coefficients)
    weight = samples.weight
    return FalkonSystem(features, operator, solution, b, found.residual, alpha, weight, found.problem)
