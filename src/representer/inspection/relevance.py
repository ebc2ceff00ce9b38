"""How much each column matters to what a learner answers, on one scale for all learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from representer.kernels import is_frame
from representer.samples import Data, Records, as_records, evenly_spaced, plain

# Samples at which a function is asked, and how many others lend each of them an entry.
ASKED, LENT = 200, 8


def total_effects(answer: Callable[[Any], np.ndarray], X: Data) -> np.ndarray:
    """E‖f(x) − f(x′)‖² / (2 E‖f(x) − E f‖²) for each column, where x′ is x with that entry of another sample.

    It is the total effect of Sobol (in Jansen's form) for samples whose columns are exchanged independently: the share
    of the variance of f that is lost if the column is not known; 0 for a column that f does not look at. Columns that
    act together count for each of them, so that the sum may exceed one. Those of a constant function are 0.

    Parameters
    ----------
    answer : callable
        f, from samples to an array (n,) or (n, p).
    X : array (n, d) or Records
        Samples; a few hundred of them are looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.relevance import total_effects
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> total_effects(lambda X: 2.0 * X[:, 0], X).round(1).tolist()
    [1.0, 0.0, 0.0]
    """
    rows = evenly_spaced(len(X), ASKED)
    X = X.take(rows) if isinstance(X, Records) else X[rows]
    columns = list(X.columns) if isinstance(X, Records) else list(range(X.shape[1]))
    values = _as_matrix(answer(X))
    spread = float(((values - values.mean(0)) ** 2).sum(1).mean())
    if not spread > 0:
        return np.zeros(len(columns))
    # Steps around the circle of samples: the same for every column, and no sample lends to itself.
    steps = sorted({1 + (len(rows) - 1) * k // LENT for k in range(LENT)})
    changes = [[values - _as_matrix(answer(_lent(X, name, step))) for step in steps] for name in columns]
    return np.array([np.mean([(own**2).sum(1).mean() for own in column]) for column in changes]) / (2.0 * spread)


def columns_to_ask(X: Data) -> np.ndarray | Records:
    """The training samples of a model as columns; an AttributeError where they have none."""
    X = as_records(X) if isinstance(X, Records) or is_frame(X) else plain(X)
    if isinstance(X, Records) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf"):
        return X
    raise AttributeError(
        "relevance_ is one of columns, and this model has no columns of its training samples: they are objects, a Gram "
        "matrix, or were not kept (fits on Dask, partial_fit)."
    )


def _as_matrix(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1)


def _lent(X: Data, name: object, step: int) -> Data:
    """The samples, where each has the entry of a column that another one has."""
    rows = np.roll(np.arange(len(X)), step)
    if isinstance(X, Records):
        return Records({**X.columns, name: X.take(rows).columns[name]})
    changed = X.copy()
    changed[:, name] = X[rows, name]
    return changed
