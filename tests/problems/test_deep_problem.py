"""The problems of deep machines and autoencoders: fits without folds against cloned estimators, gradients of errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import KFold
from tiers import tiers

from representer import DeepKernelClassifier, DeepKernelRegressor, KernelAutoencoder, Layer
from representer.approximation import Nystroem
from representer.estimators.deep_regressor import deep_regression, machine_of
from representer.estimators.validation import seed_of
from representer.kernels import Gaussian, Polynomial, Spectrum
from representer.optimize import Problem, SearchSettings
from representer.problems import deep
from representer.problems.autoencoder import AutoencoderProblem
from representer.problems.composition import convex_loss, squared_loss
from representer.problems.deep import DeepRegression

pytestmark = pytest.mark.filterwarnings("ignore:The search over the inner layers")

FOLDS = list(KFold(3, shuffle=True, random_state=0).split(np.zeros(36)))[:2]  # what a refit gets wrong, two show
OPTIONS: dict[str, Any] = {"n_restarts": 2, "random_state": 0, "max_iter": 20}


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = rng.normal(size=(36, 2))
    Y = np.c_[np.sin(X[:, 0] + X[:, 1]), X[:, 1]] + 0.1 * rng.normal(size=(36, 2))
    return X, Y, rng.uniform(0.5, 2.0, size=36)


def problem_of(model: Any, X: Any, y: Any, w: Any = None) -> DeepRegression:
    """The problem that a deep machine solves."""
    fitted = clone(model).fit(X, y, sample_weight=w)  # which knows its columns and classes
    composition = machine_of(model).composition()
    samples, inputs = fitted._samples(composition.input_kernel, X, y, w, None)
    labels = getattr(fitted, "_labels", None)
    loss = squared_loss(True) if model.loss == "squared" else convex_loss(model.loss, True)
    return deep_regression(fitted, composition, samples, inputs, loss, labels)


def autoencoding_of(model: KernelAutoencoder, X: Any, y: Any = None, w: Any = None) -> AutoencoderProblem:
    """The problem that an autoencoder solves."""
    first = model._first_kernel(X)
    samples, inputs = clone(model)._samples(first, X, w, None)
    return model._problem(first, samples, inputs, y)


def settings_of(model: Any) -> SearchSettings:
    """How a learner searches."""
    return SearchSettings(max_iter=model.max_iter, tol=model.tol, n_restarts=model.n_restarts, seed=seed_of(0))


def rows(X: Any, index: np.ndarray) -> Any:
    return X[index] if isinstance(X, np.ndarray) else [X[i] for i in index]


FITS = {
    "numbers": {"layers": [Layer(Polynomial(1), 2, 1e-2)], "kernel": Gaussian(1.0), "alpha": 1e-2},
    "one layer": {"layers": [], "kernel": Gaussian("auto")},
    "landmarks": {"layers": [Layer(Polynomial(1), 1, 1e-2)], "alpha": 1e-2, "approximation": Nystroem(10)},
    "penalties": {"layers": [1], "kernel": Gaussian(1.0), "criterion": "loo"},
    "folds": {"layers": [1], "kernel": Gaussian(1.0), "criterion": "validation", "cv": 3},
}


@pytest.mark.parametrize("options", tiers(FITS, lambda name: name not in ("folds", "penalties")))
def test_held_out_predictions_of_a_regressor(data, options):
    X, Y, w = data
    w = np.where(np.arange(36) % 7 == 0, 0.0, w)
    model = DeepKernelRegressor(**options, **OPTIONS)
    problem = problem_of(model, X, Y, w)
    assert isinstance(problem, Problem)
    predictions = problem.held_out(FOLDS, settings_of(model))
    for (train, test), values in zip(FOLDS, predictions, strict=True):
        expected = clone(model).fit(X[train], Y[train], sample_weight=w[train]).predict(X[test])
        np.testing.assert_allclose(values, expected, atol=1e-8)


@pytest.mark.parametrize(
    ("alpha", "loss"),
    tiers(itertools.product([1e-2, "auto"], ["squared", "logistic"]), lambda case: case != ("auto", "logistic")),
)
def test_held_out_decisions_of_a_classifier(data, loss, alpha):
    X, Y, _ = data
    y = np.digitize(Y[:, 0], [-0.5, 0.5])
    layers = [Layer(Polynomial(1), 1, 1e-2)]
    model = DeepKernelClassifier(layers, Gaussian(1.0), loss, alpha, calibration=None, cv=3, **OPTIONS)
    decisions = problem_of(model, X, y).held_out(FOLDS, settings_of(model))
    for (train, test), values in zip(FOLDS, decisions, strict=True):
        expected = clone(model).fit(X[train], y[train]).decision_function(X[test])
        np.testing.assert_allclose(values, expected, atol=1e-8)


def test_held_out_predictions_of_other_data(data, rng):
    X, Y, _ = data
    settings = {"alpha": 1e-2, **OPTIONS}
    model = DeepKernelRegressor([Layer("precomputed", 1, 1e-2)], Gaussian(1.0), **settings)
    gram = Gaussian(1.0)(X).numpy()
    words = ["".join(rng.choice(list("ab"), size=6)) for _ in range(36)]
    objects = DeepKernelRegressor([Layer(Spectrum(2), 1, 1e-2)], Gaussian(1.0), **settings)
    for learner, given in ((model, gram), (objects, words)):
        predictions = problem_of(learner, given, Y).held_out(FOLDS, settings_of(learner))
        for (train, test), values in zip(FOLDS, predictions, strict=True):
            old, new = rows(given, train), rows(given, test)
            old, new = (old[:, train], new[:, train]) if learner is model else (old, new)
            np.testing.assert_allclose(values, clone(learner).fit(old, Y[train]).predict(new), atol=1e-8)


# -- autoencoders -----------------------------------------------------------------------------------------------------
FIXED = {"alpha": 1e-2, "encoder_alpha": 1e-2}
AUTOENCODERS = {
    "vectors": {**FIXED},
    "share": {**FIXED, "n_components": 0.5},
    "kernel": {**FIXED, "target": "kernel", "kernel": Gaussian(1.0)},
    "labels": {**FIXED, "supervision": 1.0},
    "landmarks": {**FIXED, "approximation": Nystroem(10), "batch_size": 8},
    "penalties": {"kernel": Gaussian(1.0), "decoder_kernel": Gaussian(1.0)},
}


@pytest.mark.parametrize("options", tiers(AUTOENCODERS, lambda name: name not in ("landmarks", "penalties")))
def test_held_out_errors_of_an_autoencoder(data, options):
    X, Y, w = data
    model = KernelAutoencoder(**{"n_components": 1, **options, **OPTIONS})
    y = Y[:, 0] if "supervision" in options else None
    problem = autoencoding_of(model, X, y, w)
    assert isinstance(problem, Problem)
    errors = problem.held_out(FOLDS, settings_of(model))
    for (train, test), values in zip(FOLDS, errors, strict=True):
        refit = clone(model).fit(X[train], None if y is None else y[train], sample_weight=w[train])
        np.testing.assert_allclose(values, refit.reconstruction_error(X[test]), atol=1e-8)


def test_held_out_errors_of_other_data(data, rng):
    X = data[0]
    gram = (1.0 + X @ X.T) ** 2  # with another k(x, x) for every sample
    words = ["".join(rng.choice(list("ab"), size=6)) for _ in range(36)]
    for kernel, given in (("precomputed", gram), (Spectrum(2), words)):
        model = KernelAutoencoder(1, kernel, Gaussian(1.0), **FIXED, **OPTIONS)
        errors = autoencoding_of(model, given).held_out(FOLDS, settings_of(model))
        for (train, test), values in zip(FOLDS, errors, strict=True):
            old, new, diagonal = rows(given, train), rows(given, test), None
            if given is gram:
                old, new, diagonal = old[:, train], new[:, train], gram.diagonal()[test]
            expected = clone(model).fit(old).reconstruction_error(new, diagonal)
            np.testing.assert_allclose(values, expected, atol=1e-8 * np.abs(expected).max())


# -- criteria ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layers", "criterion", "few"),
    tiers(
        itertools.product([[], [Layer(Polynomial(1), 1)]], ["loo", "gcv", "validation"], [False, True]),
        lambda case: case[2] == (case[1] == "gcv") and (not case[0] or case[1] != "validation"),
    ),
)
def test_gradients_of_the_error_on_new_data(data, monkeypatch, layers, criterion, few):
    """A search needs two digits of a gradient and five of solutions; a comparison with differences needs more."""
    for name, value in {
        "SYSTEM_TOL": 1e-10,
        "SYSTEM_ITERATIONS": 500,
        "FOLD_TOL": 1e-14,
        "FOLD_ITERATIONS": 2000,
        "EXPLORE_TOL": 1e-14,
    }.items():
        monkeypatch.setattr(deep, name, value)
    X, Y, _ = data
    learner = DeepKernelRegressor(layers, Gaussian("auto"), criterion=criterion, cv=3, **OPTIONS)
    problem = problem_of(learner, X, Y)
    expected = ["kernel__kernel__lengthscale", "alpha"] + (["layers__0__alpha"] if layers else [])
    assert sorted(problem.free) == sorted(expected)
    part = torch.arange(0, 36, 2) if few else None
    start = (problem if part is None else problem.on_rows(part.numpy()))._criterion.start
    values, gradients = problem.value_and_gradient(start[None], part)
    size, step = len(start), 1e-4 if layers else 1e-5
    shifts = step * torch.eye(size).double()
    ends, _ = problem.value_and_gradient(torch.cat([start + shifts, start - shifts]), part)
    differences = (ends[:size] - ends[size:]) / (2 * step)
    torch.testing.assert_close(gradients[0], differences, rtol=2e-3, atol=2e-4 * values.item())


def test_choices_and_solutions_can_be_repeated(data):
    X, Y, _ = data
    model = DeepKernelRegressor([1], Gaussian(1.0), **OPTIONS)
    problem, settings = problem_of(model, X, Y), settings_of(model)
    first, second = (problem.choose(settings) for _ in range(2))
    assert first.value == second.value and first.alpha == second.alpha
    values = [problem.solve(choice).function(X) for choice in (first, first, second)]
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=0, atol=0)
