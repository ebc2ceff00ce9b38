"""Squared loss with the function eliminated: ridge regression and minimum-norm interpolation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from representer.linalg import factorize
from representer.objectives.base import Evaluation, Objective, factorize_shifted, inner
from representer.objectives.targets import ArrayLike, hilbert_targets


class Ridge(Objective):
    """min_f 1/n Σ‖y_i − f(x_i)‖² + α‖f‖² = α tr(W⁻¹G), W = K + nαI.

    n times this is the data part of (19) in Bohn et al. with λ = nα, and nα is the alpha of scikit-learn's
    KernelRidge. ∂/∂K = −α W⁻¹GW⁻¹. With p-dimensional targets one Cholesky and O(n²p).

    Parameters
    ----------
    targets : array (n,) or (n, p), optional
    target_gram : array (n, n), optional
        Instead of ``targets``: the inner products G of targets in any Hilbert space.
    alpha : float
    """

    def __init__(
        self, targets: ArrayLike | None = None, *, target_gram: ArrayLike | None = None, alpha: float | Tensor
    ) -> None:
        self.targets = hilbert_targets(targets, target_gram)
        super().__init__(n=len(self.targets.factor), alpha=alpha)

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        targets = self.targets.map(lambda t: t.to(gram))
        cholesky = factorize_shifted(gram, self.n * alpha)
        C = cholesky.solve(targets.factor)
        fit = inner(targets.factor.expand_as(C), C)  # tr(W⁻¹G)
        return Evaluation(
            value=alpha * fit,
            gram_gradient=(-alpha[..., None, None] * C) @ C.mT if gradient else None,
            alpha_gradient=fit - self.n * alpha * inner(C, C) if gradient else None,
            dual=targets.dual(cholesky, C) if dual else None,
        )


class Interpolation(Objective):
    """min_f ‖f‖² over f(x_i) = y_i, which is tr(K⁻¹G), plus γ Σ_{i<j} coth(‖z_i − z_j‖²): (15) in Bohn et al.

    The limit α → 0 of Ridge divided by α. ∂/∂K = −K⁻¹GK⁻¹.

    Parameters
    ----------
    targets, target_gram : array
        As for ``Ridge``.
    separation : float
        γ ≥ 0. If positive, a call needs ``points=``, the inner images z_i (..., n, D) behind K, through which
        the penalty is differentiated. ``evaluate`` gives tr(K⁻¹G) alone, which is all that depends on K.
    """

    def __init__(
        self,
        targets: ArrayLike | None = None,
        *,
        target_gram: ArrayLike | None = None,
        separation: float = 0.0,
    ) -> None:
        if not (separation >= 0 and math.isfinite(separation)):
            raise ValueError(f"separation must be finite and ≥ 0, got {separation}. Zero means no penalty.")
        self.targets = hilbert_targets(targets, target_gram)
        self.separation = separation
        super().__init__(n=len(self.targets.factor), alpha=None)

    def __call__(
        self, gram: Tensor, alpha: float | Tensor | None = None, *, points: Tensor | None = None
    ) -> Tensor:
        """The value (...), differentiable once in ``gram`` and in ``points``."""
        if self.separation == 0.0:
            return super().__call__(gram, alpha)
        if points is None:
            raise ValueError(
                f"Interpolation with separation={self.separation} penalises close points: pass points=, the "
                "(..., n, D) inner images behind the Gram matrix, or set separation=0."
            )
        return super().__call__(gram, alpha) + self.separation * separation_penalty(points)

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        targets = self.targets.map(lambda t: t.to(gram))
        single = gram.ndim == 2
        if single:
            _refuse_contradictions(gram, targets.factor)
        cholesky = factorize(gram, name="The Gram matrix of an interpolation", strict=single)
        C = cholesky.solve(targets.factor)
        return Evaluation(
            value=inner(targets.factor.expand_as(C), C),
            gram_gradient=-C @ C.mT if gradient else None,
            dual=targets.dual(cholesky, C) if dual else None,
        )


def separation_penalty(points: Tensor) -> Tensor:
    """Σ_{i<j} coth(‖z_i − z_j‖²) of points (..., n, D): the penalty of (15) in Bohn et al., differentiable.

    Infinite when two points coincide; such a pair adds nothing to the gradient.
    """
    # Differences, not inner products: cancellation would spoil the smallest distances, which matter most.
    distance = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    itself = torch.eye(points.shape[-2], dtype=torch.bool, device=points.device)
    x = distance.square().masked_fill(itself, torch.inf)  # coth(∞) = 1, subtracted below
    # This form of coth neither overflows for large x, nor cancels for small ones, nor do its derivatives.
    coth = (1.0 + torch.exp(-2.0 * x)) / -torch.expm1(-2.0 * x)
    return 0.5 * (coth.sum((-2, -1)) - points.shape[-2])


def _refuse_contradictions(gram: Tensor, factor: Tensor) -> None:
    """Raise when two equal points (equal rows of K) are asked to have different values."""
    eps = torch.finfo(gram.dtype).eps
    diagonal = gram.diagonal()
    scale = diagonal.max()
    # Equal points are at distance zero: a cheap necessary condition that leaves few pairs to compare in full.
    close = torch.nonzero((diagonal[:, None] + diagonal - 2.0 * gram <= 64 * eps * scale).tril(-1))
    apart = torch.linalg.vector_norm(factor[close[:, 0]] - factor[close[:, 1]], dim=-1)
    # A factor of target_gram knows equal targets only to the root of the rounding.
    for i, j in close[apart > 8 * math.sqrt(eps) * torch.linalg.vector_norm(factor, dim=-1).max()].tolist():
        if bool(((gram[i] - gram[j]).abs() <= 64 * eps * scale).all()):
            raise ValueError(
                f"No function interpolates these targets: rows {j} and {i} of the Gram matrix are equal (the "
                "same point) but their targets differ. Remove one, average the two, or use Ridge."
            )
