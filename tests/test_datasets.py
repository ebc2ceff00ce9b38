"""Data: the test functions against their formulas, and loaders against files, present, absent and broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from representer import datasets
from representer.datasets import (
    MissingDataError,
    jump,
    kink,
    load_esol,
    load_segment,
    load_usps,
    load_yacht,
    make_bumps,
    make_jump,
    make_kink,
    make_motif_strings,
    square_grid,
    straight_kink,
)

LOADERS = tuple(getattr(datasets, name) for name in datasets.__all__ if name.startswith("load_"))


# --- functions -------------------------------------------------------------------------------------------------------


def test_functions_are_the_formulas_of_the_paper(rng: np.random.Generator) -> None:
    X = rng.uniform(-1, 1, (50, 2))
    assert kink(X).tolist() == [1 / (0.1 + abs(x - y)) for x, y in X]
    assert straight_kink(X).tolist() == [1 / (0.1 + abs(x)) for x, _ in X]
    assert jump(X).tolist() == [1.0 if x * y > 3 / 20 else 0.0 for x, y in X]
    assert 0 < jump(X).sum() < 50
    assert kink([[0.3, 0.3]]).tolist() == [10.0]


@pytest.mark.parametrize(("make", "function"), [(make_kink, kink), (make_jump, jump)])
def test_samples(make: Callable[..., Any], function: Callable[..., Any]) -> None:
    X, y = make(2000, noise=0.1, random_state=0)
    assert X.shape == (2000, 2)
    assert np.abs(X).max() <= 1
    assert np.allclose(X.mean(0), 0, atol=0.05)  # sd of the mean: 0.58/√2000 = 0.013
    assert np.allclose(X.var(0), 1 / 3, atol=0.03)
    residual = y - function(X)
    assert np.std(residual) == pytest.approx(0.1, rel=0.1)
    again, other = make(2000, noise=0.1, random_state=0), make(2000, noise=0.1, random_state=1)
    assert np.array_equal(again[0], X) and np.array_equal(again[1], y)
    assert not np.array_equal(other[0], X)
    X, y = make(random_state=np.random.RandomState(0))
    assert len(y) == 100
    assert 0.005 < np.std(y - function(X)) < 0.02


def test_strings_hold_the_motif_up_to_two_letters() -> None:
    strings, classes = make_motif_strings(60, length=30, random_state=0)
    assert {len(s) for s in strings} == {30} and set("".join(strings)) == set("ACGT")
    assert classes.tolist() == [0, 1] * 30
    letters = np.array([list(s) for s in strings])
    windows = np.lib.stride_tricks.sliding_window_view(letters, 10, axis=1)
    agreement = (windows == np.array(list("GATTACAGCT"))).sum(-1).max(1)
    assert agreement[classes == 1].min() >= 8 and agreement[classes == 0].mean() < 7
    assert make_motif_strings(60, length=30, random_state=0)[0] == strings
    assert make_motif_strings(60, length=30, random_state=1)[0] != strings
    assert len(make_motif_strings(3, length=10, random_state=np.random.default_rng(0))[0][0]) == 10
    with pytest.raises(ValueError, match="length must be at least 10"):
        make_motif_strings(length=9)


def test_bumps_are_higher_on_their_side() -> None:
    curves, classes = make_bumps(60, noise=0.0, random_state=0)
    assert classes.tolist() == [0, 1] * 30
    for times, values in curves:
        assert times[0] == 0.0 and times[-1] == 1.0 and (np.diff(times) > 0).all()
        assert len(times) == len(values) and values.max() < 1.3
    late = np.array([t[values.argmax()] > 0.5 for t, values in curves])
    assert np.mean(late == classes) > 0.8
    noisy, _ = make_bumps(2, noise=0.2, random_state=0)
    assert np.array_equal(noisy[0][0], curves[0][0])
    assert 0.1 < np.std(noisy[0][1] - curves[0][1]) < 0.3


def test_grid_has_the_mesh_width_of_the_paper() -> None:
    grid = square_grid()
    assert grid.shape == (101**2, 2)
    assert len(np.unique(grid, axis=0)) == 101**2
    assert np.allclose(np.diff(np.unique(grid[:, 0])), 1 / 50)
    assert square_grid(2).tolist() == [[-1, -1], [1, -1], [-1, 1], [1, 1]]
    picture = (10 * grid[:, 0] + grid[:, 1]).reshape(101, 101)  # x along the rows, y down the columns
    assert picture[0, -1] == 9 and picture[-1, 0] == -9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kink([1.0, 2.0]), r"\(n_samples, 2\); got shape \(2,\)"),
        (lambda: jump(np.zeros((3, 3))), r"got shape \(3, 3\)"),
        (lambda: make_kink(0), "n_samples must be positive"),
        (lambda: make_jump(5, noise=-1.0), "noise at least 0"),
        (lambda: square_grid(1), "at least 2 points"),
        (lambda: load_usps("valid"), "subset must be"),
        (lambda: datasets.load_cleveland("num"), "target must be 'cholesterol' or 'diagnosis'"),
    ],
)
def test_bad_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- files that are not there, or not what they should be ------------------------------------------------------------


@pytest.mark.parametrize("load", LOADERS)
def test_missing_files_are_named_with_variable_and_source(
    load: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = load.__name__.removeprefix("load_")
    source = getattr(datasets, name.upper())
    monkeypatch.delenv("REPRESENTER_DATA", raising=False)
    with pytest.raises(MissingDataError, match="REPRESENTER_DATA is not set") as unset:
        load()
    monkeypatch.setenv("REPRESENTER_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match=f"no {source.file} in") as absent:
        load()
    for caught in (unset, absent):
        assert source.file in str(caught.value)
        assert source.origin in str(caught.value)
        assert "REPRESENTER_DATA" in str(caught.value)
    assert issubclass(MissingDataError, FileNotFoundError)


HEADER = ",".join([*(f"x{i}" for i in range(6)), "resistance"])
ROW = "1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (HEADER, [ROW] * 307, "307 rows below the header; 308"),
        (HEADER, [ROW] * 307 + [ROW + ",8"], "row 309: 7 cells"),
        (HEADER, [ROW] * 307 + ["a" + ROW[1:]], "Numbers are expected"),
        (HEADER.replace("resistance", "drag"), [ROW] * 308, "no column 'resistance'; it has x0"),
        (HEADER.replace("x5,", ""), [ROW[:-2]] * 308, r"shape \(308, 5\).*\(308, 6\)"),
    ],
)
def test_broken_tables_are_refused(tmp_path: Path, header: str, rows: list[str], message: str) -> None:
    (tmp_path / "yacht.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_yacht(folder=tmp_path)


def test_broken_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "usps.npz", X_train=np.zeros((5, 256)), y_train=np.zeros(5))
    with pytest.raises(ValueError, match=r"shape \(5, 256\).*\(7291, 256\)"):
        load_usps("train", folder=tmp_path)
    with pytest.raises(ValueError, match="no array 'X_test'"):
        load_usps("test", folder=tmp_path)


def test_a_table_is_read_as_it_stands(tmp_path: Path) -> None:
    rows = [",".join(str(7 * i + j) for j in range(7)) for i in range(308)]
    (tmp_path / "yacht.csv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    bunch = load_yacht(folder=str(tmp_path))
    assert np.array_equal(np.column_stack([bunch.data, bunch.target]), np.arange(7.0 * 308).reshape(308, 7))
    assert bunch.feature_names == [f"x{i}" for i in range(6)]
    assert bunch.filename == str(tmp_path / "yacht.csv")


# --- the real sets, where they are at hand ---------------------------------------------------------------------------

needs_data = pytest.mark.skipif(
    not os.environ.get("REPRESENTER_DATA"), reason="REPRESENTER_DATA names no folder of data sets"
)


@needs_data
def test_real_tables() -> None:
    bunch = load_yacht()
    assert bunch.data.shape == (308, 6) and bunch.target.min() == 0.01 and bunch.target.max() == 62.42
    bunch = load_segment()
    assert bunch.data.shape == (2310, 19)
    names, counts = np.unique(bunch.target, return_counts=True)
    assert counts.tolist() == [330] * 7 and names.tolist() == bunch.target_names.tolist()
    assert np.flatnonzero(np.ptp(bunch.data, axis=0) == 0).tolist() == [
        bunch.feature_names.index("region_pixel_count")
    ]
    bunch = datasets.load_bupa()
    assert np.bincount(bunch.target).tolist() == [0, 145, 200] and bunch.feature_names[-1] == "drinks"
    bunch = datasets.load_cleveland()
    assert bunch.target.min() == 126 and bunch.target.max() == 564 and "chol" not in bunch.feature_names
    missing = dict(zip(bunch.feature_names, np.isnan(bunch.data).sum(0), strict=True))
    assert {name: n for name, n in missing.items() if n} == {"ca": 4, "thal": 2}
    bunch = datasets.load_cleveland("diagnosis")
    assert bunch.target_names.tolist() == [0, 1, 2, 3, 4] and "chol" in bunch.feature_names
    bunch = load_esol()
    assert bunch.data.shape == bunch.target.shape == (1128,)
    assert all(isinstance(text, str) for text in bunch.data)
    assert "Delaney" in bunch.DESCR


@needs_data
def test_real_digits() -> None:
    train, test, both = load_usps("train"), load_usps("test"), load_usps()
    assert np.array_equal(np.concatenate([train.data, test.data]), both.data)
    assert np.array_equal(np.concatenate([train.target, test.target]), both.target)
    assert both.images.shape == (9298, 16, 16) and both.data.min() == 0 and both.data.max() == 1
    assert np.unique(both.target).tolist() == list(range(10))


@needs_data
def test_real_molecules_and_faces() -> None:
    for load, mean in ((datasets.load_freesolv, -3.8), (datasets.load_bace, 6.5)):
        bunch = load()
        assert len(bunch.data) == len(bunch.target) and all(isinstance(text, str) for text in bunch.data)
        assert abs(bunch.target.mean() - mean) < 0.1
    bunch = datasets.load_nci60()
    assert set(np.unique(bunch.data)) == set(np.unique(bunch.target)) == {0.0, 1.0}
    assert len(bunch.target_names) == 60 and abs(bunch.target.mean() - 0.19) < 0.01
    bunch = datasets.load_metabolites()
    assert np.array_equal(bunch.data, bunch.data.T) and np.allclose(bunch.data.diagonal(), 1.0)
    bunch = datasets.load_faces()
    assert bunch.images.shape == (400, 64, 64) and 0 <= bunch.data.min() < bunch.data.max() <= 1
