"""Gram matrices with gradients of their own: autograd's keep several matrices more, and pass over each of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class GaussianGram(torch.autograd.Function):
    """K_ij = exp(−‖x_i − y_j‖²/2) of points around zero, differentiable twice; without Y, of X with itself.

    For the gradient G in K: dX = M Y − diag(M1) X and dY = Mᵀ X − diag(Mᵀ1) Y with M = G ∘ K.
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, Y: Tensor | None) -> Tensor:
        left = 0.5 * X.square().sum(-1, keepdim=True)
        right = left if Y is None else 0.5 * Y.square().sum(-1, keepdim=True)
        K = (X @ (X if Y is None else Y).mT).sub_(left).sub_(right.mT).clamp_(max=0.0).exp_()
        if Y is None:
            K.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        ctx.save_for_backward(X, Y, K)
        return K

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        X, Y, K = ctx.saved_tensors
        (G,) = gradients
        M = G * K
        if Y is None:
            M = M + M.mT
            return M @ X - M.sum(-1, keepdim=True) * X, None
        in_X, in_Y = ctx.needs_input_grad
        return (
            _summed(M @ Y - M.sum(-1, keepdim=True) * X, X) if in_X else None,
            _summed(M.mT @ X - M.mT.sum(-1, keepdim=True) * Y, Y) if in_Y else None,
        )


class LaplacianGram(torch.autograd.Function):
    """K_ij = exp(−‖x_i − y_j‖₁), differentiable once; the second argument None means the first.

    For the gradient G in K: dx_i = −Σ_j M_ij sign(x_i − y_j) with M = G ∘ K, or M + Mᵀ for points with themselves.
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, Y: Tensor | None) -> Tensor:
        gram = torch.cdist(X, X if Y is None else Y, p=1.0).neg_().exp_()
        ctx.save_for_backward(X, Y, gram)
        return gram

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        X, Y, gram = ctx.saved_tensors
        M = gradients[0] * gram
        if Y is None:
            return _sign_sums(M + M.mT, X, X), None
        in_X, in_Y = ctx.needs_input_grad
        return (
            _summed(_sign_sums(M, X, Y), X) if in_X else None,
            _summed(_sign_sums(M.mT.contiguous(), Y, X), Y) if in_Y else None,
        )


def _sign_sums(M: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    """−Σ_j M_ij sign(x_i − y_j): what autograd itself calls for the distance ‖x − y‖₁, whose value it does not use."""
    X, Y = (points.expand(*M.shape[:-2], *points.shape[-2:]).contiguous() for points in (X, Y))
    sums: Tensor = torch.ops.aten._cdist_backward(M, X, Y, 1.0, M)
    return -sums


def _summed(gradient: Tensor, points: Tensor) -> Tensor:
    """The gradient of points that were broadcast over a batch."""
    return gradient.sum_to_size(points.shape) if gradient.shape != points.shape else gradient
