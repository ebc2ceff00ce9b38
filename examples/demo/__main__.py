"""``python -m examples.demo``: a table of what was measured, and a page of figures, numbers and code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from examples import demo
from representer.cli import console_for, print_json
from runs.terminal import command, interrupted, refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 if all went well, 2 if it could not begin, 130 if it was interrupted."""
    text = "Show what the learners do: a page of figures, numbers and the code that made them."
    parser = command("python -m examples.demo", text)
    parser.add_argument(
        "--out", type=Path, default=Path("demo_output"), help="the folder of the page; default: demo_output"
    )
    options = parser.parse_args(arguments)
    console, out = console_for(options.json_output), options.out
    try:
        tour = demo.run_demo(out, fresh=options.fresh, console=console)
    except (OSError, ModuleNotFoundError) as error:  # a folder that is read-only, or no matplotlib
        return refuse(console, error)
    except KeyboardInterrupt:
        page = out / "index.html"
        return interrupted(console, f"What was finished is in {page}; the same command continues.")
    if options.json_output:
        print_json({name: getattr(tour, name) for name in ("results", "seconds", "missing")} | {"page": str(tour.page)})
        return 0
    console.print(table(tour))
    for title, reason in tour.missing.items():
        console.print(f"Left out: {title}. {reason}", markup=False)
    console.print(f"Open {tour.page}", highlight=False, markup=False, soft_wrap=True)
    return 0


def table(tour: demo.Tour) -> Table:
    """What each script measured, for the screen."""
    rows = Table("task", "measured", "", "seconds", title="representer on built-in data", title_justify="left")
    for title, results in tour.results.items():
        for index, (what, value) in enumerate(results.items()):
            first = index == 0
            rows.add_row(title if first else "", what, value, f"{tour.seconds[title]:.1f}" if first else "")
        rows.add_section()
    return rows


if __name__ == "__main__":
    sys.exit(main())
