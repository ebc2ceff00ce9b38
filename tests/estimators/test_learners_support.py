"""Support: every learner says how much of an input its samples explain."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits

import representer
from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    Layer,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Nystroem, RandomFeatures
from representer.kernels import Gaussian, Linear, Spectrum, Stack

LEARNERS = {
    "ridge": OperatorRidge(),
    "gaussian ridge": OperatorRidge(Gaussian(2.0), alpha=1e-3),
    "landmarks": OperatorRidge(Gaussian(2.0), alpha=1e-3, approximation=Nystroem(20), random_state=0),
    "random features": OperatorRidge(Gaussian(2.0), alpha=1e-3, approximation=RandomFeatures(200), random_state=0),
    "deep": DeepKernelRegressor([Layer(Gaussian(2.0), 2, 1e-3)], Gaussian(1.0), alpha=1e-3, max_iter=5, random_state=0),
    "deep classes": DeepKernelClassifier(kernel=Gaussian(1.0), alpha=1e-2, max_iter=5, random_state=0),
    "autoencoder": KernelAutoencoder([(Gaussian(2.0), 2)], max_iter=5, random_state=0),
    "classes": EmbeddingClassifier("rbf", max_iter=10),
    "conditional": ConditionalMeanEmbedding(max_iter=10),
    "cells": ConditionalMeanEmbedding(Gaussian(2.0), alpha=1e-3, approximation=Nystroem(20), random_state=0),
    "structured": StructuredPredictor(Gaussian(2.0), "rbf", alpha=1e-3),
    "components": DeepKernelPCA(n_components=(3, 2), random_state=0),
    "features": KernelFeatures(Gaussian(2.0), Nystroem(20), random_state=0),
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=60), rng.normal(size=(30, 2))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_knows_inputs_that_are_far_away(name, data, tmp_path):
    X, y, new = data
    classes = name in ("classes", "deep classes")
    model = LEARNERS[name].fit(X, (y > 0).astype(int) if classes else y)
    near, far = model.support(new), model.support(1e6 * np.eye(2))
    assert near.shape == (30,) and np.all((near >= 0) & (near <= 1))
    np.testing.assert_allclose(far, 0.0, atol=1e-6)
    assert np.median(near) > model.support_threshold_ > 0
    assert np.mean(near < model.support_threshold_) < 0.3  # as many as 5 %, more or less
    for copy in (pickle.loads(pickle.dumps(model)), representer.load(model.save(tmp_path / "model"))):
        np.testing.assert_allclose(copy.support(new), near, rtol=1e-10)


def test_support_follows_the_last_fit(data):
    X, y, new = data
    model = OperatorRidge(Gaussian(1.0), alpha=1e-3).fit(X + 1e3, y)
    assert model.support(new).max() == 0
    assert model.fit(X, y).support(new).min() > 0


def test_an_exact_ridge_answers_by_its_own_system(data):
    X, y, new = data
    model = OperatorRidge(Gaussian(2.0), alpha=1e-4, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.support(new), 1 - model.system_.variance(new)[:, 0], atol=1e-9)
    left_out = model.system_.left_out_variance()[:, 0] - len(X) * 1e-4
    np.testing.assert_allclose(model.support_threshold_, np.quantile(1 - left_out, 0.05))


def test_support_of_objects():
    words = ["banana", "bananas", "ananas", "banjo", "bandana", "cabana"]
    model = OperatorRidge(Spectrum(2).normalized(), alpha=1e-2).fit(words, np.arange(6.0))
    near, far = model.support(["bandanas", "xyzzy"])
    assert near > 0.5 and far == 0


def test_an_unbounded_kernel_says_so(data):
    X, y, new = data
    model = OperatorRidge(Linear(), alpha=1e-3).fit(X, y)
    with pytest.warns(UserWarning, match="not known to be bounded"):
        assert model.support(1e6 * new).min() > 0.9
    stack = OperatorRidge(Stack([Linear(), Gaussian(1.0)], weights=[0.5, 0.5])).fit(X, y)
    assert stack.support(1e6 * new).max() == 0


def test_a_gram_matrix_has_no_support_of_new_inputs(data):
    X, y, new = data
    k = Gaussian(1.0)
    model = OperatorRidge("precomputed", alpha=1e-3).fit(k(X).numpy(), y)
    with pytest.raises(ValueError, match=r"needs k\(x, x\).*kernel object"):
        model.support(k(new, X).numpy())


def test_random_features_alone_keep_no_samples(data):
    model = KernelFeatures(Gaussian(1.0), RandomFeatures(50), random_state=0).fit(data[0])
    with pytest.raises(ValueError, match=r"neither samples nor landmarks.*Nystroem"):
        model.support(data[0])


def test_digits_that_were_never_seen_have_less_support():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order] / 16.0, y[order]
    known, other = X[y < 5], X[y >= 5][:150]
    model = EmbeddingClassifier(Gaussian(2.0), alpha=1e-4).fit(known[:250], y[y < 5][:250])
    inside, outside = model.support(known[250:400]), model.support(other)
    assert np.mean(inside[:, None] > outside) > 0.85  # the area under the curve
    assert np.mean(outside < model.support_threshold_) > 5 * np.mean(inside < model.support_threshold_)


# -- probabilities far from the samples -------------------------------------------------------------------------------
CLASSIFIERS = {
    "stack": EmbeddingClassifier(),
    "one kernel": EmbeddingClassifier("rbf", max_iter=10),
    "no constant": EmbeddingClassifier(Gaussian(1.0), alpha=1e-3, fit_intercept=False),
    "landmarks": EmbeddingClassifier(Gaussian(1.0), alpha=1e-3, approximation=Nystroem(20), random_state=0),
    "random features": EmbeddingClassifier(Gaussian(1.0), alpha=1e-3, approximation=RandomFeatures(99), random_state=0),
    "deep": DeepKernelClassifier(
        [Layer(Gaussian(1.0), 2, 1e-2)], Gaussian(1.0), alpha=1e-2, max_iter=5, random_state=0
    ),
    "hinge": DeepKernelClassifier([], Gaussian(1.0), "hinge", alpha=1e-2, random_state=0),
}


@pytest.fixture(scope="module")
def rare():
    """Few samples of one class, around those of another one, which has a share of nine in eleven."""
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(90, 2)), 4 * rng.normal(size=(20, 2))])
    return X, np.array(["often"] * 90 + ["seldom"] * 20)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_far_from_all_samples_classes_have_their_shares(name, rare, tmp_path):
    X, y = rare
    model = CLASSIFIERS[name].fit(X, y)
    far = np.array([[1e7, 0.0], [-1e7, 1e7]])
    np.testing.assert_allclose(model.predict_proba(far), [[9 / 11, 2 / 11]] * 2, rtol=1e-6)
    assert list(model.predict(far)) == ["often"] * 2
    line = np.linspace(-60, 60, 300)[:, None] * [[1.0, 0.5]]
    for Z in (X, line):
        np.testing.assert_array_equal(model.predict(Z), model.classes_[model.predict_proba(Z).argmax(1)])
    again = representer.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(again.predict_proba(line), model.predict_proba(line), rtol=1e-8)


def test_weights_count_in_the_shares(rare):
    X, y = rare
    model = EmbeddingClassifier(Gaussian(1.0), alpha=1e-3, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(model.predict_proba([[1e7, 0.0]]), [[0.5, 0.5]])
    weights = np.where(y == "seldom", 1.0, 0.0)
    weights[:20] = 3.0
    weighted = EmbeddingClassifier(Gaussian(1.0), alpha=1e-3).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(weighted.predict_proba([[1e7, 0.0]]), [[0.75, 0.25]])


def test_where_samples_support_an_input_probabilities_are_those_of_the_calibration(rare):
    X, y = rare
    model = EmbeddingClassifier(Gaussian(1.0), alpha=1e-3).fit(X, y)
    far, new = model.far_field_, np.linspace(-40, 40, 80)[:, None] * [[1.0, 0.3]]
    calibrated = model.calibration_(model.embedding(new))
    trust = np.minimum(1, model.support(new) / far.reference)[:, None] ** far.power
    np.testing.assert_allclose(model.predict_proba(new), trust * calibrated + (1 - trust) * [[9 / 11, 2 / 11]])
    assert (trust == 1).any() and (trust < 0.9).any()


def test_a_linear_kernel_goes_on_for_ever(rare):
    X, y = rare
    model = EmbeddingClassifier(Linear(), alpha=1e-3).fit(X, y)
    assert model.far_field_ is None
    np.testing.assert_allclose(model.predict_proba(9 * X), model.calibration_(model.embedding(9 * X)))
