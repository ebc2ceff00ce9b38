"""``python -m benchmarks``: time the library against peers and literal baselines, as ratios within one run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import runner
from benchmarks._timing import QUICK_SCALE, SCALE
from representer.cli import console_for, print_json
from representer.datasets.files import writable_folder
from runs.terminal import command, interrupted, refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 1 if a benchmark fails, 2 if none began; to miss a goal is a finding, not a failure."""
    text = "Time the library against peers and literal baselines, as ratios within one run."
    parser = command("python -m benchmarks", text)
    parser.add_argument("subjects", nargs="*", metavar="subject", help="which; all by default")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the samples; goals do not count")
    parser.add_argument("--out", type=Path, help="a file for what --json prints; an interrupted run continues from it")
    options = parser.parse_args(arguments)
    console, out = console_for(options.json_output), options.out
    if options.quick:
        os.environ[SCALE] = str(QUICK_SCALE)
    try:
        subjects = runner.select(options.subjects)
        known = earlier_rows(out, options.fresh) if out else []
    except (ValueError, OSError) as error:
        return refuse(console, error)
    record = runner.run(subjects, console, out, known)
    if options.json_output:
        print_json(record)
    if record["interrupted"]:
        return interrupted(console, "The same command continues." if out else "The table has what was finished.")
    return int(bool(record["failures"]))


def earlier_rows(out: Path, fresh: bool) -> list[dict[str, Any]]:
    """The rows of an interrupted run, once it is known that its file can be written."""
    writable_folder(out.parent)
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is a folder or a device; --out names a file.")
    return [] if fresh else runner.finished_rows(out)


if __name__ == "__main__":
    sys.exit(main())
