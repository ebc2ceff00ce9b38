"""The names that the cases use for arguments and attributes, and the names that the learners have for them.

The cases keep the vocabulary in which they were recorded. An argument that has another name or another value now is
translated here, in one place, for the recorded answers and for ``benchmarks.differential``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import representer

Translation = str | Callable[[Any], Mapping[str, Any]]

# By learner and name in the cases: the new name, or a function from the value to the new arguments, as in
# {"EmbeddingClassifier": {"objective": "criterion", "shrinkage": lambda value: {"prior": value or None}}}.
ARGUMENTS: dict[str, dict[str, Translation]] = {}

# An attribute in the cases -> the names under which it is looked for, the first that exists.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "criterion_value_": ("criterion_value_",),
    "objective_value_": ("objective_value_",),
}

# Set to any value, learners take the names of the cases: for sources that were not renamed.
RECORDED_NAMES = "REPRESENTER_RECORDED_NAMES"


def renamed(learner: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a case as its learner takes them."""
    table = {} if os.environ.get(RECORDED_NAMES) else ARGUMENTS.get(learner, {})
    translated: dict[str, Any] = {}
    for name, value in arguments.items():
        new = table.get(name, name)
        translated.update(new(value) if callable(new) else {new: value})
    return translated


def make(learner: str, arguments: Mapping[str, Any]) -> Any:
    """An estimator from the arguments of a case."""
    return getattr(representer, learner)(**renamed(learner, arguments))


def attribute(model: Any, name: str) -> Any:
    """A fitted attribute by its name in the cases; None if the model has none."""
    for present in ATTRIBUTES.get(name, (name,)):
        if hasattr(model, present):
            return getattr(model, present)
    return None
