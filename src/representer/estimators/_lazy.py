"""Predictions for Dask collections: chunk by chunk, when they are asked for."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np

from representer.approximation.dask_source import DaskSource, map_rows

# What a fitted learner keeps beside what it takes to predict.
BALLAST = ("X_fit_", "loo_estimates_", "_held", "_sums", "_targets", "_weights")


def without_data(learner: Any) -> Any:
    """A copy for predictions elsewhere, without training data and without what is only kept to save time."""
    light = copy.copy(learner)
    for name in [name for name in light.__dict__ if name.startswith("_cached")]:
        del light.__dict__[name]
    light.__dict__.update({name: None for name in BALLAST if name in light.__dict__})
    light.__dict__.pop("feature_names_in_", None)  # chunks are arrays
    return light


def keep_columns(learner: Any, X: Any, source: DaskSource) -> None:
    """What a learner remembers of the columns that it was fitted to."""
    learner.n_features_in_ = source.X.shape[1]
    learner.__dict__.pop("feature_names_in_", None)
    if hasattr(X, "columns") and all(isinstance(name, str) for name in X.columns):
        learner.feature_names_in_ = np.asarray(X.columns, dtype=object)


def lazily(learner: Any, method: str, X: Any, width: int | None, dtype: Any, **options: Any) -> Any:
    """learner.method(chunk) for every chunk of a Dask collection, as a Dask array (n, width), or (n,) for None."""
    names = getattr(learner, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns") and list(X.columns) != list(names):
        raise ValueError(f"The columns of X should be those of fit, {list(names)}; got {list(X.columns)}.")
    if X.ndim == 2 and X.shape[1] != learner.n_features_in_:
        raise ValueError(f"X has {X.shape[1]} features, but the fit has seen {learner.n_features_in_}.")
    return map_rows(partial(getattr(without_data(learner), method), **options), X, width, dtype)
