"""The gallery: every example runs, needs no download, prints a score, and saves the picture that its page shows."""

from __future__ import annotations

import ast
import runpy
import warnings
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))
MAX_LINES = 20
ANY_DATA = ["strings", "graphs", "molecules", "bags", "curves", "records"]
EXTRAS = ("networkx", "pandas", "rdkit", "matplotlib")


def code_lines(source: str) -> int:
    """Lines of code; not the text at the top, comments and empty lines."""
    text = ast.parse(source).body[0].end_lineno or 0
    rest = [line.strip() for line in source.splitlines()[text:]]
    return sum(bool(line) and not line.startswith("#") for line in rest)


def test_there_is_one_for_each_kind_of_data() -> None:
    kinds = {path.stem.removeprefix("plot_") for path in EXAMPLES}
    assert set(ANY_DATA) <= kinds


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_example(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = path.read_text(encoding="utf-8")
    for name in EXTRAS:
        if f"import {name}" in source or f"from {name}" in source:
            pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():  # an example may change the filters
        runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert any(word in printed for word in ("R²", "accuracy", "error", "share"))
    assert list(tmp_path.glob("*.png")) or path.stem.removeprefix("plot_") in ANY_DATA, "no picture"


@pytest.mark.parametrize("name", ANY_DATA)
def test_an_example_of_a_kind_of_data_is_short(name: str) -> None:
    (path,) = (path for path in EXAMPLES if path.stem == f"plot_{name}")
    assert code_lines(path.read_text(encoding="utf-8")) <= MAX_LINES
