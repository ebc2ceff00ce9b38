"""What a fit looks at: all samples of an exact one, random ones of a fit by features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from representer import EmbeddingClassifier
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.kernels import Gaussian
from representer.operators import Decomposable
from representer.samples import Block, InMemory, OnDask
from representer.systems import Scope


@pytest.fixture
def data():
    return np.random.default_rng(0).normal(size=(60, 2))


def samples(X, weights=None):
    w = None if weights is None else torch.from_numpy(weights)
    return InMemory(Block(torch.from_numpy(X), torch.zeros(len(X), 1), w))


def test_an_exact_fit_looks_at_all_samples(data):
    scope, everyone = Scope.of(None, 60), np.arange(60)
    assert scope.spans_all
    np.testing.assert_array_equal(scope.rows(samples(data), 10, 0), everyone)
    np.testing.assert_array_equal(scope.heuristic_rows(samples(data)), everyone)
    np.testing.assert_array_equal(scope.subset(samples(data), Gaussian(1.0), lambda X: X, 0), everyone)
    assert (scope.search_size(60), scope.max_rank(60)) == (60, None)
    scope.require(False, "nothing is approximated")


def test_a_share_of_the_samples_is_a_number_of_landmarks(data):
    scope = Scope.of((Nystroem(0.25), Nystroem(3)), 60)
    assert not scope.spans_all
    assert scope.approximation == Nystroem(15)
    assert (scope.max_rank(60), scope.max_rank(8)) == (15, 8)
    assert len(scope.rows(samples(data), 10, 0)) == 10
    kernel = Decomposable(Gaussian(1.0))
    few = torch.from_numpy(data[:8])
    torch.testing.assert_close(scope.landmarks(kernel, few, 0), torch.arange(8))


def test_landmarks_that_are_samples_are_those_of_the_approximation(data):
    X, kernel = torch.from_numpy(data), Gaussian(1.0)
    for sampling in ("uniform", "pivots", "leverage", "entropy"):
        nystroem = Nystroem(7, sampling)
        subset = Scope.of(nystroem, 60).subset(samples(data), kernel, kernel.prepare, 0)
        np.testing.assert_array_equal(subset, nystroem.samples(kernel, X, seed=0).numpy())


def test_what_an_approximation_cannot_do_is_refused():
    scope = Scope.of(Nystroem(5), 60)
    scope.require(True, "fine")
    with pytest.raises(ValueError, match="not with landmarks"):
        scope.require(False, "not with landmarks")
    with pytest.raises(ValueError, match="integer from 1 to the number of samples, 3"):
        scope.check(Gaussian(1.0), 3)


def test_a_search_goes_by_random_features_that_move_with_the_kernel(data):
    X, scope = torch.from_numpy(data), Scope.of(RandomFeatures(12), 60)
    assert scope.search_size(60) == 60
    moved = scope.moved(Gaussian(1.0), X, 3)
    expected = RandomFeatures(12).features(Gaussian(2.5), X, seed=3)(X)
    torch.testing.assert_close(moved(Gaussian(2.5), X), expected)
    assert Scope.of(Nystroem(5), 60).moved(Gaussian(1.0), X, 3) is None
    assert Scope.of(Nystroem(600), 5000).search_size(5000) == 600
    assert Scope.of(Landmarks(data), 5000).search_size(5000) == 500


def test_samples_of_weight_zero_are_none(data):
    weights = np.ones(60)
    weights[[0, 7]] = 0.0
    held = samples(data, weights)
    np.testing.assert_array_equal(held.weighty(), np.flatnonzero(weights))
    np.testing.assert_array_equal(held.positive_part(pairwise=False).held.X, data[weights > 0])
    assert samples(data).positive_part(pairwise=False).n == 60
    again = held.recalled(data, lambda Y: Y[:, 0], pairwise=False)
    np.testing.assert_array_equal(again.X, data[weights > 0])


def test_samples_on_dask_have_no_block_of_all(data):
    array = pytest.importorskip("dask.array")
    lazy = OnDask(array.from_array(data, chunks=20), None, None, dtype=torch.float64)
    assert lazy.held is None
    assert lazy.recalled(data, lambda Y: Y, pairwise=False) is None
    assert lazy.positive_part(pairwise=False) is lazy


@pytest.mark.parametrize("approximation", [None, Landmarks([[0.0, 0.0], [1.0, 0.5], [-1.0, 0.2]])])
def test_weight_zero_is_no_sample_in_the_default_alpha(data, approximation):
    y = (data[:, 0] > 0).astype(int)
    weights = np.ones(60)
    weights[::4] = 0.0
    learner = EmbeddingClassifier(Gaussian(1.0), criterion=None, calibration=None, approximation=approximation)
    weighted = learner.fit(data, y, sample_weight=weights)
    alpha, estimates = weighted.alpha_, weighted.function_(data)
    part = learner.fit(data[weights > 0], y[weights > 0])
    assert alpha == pytest.approx(part.alpha_, rel=1e-12)
    torch.testing.assert_close(estimates, part.function_(data))
