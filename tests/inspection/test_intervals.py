"""Intervals and sets by jackknife+ and CV+: the definitions of the papers, written as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from representer import OperatorRidge
from representer.inspection.intervals import (
    check_coverage,
    conformal_sets,
    jackknife_plus,
    sample_masses,
    upper_quantile,
    warn_of_few,
)
from representer.kernels import Gaussian

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("n", [9, 10, 37])
def test_jackknife_plus_is_that_of_barber_and_others(n, coverage):
    """Ends are the ⌊a(n + 1)⌋-th and the ⌈(1 − a)(n + 1)⌉-th smallest of μ₋ᵢ(x) ∓ R_i, counted from each side."""
    centres, errors = torch.as_tensor(RNG.normal(size=(3, n, 2))), torch.as_tensor(RNG.exponential(size=(n, 2)))
    found = jackknife_plus(centres, errors, sample_masses(errors), coverage)
    k = math.ceil(coverage * (n + 1) - 1e-9)
    for x in range(3):
        for j in range(2):
            upper = sorted((centres[x, :, j] + errors[:, j]).tolist())
            lower = sorted((centres[x, :, j] - errors[:, j]).tolist())
            expected = (lower[n - k], upper[k - 1]) if k <= n else (-math.inf, math.inf)
            assert found[x, j].tolist() == pytest.approx(expected)


def test_too_few_samples_make_infinite_intervals_and_say_so():
    errors = torch.ones(10, 1)
    masses = sample_masses(errors)
    assert jackknife_plus(torch.zeros(2, 10, 1), errors, masses, 0.99).isinf().all()
    with pytest.warns(UserWarning, match="10 samples .* too few for a coverage of 0.99, which takes 99"):
        warn_of_few(masses, 0.99)
    warn_of_few(sample_masses(torch.ones(99, 1)), 0.99)


def test_missing_targets_and_groups_share_masses():
    errors = torch.tensor([[1.0, torch.nan], [2.0, 2.0], [3.0, 3.0]])
    assert sample_masses(errors).tolist() == [[0.25, 0.0], [0.25, 1 / 3], [0.25, 1 / 3]]
    together = sample_masses(errors, torch.tensor([5, 5, 7]))
    np.testing.assert_allclose(together, [[1 / 6, 0], [1 / 6, 1 / 3], [1 / 3, 1 / 3]])
    values = torch.tensor([[[1.0, 9.0], [2.0, 2.0], [3.0, 3.0]]])
    assert upper_quantile(values, together, 0.6).tolist() == [[3.0, 3.0]]
    assert upper_quantile(values, together, 0.3).tolist() == [[2.0, 2.0]]


def test_new_groups_are_covered():
    """Errors that groups share: masses of single samples would promise too much, those of groups keep the promise."""
    inside = []
    for _ in range(400):
        groups = torch.arange(20).repeat_interleave(5)
        errors = torch.as_tensor(RNG.normal(size=20))[groups][:, None].abs()
        ends = jackknife_plus(torch.zeros(1, 100, 1), errors, sample_masses(errors, groups), 0.8)
        inside.append(bool(ends[0, 0, 0] <= RNG.normal() <= ends[0, 0, 1]))
    assert 0.75 < np.mean(inside) < 0.9


def test_sets_are_those_of_a_loop_and_never_empty():
    n, m, c = 30, 6, 4
    scores, own = torch.as_tensor(RNG.uniform(size=(m, n, c))), torch.as_tensor(RNG.uniform(size=n))
    found = conformal_sets(scores, own, sample_masses(own[:, None])[:, 0], 0.7)
    for x in range(m):
        for y in range(c):
            better = sum(bool(own[i] < scores[x, i, y]) for i in range(n))
            best = int(scores[x].mean(0).argmin())
            assert bool(found[x, y]) == (better < 0.7 * (n + 1) or y == best)
    hopeless = torch.full((2, n, c), 2.0)
    hopeless[:, :, 1] = 1.5
    assert (
        conformal_sets(hopeless, own, sample_masses(own[:, None])[:, 0], 0.7).tolist()
        == [[False, True, False, False]] * 2
    )


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.1, math.nan, "0.9", None, True])
def test_coverage_is_a_number_between_zero_and_one(coverage):
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        check_coverage(coverage)


def test_intervals_far_away_are_as_wide_as_the_deviation_asks_for():
    """Errors that do not depend on the deviation among the samples say nothing of places without samples."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (120, 2))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=120)
    model = OperatorRidge(Gaussian(1.5)).fit(X, y)
    near, far = np.diff(model.predict_interval([[0.0, 0.0], [50.0, 50.0]]))[:, 0] / 2.0
    _, (close, away) = model.predict([[0.0, 0.0], [50.0, 50.0]], return_std=True)
    assert away > 5.0 * close and near < 3.0 * close and away < far < 3.0 * away
