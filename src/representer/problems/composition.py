"""Compositions f_1 ∘ … ∘ f_L as one problem in the coordinates of inner layers: losses, values, first starts."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

from representer.functions import Chain, Expansion, Layer
from representer.functions.chain import ALPHA, block_matrix
from representer.kernels import Domain, Kernel, Tangent
from representer.linalg import Cholesky, cached_bytes, factorize, row_blocks, shifted
from representer.notices import warn
from representer.objectives import (
    CustomLoss,
    EpsilonInsensitive,
    GeneralizedCrossValidation,
    HeldOut,
    HeldOutLoss,
    Hinge,
    Huber,
    Interpolation,
    LeaveOneOut,
    Logistic,
    NotConvergedError,
    Ridge,
    SquaredHinge,
)
from representer.objectives.convex import SupportVectorLoss
from representer.objectives.squared import Observed, OnFactor, observed, separation_penalty
from representer.operators import Decomposable, Identity, OperatorKernel
from representer.optimize import OptimizeResult, SearchSettings, lbfgs
from representer.samples import Data, take
from representer.samples import rows as limits
from representer.systems import relative_norm
from representer.systems.exact import Slopes, has_few_features
from representer.values import Hyperparameter, Value

Criterion = str  # "validation", "loo" or "gcv"


@dataclass(frozen=True)
class KnownTargets:
    """What a loss is made of: targets (n, p), and weights and groups (n,) of the samples if they have any."""

    Y: Tensor
    weights: Tensor | None = None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.Y)

    def rows(self, rows: Tensor) -> KnownTargets:
        """Some of the samples."""
        index = rows.cpu()
        weights = None if self.weights is None else self.weights[rows]
        return KnownTargets(self.Y[rows], weights, None if self.groups is None else self.groups[index.numpy()])

    def rotated(self, rotation: Tensor) -> KnownTargets:
        """The targets in other coordinates."""
        return KnownTargets(self.Y @ rotation, self.weights, self.groups)

    def columns(self, outputs: Tensor) -> KnownTargets:
        """Some of the outputs."""
        return KnownTargets(self.Y[:, outputs], self.weights, self.groups)

    def entries(self) -> KnownTargets:
        """Every entry as a sample of its own, for outputs that are coupled."""
        p = self.Y.shape[1]
        weights = None if self.weights is None else self.weights.repeat_interleave(p)
        groups = None if self.groups is None else np.repeat(self.groups, p)
        return KnownTargets(self.Y.reshape(-1, 1), weights, groups)


@dataclass(frozen=True)
class Objectives:
    """What a loss makes of targets: the fit to the training rows, and the error that chooses hyperparameters."""

    fit: Callable[[KnownTargets], Any]
    score: Callable[[KnownTargets], Any] | None = None


@dataclass(frozen=True)
class Loss:
    """A loss as a family of objectives; ``make`` gives the one for some targets."""

    make: Callable[[KnownTargets], Any]
    intercept: bool
    squared: bool = False  # closed form, exact leave-one-out
    learnable: bool = True  # can alpha be chosen by an error on new data?
    make_rough: Callable[[KnownTargets], Any] | None = None  # ``make`` with few digits, where these are much cheaper

    def fit(self) -> Objectives:
        """The objective of a fit to all samples."""
        return Objectives(self.make)

    def rough_fit(self) -> Objectives:
        """The same with a solution of few digits, where the solver takes long for more."""
        return Objectives(self.make_rough or self.make)

    def scored(self, criterion: Criterion, validation: Tensor | None = None) -> Objectives:
        """A fit whose error on other data is known: closed forms for squared loss, held-out rows for any."""
        if criterion == "validation":
            held_out = torch.empty(0) if validation is None else validation
            if self.squared:
                return Objectives(self.make, lambda T: known(T, lambda T, rows: self._held_out(held_out, T, rows)))
            return Objectives(self.make, lambda T: HeldOutLoss(self.make(T), validation=held_out))
        if not self.squared:
            raise ValueError(
                f"criterion={criterion!r} is a closed form that only squared loss has. Use criterion='validation'."
            )
        return Objectives(self.make, lambda T: known(T, lambda T, rows: self._closed_form(criterion, T)))

    def _closed_form(self, criterion: Criterion, T: KnownTargets) -> Any:
        options: dict[str, Any] = {"alpha": 1.0, "intercept": self.intercept, "sample_weight": T.weights}
        if criterion == "gcv":
            return GeneralizedCrossValidation(T.Y, **options)
        return LeaveOneOut(T.Y, groups=T.groups, **options)

    def _held_out(self, validation: Tensor, T: KnownTargets, rows: Tensor) -> HeldOut | None:
        """The error on the validation rows among those in which Y is known, if there are any of both kinds."""
        held_out = torch.isin(rows, validation.to(rows.device))
        if not bool(held_out.any()) or bool(held_out.all()):
            return None
        options: dict[str, Any] = {"alpha": 1.0, "intercept": self.intercept, "sample_weight": T.weights}
        return HeldOut(T.Y, validation=held_out, **options)

    def proxy(self) -> Loss:
        """Squared loss on the same targets: cheap, and close enough to find where to search."""
        return self if self.squared or not self.learnable else squared_loss(self.intercept)


def known(targets: KnownTargets, make: Callable[[KnownTargets, Tensor], Any]) -> Any:
    """The objective of targets without gaps, or a sum over columns with the same gaps (NaN), each on rows it has."""

    def of_rows(Y: Tensor, rows: Tensor) -> Any:
        part = targets.rows(rows) if len(rows) < len(targets) else targets
        return make(KnownTargets(Y, part.weights, part.groups), rows)

    return observed(targets.Y, of_rows)


def on_factor(objectives: Objectives) -> Objectives:
    """The same for a factor of the Gram matrix."""
    score = objectives.score
    return Objectives(
        lambda T: _on_factor(objectives.fit(T)), None if score is None else (lambda T: _on_factor(score(T)))
    )


def _on_factor(objective: Any) -> Any:
    return objective.on_factor() if isinstance(objective, Observed) else OnFactor(objective)


def squared_loss(intercept: bool) -> Loss:
    """1/n Σ‖y − f‖² over the samples that have a target (NaN where there is none)."""

    def make(T: KnownTargets) -> Any:
        return known(T, lambda T, _: Ridge(T.Y, alpha=1.0, intercept=intercept, sample_weight=T.weights))

    return Loss(make, intercept, squared=True)


def interpolation_loss(intercept: bool, separation: float) -> Loss:
    """f = y at the samples, whatever their weights."""
    return Loss(lambda T: Interpolation(T.Y, separation=separation, intercept=intercept), intercept, learnable=False)


def custom_loss(function: Callable[..., Tensor], intercept: bool, penalty: Any) -> Loss:
    """Any differentiable function of all values, and any increasing penalty α Θ(‖f‖²) of the outer function."""
    weight = 1.0 if penalty is None else penalty

    def make(T: KnownTargets) -> CustomLoss:
        return CustomLoss(function, T.Y, penalty=weight, intercept=intercept, sample_weight=T.weights)

    return Loss(make, intercept, learnable=False)


def mean_squared_error(F: Tensor, Y: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    """1/n Σ w_i‖y_i − f_i‖² with weights (n, 1) of mean one."""
    return (weights * (F - Y) ** 2).sum() / len(Y)


def convex_loss(name: str, intercept: bool, **options: float) -> Loss:
    """A convex loss with a solver of its own."""
    kinds: dict[str, Any] = {
        "epsilon_insensitive": EpsilonInsensitive,
        "huber": Huber,
        "hinge": Hinge,
        "squared_hinge": SquaredHinge,
        "logistic": Logistic,
    }

    def make(T: KnownTargets, **precision: float) -> Any:
        return kinds[name](T.Y, alpha=1.0, intercept=intercept, sample_weight=T.weights, **options, **precision)

    by_libsvm = issubclass(kinds[name], SupportVectorLoss)
    return Loss(make, intercept, make_rough=partial(make, tol=ROUGH_TOL) if by_libsvm else None)


# Libsvm's own default. Where alpha is small, it is met after a hundredth of the iterations that 1e-6 takes.
ROUGH_TOL = 1e-3
# An evaluation with its gradient keeps about this many matrices of the outer kernel's size for each restart.
MATRICES_PER_EVALUATION = 6
# The share of its mean diagonal, as a power of eps, by which the Gram matrix of landmarks is shifted: 1e-11 in double
# precision, some ten thousand times the rounding of the matrix.
LANDMARK_DIGITS = 0.7


class Composition(Value):
    """What a deep kernel machine is made from: inner layers from the input on, the outer kernel, and its penalty."""

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"alpha": ALPHA}

    def __init__(self, layers: list[Layer], kernel: OperatorKernel, alpha: Any = "auto"):
        self.layers = layers
        self.kernel = kernel
        self.alpha = alpha

    @property
    def input_kernel(self) -> OperatorKernel:
        """The kernel that sees the data."""
        return self.layers[0].operator_kernel if self.layers else self.kernel

    @property
    def domain(self) -> Domain:
        """The kind of data it takes."""
        return self.input_kernel.domain


@dataclass(frozen=True)
class OuterBlock:
    """Outputs (in rotated coordinates) that share an outer Gram matrix."""

    gram: Callable[[Data, Data | None], Tensor]
    outputs: Tensor
    fit: Any  # an objective of the Gram matrix, or of its factor where there are landmarks
    score: Any
    scale: float = 1.0  # of a coupled kernel, whose mean over entries is one over samples and outputs
    kernel: Kernel | None = None  # whose Gram matrix it is, where that is one of a scalar kernel


class OuterSolution(NamedTuple):
    """f_1 at one point of the inner layers."""

    function: Expansion  # on the images of the training samples, or of landmarks
    intercept: Tensor  # (p,)
    images: list[Data]  # the data, and their images under each inner layer
    loss: float | None  # mean loss + α‖f_1‖²; None where the solver does not say it


class DeepProblem:
    """J(Θ) = min_{f_1} loss(f_1 ∘ … ∘ f_L) + Σ_l α_l Θ_l(‖f_l‖²) as a function of the inner coordinates, in batches.

    Parameters
    ----------
    composition : Composition
        With numbers for all hyperparameters; they may be exchanged for others at each evaluation.
    X, Y : prepared data, tensor (n, p) or KnownTargets
        All samples; ``KnownTargets`` have weights and groups.
    objectives : Objectives
    rows : tensor of int, optional
        The training samples; the others serve the score only.
    max_rank : int, optional
        Cap on the rank of the inner layers.
    landmarks : tensor of int, optional
        Samples whose images span the outer function (Nyström); all training samples by default.
    free : sequence of str
        The hyperparameters that evaluations will exchange.
    chain : Chain, optional
        That of the inner layers on X, if it has been made before.
    """

    def __init__(
        self,
        composition: Composition,
        X: Data,
        Y: Tensor | KnownTargets,
        objectives: Objectives,
        *,
        rows: Tensor | None = None,
        max_rank: int | None = None,
        landmarks: Tensor | None = None,
        free: Sequence[str] = (),
        chain: Chain | None = None,
    ):
        self.targets = KnownTargets(Y) if isinstance(Y, Tensor) else Y
        self.composition, self.X, self.Y = composition, X, self.targets.Y
        self.inner_moves = any(name.startswith("layers__") and not name.endswith("__alpha") for name in free)
        self.outer_moves = any(name.startswith("kernel__") for name in free)
        self.rows = torch.arange(len(self.Y)) if rows is None else rows
        self._all_rows = rows is None
        self.objectives, self.landmarks = objectives, landmarks
        self.unconverged: str | None = None  # why the outer problem was not solved to its tolerance
        layers = composition.layers
        if chain is None and layers:
            chain = Chain(layers, X, rows=self.rows, max_rank=max_rank)
        self.chain = chain
        self.rotation, self.blocks = self._blocks(composition.kernel)

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return 0 if self.chain is None else self.chain.size

    @property
    def mean_square(self) -> float:
        """That of the targets; around their means, where an intercept meets these at no cost."""
        intercept = all(getattr(block.fit, "intercept", False) for block in self.blocks)
        Y = self.Y - self.Y.nanmean(0) if intercept else self.Y
        return Y.square().nanmean().item()

    def at(self, composition: Composition) -> DeepProblem:
        """The same problem with other numbers for the hyperparameters."""
        new = copy.copy(self)
        new.blocks = self._current(composition)
        if self.chain is not None:
            new.chain = self.chain.with_layers(composition.layers) if self.inner_moves else self.chain
        new.composition = composition
        return new

    def restricted(self, rows: Tensor) -> DeepProblem:
        """The same functions with the loss of some of the training samples only."""
        new = copy.copy(self)
        new.rows, new._all_rows = rows, False
        new.rotation, new.blocks = new._blocks(self.composition.kernel)
        return new

    # -- the outer function -------------------------------------------------------------------------------------------
    def _blocks(self, kernel: OperatorKernel) -> tuple[Tensor | None, list[OuterBlock]]:
        p = self.Y.shape[1]
        grams, rotation, coupled = outer_grams(kernel, p, self.Y)
        if coupled:
            entries = self.targets.entries()
            fit = self.objectives.fit(entries.rows(_entries(self.rows, p)))
            if fit.intercept:
                raise ValueError(
                    f"The outputs of {kernel!r} are coupled, for which no intercept is fitted. Use fit_intercept=False "
                    "on centred targets."
                )
            score = None if self.objectives.score is None else self.objectives.score(entries)
            return None, [OuterBlock(grams[0][0], torch.arange(p), fit, score, scale=float(p))]
        targets = self.targets if rotation is None else self.targets.rotated(rotation)
        training = targets if self._all_rows else targets.rows(self.rows)
        score = self.objectives.score
        return rotation, [
            OuterBlock(
                gram,
                outputs,
                self.objectives.fit(training.columns(outputs)),
                None if score is None else score(targets.columns(outputs)),
                kernel=_scalar_kernel(kernel),
            )
            for gram, outputs in grams
        ]

    def _current(self, composition: Composition) -> list[OuterBlock]:
        """The blocks with the Gram matrices of these hyperparameters."""
        if composition is self.composition or not self.outer_moves:
            return self.blocks
        grams, _, _ = outer_grams(composition.kernel, self.Y.shape[1], self.Y)
        kernel = _scalar_kernel(composition.kernel)
        return [replace(block, gram=gram, kernel=kernel) for block, (gram, _) in zip(self.blocks, grams, strict=True)]

    def _gram(self, block: OuterBlock, Z: Data, rows: Tensor | None) -> Tensor:
        """The outer Gram matrix of the images of some rows, or its factor if there are landmarks."""
        rows = None if rows is self.rows and self._all_rows else rows
        if self.landmarks is not None:
            anchors = Z[..., self.landmarks, :]
            points = Z if rows is None else Z[..., rows, :]
            return _landmark_factor(block, anchors).half_solve(block.gram(points, anchors).mT).mT
        if self.chain is not None:
            return block.gram(Z if rows is None else Z[..., rows, :], None)
        if self.composition.kernel.domain == "gram":
            gram = block.gram(Z, None)
            return gram if rows is None else gram[rows[:, None], rows]
        return block.gram(Z if rows is None else take(Z, rows), None)

    # -- values -------------------------------------------------------------------------------------------------------
    def images(self, points: Tensor, composition: Composition) -> list[Data]:
        """The data, and their images under each inner layer, for a batch of coordinates (b, m)."""
        if self.chain is None:
            return [self.X]
        chain = self.chain
        if composition is not self.composition and self.inner_moves:
            chain = chain.with_layers(composition.layers)
        return [self.X, *chain.images(chain.split(points))]

    def value(self, points: Tensor, composition: Composition | None = None) -> Tensor:
        """J (b,), differentiable in the points and in the hyperparameters."""
        composition = self.composition if composition is None else composition
        Z = self.images(points, composition)[-1]
        total = points.new_zeros(len(points))
        for block in self._current(composition):
            gram = self._batch(self._gram(block, Z, self.rows), Z, points)
            total = total + block.scale * self._fit_value(block, gram, Z, composition)
        return total + self.penalty(points, composition)

    def _fit_value(self, block: OuterBlock, gram: Tensor, Z: Data, composition: Composition) -> Tensor:
        alpha = self._alpha(gram, composition)
        if isinstance(block.fit, Interpolation):
            points = {"points": Z[..., self.rows, :]} if block.fit.separation > 0 else {}
            return alpha * block.fit(gram, **points)
        if getattr(block.fit, "penalty", None) is not None:  # a penalty that holds alpha already
            return block.fit(gram)
        return block.fit(gram, alpha.expand(len(gram)) / block.scale)

    def penalty(self, points: Tensor, composition: Composition) -> Tensor:
        """Σ_l α_l Θ_l(‖f_l‖²) over the inner layers, (b,)."""
        coordinates = [] if self.chain is None else self.chain.split(points)
        total = points.new_zeros(len(points))
        for layer, theta in zip(composition.layers, coordinates, strict=True):
            norm = theta.square().sum((-2, -1))
            total = total + (layer.alpha * norm if layer.penalty is None else layer.penalized(norm))
        return total

    def score(self, points: Tensor, composition: Composition) -> Tensor:
        """The error that chooses hyperparameters, (b,)."""
        Z = self.images(points, composition)[-1]
        alpha, total = self._alpha(self.Y, composition), points.new_zeros(len(points))
        for block in self._current(composition):
            assert block.score is not None
            gram = self._batch(self._gram(block, Z, None), Z, points)
            total = total + block.scale * block.score(gram, alpha.expand(len(gram)) / block.scale)
        return total

    def value_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """J (b,) and its gradient (b, m), in batches that fit into caches, or into the memory of a device."""
        if len(points) == 1:
            return self._evaluated(points)
        matrix = len(self.rows) * (len(self.rows) if self.landmarks is None else len(self.landmarks))
        per_restart = MATRICES_PER_EVALUATION * matrix * self.Y.element_size()
        parts = [self._evaluated(points[block]) for block in row_blocks(len(points), per_restart, cached_bytes(points))]
        values, gradients = zip(*parts, strict=True)
        return torch.cat(values), torch.cat(gradients)

    def _evaluated(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The fit is eliminated by its objective, which knows its own gradient in the Gram matrix; that goes back
        through the kernel and the layers, by closed forms or by autograd."""
        with torch.no_grad():
            if self.chain is None:
                return self.value(points), torch.zeros_like(points)
            coordinates, Z, pull_back = self.chain.with_pullback(points)
            value, gradient = self._penalty_and_gradient(coordinates, points)
            in_images = torch.zeros_like(Z)
            for block in self.blocks:
                gram, pull = self._gram_with_pullback(block, Z)
                fit, slope = self._fit_envelope(block, gram)
                value = value + fit
                in_images += pull(slope)
                if isinstance(block.fit, Interpolation) and block.fit.separation > 0:
                    with torch.enable_grad():
                        leaf = Z.detach().requires_grad_()
                        apart = self._alpha(leaf) * block.fit.separation * separation_penalty(leaf[..., self.rows, :])
                        in_images += torch.autograd.grad(apart.sum(), leaf)[0]
                    value = value + apart.detach()
            return value, gradient + pull_back(in_images).reshape(points.shape)

    def _penalty_and_gradient(self, coordinates: list[Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_l α_l Θ_l(‖f_l‖²) (b,), and its gradient (b, m)."""
        total, slopes = points.new_zeros(len(points)), []
        for layer, theta in zip(self.composition.layers, coordinates, strict=True):
            norm = theta.square().sum((-2, -1))
            alpha = layer.alpha
            value, slope = (alpha * norm, alpha) if layer.penalty is None else layer.penalty_and_slope(norm)
            total = total + value
            slopes.append((2.0 * slope * theta).flatten(-2))
        return total, slopes[0] if len(slopes) == 1 else torch.cat(slopes, -1)

    def _gram_with_pullback(self, block: OuterBlock, Z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The outer Gram matrices of the training rows of images, and what takes a gradient in them to the images."""
        tangent = self._tangent(block, Z)
        if tangent is None:
            with torch.enable_grad():
                leaf = Z.detach().requires_grad_()
                gram = self._batch(self._gram(block, leaf, self.rows), leaf, leaf)
            return gram.detach(), lambda slope: torch.autograd.grad(gram, leaf, slope)[0]
        return tangent.gram, lambda slope: self._spread(tangent.pull(slope), Z)

    def _tangent(self, block: OuterBlock, Z: Tensor) -> Tangent | None:
        """The outer Gram matrix of the training rows with derivatives in closed form, where its kernel has them."""
        if block.kernel is None or self.landmarks is not None:
            return None
        return block.kernel.tangent(Z if self._all_rows else Z[..., self.rows, :])

    def _spread(self, of_training: Tensor, Z: Tensor) -> Tensor:
        """What belongs to the training rows, among zeros for the other rows."""
        return of_training if self._all_rows else torch.zeros_like(Z).index_copy_(-2, self.rows, of_training)

    def hessian(self, point: Tensor) -> Callable[[Tensor], Tensor] | None:
        """Products with ∂²J at a point, exactly: a change of Θ changes K, and that the outer function.

        None where the outer function does not have a closed form, or where a kernel is not differentiable twice.
        """
        if self.landmarks is not None or not all(isinstance(block.fit, Ridge) for block in self.blocks):
            return None
        assert self.chain is not None
        factor = self.chain.linear_factor
        if factor is not None and len(self.blocks) == 1 and self.composition.layers[0].penalty is None:
            block = self.blocks[0]
            with torch.no_grad():
                B = factor if self._all_rows else factor[self.rows]
                tangent = self._tangent(block, factor @ self.chain.split(point)[0])
            if tangent is not None:
                return self._closed_hessian(block, B, tangent)
        with torch.enable_grad():
            leaf = point.detach()[None].requires_grad_()
            coordinates = self.chain.split(leaf)
            Z = self.chain.images(coordinates)[-1]
            penalty = self.penalty(leaf, self.composition)
            grams = [self._batch(self._gram(block, Z, self.rows), Z, leaf) for block in self.blocks]
            responses = []
            for block, gram in zip(self.blocks, grams, strict=True):
                response = block.fit.response(gram.detach(), self._alpha(leaf).expand(1) / block.scale)
                if response is None:
                    return None
                responses.append((block.scale, *response))
            slopes = [(scale * slope).requires_grad_() for scale, slope, _ in responses]
            try:
                (gradient,) = torch.autograd.grad(
                    [penalty, *grams], leaf, [torch.ones_like(penalty), *slopes], create_graph=True
                )
            except RuntimeError:  # a kernel's gradient that is not differentiable
                return None

        def product(direction: Tensor) -> Tensor:
            second, *changes = torch.autograd.grad(gradient, [leaf, *slopes], direction[None], retain_graph=True)
            follow = [scale * change(dK) for (scale, _, change), dK in zip(responses, changes, strict=True)]
            (first,) = torch.autograd.grad(grams, leaf, follow, retain_graph=True)
            return (first + second)[0]

        return product

    def _closed_hessian(self, block: OuterBlock, B: Tensor, tangent: Tangent) -> Callable[[Tensor], Tensor] | None:
        """Products with ∂²J for one layer BΘ under an outer kernel with derivatives in closed form."""
        alpha = torch.as_tensor(self.composition.layers[0].alpha, dtype=B.dtype, device=B.device)
        response = block.fit.response(tangent.gram[None], self._alpha(B).expand(1) / block.scale)
        if response is None:
            return None
        slope, change = response
        G = block.scale * slope[0]

        def product(direction: Tensor) -> Tensor:
            with torch.no_grad():
                dZ = B @ direction.reshape(B.shape[-1], -1)
                dK = tangent.push(dZ)
                dG = block.scale * change(dK[None])[0]
                return (B.mT @ tangent.pull_change(G, dG, dZ, dK)).flatten() + 2.0 * alpha * direction

        return product

    def _batch(self, gram: Tensor, Z: Data, points: Tensor) -> Tensor:
        """One Gram matrix for each point."""
        if isinstance(Z, Tensor) and Z.requires_grad and not gram.requires_grad:
            raise ValueError(
                f"The outer kernel {self.composition.kernel!r} is not differentiable in its inputs, so that the layers "
                "before it cannot be learned. Build it from torch operations: no .detach(), .item() or numpy."
            )
        return gram if gram.ndim > 2 else gram[None].expand(len(points), *gram.shape)

    def _alpha(self, like: Tensor, composition: Composition | None = None) -> Tensor:
        alpha = (self.composition if composition is None else composition).alpha
        return torch.as_tensor(alpha, dtype=like.dtype, device=like.device)

    def _fit_envelope(self, block: OuterBlock, gram: Tensor) -> tuple[Tensor, Tensor]:
        """The part of J that a block adds, and its gradient in the Gram matrix."""
        alpha = self._alpha(gram).expand(len(gram))
        with torch.no_grad():
            if isinstance(block.fit, Interpolation):
                value, slope = block.fit.envelope(gram, torch.zeros_like(alpha))
                return alpha * value, alpha[:, None, None] * slope
            value, slope = block.fit.envelope(gram, alpha if block.scale == 1.0 else alpha / block.scale)
            return (value, slope) if block.scale == 1.0 else (block.scale * value, block.scale * slope)

    # -- the solution -------------------------------------------------------------------------------------------------
    def solve(self, point: Tensor) -> OuterSolution:
        """f_1 at one point."""
        with torch.no_grad():
            # By the functions themselves: where a layer is ill conditioned, its factor knows the images less exactly.
            inner = [] if self.chain is None else self.chain.evaluate(self.chain.split(point), self.X)
            images = [self.X, *inner]
            anchors = self.rows if self.landmarks is None else self.landmarks
            columns = self.Y.new_zeros(len(anchors), self.Y.shape[1])
            intercept = self.Y.new_zeros(self.Y.shape[1])
            linear = self._linear_fit() if self.chain is None else None
            loss: Tensor | None = self.Y.new_zeros(()) if linear is None else None
            for block in self.blocks:
                dual, b, value = self._solve_block(block, images[-1]) if linear is None else (*linear[1:], None)
                columns[:, block.outputs] = dual.reshape(len(anchors), -1)
                if b is not None:
                    intercept[block.outputs] = b
                loss = None if loss is None or value is None else loss + block.scale * value
        if self.rotation is not None:
            columns, intercept = columns @ self.rotation.mT, self.rotation @ intercept
        pairwise = self.composition.kernel.domain == "gram" and self.chain is None
        points = images[-1][anchors[:, None], anchors] if pairwise else take(images[-1], anchors)
        slopes = None if linear is None else linear[0]
        outer = Expansion(self.composition.kernel, points, columns, slopes=slopes)
        return OuterSolution(outer, intercept, images, None if loss is None else loss.item())

    def residual(self, outer: Expansion, intercept: Tensor) -> float:
        """What the equations w(y − f − b) = α Σw·C of squared loss miss, over the targets; 0 of any other fit.

        Some samples show that of all. Slopes have equations of their own.
        """
        fit = self.blocks[0].fit
        if type(fit) is not Ridge or fit.alpha is None or self.landmarks is not None or outer.slopes is not None:
            return 0.0
        Y, weights = self.Y[self.rows], self.targets.weights
        w = Y.new_ones(len(Y)) if weights is None else weights[self.rows].to(Y)
        places = torch.from_numpy(limits.evenly_spaced(len(Y), limits.RESIDUAL_ROWS))
        noise = w.sum() * self.composition.alpha * outer.coefficients[places]
        with torch.no_grad():
            missed = w[places, None] * (Y[places] - outer(take(outer.anchors, places)) - intercept) - noise
        return relative_norm((len(Y) / len(places)) ** 0.5 * missed, w[:, None] * Y)

    def _linear_fit(self) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """Slopes, dual coefficients and intercept of ridge regression on fewer vectors' features than samples.

        None of any other fit. Dual coefficients are the residuals w(y − f) / (α Σ w).
        """
        block, alpha = self.blocks[0], self.composition.alpha
        fit, X = block.fit, self.X
        if type(fit) is not Ridge or fit.alpha is None or self.landmarks is not None or block.kernel is None:
            return None
        if not (isinstance(X, Tensor) and has_few_features(block.kernel, X[self.rows])):
            return None
        X, Y, weights = X[self.rows], self.Y[self.rows], fit.sample_weight
        w = Y.new_ones(len(Y)) if weights is None else weights.to(Y)
        shift = w.sum() * alpha
        slopes, b = Slopes.of(X, w.sqrt(), torch.ones_like(shift), shift, intercept=fit.intercept).fit(Y)
        fitted = X @ slopes if b is None else X @ slopes + b
        return slopes, w[:, None] * (Y - fitted) / shift, b

    def _solve_block(self, block: OuterBlock, Z: Data) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Dual coefficients, intercept, and the minimum unless the fit holds alpha itself."""
        gram = self._gram(block, Z, self.rows)
        own = getattr(block.fit, "alpha", 1.0) is None  # interpolation, or a penalty that holds alpha already
        options = {} if own else {"alpha": self.composition.alpha / block.scale}
        try:
            evaluation = block.fit.evaluate(gram, gradient=False, **options)
        except NotConvergedError as error:
            if error.best is None or self.landmarks is not None:
                raise
            self.unconverged = str(error)
            return error.best.beta.to(gram), error.best.intercept.to(gram), error.best.value.to(gram)
        value = None if own else evaluation.value
        if self.landmarks is None:
            return evaluation.dual, evaluation.intercept, value
        factor = _landmark_factor(block, Z[self.landmarks]).factor
        dual = torch.linalg.solve_triangular(factor.mT, evaluation.coefficients, upper=True)
        return dual, evaluation.intercept, value


def _landmark_factor(block: OuterBlock, anchors: Tensor) -> Cholesky:
    """The factor of the Gram matrix of landmarks (..., m, d), plus a small multiple of the identity.

    Images of many landmarks in a small space have a Gram matrix without full rank. Its own factor would consist of
    rounding, and change by leaps when a landmark moves, so that no search along the gradient would go on.
    """
    gram = block.gram(anchors, None)
    shift = torch.finfo(gram.dtype).eps ** LANDMARK_DIGITS * gram.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    return factorize(shifted(gram, shift), name="The Gram matrix of the landmarks", strict=anchors.ndim < 3)


def minimise(
    problem: DeepProblem, starts: Tensor, settings: SearchSettings, *, description: str = "", strict: bool = True
) -> OptimizeResult:
    """Minimise J from some starts, in units of its value at the first: tolerances do not depend on those of y.

    Where J is finite at no start, the value is NaN, or, if ``strict``, what is wrong is raised.
    """
    info = torch.finfo(starts.dtype)
    # Constant targets are met without error at no cost: what is then left of J is their rounding.
    floor = (info.eps * problem.mean_square) or info.tiny
    unknown = starts.new_full((len(starts),), torch.nan)
    nowhere = OptimizeResult(starts[0], math.nan, unknown, False, "", 0, 0, False, [])
    try:
        first = problem.value_and_gradient(starts)
    except KeyboardInterrupt:  # lbfgs would have kept its best point: this is it
        return replace(nowhere, message="interrupted", interrupted=True)
    finite = torch.isfinite(first[0])
    if not bool(finite.any()):
        if not strict:
            return nowhere
        problem.solve(starts[0])  # raises what is wrong; where it does not, the search says so
        if problem.unconverged is not None:
            raise NotConvergedError(f"The inner layers have no value to start from: {problem.unconverged}")
    unit = first[0][:1].abs().clamp(min=floor) if bool(finite[0]) else torch.ones_like(first[0][:1])

    def in_units(points: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = first if torch.equal(points, starts) else problem.value_and_gradient(points)
        return values / unit, gradients / unit

    result = lbfgs(in_units, starts, **settings.limits(description))
    factor = unit.item()
    vanished = result.value <= info.eps and not result.interrupted
    history = [e._replace(value=e.value * factor, gradient_norm=e.gradient_norm * factor) for e in result.history]
    return replace(
        result,
        value=result.value * factor,
        values=result.values * factor,
        converged=result.converged or vanished,
        history=history,
    )


def outer_grams(
    kernel: OperatorKernel, p: int, like: Tensor
) -> tuple[list[tuple[Callable[[Data, Data | None], Tensor], Tensor]], Tensor | None, bool]:
    """The scalar Gram matrices behind an operator-valued kernel and their outputs, the rotation, and: is it coupled?"""
    scalar = _scalar_kernel(kernel)
    if scalar is not None:
        return [(scalar._gram, torch.arange(p))], None, False
    form = kernel.diagonal_form(p, like)
    if form is None:
        return [(partial(block_matrix, kernel, p), torch.arange(p))], None, True

    def gram_of(weights: Tensor) -> Callable[[Data, Data | None], Tensor]:
        return lambda X, Y: form.gram(weights, X, Y)

    return [(gram_of(weights), outputs) for weights, outputs in form.groups()], form.rotation, False


def _scalar_kernel(kernel: OperatorKernel) -> Kernel | None:
    """The k of K = k·I."""
    return kernel.kernel if isinstance(kernel, Decomposable) and isinstance(kernel._operator, Identity) else None


def _entries(rows: Tensor, p: int) -> Tensor:
    return (rows[:, None] * p + torch.arange(p)).reshape(-1)


# Lanczos' method wins over a full decomposition from this size on, for at most one in so many singular vectors.
LANCZOS_SIZE, LANCZOS_SHARE = 200, 10


def principal_start(chain: Chain, generator: torch.Generator, weights: Tensor | None = None) -> list[Tensor]:
    """Coordinates of kernel PCA, layer by layer: the images are the leading principal components of the features.

    With weights (n,) of all samples it is that of a weighted covariance.

    A layer wider than its rank gets small random columns for the rest: at zero they would have no gradient.
    """
    coordinates: list[Tensor] = []
    image: Data = None
    for outputs in chain.outputs:
        factors = chain.factors if image is None else [chain._later_factor(part, image) for part in outputs.parts]
        pieces = []
        for part, factor in zip(outputs.parts, factors, strict=True):
            directions = leading_directions(_centred(factor, part.entries, chain.rows, weights), part.width)
            missing = part.width - directions.shape[1]
            noise = 0.1 * _randn(len(directions), missing, generator, factor)
            pieces.append(torch.cat([directions, noise], 1))
        coordinates.append(outputs.join(pieces))
        image = outputs.values(factors, coordinates[-1])
    return coordinates


def _centred(factor: Tensor, entries: Callable[[Tensor], Tensor], rows: Tensor, weights: Tensor | None) -> Tensor:
    """The rows of a factor around their mean; each times the root of its weight."""
    B = factor[entries(rows)]
    if weights is None:
        return B - B.mean(0)
    w = weights[rows].repeat_interleave(len(B) // len(rows))[:, None]
    return w.sqrt() * (B - (w * B).sum(0) / w.sum())


def leading_directions(B: Tensor, size: int) -> Tensor:
    """The first right singular vectors of a matrix, as columns; by Lanczos' method where they are few of many."""
    if LANCZOS_SHARE * size >= min(B.shape) or min(B.shape) < LANCZOS_SIZE:
        return torch.linalg.svd(B, full_matrices=False)[2][:size].mT
    square = (B.mT @ B).double().cpu().numpy()
    _, vectors = eigsh(square, size, v0=np.ones(len(square)))
    return torch.from_numpy(vectors[:, ::-1].copy()).to(B)


def random_starts(chain: Chain, principal: Tensor, n_starts: int, generator: torch.Generator) -> Tensor:
    """The principal start, and random coordinates whose images are about as wide as its images, or up to some times
    wider or narrower: the width decides how local the outer kernel is, and no number suits all data."""
    starts = [principal]
    norms = chain.squared_norms(chain.split(principal))
    for _ in range(n_starts - 1):
        pieces = []
        for shape, norm in zip(chain.shapes, norms, strict=True):
            theta = _randn(*shape, generator, principal)
            width = (0.7 * torch.randn((), generator=generator)).exp().to(principal)
            pieces.append((theta * width * norm.sqrt() / theta.norm()).reshape(-1))
        starts.append(torch.cat(pieces))
    return torch.stack(starts)


def _randn(rows: int, columns: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64).to(like)


@dataclass(frozen=True)
class Beginning:
    """Where a fit begins: numbers for all words, and kernel PCA in every inner layer.

    Attributes
    ----------
    composition : Composition
        With the numbers that the inputs of each kernel give, those of later layers at the principal start.
    chain : Chain or None
        The inner layers.
    point : tensor
        Their coordinates at the principal start.
    image : tensor or None
        What the outer kernel sees there; None without inner layers.
    """

    composition: Composition
    chain: Chain | None
    point: Tensor | None
    image: Tensor | None

    def chain_of(self, layers: list[Layer]) -> Chain | None:
        """The chain, if it is that of these layers."""
        if self.chain is None or [layer.kernel for layer in layers] != [layer.kernel for layer in self.chain.layers]:
            return None
        return self.chain


def beginning(
    composition: Composition,
    data: Data,
    max_rank: int | None,
    generator: torch.Generator,
    weights: Tensor | None = None,
    metric: Tensor | None = None,
) -> Beginning:
    """Resolve words and start layer by layer; the first layer of vectors with the metric (d,) of a shallow fit, if that
    is given."""
    layers: list[Layer] = []
    chain: Chain | None = None
    point: Tensor | None = None
    image: Tensor | None = None
    for layer in composition.layers:
        inputs = data if image is None else image
        layer.check_size(inputs)
        layers.append(layer.replaced(kernel=layer.operator_kernel.resolve(inputs), alpha=1.0))
        chain = Chain(layers, data, max_rank=max_rank)
        if metric is None or image is not None:
            coordinates = principal_start(chain, generator, weights)
        else:
            coordinates = chain.project([scaled(data, metric, layer.size)])
        point, image = flat(coordinates), chain.images(coordinates)[-1]
        warn_if_blind(layer, inputs, image)
    kernel = composition.kernel.resolve(data if image is None else image)
    numbered = [new.replaced(alpha=old.alpha) for new, old in zip(layers, composition.layers, strict=True)]
    return Beginning(Composition(numbered, kernel, composition.alpha), chain, point, image)


def scaled(X: Tensor, metric: Tensor, size: int) -> Tensor:
    """The features (n, d) times a metric (d,), around their means; the leading components, if ``size`` is less than d.

    More columns than features are zero.
    """
    Z = (X - X.mean(0)) * metric
    if size < Z.shape[1]:
        return Z @ leading_directions(Z, size)
    return torch.cat([Z, Z.new_zeros(len(Z), size - Z.shape[1])], 1)


def warn_if_blind(layer: Layer, inputs: Data, image: Tensor) -> None:
    """Say so if a layer takes samples that differ to the same image, for nothing can be learned behind it."""

    def differ(values: Tensor, rounding: float) -> bool:
        flat = values.detach().reshape(len(values), -1)
        return bool((flat - flat[:1]).abs().max() > rounding * flat.abs().max())

    eps = torch.finfo(image.dtype).eps
    if isinstance(inputs, Tensor) and differ(inputs, 4.0 * eps) and not differ(image, eps**0.5):
        warn(
            f"The layer with {layer.kernel!r} maps all samples to the same point, for in the units of X they hardly "
            "differ. Standardise X first (sklearn.preprocessing.StandardScaler), or let the kernel follow the data: "
            "lengthscale='median', gamma='scale'.",
            UserWarning,
        )


def flat(coordinates: list[Tensor]) -> Tensor:
    """The coordinates of all layers as one vector."""
    return torch.cat([theta.reshape(-1) for theta in coordinates])
