"""Systems made of others: of a composition's outer function, whose samples are images, and of a stack of fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions import Composed, Expansion, FieldState, Stacked, StoredFeatures
from representer.linalg import factorize
from representer.operators import Decomposable, repaired_gram, silent_repairs
from representer.samples import Block, Data, HeldSamples, Samples, plain
from representer.systems.base import System
from representer.systems.ridge import AlphaRule, FitReport, FittedSystem, LeftOutMoments, Loss, robust_scale


@dataclass(frozen=True, kw_only=True)
class ComposedSystem(FittedSystem):
    """What is known of f_L ∘ … ∘ f_1 + b from the system of f_L, and from refits that learned the inner functions anew.

    Leave-one-out of the outer system alone holds the inner functions fixed, which have seen the sample that is left
    out: here left-out predictions are those of refits without whole folds.

    Parameters
    ----------
    inner : tuple of Expansion
        f_1, …, f_{L−1} as they are stored.
    outer : FittedSystem
        That of f_L, on images of the samples.
    held_out : array (n, p)
        For each sample of positive weight, the prediction by a refit without its fold.
    """

    inner: tuple[Expansion, ...]
    outer: FittedSystem
    held_out: np.ndarray

    @property
    def weight(self) -> float:
        return self.outer.weight

    def _images(self, X: Data) -> Data:
        """The images of checked inputs under the inner functions."""
        return self.function().images(X)[-1]

    def function(self) -> Composed:  # type: ignore[override]
        outer = self.outer.function()
        assert isinstance(outer, Expansion)
        return Composed(self.inner, outer)

    def coefficients(self) -> Tensor:
        """C (n, p) of the images of the samples."""
        return self.outer.coefficients()

    def intercept(self) -> Tensor | None:
        return self.outer.intercept()

    def residual(self) -> float:
        return self.outer.residual()

    def norm(self) -> float:
        """‖f_L‖, the norm of the outer function in its RKHS."""
        return self.outer.norm()

    def report(self, samples: Samples, loss: Loss) -> FitReport:
        return self.outer.report(samples, loss)

    def leverage(self) -> Tensor:
        """∂f(x_i)/∂y_i (n, p) with the inner functions held fixed."""
        return self.outer.leverage()

    def _refitted(self, like: Tensor) -> Tensor:
        return torch.from_numpy(self.held_out).to(like)

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """The prediction (n, p) for each sample by a refit without its fold, in which whole groups are."""
        values = self.outer.left_out(groups).clone()
        weights = None if self.samples is None else self.samples.weights
        positive = slice(None) if weights is None else torch.from_numpy(weights > 0)
        values[positive] = self._refitted(values)
        return values

    def left_out_sample(self) -> tuple[Block, Tensor]:
        """All samples of positive weight, and the prediction for each by a refit without its fold."""
        block, values = self.outer.left_out_sample()
        return block, self._refitted(values)

    def left_out_moments(self) -> LeftOutMoments:
        """The same predictions with the variances of the outer system."""
        own = self.outer.left_out_moments()
        return LeftOutMoments(own.Y, self._refitted(own.mean), own.variance)

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f_L + b at the images of new points."""
        return self.outer.variance(self._images(X))

    def _variance_rounding(self) -> tuple[float, float]:
        return self.outer._variance_rounding()

    def influence(self, X: Data) -> Tensor:
        """f(x) − f₋ₛ(x) (m, n, p) at new points with the inner functions held fixed."""
        return self.outer.influence(self._images(X))

    def at_rest(self) -> ComposedSystem:
        """The system as a learner keeps it, without matrices of all samples."""
        return replace(self, outer=self.outer.at_rest())


def interpolation_error(function: Composed | Stacked) -> float | None:
    """The mean squared leave-one-out error of an interpolant, inner layers fixed: residuals are c_i / [K⁻¹]_ii.

    None where the outer kernel is not a scalar one.
    """
    outer = function.outer_expansion().loaded if isinstance(function, Composed) else None
    if outer is None or not isinstance(outer.kernel, Decomposable) or outer.kernel.operator is not None:
        return None
    with torch.no_grad(), silent_repairs():
        gram, _ = repaired_gram(outer.kernel.kernel, outer.anchors)
        diagonal = factorize(gram, name="The Gram matrix of an interpolant").inverse_diagonal()
    return float((outer.coefficients / diagonal[:, None]).square().sum(1).mean())


@dataclass(frozen=True)
class StackedSystem(FieldState, System):
    """The systems of the members, each with its own alpha, and their weights.

    Parameters
    ----------
    systems : tuple of FittedSystem
        Of the same samples.
    weights : array (m, p), or (m, 1) for all outputs
        The w_m.
    optimism : array (m,)
        How many times larger than they look a member's left-out residuals are, because they chose its hyperparameters.
    """

    systems: tuple[FittedSystem, ...]
    weights: np.ndarray
    optimism: np.ndarray

    @property
    def alpha(self) -> np.ndarray:
        """The weights (m,) of the members' ‖f_m‖²."""
        return np.array([system.alpha for system in self.systems])

    @property
    def samples(self) -> HeldSamples | None:
        """All samples of the fit, where they are in memory."""
        return self.systems[0].samples

    @property
    def features(self) -> StoredFeatures | None:
        """What the first member is spanned by, if that are not the samples."""
        return self.systems[0].features

    @property
    def approximation_error(self) -> float | None:  # type: ignore[override]
        """The largest of the members' features."""
        errors = [s.approximation_error for s in self.systems if s.approximation_error is not None]
        return max(errors) if errors else None

    @property
    def problem(self) -> str | None:
        """What kept the equations of a member from being solved."""
        return next((s.problem for s in self.systems if s.problem is not None), None)

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.systems[0].n

    @property
    def value(self) -> float | None:
        """None: nothing was chosen by one criterion of all members."""
        return None

    def added(self, block: Block) -> StackedSystem:
        """The systems with the samples of one more block, at the same alphas and weights; each kernel prepares them."""
        blocks = [block if s.features is None else block.prepared(s.features.kernel) for s in self.systems]
        return replace(self, systems=tuple(s.added(own) for s, own in zip(self.systems, blocks, strict=True)))

    def changed(self, **changes: Any) -> StackedSystem:
        """The same systems with other fields."""
        return replace(self, systems=tuple(system.changed(**changes) for system in self.systems))

    def settled(self, rules: Sequence[float | AlphaRule]) -> StackedSystem:
        """The systems at alphas, or at those that rules choose; an interrupted search leaves the last rules over."""
        settled = (system.settled(rule) for system, rule in zip(self.systems, rules[: len(self.systems)], strict=True))
        return replace(self, systems=tuple(settled))

    def coefficients(self) -> Tensor:
        raise ValueError(
            "A stack has no coefficients of its own: each of its members has. Ask system_.systems[i].coefficients()."
        )

    def residual(self) -> float:
        """The largest backward error of a member."""
        return max(system.residual() for system in self.systems)

    def function(self) -> Stacked:
        """The weighted sum of the members' functions, as a learner keeps it."""
        return Stacked(tuple(system.function() for system in self.systems), self.weights)

    def at_rest(self) -> StackedSystem:
        """The systems as a learner keeps them, without matrices of all samples."""
        return replace(self, systems=tuple(system.at_rest() for system in self.systems))

    def norm(self) -> float:
        """Σ_m w_m ‖f_m‖, with the largest w_m of the outputs."""
        return float(sum(w.max() * system.norm() for w, system in zip(self.weights, self.systems, strict=True)))

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """The weighted sum of the members' predictions for each sample without its group, or without it alone."""
        return self.mean([system.left_out(groups) for system in self.systems])

    def left_out_sample(self) -> tuple[Block, Tensor]:
        """Samples that stand for all, or all, and the stack's prediction for each by the fits without its group."""
        blocks, values = zip(*(system.left_out_sample() for system in self.systems), strict=True)
        return blocks[0], self.mean(list(values))

    @property
    def leaves_out(self) -> bool:  # type: ignore[override]
        """Are there predictions by the fits of all members without a sample?"""
        return all(system.leaves_out for system in self.systems)

    def with_all_samples(self) -> StackedSystem:
        """The systems whose leave-one-out speaks of all samples, where they are in memory, and not of some."""
        return replace(self, systems=tuple(system.with_all_samples() for system in self.systems))

    def with_weightless(self, left_out: Tensor) -> Tensor:
        """The predictions of ``left_out_sample``: those of the members for samples of weight zero are not asked for."""
        return left_out

    def observed_left_out(self) -> LeftOutMoments:
        """Left-out samples with the mixture's predictions and variances, in squared units of the targets."""
        members = [system.observed_left_out() for system in self.systems]
        means = [left.mean for left in members]
        return replace(members[0], mean=self.mean(means), variance=self._mixed([m.variance for m in members], means))

    def observed_at(self, X: Data) -> tuple[Tensor, Tensor]:
        """Predictions (m, n, p) at new points without the group of each sample, and variances of new observations."""
        means, variances = zip(*(system.observed_at(X) for system in self.systems), strict=True)
        return self.mean(list(means)), self._mixed(list(variances), list(means))

    def sample_function(self) -> Stacked:
        """The weighted sum of the members' functions, each a sum over the samples where it is exact."""
        return Stacked(tuple(system.sample_function() for system in self.systems), self.weights)  # type: ignore[misc]

    def influence(self, X: Data) -> Tensor:
        """The weighted sum of the members' influences (m, n, p), with the weights held."""
        own = [system.influence(X) if w.any() else None for system, w in zip(self.systems, self.weights, strict=True)]
        known = next(values for values in own if values is not None)
        return self.mean([torch.zeros_like(known) if values is None else values for values in own])

    def leverage(self) -> Tensor:
        """∂f(x_i)/∂y_i (n, p): the weighted sum of the members' leverages."""
        return self.mean([system.leverage() for system in self.systems])

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f + b at new points, in squared units of the targets; members that disagree add to it.

        Each member is a Gaussian process of its own scale, and the stack their mixture.
        """
        return self._mixed(
            [system.variance(X) * system.prior_scale() for system in self.systems],
            [system.function()(X) for system in self.systems],
        )

    def deviation(self, X: Data) -> Tensor:
        """The standard deviation (m, p) of new observations: that of the mixture, with left-out residuals its size."""
        deviations = [system.deviation(X) ** 2 for system in self.systems]
        mixed = self._mixed(deviations, [system.function()(X) for system in self.systems])
        return (mixed * torch.from_numpy(self.inflation).to(mixed)).sqrt()

    @cached_property
    def inflation(self) -> np.ndarray:
        """The mean over left-out samples of squared residuals over the mixture's variance, for each output (p,)."""
        members = [system.observed_left_out() for system in self.systems]
        mixed = self._mixed([left.variance for left in members], [left.mean for left in members])
        missed = [(left.Y - left.mean) * factor for left, factor in zip(members, self.optimism.tolist(), strict=True)]
        squares = self.mean(missed) ** 2
        exact = (squares == 0) & (mixed == 0)  # as of targets that are all zero: no variance, and none is missing
        return plain(robust_scale(torch.where(exact, torch.ones_like(squares), squares / mixed)))

    def _shares(self, like: Tensor) -> Tensor:
        """The weights (m, 1, p) of a stack of values."""
        shares = torch.as_tensor(self.weights, dtype=like.dtype, device=like.device)
        return shares.reshape(len(shares), *[1] * (like.ndim - 2), -1)

    def mean(self, values: list[Tensor]) -> Tensor:
        """The weighted mean of the members' values."""
        stacked = torch.stack(values)
        return (self._shares(stacked) * stacked).sum(0)

    def _mixed(self, variances: list[Tensor], means: list[Tensor]) -> Tensor:
        """The variance of a mixture: the mean of its variances plus the variance of its means."""
        values = torch.stack(means).to(variances[0])
        return self.mean([v + (value - self.mean(means)) ** 2 for v, value in zip(variances, values, strict=True)])
