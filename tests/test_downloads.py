"""Downloads: what is published becomes what loaders read, and anything else is refused. Nothing here uses a network."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from representer import cli
from representer.datasets import DOWNLOADS, MissingDataError, downloads, fetch
from representer.datasets.downloads import signature

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


def test_something_else_is_refused_and_leaves_nothing(published: Path, tmp_path: Path) -> None:
    lines = published.read_text().splitlines()
    published.write_text("\n".join(line.replace("-", "") for line in lines))
    with pytest.raises(ValueError, match="is not the set that was published"):
        fetch("banknote.csv", tmp_path / "data")
    published.write_text("\n".join(lines[:100]))
    with pytest.raises(ValueError, match="1372 were published"):
        fetch("banknote.csv", tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


def test_a_wrong_checksum_is_refused(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replace(downloads.DOWNLOADS["banknote.csv"], md5=("0" * 32,))
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

    DOWNLOADS["mnist.npz"].convert(
        [idx(images), idx(labels), idx(images[:1]), idx(labels[:1])], tmp_path / "m.npz"
    )
    with np.load(tmp_path / "m.npz") as arrays:
        np.testing.assert_array_equal(arrays["X_train"], images)
        np.testing.assert_array_equal(arrays["y_test"], [7])


def test_the_command(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("typer.testing")
    runner = testing.CliRunner()
    monkeypatch.delenv("REPRESENTER_DATA", raising=False)
    application = cli.make_application()
    nowhere = runner.invoke(application, ["data", "fetch", "banknote.csv"])
    assert nowhere.exit_code == 2
    assert "--folder" in nowhere.output
    arguments = ["data", "fetch", "banknote.csv", "nothing.csv", "--folder", str(tmp_path / "data"), "--json"]
    result = runner.invoke(application, arguments)
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert record["found"] == {"banknote.csv": str(tmp_path / "data" / "banknote.csv")}
    assert "these can" in record["failed"]["nothing.csv"]
