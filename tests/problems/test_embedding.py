"""The search of embeddings over hyperparameters: its starts, its bounds, kernels that are zero, few landmarks."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler
from tiers import tiers

from representer import ConditionalMeanEmbedding, EmbeddingClassifier
from representer.approximation import Nystroem
from representer.kernels import Gaussian
from representer.problems import embedding
from representer.problems.embedding import BEND, bent

N = 60
OUTSIDE = "start is outside the range"


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    return X, (X[:, 0] + 0.4 * rng.normal(size=N) > 0).astype(int)


# -- starts -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "scale"),
    [
        (EmbeddingClassifier("linear", "rademacher", start={"alpha": 1.0}), 1e-4),
        (EmbeddingClassifier("rbf", start={"lengthscale": 1.0, "alpha": 0.1}), 1e5),
        (EmbeddingClassifier("rbf", start={"lengthscale": [1.0, 1e5, 1e5]}), 1e5),
        (EmbeddingClassifier("rbf", start={"alpha": 1e-30}), 1.0),
    ],
    ids=["large alpha", "short lengthscales", "one short lengthscale", "tiny alpha"],
)
def test_a_start_where_nothing_changes_is_announced_and_left(data, model, scale):
    X, y = data
    with pytest.warns(UserWarning, match=OUTSIDE) as caught:
        model.fit(scale * X, y)
    assert not any("ended at a bound" in str(w.message) for w in caught)
    assert caught[0].filename == __file__
    usual = EmbeddingClassifier(model.kernel, model.criterion).fit(scale * X, y)
    assert model.criterion_value_ < usual.criterion_value_ + 1e-3
    assert model.n_iter_ > 1


def test_a_start_inside_is_where_the_search_starts(data):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = EmbeddingClassifier("rbf", start={"lengthscale": [1.0, 2.0, 3.0], "alpha": 0.01}, shrinkage=0).fit(X, y)
    first = EmbeddingClassifier(Gaussian("ard"), start={"lengthscale": torch.tensor([1.0, 2.0, 3.0]), "alpha": 0.01})
    assert first.set_params(shrinkage=0).fit(X, y).history_[0].value == model.history_[0].value
    other = EmbeddingClassifier("rbf", start={"lengthscale": 1.0, "alpha": 0.01}, shrinkage=0).fit(X, y)
    assert other.history_[0].value != model.history_[0].value


@pytest.mark.parametrize(
    ("alpha", "lengthscale"),
    tiers(
        itertools.product([1e-8, 1e-5, 10.0], [0.01, 0.03, 1.0, 100.0]),
        lambda case: case in ((1e-8, 0.01), (1e-5, 0.03), (10.0, 1.0), (1e-8, 100.0)),
    ),
)
def test_extreme_starts_end_where_the_data_would(lengthscale, alpha):
    """Also those on a plateau: equal flowers of different species, every sample an island, or all samples one."""
    X, y = load_iris(return_X_y=True)
    X = MinMaxScaler().fit_transform(X[:, :2])
    model = EmbeddingClassifier(Gaussian("auto"), "rademacher", fit_intercept=False, shrinkage=0.0, calibration=None)
    usual = clone(model).fit(X, y)
    start = {"lengthscale": lengthscale, "alpha": alpha}
    found = clone(model).set_params(start=start, random_state=0).fit(X, y)
    assert found.criterion_value_ == pytest.approx(usual.criterion_value_, rel=1e-3)
    assert found.n_iter_ == len(found.history_) - (found.history_[0].iteration == 0)
    assert found.history_[-1].value == pytest.approx(found.criterion_value_)


@pytest.mark.parametrize(
    "start",
    [
        {"lengthscale": "foo"},
        {"lengthscale": [1.0, 2.0]},
        {"lengthscale": None},
        {"lengthscale": -1.0},
        {"lengthscale": np.nan},
        {"lengthscale": 0.0},
        {"lengthscale": True},
        {"lengthscale": [1.0, [2.0], 3.0]},
        {"alpha": None},
        {"alpha": "x"},
        {"alpha": [0.1, 0.2]},
        {"alpha": 0.0},
        {"alpha": np.inf},
    ],
    ids=str,
)
def test_bad_starts_are_named(data, start):
    (name,) = start
    with pytest.raises(ValueError, match=rf"start\['{name}'\] must be"):
        EmbeddingClassifier("rbf", start=start).fit(*data)


def test_a_start_where_nothing_is_learned_is_refused(data):
    start = {"alpha": 0.1}
    for model in (
        EmbeddingClassifier("rbf", criterion=None, start=start),
        EmbeddingClassifier(Gaussian(1.0), alpha=0.1, start=start),
    ):
        with pytest.raises(ValueError, match="nothing is learned"):
            model.fit(*data)


def test_beyond_a_bound_there_is_a_gradient_and_far_inside_no_change():
    bound = torch.tensor([9.0], dtype=torch.float64)
    for sign in (1.0, -1.0):
        point = sign * torch.tensor([0.0, -50.0, 8.9, 9.0, 9.5, 60.0], dtype=torch.float64)
        point.requires_grad_()
        moved = bent(point, bound, sign)
        (slopes,) = torch.autograd.grad(moved.sum(), point)
        assert torch.equal(moved[:2], point[:2])
        assert bool((sign * moved <= bound).all())
        assert bool((slopes[:5] > 0.1).all())
        assert abs(moved[3].item() - sign * 9.0) < BEND


# -- kernels that are zero, and overflow ------------------------------------------------------------------------------
def test_a_kernel_that_is_zero_or_overflows_is_named(data):
    X, y = data
    for model in (
        EmbeddingClassifier("linear"),
        EmbeddingClassifier("linear", criterion=None),
        ConditionalMeanEmbedding("linear"),
        ConditionalMeanEmbedding("linear", criterion=None),
    ):
        with pytest.raises(ValueError, match=r"The kernel Linear\(\) is zero on these data"):
            model.fit(0 * X, y)
        with pytest.raises(ValueError, match=r"The kernel Linear\(\) overflows on these data"):
            model.fit(1e200 * X, y)
    with pytest.raises(ValueError, match="is zero on these data"):
        EmbeddingClassifier("precomputed").fit(np.zeros((N, N)), y)
    shares = EmbeddingClassifier("linear", alpha=1.0, calibration=None).fit(0 * X, y).predict_proba(X[:1])
    np.testing.assert_allclose(shares[0], np.bincount(y) / N)


# -- landmarks --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("criterion", ["loo", "validation"])
def test_few_landmarks_still_have_a_kernel_learned_on_many_samples(data, criterion):
    X, y = data
    few = EmbeddingClassifier("rbf", criterion=criterion, approximation=Nystroem(1), random_state=0).fit(X, y)
    whole = EmbeddingClassifier("rbf", criterion=criterion, random_state=0).fit(X, y)
    np.testing.assert_allclose(few.kernel_.lengthscale, whole.kernel_.lengthscale)
    assert few.predict_proba(X).shape == (N, 2)


def test_landmarks_of_a_gram_matrix_are_refused_before_the_search(data, monkeypatch):
    X, y = data
    monkeypatch.setattr(embedding.EmbeddingSearch, "search", lambda *_: pytest.fail("searched"))
    with pytest.raises(ValueError, match="Nystroem needs a kernel that can be evaluated"):
        EmbeddingClassifier("precomputed", approximation=Nystroem(5)).fit(X @ X.T, y)
    with pytest.raises(ValueError, match=r"n_components of Nystroem must be an integer from 1 to .* 60; got 'a'"):
        EmbeddingClassifier("rbf", approximation=Nystroem("a")).fit(X, y)


# -- what is said of the result ---------------------------------------------------------------------------------------
def test_messages_name_what_is_allowed(data):
    X, y = data
    model = EmbeddingClassifier(Gaussian(1.0), alpha=0.1).fit(X, y)
    with pytest.raises(ValueError, match="kind must be None, 'calibrated', 'clipped' or 'embedding'; got 'foo'"):
        model.entropy(X, "foo")
    with pytest.raises(ValueError, match="beta must be a number between 0 and 1; got 'a'"):
        model.risk_bound("a")
    with pytest.raises(ValueError, match="learning_rate must be a positive, finite number; got 0"):
        EmbeddingClassifier("rbf", learning_rate=0).fit(X, y)
    with pytest.raises(ValueError, match="clip must be a number between 0 and 1/e"):
        EmbeddingClassifier("rbf", clip=0.5).fit(X, y)


def test_a_plateau_at_the_last_iteration_gives_way_too():
    X, y = load_iris(return_X_y=True)
    start = {"lengthscale": 1e-3, "alpha": 1e-8}
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):  # of the second search
        found = EmbeddingClassifier("rbf", start=start, max_iter=2).fit(X[::2], y[::2])
    assert found.criterion_value_ < 0.5  # 1.19 on the plateau
