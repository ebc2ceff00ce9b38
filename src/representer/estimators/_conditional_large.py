"""Conditional mean embeddings of many samples: sums over blocks, in memory or on Dask, and weights of a few anchors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Landmarks, Nystroem, approximation_error
from representer.approximation.base import evenly_spaced
from representer.approximation.sampling import sample_rows
from representer.data import plain, take
from representer.estimators._large_parts import (
    HELD_ROWS,
    HEURISTIC_ROWS,
    SEARCH_ROWS,
    HeldSamples,
    block_limit,
    choose_alpha_by_sums,
)
from representer.estimators._lazy import check_columns, source_on_dask
from representer.estimators.validation import DTYPES, check_alpha, check_bare, check_inputs, check_outputs
from representer.kernels import Kernel, as_kernel
from representer.linalg import pivoted_cholesky
from representer.operators.adapted import Adapted, Representation, repaired_gram, takes_sparse
from representer.samples.in_memory import Block, InMemory, Samples
from representer.samples.on_dask import OnDask, as_rows, is_dask
from representer.systems.cells import Cells, CellStep
from representer.systems.sums import NormalStep, NormalSums


def both_approximations(given: Any) -> tuple[Any, Any]:
    """Those of inputs and of targets; None for targets: as many random anchors as there are features of inputs."""
    pair = given if isinstance(given, tuple | list) else (given, None)
    if len(pair) != 2 or not isinstance(pair[1], Nystroem | Landmarks | None):
        raise ValueError(
            "approximation must be one of Nystroem(...), Landmarks(...), RandomFeatures(...), TensorSketch(...), or a "
            f"pair of it and of Nystroem(...) or Landmarks(...) for the targets; got {given!r}."
        )
    check_bare(*pair)
    return pair[0], pair[1]


# -- the samples ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Targets:
    """Targets in memory, checked, or in a Dask array, to be checked where they are read."""

    values: Any
    kernel: Kernel  # that takes them
    represented: Representation

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, index: np.ndarray) -> Any:
        """Some of them, here and checked."""
        if is_dask(self.values):
            return self._checked(self.values[index].compute())
        return take(self.values, torch.from_numpy(index))

    def prepared(self, values: Any) -> Any:
        """As the kernel takes them."""
        return self.kernel.prepare(
            self.represented.tensor(values) if self.kernel.domain == "vectors" else values
        )

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

    def _checked(self, values: Any) -> Any:
        return check_outputs(self.kernel, values, reset=False)[0]


def _numbers(chunk: np.ndarray, reader: Targets, cells: Cells) -> np.ndarray:
    return plain(cells(reader.prepared(reader._checked(chunk))))[:, None].astype(float)


def read_targets(learner: Any, kernel: Kernel, y: Any, n: int) -> tuple[Targets, bool]:
    """The targets of n samples, and whether each is one number."""
    if kernel.domain == "gram":
        raise ValueError(
            "approximation= needs an output kernel that can be evaluated; a precomputed one is already n × n."
        )
    if is_dask(y):
        values: Any = as_rows(y, "y")
        flat = values.ndim == 1 and kernel.domain == "vectors"
    else:
        values, flat = check_outputs(kernel, y, reset=True)
    if len(values) != n:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n} and {len(values)}.")
    return Targets(values, kernel, Representation(DTYPES[learner.dtype], learner.device)), flat


def read_inputs(learner: Any, given: Kernel, X: Any, *, reset: bool) -> Samples:
    """The inputs, without targets."""
    if is_dask(X) and reset:
        return source_on_dask(learner, given, X, None, dtype=DTYPES[learner.dtype], targets=False)
    if is_dask(X):
        check_columns(learner, X)
        return OnDask(X, None, None, dtype=DTYPES[learner.dtype])
    X = check_inputs(learner, X, given.domain, reset=reset, sparse=takes_sparse(given))
    learner.X_fit_ = X if reset else None
    return InMemory(Block(learner._inputs(given, X), torch.zeros(len(X), 0)))


def with_targets(source: Samples, Y: Any) -> Samples:
    """The same inputs, with targets in memory or on Dask."""
    if isinstance(source, OnDask):
        return OnDask(source.X, plain(Y), None, dtype=source.dtype)
    assert isinstance(source, InMemory)
    values = Y if isinstance(Y, Tensor) else torch.as_tensor(np.asarray(Y.compute() if is_dask(Y) else Y))
    return InMemory(Block(source.samples.X, values))


# -- cells ------------------------------------------------------------------------------------------------------------
def choose_anchors(learner: Any, targets: Targets, approximation: Any) -> Any:
    """Targets that stand for all: as they were given."""
    if isinstance(approximation, Landmarks):
        return check_outputs(targets.kernel, approximation.points, reset=False)[0]
    some = targets.rows(approximation.rows(len(targets), learner._seed))
    kernel = _output_kernel(learner)
    if kernel.domain == "vectors":  # means, perhaps
        return plain(approximation.choose(kernel, targets.prepared(some), learner._seed).landmarks)
    return take(some, approximation.samples(kernel, targets.prepared(some), seed=learner._seed))


def _output_kernel(learner: Any) -> Kernel:
    """As the cells take it: without a repair, which is one of a Gram matrix."""
    kernel: Kernel = learner.output_kernel_
    return kernel if kernel.domain == "vectors" else Adapted(kernel, DTYPES[learner.dtype], learner.device)


def _anchor_cells(learner: Any) -> Cells:
    return Cells(_output_kernel(learner), learner._targets(learner.output_kernel_, learner.output_landmarks_))


def _cell_step(learner: Any, cells: Cells) -> CellStep:
    """The sums of the fit."""
    vectors = cells.kernel.domain == "vectors"
    centre = learner._represented.tensor(learner._centre) if vectors else None
    return CellStep(learner._summed_features(), len(cells), cells if vectors else None, centre)


# -- the fit ----------------------------------------------------------------------------------------------------------
def fit_conditionals(learner: Any, given: Kernel, X: Any, y: Any, callback: Any) -> NormalSums:
    """Hyperparameters on a random part of the samples, then the sums of all of them."""
    for name in ("n_samples_seen_", "_cached_features", "_cached_system"):
        learner.__dict__.pop(name, None)
    learner._state = learner.X_fit_ = None
    of_inputs, of_targets = both_approximations(learner.approximation)
    output = as_kernel(learner.output_kernel, argument="output_kernel").__sklearn_clone__().numbers()
    inputs = read_inputs(learner, given, X, reset=True)
    targets, learner._flat = read_targets(learner, output, y, n := inputs.n)
    learner.Y_fit_ = None if is_dask(targets.values) else targets.values
    if n < 2 and learner.criterion is not None:
        raise ValueError(
            f"Found n_samples=1: criterion={learner.criterion!r} leaves samples out, so that at least 2 are needed."
        )
    of_targets = of_targets or Nystroem(min(of_inputs.size(n), n))
    some = targets.rows(evenly_spaced(n, HEURISTIC_ROWS))
    learner.output_kernel_ = output.resolve(targets.prepared(some))
    _learn(learner, given, inputs, targets, callback)
    with torch.no_grad():
        return _sum(learner, inputs, targets, of_inputs, of_targets)


def _sum(learner: Any, inputs: Samples, targets: Targets, of_inputs: Any, of_targets: Any) -> NormalSums:
    """Features, anchors, and the sums of all samples with numbers in their kernels."""
    n = inputs.n
    rows = of_inputs.rows(n, learner._seed)
    features = of_inputs.choose(learner._adapted(learner.kernel_), inputs.rows(rows).X, learner._seed)
    learner._keep_features(features)
    learner.output_landmarks_ = choose_anchors(learner, targets, of_targets)
    cells = _anchor_cells(learner)
    learner._centre = learner.output_landmarks_.mean(0) if cells.kernel.domain == "vectors" else None
    source = with_targets(inputs, targets.column(cells))
    held = sample_rows(n, HELD_ROWS, learner._seed)
    sample = source.rows(held)
    learner._keep_frame(sample.X)
    step = _cell_step(learner, cells)
    learner.approximation_error_ = approximation_error(features, sample.X)
    learner._held = HeldSamples.of(sample, held, learner._seed)
    limit = block_limit(learner.memory_limit, features.n_features, step.width, held=len(sample))
    sums: NormalSums = source.total(step, limit=limit)
    _solve(learner, sums, step, sample, limit)
    return sums


def _learn(learner: Any, given: Kernel, inputs: Samples, targets: Targets, callback: Any) -> None:
    """The kernel, on a random part of the samples; with ``criterion="validation"``, alpha too."""
    adapted = learner._adapted(given)
    free = adapted.free() if learner.criterion is not None else []
    block = inputs.rows(evenly_spaced(inputs.n, HEURISTIC_ROWS))
    kernel = adapted.resolve(block.X)
    alpha = check_alpha(learner.alpha)
    learner.criterion_value_, learner.history_, learner.n_iter_ = None, [], 0
    learner._first_alpha = None
    if learner.criterion is None:
        learner._scale = learner._problem(given, block.X).scale(kernel)
    elif free or (alpha is None and learner.criterion == "validation"):
        rows = sample_rows(inputs.n, SEARCH_ROWS, learner._seed)
        gram, _ = repaired_gram(learner._output_adapted(), targets.prepared(targets.rows(rows)))
        problem = learner._problem(given, inputs.rows(rows).X)
        found = learner._search(kernel, free, problem, learner._factor(gram), learner._seed, callback)
        kernel, learner.criterion_value_ = found.kernel, found.value
        learner.history_, learner.n_iter_ = found.history, found.n_iter
        learner._first_alpha = found.alpha if learner.criterion == "validation" else None
    learner._keep_kernel(kernel)


def _solve(learner: Any, sums: NormalSums, step: CellStep, held: Block, limit: int | None) -> None:
    """alpha, the weights of the cells and the moments, from the sums and a few samples."""
    alpha = check_alpha(learner.alpha)
    if alpha is None:
        alpha = learner._first_alpha if learner.criterion is not None else learner._scale / sums.n
    if alpha is None:  # by the leave-one-out errors in the RKHS of l, every target replaced by its anchor
        kernel = learner._output_adapted()
        gram, _ = repaired_gram(kernel, learner._targets(learner.output_kernel_, learner.output_landmarks_))
        anchors = pivoted_cholesky(gram.double(), tol=torch.finfo(gram.dtype).eps ** 0.75)[0]
        moments = anchors.new_zeros(step.width - step.n_cells, anchors.shape[1])
        combined = sums.combined(torch.cat([anchors, moments]))
        ridge = learner._ridge_of(combined)
        known = Block(held.X, anchors[step.numbers(held.Y)])
        found = choose_alpha_by_sums(ridge, None, "loo", step.features, known, limit)
        alpha, learner.criterion_value_ = found
    assert isinstance(alpha, float)  # candidates are refused
    learner.alpha_ = alpha
    ridge = learner._ridge_of(sums)
    theta = ridge.coefficients(alpha)
    learner._coefficients, learner._constants = plain(theta), plain(ridge.intercepts(theta))
    learner._has_intercept = bool(learner.fit_intercept)
    learner._shares = plain(sums.target_sum[: step.n_cells] / sums.weight)


# -- batches ----------------------------------------------------------------------------------------------------------
def add_conditionals(learner: Any, X: Any, y: Any) -> None:
    """More samples: their sums are added, and the system is solved again."""
    kernel, seen = learner._adapted(learner.kernel_), learner.n_samples_seen_
    inputs = read_inputs(learner, kernel, X, reset=False)
    targets, flat = read_targets(learner, learner.output_kernel_, y, inputs.n)
    if flat != learner._flat:
        raise ValueError(f"y is {'' if flat else 'not '}of one dimension, other than before.")
    learner._new_targets(y)
    cells = _anchor_cells(learner)
    step = _cell_step(learner, cells)
    source = with_targets(inputs, targets.column(cells))
    assert isinstance(source, InMemory)
    limit = block_limit(learner.memory_limit, step.features.n_features, step.width)
    sums = learner._sums.map(torch.from_numpy) + source.total(step, limit=limit)
    learner._held = learner._held.joined(source.samples, seen, HELD_ROWS, learner._seed)
    _solve(learner, sums, step, learner._held.block(kernel, learner._represented), limit)
    keep_batch(learner, sums, seen + source.n)


def keep_batch(learner: Any, sums: NormalSums, seen: int) -> None:
    """What the next batch is added to; the samples themselves are not kept."""
    learner._sums = sums.map(plain)
    learner.n_samples_seen_ = seen
    learner.X_fit_ = learner.Y_fit_ = None


# -- expectations -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AtAnchors:
    """A function of the targets by its values at the anchors."""

    values: np.ndarray

    @property
    def width(self) -> int | None:
        """How many numbers it gives; None: one."""
        return None if self.values.ndim == 1 else self.values.shape[1]


@dataclass(frozen=True)
class OfFeatures:
    """E[g(Y) | X = x] as a function of the features of x."""

    coefficients: np.ndarray
    constants: np.ndarray
    width: int | None


def regressed(learner: Any, g: Any, samples: Any) -> OfFeatures:
    """E[g(Y) | X = x] from samples: Σ_i w_i(x) g(y_i) is the ridge regression of g(y)."""
    if learner._state is None:
        raise ValueError(
            "samples= is for a fit with an approximation; an exact one sums over its own samples."
        )
    if not (isinstance(samples, tuple | list) and len(samples) == 2):
        raise ValueError("samples must be a pair of inputs and targets, (X, y).")
    X, y = samples
    kernel, kept = learner._adapted(learner.kernel_), learner.X_fit_
    try:
        inputs = read_inputs(learner, kernel, X, reset=False)
    finally:
        learner.X_fit_ = kept
    values = g
    if callable(g):
        values = as_rows(y, "y").map_blocks(g, dtype=float) if is_dask(y) else g(plain(y))
    values = values if is_dask(values) else np.asarray(plain(values), dtype=float)
    if values.ndim not in (1, 2) or len(values) != inputs.n:
        raise ValueError(
            f"g must give one value, or one vector, for each of the {inputs.n} samples; got {values.shape}."
        )
    width = None if values.ndim == 1 else values.shape[1]
    source = with_targets(inputs, values[:, None] if width is None else values)
    features = learner._summed_features()
    limit = block_limit(learner.memory_limit, features.n_features, width or 1, held=0)
    sums = source.total(NormalStep(features), limit=limit)
    ridge = learner._ridge_of(sums)
    theta = ridge.coefficients(learner.alpha_)
    return OfFeatures(plain(theta), plain(ridge.intercepts(theta)), width)
