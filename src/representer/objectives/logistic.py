"""Cross entropy: binary logistic and softmax regression by Newton's method."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from representer.linalg import factorize
from representer.objectives.base import factorize_shifted
from representer.objectives.convex import ConvexLoss, Fit, damped_newton
from representer.objectives.targets import ArrayLike, columns, one_hot, some_values


class Logistic(ConvexLoss):
    """min_{f,b} 1/n Σ −log p(y_i | f(x_i) + b) + α‖f‖², p logistic for one column and the softmax of k ≥ 2.

    At the optimum β = (y − p)/(2nα). A Newton step costs one Cholesky factorisation for one column; for a
    softmax k inverses, one more factorisation and memory for k matrices.

    Parameters
    ----------
    targets : array (n,) or one-hot (n, k)
        One column: −1, +1 or 0, 1. Every class must occur: a missing one would have an infinite intercept.
    alpha : float
    tol : float
        Largest violation of 2nα β = y − p at the solution.
    max_iter : int
    """

    def __init__(
        self, targets: ArrayLike, *, alpha: float | Tensor, tol: float = 1e-9, max_iter: int = 100
    ) -> None:
        self.max_iter = max_iter
        super().__init__(_class_indicators(targets), alpha=alpha, tol=tol)

    def _fit(self, gram: Tensor, targets: Tensor, alpha: float) -> Fit:
        T, c = targets, 2.0 * self.n * alpha
        binary = T.shape[1] == 1

        def loss(F: Tensor) -> tuple[Tensor, Tensor]:
            if binary:
                return (softplus(F) - T * F).sum(), T - torch.sigmoid(F)
            return (torch.logsumexp(F, 1) - (T * F).sum(1)).sum(), T - torch.softmax(F, 1)

        def step(beta: Tensor, b: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
            return (_binary_step if binary else _softmax_step)(gram, beta, T - R, R - c * beta, c)

        return damped_newton(
            gram,
            alpha=alpha,
            n_columns=T.shape[1],
            loss=loss,
            step=step,
            tol=self.tol,
            max_iter=self.max_iter,
            name="the logistic loss",
        )


def _class_indicators(targets: ArrayLike) -> Tensor:
    """(n, 1) of 0 and 1 for two classes, otherwise one-hot (n, k)."""
    values = columns(targets)
    if values.shape[1] > 1:
        values = one_hot(targets, name="Logistic")
        counts = values.sum(0)
    else:
        if not bool(((values == 1) | (values == values.min())).all()) or values.min() not in (-1, 0):
            raise ValueError(
                f"Logistic expects labels −1, +1 or 0, 1 or a one-hot matrix (n, k); got "
                f"{some_values(values)}. Encode labels: (labels[:, None] == classes).astype(float)."
            )
        values = (values == 1).to(values)
        counts = torch.stack([(1 - values).sum(), values.sum()])
    if bool((counts == 0).any()):
        raise ValueError(
            f"The logistic loss has no minimum when a class has no sample; got {counts.long().tolist()} "
            "samples a class. Leave the missing class out, or stratify the split or the sub-batches."
        )
    return values


def _binary_step(K: Tensor, beta: Tensor, P: Tensor, rho: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """(K + c D⁻¹)Δβ + 1Δb = D⁻¹ρ, 1ᵀ(β + Δβ) = 0 with D = diag p(1 − p) and ρ = y − p − cβ.

    No division by a vanishing D: with E = (K + c D⁻¹)⁻¹ = D^½(D^½KD^½ + cI)⁻¹D^½ also E D⁻¹ρ = (ρ − EKρ)/c
    (Rasmussen & Williams, Algorithm 3.1).
    """
    root = (P * (1.0 - P)).sqrt()
    cholesky = factorize_shifted(root * K * root.mT, K.new_tensor(c))
    right = root * torch.cat([K @ rho, torch.ones_like(rho)], dim=1)
    EKrho, h = (root * cholesky.solve(right)).split(1, dim=1)
    g = (rho - EKrho) / c
    b = (g + beta).sum() / h.sum()
    return g - b * h, b[None]


def _softmax_step(K: Tensor, beta: Tensor, P: Tensor, rho: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """E_j⁻¹Δβ_j + 1Δb_j + v = D_j⁻¹ρ_j for each class j, 1ᵀ(β_j + Δβ_j) = 0, Σ_j (β_j + Δβ_j) = 0.

    E_j = (K + c D_j⁻¹)⁻¹, D_j = diag p_j. The multiplier v of the last constraint stands for the direction
    in which the Hessian of the softmax vanishes, and is eliminated through M = Σ_j E_j (Rasmussen & Williams,
    Algorithm 3.3).
    """
    k = P.shape[1]
    root = P.mT.sqrt()[:, :, None]
    H = factorize_shifted(root * K * root.mT, K.new_full((k,), c))
    E = root * H.inverse() * root.mT
    g = (rho - torch.einsum("jnm,mj->nj", E, K @ rho)) / c
    h = E.sum(-1).mT
    M = factorize(E.sum(0), name="The Hessian of the softmax")
    Mh, Ms = M.solve(torch.cat([h, (g + beta).sum(1, keepdim=True)], dim=1)).split([k, 1], dim=1)
    # The Δb_j are known up to a constant; + 1 in every entry makes the system regular and picks Σ_j Δb_j = 0.
    schur = torch.diag(h.sum(0)) - h.mT @ Mh + 1.0
    b = torch.linalg.solve(schur, (g + beta).sum(0) - (h.mT @ Ms)[:, 0])
    v = Ms[:, 0] - Mh @ b
    return g - torch.einsum("jnm,m->nj", E, v) - h * b, b
