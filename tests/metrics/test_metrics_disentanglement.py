"""Disentanglement scores: cases worked out by hand, definitions in loops, invariances, limits and bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from representer.metrics import dci, irs, mig, sap, windin
from representer.metrics.disentanglement import _concentration

LOG2 = np.log(2.0)


def crossed(*sizes: int, repeats: int = 1) -> np.ndarray:
    """Every combination of values of the factors."""
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij"), -1).reshape(-1, len(sizes))
    return np.tile(grid, (repeats, 1))


def seeded_dci(codes: Any, factors: Any) -> float:
    return dci(codes, factors, n_trees=20, random_state=0).disentanglement


SCORES = {"irs": irs, "mig": mig, "sap": sap, "dci": seeded_dci}


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_irs_by_hand() -> None:
    factors = crossed(2, 2)
    # z = 0, 0.5, 1, 1.5, largest deviation 0.75. With the first factor kept it moves by 0.25, with the second by 0.5.
    code = factors @ [[1.0], [0.5]]
    assert irs(code, factors, quantile=1.0) == pytest.approx(1 - 0.25 / 0.75)
    # A second code of twice the size that is one factor: weights 0.75 and 1.
    both = np.column_stack([code, 2.0 * factors[:, 1]])
    assert irs(both, factors, quantile=1.0) == pytest.approx((0.75 * 2 / 3 + 1.0 * 1.0) / 1.75)
    assert irs(np.column_stack([code, np.ones(4)]), factors, quantile=1.0) == pytest.approx(2 / 3)
    assert irs(np.ones((4, 2)), factors) == 0.0


def test_mig_by_hand() -> None:
    factors = crossed(4, 2)
    a, b = factors.T
    # The second code knows log 2 of the log 4 of the first factor, and nothing of the second.
    assert mig(np.column_stack([a, a // 2]), factors[:, :1]) == pytest.approx(0.5)
    assert mig(np.column_stack([a, a // 2]), factors) == pytest.approx((0.5 + 0.0) / 2)
    # With one bin a code knows nothing.
    assert mig(np.column_stack([a, b]), factors, n_bins=1) == 0.0


def test_sap_by_hand() -> None:
    factor = np.array([[0], [0], [1], [1]])
    # squared correlation (1/2)² / (1 · 3/4)
    assert sap([[0.0, 5.0], [1.0, 5.0], [1.0, 5.0], [1.0, 5.0]], factor) == pytest.approx(1 / 3)
    # A threshold finds one of the two zeros and both ones: (1/2 + 1)/2; a constant code guesses: 1/2.
    codes = [[0.0, 5.0], [1.0, 5.0], [1.0, 5.0], [1.0, 5.0]]
    assert sap(codes, factor, categorical=[0]) == pytest.approx(3 / 4 - 1 / 2)


def test_windin_by_hand() -> None:
    independent = crossed(4, 2)
    assert windin(independent) == pytest.approx((4 * LOG2**2 + LOG2**2) / (3 * LOG2))
    assert windin(independent[:, [0, 0]]) == pytest.approx(0.0)
    # Three codes, any two of which determine the third: none adds anything. Two of them are independent.
    a, b = crossed(2, 2).T
    assert windin(np.column_stack([a, b, a ^ b])) == pytest.approx(0.0, abs=1e-12)
    assert windin(np.column_stack([a, b])) == pytest.approx(LOG2)
    assert windin(independent[:, :1]) == pytest.approx(2 * LOG2)
    assert windin(np.zeros((5, 2))) == 0.0


def test_dci_is_one_minus_relative_entropies() -> None:
    table = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0], [0.75, 0.25]])
    entropy = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    assert np.allclose(_concentration(table), [1.0, 0.0, 0.0, 1.0 - entropy])
    factors = crossed(5, 5, repeats=8)
    scores = dci(factors, factors, n_trees=20, random_state=0)
    assert np.allclose(scores.importance.sum(0), 1.0)
    importance = scores.importance
    weights = importance.sum(1) / importance.sum()
    assert scores.disentanglement == pytest.approx(float(weights @ _concentration(importance)))
    assert scores.completeness == pytest.approx(float(_concentration(importance.T).mean()))


# --- in loops --------------------------------------------------------------------------------------------------------


def test_irs_in_loops(rng: np.random.Generator) -> None:
    factors = np.column_stack([rng.integers(0, 3, 80), rng.integers(0, 4, 80)])
    codes = factors @ rng.normal(size=(2, 3)) + 0.1 * rng.normal(size=(80, 3))
    total = weight = 0.0
    for z in codes.T:
        largest = max(abs(value - z.mean()) for value in z)
        robust = []
        for factor in factors.T:
            moved = 0.0
            for value in set(factor):
                group = z[factor == value]
                moved += np.quantile([abs(entry - group.mean()) for entry in group], 0.9)
            robust.append(1.0 - moved / len(set(factor)) / largest)
        total, weight = total + largest * max(robust), weight + largest
    assert irs(codes, factors, quantile=0.9) == pytest.approx(total / weight)


def test_information_scores_in_loops(rng: np.random.Generator) -> None:
    factors = np.column_stack([rng.integers(0, 3, 200), rng.integers(0, 4, 200)])
    codes = factors @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(200, 3))
    bins = np.array([np.digitize(z, np.linspace(z.min(), z.max(), 9)[1:-1]) for z in codes.T]).T
    gaps = []
    for factor in factors.T:
        known = sorted(mutual_info_score(z, factor) for z in bins.T)
        gaps.append((known[-1] - known[-2]) / mutual_info_score(factor, factor))
    assert mig(codes, factors, n_bins=8) == pytest.approx(np.mean(gaps))

    names = np.array([f"{a} {b} {c}" for a, b, c in bins])
    informative, difference = [], []
    for i in range(3):
        rest = np.array([" ".join(map(str, np.delete(row, i))) for row in bins])
        informative.append(mutual_info_score(names, bins[:, i]))  # the input is known by all codes together
        difference.append(informative[-1] - mutual_info_score(rest, bins[:, i]))
    expected = np.dot(informative, difference) / np.sum(informative)
    assert windin(codes, n_bins=8) == pytest.approx(expected)


def test_sap_is_the_gap_of_squared_correlations(rng: np.random.Generator) -> None:
    factors = np.column_stack([rng.integers(0, 3, 100), rng.integers(0, 4, 100)])
    codes = factors @ rng.normal(size=(2, 3)) + rng.normal(size=(100, 3))
    gaps = []
    for factor in factors.T:
        squares = sorted(np.corrcoef(z, factor)[0, 1] ** 2 for z in codes.T)
        gaps.append(squares[-1] - squares[-2])
    assert sap(codes, factors) == pytest.approx(np.mean(gaps))


# --- invariances and limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_invariances(score: Callable[..., float], rng: np.random.Generator) -> None:
    factors = crossed(4, 5, repeats=5)
    codes = factors @ rng.normal(size=(2, 3)) + 0.2 * rng.normal(size=(100, 3))
    value = score(codes, factors)
    tolerance = 0.05 if score is seeded_dci else 1e-9  # a forest draws other samples and breaks ties
    assert score(codes[:, [2, 0, 1]], factors) == pytest.approx(value, abs=tolerance)
    assert score(3.0 - 2.0 * codes, factors) == pytest.approx(value, abs=tolerance)
    assert score(codes, factors[:, ::-1]) == pytest.approx(value, abs=tolerance)
    order = rng.permutation(100)
    assert score(codes[order], factors[order]) == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_limits(score: Callable[..., float], rng: np.random.Generator) -> None:
    factors = crossed(4, 5, repeats=50)
    assert score(factors[:, ::-1], factors) == pytest.approx(1.0, abs=0.02)
    unrelated = rng.uniform(-1, 1, (1000, 3))
    assert 0.0 <= score(unrelated, factors) < 0.06
    mixed = factors @ np.array([[1.0, 1.0], [0.8, -0.8]])
    assert score(mixed, factors) < 0.65


def test_names_of_factors(rng: np.random.Generator) -> None:
    factors = crossed(3, 3, repeats=20)
    shapes = np.array(["square", "disc", "heart"])[factors[:, 0]]
    named = np.column_stack([shapes, factors[:, 1].astype(str)])
    assert irs(factors, named) == irs(factors, factors) == 1.0
    assert mig(factors, named) == pytest.approx(mig(factors, factors))
    # Thresholds put names in any order of the code; a line would not.
    codes = np.column_stack([(factors[:, 0] - 1) % 3, factors[:, 1]])
    assert sap(codes, named, categorical=[0, 1]) == pytest.approx(2 / 3)
    scores = dci(codes, named, categorical=[0, 1], n_trees=20, random_state=0)
    assert scores.disentanglement > 0.95 and scores.informativeness == 1.0


def test_scores_that_cannot_be_predicted_are_low(rng: np.random.Generator) -> None:
    factors = crossed(4, 5, repeats=10)
    scores = dci(rng.normal(size=(200, 3)), factors, n_trees=20, random_state=0)
    assert scores.informativeness < 0.1
    again = dci(rng.normal(size=(200, 3)), factors, n_trees=20, random_state=0)
    assert again.informativeness != scores.informativeness


# --- bad input -------------------------------------------------------------------------------------------------------

FACTORS = crossed(3, 3)
CODES = FACTORS.astype(float)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: irs(CODES[:, 0], FACTORS), r"codes must be a matrix .* got shape \(9,\)"),
        (lambda: irs(CODES[:0], FACTORS[:0]), "not empty"),
        (lambda: irs(CODES, FACTORS[:5]), r"\(9, n_factors\); got shape \(5, 2\)"),
        (lambda: irs(np.where(CODES == 0, np.nan, CODES), FACTORS), "codes must not be NaN"),
        (lambda: irs(CODES, np.where(FACTORS == 0, np.inf, FACTORS)), "factors must not be NaN"),
        (lambda: irs(CODES, np.zeros((9, 1))), "Factor 0 does not vary"),
        (
            lambda: mig(CODES, np.random.default_rng(0).normal(size=(9, 2))),
            "Factor 0 has another value for every",
        ),
        (lambda: irs(CODES, FACTORS, quantile=0.0), "quantile must be above 0"),
        (lambda: mig(CODES[:, :1], FACTORS), "At least 2 codes"),
        (lambda: sap(CODES[:, :1], FACTORS), "At least 2 codes"),
        (lambda: dci(CODES, FACTORS[:, :1]), "2 factors are compared; got 2 and 1"),
        (lambda: dci(CODES[[0, 4]], FACTORS[[0, 4]]), "at least 4 are needed; got 2"),
        (lambda: dci(CODES, FACTORS, n_trees=0), "n_trees must be a positive integer"),
        (lambda: mig(CODES, FACTORS, n_bins=0), "n_bins must be a positive integer"),
        (lambda: windin(CODES, n_bins=2.5), "n_bins must be a positive integer"),
        (lambda: sap(CODES, FACTORS, categorical=[2]), r"from 0 to 1; got \[2\]"),
    ],
)
def test_bad_input(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_names_cannot_be_numbers() -> None:
    with pytest.raises(ValueError, match="Factor 0 holds names; list it in categorical"):
        sap(CODES, np.array([["a", "b"], ["b", "a"], ["a", "a"]] * 3))


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_rounding_at_edges_order_and_huge_or_tiny_codes_change_nothing(score: Callable[..., float]) -> None:
    factors = crossed(5, 4, repeats=3)
    codes = np.column_stack([factors @ [1.0, 0.5], factors[:, 1], factors[:, 0] * 0.1])
    expected = score(codes, factors)
    assert score(codes * 0.1 + 0.3, factors) == pytest.approx(expected, abs=1e-6)  # values lie at edges of bins
    assert score(codes[:, [2, 0, 1]], factors) == pytest.approx(expected, abs=1e-12)
    for scale in (1e200, 1e-200):
        assert score(codes * scale, factors) == pytest.approx(expected, abs=1e-6)


def test_arguments_of_the_wrong_kind_are_named() -> None:
    factors = crossed(4, 3, repeats=2)
    for quantile in ("a", None, np.nan):
        with pytest.raises(ValueError, match="quantile must be above 0"):
            irs(factors, factors, quantile=quantile)
    for categorical in (1, "a", ["a"], [True, False], np.array([False, True]), [-1], [2], [0.0]):
        with pytest.raises(ValueError, match="categorical must be a list of factors"):
            sap(factors, factors, categorical=categorical)
    holes = factors.astype(object)
    holes[0, 0] = None
    with pytest.raises(ValueError, match="None or NaN"):
        irs(factors, holes)
    assert sap(factors, factors, categorical=np.array([0, 1])) > 0.5
