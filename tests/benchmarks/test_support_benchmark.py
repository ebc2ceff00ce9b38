"""The comparison of scores of unusual inputs."""

import numpy as np
import pytest

from benchmarks.calibration import LEARNERS, table_of
from benchmarks.support import areas, digits_and_digits, table_of_areas


def test_digits_that_were_not_seen_are_no_training_digits():
    X, y, like, unlike = digits_and_digits(0)
    assert set(y) == set(range(5)) and len(X) == len(y)
    assert not (set(map(bytes, X)) & set(map(bytes, like))) and X.shape[1] == unlike.shape[1] == 64


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of the Gaussian process beside it
def test_support_tells_them_apart():
    found = areas("digits 0-4 | 5-9", 1)
    assert found["support"][0] > 0.85 and found["support"][0] > found["isolation forest"][0]


def test_tables_have_a_row_for_each_set():
    table = table_of_areas({"a": {"support": [0.5, 1.0]}, "b": {"support": [0.9], "other": [0.1]}})
    assert table.row_count == 2 and list(table.columns[1].cells) == ["0.750", "0.900"]
    losses = table_of("x", {"a": {"before": [1.0, 0.5, 0.1]}, "b": {"before": [3.0, 0.5, 0.1]}})
    assert losses.row_count == 3 and np.isclose(float(list(losses.columns[1].cells)[-1]), 2.0)


def test_estimates_of_a_structured_predictor_become_probabilities(rng):
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, "b", "a")
    before, after = LEARNERS["StructuredPredictor"](X[:40], y[:40], X[40:]).values()
    for p in (before, after):
        np.testing.assert_allclose(p.sum(1), 1.0)
        assert (p >= 0).all() and np.mean(p.argmax(1) == (y[40:] == "b")) > 0.7
