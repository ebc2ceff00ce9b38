"""Intervals and sets with a guarantee, from predictions by fits without some samples: jackknife+ and CV+.

The guarantee is that of Barber, Candès, Ramdas and Tibshirani (2021). Let μ₋ᵢ be the fit without sample i, or without
its fold, R_i the size of its error at sample i, and all samples exchangeable. Then the interval between quantiles of
μ₋ᵢ(x) − R_i and μ₋ᵢ(x) + R_i contains a new target with a probability of at least 1 − 2a, and about 1 − a, if fits
treat samples alike. Errors may be divided by a deviation that the same fit gives at sample i, and multiplied by the one
that it gives at x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from representer.linalg import by_rows
from representer.notices import warn
from representer.samples import Data, TrainingSamples, count, sampling_keys
from representer.systems import FittedSystem, StackedSystem
from representer.values import argument_repr, is_real


def check_coverage(coverage: object) -> float:
    """The coverage as a float; an error unless it is a number between 0 and 1."""
    if not (is_real(coverage) and 0.0 < coverage < 1.0):
        raise ValueError(
            f"coverage must be a number between 0 and 1, such as 0.9 for nine of ten new targets; got "
            f"{argument_repr(coverage)}."
        )
    return float(coverage)


def sample_masses(errors: Tensor, groups: Tensor | None = None) -> Tensor:
    """The masses (n, p) of errors: each of G groups has 1/(G + 1), which its samples share; NaN have none.

    The masses sum to less than one; the rest is that of a new sample of a new group, to which their quantiles apply.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.intervals import sample_masses
    >>> sample_masses(torch.zeros(4, 1), torch.tensor([0, 1, 1, 2]))[:, 0].tolist()
    [0.25, 0.125, 0.125, 0.25]
    """
    observed = (~errors.isnan()).double()
    members = torch.arange(len(errors)) if groups is None else groups.unique(return_inverse=True)[1].cpu()
    sizes = torch.zeros(int(members.max()) + 1, errors.shape[1], dtype=torch.float64).index_add_(0, members, observed)
    shares = observed / sizes[members].clamp(min=1.0)
    return shares / ((sizes > 0).sum(0) + 1.0)


def upper_quantile(values: Tensor, masses: Tensor, level: float) -> Tensor:
    """The least of values (m, n, p) up to which the masses (n, p) reach ``level``, (m, p); ∞ if they do not."""
    finite = torch.where((masses > 0).expand_as(values), values, torch.inf)
    ordered, order = finite.sort(dim=1)
    reached = masses.expand_as(values).gather(1, order).cumsum(1) >= level - 1e-12
    place = reached.to(torch.uint8).argmax(1, keepdim=True)
    return torch.where(reached.any(1), ordered.gather(1, place)[:, 0], torch.inf)


def jackknife_plus(centres: Tensor, radii: Tensor, masses: Tensor, coverage: float) -> Tensor:
    """The intervals (m, p, 2) of jackknife+ or CV+ at m new points.

    Parameters
    ----------
    centres : tensor (m, n, p)
        The predictions at the new points by the fits without each of n samples.
    radii : tensor (m, n, p) or (n, p)
        The sizes of the samples' errors; in the locally weighted form, in units of deviations at the new points.
    masses : tensor (n, p)
        The masses of the errors, by ``sample_masses``.
    coverage : float
        1 − a.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.intervals import jackknife_plus, sample_masses
    >>> errors = torch.arange(1.0, 10.0)[:, None]
    >>> jackknife_plus(torch.zeros(1, 9, 1), errors, sample_masses(errors), 0.8).tolist()
    [[[-8.0, 8.0]]]
    """
    low = -upper_quantile(radii - centres, masses, coverage)
    return torch.stack([low, upper_quantile(centres + radii, masses, coverage)], -1)


# The powers of deviations by which errors may be divided.
POWERS = (0.0, 0.5, 1.0)


def local_power(sizes: Tensor, deviations: Tensor, masses: Tensor, coverage: float) -> Tensor:
    """The power (p,) of deviations (n, p) with which intervals at the samples themselves would be the narrowest.

    Errors of these sizes (n, p) are divided by that power of the deviations at the samples, and multiplied by it at new
    points: the power 0 ignores the deviations, and 1 trusts them.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.intervals import local_power, sample_masses
    >>> sizes = torch.arange(1.0, 21.0)[:, None]
    >>> masses = sample_masses(sizes)
    >>> local_power(sizes, sizes, masses, 0.9).tolist(), local_power(sizes, sizes.flip(0), masses, 0.9).tolist()
    ([1.0], [0.0])
    """
    observed, widths = ~sizes.isnan(), []
    for power in POWERS:
        scales = torch.where(observed, deviations.clamp(min=torch.finfo(deviations.dtype).tiny) ** power, torch.nan)
        radius = upper_quantile((sizes / scales)[None], masses, min(coverage, float(masses.sum(0).min())))[0]
        widths.append(radius * scales.nanmean(0))
    return torch.tensor(POWERS, dtype=sizes.dtype)[torch.stack(widths).argmin(0)]


def local_scales(deviations: Tensor, power: Tensor, left_out: Tensor) -> Tensor:
    """The factors of errors at new points: a power (p,) of the deviations (m, n, p) there.

    Beyond the largest of the deviations ``left_out`` (n, p) for left-out samples, which say nothing there, the factor
    is proportional to the deviation whatever the power. Inputs like the samples are there once in n + 1 times.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.intervals import local_scales
    >>> new = torch.tensor([1.0, 2.0, 20.0]).reshape(3, 1, 1)
    >>> local_scales(new, torch.tensor([0.0]), torch.tensor([[1.0], [2.0]])).flatten().tolist()
    [1.0, 1.0, 10.0]
    """
    largest = left_out.nan_to_num(0.0).amax(0).clamp(min=torch.finfo(left_out.dtype).tiny)
    return deviations**power * (deviations / largest).clamp(min=1.0) ** (1.0 - power)


def conformal_sets(scores: Tensor, misfits: Tensor, masses: Tensor, coverage: float) -> Tensor:
    """A mask (m, c) of the candidates that jackknife+ or CV+ cannot exclude at m new points (Romano et al., 2020).

    Parameters
    ----------
    scores : tensor (m, n, c)
        The misfits of the candidates at the new points, by the fits without each of n samples.
    misfits : tensor (n,)
        The misfits of the samples' own targets, by the fits without them.
    masses : tensor (n,)
        The masses of the samples, by ``sample_masses``.
    coverage : float
        1 − a: a candidate is excluded if the mass of the samples with smaller misfits reaches it. The best candidate
        stays.
    """
    better = (misfits[:, None] < scores).to(masses) * masses[:, None]
    is_possible = better.sum(1) < coverage
    best = scores.mean(1).argmin(1)
    is_possible[torch.arange(len(is_possible)), best] = True
    return is_possible


def warn_of_few(masses: Tensor, coverage: float) -> None:
    """Warn if there are too few samples, or groups, for a coverage, so that intervals are infinite."""
    total = float(masses.sum(0).min())
    if total < coverage - 1e-12:
        needed = math.ceil(coverage / (1.0 - coverage) - 1e-9)
        have = round(total / (1.0 - total))
        warn(
            f"{have} samples (or groups) that were left out are too few for a coverage of {coverage:g}, which takes "
            f"{needed}: nothing can be excluded, and intervals are infinite. Ask for less, or fit to more samples."
        )


# -- fits without folds -----------------------------------------------------------------------------------------------
FOLDS = 5
# Leave-one-out is trusted if at most this many numbers were learned for each sample.
LEARNED = 0.02
Learner = TypeVar("Learner")  # a learner that is fitted without folds


@dataclass(frozen=True)
class FoldFits(Generic[Learner]):
    """The learners fitted without one fold each, and the number of the fold of each sample."""

    learners: list[Learner]
    trained_on: list[np.ndarray]
    fold: np.ndarray
    samples: TrainingSamples

    @classmethod
    def of(
        cls, refit: Callable[[TrainingSamples], Learner], samples: TrainingSamples, seed: int, folds: int = FOLDS
    ) -> FoldFits[Learner]:
        """The fits, with their searches, without each of some random folds of whole groups."""
        groups = samples.options.get("groups")
        fold = random_folds(np.arange(samples.n) if groups is None else groups, folds, seed)
        rows = [np.flatnonzero(fold != k) for k in range(fold.max() + 1)]
        return cls([refit(samples.part(train)) for train in rows], rows, fold, samples)

    def of_new(self, X: Data, ask: Callable[[Learner, Data], np.ndarray]) -> Tensor:
        """The answers of all fits for new inputs, (number of folds, m, ...)."""
        answers = [
            ask(learner, X[:, rows] if self.samples.pairwise else X)
            for learner, rows in zip(self.learners, self.trained_on, strict=True)
        ]
        return torch.from_numpy(np.stack(answers).astype(np.float64))

    def of_held_out(self, ask: Callable[[Learner, Data, np.ndarray], np.ndarray]) -> Tensor:
        """The answers (n, ...) for all samples, each by the fit that has not seen it."""
        result: np.ndarray | None = None
        for k, (learner, train) in enumerate(zip(self.learners, self.trained_on, strict=True)):
            rows = np.flatnonzero(self.fold == k)
            X = self.samples.inputs(rows)
            values = np.asarray(ask(learner, X[:, train] if self.samples.pairwise else X, rows), dtype=np.float64)
            result = np.empty((self.samples.n, *values.shape[1:])) if result is None else result
            result[rows] = values
        assert result is not None
        return torch.from_numpy(result)


def random_folds(groups: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The number of the fold (n,) of each sample: whole groups in random order, each into the smallest fold so far."""
    labels, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    totals, of_group = np.zeros(min(folds, len(labels)), dtype=int), np.empty(len(labels), dtype=int)
    for g in np.argsort(sampling_keys(np.arange(len(labels)), seed)):
        of_group[g] = totals.argmin()
        totals[of_group[g]] += sizes[g]
    return of_group[members]


# -- intervals and sets of learners -----------------------------------------------------------------------------------
class Regressor(Protocol):
    """A fitted learner of numbers."""

    def predict(self, X: Data, return_std: bool = ...) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predictions, and with ``return_std`` their standard deviations."""


class Classifier(Protocol):
    """A fitted learner of classes."""

    classes_: np.ndarray

    def predict_proba(self, X: Data) -> np.ndarray:
        """Probabilities (n, c) in the order of ``classes_``."""


def left_out_intervals(system: FittedSystem | StackedSystem, X: Data, coverage: float) -> Tensor:
    """Jackknife+ intervals (m, p, 2), weighted by the system's deviations, at checked inputs."""
    level, left_out = check_coverage(coverage), system.observed_left_out()
    sizes, deviations = (left_out.Y.to(left_out.mean) - left_out.mean).abs().double(), left_out.variance.double().sqrt()
    masses = sample_masses(sizes, left_out.groups)
    warn_of_few(masses, level)
    p, power = sizes.shape[1], local_power(sizes, deviations, masses, level)
    errors = (sizes / deviations**power).nan_to_num(0.0)

    def intervals(rows: slice) -> Tensor:
        mean, variance = system.observed_at(X[rows])
        ends = jackknife_plus(
            mean.double(), local_scales(variance.double().sqrt(), power, deviations) * errors, masses, level
        )
        return ends.reshape(len(ends), 2 * p)

    return by_rows(intervals, count(X), 12 * 8 * errors.numel()).reshape(-1, p, 2)


def alone(learner: Regressor, X: Data) -> np.ndarray:
    """Predictions, and ones in place of unknown deviations, (2, m, p)."""
    values = np.asarray(learner.predict(X))
    values = values.reshape(len(values), -1)
    return np.stack([values, np.ones_like(values)])


def with_deviation(learner: Regressor, X: Data) -> np.ndarray:
    """Predictions and standard deviations, (2, m, p)."""
    return np.stack([values.reshape(len(values), -1) for values in learner.predict(X, return_std=True)])


def fold_intervals(
    fits: FoldFits[Learner], X: Data, coverage: float, ask: Callable[[Learner, Data], np.ndarray]
) -> Tensor:
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
        ends = jackknife_plus(centres, local_scales(deviations, power, deviation) * errors, masses, level)
        return ends.reshape(len(ends), -1)

    return by_rows(intervals, new.shape[2], 12 * 8 * errors.numel()).reshape(-1, errors.shape[1], 2)


def fold_sets(
    fits: FoldFits[Learner],
    X: Data,
    coverage: float,
    ask: Callable[[Learner, Data], np.ndarray],
    held_out_misfits: Callable[[Learner, Data, np.ndarray], np.ndarray],
) -> np.ndarray:
    """CV+ sets (m, c) by misfits: ``ask`` gives those (m, c) of candidates, the other function those of samples."""
    level = check_coverage(coverage)
    scores, fold = fits.of_held_out(held_out_misfits), torch.from_numpy(fits.fold)
    masses = sample_masses(scores[:, None], fits.samples.groups)[:, 0]
    warn_of_few(masses[:, None], level)
    new = fits.of_new(X, ask)

    def sets(rows: slice) -> Tensor:
        return conformal_sets(new[:, rows].transpose(0, 1)[:, fold], scores, masses, level)

    return by_rows(sets, new.shape[1], 8 * 8 * len(scores) * new.shape[2]).numpy()


def class_probabilities(learner: Classifier, X: Data, classes: np.ndarray) -> np.ndarray:
    """The probabilities (m, c) of all classes; those of classes that a fit has not seen are zero."""
    result = np.zeros((count(X), len(classes)))
    result[:, np.searchsorted(classes, learner.classes_)] = learner.predict_proba(X)
    return result


def class_sets(fits: FoldFits[Classifier], X: Data, coverage: float, classes: np.ndarray) -> np.ndarray:
    """CV+ sets of classes (m, c) by the misfits 1 − p, with probabilities p of the fits without each fold."""

    def scores(learner: Classifier, inputs: Data) -> np.ndarray:
        return 1.0 - class_probabilities(learner, inputs, classes)

    labels = np.asarray(np.searchsorted(classes, fits.samples.y))

    def own(learner: Classifier, inputs: Data, rows: np.ndarray) -> np.ndarray:
        return scores(learner, inputs)[np.arange(len(rows)), labels[rows]]

    return fold_sets(fits, X, coverage, scores, own)
