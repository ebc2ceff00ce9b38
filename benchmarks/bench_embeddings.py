"""Embedding classifiers: fits against Cholesky factors and Gram matrices, L-BFGS against Adam, prediction."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from benchmarks._timing import Row, compare, scaled
from representer import EmbeddingClassifier
from representer.kernels import Gaussian

N, D, CLASSES = 1000, 24, 4
PAPER = {"criterion": "rademacher", "fit_intercept": False, "shrinkage": 0.0, "calibration": None}


def rows() -> list[Row]:
    """Whole fits by both criteria, the search as a whole, and prediction."""
    return [
        whole_fit("rademacher", goal=4.0),
        whole_fit("loo", goal=4.0),
        *against_adam(),
        prediction(),
    ]


def sample(n: int, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Classes by two of the features, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, d))
    return X, np.digitize(X[:, 0] + 0.5 * np.sin(6 * X[:, 1]) + 0.1 * rng.normal(size=n), [0.2, 0.6, 1.0])


def whole_fit(criterion: str, goal: float | None) -> Row:
    """A fit that learns 24 lengthscales and alpha, against so many Cholesky factors and Gram matrices."""
    n = scaled(N)
    X, y = sample(n)
    points = torch.from_numpy(X)
    kernel = Gaussian("ard").resolve(points)
    model = EmbeddingClassifier("rbf", criterion=criterion, max_iter=10, tol=0.0, random_state=0)

    def ours() -> EmbeddingClassifier:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(X, y)

    def reference() -> None:
        for _ in range(20):
            gram = kernel._gram(points, None)
            gram.diagonal().add_(1.0)
            torch.linalg.cholesky(gram)

    return compare(
        f"ten iterations, {criterion}, against 20 Cholesky factors and Gram matrices",
        f"n = {n}, d = {D}",
        ours=ours,
        reference=reference,
        goal=goal,
        repeats=3,
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
            slow = EmbeddingClassifier("rbf", start=start, **steps, **PAPER).fit(X, y)
            fast = EmbeddingClassifier("rbf", start=start, tol=1e-9, **PAPER).fit(X, y)
        goal = slow.criterion_value_ * (1.0 + 1e-4)
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

    def reference() -> list[torch.Tensor]:
        return [Gaussian(1.0)(torch.from_numpy(part), anchors) @ C for part in np.split(many, 10)]

    return compare(
        "predict_proba in blocks, against Gram matrices of 10,000 points and products",
        f"{len(many):,} × {len(X):,}",
        ours=lambda: model.predict_proba(many),
        reference=reference,
        goal=1.5,
        repeats=3,
    )
