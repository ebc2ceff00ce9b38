"""Operator-valued kernels and their ridge systems by their definitions: loops over pairs, dense solves, refits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from naive import Pairwise

Matrixwise = Callable[[Any, Any], np.ndarray]


def block_matrix(K: Matrixwise, X: Sequence[Any], Y: Sequence[Any] | None = None) -> np.ndarray:
    """The matrix of the blocks K(x_i, y_j)."""
    return np.block([[K(x, y) for y in (X if Y is None else Y)] for x in X])


# -- kernels ----------------------------------------------------------------------------------------------------------
def decomposable(k: Pairwise, A: Any) -> Matrixwise:
    return lambda x, y: k(x, y) * np.asarray(A)


def separate(*kernels: Pairwise) -> Matrixwise:
    return lambda x, y: np.diag([k(x, y) for k in kernels])


def add(*terms: Matrixwise) -> Matrixwise:
    return lambda x, y: sum((K(x, y) for K in terms), np.zeros(()))


def transformable(k: Pairwise, maps: Sequence[Callable[[Any], Any]]) -> Matrixwise:
    return lambda x, y: np.array([[k(S(x), T(y)) for T in maps] for S in maps])


def gaussian_hessian(x: Any, y: Any, lengthscale: float) -> np.ndarray:
    """The second derivatives of exp(−‖δ‖²/(2ℓ²)) in δ, at δ = x − y, by automatic differentiation."""

    def gaussian(delta: torch.Tensor) -> torch.Tensor:
        return torch.exp(-(delta**2).sum() / (2.0 * lengthscale**2))

    delta = torch.as_tensor(np.asarray(x, dtype=float) - np.asarray(y, dtype=float))
    return torch.autograd.functional.hessian(gaussian, delta).numpy()


def curl_free(lengthscale: float) -> Matrixwise:
    """−ℓ²∇∇ᵀg."""
    return lambda x, y: -(lengthscale**2) * gaussian_hessian(x, y, lengthscale)


def divergence_free(lengthscale: float) -> Matrixwise:
    """ℓ²(∇∇ᵀ − ∇²I)g / (d − 1)."""

    def K(x: Any, y: Any) -> np.ndarray:
        hessian = gaussian_hessian(x, y, lengthscale)
        d = len(hessian)
        return lengthscale**2 * (hessian - np.trace(hessian) * np.eye(d)) / (d - 1)

    return K


# -- operators of Kadri et al. ----------------------------------------------------------------------------------------
def covariance(Y: np.ndarray) -> np.ndarray:
    """(1/n) Σ y_i y_iᵀ."""
    return sum((np.outer(y, y) for y in Y), np.zeros(())) / len(Y)


def conditional_covariance(Y: np.ndarray, features: np.ndarray, epsilon: float) -> np.ndarray:
    """C_YY − C_YX (C_XX + εI)⁻¹ C_XY with the features of the inputs written out."""
    n = len(Y)
    C_yy, C_xx, C_yx = Y.T @ Y / n, features.T @ features / n, Y.T @ features / n
    return C_yy - C_yx @ np.linalg.solve(C_xx + epsilon * np.eye(len(C_xx)), C_yx.T)


# -- vector fields ----------------------------------------------------------------------------------------------------
def jacobian(field: Callable[[np.ndarray], np.ndarray], x: np.ndarray, step: float = 1e-4) -> np.ndarray:
    """∂f_a/∂x_b by central differences."""
    columns = []
    for unit in np.eye(len(x)):
        columns.append((field(x + step * unit) - field(x - step * unit)) / (2.0 * step))
    return np.stack(columns, axis=1)


# -- ridge systems ----------------------------------------------------------------------------------------------------
@dataclass
class Ridge:
    """(K + diag(noise)) c = y on the observed entries, by the block matrix; the noise is one number a sample."""

    block: np.ndarray  # (n·p, n·p)
    noise: np.ndarray  # (n,)
    observed: np.ndarray  # (n, p)

    def _index(self, without: int | None = None) -> np.ndarray:
        kept = self.observed.copy()
        if without is not None:
            kept[without] = False
        return np.flatnonzero(kept)

    def _system(self, index: np.ndarray) -> np.ndarray:
        noise = np.repeat(self.noise, self.observed.shape[1])[index]
        return self.block[np.ix_(index, index)] + np.diag(noise)

    def solve(self, Y: np.ndarray, without: int | None = None) -> np.ndarray:
        """The coefficients (n, p), of all samples or without one of them."""
        index = self._index(without)
        c = np.zeros(self.observed.size)
        c[index] = np.linalg.solve(self._system(index), Y.reshape(-1)[index])
        return c.reshape(self.observed.shape)

    def loo(self, Y: np.ndarray) -> np.ndarray:
        """The predictions for each sample by the fit without it: n refits."""
        p = self.observed.shape[1]
        fits = (self.solve(Y, without=i).reshape(-1) for i in range(len(Y)))
        return np.stack([self.block[i * p : (i + 1) * p] @ c for i, c in enumerate(fits)])

    def loo_variance(self) -> np.ndarray:
        """K(x_i, x_i) + noise − what the other samples explain of it, for the observed outputs; NaN elsewhere."""
        variance = np.full(self.observed.shape, np.nan)
        p = self.observed.shape[1]
        for i in range(len(variance)):
            own = i * p + np.flatnonzero(self.observed[i])
            rest = self._index(without=i)
            cross = self.block[np.ix_(own, rest)]
            schur = self._system(own) - cross @ np.linalg.solve(self._system(rest), cross.T)
            variance[i, self.observed[i]] = schur.diagonal()
        return variance

    def variance(self, cross: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """The diagonal of K(x, x) − K_x Q K_xᵀ; ``cross`` (m·p, n·p) and ``prior`` (m·p,) at new points."""
        index = self._index()
        cross = cross[:, index]
        explained = (cross * np.linalg.solve(self._system(index), cross.T).T).sum(1)
        return (prior - explained).reshape(-1, self.observed.shape[1])


def loo_error(block: np.ndarray, Y: np.ndarray, alpha: float, weights: np.ndarray, observed: np.ndarray) -> float:
    """(1/n) Σ w_i ‖y_i − f₋ᵢ(x_i)‖² over the observed entries; f₋ᵢ has the noise n·alpha/w of the whole fit."""
    residuals = np.where(observed, Y - Ridge(block, len(Y) * alpha / weights, observed).loo(Y), 0.0)
    return float((weights[:, None] * residuals**2).sum() / len(Y))


def gcv_error(block: np.ndarray, Y: np.ndarray, alpha: float, weights: np.ndarray) -> float:
    """(1/n) Σ ‖M̄⁻¹ r_i‖², r = (I − H) y with the hat matrix H in weighted coordinates, M̄ the mean block of I − H."""
    n, p = Y.shape
    root = np.sqrt(np.repeat(weights, p))
    weighted = block * np.outer(root, root)
    rest = np.eye(n * p) - weighted @ np.linalg.inv(weighted + n * alpha * np.eye(n * p))
    mean = np.mean([rest[i * p : (i + 1) * p, i * p : (i + 1) * p] for i in range(n)], axis=0)
    residuals = (rest @ (root * Y.reshape(-1))).reshape(n, p)
    return float((np.linalg.solve(mean, residuals.T) ** 2).sum() / n)


def numeric_gradient(function: Callable[[np.ndarray], float], point: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences along the axes."""
    units = step * np.eye(len(point))
    return np.array([(function(point + u) - function(point - u)) / (2.0 * step) for u in units])
