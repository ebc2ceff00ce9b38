"""Run the benchmarks: `python -m benchmarks [names …] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks._timing import Row, show


def available() -> list[str]:
    """The subjects: the names of the files bench_<subject>.py."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def run(names: Sequence[str], console: Console) -> dict[str, Any]:
    """Run the chosen subjects, or all, and print one table for each; what was measured, for JSON."""
    unknown = set(names) - set(available())
    if unknown:
        raise ValueError(
            f"No such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(available())}."
        )
    machine = {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
    results: dict[str, list[Row]] = {}
    for name in names or available():
        with console.status(f"timing {name} ..."):
            results[name] = importlib.import_module(f"benchmarks.bench_{name}").rows()
        show(results[name], title=name, console=console)
    judged = [row for rows in results.values() for row in rows if row.goal is not None]
    console.print(f"{sum(row.verdict == 'met' for row in judged)} of {len(judged)} goals met")
    return {
        "machine": machine,
        "rows": {name: [row.as_dict() for row in rows] for name, rows in results.items()},
    }


def main() -> None:
    """Read the arguments, run, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help=f"which to run (default: all): {', '.join(available()) or 'none yet'}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    arguments = parser.parse_args()
    try:
        record = run(arguments.names, Console())
    except ValueError as error:
        parser.error(str(error))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
