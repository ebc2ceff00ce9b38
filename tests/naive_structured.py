"""Structured outputs by the letter: the n² × n² system of Kadri et al., refits without a sample, explicit features."""

from __future__ import annotations

import numpy as np


def gaussian(X, Y, lengthscale):
    """exp(−‖x − y‖²/(2ℓ²)), pair by pair."""
    return np.array([[np.exp(-((x - y) ** 2).sum() / (2 * lengthscale**2)) for y in Y] for x in X])


def operator_matrix(operator, k, L, epsilon=None):
    """T of proposition 1."""
    n = len(k)
    if operator == "covariance":
        return L
    return L - np.linalg.solve(k + n * epsilon * np.eye(n), k @ L)


def kronecker_weights(k, T, alpha, cross):
    """w(x) of equation (8), rows for the rows k_x of ``cross``: (k_xᵀ ⊗ T)(k ⊗ T + nλI)⁻¹ vec(I), λ = n·alpha."""
    n = len(k)
    vec = np.linalg.solve(np.kron(k, T) + n * (n * alpha) * np.eye(n * n), np.eye(n).ravel())
    return np.array([np.kron(row[None], T) @ vec for row in cross])


def costs(L_new, own, weights):
    """l(y, y) − 2 L_yᵀ w(x), (inputs, candidates)."""
    return own - 2.0 * weights @ L_new.T


def ridge_in_features(k, features, A, alpha, rows=None):
    """The coefficients of (k ⊗ A + nα)⁻¹ vec(Φ) for explicit features (n, d): solved as one block system.

    With ``rows``, on these samples only, and with nα of all of them.
    """
    n, d = features.shape
    rows = np.arange(n) if rows is None else rows
    block = np.kron(k[np.ix_(rows, rows)], A) + n * alpha * np.eye(len(rows) * d)
    return np.linalg.solve(block, features[rows].ravel()).reshape(len(rows), d)


def loo_error(k, features, A, alpha):
    """The mean squared error of fits without each sample, the operator and nα held fixed."""
    n = len(k)
    total = 0.0
    for i in range(n):
        rows = np.delete(np.arange(n), i)
        psi = ridge_in_features(k, features, A, alpha, rows)
        total += ((features[i] - k[i, rows] @ psi @ A) ** 2).sum()
    return total / n


def feature_operator(operator, k, features, epsilon=None, n_components=None):
    """A on explicit features, from its definition."""
    n, d = features.shape
    if operator == "identity":
        return np.eye(d)
    covariance = sum(np.outer(f, f) for f in features) / n
    if operator == "covariance":
        return covariance
    if operator == "kpca":
        V = np.linalg.eigh(covariance)[1][:, -n_components:]
        return V @ V.T
    # C_YY − C_YX (C_XX + ε)⁻¹ C_XY with the features of the inputs from a factor of k.
    values, vectors = np.linalg.eigh(k)
    inputs = vectors * np.sqrt(np.maximum(values, 0.0))
    C_xx, C_yx = inputs.T @ inputs / n, features.T @ inputs / n
    return covariance - C_yx @ np.linalg.solve(C_xx + epsilon * np.eye(n), C_yx.T)
