"""Embedding classifiers on features: the fit is a sum over blocks of samples, in memory or on Dask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from representer.approximation import FeatureMap, Nystroem, RandomFeatures
from representer.approximation.sampling import sample_rows
from representer.data import plain
from representer.estimators._embedding_calibration import calibrate_embedding
from representer.estimators._labels import check_classes
from representer.estimators._large_parts import HELD_ROWS, HeldSamples, block_limit, leave_one_out
from representer.estimators._lazy import needs_approximation, one_hot, one_hot_on_dask, source_on_dask
from representer.estimators.validation import DTYPES
from representer.kernels import Kernel
from representer.samples.in_memory import Block, InMemory, Samples, Step
from representer.samples.on_dask import OnDask
from representer.systems.sums import NormalStep, NormalSums

# With an approximation, the search for hyperparameters looks at no more random samples than this.
SEARCH_LIMIT = 10_000
# With few landmarks hyperparameters are still learned on so many samples: a handful says nothing about them.
SMALLEST_SEARCH = 500


def searched_rows(source: Samples, kernel: Kernel, approximation: Any, seed: int) -> Block:
    """The samples that a search looks at: all, or under an approximation a random part of many."""
    if isinstance(approximation, Nystroem):
        approximation.check(kernel, source.n)
    if approximation is None:
        return source.rows(np.arange(source.n))
    rows = sample_rows(source.n, SEARCH_LIMIT, seed)  # those that are held later are the first of them
    source.read_ahead(rows, approximation.rows(source.n, seed))
    return source.rows(rows)


def search_size(approximation: Any, n: int) -> int:
    """How many of n samples hyperparameters are learned on: as many as there are landmarks, but not too few."""
    if approximation is None or isinstance(approximation, RandomFeatures):
        return n
    return min(n, max(approximation.size(n), SMALLEST_SEARCH))


def labels_on_dask(learner: Any, kernel: Kernel, X: Any, y: Any) -> OnDask:
    """Samples in Dask collections with one-hot labels; the learner gets their classes and columns."""
    needs_approximation(learner, kernel, kernel.domain)
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    learner.classes_, indicators = one_hot_on_dask(y)
    return source_on_dask(learner, kernel, X, indicators, dtype=DTYPES[learner.dtype])


@dataclass(frozen=True)
class Report:
    """Of a fit to many samples: the sum of its cross entropies, and the largest k(x, x)."""

    loss: float
    largest: float

    def __add__(self, other: Report) -> Report:
        return Report(self.loss + other.loss, max(self.largest, other.largest))


@dataclass(frozen=True)
class ReportStep(Step):
    """Adds a block to the report."""

    features: FeatureMap
    coefficients: Tensor
    intercept: Tensor
    epsilon: float
    by_features: bool  # are the coefficients those of the features, or of their columns?

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """The columns, and what the kernel needs to make them."""
        return 2 * self.features.n_features * self.features.dtype.itemsize

    def __call__(self, block: Block, total: Report | None) -> Report:
        values = self.features(block.X) if self.by_features else self.features.columns(block.X)
        fitted = values @ self.coefficients + self.intercept
        loss = -(fitted * block.Y.to(fitted)).sum(-1).clamp(self.epsilon, 1.0).log().sum()
        report = Report(float(loss), float(self.features.kernel._diag(block.X).max()))
        return report if total is None else total + report


def fit_by_sums(learner: Any, kernel: Kernel, source: Samples, seed: int) -> NormalSums:
    """The fit of a classifier with numbers in its kernel, and what it says of itself; its sums, for more batches."""
    features = learner.approximation.choose(
        kernel, source.rows(learner.approximation.rows(source.n, seed)).X, seed
    )
    learner._keep_features(features)
    rows = sample_rows(source.n, HELD_ROWS, seed)
    held = source.rows(rows)
    learner._held = HeldSamples.of(held, rows, seed)
    learner._keep_frame(held.X)
    limit = block_limit(learner.memory_limit, features.n_features, held.Y.shape[1], held=0)
    sums: NormalSums = source.total(NormalStep(learner._summed_features()), limit=limit)
    coefficients, b = _solve(learner, sums, held, limit)
    by_features = features.loses_digits(coefficients, b)
    known = coefficients if by_features else features.coefficients(coefficients)
    step = ReportStep(features, known, b, learner.epsilon, by_features)
    report = source.total(step, limit=limit)
    learner._training_loss = report.loss / source.n
    _set_complexity(learner, report.largest)
    return sums


def _solve(learner: Any, sums: NormalSums, held: Block, limit: int | None) -> tuple[Tensor, Tensor]:
    """Coefficients, constant and calibration from the sums and a few samples."""
    features: FeatureMap = learner._summed_features()
    ridge = learner._ridge_of(sums)
    theta = ridge.coefficients(learner.alpha_)
    coefficients, b = theta.to(features.dtype), ridge.intercepts(theta).to(features.dtype)
    learner.calibration_ = learner.loo_estimates_ = None
    if learner.calibration == "loo":
        residuals, _ = leave_one_out(ridge, features, held, learner.alpha_, limit)
        loo = held.Y.double() - residuals
        learner.calibration_ = calibrate_embedding(loo.cpu(), held.Y.double().cpu())
        learner.loo_estimates_ = plain(loo.to(features.dtype))
    learner._by_features = True
    learner.dual_coef_, learner.intercept_ = plain(coefficients), plain(b)
    return coefficients, b


def _set_complexity(learner: Any, largest: float) -> None:
    """r = √(‖f‖² sup k(x, x)); features are orthonormal."""
    learner._largest = largest
    learner.complexity_ = float(np.linalg.norm(learner.dual_coef_)) * math.sqrt(largest)


# -- batches ----------------------------------------------------------------------------------------------------------
def known_labels(learner: Any, X: Any, y: Any, classes: Any) -> np.ndarray:
    """One-hot labels of a batch; the first one gives the learner its classes."""
    if not hasattr(learner, "n_samples_seen_"):
        classes = getattr(learner, "classes_", None) if classes is None else classes  # those of a fit before
        if classes is None:
            raise ValueError(
                "classes= must be given to the first call of partial_fit: all labels that will come."
            )
        learner.classes_ = check_classes(np.unique(classes))
    elif classes is not None and not np.array_equal(np.unique(classes), learner.classes_):
        raise ValueError(f"classes={classes!r} are not those of the first call, {learner.classes_.tolist()}.")
    labels = np.asarray(column_or_1d(plain(y)))
    if len(labels) != len(X):
        raise ValueError(f"X and y have inconsistent numbers of samples: {len(X)} and {len(labels)}.")
    strangers = np.setdiff1d(labels, learner.classes_)
    if len(strangers):
        raise ValueError(f"y has labels that are not among the classes: {strangers[0].item()!r}.")
    return one_hot(labels, learner.classes_)


def add_batch(learner: Any, kernel: Kernel, block: Block) -> None:
    """More samples: their sums are added, and the system is solved again."""
    features, seen = learner._summed_features(), learner.n_samples_seen_
    limit = block_limit(learner.memory_limit, features.n_features, block.Y.shape[1], held=0)
    fresh = InMemory(block).total(NormalStep(features), limit=limit)
    sums = learner._sums.map(torch.from_numpy) + fresh
    learner._held = learner._held.joined(block, seen, HELD_ROWS, learner._seed)
    _solve(learner, sums, learner._held.block(kernel, learner._represented), limit)
    _set_complexity(learner, max(learner._largest, float(kernel._diag(block.X).max())))
    keep_sums(learner, sums, seen + len(block))


def keep_sums(learner: Any, sums: NormalSums, seen: int) -> None:
    """What the next batch is added to; the samples themselves are not kept."""
    learner._sums = sums.map(plain)
    learner.n_samples_seen_ = learner._n_samples = seen
    learner.X_fit_ = learner._training_loss = None
