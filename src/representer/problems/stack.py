"""Stacks: several kernels are fitted by their own problems, and averaged by what they say of left-out samples."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from representer.kernels import Stack
from representer.operators import Decomposable, original
from representer.optimize import Choice, Problem, lbfgs, with_gradient
from representer.preimage.probabilities import calibrate_embedding
from representer.samples import Block, InMemory
from representer.samples import rows as limits
from representer.systems import FittedSystem, StackedSystem

# Leave-one-out is exact given the hyperparameters, and optimistic once it chose them: it is trusted where at most so
# many numbers were learned for each sample, and fits without a fold repeat the search where there were more.
TRUSTED_NUMBERS = 0.02
FOLDS = 5

P = TypeVar("P", bound=Problem)


# -- weights ----------------------------------------------------------------------------------------------------------
class Stacking(ABC):
    """How left-out predictions (m, n, p) of the members decide their weights, and what their error is."""

    @abstractmethod
    def weights(self, predictions: Tensor, block: Block) -> np.ndarray:
        """Weights (m, p), or (m, 1) for all outputs: at least 0, and their sum over the members is one."""

    @abstractmethod
    def error(self, predictions: Tensor, block: Block) -> float:
        """The error of predictions (n, p) of the targets."""


class LeastSquares(Stacking):
    """The weights of least squared error, for each output."""

    def weights(self, predictions: Tensor, block: Block) -> np.ndarray:
        columns = []
        for j in range(block.Y.shape[1]):
            known = ~block.Y[:, j].isnan()
            missed = (predictions[:, known, j] - block.Y[known, j].to(predictions)).mT
            if block.weights is not None:
                missed = missed * block.weights[known, None].to(missed).sqrt()
            columns.append(simplex_weights(missed.cpu().double().numpy()))
        return np.stack(columns, 1)

    def error(self, predictions: Tensor, block: Block) -> float:
        squares = (predictions - block.Y.to(predictions)) ** 2
        w = squares.new_ones(len(squares)) if block.weights is None else block.weights.to(squares)
        known = ~squares.isnan()
        return float((w[:, None] * squares.nan_to_num(0.0)).sum() / (w[:, None] * known).sum())


def simplex_weights(missed: np.ndarray) -> np.ndarray:
    """The weights (m,), at least 0 with the sum one, that minimise ‖Rw‖² for residuals R (n, m).

    For u = t·w with w on the simplex, the least ‖Ru‖² + (1ᵀu − 1)² over t is a/(1 + a) with a = ‖Rw‖²: both problems
    have the same w, and the second is a non-negative least squares problem.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.problems.stack import simplex_weights
    >>> simplex_weights(np.array([[1.0, -1.0], [1.0, -1.0]])).tolist()
    [0.5, 0.5]
    """
    scale = np.linalg.norm(missed, axis=0).min()
    if not scale > 0:  # a member that misses nothing
        best = np.linalg.norm(missed, axis=0) == 0
        return best / best.sum()
    triangle = np.linalg.qr(missed / scale, mode="r")
    extended = np.vstack([triangle, np.ones(missed.shape[1])])
    w, _ = nnls(extended, np.append(np.zeros(len(triangle)), 1.0))
    return w / w.sum()


class LogLoss(Stacking):
    """The weights of least cross entropy of calibrated estimates of classes."""

    def weights(self, predictions: Tensor, block: Block) -> np.ndarray:
        estimates, Y = predictions.double().cpu(), block.Y.double().cpu()
        shares = Y.new_ones(len(Y)) if block.weights is None else block.weights.double().cpu()
        shares = shares / shares.sum()
        first = calibrate_embedding(estimates.mean(0), Y, block.weights)

        def losses(points: Tensor) -> Tensor:
            return torch.stack([loss(point) for point in points])

        def loss(point: Tensor) -> Tensor:
            w = torch.softmax(point[2:], 0)
            scale, delta = point[:2].exp()
            log_p = torch.log_softmax(scale * torch.asinh(torch.tensordot(w, estimates, 1) / delta), -1)
            return -(Y * log_p).sum(-1) @ shares

        start = torch.cat([Y.new_tensor([first.scale, first.delta]).log(), Y.new_zeros(len(estimates))])
        point = lbfgs(with_gradient(losses), start, max_iter=200, tol=1e-9).point
        return torch.softmax(point[2:], 0).numpy()[:, None]

    def error(self, predictions: Tensor, block: Block) -> float:
        calibration = calibrate_embedding(predictions, block.Y, block.weights)
        p = (calibration(predictions.double().cpu().numpy()) * block.Y.cpu().numpy()).sum(1)
        w = None if block.weights is None else block.weights.cpu().numpy()
        return float(np.average(-np.log(np.maximum(p, np.finfo(float).tiny)), weights=w))


# -- members ----------------------------------------------------------------------------------------------------------
class Member(NamedTuple):
    """One kernel of a stack, as it was fitted."""

    kernel: Any  # with numbers for all hyperparameters
    alpha: float
    weights: np.ndarray  # (p,), or (1,) for all outputs
    score: float | None  # the error for left-out samples; None where nothing was asked of them
    learned: int  # how many numbers were learned, alpha included
    judged: str | None  # by "leave-one-out" or by "folds"
    seconds: float


class Members(tuple[Member, ...]):
    """The members of a stack, printed as a table."""

    def __repr__(self) -> str:
        rows = [("weight", "error", "by", "learned", "alpha", "seconds", "kernel")]
        for member in self:
            weight = " ".join(f"{w:.3f}" for w in member.weights)
            score = "" if member.score is None else f"{member.score:.5g}"
            kernel = repr(member.kernel)
            rows.append(
                (
                    weight,
                    score,
                    member.judged or "",
                    str(member.learned),
                    f"{member.alpha:.3g}",
                    f"{member.seconds:.2f}",
                    kernel if len(kernel) <= 60 else f"{kernel[:57]}...",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


@dataclass(frozen=True)
class StackChoice:
    """What the members have chosen, each by itself."""

    choices: list[Choice]
    learned: list[int]
    seconds: list[float]

    @property
    def unconverged(self) -> str | None:
        """Why the search of a member ended before it had converged, for a warning."""
        messages = [f"{original(c.model)!r}: {c.unconverged}" for c in self.choices if c.unconverged is not None]
        return messages[0] if messages else None


@dataclass(frozen=True)
class StackSolution:
    """The system of a stack, and how it came about.

    Parameters
    ----------
    system : StackedSystem
    solutions : list
        What the members' problems give.
    members : Members
    kernel : Stack
        With numbers for all kernels, weights and alphas.
    left_out : tuple of Block and tensor (n, p), or None
        Samples and the stack's predictions for them without each, where weights were decided by them.
    value : float or None
        The error there.
    """

    system: StackedSystem
    solutions: list[Any]
    members: Members
    kernel: Stack
    left_out: tuple[Block, Tensor] | None
    value: float | None


class StackProblem(Generic[P]):
    """min over w of the error of Σ_m w_m f_m for left-out samples, where f_m solves the m-th problem by itself.

    Parameters
    ----------
    problems : sequence of Problem
        Of the same samples, each with a kernel of its own.
    stacking : Stacking
        How weights are decided.
    weights : array (m,), (m, p) or None
        The weights where they are given.
    """

    def __init__(self, problems: Sequence[P], stacking: Stacking, weights: np.ndarray | None = None):
        self.problems, self.stacking, self.weights = list(problems), stacking, weights

    # -- the search ---------------------------------------------------------------------------------------------------
    def choose(self, settings: Any) -> StackChoice:
        """What is free in each member, chosen by its own criterion; an interrupted search ends the list of members."""
        choices: list[Choice] = []
        learned, seconds = [], []
        for problem in self.problems:
            start = time.perf_counter()
            choice = self._chosen(problem, settings)
            choices.append(choice)
            learned.append(learned_numbers(problem, choice))
            seconds.append(time.perf_counter() - start)
            if choice.interrupted:
                break
        return StackChoice(choices, learned, seconds)

    def _chosen(self, problem: P, settings: Any) -> Choice:
        """The choice of a member; of many samples in an exact fit, a random part decides."""
        samples, model = problem.samples, problem.model
        searched = bool(problem.free) and model.alpha is None and model.approximation is None
        if not searched or samples.n <= limits.STACK_ROWS:
            return problem.choose(settings)
        rows = samples.random_rows(limits.SEARCH_ROWS, problem.seed)
        choice = problem.on_rows(rows).choose(settings)
        return replace(choice, alpha=choice.alpha * len(rows) / samples.n)  # the noise n·alpha stays

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, choice: StackChoice, settings: Any) -> StackSolution:
        """The members' functions and systems, and their weights."""
        problems, solutions, predictions, judged = self.problems[: len(choice.choices)], [], [], []
        block: Block | None = None
        seconds = list(choice.seconds)
        for i, (problem, own) in enumerate(zip(problems, choice.choices, strict=True)):
            start = time.perf_counter()
            solution = problem.solve(own)
            if self.weights is None and len(problems) > 1:
                block, values, how = self._left_out(problem, solution.system, choice.learned[i], settings)
                predictions.append(values)
                judged.append(how)
            solutions.append(replace(solution, system=solution.system.at_rest()))
            seconds[i] += time.perf_counter() - start
        system, value, left_out, scores = self._weighed(solutions, predictions, block)
        names = judged or [None] * len(problems)
        kernels = [_scalar(original(own.model)) for own in choice.choices]
        parts = zip(kernels, system.systems, system.weights, scores, choice.learned, names, seconds, strict=True)
        members = Members(Member(k, s.alpha, w, score, m, by, t) for k, s, w, score, m, by, t in parts)
        weights = system.weights[:, 0] if system.weights.shape[1] == 1 else system.weights
        kernel = Stack(kernels, weights=weights.copy(), alphas=system.alpha)
        return StackSolution(system, solutions, members, kernel, left_out, value)

    def _weighed(
        self, solutions: list[Any], predictions: list[Tensor], block: Block | None
    ) -> tuple[StackedSystem, float | None, tuple[Block, Tensor] | None, list[float | None]]:
        """The system with its weights, its error for left-out samples, these, and the errors of the members."""
        systems: tuple[FittedSystem, ...] = tuple(solution.system for solution in solutions)
        if block is None:
            weights = np.ones((1, 1)) if self.weights is None else np.asarray(self.weights, dtype=np.float64)
            system = StackedSystem(systems, weights if weights.ndim == 2 else weights[:, None])
            return system, None, None, [None] * len(systems)
        stacked = torch.stack(predictions)
        system = StackedSystem(systems, self.stacking.weights(stacked, block))
        mean = system.mean(predictions)
        scores: list[float | None] = [self.stacking.error(values, block) for values in predictions]
        return system, self.stacking.error(mean, block), (block, mean), scores

    def _left_out(
        self, problem: P, system: FittedSystem, learned: int, settings: Any
    ) -> tuple[Block, Tensor, str]:
        """Samples of positive weight, the predictions for them by fits without them, and how these were made."""
        block, values = system.left_out_sample()
        trusted = learned <= max(2, TRUSTED_NUMBERS * len(block))
        if trusted or not isinstance(problem.samples, InMemory) or problem.samples.n > limits.STACK_ROWS:
            return block, values, "leave-one-out"
        weights = problem.samples.samples.weights
        rows = np.arange(problem.samples.n) if weights is None else np.flatnonzero(weights.cpu().numpy() > 0)
        part = problem if weights is None else problem.on_rows(rows)
        folds = fold_rows(block, problem.seed)
        values = torch.empty_like(values)
        for (_, test), predicted in zip(folds, part.held_out(folds, replace(settings, verbose=0)), strict=True):
            values[torch.from_numpy(test)] = predicted.to(values)
        return block, values, "folds"


def _scalar(kernel: Any) -> Any:
    """The scalar kernel of k(x, y) I, as a user writes it; other operator-valued kernels stay."""
    return kernel.kernel if isinstance(kernel, Decomposable) else kernel


def learned_numbers(problem: Problem, choice: Choice) -> int:
    """How many numbers were learned: hyperparameters, and alpha."""
    values = choice.model.hyperparameter_values()
    free = sum(values[name].numel() for name in problem.free if name in values)
    return free + int(not isinstance(problem.model.alpha, float))


def fold_rows(block: Block, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random folds (train, test) of whole groups; of one-hot labels, with the classes in equal shares."""
    n = len(block)
    order = np.random.default_rng(seed).permutation(n)
    if block.groups is None:
        Y = block.Y.cpu().numpy()
        is_one_hot = Y.shape[1] > 1 and bool(np.isin(Y, (0.0, 1.0)).all() and (Y.sum(1) == 1).all())
        if is_one_hot:
            order = order[np.argsort(Y.argmax(1)[order], kind="stable")]
        number = np.empty(n, dtype=int)
        number[order] = np.arange(n) % min(FOLDS, n)
    else:
        labels, members = np.unique(block.groups.cpu().numpy(), return_inverse=True)
        number = (np.random.default_rng(seed).permutation(len(labels)) % min(FOLDS, len(labels)))[members]
    return [(np.flatnonzero(number != i), np.flatnonzero(number == i)) for i in range(number.max() + 1)]
