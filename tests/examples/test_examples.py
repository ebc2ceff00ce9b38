"""The gallery: every example runs, needs no download, prints a score, and saves the picture that its page shows."""

from __future__ import annotations

import ast
import re
import runpy
import warnings
from pathlib import Path

import pytest
from tiers import tiers

from papers import EXPERIMENTS
from representer.datasets.files import MissingDataError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("plot_*.py"))
MAX_LINES = 40  # with the picture and a rival
ANY_DATA = ["strings", "graphs", "molecules", "bags", "curves", "records"]
EXTRAS = ("networkx", "pandas", "rdkit", "matplotlib")
# One for each learner of which there is a short one; all are run by continuous integration.
QUICK = {
    "plot_atoms",
    "plot_clusters_autoencoder",
    "plot_deep_bounds",
    "plot_deep_regression",
    "plot_molecule_codes",
    "plot_structured_operators",
}


def code_lines(source: str) -> int:
    """Lines of code; not the text at the top, comments and empty lines."""
    text = ast.parse(source).body[0].end_lineno or 0
    rest = [line.strip() for line in source.splitlines()[text:]]
    return sum(bool(line) and not line.startswith("#") for line in rest)


def test_there_is_one_for_each_kind_of_data() -> None:
    kinds = {path.stem.removeprefix("plot_") for path in EXAMPLES}
    assert set(ANY_DATA) <= kinds


def figures(text: str) -> set[int]:
    """The numbers of the figures that a text names, without their parts: 9 of "figures 9(a) and B.2"."""
    lists = re.findall(r"[Ff]igures?((?:\s|,|and|\d+(?:\([a-z]\))?)+)", text)
    return {int(number) for found in lists for number in re.findall(r"\d+", found)}


def test_there_is_one_for_each_figure_of_the_papers() -> None:
    texts = [ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in EXAMPLES]
    assert figures("(Figures 9(a) and 9(b) of Tonin et al., figure 4; 3 points)") == {9, 4}
    missing = [
        (author, number)
        for experiment in EXPERIMENTS
        for author in [experiment.paper.split(",")[0]]
        for number in figures(experiment.place)
        if not any(author in text and number in figures(text) for text in texts)
    ]
    assert missing == []


@pytest.mark.parametrize("path", tiers({path.stem: path for path in EXAMPLES}, QUICK.__contains__))
def test_example(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = path.read_text(encoding="utf-8")
    for name in EXTRAS:
        if f"import {name}" in source or f"from {name}" in source:
            pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():  # an example may change the filters
        try:
            runpy.run_path(str(path), run_name="__main__")
        except MissingDataError as error:
            pytest.skip(str(error))
    printed = capsys.readouterr().out
    assert any(word in printed for word in ("R²", "accuracy", "error", "share"))
    assert list(tmp_path.glob("*.png")), "no picture"


@pytest.mark.parametrize("name", ANY_DATA)
def test_an_example_of_a_kind_of_data_is_short(name: str) -> None:
    (path,) = (path for path in EXAMPLES if path.stem == f"plot_{name}")
    assert code_lines(path.read_text(encoding="utf-8")) <= MAX_LINES
