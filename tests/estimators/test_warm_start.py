"""Fits that go on from the last one: the same answer in fewer iterations, or a refusal in words."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tiers import tiers

from representer import Checkpoint, DeepKernelClassifier, DeepKernelPCA, DeepKernelRegressor, KernelAutoencoder
from representer.functions import Layer
from representer.kernels import Gaussian, Polynomial, Spectrum

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=60)
LABELS = (y > 0).astype(int)
OPTIONS = {"n_restarts": 3, "random_state": 0, "warm_start": True}

LEARNERS = {
    "regressor": (DeepKernelRegressor([2], Gaussian("auto"), **OPTIONS), y),
    "given numbers": (
        DeepKernelRegressor(
            [Layer(Gaussian(2.0), 2, alpha=1e-3)], Gaussian(1.0), alpha=1e-2, **OPTIONS | {"n_restarts": 1}
        ),
        y,
    ),
    "classifier": (
        DeepKernelClassifier(
            [Layer(Polynomial(1), 2, alpha=1e-3)], Gaussian(1.0), loss="logistic", alpha=1e-2, **OPTIONS
        ),
        LABELS,
    ),
    "autoencoder": (KernelAutoencoder(2, Gaussian(2.0), alpha=1e-3, encoder_alpha=1e-3, **OPTIONS), None),
    "levels": (DeepKernelPCA([3, 2], "rbf", eta=[1.0, 0.1], random_state=0, warm_start=True), None),
}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def answer(model) -> np.ndarray:
    return (
        model.predict(X)
        if isinstance(model, DeepKernelRegressor)
        else getattr(model, "decision_function" if hasattr(model, "decision_function") else "transform")(X)
    )


@functools.cache
def fitted_once(name: str) -> Any:
    model, target = LEARNERS[name]
    return clone(model).fit(X, target)


@pytest.mark.parametrize("name", tiers(list(LEARNERS), lambda name: name != "given numbers"))
def test_a_second_fit_begins_where_the_first_has_ended(name: str) -> None:
    model, target = copy.deepcopy(fitted_once(name)), LEARNERS[name][1]
    first, n_iter, before = answer(model), model.n_iter_, list(model.history_)
    model.fit(X, target)
    assert model.n_iter_ < n_iter and len(model.history_) < len(before)
    np.testing.assert_allclose(answer(model), first, atol=0.02 * np.abs(first).max())
    cold = clone(model).set_params(warm_start=False).fit(X, target)
    assert cold.n_iter_ == n_iter  # a fit without a last one, and one that does not ask for it, begin anew
    np.testing.assert_allclose(answer(cold), first, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", tiers(["regressor", "given numbers", "levels"], lambda name: name != "given numbers"))
def test_other_samples_of_the_same_shape_are_fine(name: str) -> None:
    model, target = copy.deepcopy(fitted_once(name)), LEARNERS[name][1]
    model.fit(X[:50], None if target is None else target[:50])
    assert model.transform(X).shape == (60, 5) if name == "levels" else model.predict(X).shape == (60,)


def test_other_shapes_are_refused() -> None:
    model = copy.deepcopy(fitted_once("regressor"))
    with pytest.raises(ValueError, match=r"sizes \[2\], and this one has \[1\].*warm_start=False"):
        model.set_params(layers=[(Gaussian(2.0), 1)]).fit(X, y)
    model.set_params(layers=[(Gaussian(2.0), 2)])
    with pytest.raises(ValueError, match=r"features 3, and this one has 2.*warm_start=False"):
        model.fit(X[:, :2], y)
    with pytest.raises(ValueError, match=r"layers='auto'.*warm_start=False"):
        DeepKernelRegressor(warm_start=True).fit(X, y)
    levels = copy.deepcopy(fitted_once("levels"))
    with pytest.raises(ValueError, match=r"\[3, 2\] components, and these have \[2, 2\]"):
        levels.set_params(n_components=[2, 2]).fit(X)
    levels.set_params(n_components=[3, 2])
    with pytest.raises(ValueError, match=r"3 columns, and these have 2"):
        levels.fit(X[:, :2])


def test_objects_go_on_too() -> None:
    words = ["ab" * int(n) + "c" * int(m) for n, m in rng.integers(1, 6, (30, 2))]
    lengths = [float(len(word)) for word in words]
    model = DeepKernelRegressor([Layer(Spectrum(2).normalized(), 2, alpha=1e-4)], Gaussian(1.0), alpha=1e-3, **OPTIONS)
    before = model.fit(words, lengths).n_iter_
    assert model.fit(words, lengths).n_iter_ < before


def test_a_fit_with_a_checkpoint_goes_on_from_the_last_one(tmp_path) -> None:
    model = clone(LEARNERS["levels"][0]).set_callbacks(Checkpoint(tmp_path))
    before = model.fit(X).n_iter_
    assert model.fit(X).n_iter_ < before and not list(tmp_path.glob("*.journal"))
