"""Run the benchmarks: `python -m benchmarks [names …] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from pathlib import Path

import torch
from rich.console import Console

from benchmarks._timing import Row, show


def available() -> list[str]:
    """The subjects: the names of the files bench_<subject>.py."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def main() -> None:
    """Run the chosen subjects, or all, and print one table for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help=f"which to run (default: all): {', '.join(available()) or 'none yet'}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(available())
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(available())}")

    console = Console()
    machine = {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
    results: dict[str, list[Row]] = {}
    for name in arguments.names or available():
        with console.status(f"timing {name} ..."):
            results[name] = importlib.import_module(f"benchmarks.bench_{name}").rows()
        show(results[name], title=name, console=console)
    judged = [row for rows in results.values() for row in rows if row.goal is not None]
    console.print(f"{sum(row.verdict == 'met' for row in judged)} of {len(judged)} goals met")
    if arguments.json:
        record = {
            "machine": machine,
            "rows": {name: [row.as_dict() for row in rows] for name, rows in results.items()},
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
