"""The command ``representer``: its version, what is in a model file, and the data sets that it can load and fetch."""

# No `from __future__ import annotations`: typer reads annotations, and knows only what is imported here.
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import typer

    from representer.datasets import Source

WIDTH = 150  # of tables where there is no terminal


def main() -> None:
    """Run the command ``representer``, or say what it needs."""
    try:
        application = make_application()
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("The command needs typer; install it with: pip install 'representer[cli]'.")
    application()


def make_application() -> "typer.Typer":
    """The command ``representer`` with its subcommands."""
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

    @application.command("describe")
    def describe(
        model: Annotated[Path, typer.Argument(help="A file that `save` has written, or the folder in which it is.")],
        json_output: as_json = False,
    ) -> None:
        """Print what a model file says about itself: versions, inputs, the fit."""
        raise typer.Exit(describe_model(model, console_for(json_output), json_output))

    @data.command("list")
    def data_list(json_output: as_json = False) -> None:
        """List the data sets, and which of them are at hand."""
        raise typer.Exit(list_data(console_for(json_output), json_output))

    @data.command("fetch")
    def data_fetch(
        files: Annotated[
            list[str] | None, typer.Argument(help="Sets or files, as `data list` names them; all by default.")
        ] = None,
        folder: Annotated[
            Path | None, typer.Option(help="Where to; default: what REPRESENTER_DATA names, or your cache.")
        ] = None,
        json_output: as_json = False,
    ) -> None:
        """Download public sets that are not there yet, and check what is in them."""
        raise typer.Exit(fetch_data(files or [], folder, console_for(json_output), json_output))

    return application


def console_for(json_output: bool) -> Console:
    """The console of a subcommand, whose progress does not mix with JSON.

    A file or a pipe has no width, and tables need one.
    """
    console = Console(stderr=json_output)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


def print_json(record: object) -> None:
    """Print a record where a program reads it."""
    sys.stdout.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


# -- the subcommands; each returns the exit status --------------------------------------------------------------------
def describe_model(model: Path, console: Console, json_output: bool) -> int:
    """Print what a model file says about itself: 1 if it is none."""
    from representer.persistence import ModelFileError, describe

    try:
        about = describe(model)
    except ModelFileError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    if json_output:
        print_json(about)
        return 0
    table = Table("what", "value", title=str(model), show_header=False)
    for name, value in about.items():
        for key, entry in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(f"{name} {key}".rstrip(), escape(entry if isinstance(entry, str) else json.dumps(entry)))
    console.print(table)
    return 0


def list_data(console: Console, json_output: bool) -> int:
    """List every file that a loader reads, and whether it is there."""
    from representer import datasets
    from representer.datasets.files import data_folder

    rows = [
        {
            "file": s.file,
            "what": s.description,
            "origin": s.origin,
            "found": str(path) if (path := _path_of(s)) else None,
            "fetch": s.file in datasets.DOWNLOADS,
        }
        for s in datasets.sources()
    ]
    if json_output:
        print_json(rows)
        return 0
    table = Table("file", "what", "origin", "here", title=f"data sets in {data_folder()}")
    for row in rows:
        here = "yes" if row["found"] else "no; `data fetch` gets it" if row["fetch"] else "no"
        table.add_row(str(row["file"]), str(row["what"]), str(row["origin"]), here)
    console.print(table)
    return 0


def _path_of(source: "Source") -> Path | None:
    """Where the file of a set is, or None if it is not there."""
    from representer.datasets.files import MissingDataError, find_file

    try:
        return find_file(source, None)
    except MissingDataError:
        return None


def fetch_data(files: list[str], folder: Path | None, console: Console, json_output: bool) -> int:
    """Download one after the other: 1 if one failed, 2 if nothing can be written to the folder."""
    from representer.datasets import DownloadError, fetch_all
    from representer.datasets.files import data_folder, writable_folder

    try:
        target = writable_folder(data_folder(folder))
    except OSError as error:
        console.print(str(error), style="red", markup=False)
        return 2
    errors: dict[str, str] = {}
    try:
        paths = fetch_all(files or None, target, console=console)
    except DownloadError as error:
        paths, errors = error.paths, error.failures
    if json_output:
        print_json({"found": {file: str(path) for file, path in paths.items()}, "failed": errors})
    else:
        for file, path in paths.items():
            console.print(f"{file}: {path}", markup=False, soft_wrap=True)
        for reason in errors.values():
            console.print(reason, style="red", markup=False, soft_wrap=True)
    return int(bool(errors))
