"""The papers' experiments, measured again: ``python -m papers``.

Each paper has a folder with its experiments; ``tables`` compares on real tables. What they all need stands beside them:
experiments and their parts (``runner``), processes side by side (``workers``), what came out (``results``) and whether
that is what the paper says (``claims``), the report (``report``), and the time that is left (``clock``, ``display``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from papers import bohn, hsu, kadri, laforgue, tables, tonin
from papers.clock import Clock, usual_seconds
from papers.display import Display
from papers.report import draw_verdicts, lead, markdown, sections, summarised, table, took
from papers.results import Measurements, Results
from papers.runner import Claim, Experiment, Run, run_experiment
from papers.workers import run_side_by_side
from representer.datasets.files import writable_folder, write_whole
from runs.long_runs import write_json
from runs.page import write_page

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Measurements", "Results", "Run", "reproduce", "select"]

EXPERIMENTS: tuple[Experiment, ...] = (
    *bohn.EXPERIMENTS,
    *laforgue.EXPERIMENTS,
    *hsu.EXPERIMENTS,
    *kadri.EXPERIMENTS,
    *tonin.EXPERIMENTS,
    *tables.EXPERIMENTS,
)


def known_experiments() -> Sequence[Experiment]:
    """Those of the papers and of the real tables.

    Returns
    -------
    experiments : sequence of Experiment
        ``EXPERIMENTS``.
    """
    return EXPERIMENTS


def select(names: Sequence[str], experiments: Sequence[Experiment] = EXPERIMENTS) -> list[Experiment]:
    """The experiments of these names or groups (what stands before the first hyphen), or ``"all"``.

    Parameters
    ----------
    names : sequence of str
        Which.
    experiments : sequence of Experiment, default=EXPERIMENTS
        Among these, whose order is kept.

    Returns
    -------
    chosen : list of Experiment
        Each once.
    """
    known = {"all"} | {known for e in experiments for known in (e.name, e.name.partition("-")[0])}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"No experiment is called {unknown[0]!r}; there are: {', '.join(sorted(known))}.")
    return [e for e in experiments if {"all", e.name, e.name.partition("-")[0]} & set(names)]


def reproduce(
    names: Sequence[str] = ("all",),
    out: str | Path = "reproduce_output",
    *,
    quick: bool = False,
    data: str | Path | None = None,
    fresh: bool = False,
    redo: str = "",
    jobs: int | None = 1,
    console: Console | None = None,
    experiments: Sequence[Experiment] | Callable[[], Sequence[Experiment]] = known_experiments,
) -> Results:
    """Run experiments; write ``results.json``, ``summary.json``, ``index.html``, ``report.md`` and figures.

    Parameters
    ----------
    names : sequence of str, default=("all",)
        Experiments or groups of them.
    out : path, default="reproduce_output"
        The folder. What was measured there before is kept, so that an interrupted run continues.
    quick : bool, default=False
        Fewer repeats and restarts.
    data : path or None, default=None
        The folder of the data files; None is what REPRESENTER_DATA names, or the user's cache.
    fresh : bool, default=False
        Forget what was measured before of these experiments.
    redo : str, default=""
        Measure parts again of which ``case | method | repeat`` contains this text.
    jobs : int or None, default=1
        How many experiments run side by side, each in a process with one thread; None: as many as there are cores. With
        1 they run here, with the threads that there are.
    console : rich.console.Console or None, default=None
        Where to print.
    experiments : sequence of Experiment or callable
        Those there are; or a function of a module that returns them, which several jobs need: processes import it.

    Returns
    -------
    results : Results
        All outcomes by name; those of ``names`` are in ``results.chosen``.
    """
    console = console or Console()
    known = experiments() if callable(experiments) else experiments
    chosen = select(names, known)
    jobs = min(jobs or _cores(), len(chosen)) if callable(experiments) else 1
    results = Results(
        writable_folder(out),
        quick=quick,
        fresh=[e.name for e in chosen] if fresh else (),
        redo=redo,
        data=data,
        say=partial(console.print, markup=False),
    )
    results.chosen = [experiment.name for experiment in chosen]
    display = Display(console, Clock(_expected(results), jobs), results)
    try:
        with display:
            if jobs > 1 and callable(experiments):
                slowest_first = sorted(results.chosen, key=display.clock.expected.__getitem__, reverse=True)
                run_side_by_side(slowest_first, jobs, experiments, results, display)
            else:
                for experiment in chosen:
                    display.started(experiment.name)
                    run_experiment(experiment, results, partial(display.say, experiment.name))
                    display.ended(experiment.name)
    finally:
        begun = [experiment for experiment in chosen if experiment.name in results.outcomes]
        console.print(table(begun, results))
        console.print(took(begun, results), highlight=False)
        _write(known, results)
        console.print(f"Report: {results.folder / 'index.html'}", markup=False, soft_wrap=True)
    return results


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _expected(results: Results) -> dict[str, float]:
    """Seconds of the chosen experiments, less those of the parts that are there; the mean where nothing is known."""
    usual = usual_seconds(results.quick)
    mean = sum(usual.values()) / max(len(usual), 1)
    spent = {name: outcome.seconds for name, outcome in results.outcomes.items()}
    return {name: max(usual.get(name, mean) - spent.get(name, 0.0), 1.0) for name in results.chosen}


def _write(experiments: Sequence[Experiment], results: Results) -> None:
    """The report in its four forms, with what other processes have measured meanwhile."""
    for path in (results.folder / "experiments").glob("*.json"):
        if path.stem not in results.chosen:
            results.load(path.stem)
    known = [experiment for experiment in experiments if experiment.name in results.outcomes]
    outcomes = {experiment.name: results.outcomes[experiment.name].as_dict() for experiment in known}
    summary = summarised(known, results)
    draw_verdicts(known, results)
    write_json(results.folder / "summary.json", summary)
    write_json(results.folder / "results.json", {**summary, "experiments": outcomes})
    write_whole(results.folder / "report.md", markdown(known, results))
    title = "What the papers claim, measured again"
    write_page(results.folder / "index.html", title, lead(known, results), sections(known, results))
