"""Rules of targets, labels and groups: what is refused, and what is made of the rest, against plain NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from representer.samples import (
    TrainingSamples,
    check_groups,
    label_columns,
    labelled_outputs,
    n_passed,
    one_hot,
    target_unit,
)
from representer.samples.targets import target_columns


def test_targets_are_columns_and_keep_their_gaps() -> None:
    y = np.array([[1.0, np.nan], [2.0, 3.0]])
    columns, flat = target_columns(y, 2)
    np.testing.assert_array_equal(columns, y)
    assert not flat and target_columns(np.array([1.0, 2.0]), 2)[1]
    with pytest.raises(ValueError, match="inconsistent numbers of samples: 3 and 2"):
        target_columns(y, 3)
    with pytest.raises(ValueError, match="contains NaN, first in row 1"):
        target_columns(np.array([1.0, np.nan]), 2)
    with pytest.raises(ValueError, match="Output 1 of y has no observed value"):
        target_columns(np.array([[1.0, np.nan], [2.0, np.nan]]), 2)


@pytest.mark.parametrize("size", [1e-200, 1e-120, 1.0, 1e120, 1e200])
def test_a_unit_of_targets_is_a_power_of_two_whose_quotients_have_squares(size: float) -> None:
    targets = size * np.array([[1.0], [-3.7]])
    unit = target_unit(targets, "float64")
    assert math.frexp(unit)[0] == 0.5
    scaled = targets / unit
    np.testing.assert_array_equal(scaled * unit, targets)
    assert np.isfinite(scaled**2).all() and (scaled**2 > 0).all()
    assert (unit == 1.0) == (1e-90 < size < 1e90)


def test_targets_beyond_a_precision_are_refused() -> None:
    with pytest.raises(ValueError, match="dtype='float32' holds numbers"):
        target_unit(np.array([[1e300]]), "float32")


def test_groups_are_numbered_and_a_label_keeps_its_number_in_later_batches() -> None:
    labels = ["b", "a", "b", "c"]
    np.testing.assert_array_equal(check_groups(labels, 4), np.unique(labels, return_inverse=True)[1])
    numbers: dict[object, int] = {}
    first, second = check_groups(labels, 4, numbers), check_groups(["c", "d", "a"], 3, numbers)
    assert first is not None and second is not None
    assert [first[3], first[1]] == [second[0], second[2]] and second[1] not in first
    with pytest.raises(ValueError, match="one label for each of the 3 samples"):
        check_groups(labels, 3)


def test_outputs_without_a_value_are_left_out_with_their_numbers() -> None:
    known, places = labelled_outputs("strings", ["x", None, "y"])
    assert known == ["x", "y"] and places is not None and places.tolist() == [0, 2]
    gram = np.array([[1.0, np.nan, 0.5], [np.nan] * 3, [0.5, np.nan, 1.0]])
    known, places = labelled_outputs("gram", gram)
    np.testing.assert_array_equal(known, gram[np.ix_([0, 2], [0, 2])])
    assert labelled_outputs("vectors", np.ones((2, 1)))[1] is None


def test_labels_become_columns_numbers_as_they_are_and_classes_one_by_one() -> None:
    rows = np.arange(3)
    np.testing.assert_array_equal(label_columns([0.5, None, 2.0], rows), [[0.5], [np.nan], [2.0]])
    classes = label_columns(["b", "a", None], rows)
    np.testing.assert_array_equal(classes[:2], one_hot(np.array(["b", "a"]), np.array(["a", "b"])))
    assert np.isnan(classes[2]).all()
    with pytest.raises(ValueError, match="Every label in y is missing"):
        label_columns([None, None], rows[:2])


@pytest.mark.parametrize("pairwise", [False, True])
def test_a_part_of_samples_has_the_rows_of_all_that_belongs_to_them(pairwise: bool) -> None:
    X, y, w = np.arange(16.0).reshape(4, 4), np.arange(4), np.array([1.0, 0.0, 2.0, 3.0])
    samples = TrainingSamples.of(X, y, w, np.array([0, 1, 1, 2]), pairwise=pairwise)
    kept = [0, 2, 3]  # of positive weight
    np.testing.assert_array_equal(samples.X, X[np.ix_(kept, kept)] if pairwise else X[kept])
    part = samples.part(np.array([2, 0]))
    rows = [kept[2], kept[0]]
    np.testing.assert_array_equal(part.X, X[np.ix_(rows, rows)] if pairwise else X[rows])
    np.testing.assert_array_equal(part.y, y[rows])
    np.testing.assert_array_equal(part.options["sample_weight"], w[rows])


def test_the_number_of_samples_is_known_where_there_is_a_length() -> None:
    assert n_passed(np.zeros((3, 2))) == n_passed(["a", "b", "c"]) == 3
    assert n_passed(5) is n_passed(None) is None


@pytest.mark.parametrize(
    ("labels", "words"),
    [([None, "a", "a"], "None, first in row 0"), ([1.0, np.nan, 2.0], "first in row 1"), ([1, "a", 2], "int, str")],
)
def test_groups_without_a_label_or_of_several_kinds_are_refused(labels: list[object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_groups(np.array(labels, dtype=object), 3)
