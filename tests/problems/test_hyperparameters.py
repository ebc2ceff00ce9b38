"""What deep kernel machines learn by the error on new data: hypergradients, the criteria, and what is found."""

from __future__ import annotations

import itertools
import math

import naive_intercept
import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, PredefinedSplit, ShuffleSplit
from tiers import tiers

from representer import DeepKernelClassifier, DeepKernelRegressor, Layer
from representer.approximation import Nystroem
from representer.estimators.validation import folds_of
from representer.kernels import Callable, Gaussian, Linear, Matern, Polynomial, TensorMatern
from representer.operators import CurlFree, Decomposable, Dense, Representation, Separate
from representer.optimize import SearchSettings
from representer.problems import deep as _hyperparameters
from representer.problems.composition import Composition, DeepProblem, convex_loss, minimise, squared_loss
from representer.problems.deep import DeepModel, DeepRegression, Fold, HyperparameterSearch, Splits, hypergradient
from representer.samples import Block, InMemory, rows

N = 14
VALIDATION = torch.arange(0, N, 3)
TRAINING = torch.tensor([i for i in range(N) if i % 3])


@pytest.fixture
def data(rng):
    X = rng.uniform(-1, 1, (N, 2))
    return torch.from_numpy(X), torch.from_numpy(np.sin(3 * X[:, :1] - X[:, 1:]) + 0.1 * rng.normal(size=(N, 1)))


def problem_of(composition, data, loss, criterion):
    """The problem of one fold, or of all samples for a closed form."""
    held_out = criterion == "validation"
    objectives = loss.scored(criterion, VALIDATION if held_out else None)
    free = list(composition.constraints())
    return DeepProblem(composition, *data, objectives, rows=TRAINING if held_out else None, free=free)


def start_of(problem, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(problem.size, generator=generator, dtype=torch.float64)


def solved(problem, start):
    return minimise(problem, start[None], SearchSettings(max_iter=2000, tol=1e-15)).point if len(start) else start


@pytest.fixture
def exact_systems(monkeypatch):
    """A search needs two digits of a hypergradient; a comparison with differences needs more."""
    monkeypatch.setattr(_hyperparameters, "SYSTEM_TOL", 1e-10)
    monkeypatch.setattr(_hyperparameters, "SYSTEM_ITERATIONS", 500)


# -- hypergradients ---------------------------------------------------------------------------------------------------
COMPOSITIONS = {
    "affine": Composition([Layer(Polynomial(1), 2, 0.02)], Decomposable(Gaussian(0.9)), 0.03),
    "no layer": Composition([], Decomposable(Gaussian(0.7)), 0.03),
    "lengthscales": Composition(
        [Layer(Decomposable(Gaussian(1.1), Dense([[1.0, 0.3], [0.3, 0.6]])), 2, 0.05)],
        Separate([Gaussian(0.9)]),
        0.02,
    ),
    "three layers": Composition(
        [Layer(Polynomial(1), 2, 0.03), Layer(Gaussian(1.2), 1, 0.05)], Decomposable(Matern(2.5, 0.8)), 0.05
    ),
    "curl-free": Composition([Layer(CurlFree(1.0), 2, 0.05)], Decomposable(Gaussian(0.9)), 0.03),
}


@pytest.mark.parametrize(
    ("name", "criterion"),
    tiers(
        itertools.product(COMPOSITIONS, ["loo", "gcv", "validation"]),
        lambda case: case[0] == "affine" or (case[1] == "loo" and case[0] != "three layers"),
    ),
)
def test_hypergradients_are_differences_of_refitted_errors(data, exact_systems, name, criterion):
    composition = COMPOSITIONS[name]
    problem = problem_of(composition, data, squared_loss(True), criterion)
    packing, h = composition.packing(list(composition.constraints()))
    point = solved(problem, start_of(problem))

    def unpack(h):
        return composition.replace(packing.unpack(h))

    def error(h):
        numbers = unpack(h).numbers()
        moved = solved(problem.at(numbers), point)
        with torch.no_grad():
            return problem.score(moved[None], numbers)[0].item()

    value, gradient = hypergradient(problem, problem, point, h, unpack)
    assert value.item() == pytest.approx(error(h), rel=1e-8)
    step = 1e-3
    differences = [
        (error(h + step * unit) - error(h - step * unit)) / (2 * step) for unit in torch.eye(len(h)).double()
    ]
    np.testing.assert_allclose(gradient, differences, rtol=2e-3, atol=2e-4 * value.item())


@pytest.mark.parametrize("name", ["logistic", "squared_hinge", "huber", "epsilon_insensitive"])
def test_the_loss_itself_chooses_its_alpha(data, name):
    """With inner layers that stay as they are, the gradient in alpha is that of the held-out loss."""
    composition = COMPOSITIONS["affine"]
    X, y = data
    targets = {"logistic": (y > 0).double(), "squared_hinge": torch.sign(y)}.get(name, y)
    loss = convex_loss(name, True, **({"epsilon": 0.02} if name == "epsilon_insensitive" else {}))
    problem = problem_of(composition, (X, targets), loss, "validation")
    search = HyperparameterSearch(
        composition, ["alpha"], [Fold(problem, start_of(problem))], SearchSettings(max_iter=1, tol=1.0), frozen=True
    )
    value, gradient = search(search.start)
    step = 1e-4
    ends = [search(search.start + sign * step)[0].item() for sign in (1, -1)]
    np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-6)
    outer, intercept, images, _ = problem.solve(search.folds[0].point)
    decisions = outer(images[-1][VALIDATION]) + intercept
    if name == "logistic":
        signs = 2 * targets[VALIDATION] - 1
        expected = torch.log1p(torch.exp(-signs * decisions)).mean()
        assert value.item() * search.unit == pytest.approx(expected.item(), rel=1e-8)


def test_a_search_lowers_the_mean_error_of_its_folds(data):
    X, Y = data
    composition = COMPOSITIONS["affine"]
    loss = squared_loss(True)
    splits = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in KFold(3).split(X)]
    folds = []
    for training, validation in splits:
        problem = DeepProblem(composition, X, Y, loss.scored("validation", validation), rows=training, free=["alpha"])
        folds.append(Fold(problem, start_of(problem)))
    free = ["alpha", "layers__0__alpha"]
    search = HyperparameterSearch(composition, free, folds, SearchSettings(max_iter=50, tol=1e-6))
    before = search(search.start)[0].item() * search.unit
    by_hand = []
    for fold, (_, validation) in zip(folds, splits, strict=True):
        outer, intercept, images, _ = fold.problem.solve(fold.point)
        by_hand.append(((outer(images[-1][validation]) + intercept - Y[validation]) ** 2).mean().item())
    assert before == pytest.approx(np.mean(by_hand), rel=1e-6)
    search.scan()
    assert search.best <= before * (1 + 1e-6)
    choice = search.run(SearchSettings(max_iter=8, tol=1e-2))
    assert choice.value <= search.best * (1 + 1e-6) < before
    values = [entry.value for entry in choice.history]
    assert values == sorted(values, reverse=True)
    assert choice.model.layers[0].kernel == Polynomial(1)


def test_the_outer_alpha_stays_above_its_least_value(data):
    composition = COMPOSITIONS["no layer"]
    problem = problem_of(composition, data, squared_loss(True), "loo")
    search = HyperparameterSearch(
        composition, ["alpha"], [Fold(problem, start_of(problem))], SearchSettings(max_iter=1, tol=1.0), least_alpha=0.5
    )
    assert search.unpack(torch.tensor([-50.0], dtype=torch.float64)).alpha.item() == pytest.approx(0.5)


# -- what is chosen ---------------------------------------------------------------------------------------------------
@pytest.fixture
def samples(rng):
    X = rng.uniform(-1, 1, (40, 2))
    return X, 1 / (0.3 + np.abs(X[:, 0] - X[:, 1])) + 0.1 * rng.normal(size=40)


CLOSED_FORMS = {
    "loo": naive_intercept.leave_one_out,
    "gcv": naive_intercept.generalized_cross_validation,
}


def closed_form(model, X, y, criterion):
    """The criterion with the inner layers as they are, by refits."""
    K = model.deep_kernel_(X).numpy()
    spectrum = np.linalg.eigh(K)
    root = spectrum.eigenvectors * np.sqrt(np.clip(spectrum.eigenvalues, 0, None))
    return CLOSED_FORMS[criterion](root, y[:, None], model.alpha_)


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
def test_a_learned_alpha_is_as_good_as_a_grid(samples, criterion):
    X, y = samples
    model = DeepKernelRegressor([], Gaussian(0.5), criterion=criterion).fit(X, y)
    assert model.criterion_value_ == pytest.approx(closed_form(model, X, y, criterion), rel=1e-6)
    assert model.search_history_[-1].value == pytest.approx(model.criterion_value_)
    errors = [
        closed_form(DeepKernelRegressor([], Gaussian(0.5), alpha=alpha).fit(X, y), X, y, criterion)
        for alpha in np.logspace(-6, 1, 8)
    ]
    assert model.criterion_value_ <= 1.01 * min(errors) < 0.9 * max(errors)


@pytest.mark.parametrize(
    ("seed", "size", "kernel"),
    tiers({"blind start": (0, 1, Gaussian(1.0)), "two": (2, 2, TensorMatern(1, 1.0))}, lambda name: name != "two"),
)
def test_learned_penalties_are_as_good_as_a_grid(seed, size, kernel):
    """Also where the principal direction of X, at which the search starts, says nothing about y."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (40, 2))
    y = 1 / (0.3 + np.abs(X[:, 0] - X[:, 1])) + 0.1 * rng.normal(size=40)
    options = {"kernel": kernel, "n_restarts": 4, "random_state": 0}
    model = DeepKernelRegressor([(Polynomial(1), size)], criterion="loo", **options).fit(X, y)
    errors = []
    for alpha, mu in itertools.product((1e-4, 1e-2, 1.0), (1e-4, 1e-2, 1.0)):
        fixed = DeepKernelRegressor([Layer(Polynomial(1), size, mu)], alpha=alpha, **options).fit(X, y)
        errors.append(closed_form(fixed, X, y, "loo"))
    assert model.criterion_value_ <= 1.05 * min(errors) < 0.5 * max(errors)
    assert len(model.search_history_) > 1 and model.layers_[0].alpha > 0


def test_validation_chooses_by_the_folds_of_the_splitter(samples):
    """The criterion is the held-out error of refits to the splitter's folds, at the chosen alpha."""
    X, y = samples
    for cv in (KFold(4), ShuffleSplit(3, random_state=1), list(KFold(2).split(X))):
        model = DeepKernelRegressor([], Gaussian(0.5), criterion="validation", cv=cv).fit(X, y)
        splits = cv if isinstance(cv, list) else list(cv.split(X))
        errors = []
        for training, validation in splits:
            refit = DeepKernelRegressor([], Gaussian(0.5), alpha=model.alpha_).fit(X[training], y[training])
            errors.append(np.mean((refit.predict(X[validation]) - y[validation]) ** 2))
        assert model.criterion_value_ == pytest.approx(np.mean(errors), rel=1e-6)


def test_numbers_stay_and_words_are_learned(samples):
    X, y = samples[0][:25], samples[1][:25]
    layers = [Layer(Gaussian("auto"), 1, alpha=0.05), Layer(Gaussian(1.3), 1)]
    kernel = 0.7 * Matern(1.5, "auto")
    model = DeepKernelRegressor(
        layers, kernel, alpha=0.01, criterion="loo", n_restarts=1, random_state=0, tol=1e-2
    ).fit(X, y)
    assert (model.alpha_, model.layers_[0].alpha) == (0.01, 0.05)
    assert model.layers_[1].kernel == Gaussian(1.3) and model.kernel_.scale == 0.7
    first = Gaussian("auto").resolve(X).lengthscale
    assert model.layers_[0].kernel.lengthscale != pytest.approx(first, rel=1e-3)
    assert isinstance(model.kernel_.kernel.lengthscale, float)
    values = [entry.value for entry in model.search_history_]
    assert values[-1] < values[0]
    words = DeepKernelRegressor([Layer("rbf", 1, 0.05)], "rbf", alpha=0.01, n_restarts=1, random_state=0, tol=1e-3)
    assert words.fit(X, y).layers_[0].kernel.lengthscale == Gaussian("median").resolve(X).lengthscale
    assert words.criterion_value_ is None and words.search_history_ == []  # "median" asks the data, not the error


def test_relevant_features_are_found(rng):
    X = rng.normal(size=(60, 4))
    y = np.sin(2 * X[:, 1]) + 0.05 * rng.normal(size=60)
    scales = DeepKernelRegressor([], Gaussian("ard")).fit(X, y).kernel_.lengthscale
    assert np.argmin(scales) == 1 and np.all(np.delete(scales, 1) > 2 * scales[1])


def criterion_of(composition, n, d, loss, labels=None):
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    folds = folds_of(n, 5, 0, labels)
    model = DeepModel(composition, loss, lambda seen: Splits(folds.some(500), folds))
    samples = InMemory(Block(X, (X[:, :1] > 0).double()))
    return DeepRegression(samples, model, Representation(torch.float64)).criterion


def test_leave_one_out_is_for_few_unknowns_and_squared_loss():
    """An affine map of d features to p dimensions has (d + 1)p unknowns: at most a quarter of the samples."""
    affine = Composition([Layer(Polynomial(1), 2)], Decomposable(Gaussian(1.0)))
    squared = squared_loss(True)
    assert criterion_of(affine, 32, 3, squared) == "loo"  # 8 unknowns
    assert criterion_of(affine, 31, 3, squared) == "validation"
    assert criterion_of(Composition([], Decomposable(Gaussian(1.0))), 8, 3, squared) == "loo"
    assert (
        criterion_of(Composition([Layer(Gaussian(1.0), 1)], Decomposable(Gaussian(1.0))), 40, 3, squared)
        == "validation"
    )
    assert criterion_of(affine, 32, 3, convex_loss("logistic", True), np.arange(32) % 2) == "validation"


def test_units_of_the_targets_do_not_matter(samples):
    X, y = samples
    options = {"layers": [(Polynomial(1), 1)], "kernel": Gaussian(1.0), "criterion": "loo"}
    options |= {"n_restarts": 1, "random_state": 0}
    reference = DeepKernelRegressor(**options).fit(X, y)
    for unit in (2.0**-20, 2.0**20):  # powers of two: no rounding of their own
        other = DeepKernelRegressor(**options).fit(X, unit * y)
        np.testing.assert_allclose(other.predict(X) / unit, reference.predict(X), atol=0.02 * y.std())
        assert other.criterion_value_ / unit**2 == pytest.approx(reference.criterion_value_, rel=0.02)


def test_many_samples_are_searched_on_a_subset(samples, monkeypatch):
    X, y = samples
    monkeypatch.setattr(rows, "DEEP_SEARCH_ROWS", 25)
    sizes = []
    original = DeepProblem.score

    def watched(self, points, composition):
        sizes.append(len(self.Y))
        return original(self, points, composition)

    monkeypatch.setattr(DeepProblem, "score", watched)
    halves = [(np.arange(20), np.arange(20, 40)), (np.arange(20, 40), np.arange(20))]
    for cv in (3, ShuffleSplit(2, random_state=0), PredefinedSplit(np.arange(40) % 3), halves):
        model = DeepKernelRegressor([], Gaussian(0.5), criterion="validation", cv=cv, random_state=0).fit(X, y)
        assert set(sizes) == {25} and len(model.dual_coef_) == 40
    labels = y > np.quantile(y, 0.8)
    classifier = DeepKernelClassifier([], Gaussian(0.5), loss="squared", calibration=None, random_state=0)
    searched = folds_of(40, 5, 0, labels.astype(int)).some(25)
    assert len(searched) == 25 and labels[searched].sum() == 5  # the classes in proportion
    assert classifier.fit(X, labels).score(X, labels) > 0.8


def test_learning_with_landmarks(samples):
    X, y = samples
    options = {"criterion": "loo", "n_restarts": 1, "random_state": 0}
    exact = DeepKernelRegressor([1], Gaussian(1.0), **options).fit(X, y)
    landmarks = DeepKernelRegressor([1], Gaussian(1.0), approximation=Nystroem(40), **options).fit(X, y)
    assert landmarks.alpha_ == pytest.approx(exact.alpha_, rel=1e-3)
    np.testing.assert_allclose(landmarks.predict(X), exact.predict(X), rtol=1e-2, atol=1e-2)


def test_learning_on_objects_and_gram_matrices(rng):
    """The same rows and columns are held out, whatever the data."""
    X = rng.normal(size=(24, 2))
    y = np.abs(X[:, 0])
    options = {
        "alpha": 0.01,
        "n_restarts": 1,
        "random_state": 0,
        "criterion": "validation",
        "cv": 3,
        "tol": 1e-3,
    }
    vectors = DeepKernelRegressor([Layer(Linear(), 1)], Gaussian(1.0), **options).fit(X, y)
    gram = DeepKernelRegressor([Layer("precomputed", 1)], Gaussian(1.0), **options).fit(X @ X.T, y)
    objects = DeepKernelRegressor([Layer(Callable(lambda u, v: float(u @ v)), 1)], Gaussian(1.0), **options)
    objects.fit(list(X), y)
    for model in (gram, objects):
        assert model.layers_[0].alpha == pytest.approx(vectors.layers_[0].alpha, rel=0.05)
        assert model.criterion_value_ == pytest.approx(vectors.criterion_value_, rel=0.05)


# -- searches that end early ------------------------------------------------------------------------------------------
class Interrupt:
    """Ctrl-C at some iteration."""

    def __init__(self, at):
        self.at, self.iterations = at, 0

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "iteration":
            self.iterations += 1
            if self.iterations == self.at:
                raise KeyboardInterrupt


def test_interrupting_the_search_keeps_the_best_point(samples):
    X, y = samples
    options = {"criterion": "loo", "n_restarts": 1, "random_state": 0}
    model = DeepKernelRegressor([1], Gaussian("auto"), **options).set_callbacks(Interrupt(1))
    with pytest.warns(ConvergenceWarning, match="interrupted during the search over hyperparameters"):
        model.fit(X, y)
    assert len(model.search_history_) == 1 and model.history_ == []
    assert model.criterion_value_ == pytest.approx(min(entry.value for entry in model.search_history_))
    assert np.isfinite(model.predict(X)).all() and model.score(X, y) > 0.1


class Fragile(Gaussian):
    """A kernel during whose evaluation Ctrl-C is pressed."""

    calls, at = 0, math.inf

    def _gram(self, X, Y):
        Fragile.calls += 1
        if Fragile.calls == Fragile.at:
            raise KeyboardInterrupt
        return super()._gram(X, Y)


def test_ctrl_c_at_any_moment_of_a_search_gives_a_model(samples, monkeypatch):
    """Once anything is found it is kept; before that, the interruption is the user's."""
    X, y = samples[0][:20], samples[1][:20]
    options = {"criterion": "loo", "n_restarts": 1, "random_state": 0, "max_iter": 20, "tol": 1e-3}
    monkeypatch.setattr(Fragile, "calls", 0)
    DeepKernelRegressor([1], Fragile(1.0), **options).fit(X, y)
    total = Fragile.calls
    outcomes = []
    for at in range(10, total - 7, max(1, total // 8)):  # the last seven are of the solution, behind the search
        monkeypatch.setattr(Fragile, "calls", 0)
        monkeypatch.setattr(Fragile, "at", at)
        with pytest.warns(ConvergenceWarning, match="interrupt"):
            model = DeepKernelRegressor([1], Fragile(1.0), **options).fit(X, y)
        outcomes.append(np.isfinite(model.predict(X)).all())
    assert len(outcomes) > 5 and all(outcomes)


@pytest.mark.parametrize(
    ("noise", "criterion"), tiers([(0.01, "loo"), (3.0, "validation")], lambda case: case[1] == "validation")
)
def test_noisy_targets_are_not_left_to_leave_one_out(rng, noise, criterion):
    """Inner layers adapt to noise, and leave-one-out holds them fixed: "auto" then holds samples out."""
    X = rng.normal(size=(60, 2))
    f = np.sin(2 * X[:, 0] + X[:, 1])
    options = {"layers": [1], "n_restarts": 2, "random_state": 0}
    y = f + noise * rng.normal(size=60)
    chosen, expected = (DeepKernelRegressor(criterion=c, **options).fit(X, y) for c in ("auto", criterion))
    assert chosen.criterion_value_ == expected.criterion_value_
