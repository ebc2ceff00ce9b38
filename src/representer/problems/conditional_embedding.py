"""Conditional mean embeddings: the search over their hyperparameters, exact fits, fits by sums, and batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, Landmarks, Nystroem, approximation_error
from representer.functions import ConditionalEmbedding, FeatureFunction
from representer.functions.conditional import middle
from representer.kernels import Kernel
from representer.linalg import pivoted_cholesky, room_beside_sums
from representer.objectives import HeldOut, LeaveOneOut
from representer.objectives.squared import SquaredLoss
from representer.operators import Adapted, Representation, original, repaired_gram, silent_repairs
from representer.optimize.search import Choice
from representer.problems.embedding import EmbeddingProblem, EmbeddingSettings, InputGram, held_out_rows
from representer.problems.embedding_sums import EmbeddingBatches, SummedFeatures, best_alpha_by_sums
from representer.samples import Block, Data, HeldSamples, InMemory, OnDask, Samples, evenly_spaced, is_dask, plain, take
from representer.samples import rows as limits
from representer.systems.cells import Cells, CellStep
from representer.systems.sums import NormalStep, NormalSums
from representer.systems.weights import SampleWeights

# Beyond it, hyperparameters of an exact fit are learned on a random subset.
LARGEST_BATCH = 1500


@dataclass(frozen=True)
class ConditionalModel:
    """What a conditional mean embedding minimises.

    Parameters
    ----------
    criterion : {"loo", "validation"} or None
    alpha : float or None
        None: chosen by the criterion; without one, the mean k(x, x) over n.
    intercept : bool
    validation_fraction : float
        The share of samples that ``"validation"`` holds out.
    """

    criterion: str | None
    alpha: float | None
    intercept: bool
    validation_fraction: float

    def objective(self, R: Tensor, block: Block, seed: int) -> SquaredLoss:
        """The criterion of samples whose targets, elements of an RKHS, are the rows of R."""
        weights = block.weights
        options: dict[str, Any] = {"alpha": 1.0, "intercept": self.intercept, "sample_weight": weights}
        if self.criterion == "loo":
            return LeaveOneOut(R, groups=block.groups, **options)
        groups = None if block.groups is None else block.groups.cpu()
        labels = torch.zeros(len(R), dtype=torch.long)
        return HeldOut(R, validation=held_out_rows(labels, self.validation_fraction, seed, groups), **options)


def target_factor(gram: Tensor) -> Tensor:
    """R with RRᵀ = L: to this tolerance the RKHS is spanned by few of the samples, which is what the criteria cost."""
    factor, _ = pivoted_cholesky(gram, tol=torch.finfo(gram.dtype).eps ** 0.75)
    return factor.contiguous()


def search_conditionals(
    model: ConditionalModel,
    kernel: Kernel,
    free: list[str],
    block: Block,
    R: Tensor,
    settings: EmbeddingSettings,
    like: Tensor,
) -> Choice:
    """Learn what is free by the criterion, with R a factor of the targets' Gram matrix; what is fixed stays."""
    inputs = InputGram(block.X, kernel.domain == "gram")
    if model.criterion is None:
        alpha = inputs.scale(kernel) / inputs.n if model.alpha is None else model.alpha
        return Choice(kernel, alpha)
    if model.alpha is not None and not free:
        return Choice(kernel, model.alpha)
    if inputs.n > LARGEST_BATCH:
        if block.groups is None:
            order = torch.randperm(inputs.n, generator=torch.Generator().manual_seed(settings.seed))
            index = order[:LARGEST_BATCH]
        else:
            labels = block.groups.cpu().numpy()
            index = torch.from_numpy(limits.sample_groups(labels, LARGEST_BATCH, settings.seed))
        inputs, R, block = inputs.rows(index), R[index], replace(block, X=R, Y=R).rows(index.numpy())
    inputs = inputs.by_features(kernel, limit=inputs.n)
    objective = model.objective(R, block, settings.seed)
    if not free:
        with silent_repairs():
            inputs = inputs.fixed(kernel)
    problem = EmbeddingProblem(
        inputs, kernel, free, model.alpha, lambda rows, observer: objective, settings, like, logarithm=True
    )
    return problem.search()


# -- exact fits -------------------------------------------------------------------------------------------------------
def solve_conditionals(
    model: ConditionalModel,
    choice: Choice,
    block: Block,
    inputs: Data,
    targets: ConditionalEmbedding,
) -> ConditionalEmbedding:
    """The embedding of the fit to all samples; ``inputs`` as they are stored, ``targets`` without weights."""
    w = block.weights
    total = float(len(targets.anchors) if w is None else w.sum())
    stored = None if w is None else plain(w, copy=True)
    weights = SampleWeights(
        original(choice.model), inputs, total * choice.alpha, model.intercept, targets.representation, stored
    ).with_system(choice.model)
    shares = None if stored is None else stored / stored.sum()
    return replace(targets, weights=weights, total_is_one=model.intercept, shares=shares)


# -- targets of many samples ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TargetSource:
    """Targets in memory, checked, or in a Dask array, to be checked where they are read.

    Parameters
    ----------
    values : array, list or Dask array
    kernel : Kernel
        That takes them.
    representation : Representation
    check : callable
        Raw targets -> checked ones.
    """

    values: Any
    kernel: Kernel
    representation: Representation
    check: Any

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, index: np.ndarray) -> Any:
        """Some of them, here and checked."""
        if is_dask(self.values):
            return self.check(self.values[index].compute())
        return take(self.values, torch.from_numpy(index))

    def prepared(self, values: Any) -> Any:
        """As the kernel takes them."""
        numeric = self.kernel.domain == "vectors"
        return self.kernel.prepare(self.representation.tensor(values) if numeric else values)

    def column(self, cells: Cells) -> Any:
        """What blocks of samples hold: vectors, or the numbers (n, 1) of the cells of anything else."""
        if not is_dask(self.values):
            prepared = self.prepared(self.values)
            return prepared if self.kernel.domain == "vectors" else cells(prepared)[:, None]
        if self.kernel.domain == "vectors":
            return self.values
        form: dict[str, Any] = {"new_axis": 1} if self.values.ndim == 1 else {}
        form["chunks"] = (self.values.chunks[0], (1,))
        reader = replace(self, values=None)
        return self.values.map_blocks(_numbers, reader, cells, dtype=float, meta=np.empty((0, 0)), **form)

    def anchors(self, kernel: Kernel, approximation: Nystroem | Landmarks, seed: int) -> Any:
        """Targets that stand for all, as they were given."""
        if isinstance(approximation, Landmarks):
            return self.check(approximation.points)
        some = self.rows(approximation.rows(len(self), seed))
        if kernel.domain == "vectors":  # means, perhaps
            return plain(approximation.choose(kernel, self.prepared(some), seed).landmarks, copy=True)
        return take(some, approximation.samples(kernel, self.prepared(some), seed=seed))


def _numbers(chunk: np.ndarray, reader: TargetSource, cells: Cells) -> np.ndarray:
    return plain(cells(reader.prepared(reader.check(chunk))))[:, None].astype(float)


def with_targets(samples: Samples, Y: Data) -> Samples:
    """The same inputs, weights and groups, with targets in memory or on Dask."""
    if isinstance(samples, OnDask):
        return OnDask(samples.X, plain(Y), samples.weights, dtype=samples.dtype, groups=samples.groups)
    assert isinstance(samples, InMemory)
    values = Y if isinstance(Y, Tensor) else torch.as_tensor(np.asarray(Y.compute() if is_dask(Y) else Y))
    return InMemory(replace(samples.samples, Y=values))


# -- fits by sums -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ConditionalFit:
    """A conditional embedding by sums over cells of targets, alpha, and what ``partial_fit`` would add to.

    Parameters
    ----------
    function : ConditionalEmbedding
    alpha : float
    value : float or None
        The criterion, if alpha was chosen by it.
    first_alpha : float or None
        What later batches keep; None: alpha is chosen anew.
    scale : float or None
        The mean k(x, x), where alpha is that over n.
    error : float
        That of the approximation.
    batches : EmbeddingBatches
    """

    function: ConditionalEmbedding
    alpha: float
    value: float | None
    first_alpha: float | None
    scale: float | None
    error: float
    batches: EmbeddingBatches


def sum_conditionals(
    model: ConditionalModel,
    kernel: Kernel,
    inputs: Samples,
    targets: TargetSource,
    empty: ConditionalEmbedding,
    pair: tuple[Approximation, Nystroem | Landmarks],
    *,
    first_alpha: float | None,
    value: float | None,
    memory_limit: Any,
) -> ConditionalFit:
    """The fit with numbers in both kernels; ``empty`` is the embedding without weights and anchors."""
    seed, how = empty.seed, empty.representation
    anchors = targets.anchors(cell_kernel(empty), pair[1], seed)
    centre = plain(middle(how.tensor(anchors))) if empty.kernel.domain == "vectors" else None
    function = replace(empty, anchors=anchors, centre=centre, total_is_one=model.intercept)
    samples = with_targets(inputs, targets.column(_cells(function)))
    chosen = samples.random_rows(limits.HELD_ROWS, seed)
    held = samples.rows(chosen)
    features = SummedFeatures.choose(pair[0], kernel, inputs, held.X, how, intercept=model.intercept, seed=seed)
    step = _cell_step(function, features)
    error = approximation_error(features.stored.map, held.X)
    limit = room_beside_sums(memory_limit, features.map.n_features, step.width, held=len(held))
    sums: NormalSums = samples.total(step, limit=limit)
    batches = EmbeddingBatches(features, sums.map(plain), HeldSamples.of(held, chosen, seed), samples.n, seed)
    scale = None
    if model.criterion is None and model.alpha is None:
        block = inputs.rows(evenly_spaced(inputs.n, limits.HEURISTIC_ROWS))
        scale = InputGram(block.X).scale(kernel)
    fit = ConditionalFit(function, 0.0, value, first_alpha, scale, error, batches)
    return _solved(model, fit, sums, held, limit)


def add_conditionals(
    model: ConditionalModel,
    before: ConditionalFit,
    inputs: Samples,
    targets: TargetSource,
    *,
    memory_limit: Any,
) -> ConditionalFit:
    """The fit with more samples: their sums are added, and the system is solved again."""
    features = before.batches.features
    step = _cell_step(before.function, features)
    samples = with_targets(inputs, targets.column(_cells(before.function)))
    assert isinstance(samples, InMemory)
    limit = room_beside_sums(memory_limit, features.map.n_features, step.width, held=limits.HELD_ROWS)
    sums = before.batches.sums.map(torch.from_numpy) + samples.total(step, limit=limit)
    batches = before.batches.joined(sums, samples.samples)
    return _solved(model, replace(before, batches=batches), sums, batches.held_block(), limit)


def cell_kernel(function: ConditionalEmbedding) -> Kernel:
    """The output kernel as cells take it: nothing is repaired, for no Gram matrix is formed."""
    kernel, how = function.kernel, function.representation
    return kernel if kernel.domain == "vectors" else Adapted(kernel, how.dtype, how.device)


def _cells(function: ConditionalEmbedding) -> Cells:
    return Cells(cell_kernel(function), function.targets)


def _cell_step(function: ConditionalEmbedding, features: SummedFeatures) -> CellStep:
    """The sums of the fit."""
    cells = _cells(function)
    if function.centre is None:
        return CellStep(features.map, len(cells), None, None)
    return CellStep(features.map, len(cells), cells, function.representation.tensor(function.centre))


def _solved(
    model: ConditionalModel, fit: ConditionalFit, sums: NormalSums, held: Block, limit: int | None
) -> ConditionalFit:
    """alpha, the weights of the cells and the moments, from the sums and a few samples."""
    features, value = fit.batches.features, fit.value
    step = _cell_step(fit.function, features)
    alpha = model.alpha if model.alpha is not None else fit.first_alpha
    if alpha is None and fit.scale is not None:
        alpha = fit.scale / sums.n
    if alpha is None:  # by the leave-one-out errors in the RKHS of l, every target replaced by its anchor
        gram, _ = repaired_gram(fit.function.output_kernel, fit.function.targets)
        anchors = pivoted_cholesky(gram.double(), tol=torch.finfo(gram.dtype).eps ** 0.75)[0]
        moments = anchors.new_zeros(step.width - step.n_cells, anchors.shape[1])
        ridge = features.ridge(sums.combined(torch.cat([anchors, moments])))
        elements = replace(held, Y=anchors[step.numbers(held.Y)])
        alpha, value = best_alpha_by_sums(ridge, step.features, elements, limit)
    ridge = features.ridge(sums)
    theta = ridge.coefficients(alpha)
    arrays, r = (plain(theta), plain(ridge.intercepts(theta))), step.n_cells
    weights = FeatureFunction(features.stored, arrays[0][:, :r].copy(), arrays[1][:r].copy())
    moments_function = None
    if fit.function.centre is not None:
        moments_function = FeatureFunction(features.stored, arrays[0][:, r:].copy(), arrays[1][r:].copy())
    shares = plain(sums.target_sum[:r] / sums.weight, copy=True)
    function = replace(fit.function, weights=weights, moments=moments_function, shares=shares)
    return replace(fit, function=function, alpha=alpha, value=value)


def regressed(features: SummedFeatures, samples: Samples, alpha: float, memory_limit: Any) -> FeatureFunction:
    """E[g(Y) | X = x] as a function of x from samples whose targets are g(y): their ridge regression."""
    width = samples.rows(np.arange(1)).Y.shape[1]
    limit = room_beside_sums(memory_limit, features.map.n_features, width, held=0)
    ridge = features.ridge(samples.total(NormalStep(features.map), limit=limit))
    theta = ridge.coefficients(alpha)
    return FeatureFunction(features.stored, plain(theta, copy=True), plain(ridge.intercepts(theta), copy=True))
