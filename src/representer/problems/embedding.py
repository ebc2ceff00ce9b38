"""What problems of embeddings share: the search over their hyperparameters, what is free in the kernel, and alpha."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Kernel, differs_in_training, has_statistics, in_training, with_statistics
from representer.linalg import NotPositiveDefiniteError, recycling
from representer.notices import warn
from representer.objectives.squared import OnFactor, SquaredLoss
from representer.operators import Adapted, repaired_gram, silent_repairs
from representer.optimize import (
    Choice,
    HistoryEntry,
    OptimizeResult,
    Problem,
    SearchSettings,
    adam,
    lbfgs,
    random_starts,
)
from representer.samples import Block, Data, count, digest, plain, remembered, take
from representer.systems import linear_origin, refuse_lost_size
from representer.values import Constraint, Positive, argument_repr

# Beyond it, hyperparameters are learned on a subset: they are few, and a search costs many factorisations.
LARGEST_BATCH = 1500
# A positive hyperparameter stays within this factor of where the data put it: beyond it a feature is irrelevant, or
# every sample is an island, to six digits.
LARGEST_FACTOR = 1e4
# alpha stays below this multiple of the mean k(x, x), and above eps^(2/3) of it, where a third of the digits survive.
LARGEST_ALPHA = 1e4
# Where a search begins is the best of these: alpha over the mean k(x, x), and logarithms of a common factor of all
# lengthscales.
FIRST_ALPHAS = (math.exp(-4.0), math.exp(-7.0), math.exp(-10.0))
FIRST_FACTORS = (0.0, -1.0)
# Most that L-BFGS changes the logarithm of a hyperparameter in one iteration. Without a limit one step can end where
# every sample is an island, from where no gradient leads back: the Rademacher bound on a fold of yeast then ends at
# 0.2944 instead of 0.2827. Limits from 0.25 to 2 end alike.
LONGEST_STEP = 0.5
# The bounds of the logarithms bend over this width, so that a step across one still has a gradient that leads back. At
# a distance of 9, where the data put a hyperparameter, it makes no difference in double precision.
BEND = 0.25

Features = Callable[[Kernel, Any], Tensor]


# -- the samples ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class InputGram:
    """The Gram matrix of n samples as a function of the kernel: whole, or by a factor of explicit features.

    Parameters
    ----------
    X : prepared inputs
    pairwise : bool
        Are the inputs a Gram matrix?
    features : callable or None
        The factor, of a kernel and inputs; None: the Gram matrix itself.
    gram, kept : tensors or None
        The Gram matrix where it is computed once and for all; if it was repaired, the eigenvectors that have stayed.
    """

    X: Data
    pairwise: bool = False
    features: Features | None = None
    gram: Tensor | None = None
    kept: Tensor | None = None

    @property
    def n(self) -> int:
        """The number of samples."""
        return count(self.X)

    def rows(self, index: Tensor) -> InputGram:
        """Those of some of the samples."""
        X = take(self.X, index)
        return InputGram(X[:, index] if self.pairwise else X, self.pairwise)

    def scale(self, kernel: Kernel) -> float:
        """The mean k(x, x), by which alpha is measured: of 1,000 samples, or of all if those are zero."""
        with torch.no_grad():
            for n in dict.fromkeys((min(self.n, 1000), self.n)):
                some = self.X[:n, :n] if self.pairwise else take(self.X, torch.arange(n))
                sizes = kernel._diag(some)
                mean = float(sizes.mean())
                if mean != 0.0:
                    break
        if not (math.isfinite(mean) and mean > torch.finfo(sizes.dtype).tiny):
            refuse_lost_size(kernel, mean)
        return mean

    def by_features(self, kernel: Kernel, *, limit: int) -> InputGram:
        """By explicit features where the kernel has fewer of them than ``limit``."""
        if self.features is not None or self.pairwise:
            return self
        size = kernel.n_features(self.X)
        return self if size is None or size >= limit else replace(self, features=_explicit)

    def fixed(self, kernel: Kernel) -> InputGram:
        """The Gram matrix of a kernel of which nothing is learned."""
        if self.features is not None:
            return self
        gram, kept = repaired_gram(kernel, self.X)
        return replace(self, gram=gram, kept=kept)

    def matrix(self, kernel: Kernel, rows: Tensor | None = None) -> Tensor:
        """K or its factor, of all samples or of some."""
        if self.gram is not None:
            return self.gram if rows is None else self.gram[rows[:, None], rows]
        X = self.X if rows is None else take(self.X, rows)
        if self.features is not None:
            return self.features(kernel, X)
        return kernel._gram(X[:, rows] if self.pairwise and rows is not None else X, None)


def require_groups(groups: np.ndarray | None) -> None:
    """Refuse groups that leave nothing to fit when one of them is left out."""
    if groups is not None and len(np.unique(groups)) < 2:
        raise ValueError(
            "groups must have at least two different labels: a group is judged by a fit to the others, and all "
            f"{len(groups)} samples are of one group."
        )


def _explicit(kernel: Kernel, X: Data) -> Tensor:
    features = kernel.features(X)
    assert features is not None  # asked before
    return features


def held_out_rows(labels: Tensor, fraction: float, seed: int, groups: Tensor | None = None) -> Tensor:
    """Random rows of each class for validation, about this share; a class with one sample stays in training.

    Where samples belong to groups, whole random groups are held out instead, whatever their classes.
    """
    generator = torch.Generator().manual_seed(seed)
    if groups is not None:
        _, members, sizes = groups.unique(return_inverse=True, return_counts=True)
        order = torch.randperm(len(sizes), generator=generator)
        enough = int((sizes[order].cumsum(0) <= fraction * len(groups)).sum())
        return torch.nonzero(torch.isin(members, order[: min(max(enough, 1), len(order) - 1)]))[:, 0]
    chosen = []
    for label in labels.unique():
        rows = torch.nonzero(labels == label)[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        share = fraction * len(rows)
        n = int(share) + int(torch.rand((), generator=generator).item() < share % 1.0)
        chosen.append(rows[: min(n, len(rows) - 1)])
    rows = torch.cat(chosen).sort().values
    return rows if len(rows) else torch.nonzero(labels == labels.mode().values)[:1, 0]


# -- what a search has seen -------------------------------------------------------------------------------------------
class EmbeddingEntry(NamedTuple):
    """One iteration of L-BFGS, or one epoch of Adam, as ``history_`` keeps it."""

    iteration: int
    seconds: float  # since the search began
    value: float  # of the criterion
    loss: float  # its cross entropy
    complexity: float  # r
    accuracy: float  # of the predictions that the cross entropy judges
    gradient_norm: float


@dataclass
class Trace:
    """What a risk consists of at each evaluation: gathered here, as the optimisers only see its value."""

    seen: list[tuple[float, ...]] = field(default_factory=list)  # value, loss, complexity, accuracy
    entries: list[EmbeddingEntry] = field(default_factory=list)
    latest: tuple[float, ...] = (math.nan, math.nan, math.nan)

    def observe(self, loss: Tensor, complexity: Tensor, accuracy: Tensor) -> None:
        """Note the parts of the evaluation under way."""
        self.latest = (float(loss), float(complexity), float(accuracy))

    def close(self, value: float) -> None:
        """Note the value of the evaluation, which is complete."""
        self.seen.append((value, *self.latest))

    def __call__(self, entry: HistoryEntry) -> None:
        """At the end of an iteration: the evaluation of its value, or the mean over an epoch of batches."""
        same = [parts for value, *parts in self.seen if value == entry.value]
        if not same and self.entries and entry.value == self.entries[-1].value:  # no better point than before
            same = [list(self.entries[-1][3:6])]
        if not same:
            same = [parts for _, *parts in self.seen] or [[math.nan] * 3]
        loss, complexity, accuracy = (sum(column) / len(same) for column in zip(*same, strict=True))
        self.seen.clear()
        self.entries.append(
            EmbeddingEntry(entry.iteration, entry.seconds, entry.value, loss, complexity, accuracy, entry.gradient_norm)
        )


# -- the search -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class EmbeddingSettings(SearchSettings):
    """How to search; ``start`` gives values by name, ``shrinkage`` is s in the penalty s/(2n) Σ_j (u_j − ū)²."""

    shrinkage: float = 0.0
    start: Mapping[str, Any] = field(default_factory=dict)
    solver: str = "lbfgs"
    batch_size: int | None = None  # of Adam, and of the scan before it; None: all samples
    learning_rate: float = 0.1


def bent(point: Tensor, bound: Tensor, sign: float = 1.0) -> Tensor:
    """A smooth min(sign·point, bound)·sign: the point itself far below the bound, and nearly the bound beyond it."""
    gap = (bound - sign * point) / BEND
    return torch.where(gap > 36.0, point, sign * (bound - BEND * torch.nn.functional.softplus(gap.clamp(max=36.0))))


def start_value(name: str, value: object, shape: torch.Size, constraint: Constraint) -> Tensor:
    """A value of ``start``: one number, or one for each entry."""
    wanted = "a number" if not len(shape) else f"a number or an array of shape {tuple(shape)}"
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        if array.dtype.kind not in "iuf" or array.shape not in ((), tuple(shape)):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise ValueError(f"start[{name!r}] must be {wanted}; got {argument_repr(value)}.") from error
    start = torch.as_tensor(array.astype(np.float64)).expand(shape)
    problem = constraint.problem(start)
    if problem is not None:
        raise ValueError(f"start[{name!r}] {problem}; got {argument_repr(value)}.")
    return start


class EmbeddingSearch:
    """A criterion as a function of one vector: how far each free hyperparameter is from where the data put it, in its
    logarithm if it is positive, and log alpha.

    Parameters
    ----------
    inputs : InputGram
    kernel : Kernel
        With numbers for all hyperparameters: where the data put the free ones.
    free : list of str
        What is learned of it.
    alpha : float or None
        None: learned.
    objective : callable
        Row numbers, or None for all, and an observer -> an objective of these rows, which tells the observer its parts.
    settings : EmbeddingSettings
    like : tensor
        Of the precision and the device of the search.
    logarithm : bool
        Minimise the logarithm of the objective, so that its units do not matter.
    """

    def __init__(
        self,
        inputs: InputGram,
        kernel: Kernel,
        free: list[str],
        alpha: float | None,
        objective: Callable[[Tensor | None, Callable[..., None]], SquaredLoss],
        settings: EmbeddingSettings,
        like: Tensor,
        *,
        logarithm: bool = False,
    ):
        self.objective, self.settings, self.logarithm = objective, settings, logarithm
        self.inputs, self.free, self.alpha = inputs, free, alpha
        self.kernel = kernel = self._with_statistics(kernel)
        self.packing, raw = kernel.packing(free)
        self.origin = raw.to(like)
        sizes = [shape.numel() for shape in self.packing.shapes.values()]
        self.sizes = dict(zip(self.packing.shapes, sizes, strict=True))
        positive = {name: isinstance(self.packing.constraints[name], Positive) for name in self.sizes}
        entries = [positive[name] for name, size in self.sizes.items() for _ in range(size)]
        self.positive = torch.tensor(entries, dtype=torch.bool, device=like.device)
        self.vectors = [name for name, size in self.sizes.items() if size > 1 and positive[name]]
        self.unit = inputs.scale(kernel)
        # Criteria know K and alpha up to a common factor: beyond these sizes their squares would leave the range.
        self.gauge = 1.0 if 4.0**-40 < self.unit < 4.0**40 else 4.0 ** round(math.log(self.unit, 4.0))
        self.least = self.unit * torch.finfo(like.dtype).eps ** (2.0 / 3.0)
        limit = torch.where(self.positive, math.log(LARGEST_FACTOR), math.inf).to(like)
        alphas = (
            like.new_tensor([[self.least, LARGEST_ALPHA * self.unit]] if alpha is None else []).div(self.gauge).log()
        )
        self.low = torch.cat([-limit, alphas.reshape(-1, 2)[:, 0]])
        self.high = torch.cat([limit, alphas.reshape(-1, 2)[:, 1]])
        self.given = self._named_start()
        self.usual = torch.zeros_like(self.origin)
        if alpha is None:
            first = like.new_tensor([FIRST_ALPHAS[1] * self.unit / self.gauge])
            self.usual = torch.cat([self.usual, first.log()])
        self.start = self._inside(self._start_point())
        self.trace = Trace()
        self.best = math.inf, self.start  # the least value outside of the optimisers, and where it is

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return len(self.start)

    @property
    def _batch_size(self) -> int | None:
        """How many samples Adam sees at a time; None: all."""
        size = self.settings.batch_size
        return size if size is not None and size < self.inputs.n else None

    def _with_statistics(self, kernel: Kernel) -> Kernel:
        """The kernel with running statistics of the samples in the networks that Adam trains."""
        if self.settings.solver != "adam" or not has_statistics(kernel):
            return kernel
        size, n = self._batch_size, self.inputs.n
        batches: Sequence[Tensor | None] = [None]
        if size is not None:
            order = torch.randperm(n, generator=torch.Generator().manual_seed(self.settings.seed))
            batches = order.tensor_split(n // size)
        return with_statistics(kernel, lambda network: [self.inputs.matrix(network, rows) for rows in batches])

    # -- where it starts ----------------------------------------------------------------------------------------------
    def _named_start(self) -> dict[str, Any]:
        """The values of ``start`` under the names that the kernel has here."""
        learned = [*self.sizes, *(["alpha"] if self.alpha is None else [])]
        start = dict(self.settings.start)
        if isinstance(self.kernel, Adapted):  # which the user has not seen
            start = {f"kernel__{name}" if name != "alpha" else name: v for name, v in start.items()}
        unknown = [name for name in start if name not in learned]
        if unknown:
            raise ValueError(
                f"start has {unknown[0]!r}, which is not learned; learned are: {', '.join(learned) or 'none'}."
            )
        return start

    def _start_point(self) -> Tensor:
        values = self.kernel.hyperparameter_values()
        numbers = {
            name: start_value(name, self.given[name], shape, self.packing.constraints[name])
            if name in self.given
            else values[name].double().expand(shape)
            for name, shape in self.packing.shapes.items()
        }
        point = self.packing.pack(numbers).to(self.origin) - self.origin
        if self.alpha is not None:
            return point
        alpha = self.given.get("alpha", FIRST_ALPHAS[1] * self.unit)
        start = start_value("alpha", alpha, torch.Size(), Positive()) / self.gauge
        return torch.cat([point, start.log().to(point)[None]])

    def _inside(self, point: Tensor) -> Tensor:
        """A start with what lies outside the bounds, where the objective is flat, put where the data put it."""
        outside = (point <= self.low) | (point >= self.high)
        if bool(outside.any()):
            names = [name for name, size in self.sizes.items() for _ in range(size)] + ["alpha"]
            moved = dict.fromkeys(name for name, out in zip(names, outside.tolist(), strict=False) if out)
            warn(
                f"start is outside the range that is searched: {', '.join(moved)}. The search starts where the data "
                f"put it. The range is {1 / LARGEST_FACTOR:g} to {LARGEST_FACTOR:g} times that, for alpha "
                f"{self.least:.3g} to {LARGEST_ALPHA * self.unit:.3g}; other values can be fixed."
            )
        return torch.where(outside, self.usual, point)

    def _best_usual(self, rows: Tensor | None = None) -> tuple[float, Tensor]:
        """The best of a few points around where the data put the hyperparameters, and the objective there."""
        best, start = math.inf, self.usual
        factors = FIRST_FACTORS if bool(self.positive.any()) else (0.0,)
        for factor in factors:
            for alpha in FIRST_ALPHAS if self.alpha is None else (math.nan,):
                point = self.usual.clone()
                point[: len(self.origin)] += factor * self.positive
                if self.alpha is None:
                    point[-1] = math.log(alpha * self.unit / self.gauge)
                try:
                    with torch.no_grad():
                        value = float(self(point, rows))
                except NotPositiveDefiniteError:
                    continue
                if value < best:
                    best, start = value, point
                    self.best = min(self.best, (best, start), key=lambda pair: pair[0])
        return best, start

    # -- its value ----------------------------------------------------------------------------------------------------
    def unpack(self, point: Tensor) -> tuple[Kernel, Tensor]:
        """The kernel and alpha of a point, differentiable, inside their bounds."""
        point = bent(bent(point, self.high), -self.low, -1.0)
        raw = self.origin + point[: len(self.origin)]
        kernel = self.kernel.replace(self.packing.unpack(raw)) if self.sizes else self.kernel
        if self.alpha is not None:
            return kernel, point.new_tensor(self.alpha)
        return kernel, self.gauge * point[-1].exp()

    def __call__(self, point: Tensor, rows: Tensor | None = None, *, training: bool = False) -> Tensor:
        """The objective at a point, differentiable in it; with networks as they are while Adam trains them, or not."""
        kernel, alpha = self.unpack(point)
        objective = self.objective(rows, self.trace.observe)
        if training:  # noise is a function of the point, so that a search that is taken up again finds it again
            seed = self.settings.seed ^ int(digest(plain(point)), 16)
            held_out = None
            if objective.training is not None:
                held_out = torch.ones(objective.n, dtype=torch.bool, device=point.device)
                held_out[objective.training.to(point.device)] = False
            kernel = in_training(kernel, seed, held_out)
        matrix, is_factor = self.inputs.matrix(kernel, rows), self.inputs.features is not None
        if self.gauge != 1.0:
            matrix, alpha = matrix / (math.sqrt(self.gauge) if is_factor else self.gauge), alpha / self.gauge
        value = (OnFactor(objective) if is_factor else objective)(matrix, alpha)
        if self.logarithm:
            value = value.clamp(min=torch.finfo(value.dtype).tiny).log()
        return value if self.settings.shrinkage == 0 else value + self._penalty(point)

    def _penalty(self, point: Tensor) -> Tensor:
        """s/(2n) Σ_j (u_j − ū)² of the logarithms u of each vector of positive hyperparameters."""
        parts = [part for name, part in self._parts(point).items() if name in self.vectors]
        spreads = [(part - part.mean()).square().sum() for part in parts]
        return 0.5 * self.settings.shrinkage / self.inputs.n * sum(spreads, point.new_zeros(()))

    def _parts(self, point: Tensor) -> dict[str, Tensor]:
        parts = point[: len(self.origin)].split(list(self.sizes.values()))
        return dict(zip(self.sizes, parts, strict=True))

    def at(self, point: Tensor, rows: Tensor | None = None, *, training: bool = False) -> tuple[Tensor, Tensor]:
        """The value and the gradient at one point (m,); NaN where the matrix cannot be factored."""
        value, gradient, parts = remembered(
            lambda: f"criterion at {digest(plain(point))}", lambda: self._evaluated(point, rows, training)
        )
        if parts is not None:
            self.trace.latest = parts
            self.trace.close(float(value))
        return value, gradient

    def _evaluated(
        self, point: Tensor, rows: Tensor | None, training: bool
    ) -> tuple[Tensor, Tensor, tuple[float, ...] | None]:
        """The value and the gradient at one point, and the parts of the value; None where it has none."""
        variable = point.detach().clone().requires_grad_()
        try:
            with torch.enable_grad():
                value = self(variable, rows, training=training)
                (gradient,) = torch.autograd.grad(value, variable, allow_unused=True, materialize_grads=True)
        except NotPositiveDefiniteError:
            return point.new_tensor(torch.nan), torch.full_like(point, torch.nan), None
        return value.detach(), gradient, self.trace.latest

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The values (b,) and gradients (b, m) at several points (b, m)."""
        values, gradients = zip(*(self.at(point, rows) for point in points), strict=True)
        return torch.stack(values), torch.stack(gradients)

    # -- running it ---------------------------------------------------------------------------------------------------
    def search(self) -> Choice:
        """Minimise the objective; what was found when it is interrupted is kept."""
        settings, stopped = self.settings, False
        if settings.solver != "adam" and differs_in_training(self.kernel):
            warn(
                "The kernel's network has Dropout or batch normalisation in training mode, and L-BFGS learns it in "
                'evaluation mode throughout. Set solver="adam" (of EmbeddingClassifier), or say that this is meant: '
                "module.eval()."
            )

        def report(entry: HistoryEntry) -> bool:
            nonlocal stopped
            self.trace(entry)
            stopped = settings.callback(entry)
            return stopped

        description = "log criterion" if self.logarithm else f"criterion {settings.criterion}"
        options = replace(settings, callback=report).limits(description)
        with silent_repairs(), recycling():
            try:
                result = self._descended(options)
                ended = result.converged or result.n_iter < settings.max_iter
                if self.given and settings.solver == "lbfgs" and ended and not (stopped or result.interrupted):
                    result = self._off_plateau(result, options)
            except KeyboardInterrupt:  # where no optimiser has a point of its own yet
                value, point = self.best
                if math.isinf(value):
                    raise
                message = "interrupted; kept the best point so far"
                values = point.new_tensor([value])
                result = OptimizeResult(point, value, values, False, message, 0, 0, True, [])
        return self._choice(result)

    def _descended(self, options: dict[str, Any]) -> OptimizeResult:
        settings, n, size = self.settings, self.inputs.n, self._batch_size
        rows = None
        if size is not None:
            rows = torch.randperm(n, generator=torch.Generator().manual_seed(settings.seed))[:size]
        start = self.start
        if self.alpha is None and not self.given:
            start = self._best_usual(rows)[1]
        self.trace.seen.clear()
        if settings.solver == "adam":
            return adam(
                lambda point, index: self.at(point, None if size is None else index, training=True),
                start,
                n_samples=n,
                batch_size=size,
                learning_rate=settings.learning_rate,
                random_state=settings.seed,
                **options,
            )
        starts = random_starts(start, settings.n_restarts, settings.seed)
        return lbfgs(self.value_and_gradient, starts, longest_step=LONGEST_STEP, batched=False, **options)

    def _off_plateau(self, result: OptimizeResult, options: dict[str, Any]) -> OptimizeResult:
        """Search again from where the data put the hyperparameters, if the given start ended above the objective there.

        Where every sample is an island, or all are one, the objective is flat, which counts as the end of a search.
        """
        self.best = result.value, result.point
        value, point = self._best_usual()
        if result.value <= value:
            return result
        entries, self.trace.entries = self.trace.entries, []
        self.trace.seen.clear()
        again = lbfgs(self.value_and_gradient, point[None], longest_step=LONGEST_STEP, **options)
        if again.value < result.value:
            return again
        self.trace.entries = entries
        return result

    def _choice(self, result: OptimizeResult) -> Choice:
        with torch.no_grad():
            kernel, alpha = self.unpack(result.point)
            kernel = self._with_statistics(kernel)
        self._warn_of_bounds(result.point)
        history: list[Any] = list(self.trace.entries)
        value = result.value
        if self.logarithm:  # the criterion itself, without the penalty
            history = [entry._replace(value=math.exp(entry.value)) for entry in result.history]
            value = math.exp(value - float(self._penalty(result.point)))
        told = result.converged or self.settings.deadline.was_missed  # the fit itself speaks of its time
        message = None if told else f"The search over hyperparameters: {result.message}."
        return Choice(kernel.numbers(), float(alpha), value, history, result.interrupted, message)

    def _warn_of_bounds(self, point: Tensor) -> None:
        """Warn of what ran to the end of its range; a feature that became irrelevant is no reason to worry."""
        below, above = point <= self.low + BEND, point >= self.high - BEND
        at_bound = []
        if self.alpha is None and bool(below[-1] | above[-1]):
            at_bound.append(f"alpha = {float(self.unpack(point)[1]):.3g}")
        at_high = self._parts(above)
        for name, part in self._parts(below).items():
            if bool(part.any()) or bool(at_high[name].all()):
                at_bound.append(name)
        if at_bound:
            warn(
                f"The search over hyperparameters ended at a bound: {', '.join(at_bound)}. The objective has no "
                "minimum inside: nothing explains the targets, or everything does. Check the data, or fix the number."
            )


# -- the problems -----------------------------------------------------------------------------------------------------
class EmbeddingProblem(Problem):
    """min over f and b of the weighted mean of ‖φ(y_i) − f(x_i) − b‖² plus alpha‖f‖² for targets in some space.

    The model says what its ``kernel`` is, its ``alpha``, its ``criterion`` (None: nothing is learned), and its
    ``approximation``.
    """

    @cached_property
    def _adapted(self) -> Kernel:
        return self.representation.adapted(self.model.kernel, repair=self.scope.spans_all)

    @property
    def free(self) -> list[str]:
        """The names of the hyperparameters that are left to the search."""
        return self._adapted.free() if self.model.criterion is not None else []

    def _input_gram(self, block: Block) -> InputGram:
        """The Gram matrix of samples as a function of the kernel; beside a constant a linear one has no origin."""
        origin = linear_origin(self._adapted, block.X, block.weights) if self.model.intercept else None
        return InputGram(block.X if origin is None else block.X - origin, self.pairwise)

    @abstractmethod
    def _search(self, settings: EmbeddingSettings) -> EmbeddingSearch:
        """The criterion of the samples that a search looks at, as a function of what is free."""

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What a search minimises, and its gradient, at points (b, m) that count from where the data put them."""
        return self._search(EmbeddingSettings(seed=self.seed)).value_and_gradient(points, rows)

    def _search_by(
        self,
        criterion: Callable[[Block, Callable[..., None]], SquaredLoss],
        inputs: InputGram,
        kernel: Kernel,
        labels: Block,
        settings: EmbeddingSettings,
        *,
        logarithm: bool = False,
    ) -> EmbeddingSearch:
        """The search by the criterion of samples, of which ``labels`` are the targets, weights and groups."""
        if not self.free:
            with silent_repairs():  # the fit speaks of the last Gram matrix
                inputs = inputs.fixed(kernel)
        whole = list[SquaredLoss]()

        def objective(rows: Tensor | None, observer: Callable[..., None]) -> SquaredLoss:
            if rows is not None:
                part = labels.rows(rows.cpu().numpy())
                if part.groups is not None and len(part.groups.unique()) < 2:  # nothing would be left of the batch
                    part = replace(part, groups=None)
                return criterion(part, observer)
            if not whole:
                whole.append(criterion(labels, observer))
            return whole[0]

        like = torch.zeros((), dtype=self.representation.dtype, device=self.representation.device)
        alpha = self.model.alpha
        return EmbeddingSearch(inputs, kernel, self.free, alpha, objective, settings, like, logarithm=logarithm)
