"""``python -m papers``: measure again what the papers claim."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import papers
from representer.cli import console_for, print_json
from runs.terminal import command, interrupted, positive, refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 if all went well, 1 if an experiment failed, 2 if none began, 130 if it was interrupted."""
    parser = command("python -m papers", "Measure again what the papers claim; what was measured before is kept.")
    option = parser.add_argument
    option("names", nargs="*", metavar="experiment", help="papers or experiments; all by default")
    option("--quick", action="store_true", help="fewer repeats and restarts")
    option("--data", type=Path, help="the folder of the data; default: what REPRESENTER_DATA names, or your cache")
    option("--out", type=Path, help="the folder of the report; default: reproduce_output/full, or …/quick")
    option("--redo", default="", metavar="TEXT", help="measure parts again whose name contains this")
    option("--jobs", type=positive, help="experiments side by side, one thread each; default: as many as cores")
    option("--list", action="store_true", help="only list the experiments", dest="listing")
    options = vars(parser.parse_args(arguments))
    json_output = options.pop("json_output")
    console, names = console_for(json_output), options.pop("names") or ["all"]
    if options.pop("listing"):
        return list_experiments(names, console, json_output)
    out = options.pop("out") or Path("reproduce_output") / ("quick" if options["quick"] else "full")
    return run(names, out, console, json_output, **options)


def list_experiments(names: Sequence[str], console: Console, json_output: bool) -> int:
    """Names, papers, places and the files of the data that are needed: 2 if a name is unknown."""
    try:
        chosen = papers.select(names, papers.EXPERIMENTS)
    except ValueError as error:
        return refuse(console, error)
    rows: list[dict[str, Any]] = [
        {"name": e.name, "paper": e.paper, "place": e.place, "data": [source.file for source in e.data]} for e in chosen
    ]
    if json_output:
        print_json(rows)
        return 0
    table = Table("experiment", "paper", "place", "data")
    for row in rows:
        table.add_row(row["name"], row["paper"], row["place"], ", ".join(row["data"]))
    console.print(table)
    return 0


def run(names: Sequence[str], out: Path, console: Console, json_output: bool, **options: Any) -> int:
    """The experiments: 1 if one failed, 2 if a name is unknown or nothing can be written, 130 if interrupted."""
    try:
        results = papers.reproduce(names, out, console=console, **options)
    except (ValueError, OSError) as error:  # also a folder that holds another kind of run
        return refuse(console, error)
    except KeyboardInterrupt:
        return interrupted(console, f"What was finished is in {out}; the same command continues.")
    if json_output:
        record = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        record["experiments"] = [e for e in record["experiments"] if e["name"] in results.chosen]
        print_json(record)
    return int(any(results.outcomes[name].status == "failed" for name in results.chosen))


if __name__ == "__main__":
    sys.exit(main())
