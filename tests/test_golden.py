"""The learners answer as they did when their answers were recorded: see ``golden.cases`` and ``golden.record``."""

from __future__ import annotations

import numpy as np
import pytest
from golden.cases import CASES
from golden.record import deviations, load

from benchmarks.differential import answer, difference, random_case, verdict

RECORDED = load()
EVERY_RUN = 3  # every third case of a learner and a tier runs each time, all of them in continuous integration


def test_every_case_is_recorded() -> None:
    assert RECORDED.keys() == CASES.keys()


def test_difference_sees_what_changed() -> None:
    values = np.array([1.0, 200.0, np.nan])
    assert difference(values, values) == 0.0
    assert difference(values, values + np.array([0.0, 2.0, 0.0])) == pytest.approx(0.01)
    assert difference(0.1 * values, 0.1 * values + np.array([1e-3, 0.0, 0.0])) == pytest.approx(5e-5)
    assert difference(values, values[:2]) == np.inf
    assert difference(values, np.array([1.0, 200.0, 0.0])) == np.inf


def test_random_cases_are_told_apart() -> None:
    spec = random_case(4, ["OperatorRidge"])
    assert spec == random_case(4, ["OperatorRidge"]) != random_case(5, ["OperatorRidge"])
    replies = answer(spec), answer(spec)
    assert verdict(*replies, lambda: replies[0]) == ("agree", "")
    replies[1]["answers"]["predict"]["values"][0] += 1e-6
    assert verdict(*replies, lambda: replies[0])[0] == "DIFFERS"
    assert verdict(*replies, lambda: replies[1])[0] == "rounding"
    refused = {"refused": "ValueError", "message": "alpha"}
    assert verdict(replies[0], refused, lambda: replies[0]) == ("DIFFERS", "refused: ValueError: alpha")
    assert verdict(refused, replies[0], lambda: replies[0])[0] == "answered now"
    assert verdict(refused, {**refused, "refused": "TypeError"}, lambda: refused)[0] == "both refuse"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if i % EVERY_RUN else []) for i, name in enumerate(CASES)]
)
def test_answers_are_as_recorded(name: str) -> None:
    case, expected = CASES[name], RECORDED[name]
    found = case.run()
    wrong = {
        answer: f"{value:.1e} away, where {allowed:.1e} is allowed"
        for answer, (value, allowed) in deviations(case, expected, found).items()
        if not value <= allowed
    }
    assert not wrong, f"{wrong}; recorded: {expected}; found: {found}"
