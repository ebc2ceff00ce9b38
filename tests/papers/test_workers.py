"""Experiments in processes: their results are one, and neither a death nor an interruption loses what was finished."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import experiment_cases
import pytest
from commands import interrupted_fit
from rich.console import Console

from papers import EXPERIMENTS, Experiment, Run, reproduce
from papers.clock import Clock, in_words, usual_seconds

TESTS = Path(__file__).parent


@pytest.mark.slow
def test_processes_share_one_result(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=150)
    results = reproduce(["toy"], tmp_path, jobs=2, console=console, experiments=experiment_cases.every)
    verdicts = {name: outcome.verdict for name, outcome in results.outcomes.items()}
    assert verdicts == {
        "toy-works": "reached",
        "toy-dies": "failed",
        "toy-lacks": "not run",
        "toy-waits": "reached",
    }
    rows = results.outcomes["toy-works"].measurements()["case", "ours"]
    assert rows["error"] == [0.0, 1.0, 2.0]
    assert set(rows["threads"]) == {1.0}
    assert results.outcomes["toy-works"].cpu_seconds is not None
    assert os.getpid() not in rows["process"]
    died = results.outcomes["toy-dies"]
    assert "exit code 9" in died.reason
    assert list(died.parts) == ["case | ours | 0"]  # what it had finished
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "(4 of 4)" in shown and "There is no toy.csv." in shown and " left)" in shown
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]
    assert {name: entry["verdict"] for name, entry in stored.items()} == verdicts


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.slow
def test_an_interrupted_run_of_processes_continues(tmp_path: Path) -> None:
    slow, begun = tmp_path / "slow", tmp_path / "begun"
    slow.touch()
    script = (
        "import experiment_cases, papers\n"
        "if __name__ == '__main__':\n"
        f"    papers.reproduce(['toy-waits', 'toy-works'], {str(tmp_path)!r}, jobs=2, "
        "experiments=experiment_cases.every)\n"
    )
    path = os.pathsep.join([str(TESTS), *sys.path])
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    experiments = tmp_path / "experiments"
    while process.poll() is None and not (begun.exists() and "finished" in read(experiments / "toy-works.json")):
        time.sleep(0.05)  # until one of them is in its second part, and the other one has come to its end
    kept = experiments / "toy-waits.json"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    output, _ = process.communicate()
    assert process.returncode != 0
    assert "interrupted" in output  # the table is printed, and the report written
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]["toy-waits"]
    assert stored["status"] == "interrupted"
    assert list(stored["parts"]) == ["case | ours | 0"]

    slow.unlink()
    before = kept.stat().st_mtime_ns
    quiet = Console(file=io.StringIO())
    results = reproduce(["toy-waits"], tmp_path, console=quiet, experiments=experiment_cases.every)
    outcome = results.outcomes["toy-waits"]
    assert outcome.verdict == "reached"
    assert outcome.parts["case | ours | 0"] == stored["parts"]["case | ours | 0"]
    assert outcome.cpu_seconds == sum(part["cpu_seconds"] for part in outcome.parts.values())
    assert kept.stat().st_mtime_ns > before


def test_an_interruption_is_not_a_finished_part(tmp_path: Path) -> None:
    """A fit keeps its best point on Ctrl-C; what it then returns is not what was to be measured."""

    def measure() -> dict[str, float]:
        interrupted_fit()
        return {"error": -1.0}

    def function(run: Run) -> None:
        run.part("case", "ours", 0, measure)

    experiment = Experiment("toy-one", "A paper", "Table 1", "A toy.", (), function)
    with pytest.raises(KeyboardInterrupt):
        reproduce(["toy"], tmp_path, console=Console(file=io.StringIO()), experiments=[experiment])
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["experiments"]["toy-one"]
    assert (stored["status"], stored["parts"]) == ("interrupted", {})
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- the time that is left ---------------------------------------------------------------------------------------------
def test_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Clock({"a": 100.0, "b": 100.0, "c": 200.0}, jobs=2)
    assert (clock.total, clock.done, clock.seconds_left) == (400.0, 0.0, 200.0)
    for name in "ac":
        clock.start(name)
    now[0] = 50.0
    assert clock.done == pytest.approx(100.0)
    assert clock.seconds_left == pytest.approx(150.0)  # c alone, not 300 / 2 of all
    now[0] = 200.0
    clock.finish("a")  # twice as long as expected
    assert 250.0 < clock.seconds_left + now[0] < 600.0
    clock.start("b")
    now[0] = 400.0
    for name in "bc":
        clock.finish(name)
    assert (clock.done, clock.seconds_left) == (400.0, 0.0)


@pytest.mark.parametrize(("seconds", "words"), [(3.4, "3 s"), (89.0, "89 s"), (300.0, "5 min"), (7500.0, "2 h 5 min")])
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_usual_seconds_are_of_experiments_that_exist() -> None:
    known = {experiment.name for experiment in EXPERIMENTS}
    for quick in (True, False):
        usual = usual_seconds(quick)
        assert set(usual) == known
        assert min(usual.values()) > 0
