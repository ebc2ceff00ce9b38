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
    load_mutag,
    load_nci1,
    load_segment,
    load_usps,
    load_yacht,
    make_bumps,
    make_circles3,
    make_jump,
    make_kink,
    make_shapes,
    make_strings,
    make_synth1,
    make_synth2,
    make_synth3,
    square_grid,
    straight_kink,
)
from representer.kernels import Graph

LOADERS = tuple(
    getattr(datasets, name) for name in datasets.__all__ if name.startswith("load_") and name != "load_boiling_points"
)


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
    strings, classes = make_strings(60, length=30, random_state=0)
    assert {len(s) for s in strings} == {30} and set("".join(strings)) == set("ACGT")
    assert classes.tolist() == [0, 1] * 30
    letters = np.array([list(s) for s in strings])
    windows = np.lib.stride_tricks.sliding_window_view(letters, 10, axis=1)
    agreement = (windows == np.array(list("GATTACAGCT"))).sum(-1).max(1)
    assert agreement[classes == 1].min() >= 8 and agreement[classes == 0].mean() < 7
    assert make_strings(60, length=30, random_state=0)[0] == strings
    assert make_strings(60, length=30, random_state=1)[0] != strings
    assert len(make_strings(3, length=10, random_state=np.random.default_rng(0))[0][0]) == 10
    with pytest.raises(ValueError, match="length must be at least 10"):
        make_strings(length=9)


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


def test_circles() -> None:
    X, circle = make_circles3(3000, random_state=0)
    radius = np.linalg.norm(X, axis=1)
    for number, expected in enumerate((0.5, 1.5, 2.5)):
        assert radius[circle == number].mean() == pytest.approx(expected, abs=0.02)
        assert radius[circle == number].std() == pytest.approx(0.1, rel=0.1)
        assert np.abs(X[circle == number].mean(0)).max() < 0.2
    assert np.bincount(circle).min() > 900
    assert np.array_equal(make_circles3(3000, random_state=0)[0], X)


def test_synthetic_sets_of_deep_kernel_pca() -> None:
    X = make_synth1(2000, noise=0.0, random_state=0)
    assert np.allclose(np.abs(X).max(1), 1.0)  # on the square
    assert np.allclose(X.mean(0), 0.0, atol=0.08) and np.allclose(X.var(0), 2 / 3, atol=0.05)
    noise = make_synth1(2000, random_state=0) - X
    assert noise.std() == pytest.approx(0.05, rel=0.05)

    X, part = make_synth2(5000, noise=0.0, random_state=0)
    assert np.bincount(part).tolist() == [1000, 1000, 1000, 2000]
    assert np.allclose(np.abs(X[part == 0] - [-3.0, 2.5]).max(1), 2.0)
    for number, centre, width in ((1, [5.0, 0.0], 0.2), (2, [-4.0, -2.0], 0.15)):
        arm = X[part == number] - centre
        turns = np.linalg.norm(arm, axis=1) / width  # the angle of the spiral of Archimedes, up to 4 turns
        assert turns.max() == pytest.approx(8 * np.pi, rel=0.01)
        assert np.allclose(np.cos(turns), arm[:, 0] / (width * turns)) and np.allclose(
            np.sin(turns), arm[:, 1] / (width * turns)
        )
    ring = np.linalg.norm(X[part == 3] - [14.0, 0.0], axis=1)
    assert np.unique(ring.round(6)).tolist() == [1.2, 2.8]
    assert (make_synth2(5000, random_state=0)[0] - X).std() == pytest.approx(0.1, rel=0.05)

    X = make_synth3(20000, n_features=10, random_state=0)
    mixing = np.random.default_rng(0).standard_normal((10, 10))
    assert np.allclose(np.cov(X.T), mixing @ mixing.T, atol=0.05 * np.trace(mixing @ mixing.T) / 10)
    assert np.allclose(X.mean(0), 0.0, atol=0.15)
    assert make_synth3(random_state=1).shape == (100, 140)


def test_pictures_of_shapes_show_their_factors() -> None:
    shapes = make_shapes(image_size=32)
    assert shapes.images.shape == (3456, 32, 32, 3) and shapes.data.shape == (3456, 3072)
    assert shapes.images.min() == 0.0 and shapes.images.max() == 1.0
    assert shapes.factor_names == ["x", "y", "size", "orientation", "hue", "shape"]
    assert len(np.unique(shapes.factors, axis=0)) == len({row.tobytes() for row in shapes.data}) == 3456
    assert (shapes.factors.max(0) + 1).tolist() == [4, 4, 3, 4, 6, 3] and shapes.categorical == [5]
    value = {
        name: values[column]
        for name, values, column in zip(shapes.factor_names, shapes.factor_values, shapes.factors.T, strict=True)
    }
    # Brightness, mass, centre and main axis can be read off a picture.
    cover = shapes.images.max(-1)
    mass = cover.sum((1, 2))
    axis = (np.arange(32) + 0.5) / 16 - 1
    x, y = (cover * axis).sum((1, 2)) / mass, (cover * axis[:, None]).sum((1, 2)) / mass
    symmetric = value["shape"] != "triangle"
    # What sticks out of the picture is cut off, from the small ones nothing.
    inside = symmetric & (value["size"] < 0.5)
    assert np.abs(x - value["x"])[inside].max() < 0.01 and np.abs(y - value["y"])[inside].max() < 0.01
    area = {"ellipse": np.pi / 2, "rectangle": 2.0, "triangle": 1.0}
    for name, share in area.items():
        small = (value["shape"] == name) & (value["size"] < 0.5)
        assert np.allclose(mass[small] / 256, share * value["size"][small] ** 2, rtol=0.08), name
    dx, dy = axis - x[:, None], axis - y[:, None]
    xx = np.einsum("nij,nj->n", cover, dx**2)
    yy = np.einsum("nij,ni->n", cover, dy**2)
    xy = np.einsum("nij,nj,ni->n", cover, dx, dy)
    angle = np.rad2deg(0.5 * np.arctan2(2 * xy, xx - yy)) % 180
    gap = np.abs((angle - value["orientation"] + 90) % 180 - 90)
    assert gap[inside].max() < 1.0
    colour = shapes.images.reshape(3456, -1, 3).max(1)
    red, green = value["hue"] == 0, value["hue"] == 2 / 6
    assert np.all(colour[red] == [1, 0, 0]) and np.allclose(colour[green], [0, 1, 0])


def test_some_shapes_with_chosen_factors() -> None:
    few = make_shapes(50, n_values={"background": 5, "shape": 1, "x": 1, "y": 1}, random_state=0)
    assert few.factor_names == ["size", "orientation", "hue", "background"] and few.categorical == []
    corner = few.images[:, 0, 0]
    assert np.allclose(corner.max(-1), 0.4)  # a coloured background
    assert len(np.unique(few.factors, axis=0)) == 50
    again = make_shapes(50, n_values={"background": 5, "shape": 1, "x": 1, "y": 1}, random_state=0)
    other = make_shapes(50, n_values={"background": 5, "shape": 1, "x": 1, "y": 1}, random_state=1)
    assert np.array_equal(again.images, few.images) and not np.array_equal(other.factors, few.factors)
    single = make_shapes(n_values=dict.fromkeys(["x", "y", "size", "orientation", "hue", "shape"], 1))
    assert single.images.shape[0] == 1 and single.factors.shape == (1, 0)


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
        (lambda: make_circles3(0), "n_samples must be positive"),
        (lambda: make_synth1(5, noise=-0.1), "noise at least 0"),
        (lambda: make_synth3(5, n_features=0), "n_features must be positive"),
        (lambda: make_shapes(0), "n_samples must be None or from 1 to 3456"),
        (lambda: make_shapes(3457), "the number of combinations; got 3457"),
        (lambda: make_shapes(n_values={"colour": 2}), "no factor 'colour'; there are x, y, size"),
        (lambda: make_shapes(n_values={"shape": 4}), "'shape' must be from 1 to 3; got 4"),
        (lambda: make_shapes(n_values={"hue": 0}), "'hue' must be a positive integer; got 0"),
        (lambda: make_shapes(image_size=4), "image_size must be an integer of at least 8"),
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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingDataError, match=f"no {source.file} in .*representer") as unset:
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


def test_files_that_were_cut_off_are_refused(tmp_path: Path) -> None:
    (tmp_path / "yacht.csv").touch()
    with pytest.raises(ValueError, match=r"yacht\.csv is empty.*UCI"):
        datasets.load_yacht(folder=tmp_path)
    path = tmp_path / "usps.npz"
    np.savez(path, X=np.zeros((10, 10)))
    for content in (path.read_bytes()[:100], b"", b"text"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"usps\.npz is not a whole NPZ file"):
            datasets.load_usps(folder=tmp_path)


def test_a_table_is_read_as_it_stands(tmp_path: Path) -> None:
    rows = [",".join(str(7 * i + j) for j in range(7)) for i in range(308)]
    (tmp_path / "yacht.csv").write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    bunch = load_yacht(folder=str(tmp_path))
    assert np.array_equal(np.column_stack([bunch.data, bunch.target]), np.arange(7.0 * 308).reshape(308, 7))
    assert bunch.feature_names == [f"x{i}" for i in range(6)]
    assert bunch.filename == str(tmp_path / "yacht.csv")


def test_broken_structured_sets_are_refused(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "scene_ml.npz",
        X=np.zeros((3, 294)),
        Y=np.zeros((3, 6)),
        label_name=["a"] * 6,
        is_train=[True] * 3,
    )
    with pytest.raises(ValueError, match=r"shape \(3, 294\).*\(2407, 294\)"):
        datasets.load_scene(folder=tmp_path)
    labels = {"Y": np.zeros((2407, 6)), "label_name": ["a"] * 6, "is_train": np.arange(2407) < 1000}
    np.savez(tmp_path / "scene_ml.npz", X=np.zeros((2407, 294)), **labels)
    with pytest.raises(ValueError, match="1000 samples are for training; 1211"):
        datasets.load_scene(folder=tmp_path)
    letters = {"pixels": np.zeros((52152, 128), np.uint8), "letter": np.zeros(52152, np.uint8)}
    words = {"word_offset": [0, 3, 52152], "word": ["aaa", "b"], "fold": [0, 1]}
    np.savez(tmp_path / "ocr_letters.npz", **letters, **words)
    with pytest.raises(ValueError, match="not spelled by its letters"):
        datasets.load_ocr(folder=tmp_path)


def test_structured_sets_are_read_as_they_stand(tmp_path: Path) -> None:
    letter = np.arange(52152) % 26
    words = ["".join(chr(97 + i) for i in letter[:3]), "".join(chr(97 + i) for i in letter[3:])]
    np.savez(
        tmp_path / "ocr_letters.npz",
        pixels=np.zeros((52152, 128), np.uint8),
        letter=letter.astype(np.uint8),
        word_offset=[0, 3, 52152],
        word=words,
        fold=np.array([4, 7], np.uint8),
    )
    bunch = datasets.load_ocr(folder=tmp_path)
    assert bunch.word[:5].tolist() == [0, 0, 0, 1, 1] and bunch.fold.tolist() == [4, 7]
    assert bunch.target_names.tolist() == words and bunch.target[:4].tolist() == [0, 1, 2, 3]
    np.savez(
        tmp_path / "bibtex_ml.npz",
        X_indices=[5, 1800],
        X_indptr=np.minimum(np.arange(7396), 2),
        X_shape=[7395, 1836],
        Y=np.zeros((7395, 159), np.uint8),
        label_name=[f"t{j}" for j in range(159)],
        is_train=np.arange(7395) < 4880,
    )
    bunch = datasets.load_bibtex(folder=tmp_path)
    assert bunch.data[[0, 1], [5, 1800]].tolist() == [1.0, 1.0] and bunch.data.sum() == 2.0
    assert bunch.is_train.sum() == 4880 and bunch.target_names[3] == "t3"


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
    assert np.flatnonzero(np.ptp(bunch.data, axis=0) == 0).tolist() == [bunch.feature_names.index("region_pixel_count")]
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


def test_graphs_are_read_as_they_stand(tmp_path: Path) -> None:
    n = 188
    arrays = {
        "edges": np.arange(2 * n).reshape(n, 2)[::-1],  # in any order
        "graph_of_node": np.repeat(np.arange(n), 2),
        "node_label": np.arange(2 * n) % 3,
        "graph_label": np.where(np.arange(n) % 2, 1, -1),
        "edge_label": np.arange(n),
    }
    np.savez(tmp_path / "mutag.npz", **arrays)
    found = load_mutag(folder=tmp_path)
    assert found.data[1] == Graph([(0, 1)], [2, 0]) and found.target[:2].tolist() == [-1, 1]
    assert load_mutag(edge_labels=True, folder=tmp_path).data[1] == Graph([(0, 1)], [2, 0], [n - 2])
    np.savez(tmp_path / "nci1.npz", **arrays)
    with pytest.raises(ValueError, match="4110 graphs were published"):
        load_nci1(folder=tmp_path)
    np.savez(tmp_path / "mutag.npz", **{**arrays, "graph_of_node": arrays["graph_of_node"][::-1]})
    with pytest.raises(ValueError, match="188 graphs were published"):
        load_mutag(folder=tmp_path)


@needs_data
def test_real_structured_sets() -> None:
    bunch = datasets.load_ocr()
    assert bunch.data.shape == (52152, 128) and set(np.unique(bunch.data)) == {0.0, 1.0}
    assert len(bunch.target_names) == 6877 and np.bincount(bunch.fold).tolist() == [
        626,
        704,
        684,
        698,
        693,
        651,
        739,
        717,
        690,
        675,
    ]
    for load, cardinality in (
        (datasets.load_scene, 1.074),
        (datasets.load_yeast_multilabel, 4.237),
        (datasets.load_bibtex, 2.402),
    ):
        bunch = load()
        assert bunch.target.sum(1).mean() == pytest.approx(cardinality, abs=5e-4)
        assert len(bunch.target_names) == bunch.target.shape[1]
        assert bunch.is_train[: bunch.is_train.sum()].all()
    mutag, nci1 = load_mutag(edge_labels=True), load_nci1()
    assert sum(graph.n_nodes for graph in mutag.data) == 3371 and (mutag.target == 1).sum() == 125
    assert len({label for graph in mutag.data for label in graph.edge_labels}) == 4
    assert sum(graph.n_nodes for graph in nci1.data) == 122747 and nci1.target.sum() == 2057
    bunch = datasets.load_isomap_faces()
    assert bunch.images.shape == (698, 32, 32) and np.allclose(bunch.target.std(0), 1.0, atol=0.01)


@pytest.mark.parametrize("make", [make_synth1, make_synth2, make_synth3, make_circles3])
def test_counts_of_points_are_checked(make: Any) -> None:
    for n in (2.5, "a", None, 0, True):
        with pytest.raises(ValueError, match="n_samples must be positive, an integer"):
            make(n)
    if make is not make_synth3:
        for noise in (np.nan, -1.0, "a", np.inf):
            with pytest.raises(ValueError, match="noise at least 0, a finite number"):
                make(5, noise=noise)


def test_values_of_shapes_are_a_mapping() -> None:
    for given in (3, [3], "hue"):
        with pytest.raises(ValueError, match="n_values must map names of factors"):
            make_shapes(n_values=given)
