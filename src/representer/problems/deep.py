"""The fit of a deep kernel machine: hyperparameters by the error on new data, inner layers by raced restarts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation
from representer.functions import Composed, Expansion, Stacked
from representer.kernels import Precomputed
from representer.linalg import (
    NEGLIGIBLE_SHARE,
    NotPositiveDefiniteError,
    conjugate_gradient,
    eigh,
    note_residual,
    power_of_two,
    repair_gram,
    require,
)
from representer.operators import Decomposable, OperatorKernel, Representation, original, repaired_gram
from representer.optimize import (
    Choice,
    Deadline,
    OptimizeResult,
    Problem,
    SearchSettings,
    keep_going,
    lbfgs,
    log_spaced,
    system_alpha,
)
from representer.preimage.probabilities import (
    Calibration,
    CodesCalibration,
    FarField,
    base_rates,
    calibrate,
    far_field,
    is_constant,
)
from representer.problems.composition import (
    Beginning,
    Composition,
    DeepProblem,
    KnownTargets,
    Loss,
    Objectives,
    OuterSolution,
    beginning,
    flat,
    minimise,
    on_factor,
    outer_grams,
    principal_start,
    random_starts,
)
from representer.problems.outer import (
    LEAST_CONVEX_WEIGHT,
    LEAST_WEIGHT,
    PENALTIES,
    OuterFit,
    chosen_penalties,
    convex_problem,
    fit_outer,
    global_minimum,
)
from representer.samples import (
    Block,
    Data,
    HeldSamples,
    Samples,
    SparseRows,
    TrainingSamples,
    digest,
    plain,
    remembered,
    take,
)
from representer.samples import rows as limits
from representer.systems import RidgeData, Support, check_size, has_few_features, least_shift
from representer.systems.exact import spectral_path
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
    try:
        repair_gram(kernel.kernel._gram(data, None), tolerance=NEGLIGIBLE_SHARE)
    except NotPositiveDefiniteError:
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
        settings: SearchSettings,
        *,
        least_alpha: float = 0.0,
        frozen: bool = False,
    ):
        self.composition, self.folds, self.least_alpha = composition, list(folds), least_alpha
        self.frozen = frozen  # inner layers stay as they are: only the outer function is fitted anew
        self.settings = settings  # of the folds' own searches
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
        value, gradient, solved = remembered(lambda: f"held-out error at {digest(plain(h))}", lambda: self.evaluate(h))
        if float(value) < self.best:
            self.best = float(value)
            self._keep(solved)
        if self.unit is None and math.isfinite(value):
            self.unit = max(float(value), torch.finfo(value.dtype).tiny)
        return value / (self.unit or 1.0), gradient / (self.unit or 1.0)

    def evaluate(self, h: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """E, its gradient and the folds' solutions at one h, each from where its fold stands; NaN where E has none."""
        numbers, solved = self._solve_all(h)
        if solved is None:
            return h.new_tensor(torch.nan), torch.full_like(h, torch.nan), []
        parts = []
        for fold, point in zip(self.folds, solved, strict=True):
            if math.isfinite(self.best):  # a fold's own solutions may take seconds
                self.settings.deadline.check()
            fixed = None if self.frozen else fold.problem.at(numbers)
            parts.append(hypergradient(fold.problem, fixed, point, h, self.unpack))
        values, gradients = zip(*parts, strict=True)
        return torch.stack(values).mean(), torch.stack(gradients).mean(0), solved

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
            result = minimise(problem, fold.point[None], self.settings, strict=False)
            if not math.isfinite(result.completed().value):
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

    def tried(self) -> Choice:
        """The best of what was tried, without a search."""
        with torch.no_grad():
            numbers = self.unpack(self.start).numbers()
        return Choice(numbers, numbers.alpha, self.best)

    def run(self, settings: SearchSettings) -> Choice:
        """Minimise the error, in a few steps; what was found when it is interrupted is kept."""

        def function(points: Tensor) -> tuple[Tensor, Tensor]:
            values, gradients = zip(*(self(point) for point in points), strict=True)
            return torch.stack(values), torch.stack(gradients)

        settings = replace(settings, max_iter=SEARCH_ITERATIONS, tol=SEARCH_TOL)
        result = lbfgs(function, self.start, noise=NOISE, **settings.limits("error of held-out data"))
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
    probe = probe / power_of_two(probe.abs().amax())  # of targets far from 1, two units of J would leave the range
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
# Seconds after an interrupted search in which another fold may begin to calibrate; the first one always does.
PATIENCE = 0.25
# Unknowns of the inner layers for each sample up to which leave-one-out is trusted.
OPTIMISM = 0.25
# The share of the variance that is left unexplained up to which it is: inner layers adapt to noise.
NOISY = 0.4


@dataclass(frozen=True)
class Splits:
    """Which samples a search looks at, and which of them, or of all samples, each fold holds out."""

    rows: Tensor
    folds: Callable[[Tensor | None], list[Split]]


@dataclass(frozen=True)
class SeenSamples:
    """The samples from which inner layers are learned, and all of them if these are more.

    Parameters
    ----------
    block : Block
        Prepared inputs and targets of samples of positive weight.
    inputs : data
        The inputs as they are stored.
    numbers : array of int
        Which of the n samples they are.
    n : int
        How many samples there are, those of weight zero included.
    rows : array of int
        Which of those of positive weight they are.
    source : Samples or None
        All samples of positive weight, if the inner layers do not see all of them.
    """

    block: Block
    inputs: Data
    numbers: np.ndarray
    n: int
    rows: np.ndarray
    source: Samples | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def groups(self) -> np.ndarray | None:
        """The numbers of the samples' groups, from 0 on."""
        return None if self.block.groups is None else np.unique(plain(self.block.groups), return_inverse=True)[1]

    @property
    def weights(self) -> np.ndarray | None:
        """The weights of the samples, None where all are equal."""
        return None if self.block.weights is None else plain(self.block.weights)

    def recalled(self, X: Data, y: np.ndarray, *, pairwise: bool) -> TrainingSamples | None:
        """The samples as a user could pass them again, with stored inputs X; None where inner layers have not seen all.

        With ``pairwise``, X is their Gram matrix.
        """
        if self.source is not None:
            return None
        return TrainingSamples.of(X, y, self.weights, self.groups, pairwise=pairwise)


@dataclass(frozen=True)
class LastSolution:
    """What a fit goes on from: the numbers that the last one has found, and its function of the data."""

    composition: Composition
    function: Composed

    def check(self, composition: Composition, X: Data) -> None:
        """Refuse a fit whose layers or inputs have other shapes."""
        layers = [[layer.size for layer in one.layers] for one in (self.composition, composition)]
        widths = [getattr(part, "shape", (0, 0))[1] for part in (self.function.first.anchors, X)]
        for what, before, now in (("layers of the sizes", *map(str, layers)), ("features", *map(str, widths))):
            if before != now:
                raise ValueError(
                    f"warm_start=True goes on from the last fit, which had {what} {before}, and this one has {now}. "
                    "Fit with warm_start=False to begin anew."
                )

    def images(self, X: Data, like: Tensor) -> list[Tensor]:
        """The images of stored inputs under each inner layer."""
        return [image.to(like) for image in self.function.images(X)[1:]]


@dataclass(frozen=True)
class DeepModel:
    """What is fitted.

    Parameters
    ----------
    composition : Composition
        A number in it stays, a word lets the data decide.
    loss : Loss
    splits : callable
        Makes the ``Splits`` of ``SeenSamples``.
    criterion : {"auto", "validation", "loo", "gcv"}
        What chooses all that is not a number.
    approximation : Nystroem or None
        What spans the outer function; None is exact.
    memory_limit : int, str or None
        What sums over more samples than the inner layers see may take beside the data.
    metric : array (d,) or None
        What the first layer multiplies features by where the search begins; None: it begins with kernel PCA.
    last : LastSolution or None
        Where the search begins instead, with one start.
    """

    composition: Composition
    loss: Loss
    splits: Callable[[SeenSamples], Splits]
    criterion: str = "auto"
    approximation: Approximation | None = None
    memory_limit: int | str | None = None
    metric: np.ndarray | None = None
    last: LastSolution | None = None

    @property
    def kernel(self) -> OperatorKernel:
        """The kernel that sees the data."""
        return self.composition.input_kernel

    @property
    def whole(self) -> bool:
        """Do the inner layers see all samples that are in memory, however many and by whatever features?"""
        return self.kernel.domain == "gram"


@dataclass(frozen=True)
class DeepChoice(Choice):
    """A composition with numbers for all hyperparameters, and where the search of its inner layers begins.

    Parameters
    ----------
    settings : SearchSettings
        Those of the search, which go on to be those of the inner layers.
    images : list of tensor or None
        Of the samples under each inner layer, from which a first start is made.
    random_state : tensor or None
        That of the generator of random starts.
    """

    settings: SearchSettings = field(default_factory=SearchSettings)
    images: list[Tensor] | None = None
    random_state: Tensor | None = None


@dataclass(frozen=True)
class InnerSolution:
    """Inner layers at the chosen hyperparameters: the problem of their coordinates, its solution, and how."""

    problem: DeepProblem
    point: Tensor
    searched_value: float | None  # what a search has found for J; None where it was not asked
    result: OptimizeResult | None = None

    @cached_property
    def outer(self) -> OuterSolution:
        """The outer function, fitted to the images."""
        return self.problem.solve(self.point)

    @cached_property
    def value(self) -> float:
        """J at the point."""
        if self.searched_value is not None:
            return self.searched_value
        loss = self.outer.loss
        return self.problem.value(self.point[None]).item() if loss is None else loss + self.penalty

    @property
    def images(self) -> list[Tensor]:
        """Of the samples, under each inner layer."""
        chain = self.problem.chain
        return [] if chain is None else chain.images(chain.split(self.point))

    @property
    def penalty(self) -> float:
        """That of all inner layers."""
        return self.problem.penalty(self.point[None], self.problem.composition).item()

    def decisions(self) -> Tensor:
        """The values of f + b for the samples."""
        return self.outer.function(self.outer.images[-1]) + self.outer.intercept

    def functions(self) -> list[Expansion]:
        """The functions from the input on; the outer one, which is the last, has the intercept."""
        problem, point = self.problem, self.point
        outer, intercept = self.outer.function, self.outer.intercept
        note_residual("the equations of the outer function", lambda: problem.residual(outer, intercept))
        inner = [] if problem.chain is None else problem.chain.expansions(problem.chain.split(point))
        return [*inner, replace(outer, intercept=intercept)]


@dataclass(frozen=True)
class DeepSolution:
    """The fitted composition, and how it was found.

    Parameters
    ----------
    function : Composed
    composition : Composition
        With the numbers that were used.
    norms : list of float
        ‖f_l‖ of every function from the input on.
    value : float
        The objective.
    criterion : float or None
        That which has chosen alpha; None where nothing was chosen.
    choice : DeepChoice
    inner : InnerSolution
    regression : DeepRegression
        The problem that was solved, in which a Gram matrix may have been repaired.
    outer : OuterFit or None
        The outer function of all samples, where the inner layers have not seen all.
    """

    function: Composed
    composition: Composition
    norms: list[float]
    value: float
    criterion: float | None
    choice: DeepChoice
    inner: InnerSolution
    regression: DeepRegression
    outer: OuterFit | None = None

    @property
    def alpha(self) -> float:
        """The weight of the outer function's ‖f‖²."""
        return float(self.composition.alpha) if self.outer is None else self.outer.system.alpha

    @property
    def interrupted(self) -> bool:
        """Did Ctrl-C or the deadline end a search?"""
        return self.choice.interrupted or (self.inner.result is not None and self.inner.result.interrupted)

    @property
    def stopped_by_user(self) -> bool:
        """Did Ctrl-C end a search, and not the deadline?"""
        return self.interrupted and not self.choice.settings.deadline.was_missed

    def refits(self) -> Iterator[tuple[Tensor, Tensor]]:
        """For each fold, f + b at its samples by a fit without them at the same hyperparameters, and the samples.

        After a search that was interrupted, folds keep the inner layers: who has pressed Ctrl-C wants to wait no more.
        """
        settings, composition = self.choice.settings, self.inner.problem.composition
        return self.regression.refits(composition, self.inner.images, settings, searched=not self.interrupted)


class DeepRegression(Problem):
    """min over f_1, …, f_L of the mean loss of f_L ∘ … ∘ f_1 + b plus Σ_l α_l ‖f_l‖².

    ``choose`` finds hyperparameters by the error on new data, ``solve`` the inner layers by raced restarts and the
    outer function in closed form, or by the solver of its loss.
    """

    model: DeepModel

    # -- samples ------------------------------------------------------------------------------------------------------
    @cached_property
    def seen(self) -> SeenSamples:
        """The samples that the inner layers see."""
        pairwise, how = self.pairwise, self.representation
        source, numbers = self.samples.positive_part(pairwise=pairwise), self.samples.weighty()
        everyone = self.model.whole and source.held is not None
        rows = self.scope.rows(source, source.n if everyone else limits.INNER_ROWS, self.seed)
        block, numbers = source.rows(rows), numbers[rows]
        inputs = plain(block.X)
        if self.inputs is not None:
            inputs = self.inputs if len(rows) == self.samples.n else take(self.inputs, torch.from_numpy(numbers))
            inputs = inputs[:, numbers] if pairwise and len(rows) < self.samples.n else inputs
        X, Y = (how.tensor(values) if isinstance(values, Tensor) else values for values in (block.X, block.Y))
        block = replace(block, X=X, Y=Y)
        return SeenSamples(block, inputs, numbers, self.samples.n, rows, source if len(rows) < source.n else None)

    @cached_property
    def data(self) -> Data:
        """The prepared inputs; a Gram matrix is repaired if need be."""
        X = self.seen.block.X
        return repair_gram(X) if self.pairwise else X

    @cached_property
    def targets(self) -> KnownTargets:
        """The targets; weights have mean one."""
        weights, tensor = self.seen.weights, self.representation.tensor
        shares = None if weights is None else tensor(weights / weights.mean())
        return KnownTargets(self._values(), shares, self.seen.groups)

    def _values(self) -> Tensor:
        """What the samples are mapped to, (n, p)."""
        return self.seen.block.Y

    @cached_property
    def splits(self) -> Splits:
        """Which samples a search looks at, and what folds hold out."""
        return self.model.splits(self.seen)

    @property
    def _max_rank(self) -> int | None:
        return self.scope.max_rank(len(self.seen))

    @cached_property
    def _prepared(self) -> tuple[Composition, Data, Restore]:
        return self._prepare()

    def _prepare(self) -> tuple[Composition, Data, Restore]:
        """The composition and the data that the fit works with, and the way back."""
        if self.scope.spans_all and self.model.composition.layers:
            n, advice = len(self.seen), "Use approximation=Nystroem(m), or fewer samples."
            needed = 2 * n**2 * self.representation.dtype.itemsize  # a Gram matrix, and its factor
            require(needed, what=f"An exact fit of inner layers to {n} samples", advice=advice)
        like = self.representation.tensor(np.zeros(1))
        return precompute(self.model.composition, self.data, like, once=self.scope.spans_all)

    @property
    def composition(self) -> Composition:
        """The composition that the fit works with, as it was given."""
        return self._prepared[0]

    @property
    def kernel_data(self) -> Data:
        """What the first kernel of that composition is evaluated on: the data, or their Gram matrix."""
        return self._prepared[1]

    # -- where it begins ----------------------------------------------------------------------------------------------
    @cached_property
    def free(self) -> list[str]:
        """The names of the hyperparameters that are left to the search."""
        return self.composition.free()

    @cached_property
    def _begun(self) -> tuple[Beginning, Tensor]:
        """Kernel PCA in every inner layer, and the state of the generator behind it."""
        generator = torch.Generator().manual_seed(self.seed)
        metric = None if self.model.metric is None else self.representation.tensor(self.model.metric)
        begun = beginning(self.composition, self.kernel_data, self._max_rank, generator, self.targets.weights, metric)
        kernel, p = begun.composition.kernel, self.targets.Y.shape[1]
        expected = kernel.n_outputs(self.kernel_data if begun.image is None else begun.image)
        if expected is not None and expected != p:
            raise ValueError(
                f"{kernel!r} has {expected} outputs on these inputs, but the targets have {p}. Make them equal."
            )
        if begun.image is None and "alpha" in self.free and isinstance(kernel, Decomposable):
            check_size(kernel.kernel, self.kernel_data)
        return begun, generator.get_state()

    @property
    def beginning(self) -> Beginning:
        """Where the fit begins: numbers for words but for alphas, and kernel PCA."""
        return self._begun[0]

    def _generator(self, state: Tensor | None = None) -> torch.Generator:
        """A generator of random starts in some state; by default that behind the beginning."""
        return torch.Generator().set_state(self._begun[1] if state is None else state)

    @cached_property
    def inner_is_small(self) -> bool:
        """Have the inner layers few unknowns?

        Leave-one-out is a closed form that holds the inner layers fixed, which have seen the sample that is left out:
        an optimism of about their number of unknowns over the number of samples.
        """
        chain = self.beginning.chain
        return (0 if chain is None else chain.size) <= OPTIMISM * len(self.seen)

    @cached_property
    def criterion(self) -> str:
        """What chooses hyperparameters, unless the data turn out to be noisy."""
        criterion, loss = self.model.criterion, self.model.loss
        if criterion == "auto":
            criterion = "loo" if loss.squared and self.inner_is_small else "validation"
        if self.free:
            loss.scored(criterion)  # a closed form for another loss is refused before any search
        return criterion

    @cached_property
    def start(self) -> Composition:
        """The composition with the numbers at which a search begins.

        The outer alpha has nearly the least leave-one-out error of a ridge fit at the start; an inner penalty is as
        large as the loss is there.
        """
        given, composition, image = self.composition, self.beginning.composition, self.beginning.image
        rows, whole = self.splits.rows, self.targets.rows(self.splits.rows)
        size = _variance(_known(whole)) or 1.0
        alphas: dict[str, float | Tensor] = {
            f"layers__{i}__alpha": size / layer.size
            for i, layer in enumerate(given.layers)
            if isinstance(layer.alpha, str)
        }
        if isinstance(given.alpha, str):
            if len(rows) < 2:
                raise ValueError("Found 1 sample (n_samples = 1), which is too few to choose alpha; give a number.")
            X = take(self.kernel_data if image is None else image, rows)
            X = X[:, rows] if image is None and given.input_kernel.domain == "gram" else X
            alphas = {"alpha": self._ridge_alpha(composition, X, whole)[0], **alphas}
        if self.model.last is not None:
            before = self.model.last.composition.hyperparameter_values()
            alphas |= {name: before[name] for name in self.free if name in before}
        return composition.replace(alphas).numbers()

    @cached_property
    def last_images(self) -> list[Tensor] | None:
        """Those of the samples under the inner layers of the last fit, if the search goes on from there."""
        last = self.model.last
        if last is None or not self.composition.layers:
            return None
        last.check(self.composition, self.seen.inputs)
        return last.images(self.seen.inputs, self.targets.Y)

    def _ridge_alpha(self, composition: Composition, X: Data, targets: KnownTargets) -> tuple[float, float]:
        """The largest alpha of nearly the least leave-one-out error of a ridge fit at these points, but a gentle one;
        and this error as a share of the variance.

        Where the data say little, the best alpha holds f at zero, and with it every inner layer: a stationary point
        that no search leaves.
        """
        targets = _known(targets)
        grid, errors = leave_one_out_path(composition, X, targets)
        alpha = grid[errors <= (1.0 + NEARLY_BEST) * errors.min()].max().item()
        least = self._least_alpha(composition, self.model.loss, len(targets))
        alpha = max(min(alpha, LARGEST_FIRST * self._kernel_size(composition)), least)
        variance = _variance(targets)
        return alpha, errors.min().item() / variance if variance > 0 else 0.0

    def _least_alpha(self, composition: Composition, loss: Loss, n: int) -> float:
        """Where the outer problem is still well enough conditioned to be differentiated, or solved by its solver."""
        return (LEAST_RIDGE if loss.squared else LEAST_CONVEX) * self._kernel_size(composition) / n

    def _kernel_size(self, composition: Composition) -> float:
        """The mean of k(x, x) of the outer kernel where the search starts."""
        Z = self.kernel_data if self.beginning.image is None else self.beginning.image
        return composition.kernel.diag(Z, self.targets.Y.shape[1]).mean().item()

    # -- hyperparameters ----------------------------------------------------------------------------------------------
    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The error on new data (b,) and its gradient at raw hyperparameters (b, m); that of squared loss, by which
        every search begins."""
        if rows is not None:
            return self.on_rows(plain(rows)).value_and_gradient(points)
        values, gradients, _ = zip(*(self._criterion.evaluate(point) for point in points), strict=True)
        return torch.stack(values), torch.stack(gradients)

    @cached_property
    def _criterion(self) -> HyperparameterSearch:
        """The error as a function of hyperparameters, with folds that start at gentle penalties."""
        settings = SearchSettings(seed=self.seed)
        images, _ = self._explore(settings, self._generator())
        composition, criterion = self._look_again(images)
        proxy = self.model.loss.proxy()
        folds = self._folds(proxy, composition, criterion, images)
        return self._search(composition, proxy, self.free, folds, settings)

    def choose(self, settings: SearchSettings) -> DeepChoice:
        """What is free, chosen by the error on new data; images from which the last fit may start."""
        generator = self._generator()
        if not self.free:
            return self._chosen(Choice(self.start, self.start.alpha), self.last_images, settings, generator)
        assert self.criterion
        if (linear := self._linear) is not None:
            alpha, value = system_alpha(linear, criterion=self.criterion)
            model = self.beginning.composition.replace({"alpha": alpha}).numbers()
            return self._chosen(Choice(model, alpha, value), None, settings, generator)
        try:
            convex = self._convex_choice(settings)
        except KeyboardInterrupt:
            convex = _stopped(self.start)
        if convex is not None:
            return self._chosen(convex, None, settings, generator)
        with self._prepared[2].advice():
            images, interrupted = self._explore(settings, generator)
            if interrupted:
                return self._chosen(_stopped(self.start), images or None, settings, generator)
            composition = self.start
            try:
                composition, criterion = self._look_again(images)
                choice, last = self._descend(composition, criterion, images, settings)
            except KeyboardInterrupt:  # before the search had a first value: where it stood is kept
                choice, last = _stopped(composition), []
        # Landmarks were chosen where all began: they may depend on each other where this search has ended.
        return self._chosen(choice, (last if self.scope.spans_all else []) or images or None, settings, generator)

    @cached_property
    def _linear(self) -> RidgeData | None:
        """Ridge regression on few features, which chooses alpha from these; None of any other fit."""
        kernel, X, loss = self.composition.kernel, self.kernel_data, self.model.loss
        if self.free != ["alpha"] or self.composition.layers or not loss.squared or self.criterion == "validation":
            return None
        if not (isinstance(kernel, Decomposable) and isinstance(X, Tensor) and has_few_features(kernel.kernel, X)):
            return None
        targets, n = self.targets, len(self.seen)
        weights = targets.Y.new_ones(n) if targets.weights is None else targets.weights
        groups = None if targets.groups is None else torch.from_numpy(np.unique(targets.groups, return_inverse=True)[1])
        return RidgeData(kernel, X, targets.Y, weights, groups=groups, intercept=loss.intercept)

    def _convex_choice(self, settings: SearchSettings) -> Choice | None:
        """The penalties of a problem that is convex in all but them; None of any other."""
        composition, proxy = self.start, self.model.loss.proxy()
        if not set(self.free) <= set(PENALTIES) or len(composition.layers) != 1 or not self.scope.spans_all:
            return None
        closed = proxy.squared and self.targets.Y.shape[1] == 1
        given = self.model.criterion if self.model.loss.squared else "auto"
        criterion = ("loo" if closed else "validation") if given == "auto" else self.criterion
        start = repeat(self.targets.Y.new_zeros(0))
        convex = [convex_problem(fold.problem) for fold in self._folds(proxy, composition, criterion, [], start)]
        known = [problem for problem in convex if problem is not None]
        if len(known) < len(convex):
            return None
        least = LEAST_WEIGHT if self.model.loss.squared else LEAST_CONVEX_WEIGHT
        choice = chosen_penalties(known, composition, self.free, settings, least=least)
        if self.model.loss.squared or "alpha" not in self.free:
            return choice
        folds = self._folds(proxy, choice.model, "validation", [], start)
        points = [problem.point(problem.solve()) for f in folds if (problem := convex_problem(f.problem)) is not None]
        return self._own_alpha(choice, points, "validation", settings)

    def _chosen(
        self, choice: Choice, images: list[Tensor] | None, settings: SearchSettings, generator: torch.Generator
    ) -> DeepChoice:
        """The choice, with images of all samples; those of the samples that a search looks at are no start for all."""
        images = images if len(self.splits.rows) == len(self.seen) else None
        return DeepChoice(**vars(choice), settings=settings, images=images, random_state=generator.get_state())

    @cached_property
    def _searched(self) -> tuple[Data, KnownTargets]:
        """The samples that a search looks at."""
        rows = self.splits.rows
        X = take(self.kernel_data, rows)
        return X[:, rows] if self.composition.input_kernel.domain == "gram" else X, self.targets.rows(rows)

    def _splits_of(self, criterion: str) -> Sequence[tuple[Tensor | None, Tensor | None]]:
        """The rows that train and those that are held out, among the samples that a search looks at."""
        if criterion != "validation":
            return [(None, None)]
        rows = self.splits.rows
        return self.splits.folds(None if len(rows) == len(self.seen) else rows)

    def _explore(self, settings: SearchSettings, generator: torch.Generator) -> tuple[list[Tensor], bool]:
        """Images under inner layers that hardly cost anything: where folds start; and whether this was interrupted."""
        if self.last_images is not None:
            return [take(image, self.splits.rows) for image in self.last_images], False
        current = self.start.hyperparameter_values()
        gentle = {
            name: GENTLE * current[name]
            for name in self.free
            if name.startswith("layers__") and name.endswith("__alpha")
        }
        if "alpha" in self.free and self.beginning.image is not None:
            # Where the start is blind, as one direction of many may be, its best outer function is a constant.
            gentle["alpha"] = current["alpha"].clamp(max=GENTLE * self._kernel_size(self.start))
        composition = self.start.replace(gentle).numbers()
        problem = DeepProblem(composition, *self._searched, self.model.loss.proxy().fit())
        if problem.chain is None:
            return [], False
        # A search over fewer landmarks than samples starts from here, and is ill conditioned where that is not near.
        tol = max(settings.tol, EXPLORE_TOL) if self.scope.spans_all else settings.tol
        starts = self.starts(problem, settings.n_restarts, generator)
        result = self.minimise(problem, starts, replace(settings, tol=tol, callback=keep_going), description="restarts")
        return problem.chain.images(problem.chain.split(result.point)), result.interrupted

    def _look_again(self, images: list[Tensor]) -> tuple[Composition, str]:
        """What the explored images say: where alpha should begin, and whether leave-one-out can be trusted."""
        composition, criterion, targets = self.start, self.criterion, self._searched[1]
        if not images or not ("alpha" in self.free or criterion == "loo"):
            return composition, criterion
        alpha, unexplained = self._ridge_alpha(composition, images[-1], targets)
        if "alpha" in self.free and self.last_images is None:
            composition = composition.replace({"alpha": alpha})
        if self.model.criterion == "auto" and unexplained > NOISY and len(targets) >= FEWEST_SAMPLES:
            criterion = "validation"
        return composition, criterion

    def _descend(
        self, composition: Composition, criterion: str, images: list[Tensor], settings: SearchSettings
    ) -> tuple[Choice, list[Tensor]]:
        """The search itself: by squared loss, then alpha by the loss that is meant; and the last images."""
        loss = self.model.loss
        folds = self._folds(loss.proxy(), composition, criterion, images)
        search = self._search(composition, loss.proxy(), self.free, folds, settings)
        if self.last_images is None:
            search.scan()
        choice = self._refined(search, settings)
        last: list[Tensor] = []
        if (chain := folds[0].problem.chain) is not None:
            last = chain.with_layers(choice.model.layers).images(chain.split(folds[0].point))
        if not loss.squared and "alpha" in self.free and not choice.interrupted:
            choice = self._own_alpha(choice, [fold.point for fold in folds], criterion, settings)
        return choice, last

    def _refined(self, search: HyperparameterSearch, settings: SearchSettings) -> Choice:
        """The hyperparameters where the search ends that begins at the best ones that were tried."""
        return search.run(settings)

    def _own_alpha(self, choice: Choice, points: list[Tensor], criterion: str, settings: SearchSettings) -> Choice:
        """The loss itself decides on its alpha, with the inner layers that squared loss has found for the folds."""
        loss = self.model.loss
        own = self._folds(loss, choice.model, criterion, [], points)
        try:
            return self._search(choice.model, loss, ["alpha"], own, settings, frozen=True).run(settings)
        except KeyboardInterrupt:  # before it had a first value: what squared loss has chosen is kept
            return replace(choice, interrupted=True)

    def _search(
        self,
        composition: Composition,
        loss: Loss,
        free: list[str],
        folds: list[Fold],
        settings: SearchSettings,
        *,
        frozen: bool = False,
    ) -> HyperparameterSearch:
        max_iter, tol = min(settings.max_iter, FOLD_ITERATIONS), max(settings.tol, FOLD_TOL)
        of_folds = replace(settings, max_iter=max_iter, tol=tol, callback=keep_going, verbose=0)
        least_alpha = self._least_alpha(composition, loss, len(folds[0].problem.Y))
        return HyperparameterSearch(composition, free, folds, of_folds, least_alpha=least_alpha, frozen=frozen)

    def _folds(
        self,
        loss: Loss,
        composition: Composition,
        criterion: str,
        images: Sequence[Tensor],
        points: Iterable[Tensor | None] | None = None,
    ) -> list[Fold]:
        """The folds of a criterion, which start at points of their own, or at some images."""
        folds = []
        for (training, validation), point in zip(self._splits_of(criterion), points or repeat(None), strict=False):
            objectives = loss.scored(criterion, validation)
            problem = DeepProblem(composition, *self._searched, objectives, rows=training, free=self.free)
            if point is None:
                point = problem.Y.new_zeros(0) if problem.chain is None else flat(problem.chain.project(images))
            folds.append(Fold(problem, point))
        return folds

    # -- inner layers -------------------------------------------------------------------------------------------------
    def problem(self, composition: Composition, objectives: Objectives, rows: Tensor | None = None) -> DeepProblem:
        """The problem of all samples or of some, through landmarks if the fit has them."""
        landmarks = self._landmarks(composition, rows)
        return DeepProblem(
            composition,
            self.kernel_data,
            self.targets,
            objectives if landmarks is None else on_factor(objectives),
            rows=rows,
            max_rank=self._max_rank,
            landmarks=landmarks,
            free=self.free,
            chain=self.beginning.chain_of(composition.layers) if rows is None else None,
        )

    def _landmarks(self, composition: Composition, rows: Tensor | None) -> Tensor | None:
        """Samples whose images span the outer function, chosen where the search starts."""
        kernel, image, scope = composition.kernel, self.beginning.image, self.scope
        scalar = isinstance(kernel, Decomposable) and kernel.operator is None
        scope.require(
            image is not None and scalar,
            "approximation= needs a scalar outer kernel and at least one inner layer; without inner layers use "
            "OperatorRidge(approximation=…).",
        )
        scope.require(
            self.model.loss.squared,
            "approximation= is for squared loss. Use loss='squared', or fewer samples with approximation=None.",
        )
        rows = torch.arange(len(self.seen)) if rows is None else rows
        landmarks = scope.landmarks(kernel, rows if image is None else image[rows], self.seed)
        return None if landmarks is None else rows[landmarks]

    def starts(self, problem: DeepProblem, n_restarts: int, generator: torch.Generator) -> Tensor:
        """Kernel PCA, and random coordinates around it."""
        assert problem.chain is not None
        principal = self.beginning.point
        if principal is None or problem.chain is not self.beginning.chain:
            principal = flat(principal_start(problem.chain, generator, problem.targets.weights))
        return random_starts(problem.chain, principal, n_restarts, generator)

    def minimise(
        self, problem: DeepProblem, starts: Tensor, settings: SearchSettings, *, description: str
    ) -> OptimizeResult:
        """The inner layers: by their convex problem, or by a search from some starts."""
        convex = global_minimum(problem, settings)
        if convex is not None:
            return convex
        return minimise(problem, starts, settings, description=description)

    def _inner(self, choice: DeepChoice, generator: torch.Generator) -> InnerSolution:
        """The inner layers at the chosen hyperparameters."""
        composition, loss, settings = choice.model, self.model.loss, choice.settings
        problem = self.problem(composition, loss.fit())
        if problem.chain is None:
            return InnerSolution(problem, problem.Y.new_zeros(0), None)
        images, race = self.last_images if choice.images is None else choice.images, None
        if images is None and self._races_on_some and settings.n_restarts > 1 and not choice.interrupted:
            images, race = self._raced(composition, settings, generator)
            settings = replace(settings, n_restarts=1)
        starts = self.starts(problem, settings.n_restarts, generator)
        if images is not None:
            warm = flat(problem.chain.project(images))[None]
            starts = warm if self.last_images is not None else torch.cat([warm, starts])[: settings.n_restarts]
        if choice.interrupted or (race is not None and race.interrupted):
            return InnerSolution(problem, starts[0], None, race)
        if not loss.squared and loss.learnable and len(starts) > 1:
            proxy = self.problem(composition, loss.proxy().fit())
            quiet = replace(settings, callback=keep_going)
            result = self.minimise(proxy, starts, quiet, description="restarts")
            starts = result.point[None]
            if result.interrupted:
                return InnerSolution(problem, result.point, None, result)
        result = self.minimise(problem, starts, settings, description="objective")
        return InnerSolution(problem, result.point, result.value, result)

    @property
    def _races_on_some(self) -> bool:
        """Do restarts race on some of the samples? Each evaluation of an exact fit to all factors a matrix (n, n)."""
        return self.scope.spans_all and len(self.splits.rows) < len(self.seen)

    def _raced(
        self, composition: Composition, settings: SearchSettings, generator: torch.Generator
    ) -> tuple[list[Tensor], OptimizeResult]:
        """Images of all samples under the inner layers that are best for those that a search looks at."""
        problem = DeepProblem(composition, *self._searched, self.model.loss.proxy().fit())
        assert problem.chain is not None
        starts = self.starts(problem, settings.n_restarts, generator)
        quiet = replace(settings, tol=max(settings.tol, EXPLORE_TOL), callback=keep_going)
        result = self.minimise(problem, starts, quiet, description="restarts")
        pairwise = self.composition.input_kernel.domain == "gram"
        everyone = self.kernel_data[:, self.splits.rows] if pairwise else self.kernel_data
        return problem.chain.evaluate(problem.chain.split(result.point), everyone), result

    def refits(
        self, composition: Composition, images: Sequence[Tensor], settings: SearchSettings, *, searched: bool = True
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """For each fold f + b at its samples by a fit without them, and the samples; fits start from some images.

        The hyperparameters stay. Ctrl-C ends this, not only the fold it happens in; at the deadline, or unless
        ``searched``, a fold keeps the inner layers that it has. In the latter case its outer function has few digits.
        """
        for training, validation in self.splits.folds(None):
            loss = self.model.loss
            problem = self.problem(composition, loss.fit() if searched else loss.rough_fit(), rows=training)
            point = problem.Y.new_zeros(0)
            if problem.chain is not None:
                point = flat(problem.chain.project(images))
            if problem.chain is not None and searched:
                deadline = settings.deadline
                quiet = replace(settings, tol=max(settings.tol, FOLD_TOL), callback=keep_going)
                result = DeepRegression.minimise(self, problem, point[None], quiet, description="held-out fits")
                if result.interrupted and not deadline.was_missed:
                    raise KeyboardInterrupt
                point = result.point
            outer, intercept, solved, _ = problem.solve(point)
            Z = take(solved[-1], validation)
            yield outer(Z[:, training] if outer.kernel.domain == "gram" else Z) + intercept, validation

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, choice: DeepChoice) -> DeepSolution:
        """The inner layers and the outer function at the chosen hyperparameters."""
        restore = self._prepared[2]
        if restore.needs_repair(choice.model):
            model = replace(self.model, composition=restore.composition(choice.model))
            repaired = type(self)(self.samples, model, self.representation, seed=self.seed, inputs=self.inputs)
            solution = repaired.solve(repaired.choose(choice.settings))
            criterion = solution.criterion if solution.criterion is not None else choice.value
            return replace(solution, choice=choice, criterion=criterion)
        with restore.advice():
            inner = self._inner(choice, self._generator(choice.random_state))
        return self._finished(choice, inner)

    @property
    def _is_fitted_to_all(self) -> bool:
        """Is the outer function fitted once more, to samples that the inner layers have not seen?"""
        return self.seen.source is not None

    def _finished(self, choice: DeepChoice, inner: InnerSolution) -> DeepSolution:
        """The functions of the samples as they were given, the outer one of all samples."""
        restore, seen, solved = self._prepared[2], self.seen, inner.functions()
        norms = [f.norm() for f in solved]
        functions = restore.functions(solved)
        functions[-1] = replace(functions[-1], intercept=solved[-1].intercept)
        if functions[0].kernel.domain == "gram" and len(seen) < seen.n:  # new rows have a column for every sample
            functions[0] = _spread_out(functions[0], seen.numbers, seen.n)
        function = Composed.of(functions, self.representation)
        composition = restore.composition(inner.problem.composition)
        if not self._is_fitted_to_all:
            return DeepSolution(function, composition, norms, inner.value, choice.value, choice, inner, self)
        assert seen.source is not None
        outer = fit_outer(
            function,
            seen.source,
            seen.rows,
            None if isinstance(self.model.composition.alpha, str) else float(composition.alpha),
            intercept=self.model.loss.intercept,
            memory_limit=self.model.memory_limit,
            seed=self.seed,
        )
        norms[-1] = outer.function.norm()
        criterion = choice.value if outer.criterion is None else outer.criterion
        value = outer.value + inner.penalty
        return DeepSolution(outer.function, composition, norms, value, criterion, choice, inner, self, outer)


def _stopped(composition: Composition) -> Choice:
    return Choice(composition, composition.alpha, interrupted=True)


def _spread_out(f: Expansion, rows: np.ndarray, n: int) -> Expansion:
    """A function of Gram rows with a column for every one of n samples, of which it has some."""
    index = torch.from_numpy(rows)
    coefficients, anchors = f.coefficients.new_zeros(n, f.coefficients.shape[1]), f.coefficients.new_zeros(n, n)
    coefficients[index] = f.coefficients
    anchors[index[:, None], index] = f.anchors
    return replace(f, anchors=anchors, coefficients=coefficients)


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
    """Values of alpha, and the leave-one-out error of ridge fits by the outer kernel at these points for each."""
    Y = _centred(targets)
    n, p = Y.shape
    root = None if targets.weights is None else (targets.weights / targets.weights.mean()).sqrt()
    grams, rotation, coupled = outer_grams(composition.kernel, p, Y)
    Y = Y if rotation is None else Y @ rotation
    with torch.no_grad():
        matrices = [(gram(X, None), outputs) for gram, outputs in grams]
        info = torch.finfo(Y.dtype)
        trace = max(float(gram.diagonal().sum()) for gram, _ in matrices) / (p if coupled else 1)
        smallest = Y.new_tensor(max(trace * info.eps ** (2 / 3) / n, least_shift(Y.new_tensor(trace))))
        alphas = log_spaced(smallest, smallest * info.eps ** (-2 / 3) * 10.0)
        total = torch.zeros_like(alphas)
        for gram, outputs in matrices:
            columns = Y.reshape(-1, 1) if coupled else Y[:, outputs]
            if root is not None:
                d = root.repeat_interleave(p) if coupled else root
                gram = gram * d[:, None] * d
            total += spectral_path(eigh(gram, name="The Gram matrix"), columns, n * alphas, "loo") / n
    return alphas, torch.where(torch.isfinite(total), total, torch.inf)


@dataclass(frozen=True)
class LeftOutDecisions:
    """Values of f + b for samples that their fit has not seen, of which probabilities of classes are made.

    Parameters
    ----------
    values : tensor (n, k), or (n, 1) for two classes
    classes : integer tensor (n,)
    weights : tensor (n,) or None
        Those of the user: how many samples a class has decides how sure its targets are.
    rows : integer tensor (n,) or None
        The numbers of the samples among those that were seen; None: all of them.
    constant : bool
        Does the decision not depend on the sample?
    missing : int
        How many folds were not refitted, because the fit was interrupted.
    """

    values: Tensor
    classes: Tensor
    weights: Tensor | None
    rows: Tensor | None = None
    constant: bool = False
    missing: int = 0

    @classmethod
    def of(cls, solution: DeepSolution, classes_of: Callable[[np.ndarray], np.ndarray]) -> LeftOutDecisions:
        """Those of the outer function's own leave-one-out where it is fitted by sums, else of refits without folds."""
        if solution.outer is not None:
            held = solution.outer.system.held
            weights = None if held.weights is None else torch.from_numpy(held.weights)
            return cls(solution.outer.left_out().cpu(), torch.from_numpy(classes_of(held.Y)), weights)
        problem, parts, folds = solution.regression, [], list[Tensor]()
        patience = Deadline(PATIENCE) if solution.stopped_by_user else None
        try:
            for values, rows in solution.refits():
                parts.append(values.double().cpu())
                folds.append(rows)
                if patience is not None:
                    patience.check()
        except KeyboardInterrupt:
            pass
        missing = len(problem.splits.folds(None)) - len(parts)
        if not parts:
            return cls(torch.empty(0, 1), torch.empty(0, dtype=torch.int64), None, missing=missing)
        rows, seen = torch.cat(folds), problem.seen
        weights = None if seen.weights is None else torch.from_numpy(seen.weights)[rows]
        constant = all(map(is_constant, parts)) and is_constant(solution.inner.decisions())
        classes = torch.from_numpy(classes_of(plain(seen.block.Y)))[rows]
        return cls(torch.cat(parts), classes, weights, rows, constant, missing)

    def calibration(self, n_classes: int) -> Calibration:
        """The calibration of least cross entropy; of decisions that say nothing, the shares of the classes."""
        if self.constant:
            return base_rates(self.classes, n_classes, self.weights)
        return calibrate(self.values, self.classes, self.weights)

    def far_field(
        self, calibration: Calibration | CodesCalibration, function: Composed | Stacked, alpha: Any, seen: Data
    ) -> FarField | None:
        """What probabilities are far from the samples that were seen; None for Gram matrices."""
        if function.kernel.domain == "gram":
            return None
        support = Support.of(function, alpha, held=HeldSamples(np.empty(0), plain(seen), None, None))
        probabilities = calibration(plain(self.values))
        indicators = torch.nn.functional.one_hot(self.classes, probabilities.shape[1])
        return far_field(support, probabilities, indicators, self.weights, self.rows)
