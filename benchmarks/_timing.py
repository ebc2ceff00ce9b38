"""Time our code against a reference in the same run, and say whether the ratio meets its goal.

Machines differ and are shared; a ratio of two medians taken in turns is what can be compared. A benchmark is a module
`bench_<subject>.py` with a function `rows() -> list[Row]`, most of them made by `compare`.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One comparison: seconds of ours, seconds of the reference, and the largest ratio we accept (None: only shown)."""

    what: str
    size: str
    ours: float
    reference: float
    goal: float | None = None

    @property
    def ratio(self) -> float:
        """Our time over the reference's: below 1 we are faster."""
        return self.ours / self.reference

    @property
    def verdict(self) -> str:
        """ "met", "missed", or nothing when there is no goal."""
        if self.goal is None:
            return ""
        return "met" if self.ratio <= self.goal else "missed"

    def as_dict(self) -> dict[str, object]:
        """The row with its ratio and verdict, for JSON."""
        return {**asdict(self), "ratio": self.ratio, "verdict": self.verdict}


def medians(
    contenders: Mapping[str, Callable[[], object]], *, repeats: int = 5, warmup: int = 1
) -> dict[str, float]:
    """Median seconds of each named callable.

    The contenders run in turns, and each round begins with the next one, so that a machine that slows down, or a cache
    that the previous one has warmed, favours nobody.
    """
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
) -> Row:
    """The row of one comparison."""
    times = medians({"ours": ours, "reference": reference}, repeats=repeats, warmup=warmup)
    return Row(what, size, times["ours"], times["reference"], goal)


def show(rows: Iterable[Row], *, title: str | None = None, console: Console | None = None) -> None:
    """Print the rows as a table."""
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("size")
    for heading in ("ours", "reference", "ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for row in rows:
        style = {"met": "green", "missed": "bold red"}.get(row.verdict, "")
        table.add_row(
            row.what,
            row.size,
            f"{row.ours:.3g} s",
            f"{row.reference:.3g} s",
            f"{row.ratio:.2f}",
            "" if row.goal is None else f"≤ {row.goal:g}",
            f"[{style}]{row.verdict}[/]" if style else "",
        )
    (console or Console()).print(table)
