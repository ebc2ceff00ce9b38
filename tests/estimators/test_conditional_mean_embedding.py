"""ConditionalMeanEmbedding, mean embeddings, MMD, herding, calibration curves: brute force, known truth, bad input."""

from __future__ import annotations

import dataclasses
import math
import pickle

import naive_embeddings as ne
import naive_objectives
import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import representer
from representer import ConditionalMeanEmbedding, EmbeddingClassifier, herd, mean_embedding, mmd
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.estimators.validation import seed_of
from representer.functions.conditional import Lattice, best_bandwidth
from representer.kernels import Delta, Gaussian, Laplacian, Linear, Spectrum
from representer.metrics import crps, expected_calibration_error, mmd_test, reliability_curve
from representer.objectives.risk import embedding_risk_bound, radius_with_prior
from representer.problems.embedding import held_out_rows

NOT_REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": "medians of distances do not know weights",
}
NO_GRAM = {"check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is repaired beyond recognition"}
CHECKED = {
    "default": (ConditionalMeanEmbedding("rbf", max_iter=2, tol=0.1, random_state=0), NOT_REPEATED),
    "precomputed": (ConditionalMeanEmbedding("precomputed", random_state=0), NO_GRAM),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:The search over hyperparameters ended at a bound")
@contract(CHECKED, quick=["default"])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def data(rng):
    X = rng.uniform(-2, 2, (50, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.2 * rng.normal(size=(50, 2))
    return X, Y


def fixed(**options):
    return ConditionalMeanEmbedding(Gaussian(0.8), Gaussian(1.1), 0.01, **options)


def one(x, y):
    return ne.gaussian(x, y, 0.8)


def two(x, y):
    return ne.gaussian(x, y, 1.1)


# -- brute force ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [False, True])
def test_weights_expectations_and_embeddings_by_brute_force(data, rng, intercept):
    X, Y = data
    new = rng.uniform(-2, 2, (6, 2))
    model = fixed(fit_intercept=intercept).fit(X, Y)
    w = ne.weights(ne.gram(X, X, one), ne.gram(new, X, one), 0.01, intercept)
    np.testing.assert_allclose(model.weights(new), w, atol=1e-9)
    np.testing.assert_allclose(model.mean(new), w @ Y, atol=1e-9)
    np.testing.assert_allclose(model.predict(new), w @ Y, atol=1e-9)
    np.testing.assert_allclose(model.expect(lambda y: np.cos(y[:, 0]), new), w @ np.cos(Y[:, 0]), atol=1e-9)
    np.testing.assert_allclose(model.expect(Y**2, new), w @ Y**2, atol=1e-9)
    np.testing.assert_allclose(model.var(new), np.maximum(w @ Y**2 - (w @ Y) ** 2, 0.0), atol=1e-8)
    L = ne.gram(Y, Y, two)
    embedding = model.embedding(new)
    np.testing.assert_allclose(embedding.inner().numpy(), w @ L @ w.T, atol=1e-9)
    np.testing.assert_allclose(embedding.squared_norms().numpy(), np.diag(w @ L @ w.T), atol=1e-9)
    at = rng.normal(size=(4, 2))
    np.testing.assert_allclose(embedding(at).numpy(), w @ ne.gram(Y, at, two), atol=1e-9)
    np.testing.assert_allclose(embedding.expect(Y[:, 0]).numpy(), w @ Y[:, 0], atol=1e-9)
    gaps = [[(a - b) @ L @ (a - b) for b in w] for a in w]
    np.testing.assert_allclose(embedding.distance().numpy() ** 2, np.maximum(gaps, 0.0), atol=1e-8)
    targets = rng.normal(size=(6, 2))
    loss = np.mean([two(y, y) - 2 * w[i] @ [two(y, z) for z in Y] + w[i] @ L @ w[i] for i, y in enumerate(targets)])
    assert model.score(new, targets) == pytest.approx(-loss)
    if intercept:
        np.testing.assert_allclose(model.weights(100 * new).sum(1), 1.0, atol=1e-9)


def test_the_criterion_is_the_loss_of_refits(data):
    X, Y = (samples[:30] for samples in data)
    model = ConditionalMeanEmbedding(Gaussian(0.8), Gaussian(1.1), tol=1e-9).fit(X, Y)

    def refits(factor: float) -> float:
        """With the same shift."""
        losses = []
        for i in range(30):
            other = ConditionalMeanEmbedding(Gaussian(0.8), Gaussian(1.1), factor * model.alpha_ * 30 / 29)
            other.fit(np.delete(X, i, 0), np.delete(Y, i, 0))
            losses.append(-other.score(X[i : i + 1], Y[i : i + 1]))
        return float(np.mean(losses))

    assert model.criterion_value_ == pytest.approx(refits(1.0), rel=1e-6)
    assert min(refits(0.5), refits(2.0)) > model.criterion_value_  # it is at its minimum


def test_labels_are_the_embedding_classifier(rng):
    X = rng.normal(size=(40, 2))
    y = np.array(["a", "b", "c"])[rng.integers(0, 3, 40)]
    for intercept in (False, True):
        general = ConditionalMeanEmbedding(Gaussian(0.8), Delta(), 0.01, fit_intercept=intercept).fit(X, y)
        classes = EmbeddingClassifier(Gaussian(0.8), alpha=0.01, fit_intercept=intercept).fit(X, y)
        np.testing.assert_allclose(general.embedding(X)(["a", "b", "c"]).numpy(), classes.embedding(X), atol=1e-10)
        probability = general.expect(lambda labels: np.asarray(labels) == "b", X)
        np.testing.assert_allclose(probability, classes.embedding(X)[:, 1], atol=1e-10)
    assert set(np.ravel(general.sample(X[:3], 4))) <= {"a", "b", "c"}
    with pytest.raises(ValueError, match="needs targets that are vectors"):
        general.mean(X)


def test_gram_matrices_of_both_sides(data):
    X, Y = data
    vectors = fixed().fit(X, Y)
    K, L = Gaussian(0.8)(X).numpy(), Gaussian(1.1)(Y).numpy()
    grams = ConditionalMeanEmbedding("precomputed", "precomputed", 0.01).fit(K, L)
    np.testing.assert_allclose(grams.weights(K), vectors.weights(X), atol=1e-9)
    np.testing.assert_allclose(grams.embedding(K).inner().numpy(), vectors.embedding(X).inner().numpy(), atol=1e-9)
    assert grams.score(K, L) == pytest.approx(vectors.score(X, Y) + 1.0)  # without l(y, y) = 1
    words = ["aab", "abb", "bbb", "aaa", "bab"] * 4
    strings = ConditionalMeanEmbedding(Spectrum(2), Spectrum(1), 0.01).fit(words, words)
    assert strings.sample(["aaa"], 1, "herding")[0][0].count("a") >= 2
    np.testing.assert_allclose(strings.expect([w.count("a") for w in words], ["aaa", "bbb"]), [3, 0], atol=0.5)


# -- distributions ----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_known_conditional_distribution():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (800, 1))
    spread = 0.3 + 0.2 * np.abs(X[:, 0])
    y = np.sin(2 * X[:, 0]) + spread * rng.normal(size=800)
    model = ConditionalMeanEmbedding("rbf", "rbf", random_state=0).fit(X, y)  # the kernel of the targets is not chosen
    new = np.array([[-1.2], [0.0], [0.9]])
    mean, deviation = np.sin(2 * new[:, 0]), 0.3 + 0.2 * np.abs(new[:, 0])
    np.testing.assert_allclose(model.mean(new), mean, atol=0.1)
    np.testing.assert_allclose(np.sqrt(model.var(new)), deviation, atol=0.12)
    q = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(model.quantile(new, q), mean[:, None] + deviation[:, None] * stats.norm.ppf(q), atol=0.2)
    grid = np.linspace(-2.5, 2.5, 60)
    truth = np.array([stats.norm.cdf(grid, m, s) for m, s in zip(mean, deviation, strict=True)])
    cdf = model.cdf(new, grid)
    np.testing.assert_allclose(cdf, truth, atol=0.12)
    assert (np.diff(cdf, axis=1) >= 0).all() and cdf.min() >= 0 and cdf.max() <= 1
    density = model.density(new, grid)
    assert density.shape == (3, 60) and (density >= 0).all()
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1.0, atol=0.05)
    np.testing.assert_allclose(grid[density.argmax(1)], mean, atol=0.35)
    for method in ("herding", "resampling"):
        samples = model.sample(new, 200, method)
        assert samples.shape == (3, 200)
        np.testing.assert_allclose(samples.mean(1), mean, atol=0.2)
        np.testing.assert_allclose(samples.std(1), deviation, atol=0.15 if method == "herding" else 0.25)
    again = clone(model).fit(X, y).sample(new, 5, "resampling")
    np.testing.assert_array_equal(model.sample(new, 5, "resampling"), again)
    assert model.score(X, y) <= 0
    searched, *given = (
        own.fit(X[:400], y[:400]).score(X[400:], y[400:])
        for own in (
            ConditionalMeanEmbedding("rbf"),
            *(ConditionalMeanEmbedding(Gaussian(0.5), alpha=alpha) for alpha in (1e-8, 10.0)),
        )
    )
    assert searched > max(given)


@pytest.mark.parametrize("criterion", ["loo", "validation"])
def test_irrelevant_inputs_are_found(rng, criterion):
    X = rng.uniform(-1, 1, (200, 3))
    y = np.sin(4 * X[:, 2]) + 0.1 * rng.normal(size=200)
    model = ConditionalMeanEmbedding("rbf", criterion=criterion, random_state=0).fit(X, y)
    assert np.argmin(model.kernel_.lengthscale) == 2
    np.testing.assert_allclose(model.mean(X), np.sin(4 * X[:, 2]), atol=0.3)
    assert len(model.history_) == model.n_iter_ + 1


def test_herding_by_brute_force(rng):
    Y, w = rng.normal(size=(12, 2)), rng.dirichlet(np.ones(12))
    chosen = ne.herding(Y, w, two, 6)
    np.testing.assert_array_equal(herd(mean_embedding(Y, Gaussian(1.1), weights=w), 6), Y[chosen])
    model = fixed().fit(Y, Y)
    for x, row in zip(Y[:3], model.weights(Y[:3]), strict=True):
        np.testing.assert_array_equal(model.sample(x[None], 5)[0], Y[ne.herding(Y, row, two, 5)])
    many = rng.normal(size=(2000, 1))
    target = mean_embedding(many, Gaussian(0.5))
    herded = target.distance(mean_embedding(herd(target, 40), Gaussian(0.5))).item()
    draws = [mean_embedding(many[rng.integers(0, 2000, 40)], Gaussian(0.5)) for _ in range(20)]
    drawn = np.mean([target.distance(draw).item() for draw in draws])
    assert herded < 0.3 * drawn
    grid = np.linspace(-3, 3, 61)[:, None]
    assert set(herd(target, 5, candidates=grid)[:, 0]) <= set(grid[:, 0])
    with pytest.raises(ValueError, match="herd takes one element"):
        herd(model.embedding(Y))


# -- two samples ------------------------------------------------------------------------------------------------------
@given(m=st.integers(2, 6), n=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_mmd_by_brute_force(m, n, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(m, 2)), rng.normal(size=(n, 2)) + 0.5
    assert mmd(X, Y, Gaussian(1.1)) ** 2 == pytest.approx(ne.squared_mmd(X, Y, two, False), abs=1e-12)
    assert mmd(X, Y, Gaussian(1.1), unbiased=True) == pytest.approx(ne.squared_mmd(X, Y, two, True), abs=1e-12)
    distance = mean_embedding(X, Gaussian(1.1)).distance(mean_embedding(Y, Gaussian(1.1))).item()
    assert mmd(X, Y, Gaussian(1.1)) == pytest.approx(distance, abs=1e-7)
    assert mmd(X, Y) == pytest.approx(mmd(Y, X))
    assert mmd_test(X, Y, Gaussian(1.1), n_permutations=5, random_state=0).statistic == pytest.approx(
        ne.squared_mmd(X, Y, two, True), abs=1e-12
    )


def test_the_two_sample_test_has_its_level_and_power():
    rng = np.random.default_rng(0)
    values = [
        mmd_test(rng.normal(size=(15, 1)), rng.normal(size=(15, 1)), n_permutations=99, random_state=i).p_value
        for i in range(200)
    ]
    assert 0.02 < np.mean(np.array(values) <= 0.1) < 0.17
    assert min(values) >= 0.01
    different = mmd_test(rng.normal(size=(60, 1)), rng.normal(size=(60, 1)) * 2.5, random_state=0)
    assert different.p_value < 0.01 and len(different.null) == 500
    same = np.ones((5, 1))
    assert mmd_test(same, same, Gaussian(1.0), random_state=0).p_value == 1.0


def test_two_samples_of_words():
    assert mmd(["ab", "ab"], ["ab"], Spectrum(1)) == pytest.approx(0.0)
    assert mmd(["a"], ["b"], Delta()) == pytest.approx(np.sqrt(2.0))
    for call, message in (
        (lambda: mmd([[1.0]], [[2.0]], "precomputed"), "no samples"),
        (lambda: mmd([[1.0]], [[2.0]], unbiased=True), "at least 2"),
        (lambda: mmd_test([[1.0]], [[2.0], [3.0]]), "at least 2"),
        (lambda: mmd_test([[1.0], [2.0]], [[2.0], [3.0]], n_permutations=0), "positive integer"),
        (lambda: mmd([[1.0, 2.0]], [[1.0]]), "features"),
        (lambda: mean_embedding([[1.0], [2.0]], weights=[1.0]), "one entry for each"),
        (lambda: herd(mean_embedding([[1.0]]), 0), "positive integer"),
        (
            lambda: mean_embedding([[1.0]], Linear()).inner(mean_embedding([[1.0]], Gaussian(1.0))),
            "different spaces",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# -- calibration ------------------------------------------------------------------------------------------------------
def test_reliability_by_hand(rng):
    p = np.array([[0.95, 0.05], [0.9, 0.1], [0.45, 0.55], [0.3, 0.7]])
    curve = reliability_curve([0, 1, 1, 1], p)
    assert curve.share[5] == 0.25 and curve.share[9] == 0.5
    assert curve.accuracy[9] == 0.5 and curve.confidence[9] == pytest.approx(0.925)
    assert curve.error == pytest.approx(0.5 * 0.425 + 0.25 * 0.45 + 0.25 * 0.3)
    p = rng.dirichlet(np.ones(3), 20000)
    y = (p.cumsum(1) < rng.random((20000, 1))).sum(1)
    assert expected_calibration_error(y, p) < 0.02
    assert expected_calibration_error(y, p**4 / (p**4).sum(1, keepdims=True)) > 0.1
    with pytest.raises(ValueError, match="must have shape"):
        reliability_curve([0, 0], [[0.5, 0.5], [1.0, 0.0]])
    with pytest.raises(ValueError, match="n_bins"):
        reliability_curve([0, 1], [[0.5, 0.5], [1.0, 0.0]], n_bins=0)


# -- scikit-learn, bad input ------------------------------------------------------------------------------------------
def test_pipelines_searches_pickles_frames_and_tensors(data):
    X, Y = data
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = make_pipeline(StandardScaler(), ConditionalMeanEmbedding("rbf", max_iter=10, tol=1e-2)).fit(frame, Y)
    assert model.predict(frame).shape == (50, 2)
    grid = {"kernel__lengthscale": [0.01, 0.8], "alpha": [1e-3, 1.0]}
    search = GridSearchCV(fixed(), grid, cv=3).fit(X, Y)
    assert search.best_params_["kernel__lengthscale"] == 0.8
    fitted = fixed().fit(X, Y)
    copied = pickle.loads(pickle.dumps(fitted))
    assert len(pickle.dumps(fitted)) < 50 * 50 * 8  # without the n × n system
    np.testing.assert_allclose(copied.weights(X), fitted.weights(X), atol=1e-12)
    tensors = fixed().fit(torch.from_numpy(X), torch.from_numpy(Y))
    np.testing.assert_allclose(tensors.weights(X), fitted.weights(X), atol=1e-12)
    single = fixed(dtype="float32").fit(X, Y)
    np.testing.assert_allclose(single.weights(X), fitted.weights(X), atol=1e-2)
    prior = ConditionalMeanEmbedding("rbf", criterion=None).fit(X, Y)
    assert prior.alpha_ == pytest.approx(1 / 50) and prior.criterion_value_ is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "aic"}, "criterion must be one of"),
        ({"alpha": [0.1, 1.0]}, "GridSearchCV"),
        ({"fit_intercept": 1}, "fit_intercept must be"),
        ({"shrinkage": -1.0}, "shrinkage must be"),
        ({"validation_fraction": 0.0}, "validation_fraction must be a share"),
        ({"output_kernel": "wavelet"}, "is not a kernel"),
    ],
)
def test_bad_arguments(data, options, message):
    with pytest.raises(ValueError, match=message):
        ConditionalMeanEmbedding(**options).fit(*data)


def test_bad_data_and_questions(data):
    X, Y = data
    model = fixed().fit(X, Y)
    with pytest.raises(NotFittedError):
        fixed().weights(X)
    for call, message in (
        (lambda: fixed().fit(X, Y[:-1]), "inconsistent numbers"),
        (lambda: fixed().fit(X, np.where(Y > 2, np.nan, Y)), "NaN"),
        (lambda: fixed().fit(X, Y.astype(str)), "strings"),
        (lambda: model.expect(np.ones(3), X), "one value, or one vector"),
        (lambda: model.quantile(X), "one dimension"),
        (lambda: model.cdf(X, 0.0), "one dimension"),
        (lambda: fixed().fit(X, Y[:, 0]).quantile(X, 2.0), "between 0 and 1"),
        (lambda: model.density(X, Y, bandwidth=0.0), "bandwidth must be positive"),
        (lambda: model.sample(X, 0), "positive integer"),
        (lambda: model.sample(X, 1, "gibbs"), "method must be"),
        (lambda: model.score(X, Y[:-1]), "inconsistent numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_kernels_are_those_of_scikit_learn(data):
    X, Y = data
    np.testing.assert_allclose(Gaussian(1.1)(Y).numpy(), RBF(1.1)(Y), atol=1e-12)
    np.testing.assert_allclose(ne.gram(X, X, one), RBF(0.8)(X), atol=1e-12)


# -- targets of the wrong width, functions that write ------------------------------------------------------------------
def test_targets_of_another_width_are_refused_with_both_widths(rng):
    X, A = rng.normal(size=(30, 3)), rng.normal(size=(8, 2))
    mu = mean_embedding(A)
    for wrong in ([[0.0]], [[0.0, 0.0, 0.0]]):
        with pytest.raises(ValueError, match=f"has 2 features, but Y has {len(wrong[0])}"):
            mu(wrong)
        with pytest.raises(ValueError, match="has 2 features"):
            herd(mu, 3, candidates=wrong)
    with pytest.raises(ValueError, match="has 2 features, but Y has 1"):
        mu.inner(mean_embedding(A[:, :1], mu.kernel))
    one = ConditionalMeanEmbedding("rbf", criterion=None).fit(X, X[:, 0])
    two = ConditionalMeanEmbedding("rbf", criterion=None).fit(X, X[:, :2])
    with pytest.raises(ValueError, match="y has 2 columns, but the targets that were fitted have 1"):
        one.score(X, X[:, :2])
    with pytest.raises(ValueError, match="y has 1 columns, but the targets that were fitted have 2"):
        two.score(X, X[:, 0])
    assert np.isfinite(one.score(X, X[:, :1])) and np.isfinite(two.score(X, X[:, :2]))


def test_a_function_that_writes_into_the_targets_changes_neither_model_nor_data(rng):
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=30)
    given = Y.copy()
    model = ConditionalMeanEmbedding("rbf", criterion=None).fit(X, Y)
    before = model.mean(X)
    assert np.all(model.expect(lambda t: np.multiply(t, 0, out=t), X) == 0)
    assert np.all(model.embedding(X).expect(lambda t: np.multiply(t, 0, out=t)).numpy() == 0)
    np.testing.assert_array_equal(model.mean(X), before)
    np.testing.assert_array_equal(Y, given)
    texts = ["ab", "ba", "aab"] * 10
    objects = ConditionalMeanEmbedding("rbf", criterion=None, output_kernel=Spectrum(1)).fit(X, texts)
    objects.expect(lambda t: [t.pop() and 0.0 for _ in range(len(t))], X)
    assert list(objects.Y_fit_) == texts


# -- densities and distribution functions where the weights are no probabilities ---------------------------------------
def test_the_density_of_constant_targets_is_a_finite_peak(rng):
    X = rng.normal(size=(30, 2))
    for level in (1.0, 0.0, -1e6):
        density = ConditionalMeanEmbedding("rbf").fit(X, np.full(30, level)).density(X[:2], [level, level + 1.0])
        assert np.isfinite(density).all() and (density[:, 0] > 0.1).all() and (density[:, 1] == 0).all()


def test_far_from_all_samples_without_an_intercept_it_is_the_marginal_distribution(rng):
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=30)
    model = ConditionalMeanEmbedding(Gaussian(1.0), alpha=0.01, fit_intercept=False).fit(X, Y)
    far = [[1e3, 1e3]]
    assert model.weights(far).sum() == 0
    grid = np.sort(Y)
    np.testing.assert_allclose(model.cdf(far, grid)[0], np.arange(1, 31) / 30)
    np.testing.assert_array_equal(model.quantile(far, [0.1, 0.5, 0.9])[0], grid[[2, 14, 26]])
    bandwidth = 0.3
    expected = [np.mean(stats.norm.pdf(t, Y, bandwidth)) for t in grid]
    np.testing.assert_allclose(model.density(far, grid, bandwidth)[0], expected)
    assert np.isfinite(model.density(far, grid)).all()


@pytest.mark.parametrize("bandwidth", [None, 0.05])
def test_densities_integrate_to_one_though_weights_are_negative(rng, bandwidth):
    X, noise = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    new = X[:3] + 0.3
    model = ConditionalMeanEmbedding(Gaussian(0.7), alpha=1e-6).fit(X, noise[:, 0])
    assert np.minimum(model.weights(new), 0).sum(1).max() < -0.5
    grid = np.linspace(-8, 8, 20001)
    density = model.density(new, grid, bandwidth)
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1.0, atol=5e-3)
    raw = [stats.norm.pdf(grid[:, None], noise[:, 0], 0.05) @ w for w in model.weights(new)]
    if bandwidth is not None:
        clipped = np.maximum(raw, 0)
        clipped /= np.trapezoid(clipped, grid, axis=1)[:, None]
        np.testing.assert_allclose(density, clipped, rtol=5e-3, atol=1e-6)
    plane = ConditionalMeanEmbedding(Gaussian(0.7), alpha=1e-6).fit(X, noise)
    side = np.linspace(-4, 4, 161)
    points = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    total = plane.density(new, points, 0.2).sum(1) * (side[1] - side[0]) ** 2
    np.testing.assert_allclose(total, 1.0, atol=0.02)


def test_points_and_levels_of_the_wrong_shape_are_refused(rng):
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    one, two = (ConditionalMeanEmbedding("rbf", criterion=None).fit(X, targets) for targets in (Y[:, 0], Y))
    assert two.density(X, [0.0, 0.0]).shape == (20, 1)
    assert one.density(X, 0.0).shape == one.density(X, [[0.0]]).shape == (20, 1)
    for call in (
        lambda: two.density(X, [0.0, 0.0, 0.0, 0.0]),
        lambda: two.density(X, [[0.0], [0.0]]),
        lambda: one.density(X, [[0.0, 0.0]]),
        lambda: one.density(X, [np.nan]),
        lambda: one.cdf(X, [[0.0, 1.0]]),
        lambda: one.cdf(X, [np.nan]),
    ):
        with pytest.raises(ValueError, match="y must be a"):
            call()
    for q in ([[0.1, 0.5]], [np.nan]):
        with pytest.raises(ValueError, match="q must be a number or an array"):
            one.quantile(X, q)
    np.testing.assert_array_equal(one.cdf(X, [-np.inf, np.inf]), [[0.0, 1.0]] * 20)


# -- targets far from zero ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "alpha", "offset", "of_var", "of_mean"),
    [("float64", 1e-9, 2.0**20, 1e-11, 2e-9), ("float32", 1e-4, 2.0**10, 1e-5, 3e-4)],
)
def test_a_constant_added_to_the_targets_moves_the_mean_and_nothing_else(rng, dtype, alpha, offset, of_var, of_mean):
    X, new = rng.normal(size=(300, 1)), rng.normal(size=(50, 1))
    y = np.round(2**10 * (np.sin(X[:, 0]) + 0.1 * rng.normal(size=300))) / 2**10  # so that the sum has all digits
    near, far = (
        ConditionalMeanEmbedding(Gaussian(2.0), Gaussian(1.0), alpha, dtype=dtype).fit(X, targets)
        for targets in (y, y + offset)
    )
    np.testing.assert_allclose(far.var(new), near.var(new), rtol=0, atol=of_var)
    for ask in (lambda m: m.mean(new), lambda m: m.expect(np.copy, new), lambda m: m.quantile(new)):
        np.testing.assert_allclose(ask(far) - offset, ask(near), rtol=0, atol=of_mean)
    np.testing.assert_array_equal(far.cdf(new, [offset, offset + 0.5]), near.cdf(new, [0.0, 0.5]))


def test_a_constant_added_to_the_targets_moves_their_density(rng):
    X, new, points = rng.normal(size=(300, 1)), rng.normal(size=(10, 1)), np.linspace(-1, 1, 5)
    y = np.round(2**10 * (np.sin(X[:, 0]) + 0.1 * rng.normal(size=300))) / 2**10
    near, far = (
        ConditionalMeanEmbedding(Gaussian(2.0), Gaussian(1.0), 1e-9, random_state=0)
        .fit(X, y + offset)
        .density(new, points + offset)
        for offset in (0.0, 2.0**14)
    )
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-9)


def test_expectations_of_infinite_values_stay_infinite(data):
    X, Y = data
    values = np.where(np.arange(len(X)) == 3, np.inf, 1.0)
    assert np.isinf(fixed().fit(X, Y).expect(values, X)).all()


def test_distribution_functions_do_not_depend_on_the_order_of_equal_targets(rng):
    X = rng.uniform(-2, 2, (120, 1))
    y = np.round(np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=120))
    order, new = rng.permutation(120), np.linspace(-2.5, 2.5, 40)[:, None]
    levels, q = np.unique(y), [0.1, 0.3, 0.5, 0.9]
    model = ConditionalMeanEmbedding(Gaussian(1.0), alpha=1e-6)
    cdf, quantiles = model.fit(X, y).cdf(new, levels), model.quantile(new, q)
    raw = np.column_stack([model.expect(lambda t, level=level: t <= level, new) for level in levels])
    monotone = 0.5 * (np.maximum.accumulate(raw, 1) + np.minimum.accumulate(raw[:, ::-1], 1)[:, ::-1])
    np.testing.assert_allclose(cdf, np.clip(monotone, 0, 1), atol=1e-8)
    model.fit(X[order], y[order])
    np.testing.assert_allclose(model.cdf(new, levels), cdf, atol=1e-6)
    assert np.mean(model.quantile(new, q) != quantiles) < 0.01


@pytest.mark.parametrize("shrinkage", [0.0, 5.0])
def test_criterion_value_is_the_leave_one_out_error_without_the_penalty(data, rng, shrinkage):
    X, Y = data
    Y = Y + rng.normal(size=Y.shape)
    model = ConditionalMeanEmbedding(Gaussian("ard"), "linear", shrinkage=shrinkage, random_state=0).fit(X, Y)
    shift, errors = len(X) * model.alpha_, []
    for i in range(len(X)):
        kept = np.arange(len(X)) != i
        K, k = model.kernel_(X[kept]).numpy(), model.kernel_(X[[i]], X[kept]).numpy()
        w = ne.weights(K, k, shift / kept.sum(), intercept=True)
        errors.append(np.sum((Y[i] - w[0] @ Y[kept]) ** 2))
    assert model.criterion_value_ == pytest.approx(np.mean(errors), rel=1e-6)


def test_an_unknown_output_kernel_is_named(data):
    with pytest.raises(ValueError, match="output_kernel='x' is not a kernel"):
        ConditionalMeanEmbedding("rbf", output_kernel="x").fit(*data)


# -- far from the samples, and densities ------------------------------------------------------------------------------
def test_far_from_all_samples_the_distribution_is_that_of_all_targets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    y = np.exp(X[:, 0]) + 1.0 + 0.1 * rng.normal(size=80)
    model = ConditionalMeanEmbedding(max_iter=20).fit(X, y)
    far = [[1e6], [-1e6]]
    np.testing.assert_allclose(model.weights(far), 1 / 80, rtol=1e-9)
    np.testing.assert_allclose(model.mean(far), y.mean())
    np.testing.assert_allclose(model.quantile(far, [0.5]), np.quantile(y, 0.5, method="inverted_cdf"))
    weights = rng.integers(0, 3, 80).astype(float)
    weighted = ConditionalMeanEmbedding(max_iter=20).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(weighted.mean(far), np.average(y, weights=weights))
    near = np.linspace(-1, 1, 9)[:, None]  # the weights of the fit itself
    np.testing.assert_allclose(model.weights(near), model.system_.weights(near))
    np.testing.assert_allclose(model.weights(near) @ y, model.mean(near))


@pytest.mark.parametrize("approximation", [Nystroem(60), RandomFeatures(200)])
def test_with_an_approximation_the_distribution_far_away_is_that_of_all_targets(approximation, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = np.exp(X[:, 0]) + 1.0 + 0.1 * rng.normal(size=400)
    model = ConditionalMeanEmbedding(Gaussian(0.7), approximation=approximation, random_state=0).fit(X, y)
    far, levels = np.array([[1e6], [-1e6]]), [0.1, 0.5, 0.9]
    np.testing.assert_allclose(model.mean(far), y.mean(), rtol=1e-6)
    np.testing.assert_allclose(model.var(far), y.var(), rtol=1e-6)
    np.testing.assert_allclose(model.expect(np.sin, far, samples=(X, y)), np.sin(y).mean(), rtol=1e-6)
    np.testing.assert_allclose(model.weights(far).sum(1), 1.0)
    np.testing.assert_allclose(model.quantile(far, levels)[0], np.quantile(y, levels), atol=0.15)  # of a cell
    nearest = np.abs(y[:, None] - model.output_landmarks_[:, 0]).argmin(1)
    np.testing.assert_allclose(model.expect(np.sin, far), np.sin(model.output_landmarks_[nearest, 0]).mean(), rtol=1e-6)
    near = np.linspace(-1, 1, 9)[:, None]  # where nothing fades
    unfaded = model.system_.function()
    np.testing.assert_array_equal(model.weights(near), unfaded(near))
    both = np.concatenate([near, far, [[float(X.max()) + 1.5]]])
    np.testing.assert_allclose(model.explain(both).prediction, model.mean(both), rtol=1e-6)
    with torch.no_grad():
        np.testing.assert_allclose(model.to_torch()(torch.from_numpy(both))[:, 0], model.mean(both), rtol=1e-6)
    loaded = representer.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.mean(both), model.mean(both), rtol=1e-10)


def test_landmarks_that_are_all_samples_fade_as_the_exact_fit_does():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 1))
    y = np.exp(X[:, 0]) + 0.1 * rng.normal(size=60)
    options = {"output_kernel": Gaussian(1.0), "alpha": 1e-3, "random_state": 0}
    exact = ConditionalMeanEmbedding(Gaussian(0.5), **options).fit(X, y)
    pair = (Landmarks(X), Landmarks(y[:, None]))
    cells = ConditionalMeanEmbedding(Gaussian(0.5), approximation=pair, **options).fit(X, y)
    queries = X.max() + np.linspace(0, 4, 17)[:, None]
    t = exact.function_.weights.trust(queries)
    assert t.max() == 1 and t.min() < 0.1 and ((t > 0.2) & (t < 0.8)).any()
    np.testing.assert_allclose(cells.function_.weights.trust(queries), t, rtol=1e-6)
    np.testing.assert_allclose(cells.weights(queries), exact.weights(queries), atol=1e-6)
    for ask in ("mean", "var"):
        np.testing.assert_allclose(getattr(cells, ask)(queries), getattr(exact, ask)(queries), atol=1e-6)
    np.testing.assert_array_equal(cells.quantile(queries, [0.25, 0.6]), exact.quantile(queries, [0.25, 0.6]))
    grid = np.linspace(0, 8, 50)
    np.testing.assert_allclose(cells.density(queries, grid, 0.3), exact.density(queries, grid, 0.3), atol=1e-6)


def test_some_of_many_samples_say_what_is_far_away(monkeypatch):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(80, 1)), np.linspace(-1, 1, 9)[:, None]
    y, groups = X[:, 0] + 0.1 * rng.normal(size=80), np.arange(80) // 2
    monkeypatch.setattr("representer.samples.rows.HELD_ROWS", 100)
    monkeypatch.setattr("representer.samples.rows.SUPPORT_ROWS", 20)
    model = ConditionalMeanEmbedding(Gaussian(0.7), alpha=1e-3).fit(X, y, groups=groups)
    assert len(model.function_.weights.trust.support) == 20
    np.testing.assert_allclose(model.mean([[1e6]]), y.mean())
    np.testing.assert_allclose(model.weights(new), model.system_.weights(new))


def test_densities_of_two_branches():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=300)
    y = rng.choice([-1, 1], 300) * x + 0.2 * rng.normal(size=300)
    model = ConditionalMeanEmbedding("rbf", Gaussian(0.5)).fit(x[:, None], y)
    grid, queries = np.linspace(-5, 5, 1001), np.linspace(-1.7, 1.7, 18)
    density = model.density(queries[:, None], grid)
    np.testing.assert_allclose(density.sum(1) * 0.01, 1.0, atol=2e-3)
    truth = sum(stats.norm.pdf(grid, sign * queries[:, None], 0.2) for sign in (-1, 1)) / 2
    assert (np.abs(density - truth).sum(1) * 0.01).mean() < 0.6
    scott = dataclasses.replace(model.function_, bandwidth=None).density(queries[:, None], grid[:, None], None)
    assert (np.abs(scott.numpy() - truth).sum(1) * 0.01).mean() > 0.7


def test_left_out_samples_choose_the_kernel_of_the_targets():
    rng = np.random.default_rng(0)

    def branches(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.uniform(0, 2, size=n)
        return x[:, None], rng.choice([-1, 1], n) * x + 0.2 * rng.normal(size=n)

    (X, y), (new, targets) = branches(300), branches(1000)
    model = ConditionalMeanEmbedding("rbf", random_state=0).fit(X, y)
    assert isinstance(model.output_kernel_, Gaussian)  # the narrow one: its densities tell the branches apart
    grid = np.linspace(-4, 4, 801)
    truth = sum(stats.norm.pdf(grid, sign * new[:50], 0.2) for sign in (-1, 1)) / 2
    wide = ConditionalMeanEmbedding("rbf", "rbf", random_state=0).fit(X, y)
    errors = [np.abs(own.density(new[:50], grid) - truth).sum(1).mean() / 100 for own in (model, wide)]
    assert errors[0] < 0.35 < 0.6 < errors[1]
    low, high = model.quantile(new, [0.05, 0.95]).T
    assert 0.87 < ((low <= targets) & (targets <= high)).mean() < 0.93
    smooth = ConditionalMeanEmbedding("rbf", random_state=0).fit(X, X[:, 0] + 0.3 * rng.normal(size=300))
    assert isinstance(smooth.output_kernel_, Laplacian)  # nothing to gain: the loss is CRPS


def test_the_loss_of_the_wide_kernel_of_targets_is_crps(rng):
    y = rng.normal(size=(9, 1))
    weights = rng.dirichlet(np.ones(9), 9)
    wide = 1e7
    gram = np.exp(-np.abs(y - y.T) / wide)
    losses = np.diag(gram) - 2 * (weights @ gram).diagonal() + ((weights @ gram) * weights).sum(1)
    score = crps(y[:, 0], np.tile(y.T, (9, 1)), weights=weights)
    np.testing.assert_allclose(losses.mean() * wide / 2, score, rtol=1e-5)


@pytest.mark.parametrize(
    ("h", "dtype", "atol"), [(0.02, torch.float64, 1e-8), (0.7, torch.float64, 1e-8), (0.3, torch.float32, 1e-5)]
)
def test_sums_of_gaussians_on_a_lattice(rng, h, dtype, atol):
    Y = torch.from_numpy(3 * rng.normal(size=(60, 1))).to(dtype)
    weights = torch.from_numpy(rng.normal(size=(4, 60)) / 60).to(dtype)
    points = torch.cat([torch.linspace(-12, 12, 301)[:, None], Y, torch.tensor([[1e9], [-1e9]])]).to(dtype)
    lattice = Lattice.of(Y, torch.tensor([h], dtype=dtype))
    sums = lattice.smoothed(weights, Y)
    direct = weights.double().numpy() @ stats.norm.pdf(points.numpy()[None, :, 0], Y.double().numpy(), h)
    np.testing.assert_allclose(lattice.values(sums, points), direct, atol=atol / h)
    grid = np.arange(-20, 20, h / 50)
    dense = weights.double().numpy() @ stats.norm.pdf(grid, Y.double().numpy(), h)
    np.testing.assert_allclose(lattice.masses(sums), np.maximum(dense, 0).sum(1) * h / 50, rtol=1e-3)
    assert Lattice.of(Y, torch.tensor([1e-9], dtype=dtype)) is None


def test_the_bandwidth_has_the_most_log_density_for_left_out_samples():
    rng = np.random.default_rng(0)
    Y = torch.from_numpy(rng.normal(size=(30, 1)))
    weights = torch.from_numpy(rng.dirichlet(np.ones(30), 30) * 1.2 - 0.2 / 30)
    found, log_densities = best_bandwidth(weights, Y, torch.arange(30))
    grid, spread = np.linspace(-9, 9, 4001), float(Y.max() - Y.min())
    scores = {}
    for k in range(14):
        h = float(Y.std(correction=0)) * 2 ** (-k / 2)
        values = [w @ stats.norm.pdf(grid[None], Y.numpy(), h) for w in weights.numpy()]
        masses = [np.maximum(0, v).sum() * (grid[1] - grid[0]) for v in values]
        own = [
            max(0, w @ stats.norm.pdf(y, Y.numpy()[:, 0], h))
            for w, y in zip(weights.numpy(), Y.numpy()[:, 0], strict=True)
        ]
        scores[h] = np.mean(np.log(0.99 * np.array(own) / masses + 0.01 / spread))
    np.testing.assert_allclose(found, max(scores, key=scores.get))
    np.testing.assert_allclose(log_densities.mean(), max(scores.values()), atol=1e-4)


# -- the bound for any targets ----------------------------------------------------------------------------------------
def bounded(**options):
    given = {"kernel": Gaussian(0.7), "output_kernel": Gaussian(1.0), "alpha": 0.05, "fit_intercept": False}
    return ConditionalMeanEmbedding(**{**given, **options})


def noisy_line(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 1))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


def test_the_complexity_is_the_hilbert_schmidt_norm_of_the_operator():
    X, y = noisy_line(30, 0)
    model = bounded().fit(X, y)
    K, L = np.asarray(Gaussian(0.7)(X)), np.asarray(Gaussian(1.0)(y[:, None]))
    features, targets = (vectors * np.sqrt(np.clip(values, 0, None)) for values, vectors in map(np.linalg.eigh, (K, L)))
    # U = Ψ(K + nαI)⁻¹Φᵀ, equation (1), in coordinates in which Φᵀ and Ψᵀ have these rows.
    U = targets.T @ np.linalg.solve(K + 30 * 0.05 * np.eye(30), features)
    risk = model.system_.risk()
    assert risk.complexity == pytest.approx(np.linalg.norm(U), rel=1e-8)
    assert risk.loss == pytest.approx(((targets - features @ U.T) ** 2).sum(1).mean(), rel=1e-8)
    W = K @ np.linalg.inv(K + 30 * 0.05 * np.eye(30))
    assert risk.complexity**2 == pytest.approx(np.trace(W @ (np.eye(30) - W) @ L) / (30 * 0.05), rel=1e-8)
    r, n = risk.complexity, 30
    expected = risk.loss + 2 * (2 * r + r**2) / math.sqrt(n) + (1 + r) ** 2 * math.sqrt(math.log(10) / (2 * n))
    assert model.risk_bound(0.1, prior=False) == pytest.approx(expected, rel=1e-8)
    r = 2.0 ** math.ceil(math.log2(r))
    surprise = math.log(10) + abs(math.log2(r)) * math.log(2) + math.log(3)
    expected = risk.loss + 2 * (2 * r + r**2) / math.sqrt(n) + (1 + r) ** 2 * math.sqrt(surprise / (2 * n))
    assert model.risk_bound(0.1) == pytest.approx(expected, rel=1e-8)


def test_the_prior_on_the_complexity_is_one():
    """Its probabilities sum to one, and it never rounds down, nor by more than a factor of two."""
    radii = [radius_with_prior(3.0 * 2.0**j, 3.0) for j in range(-30, 31)]
    assert [radius for radius, _ in radii] == [3.0 * 2.0**j for j in range(-30, 31)]
    assert sum(math.exp(-surprise) for _, surprise in radii) == pytest.approx(1.0, abs=1e-8)
    for r in (0.3, 1.0, 2.7):
        assert r <= radius_with_prior(r, 0.9)[0] < 2 * r
    assert radius_with_prior(0.0, 1.0)[0] < 1e-10


def test_the_rademacher_complexity_of_a_ball_by_brute_force():
    """E sup of (1/n) Σ σ_i ‖ψ_i − Uφ_i‖² over ‖U‖ ≤ r, on a grid of the ball, is below (2√κ r + r²)/√n, and near it."""
    rng = np.random.default_rng(0)
    angles, n, r = rng.uniform(0, 2 * np.pi, 40), 40, 0.8
    features, targets = np.column_stack([np.cos(angles), np.sin(angles)]), rng.choice([-1.0, 1.0], 40)
    grid = np.stack(np.meshgrid(*[np.linspace(-r, r, 61)] * 2), -1).reshape(-1, 2)
    edge = r * np.column_stack([np.cos(np.linspace(0, 6.3, 200)), np.sin(np.linspace(0, 6.3, 200))])
    ball = np.vstack([grid[np.linalg.norm(grid, axis=1) <= r], edge])
    losses = (targets - ball @ features.T) ** 2
    signs = rng.choice([-1.0, 1.0], (400, n))
    complexity = (losses @ signs.T / n).max(0).mean()
    limit = embedding_risk_bound(0.0, r, supremum=1.0, n=n, beta=1.0, prior=False) / 2  # 2ℛ, and no doubt at β = 1
    assert 0.4 * limit < complexity < limit


def test_the_bound_holds_and_the_training_loss_does_not():
    X_new, y_new = noisy_line(500, 99)
    below = []
    for seed in range(20):
        model = bounded(alpha=1e-4, criterion=None).fit(*noisy_line(25, seed))
        own = Gaussian(1.0)(y_new[:, None], model.Y_fit_).numpy()
        W = model.weights(X_new)
        gram = Gaussian(1.0)(model.Y_fit_).numpy()
        risk = (1.0 - 2.0 * (W * own).sum(1) + np.einsum("ij,jk,ik->i", W, gram, W)).mean()
        assert risk < model.risk_bound(0.05) and risk < model.risk_bound(0.05, prior=False)
        below.append(model.system_.risk().loss < risk)
    assert np.mean(below) > 0.9


def test_the_bound_is_refused_where_its_theorem_says_nothing():
    X, y = noisy_line(20, 0)
    for options, arguments, reason in (
        ({"fit_intercept": True}, {}, "fit_intercept=False"),
        ({"kernel": Gaussian("auto")}, {}, "with numbers"),
        ({"output_kernel": "auto"}, {}, "with numbers"),
        ({"kernel": Linear()}, {}, "bounded"),
        ({}, {"sample_weight": np.arange(1.0, 21.0)}, "without weights"),
        ({}, {"groups": np.arange(20) // 2}, "without groups"),
        ({"approximation": Nystroem(5)}, {}, "exact"),
    ):
        model = bounded().set_params(**options).fit(X, y, **arguments)
        with pytest.raises(ValueError, match=f"risk_bound rests on a theorem .*{reason}"):
            model.risk_bound()
    with pytest.raises(ValueError, match="between 0 and 1"):
        bounded().fit(X, y).risk_bound(0.0)


@pytest.mark.parametrize("criterion", ["rademacher", "penalized_validation"])
def test_other_criteria_are_minimised(criterion):
    """No alpha of a grid is better than the one that is learned; with an approximation it is of the same kind."""
    X, y = noisy_line(60, 1)
    model = bounded(alpha="auto", criterion=criterion, random_state=0).fit(X, y)
    K, R = np.asarray(Gaussian(0.7)(X)), np.asarray(Gaussian(1.0)(y[:, None]))
    values, vectors = np.linalg.eigh(R)
    R = vectors * np.sqrt(np.clip(values, 0, None))
    held_out = held_out_rows(torch.zeros(60, dtype=torch.long), 0.25, seed_of(0)).tolist()

    def value(alpha):
        if criterion == "rademacher":
            return naive_objectives.embedding_bound(K, R, alpha)
        return naive_objectives.penalized_held_out(K, R, alpha, held_out)

    assert model.criterion_value_ == pytest.approx(value(model.alpha_), rel=1e-6)
    assert model.criterion_value_ <= min(map(value, np.geomspace(1e-6, 100.0, 40))) + 1e-9
    few = bounded(alpha="auto", criterion=criterion, approximation=Nystroem(30), random_state=0).fit(X, y)
    assert few.alpha_ == pytest.approx(model.alpha_, rel=0.05)
