"""Kernels on strings by the substrings that they have in common, anywhere or in the same places."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial, reduce
from itertools import combinations, product
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.kernels.base import combine
from representer.kernels.explicit import CountingKernel, inner_products, squared_norms
from representer.kernels.sequences import Coded, StringKernel, coded, one_kind
from representer.linalg.memory import row_blocks
from representer.parameters import Hyperparameter, NonNegative, Word, is_count, is_real
from representer.values import number

# Codes of substrings are integers below this; longer substrings are renumbered on the way.
MAX_CODE = 2**62


def _renumbered(codes: np.ndarray, bound: int, limit: int) -> tuple[np.ndarray, int]:
    """Codes below ``limit``, equal where they were: renumbered only if the bound is too large."""
    if bound <= limit:
        return codes, bound
    distinct, codes = np.unique(codes, return_inverse=True)
    return codes, len(distinct)


def windows(strings: Coded, longest: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """For the lengths 1, …, longest: where substrings of this length start, a code for each, and its bound."""
    rows, size = strings.rows(), max(1, len(strings.alphabet))
    starts, codes, bound = np.arange(len(rows)), strings.symbols, size
    yield starts, codes, bound
    for length in range(1, longest):
        inside = starts + length < len(rows)
        inside[inside] = rows[starts[inside] + length] == rows[starts[inside]]
        codes, bound = _renumbered(codes[inside], bound, MAX_CODE // size)
        starts = starts[inside]
        codes, bound = codes * size + strings.symbols[starts + length], bound * size
        yield starts, codes, bound


def _count_matrix(rows: np.ndarray, codes: np.ndarray, bound: int, n_rows: int) -> sparse.csr_array:
    """How often each code is in each row; the rows ascend."""
    codes, bound = _renumbered(codes, bound, 4 * len(codes) + 1)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    matrix = sparse.csr_array((np.ones(len(codes)), codes, ends), shape=(n_rows, bound), copy=True)
    matrix.sum_duplicates()
    return matrix


def _products(matrix: sparse.csr_array, n: int, symmetric: bool, weights: np.ndarray | None = None) -> Tensor:
    """Inner products of the first n rows with the rest, or with themselves."""
    left, right = (matrix, None) if symmetric else (matrix[:n], matrix[n:])
    return inner_products(left, right, weights)


# -- kernels ----------------------------------------------------------------------------------------------------------
class Spectrum(StringKernel, CountingKernel):
    """k(x, y) = Σ_l w_l Σ_{|s|=l} #_s(x) #_s(y), where #_s counts how often the substring s is in a string.

    With one length it is the spectrum kernel of Leslie, Eskin and Noble (2002), with several the blended one. A string
    that is shorter than all lengths, such as the empty one, has the feature vector 0. Substrings that the training
    strings do not have, for instance with new symbols, contribute nothing.

    Parameters
    ----------
    length : int or (int, int)
        The length of the substrings, or the shortest and the longest one.
    weights : float, array (n_lengths,) or "auto"
        w: one number for all lengths, or one each, not negative. ``"auto"``: one each, learned, starting from 1.

    Examples
    --------
    >>> from representer.kernels import Spectrum
    >>> Spectrum(2)(["abab", "ba", "a"]).tolist()
    [[5.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    >>> Spectrum((1, 2), weights=[1.0, 0.5])(["ab", "abb"]).tolist()
    [[2.5, 3.5], [3.5, 6.0]]
    >>> Spectrum(2).explicit_features(["abab", "ba"]).columns
    {'ab': 0, 'ba': 1}
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"weights": Hyperparameter(NonNegative())}

    def __init__(self, length: int | tuple[int, int] = 3, weights: Any = 1.0):
        self.length = length
        self.weights = weights

    def _ends(self) -> Sequence[int]:
        return self.length if isinstance(self.length, tuple | list) else (self.length, self.length)

    @property
    def _lengths(self) -> range:
        shortest, longest = map(int, self._ends())
        return range(shortest, longest + 1)

    def _own_specification(self, name: str) -> Hyperparameter:
        """``"auto"`` stands for one weight a length."""
        ones = Word(lambda X: torch.ones(len(self._lengths), dtype=torch.float64), learned=True)
        return replace(super()._own_specification(name), words={"auto": ones})

    def check_hyperparameters(self) -> None:
        """Also the lengths, and that there is a weight for each."""
        ends = self._ends()
        if len(ends) != 2 or not all(map(is_count, ends)) or ends[0] > ends[1]:
            raise ValueError(
                "length of Spectrum must be a positive integer, or a pair of them, the shortest and the longest; got "
                f"{self.length!r}."
            )
        super().check_hyperparameters()
        if not isinstance(self.weights, str):
            self._weights()

    def _weights(self) -> tuple[Tensor, ...]:
        """One weight a length, each of shape () or, of a batch, (..., 1)."""
        weights, n = number(self, "weights", torch.zeros((), dtype=torch.float64)), len(self._lengths)
        if weights.shape[-1:] not in ((), (1,), (n,)) or weights.shape[-2:-1] not in ((), (1,)):
            raise ValueError(
                f"Spectrum({self.length!r}) counts substrings of {n} length(s), but weights has shape "
                f"{tuple(weights.shape)}: give one number, or one a length."
            )
        return weights.expand(*weights.shape[:-1], n).unbind(-1)

    def _counts(self, X: Sequence[Any]) -> Iterator[Mapping[Hashable, float]]:
        roots = [weight.sqrt().item() for weight in self._weights()]
        for string in X:
            counts: dict[Hashable, float] = {}
            for length, root in zip(self._lengths, roots, strict=True):
                counts |= {feature: root * n for feature, n in Counter(substrings(string, length)).items()}
            yield counts

    def _matrices(self, strings: Coded) -> Iterator[sparse.csr_array]:
        """The counts of substrings, one matrix a length."""
        rows = strings.rows()
        for length, (starts, codes, bound) in enumerate(windows(strings, self._lengths[-1]), start=1):
            if length in self._lengths:
                yield _count_matrix(rows[starts], codes, bound, len(strings.lengths))

    def _gram(self, X: Sequence[Any], Y: Sequence[Any] | None) -> Tensor:
        parts = (_products(matrix, len(X), Y is None) for matrix in self._matrices(coded(X, Y)))
        return _weighted_sum(parts, [weight[..., None] for weight in self._weights()])

    def _diag(self, X: Sequence[Any]) -> Tensor:
        return _weighted_sum(map(squared_norms, self._matrices(coded(X))), self._weights())


def _weighted_sum(parts: Iterable[Tensor], weights: Iterable[Tensor]) -> Tensor:
    terms = (combine("mul", part, weight) for part, weight in zip(parts, weights, strict=True))
    return reduce(partial(combine, "add"), terms)


def substrings(string: Any, length: int) -> Iterator[Hashable]:
    """All substrings of a length, as hashable objects."""
    if not isinstance(string, str | bytes):
        string = tuple(string)
    return (string[i : i + length] for i in range(len(string) - length + 1))


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


class Mismatch(StringKernel, CountingKernel):
    """k(x, y) = Σ_s #_s(x) #_s(y) over all s in Aᵏ; #_s counts the substrings that differ from s in at most m places.

    The mismatch kernel of Leslie et al. (2004), A the alphabet, k the length. The sum is never written out: two
    substrings that differ in d places have f(d) strings within reach of both, f(d) = Σ_j α_j C(k − d, j), and
    C(k − d, j) counts the sets of j places in which they agree. So k(x, y) is a sum over j of α_j times the spectrum
    kernels of all choices of j places, where only j ≥ k − 2m occur, whatever the size of the alphabet.

    Strings shorter than ``length`` have the feature vector 0. Substrings with a symbol that is not in the alphabet are
    left out.

    Parameters
    ----------
    length : int
        k, the length of the substrings.
    mismatches : int
        m, less than the length; 0 is the spectrum kernel.
    alphabet : sequence of symbols, optional
        A, such as ``"ACGT"``: its size enters the kernel. None: the symbols of the data it is resolved on (those a
        learner is fitted to).

    Examples
    --------
    >>> from representer.kernels import Mismatch
    >>> Mismatch(2, 1, alphabet="ab")(["aa", "bb", "ab"]).tolist()
    [[3.0, 2.0, 2.0], [2.0, 3.0, 2.0], [2.0, 2.0, 3.0]]
    >>> Mismatch(3).resolve(["GATTACA"])
    Mismatch(alphabet='ACGT')
    """

    def __init__(self, length: int = 3, mismatches: int = 1, alphabet: Sequence[Hashable] | None = None):
        self.length = length
        self.mismatches = mismatches
        self.alphabet = alphabet

    def check_hyperparameters(self) -> None:
        """The length, the mismatches, and an alphabet of distinct symbols."""
        if not is_count(self.length):
            raise ValueError(f"length of Mismatch must be a positive integer; got {self.length!r}.")
        m = self.mismatches
        if not (is_real(m) and is_count(m + 1) and m < self.length):
            raise ValueError(
                f"mismatches of Mismatch must be an integer from 0 to length − 1 = {self.length - 1}; got "
                f"{self.mismatches!r}."
            )
        try:
            distinct = self.alphabet is None or 0 < len(set(self.alphabet)) == len(self.alphabet)
        except TypeError:  # not a sequence, or not hashable
            distinct = False
        if not distinct:
            raise ValueError(
                f"alphabet of Mismatch must be a sequence of distinct hashable symbols or None; got {self.alphabet!r}."
            )
        super().check_hyperparameters()

    def prepare(self, X: Any) -> list[Any]:
        """The strings as a list, checked, of the same kind as the alphabet."""
        strings = super().prepare(X)
        kinds = {type(self.alphabet), one_kind(strings)}
        if kinds == {str, bytes}:
            raise ValueError(
                f"The alphabet of Mismatch and the strings are of different kinds, {type(self.alphabet).__name__} and "
                f"{one_kind(strings).__name__}: their symbols would never be equal. Convert one of them."
            )
        return strings

    def _resolve(self, X: Sequence[Any]) -> Self:
        resolved = super()._resolve(X)
        if self.alphabet is None:
            found: list[Any] = coded(X).alphabet
            kind = one_kind(X)
            text = (
                "".join(found) if kind is str else bytes(found) if kind is bytes else sorted(found, key=repr)
            )
            resolved.alphabet = text or ("a",)  # only empty strings: there is nothing to count
        return resolved

    def _alphabet(self) -> Sequence[Hashable]:
        if self.alphabet is None:
            raise ValueError(
                "This Mismatch kernel has no alphabet yet: the data decide it. Call kernel.resolve(X) with the "
                'training data first, or give alphabet= (for example "ACGT").'
            )
        return self.alphabet

    def _counts(self, X: Sequence[Any]) -> Iterator[Mapping[Hashable, float]]:
        alphabet = tuple(self._alphabet())
        known = set(alphabet)

        @lru_cache(maxsize=2**16)
        def neighbours(substring: Hashable) -> list[Hashable]:
            return list(_neighbourhood(substring, self.mismatches, alphabet))

        for string in X:
            counts: Counter[Hashable] = Counter()
            for substring, n in Counter(substrings(string, self.length)).items():
                if known.issuperset(substring):  # type: ignore[arg-type]
                    for neighbour in neighbours(substring):
                        counts[neighbour] += n
            yield counts

    def _coefficients(self) -> list[int]:
        """α_0, …, α_k, by inverting f(d) = Σ_j α_j C(k − d, j) from d = k down to 0."""
        k, m, size = int(self.length), int(self.mismatches), len(self._alphabet())
        alphas: list[int] = []
        for agreeing in range(k + 1):
            rest = sum(alpha * math.comb(agreeing, j) for j, alpha in enumerate(alphas))
            alphas.append(_common_neighbours(k, m, k - agreeing, size) - rest)
        return alphas

    def _matrices(self, strings: Coded) -> Iterator[tuple[sparse.csr_array, np.ndarray]]:
        """The counts of what stands in j chosen places of all substrings, for each choice, and α_j for each column.

        Several choices at a time share one matrix, as many as fit in a block of memory.
        """
        k, alphabet = int(self.length), set(self._alphabet())
        rows, symbols, size = strings.rows(), strings.symbols, max(1, len(strings.alphabet))
        *_, (starts, _, _) = windows(strings, k)
        known = np.array([symbol in alphabet for symbol in strings.alphabet], dtype=bool)
        columns = [symbols[starts + place] for place in range(k)]
        kept = np.logical_and.reduce([known[column] for column in columns])
        columns, rows = [column[kept] for column in columns], rows[starts[kept]]
        alphas = self._coefficients()
        choices = [places for j in range(k + 1) if alphas[j] for places in combinations(range(k), j)]
        for group in row_blocks(len(choices), 16 * len(rows)):
            matrices = []
            for places in choices[group]:
                codes, bound = np.zeros(len(rows), dtype=np.int64), 1
                for place in places:
                    codes, bound = _renumbered(codes, bound, MAX_CODE // size)
                    codes, bound = codes * size + columns[place], bound * size
                matrices.append(_count_matrix(rows, codes, bound, len(strings.lengths)))
            weights = [float(alphas[len(places)]) for places in choices[group]]
            yield sparse.hstack(matrices, format="csr"), np.repeat(weights, [m.shape[1] for m in matrices])

    def _gram(self, X: Sequence[Any], Y: Sequence[Any] | None) -> Tensor:
        parts = (
            _products(matrix, len(X), Y is None, alphas) for matrix, alphas in self._matrices(coded(X, Y))
        )
        return reduce(torch.Tensor.add_, parts)

    def _diag(self, X: Sequence[Any]) -> Tensor:
        squares = (
            torch.from_numpy((matrix * matrix) @ alphas) for matrix, alphas in self._matrices(coded(X))
        )
        return reduce(torch.Tensor.add_, squares)


def _common_neighbours(k: int, m: int, d: int, size: int) -> int:
    """How many strings of length k over ``size`` symbols differ in at most m places from both of two at distance d.

    Of the d places where the two differ, i are as in the first, j as in the second and the others as in neither; of the
    k − d places where they agree, s are changed.
    """
    total = 0
    for i, j, s in product(range(d + 1), range(d + 1), range(k - d + 1)):
        neither = d - i - j
        if neither >= 0 and max(i, j) + neither + s <= m:
            ways = math.comb(d, i) * math.comb(d - i, j) * math.comb(k - d, s)
            total += ways * (size - 2) ** neither * (size - 1) ** s
    return total


def _neighbourhood(substring: Any, mismatches: int, alphabet: Sequence[Any]) -> Iterator[Hashable]:
    """All strings over the alphabet that differ from a substring in at most ``mismatches`` places."""
    kind = type(substring)
    for n in range(mismatches + 1):
        for places in combinations(range(len(substring)), n):
            others = ([symbol for symbol in alphabet if symbol != substring[place]] for place in places)
            for symbols in product(*others):
                changed = list(substring)
                for place, symbol in zip(places, symbols, strict=True):
                    changed[place] = symbol
                yield "".join(changed) if kind is str else kind(changed)
