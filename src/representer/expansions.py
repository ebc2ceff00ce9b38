"""Functions in a reproducing kernel Hilbert space: Σ_j K(·, z_j) c_j, their norms, and chains of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from representer.data import count, same_features, take
from representer.kernels.base import Kernel
from representer.linalg import Cholesky, factorize, pivoted_cholesky
from representer.memory import row_blocks
from representer.operators import Decomposable, Identity, Operator, OperatorKernel
from representer.parameters import is_count


@dataclass(frozen=True)
class Expansion:
    """f = Σ_j K(·, z_j) c_j.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    anchors : prepared data
        The m points z_j.
    coefficients : tensor (m, p)
        The c_j.

    Examples
    --------
    >>> import torch
    >>> from representer.expansions import Expansion
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> f = Expansion(Decomposable(Linear()), torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]]))
    >>> f([[1.0], [10.0]]).tolist(), f.squared_norm().item()
    ([[3.0], [30.0]], 9.0)
    """

    kernel: OperatorKernel
    anchors: Any
    coefficients: Tensor

    def __call__(self, X: Any) -> Tensor:
        """f(x_i), (n, p), in blocks of rows: no n × m matrix exists unless a gradient needs it."""
        X = self.kernel.prepare(X)
        if isinstance(X, Tensor) and self.kernel.domain in ("vectors", "gram"):
            X = X.to(self.coefficients)
            if self.kernel.domain == "vectors":
                same_features(X, self.anchors)
        if isinstance(X, Tensor) and (X.requires_grad or X.ndim > 2):
            return self.kernel.apply(X, self.anchors, self.coefficients)
        bytes_per_row = self.coefficients.numel() * self.coefficients.element_size()
        blocks = row_blocks(count(X), bytes_per_row)
        parts = [self.kernel.apply(X[rows], self.anchors, self.coefficients) for rows in blocks]
        return torch.cat(parts, dim=-2)  # coefficients may be a batch

    def squared_norm(self) -> Tensor:
        """‖f‖² = Σ_ij ⟨c_i, K(z_i, z_j) c_j⟩."""
        return self.kernel.squared_norm(self.anchors, self.coefficients)


@dataclass(frozen=True)
class Layer:
    """One function of a chain: its kernel k, the dimension of its values, and the operator A of K = k·A.

    Examples
    --------
    >>> from representer.expansions import Layer
    >>> from representer.kernels import Gaussian
    >>> Layer(Gaussian(1.0), size=2)
    Layer(kernel=Gaussian(lengthscale=1.0), size=2, operator=Identity())
    """

    kernel: Kernel
    size: int
    operator: Operator = field(default_factory=Identity)


class Chain:
    """f_L ∘ … ∘ f_1 on n training points, in orthonormal coordinates.

    The anchors of each layer are the images of the training points under the layers before it (the deep representer
    theorem). With K_l = B_l B_lᵀ on those anchors, f_l(X) = B_l Θ_l A_l^½ and ‖f_l‖² = ‖Θ_l‖²: the coordinates Θ_l
    (r_l × size) are well conditioned where expansion coefficients are not. The first factor does not depend on any Θ
    and is computed once, by pivoted Cholesky; a degree-1 polynomial kernel on ℝ² gives it r = 3 columns.

    Parameters
    ----------
    layers : sequence of Layer
        From the input on; their kernels have numbers for all hyperparameters.
    X : data
        The training points.
    tol : float
        Relative tolerance of the first factor: K is matched to ``tol`` times its largest diagonal entry.
    max_rank : int, optional
        Cap on r for every layer. The anchors of later layers are then the images of the first layer's pivots and, if
        these are fewer, of evenly spaced other points.

    Examples
    --------
    >>> import torch
    >>> from representer.expansions import Chain, Layer
    >>> from representer.kernels import Gaussian, Polynomial
    >>> X = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> chain = Chain([Layer(Polynomial(1), size=2), Layer(Gaussian(1.0), size=1)], X)
    >>> chain.shapes
    [(3, 2), (20, 1)]
    >>> coordinates = chain.split(torch.ones(chain.size, dtype=torch.float64))
    >>> bool(torch.allclose(chain.images(coordinates)[-1], chain.evaluate(coordinates, X)[-1]))
    True
    """

    def __init__(self, layers: Sequence[Layer], X: Any, *, tol: float = 1e-12, max_rank: int | None = None):
        if not layers:
            raise ValueError("A chain needs at least one layer.")
        for layer in layers:
            if not isinstance(layer, Layer):
                raise ValueError(f"A chain is made from layers, Layer(kernel, size); got {layer!r}.")
            if not is_count(layer.size):
                raise ValueError(f"The size of a layer must be a positive integer; got {layer.size!r}.")
            if not isinstance(layer.kernel, Kernel):
                raise ValueError(f"The kernel of a layer must be a kernel object; got {layer.kernel!r}.")
        if max_rank is not None and not is_count(max_rank):
            raise ValueError(f"max_rank must be None or a positive integer; got {max_rank!r}.")
        self.layers = list(layers)
        self.X = self.layers[0].kernel.prepare(X)
        self.max_rank = max_rank
        self.first_factor, self.pivots = self._factor_first(tol)
        self.later_rows = self._later_rows()

    def _factor_first(self, tol: float) -> tuple[Tensor, Tensor]:
        kernel, X = self.layers[0].kernel, self.X

        def column(index: int) -> Tensor:
            return kernel._gram(X, X[index : index + 1])[:, 0]

        limit = self.max_rank
        if limit is None or kernel.domain == "gram":
            return pivoted_cholesky(kernel._gram(X, None), tol=tol, max_rank=limit)
        return pivoted_cholesky(column, diagonal=kernel._diag(X), tol=tol, max_rank=limit)

    def _later_rows(self) -> Tensor:
        """The training points whose images are the anchors of later layers."""
        n = count(self.X)
        if self.max_rank is None or self.max_rank >= n:
            return torch.arange(n)
        rest = torch.ones(n, dtype=torch.bool)
        rest[self.pivots] = False
        others = rest.nonzero()[:, 0]
        missing = self.max_rank - len(self.pivots)
        spaced = torch.linspace(0, len(others) - 1, missing).round().long()
        return torch.cat([self.pivots, others[spaced]])

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The shape (r_l, size_l) of each layer's coordinates."""
        ranks = [self.first_factor.shape[1]] + [len(self.later_rows)] * (len(self.layers) - 1)
        return [(rank, layer.size) for rank, layer in zip(ranks, self.layers, strict=True)]

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return sum(rank * size for rank, size in self.shapes)

    def split(self, flat: Tensor) -> list[Tensor]:
        """The coordinates Θ_1, …, Θ_L of a flat vector (size,), or of a batch of them (b, size)."""
        if flat.shape[-1] != self.size:
            raise ValueError(
                f"A chain of shapes {self.shapes} has {self.size} unknowns; got {flat.shape[-1]}."
            )
        parts = flat.split([rank * size for rank, size in self.shapes], dim=-1)
        return [
            part.reshape(*flat.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)
        ]

    def images(self, coordinates: Sequence[Tensor]) -> list[Tensor]:
        """f_1(X), f_2(f_1(X)), …: every intermediate image of the training points; batches and gradients allowed."""
        images: list[Tensor] = []
        for layer, theta in zip(self.layers, coordinates, strict=True):
            factor = self._later_factor(layer.kernel, images[-1]) if images else self.first_factor
            images.append(_with_root(factor @ theta, layer))
        return images

    def _later_factor(self, kernel: Kernel, Z: Tensor) -> Tensor:
        """B with K ≈ B Bᵀ at the images Z of the training points, exactly so if all of them are anchors."""
        anchors = Z[..., self.later_rows, :]
        cholesky = _anchor_cholesky(kernel, anchors)
        if len(self.later_rows) == Z.shape[-2]:
            return cholesky.factor
        return cholesky.half_solve(kernel._gram(Z, anchors).mT).mT

    def squared_norms(self, coordinates: Sequence[Tensor]) -> Tensor:
        """‖f_l‖² = ‖Θ_l‖², (..., L)."""
        return torch.stack([(theta**2).sum((-2, -1)) for theta in coordinates], -1)

    def expansions(self, coordinates: Sequence[Tensor]) -> list[Expansion]:
        """The layers as functions that can be evaluated anywhere: f_l = Σ_j K_l(·, z_j) c_j."""
        functions: list[Expansion] = []
        Z: Any = self.X
        for layer, theta in zip(self.layers, coordinates, strict=True):
            if functions:
                anchors = Z[..., self.later_rows, :]
                factor = _anchor_cholesky(layer.kernel, anchors).factor
            else:
                anchors = take(Z, self.pivots)
                factor = self.first_factor[self.pivots]
            # B = K_np L⁻ᵀ on the anchors p, so k(·, Z_p) L⁻ᵀ Θ A^½ has coefficients C with C A = L⁻ᵀ Θ A^½.
            scaled = torch.linalg.solve_triangular(factor.mT, theta, upper=True)
            function = Expansion(
                Decomposable(layer.kernel, layer.operator), anchors, _without_root(scaled, layer)
            )
            functions.append(function if functions else self._of_all_samples(function))
            Z = functions[-1](Z)
        return functions

    def _of_all_samples(self, function: Expansion) -> Expansion:
        """Gram rows of new points have a column for every sample, not for the pivots only."""
        if function.kernel.domain != "gram":
            return function
        c = function.coefficients
        spread = c.new_zeros(*c.shape[:-2], count(self.X), c.shape[-1])
        spread[..., self.pivots, :] = c
        return replace(function, anchors=self.X, coefficients=spread)

    def evaluate(self, coordinates: Sequence[Tensor], X: Any) -> list[Tensor]:
        """Every intermediate image of new points."""
        images = []
        for function in self.expansions(coordinates):
            X = function(X)
            images.append(X)
        return images


def _anchor_cholesky(kernel: Kernel, anchors: Tensor) -> Cholesky:
    """A member of a batch that cannot be factored is NaN, and does not stop the others."""
    gram = kernel._gram(anchors, None)
    return factorize(gram, name="The Gram matrix of a layer's anchors", strict=anchors.ndim < 3)


def _with_root(values: Tensor, layer: Layer) -> Tensor:
    return values if isinstance(layer.operator, Identity) else values @ _root(layer, values, 0.5)


def _without_root(values: Tensor, layer: Layer) -> Tensor:
    return values if isinstance(layer.operator, Identity) else values @ _root(layer, values, -0.5)


def _root(layer: Layer, like: Tensor, power: float) -> Tensor:
    """A^power, on the range of A."""
    spectrum = layer.operator.spectrum(layer.size, like)
    vanishing = spectrum.values <= spectrum.values.max() * torch.finfo(like.dtype).eps * layer.size
    powers = torch.where(vanishing, 0.0, torch.where(vanishing, 1.0, spectrum.values) ** power)
    return (spectrum.vectors * powers) @ spectrum.vectors.mT
