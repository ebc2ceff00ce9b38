"""Run the benchmarks of a checkout: what ``representer bench`` does."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sklearn
import torch
from rich.console import Console

from benchmarks._timing import Row, scale, show
from representer import __version__
from representer.long_runs import stopped_by_interrupts
from representer.progress import progress_bar


def available() -> list[str]:
    """The subjects: the names of the files bench_<subject>.py."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def machine() -> dict[str, Any]:
    """Where the run takes place, and with what."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
    }


def select(names: Sequence[str]) -> list[str]:
    """These subjects, or all."""
    unknown = set(names) - set(available())
    if unknown:
        raise ValueError(
            f"No such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(available())}."
        )
    return [name for name in available() if not names or name in names]


def run(subjects: Sequence[str], console: Console) -> dict[str, Any]:
    """Run subjects and print one table; what was measured, for JSON.

    A subject that fails is in ``failures``; the others run. Ctrl-C ends the run, and ``interrupted`` is then true.
    """
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()), highlight=False)
    results: dict[str, list[Row]] = {}
    failures: dict[str, str] = {}
    interrupted = False
    try:
        with stopped_by_interrupts(), progress_bar(console) as progress:
            bar = progress.add_task("", total=len(subjects))
            for name in subjects:
                progress.update(bar, description=f"timing {name}")
                try:
                    results[name] = importlib.import_module(f"benchmarks.bench_{name}").rows()
                except Exception as error:
                    failures[name] = f"{type(error).__name__}: {error}"
                    console.print(f"{name} failed. {failures[name]}", style="red", markup=False)
                progress.advance(bar)
    except KeyboardInterrupt:
        interrupted = True
    show(results, console)
    judged = [row for rows in results.values() for row in rows if row.verdict in ("met", "missed")]
    console.print(f"{sum(row.verdict == 'met' for row in judged)} of {len(judged)} goals met")
    return {
        "version": __version__,
        "machine": machine(),
        "scale": scale(),
        "rows": [{"subject": name, **row.as_dict()} for name, rows in results.items() for row in rows],
        "failures": failures,
        "interrupted": interrupted,
    }
