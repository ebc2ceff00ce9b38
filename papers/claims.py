"""Kinds of claims: at most a number, lower by a factor, lower in most cases, not worse than the best rival.

``reasons.json`` says in a line each why claims were not reached, because of the paper, the protocol or the data, and
which claims of which experiment it explains: one that is not named there is shown as unexplained.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from papers.results import Measurements, Verdict
from papers.runner import Claim


@cache
def reasons() -> dict[str, dict[str, list[str]]]:
    """Why claims were not reached: by experiment, each reason and the texts of the claims that it explains."""
    return dict(json.loads(Path(__file__).with_name("reasons.json").read_text(encoding="utf-8")))


def reason(experiment: str, claim: dict[str, str]) -> str:
    """Why a judged claim was not reached, a line that begins with "paper", "protocol" or "data".

    Parameters
    ----------
    experiment : str
        The name.
    claim : dict
        Its text and its verdict.

    Returns
    -------
    reason : str
        To be shown beside the verdict: "unexplained" if none is known, and nothing of a claim that was reached.
    """
    if claim["verdict"] == "reached":
        return ""
    given = reasons().get(experiment, {})
    return next((why for why, claims in given.items() if claim["claim"] in claims), "unexplained")


def lower(text: str, measure: str, case: str, method: str, than: str, factor: float = 1.0) -> Claim:
    """The mean of a method is at most ``factor`` times another's; if it is only lower, the ordering is kept.

    Parameters
    ----------
    text : str
        The claim in words.
    measure, case, method, than : str
        What is compared where, and which two methods.
    factor : float, default=1.0
        At most 1.

    Returns
    -------
    claim : Claim
        To be judged on the measurements.
    """

    def judge(measurements: Measurements) -> tuple[Verdict, str]:
        ours, theirs = (measurements.mean(case, name, measure) for name in (method, than))
        numbers = f"{ours:.3g} against {theirs:.3g}"
        if theirs > 0:
            numbers += f" ({ours / theirs:.2f} ×)"
        if ours < theirs and ours <= factor * theirs:
            return "reached", numbers
        return "ordering kept" if ours < theirs else "not reached", numbers

    return Claim(text, judge)


def at_most(text: str, measure: str, case: str, method: str, bound: float) -> Claim:
    """The mean of a method is at most a published number.

    Parameters
    ----------
    text : str
        The claim in words.
    measure, case, method : str
        What is compared where, and for which method.
    bound : float
        The number.

    Returns
    -------
    claim : Claim
        To be judged on the measurements.
    """

    def judge(measurements: Measurements) -> tuple[Verdict, str]:
        ours = measurements.mean(case, method, measure)
        return ("reached" if ours <= bound else "not reached"), f"{ours:.4g} against {bound:g}"

    return Claim(text, judge)


def not_worse(text: str, measure: str, case: str, method: str, rivals: Sequence[str]) -> Claim:
    """A method is lower than the best rival, or above it by no more than one standard error of the paired difference.

    Parameters
    ----------
    text : str
        The claim in words.
    measure, case, method : str
        What is compared where, and for which method.
    rivals : sequence of str
        The other methods, on the same repeats.

    Returns
    -------
    claim : Claim
        To be judged on the measurements.
    """

    def judge(measurements: Measurements) -> tuple[Verdict, str]:
        best = min(rivals, key=lambda rival: measurements.mean(case, rival, measure))
        ours, theirs = (measurements.values_of(case, name, measure) for name in (method, best))
        excess, n = (ours - theirs).mean(), len(ours)
        error = (ours - theirs).std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
        word = "better" if excess < 0 else "within one standard error" if excess <= error else "worse"
        numbers = f"{ours.mean():.4g} against {theirs.mean():.4g} ({best}): {word}, {excess:+.2g} ± {error:.2g}"
        return "not reached" if word == "worse" else "reached", numbers

    return Claim(text, judge)


def lower_in_most(text: str, measure: str, cases: Sequence[str], method: str, than: str, at_least: int) -> Claim:
    """The mean of a method is at most another's in so many of the cases; the ordering is kept if in the mean of all.

    Parameters
    ----------
    text : str
        The claim in words.
    measure : str
        What is compared.
    cases : sequence of str
        Where.
    method, than : str
        Which two methods.
    at_least : int
        In how many of the cases.

    Returns
    -------
    claim : Claim
        To be judged on the measurements.
    """

    def judge(measurements: Measurements) -> tuple[Verdict, str]:
        ours, theirs = (np.array([measurements.mean(case, name, measure) for case in cases]) for name in (method, than))
        pairs = zip(cases, ours, theirs, strict=True)
        numbers = ", ".join(f"{case} {a:.3g} against {b:.3g}" for case, a, b in pairs)
        if (ours <= theirs).sum() >= at_least:
            return "reached", numbers
        return "ordering kept" if ours.mean() < theirs.mean() else "not reached", numbers

    return Claim(text, judge)
