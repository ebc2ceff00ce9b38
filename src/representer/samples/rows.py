"""How many rows a search or a heuristic looks at, and which: every such number of the library in one table.

Read a number as an attribute of this module (``rows.HELD_ROWS``), so that there is one place to change it.
"""

from __future__ import annotations

import numpy as np

# -- what large fits look at ------------------------------------------------------------------------------------------
HEURISTIC_ROWS = 10_000  # evenly spaced samples decide the words in a kernel
SEARCH_ROWS = 1500  # random samples on which the hyperparameters of an approximate fit are learned
HELD_ROWS = 5000  # random samples over which leave-one-out errors of a fit by sums are averaged
PILOT_LANDMARKS = 2000  # landmarks whose normal equations choose alpha for conjugate gradients
DIRECT_LIMIT = 6000  # features up to which normal equations are formed; conjugate gradients above
DENSE_LIMIT = 8000  # n·p up to which the block matrix of coupled outputs is factored; conjugate gradients above
STACK_ROWS = 1000  # random samples on which the members of a stack are learned in an exact fit
ERROR_ROWS, ERROR_COLUMNS, LEAST_COLUMNS = 500, 100, 10  # of a Gram matrix, for the error of an approximation
RESIDUAL_LIMIT, RESIDUAL_ROWS, PROBES = 2000, 64, 4  # equations whose residual is looked at, or so many; probe columns

# -- deep kernel machines ---------------------------------------------------------------------------------------------
DEEP_SEARCH_ROWS = 500  # random samples on which their hyperparameters are chosen
DEPTH_ROWS = 250  # random samples on which it is looked for whether an inner layer pays
INNER_ROWS = 10_000  # with an approximation, random samples from which inner layers are learned

# -- deep kernel PCA --------------------------------------------------------------------------------------------------
WIDTH_ROWS = 500  # random samples on which the width of the first kernel is learned
SMOOTHER_ROWS = 1000  # evenly spaced samples that are left out to choose how sharp a smoother is

# -- structured outputs -----------------------------------------------------------------------------------------------
KNOWN_ROWS = 20_000  # random samples that kernels and decoders of an approximate fit see; up to it they see all
STRUCTURED_ROWS = 2000  # random samples on which an exact fit chooses its numbers; kernels are learned on half as many

# -- embeddings -------------------------------------------------------------------------------------------------------
SEARCH_LIMIT = 10_000  # samples up to which the search of an approximate embedding classifier looks at all of them
SMALLEST_SEARCH = 500  # samples that such a search looks at in any case
SUPPORT_ROWS = 1000  # samples or landmarks that say of an input how far from all it is
MIDDLE_ROWS = 500  # samples whose mean is the middle of features beside a constant

KEY_BLOCK = 2**20


def residual_rows(n: int) -> np.ndarray:
    """The equations whose residual is looked at: all, or some where all would take another Gram matrix."""
    return np.arange(n) if n <= RESIDUAL_LIMIT else evenly_spaced(n, RESIDUAL_ROWS)


def evenly_spaced(n: int, size: int) -> np.ndarray:
    """Row numbers from the first to the last: ``size`` of n, or all."""
    return np.arange(n) if n <= size else np.linspace(0, n - 1, size).round().astype(np.int64)


def sampling_keys(rows: np.ndarray, seed: int) -> np.ndarray:
    """A random number for each row that depends on the row's number and the seed only.

    So the rows with the least keys are the same sample whatever the blocks in which the data come (a hash of the
    number: SplitMix64, Steele, Lea & Flood, 2014).
    """
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def sample_rows(n: int, size: int, seed: int) -> np.ndarray:
    """``size`` different row numbers below n, in order, or all of them; in memory that does not grow with n.

    Examples
    --------
    >>> from representer.samples import sample_rows
    >>> len(sample_rows(10**6, 5, seed=0)), sample_rows(3, 5, seed=0).tolist()
    (5, [0, 1, 2])
    """
    if size >= n:
        return np.arange(n)
    rows, keys = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
    for first in range(0, n, KEY_BLOCK):
        block = np.arange(first, min(first + KEY_BLOCK, n))
        rows, keys = np.concatenate([rows, block]), np.concatenate([keys, sampling_keys(block, seed)])
        if len(rows) > size:
            least = np.argpartition(keys, size - 1)[:size]
            rows, keys = rows[least], keys[least]
    return np.sort(rows)


def sample_groups(groups: np.ndarray, size: int, seed: int) -> np.ndarray:
    """The rows of random whole groups, in order: as many groups as have ``size`` rows together, and at least one.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import sample_groups
    >>> rows = sample_groups(np.array([0, 1, 0, 2, 1, 2]), 4, seed=0)
    >>> len(rows)
    4
    """
    if size >= len(groups):
        return np.arange(len(groups))
    labels, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(sampling_keys(np.arange(len(labels)), seed))
    drawn = np.zeros(len(labels), dtype=bool)
    drawn[order[: max(1, int((np.cumsum(sizes[order]) <= size).sum()))]] = True
    return np.flatnonzero(drawn[members])
