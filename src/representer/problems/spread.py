"""The spread of a new observation around a deep fit by squared loss: a Gaussian process on the images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import Approximation, LandmarkFeatures, landmark_features
from representer.functions import Composed, FieldState
from representer.kernels import Linear
from representer.linalg import by_rows
from representer.operators import Decomposable, OperatorKernel, Projected, repaired_gram, replicates, silent_repairs
from representer.optimize import SearchSettings, keep_going
from representer.problems.composition import Composition, KnownTargets, squared_loss
from representer.problems.deep import DeepModel, DeepRegression, DeepSolution, Splits
from representer.samples import Block, Data, InMemory, SparseRows, count, plain, replicate_scatter
from representer.systems import LeftOutMoments, RidgeData, factor_system


class PredictiveSpread:
    """Standard deviations of f + b + noise: a Gaussian process of covariance s²K, and noise of variance s²·n·alpha.

    s², for each output, gives residuals of samples that are left out, with their groups, the size they should have.
    An intercept has a flat prior: it adds what the data leave open of it. With landmarks, what they do not see of
    K(x, x) counts as uncertain.

    Parameters
    ----------
    kernel : OperatorKernel
    Z, Y : data, tensor (n, p)
        Images of the training samples, and their targets minus the intercept.
    alpha : float
    intercept : bool
    landmarks : data, optional
    residuals : callable, optional
        Makes those (n, p) of predictions for samples that a fit has not seen, NaN where there are none, when they are
        first needed; by default they are those of leaving one out, inner layers fixed.
    weights : tensor (n,), optional
        Sample weights of mean 1; a new observation has weight 1.
    groups : integer tensor (n,), optional
        What is left out together.
    replicated : pair of arrays (p,), optional
        The scatter of targets with equal inputs, and its degrees of freedom: they speak of the noise.
    """

    def __init__(
        self,
        kernel: OperatorKernel,
        Z: Data,
        Y: Tensor,
        alpha: float,
        *,
        intercept: bool,
        landmarks: Data = None,
        residuals: Callable[[], Tensor] | None = None,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
        replicated: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        self.noise, self.residuals, self.replicated = alpha * len(Y), residuals, replicated
        self.features: LandmarkFeatures | None = None
        self.missed: Tensor | None = None
        gram, known = None, kernel
        if landmarks is not None:
            assert isinstance(kernel, Decomposable)
            self.features = landmark_features(kernel.kernel, landmarks)
            points = self.features(Z)
            self.missed = self.features.missed(Z, points).to(Y)[:, None]
            known, Z = Decomposable(Linear()), points
        elif isinstance(kernel, Decomposable) and not (kernel.domain == "vectors" and isinstance(Z, Tensor)):
            with silent_repairs():  # fit has said it
                gram, kept = repaired_gram(kernel.kernel, Z)
            if kept is not None:
                known = Decomposable(Projected(kernel.kernel, kept), kernel.operator)
        w = torch.ones_like(Y[:, 0]) if weights is None else weights
        self.data = RidgeData(known, Z, Y, w, groups=groups, gram=gram)
        self.fixed = factor_system(self.data, alpha)
        self.system = factor_system(replace(self.data, intercept=True), alpha) if intercept else self.fixed
        self.bytes_per_row = 4 * Y.numel() * Y.element_size()  # k(x, Z), its distances, solutions and their squares

    @cached_property
    def _calibration(self) -> tuple[Tensor, Tensor]:
        """s² (p,), and the variance (p,) of the noise in units of it."""
        data, missed = self.data, self.missed
        residuals = data.Y - self.fixed.left_out() if self.residuals is None else self.residuals()
        variance = self.fixed.left_out_variance() if missed is None else self.fixed.left_out_variance() + missed
        noise = self.noise / data.weights[:, None]
        moments = LeftOutMoments(data.Y, data.Y - residuals, variance, data.groups, noise, missed)
        scale, excess = moments.judged(self.noise, self.replicated)
        return scale, self.noise * excess

    def __call__(self, Z: Data) -> Tensor:
        """Standard deviations (m, p) at the images Z."""
        return by_rows(lambda rows: self._block(Z[rows]), count(Z), self.bytes_per_row)

    def _block(self, Z: Data) -> Tensor:
        points = Z if self.features is None else self.features(Z)
        variance = self.system.variance(points)
        if self.features is not None:
            variance = variance + self.features.missed(Z, points).to(variance)[:, None]
        scale, noise = self._calibration
        return ((variance.clamp(min=0.0) + noise) * scale).sqrt()


@dataclass(frozen=True)
class Refits:
    """How a fit is repeated without each of its folds."""

    composition: Composition
    settings: SearchSettings
    folds: list[tuple[np.ndarray, np.ndarray]]
    approximation: Approximation | None


@dataclass(frozen=True)
class DeepSpread(FieldState):
    """What the standard deviations of a deep regression need, as arrays; they are computed when they are asked for.

    Leave-one-out holds the inner layers fixed, and would not see that large ones adapt to samples: then ``refits`` say
    how fits are repeated without each fold.
    """

    function: Composed
    X: Data
    Y: np.ndarray
    weights: np.ndarray | None
    alpha: float
    intercept: bool
    by_landmarks: bool
    refits: Refits | None
    groups: np.ndarray | None = None
    replicated: tuple[np.ndarray, np.ndarray] | None = None

    def deviation(self, Z: Tensor) -> Tensor:
        """The standard deviation (m, p) of new observations at the images Z."""
        return self._made(Z)

    def influence(self, Z: Tensor) -> Tensor:
        """f(x) − f₋ₛ(x) (m, n, p) at the images Z, for each sample or its group, with the inner functions held."""
        return self._made.system.influence(Z if self._made.features is None else self._made.features(Z))

    @cached_property
    def _made(self) -> PredictiveSpread:
        stored = self.function.outer_expansion()
        assert stored.representation is not None
        outer, kernel = stored.loaded, stored.representation.adapted(stored.kernel, repair=True)
        if kernel.domain == "gram":
            raise ValueError(
                "return_std=True is impossible with a precomputed outer kernel: k(x, x) of new points is unknown."
            )
        images = self.function.images(self.X)
        Y = torch.as_tensor(self.Y).to(outer.coefficients)
        weights = None if self.weights is None else torch.as_tensor(self.weights).to(Y)
        centred, targets = Y if outer.intercept is None else Y - outer.intercept, KnownTargets(Y, weights)
        return PredictiveSpread(
            kernel,
            images[-1],
            centred,
            self.alpha,
            intercept=self.intercept,
            landmarks=outer.anchors if self.by_landmarks else None,
            residuals=None if self.refits is None else partial(self._held_out, self.refits, images, targets),
            weights=weights,
            groups=None if self.groups is None else torch.from_numpy(self.groups),
            replicated=self.replicated,
        )

    def _held_out(self, refits: Refits, images: list[Any], targets: KnownTargets) -> Tensor:
        """The residuals of refits without each fold; NaN for samples that no fold holds out."""
        folds = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in refits.folds]
        splits = Splits(torch.arange(len(targets)), lambda rows: folds)
        model = DeepModel(
            refits.composition,
            squared_loss(self.intercept),
            lambda seen: splits,
            approximation=refits.approximation,
        )
        samples = InMemory(Block(images[0], targets.Y, targets.weights))
        settings, representation = refits.settings, self.function.outer_expansion().representation
        assert representation is not None
        representation = replace(representation, sparse=isinstance(images[0], SparseRows))
        regression = DeepRegression(samples, model, representation, seed=settings.seed)
        residuals = torch.full_like(targets.Y, torch.nan)
        with silent_repairs():  # fit has spoken of it
            for decisions, rows in regression.refits(regression.composition, images[1:], settings):
                residuals[rows] = targets.Y[rows] - decisions
        return residuals


def regression_spread(solution: DeepSolution, inputs: Data) -> DeepSpread:
    """What standard deviations need; refits, where the inner layers are large, wait until somebody asks."""
    refits, problem = None, solution.regression
    if not problem.inner_is_small and len(problem.seen) > 1:
        folds = [(a.numpy(), b.numpy()) for a, b in problem.splits.folds(None)]
        settings = replace(solution.choice.settings, verbose=0, callback=keep_going)
        refits = Refits(solution.composition, settings, folds, problem.scope.approximation)
    return replace(deep_spread(solution, inputs, refits), replicated=_replicated(solution))


def _replicated(solution: DeepSolution) -> tuple[np.ndarray, np.ndarray] | None:
    """The scatter of targets with equal inputs, and its degrees of freedom, at weights of mean one."""
    seen = solution.regression.seen
    numbers = None if seen.groups is None else replicates(solution.function.kernel, seen.block.X)
    if numbers is None:
        return None
    weights = None if seen.weights is None else seen.weights / seen.weights.mean()
    scatter, freedom = replicate_scatter(plain(seen.block.Y).astype(np.float64), numbers, weights)
    return scatter.sum(0), freedom.sum(0)


def deep_spread(solution: DeepSolution, inputs: Data, refits: Refits | None = None) -> DeepSpread:
    """What is known of the outer function of a squared loss, from the inputs as they are stored."""
    problem = solution.regression
    seen = problem.seen
    return DeepSpread(
        solution.function,
        inputs,
        plain(seen.block.Y, copy=True),
        None if seen.weights is None else seen.weights / seen.weights.mean(),
        solution.alpha,
        problem.model.loss.intercept,
        solution.inner.problem.landmarks is not None,
        refits,
        seen.groups,
    )
