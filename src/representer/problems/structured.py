"""Structured outputs: regression into the RKHS of an output kernel, and the choice of what is left open in it.

The numbers are alpha, those of the operator and those of the kernels. They are chosen by leave-one-out in the RKHS of
the outputs, or by the loss of a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap, Landmarks, Nystroem, independent
from representer.functions import EmbeddingFunction, Expansion, FeatureFunction, StoredFeatures
from representer.kernels import Kernel, Linear
from representer.linalg import BLOCK_BYTES, gram_factor, require
from representer.operators import (
    ConditionalCovariance,
    DataDriven,
    Decomposable,
    Dense,
    Operator,
    PrincipalComponents,
    Representation,
    original,
    repaired_gram,
    silent_repairs,
)
from representer.optimize.runs import Monitor
from representer.optimize.search import Choice, SearchSettings, best_alpha, log_spaced
from representer.preimage import Decoder
from representer.problems.ridge import RidgeChoice, Search
from representer.samples import Block, Data, InMemory, Samples, count, plain, rows, take
from representer.systems import RidgeData
from representer.systems.ridge import block_limit
from representer.systems.structured import (
    DiagonalRegression,
    OutputCoordinates,
    OutputRegression,
    RegressionInputs,
    summed_regression,
)
from representer.systems.sums import NormalStep, NormalSums
from representer.values import Positive

# Values of alpha on a first grid, and on a finer one between the neighbours of its best.
COARSE, FINE = 13, 9
# A search over a kernel starts where leave-one-out is best among its lengthscales divided by these.
FACTORS = (1.0, 2.0, 4.0)
# By a task's loss, lengthscales of the output kernel are compared with their heuristics divided by these.
OUTPUT_FACTORS = (4.0, 2.0, 1.0, 0.5, 0.25)
# Values of epsilon that are compared, in units of the mean k(x, x).
EPSILONS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class StructuredModel:
    """What is fitted: kernels with numbers, the operator, how both sides are approximated."""

    kernel: Kernel  # k, adapted to the representation of the inputs
    output_kernel: Kernel  # l
    operator: Operator | None  # A; None is the identity, and "auto" in it is left to the criterion
    alpha: float | np.ndarray | None  # the weight of ‖g‖², candidates, or None to choose any positive number
    approximation: tuple[Approximation, Nystroem | Landmarks] | None  # of inputs and outputs; None is exact
    fit_intercept: bool  # is the mean output taken away before the regression, and added afterwards?
    representation: Representation  # how inputs become tensors
    seed: int  # of landmarks and random subsets
    memory_limit: int | str | None = None  # what sums over blocks may take

    @property
    def like(self) -> Tensor:
        """A number in the precision and on the device of the fit."""
        return torch.zeros((), dtype=self.representation.dtype, device=self.representation.device)

    @property
    def outputs(self) -> Representation:
        """How outputs become tensors."""
        return replace(self.representation, sparse=False)

    @property
    def opens_operator(self) -> bool:
        """Is a number of the operator left to the criterion?"""
        operator = self.operator
        if isinstance(operator, ConditionalCovariance):
            return isinstance(operator.epsilon, str)
        return isinstance(operator, PrincipalComponents) and isinstance(operator.n_components, str)

    @property
    def is_open(self) -> bool:
        """Is alpha or a number of the operator left to the criterion?"""
        return self.opens_operator or not isinstance(self.alpha, float)

    def on_axes(self, Y: Data) -> bool:
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


# -- samples ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pairs(Block):
    """The N inputs of a fit in memory, the outputs of n of them, and the weights and groups of the inputs."""

    inputs: Data = None  # X as it is stored
    outputs: Data = None  # Y as it is stored
    labelled: Tensor | None = None  # the inputs that have an output; None: all
    pairwise: tuple[bool, bool] = (False, False)  # are inputs, are outputs Gram matrices?

    @property
    def numbers(self) -> Tensor:
        """The numbers of the inputs that have an output."""
        return torch.arange(count(self.Y)) if self.labelled is None else self.labelled

    def known(self, values: Tensor | None) -> Tensor | None:
        """What belongs to the inputs that have an output."""
        return values if values is None or self.labelled is None else values[self.labelled]

    def rows(self, index: np.ndarray) -> Pairs:
        """Some of the samples that have an output, without the inputs that have none."""
        outputs = torch.from_numpy(np.asarray(index))
        return self._chosen(self.numbers[outputs], outputs)

    def sample(self, size: int, seed: int) -> Pairs:
        """At most ``size`` random samples that have an output."""
        order = torch.randperm(count(self.Y), generator=torch.Generator().manual_seed(seed))
        return self.rows(order[:size].sort().values.numpy())

    def positive(self) -> Pairs:
        """The samples of positive weight; of a Gram matrix of inputs, the others stay as inputs without output."""
        if self.weights is None or bool((self.weights > 0).all()):
            return self
        outputs = (self.weights[self.numbers] > 0).nonzero()[:, 0]
        return self._chosen(None if self.pairwise[0] else (self.weights > 0).nonzero()[:, 0], outputs)

    def _chosen(self, kept: Tensor | None, outputs: Tensor) -> Pairs:
        """Some inputs in order, None for all, and some outputs."""
        Y, stored = (part(data, outputs, columns=self.pairwise[1]) for data in (self.Y, self.outputs))
        numbers = self.numbers[outputs]
        if kept is None:
            return replace(self, Y=Y, outputs=stored, labelled=numbers)
        X, inputs = (part(data, kept, columns=self.pairwise[0]) for data in (self.X, self.inputs))
        weights, groups = (None if a is None else a[kept] for a in (self.weights, self.groups))
        labelled = None if len(numbers) == len(kept) else torch.searchsorted(kept, numbers)
        return Pairs(X, Y, weights, groups, inputs, stored, labelled, self.pairwise)


def part(data: Data, rows: Tensor, *, columns: bool) -> Data:
    """Some samples; of a Gram matrix also the columns."""
    chosen = take(data, rows)
    return chosen[:, rows if isinstance(chosen, Tensor) else rows.numpy()] if columns else chosen


# -- both sides -------------------------------------------------------------------------------------------------------
def _inputs(model: StructuredModel, pairs: Pairs) -> RegressionInputs:
    """By landmarks; or by few explicit features if the kernel has them, by its Gram matrix otherwise."""
    kernel, X, options = model.kernel, pairs.X, (pairs.labelled, pairs.weights)
    if model.approximation is not None:
        features = independent(model.approximation[0].features(kernel, X, seed=model.seed))
        return RegressionInputs(features(X), True, *options, features)
    factor = few_features(kernel, X)
    if factor is not None:
        return RegressionInputs(factor, True, *options)
    gram, stayed = repaired_gram(kernel, X)
    return RegressionInputs(gram, False, *options, stayed=stayed)


def _outputs(model: StructuredModel, Y: Data) -> OutputCoordinates:
    """The training outputs, vectors in their own coordinates, or landmarks among the outputs."""
    if model.on_axes(Y):
        return OutputCoordinates(lambda: (Y.to(model.like), None), True)
    if model.approximation is not None:
        kernel = model.outputs.adapted(model.output_kernel, repair=False)
        features = independent(model.approximation[1].features(kernel, Y, seed=model.seed))
        return OutputCoordinates(lambda: (features(Y), None), False, features)
    return OutputCoordinates(lambda: output_factor(model.output_kernel, Y, model.like), False)


def few_features(kernel: Kernel, X: Data) -> Tensor | None:
    """Explicit features of the kernel, where there are fewer of them than samples; None otherwise."""
    with torch.no_grad():
        features = kernel.features(X) if kernel.domain != "gram" else None
    if not isinstance(features, Tensor) or features.ndim != 2:
        return None
    return features if 0 < features.shape[1] < len(features) else None


def output_factor(kernel: Kernel, Y: Data, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """R with R Rᵀ = l(Y), and, if that took a repair, the eigenvectors that have stayed."""
    features = few_features(kernel, Y)
    if features is not None:
        return features.to(like), None
    gram = kernel._gram(Y, None).to(like)
    return gram_factor(gram, repair=kernel.domain != "vectors", name="The Gram matrix of the outputs")


# -- the problem ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class StructuredProblem:
    """A fit but for its numbers: min (1/n) Σ w_i ‖l(·, y_i) − g(x_i)‖² + alpha ‖g‖² over g of the kernel k A."""

    model: StructuredModel
    regression: OutputRegression  # for any operator
    stored: tuple[Data, Data] = (
        None,
        None,
    )  # the inputs and outputs that an exact fit's functions are sums of
    held_rows: np.ndarray | None = None  # of a fit by sums: which of the stored samples can be left out

    def operators(self) -> list[Operator | None]:
        """The operators to compare: the given one, or one for each epsilon of the grid."""
        operator = self.model.operator
        if isinstance(operator, ConditionalCovariance) and isinstance(operator.epsilon, str):
            return [ConditionalCovariance(self.regression.scale * factor) for factor in EPSILONS]
        return [operator]

    def whole(self, operator: Operator | None) -> DiagonalRegression:
        """The regression under an operator, with all principal components."""
        components = isinstance(operator, PrincipalComponents)
        return self.regression.under(PrincipalComponents("auto") if components else operator)

    def alphas(self, system: DiagonalRegression) -> Tensor:
        """The candidates; of alpha="auto", from where rounding takes over to where nothing is fitted."""
        values = system.values
        if self.model.alpha is not None:
            return self.model.like.new_tensor(np.atleast_1d(self.model.alpha))
        unit = self.regression.scale * float(values.max() if len(values) else 1.0)  # that of k(x, x) times A
        info = torch.finfo(values.dtype)
        low = values.new_tensor(max(unit * info.eps ** (2 / 3), info.tiny**0.5))
        return log_spaced(low, low * info.eps ** (-2 / 3) * 10.0, COARSE)

    def error(self, system: DiagonalRegression, alpha: float) -> tuple[float, int | None]:
        """The mean squared leave-one-out error, and the number of components that it is for."""
        errors, operator, number = system.errors(alpha), self.model.operator, None
        if isinstance(operator, PrincipalComponents):
            # Each component that is kept costs its error, each that is left out its variance.
            totals = (errors - system.variances).cumsum(0)
            number = int(totals.argmin()) + 1 if self.model.opens_operator else operator.checked()
            total = totals[min(number, len(totals)) - 1] + system.variances.sum()
        else:
            total = errors.sum()
        value = float(total + system.missed) / self.regression.weight
        return value if math.isfinite(value) else math.inf, number

    def choose(self) -> tuple[Choice, DiagonalRegression]:
        """The operator and the alpha of least leave-one-out error in the RKHS of the outputs, and their system.

        What is given stays; alpha is looked for on a grid that is refined, epsilon on one that is not, the number of
        components among all.
        """
        trials = []
        for operator in self.operators():
            system = self.whole(operator)
            error, grid = cache(partial(self.error, system)), self.alphas(system)
            trials.append((best_alpha(partial(_path, error), grid, refine=False)[1], operator, system, error, grid))
            trials = [min(trials, key=lambda trial: trial[0])]  # the systems of the others are forgotten
        _, operator, system, error, grid = trials[0]
        alpha, value = best_alpha(partial(_path, error), grid, refine=self.model.alpha is None, size=FINE)
        number = error(alpha)[1]
        if number is not None:
            operator, system = PrincipalComponents(number), system.leading(number)
        return Choice(operator, alpha, value), system

    def solve(self, alpha: float, system: DiagonalRegression) -> EmbeddingFunction:
        """The function g of a system of the regression."""
        model, outputs = self.model, self.regression.outputs
        anchors, landmarks = self.stored[1] if outputs.anchored else None, None
        if outputs.features is not None:
            assert model.approximation is not None
            landmarks = StoredFeatures.of(model.approximation[1], outputs.features, model.outputs)
            anchors = landmarks.landmarks
        coefficients, constant = system.solution(alpha)
        coordinates = self._function(plain(coefficients), None if constant is None else plain(constant))
        return EmbeddingFunction(original(model.output_kernel), anchors, coordinates, model.outputs, landmarks)

    def _function(self, coefficients: np.ndarray, constant: np.ndarray | None) -> Expansion | FeatureFunction:
        """A sum over the inputs, or a function of the features of an approximation."""
        model, features = self.model, self.regression.inputs.features
        if features is None:
            kernel = Decomposable(original(model.kernel))
            return Expansion(kernel, self.stored[0], coefficients, constant, model.representation)
        assert model.approximation is not None
        stored = StoredFeatures.of(model.approximation[0], features, model.representation)
        return FeatureFunction(stored, coefficients, constant)

    def calibrated(
        self,
        decoder: Decoder,
        function: EmbeddingFunction,
        alpha: float,
        system: DiagonalRegression,
        outputs: Data,
    ) -> Decoder:
        """The decoder with its thresholds chosen on leave-one-out predictions, if it has some."""
        if type(decoder).calibrate is Decoder.calibrate:
            return decoder
        if self.held_rows is not None:
            outputs = take(outputs, torch.from_numpy(self.held_rows))
        return decoder.calibrate(function.element(system.left_out_weights(alpha)), outputs)


def _path(error: Callable[[float], tuple[float, int | None]], alphas: Tensor) -> Tensor:
    """The leave-one-out errors of many values of alpha, (a,)."""
    return alphas.new_tensor([error(alpha)[0] for alpha in alphas.tolist()])


def structured_problem(model: StructuredModel, pairs: Pairs, source: Samples | None = None) -> StructuredProblem:
    """The problem of samples in memory; with an approximation, of the sums of these or of all samples of a source."""
    if model.approximation is not None and pairs.labelled is None:
        return _summed_problem(model, pairs, InMemory(pairs) if source is None else source)
    inputs, outputs = _inputs(model, pairs), _outputs(model, pairs.Y)
    regression = OutputRegression(inputs, outputs, model.fit_intercept, pairs.known(pairs.groups))
    return StructuredProblem(model, regression, (pairs.inputs, pairs.outputs))


def _summed_problem(model: StructuredModel, pairs: Pairs, source: Samples) -> StructuredProblem:
    """The regression of all samples on features of inputs and outputs, from one pass over them."""
    assert model.approximation is not None
    (first, second), seed, targets = model.approximation, model.seed, None
    features = independent(first.choose(model.kernel, source.rows(first.rows(source.n, seed)).X, seed))
    if not model.on_axes(pairs.Y):
        kernel = model.outputs.adapted(model.output_kernel, repair=False)
        targets = independent(second.choose(kernel, source.rows(second.rows(source.n, seed)).Y, seed))
    sums = sum_samples(model, source, features, targets)
    kept, held = source.random_rows(rows.KNOWN_ROWS, seed), source.random_rows(rows.HELD_ROWS, seed)
    regression = summed_regression(sums, features, targets, source.rows(held), centred=model.fit_intercept)
    return StructuredProblem(model, regression, held_rows=np.searchsorted(kept, held))


def add_samples(
    model: StructuredModel,
    function: EmbeddingFunction,
    before: NormalSums,
    batch: Pairs,
    held: Pairs,
    rows: np.ndarray,
) -> StructuredProblem:
    """The problem of summed samples and a batch, with the features of a fitted function; ``held`` are left out."""
    assert isinstance(function.coordinates, FeatureFunction)
    features = function.coordinates.features.map
    targets = None if function.features is None else function.features.map
    sums = before.map(torch.from_numpy) + sum_samples(model, InMemory(batch), features, targets)
    regression = summed_regression(sums, features, targets, held, centred=model.fit_intercept)
    return StructuredProblem(model, regression, held_rows=rows)


def sum_samples(
    model: StructuredModel, source: Samples, features: FeatureMap, targets: FeatureMap | None
) -> NormalSums:
    """The sums of the features of all samples."""
    width = source.rows(np.arange(1)).Y.shape[1] if targets is None else targets.n_features
    limit = block_limit(model.memory_limit, features.n_features, width)
    total: NormalSums = source.total(NormalStep(features, targets), limit=limit)
    return total


def guard_memory(model: StructuredModel, pairs: Pairs, *, chooses: bool) -> None:
    """Estimate what a fit needs before anything of size n × n exists; fits by sums ask for themselves."""
    n = count(pairs.X)
    if model.approximation is None:
        # Measured peaks, in matrices: a Cholesky factor and its inverse; two eigendecompositions with products.
        direct = model.operator is None and model.output_kernel.domain == "vectors" and not chooses
        elements = (3 if direct else 10) * n**2
        advice = "Use approximation=Nystroem(m), fewer samples or dtype='float32'."
    else:
        labelled = pairs.labelled is not None
        elements = 4 * n * sum(a.size(n) for a in model.approximation) if labelled else 0
        advice = "Use fewer landmarks."
    needed = elements * model.representation.dtype.itemsize
    if needed > BLOCK_BYTES:  # less is not worth the question
        require(needed, what=f"A fit to {n} samples", advice=advice)


# -- the input kernel -------------------------------------------------------------------------------------------------
def learn_kernel(
    model: StructuredModel, pairs: Pairs, settings: SearchSettings
) -> tuple[StructuredModel, RidgeChoice | None]:
    """The model with numbers in its input kernel: what is free is learned by gradients of the leave-one-out error.

    The operator stays that of the kernel where the search starts; the fit computes it anew.
    """
    free, model = model.kernel.free(), replace(model, kernel=model.kernel.resolve(pairs.X))
    if not free:
        return model, None
    pairs = pairs.sample(rows.STRUCTURED_ROWS // 2, model.seed)
    with silent_repairs():
        trials = []
        for kernel in rescaled(model.kernel, free, FACTORS):
            problem = structured_problem(replace(model, kernel=kernel, approximation=None), pairs)
            trials.append((*problem.choose(), kernel))
        choice, system, kernel = min(trials, key=lambda trial: trial[0].value or 0.0)
        if isinstance(model.operator, PrincipalComponents) and model.opens_operator:
            system = system.regression.identity()  # how many components there are is decided after the search
        # As a matrix, because the coordinates of a diagonal operator would be searched one by one.
        operator = Dense(np.diag(plain(system.values))) if len(system.values) > 1 else None
        w = system.Z.new_ones(len(system.Z)) if pairs.weights is None else pairs.weights
        data = RidgeData(
            Decomposable(kernel, operator),
            pairs.X,
            system.Z / w.sqrt()[:, None],
            w / w.mean(),
            None,
            pairs.groups,
        )
        # Of candidates for alpha, the one that is best where the search starts stays.
        alpha = None if model.alpha is None else choice.alpha
        search = Search(data, [f"kernel__{name}" for name in free], alpha, choice.alpha)
        learned = search.minimised(settings, "loo")
    kernel = original(learned.model.kernel).numbers()
    return replace(model, kernel=model.representation.adapted(kernel, repair=True)), learned


def rescaled(kernel: Kernel, free: list[str], factors: Sequence[float]) -> Iterator[Kernel]:
    """The kernel with what is free and positive divided by each of some factors; itself if nothing is."""
    packing, raw = kernel.packing(free)
    sizes = [packing.shapes[name].numel() for name in packing.shapes]
    positive = [isinstance(packing.constraints[name], Positive) for name in packing.shapes]
    shift = raw.new_tensor([float(p) for p, size in zip(positive, sizes, strict=True) for _ in range(size)])
    for factor in factors if bool(shift.any()) else (1.0,):
        yield kernel.replace(packing.unpack(raw - math.log(factor) * shift)).numbers()


# -- the choice -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Task:
    """How decoded predictions are judged."""

    decoder: Decoder  # what makes objects, before it knows the training outputs
    loss: Callable[[Kernel, np.ndarray, np.ndarray, Data], float | np.ndarray]  # (l, train, test, predictions)
    splits: list[tuple[np.ndarray, np.ndarray]]  # train and test rows among the samples that have an output
    free: list[str]  # what is chosen of the output kernel
    verbose: int = 0  # 1 shows progress


def choose_by_loo(
    model: StructuredModel, pairs: Pairs, source: Samples | None, *, evaluate: bool
) -> tuple[StructuredProblem, Choice, DiagonalRegression]:
    """The problem, its numbers by leave-one-out, and their system; what is given is judged with ``evaluate`` only."""
    problem = structured_problem(model, pairs, source)
    if model.output_kernel.domain != "vectors" and problem.held_rows is None:
        problem.regression.outputs.made  # noqa: B018  repairs, or raises, if the outputs' Gram matrix is indefinite
    if isinstance(model.alpha, float) and not (model.opens_operator or evaluate):
        return problem, Choice(model.operator, model.alpha), problem.regression.under(model.operator)
    if model.approximation is None and len(pairs) > rows.STRUCTURED_ROWS:
        with silent_repairs():
            some = structured_problem(model, pairs.sample(rows.STRUCTURED_ROWS, model.seed))
            choice = some.choose()[0]
        return problem, choice, problem.regression.under(choice.model)
    return problem, *problem.choose()


def choose_by_task(
    model: StructuredModel, pairs: Pairs, source: Samples | None, task: Task
) -> tuple[StructuredProblem, Choice, DiagonalRegression]:
    """The problem and the numbers of least task loss, those of the output kernel included, and their system."""
    best: tuple[StructuredProblem, Choice] | None = None
    for output in rescaled(model.output_kernel, task.free, OUTPUT_FACTORS):
        try:
            problem = structured_problem(replace(model, output_kernel=output), pairs, source)
            choice = validate(problem, pairs, task, keep_partial=best is None)
        except KeyboardInterrupt:
            if best is None:
                raise
            message = "The search over output kernels was interrupted: the best so far is kept."
            best = best[0], replace(best[1], interrupted=True, unconverged=message)
            break
        if best is None or choice.value < best[1].value:  # type: ignore[operator]
            best = problem, choice
        if choice.interrupted:
            break
    assert best is not None
    return *best, best[0].regression.under(best[1].model)


def validate(problem: StructuredProblem, pairs: Pairs, task: Task, *, keep_partial: bool) -> Choice:
    """The setting of least task loss over the folds; the number of components is that of least leave-one-out error.

    An interrupt ends it: with ``keep_partial`` the folds so far decide, if there are any.
    """
    settings: list[tuple[Operator | None, float]] = []
    for operator in problem.operators():
        system = problem.whole(operator)
        for alpha in problem.alphas(system).tolist():
            number = problem.error(system, alpha)[1] if problem.model.opens_operator else None
            settings.append((operator if number is None else PrincipalComponents(number), alpha))
    totals, seen, message = np.zeros(len(settings)), 0.0, None
    known = pairs.known(pairs.weights)
    weights = np.ones(len(pairs)) if known is None else plain(known)
    with Monitor(None, task.verbose, len(task.splits) * len(settings), "task loss") as monitor:
        for train, test in task.splits:
            try:
                losses = _fold_losses(problem.model, pairs, settings, task, train, test, weights[test], monitor)
            except KeyboardInterrupt:
                if not (seen and keep_partial):
                    raise
                message = "The search by the task's loss was interrupted: the folds so far decide."
                break
            totals += weights[test].sum() * losses
            seen += weights[test].sum()
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
    if model.approximation is not None:  # a fold may have fewer samples than landmarks were asked for
        first, second = (
            Nystroem(a.at_most(len(train)), a.sampling) if isinstance(a, Nystroem) else a for a in model.approximation
        )
        model = replace(model, approximation=(first, second))
    fold, numbers = pairs.rows(train), pairs.numbers
    X = take(pairs.inputs, numbers[test])
    X = X[:, numbers[train].numpy()] if pairs.pairwise[0] else X
    problem = structured_problem(model, fold)
    decoder = task.decoder.resolve(model.output_kernel, fold.outputs)
    losses: list[float] = []
    whole, last = None, None
    for operator, alpha in settings:
        if whole is None or not (operator == last or isinstance(operator, PrincipalComponents)):
            whole, last = problem.whole(operator), operator
        system = whole.leading(operator.checked()) if isinstance(operator, PrincipalComponents) else whole
        function = problem.solve(alpha, system)
        fitted = problem.calibrated(decoder, function, alpha, system, fold.outputs)
        predicted = fitted.decode(function.embedding(X), X)
        losses.append(mean_loss(task.loss(model.output_kernel, train, test, predicted), weights))
        monitor(len(monitor.history) + 1, losses[-1], math.nan, 1)
    return np.array(losses)


def mean_loss(losses: float | np.ndarray, weights: np.ndarray) -> float:
    """The mean of what a task loss has returned: a number, or one for each sample."""
    try:
        values = np.asarray(plain(losses), dtype=np.float64)
        return float(np.average(values, weights=weights) if values.shape == weights.shape else np.mean(values))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"task_loss must return a number, or one for each sample; it returned {losses!r:.80}."
        ) from error
