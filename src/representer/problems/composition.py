"""Compositions f_1 ∘ … ∘ f_L as one problem: the outer function is eliminated, the inner ones have coordinates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from representer.functions import Chain, Expansion, Layer
from representer.functions.layers import ALPHA, block_matrix
from representer.kernels import Kernel, Tangent
from representer.linalg import factorize, row_blocks
from representer.objectives import Interpolation, NotConvergedError, Ridge
from representer.objectives.squared import separation_penalty
from representer.operators import Decomposable, Identity, OperatorKernel
from representer.problems.losses import KnownTargets, Objectives
from representer.samples import Data, take
from representer.values import Hyperparameter, Value

# An evaluation with its gradient keeps about this many matrices of the outer kernel's size for each restart.
MATRICES_PER_EVALUATION = 6


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


@dataclass(frozen=True)
class OuterBlock:
    """Outputs (in rotated coordinates) that share an outer Gram matrix."""

    gram: Callable[[Any, Any], Tensor]
    outputs: Tensor
    fit: Any  # an objective of the Gram matrix, or of its factor where there are landmarks
    score: Any
    scale: float = 1.0  # of a coupled kernel, whose mean over entries is one over samples and outputs
    kernel: Kernel | None = None  # whose Gram matrix it is, where that is one of a scalar kernel


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
            name = "The Gram matrix of the landmarks"
            cholesky = factorize(block.gram(anchors, None), name=name, strict=anchors.ndim < 3)
            points = Z if rows is None else Z[..., rows, :]
            return cholesky.half_solve(block.gram(points, anchors).mT).mT
        if self.chain is not None:
            return block.gram(Z if rows is None else Z[..., rows, :], None)
        if self.composition.kernel.domain == "gram":
            gram = block.gram(Z, None)
            return gram if rows is None else gram[rows[:, None], rows]
        return block.gram(Z if rows is None else take(Z, rows), None)

    # -- values -------------------------------------------------------------------------------------------------------
    def images(self, points: Tensor, composition: Composition) -> list[Any]:
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
            gram = self._gram(block, Z, self.rows)
            if isinstance(Z, Tensor) and Z.requires_grad and not gram.requires_grad:
                raise ValueError(
                    f"The outer kernel {composition.kernel!r} is not differentiable in its inputs, so that the layers "
                    "before it cannot be learned. Build it from torch operations: no .detach(), .item() or numpy."
                )
            gram = gram if gram.ndim > 2 else gram[None].expand(len(points), *gram.shape)
            total = total + block.scale * self._fit_value(block, gram, Z, composition)
        return total + self.penalty(points, composition)

    def _fit_value(self, block: OuterBlock, gram: Tensor, Z: Data, composition: Composition) -> Tensor:
        alpha = torch.as_tensor(composition.alpha, dtype=gram.dtype, device=gram.device)
        if isinstance(block.fit, Interpolation):
            points = {"points": Z[..., self.rows, :]} if block.fit.separation > 0 else {}
            return alpha * block.fit(gram, **points)
        if getattr(block.fit, "penalty", None) is not None:  # a penalty that holds alpha already
            return block.fit(gram)
        return block.fit(gram, alpha.expand(len(gram)) / block.scale)

    def penalty(self, points: Tensor, composition: Composition) -> Tensor:
        """Σ_l α_l Θ_l(‖f_l‖²) over the inner layers, (b,)."""
        coordinates = [] if self.chain is None else self.chain.split(points)
        return self._penalty(coordinates, points, composition.layers)

    def _penalty(self, coordinates: list[Tensor], points: Tensor, layers: list[Layer] | None = None) -> Tensor:
        total = points.new_zeros(len(points))
        layers = self.composition.layers if layers is None else layers
        for layer, theta in zip(layers, coordinates, strict=True):
            norm = theta.square().sum((-2, -1))
            total = total + (layer.alpha * norm if layer.penalty is None else layer.penalized(norm))
        return total

    def score(self, points: Tensor, composition: Composition) -> Tensor:
        """The error that chooses hyperparameters, (b,)."""
        Z = self.images(points, composition)[-1]
        alpha = torch.as_tensor(composition.alpha, dtype=self.Y.dtype, device=self.Y.device)
        total = points.new_zeros(len(points))
        for block in self._current(composition):
            assert block.score is not None
            gram = self._gram(block, Z, None)
            gram = gram if gram.ndim > 2 else gram[None].expand(len(points), *gram.shape)
            total = total + block.scale * block.score(gram, alpha.expand(len(gram)) / block.scale)
        return total

    def values(self, points: Tensor) -> Tensor:
        """J (b,) as a number, without what a gradient needs."""
        with torch.no_grad():
            coordinates = [] if self.chain is None else self.chain.split(points)
            Z = self.X if self.chain is None else self.chain.images(coordinates)[-1]
            total = self._penalty(coordinates, points)
            for block in self.blocks:
                gram = self._batch(self._gram(block, Z, self.rows), Z, points)
                total = total + self._fit_envelope(block, gram)[0]
                if isinstance(block.fit, Interpolation) and block.fit.separation > 0:
                    apart = separation_penalty(Z[..., self.rows, :])
                    total = total + self._alpha(points) * block.fit.separation * apart
        return total

    def value_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """J (b,) and its gradient (b, m), in batches that fit into memory."""
        if len(points) == 1:
            return self._evaluated(points)
        matrix = len(self.rows) * (len(self.rows) if self.landmarks is None else len(self.landmarks))
        per_restart = MATRICES_PER_EVALUATION * matrix * self.Y.element_size()
        parts = [self._evaluated(points[block]) for block in row_blocks(len(points), per_restart)]
        values, gradients = zip(*parts, strict=True)
        return torch.cat(values), torch.cat(gradients)

    def _evaluated(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The fit is eliminated by its objective, which knows its own gradient in the Gram matrix; that goes back
        through the kernel and the layers, by closed forms or by autograd."""
        with torch.no_grad():
            if self.chain is None:
                return self.values(points), torch.zeros_like(points)
            value, gradient = self._penalty_and_gradient(points)
            Z, pull_back = self.chain.with_pullback(points)
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
            return value, gradient + pull_back(in_images)

    def _penalty_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_l α_l Θ_l(‖f_l‖²) (b,), and its gradient (b, m)."""
        assert self.chain is not None
        total, slopes = points.new_zeros(len(points)), []
        for layer, theta in zip(self.composition.layers, self.chain.split(points), strict=True):
            norm = theta.square().sum((-2, -1))
            total = total + layer.penalized(norm)
            slope = torch.as_tensor(layer.penalty_slope(norm), dtype=points.dtype, device=points.device)
            slopes.append((2.0 * slope[..., None, None] * theta).flatten(-2))
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
            penalty = self._penalty(coordinates, leaf)
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

    def _alpha(self, like: Tensor) -> Tensor:
        return torch.as_tensor(self.composition.alpha, dtype=like.dtype, device=like.device)

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
    def solve(self, point: Tensor) -> tuple[Expansion, Tensor, list[Any]]:
        """f_1 at one point as an expansion on the images of the training samples (or landmarks), its intercept (p,),
        and the images."""
        with torch.no_grad():
            # By the functions themselves: where a layer is ill conditioned, its factor knows the images less exactly.
            inner = [] if self.chain is None else self.chain.evaluate(self.chain.split(point), self.X)
            images = [self.X, *inner]
            anchors = self.rows if self.landmarks is None else self.landmarks
            columns = self.Y.new_zeros(len(anchors), self.Y.shape[1])
            intercept = self.Y.new_zeros(self.Y.shape[1])
            for block in self.blocks:
                dual, b = self._solve_block(block, images[-1])
                columns[:, block.outputs] = dual.reshape(len(anchors), -1)
                if b is not None:
                    intercept[block.outputs] = b
        if self.rotation is not None:
            columns, intercept = columns @ self.rotation.mT, self.rotation @ intercept
        pairwise = self.composition.kernel.domain == "gram" and self.chain is None
        points = images[-1][anchors[:, None], anchors] if pairwise else take(images[-1], anchors)
        return Expansion(self.composition.kernel, points, columns), intercept, images

    def _solve_block(self, block: OuterBlock, Z: Data) -> tuple[Tensor, Tensor | None]:
        gram = self._gram(block, Z, self.rows)
        own = getattr(block.fit, "alpha", 1.0) is None  # interpolation, or a penalty that holds alpha already
        options = {} if own else {"alpha": self.composition.alpha / block.scale}
        try:
            evaluation = block.fit.evaluate(gram, gradient=False, **options)
        except NotConvergedError as error:
            if error.best is None or self.landmarks is not None:
                raise
            self.unconverged = str(error)
            return error.best.beta.to(gram), error.best.intercept.to(gram)
        if self.landmarks is None:
            return evaluation.dual, evaluation.intercept
        landmarks = block.gram(Z[self.landmarks], None)
        factor = factorize(landmarks, name="The Gram matrix of the landmarks").factor
        return torch.linalg.solve_triangular(factor.mT, evaluation.coefficients, upper=True), evaluation.intercept


def outer_grams(
    kernel: OperatorKernel, p: int, like: Tensor
) -> tuple[list[tuple[Callable[[Any, Any], Tensor], Tensor]], Tensor | None, bool]:
    """The scalar Gram matrices behind an operator-valued kernel and their outputs, the rotation, and: is it coupled?"""
    scalar = _scalar_kernel(kernel)
    if scalar is not None:
        return [(scalar._gram, torch.arange(p))], None, False
    form = kernel.diagonal_form(p, like)
    if form is None:
        return [(partial(block_matrix, kernel, p), torch.arange(p))], None, True

    def gram_of(weights: Tensor) -> Callable[[Any, Any], Tensor]:
        return lambda X, Y: form.gram(weights, X, Y)

    return [(gram_of(weights), outputs) for weights, outputs in form.groups()], form.rotation, False


def _scalar_kernel(kernel: OperatorKernel) -> Kernel | None:
    """The k of K = k·I."""
    return kernel.kernel if isinstance(kernel, Decomposable) and isinstance(kernel._operator, Identity) else None


def _entries(rows: Tensor, p: int) -> Tensor:
    return (rows[:, None] * p + torch.arange(p)).reshape(-1)
