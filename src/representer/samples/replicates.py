"""Samples with equal inputs: rows that are equal but for rounding, and groups that are left out together with them."""

from __future__ import annotations

import numpy as np
from scipy import sparse, special
from scipy.sparse.csgraph import connected_components

from representer.samples.rows import sampling_keys

# Rows are equal whose numbers agree in so many binary digits: about nine decimal ones.
DIGITS = 30
# Replicates are no groups where fewer inputs are distinct: to leave out one of five levels of a factor is to leave out
# what the samples are about.
LEAST_DISTINCT = 10
# The variance of replicates is at least its lower confidence limit of this level.
CONFIDENCE = 0.99
# Fewer degrees of freedom than these say nothing of it: one pair that differs may be an outlier.
LEAST_FREEDOM = 5


def equal_rows(rows: np.ndarray | sparse.csr_array) -> np.ndarray:
    """A number (n,) for each row, the same one for rows that are equal but for rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import equal_rows
    >>> equal_rows(np.array([[0.3, 1.0], [2.0, 0.0], [0.1 + 0.2, 1.0]])).tolist()
    [0, 1, 0]
    """
    keys = _sparse_keys(rows) if sparse.issparse(rows) else _dense_keys(np.asarray(rows))
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return first[numbers]


def _dense_keys(rows: np.ndarray) -> np.ndarray:
    """A hash of each row."""
    keys = np.zeros(len(rows), dtype=np.uint64)
    for j, column in enumerate(rows.reshape(len(rows), -1).T):
        keys += sampling_keys(_rounded_bits(column), j)
    return keys


def _sparse_keys(rows: sparse.csr_array) -> np.ndarray:
    """A hash of each row from its entries other than zero."""
    entries = sparse.coo_array(rows)
    entries.sum_duplicates()
    held = entries.data != 0
    hashed = sampling_keys(entries.col[held].astype(np.int64), 0) ^ _rounded_bits(entries.data[held])
    keys = np.zeros(rows.shape[0], dtype=np.uint64)
    np.add.at(keys, entries.row[held], sampling_keys(hashed, 1))
    return keys


def _rounded_bits(values: np.ndarray) -> np.ndarray:
    """The bits of numbers that are rounded to ``DIGITS`` binary digits."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    rounded = np.ldexp(np.round(np.ldexp(mantissa, DIGITS)), exponent - DIGITS) + 0.0  # minus zero is zero
    return rounded.view(np.uint64)


def joined_groups(*partitions: np.ndarray | None) -> np.ndarray | None:
    """The finest partition (n,) of samples in which those together in one of ``partitions`` are together.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import joined_groups
    >>> joined_groups(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    known = [np.unique(labels, return_inverse=True)[1] for labels in partitions if labels is not None]
    if not known:
        return None
    n = len(known[0])
    offsets = n + np.cumsum([0, *(labels.max() + 1 for labels in known)])
    ends = np.concatenate([labels + offset for labels, offset in zip(known, offsets[:-1], strict=True)])
    starts = np.tile(np.arange(n), len(known))
    graph = sparse.coo_array((np.ones(len(ends), dtype=bool), (starts, ends)), shape=(offsets[-1], offsets[-1]))
    return np.unique(connected_components(graph, directed=False)[1][:n], return_inverse=True)[1]


def groups_with_replicates(groups: np.ndarray | None, replicates: np.ndarray | None) -> np.ndarray | None:
    """The groups (n,) of samples that are left out together: those of a user, and samples with equal inputs.

    Replicates are left aside where they would leave fewer than ``LEAST_DISTINCT`` groups, and where there are none.
    """
    if replicates is None or len(np.unique(replicates)) == len(replicates):
        return groups
    joined = joined_groups(groups, replicates)
    return groups if joined is None or joined.max() + 1 < LEAST_DISTINCT else joined


def replicate_scatter(
    Y: np.ndarray, replicates: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Σ w(y − ȳ)² (p,) of targets (n, p) around the means of those with equal inputs, and its degrees of freedom (p,).

    Missing targets are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import replicate_scatter
    >>> scatter, freedom = replicate_scatter(np.array([[0.0], [0.2], [5.0]]), np.array([0, 0, 1]))
    >>> scatter.round(6).tolist(), freedom.tolist()
    ([0.02], [1.0])
    """
    known = ~np.isnan(Y)
    w = known * (1.0 if weights is None else np.asarray(weights, dtype=np.float64).reshape(len(Y), -1))
    _, members = np.unique(replicates, return_inverse=True)
    sums, totals, sizes = (np.zeros((members.max() + 1, Y.shape[1])) for _ in range(3))
    for total, values in ((sums, w * np.where(known, Y, 0.0)), (totals, w), (sizes, 1.0 * (w > 0))):
        np.add.at(total, members, values)
    means = sums / np.where(totals > 0, totals, 1.0)
    scatter = (w * np.where(known, Y - means[members], 0.0) ** 2).sum(0)
    return scatter, np.maximum(sizes - 1.0, 0.0).sum(0)


def least_noise(scatter: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """A lower confidence limit (p,) of the variance of targets with equal inputs, at a weight of one.

    It is the scatter within replicates over a quantile of χ²; with less than ``LEAST_FREEDOM`` degrees of freedom it
    is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import least_noise
    >>> least_noise(np.array([0.025, 0.025]), np.array([5.0, 1.0])).round(6).tolist()
    [0.001657, 0.0]
    """
    quantiles = special.chdtri(np.maximum(freedom, 1.0), 1.0 - CONFIDENCE)
    return np.where(freedom >= LEAST_FREEDOM, scatter / quantiles, 0.0)
