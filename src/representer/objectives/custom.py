"""Any differentiable loss of all samples jointly, with any increasing penalty of the norm."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from representer.linalg import eigh
from representer.objectives.base import ArrayLike, Fit, InnerProblem, NotConvergedError, columns, inner
from representer.optimize import OptimizeResult, lbfgs

LossFunction = Callable[..., Tensor]  # of F and Y, or of F, Y and weights
Penalty = Callable[[Tensor], Tensor]

# Iterations that are enough to learn how strongly a loss is curved.
SCOUTING = 10
# A minimum leaves less than this part of the terms that make up the gradient.
STATIONARY = torch.finfo(torch.float64).eps ** 0.25


class CustomLoss(InnerProblem):
    """min_{f,b} L(F, Y) + Θ(‖f‖²), F = (f(x_1) + b, …, f(x_n) + b), for a differentiable L and an increasing Θ.

    L need not be a sum over samples. If it is not convex, the solution is the local minimum that L-BFGS finds from
    f = 0. At the solution 2Θ′β = −∂L/∂F.

    Parameters
    ----------
    function : callable
        (F, Y) -> L, a scalar tensor; both arguments are double precision tensors (n, p), also for p = 1. Built from
        torch operations, so that autograd finds its gradient. Take the mean over samples, not the sum, if alpha
        is to keep its meaning when n changes. With weights it is called with a third argument (F, Y, w), a column
        (n, 1) of mean one.
    targets : array (n,) or (n, p)
        Y, which also says how many columns F has.
    penalty : float or callable
        The α > 0 of Θ(s) = αs, or Θ itself: a scalar tensor s ≥ 0 to a scalar tensor, strictly increasing.
    intercept : bool
        Whether there is a b.
    tol : float
        The tolerance of L-BFGS; 0 runs until the precision is exhausted.
    max_iter : int
    sample_weight : array (n,), optional
        Positive weights of the samples, for a ``function`` that takes them.

    Examples
    --------
    >>> import torch
    >>> from representer.objectives import CustomLoss
    >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    >>> worst = lambda F, Y: torch.logsumexp(20 * (F - Y) ** 2, 0).sum() / 20  # nearly the largest square
    >>> fit = CustomLoss(worst, 3 * x, penalty=lambda s: 1e-3 * s**2).evaluate(x @ x.T)
    >>> float((x.T @ fit.dual).round(decimals=1))  # the slope of the line
    2.9
    """

    def __init__(
        self,
        function: LossFunction,
        targets: ArrayLike,
        *,
        penalty: float | Tensor | Penalty,
        intercept: bool = False,
        tol: float = 0.0,
        max_iter: int = 1000,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        self.function = function
        self.penalty = penalty if callable(penalty) else None
        self.tol = tol
        self.max_iter = max_iter
        super().__init__(
            columns(targets),
            alpha=None if callable(penalty) else penalty,
            intercept=intercept,
            sample_weight=sample_weight,
        )
        Y = self.targets.double()
        self._require_finite("The custom loss at f = 0", *self._loss(torch.zeros_like(Y), Y))
        if self.penalty is not None:
            self._require_finite("The penalty at ‖f‖² = 0", *self._penalty(Y.new_zeros(()), 0.0))

    @staticmethod
    def _require_finite(what: str, value: Tensor, derivative: Tensor) -> None:
        if not bool(torch.isfinite(value)) or not bool(torch.isfinite(derivative).all()):
            raise ValueError(
                f"{what} is {value.item():.3g} with a largest derivative of {derivative.abs().max().item():.3g}; both "
                "must be finite, because the search starts there. Look for logarithms, roots and quotients of zero."
            )

    def _loss(self, F: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss L of values F (n, p) and its derivative ∂L/∂F."""
        weights = () if self.sample_weight is None else (self._weights(Y),)
        return _differentiate(lambda F: self.function(F, Y, *weights), F, "The custom loss")

    def _penalty(self, s: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        """The penalty Θ(s) and its derivative Θ′(s)."""
        if self.penalty is None:
            return alpha * s, torch.full_like(s, alpha)
        value, slope = _differentiate(self.penalty, s, "The penalty")
        if slope < 0 or (slope == 0 and s > 0):
            raise ValueError(
                f"The penalty must increase strictly with ‖f‖²; its derivative is {slope.item():.3g} at ‖f‖² = "
                f"{s.item():.3g}. Without that, no representer theorem holds."
            )
        return value, slope

    def _fit(self, gram: Tensor, targets: Tensor, alpha: float, near: Fit | None) -> Fit:
        """If L had the curvature dI, then θ with its entries scaled by (2Θ′ + d e)^½, e = ‖columns of B‖², would be
        perfectly conditioned. So a few iterations measure d, and the others search there.
        """
        B, e, penalised = _coordinates(gram, self.intercept)
        nowhere: list[str] = []  # where the loss was not defined: no matter if the search can step around it

        def total(theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            """The objective and its gradient, followed by ∂L/∂F and Θ′."""
            f = penalised * theta
            L, G = self._loss(B @ theta, targets)
            if not nowhere and not bool(torch.isfinite(L + G.sum())):
                nowhere.append(_whereabouts(B @ theta, L, G))
            penalty, slope = self._penalty(inner(f, f), alpha)
            return L + penalty, B.mT @ G + 2.0 * slope * f, G, slope

        def search(theta: Tensor, scale: Tensor, max_iter: int) -> tuple[Tensor, OptimizeResult]:
            def function(points: Tensor) -> tuple[Tensor, Tensor]:
                value, gradient, _, _ = total(points.reshape(theta.shape) / scale)
                return value[None], (gradient / scale).reshape(1, -1)

            try:
                result = lbfgs(function, (theta * scale).reshape(-1), max_iter=max_iter, tol=self.tol)
            except ValueError as error:
                raise ValueError(nowhere[0]) if nowhere else error from error
            return result.completed().point.reshape(theta.shape) / scale, result

        start = gram.new_zeros(len(e), targets.shape[1])
        theta, _ = search(start, torch.ones_like(e), SCOUTING)
        (_, _, G0, _), (_, _, G1, slope) = total(start), total(theta)
        moved = B @ theta
        d = (inner(G1 - G0, moved) / inner(moved, moved)).nan_to_num().clamp(min=0.0)
        scale = (2.0 * slope * penalised + d * e).sqrt()
        theta, result = search(theta, torch.where(scale > 0, scale, 1.0), self.max_iter)
        value, gradient, G, slope = total(theta)
        size = (B.abs().mT @ G.abs()).norm() + 2.0 * slope * (penalised * theta).norm()
        # A search that cannot step any more, for half of the digits of the gradient have vanished, has converged, too.
        enough = STATIONARY if result.converged else STATIONARY**2
        if not gradient.norm() <= enough * size:
            if nowhere:
                raise ValueError(nowhere[0])
            raise NotConvergedError(
                f"The custom loss was not minimised: {result.message}, at a value of {value.item():.6g} and a gradient "
                f"of {gradient.norm().item():.2g}. Check that the loss is smooth and bounded below, increase max_iter "
                f"(now {self.max_iter}) or loosen tol ({self.tol})."
            )
        beta = torch.where(G == 0.0, 0.0, -G / (2.0 * slope))  # Θ′(0) may be zero
        return Fit(value, beta, (B @ theta - gram @ beta).mean(0) * self.intercept, slope.item())


def _coordinates(gram: Tensor, intercept: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Orthogonal columns B with K = BBᵀ, so that F = Bθ and ‖f‖² = ‖θ‖²; their ‖·‖² (r, 1); and which are penalised.

    With an intercept Σ_i β_i = 0, for which K and the centred K differ by a constant: there the constant is a column of
    its own, orthogonal to the others and without penalty.
    """
    if intercept:
        gram = gram - gram.mean(0)
        gram = gram - gram.mean(1, keepdim=True)
    spectrum = eigh(gram, name="The Gram matrix")
    keep = spectrum.values > len(gram) * torch.finfo(gram.dtype).eps * spectrum.values[-1]
    e = spectrum.values[keep]
    B, penalised = spectrum.root()[:, keep], torch.ones_like(e)
    if intercept:
        B = torch.cat([B, B.new_ones(len(B), 1)], 1)
        e, penalised = torch.cat([e, e.new_tensor([len(B)])]), torch.cat([penalised, e.new_zeros(1)])
    return B, e[:, None], penalised[:, None]


def _whereabouts(F: Tensor, loss: Tensor, derivative: Tensor) -> str:
    """Where a loss is not finite, and what to do."""
    broken = ~torch.isfinite(derivative).all(1)
    sample = f", first for sample {int(broken.nonzero()[0])}" if bool(broken.any()) else ""
    return (
        f"The custom loss is {loss.item():.3g} at values F between {F.min().item():.3g} and {F.max().item():.3g}; "
        f"{int(broken.sum())} of {len(F)} samples have a derivative that is not finite{sample}. The search cannot step "
        "around it. Look for logarithms, roots and quotients of zero."
    )


def _differentiate(function: Callable[[Tensor], Tensor], at: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """The value and the derivative of a user's function, detached."""
    with torch.enable_grad():
        leaf = at.detach().requires_grad_(True)
        value = function(leaf)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{what} must return a tensor with one number, got {got}. Use .sum() or .mean().")
        if not value.requires_grad:
            raise ValueError(
                f"{what} returned a value that does not depend on its argument for autograd. Use torch operations "
                "throughout: no .item(), .detach(), numpy or torch.no_grad()."
            )
        (derivative,) = torch.autograd.grad(value.reshape(()), leaf)
    return value.detach().reshape(()).to(at), derivative
