"""Decoding to sets of labels, as rows of zeros and ones, and the choice of their thresholds."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import combinations
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from representer.functions import Embedding
from representer.kernels import Kernel
from representer.linalg import row_blocks
from representer.preimage.base import Decoder, prepared_like, squared_norms
from representer.preimage.candidates import Candidates, as_objects
from representer.preimage.vectors import combination, is_dot_product
from representer.samples import Data, SparseRows
from representer.values import COUNT, NONE, TRUTH, Rule, is_real, one_of

# Up to this many sets are compared one by one.
MAX_SETS = 2**16
# The measures for which a threshold may be chosen.
MEASURES = ("f1", "hamming", "subset")


class LabelSet(Decoder):
    """A set of labels, as a row of zeros and ones: the one nearest to g in the RKHS, or all labels above a threshold.

    Parameters
    ----------
    threshold : float or "auto", optional
        None: the set that maximises 2⟨g, φ(y)⟩ − ‖φ(y)‖². For a linear kernel that are the labels where
        s = Σ_i w_i y_i exceeds 1/2 (for a centred one, s + (1 − Σ_i w_i) times the mean). A number: the labels where s
        exceeds it, whatever the kernel. ``"auto"``: the number is chosen on held-out predictions of the training
        outputs, see ``measure``.
    measure : {"f1", "hamming", "subset"}
        The measure that ``threshold="auto"`` optimises: the F1 measure of all labels of all samples together
        (micro-averaged), the share of wrong labels, or the share of samples whose sets are right as a whole (subset
        accuracy). Ask for the measure that will be reported: for F1 the best threshold is far lower than for the share
        of wrong labels.
    per_label : bool
        Does ``threshold="auto"`` choose a number for each label? That suits labels whose predictions are shrunk
        differently, and needs some dozens of samples with each label. The numbers are jointly best for F1 and the share
        of wrong labels; for whole sets, no change of a single one is better.
    search : {"auto", "exact", "local"}
        For a kernel that is not linear: ``"exact"`` compares all sets; ``"local"`` adds and takes away single labels as
        long as this helps, starting from the best training output; ``"auto"`` is exact for at most 65,536 sets.
    max_labels : int, optional
        The largest number of labels in a set. None: no limit.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import Tanimoto
    >>> from representer.preimage import LabelSet
    >>> sets = [[1, 1, 0], [1, 0, 0], [0, 1, 1]]
    >>> for kernel in ("linear", Tanimoto()):
    ...     element = mean_embedding(sets, kernel)
    ...     print(LabelSet().resolve(element.kernel, sets).decode(element).tolist())
    [[1, 1, 0]]
    [[1, 1, 0]]
    """

    short_name = "labels"

    def __init__(
        self,
        threshold: float | str | None = None,
        *,
        measure: str = "f1",
        per_label: bool = False,
        search: str = "auto",
        max_labels: int | None = None,
    ):
        self.threshold = threshold
        self.measure = measure
        self.per_label = per_label
        self.search = search
        self.max_labels = max_labels

    def _learn(self, kernel: Kernel, Y: Data) -> None:
        self._check_options()
        if kernel.domain != "vectors":
            raise ValueError(
                f"LabelSet() is for outputs that are rows of zeros and ones; {kernel!r} takes {kernel.domain}. Use a "
                "kernel on vectors, such as Linear() or Tanimoto(), with sklearn's MultiLabelBinarizer for sets."
            )
        labels = _indicators(Y)
        self._n_labels, self._dtype = labels.shape[1], labels.dtype
        self._decide: Any = self.threshold
        if self.threshold is None and is_dot_product(kernel):
            self._decide = 0.5
        if self._decide is not None:
            return
        n_sets = self._n_sets()
        if self.search == "exact" and n_sets > MAX_SETS:
            raise ValueError(
                f"There are {n_sets} sets of the {self._n_labels} labels; search='exact' looks at {MAX_SETS} at most. "
                "Give max_labels=, a threshold=, or search='local'."
            )
        self._exact = self.search != "local" and n_sets <= MAX_SETS
        label_sets = self._all_sets() if self._exact else labels
        self._candidates = Candidates(label_sets).resolve(kernel, label_sets)

    def _check_options(self) -> None:
        finite = Rule("a number", lambda value: is_real(value) and math.isfinite(value))
        (NONE | finite | one_of("auto"))("threshold", self.threshold)
        one_of(*MEASURES)("measure", self.measure)
        TRUTH("per_label", self.per_label)
        one_of("auto", "exact", "local")("search", self.search)
        (COUNT | NONE)("max_labels", self.max_labels)

    def _most(self) -> int:
        return self._n_labels if self.max_labels is None else min(self.max_labels, self._n_labels)

    def _n_sets(self) -> int:
        return sum(math.comb(self._n_labels, size) for size in range(self._most() + 1))

    def _all_sets(self) -> np.ndarray:
        sets = np.zeros((self._n_sets(), self._n_labels), dtype=self._dtype)
        row = 0
        for size in range(self._most() + 1):
            for members in combinations(range(self._n_labels), size):
                sets[row, members] = 1
                row += 1
        return sets

    def calibrate(self, embedding: Embedding, Y: Data) -> Self:
        """The decoder with the threshold that is best for these predictions, if it is ``"auto"``."""
        self._state("_decide")
        if self.threshold != "auto":
            return self
        new = copy.copy(self)
        values = _expected(embedding)
        values = np.where(self._largest(values), values, -np.inf)  # labels beyond max_labels are never set
        choose = best_thresholds if self.per_label else best_threshold
        new._decide = choose(values, _indicators(Y), self.measure)
        return new

    def decode(self, embedding: Embedding, X: Data | None = None) -> np.ndarray:
        """The sets of labels as rows of zeros and ones, (q, n_labels)."""
        decide = self._state("_decide")
        if isinstance(decide, str):
            raise ValueError(
                "threshold='auto' has no number yet: held-out predictions decide it. Call calibrate(embedding, Y), "
                "or give a number."
            )
        if decide is not None:
            values = _expected(embedding)
            return ((values > np.asarray(decide, dtype=float)) & self._largest(values)).astype(self._dtype)
        if not self._exact:
            return self._climbed(embedding)
        return self._candidates.decode(embedding)

    def _largest(self, values: np.ndarray) -> np.ndarray:
        """A mask of the labels of each row that may be set: the ``max_labels`` ones with the largest values."""
        if self._most() == self._n_labels:
            return np.ones(values.shape, dtype=bool)
        return (-values).argsort(1, kind="stable").argsort(1) < self._most()

    def _climbed(self, embedding: Embedding) -> np.ndarray:
        """Local search: the best single change, for all elements that still improve."""
        sets = torch.from_numpy(self._candidates.decode(embedding).astype(np.float64))
        size = sets.sum(-1)
        if self.max_labels is not None and bool((size > self.max_labels).any()):
            sets[size > self.max_labels] = 0.0  # too large: start from the empty set
        scores = _own_scores(embedding, sets[:, None])[:, 0]
        improving = torch.arange(len(sets))
        flips = torch.eye(self._n_labels, dtype=sets.dtype)
        rounding = embedding.weights.shape[1] * torch.finfo(embedding.weights.dtype).eps
        while len(improving):
            neighbours = (sets[improving, None] - flips).abs()
            values = _own_scores(embedding[improving.to(embedding.weights.device)], neighbours)
            values[neighbours.sum(-1) > self._most()] = -torch.inf
            best, flip = values.max(-1)
            better = best - scores[improving] > rounding * best.abs()
            improving, flip = improving[better], flip[better]
            scores[improving], sets[improving] = best[better], neighbours[better, flip]
        return sets.numpy().astype(self._dtype)


def _own_scores(embedding: Embedding, sets: Tensor) -> Tensor:
    """Scores (q, c), where each of q elements has c candidate sets (q, c, p) of its own."""
    q, c, _ = sets.shape
    scores = torch.empty(q, c, dtype=torch.float64)
    for rows in row_blocks(q, 2 * c * embedding.weights.shape[1] * 8):
        Y = prepared_like(embedding, sets[rows].reshape(-1, sets.shape[-1]))
        gram = embedding.kernel._gram(Y, embedding.anchors).to(embedding.weights)
        inner = torch.einsum("qcn,qn->qc", gram.view(-1, c, gram.shape[-1]), embedding.weights[rows])
        scores[rows] = (2.0 * inner - squared_norms(embedding, Y).view(-1, c)).cpu().double()
    return scores


def _expected(embedding: Embedding) -> np.ndarray:
    """The sums Σ_i w_i y_i (q, n_labels), around the mean of a centred kernel."""
    return np.asarray(combination(embedding.kernel, embedding.anchors, embedding.weights))


def _indicators(Y: Data) -> np.ndarray:
    """Outputs as rows of zeros and ones, checked."""
    labels = as_objects(Y)
    labels = labels.toarray() if isinstance(labels, SparseRows) else np.asarray(labels)
    if labels.ndim != 2 or labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise ValueError(
            "LabelSet() needs outputs that are rows of zeros and ones, (n_samples, n_labels); got an array of shape "
            f"{labels.shape} and type {labels.dtype}. sklearn.preprocessing.MultiLabelBinarizer makes them from sets."
        )
    return labels


# -- thresholds ------------------------------------------------------------------------------------------------------
def best_threshold(values: np.ndarray, labels: np.ndarray, measure: str = "f1") -> float:
    """The threshold above which labels are set that is best for a measure, in the middle of the gap where it lies.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.preimage.labels import best_threshold
    >>> best_threshold(np.array([[0.9, 0.4], [0.3, 0.1]]), np.array([[1, 1], [0, 0]]))
    0.35
    """
    if measure == "subset":
        edges = _edges(values)
        return _cut(edges, _right_sets(edges, values, labels))
    if measure == "f1":
        return _best_cut(values, labels, lambda hits, size, total: 2.0 * hits / np.maximum(size + total, 1))
    return _best_cut(values, labels, _right_labels)


def best_thresholds(values: np.ndarray, labels: np.ndarray, measure: str = "f1") -> np.ndarray:
    """One threshold for each label, above which it is set; together they are best for a measure.

    The number of wrong labels is a sum over labels. F1 = 2 hits / (set labels + right labels) is a ratio of such sums,
    whose best value q solves max(2 hits − q · set labels) = q · right labels (Dinkelbach, 1967). Whether a whole set is
    right depends on all thresholds: starting from the best common one, each is improved in turn, until none changes.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.preimage.labels import best_thresholds
    >>> best_thresholds(np.array([[0.9, 0.2], [0.5, 0.0]]), np.array([[1, 1], [0, 0]]))
    array([0.7, 0.1])
    """
    columns = range(values.shape[1])
    if measure == "hamming":
        return np.array([_best_cut(values[:, j], labels[:, j], _right_labels) for j in columns])
    thresholds = np.full(values.shape[1], best_threshold(values, labels, measure))
    if measure == "subset":
        return _improved_for_sets(thresholds, values, labels)
    quality, best = -1.0, _f1(values > thresholds, labels)
    while best > quality:
        quality = best

        def gain(hits: np.ndarray, size: np.ndarray, total: int, price: float = quality) -> np.ndarray:
            return 2.0 * hits - price * size

        candidates = np.array([_best_cut(values[:, j], labels[:, j], gain) for j in columns])
        best = _f1(values > candidates, labels)
        thresholds = candidates if best > quality else thresholds
    return thresholds


def _improved_for_sets(thresholds: np.ndarray, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Thresholds where no change of a single one makes more sets right."""
    thresholds, right = thresholds.copy(), (values > thresholds) == labels
    improves = True
    while improves:
        before = right.all(1).sum()
        for j in range(values.shape[1]):
            others = np.delete(right, j, axis=1).all(1)
            if others.any():
                candidate = _best_cut(values[others, j], labels[others, j], _right_labels)
                right_label = (values[:, j] > candidate) == labels[:, j]
                if (others & right_label).sum() > right.all(1).sum():
                    thresholds[j], right[:, j] = candidate, right_label
        improves = right.all(1).sum() > before
    return thresholds


def _f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The F1 measure of all labels of all samples together."""
    return float(2.0 * (predicted & (labels > 0)).sum() / max(predicted.sum() + labels.sum(), 1))


def _right_labels(hits: np.ndarray, size: np.ndarray, total: int) -> np.ndarray:
    """Minus the number of wrong labels where ``hits`` of ``size`` set labels are right."""
    return -(size - hits + total - hits).astype(float)


def _edges(values: np.ndarray) -> np.ndarray:
    """All values in descending order, between infinities: cut m lies between edge m and edge m + 1."""
    return np.concatenate([[np.inf], -np.sort(-values, axis=None), [-np.inf]])


def _right_sets(edges: np.ndarray, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The number of samples whose sets are right for each cut: all their labels, and no others, lie above it."""
    lowest = np.where(labels > 0, values, np.inf).min(1)  # the cut must lie below this value
    highest = np.where(labels > 0, -np.inf, values).max(1)  # and not below this one
    possible = highest < lowest
    begun = np.searchsorted(np.sort(highest[possible]), edges[1:], side="right")
    ended = np.searchsorted(np.sort(lowest[possible]), edges[:-1], side="left")
    return (begun - ended).astype(float)


def _best_cut(
    values: np.ndarray, labels: np.ndarray, quality: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
) -> float:
    """The cut of best quality, a function of the hits among the set labels, their number, and all right labels."""
    order = np.argsort(-values, axis=None, kind="stable")
    hits = np.concatenate([[0], np.cumsum(labels.reshape(-1)[order])])  # the right labels among the m largest values
    return _cut(_edges(values), quality(hits, np.arange(len(hits)), hits[-1]))


def _cut(edges: np.ndarray, quality: np.ndarray) -> float:
    """The number in the middle of the best cut."""
    quality = np.where(edges[:-1] == edges[1:], -np.inf, quality)  # no threshold separates equal values
    m = int(quality.argmax())
    above, below = edges[m], edges[m + 1]
    if not math.isfinite(above):
        return float(below)  # no value lies above the largest one
    return float(above + below) / 2.0 if math.isfinite(below) else float(np.nextafter(above, -np.inf))
