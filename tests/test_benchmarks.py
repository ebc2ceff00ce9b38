"""The stopwatch of the benchmarks: fair turns, medians, verdicts, and a runner that finds its modules."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import any_data
from benchmarks._timing import Row, compare, medians, show
from representer.datasets import make_bumps
from representer.kernels import Functional, Gaussian

ROOT = Path(__file__).parents[1]


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    times = medians({name: lambda name=name: calls.append(name) for name in "abc"}, repeats=3, warmup=1)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"
    assert list(times) == ["a", "b", "c"]


def test_the_median_ignores_an_outlier() -> None:
    pauses = iter([0.0, 0.2, 0.0])
    assert medians({"a": lambda: time.sleep(next(pauses))}, repeats=3, warmup=0)["a"] < 0.1


@pytest.mark.parametrize(
    ("ours", "reference", "goal", "verdict"),
    [(1.0, 2.0, 0.5, "met"), (1.01, 2.0, 0.5, "missed"), (9.0, 1.0, None, "")],
)
def test_verdicts(ours: float, reference: float, goal: float | None, verdict: str) -> None:
    assert Row("solve", "n = 10", ours, reference, goal).verdict == verdict


def test_a_comparison_is_shown_with_its_ratio() -> None:
    row = compare(
        "sleep", "1 ms", ours=lambda: None, reference=lambda: time.sleep(0.001), goal=1.0, repeats=3
    )
    assert row.ratio < 1
    page = io.StringIO()
    show([row, Row("solve", "n = 10", 3.0, 1.5)], title="all", console=Console(file=page, width=120))
    for text in (
        "what",
        "size",
        "ours",
        "reference",
        "ratio",
        "goal",
        "verdict",
        "sleep",
        "met",
        "≤ 1",
        "2.00",
        "1.5 s",
    ):
        assert text in page.getvalue()


def test_the_runner_finds_modules_and_writes_json(tmp_path: Path) -> None:
    package = tmp_path / "benchmarks"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "_timing.py"):
        (package / name).write_text(
            (ROOT / "benchmarks" / name).read_text(encoding="utf-8"), encoding="utf-8"
        )
    (package / "bench_small.py").write_text(
        "from benchmarks._timing import Row\ndef rows():\n    return [Row('solve', 'n = 10', 1.0, 2.0, 0.6)]\n",
        encoding="utf-8",
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    result = run("--json", "out/rows.json")
    assert result.returncode == 0, result.stderr
    assert "1 of 1 goals met" in result.stdout
    (row,) = json.loads((tmp_path / "out" / "rows.json").read_text(encoding="utf-8"))["rows"]["small"]
    assert (row["ratio"], row["verdict"], row["goal"]) == (0.5, "met", 0.6)
    assert "there are: small" in run("nonsense").stderr


def test_curves_are_classified_and_the_better_kernel_is_chosen() -> None:
    curves, sides = make_bumps(60, random_state=0)
    kernel = Functional(Gaussian(0.2), interval=(0.0, 1.0), domain="objects")
    (row,) = any_data.classified("curves", {"functional": [kernel]}, curves, sides)
    assert row[:2] == ("curves", "functional") and row[2].startswith(("8", "9", "10"))
    useless = np.eye(60)
    assert any_data.accuracies([useless, kernel(curves).numpy()], sides, folds=5).mean() > 0.8
