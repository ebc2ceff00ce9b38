"""Stacks: several kernels are fitted by their own problems, and averaged by what they say of left-out samples."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from representer.functions import Stacked
from representer.kernels import Gaussian, Kernel, Matern, Stack
from representer.operators import Decomposable, Identity, Operator, OperatorKernel, Separate, original, replicates
from representer.optimize import OPTIMISM, Choice, Problem, SearchSettings, learned_numbers
from representer.optimize.search import at_kernel, cut_short, interruption
from representer.preimage.probabilities import calibrate_embedding, class_estimates
from representer.problems.ridge import RidgeProblem, which_vary
from representer.problems.separate import SeparateProblem
from representer.samples import Block
from representer.samples import rows as limits
from representer.systems import FittedSystem, StackedSystem

# The share λ/(1 + λ) of the correlations between the residuals of different members is taken for noise, of up to so
# many residuals; of more λ falls as 1/n, as the variance of a correlation does. Members that have learned nothing but
# alpha have honest residuals: that variance, 1/n, is all that is taken for noise.
DECORRELATION, FEW_RESIDUALS = 4.0, 100
# Of classes, inverse cross entropies count as so many samples beside those that decide the weights.
PRIOR_SAMPLES = 50.0
# The precision of the prior on the logarithms of a member's lengthscales around their mean, where left-out residuals
# choose them, and where the likelihood does, which needs less of it.
SHRINKAGE, LIKELY_SHRINKAGE = 4.0, 1.0


# -- weights ----------------------------------------------------------------------------------------------------------
class Stacking(ABC):
    """How left-out predictions (m, n, p) of the members decide their weights, and what their error is."""

    @abstractmethod
    def weights(self, predictions: Tensor, block: Block, losses: list[Tensor], optimism: np.ndarray) -> np.ndarray:
        """Weights (m, p), or (m, 1) for all outputs: at least 0, and their sum over the members is one.

        ``losses`` are those of the members, ``optimism`` (m,) the factors by which they, or residuals, are larger than
        they look.
        """

    def of_fixed_kernels(self) -> Stacking:
        """The same for members that have learned nothing but alpha."""
        return self

    @abstractmethod
    def losses(self, predictions: Tensor, block: Block) -> Tensor:
        """The loss of each prediction (n, p), or (n, 1) of all outputs; NaN where a target is missing."""

    def error(self, predictions: Tensor, block: Block) -> float:
        """The error of predictions (n, p) of the targets: their mean loss."""
        return mean_loss(self.losses(predictions, block), block)


def mean_loss(losses: Tensor, block: Block) -> float:
    """The weighted mean of the losses that are known."""
    w = losses.new_ones(len(losses)) if block.weights is None else block.weights.to(losses)
    w, known = w.reshape(len(w), -1), ~losses.isnan()
    return float((w * losses.nan_to_num(0.0)).sum() / (w * known).sum())


@dataclass(frozen=True)
class LeastSquares(Stacking):
    """The weights of least squared error, for each output.

    Parameters
    ----------
    decorrelation : float, default=4
        λ of :func:`simplex_weights`.
    """

    decorrelation: float = DECORRELATION

    def of_fixed_kernels(self) -> LeastSquares:
        return LeastSquares(1.0 / FEW_RESIDUALS)

    def weights(self, predictions: Tensor, block: Block, losses: list[Tensor], optimism: np.ndarray) -> np.ndarray:
        columns = []
        for j in range(block.Y.shape[1]):
            # Without its only observed target, an output has no prediction to judge.
            known = ~block.Y[:, j].isnan() & predictions[:, :, j].isfinite().all(0).to(block.Y.device)
            missed = (predictions[:, known, j] - block.Y[known, j].to(predictions)).mT
            if block.weights is not None:
                own = block.weights if block.weights.ndim == 1 else block.weights[:, j]
                missed = missed * own[known, None].to(missed).sqrt()
            columns.append(simplex_weights(missed.cpu().double().numpy() * optimism, self.decorrelation))
        return np.stack(columns, 1)

    def losses(self, predictions: Tensor, block: Block) -> Tensor:
        return (predictions - block.Y.to(predictions)) ** 2


def simplex_weights(missed: np.ndarray, decorrelation: float = DECORRELATION) -> np.ndarray:
    """The weights w (m,), at least 0 with the sum one, that minimise ‖Rw‖² + λ Σ_j ‖r_j‖² w_j² for residuals R (n, m).

    λ = ``decorrelation``, or less where there are many residuals, shrinks the correlations between different ones by
    1/(1 + λ). For u = t·w with w on the simplex and a quadratic form q, the least q(u) + (1ᵀu − 1)² over t is
    q(w)/(1 + q(w)): both problems have the same w, and the second is one of non-negative least squares.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.problems.stack import simplex_weights
    >>> simplex_weights(np.array([[1.0, -1.0], [1.0, -1.0]])).round(12).tolist()
    [0.5, 0.5]
    """
    if not len(missed):
        return np.full(missed.shape[1], 1.0 / missed.shape[1])
    norms = np.linalg.norm(missed, axis=0)
    if not norms.min() > np.finfo(float).tiny ** 0.5 * max(1.0, norms.max()):  # a member that misses nothing
        best = norms == norms.min()
        return best / best.sum()
    triangle = np.linalg.qr(missed / norms.min(), mode="r")
    penalty = decorrelation * min(1.0, FEW_RESIDUALS / len(missed))
    ridge = np.diag(np.sqrt(penalty) * norms / norms.min())
    extended = np.vstack([triangle, ridge, np.ones(len(norms))])
    w, _ = nnls(extended, np.append(np.zeros(len(triangle) + len(ridge)), 1.0))
    return w / w.sum()


class LogLoss(Stacking):
    """The weights of greatest likelihood of the mixture of the members' calibrated estimates of classes, with a prior.

    Without one they are those of one member as soon as it is a little ahead by chance, and worse for new samples than
    plain means. The prior is a Dirichlet one of ``PRIOR_SAMPLES`` samples around inverse cross entropies.
    """

    def weights(self, predictions: Tensor, block: Block, losses: list[Tensor], optimism: np.ndarray) -> np.ndarray:
        inverse = 1.0 / np.maximum([mean_loss(own, block) for own in losses] * optimism, 1.0 / (len(block) + 2.0))
        expected = torch.cat(losses, 1).mT.numpy() * optimism[:, None]
        shares = np.ones(len(block)) if block.weights is None else block.weights.cpu().double().numpy()
        return mixture_weights(expected, shares / shares.mean(), PRIOR_SAMPLES * inverse / inverse.sum())[:, None]

    def losses(self, predictions: Tensor, block: Block) -> Tensor:
        calibration = calibrate_embedding(predictions, block.Y, block.weights, sparing=True)
        p = (calibration(predictions.double().cpu().numpy()) * block.Y.cpu().numpy()).sum(1)
        return -torch.from_numpy(np.log(np.maximum(p, np.finfo(float).tiny)))[:, None]


class CodesLogLoss(LogLoss):
    """The same for regressions on codes −1 and 1 of the classes; one column stands for two classes."""

    def losses(self, predictions: Tensor, block: Block) -> Tensor:
        return super().losses(class_estimates(predictions), replace(block, Y=class_estimates(block.Y)))


def mixture_weights(losses: np.ndarray, shares: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """The w (m,) on the simplex of greatest Σ_i s_i log Σ_m w_m exp(−ℓ_mi) + Σ_m a_m log w_m.

    ``losses`` ℓ (m, n) are negative log-likelihoods of n samples with weights ``shares`` s, and ``prior`` a holds the
    positive parameters of a Dirichlet prior. The sum is strictly concave, and expectation maximisation increases it.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.problems.stack import mixture_weights
    >>> mixture_weights(np.array([[0.0], [0.0]]), np.ones(1), np.array([3.0, 1.0])).tolist()
    [0.75, 0.25]
    """
    likelihood = np.exp(losses.min(0) - losses)
    w = prior / prior.sum()
    for _ in range(1000):
        before, joint = w, w[:, None] * likelihood
        w = (joint / joint.sum(0)) @ shares + prior
        w /= w.sum()
        if np.abs(w - before).max() < 1e-7:
            break
    return w


# -- members ----------------------------------------------------------------------------------------------------------
class Member(NamedTuple):
    """One kernel of a stack, as it was fitted."""

    kernel: Any  # with numbers for all hyperparameters
    alpha: float
    weights: np.ndarray  # (p,), or (1,) for all outputs
    score: float | None  # the error for left-out samples; None where nothing was asked of them
    learned: int  # how many numbers were learned, alpha included; of kernels for each output, those of one
    seconds: float


class Members(tuple[Member, ...]):
    """The members of a stack, printed as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        rows = [("weight", "error", "learned", "alpha", "seconds", "kernel")]
        for own in self:
            weight = " ".join(f"{w:.3f}" for w in own.weights)
            score, kernel = "" if own.score is None else f"{own.score:.5g}", repr(own.kernel)
            kernel = kernel if len(kernel) <= 60 else f"{kernel[:57]}..."
            rows.append((weight, score, str(own.learned), f"{own.alpha:.3g}", f"{own.seconds:.2f}", kernel))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


@dataclass(frozen=True)
class FittedMember:
    """A member that was searched and solved by itself, before it has a weight.

    Parameters
    ----------
    kernel : Value
        With numbers for all hyperparameters; a composition, if the member is one.
    choice : Choice
    solution : a solution with a function and a system
    left_out : tuple of Block and tensor (n, p), or None
        Samples, and what fits without each of them predict; None where weights are given.
    learned : int
        How many numbers were learned, alpha included; of kernels for each output, those of one.
    seconds : float
    optimism : float
        The share over n by which each of these numbers makes left-out residuals too small.
    """

    kernel: Any
    choice: Choice
    solution: Any
    left_out: tuple[Block, Tensor] | None
    learned: int
    seconds: float
    optimism: float = OPTIMISM

    def factor(self, n: int) -> float:
        """How many times left-out residuals of n samples count."""
        return 1.0 + self.optimism * self.learned / n


@dataclass(frozen=True)
class StackSolution:
    """The function and the system of a stack, and how they came about.

    Parameters
    ----------
    function : Stacked
    system : StackedSystem
    solutions : list
        What the members' problems give.
    members : Members
    kernel : Stack
        With numbers for all kernels, weights and alphas; scalar kernels where all have the same output operator.
    operator : Operator or None
        That operator.
    choice : Choice
        The search of the member of greatest weight; its value is the error of the stack for left-out samples.
    left_out : tuple of Block and tensor (n, p), or None
        Samples and the stack's predictions for them without each, where weights were decided by them.
    """

    function: Stacked
    system: StackedSystem
    solutions: list[Any]
    members: Members
    kernel: Stack
    operator: Operator | None
    choice: Choice
    left_out: tuple[Block, Tensor] | None


@dataclass(frozen=True)
class StackChoice:
    """What the members of a stack have chosen, each by itself, and the seconds that it took; an interrupted search is
    the last one, and has a message unless its time was over."""

    members: list[Choice]
    seconds: list[float]
    message: str | None = None


class StackProblem(Problem):
    """min over w of the error of Σ_m w_m f_m for left-out samples, where f_m solves the m-th problem by itself.

    Parameters
    ----------
    problems : sequence of Problem
        Of the same samples, each with a kernel of its own.
    stacking : Stacking
        How weights are decided.
    weights : array (m,), (m, p) or None
        The weights, where they are given.
    """

    def __init__(self, problems: Sequence[Problem], stacking: Stacking, weights: np.ndarray | None = None):
        first = problems[0]
        models = [problem.model for problem in problems]
        super().__init__(first.samples, models, first.representation, seed=first.seed, inputs=first.inputs)
        self.problems, self.stacking, self.weights = list(problems), stacking, weights

    @property
    def free(self) -> list[str]:
        """The names of the hyperparameters that are left to the search, behind the number of their member."""
        return [f"{m}__{name}" for m, problem in enumerate(self.problems) for name in problem.free]

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A stack has no criterion of all that is free: every member is searched by its own."""
        raise ValueError("The members of a stack are searched one by one: ask one of its problems.")

    @property
    def pairwise(self) -> bool:
        """Are the inputs a Gram matrix, whose columns are samples, too?"""
        return self.problems[0].pairwise

    def on_rows(self, rows: np.ndarray) -> StackProblem:
        """The same stack for some of the samples, in memory."""
        return StackProblem([problem.on_rows(rows) for problem in self.problems], self.stacking, self.weights)

    def choose(self, settings: SearchSettings) -> StackChoice:
        """What is free in the members, each searched by itself."""
        choices: list[Choice] = []
        seconds, message = [], None
        for m, problem in enumerate(self.problems, 1):
            start = time.perf_counter()
            try:
                if choices:
                    settings.deadline.check()
                choices.append(_chosen(problem, settings, self._forerunner(problem, choices)))
            except KeyboardInterrupt:  # before its search had a first value
                if not choices:
                    raise
                choices[-1] = replace(choices[-1], interrupted=True)
            else:
                seconds.append(time.perf_counter() - start)
                kernel: Any = original(problem.model.kernel)
                scalar = kernel.kernel if isinstance(kernel, Decomposable) else kernel
                settings.tell(f"searched kernel {m} of {len(self.problems)}, {scalar!r:.60}")
            if choices[-1].interrupted:
                message = interruption(settings.deadline, at_kernel(m, len(self.problems)))
                break
        return StackChoice(choices, seconds, message)

    def _forerunner(self, problem: Problem, choices: list[Choice]) -> Choice | None:
        """The choice of a simpler member of the same kernel, where the search begins.

        For a lengthscale of each feature that is one lengthscale for all, for kernels of each output one for all.
        """
        wanted = repr(problem.model.kernel)
        wanted = wanted if isinstance(problem, SeparateProblem) else wanted.replace("'ard'", "'auto'")
        for before, choice in zip(self.problems, choices, strict=False):
            if before is not problem and repr(before.model.kernel) == wanted:
                return choice
        return None

    def solve(self, choice: StackChoice) -> StackSolution:
        """The members at what they have chosen, and their weights."""
        return told(self.joined(self.fitted(choice)), choice.message)

    def fitted(self, choice: StackChoice) -> list[FittedMember]:
        """The members at what they have chosen, each by itself."""
        members = []
        for problem, own, searched in zip(self.problems, choice.members, choice.seconds, strict=False):
            start = time.perf_counter()
            solution = problem.solve(own)
            left_out = solution.system.left_out_sample() if self.weights is None else None
            solution = replace(solution, system=solution.system.at_rest())
            learned = problem.learned if isinstance(problem, SeparateProblem) else learned_numbers(problem, own)
            seconds = searched + time.perf_counter() - start
            kernel = original(own.model)
            members.append(FittedMember(kernel, own, solution, left_out, learned, seconds, problem.optimism))
        return members

    def joined(self, fitted: Sequence[FittedMember]) -> StackSolution:
        """The stack of members that were fitted, with their weights."""
        systems, learned = tuple(own.solution.system for own in fitted), [own.learned for own in fitted]
        predictions = [own.left_out[1] for own in fitted if own.left_out is not None]
        block = None if fitted[0].left_out is None else fitted[0].left_out[0]
        n = self.samples.positive_part(pairwise=False).n
        optimism = np.array([own.factor(n) for own in fitted])
        system, left_out, scores = self._weighed(systems, predictions, block, optimism, searched=max(learned) > 1)
        kernels, operator = without_operator([own.kernel for own in fitted])
        parts = zip(kernels, fitted, system.weights, scores, strict=True)
        members = Members(
            Member(k, own.solution.system.alpha, w, score, own.learned, own.seconds) for k, own, w, score in parts
        )
        weights = system.weights[:, 0] if system.weights.shape[1] == 1 else system.weights
        kernel = Stack(kernels, weights=weights.copy(), alphas=system.alpha)
        summary = self._summary(fitted, system.weights, left_out)
        solutions = [own.solution for own in fitted]
        function = Stacked(tuple(solution.function for solution in solutions), system.weights)
        return StackSolution(function, system, solutions, members, kernel, operator, summary, left_out)

    def _weighed(
        self,
        systems: tuple[FittedSystem, ...],
        predictions: list[Tensor],
        block: Block | None,
        optimism: np.ndarray,
        *,
        searched: bool,
    ) -> tuple[StackedSystem, tuple[Block, Tensor] | None, Sequence[float | None]]:
        """The system with its weights, what it says of left-out samples, and the errors of the members for them."""
        if block is None:
            weights = np.asarray(self.weights, dtype=np.float64)[: len(systems)]
            weights = weights if weights.ndim == 2 else weights[:, None]
            if len(weights) < len(self.problems):  # an interrupted search was the last
                weights = weights / weights.sum(0)
            return StackedSystem(systems, weights, optimism), None, [None] * len(systems)
        stacking = self.stacking if searched else self.stacking.of_fixed_kernels()
        losses = [stacking.losses(values, block) for values in predictions]
        weights = stacking.weights(torch.stack(predictions), block, losses, optimism)
        system = StackedSystem(systems, weights, optimism)
        return system, (block, system.mean(predictions)), [mean_loss(own, block) for own in losses]

    def _summary(
        self, fitted: Sequence[FittedMember], weights: np.ndarray, left_out: tuple[Block, Tensor] | None
    ) -> Choice:
        """The search of the member of greatest weight, with the error of the stack."""
        value = None if left_out is None else self.stacking.error(left_out[1], left_out[0])
        heavy = [own for own, w in zip(fitted, weights, strict=True) if w.max() > NEGLIGIBLE]
        late = next(
            (f"{own.kernel!r}: {own.choice.unconverged}" for own in heavy if own.choice.unconverged is not None), None
        )
        return replace(fitted[int(weights.sum(1).argmax())].choice, value=value, unconverged=late)


def told(solution: StackSolution, message: str | None) -> StackSolution:
    """The solution with what is to be said of its search, if anything is."""
    return solution if message is None else replace(solution, choice=cut_short(solution.choice, message))


def by_likelihood(problems: Sequence[RidgeProblem]) -> list[RidgeProblem]:
    """The problems, with those of a lengthscale for each feature searched by the restricted likelihood.

    It is ahead where there is noise. Where there is none, left-out residuals are: they choose Gaussian kernels, too.
    Beside these a Matérn kernel of one lengthscale adds nothing but time, and leaves.
    """
    searched = [problem for problem in problems if _has_likelihood(problem)]
    if not searched:
        return list(problems)
    leaves = [_is(own, Matern) or (own in searched and not _is(own, Gaussian)) for own in problems]
    return [own for own, left in zip(problems, leaves, strict=True) if not left] + [
        RidgeProblem(
            own.samples,
            replace(own.model, likelihood=True, shrinkage=LIKELY_SHRINKAGE),
            own.representation,
            seed=own.seed,
            inputs=own.inputs,
        )
        for own in searched
    ]


def _has_likelihood(problem: RidgeProblem) -> bool:
    """Are alpha and a number for each feature searched by leave-one-out of single samples with one output?

    There must be more different samples than numbers, and targets that vary.
    """
    model, block = problem.model, problem.samples.held
    if block is None or block.Y.shape[1] > 1 or not isinstance(model.kernel, Decomposable) or model.learn_operator:
        return False
    if model.alpha is not None or model.criterion != "loo" or not problem.scope.spans_all:
        return False
    values = problem.start_kernel.hyperparameter_values()
    sizes = [values[name].numel() for name in problem.free]
    if max(sizes, default=0) <= 1 or not bool(which_vary(block.Y).all()):
        return False
    return _different(block, model.kernel) > sum(sizes) + 1


def _different(block: Block, kernel: OperatorKernel) -> int:
    """How many samples differ in their inputs; 0 where groups join such samples, or equal ones of unknown targets."""
    if block.groups is None:
        return len(block)
    numbers, n_groups = replicates(kernel, block.X), len(block.groups.unique())
    different = len(block) if numbers is None else len(np.unique(numbers))
    alone = different == n_groups and not bool(block.Y.isnan().any())
    return n_groups if alone else 0


def _is(problem: RidgeProblem, kind: type[Kernel]) -> bool:
    """Is the kernel of this kind, inside of what prepares its inputs?"""
    kernel: Any = problem.model.kernel
    while hasattr(kernel, "kernel"):
        kernel = kernel.kernel
    return isinstance(kernel, kind)


# A member of less weight need not have converged: nobody is told.
NEGLIGIBLE = 0.05


def _chosen(problem: Problem, settings: SearchSettings, near: Choice | None = None) -> Choice:
    """The choice of a member by its own criterion; of many samples in an exact fit, a random part decides.

    The search of a ridge problem starts near the choice of another one, if there is one.
    """
    samples, model = problem.samples, problem.model
    if not isinstance(problem, RidgeProblem):
        return problem.choose(settings)
    rows = problem.scope.part(samples, limits.STACK_ROWS, problem.seed)
    searched = bool(problem.free) and model.alpha is None
    if not searched or len(rows) == samples.n:
        return problem.choose(settings, near)
    if near is not None:
        near = replace(near, alpha=near.alpha * samples.n / len(rows))
    choice = problem.on_rows(rows).choose(settings, near)
    return replace(choice, alpha=choice.alpha * len(rows) / samples.n)  # the noise n·alpha stays


def without_operator(kernels: list[Any]) -> tuple[list[Any], Operator | None]:
    """The scalar kernels k of K(x, y) = k(x, y) A, and A, where all have the same one; other kernels as they are.

    Beside kernels of each output, scalar kernels stand for k(x, y) I.
    """
    operators = [k._operator for k in kernels if isinstance(k, Decomposable)]
    strangers = [k for k in kernels if isinstance(k, OperatorKernel) and not isinstance(k, Decomposable)]
    if not operators or any(operator != operators[0] for operator in operators):
        return kernels, None
    if strangers and not all(isinstance(k, Separate) and operators[0] == Identity() for k in strangers):
        return kernels, None
    scalars = [k.kernel if isinstance(k, Decomposable) else k for k in kernels]
    return scalars, None if strangers else operators[0]
