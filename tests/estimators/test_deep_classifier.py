"""DeepKernelClassifier: scikit-learn's contract, support vector machines, probabilities, labels, bad input."""

from __future__ import annotations

import itertools
import pickle
import warnings

import naive_deep as nd
import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from naive_deep import functions_of
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from tiers import tiers

import naive
from representer import DeepKernelClassifier, Layer
from representer.approximation import Nystroem
from representer.kernels import Callable, Gaussian, Linear, Polynomial
from representer.operators import Separate
from representer.preimage.probabilities import Calibration, calibrate

QUICK = {"n_restarts": 1, "max_iter": 100, "tol": 1e-2, "cv": 2, "random_state": 0}
AFFINE = Layer(Polynomial(1), 2, alpha=1e-3)
LOSSES = ("logistic", "hinge", "squared_hinge", "squared")

NO_GRAM = {
    "check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is refused as indefinite",
    "check_classifiers_one_label_sample_weights": "a random matrix is no Gram matrix: it is refused as not symmetric",
    "check_decision_proba_consistency": "the check fits vectors, not a Gram matrix: they are refused as not square",
}
CHECKED = {
    "logistic": (
        DeepKernelClassifier([AFFINE], alpha=1e-2, **QUICK),
        {"check_sample_weight_equivalence_on_dense_data": "the median of distances does not know weights"},
    ),
    "precomputed": (
        DeepKernelClassifier([], "precomputed", "squared", 1e-2, cv=2, random_state=0),
        NO_GRAM,
    ),
}


@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")  # some checks have tiny classes
@contract(CHECKED, quick=["logistic"])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def two():
    X, y = make_moons(60, noise=0.25, random_state=0)
    return X, np.where(y > 0, "yes", "no")


@pytest.fixture
def three(rng):
    X = rng.uniform(-1, 1, (60, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.3 * rng.normal(size=60)
    return X, np.array(["left", "middle", "right"])[np.digitize(angle, [-1.0, 1.0])]


def fitted(data, layers=(AFFINE,), kernel=None, loss="logistic", alpha=1e-2, **options):
    """A model whose numbers are all given, and quick to fit."""
    kernel = Gaussian(0.7) if kernel is None else kernel
    arguments = {"n_restarts": 1, "max_iter": 60, "tol": 1e-4, "cv": 3, "random_state": 0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return DeepKernelClassifier(list(layers), kernel, loss, alpha, **arguments).fit(*data)


# -- one layer is what scikit-learn has -------------------------------------------------------------------------------
def test_one_layer_is_a_support_vector_machine(two):
    X, y = two
    n, alpha = len(X), 0.01
    model = fitted(two, [], loss="hinge", alpha=alpha, calibration=None)
    reference = SVC(C=1 / (2 * n * alpha), gamma=1 / (2 * 0.7**2), tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), reference.decision_function(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), reference.predict(X))
    beta = reference.dual_coef_[0]
    K = naive.gram(naive.gaussian(0.7), reference.support_vectors_)
    slack = np.maximum(0, 1 - np.where(y == "yes", 1, -1) * reference.decision_function(X))
    np.testing.assert_allclose(model.objective_value_, slack.mean() + alpha * beta @ K @ beta, rtol=1e-6)


def binary_losses(F, signs):
    """Mean losses and their derivatives."""
    margins = signs * F
    return {
        "logistic": (np.logaddexp(0, -margins).mean(), -signs * expit(-margins) / len(F)),
        "squared_hinge": (
            (np.maximum(0, 1 - margins) ** 2).mean(),
            -2 * signs * np.maximum(0, 1 - margins) / len(F),
        ),
        "squared": (((F - signs) ** 2).mean(), 2 * (F - signs) / len(F)),
    }


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared"])
def test_one_layer_minimises_its_objective(two, loss, intercept):
    X, y = two
    alpha, signs = 0.01, np.where(y == "yes", 1.0, -1.0)
    K = naive.gram(naive.gaussian(0.7), X)

    def objective(point):
        beta, b = point[:-1], point[-1] * intercept
        value, slope = binary_losses(K @ beta + b, signs)[loss]
        return value + alpha * beta @ K @ beta, np.append(K @ (slope + 2 * alpha * beta), slope.sum() * intercept)

    model = fitted(two, [], loss=loss, alpha=alpha, calibration=None, fit_intercept=intercept)
    value, gradient = objective(np.append(model.dual_coef_[:, 0], model.intercept_))
    np.testing.assert_allclose(model.objective_value_, value, rtol=1e-6)
    assert np.abs(gradient).max() < 1e-7  # the problem is convex
    reference = minimize(objective, np.zeros(len(y) + 1), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    np.testing.assert_allclose(model.objective_value_, reference.fun, rtol=1e-6)
    F = K @ reference.x[:-1] + reference.x[-1] * intercept
    np.testing.assert_allclose(model.decision_function(X), F, rtol=1e-4, atol=1e-4)


def test_one_layer_with_several_classes_is_softmax_regression(three):
    X, y = three
    alpha = 0.01
    classes, labels = np.unique(y, return_inverse=True)
    K = naive.gram(naive.gaussian(0.7), X)
    one_hot = np.eye(3)[labels]

    def objective(point):
        beta, b = point[:-3].reshape(-1, 3), point[-3:]
        F = K @ beta + b
        slope = (softmax(F, 1) - one_hot) / len(X)
        value = -np.sum(one_hot * log_softmax(F, 1)) / len(X) + alpha * np.sum(beta * (K @ beta))
        return value, np.append((K @ (slope + 2 * alpha * beta)).ravel(), slope.sum(0))

    model = fitted(three, [], alpha=alpha, calibration=None)
    reference = minimize(objective, np.zeros(3 * len(X) + 3), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    np.testing.assert_allclose(model.objective_value_, reference.fun, rtol=1e-6)
    F = K @ reference.x[:-3].reshape(-1, 3) + reference.x[-3:]
    np.testing.assert_allclose(model.predict_proba(X), softmax(F, 1), atol=1e-4)
    np.testing.assert_array_equal(model.predict(X), classes[F.argmax(1)])


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "squared"])
def test_several_classes_are_each_against_the_rest(three, loss):
    model = fitted(three, [], loss=loss, calibration=None)
    for j, label in enumerate(model.classes_):
        alone = fitted((three[0], three[1] == label), [], loss=loss, calibration=None)
        np.testing.assert_allclose(
            model.decision_function(three[0])[:, j], alone.decision_function(three[0]), rtol=1e-5, atol=1e-5
        )


# -- two layers -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_literally(two, loss):
    X, y = two[0][:16], two[1][:16]
    alpha = 0.02
    model = fitted((X, y), loss=loss, alpha=alpha, calibration=None)
    signs = np.where(y == "yes", 1.0, -1.0)
    inner, _ = functions_of(model)
    K = nd.times(nd.polynomial(1), np.eye(2))
    c, anchors = inner.coefficients.numpy(), inner.anchors.numpy()
    Z = np.array([nd.value(K, anchors, c, x) for x in X])
    M, beta = nd.gram(nd.gaussian(0.7), Z), model.dual_coef_[:, 0]
    F = M @ beta + model.intercept_
    hinge = (np.maximum(0, 1 - signs * F).mean(), None)
    data_term = (binary_losses(F, signs) | {"hinge": hinge})[loss][0]
    value = data_term + alpha * beta @ M @ beta + AFFINE.alpha * nd.squared_norm(K, anchors, c)
    np.testing.assert_allclose(model.objective_value_, value, rtol=1e-6)
    np.testing.assert_allclose(model.decision_function(X), F, rtol=1e-6, atol=1e-8)


def test_two_layers_see_what_one_cannot(rng):
    """Stripes along one direction of six."""
    X = rng.normal(size=(180, 6))
    w = rng.normal(size=6)
    y = np.sin(3 * X @ w / np.linalg.norm(w)) > 0
    options = {"loss": "squared", "calibration": None}
    one = fitted((X[:100], y[:100]), [], "rbf", alpha="auto", **options)
    layer = Layer(Polynomial(1), 1, 1e-3)
    deep = fitted((X[:100], y[:100]), [layer], Gaussian(1.0), n_restarts=16, **options)
    assert deep.score(X[100:], y[100:]) > 0.9
    assert one.score(X[100:], y[100:]) < 0.7


def test_the_network_and_the_deep_kernel(two):
    X, y = two
    model = fitted(two, loss="hinge", calibration=None)
    network = model.to_torch()
    np.testing.assert_allclose(network(torch.from_numpy(X)).detach()[:, 0], model.decision_function(X), rtol=1e-10)
    machine = SVC(kernel=model.deep_kernel_, C=1 / (2 * len(X) * model.alpha_), tol=1e-8).fit(X, y)
    np.testing.assert_allclose(machine.decision_function(X), model.decision_function(X), rtol=1e-4, atol=1e-4)
    assert [image.shape for image in model.transform_layers(X)] == [(60, 2)]


# -- probabilities ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("classes", "loss"),
    tiers(
        itertools.product(["two", "three"], LOSSES),
        lambda case: (case[0] == "two") == (case[1] in ("hinge", "squared_hinge")),
    ),
)
def test_decisions_probabilities_and_predictions_agree(request, classes, loss):
    X, y = request.getfixturevalue(classes)
    model = fitted((X, y), loss=loss)
    decisions, probabilities = model.decision_function(X), model.predict_proba(X)
    assert decisions.shape == ((60,) if classes == "two" else (60, 3))
    assert probabilities.shape == (60, len(model.classes_)) and (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-12)
    labels = model.classes_[probabilities.argmax(1)]
    np.testing.assert_array_equal(model.predict(X), labels)
    assert set(labels) == set(y) and model.score(X, y) > 0.8
    if classes == "two":
        np.testing.assert_array_equal(model.predict(X), np.where(decisions > 0, "yes", "no"))
        np.testing.assert_allclose(probabilities[:, 1], expit(model.calibration_.slope * decisions), rtol=1e-10)


def test_without_calibration_only_cross_entropy_has_probabilities(two):
    model = fitted(two, calibration=None)
    assert model.calibration_ == Calibration(1.0)
    np.testing.assert_allclose(model.predict_proba(two[0])[:, 1], expit(model.decision_function(two[0])), rtol=1e-12)
    with pytest.raises(AttributeError, match="calibration='cv'"):
        fitted(two, loss="hinge", calibration=None).predict_proba(two[0])


def test_sets_without_probabilities_are_refused_before_any_fit(two):
    X, y = two
    model = DeepKernelClassifier([], "rbf", calibration=None, max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match=r"Sets rank classes .* Fit with calibration='cv'"):
        model.predict_set(X)


@pytest.mark.parametrize("width", [1, 3])
def test_calibration_finds_the_temperature(rng, width):
    decisions = rng.normal(size=(4000, width))
    for slope in (0.3, 5.0):
        p = Calibration(slope)(decisions)
        labels = (p.cumsum(1) < rng.random((4000, 1))).sum(1)
        found = calibrate(torch.from_numpy(decisions), torch.from_numpy(labels))
        assert found.slope == pytest.approx(slope, rel=0.15)
    separable = torch.from_numpy(np.eye(3)[np.arange(30) % 3] if width == 3 else np.sign(decisions[:30]))
    labels = torch.arange(30) % 3 if width == 3 else (separable[:, 0] > 0).long()
    assert 1.0 < calibrate(separable, labels).slope < 20.0  # finite, as Platt's targets are not 0 and 1
    backwards = calibrate(-separable, labels)
    assert 0.0 <= backwards.slope < 1e-3  # no slope turns the answers around
    assert calibrate(0.0 * separable, labels)(np.ones((2, width))).sum() == pytest.approx(2.0)


def expected_calibration_error(probabilities, labels, n_bins=8):
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    bins = np.digitize(confidence, np.linspace(0, 1, n_bins + 1)[1:-1])
    return sum(
        (bins == b).mean() * abs(right[bins == b].mean() - confidence[bins == b].mean()) for b in np.unique(bins)
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_probabilities_are_reliable(rng, loss):
    """On data whose probabilities are known; an overfitted machine is far too sure before it is calibrated."""
    X = rng.uniform(-1, 1, (1200, 2))
    truth = expit(3 * np.sin(3 * (X[:, 0] + X[:, 1])))
    y = (rng.random(1200) < truth).astype(int)
    train, test = slice(0, 100), slice(100, None)
    model = fitted((X[train], y[train]), kernel=Gaussian(0.5), loss=loss, alpha=1e-4, max_iter=30)
    p = model.predict_proba(X[test])
    assert expected_calibration_error(p, y[test]) < 0.1
    squashed = expit(model.decision_function(X[test]) * (1 if loss == "logistic" else 2))
    naively = np.column_stack([1 - squashed, squashed])
    assert log_loss(y[test], p) < log_loss(y[test], naively)
    assert log_loss(y[test], p) < np.log(2)  # better than knowing nothing


# -- labels and data --------------------------------------------------------------------------------------------------
def test_labels_of_any_kind(two):
    X, y = two
    reference = fitted(two, calibration=None)
    for labels in (
        y == "yes",
        (y == "yes") * 7 - 3,
        pd.Series(y, dtype="category"),
        list(y),
        y[:, None][:, 0],
    ):
        model = fitted((X, labels), calibration=None)
        np.testing.assert_allclose(model.decision_function(X), reference.decision_function(X), rtol=1e-9)
        assert set(model.predict(X)) <= set(np.asarray(labels).tolist())
    tensor = fitted((torch.from_numpy(X), torch.from_numpy((y == "yes").astype(int))), calibration=None)
    np.testing.assert_array_equal(tensor.predict(X), (reference.predict(X) == "yes").astype(int))
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert list(fitted((frame, y), calibration=None).feature_names_in_) == ["a", "b"]


def test_a_class_with_a_single_sample_stays_in_every_training_part(two):
    X, y = two
    rare = np.where(np.arange(60) == 7, "maybe", y)
    for loss in LOSSES:
        with pytest.warns(UserWarning, match="least populated class"):
            model = fitted((X, rare), [], loss=loss)
        assert list(model.classes_) == ["maybe", "no", "yes"]
        assert np.isfinite(model.predict_proba(X)).all()


def test_words_and_gram_matrices(rng):
    words = ["".join(rng.choice(list("ab"), size=8)) for _ in range(40)]
    labels = np.array([abs(w.count("a") - 4) > 1 for w in words])
    counts = np.array([[w.count(c) for c in "ab"] for w in words], dtype=float)

    def common(u, v):
        return float(sum(u.count(c) * v.count(c) for c in "ab"))

    objects = fitted((words, labels), [Layer(Callable(common), 1, 1e-3)], loss="squared", n_restarts=4)
    gram = fitted((counts @ counts.T, labels), [Layer("precomputed", 1, 1e-3)], loss="squared", n_restarts=4)
    np.testing.assert_allclose(gram.predict_proba(counts @ counts.T), objects.predict_proba(words), atol=0.05)
    assert objects.score(words, labels) > 0.95
    outer = fitted((counts @ counts.T, labels), [], "precomputed", "squared")
    vectors = fitted((counts, labels), [], Linear(), "squared")
    np.testing.assert_allclose(outer.predict_proba(counts @ counts.T), vectors.predict_proba(counts), atol=1e-6)


def test_operator_valued_outer_kernels(three):
    """A kernel of its own for every class."""
    kernels = [Gaussian(0.4), Gaussian(0.8), Polynomial(2)]
    model = fitted(three, [], Separate(kernels), "squared", calibration=None)
    for j, kernel in enumerate(kernels):
        alone = fitted((three[0], three[1] == model.classes_[j]), [], kernel, "squared", calibration=None)
        np.testing.assert_allclose(
            model.decision_function(three[0])[:, j], alone.decision_function(three[0]), rtol=1e-6, atol=1e-6
        )


def test_landmarks(two):
    exact = fitted(two, loss="squared", max_iter=20)
    every = fitted(two, loss="squared", max_iter=20, approximation=Nystroem(60))
    np.testing.assert_allclose(every.decision_function(two[0]), exact.decision_function(two[0]), atol=1e-3)
    few = fitted(two, loss="squared", approximation=Nystroem(15))
    assert few.dual_coef_.shape == (15, 1) and few.score(*two) > 0.8


# -- the scikit-learn world -------------------------------------------------------------------------------------------
def test_pipeline_grid_search_clone_and_pickle(two):
    X, y = two
    model = DeepKernelClassifier([AFFINE], Gaussian(0.7), "squared", 1e-2, calibration=None, **QUICK)
    grid = {"layers__0__alpha": [1e-3, 1e3], "kernel__lengthscale": [0.7, 1.0]}
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_params_["layers__0__alpha"] == 1e-3
    pipeline = make_pipeline(StandardScaler(), model.set_params(calibration="cv")).fit(X, y)
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict_proba(X), pipeline.predict_proba(X))
    assert repr(clone(pipeline)) == repr(pipeline)
    np.testing.assert_array_equal(clone(pipeline).fit(X, y).predict_proba(X), pipeline.predict_proba(X))
    assert cross_val_score(pipeline, X, y, cv=2).min() > 0.7


def test_everything_is_learned_by_default(two):
    """On the way to the loss, squared loss finds the inner layers; then the loss chooses its alpha."""
    X, y = two
    options = {"n_restarts": 1, "cv": 2, "max_iter": 60, "tol": 1e-3, "random_state": 0}
    model = DeepKernelClassifier(loss="logistic", **options).fit(X, y)
    assert model.criterion_value_ < np.log(2)  # cross entropy of the folds
    assert model.alpha_ > 0 and model.layers_[0].alpha > 0 and model.layers_[0].size == 2
    assert isinstance(model.kernel_.lengthscale, float)
    assert model.score(X, y) > 0.85
    test = make_moons(200, noise=0.25, random_state=1)
    assert model.score(test[0], np.where(test[1] > 0, "yes", "no")) > 0.85


def test_the_data_decide_on_layers_by_default(two):
    """Squared errors of codes are stacked and calibrated; the probable class is the one that is predicted."""
    X, y = two
    model = DeepKernelClassifier(n_restarts=2, cv=3, random_state=0).fit(X, y)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(1)], model.predict(X))
    assert model.weights_.sum() == pytest.approx(1.0) and len(model.members_) >= 6
    test = make_moons(200, noise=0.25, random_state=1)
    labels = np.where(test[1] > 0, "yes", "no")
    assert model.score(test[0], labels) > 0.85
    assert log_loss(labels, model.predict_proba(test[0])) < 0.35
    bare = DeepKernelClassifier([], calibration=None, random_state=0).fit(X, y)
    with pytest.raises(AttributeError, match="not calibrated"):
        bare.predict_proba(X)


def test_arguments_after_the_fit_change_nothing(two):
    """What a fitted model needs of its arguments, it keeps."""
    for loss in ("logistic", "hinge"):
        model = fitted(two, loss=loss)
        before = model.predict_proba(two[0])
        model.set_params(loss="squared", calibration=None, fit_intercept=False, dtype="float32")
        np.testing.assert_array_equal(model.predict_proba(two[0]), before)


@pytest.mark.parametrize("loss", LOSSES)
def test_decisions_that_say_nothing_have_the_probabilities_of_the_classes(rng, loss):
    X, y = rng.normal(size=(60, 2)), np.repeat(["a", "b", "c"], [15, 20, 25])
    model = fitted((X, y), [], loss=loss, alpha=1e8)
    rates = (np.array([15, 20, 25]) + 1) / 63
    np.testing.assert_allclose(model.predict_proba(X[:2]), [rates, rates], atol=0.02)
    assert set(model.predict(X)) == {"c"}


class Interrupting(Gaussian):
    """Ctrl-C at one of the calls."""

    calls, at = 0, None

    def _gram(self, X, Y):
        Interrupting.calls += 1
        if Interrupting.calls == Interrupting.at:
            raise KeyboardInterrupt
        return super()._gram(X, Y)


def test_ctrl_c_during_the_calibration_ends_the_fit(two, monkeypatch):
    calls = []
    for calibration in (None, "cv"):
        monkeypatch.setattr(Interrupting, "calls", 0)
        whole = fitted(two, kernel=Interrupting(0.7), loss="hinge", calibration=calibration)
        calls.append(Interrupting.calls)
    whole.function_.cancellation()  # what a fit looks at behind the calibration
    end = Interrupting.calls - calls[1]
    calls = [number - end for number in calls]
    for share, rest in ((0.01, "0 folds of 3"), (0.9, "2 folds of 3")):
        at = int(calls[0] + share * (calls[1] - calls[0])) + 1
        monkeypatch.setattr(Interrupting, "calls", 0)
        monkeypatch.setattr(Interrupting, "at", at)
        with pytest.warns(ConvergenceWarning, match=f"probabilities rest on {rest}"):
            model = DeepKernelClassifier(**whole.get_params(deep=False)).fit(*two)
        assert Interrupting.calls <= at + 2 + end  # nothing goes on, but for a last look at the solution
        np.testing.assert_allclose(model.decision_function(two[0]), whole.decision_function(two[0]))
        assert (model.calibration_ is None) == rest.startswith("0")


def test_folds_by_a_splitter(two):
    X, y = two
    splitter = StratifiedShuffleSplit(2, test_size=0.3, random_state=0)
    model = fitted(two, [], alpha="auto", cv=splitter)
    labels = (y == "yes").astype(int)
    losses = []
    for training, held_out in splitter.split(X, labels):
        refit = fitted((X[training], y[training]), [], alpha=model.alpha_, calibration=None)
        losses.append(log_loss(labels[held_out], refit.predict_proba(X[held_out])))
    assert model.criterion_value_ == pytest.approx(np.mean(losses), rel=1e-5)


# -- bad input --------------------------------------------------------------------------------------------------------
def _bad(data, message, error=ValueError, X=None, y=None, layers=(AFFINE,), alpha=1e-2, **arguments):
    model = DeepKernelClassifier(list(layers), alpha=alpha, **arguments)
    with pytest.raises(error, match=message):
        model.fit(data[0] if X is None else X, data[1] if y is None else y)


def test_errors_say_what_and_what_to_do(two):
    X, y = two
    for loss in ("best", "huber", lambda F, Y: F.sum()):
        _bad(two, "loss must be one of 'logistic', 'hinge', 'squared_hinge', 'squared'", loss=loss)
    _bad(two, "criterion must be one of", criterion="aic")
    _bad(two, "calibration must be 'cv' or None", calibration="yes")
    _bad(two, "alpha must be positive", alpha=0.0)
    _bad(two, "only squared loss has", loss="hinge", criterion="loo", alpha="auto")
    _bad(two, "only squared loss has", loss="logistic", criterion="gcv", alpha="auto")
    _bad(two, "libsvm, which always fits an intercept", loss="hinge", fit_intercept=False)
    _bad(two, "approximation= is for loss='squared'", loss="logistic", approximation=Nystroem(5))
    _bad(two, "at least one inner layer", layers=(), loss="squared", approximation=Nystroem(5))
    _bad(two, "only one class is present: every label is", y=np.full(60, "yes"))
    _bad(two, "No class has two samples", X=X[:4], y=list("abcd"))
    _bad(two, "inconsistent numbers of samples: 60 and 59", y=y[:-1])
    _bad(two, "Unknown label type", y=X[:, 0])
    _bad(two, "NaN", X=X + np.nan)
    _bad(two, "2 outputs on these inputs, but the targets have 1", kernel=Separate([Linear(), Linear()]))
    with pytest.raises(ValueError, match="expecting 2 features"):
        fitted(two, [], calibration=None).predict(X[:, :1])
    for method in ("predict", "predict_proba", "decision_function", "transform_layers"):
        with pytest.raises(NotFittedError):
            getattr(DeepKernelClassifier(), method)(X)


def test_degenerate_data_give_finite_answers(two):
    X, y = two
    for inputs in (np.ones((60, 2)), np.column_stack([X, np.zeros(60)]), np.repeat(X[:30], 2, 0)):
        for loss in ("logistic", "hinge"):
            model = fitted((inputs, y), loss=loss, max_iter=20)
            assert np.isfinite(model.predict_proba(inputs)).all()


def test_an_unconverged_search_warns_and_keeps_the_best(two):
    model = DeepKernelClassifier([AFFINE], alpha=1e-2, max_iter=1, n_restarts=1, calibration=None)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model.fit(*two)
    assert model.objective_value_ <= model.history_[0].value
