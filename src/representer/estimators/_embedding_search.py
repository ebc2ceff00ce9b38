"""The search over the hyperparameters of an embedding: what is free in a kernel, and alpha."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.estimators._embedding_history import Trace
from representer.estimators._embedding_problem import EmbeddingProblem
from representer.estimators._ridge import random_starts
from representer.estimators.validation import warn_unconverged
from representer.kernels import Kernel
from representer.linalg import NotPositiveDefiniteError
from representer.linalg.memory import recycling
from representer.objectives.low_rank import OnFactor
from representer.objectives.rademacher import ClassRisk
from representer.objectives.squared import SquaredLoss
from representer.operators.adapted import Adapted
from representer.optimize import HistoryEntry, OptimizeResult, adam, lbfgs
from representer.parameters import Constraint, Positive
from representer.threads import blas_threads_for

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


@dataclass(frozen=True)
class Found:
    """Hyperparameters, the objective there, and how they were found."""

    kernel: Kernel
    alpha: float
    value: float | None = None
    history: list[Any] = field(default_factory=list)
    n_iter: int = 1


def bent(point: Tensor, bound: Tensor, sign: float = 1.0) -> Tensor:
    """A smooth min(sign·point, bound)·sign: the point itself far below the bound, and nearly the bound beyond it."""
    gap = (bound - sign * point) / BEND
    return torch.where(
        gap > 36.0, point, sign * (bound - BEND * torch.nn.functional.softplus(gap.clamp(max=36.0)))
    )


def start_value(name: str, value: Any, shape: torch.Size, constraint: Constraint) -> Tensor:
    """A value of ``start``: one number, or one for each entry."""
    wanted = "a number" if not len(shape) else f"a number or an array of shape {tuple(shape)}"
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        if array.dtype.kind not in "iuf" or array.shape not in ((), tuple(shape)):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise ValueError(f"start[{name!r}] must be {wanted}; got {value!r}.") from error
    found = torch.as_tensor(array.astype(np.float64)).expand(shape)
    problem = constraint.problem(found)
    if problem is not None:
        raise ValueError(f"start[{name!r}] {problem}; got {value!r}.")
    return found


class EmbeddingSearch:
    """An objective as a function of one vector: how far each free hyperparameter is from where the data put it, in its
    logarithm if it is positive, and log alpha.

    Parameters
    ----------
    problem : EmbeddingProblem
    kernel : Kernel
        With numbers for all hyperparameters: where the data put the free ones.
    free : list of str
        What is learned of it.
    alpha : float or None
        None: learned.
    objective : callable
        Row numbers, or None for all, -> an objective of these rows.
    start : mapping
        Where the search starts, by name.
    shrinkage : float
        s in the penalty s/(2n) Σ_j (u_j − ū)² on the logarithms u of each vector of positive hyperparameters.
    logarithm : bool
        Minimise the logarithm of the objective, so that its units do not matter.
    """

    def __init__(
        self,
        problem: EmbeddingProblem,
        kernel: Kernel,
        free: list[str],
        alpha: float | None,
        objective: Callable[[Tensor | None], SquaredLoss],
        like: Tensor,
        *,
        start: Mapping[str, Any] | None = None,
        shrinkage: float = 0.0,
        logarithm: bool = False,
    ):
        self.problem, self.kernel, self.alpha, self.objective = problem, kernel, alpha, objective
        self.shrinkage, self.logarithm = shrinkage, logarithm
        self.packing, raw = kernel.packing(free)
        self.origin = raw.to(like)
        sizes = [shape.numel() for shape in self.packing.shapes.values()]
        self.sizes = dict(zip(self.packing.shapes, sizes, strict=True))
        positive = {name: isinstance(self.packing.constraints[name], Positive) for name in self.sizes}
        entries = [positive[name] for name, size in self.sizes.items() for _ in range(size)]
        self.positive = torch.tensor(entries, dtype=torch.bool, device=like.device)
        self.vectors = [name for name, size in self.sizes.items() if size > 1 and positive[name]]
        self.unit = problem.scale(kernel)
        self.least = self.unit * torch.finfo(like.dtype).eps ** (2.0 / 3.0)
        limit = torch.where(self.positive, math.log(LARGEST_FACTOR), math.inf).to(like)
        alphas = like.new_tensor([[self.least, LARGEST_ALPHA * self.unit]] if alpha is None else []).log()
        self.low = torch.cat([-limit, alphas.reshape(-1, 2)[:, 0]])
        self.high = torch.cat([limit, alphas.reshape(-1, 2)[:, 1]])
        self.given = dict(start or {})
        self.start = self._start(like)
        self.trace = Trace()
        self.best = math.inf, self.start  # the least value outside of the optimisers, and where it is

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return len(self.start)

    def _start(self, like: Tensor) -> Tensor:
        values = self.kernel.hyperparameter_values()
        known = [*self.sizes, *(["alpha"] if self.alpha is None else [])]
        if isinstance(self.kernel, Adapted):  # which the user has not seen
            self.given = {f"kernel__{name}" if name != "alpha" else name: v for name, v in self.given.items()}
        unknown = [name for name in self.given if name not in known]
        if unknown:
            raise ValueError(
                f"start has {unknown[0]!r}, which is not learned; learned are: {', '.join(known) or 'none'}."
            )
        chosen = {
            name: start_value(name, self.given[name], shape, self.packing.constraints[name])
            if name in self.given
            else values[name].double().expand(shape)
            for name, shape in self.packing.shapes.items()
        }
        point = self.packing.pack(chosen).to(like) - self.origin
        usual = torch.zeros_like(point)
        if self.alpha is None:
            first = FIRST_ALPHAS[1] * self.unit
            alpha = float(start_value("alpha", self.given.get("alpha", first), torch.Size(), Positive()))
            point = torch.cat([point, like.new_tensor([math.log(alpha)])])
            usual = torch.cat([usual, like.new_tensor([math.log(first)])])
        self.usual = usual
        return self._inside(point, usual)

    def _inside(self, point: Tensor, usual: Tensor) -> Tensor:
        """A start with what lies outside the bounds, where the objective is flat, put where the data put it."""
        outside = (point <= self.low) | (point >= self.high)
        if bool(outside.any()):
            names = [name for name, size in self.sizes.items() for _ in range(size)] + ["alpha"]
            moved = dict.fromkeys(name for name, out in zip(names, outside.tolist(), strict=False) if out)
            warnings.warn(
                f"start is outside the range that is searched: {', '.join(moved)}. The search starts where the data "
                f"put it. The range is {1 / LARGEST_FACTOR:g} to {LARGEST_FACTOR:g} times that, for alpha "
                f"{self.least:.3g} to {LARGEST_ALPHA * self.unit:.3g}; other values can be fixed.",
                UserWarning,
                stacklevel=9,
            )
        return torch.where(outside, usual, point)

    def unpack(self, point: Tensor) -> tuple[Kernel, Tensor]:
        """The kernel and alpha of a point, differentiable, inside their bounds."""
        point = bent(bent(point, self.high), -self.low, -1.0)
        raw = self.origin + point[: len(self.origin)]
        kernel = self.kernel.replace(self.packing.unpack(raw)) if self.sizes else self.kernel
        if self.alpha is not None:
            return kernel, point.new_tensor(self.alpha)
        return kernel, point[-1].exp()

    def __call__(self, point: Tensor, rows: Tensor | None = None) -> Tensor:
        """The objective, differentiable."""
        kernel, alpha = self.unpack(point)
        objective = self.objective(rows)
        if isinstance(objective, ClassRisk):
            objective.observer = self.trace.observe
        matrix = self.problem.matrix(kernel, rows)
        value = (objective if self.problem.features is None else OnFactor(objective))(matrix, alpha)
        if self.logarithm:
            value = value.clamp(min=torch.finfo(value.dtype).tiny).log()
        return value if self.shrinkage == 0 else value + self._penalty(point)

    def _penalty(self, point: Tensor) -> Tensor:
        """s/(2n) Σ_j (u_j − ū)²."""
        parts = [part for name, part in self._parts(point).items() if name in self.vectors]
        spreads = [(part - part.mean()).square().sum() for part in parts]
        return 0.5 * self.shrinkage / self.problem.n * sum(spreads, point.new_zeros(()))

    def _parts(self, point: Tensor) -> dict[str, Tensor]:
        parts = point[: len(self.origin)].split(list(self.sizes.values()))
        return dict(zip(self.sizes, parts, strict=True))

    def value_and_gradient(self, point: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """At one point; NaN where the matrix cannot be factored."""
        variable = point.detach().clone().requires_grad_()
        try:
            with torch.enable_grad(), blas_threads_for(self.problem.n if rows is None else len(rows)):
                value = self(variable, rows)
                (gradient,) = torch.autograd.grad(value, variable, allow_unused=True, materialize_grads=True)
        except NotPositiveDefiniteError:
            return point.new_tensor(torch.nan), torch.full_like(point, torch.nan)
        self.trace.close(float(value.detach()))
        return value.detach(), gradient

    def batched(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """At several points, for L-BFGS."""
        values, gradients = zip(*(self.value_and_gradient(point) for point in points), strict=True)
        return torch.stack(values), torch.stack(gradients)

    def scan(self, rows: Tensor | None = None) -> None:
        """Move the start to the best of a few alphas and common factors of the lengthscales, unless it was given."""
        if self.alpha is None and not self.given:
            self.start = self._usual_start(rows)[1]

    def _usual_start(self, rows: Tensor | None = None) -> tuple[float, Tensor]:
        """The best of a few points around where the data put the hyperparameters, and the objective there."""
        best, chosen = math.inf, self.usual
        factors = FIRST_FACTORS if bool(self.positive.any()) else (0.0,)
        for factor in factors:
            for alpha in FIRST_ALPHAS if self.alpha is None else (math.nan,):
                point = self.usual.clone()
                point[: len(self.origin)] += factor * self.positive
                if self.alpha is None:
                    point[-1] = math.log(alpha * self.unit)
                try:
                    with torch.no_grad():
                        value = float(self(point, rows))
                except NotPositiveDefiniteError:
                    continue
                if value < best:
                    best, chosen = value, point
                    self.best = min(self.best, (best, chosen), key=lambda pair: pair[0])
        return best, chosen

    # -- running it ---------------------------------------------------------------------------------------------------
    def run(
        self,
        *,
        solver: str,
        max_iter: int,
        tol: float,
        n_restarts: int = 1,
        batch_size: int | None = None,
        learning_rate: float = 0.1,
        seed: int = 0,
        callback: Callable[[HistoryEntry], bool],
        verbose: int,
        description: str,
    ) -> Found:
        """Minimise the objective; what was found when it is interrupted is kept."""
        rows = None
        if batch_size is not None and batch_size < self.problem.n:
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randperm(self.problem.n, generator=generator)[:batch_size]

        stopped = False

        def report(entry: HistoryEntry) -> bool:
            nonlocal stopped
            self.trace(entry)
            stopped = callback(entry)
            return stopped

        options: dict[str, Any] = {
            "max_iter": max_iter,
            "tol": tol,
            "callback": report,
            "verbose": verbose,
            "description": description,
        }
        with recycling():
            try:
                self.scan(rows)
                self.trace.seen.clear()
                if solver == "adam":
                    everything = rows is None
                    result = adam(
                        lambda point, index: self.value_and_gradient(point, None if everything else index),
                        self.start,
                        n_samples=self.problem.n,
                        batch_size=None if everything else batch_size,
                        learning_rate=learning_rate,
                        random_state=seed,
                        **options,
                    )
                else:
                    starts = random_starts(self.start, n_restarts, seed)
                    result = lbfgs(self.batched, starts, longest_step=LONGEST_STEP, **options)
                    ended = result.converged or result.n_iter < max_iter
                    if self.given and ended and not (stopped or result.interrupted):
                        result = self._off_plateau(result, options)
            except KeyboardInterrupt:  # where no optimiser has a point of its own yet
                value, point = self.best
                if math.isinf(value):
                    raise
                message = "interrupted; kept the best point so far"
                result = OptimizeResult(
                    point, value, point.new_tensor([value]), False, message, 0, 0, True, []
                )
        return self._found(result)

    def _off_plateau(self, result: OptimizeResult, options: dict[str, Any]) -> OptimizeResult:
        """Search again from where the data put the hyperparameters, if the given start ended above the objective there.

        Where every sample is an island, or all are one, the objective is flat, which counts as the end of a search.
        """
        self.best = result.value, result.point
        value, point = self._usual_start()
        if result.value <= value:
            return result
        entries, self.trace.entries = self.trace.entries, []
        self.trace.seen.clear()
        again = lbfgs(self.batched, point[None], longest_step=LONGEST_STEP, **options)
        if again.value < result.value:
            return again
        self.trace.entries = entries
        return result

    def _found(self, result: OptimizeResult) -> Found:
        if not result.converged:
            warn_unconverged(f"The search over hyperparameters: {result.message}.")
        with torch.no_grad():
            kernel, alpha = self.unpack(result.point)
        self._warn_bounds(result.point)
        history: list[Any] = list(self.trace.entries)
        if self.logarithm:
            history = [entry._replace(value=math.exp(entry.value)) for entry in result.history]
        value = result.value
        if self.logarithm:  # the criterion itself, without the penalty
            value = math.exp(value - float(self._penalty(result.point)))
        return Found(kernel.numbers(), float(alpha), value, history, max(1, result.n_iter))

    def _warn_bounds(self, point: Tensor) -> None:
        """Of what ran to the end of its range; a feature that became irrelevant is no reason to worry."""
        below, above = point <= self.low + BEND, point >= self.high - BEND
        said = []
        if self.alpha is None and bool(below[-1] | above[-1]):
            said.append(f"alpha = {float(self.unpack(point)[1]):.3g}")
        at_high = self._parts(above)
        for name, part in self._parts(below).items():
            if bool(part.any()) or bool(at_high[name].all()):
                said.append(name)
        if said:
            warnings.warn(
                f"The search over hyperparameters ended at a bound: {', '.join(said)}. The objective has no minimum "
                "inside: nothing explains the targets, or everything does. Check the data, or fix the number.",
                UserWarning,
                stacklevel=4,
            )
