"""Files of public sets in a local folder: finding, reading and checking them."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

VARIABLE = "REPRESENTER_DATA"
REGISTRY = "registry.json"


@dataclass(frozen=True)
class Source:
    """A file of a public set: its name, a description of its contents, and its origin."""

    file: str
    description: str
    origin: str

    @property
    def text(self) -> str:
        """The description with its source, as loaders return it."""
        return f"{self.description}\n\nSource: {self.origin}."


class MissingDataError(FileNotFoundError):
    """A data file is not in its folder; the message says how to get it."""


def data_folder(folder: str | Path | None = None) -> Path:
    """The data folder: the argument, else the one that the environment variable names, else the user's cache."""
    import pooch  # imported late, so that `import representer` does without it

    if not isinstance(folder, str | os.PathLike | None):
        raise ValueError(f"folder must be the path of a folder, or None for the one of the user; got {folder!r}.")
    place = folder or os.environ.get(VARIABLE) or pooch.os_cache("representer")
    return Path(place).expanduser()


def find_file(source: Source, folder: str | Path | None) -> Path:
    """The path of a set's file in its folder; an error if it is missing, or differs from the downloaded one."""
    path = data_folder(folder) / source.file
    if not path.is_file():
        raise MissingDataError(
            f"There is no {source.file} in {path.parent}. Nothing is downloaded by itself: try "
            f"`representer data fetch {source.file}`, or store the set from its source ({source.origin}) as "
            f"{source.file}. Let the environment variable {VARIABLE} name the folder, or pass folder= to the loader."
        )
    if not is_intact(path):
        raise ValueError(
            f"{path} is not the file that was downloaded: its SHA-256 is {digest(path.read_bytes())}, and "
            f"{path.parent / REGISTRY} has another one. Get it again: `representer data fetch {source.file}`."
        )
    return path


def digest(content: bytes) -> str:
    """The SHA-256 sum of a file's content."""
    return hashlib.sha256(content).hexdigest()


def is_intact(path: Path) -> bool:
    """Is a file the one that was downloaded? A file that came into the folder in another way counts as intact."""
    recorded = read_registry(path.parent).get(path.name)
    return recorded is None or recorded["sha256"] == digest(path.read_bytes())


def read_registry(folder: Path) -> dict[str, dict[str, str]]:
    """The digests recorded at downloads: that of each file ("sha256"), and those of what its addresses sent."""
    path = folder / REGISTRY
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {str(file): {**entry, "sha256": entry["sha256"]} for file, entry in stored.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}. Delete it; downloads record their digests again.") from error


def record_digests(path: Path, digests: Mapping[str, str]) -> None:
    """Write the digests of a file into the registry of its folder, safely beside other processes."""
    from filelock import FileLock

    with FileLock(path.parent / f".{REGISTRY}.lock"):
        registry = read_registry(path.parent) | {path.name: dict(digests)}
        write_whole(path.parent / REGISTRY, json.dumps(registry, indent=1, sort_keys=True) + "\n")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file as a whole or not at all, safely beside other processes; its folder is made if need be."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        unfinished.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        if unfinished.exists():
            unfinished.unlink()


def unwritable(path: Path, error: OSError) -> OSError:
    """The error of a file or folder that cannot be written, with its name and with advice."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "Free some space on its disk, or choose another folder."
    else:
        advice = "Choose another folder."
    return OSError(f"Nothing can be written to {path}: {error.strerror or error}. {advice}")


def writable_folder(folder: str | Path) -> Path:
    """The folder, made if it is not there; an OSError if nothing can be written to it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise unwritable(folder, error) from error
    return folder


def read_arrays(source: Source, folder: str | Path | None, names: Sequence[str]) -> tuple[Path, list[np.ndarray]]:
    """The path of a set's NPZ file, and its arrays of these names."""
    path = find_file(source, folder)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a whole NPZ file. {_again(source)}")
    with np.load(path, allow_pickle=False) as arrays:
        absent = [name for name in names if name not in arrays]
        if absent:
            raise ValueError(f"{path} has no array {absent[0]!r}; it has {', '.join(arrays)}.")
        contents = [arrays[name] for name in names]
    for name, array in zip(names, contents, strict=True):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(
                f"{path} has gaps or infinite numbers in {name!r}, and none were published. {_again(source)}"
            )
    return path, contents


def _again(source: Source) -> str:
    """The advice about a file that is not the published one."""
    return f"Delete it, and get the whole set from {source.origin}."


def read_table(source: Source, folder: str | Path | None, n_rows: int) -> tuple[Path, dict[str, list[str]]]:
    """The path of a set's CSV file, and its columns by name."""
    path = find_file(source, folder)
    with path.open(newline="", encoding="utf-8") as lines:
        header, *rows = list(csv.reader(lines)) or [[]]
    if not header:
        raise ValueError(f"{path} is empty. {_again(source)}")
    ragged = [line for line, row in enumerate(rows, start=2) if len(row) != len(header)]
    if ragged:
        raise ValueError(f"{path}, row {ragged[0]}: {len(header)} cells are expected, as in the header.")
    if len(rows) != n_rows:
        raise ValueError(f"{path} has {len(rows)} rows below the header; {n_rows} were published.")
    return path, {name: [row[j] for row in rows] for j, name in enumerate(header)}


def text_column(path: Path, table: dict[str, list[str]], name: str) -> list[str]:
    """The cells of a column as they stand in the file."""
    if name not in table:
        raise ValueError(f"{path} has no column {name!r}; it has {', '.join(table)}.")
    return table[name]


def class_column(path: Path, table: dict[str, list[str]], name: str) -> list[str]:
    """The names of classes in a column, none of which is missing."""
    cells = text_column(path, table, name)
    for row, cell in enumerate(cells, start=2):
        if cell.strip().lower() in ("", "nan"):
            raise ValueError(f"{path}, row {row}: the name of a class is expected in {name}; it has {cell!r}.")
    return cells


def number_columns(
    path: Path, table: dict[str, list[str]], names: list[str], gaps: Mapping[str, int] | None = None
) -> np.ndarray:
    """The numbers of columns, side by side; empty cells are NaN, as many in a column as ``gaps`` says."""
    columns = [_numbers(path, text_column(path, table, name), name, (gaps or {}).get(name, 0)) for name in names]
    return np.array(columns).T


def _numbers(path: Path, cells: list[str], name: str, n_gaps: int) -> np.ndarray:
    """The numbers of a column, of whose cells so many are empty: they are NaN."""
    try:
        numbers = np.array([cell or "nan" for cell in cells], dtype=float)
    except ValueError as error:
        raise ValueError(f"{path}: {error}. Numbers are expected in {name}.") from error
    strange = np.flatnonzero(~np.isfinite(numbers)).tolist()
    if len(strange) != n_gaps or any(cells[row] for row in strange):
        first = ", ".join(f"{cells[row]!r} in row {row + 2}" for row in strange[:3])
        raise ValueError(
            f"{path}: {n_gaps or 'no'} empty cells are expected in {name}, and finite numbers in the others; it has "
            f"{first or 'no gaps'}."
        )
    return numbers


def make_bunch(
    source: Source,
    path: Path,
    data: np.ndarray,
    target: np.ndarray,
    feature_names: list[str],
    shape: tuple[int, ...],
    target_shape: tuple[int, ...] | None = None,
) -> Bunch:
    """The bunch of data, target and description that a loader returns, if the shapes are the published ones."""
    target_shape = shape[:1] if target_shape is None else target_shape
    if data.shape != shape or target.shape != target_shape:
        raise ValueError(
            f"{path}: the data have shape {data.shape} and the target {target.shape}; {shape} and {target_shape} are "
            f"the published sizes. Get the whole set from {source.origin}."
        )
    return Bunch(data=data, target=target, feature_names=feature_names, DESCR=source.text, filename=str(path))


def loader(
    name: str, what: str, source: Source, contents: str, read: Callable[[str | Path | None], Bunch]
) -> Callable[..., Bunch]:
    """The documented function ``load_name`` of a set that has no options but its folder.

    ``what`` describes the set and ``contents`` its bunch in the docstring; ``read`` makes the bunch from the folder.
    """

    def load(*, folder: str | Path | None = None) -> Bunch:
        return read(folder)

    load.__name__ = load.__qualname__ = f"load_{name}"
    load.__doc__ = f"""Load {what}.

    Parameters
    ----------
    folder : path or None, default=None
        The folder of ``{source.file}``; None: the one that REPRESENTER_DATA names, or the user's cache.

    Returns
    -------
    bunch : Bunch
        {contents}, ``DESCR``, ``filename``.
    """
    return load
