"""The objectives of embedding classifiers by name, for all samples or for a batch; and what their arguments may be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from representer.estimators._labels import held_out_rows
from representer.estimators.validation import check_alpha, check_options
from representer.kernels import Kernel
from representer.kernels.learned import Mapped
from representer.kernels.stationary import Stationary
from representer.objectives import HeldOutRisk, LeaveOneOutRisk, RademacherBound
from representer.objectives.rademacher import ClassRisk
from representer.operators.adapted import original
from representer.parameters import is_count, is_real

OBJECTIVES = ("loo", "rademacher", "erm", "validation")


def check_classifier(learner: Any) -> None:
    """The arguments of an EmbeddingClassifier that its kernel and data do not decide."""
    if learner.objective not in (None, *OBJECTIVES):
        words = ", ".join(map(repr, OBJECTIVES))
        raise ValueError(f"objective must be None or one of {words}; got {learner.objective!r}.")
    check_options(learner, {"solver": ("auto", "lbfgs", "adam"), "calibration": ("loo", None)})  # type: ignore[dict-item]
    if isinstance(check_alpha(learner.alpha), np.ndarray):
        raise ValueError(
            f"alpha must be a positive number or 'auto'; got {learner.alpha!r}. Compare by GridSearchCV."
        )
    weight = learner.complexity_weight
    if weight != "auto" and not (is_real(weight) and weight >= 0 and math.isfinite(weight)):
        raise ValueError(
            f"complexity_weight must be a finite number of at least 0, or 'auto'; got {weight!r}."
        )
    for name in ("shrinkage", "learning_rate"):
        value = getattr(learner, name)
        zero = name == "shrinkage"
        if not (is_real(value) and math.isfinite(value) and (value > 0 or (zero and value == 0))):
            wanted = "a finite number of at least 0" if zero else "a positive, finite number"
            raise ValueError(f"{name} must be {wanted}; got {value!r}.")
    if not isinstance(learner.fit_intercept, bool | np.bool_):
        raise ValueError(f"fit_intercept must be True or False; got {learner.fit_intercept!r}.")
    fraction = learner.validation_fraction
    if not (is_real(fraction) and 0 < fraction < 1):
        raise ValueError(f"validation_fraction must lie between 0 and 1; got {fraction!r}.")
    if not (is_real(learner.epsilon) and 0 < learner.epsilon < 1 / math.e):
        raise ValueError(
            f"epsilon must lie between 0 and 1/e, as in Theorem 4: it clips the cross entropy; got {learner.epsilon!r}."
        )
    size = learner.batch_size
    if not (size is None or (isinstance(size, str) and size == "auto") or (is_count(size) and size > 1)):
        raise ValueError(f"batch_size must be None, 'auto' or an integer of at least 2; got {size!r}.")
    if not (learner.start is None or isinstance(learner.start, dict)):
        raise ValueError(f"start must be None or a dict of values by name; got {learner.start!r}.")


class Risk:
    """Row numbers, or None for all, -> the objective of these samples."""

    def __init__(self, learner: Any, kernel: Kernel, Y: Tensor, seed: int):
        self.learner, self.Y, self.seed = learner, Y, seed
        # k(x, x) = 1: no need to look at the diagonal, which has no derivative.
        self.supremum = 1.0 if isinstance(original(kernel), Stationary) else None
        self.whole: ClassRisk | None = None

    def __call__(self, rows: Tensor | None) -> ClassRisk:
        """The objective."""
        if rows is not None:
            return self._make(self.Y[rows])
        if self.whole is None:
            self.whole = self._make(self.Y)
        return self.whole

    def _make(self, Y: Tensor) -> ClassRisk:
        learner, weight = self.learner, self.learner.complexity_weight
        options: dict[str, Any] = {
            "alpha": 1.0,
            "supremum": self.supremum,
            "intercept": bool(learner.fit_intercept),
        }
        given = None if isinstance(weight, str) else float(weight)
        if learner.objective == "rademacher":
            return RademacherBound(Y, weight=given, clip=float(learner.epsilon), **options)
        if learner.objective == "erm":
            return RademacherBound(Y, weight=given or 0.0, clip=float(learner.epsilon), **options)
        if learner.objective == "loo":
            return LeaveOneOutRisk(Y, weight=1.0 / len(Y) if given is None else given, **options)
        validation = held_out_rows(Y.argmax(-1).cpu(), float(learner.validation_fraction), self.seed)
        return HeldOutRisk(Y, weight=given or 0.0, validation=validation, loss="softmax", **options)


def feature_relevance(kernel: Kernel, X: Any, d: int | None) -> np.ndarray:
    """The inverse lengthscales of the first part of a kernel that has some, 0 for features that are constant in X."""
    for value in _lengthscales(kernel):
        inverse = (1.0 / value.detach().cpu().double()).reshape(-1)
        if d is not None and inverse.numel() in (1, d):
            return np.where(np.ptp(X, axis=0) > 0, inverse.expand(d).numpy(), 0.0)
    raise AttributeError(
        f"{kernel!r} has no lengthscales of the features, so there is no feature_relevance_."
    )


def _lengthscales(kernel: Kernel) -> Iterator[Tensor]:
    """Those of parts that see the data themselves, not images of them such as the hidden units of a network."""
    if isinstance(kernel, Mapped):
        return
    own = kernel.hyperparameter_values().get("lengthscale")
    if own is not None:
        yield own
    for _, child in kernel._children():
        if isinstance(child, Kernel):
            yield from _lengthscales(child)


def check_start(learner: Any, alpha: float | None, free: list[str]) -> None:
    """Refuse a start where nothing is learned."""
    if learner.start and (learner.objective is None or (alpha is not None and not free)):
        raise ValueError(
            f"start={learner.start!r} is where a search starts, but nothing is learned with objective="
            f"{learner.objective!r}, kernel={learner.kernel!r} and alpha={learner.alpha!r}. Leave start=None."
        )
