"""Ridge regression by a dense solve in extended precision: what an exact fit must say to 100·κ·ε."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from fuzz.cases import Case

EPS = np.finfo(np.float64).eps
Extended = np.longdouble


class Answer(NamedTuple):
    """Predictions (m, p), and how far rounding may take a fit in double precision from them."""

    predictions: np.ndarray
    allowed: float


def dense_answer(case: Case) -> Answer | None:
    """The answer of a ridge regression with a plain kernel and numbers for everything; None where there is no such."""
    if case.learner != "OperatorRidge" or case.kind != "vectors" or not case.is_given or "dtype" in case.arguments:
        return None
    if case.target == "missing" or case.weighted or case.noisy or {"operator", "approximation"} & case.arguments.keys():
        return None
    kernel = _kernel(case.arguments["kernel"])
    if kernel is None:
        return None
    X, y, Q = case.data
    X, Q, Y = X.astype(Extended), Q.astype(Extended), np.asarray(y, Extended).reshape(len(X), -1)
    n, alpha = len(X), Extended(case.arguments["alpha"])
    K, k = kernel(X, X), kernel(Q, X)
    W = K + n * alpha * np.eye(n, dtype=Extended)
    if not (np.isfinite(W).all() and np.isfinite(k).all() and np.abs(W).max() < 1e250):
        return None
    ones = np.ones((n, 1), Extended)
    solved = _solve(W, np.hstack([Y, ones]))
    if solved is None:
        return None
    b = np.zeros(Y.shape[1], Extended)
    C = solved[:, :-1]
    if case.arguments["fit_intercept"] == "True":
        b = C.sum(0) / solved[:, -1].sum()
        C = C - solved[:, -1:] * b
    predictions = np.asarray(k @ C + b, float)
    values = np.abs(np.linalg.eigvalsh(W.astype(float)))
    scale = max(np.abs(predictions).max(), float(np.abs(Y).max()))
    return Answer(predictions, 100.0 * values.max() / max(values.min(), 1e-300) * EPS * scale)


def _kernel(text: str):  # type: ignore[no-untyped-def]
    """The kernel that a piece of code makes, in extended precision; None for those that are not known here."""
    match = re.fullmatch(r"(2\.0 \* )?(\w+)\(([^()]*)\)( \+ 0\.5)?", text)
    if match is None:
        return None
    factor, name, arguments, constant = match.groups()
    numbers = [Extended(part) for part in arguments.split(",") if part.strip()]
    profile = _PROFILES.get(name)
    if profile is None:
        return None

    def gram(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        K = profile(X, Y, *numbers)
        return K * (2 if factor else 1) + (Extended(0.5) if constant else 0)

    return gram


def _distances(X: np.ndarray, Y: np.ndarray, scale: np.longdouble) -> np.ndarray:
    """Distances in units of the scale: points are subtracted first, because far from zero a quotient loses digits."""
    return np.sqrt((((X[:, None] - Y) / scale) ** 2).sum(-1))


def _matern(X: np.ndarray, Y: np.ndarray, nu: np.longdouble, scale: np.longdouble) -> np.ndarray:
    r = np.sqrt(2 * nu) * _distances(X, Y, scale)
    polynomial = {0.5: 1 + 0 * r, 1.5: 1 + r, 2.5: 1 + r + r**2 / 3}[float(nu)]
    return polynomial * np.exp(-r)


_PROFILES = {
    "Gaussian": lambda X, Y, scale: np.exp(-(_distances(X, Y, scale) ** 2) / 2),
    "Laplacian": lambda X, Y, scale: np.exp(-np.abs((X[:, None] - Y) / scale).sum(-1)),
    "Matern": _matern,
    "Linear": lambda X, Y: X @ Y.T,
}


def _solve(W: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """W⁻¹ R by a Cholesky factorisation; None where W is not positive definite."""
    n = len(W)
    L = np.zeros_like(W)
    for j in range(n):
        pivot = W[j, j] - L[j, :j] @ L[j, :j]
        if not pivot > 0 or not math.isfinite(float(pivot)):
            return None
        L[j, j] = np.sqrt(pivot)
        L[j + 1 :, j] = (W[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    x = right.copy()
    for j in range(n):
        x[j] = (x[j] - L[j, :j] @ x[:j]) / L[j, j]
    for j in reversed(range(n)):
        x[j] = (x[j] - L[j + 1 :, j] @ x[j + 1 :]) / L[j, j]
    return x
