"""Light models and model cards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from tiers import tiers

import representer
from representer import DeepKernelRegressor, EmbeddingClassifier, OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import Gaussian, Spectrum
from representer.operators import Separate

rng = np.random.default_rng(0)
X, NEW = rng.uniform(-2, 2, size=(200, 1)), rng.uniform(-2, 2, size=(50, 1))
y = np.sin(2 * X[:, 0]) + 0.05 * rng.normal(size=200)
RIDGE = OperatorRidge(Gaussian(0.8), alpha=1e-4, random_state=0)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
def test_a_light_model_keeps_its_promise(tolerance: float, tmp_path: Path) -> None:
    model = clone(RIDGE).fit(X, y)
    light = model.compressed(tolerance)
    loss = light.compression_
    scale = np.abs(model.predict(X) - model.function_.intercept if model.function_.intercept is not None else 0).max()
    measured = np.abs(light.predict(X) - model.predict(X)).max() / scale
    np.testing.assert_allclose(measured, loss.error, rtol=1e-3, atol=1e-9)
    assert loss.error <= tolerance and loss.anchors == len(light.function_.anchors) < loss.anchors_before == 200
    assert np.abs(light.predict(NEW) - model.predict(NEW)).max() < 3 * tolerance
    whole, small = model.save(tmp_path / "whole"), light.save(tmp_path / "small")
    assert small.stat().st_size < 0.7 * whole.stat().st_size
    np.testing.assert_array_equal(representer.load(small).predict(NEW), light.predict(NEW))
    with pytest.raises(ValueError, match="keeps its function only"):
        representer.load(small).predict(NEW, return_std=True)


def test_light_models_of_other_learners_and_data() -> None:
    model = EmbeddingClassifier(Gaussian(0.8), alpha=1e-3, random_state=0).fit(X, y > 0)
    light = model.compressed(1e-4)
    assert light.compression_.anchors < 60
    np.testing.assert_allclose(light.embedding(NEW), model.embedding(NEW), atol=1e-3)
    words = ["ab" * int(n) + "c" * int(m) for n, m in rng.integers(1, 6, (60, 2))]
    model = OperatorRidge(Spectrum((1, 2)).normalized(), alpha=1e-2).fit(words, [len(word) for word in words])
    light = model.compressed(1e-6)
    assert light.compression_.anchors <= len(set(words))
    np.testing.assert_allclose(light.predict(words), model.predict(words), rtol=1e-4)


STACKS = {
    "default": OperatorRidge(random_state=0),
    "classes": EmbeddingClassifier(random_state=0),
    "layers": DeepKernelRegressor([2], max_iter=5, n_restarts=1, random_state=0),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", tiers(list(STACKS), lambda name: name != "default"))
def test_stacks_and_layers_are_compressed_member_by_member(name: str, tmp_path: Path) -> None:
    inputs, new = rng.normal(size=(80, 2)), rng.normal(size=(40, 2))
    target = inputs[:, 0] + np.sin(2 * inputs[:, 1])
    model = clone(STACKS[name]).fit(inputs, target > 0 if name == "classes" else target)
    light = model.compressed(1e-3)
    method = "embedding" if name == "classes" else "predict"
    before, after = (getattr(one, method)(inputs) for one in (model, light))
    centred = before - np.reshape(0.0 if model.function_.intercept is None else model.function_.intercept, (-1,))
    loss = light.compression_
    assert np.abs(after - before).max() / np.abs(centred).max() <= loss.error * (1 + 1e-6) <= 1e-3
    assert loss.anchors < loss.anchors_before
    difference = np.abs(getattr(light, method)(new) - getattr(model, method)(new)).max()
    assert difference < 5e-3 * np.abs(before).max()
    again = representer.load(light.save(tmp_path / "light"))
    np.testing.assert_array_equal(getattr(again, method)(new), getattr(light, method)(new))


def test_kernels_of_each_output_are_compressed_on_common_anchors() -> None:
    Y = np.column_stack([y, np.cos(3 * X[:, 0])])
    model = OperatorRidge(Separate([Gaussian(0.8), 3.0 * Gaussian(0.5)]), alpha=1e-4).fit(X, Y)
    light = model.compressed(1e-4)
    loss = light.compression_
    scale = np.abs(model.predict(X) - model.function_.intercept).max()
    assert loss.error <= 1e-4 and loss.anchors == len(light.function_.anchors) < 100
    assert np.abs(light.predict(X) - model.predict(X)).max() / scale == pytest.approx(loss.error, rel=1e-3)
    assert np.abs(light.predict(NEW) - model.predict(NEW)).max() < 3e-4


def test_what_is_light_already_says_so() -> None:
    model = clone(RIDGE).set_params(approximation=Nystroem(10)).fit(X, y)
    if type(model.function_).__name__ != "Expansion":
        with pytest.raises(ValueError, match="light already"):
            model.compressed()
    with pytest.raises(ValueError, match="tolerance must be"):
        clone(RIDGE).fit(X, y).compressed(2.0)


def test_a_card_says_what_is_measured() -> None:
    model = clone(RIDGE).fit(X[:150], y[:150])
    card = model.card(X[150:], y[150:])
    assert f"| score | {model.score(X[150:], y[150:]):.4g} |" in card
    intervals = model.predict_interval(X[150:], 0.9)
    share = np.mean((intervals[:, 0] <= y[150:]) & (y[150:] <= intervals[:, 1]))
    assert f"| share within 90% intervals | {share:.1%} |" in card
    assert "| samples | 150 |" in card and "| samples | 50 |" in card and model._record.fingerprints["X"] in card
    assert "unlike the training data" in card
    assert "## Scores" not in model.card() and "anchors, error" in model.compressed().card()
