"""The equations of Tonin et al. (2023) written out, with loops."""

from __future__ import annotations

import numpy as np
import torch

from representer.kernels import Kernel


def khatri_rao(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Columns a_i ⊗ b_i."""
    return np.stack([np.kron(A[:, i], B[:, i]) for i in range(A.shape[1])], 1)


def pair_gradient(kernel: Kernel, h: np.ndarray, other: np.ndarray) -> np.ndarray:
    """∂k(h, other)/∂h of one pair, by autograd of the 1 × 1 Gram matrix."""
    leaf = torch.tensor(h[None], requires_grad=True)
    kernel(leaf, torch.tensor(other[None])).sum().backward()
    return leaf.grad.numpy()[0]


def coupling_7(kernel: Kernel, H: np.ndarray, above: np.ndarray) -> np.ndarray:
    """G_j of equation (7): (I ⊙ H_{j+1}H_{j+1}ᵀ)ᵀ J, with the N² × s Jacobian in full."""
    n = len(H)
    jacobian = np.concatenate([np.stack([pair_gradient(kernel, H[i], H[k]) for k in range(n)]) for i in range(n)])
    return khatri_rao(np.eye(n), above @ above.T).T @ jacobian


def centered_gram(K: np.ndarray) -> np.ndarray:
    """⟨φ(x_i) − m, φ(x_k) − m⟩ for every pair, from the four inner products of which it consists."""
    n = len(K)
    centered = np.zeros_like(K)
    for i in range(n):
        for k in range(n):
            with_mean = sum(K[i, m] for m in range(n)) / n, sum(K[l, k] for l in range(n)) / n
            centered[i, k] = K[i, k] - sum(with_mean) + sum(K[l, m] for l in range(n) for m in range(n)) / n**2
    return centered


def energy(K1, hidden, kernels, etas, center: bool = False) -> float:
    """Σ_j Σ_{ik} K_j[i, k] ⟨h_i, h_k⟩ / (2 η_j), with the upper Gram matrices centred or not."""
    total = 0.0
    for j, H in enumerate(hidden):
        K = K1 if j == 0 else kernels[j - 1](torch.tensor(hidden[j - 1])).numpy()
        K = centered_gram(K) if center and j else K
        total += sum(K[i, k] * (H[i] @ H[k]) for i in range(len(H)) for k in range(len(H))) / (2.0 * etas[j])
    return total


def residuals_9(K1, hidden, eigenvalues, kernels, etas, center: bool = False) -> list[tuple[float, float]]:
    """‖K_j H_j / η_j + G_j / η_{j+1} − H_j Λ_j‖_F of every level, the terms of (9), and the norm without H_j Λ_j.

    With ``center``, the features of upper levels are centred: the kernel of a pair then depends on all samples, and
    Σ_{ik} ∂K[i, k] ⟨h_i, h_k⟩ of the centred kernel is the sum of the others with the centred h.
    """
    pairs = []
    for j, H in enumerate(hidden):
        K = K1 if j == 0 else kernels[j - 1](torch.tensor(hidden[j - 1])).numpy()
        left = (centered_gram(K) if center and j else K) @ H / etas[j]
        if j + 1 < len(hidden):
            above = hidden[j + 1] - hidden[j + 1].mean(0) if center else hidden[j + 1]
            left = left + coupling_7(kernels[j], H, above) / etas[j + 1]
        pairs.append((np.linalg.norm(left - H * eigenvalues[j]), np.linalg.norm(left)))
    return pairs


def extension_residual(k1, hidden, eigenvalues, kernels, etas, h, center: bool = False) -> list[np.ndarray]:
    """Both sides of the equations of one new sample, level by level: the left minus the right.

    ``k1`` holds ⟨φ(x) − m, φ(x_n) − m⟩ with the training samples, ``h`` the new sample's features of every level. With
    W_j = Σ_n (φ_j(h_{j−1,n}) − m_j) h_{j,n}ᵀ / η_j, level j has Λ_j h_j = W_jᵀ(φ_j(h_{j−1}) − m_j) + ∂⟨φ_{j+1}(h_j),
    W_{j+1} h_{j+1}⟩/∂h_j; means of h_{j+1} that centring has taken off the training samples are taken off here, too.
    """
    sides = []
    for j, H in enumerate(hidden):
        if j == 0:
            k = k1
        else:
            below, kernel = hidden[j - 1], kernels[j - 1]
            K = kernel(torch.tensor(below)).numpy()
            k = kernel(torch.tensor(h[j - 1][None]), torch.tensor(below)).numpy()[0]
            if center:
                k = np.array([k[n] - k.mean() - K[n].mean() + K.mean() for n in range(len(K))])
        side = h[j] * eigenvalues[j] - sum(k[n] * H[n] for n in range(len(H))) / etas[j]
        if j + 1 < len(hidden):
            above = hidden[j + 1]
            mean = above.mean(0) if center else 0.0
            for n in range(len(H)):
                weight = (above[n] - mean) @ (h[j + 1] - mean)
                side = side - pair_gradient(kernels[j], h[j], H[n]) * weight / etas[j + 1]
        sides.append(side)
    return sides
