"""Distributions as elements of a reproducing kernel Hilbert space: weighted sums of l(·, y_i)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Kernel, as_kernel
from representer.linalg import row_blocks
from representer.samples import Data, count, same_features, take

# l(y, y') of pairs is the diagonal of a Gram matrix of so many of them at once.
PAIRS = 64


@dataclass(frozen=True)
class Embedding:
    """q elements μ_a = Σ_i w_ai l(·, y_i) of the RKHS of l, such as the mean embeddings of q distributions.

    Parameters
    ----------
    kernel : Kernel
        l, with numbers for all hyperparameters.
    anchors : prepared data
        The n samples y_i that all elements share.
    weights : tensor (q, n)
        The w_ai.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import Linear
    >>> one, two = mean_embedding([[1.0], [3.0]], Linear()), mean_embedding([[5.0]], Linear())
    >>> one([[10.0]]).item(), one.inner(two).item(), one.distance(two).item()
    (20.0, 10.0, 3.0)
    """

    kernel: Kernel
    anchors: Data
    weights: Tensor

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, rows: Any) -> Embedding:
        """The elements with these numbers."""
        return Embedding(self.kernel, self.anchors, self.weights[rows].reshape(-1, self.weights.shape[1]))

    def __call__(self, Y: Data) -> Tensor:
        """μ_a(y_j), (q, m): the expectations of l(y_j, ·)."""
        Y = self._prepared(Y)
        step = row_blocks(count(Y), self.weights.shape[1] * self.weights.element_size())
        return torch.cat([self.weights @ self._gram(Y[rows]) for rows in step], -1)

    def _prepared(self, Y: Data) -> Any:
        """Samples as the kernel takes them, in the precision of the weights."""
        Y = self.kernel.prepare(Y)
        if isinstance(Y, Tensor):
            if self.kernel.domain == "vectors":
                same_features(self.anchors, Y)
            Y = Y.to(self.weights)
        return Y

    def _gram(self, Y: Data) -> Tensor:
        return self.kernel._gram(self.anchors, Y).to(self.weights)

    def expect(self, g: Any) -> Tensor:
        """Σ_i w_ai g(y_i), (q,) or (q, p): a function of the samples, or its values at them, (n,) or (n, p)."""
        return self.weights @ as_values(g, self.anchors, self.weights)

    def inner(self, other: Embedding | None = None) -> Tensor:
        """⟨μ_a, ν_b⟩, (q, r)."""
        other = self if other is None else self._fitting(other)
        return self(other.anchors) @ other.weights.mT

    def squared_norms(self) -> Tensor:
        """The squared norms ‖μ_a‖², (q,)."""
        return (self(self.anchors) * self.weights).sum(-1)

    def distance(self, other: Embedding | None = None) -> Tensor:
        """‖μ_a − ν_b‖, (q, r): the maximum mean discrepancies."""
        other = self if other is None else other
        squares = self.squared_norms()[:, None] + other.squared_norms() - 2.0 * self.inner(other)
        return squares.clamp(min=0.0).sqrt()

    def explained(self, Y: Data) -> float:
        """R² in the RKHS: 1 − Σ‖φ(y_a) − μ_a‖² / Σ‖φ(y_a) − mean‖² for the true y_a (q,) of the elements."""
        Y, q = self._prepared(Y), len(self)
        norms = self.kernel._diag(Y).to(self.weights).sum()
        error, total = self.squared_norms().sum() + norms, norms.clone()
        for rows in row_blocks(q, 2 * (q + self.weights.shape[1]) * self.weights.element_size()):
            error -= 2.0 * (self._gram(Y[rows]).mT * self.weights[rows]).sum()
            total -= self.kernel._gram(Y[rows], Y).to(self.weights).sum() / q
        rounding = q * torch.finfo(norms.dtype).eps * norms
        return float(error <= rounding) if total <= rounding else 1.0 - float(error / total)

    def _fitting(self, other: Embedding) -> Embedding:
        if other.kernel != self.kernel:
            raise ValueError(
                f"These embeddings live in different spaces: their kernels are {self.kernel!r} and {other.kernel!r}. "
                "Make both with the same kernel, with numbers for its hyperparameters."
            )
        return other


def squared_distances(kernel: Kernel, one: Any, two: Any) -> Tensor:
    """‖φ(y_i) − φ(y'_i)‖² of pairs of prepared samples, (n,)."""
    cross = []
    for start in range(0, count(one), PAIRS):
        rows = torch.arange(start, min(start + PAIRS, count(one)))
        cross.append(kernel._gram(take(one, rows), take(two, rows)).diagonal())
    squares = kernel._diag(one) + kernel._diag(two) - 2.0 * torch.cat(cross)
    return squares.clamp(min=0.0)


def as_values(g: Any, samples: Any, like: Tensor) -> Tensor:
    """The values of a function at samples, or these values themselves, as a tensor (n,) or (n, p)."""
    if isinstance(g, Callable):  # type: ignore[arg-type]
        g = g(own_copy(samples))
    values = g.detach() if isinstance(g, Tensor) else torch.as_tensor(np.asarray(g, dtype=np.float64))
    if values.ndim not in (1, 2) or len(values) != count(samples):
        raise ValueError(
            f"g must give one value, or one vector, for each of the {count(samples)} samples of Y that were fitted: an "
            f"array of shape ({count(samples)},) or ({count(samples)}, p); got {tuple(values.shape)}."
        )
    return values.to(like)


def own_copy(samples: Any) -> Any:
    """Samples to hand to a function of the user's, which may write into them."""
    if isinstance(samples, Tensor):
        return samples.detach().cpu().clone().numpy()
    return samples.copy() if hasattr(samples, "copy") else samples


def mean_embedding(Y: Data, kernel: Any = "rbf", *, weights: Any | None = None) -> Embedding:
    """The mean embedding Σ_i w_i l(·, y_i) of a sample.

    Parameters
    ----------
    Y : data
        The sample: what the kernel takes.
    kernel : Kernel or str, default="rbf"
        l; a word in it (``"median"``) is given its number by Y.
    weights : array-like of shape (n_samples,), default=None
        The w_i; None: all 1/n.

    Returns
    -------
    embedding : Embedding
        One element.
    """
    given = as_kernel(kernel)
    Y = given.prepare(Y)
    given = given.resolve(Y)
    n = count(Y)
    like = Y if isinstance(Y, Tensor) else torch.zeros((), dtype=torch.float64)
    if weights is None:
        values = torch.full((1, n), 1.0 / n, dtype=like.dtype, device=like.device)
    else:
        values = torch.as_tensor(np.asarray(weights, dtype=np.float64)).to(like).reshape(1, -1)
        if values.shape[1] != n:
            raise ValueError(f"weights must have one entry for each of the {n} samples; got {values.shape[1]}.")
    return Embedding(given, Y, values)
