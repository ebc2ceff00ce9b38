"""Kernels on strings by the substrings that they have in the same places."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from representer.kernels.sequences import Coded
from representer.kernels.strings import Spectrum, _count_matrix, substrings, windows


class WeightedDegree(Spectrum):
    """k(x, y) = Σ_l w_l Σ_j [x and y have the same substring of length l at position j].

    Strings are compared place by place: the weighted degree kernel of Rätsch & Sonnenburg (2004). With ``length=1`` it
    counts the positions that hold the same symbol, so strings are rows of one-hot vectors, as Cortes, Mohri & Weston
    (2005) represent words. Longer substrings say which symbols follow each other. Positions are counted from the start;
    what only the longer of two strings has counts nothing.

    Parameters
    ----------
    length : int or (int, int)
        The length of the substrings, or the shortest and the longest one.
    weights : float, array (n_lengths,) or "auto"
        w: one number for all lengths, or one each, not negative. ``"auto"``: one each, learned, starting from 1.

    Examples
    --------
    >>> from representer.kernels import WeightedDegree
    >>> WeightedDegree()(["abba", "abab", "ab"]).tolist()
    [[4.0, 2.0, 2.0], [2.0, 4.0, 2.0], [2.0, 2.0, 2.0]]
    >>> WeightedDegree((1, 2), weights=[1.0, 0.5])(["abba", "abab"]).tolist()
    [[5.5, 2.5], [2.5, 5.5]]
    """

    def __init__(self, length: int | tuple[int, int] = 1, weights: Any = 1.0):
        super().__init__(length, weights)

    def _counts(self, X: Sequence[Any]) -> Iterator[Mapping[Hashable, float]]:
        roots = [weight.sqrt().item() for weight in self._weights()]
        for string in X:
            yield {
                (place, substring): root
                for length, root in zip(self._lengths, roots, strict=True)
                for place, substring in enumerate(substrings(string, length))
            }

    def _matrices(self, strings: Coded) -> Iterator[sparse.csr_array]:
        """Which substrings are where, one matrix a length."""
        rows, most = strings.rows(), int(strings.lengths.max(initial=1))
        first = np.cumsum(strings.lengths) - strings.lengths
        for length, (starts, codes, bound) in enumerate(windows(strings, self._lengths[-1]), start=1):
            if length in self._lengths:
                numbers, codes = np.unique(codes, return_inverse=True)  # small: there is room for the places
                places = starts - first[rows[starts]]
                bound = max(1, len(numbers)) * most
                yield _count_matrix(rows[starts], codes * most + places, bound, len(strings.lengths))
