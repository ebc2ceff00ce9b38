"""Operator-valued kernels that are not separable: vector fields, and outputs that see transformed inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from representer.kernels import Domain, Gaussian, Kernel, Stationary
from representer.operators.base import VectorOperatorKernel, common_domain
from representer.samples import Data, as_vectors
from representer.values import Hyperparameter, Positive, number

Map = npt.ArrayLike | Callable[[Tensor], Tensor]


class Transformable(VectorOperatorKernel):
    """K(x, y)_{lm} = k(S_l x, S_m y): output l sees the input through the map S_l.

    Parameters
    ----------
    kernel : Kernel
        The scalar kernel k on the images.
    maps : list of matrices or callables
        One for each output; a matrix S of shape (q, d) maps x to S x, a callable maps (n, d) to (n, q).

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> from representer.operators import Transformable
    >>> K = Transformable(Linear(), [[[1.0, 0.0]], [[1.0, 1.0]]])
    >>> K.dense(K.prepare([[2.0, 3.0]]), None, p=2).tolist()
    [[4.0, 10.0], [10.0, 25.0]]
    """

    def __init__(self, kernel: Kernel, maps: list[Map]):
        self.kernel = kernel
        self.maps = maps

    @property
    def domain(self) -> Domain:
        """The kind of data before and after the maps: vectors."""
        if common_domain(self, [self.kernel], Kernel) != "vectors":
            raise ValueError(
                f"Transformable needs a kernel on vectors, the images of the maps; {self.kernel!r} takes "
                f"{self.kernel.domain}."
            )
        return "vectors"

    def prepare(self, X: Data) -> Tensor:
        """The data as a floating tensor (n, d)."""
        self.domain  # noqa: B018  it raises if the kernel does not take vectors
        return as_vectors(X)

    def n_outputs(self, X: Tensor) -> int:
        """The number of maps: there is an output for each."""
        return len(self.maps)

    def _images(self, X: Tensor) -> Tensor:
        """The images of all samples, S_l x_i at row i·p + l."""
        images = [_mapped(S, X) for S in self.maps]
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) != 1 or shapes.pop()[0] != len(X):
            raise ValueError(
                f"The maps of Transformable must give images of one shape ({len(X)}, q); they give "
                f"{[tuple(image.shape) for image in images]}."
            )
        return torch.stack(images, 1).reshape(len(X) * len(images), -1)

    def _resolve(self, X: Tensor) -> Self:
        return self._with_arguments(kernel=self.kernel._resolve(self._images(X)))

    def dense(self, X: Tensor, Y: Tensor | None, p: int) -> Tensor:
        """The Gram matrix of the images."""
        return self.kernel._gram(self._images(X), None if Y is None else self._images(Y))

    def apply(self, X: Tensor, anchors: Tensor, coefficients: Tensor) -> Tensor:
        """One product with the Gram matrix of the images."""
        image = self.kernel._gram(self._images(X), self._images(anchors)) @ coefficients.reshape(-1)
        return image.reshape(len(X), -1)

    def diag(self, X: Tensor, p: int) -> Tensor:
        """The diagonals k(S_l x_i, S_l x_i)."""
        return self.kernel._diag(self._images(X)).reshape(-1, p)


def _mapped(transformation: Map, X: Tensor) -> Tensor:
    """The images of vectors under a matrix or a function."""
    if callable(transformation):
        return as_vectors(transformation(X))
    matrix = torch.as_tensor(np.asarray(transformation), dtype=X.dtype, device=X.device)
    if matrix.ndim != 2 or matrix.shape[1] != X.shape[1]:
        raise ValueError(f"A map of Transformable has shape {tuple(matrix.shape)}; expected (q, {X.shape[1]}).")
    return X @ matrix.mT


class VectorField(VectorOperatorKernel, ABC):
    """A matrix-valued Gaussian kernel on ℝᵈ with d outputs, K = g(δ)(a(‖δ‖²) I + b δδᵀ/ℓ²), δ = x − y."""

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "lengthscale": Hyperparameter(
            Positive(),
            {word: Stationary.hyperparameters["lengthscale"].words[word] for word in ("median", "auto")},
            scalar=True,  # a lengthscale for each feature would spoil the curl and the divergence
        )
    }

    def __init__(self, lengthscale: float | str | Tensor = "median"):
        self.lengthscale = lengthscale

    def _resolve(self, X: Tensor) -> Self:
        return self._with_arguments(lengthscale=Gaussian(self.lengthscale)._resolve(X).lengthscale)

    @abstractmethod
    def _profile(self, square: Tensor, d: int) -> tuple[Tensor | float, float]:
        """The functions a(‖δ‖²/ℓ²) and b of the kernel."""

    def _terms(self, X: Tensor, Y: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | float, float]:
        """The scaled positions, the Gaussian g, and the profile."""
        lengthscale = number(self, "lengthscale", X)
        x = X / lengthscale
        y = x if Y is None else Y / lengthscale
        square = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        a, b = self._profile(square, X.shape[-1])
        return x, y, torch.exp(-0.5 * square), a, b

    def dense(self, X: Tensor, Y: Tensor | None, p: int) -> Tensor:
        """The matrix of the blocks g (a I + b δδᵀ/ℓ²)."""
        x, y, g, a, b = self._terms(X, Y)
        delta = x[:, None, :] - y[None, :, :]
        eye = torch.eye(p, dtype=x.dtype, device=x.device)
        outer = b * delta[..., :, None] * delta[..., None, :]
        blocks = (g * a)[..., None, None] * eye + g[..., None, None] * outer
        return blocks.permute(0, 2, 1, 3).reshape(len(x) * p, len(y) * p)

    def apply(self, X: Tensor, anchors: Tensor, coefficients: Tensor) -> Tensor:
        """Σ_j K(x_i, z_j) c_j by products with n × m matrices only, because δᵀc_j = xᵀc_j − z_jᵀc_j."""
        x, z, g, a, b = self._terms(X, anchors)
        along = g * (x @ coefficients.mT - (z * coefficients).sum(1))
        return (g * a) @ coefficients + b * (along.sum(1, keepdim=True) * x - along @ z)

    def diag(self, X: Tensor, p: int) -> Tensor:
        """Ones (n, p), because the kernel is normalised."""
        return X.new_ones(len(X), p)


class CurlFree(VectorField):
    """K(x, y) = (I − δδᵀ/ℓ²) exp(−‖δ‖²/(2ℓ²)), δ = x − y: every function is a gradient field.

    It is −ℓ²∇∇ᵀ of the Gaussian kernel, so that K(x, x) = I.

    Parameters
    ----------
    lengthscale : float, "median" or "auto"
        ℓ. ``"median"``: the median distance between samples; ``"auto"``: learned from there on.

    Examples
    --------
    >>> from representer.operators import CurlFree
    >>> K = CurlFree(lengthscale=1.0)
    >>> X = K.prepare([[0.0, 0.0], [1.0, 0.0]])
    >>> K.dense(X[:1], X[1:], p=2).round(decimals=4).tolist()
    [[0.0, 0.0], [0.0, 0.6065]]
    """

    def _profile(self, square: Tensor, d: int) -> tuple[Tensor | float, float]:
        return 1.0, -1.0


class DivergenceFree(VectorField):
    """K(x, y) = (δδᵀ/ℓ² + (d − 1 − ‖δ‖²/ℓ²) I) exp(−‖δ‖²/(2ℓ²)) / (d − 1): every function has divergence zero.

    It is ℓ²(∇∇ᵀ − ∇²I) of the Gaussian kernel, scaled so that K(x, x) = I; d ≥ 2.

    Parameters
    ----------
    lengthscale : float, "median" or "auto"
        ℓ, as in ``CurlFree``.

    Examples
    --------
    >>> from representer.operators import DivergenceFree
    >>> K = DivergenceFree(lengthscale=1.0)
    >>> X = K.prepare([[0.0, 0.0], [1.0, 0.0]])
    >>> K.dense(X[:1], X[1:], p=2).round(decimals=4).tolist()
    [[0.6065, 0.0], [0.0, 0.0]]
    """

    def prepare(self, X: Data) -> Tensor:
        """The positions, in at least two dimensions."""
        positions = as_vectors(X)
        if positions.shape[-1] < 2:
            raise ValueError("A divergence-free field needs at least 2 features (coordinates); got 1.")
        return positions

    def _profile(self, square: Tensor, d: int) -> tuple[Tensor | float, float]:
        return (d - 1 - square) / (d - 1), 1.0 / (d - 1)
