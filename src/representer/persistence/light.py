"""Light models: the same function on fewer anchors, to a stated error that is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from representer.functions import Composed, Expansion, Function, Stacked
from representer.linalg import least_squares, pivoted_cholesky
from representer.operators import Decomposable
from representer.samples import Data, plain, take

MOST_ANCHORS = 20000  # of a function whose Gram matrix is formed
BETWEEN = (0.5, -0.25)  # where on the line from a sample to another one light functions are looked at, too


@dataclass(frozen=True)
class Compression:
    """What a light model has lost: anchors, and the largest error at the old ones, relative to the largest value."""

    anchors_before: int
    anchors: int
    error: float
    tolerance: float


class WithoutSystem:
    """What stands for the system of a light model, which keeps its function only."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(
            "A light model keeps its function only: deviations, intervals, support and what is left out are asked of "
            "the model that compressed() was called on."
        )


def light_function(function: Function, tolerance: float) -> tuple[Function, Compression]:
    """The same function on fewer anchors, with the error that was measured at all old ones.

    Each expansion in it, a layer or a member of a stack, is projected onto the span of some of its anchors. Its own
    tolerance is a tenth of the last one until the values of the whole function are within that of the user, also at
    vectors between the anchors and a little beyond them: members whose large values cancel may do so at the anchors
    only.
    """
    if not (isinstance(tolerance, float | int) and 0 < tolerance < 1):
        raise ValueError(f"tolerance must be a number between 0 and 1, relative to the values of f; got {tolerance!r}.")
    points, before = _points(function), _n_anchors(function)
    if points is None:
        raise ValueError(
            f"compressed needs a function on samples with a scalar kernel; this is a {type(function).__name__}. Models "
            "with an approximation are light already: choose fewer landmarks or features, or save(path, compress=9)."
        )
    own = float(tolerance)
    while own > torch.finfo(torch.float64).eps:
        light, error = _compressed(function, own)
        if not isinstance(function, Expansion):
            error = max(_error(function, light, where) for where in (points, *_probes(points)))
        if error <= tolerance:
            return light, Compression(before, _n_anchors(light), error, float(tolerance))
        own *= 0.1
    return function, Compression(before, before, 0.0, float(tolerance))


def _points(function: Function) -> Data:
    """The inputs at which the error is measured: the anchors that see the data; None where nothing can be dropped."""
    if isinstance(function, Stacked):
        return next((points for points in map(_points, function.functions) if points is not None), None)
    if isinstance(function, Composed):
        first = function.inner[0] if function.inner else function.outer
        return _points(first)
    is_scalar = isinstance(function, Expansion) and isinstance(function.kernel, Decomposable)
    return function.terms_of if is_scalar else None


def _probes(points: Data) -> list[np.ndarray]:
    """Vectors between points and a little beyond them; none of what is no vector."""
    if not (isinstance(points, np.ndarray) and points.ndim == 2 and points.dtype.kind == "f"):
        return []
    others = points[np.random.default_rng(0).permutation(len(points))]
    return [points + share * (others - points) for share in BETWEEN]


def _n_anchors(function: Function) -> int:
    """The anchors of all expansions in a function."""
    if isinstance(function, Stacked):
        return sum(map(_n_anchors, function.functions))
    if isinstance(function, Composed):
        return sum(map(_n_anchors, (*function.inner, function.outer)))
    return len(function.coefficients) if isinstance(function, Expansion) else 0


def _compressed(function: Function, tolerance: float) -> tuple[Function, float]:
    """The function with every expansion in it projected; the error is that of an expansion, NaN of a whole."""
    if isinstance(function, Stacked):
        weighted = [m for m, w in enumerate(function.weights) if w.any()]
        members = tuple(_compressed(function.functions[m], tolerance)[0] for m in weighted)
        return Stacked(members, function.weights[weighted]), np.nan  # type: ignore[arg-type]
    if isinstance(function, Composed):
        parts = [_compressed(part, tolerance)[0] for part in (*function.inner, function.outer)]
        return Composed(tuple(parts[:-1]), parts[-1]), np.nan  # type: ignore[arg-type]
    if isinstance(function, Expansion) and isinstance(function.kernel, Decomposable):
        return _projection(function, tolerance)
    return function, 0.0


def _error(function: Function, light: Function, points: Data) -> float:
    """The largest difference at some points, relative to the largest value without the constant."""
    with torch.no_grad():
        values = function(points)
        constant = getattr(function, "intercept", None)
        size = (values if constant is None else values - torch.as_tensor(plain(constant)).to(values)).abs().amax()
        return float((light(points) - values).abs().amax() / size.clamp(min=torch.finfo(values.dtype).tiny))


def _projection(function: Expansion, tolerance: float) -> tuple[Expansion, float]:
    """The orthogonal projection of an expansion onto the span of as few pivots as a tolerance allows, and its error."""
    expansion = function.loaded
    assert isinstance(expansion.kernel, Decomposable)
    n = len(expansion.coefficients)
    if n > MOST_ANCHORS:
        raise ValueError(f"compressed forms a Gram matrix of all anchors, at most {MOST_ANCHORS}; there are {n}.")
    with torch.no_grad():
        gram = expansion.kernel.kernel._gram(expansion.anchors, None)
        slopes = expansion.slopes  # which have more digits than the sum over large coefficients
        values = gram @ expansion.coefficients if slopes is None else expansion.anchors @ slopes
        rows, coefficients, error = _fewest(gram, values, _pivots(gram), tolerance)
    chosen = torch.as_tensor(rows)
    light = replace(function, anchors=take(function.anchors, chosen), coefficients=plain(coefficients), slopes=None)
    return light, error


def _pivots(gram: Tensor) -> np.ndarray:
    """The rows of a Gram matrix in the order in which they explain most of what is left."""
    return np.asarray(plain(pivoted_cholesky(gram)[1]))


def _fewest(gram: Tensor, values: Tensor, pivots: np.ndarray, tolerance: float) -> tuple[np.ndarray, Tensor, float]:
    """The least number of pivots, by bisection, whose projection is within the tolerance."""
    low, high = 0, len(pivots)
    best = _projected(gram, values, pivots)
    while high - low > 1:
        middle = (low + high) // 2
        found = _projected(gram, values, pivots[:middle])
        if found[2] <= tolerance:
            high, best = middle, found
        else:
            low = middle
    return best


def _projected(gram: Tensor, values: Tensor, rows: np.ndarray) -> tuple[np.ndarray, Tensor, float]:
    """The coefficients of the projection onto some anchors: f' agrees with f there; and its largest relative error."""
    index = torch.as_tensor(rows)
    coefficients = least_squares(gram[index][:, index], values[index])
    scale = values.abs().amax().clamp(min=torch.finfo(values.dtype).tiny)
    return rows, coefficients, float((gram[:, index] @ coefficients - values).abs().amax() / scale)


def lightened(learner: Any, tolerance: float, training_data: tuple[str, ...]) -> Any:
    """A copy of a fitted learner with a light function, and without its system and its training data."""
    function, compression = light_function(learner.function_, tolerance)
    light = object.__new__(type(learner))
    dropped = {*training_data, "system_", "_samples_support", "_training_samples"}
    vars(light).update({name: value for name, value in learner.__getstate__().items() if name not in dropped})
    vars(light).update(function_=function, system_=WithoutSystem(), compression_=compression)
    return light
