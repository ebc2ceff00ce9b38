"""Light models: the same function on fewer anchors, to a stated error that is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from representer.functions import Expansion, Function
from representer.linalg import pivoted_cholesky
from representer.operators import Decomposable
from representer.samples import plain, take

MOST_ANCHORS = 20000  # of a function whose Gram matrix is formed


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
    """The projection of a function onto the span of as few of its anchors as the tolerance allows.

    The anchors are pivots of the Gram matrix, the coefficients those of the orthogonal projection in the RKHS, and the
    error is measured at all old anchors.
    """
    if not (isinstance(tolerance, float | int) and 0 < tolerance < 1):
        raise ValueError(f"tolerance must be a number between 0 and 1, relative to the values of f; got {tolerance!r}.")
    expansion = function.loaded if isinstance(function, Expansion) else None
    if not isinstance(function, Expansion) or expansion is None or not isinstance(expansion.kernel, Decomposable):
        raise ValueError(
            f"compressed needs a function on samples with a scalar kernel; this is a {type(function).__name__}. Models "
            "with an approximation are light already: choose fewer landmarks or features, or save(path, compress=9)."
        )
    n = len(expansion.coefficients)
    if n > MOST_ANCHORS:
        raise ValueError(f"compressed forms a Gram matrix of all anchors, at most {MOST_ANCHORS}; there are {n}.")
    with torch.no_grad():
        gram = expansion.kernel.kernel._gram(expansion.anchors, None)
        pivots = _pivots(gram)
        values = gram @ expansion.coefficients
        rows, coefficients, error = _fewest(gram, values, pivots, float(tolerance))
    chosen = torch.as_tensor(rows)
    light = replace(function, anchors=take(function.anchors, chosen), coefficients=plain(coefficients), slopes=None)
    return light, Compression(n, len(rows), error, float(tolerance))


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
    coefficients = torch.linalg.lstsq(gram[index][:, index], values[index], driver="gelsd").solution
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
