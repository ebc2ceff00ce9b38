"""The learners answer as they did when their answers were recorded: see ``golden.cases`` and ``golden.record``."""

from __future__ import annotations

import numpy as np
import pytest
from golden.cases import CASES
from golden.record import deviations, difference, load

RECORDED = load()


def test_every_case_is_recorded() -> None:
    assert RECORDED.keys() == CASES.keys()


def test_difference_sees_what_changed() -> None:
    values = np.array([1.0, 200.0, np.nan])
    assert difference(values, values) == 0.0
    assert difference(values, values + np.array([0.0, 2.0, 0.0])) == pytest.approx(0.01)
    assert difference(0.1 * values, 0.1 * values + np.array([1e-3, 0.0, 0.0])) == pytest.approx(5e-5)
    assert difference(values, values[:2]) == np.inf
    assert difference(values, np.array([1.0, 200.0, 0.0])) == np.inf


@pytest.mark.parametrize("name", CASES)
def test_answers_are_as_recorded(name: str) -> None:
    case, expected = CASES[name], RECORDED[name]
    found = case.run()
    wrong = {
        answer: f"{value:.1e} away, where {allowed:.1e} is allowed"
        for answer, (value, allowed) in deviations(case, expected, found).items()
        if not value <= allowed
    }
    assert not wrong, f"{wrong}; recorded: {expected}; found: {found}"
