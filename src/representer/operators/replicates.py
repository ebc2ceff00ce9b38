"""Inputs that a kernel cannot tell apart: their images in its RKHS have no distance."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Callable, Kernel, Stack
from representer.operators.base import OperatorKernel
from representer.samples import Data, count, equal_rows, evenly_spaced, joined_groups, plain, take
from representer.values import all_values

# Objects are compared with so many of them first; only those with equal answers are compared with each other.
ANCHORS = 16
# The squared distance k(x, x) + k(y, y) − 2k(x, y), as a share of k(x, x) + k(y, y), up to which inputs are equal.
EQUAL = 1e-12


def replicates(kernel: Kernel | OperatorKernel | Stack, X: Data) -> np.ndarray | None:
    """A number (n,) for each of the prepared inputs, the same one for equal inputs; None where all are distinct.

    Vectors are equal if their numbers are, up to rounding. Other inputs are equal if a kernel has no distance between
    them: ‖k(x, ·) − k(y, ·)‖ = 0. Of several kernels any one decides. A function of whole collections is not asked for
    parts of them.

    Examples
    --------
    >>> from representer.kernels import Spectrum
    >>> from representer.operators import replicates
    >>> replicates(Spectrum(1), ["ab", "abc", "ba"]).tolist()
    [0, 1, 0]
    """
    if kernel.domain == "vectors":
        numbers = equal_rows(X.detach().cpu().numpy() if isinstance(X, Tensor) else X)
    elif any(isinstance(value, Callable) and value.batched for value in all_values(kernel)):
        return None
    elif isinstance(kernel, Kernel):
        numbers = _equal_objects(kernel, kernel.prepare(X))  # of several kernels, each prepares them in its own way
    else:
        parts = [replicates(child, X) for _, child in kernel._children() if isinstance(child, Kernel | OperatorKernel)]
        joined = joined_groups(*parts)
        return joined
    return None if len(np.unique(numbers)) == len(numbers) else numbers


def _equal_objects(kernel: Kernel, X: Data) -> np.ndarray:
    """Inputs without a distance, found among those that are as similar to some anchors."""
    n = count(X)
    anchors = evenly_spaced(n, ANCHORS)
    with torch.no_grad():
        kernel = kernel._resolve(X)
        similarities = X[:, anchors] if kernel.domain == "gram" else kernel._gram(X, take(X, torch.from_numpy(anchors)))
        numbers = equal_rows(plain(similarities))
        _, members, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
        alike = np.argsort(members, kind="stable")
        for rows in np.split(alike, np.cumsum(sizes)[:-1]):
            if len(rows) > 1:
                numbers[rows] = rows[_together(kernel, X, rows)]
    return numbers


def _together(kernel: Kernel, X: Data, rows: np.ndarray) -> np.ndarray:
    """For each of some inputs the place of the first one from which it has no distance."""
    index = torch.from_numpy(rows)
    gram = X[index[:, None], index] if kernel.domain == "gram" else kernel._gram(take(X, index), None)
    own = gram.diagonal()
    total = own[:, None] + own
    tolerance = max(EQUAL, 100.0 * torch.finfo(gram.dtype).eps)
    return plain((total - 2.0 * gram <= tolerance * total).to(torch.uint8).argmax(1))
