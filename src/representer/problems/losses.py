"""Losses by name: the objectives that fit them, and the errors that choose their hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
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
class KnownTargets:
    """What a loss is made of: targets (n, p), and weights and groups (n,) of the samples if they have any."""

    Y: Tensor
    weights: Tensor | None = None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.Y)

    def rows(self, rows: Tensor) -> KnownTargets:
        """Some of the samples."""
        index = rows.cpu()
        weights = None if self.weights is None else self.weights[rows]
        return KnownTargets(self.Y[rows], weights, None if self.groups is None else self.groups[index.numpy()])

    def rotated(self, rotation: Tensor) -> KnownTargets:
        """The targets in other coordinates."""
        return KnownTargets(self.Y @ rotation, self.weights, self.groups)

    def columns(self, outputs: Tensor) -> KnownTargets:
        """Some of the outputs."""
        return KnownTargets(self.Y[:, outputs], self.weights, self.groups)

    def entries(self) -> KnownTargets:
        """Every entry as a sample of its own, for outputs that are coupled."""
        p = self.Y.shape[1]
        weights = None if self.weights is None else self.weights.repeat_interleave(p)
        groups = None if self.groups is None else np.repeat(self.groups, p)
        return KnownTargets(self.Y.reshape(-1, 1), weights, groups)


@dataclass(frozen=True)
class Objectives:
    """What a loss makes of targets: the fit to the training rows, and the error that chooses hyperparameters."""

    fit: Callable[[KnownTargets], Any]
    score: Callable[[KnownTargets], Any] | None = None


@dataclass(frozen=True)
class Loss:
    """A loss as a family of objectives; ``make`` gives the one for some targets."""

    make: Callable[[KnownTargets], Any]
    intercept: bool
    squared: bool = False  # closed form, exact leave-one-out
    learnable: bool = True  # can alpha be chosen by an error on new data?

    def fit(self) -> Objectives:
        """The objective of a fit to all samples."""
        return Objectives(self.make)

    def scored(self, criterion: Criterion, validation: Tensor | None = None) -> Objectives:
        """A fit whose error on other data is known: closed forms for squared loss, held-out rows for any."""
        if criterion == "validation":
            held_out = torch.empty(0) if validation is None else validation
            if self.squared:
                return Objectives(self.make, lambda T: known(T, lambda T, rows: self._held_out(held_out, T, rows)))
            return Objectives(self.make, lambda T: HeldOutLoss(self.make(T), validation=held_out))
        if not self.squared:
            raise ValueError(
                f"criterion={criterion!r} is a closed form that only squared loss has. Use criterion='validation'."
            )
        return Objectives(self.make, lambda T: known(T, lambda T, rows: self._closed_form(criterion, T)))

    def _closed_form(self, criterion: Criterion, T: KnownTargets) -> Any:
        options: dict[str, Any] = {"alpha": 1.0, "intercept": self.intercept, "sample_weight": T.weights}
        if criterion == "gcv":
            return GeneralizedCrossValidation(T.Y, **options)
        return LeaveOneOut(T.Y, groups=T.groups, **options)

    def _held_out(self, validation: Tensor, T: KnownTargets, rows: Tensor) -> HeldOut | None:
        """The error on the validation rows among those in which Y is known, if there are any of both kinds."""
        held_out = torch.isin(rows, validation.to(rows.device))
        if not bool(held_out.any()) or bool(held_out.all()):
            return None
        options: dict[str, Any] = {"alpha": 1.0, "intercept": self.intercept, "sample_weight": T.weights}
        return HeldOut(T.Y, validation=held_out, **options)

    def proxy(self) -> Loss:
        """Squared loss on the same targets: cheap, and close enough to find where to search."""
        return self if self.squared or not self.learnable else squared(self.intercept)


def known(targets: KnownTargets, make: Callable[[KnownTargets, Tensor], Any]) -> Any:
    """The objective of targets without gaps, or a sum over columns with the same gaps (NaN), each on rows it has."""

    def of_rows(Y: Tensor, rows: Tensor) -> Any:
        part = targets.rows(rows) if len(rows) < len(targets) else targets
        return make(KnownTargets(Y, part.weights, part.groups), rows)

    return observed(targets.Y, of_rows)


def on_factor(objectives: Objectives) -> Objectives:
    """The same for a factor of the Gram matrix."""
    score = objectives.score
    return Objectives(
        lambda T: _on_factor(objectives.fit(T)), None if score is None else (lambda T: _on_factor(score(T)))
    )


def _on_factor(objective: Any) -> Any:
    return objective.on_factor() if isinstance(objective, Observed) else OnFactor(objective)


def squared(intercept: bool) -> Loss:
    """1/n Σ‖y − f‖² over the samples that have a target (NaN where there is none)."""

    def make(T: KnownTargets) -> Any:
        return known(T, lambda T, _: Ridge(T.Y, alpha=1.0, intercept=intercept, sample_weight=T.weights))

    return Loss(make, intercept, squared=True)


def interpolation(intercept: bool, separation: float) -> Loss:
    """f = y at the samples, whatever their weights."""
    return Loss(lambda T: Interpolation(T.Y, separation=separation, intercept=intercept), intercept, learnable=False)


def custom(function: Callable[..., Tensor], intercept: bool, penalty: Any) -> Loss:
    """Any differentiable function of all values, and any increasing penalty α Θ(‖f‖²) of the outer function."""
    weight = 1.0 if penalty is None else penalty

    def make(T: KnownTargets) -> CustomLoss:
        return CustomLoss(function, T.Y, penalty=weight, intercept=intercept, sample_weight=T.weights)

    return Loss(make, intercept, learnable=False)


def convex(name: str, intercept: bool, **options: float) -> Loss:
    """A convex loss with a solver of its own."""
    kinds: dict[str, Any] = {
        "epsilon_insensitive": EpsilonInsensitive,
        "huber": Huber,
        "hinge": Hinge,
        "squared_hinge": SquaredHinge,
        "logistic": Logistic,
    }

    def make(T: KnownTargets) -> Any:
        return kinds[name](T.Y, alpha=1.0, intercept=intercept, sample_weight=T.weights, **options)

    return Loss(make, intercept)
