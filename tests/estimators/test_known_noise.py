"""Measurements of known noise: dense formulas, one output at a time, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from representer import DeepKernelRegressor, OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import Gaussian, Laplacian, Stack

RNG = np.random.default_rng(4)
N = 30
X, NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(5, 2))
NOISE = np.exp(RNG.normal(size=N)) * 0.1
Y = np.sin(X[:, 0]) + NOISE * RNG.normal(size=N)
BOTH = np.column_stack([Y, np.cos(X[:, 1])])
OF_OUTPUTS = np.column_stack([NOISE, np.full(N, 0.05) * np.exp(RNG.normal(size=N))])


def test_the_fit_is_the_mean_of_a_process_with_that_noise():
    gram, cross = Gaussian(1.0)(X).numpy(), Gaussian(1.0)(NEW, X).numpy()
    model = OperatorRidge(Gaussian(1.0), alpha=0.01, fit_intercept=False).fit(X, Y, noise=NOISE)
    weights = (np.median(NOISE) / NOISE) ** 2
    noise = 0.01 * weights.sum() / weights  # in units of the prior's scale
    expected = cross @ np.linalg.solve(gram + np.diag(noise), Y)
    np.testing.assert_allclose(model.predict(NEW), expected, rtol=1e-8)
    np.testing.assert_allclose(noise / noise[0], NOISE**2 / NOISE[0] ** 2)


@pytest.mark.parametrize("intercept", [False, True])
def test_noise_of_each_output_is_one_fit_an_output(intercept):
    options = {"fit_intercept": intercept}
    both = OperatorRidge(Gaussian(1.0), alpha=0.01, **options).fit(X, BOTH, noise=OF_OUTPUTS)
    mean, std = both.predict(NEW, return_std=True)
    weights = (np.median(OF_OUTPUTS, 0) / OF_OUTPUTS) ** 2
    for j in range(2):
        own = 0.01 * N * weights.mean() / weights[:, j].sum()  # the same noise of every target
        one = OperatorRidge(Gaussian(1.0), alpha=own, **options).fit(X, BOTH[:, j], noise=OF_OUTPUTS[:, j])
        expected, spread = one.predict(NEW, return_std=True)
        np.testing.assert_allclose(mean[:, j], expected, rtol=1e-6)
        np.testing.assert_allclose(std[:, j], spread, rtol=1e-6)
        np.testing.assert_allclose(both.loo_predict_[:, j], one.loo_predict_, rtol=1e-6)
        np.testing.assert_allclose(
            both.predict_interval(NEW)[:, j], one.predict_interval(NEW), rtol=1e-5, err_msg="intervals"
        )


def test_alpha_stands_for_at_least_the_known_noise():
    """A smooth curve asks for no noise, and its measurements are said to have some."""
    y = np.sin(X[:, 0])
    free = OperatorRidge(Gaussian(1.0)).fit(X, y)
    told = OperatorRidge(Gaussian(1.0)).fit(X, y, noise=np.full(N, 0.1))
    assert float(free.system_.noise()[0]) < 0.01 <= float(told.system_.noise()[0]) < 0.021
    _, std = told.predict(NEW, return_std=True)
    assert (std >= 0.1).all()


def test_precise_measurements_count_more_and_units_do_not():
    kernels = Stack([Gaussian("auto"), Laplacian(1.0)])
    scale = 1e6
    one = OperatorRidge(kernels, random_state=0).fit(X, Y, noise=NOISE)
    two = OperatorRidge(kernels, random_state=0).fit(X, scale * Y, noise=scale * NOISE)
    np.testing.assert_allclose(scale * one.predict(NEW), two.predict(NEW), rtol=1e-3)
    deep = DeepKernelRegressor([], Gaussian(1.0), alpha=0.01).fit(X, Y, noise=NOISE)
    weighted = DeepKernelRegressor([], Gaussian(1.0), alpha=0.01).fit(X, Y, sample_weight=1.0 / NOISE**2)
    np.testing.assert_allclose(deep.predict(NEW), weighted.predict(NEW), rtol=1e-6)


def test_intervals_of_folds_know_the_noise():
    model = OperatorRidge(Gaussian("ard"), tol=1e-2, random_state=0).fit(X, Y, noise=NOISE)
    ends = model.predict_interval(NEW, coverage=0.8)
    assert ends.shape == (5, 2) and np.isfinite(ends).all()


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (np.ones(3), r"shape \(30,\) or \(30, 2\); got shape \(3,\)"),
        (np.zeros(N), "positive and finite.*got .*0.0.* in row 0"),
        (np.full(N, np.nan), "positive and finite"),
        (-NOISE, "positive and finite"),
    ],
)
def test_noise_that_is_none_is_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        OperatorRidge(Gaussian(1.0)).fit(X, BOTH, noise=noise)


def test_learners_that_cannot_say_why():
    with pytest.raises(ValueError, match="noise= of each output is for exact fits"):
        OperatorRidge(Gaussian(1.0), approximation=Nystroem(5)).fit(X, BOTH, noise=OF_OUTPUTS)
    with pytest.raises(ValueError, match="inner layers, which all outputs"):
        DeepKernelRegressor([]).fit(X, BOTH, noise=OF_OUTPUTS)
    OperatorRidge(Gaussian(1.0), approximation=Nystroem(5), random_state=0).fit(X, BOTH, noise=NOISE)
