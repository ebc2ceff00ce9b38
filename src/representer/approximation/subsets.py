"""Samples that stand for all of the data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from representer.approximation.sampling import leverage_sample, sample_rows
from representer.data import count, take
from representer.kernels.base import Kernel
from representer.parameters import is_count

SAMPLING = ("uniform", "leverage", "entropy")


def choose_samples(
    kernel: Kernel, X: Any, n_samples: int, *, sampling: str = "uniform", seed: int = 0
) -> Tensor:
    """The numbers of samples that stand for all of X, in order.

    Parameters
    ----------
    kernel : Kernel
        With numbers for all hyperparameters.
    X : prepared data
    n_samples : int
        How many, at most all.
    sampling : {"uniform", "leverage", "entropy"}
        At random; at random by recursive ridge leverage scores (Musco & Musco, 2017); or one after the other the sample
        with the least Σ k(x, chosen), so that the quadratic Rényi entropy −log mean k(chosen, chosen) stays large.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import choose_samples
    >>> from representer.kernels import Gaussian
    >>> kernel = Gaussian(1.0)
    >>> X = kernel.prepare(np.array([[0.0], [0.1], [0.2], [5.0]]))
    >>> 3 in choose_samples(kernel, X, 2, sampling="entropy").tolist()
    True
    """
    n = count(X)
    if not is_count(n_samples) or n_samples > n:
        raise ValueError(
            f"n_samples must be an integer from 1 to the number of samples, {n}; got {n_samples!r}."
        )
    if sampling == "uniform":
        return torch.from_numpy(sample_rows(n, n_samples, seed))
    if sampling == "leverage":
        return leverage_sample(kernel, X, n_samples, seed)
    if sampling == "entropy":
        return _most_spread(kernel, X, n_samples, int(sample_rows(n, 1, seed)[0]))
    raise ValueError(f"sampling must be one of {', '.join(map(repr, SAMPLING))}; got {sampling!r}.")


def _most_spread(kernel: Kernel, X: Any, n_samples: int, first: int) -> Tensor:
    """Greedy choice of samples with small Σ k(x, chosen)."""
    chosen = [first]
    sums = kernel._diag(X).clone()
    for _ in range(n_samples - 1):
        sums = sums + 2.0 * kernel._gram(X, take(X, torch.tensor(chosen[-1:])))[:, 0]
        sums[chosen[-1]] = torch.inf
        chosen.append(int(sums.argmin()))
    return torch.tensor(chosen).sort().values
