"""Predictions for new points without a sample, or its group: the same as refits, in every kind of system."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from representer import OperatorRidge
from representer.approximation import Landmarks
from representer.kernels import Gaussian, Linear, Stack
from representer.operators import CurlFree, Dense, Diagonal

RNG = np.random.default_rng(3)
N = 18
X, NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(4, 2))
Y = RNG.normal(size=(N, 2))
GAPS = np.where(RNG.uniform(size=(N, 2)) < 0.2, np.nan, Y)
GROUPS = np.array([0, 0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 12, 13])
WEIGHTS = 0.5 + RNG.uniform(size=N)

CASES = {
    "identity": ({"kernel": Gaussian(1.2)}, Y),
    "linear": ({"kernel": Linear()}, Y),
    "diagonal": ({"kernel": Gaussian(1.2), "operator": Diagonal([1.0, 0.3])}, Y),
    "dense": ({"kernel": Gaussian(1.2), "operator": Dense([[1.0, 0.4], [0.4, 0.8]])}, Y),
    "gaps": ({"kernel": Gaussian(1.2)}, GAPS),
    "coupled gaps": ({"kernel": Gaussian(1.2), "operator": Dense([[1.0, 0.4], [0.4, 0.8]])}, GAPS),
    "curl": ({"kernel": CurlFree(1.2)}, Y),
    "landmarks": ({"kernel": Gaussian(1.2), "approximation": Landmarks(X[:9])}, Y),
    "landmarks dense": (
        {
            "kernel": Gaussian(1.2),
            "operator": Dense([[1.0, 0.4], [0.4, 0.8]]),
            "approximation": Landmarks(X[:9]),
        },
        Y,
    ),
}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_predictions_without_samples_are_those_of_refits(case, intercept, grouped):
    arguments, targets = CASES[case]
    alpha, groups = 0.05, GROUPS if grouped else None
    model = OperatorRidge(**arguments, alpha=alpha, fit_intercept=intercept)
    model.fit(X, targets, sample_weight=WEIGHTS, groups=groups)
    mean, variance = model.system_.left_out_at(NEW)
    labels = np.arange(N) if groups is None else GROUPS
    for i in (0, 3, 5, 17):
        rest = labels != labels[i]
        refit = OperatorRidge(**arguments, alpha=alpha * WEIGHTS.sum() / WEIGHTS[rest].sum(), fit_intercept=intercept)
        refit.fit(X[rest], targets[rest], sample_weight=WEIGHTS[rest])
        known = ~np.isnan(targets[i])  # a sample has no errors where it has no targets
        np.testing.assert_allclose(mean[:, i][:, known], refit.predict(NEW)[:, known], rtol=1e-6, atol=1e-8)
        expected = refit.system_.variance(NEW)
        torch.testing.assert_close(variance[:, i][:, known], expected[:, known], rtol=1e-5, atol=1e-8)


def test_a_stack_is_the_mean_of_its_members():
    stack = Stack([Gaussian(1.2), Linear()], weights=[0.3, 0.7], alphas=[0.1, 0.2])
    system = OperatorRidge(stack).fit(X, Y).system_
    mean, variance = system.observed_at(NEW)
    members = [member.observed_at(NEW) for member in system.systems]
    expected = 0.3 * members[0][0] + 0.7 * members[1][0]
    torch.testing.assert_close(mean, expected)
    spread = 0.3 * 0.7 * (members[0][0] - members[1][0]) ** 2
    torch.testing.assert_close(variance, 0.3 * members[0][1] + 0.7 * members[1][1] + spread)
