"""Two-layer regression as the paper solves it: BFGS over the coefficients of the inner function, one start at a time.

The baseline of ``bench_deep``: (Reg) of Bohn, Griebel & Rieger (2019) over c ∈ ℝ^{N·D}, at its strongest. The inner
Gram matrix is computed once, the linear system is solved by one Cholesky factorisation, and the gradient comes from
reverse-mode differentiation through it (O(N³), where the derivatives of the inverse one by one that the paper counts
are O(N³D)). Nothing of the library is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Outer = Callable[[Tensor], Tensor]


def tensor_matern(Z: Tensor) -> Tensor:
    """exp(−‖z − z'‖₁): order 1, scaled to 1 at 0."""
    return torch.exp(-torch.cdist(Z, Z, p=1.0))


def gaussian(sigma: float) -> Outer:
    """exp(−‖z − z'‖²/(2σ²)), by one matrix product."""

    def gram(Z: Tensor) -> Tensor:
        squares = (Z**2).sum(-1)
        return torch.exp((Z @ Z.T - 0.5 * (squares[:, None] + squares)) / sigma**2)

    return gram


@dataclass(frozen=True)
class Runs:
    """What the sequential runs reached, and what they cost."""

    values: list[float]
    seconds: list[float]
    evaluations: list[int]


@dataclass(frozen=True)
class CoefficientForm:
    """(Reg) with K(x, y) = K_I(x, y)·I, as a function of the flat coefficients.

    Parameters
    ----------
    inner : array (N, N)
        The Gram matrix of K_I.
    y : array (N,)
    outer : callable
        Images (N, D) -> Gram matrix, differentiable.
    lam, mu : float
        Beside a sum of squares: n·alpha of the library.
    """

    inner: Array
    y: Array
    outer: Outer
    lam: float
    mu: float

    def value(self, c: Tensor) -> Tensor:
        """𝒬^λ(c) + 𝒩^μ(c) + 𝒞^λ(c)."""
        inner, y = torch.as_tensor(self.inner), torch.as_tensor(self.y)[:, None]
        c = c.reshape(len(inner), -1)
        images = inner @ c
        Q = self.outer(images)
        factor = torch.linalg.cholesky(Q + self.lam * torch.eye(len(Q), dtype=Q.dtype))
        coefficients = torch.cholesky_solve(y, factor)
        fit = Q @ coefficients
        return self.lam * (coefficients * fit).sum() + self.mu * (c * images).sum() + ((y - fit) ** 2).sum()

    def value_and_gradient(self, c: Array) -> tuple[float, Array]:
        """For SciPy."""
        point = torch.as_tensor(c).requires_grad_()
        value = self.value(point)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    def bfgs(self, starts: Array, *, gtol: float = 1e-5, max_iter: int | None = None) -> Runs:
        """``scipy.optimize.minimize(method="BFGS")`` from each row of ``starts`` in turn."""
        values, seconds, evaluations = [], [], []
        options = {"gtol": gtol} | ({} if max_iter is None else {"maxiter": max_iter})
        for start in starts:
            began = time.perf_counter()
            found = scipy.optimize.minimize(self.value_and_gradient, start, jac=True, method="BFGS", options=options)
            seconds.append(time.perf_counter() - began)
            values.append(float(found.fun))
            evaluations.append(int(found.nfev))
        return Runs(values, seconds, evaluations)
