"""Run the benchmarks of a checkout: what ``python -m benchmarks`` does."""

from __future__ import annotations

import importlib
import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sklearn
import torch
from rich.console import Console

from benchmarks._timing import scale, show
from representer import __version__
from representer.cli import stopped_by_interrupts
from runs.long_runs import write_json
from runs.terminal import progress_bar


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
        raise ValueError(f"No such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(available())}.")
    return [name for name in available() if not names or name in names]


def conditions() -> dict[str, Any]:
    """What rows of one table have in common."""
    return {"version": __version__, "machine": machine(), "scale": scale()}


def finished_rows(out: Path) -> list[dict[str, Any]]:
    """The rows that an interrupted run left in its file; of a run that came to its end, none: all is timed again."""
    if not out.exists():
        return []
    try:
        record = json.loads(out.read_text(encoding="utf-8"))
        rows, interrupted = record["rows"], record["interrupted"]
        same = {key: record[key] for key in conditions()} == conditions()
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"{out} is no result of the benchmarks. Choose another file, or overwrite it: --fresh."
        ) from None
    if interrupted and not same:
        raise ValueError(
            f"{out} holds an interrupted run of another version, size, machine or number of threads. Choose another "
            "file, or start over: --fresh."
        )
    return list(rows) if interrupted else []


def run(
    subjects: Sequence[str],
    console: Console,
    out: Path | None = None,
    known: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Run subjects and print one table; what was measured, for JSON.

    A subject that fails is in ``failures``; the others run. Ctrl-C ends the run, and ``interrupted`` is then true. What
    is finished is in ``out`` at once; subjects with ``known`` rows are not run again.
    """
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()), highlight=False)
    rows, failures = list(known), dict[str, str]()
    record = conditions() | {"rows": rows, "failures": failures, "interrupted": True}
    done = list(dict.fromkeys(row["subject"] for row in known))
    left = [name for name in subjects if name not in done]
    if done:
        console.print(f"Measured before the interruption: {', '.join(done)}.", highlight=False)
    try:
        with stopped_by_interrupts(), progress_bar(console) as progress:
            bar = progress.add_task("", total=len(left))
            for name in left:
                progress.update(bar, description=f"timing {name}")
                try:
                    found = importlib.import_module(f"benchmarks.bench_{name}").rows()
                    rows += [{"subject": name, **row.as_dict()} for row in found]
                except Exception as error:
                    failures[name] = f"{type(error).__name__}: {error}"
                    console.print(f"{name} failed. {failures[name]}", style="red", markup=False)
                if out is not None:
                    write_json(out, record)
                progress.advance(bar)
        record["interrupted"] = False
    except KeyboardInterrupt:
        pass
    rows.sort(key=lambda row: row["subject"])
    if out is not None:
        write_json(out, record)
    show(rows, console)
    verdicts = Counter(row["verdict"] for row in rows)
    goals = f"{verdicts['met']} of {verdicts['met'] + verdicts['missed']} goals met"
    console.print(goals if scale() == 1 else "A quick run: goals are judged at full size only.", highlight=False)
    return record
