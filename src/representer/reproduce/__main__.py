"""Measure again what the papers claim: `python -m representer.reproduce [names …] [--quick] [--out DIR]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from representer.reproduce import EXPERIMENTS, reproduce


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen experiments, or all; 1 if one failed, 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m representer.reproduce", description=__doc__)
    groups = sorted({experiment.name.partition("-")[0] for experiment in EXPERIMENTS})
    parser.add_argument(
        "names", nargs="*", default=["all"], help=f"experiments, or groups of them: {', '.join(groups)}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats and restarts")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: reproduce_output/full, or …/quick")
    parser.add_argument("--data", type=Path, metavar="DIR", help="default: what REPRESENTER_DATA names")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument(
        "--redo", default="", metavar="TEXT", help="measure parts again whose name contains TEXT"
    )
    parser.add_argument("--list", action="store_true", help="only list the experiments")
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.list:
        for experiment in EXPERIMENTS:
            console.print(f"{experiment.name:24s}{experiment.paper}, {experiment.place}", highlight=False)
        return 0
    out = chosen.out or Path("reproduce_output") / ("quick" if chosen.quick else "full")
    try:
        results = reproduce(
            chosen.names,
            out,
            quick=chosen.quick,
            data=chosen.data,
            fresh=chosen.fresh,
            redo=chosen.redo,
            console=console,
        )
    except ValueError as error:  # unknown names, a folder that holds another kind of run
        parser.error(str(error))
    except KeyboardInterrupt:
        console.print(f"Interrupted. What was finished is in {out}; the same command continues.")
        return 130
    return int(any(outcome.status == "failed" for outcome in results.outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
