"""The Rademacher complexity bound of conditional embedding classifiers (Hsu, Nock & Ramos)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from representer.objectives.base import Evaluation, Objective, factorize_shifted, inner, symmetric_part
from representer.objectives.targets import ArrayLike, one_hot


class RademacherBound(Objective):
    """1/n Σ −log clip(f_{y_i}(x_i), ε, 1) + weight·r with f = KV, V = W⁻¹Y, r = √(tr(VᵀKV)·sup k(x, x)).

    Equation (12) of Hsu et al. has the weight 4e; their published code sums the cross entropies, which
    amounts to 4e/n and reproduces their results: the default here. The gradient of a clipped sample is zero;
    a supremum attained at several diagonal entries shares its gradient among them. One Cholesky and O(n²k).

    Parameters
    ----------
    targets : array (n, k)
        One-hot labels.
    alpha : float
    weight : float, optional
        Of the complexity r. Default 4e/n.
    epsilon : float
        The clip ε of the cross entropy, equation (7); 0 < ε < 1.
    supremum : float, optional
        sup k(x, x) if known and constant. Default: the largest diagonal entry of K, with its derivative.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        weight: float | None = None,
        epsilon: float = 1e-15,
        supremum: float | None = None,
    ) -> None:
        self.targets = one_hot(targets, name="RademacherBound")
        super().__init__(n=len(self.targets), alpha=alpha)
        if not 0.0 < epsilon < 1.0:
            raise ValueError(f"epsilon must lie in (0, 1): it clips the cross entropy; got {epsilon}.")
        if weight is not None and not (weight >= 0 and math.isfinite(weight)):
            raise ValueError(f"weight must be a finite number ≥ 0, got {weight}. None means 4e/n.")
        if supremum is not None and not (supremum > 0 and math.isfinite(supremum)):
            raise ValueError(f"supremum must be positive, an upper bound of k(x, x); got {supremum}.")
        self.weight = 4.0 * math.e / self.n if weight is None else weight
        self.epsilon = epsilon
        self.supremum = supremum

    def _evaluate(self, gram: Tensor, alpha: Tensor, *, gradient: bool, dual: bool) -> Evaluation:
        """From f = Y − nαV, dV = −W⁻¹ dW V: one more solve, of Q = ∂(cross entropy)/∂f + (weight·S/r) V."""
        n, Y, weight = self.n, self.targets.to(gram), self.weight
        cholesky = factorize_shifted(gram, n * alpha)
        V = cholesky.solve(Y)
        shift = (n * alpha)[..., None, None]
        q = (Y * (Y - shift * V)).sum(-1)  # f_{y_i}(x_i)
        r = rademacher_complexity(gram, V, supremum=self.supremum)
        value = -q.clamp(self.epsilon, 1.0).log().mean(-1) + weight * r
        if not gradient:
            return Evaluation(value, dual=V)
        S = self._supremum_of(gram)
        slope = torch.where((q > self.epsilon) & (q < 1.0), -1.0 / (n * q), 0.0)
        pull = (weight * S / r)[..., None, None]
        Q = slope[..., None] * Y + pull * V
        PQ = shift * cholesky.solve(Q)
        gram_gradient = symmetric_part((PQ - 0.5 * pull * V) @ V.mT)
        if self.supremum is None:
            attained = (gram.diagonal(dim1=-2, dim2=-1) == S[..., None]).to(gram)
            share = attained / attained.sum(-1, keepdim=True)
            gram_gradient.diagonal(dim1=-2, dim2=-1).add_((0.5 * weight * r / S)[..., None] * share)
        return Evaluation(value, gram_gradient, alpha_gradient=n * inner(PQ - Q, V), dual=V)

    def _supremum_of(self, gram: Tensor) -> Tensor:
        if self.supremum is not None:
            return gram.new_full(gram.shape[:-2], self.supremum)
        return gram.diagonal(dim1=-2, dim2=-1).amax(-1)


def rademacher_complexity(gram: Tensor, dual: Tensor, *, supremum: float | None = None) -> Tensor:
    """r = √(tr(VᵀKV)·sup k(x, x)) of Theorem 4 in Hsu et al.; V is the dual of an evaluation.

    ``supremum`` defaults to the largest diagonal entry of K.
    """
    squared_norm = inner(dual, gram @ dual)
    S = gram.diagonal(dim1=-2, dim2=-1).amax(-1) if supremum is None else supremum
    return (squared_norm * S).sqrt()
