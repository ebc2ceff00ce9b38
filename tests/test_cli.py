"""The command: every subcommand, its JSON, its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from representer import OperatorRidge, __version__, cli

typer_testing = pytest.importorskip("typer.testing")


def invoke(*arguments: str) -> Any:
    return typer_testing.CliRunner().invoke(cli.make_application(), list(arguments))


def test_version_and_help() -> None:
    assert invoke("--version").output.strip() == f"representer {__version__}"
    assert "data" in invoke("--help").output
    for name in ("list", "fetch"):
        assert name in invoke("data", "--help").output


def test_without_typer_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'typer'", name="typer")

    monkeypatch.setattr(cli, "make_application", absent)
    with pytest.raises(SystemExit, match=r"representer\[cli\]"):
        cli.main()


def test_describe_prints_what_a_model_file_says(tmp_path: Path) -> None:
    X = np.linspace(0, 1, 9)[:, None]
    path = OperatorRidge(alpha=0.1, random_state=3).fit(X, X[:, 0]).save(tmp_path)
    about = json.loads(invoke("describe", str(tmp_path), "--json").stdout)
    assert about["library"] == __version__ and about["fit"]["n_samples"] == 9
    printed = invoke("describe", str(path)).output
    assert about["fit"]["fingerprints"]["X"] in printed and "random_state" in printed
    path.write_bytes(path.read_bytes()[:100])
    refused = invoke("describe", str(path))
    assert refused.exit_code == 1 and "is no model file, or a damaged one" in refused.output


def test_data_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRESENTER_DATA", str(tmp_path))
    (tmp_path / "yacht.csv").touch()
    rows = json.loads(invoke("data", "list", "--json").stdout)
    found, fetched = ({row["file"]: row[key] for row in rows} for key in ("found", "fetch"))
    assert fetched["mnist.npz"] and not fetched["isomap_faces.npz"]
    assert found["yacht.csv"] == str(tmp_path / "yacht.csv")
    assert found["mnist.npz"] is None
    assert "yacht.csv" in invoke("data", "list").output
