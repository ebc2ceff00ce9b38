"""What the search of an embedding has seen: the parts of its objective, iteration by iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from representer.optimize import HistoryEntry


class EmbeddingEntry(NamedTuple):
    """One iteration of L-BFGS, or one epoch of Adam, as ``history_`` keeps it."""

    iteration: int
    seconds: float  # since the search began
    value: float  # of the objective
    loss: float  # its cross entropy
    complexity: float  # r
    accuracy: float  # of the predictions that the cross entropy judges
    gradient_norm: float


@dataclass
class Trace:
    """What a risk consists of at each evaluation: gathered here, as the optimisers only see its value."""

    seen: list[tuple[float, ...]] = field(default_factory=list)  # value, loss, complexity, accuracy
    entries: list[EmbeddingEntry] = field(default_factory=list)
    latest: tuple[float, ...] = (math.nan, math.nan, math.nan)

    def observe(self, loss: Tensor, complexity: Tensor, accuracy: Tensor) -> None:
        """Of the evaluation under way."""
        self.latest = (float(loss), float(complexity), float(accuracy))

    def close(self, value: float) -> None:
        """The evaluation is complete."""
        self.seen.append((value, *self.latest))

    def __call__(self, entry: HistoryEntry) -> None:
        """At the end of an iteration: the evaluation of its value, or the mean over an epoch of batches."""
        same = [parts for value, *parts in self.seen if value == entry.value]
        if not same and self.entries and entry.value == self.entries[-1].value:  # no better point than before
            same = [list(self.entries[-1][3:6])]
        if not same:
            same = [parts for _, *parts in self.seen] or [[math.nan] * 3]
        loss, complexity, accuracy = (sum(column) / len(same) for column in zip(*same, strict=True))
        self.seen.clear()
        self.entries.append(
            EmbeddingEntry(
                entry.iteration, entry.seconds, entry.value, loss, complexity, accuracy, entry.gradient_norm
            )
        )
