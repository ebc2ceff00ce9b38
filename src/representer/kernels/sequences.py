"""Kernels of sequences whose symbols have a kernel of their own: words of pictures, sentences of word vectors."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from representer.kernels.alignments import DECAY
from representer.kernels.bags import Bags, OnBags
from representer.kernels.base import Kernel
from representer.samples import Data, take
from representer.values import COUNT, Hyperparameter, Rule, Setting, number

# The number of symbols in a block of sequences, which are compared at all pairs of positions.
BLOCK_SYMBOLS = 2**10
# The logarithm of a sum that no alignment reaches: negligible, and finite, as its derivative must be.
UNREACHED = -1e30


class OnSequences(OnBags, ABC):
    """A kernel of sequences from a kernel of their symbols.

    A sequence is an array (length, n_features), an array (length,) of numbers, a text, or a list or tuple of the
    objects that the inner kernel takes. No sequence is empty.
    """

    noun = "sequence"
    rules = {"kernel": Rule("a kernel of symbols", lambda k: isinstance(k, Kernel) and k.domain != "gram")}

    def _checked(self, i: int, bag: Data) -> tuple[Data, Tensor]:
        """The prepared symbols of a sequence; the weights of a bag mean nothing here."""
        symbols = list(bag) if isinstance(bag, str | tuple) else bag
        if self.kernel.domain == "vectors" and not isinstance(bag, str) and len(np.shape(symbols)) == 1:
            symbols = np.asarray(symbols)[:, None]
        return super()._checked(i, symbols)


def _tables(gram: Tensor, left: Bags, right: Bags) -> tuple[Tensor, Tensor, Tensor]:
    """k(x_s, y_t) at all positions of all pairs of sequences, (…, n, m, s, t) with zeros at the end, and their lengths.

    ``gram`` is the matrix of all symbols with all symbols.
    """
    lengths = [torch.tensor(side.sizes) for side in (left, right)]
    symbols = []
    for size in lengths:
        place = torch.arange(int(size.max()))
        # The row and the column after the last one are zero.
        symbols.append(torch.where(place < size[:, None], (size.cumsum(0) - size)[:, None] + place, int(size.sum())))
    rows, columns = symbols
    table = pad(gram, (0, 1, 0, 1))[..., rows[:, None, :, None], columns[None, :, None, :]]
    return table, lengths[0], lengths[1]


class Positionwise(OnSequences):
    """Σ_s k(x_s, y_s) over the positions s that two sequences share; with anchors, Σ_c k(x_v(c), c) k(y_v(c), c).

    The second form runs over all symbols c of the anchors, each at its position v(c): the inner product of the features
    [k(x_v(c), c)]_c, zero where the sequence is shorter, by which Cortes et al. (2005) and Kadri et al. (2013) describe
    handwritten words.

    Parameters
    ----------
    kernel : Kernel
        The kernel of symbols, vectors or other objects.
    anchors : None, "data" or sequences
        None: the sum of k itself. ``"data"``: the sequences that the kernel is resolved on, in a learner the training
        ones.

    Notes
    -----
    A sequence is an array (length, n_features), an array (length,) of numbers, a text, or a list or tuple of the
    objects that ``kernel`` takes.

    Examples
    --------
    >>> from representer.kernels import Delta, Linear, Positionwise
    >>> Positionwise(Delta())(["cat", "cart", "at"]).tolist()
    [[3.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 2.0]]
    >>> Positionwise(Linear(), anchors=[[1.0, 2.0], [3.0]])([[1.0], [2.0, 5.0]]).tolist()
    [[10.0, 20.0], [20.0, 140.0]]
    """

    rules = {
        **OnSequences.rules,
        "anchors": Rule("None, 'data' or sequences", lambda a: a is None or not isinstance(a, str) or a == "data"),
    }

    def __init__(self, kernel: Kernel, anchors: Data | None = None):
        self.kernel = kernel
        self.anchors = anchors

    def _resolve(self, X: Sequence[Data]) -> Self:
        new = super()._resolve(X)
        if isinstance(self.anchors, str):
            new.anchors = X
        return new

    def _block(self, left: Bags, right: Bags) -> Tensor:
        anchors = self._gathered_anchors()
        shape, total = (len(left.sizes), len(right.sizes)), None
        for position in range(min(max(left.sizes), max(right.sizes))):
            (rows, x), (columns, y) = _at(left, position), _at(right, position)
            if anchors is None:
                gram = self.kernel._gram(x, y)
            elif position < max(anchors.sizes):
                c = _at(anchors, position)[1]
                gram = self.kernel._gram(x, c) @ self.kernel._gram(y, c).mT
            else:
                break
            total = gram.new_zeros(*gram.shape[:-2], *shape) if total is None else total
            total[..., rows[:, None], columns] += gram
        assert total is not None  # sequences and anchors are not empty
        return total

    def _gathered_anchors(self) -> Bags | None:
        if isinstance(self.anchors, str):
            raise ValueError(
                "This kernel has no anchors yet: the data decide them. Call kernel.resolve(X) with the training data "
                f"first, or give anchors= (got {self.anchors!r})."
            )
        return None if self.anchors is None else self._gathered(self.prepare(self.anchors))


def _at(sequences: Bags, position: int) -> tuple[Tensor, Data]:
    """The numbers of the sequences that have a position, and their symbols there."""
    sizes = torch.tensor(sequences.sizes)
    rows = (sizes > position).nonzero()[:, 0]
    return rows, take(sequences.points, (sizes.cumsum(0) - sizes)[rows] + position)


class SoftAlignment(OnSequences):
    """Σ_π Π_i κ(x_π₁(i), y_π₂(i)) over all alignments π of two sequences, with κ = k/(2 − k) of a kernel k of symbols.

    ``GlobalAlignment`` is the same sum for series and a Gaussian k. As k/(2 − k) = Σ_i (k/2)^i, the sum is positive
    semi-definite for every positive semi-definite k with values between 0 and 1 (Cuturi et al., 2007). It is computed
    in logarithms and divided by √(k(x, x) k(y, y)).

    Parameters
    ----------
    kernel : Kernel
        k, of vectors or other objects, with values between 0 and 1: ``Gaussian``, ``Tanimoto``,
        ``Delta``. Its hyperparameters are learnable.

    Notes
    -----
    Sequences have the form that ``Positionwise`` takes.

    Examples
    --------
    >>> from representer.kernels import Gaussian, GlobalAlignment, SoftAlignment
    >>> series = [[0.0, 1.0, 2.0], [0.0, 2.0], [2.0, 1.0, 0.0, 0.0]]
    >>> SoftAlignment(Gaussian(1.0))(series).allclose(GlobalAlignment(1.0)(series))
    True
    """

    most_points = BLOCK_SYMBOLS

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def _block(self, left: Bags, right: Bags) -> Tensor:
        """The logarithm of the sum over alignments, for all pairs."""
        gram = self._point_gram(left, right)
        if bool((gram.detach() < 0).any() or (gram.detach() > 1 + 1e-9).any()):
            low, high = gram.detach().aminmax()
            raise ValueError(
                f"The kernel of symbols in SoftAlignment must have values between 0 and 1; {self.kernel!r} has some "
                f"from {float(low):.3g} to {float(high):.3g}. Use a Gaussian, or .normalized() of one that is not "
                "negative."
            )
        table, rows, columns = _tables(gram, left, right)
        table = table.clamp(min=torch.finfo(table.dtype).tiny)
        return _log_alignments(table.log() - torch.log(2.0 - table), rows[:, None], columns)

    def _gram(self, X: Sequence[Data], Y: Sequence[Data] | None) -> Tensor:
        left, right = self._gathered(X), None if Y is None else self._gathered(Y)
        logs = self._between(left, right)
        rows = logs.diagonal(dim1=-2, dim2=-1) if right is None else self._within(left)
        columns = rows if right is None else self._within(right)
        return torch.exp(logs - 0.5 * (rows[..., :, None] + columns[..., None, :]))

    def _diag(self, X: Sequence[Data]) -> Tensor:
        return torch.ones(len(X), dtype=torch.float64)


def _log_alignments(steps: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """log M at the ends of tables (…, s, t) with M[i, j] = κ_ij (M[i−1, j] + M[i, j−1] + M[i−1, j−1]), of log κ.

    ``rows`` and ``columns`` say where the tables end. An antidiagonal i + j = a is a vector over i.
    """
    s, t = steps.shape[-2:]
    ends = rows + columns - 2
    place = (rows - 1).expand(ends.shape)[..., None].expand(*steps.shape[:-2], 1)
    last = pad(steps[..., :1, 0], (0, s - 1), value=UNREACHED)
    before = torch.full_like(last, UNREACHED)  # there is nothing before M[0, 0]
    result = last.gather(-1, place)[..., 0]
    for a in range(1, int(ends.max()) + 1):
        low, high = max(0, a - t + 1), min(a, s - 1)
        i = torch.arange(low, high + 1)
        ways = torch.stack([last, pad(last, (1, -1), value=UNREACHED), pad(before, (1, -1), value=UNREACHED)])
        reached = torch.logsumexp(ways[..., low : high + 1], 0) + steps[..., i, a - i]
        before, last = last, pad(reached, (low, s - 1 - high), value=UNREACHED)
        result = torch.where(ends == a, last.gather(-1, place)[..., 0], result)
    return result


class SoftSubsequence(OnSequences):
    """Σ_{i, j} λ^(span(i) + span(j)) Π_t k(x_{i_t}, y_{j_t}) over positions i₁ < … < i_n of x and j₁ < … < j_n of y.

    The gap-weighted subsequences of ``Subsequence`` with soft matches: symbols count as far as they are alike. Its
    values vary over orders of magnitude with the lengths of the sequences: consider ``.normalized()``.

    Parameters
    ----------
    kernel : Kernel
        k, of symbols, vectors or other objects; ``Delta()`` gives ``Subsequence``. Its hyperparameters are learnable.
    length : int
        n, the length of the subsequences. Shorter sequences have the feature vector 0.
    decay : float or "auto"
        λ, above 0 and at most 1; ``"auto"``: learned, starting from 1/2.

    Notes
    -----
    Sequences have the form that ``Positionwise`` takes.

    Examples
    --------
    >>> from representer.kernels import Delta, SoftSubsequence
    >>> SoftSubsequence(Delta(), length=2)(["cat", "car"]).tolist()
    [[0.140625, 0.0625], [0.0625, 0.140625]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"decay": DECAY}
    rules = {**OnSequences.rules, "length": COUNT}
    most_points = BLOCK_SYMBOLS

    def __init__(self, kernel: Kernel, length: int = 2, decay: Setting = 0.5):
        self.kernel = kernel
        self.length = length
        self.decay = decay

    def _resolve(self, X: Sequence[Data]) -> Self:
        new = super()._resolve(X)
        return new._with_arguments(decay=0.5) if isinstance(self.decay, str) else new

    def _block(self, left: Bags, right: Bags) -> Tensor:
        """The sums over the ends of subsequences: those of n symbols follow those of n − 1 at all earlier positions."""
        table, *_ = _tables(self._point_gram(left, right), left, right)
        decay = number(self, "decay", table)[..., None, None]
        table = decay.square() * table
        rows, columns = (_decays(decay, size) for size in table.shape[-2:])
        ending = table
        for _ in range(int(self.length) - 1):
            ending = table * (rows @ ending @ columns.mT)
        return ending.sum((-2, -1))


def _decays(decay: Tensor, size: int) -> Tensor:
    """The matrix λ^(i − j − 1) for j < i, else 0."""
    place = torch.arange(size, device=decay.device)
    gaps = place[:, None] - place - 1
    return torch.where(gaps >= 0, decay ** gaps.clamp(min=0), 0.0)
