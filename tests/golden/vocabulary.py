"""The names that the cases use for arguments and attributes, and the names that the learners have for them.

The cases keep the vocabulary in which they were recorded. An argument that has another name or another value now is
translated here, in one place, for the recorded answers and for ``benchmarks.differential``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import representer
from representer.approximation import Nystroem
from representer.operators import ConditionalCovariance

# By learner: argument in the cases -> its name now.
NAMES: dict[str, dict[str, str]] = {
    "DeepKernelPCA": {"kernels": "kernel"},
    "StructuredPredictor": {"center": "fit_intercept"},
    "EmbeddingClassifier": {"objective": "criterion", "epsilon": "clip"},
    "DeepKernelClassifier": {"calibrated": "calibration"},
}


def _levels(arguments: dict[str, Any]) -> dict[str, Any]:
    """``max_samples`` and ``sampling`` became one approximation; upper levels were not centred."""
    if arguments.get("center", True) is True:
        arguments = {**arguments, "center": "data"}
    size, sampling = arguments.pop("max_samples", None), arguments.pop("sampling", "uniform")
    return arguments if size is None else {**arguments, "approximation": Nystroem(size, sampling)}


def _structured(arguments: dict[str, Any]) -> dict[str, Any]:
    """The identity is None, and the epsilon of a conditional covariance is its own."""
    epsilon, operator = arguments.pop("epsilon", None), arguments.get("operator")
    arguments = {"kernel": "rbf", **arguments}
    if operator == "conditional_covariance" and epsilon is not None:
        return {**arguments, "operator": ConditionalCovariance(epsilon)}
    return {**arguments, "operator": None} if operator == "identity" else arguments


def _calibrated(arguments: dict[str, Any]) -> dict[str, Any]:
    """A truth value became the samples that a calibration sees."""
    if not isinstance(arguments.get("calibration"), bool):
        return arguments
    return {**arguments, "calibration": "cv" if arguments["calibration"] else None}


def _one_kernel(arguments: dict[str, Any]) -> dict[str, Any]:
    """The kernel was a Gaussian, and a regression had no constant, where nothing was said."""
    return {"kernel": "rbf", "fit_intercept": False, **arguments}


def _one_class_kernel(arguments: dict[str, Any]) -> dict[str, Any]:
    """The kernel was a Gaussian where nothing was said."""
    return {"kernel": "rbf", **arguments}


# By learner: what names alone do not say, a function from the arguments of a case, already renamed, to those of today.
VALUES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "DeepKernelPCA": _levels,
    "StructuredPredictor": _structured,
    "DeepKernelClassifier": _calibrated,
    "OperatorRidge": _one_kernel,
    "EmbeddingClassifier": _one_class_kernel,
    "ConditionalMeanEmbedding": _one_class_kernel,
}

# Attribute in the cases -> the names under which it is looked for; the first that exists is taken.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "criterion_value_": ("criterion_value_",),
    "objective_value_": ("objective_value_", "criterion_value_"),
}

# Set to any value, learners take the names of the cases: for sources in which nothing was renamed.
RECORDED_NAMES = "REPRESENTER_RECORDED_NAMES"


def translated(learner: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a case as its learner takes them."""
    if os.environ.get(RECORDED_NAMES):
        return dict(arguments)
    present = signature(getattr(representer, learner)).parameters
    names = {old: new for old, new in NAMES.get(learner, {}).items() if new in present}
    renamed = {names.get(name, name): value for name, value in arguments.items()}
    return VALUES[learner](renamed) if learner in VALUES else renamed


def make(learner: str, arguments: Mapping[str, Any]) -> Any:
    """An estimator from the arguments of a case."""
    return getattr(representer, learner)(**translated(learner, arguments))


def attribute(model: Any, name: str) -> Any:
    """A fitted attribute by its name in the cases; None if the model has none."""
    for present in ATTRIBUTES.get(name, (name,)):
        if hasattr(model, present):
            return getattr(model, present)
    return None
