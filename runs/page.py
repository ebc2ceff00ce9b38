"""One self-contained HTML page of text, tables, pictures and code: no other file, no script, light and dark."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from representer.datasets.files import write_whole
from runs.figures import save_dark

STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6675; --page: #fbfbf9; --card: #ffffff; --line: #dfe3e8;
  --accent: #1f6f8b; --code: #f3f5f7; --good: #1e7b4f; --fair: #946200; --bad: #b3372f; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --soft: #9aa6b5; --page: #14181d; --card: #1b2026;
  --line: #323a44; --accent: #6cc0dc; --code: #11151a; --good: #5cc691; --fair: #dcae4d; --bad: #ee8279; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 17px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, header, footer { max-width: 60rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 3rem; }
h1 { font-size: clamp(1.9rem, 5vw, 2.7rem); line-height: 1.15; margin: 0 0 .6rem; letter-spacing: -.02em;
  text-wrap: balance; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .4rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0 .9rem; max-width: 44rem; overflow-wrap: anywhere; }
.lead { font-size: 1.13rem; color: var(--soft); }
nav ul { list-style: none; padding: 0; margin: 1.4rem 0 0; display: flex; flex-wrap: wrap; gap: .45rem; }
nav details ul { margin: .5rem 0 .9rem; }
nav a { display: block; padding: .15rem .75rem; border: 1px solid var(--line); border-radius: 2rem;
  background: var(--card); font-size: .88rem; text-decoration: none; }
a { color: var(--accent); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .9rem; padding: 1.5rem;
  margin: 1.6rem 0; }
figure { margin: 1rem 0; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; background: #fff; border-radius: .5rem;
  padding: .4rem; }
figure img.both { background: none; padding: 0; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .4rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .93rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: .9rem; padding-bottom: .3rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
.good { color: var(--good); } .fair { color: var(--fair); } .bad { color: var(--bad); }
td.good, td.fair, td.bad { white-space: nowrap; font-weight: 600; }
details { margin-top: .8rem; }
summary { cursor: pointer; color: var(--accent); font-size: .95rem; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: .5rem; padding: .9rem; overflow-x: auto;
  font: .82rem/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .9em; }
footer { color: var(--soft); font-size: .88rem; padding-bottom: 3rem; }
@media (max-width: 40rem) { section { padding: 1rem; border-radius: .6rem; } body { font-size: 16px; }
  table { font-size: .85rem; } th, td { padding-right: .55rem; } td:first-child { min-width: 5rem; }
  td.good, td.fair, td.bad { white-space: normal; }
  .frame { overflow-x: auto; } .frame img { max-width: none; width: max(100%, var(--least)); } }
@media print { section { break-inside: avoid; } details { display: none; } }
"""

NUMBER = re.compile(r"[−–+-]?\d[\d,.]*(?:e[+-]?\d+)?(?:\s*(?:±|%|×|s\b).*)?")


@dataclass(frozen=True)
class Picture:
    """A picture as PNG, and what it shows in words; ``file`` is where it lies beside the page, if anywhere.

    ``dark`` is the same picture for dark pages; without it, the light one keeps a light ground there.
    """

    png: bytes
    alt: str
    caption: str = ""
    file: str = ""
    dark: bytes = b""

    @classmethod
    def of(cls, figure: Any, alt: str, caption: str = "", *, dpi: int = 130) -> Picture:
        """Of a matplotlib figure."""
        light, dark = io.BytesIO(), io.BytesIO()
        figure.savefig(light, format="png", dpi=dpi)
        save_dark(figure, dark, dpi=dpi)
        return cls(light.getvalue(), alt, caption, dark=dark.getvalue())

    @classmethod
    def at(cls, folder: Path, file: str, alt: str) -> Picture:
        """Of a file in a folder."""
        return cls((folder / file).read_bytes(), alt, file=file)


@dataclass(frozen=True)
class Table:
    """Rows of text below headings; ``marks`` colours a cell by what it says ("good", "fair" or "bad")."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    marks: dict[str, str] | None = None


@dataclass(frozen=True)
class Section:
    """A part of the page: paragraphs (`code` in backquotes), what there is of tables, pictures and code, ``more`` text.

    Links to neighbours of one ``group`` are folded under its name.
    """

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    code: str = ""
    group: str = ""
    more: Sequence[str] = ()

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def write_page(path: str | Path, title: str, lead: str, sections: Sequence[Section], footer: str = "") -> Path:
    """Write the page.

    Parameters
    ----------
    path : path
        The file; its folder is made if it is not there.
    title, lead : str
        What stands on top.
    sections : sequence of Section
        In their order; the page begins with links to them.
    footer : str, default=""
        What stands at the end.

    Returns
    -------
    path : Path
        The file.
    """
    path = Path(path)
    links = "\n".join(_links(group, list(members)) for group, members in groupby(sections, lambda s: s.group))
    body = "\n".join(map(_section, sections))
    write_whole(
        path,
        f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>{html.escape(title)}</h1><p class="lead">{_inline(lead)}</p>
<nav aria-label="Sections">{links}</nav></header>
<main>
{body}
</main>
<footer><p>{_inline(footer)}</p></footer>
</body>
</html>
""",
    )
    return path


def _inline(text: str) -> str:
    """Escaped, with `code` in backquotes and [links](of.html)."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\[([^\]]+)\]\(([\w./#-]+)\)", r'<a href="\2">\1</a>', text)


def _links(group: str, sections: Sequence[Section]) -> str:
    """Links to neighbours, folded under the name of their group if they have one."""
    items = "".join(f'<li><a href="#{s.anchor}">{html.escape(s.title)}</a></li>' for s in sections)
    if not group:
        return f"<ul>{items}</ul>"
    return f"<details><summary>{html.escape(group)} ({len(sections)})</summary><ul>{items}</ul></details>"


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>", *(f"<p>{_inline(text)}</p>" for text in section.text)]
    parts += map(_table, section.tables)
    parts += map(_picture, section.pictures)
    if section.code:
        parts.append(
            f"<details><summary>The code</summary><pre><code>{html.escape(section.code)}</code></pre></details>"
        )
    parts += [f"<p>{_inline(text)}</p>" for text in section.more]
    return f'<section id="{section.anchor}">\n' + "\n".join(parts) + "\n</section>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_inline(heading)}</th>' for heading in table.headings)
    rows = "\n".join("<tr>" + "".join(_cell(cell, table.marks or {}) for cell in row) + "</tr>" for row in table.rows)
    caption = f"<caption>{_inline(table.caption)}</caption>" if table.caption else ""
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(text: str, marks: dict[str, str]) -> str:
    names = [*(["number"] if NUMBER.fullmatch(text) else []), *([marks[text]] if text in marks else [])]
    kind = f' class="{" ".join(names)}"' if names else ""
    return f"<td{kind}>{_inline(text)}</td>"


def _picture(picture: Picture) -> str:
    caption = f"<figcaption>{_inline(picture.caption)}</figcaption>" if picture.caption else ""
    width, height = _size(picture.png)
    image = f'alt="{html.escape(picture.alt)}" width="{width}" height="{height}" src="{_data(picture.png)}">'
    if picture.dark:
        source = f'<source media="(prefers-color-scheme: dark)" srcset="{_data(picture.dark)}">'
        return f'<figure><picture>{source}<img class="both" {image}</picture>{caption}</figure>'
    least = min(width // 2, max(640, 160 * width // height))  # on a phone, wide ones are scrolled and stay readable
    return f'<figure><div class="frame"><img style="--least: {least}px" {image}</div>{caption}</figure>'


def _data(png: bytes) -> str:
    """The address of a picture that is in the page itself."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _size(png: bytes) -> tuple[int, int]:
    """Width and height, which stand in the header of a PNG file."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
