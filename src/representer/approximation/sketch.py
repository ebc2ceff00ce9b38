"""Tensor sketches of polynomial kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation.base import Approximation, FeatureMap
from representer.kernels import Kernel, Polynomial, Scaled, seen_inside
from representer.samples import Data
from representer.values import is_count, number


@dataclass(frozen=True)
class SketchFeatures(FeatureMap):
    """The convolution of ``degree`` count sketches of (√gamma·x, √coef0), by the fast Fourier transform."""

    kernel: Kernel
    table: Tensor  # (2, degree, d + 1) integers, in the data's precision: where each coordinate goes, and its sign
    n_components: int

    @property
    def n_features(self) -> int:
        """The length of the sketch."""
        return self.n_components

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features: double, or that of the data."""
        return self.table.dtype

    @property
    def state(self) -> Tensor:
        """The table of the hash functions."""
        return self.table

    def __call__(self, X: Data) -> Tensor:
        """The sketches φ(x_i) as rows, (n, m)."""
        polynomial, scale = _polynomial(self.kernel)
        _, X = seen_inside(self.kernel, self.kernel.prepare(X))
        places, signs = self.table.to(X.device).long()
        if X.shape[-1] + 1 != places.shape[1]:
            raise ValueError(f"X has {X.shape[-1]} features, but the sketch is for {places.shape[1] - 1}.")
        gamma, coef0 = (number(polynomial, name, X).sqrt() for name in ("gamma", "coef0"))
        extended = torch.cat([gamma * X, coef0 * torch.ones_like(X[..., :1])], -1)
        product = None
        for place, sign in zip(places, signs, strict=True):
            sketch = X.new_zeros(*X.shape[:-1], self.n_components)
            sketch = sketch.index_add(-1, place, extended * sign.to(X))
            wave = torch.fft.rfft(sketch)
            product = wave if product is None else product * wave
        features = torch.fft.irfft(product, n=self.n_components)
        return features if scale is None else features * number(scale, "scale", X).sqrt()


class TensorSketch(Approximation):
    """Replace a polynomial kernel by the sketch of its features (Pham & Pagh, 2013): O(n(d + m log m)) a degree.

    Parameters
    ----------
    n_components : int
        The number of features m; the error falls with 1/√m.
    kernel : Kernel, str, callable or None
        Of the transformer; None is ``"poly"``. As a value of ``approximation=`` there is none: the learner has one.
    random_state : int, RandomState instance or None
        Of the transformer: the seed of the hash functions. As a value, that of the learner counts.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with the numbers that were used.
    approximation_error_ : float
        ‖K − ΦΦᵀ‖/‖K‖ in the Frobenius norm, from sampled columns of the training samples' Gram matrix.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import TensorSketch, approximation_error
    >>> from representer.kernels import Polynomial
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> features = TensorSketch(4000).features(Polynomial(3), X, seed=0)
    >>> features(X).shape, approximation_error(features, X) < 0.1
    (torch.Size([100, 4000]), True)
    >>> TensorSketch(4000, kernel=Polynomial(3), random_state=0).fit_transform(X).shape
    (100, 4000)
    """

    default_kernel = "poly"
    needs = "sketch"

    def __init__(self, n_components: int = 1000, *, kernel: Any = None, random_state: Any = None):
        self.n_components = n_components
        self.kernel = kernel
        self.random_state = random_state

    def size(self, n: int) -> int:
        """The number m of features, whatever the number of samples; anything but a positive integer is refused."""
        if not is_count(self.n_components):
            raise ValueError(f"n_components of TensorSketch must be a positive integer; got {self.n_components!r}.")
        return int(self.n_components)

    def rows(self, n: int, seed: int) -> np.ndarray:
        """One: only the number of features counts."""
        return np.arange(1)

    def choose(self, kernel: Kernel, X: Tensor, seed: int) -> SketchFeatures:
        """Draw the hash functions; the data say how many features they serve."""
        polynomial, _ = _polynomial(kernel)
        _, X = seen_inside(kernel, X)
        generator = torch.Generator().manual_seed(seed)
        shape = polynomial.degree, X.shape[-1] + 1
        places = torch.randint(self.size(1), shape, generator=generator)
        signs = 2 * torch.randint(2, shape, generator=generator) - 1
        return SketchFeatures(kernel, torch.stack([places, signs]).to(X), self.size(1))

    def restore(self, kernel: Kernel, state: Data, prepare: Callable[[Data], Data]) -> SketchFeatures:
        """The features with these hash functions."""
        return SketchFeatures(kernel, torch.as_tensor(state), self.size(1))


def _polynomial(kernel: Kernel) -> tuple[Polynomial, Scaled | None]:
    inner, _ = seen_inside(kernel)
    base = inner.kernel if isinstance(inner, Scaled) else inner
    if not isinstance(base, Polynomial):
        raise ValueError(
            f"TensorSketch takes Polynomial, or a multiple of one; got {kernel!r}. Nystroem takes any kernel, "
            "RandomFeatures stationary ones."
        )
    return base, inner if isinstance(inner, Scaled) else None
