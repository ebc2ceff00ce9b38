"""How much columns matter: against the closed form of Sobol's indices, and for all learners."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    OperatorRidge,
)
from representer.inspection.relevance import total_effects


def test_total_effects_of_a_polynomial_are_those_of_sobol(rng):
    X = rng.normal(size=(200, 3))
    # f = x₀ + 2 x₁ + x₀ x₁ of independent normal columns: variances 1, 4 and 1.
    effects = total_effects(lambda X: X[:, 0] + 2.0 * X[:, 1] + X[:, 0] * X[:, 1], X)
    np.testing.assert_allclose(effects, [2 / 6, 5 / 6, 0.0], atol=0.12)


def test_constant_functions_and_single_samples_have_none():
    assert total_effects(lambda X: np.ones(len(X)), np.arange(6.0).reshape(3, 2)).tolist() == [0.0, 0.0]
    assert total_effects(lambda X: X[:, 0], np.ones((1, 2))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "learner",
    [
        OperatorRidge("rbf"),
        OperatorRidge(),
        EmbeddingClassifier("rbf", max_iter=20),
        ConditionalMeanEmbedding("rbf"),
        DeepKernelRegressor([2], max_iter=10, n_restarts=1),
    ],
    ids=lambda learner: repr(learner)[:30],
)
def test_the_column_that_matters_is_found_whatever_its_units(learner, rng):
    X = rng.normal(size=(60, 3)) * [1.0, 100.0, 0.01]
    y = np.sin(X[:, 1] / 100.0) + 0.1 * rng.normal(size=60)
    X /= X.std(0)
    relevance = learner.fit(X, y > 0 if isinstance(learner, EmbeddingClassifier) else y).relevance_
    assert relevance.shape == (3,) and relevance.argmax() == 1 and relevance[1] > 0.5


def test_columns_of_a_frame_and_components(rng):
    frame = pd.DataFrame({"noise": rng.normal(size=60), "level": ["a", "b", "c"] * 20})
    y = frame["level"].map({"a": 0.0, "b": 1.0, "c": 5.0}).to_numpy()
    relevance = OperatorRidge(max_iter=20).fit(frame, y).relevance_
    assert relevance[1] > 0.8 > 0.2 > relevance[0]
    X = np.column_stack([3.0 * rng.normal(size=40), 0.1 * rng.normal(size=40)])
    for learner in (DeepKernelPCA([1], "linear"), KernelAutoencoder(1, "linear", max_iter=20, n_restarts=1)):
        assert learner.fit(X).relevance_.argmax() == 0


def test_samples_without_columns_have_none():
    model = OperatorRidge("strings", max_iter=5).fit(["ab", "ba", "aab", "bb"], [0.0, 1.0, 0.5, 2.0])
    with pytest.raises(AttributeError, match=r"no columns"):
        model.relevance_  # noqa: B018
