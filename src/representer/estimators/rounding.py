"""What rounding does to a fit, said once at its end: digits that a function has lost, matrices that needed help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from representer.functions import FeatureFunction, Function, StoredFeatures
from representer.functions.conditional import ConditionalEmbedding
from representer.functions.levels import Levels
from representer.kernels import Kernel, Linear, Polynomial
from representer.linalg import RoundingNotes
from representer.notices import NumericalWarning, warn
from representer.operators import Decomposable
from representer.samples import Data, is_dask, plain
from representer.systems import FittedSystem

# Terms of a function that are eps to this power times larger than their sum are worth a word: in double precision they
# leave six digits, in single not quite three. An alpha that was learned may leave a digit less: the search has seen it.
CANCELLATION, LEARNED = -0.6, -0.7
# Samples are alike to a kernel if their variance in its RKHS is such a share of k(x, x).
ALIKE = 1e-6
# The share of that variance from which alpha makes a fit nearly constant.
DROWNED = 0.1
# A column is far from zero if its mean is so many times its deviation.
FAR = 1e3


def report_rounding(learner: Any, X: Data, notes: RoundingNotes) -> None:
    """Warn, once a fit, of the first reason for which its answers may have fewer digits than usual."""
    reason = next(_reasons(learner, X, notes), None)
    if reason is not None:
        warn(f"{reason} {_advice(X)}", NumericalWarning)


def _reasons(learner: Any, X: Data, notes: RoundingNotes) -> Iterator[str]:
    """What is known of lost digits, in sentences; a function that is not finite is refused."""
    eps = float(np.finfo(learner.dtype).eps)
    function = getattr(learner, "function_", None) or getattr(learner, "features_", None)
    cancellation = _cancellation(learner, function, X)
    if np.isnan(cancellation):
        raise ValueError(
            f"The fitted function is not finite in {learner.dtype}: numbers on the way to it, or its coefficients, are "
            "beyond the range of that precision. Divide y by its largest value and X by its deviation, increase alpha, "
            "or use dtype='float64'."
        )
    for name, share in notes.jitters.items():
        if share > 0 and "alpha" in name:
            yield (
                f"{name} is singular to rounding: {share:.1e} of its mean diagonal was added to its diagonal, as if "
                "alpha were larger."
            )
    points = _numbers(X)
    distance = 0.0 if points is None else _farthest(points)
    if learner.dtype != "float64" and distance > eps**CANCELLATION:
        yield f"dtype={learner.dtype!r} holds few digits of what tells samples apart."
    learned = not isinstance(getattr(learner, "alpha", 0.0), int | float)
    exponent = LEARNED if learned else CANCELLATION
    for name, residual in notes.residuals.items():
        if not residual <= eps ** (1.0 + exponent):
            yield f"The solution misses {name} by {residual:.1e} of the targets."
    if cancellation > eps**exponent:
        left = max(0, int(-np.log10(min(1.0, cancellation * eps))))
        yield (
            f"The terms of the fitted function are {cancellation:.1e} times larger than their sum: of the digits of a "
            f"prediction about {left} are left."
        )
    share = _alike(learner, points) if learned else None
    if share is not None:
        yield (
            f"What tells samples apart is {share:.1e} of k(x, x), and alpha={np.max(learner.alpha_):.1e} drowns it: "
            "the alphas that would fit are lost to rounding."
        )
    if isinstance(function, FeatureFunction | StoredFeatures | Levels) and distance**2 > eps**CANCELLATION:
        kernel = function.data.kernel if isinstance(function, Levels) else _features(function).kernel
        if _has_products(kernel):
            yield f"{kernel!r} takes products of points that are {distance:.0e} times farther from zero than apart."


def _kernel(learner: Any) -> Kernel | None:
    """The scalar kernel that the fitted function has of the data themselves; None where there is no such kernel."""
    kernel = getattr(learner, "kernel_", None)
    kernel = kernel.kernel if isinstance(kernel, Decomposable) else kernel
    return kernel if isinstance(kernel, Kernel) and not len(getattr(learner, "layers", ())) else None


def _alike(learner: Any, points: np.ndarray | None) -> float | None:
    """The share of k(x, x) that tells samples apart, where it is small and alpha drowns it; None where it does not.

    For kernels of products that is the variance of a column, for others that of a few samples in the RKHS. Slopes of
    few features are fitted at any alpha.
    """
    kernel, system = _kernel(learner), getattr(learner, "system_", None)
    slopes = isinstance(system, FittedSystem) and system.has_slopes
    if points is None or slopes or kernel is None or kernel.domain != "vectors" or not hasattr(learner, "alpha_"):
        return None
    some = points[:: max(1, len(points) // 64)]
    gram = plain(kernel(some))
    size, spread = float(np.diagonal(gram).mean()), float(np.diagonal(gram).mean() - gram.mean())
    if _has_products(kernel):
        unit = float(np.abs(some).max()) or 1.0  # so that squares are in range
        variances = (some / unit).var(0)
        spread = size * float(np.min(variances[variances > 0], initial=np.inf) / ((some / unit) ** 2).sum(1).mean())
    small = spread < ALIKE * size and np.max(learner.alpha_) > DROWNED * spread
    return spread / size if small else None


def _features(function: FeatureFunction | StoredFeatures) -> StoredFeatures:
    return function.features if isinstance(function, FeatureFunction) else function


def _has_products(kernel: Kernel) -> bool:
    """Does a kernel take inner products of the points themselves, whose size an offset of X changes?"""
    children = (child for _, child in kernel._children() if isinstance(child, Kernel))
    return isinstance(kernel, Linear | Polynomial) or any(map(_has_products, children))


def _cancellation(learner: Any, function: Any, X: Data) -> float:
    """How many times larger than their sum the terms of a function are; 1 where that is not known."""
    if not isinstance(function, Function | StoredFeatures):
        return 1.0
    points = _numbers(X)
    exact = isinstance(function, ConditionalEmbedding) and learner.approximation is None
    if exact and points is not None and learner.kernel_.domain == "vectors":
        # Weights solve one system for every question: its condition is at most k(x, x) / alpha.
        largest = float(learner.kernel_.diag(points[:: max(1, len(points) // 64)]).max())
        return max(1.0, largest / learner.alpha_)
    if isinstance(function, Function) and hasattr(learner, "classes_"):
        return function.cancellation(size=1.0)  # the targets are zeros and ones
    return function.cancellation()


def _farthest(points: np.ndarray) -> float:
    """The largest mean of a column in units of its deviation; 0 where no column varies."""
    unit = float(np.abs(points).max()) or 1.0  # so that squares are in range
    mean, deviation = np.abs((points / unit).mean(0)), (points / unit).std(0)
    return float(np.max(mean[deviation > 0] / deviation[deviation > 0], initial=0.0))


def _advice(X: Data) -> str:
    """The likeliest reason, and what to do."""
    points = _numbers(X)
    if points is not None:
        unit = float(np.abs(points).max()) or 1.0  # so that squares are in range
        mean, deviation = unit * (points / unit).mean(0), unit * (points / unit).std(0)
        far = np.flatnonzero((deviation > 0) & (np.abs(mean) > FAR * deviation))
        if len(far):
            j = int(far[0])
            return (
                f"Column {j} of X is far from zero: its mean is {mean[j]:.3g}, its deviation {deviation[j]:.3g}. "
                "Subtract the mean (StandardScaler), or increase alpha."
            )
        if np.ptp(np.abs(points).max(0)) > FAR * np.abs(points).max(0).min() > 0:
            return "Columns of X have very different scales: scale them (StandardScaler), or increase alpha."
        if len(np.unique(points, axis=0)) < len(points):
            return "X has duplicate rows, which alpha alone tells apart: increase alpha, or drop them."
    return "alpha is too small for this kernel and these samples: increase alpha, or use a shorter lengthscale."


def _numbers(X: Data) -> np.ndarray | None:
    """The inputs as a matrix of numbers; None for any other inputs."""
    if is_dask(X) or hasattr(X, "toarray"):
        return None
    try:
        points = np.asarray(plain(X), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return points if points.ndim == 2 and points.size and np.isfinite(points).all() else None
