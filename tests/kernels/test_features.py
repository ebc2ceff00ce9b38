"""Explicit features as tensors: φ(x)ᵀφ(y) is the kernel, with its derivatives, wherever ``features`` gives some."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from representer.kernels import (
    Constant,
    Edit,
    Functional,
    Gaussian,
    Kernel,
    Linear,
    Neural,
    Parallel,
    Polynomial,
    Pullback,
    Spectrum,
)
from representer.operators.adapted import Adapted

X = torch.rand(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WORDS = ["abc", "bca", "aab"]
NETWORK = torch.nn.Linear(3, 2).double()

FEW: list[tuple[Kernel, int]] = [
    (Linear(), 3),
    (Constant(2.0), 1),
    (Polynomial(1, gamma=0.5, coef0=2.0), 4),
    (Polynomial(3, gamma=0.5, coef0=2.0), math.comb(6, 3)),
    (2.0 * Linear() + 0.5, 4),
    (3.0 * (Polynomial(2) + Linear()), 13),
    (Parallel(Linear()), 3),
    (Pullback(Linear(), lambda points: points**2), 3),
    (Neural(NETWORK, Linear() + 1.0), 3),
    (Functional(Linear()), 3),
    (Adapted(Linear(), torch.float64), 3),
]


@pytest.mark.parametrize(("kernel", "size"), FEW, ids=lambda value: repr(value)[:50])
def test_features_are_a_factor_of_the_gram_matrix(kernel: Kernel, size: int) -> None:
    features = kernel.features(X)
    assert features is not None
    assert features.shape == (len(X), size)
    assert kernel.n_features(X) == size
    torch.testing.assert_close(features @ features.mT, kernel._gram(X, None), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "data"),
    [
        (Gaussian(1.0), X),
        (Linear() + Gaussian(1.0), X),
        (2.0 * Gaussian(1.0), X),
        (Linear() * Linear(), X),
        (Edit(1.0), WORDS),
        (Spectrum(2), WORDS),
        (Spectrum(2) + 1.0, WORDS),
        (Functional(Linear(), interval=(0.0, 1.0), domain="objects"), [([0.0, 1.0], [1.0, 2.0])]),
        (Polynomial(20), torch.ones(2, 30, dtype=torch.float64)),
    ],
    ids=lambda value: repr(value)[:50] if isinstance(value, Kernel) else "",
)
def test_other_kernels_have_none(kernel: Kernel, data: Any) -> None:
    assert kernel.features(data) is None
    assert kernel.n_features(data) is None


def test_features_of_a_batch() -> None:
    points = torch.stack([X, 2.0 * X])
    kernel = Polynomial(2, gamma=torch.tensor([0.5, 2.0], dtype=torch.float64)[:, None, None]) + 1.0
    features = kernel.features(points)
    assert features is not None
    torch.testing.assert_close(features @ features.mT, kernel._gram(points, None))
    assert kernel.n_features(points) == features.shape[-1]


def test_gradients_are_those_of_the_gram_matrix() -> None:
    values = {name: torch.tensor(v).double().requires_grad_() for name, v in (("gamma", 0.7), ("coef0", 1.3))}
    kernel = Polynomial(3).replace(values)
    points = X.clone().requires_grad_()
    features = kernel.features(points)
    assert features is not None
    weights = torch.rand(7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inputs = (points, *values.values())
    first = torch.autograd.grad((weights * (features @ features.mT)).sum(), inputs)
    second = torch.autograd.grad((weights * kernel._gram(points, None)).sum(), inputs)
    torch.testing.assert_close(first, second)


def test_polynomials_have_explicit_features_for_linear_models() -> None:
    features = Polynomial(2, gamma=0.5).explicit_features(X.numpy())
    assert list(features.columns) == list(range(10))
    torch.testing.assert_close(torch.from_numpy(features.matrix @ features.matrix.T), Polynomial(2, gamma=0.5)(X))
