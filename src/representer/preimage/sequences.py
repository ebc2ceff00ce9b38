"""Decoding to strings: the one of the highest score, by dynamic programming over positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.functions import Embedding
from representer.kernels import Kernel, Normalized, Scaled, WeightedDegree, coded, one_kind
from representer.linalg import row_blocks
from representer.notices import warn
from representer.preimage.base import Decoder
from representer.samples import Data, count
from representer.values import is_count, is_real, number

# The search keeps a number for every window of symbols; more windows than this are refused.
MAX_WINDOWS = 2**20


class Sequence(Decoder):
    """The string that maximises 2⟨g, φ(y)⟩ − ‖φ(y)‖² + weight · log p(y), exactly, for the kernel ``WeightedDegree``.

    With substrings of length one and no ``transitions``, each position takes its best symbol by itself. Otherwise
    neighbouring symbols are decided together, by the algorithm of Viterbi.

    Parameters
    ----------
    lengths : int, "input" or callable, optional
        The length of the answers: a number for all; ``"input"`` for answers as long as the input, such as one symbol
        for each image; or a function of the input. None: the length of the highest score, between the shortest and the
        longest training output.
    transitions : "training" or callable, optional
        ``"training"``: p is the first-order Markov chain of the training outputs, ends included, each pair of symbols
        counted once more than seen. A function ``f(a, b)`` gives the score of b after a in the place of the logarithm;
        ``a=None`` is the start of the string, ``b=None`` its end. None: transitions have no score.
    weight : float
        The weight of log p.

    Notes
    -----
    The answers are made from the symbols of the training outputs. About positions after the end of the longest training
    output g says nothing: there the transitions decide alone, or the most frequent symbol stands, with a warning. Among
    symbols with equal scores the most frequent one is taken. Where transitions of −inf rule out every string, an error
    names the input. Multiples of ``WeightedDegree`` and its normalised form are accepted, too.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import WeightedDegree
    >>> from representer.preimage import Sequence
    >>> element = mean_embedding(["cat", "cow", "hot"], WeightedDegree())
    >>> Sequence(lengths=3).resolve(element.kernel, element.anchors).decode(element)
    ['cot']
    """

    short_name = "sequence"

    def __init__(self, *, lengths: Any | None = None, transitions: Any | None = None, weight: float = 1.0):
        self.lengths = lengths
        self.transitions = transitions
        self.weight = weight

    def _learn(self, kernel: Kernel, Y: Data) -> None:
        self._check_options()
        self._form = _form(kernel)
        strings = kernel.prepare(Y)
        sizes = [len(string) for string in strings]
        self._shortest, self._longest = min(sizes), max(sizes)
        self._kind = one_kind(strings)
        symbols: Counter[Hashable] = Counter()
        for string in strings:
            symbols.update(string)
        if not symbols:
            raise ValueError("All training outputs are empty strings: there are no symbols to make answers from.")
        self._alphabet = [symbol for symbol, _ in symbols.most_common()]
        self._numbers = {symbol: i for i, symbol in enumerate(self._alphabet)}
        self._log_transitions = self._transition_scores(strings)
        self._memory = max(self._form.longest - 1, int(self._log_transitions is not None))
        if len(self._alphabet) ** (self._memory + 1) > MAX_WINDOWS:
            raise ValueError(
                f"There are {len(self._alphabet)} symbols, so {len(self._alphabet)}^{self._memory + 1} windows of "
                f"{self._memory + 1}: too many to search. Use shorter substrings in the output kernel, or Candidates()."
            )

    def _check_options(self) -> None:
        lengths, transitions = self.lengths, self.transitions
        named = isinstance(lengths, str) and lengths == "input"
        if not (lengths is None or named or callable(lengths) or is_count(lengths)):
            raise ValueError(
                f"lengths must be None, a positive integer, 'input' or a function of the input; got {lengths!r}."
            )
        named = isinstance(transitions, str) and transitions == "training"
        if not (transitions is None or named or callable(transitions)):
            raise ValueError(f"transitions must be None, 'training' or a function of two symbols; got {transitions!r}.")
        if not is_real(self.weight) or not np.isfinite(self.weight) or self.weight < 0:
            raise ValueError(f"weight must be a number, not negative; got {self.weight!r}.")

    def _transition_scores(self, strings: Any) -> np.ndarray | None:
        """The scores weight · log p of symbol b (column) after a (row); last row: the start, last column: the end."""
        if self.transitions is None:
            return None
        size = len(self._alphabet)
        if callable(self.transitions):
            symbols = [*self._alphabet, None]
            table = np.array([[_transition(self.transitions, a, b) for b in symbols] for a in symbols])
        else:
            table = markov_scores([[self._numbers[symbol] for symbol in s] for s in strings], size)
        return self.weight * table if self.weight else np.zeros_like(table)

    # -- decoding -----------------------------------------------------------------------------------------------------
    def decode(self, embedding: Embedding, X: Data | None = None) -> list[Any]:
        """The best string for each element."""
        self._state("_form")
        lengths = self._lengths_of(len(embedding), X)
        size = len(self._alphabet)
        per_row = 8 * (3 * size ** (self._memory + 1) + 2 * self._longest * size**self._form.longest)
        answers: list[Any] = []
        for rows in row_blocks(len(embedding), per_row):
            tables = self._tables(embedding[rows])
            answers += self._block(tables, None if lengths is None else lengths[rows], rows.start)
        return answers

    def _lengths_of(self, n: int, X: Data | None) -> np.ndarray | None:
        if self.lengths is None:
            return None
        if is_count(self.lengths):
            lengths = np.full(n, int(self.lengths))
        else:
            if X is None or count(X) != n:
                raise ValueError(
                    f"lengths={self.lengths!r} needs the {n} inputs; got {'None' if X is None else count(X)}."
                )
            length_of = len if self.lengths == "input" else self.lengths
            lengths = np.asarray([length_of(x) for x in (X.to_numpy() if hasattr(X, "to_numpy") else X)])
            if lengths.dtype.kind not in "iu" or (lengths < 0).any():
                raise ValueError("lengths must give integers, not negative.")
        if n and (most := int(lengths.max())) > self._longest:
            filled = (
                "the transition scores decide" if self.transitions is not None else "the most frequent symbol stands"
            )
            warn(
                f"{int((lengths > self._longest).sum())} answers are to be longer (up to {most}) than the longest "
                f"training output ({self._longest}). At the positions after it {filled}.",
            )
        return lengths

    def _tables(self, embedding: Embedding) -> list[Tensor]:
        """For each length t, the weighted counts of every substring at every position j, (q, positions, |A|^t).

        The entry of a substring s is the sum of w_i w_t over the anchors y_i that have s at j, times the factor of y_i.
        """
        weights, form = embedding.weights, self._form
        strings = coded(embedding.anchors)
        size = len(self._alphabet)
        symbols = np.array([self._numbers[symbol] for symbol in strings.alphabet])[strings.symbols]
        rows, first = strings.rows(), np.cumsum(strings.lengths) - strings.lengths
        places = np.arange(len(rows)) - first[rows]
        factors = form.factors(strings.lengths)
        tables, codes = [], np.zeros(len(rows), dtype=np.int64)
        for t in range(1, form.longest + 1):
            inside = places + t <= strings.lengths[rows]
            ends = np.minimum(np.arange(len(rows)) + t - 1, len(rows) - 1)
            codes = codes * size + symbols[ends]
            if form.weights[t - 1] == 0.0 or self._longest < t:
                tables.append(weights.new_zeros(len(weights), max(0, self._longest - t + 1), size**t))
                continue
            columns = (places * size**t + codes)[inside]
            values = form.weights[t - 1] * factors[rows[inside]]
            shape = (len(strings.lengths), (self._longest - t + 1) * size**t)
            features = sparse.csr_array((values, (rows[inside], columns)), shape=shape)
            sums = (features.T @ weights.cpu().numpy().T).T
            tables.append(torch.from_numpy(np.ascontiguousarray(sums)).to(weights).view(len(weights), -1, size**t))
        return tables

    def _block(self, tables: list[Tensor], lengths: np.ndarray | None, start: int) -> list[Any]:
        """The best strings for a block of elements; ``start`` is the number of its first element."""
        q = len(tables[0])
        symbols = np.zeros((q, 0), dtype=np.int64)
        if lengths is None:
            best = torch.full((q,), -torch.inf, dtype=tables[0].dtype)
            answers: list[Any] = [None] * q
            for length in range(self._shortest, self._longest + 1):
                symbols, scores = self._best_of_length(tables, length)
                better = scores.cpu() > best
                best = torch.where(better, scores.cpu(), best)
                for i in torch.nonzero(better)[:, 0].tolist():
                    answers[i] = self._string(symbols[i])
            span = f"{self._shortest} to {self._longest}"
            self._refuse_impossible(best, start + np.arange(q), f"lengths {span}")
            return answers
        answers = [None] * q
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            symbols, scores = self._best_of_length([table[torch.from_numpy(rows)] for table in tables], int(length))
            self._refuse_impossible(scores, start + rows, f"length {length}")
            for i, numbers in zip(rows, symbols, strict=True):
                answers[i] = self._string(numbers)
        return answers

    def _refuse_impossible(self, scores: Tensor, numbers: np.ndarray, lengths: str) -> None:
        """Refuse a best score of −inf: then every string has a forbidden pair of symbols."""
        impossible = numbers[(scores == -torch.inf).cpu().numpy()]
        if len(impossible):
            raise ValueError(
                f"The transitions rule out every string of {lengths} for input {impossible[0]}"
                f"{f' and {len(impossible) - 1} more' if len(impossible) > 1 else ''}: each has a pair of symbols "
                "that scores −inf. Allow more pairs, or other lengths."
            )

    def _best_of_length(self, tables: list[Tensor], length: int) -> tuple[np.ndarray, Tensor]:
        """The best strings of a length as numbers of symbols (q, length), and their scores (q,)."""
        norm = self._form.squared_norm(length)
        factor = 2.0 * float(self._form.factors(np.array([length]))[0])
        transitions = self._log_transitions
        scores = None if transitions is None else torch.from_numpy(transitions).to(tables[0])
        symbols, values = _viterbi(
            [factor * table for table in tables], len(self._alphabet), length, self._memory, scores
        )
        return symbols, values - norm

    def _string(self, numbers: np.ndarray) -> Any:
        symbols = [self._alphabet[i] for i in numbers]
        if self._kind is str:
            return "".join(symbols)
        return bytes(symbols) if self._kind is bytes else tuple(symbols)


def _transition(function: Any, a: Any, b: Any) -> float:
    """The score of symbol b after a."""
    answer = function(a, b)
    try:
        value = float(answer)
    except (TypeError, ValueError):
        value = np.nan
    if np.isnan(value) or value == np.inf:
        raise ValueError(
            "transitions must give numbers (or −inf, for what cannot be) for all pairs of symbols; got "
            f"{answer!r:.80} for {b!r} after {a!r} (None is the start or the end)."
        )
    return value


def markov_scores(strings: Iterable[Iterable[int]], size: int) -> np.ndarray:
    """The scores log p of b (column) after a (row) in strings over the numbers 0, …, size − 1.

    Each pair is counted once more than seen. The last row is the start of a string, the last column its end.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.preimage import markov_scores
    >>> np.exp(markov_scores([[0, 1], [0]], 2)).round(2).tolist()
    [[0.2, 0.4, 0.4], [0.25, 0.25, 0.5], [0.6, 0.2, 0.2]]
    """
    counts = np.ones((size + 1, size + 1))
    for string in strings:
        path = [size, *string, size]
        np.add.at(counts, (path[:-1], path[1:]), 1.0)
    return np.log(counts / counts.sum(1, keepdims=True))


def viterbi(scores: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """The paths a_1, …, a_L of highest score: Σ_j scores[j, a_j], plus transitions of neighbours, start and end.

    Parameters
    ----------
    scores : array (q, L, size)
        The score of each symbol at each position of q strings.
    transitions : array (size + 1, size + 1)
        The scores of pairs of symbols, in the form of ``markov_scores``.

    Returns
    -------
    paths : array (q, L) of int

    Examples
    --------
    >>> import numpy as np
    >>> from representer.preimage import viterbi
    >>> scores = np.array([[[1.0, 0.0], [0.4, 0.6]]])
    >>> alternate = np.array([[-9.0, 0.0, 0.0], [0.0, -9.0, 0.0], [0.0, 0.0, 0.0]])
    >>> viterbi(scores, np.zeros((3, 3))).tolist(), viterbi(scores, -alternate).tolist()
    ([[0, 1]], [[0, 0]])
    """
    table = torch.as_tensor(np.asarray(scores, dtype=np.float64))
    return _viterbi([table], table.shape[2], table.shape[1], 1, torch.as_tensor(transitions).to(table))[0]


def _viterbi(
    tables: list[Tensor], size: int, length: int, memory: int, transitions: Tensor | None
) -> tuple[np.ndarray, Tensor]:
    """The symbols (q, length) that maximise the sum of the scores of all windows, and that sum.

    ``tables[t-1]`` (q, positions, size^t) holds the scores of windows of t symbols by their first position. A state is
    the last ``memory`` symbols; when a new symbol comes, the oldest one is maximised out, and kept for the way back.
    """
    q = len(tables[0])
    values = tables[0].new_zeros(q, 1)
    oldest: list[Tensor] = []  # the best symbol at position j, given the ``memory`` symbols after it
    for j in range(length):
        order = min(j, memory)
        values = values[:, :, None].expand(-1, -1, size).reshape(q, size ** (order + 1))
        for t, table in enumerate(tables[: order + 1], start=1):
            if 0 <= j - t + 1 < table.shape[1]:
                values = (values.view(q, -1, size**t) + table[:, j - t + 1, None]).reshape(q, -1)
        if transitions is not None:
            if j == 0:
                values = values + transitions[-1, :-1]
            else:
                values = (values.view(q, -1, size, size) + transitions[:-1, :-1]).reshape(q, -1)
        if order == memory:
            values, place = values.view(q, size, -1).max(1)
            oldest.append(place)
    if transitions is not None:
        ends = transitions[:-1, -1] if length else transitions[-1, -1:]
        values = (values.view(q, -1, len(ends)) + ends).reshape(q, -1)
    best, state = values.max(-1)
    return _traced(oldest, state, size, length, memory), best


def _traced(oldest: list[Tensor], state: Tensor, size: int, length: int, memory: int) -> np.ndarray:
    """The symbols that led to the last states."""
    symbols = torch.empty(len(state), length, dtype=torch.int64, device=state.device)
    order = min(length, memory)
    for j in range(order):  # the state spells the last symbols
        symbols[:, length - 1 - j] = state // size**j % size
    for j in range(length - order - 1, -1, -1):
        symbol = oldest[j].gather(1, state[:, None])[:, 0]
        symbols[:, j] = symbol
        if memory:
            state = symbol * size ** (memory - 1) + state // size
    return symbols.cpu().numpy()


# -- the kernels that compare place by place ------------------------------------------------------------------------
@dataclass(frozen=True)
class _Form:
    """An output kernel scale · WeightedDegree, perhaps normalised, with weights w_t for t = 1, …, longest."""

    weights: tuple[float, ...]
    scale: float
    normalized: bool

    @property
    def longest(self) -> int:
        return len(self.weights)

    def _inner_norms(self, lengths: np.ndarray) -> np.ndarray:
        t = np.arange(1, self.longest + 1)
        return np.maximum(lengths[:, None] - t + 1, 0) @ np.asarray(self.weights)

    def factors(self, lengths: np.ndarray) -> np.ndarray:
        """The factor of the features of strings of these lengths: √scale, over ‖φ‖ if the kernel is normalised."""
        norms = self._inner_norms(lengths) if self.normalized else np.ones(len(lengths))
        roots = np.sqrt(norms)
        return np.sqrt(self.scale) * np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)

    def squared_norm(self, length: int) -> float:
        """The squared norm ‖φ(y)‖² of a string of this length."""
        norm = float(self._inner_norms(np.array([length]))[0])
        return self.scale * (float(norm > 0) if self.normalized else norm)


def _form(kernel: Kernel) -> _Form:
    scale, normalized, inner = 1.0, False, kernel
    while isinstance(inner, Scaled | Normalized):
        if isinstance(inner, Normalized):
            normalized = True
        elif not normalized:
            scale *= number(inner, "scale").item()
        inner = inner.kernel
    if not isinstance(inner, WeightedDegree):
        raise ValueError(
            f"Sequence() needs an output kernel that compares strings place by place, WeightedDegree(); got "
            f"{kernel!r}. Use it, or choose between given strings: Candidates()."
        )
    weights = dict(zip(inner._lengths, (float(weight) for weight in inner._weights()), strict=True))
    return _Form(tuple(weights.get(t, 0.0) for t in range(1, max(weights) + 1)), scale, normalized)
