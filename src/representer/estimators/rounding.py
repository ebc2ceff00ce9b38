"""What rounding does to a fit, said once at its end: digits that a function has lost, matrices that needed help."""

from __future__ import annotations

from typing import Any

import numpy as np

from representer.functions import Function
from representer.functions.conditional import ConditionalEmbedding
from representer.notices import NumericalWarning, warn
from representer.samples import Data, is_dask, plain

# Terms of a function that are eps to this power times larger than their sum are worth a word: in double precision they
# leave six digits, in single not quite three. An alpha that was learned may leave a digit less: the search has seen it.
CANCELLATION, LEARNED = -0.6, -0.7
# A column is far from zero if its mean is so many times its deviation.
FAR = 1e3


def report_rounding(learner: Any, X: Data, jitters: dict[str, float]) -> None:
    """Warn of jitter in the equations that were solved, or of cancellation in the function that solves them."""
    for name, share in jitters.items():
        if share > 0 and "alpha" in name:
            warn(
                f"{name} is singular to rounding: {share:.1e} of its mean diagonal was added to its diagonal, as if "
                f"alpha were larger. {_advice(X)}",
                NumericalWarning,
            )
            return
    function, points = getattr(learner, "function_", None), _numbers(X)
    eps = float(np.finfo(learner.dtype).eps)
    if points is not None and learner.dtype != "float64" and _farthest(points) > eps**CANCELLATION:
        warn(f"dtype={learner.dtype!r} holds few digits of what tells samples apart. {_advice(X)}", NumericalWarning)
        return
    if not isinstance(function, Function):
        return
    cancellation = function.cancellation()
    exact = isinstance(function, ConditionalEmbedding) and learner.approximation is None
    if exact and points is not None and learner.kernel_.domain == "vectors":
        # Weights solve one system for every question: its condition is at most k(x, x) / alpha.
        largest = float(learner.kernel_.diag(points[:: max(1, len(points) // 64)]).max())
        cancellation = max(1.0, largest / learner.alpha_)
    if np.isnan(cancellation):
        raise ValueError(
            f"The fitted function is not finite in {learner.dtype}: numbers on the way to it, or its coefficients, are "
            "beyond the range of that precision. Divide y by its largest value and X by its deviation, increase alpha, "
            "or use dtype='float64'."
        )
    learned = not isinstance(getattr(learner, "alpha", None), int | float)
    if cancellation > eps ** (LEARNED if learned else CANCELLATION):
        left = max(0, int(-np.log10(min(1.0, cancellation * eps))))
        warn(
            f"The terms of the fitted function are {cancellation:.1e} times larger than their sum: of the digits of a "
            f"prediction about {left} are left. {_advice(X)}",
            NumericalWarning,
        )


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
