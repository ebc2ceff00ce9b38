"""Compositions of functions on training points: layers, and chains of them in orthonormal coordinates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from representer.functions.base import Expansion
from representer.kernels import Domain, Kernel, Linear, Polynomial, as_kernel
from representer.linalg import Cholesky, factorize, pivoted_cholesky, shifted
from representer.operators import DataDriven, Decomposable, Identity, Operator, OperatorKernel
from representer.samples import Data, count, take
from representer.values import Hyperparameter, Positive, Value, Word, argument_repr, is_count


def feature_count(kernel: Kernel | None, dimension: int) -> float:
    """How many features a chain sees of a kernel on ℝ^dimension: infinitely many, unless it is linear or polynomial."""
    size = kernel.n_features(torch.empty(1, dimension)) if isinstance(kernel, Linear | Polynomial) else None
    return math.inf if size is None else size


def features(kernel: Kernel | None, Z: Tensor) -> Tensor:
    """The features φ(Z) (..., n, m) of a kernel with finitely many of them."""
    values = None if kernel is None else kernel.features(Z)
    assert values is not None  # they have been counted
    return values


# Where learning alpha starts is for the learner to say: it knows the size of the loss, in whose units, those of squared
# targets, alpha is: it takes more of the range of numbers than a lengthscale.
ALPHA = Hyperparameter(
    Positive(power=0.3), {"auto": Word(lambda X: torch.ones((), dtype=torch.float64), learned=True)}, scalar=True
)


class Layer(Value):
    """One function of a composition, with values in ℝ^size, and the weight of its penalty α Θ(‖f‖²).

    Parameters
    ----------
    kernel : Kernel, str or OperatorKernel
        The scalar kernel k of K(x, y) = k(x, y) A, or an operator-valued kernel such as ``Separate``.
    size : int
        The dimension of the values.
    alpha : float or "auto"
        The weight of the penalty beside the mean loss; ``"auto"`` lets a learner choose it.
    operator : Operator, optional
        A; the identity by default.
    penalty : callable, optional
        Θ, a strictly increasing differentiable function of the squared norm (a tensor); by default ‖f‖² itself.

    Examples
    --------
    >>> from representer import Layer
    >>> from representer.kernels import Gaussian
    >>> Layer(Gaussian(1.0), size=2, alpha=1e-3)
    Layer(kernel=Gaussian(lengthscale=1.0), size=2, alpha=0.001)
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"alpha": ALPHA}

    def __init__(
        self,
        kernel: Any,
        size: int,
        alpha: Any = "auto",
        operator: Operator | None = None,
        penalty: Callable[[Tensor], Tensor] | None = None,
    ):
        self.kernel = kernel
        self.size = size
        self.alpha = alpha
        self.operator = operator
        self.penalty = penalty

    @property
    def operator_kernel(self) -> OperatorKernel:
        """The layer's operator-valued kernel K."""
        if isinstance(self.kernel, OperatorKernel):
            return self.kernel
        return Decomposable(as_kernel(self.kernel), self.operator)

    @property
    def domain(self) -> Domain:
        """The kind of data it takes."""
        return self.operator_kernel.domain

    def check(self) -> None:
        """Raise a ValueError that says which argument is not admissible."""
        if not is_count(self.size):
            raise ValueError(f"The size of a layer must be a positive integer; got {self.size!r}.")
        if not isinstance(self.kernel, Kernel | OperatorKernel | str):
            raise ValueError(
                f"The kernel of a layer must be a kernel, a name or an operator-valued kernel; got {self.kernel!r}."
            )
        if isinstance(self.kernel, OperatorKernel) and self.operator is not None:
            raise ValueError(
                f"The kernel of a layer is operator-valued already ({self.kernel!r}), so operator="
                f"{self.operator!r} has no place. Leave operator=None, or give a scalar kernel."
            )
        if isinstance(self.operator, DataDriven):
            raise ValueError(
                f"{self.operator!r} is computed from targets, which an inner layer does not have. Use Dense(A)."
            )
        if self.penalty is not None and not callable(self.penalty):
            raise ValueError(
                f"The penalty of a layer must be None or a function of the squared norm; got {self.penalty!r}."
            )
        if self.penalty is not None:
            self._check_penalty()
        self.check_hyperparameters()
        if isinstance(self.operator_kernel, Decomposable):
            self.operator_kernel._operator.as_matrix(self.size, torch.zeros(1, dtype=torch.float64))

    def _check_penalty(self) -> None:
        assert self.penalty is not None
        with torch.enable_grad():
            norms = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
            values = self.penalty(norms)
            if not (isinstance(values, Tensor) and values.shape == norms.shape and values.requires_grad):
                raise ValueError(
                    "The penalty of a layer must take a tensor of squared norms to one of the same shape, entry by "
                    f"entry and by torch operations; got {values!r}."
                )
            (slopes,) = torch.autograd.grad(values.sum(), norms)
        if not bool((slopes > 0).all()):
            raise ValueError(
                f"The penalty of a layer must increase strictly with ‖f‖²; its derivatives at {norms.tolist()} are "
                f"{slopes.tolist()}. Without that, no representer theorem holds."
            )

    def check_size(self, X: Data) -> None:
        """Raise if the kernel implies another number of outputs on these inputs."""
        implied = self.operator_kernel.n_outputs(X)
        if implied is not None and implied != self.size:
            raise ValueError(
                f"A layer of size {self.size} has the kernel {argument_repr(self.kernel)}, which has {implied} "
                "outputs on these inputs. Make them equal."
            )

    def replaced(self, **arguments: Any) -> Layer:
        """The layer with some arguments exchanged."""
        return Layer(**{**self.get_params(deep=False), **arguments})

    def penalized(self, squared_norm: Tensor) -> Tensor:
        """The penalty α Θ(‖f‖²)."""
        shape = squared_norm if self.penalty is None else self.penalty(squared_norm)
        return torch.as_tensor(self.alpha, dtype=shape.dtype, device=shape.device) * shape

    def penalty_and_slope(self, squared_norm: Tensor) -> tuple[Tensor, Tensor]:
        """The penalties α Θ(‖f‖²) (b,), and their derivatives in ‖f‖² (b, 1, 1)."""
        with torch.enable_grad():
            norm = squared_norm.detach().requires_grad_()
            value = self.penalized(norm)
            (slope,) = torch.autograd.grad(value.sum(), norm)
        return value.detach(), slope[:, None, None]


@dataclass(frozen=True)
class OutputBlock:
    """Outputs of a layer that share one scalar Gram matrix, and so one factor.

    A kernel without a diagonal form is a single part with one row for each entry of the output: ``coupled``.
    """

    gram: Callable[[Any, Any], Tensor]
    outputs: Tensor
    coupled: bool = False
    kernel: Kernel | None = None  # where it is one, and not a combination

    @property
    def width(self) -> int:
        """The number of columns of coordinates that its factor multiplies."""
        return 1 if self.coupled else len(self.outputs)

    @property
    def rows_per_sample(self) -> int:
        """Rows of the Gram matrix for each sample."""
        return len(self.outputs) if self.coupled else 1

    def entries(self, samples: Tensor) -> Tensor:
        """The rows of the Gram matrix that belong to these samples."""
        step = self.rows_per_sample
        return (samples[:, None] * step + torch.arange(step)).reshape(-1)

    def locate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The samples that some rows of the Gram matrix belong to, and where the rows are in *their* matrix."""
        if not self.coupled:
            return rows, torch.arange(len(rows))
        step = self.rows_per_sample
        samples, inverse = torch.unique(rows // step, return_inverse=True)
        return samples, inverse * step + rows % step


class Outputs:
    """How the coordinates of a layer become its values.

    With K = V diag_j(k_j) Vᵀ and k_j(X, X) = B_j B_jᵀ, f(X) V = [B_1 θ_1, …, B_p θ_p] and ‖f‖² = Σ‖θ_j‖²; equal k_j
    share a factor. If all k_j are multiples of one kernel, K = k A, the coordinates are instead a matrix Θ with
    f(X) = B Θ A^½.
    """

    def __init__(self, layer: Layer, like: Tensor):
        kernel, size = layer.operator_kernel, layer.size
        every = torch.arange(size)
        self.size = size
        self.root: Tensor | None = None
        self.inverse_root: Tensor | None = None
        self.rotation: Tensor | None = None
        form = kernel.diagonal_form(size, like)
        if isinstance(kernel, Decomposable):
            self.parts = [OutputBlock(kernel.kernel._gram, every, kernel=kernel.kernel)]
            if not isinstance(kernel._operator, Identity):
                self.root, self.inverse_root = (_power(kernel._operator, size, like, s) for s in (0.5, -0.5))
        elif form is not None:
            self.rotation = form.rotation
            self.parts = [OutputBlock(partial(form.gram, weights), outputs) for weights, outputs in form.groups()]
        else:
            self.parts = [OutputBlock(partial(block_matrix, kernel, size), every, coupled=True)]

    @cached_property
    def plain(self) -> bool:
        """Are values the factor times the coordinates, and nothing else?"""
        only = len(self.parts) == 1 and not self.parts[0].coupled
        return only and self.rotation is None and self.root is None

    def shape(self, ranks: list[int]) -> tuple[int, int]:
        """The shape of the coordinates: a matrix if there is one factor, a column of several parts otherwise."""
        if len(self.parts) == 1:
            return ranks[0], self.parts[0].width
        return sum(rank * part.width for rank, part in zip(ranks, self.parts, strict=True)), 1

    def split(self, theta: Tensor, ranks: list[int]) -> list[Tensor]:
        """The coordinates of each part, (..., rank, width)."""
        if len(self.parts) == 1:
            return [theta]
        sizes = [rank * part.width for rank, part in zip(ranks, self.parts, strict=True)]
        pieces = theta[..., 0].split(sizes, dim=-1)
        return [
            piece.reshape(*piece.shape[:-1], rank, part.width)
            for piece, rank, part in zip(pieces, ranks, self.parts, strict=True)
        ]

    def join(self, pieces: list[Tensor]) -> Tensor:
        """Coordinates of the parts as those of the layer."""
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat([piece.flatten(-2) for piece in pieces], dim=-1)[..., None]

    def values(self, factors: list[Tensor], theta: Tensor) -> Tensor:
        """f at the points of the factors, (..., n, size)."""
        pieces = self.split(theta, [factor.shape[-1] for factor in factors])
        return self._assemble([factor @ piece for factor, piece in zip(factors, pieces, strict=True)], self.root)

    def coefficients(self, pieces: list[Tensor]) -> Tensor:
        """The c of Σ_j K(·, z_j) c_j from what the parts give each anchor."""
        return self._assemble(pieces, self.inverse_root)

    def _assemble(self, columns: list[Tensor], root: Tensor | None) -> Tensor:
        if self.parts[0].coupled:
            return columns[0].reshape(*columns[0].shape[:-2], -1, self.size)
        if len(columns) > 1:
            order = torch.cat([part.outputs for part in self.parts]).argsort()
            values = torch.cat(columns, dim=-1)[..., order]
        else:
            values = columns[0]
        if self.rotation is not None:
            return values @ self.rotation.mT
        return values if root is None else values @ root

    def columns(self, values: Tensor) -> list[Tensor]:
        """What the factors of the parts should give, so that these are the values."""
        if self.parts[0].coupled:
            return [values.reshape(*values.shape[:-2], -1, 1)]
        if self.rotation is not None:
            values = values @ self.rotation
        elif self.inverse_root is not None:
            values = values @ self.inverse_root
        return [values[..., part.outputs] for part in self.parts]


def _power(operator: Operator, size: int, like: Tensor, power: float) -> Tensor:
    """A^power, on the range of A."""
    spectrum = operator.spectrum(size, like)
    vanishing = spectrum.values <= spectrum.values.max() * torch.finfo(like.dtype).eps * size
    powers = torch.where(vanishing, 0.0, torch.where(vanishing, 1.0, spectrum.values) ** power)
    return (spectrum.vectors * powers) @ spectrum.vectors.mT


def block_matrix(kernel: OperatorKernel, size: int, X: Data, Y: Data | None) -> Tensor:
    """The block matrix, member by member of a batch."""
    if isinstance(X, Tensor) and X.ndim > 2:
        others = [None] * len(X) if Y is None else Y
        return torch.stack([block_matrix(kernel, size, x, y) for x, y in zip(X, others, strict=True)])
    return kernel.dense(X, Y, size)


# Of many samples, pivots are chosen among so many for each.
CANDIDATES_PER_PIVOT = 4


class Chain:
    """f_L ∘ … ∘ f_1 on n training points, in orthonormal coordinates.

    The anchors of each layer are the images of the training points under the layers before it (the deep representer
    theorem). With K_l = B_l B_lᵀ on those anchors, f_l(X) = B_l Θ_l A_l^½ and ‖f_l‖² = ‖Θ_l‖²: the coordinates Θ_l
    (r_l × size) are well conditioned where expansion coefficients are not. The first factor does not depend on any Θ
    and is computed once, by pivoted Cholesky; a degree-1 polynomial kernel on ℝ² gives it r = 3 columns. The
    coordinates have the ``shapes`` (r_l, size_l), or one column where outputs have their own factors, and are ``size``
    unknowns in all.

    Parameters
    ----------
    layers : sequence of Layer
        From the input on; their kernels have numbers for all hyperparameters.
    X : data
        The points whose images are wanted.
    tol : float
        Relative tolerance of the first factor: K is matched to ``tol`` times its largest diagonal entry.
    max_rank : int, optional
        Cap on r for every layer. The anchors of later layers are then the images of the first layer's pivots and, if
        these are fewer, of evenly spaced other points.
    rows : tensor of int, optional
        The training points among X, to which all anchors are confined; all of them by default.

    Examples
    --------
    >>> import torch
    >>> from representer.functions import Chain, Layer
    >>> from representer.kernels import Gaussian, Polynomial
    >>> X = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> chain = Chain([Layer(Polynomial(1), size=2), Layer(Gaussian(1.0), size=1)], X)
    >>> chain.shapes
    [(3, 2), (20, 1)]
    >>> coordinates = chain.split(torch.ones(chain.size, dtype=torch.float64))
    >>> bool(torch.allclose(chain.images(coordinates)[-1], chain.evaluate(coordinates, X)[-1]))
    True
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        X: Data,
        *,
        tol: float = 1e-12,
        max_rank: int | None = None,
        rows: Tensor | None = None,
    ):
        if not layers:
            raise ValueError("A chain needs at least one layer.")
        for layer in layers:
            if not isinstance(layer, Layer):
                raise ValueError(f"A chain is made from layers, Layer(kernel, size); got {layer!r}.")
            layer.check()
        if max_rank is not None and not is_count(max_rank):
            raise ValueError(f"max_rank must be None or a positive integer; got {max_rank!r}.")
        self.layers = list(layers)
        self.X = self.layers[0].operator_kernel.prepare(X)
        self.layers[0].check_size(self.X)
        self.max_rank = max_rank
        self.rows = torch.arange(count(self.X)) if rows is None else rows
        self.outputs = self._make_outputs()
        self.pivots = [self._choose_pivots(part, tol) for part in self.outputs[0].parts]
        self.factors = [self._first_factor(*pair) for pair in zip(self.outputs[0].parts, self.pivots, strict=True)]
        self.later_rows = self._later_rows()
        later = enumerate(self.outputs[1:])
        self.shapes: list[tuple[int, int]] = [
            self.outputs[0].shape([factor.shape[-1] for factor in self.factors]),
            *(o.shape([self._later_rank(part, i) for part in o.parts]) for i, o in later),
        ]
        self._sizes = [rank * size for rank, size in self.shapes]
        self.size = sum(self._sizes)

    def _make_outputs(self) -> list[Outputs]:
        like = self.X if isinstance(self.X, Tensor) and self.X.is_floating_point() else torch.zeros(1).double()
        return [Outputs(layer, like) for layer in self.layers]

    @property
    def _pairwise(self) -> bool:
        return self.layers[0].domain == "gram"

    def _first_gram(self, part: OutputBlock, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        """The first layer's Gram matrix between training points; None means all of X, or the same points."""
        if self._pairwise:
            gram = part.gram(self.X, None)
            gram = gram if rows is None else gram[rows]
            return gram[:, rows if columns is None else columns] if rows is not None or columns is not None else gram
        points = self.X if rows is None else take(self.X, rows)
        return part.gram(points, None if columns is None else take(self.X, columns))

    # -- the first layer ----------------------------------------------------------------------------------------------
    def _choose_pivots(self, part: OutputBlock, tol: float) -> Tensor:
        """Rows of the first Gram matrix (of its entries, where outputs are coupled) that span the others."""
        rows = pivot_candidates(self.rows, self.max_rank)
        _, chosen = pivoted_cholesky(self._first_gram(part, rows, None), tol=tol, max_rank=self.max_rank)
        if not len(chosen):
            raise ValueError(
                "The kernel of the first layer is zero for all samples, to rounding: a layer has nothing to work with. "
                "Check and scale the data, or choose another kernel."
            )
        return part.entries(rows)[chosen]

    def _first_cholesky(self, part: OutputBlock, pivots: Tensor) -> Cholesky:
        samples, entries = part.locate(pivots)
        gram = self._first_gram(part, samples, None)[entries[:, None], entries]
        return factorize(gram, name="The Gram matrix of the first layer's pivots")

    def _first_factor(self, part: OutputBlock, pivots: Tensor) -> Tensor:
        """B = K(X, pivots) L⁻ᵀ with L Lᵀ = K(pivots, pivots), differentiable in the kernel."""
        samples, entries = part.locate(pivots)
        cross = self._first_gram(part, None, samples)[:, entries]
        return self._first_cholesky(part, pivots).half_solve(cross.mT).mT

    def with_layers(self, layers: Sequence[Layer]) -> Self:
        """The same pivots and anchors with other hyperparameters, which may carry gradients."""
        new = copy.copy(self)
        new.layers = list(layers)
        new.outputs = new._make_outputs()
        new.factors = [new._first_factor(*pair) for pair in zip(new.outputs[0].parts, new.pivots, strict=True)]
        return new

    # -- later layers -------------------------------------------------------------------------------------------------
    def _later_rows(self) -> Tensor:
        """The training points whose images are the anchors of later layers."""
        if self.max_rank is None or self.max_rank >= len(self.rows):
            return self.rows
        located = [part.locate(pivots)[0] for part, pivots in zip(self.outputs[0].parts, self.pivots, strict=True)]
        chosen = located[0] if len(located) == 1 else torch.unique(torch.cat(located))[: self.max_rank]
        rest = torch.ones(count(self.X), dtype=torch.bool)
        rest[chosen] = False
        others = self.rows[rest[self.rows]]
        spaced = torch.linspace(0, len(others) - 1, self.max_rank - len(chosen)).round().long()
        return torch.cat([chosen, others[spaced]])

    def _anchor_cholesky(self, part: OutputBlock, anchors: Tensor) -> Cholesky:
        """A member of a batch that cannot be factored is NaN, and does not stop the others."""
        name = "The Gram matrix of a layer's anchors"
        return factorize(part.gram(anchors, None), name=name, strict=anchors.ndim < 3)

    def _is_explicit(self, part: OutputBlock, dimension: int) -> bool:
        """Does a later layer's kernel have fewer features than there are anchors?"""
        return feature_count(part.kernel, dimension) < len(self.later_rows)

    def _later_factor(self, part: OutputBlock, Z: Tensor) -> Tensor:
        """B with K ≈ B Bᵀ at the images Z, exactly so if all of them are anchors, or if features are explicit."""
        if self._is_explicit(part, Z.shape[-1]):
            return features(part.kernel, Z)
        anchors = Z[..., self.later_rows, :]
        cholesky = self._anchor_cholesky(part, anchors)
        if Z.requires_grad and not cholesky.factor.requires_grad:
            raise ValueError(
                "The kernel of a layer after the first is not differentiable in its inputs, so that the layers before "
                "it cannot be learned. Build it from torch operations: no .detach(), .item() or numpy."
            )
        if len(self.later_rows) == Z.shape[-2] and not bool(cholesky.jitter.any()):
            return cholesky.factor  # with jitter it is not the factor that functions evaluated elsewhere have
        return cholesky.half_solve(part.gram(Z, anchors).mT).mT

    def _later_rank(self, part: OutputBlock, before: int) -> int:
        dimension = self.layers[before].size
        if self._is_explicit(part, dimension):
            return int(feature_count(part.kernel, dimension))
        return len(part.entries(self.later_rows))

    def _later_dual(self, part: OutputBlock, anchors: Tensor, theta: Tensor) -> Tensor:
        """Coefficients on the anchors: L⁻ᵀΘ, or Φ(ΦᵀΦ)⁻¹Θ of explicit features."""
        if self._is_explicit(part, anchors.shape[-1]):
            phi = features(part.kernel, anchors)
            return phi @ _normal_solve(phi, theta)
        return self._anchor_cholesky(part, anchors).back_solve(theta)  # B = K L⁻ᵀ: BΘ = K (L⁻ᵀ Θ)

    # -- coordinates --------------------------------------------------------------------------------------------------
    def split(self, flat: Tensor) -> list[Tensor]:
        """The coordinates Θ_1, …, Θ_L of a flat vector (size,), or of a batch of them (b, size)."""
        if flat.shape[-1] != self.size:
            raise ValueError(f"A chain of shapes {self.shapes} has {self.size} unknowns; got {flat.shape[-1]}.")
        parts = flat.split(self._sizes, dim=-1)
        return [part.reshape(*flat.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def images(self, coordinates: Sequence[Tensor]) -> list[Tensor]:
        """f_1(X), f_2(f_1(X)), …: every intermediate image of the points; batches and gradients allowed."""
        images: list[Tensor] = []
        for outputs, theta in zip(self.outputs, coordinates, strict=True):
            factors = [self._later_factor(part, images[-1]) for part in outputs.parts] if images else self.factors
            images.append(factors[0] @ theta if outputs.plain else outputs.values(factors, theta))
        return images

    @property
    def linear_factor(self) -> Tensor | None:
        """The B of images BΘ, where the only layer is linear in its coordinates; otherwise None."""
        return self.factors[0] if len(self.outputs) == 1 and self.outputs[0].plain else None

    def with_pullback(self, flat: Tensor) -> tuple[list[Tensor], Tensor, Callable[[Tensor], Tensor]]:
        """The coordinates of a batch of flat vectors, the last images, and what takes a gradient in these to one in the
        coordinates, in their shape or flat."""
        factor = self.linear_factor
        if factor is not None:
            coordinates = self.split(flat)
            return coordinates, factor @ coordinates[0], partial(torch.matmul, factor.mT)
        with torch.enable_grad():
            leaf = flat.detach().requires_grad_()
            coordinates = self.split(leaf)
            images = self.images(coordinates)[-1]
        detached = [theta.detach() for theta in coordinates]
        return detached, images.detach(), lambda gradient: torch.autograd.grad(images, leaf, gradient)[0]

    def project(self, images: Sequence[Tensor]) -> list[Tensor]:
        """Coordinates whose images come closest to the given ones at the training points, layer by layer.

        Least squares with a ridge at the rounding of the factor: where an image is in the span, it is met to about
        eight digits.
        """
        coordinates: list[Tensor] = []
        reached = images[0]
        for outputs, image in zip(self.outputs, images, strict=True):
            factors = self.factors if not coordinates else [self._later_factor(p, reached) for p in outputs.parts]
            wanted = outputs.columns(image[self.rows])
            pieces = []
            for part, factor, column in zip(outputs.parts, factors, wanted, strict=True):
                own = factor[part.entries(self.rows)]
                pieces.append(_normal_solve(own, own.mT @ column))
            coordinates.append(outputs.join(pieces))
            reached = outputs.values(factors, coordinates[-1])
        return coordinates

    def squared_norms(self, coordinates: Sequence[Tensor]) -> Tensor:
        """‖f_l‖² = ‖Θ_l‖², (..., L)."""
        return torch.stack([(theta**2).sum((-2, -1)) for theta in coordinates], -1)

    # -- functions ----------------------------------------------------------------------------------------------------
    def expansions(self, coordinates: Sequence[Tensor]) -> list[Expansion]:
        """The layers as functions that can be evaluated anywhere: f_l = Σ_j K_l(·, z_j) c_j."""
        functions = [self._first_expansion(coordinates[0])]
        Z = functions[0](self.X)
        later = zip(self.layers[1:], self.outputs[1:], coordinates[1:], strict=True)
        for l, (layer, outputs, theta) in enumerate(later):
            anchors = Z[..., self.later_rows, :]
            pieces = outputs.split(theta, [self._later_rank(part, l) for part in outputs.parts])
            dual = [self._later_dual(part, anchors, piece) for part, piece in zip(outputs.parts, pieces, strict=True)]
            functions.append(Expansion(layer.operator_kernel, anchors, outputs.coefficients(dual)))
            Z = functions[-1](Z)
        return functions

    def _first_expansion(self, theta: Tensor) -> Expansion:
        """On the pivots of all parts; on all samples for Gram rows, which have a column for each of them."""
        outputs, n = self.outputs[0], count(self.X)
        located = [part.locate(pivots)[0] for part, pivots in zip(outputs.parts, self.pivots, strict=True)]
        anchors = torch.arange(n) if self._pairwise else torch.unique(torch.cat(located))
        place = torch.zeros(n, dtype=torch.long)
        place[anchors] = torch.arange(len(anchors))
        spread = []
        pieces = outputs.split(theta, [factor.shape[-1] for factor in self.factors])
        for part, pivots, piece in zip(outputs.parts, self.pivots, pieces, strict=True):
            dual = self._first_cholesky(part, pivots).back_solve(piece)
            step = part.rows_per_sample
            full = dual.new_zeros(*dual.shape[:-2], len(anchors) * step, dual.shape[-1])
            full[..., place[pivots // step] * step + pivots % step, :] = dual
            spread.append(full)
        X = self.X if self._pairwise else take(self.X, anchors)
        return Expansion(self.layers[0].operator_kernel, X, outputs.coefficients(spread))

    def evaluate(self, coordinates: Sequence[Tensor], X: Data) -> list[Tensor]:
        """Every intermediate image of new points."""
        images = []
        for function in self.expansions(coordinates):
            X = function(X)
            images.append(X)
        return images


def pivot_candidates(rows: Tensor, max_rank: int | None) -> Tensor:
    """The rows among which pivots are chosen: all, or a random few times as many as there may be pivots.

    The greedy choice among all of many samples costs a pass over the data for each pivot, and gains little.
    """
    if max_rank is None or len(rows) <= CANDIDATES_PER_PIVOT * max_rank:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return rows[order[: CANDIDATES_PER_PIVOT * max_rank].sort().values]


def _normal_solve(factor: Tensor, right: Tensor) -> Tensor:
    """(BᵀB)⁻¹R with a ridge at the rounding of BᵀB."""
    inner = factor.mT @ factor
    ridge = torch.finfo(factor.dtype).eps * inner.diagonal(dim1=-2, dim2=-1).mean(-1) * inner.shape[-1]
    return factorize(shifted(inner, ridge[..., None]), name="A projection", strict=factor.ndim < 3).solve(right)
