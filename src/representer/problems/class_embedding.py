"""Embeddings of class labels: their criteria, exact fits, fits by sums over blocks, and batches of more samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap, Nystroem, RandomFeatures
from representer.functions import Expansion, ExplicitFunction, FeatureFunction
from representer.kernels import Kernel, Stationary
from representer.linalg import room_beside_sums
from representer.objectives import HeldOutRisk, LeaveOneOutRisk, RademacherBound
from representer.objectives.base import inner
from representer.objectives.rademacher import ClassRisk, Observer
from representer.operators import Decomposable, Representation, original, silent_repairs
from representer.optimize.search import Choice
from representer.preimage.probabilities import EmbeddingCalibration, calibrate_embedding
from representer.problems.embedding import (
    EmbeddingProblem,
    EmbeddingSettings,
    InputGram,
    held_out_rows,
    require_memory,
)
from representer.problems.embedding_sums import EmbeddingBatches, SummedFeatures, left_out_errors
from representer.samples import Block, Data, HeldSamples, InMemory, Samples, Step, plain
from representer.samples import rows as limits
from representer.systems.groups import Groups
from representer.systems.sums import NormalStep, NormalSums

# Beyond it, hyperparameters are learned on a subset: they are few, and a search costs many factorisations.
LARGEST_BATCH = 1500
CRITERIA = ("loo", "rademacher", "erm", "validation")


@dataclass(frozen=True)
class ClassModel:
    """What an embedding classifier minimises, and what its probabilities are.

    Parameters
    ----------
    criterion : {"loo", "rademacher", "erm", "validation"} or None
    intercept, calibrated : bool
    complexity_weight : float or None for that of the criterion
    validation_fraction : float
        The share of samples that ``"validation"`` holds out.
    clip : float
        Where cross entropies of training samples are clipped.
    """

    criterion: str | None
    intercept: bool
    calibrated: bool
    complexity_weight: float | None
    validation_fraction: float
    clip: float

    def objective(self, kernel: Kernel, block: Block, seed: int, observer: Observer) -> ClassRisk:
        """The criterion of samples with one-hot labels."""
        Y, groups, weight = block.Y, block.groups, self.complexity_weight
        options: dict[str, Any] = {
            "alpha": 1.0,
            # k(x, x) = 1: no need to look at the diagonal, which has no derivative.
            "supremum": 1.0 if isinstance(original(kernel), Stationary) else None,
            "intercept": self.intercept,
            "sample_weight": block.weights,
            "observer": observer,
        }
        if self.criterion == "rademacher":
            return RademacherBound(Y, weight=weight, clip=self.clip, **options)
        if self.criterion == "erm":
            return RademacherBound(Y, weight=weight or 0.0, clip=self.clip, **options)
        if self.criterion == "loo":
            default = 1.0 / len(Y) if weight is None else weight
            return LeaveOneOutRisk(Y, weight=default, groups=groups, **options)
        numbers = None if groups is None else groups.cpu()
        validation = held_out_rows(Y.argmax(-1).cpu(), self.validation_fraction, seed, numbers)
        return HeldOutRisk(Y, weight=weight or 0.0, validation=validation, loss="softmax", **options)


@dataclass(frozen=True)
class ClassFit:
    """A fitted embedding of labels, and what it says of itself."""

    function: Expansion | ExplicitFunction | FeatureFunction
    calibration: EmbeddingCalibration | None
    loo_estimates: np.ndarray | None
    complexity: float
    training_loss: float | None
    largest: float  # sup k(x, x)
    batches: EmbeddingBatches | None = None


# -- the search -------------------------------------------------------------------------------------------------------
def searched_block(samples: Samples, kernel: Kernel, approximation: Approximation | None, seed: int) -> Block:
    """The samples that a search looks at: all, or under an approximation a random part of many."""
    if isinstance(approximation, Nystroem):
        approximation.check(kernel, samples.n)
    if approximation is None:
        return samples.rows(np.arange(samples.n))
    chosen = samples.random_rows(limits.SEARCH_LIMIT, seed)  # those that are held later are the first of them
    samples.read_ahead(chosen, approximation.rows(samples.n, seed))
    return samples.rows(chosen)


def _search_size(approximation: Approximation | None, n: int) -> int:
    """How many of n samples hyperparameters are learned on: as many as there are landmarks, but not too few."""
    if approximation is None or isinstance(approximation, RandomFeatures):
        return n
    return min(n, max(approximation.size(n), limits.SMALLEST_SEARCH))


def _some_rows(block: Block, size: int, seed: int) -> Tensor:
    """So many random samples, in order; of groups, whole ones."""
    if block.groups is not None:
        return torch.from_numpy(limits.sample_groups(block.groups.cpu().numpy(), size, seed))
    order = torch.randperm(len(block), generator=torch.Generator().manual_seed(seed))
    return order[:size].sort().values


def search_classes(
    model: ClassModel,
    kernel: Kernel,
    free: list[str],
    alpha: float | None,
    block: Block,
    n: int,
    settings: EmbeddingSettings,
    *,
    approximation: Approximation | None,
    batch_size: int | str | None,
    like: Tensor,
) -> Choice:
    """Learn what is free by the criterion, on a block of n samples of positive weight; what is fixed stays."""
    limit = LARGEST_BATCH if batch_size == "auto" else batch_size
    inputs = InputGram(block.X, kernel.domain == "gram")
    size = inputs.n if limit is None else min(int(limit), inputs.n)
    searched = min(size, _search_size(approximation, inputs.n)) if free and model.criterion is not None else 0
    require_memory(n if approximation is None else inputs.n, searched, approximation, like.element_size())
    if model.criterion is None:
        return Choice(kernel, inputs.scale(kernel) / n if alpha is None else alpha)
    if alpha is not None and not free:
        return Choice(kernel, alpha)
    if isinstance(approximation, RandomFeatures):
        inputs = inputs.drawn(approximation.features(kernel, inputs.X, seed=settings.seed))
    elif approximation is not None:
        some = _some_rows(block, _search_size(approximation, inputs.n), settings.seed)
        inputs, block = inputs.rows(some), block.rows(some.numpy())
    size = inputs.n if limit is None else min(int(limit), inputs.n)
    inputs = inputs.by_features(kernel, limit=size)
    if inputs.features is not None and batch_size == "auto":  # features are cheap however many samples
        size = inputs.n
    solver = settings.solver
    if solver == "auto":
        solver = "lbfgs" if batch_size == "auto" or size == inputs.n else "adam"
    if solver == "lbfgs" and size < inputs.n:
        some = _some_rows(block, size, settings.seed)
        inputs, block = inputs.rows(some), block.rows(some.numpy())
    if not free:
        with silent_repairs():  # the fit speaks of the last Gram matrix
            inputs = inputs.fixed(kernel)
    make, whole = partial(model.objective, kernel), dict[str, ClassRisk]()

    def objective(some: Tensor | None, observer: Observer) -> ClassRisk:
        if some is not None:
            labels = replace(block, X=block.Y).rows(some.cpu().numpy())  # the inputs are not asked for
            if labels.groups is not None and len(labels.groups.unique()) < 2:  # nothing would be left of the batch
                labels = replace(labels, groups=None)
            return make(labels, settings.seed, observer)
        if not whole:
            whole["all"] = make(block, settings.seed, observer)
        return whole["all"]

    chosen = replace(settings, solver=solver, batch_size=size if size < inputs.n else None)
    return EmbeddingProblem(inputs, kernel, free, alpha, objective, chosen, like).search()


# -- exact fits -------------------------------------------------------------------------------------------------------
def solve_classes(
    model: ClassModel, choice: Choice, block: Block, anchors: Data, representation: Representation
) -> ClassFit:
    """The fit to all samples with the chosen kernel and alpha; ``anchors`` are the inputs as they are stored."""
    kernel, Y, w = choice.model, block.Y, block.weights
    inputs = InputGram(block.X, kernel.domain == "gram").by_features(kernel, limit=len(Y)).fixed(kernel)
    with torch.no_grad():
        total = float(len(Y) if w is None else w.sum())
        shift = total * choice.alpha
        system = inputs.system(kernel, shift, intercept=model.intercept, sample_weight=w)
        C = system.solve(Y)
        coefficients = system.coefficients(Y, C)
        b = Y.new_zeros(Y.shape[1]) if system.g is None else (system.g.mT @ Y)[0]
        fitted = system.apply(C) + b if w is not None else Y - shift * C
        squared_norm = inner(C, fitted - b).clamp(min=0.0)
        largest = float(system.gram_diagonal().amax())
        losses = -(fitted * Y).sum(-1).clamp(model.clip, 1.0).log()
        training_loss = float(losses.mean() if w is None else losses @ w / total)
        calibration = estimates = None
        if model.calibrated:
            loo = Y - system.left_out(C, _partition(block)).errors
            if w is None:
                calibration = calibrate_embedding(loo, Y)
            else:
                seen = w > 0
                calibration = calibrate_embedding(loo[seen], Y[seen], w[seen])
                loo = torch.where(seen[:, None], loo, fitted)
            estimates = plain(loo)
    function: Expansion | ExplicitFunction
    arrays = plain(inputs.extended(coefficients), copy=True), plain(b, copy=True)
    if inputs.features is None:
        function = Expansion(Decomposable(original(kernel)), anchors, *arrays, representation)
    else:
        function = ExplicitFunction(original(kernel), *arrays, representation)
    complexity = math.sqrt(float(squared_norm) * largest)
    return ClassFit(function, calibration, estimates, complexity, training_loss, largest)


def _partition(block: Block) -> Groups | None:
    """The groups of samples; those of weight zero, which no fit has seen, are groups of their own."""
    if block.groups is None:
        return None
    labels = block.groups.clone()
    if block.weights is not None:
        absent = block.weights.to(labels.device) == 0
        labels[absent] = labels.max() + 1 + torch.arange(int(absent.sum()), device=labels.device)
    return Groups.of(labels.cpu(), block.Y.device)


# -- fits by sums -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Report:
    """The sum of the cross entropies of a fit to many samples, and the largest k(x, x)."""

    loss: float
    largest: float

    def __add__(self, other: Report) -> Report:
        return Report(self.loss + other.loss, max(self.largest, other.largest))


@dataclass(frozen=True)
class ReportStep(Step):
    """Adds a block to the report."""

    features: FeatureMap
    coefficients: Tensor
    intercept: Tensor
    clip: float
    by_columns: bool  # are the coefficients those of the columns that span the features?

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """The columns, and what the kernel needs to make them."""
        return 2 * self.features.n_features * self.features.dtype.itemsize

    def __call__(self, block: Block, total: Report | None) -> Report:
        values = self.features.columns(block.X) if self.by_columns else self.features(block.X)
        fitted = values @ self.coefficients + self.intercept
        losses = -(fitted * block.Y.to(fitted)).sum(-1).clamp(self.clip, 1.0).log()
        loss = losses.sum() if block.weights is None else losses @ block.weights.to(losses)
        report = Report(float(loss), float(self.features.kernel._diag(block.X).max()))
        return report if total is None else total + report


def sum_classes(
    model: ClassModel,
    choice: Choice,
    samples: Samples,
    approximation: Approximation,
    representation: Representation,
    *,
    memory_limit: Any,
    seed: int,
) -> ClassFit:
    """The fit by sums over blocks, and what ``partial_fit`` would add to."""
    chosen = samples.random_rows(limits.HELD_ROWS, seed)
    held = samples.rows(chosen)
    features = SummedFeatures.choose(
        approximation, choice.model, samples, held.X, representation, intercept=model.intercept, seed=seed
    )
    limit = room_beside_sums(memory_limit, features.map.n_features, held.Y.shape[1], held=0)
    sums: NormalSums = samples.total(NormalStep(features.map), limit=limit)
    batches = EmbeddingBatches(features, sums.map(plain), HeldSamples.of(held, chosen, seed), samples.n, seed)
    fit = _solved(model, choice.alpha, batches, sums, held, limit)
    assert isinstance(fit.function, FeatureFunction)
    coefficients, b, by_columns = fit.function.loaded
    step = ReportStep(features.stored.map, coefficients, b, model.clip, by_columns)
    report = samples.total(step, limit=limit)
    return _reported(replace(fit, training_loss=report.loss / sums.weight), report.largest)


def add_classes(model: ClassModel, alpha: float, before: ClassFit, block: Block, *, memory_limit: Any) -> ClassFit:
    """The fit with a block of more samples: their sums are added, and the system is solved again."""
    assert before.batches is not None
    features = before.batches.features
    limit = room_beside_sums(memory_limit, features.map.n_features, block.Y.shape[1], held=0)
    fresh = InMemory(block).total(NormalStep(features.map), limit=limit)
    sums = before.batches.sums.map(torch.from_numpy) + fresh
    batches = before.batches.joined(sums, block)
    fit = _solved(model, alpha, batches, sums, batches.held_block(), limit)
    largest = float(features.stored.map.kernel._diag(block.X).max())
    return _reported(fit, max(before.largest, largest))


def _solved(
    model: ClassModel,
    alpha: float,
    batches: EmbeddingBatches,
    sums: NormalSums,
    held: Block,
    limit: int | None,
) -> ClassFit:
    """Coefficients, constant and calibration from the sums and a few samples."""
    features = batches.features
    ridge = features.ridge(sums)
    function = features.function(ridge, alpha)
    calibration = estimates = None
    if model.calibrated:
        loo = held.Y.double() - left_out_errors(ridge, features.map, held, alpha, limit)
        calibration = calibrate_embedding(loo, held.Y, held.weights)
        estimates = plain(loo.to(features.map.dtype))
    return ClassFit(function, calibration, estimates, math.nan, None, math.nan, batches)


def _reported(fit: ClassFit, largest: float) -> ClassFit:
    """With r = √(‖f‖² sup k(x, x)); features are orthonormal."""
    return replace(fit, complexity=fit.function.norm() * math.sqrt(largest), largest=largest)
