"""Peak memory of fits and predictions, in matrices of n × n doubles or in GB."""

from __future__ import annotations

from benchmarks._timing import Row
from benchmarks.peak_memory import CASES, row


def rows() -> list[Row]:
    """One process for each case."""
    return [row(name) for name in CASES]
