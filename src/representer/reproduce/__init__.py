"""The papers' experiments, measured again: ``python -m representer.reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from representer.page import write_page
from representer.progress import progress_bar
from representer.reproduce import (
    bohn,
    hsu,
    hsu_mnist,
    hsu_objectives,
    hsu_toys,
    laforgue,
    laforgue_molecules,
    tables,
)
from representer.reproduce.report import lead, markdown, sections, table
from representer.reproduce.runner import Claim, Experiment, Measurements, Results, Run, run_experiment

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Measurements", "Results", "Run", "reproduce", "select"]

EXPERIMENTS: tuple[Experiment, ...] = (
    *bohn.EXPERIMENTS,
    *laforgue.EXPERIMENTS,
    *laforgue_molecules.EXPERIMENTS,
    *hsu.EXPERIMENTS,
    *hsu_toys.EXPERIMENTS,
    *hsu_mnist.EXPERIMENTS,
    *hsu_objectives.EXPERIMENTS,
    *tables.EXPERIMENTS,
)


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
    console: Console | None = None,
    experiments: Sequence[Experiment] = EXPERIMENTS,
) -> Results:
    """Run experiments; write ``results.json``, ``index.html``, ``report.md`` and figures; print a table of verdicts.

    Parameters
    ----------
    names : sequence of str, default=("all",)
        Experiments or groups of them.
    out : path, default="reproduce_output"
        The folder. What was measured there before is kept, so that an interrupted run continues.
    quick : bool, default=False
        Fewer repeats and restarts.
    data : path or None, default=None
        The folder of the data files; None is what the environment variable REPRESENTER_DATA names.
    fresh : bool, default=False
        Forget what was measured before.
    redo : str, default=""
        Measure parts again of which ``case | method | repeat`` contains this text.
    console : rich.console.Console or None, default=None
        Where to print.
    experiments : sequence of Experiment, default=EXPERIMENTS
        Those there are.

    Returns
    -------
    results : Results
        All outcomes by name.
    """
    console = console or Console()
    chosen = select(names, experiments)
    results = Results(out, quick=quick, fresh=fresh, redo=redo, data=data)
    done: list[Experiment] = []
    try:
        with progress_bar(console) as progress:
            bar = progress.add_task("", total=len(chosen))
            for experiment in chosen:
                done.append(experiment)
                outcome = run_experiment(
                    experiment, results, lambda text: progress.update(bar, description=text)
                )
                progress.advance(bar)
                console.print(
                    f"{experiment.name}: {outcome.verdict}, {outcome.seconds:.0f} s", highlight=False
                )
    finally:
        known = [experiment for experiment in experiments if experiment.name in results.outcomes]
        (results.folder / "report.md").write_text(markdown(known, results), encoding="utf-8")
        report = results.folder / "index.html"
        write_page(report, "What the papers claim, measured again", lead(results), sections(known, results))
        console.print(table(done, results), f"Report: {report}")
    return results
