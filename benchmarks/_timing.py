"""Time our code against a reference in the same run, and say whether the ratio meets its goal.

Machines differ and are shared; a ratio of two medians taken in turns is what can be compared. A benchmark is a module
`bench_<subject>.py` with a function `rows() -> list[Row]`, most of them made by `compare`.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

SCALE = "REPRESENTER_BENCH_SCALE"  # the share of the samples that is taken
QUICK_SCALE = 0.02
STYLES = {"met": "green", "missed": "bold red", "not run": "yellow"}


def scale() -> float:
    """The share of the samples that is asked for; goals are for all of them."""
    return float(os.environ.get(SCALE, "1"))


def scaled(n: int, least: int = 50) -> int:
    """n, or the share of it that is asked for."""
    return n if scale() == 1 else max(min(n, least), int(scale() * n))


@dataclass(frozen=True)
class Row:
    """One comparison, or one fact.

    Parameters
    ----------
    what, size : str
        What is compared with what, and for how many samples: the same words in every run.
    ours, reference : float or None
        Seconds, or what ``unit`` says, of ours and of what it is compared with. A fact has no reference; a row that
        could not be measured has neither.
    goal : float or None
        The largest ratio that we accept, of a fact the largest value. None: it is only shown.
    unit : str
        Of ours and the reference.
    at_least : bool
        The goal of a fact is the smallest value that we accept.
    note : str
        What else came out, such as the objectives reached, or why it was not run.
    """

    what: str
    size: str
    ours: float | None
    reference: float | None = None
    goal: float | None = None
    unit: str = "s"
    at_least: bool = False
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the reference: below 1 we are faster."""
        return None if self.ours is None or self.reference is None else self.ours / self.reference

    @property
    def aim(self) -> str:
        """The goal in words."""
        if self.goal is None:
            return ""
        unit = "" if self.reference is not None or self.unit == "s" else f" {self.unit}"
        return f"{'≥' if self.at_least else '≤'} {self.goal:.3g}{unit}"

    @property
    def verdict(self) -> str:
        """ "met", "missed", "not run", "quick" (a goal, but not its size), or nothing when there is no goal."""
        value = self.ours if self.ratio is None else self.ratio
        if value is None:
            return "not run"
        if self.goal is None:
            return ""
        if scale() != 1:
            return "quick"
        return "met" if (value >= self.goal if self.at_least else value <= self.goal) else "missed"

    def as_dict(self) -> dict[str, str | float | None]:
        """The row with its ratio and verdict, for JSON; what is infinite (never reached) is null there."""
        numbers = {"ours": self.ours, "reference": self.reference, "unit": self.unit, "ratio": self.ratio}
        finite = {name: None if value == float("inf") else value for name, value in numbers.items()}
        words = {"goal": self.aim, "verdict": self.verdict, "note": self.note}
        return {"what": self.what, "size": self.size, **finite, **words}


def not_run(what: str, reason: str, goal: float | None = None, **options: bool | str) -> Row:
    """A row in place of what cannot be measured here."""
    return Row(what, "", None, None, goal, note=reason, **options)  # type: ignore[arg-type]


def medians(contenders: Mapping[str, Callable[[], object]], *, repeats: int = 5, warmup: int = 1) -> dict[str, float]:
    """Median seconds of each named callable.

    The contenders run in turns, and each round begins with the next one, so that a machine that slows down, or a cache
    that the previous one has warmed, favours nobody.
    """
    if scale() != 1:
        repeats, warmup = 1, 0
    names = list(contenders)
    for _ in range(warmup):
        for name in names:
            contenders[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            started = time.perf_counter()
            result = contenders[name]()
            seconds[name].append(time.perf_counter() - started)
            del result  # freeing it is not part of the time
    return {name: statistics.median(times) for name, times in seconds.items()}


def compare(
    what: str,
    size: str,
    *,
    ours: Callable[[], object],
    reference: Callable[[], object],
    goal: float | None = None,
    repeats: int = 5,
    warmup: int = 1,
    note: str = "",
) -> Row:
    """The row of one comparison."""
    times = medians({"ours": ours, "reference": reference}, repeats=repeats, warmup=warmup)
    return Row(what, size, times["ours"], times["reference"], goal, note=note)


def show(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print rows, as they stand in JSON, as one table."""
    table = Table("what", "size")
    for heading in ("ours", "reference", "ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for subject, group in groupby(rows, lambda row: row["subject"]):
        table.add_row(f"[bold]{subject}[/]")
        for row in group:
            style, ratio = STYLES.get(row["verdict"], ""), row["ratio"]
            table.add_row(
                escape(f"{row['what']} ({row['note']})" if row["note"] else row["what"]),
                row["size"],
                _number(row["ours"], row["unit"]),
                _number(row["reference"], row["unit"]),
                "" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}",
                row["goal"],
                f"[{style}]{row['verdict']}[/]" if style else row["verdict"],
            )
        table.add_section()
    console.print(table)


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g} {unit}"
