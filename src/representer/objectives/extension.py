"""Hidden features of new points: the stationarity conditions (A.1) of Tonin et al. for one more sample.

With the weights W_j of the training data, a new x has the h_1, …, h_L for which

    Λ_j h_j = H_jᵀ k_j(h_{j−1}) / η_j + Σ_n ∂k_{j+1}(h_j, h_{j,n})/∂h_j (h_{j+1,n}ᵀ h_{j+1}) / η_{j+1},

where k_j(h) holds the kernel of h with the training samples' hidden features, k_1(x) that of the data, and the second
term is missing at the last level. Training points solve it with their own hidden features. If all kernels but the first
are linear, it is one linear system for all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from representer.kernels.base import Kernel
from representer.kernels.products import Linear
from representer.objectives.multilevel import slope
from representer.optimize.equations import broyden, levenberg_marquardt

# Steps of a solution end when they move no hidden feature by more than this share of the largest one.
ACCURACY = 1e-10
MAX_ITER = 50


@dataclass(frozen=True)
class Extension:
    """The equations of new points, for fitted levels."""

    hidden: Sequence[Tensor]
    multipliers: Sequence[Tensor]  # Λ_j
    kernels: Sequence[Kernel]  # k_2, …, k_L
    etas: Sequence[float]
    coupled: bool = True  # False: each level only follows the one below

    @property
    def sizes(self) -> list[int]:
        return [H.shape[1] for H in self.hidden]

    def __call__(self, rows: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden features (m, Σ s_j) for k_1(x, x_n) (m, N), from those of the nearest samples; and which converged."""
        forward = rows @ self.hidden[0] / self.etas[0]
        if not self.coupled or len(self.hidden) == 1:
            return self._levelwise(forward), torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if all(isinstance(kernel, Linear) for kernel in self.kernels):
            system = self._linear_system()
            right = torch.zeros(len(rows), len(system), dtype=rows.dtype, device=rows.device)
            right[:, : forward.shape[1]] = forward
            # Levels differ in their units: what is without variance is so beside its own level.
            units = torch.cat(
                [_largest(multiplier).sqrt().expand(len(multiplier)) for multiplier in self.multipliers]
            )
            inverse = _inverse(system / units[:, None] / units) / units[:, None] / units
            return right @ inverse.mT, torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        together = torch.cat(list(self.hidden), 1)
        inverse = torch.block_diag(*(_inverse(multiplier) for multiplier in self.multipliers))
        scale = max(H.abs().max().item() for H in self.hidden)

        def equations(h: Tensor, numbers: Tensor) -> Tensor:
            return self.equations(h, forward[numbers])

        values, converged = broyden(
            equations, together[nearest], inverse, scale=scale, tol=ACCURACY, max_iter=MAX_ITER
        )
        for start in (together[nearest], self._levelwise(forward), torch.zeros_like(values)):
            left = torch.nonzero(~converged)[:, 0]
            if not len(left):
                break
            values[left], converged[left] = levenberg_marquardt(
                lambda h, numbers: equations(h, left[numbers]),  # noqa: B023  called at once
                start[left],
                scale=scale,
                tol=ACCURACY,
                max_iter=MAX_ITER,
            )
        values[~converged] = together[nearest[~converged]]
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

    def _levelwise(self, forward: Tensor) -> Tensor:
        parts = [forward @ _inverse(self.multipliers[0])]
        levels = zip(
            self.kernels, self.hidden, self.hidden[1:], self.multipliers[1:], self.etas[1:], strict=False
        )
        for kernel, below, H, multiplier, eta in levels:
            parts.append(kernel._gram(parts[-1], below) @ H / eta @ _inverse(multiplier))
        return torch.cat(parts, 1)

    def _linear_system(self) -> Tensor:
        """Λ on the diagonal and −H_jᵀH_{j+1}/η_{j+1} beside it."""
        system = torch.block_diag(*self.multipliers)
        offset = 0
        for j in range(len(self.hidden) - 1):
            H, above = self.hidden[j], self.hidden[j + 1]
            rows = slice(offset, offset + H.shape[1])
            columns = slice(rows.stop, rows.stop + above.shape[1])
            system[rows, columns] = -H.mT @ above / self.etas[j + 1]
            system[columns, rows] = system[rows, columns].mT
            offset = rows.stop
        return system


def _largest(matrix: Tensor) -> Tensor:
    """The largest entry of a matrix in size, or 1 if all are zero."""
    size = matrix.abs().max()
    return torch.where(size > 0, size, 1.0)


def _inverse(matrix: Tensor) -> Tensor:
    """The pseudo-inverse of a symmetric matrix: directions without variance stay at zero."""
    values, vectors = torch.linalg.eigh(matrix)
    kept = resolved(values)
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].mT


def resolved(values: Tensor) -> Tensor:
    """Which eigenvalues are more than rounding, beside the largest."""
    return values.abs() > len(values) * torch.finfo(values.dtype).eps ** 0.75 * values.abs().max()
