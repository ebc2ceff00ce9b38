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


def residuals_9(K1, hidden, eigenvalues, kernels, etas) -> list[tuple[float, float]]:
    """‖K_j H_j / η_j + G_j / η_{j+1} − H_j Λ_j‖_F of every level, the terms of (9), and the norm without H_j Λ_j."""
    pairs = []
    for j, H in enumerate(hidden):
        K = K1 if j == 0 else kernels[j - 1](torch.tensor(hidden[j - 1])).numpy()
        left = K @ H / etas[j]
        if j + 1 < len(hidden):
            left = left + coupling_7(kernels[j], H, hidden[j + 1]) / etas[j + 1]
        pairs.append((np.linalg.norm(left - H * eigenvalues[j]), np.linalg.norm(left)))
    return pairs
