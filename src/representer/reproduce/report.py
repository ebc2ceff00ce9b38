"""What a run says: a Markdown report with figures, and a table on the screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.table import Table

from representer.reproduce.runner import Experiment, Outcome, Results, machine, summary

STYLES = {"reached": "green", "ordering kept": "yellow", "not reached": "red", "failed": "bold red"}


def table(experiments: Sequence[Experiment], results: Results) -> Table:
    """The verdicts as a table for the screen.

    Parameters
    ----------
    experiments : sequence of Experiment
        The rows.
    results : Results
        What came out.

    Returns
    -------
    table : rich.table.Table
        To be printed on a ``rich`` console.
    """
    page = Table(title="quick run" if results.quick else "full run", show_lines=True)
    for heading in ("experiment", "claim", "measured", "verdict"):
        page.add_column(heading, overflow="fold")
    page.add_column("seconds", justify="right")
    for experiment in experiments:
        outcome = results.outcomes[experiment.name]
        name, seconds = f"{experiment.name}\n{experiment.place}", f"{outcome.seconds:.0f}"
        for claim in outcome.claims:
            verdict = f"[{STYLES[claim['verdict']]}]{claim['verdict']}[/]"
            page.add_row(name, claim["claim"], claim["measured"], verdict, seconds)
            name = seconds = ""
        if not outcome.claims:
            style = STYLES.get(outcome.status, "dim")
            page.add_row(name, outcome.reason, "", f"[{style}]{outcome.status}[/]", seconds)
    return page


def markdown(experiments: Sequence[Experiment], results: Results) -> str:
    """The whole report as Markdown.

    Parameters
    ----------
    experiments : sequence of Experiment
        The sections.
    results : Results
        What came out.

    Returns
    -------
    page : str
        Its figures are named relative to the folder of the results.
    """
    where = ", ".join(f"{name} {value}" for name, value in machine().items())
    overview = _grid(
        ("experiment", "where", "verdict", "seconds"),
        (
            (
                e.name,
                f"{e.paper}, {e.place}",
                results.outcomes[e.name].verdict,
                f"{results.outcomes[e.name].seconds:.0f}",
            )
            for e in experiments
        ),
    )
    kind = "A quick run: fewer repeats and restarts than the papers." if results.quick else "A full run."
    sections = (_section(experiment, results.outcomes[experiment.name]) for experiment in experiments)
    return "\n\n".join([f"# Reproduction\n\n{kind} Measured with {where}.", overview, *sections]) + "\n"


def _section(experiment: Experiment, outcome: Outcome) -> str:
    parts = [f"## {experiment.name}: {experiment.place}", f"*{experiment.paper}.* {experiment.protocol}"]
    if experiment.data:
        parts.append(
            "Data: " + "; ".join(f"`{source.file}` ({source.origin})" for source in experiment.data) + "."
        )
    if outcome.status != "finished":
        parts.append(f"**{outcome.status}**: {outcome.reason}")
    if outcome.claims:
        rows = ((claim["claim"], claim["measured"], claim["verdict"]) for claim in outcome.claims)
        parts.append(_grid(("claim", "measured", "verdict"), rows))
    if outcome.parts:
        parts.append(_measured(experiment, outcome))
        parts += _warned(outcome)
    parts += [f"![{experiment.place}: {path}]({path})" for path in outcome.figures]
    return "\n\n".join(parts)


def _measured(experiment: Experiment, outcome: Outcome) -> str:
    """Every method on every case: each measure as mean ± spread, and the mean seconds of a repeat."""
    measurements = outcome.measurements()
    measures = list(dict.fromkeys(measure for row in measurements.values() for measure in row))
    rows = []
    for (case, method), row in measurements.items():
        times = [
            part["seconds"]
            for part in outcome.parts.values()
            if (part["case"], part["method"]) == (case, method)
        ]
        cells = [_cell(row[measure], experiment.spread) if measure in row else "" for measure in measures]
        rows.append((case, method, *cells, str(len(times)), f"{sum(times) / len(times):.2g}"))
    headings = ("case", "method", *measures, "repeats", "seconds each")
    return f"Mean ± {experiment.spread}:\n\n{_grid(headings, rows)}"


def _warned(outcome: Outcome) -> list[str]:
    """How many parts warned, of what: numbers in the messages differ and are left out."""
    kinds = Counter(
        kind
        for part in outcome.parts.values()
        for kind in {re.sub(r"[-+]?\d[\d.e+-]*", "…", message) for message in part["warnings"]}
    )
    return [f"{count} of {len(outcome.parts)} parts warned: {kind}" for kind, count in kinds.items()]


def _cell(values: Sequence[float], spread: str) -> str:
    found = summary(values)
    return f"{found['mean']:.4g}" + (f" ± {found[spread]:.2g}" if found[spread] is not None else "")


def _grid(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
