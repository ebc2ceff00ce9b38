"""The hyperparameters of operator-valued ridge regression: what is free is chosen by a cross-validation criterion."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, Falkon
from representer.data import take
from representer.estimators.validation import (
    DTYPES,
    check_alpha,
    check_bare,
    check_counts,
    check_device,
    check_options,
    warn_unconverged,
)
from representer.kernels import Kernel
from representer.linalg import NotPositiveDefiniteError, Spectrum, eigh, repair_gram
from representer.linalg.memory import as_bytes, require
from representer.objectives.operator_valued import (
    Criterion,
    CrossValidation,
    alpha_grid,
    log_spaced,
    smallest_alpha,
)
from representer.operators import Decomposable, Dense, OperatorKernel, OperatorSum
from representer.operators.adapted import Projected, repaired_gram, searched
from representer.operators.base import DiagonalForm
from representer.operators.outputs import DataDriven
from representer.optimize import HistoryEntry, OptimizeResult, lbfgs
from representer.parameters import is_real
from representer.systems import System, factor_system
from representer.systems.diagonal import (
    DENSE_LIMIT,
    IterativeSystem,
    has_few_features,
    observation_patterns,
)
from representer.values import Value

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

    def repaired(self) -> RidgeProblem:
        """With a Gram matrix as input that is positive semi-definite."""
        return replace(self, X=repair_gram(self.X)) if self.pairwise else self

    def with_fixed_gram(self, kernel: Kernel) -> RidgeProblem:
        """With the Gram matrix of a kernel that is costly, or that may need a repair: computed once."""
        if self.gram is not None or (kernel.domain == "vectors" and isinstance(self.X, Tensor)):
            return self
        gram, kept = repaired_gram(kernel, self.X)
        return replace(self, gram=gram, kept=kept)

    def known(self, coefficients: Tensor) -> Tensor:
        """The coefficients of a function of the training points that means the same at new ones."""
        return coefficients if self.kept is None else self.kept @ (self.kept.mT @ coefficients)

    def subset(self, kernel: OperatorKernel, limit: int, seed: int) -> RidgeProblem:
        """As many random samples as a criterion can afford; all of them where the outputs come apart."""
        n, p = self.Y.shape
        form = kernel.diagonal_form(p, self.Y)
        structured = form is not None and (form.rotation is None or self.observed is None)
        affordable = n if structured else max(1, DENSE_LIMIT // p)
        limit, wanted = min(limit, affordable), min(limit, n)
        if limit >= n:
            return self
        if affordable < wanted:
            warnings.warn(
                f"The outputs of {type(kernel).__name__} do not come apart, and {n} samples of {p} outputs are too "
                f"many for its criterion: hyperparameters are chosen on {limit} random samples. Fix alpha and the "
                "kernel's numbers to avoid it, and random_state to make it repeatable.",
                UserWarning,
                stacklevel=4,
            )
        return self.rows(
            torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:limit].sort().values
        )


def check_arguments(learner: Any) -> None:
    """The arguments that say how to compute; the kernel and the operator are checked with the data."""
    check_options(learner, {"criterion": ("loo", "gcv"), "dtype": tuple(DTYPES)})
    check_counts(learner, {"max_iter": 1, "n_restarts": 1, "verbose": 0})
    check_alpha(learner.alpha)
    check_device(learner.device)
    if not (is_real(learner.tol) and learner.tol > 0):
        raise ValueError(f"tol must be a positive number; got {learner.tol!r}.")
    if learner.approximation is not None and not isinstance(learner.approximation, Approximation):
        raise ValueError(
            "approximation must be None or Nystroem(...), Landmarks(...), RandomFeatures(...) or TensorSketch(...); "
            f"got {learner.approximation!r}."
        )
    check_bare(learner.approximation)
    if learner.solver not in ("auto", "direct", "cg") and not isinstance(learner.solver, Falkon):
        raise ValueError(f"solver must be 'auto', 'direct', 'cg' or Falkon(...); got {learner.solver!r}.")
    if isinstance(learner.solver, Falkon):
        learner.solver.check()
    as_bytes(learner.memory_limit)


@dataclass(frozen=True)
class Choice:
    """Hyperparameters, the criterion there, and how they were found."""

    kernel: OperatorKernel
    alpha: float
    value: float | None = None
    history: list[HistoryEntry] = field(default_factory=list)
    spectrum: Spectrum | None = None  # of the weighted Gram matrix, where the search computed it


def criterion_of(problem: RidgeProblem, name: Criterion) -> CrossValidation:
    """The cross-validation error of a problem."""
    return CrossValidation(
        problem.X, problem.Y, weights=problem.weights, observed=problem.observed, criterion=name
    )


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
    errors, spectrum = score.path(kernel, alphas, gram=problem.gram)
    best = _argmin(errors)
    if refine and spectrum is not None:  # a finer grid between the neighbours costs only products
        low, high = alphas[max(best - 1, 0)], alphas[min(best + 1, len(alphas) - 1)]
        alphas = log_spaced(low, high, len(alphas))
        errors, _ = score.path(kernel, alphas, spectrum=spectrum)
        best = _argmin(errors)
    return Choice(kernel, alphas[best].item(), errors[best].item(), spectrum=spectrum)


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
    spectrum = None
    if free == [OPERATOR] and problem.observed is None and isinstance(kernel, Decomposable):
        gram = kernel.kernel._gram(problem.X, None) if problem.gram is None else problem.gram
        spectrum = eigh(gram * score.root[:, None] * score.root, name="The Gram matrix", overwrite=True)

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
        return score(*unpack(point), spectrum=spectrum).clamp(min=torch.finfo(point.dtype).tiny).log()

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


def choose(
    learner: Any, kernel: OperatorKernel, free: list[str], problem: RidgeProblem, seed: int, callback: Any
) -> Choice:
    """Choose what is free by the learner's criterion; what is fixed stays."""
    alpha, approximation = check_alpha(learner.alpha), learner.approximation
    if isinstance(alpha, float) and not free:
        return Choice(kernel, alpha)
    n = len(problem.Y)
    subset = problem.subset(kernel, n if approximation is None else min(n, approximation.size(n)), seed)
    choice = Choice(kernel, 0.0)
    if free:
        choice = learn(kernel, free, subset, alpha, learner.criterion, lbfgs_search(learner, seed, callback))
        if not isinstance(alpha, np.ndarray):
            return choice
    best = choose_alpha(choice.kernel, subset, alpha, learner.criterion)
    return replace(best, history=choice.history, spectrum=best.spectrum if subset is problem else None)


def _initial_operator(Y: Tensor) -> Dense:
    """Where learning an operator starts: halfway from the identity to the outputs' correlation."""
    centred = Y - Y.mean(0)
    scale = centred.norm(dim=0)
    scaled = centred / torch.where(scale > 0, scale, 1.0)
    correlation = scaled.mT @ scaled
    return Dense((0.5 * (correlation + torch.eye(Y.shape[1], dtype=Y.dtype, device=Y.device))).cpu().numpy())


def resolve_operator(kernel: OperatorKernel, problem: RidgeProblem, *, learn: bool) -> OperatorKernel:
    """The kernel with the output operator that the targets decide, or where learning it starts."""
    if isinstance(kernel, OperatorSum):
        return OperatorSum([resolve_operator(term, problem, learn=False) for term in kernel.terms])
    if not isinstance(kernel, Decomposable):
        return kernel
    if learn:
        return Decomposable(kernel.kernel, _initial_operator(problem.Y))
    if kernel.operator is None:
        return kernel
    if problem.observed is not None and isinstance(kernel.operator, DataDriven):
        raise ValueError(
            f"{kernel.operator!r} is computed from the targets, and some of them are missing (NaN). Impute them, or "
            "use a fixed operator or operator='learn'."
        )
    gram = problem.gram
    if gram is None and kernel.operator.needs_gram:
        gram = kernel.kernel._gram(problem.X, None)
    return Decomposable(kernel.kernel, kernel.operator.resolve(problem.Y, gram))


def _is_undecided(value: Value) -> bool:
    """Does a sum wait for operators that the targets decide? Such operators need not commute."""
    return isinstance(value, DataDriven) or any(_is_undecided(child) for _, child in value._children())


def guard_memory(
    kernel: OperatorKernel,
    problem: RidgeProblem,
    free: list[str],
    alpha: Any,
    approximation: Approximation | None,
) -> None:
    """Estimate what a fit needs before anything of size n × n exists."""
    n, p = problem.Y.shape
    what = f"An exact fit to {n} samples"
    advice = "Use approximation=Nystroem(m), fewer samples or dtype='float32'."
    form = None if _is_undecided(kernel) else kernel.diagonal_form(p, problem.Y)
    coupled = form is None or (form.rotation is not None and problem.observed is not None)
    # Peaks that `representer bench memory` measures, in matrices: a gradient's intermediates; the blocks of a
    # kernel without structure; eigenvectors and their workspace; a factor alone. A group of outputs with a Gram matrix
    # of its own keeps a factor more.
    if approximation is not None:
        m = approximation.size(n)  # only where targets are missing
        elements, what, advice = 4 * n * m, f"A fit with {m} features", "Use fewer of them."
    elif form is None or coupled:
        elements = (10 if free else 5) * min(n * p, DENSE_LIMIT) ** 2
    elif not free and len(form.kernels) == 1 and has_few_features(form.kernels[0], problem.X):
        elements = 4 * problem.X.numel()
    else:
        spectral = not isinstance(alpha, float) or form.weights.unique(dim=1).shape[1] > 1
        elements = ((10 if free else 3 if spectral else 1) + _factors(form, problem) - 1) * n**2
    elements += 3 * n**2 if problem.pairwise else 0
    require(elements * problem.Y.element_size(), what=what, advice=advice)


def _factors(form: DiagonalForm, problem: RidgeProblem) -> int:
    """How many Cholesky factors a system keeps: one for each group of outputs, unless they share a spectrum."""
    if len(form.kernels) == 1 and problem.observed is None:
        return 1
    n = len(problem.Y)
    return sum(len(list(observation_patterns(problem.observed, members, n))) for _, members in form.groups())


def ridge_system(
    kernel: OperatorKernel, problem: RidgeProblem, alpha: float, spectrum: Spectrum | None = None
) -> System:
    """The system K + n·alpha, factored; where k(X) was repaired, with what that means for new points."""
    if problem.kept is not None and isinstance(kernel, Decomposable):
        kernel = Decomposable(Projected(kernel.kernel, problem.kept), kernel.operator)
    p, noise = problem.Y.shape[1], problem.noise(alpha)
    return factor_system(
        kernel, problem.X, noise, p, observed=problem.observed, spectrum=spectrum, gram=problem.gram
    )


def prior_scale(system: System, problem: RidgeProblem, coefficients: Tensor) -> Tensor:
    """s² for each output, with which leave-one-out residuals have the variance that the model gives them."""
    if isinstance(
        system, IterativeSystem
    ):  # no leave-one-out there: maximum likelihood, yᵀQy over the entries
        return (problem.Y * coefficients).sum() / problem.Y.numel()
    residuals = problem.Y - system.loo_predictions(problem.Y, coefficients)
    ratios = residuals**2 / system.loo_variance()
    return (ratios if problem.observed is None else torch.where(problem.observed, ratios, torch.nan)).nanmean(
        0
    )
