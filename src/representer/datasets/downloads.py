"""Downloads of public sets from their publishers, converted into the files that loaders read, and checked.

Every address has a SHA-256 sum: a published one, or the one that the first download recorded in the registry beside the
data. The contents are checked, too, by a signature that depends neither on the order of rows nor on the last printed
digits.
"""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from scipy.io import loadmat
from sklearn.utils import Bunch

from representer.datasets import images, molecules, structured, uci
from representer.datasets.files import (
    REGISTRY,
    Source,
    data_folder,
    digest,
    is_intact,
    read_registry,
    record_digests,
    unwritable,
    writable_folder,
)
from representer.kernels import Graph
from representer.values import COUNT, POSITIVE, argument_repr

Converter = Callable[[list[bytes], Path], None]
Loader = Callable[..., Bunch]
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
TU = "https://www.chrsmrrs.com/graphkerneldatasets/"
MOLECULENET = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/"
ZIP_CODE = "https://hastie.su.domains/ElemStatLearn/datasets/"
MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan/master/data/multi-label/"
MNIST_FILES = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MAX_SECONDS = 600.0  # seconds that one address may take
MAX_BYTES = 100_000_000  # bytes that one address may send; the largest published file has a tenth of them
MAX_UNPACKED = 1_000_000_000  # bytes of an unpacked archive
SILENCE = 30.0  # seconds for which a server may send nothing
LINES = 10.0  # seconds between lines of progress where there is no terminal
SAME = 1e-3  # relative tolerance of signatures, because copies of a set differ in their last printed digits
PIECE = 65_536  # bytes that are read at once, at most
PAGE = b"<"  # what pages of the web begin with, and no published file


class DownloadError(OSError, ValueError):
    """A public set could not be fetched; the message names the file and the address, and says what to do.

    Parameters
    ----------
    message : str
        The reason and advice.
    paths : mapping of str to Path, default={}
        The files of the sets that could be fetched, where several were asked for.
    failures : mapping of str to str, default={}
        The messages of the sets that could not be fetched, where several were asked for.
    """

    def __init__(
        self, message: str, paths: Mapping[str, Path] | None = None, failures: Mapping[str, str] | None = None
    ):
        super().__init__(message)
        self.paths = dict(paths or {})
        self.failures = dict(failures or {})


@dataclass(frozen=True)
class Download:
    """The download of a set: its addresses, the converter of their contents into a file, its loader and signature."""

    source: Source
    addresses: tuple[str, ...]
    convert: Converter
    load: Loader
    signature: tuple[float, ...]
    checksums: tuple[str, ...] = ()  # published SHA-256 sums of the addresses' contents

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a set may be fetched: its file, with and without extension, and that of its loader."""
        file = self.source.file
        return file, file.partition(".")[0], self.load.__name__.removeprefix("load_")

    def failure(self, path: Path, address: str, reason: str, advice: str = "Try again") -> DownloadError:
        """The error about a failure at an address, with advice on getting the file in another way."""
        return DownloadError(
            f"{path.name} could not be fetched from {address}: {reason}. {advice}, or get the set from its source "
            f"({self.source.origin}) and store it as {path}."
        )


def fetch(
    source: Source | str,
    folder: str | Path | None = None,
    *,
    again: bool = False,
    max_seconds: float = MAX_SECONDS,
    max_bytes: int = MAX_BYTES,
    console: Console | None = None,
) -> Path:
    """Download a set into a folder, where its loader finds it.

    Parameters
    ----------
    source : Source or str
        The set, its name or the name of its file: ``"esol"`` and ``"esol.csv"`` are the same. ``DOWNLOADS`` lists the
        sets that can be fetched.
    folder : path or None, default=None
        The folder of the file, made if it is not there. None is the folder that the environment variable
        REPRESENTER_DATA names, or else the user's cache: loaders look there, too.
    again : bool, default=False
        Is a file downloaded again that is there already? One that has changed since its download always is.
    max_seconds : float, default=600
        The time that an address may take to send its file.
    max_bytes : int, default=100_000_000
        The number of bytes that an address may send.
    console : rich.console.Console or None, default=None
        The console that shows progress, as a bar, or line by line if it is no terminal. None is the standard error.

    Returns
    -------
    path : Path
        The file. It appears only if its contents are the published ones. The SHA-256 sums of the file and of the
        downloaded contents are recorded in ``registry.json`` beside it and checked from then on.

    Raises
    ------
    DownloadError
        The set could not be fetched; the folder is as it was.
    """
    download = _find_download(source)
    _check_limits(max_seconds, max_bytes)
    path = data_folder(folder) / download.source.file
    try:
        if not again and path.is_file() and is_intact(path):
            return path
        writable_folder(path.parent)
        recorded = read_registry(path.parent).get(path.name, {})
        checksums = dict(zip(download.addresses, download.checksums, strict=False))
        contents, digests = [], {}
        for address in download.addresses:
            content = _receive(download, path, address, max_seconds, max_bytes, console or Console(stderr=True))
            digests[address] = digest(content)
            _compare(download, path, address, digests[address], checksums.get(address), recorded.get(address))
            contents.append(content)
        _store(download, path, contents, digests)
    except DownloadError:
        raise
    except (OSError, ValueError) as error:
        raise DownloadError(f"{path.name} could not be fetched from {download.addresses[0]}: {error}") from error
    return path


def fetch_all(
    sources: Iterable[Source | str] | None = None,
    folder: str | Path | None = None,
    *,
    again: bool = False,
    max_seconds: float = MAX_SECONDS,
    max_bytes: int = MAX_BYTES,
    console: Console | None = None,
) -> dict[str, Path]:
    """Download several sets; the failure of one does not stop the others.

    Parameters
    ----------
    sources : iterable of Source or str, or None, default=None
        The sets; None: all that can be fetched.
    folder, again, max_seconds, max_bytes, console
        See ``fetch``.

    Returns
    -------
    paths : dict of str to Path
        The files, by the names that were asked for.

    Raises
    ------
    DownloadError
        After all downloads, if some failed. The message lists them; ``paths`` and ``failures`` of the error hold the
        fetched sets and the others.
    """
    _check_limits(max_seconds, max_bytes)
    paths: dict[str, Path] = {}
    failures: dict[str, str] = {}
    for source in DOWNLOADS if sources is None else _several(sources):
        name = source.file if isinstance(source, Source) else str(source)
        try:
            paths[name] = fetch(
                source, folder, again=again, max_seconds=max_seconds, max_bytes=max_bytes, console=console
            )
        except ValueError as error:  # a DownloadError, or an unknown name
            failures[name] = str(error)
    if failures:
        reasons = "\n".join(failures.values())
        total = len(paths) + len(failures)
        raise DownloadError(f"{len(failures)} of {total} sets could not be fetched:\n{reasons}", paths, failures)
    return paths


def _check_limits(max_seconds: float, max_bytes: int) -> None:
    """Refuse limits of downloads that are no positive numbers."""
    POSITIVE("max_seconds", max_seconds)
    COUNT("max_bytes", max_bytes)


def _several(sources: Iterable[Source | str]) -> Iterable[Source | str]:
    """Sets to fetch; an error if there is one, or what is no set at all."""
    if isinstance(sources, str | Source) or not isinstance(sources, Iterable):
        raise ValueError(
            f"sources must be a list of names or None, which is all sets; got {argument_repr(sources)}. One set is "
            "fetched by fetch(name), or by a list of one name."
        )
    return sources


def _find_download(source: Source | str) -> Download:
    """The download of a set, which may be given by a name."""
    if not isinstance(source, Source | str):
        raise ValueError(
            f"source must be the name of a set, such as 'esol', or a Source; got {argument_repr(source)}. These can be "
            f"fetched: {', '.join(DOWNLOADS)}."
        )
    name = source if isinstance(source, str) else source.file
    for download in DOWNLOADS.values():
        if name.lower() in download.names:
            return download
    raise ValueError(f"{name!r} cannot be fetched; these can: {', '.join(DOWNLOADS)}.")


class _Body:
    """The body of an answer as it arrives; to pooch it is both the file to write and the progress bar."""

    def __init__(self, max_bytes: int, show: Callable[[int, int], None]):
        self.content = bytearray()
        self.total = 0
        self.stopped = False
        self._max_bytes = max_bytes
        self._show = show

    def write(self, chunk: bytes) -> None:
        """Append the next bytes, unless there are too many or the download was stopped."""
        self.content += chunk
        if self.stopped or self.is_too_large:
            raise EOFError
        self._show(len(self.content), self.total)

    def stop(self) -> None:
        """Refuse all further bytes."""
        self.stopped = True

    @property
    def is_too_large(self) -> bool:
        """Are there, or will there be, more bytes than allowed?"""
        return max(self.total, len(self.content)) > self._max_bytes

    def flush(self, *_: int) -> None:
        """Do nothing: bytes are in memory, and progress is shown as they arrive."""

    update = reset = close = flush


def _receive(
    download: Download, path: Path, address: str, max_seconds: float, max_bytes: int, console: Console
) -> bytes:
    """The bytes behind an address as they are stored there, or an error with the reason and advice."""
    with _progress(path.name, console) as show:
        body = _Body(max_bytes, show)
        error = _await(address, body, max_seconds)
    size = len(body.content)
    answer = getattr(error, "response", None)  # the refusal of a server
    head = body.content[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    advice = "Try again"
    if isinstance(error, TimeoutError):
        reason = f"after {max_seconds:g} s only {decimal(size)} had arrived"
        advice = "Allow more time by max_seconds="
    elif body.is_too_large:
        reason = f"it sends {decimal(max(size, body.total))} or more, and max_bytes={max_bytes} are allowed"
        advice = "Look at what is there"
    elif answer is not None:
        reason, advice = f"the server answered {answer.status_code} {answer.reason}", "Try again later"
    elif size < body.total:
        reason, advice = f"only {size} of {body.total} bytes arrived", "Check the connection, and try again"
    elif error is not None:
        reason = f"the connection ended after {size} bytes" if size else _innermost(error)
        advice = "Check the connection, and try again"
    elif head.startswith(PAGE):
        reason = "an HTML page came instead of the data, maybe the login page of the network"
        advice = "Open the address in a browser, log in, and try again"
    else:
        return bytes(body.content)
    raise download.failure(path, address, reason, advice) from error


def _await(address: str, body: _Body, max_seconds: float) -> Exception | None:
    """Let pooch write the bytes of an address into the body; return the error, a TimeoutError if it takes too long.

    A thread waits for the server, so that one that sends a byte now and then cannot hold up the caller.
    """
    import pooch

    answers: list[Any] = []
    errors: list[Exception] = []

    def keep_packed(answer: Any, **_: Any) -> None:
        # Servers may declare the packing of a .gz file to be one of the transport; the packed file is wanted.
        answer.raw.headers.pop("content-encoding", None)
        if not answer.raw.chunked and hasattr(answer.raw, "read1"):
            answer.raw.stream = partial(_pieces, answer.raw)
        answers.append(answer)

    def receive() -> None:
        options = {"timeout": SILENCE, "headers": {"Accept-Encoding": "identity"}, "hooks": {"response": keep_packed}}
        try:
            pooch.HTTPDownloader(progressbar=body, chunk_size=PIECE, **options)(address, body, None)
        except Exception as error:
            errors.append(error)
        finally:
            for answer in answers:
                answer.close()

    thread = threading.Thread(target=receive, daemon=True)
    try:
        thread.start()
        thread.join(min(max_seconds, threading.TIMEOUT_MAX))
    finally:
        body.stop()
    if thread.is_alive():
        return TimeoutError(f"{address} is not done after {max_seconds:g} s")
    return errors[0] if errors else None


def _pieces(raw: Any, size: int, **options: Any) -> Iterator[bytes]:
    """The body of an answer in pieces as they arrive, where urllib3 would wait for whole ones of this size."""
    while piece := raw.read1(size, **options):
        yield piece


def _innermost(error: BaseException) -> str:
    """The message of the first cause of an error, which is the shortest: connection refused, timed out."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return str(error) or type(error).__name__


@contextmanager
def _progress(file: str, console: Console) -> Iterator[Callable[[int, int], None]]:
    """A context with a function that shows how many bytes have arrived, and of how many (0: unknown)."""
    if console.is_terminal or console.is_jupyter:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(file, total=None)
            yield lambda size, total: bar.update(task, completed=size, total=total or None)
        return
    latest = time.monotonic()
    console.print(f"{file}: asking for it", markup=False, highlight=False)

    def show(size: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest > LINES or size == total:
            latest = time.monotonic()
            whole = f" of {decimal(total)}" if total else ""
            console.print(f"{file}: {decimal(size)}{whole}", markup=False, highlight=False)

    yield show


def _compare(
    download: Download, path: Path, address: str, received: str, published: str | None, recorded: str | None
) -> None:
    """Refuse contents with another SHA-256 sum than the published ones, or than those of the first download."""
    expected, origin = (published, "published") if published else (recorded, "recorded at the first download")
    if expected and received != expected:
        reason = f"its SHA-256 is {received}, and {expected} was {origin}"
        advice = "Try again"
        if not published:
            advice = (
                f"If the publisher has changed the file, delete its entry in {path.parent / REGISTRY} and try again"
            )
        raise download.failure(path, address, reason, advice)


def _store(download: Download, path: Path, contents: list[bytes], digests: Mapping[str, str]) -> None:
    """Convert the contents, check that they are the published set, and write the file that loaders read."""
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        unchecked = Path(folder) / path.name
        try:
            download.convert(contents, unchecked)
            received = signature(download.load(folder=folder))
        except OSError as error:
            raise unwritable(path, error) from error
        except Exception as error:  # readers of other people's files may raise anything
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            reason = reason.replace(str(unchecked), path.name).rstrip(".")
            raise download.failure(
                path, download.addresses[0], f"what came is not the published set ({reason})"
            ) from error
        if not np.allclose(received, download.signature, rtol=SAME, atol=SAME):
            reason = f"what came is not the published set (its signature is {received}, not {download.signature})"
            raise download.failure(path, download.addresses[0], reason)
        record_digests(path, {"sha256": digest(unchecked.read_bytes()), **digests})
        unchecked.replace(path)


def signature(bunch: Bunch) -> tuple[float, float, float]:
    """Three numbers that do not depend on the order of the rows, but change with the contents.

    The first two sum the means of all columns (targets last) in units of their standard deviations, and their
    skewnesses, with weights cos(1), cos(2), …. The third is the entropy of the target's values. The columns of graphs
    are the numbers of edges and of nodes with each label, the most frequent label first. Strings have no columns but
    the targets, because copies of a set write them differently.
    """
    values, codes = np.unique(np.asarray(bunch.target), return_inverse=True)
    target = (codes if values.dtype.kind in "US" else np.asarray(bunch.target)).reshape(len(bunch.target), -1)
    columns = np.column_stack([_numbers(bunch.data), target])
    mean, deviation = np.nanmean(columns, 0), np.nanstd(columns, 0)
    varies = deviation > 0
    weights = np.cos(np.arange(1, columns.shape[1] + 1))[varies]
    standard = (columns[:, varies] - mean[varies]) / deviation[varies]
    shares = np.bincount(codes.ravel()) / codes.size
    return (
        float(weights @ (mean[varies] / deviation[varies])),
        float(weights @ np.nanmean(standard**3, 0)),
        float(-(shares * np.log(shares)).sum()),
    )


def _numbers(data: np.ndarray | list[Graph]) -> np.ndarray:
    """The columns of the data that enter a signature, with a row for each sample."""
    if isinstance(data[0], Graph):
        labels, counts = np.unique([label for graph in data for label in graph.node_labels], return_counts=True)
        frequent = labels[np.argsort(-counts, kind="stable")]
        return np.array(
            [[len(g.edges), *(np.array(g.node_labels)[:, None] == frequent).sum(0)] for g in data],
            dtype=float,
        )
    if isinstance(data[0], str):
        return np.empty((len(data), 0))
    return np.asarray(data, dtype=float).reshape(len(data), -1)


# -- converters: each takes the published contents and the path of the file to write -----------------------------------
def table(header: str, *, delimiter: str | None = ",", names: Mapping[str, str] | None = None) -> Converter:
    """A converter of lines of values without a header; ``names`` maps the values of the last column to others."""

    def convert(contents: list[bytes], path: Path) -> None:
        lines = contents[0].decode("latin-1").splitlines()
        rows = [[cell.strip() for cell in line.split(delimiter)] for line in lines if line.strip()]
        rows = [["" if cell == "?" else cell for cell in row] for row in rows]
        if names:
            rows = [[*row[:-1], names.get(row[-1], row[-1])] for row in rows]
        _write(path, [header.split(","), *rows])

    return convert


def wine(contents: list[bytes], path: Path) -> None:
    """Write the table of wines, whose lines begin with the class."""
    lines = [line.split(b",", 1) for line in contents[0].splitlines() if line.strip()]
    header = (
        "alcohol,malic_acid,ash,alcalinity_of_ash,magnesium,total_phenols,flavanoids,nonflavanoid_phenols,"
        "proanthocyanins,color_intensity,hue,od280_od315,proline,class"
    )
    table(header)([b"\n".join(rest + b"," + label for label, rest in lines)], path)


def mnist(contents: list[bytes], path: Path) -> None:
    """Write the digits of MNIST from the four files of the original, in the IDX format."""
    arrays = []
    for content in contents:
        raw = _gunzip(content)
        shape = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
        arrays.append(np.frombuffer(raw, np.uint8, offset=4 + 4 * len(shape)).reshape(shape))
    names = ("X_train", "y_train", "X_test", "y_test")
    _save(path, dict(zip(names, arrays, strict=True)))


def zip_code(contents: list[bytes], path: Path) -> None:
    """Write the digits of USPS from two files, whose lines hold a digit and 256 grey values in [-1, 1]."""
    arrays: dict[str, np.ndarray] = {}
    for name, content in zip(("train", "test"), contents, strict=True):
        values = np.array([line.split() for line in _gunzip(content).splitlines()], dtype=float)
        arrays[f"X_{name}"] = ((values[:, 1:] + 1.0) / 2.0).astype(np.float32)
        arrays[f"y_{name}"] = values[:, 0].astype(np.uint8)
    _save(path, arrays)


def olivetti(contents: list[bytes], path: Path) -> None:
    """Write the faces of forty people, ten of each, from a MATLAB matrix whose columns are pictures read downwards."""
    faces = loadmat(io.BytesIO(contents[0]))["faces"].T.reshape(-1, 64, 64).transpose(0, 2, 1)
    _save(path, {"images": faces.astype(np.uint8), "target": np.arange(len(faces), dtype=np.uint8) // 10})


def ocr(contents: list[bytes], path: Path) -> None:
    """Write words from lines of number, letter, next, word, position, fold and 128 pixels.

    A word ends where there is no next letter.
    """
    rows = [line.split(b"\t") for line in _gunzip(contents[0]).splitlines() if line.strip()]
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
    """A converter of two ARFF files of numbers, for training and testing, whose last columns are the labels."""

    def convert(contents: list[bytes], path: Path) -> None:
        (names, training), (_, testing) = map(_arff, contents)
        values = np.array(training + testing, dtype=float)
        _save(
            path,
            {
                "X": values[:, :-n_labels].astype(np.float32),
                "Y": values[:, -n_labels:].astype(np.uint8),
                "is_train": np.arange(len(values)) < len(training),
                "label_name": np.array(names[-n_labels:]),
            },
        )

    return convert


def graphs(contents: list[bytes], path: Path) -> None:
    """Write graphs from a ZIP file of TUDataset: edges and nodes of all graphs, numbered from 1, one a line."""
    if not zipfile.is_zipfile(io.BytesIO(contents[0])):
        raise ValueError("it is not a whole ZIP file")
    with zipfile.ZipFile(io.BytesIO(contents[0])) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_UNPACKED:
            raise ValueError(f"it unpacks to more than {MAX_UNPACKED} bytes")
        files = {name.rpartition("/")[2].partition("_")[2]: archive.read(name) for name in archive.namelist()}

    def numbers(name: str) -> np.ndarray:
        return np.array([line.split(b",") for line in files[f"{name}.txt"].split(b"\n") if line.strip()], dtype=int)

    arrays = {
        "edges": numbers("A") - 1,
        "graph_of_node": numbers("graph_indicator")[:, 0] - 1,
        "node_label": numbers("node_labels")[:, 0],
        "graph_label": numbers("graph_labels")[:, 0],
    }
    if "edge_labels.txt" in files:
        arrays["edge_label"] = numbers("edge_labels")[:, 0]
    _save(path, arrays)


def renamed(names: Mapping[str, str]) -> Converter:
    """A converter of a CSV file that renames its columns."""

    def convert(contents: list[bytes], path: Path) -> None:
        header, *rows = csv.reader(io.StringIO(contents[0].decode("utf-8-sig")))
        _write(path, [[names.get(name, name) for name in header], *rows])

    return convert


def arff_table(header: str, names: Mapping[str, str]) -> Converter:
    """A converter of an ARFF file; ``names`` maps the values of the last column to others."""

    def convert(contents: list[bytes], path: Path) -> None:
        _, rows = _arff(contents[0])
        _write(path, [header.split(","), *([*row[:-1], names.get(row[-1], row[-1])] for row in rows)])

    return convert


def _arff(content: bytes) -> tuple[list[str], list[list[str]]]:
    """The names of the attributes, and the cells below @data, of an ARFF file that is not sparse."""
    lines = [line.strip() for line in content.decode("utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("%")]
    start = next((i for i, line in enumerate(lines) if line.lower() == "@data"), None)
    if start is None:
        raise ValueError("it has no line @data, which an ARFF file has")
    names = [line.split(None, 2)[1].strip("'\"") for line in lines[:start] if line.lower().startswith("@attribute")]
    return names, [[cell.strip() for cell in line.split(",")] for line in lines[start + 1 :]]


def _gunzip(content: bytes) -> bytes:
    """The unpacked content of a gzip file."""
    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it is not a whole gzip file: {error}") from error
    if len(unpacked) > MAX_UNPACKED:
        raise ValueError(f"it unpacks to more than {MAX_UNPACKED} bytes")
    return unpacked


def _write(path: Path, rows: list[list[str]]) -> None:
    """Write rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as an NPZ file."""
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


# -- the sets ----------------------------------------------------------------------------------------------------------
SEGMENTS = ("brickface", "sky", "foliage", "cement", "window", "path", "grass")
IMAGE_COLUMNS = (
    "region_centroid_col,region_centroid_row,region_pixel_count,short_line_density_5,short_line_density_2,vedge_mean,"
    "vedge_sd,hedge_mean,hedge_sd,intensity_mean,rawred_mean,rawblue_mean,rawgreen_mean,exred_mean,exblue_mean,"
    "exgreen_mean,value_mean,saturation_mean,hue_mean,class"
)
YACHT_COLUMNS = (
    "buoyancy_center_pos,prismatic_coeff,length_displacement_ratio,beam_draught_ratio,length_beam_ratio,"
    "froude_number,resistance"
)
HEART_COLUMNS = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
segment = table(IMAGE_COLUMNS, delimiter=None, names={str(k): name for k, name in enumerate(SEGMENTS, 1)})
yacht = table(YACHT_COLUMNS, delimiter=None)
ecoli = table("sequence,mcg,gvh,lip,chg,aac,alm1,alm2,class", delimiter=None)
yeast = table("sequence,mcg,gvh,alm,mit,erl,pox,vac,nuc,class", delimiter=None)
banknote = table("variance,skewness,curtosis,entropy,class")
bupa = table("mcv,alkphos,sgpt,sgot,gammagt,drinks,selector")
ionosphere = table(",".join(f"a{k:02d}" for k in range(1, 35)) + ",class")
robot = table(",".join(f"S{k}" for k in range(1, 25)) + ",class")
pima = arff_table("preg,plas,pres,skin,insu,mass,pedi,age,class", {"tested_negative": "0", "tested_positive": "1"})
esol = renamed({"measured log solubility in mols per litre": "log_solubility"})
MNIST_ADDRESSES = tuple(
    f"{MNIST_FILES}{file}-ubyte.gz"
    for file in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
)
MNIST_CHECKSUMS = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
FACES_ADDRESS = "https://ndownloader.figshare.com/files/5976027"
FACES_CHECKSUM = "b612fb967f2dc77c9c62d3e1266e0c73d5fca46a4b8906c18e454d41af987794"
PIMA_ADDRESS = "https://www.openml.org/data/v1/download/37/diabetes.arff"
OCR_ADDRESS = "https://ai.stanford.edu/~btaskar/ocr/letter.data.gz"
BANKNOTE_FILE = "00267/data_banknote_authentication.txt"
SCENE_FILES = (MULAN + "scene/scene-train.arff", MULAN + "scene/scene-test.arff")
USPS_FILES = (ZIP_CODE + "zip.train.gz", ZIP_CODE + "zip.test.gz")


def _uci(source: Source, address: str, convert: Converter, load: Loader, *signed: float) -> Download:
    """A download from the UCI repository."""
    return _one(source, UCI + address, convert, load, *signed)


def _one(source: Source, address: str, convert: Converter, load: Loader, *signed: float) -> Download:
    """A download of one file."""
    return Download(source, (address,), convert, load, signed)


_DOWNLOADS = [
    _uci(uci.BANKNOTE, BANKNOTE_FILE, banknote, uci.load_banknote, 0.24964, -0.2626, 0.687),
    _uci(uci.BUPA, "liver-disorders/bupa.data", bupa, uci.load_bupa, 9.91778, -2.99134, 0.68039),
    _uci(
        uci.CLEVELAND,
        "heart-disease/processed.cleveland.data",
        table(HEART_COLUMNS),
        uci.load_cleveland,
        0.81705,
        0.39277,
        4.88397,
    ),
    _uci(uci.ECOLI, "ecoli/ecoli.data", ecoli, uci.load_ecoli, -12.52884, -17.36466, 1.51712),
    _uci(uci.IONOSPHERE, "ionosphere/ionosphere.data", ionosphere, uci.load_ionosphere, -0.41086, -0.21881, 0.65283),
    _uci(uci.ROBOT, "00194/sensor_readings_24.data", robot, uci.load_robot, -1.00224, 1.34222, 1.18849),
    _uci(uci.SEGMENT, "statlog/segment/segment.dat", segment, uci.load_segment, 1.72394, 1.5969, 1.94591),
    _uci(uci.WINE, "wine/wine.data", wine, uci.load_wine, 3.3002, -0.81726, 1.08604),
    _uci(uci.YACHT, "00243/yacht_hydrodynamics.data", yacht, uci.load_yacht, -27.47836, 1.41692, 5.49316),
    _uci(uci.YEAST, "yeast/yeast.data", yeast, uci.load_yeast, 1.29455, 10.82725, 1.72623),
    Download(images.MNIST, MNIST_ADDRESSES, mnist, images.load_mnist, (1.49109, -442.83793, 2.30116), MNIST_CHECKSUMS),
    Download(images.USPS, USPS_FILES, zip_code, images.load_usps, (1.0818, -29.39789, 2.26853)),
    Download(
        images.FACES, (FACES_ADDRESS,), olivetti, images.load_faces, (-9.80455, 1.00106, 3.68888), (FACES_CHECKSUM,)
    ),
    _one(structured.OCR, OCR_ADDRESS, ocr, structured.load_ocr, -1.34259, -2.34712, 3.00005),
    Download(structured.SCENE, SCENE_FILES, multilabel(6), structured.load_scene, (0.70156, 4.39338, 0.46986)),
    _one(uci.PIMA, PIMA_ADDRESS, pima, uci.load_pima, -1.24538, 3.09961, 0.6468),
    _one(molecules.MUTAG, TU + "MUTAG.zip", graphs, molecules.load_mutag, -2.68538, 11.38708, 0.63774),
    _one(molecules.NCI1, TU + "NCI1.zip", graphs, molecules.load_nci1, -0.81772, 73.75843, 0.69315),
    _one(molecules.ESOL, MOLECULENET + "delaney-processed.csv", esol, molecules.load_esol, -0.78643, -0.26567, 6.45155),
    _one(
        molecules.FREESOLV, MOLECULENET + "SAMPL.csv", renamed({}), molecules.load_freesolv, -0.53443, -0.63392, 6.09242
    ),
    _one(
        molecules.BACE,
        MOLECULENET + "bace.csv",
        renamed({"mol": "smiles"}),
        molecules.load_bace,
        2.62587,
        -0.26651,
        6.01224,
    ),
]
DOWNLOADS: dict[str, Download] = {download.source.file: download for download in _DOWNLOADS}
