"""ConditionalMeanEmbedding by sums over samples: the exact fit, one pass, Dask, batches, and what it refuses."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from representer import ConditionalMeanEmbedding
from representer.approximation import Landmarks, Nystroem, RandomFeatures, TensorSketch
from representer.kernels import Delta, Gaussian, Linear, Spectrum
from representer.samples.in_memory import Block, InMemory
from representer.systems.conditional import Cells, CellStep
from representer.systems.sums import NormalStep


@pytest.mark.slow
@parametrize_with_checks(
    [ConditionalMeanEmbedding("rbf", approximation=RandomFeatures(5), max_iter=5, tol=1e-2, random_state=0)],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "medians of distances do not know weights",
    },
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


METHODS: Any = {
    "mean": (),
    "var": (),
    "weights": (),
    "quantile": ((0.1, 0.5, 0.9),),
    "cdf": ((-0.5, 0.3),),
    "density": ((-0.5, 0.3), 0.2),  # the bandwidth by left-out weights is that of exact fits
    "sample": (4,),
}


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(250, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2]) + 0.3 * rng.normal(size=(250, 2))
    return X, Y, rng.uniform(-2, 2, size=(15, 2))


def model(approximation: Any = None, alpha: Any = 1e-3, **options: Any) -> ConditionalMeanEmbedding:
    return ConditionalMeanEmbedding(
        Gaussian(0.8), Gaussian(0.7), alpha, approximation=approximation, random_state=0, **options
    )


@pytest.mark.parametrize("intercept", [True, False])
def test_all_samples_as_landmarks_are_the_exact_fit(data, intercept):
    X, Y, Q = data
    exact = model(fit_intercept=intercept).fit(X, Y[:, 0])
    found = model(Nystroem(250), fit_intercept=intercept).fit(X, Y[:, 0])
    for method, arguments in METHODS.items():
        one, two = (getattr(learner, method)(Q, *arguments) for learner in (exact, found))
        np.testing.assert_allclose(one, two, atol=1e-6, err_msg=method)
    assert found.score(Q, Q[:, 0]) == pytest.approx(exact.score(Q, Q[:, 0]), rel=1e-6)
    assert found.embedding(Q).distance() == pytest.approx(exact.embedding(Q).distance(), abs=1e-5)
    far = np.full((1, 2), 1e3)  # where no sample is, all of them; an approximate fit keeps its constant
    np.testing.assert_allclose(exact.cdf(far, [0.2])[0, 0], np.mean(Y[:, 0] <= 0.2))
    np.testing.assert_allclose(found.cdf(far, [0.2]), exact.cdf(far, [0.2]), atol=0.05 if intercept else 1e-6)


def test_cells_add_the_weights_of_their_samples(data):
    X, Y, Q = data
    exact = model().fit(X, Y)
    few = model((Nystroem(250), Nystroem(20))).fit(X, Y)
    anchors = few.output_landmarks_
    nearest = ((Y[:, None] - anchors) ** 2).sum(-1).argmin(1)
    weights = exact.weights(Q)
    sums = np.stack([weights[:, nearest == j].sum(1) for j in range(20)], 1)
    np.testing.assert_allclose(few.weights(Q), sums, atol=1e-6)
    np.testing.assert_allclose(few.mean(Q), exact.mean(Q), atol=1e-6)  # not of cells, but of samples
    np.testing.assert_allclose(few.var(Q), exact.var(Q), atol=1e-6)

    def g(targets: np.ndarray) -> np.ndarray:
        return np.abs(targets[:, 0]) > targets[:, 1]

    np.testing.assert_allclose(few.expect(g, Q), sums @ g(anchors), atol=1e-6)
    np.testing.assert_allclose(few.expect(g, Q, samples=(X, Y)), exact.expect(g, Q), atol=1e-6)
    np.testing.assert_allclose(few.expect(lambda y: y, Q, samples=(X, Y)), exact.mean(Q), atol=1e-6)


def test_the_step_equals_dense_columns(data):
    X, Y, _ = (torch.from_numpy(array) for array in data)
    features = Nystroem(12).features(Gaussian(1.0), X, seed=0)
    cells = Cells(Gaussian(0.7), Y[:7])
    step = CellStep(features, 7, cells, Y.mean(0))
    centred = Y - Y.mean(0)
    dense = torch.cat([torch.nn.functional.one_hot(cells(Y), 7).double(), centred, centred**2], 1)
    expected = InMemory(Block(X, dense)).total(NormalStep(features))
    found = InMemory(Block(X, Y)).total(step, limit=20_000)  # many blocks
    assert found.n == expected.n == 250 and found.weight == 250.0
    for name in ("gram", "cross", "squares", "feature_sum", "target_sum"):
        torch.testing.assert_close(getattr(found, name).tril(), getattr(expected, name).tril()) if name == "gram" else (
            torch.testing.assert_close(getattr(found, name), getattr(expected, name))
        )
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=(11, 3)))
    combined, direct = found.combined(matrix), InMemory(Block(X, dense @ matrix)).total(NormalStep(features))
    torch.testing.assert_close(combined.cross, direct.cross)
    torch.testing.assert_close(combined.squares, direct.squares)


def test_alpha_is_that_of_least_leave_one_out_error(data):
    """With anchors at all samples: the errors of fits without one sample, at the same n·alpha, in the RKHS of l."""
    X, Y, _ = (array[:40] for array in data)
    found = model(Nystroem(40), alpha="auto").fit(X, Y)

    def error(alpha: float) -> float:
        scores = [
            model(alpha=alpha * 40 / 39).fit(np.delete(X, i, 0), np.delete(Y, i, 0)).score(X[[i]], Y[[i]])
            for i in range(40)
        ]
        return -float(np.mean(scores))

    assert found.criterion_value_ == pytest.approx(error(found.alpha_), rel=1e-4)
    assert error(found.alpha_) < min(error(0.5 * found.alpha_), error(2.0 * found.alpha_))


def test_objects_as_targets(data):
    X, Y, Q = data
    words = np.where(Y[:, 0] < -0.3, "ab", np.where(Y[:, 0] < 0.4, "abb", "cc"))

    def lengths(targets: Any) -> np.ndarray:
        return np.array([len(word) for word in targets])

    for kernel, targets in ((Spectrum(1), list(words)), (Delta(), words)):
        exact = ConditionalMeanEmbedding(Gaussian(0.8), kernel, 1e-3).fit(X, targets)
        few = ConditionalMeanEmbedding(
            Gaussian(0.8), kernel, 1e-3, approximation=(Nystroem(250), Nystroem(25)), random_state=0
        ).fit(X, targets)
        assert len(few.output_landmarks_) == 25
        np.testing.assert_allclose(few.expect(lengths, Q), exact.expect(lengths, Q), atol=1e-6)
        assert few.score(Q, targets[:15]) == pytest.approx(exact.score(Q, targets[:15]), rel=1e-6)
        assert set(np.ravel(few.sample(Q, 3))) <= set(words)
        with pytest.raises(ValueError, match="targets that are vectors"):
            few.mean(Q)
    auto = clone(few).set_params(alpha="auto").fit(X, words)
    assert auto.criterion_value_ is not None and 0 < auto.alpha_ < 1


def test_hyperparameters_and_pickles(data):
    X, Y, Q = data
    options = {"approximation": RandomFeatures(80), "max_iter": 15, "tol": 1e-3, "random_state": 0}
    learned = ConditionalMeanEmbedding("rbf", **options).fit(X, Y)
    assert len(learned.history_) > 1 and learned.kernel_.lengthscale.shape == (2,)
    assert learned.landmarks_ is None and len(learned.output_landmarks_) == 80
    assert np.abs(learned.mean(X) - Y).mean() < 0.35
    again = pickle.loads(pickle.dumps(learned))
    np.testing.assert_allclose(again.weights(Q), learned.weights(Q), atol=1e-12)
    for criterion in ("validation", None):
        other = ConditionalMeanEmbedding(
            Gaussian(0.8), criterion=criterion, approximation=Nystroem(40), random_state=0
        ).fit(X, Y)
        assert 0 < other.alpha_ < 1 and other.score(X, Y) > -1.0
    exact = clone(learned).set_params(approximation=None).fit(X, Y)  # forgets the approximation
    assert exact.output_landmarks_ is None and not hasattr(exact, "approximation_error_")
    assert exact.weights(Q).shape == (15, 250)


def test_batches_equal_one_fit(data):
    X, Y, Q = data
    pairs: Any = [(RandomFeatures(60), Landmarks(Y[:30])), (Landmarks(X[:40]), Landmarks(Y[:30]))]
    for pair in pairs:
        for alpha in ("auto", 1e-3):
            whole, parts = model(pair, alpha).fit(X, Y), model(pair, alpha)
            for rows in np.array_split(np.arange(250), 4):
                parts.partial_fit(X[rows], Y[rows])
            assert parts.n_samples_seen_ == 250 and parts.X_fit_ is None
            assert parts.alpha_ == pytest.approx(whole.alpha_, rel=1e-8)
            for method in ("weights", "mean", "var"):
                np.testing.assert_allclose(
                    getattr(parts, method)(Q), getattr(whole, method)(Q), atol=1e-8, err_msg=method
                )
    plain = model(pair, "auto", criterion=None).partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:])
    assert plain.alpha_ == pytest.approx(1 / 250)  # the mean k(x, x) over n
    with pytest.raises(ValueError, match="columns"):
        parts.partial_fit(X, Y[:, [0, 1, 1]])
    with pytest.raises(ValueError, match="one dimension"):
        parts.partial_fit(X, Y[:, 0])
    assert not hasattr(model(), "partial_fit")


def test_dask_equals_memory(data):
    da: Any = pytest.importorskip("dask.array")
    X, Y, Q = data
    dX, dY, dQ = (da.from_array(array, chunks=(size, 2)) for array, size in ((X, 70), (Y, 90), (Q, 4)))
    for approximation in (Nystroem(30), (RandomFeatures(50), Nystroem(20, "kmeans"))):
        local = model(approximation, "auto").fit(X, Y)
        remote = model(approximation, "auto").fit(dX, dY)
        assert remote.X_fit_ is None and remote.Y_fit_ is None
        assert remote.alpha_ == pytest.approx(local.alpha_, rel=1e-8)
        for method in ("predict", "mean", "var", "weights"):
            lazy = getattr(remote, method)(dQ)
            assert lazy.chunks[0] == dQ.chunks[0]
            np.testing.assert_allclose(lazy.compute(), getattr(local, method)(Q), atol=1e-8)
        np.testing.assert_allclose(remote.expect(np.abs, dQ).compute(), local.expect(np.abs, Q), atol=1e-8)
        np.testing.assert_allclose(
            remote.expect(np.abs, Q, samples=(dX, dY)), local.expect(np.abs, Q, samples=(X, Y)), atol=1e-8
        )
    one = model(Nystroem(30)).fit(dX, dY[:, 0])
    flat = model(Nystroem(30)).fit(X, Y[:, 0])
    assert one.mean(dQ).shape == (15,)
    for method in ("quantile", "cdf"):
        arguments = METHODS[method]
        lazy = getattr(one, method)(dQ, *arguments)
        np.testing.assert_allclose(lazy.compute(), getattr(flat, method)(Q, *arguments), atol=1e-8)
    labels = np.where(Y[:, 0] > 0, "high", "low")
    pair = (Nystroem(30), Nystroem(9))
    named = ConditionalMeanEmbedding(Gaussian(0.8), Delta(), 1e-3, approximation=pair, random_state=0)
    far = clone(named).fit(dX, da.from_array(labels, chunks=60))
    np.testing.assert_allclose(far.weights(Q), clone(named).fit(X, labels).weights(Q), atol=1e-8)
    exact = model().fit(X, Y)  # its predictions for a collection need its samples
    np.testing.assert_allclose(exact.mean(dQ).compute(), exact.mean(Q), atol=1e-12)
    with pytest.raises(ValueError, match="need approximation="):
        model().fit(dX, dY)
    with pytest.raises(ValueError, match="rechunk"):
        model(Nystroem(30)).fit(dX.rechunk((70, 1)), dY)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        model(Nystroem(30)).fit(dX[dX[:, 0] > 0], dY[dX[:, 0] > 0])
    with pytest.raises(ValueError, match="inconsistent numbers"):
        model(Nystroem(30)).fit(dX, dY[:100])
    with pytest.raises(ValueError, match="NaN"):
        model(Nystroem(30)).fit(dX, da.where(dY > 1, np.nan, dY)).mean(Q)


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (model(Nystroem(300)), "from 1 to the number of samples"),
        (model(TensorSketch(30)), "TensorSketch"),
        (model((Nystroem(30), RandomFeatures(20))), "for the outputs"),
        (model((Nystroem(30), Nystroem(20), None)), "for the outputs"),
        (model("nystroem"), "approximation must be"),
        (model(Nystroem(30), memory_limit="10kB"), "leaves no room"),
        (ConditionalMeanEmbedding(Linear(), approximation=RandomFeatures(20)), "Linear"),
        (ConditionalMeanEmbedding("rbf", "precomputed", approximation=Nystroem(20)), "can be evaluated"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value,
)
def test_what_is_refused_names_the_fix(data, learner, message):
    X, Y, _ = data
    with pytest.raises((ValueError, MemoryError), match=message):
        learner.fit(X, Y)


def test_expectations_say_what_they_need(data):
    X, Y, Q = data
    few = model(Nystroem(30)).fit(X, Y)
    with pytest.raises(ValueError, match="one value, or one vector"):
        few.expect(np.zeros(250), Q)
    with pytest.raises(ValueError, match="pair of inputs and targets"):
        few.expect(np.abs, Q, samples=X)
    with pytest.raises(ValueError, match="for each of the 250"):
        few.expect(lambda y: y[:3], Q, samples=(X, Y))
    with pytest.raises(ValueError, match="fit with an approximation"):
        model().fit(X, Y).expect(np.abs, Q, samples=(X, Y))


@pytest.mark.filterwarnings("ignore:The terms of the fitted function:representer.notices.NumericalWarning")
def test_a_constant_added_to_the_targets_moves_the_mean_and_nothing_else(data):
    X, Y, Q = data
    Y = np.round(2**10 * Y) / 2**10  # so that the sum has all digits
    offset = np.array([2.0**20, 2.0**14])
    for alpha in (1e-4, 1e-9):
        options = {"alpha": alpha, "approximation": Nystroem(60), "random_state": 0}
        near, far = (
            ConditionalMeanEmbedding(Gaussian(2.0), Gaussian(1.0), **options).fit(X, targets)
            for targets in (Y, Y + offset)
        )
        np.testing.assert_allclose(far.var(Q), near.var(Q), rtol=0, atol=1e-10)
        np.testing.assert_allclose(far.mean(Q) - offset, near.mean(Q), rtol=0, atol=1e-9)
        np.testing.assert_allclose(far.expect(np.copy, Q) - offset, near.expect(np.copy, Q), rtol=0, atol=1e-9)


@pytest.mark.parametrize("approximation", [None, Nystroem(250)])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_intercept_is_that_of_the_fit(data, approximation, intercept):
    X, Y, Q = data
    fitted = model(approximation, fit_intercept=intercept).fit(X, Y + 5.0)
    weights = fitted.weights(Q)
    assert (np.abs(weights.sum(1) - 1).max() < 1e-9) == intercept
    before = fitted.mean(Q), fitted.var(Q), fitted.expect(np.abs, Q)
    fitted.set_params(fit_intercept=not intercept)
    for found, known in zip((fitted.mean(Q), fitted.var(Q), fitted.expect(np.abs, Q)), before, strict=True):
        np.testing.assert_array_equal(found, known)
    exact = model(fit_intercept=intercept).fit(X, Y + 5.0).weights(Q)
    mean = exact @ (Y + 5.0)
    np.testing.assert_allclose(before[0], mean, atol=1e-6)
    np.testing.assert_allclose(before[1], np.maximum(exact @ (Y + 5.0) ** 2 - mean**2, 0), atol=1e-6)
