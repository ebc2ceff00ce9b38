"""Scores of predictions against double loops, integrals, scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.metrics import brier_score_loss, mean_pinball_loss

from representer.metrics import brier, coverage, crps, nlpd, pinball


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_crps_of_normals_is_the_integral_of_squared_distribution_functions(rng):
    y, mean, std = rng.normal(size=4), rng.normal(size=4), rng.uniform(0.2, 2, 4)

    def integral(at, m, s):
        low = integrate.quad(lambda t: stats.norm.cdf(t, m, s) ** 2, -30, at)[0]
        return low + integrate.quad(lambda t: stats.norm.sf(t, m, s) ** 2, at, 30)[0]

    expected = np.mean([integral(*each) for each in zip(y, mean, std, strict=True)])
    assert crps(y, mean, std) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_crps_of_draws_is_a_double_loop(rng, weighted):
    y, draws = 1e6 + rng.normal(size=3), 1e6 + rng.normal(size=(3, 7))
    w = rng.uniform(0, 1, size=(3, 7)) if weighted else np.ones((3, 7))
    expected = 0.0
    for i in range(3):
        p = w[i] / w[i].sum()
        for j in range(7):
            expected += p[j] * abs(draws[i, j] - y[i]) / 3
            expected -= sum(0.5 * p[j] * p[k] * abs(draws[i, j] - draws[i, k]) for k in range(7)) / 3
    assert crps(y, draws, weights=w if weighted else None) == pytest.approx(expected, rel=1e-8)
    assert crps(y, draws[:, :1]) == pytest.approx(np.abs(draws[:, 0] - y).mean())


def test_many_normal_draws_have_the_score_of_the_normal(rng):
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000, 0.3, 1.5)
    assert crps([1.0], draws[None]) == pytest.approx(crps([1.0], [0.3], [1.5]), rel=1e-3)


def test_nlpd_is_that_of_scipy(rng):
    y, mean, std = rng.normal(size=(3, 9))
    std = np.exp(std)
    assert nlpd(y, mean, std) == pytest.approx(-stats.norm.logpdf(y, mean, std).mean())


def test_pinball_is_that_of_scikit_learn(rng):
    y, quantiles, levels = rng.normal(size=20), rng.normal(size=(20, 3)), [0.1, 0.5, 0.8]
    expected = np.mean([mean_pinball_loss(y, q, alpha=a) for q, a in zip(quantiles.T, levels, strict=True)])
    assert pinball(y, quantiles, levels) == pytest.approx(expected)
    assert pinball(y, quantiles[:, 0], 0.1) == pytest.approx(mean_pinball_loss(y, quantiles[:, 0], alpha=0.1))


def test_coverage_counts_what_is_inside(rng):
    y = rng.normal(size=(30, 2))
    intervals = np.stack([np.full((30, 2), -1.0), np.full((30, 2), np.inf)], -1)
    assert coverage(y, intervals) == np.mean(y >= -1)
    assert coverage([1.0, 2.0], [[1.0, 1.0], [3.0, 4.0]]) == 0.5
    gaps = np.where(rng.uniform(size=y.shape) < 0.3, np.nan, y)
    assert coverage(gaps, intervals) == np.mean(y[~np.isnan(gaps)] >= -1)


def test_brier_is_twice_that_of_one_class_and_a_loop_of_many(rng):
    y = rng.integers(0, 2, 40)
    p = rng.uniform(size=40)
    assert brier(y, np.column_stack([1 - p, p])) == pytest.approx(2 * brier_score_loss(y, p))
    many, labels = rng.dirichlet(np.ones(3), 5), ["a", "b", "c"]
    truth = ["c", "a", "a", "c", "c"]
    loop = np.mean([sum((many[i, k] - (truth[i] == c)) ** 2 for k, c in enumerate(labels)) for i in range(5)])
    assert brier(truth, many, labels) == pytest.approx(loop)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: crps([1.0, 2.0], [[1.0, 2.0, 3.0]]), "n_samples = 2"),
        (lambda: crps([1.0], [1.0], [0.0]), "std must be positive"),
        (lambda: nlpd([1.0, np.nan], [1.0, 1.0], [1.0, 1.0]), "y must be a finite"),
        (lambda: nlpd([1.0, 2.0], [1.0], [1.0]), "shape"),
        (lambda: pinball([1.0], [[1.0]], [1.5]), "between 0 and 1"),
        (lambda: pinball([1.0], [[1.0]], [0.1, 0.9]), r"\(1, 2\)"),
        (lambda: coverage([1.0], [1.0, 2.0]), r"\(1, 2\)"),
        (lambda: coverage([np.nan], [[1.0, 2.0]]), "y without its missing entries must be a finite, not empty"),
        (lambda: brier([0, 1], [[0.5, 0.5]]), "Pass classes="),
    ],
)
def test_what_does_not_fit_is_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()
