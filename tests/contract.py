"""Scikit-learn's checks of a family of learners, of which some are tested at every run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator


def contract(checked: Mapping[str, tuple[Any, dict[str, str]]], quick: Collection[str]) -> pytest.MarkDecorator:
    """Parametrise a test by ``estimator`` and ``check``; the checks of all but the ``quick`` learners are slow.

    ``checked`` has, by name, a learner and the checks that it is expected to fail, each with its reason.
    """
    cases = []
    for name, (learner, expected) in checked.items():
        slow = () if name in quick else (pytest.mark.slow,)
        for case in estimator_checks_generator(learner, expected_failed_checks=expected, mark="xfail"):
            estimator, check = getattr(case, "values", case)  # a ``pytest.param`` where a failure is expected
            marks = getattr(case, "marks", ())
            cases.append(pytest.param(estimator, check, id=f"{name}-{_name(check)}", marks=(*marks, *slow)))
    return pytest.mark.parametrize(("estimator", "check"), cases)


def _name(check: partial[None]) -> str:
    keywords = ",".join(f"{key}={value}" for key, value in check.keywords.items())
    return check.func.__name__ + (f"({keywords})" if keywords else "")
