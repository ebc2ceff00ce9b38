"""Where every element of the RKHS is the image of an object: weighted sums of vectors and curves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from torch import Tensor

from representer.functions import Embedding
from representer.kernels import Centered, Constant, Functional, Kernel, Linear, Scaled, Sum
from representer.preimage.base import Decoder, _one_each
from representer.samples import Data, SparseRows, count


class Direct(Decoder):
    """Σ_i w_i y_i, where l is linear; or an inverse of yours, of the explicit features Σ_i w_i φ(y_i).

    Multiples of a linear kernel, a constant added to it, its centred form and ``Functional(Linear())`` are linear, too.

    Parameters
    ----------
    inverse : callable, optional
        For features that are one to one: takes the matrix (q, p) of Σ_i w_i φ(y_i), with the columns of
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
        """Sums of the training outputs, or what the inverse makes of their features."""
        kernel, weights = embedding.kernel, embedding.weights
        if self.inverse is None:
            return combination(kernel, embedding.anchors, weights)
        features = kernel.explicit_features(embedding.anchors, self._state("_columns")).matrix
        w = weights.cpu().numpy()
        sums = (features.T @ w.T).T if sparse.issparse(features) else w @ features
        return _one_each(self.inverse(np.asarray(sums)), len(embedding), "The inverse of Direct")


def is_linear(kernel: Kernel) -> bool:
    """Is every Σ_i w_i φ(y_i) the image of a vector or a curve? Derivatives alone forget the level."""
    if isinstance(kernel, Functional):
        return isinstance(kernel.kernel, Linear) and 0 in kernel._orders
    if isinstance(kernel, Scaled | Centered):
        return is_linear(kernel.kernel)
    if isinstance(kernel, Sum):
        return any(is_linear(a) and isinstance(b, Constant) for a, b in _both_orders(kernel))
    return isinstance(kernel, Linear)


def is_dot_product(kernel: Kernel) -> bool:
    """Is ‖φ(y) − φ(y')‖ a multiple of ‖y − y'‖, on vectors?"""
    return kernel.domain == "vectors" and is_linear(kernel) and not _has_functional(kernel)


def _has_functional(kernel: Any) -> bool:
    return isinstance(kernel, Functional) or any(
        _has_functional(child) for _, child in kernel._children() if isinstance(child, Kernel)
    )


def _both_orders(pair: Sum) -> Iterator[tuple[Kernel, Kernel]]:
    yield pair.left, pair.right
    yield pair.right, pair.left


def combination(kernel: Kernel, anchors: Data, weights: Tensor) -> Data:
    """The vectors (q, d), or the curves with the times of all anchors, nearest to Σ_i w_i φ(y_i) of a linear kernel.

    Features that are centred at m give Σ w_i y_i + (1 − Σ w_i) m.
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
    """The anchors at which a linear kernel is centred, if it is."""
    if isinstance(kernel, Centered):
        return kernel._anchors(kernel.anchors)
    if isinstance(kernel, Sum):
        return next((c for term in (kernel.left, kernel.right) if (c := _center(term)) is not None), None)
    return _center(kernel.kernel) if isinstance(kernel, Scaled) else None


def weighted_sum(points: Data, weights: Tensor) -> Data:
    """Σ_i w_i p_i of vectors, an array (q, d), or of curves (times, values), which get the times of all points."""
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
