"""From an element of an RKHS back to an object: the nearest of some candidates, a mean of the nearest, or a search.

An element is given by its distances to candidates, ‖φ(c) − f‖² up to a constant for each f. Few elements of an RKHS are
images φ(x) of anything; these are the ones that come closest.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from representer.optimize import lbfgs, with_gradient
from representer.parameters import is_count, is_real
from representer.values import Value

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


def refined(
    distance: Callable[[Tensor], Tensor], start: Tensor, *, max_iter: int = 100, tol: float = 1e-6
) -> Tensor:
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


class Decoder(Value):
    """A network from features back to data, and how it is trained together with the encoder that makes the features.

    Parameters
    ----------
    module : torch.nn.Module
        Maps features (n, q) to data (n, …). It is never changed: what is learned lives in a copy.
    weight : float
        Of the squared error of reconstructions, γ in equation (11) of Tonin et al.
    max_iter : int
        Most passes over the data.
    batch_size : int
        Samples in each step of Adam.
    learning_rate : float
        The size of a step.

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import Decoder
    >>> Decoder(torch.nn.Linear(2, 3), weight=10.0).weight
    10.0
    """

    def __init__(
        self,
        module: torch.nn.Module,
        weight: float = 1.0,
        max_iter: int = 100,
        batch_size: int = 64,
        learning_rate: float = 3e-3,
    ):
        self.module = module
        self.weight = weight
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    def check(self) -> None:
        """Refuse what cannot be trained."""
        if not isinstance(self.module, torch.nn.Module):
            raise ValueError(f"module of Decoder must be a torch.nn.Module; got {self.module!r}.")
        for name in ("weight", "learning_rate"):
            value = getattr(self, name)
            if not (is_real(value) and 0 < value < float("inf")):
                raise ValueError(f"{name} of Decoder must be positive and finite; got {value!r}.")
        for name in ("max_iter", "batch_size"):
            if not is_count(getattr(self, name)):
                raise ValueError(
                    f"{name} of Decoder must be a positive integer; got {getattr(self, name)!r}."
                )
