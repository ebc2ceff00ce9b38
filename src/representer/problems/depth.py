"""Depth that the data decide: shallow fits, and a composition beside them that has a weight where it pays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions import Composed, Layer
from representer.kernels import Gaussian, Laplacian, Matern, Polynomial, Standardized
from representer.linalg import least_squares
from representer.operators import Decomposable
from representer.optimize import Choice, Problem, SearchSettings
from representer.optimize.search import interruption
from representer.problems.composition import Composition
from representer.problems.deep import DeepChoice, DeepRegression, DeepSolution, HyperparameterSearch
from representer.problems.stack import (
    NEGLIGIBLE,
    FittedMember,
    StackChoice,
    Stacking,
    StackProblem,
    StackSolution,
    told,
)
from representer.samples import Block, Data, InMemory, Samples, plain
from representer.systems import ComposedSystem, FittedSystem, ridge_system

# Of fewer samples than these, held-out folds cannot tell whether an inner layer pays.
FEWEST_SAMPLES = 20
# Its penalty is chosen by so many of the folds; all of them decide whether it is accepted.
SEARCHED_FOLDS = 3
# A layer with many unknowns for its samples is a guess: so many restarts, and iterations of each, are enough for it and
# for its refits.
BRIEF_RESTARTS, BRIEF_ITERATIONS = 4, 30
# The automatic layer is an affine map of all features, or to at most this many dimensions.
LARGEST_LAYER = 20


class LightRegression(DeepRegression):
    """A composition of one affine layer whose numbers are looked for briefly: it is one member of a stack."""

    _explored: tuple[list[Tensor], bool] | None = None
    _last: list[Tensor] | None = None  # images of the samples that the search has looked at

    def promise(self, settings: SearchSettings) -> float:
        """The share of the variance that leave-one-out leaves unexplained at images under a layer that costs little."""
        images, interrupted = self._explore(settings, self._generator())
        if interrupted:
            raise KeyboardInterrupt
        return self._ridge_alpha(self.start, images[-1], self._searched[1])[1]

    def _explore(self, settings: SearchSettings, generator: torch.Generator) -> tuple[list[Tensor], bool]:
        if self._explored is None:
            self._explored = super()._explore(self.brief(settings), generator)
        return self._explored

    def brief(self, settings: SearchSettings) -> SearchSettings:
        """The settings, with less of everything for a layer of many unknowns."""
        if self.inner_is_small:
            return settings
        n_restarts, max_iter = min(settings.n_restarts, BRIEF_RESTARTS), min(settings.max_iter, BRIEF_ITERATIONS)
        return replace(settings, n_restarts=n_restarts, max_iter=max_iter)

    def refits(
        self, composition: Composition, images: Sequence[Tensor], settings: SearchSettings, *, searched: bool = True
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Those of a layer with many unknowns begin where its fit to all samples began, not where that ended: in few
        iterations it would not forget the samples that are held out."""
        if self.inner_is_small or self.beginning.image is None:
            return super().refits(composition, images, settings, searched=searched)
        return super().refits(composition, [self.beginning.image], self.brief(settings), searched=searched)

    def choose(self, settings: SearchSettings) -> DeepChoice:
        """What is free, chosen on some of the samples, and images of all from which the last fit starts."""
        choice = super().choose(settings)
        if not self.inner_is_small and self.beginning.image is not None:
            return replace(choice, images=[self.beginning.image], settings=self.brief(replace(settings, n_restarts=1)))
        if choice.images is None and self._last is not None:
            choice = replace(choice, images=self._everywhere(self._last))
        return replace(choice, settings=replace(settings, n_restarts=1))  # the restarts have raced before

    def _splits_of(self, criterion: str) -> Sequence[tuple[Tensor | None, Tensor | None]]:
        return super()._splits_of(criterion)[:SEARCHED_FOLDS]

    def _descend(
        self, composition: Composition, criterion: str, images: list[Tensor], settings: SearchSettings
    ) -> tuple[Choice, list[Tensor]]:
        settings = self.brief(settings)
        choice, self._last = super()._descend(composition, criterion, images, settings)
        return choice, self._last

    def _refined(self, search: HyperparameterSearch, settings: SearchSettings) -> Choice:
        """Of a layer with many unknowns, the penalty is one of those that were tried."""
        tried = not self.inner_is_small and self.last_images is None
        return search.tried() if tried else super()._refined(search, settings)

    def _everywhere(self, images: list[Tensor]) -> list[Tensor]:
        """The images of all samples under the affine map that gives those of some."""
        rows, X = self.splits.rows, self.kernel_data
        ones = torch.cat([X, torch.ones_like(X[:, :1])], 1)
        return [ones @ least_squares(ones[rows], images[0])]


@dataclass(frozen=True)
class DeepMember:
    """A composition as a member of a stack."""

    function: Composed
    system: ComposedSystem
    deep: DeepSolution


class DepthProblem(StackProblem):
    """A stack of shallow fits, and of a composition where that predicts held-out samples better.

    The weights of shallow members rest on exact leave-one-out, that of the composition on refits without each fold,
    in which the inner layers are learned anew: what they have adapted to does not count for them.

    Parameters
    ----------
    problems : sequence of Problem
        The shallow ones.
    stacking : Stacking
    deepen : callable
        Makes candidates for the composition of some samples, given the fitted shallow members; inner layers begin with
        what these have learned. The one that promises most is fitted.
    deep_settings : SearchSettings
        Those of the composition.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        stacking: Stacking,
        deepen: Callable[[Samples, Data, list[FittedMember]], list[LightRegression]],
        deep_settings: SearchSettings,
    ):
        super().__init__(problems, stacking)
        self.deepen, self.deep_settings = deepen, deep_settings

    def on_rows(self, rows: np.ndarray) -> DepthProblem:
        """The same problem for some of the samples, in memory."""
        problems = [problem.on_rows(rows) for problem in self.problems]
        return DepthProblem(problems, self.stacking, self.deepen, self.deep_settings)

    def solve(self, choice: StackChoice) -> StackSolution:
        """The shallow members, and the composition if it is accepted."""
        members = self.fitted(choice)
        left_out = members[0].left_out
        if members[-1].choice.interrupted or left_out is None or len(left_out[0]) < FEWEST_SAMPLES:
            return told(self.joined(members), choice.message)
        try:
            deep = self._composition(members)
            if deep is None:
                return self.joined(members)
        except KeyboardInterrupt:  # in the refits: without them nothing says that depth pays
            last = replace(members[-1], choice=replace(members[-1].choice, interrupted=True))
            return told(self.joined([*members[:-1], last]), self._interruption)
        shallow, both = self.joined(members), self.joined([*members, deep])
        assert shallow.choice.value is not None and both.choice.value is not None
        accepted = both.choice.value < shallow.choice.value and both.system.weights[-1].max() > NEGLIGIBLE
        solution = both if accepted else shallow
        return told(solution, self._interruption) if deep.solution.deep.interrupted else solution

    @property
    def _interruption(self) -> str | None:
        return interruption(self.deep_settings.deadline, "an inner layer")

    def _composition(self, members: list[FittedMember]) -> FittedMember | None:
        """The composition, fitted, with what refits say of the samples that they have not seen; None without one."""
        start = time.perf_counter()
        settings = self.deep_settings
        candidates = self.deepen(self.samples, self.inputs, members)
        if not candidates:
            return None
        problem = min(candidates, key=lambda own: own.promise(settings)) if len(candidates) > 1 else candidates[0]
        deep = problem.solve(problem.choose(settings))
        settings.tell("searched a layer before the kernels; now without each fold")
        system = composed_system(deep)
        left_out = system.left_out_sample()
        solution = DeepMember(system.function(), system.at_rest(), deep)
        learned = sum(deep.composition.hyperparameter_values()[name].numel() for name in problem.free)
        seconds = time.perf_counter() - start
        return FittedMember(deep.composition, deep.choice, solution, left_out, learned, seconds)


# -- where the inner layer begins -------------------------------------------------------------------------------------
def deepened(
    members: Sequence[FittedMember], stacking: Stacking, n_features: int, alpha: object
) -> list[tuple[Composition, np.ndarray | None]]:
    """Compositions that begin as shallow fits: an affine layer before a smooth kernel, and before a rough one.

    The second values are the inverse lengthscales (d,) of the best smooth or rough member, by which the layer first
    multiplies the features. A kernel of sums of absolute values depends on the axes, which a layer turns: one of the
    same roughness takes its place. A kernel that is the only one stays as it was stated, and the layer begins with
    kernel PCA. There are no compositions where no member has lengthscales of its features.
    """
    size = min(LARGEST_LAYER, n_features)
    if len(members) == 1:
        layer = Layer(Decomposable(Polynomial(1, gamma="scale")), size)
        return [(Composition([layer], members[0].kernel, alpha), None)]
    candidates: list[tuple[Composition, np.ndarray | None]] = []
    for kinds in (Gaussian, (Matern, Laplacian)):
        best = best_member(members, stacking, kinds)
        if best is not None:
            kernel, units = best
            unit = Gaussian(1.0) if isinstance(kernel, Gaussian) else Matern(getattr(kernel, "nu", 0.5), 1.0)
            affine: Any = Polynomial(1, gamma="scale")
            affine = affine if units is None else Standardized(affine, units.center, units.scale)
            lengths = np.asarray(kernel.lengthscale, dtype=np.float64) * (1.0 if units is None else units.scale)
            metric = np.broadcast_to(1.0 / lengths, (n_features,)).copy()
            candidates.append((Composition([Layer(Decomposable(affine), size)], Decomposable(unit), alpha), metric))
    return candidates


def best_member(
    members: Sequence[FittedMember], stacking: Stacking, kinds: Any
) -> tuple[Any, Standardized | None] | None:
    """The learned kernel of some kinds with the least error for left-out samples, and the units that it counts in.

    None where no member has such a kernel.
    """
    best, least = None, math.inf
    for own in members:
        outside = own.kernel.kernel if isinstance(own.kernel, Decomposable) else None
        units = outside if isinstance(outside, Standardized) else None
        kernel = outside if units is None else units.kernel
        if isinstance(kernel, kinds) and own.left_out is not None:
            block, values = own.left_out
            error = stacking.error(values, block) * own.factor(len(block)) ** 2
            best, least = ((kernel, units), error) if error < least else (best, least)
    return best


def accepted_composition(solution: StackSolution) -> DeepSolution | None:
    """The composition of a stack, if it was accepted."""
    last = solution.solutions[-1]
    return last.deep if isinstance(last, DeepMember) else None


def composed_system(solution: DeepSolution) -> ComposedSystem:
    """The system of a fitted composition: its outer function on images, and predictions of refits without each fold."""
    problem, inner = solution.regression, solution.function.inner
    block, how = problem.samples.rows(np.arange(problem.samples.n)), replace(problem.representation, sparse=False)
    images = solution.function.images(problem.stored_inputs)[-1]
    kernel = how.adapted(solution.composition.kernel, repair=True)
    outer = ridge_system(
        kernel,
        InMemory(Block(images, block.Y, block.weights, block.groups)),
        solution.alpha,
        how,
        intercept=problem.model.loss.intercept,
        seed=problem.seed,
    )
    system = ComposedSystem(
        alpha=outer.alpha,
        fit_intercept=outer.fit_intercept,
        samples=outer.samples,
        inner=inner,
        outer=outer,
        held_out=plain(held_out_predictions(solution, outer)),
    )
    return system


def held_out_predictions(solution: DeepSolution, outer: FittedSystem) -> Tensor:
    """The prediction (n, p) for each sample by a refit without its fold.

    Samples that no fold holds out have leave-one-out predictions of the outer function.
    """
    values = outer.left_out_sample()[1].clone()
    for decisions, rows in solution.refits():
        values[rows] = decisions.to(values)
    return values
