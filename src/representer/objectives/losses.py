"""Convex losses: ε-insensitive and hinge by libsvm's solver; squared hinge, Huber and logistic by Newton's method."""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from representer.linalg import NotPositiveDefiniteError, factorize
from representer.objectives.base import (
    ArrayLike,
    Fit,
    NotConvergedError,
    columns,
    inner,
    one_hot,
    sign_columns,
    some_values,
)
from representer.objectives.convex import (
    ConvexLoss,
    Curvature,
    DiagonalCurvature,
    SmoothLoss,
    SoftmaxCurvature,
)

if TYPE_CHECKING:
    from sklearn.svm import SVC, SVR

# In single precision libsvm cannot solve everything: a gap beyond this part of the value is an error.
LARGEST_GAP = 1e-4
# A loss that is this much wider has a solution from which Newton's method reaches that of the narrow one.
WIDER = 2.0


class SupportVectorLoss(ConvexLoss, ABC):
    """max_β α(2yᵀβ − 2ε‖β‖₁ − βᵀKβ), |β_i| ≤ C_i = w_i/(2nα), Σβ_i = 0: the dual of a support vector machine.

    The value is that of the dual, whose error is of second order in the error of β. At the solution only the free
    support vectors, 0 < |β_i| < C_i, follow a small change: they stay on the edge of the margin.
    """

    epsilon: float = 0.0

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1_000_000,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        if not intercept:
            raise ValueError(
                f"{type(self).__name__} is solved by libsvm, which always fits an intercept; got intercept=False. "
                "Use a loss that can do without: SquaredHinge (squared_hinge) for labels, Huber (huber) for numbers."
            )
        super().__init__(targets, alpha=alpha, intercept=True, tol=tol, max_iter=max_iter, sample_weight=sample_weight)

    @abstractmethod
    def _machine(self, C: float) -> SVC | SVR:
        """The solver of libsvm for a precomputed Gram matrix."""

    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        if bool((y == y[0]).all()):  # the constant fits without error; libsvm refuses a single class
            return Fit(gram.new_zeros(()), torch.zeros_like(y), y[0], alpha)
        C = 1.0 / (2.0 * self.n * alpha)
        beta, b = _support_vectors(self._machine(C), gram, y, self._weights(y))
        polished = _polish(gram, beta, b, y - self.epsilon * beta.sign(), C * self._weights(y))
        gap, fit = min((self._certify(gram, y, alpha, *s) for s in ((beta, b), polished)), key=lambda s: s[0])
        if not gap <= LARGEST_GAP:
            raise NotConvergedError(
                f"libsvm stopped at a duality gap of {gap:.2g} of the value (wanted {LARGEST_GAP}) for alpha="
                f"{alpha:.3g}, that is C={C:.3g}. Increase alpha, or max_iter (now {self.max_iter}); libsvm is "
                "limited to single precision, which SquaredHinge and Ridge are not."
            )
        return fit

    def _certify(self, gram: Tensor, y: Tensor, alpha: float, beta: Tensor, b: Tensor) -> tuple[float, Fit]:
        """The relative duality gap of a solution, and the solution with the value of the dual."""
        smooth = gram @ beta
        squared_norm = inner(beta, smooth)
        dual = alpha * (2.0 * inner(beta, y) - 2.0 * self.epsilon * beta.abs().sum() - squared_norm)
        primal = self._summed(y, smooth + b)[0] / self.n + alpha * squared_norm
        gap = (primal - dual) / primal.clamp(min=torch.finfo(y.dtype).tiny)
        return gap.item(), Fit(dual, beta, b, alpha)

    def _curvature(self, gram: Tensor, y: Tensor, alpha: float, fit: Fit) -> Curvature:
        return DiagonalCurvature(gram, _free(fit.beta, self._weights(gram) / (2.0 * self.n * alpha)).to(gram), 0.0)


class EpsilonInsensitive(SupportVectorLoss):
    """min_{f,b} 1/n Σ max(0, |y_i − f(x_i) − b| − ε) + α‖f‖², summed over the columns of y.

    Parameters
    ----------
    targets : array (n,) or (n, p)
    alpha : float
        libsvm's C is 1/(2nα).
    epsilon : float
        The half-width ε ≥ 0 of the tube in which errors cost nothing.
    intercept : bool
        libsvm knows no fit without b: False is refused.
    tol, max_iter : float, int
        The settings of libsvm, whose solution is polished in double precision.
    sample_weight : array (n,), optional
        Positive weights of the samples: those of a weighted mean in the place of 1/n Σ.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        epsilon: float = 0.1,
        intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1_000_000,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        if not (epsilon >= 0 and math.isfinite(epsilon)):
            raise ValueError(f"epsilon, the half-width of the tube, must be finite and ≥ 0; got {epsilon}.")
        self.epsilon = epsilon
        super().__init__(
            targets, alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter, sample_weight=sample_weight
        )

    def _machine(self, C: float) -> SVR:
        from sklearn.svm import SVR  # here, because few fits need it and its import takes long

        return SVR(kernel="precomputed", C=C, epsilon=self.epsilon, tol=self.tol, max_iter=self.max_iter)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        residual = targets - F
        outside = (residual.abs() - self.epsilon).clamp(min=0.0)
        return outside.sum(1), residual.sign() * (outside > 0)


class Hinge(SupportVectorLoss):
    """min_{f,b} 1/n Σ max(0, 1 − y_i(f(x_i) + b)) + α‖f‖², summed over the columns of y.

    Parameters
    ----------
    targets : array (n,) or (n, p)
        Labels −1 and +1.
    alpha, intercept, tol, max_iter, sample_weight
        As for ``EpsilonInsensitive``.
    """

    def _encoded(self, targets: ArrayLike) -> Tensor:
        return sign_columns(targets, name="Hinge")

    def _machine(self, C: float) -> SVC:
        from sklearn.svm import SVC

        return SVC(kernel="precomputed", C=C, tol=self.tol, max_iter=self.max_iter)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        inside = (1.0 - targets * F).clamp(min=0.0)
        return inside.sum(1), targets * (inside > 0)


class SquaredHinge(SmoothLoss):
    """min_{f,b} 1/n Σ max(0, 1 − y_i(f(x_i) + b))² + α‖f‖², summed over the columns of y.

    Newton's method in the primal (Chapelle 2007): a ridge problem on the points inside the margin, to finite
    convergence.

    Parameters
    ----------
    targets : array (n,) or (n, p)
        Labels −1 and +1.
    alpha : float
    intercept : bool
        Whether there is a b.
    tol : float
        The largest violation of 2nα β = −ℓ′ at the solution, relative to the largest ℓ′ of f = 0.
    max_iter : int
    sample_weight : array (n,), optional
        Positive weights of the samples: those of a weighted mean in the place of 1/n Σ.
    """

    def _encoded(self, targets: ArrayLike) -> Tensor:
        return sign_columns(targets, name="SquaredHinge")

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        inside = (1.0 - targets * F).clamp(min=0.0)
        return inside.square().sum(1), 2.0 * targets * inside

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        return DiagonalCurvature(gram, (2.0 * self._weights(gram) * (y * F < 1.0))[:, 0], c)


def _free(beta: Tensor, C: Tensor) -> Tensor:
    """Which samples are support vectors inside their bounds C (n, 1), up to what libsvm can tell."""
    return ((beta.abs() > 1e-8 * C) & (beta.abs() < (1.0 - 1e-8) * C))[:, 0]


def _support_vectors(machine: SVC | SVR, gram: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The solution β and b that libsvm finds."""
    with warnings.catch_warnings():
        # Running out of iterations is judged by the duality gap, not by libsvm's criterion.
        warnings.filterwarnings("ignore", message="Solver terminated early")
        machine.fit(*(x.numpy(force=True) for x in (gram, y[:, 0], weights[:, 0])))
    beta = np.zeros((len(y), 1))
    beta[machine.support_, 0] = machine.dual_coef_[0]
    return torch.as_tensor(beta).to(y), torch.as_tensor(machine.intercept_).to(y)


def _polish(gram: Tensor, beta: Tensor, b: Tensor, level: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    """Solve K_FF β_F + b = level_F − K_FB β_B, Σβ = 0 for the free support vectors F; B are those at a bound.

    libsvm keeps K in single precision, so that β has seven digits less those of the condition of K_FF; given
    the active set, the optimum is a linear system. A solution that leaves the active set is not taken.
    """
    free = torch.nonzero(_free(beta, C))[:, 0]
    if len(free) == 0:
        return beta, b
    at_bounds = beta.clone()
    at_bounds[free] = 0.0
    right = (level - gram @ at_bounds)[free]
    try:
        K_FF = factorize(gram[free[:, None], free], name="The Gram matrix of the free support vectors")
    except NotPositiveDefiniteError:
        return beta, b
    g, h = K_FF.solve(torch.cat([right, torch.ones_like(right)], dim=1)).unbind(1)
    new_b = (g.sum() + at_bounds.sum()) / h.sum()
    new = g - new_b * h
    if not bool(((new * beta[free, 0] > 0) & (new.abs() <= C[free, 0])).all()):
        return beta, b
    at_bounds[free, 0] = new
    return at_bounds, new_b[None]


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
    intercept, tol, max_iter, sample_weight
        As for ``SquaredHinge``, with the best constant in the place of f = 0.
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
        sample_weight: ArrayLike | None = None,
    ) -> None:
        if not (delta > 0 and math.isfinite(delta)):
            raise ValueError(
                f"delta, where the loss turns from squared to linear, must be finite and > 0 (in the units of the "
                f"targets); got {delta}. For squared loss use Ridge."
            )
        self.delta = delta
        super().__init__(
            targets, alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter, sample_weight=sample_weight
        )

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
        return (clipped * (2.0 * residual - clipped)).sum(1), 2.0 * clipped

    def _cold_intercept(self, y: Tensor) -> Tensor:
        return y.median(0).values  # of a sample, so that at least one error is small

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        residual, weights = (y - F)[:, 0], self._weights(gram)[:, 0]
        small = residual.abs() <= self.delta
        if self.intercept and not bool(small.any()) and weights @ residual.sign() != 0:
            # The Hessian knows nothing of b, which must move: take the quadratic bound of reweighted least squares.
            return DiagonalCurvature(gram, 2.0 * self.delta * weights / residual.abs(), c)
        return DiagonalCurvature(gram, 2.0 * weights * small, c)


class Logistic(SmoothLoss):
    """min_{f,b} 1/n Σ −log p(y_i | f(x_i) + b) + α‖f‖², p logistic for one column and the softmax of k ≥ 2.

    At the optimum β = (y − p)/(2nα). A factorisation costs one Cholesky for one column; for a softmax k inverses, one
    more Cholesky and memory for k matrices. Solved again for a similar Gram matrix, one or two are needed.

    Parameters
    ----------
    targets : array (n,) or one-hot (n, k)
        One column: −1, +1 or 0, 1. With an intercept every class must occur: a missing one would have an infinite
        intercept.
    alpha, intercept, tol, max_iter, sample_weight
        As for ``SquaredHinge``.
    """

    couples_columns = True

    def _encoded(self, targets: ArrayLike) -> Tensor:
        """The targets as (n, 1) of 0 and 1 for two classes, otherwise one-hot (n, k)."""
        values = columns(targets)
        if values.shape[1] > 1:
            return one_hot(targets, name="Logistic")
        if not bool(((values == 1) | (values == values.min())).all()) or values.min() not in (-1, 0, 1):
            raise ValueError(
                f"Logistic expects labels −1, +1 or 0, 1 or a one-hot matrix (n, k); got "
                f"{some_values(values)}. Encode labels: (labels[:, None] == classes).astype(float)."
            )
        return (values == 1).to(values)

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
            return (softplus(F) - T * F)[:, 0], T - torch.sigmoid(F)
        return torch.logsumexp(F, 1) - (T * F).sum(1), T - torch.softmax(F, 1)

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        if y.shape[1] == 1:
            P = torch.sigmoid(F)
            return DiagonalCurvature(gram, (self._weights(gram) * P * (1.0 - P))[:, 0], c)
        return SoftmaxCurvature(gram, self._weights(gram) * torch.softmax(F, 1), c)
