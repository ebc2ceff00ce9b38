"""The data of an embedding: Gram matrices or explicit features of the samples, of all or of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from representer.approximation import FourierFeatures, RandomFeatures
from representer.data import take
from representer.kernels import Constant, Kernel, Linear, Polynomial
from representer.kernels.base import Scaled, Sum
from representer.kernels.learned import Mapped, Neural
from representer.linalg.memory import require
from representer.operators.adapted import Adapted, original, repaired_gram
from representer.systems.scalar import DenseSystem, FactorSystem, RidgeSystem
from representer.values import number

Features = Callable[[Kernel, Any], Tensor]


def explicit_features(kernel: Kernel, X: Any) -> Tensor | None:
    """φ(X) with k(x, y) = φ(x)ᵀφ(y), differentiable in the kernel, where few features are known; None otherwise."""
    if isinstance(kernel, Adapted):
        features = explicit_features(kernel.kernel, X)
        return None if features is None else features.to(dtype=kernel.dtype, device=kernel.device)
    if isinstance(kernel, Mapped):
        return explicit_features(kernel.kernel, kernel._image(X))
    if not (isinstance(X, Tensor) and X.ndim == 2):
        return None
    if isinstance(kernel, Linear):
        return X
    if isinstance(kernel, Constant):
        return number(kernel, "value", X).sqrt() * X.new_ones(len(X), 1)
    if isinstance(kernel, Polynomial) and kernel.degree == 1:
        gamma, coef0 = number(kernel, "gamma", X).sqrt(), number(kernel, "coef0", X).sqrt()
        return torch.cat([gamma * X, coef0 * X.new_ones(len(X), 1)], -1)
    if isinstance(kernel, Scaled):
        inner = explicit_features(kernel.kernel, X)
        return None if inner is None else number(kernel, "scale", X).sqrt() * inner
    if isinstance(kernel, Sum):
        parts = [explicit_features(part, X) for part in (kernel.left, kernel.right)]
        found = [part for part in parts if part is not None]
        return torch.cat(found, -1) if len(found) == len(parts) else None
    return None


def _known_features(kernel: Kernel, X: Any) -> Tensor:
    features = explicit_features(kernel, X)
    assert features is not None  # asked before
    return features


def n_explicit_features(kernel: Kernel, X: Any) -> int | None:
    """How many explicit features a kernel has on these data, or None."""
    with torch.no_grad():
        features = explicit_features(kernel, take(X, torch.arange(1)))
    return None if features is None else features.shape[-1]


@dataclass(frozen=True)
class EmbeddingProblem:
    """Prepared inputs of n samples, and in which form their Gram matrix is used: whole, or by a factor of features."""

    X: Any
    n: int
    pairwise: bool = False  # are the inputs a Gram matrix?
    features: Features | None = None  # of a kernel and data; None: the Gram matrix itself
    gram: Tensor | None = None  # where it is computed once and for all
    kept: Tensor | None = None  # if that was repaired, the eigenvectors that have stayed

    def rows(self, index: Tensor) -> EmbeddingProblem:
        """The same problem on some of the samples."""
        X = take(self.X, index)
        return EmbeddingProblem(X[:, index] if self.pairwise else X, len(index), self.pairwise)

    def scale(self, kernel: Kernel) -> float:
        """The mean k(x, x), by which alpha is measured: of 1,000 samples, or of all if those are zero."""
        with torch.no_grad():
            for n in dict.fromkeys((min(self.n, 1000), self.n)):
                some = self.X[:n, :n] if self.pairwise else take(self.X, torch.arange(n))
                mean = float(kernel._diag(some).mean())
                if mean != 0.0:
                    break
        if not math.isfinite(mean):
            raise ValueError(
                f"The kernel {original(kernel)!r} overflows on these data: the mean k(x, x) is {mean}. Scale the data, "
                "for example with StandardScaler."
            )
        if not mean > torch.finfo(torch.float64).tiny:
            raise ValueError(
                f"The kernel {original(kernel)!r} is zero on these data: the mean k(x, x) is {mean:g}. Nothing can "
                "be learned from it. Check and scale the data, add a constant (kernel + Constant(1.0)), or fix alpha."
            )
        return mean

    def with_features(self, kernel: Kernel, *, limit: int) -> EmbeddingProblem:
        """By explicit features where the kernel has fewer of them than ``limit``."""
        if self.features is not None or self.pairwise:
            return self
        p = n_explicit_features(kernel, self.X)
        return self if p is None or p >= limit else replace(self, features=_known_features)

    def with_fixed_gram(self, kernel: Kernel) -> EmbeddingProblem:
        """With the Gram matrix of a kernel of which nothing is learned."""
        if self.features is not None:
            return self
        gram, kept = repaired_gram(kernel, self.X)
        return replace(self, gram=gram, kept=kept)

    def matrix(self, kernel: Kernel, rows: Tensor | None = None) -> Tensor:
        """K or its factor, of all samples or of some."""
        if self.gram is not None:
            return self.gram if rows is None else self.gram[rows[:, None], rows]
        X = self.X if rows is None else take(self.X, rows)
        if self.features is not None:
            return self.features(kernel, X)
        return kernel._gram(X[:, rows] if self.pairwise and rows is not None else X, None)

    def system(self, matrix: Tensor, shift: float, intercept: bool) -> RidgeSystem:
        """The factored system of the final fit."""
        form = DenseSystem if self.features is None else FactorSystem
        return form(matrix, matrix.new_tensor(shift), intercept=intercept)

    def known(self, coefficients: Tensor) -> Tensor:
        """Coefficients of a function of the training points that means the same at new ones."""
        return coefficients if self.kept is None else self.kept @ (self.kept.mT @ coefficients)


def fourier(draw: FourierFeatures) -> Features:
    """Random features as a function of the kernel whose frequencies were drawn."""
    return lambda kernel, X: FourierFeatures(kernel, draw.frequencies)(X)


def guard_memory(n: int, searched: int, approximation: Any, element_size: int) -> None:
    """Estimate what a fit to n samples and a search on some of them need before anything of size n × n exists."""
    if approximation is not None:  # the search; the fit is by blocks
        m = approximation.size(n) if isinstance(approximation, RandomFeatures) else 0
        elements, advice = max(4 * n * m, 8 * searched**2), "Use fewer components, or a smaller batch_size."
    else:
        elements = max(8 * searched**2, 3 * n**2)
        advice = "Use approximation=Nystroem(m) or RandomFeatures(m), a smaller batch_size, or fewer samples."
    require(elements * element_size, what=f"A fit to {n} samples", advice=advice)


def on_device(kernel: Kernel, device: str | None) -> Kernel:
    """The kernel (a copy of the user's) with its networks moved to a device."""
    if device is not None:
        for _, child in kernel._children():
            if isinstance(child, Kernel):
                on_device(child, device)
        if isinstance(kernel, Neural):
            kernel.module.to(device)
    return kernel
