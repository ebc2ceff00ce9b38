"""Embeddings of class labels: the search over their hyperparameters, and their ridge regression."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation
from representer.functions import Expansion, FeatureFunction, Function, Stacked
from representer.kernels import Kernel, Stationary
from representer.objectives import HeldOutRisk, LeaveOneOutRisk, RademacherBound
from representer.objectives.risk import ClassRisk, Observer
from representer.operators import Decomposable, original
from representer.optimize import Choice
from representer.preimage.probabilities import EmbeddingCalibration, FarField, calibrate_embedding, far_field
from representer.problems.embedding import (
    LARGEST_BATCH,
    EmbeddingProblem,
    EmbeddingSearch,
    EmbeddingSettings,
    InputGram,
    held_out_rows,
)
from representer.problems.stack import LogLoss, StackProblem, StackSolution
from representer.samples import Block, plain
from representer.samples import rows as limits
from representer.systems import FittedSystem, StackedSystem, Support, ridge_system

CRITERIA = ("loo", "rademacher", "erm", "validation")


@dataclass(frozen=True)
class ClassModel:
    """What an embedding classifier minimises, and what its probabilities are.

    Parameters
    ----------
    kernel : Kernel
        A number in it stays, a word lets the data decide.
    alpha : float or None
        The weight of ‖f‖²; None: chosen by the criterion, and without one the mean k(x, x) over n.
    criterion : {"loo", "rademacher", "erm", "validation"} or None
    intercept, calibrated : bool
    complexity_weight : float or None for that of the criterion
    validation_fraction : float
        The share of samples that ``"validation"`` holds out.
    clip : float
        Where cross entropies of training samples are clipped.
    approximation : Approximation or None
        What makes features; None is exact.
    batch_size : int, "auto" or None
        How many samples a search looks at at a time; None: all.
    memory_limit : int, str or None
        What a fit with features may take beside the data.
    """

    kernel: Kernel
    alpha: float | None = None
    criterion: str | None = "loo"
    intercept: bool = True
    calibrated: bool = True
    complexity_weight: float | None = None
    validation_fraction: float = 0.25
    clip: float = 1e-15
    approximation: Approximation | None = None
    batch_size: int | str | None = "auto"
    memory_limit: Any = None

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
        loss = "softmax" if self.calibrated else "clipped"  # that of the probabilities which are then predicted
        return HeldOutRisk(Y, weight=weight or 0.0, validation=validation, loss=loss, clip=self.clip, **options)


def clipped_log_loss(fitted: Tensor, Y: Tensor, clip: float) -> Tensor:
    """−log of the estimate for the true class, clipped."""
    return -(fitted * Y).sum(-1).clamp(clip, 1.0).log()


@dataclass(frozen=True)
class ClassSolution:
    """A fitted embedding of labels, and what it says of itself.

    Parameters
    ----------
    function : Expansion, FeatureFunction or Stacked
    system : FittedSystem or StackedSystem
    choice : Choice
    calibration : EmbeddingCalibration or None
    loo_estimates : array (n, p) or None
        Of the samples, or of those that stand for them.
    largest : float
        sup k(x, x) at the samples.
    complexity : float
        r = √(‖f‖² sup k(x, x)).
    training_loss : float or None
        The mean cross entropy of the samples; None after batches.
    stack : StackSolution or None
        How the members of a stack came about.
    far_field : FarField or None
        What probabilities are far from the samples.
    """

    function: Expansion | FeatureFunction | Stacked
    system: FittedSystem | StackedSystem
    choice: Choice
    calibration: EmbeddingCalibration | None
    loo_estimates: np.ndarray | None
    largest: float
    complexity: float
    training_loss: float | None = None
    stack: StackSolution | None = None
    far_field: FarField | None = None


class ClassProblem(EmbeddingProblem):
    """min over f and b of the weighted mean of ‖e(y_i) − f(x_i) − b‖² plus alpha‖f‖², with one-hot labels e(y)."""

    model: ClassModel

    # -- the search ---------------------------------------------------------------------------------------------------
    @cached_property
    def _seen(self) -> tuple[Kernel, Block]:
        """The samples of positive weight that a search may look at, and the kernel where they put it.

        These are all, or under an approximation a random part of many.
        """
        kernel, samples = self.model.kernel, self.samples
        self.scope.check(kernel, samples.n)
        rows = self.scope.rows(samples, limits.SEARCH_LIMIT, self.seed)
        self.scope.read_ahead(samples, rows, self.seed)  # those that are held later are the first of them
        block = samples.rows(rows).positive_part(pairwise=self.pairwise)
        return self._adapted.resolve(block.X), block

    def _batch(self, n: int) -> int:
        """How many of n samples are looked at at a time."""
        limit = LARGEST_BATCH if self.model.batch_size == "auto" else self.model.batch_size
        return n if limit is None else min(int(limit), n)

    def _require_memory(self, inputs: InputGram) -> None:
        """Refuse a fit that does not fit, before anything of size n × n exists."""
        learned = self.free and self.model.criterion is not None
        n = inputs.n
        searched = min(self._batch(n), self.scope.search_size(n)) if learned else 0
        self.scope.require_memory(n, searched, self.representation.dtype.itemsize, moved=n)

    def choose(self, settings: EmbeddingSettings) -> Choice:
        """What is free, chosen by the criterion; what is fixed stays."""
        model, (kernel, block) = self.model, self._seen
        inputs = self._input_gram(block)
        self._require_memory(inputs)
        if model.criterion is None:
            n = len(self.samples.weighty())
            return Choice(kernel, inputs.scale(kernel) / n if model.alpha is None else model.alpha)
        if model.alpha is not None and not self.free:
            return Choice(kernel, model.alpha)
        return self._search(settings).search()

    def _search(self, settings: EmbeddingSettings) -> EmbeddingSearch:
        model, (kernel, block) = self.model, self._seen
        inputs = self._input_gram(block)
        inputs, block = _some(inputs, block, self.scope.search_size(inputs.n), settings.seed)
        inputs = replace(inputs, features=self.scope.moved(kernel, inputs.X, settings.seed))
        size = self._batch(inputs.n)
        inputs = inputs.by_features(kernel, limit=size)
        if inputs.features is not None and model.batch_size == "auto":  # features are cheap however many samples
            size = inputs.n
        solver = settings.solver
        if solver == "auto":
            solver = "lbfgs" if model.batch_size == "auto" or size == inputs.n else "adam"
        if solver == "lbfgs" and size < inputs.n:
            inputs, block = _some(inputs, block, size, settings.seed)
        settings = replace(settings, solver=solver, batch_size=size if size < inputs.n else None)

        def criterion(labels: Block, observer: Observer) -> ClassRisk:
            return model.objective(kernel, labels, settings.seed, observer)

        return self._search_by(criterion, inputs, kernel, replace(block, X=block.Y), settings)

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, choice: Choice) -> ClassSolution:
        """The function and its system at the chosen kernel and alpha, and how sure its estimates are."""
        model = self.model
        with torch.no_grad():
            system = ridge_system(
                Decomposable(choice.model),
                self.samples,
                choice.alpha,
                self.representation,
                intercept=model.intercept,
                approximation=model.approximation,
                explicit=True,
                solver="direct",
                memory_limit=model.memory_limit,
                inputs=self.inputs,
                seed=self.seed,
            )
            report = system.report(self.samples, partial(clipped_log_loss, clip=model.clip))
            return self._solution(system, choice, report.largest, report.loss / system.weight)

    def add(self, before: FittedSystem | StackedSystem, largest: float, block: Block, choice: Choice) -> ClassSolution:
        """The solution with a block of more samples; ``largest`` is sup k(x, x) of those before."""
        with torch.no_grad():
            diagonal = self._adapted._diag(block.prepared(self.model.kernel).X)
            return self._solution(before.added(block), choice, max(largest, float(diagonal.max())), None)

    def _solution(
        self, system: FittedSystem | StackedSystem, choice: Choice, largest: float, loss: float | None
    ) -> ClassSolution:
        calibration = estimates = far = None
        function = system.function()
        if self.model.calibrated:
            block, loo = system.left_out_sample()
            sparing = isinstance(system, StackedSystem)
            calibration = calibrate_embedding(loo, block.Y, block.weights, sparing=sparing)
            estimates = plain(system.with_weightless(loo).to(self.representation.dtype))
            far = _far_field(system, function, calibration, block, loo)
        complexity = system.norm() * math.sqrt(largest)
        options = (choice, calibration, estimates, largest, complexity, loss, None, far)
        return ClassSolution(function, system.at_rest(), *options)


def _far_field(
    system: FittedSystem | StackedSystem,
    function: Function,
    calibration: EmbeddingCalibration,
    block: Block,
    loo: Tensor,
) -> FarField | None:
    """What probabilities are far from the samples, by the support of the left-out ones; None for Gram matrices."""
    member = system.systems[0] if isinstance(system, StackedSystem) else system
    samples, held = member.samples, getattr(member, "held", None)
    if not isinstance(function, Stacked) and function.spans()[0].kernel.domain == "gram":
        return None
    support = Support.of(function, system.alpha, samples, held)
    rows = None
    if held is None and samples is not None and samples.weights is not None:
        rows = torch.from_numpy(np.flatnonzero(samples.weights > 0))
    return far_field(support, calibration(plain(loo)), block.Y, block.weights, rows)


def _some(inputs: InputGram, block: Block, size: int, seed: int) -> tuple[InputGram, Block]:
    """So many random samples, in order; of groups, whole ones."""
    if size >= len(block):
        return inputs, block
    rows = limits.drawn_rows(len(block), size, seed, block.groups)
    return inputs.rows(rows), block.rows(rows.numpy())


def solve_stack(problems: list[ClassProblem], settings: EmbeddingSettings, weights: np.ndarray | None) -> ClassSolution:
    """The stack of several problems of the same samples, whose calibration is that of its own left-out estimates."""
    model, samples = problems[0].model, problems[0].samples
    problem = StackProblem(problems, LogLoss(), weights)
    stack = problem.solve(problem.choose(settings))
    calibration = estimates = far = None
    if model.calibrated:
        block, values = stack.system.left_out_sample() if stack.left_out is None else stack.left_out
        calibration = calibrate_embedding(values, block.Y, block.weights, sparing=True)
        far = _far_field(stack.system, stack.function, calibration, block, values)
        own = [solution.loo_estimates for solution in stack.solutions]
        estimates = sum(w * member for w, member in zip(stack.system.weights, own, strict=True))
    loss, held = None, samples.held
    if held is not None:
        losses = clipped_log_loss(stack.function(problems[0].stored_inputs), held.Y, model.clip)
        loss = float(losses.sum() if held.weights is None else losses @ held.weights) / samples.weight
    shares = stack.system.weights[:, 0]
    complexity = float(sum(w * own.complexity for w, own in zip(shares, stack.solutions, strict=True)))
    largest = max(own.largest for own in stack.solutions)
    options = (stack.choice, calibration, estimates, largest, complexity, loss, stack, far)
    return ClassSolution(stack.function, stack.system, *options)
