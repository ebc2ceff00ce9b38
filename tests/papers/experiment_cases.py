"""Experiments that processes can import: one that works, one that dies, one without its data, one that takes long."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from papers import Experiment, Run
from papers.claims import at_most
from representer.datasets import MissingDataError


def measure(value: float, folder: Path | None = None) -> dict[str, float]:
    """What a fit does that keeps its best point when it is interrupted; for ever, if there is a file "slow"."""
    try:
        while folder is not None and (folder / "slow").exists():
            (folder / "begun").touch()
            time.sleep(0.05)
    except KeyboardInterrupt:
        return {"error": -1.0}
    return {"error": value, "threads": float(os.environ["OMP_NUM_THREADS"]), "process": float(os.getpid())}


def works(run: Run) -> None:
    for seed in range(3):
        run.part("case", "ours", seed, measure, seed)


def dies(run: Run) -> None:
    run.part("case", "ours", 0, measure, 0.0)
    run.part("case", "ours", 1, os._exit, 9)


def lacks(run: Run) -> None:
    raise MissingDataError("There is no toy.csv.")


def waits(run: Run) -> None:
    run.part("case", "ours", 0, measure, 0.0)
    run.part("case", "ours", 1, measure, 1.0, run.results.folder)


def every() -> Sequence[Experiment]:
    claim = at_most("at most 1", "error", "case", "ours", 1.0)
    return [
        Experiment(f"toy-{function.__name__}", "A paper", "Table 1", "Toys.", (claim,), function)
        for function in (works, dies, lacks, waits)
    ]
