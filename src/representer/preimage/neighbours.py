"""The nearest of some candidates, or a mean of the nearest, from their distances ‖φ(c) − f‖² to an element f."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from representer.optimize import lbfgs, with_gradient

# A weighted pre-image is the mean of at most so many candidates.
NEIGHBOURS = 10


def distances(values: Tensor, candidates: Tensor, squared_norms: Tensor) -> Tensor:
    """‖φ(c_j) − f_i‖² (m, c) of elements with coordinates f (m, r) from candidates with coordinates (c, r) and k(c, c).

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import distances
    >>> distances(torch.tensor([[1.0]]), torch.tensor([[0.0], [3.0]]), torch.tensor([0.0, 9.0])).tolist()
    [[1.0, 4.0]]
    """
    cross = values @ candidates.mT
    return (values.square().sum(-1, keepdim=True) + squared_norms - 2.0 * cross).clamp(min=0.0)


def nearest(distance: Tensor) -> Tensor:
    """The number of the nearest candidate, (m,)."""
    return distance.argmin(-1)


def weighted(distance: Tensor, n_neighbours: int = NEIGHBOURS) -> Tensor:
    """Weights (m, c) of a mean of the nearest candidates, each in proportion to 1/distance².

    A candidate at distance zero has all the weight.

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import weighted
    >>> weighted(torch.tensor([[1.0, 3.0, 100.0], [0.0, 1.0, 1.0]]), 2).tolist()
    [[0.75, 0.25, 0.0], [1.0, 0.0, 0.0]]
    """
    chosen = distance.topk(min(n_neighbours, distance.shape[-1]), largest=False)
    scale = chosen.values[..., :1].clamp(min=torch.finfo(distance.dtype).tiny)
    inverse = scale / torch.maximum(chosen.values, scale)  # relative to the nearest: no overflow
    exact = chosen.values == 0.0
    inverse = torch.where(exact.any(-1, keepdim=True), exact.to(inverse), inverse)
    inverse = inverse / inverse.sum(-1, keepdim=True)
    return torch.zeros_like(distance).scatter_(-1, chosen.indices, inverse)


def refined(distance: Callable[[Tensor], Tensor], start: Tensor, *, max_iter: int = 100, tol: float = 1e-6) -> Tensor:
    """Points (m, d) where a differentiable ‖φ(x_i) − f_i‖² (m,) has a local minimum, by L-BFGS from a start.

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import refined
    >>> refined(lambda X: (X - 2.0).square().sum(-1), torch.zeros(1, 1, dtype=torch.float64)).round().tolist()
    [[2.0]]
    """
    objective = with_gradient(lambda points: distance(points.reshape(start.shape)).sum().reshape(1))
    return lbfgs(objective, start.reshape(1, -1), max_iter=max_iter, tol=tol).point.reshape(start.shape)
