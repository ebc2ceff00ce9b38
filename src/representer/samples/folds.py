"""Which samples a search looks at, and which of them are held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from representer.samples.records import Data
from representer.samples.rows import sample_groups
from representer.values import is_count


class Splitter(Protocol):
    """What makes folds, as scikit-learn's splitters do."""

    def split(
        self, X: np.ndarray, y: np.ndarray | None = None, groups: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Training and held-out rows of each fold."""


@dataclass(frozen=True)
class Folds:
    """Which samples a search looks at, and which of them are held out.

    Parameters
    ----------
    n : int
        The number of samples.
    cv : int, splitter or iterable
        A number of folds, shuffled; or splits of all n samples that somebody made.
    seed : int
    labels : array (n,), optional
        The classes, from 0 on, which folds and subsets keep in proportion: each has a training row in every fold.
    groups : array (n,), optional
        What is held out together.
    kept : array of int (n,), optional
        The numbers of the samples among those that a user has passed, which a list of splits counts.
    """

    n: int
    cv: Any  # a number, a splitter, or pairs of rows
    seed: int
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    kept: np.ndarray | None = None
    total: int = 0  # how many samples the user has passed
    splitter: Callable[[Folds, int], Splitter] | None = None  # what makes so many folds, or reads ``cv``

    def some(self, most: int) -> Tensor:
        """All rows, or as many random ones as a search can afford: whole groups, or the classes in proportion."""
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
        """Training and held-out rows of all samples; with ``rows`` as positions among these.

        A number of folds splits the rows; of splits that somebody made, the rows have a part.
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
        parts = splitter.split(blank, blank[:, 0] if labels is None else labels, groups)
        every = np.arange(n)
        try:
            return [(every[training], every[held_out]) for training, held_out in parts]
        except IndexError as error:
            raise ValueError(f"cv={self.cv!r} does not fit to {n} samples: {error}.") from error

    def _places(self, rows: Data) -> np.ndarray:
        """Where the samples that a user has numbered stand among those that are kept."""
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
    """Samples of a class that is held out entirely move to the training part."""
    if labels is None:
        return training, held_out
    alone = ~np.isin(labels[held_out], labels[training])
    return np.append(training, held_out[alone]), held_out[~alone]
