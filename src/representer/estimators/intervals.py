"""Fits without folds, which learners ask for intervals and sets where leave-one-out would be too optimistic."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from representer.inspection.intervals import (
    check_coverage,
    conformal_sets,
    jackknife_plus,
    local_power,
    sample_masses,
    warn_of_few,
)
from representer.linalg import by_rows
from representer.samples import Data, TrainingSamples, count, sampling_keys, take
from representer.systems import StackedSystem
from representer.systems.ridge import FittedSystem

FOLDS = 5
# Leave-one-out is trusted where at most so many numbers were learned for each sample.
LEARNED = 0.02


@dataclass(frozen=True)
class FoldFits:
    """Learners that were fitted without a fold each, and the number of the fold of each sample."""

    learners: list[Any]
    trained_on: list[np.ndarray]
    fold: np.ndarray
    samples: TrainingSamples

    @classmethod
    def of(cls, learner: Any, samples: TrainingSamples, seed: int, folds: int = FOLDS) -> FoldFits:
        """Repeat the fit of a learner, its search included, without each of some random folds of whole groups."""
        groups = samples.options.get("groups")
        fold = random_folds(np.arange(samples.n) if groups is None else groups, folds, seed)
        rows = [np.flatnonzero(fold != k) for k in range(fold.max() + 1)]
        bare = clone(learner)
        # The weights of samples are those of their classes, too.
        fixed = {"random_state": seed, "verbose": 0, "class_weight": None}
        bare.set_params(**{name: value for name, value in fixed.items() if name in bare.get_params(deep=False)})
        learners = [_fitted(clone(bare), samples, train) for train in rows]
        return cls(learners, rows, fold, samples)

    def of_new(self, X: Data, ask: Callable[[Any, Data], np.ndarray]) -> Tensor:
        """What the fits say of new inputs, one after the other: (number of folds, m, ...)."""
        answers = [
            ask(learner, X[:, rows] if self.samples.pairwise else X)
            for learner, rows in zip(self.learners, self.trained_on, strict=True)
        ]
        return torch.from_numpy(np.stack(answers).astype(np.float64))

    def of_held_out(self, ask: Callable[[Any, Data, np.ndarray], np.ndarray]) -> Tensor:
        """What the fits say of the samples that they have not seen, (n, ...)."""
        result: np.ndarray | None = None
        for k, (learner, train) in enumerate(zip(self.learners, self.trained_on, strict=True)):
            rows = np.flatnonzero(self.fold == k)
            X = self.samples.inputs(rows)
            values = np.asarray(ask(learner, X[:, train] if self.samples.pairwise else X, rows), dtype=np.float64)
            result = np.empty((self.samples.n, *values.shape[1:])) if result is None else result
            result[rows] = values
        assert result is not None
        return torch.from_numpy(result)


def _fitted(learner: Any, samples: TrainingSamples, rows: np.ndarray) -> Any:
    """A learner that is fitted to some of the samples; warnings were those of the whole fit."""
    X, y = samples.inputs(rows), take(samples.y, torch.from_numpy(rows))
    options = {name: values[rows] for name, values in samples.options.items() if values is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learner.fit(X[:, rows] if samples.pairwise else X, y, **options)


def random_folds(groups: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The number of the fold (n,) of each sample: whole groups in random order, each into the smallest fold so far."""
    labels, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    totals, of_group = np.zeros(min(folds, len(labels)), dtype=int), np.empty(len(labels), dtype=int)
    for g in np.argsort(sampling_keys(np.arange(len(labels)), seed)):
        of_group[g] = totals.argmin()
        totals[of_group[g]] += sizes[g]
    return of_group[members]


# -- intervals --------------------------------------------------------------------------------------------------------
def left_out_intervals(system: FittedSystem | StackedSystem, X: Data, coverage: float) -> Tensor:
    """Jackknife+ intervals (m, p, 2), weighted by the system's deviations, at checked inputs."""
    level, known = check_coverage(coverage), system.observed_left_out()
    sizes, deviations = (known.Y.to(known.mean) - known.mean).abs().double(), known.variance.double().sqrt()
    masses = sample_masses(sizes, known.groups)
    warn_of_few(masses, level)
    p, power = sizes.shape[1], local_power(sizes, deviations, masses, level)
    errors = (sizes / deviations**power).nan_to_num(0.0)

    def intervals(rows: slice) -> Tensor:
        mean, variance = system.observed_at(X[rows])
        ends = jackknife_plus(mean.double(), variance.double() ** (power / 2) * errors, masses, level)
        return ends.reshape(len(ends), 2 * p)

    return by_rows(intervals, count(X), 12 * 8 * errors.numel()).reshape(-1, p, 2)


def alone(learner: Any, X: Data) -> np.ndarray:
    """Predictions, and ones for deviations that are not known, (2, m, p)."""
    values = learner.predict(X)
    values = values.reshape(len(values), -1)
    return np.stack([values, np.ones_like(values)])


def with_deviation(learner: Any, X: Data) -> np.ndarray:
    """Predictions and standard deviations, (2, m, p)."""
    return np.stack([values.reshape(len(values), -1) for values in learner.predict(X, return_std=True)])


def fold_intervals(fits: FoldFits, X: Data, coverage: float, ask: Callable[[Any, Data], Any]) -> Tensor:
    """CV+ intervals (m, p, 2); ``ask(learner, X)`` gives predictions and deviations (2, m, p)."""
    level = check_coverage(coverage)
    mean, deviation = fits.of_held_out(lambda learner, inputs, rows: np.swapaxes(ask(learner, inputs), 0, 1)).unbind(1)
    y = torch.from_numpy(np.asarray(fits.samples.y, dtype=np.float64)).reshape(len(mean), -1)
    sizes = (y - mean).abs()
    masses = sample_masses(sizes, fits.samples.groups)
    warn_of_few(masses, level)
    power = local_power(sizes, deviation, masses, level)
    errors = (sizes / deviation**power).nan_to_num(0.0)
    new, fold = fits.of_new(X, ask), torch.from_numpy(fits.fold)

    def intervals(rows: slice) -> Tensor:
        centres, deviations = new[:, :, rows].permute(1, 2, 0, 3)[:, :, fold]
        ends = jackknife_plus(centres, deviations**power * errors, masses, level)
        return ends.reshape(len(ends), -1)

    return by_rows(intervals, new.shape[2], 12 * 8 * errors.numel()).reshape(-1, errors.shape[1], 2)


def fold_sets(
    fits: FoldFits,
    X: Data,
    coverage: float,
    ask: Callable[[Any, Data], np.ndarray],
    own: Callable[[Any, Data, np.ndarray], np.ndarray],
) -> np.ndarray:
    """CV+ sets (m, c): ``ask`` gives the scores (m, c) of candidates, ``own`` those of held-out samples' targets."""
    level = check_coverage(coverage)
    scores, fold = fits.of_held_out(own), torch.from_numpy(fits.fold)
    masses = sample_masses(scores[:, None], fits.samples.groups)[:, 0]
    warn_of_few(masses[:, None], level)
    new = fits.of_new(X, ask)

    def sets(rows: slice) -> Tensor:
        return conformal_sets(new[:, rows].transpose(0, 1)[:, fold], scores, masses, level)

    return by_rows(sets, new.shape[1], 8 * 8 * len(scores) * new.shape[2]).numpy()


def class_sets(fits: FoldFits, X: Data, coverage: float, classes: np.ndarray) -> np.ndarray:
    """CV+ sets of classes (m, c), by the probabilities p of fits without each fold: 1 − p says how little one fits."""

    def scores(learner: Any, inputs: Data) -> np.ndarray:
        result = np.ones((count(inputs), len(classes)))  # a class that a fold has not seen fits nothing
        result[:, np.searchsorted(classes, learner.classes_)] -= learner.predict_proba(inputs)
        return result

    labels = np.asarray(np.searchsorted(classes, fits.samples.y))

    def own(learner: Any, inputs: Data, rows: np.ndarray) -> np.ndarray:
        return scores(learner, inputs)[np.arange(len(rows)), labels[rows]]

    return fold_sets(fits, X, coverage, scores, own)
