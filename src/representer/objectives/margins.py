"""Losses with a margin: ε-insensitive and hinge by libsvm's dual solver, squared hinge by Newton."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod

import numpy as np
import torch
from sklearn.svm import SVC, SVR
from torch import Tensor

from representer.linalg import NotPositiveDefiniteError, factorize
from representer.objectives.base import inner
from representer.objectives.convex import ConvexLoss, SmoothLoss
from representer.objectives.curvature import Curvature, DiagonalCurvature
from representer.objectives.inner_problem import Fit, NotConvergedError
from representer.objectives.targets import ArrayLike, columns, sign_columns

# In single precision libsvm cannot solve everything: a gap beyond this part of the value is an error.
LARGEST_GAP = 1e-4


class SupportVectorLoss(ConvexLoss, ABC):
    """max_β α(2yᵀβ − 2ε‖β‖₁ − βᵀKβ), |β_i| ≤ C = 1/(2nα), Σβ_i = 0: the dual of a support vector machine.

    The value is that of the dual, whose error is of second order in the error of β. At the solution only the free
    support vectors, 0 < |β_i| < C, follow a small change: they stay on the edge of the margin.
    """

    def __init__(
        self,
        targets: Tensor,
        *,
        alpha: float | Tensor,
        epsilon: float,
        intercept: bool,
        tol: float,
        max_iter: int,
    ) -> None:
        if not intercept:
            raise ValueError(
                f"{type(self).__name__} is solved by libsvm, which always fits an intercept; got intercept=False. "
                "Use a loss that can do without: SquaredHinge (squared_hinge) for labels, Huber (huber) for numbers."
            )
        self.epsilon = epsilon
        super().__init__(targets, alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter)

    @abstractmethod
    def _machine(self, C: float) -> SVC | SVR:
        """libsvm for a precomputed Gram matrix."""

    def _solve(self, gram: Tensor, y: Tensor, alpha: float, near: Fit | None) -> Fit:
        if bool((y == y[0]).all()):  # the constant fits without error; libsvm refuses a single class
            return Fit(gram.new_zeros(()), torch.zeros_like(y), y[0], alpha)
        C = 1.0 / (2.0 * self.n * alpha)
        beta, b = _support_vectors(self._machine(C), gram, y)
        polished = _polish(gram, beta, b, y - self.epsilon * beta.sign(), C)
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
        primal = self._loss(y, smooth + b)[0] / self.n + alpha * squared_norm
        gap = (primal - dual) / primal.clamp(min=torch.finfo(y.dtype).tiny)
        return gap.item(), Fit(dual, beta, b, alpha)

    def _curvature(self, gram: Tensor, y: Tensor, alpha: float, fit: Fit) -> Curvature:
        return DiagonalCurvature(gram, _free(fit.beta, 1.0 / (2.0 * self.n * alpha)).to(gram), 0.0)


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
        Of libsvm, whose solution is polished in double precision.
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
    ) -> None:
        if not (epsilon >= 0 and math.isfinite(epsilon)):
            raise ValueError(f"epsilon, the half-width of the tube, must be finite and ≥ 0; got {epsilon}.")
        super().__init__(
            columns(targets), alpha=alpha, epsilon=epsilon, intercept=intercept, tol=tol, max_iter=max_iter
        )

    def _machine(self, C: float) -> SVR:
        return SVR(kernel="precomputed", C=C, epsilon=self.epsilon, tol=self.tol, max_iter=self.max_iter)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        residual = targets - F
        outside = (residual.abs() - self.epsilon).clamp(min=0.0)
        return outside.sum(), residual.sign() * (outside > 0)


class Hinge(SupportVectorLoss):
    """min_{f,b} 1/n Σ max(0, 1 − y_i(f(x_i) + b)) + α‖f‖², summed over the columns of y.

    Parameters
    ----------
    targets : array (n,) or (n, p)
        −1 and +1.
    alpha : float
        libsvm's C is 1/(2nα).
    intercept : bool
        libsvm knows no fit without b: False is refused.
    tol, max_iter : float, int
        Of libsvm, whose solution is polished in double precision.
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1_000_000,
    ) -> None:
        y = sign_columns(targets, name="Hinge")
        super().__init__(y, alpha=alpha, epsilon=0.0, intercept=intercept, tol=tol, max_iter=max_iter)

    def _machine(self, C: float) -> SVC:
        return SVC(kernel="precomputed", C=C, tol=self.tol, max_iter=self.max_iter)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        inside = (1.0 - targets * F).clamp(min=0.0)
        return inside.sum(), targets * (inside > 0)


class SquaredHinge(SmoothLoss):
    """min_{f,b} 1/n Σ max(0, 1 − y_i(f(x_i) + b))² + α‖f‖², summed over the columns of y.

    Newton's method in the primal (Chapelle 2007): a ridge problem on the points inside the margin, to finite
    convergence.

    Parameters
    ----------
    targets : array (n,) or (n, p)
        −1 and +1.
    alpha : float
    intercept : bool
        Whether there is a b.
    tol : float
        Largest violation of 2nα β = −ℓ′ at the solution, relative to the largest ℓ′ of f = 0.
    max_iter : int
    """

    def __init__(
        self,
        targets: ArrayLike,
        *,
        alpha: float | Tensor,
        intercept: bool = True,
        tol: float = 1e-9,
        max_iter: int = 100,
    ) -> None:
        y = sign_columns(targets, name="SquaredHinge")
        super().__init__(y, alpha=alpha, intercept=intercept, tol=tol, max_iter=max_iter)

    def _loss(self, targets: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
        inside = (1.0 - targets * F).clamp(min=0.0)
        return inside.square().sum(), 2.0 * targets * inside

    def _curvature_at(self, gram: Tensor, y: Tensor, F: Tensor, c: float) -> Curvature:
        return DiagonalCurvature(gram, 2.0 * (y * F < 1.0)[:, 0].to(gram), c)


def _free(beta: Tensor, C: float) -> Tensor:
    """Which samples are support vectors inside their bounds, up to what libsvm can tell."""
    size = beta[:, 0].abs()
    return (size > 1e-8 * C) & (size < (1.0 - 1e-8) * C)


def _support_vectors(machine: SVC | SVR, gram: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """β and b as libsvm finds them."""
    with warnings.catch_warnings():
        # Running out of iterations is judged by the duality gap, not by libsvm's criterion.
        warnings.filterwarnings("ignore", message="Solver terminated early")
        machine.fit(gram.numpy(force=True), y[:, 0].numpy(force=True))
    beta = np.zeros((len(y), 1))
    beta[machine.support_, 0] = machine.dual_coef_[0]
    return torch.as_tensor(beta).to(y), torch.as_tensor(machine.intercept_).to(y)


def _polish(gram: Tensor, beta: Tensor, b: Tensor, level: Tensor, C: float) -> tuple[Tensor, Tensor]:
    """Solve K_FF β_F + b = level_F − K_FB β_B, Σβ = 0 for the free support vectors F; B are those at a bound.

    libsvm keeps K in single precision, so that β has seven digits less those of the condition of K_FF; given
    the active set, the optimum is a linear system. A solution that leaves the active set is not taken.
    """
    free = torch.nonzero(_free(beta, C))[:, 0]
    if len(free) == 0:
        return beta, b
    held = beta.clone()
    held[free] = 0.0
    right = (level - gram @ held)[free]
    try:
        K_FF = factorize(gram[free[:, None], free], name="The Gram matrix of the free support vectors")
    except NotPositiveDefiniteError:
        return beta, b
    g, h = K_FF.solve(torch.cat([right, torch.ones_like(right)], dim=1)).unbind(1)
    new_b = (g.sum() + held.sum()) / h.sum()
    new = g - new_b * h
    if not bool(((new * beta[free, 0] > 0) & (new.abs() <= C)).all()):
        return beta, b
    held[free, 0] = new
    return held, new_b[None]
