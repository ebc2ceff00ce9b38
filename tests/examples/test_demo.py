"""The demo: scripts that run as they stand and say what they measured, and a page of all of them."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from commands import interrupted_fit, invoke
from rich.console import Console

from examples import demo
from examples.demo import NEXT, SCRIPTS, Tour, run_demo, script_text
from examples.demo.__main__ import main
from examples.demo.drawings import DRAWINGS
from runs.page import Picture

pytest.importorskip("matplotlib")

QUICK = ("conditionals", "strings")  # `make demo` runs them all


def test_every_script_has_a_drawing() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(DRAWINGS) == set(NEXT)


@pytest.mark.parametrize("name", list(DRAWINGS))
def test_a_script_says_what_it_is(name: str) -> None:
    title, paragraphs, code = script_text(name)
    assert 5 < len(title) < 70
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
    links = re.findall(r'<a href="([^"#]+)">', page)
    assert links and all((tmp_path / link).exists() for link in links)  # what to read next


def missing(found: object) -> None:
    raise ModuleNotFoundError("This needs something; install it with: pip install 'representer[some]'.")


def test_a_script_whose_extra_is_missing_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DRAWINGS", {"conditionals": missing})
    tour = run_demo(tmp_path, console=quiet())
    assert tour.sections == []
    (reason,) = tour.missing.values()
    assert "representer[some]" in reason
    assert "representer[some]" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_without_matplotlib_there_is_no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    result = invoke(main, "--out", str(tmp_path))
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


@pytest.mark.slow
def test_what_was_finished_is_on_the_page_if_the_tour_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "DRAWINGS", {"conditionals": DRAWINGS["conditionals"], "strings": interrupted_fit})
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path, console=quiet())
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert script_text("conditionals")[0] in page
    assert script_text("strings")[0] not in page


@pytest.mark.parametrize("change", ["nothing", "fresh", "damaged", "version", "code"])
def test_an_interrupted_tour_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    calls: list[str] = []

    def draw(name: str, stop: bool = False) -> Picture:
        if stop:
            raise KeyboardInterrupt
        calls.append(name)
        return Picture(b"\x89PNG of " + name.encode() + 20 * b"\x01", f"what {name} shows", "a caption")

    def run(stop: bool = False) -> Tour:
        calls.clear()
        drawings = {
            "conditionals": lambda found: draw("first"),
            "strings": lambda found: draw("second", stop),
        }
        monkeypatch.setattr(demo, "DRAWINGS", drawings)
        return run_demo(tmp_path, fresh=change == "fresh", console=quiet())

    monkeypatch.setattr(demo.runpy, "run_path", lambda path, run_name: {"results": {"error": "7 %"}})
    with pytest.raises(KeyboardInterrupt):
        run(stop=True)
    assert calls == ["first"]
    unfinished = tmp_path / demo.UNFINISHED
    stored = json.loads(unfinished.read_text(encoding="utf-8"))
    if change == "damaged":
        unfinished.write_text("{", encoding="utf-8")
    elif change == "version":
        unfinished.write_text(json.dumps(stored | {"version": "0"}), encoding="utf-8")
    elif change == "code":
        stored["tasks"]["conditionals"]["code"] += "\n"
        unfinished.write_text(json.dumps(stored), encoding="utf-8")
    tour = run()
    assert calls == (["second"] if change == "nothing" else ["first", "second"])
    assert [section.pictures[0].alt for section in tour.sections] == ["what first shows", "what second shows"]
    assert tour.sections[0].pictures[0].png.startswith(b"\x89PNG of first")
    assert set(tour.results) == set(tour.seconds) == {section.title for section in tour.sections}
    assert not unfinished.exists()
    run()
    assert calls == ["first", "second"]  # a whole tour begins again


# --- the command -----------------------------------------------------------------------------------------------------


def test_demo_says_what_came_out_and_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tour = Tour(
        results={"a task": {"error": "7 %"}},
        seconds={"a task": 1.0},
        missing={"b": "needs representer[x]"},
        page=tmp_path,
    )
    monkeypatch.setattr(demo, "run_demo", lambda out, fresh, console: tour)
    result = invoke(main)
    assert result.exit_code == 0
    for text in ("a task", "7 %", "needs representer[x]", str(tmp_path)[:20]):
        assert text in result.output
    record = json.loads(invoke(main, "--json").stdout)
    assert record == {
        "results": tour.results,
        "seconds": tour.seconds,
        "missing": tour.missing,
        "page": str(tmp_path),
    }


def test_an_interrupted_demo_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(out: Path, fresh: bool, console: Console) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupt)
    result = invoke(main)
    assert result.exit_code == 130
    assert "Interrupted" in result.output


def test_a_demo_that_cannot_write_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke(main, "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "Nothing can be written" in result.output
