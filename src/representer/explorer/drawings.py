"""Drawings of pictures, curves, molecules, texts, graphs and rows of a table, and the way back from an edit."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from representer.kernels import Graph, Kernel, Molecule
from representer.kernels.molecules import are_smiles, has_rdkit, is_molecule
from representer.samples import Data, Records, SparseRows, is_missing
from representer.values import all_values

Drawing = dict[str, object]

# The least numbers of columns of a picture and of a curve; fewer are a row of a table.
LEAST_PIXELS, LEAST_STEPS = 36, 16
# The least correlation of neighbouring pixels of a picture.
SMOOTH = 0.3
# The largest numbers of characters of a text, of cells of a row, and of pixels on a side of a thumbnail.
LONGEST, MOST_CELLS, THUMBNAIL = 400, 60, 28
# The number of samples by which the kind of the objects is decided.
LOOKED_AT = 200
SIZE = 220  # the side of the drawing of a molecule


@dataclass(frozen=True)
class Drawings:
    """The way in which the objects of a data set are drawn.

    Parameters
    ----------
    kind : {"picture", "curve", "row", "text", "molecule", "graph", "number"}
        The kind of the drawings; a number is that of a sample whose object is unknown.
    names : tuple of str
        The names of the columns.
    shape : (int, int) or None
        Height and width of pictures.
    limits : (float, float)
        The values of black and white, or the ends of the axis of curves.
    ink : bool
        Do pictures show strokes on an empty ground, whatever the colours of the page?
    molecules : str or None
        The column of a table that holds molecules.
    """

    kind: str
    names: tuple[str, ...] = ()
    shape: tuple[int, int] | None = None
    limits: tuple[float, float] = (0.0, 1.0)
    ink: bool = False
    molecules: str | None = None

    @classmethod
    def of(cls, X: Data, kernel: Kernel | None, names: Sequence[str] | None, shape: tuple[int, int] | None) -> Drawings:
        """The drawings that suit the samples; ``shape`` is that of pictures if it is known."""
        if isinstance(X, Records):
            return _of_table(X)
        if isinstance(X, SparseRows) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf"):
            return _of_vectors(X, names, shape)
        item = X[0]
        if is_molecule(item) or (isinstance(item, str) and _is_chemical(kernel)):
            return cls("molecule")
        if isinstance(item, Graph) or hasattr(item, "adjacency"):
            return cls("graph")
        if isinstance(item, np.ndarray) and item.dtype.kind in "biuf" and item.ndim in (1, 2):
            values = np.concatenate([np.asarray(curve, float).reshape(-1) for curve in X[:LOOKED_AT]])
            return cls("curve", limits=_ends(values))
        return cls("text")

    def draw(self, item: Data) -> Drawing:
        """One object as a record for the page."""
        if self.kind == "row":
            return self._row(item)
        if self.kind == "picture":
            return {"kind": "picture", "ink": self.ink, **self._pixels(np.asarray(item, float).reshape(self._size()))}
        if self.kind == "curve":
            values = np.asarray(item, float)
            lines = values[None] if values.ndim == 1 else values.T
            return {"kind": "curve", "lines": lines[:8], "limits": self.limits}
        if self.kind == "molecule":
            return molecule_drawing(item)
        if self.kind == "graph":
            return graph_drawing(item)
        text = f"sample {item}" if self.kind == "number" else str(item)
        return {"kind": "text", "text": text if len(text) <= LONGEST else f"{text[:LONGEST]}…"}

    def thumbnail(self, item: Data) -> Drawing:
        """A picture in small."""
        pixels = np.asarray(item, float).reshape(self._size())
        step = -(-max(pixels.shape) // THUMBNAIL)
        high, wide = (size // step * step for size in pixels.shape)
        small = pixels[:high, :wide].reshape(high // step, step, wide // step, step).mean((1, 3))
        return self._pixels(small)

    def editable(self, item: Data) -> Drawing | None:
        """An object as a form for editing, which ``read`` takes back; None if it cannot be edited."""
        if self.kind in ("picture", "curve") and np.ndim(item) == 1:
            return {"kind": self.kind, "values": np.asarray(item, float), "limits": self.limits, "shape": self.shape}
        if self.kind == "row" and not isinstance(item, SparseRows):
            cells = item.items() if isinstance(item, Mapping) else zip(self.names, item, strict=True)
            return {"kind": "row", "cells": [(str(name), _plain_cell(value)) for name, value in cells]}
        if isinstance(item, str):
            return {"kind": "text", "text": item}
        return None

    def read(self, edited: object, like: Data) -> Data:
        """One sample as a learner takes it, from an edited form; ``like`` is the sample before."""
        if isinstance(like, str):
            if not isinstance(edited, str):
                raise ValueError(f"Expected a text; got {type(edited).__name__}.")
            return [edited]
        if not isinstance(edited, list):
            raise ValueError(f"Expected a list of values; got {type(edited).__name__}.")
        if isinstance(like, Mapping):
            if len(edited) != len(like):
                raise ValueError(f"Expected {len(like)} values; got {len(edited)}.")
            pairs = zip(like.items(), edited, strict=True)
            return Records({name: _like(entry, value) for (name, entry), value in pairs})
        values = np.array([[_number(value) for value in edited]])
        if values.shape[1] != np.size(like):
            raise ValueError(f"Expected {np.size(like)} values; got {values.shape[1]}.")
        return values

    def _size(self) -> tuple[int, int]:
        assert self.shape is not None
        return self.shape

    def _pixels(self, values: np.ndarray) -> Drawing:
        low, high = self.limits
        bytes_ = np.nan_to_num((values - low) / (high - low) * 255.0).round().clip(0, 255).astype(np.uint8)
        return {"size": values.shape, "pixels": base64.b64encode(bytes_.tobytes()).decode("ascii")}

    def _row(self, item: Data) -> Drawing:
        if isinstance(item, SparseRows):
            pairs = [(f"column {j}", v) for j, v in zip(item.indices, item.data, strict=True)]
        else:
            pairs = list(item.items() if isinstance(item, Mapping) else zip(self.names, item, strict=True))
        cells = [(str(name), _cell(value)) for name, value in pairs[:MOST_CELLS]]
        drawing: Drawing = {"kind": "row", "cells": cells, "left_out": max(0, len(pairs) - MOST_CELLS)}
        if self.molecules is not None and isinstance(item, Mapping) and item.get(self.molecules) is not None:
            drawing["picture"] = molecule_drawing(item[self.molecules])
        return drawing


# -- the kind of the objects ------------------------------------------------------------------------------------------
def _of_table(X: Records) -> Drawings:
    """The drawings of rows of a table, with the molecules in one of its columns."""
    head = X[: min(len(X), LOOKED_AT)]
    for name, column in head.columns.items():
        present = [entry for entry in column if not is_missing(entry)]
        texts = bool(present) and all(isinstance(entry, str) for entry in present)
        if (texts and has_rdkit() and are_smiles(present)) or (present and all(map(is_molecule, present))):
            return Drawings("row", tuple(map(str, X.columns)), molecules=name)
    return Drawings("row", tuple(map(str, X.columns)))


def _of_vectors(X: np.ndarray | SparseRows, names: Sequence[str] | None, shape: tuple[int, int] | None) -> Drawings:
    """The drawings of vectors: pictures, curves, or rows of a table."""
    columns = tuple(f"column {j}" for j in range(X.shape[1])) if names is None else tuple(map(str, names))
    if isinstance(X, SparseRows):
        return Drawings("row", columns)
    sampled = np.asarray(X[:LOOKED_AT], float)
    if shape is not None and shape[0] * shape[1] != X.shape[1]:
        raise ValueError(f"Pictures of {shape[0]} × {shape[1]} have {shape[0] * shape[1]} pixels, not {X.shape[1]}.")
    if shape is None and (names is None or _are_pixels(columns)):
        shape = _square_shape(sampled)
    if shape is not None:
        low, high = _ends(sampled)
        ink = bool(np.mean(sampled <= low + 0.05 * (high - low)) > 0.3)
        return Drawings("picture", columns, shape, (low, high), ink)
    if names is None and sampled.shape[1] >= LEAST_STEPS and _agreement(sampled[:, :-1], sampled[:, 1:]) > 0.9:
        return Drawings("curve", columns, limits=_ends(sampled))
    return Drawings("row", columns)


def _are_pixels(names: Sequence[str]) -> bool:
    """Do all names begin with the word pixel?"""
    return all(name.lower().startswith("pixel") for name in names)


def _square_shape(X: np.ndarray) -> tuple[int, int] | None:
    """The sides of square pictures whose neighbouring pixels are correlated; None if vectors are no pictures."""
    side = round(X.shape[1] ** 0.5)
    if side * side != X.shape[1] or X.shape[1] < LEAST_PIXELS:
        return None
    pictures = X.reshape(-1, side, side)
    down, across = (_agreement(pictures[:, :-1], pictures[:, 1:]), _agreement(pictures[:, :, :-1], pictures[:, :, 1:]))
    return (side, side) if min(down, across) > SMOOTH else None


def _agreement(a: np.ndarray, b: np.ndarray) -> float:
    """The correlation of neighbours; zero if nothing varies."""
    a, b = a - a.mean(), b - b.mean()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / size if size > 0 else 0.0


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _is_chemical(kernel: Kernel | None) -> bool:
    return kernel is not None and has_rdkit() and any(isinstance(value, Molecule) for value in all_values(kernel))


# -- molecules and graphs ---------------------------------------------------------------------------------------------
def molecule_drawing(item: Data) -> Drawing:
    """A molecule as SVG in an address, which the page shows as a picture and does not run."""
    from rdkit import Chem, rdBase
    from rdkit.Chem.Draw import rdMolDraw2D

    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(item) if isinstance(item, str) else item
    text = item if isinstance(item, str) else Chem.MolToSmiles(item)
    if molecule is None:
        return {"kind": "text", "text": text}
    canvas = rdMolDraw2D.MolDraw2DSVG(SIZE, SIZE)
    canvas.drawOptions().clearBackground = False  # type: ignore[assignment]
    rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule)
    canvas.FinishDrawing()
    svg = base64.b64encode(canvas.GetDrawingText().encode()).decode("ascii")
    return {"kind": "molecule", "text": text, "address": f"data:image/svg+xml;base64,{svg}"}


def graph_drawing(item: Data) -> Drawing:
    """Labels and edges of a graph, which the page lays out."""
    if isinstance(item, Graph):
        labels, edges = list(item.node_labels), np.asarray(item.edges).tolist()
    else:
        place = {node: i for i, node in enumerate(item.nodes)}
        labels = [data.get("label", node) for node, data in item.nodes(data=True)]
        edges = [[place[u], place[v]] for u, v in item.edges()]
    return {"kind": "graph", "labels": ["" if label is None else str(label) for label in labels], "edges": edges}


# -- cells ------------------------------------------------------------------------------------------------------------
def _cell(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.5g}"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _plain_cell(value: object) -> object:
    if is_missing(value):
        return None
    if isinstance(value, bool | np.bool_ | int | np.integer | float | np.floating):
        return float(value)
    return str(value)


def _number(value: object) -> float:
    if value is None or value == "":
        return float("nan")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"Expected a number; got {str(value)[:60]!r}.") from None


def _like(entry: object, value: object) -> np.ndarray | list[object]:
    """A column of one value, of the kind of an entry."""
    if isinstance(entry, bool | np.bool_ | int | np.integer | float | np.floating):
        return np.array([_number(value)])
    return [None if value in (None, "") else value]


def item_of(X: Data, i: int) -> Data:
    """One object of samples of any kind."""
    return SparseRows(X[i : i + 1]) if isinstance(X, SparseRows) else X[i]
