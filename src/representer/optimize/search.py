"""What searches share: history, stopping, time and progress; problems, settings and choices; alpha on a grid."""

from __future__ import annotations

import math
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Kernel
from representer.operators import Representation
from representer.samples import Data, InMemory, Samples, plain, take
from representer.systems import RidgeData, Scope, System
from representer.values import argument_repr, is_count, is_real

if TYPE_CHECKING:
    from rich.progress import Progress


# Without a terminal a long run prints a line as often as this, in seconds.
LINE_EVERY = 5.0
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

Callback = Callable[["HistoryEntry"], bool | None]
Best = tuple[float, float, Tensor]  # value, gradient norm, point


class HistoryEntry(NamedTuple):
    """One iteration of L-BFGS, or one epoch of Adam, as a callback and ``history_`` see it."""

    iteration: int  # L-BFGS begins with 0, the starts; Adam with 1, the first epoch
    seconds: float  # wall-clock time since the run began
    value: float  # L-BFGS: the best value so far; Adam: the mean of the epoch's batch values
    gradient_norm: float  # largest absolute entry of the gradient that belongs to the value
    active: int  # number of restarts alive


def in_squared_units(history: Sequence[HistoryEntry], unit: float) -> list[HistoryEntry]:
    """The history of a squared error in units of y, of one in units in which the fit counts."""
    return [entry._replace(value=entry.value * unit * unit) for entry in history]


class OutOfTimeError(KeyboardInterrupt):
    """The time of a search is over: its loops end as they do after Ctrl-C, with the best point so far."""


class Deadline:
    """When a search must end. All its loops ask the same one, after each evaluation.

    Parameters
    ----------
    max_time : float, str or None
        Seconds from now on, or a text such as "90s", "5m" or "1h"; None is no limit.
    """

    def __init__(self, max_time: float | str | None = None) -> None:
        self.max_time = max_time
        self.began = self.printed = time.perf_counter()  # and when the latest line of progress was
        self.end = self.began + as_seconds(max_time)
        self.was_missed = False  # has it ended a loop?

    def has_passed(self) -> bool:
        """Is the time over? Who asks ends what it does if so, and the deadline remembers that."""
        self.was_missed = self.was_missed or time.perf_counter() >= self.end
        return self.was_missed

    def check(self) -> None:
        """Raise an ``OutOfTimeError`` if the time is over."""
        if self.has_passed():
            raise OutOfTimeError


def as_seconds(max_time: object) -> float:
    """The seconds of a time budget: a positive number, a text such as "90s", "5m" or "1h", or None for no limit.

    Examples
    --------
    >>> from representer.optimize import as_seconds
    >>> as_seconds("5m"), as_seconds(0.5), as_seconds(None)
    (300.0, 0.5, inf)
    """
    seconds = math.nan
    if max_time is None:
        return math.inf
    if isinstance(max_time, str):
        parts = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([smh]?)\s*", max_time)
        seconds = math.nan if parts is None else float(parts[1]) * UNITS[parts[2]]
    elif isinstance(max_time, int | float | np.integer | np.floating) and not isinstance(max_time, bool):
        seconds = float(max_time)
    require(
        seconds > 0,
        "max_time must be a positive number of seconds, a text such as '90s', '5m' or '1h', or None for no limit; got "
        f"{max_time!r}.",
    )
    return seconds


@dataclass(frozen=True)
class OptimizeResult:
    """The best point of a run, and why it stopped."""

    point: Tensor  # (m,) the best point found
    value: float  # the objective there
    values: Tensor  # (b,) the best value of each restart; inf if it was not finite at its start
    converged: bool  # whether the winning restart met the stopping rule
    message: str  # why the run stopped, as a sentence
    n_iter: int  # iterations of L-BFGS, or epochs of Adam
    n_evaluations: int  # objective evaluations; one call with b restarts counts b
    interrupted: bool  # whether Ctrl-C ended the run
    history: list[HistoryEntry]
    points: Tensor | None = None  # (b, m) the best point of each restart; Adam has none
    stopped: bool = False  # whether a callback ended the run

    def completed(self) -> OptimizeResult:
        """The result of a run that is a part of a larger computation, which Ctrl-C ends as a whole."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self


@dataclass(frozen=True)
class StoppingRule:
    """When a run counts as converged: the one place that says what ``tol`` means.

    A run ends when either

    * the objective is *calm* ``patience`` times in a row: it fell from f to f' by no more than
      ``tol * max(|f|, |f'|)`` (or rose); or
    * the point is *stationary*: no entry of the gradient exceeds ``tol * max(1, |f'|)``.

    L-BFGS applies this to each iteration of each restart, with ``patience=2`` because one short
    step may just be a poor direction. Adam applies it to epochs: f is the value of the last epoch
    that was not calm, f' the mean of the batch values, and the gradient that of the batch gradients.
    """

    tol: float
    patience: int
    noise: float = 0.0  # relative accuracy of the values, beyond rounding

    def calm(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Whether the objective fell by no more than the tolerance."""
        scale = np.maximum(np.maximum(np.abs(before), np.abs(after)), np.finfo(after.dtype).tiny)
        return before - after <= self.tol * scale

    def stationary(self, values: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Whether the gradient vanishes up to the tolerance."""
        return np.abs(gradients).max(-1) <= self.tol * np.maximum(np.abs(values), 1.0)


def with_gradient(function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Turn a differentiable function (b, m) -> (b,) into ``points -> (values, gradients)`` by autograd.

    One backward pass serves the whole batch: rows are independent, so the gradient of the sum of
    the values holds the gradient of each. Further arguments are passed on, and a single point
    (m,) -> () works too, so that the same wrapper serves :func:`adam`.

    >>> import torch
    >>> from representer.optimize import with_gradient
    >>> square = with_gradient(lambda points: (points**2).sum(-1))
    >>> square(torch.tensor([[1.0, 2.0]]))
    (tensor([5.]), tensor([[2., 4.]]))
    """

    def value_and_gradient(points: Tensor, *data: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = points.detach().requires_grad_(True)
            values = function(leaf, *data)
            (gradients,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), gradients

    return value_and_gradient


class Monitor:
    """History, callback, deadline and progress of one run.

    A progress bar appears once a run has lasted a second. Where it cannot be redrawn in place (in a log file), a line
    is printed every few seconds instead.
    """

    def __init__(
        self,
        callback: Callback | None,
        verbose: int,
        max_iter: int,
        description: str,
        deadline: Deadline | None = None,
    ) -> None:
        self.callback, self.verbose, self.max_iter = callback, verbose, max_iter
        self.deadline = Deadline() if deadline is None else deadline
        self.description = description or "minimising"
        self.history: list[HistoryEntry] = []
        self.bar: Progress | None = None
        self.stopped = False  # has the callback ended the run?

    def __enter__(self) -> Monitor:
        self.began = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None and not self.bar.disable:
            self.bar.stop()

    def __call__(self, iteration: int, value: float, gradient_norm: float, active: int) -> bool:
        """Record an iteration; True if the callback asks to stop."""
        seconds = time.perf_counter() - self.began
        entry = HistoryEntry(iteration, seconds, value, gradient_norm, active)
        self.history.append(entry)
        if self.verbose >= 1 and (seconds > 1.0 or self._line_is_due()):
            self._draw(entry)
        self.stopped = self.callback is not None and bool(self.callback(entry))
        return self.stopped

    def _draw(self, entry: HistoryEntry) -> None:
        """Move the progress bar on."""
        if self.bar is None:
            self.bar = _progress_bar()
            self.bar.add_task(self.description, total=self.max_iter, state="")
            if not self.bar.disable:  # older versions of rich end even an invisible bar with an empty line
                self.bar.start()
        state = f"value {entry.value:.6g}, {entry.active} alive"
        self.bar.update(self.bar.task_ids[0], completed=entry.iteration, state=state)
        if self.bar.disable and self._line_is_due():
            self.deadline.printed = time.perf_counter()
            seconds = self.deadline.printed - self.deadline.began
            done = f"{seconds:.0f} s, iteration {entry.iteration} of {self.max_iter}"
            print(f"{self.description}: {done}, {state}", file=sys.stderr, flush=True)

    def _line_is_due(self) -> bool:
        """Have all runs with the same deadline, which are those of one fit, been silent for long?"""
        return time.perf_counter() - self.deadline.printed >= LINE_EVERY

    def result(
        self,
        best: Best,
        values: Tensor,
        n_evaluations: int,
        converged: bool,
        message: str,
        interrupted: bool,
        points: Tensor | None = None,
    ) -> OptimizeResult:
        """The result of the run, with its history; a message is printed if the user asked for it."""
        n_iter = self.history[-1].iteration if self.history else 0
        if interrupted:
            why = f"max_time={self.deadline.max_time!r} reached" if self.deadline.was_missed else "interrupted"
            message = f"{why} after {n_iter} iterations; kept the best point so far"
        if self.verbose >= 2:
            print(f"{self.description}: {message}", file=sys.stderr)
        value, _, point = best
        counts = n_iter, n_evaluations
        return OptimizeResult(
            point, value, values, converged, message, *counts, interrupted, self.history, points, self.stopped
        )


def _progress_bar() -> Progress:
    """A progress bar on the error stream, invisible where it could not be redrawn."""
    # Not at the top: importing rich draws from Python's global random generator.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    visible = console.is_terminal or console.is_jupyter
    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}")
    return Progress(*columns, console=console, transient=True, disable=not visible)


def checked_starts(starts: Tensor) -> Tensor:
    """The starts as a matrix (b, m), one row a restart."""
    starts = torch.as_tensor(starts).detach()
    shape, n_bad = tuple(starts.shape), int((~starts.isfinite()).sum())
    require(
        starts.ndim in (1, 2) and starts.numel() > 0,
        f"a start must be a non-empty tensor of shape (m,), or (b, m) for b restarts, got shape {shape}; "
        "flatten the parameters first",
    )
    require(starts.is_floating_point(), f"starts must be floating point, got {starts.dtype}; use starts.double()")
    require(
        n_bad == 0,
        f"starts must be finite, got {n_bad} NaN or infinite of {starts.numel()} entries; "
        "check how they were initialised",
    )
    return starts if starts.ndim == 2 else starts[None]


def checked_output(output: object, points: Tensor) -> tuple[Tensor, Tensor]:
    """The pair that an objective returned, if its shapes fit the points."""
    expected = [tuple(points.shape[:-1]), tuple(points.shape)]
    if isinstance(output, tuple | list) and len(output) == 2:
        values, gradients = (torch.as_tensor(x).detach().to(points) for x in output)
        got = [tuple(values.shape), tuple(gradients.shape)]
        if got == expected:
            return values, gradients
        what = f"a pair of shapes {got[0]} and {got[1]}"
    else:
        what = f"a {type(output).__name__}"
    raise ValueError(
        f"the objective must return a pair (values, gradients) of shapes {expected[0]} and {expected[1]} "
        f"for points of shape {expected[1]}, got {what}; a function that returns only values can be wrapped "
        "in with_gradient"
    )


def check_limits(max_iter: int, tol: float) -> None:
    """Refuse limits that no run can keep."""
    require(is_count(max_iter), f"max_iter must be an integer of at least 1; got {argument_repr(max_iter):.60}.")
    require(
        is_real(tol) and tol >= 0,
        f"tol must be a number of at least 0; got {argument_repr(tol):.60}; 0 runs until the precision is exhausted.",
    )


def require(holds: bool, message: str) -> None:
    """Raise a ValueError unless the condition holds."""
    if not holds:
        raise ValueError(message)


# alpha is looked for on so many values evenly spaced in logarithm, then on as many between the neighbours of the best.
ALPHAS = 30


def keep_going(entry: HistoryEntry) -> bool:
    """The callback of nobody: the search goes on."""
    return False


@dataclass(frozen=True)
class SearchSettings:
    """How to search: the arguments of a learner that are not part of its model."""

    criterion: str | None = "loo"
    max_iter: int = 100
    tol: float = 1e-5
    n_restarts: int = 1
    seed: int = 0
    verbose: int = 0
    callback: Callable[[HistoryEntry], bool] = keep_going
    deadline: Deadline = field(default_factory=Deadline)

    def limits(self, description: str) -> dict[str, Any]:
        """The arguments by which every optimiser is told when to end, and whom to tell of its iterations."""
        return {
            "max_iter": self.max_iter,
            "tol": self.tol,
            "callback": self.callback,
            "verbose": self.verbose,
            "description": description,
            "deadline": self.deadline,
        }

    def tell(self, stage: str) -> None:
        """Print how long the fit has taken up to a stage of it, where progress is asked for."""
        if self.verbose >= 1:
            self.deadline.printed = time.perf_counter()
            print(f"{self.deadline.printed - self.deadline.began:.1f} s: {stage}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Choice:
    """What a search has chosen: a model with numbers for all hyperparameters, alpha, and how they were found.

    Parameters
    ----------
    model : Value
        A kernel, an operator-valued kernel, or a composition.
    alpha : float
        The weight of ‖f‖²; NaN where the system of all samples is to choose it.
    value : float or None
        The criterion there; None if nothing was chosen.
    history : list of HistoryEntry
        The search; its first entry is the start.
    interrupted : bool
        Did Ctrl-C, the deadline or a callback end the search?
    unconverged : str or None
        Why the search ended before it had converged, for a warning; None where it had, or where there was none.
    """

    model: Any
    alpha: float
    value: float | None = None
    history: list[HistoryEntry] = field(default_factory=list)
    interrupted: bool = False
    unconverged: str | None = None

    @property
    def n_iter(self) -> int:
        """The iterations of the search, 1 if there was none."""
        return max(1, self.history[-1].iteration) if self.history else 1


class Problem(ABC):
    """A learner's problem: samples and a model, whose free hyperparameters are chosen before it is solved.

    Parameters
    ----------
    samples : Samples
        In memory or on Dask.
    model : a frozen value
        What is fitted, its ``kernel`` included.
    representation : Representation
        How a fitted function stores its data.
    seed : int
        Of random starts, landmarks and samples that stand for all.
    inputs : data or None
        The inputs of samples in memory as they are stored, before a kernel has prepared them.
    """

    def __init__(
        self, samples: Samples, model: Any, representation: Representation, *, seed: int = 0, inputs: Data = None
    ):
        self.samples, self.model, self.representation = samples, model, representation
        self.seed, self.inputs = seed, inputs

    @property
    @abstractmethod
    def free(self) -> list[str]:
        """The names of the hyperparameters that are left to the search."""

    @abstractmethod
    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The criterion (b,) and its gradient (b, m) at points (b, m), of all samples or of some."""

    @abstractmethod
    def choose(self, settings: Any) -> Any:
        """What is free, chosen by the criterion, as ``solve`` takes it: a ``Choice``; what is fixed stays."""

    @abstractmethod
    def solve(self, choice: Any) -> Any:
        """The ``function`` at the chosen hyperparameters, and what else the learner keeps."""

    @property
    def optimism(self) -> float:
        """The share over n by which each learned number makes left-out residuals too small."""
        return OPTIMISM

    def held_out(self, folds: Iterable[tuple[np.ndarray, np.ndarray]], settings: Any) -> list[Any]:
        """The answers for the test rows of each (train, test) by a fit without them that repeats the search."""
        answers = []
        for train, test in folds:
            part, X = self.on_rows(np.asarray(train)), self.unseen(np.asarray(train), np.asarray(test))
            answers.append(part.answer(part.solve(part.choose(settings)), X))
        return answers

    def answer(self, solution: Any, X: Data) -> Any:
        """What a solution says of new inputs: the values of its function, unless a problem has more to say."""
        return solution.function(X)

    @cached_property
    def scope(self) -> Scope:
        """Which samples are looked at, and what spans f."""
        return Scope.of(self.model.approximation, self.samples.n)

    @property
    def pairwise(self) -> bool:
        """Are the inputs a Gram matrix, whose columns are samples, too?"""
        return bool(self.model.kernel.domain == "gram")

    @cached_property
    def stored_inputs(self) -> Data:
        """All inputs as they are stored."""
        return plain(self.samples.rows(np.arange(self.samples.n)).X) if self.inputs is None else self.inputs

    def unseen(self, train: np.ndarray, test: np.ndarray) -> Data:
        """The inputs of some samples as a fit to others takes them."""
        X = take(self.stored_inputs, torch.from_numpy(test))
        return X[:, train] if self.pairwise else X

    def on_rows(self, rows: np.ndarray) -> Self:
        """The same problem for some of the samples, in memory."""
        block, inputs = self.samples.rows(rows), self.unseen(rows, rows)
        block = replace(block, X=block.X[:, rows]) if self.pairwise else block
        return self.with_samples(InMemory(block), inputs, rows)

    def with_samples(self, samples: Samples, inputs: Data, rows: np.ndarray) -> Self:
        """The same problem for samples that are these rows of its own."""
        return type(self)(samples, self.model, self.representation, seed=self.seed, inputs=inputs)


def log_spaced(low: Tensor, high: Tensor, size: int = ALPHAS) -> Tensor:
    """Numbers evenly spaced in logarithm, where the ends live."""
    return torch.logspace(float(low.log10()), float(high.log10()), size, dtype=low.dtype, device=low.device)


def least(errors: Tensor) -> int:
    """The place of the least finite error."""
    if not bool(torch.isfinite(errors).any()):
        raise ValueError("The criterion is not finite for any alpha; check the scale of X and y.")
    return int(torch.where(torch.isfinite(errors), errors, torch.inf).argmin())


def best_alpha(
    errors: Callable[[Tensor], Tensor], alphas: Tensor, *, refine: bool, size: int | None = None
) -> tuple[float, float]:
    """The alpha of least error and the error there; with ``refine``, on a finer grid between the best one's neighbours.

    Parameters
    ----------
    errors : callable
        Alphas (a,) -> errors (a,): cheap, once a system is factored.
    alphas : tensor (a,)
        The candidates, in order.
    refine : bool
        Are numbers between the candidates allowed?
    size : int, optional
        How many numbers the finer grid has; by default as many as there are candidates.
    """
    values = errors(alphas)
    best = least(values)
    if refine:
        low, high = alphas[max(best - 1, 0)], alphas[min(best + 1, len(alphas) - 1)]
        alphas = log_spaced(low, high, len(alphas) if size is None else size)
        values = errors(alphas)
        best = least(values)
    return float(alphas[best]), float(values[best])


def system_alpha(system: System | RidgeData, candidates: Any = None, criterion: Any = "loo") -> tuple[float, float]:
    """The best candidate, or the best positive number, for a ridge system, and the criterion there."""
    low, high = system.alpha_range()
    if candidates is not None:
        return best_alpha(lambda alphas: system.path(alphas, criterion), low.new_tensor(candidates), refine=False)

    def log_errors(alphas: Tensor) -> Tensor:
        errors = system.path(alphas, criterion)
        return errors.clamp(min=torch.finfo(errors.dtype).tiny).log() + indifference(alphas, *unit)

    unit = system.alpha_unit()
    # A finer grid costs only products, unless every output needs eigenvectors of its own.
    alpha, value = best_alpha(log_errors, log_spaced(low, high), refine=system.refinable)
    return alpha, math.exp(value - float(indifference(low.new_tensor(alpha), *unit)))


# The precision of the prior on log alpha: a standard deviation of ten, a factor of 20,000.
VAGUE = 0.01


def indifference(alpha: Tensor, unit: Tensor, n: float) -> Tensor:
    """v (log alpha − log unit)²/n, which decides alpha where the logarithm of a mean square of n errors does not.

    −n/2 of that logarithm is a log-likelihood. With few landmarks, or with targets that are fitted exactly, alphas
    differ by many orders and the errors only in their rounding; noise and deviations are then anything.
    """
    return VAGUE * (alpha / unit).log().square() / n


# -- problems that are compared ----------------------------------------------------------------------------------------
# The precision of the prior on the mean of the logarithms of positive hyperparameters, around where the data put them.
WEAK = 1.0


def attraction(moved: Tensor, shrinkage: float) -> Tensor:
    """s Σ_j (v_j − v̄)² + w v̄² for steps v of logarithms from where the data put them: twice a negative log prior.

    The second part is weak. It decides where the data do not: a wide kernel differs from a wider one only by its alpha.
    """
    mean = moved.mean()
    return shrinkage * (moved - mean).square().sum() + WEAK * mean.square()


# Leave-one-out is exact given the hyperparameters, and optimistic once it chose them: residuals count 1 + OPTIMISM·q/n
# times for a member of which q numbers were learned from n samples. A likelihood does not look at these residuals: they
# count 1 + LIKELY·q/n times where it has learned the numbers.
OPTIMISM, LIKELY = 4.0, 1.0
OneProblem = TypeVar("OneProblem", bound=Problem)
AnyChoice = TypeVar("AnyChoice", bound=Choice)


def learned_numbers(problem: Problem, choice: Choice) -> int:
    """How many numbers were learned: hyperparameters, and alpha."""
    values = choice.model.hyperparameter_values()
    free = sum(values[name].numel() for name in problem.free if name in values)
    return free + int(not isinstance(problem.model.alpha, float))


def interruption(deadline: Deadline, what: str) -> str | None:
    """What to say of a search that was interrupted; of its time the fit itself speaks."""
    return None if deadline.was_missed else f"The search over {what} was interrupted: the best so far is kept."


def at_kernel(m: int, n_kernels: int) -> str:
    """What a search looks for that has come to the m-th of several kernels."""
    return f"kernels ({m} of {n_kernels})"


def cut_short(choice: AnyChoice, message: str | None) -> AnyChoice:
    """The choice where a search was interrupted that would have gone on, with a message or None."""
    told = dict.fromkeys(filter(None, (choice.unconverged, message)))
    return replace(choice, interrupted=True, unconverged=" ".join(told) or None)


def least_error(problems: Sequence[OneProblem], settings: SearchSettings) -> tuple[OneProblem, Any]:
    """Of problems that differ in the kernel, the one whose choice has the least squared error for left-out samples.

    Errors of members that learned more numbers count more, as in a stack. A choice that was not judged loses against
    any that was.
    """
    best: tuple[float, OneProblem, Any] | None = None
    for m, problem in enumerate(problems, 1):
        try:
            if best is not None:
                settings.deadline.check()
            choice = problem.choose(settings)
        except KeyboardInterrupt:  # before its search had a first value
            if best is None:
                raise
            interrupted = True
        else:
            settings.tell(f"searched kernel {m} of {len(problems)}")
            error, interrupted = _comparable(problem, choice), choice.interrupted
            if best is None or error < best[0]:
                best = error, problem, choice
        if interrupted:
            message = interruption(settings.deadline, at_kernel(m, len(problems))) if len(problems) > 1 else None
            return best[1], cut_short(best[2], message)
    assert best is not None
    return best[1], best[2]


def _comparable(problem: Problem, choice: Choice) -> float:
    """The error of a choice among kernels; it counts more where more was learned, and is infinite if nothing judged."""
    kernel = choice.model if isinstance(choice.model, Kernel) else choice.model.kernel
    values = kernel.hyperparameter_values()
    learned = sum(values[name].numel() for name in problem.free)
    factor = 1.0 + OPTIMISM * learned / problem.samples.positive_part(pairwise=False).n
    return np.inf if choice.value is None else choice.value * (factor**2 if choice.value > 0 else 1.0)
