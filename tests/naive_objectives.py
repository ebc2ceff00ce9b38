"""Small problems for the objectives, and textbook oracles: refits, loops over samples, general minimisers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.optimize
import scipy.special
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

N = 14
ALPHA = 0.03
HELD_OUT = [2, 5, 11]


def points(seed: int = 0, n: int = N) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(n, 3)))


def gaussian(X: Tensor, lengthscale: float | Tensor = 1.0) -> Tensor:
    return torch.exp(-(torch.cdist(X, X) ** 2) / (2 * lengthscale**2))


def gram_of(X: Tensor, lengthscale: float | Tensor = 1.0) -> Tensor:
    """A Gaussian kernel made non-stationary, so that the largest diagonal entry is unique."""
    d = 1.0 + 0.2 * torch.sin(X[..., 0])
    return d[..., :, None] * gaussian(X, lengthscale) * d[..., None, :]


def regression_targets(n: int = N) -> Tensor:
    X = points(n=n)
    noise = torch.as_tensor(np.random.default_rng(9).normal(size=(n, 2)))
    return torch.stack([torch.sin(2 * X[:, 0]), X[:, 1]], 1) + 0.3 * noise


def binary_targets(n: int = N) -> Tensor:
    return torch.where(regression_targets(n) > 0.1, 1.0, -1.0).double()


def one_hot_targets(n: int = N) -> Tensor:
    labels = torch.bucketize(regression_targets(n)[:, 0].contiguous(), torch.tensor([-0.4, 0.4], dtype=torch.float64))
    return torch.nn.functional.one_hot(labels, 3).double()


def symmetric_directions(count: int) -> Tensor:
    D = torch.as_tensor(np.random.default_rng(4).normal(size=(count, N, N)))
    return (D + D.mT) / 2


def ridge(K: Array, Y: Array, alpha: float) -> float:
    """Mean loss + alpha‖f‖² at the solution of the normal equations."""
    n = len(K)
    dual = np.linalg.solve(K + n * alpha * np.eye(n), Y)
    return sum(np.sum((Y[i] - K[i] @ dual) ** 2) for i in range(n)) / n + alpha * np.trace(dual.T @ K @ dual)


def bohn_equation_19(M: Array, y: Array, lam: float) -> float:
    """The two data terms of (19) as printed."""
    inverse = np.linalg.inv(M + lam * np.eye(len(M)))
    norm = lam * y @ inverse @ M @ inverse @ y
    return float(norm + np.sum(((np.eye(len(M)) - M @ inverse) @ y) ** 2))


def leave_one_out_residuals(K: Array, Y: Array, alpha: float) -> Array:
    """y_i − f₋ᵢ(x_i) from n refits with the shift nα of the full problem."""
    n = len(K)
    rows = []
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        dual = np.linalg.solve(K[np.ix_(rest, rest)] + n * alpha * np.eye(n - 1), Y[rest])
        rows.append(Y[i] - K[i, rest] @ dual)
    return np.array(rows)


def leave_one_out(K: Array, Y: Array, alpha: float) -> float:
    return float(np.mean(np.sum(leave_one_out_residuals(K, Y, alpha) ** 2, axis=1)))


def leave_one_out_of_elements(K: Array, G: Array, alpha: float) -> float:
    """The same when only inner products of the targets are known: ‖y_i − Σ_j w_j y_j‖² by expansion."""
    n = len(K)
    total = 0.0
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        w = np.linalg.solve(K[np.ix_(rest, rest)] + n * alpha * np.eye(n - 1), K[rest, i])
        total += G[i, i] - 2 * w @ G[rest, i] + w @ G[np.ix_(rest, rest)] @ w
    return total / n


def generalized_cross_validation(K: Array, Y: Array, alpha: float) -> float:
    """Golub, Heath & Wahba: 1/n ‖(I − H)Y‖² / (1/n tr(I − H))² with the hat matrix H."""
    n = len(K)
    rest = np.eye(n) - K @ np.linalg.inv(K + n * alpha * np.eye(n))
    return float(np.sum((rest @ Y) ** 2) / n / (np.trace(rest) / n) ** 2)


def held_out(K: Array, Y: Array, alpha: float, validation: list[int]) -> float:
    train = [i for i in range(len(K)) if i not in validation]
    shift = len(train) * alpha * np.eye(len(train))
    dual = np.linalg.solve(K[np.ix_(train, train)] + shift, Y[train])
    return float(np.mean([np.sum((Y[i] - K[i, train] @ dual) ** 2) for i in validation]))


def penalized_held_out(K: Array, Y: Array, alpha: float, validation: list[int], intercept: bool = False) -> float:
    """The held-out loss plus α‖f‖² of the fit to the others, from its optimality conditions."""
    train = [i for i in range(len(K)) if i not in validation]
    inner = K[np.ix_(train, train)]
    dual, constant = constant_and_function(inner, Y[train], len(train) * alpha, intercept)
    errors = [np.sum((Y[i] - K[i, train] @ dual - constant) ** 2) for i in validation]
    return float(np.mean(errors) + alpha * np.trace(dual.T @ inner @ dual))


def embedding_bound(K: Array, Y: Array, alpha: float, *, weight: float = 1.0, intercept: bool = False) -> float:
    """The mean squared distance of the fit plus the complexity of the bound for targets in a ball."""
    n = len(K)
    dual, constant = constant_and_function(K, Y, n * alpha, intercept)
    loss = np.mean([np.sum((Y[i] - K[i] @ dual - constant) ** 2) for i in range(n)])
    r, radius = math.sqrt(np.trace(dual.T @ K @ dual) * np.diag(K).max()), np.linalg.norm(Y, axis=1).max()
    return float(loss + weight * 2 * (2 * radius * r + r**2) / math.sqrt(n))


def rademacher_bound(
    K: Array, Y: Array, alpha: float, *, weight: float, epsilon: float, supremum: float | None = None
) -> float:
    """Lines 7 to 11 of Algorithm 1 of Hsu et al. with a free weight, one sample at a time."""
    n = len(K)
    V = np.linalg.inv(K + n * alpha * np.eye(n)) @ Y
    P = K @ V
    entropy = [-math.log(min(max(P[i, list(Y[i]).index(1.0)], epsilon), 1.0)) for i in range(n)]
    S = max(K[i, i] for i in range(n)) if supremum is None else supremum
    return sum(entropy) / n + weight * math.sqrt(S * np.trace(V.T @ K @ V))


def constant_and_function(K: Array, Y: Array, shift: float, intercept: bool) -> tuple[Array, Array]:
    """The dual coefficients and the constant of a ridge fit, from its optimality conditions as one system."""
    n, k = Y.shape
    if not intercept:
        return np.linalg.solve(K + shift * np.eye(n), Y), np.zeros(k)
    system = np.block([[K + shift * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.vstack([Y, np.zeros((1, k))]))
    return solution[:n], solution[n]


def class_risk(
    K: Array,
    Y: Array,
    alpha: float,
    *,
    weight: float,
    held_out: str | list[int] = "none",
    intercept: bool = False,
    softmax: bool = False,
) -> float:
    """A cross entropy of f, of its leave-one-out refits, or of held-out rows, + weight·r, sample by sample."""
    n, k = Y.shape
    rows = list(range(n)) if isinstance(held_out, str) else held_out
    fitted = [i for i in range(n) if isinstance(held_out, str) or i not in held_out]
    C, b = constant_and_function(K[np.ix_(fitted, fitted)], Y[fitted], len(fitted) * alpha, intercept)
    r = math.sqrt(max(K.diagonal()) * np.trace(C.T @ K[np.ix_(fitted, fitted)] @ C))
    decisions = []
    for i in rows:
        if held_out == "each":
            others = [j for j in range(n) if j != i]
            c, a = constant_and_function(K[np.ix_(others, others)], Y[others], n * alpha, intercept)
            decisions.append(K[i, others] @ c + a)
        else:
            decisions.append(K[i, fitted] @ C + b)
    labels = [list(Y[i]).index(1.0) for i in rows]
    if held_out == "each" or softmax:
        m = len(rows)

        def loss(log_scale: float) -> float:
            total = 0.0
            for f, c in zip(decisions, labels, strict=True):
                logits = math.exp(log_scale) * np.array([math.asinh(f[j] / 0.2) for j in range(k)])
                target = np.array([(m * (j == c) + 1) / (m + k) for j in range(k)])
                total -= target @ (logits - np.logaddexp.reduce(logits))
            return total / len(rows)

        found = scipy.optimize.minimize_scalar(loss, bounds=(-9, 9), method="bounded", options={"xatol": 1e-10})
        return float(found.fun) + weight * r
    entropies = [-math.log(min(max(f[c], 1e-15), 1.0)) for f, c in zip(decisions, labels, strict=True)]
    return sum(entropies) / len(rows) + weight * r


def separation_penalty(Z: Array) -> float:
    n = len(Z)
    return sum(1 / math.tanh(np.sum((Z[i] - Z[j]) ** 2)) for i in range(n) for j in range(i + 1, n))


def epsilon_insensitive_loss(Y: Array, F: Array, epsilon: float) -> float:
    return sum(max(0.0, abs(y - f) - epsilon) for y, f in zip(Y.ravel(), F.ravel(), strict=True)) / len(Y)


def hinge_loss(Y: Array, F: Array) -> float:
    return sum(max(0.0, 1 - y * f) for y, f in zip(Y.ravel(), F.ravel(), strict=True)) / len(Y)


def squared_hinge_loss(Y: Array, F: Array) -> float:
    return float(np.sum(np.maximum(0.0, 1 - Y * F) ** 2)) / len(Y)


def logistic_loss(Y: Array, F: Array) -> float:
    """Y of ±1."""
    return float(np.sum(np.logaddexp(0.0, -Y * F))) / len(Y)


def softmax_loss(Y: Array, F: Array) -> float:
    """Y one-hot."""
    return float(np.sum(np.log(np.sum(np.exp(F), axis=1)) - np.sum(Y * F, axis=1))) / len(Y)


def huber_loss(Y: Array, F: Array, delta: float) -> float:
    return 2.0 * float(np.sum(scipy.special.huber(delta, Y - F))) / len(Y)


def joint_loss(Y: Array, F: Array) -> float:
    """Not a sum over samples: the log of a mean of exponentials, and an error of the overall mean."""
    return float(np.log(np.mean(np.exp(np.sum((Y - F) ** 2, axis=1)))) + (np.mean(F) - np.mean(Y)) ** 2)


def primal_minimum(
    K: Array,
    loss: Callable[[Array], float],
    alpha: float,
    *,
    n_columns: int,
    intercept: bool = True,
    penalty: Callable[[float], float] | None = None,
) -> float:
    """min over f and b of loss(f + b) + alpha‖f‖², or penalty(‖f‖²), by BFGS in orthonormal coordinates, f = Bθ."""
    n = len(K)
    B = np.linalg.cholesky(K)

    def value(x: Array) -> float:
        theta, b = x[: n * n_columns].reshape(n, n_columns), x[n * n_columns :]
        norm = float(np.sum(theta**2))
        return loss(B @ theta + intercept * b) + (alpha * norm if penalty is None else penalty(norm))

    start = np.zeros((n + 1) * n_columns)
    result = scipy.optimize.minimize(value, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 5000})
    return float(result.fun)


def held_out_softmax(K: Array, Y: Array, alpha: float, validation: list[int]) -> float:
    """The mean softmax loss on the validation rows; the fit to the others from its optimality conditions."""
    train = [i for i in range(len(K)) if i not in validation]
    n, k = len(train), Y.shape[1]
    K_tt, T = K[np.ix_(train, train)], Y[train]

    def violation(x: Array) -> Array:
        beta, b = x[: n * k].reshape(n, k), x[n * k :]
        conditions = 2 * n * alpha * beta - (T - scipy.special.softmax(K_tt @ beta + b, axis=1))
        return np.concatenate([conditions.ravel(), beta.sum(0) + b.sum()])  # the sum of b is free: zero

    x = scipy.optimize.root(violation, np.zeros((n + 1) * k), tol=1e-13).x
    beta, b = x[: n * k].reshape(n, k), x[n * k :]
    return softmax_loss(Y[validation], K[np.ix_(validation, train)] @ beta + b)
