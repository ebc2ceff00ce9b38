"""Hidden features of new points: the stationarity conditions (A.1) of Tonin et al. for one more sample.

With the weights W_j of the training data, a new x has the h_1, …, h_L for which

    Λ_j h_j = H_jᵀ k_j(h_{j−1}) / η_j + Σ_n ∂k_{j+1}(h_j, h_{j,n})/∂h_j (h_{j+1,n}ᵀ h_{j+1}) / η_{j+1},

where k_j(h) holds the kernel of h with the training samples' hidden features, k_1(x) that of the data, and the second
term is missing at the last level. Training points solve it with their own hidden features, as far as a fit solves its
equations. What is left there is taken off the equations of the new points that are nearest to them, so that training
points solve theirs to rounding, and points near them have hidden features near theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from representer.kernels.base import Kernel
from representer.kernels.products import Linear
from representer.objectives.multilevel import slope
from representer.optimize.equations import broyden, jacobian, levenberg_marquardt

# Steps of a solution end when they move no hidden feature by more than this share of the largest one.
ACCURACY = 1e-10
MAX_ITER = 50
# Rounding of a sum of N terms, in units of √N eps: kernels of differences of large numbers have lost some digits.
ROUNDING = 16.0
# A solution further from its start than so many Newton steps from there belongs to another sample, perhaps.
REACH = 3.0


@dataclass(frozen=True)
class Extension:
    """The equations of new points, for fitted levels."""

    hidden: Sequence[Tensor]
    multipliers: Sequence[Tensor]  # Λ_j
    variances: Sequence[Tensor]  # H_jᵀ K_j H_j / η_j
    forward: Tensor  # K_1 H_1 / η_1
    kernels: Sequence[Kernel]  # k_2, …, k_L
    etas: Sequence[float]
    coupled: bool = True  # False: each level only follows the one below
    largest: float = 0.0  # k_1(x, x), not centred: what centring has rounded

    @property
    def sizes(self) -> list[int]:
        return [H.shape[1] for H in self.hidden]

    @cached_property
    def is_linear(self) -> bool:
        return all(isinstance(kernel, Linear) for kernel in self.kernels)

    @cached_property
    def _weights(self) -> Sequence[Tensor]:
        """What h_j is multiplied by where it only follows the level below.

        It is Λ_j for levels that are not coupled. Between linear levels, H_{j+1} of a stationary point lies within the
        span of H_j or orthogonal to it; so the term of the level above takes off Λ_j what coupling has added, and the
        level's own variance is left. (Formed by subtraction, it would be rounding where the data are small.) Of a
        linear level, only what it has from directions with variance of the level below is variance.
        """
        if not self.is_linear:
            return self.multipliers
        weights = list(self.variances[:1])
        for below, H, eta in zip(self.hidden, self.hidden[1:], self.etas[1:], strict=False):
            cross = H.mT @ below @ _projection(weights[-1])
            weights.append(cross @ cross.mT / eta)
        return weights

    @cached_property
    def ranks(self) -> list[int]:
        """The number of components with variance of each level."""
        return [int(resolved(torch.linalg.eigvalsh(weight)).sum()) for weight in self._weights]

    @cached_property
    def _span(self) -> Tensor:
        """The projection on directions with variance, of all levels side by side."""
        return torch.block_diag(*(_projection(weight) for weight in self._weights))

    @cached_property
    def known(self) -> Tensor:
        """Hidden features of the training samples, but 0 in directions without variance."""
        return torch.cat(list(self.hidden), 1) @ self._span

    def __call__(self, rows: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden features (m, Σ s_j) for k_1(x, x_n) (m, N), from those of the nearest samples; and which converged."""
        start = self.known[nearest]
        change = rows @ self.hidden[0] / self.etas[0] - self.forward[nearest]
        change[(change.abs() <= self._rounding * self._largest_forward).all(1)] = 0.0
        values, converged = self._following(change, start), torch.ones_like(nearest, dtype=torch.bool)
        if self.coupled and not self.is_linear:
            moved = change.any(1)
            values[moved], converged[moved] = self._solved(change[moved], nearest[moved], values[moved])
            values[~moved] = start[~moved]
        return values, converged

    def _solved(self, change: Tensor, nearest: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """The solutions near the nearest samples, by Broyden's method from their Jacobians, and which were found.

        Where that strays, or fails, steps that only descend begin there, at the features that follow, and at 0.
        """
        samples, number = nearest.unique(return_inverse=True)
        left_over = self._within(self.known[samples], self.forward[samples])[number]
        inverses = self._inverse_jacobians(samples)[number]
        start, forward = self.known[nearest], self.forward[nearest] + change
        limits: dict[str, Any] = {
            "scale": self._scale,
            "tol": ACCURACY,
            "noise": self._noise,
            "max_iter": MAX_ITER,
        }

        def equations(h: Tensor, rows: Tensor) -> Tensor:
            return self._within(h, forward[rows]) - left_over[rows]

        values, converged = broyden(equations, start, inverses, **limits)
        # At the start the equations are off by −change, at the first level.
        newton = (inverses[:, :, : change.shape[1]] @ change[:, :, None])[:, :, 0]
        near = (values - start).norm(dim=1) <= REACH * newton.norm(dim=1)
        open_ = ~(converged & near)
        for begin in (start, following, torch.zeros_like(start)):
            left = torch.nonzero(open_)[:, 0]
            if not len(left):
                break
            found, done = levenberg_marquardt(
                lambda h, rows: equations(h, left[rows]),  # noqa: B023  called at once
                begin[left],
                **limits,
            )
            values[left[done]], converged[left[done]] = found[done], True
            open_ = ~converged
        values[~converged] = start[~converged]
        return values, converged

    def equations(self, h: Tensor, forward: Tensor) -> Tensor:
        """Left minus right side, for hidden features (m, Σ s_j) and H_1ᵀ k_1(x) / η_1 (m, s_1)."""
        parts = list(h.split(self.sizes, 1))
        sides = []
        for j, part in enumerate(parts):
            side = part @ self.multipliers[j] - forward
            if j + 1 < len(parts):
                kernel, H, above, eta = self.kernels[j], self.hidden[j], self.hidden[j + 1], self.etas[j + 1]
                gram = kernel._gram(part, H)
                side = side - slope(kernel, part, H, parts[j + 1] @ above.mT, gram) / eta
                forward = gram @ above / eta
            sides.append(side)
        return torch.cat(sides, 1)

    def _within(self, h: Tensor, forward: Tensor) -> Tensor:
        """The equations along directions with variance, for hidden features that are 0 along the others."""
        return self.equations(h @ self._span, forward) @ self._span

    def _following(self, change: Tensor, start: Tensor) -> Tensor:
        """Each level follows the one below, by as much as that differs from the nearest sample's."""
        parts = list(start.split(self.sizes, 1))
        for j, (known, weight) in enumerate(zip(list(parts), self._weights, strict=True)):
            parts[j] = known + change @ _inverse(weight)
            if j + 1 < len(parts):
                kernel, H, above = self.kernels[j], self.hidden[j], self.hidden[j + 1]
                change = (kernel._gram(parts[j], H) - kernel._gram(known, H)) @ above / self.etas[j + 1]
        return torch.cat(parts, 1)

    @cached_property
    def _scale(self) -> float:
        return max(H.abs().max().item() for H in self.hidden)

    @cached_property
    def _rounding(self) -> float:
        """Of sums over the samples, relative to their largest terms."""
        return float(ROUNDING * torch.finfo(self.forward.dtype).eps * len(self.forward) ** 0.5)

    @cached_property
    def _largest_forward(self) -> float:
        return max(self.forward.abs().max().item(), self.largest / abs(self.etas[0]))

    @cached_property
    def _noise(self) -> Tensor:
        """Of each equation, what may be rounding."""
        levels = zip(self.hidden, self.multipliers, strict=True)
        largest = [(H @ multiplier).abs().max().expand(H.shape[1]) for H, multiplier in levels]
        largest[0] = largest[0].clamp(min=self._largest_forward)
        return self._rounding * torch.cat(largest)

    def _inverse_jacobians(self, samples: Tensor) -> Tensor:
        """Of the equations of training samples, (m, S, S), in which every level has its own units."""
        h, forward = self.known[samples], self.forward[samples]

        def equations(h: Tensor, rows: Tensor) -> Tensor:
            return self._within(h, forward[rows])

        rows = torch.arange(len(h), device=h.device)
        J = jacobian(equations, h, equations(h, rows), rows, self._scale)
        units = torch.cat([_largest(part).sqrt().expand(len(part)) for part in self.multipliers])
        return _inverse(J / units[:, None] / units) / units[:, None] / units


def _largest(matrix: Tensor) -> Tensor:
    """The largest entry of a matrix in size, or 1 if all are zero."""
    size = matrix.abs().max()
    return torch.where(size > 0, size, 1.0)


def _inverse(matrix: Tensor) -> Tensor:
    """The pseudo-inverse of symmetric matrices: directions without variance stay at zero."""
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    inverses = torch.where(resolved(values), 1.0 / values, 0.0)
    return (vectors * inverses[..., None, :]) @ vectors.mT


def _projection(matrix: Tensor) -> Tensor:
    """The projection on the directions with variance."""
    values, vectors = torch.linalg.eigh(matrix)
    kept = vectors[:, resolved(values)]
    return kept @ kept.mT


def resolved(values: Tensor) -> Tensor:
    """Which eigenvalues of matrices are more than rounding, beside the largest."""
    sizes = values.abs()
    return sizes > values.shape[-1] * torch.finfo(values.dtype).eps ** 0.75 * sizes.amax(-1, keepdim=True)
