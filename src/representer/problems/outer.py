"""Outer functions: of many samples, from sums over all behind inner layers of a random part; and linear ones, convex.

Of one inner layer before a linear outer kernel, let the layer have the Gram matrices K_m = B_m B_mᵀ and the outer
kernel be γ zᵀz' + c. Only products of the outer and the inner function matter to the loss, and their cheapest splits
are known. For one output the problem is

    min_{η ≥ 0} Φ(γ Σ_m η_m K_m + c) + α₁ Σ_m η_m,   Φ(K) = min_f loss(f) + α‖f‖²_K,

convex in η because Φ is convex in K (a group lasso over kernels; one number if there is one kernel). For p outputs of
one kernel it is that of least loss + 2√(αα₁)‖M‖_* over matrices M (r, p), the sum of their singular values.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from representer.approximation import Nystroem, landmark_features
from representer.functions import Composed, Expansion, FeatureFunction, StoredFeatures
from representer.kernels import Kernel, Linear, Polynomial
from representer.objectives import NotConvergedError, Ridge
from representer.objectives.convex import ConvexLoss, SupportVectorLoss
from representer.operators import Decomposable, Identity, silent_repairs
from representer.optimize import Choice, HistoryEntry, OptimizeResult, SearchSettings, log_spaced, system_alpha
from representer.optimize.search import best_alpha
from representer.problems.composition import Composition, DeepProblem, flat, minimise
from representer.samples import Data, HeldSamples, Samples, plain
from representer.samples import rows as limits
from representer.systems import SummedSystem, summed_system
from representer.systems.sums import ChangedFeatures, NormalRidge, NormalStep


@dataclass(frozen=True)
class ImageFeatures(ChangedFeatures):
    """Features of the outer kernel, of images under the inner layers."""

    inner: tuple[Expansion, ...]

    def __call__(self, X: Data) -> Tensor:
        return self.features(_image(self.inner, X))


@dataclass(frozen=True)
class OuterFit:
    """The outer function of all samples, and how it was found."""

    function: Composed
    system: SummedSystem  # of features of images; its held samples are some that the inner layers have not seen
    criterion: float | None  # None where alpha was given
    value: float  # mean loss + alpha·‖f‖²

    def left_out(self) -> Tensor:
        """The predictions f₋ᵢ + b₋ᵢ for the held samples."""
        return replace(self.system, samples=self.system.held).left_out()


def fit_outer(
    function: Composed,
    samples: Samples,
    seen: np.ndarray,
    alpha: float | None,
    *,
    intercept: bool,
    memory_limit: int | str | None,
    seed: int,
) -> OuterFit:
    """Fit the outer function once more, to all samples; alpha too, if it is None, by leave-one-out errors of samples
    that are not among those which the inner layers have seen."""
    outer = function.outer_expansion()
    assert isinstance(outer.kernel, Decomposable) and outer.representation is not None  # as an approximation needs
    with torch.no_grad(), silent_repairs():  # the fit has said it
        features = landmark_features(outer.kernel.kernel, outer.loaded.anchors)
        stored = StoredFeatures.of(Nystroem(features.n_features), features, outer.representation)
        rows = np.setdiff1d(samples.random_rows(len(seen) + limits.HELD_ROWS, seed), seen)
        inner = tuple(f.loaded for f in function.inner)
        block = samples.rows(rows)
        sample = replace(block, X=_image(inner, block.X))
        system = summed_system(
            samples,
            stored,
            HeldSamples.of(sample, rows, seed),
            sample,
            operator=Identity(),
            intercept=intercept,
            memory_limit=memory_limit,
            step=lambda features: NormalStep(ImageFeatures(features, inner)),
        ).settled(system_alpha if alpha is None else alpha)
        theta, b = system.coefficients(), system.intercept()
    constant = np.zeros(theta.shape[1]) if b is None else plain(b.to(features.dtype))
    fitted = FeatureFunction(stored, plain(theta.to(features.dtype)), constant)
    assert isinstance(system.ridge, NormalRidge)
    value = system.ridge.training_error(system.alpha) + system.alpha * float(theta.square().sum())
    return OuterFit(replace(function, outer=fitted), system, system.value, value)


def _image(inner: tuple[Expansion, ...], X: Data) -> Any:
    for f in inner:
        X = f(X)
    return X


# How many times a first common weight of all kernels is multiplied or divided by ten before the search.
DECADES = 12
# Weights below this share of those that make all kernels equally large are zero, and no place to start from.
NEGLIGIBLE = 1e-9
# What the largest singular value may exceed its bound by at a minimum, relatively.
CERTAIN = 1e-3
# A search ends where steps gain less than this share of the value: of weights, of matrices, of matrices where penalties
# are compared, and of weights by libsvm, which knows no more digits.
EXACT, MATRIX_TOL, ROUGH, BY_LIBSVM = 1e-12, 1e-9, 1e-4, 1e-6
MATRIX_ITERATIONS = 500
# Where penalties are searched: from so small a share of the one that holds the function at zero, on a grid, then on a
# finer one around the best; where so many smaller ones have larger errors, yet smaller ones are not looked at. The
# second share is for losses with a solver of their own, which takes ages below.
LEAST_WEIGHT, LEAST_CONVEX_WEIGHT, WEIGHTS, FINER, PATIENCE = 1e-6, 1e-3, 13, 5, 2


@dataclass(frozen=True)
class ConvexProblem(ABC):
    """J as a convex problem in an unknown of its own: weights (m,) of kernels, or coordinates of a matrix.

    Parameters
    ----------
    problem : DeepProblem
    gamma, constant : float
        Of the outer kernel γ zᵀz' + c.
    """

    problem: DeepProblem
    gamma: float
    constant: float

    def at(self, composition: Composition) -> ConvexProblem:
        """The same with other penalties."""
        return type(self)(self.problem.at(composition), self.gamma, self.constant)

    @property
    def factors(self) -> list[Tensor]:
        """The B_m (n, r_m) of all points."""
        assert self.problem.chain is not None
        return self.problem.chain.factors

    @property
    def alphas(self) -> tuple[float, float]:
        """Those of the outer and the inner function."""
        composition = self.problem.composition
        return float(composition.alpha), float(composition.layers[0].alpha)

    @abstractmethod
    def solve(self, near: Tensor | None = None, *, rough: bool = False) -> Tensor:
        """The unknown at the minimum, from near it if that is known; a rough one may be quicker."""

    @abstractmethod
    def point(self, unknown: Tensor) -> Tensor:
        """The coordinates of the inner layer, in the flat form of its chain."""

    @abstractmethod
    def error(self, unknown: Tensor) -> float:
        """The score that chooses hyperparameters, of what the unknown says of the kernel."""

    def largest_weight(self) -> float:
        """About the √(αα₁) above which squared loss holds the function at zero."""
        Y, rows = self.problem.Y, self.problem.rows
        centred = Y[rows] - Y[rows].mean(0)
        size = max(float((B[rows].mT @ centred).norm()) for B in self.factors)
        return math.sqrt(self.gamma) * size / len(rows)

    def _dual(self, gram: Tensor) -> Tensor:
        """The coefficients c (n, p) of f = K c for the training rows."""
        alpha = self.problem.composition.alpha
        try:
            return self.problem.blocks[0].fit.evaluate(gram, gradient=False, alpha=alpha).dual
        except NotConvergedError as error:
            if error.best is None:
                raise
            return error.best.beta.to(gram)


class KernelWeights(ConvexProblem):
    """One output: min over η ≥ 0 of Φ(γ Σ_m η_m K_m + c) + α₁ Σ_m η_m."""

    def gram(self, eta: Tensor, rows: Tensor | None) -> Tensor:
        """The kernel of these weights at some points, or at all."""
        total = torch.zeros((), dtype=eta.dtype, device=eta.device)
        for weight, B in zip(eta, self.factors, strict=True):
            part = B if rows is None else B[rows]
            total = total + self.gamma * weight * (part @ part.mT)
        return total + self.constant

    def solve(self, near: Tensor | None = None, *, rough: bool = False) -> Tensor:
        """By L-BFGS with bounds, in units of the first weights. Errors for left-out samples need exact ones."""
        problem, rows = self.problem, self.problem.rows
        like, (_, alpha) = problem.Y, self.alphas
        grams = torch.stack([self.gamma * B[rows] @ B[rows].mT for B in self.factors])
        sizes = grams.diagonal(dim1=1, dim2=2).mean(1).clamp(min=torch.finfo(like.dtype).tiny)

        def value(eta: np.ndarray) -> tuple[float, np.ndarray]:
            weights = torch.as_tensor(eta).to(like)
            gram = torch.tensordot(weights, grams, 1) + self.constant
            fit, slope = problem._fit_envelope(problem.blocks[0], gram[None])
            gradient = torch.tensordot(grams, slope[0], 2) + alpha
            return float(fit) + alpha * float(weights.sum()), gradient.double().numpy(force=True)

        equal = (1.0 / sizes).double().numpy(force=True)
        known = np.zeros(len(sizes)) if near is None else near.double().numpy(force=True)
        shape = known if known.max() > NEGLIGIBLE * equal.min() else equal
        start = shape * best_scale(lambda scale: value(scale * shape)[0])
        units = np.maximum(start, 1e-3 * start.max())
        unit = max(abs(value(start)[0]), np.finfo(float).tiny)

        def in_units(t: np.ndarray) -> tuple[float, np.ndarray]:
            J, gradient = value(t * units)
            return J / unit, gradient * units / unit

        tol = BY_LIBSVM if isinstance(problem.blocks[0].fit, SupportVectorLoss) else EXACT
        options = {"ftol": tol, "gtol": 1e-3 * tol, "maxiter": 1000, "maxcor": 20}
        found = minimize(
            in_units, start / units, jac=True, bounds=[(0.0, None)] * len(start), method="L-BFGS-B", options=options
        )
        held = value(np.zeros(len(units)))[0] <= found.fun * unit * (1.0 + EXACT)
        return torch.as_tensor(np.zeros(len(units)) if held else found.x * units).to(like)

    def point(self, unknown: Tensor) -> Tensor:
        """f_m = √η_m B_m u_m with u_m along B_mᵀc: of equal kernels, one."""
        chain, rows = self.problem.chain, self.problem.rows
        assert chain is not None
        c = self._dual(self.gram(unknown, rows))
        pieces = []
        for eta, B, part in zip(unknown, self.factors, chain.outputs[0].parts, strict=True):
            direction = B[rows].mT @ c
            theta = B.new_zeros(B.shape[1], part.width)
            theta[:, :1] = eta.sqrt() * direction / direction.norm().clamp(min=torch.finfo(B.dtype).tiny)
            pieces.append(theta)
        return flat([chain.outputs[0].join(pieces)])

    def error(self, unknown: Tensor) -> float:
        """Inner functions are not held, as they would be by their images: weights are."""
        alpha = self.problem._alpha(unknown).expand(1)
        return float(self.problem.blocks[0].score(self.gram(unknown, None)[None], alpha))


class SmallNuclearNorm(ConvexProblem):
    """Several outputs of one kernel: the unknown is ΘW of rank at most p, by its factor Θ.

    A stationary Θ with as many columns as outputs is a minimum if and only if the singular values of BᵀC do not exceed
    √(α₁/(γα)), which is looked at.
    """

    def solve(self, near: Tensor | None = None, *, rough: bool = False) -> Tensor:
        """By L-BFGS from the split of a ridge fit, or from near the solution."""
        start, tol = self._start() if near is None else near, ROUGH if rough else MATRIX_TOL
        settings = SearchSettings(max_iter=MATRIX_ITERATIONS, tol=tol)
        return minimise(self.problem, start[None], settings, strict=False).completed().point

    def _start(self) -> Tensor:
        """The balanced split of the coordinates M = ηBᵀC = USVᵀ of the best multiple η of the kernel."""
        problem, (alpha, inner) = self.problem, self.alphas
        B = self.factors[0][problem.rows]
        gram = self.gamma * B @ B.mT
        size = 1.0 / float(gram.diagonal().mean().clamp(min=torch.finfo(B.dtype).tiny))

        def value(scale: float) -> float:
            eta = scale * size
            return float(problem._fit_envelope(problem.blocks[0], (eta * gram + self.constant)[None])[0]) + inner * eta

        eta = size * best_scale(value)
        M = eta * math.sqrt(self.gamma) * B.mT @ self._dual(eta * gram + self.constant)
        U, S, _ = torch.linalg.svd(M, full_matrices=False)
        theta = B.new_zeros(B.shape[1], problem.composition.layers[0].size)
        floor = 1e-3 * S.max()  # a column of zeros has no gradient
        theta[:, : len(S)] = U * (S.clamp(min=floor) * math.sqrt(alpha / inner)).sqrt()
        return flat([theta])

    def point(self, unknown: Tensor) -> Tensor:
        """The unknown itself, which is a point already."""
        return unknown

    def error(self, unknown: Tensor) -> float:
        """That of the outer function: only samples that are held out know what the matrix has learned."""
        return float(self.problem.score(unknown[None], self.problem.composition)[0])

    def is_minimum(self, unknown: Tensor) -> bool:
        """Is no direction worth another column?"""
        problem, (alpha, inner) = self.problem, self.alphas
        assert problem.chain is not None
        B = self.factors[0][problem.rows]
        Z = B @ problem.chain.split(unknown)[0]
        C = self._dual(self.gamma * Z @ Z.mT + self.constant)
        return float(torch.linalg.matrix_norm(B.mT @ C, 2)) <= (1.0 + CERTAIN) * math.sqrt(inner / (self.gamma * alpha))


def best_scale(value: Callable[[float], float]) -> float:
    """The power of ten of least value, of a convex function of a positive number."""
    best, least = 0, value(1.0)
    for direction in (1, -1):
        first = best
        for decade in range(1, DECADES + 1):
            new = value(10.0 ** (direction * decade))
            if not new < least:
                break
            best, least = direction * decade, new
        if best != first:
            break
    return 10.0**best


# -- which problems are convex ----------------------------------------------------------------------------------------
def convex_problem(problem: DeepProblem) -> ConvexProblem | None:
    """The convex form of a problem; None of one that has none.

    It takes one inner layer with the penalty α₁‖f‖² and independent outputs, a linear outer kernel, a convex loss of
    known targets, and either one output, or one inner kernel with as many columns as there are outputs.
    """
    composition, chain = problem.composition, problem.chain
    if chain is None or len(composition.layers) != 1 or problem.landmarks is not None or len(problem.blocks) != 1:
        return None
    layer, outputs, block = composition.layers[0], chain.outputs[0], problem.blocks[0]
    outer = linear_terms(block.kernel)
    mixed = outputs.rotation is not None or outputs.root is not None or any(part.coupled for part in outputs.parts)
    if outer is None or mixed or layer.penalty is not None or not is_convex(block.fit):
        return None
    p, widest = problem.Y.shape[1], min(problem.Y.shape[1], chain.factors[0].shape[1])
    if p == 1:
        return KernelWeights(problem, *outer)
    return SmallNuclearNorm(problem, *outer) if outputs.plain and layer.size >= widest else None


def linear_terms(kernel: Kernel | None) -> tuple[float, float] | None:
    """γ and c of k(z, z') = γ zᵀz' + c; None of any other kernel, and where γ or c are learned."""
    if type(kernel) is Linear:
        return 1.0, 0.0
    if type(kernel) is Polynomial and kernel.degree == 1 and not kernel.free():
        gamma, constant = (torch.as_tensor(value) for value in (kernel.gamma, kernel.coef0))
        return float(gamma), float(constant)
    return None


def is_convex(fit: Any) -> bool:
    """Is it a convex loss of known vectors beside alpha times a squared norm?"""
    return type(fit) is Ridge or isinstance(fit, ConvexLoss)


# -- penalties --------------------------------------------------------------------------------------------------------
PENALTIES = ["alpha", "layers__0__alpha"]


def chosen_penalties(
    folds: Sequence[ConvexProblem],
    composition: Composition,
    free: Sequence[str],
    settings: SearchSettings,
    *,
    least: float,
) -> Choice:
    """The penalties of least error over folds: α and α₁ enter through their product only, so that one number is free.

    Penalties are at least the share ``least`` of those that hold the function at zero. Solutions on the way down from
    the largest one start from each other; the way ends where errors have risen ``PATIENCE`` times.
    """
    began, largest = time.perf_counter(), max(fold.largest_weight() for fold in folds)
    history: list[HistoryEntry] = []
    given = {name: float(composition.hyperparameter_values()[name]) for name in PENALTIES if name not in free}

    def model(weight: float) -> Composition:
        split = weight * weight / math.prod(given.values()) if given else weight
        return composition.replace({name: split for name in free}).numbers()

    def errors(weights: Tensor) -> Tensor:
        values = torch.full_like(weights, torch.inf)
        near: list[Tensor | None] = [None] * len(folds)
        for i in reversed(range(len(weights))):
            settings.deadline.check()
            solved = [_solved(fold.at(model(float(weights[i]))), own) for fold, own in zip(folds, near, strict=True)]
            near = [unknown for unknown, _ in solved]
            values[i] = float(np.mean([error for _, error in solved]))
            history.append(HistoryEntry(len(history), time.perf_counter() - began, float(values.min()), 0.0, 1))
            if len(weights) > i + PATIENCE and bool((values[i : i + PATIENCE] > values[i + PATIENCE :].min()).all()):
                break
        return values

    high = torch.tensor(max(largest, torch.finfo(torch.float64).tiny ** 0.25), dtype=torch.float64)
    weight, value = best_alpha(errors, log_spaced(least * high, high, WEIGHTS), refine=True, size=FINER)
    chosen = model(weight)
    return Choice(chosen, chosen.alpha, value, history)


def _solved(convex: ConvexProblem, near: Tensor | None) -> tuple[Tensor | None, float]:
    """The unknown at the minimum, and its error; an infinite one where there is none."""
    try:
        unknown = convex.solve(near, rough=True)
        error = convex.error(unknown)
    except NotConvergedError:
        return near, math.inf
    return unknown, error if math.isfinite(error) else math.inf


def global_minimum(problem: DeepProblem, settings: SearchSettings) -> OptimizeResult | None:
    """The minimum of J by its convex problem; None where it has none, or where none was found for certain."""
    began, convex = time.perf_counter(), convex_problem(problem)
    if convex is None or not all(alpha > 0 for alpha in convex.alphas):
        return None
    try:
        unknown = convex.solve()
        if isinstance(convex, SmallNuclearNorm) and not convex.is_minimum(unknown):
            return None
        point = convex.point(unknown)
        value = float(problem.value_and_gradient(point[None])[0])
    except NotConvergedError:  # the search of all problems speaks of it
        return None
    entry = HistoryEntry(1, time.perf_counter() - began, value, 0.0, 1)
    settings.callback(entry)
    values = point.new_tensor([value])
    return OptimizeResult(point, value, values, True, "convex: the minimum", 1, 1, False, [entry], point[None])
