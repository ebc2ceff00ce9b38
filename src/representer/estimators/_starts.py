"""Where a search over inner layers starts: kernel PCA, random coordinates, and the words that data decide."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from representer.estimators._composition import Composition
from representer.expansions import Chain, Layer


def principal_start(chain: Chain, generator: torch.Generator) -> list[Tensor]:
    """Coordinates of kernel PCA, layer by layer: the images are the leading principal components of the features.

    A layer wider than its rank gets small random columns for the rest: at zero they would have no gradient.
    """
    coordinates: list[Tensor] = []
    image: Any = None
    for outputs in chain.outputs:
        factors = (
            chain.factors if image is None else [chain._later_factor(part, image) for part in outputs.parts]
        )
        pieces = []
        for part, factor in zip(outputs.parts, factors, strict=True):
            B = factor[part.entries(chain.rows)]
            _, _, Vt = torch.linalg.svd(B - B.mean(0), full_matrices=False)
            directions = Vt[: part.width].mT
            missing = part.width - directions.shape[1]
            noise = 0.1 * _randn(len(directions), missing, generator, B)
            pieces.append(torch.cat([directions, noise], 1))
        coordinates.append(outputs.join(pieces))
        image = outputs.values(factors, coordinates[-1])
    return coordinates


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


def resolved(
    composition: Composition, data: Any, max_rank: int | None, generator: torch.Generator
) -> tuple[Composition, Tensor | None, int]:
    """Words of each kernel replaced by the numbers that its inputs give, those of later layers at the principal start;
    the image that the outer kernel sees there (None without inner layers); and the number of unknowns."""
    layers: list[Layer] = []
    unknowns = 0
    image: Tensor | None = None
    for layer in composition.layers:
        inputs = data if image is None else image
        layer.check_size(inputs)
        layers.append(layer.replaced(kernel=layer.operator_kernel.resolve(inputs), alpha=1.0))
        chain = Chain(layers, data, max_rank=max_rank)
        image = chain.images(principal_start(chain, generator))[-1]
        unknowns = chain.size
        warn_if_blind(layer, inputs, image)
    kernel = composition.kernel.resolve(data if image is None else image)
    numbered = [new.replaced(alpha=old.alpha) for new, old in zip(layers, composition.layers, strict=True)]
    return Composition(numbered, kernel, composition.alpha), image, unknowns


def warn_if_blind(layer: Layer, inputs: Any, image: Tensor) -> None:
    """Say so if a layer takes samples that differ to the same image, for nothing can be learned behind it."""

    def differ(values: Tensor, rounding: float) -> bool:
        flat = values.detach().reshape(len(values), -1)
        return bool((flat - flat[:1]).abs().max() > rounding * flat.abs().max())

    eps = torch.finfo(image.dtype).eps
    if isinstance(inputs, Tensor) and differ(inputs, 4.0 * eps) and not differ(image, eps**0.5):
        warnings.warn(
            f"The layer with {layer.kernel!r} maps all samples to the same point, for in the units of X they hardly "
            "differ. Standardise X first (sklearn.preprocessing.StandardScaler), or let the kernel follow the data: "
            "lengthscale='median', gamma='scale'.",
            stacklevel=2,
        )


def flat(coordinates: list[Tensor]) -> Tensor:
    """The coordinates of all layers as one vector."""
    return torch.cat([theta.reshape(-1) for theta in coordinates])
