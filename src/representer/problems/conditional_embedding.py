"""Conditional mean embeddings: the search over their hyperparameters, and their fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, Landmarks, Nystroem, input_output_pair
from representer.functions import ConditionalEmbedding, Embedding
from representer.kernels import Gaussian, Kernel, Laplacian
from representer.objectives import EmbeddingBound, HeldOut, LeaveOneOut
from representer.objectives.squared import SquaredLoss
from representer.operators import Representation
from representer.optimize import Choice, least_error, system_alpha
from representer.optimize.search import cut_short, interruption
from representer.problems.embedding import (
    LARGEST_BATCH,
    EmbeddingProblem,
    EmbeddingSearch,
    EmbeddingSettings,
    InputGram,
    held_out_rows,
)
from representer.samples import Block, Data, Samples
from representer.samples import rows as limits
from representer.systems import Scope
from representer.systems.conditional import (
    CellSystem,
    TargetSource,
    WeightSystem,
    conditional_system,
    searched_factor,
)

# The kernels of targets on a line that are compared, in median distances: the loss of a wide Laplacian one is CRPS,
# that of a narrow Gaussian one looks at densities.
WIDE, NARROW = 8.0, 0.25


@dataclass(frozen=True)
class ConditionalModel:
    """What a conditional mean embedding minimises.

    Parameters
    ----------
    kernel, output_kernel : Kernel
        A number in them stays, a word lets the data decide.
    criterion : {"loo", "validation", "penalized_validation", "rademacher"} or None
    alpha : float or None
        None: chosen by the criterion; without one, the mean k(x, x) over n.
    intercept : bool
    validation_fraction : float
        The share of samples that ``"validation"`` holds out.
    approximation : Approximation, pair of approximations or None
        Of the inputs and the targets; None is exact.
    memory_limit : int, str or None
        What a fit by sums may take beside the data.
    """

    kernel: Kernel
    output_kernel: Kernel
    criterion: str | None
    alpha: float | None
    intercept: bool
    validation_fraction: float
    approximation: Any = None
    memory_limit: Any = None

    def objective(self, block: Block, seed: int) -> SquaredLoss:
        """The criterion of samples whose targets are coordinates of elements of an RKHS."""
        R, weights = block.Y, block.weights
        options: dict[str, Any] = {"alpha": 1.0, "intercept": self.intercept, "sample_weight": weights}
        if self.criterion == "loo":
            return LeaveOneOut(R, groups=block.groups, **options)
        if self.criterion == "rademacher":
            return EmbeddingBound(R, **options)
        groups = None if block.groups is None else block.groups.cpu()
        labels = torch.zeros(len(R), dtype=torch.long)
        rows = held_out_rows(labels, self.validation_fraction, seed, groups)
        return HeldOut(R, validation=rows, penalized=self.criterion == "penalized_validation", **options)


@dataclass(frozen=True)
class ConditionalSolution:
    """The fitted embedding, its system, the criterion at its alpha, and log densities of targets that were left out."""

    function: ConditionalEmbedding
    system: WeightSystem | CellSystem
    value: float | None
    log_densities: Tensor | None = None


class ConditionalProblem(EmbeddingProblem):
    """min over f and b of the weighted mean of ‖l(y_i, ·) − f(x_i) − b‖² plus alpha‖f‖².

    Parameters
    ----------
    samples : Samples
        The inputs, with weights and groups; the targets of samples in memory have no columns.
    targets : TargetSource
        The targets.
    model : ConditionalModel
    representation : Representation
    flat : bool
        Is each target one number?
    seed : int
    inputs : data or None
        The inputs of samples in memory as they are stored.
    """

    def __init__(
        self,
        samples: Samples,
        targets: TargetSource,
        model: ConditionalModel,
        representation: Representation,
        *,
        flat: bool = False,
        seed: int = 0,
        inputs: Data = None,
    ):
        super().__init__(samples, model, representation, seed=seed, inputs=inputs)
        self.targets, self.flat = targets, flat

    @cached_property
    def pair(self) -> tuple[Approximation, Nystroem | Landmarks] | None:
        """The approximations of so many inputs and targets."""
        vectors = self.model.output_kernel.domain == "vectors"
        return input_output_pair(self.model.approximation, self.samples.n, vectors=vectors)

    @cached_property
    def scope(self) -> Scope:
        """Which samples are looked at, and what spans f."""
        return Scope.of(self.pair, self.samples.n)

    # -- the samples of a search --------------------------------------------------------------------------------------
    def _read(self, rows: np.ndarray) -> Block:
        """Samples of positive weight, with their numbers in the place of targets."""
        block = replace(self.samples.rows(rows), Y=torch.from_numpy(rows))
        return block.positive_part(pairwise=self.pairwise)

    @cached_property
    def _block(self) -> Block:
        """The samples that a search looks at, with their numbers: all, or a random part of many."""
        return self._read(self.scope.rows(self.samples, limits.SEARCH_ROWS, self.seed))

    @cached_property
    def _typical(self) -> Block:
        """The samples that decide words in kernels, with their numbers."""
        return self._read(self.scope.heuristic_rows(self.samples))

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel where the data put it."""
        return self._adapted.resolve(self._typical.X)

    @cached_property
    def embedding(self) -> ConditionalEmbedding:
        """The output kernel with numbers, and all targets of an exact fit, without weights."""
        source = self.targets
        kernel = self.model.output_kernel.resolve(source.prepared(source.rows(self._typical.Y.numpy())))
        anchors = source.values if self.scope.spans_all else None
        options = (self.representation, self.model.intercept, self.flat, self.seed)
        return ConditionalEmbedding(None, kernel, anchors, *options)

    @cached_property
    def _factor(self) -> Tensor:
        """R (n, r) with R Rᵀ = l of the targets that a search looks at."""
        return searched_factor(self.embedding, self.targets, self._block.Y)

    @cached_property
    def _inputs(self) -> InputGram:
        return self._input_gram(self._block)

    # -- the search ---------------------------------------------------------------------------------------------------
    def choose(self, settings: EmbeddingSettings) -> Choice:
        """What is free, chosen by the criterion; what is fixed stays, and a fit by sums chooses its own alpha."""
        model, n, exact = self.model, self.samples.n, self.scope.spans_all
        self.scope.require_memory(n, min(n, LARGEST_BATCH), self.representation.dtype.itemsize)
        if exact:
            self._factor  # noqa: B018  repairs, or raises, if the targets' Gram matrix is indefinite
        judged = exact or model.criterion != "loo"  # else the sums of all samples choose alpha
        if model.criterion is None or not (self.free or (model.alpha is None and judged)):
            alpha = self._inputs.scale(self.kernel) / self._inputs.n if model.alpha is None else model.alpha
            return Choice(self.kernel, alpha)
        return self._search(settings).search()

    def _search(self, settings: EmbeddingSettings) -> EmbeddingSearch:
        """That of the logarithm of the criterion."""
        model, kernel, inputs = self.model, self.kernel, self._inputs
        block = replace(self._block, X=self._factor, Y=self._factor)
        if inputs.n > LARGEST_BATCH:
            if block.groups is None:
                order = torch.randperm(inputs.n, generator=torch.Generator().manual_seed(settings.seed))
                index = order[:LARGEST_BATCH]
            else:
                labels = block.groups.cpu().numpy()
                index = torch.from_numpy(limits.sample_groups(labels, LARGEST_BATCH, settings.seed))
            inputs, block = inputs.rows(index), block.rows(index.numpy())
        inputs = inputs.by_features(kernel, limit=inputs.n)

        def criterion(labels: Block, _: object) -> SquaredLoss:
            return model.objective(labels, settings.seed)

        return self._search_by(criterion, inputs, kernel, block, settings, logarithm=True)

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, choice: Choice) -> ConditionalSolution:
        """The embedding and its system at the chosen kernel; alpha, too, unless the sums of a fit choose it."""
        model, scale = self.model, None
        if model.criterion is None and model.alpha is None:
            scale = self._input_gram(self._typical).scale(choice.model)
        by_search = model.criterion not in (None, "loo") and model.alpha is None
        with torch.no_grad():
            system = conditional_system(
                choice.model,
                self.samples,
                self.targets,
                self.embedding,
                choice.alpha,
                intercept=model.intercept,
                pair=self.pair,
                inputs=self.inputs,
                memory_limit=model.memory_limit,
                scale=scale,
                first_alpha=choice.alpha if by_search else None,
            )
            return settled(model, system, choice.value)

    # -- refits -------------------------------------------------------------------------------------------------------
    def with_output_kernel(self, kernel: Kernel) -> ConditionalProblem:
        """The same problem with another kernel of its targets."""
        model, targets = replace(self.model, output_kernel=kernel), replace(self.targets, kernel=kernel)
        options = {"flat": self.flat, "seed": self.seed, "inputs": self.inputs}
        return ConditionalProblem(self.samples, targets, model, self.representation, **options)

    def with_samples(self, samples: Samples, inputs: Data, rows: np.ndarray) -> ConditionalProblem:
        """The same problem for samples that are these rows of its own, with their targets."""
        options = {"flat": self.flat, "seed": self.seed, "inputs": inputs}
        return ConditionalProblem(samples, self.targets.fold(rows), self.model, self.representation, **options)

    def answer(self, solution: ConditionalSolution, X: Data) -> Embedding:
        """The embeddings of the conditional distributions at new inputs."""
        return solution.function.embedding(X)


def settled(
    model: ConditionalModel, system: WeightSystem | CellSystem, value: float | None = None
) -> ConditionalSolution:
    """The solution of a system; a fit by sums chooses alpha by its leave-one-out error, unless something else does."""
    system = system.settled(system_alpha if model.alpha is None else model.alpha)
    value = value if system.value is None else system.value
    function, log_densities = system.judged(model.criterion)
    return ConditionalSolution(function, system.at_rest(), value, log_densities)


# -- kernels of targets -----------------------------------------------------------------------------------------------
TARGETS = "kernels of targets"


def best_solution(
    problems: Sequence[ConditionalProblem], settings: EmbeddingSettings, *, learned: bool
) -> tuple[ConditionalProblem, Choice, ConditionalSolution]:
    """Of problems that differ in the kernel of inputs, the one of least criterion, with its choice and its solution.

    ``learned`` says that the kernel of targets on a line is chosen, too: each of several is searched with, and a later
    one is taken where its solution has more log density for left-out samples, beyond doubt.
    """
    kernels = line_kernels(problems[0]) if learned else []
    candidates = [[problem.with_output_kernel(kernel) for problem in problems] for kernel in kernels] or [[*problems]]
    best: tuple[ConditionalProblem, Choice, ConditionalSolution] | None = None
    for candidate in candidates:
        if best is not None and settings.deadline.has_passed():
            break
        try:
            problem, choice = least_error(candidate, settings)
            solution = problem.solve(choice)
        except KeyboardInterrupt:
            if best is None:
                raise
            best = best[0], cut_short(best[1], interruption(settings.deadline, TARGETS)), best[2]
            break
        if best is None or _is_likelier(solution.log_densities, best[2].log_densities):
            best = problem, choice, solution
        if choice.interrupted:
            if best[1] is not choice:
                best = best[0], cut_short(best[1], choice.unconverged), best[2]
            break
    assert best is not None
    return best


def _is_likelier(log_densities: Tensor | None, others: Tensor | None) -> bool:
    """Is the mean of the first the larger one, by two standard errors of the difference?"""
    if log_densities is None or others is None:
        return False
    gains = log_densities - others
    return bool(gains.mean() > 2.0 * gains.std(correction=0) / len(gains) ** 0.5)


def line_kernels(problem: ConditionalProblem) -> list[Kernel]:
    """The kernels of its targets that are compared: none where targets are not on a line, or nothing is left out."""
    if not problem.scope.spans_all or problem.model.criterion is None or problem.targets.kernel.domain != "vectors":
        return []
    embedding = problem.embedding
    if embedding.vectors("output_kernel").shape[1] != 1 or not isinstance(embedding.kernel, Gaussian):
        return []
    median = float(embedding.kernel.hyperparameter_values()["lengthscale"])
    wide: list[Kernel] = [Laplacian(WIDE * median)]
    return wide if problem.samples.n > limits.HELD_ROWS // 2 else [*wide, Gaussian(NARROW * median)]
