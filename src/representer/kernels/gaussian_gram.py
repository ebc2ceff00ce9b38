"""The Gram matrix of the Gaussian kernel with a gradient of two products: autograd's own keeps five matrices more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GaussianGram(torch.autograd.Function):
    """K_ij = exp(−‖x_i − y_j‖²/2), differentiable twice; the second argument None means the first.

    For the gradient G in K: dX = M Y − diag(M1) X and dY = Mᵀ X − diag(Mᵀ1) Y with M = G ∘ K.
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, Y: Tensor | None) -> Tensor:
        left, right = X, X if Y is None else Y
        left_norms, right_norms = (-0.5 * (points**2).sum(-1, keepdim=True) for points in (left, right))
        gram = (
            torch.cat([left, left_norms, torch.ones_like(left_norms)], -1)
            @ torch.cat([right, torch.ones_like(right_norms), right_norms], -1).mT
        )
        gram.clamp_(max=0.0).exp_()
        if Y is None:
            gram.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        ctx.save_for_backward(X, Y, gram)
        return gram

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        X, Y, gram = ctx.saved_tensors
        M = gradients[0] * gram
        if Y is None:
            points = torch.cat([X, torch.ones_like(X[..., :1])], -1)
            product = M @ points + M.mT @ points
            return product[..., :-1] - product[..., -1:] * X, None
        in_X, in_Y = ctx.needs_input_grad
        return (
            _summed(M @ Y - M.sum(-1).unsqueeze(-1) * X, X) if in_X else None,
            _summed(M.mT @ X - M.sum(-2).unsqueeze(-1) * Y, Y) if in_Y else None,
        )


def _summed(gradient: Tensor, points: Tensor) -> Tensor:
    """The gradient of points that were broadcast over a batch."""
    return gradient.sum_to_size(points.shape) if gradient.shape != points.shape else gradient
