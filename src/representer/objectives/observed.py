"""Targets of which some columns are known for some samples only: a sum of objectives, each on the rows it knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from representer.objectives.base import Evaluation
from representer.objectives.low_rank import FactorEvaluation, OnFactor


@dataclass(frozen=True)
class ObservedPart:
    """Columns of the targets that are known in the same rows, and their objective."""

    columns: Tensor
    rows: Tensor
    objective: Any


class Observed:
    """Σ over groups of columns of an objective on the rows in which they are known.

    Each group is a fit of its own, with its own mean over samples: a few labels beside many unlabelled samples weigh as
    much as all labels would.

    Parameters
    ----------
    parts : sequence of ObservedPart
        With objectives of squared loss.
    n, p : int
        Samples and columns in all.
    on_factor : bool
        Are the parts functions of a factor of the Gram matrix?
    """

    penalty = None

    def __init__(self, parts: Sequence[ObservedPart], n: int, p: int, *, on_factor: bool = False):
        self.parts, self.n, self.p, self._on_factor = list(parts), n, p, on_factor
        self.alpha = self.parts[0].objective.alpha if not on_factor else 1.0
        self.intercept = any(getattr(part.objective, "intercept", False) for part in self.parts)

    def _restricted(self, matrix: Tensor, part: ObservedPart) -> Tensor:
        if len(part.rows) == self.n:
            return matrix
        return matrix[..., part.rows, :] if self._on_factor else matrix[..., part.rows[:, None], part.rows]

    def __call__(self, matrix: Tensor, alpha: Any = None) -> Tensor:
        """The value (...), differentiable in the matrix and in alpha."""
        values = [part.objective(self._restricted(matrix, part), alpha) for part in self.parts]
        return torch.stack(values).sum(0)

    def envelope(self, matrix: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The values (b,) and gradients of a batch of matrices, as ``Objective.envelope``."""
        total, gradient = matrix.new_zeros(len(matrix)), torch.zeros_like(matrix)
        for part in self.parts:
            value, slope = part.objective.envelope(self._restricted(matrix, part), alpha)
            total = total + value
            if self._on_factor:
                gradient[..., part.rows, :] += slope
            else:
                gradient[..., part.rows[:, None], part.rows] += slope
        return total, gradient

    def evaluate(self, matrix: Tensor, *, alpha: Any = None, gradient: bool = False) -> Any:
        """The value, coefficients and intercepts of one matrix, each in the columns of its group."""
        if gradient:
            raise ValueError("Observed has its gradients through autograd: call it instead.")
        coefficients = matrix.new_zeros(matrix.shape[-1] if self._on_factor else self.n, self.p)
        intercept = matrix.new_zeros(self.p)
        total = matrix.new_zeros(())
        for part in self.parts:
            found = part.objective.evaluate(self._restricted(matrix, part), alpha=alpha, gradient=False)
            total = total + found.value
            if self._on_factor:
                coefficients[:, part.columns] = found.coefficients
            else:
                coefficients[part.rows[:, None], part.columns] = found.dual
            if found.intercept is not None:
                intercept[part.columns] = found.intercept
        b = intercept if self.intercept else None
        if self._on_factor:
            return FactorEvaluation(total, None, None, coefficients, b)
        return Evaluation(total, dual=coefficients, intercept=b)

    def on_factor(self) -> Observed:
        """The same as a function of a factor of the Gram matrix."""
        parts = [ObservedPart(part.columns, part.rows, OnFactor(part.objective)) for part in self.parts]
        return Observed(parts, self.n, self.p, on_factor=True)


def observed(Y: Tensor, make: Callable[[Tensor, Tensor], Any | None]) -> Any:
    """The objective ``make(targets, rows)`` of targets without gaps, or the sum over columns with the same gaps (NaN).

    ``make`` gets the targets that are known, and their rows among all; None leaves a group out, which has nothing to
    fit or nothing to be measured by.
    """
    missing = Y.isnan()
    everything = torch.arange(len(Y), device=Y.device)
    if not bool(missing.any()):
        return make(Y, everything)
    patterns, group = torch.unique(missing, dim=1, return_inverse=True)
    parts = []
    for index, pattern in enumerate(patterns.unbind(1)):
        columns = torch.nonzero(group == index)[:, 0]
        rows = everything[~pattern]
        objective = make(Y[rows][:, columns], rows) if len(rows) else None
        if objective is not None:
            parts.append(ObservedPart(columns, rows, objective))
    return Observed(parts, len(Y), Y.shape[1])
