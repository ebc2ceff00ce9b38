"""Drawings of molecules, pictures, curves, strings, graphs and records as small pieces of HTML.

Texts of users are escaped, and nothing in a drawing is an address or a script.
"""

from __future__ import annotations

import base64
import difflib
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from representer.inspection.relevance import has_inside, reads_molecules
from representer.kernels import Functional, as_graph, is_graph, is_molecule
from representer.samples import Data, Records, count, plain

SIDE = 110  # the side of a drawing in pixels
LONGEST = 120  # the largest number of shown characters of a text
# Vectors are pictures if they have at least LEAST_PIXELS entries, which fill a square, and the correlation of
# neighbours exceeds that of all entries by ALIKE.
LEAST_PIXELS, ALIKE = 49, 0.15
LOOKED_AT = 200  # the number of vectors that are checked
SHOWN_NUMBERS = 8  # the number of shown entries of a vector
SHORTEST_MATCH = 2
UP, DOWN = (0, 114, 178), (213, 94, 0)  # the colours of parts that raise and that lower a prediction, as in bars


@dataclass(frozen=True)
class Gallery:
    """Queries and the points near them, to be drawn.

    Parameters
    ----------
    queries, points : data
        Queries and points in their stored form.
    kind : {"picture", "molecule", "vector", "other"}
        The kind of vectors or strings; other objects show theirs by their type.
    """

    queries: Data
    points: Data
    kind: str = "other"

    @classmethod
    def of(cls, kernel: Any, queries: Data, points: Data) -> Gallery:
        """The gallery with the kind that the kernel and the points suggest."""
        if reads_molecules(kernel):
            return cls(queries, points, "molecule")
        if are_pictures(points):
            return cls(queries, points, "picture")
        return cls(queries, points, "vector" if kernel.domain == "vectors" and not is_curved(kernel) else "other")

    def __getitem__(self, rows: Any) -> Gallery:
        """The gallery of some of the queries."""
        if isinstance(self.queries, np.ndarray | Records):
            return Gallery(self.queries[rows], self.points, self.kind)
        numbers = np.arange(count(self.queries))[rows]
        return Gallery([self.queries[int(i)] for i in numbers], self.points, self.kind)

    def html(self, query: int, numbers: Sequence[int]) -> str:
        """A query beside the points with these numbers."""
        item = self.queries[query]
        texts = [("query", self._drawn(item, None))]
        texts += [(f"sample {i}", self._drawn(self.points[int(i)], item)) for i in numbers]
        cells = "".join(
            f"<figure style='margin:0;max-width:{2 * SIDE}px;overflow-wrap:anywhere'>{drawing}"
            f"<figcaption style='font-size:.8em;opacity:.7'>{escape(name)}</figcaption></figure>"
            for name, drawing in texts
        )
        return f"<div style='display:flex;flex-wrap:wrap;gap:1em;align-items:end'>{cells}</div>"

    def coloured(self, query: int, values: np.ndarray) -> str:
        """A query whose atoms or characters are coloured by their effects."""
        item = self.queries[query]
        if is_molecule(item) or self.kind == "molecule":
            return molecule_html(item, values)
        return string_html(item, values=values) if isinstance(item, str) else item_html(item)

    def _drawn(self, item: Any, other: Any) -> str:
        if self.kind == "picture":
            return picture_html(item)
        if self.kind == "vector":
            return vector_html(item)
        if self.kind == "molecule" and isinstance(item, str):
            return molecule_html(item)
        return item_html(item, other)


def item_html(item: Any, other: Any = None) -> str:
    """Any object, drawn by its type; a string has marks where it matches another one."""
    item = plain(item) if hasattr(item, "detach") else item
    if is_molecule(item):
        return molecule_html(item)
    if isinstance(item, str):
        return string_html(item, other if isinstance(other, str) else None)
    if is_graph(item):
        return graph_html(item)
    if isinstance(item, dict):
        facts = [f"{escape(short(name))}: <b>{escape(short(value))}</b>" for name, value in item.items()]
        return f"<div style='font-size:.85em'>{'<br>'.join(facts[:12])}</div>"
    curve = _curve(item)
    return f"<code>{escape(short(item))}</code>" if curve is None else curve_html(*curve)


def is_curved(kernel: Any) -> bool:
    """Does a kernel compare vectors as the values of curves?"""
    return has_inside(kernel, Functional)


def vector_html(item: Any) -> str:
    """The first numbers of a vector."""
    numbers = np.asarray(item.toarray() if hasattr(item, "toarray") else plain(item), dtype=float).ravel()
    shown = ", ".join(f"{number:.3g}" for number in numbers[:SHOWN_NUMBERS])
    return f"<code>{shown}{', …' if len(numbers) > SHOWN_NUMBERS else ''}</code>"


def short(value: Any) -> str:
    """A value in few characters."""
    text = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


# -- strings ----------------------------------------------------------------------------------------------------------
def string_html(text: str, other: str | None = None, values: np.ndarray | None = None) -> str:
    """A string with marks where it matches another one, or coloured by a value for each character.

    Examples
    --------
    >>> from representer.inspection.drawings import string_html
    >>> string_html("banana", "bandana")
    '<code><mark>banana</mark></code>'
    >>> string_html("<script>", "script")
    '<code>&lt;<mark>script</mark>&gt;</code>'
    """
    text = text[:LONGEST]
    if values is not None:
        largest = float(np.abs(values).max(initial=0.0)) or 1.0
        spans = (
            f"<span style='background:{_colour(v / largest)}'>{escape(c)}</span>"
            for c, v in zip(text, values, strict=False)
        )
        return f"<code>{''.join(spans)}</code>"
    matches = [] if other is None else difflib.SequenceMatcher(None, text, other[:LONGEST], False).get_matching_blocks()
    inside = np.zeros(len(text) + 1, dtype=bool)
    for match in matches:
        if match.size >= SHORTEST_MATCH:
            inside[match.a : match.a + match.size] = True
    edges = [0, *(np.flatnonzero(np.diff(inside[:-1].astype(int))) + 1).tolist(), len(text)]
    pieces = [f"<mark>{escape(text[a:b])}</mark>" if inside[a] else escape(text[a:b]) for a, b in pairwise(edges)]
    return f"<code>{''.join(pieces)}</code>"


def _colour(share: float) -> str:
    """A colour for a share between −1 and 1, the stronger the larger."""
    return f"rgba({','.join(map(str, UP if share > 0 else DOWN))},{0.65 * min(abs(share), 1.0):.2f})"


# -- molecules --------------------------------------------------------------------------------------------------------
def molecule_html(molecule: Any, values: np.ndarray | None = None) -> str:
    """A molecule drawn by RDKit; with values of atoms, those that raise a prediction are blue, the others red.

    The text of the molecule takes the place of the drawing without RDKit, or if RDKit cannot read it.
    """
    try:
        svg = _drawn_molecule("MolDraw2DSVG", molecule, values, 2 * SIDE)
    except ModuleNotFoundError:
        svg = None
    return f"<code>{escape(short(molecule))}</code>" if svg is None else str(svg[svg.index("<svg") :])


def molecule_png(molecule: Any, values: np.ndarray | None = None, side: int = 400) -> bytes:
    """The drawing of a molecule as a PNG file for figures, which ``pyplot.imread(io.BytesIO(...))`` reads."""
    png = _drawn_molecule("MolDraw2DCairo", molecule, values, side)
    if png is None:
        raise ValueError(f"RDKit cannot read {short(molecule)!r}.")
    return bytes(png)


def _drawn_molecule(kind: str, molecule: Any, values: np.ndarray | None, side: int) -> Any:
    """A molecule with colours by values of atoms, drawn by RDKit; None if RDKit cannot read it."""
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    with rdBase.BlockLogs():  # texts that RDKit cannot read are no error here
        read: Any = Chem.MolFromSmiles(molecule) if isinstance(molecule, str) else Chem.Mol(molecule)
    if read is None:
        return None
    drawer = getattr(rdMolDraw2D, kind)(side, side * 3 // 4)
    options: Any = drawer.drawOptions()
    options.clearBackground = False
    # Atoms without a colour are grey, which is legible on light and on dark pages.
    options.updateAtomPalette(dict.fromkeys((-1, 0, 1, 6), (0.5, 0.5, 0.5)))
    colours: dict[int, tuple[float, ...]] = {}
    if values is not None:
        largest = float(np.abs(values).max(initial=0.0)) or 1.0
        for atom, value in enumerate(values):
            rgb = np.array(UP if value > 0 else DOWN) / 255.0
            colours[atom] = (*rgb, 0.75 * min(abs(float(value)) / largest, 1.0))
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer, read, highlightAtoms=list(colours), highlightAtomColors=colours, highlightBonds=[]
    )
    drawer.FinishDrawing()
    return drawer.GetDrawingText()


# -- pictures ---------------------------------------------------------------------------------------------------------
def are_pictures(points: Data) -> bool:
    """Are rows the pixels of square pictures, where neighbours vary together more than all entries do?"""
    X = plain(points) if hasattr(points, "shape") and not hasattr(points, "toarray") else None
    if X is None or X.ndim != 2 or X.dtype.kind not in "biuf":
        return False
    side = math.isqrt(X.shape[1])
    if side * side != X.shape[1] or X.shape[1] < LEAST_PIXELS or len(X) < 10:
        return False
    X = X[:LOOKED_AT].astype(float)
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    grid = X.reshape(len(X), side, side)
    across, down = (grid[:, :, 1:] * grid[:, :, :-1]).mean(), (grid[:, 1:] * grid[:, :-1]).mean()
    return bool(min(across, down) - np.square(X.mean(1)).mean() >= ALIKE)


def picture_html(pixels: Any) -> str:
    """The entries of a vector as grey pixels of a square picture, a PNG inside the page."""
    values = np.asarray(plain(pixels), dtype=float).ravel()
    size = math.isqrt(len(values))
    low, high = float(values.min()), float(values.max())
    grey = (255 * (1.0 - (values - low) / (high - low if high > low else 1.0))).astype(np.uint8).reshape(size, -1)
    rows = b"".join(b"\x00" + row.tobytes() for row in grey)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    data = base64.b64encode(png).decode()
    return f"<img alt='picture' width={SIDE} style='image-rendering:pixelated' src='data:image/png;base64,{data}'>"


# -- curves and graphs ------------------------------------------------------------------------------------------------
def _curve(item: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The times and the values (k, channels) of a curve; None for other objects."""
    if isinstance(item, tuple) and len(item) == 2:
        times, values = (np.asarray(axis, dtype=float) for axis in item)
        return times.ravel(), values.reshape(len(times.ravel()), -1)
    array = np.asarray(item) if isinstance(item, np.ndarray | list) else None
    if array is None or array.dtype.kind not in "biuf" or array.ndim not in (1, 2) or len(array) < 8:
        return None
    return np.arange(len(array), dtype=float), array.reshape(len(array), -1).astype(float)


def curve_html(times: np.ndarray, values: np.ndarray) -> str:
    """A curve as a line, or one line for each channel."""
    width, height = 2 * SIDE, SIDE // 2
    span = float(np.ptp(times)) or 1.0
    low, spread = float(np.nanmin(values)), float(np.nanmax(values) - np.nanmin(values)) or 1.0
    lines = ""
    for channel in values.T[:6]:
        finite = np.isfinite(channel)
        x, y = (times - times[0]) / span * (width - 4) + 2, height - 2 - (channel - low) / spread * (height - 4)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[finite], y[finite], strict=True))
        lines += f"<polyline points='{points}' fill='none' stroke='currentColor' stroke-width='1'/>"
    return f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}'>{lines}</svg>"


def graph_html(item: Any) -> str:
    """A graph with its nodes on a circle, and their labels."""
    graph, radius = as_graph(item), SIDE / 2 - 14
    angles = 2 * math.pi * np.arange(graph.n_nodes) / max(graph.n_nodes, 1)
    x, y = SIDE / 2 + radius * np.cos(angles), SIDE / 2 + radius * np.sin(angles)
    edges = "".join(
        f"<line x1='{x[a]:.1f}' y1='{y[a]:.1f}' x2='{x[b]:.1f}' y2='{y[b]:.1f}' stroke='currentColor'/>"
        for a, b in np.asarray(graph.edges, dtype=int).reshape(-1, 2)
    )
    nodes = "".join(
        f"<circle cx='{a:.1f}' cy='{b:.1f}' r='3' fill='currentColor'/>"
        if label is None
        else f"<text x='{a:.1f}' y='{b:.1f}' font-size='11' text-anchor='middle' dominant-baseline='central' "
        f"fill='#0072b2'>{escape(str(label)[:8])}</text>"
        for a, b, label in zip(x, y, graph.node_labels or [None] * graph.n_nodes, strict=True)
    )
    return f"<svg viewBox='0 0 {SIDE} {SIDE}' width='{SIDE}' height='{SIDE}'>{edges}{nodes}</svg>"
