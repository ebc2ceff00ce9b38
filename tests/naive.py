"""Textbook definitions by double loops, to compare with: slow, plain NumPy, nothing shared with the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import gamma as gamma_function
from scipy.special import kv

Pairwise = Callable[[Any, Any], float]


def gram(k: Pairwise, X: Sequence[Any], Y: Sequence[Any] | None = None) -> np.ndarray:
    """The matrix k(x_i, y_j)."""
    return np.array([[k(x, y) for y in (X if Y is None else Y)] for x in X], dtype=float)


# -- vectors ----------------------------------------------------------------------------------------------------------
def linear() -> Pairwise:
    return lambda x, y: sum(float(a) * float(b) for a, b in zip(x, y, strict=True))


def polynomial(degree: int, gamma: float, coef0: float) -> Pairwise:
    return lambda x, y: (gamma * linear()(x, y) + coef0) ** degree


def tanimoto() -> Pairwise:
    def k(x: Any, y: Any) -> float:
        common = linear()(x, y)
        union = linear()(x, x) + linear()(y, y) - common
        return 1.0 if union == 0 else common / union

    return k


def jaccard(x: Any, y: Any) -> float:
    """The common share of two sets of features, given as binary vectors."""
    one, two = ({i for i, bit in enumerate(v) if bit} for v in (x, y))
    return len(one & two) / len(one | two) if one | two else 1.0


def _scaled_differences(x: Any, y: Any, lengthscale: Any) -> list[float]:
    scales = np.broadcast_to(np.asarray(lengthscale, dtype=float), (len(x),))
    return [(float(a) - float(b)) / float(s) for a, b, s in zip(x, y, scales, strict=True)]


def gaussian(lengthscale: Any) -> Pairwise:
    return lambda x, y: math.exp(-sum(r * r for r in _scaled_differences(x, y, lengthscale)) / 2.0)


def laplacian(lengthscale: Any) -> Pairwise:
    return lambda x, y: math.exp(-sum(abs(r) for r in _scaled_differences(x, y, lengthscale)))


def rational_quadratic(lengthscale: Any, mixture: float) -> Pairwise:
    def k(x: Any, y: Any) -> float:
        square = sum(r * r for r in _scaled_differences(x, y, lengthscale))
        return (1.0 + square / (2.0 * mixture)) ** -mixture

    return k


def matern(nu: float, lengthscale: Any) -> Pairwise:
    """2^(1−ν)/Γ(ν) · (√(2ν) r)^ν K_ν(√(2ν) r), K the modified Bessel function of the second kind."""

    def k(x: Any, y: Any) -> float:
        r = math.sqrt(2.0 * nu * sum(r * r for r in _scaled_differences(x, y, lengthscale)))
        return 1.0 if r == 0 else float(2.0 ** (1.0 - nu) / gamma_function(nu) * r**nu * kv(nu, r))

    return k


def tensor_matern(order: int, lengthscale: Any) -> Pairwise:
    """Π_j κ_{s−1/2}(|r_j|) |r_j|^{s−1/2} (Bohn, Griebel & Rieger, section 4.1), over its limit at 0."""
    nu = order - 0.5

    def factor(r: float) -> float:
        return 1.0 if r == 0 else float(kv(nu, r) * r**nu / (2.0 ** (nu - 1.0) * gamma_function(nu)))

    return lambda x, y: math.prod(factor(abs(r)) for r in _scaled_differences(x, y, lengthscale))


# -- labels, and any data ---------------------------------------------------------------------------------------------
def delta() -> Pairwise:
    return lambda x, y: float(bool(np.all(np.asarray(x, dtype=object) == np.asarray(y, dtype=object))))


def constant(value: float) -> Pairwise:
    return lambda x, y: value


# -- composition ------------------------------------------------------------------------------------------------------
def add(*parts: Pairwise) -> Pairwise:
    return lambda x, y: sum(k(x, y) for k in parts)


def multiply(*parts: Pairwise) -> Pairwise:
    return lambda x, y: math.prod(k(x, y) for k in parts)


def normalized(k: Pairwise) -> Pairwise:
    return lambda x, y: k(x, y) / math.sqrt(k(x, x) * k(y, y))


def centered(k: Pairwise, anchors: Sequence[Any]) -> Pairwise:
    """⟨φ(x) − m, φ(y) − m⟩ with m the mean feature of the anchors, written out."""
    n = len(anchors)

    def c(x: Any, y: Any) -> float:
        of_x = sum(k(x, a) for a in anchors) / n
        of_y = sum(k(y, a) for a in anchors) / n
        return k(x, y) - of_x - of_y + sum(k(a, b) for a in anchors for b in anchors) / n**2

    return c


def pullback(k: Pairwise, function: Callable[[Any], Any]) -> Pairwise:
    return lambda x, y: k(function(x), function(y))


# -- data-driven values -----------------------------------------------------------------------------------------------
def lower_median(values: Sequence[float]) -> float:
    """The median; of an even number of values, the lower of the two in the middle."""
    return sorted(values)[(len(values) - 1) // 2]


def median_distance(X: np.ndarray, p: int) -> float:
    pairs = [(i, j) for i in range(len(X)) for j in range(i)]
    return lower_median([sum(abs(a - b) ** p for a, b in zip(X[i], X[j], strict=True)) ** (1 / p) for i, j in pairs])
