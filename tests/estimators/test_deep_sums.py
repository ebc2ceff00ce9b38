"""Deep machines, autoencoders and deep kernel PCA on many samples: a part for what is searched, all for sums."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from naive_deep import functions_of
from sklearn.base import clone
from tiers import tiers

from representer import DeepKernelClassifier, DeepKernelPCA, DeepKernelRegressor, KernelAutoencoder, Layer
from representer.approximation import Nystroem
from representer.estimators.validation import seed_of
from representer.kernels import Gaussian, Linear, Matern, Polynomial, TensorMatern
from representer.operators import Decomposable
from representer.problems.spread import PredictiveSpread
from representer.samples import rows as large

da: Any = pytest.importorskip("dask.array")


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 3))
    y = np.abs(X[:, 0] + X[:, 1]) + 0.1 * rng.normal(size=400)
    return X, y, rng.uniform(-1, 1, size=(20, 3))


@pytest.fixture
def few(monkeypatch):
    """Inner layers see 150 samples."""
    monkeypatch.setattr(large, "INNER_ROWS", 150)


def regressor(**options: Any) -> DeepKernelRegressor:
    options = {"alpha": 1e-3, "approximation": Nystroem(30), "random_state": 0, **options}
    return DeepKernelRegressor([1], Gaussian(0.5), n_restarts=1, max_iter=30, tol=1e-3, **options)


def test_the_outer_function_is_that_of_all_samples(data, few):
    """By a dense solve on the images of all samples, with the standard deviations of the class that has no sums."""
    X, y, Q = data
    model = regressor().fit(X, y)
    assert len(model.X_fit_) == 150
    Z, images = (torch.from_numpy(model.transform_layers(part)[0]) for part in (X, Q))
    outer = functions_of(model)[-1]
    kernel: Any = outer.kernel
    L = torch.linalg.cholesky(kernel.kernel._gram(outer.anchors, None))
    B, new = (
        torch.linalg.solve_triangular(L, kernel.kernel._gram(outer.anchors, z), upper=False).T for z in (Z, images)
    )
    centred = B - B.mean(0)
    theta = torch.linalg.solve(
        centred.T @ centred + 400 * 1e-3 * torch.eye(B.shape[1]), centred.T @ torch.from_numpy(y - y.mean())
    )
    expected = new @ theta + y.mean() - B.mean(0) @ theta
    found, std = model.predict(Q, return_std=True)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    loss = np.mean((model.predict(X) - y) ** 2)
    inner = model.layers_[0].penalized(torch.tensor(model.layer_norms_[0] ** 2)).item()
    objective = loss + model.alpha_ * model.layer_norms_[1] ** 2 + inner
    assert model.objective_value_ == pytest.approx(objective, rel=1e-6)
    spread = PredictiveSpread(
        Decomposable(kernel.kernel),
        Z,
        torch.from_numpy(y - model.intercept_)[:, None],
        1e-3,
        intercept=True,
        landmarks=outer.anchors,
    )(images)[:, 0]
    # Who is left out decides the scale, and how much of what landmarks miss is noise: variances are linear functions.
    line = np.polynomial.Polynomial.fit(spread.numpy() ** 2, std**2, 1)
    np.testing.assert_allclose(std**2, line(spread.numpy() ** 2), rtol=1e-6)
    assert std.mean() == pytest.approx(float(spread.mean()), rel=0.1)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict(Q, return_std=True)[1], std, atol=1e-12)


def test_alpha_is_chosen_on_all(data, few):
    X, y, Q = data
    model = regressor(alpha="auto").fit(X, y)
    assert model.criterion_value_ == pytest.approx(0.01, rel=0.5)  # the variance of the noise
    assert np.mean((model.predict(Q) - np.abs(Q[:, 0] + Q[:, 1])) ** 2) < 0.003


def test_dask_equals_memory(data, few):
    X, y, Q = data
    dX, dy, dQ = (
        da.from_array(X, chunks=(90, 3)),
        da.from_array(y, chunks=70),
        da.from_array(Q, chunks=(6, 3)),
    )
    local, remote = regressor().fit(X, y), regressor().fit(dX, dy)
    np.testing.assert_allclose(remote.predict(dQ).compute(), local.predict(Q), atol=1e-8)
    with pytest.raises(ValueError, match="need approximation="):
        DeepKernelRegressor([1]).fit(dX, dy)
    with pytest.raises(ValueError, match="rechunk"):
        regressor().fit(dX.rechunk((90, 1)), dy)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        regressor().fit(dX[dX[:, 0] > 0], dy)
    with pytest.raises(ValueError, match="return_std"):
        remote.predict(dQ, return_std=True)
    with pytest.raises(MemoryError, match="leaves no room"):
        regressor(memory_limit="1kB").fit(X, y)


@pytest.mark.slow
def test_dask_equals_memory_for_two_outputs(data, few):
    X, y, Q = data
    two, dQ = np.column_stack([y, -y]), da.from_array(Q, chunks=(6, 3))
    wide = regressor().fit(da.from_array(X, chunks=(90, 3)), da.from_array(two, chunks=(80, 2)))
    assert wide.predict(dQ).shape == (20, 2)
    np.testing.assert_allclose(wide.predict(dQ).compute(), regressor().fit(X, two).predict(Q), atol=1e-8)


NEARLY_DEPENDENT: Any = [  # (layers, outer kernel, alpha): k(Z, Z) of the outer kernel is nearly singular
    pytest.param([1], Gaussian(4.0), 4e-13, marks=pytest.mark.slow),
    ([2], Gaussian(3.0) * Gaussian(6.0), 4e-13),
    pytest.param([2], Matern(2.5, 5.0), 4e-13, marks=pytest.mark.slow),
    pytest.param([1], Polynomial(3), 4e-13, marks=pytest.mark.slow),
    pytest.param([(TensorMatern(2, 2.0), 2)], TensorMatern(2, 6.0), 1e-11, marks=pytest.mark.slow),
    pytest.param([(Gaussian(2.0), 1)], Gaussian(3.0) + Linear(), 1e-11, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("layers", "kernel", "alpha"), NEARLY_DEPENDENT, ids=repr)
@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
@pytest.mark.filterwarnings("ignore:.*max_iter=30 reached:sklearn.exceptions.ConvergenceWarning")
def test_dask_equals_memory_where_landmarks_nearly_depend(data, few, layers, kernel, alpha):
    X, y, _ = data
    new = np.random.default_rng(1).uniform(-1.2, 1.2, size=(50, 3))
    options = {"alpha": alpha, "approximation": Nystroem(60), "random_state": 0, "n_restarts": 1}
    model = DeepKernelRegressor(layers, kernel, max_iter=30, tol=1e-2, **options)
    local = clone(model).fit(X, y)
    remote = clone(model).fit(da.from_array(X, chunks=((85, 3, 170, 142), 3)), da.from_array(y, chunks=105))
    expected, spread = local.predict(new, return_std=True)
    found, std = remote.predict(new, return_std=True)
    size = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * size)
    np.testing.assert_allclose(std, spread, rtol=1e-6)
    lazy = remote.predict(da.from_array(new, chunks=(7, 3))).compute()
    np.testing.assert_allclose(lazy, expected, rtol=0, atol=1e-5 * size)
    for part in (1, 7, 30):  # the images, and what is made of them, do not depend on their block
        np.testing.assert_allclose(
            local.transform_layers(new[:part])[0],
            local.transform_layers(new)[0][:part],
            rtol=0,
            atol=1e-5 * size,
        )
        np.testing.assert_allclose(local.predict(new[:part]), expected[:part], rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize("names", tiers([["low", "high"], ["low", "high", "mid"]], lambda names: len(names) == 3))
def test_a_classifier(data, few, names):
    X, y, Q = data
    cuts = np.quantile(y, np.arange(1, len(names)) / len(names))
    labels = np.array(names)[np.searchsorted(cuts, y)]
    model = DeepKernelClassifier(
        [1],
        Gaussian(0.5),
        loss="squared",
        alpha=1e-3,
        approximation=Nystroem(30),
        n_restarts=3,
        random_state=0,
    )
    local = clone(model).fit(X, labels)
    remote = clone(model).fit(da.from_array(X, chunks=(90, 3)), da.from_array(labels, chunks=70))
    assert local.score(X, labels) > 0.8
    assert np.log(local.predict_proba(X)[np.arange(400), np.searchsorted(local.classes_, labels)]).mean() > -0.6
    dQ = da.from_array(Q, chunks=(6, 3))
    for method in ("decision_function", "predict_proba"):
        lazy = getattr(remote, method)(dQ)
        assert lazy.shape == getattr(local, method)(Q).shape
        np.testing.assert_allclose(lazy.compute(), getattr(local, method)(Q), atol=1e-8)
    np.testing.assert_array_equal(remote.predict(dQ).compute(), local.predict(Q))


# -- autoencoders and components --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("class_weight", "weighted"),
    tiers(
        itertools.product(["balanced", {"low": 1.0, "high": 3.0}], [False, True]),
        lambda case: case == ("balanced", True),
    ),
)
def test_class_weights_on_dask_equal_those_in_memory(data, few, class_weight, weighted):
    X, y, Q = data
    labels = np.where(y > 0.8, "high", "low")
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X)) if weighted else None
    # The totals of weighted classes are sums in another order, and a search enlarges their rounding.
    options: dict[str, Any] = {"approximation": Nystroem(30), "n_restarts": 1, "tol": 1e-6, "random_state": 0}
    layer = Layer(Polynomial(1), 1, alpha=1e-3)
    model = DeepKernelClassifier([layer], Gaussian(0.5), "squared", 1e-3, class_weight=class_weight, **options)
    expected = clone(model).fit(X, labels, weights).decision_function(Q)
    chunked = None if weights is None else da.from_array(weights, chunks=150)
    found = clone(model).fit(da.from_array(X, chunks=(100, 3)), da.from_array(labels, chunks=100), chunked)
    np.testing.assert_allclose(found.decision_function(Q), expected, atol=1e-4)
    plain = clone(model).set_params(class_weight=None).fit(X, labels, weights).decision_function(Q)
    assert np.abs(plain - expected).max() > 1e-2


def test_rounding_of_the_weights_does_not_matter_with_many_landmarks_of_few_codes(data):
    """30 landmarks of codes in one dimension have a Gram matrix without full rank."""
    X, y, Q = data
    layer = Layer(Polynomial(1), 1, alpha=1e-3)
    options: dict[str, Any] = {"approximation": Nystroem(30), "n_restarts": 1, "tol": 1e-6, "random_state": 0}
    model = DeepKernelRegressor([layer], Gaussian(0.5), "squared", 1e-3, **options)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    answer = clone(model).fit(X, y, weights).predict(Q)
    for factor in (1 + 1e-15, 1 - 1e-15):
        np.testing.assert_allclose(clone(model).fit(X, y, weights * factor).predict(Q), answer, atol=1e-4)


def autoencoder(**options: Any) -> KernelAutoencoder:
    options = {
        "alpha": 1e-3,
        "encoder_alpha": 1e-3,
        "approximation": Nystroem(30),
        "random_state": 0,
        **options,
    }
    return KernelAutoencoder(2, Gaussian(1.0), Gaussian(1.0), n_restarts=1, max_iter=20, tol=1e-3, **options)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_autoencoder(data, few):
    X, y, Q = data
    local = autoencoder().fit(X)
    assert len(local.X_fit_) == 150
    Z, new = (torch.from_numpy(local.transform(part)) for part in (X, Q))
    outer: Any = functions_of(local)[-1]
    L = torch.linalg.cholesky(outer.kernel.kernel._gram(outer.anchors, None))
    B, at = (
        torch.linalg.solve_triangular(L, outer.kernel.kernel._gram(outer.anchors, z), upper=False).T for z in (Z, new)
    )
    centred, targets = B - B.mean(0), torch.from_numpy(X)
    theta = torch.linalg.solve(
        centred.T @ centred + 400 * 1e-3 * torch.eye(B.shape[1]), centred.T @ (targets - targets.mean(0))
    )
    np.testing.assert_allclose(local.reconstruct(Q), (at - B.mean(0)) @ theta + targets.mean(0), atol=1e-8)
    dX, dQ = da.from_array(X, chunks=(90, 3)), da.from_array(Q, chunks=(6, 3))
    remote = autoencoder().fit(dX)
    for method in ("transform", "reconstruct", "reconstruction_error"):
        lazy = getattr(remote, method)(dQ)
        assert lazy.shape == getattr(local, method)(Q).shape
        np.testing.assert_allclose(lazy.compute(), getattr(local, method)(Q), atol=1e-8)
    for labels in (y, da.from_array(y, chunks=100)):  # codes that serve labels
        given = dX if labels is not y else X
        served = autoencoder(supervision=1.0).fit(given, labels)
        assert served.transform(Q).shape == (20, 2)
    with pytest.raises(ValueError, match="need approximation="):
        autoencoder(approximation=None).fit(dX)
    with pytest.raises(ValueError, match="vectors are lazy"):
        autoencoder(target="kernel").fit(dX).reconstruct(dQ)


@pytest.mark.parametrize("sampling", tiers(["uniform", "leverage", "entropy"], lambda name: name == "leverage"))
def test_deep_kernel_pca(data, sampling, monkeypatch):
    from representer.approximation import landmarks as draws

    X, _, Q = data
    monkeypatch.setattr(draws, "CANDIDATES", 120)
    model = DeepKernelPCA([3, 2], approximation=Nystroem(40, sampling), random_state=0)
    local = clone(model).fit(X)
    dX, dQ = da.from_array(X, chunks=(90, 3)), da.from_array(Q, chunks=(6, 3))
    remote = clone(model).fit(dX)
    np.testing.assert_array_equal(remote.subset_, local.subset_)
    np.testing.assert_array_equal(remote.X_fit_, X[local.subset_])
    if sampling != "uniform":  # among candidates, which are not all
        rows = draws.candidate_rows(400, 40, seed_of(0))
        assert len(rows) == 160 and set(local.subset_) <= set(rows)
    lazy = remote.transform(dQ)
    assert lazy.shape == (20, 5) and lazy.chunks[0] == dQ.chunks[0]
    np.testing.assert_allclose(lazy.compute(), local.transform(Q), atol=1e-8)
    np.testing.assert_allclose(remote.transform(dQ, level=1).compute(), local.transform(Q, level=1), atol=1e-8)
    if sampling == "uniform":
        with pytest.raises(ValueError, match="need approximation="):
            DeepKernelPCA([3, 2]).fit(dX)
        with pytest.raises(ValueError, match="rechunk"):
            clone(model).fit(dX.rechunk((90, 1)))
        with pytest.raises(ValueError, match="compute_chunk_sizes"):
            clone(model).fit(dX[dX[:, 0] > 0])


@pytest.mark.parametrize(
    "learner",
    [
        DeepKernelRegressor(approximation=Nystroem(61)),
        DeepKernelClassifier(loss="squared", approximation=Nystroem(61)),
        KernelAutoencoder(1, approximation=Nystroem(61)),
        KernelAutoencoder(1, approximation=Nystroem(61), batch_size=20),
        DeepKernelPCA([1, 1], approximation=Nystroem(61)),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_more_landmarks_than_samples_are_refused(learner):
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match="from 1 to the number of samples, 60; got 61"):
        learner.fit(X, X[:, 0] > 0)
