"""Scores of uncertain predictions: normal distributions, draws, quantiles, intervals, probabilities and rankings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from representer.metrics.distributions import class_places
from representer.values import COUNT, argument_repr, as_floats


def crps(
    y: npt.ArrayLike,
    prediction: npt.ArrayLike,
    std: npt.ArrayLike | None = None,
    *,
    weights: npt.ArrayLike | None = None,
) -> float:
    """The continuous ranked probability score E|Y − y| − E|Y − Y'|/2, in units of y: the smaller, the better.

    It is the absolute error of predictions without spread, and is least on average for the true distribution.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        The observed targets.
    prediction : array-like of shape (n_samples,) or (n_samples, n_draws)
        Means of normal distributions, with ``std``; or draws from any distributions.
    std : array-like of shape (n_samples,), default=None
        Their standard deviations; None: the predictions are draws, or have no spread.
    weights : array-like of shape (n_samples, n_draws), default=None
        The weights of the draws, with positive sums; None: all equal.

    Returns
    -------
    score : float
        The mean over the samples.

    Examples
    --------
    >>> from representer.metrics import crps
    >>> round(crps([0.0], [0.0], [1.0]), 4), crps([1.0], [[0.0, 2.0]]), crps([1.0], [3.0])
    (0.2337, 0.5, 2.0)
    """
    observed, values = _numbers("y", y, 1), _numbers("prediction", prediction, None)
    if std is not None:
        deviation = _deviations(std, observed, values)
        z = (observed - values) / deviation
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        return float(np.mean(deviation * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))))
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(observed):
        raise ValueError(
            f"prediction must hold draws of shape (n_samples, n_draws) with n_samples = {len(observed)}; got shape "
            f"{values.shape}. Pass std= with means of shape (n_samples,)."
        )
    w = np.ones_like(values) if weights is None else np.broadcast_to(_numbers("weights", weights, None), values.shape)
    return float(np.mean(_spread_scores(observed, values, w / w.sum(1, keepdims=True))))


def _spread_scores(y: np.ndarray, draws: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The score of each sample; Σ_jk w_j w_k |x_j − x_k|/2 = Σ_j x_j w_j (2 W_j − w_j − 1), W_j the sum up to j."""
    order = draws.argsort(1)
    x, w = np.take_along_axis(draws, order, 1), np.take_along_axis(weights, order, 1)
    centred = x - y[:, None]  # a shift does not change the spread, and differences keep more digits
    return (w * np.abs(centred)).sum(1) - (centred * w * (2.0 * w.cumsum(1) - w - 1.0)).sum(1)


def nlpd(y: npt.ArrayLike, mean: npt.ArrayLike, std: npt.ArrayLike) -> float:
    """The negative log predictive density of normal predictions, in nats: the smaller, the better.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        The observed targets.
    mean, std : array-like of shape (n_samples,)
        Means and standard deviations, as ``predict(X, return_std=True)`` gives them.

    Returns
    -------
    score : float
        The mean over the samples.

    Examples
    --------
    >>> from representer.metrics import nlpd
    >>> round(nlpd([0.0], [0.0], [1.0]), 4)
    0.9189
    """
    observed, values = _numbers("y", y, 1), _numbers("mean", mean, 1)
    deviation = _deviations(std, observed, values)
    return float(np.mean(0.5 * ((observed - values) / deviation) ** 2 + np.log(deviation * np.sqrt(2.0 * np.pi))))


def pinball(y: npt.ArrayLike, quantiles: npt.ArrayLike, levels: npt.ArrayLike) -> float:
    """The pinball loss of quantiles, in units of y: the smaller, the better.

    The pinball loss of the median is half its absolute error.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        The observed targets.
    quantiles : array-like of shape (n_samples, n_levels)
        Predicted quantiles.
    levels : array-like of shape (n_levels,)
        The levels of the quantiles, between 0 and 1.

    Returns
    -------
    loss : float
        The mean over samples and levels.

    Examples
    --------
    >>> from representer.metrics import pinball
    >>> round(pinball([1.0], [[0.0, 3.0]], [0.5, 0.9]), 4)  # (0.5·1 + 0.1·2) / 2
    0.35
    """
    observed, q = _numbers("y", y, 1), np.atleast_1d(_numbers("levels", levels, None))
    values = _numbers("quantiles", quantiles, None)
    if not np.all((q > 0) & (q < 1)):
        raise ValueError(f"levels must lie between 0 and 1; got {levels!r}.")
    values = values[:, None] if values.ndim == 1 else values
    if values.shape != (len(observed), len(q)):
        raise ValueError(
            f"quantiles must have shape (n_samples, n_levels) = ({len(observed)}, {len(q)}); got {values.shape}."
        )
    missed = observed[:, None] - values
    return float(np.mean(np.maximum(q * missed, (q - 1.0) * missed)))


def coverage(y: npt.ArrayLike, intervals: npt.ArrayLike) -> float:
    """The share of targets that lie in their intervals, ends included.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        The observed targets; missing ones (NaN) do not count.
    intervals : array-like of shape (n_samples, 2) or (n_samples, n_outputs, 2)
        Lower and upper ends, as ``predict_interval`` gives them.

    Returns
    -------
    share : float
        Between 0 and 1.

    Examples
    --------
    >>> from representer.metrics import coverage
    >>> coverage([0.0, 5.0], [[-1.0, 1.0], [-1.0, 1.0]])
    0.5
    """
    observed, ends = as_floats(y, "y"), as_floats(intervals, "intervals")
    present = ~np.isnan(observed)
    _numbers("y without its missing entries", observed[present], None)
    if ends.shape != (*observed.shape, 2) or np.isnan(ends).any():
        raise ValueError(
            f"intervals must have shape {(*observed.shape, 2)}, lower and upper ends without NaN; got {ends.shape}."
        )
    return float(np.mean(((ends[..., 0] <= observed) & (observed <= ends[..., 1]))[present]))


def brier(y: npt.ArrayLike, probabilities: npt.ArrayLike, classes: npt.ArrayLike | None = None) -> float:
    """The Brier score Σ_c (p_c − [y = c])² of class probabilities, between 0 and 2: the smaller, the better.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        The true labels.
    probabilities : array-like of shape (n_samples, n_classes)
        Predicted probabilities.
    classes : array-like of shape (n_classes,), default=None
        The label of each column; None: the sorted labels of y.

    Returns
    -------
    score : float
        The mean over the samples.

    Examples
    --------
    >>> from representer.metrics import brier
    >>> round(brier(["a", "b"], [[1.0, 0.0], [0.5, 0.5]]), 3)
    0.25
    """
    truth, p, labels = class_places(y, probabilities, classes)
    return float(np.mean(((p - (truth[:, None] == labels)) ** 2).sum(1)))


def top_k(y: Sequence[object], ranked: Sequence[Sequence[object]], k: int = 1) -> float:
    """The top-k accuracy of a retrieval: the share of true objects among the first k of their candidates.

    Parameters
    ----------
    y : sequence of n objects
        The true objects.
    ranked : sequence of n sequences
        The candidates of each, best first, such as ``StructuredPredictor.predict_topk`` returns.
    k : int, default=1
        The number of best candidates among which the true object counts.

    Returns
    -------
    share : float
        Between 0 and 1.

    Examples
    --------
    >>> from representer.metrics import top_k
    >>> top_k(["a", "b"], [["a", "c"], ["c", "b"]], k=1), top_k(["a", "b"], [["a", "c"], ["c", "b"]], k=2)
    (0.5, 1.0)
    """
    COUNT("k", k)
    return float(np.mean([0 < rank <= k for rank in _ranks(y, ranked)]))


def reciprocal_rank(y: Sequence[object], ranked: Sequence[Sequence[object]]) -> float:
    """The mean reciprocal rank of the true objects among their candidates; absent ones count as zero.

    Parameters
    ----------
    y : sequence of n objects
        The true objects.
    ranked : sequence of n sequences
        The candidates of each, best first.

    Returns
    -------
    mean : float
        Between 0 and 1.

    Examples
    --------
    >>> from representer.metrics import reciprocal_rank
    >>> reciprocal_rank(["a", "b", "x"], [["a", "c"], ["c", "b"], ["a"]])
    0.5
    """
    return float(np.mean([1.0 / rank if rank else 0.0 for rank in _ranks(y, ranked)]))


def _ranks(y: Sequence[object], ranked: Sequence[Sequence[object]]) -> list[int]:
    """The place, from one, of each true object among its candidates; zero where it is not among them."""
    if not (_is_list(y) and _is_list(ranked) and all(map(_is_list, ranked))):
        raise TypeError(
            "y must be a list of objects, and ranked a list with the list of candidates of each of them, the best one "
            f"first; got {argument_repr(y):.40} and {argument_repr(ranked):.40}."
        )
    if len(y) != len(ranked) or len(y) == 0:
        raise ValueError(f"ranked must have the candidates of each of the {len(y)} objects of y; got {len(ranked)}.")
    equal = [
        [bool(np.array_equal(np.asarray(c), np.asarray(t))) for c in row] for t, row in zip(y, ranked, strict=True)
    ]
    return [row.index(True) + 1 if True in row else 0 for row in equal]


def _is_list(values: object) -> bool:
    """Is this a collection with a length and an order, and no text?"""
    is_array = hasattr(values, "__array__") and getattr(values, "ndim", 1) > 0
    return is_array or (isinstance(values, Sequence) and not isinstance(values, str | bytes))


def _numbers(name: str, values: npt.ArrayLike, ndim: int | None) -> np.ndarray:
    """Finite numbers as an array, of ``ndim`` dimensions if these are stated."""
    array = as_floats(values, name)
    if (ndim is not None and array.ndim != ndim) or array.size == 0 or not np.isfinite(array).all():
        expected = "a finite, not empty array" + ("" if ndim is None else " of shape (n_samples,)")
        flaw = "" if np.isfinite(array).all() else ", with NaN or infinity"
        raise ValueError(f"{name} must be {expected}; got shape {array.shape}{flaw}.")
    return array


def _deviations(std: npt.ArrayLike, y: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Standard deviations, positive and one for each mean."""
    deviation = _numbers("std", std, None)
    if deviation.shape not in ((), y.shape):
        raise ValueError(f"std must be a number, or have the shape {y.shape} of y; got {deviation.shape}.")
    deviation = np.broadcast_to(deviation, y.shape)
    if mean.shape != y.shape:
        raise ValueError(f"Means must have the shape {y.shape} of y; got {mean.shape}.")
    if not (deviation > 0).all():
        raise ValueError("std must be positive; a prediction without doubt has no density.")
    return deviation
