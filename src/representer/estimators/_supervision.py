"""Labels as further targets of an autoencoder, so that codes serve them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils._missing import is_pandas_na
from torch import Tensor

from representer.data import plain
from representer.samples.on_dask import as_rows, is_dask


def label_targets(y: Any, coordinates: Tensor, weight: float, n: int) -> Tensor:
    """Columns for y whose variance is ``weight`` times that of the data; NaN where a label is missing.

    Numbers (floats) are centred; classes (anything else) become one column each.
    """
    if y is None:
        raise ValueError("supervision is positive, but fit got no y. Pass labels, or set supervision=0.")
    y = np.asarray(plain(y))
    if y.ndim not in (1, 2) or len(y) != n:
        raise ValueError(f"y must have shape ({n},) or ({n}, n_outputs), one row a sample; got {y.shape}.")
    if y.dtype.kind not in "fiubUSO":
        raise ValueError(f"y must hold numbers or class labels; got entries of type {y.dtype}.")
    columns = np.concatenate([_columns(column) for column in y.reshape(n, -1).T], axis=1)
    columns -= np.nanmean(columns, axis=0)
    variance = np.nanmean(np.square(columns), axis=0).sum()
    if not variance > 0:
        raise ValueError("All labels in y are equal: there is nothing for codes to serve.")
    scale = (coordinates - coordinates.mean(0)).square().sum(1).mean().sqrt()
    return torch.as_tensor(columns / np.sqrt(variance)).to(coordinates) * scale * weight**0.5


def rows_of(y: Any, rows: np.ndarray) -> Any:
    """The labels of some samples, which may be all; what does not fit is left to be complained about."""
    if y is None:
        return y
    if is_dask(y):
        return np.asarray(as_rows(y, "y")[rows].compute())
    labels = np.asarray(plain(y))
    return labels[rows] if labels.ndim and len(labels) > max(len(rows), rows[-1]) else y


def _columns(column: np.ndarray) -> np.ndarray:
    """One output of y: numbers as they are, classes one-hot; NaN where it is missing."""
    missing = np.array([_is_missing(entry) for entry in column])
    if missing.all():
        raise ValueError("Every label in y is missing (NaN or None): there is nothing for codes to serve.")
    known = column[~missing]
    if known.dtype == object and all(isinstance(entry, float) for entry in known):
        known = known.astype(float)
    if known.dtype.kind == "f":
        if np.isinf(known).any():
            raise ValueError("Input y contains infinity.")
        values = known[:, None].astype(float)
    else:
        try:
            values = (known[:, None] == np.unique(known)).astype(float)
        except TypeError as error:
            raise ValueError(f"The class labels in y must be of one type ({error}).") from error
    filled = np.full((len(column), values.shape[1]), np.nan)
    filled[~missing] = values
    return filled


def _is_missing(entry: Any) -> bool:
    if entry is None or is_pandas_na(entry):
        return True
    return isinstance(entry, float | np.floating) and bool(np.isnan(entry))
