"""Outputs with hyperparameters of their own: a ridge problem for each of them, and one function of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from representer.kernels import Kernel, unscaled
from representer.linalg import power_of_two
from representer.operators import Decomposable, Separate
from representer.optimize import Choice, SearchSettings, learned_numbers
from representer.problems.ridge import RidgeProblem, RidgeSolution, which_vary
from representer.samples import InMemory, plain

# Every output has a search of its own, which takes about as long as that of all outputs: for at most so many of them.
MOST_OUTPUTS = 8
# Every output has a factor of its own, too: samples times outputs are at most so many.
MOST_TARGETS = 20_000
# An output with fewer known targets has nothing of its own to say.
FEWEST_TARGETS = 20
# The precision of the normal prior on the logarithms of an output's hyperparameters around those of all outputs.
POOLING = 4.0


@dataclass(frozen=True)
class Output:
    """The problem of one output in a unit of its own, on the samples where it is known; their share of all weights."""

    problem: RidgeProblem
    share: float


class SeparateProblem(RidgeProblem):
    """The ridge problem of each output by itself, with hyperparameters and an alpha that are near those of all outputs.

    What is best for all outputs is searched first. The search of each output begins there, with a prior that draws it
    back. The function of all outputs is that of one kernel, diag(c₁k₁, …, c_p k_p) with c_j = alpha/alpha_j, and of one
    alpha, the geometric mean of the alpha_j.
    """

    @cached_property
    def outputs(self) -> list[Output]:
        """The problem of each output."""
        block = self._seen.rows(np.arange(self._seen.n))
        total = float(len(block) if block.weights is None else block.weights.sum())
        outputs = []
        for j in range(block.Y.shape[1]):
            own = block.rows(np.flatnonzero(plain(~block.Y[:, j].isnan())))
            y = own.Y[:, j : j + 1]
            unit = float(power_of_two((y - y.mean()).norm()))  # a search ends by the size of its criterion
            own = replace(own, Y=y / unit)
            weight = float(len(own) if own.weights is None else own.weights.sum())
            noise = None if self.model.noise is None else self.model.noise[j : j + 1] / unit**2
            model = replace(self.model, noise=noise)
            problem = RidgeProblem(InMemory(own), model, self.representation, seed=self.seed)
            outputs.append(Output(problem, weight / total))
        return outputs

    def value_and_gradient(self, points: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """There is no criterion of all that is free: every output is searched by its own."""
        raise ValueError("The outputs of a SeparateProblem are searched one by one: ask one of its outputs.")

    @property
    def learned(self) -> int:
        """How many numbers are learned for each output, alpha included."""
        return learned_numbers(self, Choice(self.start_kernel, math.nan))

    def choose(self, settings: SearchSettings, near: Choice | None = None) -> Choice:
        """What is free in the kernel of each output, from what is best for all on: ``near``, where that is known."""
        joint = super().choose(settings) if near is None else near
        choices, interrupted = [], joint.interrupted
        for output in self.outputs:
            choice = replace(joint, alpha=joint.alpha / output.share)
            if not interrupted:
                choice = output.problem.chosen_around(choice, settings, POOLING)
                interrupted = choice.interrupted
            choices.append(choice)
        longest = max(choices, key=lambda choice: choice.n_iter)
        late = next((choice.unconverged for choice in choices if choice.unconverged is not None), None)
        kernels, alphas = [choice.model.kernel for choice in choices], [choice.alpha for choice in choices]
        return replace(
            self._joined(kernels, alphas), history=longest.history, interrupted=interrupted, unconverged=late
        )

    def _joined(self, kernels: Sequence[Kernel], alphas: Sequence[float]) -> Choice:
        """The kernel of all outputs and its alpha, from the kernel and the alpha of each."""
        own = [alpha * output.share for alpha, output in zip(alphas, self.outputs, strict=True)]
        alpha = math.exp(float(np.mean(np.log(own))))
        parts = [(unscaled(kernel), alpha / a) for kernel, a in zip(kernels, own, strict=True)]
        return Choice(Separate([(factor * ratio) * inside for (inside, factor), ratio in parts]), alpha)

    raises = False  # the outputs have done so

    def solve(self, choice: Choice) -> RidgeSolution:
        """The function and its system at the chosen hyperparameters."""
        raised, step = self._raised(choice)
        solution = super().solve(raised)
        return replace(solution, raised_from=solution.system.alpha / step) if step > 1.0 else solution

    def _raised(self, choice: Choice) -> tuple[Choice, float]:
        """The choice with alphas that stand for enough noise, and the largest step to that because of replicates."""
        if self.model.alpha is not None or (self.model.noise is None and self._replicated() is None):
            return choice, 1.0
        kernels: list[Kernel] = choice.model.kernels
        alphas, steps = [], [1.0]
        for output, kernel in zip(self.outputs, kernels, strict=True):
            solution = output.problem.solve(Choice(Decomposable(kernel), choice.alpha / output.share))
            alphas.append(solution.system.alpha)
            steps.append(1.0 if solution.raised_from is None else solution.system.alpha / solution.raised_from)
        joined = self._joined(kernels, alphas)
        return replace(choice, model=joined.model, alpha=joined.alpha), max(steps)


def separate_problems(problems: Sequence[RidgeProblem]) -> list[SeparateProblem]:
    """Those of single outputs that may stand beside these in a stack: for kernels with a number for each feature."""
    return [
        SeparateProblem(own.samples, own.model, own.representation, seed=own.seed, inputs=own.inputs)
        for own in problems
        if _is_separable(own)
    ]


def _is_separable(problem: RidgeProblem) -> bool:
    """Are there few outputs with enough targets that vary, and a kernel of vectors that learns several numbers?"""
    block, model = problem.samples.held, problem.model
    if block is None or not problem.free or isinstance(model.alpha, np.ndarray) or model.kernel.domain != "vectors":
        return False
    n, p = block.Y.shape
    if not 1 < p <= MOST_OUTPUTS or n * p > MOST_TARGETS or not problem.uncoupled:
        return False
    values = problem.start_kernel.hyperparameter_values()
    several = sum(values[name].numel() for name in problem.free) > 1
    return several and int((~block.Y.isnan()).sum(0).min()) >= FEWEST_TARGETS and bool(which_vary(block.Y).all())
