"""Huber's loss: squared for small errors, linear for large ones."""

from __future__ import annotations

import copy
import math

from torch import Tensor

from representer.objectives.convex import SmoothLoss
from representer.objectives.curvature import Curvature, DiagonalCurvature
from representer.objectives.inner_problem import Fit
from representer.objectives.targets import ArrayLike, columns

# A loss that is this much wider has a solution from which Newton's method reaches that of the narrow one.
WIDER = 2.0


class Huber(SmoothLoss):
    """min_{f,b} 1/n Σ h(y_i − f(x_i) − b) + α‖f‖², h(r) = r² if |r| ≤ δ, else 2δ|r| − δ², summed over the columns.

    Twice the textbook's ½r², so that squared loss with the same alpha is the limit δ → ∞. Newton's method as for
    ``SquaredHinge``: a ridge problem on the samples with small errors, to finite convergence.

    Parameters
    ----------
    targets : array (n,) or (n, p)
    alpha : float
    delta : float
        δ > 0 in the units of y. 1.35 standard deviations of the noise give away 5 % of the precision of squared loss
        if the noise is normal; the default is for noise of size one.
    intercept : bool
        Whether there is a b.
    tol : float
        Largest violation of 2nα β = h′ at the solution, relative to the largest h′ of the best constant.
    max_iter : int
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        delta: float = 1.35,
        intercept: bool = True,
        tol: float = 1e-9,
        max_iter: int = 100,
    ) -> None:
        if not (delta > 0 and math.isfinite(delta)):
            raise ValueError(
                f"delta, where the loss turns from squared to linear, must be finite and > 0 (in the units of the "
                f"targets); got {delta}. For squared loss use Ridge."
            )
        self.delta = delta
        super().__init__(columns(targets), alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter)

    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        if near is None and bool(((y - self._cold_intercept(y)).abs() > WIDER * self.delta).any()):
            # Few errors are small at first: Newton's method would feel its way from one to the next.
            wider = copy.copy(self)
            wider.delta = WIDER * self.delta
            near = wider._solve(gram, y, alpha, None)
        return super()._solve(gram, y, alpha, near)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        residual = targets - F
        clipped = residual.clamp(-self.delta, self.delta)
        return (clipped * (2.0 * residual - clipped)).sum(), 2.0 * clipped

    def _cold_intercept(self, y: Tensor) -> Tensor:
        return y.median(0).values  # of a sample, so that at least one error is small

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        residual = (y - F)[:, 0]
        small = residual.abs() <= self.delta
        if self.intercept and not bool(small.any()) and residual.sign().sum() != 0:
            # The Hessian knows nothing of b, which must move: take the quadratic bound of reweighted least squares.
            return DiagonalCurvature(gram, 2.0 * self.delta / residual.abs(), c)
        return DiagonalCurvature(gram, 2.0 * small.to(gram), c)
