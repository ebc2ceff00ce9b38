"""The share of k(x, x) that samples explain, against dense algebra, refits and scikit-learn's Gaussian process."""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from representer import ConditionalMeanEmbedding
from representer.approximation import Landmarks, Nystroem
from representer.functions import Expansion, Stacked
from representer.kernels import Gaussian, Laplacian, Linear
from representer.notices import NumericalWarning
from representer.operators import CurlFree, Decomposable, Representation, Separate
from representer.operators.joint import OutputMean
from representer.samples import HeldSamples, evenly_spaced
from representer.systems import support as support_module
from representer.systems.scalar import SampleWeights
from representer.systems.support import MOST_NOISE, PointSupport, Support, Trust

HOW = Representation(torch.float64)


def _function(X, kernel=None, p=1):
    kernel = Decomposable(Gaussian(1.3)) if kernel is None else kernel
    return Expansion(kernel, X, np.zeros((len(X), p)), None, HOW)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(25, 2)), rng.normal(size=(8, 2)) * 2


def test_support_is_what_a_gaussian_process_has_learned(data):
    X, new = data
    alpha = 0.001
    process = GaussianProcessRegressor(RBF(1.3), alpha=len(X) * alpha, optimizer=None).fit(X, np.zeros(len(X)))
    _, deviation = process.predict(new, return_std=True)
    np.testing.assert_allclose(Support.of(_function(X), alpha)(new), 1 - deviation**2, atol=1e-10)


def test_noisy_targets_take_no_support_from_the_neighbours_of_samples(data):
    X, new = data
    most = Support.of(_function(X), 100.0)
    np.testing.assert_allclose(most(new), Support.of(_function(X), MOST_NOISE / len(X))(new))
    assert most(X).min() > 1 / (1 + MOST_NOISE) - 1e-12  # one sample alone explains so much of itself
    np.testing.assert_allclose(Support.of(_function(X, Decomposable(5.0 * Gaussian(1.3))), 100.0)(new), most(new))


def test_few_points_are_a_fit_to_them_with_the_same_alpha(data):
    X, new = data
    w = np.linspace(1, 2, len(X))
    for weights in (None, w):
        whole = SampleWeights(Gaussian(1.3), X, 0.02 * (len(X) if weights is None else w.sum()), True, HOW, weights)
        few, rows = PointSupport(whole).some(9), evenly_spaced(len(X), 9)
        own = np.ones(9) if weights is None else w[rows]
        K, k = Gaussian(1.3)(X[rows]).numpy(), Gaussian(1.3)(new, X[rows]).numpy()
        W = K + 0.02 * np.diag(own.sum() / own)
        np.testing.assert_allclose(few(new), (k * np.linalg.solve(W, k.T).T).sum(1))
    assert PointSupport(whole).some(25) == PointSupport(whole)


@pytest.mark.parametrize("weights", [None, np.linspace(0, 2, 25)])
def test_one_point_supports_less_than_all(data, weights):
    X, new = data
    support = PointSupport(SampleWeights(Gaussian(0.7), X, 0.02, False, HOW, weights))
    k, noise = Gaussian(0.7)(new, X).numpy(), 0.02 / (np.ones(25) if weights is None else weights + 1e-300)
    np.testing.assert_allclose(support.at_least(new), (k**2 / (1 + noise)).max(1))
    assert np.all(support.at_least(new).numpy() <= support(new).numpy())
    own = None if weights is None else weights[1:2]
    one = PointSupport(SampleWeights(Gaussian(0.7), X[1:2], 0.02, False, HOW, own))
    np.testing.assert_allclose(one.at_least(new), one(new))  # the only point is the best one


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_left_out_support_is_that_of_refits(data, weighted, grouped):
    X, _ = data
    n, alpha = len(X), 0.001
    w = np.linspace(0, 2, n) if weighted else np.ones(n)
    groups = np.arange(n) // 3 if grouped else np.arange(n)
    held = HeldSamples(np.empty(0), X, np.zeros((n, 1)), w if weighted else None, groups if grouped else None)
    left_out = Support.of(_function(X), alpha, samples=held).left_out()
    K = Gaussian(1.3)(X).numpy()
    for i in range(n):
        rest = (groups != groups[i]) & (w > 0) if w[i] > 0 else w > 0
        W = K[np.ix_(rest, rest)] + np.diag(alpha * w.sum() / w[rest])
        np.testing.assert_allclose(left_out[i], K[i, rest] @ np.linalg.solve(W, K[i, rest]), atol=1e-10)


def test_a_stack_counts_its_bounded_members_by_their_weights(data):
    X, new = data
    kernels = [Gaussian(0.5), Laplacian(2.0), Linear()]
    members = [_function(X, Decomposable(kernel)) for kernel in kernels]
    weights, alphas = np.array([[0.2], [0.3], [0.5]]), np.array([0.01, 0.1, 1.0])
    support = Support.of(Stacked(tuple(members), weights), alphas)
    each = [Support.of(member, alpha)(new) for member, alpha in zip(members, alphas, strict=True)]
    assert support.bounded
    np.testing.assert_allclose(support(new), 0.4 * each[0] + 0.6 * each[1])


def test_support_of_an_unbounded_kernel_says_directions():
    X = np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]])
    support = Support.of(_function(X, Decomposable(Linear())), 1e-6)
    assert not support.bounded
    np.testing.assert_allclose(support(np.array([[100.0, 0.0], [0.0, 1.0], [0.0, 0.0]])), [1, 0, 0], atol=1e-5)


@pytest.mark.parametrize("kernel", [CurlFree(0.9), Separate([Gaussian(1.0), Laplacian(2.0)])])
def test_outputs_that_are_not_alike_have_the_mean_of_their_kernels(data, kernel):
    X, new = data
    k = OutputMean(kernel, 2)
    X, new = torch.from_numpy(X), torch.from_numpy(new)
    K = torch.stack([torch.stack([kernel.dense(x[None], z[None], 2).trace() / 2 for z in X]) for x in new])
    np.testing.assert_allclose(k(new, X), K)
    np.testing.assert_allclose(k.diag(new), torch.stack([k(x[None])[0, 0] for x in new]))
    support = Support.of(_function(X.numpy(), kernel, 2), 0.001)
    W = k(X) + 0.001 * len(X) * torch.eye(len(X))
    np.testing.assert_allclose(support(new.numpy()), ((K @ torch.linalg.inv(W)) * K).sum(1) / k.diag(new), atol=1e-10)
    assert support.bounded


@pytest.mark.parametrize("reference", [1e-6, 0.3, 0.99])
def test_trust_is_that_of_a_dense_inverse_near_the_samples_and_far_from_them(data, reference):
    X, new = data
    new = np.vstack([X[:5], new, 30.0 + new])
    trusted = Trust(PointSupport(SampleWeights(Gaussian(1.3), X, 0.02, False, HOW)), reference, 0.25)
    k = Gaussian(1.3)(new, X).numpy()
    share = ((k @ np.linalg.inv(Gaussian(1.3)(X).numpy() + 0.02 * np.eye(len(X)))) * k).sum(1)
    np.testing.assert_allclose(trusted(new)[:, 0], np.minimum(1.0, share / reference) ** 0.25, atol=1e-10)


@pytest.mark.parametrize("approximation", [Landmarks([[0.0]]), Nystroem(1)])
def test_one_landmark_beside_a_constant_has_no_support_by_others(approximation: Landmarks | Nystroem) -> None:
    X = np.arange(6.0)[:, None]
    model = ConditionalMeanEmbedding(
        Gaussian(1.0), alpha=0.01, approximation=approximation, fit_intercept=True, random_state=0
    ).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()


def test_samples_that_rounding_cannot_leave_out_are_explained_by_nothing(rng):
    """In single precision a block of the inverse was singular, and torch said so in its own words."""
    X, Y = rng.normal(10.0, 1.0, size=(16, 3)), rng.normal(size=(16, 2))
    blocks = torch.stack([torch.eye(2), torch.ones(2, 2), torch.full((2, 2), torch.nan)])
    found = support_module._inverse_diagonal(blocks)
    assert torch.equal(found, torch.tensor([[1.0, 1.0], [torch.inf, torch.inf], [torch.inf, torch.inf]]))
    with pytest.warns(NumericalWarning):
        model = ConditionalMeanEmbedding(Laplacian(3.99).centered(), alpha=1e-9, dtype="float32", random_state=0).fit(
            X, Y
        )
    assert np.all((model.support(X) >= 0) & (model.support(X) <= 1))
