"""The stopwatch of the benchmarks: fair turns, medians, verdicts, and a runner that finds its modules."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import interrupted_fit, invoke
from rich.console import Console

from benchmarks import _timing, any_data, bench_peers, runner
from benchmarks.__main__ import main
from benchmarks._timing import Row, compare, medians, not_run, scaled, show
from representer import __version__
from representer.datasets import make_bumps
from representer.kernels import Functional, Gaussian

ROOT = Path(__file__).parents[2]


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    times = medians({name: lambda name=name: calls.append(name) for name in "abc"}, repeats=3, warmup=1)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"
    assert list(times) == ["a", "b", "c"]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a clock shows, which stands still until a test moves it on."""
    now = [0.0]
    monkeypatch.setattr(_timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def wait(now: list[float], seconds: float) -> None:
    now[0] += seconds


def test_the_median_ignores_an_outlier(now: list[float]) -> None:
    pauses = iter([1.0, 200.0, 2.0])
    assert medians({"a": lambda: wait(now, next(pauses))}, repeats=3, warmup=0)["a"] == 2.0


@pytest.mark.parametrize(
    ("row", "ratio", "aim", "verdict"),
    [
        (Row("solve", "n = 10", 1.0, 2.0, 0.5), 0.5, "≤ 0.5", "met"),
        (Row("solve", "n = 10", 1.01, 2.0, 0.5), 0.505, "≤ 0.5", "missed"),
        (Row("solve", "n = 10", 9.0, 1.0), 9.0, "", ""),
        (Row("memory", "n = 10", 1.4, goal=1.5, unit="GB"), None, "≤ 1.5 GB", "met"),
        (Row("right", "n = 10", 98.2, goal=98.3, unit="%", at_least=True), None, "≥ 98.3 %", "missed"),
        (not_run("peer", "not installed", 1.0), None, "≤ 1", "not run"),
        (Row("never there", "", float("inf"), 60.0, 0.1), float("inf"), "≤ 0.1", "missed"),
    ],
)
def test_verdicts(row: Row, ratio: float | None, aim: str, verdict: str) -> None:
    assert (row.ratio, row.aim, row.verdict) == (ratio, aim, verdict)
    assert json.loads(json.dumps(row.as_dict(), allow_nan=False))["verdict"] == verdict


def test_goals_do_not_count_on_a_share_of_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scaled(1000, 200) == 1000
    monkeypatch.setenv("REPRESENTER_BENCH_SCALE", "0.1")
    assert (scaled(1000, 200), scaled(10_000, 200), scaled(100, 200)) == (200, 1000, 100)
    assert Row("solve", "n = 10", 1.0, 2.0, 0.5).verdict == "quick"
    calls: list[int] = []
    medians({"a": lambda: calls.append(1)}, repeats=5)
    assert calls == [1]


def test_a_comparison_is_shown_with_its_ratio(now: list[float]) -> None:
    row = compare(
        "sleep",
        "1 ms",
        ours=lambda: wait(now, 1.0),
        reference=lambda: wait(now, 4.0),
        goal=1.0,
        repeats=3,
        note="zzz",
    )
    assert row.ratio == 0.25
    page = io.StringIO()
    rows = {"nap": row, "memory": Row("peak", "n = 10", 3.0, 1.5, unit="GB")}
    show([{"subject": name, **row.as_dict()} for name, row in rows.items()], Console(file=page, width=140))
    shown = page.getvalue()
    assert shown.count("verdict") == 1  # one table
    for text in ("what", "size", "ours", "reference", "ratio", "goal", "verdict", "sleep", "met", "≤ 1"):
        assert text in shown
    for text in ("2.00", "1.5 GB", "zzz", "nap", "memory"):
        assert text in shown


@pytest.mark.slow
def test_the_runner_finds_modules_and_writes_json(tmp_path: Path) -> None:
    package = tmp_path / "benchmarks"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "runner.py", "_timing.py"):
        (package / name).write_text((ROOT / "benchmarks" / name).read_text(encoding="utf-8"), encoding="utf-8")
    heading = "from benchmarks._timing import Row\ndef rows():\n    "
    (package / "bench_small.py").write_text(f"{heading}return [Row('solve', 'n = 10', 1.0, 2.0, 0.6)]\n")
    (package / "bench_wrong.py").write_text(f"{heading}raise AssertionError('not the same')\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks", *arguments]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *sys.path])}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    result = run("small", "--out", "out/rows.json")
    assert result.returncode == 0, result.stderr
    assert "1 of 1 goals met" in result.stdout
    record = json.loads((tmp_path / "out" / "rows.json").read_text(encoding="utf-8"))
    assert record["version"] == __version__ and record["machine"]["cores"]
    (row,) = record["rows"]
    assert (row["subject"], row["ratio"], row["verdict"], row["goal"]) == ("small", 0.5, "met", "≤ 0.6")
    failed = run("--json")
    assert failed.returncode == 1
    record = json.loads(failed.stdout)
    assert record["failures"] == {"wrong": "AssertionError: not the same"}
    assert [row["subject"] for row in record["rows"]] == ["small"]


def test_curves_are_classified_and_the_better_kernel_is_chosen() -> None:
    curves, sides = make_bumps(60, random_state=0)
    kernel = Functional(Gaussian(0.2), interval=(0.0, 1.0), domain="objects")
    (row,) = any_data.classified("curves", {"functional": [kernel]}, curves, sides)
    assert row[:2] == ("curves", "functional") and row[2].startswith(("8", "9", "10"))
    useless = np.eye(60)
    assert any_data.accuracies([useless, kernel(curves).numpy()], sides, folds=5).mean() > 0.8


def test_every_subject_is_a_module_with_rows() -> None:
    for name in runner.available():
        assert callable(importlib.import_module(f"benchmarks.bench_{name}").rows), name


@pytest.mark.slow
def test_a_quick_run_of_subjects_is_one_table_of_known_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRESENTER_BENCH_SCALE", "0.02")
    page = io.StringIO()
    record = runner.run(["kernels", "structured", "operator_ridge"], Console(file=page, width=150))
    assert record["failures"] == {}
    assert {row["subject"] for row in record["rows"]} == {"kernels", "structured", "operator_ridge"}
    keys = {"subject", "what", "size", "ours", "reference", "unit", "ratio", "goal", "verdict", "note"}
    assert all(set(row) == keys for row in record["rows"])
    assert {row["verdict"] for row in record["rows"]} == {"quick", ""}
    assert "fit, fixed hyperparameters, against KernelRidge" in page.getvalue()
    assert "goals are judged at full size only" in page.getvalue() and "goals met" not in page.getvalue()


def test_peers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    rows = bench_peers.rows()
    assert {row.verdict for row in rows} == {"not run"}
    assert all("representer[bench]" in row.note for row in rows)
    assert len({row.what for row in rows}) == 4


@pytest.mark.parametrize("peer", ["himalaya", "gpytorch"])
def test_peers_compute_the_same(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(peer)
    monkeypatch.setenv("REPRESENTER_BENCH_SCALE", "0.02")
    row = bench_peers.fixed() if peer == "himalaya" else bench_peers.posterior()  # they compare predictions
    assert row.ours and row.reference


# --- the command -----------------------------------------------------------------------------------------------------


def test_bench_names() -> None:
    result = invoke(main, "nothing")
    assert result.exit_code == 2
    assert "operator_ridge" in result.output


def test_bench_does_not_begin_what_it_could_not_keep(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = invoke(main, "kernels", "--out", str(tmp_path / "file" / "rows.json"))
    assert nowhere.exit_code == 2
    assert "Nothing can be written" in nowhere.output
    folder = invoke(main, "kernels", "--out", str(tmp_path))
    assert folder.exit_code == 2
    assert "names a file" in " ".join(folder.output.split())


def test_an_interrupted_bench_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, operator_ridge = (
        importlib.import_module(f"benchmarks.bench_{name}") for name in ("kernels", "operator_ridge")
    )
    monkeypatch.setattr(kernels, "rows", lambda: [Row("done", "n = 1", 1.0)])
    monkeypatch.setattr(operator_ridge, "rows", interrupted_fit)
    out = tmp_path / "new" / "rows.json"
    result = invoke(main, "kernels", "operator_ridge", "strings", "--out", str(out))
    assert result.exit_code == 130
    assert "Interrupted" in result.output
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["interrupted"]
    assert [row["what"] for row in record["rows"]] == ["done"]


def test_an_interrupted_bench_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("kernels", "operator_ridge", "strings")
    modules = {name: importlib.import_module(f"benchmarks.bench_{name}") for name in names}
    calls: list[str] = []

    def run(*options: str, stop_at: str = "") -> tuple[int, list[str], list[str]]:
        def rows(name: str) -> list[Row]:
            if name == stop_at:
                interrupted_fit()
            calls.append(name)
            return [Row("one", "n = 1", 1.0, 2.0, 0.5)]

        calls.clear()
        for name, module in modules.items():
            monkeypatch.setattr(module, "rows", lambda name=name: rows(name))
        result = invoke(main, *names, "--out", str(out), *options)
        record = json.loads(out.read_text(encoding="utf-8"))
        assert record["interrupted"] == (result.exit_code != 0)
        return result.exit_code, list(calls), [row["subject"] for row in record["rows"]]

    out = tmp_path / "rows.json"
    assert run(stop_at="operator_ridge") == (130, ["kernels"], ["kernels"])
    assert run(stop_at="strings") == (130, ["operator_ridge"], ["kernels", "operator_ridge"])
    assert run() == (0, ["strings"], list(names))
    assert run() == (0, list(names), list(names))  # a whole run is timed again
    run(stop_at="strings")
    assert run("--fresh") == (0, list(names), list(names))
    run(stop_at="strings")
    interrupted = json.loads(out.read_text(encoding="utf-8"))
    out.write_text(json.dumps(interrupted | {"version": "0"}), encoding="utf-8")
    assert run()[:2] == (2, [])  # and nothing is lost
    assert run("--fresh")[0] == 0


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_bench_does_not_overwrite_another_file(tmp_path: Path, text: str) -> None:
    out = tmp_path / "notes.txt"
    out.write_text(text, encoding="utf-8")
    result = invoke(main, "kernels", "--out", str(out))
    assert result.exit_code == 2
    assert "--fresh" in result.output
    assert out.read_text(encoding="utf-8") == text
