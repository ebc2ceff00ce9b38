"""Compositions whose functions have bounded norms: problem (7) of theorem 1 of Laforgue et al., of any depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import torch
from scipy.optimize import brentq
from torch import Tensor

from representer.problems.composition import Composition, DeepProblem

# The logarithms of the outer function's multiplier and norm are known this exactly: an error of the multiplier changes
# the value by its square.
LOG_ALPHA_ACCURACY = 1e-7
# The first step, in the logarithm of the outer multiplier, away from that of the last evaluation; each next is longer.
LOG_ALPHA_STEP, LOG_ALPHA_GROWTH = 0.1, 4.0
# A search begins with at most this share of the bound of each squared norm: on the sphere no gradient points inwards.
LARGEST_START = 0.5
# A norm has reached its bound if it is this near to it, relatively.
REACHED = 1e-3


@dataclass(frozen=True)
class Optimality:
    """The Karush-Kuhn-Tucker conditions of bounded norms at some functions.

    Parameters
    ----------
    composition : Composition
        Its penalties are the multipliers: zero for an inner function whose norm is below its bound.
    residual : float
        What the conditions miss, over the mean squared target: the largest first-order change of the Lagrangian when
        an inner function is changed by its own norm, and the largest λ_l (s_l² − ‖f_l‖²).
    """

    composition: Composition
    residual: float


class BoundedProblem(DeepProblem):
    """min loss(f_L ∘ … ∘ f_1) over ‖f_l‖ ≤ s_l, as a function of free coordinates of the inner functions, in batches.

    The coordinates θ of an inner function are orthonormal, so that its bound is a ball. That is the shadow of a sphere
    with one dimension more, and a stereographic projection of the sphere gives coordinates v without bounds:
    θ = v / (1 + ‖v‖²/4s²) is v itself near zero, is on the ball's surface where ‖v‖ = 2s, and takes local minima in v
    to local minima in the ball. The outer function is eliminated: for given codes its problem is convex, and its
    solution is a ridge regression with that α, the multiplier, at which its norm is the bound.
    """

    bounds: Sequence[float]
    least_alpha: float
    last_alpha: float

    @classmethod
    def of(cls, problem: DeepProblem, bounds: Sequence[float], least_alpha: float) -> Self:
        """The problem with bounds, from the input on, in the place of penalties; α is ``least_alpha`` or more."""
        new = cls.__new__(cls)
        vars(new).update(vars(problem))
        new.bounds, new.least_alpha, new.last_alpha = bounds, least_alpha, max(problem.composition.alpha, least_alpha)
        return new

    # -- coordinates in balls -----------------------------------------------------------------------------------------
    def inside(self, points: Tensor) -> Tensor:
        """The orthonormal coordinates, which obey the bounds, of free coordinates (b, m)."""
        return self._by_layer(lambda v, s: v / (1.0 + _squared(v / (2.0 * s))), points)

    def free_coordinates(self, points: Tensor) -> Tensor:
        """Free coordinates of orthonormal ones (b, m); those near their bound, or beyond it, are made smaller."""

        def lifted(theta: Tensor, s: float) -> Tensor:
            share = _squared(theta / s)
            theta = theta * (LARGEST_START / share.clamp(min=LARGEST_START)).sqrt()
            return 2.0 * theta / (1.0 + (1.0 - share.clamp(max=LARGEST_START)).sqrt())

        return self._by_layer(lifted, points)

    def projected(self, point: Tensor) -> Tensor:
        """The nearest orthonormal coordinates (m,) that obey the bounds."""
        return self._by_layer(lambda theta, s: theta / _squared(theta / s).sqrt().clamp(min=1.0), point[None])[0]

    def _pulled_back(self, points: Tensor, gradients: Tensor) -> Tensor:
        """Gradients in free coordinates, from those in orthonormal ones."""

        def pulled(v: Tensor, s: float, g: Tensor) -> Tensor:
            u = v / (2.0 * s)
            stretch = 1.0 + _squared(u)
            return g / stretch - 2.0 * u * (u * g).sum((-2, -1), keepdim=True) / stretch**2

        return self._by_layer(pulled, points, gradients)

    def _by_layer(self, function: Callable[..., Tensor], *points: Tensor) -> Tensor:
        """A function of the coordinates of one layer and its bound, applied to all layers."""
        assert self.chain is not None
        first, *others = (self.chain.split(each) for each in points)
        layers = [function(v, s, *rest) for v, s, *rest in zip(first, self.bounds[:-1], *others, strict=True)]
        return torch.cat([layer.flatten(-2) for layer in layers], -1)

    # -- values -------------------------------------------------------------------------------------------------------
    def value(self, points: Tensor, composition: Composition | None = None) -> Tensor:
        """The least loss (b,) of an outer function within its bound."""
        return self.value_and_gradient(points)[0]

    def value_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The least loss (b,) of an outer function within its bound, and its gradient (b, m)."""
        parts = [self._loss_and_gradient(theta) for theta in self.inside(points)]
        values, gradients = (torch.stack(part) for part in zip(*parts, strict=True))
        return values, self._pulled_back(points, gradients)

    def _loss_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """max_α min_f loss + α(‖f‖² − s²) + ε s² over α ≥ ε at orthonormal coordinates, and its gradient: that of the
        maximiser α.

        The constant makes the value that with the penalty ε where the norm stays below its bound: shares of the value
        say when a search ends, and it would else be − ε s², however large the bound is.
        """
        alpha = self.outer_multiplier(theta)
        value, gradient = self._with_multipliers([0.0] * (len(self.bounds) - 1), alpha)._evaluated(theta[None])
        excess = alpha - self.least_alpha
        return (value[0] - excess * self.bounds[-1] ** 2 if excess > 0.0 else value[0]), gradient[0]

    def outer_multiplier(self, theta: Tensor) -> float:
        """The α with which the norm of the outer function is its bound; NaN where it has no value."""
        with torch.no_grad():
            Z = self.images(theta[None], self.composition)[-1]
            grams = [self._batch(self._gram(block, Z, self.rows), Z, theta[None]) for block in self.blocks]

        def norm(alpha: float) -> float:
            squared = theta.new_zeros(())
            for block, gram in zip(self.blocks, grams, strict=True):
                outer = block.fit.evaluate(gram, alpha=alpha / block.scale, gradient=False)
                if self.landmarks is None:
                    squared = squared + (outer.dual * (gram @ outer.dual)).sum()
                else:
                    squared = squared + outer.coefficients.square().sum()
            return math.sqrt(max(squared.item(), 0.0)) if bool(squared.isfinite()) else math.nan

        alpha = norm_multiplier(norm, self.bounds[-1], start=self.last_alpha, least=self.least_alpha)
        self.last_alpha = alpha if math.isfinite(alpha) else self.last_alpha
        return alpha

    def _with_multipliers(self, inner: Sequence[float], outer: float) -> DeepProblem:
        """The problem with penalties."""
        layers = self.composition.layers
        layers = [layer.replaced(alpha=alpha, penalty=None) for layer, alpha in zip(layers, inner, strict=True)]
        penalised = DeepProblem.__new__(DeepProblem)
        vars(penalised).update(vars(self))
        return penalised.at(Composition(layers, self.composition.kernel, outer))

    # -- the solution -------------------------------------------------------------------------------------------------
    def optimality(self, theta: Tensor) -> Optimality:
        """The multipliers at orthonormal coordinates, and how far the conditions of a solution are met."""
        assert self.chain is not None
        alpha = self.outer_multiplier(theta)
        gradient = self._with_multipliers([0.0] * (len(self.bounds) - 1), alpha)._evaluated(theta[None])[1][0]
        multipliers, missed = [], [0.0]
        for f, g, s in zip(self.chain.split(theta), self.chain.split(gradient), self.bounds[:-1], strict=True):
            squared = f.square().sum().item()
            reached = squared >= ((1.0 - REACHED) * s) ** 2
            multiplier = max(-(f * g).sum().item() / (2.0 * squared), 0.0) if reached else 0.0
            multipliers.append(multiplier)
            missed += [(g + 2.0 * multiplier * f).norm().item() * math.sqrt(squared), multiplier * (s**2 - squared)]
        unit = self.Y.square().nansum(1).mean().item() or 1.0
        return Optimality(self._with_multipliers(multipliers, alpha).composition, max(missed) / unit)


def norm_multiplier(norm: Callable[[float], float], bound: float, *, start: float, least: float) -> float:
    """The α ≥ ``least`` at which a norm that falls with α is the bound; ``least`` where it is below it even there.

    Examples
    --------
    >>> from representer.problems.norm_bounds import norm_multiplier
    >>> round(norm_multiplier(lambda alpha: 1.0 / (1.0 + alpha), 0.25, start=1.0, least=1e-9), 6)
    3.0
    """

    @cache
    def excess(log_alpha: float) -> float:
        return math.log(max(norm(math.exp(log_alpha)), torch.finfo(torch.float64).tiny)) - math.log(bound)

    floor = math.log(least)
    low = high = max(math.log(start), floor)
    step = LOG_ALPHA_STEP
    if abs(excess(low)) <= LOG_ALPHA_ACCURACY:
        return math.exp(low)
    while excess(high) > 0:
        low, high, step = high, high + step, LOG_ALPHA_GROWTH * step
    while low > floor and excess(low) <= 0:
        low, high, step = max(low - step, floor), low, LOG_ALPHA_GROWTH * step
    if math.isnan(excess(low)) or math.isnan(excess(high)):
        return math.nan
    if excess(low) <= 0:
        return least if low == floor else math.exp(low)
    return math.exp(brentq(excess, low, high, xtol=LOG_ALPHA_ACCURACY))


def _squared(theta: Tensor) -> Tensor:
    """The squared norms of coordinates (b, r, p), as (b, 1, 1)."""
    return theta.square().sum((-2, -1), keepdim=True)
