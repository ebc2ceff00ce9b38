"""Kernels on strings by dynamic programming over pairs: subsequences with gaps, and the edit distance."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Kernel, with_derivative
from representer.kernels.strings import Coded, String, StringKernel, coded
from representer.kernels.vectors import median_of
from representer.linalg import combine
from representer.samples import evenly_spaced
from representer.values import COUNT, Below, Hyperparameter, Positive, Setting, Word, number, per_row

# Pairs of strings are handled in blocks of about BLOCK_NUMBERS numbers, which stay in the cache. Up to FEW_STRINGS
# strings, a call costs more than its arithmetic, and a block may be as large as LARGE_BLOCK_NUMBERS.
BLOCK_NUMBERS, LARGE_BLOCK_NUMBERS, FEW_STRINGS = 2**20, 2**23, 32
# Vectors shorter than this are not worth a call each.
SHORT_VECTOR = 200
# Enough strings for a stable median distance.
MEDIAN_STRINGS = 200
WORD_BITS = 64
COMPLEX_STEP = 1e-100


# -- pairs of strings, block by block ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Padded:
    """Strings by increasing length, side by side: codes (longest, n), −1 after the end of a string."""

    samples: np.ndarray
    lengths: np.ndarray
    codes: np.ndarray


def _blocks(strings: Coded, samples: np.ndarray, numbers: Callable[[int, int], int]) -> Iterator[Padded]:
    """Blocks of strings of similar length; n strings of length at most l take numbers(n, l) numbers."""
    ends = np.cumsum(strings.lengths)
    order = samples[np.argsort(strings.lengths[samples], kind="stable")]
    while len(order):
        n = 1
        while n < len(order) and numbers(n + 1, int(strings.lengths[order[n]])) <= (
            LARGE_BLOCK_NUMBERS if n < FEW_STRINGS else BLOCK_NUMBERS
        ):
            n += 1
        block, order = order[:n], order[n:]
        lengths = strings.lengths[block]
        codes = np.full((int(lengths[-1]), n), -1, dtype=np.int64)
        for column, (end, length) in enumerate(zip(ends[block], lengths, strict=True)):
            codes[:length, column] = strings.symbols[end - length : end]
        yield Padded(block, lengths, codes)


def _of_pairs(
    function: Callable[[Padded, Padded], np.ndarray],
    X: Sequence[String],
    Y: Sequence[String] | None,
    numbers: Callable[[int, int], int],
) -> np.ndarray:
    """A symmetric function of all pairs of strings; without Y, half of the pairs of X are computed.

    The function gets the block of shorter strings first.
    """
    strings = coded(X, Y)
    left = list(_blocks(strings, np.arange(len(X)), numbers))
    right = left if Y is None else list(_blocks(strings, np.arange(len(X), len(strings.lengths)), numbers))
    shift = 0 if Y is None else len(X)
    result: np.ndarray | None = None
    for i, rows in enumerate(left):
        for columns in right[i:] if Y is None else right:
            swap = len(rows.codes) > len(columns.codes)
            values = function(columns, rows).T if swap else function(rows, columns)
            if result is None:
                result = np.empty((len(X), len(strings.lengths) - shift), dtype=values.dtype)
            result[np.ix_(rows.samples, columns.samples - shift)] = values
            if Y is None:
                result[np.ix_(columns.samples, rows.samples)] = values.T
    assert result is not None  # prepared data are not empty
    return result


# -- subsequences -----------------------------------------------------------------------------------------------------
# The weight of a position within a subsequence.
DECAY = Hyperparameter(
    Below(), {"auto": Word(lambda X: torch.tensor(0.5, dtype=torch.float64), learned=True)}, scalar=True
)


class Subsequence(StringKernel):
    """k(x, y) = Σ_{|s|=n} Σ_{i: x[i]=s} Σ_{j: y[j]=s} λ^(span(i) + span(j)), over subsequences with gaps.

    The gap-weighted kernel of Lodhi et al. (2002): i runs over all increasing positions i₁ < … < i_n at which s is a
    subsequence of x, with span i_n − i₁ + 1, so that gaps cost. Strings shorter than ``length`` have the feature
    vector 0. Its values vary over orders of magnitude with the lengths of the strings: consider ``.normalized()``.

    A pair costs O(n |x| |y|), by dynamic programming over many pairs at a time.

    Parameters
    ----------
    length : int
        n, the length of the subsequences.
    decay : float or "auto"
        λ, above 0 and at most 1: small, only subsequences without gaps count; 1, gaps are free. ``"auto"``: learned,
        starting from 1/2.

    Examples
    --------
    >>> from representer.kernels import Subsequence
    >>> Subsequence(length=2, decay=0.5)(["cat", "car"]).tolist()  # λ⁴(2 + λ²), and λ⁴ for the common "ca"
    [[0.140625, 0.0625], [0.0625, 0.140625]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"decay": DECAY}
    rules = {"length": COUNT}

    def __init__(self, length: int = 3, decay: Setting = 0.5):
        self.length = length
        self.decay = decay

    _has_factor = True  # is λ^(2n), which may underflow, a factor of the kernel?

    def _up_to_scale(self) -> Kernel:
        new = copy.copy(self)
        new._has_factor = False
        return new

    def _in_range(self, values: np.ndarray, decay: complex) -> np.ndarray:
        """The values with the factor λ^(2n), or an error where they leave the range of numbers."""
        power = 2 * int(self.length) if self._has_factor else 0
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = values * (decay if decay.imag else decay.real) ** power if power else values
        if not np.isfinite(scaled).all() or ((scaled.real == 0) & (values.real > 0)).any():
            small = power and np.isfinite(values).all()
            advice = "Use .normalized(), where decay^(2·length) cancels" if small else "Use a smaller decay"
            raise ValueError(
                f"Subsequence({self.length}, decay={decay.real:g}) leaves the floating-point range on these strings. "
                f"{advice}, or a smaller length."
            )
        return scaled

    def _gram(self, X: Sequence[String], Y: Sequence[String] | None) -> Tensor:
        n = int(self.length)

        def values(decay: complex) -> np.ndarray:
            def block(x: Padded, y: Padded) -> np.ndarray:
                return _gap_weighted(y.codes[:, None, :], x.codes[:, :, None], n, decay)

            return _of_pairs(block, X, Y, lambda strings, longest: 2 * n * longest * strings**2)

        return self._differentiable(values, number(self, "decay"))

    def _diag(self, X: Sequence[String]) -> Tensor:
        n = int(self.length)
        blocks = list(_blocks(coded(X), np.arange(len(X)), lambda m, longest: 2 * n * longest * m))
        order = np.argsort(np.concatenate([block.samples for block in blocks]))

        def values(decay: complex) -> np.ndarray:
            diagonals = [_gap_weighted(block.codes, block.codes, n, decay) for block in blocks]
            return np.concatenate(diagonals)[order]

        return self._differentiable(values, per_row(number(self, "decay")))

    def _differentiable(self, values: Callable[[complex], np.ndarray], decay: Tensor) -> Tensor:
        """The kernel as a differentiable function of λ.

        The derivative is the imaginary part at λ + i·step over the step. It is exact up to rounding, because the square
        of so small a step vanishes.
        """

        def function(real: float, slope: bool) -> list[Tensor]:
            point = complex(real, COMPLEX_STEP if slope else 0.0)
            kernel = torch.from_numpy(self._in_range(values(point), point))
            return [kernel.real, kernel.imag / COMPLEX_STEP] if slope else [kernel]

        return with_derivative(function, decay)


def _gap_weighted(x: np.ndarray, y: np.ndarray, n: int, decay: complex) -> np.ndarray:
    """The kernel of pairs of strings over λ^(2n), positions first and then pairs, which broadcast against each other.

    Lodhi et al.'s recursion without that factor: ``ending[l]`` counts, for the position of x in the loop and each
    position of y, the common subsequences of length l + 1 that end there; ``earlier[l]`` is their decayed sum over all
    positions up to there.
    """
    symbols, others = torch.from_numpy(x), torch.from_numpy(np.where(y < 0, -2, y))  # padding equals nothing
    shape = np.broadcast_shapes(x.shape[1:], y.shape[1:])
    rate = decay if decay.imag else decay.real
    dtype = torch.complex128 if decay.imag else torch.float64
    total = torch.zeros(shape, dtype=dtype)
    ending = torch.zeros(n, len(y), *shape, dtype=dtype)
    earlier = torch.zeros(n - 1, len(y), *shape, dtype=dtype)
    at = ending[:-1].unbind(1)
    is_short = ending[:-1, :1].numel() < SHORT_VECTOR
    for symbol in symbols:
        ending[0] = others == symbol
        torch.mul(earlier[:, :-1], ending[0, 1:], out=ending[1:, 1:])
        total += ending[-1].sum(0)
        if is_short:
            _decay(ending[:-1], rate)
        else:
            for before, here in pairwise(at):
                here.add_(before, alpha=rate)
        torch.add(ending[:-1], earlier, alpha=rate, out=earlier)
    return total.numpy()


def _decay(values: Tensor, rate: complex) -> None:
    """Replace v_j by Σ_{i≤j} rate^(j−i) v_i along dimension 1, with few calls: sums of 2, 4, 8, … neighbours."""
    step = 1
    while step < values.shape[1]:
        values[:, step:] += rate**step * values[:, :-step]
        step *= 2


# -- edit distance ----------------------------------------------------------------------------------------------------
def edit_distances(X: Sequence[String], Y: Sequence[String] | None = None) -> Tensor:
    """Levenshtein distances: the least number of insertions, deletions and replacements of single symbols.

    Examples
    --------
    >>> from representer.kernels.alignments import edit_distances
    >>> edit_distances(["kitten", ""], ["sitting", "mitten"]).tolist()
    [[3.0, 1.0], [7.0, 6.0]]
    """

    def numbers(strings: int, longest: int) -> int:
        return strings**2 * 10 * math.ceil(longest / WORD_BITS)

    return torch.from_numpy(_of_pairs(_levenshtein, X, Y, numbers).astype(np.float64))


def _levenshtein(x: Padded, y: Padded) -> np.ndarray:
    """The distances of all pairs of two blocks, by the bit-parallel algorithm of Myers (1999) in Hyyrö's form (2003).

    A column of the table of distances is kept as its differences from row to row, one bit each for +1 and −1, and 64
    rows are updated at once.
    """
    n_words, shape = math.ceil(len(x.codes) / WORD_BITS), (len(x.lengths), len(y.lengths))
    matches, symbols = _match_words(x.codes, y.codes, n_words)
    ups = np.full((n_words, *shape), ~np.uint64(0))
    downs = np.zeros((n_words, *shape), dtype=np.uint64)
    one, last = np.uint64(1), np.uint64(WORD_BITS - 1)
    for position, first in enumerate(np.searchsorted(y.lengths, np.arange(len(y.codes)), side="right")):
        carry_up, carry_down = one, np.uint64(0)  # the first row of the table grows by one a column
        for word in range(n_words):
            up, down = ups[word, :, first:], downs[word, :, first:]  # the shorter strings have ended
            equal = matches[word][:, symbols[position, first:]]
            vertical = equal | down
            equal |= carry_down
            horizontal = (((equal & up) + up) ^ up) | equal
            plus = down | ~(horizontal | up)
            minus = up & horizontal
            next_up, next_down = plus >> last, minus >> last
            plus = (plus << one) | carry_up
            minus = (minus << one) | carry_down
            carry_up, carry_down = next_up, next_down
            up[...] = minus | ~(vertical | plus)
            down[...] = plus & vertical
    # The last row is the first one, |y|, plus all differences down to it.
    bits = np.clip(x.lengths - WORD_BITS * np.arange(n_words)[:, None], 0, WORD_BITS).astype(np.uint64)
    inside = np.where(bits < WORD_BITS, (one << (bits % WORD_BITS)) - one, ~np.uint64(0))[:, :, None]
    return y.lengths + (_count_bits(ups & inside) - _count_bits(downs & inside)).sum(0)


def _match_words(x: np.ndarray, y: np.ndarray, n_words: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The positions of each symbol in the strings of x, a bit each in words of 64, and y in those symbols."""
    distinct, inverse = np.unique(x, return_inverse=True)
    inverse = inverse.reshape(x.shape)
    tables = np.zeros((n_words, x.shape[1], len(distinct) + 1), dtype=np.uint64)  # the last symbol is nowhere
    for position, codes in enumerate(inverse):
        word, bit = divmod(position, WORD_BITS)
        tables[word, np.arange(x.shape[1]), codes] |= np.uint64(1) << np.uint64(bit)
    places = np.minimum(np.searchsorted(distinct, y), max(len(distinct) - 1, 0))
    present = distinct[places] == y if len(distinct) else np.zeros(y.shape, dtype=bool)
    return list(tables), np.where(present, places, len(distinct))


def _count_bits(words: np.ndarray) -> np.ndarray:
    """The number of bits that are 1 in each 64-bit number (``numpy.bitwise_count`` is newer than NumPy 1.26)."""
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
    return np.unpackbits(octets, axis=-1).sum(-1, dtype=np.int64)


def _median_edit_distance(X: Sequence[String]) -> Tensor:
    """The median distance between evenly spaced samples."""
    table = edit_distances([X[i] for i in evenly_spaced(len(X), MEDIAN_STRINGS)])
    return median_of(table[table.new_ones(table.shape).triu(1) > 0])


def _definite_lengthscale(X: Sequence[String]) -> Tensor:
    """The median distance, halved until the Gram matrix is positive semi-definite, as a nearly diagonal one is."""
    lengthscale, distances = _median_edit_distance(X), edit_distances(X)
    while True:
        values = torch.linalg.eigvalsh(torch.exp(-distances / lengthscale))
        if values[0] >= -len(X) * torch.finfo(values.dtype).eps * values[-1]:
            return lengthscale
        lengthscale = lengthscale / 2.0


class Edit(StringKernel):
    """k(x, y) = exp(−d(x, y) / ℓ), d the edit distance: how many insertions, deletions and replacements lead to y.

    Unlike the kernels that count substrings, it is not positive semi-definite on every sample. Learners check the Gram
    matrix, set small negative eigenvalues to zero with an ``IndefiniteGramWarning`` and refuse a matrix with large ones
    (``representer.linalg.repair_gram``); a smaller lengthscale makes them smaller. The empty string is as far from
    another one as that is long, and symbols that the training strings do not have equal none of theirs.

    A pair costs O(|x| |y| / 64), by an algorithm that compares 64 symbols at once.

    Parameters
    ----------
    lengthscale : float, "median" or "auto"
        ℓ. ``"median"``: the median distance between samples (200 of them, evenly spaced). ``"auto"``: learned, starting
        from there or, if the Gram matrix is indefinite, from the first half, quarter … with a positive semi-definite
        one; the search keeps it so.

    Examples
    --------
    >>> from representer.kernels import Edit
    >>> Edit(lengthscale=2.0)(["kitten", "mitten", "sitting"]).round(decimals=4).tolist()
    [[1.0, 0.6065, 0.2231], [0.6065, 1.0, 0.2231], [0.2231, 0.2231, 1.0]]
    >>> Edit().resolve(["kitten", "mitten", "sitting"])
    Edit(lengthscale=3.0)
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "lengthscale": Hyperparameter(
            Positive(),
            {"median": Word(_median_edit_distance), "auto": Word(_definite_lengthscale, learned=True)},
            scalar=True,
        )
    }

    def __init__(self, lengthscale: Setting = "median"):
        self.lengthscale = lengthscale

    def _gram(self, X: Sequence[String], Y: Sequence[String] | None) -> Tensor:
        distances = edit_distances(X, Y)
        exponents = combine("mul", distances, -1.0 / number(self, "lengthscale", distances))
        return exponents.exp() if exponents.requires_grad else exponents.exp_()

    def _diag(self, X: Sequence[String]) -> Tensor:
        batch = per_row(number(self, "lengthscale")).shape[:-1]
        return torch.ones(*batch, len(X), dtype=torch.float64)
