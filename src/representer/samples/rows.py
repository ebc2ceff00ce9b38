"""The rows of a search, the rows of folds, and the rows that belong together because their inputs are equal.

All numbers of rows in the library stand in the table below. They are read as attributes of this module
(``rows.HELD_ROWS``), so that each has one place to change it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy import sparse, special
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from representer.linalg import row_blocks
from representer.notices import relayed
from representer.samples.records import Data
from representer.values import is_count

# -- large fits -------------------------------------------------------------------------------------------------------
HEURISTIC_ROWS = 10_000  # evenly spaced samples that decide the words in a kernel
SEARCH_ROWS = 1500  # random samples on which the hyperparameters of an approximate fit are learned
WHOLE_FACTOR_ROWS = 500  # targets whose Gram matrix a search factors to the last digit
HELD_ROWS = 5000  # random samples over which leave-one-out errors of a fit by sums are averaged
PILOT_LANDMARKS = 2000  # landmarks whose normal equations choose alpha for conjugate gradients
DIRECT_LIMIT = 6000  # features up to which normal equations are formed; conjugate gradients above
DENSE_LIMIT = 8000  # n·p up to which the block matrix of coupled outputs is factored; conjugate gradients above
STACK_ROWS = 1000  # random samples on which the members of a stack are learned in an exact fit
ERROR_ROWS, ERROR_COLUMNS, LEAST_COLUMNS = 500, 100, 10  # of the Gram matrix that measures an approximation's error
RESIDUAL_ROWS, PROBES = 64, 4  # equations whose residual stands for that of all; probe columns

# -- deep kernel machines ---------------------------------------------------------------------------------------------
DEEP_SEARCH_ROWS = 500  # random samples on which their hyperparameters are chosen
DEPTH_ROWS = 250  # random samples that decide whether an inner layer pays
INNER_ROWS = 10_000  # with an approximation, random samples from which inner layers are learned

# -- deep kernel PCA --------------------------------------------------------------------------------------------------
WIDTH_ROWS = 500  # random samples on which the width of the first kernel is learned
SMOOTHER_ROWS = 1000  # evenly spaced samples that are left out to choose the width of a smoother

# -- structured outputs -----------------------------------------------------------------------------------------------
KNOWN_ROWS = 20_000  # random samples that kernels and decoders of an approximate fit see
MEAN_ROWS = 10_000  # outputs whose mean stands for that of all in a score
STRUCTURED_ROWS = 2000  # random samples on which an exact fit chooses its numbers; kernels are learned on half of them

# -- embeddings -------------------------------------------------------------------------------------------------------
SEARCH_LIMIT = 10_000  # samples up to which the search of an approximate embedding classifier uses all of them
SMALLEST_SEARCH = 500  # the least number of samples in such a search
SUPPORT_ROWS = 1000  # samples or landmarks that measure how far an input is from all samples
MIDDLE_ROWS = 500  # samples whose mean is the middle of features beside a constant

KEY_BLOCK = 2**20
KEY_COPIES = 8  # copies of a number that its rounding and hashing make


def evenly_spaced(n: int, size: int) -> np.ndarray:
    """Row numbers from the first to the last: ``size`` of n, or all."""
    return np.arange(n) if n <= size else np.linspace(0, n - 1, size).round().astype(np.int64)


def sampling_keys(rows: np.ndarray, seed: int | np.ndarray) -> np.ndarray:
    """A random number for each row, which depends on the row's number and the seed only.

    So the rows with the least keys are the same random sample, whatever the blocks in which the data come. The keys are
    hashes of the numbers (SplitMix64, Steele, Lea & Flood, 2014).
    """
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.asarray(seed).astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
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
    """The rows of random whole groups, in order: as many groups as fit into ``size`` rows, and at least one.

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


def drawn_rows(n: int, size: int, seed: int, groups: Tensor | None = None) -> Tensor:
    """At most ``size`` random ones of n rows, in order; of groups (n,), whole ones."""
    if groups is not None:
        return torch.from_numpy(sample_groups(groups.cpu().numpy(), size, seed))
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:size].sort().values


# Rows are equal if their numbers agree in this many binary digits, which are about nine decimal ones. In a column far
# from zero these are digits of its spread, but not more of a number than the second, of which rounding leaves the most.
DIGITS, MOST_DIGITS = 30, 46
# With fewer distinct inputs, replicates are not left out together: without one of five levels of a factor, a fit would
# know nothing about that level.
LEAST_DISTINCT = 10
# The variance of replicates is at least its lower confidence limit of this level.
CONFIDENCE = 0.99
# Fewer degrees of freedom say nothing about that variance, because one pair that differs may be an outlier.
LEAST_FREEDOM = 5


def equal_rows(rows: np.ndarray | sparse.csr_array, *, far: bool = True) -> np.ndarray:
    """Numbers (n,) of rows, the same for rows that are equal up to rounding.

    With ``far``, dense columns far from zero, such as times in seconds, are compared beside their spread.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import equal_rows
    >>> equal_rows(np.array([[0.3, 1.0], [2.0, 0.0], [0.1 + 0.2, 1.0]])).tolist()
    [0, 1, 0]
    """
    keys = _sparse_keys(rows) if sparse.issparse(rows) else _dense_keys(np.asarray(rows), far)
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return first[numbers]


def _dense_keys(rows: np.ndarray, far: bool) -> np.ndarray:
    """A hash of each row."""
    columns = np.asarray(rows, dtype=np.float64).reshape(len(rows), -1)
    spreads, keys = _spreads(columns) if far else math.inf, np.zeros(len(rows), dtype=np.uint64)
    for block in row_blocks(len(rows), 8 * KEY_COPIES * columns.shape[1]):
        keys[block] = sampling_keys(_rounded_bits(columns[block], spreads), np.arange(columns.shape[1])).sum(1)
    return keys


def _spreads(columns: np.ndarray) -> np.ndarray:
    """Half the distance of the largest from the smallest number of each column; infinite where no two differ."""
    finite = np.isfinite(columns)
    largest, least = columns.max(0, where=finite, initial=-np.inf), columns.min(0, where=finite, initial=np.inf)
    return np.where(largest > least, 0.5 * largest - 0.5 * least, np.inf)


def _sparse_keys(rows: sparse.csr_array) -> np.ndarray:
    """A hash of each row, from its entries that are not zero."""
    entries = sparse.coo_array(rows)
    entries.sum_duplicates()
    nonzero = entries.data != 0
    hashed = sampling_keys(entries.col[nonzero].astype(np.int64), 0) ^ _rounded_bits(entries.data[nonzero])
    keys = np.zeros(rows.shape[0], dtype=np.uint64)
    np.add.at(keys, entries.row[nonzero], sampling_keys(hashed, 1))
    return keys


def _rounded_bits(values: np.ndarray, spread: np.ndarray | float = math.inf) -> np.ndarray:
    """The bits of numbers, rounded to ``DIGITS`` binary digits, or so many of a smaller spread."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    below = np.where(np.isinf(spread), 0, exponent - np.frexp(spread)[1])
    digits = DIGITS + below.clip(0, MOST_DIGITS - DIGITS)
    rounded = np.ldexp(np.round(np.ldexp(mantissa, digits)), exponent - digits) + 0.0  # minus zero is zero
    return rounded.view(np.uint64)


def joined_groups(*partitions: np.ndarray | None) -> np.ndarray | None:
    """The finest partition (n,) of samples that keeps together what any of ``partitions`` keeps together.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import joined_groups
    >>> joined_groups(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    numbered = [np.unique(labels, return_inverse=True)[1] for labels in partitions if labels is not None]
    if not numbered:
        return None
    n = len(numbered[0])
    offsets = n + np.cumsum([0, *(labels.max() + 1 for labels in numbered)])
    ends = np.concatenate([labels + offset for labels, offset in zip(numbered, offsets[:-1], strict=True)])
    starts = np.tile(np.arange(n), len(numbered))
    graph = sparse.coo_array((np.ones(len(ends), dtype=bool), (starts, ends)), shape=(offsets[-1], offsets[-1]))
    return np.unique(connected_components(graph, directed=False)[1][:n], return_inverse=True)[1]


def groups_with_replicates(groups: np.ndarray | None, replicates: np.ndarray | None) -> np.ndarray | None:
    """The groups (n,) of samples that are left out together: the user's groups, joined by equal inputs.

    Replicates are ignored if fewer than ``LEAST_DISTINCT`` groups would be left, or if all inputs are distinct.
    """
    if replicates is None or len(np.unique(replicates)) == len(replicates):
        return groups
    joined = joined_groups(groups, replicates)
    return groups if joined is None or joined.max() + 1 < LEAST_DISTINCT else joined


def replicate_scatter(
    Y: np.ndarray, replicates: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The sums Σ w(y − ȳ)² (s, p) of targets (n, p) within each set of equal inputs, and their degrees of freedom.

    Missing targets are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import replicate_scatter
    >>> scatter, freedom = replicate_scatter(np.array([[0.0], [0.2], [5.0]]), np.array([0, 0, 1]))
    >>> scatter.round(6).tolist(), freedom.tolist()
    ([[0.02], [0.0]], [[1.0], [0.0]])
    """
    observed = ~np.isnan(Y)
    w = observed * (1.0 if weights is None else np.asarray(weights, dtype=np.float64).reshape(len(Y), -1))
    _, members = np.unique(replicates, return_inverse=True)
    sums, totals, sizes, scatter = (np.zeros((members.max() + 1, Y.shape[1])) for _ in range(4))
    for total, values in ((sums, w * np.where(observed, Y, 0.0)), (totals, w), (sizes, 1.0 * (w > 0))):
        np.add.at(total, members, values)
    means = sums / np.where(totals > 0, totals, 1.0)
    np.add.at(scatter, members, w * np.where(observed, Y - means[members], 0.0) ** 2)
    return scatter, np.maximum(sizes - 1.0, 0.0)


def least_noise(scatter: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """A lower confidence limit (p,) of the variance of targets with equal inputs, at a weight of one.

    It is the smaller of two limits. One is the scatter within all sets of replicates (s, p) over a quantile of χ², as
    if all had the same variance. The other is the limit of the median variance by the sign test, where a set has as
    many votes as degrees of freedom; it holds where some sets differ far more than others, as molecules do that a
    kernel wrongly takes for equal. With less than ``LEAST_FREEDOM`` degrees of freedom the limit is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.samples import least_noise
    >>> pairs = np.ones((20, 1))
    >>> unlike = np.where(np.arange(20)[:, None] < 5, 100.0, 0.01)
    >>> float(least_noise(pairs, pairs)[0].round(3)), float(least_noise(unlike, pairs)[0].round(3))
    (0.532, 0.022)
    """
    total = freedom.sum(0)
    common = scatter.sum(0) / special.chdtri(np.maximum(total, 1.0), 1.0 - CONFIDENCE)
    medians = scatter / special.chdtri(np.maximum(freedom, 1.0), 0.5)
    order = np.argsort(medians, axis=0)
    votes = np.take_along_axis(freedom, order, axis=0)
    below = (votes.cumsum(0) - votes).astype(int)
    # So few votes below a set's variance mean, with this confidence, that the median variance is above it.
    few = special.bdtr(below, np.maximum(total, 1.0).astype(int), 0.5) <= 1.0 - CONFIDENCE
    typical = np.where(few & (votes > 0), np.take_along_axis(medians, order, axis=0), 0.0).max(0)
    return np.where(total >= LEAST_FREEDOM, np.minimum(common, typical), 0.0)


class Splitter(Protocol):
    """An object that makes folds, such as scikit-learn's splitters."""

    def split(
        self, X: np.ndarray, y: np.ndarray | None = None, groups: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Training and held-out rows of each fold."""


@dataclass(frozen=True)
class Folds:
    """The samples that a search uses, and the folds in which they are held out.

    Parameters
    ----------
    n : int
        The number of samples.
    cv : int, splitter or iterable
        A number of folds, shuffled; or a user's splits of all n samples.
    seed : int
        The seed of subsets and folds.
    labels : array (n,), optional
        The classes, numbered from 0, which folds and subsets keep in proportion: each has a training row in every fold.
    groups : array (n,), optional
        The numbers of groups that are held out together.
    kept : array of int (n,), optional
        The numbers of the samples among those that a user has passed, to which a user's splits refer.
    """

    n: int
    cv: Any  # a number, a splitter, or pairs of rows
    seed: int
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    kept: np.ndarray | None = None
    total: int = 0  # the number of samples that the user has passed
    splitter: Callable[[Folds, int], Splitter] | None = None  # a function that makes a splitter from ``cv``

    def some(self, most: int) -> Tensor:
        """All rows, or about ``most`` random ones: whole groups, or the classes in proportion."""
        if self.groups is not None:
            return torch.from_numpy(sample_groups(self.groups, most, self.seed))
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(self.seed))
        if self.labels is not None:
            place = np.empty(self.n)
            shuffled = self.labels[order.numpy()]
            for label in np.unique(shuffled):
                members = np.flatnonzero(shuffled == label)
                place[members] = (np.arange(len(members)) + 0.5) / len(members)
            order = order[torch.from_numpy(np.argsort(place, kind="stable"))]
        return order[:most].sort().values

    def __call__(self, rows: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
        """The training and held-out rows of each fold; with ``rows``, positions among these rows.

        If ``cv`` is a number of folds, they are made for these rows; a user's splits are restricted to them.
        """
        if rows is not None and is_count(self.cv):
            index = rows.numpy()
            labels, groups = (None if a is None else a[index] for a in (self.labels, self.groups))
            return Folds(len(rows), self.cv, self.seed, labels, groups, splitter=self.splitter)()
        splits, labels = self._splits(), self.labels
        if rows is not None:
            place = np.full(self.n, -1)
            place[rows.numpy()] = np.arange(len(rows))
            splits = [(place[training], place[held_out]) for training, held_out in splits]
            splits = [(training[training >= 0], held_out[held_out >= 0]) for training, held_out in splits]
            labels = None if labels is None else labels[rows.numpy()]
        splits = [_with_all_classes(labels, *split) for split in splits if len(split[0])]
        splits = [(training, held_out) for training, held_out in splits if len(held_out)]
        if not splits:
            used = self.n if rows is None else len(rows)
            raise ValueError(
                f"No split of cv={self.cv!r} has both training and held-out samples among the {used} that are used. "
                "Give larger parts, or a number of folds."
            )
        return [(torch.from_numpy(training), torch.from_numpy(held_out)) for training, held_out in splits]

    def _splits(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The training and held-out rows of all samples in each fold."""
        n, labels, groups = self.n, self.labels, self.groups
        most = n if labels is None else int(np.bincount(labels).max())
        if n < 2:
            raise ValueError("Found 1 sample (n_samples = 1), of which none can be held out.")
        if most < 2:
            raise ValueError(
                "No class has two samples, so that none can be held out to choose hyperparameters or to calibrate. "
                "Give numbers for all of them and calibration=None, or more samples."
            )
        if groups is not None and groups.max() == 0:
            raise ValueError("All samples are in one group, of which none can be held out. Give at least two groups.")
        if not is_count(self.cv) and not hasattr(self.cv, "split") and self.kept is not None:
            return [(self._places(training), self._places(held_out)) for training, held_out in self.cv]
        assert self.splitter is not None
        splitter = self.splitter(self, most)
        blank = np.zeros((n, 1))
        folds = splitter.split(blank, blank[:, 0] if labels is None else labels, groups)
        rows = np.arange(n)
        try:
            return relayed(lambda: [(rows[training], rows[held_out]) for training, held_out in folds])
        except IndexError as error:
            raise ValueError(f"cv={self.cv!r} does not fit to {n} samples: {error}.") from error

    def _places(self, rows: Data) -> np.ndarray:
        """The places of samples, which a user's split numbers, among the samples of the fit."""
        assert self.kept is not None
        numbers = np.arange(len(rows))[rows] if np.asarray(rows).dtype == bool else np.asarray(rows)
        if len(numbers) and not (numbers.max() < self.total and numbers.min() >= -self.total):
            raise ValueError(f"cv={self.cv!r} does not fit to {self.total} samples: it numbers more of them.")
        place = np.full(self.total, -1)
        place[self.kept] = np.arange(self.n)
        return place[numbers][place[numbers] >= 0]


def _with_all_classes(
    labels: np.ndarray | None, training: np.ndarray, held_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A split in which samples of a class that is held out entirely move to the training rows."""
    if labels is None:
        return training, held_out
    alone = ~np.isin(labels[held_out], labels[training])
    return np.append(training, held_out[alone]), held_out[~alone]
