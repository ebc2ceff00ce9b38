"""The command: every subcommand, its JSON, its exit status."""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks._timing import Row
from representer import __version__, cli, demo, reproduce
from representer.demo import Tour
from representer.reproduce import Claim, Experiment, Run

typer_testing = pytest.importorskip("typer.testing")


def invoke(*arguments: str) -> Any:
    return typer_testing.CliRunner().invoke(cli.make_application(), list(arguments))


def interrupted_fit() -> None:
    """What a fit does on Ctrl-C: it keeps its best point."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5.0)
    except KeyboardInterrupt:
        pass


def test_version_and_help() -> None:
    assert invoke("--version").output.strip() == f"representer {__version__}"
    listing = invoke("--help").output
    for name in ("demo", "reproduce", "bench", "data"):
        assert name in listing


def test_without_typer_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'typer'", name="typer")

    monkeypatch.setattr(cli, "make_application", absent)
    with pytest.raises(SystemExit, match=r"representer\[cli\]"):
        cli.main()


# -- demo -------------------------------------------------------------------------------------------------------------
def test_demo_says_what_came_out_and_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tour = Tour(
        results={"a task": {"error": "7 %"}},
        seconds={"a task": 1.0},
        missing={"b": "needs representer[x]"},
        page=tmp_path,
    )
    monkeypatch.setattr(demo, "run_demo", lambda out, fresh, console: tour)
    result = invoke("demo")
    assert result.exit_code == 0
    for text in ("a task", "7 %", "needs representer[x]", str(tmp_path)[:20]):
        assert text in result.output
    record = json.loads(invoke("demo", "--json").stdout)
    assert record == {
        "results": tour.results,
        "seconds": tour.seconds,
        "missing": tour.missing,
        "page": str(tmp_path),
    }


def test_an_interrupted_demo_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(out: Path, fresh: bool, console: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupt)
    result = invoke("demo")
    assert result.exit_code == 130
    assert "Interrupted" in result.output


def test_a_demo_that_cannot_write_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke("demo", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "Nothing can be written" in result.output


# -- reproduce --------------------------------------------------------------------------------------------------------
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
    original = reproduce.reproduce
    monkeypatch.setattr(reproduce, "EXPERIMENTS", made)
    monkeypatch.setattr(
        reproduce, "reproduce", lambda *a, **k: original(*a, **(k | {"jobs": 1}), experiments=made)
    )


@pytest.mark.usefixtures("experiments")
def test_reproduce(tmp_path: Path) -> None:
    result = invoke("reproduce", "some", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert "reached" in result.output
    assert {"index.html", "report.md", "results.json"} <= {path.name for path in tmp_path.iterdir()}
    record = json.loads(invoke("reproduce", "some", "--out", str(tmp_path), "--json").stdout)
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
    assert invoke("reproduce", "bad", "--out", str(tmp_path / "a")).exit_code == 1
    assert (
        invoke("reproduce", "some", "--out", str(tmp_path / "a")).exit_code == 0
    )  # what else is there is not asked
    unknown = invoke("reproduce", "nothing", "--out", str(tmp_path / "b"))
    assert unknown.exit_code == 2
    assert "some-one" in unknown.output
    assert invoke("reproduce", "some", "--quick", "--out", str(tmp_path / "c")).exit_code == 0
    mixed = invoke("reproduce", "some", "--out", str(tmp_path / "c"))
    assert mixed.exit_code == 2
    assert "--fresh" in mixed.output


@pytest.mark.usefixtures("experiments")
def test_reproduce_writes_where_it_can_or_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke("reproduce", "some", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "Nothing can be written" in result.output


@pytest.mark.usefixtures("experiments")
@pytest.mark.parametrize("text", ["{", "[]", '{"quick": false}'])
def test_damaged_results_are_named_and_can_be_started_over(tmp_path: Path, text: str) -> None:
    assert invoke("reproduce", "some", "--out", str(tmp_path)).exit_code == 0
    damaged = tmp_path / "experiments" / "some-one.json"
    damaged.write_text(text, encoding="utf-8")
    result = invoke("reproduce", "some", "--out", str(tmp_path))
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "some-one.json is damaged" in words.replace("- ", "-") and "--fresh" in words
    assert invoke("reproduce", "some", "--out", str(tmp_path), "--fresh").exit_code == 0


def test_extras_are_named_in_the_table_of_a_run(tmp_path: Path) -> None:
    def lacks(run: Run) -> None:
        raise ModuleNotFoundError("Install it with: pip install 'representer[plot]'.")

    console = Console(file=io.StringIO(), width=150)
    made = [Experiment("some-one", "paper", "table 1", "protocol", (), lacks)]
    results = reproduce.reproduce(out=tmp_path, console=console, experiments=made)
    assert results.outcomes["some-one"].status == "not run"
    assert console.file.getvalue().count("representer[plot]") == 2  # type: ignore[attr-defined]


@pytest.mark.usefixtures("experiments")
def test_reproduce_list() -> None:
    assert "some-one" in invoke("reproduce", "--list").output
    assert [entry["name"] for entry in json.loads(invoke("reproduce", "--list", "--json").stdout)] == [
        "some-one",
        "bad-one",
    ]
    (entry,) = json.loads(invoke("reproduce", "some", "--list", "--json").stdout)
    assert entry == {"name": "some-one", "paper": "paper", "place": "table 1", "data": []}
    assert invoke("reproduce", "nothing", "--list").exit_code == 2


# -- bench and data ---------------------------------------------------------------------------------------------------
def test_bench_without_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    result = invoke("bench")
    assert result.exit_code == 2
    assert "[cli,bench]" in result.output


def test_bench_names() -> None:
    result = invoke("bench", "nothing")
    assert result.exit_code == 2
    assert "operator_ridge" in result.output


def test_bench_does_not_begin_what_it_could_not_keep(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = invoke("bench", "kernels", "--out", str(tmp_path / "file" / "rows.json"))
    assert nowhere.exit_code == 2
    assert "Nothing can be written" in nowhere.output
    folder = invoke("bench", "kernels", "--out", str(tmp_path))
    assert folder.exit_code == 2
    assert "names a file" in " ".join(folder.output.split())


def test_an_interrupted_bench_keeps_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, operator_ridge = (
        importlib.import_module(f"benchmarks.bench_{name}") for name in ("kernels", "operator_ridge")
    )
    monkeypatch.setattr(kernels, "rows", lambda: [Row("done", "n = 1", 1.0)])
    monkeypatch.setattr(operator_ridge, "rows", interrupted_fit)
    out = tmp_path / "new" / "rows.json"
    result = invoke("bench", "kernels", "operator_ridge", "strings", "--out", str(out))
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
        result = invoke("bench", *names, "--out", str(out), *options)
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
    result = invoke("bench", "kernels", "--out", str(out))
    assert result.exit_code == 2
    assert "--fresh" in result.output
    assert out.read_text(encoding="utf-8") == text


def test_data_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRESENTER_DATA", str(tmp_path))
    (tmp_path / "yacht.csv").touch()
    rows = json.loads(invoke("data", "list", "--json").stdout)
    found, fetched = ({row["file"]: row[key] for row in rows} for key in ("found", "fetch"))
    assert fetched["mnist.npz"] and not fetched["isomap_faces.npz"]
    assert found["yacht.csv"] == str(tmp_path / "yacht.csv")
    assert found["mnist.npz"] is None
    assert "yacht.csv" in invoke("data", "list").output
