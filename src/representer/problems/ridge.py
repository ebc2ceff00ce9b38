"""Vector-valued ridge regression: hyperparameters by a cross-validation criterion, then the function and its system."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, Falkon, approximation_error
from representer.functions import Expansion, FeatureFunction, StoredFeatures
from representer.linalg import NotPositiveDefiniteError, require
from representer.notices import warn
from representer.objectives.operator_valued import cross_validation
from representer.operators import (
    DataDriven,
    Decomposable,
    Dense,
    Operator,
    OperatorKernel,
    OperatorSum,
    Representation,
    original,
    searched,
    silent_repairs,
)
from representer.optimize.search import Choice, SearchSettings, alpha_grid, best_alpha, least, minimise
from representer.samples import Block, Data, HeldSamples, InMemory, Samples, plain, take
from representer.samples import rows as limits
from representer.systems.exact import (
    Known,
    RidgeData,
    criterion_path,
    factor_system,
    require_memory,
    spectrum_beside_constants,
    training_data,
)
from representer.systems.ridge import (
    ExactSystem,
    FalkonSystem,
    FittedSystem,
    SummedSystem,
    block_limit,
    falkon_system,
    goes_by_sums,
    iterates,
    pilot_features,
    summed_system,
)
from representer.values import Packing, Value

OPERATOR = "operator__matrix"


@dataclass(frozen=True)
class RidgeModel:
    """What is fitted.

    Parameters
    ----------
    kernel : OperatorKernel
        A number in it stays, a word lets the data decide.
    alpha : float, array or None
        The weight of ‖f‖², candidates for it, or None to choose any positive number.
    learn_operator : bool
        Is the output operator learned by the criterion?
    intercept : bool
        Is there a constant beside f?
    approximation : Approximation or None
        What makes features; None is exact.
    solver : {"auto", "direct", "cg"} or Falkon
        How a fit with features solves for its coefficients.
    memory_limit : int, str or None
        What a fit with features may take beside the data.
    """

    kernel: OperatorKernel
    alpha: float | np.ndarray | None = None
    learn_operator: bool = False
    intercept: bool = False
    approximation: Approximation | None = None
    solver: str | Falkon = "auto"
    memory_limit: Any = None


@dataclass(frozen=True)
class RidgeChoice(Choice):
    """A choice, the spectrum of the weighted Gram matrix where the search computed it, and why a search ended early."""

    known: Known | None = None
    message: str | None = None


@dataclass(frozen=True)
class RidgeSolution:
    """The fitted function and its system, with what was chosen on the way."""

    function: Expansion | FeatureFunction
    system: FittedSystem
    choice: Choice
    approximation_error: float | None = None
    messages: list[str] = field(default_factory=list)


class RidgeProblem:
    """min over f and b of the weighted mean of ‖y_i − f(x_i) − b‖² plus alpha‖f‖².

    Parameters
    ----------
    samples : Samples
        Samples of positive weight.
    model : RidgeModel
    representation : Representation
    seed : int
        Of random starts, landmarks and samples that stand for all.
    inputs : data or None
        The inputs as they are stored, before a kernel has prepared them.
    """

    def __init__(
        self,
        samples: Samples,
        model: RidgeModel,
        representation: Representation,
        *,
        seed: int = 0,
        inputs: Data = None,
    ):
        self.samples = samples
        self.model = model
        self.representation = representation
        self.seed = seed
        self.inputs = inputs
        self.approximation = model.approximation and model.approximation.sized(samples.n)
        self.by_sums = self.approximation is not None and goes_by_sums(
            samples, model.kernel, learned=model.learn_operator
        )
        self.given = representation.adapted(model.kernel, repair=not self.by_sums)

    @property
    def free(self) -> list[str]:
        """The names of the hyperparameters that are left to the search."""
        return self.given.free() + ([OPERATOR] if self.model.learn_operator else [])

    # -- the samples of a search --------------------------------------------------------------------------------------
    @cached_property
    def _start(self) -> RidgeData:
        """The samples that a search looks at, with the kernel where it starts."""
        return self._started_on_sums() if self.by_sums else self._started_exactly()

    def _started_on_sums(self) -> RidgeData:
        model, samples = self.model, self.samples
        assert self.approximation is not None
        self.approximation.size(samples.n)
        regular = limits.evenly_spaced(samples.n, limits.HEURISTIC_ROWS)
        drawn = self.approximation.rows(samples.n, self.seed)
        search = samples.random_rows(limits.SEARCH_ROWS, self.seed)
        samples.read_ahead(regular, drawn, search, samples.random_rows(limits.HELD_ROWS, self.seed))
        kernel = self.given.resolve(samples.rows(regular).X)
        data = training_data(kernel, positive(samples.rows(search)), intercept=model.intercept)
        return replace(data, kernel=resolve_operator(kernel, data, learn=model.learn_operator))

    def _started_exactly(self) -> RidgeData:
        model, given = self.model, self.given
        found = training_data(given, self._all, intercept=model.intercept)
        fixed_alpha = isinstance(model.alpha, float)
        if self.approximation is None:
            undecided = _is_undecided(given)
            require_memory(found, learned=bool(self.free), searched=not fixed_alpha, undecided=undecided)
        else:
            m = self.approximation.size(self.samples.n)  # features of all samples, where targets are missing
            needed = 4 * self.samples.n * m * found.Y.element_size()
            require(needed, what=f"A fit with {m} features", advice="Use fewer of them.")
        kernel = given.resolve(found.X)
        data = replace(found, kernel=kernel)
        if not given.free() and self.approximation is None:
            data = data.with_gram()
        return replace(data, kernel=resolve_operator(kernel, data, learn=model.learn_operator))

    @property
    def _all(self) -> Block:
        return self.samples.rows(np.arange(self.samples.n))

    def _subset(self, whole: RidgeData, limit: int) -> RidgeData:
        """As many random samples as a criterion can afford; all of them where the outputs come apart."""
        n, p = whole.Y.shape
        affordable = n if whole.form is not None else max(1, limits.DENSE_LIMIT // p)
        limit, wanted = min(limit, affordable), min(limit, n)
        if limit >= n:
            return whole
        if affordable < wanted:
            warn(
                f"The outputs of {type(whole.kernel).__name__} do not come apart, and {n} samples of {p} outputs are "
                f"too many for its criterion: hyperparameters are chosen on {limit} random samples. Fix alpha and the "
                "kernel's numbers to avoid it, and random_state to make it repeatable."
            )
        if whole.groups is None:
            generator = torch.Generator().manual_seed(self.seed)
            rows = torch.randperm(n, generator=generator)[:limit].sort().values
        else:
            rows = torch.from_numpy(limits.sample_groups(whole.groups.numpy(), limit, self.seed))
        return _rows(whole, rows)

    @cached_property
    def _searched(self) -> RidgeData:
        data = self._start
        if self.by_sums:
            return data
        n = len(data.Y)
        approximation = self.approximation
        return self._subset(data, n if approximation is None else min(n, approximation.size(n)))

    # -- hyperparameters ----------------------------------------------------------------------------------------------
    @cached_property
    def _criterion(self) -> Search:
        return Search(self._searched, self.free, self.model.alpha)

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logarithm of the leave-one-out error and its gradient at points of raw hyperparameters (b, m)."""
        search = self._criterion
        search = search if rows is None else replace(search, data=_rows(search.data, rows))
        return search.value_and_gradient(points, "loo")

    def choose(self, settings: SearchSettings) -> RidgeChoice:
        """What is free, chosen by the criterion; what is fixed stays."""
        kernel, data = self._start.kernel, self._start
        alpha, criterion = self.model.alpha, settings.criterion or "loo"
        if isinstance(alpha, float) and not self.free:
            return RidgeChoice(kernel, alpha)
        choice = RidgeChoice(kernel, 0.0)
        if self.free:
            with silent_repairs():  # the fit speaks of the last Gram matrix
                choice = self._criterion.minimised(settings, criterion)
            if not isinstance(alpha, np.ndarray) or self.by_sums:
                return choice
        if self.by_sums:  # alpha is chosen for all samples, by their sums
            return choice
        with silent_repairs():
            subset = self._searched
            best = choose_alpha(replace(subset, kernel=choice.model), alpha, criterion)
        return replace(best, history=choice.history, known=best.known if subset is data else None)

    def held_out(
        self, folds: Iterable[tuple[np.ndarray, np.ndarray]], settings: SearchSettings | None = None
    ) -> list[Tensor]:
        """Predictions for the test rows of each (train, test) by a fit without them that repeats the search."""
        predictions = []
        for train, test in folds:
            part = RidgeProblem(
                InMemory(self.samples.rows(np.asarray(train))),
                self.model,
                self.representation,
                seed=self.seed,
            )
            solution = part.solve(part.choose(settings or SearchSettings()), settings)
            predictions.append(solution.function(plain(self.samples.rows(np.asarray(test)).X)))
        return predictions

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, choice: RidgeChoice, settings: SearchSettings | None = None) -> RidgeSolution:
        """The function and its system at the chosen hyperparameters; alpha by the sums, where there are some."""
        criterion: Any = "loo" if settings is None else settings.criterion
        if self.by_sums:
            return self._solve_sums(choice, criterion)
        if self.approximation is not None:
            return self._solve_features(choice, criterion)
        return self._solve_exactly(choice)

    def _solve_exactly(self, choice: RidgeChoice) -> RidgeSolution:
        kernel = choice.model
        data = replace(self._start, kernel=kernel).with_gram()
        system = factor_system(data, choice.alpha, known=choice.known)
        block = self._all
        inputs = block.X if self.inputs is None else self.inputs
        function = Expansion(kernel, inputs, data.at_new_points(system.coefficients()), system.intercept())
        stored = function.stored(self.representation)
        weights, groups = (None if a is None else plain(a, copy=True) for a in (block.weights, block.groups))
        held = HeldSamples(np.empty(0, dtype=np.uint64), stored.anchors, plain(block.Y, copy=True), weights, groups)
        kept = ExactSystem(stored.kernel, held, choice.alpha, self.model.intercept, self.representation)
        return RidgeSolution(stored, kept, choice)

    def _solve_features(self, choice: RidgeChoice, criterion: Any) -> RidgeSolution:
        """Coupled outputs with missing targets: a system of the features of all samples."""
        kernel, alpha = choice.model, self.model.alpha
        assert isinstance(kernel, Decomposable) and self.approximation is not None
        block = self._all
        scalar = self.representation.adapted(original(kernel), repair=False)
        features = self.approximation.features(scalar.kernel, block.X, seed=self.seed)  # type: ignore[attr-defined]
        error = approximation_error(features, block.X)
        data = training_data(kernel, block, intercept=self.model.intercept, features=features)
        if not isinstance(alpha, float):
            subset = self._subset(data, len(block))
            best = choose_alpha(subset, alpha, criterion)
            known = best.known if subset is data else None
            choice = replace(choice, alpha=best.alpha, value=best.value, known=known)
        system = factor_system(data, choice.alpha, known=choice.known)
        U = data.X.mT @ system.coefficients()
        stored = StoredFeatures.of(self.approximation, features, self.representation)
        held = HeldSamples.of(block, np.arange(len(block)), self.seed)
        kept = ExactSystem(original(kernel), held, choice.alpha, self.model.intercept, self.representation, stored)
        function = feature_function(stored, kernel._operator, U, system.intercept())
        return RidgeSolution(function, kept, choice, error)

    def _solve_sums(self, choice: RidgeChoice, criterion: Any) -> RidgeSolution:
        model, samples, kernel = self.model, self.samples, choice.model
        assert isinstance(kernel, Decomposable) and self.approximation is not None
        rows = self.approximation.rows(samples.n, self.seed)
        features = self.approximation.choose(kernel.kernel, samples.rows(rows).X, self.seed)
        stored = StoredFeatures.of(self.approximation, features, self.representation)
        held_rows = samples.random_rows(limits.HELD_ROWS, self.seed)
        sample = samples.rows(held_rows)
        error = approximation_error(features, sample.X)
        held = HeldSamples.of(sample, held_rows, self.seed)
        falkon = iterates(model.solver, features.n_features)
        operator = kernel._operator
        system: SummedSystem | FalkonSystem
        messages = []
        if falkon is None:
            system, choice = self._summed(stored, operator, held, sample, choice, criterion)
        else:
            system, choice = self._iterated(falkon, stored, operator, held, sample, choice, criterion)
            if system.problem is not None:
                messages.append(f"Conjugate gradients {system.problem}, or use solver='direct'.")
        function = feature_function(stored, operator, system.coefficients(), system.intercept())
        if isinstance(function, FeatureFunction):
            system = system.changed(features=function.features)
        return RidgeSolution(function, system, choice, error, messages)

    def _summed(
        self,
        features: StoredFeatures,
        operator: Operator,
        held: HeldSamples,
        sample: Block,
        choice: RidgeChoice,
        criterion: Any,
        *,
        matrices: int = 5,
    ) -> tuple[SummedSystem, RidgeChoice]:
        """The normal equations with their alpha."""
        m, p = features.map.n_features, sample.Y.shape[1]
        if self.samples.observed is not None:  # each output has sums, eigenvectors and a factor of its own
            matrices = 3 * p + 3
        limit = block_limit(self.model.memory_limit, m, p, matrices=matrices, held=len(sample))
        intercept = self.model.intercept
        system = summed_system(self.samples, features, operator, held, sample, intercept=intercept, limit=limit)
        alpha, value = alpha_by_sums(system, self.model.alpha, criterion, limit)
        return system.changed(alpha=alpha), replace(choice, alpha=alpha, value=value)

    def _iterated(
        self,
        falkon: Falkon,
        features: StoredFeatures,
        operator: Operator,
        held: HeldSamples,
        sample: Block,
        choice: RidgeChoice,
        criterion: Any,
    ) -> tuple[FalkonSystem, RidgeChoice]:
        """Conjugate gradients, with the alpha of the normal equations of fewer landmarks."""
        model = self.model
        if self.samples.observed is not None:
            raise ValueError(
                f"Missing targets (NaN) take normal equations; use solver='direct', and fewer than the "
                f"{features.map.n_features} features."
            )
        alpha, value = model.alpha, None
        if not isinstance(alpha, float):
            fewer = pilot_features(features)
            _, pilot = self._summed(fewer, operator, held, sample, choice, criterion, matrices=6)
            alpha, value = pilot.alpha, pilot.value
        system = falkon_system(
            falkon,
            self.samples,
            features,
            operator,
            sample,
            alpha,
            intercept=model.intercept,
            memory_limit=model.memory_limit,
        )
        return system, replace(choice, alpha=alpha, value=value)


def positive(block: Block) -> Block:
    """The samples of positive weight."""
    if block.weights is None:
        return block
    return block.rows((block.weights > 0).nonzero()[:, 0].numpy())


def _rows(data: RidgeData, rows: Tensor) -> RidgeData:
    """The data of an exact system on some of the samples."""
    X = take(data.X, rows)
    weights = data.weights[rows]
    return replace(
        data,
        X=X[:, rows] if data.kernel.domain == "gram" else X,
        Y=data.Y[rows],
        weights=weights / weights.mean(),
        observed=None if data.observed is None else data.observed[rows],
        groups=None if data.groups is None else data.groups[rows],
        gram=None if data.gram is None else data.gram[rows[:, None], rows],
        stayed=None,
    )


def feature_function(
    features: StoredFeatures, operator: Operator, U: Tensor, intercept: Tensor | None
) -> Expansion | FeatureFunction:
    """φ(·)ᵀU A + b: an expansion in the landmarks, unless there are none or it would lose digits."""
    full, how = features.map, features.representation
    U = U.to(full.dtype)
    weighted = U @ operator.as_matrix(U.shape[1], U)
    b = None if intercept is None else intercept.to(full.dtype)
    if features.landmarks is not None and not full.loses_digits(weighted, 0.0 if b is None else b):
        kernel = Decomposable(full.kernel, operator)
        return Expansion(kernel, full.state, full.coefficients(U), b).stored(how)
    constant = None if b is None else plain(b, copy=True)
    return FeatureFunction(features.factored(), plain(weighted, copy=True), constant)


def alpha_by_sums(
    system: SummedSystem, alpha: float | np.ndarray | None, criterion: Any, limit: int | None
) -> tuple[float, float | None]:
    """alpha, and the criterion there where it was chosen: for the price of one eigendecomposition."""
    if isinstance(alpha, float):
        return alpha, None
    like = system.ridge.cross
    refine = alpha is None
    alphas = alpha_grid(system.least_alpha()).to(like) if refine else torch.as_tensor(alpha).to(like)
    return best_alpha(lambda grid: system.path(grid, criterion, limit=limit), alphas, refine=refine)


def choose_alpha(data: RidgeData, candidates: Data, criterion: Any) -> RidgeChoice:
    """The candidate, or the positive number, of least criterion: one eigendecomposition whatever their number."""
    refine = candidates is None
    alphas = alpha_grid(data.least_alpha()) if refine else data.Y.new_tensor(candidates)
    errors, known = criterion_path(data, alphas, criterion)
    if refine and known is not None:  # a finer grid between the neighbours costs only products
        coarse = [errors]
        alpha, value = best_alpha(
            lambda grid: coarse.pop() if coarse else criterion_path(data, grid, criterion, known)[0],
            alphas,
            refine=True,
        )
        return RidgeChoice(data.kernel, alpha, value, known=known)
    best = least(errors)
    return RidgeChoice(data.kernel, alphas[best].item(), errors[best].item(), known=known)


@dataclass(frozen=True)
class Search:
    """The criterion as a function of the free hyperparameters and, unless it is a number, of alpha."""

    data: RidgeData
    free: list[str]
    alpha: float | np.ndarray | None
    first_alpha: float | None = None  # where the search starts, if that is known

    @cached_property
    def _packed(self) -> tuple[OperatorKernel, Packing, Tensor]:
        kernel = self.data.kernel
        if isinstance(kernel, Decomposable):
            kernel = Decomposable(searched(kernel.kernel, self.data.X), kernel.operator)
        packing, raw = kernel.packing(self.free)
        return kernel, packing, raw.to(self.data.Y)

    def start(self, criterion: Any) -> Tensor:
        """Where the search starts: raw hyperparameters, and the logarithm of the alpha that is best there."""
        kernel, _, raw = self._packed
        if isinstance(self.alpha, float):
            return raw
        alpha = self.first_alpha
        if alpha is None:
            alpha = choose_alpha(replace(self.data, kernel=kernel), self.alpha, criterion).alpha
        return torch.cat([raw, raw.new_tensor([alpha]).log()])

    def unpack(self, point: Tensor) -> tuple[OperatorKernel, Tensor]:
        """The kernel and alpha at a point."""
        kernel, packing, _ = self._packed
        values = packing.unpack(point[: packing.size])
        if isinstance(self.alpha, float):
            return kernel.replace(values), point.new_tensor(self.alpha)
        if OPERATOR in values:
            # An operator and alpha matter only through their ratio: keep a mean diagonal of 1.
            values[OPERATOR] = values[OPERATOR] / values[OPERATOR].diagonal().mean()
        moved = kernel.replace(values)
        return moved, replace(self.data, kernel=moved).least_alpha() + point[-1].exp()

    @cached_property
    def _known(self) -> Known | None:
        """The spectrum of the Gram matrix, where only the output operator moves."""
        kernel, data = self._packed[0], self.data
        if self.free != [OPERATOR] or data.observed is not None or not isinstance(kernel, Decomposable):
            return None
        gram = kernel.kernel._gram(data.X, None) if data.gram is None else data.gram
        return spectrum_beside_constants(gram.clone(), data.root, intercept=data.intercept)

    def value_and_gradient(self, points: Tensor, criterion: Any) -> tuple[Tensor, Tensor]:
        """The logarithm of the criterion, so that stopping rules mean the same whatever the units of the targets."""

        def log_score(point: Tensor) -> Tensor:
            kernel, alpha = self.unpack(point)
            data = replace(self.data, kernel=kernel)
            value = cross_validation(data, alpha, criterion, known=self._known)
            return value.clamp(min=torch.finfo(point.dtype).tiny).log()

        values, gradients = zip(*(_differentiate(log_score, point) for point in points), strict=True)
        return torch.stack(values), torch.stack(gradients)

    def minimised(self, settings: SearchSettings, criterion: Any) -> RidgeChoice:
        """The point of least criterion."""
        start = self.start(criterion)
        result = minimise(lambda points: self.value_and_gradient(points, criterion), start, settings)
        with torch.no_grad():
            learned, alpha = self.unpack(result.point)
        history = [entry._replace(value=math.exp(entry.value)) for entry in result.history]
        message = None if result.converged else f"The search over hyperparameters: {result.message}."
        return RidgeChoice(learned.numbers(), alpha.item(), math.exp(result.value), history, message=message)


def _differentiate(function: Callable[[Tensor], Tensor], point: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient at a point; NaN where the kernel cannot be factored."""
    variable = point.detach().clone().requires_grad_()
    try:
        with torch.enable_grad():
            value = function(variable)
        if not value.requires_grad:  # a kernel that does not depend on what is learned
            return value, torch.zeros_like(point)
        (gradient,) = torch.autograd.grad(value, variable)
    except NotPositiveDefiniteError:
        return point.new_tensor(torch.nan), torch.full_like(point, torch.nan)
    return value.detach(), gradient


# -- the output operator ----------------------------------------------------------------------------------------------
def _initial_operator(Y: Tensor) -> Dense:
    """Where learning an operator starts: halfway from the identity to the outputs' correlation."""
    centred = Y - Y.mean(0)
    scale = centred.norm(dim=0)
    scaled = centred / torch.where(scale > 0, scale, 1.0)
    correlation = scaled.mT @ scaled
    return Dense((0.5 * (correlation + torch.eye(Y.shape[1], dtype=Y.dtype, device=Y.device))).cpu().numpy())


def resolve_operator(kernel: OperatorKernel, data: RidgeData, *, learn: bool) -> OperatorKernel:
    """The kernel with the output operator that the targets decide, or where learning it starts."""
    if isinstance(kernel, OperatorSum):
        return OperatorSum([resolve_operator(term, data, learn=False) for term in kernel.terms])
    if not isinstance(kernel, Decomposable):
        return kernel
    if learn:
        return Decomposable(kernel.kernel, _initial_operator(data.Y))
    if kernel.operator is None:
        return kernel
    if data.observed is not None and isinstance(kernel.operator, DataDriven):
        raise ValueError(
            f"{kernel.operator!r} is computed from the targets, and some of them are missing (NaN). Impute them, or "
            "use a fixed operator or operator='learn'."
        )
    gram = data.gram
    if gram is None and kernel.operator.needs_gram:
        gram = kernel.kernel._gram(data.X, None)
    return Decomposable(kernel.kernel, kernel.operator.resolve(data.Y, gram))


def _is_undecided(value: Value) -> bool:
    """Does a sum wait for operators that the targets decide? Such operators need not commute."""
    return isinstance(value, DataDriven) or any(_is_undecided(child) for _, child in value._children())
