"""Strings, sequences of hashable symbols, and the kernels of the substrings that they have in common."""

from __future__ import annotations

import math
from abc import ABC
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from itertools import chain, combinations, product
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.kernels.base import (
    Columns,
    CountingKernel,
    Domain,
    ExplicitFeatures,
    Kernel,
    Wrapped,
    inner_products,
    squared_norms,
)
from representer.linalg import combine, row_blocks
from representer.samples import Data, as_items, first_positions, is_single
from representer.values import (
    COUNT,
    Hyperparameter,
    NonNegative,
    Setting,
    Word,
    instance_of,
    is_count,
    is_whole,
    number,
)

# Codes of substrings are integers below this; longer substrings are renumbered on the way.
MAX_CODE = 2**62


# -- what is a string --------------------------------------------------------------------------------------------------
String = Sequence[Hashable]


class StringKernel(Kernel, ABC):
    """A kernel on strings: ``str``, ``bytes``, or tuples and lists (or one-dimensional arrays) of hashable symbols."""

    domain: Domain = "objects"

    def prepare(self, X: Data) -> list[String]:
        """The strings as a list, checked: all of one kind, with symbols that can be compared."""
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        if is_single(X) or isinstance(X, Set):
            text = isinstance(X, str | bytes)
            got = f"one {type(X).__name__}. Pass [{X[:20]!r}]" if text else type(X).__name__
            raise ValueError(f"{type(self).__name__} takes a list of strings; got {got}.")
        X = as_items(X)
        if isinstance(X, np.ndarray):
            X = self._rows(X)
        strings = X if isinstance(X, list) else list(X)
        if not strings:
            raise ValueError("Found 0 strings: a kernel needs at least one (which may be empty).")
        if one_kind(strings) not in (str, bytes):
            _check_symbols(strings)
        return strings

    def _rows(self, X: np.ndarray) -> list[String]:
        """The strings in an array: its entries or its rows."""
        if X.dtype.kind in "fc":
            raise ValueError(
                f"{type(self).__name__} takes strings, but X is an array of real numbers. Choose a kernel on "
                "vectors, or pass integer symbols."
            )
        rows: list[String] = X.tolist()
        cells = chain.from_iterable(rows) if X.ndim == 2 else ()
        if any(isinstance(cell, str | bytes) and len(cell) > 1 for cell in cells):
            raise ValueError(
                f"{type(self).__name__} takes one string a sample, but X has {X.shape[1]} columns of them. Choose one, "
                "or give each column a kernel: Columns({'name': Spectrum(3), …}). If each is one symbol of a longer "
                "string, pass [tuple(row) for row in X]."
            )
        return rows


def _kind(item: object) -> type | None:
    """The kind of a string: str, bytes, or tuple for every other sequence; None for what is no string."""
    if isinstance(item, str | bytes):
        return str if isinstance(item, str) else bytes
    is_sequence = isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim == 1)
    return tuple if is_sequence else None


def one_kind(strings: Sequence[String]) -> type:
    """The kind of all strings: str, bytes, or tuple for every other sequence.

    Examples
    --------
    >>> from representer.kernels import one_kind
    >>> one_kind(["ab", "c"]), one_kind([["a", 1], ("b",)])
    (<class 'str'>, <class 'tuple'>)
    """
    kinds: dict[type | None, int] = {}  # with the first position of each
    for i, item in enumerate(strings):
        kinds.setdefault(_kind(item), i)
    if None in kinds:
        wrong = [i for i, item in enumerate(strings) if _kind(item) is None]
        raise ValueError(
            f"A string is a str, bytes, or a tuple or list of hashable symbols; {len(wrong)} of {len(strings)} objects "
            f"are not, at positions {first_positions(wrong)} (the first is "
            f"{strings[wrong[0]]!r:.60}). Convert or remove these samples."
        )
    if len(kinds) > 1:
        names = " and ".join(f"{kind.__name__} (position {i})" for kind, i in kinds.items() if kind)
        raise ValueError(
            f"The strings are of different kinds: {names}; their symbols would never be equal. Convert all to one kind."
        )
    return next(kind for kind in kinds if kind is not None)


def _check_symbols(strings: Sequence[String]) -> None:
    """Refuse symbols that are not hashable, or not equal to themselves."""
    try:
        if not any(map(_problem, set(chain.from_iterable(strings)))):
            return
    except TypeError:  # not hashable
        pass
    for i, string in enumerate(strings):
        for j, symbol in enumerate(string):
            if problem := _problem(symbol):
                raise ValueError(
                    f"Symbol {j} of string {i}, {symbol!r:.60}, {problem}. Symbols are numbers, str, tuples of them "
                    "…; give a gap a symbol of its own."
                )


def _problem(symbol: object) -> str | None:
    """The reason why a symbol is refused, or None."""
    try:
        hash(symbol)
    except TypeError:
        return "is not hashable"
    try:
        return None if symbol == symbol else "is not equal to itself"
    except (TypeError, ValueError):
        return "cannot be compared"


@dataclass(frozen=True)
class Coded:
    """Many strings one after another, their symbols numbered from 0 on."""

    symbols: np.ndarray
    lengths: np.ndarray
    alphabet: list[Hashable]  # the symbol of each number

    def rows(self) -> np.ndarray:
        """The number of the string that each position belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


def coded(strings: Sequence[String], others: Sequence[String] | None = None) -> Coded:
    """The strings, and others of the same kind after them, with numbers for symbols.

    Examples
    --------
    >>> from representer.kernels import coded
    >>> strings = coded(["ab", "b"])
    >>> strings.symbols.tolist(), strings.lengths.tolist(), strings.alphabet
    ([0, 1, 1], [2, 1], ['a', 'b'])
    """
    if others is not None:
        kinds = one_kind(strings).__name__, one_kind(others).__name__
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"X and Y (in learners, the training data) hold strings of different kinds, {kinds[0]} and {kinds[1]}: "
                "their symbols would never be equal. Convert all to one kind."
            )
        strings = [*strings, *others]
    kind = one_kind(strings)
    lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
    if kind is tuple:
        flat = list(chain.from_iterable(strings))
        numbers = {symbol: i for i, symbol in enumerate(dict.fromkeys(flat))}
        symbols = np.fromiter(map(numbers.__getitem__, flat), dtype=np.int64, count=len(flat))
        return Coded(symbols, lengths, list(numbers))
    if kind is str:
        points = np.frombuffer("".join(cast(Sequence[str], strings)).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    else:
        points = np.frombuffer(b"".join(cast(Sequence[bytes], strings)), dtype=np.uint8)
    present = np.bincount(points) > 0  # there are little more than a million code points
    alphabet: Iterable[int] = np.flatnonzero(present).tolist()
    symbols = (np.cumsum(present) - 1)[points]
    return Coded(symbols, lengths, list(map(chr, alphabet)) if kind is str else list(alphabet))


# -- substrings --------------------------------------------------------------------------------------------------------
def _renumbered(codes: np.ndarray, bound: int, limit: int) -> tuple[np.ndarray, int]:
    """The codes, renumbered if their bound is above ``limit``, and their bound; equal codes stay equal."""
    if bound <= limit:
        return codes, bound
    distinct, codes = np.unique(codes, return_inverse=True)
    return codes, len(distinct)


def windows(strings: Coded, longest: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """The starts of the substrings of each length 1, …, longest, a code for each, and the bound of the codes."""
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
    """The number of times that each code is in each row; the rows ascend."""
    codes, bound = _renumbered(codes, bound, 4 * len(codes) + 1)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    matrix = sparse.csr_array((np.ones(len(codes)), codes, ends), shape=(n_rows, bound), copy=True)
    matrix.sum_duplicates()
    return matrix


def _products(matrix: sparse.csr_array, n: int, symmetric: bool, weights: np.ndarray | None = None) -> Tensor:
    """The inner products of the first n rows with the rest, or with themselves."""
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

    def __init__(self, length: int | tuple[int, int] = 3, weights: Setting = 1.0):
        self.length = length
        self.weights = weights

    def _ends(self) -> Sequence[int]:
        """The shortest and the longest length, unchecked."""
        return self.length if isinstance(self.length, tuple | list) else (self.length, self.length)

    @property
    def _lengths(self) -> range:
        shortest, longest = map(int, self._ends())
        return range(shortest, longest + 1)

    def _own_specification(self, name: str) -> Hyperparameter:
        """The specification of the weights, where ``"auto"`` stands for one a length."""
        ones = Word(lambda X: torch.ones(len(self._lengths), dtype=torch.float64), learned=True)
        return replace(super()._own_specification(name), words={"auto": ones})

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible; there must be a weight for each length."""
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
        """The weights of the lengths, each of shape () or, of a batch, (..., 1)."""
        weights, n = number(self, "weights"), len(self._lengths)
        if weights.shape[-1:] not in ((), (1,), (n,)) or weights.shape[-2:-1] not in ((), (1,)):
            raise ValueError(
                f"Spectrum({self.length!r}) counts substrings of {n} length(s), but weights has shape "
                f"{tuple(weights.shape)}: give one number, or one a length."
            )
        return weights.expand(*weights.shape[:-1], n).unbind(-1)

    def _counts(self, X: Sequence[String]) -> Iterator[Mapping[Hashable, float]]:
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

    def _gram(self, X: Sequence[String], Y: Sequence[String] | None) -> Tensor:
        grams = (_products(matrix, len(X), Y is None) for matrix in self._matrices(coded(X, Y)))
        return _weighted_sum(grams, [weight[..., None] for weight in self._weights()])

    def _diag(self, X: Sequence[String]) -> Tensor:
        return _weighted_sum(map(squared_norms, self._matrices(coded(X))), self._weights())


class AnyCase(Wrapped):
    """A kernel of strings that takes lower case for upper case, as is meant in DNA, RNA and proteins.

    Parameters
    ----------
    kernel : Kernel
        On strings.

    Examples
    --------
    >>> from representer.kernels import AnyCase, Spectrum
    >>> AnyCase(Spectrum(2))(["ACGT", "acg", "tt"]).tolist()
    [[3.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]]
    """

    rules = {"kernel": instance_of("a kernel object", Kernel)}

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def prepare(self, X: Data) -> list[String]:
        """The strings as the kernel takes them, in capital letters; tuples of symbols as they are."""
        return [string.upper() if isinstance(string, str | bytes) else string for string in self.kernel.prepare(X)]

    def _gram(self, X: Sequence[String], Y: Sequence[String] | None) -> Tensor:
        return self.kernel._gram(X, Y)

    def _diag(self, X: Sequence[String]) -> Tensor:
        return self.kernel._diag(X)

    def _explicit_features(self, X: Sequence[String], columns: Columns | None) -> ExplicitFeatures:
        return self.kernel._explicit_features(X, columns)


def _weighted_sum(grams: Iterable[Tensor], weights: Iterable[Tensor]) -> Tensor:
    """The sum of Gram matrices, or of their diagonals, each times its weight."""
    terms = (combine("mul", gram, weight) for gram, weight in zip(grams, weights, strict=True))
    return reduce(partial(combine, "add"), terms)


def substrings(string: String, length: int) -> Iterator[Hashable]:
    """All substrings of a length, as hashable objects."""
    text = string if isinstance(string, str | bytes) else tuple(string)
    return (text[i : i + length] for i in range(len(text) - length + 1))


class WeightedDegree(Spectrum):
    """k(x, y) = Σ_l w_l Σ_j [x and y have the same substring of length l at position j].

    Strings are compared place by place: the weighted degree kernel of Rätsch & Sonnenburg (2004). With ``length=1`` it
    counts the positions that hold the same symbol, so strings are rows of one-hot vectors, as Cortes, Mohri & Weston
    (2005) represent words. Longer substrings say which symbols follow each other. Positions are counted from the start;
    positions that only the longer of two strings has do not count.

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

    def __init__(self, length: int | tuple[int, int] = 1, weights: Setting = 1.0):
        super().__init__(length, weights)

    def _counts(self, X: Sequence[String]) -> Iterator[Mapping[Hashable, float]]:
        roots = [weight.sqrt().item() for weight in self._weights()]
        for string in X:
            yield {
                (place, substring): root
                for length, root in zip(self._lengths, roots, strict=True)
                for place, substring in enumerate(substrings(string, length))
            }

    def _matrices(self, strings: Coded) -> Iterator[sparse.csr_array]:
        """The substrings at each place, one matrix a length."""
        rows, most = strings.rows(), int(strings.lengths.max(initial=1))
        first = np.cumsum(strings.lengths) - strings.lengths
        for length, (starts, codes, bound) in enumerate(windows(strings, self._lengths[-1]), start=1):
            if length in self._lengths:
                numbers, codes = np.unique(codes, return_inverse=True)  # renumbered, to leave room for the places
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

    rules = {"length": COUNT}

    def __init__(self, length: int = 3, mismatches: int = 1, alphabet: Sequence[Hashable] | None = None):
        self.length = length
        self.mismatches = mismatches
        self.alphabet = alphabet

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible; the alphabet must have distinct symbols."""
        super().check_hyperparameters()
        if not (is_whole(self.mismatches) and self.mismatches < self.length):
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

    def prepare(self, X: Data) -> list[String]:
        """The strings as a list, checked, of the same kind as the alphabet."""
        strings = super().prepare(X)
        kinds = {type(self.alphabet), one_kind(strings)}
        if kinds == {str, bytes}:
            raise ValueError(
                f"The alphabet of Mismatch and the strings are of different kinds, {type(self.alphabet).__name__} and "
                f"{one_kind(strings).__name__}: their symbols would never be equal. Convert one of them."
            )
        return strings

    def _resolve(self, X: Sequence[String]) -> Self:
        resolved = super()._resolve(X)
        if self.alphabet is None:
            symbols: list[Any] = coded(X).alphabet
            kind = one_kind(X)
            text = "".join(symbols) if kind is str else bytes(symbols) if kind is bytes else None
            # Empty strings alone have no symbols; then any alphabet gives the same kernel.
            resolved.alphabet = (sorted(symbols, key=repr) if text is None else text) or ("a",)
        return resolved

    def _alphabet(self) -> Sequence[Hashable]:
        """The alphabet, or an error where the data have not decided it yet."""
        if self.alphabet is None:
            raise ValueError(
                "This Mismatch kernel has no alphabet yet: the data decide it. Call kernel.resolve(X) with the "
                'training data first, or give alphabet= (for example "ACGT").'
            )
        return self.alphabet

    def _counts(self, X: Sequence[String]) -> Iterator[Mapping[Hashable, float]]:
        alphabet = tuple(self._alphabet())
        symbols = set(alphabet)

        @lru_cache(maxsize=2**16)
        def neighbours(substring: Hashable) -> list[Hashable]:
            return list(_neighbourhood(substring, self.mismatches, alphabet))

        for string in X:
            counts: Counter[Hashable] = Counter()
            for substring, n in Counter(substrings(string, self.length)).items():
                if symbols.issuperset(substring):  # type: ignore[arg-type]
                    for neighbour in neighbours(substring):
                        counts[neighbour] += n
            yield counts

    def _coefficients(self) -> list[int]:
        """The coefficients α_0, …, α_k, by inverting f(d) = Σ_j α_j C(k − d, j) from d = k down to 0."""
        k, m, size = int(self.length), int(self.mismatches), len(self._alphabet())
        alphas: list[int] = []
        for agreeing in range(k + 1):
            rest = sum(alpha * math.comb(agreeing, j) for j, alpha in enumerate(alphas))
            alphas.append(_common_neighbours(k, m, k - agreeing, size) - rest)
        return alphas

    def _matrices(self, strings: Coded) -> Iterator[tuple[sparse.csr_array, np.ndarray]]:
        """The counts of the symbols in j places of all substrings, for each choice of places, and α_j for each column.

        Several choices at a time share one matrix, as many as fit in a block of memory.
        """
        k, alphabet = int(self.length), set(self._alphabet())
        rows, symbols, size = strings.rows(), strings.symbols, max(1, len(strings.alphabet))
        *_, (starts, _, _) = windows(strings, k)
        counted = np.array([symbol in alphabet for symbol in strings.alphabet], dtype=bool)
        columns = [symbols[starts + place] for place in range(k)]
        within = np.logical_and.reduce([counted[column] for column in columns])
        columns, rows = [column[within] for column in columns], rows[starts[within]]
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

    def _gram(self, X: Sequence[String], Y: Sequence[String] | None) -> Tensor:
        matrices = self._matrices(coded(X, Y))
        grams = (_products(matrix, len(X), Y is None, alphas) for matrix, alphas in matrices)
        return reduce(torch.Tensor.add_, grams)

    def _diag(self, X: Sequence[String]) -> Tensor:
        matrices = self._matrices(coded(X))
        return reduce(torch.Tensor.add_, (torch.from_numpy((m * m) @ alphas) for m, alphas in matrices))


def _common_neighbours(k: int, m: int, d: int, size: int) -> int:
    """The number of strings of length k over ``size`` symbols within m places of both of two at distance d.

    Such a string agrees with the first of the two in i of the d places where they differ, with the second in j, and
    with neither in the others; it changes s of the k − d places where they agree.
    """
    total = 0
    for i, j, s in product(range(d + 1), range(d + 1), range(k - d + 1)):
        neither = d - i - j
        if neither >= 0 and max(i, j) + neither + s <= m:
            ways = math.comb(d, i) * math.comb(d - i, j) * math.comb(k - d, s)
            total += ways * (size - 2) ** neither * (size - 1) ** s
    return total


def _neighbourhood(substring: Any, mismatches: int, alphabet: String) -> Iterator[Hashable]:
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
