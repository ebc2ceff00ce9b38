"""The demo: scripts that run as they stand and say what they measured, and a page of all of them."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from representer import cli, demo
from representer.demo import SCRIPTS, run_demo, script_text
from representer.demo.drawings import DRAWINGS

pytest.importorskip("matplotlib")

QUICK = ("conditionals", "strings")  # `make demo` runs them all


def test_every_script_has_a_drawing() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(DRAWINGS)


@pytest.mark.parametrize("name", list(DRAWINGS))
def test_a_script_says_what_it_is(name: str) -> None:
    title, paragraphs, code = script_text(name)
    assert 5 < len(title) < 60
    assert "\n" not in title
    assert len(paragraphs) == 1
    assert "from representer" in code
    assert "results = " in code
    assert '"""' not in code


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_the_page_has_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DRAWINGS", {name: DRAWINGS[name] for name in QUICK})
    tour = run_demo(tmp_path, console=quiet())
    assert tour.page == tmp_path / "index.html"
    page = tour.page.read_text(encoding="utf-8")
    assert len(tour.sections) == len(QUICK)
    for title, results in tour.results.items():
        assert title in page
        assert results
        assert tour.seconds[title] > 0.0
        for value in results.values():
            assert value in page
    assert not tour.missing


def missing(found: object) -> None:
    raise ModuleNotFoundError("This needs something; install it with: pip install 'representer[some]'.")


def test_a_script_whose_extra_is_missing_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "DRAWINGS", {"conditionals": missing})
    tour = run_demo(tmp_path, console=quiet())
    assert tour.sections == []
    (reason,) = tour.missing.values()
    assert "representer[some]" in reason
    assert "representer[some]" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_without_matplotlib_there_is_no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    result = (
        pytest.importorskip("typer.testing")
        .CliRunner()
        .invoke(cli.make_application(), ["demo", "--out", str(tmp_path)])
    )
    assert result.exit_code == 2
    assert "representer[plot]" in result.output


def test_every_learner_is_shown() -> None:
    code = "".join(script_text(name)[2] for name in DRAWINGS)
    learners = {
        "ConditionalMeanEmbedding",
        "DeepKernelClassifier",
        "DeepKernelPCA",
        "DeepKernelRegressor",
        "EmbeddingClassifier",
        "KernelAutoencoder",
        "OperatorRidge",
        "StructuredPredictor",
    }
    assert {name for name in learners if f"{name}(" not in code} == set()


def test_what_was_finished_is_on_the_page_if_the_tour_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(found: object) -> None:
        try:  # what a fit does: it keeps its best point
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5.0)
        except KeyboardInterrupt:
            pass

    monkeypatch.setattr(demo, "DRAWINGS", {"conditionals": DRAWINGS["conditionals"], "strings": interrupt})
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path, console=quiet())
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert script_text("conditionals")[0] in page
    assert script_text("strings")[0] not in page
