"""The measured tables of docs/measured.md, written from docs/measured/*.json.

``python docs/measured.py`` writes the tables. With ``--bench FILE …`` (of ``python -m benchmarks --out FILE``) and
``--reproductions FOLDER …`` (of ``python -m papers --out FOLDER``) it takes new measurements first. A test
compares what is written with what was measured.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from papers import EXPERIMENTS  # noqa: E402
from papers.claims import reason  # noqa: E402
from papers.findings import findings, origin, tally_in_words  # noqa: E402

BENCH, REPRODUCTIONS = HERE / "measured" / "bench.json", HERE / "measured" / "reproductions.json"
PAGE = HERE / "measured.md"
CHART = HERE / "_static" / "verdicts.svg"  # of README
SUBJECTS = [path.stem.removeprefix("bench_") for path in sorted((HERE.parent / "benchmarks").glob("bench_*.py"))]
UNFINISHED = ("not run", "interrupted", "failed")
LONGEST = 140  # characters of a claim in the overview
SMALL = 0.1  # seconds below this are shown in milliseconds, ratios with more digits


# --- new measurements ------------------------------------------------------------------------------------------------


def take_bench(files: Sequence[Path]) -> dict[str, Any]:
    """What ``python -m benchmarks --out FILE`` wrote: of each subject the last file that has it counts.

    Where the machine or its threads were not those of the first file, the note of a row says so.
    """
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    subjects: dict[str, list[dict[str, Any]]] = {}
    for file, record in zip(files, records, strict=True):
        if record.get("scale", 1) != 1:
            raise ValueError(f"{file} holds a quick run; only full runs are shown.")
        if record.get("interrupted"):
            raise ValueError(f"{file} holds an interrupted run; only whole runs are shown.")
        usual = records[0]["machine"]
        other = [f"{fact} {value}" for fact, value in record["machine"].items() if value != usual.get(fact)]
        for subject, rows in by_subject(record).items():
            subjects[subject] = [{**row, "note": "; ".join(filter(None, (row["note"], *other)))} for row in rows]
    return {**records[0], "rows": [row for subject in sorted(subjects) for row in subjects[subject]]}


def take_reproductions(folders: Sequence[Path]) -> dict[str, Any]:
    """What ``python -m papers --out FOLDER`` wrote: the last folder that finished an experiment counts."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        record = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        if record["quick"]:
            raise ValueError(f"{folder} holds a quick run; only full runs are shown.")
        for entry in record["experiments"]:
            if entry["verdict"] not in UNFINISHED or entry["name"] not in found:
                found[entry["name"]] = entry
    for experiment in EXPERIMENTS:
        words = {name: getattr(experiment, name) for name in ("name", "paper", "place", "protocol")}
        nothing = {"verdict": "not run", "reason": "", "seconds": 0.0, "claims": [], "rows": []}
        found.setdefault(experiment.name, {**words, **nothing})
    return {**record, "experiments": [found[experiment.name] for experiment in EXPERIMENTS]}


def stored(record: dict[str, Any]) -> str:
    """JSON with one line for each row or experiment, so that a change shows which ones were measured again."""

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    entries = [
        f'"{key}": [\n' + ",\n".join(map(text, value)) + "\n]" if isinstance(value, list) else f'"{key}": {text(value)}'
        for key, value in record.items()
    ]
    return "{\n" + ",\n".join(entries) + "\n}\n"


# --- Markdown --------------------------------------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars within cells are escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def amount(value: float | None, unit: str) -> str:
    """A number with its unit, in milliseconds if that is easier to read."""
    if value is None:
        return ""
    if unit == "s" and value < SMALL:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} {unit}".rstrip()


def ratio(row: dict[str, Any]) -> str:
    """Ours over the reference; of a fact, which has no reference, the fact."""
    if row["ratio"] is None:
        return amount(row["ours"], row["unit"])
    return f"{row['ratio']:.2f}" if row["ratio"] >= SMALL else f"{row['ratio']:.3g}"


def speed_goals(bench: dict[str, Any], subjects: Sequence[str] = ()) -> str:
    """One row for each subject: how many goals were met, and the first that was missed, or else the first."""
    rows = []
    for subject, found in by_subject(bench).items():
        goals = [row for row in found if row["goal"]]
        if not goals:
            continue
        met = sum(row["verdict"] == "met" for row in goals)
        telling = next((row for row in goals if row["verdict"] != "met"), goals[0])
        what = ", ".join(filter(None, (telling["what"], telling["size"])))
        rows.append((subject, f"{met} of {len(goals)}", what, ratio(telling), telling["goal"], telling["verdict"]))
    rows += [(subject, "not measured", "", "", "", "") for subject in unmeasured(bench, subjects)]
    headings = (
        "subject",
        "goals met",
        "the first that was missed, or else the first",
        "ratio",
        "goal",
        "verdict",
    )
    return table(headings, rows)


def unmeasured(bench: dict[str, Any], subjects: Sequence[str]) -> list[str]:
    """The subjects without a row."""
    measured = {row["subject"] for row in bench["rows"]}
    return [subject.replace("_", " ") for subject in subjects if subject not in measured]


def by_subject(bench: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each subject."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in bench["rows"]:
        found.setdefault(row["subject"].replace("_", " "), []).append(row)
    return found


def authors(paper: str) -> str:
    """The first author of a paper, or nothing if it is none."""
    names = paper.partition(":")[0].split(",")
    return f"{names[0]} et al." if len(names) > 1 else ""


def groups(reproductions: dict[str, Any]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """The experiments by paper and table or figure, and there by set; what belongs to no paper by its title."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for experiment in reproductions["experiments"]:
        place, _, subset = re.sub("[:,] *", "|", experiment["place"], count=1).partition("|")
        if not (paper := authors(experiment["paper"])):
            paper, place, subset = experiment["paper"], "", place
        found.setdefault((paper, place[:1].upper() + place[1:]), {})[subset.removeprefix("on ")] = experiment
    return found


def verdicts(reproductions: dict[str, Any]) -> str:
    """One row for each table or figure: how many claims were reached, and the first that was not, or the first."""
    rows, previous = [], ""
    for (paper, place), experiments in groups(reproductions).items():
        claims = [(subset, claim) for subset, e in experiments.items() for claim in e["claims"]]
        missed = [(subset, claim) for subset, claim in claims if claim["verdict"] != "reached"]
        count = [f"{len(claims) - len(missed)} of {len(claims)}"] if claims else []
        unfinished = dict.fromkeys(e["verdict"] for e in experiments.values() if e["verdict"] in UNFINISHED)
        text = ""
        for subset, claim in [*missed, *claims][:1]:
            text = f"{claim['claim']}: {claim['measured']}"
            if len(experiments) > 1 and not text.startswith(subset):
                text = f"{subset}: {text}"
        cells = (place, ", ".join([*count, *unfinished]), textwrap.shorten(text, LONGEST, placeholder=" …"))
        rows.append(("" if paper == previous else paper, *cells))
        previous = paper
    headings = (
        "paper",
        "where",
        "claims reached",
        "the first that was not, or else the first, and what was measured",
    )
    return table(headings, rows)


def not_reached(reproductions: dict[str, Any]) -> str:
    """Every claim that was not reached, what was measured, and why: because of the paper, the protocol or the data."""
    rows = [
        (experiment["name"], claim["claim"], claim["measured"], reason(experiment["name"], claim))
        for experiment in reproductions["experiments"]
        for claim in experiment["claims"]
        if claim["verdict"] != "reached"
    ]
    return table(("experiment", "claim", "measured", "why"), rows)


def verdict_chart(reproductions: dict[str, Any]) -> str:
    """A bar for each paper, as SVG: the share of its claims that were reached, readable on a light or dark page.

    What experiments beyond the papers and our defaults should reach has two bars of its own.
    """
    papers: dict[str, list[bool]] = {}
    for experiment in reproductions["experiments"]:
        names = {"papers": authors(experiment["paper"]), "beyond": "Beyond the papers", "defaults": "Our defaults"}
        for claim in experiment["claims"]:
            name = names[origin(experiment["paper"], experiment["place"], claim["claim"])]
            papers.setdefault(name, []).append(claim["verdict"] == "reached")
    papers |= {name: papers.pop(name) for name in ("Beyond the papers", "Our defaults") if name in papers}
    bars = [(paper, sum(judged), len(judged)) for paper, judged in papers.items() if judged]
    left, width, step = 170, 400, 30
    rows = [
        f'<text x="{left - 12}" y="{step * i + 26}" text-anchor="end">{paper}</text>'
        f'<rect class="all" x="{left}" y="{step * i + 12}" width="{width}" height="18" rx="3"/>'
        f'<rect class="reached" x="{left}" y="{step * i + 12}" width="{width * reached / n:.1f}" height="18" rx="3"/>'
        f'<text x="{left + width + 12}" y="{step * i + 26}">{reached} of {n}</text>'
        for i, (paper, reached, n) in enumerate(bars)
    ]
    label = "Claims of each paper that were reached: " + ", ".join(f"{p} {k} of {n}" for p, k, n in bars)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {step * len(bars) + 20}" role="img" '
            f'aria-label="{label}">',
            "<style>text{font:14px system-ui,sans-serif;fill:#1f2933}.all{fill:#d3dce4}.reached{fill:#1f6f8b}"
            "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.all{fill:#3e4c59}.reached{fill:#4fb3d1}}</style>",
            *rows,
            "</svg>",
            "",
        ]
    )


def measured_rows(experiment: dict[str, Any]) -> str:
    """Every method on every case, each measure as mean ± standard deviation."""
    measures = list(dict.fromkeys(row["measure"] for row in experiment["rows"]))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    repeats: dict[tuple[str, str], int] = {}
    for row in experiment["rows"]:
        spread = "" if row["sd"] is None else f" ± {row['sd']:.2g}"
        key = row["case"], row["method"]
        cells.setdefault(key, {})[row["measure"]] = f"{row['mean']:.4g}{spread}"
        repeats[key] = row["n"]
    lines = (
        (*key, *(found.get(measure, "") for measure in measures), str(repeats[key])) for key, found in cells.items()
    )
    return table(("case", "method", *measures, "repeats"), lines)


def experiment_section(experiment: dict[str, Any]) -> str:
    """What was done, the claims with their verdicts, and every number."""
    parts = [
        f"### {experiment['name']}: {experiment['place']}",
        experiment["protocol"],
        f"**{experiment['verdict']}**, {experiment['seconds']:.0f} s. {experiment['reason']}".rstrip(),
    ]
    if experiment["claims"]:
        rows = (
            (claim["claim"], claim["measured"], claim["verdict"], reason(experiment["name"], claim))
            for claim in experiment["claims"]
        )
        parts.append(table(("claim", "measured", "verdict", "why not"), rows))
    if experiment["rows"]:
        parts.append(measured_rows(experiment))
    return "\n\n".join(parts)


def machine(record: dict[str, Any]) -> str:
    """Version and machine in words."""
    return f"representer {record['version']}, " + ", ".join(f"{k} {v}" for k, v in record["machine"].items())


def duration(reproductions: dict[str, Any]) -> str:
    """What the experiments took in hours, if all of them recorded what they took of processors."""
    experiments = reproductions["experiments"]
    if any(found.get("cpu_seconds") is None for found in experiments):
        return ""
    wall, cpu = (sum(found[key] for found in experiments) / 3600 for key in ("seconds", "cpu_seconds"))
    return f" The experiments add up to {wall:.1f} h of wall clock, {cpu:.1f} h of processor time."


def measured_page(bench: dict[str, Any], reproductions: dict[str, Any], subjects: Sequence[str] = ()) -> str:
    """All of docs/measured.md."""
    judged = [row for row in bench["rows"] if row["goal"]]
    met = sum(row["verdict"] == "met" for row in judged)
    parts = [
        "# Measured",
        "This page has every measured number of the speed goals and of the papers' experiments. `docs/measured.py` "
        "writes it from `docs/measured/*.json`; nobody edits it by hand. These commands measure everything again (an "
        "hour for the timings, some hours for the papers; `REPRESENTER_DATA` names the folder of the data sets) and "
        "write the page:",
        "```bash\n"
        "OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks --out bench_output/bench.json\n"
        ".venv/bin/python -m papers all --out reproduce_output/full\n"
        ".venv/bin/python docs/measured.py --bench bench_output/bench.json --reproductions reproduce_output/full\n"
        "```",
        "## Speed",
        f"{met} of {len(judged)} goals met. {machine(bench)}. Times are medians of runs in turns; where the "
        "ratio is below 1, ours is faster. A row without a goal is shown for information.",
        speed_goals(bench, subjects),
    ]
    for subject, found in by_subject(bench).items():
        rows = (
            (
                row["what"],
                row["size"],
                amount(row["ours"], row["unit"]),
                amount(row["reference"], row["unit"]),
                "" if row["ratio"] is None else ratio(row),
                row["goal"],
                "; ".join(filter(None, (row["verdict"], row["note"]))),
            )
            for row in found
        )
        headings = ("what", "size", "ours", "reference", "ratio", "goal", "verdict")
        parts += [f"### {subject[0].upper()}{subject[1:]}", table(headings, rows)]
    if missing := unmeasured(bench, subjects):
        parts.append(f"Not measured: {', '.join(missing)}.")
    parts += [
        "## Papers: overview",
        f"Reached: {tally_in_words(reproductions['experiments'])}. {machine(reproductions)}.{duration(reproductions)} "
        "[Reproductions](reproductions.md) says what the numbers mean.",
        *(f"{author} et al.: {text}" for author, text in findings(reproductions["experiments"]).items()),
        verdicts(reproductions),
        "## Papers: claims that were not reached",
        not_reached(reproductions),
    ]
    for paper in dict.fromkeys(experiment["paper"] for experiment in reproductions["experiments"]):
        parts.append(f"## {paper}")
        parts.append("Numbers are means ± standard deviations over repeats.")
        parts += [
            experiment_section(experiment)
            for experiment in reproductions["experiments"]
            if experiment["paper"] == paper
        ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """What docs/measured.md and the chart of README should be."""
    bench, reproductions = (json.loads(path.read_text(encoding="utf-8")) for path in (BENCH, REPRODUCTIONS))
    return {PAGE: measured_page(bench, reproductions, SUBJECTS), CHART: verdict_chart(reproductions)}


def main() -> None:
    """Take new measurements if there are any, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--bench", type=Path, nargs="+", metavar="FILE", help="what `python -m benchmarks --out FILE` wrote"
    )
    parser.add_argument("--reproductions", type=Path, nargs="+", metavar="FOLDER", help="of full runs")
    arguments = parser.parse_args()
    taken = {}
    if arguments.bench:
        taken[BENCH] = take_bench(arguments.bench)
    if arguments.reproductions:
        taken[REPRODUCTIONS] = take_reproductions(arguments.reproductions)
    for path, record in taken.items():
        path.write_text(stored(record), encoding="utf-8")
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
