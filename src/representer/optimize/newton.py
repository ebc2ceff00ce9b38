"""Newton's method for a few unknowns between bounds: the digits that L-BFGS leaves open in a flat valley."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from representer.linalg import noted_rounding
from representer.optimize.runs import with_gradient

Function = Callable[[Tensor], Tensor]


@noted_rounding()  # that of a search is no news
def newton(
    function: Function,
    start: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    tol: float = 1e-9,
    max_iter: int = 20,
) -> Tensor:
    """A local minimum between bounds, near a start: one column of second derivatives for each unknown.

    An eigenvalue of the Hessian counts by its size, so that every step leads downwards; it ends at the first bound in
    its way, and is halved while the value rises by more than rounding. What pushes against its bound stays there.

    Parameters
    ----------
    function : callable
        A twice differentiable function (m,) -> ().
    start, lower, upper : Tensor of shape (m,)
        Where to begin, and the bounds.
    tol : float
        The last step changes no unknown by more than this.
    max_iter : int
        Most steps.

    Returns
    -------
    point : Tensor of shape (m,)
        The last point; where the derivatives are not finite, the search ends.

    Examples
    --------
    >>> import torch
    >>> from representer.optimize import newton
    >>> start, bounds = torch.zeros(2).double(), torch.ones(2).double()
    >>> newton(lambda x: x[0].cosh() - x[0] / 2 + (x[1] - 3 * x[0]).square(), start, -bounds, bounds)
    tensor([0.3418, 1.0000], dtype=torch.float64)
    """
    point = start.detach().clamp(lower, upper)
    for _ in range(max_iter):
        value, gradient, hessian = _derivatives(function, point)
        if not bool(value.isfinite() & gradient.isfinite().all() & hessian.isfinite().all()):
            break
        step = _step(gradient, hessian, point <= lower, point >= upper)
        new = _along(function, point, value, step, lower, upper)
        settled = (new - point).abs().amax() <= tol
        point = new
        if bool(settled):
            break
    return point


def _derivatives(function: Function, point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The value, the gradient and the Hessian of a function at a point."""
    value, gradient = with_gradient(function)(point)
    hessian: Tensor = torch.autograd.functional.hessian(function, point)
    return value, gradient, 0.5 * (hessian + hessian.mT)


def _step(gradient: Tensor, hessian: Tensor, at_lower: Tensor, at_upper: Tensor) -> Tensor:
    """The step downwards and into the bounds, of the unknowns that do not push against theirs."""
    free = ~((at_lower & (gradient > 0)) | (at_upper & (gradient < 0)))
    step = torch.zeros_like(gradient)
    while bool(free.any()):
        sizes, V = torch.linalg.eigh(hessian[free][:, free])
        least = torch.finfo(gradient.dtype).eps ** 0.75 * sizes.abs().amax()  # below it, all is rounding
        sizes = sizes.abs().clamp(min=torch.maximum(least, least.new_tensor(torch.finfo(least.dtype).tiny)))
        step = torch.zeros_like(gradient)
        step[free] = -V @ ((V.mT @ gradient[free]) / sizes)
        out = (at_lower & (step < 0)) | (at_upper & (step > 0))
        if not bool(out.any()):
            return step
        free, step = free & ~out, torch.zeros_like(gradient)
    return step


def _along(function: Function, point: Tensor, value: Tensor, step: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The end of a step, or of the first share of it that leads no higher; the point itself if none does."""
    bound = torch.where(step > 0, upper, lower)
    until = torch.where(step == 0, torch.inf, (bound - point) / step)
    share = until.amin().clamp(max=1.0)
    highest = value + 8 * torch.finfo(value.dtype).eps * value.abs()
    for _ in range(40):
        new = torch.where(until <= share, bound, point + share * step)
        with torch.no_grad():
            if bool(function(new) <= highest):
                return new
        share = 0.5 * share
    return point
