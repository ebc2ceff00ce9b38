"""Which samples a search sees, and which of them each of its fits holds out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.model_selection import check_cv
from torch import Tensor

from representer.parameters import is_count

Split = tuple[Tensor, Tensor]  # training rows and held-out rows


def some_rows(n: int, labels: np.ndarray | None, most: int, seed: int) -> Tensor:
    """All rows, or as many random ones as a search can afford, the classes in proportion."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    if labels is not None:
        place = np.empty(n)
        shuffled = labels[order.numpy()]
        for label in np.unique(shuffled):
            members = np.flatnonzero(shuffled == label)
            place[members] = (np.arange(len(members)) + 0.5) / len(members)
        order = order[torch.from_numpy(np.argsort(place, kind="stable"))]
    return order[:most].sort().values


def folds(n: int, labels: np.ndarray | None, cv: Any, seed: int, rows: Tensor | None = None) -> list[Split]:
    """Training and held-out rows by scikit-learn's conventions, shuffled; every class has a training row.

    With ``rows`` they are positions among these. A number of folds splits them; splits that somebody made are of all n
    samples, of which these rows have a part.
    """
    if rows is not None and is_count(cv):
        return folds(len(rows), None if labels is None else labels[rows.numpy()], cv, seed)
    splits = _splits(n, labels, cv, seed)
    if rows is not None:
        place = np.full(n, -1)
        place[rows.numpy()] = np.arange(len(rows))
        splits = [(place[training], place[held_out]) for training, held_out in splits]
        splits = [(training[training >= 0], held_out[held_out >= 0]) for training, held_out in splits]
        labels = None if labels is None else labels[rows.numpy()]
    found = [_with_all_classes(labels, *split) for split in splits if len(split[0])]
    found = [(training, held_out) for training, held_out in found if len(held_out)]
    if not found:
        used = n if rows is None else len(rows)
        raise ValueError(
            f"No split of cv={cv!r} has both training and held-out samples among the {used} that are used. Give larger "
            "parts, or a number of folds."
        )
    return [(torch.from_numpy(training), torch.from_numpy(held_out)) for training, held_out in found]


def _splits(n: int, labels: np.ndarray | None, cv: Any, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    most = n if labels is None else int(np.bincount(labels).max())
    if n < 2:
        raise ValueError("Found 1 sample (n_samples = 1), of which none can be held out.")
    if most < 2:
        raise ValueError(
            "No class has two samples, so that none can be held out to choose hyperparameters or to calibrate. "
            "Give numbers for all of them and calibrated=False, or more samples."
        )
    cv = min(cv, max(2, most)) if is_count(cv) else cv
    splitter = check_cv(cv, labels, classifier=labels is not None)
    if is_count(cv):
        splitter.shuffle, splitter.random_state = True, seed
    blank = np.zeros((n, 1))
    parts = splitter.split(blank, blank[:, 0] if labels is None else labels)
    every = np.arange(n)
    try:
        return [(every[training], every[held_out]) for training, held_out in parts]
    except IndexError as error:
        raise ValueError(f"cv={cv!r} does not fit to {n} samples: {error}.") from error


def _with_all_classes(
    labels: np.ndarray | None, training: np.ndarray, held_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a class that is held out entirely move to the training part."""
    if labels is None:
        return training, held_out
    alone = ~np.isin(labels[held_out], labels[training])
    return np.append(training, held_out[alone]), held_out[~alone]
