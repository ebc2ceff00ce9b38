"""Cross entropy: binary logistic and softmax regression by Newton's method."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from representer.objectives.convex import SmoothLoss
from representer.objectives.curvature import Curvature, DiagonalCurvature, SoftmaxCurvature
from representer.objectives.targets import ArrayLike, columns, one_hot, some_values


class Logistic(SmoothLoss):
    """min_{f,b} 1/n Σ −log p(y_i | f(x_i) + b) + α‖f‖², p logistic for one column and the softmax of k ≥ 2.

    At the optimum β = (y − p)/(2nα). A factorisation costs one Cholesky for one column; for a softmax k inverses, one
    more Cholesky and memory for k matrices. Solved again for a similar Gram matrix, one or two are needed.

    Parameters
    ----------
    targets : array (n,) or one-hot (n, k)
        One column: −1, +1 or 0, 1. With an intercept every class must occur: a missing one would have an infinite
        intercept.
    alpha : float
    intercept : bool
        Whether there is a b.
    tol : float
        Largest violation of 2nα β = y − p at the solution, relative to the largest y − p of f = 0.
    max_iter : int
    """

    couples_columns = True

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        intercept: bool = True,
        tol: float = 1e-9,
        max_iter: int = 100,
    ) -> None:
        T = _class_indicators(targets)
        super().__init__(T, alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter)

    def _check_targets(self) -> None:
        T = self.targets
        counts = (torch.cat([1 - T, T], 1) if T.shape[1] == 1 else T).sum(0)
        if self.intercept and bool((counts == 0).any()):
            raise ValueError(
                f"The logistic loss has no minimum when a class has no sample; got {counts.long().tolist()} "
                "samples a class. Leave the missing class out, stratify the split or the sub-batches, or set "
                "intercept=False."
            )

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        T = targets
        if T.shape[1] == 1:
            return (softplus(F) - T * F).sum(), T - torch.sigmoid(F)
        return (torch.logsumexp(F, 1) - (T * F).sum(1)).sum(), T - torch.softmax(F, 1)

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        if y.shape[1] == 1:
            P = torch.sigmoid(F[:, 0])
            return DiagonalCurvature(gram, P * (1.0 - P), c)
        return SoftmaxCurvature(gram, torch.softmax(F, 1), c)


def _class_indicators(targets: ArrayLike) -> Tensor:
    """(n, 1) of 0 and 1 for two classes, otherwise one-hot (n, k)."""
    values = columns(targets)
    if values.shape[1] > 1:
        return one_hot(targets, name="Logistic")
    if not bool(((values == 1) | (values == values.min())).all()) or values.min() not in (-1, 0, 1):
        raise ValueError(
            f"Logistic expects labels −1, +1 or 0, 1 or a one-hot matrix (n, k); got "
            f"{some_values(values)}. Encode labels: (labels[:, None] == classes).astype(float)."
        )
    return (values == 1).to(values)
