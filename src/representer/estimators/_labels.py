"""Class labels as positions among the classes, and the rows of them that are held out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, column_or_1d
from torch import Tensor

from representer.data import plain


def encode(X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and the position of each label among them."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    y = column_or_1d(plain(y), warn=True)
    assert_all_finite(y, input_name="y")
    if len(y) != _num_samples(X):
        raise ValueError(f"X and y have inconsistent numbers of samples: {_num_samples(X)} and {len(y)}.")
    try:
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in y}))
        raise TypeError(
            f"Labels must be of one kind that can be sorted; y has {kinds}. Convert them to str."
        ) from error
    return check_classes(classes), labels


def check_classes(classes: np.ndarray) -> np.ndarray:
    """At least two."""
    if len(classes) < 2:
        raise ValueError(
            f"Classifier can't train when only one class is present: every label is {classes[0]!r}. At least two "
            "classes are needed."
        )
    return classes


def held_out_rows(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """Random rows of each class for validation, about this share; a class with one sample stays in training."""
    generator = torch.Generator().manual_seed(seed)
    chosen = []
    for label in labels.unique():
        rows = torch.nonzero(labels == label)[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        share = fraction * len(rows)
        n = int(share) + int(torch.rand((), generator=generator).item() < share % 1.0)
        chosen.append(rows[: min(n, len(rows) - 1)])
    found = torch.cat(chosen).sort().values
    return found if len(found) else torch.nonzero(labels == labels.mode().values)[:1, 0]
