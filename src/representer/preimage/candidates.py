"""Decoding by the best of given candidates."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions import Embedding
from representer.kernels import Kernel
from representer.preimage.base import (
    Decoder,
    prepared_like,
    score_blocks,
    squared_norms,
)
from representer.samples import Data, SparseRows, as_records, count, is_single
from representer.values import COUNT

# Scores within this many units of rounding are equal: sums over anchors round differently in different blocks.
TIE = 4096.0


class Candidates(Decoder):
    """The candidate of the highest score 2⟨g, φ(y)⟩ − ‖φ(y)‖², the nearest to g in the RKHS; any kernel, any outputs.

    Parameters
    ----------
    candidates : collection or callable, optional
        The outputs to choose from. None: the distinct training outputs. A callable takes one input x and returns the
        candidates of this x, for instance the molecules of the right mass.
    diagonal : array (c,), optional
        The l(y, y) of candidates with a precomputed output kernel, which are rows of l(candidates, training outputs);
        not needed where l(y, y) is the same for all training outputs. A callable returns a pair (rows, diagonal).

    Notes
    -----
    With a precomputed output kernel there are no objects: the answers are the numbers of the candidates.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import Spectrum
    >>> from representer.preimage import Candidates
    >>> element = mean_embedding(["abab", "abb"], Spectrum(2))
    >>> decoder = Candidates(["aba", "bab", "abba"]).resolve(element.kernel, element.anchors)
    >>> decoder.decode(element)
    ['aba']
    >>> decoder.topk(element, 2)
    ([['aba', 'bab']], array([[2., 2.]]))
    """

    short_name = "candidates"

    def __init__(self, candidates: Data | None = None, *, diagonal: Data | None = None):
        self.candidates = candidates
        self.diagonal = diagonal

    def _learn(self, kernel: Kernel, Y: Data) -> None:
        self._objects: Any = None
        if callable(self.candidates):
            if self.diagonal is not None:
                raise ValueError("A callable that gives candidates returns pairs (rows, diagonal): drop diagonal=.")
            return
        if self.candidates is None:
            if self.diagonal is not None:
                raise ValueError("diagonal= belongs to candidates=, which is None: the training outputs have theirs.")
            objects = as_objects(Y)
            rows = _first_of_equals(objects) if kernel.domain != "gram" else None
            self._objects = objects if rows is None else pick(objects, rows)
        else:
            self._objects = _as_collection(kernel, self.candidates, "Candidates")
        prepared = kernel.prepare(self._objects)
        # A fitted learner keeps no tensors.
        self._prepared = self._objects if isinstance(prepared, Tensor) else prepared

    def decode(self, embedding: Embedding, X: Data | None = None) -> Data:
        """The best candidate of each element; the first, where several score the same."""
        if callable(self.candidates):
            best = [pick(objects, rows)[0] for objects, rows, _ in self._own_best(embedding, 1, X)]
            return np.asarray(best) if embedding.kernel.domain in ("vectors", "gram") else best
        _, rows = self._shared_best(embedding, 1)
        return self._answers(embedding, rows[:, 0])

    def topk(self, embedding: Embedding, k: int, X: Data | None = None) -> tuple[Any, np.ndarray]:
        """The k best candidates of each element, best first, and their scores (q, k).

        Where a callable gives fewer than k candidates, the list of objects is shorter and the other scores are −inf.
        """
        COUNT("k", k)
        if callable(self.candidates):
            scores = np.full((len(embedding), k), -np.inf)
            lists = []
            for i, (objects, best, best_scores) in enumerate(self._own_best(embedding, k, X)):
                lists.append(list(pick(objects, best)))
                scores[i, : len(best_scores)] = best_scores
            return lists, scores
        values, rows = self._shared_best(embedding, k)
        return self._answers(embedding, rows), values.cpu().numpy()

    def _answers(self, embedding: Embedding, rows: Tensor) -> Data:
        return rows.cpu().numpy() if embedding.kernel.domain == "gram" else pick(self._objects, rows.cpu().numpy())

    def _shared_best(self, embedding: Embedding, k: int) -> tuple[Tensor, Tensor]:
        """Scores and numbers (q, k) of the k best candidates, where all elements have the same ones."""
        if self._state("_objects") is None:
            raise ValueError(f"{self!r} was resolved with other candidates. Call decoder.resolve(kernel, Y) again.")
        n = count(self._prepared)
        if k > n:
            raise ValueError(f"There are {n} candidates, not k={k}. Ask for fewer, or give more candidates.")
        Y = prepared_like(embedding, self._prepared)
        norms = squared_norms(embedding, Y, self.diagonal)
        best = embedding.weights.new_empty(len(embedding), 0)
        numbers = torch.empty(len(embedding), 0, dtype=torch.int64, device=best.device)
        for rows, scores in score_blocks(embedding, Y, norms):
            values, places = _best(scores, k)
            best, order = _best(torch.cat([best, values], -1), k)
            numbers = torch.cat([numbers, places + rows.start], -1).gather(-1, order)
        return best, numbers

    def _own_best(self, embedding: Embedding, k: int, X: Data | None) -> Iterable[tuple[Any, np.ndarray, np.ndarray]]:
        """For each input its candidates, the numbers of the k best of them, and their scores."""
        if X is None or count(X) != len(embedding):
            raise ValueError(
                f"These candidates depend on the input: pass X with one input for each of the {len(embedding)} "
                f"predictions; got {'None' if X is None else count(X)}."
            )
        gram = embedding.kernel.domain == "gram"
        candidates_of: Any = self.candidates
        for i, x in enumerate(_items(X)):
            candidates, diagonal = candidates_of(x), None
            if gram and isinstance(candidates, tuple):
                candidates, diagonal = candidates
            objects = _as_collection(embedding.kernel, candidates, f"The candidates of input {i}")
            element = embedding[i : i + 1]
            Y = prepared_like(element, objects)
            norms = squared_norms(element, Y, diagonal)
            scores = torch.cat([block for _, block in score_blocks(element, Y, norms)], -1)
            values, rows = _best(scores, k)
            numbered = np.arange(count(Y)) if gram else objects
            yield numbered, rows[0].cpu().numpy(), values[0].cpu().numpy()


def _best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row and their places, or all of fewer; equal ones keep their order."""
    info = torch.finfo(scores.dtype)
    tie = TIE * info.eps * scores.abs().amax(-1, keepdim=True).clamp(min=info.tiny / info.eps)
    largest = scores.amax(-1, keepdim=True)
    if k == 1:
        places = (scores >= largest - tie).to(torch.uint8).argmax(-1, keepdim=True)
    else:
        behind = ((largest - scores) / tie).floor_()
        places = behind.sort(dim=-1, stable=True).indices[:, :k]
    return scores.gather(-1, places), places


# -- collections of objects -------------------------------------------------------------------------------------------
def as_objects(Y: Data) -> Data:
    """A collection that can be indexed: arrays (also of tensors and frames), sparse rows or a list."""
    if isinstance(Y, Tensor):
        return Y.detach().cpu().numpy()
    if hasattr(Y, "to_numpy"):
        return Y.to_numpy()
    return Y if isinstance(Y, np.ndarray | SparseRows) else SparseRows(Y) if hasattr(Y, "tocsr") else list(Y)


def pick(objects: Data, rows: np.ndarray) -> Data:
    """The objects with these numbers, in the shape of ``rows``: an array from an array, lists from a list."""
    if isinstance(objects, np.ndarray) or (isinstance(objects, SparseRows) and rows.ndim == 1):
        return objects[rows]
    if rows.ndim > 1:
        return [pick(objects, row) for row in rows]
    return [objects[int(i)] for i in rows]


def _items(X: Data) -> Data:
    """Inputs that can be gone through one by one: rows of arrays and frames, or objects."""
    return X.to_numpy() if hasattr(X, "to_numpy") else X


def _as_collection(kernel: Kernel, candidates: Data, name: str) -> Data:
    """Candidates as a collection; vectors are the rows of an array, and plain numbers are rows of one entry."""
    if kernel.domain == "records":
        return as_records(candidates)
    objects = as_objects(_not_empty(candidates, name))
    if kernel.domain != "vectors" or isinstance(objects, SparseRows):
        return objects
    try:
        array = np.asarray(objects)
    except ValueError:  # their lengths differ, which the kernel will refuse
        return objects
    if array.dtype.kind not in "biuf":
        return objects
    return array.reshape(-1, 1) if array.ndim == 1 else array


def _not_empty(candidates: Data, name: str) -> Data:
    if candidates is None or is_single(candidates):
        raise ValueError(f"{name} must be a collection of outputs; got {candidates!r:.80}. Put one output in a list.")
    if not hasattr(candidates, "__len__") and not hasattr(candidates, "shape"):
        candidates = list(candidates)
    if not count(candidates):
        raise ValueError(f"{name} are empty: a prediction needs at least one output to choose from.")
    return candidates


def _first_of_equals(objects: Data) -> np.ndarray | None:
    """The first of each set of equal objects; None where they cannot be compared, or are all different."""
    if isinstance(objects, SparseRows):
        return None
    try:
        if isinstance(objects, np.ndarray) and objects.dtype != object:
            keys: Iterable[Hashable] = (row.tobytes() for row in np.ascontiguousarray(objects))
        else:
            keys = map(_key, objects)
        first: dict[Hashable, int] = {}
        for i, key in enumerate(keys):
            first.setdefault(key, i)
    except TypeError:  # not hashable
        return None
    return None if len(first) == len(objects) else np.fromiter(first.values(), dtype=np.int64)


def _key(item: object) -> Hashable:
    return tuple(map(_key, item)) if isinstance(item, list | tuple | np.ndarray) else item
