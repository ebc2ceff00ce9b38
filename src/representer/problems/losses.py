"""Losses by name: the objectives that fit them, and the errors that choose their hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from representer.objectives import (
    CustomLoss,
    EpsilonInsensitive,
    GeneralizedCrossValidation,
    HeldOut,
    HeldOutLoss,
    Hinge,
    Huber,
    Interpolation,
    LeaveOneOut,
    Logistic,
    Ridge,
    SquaredHinge,
)
from representer.objectives.low_rank import OnFactor
from representer.objectives.observed import Observed, observed

Criterion = str  # "validation", "loo" or "gcv"


@dataclass(frozen=True)
class Objectives:
    """What a loss makes of targets: the fit to the training rows, and the error that chooses hyperparameters."""

    fit: Callable[[Tensor], Any]
    score: Callable[[Tensor], Any] | None = None


@dataclass(frozen=True)
class Loss:
    """A loss as a family of objectives; ``make`` gives the one for some targets."""

    make: Callable[[Tensor], Any]
    intercept: bool
    squared: bool = False  # closed form, exact leave-one-out
    learnable: bool = True  # can alpha be chosen by an error on new data?

    def fit(self) -> Objectives:
        """For a fit to all samples."""
        return Objectives(self.make)

    def scored(self, criterion: Criterion, validation: Any = None) -> Objectives:
        """For a fit whose error on other data is known: closed forms for squared loss, held-out rows for any."""
        if criterion == "validation":
            if self.squared:
                return Objectives(
                    self.make, lambda Y: observed(Y, partial(_held_out, self.intercept, validation))
                )
            return Objectives(self.make, lambda Y: HeldOutLoss(self.make(Y), validation=validation))
        if not self.squared:
            raise ValueError(
                f"criterion={criterion!r} is a closed form that only squared loss has. Use criterion='validation'."
            )
        error = {"loo": LeaveOneOut, "gcv": GeneralizedCrossValidation}[criterion]
        return Objectives(
            self.make, lambda Y: observed(Y, lambda Y, rows: error(Y, alpha=1.0, intercept=self.intercept))
        )

    def proxy(self) -> Loss:
        """Squared loss on the same targets: cheap, and close enough to find where to search."""
        return self if self.squared or not self.learnable else squared(self.intercept)


def on_factor(objectives: Objectives) -> Objectives:
    """The same for a factor of the Gram matrix."""
    score = objectives.score
    return Objectives(
        lambda Y: _on_factor(objectives.fit(Y)), None if score is None else (lambda Y: _on_factor(score(Y)))
    )


def _on_factor(objective: Any) -> Any:
    return objective.on_factor() if isinstance(objective, Observed) else OnFactor(objective)


def _held_out(intercept: bool, validation: Tensor, Y: Tensor, rows: Tensor) -> HeldOut | None:
    """The error on the validation rows among those in which Y is known, if there are any of both kinds."""
    held_out = torch.isin(rows, validation.to(rows.device))
    if not bool(held_out.any()) or bool(held_out.all()):
        return None
    return HeldOut(Y, alpha=1.0, validation=held_out, intercept=intercept)


def squared(intercept: bool) -> Loss:
    """1/n Σ‖y − f‖² over the samples that have a target (NaN where there is none)."""
    return Loss(
        lambda Y: observed(Y, lambda Y, rows: Ridge(Y, alpha=1.0, intercept=intercept)),
        intercept,
        squared=True,
    )


def interpolation(intercept: bool, separation: float) -> Loss:
    """f = y at the samples."""
    return Loss(
        lambda Y: Interpolation(Y, separation=separation, intercept=intercept), intercept, learnable=False
    )


def custom(function: Callable[[Tensor, Tensor], Tensor], intercept: bool, penalty: Any) -> Loss:
    """Any differentiable function of all values, and any increasing penalty α Θ(‖f‖²) of the outer function."""
    return Loss(
        lambda Y: CustomLoss(function, Y, penalty=1.0 if penalty is None else penalty, intercept=intercept),
        intercept,
        learnable=False,
    )


def convex(name: str, intercept: bool, **options: float) -> Loss:
    """A convex loss with a solver of its own."""
    kinds: dict[str, Any] = {
        "epsilon_insensitive": EpsilonInsensitive,
        "huber": Huber,
        "hinge": Hinge,
        "squared_hinge": SquaredHinge,
        "logistic": Logistic,
    }
    return Loss(lambda Y: kinds[name](Y, alpha=1.0, intercept=intercept, **options), intercept)
