"""The warning about rounding at the end of a fit: digits that a function has lost, matrices that needed jitter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from representer.functions import Composed, ConditionalEmbedding, FeatureFunction, Function, StoredFeatures
from representer.kernels import has_products
from representer.linalg import RoundingNotes
from representer.samples import Data, is_dask, plain

# Terms of a function that are eps to this power times larger than their sum are a reason to warn: they leave six
# digits in double precision, and nearly three in single. A learned alpha may leave a digit less, as the search allowed.
CANCELLATION, LEARNED = -0.6, -0.7
# Samples are alike to a kernel if their variance in its RKHS is below the share ALIKE of k(x, x); alpha drowns that
# variance if it is larger than its share DROWNED.
ALIKE, DROWNED = 1e-6, 0.1
# A column is far from zero if its mean is this many times its deviation.
FAR = 1e3
# The distance between the quartiles of a normal distribution, in deviations.
NORMAL_QUARTILES = 1.349


def lost_digits(
    function: Function | StoredFeatures | None,
    X: Data,
    notes: RoundingNotes,
    dtype: str,
    *,
    learned: float | None = None,
    size: float = 0.0,
) -> str | None:
    """Why the answers of a fit may have fewer digits than usual, with advice; None if there is no reason.

    Parameters
    ----------
    function : Function, StoredFeatures or None
        The fitted function; an infinite one is refused.
    X : data
        The training inputs as the user passed them.
    notes : RoundingNotes
        The notes of the factorisations and solutions of the fit.
    dtype : {"float64", "float32"}
        The precision of the fit.
    learned : float or None
        The learned alpha, whose rounding the search has seen; None if alpha was a number.
    size : float
        The size below which values of the function do not matter: 1 for targets of zeros and ones.
    """
    reason = next(_reasons(function, X, notes, dtype, learned, size), None)
    return None if reason is None else f"{reason} {_advice(X)}"


def _reasons(
    function: Function | StoredFeatures | None,
    X: Data,
    notes: RoundingNotes,
    dtype: str,
    learned: float | None,
    size: float,
) -> Iterator[str]:
    """Sentences about lost digits, the gravest first."""
    eps, exponent = float(np.finfo(dtype).eps), CANCELLATION if learned is None else LEARNED
    cancellation = 1.0 if function is None else function.cancellation(size=size)
    if np.isnan(cancellation):
        raise ValueError(
            f"The fitted function is not finite in {dtype}: numbers on the way to it, or its coefficients, are "
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
    far = 0.0 if points is None or dtype == "float64" else max(_farthest(points), _farthest_half(points))
    if far > eps**CANCELLATION:
        yield f"dtype={dtype!r} holds few digits of what tells samples apart."
    for name, residual in notes.residuals.items():
        if not residual <= eps ** (1.0 + exponent):
            yield f"The solution misses {name} by {residual:.1e} of the targets."
    if cancellation > eps**exponent:
        left = max(0, int(-np.log10(min(1.0, cancellation * eps))))
        yield (
            f"The terms of the fitted function are {cancellation:.1e} times larger than their sum: of the digits of a "
            f"prediction about {left} are left."
        )
    if learned is not None and points is not None and isinstance(function, Function):
        apart = _drowned(function, points, learned)
        if apart is not None:
            yield (
                f"What tells samples apart in one direction is {apart:.1e} of k(x, x), and the learned "
                f"alpha={learned:.1e} drowns it: a smaller one was lost to rounding, or not found."
            )
    kernel = None if function is None else function.feature_kernel
    if kernel is None and isinstance(function, Function):
        kernel = function.data_kernel
    if isinstance(function, FeatureFunction) and function.is_affine:
        kernel = None
    if isinstance(function, Composed) and function.inner:
        kernel = function.inner[0].data_kernel
    distance = 0.0 if points is None or kernel is None or not has_products(kernel) else _farthest(points)
    if distance**2 > eps**CANCELLATION:
        yield f"{kernel!r} takes products of points that are {distance:.0e} times farther from zero than apart."


def _drowned(function: Function, points: np.ndarray, alpha: float) -> float | None:
    """The share of k(x, x) that tells samples apart, if it is small and alpha drowns it; else None.

    It is the least variance of a varying column, in a kernel of products. A stationary kernel of samples that are alike
    shows it by its lengthscale.
    """
    kernel = function.data_kernel
    if isinstance(function, FeatureFunction) and function.is_affine:
        kernel = function.features.kernel
    if isinstance(function, ConditionalEmbedding):
        kernel = function.spans()[0].kernel
    if kernel is None or kernel.domain != "vectors" or not has_products(kernel):
        return None
    sampled = points[:: max(1, len(points) // 64)]
    size = float(kernel.diag(sampled).mean())
    sampled = sampled / (np.abs(sampled).max() or 1.0)  # so that squares are in range
    variances, square = sampled.var(0), float((sampled**2).sum(1).mean())
    if not (variances > 0).any():
        return None
    share = float(variances[variances > 0].min()) / square
    return share if share < ALIKE and alpha > DROWNED * share * size else None


def _farthest(points: np.ndarray) -> float:
    """The largest mean of a column in units of its deviation; 0 if no column varies."""
    unit = float(np.abs(points).max()) or 1.0  # so that squares are in range
    mean, deviation = np.abs((points / unit).mean(0)), (points / unit).std(0)
    return float(np.max(mean[deviation > 0] / deviation[deviation > 0], initial=0.0))


def _farthest_half(points: np.ndarray) -> float:
    """The largest median of a column in units of the deviation of its inner half, which no outlier widens."""
    low, middle, high = np.quantile(points, [0.25, 0.5, 0.75], axis=0)
    width = high - low
    return float(np.max(NORMAL_QUARTILES * np.abs(middle)[width > 0] / width[width > 0], initial=0.0))


def _advice(X: Data) -> str:
    """The likeliest reason for lost digits, with advice."""
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
