"""The measured tables of docs/measured.md are those of docs/measured/*.json."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from papers import EXPERIMENTS
from papers.claims import reason, reasons

SCRIPT = Path(__file__).parents[1] / "docs" / "measured.py"


@pytest.fixture
def measured() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measured", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path: Path, record: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def test_the_tables_are_those_of_the_measurements(measured: ModuleType) -> None:
    for path, text in measured.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: run python docs/measured.py"


def test_every_claim_that_was_not_reached_has_a_reason(measured: ModuleType) -> None:
    record = json.loads(measured.REPRODUCTIONS.read_text(encoding="utf-8"))
    judged = [(e["name"], claim) for e in record["experiments"] for claim in e["claims"]]
    missed = [(name, claim) for name, claim in judged if claim["verdict"] != "reached"]
    kinds = {(name, claim["claim"]): reason(name, claim).partition(": ")[0] for name, claim in missed}
    assert {pair: kind for pair, kind in kinds.items() if kind not in ("paper", "protocol", "data")} == {}


def test_reasons_name_experiments_and_claims_that_there_are() -> None:
    known = {experiment.name: {claim.text for claim in experiment.claims} for experiment in EXPERIMENTS}
    assert set(reasons()) <= set(known)
    claims = [(name, text) for name, given in reasons().items() for texts in given.values() for text in texts]
    assert [text for name, text in claims if text not in known[name]] == []
    assert len(set(claims)) == len(claims)  # each has one reason


def test_every_experiment_is_in_the_tables(measured: ModuleType) -> None:
    page = measured.PAGE.read_text(encoding="utf-8")
    assert [e.name for e in EXPERIMENTS if f"### {e.name}: " not in page] == []


BENCH = {
    "version": "1",
    "machine": {"cores": 2},
    "rows": [
        {
            "subject": "a_b",
            "what": "one",
            "size": "n = 1",
            "ours": 1.0,
            "reference": 2.0,
            "unit": "s",
            "ratio": 0.5,
        }
        | {"goal": "≤ 0.6", "verdict": "met", "note": ""},
        {
            "subject": "a_b",
            "what": "x|y",
            "size": "",
            "ours": 0.02,
            "reference": None,
            "unit": "s",
            "ratio": None,
        }
        | {"goal": "≤ 0.01", "verdict": "missed", "note": ""},
        {
            "subject": "c",
            "what": "shown",
            "size": "",
            "ours": None,
            "reference": None,
            "unit": "s",
            "ratio": None,
        }
        | {"goal": "", "verdict": "not run", "note": "no peer"},
    ],
}


def test_speed_goals_show_what_was_missed(measured: ModuleType) -> None:
    assert measured.speed_goals(BENCH).splitlines()[2:] == ["| a b | 1 of 2 | x\\|y | 20 ms | ≤ 0.01 | missed |"]
    assert measured.speed_goals(BENCH, ["a_b", "d_e"]).endswith("| d e | not measured |  |  |  |  |")
    page = measured.measured_page(BENCH, {"version": "1", "machine": {}, "experiments": []}, ["d_e", "c"])
    assert "1 of 2 goals met" in page and "Not measured: d e." in page
    assert "| one | n = 1 | 1 s | 2 s | 0.50 | ≤ 0.6 | met |" in page
    assert "| shown |  |  |  |  |  | not run; no peer |" in page


def outcome(name: str, verdict: str, *claims: str) -> dict[str, Any]:
    judged = [{"claim": f"claim {i}", "verdict": word, "measured": "7"} for i, word in enumerate(claims)]
    rows = [{"case": "c", "method": "m", "measure": "error", "mean": 0.5, "sd": 0.1, "se": 0.05, "n": 4}]
    place = {"paper": "A, B: Title", "place": f"table 1, {name}", "protocol": "Done."}
    return {
        "name": name,
        **place,
        "verdict": verdict,
        "reason": "",
        "seconds": 2.0,
        "claims": judged,
        "rows": rows,
    }


def test_verdicts_show_what_was_not_reached(measured: ModuleType) -> None:
    found = [
        outcome("x", "not reached", "reached", "not reached"),
        outcome("y", "reached", "reached"),
        outcome("z", "interrupted"),
    ]
    text = measured.verdicts({"experiments": found})
    assert text.splitlines()[2:] == ["| A et al. | Table 1 | 2 of 3, interrupted | x: claim 1: 7 |"]
    section = measured.experiment_section(found[0])
    assert "| claim 1 | 7 | not reached |" in section and "| c | m | 0.5 ± 0.1 | 4 |" in section


def test_processor_time_is_shown_if_all_experiments_recorded_it(measured: ModuleType) -> None:
    found = [outcome(name, "reached") | {"seconds": 7200.0, "cpu_seconds": 3600.0} for name in "xy"]
    record = {"version": "1", "machine": {}, "experiments": found}
    text = "The experiments add up to 4.0 h of wall clock, 2.0 h of processor time."
    assert text in measured.measured_page(BENCH, record)
    found[0]["cpu_seconds"] = None
    assert "processor time" not in measured.measured_page(BENCH, record)


def test_new_measurements(measured: ModuleType, tmp_path: Path) -> None:
    name, other = EXPERIMENTS[0].name, EXPERIMENTS[1].name
    record = {"version": "1", "machine": {}, "quick": False}
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, verdict in zip(folders, ("reached", "interrupted"), strict=True):
        write(folder / "summary.json", {**record, "experiments": [outcome(name, verdict)]})
    taken = measured.take_reproductions(folders)
    verdicts = {entry["name"]: entry["verdict"] for entry in taken["experiments"]}
    assert (verdicts[name], verdicts[other]) == ("reached", "not run")
    assert list(verdicts) == [experiment.name for experiment in EXPERIMENTS]
    write(folders[1] / "summary.json", {**record, "quick": True, "experiments": []})
    with pytest.raises(ValueError, match="quick run"):
        measured.take_reproductions(folders)
    assert measured.take_bench([write(tmp_path / "bench.json", BENCH)]) == BENCH
    assert json.loads(measured.stored(taken)) == taken and measured.stored(BENCH).count("\n") == 6 + len(BENCH["rows"])
    with pytest.raises(ValueError, match="interrupted run"):
        measured.take_bench([write(tmp_path / "bench.json", {**BENCH, "interrupted": True})])
    with pytest.raises(ValueError, match="quick run"):
        measured.take_bench([write(tmp_path / "bench.json", {**BENCH, "scale": 0.1})])


def test_a_subject_that_was_measured_again_takes_the_place_of_the_old_one(measured: ModuleType, tmp_path: Path) -> None:
    first, second = BENCH["rows"][0], {**BENCH["rows"][0], "subject": "memory"}
    again = {**first, "ours": 7.0, "note": "by hand"}
    files = [
        write(tmp_path / "all.json", {**BENCH, "rows": [first, second]}),
        write(tmp_path / "again.json", {**BENCH, "machine": {"cores": 4}, "rows": [again]}),
    ]
    taken = measured.take_bench(files)
    assert taken["rows"] == [{**again, "note": "by hand; cores 4"}, second]
    assert taken["machine"] == BENCH["machine"]
