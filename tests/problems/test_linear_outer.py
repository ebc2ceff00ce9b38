"""A linear outer kernel makes a composition convex: its minimum against ridge regression and long searches."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tiers import tiers

from representer import DeepKernelClassifier, DeepKernelRegressor, Layer
from representer.kernels import Gaussian, Laplacian, Linear, Polynomial
from representer.operators import Decomposable, Separate
from representer.optimize import SearchSettings
from representer.problems.composition import Composition, DeepProblem, convex_loss, minimise, squared_loss
from representer.problems.outer import (
    KernelWeights,
    SmallNuclearNorm,
    best_scale,
    convex_problem,
    global_minimum,
    linear_terms,
)

N = 24
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.stack([np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=N), X[:, 0] * X[:, 1]], 1)
KERNELS = [Gaussian(1.0), Laplacian(2.0), Linear()]


def problem(kernel: Any, size: int, targets: np.ndarray, loss: Any, *, alpha: float = 3e-3, outer: Any = None) -> Any:
    kernel = kernel if isinstance(kernel, Separate) else Decomposable(kernel)
    outer = Decomposable(Linear() if outer is None else outer)
    composition = Composition([Layer(kernel, size, 2e-3)], outer, alpha)
    tensors = torch.from_numpy(X), torch.from_numpy(targets)
    return DeepProblem(composition, *tensors, loss.fit())


def minimum(deep: DeepProblem) -> Any:
    result = global_minimum(deep, SearchSettings())
    assert result is not None
    return result


SEARCHED: dict[str, Any] = {
    "one kernel": (Gaussian(1.0), 2, 1, squared_loss(True)),
    "a sum": (Separate(KERNELS), 3, 1, squared_loss(True)),
    "hinge": (Separate([Gaussian(1.0), Gaussian(1.0), Linear()]), 3, 1, convex_loss("squared_hinge", True)),
    "logistic": (Separate(KERNELS), 3, 1, convex_loss("logistic", True)),
    "two outputs": (Gaussian(1.0), 3, 2, squared_loss(True)),
}


@pytest.mark.parametrize(
    ("name", "outer"),
    tiers(
        itertools.product(SEARCHED, [Linear(), Polynomial(1, 0.5, 2.0)]),
        lambda case: case[0] in ("one kernel", "two outputs") or case == ("logistic", Linear()),
    ),
)
def test_no_long_search_ends_lower(name: str, outer: Any) -> None:
    kernel, size, outputs, loss = SEARCHED[name]
    targets = Y[:, :outputs] if loss.squared else np.sign(Y[:, :1])
    deep = problem(kernel, size, targets, loss, outer=outer)
    result = minimum(deep)
    assert deep.chain is not None
    starts = 0.5 * torch.randn(2, deep.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    searched = minimise(deep, starts, SearchSettings(max_iter=300, tol=1e-8))
    assert result.value <= searched.value * (1 + 1e-6)
    assert result.value == pytest.approx(searched.value, rel=1e-5)
    again = deep.value(result.point[None]).item()  # the point has the value that it is said to have
    assert again == pytest.approx(result.value, rel=1e-9)


def test_one_kernel_and_one_output_are_ridge_regression_with_a_penalty_that_is_known() -> None:
    """At the minimum f is a ridge fit whose alpha is √(αα₁)/‖f‖."""
    deep = problem(Gaussian(1.0), 2, Y[:, :1], squared_loss(False))
    outer, _, images, _ = deep.solve(minimum(deep).point)
    fitted = (images[-1] @ (images[-1].mT @ outer.coefficients)).numpy()
    K = Gaussian(1.0)(X).numpy()
    c = np.linalg.lstsq(K, fitted, rcond=1e-13)[0]
    alpha = np.sqrt(3e-3 * 2e-3) / np.sqrt((c.T @ K @ c).item())
    np.testing.assert_allclose(K @ np.linalg.solve(K + N * alpha * np.eye(N), Y[:, :1]), fitted, rtol=1e-4, atol=1e-6)


def test_a_large_penalty_holds_the_function_at_zero() -> None:
    deep = problem(Separate(KERNELS), 3, Y[:, :1], squared_loss(False), alpha=1e3)
    result = minimum(deep)
    assert not bool(result.point.any())
    assert result.value == pytest.approx(np.mean(Y[:, 0] ** 2))


def test_only_what_is_convex_is_taken_for_it() -> None:
    one, two = squared_loss(True), Y
    assert isinstance(convex_problem(problem(Separate(KERNELS), 3, Y[:, :1], one)), KernelWeights)
    assert isinstance(convex_problem(problem(Gaussian(1.0), 2, two, one)), SmallNuclearNorm)
    assert convex_problem(problem(Gaussian(1.0), 1, two, one)) is None  # of rank one: not convex
    assert convex_problem(problem(Separate(KERNELS), 3, two, one)) is None
    assert convex_problem(problem(Gaussian(1.0), 2, Y[:, :1], one, outer=Gaussian(1.0))) is None
    assert linear_terms(Polynomial(2)) is None
    assert linear_terms(Polynomial(1, "auto", 1.0)) is None
    composition = Composition([Layer(Decomposable(Linear()), 1, 1.0, penalty=torch.exp)], Decomposable(Linear()), 1.0)
    assert convex_problem(DeepProblem(composition, torch.from_numpy(X), torch.from_numpy(Y[:, :1]), one.fit())) is None


@pytest.mark.parametrize("least", [1e-9, 1e-3, 1.0, 1e5])
def test_the_scale_of_least_value(least: float) -> None:
    assert best_scale(lambda s: (np.log(s) - np.log(least)) ** 2) == pytest.approx(least)


def test_penalties_are_chosen_by_one_number() -> None:
    """A sum of two kernels of which one matters: the other gets hardly any weight; numbers that are given stay."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 3))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=100)
    layer = Layer(Separate([Gaussian([0.7, 1e6, 1e6]), Gaussian([1e6, 0.7, 0.7])]), 2)
    model = DeepKernelRegressor([layer], "linear", random_state=0).fit(X, y)
    assert model.alpha_ == pytest.approx(model.layers_[0].alpha)
    new = rng.normal(size=(300, 3))
    assert model.score(new, np.sin(2 * new[:, 0])) > 0.9
    images = model.transform_layers(X)[0]
    assert images[:, 1].std() < 0.2 * images[:, 0].std()
    given = DeepKernelRegressor([layer.replaced(alpha=0.01)], "linear", random_state=0).fit(X, y)
    assert given.layers_[0].alpha == 0.01
    np.testing.assert_allclose(given.predict(new), model.predict(new), atol=0.1)


@pytest.mark.parametrize("loss", tiers(["squared", "logistic", "hinge"], lambda loss: loss == "squared"))
def test_classes_by_a_sum_of_kernels(loss: str) -> None:
    labels = (Y[:, 0] > 0).astype(int)
    model = DeepKernelClassifier([(Separate([Gaussian(1.0), Linear()]), 2)], "linear", loss=loss, random_state=0)
    assert model.fit(X, labels).score(X, labels) > 0.85
