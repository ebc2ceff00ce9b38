"""Objectives of squared errors: targets in any Hilbert space, known as vectors or by their Gram matrix."""

from __future__ import annotations

from collections.abc import Callable

import naive_objectives as naive
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_objectives import (
    ALPHA,
    HELD_OUT,
    N,
    gaussian,
    gram_of,
    points,
    regression_targets,
    symmetric_directions,
)

from representer.objectives import (
    GeneralizedCrossValidation,
    HeldOut,
    Interpolation,
    LeaveOneOut,
    Objective,
    Ridge,
)

HILBERT: dict[str, Callable[..., Objective]] = {
    "ridge": lambda Y=None, **more: Ridge(Y, alpha=ALPHA, **more),
    "interpolation": Interpolation,
    "leave-one-out": lambda Y=None, **more: LeaveOneOut(Y, alpha=ALPHA, **more),
    "generalized cross-validation": lambda Y=None, **more: GeneralizedCrossValidation(Y, alpha=ALPHA, **more),
    "held-out": lambda Y=None, **more: HeldOut(Y, alpha=ALPHA, validation=HELD_OUT, **more),
}
every_hilbert = pytest.mark.parametrize("create", HILBERT.values(), ids=HILBERT)


@every_hilbert
@pytest.mark.parametrize("p", [1, 3, N, 40])
def test_target_gram_equals_vectors(create: Callable[..., Objective], p: int) -> None:
    Y = torch.as_tensor(np.random.default_rng(p).normal(size=(N, p)))
    K = torch.stack([gram_of(points(seed)) for seed in range(2)])
    vectors, elements = create(Y).evaluate(K), create(target_gram=Y @ Y.mT).evaluate(K)
    torch.testing.assert_close(elements.value, vectors.value, rtol=1e-8, atol=0.0)
    torch.testing.assert_close(elements.gram_gradient, vectors.gram_gradient, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(elements.alpha_gradient, vectors.alpha_gradient, rtol=1e-7, atol=1e-9)
    assert elements.dual is not None
    torch.testing.assert_close(elements.dual @ Y, vectors.dual, rtol=1e-6, atol=1e-8)


@every_hilbert
def test_vectors_and_rotated_vectors_are_the_same(create: Callable[..., Objective]) -> None:
    Y, K = regression_targets(), gram_of(points())
    Q = torch.linalg.qr(torch.as_tensor(np.random.default_rng(0).normal(size=(2, 2)))).Q
    torch.testing.assert_close(create(Y @ Q)(K), create(Y)(K))


@every_hilbert
def test_one_dimensional_targets(create: Callable[..., Objective]) -> None:
    y, K = regression_targets()[:, 0], gram_of(points())
    flat, column = create(y.numpy()).evaluate(K), create(y[:, None]).evaluate(K)
    torch.testing.assert_close(flat.value, column.value)
    assert flat.dual is not None
    assert flat.dual.shape == (N, 1)


@every_hilbert
def test_gradient_for_targets_in_an_infinite_dimensional_space(create: Callable[..., Objective]) -> None:
    objective, K = create(target_gram=gaussian(points(5))), gram_of(points())
    gradient = objective.evaluate(K).gram_gradient
    assert gradient is not None
    D = symmetric_directions(1)[0]
    h = 1e-5 / D.norm()
    numerical = (objective(K + h * D) - objective(K - h * D)) / (2 * h)
    assert numerical.item() == pytest.approx((gradient * D).sum().item(), rel=1e-6)


def test_leave_one_out_in_an_infinite_dimensional_space() -> None:
    K, G = gram_of(points()), gaussian(points(5))
    expected = naive.leave_one_out_of_elements(K.numpy(), G.numpy(), ALPHA)
    assert LeaveOneOut(target_gram=G, alpha=ALPHA)(K).item() == pytest.approx(expected, rel=1e-10)


def test_targets_are_given_once() -> None:
    Y = regression_targets()
    with pytest.raises(ValueError, match="got both"):
        Ridge(Y, target_gram=Y @ Y.mT, alpha=0.1)
    with pytest.raises(ValueError, match="got neither"):
        Ridge(alpha=0.1)
    with pytest.raises(ValueError, match="must be square"):
        Ridge(target_gram=Y, alpha=0.1)
    with pytest.raises(ValueError, match="positive semi-definite"):
        Ridge(target_gram=torch.diag(torch.linspace(-1, 1, N)), alpha=0.1)
    with pytest.raises(ValueError, match=r"array \(n,\) or \(n, p\)"):
        Ridge(torch.zeros(2, 3, 4), alpha=0.1)
    with pytest.raises(ValueError, match="alpha > 0"):
        Ridge(Y, alpha=0.0)


@given(n=st.integers(1, 9), p=st.integers(1, 12), batch=st.lists(st.integers(1, 3), max_size=2))
def test_ridge_and_leave_one_out_of_any_shape(n: int, p: int, batch: list[int]) -> None:
    rng = np.random.default_rng(n + 10 * p)
    B, Y = rng.normal(size=(*batch, n, 4)), rng.normal(size=(n, p))
    K = B @ np.swapaxes(B, -1, -2)
    for objective, oracle in (
        (Ridge(Y, alpha=0.2), naive.ridge),
        (LeaveOneOut(Y, alpha=0.2), naive.leave_one_out),
    ):
        evaluation = objective.evaluate(torch.as_tensor(K))
        assert evaluation.value.shape == tuple(batch)
        assert evaluation.dual is not None
        assert evaluation.dual.shape == (*batch, n, p)
        for index in np.ndindex(*batch):
            assert evaluation.value[index].item() == pytest.approx(oracle(K[index], Y, 0.2), rel=1e-8)
