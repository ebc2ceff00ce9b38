"""What a command shows while it runs, and how it ends."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from representer.cli import INTERRUPTED

FAILED, REFUSED = 1, 2  # exit statuses


def command(program: str, text: str) -> argparse.ArgumentParser:
    """A parser of arguments with the options that all commands have."""
    parser = argparse.ArgumentParser(program, description=text)
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs have left")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of tables", dest="json_output"
    )
    return parser


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def progress_bar(console: Console) -> Progress:
    """What is being done, how far it is, seconds so far and left; it leaves no trace when it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)


def refuse(console: Console, error: Exception) -> int:
    """Say why a command does not begin; the exit status that says so."""
    console.print(str(error), style="red", markup=False)
    return REFUSED


def interrupted(console: Console, text: str) -> int:
    """Say that the user has ended a command, and what is left; the exit status that says so."""
    console.print(f"Interrupted. {text}", markup=False)
    return INTERRUPTED
