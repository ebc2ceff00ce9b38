"""Vectors behind elements of an RKHS: the nearest candidates and their means, and climbs of the score in ℝᵈ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from representer.functions import Embedding
from representer.kernels import Delta, Gaussian, Kernel, Laplacian, MinMax, Scaled, Tanimoto
from representer.linalg import row_blocks
from representer.optimize import check_limits, lbfgs, with_gradient
from representer.preimage.base import Decoder
from representer.samples import Data
from representer.values import all_values

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
    neighbours = distance.topk(min(n_neighbours, distance.shape[-1]), largest=False)
    scale = neighbours.values[..., :1].clamp(min=torch.finfo(distance.dtype).tiny)
    inverse = scale / torch.maximum(neighbours.values, scale)  # relative to the nearest: no overflow
    exact = neighbours.values == 0.0
    inverse = torch.where(exact.any(-1, keepdim=True), exact.to(inverse), inverse)
    inverse = inverse / inverse.sum(-1, keepdim=True)
    return torch.zeros_like(distance).scatter_(-1, neighbours.indices, inverse)


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


# A step is halved at most so often: then it is below the digits of a double.
HALVINGS = 50


class Climb(Decoder):
    """A local maximum of the score in ℝᵈ, from the best training output and from a mean of the nearest."""

    def __init__(self, *, max_iter: int = 200, tol: float = 1e-8):
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, kernel: Kernel, Y: Data) -> None:
        check_limits(self.max_iter, self.tol)
        if kernel.domain != "vectors" or not isinstance(kernel.prepare(Y), Tensor):
            raise ValueError(f"{self!r} finds dense vectors; {kernel!r} takes {kernel.domain}. Use Candidates().")
        self._check_kernel(kernel)
        self._resolved = True

    @abstractmethod
    def _check_kernel(self, kernel: Kernel) -> None:
        """Raise if the score cannot be climbed."""

    @abstractmethod
    def _climb(self, embedding: Embedding, starts: Tensor, rows: Tensor) -> Tensor:
        """Points (b, d) from starts (b, d) for the elements ``rows`` (b,), none with a lower score than its start."""

    def decode(self, embedding: Embedding, X: Data | None = None) -> np.ndarray:
        """The vectors (q, d) where climbing from the best training outputs ends."""
        self._state("_resolved")
        anchors = embedding.anchors.to(embedding.weights)
        vectors = anchors.new_empty(len(embedding), anchors.shape[1])
        per_row = 2 * 6 * (anchors.shape[0] + anchors.shape[1]) * anchors.element_size()
        for block in row_blocks(len(embedding), per_row):
            elements = Embedding(embedding.kernel, anchors, embedding.weights[block])
            rows = torch.arange(len(elements), device=anchors.device).repeat(2)
            points = self._climb(elements, torch.cat(_starts(elements)), rows)
            scores = _scores(elements, points, rows).view(2, -1)
            best = scores.argmax(0)
            vectors[block] = points.view(2, len(elements), -1)[best, torch.arange(len(elements), device=best.device)]
        return vectors.cpu().numpy()


def _starts(embedding: Embedding) -> tuple[Tensor, Tensor]:
    """The anchors of the highest scores, and means of the nearest ones (see ``weighted``)."""
    kernel, anchors, weights = embedding.kernel, embedding.anchors, embedding.weights
    inner = kernel._product(anchors, anchors, weights.mT).mT
    distance = (inner * weights).sum(-1, keepdim=True) - 2.0 * inner + kernel._diag(anchors)
    distance = distance.clamp(min=0.0)
    return anchors[distance.argmin(-1)], weighted(distance) @ anchors


def _scores(embedding: Embedding, points: Tensor, rows: Tensor) -> Tensor:
    """The score of each point for its own element, (b,)."""
    gram = embedding.kernel._gram(points, embedding.anchors)
    return 2.0 * (gram * embedding.weights[rows]).sum(-1) - embedding.kernel._diag(points)


class Gradient(Climb):
    """The vector y that maximises 2⟨g, φ(y)⟩ − ‖φ(y)‖² by L-BFGS, for any smooth kernel on vectors.

    All elements are climbed at once, each from the training output of the highest score and from a mean of the nearest
    ones; the better end counts. It is a local maximum, and never worse than the best training output.

    Parameters
    ----------
    max_iter : int
        Most iterations.
    tol : float
        Stop at a relative change of ‖g − φ(y)‖², or a gradient, below this.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import Gaussian
    >>> from representer.preimage import Gradient
    >>> element = mean_embedding([[0.0], [1.0]], Gaussian(2.0))
    >>> Gradient().resolve(element.kernel, element.anchors).decode(element).round(6).tolist()
    [[0.5]]
    """

    short_name = "gradient"

    def _check_kernel(self, kernel: Kernel) -> None:
        rough = [v for v in all_values(kernel) if isinstance(v, Laplacian | Delta | Tanimoto | MinMax)]
        if rough or any(getattr(v, "nu", None) == 0.5 for v in all_values(kernel)):
            raise ValueError(
                f"Gradient() needs a smooth output kernel; {kernel!r} has kinks at the training outputs, where a climb "
                "ends at once. Use Candidates(), or a smooth kernel such as Gaussian()."
            )

    def _climb(self, embedding: Embedding, starts: Tensor, rows: Tensor) -> Tensor:
        norms = embedding.squared_norms()

        def distance(points: Tensor) -> Tensor:
            own = points[:, -1].detach().long()  # the last entry says whose point it is; its slope is zero
            return norms[own] - _scores(embedding, points[:, :-1], own)

        labelled = torch.cat([starts, rows[:, None].to(starts)], -1)
        result = lbfgs(with_gradient(distance), labelled, max_iter=self.max_iter, tol=self.tol, race=False)
        assert result.points is not None
        return result.points[:, :-1]


class FixedPoint(Climb):
    """The fixed point y = Σ_i a_i y_i / Σ_i a_i, a_i = w_i l(y, y_i), of Mika et al. (1999), for a Gaussian kernel.

    Where a step would lower the score, or the a_i sum to less than nothing, it is turned uphill and shortened: so each
    step climbs, and an end is a stationary point of the score. Starts and ends are those of ``Gradient``.

    Parameters
    ----------
    max_iter : int
        Most iterations.
    tol : float
        Stop at steps shorter than this, relative to the distances between the training outputs.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import Gaussian
    >>> from representer.preimage import FixedPoint
    >>> element = mean_embedding([[0.0], [1.0]], Gaussian(2.0))
    >>> FixedPoint().resolve(element.kernel, element.anchors).decode(element).round(6).tolist()
    [[0.5]]
    """

    short_name = "fixed_point"

    def _check_kernel(self, kernel: Kernel) -> None:
        inner = kernel
        while isinstance(inner, Scaled):
            inner = inner.kernel
        if not isinstance(inner, Gaussian):
            raise ValueError(
                f"FixedPoint() is an iteration for the Gaussian output kernel; got {kernel!r}. Use Gradient()."
            )

    def _climb(self, embedding: Embedding, starts: Tensor, rows: Tensor) -> Tensor:
        anchors = embedding.anchors
        reach = (anchors - anchors.mean(0)).norm(dim=-1).max()
        points, scores = starts.clone(), _scores(embedding, starts, rows)
        alive = torch.arange(len(points), device=points.device)
        for _ in range(self.max_iter):
            if not len(alive):
                break
            own = points[alive]
            steps = _towards(embedding, own, rows[alive], reach)
            moved, values = _uphill(embedding, own, scores[alive], steps, rows[alive])
            far = (moved - own).norm(dim=-1) > self.tol * reach
            points[alive], scores[alive] = moved, values
            alive = alive[far]
        return points


def _towards(embedding: Embedding, points: Tensor, rows: Tensor, reach: Tensor) -> Tensor:
    """The steps to Σ a_i y_i / Σ a_i, turned uphill where the sum is negative, of length 2 ``reach`` at most."""
    a = embedding.weights[rows] * embedding.kernel._gram(points, embedding.anchors)
    total = a.sum(-1, keepdim=True)
    pull = a @ embedding.anchors - total * points
    tiny = torch.finfo(a.dtype).tiny
    steps = pull / total.abs().clamp(min=tiny)
    lengths = steps.norm(dim=-1, keepdim=True).clamp(min=tiny)
    return steps * (2.0 * reach / lengths).clamp(max=1.0)


def _uphill(embedding: Embedding, points: Tensor, scores: Tensor, steps: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The points after these steps, each halved until the score is higher; where it never is, the points themselves."""
    points, scores, steps = points.clone(), scores.clone(), steps.clone()
    waiting = torch.arange(len(points), device=points.device)
    for _ in range(HALVINGS):
        tried = points[waiting] + steps[waiting]
        values = _scores(embedding, tried, rows[waiting])
        better = values > scores[waiting]
        points[waiting[better]], scores[waiting[better]] = tried[better], values[better]
        waiting = waiting[~better]
        if not len(waiting):
            break
        steps[waiting] *= 0.5
    return points, scores
