"""Fits that go on where they were killed: a journal in a file, and the callback that keeps it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import numpy as tensors

from representer.optimize import as_seconds
from representer.persistence.container import ModelFileError, write_at_once
from representer.persistence.files import library_version
from representer.persistence.records import fingerprint
from representer.persistence.state import Reader, Writer, known, name_of
from representer.samples import Data, Journal, close_journal, is_dask, open_journal

HEAD = struct.Struct("<QI32s")  # the lengths of a record and of the JSON in it, and the digest of the record
HEAD_ROWS = 100  # the rows of each of three chunks by which collections on Dask are told apart
# Arguments that change the time or the output of a fit, but not its results.
FREE = ("max_time", "verbose", "n_jobs")


class Checkpoint:
    """A callback that writes down the results of a long fit, so that it goes on after a crash.

    Run the same program again: the same learner with the same arguments and data finds its file in the folder and reads
    the results that are there (evaluations of searches by L-BFGS and Adam, sums over blocks in memory or on Dask). It
    computes the rest, and ends where it would have ended undisturbed. The file is removed at the end of the fit; after
    Ctrl-C, or if ``max_time`` ended the search, it stays.

    Parameters
    ----------
    path : str or path
        A folder; each unfinished fit has a file there, whose name depends on its data and arguments.
    every : float or str, default="30s"
        The time between two writes, in seconds or as a text such as "30s" or "5m". A crash loses at most that much.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from representer import Checkpoint, OperatorRidge
    >>> X = np.linspace(0, 3, 30)[:, None]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = OperatorRidge().set_callbacks(Checkpoint(folder, every="1s")).fit(X, np.sin(X[:, 0]))
    """

    def __init__(self, path: str | os.PathLike[str], every: float | str = "30s"):
        self.path = Path(path)
        self.every = every
        self._seconds = as_seconds(every)
        self._open: dict[int, tuple[FileJournal, Token[Journal | None]]] = {}  # by the id of the estimator

    def setup(self, estimator: object, context: object) -> None:
        """Do nothing: the file is opened when the data are known."""

    def on_fit_task_begin(
        self, estimator: Any, context: Any, *, X: Data = None, y: Data = None, metadata: Any = None
    ) -> None:
        """Open the file of a fit that begins."""
        if context.task_name == "fit":
            name = f"{type(estimator).__name__}-{identity(estimator, X, y, metadata or {})}.journal"
            journal = FileJournal(self.path / name, self._seconds)
            self._open[id(estimator)] = (journal, open_journal(journal))

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Mark a fit that has ended by itself as complete, so that its file is removed."""
        journal, _ = self._open.get(id(estimator), (None, None))
        if context.task_name == "fit" and journal is not None:
            missed = getattr(getattr(estimator, "_deadline", None), "was_missed", False)
            journal.is_complete = not (journal.was_interrupted or missed)
        return False

    def teardown(self, estimator: object, context: object) -> None:
        """Write the results that are not written yet, whatever ended the fit."""
        journal, token = self._open.pop(id(estimator), (None, None))
        if journal is not None and token is not None:
            close_journal(token)
            journal.close()


def identity(learner: Any, X: Data, y: Data, more: dict[str, Any]) -> str:
    """A digest of a fit: of the learner, its arguments, its data and the version of the library."""
    digest = hashlib.sha256(f"{name_of(type(learner))} {library_version()}".encode())
    arguments = {name: value for name, value in learner.get_params(deep=False).items() if name not in FREE}
    for name, value in {**arguments, "X": X, "y": y, **more}.items():
        digest.update(f" {name}=".encode())
        digest.update(_text_of(value, name in arguments).encode())
    return digest.hexdigest()[:16]


def _text_of(value: Any, is_argument: bool) -> str:
    """A text that is the same for equal arguments or data."""
    if is_argument or value is None:
        writer = Writer(known())
        try:
            content = [writer.value(value), writer.nodes, [fingerprint(array) for array in writer.arrays.values()]]
        except ModelFileError:  # a function without a name
            content = [getattr(value, "__qualname__", type(value).__qualname__)]
        return json.dumps(content)
    return _text_on_dask(value) if is_dask(value) else str(fingerprint(value))


def _text_on_dask(value: Any) -> str:
    """The chunks of a collection on Dask, between which an interrupted sum goes on, and rows of three of them."""
    n = value.npartitions
    places = sorted({0, n // 2, n - 1})
    if hasattr(value, "rechunk"):
        numbers = np.unravel_index(places, value.numblocks)
        chunks = [value.blocks[tuple(int(i) for i in place)] for place in zip(*numbers, strict=True)]
        form = f"{value.dtype} {value.chunks}"
    else:
        chunks = [value.partitions[place] for place in places]
        form = f"{n} {getattr(value, 'columns', value.name if hasattr(value, 'name') else '')}"
    rows = [chunk.compute()[:HEAD_ROWS] for chunk in chunks]
    return f"{form} {[fingerprint(head) for head in rows]}"


@contextmanager
def resuming(folder: Path, *texts: str | bytes, every: float = 30.0) -> Iterator[None]:
    """A context that writes its results to a file, whose name depends on the texts, and reads those that are there.

    The file is removed when all has ended by itself, or by an error; so is the folder, if nothing else is in it.
    """
    mark = hashlib.sha256(library_version().encode())
    for text in texts:
        mark.update(hashlib.sha256(text if isinstance(text, bytes) else text.encode()).digest())
    journal = FileJournal(folder / f"{mark.hexdigest()[:16]}.journal", every)
    token = open_journal(journal)
    try:
        yield
        journal.is_complete = not journal.was_interrupted
    except Exception:
        journal.is_complete = True  # it would fail again
        raise
    finally:
        close_journal(token)
        journal.close()
        with contextlib.suppress(OSError):
            folder.rmdir()


class FileJournal(Journal):
    """A journal in a file to which answers are appended, with an unfinished sum in a second file.

    Every record has its length and digest, so that one which a crash has cut off is not read. A lock keeps other fits
    from the file.
    """

    def __init__(self, path: Path, every: float):
        from filelock import FileLock, Timeout

        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.every = path, every
        self.lock = FileLock(f"{path}.lock")
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            raise ModelFileError(f"Another fit, to the same data, writes to {str(path)!r}. Wait for it.") from None
        self.file: BinaryIO = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115
        self.known = known()
        self.is_read = self.is_complete = self.was_interrupted = False
        self.written = time.monotonic()

    @property
    def sums(self) -> Path:
        """The file of the unfinished sum."""
        return self.path.with_suffix(".sum")

    def answer(self, question: str, compute: Callable[[], Any]) -> Any:
        """The next answer of the file, if it belongs to this question; after the first other one, all are computed."""
        start = self.file.tell()
        if not self.is_read:
            record = read_record(self.file, self.known)
            if record is not None and record[0] == question:
                return record[1]
            self.file.seek(start)  # it may be the answer to a question that the computation asks
        try:
            value = compute()
        except KeyboardInterrupt:
            self.was_interrupted = True
            raise
        if self.file.tell() == start:
            if not self.is_read:
                self.is_read = True
                self.file.truncate()
            self.file.write(record_bytes([question, value], self.known))
            if time.monotonic() - self.written >= self.every:
                self._flush()
        return value

    def _flush(self) -> None:
        """Force the answers onto the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.written = time.monotonic()

    def sum_so_far(self, question: str) -> tuple[int, Any]:
        """The unfinished sum, if it belongs to this question."""
        if self.sums.exists():
            with open(self.sums, "rb") as file:
                record = read_record(file, self.known)
            if record is not None and record[:2] == [question, self.file.tell()]:
                return record[2], record[3]
        return 0, None

    def keep_sum(self, question: str, n_terms: int, value: object) -> None:
        """Replace the file of the unfinished sum, unless that was done a short while ago."""
        if time.monotonic() - self.written >= self.every:
            self._flush()
            record = record_bytes([question, self.file.tell(), n_terms, value], self.known)
            write_at_once(self.sums, lambda file: file.write(record))

    def close(self) -> None:
        """Close the file, or remove that of a complete fit."""
        if not self.is_complete:
            self._flush()
        self.file.close()
        if self.is_complete:
            self.path.unlink(missing_ok=True)
            self.sums.unlink(missing_ok=True)
        self.lock.release()
        with contextlib.suppress(OSError):
            os.unlink(self.lock.lock_file)


def record_bytes(value: Any, names: Any) -> bytes:
    """A value as one record: lengths, digest, JSON, arrays."""
    writer = Writer(names)
    text = json.dumps({"root": writer.value(value), "nodes": writer.nodes}).encode()
    content = text + tensors.save(writer.arrays)
    return HEAD.pack(len(content), len(text), hashlib.sha256(content).digest()) + content


def read_record(file: BinaryIO, names: Any) -> Any:
    """The value of the next record; None if there is no whole record."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, end, expected = HEAD.unpack(head)
    content = file.read(length) if length < 2**40 else b""
    if len(content) < length or hashlib.sha256(content).digest() != expected:
        return None
    state = json.loads(content[:end])
    return Reader(state["nodes"], tensors.load(content[end:]), names).value(state["root"])
