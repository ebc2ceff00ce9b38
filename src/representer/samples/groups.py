"""Groups of samples as users pass them: labels of what belongs together, and their numbers in a fit."""

from __future__ import annotations

from collections.abc import Iterator, Set

import numpy as np

from representer.samples.in_memory import is_dask, is_single, plain
from representer.samples.records import Data, equals_itself


def check_groups(groups: Data, n: int, numbers: dict[object, int] | None = None) -> np.ndarray | None:
    """The number of each sample's group, from labels of any kind; None without groups.

    ``numbers`` maps the labels of earlier batches to their numbers; new labels are added. A Dask collection is read.
    """
    if groups is None:
        return None
    labels = _labels(groups.compute() if is_dask(groups) else groups, n)
    _refuse_absent(labels)
    try:
        if numbers is None:
            return np.unique(labels, return_inverse=True)[1]
        return np.array([numbers.setdefault(label, len(numbers)) for label in labels.tolist()])
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(f"groups mixes labels of the kinds {', '.join(kinds)}. Give labels of one kind.") from error


def _labels(groups: Data, n: int) -> np.ndarray:
    """The labels of n samples as an array (n,)."""
    if is_single(groups) or isinstance(groups, Set | Iterator):
        got = f"one {type(groups).__name__}"
    else:
        try:
            labels = np.asarray(plain(groups))
            if labels.shape == (n,):
                return labels
            got = f"an array of shape {labels.shape}"
        except ValueError:  # rows of different lengths
            got = "entries of different lengths"
    raise ValueError(
        f"groups must have one label for each of the {n} samples; got {got}. Pass a list or an array of {n} labels."
    )


def _refuse_absent(labels: np.ndarray) -> None:
    """Refuse samples without a label: None, NaN, NaT or pandas' NA."""
    if labels.dtype.kind == "O":
        absent = np.flatnonzero([label is None or not equals_itself(label) for label in labels])
    else:
        absent = np.flatnonzero(labels != labels)
    if len(absent):
        raise ValueError(
            f"groups contains NaN or None, first in row {int(absent[0])}. Give such samples labels of their own."
        )
