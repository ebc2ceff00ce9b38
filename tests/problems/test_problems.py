"""What every problem has: criteria with gradients, and refits without some samples; classes are one of ridge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import KFold
from tiers import tiers

from representer import EmbeddingClassifier, OperatorRidge
from representer.approximation import Nystroem
from representer.estimators.validation import seed_of
from representer.kernels import Gaussian, Linear, Precomputed, Spectrum, Stack
from representer.operators import Decomposable, Dense, Representation
from representer.optimize.search import SearchSettings
from representer.problems.class_embedding import ClassModel, ClassProblem
from representer.problems.embedding import EmbeddingSettings
from representer.problems.ridge import RidgeModel, RidgeProblem
from representer.problems.stack import SHRINKAGE, LeastSquares, StackProblem
from representer.samples import Block, InMemory

HOW = Representation(torch.float64)
FOLDS = list(KFold(3, shuffle=True, random_state=0).split(np.zeros(36)))[:2]  # what a refit gets wrong, two show


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = rng.normal(size=(36, 2))
    Y = np.c_[np.sin(X[:, 0]), X[:, 1]] + 0.1 * rng.normal(size=(36, 2))
    return X, Y, rng.uniform(0.5, 2.0, size=36)


def compared(problem, settings, refit) -> None:
    found = problem.held_out(FOLDS, settings)
    for (train, test), values in zip(FOLDS, found, strict=True):
        np.testing.assert_allclose(values, refit(train, test), atol=1e-8)


@pytest.mark.parametrize("approximation", [None, Nystroem(10)])
@pytest.mark.parametrize("alpha", [0.01, None])
def test_held_out_predictions_of_a_ridge_problem(data, alpha, approximation):
    X, Y, w = data
    A = np.array([[1.0, 0.3], [0.3, 0.5]])
    kernel = Decomposable(Gaussian("auto" if alpha is None else 1.3), Dense(A))
    samples = InMemory(Block(torch.from_numpy(X), torch.from_numpy(Y), torch.from_numpy(w)))
    model = RidgeModel(kernel, alpha, intercept=True, approximation=approximation)
    problem = RidgeProblem(samples, model, HOW, seed=seed_of(0), inputs=X)
    learner = OperatorRidge(
        kernel,
        alpha="auto" if alpha is None else alpha,
        fit_intercept=True,
        approximation=approximation,
        random_state=0,
    )

    def refit(train, test):
        fitted = clone(learner).fit(X[train], Y[train], sample_weight=w[train])
        return fitted.predict(X[test])

    compared(problem, SearchSettings(seed=seed_of(0)), refit)


@pytest.mark.parametrize("weights", [None, [0.7, 0.3]])
def test_held_out_predictions_of_a_stack(data, weights):
    X, Y, w = data
    kernels = [Gaussian("auto"), Linear()]
    samples = InMemory(Block(torch.from_numpy(X), torch.from_numpy(Y), torch.from_numpy(w)))
    models = [RidgeModel(Decomposable(kernel), intercept=True, shrinkage=SHRINKAGE) for kernel in kernels]
    members = [RidgeProblem(samples, model, HOW, seed=seed_of(0), inputs=X) for model in models]
    problem = StackProblem(members, LeastSquares(), None if weights is None else np.array(weights))
    assert problem.free == ["0__kernel__lengthscale"]
    stack = Stack(kernels, weights="auto" if weights is None else weights)
    learner = OperatorRidge(stack, alpha="auto", fit_intercept=True, random_state=0)

    def refit(train, test):
        return clone(learner).fit(X[train], Y[train], sample_weight=w[train]).predict(X[test])

    compared(problem, SearchSettings(seed=seed_of(0)), refit)
    with pytest.raises(ValueError, match="one by one"):
        problem.value_and_gradient(torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("alpha", "approximation"),
    tiers(itertools.product([0.01, None], [None, Nystroem(10)]), lambda case: (case[0] is None) == (case[1] is None)),
)
def test_held_out_predictions_of_a_class_problem(data, alpha, approximation):
    X, Y, w = data
    labels = (Y[:, 0] > 0).astype(int)
    kernel = Gaussian("ard" if alpha is None else 1.3)
    samples = InMemory(Block(torch.from_numpy(X), torch.eye(2).double()[labels], torch.from_numpy(w)))
    problem = ClassProblem(
        samples, ClassModel(kernel, alpha, approximation=approximation), HOW, seed=seed_of(0), inputs=X
    )
    learner = EmbeddingClassifier(
        kernel, alpha="auto" if alpha is None else alpha, approximation=approximation, random_state=0
    )

    def refit(train, test):
        fitted = clone(learner).fit(X[train], labels[train], w[train])
        return fitted.embedding(X[test])

    compared(problem, EmbeddingSettings(max_iter=200, seed=seed_of(0), shrinkage=1.0, solver="auto"), refit)


def test_held_out_predictions_of_other_data(data, rng):
    X, Y, _ = data
    gram = Gaussian(1.0)(X).numpy()
    samples = InMemory(Block(torch.from_numpy(gram), torch.from_numpy(Y)))
    problem = RidgeProblem(samples, RidgeModel(Decomposable(Precomputed()), 0.1), HOW, inputs=gram)
    model = OperatorRidge(Gaussian(1.0), alpha=0.1, fit_intercept=False)
    compared(problem, SearchSettings(), lambda train, test: model.fit(X[train], Y[train]).predict(X[test]))
    words = ["".join(rng.choice(list("ab"), size=6)) for _ in range(36)]
    labels = np.array([word.count("a") > 3 for word in words]).astype(int)
    kernel = Spectrum(2)
    samples = InMemory(Block(kernel.prepare(words), torch.eye(2).double()[labels]))
    problem = ClassProblem(samples, ClassModel(kernel, 0.1), HOW, inputs=words)

    def refit(train, test):
        model = EmbeddingClassifier(kernel, alpha=0.1).fit([words[i] for i in train], labels[train])
        return model.embedding([words[i] for i in test])

    compared(problem, EmbeddingSettings(), refit)


# -- criteria ---------------------------------------------------------------------------------------------------------
def problems(X: np.ndarray, Y: np.ndarray):
    labels = torch.eye(2).double()[(Y[:, 0] > 0).astype(int)]
    yield RidgeProblem(
        InMemory(Block(torch.from_numpy(X), torch.from_numpy(Y))), RidgeModel(Decomposable(Gaussian("ard"))), HOW
    )
    yield ClassProblem(InMemory(Block(torch.from_numpy(X), labels)), ClassModel(Gaussian("ard")), HOW)


@pytest.mark.parametrize("some", [False, True])
def test_gradients_of_criteria(data, some):
    X, Y, _ = data
    rows = torch.arange(0, 36, 2) if some else None
    for problem in problems(X, Y):
        assert [name.split("__")[-1] for name in problem.free] == ["lengthscale"]
        point, step = torch.tensor([0.1, -0.2, -3.0]).double(), 1e-5
        values, gradients = problem.value_and_gradient(point[None], rows)
        shifted = torch.cat([point + step * torch.eye(3).double(), point - step * torch.eye(3).double()])
        ends, _ = problem.value_and_gradient(shifted, rows)
        torch.testing.assert_close(gradients[0], (ends[:3] - ends[3:]) / (2 * step), rtol=1e-5, atol=1e-7)
        assert bool(torch.isfinite(values).all())


# -- one system -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("approximation", [None, Nystroem(12)])
@pytest.mark.parametrize("intercept", [False, True])
def test_an_embedding_of_classes_is_a_ridge_regression(data, approximation, intercept):
    X, Y, w = data
    labels, w = (Y[:, 0] > 0).astype(int), np.where(np.arange(36) % 9 == 0, 0.0, w)
    groups = np.arange(36) // 3
    options = {"alpha": 0.02, "fit_intercept": intercept, "approximation": approximation, "random_state": 0}
    classes = EmbeddingClassifier(Gaussian(1.1), **options).fit(X, labels, sample_weight=w, groups=groups)
    ridge = OperatorRidge(Gaussian(1.1), **options).fit(X, np.eye(2)[labels], sample_weight=w, groups=groups)
    np.testing.assert_allclose(classes.embedding(X), ridge.predict(X), atol=1e-12)
    np.testing.assert_allclose(classes.system_.left_out(), ridge.loo_predict_, atol=1e-12)
    np.testing.assert_allclose(classes.system_.deviation(X), ridge.predict(X, return_std=True)[1], atol=1e-12)
    np.testing.assert_allclose(classes.system_.leverage(), ridge.system_.leverage(), atol=1e-12)
    norm = classes.function_.norm()
    assert classes.system_.norm() == pytest.approx(norm) and classes.complexity_ == pytest.approx(norm)
    if approximation is None:
        np.testing.assert_allclose(classes.loo_estimates_, ridge.loo_predict_, atol=1e-12)
