"""Learners that are read from files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from representer.estimators.base import library_learners
from representer.persistence import read_model


def load(path: str | os.PathLike[str], trusted: Iterable[Any] = ()) -> Any:
    """Read a learner from a file that its ``save`` has written.

    Nothing that a file says is run. It can name the library's own classes, those of ``torch.nn``, NumPy arrays and the
    like; a class or a function of your own, such as a kernel or a loss, only if you trust it here by its name.

    Parameters
    ----------
    path : str or path
        The file, or the folder in which it is.
    trusted : list of str, classes or functions, default=()
        What else the file may name: ``["my_package.kernels.Cosine"]``.

    Returns
    -------
    learner : KernelLearner
        The fitted learner, which answers as the saved one did.

    Raises
    ------
    ModelFileError
        If the file is damaged, names what it may not, or was written by a version whose files cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import representer
    >>> X = np.linspace(0, 3, 20)[:, None]
    >>> model = representer.OperatorRidge(alpha=0.01).fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = representer.load(model.save(folder))
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    return read_model(path, learners=library_learners(), trusted=trusted)
