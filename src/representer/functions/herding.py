"""Kernel herding: samples that represent a distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from representer.functions.embedding import Embedding
from representer.samples import Data, take
from representer.values import is_count


def herd(embedding: Embedding, n_samples: int = 10, *, candidates: Data | None = None) -> Any:
    """Samples that represent a distribution better than random ones: kernel herding (Chen, Welling & Smola, 2010).

    Chooses y_1, y_2, … one after the other, each where μ(y) − 1/(t + 1) Σ_{s≤t} l(y, y_s) is greatest: so the mean of
    the l(·, y_s) approaches μ in the RKHS of l.

    Parameters
    ----------
    embedding : Embedding
        One element μ: of ``mean_embedding``, or one row of ``ConditionalMeanEmbedding.embedding``.
    n_samples : int, default=10
        How many; a candidate may be chosen more than once.
    candidates : data, default=None
        Where to look; None: the samples that the embedding is made of.

    Returns
    -------
    samples : ndarray of shape (n_samples, n_features), or list
        Of the kind of the candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import herd, mean_embedding
    >>> Y = np.random.default_rng(0).normal(size=(500, 1))
    >>> samples = herd(mean_embedding(Y), 20)
    >>> bool(abs(samples.mean()) < 0.1), bool(abs(samples.std() - 1) < 0.2)
    (True, True)
    """
    if len(embedding.weights) != 1:
        raise ValueError(
            f"herd takes one element; the embedding has {len(embedding.weights)}. Choose one: embedding[i]."
        )
    if not is_count(n_samples):
        raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
    kernel = embedding.kernel
    points = embedding.anchors if candidates is None else kernel.prepare(candidates)

    def similar(index: Tensor) -> Tensor:
        return kernel._gram(take(points, index), points)

    chosen = take(points, herd_rows(embedding(points), similar, n_samples)[0])
    return chosen.cpu().numpy() if isinstance(chosen, Tensor) else chosen


def herd_rows(values: Tensor, similar: Callable[[Tensor], Tensor], n_samples: int) -> Tensor:
    """Herding of q elements at once: the numbers (q, n_samples) of the candidates that are chosen.

    ``values`` (q, m) are the elements at the candidates; ``similar`` maps q numbers to their rows of the Gram matrix.
    """
    sums, chosen = torch.zeros_like(values), []
    for t in range(n_samples):
        best = ((t + 1) * values - sums).argmax(-1)
        chosen.append(best)
        sums = sums + similar(best).to(sums)
    return torch.stack(chosen, -1)
