"""Compositions of functions from reproducing kernel Hilbert spaces, as Bohn, Griebel & Rieger (2019) write them.

Plain NumPy, nothing shared with the library. λ and μ stand beside a *sum* of losses, as in the paper: both are n·alpha
of the library, and the values here are n times the library's. The paper numbers layers from the output on; here, as in
the library, lists of layers begin at the input. An inner kernel is a function of two points that gives a D × D matrix,
an outer kernel one that gives a number.

The paper writes g = Σ_j K(x_j, ·) c_j in (16) but ‖g‖² = Σ_jk c_jᵀ K(x_j, x_k) c_k in (18). If K(x, y) is not a
symmetric matrix, these belong together only when (16) is read as Σ_j K(·, x_j) c_j, which is how it is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gamma, kv

Array = NDArray[np.float64]
Pairwise = Callable[[Array, Array], float]
MatrixKernel = Callable[[Array, Array], Array]
Scalar = Callable[[float], float]


# -- section 4.1: kernels ---------------------------------------------------------------------------------------------
def polynomial(degree: int) -> Pairwise:
    return lambda x, y: float(x @ y + 1.0) ** degree


def gaussian(sigma: float) -> Pairwise:
    return lambda x, y: math.exp(-float(np.sum((x - y) ** 2)) / (2.0 * sigma**2))


def printed_tensor_matern(order: int) -> Pairwise:
    """Π_i κ_{s−1/2}(r_i) r_i^{s−1/2} with r_i = |x_i − y_i|, as printed; at r = 0 its limit."""
    nu = (2 * order - 1) / 2

    def factor(r: float) -> float:
        return float(kv(nu, r) * r**nu) if r > 0 else _matern_at_zero(nu)

    return lambda x, y: math.prod(factor(abs(float(a - b))) for a, b in zip(x, y, strict=True))


def tensor_matern(order: int, dimension: int) -> Pairwise:
    """The printed kernel over its value at 0, which is the library's ``TensorMatern(order, 1.0)``."""
    at_zero = _matern_at_zero((2 * order - 1) / 2) ** dimension
    printed = printed_tensor_matern(order)
    return lambda x, y: printed(x, y) / at_zero


def _matern_at_zero(nu: float) -> float:
    """lim κ_ν(r) r^ν = 2^(ν−1) Γ(ν), which is √(π/2) for ν = 1/2."""
    return float(2.0 ** (nu - 1.0) * gamma(nu))


def times(k: Pairwise, A: ArrayLike) -> MatrixKernel:
    """k(x, y) A; with A = diag(a), equation (20)."""
    matrix = np.asarray(A, dtype=float)
    return lambda x, y: k(x, y) * matrix


def separate(*kernels: Pairwise) -> MatrixKernel:
    """A diagonal of different scalar kernels, as in section 4.2.3."""
    return lambda x, y: np.diag([k(x, y) for k in kernels])


def gram(k: Pairwise, X: Array, Y: Array | None = None) -> Array:
    """M_{X,Y} of (4)."""
    return np.array([[k(x, y) for y in (X if Y is None else Y)] for x in X])


# -- theorem 1: compositions from their coefficients ------------------------------------------------------------------
def value(K: MatrixKernel, anchors: Array, c: Array, x: Array) -> Array:
    """Σ_j K(x, z_j) c_j: (16)."""
    return np.sum([K(x, z) @ c_j for z, c_j in zip(anchors, c, strict=True)], axis=0)


def squared_norm(K: MatrixKernel, anchors: Array, c: Array) -> float:
    """𝒩(c) = Σ_jk c_jᵀ K(z_j, z_k) c_k: (18)."""
    total = 0.0
    for z_j, c_j in zip(anchors, c, strict=True):
        for z_k, c_k in zip(anchors, c, strict=True):
            total += float(c_j @ K(z_j, z_k) @ c_k)
    return total


def evaluate(kernels: Sequence[MatrixKernel], coefficients: Sequence[Array], X: Array, new: Array) -> list[Array]:
    """Every intermediate image of new points; the anchors of a layer are the images of X under the layers before it."""
    images = []
    for K, c in zip(kernels, coefficients, strict=True):
        X, new = (np.array([value(K, X, c, x) for x in points]) for points in (X, new))
        images.append(new)
    return images


def squared_norms(kernels: Sequence[MatrixKernel], coefficients: Sequence[Array], X: Array) -> list[float]:
    """‖f_l‖² of every layer."""
    anchors = [X, *evaluate(kernels, coefficients, X, X)][:-1]
    return [squared_norm(K, Z, c) for K, Z, c in zip(kernels, anchors, coefficients, strict=True)]


def deep_kernel(outer: Pairwise, kernels: Sequence[MatrixKernel], coefficients: Sequence[Array], X: Array) -> Pairwise:
    """K(f x, f y) with f the composition of the inner layers: (10), and for one inner layer (11)."""

    def k(x: Array, y: Array) -> float:
        fx, fy = evaluate(kernels, coefficients, X, np.array([x, y]))[-1]
        return outer(fx, fy)

    return k


def general(
    kernels: Sequence[MatrixKernel],
    coefficients: Sequence[Array],
    X: Array,
    loss: Callable[[Array], float],
    penalties: Sequence[Scalar],
) -> float:
    """(7): a loss of all values f(x_1), …, f(x_N) jointly, plus Σ_l Θ_l(‖f_l‖²). The last layer is the outer one."""
    values = evaluate(kernels, coefficients, X, X)[-1]
    norms = squared_norms(kernels, coefficients, X)
    return loss(values) + sum(theta(norm) for theta, norm in zip(penalties, norms, strict=True))


# -- sections 3.4 and 3.5: two layers, the outer one eliminated -------------------------------------------------------
def Q_matrix(outer: Pairwise, K: MatrixKernel, X: Array, c: Array) -> Array:
    """Q_{X,X}(c) of (17)."""
    n = len(X)
    Q = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            Q[i, j] = outer(value(K, X, c, X[i]), value(K, X, c, X[j]))
    return Q


def int_objective(outer: Pairwise, K: MatrixKernel, X: Array, y: Array, c: Array) -> float:
    """(Int): yᵀ Q(c)⁻¹ y + 𝒩(c)."""
    return float(y @ np.linalg.inv(Q_matrix(outer, K, X, c)) @ y) + squared_norm(K, X, c)


def coth_penalty(Z: Array, gamma: float) -> float:
    """γ Σ_{i<j} coth(‖z_i − z_j‖²): what (15) adds to (Int)."""
    total = 0.0
    for j in range(len(Z)):
        for i in range(j):
            x = float(np.sum((Z[i] - Z[j]) ** 2))
            total += math.cosh(x) / math.sinh(x)
    return gamma * total


def separated_int_objective(outer: Pairwise, K: MatrixKernel, X: Array, y: Array, c: Array, gamma: float) -> float:
    """(15) on the span of the data."""
    images = evaluate([K], [c], X, X)[0]
    return int_objective(outer, K, X, y, c) + coth_penalty(images, gamma)


def equation_19(M: Array, y: Array, lam: float, mu: float, norm: float) -> float:
    """J_{λ,μ} of (19) for the outer Gram matrix M = M_{g(X),g(X)} and ‖g‖² = norm, all three terms as printed."""
    identity = np.eye(len(M))
    inverse = np.linalg.inv(M + lam * identity)
    outer_norm = lam * float(y @ inverse @ M @ inverse @ y)
    errors = float(np.sum(((identity - M @ inverse) @ y) ** 2))
    return outer_norm + mu * norm + errors


def reg_objective(outer: Pairwise, K: MatrixKernel, X: Array, y: Array, c: Array, lam: float, mu: float) -> float:
    """(Reg): 𝒬^λ(c) + 𝒩^μ(c) + 𝒞^λ(c)."""
    Q = Q_matrix(outer, K, X, c)
    identity = np.eye(len(X))
    A = np.linalg.inv(Q + lam * identity)
    Q_lambda = lam * float(y @ A @ Q @ A @ y)
    N_mu = mu * squared_norm(K, X, c)
    residual = identity - Q @ A
    C_lambda = float(y @ residual.T @ residual @ y)
    return Q_lambda + N_mu + C_lambda


def functions_of(model):
    """The fitted functions of a deep learner, from the input on, as tensors."""
    return [*(f.loaded for f in model.function_.inner), model.function_.outer_expansion().loaded]
