"""The fit of a deep kernel machine: hyperparameters by the error on new data, inner layers by raced restarts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from representer.approximation import Nystroem
from representer.functions import Expansion
from representer.kernels import Precomputed
from representer.linalg import IndefiniteGramWarning, NotPositiveDefiniteError, conjugate_gradient, eigh, repair_gram
from representer.operators import Decomposable, OperatorKernel, Representation, original, repaired_gram
from representer.optimize import Callback, Choice, Deadline, OptimizeResult, SearchSettings, lbfgs, log_spaced
from representer.problems.composition import (
    Composition,
    DeepProblem,
    KnownTargets,
    Loss,
    Objectives,
    beginning,
    flat,
    minimise,
    on_factor,
    outer_grams,
    principal_start,
    random_starts,
)
from representer.samples import Data, SparseRows, count, take
from representer.values import Packing

ADVICE = (
    "If the kernel that sees the data is indefinite, it is repaired where nothing of it is learned: give numbers (or "
    "'median') for its hyperparameters, or use OperatorRidge, which repairs while it learns."
)


@dataclass(frozen=True)
class Restore:
    """The way back from what a fit has worked with to the kernel and the data that it was given."""

    data: Data
    kernel: OperatorKernel | None = None  # the first one, where its Gram matrix was computed once
    kept: Tensor | None = None  # if that was repaired, the eigenvectors that have stayed
    learned: bool = False  # is it a scalar kernel of objects with hyperparameters that were searched?

    def composition(self, composition: Composition) -> Composition:
        """The composition with the kernel of the data in its place."""
        return _with_first(composition, original(composition.input_kernel if self.kernel is None else self.kernel))

    def functions(self, functions: Sequence[Expansion]) -> list[Expansion]:
        """The functions from the input on, the first one on the objects: its coefficients c are P c.

        Only objects with a coefficient are kept.
        """
        first, *later = functions
        if self.kernel is None:
            return [first, *later]
        c = first.coefficients
        c = c if self.kept is None else self.kept @ (self.kept.mT @ c)
        rows = torch.nonzero(c.abs().sum(1))[:, 0].cpu()
        rows = rows if len(rows) else torch.zeros(1, dtype=torch.long)
        return [Expansion(self.kernel, take(self.data, rows), c[rows.to(c.device)]), *later]

    def needs_repair(self, composition: Composition) -> bool:
        """Has a search over hyperparameters ended at an indefinite kernel?"""
        return self.learned and _is_indefinite(composition.input_kernel, self.data)

    @contextmanager
    def advice(self) -> Iterator[None]:
        """An indefinite Gram matrix of a kernel that is learned is reported with what can be done about it."""
        try:
            yield
        except NotPositiveDefiniteError as error:
            if not self.learned:
                raise
            raise NotPositiveDefiniteError(f"The search met an indefinite Gram matrix. {ADVICE}") from error


def precompute(
    composition: Composition, data: Data, like: Tensor, *, once: bool = True
) -> tuple[Composition, Any, Restore]:
    """The composition and the data that a fit works with, and the way back.

    If the first kernel is a scalar one of objects (or of sparse vectors) with nothing to be learned, these are the
    composition with ``Precomputed()`` in its place, and its Gram matrix, repaired if need be with an
    ``IndefiniteGramWarning``. Any other kernel of objects gets the precision of the learner.

    Parameters
    ----------
    composition : Composition
    data : prepared data
    like : tensor
        Of the precision and on the device of the learner.
    once : bool
        False: no n × n matrix, for a fit through landmarks.

    Returns
    -------
    composition, data, restore : Composition, prepared data, Restore
    """
    kernel = composition.input_kernel
    if kernel.domain in ("vectors", "gram") and not isinstance(data, SparseRows):
        return composition, data, Restore(data)
    scalar = once and isinstance(kernel, Decomposable)
    learned = scalar and bool(kernel.free())
    form = Representation(like.dtype, str(like.device), sparse=True)
    adapted: Any = form.adapted(kernel, repair=scalar and not learned)
    if learned and _is_indefinite(start := adapted.resolve(data), data):
        raise NotPositiveDefiniteError(
            f"The Gram matrix of {start.kernel!r}, where learning would start, is indefinite. {ADVICE}"
        )
    if learned or not scalar:
        return _with_first(composition, adapted), data, Restore(data, learned=learned)
    resolved = adapted.resolve(data)
    gram, kept = repaired_gram(resolved.kernel, data)
    fitted = _with_first(composition, Decomposable(Precomputed(), resolved.operator))
    return fitted, gram, Restore(data, resolved, kept)


def _with_first(composition: Composition, kernel: OperatorKernel) -> Composition:
    """The composition with another kernel for the data."""
    if not composition.layers:
        return Composition([], kernel, composition.alpha)
    first, *later = composition.layers
    layers = [first.replaced(kernel=kernel, operator=None), *later]
    return Composition(layers, composition.kernel, composition.alpha)


def _is_indefinite(kernel: Any, data: Data) -> bool:
    """Would the Gram matrix of a scalar kernel be repaired with a warning, or refused?"""
    with warnings.catch_warnings():
        warnings.simplefilter("error", IndefiniteGramWarning)
        try:
            repair_gram(kernel.kernel._gram(data, None))
        except (IndefiniteGramWarning, NotPositiveDefiniteError):
            return True
    return False


# A hypergradient only has to point downhill: two digits are enough.
SYSTEM_TOL, SYSTEM_ITERATIONS = 1e-2, 20
# Solutions of the folds have a tolerance, and may settle in another minimum nearby: so exactly, relatively, is E known.
NOISE = 1e-2
# Factors by which the penalties of all inner layers are multiplied to find where the search should begin.
PENALTY_FACTORS = (1.0, 0.1, 0.01, 1e-3, 1e-4)


@dataclass
class Fold:
    """A problem with a score, and the coordinates from which it is solved anew."""

    problem: DeepProblem
    point: Tensor


class HyperparameterSearch:
    """The mean error over folds as a function of the free hyperparameters' raw vector h."""

    def __init__(
        self,
        composition: Composition,
        free: Sequence[str],
        folds: Sequence[Fold],
        *,
        max_iter: int,
        tol: float,
        least_alpha: float = 0.0,
        frozen: bool = False,
        deadline: Deadline | None = None,
    ):
        self.composition, self.folds, self.least_alpha = composition, list(folds), least_alpha
        self.frozen = frozen  # inner layers stay as they are: only the outer function is fitted anew
        self.max_iter, self.tol, self.deadline = max_iter, tol, deadline
        packing, start = composition.packing(list(free))
        self.packing: Packing = packing
        self.start = start.to(folds[0].problem.Y)
        self.best = math.inf
        self.unit: float | None = None  # the first error, so that tolerances do not depend on the units of y

    def unpack(self, h: Tensor) -> Composition:
        """The composition of a raw vector, differentiable; the outer alpha stays above its least value."""
        values = self.packing.unpack(h)
        if "alpha" in values:
            values["alpha"] = values["alpha"] + self.least_alpha
        return self.composition.replace(values)

    def __call__(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """E and its gradient at one h, in units of the first E; the folds are solved anew from where the best h left
        them."""
        numbers, solved = self._solve_all(h)
        if solved is None:
            return h.new_tensor(torch.nan), torch.full_like(h, torch.nan)
        parts = [
            hypergradient(fold.problem, None if self.frozen else fold.problem.at(numbers), point, h, self.unpack)
            for fold, point in zip(self.folds, solved, strict=True)
        ]
        value = torch.stack([value for value, _ in parts]).mean()
        gradient = torch.stack([gradient for _, gradient in parts]).mean(0)
        if float(value) < self.best:
            self.best = float(value)
            self._keep(solved)
        if self.unit is None and math.isfinite(value):
            self.unit = max(float(value), torch.finfo(value.dtype).tiny)
        return value / (self.unit or 1.0), gradient / (self.unit or 1.0)

    def _solve_all(self, h: Tensor) -> tuple[Composition, list[Tensor] | None]:
        """The composition at h and the folds' solutions there; None where a fold has none (alpha too small, say)."""
        with torch.no_grad():
            numbers = self.unpack(h).numbers()
        points = []
        for fold in self.folds:
            if fold.problem.size == 0 or self.frozen:
                points.append(fold.point)
                continue
            problem = fold.problem.at(numbers)
            limits = {"max_iter": self.max_iter, "tol": self.tol, "deadline": self.deadline}
            result = minimise(problem, fold.point[None], **limits, strict=False)  # type: ignore[arg-type]
            if result.interrupted:
                raise KeyboardInterrupt
            if not math.isfinite(result.value):
                return numbers, None
            points.append(result.point)
        return numbers, points

    def _keep(self, points: Sequence[Tensor]) -> None:
        for fold, point in zip(self.folds, points, strict=True):
            fold.point = point

    def scan(self) -> None:
        """Move the start to where the error is least among some multiples of the inner layers' penalties.

        Downhill from the multiple in the middle, at which the folds' images were found from which each is solved.
        """
        inner = {name for name in self.packing.shapes if name.startswith("layers__") and name.endswith("__alpha")}
        if not inner:
            return
        sizes = {name: shape.numel() for name, shape in self.packing.shapes.items()}
        shift = self.start.new_tensor([float(name in inner) for name, size in sizes.items() for _ in range(size)])
        origin, middle = self.start, len(PENALTY_FACTORS) // 2
        best = self._tried(origin + math.log(PENALTY_FACTORS[middle]) * shift)
        for factors in (PENALTY_FACTORS[middle + 1 :], PENALTY_FACTORS[:middle][::-1]):
            first = best
            for factor in factors:
                found = self._tried(origin + math.log(factor) * shift)
                if not found[0] < best[0]:
                    break
                best = found
            if best is not first:  # downhill on this side
                break
        error, h, points = best
        self._keep(points)
        if math.isfinite(error):
            self.best, self.start = error, h

    def _tried(self, h: Tensor) -> tuple[float, Tensor, list[Tensor]]:
        """The error at h, infinite where there is none, and the folds' solutions."""
        numbers, points = self._solve_all(h)
        if points is None:
            return math.inf, h, [fold.point for fold in self.folds]
        with torch.no_grad():
            solved = zip(self.folds, points, strict=True)
            errors = [fold.problem.score(point[None], numbers)[0] for fold, point in solved]
        error = torch.stack(errors).mean().item()
        return error if math.isfinite(error) else math.inf, h, points

    def run(self, *, max_iter: int, tol: float, callback: Callback | None, verbose: int) -> Choice:
        """Minimise the error; what was found when it is interrupted is kept."""

        def function(points: Tensor) -> tuple[Tensor, Tensor]:
            values, gradients = zip(*(self(point) for point in points), strict=True)
            return torch.stack(values), torch.stack(gradients)

        description = "error of held-out data"
        options = {"callback": callback, "verbose": verbose, "description": description, "deadline": self.deadline}
        result = lbfgs(function, self.start, max_iter=max_iter, tol=tol, noise=NOISE, **options)  # type: ignore[arg-type]
        with torch.no_grad():
            chosen = self.unpack(result.point).numbers()
        unit = self.unit or 1.0
        history = [entry._replace(value=entry.value * unit) for entry in result.history]
        return Choice(chosen, chosen.alpha, result.value * unit, history, result.interrupted)


def hypergradient(
    problem: DeepProblem,
    fixed: DeepProblem | None,
    point: Tensor,
    h: Tensor,
    unpack: Callable[[Tensor], Composition],
) -> tuple[Tensor, Tensor]:
    """C(Θ, h) and dE/dh at the minimiser Θ = ``point`` of J(·, h); ``fixed``: the problem at h, None if Θ is given."""
    theta, raw = point.detach().requires_grad_(fixed is not None), h.detach().requires_grad_()
    with torch.enable_grad():
        value = problem.score(theta[None], unpack(raw))[0]
        if fixed is None:
            (in_h,) = torch.autograd.grad(value, [raw], allow_unused=True, materialize_grads=True)
            return value.detach(), in_h
        in_theta, in_h = torch.autograd.grad(value, [theta, raw], allow_unused=True, materialize_grads=True)
    if not bool(in_theta.any()) or not bool(torch.isfinite(in_theta).all()):
        return value.detach(), in_h

    limit = min(SYSTEM_ITERATIONS, 2 * point.numel())
    u = conjugate_gradient(hessian_of(fixed, point, in_theta), in_theta, tol=SYSTEM_TOL, max_iter=limit, strict=False)
    step = _step_along(u, point)
    raw = h.detach().requires_grad_()
    with torch.enable_grad():
        difference = problem.value(torch.stack([point + step * u, point - step * u]), unpack(raw))
        (mixed,) = torch.autograd.grad(difference[0] - difference[1], raw, allow_unused=True, materialize_grads=True)
    return value.detach(), in_h - mixed / (2.0 * step)


def hessian_of(problem: DeepProblem, point: Tensor, probe: Tensor) -> Callable[[Tensor], Tensor]:
    """Products with ∂²J/∂Θ²: exact ones if the problem has them, which a probe shows, otherwise central differences."""
    exact = problem.hessian(point)
    try:
        if exact is not None and bool(torch.isfinite(exact(probe)).all()):
            return exact
    except RuntimeError:  # a kernel's gradient that is not differentiable
        pass

    def differences(direction: Tensor) -> Tensor:
        step = _step_along(direction, point)
        ends = torch.stack([point + step * direction, point - step * direction])
        _, gradients = problem.value_and_gradient(ends)
        return (gradients[0] - gradients[1]) / (2.0 * step)

    return differences


def _step_along(direction: Tensor, point: Tensor) -> float:
    """Where a central difference of gradients loses as much by rounding as by curvature."""
    info = torch.finfo(direction.dtype)
    return info.eps ** (1.0 / 3.0) * max(1.0, point.norm().item()) / max(direction.norm().item(), info.tiny)


Split = tuple[Tensor, Tensor]  # training rows and held-out rows

# Of fewer than these, leave-one-out is chosen before validation however noisy they are.
FEWEST_SAMPLES = 10
# The search over hyperparameters: each step solves every fold anew. It ends where a factor e in any hyperparameter
# changes the error by less than a per cent; solutions need no more digits than that.
SEARCH_ITERATIONS, SEARCH_TOL = 8, 1e-2
FOLD_ITERATIONS, FOLD_TOL = 50, 1e-5
# Where folds start needs even fewer: their penalties are others.
EXPLORE_TOL = 1e-4
# Among alphas whose errors differ by less than this share, the largest: the better conditioned problem.
NEARLY_BEST = 0.05
# The least n·alpha that is tried, relative to the mean of k(x, x): below it rounding spoils differences of gradients,
# or the solver of a convex loss takes ages (libsvm's C is 1/(2n·alpha)).
LEAST_RIDGE, LEAST_CONVEX = 1e-7, 1e-4
# Penalties at which no layer is held at zero, for finding where to search: inner ones in units of the loss at the
# start, the outer alpha in units of k(x, x).
GENTLE = 0.01
# Where the search for alpha begins at most, in units of k(x, x).
LARGEST_FIRST = 0.1
# Unknowns of the inner layers for each sample up to which leave-one-out is trusted.
OPTIMISM = 0.25
# The share of the variance that is left unexplained up to which it is: inner layers adapt to noise.
NOISY = 0.4


@dataclass(frozen=True)
class Solution:
    """What a fit found: the problem at the chosen hyperparameters, the coordinates, and how."""

    problem: DeepProblem
    point: Tensor
    value: float
    result: OptimizeResult | None
    choice: Choice | None

    @property
    def interrupted(self) -> bool:
        """Did Ctrl-C or the deadline end the search?"""
        return any(part is not None and part.interrupted for part in (self.choice, self.result))

    @property
    def images(self) -> list[Tensor]:
        """Of the samples, under each inner layer."""
        chain = self.problem.chain
        return [] if chain is None else chain.images(chain.split(self.point))


@dataclass(frozen=True)
class Splits:
    """Which samples a search looks at, and which of them, or of all samples, each fold holds out."""

    rows: Tensor
    folds: Callable[[Tensor | None], list[Split]]


@dataclass
class DeepFit:
    """A fit of given data.

    Parameters
    ----------
    composition : Composition
    X : prepared data
    targets : KnownTargets
    loss : Loss
    settings : SearchSettings
        Its criterion is "auto", "validation", "loo" or "gcv".
    splits : Splits
    approximation : Nystroem, optional
    minimiser : callable
        What searches the inner layers of all samples from some starts.
    """

    composition: Composition
    X: Data
    targets: KnownTargets
    loss: Loss
    settings: SearchSettings
    splits: Splits
    approximation: Nystroem | None = None
    minimiser: Callable[..., OptimizeResult] = minimise
    free: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.Y = self.targets.Y
        self.generator = torch.Generator().manual_seed(self.settings.seed)
        self.criterion = self.settings.criterion or "auto"
        self.whole: list[Tensor] = []  # images of all samples where the search over hyperparameters has ended
        self.free = self.composition.free()
        self.max_rank = None if self.approximation is None else self.approximation.at_most(len(self.Y))
        given = self.composition
        self.beginning = beginning(given, self.X, self.max_rank, self.generator, self.targets.weights)
        self.composition, self.start = self.beginning.composition, self.beginning.image
        kernel, p = self.composition.kernel, self.Y.shape[1]
        expected = kernel.n_outputs(self.X if self.start is None else self.start)
        if expected is not None and expected != p:
            raise ValueError(
                f"{kernel!r} has {expected} outputs on these inputs, but the targets have {p}. Make them equal."
            )
        # Leave-one-out is a closed form that holds the inner layers fixed, which have seen the sample that is left out:
        # an optimism of about their number of unknowns over the number of samples.
        unknowns = 0 if self.beginning.chain is None else self.beginning.chain.size
        self.inner_is_small = unknowns <= OPTIMISM * len(self.Y)
        if self.criterion == "auto":
            self.criterion = "loo" if self.loss.squared and self.inner_is_small else "validation"
        if self.free:
            self.loss.scored(self.criterion)  # a closed form for another loss is refused before any search
        self.composition = self.composition.replace(self._first_alphas(given)).numbers()

    def run(self) -> Solution:
        """Choose what is free, then search the inner layers."""
        choice, warm = self._choose() if self.free else (None, None)
        composition = self.composition if choice is None else choice.model
        problem = self.problem(composition, self.loss.fit())
        if problem.chain is None:
            point = self.Y.new_zeros(0)
            return Solution(problem, point, problem.value(point[None]).item(), None, choice)
        starts = self.starts(problem)
        if warm is not None:
            starts = torch.cat([flat(problem.chain.project(warm))[None], starts])[: max(2, self.settings.n_restarts)]
        if choice is not None and choice.interrupted:
            return Solution(problem, starts[0], problem.value(starts[:1]).item(), None, choice)
        if not self.loss.squared and self.loss.learnable and len(starts) > 1:
            proxy = self.problem(composition, self.loss.proxy().fit())
            found = self.minimise(proxy, starts, description="restarts")
            starts = found.point[None]
            if found.interrupted:
                return Solution(problem, found.point, problem.value(starts).item(), found, choice)
        result = self.minimise(problem, starts, callback=self.settings.callback, description="objective")
        return Solution(problem, result.point, result.value, result, choice)

    def held_out(self, composition: Composition, images: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each fold f + b at its samples by a fit without them, and the samples; fits start from given images.

        Ctrl-C ends this, not only the fold it happens in; at the deadline a fold keeps the inner layers that it has.
        """
        tol = max(self.settings.tol, FOLD_TOL)
        for training, validation in self.splits.folds(None):
            problem = self.problem(composition, self.loss.fit(), rows=training)
            point = self.Y.new_zeros(0)
            if problem.chain is not None:
                start = flat(problem.chain.project(images))
                deadline = self.settings.deadline
                limits = {"max_iter": self.settings.max_iter, "tol": tol, "deadline": deadline}
                progress = {"verbose": self.settings.verbose, "description": "held-out fits"}
                result = minimise(problem, start[None], **limits, **progress)  # type: ignore[arg-type]
                if result.interrupted and not deadline.was_missed:
                    raise KeyboardInterrupt
                point = result.point
            outer, intercept, found = problem.solve(point)
            Z = take(found[-1], validation)
            yield outer(Z[:, training] if outer.kernel.domain == "gram" else Z) + intercept, validation

    # -- problems -----------------------------------------------------------------------------------------------------
    def problem(
        self,
        composition: Composition,
        objectives: Objectives,
        rows: Tensor | None = None,
    ) -> DeepProblem:
        """The problem of all samples or of some, through landmarks if the fit has them."""
        landmarks = self._landmarks(composition, rows)
        return DeepProblem(
            composition,
            self.X,
            self.targets,
            objectives if landmarks is None else on_factor(objectives),
            rows=rows,
            max_rank=self.max_rank,
            landmarks=landmarks,
            free=self.free,
            chain=self.beginning.chain_of(composition.layers) if rows is None else None,
        )

    def _landmarks(self, composition: Composition, rows: Tensor | None) -> Tensor | None:
        """Samples whose images span the outer function, chosen where the search starts."""
        if self.approximation is None:
            return None
        kernel = composition.kernel
        if self.start is None or not isinstance(kernel, Decomposable) or kernel.operator is not None:
            raise ValueError(
                "approximation= needs a scalar outer kernel and at least one inner layer; without inner layers use "
                "OperatorRidge(approximation=…)."
            )
        if not self.loss.squared:
            raise ValueError(
                "approximation= is for squared loss. Use loss='squared', or fewer samples with approximation=None."
            )
        rows = torch.arange(len(self.Y)) if rows is None else rows
        nystroem = Nystroem(self.approximation.at_most(len(rows)), self.approximation.sampling)
        return rows[nystroem.samples(kernel.kernel, self.start[rows], seed=self.settings.seed)]

    def starts(self, problem: DeepProblem) -> Tensor:
        """Kernel PCA, and random coordinates around it."""
        assert problem.chain is not None
        principal = self.beginning.point
        if principal is None or problem.chain is not self.beginning.chain:
            principal = flat(principal_start(problem.chain, self.generator, problem.targets.weights))
        return random_starts(problem.chain, principal, self.settings.n_restarts, self.generator)

    def minimise(self, problem: DeepProblem, starts: Tensor, **options: Any) -> OptimizeResult:
        """Search the inner layers from some starts."""
        settings = self.settings
        options = {"max_iter": settings.max_iter, "tol": settings.tol, "verbose": settings.verbose, **options}
        return self.minimiser(problem, starts, deadline=settings.deadline, **options)

    # -- hyperparameters ----------------------------------------------------------------------------------------------
    def _first_alphas(self, given: Composition) -> dict[str, float]:
        """Where the search for alphas begins.

        The outer one has nearly the least leave-one-out error of a ridge fit at the start; an inner penalty is as large
        as the loss is there.
        """
        rows, whole = self.splits.rows, self.targets.rows(self.splits.rows)
        size = _variance(_known(whole)) or 1.0
        alphas = {
            f"layers__{i}__alpha": size / layer.size
            for i, layer in enumerate(given.layers)
            if isinstance(layer.alpha, str)
        }
        if not isinstance(given.alpha, str):
            return alphas
        if len(rows) < 2:
            raise ValueError("Found 1 sample (n_samples = 1), which is too few to choose alpha; give a number.")
        X = take(self.X if self.start is None else self.start, rows)
        pairwise = self.start is None and given.input_kernel.domain == "gram"
        return {"alpha": self._ridge_alpha(X[:, rows] if pairwise else X, whole)[0], **alphas}

    def _ridge_alpha(self, X: Data, targets: KnownTargets) -> tuple[float, float]:
        """The largest alpha of nearly the least leave-one-out error of a ridge fit at these points, but a gentle one;
        and this error as a share of the variance.

        Where the data say little, the best alpha holds f at zero, and with it every inner layer: a stationary point
        that no search leaves.
        """
        targets = _known(targets)
        grid, errors = leave_one_out_path(self.composition, X, targets)
        alpha = grid[errors <= (1.0 + NEARLY_BEST) * errors.min()].max().item()
        alpha = max(min(alpha, LARGEST_FIRST * self._kernel_size()), self._least_alpha(self.loss, len(targets)))
        variance = _variance(targets)
        return alpha, errors.min().item() / variance if variance > 0 else 0.0

    def _least_alpha(self, loss: Loss, n: int) -> float:
        """Where the outer problem is still well enough conditioned to be differentiated, or solved by its solver."""
        return (LEAST_RIDGE if loss.squared else LEAST_CONVEX) * self._kernel_size() / n

    def _kernel_size(self) -> float:
        """The mean of k(x, x) of the outer kernel where the search starts."""
        Z = self.X if self.start is None else self.start
        return self.composition.kernel.diag(Z, self.Y.shape[1]).mean().item()

    def _choose(self) -> tuple[Choice, list[Tensor] | None]:
        """Hyperparameters of least error, and images from which the last fit may start."""
        rows = self.splits.rows
        X, targets = take(self.X, rows), self.targets.rows(rows)
        X = X[:, rows] if self.composition.input_kernel.domain == "gram" else X
        images, interrupted = self._explore(X, targets)
        if interrupted:
            return self._stopped(), images or None
        try:
            if images and ("alpha" in self.free or self.criterion == "loo"):
                self._look_again(images[-1], targets)
            choice = self._descend(X, targets, images)
        except KeyboardInterrupt:  # before the search had a first value: where it stood is kept
            choice = self._stopped()
        if len(rows) < count(self.X):
            return choice, None
        # Landmarks were chosen where all began: they may depend on each other where this search has ended.
        return choice, (self.whole if self.approximation is None else []) or images or None

    def _stopped(self) -> Choice:
        return Choice(self.composition, self.composition.alpha, interrupted=True)

    def _look_again(self, image: Tensor, targets: KnownTargets) -> None:
        """What the explored images say: where alpha should begin, and whether leave-one-out can be trusted."""
        alpha, unexplained = self._ridge_alpha(image, targets)
        if "alpha" in self.free:
            self.composition = self.composition.replace({"alpha": alpha})
        if self.settings.criterion == "auto" and unexplained > NOISY and len(targets) >= FEWEST_SAMPLES:
            self.criterion = "validation"

    def _descend(self, X: Data, targets: KnownTargets, images: list[Tensor]) -> Choice:
        """The search itself: by squared loss, then alpha by the loss that is meant."""
        some = None if len(self.splits.rows) == len(self.Y) else self.splits.rows
        splits: Sequence[Any] = self.splits.folds(some) if self.criterion == "validation" else [(None, None)]
        proxy = self.loss.proxy()
        folds = [self._fold(proxy, X, targets, images, *split) for split in splits]
        search = self._search(proxy, self.free, folds)
        search.scan()
        choice = self._run(search)
        if (chain := folds[0].problem.chain) is not None:
            self.whole = chain.with_layers(choice.model.layers).images(chain.split(folds[0].point))
        if not self.loss.squared and "alpha" in self.free and not choice.interrupted:
            # The loss itself decides on its alpha, with the inner layers that squared loss has found for the folds.
            own = [
                self._fold(self.loss, X, targets, [], split[0], split[1], f.point)
                for f, split in zip(folds, splits, strict=True)
            ]
            choice = self._run(self._search(self.loss, ["alpha"], own, frozen=True))
        return choice

    def _search(self, loss: Loss, free: list[str], folds: list[Fold], *, frozen: bool = False) -> HyperparameterSearch:
        return HyperparameterSearch(
            self.composition,
            free,
            folds,
            max_iter=min(self.settings.max_iter, FOLD_ITERATIONS),
            tol=max(self.settings.tol, FOLD_TOL),
            least_alpha=self._least_alpha(loss, len(folds[0].problem.Y)),
            frozen=frozen,
            deadline=self.settings.deadline,
        )

    def _run(self, search: HyperparameterSearch) -> Choice:
        choice = search.run(
            max_iter=SEARCH_ITERATIONS,
            tol=SEARCH_TOL,
            callback=self.settings.callback,
            verbose=self.settings.verbose,
        )
        self.composition = choice.model
        return choice

    def _explore(self, X: Data, targets: KnownTargets) -> tuple[list[Tensor], bool]:
        """Images under inner layers that hardly cost anything: where folds start; and whether this was interrupted."""
        current = self.composition.hyperparameter_values()
        gentle = {
            name: GENTLE * current[name]
            for name in self.free
            if name.startswith("layers__") and name.endswith("__alpha")
        }
        if "alpha" in self.free and self.start is not None:
            # Where the start is blind, as one direction of many may be, its best outer function is a constant.
            gentle["alpha"] = current["alpha"].clamp(max=GENTLE * self._kernel_size())
        composition = self.composition.replace(gentle).numbers()
        problem = DeepProblem(composition, X, targets, self.loss.proxy().fit())
        if problem.chain is None:
            return [], False
        # A search over fewer landmarks than samples starts from here, and is ill conditioned where that is not near.
        tol = max(self.settings.tol, EXPLORE_TOL) if self.approximation is None else self.settings.tol
        result = self.minimise(problem, self.starts(problem), tol=tol, description="restarts")
        return problem.chain.images(problem.chain.split(result.point)), result.interrupted

    def _fold(
        self,
        loss: Loss,
        X: Data,
        targets: KnownTargets,
        images: Sequence[Tensor],
        training: Tensor | None,
        validation: Tensor | None,
        point: Tensor | None = None,
    ) -> Fold:
        """A fold that starts at a point, or at given images."""
        objectives = loss.scored(self.criterion, validation)
        problem = DeepProblem(self.composition, X, targets, objectives, rows=training, free=self.free)
        if point is None:
            point = self.Y.new_zeros(0) if problem.chain is None else flat(problem.chain.project(images))
        return Fold(problem, point)


def _known(targets: KnownTargets) -> KnownTargets:
    """The columns of the targets that every sample has."""
    missing = targets.Y.isnan().any(0)
    return targets.columns(torch.nonzero(~missing)[:, 0]) if bool(missing.any()) else targets


def _centred(targets: KnownTargets) -> Tensor:
    """The targets around their mean, each times the root of its weight; the weights have mean one."""
    if targets.weights is None:
        return targets.Y - targets.Y.mean(0)
    w = (targets.weights / targets.weights.mean())[:, None]
    return w.sqrt() * (targets.Y - (w * targets.Y).mean(0))


def _variance(targets: KnownTargets) -> float:
    return _centred(targets).square().sum(1).mean().item()


def leave_one_out_path(composition: Composition, X: Data, targets: KnownTargets) -> tuple[Tensor, Tensor]:
    """Values of alpha, and the leave-one-out error of ridge fits by the outer kernel at these points for each.

    One eigendecomposition k = U diag(e) Uᵀ serves them all: P = U diag(1/(e + nα)) Uᵀ.
    """
    Y = _centred(targets)
    n, p = Y.shape
    root = None if targets.weights is None else (targets.weights / targets.weights.mean()).sqrt()
    grams, rotation, coupled = outer_grams(composition.kernel, p, Y)
    Y = Y if rotation is None else Y @ rotation
    with torch.no_grad():
        matrices = [(gram(X, None), outputs) for gram, outputs in grams]
        info = torch.finfo(Y.dtype)
        trace = max(float(gram.diagonal().sum()) for gram, _ in matrices) / (p if coupled else 1)
        smallest = Y.new_tensor(max(trace * info.eps ** (2 / 3) / n, info.tiny**0.5))
        alphas = log_spaced(smallest, smallest * info.eps ** (-2 / 3) * 10.0)
        total = torch.zeros_like(alphas)
        for gram, outputs in matrices:
            columns = Y.reshape(-1, 1) if coupled else Y[:, outputs]
            if root is not None:
                d = root.repeat_interleave(p) if coupled else root
                gram = gram * d[:, None] * d
            spectrum = eigh(gram, name="The Gram matrix")
            inverse = 1.0 / (spectrum.values.clamp(min=0.0) + n * alphas[:, None])
            C = spectrum.vectors @ (inverse[:, :, None] * (spectrum.vectors.mT @ columns))
            diagonal = (spectrum.vectors.square() @ inverse.mT).mT
            total += (C / diagonal[:, :, None]).square().sum((1, 2)) / n
    return alphas, torch.where(torch.isfinite(total), total, torch.inf)


# -- whole fits -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Fitted:
    """A fit with the way back to the kernel and the data that it was given."""

    fit: DeepFit
    solution: Solution
    restore: Restore

    @cached_property
    def _solved(self) -> list[Expansion]:
        """The functions of what the fit has worked with."""
        problem, point = self.solution.problem, self.solution.point
        outer, intercept, _ = problem.solve(point)
        inner = [] if problem.chain is None else problem.chain.expansions(problem.chain.split(point))
        return [*inner, replace(outer, intercept=intercept)]

    def functions(self) -> list[Expansion]:
        """The functions from the input on; the outer one, which is the last, has the intercept."""
        *inner, outer = self.restore.functions(self._solved)
        return [*inner, replace(outer, intercept=self._solved[-1].intercept)]

    def norms(self) -> list[float]:
        """‖f_l‖ of every function from the input on."""
        return [f.norm() for f in self._solved]

    def composition(self) -> Composition:
        """The composition with the numbers that were used."""
        return self.restore.composition(self.solution.problem.composition)


def fit_composition(
    composition: Composition,
    X: Data,
    targets: KnownTargets,
    loss: Loss,
    settings: SearchSettings,
    splits: Splits,
    approximation: Nystroem | None = None,
) -> Fitted:
    """Fit a composition to prepared data; objects have their Gram matrix computed once, and repaired if need be."""
    once = approximation is None
    composition, data, restore = precompute(composition, X, targets.Y, once=once)
    fit = DeepFit(composition, data, targets, loss, settings, splits, approximation)
    with restore.advice():
        solution = fit.run()
    if restore.needs_repair(learned := solution.problem.composition):
        composition, data, restore = precompute(restore.composition(learned), restore.data, targets.Y)
        fit = replace(fit, composition=composition, X=data)
        solution = replace(fit.run(), choice=solution.choice)
    return Fitted(fit, solution, restore)
