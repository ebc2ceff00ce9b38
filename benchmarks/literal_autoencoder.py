"""Kernel autoencoders as the paper trains them: over all coefficients, or by gradients and ridge fits in turn.

The baselines of ``bench_autoencoder``, after Laforgue, Clémençon and d'Alché-Buc (2019), sections 4.2 and 4.3, for two
layers with Gaussian kernels: (3) as a function of Φ₁ and Φ₂, with gradients by reverse-mode differentiation, minimised
by L-BFGS (the strongest use of that form) or by plain gradient descent; and algorithm 1, gradient steps on Φ₁ for a
fixed N₂ with an exact ridge fit after each. Nothing of the library is used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def gaussian(Z: Tensor, sigma: float) -> Tensor:
    """exp(−‖z − z'‖²/(2σ²)), by one matrix product."""
    squares = (Z**2).sum(-1)
    return torch.exp((Z @ Z.T - 0.5 * (squares[:, None] + squares)) / sigma**2)


@dataclass
class LiteralAutoencoder:
    """(3) for given data, with what its minimisation has reached and when.

    Parameters
    ----------
    X : array (n, d)
    sigmas : pair of float
        The lengthscales of encoder and decoder.
    lam, mu : float
        The weights of ‖f‖² and ‖g‖² beside the mean distortion.
    start : array (n, p)
        The codes from which all begin.
    """

    X: Array
    sigmas: tuple[float, float]
    lam: float
    mu: float
    start: Array
    trace: list[tuple[float, float]] = field(default_factory=list)  # seconds, least objective so far

    def __post_init__(self) -> None:
        self.data = torch.as_tensor(self.X)
        self.n = len(self.X)
        self.K1 = gaussian(self.data, self.sigmas[0])
        self.shift = self.n * self.mu * torch.eye(self.n, dtype=torch.float64)
        # Coefficients of least norm up to rounding; the cut-off is far below the eigenvalues that matter.
        codes = torch.as_tensor(self.start)
        self.phi1 = torch.linalg.lstsq(self.K1 + 1e-10 * torch.eye(self.n, dtype=torch.float64), codes).solution
        self.phi2 = self._ridge(self.K1 @ self.phi1)

    def _ridge(self, Z: Tensor) -> Tensor:
        return torch.linalg.solve(gaussian(Z, self.sigmas[1]) + self.shift, self.data)

    def objective(self, phi1: Tensor, phi2: Tensor) -> Tensor:
        """(3): distortion + λ‖f‖² + μ‖g‖²."""
        Z = self.K1 @ phi1
        K2 = gaussian(Z, self.sigmas[1])
        distortion = (self.data - K2 @ phi2).square().sum() / self.n
        return distortion + self.lam * (phi1 * Z).sum() + self.mu * (phi2 * (K2 @ phi2)).sum()

    def _note(self, began: float, value: float) -> None:
        least = min(value, self.trace[-1][1]) if self.trace else value
        self.trace.append((time.perf_counter() - began, least))

    def lbfgs(self, seconds: float) -> float:
        """The least objective after so long, over all coefficients at once."""
        began, shapes = time.perf_counter(), (self.phi1.numel(), self.phi2.numel())

        def function(flat: Array) -> tuple[float, Array]:
            if time.perf_counter() - began > seconds:
                raise TimeoutError
            point = torch.as_tensor(flat).requires_grad_()
            one, two = point.split(shapes)
            value = self.objective(one.view_as(self.phi1), two.view_as(self.phi2))
            (gradient,) = torch.autograd.grad(value, point)
            self._note(began, value.item())
            return value.item(), gradient.numpy()

        start = torch.cat([self.phi1.reshape(-1), self.phi2.reshape(-1)]).numpy()
        try:
            options = {"maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
            scipy.optimize.minimize(function, start, jac=True, method="L-BFGS-B", options=options)
        except TimeoutError:
            pass
        return self.trace[-1][1]

    def descend(self, seconds: float, rate: float = 1e-2) -> float:
        """Plain gradient descent on all coefficients, the rate halved when the objective rises."""
        began, (one, two) = time.perf_counter(), (self.phi1, self.phi2)
        value, gradients = self._with_gradients(one, two)
        while time.perf_counter() - began < seconds:
            moved = one - rate * gradients[0], two - rate * gradients[1]
            new, new_gradients = self._with_gradients(*moved)
            if new < value:
                (one, two), value, gradients, rate = moved, new, new_gradients, 1.2 * rate
            else:
                rate /= 2.0
            self._note(began, value)
        return self.trace[-1][1]

    def _with_gradients(self, one: Tensor, two: Tensor) -> tuple[float, tuple[Tensor, ...]]:
        one, two = one.detach().requires_grad_(), two.detach().requires_grad_()
        value = self.objective(one, two)
        return value.item(), torch.autograd.grad(value, [one, two])

    def algorithm_1(self, seconds: float, rate: float = 1e-2) -> float:
        """Gradient steps on Φ₁ with N₂ fixed (12 and 14: in all −λN₂ on the kernel), then the ridge fit (13) anew."""
        began, one = time.perf_counter(), self.phi1
        value = self._after_ridge(one)
        while time.perf_counter() - began < seconds:
            two = self._ridge(self.K1 @ one)
            N = two @ two.T
            point = one.detach().requires_grad_()
            Z = self.K1 @ point
            surrogate = -self.mu * (N * gaussian(Z, self.sigmas[1])).sum() + self.lam * (point * Z).sum()
            (gradient,) = torch.autograd.grad(surrogate, point)
            moved = one - rate * gradient
            new = self._after_ridge(moved)
            if new < value:
                one, value, rate = moved, new, 1.2 * rate
            else:
                rate /= 2.0
            self._note(began, value)
        return self.trace[-1][1]

    def _after_ridge(self, one: Tensor) -> float:
        return self.objective(one, self._ridge(self.K1 @ one)).item()
