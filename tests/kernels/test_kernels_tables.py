"""Kernels of tables: encodings against their formulas, invariances, gaps, and the contract of kernels."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

from representer.approximation import Nystroem
from representer.kernels import (
    Category,
    Date,
    Gaussian,
    Laplacian,
    Linear,
    Missing,
    Number,
    Optional,
    Ordered,
    Pixels,
    Spectrum,
    Standardized,
    Table,
    Words,
    as_kernel,
)
from representer.testing import check_kernel

rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": np.r_[rng.normal(5.0, 2.0, 10), [np.nan, 7.0]],
        "colour": [*"rgbrgbrgb", None, "r", "g"],
        "grade": ["low", "mid", "high"] * 4,
        "day": pd.date_range("2020-01-01", periods=12, freq="97D"),
        "other": range(12),
    }
)
ENCODINGS = {
    "size": Number(),
    "colour": Category(),
    "grade": Ordered(["low", "mid", "high"]),
    "day": Date(),
}


def naive_coordinates(frame: pd.DataFrame, train: pd.DataFrame) -> np.ndarray:
    """The coordinates column by column, as a person would compute them."""
    size, mean, std = frame["size"], train["size"].mean(), train["size"].std(ddof=0)
    parts = [((size - mean) / std).fillna(0.0), size.isna().astype(float)]
    parts += [(frame["colour"].fillna("gap") == level).astype(float) for level in ("b", "g", "r", "gap")]
    places = frame["grade"].map({"low": 0, "mid": 1, "high": 2})
    known = train["grade"].map({"low": 0, "mid": 1, "high": 2})
    parts.append((places - known.mean()) / known.std(ddof=0))
    seconds, fitted = (own["day"].astype("datetime64[us]").astype(np.int64) / 1e6 for own in (frame, train))
    parts.append((seconds - fitted.mean()) / fitted.std(ddof=0))
    for period in (365.2425 * 86400, 7 * 86400):
        parts += [np.cos(2 * np.pi * seconds / period), np.sin(2 * np.pi * seconds / period)]
    return np.column_stack([np.asarray(part, dtype=float) for part in parts])


@pytest.mark.parametrize("kernel", [Gaussian(1.3), Laplacian(0.7), Linear()])
def test_table_is_the_kernel_of_its_coordinates(kernel):
    table = Table(kernel, ENCODINGS).resolve(FRAME)
    train, new = naive_coordinates(FRAME, FRAME), naive_coordinates(FRAME.iloc[:4], FRAME)
    np.testing.assert_allclose(table(FRAME.iloc[:4], FRAME), kernel(new, train), atol=1e-12)


def test_a_lengthscale_is_one_of_a_column():
    table = Table(Gaussian("ard"), ENCODINGS)
    fitted = table.resolve(FRAME)
    assert np.shape(fitted.kernel.lengthscale) == (4,)
    lengthscales = np.array([0.5, 2.0, 3.0, 5.0])
    given = fitted.replace({"kernel__lengthscale": lengthscales})
    coordinates = naive_coordinates(FRAME, FRAME) / np.repeat(lengthscales, [2, 4, 1, 5])
    np.testing.assert_allclose(given(FRAME, FRAME), Gaussian(1.0)(coordinates), atol=1e-12)


@pytest.mark.parametrize(
    "changed",
    [
        FRAME[FRAME.columns[::-1]],
        FRAME.assign(size=-3.0 * FRAME["size"] + 1e3),
        FRAME.assign(size=1e-90 * FRAME["size"]),
        FRAME.assign(colour=FRAME["colour"].map({"r": 7, "g": 8, "b": 9}).astype(object)),
        FRAME.drop(columns="other"),
        FRAME.to_dict("records"),
        {name: list(FRAME[name]) for name in FRAME},
    ],
    ids=["order", "units", "tiny", "names", "fewer", "dictionaries", "columns"],
)
def test_units_names_order_and_libraries_do_not_matter(changed):
    table = Table(Laplacian("median"), ENCODINGS)
    np.testing.assert_allclose(table(changed), table(FRAME), atol=1e-10)


@pytest.mark.parametrize(
    "kernel, data",
    [
        (Table(Gaussian("ard"), ENCODINGS), FRAME.dropna()),
        (Table(Linear(), {"colour": Category(), "size": Number()}), FRAME.dropna()),
        (Standardized(Gaussian("auto")), rng.normal(size=(9, 3)) * [1.0, 3.0, 0.3]),
        (Words(), ["a red house", "the red, red rose", "green", "a house", "a red"]),
        (Pixels(Gaussian("auto")), rng.normal(size=(6, 3, 4))),
        (Optional(Spectrum(2)), ["abab", None, "ab", "bba", float("nan")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_contract(kernel, data):
    check_kernel(kernel, data)


def test_missing_is_a_mean_and_a_sign():
    X = rng.normal(size=(8, 3))
    X[0, 1] = X[3, 1] = X[5, 2] = np.nan
    kernel = Missing(Gaussian(1.0)).resolve(X)
    filled = np.where(np.isnan(X), np.nanmean(X, 0), X)
    image = np.column_stack([filled, np.isnan(X[:, 1:])])
    np.testing.assert_allclose(kernel(X, X), Gaussian(1.0)(image), atol=1e-12)
    new = np.array([[np.nan, 0.0, 0.0]])  # a gap where the fit had none is its mean
    np.testing.assert_allclose(kernel(new, X), Gaussian(1.0)([[np.nanmean(X[:, 0]), 0, 0, 0, 0]], image), atol=1e-12)


def test_standardized_with_gaps():
    X = rng.normal(size=(8, 3))
    X[2, 0] = np.nan
    kernel = Standardized(Missing(Gaussian(1.0)))
    np.testing.assert_allclose(kernel(X), kernel(X * [1e3, 1e-3, 1.0] + [5.0, 7.0, 0.0]), atol=1e-10)


def test_objects_that_are_missing():
    words = ["abab", None, "ab", float("nan")]
    inner = Spectrum(1)(["abab", "ab"]).numpy()
    expected = np.zeros((4, 4))
    expected[np.ix_([0, 2], [0, 2])] = inner
    expected[np.ix_([1, 3], [1, 3])] = 1.0
    np.testing.assert_allclose(Optional(Spectrum(1))(words), expected)
    np.testing.assert_allclose(Optional(Spectrum(1)).diag(words), np.diag(expected))


def test_pictures_and_texts_by_their_definitions():
    pictures = rng.normal(size=(5, 2, 3))
    np.testing.assert_allclose(Pixels(Gaussian(2.0))(pictures), Gaussian(2.0)(pictures.reshape(5, -1)))
    texts, vocabulary = ["a b, B!", "b c", "C"], ["a", "b", "c"]
    counts = np.array([[1, 2, 0], [0, 1, 1], [0, 0, 1]])
    assert counts.shape == (len(texts), len(vocabulary))
    cosine = counts @ counts.T / np.outer(*2 * [np.linalg.norm(counts, axis=1)])
    np.testing.assert_allclose(Words()(texts), cosine)


def test_unknown_levels_are_all_alike_and_equally_far():
    colours = Category().fitted(["r", "g", "b"])
    unknown = colours.coordinates(["violet", "pink", "r"])
    assert not unknown[:2].any() and np.linalg.norm(unknown[2] - unknown[0]) == 1.0


@pytest.mark.parametrize(
    "days",
    [
        ["2020-01-01", "2020-07-01T12:00:00", None],
        [datetime.date(2020, 1, 1), datetime.datetime(2020, 7, 1, 12), None],
        [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-07-01T14:00", tz="Etc/GMT-2"), pd.NaT],
        [np.datetime64("2020-01-01"), np.datetime64("2020-07-01T12"), np.datetime64("NaT")],
    ],
)
def test_dates_of_all_libraries(days):
    seconds = [86400.0 * 18262, 86400.0 * 18444.5]
    found = Date().fitted(days)
    assert found.center == pytest.approx(np.mean(seconds)) and found.gaps
    np.testing.assert_allclose(found.coordinates(days)[:, 0], [-1.0, 1.0, 0.0], atol=1e-9)


@pytest.mark.parametrize(
    "kernel, data, message",
    [
        (Table(Linear(), {"a": Number()}), {"a": [1.0, "x"]}, r"Column 'a': Row\(s\) 1 are no numbers.*Category"),
        (Table(Linear(), {"a": Number()}), {"a": [1.0, np.inf]}, "Column 'a': .*infinite"),
        (Table(Linear(), {"a": Date()}), {"a": ["1/2/3", "x"]}, "Column 'a': A date is"),
        (Table(Linear(), {"b": Number()}), {"a": [1.0]}, "no column 'b'"),
        (Table(Linear(), {"a": Category()}), {"a": [[1], [2]]}, "Column 'a': A category is"),
        (Table(Linear(), {"a": 3}), {"a": [1.0]}, "an encoding"),
        (Table(Spectrum(1), {"a": Number()}), {"a": [1.0]}, "vectors"),
        (Pixels(Linear()), [np.ones(3), np.ones(4)], "one shape"),
        (Words(), [1, 2], "Words takes texts"),
    ],
)
def test_bad_input(kernel, data, message):
    with pytest.raises(ValueError, match=message):
        kernel(data)


@pytest.mark.parametrize("name", ["cosine", "sigmoid", "chi2", "additive_chi2", "linear"])
def test_names_mean_what_they_mean_in_scikit_learn(name):
    X, Y = rng.random((6, 4)), rng.random((5, 4))
    X[0, 1] = Y[2, 1] = 0.0
    kernel = as_kernel(name).resolve(X)
    np.testing.assert_allclose(kernel(X, Y), pairwise_kernels(X, Y, metric=name), atol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), np.diag(pairwise_kernels(X, X, metric=name)), atol=1e-12)


def test_blocks_of_rows_leave_room_for_the_coordinates_of_their_categories():
    columns = {"c": [f"level {i}" for i in range(200)]}
    kernel = Table(Gaussian(1.0), {"c": Category()}).resolve(columns)
    image = kernel._image(kernel.prepare(columns))
    assert kernel.bytes_per_row >= 2 * image.nbytes / len(image)
    features = Nystroem(5).choose(kernel, kernel.prepare(columns), 0)
    assert features.bytes_per_row >= kernel.bytes_per_row + 5 * 8
