"""The search over hyperparameters: its settings, where it starts, what it chooses, and alpha on a grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from representer.linalg import recycling
from representer.operators import Representation
from representer.optimize.quasi_newton import lbfgs
from representer.optimize.runs import Deadline, HistoryEntry, OptimizeResult
from representer.samples import Data, InMemory, Samples, plain, take
from representer.systems import RidgeData, System

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
    def choose(self, settings: Any) -> Choice:
        """What is free, chosen by the criterion; what is fixed stays."""

    @abstractmethod
    def solve(self, choice: Any) -> Any:
        """The ``function`` at the chosen hyperparameters, and what else the learner keeps."""

    def held_out(self, folds: Iterable[tuple[np.ndarray, np.ndarray]], settings: SearchSettings) -> list[Tensor]:
        """Predictions for the test rows of each (train, test) by a fit without them that repeats the search."""
        pairwise = self.model.kernel.domain == "gram"
        predictions = []
        for train, test in folds:
            problem, new = self.on_rows(train), take(self.stored_inputs, torch.from_numpy(np.asarray(test)))
            new = new[:, train] if pairwise else new
            predictions.append(problem.solve(problem.choose(settings)).function(new))
        return predictions

    @cached_property
    def stored_inputs(self) -> Data:
        """All inputs as they are stored."""
        return plain(self.samples.rows(np.arange(self.samples.n)).X) if self.inputs is None else self.inputs

    def on_rows(self, rows: np.ndarray) -> Self:
        """The same problem for some of the samples, in memory."""
        index = torch.from_numpy(np.asarray(rows))
        block, inputs = self.samples.rows(np.asarray(rows)), take(self.stored_inputs, index)
        if self.model.kernel.domain == "gram":
            block, inputs = replace(block, X=block.X[:, index]), inputs[:, rows]
        return type(self)(InMemory(block), self.model, self.representation, seed=self.seed, inputs=inputs)


def random_starts(start: Tensor, n_restarts: int, seed: int) -> Tensor:
    """The start, and ``n_restarts`` − 1 points around it at distance about one in every raw (logarithmic) direction."""
    noise = torch.randn(n_restarts, len(start), generator=torch.Generator().manual_seed(seed), dtype=start.dtype)
    noise[0] = 0.0
    return start + noise.to(start.device)


def minimise(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    settings: SearchSettings,
    *,
    description: str = "log criterion",
) -> OptimizeResult:
    """Minimise a function with gradients by L-BFGS from raced restarts around a start."""
    with recycling():  # every evaluation makes the same matrices again
        return lbfgs(
            function,
            random_starts(start, settings.n_restarts, settings.seed),
            max_iter=settings.max_iter,
            tol=settings.tol,
            callback=settings.callback,
            verbose=settings.verbose,
            description=description,
            deadline=settings.deadline,
        )


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
    # A finer grid costs only products, unless every output needs eigenvectors of its own.
    grid = log_spaced(low, high)
    return best_alpha(lambda alphas: system.path(alphas, criterion), grid, refine=system.refinable)
