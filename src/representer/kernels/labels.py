"""Kernels on labels: symbols that are equal or not."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel


class Delta(Kernel):
    """k(x, y) = 1 if x = y else 0, for labels of any type (rows of labels are equal if all their entries are).

    Examples
    --------
    >>> from representer.kernels import Delta
    >>> Delta()(["a", "b", "a"]).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    domain: Domain = "labels"

    def prepare(self, X: Any) -> list[Hashable]:
        """Labels as a list; a row of several labels is a tuple."""
        if isinstance(X, str) or getattr(X, "ndim", 1) not in (1, 2):
            raise ValueError(
                "Delta takes a sequence of labels, of shape (n_samples,) or (n_samples, n_labels); got "
                f"{type(X).__name__} of shape {tuple(getattr(X, 'shape', ()))}."
            )
        if isinstance(X, Tensor):
            X = X.detach().cpu()
        labels = [_label(item) for item in (X if isinstance(X, list | tuple) else np.asarray(X).tolist())]
        if not labels:
            raise ValueError("Found 0 labels: a kernel needs at least one.")
        return labels

    def _gram(self, X: Sequence[Hashable], Y: Sequence[Hashable] | None) -> Tensor:
        codes: dict[Hashable, int] = {}
        rows = torch.tensor([codes.setdefault(label, len(codes)) for label in X])
        columns = rows if Y is None else torch.tensor([codes.get(label, -1) for label in Y])
        return (rows[:, None] == columns[None, :]).to(torch.float64)

    def _diag(self, X: Sequence[Hashable]) -> Tensor:
        return torch.ones(len(X), dtype=torch.float64)


def _label(item: Any) -> Hashable:
    """One label: a symbol, or a tuple of at least two."""
    if isinstance(item, np.ndarray | Tensor):
        item = item.tolist()
    if isinstance(item, list | tuple):
        return _label(item[0]) if len(item) == 1 else tuple(map(_label, item))
    if isinstance(item, float) and item != item:
        raise ValueError(
            "The labels contain NaN, which is not equal to itself. Remove these samples or name the gap."
        )
    try:
        hash(item)
    except TypeError:
        raise ValueError(f"A label must be hashable (a number, a string, a tuple …); got {item!r}.") from None
    return item
