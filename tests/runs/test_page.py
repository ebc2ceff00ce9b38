"""A page: one file that needs no other, with every text escaped and every picture described."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

import pytest

from runs.page import Picture, Section, Table, write_page

plotting = pytest.importorskip("matplotlib.figure")


class Reader(html.parser.HTMLParser):
    """Collects tags, and complains about those that are not closed in order."""

    VOID = frozenset({"meta", "img", "br", "source"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(tmp_path: Path) -> Reader:
    figure = plotting.Figure(figsize=(8, 2))
    figure.subplots().plot([0, 1])
    section = Section(
        "A <b> & c",
        ["Text with `code < 1`."],
        [
            Table(
                ("what", "value"),
                [("a | b", "−0.5 ± 0.1"), ("verdict", "reached")],
                marks={"reached": "good"},
            )
        ],
        [Picture.of(figure, 'a "line"', "drawn")],
        "x = a < b  # & more",
    )
    path = write_page(tmp_path / "new" / "index.html", "Title", "Lead", [section], "Foot")
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def test_tags_are_closed_and_text_is_escaped(page: Reader) -> None:
    assert page.open == []
    for text in ("A <b> & c", "code < 1", "x = a < b  # & more", "a | b", "Lead", "Foot", "drawn"):
        assert text in page.text


def test_it_needs_no_other_file(page: Reader) -> None:
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe")
        for name in ("src", "href", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#"))
    assert "url(" not in page.text


def test_pictures_are_described_and_links_lead_somewhere(page: Reader) -> None:
    (image,) = (attributes for tag, attributes in page.tags if tag == "img")
    assert image["alt"] == 'a "line"'
    assert image["class"] == "both"  # it has a picture for dark pages beside it, and fits every screen
    (dark,) = (attributes for tag, attributes in page.tags if tag == "source")
    assert dark["media"] == "(prefers-color-scheme: dark)" and dark["srcset"] != image["src"]
    anchors = {attributes["id"] for tag, attributes in page.tags if tag == "section"}
    links = {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a"}
    assert links == anchors == {"a-b-c"}


@pytest.mark.parametrize(
    ("width", "height", "least"), [(800, 600, 400), (2000, 1000, 640), (3000, 300, 1500), (3000, 400, 1200)]
)
def test_flat_pictures_stay_tall_enough_on_a_phone(tmp_path: Path, width: int, height: int, least: int) -> None:
    png = bytes(16) + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    path = write_page(tmp_path / "index.html", "T", "", [Section("One", pictures=[Picture(png, "wide")])])
    assert f"--least: {least}px" in path.read_text(encoding="utf-8")


def test_links_of_a_group_are_folded(tmp_path: Path) -> None:
    sections = [Section("All"), *(Section(title, group="A & B") for title in ("one", "two")), Section("Last")]
    text = write_page(tmp_path / "index.html", "Title", "Lead", sections).read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    (nav,) = re.findall(r"<nav.*</nav>", text, re.DOTALL)
    (folded,) = re.findall(r"<details><summary>A &amp; B \(2\)</summary>(.*?)</details>", nav)
    assert re.findall(r'href="#([^"]+)"', folded) == ["one", "two"]
    assert re.findall(r'href="#([^"]+)"', nav) == ["all", "one", "two", "last"]


def test_numbers_stand_right_and_verdicts_are_coloured(page: Reader) -> None:
    cells = [attributes.get("class") for tag, attributes in page.tags if tag == "td"]
    assert cells == [None, "number", None, "good"]
