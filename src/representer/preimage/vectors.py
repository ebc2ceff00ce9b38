"""Vectors and curves behind elements of an RKHS: weighted sums, nearest candidates and their means, climbs in ℝᵈ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.functions import Embedding
from representer.kernels import (
    Centered,
    Constant,
    Delta,
    Functional,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    MinMax,
    Scaled,
    Sum,
    Tanimoto,
)
from representer.linalg import power_of_two, row_blocks
from representer.optimize import check_limits, lbfgs, with_gradient
from representer.preimage.base import Decoder, _one_each
from representer.samples import Data, SparseRows, count
from representer.values import all_values


class Direct(Decoder):
    """The sum Σ_i w_i y_i for a linear kernel; for others, an inverse of the explicit features Σ_i w_i φ(y_i).

    Multiples of a linear kernel, its sum with a constant, its centred form and ``Functional(Linear())`` are linear,
    too.

    Parameters
    ----------
    inverse : callable, optional
        A function for features that are one to one: it takes the matrix (q, p) of Σ_i w_i φ(y_i), with the columns of
        ``kernel.explicit_features(Y)`` for the training outputs Y, and returns q objects.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import Spectrum
    >>> from representer.preimage import Direct
    >>> element = mean_embedding([[1.0, 0.0], [3.0, 2.0]], "linear")
    >>> Direct().resolve(element.kernel, element.anchors).decode(element).tolist()
    [[2.0, 1.0]]
    >>> letters = mean_embedding(["a", "b", "b"], Spectrum(1))
    >>> argmax = Direct(lambda features: ["ab"[i] for i in features.argmax(1)])
    >>> argmax.resolve(letters.kernel, letters.anchors).decode(letters)
    ['b']
    """

    short_name = "direct"

    def __init__(self, inverse: Any | None = None):
        self.inverse = inverse

    def _learn(self, kernel: Kernel, Y: Data) -> None:
        if self.inverse is not None:
            self._columns = kernel.explicit_features(Y).columns  # raises where there are none
        elif not is_linear(kernel):
            raise ValueError(
                f"Direct() is for a linear output kernel; {kernel!r} has elements that are the image of nothing. Use "
                "Candidates(), for vectors Gradient(), or Direct(inverse) for features that are one to one."
            )

    def decode(self, embedding: Embedding, X: Data | None = None) -> Data:
        """Weighted sums of the training outputs, or the inverse of such sums of their features."""
        kernel, weights = embedding.kernel, embedding.weights
        if self.inverse is None:
            return combination(kernel, embedding.anchors, weights)
        features = kernel.explicit_features(embedding.anchors, self._state("_columns")).matrix
        w = weights.cpu().numpy()
        sums = (features.T @ w.T).T if sparse.issparse(features) else w @ features
        return _one_each(self.inverse(np.asarray(sums)), len(embedding), "The inverse of Direct")


def is_linear(kernel: Kernel) -> bool:
    """Is every Σ_i w_i φ(y_i) the image of a vector or a curve? It is not for derivatives, which lose the level.

    Examples
    --------
    >>> from representer.kernels import Gaussian, Linear
    >>> from representer.preimage import is_linear
    >>> is_linear(2.0 * Linear() + 1.0), is_linear(Gaussian())
    (True, False)
    """
    if isinstance(kernel, Functional):
        return isinstance(kernel.kernel, Linear) and 0 in kernel._orders
    if isinstance(kernel, Scaled | Centered):
        return is_linear(kernel.kernel)
    if isinstance(kernel, Sum):
        pairs = ((kernel.left, kernel.right), (kernel.right, kernel.left))
        return any(is_linear(one) and isinstance(other, Constant) for one, other in pairs)
    return isinstance(kernel, Linear)


def is_dot_product(kernel: Kernel) -> bool:
    """Is ‖φ(y) − φ(y')‖ a multiple of ‖y − y'‖, on vectors?"""
    return kernel.domain == "vectors" and is_linear(kernel) and not _has_functional(kernel)


def _has_functional(kernel: Any) -> bool:
    return isinstance(kernel, Functional) or any(
        _has_functional(child) for _, child in kernel._children() if isinstance(child, Kernel)
    )


def combination(kernel: Kernel, anchors: Data, weights: Tensor) -> Data:
    """The vectors (q, d), or the curves with the times of all anchors, nearest to Σ_i w_i φ(y_i) of a linear kernel.

    For features centred at m it is Σ w_i y_i + (1 − Σ w_i) m.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Linear
    >>> from representer.preimage import combination
    >>> combination(Linear(), torch.tensor([[1.0], [3.0]]), torch.tensor([[0.5, 0.5]])).tolist()
    [[2.0]]
    """
    total = weighted_sum(anchors, weights)
    center = _center(kernel)
    if center is None:
        return total
    n, missing = count(center), 1.0 - weights.sum(-1, keepdim=True)
    offset = weighted_sum(center, (missing / n).expand(-1, n))
    if isinstance(total, np.ndarray):
        return total + offset
    return [_added(curve, other) for curve, other in zip(total, offset, strict=True)]


def _center(kernel: object) -> Any | None:
    """The anchors at whose mean a linear kernel is centred; None if it is not."""
    if isinstance(kernel, Centered):
        return kernel._anchors(kernel.anchors)
    if isinstance(kernel, Sum):
        return next((c for term in (kernel.left, kernel.right) if (c := _center(term)) is not None), None)
    return _center(kernel.kernel) if isinstance(kernel, Scaled) else None


def weighted_sum(points: Data, weights: Tensor) -> Data:
    """The sums Σ_i w_i p_i of vectors, an array (q, d), or of curves, pairs with the times of all curves."""
    if isinstance(points, Tensor):
        return (weights @ points.to(weights)).cpu().numpy()
    if isinstance(points, SparseRows):
        return np.asarray((points.T @ weights.cpu().numpy().T).T)
    times = np.unique(np.concatenate([np.asarray(t, dtype=float) for t, _ in points]))
    curves = np.stack([np.interp(times, t, v) for t, v in points])
    return [(times, row) for row in weights.cpu().numpy() @ curves]


def _added(curve: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
    times = np.union1d(curve[0], other[0])
    return times, np.interp(times, *curve) + np.interp(times, *other)


# A weighted pre-image is the mean of at most this many candidates.
NEIGHBOURS = 10


def distances(values: Tensor, candidates: Tensor, squared_norms: Tensor) -> Tensor:
    """The squared distances ‖φ(c_j) − f_i‖² (m, c) of elements f (m, r) from candidates (c, r) with known k(c, c).

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
    """The number of the nearest candidate, (m,).

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import nearest
    >>> nearest(torch.tensor([[1.0, 0.5], [0.0, 2.0]])).tolist()
    [1, 0]
    """
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


def spread(points: Tensor) -> Tensor:
    """The power of two next below the largest distance of a coordinate from its mean: a unit for steps of a search.

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import spread
    >>> spread(torch.tensor([[0.0], [3e6]])).item() == 2.0**20
    True
    """
    return power_of_two((points - points.mean(0)).abs().max())


def refined(
    distance: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    unit: Tensor | float = 1.0,
) -> Tensor:
    """Points (m, d) where a differentiable ‖φ(x_i) − f_i‖² (m,) has a local minimum, by L-BFGS from a start.

    The ``unit`` is that of the points: a search in it is the same for data in any units.

    Examples
    --------
    >>> import torch
    >>> from representer.preimage import refined
    >>> refined(lambda X: (X - 2.0).square().sum(-1), torch.zeros(1, 1, dtype=torch.float64)).round().tolist()
    [[2.0]]
    """

    def moved(steps: Tensor) -> Tensor:
        return start + unit * steps.reshape(start.shape)

    objective = with_gradient(lambda steps: distance(moved(steps)).sum().reshape(1))
    result = lbfgs(objective, start.new_zeros(1, start.numel()), max_iter=max_iter, tol=tol)
    return moved(result.completed().point)


# A step is halved at most this often, until it is below the digits of a double.
HALVINGS = 50


class Climb(Decoder):
    """A decoder that climbs to a local maximum of the score in ℝᵈ, from the best training output and a mean of them."""

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
        """The vectors (q, d) at which the climbs end."""
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
    """The anchors of the highest scores, and the means of the nearest anchors (see ``weighted``)."""
    kernel, anchors, weights = embedding.kernel, embedding.anchors, embedding.weights
    inner = kernel._product(anchors, anchors, weights.mT).mT
    distance = (inner * weights).sum(-1, keepdim=True) - 2.0 * inner + kernel._diag(anchors)
    distance = distance.clamp(min=0.0)
    return anchors[distance.argmin(-1)], weighted(distance) @ anchors


def _scores(embedding: Embedding, points: Tensor, rows: Tensor) -> Tensor:
    """The score (b,) of each point for its own element, ``rows``."""
    gram = embedding.kernel._gram(points, embedding.anchors)
    return 2.0 * (gram * embedding.weights[rows]).sum(-1) - embedding.kernel._diag(points)


class Gradient(Climb):
    """The vector y that maximises 2⟨g, φ(y)⟩ − ‖φ(y)‖² by L-BFGS, for any smooth kernel on vectors.

    The climbs of all elements run at once, each from the training output of the highest score and from a mean of the
    nearest ones; the better end counts. It is a local maximum, and never worse than the best training output.

    Parameters
    ----------
    max_iter : int
        The largest number of iterations.
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
        norms, unit = embedding.squared_norms(), spread(embedding.anchors)
        size = power_of_two(embedding.kernel._diag(embedding.anchors).abs().max())

        def distance(points: Tensor) -> Tensor:
            element = points[:, -1].detach().long()  # the last entry is the number of the element; its slope is zero
            return (norms[element] - _scores(embedding, unit * points[:, :-1], element)) / size

        labelled = torch.cat([starts / unit, rows[:, None].to(starts)], -1)
        result = lbfgs(with_gradient(distance), labelled, max_iter=self.max_iter, tol=self.tol, race=False)
        points = result.completed().points
        assert points is not None
        return unit * points[:, :-1]


class FixedPoint(Climb):
    """The fixed point y = Σ_i a_i y_i / Σ_i a_i, a_i = w_i l(y, y_i), of Mika et al. (1999), for a Gaussian kernel.

    A step that would lower the score is shortened, and one with a negative Σ_i a_i is turned uphill: so each step
    climbs, and ends at a stationary point of the score. The starts are those of ``Gradient``; the better end counts.

    Parameters
    ----------
    max_iter : int
        The largest number of iterations.
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
        moving = torch.arange(len(points), device=points.device)
        for _ in range(self.max_iter):
            if not len(moving):
                break
            before = points[moving]
            steps = _towards(embedding, before, rows[moving], reach)
            after, values = _uphill(embedding, before, scores[moving], steps, rows[moving])
            far = (after - before).norm(dim=-1) > self.tol * reach
            points[moving], scores[moving] = after, values
            moving = moving[far]
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
    """The points after steps that are halved until the score is higher, or the points themselves where it never is."""
    points, scores, steps = points.clone(), scores.clone(), steps.clone()
    waiting = torch.arange(len(points), device=points.device)
    for _ in range(HALVINGS):
        proposals = points[waiting] + steps[waiting]
        values = _scores(embedding, proposals, rows[waiting])
        better = values > scores[waiting]
        points[waiting[better]], scores[waiting[better]] = proposals[better], values[better]
        waiting = waiting[~better]
        if not len(waiting):
            break
        steps[waiting] *= 0.5
    return points, scores
