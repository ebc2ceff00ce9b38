"""The hyperparameters of operator-valued ridge regression: what is free is chosen by a cross-validation criterion."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.data import take
from representer.estimators.validation import warn_unconverged
from representer.kernels import Kernel
from representer.linalg import NotPositiveDefiniteError
from representer.objectives.operator_valued import (
    Criterion,
    CrossValidation,
    alpha_grid,
    log_spaced,
    smallest_alpha,
)
from representer.operators import Decomposable, OperatorKernel
from representer.operators.adapted import repaired_gram, searched
from representer.optimize import HistoryEntry, OptimizeResult, lbfgs
from representer.systems.exact import RidgeData
from representer.systems.ridge import TrainingData, prior_scale_of

OPERATOR = "operator__matrix"


@dataclass(frozen=True)
class RidgeProblem:
    """The data of a fit: prepared inputs, targets with zeros where unobserved, weights of mean 1."""

    X: Any
    Y: Tensor
    weights: Tensor
    observed: Tensor | None
    pairwise: bool = False  # are the inputs a Gram matrix?
    gram: Tensor | None = None  # of the scalar kernel, where it is computed once and for all
    kept: Tensor | None = None  # if that was repaired, the eigenvectors that have stayed

    def noise(self, alpha: float) -> Tensor:
        """What alpha adds to the diagonal for each sample: n·alpha over its weight."""
        return len(self.Y) * alpha / self.weights

    def rows(self, index: Tensor) -> RidgeProblem:
        """The same problem on some of the samples."""
        X = take(self.X, index)
        observed = None if self.observed is None else self.observed[index]
        gram = None if self.gram is None else self.gram[index[:, None], index]
        weights = self.weights[index] / self.weights[index].mean()
        return RidgeProblem(
            X[:, index] if self.pairwise else X, self.Y[index], weights, observed, self.pairwise, gram
        )

    def with_fixed_gram(self, kernel: Kernel) -> RidgeProblem:
        """With the Gram matrix of a kernel that is costly, or that may need a repair: computed once."""
        if self.gram is not None or (kernel.domain == "vectors" and isinstance(self.X, Tensor)):
            return self
        gram, kept = repaired_gram(kernel, self.X)
        return replace(self, gram=gram, kept=kept)

    def known(self, coefficients: Tensor) -> Tensor:
        """The coefficients of a function of the training points that means the same at new ones."""
        return coefficients if self.kept is None else self.kept @ (self.kept.mT @ coefficients)


@dataclass(frozen=True)
class Choice:
    """Hyperparameters, the criterion there, and how they were found."""

    kernel: OperatorKernel
    alpha: float
    value: float | None = None
    history: list[HistoryEntry] = field(default_factory=list)


def criterion_of(problem: RidgeProblem, name: Criterion) -> CrossValidation:
    """The cross-validation error of a problem."""
    options: Any = {"weights": problem.weights, "observed": problem.observed, "gram": problem.gram}
    return CrossValidation(problem.X, problem.Y, criterion=name, **options)


def choose_alpha(
    kernel: OperatorKernel, problem: RidgeProblem, candidates: float | np.ndarray | None, criterion: Criterion
) -> Choice:
    """The candidate, or the positive number, of least criterion: one eigendecomposition whatever their number."""
    score = criterion_of(problem, criterion)
    refine = candidates is None
    alphas = (
        alpha_grid(smallest_alpha(kernel, problem.X, problem.Y))
        if refine
        else problem.Y.new_tensor(candidates)
    )
    errors, spectrum = score.path(kernel, alphas)
    best = _argmin(errors)
    if refine and spectrum is not None:  # a finer grid between the neighbours costs only products
        low, high = alphas[max(best - 1, 0)], alphas[min(best + 1, len(alphas) - 1)]
        alphas = log_spaced(low, high, len(alphas))
        errors, _ = score.path(kernel, alphas, known=spectrum)
        best = _argmin(errors)
    return Choice(kernel, alphas[best].item(), errors[best].item())


def _argmin(errors: Tensor) -> int:
    if not bool(torch.isfinite(errors).any()):
        raise ValueError("The criterion is not finite for any alpha; check the scale of X and y.")
    return int(torch.where(torch.isfinite(errors), errors, torch.inf).argmin())


def learn(
    kernel: OperatorKernel,
    free: list[str],
    problem: RidgeProblem,
    alpha: float | np.ndarray | None,
    criterion: Criterion,
    search: Callable[[Callable[[Tensor], tuple[Tensor, Tensor]], Tensor], OptimizeResult],
) -> Choice:
    """Minimise the criterion over the free hyperparameters and, unless it is a number, alpha.

    ``search(function, start)`` is the optimiser; its function takes a batch of points.
    """
    fixed = isinstance(alpha, float)
    if isinstance(kernel, Decomposable):
        kernel = Decomposable(searched(kernel.kernel, problem.X), kernel.operator)
    start_alpha = alpha if fixed else choose_alpha(kernel, problem, alpha, criterion).alpha
    packing, raw = kernel.packing(free)
    raw = raw.to(problem.Y)
    start = raw if fixed else torch.cat([raw, raw.new_tensor([start_alpha]).log()])
    score = criterion_of(problem, criterion)

    def unpack(point: Tensor) -> tuple[OperatorKernel, Tensor]:
        values = packing.unpack(point[: packing.size])
        if fixed:
            return kernel.replace(values), point.new_tensor(alpha)
        if OPERATOR in values:
            # An operator and alpha matter only through their ratio: keep a mean diagonal of 1.
            values[OPERATOR] = values[OPERATOR] / values[OPERATOR].diagonal().mean()
        moved = kernel.replace(values)
        return moved, smallest_alpha(moved, problem.X, problem.Y) + point[-1].exp()

    def log_score(point: Tensor) -> Tensor:
        """The logarithm, so that stopping rules mean the same whatever the units of the targets."""
        return score(*unpack(point)).clamp(min=torch.finfo(point.dtype).tiny).log()

    def value_and_gradient(points: Tensor) -> tuple[Tensor, Tensor]:
        rows = [_differentiate(log_score, point) for point in points]
        values, gradients = zip(*rows, strict=True)
        return torch.stack(values), torch.stack(gradients)

    result = search(value_and_gradient, start)
    if not result.converged:
        warn_unconverged(f"The search over hyperparameters: {result.message}.")
    with torch.no_grad():
        learned, learned_alpha = unpack(result.point)
    history = [entry._replace(value=math.exp(entry.value)) for entry in result.history]
    return Choice(learned.numbers(), learned_alpha.item(), math.exp(result.value), history)


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


def random_starts(start: Tensor, n_restarts: int, seed: int) -> Tensor:
    """The start, and ``n_restarts`` − 1 points around it at distance about one in every raw (logarithmic) direction."""
    noise = torch.randn(
        n_restarts, len(start), generator=torch.Generator().manual_seed(seed), dtype=start.dtype
    )
    noise[0] = 0.0
    return start + noise.to(start.device)


def lbfgs_search(
    learner: Any, seed: int, callback: Any
) -> Callable[[Callable[[Tensor], tuple[Tensor, Tensor]], Tensor], OptimizeResult]:
    """The search that a learner's arguments (n_restarts, max_iter, tol, verbose) describe."""

    def search(function: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor) -> OptimizeResult:
        return lbfgs(
            function,
            random_starts(start, learner.n_restarts, seed),
            max_iter=learner.max_iter,
            tol=learner.tol,
            callback=callback,
            verbose=learner.verbose,
            description="log criterion",
        )

    return search


class TargetlessSystem:
    """A system whose targets come with the question."""

    def __init__(self, training: TrainingData, alpha: float):
        self.training = training
        self.system: Any = training.factored(alpha)

    def _for(self, targets: Tensor) -> Any:
        other = copy.copy(self.system)
        for name in ("_dual", "_constant", "_solution"):
            other.__dict__.pop(name, None)
        other.data = replace(self.system.data, Y=targets)
        return other

    def solve(self, targets: Tensor) -> Tensor:
        """The coefficients of the fit to these targets."""
        return self._for(targets).coefficients()

    def variance(self, X: Any) -> Tensor:
        """The variance at new points."""
        return self.system.variance(X)

    def loo_variance(self) -> Tensor:
        """The variance of left-out samples."""
        return self.system.left_out_variance()


def ridge_system(kernel: OperatorKernel, problem: RidgeProblem, alpha: float) -> TargetlessSystem:
    """The system K + n·alpha, factored; where k(X) was repaired, with what that means for new points."""
    data = RidgeData(
        kernel, problem.X, problem.Y, problem.weights, problem.observed, None, False, problem.gram
    )
    return TargetlessSystem(TrainingData(data, problem.kept), alpha)


def prior_scale(system: TargetlessSystem, problem: RidgeProblem, coefficients: Tensor) -> Tensor:
    """s² for each output, with which leave-one-out residuals have the variance that the model gives them."""
    return prior_scale_of(system._for(problem.Y), replace(system.training.data, Y=problem.Y))
