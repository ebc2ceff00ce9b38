"""Embedding classifiers: an iteration against a Cholesky and a Gram matrix, L-BFGS against Adam, prediction."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks._timing import Row, compare, scaled
from representer import EmbeddingClassifier
from representer.estimators._embedding_problem import EmbeddingProblem
from representer.estimators._embedding_risk import Risk
from representer.estimators._embedding_search import EmbeddingSearch
from representer.kernels import Gaussian
from representer.linalg.memory import recycling

N, D, CLASSES = 1000, 24, 4
PAPER = {"objective": "rademacher", "fit_intercept": False, "shrinkage": 0.0, "calibration": None}


def rows() -> list[Row]:
    """One iteration by both objectives, the search as a whole, and prediction."""
    return [
        iteration("rademacher", goal=4.0),
        iteration("loo", goal=4.0),
        *against_adam(),
        prediction(),
    ]


def sample(n: int, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Classes by two of the features, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, d))
    return X, np.digitize(X[:, 0] + 0.5 * np.sin(6 * X[:, 1]) + 0.1 * rng.normal(size=n), [0.2, 0.6, 1.0])


def iteration(objective: str, goal: float | None) -> Row:
    """Value and gradient in 24 lengthscales and alpha, against one Cholesky and one Gram matrix."""
    n = scaled(N)
    X, y = (torch.from_numpy(a) for a in sample(n))
    kernel = Gaussian("ard").resolve(X)
    Y = torch.nn.functional.one_hot(y, CLASSES).double()
    learner = EmbeddingClassifier(objective=objective)
    problem = EmbeddingProblem(X, n)
    search = EmbeddingSearch(problem, kernel, ["lengthscale"], None, Risk(learner, kernel, Y, 0), Y)

    def reference() -> Tensor:
        gram = kernel._gram(X, None)
        gram.diagonal().add_(1.0)
        return torch.linalg.cholesky(gram)

    ours = partial(search.value_and_gradient, search.start)
    with recycling():  # as in a search
        return compare(
            f"one iteration, {objective}, against one Cholesky and one Gram matrix",
            f"n = {n}, d = {D}",
            ours=ours,
            reference=reference,
            goal=goal,
            repeats=41,  # of a few hundredths of a second each, on machines that are shared
        )


def against_adam() -> list[Row]:
    """The seconds in which L-BFGS reaches the objective of 1,000 steps of Adam, from the paper's start."""
    found = []
    for n in (scaled(200), scaled(400)):
        X, y = sample(n, 8)
        start = {"alpha": 1.0, "lengthscale": 1.0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            steps = {"solver": "adam", "max_iter": scaled(1000, 20), "tol": 0.0}
            slow = EmbeddingClassifier(start=start, **steps, **PAPER).fit(X, y)
            fast = EmbeddingClassifier(start=start, tol=1e-9, **PAPER).fit(X, y)
        goal = slow.objective_value_ * (1.0 + 1e-4)
        ours = next((e.seconds for e in fast.history_ if e.value <= goal), float("inf"))
        reference = next(e.seconds for e in slow.history_ if e.value <= goal)
        found.append(
            Row(
                "L-BFGS to the objective of Adam, against its 1,000 steps",
                f"n = {n}, d = 8",
                ours,
                slow.history_[-1].seconds,
                0.1,
            )
        )
        found.append(Row("… against when Adam first was there", f"n = {n}, d = 8", ours, reference))
    return found


def prediction() -> Row:
    """100,000 points in blocks, against ten times 10,000 of them as one Gram matrix each."""
    X, y = sample(scaled(N))
    model = EmbeddingClassifier(Gaussian(1.0), alpha=1e-3, calibration=None).fit(X, y)
    many = np.random.default_rng(1).uniform(size=(scaled(100_000), D))
    anchors, C = torch.from_numpy(X), torch.from_numpy(model.dual_coef_)

    def reference() -> list[Tensor]:
        return [Gaussian(1.0)(torch.from_numpy(part), anchors) @ C for part in np.split(many, 10)]

    return compare(
        "predict_proba in blocks, against Gram matrices of 10,000 points and products",
        f"{len(many):,} × {len(X):,}",
        ours=lambda: model.predict_proba(many),
        reference=reference,
        goal=1.5,
        repeats=3,
    )
