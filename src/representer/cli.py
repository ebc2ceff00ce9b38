"""The command ``representer``: look at what it does, measure what the papers claim, time it."""

# No `from __future__ import annotations`: typer reads annotations, and knows only what is imported here.
import importlib
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table

from representer.long_runs import writable_folder
from representer.progress import progress_bar

if TYPE_CHECKING:
    import typer

ROOT = Path(__file__).parents[2]  # of a checkout
INTERRUPTED = 130
WIDTH = 150


def main() -> None:
    """Run the command."""
    try:
        application = make_application()
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("The command needs typer; install it with: pip install 'representer[cli]'.")
    application()


def make_application() -> "typer.Typer":
    """The command with its subcommands."""
    import typer

    application = typer.Typer(
        help="Deep kernel machines for any data, with the scikit-learn interface.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    data = typer.Typer(help="Data sets: what there is, and where it comes from.", no_args_is_help=True)
    application.add_typer(data, name="data")

    as_json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

    @application.callback(invoke_without_command=True)
    def root(
        show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    ) -> None:
        if show_version:
            typer.echo(f"representer {version('representer')}")
            raise typer.Exit

    @application.command()
    def demo(
        out: Annotated[Path, typer.Option(help="The folder of the page.")] = Path("demo_output"),
        fresh: Annotated[
            bool, typer.Option("--fresh", help="Forget what an interrupted run has left.")
        ] = False,
        json_output: as_json = False,
    ) -> None:
        """Show what the learners do: a page of figures, numbers and the code that made them."""
        raise typer.Exit(run_demo(out, fresh, _console(json_output), json_output))

    @application.command()
    def reproduce(
        experiments: Annotated[
            list[str] | None, typer.Argument(help="Papers or experiments; all by default.")
        ] = None,
        quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats and restarts.")] = False,
        data: Annotated[
            Path | None, typer.Option(help="The folder of the data; default: what REPRESENTER_DATA names.")
        ] = None,
        out: Annotated[Path | None, typer.Option(help="Default: reproduce_output/full, or …/quick.")] = None,
        fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was measured before.")] = False,
        redo: Annotated[str, typer.Option(help="Measure parts again whose name contains this.")] = "",
        jobs: Annotated[
            int | None,
            typer.Option(min=1, help="Experiments side by side, one thread each; default: as many as cores."),
        ] = None,
        listing: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
        json_output: as_json = False,
    ) -> None:
        """Measure again what the papers claim; what was measured before is kept."""
        out = out or Path("reproduce_output") / ("quick" if quick else "full")
        options = {"quick": quick, "data": data, "fresh": fresh, "redo": redo, "jobs": jobs}
        if listing:
            raise typer.Exit(list_experiments(experiments or ["all"], _console(json_output), json_output))
        raise typer.Exit(
            run_reproduce(experiments or ["all"], out, _console(json_output), json_output, **options)
        )

    @application.command()
    def bench(
        subjects: Annotated[list[str] | None, typer.Argument(help="Which; all by default.")] = None,
        quick: Annotated[
            bool, typer.Option("--quick", help="A fiftieth of the samples; goals do not count.")
        ] = False,
        out: Annotated[
            Path | None,
            typer.Option(help="A file for what --json prints; an interrupted run continues from it."),
        ] = None,
        fresh: Annotated[
            bool, typer.Option("--fresh", help="Forget what an interrupted run has left.")
        ] = False,
        json_output: as_json = False,
    ) -> None:
        """Time the library against peers and literal baselines, as ratios within one run."""
        raise typer.Exit(run_bench(subjects or [], quick, out, fresh, _console(json_output), json_output))

    @data.command("list")
    def data_list(json_output: as_json = False) -> None:
        """List the data sets, and which of them are at hand."""
        raise typer.Exit(list_data(_console(json_output), json_output))

    @data.command("fetch")
    def data_fetch(
        files: Annotated[
            list[str] | None, typer.Argument(help="Files, as `data list` names them; all by default.")
        ] = None,
        folder: Annotated[
            Path | None, typer.Option(help="Where to; default: what REPRESENTER_DATA names.")
        ] = None,
        json_output: as_json = False,
    ) -> None:
        """Download public sets that are not there yet, and check what is in them."""
        raise typer.Exit(fetch_data(files or [], folder, _console(json_output), json_output))

    return application


def _console(json_output: bool) -> Console:
    """Progress goes where it does not mix with JSON; a file or a pipe has no width, and tables need one."""
    console = Console(stderr=json_output)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


def _print_json(record: Any) -> None:
    sys.stdout.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


# -- the subcommands; each returns the exit status --------------------------------------------------------------------
def run_demo(out: Path, fresh: bool, console: Console, json_output: bool) -> int:
    """The tour; what was finished is on the page even if it is interrupted, and the next one continues."""
    from representer.demo import run_demo as tour

    try:
        found = tour(out, fresh=fresh, console=console)
    except (OSError, ModuleNotFoundError) as error:  # a folder that is read-only, or no matplotlib
        console.print(str(error), style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        page = out / "index.html"
        console.print(
            f"Interrupted. What was finished is in {page}; the same command continues.", markup=False
        )
        return INTERRUPTED
    if json_output:
        _print_json(
            {
                "page": str(found.page),
                "results": found.results,
                "seconds": found.seconds,
                "missing": found.missing,
            }
        )
        return 0
    table = Table(
        "task", "measured", "", "seconds", title="representer on built-in data", title_justify="left"
    )
    for title, results in found.results.items():
        for index, (what, value) in enumerate(results.items()):
            first = index == 0
            table.add_row(title if first else "", what, value, f"{found.seconds[title]:.1f}" if first else "")
        table.add_section()
    console.print(table)
    for title, reason in found.missing.items():
        console.print(f"Left out: {title}. {reason}", markup=False)
    console.print(f"Open {found.page}", highlight=False, markup=False, soft_wrap=True)
    return 0


def list_experiments(names: list[str], console: Console, json_output: bool) -> int:
    """Names, papers, places and the files of the data that are needed: 2 if a name is unknown."""
    from representer.reproduce import EXPERIMENTS, select

    try:
        chosen = select(names, EXPERIMENTS)
    except ValueError as error:
        console.print(str(error), style="red", markup=False)
        return 2
    rows: list[dict[str, Any]] = [
        {"name": e.name, "paper": e.paper, "place": e.place, "data": [source.file for source in e.data]}
        for e in chosen
    ]
    if json_output:
        _print_json(rows)
        return 0
    table = Table("experiment", "paper", "place", "data")
    for row in rows:
        table.add_row(row["name"], row["paper"], row["place"], ", ".join(row["data"]))
    console.print(table)
    return 0


def run_reproduce(names: list[str], out: Path, console: Console, json_output: bool, **options: Any) -> int:
    """The experiments: 1 if one failed, 2 if a name is unknown, 130 if interrupted."""
    from representer.reproduce import reproduce

    try:
        results = reproduce(names, out, console=console, **options)
    except (
        ValueError,
        OSError,
    ) as error:  # unknown names, a folder that holds another kind of run or is read-only
        console.print(str(error), style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print(
            f"Interrupted. What was finished is in {out}; the same command continues.", markup=False
        )
        return INTERRUPTED
    if json_output:
        record = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        record["experiments"] = [e for e in record["experiments"] if e["name"] in results.chosen]
        _print_json(record)
    return int(any(results.outcomes[name].status == "failed" for name in results.chosen))


def run_bench(
    names: list[str], quick: bool, out: Path | None, fresh: bool, console: Console, json_output: bool
) -> int:
    """The benchmarks of a checkout: 1 if one fails, 2 if there are none; to miss a goal is a finding, not a failure."""
    if not (ROOT / "benchmarks" / "runner.py").is_file():
        console.print(
            "The benchmarks lie in the source of representer, not in the installed package. Clone its repository and "
            "install from there: pip install --editable '.[cli,bench]'.",
            markup=False,
        )
        return 2
    sys.path.insert(0, str(ROOT))
    benchmarks, timing = map(importlib.import_module, ("benchmarks.runner", "benchmarks._timing"))
    if quick:
        os.environ[timing.SCALE] = str(timing.QUICK_SCALE)
    try:
        subjects = benchmarks.select(names)
        known: list[dict[str, Any]] = []
        if out is not None:
            writable_folder(out.parent)
            if out.exists() and not out.is_file():
                raise ValueError(f"{out} is a folder or a device; --out names a file.")
            if not fresh:
                known = benchmarks.finished_rows(out)
    except (ValueError, OSError) as error:
        console.print(str(error), style="red", markup=False)
        return 2
    record = benchmarks.run(subjects, console, out, known)
    if json_output:
        _print_json(record)
    if record["interrupted"]:
        where = "The table has what was finished." if out is None else "The same command continues."
        console.print(f"Interrupted. {where}")
        return INTERRUPTED
    return int(bool(record["failures"]))


def list_data(console: Console, json_output: bool) -> int:
    """Every file that a loader reads, and whether it is there."""
    from representer import datasets

    rows: list[dict[str, Any]] = [
        {
            "file": s.file,
            "what": s.description,
            "origin": s.origin,
            "found": str(path) if (path := _find(s)) else None,
            "fetch": s.file in datasets.DOWNLOADS,
        }
        for s in datasets.sources()
    ]
    if json_output:
        _print_json(rows)
        return 0
    table = Table(
        "file", "what", "origin", "here", title="data sets in the folder that REPRESENTER_DATA names"
    )
    for row in rows:
        here = "yes" if row["found"] else "no; `data fetch` gets it" if row["fetch"] else "no"
        table.add_row(row["file"], row["what"], row["origin"], here)
    console.print(table)
    return 0


def _find(source: Any) -> Path | None:
    from representer.datasets.files import MissingDataError, find_file

    try:
        return find_file(source, None)
    except MissingDataError:
        return None


def fetch_data(files: list[str], folder: Path | None, console: Console, json_output: bool) -> int:
    """Download one after the other: 1 if one failed, 2 if nobody says where to, or nothing can be written there."""
    from representer.datasets.downloads import DOWNLOADS, fetch
    from representer.datasets.files import VARIABLE

    chosen = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if chosen is None:
        console.print(
            f"Where to? Let {VARIABLE} name a folder, or give one: --folder DIR.", style="red", markup=False
        )
        return 2
    try:
        chosen = writable_folder(chosen.expanduser())
    except OSError as error:
        console.print(str(error), style="red", markup=False)
        return 2
    found, failed = {}, {}
    with progress_bar(console) as progress:
        bar = progress.add_task("", total=len(files or DOWNLOADS))
        for file in files or DOWNLOADS:
            progress.update(bar, description=file)
            try:
                found[file] = str(fetch(file, chosen))
            except (OSError, ValueError) as error:
                failed[file] = str(error)
            progress.advance(bar)
    if json_output:
        _print_json({"found": found, "failed": failed})
    else:
        for file, path in found.items():
            console.print(f"{file}: {path}", markup=False, soft_wrap=True)
        for file, reason in failed.items():
            console.print(f"{file}: {reason}", style="red", markup=False)
    return int(bool(failed))
