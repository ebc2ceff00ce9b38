"""Light models: functions on fewer anchors, within an error that is stated and measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from representer.functions import Composed, Expansion, Function, Stacked
from representer.kernels import unscaled
from representer.linalg import least_squares, pivoted_cholesky
from representer.operators import Decomposable, Separate
from representer.samples import Data, plain, take

MOST_ANCHORS = 20000  # the largest number of anchors whose Gram matrix is formed
BETWEEN = (0.5, -0.25)  # shares of the way from a sample to another one where light functions are checked, too


@dataclass(frozen=True)
class Compression:
    """The numbers of anchors of a model and its light form, and the largest error relative to the largest value."""

    anchors_before: int
    anchors: int
    error: float
    tolerance: float


class WithoutSystem:
    """The placeholder for the system of a light model, which keeps its function only."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(
            "A light model keeps its function only: deviations, intervals, support and what is left out are asked of "
            "the model that compressed() was called on."
        )


def light_function(function: Function, tolerance: float) -> tuple[Function, Compression]:
    """A function on fewer anchors, with its error at all anchors of the old one.

    Each expansion in it, a layer or a member of a stack, is projected onto the span of some of its anchors. The
    tolerance of these projections is divided by ten until the values of the whole function are within the user's
    tolerance, also at vectors between the anchors and a little beyond them, because large values of members may cancel
    at the anchors only.
    """
    if not (isinstance(tolerance, float | int) and 0 < tolerance < 1):
        raise ValueError(f"tolerance must be a number between 0 and 1, relative to the values of f; got {tolerance!r}.")
    points, before = _points(function), _n_anchors(function)
    if points is None:
        raise ValueError(
            f"compressed needs a function on samples with a scalar kernel; this is a {type(function).__name__}. Models "
            "with an approximation are light already: choose fewer landmarks or features, or save(path, compress=9)."
        )
    inner_tolerance = float(tolerance)
    while inner_tolerance > torch.finfo(torch.float64).eps:
        light, error = _compressed(function, inner_tolerance)
        if not isinstance(function, Expansion):
            error = max(_error(function, light, where) for where in (points, *_probes(points)))
        if error <= tolerance:
            return light, Compression(before, _n_anchors(light), error, float(tolerance))
        inner_tolerance *= 0.1
    return function, Compression(before, before, 0.0, float(tolerance))


def _points(function: Function) -> Data:
    """The anchors of the first layer, at which the error is measured; None if no anchors can be dropped."""
    if isinstance(function, Stacked):
        return next((points for points in map(_points, function.functions) if points is not None), None)
    if isinstance(function, Composed):
        first = function.inner[0] if function.inner else function.outer
        return _points(first)
    return function.terms_of if _is_projected(function) else None


def _is_projected(function: Function) -> bool:
    """Is it an expansion with a scalar kernel, or with one for each output whose Gram matrices are not too many?"""
    if not isinstance(function, Expansion):
        return False
    n, p = function.coefficients.shape
    separate = isinstance(function.kernel, Separate) and n * n * p <= MOST_ANCHORS**2
    return isinstance(function.kernel, Decomposable) or separate


def _probes(points: Data) -> list[np.ndarray]:
    """Vectors between points and a little beyond them; no probes for points that are no vectors."""
    if not (isinstance(points, np.ndarray) and points.ndim == 2 and points.dtype.kind == "f"):
        return []
    others = points[np.random.default_rng(0).permutation(len(points))]
    return [points + share * (others - points) for share in BETWEEN]


def _n_anchors(function: Function) -> int:
    """The number of anchors of all expansions in a function."""
    if isinstance(function, Stacked):
        return sum(map(_n_anchors, function.functions))
    if isinstance(function, Composed):
        return sum(map(_n_anchors, (*function.inner, function.outer)))
    return len(function.coefficients) if isinstance(function, Expansion) else 0


def _compressed(function: Function, tolerance: float) -> tuple[Function, float]:
    """The function with projected expansions, and the error of a single expansion; NaN for several of them."""
    if isinstance(function, Stacked):
        weighted = [m for m, w in enumerate(function.weights) if w.any()]
        members = tuple(_compressed(function.functions[m], tolerance)[0] for m in weighted)
        return Stacked(members, function.weights[weighted]), np.nan  # type: ignore[arg-type]
    if isinstance(function, Composed):
        layers = [_compressed(layer, tolerance)[0] for layer in (*function.inner, function.outer)]
        return Composed(tuple(layers[:-1]), layers[-1]), np.nan  # type: ignore[arg-type]
    if isinstance(function, Expansion) and _is_projected(function):
        return _projection(function, tolerance)
    return function, 0.0


def _error(function: Function, light: Function, points: Data) -> float:
    """The largest difference of two functions at points, relative to the largest value without the constant."""
    with torch.no_grad():
        values = function(points)
        constant = getattr(function, "intercept", None)
        size = (values if constant is None else values - torch.as_tensor(plain(constant)).to(values)).abs().amax()
        return float((light(points) - values).abs().amax() / size.clamp(min=torch.finfo(values.dtype).tiny))


def _projection(function: Expansion, tolerance: float) -> tuple[Expansion, float]:
    """The orthogonal projection of an expansion onto the span of as few pivots as a tolerance allows, and its error."""
    expansion = function.loaded
    n = len(expansion.coefficients)
    if n > MOST_ANCHORS:
        raise ValueError(f"compressed forms a Gram matrix of all anchors, at most {MOST_ANCHORS}; there are {n}.")
    with torch.no_grad():
        grams, values = _at_anchors(expansion)
        rows, coefficients, error = _fewest(grams, values, _pivots(grams), tolerance)
    anchors = take(function.anchors, torch.as_tensor(rows))
    light = replace(function, anchors=anchors, coefficients=plain(coefficients), slopes=None)
    return light, error


def _at_anchors(expansion: Expansion) -> tuple[list[Tensor], Tensor]:
    """The Gram matrix of the anchors, or those of all outputs, and the values (n, p) of the function there."""
    kernel, anchors, C = expansion.kernel, expansion.anchors, expansion.coefficients
    if isinstance(kernel, Separate):
        grams = [k._gram(Z, None) for k, (Z,) in zip(kernel.kernels, kernel.views(anchors), strict=True)]
        return grams, torch.stack([gram @ C[:, j] for j, gram in enumerate(grams)], 1)
    assert isinstance(kernel, Decomposable)
    gram, slopes = kernel.kernel._gram(anchors, None), expansion.slopes
    # Slopes have more digits than the sum over large coefficients.
    return [gram], gram @ C if slopes is None else unscaled(kernel.kernel)[1] * (anchors @ slopes)


def _pivots(grams: list[Tensor]) -> np.ndarray:
    """The pivots of a Gram matrix, or of a mean of several: each row explains most of what the rows before it leave."""
    gram = grams[0] if len(grams) == 1 else sum((K / K.diagonal().mean() for K in grams), torch.zeros_like(grams[0]))
    return np.asarray(plain(pivoted_cholesky(gram)[1]))


def _fewest(
    grams: list[Tensor], values: Tensor, pivots: np.ndarray, tolerance: float
) -> tuple[np.ndarray, Tensor, float]:
    """The least number of pivots, by bisection, whose projection is within the tolerance."""
    low, high = 0, len(pivots)
    best = _projected(grams, values, pivots)
    while high - low > 1:
        middle = (low + high) // 2
        projection = _projected(grams, values, pivots[:middle])
        if projection[2] <= tolerance:
            high, best = middle, projection
        else:
            low = middle
    return best


def _projected(grams: list[Tensor], values: Tensor, rows: np.ndarray) -> tuple[np.ndarray, Tensor, float]:
    """The coefficients of the projection onto these anchors, where it equals f, and its largest relative error."""
    index, parts = torch.as_tensor(rows), values.split(values.shape[1] // len(grams), 1)
    solved = [least_squares(gram[index][:, index], part[index]) for gram, part in zip(grams, parts, strict=True)]
    missed = [gram[:, index] @ C - part for gram, C, part in zip(grams, solved, parts, strict=True)]
    scale = values.abs().amax().clamp(min=torch.finfo(values.dtype).tiny)
    return rows, torch.cat(solved, 1), float(torch.cat(missed, 1).abs().amax() / scale)


def lightened(learner: Any, tolerance: float, training_data: tuple[str, ...]) -> Any:
    """A copy of a fitted learner with a light function, and without its system and its training data."""
    function, compression = light_function(learner.function_, tolerance)
    light = object.__new__(type(learner))
    dropped = {*training_data, "system_", "_samples_support", "_training_samples"}
    vars(light).update({name: value for name, value in learner.__getstate__().items() if name not in dropped})
    vars(light).update(function_=function, system_=WithoutSystem(), compression_=compression)
    return light
