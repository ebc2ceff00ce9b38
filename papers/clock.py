"""How long experiments take, and what is left of a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

COSTS = Path(__file__).with_name("costs.json")


def usual_seconds(quick: bool) -> dict[str, float]:
    """About what each experiment takes on one core.

    Parameters
    ----------
    quick : bool
        Of a quick run.

    Returns
    -------
    seconds : dict
        By name.
    """
    return dict(json.loads(COSTS.read_text(encoding="utf-8"))["quick" if quick else "full"])


def cpu_seconds() -> float:
    """What this process has taken of processors so far, with its threads and with children that have ended.

    Returns
    -------
    seconds : float
        Of the user and of the system; differences of them count.
    """
    taken = os.times()
    return taken.user + taken.system + taken.children_user + taken.children_system


class Clock:
    """What is left of a run, from what its experiments usually take and how fast this machine has been so far.

    Parameters
    ----------
    expected : mapping of str to float
        The seconds that each experiment is expected to need yet.
    jobs : int
        How many run side by side.
    """

    def __init__(self, expected: Mapping[str, float], jobs: int):
        self.expected = {name: max(seconds, 0.0) for name, seconds in expected.items()}
        self.jobs = jobs
        self._began: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def start(self, name: str) -> None:
        """An experiment begins."""
        self._began[name] = time.perf_counter()

    def finish(self, name: str) -> None:
        """An experiment has ended."""
        self._took[name] = time.perf_counter() - self._began.pop(name)

    @property
    def total(self) -> float:
        """The expected seconds of all."""
        return sum(self.expected.values())

    @property
    def done(self) -> float:
        """The expected seconds of what has ended, and of what runs as many as have passed, at this machine's pace."""
        return self.total - sum(self._left().values())

    @property
    def seconds_left(self) -> float:
        """Until the end: what is left over the jobs, but not less than what is left of one experiment."""
        left = self._left()
        return self._pace() * max(sum(left.values()) / self.jobs, max(left.values(), default=0.0))

    def _left(self) -> dict[str, float]:
        """In expected seconds."""
        now, pace = time.perf_counter(), self._pace()
        passed = {name: (now - began) / pace for name, began in self._began.items()}
        return {
            name: max(seconds - passed.get(name, 0.0), 0.0)
            for name, seconds in self.expected.items()
            if name not in self._took
        }

    def _pace(self) -> float:
        """Measured over expected seconds; expected ones count as measured until there are enough of those."""
        expected = sum(self.expected[name] for name in self._took)
        prior = max(0.05 * self.total, 1.0)
        return (sum(self._took.values()) + prior) / (expected + prior)


def in_words(seconds: float) -> str:
    """About how long that is.

    Parameters
    ----------
    seconds : float
        How long.

    Returns
    -------
    text : str
        In seconds, minutes, or hours and minutes.
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
