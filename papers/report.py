"""What a run says: a report with figures, as a page and as Markdown, and a table on the screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from typing import Any

from rich.markup import escape
from rich.table import Table

from papers.claims import reason
from papers.clock import in_words
from papers.findings import ORIGINS, findings, origin, tally_in_words
from papers.results import Outcome, Results, machine, summary
from papers.runner import Experiment
from representer import plotting
from representer.datasets.files import write_whole
from runs.page import Picture, Section
from runs.page import Table as Grid

CHART = "figures/verdicts.png"
STYLES = {"reached": "green", "ordering kept": "yellow", "not reached": "red", "failed": "bold red"}
ALT = "A bar for each paper, for what is beyond the papers and for our defaults: how many claims were reached."
MARKS = {"reached": "good", "ordering kept": "fair", "not reached": "bad", "failed": "bad"}


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
            page.add_row(name, escape(claim["claim"]), escape(claim["measured"]), verdict, seconds)
            name = seconds = ""
        if not outcome.claims:
            style = STYLES.get(outcome.status, "dim")
            page.add_row(name, escape(outcome.reason), "", f"[{style}]{outcome.status}[/]", seconds)
    return page


def sections(experiments: Sequence[Experiment], results: Results) -> list[Section]:
    """The report: what was found, an overview, then a section for each experiment.

    Parameters
    ----------
    experiments : sequence of Experiment
        The sections.
    results : Results
        What came out.

    Returns
    -------
    report : list of Section
        For ``write_page`` and ``markdown``; pictures are read from the folder of the results.
    """
    papers = groupby(experiments, lambda experiment: experiment.paper)
    overview = Section("Overview", tables=[_verdicts(paper, list(found), results) for paper, found in papers])
    chart = [Picture.at(results.folder, CHART, ALT)] if (results.folder / CHART).is_file() else []
    first = Section("Found", _found(experiments, results), pictures=chart)
    return [first, overview, *(_section(e, results.outcomes[e.name], results) for e in experiments)]


def _found(experiments: Sequence[Experiment], results: Results) -> list[str]:
    """A sentence for each paper, or how many of its claims were reached if not all that it names was measured."""
    summaries = summarised(experiments, results)["experiments"]
    sentences, text = findings(summaries), []
    for authors, reached, kinds in verdict_counts(experiments, results):
        first = authors.partition(",")[0]
        if authors not in ORIGINS.values():
            counts = _sentence(authors, reached, kinds)
            text.append(f"{first} et al.: {sentences[first]}" if first in sentences else counts)
    return [*text, f"Reached: {tally_in_words(summaries) or 'no claim was judged'}."]


def verdict_counts(experiments: Sequence[Experiment], results: Results) -> list[tuple[str, int, Counter[str]]]:
    """Of each paper: its authors, how many of its claims were reached, and why how many others were not.

    Experiments beyond the papers, and goals for our defaults, are counted after them.

    Parameters
    ----------
    experiments : sequence of Experiment
        Those that count.
    results : Results
        What came out.

    Returns
    -------
    counts : list of tuple
        Papers without a judged claim are left out.
    """
    judged: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for experiment in experiments:
        for claim in results.outcomes[experiment.name].claims:
            kind = origin(experiment.paper, experiment.place, claim["claim"])
            group = experiment.paper.partition(":")[0] if kind == "papers" else ORIGINS[kind]
            judged.setdefault(group, []).append((experiment.name, claim))
    judged |= {group: judged.pop(group) for group in ORIGINS.values() if group in judged}
    found = []
    for group, claims in judged.items():
        missed = [(name, claim) for name, claim in claims if claim["verdict"] != "reached"]
        kinds = Counter(reason(name, claim).partition(":")[0] for name, claim in missed)
        found.append((group, len(claims) - len(missed), kinds))
    return found


def _sentence(authors: str, reached: int, kinds: Counter[str]) -> str:
    n = reached + kinds.total()
    text = f"{authors}: {reached} of {n} claims are reached"
    why = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
    return f"{text}; why the others are not: {why}." if kinds else f"{text}."


def draw_verdicts(experiments: Sequence[Experiment], results: Results) -> None:
    """Write the chart of the first section: a bar for each paper, the share of its claims that were reached.

    Parameters
    ----------
    experiments : sequence of Experiment
        Those that count.
    results : Results
        What came out; the chart goes to its folder.
    """
    counts = verdict_counts(experiments, results)[::-1]
    figure, axes = plotting.panels(1, 1, size=4.5)
    names, reached, totals = zip(*((a, r, r + k.total()) for a, r, k in counts), strict=True) if counts else ((),) * 3
    axes[0, 0].barh(names, totals, color="#d3dce4", label="not reached")
    axes[0, 0].barh(names, reached, color="#1f6f8b", label="reached")
    axes[0, 0].set(xlabel="claims")
    axes[0, 0].legend()
    write_whole(results.folder / CHART, Picture.of(figure, ALT).png)


def lead(experiments: Sequence[Experiment], results: Results) -> str:
    """What kind of run it was, where, and how long it took.

    Parameters
    ----------
    experiments : sequence of Experiment
        Those that count.
    results : Results
        What came out.

    Returns
    -------
    text : str
        A paragraph.
    """
    kind = "A quick run: fewer repeats and restarts than the papers." if results.quick else "A full run."
    where = ", ".join(f"{name} {value}" for name, value in machine().items())
    return f"{kind} Measured with {where}. {took(experiments, results)}"


def took(experiments: Sequence[Experiment], results: Results) -> str:
    """How long the measurements took: by the wall clock, and of processors.

    Parameters
    ----------
    experiments : sequence of Experiment
        Those that count.
    results : Results
        What came out.

    Returns
    -------
    text : str
        A sentence.
    """
    begun = [outcome for e in experiments if (outcome := results.outcomes[e.name]).parts]
    pairs = [(o.seconds, o.cpu_seconds) for o in begun if o.cpu_seconds is not None]
    text = f"The experiments add up to {in_words(sum(outcome.seconds for outcome in begun))} of wall clock"
    if not pairs:
        return f"{text}."
    wall, cpu = (in_words(sum(seconds)) for seconds in zip(*pairs, strict=True))
    if len(pairs) < len(begun):  # older versions measured parts
        text += f"; the {len(pairs)} of {len(begun)} that recorded processor time to {wall} of wall clock"
    return f"{text}, {cpu} of processor time."


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
    parts = [f"# Reproduction\n\n{lead(experiments, results)}"]
    for section in sections(experiments, results):
        parts += [f"## {section.title}", *section.text]
        parts += [_grid(table) for table in section.tables]
        parts += [f"![{picture.alt}]({picture.file})" for picture in section.pictures]
    return "\n\n".join(parts) + "\n"


def summarised(experiments: Sequence[Experiment], results: Results) -> dict[str, Any]:
    """The report as one record without the single parts, for JSON.

    Parameters
    ----------
    experiments : sequence of Experiment
        Its entries.
    results : Results
        What came out.

    Returns
    -------
    record : dict
        The version, the machine, whether it was a quick run, and the experiments with their verdicts, claims and rows.
    """
    return {
        "version": version("representer"),
        "machine": machine(),
        "quick": results.quick,
        "experiments": [_summarised(e, results.outcomes[e.name]) for e in experiments],
    }


def _summarised(experiment: Experiment, outcome: Outcome) -> dict[str, Any]:
    short = {"standard deviation": "sd", "standard error": "se"}
    rows = [{short.get(key, key): value for key, value in row.items()} for row in outcome.as_dict()["measurements"]]
    return {
        "name": experiment.name,
        "paper": experiment.paper,
        "place": experiment.place,
        "protocol": experiment.protocol,
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "seconds": round(outcome.seconds, 1),
        "cpu_seconds": None if outcome.cpu_seconds is None else round(outcome.cpu_seconds, 1),
        "versions": outcome.versions,
        "claims": outcome.claims,
        "rows": rows,
    }


def _verdicts(paper: str, experiments: Sequence[Experiment], results: Results) -> Grid:
    """The experiments of one paper."""
    outcomes = [results.outcomes[experiment.name] for experiment in experiments]
    rows = [(e.name, e.place, o.verdict, f"{o.seconds:.0f}") for e, o in zip(experiments, outcomes, strict=True)]
    return Grid(("experiment", "where", "verdict", "seconds"), rows, paper, MARKS)


def _section(experiment: Experiment, outcome: Outcome, results: Results) -> Section:
    text = [f"{experiment.paper}. {experiment.protocol}"]
    if experiment.data:
        files = "; ".join(f"`{source.file}` ({source.origin})" for source in experiment.data)
        text.append(f"Data: {files}.")
    if outcome.status != "finished":
        text.append(f"{outcome.status}: {outcome.reason}")
    if set(outcome.versions) - {version("representer")}:
        text.append(f"Parts were measured with representer {', '.join(outcome.versions)}.")
    tables = []
    if outcome.claims:
        rows = [
            (claim["claim"], claim["measured"], claim["verdict"], reason(experiment.name, claim))
            for claim in outcome.claims
        ]
        tables.append(Grid(("claim", "measured", "verdict", "why not"), rows, marks=MARKS))
    if outcome.parts:
        tables.append(_measured(experiment, outcome))
        text += _warned(outcome)
    pictures = [
        Picture.at(results.folder, path, f"{experiment.name}, {experiment.place}. {shows}".rstrip())
        for path, shows in outcome.figures.items()
        if (results.folder / path).is_file()  # some may have been deleted
    ]
    return Section(f"{experiment.name}: {experiment.place}", text, tables, pictures, group=experiment.paper)


def _measured(experiment: Experiment, outcome: Outcome) -> Grid:
    """Every method on every case: each measure as mean ± spread, and the mean seconds of a repeat."""
    measurements = outcome.measurements()
    measures = list(dict.fromkeys(measure for row in measurements.values() for measure in row))
    rows = []
    for (case, method), row in measurements.items():
        times = [part["seconds"] for part in outcome.parts.values() if (part["case"], part["method"]) == (case, method)]
        cells = [_cell(row[measure], experiment.spread) if measure in row else "" for measure in measures]
        each = sum(times) / len(times)
        rows.append((case, method, *cells, str(len(times)), f"{each:.2g}" if each < 10 else f"{each:.0f}"))
    headings = ("case", "method", *measures, "repeats", "seconds each")
    return Grid(headings, rows, f"Mean ± {experiment.spread}")


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


def _grid(table: Grid) -> str:
    lines = [table.headings, ["---"] * len(table.headings), *table.rows]
    rows = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return "\n".join([*([f"{table.caption}:", ""] if table.caption else []), *rows])
