"""Labels as further targets of an autoencoder, so that codes serve them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import type_of_target
from torch import Tensor

from representer.estimators._validation import plain


def label_targets(y: Any, coordinates: Tensor, weight: float, n: int) -> Tensor:
    """Columns for y whose variance is ``weight`` times that of the data; NaN where a label is missing.

    Numbers are centred; class labels become one column a class.
    """
    if y is None:
        raise ValueError("supervision is positive, but fit got no y. Pass labels, or set supervision=0.")
    y = np.asarray(plain(y))
    if y.ndim not in (1, 2) or len(y) != n:
        raise ValueError(f"y must have shape ({n},) or ({n}, n_outputs), one row a sample; got {y.shape}.")
    rows = y.reshape(n, -1)
    missing = np.array([[_is_missing(entry) for entry in row] for row in rows]).any(1)
    if missing.all():
        raise ValueError("Every label in y is missing (NaN or None): there is nothing for codes to serve.")
    columns = _columns(rows[~missing])
    columns = columns - columns.mean(0)
    variance = np.square(columns).sum(1).mean()
    if not variance > 0:
        raise ValueError("All labels in y are equal: there is nothing for codes to serve.")
    filled = np.full((n, columns.shape[1]), np.nan)
    filled[~missing] = columns / np.sqrt(variance)
    scale = (coordinates - coordinates.mean(0)).square().sum(1).mean().sqrt()
    return torch.as_tensor(filled).to(coordinates) * scale * weight**0.5


def _columns(known: np.ndarray) -> np.ndarray:
    """Numbers as they are; classes one-hot, column by column of y."""
    if known.dtype == object and all(isinstance(entry, int | float) for entry in known.ravel()):
        known = known.astype(float)
    numeric = known.dtype.kind in "fiub"
    if numeric and not np.isfinite(known.astype(float)).all():
        raise ValueError("Input y contains infinity.")
    if numeric and type_of_target(known.squeeze(1) if known.shape[1] == 1 else known).startswith(
        "continuous"
    ):
        return known.astype(float)
    one_hot = [column[:, None] == np.unique(column) for column in known.T]
    return np.concatenate(one_hot, axis=1).astype(float)


def _is_missing(entry: Any) -> bool:
    return entry is None or (isinstance(entry, float | np.floating) and bool(np.isnan(entry)))
