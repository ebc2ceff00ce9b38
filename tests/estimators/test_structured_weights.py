"""Sample weights of StructuredPredictor by repetition of rows, groups by refits without them."""

from __future__ import annotations

from typing import Any

import naive_structured as ns
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut
from tiers import tiers

from representer import StructuredPredictor
from representer.approximation import Landmarks, Nystroem
from representer.kernels import Gaussian, Spectrum
from representer.operators import ConditionalCovariance
from representer.preimage import Decoder, Direct

ALPHA, EPSILON, COMPONENTS = 2e-3, 5e-2, 2
NAMES = ["identity", "kpca", "covariance", "conditional_covariance"]
VALUES = {"identity": None, "conditional_covariance": ConditionalCovariance(EPSILON)}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(24, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]]) + 0.2 * rng.normal(size=(24, 2))
    weights = rng.integers(0, 4, size=24).astype(float)
    weights[:2] = [2.0, 0.0]
    return X, Y, weights, rng.normal(size=(6, 3))


def predictor(name: str, **options: Any) -> StructuredPredictor:
    options = {"kernel": Gaussian(1.3), "output_kernel": Gaussian(0.9), "alpha": ALPHA, **options}
    components = COMPONENTS if name == "kpca" else "auto"
    return StructuredPredictor(operator=VALUES.get(name, name), n_components=components, **options)


def values(model: StructuredPredictor, new: np.ndarray) -> np.ndarray:
    """g(x)(y) at some outputs y."""
    return model.decision_embedding(new)(np.linspace(-1, 1, 8).reshape(4, 2)).numpy()


# -- weights ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_integer_weights_repeat_samples(data, name, fit_intercept):
    X, Y, weights, new = data
    repeated = np.repeat(np.arange(24), weights.astype(int))
    pair = (Landmarks(X[:12]), Landmarks(Y[:9]))
    for options in ({}, {"output_kernel": "linear"}, {"kernel": "linear"}, {"approximation": pair}):
        model = predictor(name, fit_intercept=fit_intercept, **options)
        one = clone(model).fit(X, Y, sample_weight=weights)
        two = clone(model).fit(X[repeated], Y[repeated])
        np.testing.assert_allclose(values(one, new), values(two, new), atol=1e-8)
        np.testing.assert_allclose(one.predict(new), two.predict(new))
        twice = clone(model).fit(X, Y, sample_weight=2.0 * np.ones(24))
        np.testing.assert_allclose(values(twice, new), values(clone(model).fit(X, Y), new), atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_weightless_samples_are_absent(data, name):
    X, Y, weights, new = data
    there = weights > 0
    one = predictor(name).fit(X, Y, sample_weight=weights)
    assert len(one.X_fit_) == len(one.Y_fit_) == there.sum()
    absent = predictor(name).fit(X[there], Y[there], sample_weight=weights[there])
    np.testing.assert_array_equal(values(one, new), values(absent, new))
    gram, L = ns.gaussian(X, X, 1.3), ns.gaussian(Y, Y, 0.9)
    by_gram = predictor(name, kernel="precomputed").fit(gram, Y, sample_weight=weights)
    np.testing.assert_allclose(values(by_gram, ns.gaussian(new, X, 1.3)), values(one, new), atol=1e-9)
    numbers = predictor(name, output_kernel="precomputed").fit(X, L, sample_weight=weights).predict(new)
    np.testing.assert_allclose(Y[there][numbers], one.predict(new))


def test_weights_of_inputs_without_outputs(data):
    X, Y, weights, new = data
    gaps = np.where((np.arange(24) % 4 > 0)[:, None], Y, np.nan)
    repeated = np.repeat(np.arange(24), weights.astype(int))
    for options in ({}, {"approximation": (Landmarks(X[:12]), Landmarks(Y[:9]))}):
        model = predictor("conditional_covariance", **options)
        one, two = (
            clone(model).fit(X, gaps, sample_weight=weights),
            clone(model).fit(X[repeated], gaps[repeated]),
        )
        np.testing.assert_allclose(values(one, new), values(two, new), atol=1e-8)
        plainly = clone(model).fit(X, gaps)
        assert np.abs(values(one, new) - values(plainly, new)).max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_weights_in_batches_and_on_dask(data, name):
    da: Any = pytest.importorskip("dask.array")
    X, Y, weights, new = data
    model = predictor(name, approximation=(Landmarks(X[:12]), Landmarks(Y[:9])), random_state=0)
    for alpha in (ALPHA, "auto"):
        whole, parts = clone(model).set_params(alpha=alpha), clone(model).set_params(alpha=alpha)
        whole.fit(X, Y, sample_weight=weights)
        for rows in np.array_split(np.arange(24), 3):
            parts.partial_fit(X[rows], Y[rows], sample_weight=weights[rows])
        remote = clone(whole).fit(
            *(da.from_array(a, chunks=(7, 2 if a.shape[1] == 2 else 3)) for a in (X, Y)),
            sample_weight=da.from_array(weights, chunks=7),
        )
        for other in (parts, remote):
            assert other.alpha_ == pytest.approx(whole.alpha_, rel=1e-8)
            np.testing.assert_allclose(values(other, new), values(whole, new), atol=1e-8)
        assert parts.n_samples_seen_ == (weights > 0).sum()


def test_weights_of_a_task(data):
    """The weighted mean of the losses over the folds, by refits."""
    X, Y, weights, _ = data
    weights = weights + 1.0
    folds = [(np.flatnonzero(np.arange(24) % 3 != i), np.flatnonzero(np.arange(24) % 3 == i)) for i in range(3)]

    def loss(true, predicted):
        return ((true - predicted) ** 2).sum(1)

    options = {"criterion": "validation", "task_loss": loss, "cv": folds, "alpha": [ALPHA, 1.0]}
    model = predictor("identity").set_params(**options).fit(X, Y, sample_weight=weights)
    totals = []
    for alpha in (ALPHA, 1.0):
        refit, total = predictor("identity", alpha=alpha), 0.0
        for a, b in folds:
            refit.fit(X[a], Y[a], sample_weight=weights[a])
            total += weights[b] @ loss(Y[b], refit.predict(X[b]))
        totals.append(total / weights.sum())
    np.testing.assert_allclose(model.criterion_value_, min(totals))


# -- groups -----------------------------------------------------------------------------------------------------------
def left_out(k, features, A, groups, weights):
    """Predictions for each sample by the regression without its group; the operator and n·alpha stay."""
    root, found = np.sqrt(weights), np.empty_like(features)
    for group in np.unique(groups):
        out, rows = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        K, F = root[rows, None] * k[np.ix_(rows, rows)] * root[rows], root[rows, None] * features[rows]
        system = np.kron(K, A) + weights.sum() * ALPHA * np.eye(F.size)
        C = np.linalg.solve(system, F.ravel()).reshape(F.shape)
        found[out] = k[np.ix_(out, rows)] @ (root[rows, None] * C) @ A
    return found


def fitted_operator(name, k, features, weights):
    """The operator of weighted samples: that of repeated rows."""
    root = np.sqrt(weights)
    weighted, n = root[:, None] * features, weights.sum()
    if name == "conditional_covariance":
        P = n * EPSILON * np.linalg.inv(root[:, None] * k * root + n * EPSILON * np.eye(len(k)))
        return weighted.T @ P @ weighted / n
    if name == "kpca":
        V = np.linalg.eigh(weighted.T @ weighted)[1][:, -COMPONENTS:]
        return V @ V.T
    return weighted.T @ weighted / n if name == "covariance" else np.eye(features.shape[1])


class Recording(Decoder):
    """Keeps what it is calibrated with."""

    def calibrate(self, embedding, Y):
        new = Recording()
        new.seen = embedding
        return new

    def decode(self, embedding, X=None):
        return [0] * len(embedding)


@pytest.mark.parametrize("weighted", tiers([False, True], bool))
@pytest.mark.parametrize("name", tiers(NAMES, lambda name: name not in ("kpca", "covariance")))
def test_groups_are_left_out_together(data, name, weighted, rng):
    X, Y, weights, _ = data
    weights = weights + 1.0 if weighted else np.ones(24)
    groups = np.array(list("aabbbbccdeefghhhiijjjkll"))
    k = ns.gaussian(X, X, 1.3)
    wide = np.column_stack([Y, Y[:, :1] * Y[:, 1:]])
    for outputs, approximation in (
        (wide, None),
        (np.column_stack([wide, np.zeros((24, 30))]), None),  # weights of the outputs, not of axes
        (wide, (Landmarks(X), Nystroem(3))),
    ):
        for mean in (0.0, np.average(outputs, axis=0, weights=weights)):
            features = outputs - mean
            A = fitted_operator(name, k, features, weights)
            expected = left_out(k, features, A, groups, weights) + mean
            error = weights @ ((outputs - expected) ** 2).sum(1) / weights.sum()
            options = {"output_kernel": "linear", "alpha": [ALPHA], "approximation": approximation}
            model = predictor(name, decoder=Recording(), fit_intercept=np.any(mean != 0.0), **options)
            model.fit(X, outputs, sample_weight=weights if weighted else None, groups=groups)
            np.testing.assert_allclose(model.criterion_value_, error, rtol=1e-6)
            np.testing.assert_allclose(Direct().decode(model.decoder_.seen), expected, atol=1e-6)
            singly = clone(model).fit(X, outputs, sample_weight=weights if weighted else None)
            assert abs(singly.criterion_value_ / model.criterion_value_ - 1.0) > 1e-3


def test_inputs_with_few_features_leave_groups_out(data):
    X, Y, _, _ = data
    groups, k = np.arange(24) // 3, X @ X.T
    for name in NAMES:
        A = fitted_operator(name, k, Y, np.ones(24))
        expected = ((Y - left_out(k, Y, A, groups, np.ones(24))) ** 2).sum() / 24
        model = predictor(name, kernel="linear", output_kernel="linear", alpha=[ALPHA])
        np.testing.assert_allclose(model.fit(X, Y, groups=groups).criterion_value_, expected, rtol=1e-8)


def test_groups_stay_together_in_folds_and_searches(data):
    X, Y, _, _ = data
    groups = np.arange(24) // 4
    seen = []

    def loss(true, predicted):
        seen.append(true)
        return ((true - predicted) ** 2).sum(1)

    options = {"criterion": "validation", "task_loss": loss, "alpha": [ALPHA, 1.0], "random_state": 0}
    for cv in (3, GroupKFold(3), LeaveOneGroupOut()):
        seen.clear()
        predictor("identity").set_params(cv=cv, **options).fit(X, Y, groups=groups)
        places = [np.flatnonzero((Y[:, None] == fold).all(2).any(1)) for fold in seen]
        assert all((np.bincount(groups[rows], minlength=6) % 4 == 0).all() for rows in places)


def test_twins_in_one_group_do_not_fool_a_search(data, rng):
    X, Y, _, _ = data
    twins = np.tile(X, (2, 1)) + 0.01 * rng.normal(size=(48, 3)), np.tile(Y, (2, 1))
    model = StructuredPredictor("rbf", "linear")
    fooled, grouped = clone(model).fit(*twins), clone(model).fit(*twins, groups=np.tile(np.arange(24), 2))
    assert grouped.alpha_ > 10.0 * fooled.alpha_ and grouped.criterion_value_ > 10.0 * fooled.criterion_value_


@pytest.mark.parametrize("name", ["identity", "covariance"])
def test_a_kernel_is_learned_with_groups_and_weights(data, name):
    """No neighbour of the learned kernel has a lower error of groups, weights included."""
    X, Y, weights, _ = data
    options = {"sample_weight": weights + 1.0, "groups": np.arange(24) // 3}
    model = predictor(name, kernel=Gaussian("auto"), output_kernel="linear", alpha=ALPHA).fit(X, Y, **options)
    errors = [
        predictor(name, kernel=Gaussian(f * model.kernel_.lengthscale), output_kernel="linear", alpha=[ALPHA])
        .fit(X, Y, **options)
        .criterion_value_
        for f in (0.8, 1.0, 1.25)
    ]
    assert errors[1] == pytest.approx(model.criterion_value_) and errors[1] < min(errors[0], errors[2])


def test_bad_weights_and_groups(data):
    X, Y, _, _ = data
    model = predictor("identity", alpha="auto")
    for weights, message in (
        (-np.ones(24), "[Nn]egative"),
        (np.zeros(24), "non-zero"),
        (np.ones(3), "shape|inconsistent"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, Y, sample_weight=weights)
    with pytest.raises(ValueError, match=r"one label for each of the 24 samples; got an array of shape \(3,\)"):
        model.fit(X, Y, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="n_groups=1: the criterion leaves samples out"):
        model.fit(X, Y, groups=np.zeros(24))
    words = StructuredPredictor("rbf", Spectrum(2), alpha=0.1).fit(X, ["ab", "ba"] * 12, sample_weight=np.ones(24))
    assert set(words.predict(X)) <= {"ab", "ba"}


def test_the_backward_error_of_a_system_is_rounding(data):
    X, Y, weights, _ = data
    model = predictor("covariance").fit(X, Y, sample_weight=weights)
    for name in NAMES:
        operator = predictor(name)._operator()
        assert model.system_.settled(operator, ALPHA).residual() < 1e-9
