"""The demo: small scripts on built-in data, run one after the other, and a page with what came out of them.

A script is what a user would write. Its docstring is the text of its section, ``results`` its table; a function of
``drawings`` with the same name makes its figure.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import runpy
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.demo.drawings import DRAWINGS
from representer.cli import stopped_by_interrupts
from representer.datasets.files import writable_folder
from representer.plotting import panels
from runs.long_runs import write_json
from runs.page import Picture, Section, Table, write_page
from runs.terminal import progress_bar

__all__ = ["Tour", "run_demo", "script_text"]

SCRIPTS = Path(__file__).parent / "scripts"
DOCS = Path(__file__).parents[2] / "docs"
# Where to read on: pages of the documentation.
NEXT = {
    "boiling": ("any_data", "uncertainty", "explain"),
    "photograph": ("outputs", "large_data"),
    "molecules": ("molecules", "autoencoders"),
    "strings": ("strings", "explain"),
    "graphs": ("graphs", "own_kernel"),
    "words": ("structured",),
    "decisions": ("uncertainty", "embeddings"),
    "conditionals": ("embeddings",),
    "wind": ("outputs", "ridge"),
    "kink": ("deep_kernels", "own_network"),
    "circles": ("autoencoders",),
    "components": ("deep_kernel_pca",),
}
UNFINISHED = "unfinished.json"  # lies beside the page while tasks are left


@dataclass
class Tour:
    """What the demo found: the sections of its page, seconds by script, and scripts that lack an extra."""

    sections: list[Section] = field(default_factory=list)
    results: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    page: Path | None = None


def script_text(name: str) -> tuple[str, list[str], str]:
    """Title, paragraphs and code of a script."""
    source = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(tree := ast.parse(source)) or name
    title, *paragraphs = docstring.split("\n\n")
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip()
    return title, [" ".join(paragraph.split()) for paragraph in paragraphs], code


def run_demo(out: str | Path = "demo_output", *, fresh: bool = False, console: Console | None = None) -> Tour:
    """Run all scripts and write ``index.html``; after an interruption, those that are left.

    Parameters
    ----------
    out : path, default="demo_output"
        The folder of the page.
    fresh : bool, default=False
        Forget what an interrupted run has left there.
    console : rich.console.Console or None, default=None
        Where progress is shown.

    Returns
    -------
    tour : Tour
        What came out. A script whose extra is not installed is listed in ``missing`` with what to install; without
        matplotlib there is nothing to show, and its absence is an error.
    """
    console = console or Console()
    tour, folder = Tour(), writable_folder(out)
    panels(1, 1)  # without matplotlib there is nothing to show, and the first fit need not begin
    unfinished = folder / UNFINISHED
    finished = {} if fresh else _read(unfinished)
    try:
        with stopped_by_interrupts(), progress_bar(console) as progress:
            bar = progress.add_task("", total=len(DRAWINGS))
            for name in DRAWINGS:
                progress.update(bar, description=script_text(name)[0])
                _add(name, finished, tour, folder)
                write_json(unfinished, {"version": version("representer"), "tasks": finished})
                progress.advance(bar)
        unfinished.unlink(missing_ok=True)  # the next run measures all again
    finally:  # of what was finished, if the tour was interrupted
        tour.page = _write(tour, folder)
    return tour


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The tasks that an interrupted run of this version has finished, by script."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return dict(stored["tasks"]) if stored["version"] == version("representer") else {}
    except (OSError, ValueError, TypeError, KeyError):  # nothing there, or damaged
        return {}


def next_steps(name: str, folder: Path) -> list[str]:
    """A paragraph of links to pages of the documentation: those that Sphinx made, or else their sources."""
    built = DOCS / "_build" / "html"
    links = [f"[walk on this map]({name}.html)"] if (folder / f"{name}.html").exists() else []
    for page in NEXT.get(name, ()):
        source = DOCS / f"{page}.md"
        title = source.read_text(encoding="utf-8").splitlines()[0].lstrip("# ").partition(":")[0]
        target = built / f"{page}.html" if (built / f"{page}.html").exists() else source
        links.append(f"[{title}]({Path(os.path.relpath(target, folder)).as_posix()})")
    return [f"Next: {', '.join(links)}."] if links else []


def _add(name: str, finished: dict[str, dict[str, Any]], tour: Tour, folder: Path) -> None:
    """Add a script to the tour; run it, if its code is not among those that are finished."""
    title, paragraphs, code = script_text(name)
    task = finished.get(name)
    if task is None or task["code"] != code:
        try:
            task = finished[name] = {"code": code, **_run_script(name, folder)}
        except ModuleNotFoundError as error:  # an extra
            if error.name == "matplotlib":  # which every figure needs
                raise
            tour.missing[title] = str(error)
            return
    tour.seconds[title], tour.results[title] = task["seconds"], task["results"]
    light, dark = (base64.b64decode(task[kind]) for kind in ("png", "dark"))
    picture = Picture(light, task["alt"], task["caption"], dark=dark)
    table = Table(("measured here", ""), list(task["results"].items()))
    tour.sections.append(Section(title, paragraphs, [table], [picture], code, more=next_steps(name, folder)))


def _run_script(name: str, folder: Path) -> dict[str, Any]:
    """What it measures and draws, for JSON; an explorer that it leaves behind becomes a page beside the page."""
    start = time.perf_counter()
    found = runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name=f"examples.demo.scripts.{name}")
    picture: Picture = DRAWINGS[name](found)
    if "explorer" in found:
        found["explorer"].save(folder / f"{name}.html")
    return {
        "seconds": time.perf_counter() - start,
        "results": found["results"],
        "png": base64.b64encode(picture.png).decode("ascii"),
        "dark": base64.b64encode(picture.dark).decode("ascii"),
        "alt": picture.alt,
        "caption": picture.caption,
    }


def _write(tour: Tour, folder: Path) -> Path:
    lead = (
        "Give it a table, molecules, strings, graphs or curves as they are; get predictions that say how sure they "
        "are. What each learner does on built-in data, beside a rival, with the code that did it. All numbers were "
        "measured in this run."
    )
    footer = f"{len(tour.sections)} tasks in {sum(tour.seconds.values()):.0f} s."
    footer += "".join(f" Left out: {title} ({reason})" for title, reason in tour.missing.items())
    return write_page(folder / "index.html", "representer", lead, tour.sections, footer)
