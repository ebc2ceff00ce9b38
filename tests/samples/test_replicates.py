"""Equal inputs: found by a double loop, joined to groups, and what they say of the noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse, stats

from representer.kernels import Category, Gaussian, Number, Precomputed, Spectrum, Stack, Table
from representer.operators import Decomposable, replicates
from representer.samples import equal_rows, groups_with_replicates, joined_groups, least_noise, replicate_scatter

RNG = np.random.default_rng(0)
ROWS = RNG.integers(0, 3, (40, 3)).astype(float)


def together(numbers: np.ndarray) -> np.ndarray:
    return numbers[:, None] == numbers


def test_equal_rows_are_those_of_a_double_loop():
    expected = np.array([[np.array_equal(a, b) for b in ROWS] for a in ROWS])
    np.testing.assert_array_equal(together(equal_rows(ROWS)), expected)
    np.testing.assert_array_equal(together(equal_rows(sparse.csr_array(ROWS))), expected)
    np.testing.assert_array_equal(together(equal_rows(ROWS * 1e-200)), expected)


def test_rounding_makes_no_difference_and_minus_zero_is_zero():
    shaken = ROWS / 7.0 * (1.0 + 1e-13 * RNG.standard_normal(ROWS.shape))
    shaken[ROWS == 0] = -0.0
    np.testing.assert_array_equal(together(equal_rows(np.vstack([ROWS / 7.0, shaken])))[:40, 40:], together_rows())
    assert len(np.unique(equal_rows(ROWS[:1] + 1e-6 * np.arange(9)[:, None]))) == 9


def test_an_origin_far_away_makes_no_rows_equal():
    points = RNG.integers(0, 2**20, (200, 1)) / 2**20
    points[::7] = points[0]
    expected = points == points.T
    for offset in (0.0, 2.0**10, 2.0**24, -(2.0**24)):
        np.testing.assert_array_equal(together(equal_rows(points + offset)), expected)


def together_rows() -> np.ndarray:
    return np.array([[np.array_equal(a, b) for b in ROWS] for a in ROWS])


def test_objects_are_equal_that_a_kernel_does_not_tell_apart():
    words = ["".join(RNG.permutation(list("aabc"))[: RNG.integers(2, 5)]) for _ in range(60)]
    letters = ["".join(sorted(word)) for word in words]
    expected = np.array([[a == b for b in letters] for a in letters])
    numbers = replicates(Spectrum(1), words)
    assert numbers is not None
    np.testing.assert_array_equal(together(numbers), expected)
    both = replicates(Stack([Decomposable(Spectrum(1)), Decomposable(Spectrum(2))]), words)
    assert both is not None
    np.testing.assert_array_equal(together(both), expected)
    gram = torch.as_tensor(Spectrum(1)(words), dtype=torch.float64)
    precomputed = replicates(Precomputed(), gram)
    assert precomputed is not None
    np.testing.assert_array_equal(together(precomputed), expected)
    assert replicates(Gaussian(1.0), torch.arange(5.0)[:, None]) is None


def test_records_are_equal_whose_entries_are():
    rng = np.random.default_rng(0)
    columns = {"a": rng.integers(0, 2, 30) / 3.0, "b": rng.choice(["x", "y", None], 30).tolist()}
    kernel = Table(Gaussian(1.0), {"a": Number(), "b": Category()})
    numbers = replicates(kernel, columns)
    gram = kernel(columns).numpy()
    np.testing.assert_array_equal(numbers[:, None] == numbers, gram > 1 - 1e-12)


def test_joined_groups_are_connected_components():
    one, two = np.array([0, 0, 1, 2, 3, 4]), np.array([5, 6, 6, 7, 7, 8])
    assert joined_groups(one, two).tolist() == [0, 0, 0, 1, 1, 2]
    assert joined_groups(one, None).tolist() == one.tolist()
    assert joined_groups(None) is None


def test_replicates_are_left_aside_where_few_inputs_are_distinct():
    levels = np.arange(60) % 5
    assert groups_with_replicates(None, levels) is None
    assert groups_with_replicates(None, np.arange(60)) is None
    pairs = np.arange(60) // 2
    np.testing.assert_array_equal(groups_with_replicates(None, pairs), pairs)
    patients = np.arange(60) // 3
    np.testing.assert_array_equal(groups_with_replicates(patients, pairs), np.arange(60) // 6)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_limit_of_the_noise_covers_it(weighted):
    """The limit is below the variance in 99 % of draws, and the textbook's for pairs."""
    numbers = np.repeat(np.arange(12), 2)
    w = 0.5 + np.arange(24) % 3 if weighted else None
    draws = RNG.standard_normal((24, 2000)) / (1.0 if w is None else np.sqrt(w)[:, None])
    limits = least_noise(*replicate_scatter(draws, numbers, w))
    assert (limits < 1.0).mean() > 0.98
    if w is None:
        half = (draws[::2] - draws[1::2]) ** 2 / 2.0
        textbook = half.sum(0) / stats.chi2(12).ppf(0.99)
        signs = np.sort(half, axis=0)[1] / stats.chi2(1).median()  # P(Bin(12, ½) ≤ 1) = 0.003, P(… ≤ 2) = 0.019
        np.testing.assert_allclose(limits, np.minimum(textbook, signs))
    draws[:8] = np.nan
    assert (least_noise(*replicate_scatter(draws[:14], numbers[:14])) == 0.0).all()  # three pairs are too few


def test_sets_that_differ_by_far_more_than_most_do_not_decide():
    """Long chains that fingerprints do not tell apart are no replicates, and one set of them says nothing of others."""
    y = 0.1 * RNG.standard_normal((60, 1))
    y[:8] *= 100.0
    numbers = np.r_[np.zeros(8), 1 + np.arange(52) // 2]
    limit = least_noise(*replicate_scatter(y, numbers))
    assert 0.0 < limit[0] < 0.01
    alone = least_noise(*replicate_scatter(y[:8], numbers[:8]))  # one set has nobody to differ from
    np.testing.assert_allclose(alone, y[:8].var(ddof=1) * 7 / stats.chi2(7).ppf(0.99))
