"""The command of the papers: its options, its JSON, its exit status."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from commands import invoke
from rich.console import Console

import papers
from papers import Claim, Experiment, Run
from papers.__main__ import main
from representer import __version__


def fine(run: Run) -> None:
    run.part("case", "method", 0, lambda: {"error": 1.0})


def broken(run: Run) -> None:
    raise RuntimeError("does not work")


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim("a claim", lambda measurements: ("reached", "1"))
    made = (
        Experiment("some-one", "paper", "table 1", "protocol", (claim,), fine),
        Experiment("bad-one", "paper", "table 2", "protocol", (), broken),
    )
    original = papers.reproduce
    monkeypatch.setattr(papers, "EXPERIMENTS", made)
    monkeypatch.setattr(papers, "reproduce", lambda *a, **k: original(*a, **(k | {"jobs": 1}), experiments=made))


@pytest.mark.usefixtures("experiments")
def test_reproduce(tmp_path: Path) -> None:
    result = invoke(main, "some", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert "reached" in result.output
    assert {"index.html", "report.md", "results.json"} <= {path.name for path in tmp_path.iterdir()}
    record = json.loads(invoke(main, "some", "--out", str(tmp_path), "--json").stdout)
    assert record == json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert (record["version"], record["quick"]) == (__version__, False)
    (entry,) = record["experiments"]
    assert (entry["name"], entry["verdict"], entry["versions"]) == ("some-one", "reached", [__version__])
    assert entry["claims"] == [{"claim": "a claim", "verdict": "reached", "measured": "1"}]
    row = {
        "case": "case",
        "method": "method",
        "measure": "error",
        "mean": 1.0,
        "sd": None,
        "se": None,
        "n": 1,
    }
    assert entry["rows"] == [row]


@pytest.mark.usefixtures("experiments")
def test_reproduce_fails_loudly(tmp_path: Path) -> None:
    assert invoke(main, "bad", "--out", str(tmp_path / "a")).exit_code == 1
    assert invoke(main, "some", "--out", str(tmp_path / "a")).exit_code == 0  # what else is there is not asked
    unknown = invoke(main, "nothing", "--out", str(tmp_path / "b"))
    assert unknown.exit_code == 2
    assert "some-one" in unknown.output
    assert invoke(main, "some", "--quick", "--out", str(tmp_path / "c")).exit_code == 0
    mixed = invoke(main, "some", "--out", str(tmp_path / "c"))
    assert mixed.exit_code == 2
    assert "--fresh" in mixed.output


@pytest.mark.usefixtures("experiments")
def test_reproduce_writes_where_it_can_or_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke(main, "some", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "Nothing can be written" in result.output


@pytest.mark.usefixtures("experiments")
@pytest.mark.parametrize("text", ["{", "[]", '{"quick": false}'])
def test_damaged_results_are_named_and_can_be_started_over(tmp_path: Path, text: str) -> None:
    assert invoke(main, "some", "--out", str(tmp_path)).exit_code == 0
    damaged = tmp_path / "experiments" / "some-one.json"
    damaged.write_text(text, encoding="utf-8")
    result = invoke(main, "some", "--out", str(tmp_path))
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "some-one.json is damaged" in words.replace("- ", "-") and "--fresh" in words
    assert invoke(main, "some", "--out", str(tmp_path), "--fresh").exit_code == 0


def test_extras_are_named_in_the_table_of_a_run(tmp_path: Path) -> None:
    def lacks(run: Run) -> None:
        raise ModuleNotFoundError("Install it with: pip install 'representer[plot]'.")

    console = Console(file=io.StringIO(), width=150)
    made = [Experiment("some-one", "paper", "table 1", "protocol", (), lacks)]
    results = papers.reproduce(out=tmp_path, console=console, experiments=made)
    assert results.outcomes["some-one"].status == "not run"
    assert console.file.getvalue().count("representer[plot]") == 2  # type: ignore[attr-defined]


@pytest.mark.usefixtures("experiments")
def test_reproduce_list() -> None:
    assert "some-one" in invoke(main, "--list").output
    assert [entry["name"] for entry in json.loads(invoke(main, "--list", "--json").stdout)] == [
        "some-one",
        "bad-one",
    ]
    (entry,) = json.loads(invoke(main, "some", "--list", "--json").stdout)
    assert entry == {"name": "some-one", "paper": "paper", "place": "table 1", "data": []}
    assert invoke(main, "nothing", "--list").exit_code == 2


@pytest.mark.usefixtures("experiments")
@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_jobs_are_a_number_from_one_on(jobs: str) -> None:
    result = invoke(main, "some", "--jobs", jobs)
    assert result.exit_code == 2
    assert "--jobs" in result.stderr
