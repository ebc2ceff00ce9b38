"""Standard deviations where inputs repeat: leave-group-out variances by dense conditionals, and the issue's sample."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from representer import OperatorRidge
from representer.approximation import Landmarks, Nystroem
from representer.kernels import Gaussian
from representer.operators import Decomposable, Dense
from representer.systems import RidgeData, factor_system
from representer.systems.exact import CoupledOutputs
from representer.systems.ridge import LeftOutMoments

RNG = np.random.default_rng(1)
N = 16
X = torch.as_tensor(RNG.normal(size=(N, 2)))
Y = torch.as_tensor(RNG.normal(size=(N, 2)))
WEIGHTS = torch.as_tensor(0.5 + RNG.uniform(size=N))
GROUPS = torch.as_tensor([0, 0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0])
CONSTANT = 1e6  # a constant of such a prior variance is nearly free


def conditional_variance(covariance: np.ndarray, noise: np.ndarray, row: int, left_out: np.ndarray) -> float:
    """The variance of a noisy entry given all entries that are not left out, by a dense solve."""
    rest = ~left_out
    inner = covariance[np.ix_(rest, rest)] + np.diag(noise[rest])
    k = covariance[row, rest]
    return float(covariance[row, row] + noise[row] - k @ np.linalg.solve(inner, k))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("coupled", [False, True])
def test_variances_without_a_group_are_conditional_ones(intercept, coupled):
    w, alpha = WEIGHTS / WEIGHTS.mean(), 0.03
    A = np.array([[1.0, 0.4], [0.4, 0.8]]) if coupled else np.eye(2)
    kernel = Decomposable(Gaussian(1.3), Dense(A) if coupled else None)
    data = RidgeData(kernel, X, Y, w, groups=GROUPS, intercept=intercept)
    gram = Gaussian(1.3)(X).numpy()
    covariance = np.kron(gram, A) + (CONSTANT * np.kron(np.ones((N, N)), np.eye(2)) if intercept else 0.0)
    noise = np.repeat(N * alpha / w.numpy(), 2)
    member = np.repeat(GROUPS.numpy(), 2)
    expected = [conditional_variance(covariance, noise, i, member == member[i]) for i in range(2 * N)]
    system = (CoupledOutputs if coupled else factor_system)(data, alpha)
    found = system.left_out_variance().numpy().reshape(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_sums_know_the_same_variances():
    """All samples as landmarks make a fit by sums the exact one."""
    options = {"alpha": 0.03, "fit_intercept": True}
    fits = [
        OperatorRidge(Gaussian(1.3), approximation=approximation, **options).fit(
            X.numpy(), Y.numpy(), sample_weight=WEIGHTS.numpy(), groups=GROUPS.numpy()
        )
        for approximation in (None, Landmarks(X.numpy()))
    ]
    exact, summed = (fit.system_.left_out_moments() for fit in fits)
    torch.testing.assert_close(exact.variance, summed.variance, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(exact.mean, summed.mean, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("whole", [False, True])
def test_what_landmarks_miss_is_as_uncertain_at_left_out_samples_as_at_new_ones(whole):
    """The variance at a sample of a fit without it, which has n/(n − 1) times the alpha, and noise."""
    landmarks, alpha = Landmarks(X.numpy() if whole else X[:4].numpy() + 0.1), 0.03

    def system(rows, alpha):
        model = OperatorRidge(Gaussian(0.7), alpha=alpha, approximation=landmarks, fit_intercept=False)
        return model.fit(X[rows].numpy(), Y[rows].numpy()).system_

    rows = np.arange(N)
    refits = [system(np.delete(rows, i), alpha * N / (N - 1)).variance(X[i : i + 1].numpy()) for i in range(3)]
    found = system(rows, alpha).left_out_variance()
    torch.testing.assert_close(found[:3], torch.cat(refits) + N * alpha, rtol=1e-6, atol=1e-8)


def test_few_landmarks_leave_deviations_of_the_size_of_the_errors():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2000, 8))
    y = inputs[:, 0] + np.sin(2 * inputs[:, 1]) + 0.3 * rng.normal(size=2000)
    model = OperatorRidge("rbf", approximation=Nystroem(10), random_state=0).fit(inputs[:1500], y[:1500])
    mean, std = model.predict(inputs[1500:], return_std=True)
    error = np.sqrt(np.mean((mean - y[1500:]) ** 2))
    assert 0.5 * error < std.min() and std.max() < 2.0 * error


@pytest.mark.parametrize("seed", range(3))
def test_one_twin_does_not_blow_up_the_deviation(seed):
    rng = np.random.default_rng(seed)
    inputs, new = rng.uniform(-1, 1, (100, 2)), rng.uniform(-1, 1, (50, 2))
    inputs[1] = inputs[0]
    y = np.abs(inputs[:, 0]) + inputs[:, 1]
    y[1] += 0.1
    _, std = OperatorRidge("laplacian").fit(inputs, y).predict(new, return_std=True)
    assert 0.01 < np.median(std) < 0.04


def test_one_pair_speaks_of_the_noise_at_inputs_that_were_measured():
    """A fit that interpolates expects no noise there, and a third measurement may differ as the first two did."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (100, 2))
    y = np.abs(inputs[:, 0]) + inputs[:, 1]
    _, before = OperatorRidge("laplacian").fit(inputs, y).predict(inputs[:1], return_std=True)
    inputs[1] = inputs[0]
    y[:2] = 0.0, 0.1
    model = OperatorRidge("laplacian").fit(inputs, y)
    _, std = model.predict(inputs[:1], return_std=True)
    assert before[0] < 2e-3 and 0.01 < std[0] < 0.1
    assert float(model.system_.noise()[0]) > 100.0 * float(model.system_.prior_scale()[0]) * model.alpha_ * 100
    _, again = pickle.loads(pickle.dumps(model)).predict(inputs[:1], return_std=True)
    assert again[0] == std[0]


def test_the_noise_of_replicates_is_the_likeliest():
    """Residuals of variance v + u·t and replicates of variance t, drawn with t = 4 u: the factor is about four."""
    rng = np.random.default_rng(0)
    n, unit = 4000, 0.5
    latent = torch.as_tensor(rng.uniform(0.0, 2.0, (n, 1)))
    noise = torch.full((n, 1), unit, dtype=torch.float64)
    Y = torch.as_tensor(rng.normal(size=(n, 1))) * (3.0 * (latent + 4.0 * noise)).sqrt()
    moments = LeftOutMoments(Y, torch.zeros_like(Y), latent + noise, None, noise)
    freedom = torch.tensor([500.0], dtype=torch.float64)
    scale, factor = moments.calibrated(unit, 3.0 * 4.0 * unit * freedom, freedom)
    assert float(scale[0]) == pytest.approx(3.0, rel=0.15) and float(factor[0]) == pytest.approx(4.0, rel=0.2)


def test_replicates_bound_the_noise_with_a_warning():
    """Means of pairs on a smooth curve ask for no noise, and the pairs themselves for 0.1: alpha rises."""
    inputs = np.repeat(np.linspace(-3, 3, 30), 2)[:, None]
    y = np.sin(inputs[:, 0]) + 0.1 * (-1.0) ** np.arange(60)
    with pytest.warns(UserWarning, match=r"alpha was raised from \S+ to \S+: samples") as told:
        model = OperatorRidge("laplacian").fit(inputs, y)
    assert len(told) == 1 and f"to {model.alpha_:.2g}:" in str(told[0].message)
    deviation = float(model.system_.noise()[0].sqrt())
    least = np.sqrt(2 * 30 * 0.1**2 / 50.9)  # the 99 % quantile of χ² with 30 degrees of freedom
    assert least <= deviation < 1.5 * least
    fixed = OperatorRidge("laplacian", alpha=1e-9).fit(inputs, y)
    assert fixed.alpha_ == 1e-9


def test_weights_and_repetition_choose_the_same_alpha():
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(30, 2))
    y, repeats = np.sin(inputs[:, 0]) + 0.3 * rng.normal(size=30), np.arange(30) % 3 + 1
    rows = np.arange(30).repeat(repeats)
    weighted = OperatorRidge(Gaussian("auto"), fit_intercept=True).set_params(kernel__lengthscale=1.1)
    repeated = OperatorRidge(Gaussian(1.1), fit_intercept=True).fit(inputs[rows], y[rows])
    weighted.fit(inputs, y, sample_weight=repeats)
    assert weighted.alpha_ == pytest.approx(repeated.alpha_, rel=1e-6)
    np.testing.assert_allclose(weighted.predict(inputs), repeated.predict(inputs), rtol=1e-6)
