"""EmbeddingClassifier: scikit-learn's contract, brute force, the paper's formulas, batches, features, bad input."""

from __future__ import annotations

import math
import pickle
import warnings

import naive_embeddings as ne
import numpy as np
import pandas as pd
import pytest
import torch
from contract import contract
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from tiers import tiers

from representer import EmbeddingClassifier, load
from representer.approximation import Landmarks, Nystroem, RandomFeatures
from representer.estimators.validation import seed_of
from representer.functions import Expansion, FeatureFunction
from representer.kernels import (
    Callable,
    Constant,
    Gaussian,
    Linear,
    Matern,
    Neural,
    Polynomial,
    RationalQuadratic,
    Spectrum,
)
from representer.objectives import LeaveOneOutRisk
from representer.preimage.probabilities import EmbeddingCalibration, calibrate_embedding
from representer.problems import embedding
from representer.problems.embedding import EmbeddingSearch, held_out_rows

PAPER = {"criterion": "rademacher", "fit_intercept": False, "shrinkage": 0.0, "calibration": None}
NOT_REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": "medians of distances do not know weights",
}
NO_GRAM = {
    "check_classifiers_one_label_sample_weights": "the check fits vectors, not a Gram matrix",
    "check_positive_only_tag_during_fit": "a random matrix is no Gram matrix: it is repaired beyond recognition",
    "check_decision_proba_consistency": "the check fits vectors, not a Gram matrix: they are refused as not square",
}
NOT_NORMALISED = {
    "check_decision_proba_consistency": "raw estimates do not sum to one: their difference and their ratio, which is "
    "what clip-normalising looks at, need not have the same order",
}
CHECKED = {
    "default": (EmbeddingClassifier("rbf", max_iter=2, tol=0.1, random_state=0), NOT_REPEATED),
    "paper": (
        EmbeddingClassifier("rbf", max_iter=30, tol=1e-3, random_state=0, **PAPER),
        NOT_NORMALISED | NOT_REPEATED,
    ),
    "adam": (EmbeddingClassifier("rbf", batch_size=16, max_iter=3, tol=1e-3, random_state=0), NOT_REPEATED),
    "precomputed": (EmbeddingClassifier("precomputed", random_state=0), NO_GRAM),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:The search over hyperparameters ended at a bound")
@contract(CHECKED, quick=["default"])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def three(rng):
    X = rng.uniform(-1, 1, (60, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.3 * rng.normal(size=60)
    return X, np.array(["left", "middle", "right"])[np.digitize(angle, [-1.0, 1.0])]


def quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def seeded(module):
    """The module with weights that do not depend on torch's global generator."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(0.7 * torch.randn(weight.shape, generator=generator))
    return module


def fixed(**options):
    arguments = {"kernel": Gaussian(0.6), "alpha": 0.01, "calibration": None, **options}
    return EmbeddingClassifier(**arguments)


# -- brute force ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [False, True])
def test_estimates_probabilities_and_entropies_by_brute_force(three, rng, intercept):
    X, y = three
    new = rng.uniform(-1.2, 1.2, (9, 2))
    model = fixed(fit_intercept=intercept).fit(X, y)
    labels = [list(model.classes_).index(label) for label in y]
    Y = np.eye(3)[labels]

    def kernel(a, b):
        return ne.gaussian(a, b, 0.6)

    w = ne.weights(ne.gram(X, X, kernel), ne.gram(new, X, kernel), 0.01, intercept)
    np.testing.assert_allclose(model.embedding(new), w @ Y, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(new, "raw"), w @ Y, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(new), ne.clip_normalized(w @ Y), atol=1e-10)
    np.testing.assert_array_equal(model.predict(new), model.classes_[(w @ Y).argmax(1)])
    clipped, expected = ne.entropies(w @ Y, labels, w)
    np.testing.assert_allclose(model.entropy(new, "clipped"), clipped, atol=1e-9)
    np.testing.assert_allclose(model.entropy(new, "embedding"), expected, atol=1e-9)
    if intercept:
        np.testing.assert_allclose(model.embedding(new).sum(1), 1.0, atol=1e-10)
        far = model.embedding([[100.0, 100.0]])[0]
        assert far.min() > 0.1 and far.max() < 0.6  # near the shares of the classes, not zero


def test_several_classes_are_as_many_ridge_regressions(three):
    X, y = three
    model = fixed(fit_intercept=False).fit(X, y)
    for j, label in enumerate(model.classes_):
        ridge = KernelRidge(kernel="rbf", gamma=1 / (2 * 0.6**2), alpha=len(X) * 0.01).fit(X, y == label)
        np.testing.assert_allclose(model.embedding(X)[:, j], ridge.predict(X), atol=1e-10)


def test_leave_one_out_estimates_are_refits(three):
    X, y = three
    for intercept in (False, True):
        model = fixed(calibration="loo", fit_intercept=intercept).fit(X, y)
        for i in (0, 7, 31):
            rest = np.arange(len(X)) != i
            alpha = 0.01 * len(X) / (len(X) - 1)  # the same shift
            refit = fixed(alpha=alpha, fit_intercept=intercept).fit(X[rest], y[rest])
            np.testing.assert_allclose(model.loo_estimates_[i], refit.embedding(X[i : i + 1])[0], atol=1e-9)


def test_complexity_bound_and_its_explicit_form(three):
    X, y = three
    model = fixed(kernel=Linear(), alpha=0.02, fit_intercept=False).fit(X, y)
    Y = (y[:, None] == model.classes_).astype(float)
    assert model.dual_coef_.shape == (2, 3)  # two features: solved in their space
    np.testing.assert_allclose(model.complexity_, ne.explicit_complexity(X, Y, 0.02), rtol=1e-10)
    with pytest.raises(ValueError, match=r"risk_bound .* bounded for all x.*normalized"):
        model.risk_bound()
    model = fixed(fit_intercept=False).fit(X, y)
    q = np.clip((model.embedding(X) * Y).sum(1), 1e-15, 1.0)
    bound = -np.log(q).mean() + 4 * math.e * model.complexity_ + math.sqrt(8 / 60 * math.log(2 / 0.1))
    assert model.risk_bound(0.1, prior=False) == pytest.approx(bound)
    j = math.ceil(math.log2(model.complexity_))  # the prior: r rounded up to a power of two, and 2^(−|j|)/3 of beta
    confidence = math.sqrt(8 / 60 * math.log(2 / (0.1 * 2.0 ** -abs(j) / 3)))
    assert model.risk_bound(0.1) == pytest.approx(-np.log(q).mean() + 4 * math.e * 2.0**j + confidence)
    assert model.risk_bound(0.01) > model.risk_bound(0.1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.risk_bound(1.0)
    for options, arguments, reason in (
        ({"fit_intercept": True}, {}, "fit_intercept=False"),
        ({"class_weight": "balanced"}, {}, "without weights"),
        ({}, {"sample_weight": np.ones(len(X))}, "without weights"),
        ({}, {"groups": np.arange(len(X)) // 2}, "without groups"),
    ):
        other = fixed(**{"fit_intercept": False, **options}).fit(X, y, **arguments)
        with pytest.raises(ValueError, match=f"risk_bound rests on a theorem .*{reason}"):
            other.risk_bound()


def search_of(model, X, y, monkeypatch):
    """The search of a fit, caught before it runs."""
    caught = []

    class Caught(EmbeddingSearch):
        def search(self):
            caught.append(self)
            return super().search()

    monkeypatch.setattr(embedding, "EmbeddingSearch", Caught)
    quiet(model, X, y)
    return caught[0]


KERNELS = {
    "ard": "rbf",
    "composed": "auto" * Gaussian("ard") + "auto" * Linear() + 0.1,
    "matern": Matern(2.5, "auto"),
    "polynomial": Polynomial(2, "auto", "auto"),
    "features": "auto" * Linear() + Constant("auto"),
}


@pytest.mark.parametrize("criterion", ["loo", "rademacher", "erm", "validation"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_gradients_by_finite_differences(three, monkeypatch, criterion, kernel):
    X, y = three
    model = EmbeddingClassifier(kernel, criterion, complexity_weight=0.05, max_iter=1, random_state=0)
    search = search_of(model, X, y, monkeypatch)
    point = search.start + 0.1 * torch.arange(search.size, dtype=torch.float64).cos()
    value, gradient = search.at(point)
    assert torch.isfinite(value)
    for j in range(search.size):
        step = torch.zeros_like(point)
        step[j] = 1e-5
        with torch.no_grad():
            numerical = (search(point + step) - search(point - step)) / 2e-5
        assert gradient[j].item() == pytest.approx(numerical.item(), rel=1e-4, abs=1e-7)


def test_gradients_of_a_network_by_finite_differences(three, monkeypatch):
    X, y = three
    module = seeded(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh()).double())
    for outer in (Linear(), Gaussian("auto")):
        model = EmbeddingClassifier(Neural(module, outer), "rademacher", max_iter=1)
        search = search_of(model, X, y, monkeypatch)
        assert (search.inputs.features is not None) == isinstance(outer, Linear)
        gradient = search.at(search.start)[1]
        for j in range(search.size):
            step = torch.zeros_like(search.start)
            step[j] = 1e-5
            with torch.no_grad():
                numerical = (search(search.start + step) - search(search.start - step)) / 2e-5
            assert gradient[j].item() == pytest.approx(numerical.item(), rel=1e-3, abs=1e-7)


# -- the same thing in two ways ---------------------------------------------------------------------------------------
def test_equation_13_is_minimised_as_it_is_printed():
    """Clipped estimates of the held-out part plus τ r of the fit to the rest, with nothing but alpha to choose."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int)
    options = {"fit_intercept": False, "calibration": None, "complexity_weight": 0.02, "random_state": 0}
    model = EmbeddingClassifier(Gaussian(0.7), "validation", **options).fit(X, y)
    held = held_out_rows(torch.from_numpy(y), 0.25, seed_of(0)).numpy()
    rest = np.setdiff1d(np.arange(80), held)
    K, Y = Gaussian(0.7)(X).numpy(), np.eye(2)[y]

    def printed(alpha):
        C = np.linalg.solve(K[np.ix_(rest, rest)] + len(rest) * alpha * np.eye(len(rest)), Y[rest])
        right = (K[np.ix_(held, rest)] @ C * Y[held]).sum(1)
        r = np.sqrt(np.trace(C.T @ K[np.ix_(rest, rest)] @ C))
        return -np.log(right.clip(1e-15, 1.0)).mean() + 0.02 * r

    assert model.criterion_value_ == pytest.approx(printed(model.alpha_), rel=1e-6)
    near = [printed(model.alpha_ * factor) for factor in (0.97, 1.03)]  # it jumps where an estimate is clipped
    assert printed(model.alpha_) <= min(near) + 1e-6


@pytest.mark.parametrize("criterion", ["loo", "rademacher", "validation"])
def test_explicit_features_equal_the_gram_matrix(three, criterion):
    X, y = three
    kernel = "auto" * Linear() + Constant("auto")
    explicit = quiet(EmbeddingClassifier(kernel, criterion, random_state=0), X, y)
    function = Callable(lambda A, B: kernel.replace(explicit.kernel_.hyperparameter_values())(A, B), batched=True)
    implicit = EmbeddingClassifier(function, alpha=explicit.alpha_).fit(X, y)
    assert isinstance(explicit.function_, FeatureFunction) and isinstance(implicit.function_, Expansion)
    np.testing.assert_allclose(explicit.embedding(X), implicit.embedding(X), atol=1e-8)
    np.testing.assert_allclose(explicit.loo_estimates_, implicit.loo_estimates_, atol=1e-8)
    # r² = tr(CᵀKC) by the Gram matrix is rounded by eps·‖K‖·‖C‖², which is 7e-7 here.
    assert explicit.complexity_ == pytest.approx(implicit.complexity_, rel=1e-5)


def test_gram_matrices_and_objects_equal_vectors(three):
    X, y = three
    K = Gaussian(0.6)(X).numpy()
    vectors = EmbeddingClassifier(Gaussian(0.6), tol=1e-8).fit(X, y)
    gram = EmbeddingClassifier("precomputed", tol=1e-8).fit(K, y)
    assert gram.alpha_ == pytest.approx(vectors.alpha_, rel=1e-3)
    np.testing.assert_allclose(gram.predict_proba(K), vectors.predict_proba(X), atol=1e-4)
    words = ["aab", "aba", "bbb", "bba", "aaa", "abb"] * 5
    labels = [w.count("a") > 1 for w in words]
    model = quiet(EmbeddingClassifier(Spectrum(2)), words, labels)
    assert model.score(words, labels) == 1.0
    with pytest.raises(AttributeError, match="no columns"):
        _ = model.relevance_


def test_scale_and_alpha_are_one_direction(three):
    """A factor of the kernel divides alpha and changes nothing else, not even r."""
    X, y = three
    one = fixed(**PAPER).fit(X, y)
    ten = fixed(kernel=10.0 * Gaussian(0.6), **{**PAPER, "alpha": 0.1}).fit(X, y)
    np.testing.assert_allclose(ten.embedding(X), one.embedding(X), atol=1e-10)
    assert ten.complexity_ == pytest.approx(one.complexity_)


def test_random_features_and_landmarks_approach_the_exact_fit():
    X, y = make_moons(300, noise=0.25, random_state=0)
    exact = fixed(kernel=Gaussian(0.5), calibration="loo").fit(X, y)
    for approximation in (RandomFeatures(2000), Nystroem(300), Nystroem(80, "pivots")):
        model = fixed(kernel=Gaussian(0.5), calibration="loo", approximation=approximation, random_state=0).fit(X, y)
        np.testing.assert_allclose(model.embedding(X), exact.embedding(X), atol=0.05)
        assert np.abs(model.loo_estimates_ - exact.loo_estimates_).max() < 0.1
    for approximation in (RandomFeatures(100), Nystroem(60)):
        model = quiet(EmbeddingClassifier("rbf", approximation=approximation, random_state=0), X, y)
        assert model.score(X, y) > 0.9 and len(model.dual_coef_) <= 100
        assert pickle.loads(pickle.dumps(model)).score(X, y) == model.score(X, y)


# -- what is learned --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", tiers(["lbfgs", "adam"], lambda solver: solver == "lbfgs"))
def test_iris_from_both_ends_of_complexity(solver):
    """Figure 1 of the paper: an overfitted and an underfitted start end at the same objective."""
    X, y = load_iris(return_X_y=True)
    X = MinMaxScaler().fit_transform(X[:, :2])
    ends = []
    for start in ({"alpha": 1e-6, "lengthscale": 0.01}, {"alpha": 10.0, "lengthscale": 3.0}):
        model = EmbeddingClassifier(Gaussian("auto"), solver=solver, start=start, max_iter=600, tol=1e-9, **PAPER)
        ends.append(quiet(model, X, y))
    over, under = (model.history_[0].complexity for model in ends)
    assert over > 10 * under
    assert ends[0].criterion_value_ == pytest.approx(ends[1].criterion_value_, rel=1e-3)
    assert ends[0].score(X, y) > 0.75
    last = ends[0].history_[-1]
    assert last.value == pytest.approx(last.loss + 4 * math.e / len(X) * last.complexity, rel=1e-6)
    assert 0 <= last.accuracy <= 1 and last.seconds > 0


def test_irrelevant_features_are_found(rng):
    X = rng.normal(size=(150, 5))
    y = (X[:, 1] + 0.2 * rng.normal(size=150) > 0).astype(int)
    for criterion in ("loo", "rademacher"):
        model = quiet(EmbeddingClassifier("rbf", criterion=criterion), X, y)
        assert model.relevance_.argmax() == 1
        assert model.relevance_.shape == (5,)
    shrunk = quiet(EmbeddingClassifier("rbf", shrinkage=1e5), X, y)
    scaled = X.std(0) / shrunk.kernel_.lengthscale
    np.testing.assert_allclose(scaled, scaled[0], rtol=0.05)


def test_batches_learn_about_what_all_samples_do():
    X, y = make_moons(400, noise=0.2, random_state=0)
    whole = EmbeddingClassifier("rbf", random_state=0).fit(X, y)
    batched = quiet(EmbeddingClassifier("rbf", batch_size=100, max_iter=60, random_state=0), X, y)
    one = EmbeddingClassifier("rbf", batch_size=100, solver="lbfgs", random_state=0).fit(X, y)
    held = quiet(EmbeddingClassifier("rbf", criterion="validation", batch_size=100, max_iter=60, random_state=0), X, y)
    for model in (batched, one, held):
        assert model.score(X, y) > whole.score(X, y) - 0.03
        assert len(model.dual_coef_) == 400  # the fit is to all samples
    again = quiet(clone(batched), X, y)
    np.testing.assert_array_equal(again.embedding(X), batched.embedding(X))


def test_a_class_missing_from_batches(rng):
    X = rng.normal(size=(60, 2))
    y = np.repeat([0, 1, 2], [57, 2, 1])
    model = quiet(EmbeddingClassifier("rbf", batch_size=8, max_iter=5, random_state=0), X, y)
    assert model.predict_proba(X).shape == (60, 3)
    for criterion in ("loo", "rademacher", "validation", None):
        assert np.isfinite(quiet(EmbeddingClassifier("rbf", criterion=criterion), X, y).predict_proba(X)).all()


def test_a_network_is_learned_and_the_users_is_left_alone():
    X, y = make_moons(120, noise=0.1, random_state=0)
    module = seeded(torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8)))
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    model = quiet(EmbeddingClassifier(Neural(module, Linear()), "rademacher", max_iter=200), X, y)
    assert model.score(X, y) > 0.95
    assert all(bool((before[name] == weight).all()) for name, weight in module.state_dict().items())
    assert any(bool((before[name] != weight).any()) for name, weight in model.kernel_.module.state_dict().items())
    images = X.reshape(-1, 1, 1, 2)
    flat = torch.nn.Sequential(torch.nn.Flatten(), module)
    kernel = Neural(flat, Linear(), domain="objects")
    options = {"batch_size": 40, "learning_rate": 0.05, "max_iter": 60, "random_state": 0}
    convolutional = quiet(EmbeddingClassifier(kernel, "rademacher", **options), images, y)
    assert convolutional.score(images, y) > 0.9


@pytest.mark.parametrize("options", [{"criterion": "rademacher"}, {"criterion": "validation", "batch_size": None}])
def test_a_network_with_dropout_and_batch_statistics(options, tmp_path):
    """Both are active while Adam trains, by the seed of the fit alone, and off in all that the fitted model says."""
    X, y = make_moons(60, noise=0.1, random_state=0)
    layers = [torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
    module = seeded(torch.nn.Sequential(*layers))
    arguments = {"solver": "adam", "batch_size": 20, "learning_rate": 0.05, "max_iter": 8, "random_state": 0, **options}

    def fitted(**changes):
        return quiet(EmbeddingClassifier(Neural(module, Linear()), **{**arguments, **changes}), X, y)

    before = torch.random.get_rng_state()
    model, again, other = fitted(), fitted(), fitted(random_state=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert float(module[1].num_batches_tracked) == 0.0 and module.training
    assert np.array_equal(model.predict_proba(X), again.predict_proba(X))
    assert not np.allclose(model.predict_proba(X), other.predict_proba(X))
    norm, first = model.kernel_.module[1], model.kernel_.module[0]
    seen = first(torch.from_numpy(X).float()).detach()
    # Batches of equal size: the mean is that of all samples, and so is the variance where there is one batch.
    torch.testing.assert_close(norm.running_mean, seen.mean(0), rtol=1e-4, atol=1e-5)
    if arguments["batch_size"] is None:
        torch.testing.assert_close(norm.running_var, seen.var(0), rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "model.rep")
    loaded = load(tmp_path / "model.rep")
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    module[3].p = 0.0
    assert not np.allclose(fitted().predict_proba(X), model.predict_proba(X))


def test_dropout_that_the_solver_does_not_use_is_said_once():
    X, y = make_moons(30, noise=0.1, random_state=0)
    module = seeded(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.2)))
    model = EmbeddingClassifier(Neural(module, Linear()), alpha=0.1, max_iter=2, tol=1.0, random_state=0)
    with pytest.warns(UserWarning, match='solver="adam"') as caught:
        model.fit(X, y)
    assert sum("Dropout" in str(warning.message) for warning in caught) == 1
    module[1].eval()  # a member in evaluation mode stays in it whatever the solver is
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert not any("Dropout" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("shape", [(-1, 4, 4), (-1, 1, 4, 4)])
def test_pictures_are_taken_as_they_are(shape):
    images = np.random.default_rng(0).normal(size=(20, 16)).reshape(shape)
    y = np.arange(20) % 2
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten())
    model = EmbeddingClassifier(Neural(seeded(module), Linear()), alpha=0.1, criterion=None).fit(images, y)
    flat = module(torch.from_numpy(images.reshape(-1, 1, 4, 4)).float()).detach().numpy().astype(np.float64)
    expected = EmbeddingClassifier(Linear(), alpha=0.1, criterion=None).fit(flat, y)
    np.testing.assert_allclose(model.embedding(images[:3]), expected.embedding(flat[:3]), atol=1e-5)


def test_nothing_is_learned_without_an_objective(three):
    X, y = three
    model = EmbeddingClassifier("rbf", criterion=None).fit(X, y)
    assert model.kernel_ == Gaussian("median").resolve(X)
    assert model.alpha_ == pytest.approx(1 / len(X))
    assert model.criterion_value_ is None and model.history_ == []


# -- probabilities ----------------------------------------------------------------------------------------------------
def test_calibration_finds_what_made_the_labels(rng):
    estimates = rng.uniform(-0.3, 1.0, (6000, 3))
    for truth in (EmbeddingCalibration(2.0, 0.1), EmbeddingCalibration(1.0, 1.0)):
        p = truth(estimates)
        labels = (p.cumsum(1) < rng.random((6000, 1))).sum(1)
        found = calibrate_embedding(torch.from_numpy(estimates), torch.eye(3, dtype=torch.float64)[labels])
        assert np.abs(found(estimates) - p).mean() < 0.02


@pytest.mark.parametrize(("seed", "at_bound"), [(0, False), (1, True), (3, False)])
def test_calibration_is_at_the_minimum_also_in_a_flat_valley(seed, at_bound):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1013, 3))
    y = (np.sin(X @ rng.normal(size=(3, 2)))[:, 0] + 1e-3 * rng.normal(size=(1013, 2))[:, 0] > 0).astype(int)
    landmarks = Landmarks(np.random.default_rng(3).normal(size=(137, 3)))
    kernel = RationalQuadratic(lengthscale=43.16)
    model = EmbeddingClassifier(kernel, alpha=0.01, approximation=landmarks, random_state=0).fit(X, y)
    F, Y = model.loo_estimates_, np.eye(2)[y]
    found = model.calibration_
    errors = found(F) - (len(y) * Y + 1) / (len(y) + 2)
    ratio = F / found.delta
    slope_in_scale = (errors * np.arcsinh(ratio) * found.scale).sum(1).mean()
    slope_in_delta = (errors * -ratio / np.sqrt(1 + ratio**2) * found.scale).sum(1).mean()
    assert abs(slope_in_scale) < 1e-13
    if at_bound:  # beyond it the loss would fall further
        assert found.delta == pytest.approx(1e-3, rel=1e-14) and slope_in_delta > 0
    else:
        assert abs(slope_in_delta) < 1e-13
    for _ in range(3):  # other rounding errors, as of another order of the samples
        noisy = torch.from_numpy(F + 5e-15 * rng.normal(size=F.shape))
        again = calibrate_embedding(noisy, torch.from_numpy(Y))
        np.testing.assert_allclose(again(F), found(F), atol=2e-12)


def test_calibrated_probabilities_beat_clipped_ones():
    X, y = make_moons(600, noise=0.4, random_state=0)
    model = EmbeddingClassifier("rbf", random_state=0).fit(X[:150], y[:150])
    calibrated, clipped = (log_loss(y[150:], model.predict_proba(X[150:], kind)) for kind in ("calibrated", "clipped"))
    assert calibrated < clipped
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(1)])
    entropy = model.entropy(X)
    assert entropy.min() >= 0 and entropy.max() <= math.log(2) + 1e-12
    with pytest.raises(ValueError, match="calibration='loo'"):
        fixed().fit(X, y).predict_proba(X, "calibrated")
    with pytest.raises(ValueError, match="kind must be"):
        model.predict_proba(X, "soft")
    with pytest.raises(ValueError, match="kind must be"):
        model.entropy(X, "raw")


# -- scikit-learn -----------------------------------------------------------------------------------------------------
def test_pipelines_searches_frames_and_tensors(three):
    X, y = three
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = make_pipeline(StandardScaler(), EmbeddingClassifier("rbf", max_iter=20, tol=1e-3)).fit(frame, pd.Series(y))
    assert model.score(frame, y) > 0.7
    assert list(EmbeddingClassifier("rbf").fit(frame, y).feature_names_in_) == ["a", "b"]
    search = GridSearchCV(fixed(), {"kernel__lengthscale": [0.1, 0.6], "alpha": [0.01, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["alpha"] == 0.01
    named = GridSearchCV(EmbeddingClassifier("rbf", alpha=0.01), {"kernel__lengthscale": [0.1, "ard"]}, cv=2).fit(X, y)
    assert named.best_estimator_.kernel == Gaussian(named.best_params_["kernel__lengthscale"])
    assert cross_val_score(EmbeddingClassifier("precomputed"), Gaussian(0.6)(X).numpy(), y, cv=3).mean() > 0.6
    tensor = fixed().fit(torch.from_numpy(X), torch.from_numpy((y == "left").astype(int)))
    np.testing.assert_array_equal(tensor.predict(torch.from_numpy(X)) == 1, fixed().fit(X, y == "left").predict(X))
    original = X.copy()
    quiet(EmbeddingClassifier("rbf"), X, y)
    np.testing.assert_array_equal(X, original)


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: y == "left",
        lambda y: np.where(y == "left", -3, 7),
        lambda y: (y == "left").astype(np.uint8),
        lambda y: np.where(y == "left", 1.0, 2.0),
        lambda y: y.astype(object),
        list,
        lambda y: pd.Series(y, dtype="category"),
    ],
)
def test_labels_of_any_kind(three, labels):
    X, y = three
    given = labels(y)
    model = fixed().fit(X, given)
    assert set(model.predict(X)) <= set(np.asarray(given).tolist())
    assert pickle.loads(pickle.dumps(model)).score(X, given) == model.score(X, given)


def test_single_precision_is_near(three):
    X, y = three
    single = fixed(dtype="float32").fit(X, y)
    assert single.embedding(X).dtype == np.float32
    np.testing.assert_allclose(single.embedding(X), fixed().fit(X, y).embedding(X), atol=1e-3)
    assert quiet(EmbeddingClassifier("rbf", dtype="float32"), X, y).score(X, y) > 0.7


def test_prediction_goes_in_blocks(three, monkeypatch):
    X, y = three
    model = fixed().fit(X, y)
    many = np.tile(X, (40, 1))
    expected = model.embedding(many)
    monkeypatch.setattr("representer.linalg.resources.BLOCK_BYTES", 50_000)
    shapes = []
    gram = Gaussian._gram
    monkeypatch.setattr(Gaussian, "_gram", lambda self, A, B: shapes.append(len(A)) or gram(self, A, B))
    np.testing.assert_allclose(model.embedding(many), expected, atol=1e-12)
    assert max(shapes) < 100 and sum(shapes) == len(many)


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "best"}, "criterion must be None or one of"),
        ({"solver": "sgd"}, "solver must be one of"),
        ({"calibration": "platt"}, "calibration must be 'loo' or None"),
        ({"alpha": -1.0}, "alpha must be positive"),
        ({"alpha": [0.1, 1.0]}, "GridSearchCV"),
        ({"complexity_weight": -1}, "complexity_weight must be"),
        ({"shrinkage": "much"}, "shrinkage must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"fit_intercept": "yes"}, "fit_intercept must be"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a share"),
        ({"clip": 0.0}, "clip must be a number"),
        ({"batch_size": 1}, "batch_size must be"),
        ({"start": 3}, "start must be None or a dict"),
        ({"kernel": "rbf", "start": {"width": 1.0}}, "start has 'width', which is not learned"),
        ({"kernel": "rbf", "start": {"alpha": 0.0}}, "must be positive and finite"),
        ({"approximation": 100}, "approximation must be None"),
        ({"kernel": Linear(), "approximation": RandomFeatures(10)}, "RandomFeatures takes"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"tol": -1.0}, "tol must be"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"device": "nowhere"}, "device='nowhere'"),
        ({"kernel": "wavelet"}, "is not a kernel"),
    ],
)
def test_bad_arguments(three, options, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingClassifier(**options).fit(*three)


def test_bad_data(three):
    X, y = three
    with pytest.raises(ValueError, match="only one class"):
        EmbeddingClassifier("rbf").fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        EmbeddingClassifier("rbf").fit(X, y[:-1])
    with pytest.raises(ValueError, match="y to be passed"):
        EmbeddingClassifier("rbf").fit(X, None)
    with pytest.raises(ValueError, match="NaN"):
        EmbeddingClassifier("rbf").fit(np.where(X > 0.9, np.nan, X), y)
    with pytest.raises(NotFittedError):
        EmbeddingClassifier("rbf").predict(X)


def test_runaways_are_bounded_and_announced(rng):
    """Labels that nothing explains, and duplicated samples that everything separates."""
    X, y = rng.normal(size=(40, 1)), np.arange(40) % 2
    separated = np.where(y[:, None] == 1, X + 20.0, X)
    cases = {
        "nothing to learn": EmbeddingClassifier(
            "precomputed", "rademacher", complexity_weight=1e9, fit_intercept=False
        ),
        "all too easy": EmbeddingClassifier(Gaussian(1.0), "erm", start={"alpha": 1e-9}, tol=0.0),
    }
    for name, model in cases.items():
        data = np.eye(40) if model.kernel == "precomputed" else separated
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(data, y)
        assert any("ended at a bound: alpha" in str(w.message) for w in caught), name
        assert np.isfinite(model.predict_proba(data)).all() and 0 < model.alpha_ < np.inf


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_lengthscales_beyond_all_measure_are_bounded_and_announced(three, factor):
    X, y = three
    usual = float(Gaussian("auto").resolve(torch.from_numpy(X)).lengthscale)
    start = {"lengthscale": usual * factor**0.999, "alpha": 0.1}
    model = EmbeddingClassifier(Gaussian("auto"), start=start, solver="adam", tol=0.1)
    with pytest.warns(UserWarning, match="ended at a bound: .*lengthscale"):
        model.fit(X, y)
    assert abs(math.log(float(model.kernel_.lengthscale) / (factor * usual))) < 0.25
    assert np.isfinite(model.predict_proba(X)).all()
    by_data = EmbeddingClassifier(Gaussian("auto")).fit(X, y)
    left = EmbeddingClassifier(Gaussian("auto"), start=start).fit(X, y)  # by L-BFGS, which does not stay there
    assert left.criterion_value_ == pytest.approx(by_data.criterion_value_, rel=1e-4)


def test_interruption_keeps_the_best_point(three, monkeypatch):
    X, y = three
    calls = []
    evaluate = EmbeddingSearch.at

    def interrupted(self, point, rows=None):
        calls.append(1)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return evaluate(self, point, rows)

    monkeypatch.setattr(EmbeddingSearch, "at", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = EmbeddingClassifier("rbf").fit(X, y)
    assert model.score(X, y) > 0.6


@given(n=st.integers(6, 25), k=st.integers(2, 4), d=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_any_shape(n, k, d, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), np.append(np.arange(k), rng.integers(0, k, n - k))
    model = quiet(EmbeddingClassifier("rbf", max_iter=5, tol=1e-2), X, y)
    p = model.predict_proba(X)
    assert p.shape == (n, k) and (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(1)])
    order = rng.permutation(n)
    shuffled = fixed(kernel=Gaussian(1.0), alpha=0.1).fit(X[order], y[order])
    np.testing.assert_allclose(
        shuffled.embedding(X), fixed(kernel=Gaussian(1.0), alpha=0.1).fit(X, y).embedding(X), atol=1e-10
    )


@pytest.fixture
def iris():
    return load_iris(return_X_y=True)


@pytest.mark.parametrize(
    "when", [2, 6, 7, 8]
)  # six values are compared before the search, which begins with the seventh
def test_an_interruption_before_the_first_iteration_keeps_the_best_start(iris, monkeypatch, when):
    seen, risk = [], LeaveOneOutRisk._risk

    def interrupted(self, *arguments):
        seen.append(None)
        if len(seen) == when:
            raise KeyboardInterrupt
        return risk(self, *arguments)

    monkeypatch.setattr(LeaveOneOutRisk, "_risk", interrupted)
    with pytest.warns(ConvergenceWarning, match=r"interrupted.*kept the best point so far"):
        model = EmbeddingClassifier("rbf", random_state=0).fit(*iris)
    assert model.score(*iris) > 0.9
    seen.clear()
    when = 1
    with pytest.raises(KeyboardInterrupt):
        EmbeddingClassifier("rbf", random_state=0).fit(*iris)


def test_a_last_batch_of_one_sample_is_no_batch(iris):
    X, y = (a[::2][:61] for a in iris)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        EmbeddingClassifier("rbf", criterion="validation", batch_size=2, max_iter=2, random_state=0).fit(X, y)


def test_labels_of_several_kinds_are_refused_in_words(iris):
    X, y = iris
    with pytest.raises(TypeError, match=r"Labels must be of one kind .* y has float, int, str"):
        EmbeddingClassifier("rbf").fit(X, np.array(["a", 1, 2.5], dtype=object)[y])


def test_islands_without_an_intercept_have_the_entropy_of_ignorance():
    X, y = np.arange(60.0)[:, None], (np.arange(60) // 10) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = EmbeddingClassifier(Gaussian(0.02), fit_intercept=False, shrinkage=0.0).fit(X, y)
    assert model.criterion_value_ == pytest.approx(math.log(2), abs=1e-4)
