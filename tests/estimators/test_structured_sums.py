"""StructuredPredictor by sums over samples: the exact fit, Dask, batches, known samples, and what it refuses."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tiers import tiers

from representer import StructuredPredictor
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.kernels import Delta, Gaussian, Spectrum
from representer.operators import ConditionalCovariance, Dense
from representer.samples import rows as row_numbers

OPERATORS = [None, "kpca", "covariance", "conditional_covariance"]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(150, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2]) + 0.1 * rng.normal(size=(150, 2))
    return X, Y, rng.uniform(-2, 2, size=(12, 2))


def model(approximation: Any = None, operator: Any = None, **options: Any) -> StructuredPredictor:
    options = {"output_kernel": Gaussian(0.7), "random_state": 0, **options}
    return StructuredPredictor(Gaussian(0.8), operator=operator, approximation=approximation, **options)


def values(learner: StructuredPredictor, Q: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return np.asarray(learner.decision_embedding(Q)(Y[:9]))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("center", [True, False])
def test_all_samples_as_landmarks_are_the_exact_fit(data, operator, center):
    X, Y, Q = data
    for output in ("linear", Gaussian(0.7)):
        exact = model(None, operator, fit_intercept=center, output_kernel=output).fit(X, Y)
        found = model(Nystroem(150), operator, fit_intercept=center, output_kernel=output).fit(X, Y)
        # Chosen by the same leave-one-out errors, at a minimum: errors that differ by 1e-15 shift it by 1e-7.
        assert found.alpha_ == pytest.approx(exact.alpha_, rel=1e-5)
        assert found.criterion_value_ == pytest.approx(exact.criterion_value_, rel=1e-6)
        assert found.n_components_ == exact.n_components_
        np.testing.assert_allclose(values(found, Q, Y), values(exact, Q, Y), atol=1e-6)
        pairs = (X[:4], Y[:4], X[4:9], Y[4:9])
        np.testing.assert_allclose(found.joint_kernel(*pairs), exact.joint_kernel(*pairs), atol=1e-6)


@pytest.mark.parametrize("operator", [*OPERATORS, Dense([[1.0, 0.4], [0.4, 2.0]])], ids=repr)
def test_dask_equals_memory(data, operator):
    da: Any = pytest.importorskip("dask.array")
    X, Y, Q = data
    dX, dY, dQ = (da.from_array(a, chunks=(size, 2)) for a, size in ((X, 40), (Y, 70), (Q, 5)))
    output = "linear" if isinstance(operator, Dense) else Gaussian(0.7)
    operator = ConditionalCovariance(0.1) if operator == "conditional_covariance" else operator
    learner = model((Nystroem(40, "pivots"), Nystroem(30)), operator, output_kernel=output, alpha=1e-4)
    local, remote = clone(learner).fit(X, Y), clone(learner).fit(dX, dY)
    np.testing.assert_allclose(values(remote, Q, Y), values(local, Q, Y), atol=1e-8)
    lazy = remote.predict(dQ)
    assert lazy.shape == (12, 2) and lazy.chunks[0] == dQ.chunks[0]
    np.testing.assert_allclose(lazy.compute(), local.predict(Q), atol=1e-8)
    again = pickle.loads(pickle.dumps(remote))
    pairs = (X[:4], Y[:4], X[4:9], Y[4:9])
    np.testing.assert_allclose(again.joint_kernel(*pairs), local.joint_kernel(*pairs), atol=1e-8)


@pytest.mark.parametrize("alpha", tiers(["auto", 1e-9, 1e-6, 1e-4], lambda alpha: alpha in ("auto", 1e-9)))
@pytest.mark.parametrize("operator", OPERATORS)
def test_chunks_and_batches_do_not_matter_where_landmarks_nearly_depend(operator, alpha):
    """Of a wide kernel, coefficients of the landmarks are up to 1e12: scores are right by features of the inputs."""
    da: Any = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(953, 1))
    Y, Q = np.sin(X @ rng.normal(size=(1, 2))), rng.normal(size=(60, 1))
    learner = StructuredPredictor(
        Gaussian(9.5),
        Gaussian(1.0),
        operator,
        alpha,
        approximation=(Nystroem(221), Nystroem(40)),
        random_state=0,
    )
    local = clone(learner).fit(X, Y)
    remote = clone(learner).fit(*(da.from_array(a, chunks=(100, -1)) for a in (X, Y)))
    again = pickle.loads(pickle.dumps(remote))
    learner.set_params(approximation=(Landmarks(X[:221]), Landmarks(Y[:40])))
    whole, parts = clone(learner).fit(X, Y), clone(learner)
    for rows in np.array_split(np.arange(953), 3):
        parts.partial_fit(X[rows], Y[rows])
    for one, two in ((local, remote), (local, again), (whole, parts)):
        assert two.alpha_ == pytest.approx(one.alpha_, rel=1e-8)
        for of in (lambda m: m.score_candidates(Q, Y[:50]), lambda m: values(m, Q, Y)):
            expected = of(one)
            np.testing.assert_allclose(of(two), expected, rtol=0, atol=1e-8 * np.abs(expected).max())
        np.testing.assert_array_equal(two.predict(Q), one.predict(Q))
    lazy = remote.predict(da.from_array(Q, chunks=(23, 1))).compute()
    np.testing.assert_array_equal(lazy, local.predict(Q))


def test_labels_and_frames_on_dask(data):
    dd: Any = pytest.importorskip("dask.dataframe")
    pd: Any = pytest.importorskip("pandas")
    da: Any = pytest.importorskip("dask.array")
    X, Y, Q = data
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b"]), npartitions=3)
    labels = (Y > [0.3, 1.0]).astype(int)  # sets of labels
    learner = model(Nystroem(40), output_kernel="linear", decoder="labels", alpha=1e-4)
    local, remote = (
        clone(learner).fit(X, labels),
        clone(learner).fit(frame, da.from_array(labels, chunks=(50, 2))),
    )
    assert list(remote.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(remote.predict(pd.DataFrame(Q, columns=["a", "b"])), local.predict(Q))
    assert remote.predict(frame).dtype == labels.dtype
    np.testing.assert_array_equal(remote.predict(frame).compute(), local.predict(X))
    with pytest.raises(ValueError, match="outputs must be vectors"):
        model(Nystroem(40), output_kernel=Spectrum(2)).fit(frame, ["a"] * 150)
    with pytest.raises(ValueError, match="need approximation="):
        model().fit(frame, labels)
    with pytest.raises(ValueError, match="rechunk"):
        model(Nystroem(40)).fit(da.from_array(X, chunks=(50, 1)), Y)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        dX = da.from_array(X, chunks=(50, 2))
        model(Nystroem(40)).fit(dX[dX[:, 0] > 0], Y)
    words = [["n", "s"][int(v > 0)] for v in X[:, 0]]  # objects from a fit in memory
    named = model(output_kernel=Delta()).fit(X, words)
    assert list(named.predict(da.from_array(Q, chunks=(5, 2))).compute()) == list(named.predict(Q))


@pytest.mark.parametrize("operator", OPERATORS)
def test_batches_equal_one_fit(data, operator):
    X, Y, Q = data
    pair = (Landmarks(X[:40]), Landmarks(Y[:30]))
    for output, center in ((Gaussian(0.7), True), ("linear", False)):
        learner = model(pair, operator, output_kernel=output, fit_intercept=center)
        whole, parts = clone(learner).fit(X, Y), clone(learner)
        for rows in np.array_split(np.arange(150), 3):
            parts.partial_fit(X[rows], Y[rows])
        assert parts.n_samples_seen_ == 150 and parts.alpha_ == pytest.approx(whole.alpha_, rel=1e-8)
        np.testing.assert_allclose(values(parts, Q, Y), values(whole, Q, Y), atol=1e-8)
        np.testing.assert_allclose(parts.predict(Q), whole.predict(Q), atol=1e-8)  # all outputs are candidates
    with pytest.raises(ValueError, match="dimensions"):
        parts.partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="all outputs"):
        parts.partial_fit(X, np.where(np.arange(150)[:, None] < 9, np.nan, Y))
    assert not hasattr(model(), "partial_fit")


def test_words_in_batches():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ab"), size=5)) for _ in range(60)]
    pair = (Landmarks(words[:20]), Landmarks(words[:20]))
    learner = StructuredPredictor(Spectrum(2), Spectrum(2), alpha=1e-3, approximation=pair, random_state=0)
    whole, parts = clone(learner).fit(words, words[::-1]), clone(learner)
    for first in (0, 20, 40):
        parts.partial_fit(words[first : first + 20], words[::-1][first : first + 20])
    assert parts.predict(words) == whole.predict(words)


def test_many_samples_are_seen_by_few(data, monkeypatch):
    """Where a learner may know 60 samples only, its sums are still those of all 150."""
    X, Y, Q = data
    pair = (Landmarks(X[:40]), Landmarks(Y[:30]))
    whole = model(pair, "covariance", alpha=1e-4).fit(X, Y)
    monkeypatch.setattr(row_numbers, "KNOWN_ROWS", 60)
    monkeypatch.setattr(row_numbers, "HELD_ROWS", 50)
    few = model(pair, "covariance", alpha=1e-4).fit(X, Y)
    assert len(few.X_fit_) == len(few.Y_fit_) == 60
    np.testing.assert_allclose(values(few, Q, Y), values(whole, Q, Y), atol=1e-8)
    calibrated = model(pair, output_kernel="linear", decoder="labels").fit(X, Y > [0.3, 1.0])
    assert np.mean(calibrated.predict(X) == (Y > [0.3, 1.0])) > 0.9
    da: Any = pytest.importorskip("dask.array")
    remote = model(pair, "covariance").fit(da.from_array(X, chunks=(40, 2)), da.from_array(Y, chunks=(40, 2)))
    local = model(pair, "covariance").fit(X, Y)
    assert remote.alpha_ == pytest.approx(local.alpha_, rel=1e-8)
    np.testing.assert_allclose(remote.predict(Q), local.predict(Q), atol=1e-8)


@pytest.mark.parametrize("approximation", [RandomFeatures(40), Landmarks(np.zeros((1, 2)))], ids=repr)
def test_inputs_may_have_any_features(data, approximation):
    """As many landmarks of outputs as features of inputs, and the ridge regression on these features."""
    X, Y, Q = data
    learner = model(approximation, output_kernel="linear", decoder="direct", alpha=1e-3).fit(X, Y)
    features = approximation.features(Gaussian(0.8), X, seed=learner.system_.model.seed)
    F, G = features(X).numpy(), features(Q).numpy()
    theta = np.linalg.solve(F.T @ F + 150 * 1e-3 * np.eye(F.shape[1]), F.T @ Y)
    np.testing.assert_allclose(learner.predict(Q), G @ theta, atol=1e-8)
    anchored = model(approximation, "covariance", alpha=1e-3).fit(X, Y)
    assert len(anchored.output_landmarks_) == F.shape[1]
    assert anchored.predict(Q).shape == Q.shape


def test_what_is_refused_names_the_fix(data):
    X, Y, _ = data
    for approximation, message in (
        (Nystroem(200), "from 1 to the number of samples"),
        ((Nystroem(20), RandomFeatures(20)), "or a pair: such a one for the inputs"),
    ):
        with pytest.raises(ValueError, match=message):
            model(approximation).fit(X, Y)
    with pytest.raises(MemoryError, match="leaves no room"):
        model(Nystroem(100), memory_limit="10kB").fit(X, Y)
