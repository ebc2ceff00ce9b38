"""Random features: Fourier features of stationary kernels, their products and sums; tensor sketches of polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation.base import Approximation, FeatureMap
from representer.kernels import (
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    Polynomial,
    Product,
    RationalQuadratic,
    Scaled,
    Stationary,
    Sum,
    seen_inside,
)
from representer.samples import Data
from representer.values import Value, is_count, number


@dataclass(frozen=True)
class Term:
    """One summand of a kernel that is expanded into a sum: a product of stationary kernels and numbers."""

    factors: tuple[Stationary, ...] = ()
    scales: tuple[tuple[Value, str], ...] = ()  # the numbers, as kernels and the names of their hyperparameters

    def __mul__(self, other: Term) -> Term:
        return Term(self.factors + other.factors, self.scales + other.scales)

    def root(self, like: Tensor) -> Tensor:
        """The square root of the product of the numbers."""
        product = like.new_ones(())
        for value, name in self.scales:
            product = product * number(value, name, like)
        return product.sqrt()


def _terms(kernel: Kernel, whole: Kernel) -> list[Term]:
    """The kernel expanded into a sum of products; an error names the whole kernel."""
    if isinstance(kernel, Gaussian | Laplacian | Matern | RationalQuadratic):
        return [Term((kernel,))]
    if isinstance(kernel, Constant):
        return [Term((), ((kernel, "value"),))]
    if isinstance(kernel, Scaled):
        return [Term((), ((kernel, "scale"),)) * term for term in _terms(kernel.kernel, whole)]
    if isinstance(kernel, Sum):
        return _terms(kernel.left, whole) + _terms(kernel.right, whole)
    if isinstance(kernel, Product):
        return [a * b for a in _terms(kernel.left, whole) for b in _terms(kernel.right, whole)]
    raise ValueError(
        f"RandomFeatures takes Gaussian, Laplacian, Matern and RationalQuadratic, and sums, products and multiples of "
        f"them; got {whole!r}. Nystroem takes any kernel, TensorSketch polynomial ones."
    )


@dataclass(frozen=True)
class FourierFeatures(FeatureMap):
    """The features φ(x) = √(2/m) [cos(Ω x/ℓ), sin(Ω x/ℓ)] with k(x, y) ≈ φ(x)ᵀφ(y) and ‖φ(x)‖² = k(x, x).

    The frequencies of a product are the sums of its factors' frequencies, because its spectral density is a
    convolution; the features of a sum stand side by side. For fixed Ω they are differentiable in the lengthscales and
    scales of the kernel.
    """

    kernel: Kernel
    frequencies: Tensor  # (d, ·) for lengthscales of 1: equally many for each factor of each term, in their order

    @property
    def n_features(self) -> int:
        """The number of features: a cosine and a sine for each frequency, and one feature for each constant."""
        terms = _terms(seen_inside(self.kernel)[0], self.kernel)
        waves = [term for term in terms if term.factors]
        return 2 * self._width(waves) * len(waves) + len(terms) - len(waves)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the frequencies."""
        return self.frequencies.dtype

    @property
    def state(self) -> Tensor:
        """The frequencies that were drawn."""
        return self.frequencies

    def _width(self, waves: list[Term]) -> int:
        return self.frequencies.shape[1] // max(1, sum(len(term.factors) for term in waves))

    def __call__(self, X: Data) -> Tensor:
        """The cosines and sines φ(x_i) as rows, (n, m)."""
        kernel, X = seen_inside(self.kernel, self.kernel.prepare(X))
        terms = _terms(kernel, self.kernel)
        width = self._width([term for term in terms if term.factors])
        if X.shape[-1] != len(self.frequencies):
            raise ValueError(f"X has {X.shape[-1]} features, but the frequencies are for {len(self.frequencies)}.")
        features, start = [], 0
        for term in terms:
            if not term.factors:
                features.append(term.root(X).expand(*X.shape[:-1], 1))
                continue
            phases = torch.zeros((), dtype=X.dtype, device=X.device)
            for factor in term.factors:
                frequencies = self.frequencies[:, start : start + width].to(X)
                phases = phases + (X / factor._lengths(X)) @ frequencies
                start += width
            scale = term.root(X) / math.sqrt(width)
            features += [phases.cos() * scale, phases.sin() * scale]
        return torch.cat(features, -1)


class DrawnFeatures(Approximation):
    """An approximation by any number of features, which are drawn without a look at the samples."""

    n_components: int

    def size(self, n: int) -> int:
        """The number m of features, whatever the number of samples; anything but a positive integer is refused."""
        if not is_count(self.n_components):
            raise ValueError(
                f"n_components of {type(self).__name__} must be a positive integer; got {self.n_components!r}."
            )
        return int(self.n_components)

    def rows(self, n: int, seed: int) -> np.ndarray:
        """The first sample only, for the number of its coordinates."""
        return np.arange(1)


class RandomFeatures(DrawnFeatures):
    """Replace a stationary kernel by random Fourier features (Rahimi & Recht, 2008): memory n·m instead of n².

    It is for Gaussian, Laplacian, Matérn and rational quadratic kernels with one lengthscale or one a feature, and for
    sums, products and multiples of them, also of transformed vectors (``Standardized``, ``Neural``).

    Parameters
    ----------
    n_components : int
        The number of features m: a cosine and a sine for each of m/2 frequencies. The summands of a kernel share them
        evenly, rounded up.
    orthogonal : bool
        Are frequencies drawn in orthogonal blocks, which have less variance (Yu et al., 2016)? Those of the Laplacian
        kernel are drawn independently in any case.
    kernel : Kernel, str, callable or None
        The kernel of the transformer; None is ``"rbf"``. A value of ``approximation=`` uses that of the learner.
    random_state : int, RandomState instance or None
        The seed of the transformer's frequencies. A value of ``approximation=`` uses that of the learner.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with numbers for all hyperparameters.
    approximation_error_ : float
        ‖K − ΦΦᵀ‖/‖K‖ in the Frobenius norm, from sampled columns of the training samples' Gram matrix.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import RandomFeatures
    >>> from representer.kernels import Gaussian, Matern
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> kernel = Gaussian(0.5) * Matern(1.5, 1.0) + 2.0
    >>> B = RandomFeatures(4000).features(kernel, X, seed=0)(X)
    >>> bool((B @ B.T - kernel(X)).abs().max() < 0.1)
    True
    >>> transformer = RandomFeatures(4000, kernel=kernel, random_state=0).fit(X)
    >>> transformer.transform(X).shape, transformer.approximation_error_ < 0.1  # the constant adds a feature
    ((50, 4001), True)
    """

    needs = "frequencies"
    moves = True

    def __init__(
        self, n_components: int = 1000, orthogonal: bool = True, *, kernel: Any = None, random_state: Any = None
    ):
        self.n_components = n_components
        self.orthogonal = orthogonal
        self.kernel = kernel
        self.random_state = random_state

    def size(self, n: int) -> int:
        """The number m of features; anything but True or False for ``orthogonal`` is refused, too."""
        if not isinstance(self.orthogonal, bool | np.bool_):
            raise ValueError(f"orthogonal of RandomFeatures must be True or False; got {self.orthogonal!r}.")
        return super().size(n)

    def choose(self, kernel: Kernel, X: Tensor, seed: int) -> FourierFeatures:
        """Draw the frequencies of a kernel with numbers for all hyperparameters but those that scale its inputs."""
        m = self.size(1)
        inner, X = seen_inside(kernel, X)
        waves = [term for term in _terms(inner, kernel) if term.factors]
        generator = torch.Generator().manual_seed(seed)
        shape = X.shape[-1], -(-m // (2 * max(1, len(waves))))
        factors = [factor for term in waves for factor in term.factors]
        blocks = [_frequencies(factor, shape, generator, self.orthogonal) for factor in factors]
        frequencies = torch.cat(blocks, 1) if blocks else torch.empty(X.shape[-1], 0, dtype=torch.float64)
        return FourierFeatures(kernel, frequencies.to(X))

    def moved(self, kernel: Kernel, X: Data, seed: int) -> Callable[[Kernel, Data], Tensor]:
        """The features of any kernel of the same form, with the frequencies drawn for this one."""
        frequencies = self.features(kernel, X, seed=seed).frequencies
        return lambda moved, data: FourierFeatures(moved, frequencies)(data)

    def restore(self, kernel: Kernel, state: Data, prepare: Callable[[Data], Data]) -> FourierFeatures:
        """The features with these frequencies."""
        return FourierFeatures(kernel, torch.as_tensor(state))


def _frequencies(kernel: Stationary, shape: tuple[int, int], generator: torch.Generator, orthogonal: bool) -> Tensor:
    """Frequencies (d, m), samples of the spectral density of a kernel with lengthscale 1."""
    d, m = shape
    if isinstance(kernel, Laplacian):  # Cauchy in each coordinate
        normal = torch.randn(2, d, m, generator=generator, dtype=torch.float64)
        return normal[0] / normal[1]
    normal = torch.randn(d, m, generator=generator, dtype=torch.float64)
    if orthogonal:
        normal = _orthogonal(d, m, generator)
    if isinstance(kernel, Matern) and not math.isinf(kernel.nu):  # Student's t with 2ν degrees of freedom
        return normal * (2.0 * kernel.nu / _chi_squared(2.0 * kernel.nu, m, generator)).sqrt()
    if isinstance(kernel, RationalQuadratic):  # a Gamma mixture of Gaussians
        mixture = float(number(kernel, "mixture", normal))
        return normal * (_chi_squared(2.0 * mixture, m, generator) / (2.0 * mixture)).sqrt()
    return normal


def _orthogonal(d: int, m: int, generator: torch.Generator) -> Tensor:
    """Normal columns (d, m) that are orthogonal to each other within blocks of d."""
    blocks = []
    for _ in range(-(-m // d)):
        Q, R = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
        rotation = Q * R.diagonal().sign()  # the sign makes Q uniform: LAPACK fixes signs in Q
        lengths = torch.randn(d, d, generator=generator, dtype=torch.float64).norm(dim=0)
        blocks.append(rotation * lengths)
    return torch.cat(blocks, 1)[:, :m]


def _chi_squared(freedom: float, m: int, generator: torch.Generator) -> Tensor:
    """m samples of the χ² distribution with these degrees of freedom."""
    shape = torch.full((m,), 0.5 * freedom, dtype=torch.float64)
    return 2.0 * torch._standard_gamma(shape, generator=generator)


@dataclass(frozen=True)
class SketchFeatures(FeatureMap):
    """The features of a tensor sketch: the convolution of ``degree`` count sketches of (√gamma·x, √coef0), by FFT."""

    kernel: Kernel
    table: Tensor  # (2, degree, d + 1): the place and the sign of each coordinate, integers in the data's precision
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


class TensorSketch(DrawnFeatures):
    """Replace a polynomial kernel by the sketch of its features (Pham & Pagh, 2013): O(n(d + m log m)) a degree.

    Parameters
    ----------
    n_components : int
        The number of features m; the error falls with 1/√m.
    kernel : Kernel, str, callable or None
        The kernel of the transformer; None is ``"poly"``. A value of ``approximation=`` uses that of the learner.
    random_state : int, RandomState instance or None
        The seed of the transformer's hash functions. A value of ``approximation=`` uses that of the learner.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with numbers for all hyperparameters.
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

    def choose(self, kernel: Kernel, X: Tensor, seed: int) -> SketchFeatures:
        """Draw the hash functions for the number of coordinates of the data."""
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
    """The polynomial kernel inside, and the multiple of it where there is one."""
    inner, _ = seen_inside(kernel)
    base = inner.kernel if isinstance(inner, Scaled) else inner
    if not isinstance(base, Polynomial):
        raise ValueError(
            f"TensorSketch takes Polynomial, or a multiple of one; got {kernel!r}. Nystroem takes any kernel, "
            "RandomFeatures stationary ones."
        )
    return base, inner if isinstance(inner, Scaled) else None
