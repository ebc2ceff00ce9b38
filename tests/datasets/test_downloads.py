"""Downloads: what is published becomes what loaders read, and anything else is refused; only our server is asked."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from rich.console import Console

from representer import cli
from representer.datasets import DOWNLOADS, DownloadError, MissingDataError, downloads, fetch, fetch_all, files
from representer.datasets.downloads import signature
from representer.kernels import Graph

BANKNOTE = DOWNLOADS["banknote.csv"]


@pytest.mark.skipif(not os.environ.get("REPRESENTER_DATA"), reason="needs REPRESENTER_DATA")
@pytest.mark.parametrize(
    "file", [pytest.param(name, marks=[pytest.mark.slow] * (name == "mnist.npz")) for name in DOWNLOADS]
)
def test_signatures_are_those_of_the_published_sets(file: str) -> None:
    try:
        bunch = DOWNLOADS[file].load()
    except MissingDataError:
        pytest.skip("not at hand")
    assert signature(bunch) == pytest.approx(DOWNLOADS[file].signature, rel=1e-4, abs=1e-4)


def test_signatures_ignore_the_order_and_see_the_contents() -> None:
    rng = np.random.default_rng(0)
    data, target = rng.normal(size=(50, 3)), rng.choice(["a", "b"], 50)

    def bunch(rows: Any, data: np.ndarray = data, target: np.ndarray = target) -> Any:
        return type("Bunch", (), {"data": data[rows], "target": target[rows]})

    first, everything = signature(bunch(slice(None))), np.arange(50)
    assert signature(bunch(rng.permutation(50))) == pytest.approx(first)
    assert signature(bunch(everything[:-1])) != pytest.approx(first, rel=1e-3)
    assert signature(bunch(everything, data[:, ::-1])) != pytest.approx(first, rel=1e-3)
    shuffled = target.copy()
    shuffled[:10] = "a"
    assert signature(bunch(everything, target=shuffled)) != pytest.approx(first, rel=1e-3)


class Publisher:
    """A server of one file, and what it does with those who ask for it.

    Attributes
    ----------
    body : bytes
        The file.
    manner : str
        One of the methods of ``Handler`` below.
    """

    def __init__(self, body: bytes):
        self.body = body
        self.manner = "good"
        self.requests = 0
        self.ended = threading.Event()
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                publisher.requests += 1
                with suppress(OSError):  # who asked has gone
                    getattr(self, "missing" if "nothing" in self.path else publisher.manner)()

            def begin(self, length: int | None, **headers: str) -> None:
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()

            def good(self) -> None:
                self.begin(len(publisher.body))
                self.wfile.write(publisher.body)

            def missing(self) -> None:
                self.send_error(404)

            def truncated(self) -> None:
                self.begin(len(publisher.body))
                self.wfile.write(publisher.body[: len(publisher.body) // 2])

            def portal(self, head: bytes = b"\n <!DOCTYPE HTML>") -> None:
                page = head + b"<html><body>Please log in</body></html>"
                self.begin(len(page))
                self.wfile.write(page)

            def portal_in_xml(self) -> None:
                self.portal(b'<?xml version="1.0"?>\n')

            def portal_in_pieces(self) -> None:
                self.portal(b"<!-- a comment -->")

            def truncated_pieces(self) -> None:
                self.protocol_version = "HTTP/1.1"
                self.begin(None, Transfer_Encoding="chunked")
                self.wfile.write(b"5\r\n1,2,3\r\n5\r\n")
                self.close_connection = True

            def fifty_bytes(self) -> None:
                self.begin(len(publisher.body))
                self.wfile.write(publisher.body[:50])
                publisher.ended.wait()

            def packed(self) -> None:
                self.begin(len(publisher.body), Content_Encoding="x-gzip")
                self.wfile.write(publisher.body)

            def trickle(self) -> None:
                self.begin(len(publisher.body))
                while not publisher.ended.wait(0.02):
                    self.wfile.write(b"1")

            def trickling_head(self) -> None:
                self.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
                while not publisher.ended.wait(0.02):
                    self.wfile.write(b"1")

            def silent(self) -> None:
                publisher.ended.wait()

            def endless(self) -> None:
                self.begin(None)
                while not publisher.ended.is_set():
                    self.wfile.write(b"1,2,3,4,0\n" * 1000)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/data.txt"


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """A set of the size of banknote, published as lines without a header; it can be fetched as ``banknote.csv``."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "REPRESENTER_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(1372, 4)), rng.integers(0, 2, 1372)])
    lines = [",".join(f"{v:.4f}" for v in row[:4]) + f",{int(row[4])}" for row in rows]
    server = Publisher(("\r\n".join(lines) + "\r\n\r\n").encode())
    threading.Thread(target=server.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    original = tmp_path / "original"
    original.mkdir()
    BANKNOTE.convert([server.body], original / "banknote.csv")
    made = replace(BANKNOTE, addresses=(server.address,), signature=signature(BANKNOTE.load(folder=original)))
    monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", made)
    yield server
    server.ended.set()
    server.server.shutdown()
    server.server.server_close()


def visible(folder: Path) -> list[str]:
    """The files of a folder, without the lock of its registry."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".registry.json.lock")


def test_what_was_published_is_loaded(publisher: Publisher, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    path = fetch("banknote.csv", folder)
    assert path == folder / "banknote.csv"
    assert visible(folder) == ["banknote.csv", "registry.json"]
    assert BANKNOTE.load(folder=folder).data.shape == (1372, 4)
    publisher.manner = "missing"
    assert fetch(BANKNOTE.source, folder) == path  # it is there
    assert publisher.requests == 1
    with pytest.raises(OSError, match="the server answered 404"):
        fetch(BANKNOTE.source, folder, again=True)
    assert path.is_file()


def test_a_name_is_enough(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pooch = pytest.importorskip("pooch")
    with pytest.raises(MissingDataError, match=r"no banknote\.csv in .*`representer data fetch banknote\.csv`"):
        BANKNOTE.load()
    assert fetch("banknote") == pooch.os_cache("representer") / "banknote.csv"
    assert BANKNOTE.load().data.shape == (1372, 4)
    assert fetch("Banknote") == fetch(BANKNOTE.source) == fetch("banknote.csv")
    assert publisher.requests == 1
    monkeypatch.setenv("REPRESENTER_DATA", str(tmp_path / "named"))
    assert fetch("banknote") == tmp_path / "named" / "banknote.csv"


def test_every_set_has_its_own_names() -> None:
    names = [name for download in DOWNLOADS.values() for name in set(download.names)]
    assert len(names) == len(set(names))
    assert {"esol", "bupa", "bupa_liver", "faces", "olivetti_faces", "scene"} <= set(names)
    checksums = [checksum for download in DOWNLOADS.values() for checksum in download.checksums]
    assert len(checksums) == 5 and all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in checksums)


def test_the_home_folder_is_the_one_where_loaders_look(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert fetch("banknote.csv", "~/data") == tmp_path / "data" / "banknote.csv"
    assert BANKNOTE.load(folder="~/data").data.shape == (1372, 4)


def test_what_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"`representer data fetch banknote\.csv`.*folder="):
        BANKNOTE.load(folder=tmp_path)


def refused(folder: Path, reason: str, **options: Any) -> None:
    """Check that a download fails with one error that names file, address, reason and remedy, and leaves nothing."""
    before = {path: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}
    address = downloads.DOWNLOADS["banknote.csv"].addresses[0]
    with pytest.raises(DownloadError, match=reason) as caught:
        fetch("banknote.csv", folder, **options)
    message = str(caught.value)
    assert message.startswith(f"banknote.csv could not be fetched from {address}: ")
    assert "Traceback" not in message and " at 0x" not in message and "/." not in message, message
    assert re.search(r"[Tt]ry again|Allow more time|Look at|Choose another|Free some|Delete", message), message
    assert not folder.is_dir() or {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("missing", "the server answered 404 Not Found"),
        ("truncated", r"only \d+ of \d+ bytes arrived\. Check the connection, and try again"),
        ("truncated_pieces", r"the connection ended after 5 bytes\. Check the connection, and try again"),
        ("portal", "an HTML page came instead of the data"),
        ("portal_in_xml", "an HTML page came instead of the data"),
        ("portal_in_pieces", "an HTML page came instead of the data"),
        ("endless", "max_bytes=1000000 are allowed"),
        ("trickle", r"after 0\.5 s only \d+ bytes had arrived"),
        ("trickling_head", r"after 0\.5 s only 0 bytes had arrived"),
        ("silent", "timed out"),
    ],
)
def test_servers_that_fail(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manner: str, reason: str
) -> None:
    publisher.manner = manner
    seconds = 0.5 if "trickl" in manner else downloads.MAX_SECONDS
    with monkeypatch.context() as patch:
        if manner == "silent":
            patch.setattr(downloads, "SILENCE", 0.2)
        refused(tmp_path / "data", reason, max_seconds=seconds, max_bytes=1_000_000)
    publisher.manner = "good"
    assert fetch("banknote", tmp_path / "data").is_file()


def test_bytes_count_when_they_arrive(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher.manner = "fifty_bytes"
    monkeypatch.setattr(downloads, "SILENCE", 5.0)

    def seen(size: int, total: int) -> None:
        raise BufferError

    body = downloads._Body(1_000_000, seen)
    assert isinstance(downloads._await(publisher.address, body, 60.0), BufferError)
    assert len(body.content) == 50


def test_no_server(publisher: Publisher, tmp_path: Path) -> None:
    publisher.server.shutdown()
    publisher.server.server_close()
    refused(tmp_path / "data", "Connection refused")


def test_something_else_is_refused_and_leaves_nothing(publisher: Publisher, tmp_path: Path) -> None:
    body = publisher.body
    publisher.body = body.replace(b"-", b"")
    refused(tmp_path / "data", "is not the published set .its signature is")
    publisher.body = b"\n".join(body.splitlines()[:100])
    refused(tmp_path / "data", "is not the published set .banknote.csv has 100 rows .* 1372 were published")
    publisher.body = b"a,b\n1,2,3\n"
    refused(tmp_path / "data", "is not the published set .banknote.csv, row 2: 5 cells are expected")
    publisher.body = b""
    refused(tmp_path / "data", "is not the published set")
    publisher.body = bytes(range(256)) * 10
    refused(tmp_path / "data", "is not the published set")


@pytest.mark.parametrize("cell", ["nan", "inf", ""])
@pytest.mark.parametrize("column", [0, 4])
def test_gaps_in_a_set_that_has_none_are_refused(publisher: Publisher, tmp_path: Path, cell: str, column: int) -> None:
    lines = publisher.body.splitlines()
    cells = lines[10].split(b",")
    cells[column] = cell.encode()
    publisher.body = b"\n".join([*lines[:10], b",".join(cells), *lines[11:]])
    refused(
        tmp_path / "data",
        f"no empty cells are expected in {'class' if column else 'variance'}.*it has '{cell}' in row 12",
    )


def test_gaps_are_as_many_as_were_published(tmp_path: Path) -> None:
    table = {"ca": ["1", "", "", "nan"], "class": ["a", "b", "NaN", "c"]}
    gaps = files.number_columns(tmp_path, {"ca": table["ca"][:3]}, ["ca"], {"ca": 2})
    assert np.isnan(gaps[:, 0]).tolist() == [False, True, True]
    with pytest.raises(ValueError, match=r"3 empty cells are expected in ca.*'' in row 3, '' in row 4, 'nan' in row 5"):
        files.number_columns(tmp_path, table, ["ca"], {"ca": 3})
    with pytest.raises(ValueError, match=r"1 empty cells are expected in ca.*it has no gaps"):
        files.number_columns(tmp_path, {"ca": ["1"]}, ["ca"], {"ca": 1})
    with pytest.raises(ValueError, match="row 4: the name of a class is expected in class; it has 'NaN'"):
        files.class_column(tmp_path, table, "class")
    np.savez(tmp_path / "yacht.npz", X=np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="gaps or infinite numbers in 'X', and none were published"):
        files.read_arrays(replace(BANKNOTE.source, file="yacht.npz"), tmp_path, ["X"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fetch(3), "source must be the name of a set, such as 'esol', or a Source; got 3"),
        (lambda: fetch(None), "source must be the name of a set.*got None.*These can be fetched: "),
        (lambda: fetch("esol", 3), "folder must be the path of a folder, or None"),
        (lambda: fetch("esol", max_bytes="5"), "max_bytes must be a positive integer; got '5'"),
        (lambda: fetch("esol", max_seconds=-1), "max_seconds must be a positive, finite number; got -1"),
        (lambda: fetch_all("esol"), r"sources must be a list of names or None.*fetch\(name\)"),
        (lambda: fetch_all(3), "sources must be a list of names or None"),
        (lambda: fetch_all([3]), "1 of 1 sets could not be fetched:\nsource must be the name of a set"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def gzipped(contents: list[bytes], path: Path) -> None:
    BANKNOTE.convert([downloads._gunzip(contents[0])], path)


@pytest.mark.parametrize(
    ("convert", "body", "reason"),
    [
        (gzipped, b"1,2,3", "it is not a whole gzip file"),
        (gzipped, gzip.compress(bytes(5000))[:-5], "it is not a whole gzip file"),
        (gzipped, gzip.compress(b"1,2\n" * 99)[:12] + bytes(50), "it is not a whole gzip file"),
        (gzipped, gzip.compress(bytes(2_000_000)), "it unpacks to more than"),
        (DOWNLOADS["mutag.npz"].convert, b"PK\x03\x04 and no more", "it is not a whole ZIP file"),
        (DOWNLOADS["pima.csv"].convert, b"@relation pima\n", "it has no line @data"),
        (DOWNLOADS["olivetti_faces.npz"].convert, b"no matrix", "is not the published set"),
        (DOWNLOADS["mnist.npz"].convert, gzip.compress(b"\x00\x00\x08\x03"), "is not the published set"),
    ],
    ids=["no gzip", "cut gzip", "wrong gzip", "bomb", "no zip", "no arff", "no matrix", "cut pictures"],
)
def test_archives_that_are_no_archives(
    publisher: Publisher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    convert: Callable[..., None],
    body: bytes,
    reason: str,
) -> None:
    monkeypatch.setattr(downloads, "MAX_UNPACKED", 1_000_000)
    made = downloads.DOWNLOADS["banknote.csv"]
    monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", replace(made, convert=convert))
    publisher.body = body
    refused(tmp_path / "data", reason)


def test_gzip_files_arrive_as_they_are_stored(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = downloads.DOWNLOADS["banknote.csv"]
    publisher.body, publisher.manner = gzip.compress(publisher.body), "packed"
    checksum = hashlib.sha256(publisher.body).hexdigest()
    changed = replace(made, convert=gzipped, checksums=(checksum,))
    monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", changed)
    assert fetch("banknote", tmp_path / "data").is_file()


def test_a_wrong_checksum_is_refused(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(downloads.DOWNLOADS["banknote.csv"], checksums=("0" * 64,))
    monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", made)
    refused(tmp_path / "data", f"its SHA-256 is [0-9a-f]{{64}}, and {'0' * 64} was published")


def test_digests_of_the_first_download_are_checked_ever_after(publisher: Publisher, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    path = fetch("banknote", folder)
    record = json.loads((folder / "registry.json").read_text())["banknote.csv"]
    assert record == {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        publisher.address: hashlib.sha256(publisher.body).hexdigest(),
    }
    assert fetch("banknote", folder, again=True) == path
    publisher.body += b"\r\n"  # the same set in another file
    path.unlink()
    refused(folder, "was recorded at the first download.*delete its entry in .*registry.json")
    publisher.body = publisher.body[:-2]
    path = fetch("banknote", folder)
    good = path.read_bytes()
    path.write_bytes(good.replace(b"1", b"2", 1))  # still a table of the right size
    with pytest.raises(ValueError, match=r"is not the file that was downloaded.*`representer data fetch"):
        BANKNOTE.load(folder=folder)
    assert fetch("banknote", folder).read_bytes() == good
    assert publisher.requests == 5
    (folder / "registry.json").write_text("{")
    with pytest.raises(ValueError, match=r"registry\.json is damaged.*Delete it"):
        BANKNOTE.load(folder=folder)
    refused(folder, r"registry\.json is damaged.*Delete it")


def test_a_full_disk_is_named(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path / "data"
    made = downloads.DOWNLOADS["banknote.csv"]
    with monkeypatch.context() as patch:
        patch.setitem(downloads.DOWNLOADS, "banknote.csv", replace(made, convert=full))
        refused(folder, f"Nothing can be written to {folder / 'banknote.csv'}: No space left on device. Free some")
    with monkeypatch.context() as patch:
        patch.setattr(files.Path, "write_bytes", full)
        with pytest.raises(DownloadError, match=r"registry\.json: No space left on device. Free some space"):
            fetch("banknote", folder)
        assert visible(folder) == []
    assert fetch("banknote", folder).is_file()


def test_a_folder_that_cannot_be_written(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "data", "Nothing can be written to .*data: Not a directory. Choose another folder")


def test_processes_can_fetch_into_one_folder(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = downloads.DOWNLOADS["banknote.csv"]
    copies = [f"copy{k}.csv" for k in range(4)]
    for name in copies:
        source = replace(made.source, file=name)
        load = lambda *, folder, name=name: BANKNOTE.load(folder=_renamed(folder, name))  # noqa: E731
        load.__name__ = name
        monkeypatch.setitem(downloads.DOWNLOADS, name, replace(made, source=source, load=load))
    folder = tmp_path / "data"
    with ThreadPoolExecutor(12) as pool:
        paths = list(pool.map(lambda name: fetch(name, folder, again=True), [*copies, "banknote.csv"] * 4))
    assert visible(folder) == sorted([*copies, "banknote.csv", "registry.json"])
    assert set(json.loads((folder / "registry.json").read_text())) == {path.name for path in paths}


def _renamed(folder: str, name: str) -> Path:
    """A folder with the file under the name that its loader knows."""
    other = Path(folder) / "renamed"
    other.mkdir()
    (other / "banknote.csv").write_bytes((Path(folder) / name).read_bytes())
    return other


def test_an_unknown_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"these can: .*wine\.csv"):
        fetch("nothing.csv", tmp_path)


def test_the_next_set_is_still_fetched(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wine = replace(DOWNLOADS["wine.csv"], addresses=(publisher.address + "/nothing",))
    monkeypatch.setitem(downloads.DOWNLOADS, "wine.csv", wine)
    with pytest.raises(
        DownloadError, match=r"2 of 3 sets(.|\n)*wine.csv could not be(.|\n)*'nothing' cannot"
    ) as caught:
        fetch_all(["wine", "nothing", "banknote"], tmp_path / "data")
    assert caught.value.paths == {"banknote": tmp_path / "data" / "banknote.csv"}
    assert set(caught.value.failures) == {"wine", "nothing"}
    assert fetch_all([BANKNOTE.source], tmp_path / "data") == {"banknote.csv": tmp_path / "data" / "banknote.csv"}


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_shown(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(downloads, "LINES", 0.0)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    fetch("banknote", tmp_path / "data", console=console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "banknote.csv" in shown
    assert ("\x1b" in shown) == terminal
    assert terminal or re.search(r"banknote\.csv: \d+\.\d kB of \d+\.\d kB\n", shown)


@pytest.mark.slow
def test_pooch_is_imported_by_downloads_only() -> None:
    code = "import sys, representer.datasets as d; sys.exit(bool({'pooch', 'requests'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_converters_of_other_forms(tmp_path: Path) -> None:
    wine = tmp_path / "wine.csv"
    DOWNLOADS["wine.csv"].convert([b"1,14.23,1.71\n3,13.2,1.78\n"], wine)
    assert wine.read_text().splitlines()[1:] == ["14.23,1.71,1", "13.2,1.78,3"]
    segment = tmp_path / "segment.csv"
    DOWNLOADS["segment.csv"].convert([b"140.0 125.0 9 7\n1.0 2.0 9 1\n"], segment)
    assert segment.read_text().splitlines()[1:] == ["140.0,125.0,9,grass", "1.0,2.0,9,brickface"]
    cleveland = tmp_path / "cleveland.csv"
    DOWNLOADS["cleveland_heart.csv"].convert([b"1.0,?,2.0,0\n"], cleveland)
    assert cleveland.read_text().splitlines()[1:] == ["1.0,,2.0,0"]
    images, labels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([7, 1], dtype=np.uint8)

    def idx(array: np.ndarray) -> bytes:
        sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
        return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())

    DOWNLOADS["mnist.npz"].convert([idx(images), idx(labels), idx(images[:1]), idx(labels[:1])], tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as arrays:
        np.testing.assert_array_equal(arrays["X_train"], images)
        np.testing.assert_array_equal(arrays["y_test"], [7])


def test_converters_of_pictures_and_letters(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grey = rng.uniform(-1, 1, (3, 256)).round(3)
    lines = ["4.0000 " + " ".join(map(str, row)) + " " for row in grey]  # a space ends the published lines
    published = [gzip.compress("\n".join(part).encode()) for part in (lines[:2], lines[2:])]
    DOWNLOADS["usps.npz"].convert(published, tmp_path / "usps.npz")
    with np.load(tmp_path / "usps.npz") as arrays:
        np.testing.assert_allclose(arrays["X_train"], (grey[:2] + 1) / 2, atol=1e-6)
        assert arrays["y_test"].tolist() == [4]
    faces = rng.integers(0, 256, (20, 64, 64)).astype(np.uint8)
    scipy.io.savemat(tmp_path / "faces.mat", {"faces": faces.transpose(0, 2, 1).reshape(20, -1).T})
    DOWNLOADS["olivetti_faces.npz"].convert([(tmp_path / "faces.mat").read_bytes()], tmp_path / "faces.npz")
    with np.load(tmp_path / "faces.npz") as arrays:
        np.testing.assert_array_equal(arrays["images"], faces)
        assert arrays["target"].tolist() == [0] * 10 + [1] * 10
    pixels = rng.integers(0, 2, (3, 128))
    heads = (("1", "o", "2", "1", "1", "0"), ("2", "k", "-1", "1", "2", "0"), ("3", "a", "-1", "2", "1", "7"))
    rows = ["\t".join([*head, *map(str, row)]) + "\t" for head, row in zip(heads, pixels, strict=True)]
    DOWNLOADS["ocr_letters.npz"].convert([gzip.compress("\n".join(rows).encode())], tmp_path / "ocr.npz")
    with np.load(tmp_path / "ocr.npz") as arrays:
        np.testing.assert_array_equal(arrays["pixels"], pixels)
        assert arrays["word"].tolist() == ["ok", "a"] and arrays["fold"].tolist() == [0, 7]
        assert arrays["letter"].tolist() == [14, 10, 0] and arrays["word_offset"].tolist() == [0, 2, 3]


def test_converters_of_tables_and_graphs(tmp_path: Path) -> None:
    labels = "".join(f"@attribute L{k} {{0,1}}\n" for k in range(6))
    head = f"% text\n@relation scene\n\n@attribute 'A 1' numeric\n@attribute A2 numeric\n{labels}\n@DATA\n"
    published = [(head + rows).encode() for rows in ("0.5,1,0,0,0,0,0,1\n", "2,3,1,0,0,0,0,0\n4,5,0,1,0,0,0,0\n")]
    DOWNLOADS["scene_ml.npz"].convert(published, tmp_path / "scene.npz")
    with np.load(tmp_path / "scene.npz") as arrays:
        assert arrays["X"].tolist() == [[0.5, 1], [2, 3], [4, 5]] and arrays["Y"].sum(1).tolist() == [1, 1, 1]
        assert arrays["is_train"].tolist() == [True, False, False]
        assert arrays["label_name"].tolist() == [f"L{k}" for k in range(6)]
    pima = b"@attribute preg numeric\n@data\n6,148,72,35,0,33.6,0.627,50,tested_positive\n"
    DOWNLOADS["pima.csv"].convert([pima], tmp_path / "pima.csv")
    assert (tmp_path / "pima.csv").read_text().splitlines()[1] == "6,148,72,35,0,33.6,0.627,50,1"
    esol = b'Compound ID,measured log solubility in mols per litre,smiles\n"a,b",-0.77,CO\n'
    DOWNLOADS["esol.csv"].convert([esol], tmp_path / "esol.csv")
    assert (tmp_path / "esol.csv").read_text().splitlines() == [
        "Compound ID,log_solubility,smiles",
        '"a,b",-0.77,CO',
    ]
    files = {"A": "1, 2\n2, 1\n3, 4\n4, 3", "graph_indicator": "1\n1\n2\n2", "graph_labels": "-1\n1"}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in {**files, "node_labels": "0\n1\n1\n1", "edge_labels": "0\n0\n2\n2"}.items():
            archive.writestr(f"MUTAG/MUTAG_{name}.txt", text + "\n")
        archive.writestr("MUTAG/README.txt", "text")
    DOWNLOADS["mutag.npz"].convert([stream.getvalue()], tmp_path / "mutag.npz")
    with np.load(tmp_path / "mutag.npz") as arrays:
        assert arrays["edges"].tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]
        assert arrays["graph_of_node"].tolist() == [0, 0, 1, 1] and arrays["graph_label"].tolist() == [-1, 1]
        assert arrays["node_label"].tolist() == [0, 1, 1, 1] and arrays["edge_label"].tolist() == [0, 0, 2, 2]


def test_signatures_of_graphs_strings_and_sets_of_labels() -> None:
    def bunch(data: Any, target: Any) -> Any:
        return type("Bunch", (), {"data": data, "target": np.array(target)})

    graphs = [
        Graph([(0, 1)], ["C", "O"]),
        Graph([(0, 1), (1, 2)], ["C", "C", "C"]),
        Graph([(0, 1)], ["C", "C"]),
    ]
    first = signature(bunch(graphs, [0, 1, 1]))
    assert signature(bunch(graphs[::-1], [1, 1, 0])) == pytest.approx(first)
    renamed = [Graph(g.edges, [{"C": 6, "O": 8}[label] for label in g.node_labels]) for g in graphs]
    assert signature(bunch(renamed, [0, 1, 1])) == pytest.approx(first)
    other = [Graph([(0, 1)], ["O", "O"]), *graphs[1:]]
    assert signature(bunch(other, [0, 1, 1])) != pytest.approx(first)
    assert signature(bunch(["CO", "C"], [0.5, 1.0])) == signature(bunch(["OC", "C"], [0.5, 1.0]))
    sets = np.array([[0, 1], [0, 0], [1, 1]])
    assert signature(bunch(np.eye(3), sets)) != pytest.approx(signature(bunch(np.eye(3), sets[:, ::-1])))


def test_the_command(publisher: Publisher, tmp_path: Path) -> None:
    testing = pytest.importorskip("typer.testing")
    runner = testing.CliRunner()
    application = cli.make_application()
    default = runner.invoke(application, ["data", "fetch", "banknote"])
    assert default.exit_code == 0
    assert (tmp_path / "cache" / "representer" / "banknote.csv").is_file()
    (tmp_path / "file").touch()
    unwritable = runner.invoke(application, ["data", "fetch", "banknote.csv", "--folder", str(tmp_path / "file")])
    assert unwritable.exit_code == 2
    assert "Nothing can be written" in unwritable.output
    arguments = ["data", "fetch", "nothing.csv", "banknote.csv", "--folder", str(tmp_path / "data"), "--json"]
    result = runner.invoke(application, arguments)
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert record["found"] == {"banknote.csv": str(tmp_path / "data" / "banknote.csv")}
    assert "these can" in record["failed"]["nothing.csv"]
