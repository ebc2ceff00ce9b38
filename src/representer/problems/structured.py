"""Structured outputs: regression into the RKHS of an output kernel, and the choice of what is left open in it.

The numbers are alpha, those of the operator and those of the kernels. They are chosen by leave-one-out in the RKHS of
the outputs, or by the loss of a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial

import numpy as np
import torch
from torch import Tensor

from representer.approximation import input_output_pair
from representer.functions import Embedding, EmbeddingFunction
from representer.functions.embedding import squared_distances
from representer.kernels import Kernel
from representer.linalg import note_residual
from representer.operators import (
    ConditionalCovariance,
    Decomposable,
    Dense,
    Operator,
    PrincipalComponents,
    original,
    silent_repairs,
)
from representer.optimize import Choice, Deadline, Monitor, Problem, SearchSettings, best_alpha, log_spaced
from representer.preimage import Decoder
from representer.problems.ridge import Search
from representer.samples import Data, InMemory, Samples, count, plain, rows, take
from representer.systems import RidgeData, check_size, shift_range
from representer.systems.structured import (
    DiagonalRegression,
    Pairs,
    StructuredModel,
    StructuredSystem,
    guard_memory,
    kept_pairs,
    structured_system,
)
from representer.values import Positive

# Values of alpha on a first grid, and on a finer one between the neighbours of its best.
COARSE, FINE = 13, 9
# A search over a kernel starts where leave-one-out is best among its lengthscales divided by these.
FACTORS = (1.0, 2.0, 4.0)
# By a task's loss, lengthscales of the output kernel are compared with their heuristics divided by these.
OUTPUT_FACTORS = (4.0, 2.0, 1.0, 0.5, 0.25)
# By a task's loss, so many numbers of components are compared, from 1 to all.
COMPONENTS = 8
# Values of epsilon that are compared, in units of the mean k(x, x).
EPSILONS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class Task:
    """How decoded predictions are judged."""

    decoder: Decoder  # what makes objects, before it knows the training outputs
    loss: Callable[[Data, Data], float | np.ndarray] | None  # (outputs, predictions); None: the distance in the RKHS
    splits: Callable[[Pairs], list[tuple[np.ndarray, np.ndarray]]]  # train and test rows among samples with an output
    free: list[str]  # what is chosen of the output kernel
    verbose: int = 0  # 1 shows progress
    deadline: Deadline = field(default_factory=Deadline)


@dataclass(frozen=True)
class StructuredChoice(Choice):
    """A choice: a model with numbers in kernels and operator, and the system that has been computed on the way."""

    system: StructuredSystem | None = None


class StructuredProblem(Problem):
    """min (1/n) Σ w_i ‖l(·, y_i) − g(x_i)‖² + alpha ‖g‖² over the functions g of the operator-valued kernel k A.

    Parameters
    ----------
    given : StructuredModel
        Words in its kernels are left to the samples; shares in its approximation are, too.
    pairs : Pairs
        The samples of positive weight; of samples that are on Dask, those that are kept.
    on_dask : Samples or None
        All samples, if they are not in memory.
    task : Task or None
        What judges numbers; None is the leave-one-out error.
    shrinkage : float
        The precision of a normal prior on the logarithms of each vector of the input kernel's hyperparameters around
        their mean.
    """

    def __init__(
        self,
        given: StructuredModel,
        pairs: Pairs,
        on_dask: Samples | None = None,
        task: Task | None = None,
        *,
        shrinkage: float = 0.0,
    ):
        samples = InMemory(pairs) if on_dask is None else on_dask
        super().__init__(samples, given, given.representation, seed=given.seed)
        self.given, self.task, self.shrinkage = given, task, shrinkage
        pairs = kept_pairs(given, pairs, samples)
        inputs, outputs = (plain(data, copy=True) for data in (pairs.inputs, pairs.outputs))
        self.pairs = pairs = replace(pairs, inputs=inputs, outputs=outputs)  # a learner keeps them
        n = count(pairs.X) if pairs.labelled is not None else samples.n
        output = given.output_kernel
        pair = input_output_pair(given.approximation, n, vectors=output.domain == "vectors")
        self.model = replace(given, output_kernel=output.resolve(pairs.Y), approximation=pair)

    @property
    def free(self) -> list[str]:
        """The hyperparameters of the input kernel that are left to the search."""
        return self.given.kernel.free()

    @property
    def chooses(self) -> bool:
        """Is alpha, a number of the operator or one of the output kernel left to the criterion?"""
        return self.model.is_open or bool(self.task and self.task.free)

    @cached_property
    def start_kernel(self) -> Kernel:
        """The input kernel where a search starts, with numbers for all hyperparameters."""
        kernel = self.given.kernel.resolve(self.pairs.X)
        if not isinstance(self.model.alpha, float):
            check_size(kernel, self.pairs.X)
        return kernel

    # -- the input kernel ---------------------------------------------------------------------------------------------
    @cached_property
    def _search(self) -> Search:
        return self._search_before(Deadline())

    def _search_before(self, deadline: Deadline) -> Search:
        """The leave-one-out error as a function of the input kernel and alpha, on a part of the samples.

        The operator is that of the kernel where the search starts; the fit computes it anew. At the deadline the starts
        so far are compared.
        """
        model = replace(self.model, kernel=self.start_kernel, approximation=None)
        pairs = self.pairs.sample(rows.STRUCTURED_ROWS // 2, model.seed)
        trials: list[tuple[Choice, DiagonalRegression, Kernel]] = []
        for kernel in rescaled(model.kernel, self.free, FACTORS):
            if trials and deadline.has_passed():
                break
            system = structured_system(replace(model, kernel=kernel), pairs)
            trials.append((*choose_numbers(system, deadline), kernel))
        choice, diagonal, kernel = min(trials, key=lambda trial: trial[0].value or 0.0)
        if isinstance(model.operator, PrincipalComponents) and model.opens_operator:
            diagonal = diagonal.regression.identity()  # how many components there are is decided after the search
        # As a matrix, because the coordinates of a diagonal operator would be searched one by one.
        operator = Dense(np.diag(plain(diagonal.values))) if len(diagonal.values) > 1 else None
        w = pairs.full_weights(diagonal.Z)
        targets, shares = diagonal.Z / w.sqrt()[:, None], w / w.mean()
        data = RidgeData(Decomposable(kernel, operator), pairs.X, targets, shares, None, pairs.groups)
        # Of candidates for alpha, the one that is best where the search starts stays.
        alpha = None if model.alpha is None else choice.alpha
        return Search(data, [f"kernel__{name}" for name in self.free], alpha, choice.alpha, self.shrinkage)

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logarithm of the leave-one-out error and its gradient at points of raw hyperparameters (b, m)."""
        search = self._search
        search = search if rows is None else replace(search, data=search.data.rows(rows))
        return search.value_and_gradient(points, "loo")

    # -- all numbers --------------------------------------------------------------------------------------------------
    def choose(self, settings: SearchSettings) -> StructuredChoice:
        """What is free, chosen: the input kernel by leave-one-out, the rest by the criterion; what is fixed stays."""
        guard_memory(self.model, self.pairs, chooses=self.chooses)
        model, learned = self.model, None
        if self.free:
            with silent_repairs():
                learned = self._search_before(settings.deadline).minimised(settings, "loo")
            kernel = model.representation.adapted(original(learned.model.kernel).numbers(), repair=True)
            model = replace(model, kernel=kernel)
        else:
            model = replace(model, kernel=self.start_kernel)
        if self.task is not None and self.chooses:
            choice = self._by_task(model, self.task)
        else:
            choice = self._by_loo(model, settings.deadline, evaluate=learned is not None and self.task is None)
        if learned is None:
            return choice
        return replace(
            choice,
            history=learned.history,
            interrupted=learned.interrupted or choice.interrupted,
            unconverged=" ".join(filter(None, (learned.unconverged, choice.unconverged))) or None,
        )

    def _by_loo(self, model: StructuredModel, deadline: Deadline, *, evaluate: bool) -> StructuredChoice:
        """The numbers of least leave-one-out error; what is given is judged with ``evaluate`` only."""
        system = structured_system(model, self.pairs, self.samples)
        if model.output_kernel.domain != "vectors" and system.sums is None:
            system.regression.outputs.made  # noqa: B018  repairs, or raises, if the outputs' Gram matrix is indefinite
        if isinstance(model.alpha, float) and not (model.opens_operator or evaluate):
            return settled(system, Choice(model.operator, model.alpha))
        judged = system.judged()
        choice, diagonal = choose_numbers(judged, deadline)
        return settled(system, choice, diagonal if judged is system else None)

    def _by_task(self, model: StructuredModel, task: Task) -> StructuredChoice:
        """The numbers of least task loss, those of the output kernel included."""
        best: tuple[StructuredSystem, Choice] | None = None
        for output in rescaled(model.output_kernel, task.free, OUTPUT_FACTORS):
            try:
                system = structured_system(replace(model, output_kernel=output), self.pairs, self.samples)
                choice = validate(system, task, keep_partial=best is None)
            except KeyboardInterrupt:
                if best is None:
                    raise
                message = "The search over output kernels was interrupted: the best so far is kept."
                best = best[0], replace(best[1], interrupted=True, unconverged=message)
                break
            if best is None or choice.value < best[1].value:  # type: ignore[operator]
                best = system, choice
            if choice.interrupted or task.deadline.was_missed:
                break
        assert best is not None
        return settled(*best)

    def solve(self, choice: StructuredChoice) -> tuple[EmbeddingFunction, StructuredSystem]:
        """The function g at chosen numbers, and its system."""
        system = choice.system
        if system is None:
            system = structured_system(choice.model, self.pairs, self.samples)
            system = system.settled(choice.model.operator, choice.alpha)
        note_residual("the equations of the fit", system.residual)
        return system.function(), system

    # -- refits -------------------------------------------------------------------------------------------------------
    def on_rows(self, rows: np.ndarray) -> StructuredProblem:
        """The same problem for some of the samples that have an output."""
        task = self.task and fold_task(self.task, self.given.output_kernel, rows)
        return StructuredProblem(self.given, self._all.rows(rows), task=task, shrinkage=self.shrinkage)

    def unseen(self, train: np.ndarray, test: np.ndarray) -> Data:
        """The inputs of some samples that have an output, as a fit to others takes them."""
        return inputs_of_fold(self._all, train, test)

    def answer(self, solution: tuple[EmbeddingFunction, StructuredSystem], X: Data) -> Embedding:
        """The elements g(x) at new inputs."""
        return solution[0].embedding(X)

    @property
    def _all(self) -> Pairs:
        if self.samples.held is None:
            raise ValueError("Fits without some samples need all samples in memory; these are on Dask.")
        assert isinstance(self.samples.held, Pairs)
        return self.samples.held


def settled(system: StructuredSystem, choice: Choice, diagonal: DiagonalRegression | None = None) -> StructuredChoice:
    """A choice of an operator and alpha, with the system that has them."""
    operator = choice.model
    if isinstance(operator, PrincipalComponents):  # no more than have a variance
        diagonal = system.regression.under(operator) if diagonal is None else diagonal
        assert diagonal.vectors is not None
        operator = PrincipalComponents(diagonal.vectors.shape[1])
    system = system.settled(operator, choice.alpha, diagonal)
    ending = (choice.history, choice.interrupted, choice.unconverged)
    return StructuredChoice(system.model, choice.alpha, choice.value, *ending, system)


def add_batch(
    system: StructuredSystem,
    batch: Pairs,
    before: Choice,
    operator: Operator | None,
    alpha: float | np.ndarray | None,
    *,
    choose: bool,
) -> StructuredChoice:
    """The system of a fit by sums with one more batch; with ``choose``, what is open in its model is chosen."""
    system = system.joined(batch)
    opened = replace(system, model=replace(system.model, operator=operator, alpha=alpha))
    if choose and opened.model.is_open:
        return settled(opened, *choose_numbers(opened))
    return settled(system, before)


def calibrated(decoder: Decoder, function: EmbeddingFunction, system: StructuredSystem) -> Decoder:
    """The decoder with its thresholds chosen on leave-one-out predictions, if it has some."""
    if type(decoder).calibrate is Decoder.calibrate:
        return decoder
    outputs, weights = system.left_out_sample()
    return decoder.calibrate(function.element(weights), outputs)


def inputs_of_fold(pairs: Pairs, train: np.ndarray, test: np.ndarray) -> Data:
    """The stored inputs of test rows as a fit to the training rows takes them."""
    numbers = pairs.numbers
    X = take(pairs.inputs, numbers[test])
    return X[:, numbers[train].numpy()] if pairs.pairwise[0] else X


def fold_task(task: Task, kernel: Kernel, train: np.ndarray) -> Task:
    """The task of a fit to training rows; numbers of a Gram matrix of outputs are those among all samples."""
    loss = task.loss
    if loss is None or kernel.domain != "gram":
        return task
    return replace(task, loss=lambda outputs, predicted: loss(train[outputs], train[predicted]))


# -- leave-one-out ----------------------------------------------------------------------------------------------------
def operators_to_compare(system: StructuredSystem) -> list[Operator | None]:
    """The given operator, or one for each epsilon of the grid."""
    operator = system.model.operator
    if isinstance(operator, ConditionalCovariance) and isinstance(operator.epsilon, str):
        return [ConditionalCovariance(system.regression.scale * factor) for factor in EPSILONS]
    return [operator]


def with_all_components(system: StructuredSystem, operator: Operator | None) -> DiagonalRegression:
    """The regression under an operator, with all principal components."""
    components = isinstance(operator, PrincipalComponents)
    return system.regression.under(PrincipalComponents("auto") if components else operator)


def alphas_to_compare(system: StructuredSystem, values: Tensor) -> Tensor:
    """The candidates; of alpha="auto", from where rounding takes over to where nothing is fitted."""
    model = system.model
    if model.alpha is not None:
        return model.like.new_tensor(np.atleast_1d(model.alpha))
    inputs, n = system.regression.inputs, system.regression.weight
    size = values.max() if len(values) else values.new_ones(())  # of A
    known = size * inputs.spectrum.values / n if inputs.keeps_digits else None
    low, high = shift_range(size * system.regression.scale, known)
    return log_spaced(low, high, COARSE)


Error = Callable[[float], tuple[float, int | None]]  # of alpha: the error, and the number of components


def left_out_error(model: StructuredModel, diagonal: DiagonalRegression, alpha: float) -> tuple[float, int | None]:
    """The mean squared leave-one-out error, and the number of components that it is for."""
    errors, operator, number = diagonal.errors(alpha), model.operator, None
    if isinstance(operator, PrincipalComponents):
        # Each component that is kept costs its error, each that is left out its variance.
        totals = (errors - diagonal.variances).cumsum(0)
        number = int(totals.argmin()) + 1 if model.opens_operator else operator.checked()
        total = totals[min(number, len(totals)) - 1] + diagonal.variances.sum()
    else:
        total = errors.sum()
    value = float(total + diagonal.missed) / diagonal.regression.weight
    return value if math.isfinite(value) else math.inf, number


def choose_numbers(system: StructuredSystem, deadline: Deadline | None = None) -> tuple[Choice, DiagonalRegression]:
    """The operator and the alpha of least leave-one-out error in the RKHS of the outputs, and their regression.

    What is given stays; alpha is looked for on a grid that is refined, epsilon on one that is not, the number of
    components among all. At the deadline the operators so far are compared, on the coarse grid.
    """
    trials: list[tuple[float, Operator | None, DiagonalRegression, Error, Tensor]] = []
    deadline = Deadline() if deadline is None else deadline
    for operator in operators_to_compare(system):
        if trials and deadline.has_passed():
            break
        diagonal = with_all_components(system, operator)
        error: Error = cache(partial(left_out_error, system.model, diagonal))
        grid = alphas_to_compare(system, diagonal.values)
        trials.append((best_alpha(partial(_path, error), grid, refine=False)[1], operator, diagonal, error, grid))
        trials = [min(trials, key=lambda trial: trial[0])]  # the regressions of the others are forgotten
    _, operator, diagonal, error, grid = trials[0]
    refine = system.model.alpha is None and not deadline.was_missed
    alpha, value = best_alpha(partial(_path, error), grid, refine=refine, size=FINE)
    number = error(alpha)[1]
    if number is not None:
        operator, diagonal = PrincipalComponents(number), diagonal.leading(number)
    return Choice(operator, alpha, value), diagonal


def _path(error: Error, alphas: Tensor) -> Tensor:
    """The leave-one-out errors of many values of alpha, (a,)."""
    return alphas.new_tensor([error(alpha)[0] for alpha in alphas.tolist()])


def rescaled(kernel: Kernel, free: list[str], factors: Sequence[float]) -> Iterator[Kernel]:
    """The kernel with what is free and positive divided by each of some factors; itself if nothing is."""
    packing, raw = kernel.packing(free)
    sizes = [packing.shapes[name].numel() for name in packing.shapes]
    positive = [isinstance(packing.constraints[name], Positive) for name in packing.shapes]
    shift = raw.new_tensor([float(p) for p, size in zip(positive, sizes, strict=True) for _ in range(size)])
    for factor in factors if bool(shift.any()) else (1.0,):
        yield kernel.replace(packing.unpack(raw - math.log(factor) * shift)).numbers()


# -- a task's loss ----------------------------------------------------------------------------------------------------
def validate(system: StructuredSystem, task: Task, *, keep_partial: bool) -> Choice:
    """The setting of least task loss over the folds, each of which has an operator of its own.

    Leave-one-out in closed form holds the operator of all samples fixed; with few samples that flatters covariances and
    components. An interrupt ends it: with ``keep_partial`` the folds so far decide, if there are any.
    """
    model, pairs = system.model, system.pairs
    settings: list[tuple[Operator | None, float]] = []
    for operator in operators_to_compare(system):
        diagonal = with_all_components(system, operator)
        operators = [operator]
        if isinstance(operator, PrincipalComponents) and model.opens_operator:
            assert diagonal.vectors is not None
            numbers = np.geomspace(1, diagonal.vectors.shape[1], COMPONENTS).round().astype(int)
            operators = [PrincipalComponents(number) for number in np.unique(numbers).tolist()]
        alphas = alphas_to_compare(system, diagonal.values).tolist()
        settings += [(operator, alpha) for operator in operators for alpha in alphas]
    totals, seen, message = np.zeros(len(settings)), 0.0, None
    known, splits = pairs.known(pairs.weights), task.splits(pairs)
    weights = np.ones(len(pairs)) if known is None else plain(known)
    with Monitor(None, task.verbose, len(splits) * len(settings), "task loss") as monitor:
        for train, test in splits:
            try:
                losses = _fold_losses(model, pairs, settings, task, train, test, weights[test], monitor)
            except KeyboardInterrupt:
                if not (seen and keep_partial):
                    raise
                message = "The search by the task's loss was interrupted: the folds so far decide."
                break
            totals += weights[test].sum() * losses
            seen += weights[test].sum()
            if task.deadline.has_passed():
                break
    totals /= max(seen, np.finfo(float).tiny)
    if not np.isfinite(totals).any():
        raise ValueError("task_loss is not finite for any alpha; check what it returns.")
    equal = np.flatnonzero(totals == np.nanmin(np.where(np.isfinite(totals), totals, np.nan)))
    best = int(equal[len(equal) // 2])  # losses of discrete objects tie: the middle of them is safest
    return Choice(*settings[best], float(totals[best]), interrupted=message is not None, unconverged=message)


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
    model = model.capped(len(train))
    fold, X = pairs.rows(train), inputs_of_fold(pairs, train, test)
    system, decoder = structured_system(model, fold), task.decoder.resolve(model.output_kernel, fold.outputs)
    pairwise = model.output_kernel.domain == "gram"
    true = test if pairwise else take(pairs.outputs, torch.from_numpy(test))
    losses: list[float] = []
    whole, last = None, None
    for operator, alpha in settings:
        if whole is None or not (operator == last or isinstance(operator, PrincipalComponents)):
            whole, last = with_all_components(system, operator), operator
        diagonal = whole.leading(operator.checked()) if isinstance(operator, PrincipalComponents) else whole
        fitted = system.settled(operator, alpha, diagonal)
        function = fitted.function()
        predicted = function.answers(calibrated(decoder, function, fitted).decode, X)
        predicted = train[predicted] if pairwise else predicted
        loss = output_losses(model, pairs, true, predicted) if task.loss is None else task.loss(true, predicted)
        losses.append(mean_loss(loss, weights))
        monitor(len(monitor.history) + 1, losses[-1], math.nan, 1)
    return np.array(losses)


def output_losses(model: StructuredModel, pairs: Pairs, true: Data, predicted: Data) -> np.ndarray:
    """‖l(·, y) − l(·, ŷ)‖² of stored outputs, or of their numbers in a Gram matrix."""
    kernel = model.output_kernel
    if kernel.domain == "gram":
        return gram_losses(pairs.outputs, true, predicted)
    one, two = (model.outputs.inputs(kernel, outputs) for outputs in (true, predicted))
    return plain(squared_distances(kernel, one, two))


def gram_losses(gram: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """‖l(·, y) − l(·, ŷ)‖² of numbers of outputs with a Gram matrix."""
    return np.maximum(gram[true, true] + gram[predicted, predicted] - 2.0 * gram[true, predicted], 0.0)


def mean_loss(losses: float | np.ndarray, weights: np.ndarray) -> float:
    """The mean of what a task loss has returned: a number, or one for each sample."""
    try:
        values = np.asarray(plain(losses), dtype=np.float64)
        return float(np.average(values, weights=weights) if values.shape == weights.shape else np.mean(values))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"task_loss must return a number, or one for each sample; it returned {losses!r:.80}."
        ) from error
