"""Downloads: what is published becomes what loaders read, and anything else is refused; only our server is asked."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from representer import cli
from representer.datasets import DOWNLOADS, MissingDataError, downloads, fetch
from representer.datasets.downloads import signature
from representer.kernels import Graph

BANKNOTE = DOWNLOADS["banknote.csv"]


@pytest.mark.skipif(not os.environ.get("REPRESENTER_DATA"), reason="needs REPRESENTER_DATA")
@pytest.mark.parametrize("file", list(DOWNLOADS))
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


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of the size of banknote, published as lines without a header."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(1372, 4)), rng.integers(0, 2, 1372)])
    lines = [",".join(f"{v:.4f}" for v in row[:4]) + f",{int(row[4])}" for row in rows]
    path = tmp_path / "published.txt"
    path.write_text("\r\n".join(lines) + "\r\n\r\n")
    known = tmp_path / "known"
    known.mkdir()
    BANKNOTE.convert([path.read_bytes()], known / "banknote.csv")
    made = replace(BANKNOTE, addresses=(path.as_uri(),), signature=signature(BANKNOTE.load(folder=known)))
    monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", made)
    return path


def test_what_was_published_is_loaded(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    path = fetch("banknote.csv", folder)
    assert path == folder / "banknote.csv"
    assert [entry.name for entry in folder.iterdir()] == ["banknote.csv"]
    assert BANKNOTE.load(folder=folder).data.shape == (1372, 4)
    published.unlink()
    assert fetch(BANKNOTE.source, folder) == path  # it is there
    with pytest.raises(OSError, match="could not be read"):
        fetch(BANKNOTE.source, folder, again=True)
    assert path.is_file()


def test_the_home_folder_is_the_one_where_loaders_look(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert fetch("banknote.csv", "~/data") == tmp_path / "data" / "banknote.csv"
    assert BANKNOTE.load(folder="~/data").data.shape == (1372, 4)


def test_what_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"`representer data fetch banknote\.csv`.*folder="):
        BANKNOTE.load(folder=tmp_path)


def test_something_else_is_refused_and_leaves_nothing(published: Path, tmp_path: Path) -> None:
    lines = published.read_text().splitlines()
    published.write_text("\n".join(line.replace("-", "") for line in lines))
    with pytest.raises(ValueError, match="is not the set that was published"):
        fetch("banknote.csv", tmp_path / "data")
    published.write_text("\n".join(lines[:100]))
    with pytest.raises(ValueError, match="1372 were published"):
        fetch("banknote.csv", tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


def test_a_wrong_checksum_is_refused(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(downloads.DOWNLOADS["banknote.csv"], checksums=("0" * 32,))
    monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", made)
    with pytest.raises(ValueError, match="not received whole"):
        fetch("banknote.csv", tmp_path / "data")


def test_an_unknown_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"these can: .*wine\.csv"):
        fetch("nothing.csv", tmp_path)


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


def test_a_server_is_asked(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=str(published.parent))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        made = downloads.DOWNLOADS["banknote.csv"]
        monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", replace(made, addresses=(address + published.name,)))
        assert BANKNOTE.load(folder=fetch("banknote.csv", tmp_path / "data").parent).data.shape == (1372, 4)
        monkeypatch.setitem(downloads.DOWNLOADS, "banknote.csv", replace(made, addresses=(address + "nothing",)))
        with pytest.raises(OSError, match=r"nothing could not be read: HTTP Error 404"):
            fetch("banknote.csv", tmp_path / "other")
        server.shutdown()


def test_the_command(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("typer.testing")
    runner = testing.CliRunner()
    monkeypatch.delenv("REPRESENTER_DATA", raising=False)
    application = cli.make_application()
    nowhere = runner.invoke(application, ["data", "fetch", "banknote.csv"])
    assert nowhere.exit_code == 2
    assert "--folder" in nowhere.output
    nothing = runner.invoke(application, ["data", "fetch", "banknote.csv", "--folder", str(published)])
    assert nothing.exit_code == 2
    assert "Nothing can be written" in nothing.output
    arguments = ["data", "fetch", "banknote.csv", "nothing.csv", "--folder", str(tmp_path / "data"), "--json"]
    result = runner.invoke(application, arguments)
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert record["found"] == {"banknote.csv": str(tmp_path / "data" / "banknote.csv")}
    assert "these can" in record["failed"]["nothing.csv"]
