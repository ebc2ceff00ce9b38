"""Dask collections: what fits by sums take, and predictions chunk by chunk, when they are asked for."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import torch

from representer.estimators._labels import check_classes
from representer.estimators.validation import in_memory as in_memory
from representer.estimators.validation import is_flat as is_flat
from representer.estimators.validation import needs_approximation as needs_approximation
from representer.estimators.validation import takes_batches as takes_batches
from representer.samples.on_dask import (
    OnDask,
    as_rows,
    is_dask,
    map_rows,
    refuse_frames,
    require_dask,
)

# What a fitted learner keeps beside what it takes to predict; its samples are no ballast to an exact fit.
BALLAST = ("loo_estimates_", "_held", "_sums", "_targets", "_weights")
SAMPLES = ("X_fit_", "Y_fit_")


def without_data(learner: Any) -> Any:
    """A copy for predictions elsewhere, without training data and without what is only kept to save time.

    Features that it evaluates come along: a factor that is computed with other threads differs in its last digits.
    """
    light = copy.copy(learner)
    for name in [name for name in light.__dict__ if name.startswith("_cached")]:
        del light.__dict__[name]
    features = learner.__dict__.get("_cached_features")
    if features is not None and getattr(learner, "_by_features", False):
        light._cached_features, light._sent = features, ("_cached_features",)
    dropped = BALLAST + (SAMPLES if getattr(learner, "_state", None) is not None else ())
    light.__dict__.update({name: None for name in dropped if name in light.__dict__})
    light.__dict__.pop("feature_names_in_", None)  # chunks are arrays
    return light


def source_on_dask(
    learner: Any,
    given: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    dtype: torch.dtype,
    targets: bool = True,
) -> OnDask:
    """The samples of a fit by sums; the learner remembers their columns, and keeps none of them."""
    needs_approximation(learner, given, given.domain)
    if y is None and targets:
        raise ValueError("requires y to be passed, but the target y is None.")
    source = OnDask(X, y, sample_weight, dtype=dtype)
    keep_columns(learner, X, source)
    learner.X_fit_ = None
    return source


def one_hot(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """A column of zeros and ones for each class."""
    return (np.asarray(labels).reshape(-1, 1) == classes).astype(float)


def one_hot_on_dask(y: Any) -> tuple[np.ndarray, Any]:
    """The classes of labels, and these as a Dask array of zeros and ones."""
    dask = require_dask()
    labels = as_rows(y if is_dask(y) else dask.array.from_array(np.asarray(y), chunks=-1), "y")
    classes = check_classes(dask.array.unique(labels.ravel()).compute())
    chunks = (labels.chunks[0], (len(classes),))
    return classes, labels.map_blocks(one_hot, classes=classes, dtype=float, new_axis=1, chunks=chunks)


def keep_columns(learner: Any, X: Any, source: OnDask) -> None:
    """What a learner remembers of the columns that it was fitted to."""
    learner.n_features_in_ = source.X.shape[1]
    learner.__dict__.pop("feature_names_in_", None)
    if hasattr(X, "columns") and all(isinstance(name, str) for name in X.columns):
        learner.feature_names_in_ = np.asarray(X.columns, dtype=object)


def check_columns(learner: Any, X: Any) -> None:
    """Refuse a collection with other columns than those of the fit."""
    names = getattr(learner, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns") and list(X.columns) != list(names):
        raise ValueError(f"The columns of X should be those of fit, {list(names)}; got {list(X.columns)}.")
    if X.ndim == 2 and X.shape[1] != learner.n_features_in_:
        raise ValueError(f"X has {X.shape[1]} features, but the fit has seen {learner.n_features_in_}.")


def lazily(
    learner: Any, method: str, X: Any, width: int | None, dtype: Any, *first: Any, **options: Any
) -> Any:
    """learner.method(chunk) for every chunk of a Dask collection, as a Dask array (n, width), or (n,) for None.

    Arguments before the chunk are ``first``, those after it ``options``.
    """
    check_columns(learner, X)
    if method == "transform":
        refuse_frames(learner)
    return map_rows(partial(getattr(without_data(learner), method), *first, **options), X, width, dtype)
