"""Dask collections: the same numbers as in memory, lazily, from files, and after the loss of a worker."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Falkon, Landmarks, Nystroem, RandomFeatures, TensorSketch
from representer.kernels import Gaussian, Polynomial, Spectrum
from representer.operators import Dense
from representer.samples.on_dask import is_dask

da: Any = pytest.importorskip("dask.array")
dask: Any = pytest.importorskip("dask")


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]]) + 0.1 * rng.normal(size=(600, 2))
    return X, Y, rng.uniform(0.5, 2.0, size=600)


def on_dask(*arrays: np.ndarray, rows: int = 170) -> list[Any]:
    """Each with chunks of its own."""
    return [da.from_array(a, chunks=(rows + 20 * i, *a.shape[1:])) for i, a in enumerate(arrays)]


CASES: Any = [
    (Gaussian("median"), Nystroem(40)),
    (Gaussian(1.0), Nystroem(40, "leverage")),
    (Gaussian(1.0), Nystroem(40, "kmeans")),
    (Gaussian(1.0), Nystroem(40, "pivots")),
    (Gaussian(1.0), Landmarks(np.eye(3))),
    (Gaussian(1.0), RandomFeatures(60)),
    (Polynomial(2, "scale"), TensorSketch(40)),
]


@pytest.mark.parametrize(("kernel", "approximation"), CASES, ids=repr)
def test_equals_the_fit_in_memory(data, kernel, approximation):
    X, Y, w = data
    model = OperatorRidge(kernel, Dense(np.eye(2) + 0.5), approximation=approximation, random_state=0)
    local = clone(model).fit(X, Y, w)
    remote = clone(model).fit(*on_dask(X, Y, w))
    assert remote.kernel_ == local.kernel_ and remote.n_features_in_ == 3 and remote.X_fit_ is None
    assert isinstance(remote.dual_coef_, np.ndarray)
    assert remote.alpha_ == pytest.approx(local.alpha_, rel=1e-8)
    for a, b in zip(remote.predict(X, True), local.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


@pytest.mark.parametrize("approximation", [Nystroem(40), RandomFeatures(60)], ids=repr)
def test_intercepts_and_groups_equal_the_fit_in_memory(data, approximation):
    X, Y, w = data
    groups = np.arange(600) // 7
    options: Any = {"approximation": approximation, "fit_intercept": True, "random_state": 0}
    model = OperatorRidge(Gaussian(1.0), Dense(np.eye(2) + 0.5), **options)
    local = clone(model).fit(X, Y + 3.0, w, groups=groups)
    remote = clone(model).fit(*on_dask(X, Y + 3.0, w), groups=da.from_array(groups, chunks=100))
    assert remote.alpha_ == pytest.approx(local.alpha_, rel=1e-8)
    assert remote.criterion_value_ == pytest.approx(local.criterion_value_, rel=1e-8)
    for a, b in zip(remote.predict(X, True), local.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    whole, batches = (
        clone(model).set_params(alpha=1e-3).fit(X, Y + 3.0, w),
        clone(model).set_params(alpha=1e-3),
    )
    if isinstance(approximation, RandomFeatures):
        for rows in np.array_split(np.arange(600), 3):
            batches.partial_fit(X[rows], Y[rows] + 3.0, w[rows])
        np.testing.assert_allclose(batches.predict(X), whole.predict(X), atol=1e-8)
    iterative = clone(whole).set_params(solver=Falkon(1e-12)).fit(*on_dask(X, Y + 3.0, w))
    np.testing.assert_allclose(iterative.predict(X), whole.predict(X), atol=1e-6)


# What the rounding of a kernel's values becomes where landmarks nearly depend on each other; with alpha near rounding,
# a hundred times as much.
NEARLY = 1e-6

WIDE: Any = [  # (lengthscale, d, m, noise): landmarks that nearly depend on each other, and the least alpha
    (14.8, 4, 243, 0.0),
    (9.9, 4, 146, 0.0),
    (9.4, 5, 213, 1e-2),
    (7.0, 1, 133, 0.0),
    (1.8, 3, 330, 0.0),
    (1.4, 1, 122, 0.0),
]


def smooth(d: int, noise: float, *, n: int = 1500, p: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Samples of smooth functions, which wide kernels learn to many digits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.sin(X @ rng.normal(size=(d, p))) + noise * rng.normal(size=(n, p))


@pytest.mark.parametrize(("lengthscale", "d", "m", "noise"), tiers(WIDE, lambda case: case in WIDE[:4:3]))
@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
def test_equals_the_fit_in_memory_where_landmarks_nearly_depend(lengthscale, d, m, noise):
    X, Y = smooth(d, noise, p=2)
    model = OperatorRidge(Gaussian(lengthscale), Dense(np.eye(2) + 0.5), approximation=Nystroem(m), random_state=0)
    local = clone(model).fit(X, Y)
    remote = clone(model).fit(*on_dask(X, Y, rows=365))
    assert remote.alpha_ == pytest.approx(local.alpha_, rel=NEARLY)
    new = np.random.default_rng(1).normal(size=(500, d)) * 1.3
    expected, spread = local.predict(new, True)
    np.testing.assert_allclose(remote.predict(new, True)[1], spread, rtol=NEARLY)
    size = np.abs(expected).max()
    np.testing.assert_allclose(remote.predict(new), expected, rtol=0, atol=NEARLY * size)
    lazy = remote.predict(on_dask(new, rows=77)[0]).compute()
    np.testing.assert_allclose(lazy, expected, rtol=0, atol=NEARLY * size)
    features = np.sqrt(local.system_.sums.gram.diagonal() / len(X))  # what each coefficient is multiplied by
    shares = [features[:, None] * m.system_.coefficients().numpy() for m in (local, remote)]
    np.testing.assert_allclose(shares[1], shares[0], rtol=0, atol=NEARLY * size)


@pytest.mark.parametrize("alpha", ["auto", 1e-13])
@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
def test_deviations_of_outputs_with_several_scales_equal_those_in_memory(alpha):
    X, Y = smooth(1, 0.1, p=3)
    operator = Dense(np.diag([1.0, 1.5, 2.0]) + 0.5)
    model = OperatorRidge(Gaussian(9.5), operator, alpha=alpha, approximation=Nystroem(153), random_state=0)
    local, remote = clone(model).fit(X, Y), clone(model).fit(*on_dask(X, Y, rows=100))
    new = np.random.default_rng(1).normal(size=(200, 1))
    expected = local.predict(new, True)[1]
    np.testing.assert_allclose(remote.predict(new, True)[1], expected, rtol=100 * NEARLY)
    again = pickle.loads(pickle.dumps(local))
    np.testing.assert_allclose(again.predict(new, True)[1], expected, rtol=100 * NEARLY)


@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
def test_features_travel_with_a_lazy_prediction():
    X, Y = smooth(4, 0.0)
    learners = [
        KernelFeatures(Gaussian(9.9), Nystroem(146), random_state=0).fit(X),
        OperatorRidge(Gaussian(9.9), approximation=Nystroem(146), random_state=0).fit(X, Y),
    ]
    # A worker with other threads would compute another factor.
    for stored in (learners[0].features_, learners[1].function_.features):
        assert stored.factor is not None
        there = pickle.loads(pickle.dumps(stored))
        assert "map" not in vars(there)
        assert np.array_equal(there.map.factor.factor, stored.map.factor.factor)


@pytest.mark.parametrize(("lengthscale", "d", "m", "noise"), tiers(WIDE[:3], lambda case: case == WIDE[1]))
@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
def test_embeddings_equal_those_in_memory_where_landmarks_nearly_depend(lengthscale, d, m, noise):
    X, Y = smooth(d, noise)
    classes, kernel = (Y[:, 0] > 0).astype(int), Gaussian(lengthscale)
    new = np.random.default_rng(1).normal(size=(300, d)) * 1.3
    regression = ConditionalMeanEmbedding(kernel, "linear", approximation=Nystroem(m), random_state=0)
    known = [clone(regression).fit(*data).mean(new) for data in ((X, Y[:, 0]), on_dask(X, Y[:, 0], rows=365))]
    np.testing.assert_allclose(known[1], known[0], rtol=0, atol=100 * NEARLY * np.abs(known[0]).max())
    classifier = EmbeddingClassifier(kernel, alpha=1e-11, approximation=Nystroem(m), random_state=0)
    known = [clone(classifier).fit(*data).predict_proba(new) for data in ((X, classes), on_dask(X, classes, rows=365))]
    np.testing.assert_allclose(known[1], known[0], rtol=0, atol=100 * NEARLY)


@pytest.mark.parametrize(("lengthscale", "d", "m"), [(1.25, 1, 218), (1.9, 3, 445), (2.0, 1, 120)])
@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
def test_a_classifier_equals_that_in_memory_where_the_kernel_has_constants(lengthscale, d, m):
    """f + b beside functions f that are nearly constant: what is b's, and what is f's, alpha alone decides."""
    X, Y = smooth(d, 0.0)
    classes = (Y[:, 0] > 0).astype(int)
    new = np.random.default_rng(1).normal(size=(300, d)) * 1.3
    model = EmbeddingClassifier(Gaussian(lengthscale), alpha=1e-11, approximation=Nystroem(m), random_state=0)
    local, remote = clone(model).fit(X, classes), clone(model).fit(*on_dask(X, classes, rows=365))
    expected = local.embedding(new)
    np.testing.assert_allclose(remote.embedding(new), expected, rtol=0, atol=100 * NEARLY * np.abs(expected).max())
    np.testing.assert_allclose(remote.predict_proba(new), local.predict_proba(new), rtol=0, atol=100 * NEARLY)
    assert remote._training_loss == pytest.approx(local._training_loss, rel=100 * NEARLY)


@pytest.mark.parametrize(
    ("model", "passes"),
    [
        (OperatorRidge("rbf", approximation=Nystroem(40, "leverage"), random_state=0), 2),
        (EmbeddingClassifier("rbf", approximation=Nystroem(40), random_state=0), 3),  # its training loss, too
        (KernelFeatures("rbf", Nystroem(40), random_state=0), 1),
    ],
    ids=["ridge", "classifier", "features"],
)
def test_samples_that_are_looked_at_twice_are_read_once(data, model, passes):
    X, Y, _ = data
    read = []

    def chunk(block: np.ndarray) -> np.ndarray:
        read.append(len(block))
        return block

    rows = da.from_array(X, chunks=(200, 3)).map_blocks(chunk, dtype=float, meta=np.empty((0, 0)))
    clone(model).fit(rows, da.from_array((Y[:, 0] > 0).astype(float), chunks=200))
    assert read == [200] * (3 * passes)


def test_conjugate_gradients_and_single_precision(data):
    X, Y, w = data
    for options in ({"solver": "cg", "alpha": 1e-3}, {"dtype": "float32", "alpha": 1e-2}):
        model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(30), random_state=0, **options)
        local, remote = clone(model).fit(X, Y, w), clone(model).fit(*on_dask(X, Y, w))
        np.testing.assert_allclose(remote.predict(X), local.predict(X), atol=1e-5)


def test_predictions_are_lazy(data):
    X, Y, _ = data
    dX, dY = on_dask(X, Y)
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(30), random_state=0).fit(dX, dY)
    lazy = model.predict(dX)
    assert is_dask(lazy) and lazy.shape == (600, 2) and lazy.chunks[0] == dX.chunks[0]
    np.testing.assert_allclose(lazy.compute(), model.predict(X), atol=1e-10)
    single = clone(model).fit(dX, dY[:, 0])
    assert single.predict(dX).shape == (600,)
    np.testing.assert_allclose(single.predict(dX).compute(), single.predict(X), atol=1e-10)
    unknown = dX[dX[:, 0] > 0]  # a prediction needs no sizes
    np.testing.assert_allclose(model.predict(unknown).compute(), model.predict(X[X[:, 0] > 0]), atol=1e-10)
    seen: list[int] = []
    watched = dX.map_blocks(lambda block: seen.append(len(block)) or block, dtype=float, meta=np.empty((0, 0)))
    first = model.predict(watched)[:10]
    assert seen == []
    first.compute()
    assert len(seen) == 1  # a chunk, not all of them


def test_the_transformer(data):
    X, _, _ = data
    (dX,) = on_dask(X)
    for approximation in (Nystroem(30, "leverage"), RandomFeatures(20)):
        model = KernelFeatures(Gaussian("median"), approximation, random_state=0)
        local = clone(model).fit(X)
        remote = clone(model).fit(dX)
        assert remote.approximation_error_ == pytest.approx(local.approximation_error_, rel=1e-8)
        lazy = remote.transform(dX)
        assert is_dask(lazy)
        np.testing.assert_allclose(lazy.compute(), local.transform(X), atol=1e-8)


@pytest.mark.parametrize("approximation", [Nystroem(40), RandomFeatures(50)], ids=repr)
def test_a_classifier(data, approximation):
    X, Y, _ = data
    labels = np.where(Y[:, 0] > 0.5, "high", np.where(Y[:, 1] > 0, "right", "left"))
    model = EmbeddingClassifier(Gaussian(1.0), alpha=1e-3, approximation=approximation, random_state=0)
    local = clone(model).fit(X, labels)
    dX, dy = on_dask(X, labels)
    remote = clone(model).fit(dX, dy)
    assert list(remote.classes_) == ["high", "left", "right"] and remote.X_fit_ is None
    assert remote.complexity_ == pytest.approx(local.complexity_, rel=1e-8)
    assert remote._bound(0.05) == pytest.approx(local._bound(0.05), rel=1e-8)
    for method in ("predict_proba", "embedding", "decision_function"):
        lazy = getattr(remote, method)(dX)
        assert is_dask(lazy) and lazy.shape == (600, 3)
        np.testing.assert_allclose(lazy.compute(), getattr(local, method)(X), atol=1e-8)
    assert is_dask(remote.predict(dX))
    np.testing.assert_array_equal(remote.predict(dX).compute(), local.predict(X))
    with pytest.raises(ValueError, match="need approximation="):
        EmbeddingClassifier().fit(dX, dy)
    with pytest.raises(ValueError, match="only one class"):
        clone(model).fit(dX, da.zeros(600, chunks=100))


def test_frames_and_files(data, tmp_path: Path):
    pytest.importorskip("pyarrow")
    dd: Any = pytest.importorskip("dask.dataframe")
    X, Y, w = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y[:, 0], w=w)
    frame.iloc[:250].to_parquet(tmp_path / "part.0.parquet")
    frame.iloc[250:].to_parquet(tmp_path / "part.1.parquet")
    lazy = dd.read_parquet(tmp_path)
    model = OperatorRidge(Gaussian("median"), approximation=Nystroem(30), random_state=0)
    local = clone(model).fit(frame[["a", "b", "c"]], frame["y"], frame["w"])
    remote = clone(model).fit(lazy[["a", "b", "c"]], lazy["y"], lazy["w"])
    assert list(remote.feature_names_in_) == ["a", "b", "c"]
    predictions = remote.predict(lazy[["a", "b", "c"]]).compute()
    np.testing.assert_allclose(predictions, local.predict(frame[["a", "b", "c"]]), atol=1e-8)
    for columns in (["b", "a", "c"], ["y", "c", "b", "w", "a"]):  # by name: in any order, others are ignored
        np.testing.assert_allclose(remote.predict(lazy[columns]).compute(), predictions, rtol=1e-12)
    with pytest.raises(ValueError, match="X has no column 'b', which the fit has seen; there are: 'c', 'a'"):
        remote.predict(lazy[["c", "a"]])

    on_disk = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float64, shape=X.shape)
    on_disk[:] = X
    on_disk.flush()
    mapped = da.from_array(np.load(tmp_path / "X.npy", mmap_mode="r"), chunks=(200, -1))
    again = clone(model).fit(mapped, Y[:, 0], w)  # targets in memory are cut like X
    np.testing.assert_allclose(again.predict(X), predictions, atol=1e-8)


def test_frames_of_words_numbers_and_gaps(rng):
    dd: Any = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"size": rng.normal(size=40), "colour": rng.choice(["red", "blue"], 40), "more": 1.0})
    frame.loc[3, "size"] = np.nan
    y = np.where(frame["colour"] == "red", 1.0, -1.0) + 0.1 * rng.normal(size=40)
    lazy = dd.from_pandas(frame[["more", "colour", "size"]], npartitions=3)
    model = OperatorRidge().fit(frame[["size", "colour"]], y)
    np.testing.assert_allclose(model.predict(lazy).compute(), model.predict(frame), rtol=1e-6)
    classifier = EmbeddingClassifier().fit(frame[["size", "colour"]], y > 0)
    np.testing.assert_allclose(classifier.predict_proba(lazy).compute(), classifier.predict_proba(frame), rtol=1e-6)
    with pytest.raises(ValueError, match="X has no column 'colour'"):
        model.predict(lazy[["size"]])
    with pytest.raises(ValueError, match=r"columns that are none: 'colour'. Encode them, or call X.compute\(\)"):
        OperatorRidge(approximation=Nystroem(5)).fit(lazy, y)
    numbers = dd.from_pandas(pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"]), npartitions=2)
    default = OperatorRidge(approximation=Nystroem(10), random_state=0)  # kernel="auto"
    remote = clone(default).fit(numbers, y).predict(numbers[["b", "a"]]).compute()
    np.testing.assert_allclose(remote, clone(default).fit(numbers.compute(), y).predict(numbers.compute()), rtol=1e-6)


def test_a_zarr_store(data, tmp_path: Path):
    zarr: Any = pytest.importorskip("zarr")
    X, Y, _ = data
    for name, array in (("X", X), ("Y", Y)):
        stored = zarr.create_array(tmp_path / name, shape=array.shape, chunks=(150, array.shape[1]), dtype=array.dtype)
        stored[:] = array
    dX, dY = (da.from_zarr(str(tmp_path / name)) for name in ("X", "Y"))
    model = OperatorRidge(Gaussian("median"), approximation=Nystroem(30), random_state=0)
    remote = clone(model).fit(dX, dY)
    np.testing.assert_allclose(remote.predict(dX).compute(), clone(model).fit(X, Y).predict(X), atol=1e-8)


def test_no_more_than_a_chunk_is_loaded_at_a_time(data):
    X, Y, _ = data
    alive, most = [0], [0]

    def load(block_info: Any = None) -> np.ndarray:
        (start, stop), _ = block_info[None]["array-location"]
        alive[0] += 1
        most[0] = max(most[0], alive[0])
        chunk = X[start:stop].copy()
        alive[0] -= 1
        return chunk

    lazy = da.map_blocks(load, chunks=((100,) * 6, (3,)), dtype=float, meta=np.empty((0, 0)))
    with dask.config.set(scheduler="synchronous"):
        OperatorRidge(Gaussian(1.0), approximation=Nystroem(20), random_state=0).fit(lazy, Y)
    assert most[0] == 1


# -- bad input --------------------------------------------------------------------------------------------------------
def test_errors_name_the_fix(data, monkeypatch):
    X, Y, w = data
    dX, dY, dw = on_dask(X, Y, w)
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(20), random_state=0)
    cases: Any = [
        (
            model,
            (da.from_array(X, chunks=(100, 2)), dY),
            r"cut along its columns.*X\.rechunk\(\{0: 'auto', 1: -1\}\)",
        ),
        (model, (dX[dX[:, 0] > 0], dY), r"unknown sizes. Call X\.compute_chunk_sizes\(\)"),
        (model, (dX, dY[:100]), "inconsistent numbers of samples: 600 and 100"),
        (model, (dX, None), "requires y"),
        (model, (da.where(dX > 2, np.nan, dX), dY), "A chunk of X contains NaN or infinity|NaN"),
        (model, (dX, da.where(dY > 2, np.nan, dY)), "y contains NaN or infinity in row"),
        (model, (dX, dY, dw - 1.0), "Negative values in sample_weight"),
        (model, (dX, dY, 0.0 * dw), "at least one non-zero"),
        (OperatorRidge(), (dX, dY), r"need approximation=Nystroem\(m\)"),
        (OperatorRidge(approximation=Nystroem(601)), (dX, dY), "number of samples, 600; got 601"),
        (OperatorRidge("linear", approximation=RandomFeatures(5)), (dX, dY), "Nystroem takes any kernel"),
        (OperatorRidge(Spectrum(2), approximation=Nystroem(5)), (dX, dY), "Dask collections hold vectors"),
    ]
    for learner, arguments, message in cases:
        with pytest.raises(ValueError, match=message), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(learner).fit(*arguments)
    model.fit(dX, dY)
    with pytest.raises(ValueError, match="X has 2 features, but the fit has seen 3"):
        model.predict(dX[:, :2])
    with pytest.raises(ValueError, match="return_std=True is for data in memory"):
        model.predict(dX, return_std=True)
    with pytest.raises(ValueError, match="keeps none"):
        model.loo_predict_  # noqa: B018
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "representer\[dask\]"'):
        model.fit(dX, dY)


LEARNERS: Any = [
    OperatorRidge("rbf", approximation=Nystroem(20)),
    EmbeddingClassifier("rbf", approximation=Nystroem(20)),
    ConditionalMeanEmbedding("rbf", approximation=Nystroem(20)),
    StructuredPredictor("rbf", approximation=Nystroem(20)),
    DeepKernelRegressor(approximation=Nystroem(20)),
    DeepKernelClassifier(approximation=Nystroem(20), loss="squared"),
    KernelAutoencoder(approximation=Nystroem(20)),
    DeepKernelPCA(approximation=Nystroem(20)),
    KernelFeatures(approximation=Nystroem(20)),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_every_learner_names_the_fix(data, monkeypatch, learner):
    X, Y, _ = data
    dX, dy = on_dask(X, np.where(Y[:, 0] > 0, 1, 0))
    for bad, message in (
        (dX.rechunk((100, 2)), r"X is cut along its columns into 2 chunks.*X\.rechunk"),
        (dX[dX[:, 0] > 0], r"X has chunks of unknown sizes. Call X\.compute_chunk_sizes\(\)"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(learner).fit(bad, dy)
    if not isinstance(learner, KernelFeatures):
        with pytest.raises(ValueError, match="need approximation="):
            clone(learner).set_params(approximation=None).fit(dX, dy)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "representer\[dask\]"'):
        clone(learner).fit(dX, dy)


# -- processes --------------------------------------------------------------------------------------------------------
def killed_once(block: np.ndarray, flag: str) -> np.ndarray:
    """The first worker that computes it dies."""
    path = Path(flag)
    if len(block) and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="workers are killed by a signal")
def test_a_worker_that_dies_does_not_lose_the_fit(data, tmp_path: Path):
    distributed = pytest.importorskip("distributed")
    X, Y, _ = data
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(30), random_state=0)
    local = clone(model).fit(X, Y)
    dX, dY = on_dask(X, Y)
    flag = tmp_path / "died"
    deadly = dX.map_blocks(killed_once, flag=str(flag), dtype=float, meta=np.empty((0, 0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: Any = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with (
            dask.config.set(
                {
                    "distributed.nanny.environ.PYTHONPATH": os.pathsep.join(sys.path),
                    "distributed.comm.timeouts": {"connect": "10 minutes", "tcp": "10 minutes"},
                    "distributed.scheduler.worker-ttl": None,
                }
            ),
            distributed.LocalCluster(**options, silence_logs=50) as cluster,
            distributed.Client(cluster),
        ):
            survived = clone(model).fit(deadly, dY)
            predictions = survived.predict(dX).compute()
    assert flag.exists()
    np.testing.assert_allclose(survived.predict(X), local.predict(X), atol=1e-8)
    np.testing.assert_allclose(predictions, local.predict(X), atol=1e-8)


# -- what a collection may look like --------------------------------------------------------------------------------
def test_samples_of_weight_zero_are_none_as_in_memory(data: Any) -> None:
    X, Y, weights = data
    weights = np.where(np.arange(len(X)) % 3 == 0, 0.0, weights)
    for solver in ("direct", "cg"):
        model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(40), solver=solver, random_state=0)
        here = clone(model).fit(X, Y, sample_weight=weights)
        there = clone(model).fit(*on_dask(X, Y), sample_weight=on_dask(weights, rows=90)[0])
        np.testing.assert_array_equal(here.landmarks_, there.landmarks_)
        np.testing.assert_allclose(there.predict(X), here.predict(X), atol=1e-6)
    with pytest.raises(ValueError, match="at least one non-zero"):
        clone(model).fit(*on_dask(X, Y), sample_weight=on_dask(0.0 * weights)[0])


def test_chunks_without_rows_have_predictions_without_rows(data: Any) -> None:
    X, Y, _ = data
    big = da.from_array(X[np.argsort(X[:, 0])], chunks=(100, 3))
    some = big[big[:, 0] > 1.0]  # most of the chunks lose all their rows
    for y in (Y, Y[:, 0]):
        model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(40), random_state=0).fit(X, y)
        np.testing.assert_allclose(model.predict(some).compute(), model.predict(some.compute()), atol=1e-9)


def test_targets_beside_a_collection_may_be_a_list(data: Any) -> None:
    X, Y, _ = data
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(40), random_state=0)
    found = clone(model).fit(on_dask(X)[0], Y[:, 0].tolist()).predict(X)
    np.testing.assert_allclose(found, model.fit(X, Y[:, 0]).predict(X), atol=1e-8)
    deep = DeepKernelRegressor(approximation=Nystroem(20), max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert deep.fit(on_dask(X)[0], Y[:, 0].tolist()).predict(X).shape == (len(X),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X.astype(str), y), "X should hold real numbers"),
        (lambda X, y: (X + 1j, y), "X should hold real numbers"),
        (lambda X, y: (X.astype(object).map_blocks(np.full_like, "a"), y), "no number"),
        (lambda X, y: (X[:, 0], y), "X is expected to be 2D"),
        (lambda X, y: (X[:, :, None], y), "X is expected to be 2D"),
        (lambda X, y: (X, y[:, None, None]), "y is expected to be 1D or 2D"),
        (lambda X, y: (X, y.astype(str)), "y should hold real numbers"),
        (lambda X, y: (X[:0], y[:0]), "0 samples"),
    ],
)
def test_collections_that_are_no_rows_of_numbers(data: Any, change: Any, message: str) -> None:
    X, y = on_dask(data[0], data[1][:, 0])
    with pytest.raises(ValueError, match=message):
        OperatorRidge(Gaussian(1.0), approximation=Nystroem(40), random_state=0).fit(*change(X, y))


def test_columns_of_several_types(data: Any) -> None:
    X, Y, _ = data
    objects = on_dask(X)[0].astype(object)  # what a frame of numbers and truth values becomes
    model = OperatorRidge(Gaussian(1.0), approximation=Nystroem(40), random_state=0)
    found = clone(model).fit(objects, on_dask(Y)[0]).predict(X)
    np.testing.assert_allclose(found, model.fit(X, Y).predict(X), atol=1e-8)


@pytest.mark.parametrize("learner", [OperatorRidge, EmbeddingClassifier, ConditionalMeanEmbedding, StructuredPredictor])
def test_batches_are_in_memory(data: Any, learner: Any) -> None:
    rows, y = data[0][:60], data[1][:60, 0]
    y = y > 0 if learner is EmbeddingClassifier else y
    options = {"classes": [False, True]} if learner is EmbeddingClassifier else {}
    model = learner("rbf", approximation=Nystroem(20), random_state=0)
    X, later = on_dask(rows, y)
    for batch in ((X, later), (rows, later)):
        with pytest.raises(ValueError, match="takes batches in memory"):
            model.partial_fit(*batch, **options)
    model.partial_fit(rows, y, **options)
    with pytest.raises(ValueError, match="takes batches in memory"):
        model.partial_fit(X, later)


@pytest.mark.parametrize("unit", [1e-40, 1e-100])
def test_chunks_that_single_precision_loses_are_refused(unit: float) -> None:
    """They were zeros, and a fit to them was a constant, without a word."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    for scaled, targets, name in ((unit * X, y, "X"), (X, unit * y, "y")):
        model = ConditionalMeanEmbedding("rbf", approximation=Nystroem(8), dtype="float32", random_state=0)
        with pytest.raises(ValueError, match=f"{name} holds numbers up to .* Rescale {name}"):
            model.fit(da.from_array(scaled, chunks=(20, 3)), da.from_array(targets, chunks=20))
