"""Where a search over inner layers starts: kernel PCA, random coordinates, and the words that data decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

from representer.functions import Chain, Layer
from representer.notices import warn
from representer.problems.composition import Composition
from representer.samples import Data

# Lanczos' method wins over a full decomposition from this size on, for at most one in so many singular vectors.
LANCZOS_SIZE, LANCZOS_SHARE = 200, 10


def principal_start(chain: Chain, generator: torch.Generator, weights: Tensor | None = None) -> list[Tensor]:
    """Coordinates of kernel PCA, layer by layer: the images are the leading principal components of the features.

    With weights (n,) of all samples it is that of a weighted covariance.

    A layer wider than its rank gets small random columns for the rest: at zero they would have no gradient.
    """
    coordinates: list[Tensor] = []
    image: Any = None
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
) -> Beginning:
    """Resolve words and start layer by layer."""
    layers: list[Layer] = []
    chain: Chain | None = None
    point: Tensor | None = None
    image: Tensor | None = None
    for layer in composition.layers:
        inputs = data if image is None else image
        layer.check_size(inputs)
        layers.append(layer.replaced(kernel=layer.operator_kernel.resolve(inputs), alpha=1.0))
        chain = Chain(layers, data, max_rank=max_rank)
        coordinates = principal_start(chain, generator, weights)
        point, image = flat(coordinates), chain.images(coordinates)[-1]
        warn_if_blind(layer, inputs, image)
    kernel = composition.kernel.resolve(data if image is None else image)
    numbered = [new.replaced(alpha=old.alpha) for new, old in zip(layers, composition.layers, strict=True)]
    return Beginning(Composition(numbered, kernel, composition.alpha), chain, point, image)


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
