"""Published files turned into those that loaders read; each converter takes the contents and the path to write."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat

Converter = Callable[[list[bytes], Path], None]


def table(header: str, *, delimiter: str | None = ",", names: Mapping[str, str] | None = None) -> Converter:
    """A converter of lines of values without a header; ``names`` replaces the values of the last column."""

    def convert(contents: list[bytes], path: Path) -> None:
        lines = contents[0].decode("latin-1").splitlines()
        rows = [[cell.strip() for cell in line.split(delimiter)] for line in lines if line.strip()]
        rows = [["" if cell == "?" else cell for cell in row] for row in rows]
        if names:
            rows = [[*row[:-1], names.get(row[-1], row[-1])] for row in rows]
        _write(path, [header.split(","), *rows])

    return convert


def wine(contents: list[bytes], path: Path) -> None:
    """The class stands first."""
    lines = [line.split(b",", 1) for line in contents[0].splitlines() if line.strip()]
    header = (
        "alcohol,malic_acid,ash,alcalinity_of_ash,magnesium,total_phenols,flavanoids,nonflavanoid_phenols,"
        "proanthocyanins,color_intensity,hue,od280_od315,proline,class"
    )
    table(header)([b"\n".join(rest + b"," + label for label, rest in lines)], path)


def mnist(contents: list[bytes], path: Path) -> None:
    """The four files of the original, in the IDX format."""
    arrays = []
    for content in contents:
        raw = gzip.decompress(content)
        shape = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
        arrays.append(np.frombuffer(raw, np.uint8, offset=4 + 4 * len(shape)).reshape(shape))
    names = ("X_train", "y_train", "X_test", "y_test")
    _save(path, dict(zip(names, arrays, strict=True)))


def zip_code(contents: list[bytes], path: Path) -> None:
    """USPS: a digit and 256 grey values in [-1, 1] a line, for training and for testing."""
    found: dict[str, np.ndarray] = {}
    for name, content in zip(("train", "test"), contents, strict=True):
        values = np.array([line.split() for line in gzip.decompress(content).splitlines()], dtype=float)
        found[f"X_{name}"] = ((values[:, 1:] + 1.0) / 2.0).astype(np.float32)
        found[f"y_{name}"] = values[:, 0].astype(np.uint8)
    _save(path, found)


def olivetti(contents: list[bytes], path: Path) -> None:
    """Ten pictures of each of forty people, each a column of a MATLAB matrix, from top to bottom."""
    faces = loadmat(io.BytesIO(contents[0]))["faces"].T.reshape(-1, 64, 64).transpose(0, 2, 1)
    _save(path, {"images": faces.astype(np.uint8), "target": np.arange(len(faces), dtype=np.uint8) // 10})


def ocr(contents: list[bytes], path: Path) -> None:
    """A letter a line: number, letter, next, word, position, fold, 128 pixels; a word ends where there is no next."""
    rows = [line.split(b"\t") for line in gzip.decompress(contents[0]).splitlines() if line.strip()]
    ends = np.flatnonzero([row[2] == b"-1" for row in rows]) + 1
    offsets = np.concatenate([[0], ends])
    letters = "".join(row[1].decode() for row in rows)
    _save(
        path,
        {
            "pixels": np.array([row[6 : 6 + 128] for row in rows]).astype(np.uint8),
            "letter": np.frombuffer(letters.encode(), np.uint8) - ord("a"),
            "word_offset": offsets.astype(np.int32),
            "word": np.array([letters[a:b] for a, b in zip(offsets[:-1], ends, strict=True)]),
            "fold": np.array([rows[first][5] for first in offsets[:-1]]).astype(np.uint8),
        },
    )


def multilabel(n_labels: int) -> Converter:
    """A converter of two ARFF files of numbers, for training and for testing, whose last columns are the labels."""

    def convert(contents: list[bytes], path: Path) -> None:
        parts = [_arff(content) for content in contents]
        values = np.concatenate([np.array(rows, dtype=float) for _, rows in parts])
        _save(
            path,
            {
                "X": values[:, :-n_labels].astype(np.float32),
                "Y": values[:, -n_labels:].astype(np.uint8),
                "is_train": np.arange(len(values)) < len(parts[0][1]),
                "label_name": np.array(parts[0][0][-n_labels:]),
            },
        )

    return convert


def graphs(contents: list[bytes], path: Path) -> None:
    """A ZIP file of TUDataset: edges and nodes of all graphs, numbered from 1, one a line."""
    with zipfile.ZipFile(io.BytesIO(contents[0])) as archive:
        files = {name.rpartition("/")[2].partition("_")[2]: archive.read(name) for name in archive.namelist()}

    def numbers(name: str) -> np.ndarray:
        return np.array(
            [line.split(b",") for line in files[f"{name}.txt"].split(b"\n") if line.strip()], dtype=int
        )

    found = {
        "edges": numbers("A") - 1,
        "graph_of_node": numbers("graph_indicator")[:, 0] - 1,
        "node_label": numbers("node_labels")[:, 0],
        "graph_label": numbers("graph_labels")[:, 0],
    }
    if "edge_labels.txt" in files:
        found["edge_label"] = numbers("edge_labels")[:, 0]
    _save(path, found)


def renamed(names: Mapping[str, str]) -> Converter:
    """A converter of a CSV file whose header has other names."""

    def convert(contents: list[bytes], path: Path) -> None:
        header, *rows = csv.reader(io.StringIO(contents[0].decode("utf-8-sig")))
        _write(path, [[names.get(name, name) for name in header], *rows])

    return convert


def arff_table(header: str, names: Mapping[str, str]) -> Converter:
    """A converter of an ARFF file; ``names`` replaces the values of the last column."""

    def convert(contents: list[bytes], path: Path) -> None:
        _, rows = _arff(contents[0])
        _write(path, [header.split(","), *([*row[:-1], names.get(row[-1], row[-1])] for row in rows)])

    return convert


def _arff(content: bytes) -> tuple[list[str], list[list[str]]]:
    """The names of the attributes, and the cells below @data, of an ARFF file that is not sparse."""
    lines = [line.strip() for line in content.decode("utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("%")]
    start = next(i for i, line in enumerate(lines) if line.lower() == "@data")
    names = [
        line.split(None, 2)[1].strip("'\"") for line in lines[:start] if line.lower().startswith("@attribute")
    ]
    return names, [[cell.strip() for cell in line.split(",")] for line in lines[start + 1 :]]


def _write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
