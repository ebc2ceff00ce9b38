"""The reproduction runner: parts are remembered, claims are judged, nothing fails silently."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from papers import (
    EXPERIMENTS,
    Claim,
    Experiment,
    Results,
    Run,
    reproduce,
    select,
)
from papers.claims import lower, not_worse, reason, reasons
from papers.report import markdown, took
from papers.results import Measurements
from papers.runner import run_experiment
from representer import __version__, plotting
from representer.datasets import MissingDataError, Source


def made(function: Callable[[Run], None], name: str = "toy-one", claims: tuple[Claim, ...] = ()) -> Experiment:
    source = Source("toy.csv", "A toy.", "nowhere")
    return Experiment(name, "A paper", "Table 1", "Two numbers.", claims, function, (source,))


def silent() -> Console:
    return Console(file=io.StringIO(), width=150)


# --- claims ----------------------------------------------------------------------------------------------------------

MEASURED = Measurements(
    {
        ("a", "ours"): {"error": [0.1, 0.3]},
        ("a", "theirs"): {"error": [0.5, 0.5]},
        ("a", "near"): {"error": [0.1, 0.28]},
        ("a", "nearer"): {"error": [0.09, 0.29]},
    }
)


@pytest.mark.parametrize(
    ("method", "than", "factor", "verdict"),
    [
        ("ours", "theirs", 1.0, "reached"),
        ("ours", "theirs", 0.4, "reached"),
        ("ours", "theirs", 0.39, "ordering kept"),
        ("theirs", "ours", 1.0, "not reached"),
        ("ours", "ours", 1.0, "not reached"),
    ],
)
def test_lower(method: str, than: str, factor: float, verdict: str) -> None:
    found, numbers = lower("text", "error", "a", method, than, factor).judge(MEASURED)
    assert found == verdict
    assert "against" in numbers


@pytest.mark.parametrize(
    ("rivals", "verdict", "word"),
    [
        (["theirs"], "reached", "better"),
        (["theirs", "near"], "reached", "within one standard error"),  # +0.01 ± 0.01
        (["theirs", "nearer"], "not reached", "worse"),  # +0.01 ± 0
    ],
)
def test_not_worse_by_the_paired_standard_error(rivals: list[str], verdict: str, word: str) -> None:
    found, numbers = not_worse("text", "error", "a", "ours", rivals).judge(MEASURED)
    assert found == verdict
    assert word in numbers and rivals[-1] in numbers


def test_a_claim_without_a_reason_of_its_own_is_unexplained() -> None:
    name, ((why, (text, *_)), *_) = next((name, list(given.items())) for name, given in reasons().items())
    assert reason(name, {"claim": text, "verdict": "not reached"}) == why
    assert reason(name, {"claim": text, "verdict": "reached"}) == ""
    assert reason(name, {"claim": "another", "verdict": "not reached"}) == "unexplained"


# --- the runner ------------------------------------------------------------------------------------------------------


class Counting:
    """An experiment of three parts that counts its calls and can be interrupted."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.calls: list[int] = []
        self.stop_at = stop_at

    def __call__(self, run: Run) -> None:
        for seed in range(3):
            result = run.part("case | with bar", "method p = 1", seed, self.measure, seed)
            assert result["error"] == float(seed)
            assert np.array_equal(result["picture"], np.full(4, seed))
        figure, axes = plotting.panels(1, 1)
        plotting.surface_map(result["picture"], ax=axes[0, 0])
        run.figure("one", figure, "The last seed as a square.")

    def measure(self, seed: int) -> dict[str, Any]:
        if seed == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append(seed)
        return {"error": seed, "picture": np.full(4, seed)}


CASE = ("case | with bar", "method p = 1")


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    first, second = Counting(stop_at=2), Counting()
    with pytest.raises(KeyboardInterrupt):
        reproduce(["toy"], tmp_path, console=silent(), experiments=[made(first)])
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]["toy-one"]
    assert stored["status"] == "interrupted" and len(stored["parts"]) == 2
    assert {part["version"] for part in stored["parts"].values()} == {__version__}
    assert "continues" in (tmp_path / "report.md").read_text(encoding="utf-8")

    results = reproduce(["toy-one"], tmp_path, console=silent(), experiments=[made(second)])
    assert (first.calls, second.calls) == ([0, 1], [2])
    outcome = results.outcomes["toy-one"]
    assert outcome.status == outcome.verdict == "finished"
    assert outcome.measurements() == {CASE: {"error": [0.0, 1.0, 2.0]}}
    picture = tmp_path / next(iter(outcome.figures))
    assert picture.read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]["toy-one"]
    row = stored["measurements"][0]
    assert (row["mean"], row["standard deviation"], row["n"]) == (1.0, 1.0, 3)
    assert row["standard error"] == pytest.approx(1 / math.sqrt(3))

    third = Counting()
    reproduce(["all"], tmp_path, console=silent(), experiments=[made(third)])
    assert third.calls == []

    cut_off = sorted((tmp_path / "arrays" / "toy-one").glob("*.npz"))[1]
    cut_off.write_bytes(cut_off.read_bytes()[:50])
    fourth = Counting()
    reproduce(["all"], tmp_path, console=silent(), experiments=[made(fourth)])
    assert fourth.calls == [1]

    picture.unlink()  # the report of another experiment does without it
    other = dataclasses.replace(made(Counting()), name="toy-two")
    reproduce(["toy-two"], tmp_path, console=silent(), experiments=[made(third), other])
    assert "toy-one" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_what_to_measure_again_can_be_chosen(tmp_path: Path) -> None:
    def run(**options: Any) -> list[int]:
        counting = Counting()
        reproduce(["toy"], tmp_path, console=silent(), experiments=[made(counting)], **options)
        return counting.calls

    assert run() == [0, 1, 2]
    assert run(redo="p = 1 | 1") == [1]
    assert run(redo="another method") == []
    next((tmp_path / "arrays").rglob("*-2.npz")).unlink()  # the arrays of the last seed are lost
    assert run() == [2]
    assert run(fresh=True) == [0, 1, 2]
    with pytest.raises(ValueError, match="holds the results of a full run"):
        run(quick=True)
    assert run() == []  # the refusal has touched nothing
    assert run(quick=True, fresh=True) == [0, 1, 2]


def test_two_runs_into_one_folder_measure_every_part_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure(run: Run) -> None:
        def part(seed: int) -> dict[str, Any]:
            calls.append(seed)
            time.sleep(0.05)
            return {"error": float(seed), "curve": np.arange(1000.0)}

        for seed in range(5):
            run.part("case", "ours", seed, part, seed)

    experiments = [Experiment(f"toy-{k}", "A paper", "Table 1", "Toys.", (), measure) for k in range(3)]

    def reproduced(_: int) -> Results:
        return reproduce(["toy"], tmp_path, console=silent(), experiments=experiments)

    with ThreadPoolExecutor(3) as pool:
        for results in pool.map(reproduced, range(3)):
            assert {name: outcome.status for name, outcome in results.outcomes.items()} == {
                experiment.name: "finished" for experiment in experiments
            }
            assert all(len(outcome.parts) == 5 for outcome in results.outcomes.values())
    assert sorted(calls) == sorted([*range(5)] * 3)
    assert len(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]) == 3
    leftovers = [path for path in tmp_path.rglob(".*") if path.suffix != ".lock"]
    assert leftovers == []


def test_a_run_that_ends_later_reports_what_others_measured(tmp_path: Path) -> None:
    other = dataclasses.replace(made(Counting()), name="toy-two")

    def measure(run: Run) -> None:
        reproduce(["toy-two"], tmp_path, console=silent(), experiments=[other])
        run.part("case", "ours", 0, lambda: {"error": 0.0})

    first = dataclasses.replace(made(Counting()), function=measure)
    results = reproduce(["toy-one"], tmp_path, console=silent(), experiments=[first, other])
    assert set(results.outcomes) == {"toy-one", "toy-two"}
    assert "toy-two" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_runs_of_two_kinds_do_not_mix(tmp_path: Path) -> None:
    counting = Counting()

    def measure(run: Run) -> None:
        reproduce(["toy-two"], tmp_path, quick=True, console=silent(), experiments=[other])

    other = dataclasses.replace(made(counting), name="toy-two")
    first = dataclasses.replace(made(Counting()), function=measure)
    with pytest.raises(ValueError, match=r"holds the results of a quick run. Choose another folder"):
        reproduce(["toy"], tmp_path, console=silent(), experiments=[first, other])
    assert json.loads((tmp_path / "experiments" / "toy-two.json").read_text(encoding="utf-8"))["quick"] is True


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce(["toy"], tmp_path, console=silent(), experiments=[made(Counting())])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(path: Path, content: bytes) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    console = silent()
    with pytest.raises(OSError, match=rf"Nothing can be written to {tmp_path}.*: No space left on device. Free some"):
        reproduce(["toy"], tmp_path, redo="| 1", console=console, experiments=[made(Counting())])
    with pytest.raises(OSError, match=rf"Nothing can be written to {tmp_path}.*: No space left on device. Free some"):
        reproduce(["toy"], tmp_path, console=console, experiments=[made(Counting())])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_processor_seconds_are_those_of_the_process_and_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = dict.fromkeys(("user", "system", "children_user", "children_system", "elapsed"), 0.0)
    monkeypatch.setattr(os, "times", lambda: os.times_result(now.values()))
    monkeypatch.setattr(time, "perf_counter", lambda: now["elapsed"])

    def take(**seconds: float) -> dict[str, float]:
        now.update({name: now[name] + more for name, more in seconds.items()})
        return {"error": 0.0}

    def function(run: Run) -> None:
        run.part("case", "sleeps", 0, lambda: take(elapsed=4.0))
        run.part("case", "works", 0, lambda: take(elapsed=9.0, user=3.0, system=1.0))
        run.part("case", "children", 0, lambda: take(elapsed=9.0, children_user=5.0, children_system=2.0))

    console = silent()
    results = reproduce(["toy"], tmp_path, console=console, experiments=[made(function)])
    outcome = results.outcomes["toy-one"]
    spent = {part["method"]: part["cpu_seconds"] for part in outcome.parts.values()}
    assert spent == {"sleeps": 0.0, "works": 4.0, "children": 7.0} and outcome.cpu_seconds == 11.0
    assert outcome.parts["case | sleeps | 0"]["seconds"] == 4.0
    (entry,) = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["experiments"]
    assert entry["cpu_seconds"] == round(outcome.cpu_seconds, 1)
    for text in (
        (tmp_path / "report.md").read_text(encoding="utf-8"),
        (tmp_path / "index.html").read_text(encoding="utf-8"),
        console.file.getvalue(),  # type: ignore[attr-defined]
    ):
        assert f"of wall clock, {outcome.cpu_seconds:.0f} s of processor time." in text


def test_pictures_say_what_they_show_and_links_are_by_paper(tmp_path: Path) -> None:
    experiments = [made(Counting(), name) for name in ("toy-one", "toy-two")]
    reproduce(["all"], tmp_path, console=silent(), experiments=experiments)
    page, report = ((tmp_path / name).read_text(encoding="utf-8") for name in ("index.html", "report.md"))
    for name in ("toy-one", "toy-two"):
        alt = f"{name}, Table 1. The last seed as a square."
        assert f'alt="{alt}"' in page
        assert f"![{alt}](figures/{name}-one.png)" in report
    assert "<summary>A paper (2)</summary>" in page
    path = tmp_path / "experiments" / "toy-one.json"  # as older versions wrote it
    stored = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(stored | {"figures": list(stored["figures"])}), encoding="utf-8")
    reproduce(["toy-two"], tmp_path, console=silent(), experiments=experiments)
    assert 'alt="toy-one, Table 1."' in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_results_that_did_not_record_processor_seconds_are_read(tmp_path: Path) -> None:
    experiments = [made(Counting(), name) for name in ("toy-one", "toy-two")]
    reproduce(["all"], tmp_path, console=silent(), experiments=experiments)
    path = tmp_path / "experiments" / "toy-one.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    del stored["cpu_seconds"], stored["parts"]["case | with bar | method p = 1 | 1"]["cpu_seconds"]
    path.write_text(json.dumps(stored), encoding="utf-8")
    results = reproduce(["all"], tmp_path, console=silent(), experiments=experiments)
    assert results.outcomes["toy-one"].cpu_seconds is None
    assert results.outcomes["toy-two"].cpu_seconds is not None
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "the 1 of 2 that recorded processor time to" in page
    record = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]
    assert record["toy-one"]["cpu_seconds"] is None
    assert took(experiments[:1], results).endswith("of wall clock.")


def test_names_choose_experiments_and_groups() -> None:
    one, two, other = (made(lambda run: None, name) for name in ("toy-one", "toy-two", "other-one"))
    every = [one, two, other]
    assert select(["toy"], every) == [one, two]
    assert select(["other", "toy-two"], every) == [two, other]
    assert select(["all", "toy"], every) == every
    with pytest.raises(ValueError, match=r"No experiment is called 'one'; there are: all, other, other-one"):
        select(["toy", "one"], every)
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS)


def test_what_is_missing_or_fails_is_said_and_the_rest_runs(tmp_path: Path) -> None:
    def lacking(run: Run) -> None:
        raise MissingDataError("There is no toy.csv.")

    def failing(run: Run) -> None:
        run.part("case", "method", 0, lambda: {"error": 1 / 0})

    def fine(run: Run) -> None:
        assert run.data == "folder" and not run.quick
        run.part("case", "ours", 0, lambda: {"error": 0.5})
        run.part("case", "theirs", 0, lambda: {"error": 1.0})

    claims = (
        lower("half", "error", "case", "ours", "theirs", 0.5),
        lower("a third", "error", "case", "ours", "theirs", 1 / 3),
    )
    unjudged = lower("of nothing", "error", "elsewhere", "ours", "theirs")
    experiments = [
        made(lacking, "lacking"),
        made(failing, "failing"),
        made(fine, "fine", claims),
        made(fine, "unjudged", (unjudged,)),
    ]
    console = silent()
    results = reproduce(["all"], tmp_path, data="folder", console=console, experiments=experiments)
    verdicts = {name: outcome.verdict for name, outcome in results.outcomes.items()}
    assert verdicts == {
        "lacking": "not run",
        "failing": "failed",
        "fine": "ordering kept",
        "unjudged": "failed",
    }
    assert results.outcomes["lacking"].reason == "There is no toy.csv."
    assert "ZeroDivisionError" in results.outcomes["failing"].reason
    assert "test_papers.py:" in results.outcomes["failing"].reason
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in ("There is no toy.csv.", "ZeroDivisionError", "a third", "ordering kept", "0.5 against 1"):
        assert text in page
        assert text in " ".join(shown.split())
    assert "| case | ours | 0.5 | 1 |" in page
    assert "`toy.csv` (nowhere)" in page


def test_bars_in_a_report_do_not_break_its_tables(tmp_path: Path) -> None:
    experiment = made(Counting())
    results = Results(tmp_path)
    run_experiment(experiment, results)
    line = next(line for line in markdown([experiment], results).splitlines() if "method p = 1" in line)
    assert line.replace("\\|", "").count("|") == 6
    assert "1 ± 1" in line
