"""Vector-valued ridge regression: hyperparameters by a cross-validation criterion, then the function and its system."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, Falkon
from representer.functions import Expansion, FeatureFunction
from representer.linalg import NotPositiveDefiniteError
from representer.notices import warn
from representer.objectives.operator_valued import cross_validation, restricted_likelihood
from representer.operators import (
    DataDriven,
    Decomposable,
    Dense,
    OperatorKernel,
    OperatorSum,
    replicates,
    searched,
    silent_repairs,
)
from representer.optimize import (
    LIKELY,
    OPTIMISM,
    Choice,
    HistoryEntry,
    Problem,
    SearchSettings,
    StoppingRule,
    attraction,
    indifference,
    minimise,
    system_alpha,
)
from representer.samples import Samples, least_noise, plain, replicate_scatter
from representer.systems import (
    AlphaRule,
    Criterion,
    FittedSystem,
    RidgeData,
    Scope,
    check_size,
    factor_system,
    goes_by_sums,
    ridge_system,
)
from representer.systems.exact import Known, spectrum_beside_constants
from representer.values import Packing, Positive

OPERATOR = "operator__matrix"
# A search ends at so much of its tolerance: its last steps are cheap, and make its end a matter of the data alone.
POLISH = 1e-4

# An operator is searched with the gaps in the targets for so many steps, unless more targets than these are known.
GAPPED_STEPS, GAPPED_TARGETS = 15, 1_200


@dataclass(frozen=True)
class RidgeModel:
    """What is fitted.

    Parameters
    ----------
    kernel : OperatorKernel
        A number in it stays, a word lets the data decide.
    alpha : float, array or None
        The weight of ‖f‖², candidates for it, or None to choose any positive number.
    criterion : {"loo", "gcv"}
        What chooses all that is not a number.
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
    shrinkage : float
        The precision of a normal prior on the logarithms of each vector of hyperparameters around their mean, beside
        which there is a weaker one on that mean; 0 is no prior.
    noise : array (p,) or None
        The variance of the noise of a target of weight one, where it is known: there is at least as much of it.
    balanced : bool
        Do uncoupled outputs of an exact fit count in units of their own left-out errors where hyperparameters and alpha
        are chosen? Otherwise they count in their own units: those of the largest targets decide.
    likelihood : bool
        Are hyperparameters and alpha those of greatest restricted likelihood, where the criterion would choose them?
    """

    kernel: OperatorKernel
    alpha: float | np.ndarray | None = None
    criterion: Criterion = "loo"
    learn_operator: bool = False
    intercept: bool = False
    approximation: Approximation | None = None
    solver: str | Falkon = "auto"
    memory_limit: Any = None
    shrinkage: float = 0.0
    noise: np.ndarray | None = None
    balanced: bool = False
    likelihood: bool = False

    @property
    def searched_by(self) -> str:
        """What a search over hyperparameters looks at."""
        return "likelihood" if self.likelihood else self.criterion

    @property
    def alpha_rule(self) -> float | AlphaRule:
        """alpha, or what chooses it for a system; 0 is the smallest alpha that leaves digits."""
        if isinstance(self.alpha, float):
            return self.alpha or (lambda system: (float(system.alpha_range()[0]), None))
        return partial(system_alpha, candidates=self.alpha, criterion=self.criterion)


@dataclass(frozen=True)
class RidgeSolution:
    """The fitted function and its system, with what was chosen on the way."""

    function: Expansion | FeatureFunction
    system: FittedSystem
    choice: Choice
    raised_from: float | None = None  # the alpha that was chosen, where replicates ask for a larger one


def warn_of_raised(solutions: Sequence[object]) -> None:
    """Say once of a fit that replicates have raised alpha, with the numbers of the kernel where they did it most."""
    ridges = [own for own in solutions if isinstance(own, RidgeSolution)]
    raised = [(own.system.alpha, own.raised_from) for own in ridges if own.raised_from is not None]
    if raised:
        alpha, before = max(raised, key=lambda pair: pair[0] / pair[1])
        many = f" (of {len(raised)} kernels of the stack; the largest step is told)" if len(raised) > 1 else ""
        warn(
            f"alpha was raised from {before:.2g} to {alpha:.2g}{many}: samples with equal inputs differ by more than "
            "the noise that it stood for. Give alpha a number to keep it."
        )


class RidgeProblem(Problem):
    """min over f and b of the weighted mean of ‖y_i − f(x_i) − b‖² plus alpha‖f‖²."""

    model: RidgeModel

    @cached_property
    def _seen(self) -> Samples:
        """The samples of positive weight."""
        return self.samples.positive_part(pairwise=self.pairwise)

    @cached_property
    def scope(self) -> Scope:
        """What spans f, and which samples a search looks at."""
        model, seen = self.model, self._seen
        by_sums = goes_by_sums(seen, model.kernel, learned=model.learn_operator)
        return Scope.of(model.approximation, seen.n, by_sums=by_sums)

    @cached_property
    def _kernel(self) -> OperatorKernel:
        return self.representation.adapted(self.model.kernel, repair=self.scope.repairs)

    @property
    def free(self) -> list[str]:
        """The names of the hyperparameters that are left to the search."""
        return self._kernel.free() + ([OPERATOR] if self.model.learn_operator else [])

    # -- the samples of a search --------------------------------------------------------------------------------------
    @cached_property
    def _start(self) -> RidgeData:
        """The samples that a search looks at, with the kernel where it starts."""
        model, kernel = self.model, self._kernel
        options = {"learned": bool(self.free), "searched": not isinstance(model.alpha, float)}
        data = self.scope.start(kernel, self._seen, self.seed, intercept=model.intercept, **options)
        if options["searched"] and isinstance(data.kernel, Decomposable):
            check_size(data.kernel.kernel, data.X)
        return replace(data, kernel=resolve_operator(data.kernel, data, learn=model.learn_operator))

    @property
    def start_kernel(self) -> OperatorKernel:
        """The kernel where a search starts, with numbers for all hyperparameters."""
        return self._start.kernel

    # -- hyperparameters ----------------------------------------------------------------------------------------------
    @cached_property
    def _criterion(self) -> Search:
        data = self._in_own_units(self.scope.searched(self._start, self.seed))
        data = data.merged() if self.model.likelihood else data
        if data.intercept:  # It fits a constant output, of which only the rounding would be left to search.
            data = replace(data, Y=torch.where(which_vary(data.Y), data.Y, 0.0))
        return Search(data, self.free, self.model.alpha, shrinkage=self.model.shrinkage)

    @property
    def uncoupled(self) -> bool:
        """Is f spanned by all samples, and K(x, y) = k(x, y) I for several outputs, whose samples have one weight?"""
        if not self.scope.spans_all or self.model.learn_operator:
            return False
        kernel, data = self._start.kernel, self._start
        identity = isinstance(kernel, Decomposable) and kernel.operator is None
        return identity and data.Y.shape[1] > 1 and data.weights.ndim == 1

    def _in_own_units(self, data: RidgeData) -> RidgeData:
        """The samples with targets in the units in which a criterion of all outputs counts them.

        Hyperparameters and alpha are the same for uncoupled outputs in any units, and so is f in these units.
        """
        model = self.model
        if not (model.balanced and self.uncoupled) or (isinstance(model.alpha, float) and not self.free):
            return data
        data = replace(data, Y=data.targets / _deviations(data, data.targets))
        with silent_repairs():
            fixed = model.alpha if isinstance(model.alpha, float) else None
            alpha = system_alpha(data, model.alpha, model.criterion)[0] if fixed is None else fixed
            missed = data.targets - factor_system(data, alpha).left_out()
        return replace(data, Y=data.Y / _deviations(data, missed, centred=False))

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The logarithm of the criterion and its gradient at points of raw hyperparameters (b, m)."""
        search = self._criterion
        search = search if rows is None else replace(search, data=search.data.rows(rows))
        return search.value_and_gradient(points, self.model.searched_by)

    def choose(self, settings: SearchSettings, near: Choice | None = None) -> Choice:
        """What is free in the kernel, chosen by the criterion; an alpha that is still open is the system's affair.

        The search starts at the numbers of ``near``, a choice of the same kernel with one number for all features.
        """
        alpha = self.model.alpha
        if not self.free:
            return Choice(self._start.kernel, self._open_alpha(self._start.kernel))
        if isinstance(alpha, float) and not alpha > 0:
            raise ValueError(
                f"alpha=0 interpolates, and an interpolation cannot choose {', '.join(self.free)}. Give them numbers "
                "(kernel='rbf' takes the median of distances), or let alpha='auto' be chosen, too."
            )
        search = self._criterion if near is None else self._criterion.near(near)
        with silent_repairs():  # the fit speaks of the last Gram matrix
            choice = (
                self._with_operator(settings)
                if self.model.learn_operator
                else search.minimised(settings, self.model.searched_by)
            )
        stays = isinstance(alpha, float) or (alpha is None and self.scope.spans_all)
        return choice if stays else replace(choice, alpha=self._open_alpha(choice.model))

    def chosen_around(self, choice: Choice, settings: SearchSettings, precision: float) -> Choice:
        """What is free, searched from another choice of the same kernel on, with a normal prior around that choice.

        ``precision`` is that of the prior on the logarithms of hyperparameters.
        """
        search = replace(self._criterion.near(choice), shrinkage=precision, origin=None)
        with silent_repairs():
            return search.minimised(settings, self.model.criterion)

    def _open_alpha(self, kernel: OperatorKernel) -> float:
        """The alpha beside a kernel with numbers; NaN where the system of all samples is to choose it.

        Such a system counts outputs in their own units.
        """
        alpha, model = self.model.alpha, self.model
        if isinstance(alpha, float):
            return alpha if alpha > 0 else math.nan
        if not (model.balanced and self.uncoupled):
            return math.nan
        with silent_repairs():
            data = replace(self._in_own_units(self._start), kernel=kernel)
            return float(system_alpha(data, alpha, model.criterion)[0])

    def _with_operator(self, settings: SearchSettings) -> Choice:
        """The kernel that is best with the identity, and the output operator that is best beside it.

        So one eigendecomposition of one Gram matrix serves the whole search over operators. Targets that are missing
        have the values that the identity predicts: the equations of complete targets are a Kronecker product. From
        there some steps go on, of kernel and operator together and with the gaps, unless the known targets are many.
        """
        options = {"seed": self.seed, "inputs": self.inputs}
        model = replace(self.model, learn_operator=False)
        identity = RidgeProblem(self.samples, model, self.representation, **options).choose(settings)
        data = replace(self._criterion.data, kernel=identity.model)
        data = data if data.mask is None else _completed(data, identity.alpha, model)
        data = replace(data, kernel=resolve_operator(data.kernel, data, learn=True))
        # After Ctrl-C one step decides, because the operator has no number before.
        left = replace(settings, max_iter=1) if identity.interrupted else settings
        choice = Search(data, [OPERATOR], model.alpha).minimised(left, model.criterion)
        if identity.interrupted:
            choice = replace(choice, unconverged=identity.unconverged)
        history, interrupted = identity.history + choice.history, choice.interrupted or identity.interrupted
        gaps = self._criterion.data.observed
        if gaps is not None and int(gaps.sum()) <= GAPPED_TARGETS and not interrupted:
            alpha = None if math.isnan(choice.alpha) else choice.alpha
            search = Search(replace(self._criterion.data, kernel=choice.model), self.free, model.alpha, alpha)
            choice = search.minimised(replace(settings, max_iter=min(settings.max_iter, GAPPED_STEPS)), model.criterion)
            history, interrupted = history + choice.history, choice.interrupted
            choice = replace(choice, unconverged=None)  # so many steps are meant
        return replace(choice, history=history, interrupted=interrupted)

    def _replicated(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The scatter of targets in each set of equal inputs, and its degrees of freedom; None where there are none."""
        block = self._seen.held
        if block is None or block.groups is None or self.model.criterion != "loo":
            return None
        numbers = replicates(self.model.kernel, block.X)
        if numbers is None:
            return None
        return replicate_scatter(plain(block.Y).astype(np.float64), numbers, plain(block.weights))

    @property
    def optimism(self) -> float:
        """The share over n by which each learned number makes left-out residuals too small."""
        return LIKELY if self.model.likelihood else OPTIMISM

    @property
    def raises(self) -> bool:
        """Is alpha raised where it stands for less noise than measurements, or replicates, are known to have?"""
        return self.model.alpha is None

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, choice: Choice) -> RidgeSolution:
        """The function and its system at the chosen hyperparameters."""
        model, kernel = self.model, choice.model
        undecided = math.isnan(choice.alpha)
        system = ridge_system(
            kernel,
            self.samples,
            model.alpha_rule if undecided else choice.alpha,
            self.representation,
            intercept=model.intercept,
            approximation=self.scope.approximation,
            solver=model.solver,
            memory_limit=model.memory_limit,
            inputs=self.inputs,
            data=self._start if kernel is self._start.kernel else replace(self._start, kernel=kernel),
            seed=self.seed,
        )
        if undecided:
            choice = replace(choice, alpha=system.alpha, value=system.value)
        if self.raises and model.noise is not None:
            system = system.raised(torch.from_numpy(model.noise))
            choice = replace(choice, alpha=system.alpha)
        replicated, before = self._replicated(), system.alpha
        if replicated is not None:
            if self.raises:
                system = system.raised(torch.from_numpy(least_noise(*replicated)))
                choice = replace(choice, alpha=system.alpha)
            system = system.changed(replicated=(replicated[0].sum(0), replicated[1].sum(0)))
        raised_from = before if system.alpha > before else None
        return RidgeSolution(system.function(), system.at_rest(), choice, raised_from)


@dataclass(frozen=True)
class Search:
    """The criterion as a function of the free hyperparameters and, unless it is a number, of alpha."""

    data: RidgeData
    free: list[str]
    alpha: float | np.ndarray | None
    first_alpha: float | None = None  # where the search starts, if that is known
    shrinkage: float = 0.0
    origin: Tensor | None = None  # where the data put the raw hyperparameters, if the search starts elsewhere

    @cached_property
    def _packed(self) -> tuple[OperatorKernel, Packing, Tensor]:
        kernel = self.data.kernel
        if isinstance(kernel, Decomposable):
            kernel = Decomposable(searched(kernel.kernel, self.data.X), kernel.operator)
        packing, raw = kernel.packing(self.free)
        return kernel, packing, raw.to(self.data.Y)

    def near(self, choice: Choice) -> Search:
        """The search that starts at the numbers of a choice, one of which may stand for those of all features."""
        kernel, known = self.data.kernel, choice.model.hyperparameter_values()
        own = kernel.hyperparameter_values()
        values = {name: known[name].to(own[name]).expand_as(own[name]).clone() for name in self.free if name in known}
        data = replace(self.data, kernel=kernel.replace(values))
        alpha = None if math.isnan(choice.alpha) else choice.alpha
        return replace(self, data=data, first_alpha=alpha, origin=self._packed[2])

    def start(self, criterion: object) -> Tensor:
        """Where the search starts: raw hyperparameters, and the logarithm of the alpha that is best there."""
        kernel, _, raw = self._packed
        if isinstance(self.alpha, float):
            return raw
        alpha = self.first_alpha
        if alpha is None:
            rule = "loo" if criterion == "likelihood" else criterion
            alpha, _ = system_alpha(replace(self.data, kernel=kernel), self.alpha, rule)
        return torch.cat([raw, raw.new_tensor([alpha]).log()])

    def unpack(self, point: Tensor) -> tuple[RidgeData, Tensor]:
        """The data with the kernel, and alpha, at a point."""
        kernel, packing, _ = self._packed
        values = packing.unpack(point[: packing.size])
        if isinstance(self.alpha, float):
            return replace(self.data, kernel=kernel.replace(values)), point.new_tensor(self.alpha)
        if OPERATOR in values:
            # An operator and alpha matter only through their ratio: keep a mean diagonal of 1.
            values[OPERATOR] = values[OPERATOR] / values[OPERATOR].diagonal().mean()
        data = replace(self.data, kernel=kernel.replace(values))
        return data, data.alpha_range()[0] + point[-1].exp()

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
            data, alpha = self.unpack(point)
            if criterion == "likelihood":
                value = restricted_likelihood(data, alpha)
            else:
                value = cross_validation(data, alpha, criterion, known=self._known)
            return value.clamp(min=torch.finfo(point.dtype).tiny).log() + self._penalty(point, data, alpha)

        values, gradients = zip(*(_differentiate(log_score, point) for point in points), strict=True)
        return torch.stack(values), torch.stack(gradients)

    def _penalty(self, point: Tensor, data: RidgeData, alpha: Tensor) -> Tensor:
        """1/n times what draws the positive hyperparameters to where the data put them, and alpha to the size of k.

        The criterion is a mean square, so that −n/2 of its logarithm is a log-likelihood.
        """
        weak = point.new_zeros(()) if isinstance(self.alpha, float) else indifference(alpha, *data.alpha_unit())
        if not self.shrinkage:
            return weak
        _, packing, raw = self._packed
        moved = point[: packing.size] - (raw if self.origin is None else self.origin)
        parts = moved.split([shape.numel() for shape in packing.shapes.values()])
        drawn = [
            attraction(part, self.shrinkage)
            for name, part in zip(packing.shapes, parts, strict=True)
            if isinstance(packing.constraints[name], Positive)
        ]
        return weak + sum(drawn, point.new_zeros(())) / len(self.data.Y)

    def minimised(self, settings: SearchSettings, criterion: object) -> Choice:
        """The point of least criterion."""
        start, tol = self.start(criterion), float(settings.tol)
        function = partial(self.value_and_gradient, criterion=criterion)
        last = max(tol * POLISH, min(tol, 10.0 * torch.finfo(start.dtype).eps))
        result = minimise(function, start, replace(settings, tol=last), batched=False)
        ended = result.converged or result.interrupted or result.stopped
        if not ended and (result.n_iter >= settings.max_iter or not _has_settled(result.history, tol)):
            result = minimise(function, start, settings, batched=False)  # the last digits were asking for too much
        point, value = result.point, result.value
        rounded = self._rounded(point, start, tol**0.5)
        at_rounded = float(function(rounded[None])[0])
        if math.isfinite(at_rounded):  # else on the edge of what can be factored
            point, value = rounded, at_rounded
        with torch.no_grad():
            learned, alpha = self.unpack(point)
            value = math.exp(value - float(self._penalty(point, learned, alpha)))  # the criterion itself
        told = result.converged or settings.deadline.was_missed  # the fit itself speaks of its time
        told = told or (not result.interrupted and _has_settled(result.history, tol))
        message = None if told else f"The search over hyperparameters: {result.message}."
        history = [entry._replace(value=math.exp(entry.value)) for entry in result.history]
        return Choice(learned.kernel.numbers(), alpha.item(), value, history, result.interrupted, message)

    def _rounded(self, point: Tensor, start: Tensor, step: float) -> Tensor:
        """The point with logarithms that are whole numbers of steps from the start; others stay.

        ``tol`` leaves more than a step open. The last digits of a search come from rounding, which units and the order
        of columns change: without them, equal data in other units have the same hyperparameters.
        """
        packing = self._packed[1]
        if not step > 0:
            return point
        logs = [isinstance(packing.constraints[name], Positive) for name in packing.shapes]
        sizes = [shape.numel() for shape in packing.shapes.values()]
        is_log = torch.tensor(logs, device=point.device).repeat_interleave(torch.tensor(sizes, device=point.device))
        is_log = torch.nn.functional.pad(is_log, (0, len(point) - packing.size), value=True)  # alpha, where it is free
        return torch.where(is_log, start + step * ((point - start) / step).round(), point)


def _has_settled(history: list[HistoryEntry], tol: float) -> bool:
    """Would a search have ended as converged with this tolerance, which is larger than its own?"""
    values, rule = np.array([entry.value for entry in history]), StoppingRule(tol, 2)
    calm = (values[1:] < values[:-1]) & rule.calm(values[:-1], values[1:])
    flat = rule.stationary(values[-1:], np.array([[history[-1].gradient_norm]]))
    return bool((calm[1:] & calm[:-1]).any() or flat.any())


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


# -- the units of outputs ---------------------------------------------------------------------------------------------
# Errors are at least this share of an output's deviation: those of targets without noise are a matter of rounding.
LEAST_ERROR = 1e-3
# Targets whose deviation is at most so many times the rounding of their size are constant.
CONSTANT = 64.0


def which_vary(Y: Tensor) -> Tensor:
    """The outputs (p,) whose known targets (n, p) differ by more than rounding. A constant has no lengthscales."""
    centred = (Y - Y.nanmean(0)).nan_to_num().abs().amax(0)
    return centred > CONSTANT * torch.finfo(Y.dtype).eps * Y.nan_to_num().abs().amax(0)


def _deviations(data: RidgeData, values: Tensor, *, centred: bool = True) -> Tensor:
    """The root mean squares (p,) of known values (n, p), or of their distances from their means.

    Values that are constant keep their own root mean square; it is 1 where they are 0.
    """
    info = torch.finfo(values.dtype)
    w = data.weights[:, None] * (torch.ones_like(values) if data.mask is None else data.mask.to(values))
    total = w.sum(0).clamp(min=info.tiny)
    size = ((w * values.square()).sum(0) / total).sqrt()
    if centred:
        spread = ((w * (values - (w * values).sum(0) / total).square()).sum(0) / total).sqrt()
        size = torch.where(spread > CONSTANT * info.eps * size, spread, size)
    else:
        size = size.clamp(min=LEAST_ERROR)
    return torch.where((size > 0) & size.isfinite(), size, 1.0)


# -- the output operator ----------------------------------------------------------------------------------------------
def _completed(data: RidgeData, alpha: float, model: RidgeModel) -> RidgeData:
    """The samples with predictions of separate outputs in the place of targets that are missing."""
    if math.isnan(alpha):
        alpha = model.alpha if isinstance(model.alpha, float) else system_alpha(data, model.alpha, model.criterion)[0]
    predicted = factor_system(data, alpha).left_out()
    assert data.observed is not None
    return replace(data, Y=torch.where(data.observed, data.Y, predicted), observed=None)


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
        every = zip(kernel.terms, kernel.views(data.X), strict=True)
        return OperatorSum([resolve_operator(term, replace(data, X=X), learn=False) for term, (X,) in every])
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
