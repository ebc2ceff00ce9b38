"""Textbook oracles of conditional embeddings: dense inverses, one sample at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def gaussian(x: Array, y: Array, lengthscale: float | Array = 1.0) -> float:
    return math.exp(
        -sum(((a - b) / s) ** 2 for a, b, s in zip(x, y, np.broadcast_to(lengthscale, x.shape), strict=True)) / 2
    )


def gram(X: Array, Y: Array, kernel: Callable[[Array, Array], float]) -> Array:
    return np.array([[kernel(x, y) for y in Y] for x in X])


def weights(K: Array, k: Array, alpha: float, intercept: bool) -> Array:
    """w(x) for each row of k = k(x, X), so that Σ_i w_i(x) y_i is the ridge prediction for targets y."""
    n = len(K)
    if not intercept:
        return np.array([np.linalg.inv(K + n * alpha * np.eye(n)) @ row for row in k])
    found = np.zeros((len(k), n))
    for i in range(n):  # a ridge fit with a constant to the i-th unit vector
        system = np.block([[K + n * alpha * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        solution = np.linalg.solve(system, np.append(np.eye(n)[i], 0.0))
        found[:, i] = k @ solution[:n] + solution[n]
    return found


def clip_normalized(estimates: Array) -> Array:
    """Equation (6)."""
    rows = []
    for f in estimates:
        positive = [max(v, 0.0) for v in f]
        rows.append([v / sum(positive) for v in positive])
    return np.array(rows)


def entropies(estimates: Array, labels: list[int], w: Array) -> tuple[Array, Array]:
    """(33), and (37) as û_xᵀ w(x) over the training labels."""
    p = clip_normalized(estimates)
    first = [-sum(v * math.log(v) for v in row if v > 0) for row in p]
    second = []
    for f, row in zip(estimates, w, strict=True):
        information = [-math.log(f[c]) if f[c] > 0 else 0.0 for c in labels]
        second.append(max(0.0, float(np.dot(information, row))))
    return np.array(first), np.array(second)


def explicit_complexity(Z: Array, Y: Array, alpha: float) -> float:
    """r by explicit features: the Frobenius norm of W = (ZᵀZ + nλI)⁻¹ZᵀY times max ‖z‖ (Algorithm 2)."""
    n, p = Z.shape
    W = np.linalg.inv(Z.T @ Z + n * alpha * np.eye(p)) @ Z.T @ Y
    return math.sqrt(max(z @ z for z in Z) * np.sum(W**2))


def squared_mmd(X: Array, Y: Array, kernel: Callable[[Array, Array], float], unbiased: bool) -> float:
    def mean(A: Array, B: Array, skip: bool) -> float:
        values = [kernel(a, b) for i, a in enumerate(A) for j, b in enumerate(B) if not (skip and i == j)]
        return sum(values) / len(values)

    return mean(X, X, unbiased) + mean(Y, Y, unbiased) - 2 * mean(X, Y, False)


def herding(Y: Array, w: Array, kernel: Callable[[Array, Array], float], n: int) -> list[int]:
    chosen: list[int] = []
    for t in range(n):
        scores = [
            sum(w[i] * kernel(Y[i], y) for i in range(len(Y))) - sum(kernel(y, Y[s]) for s in chosen) / (t + 1)
            for y in Y
        ]
        chosen.append(int(np.argmax(scores)))
    return chosen
