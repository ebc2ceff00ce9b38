"""Ridge, interpolation and the separation penalty."""

from __future__ import annotations

import math

import naive_intercept
import naive_objectives as naive
import numpy as np
import pytest
import torch
from naive_objectives import ALPHA, N, gram_of, points, regression_targets
from sklearn.kernel_ridge import KernelRidge

from representer.objectives import Interpolation, Ridge, separation_penalty
from representer.systems.scalar import DenseSystem


def test_ridge_equals_kernel_ridge() -> None:
    K, Y = gram_of(points()), regression_targets()
    dual = Ridge(Y, alpha=ALPHA).evaluate(K).dual
    peer = KernelRidge(alpha=N * ALPHA, kernel="precomputed").fit(K.numpy(), Y.numpy())
    torch.testing.assert_close(dual, torch.as_tensor(peer.dual_coef_), rtol=1e-10, atol=1e-12)


def test_ridge_is_equation_19_of_bohn() -> None:
    """Theirs is a sum of losses: n times ours with λ = n·alpha, and it collapses to λ yᵀ(M + λI)⁻¹y."""
    K, y = gram_of(points()), regression_targets()[:, 0]
    lam = N * ALPHA
    printed = naive.bohn_equation_19(K.numpy(), y.numpy(), lam)
    collapsed = lam * y @ torch.linalg.solve(K + lam * torch.eye(N, dtype=torch.float64), y)
    assert N * Ridge(y, alpha=ALPHA)(K).item() == pytest.approx(printed, rel=1e-12)
    assert collapsed.item() == pytest.approx(printed, rel=1e-12)


def test_ridge_tends_to_interpolation_and_to_the_mean_square() -> None:
    K, Y = gram_of(points()), regression_targets()
    assert (Ridge(Y, alpha=1e-12)(K) / 1e-12).item() == pytest.approx(Interpolation(Y)(K).item(), rel=1e-6)
    mean_square = Y.square().sum() / N
    assert Ridge(Y, alpha=1e9)(K).item() == pytest.approx(mean_square.item(), rel=1e-8)


def test_interpolation_interpolates() -> None:
    K, Y = gram_of(points()), regression_targets()
    evaluation = Interpolation(Y).evaluate(K)
    assert evaluation.dual is not None
    assert evaluation.gram_gradient is not None
    torch.testing.assert_close(K @ evaluation.dual, Y)
    torch.testing.assert_close((evaluation.gram_gradient * K).sum(), -evaluation.value)  # of degree −1 in K


@pytest.mark.parametrize("known_by", ["targets", "target_gram"])
def test_contradicting_duplicates_are_named(known_by: str) -> None:
    X, Y = points(), regression_targets()
    X[9] = X[4]
    given_as = {"targets": Y, "target_gram": Y @ Y.mT}
    with pytest.raises(ValueError, match="rows 4 and 9"):
        Interpolation(**{known_by: given_as[known_by]})(gram_of(X))


@pytest.mark.parametrize("known_by", ["targets", "target_gram"])
def test_agreeing_duplicates_interpolate(known_by: str) -> None:
    X, Y = points(), regression_targets()
    X[9], Y[9] = X[4], Y[4]
    kept = [i for i in range(N) if i != 9]
    given_as = {"targets": Y, "target_gram": Y @ Y.mT}
    value = Interpolation(**{known_by: given_as[known_by]})(gram_of(X))
    torch.testing.assert_close(value, Interpolation(Y[kept])(gram_of(X[kept])), rtol=1e-6, atol=0.0)


def test_separation_penalty_equals_double_loop() -> None:
    Z = torch.stack([points(0), 0.1 * points(1), 5 * points(2)])
    expected = [naive.separation_penalty(z.numpy()) for z in Z]
    torch.testing.assert_close(separation_penalty(Z), torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(separation_penalty, (0.5 * points()).requires_grad_())


@pytest.mark.parametrize("distance", [1e-7, 1e-3, 1.0, 1e3, 1e150])
def test_separation_penalty_of_near_and_far_points(distance: float) -> None:
    """coth(x) = 1/x + x/3 − …, and its derivative −1/sinh²(x), without overflow or cancellation."""
    Z = torch.tensor([[1.0, 0.0], [1.0, distance]], dtype=torch.float64, requires_grad=True)
    value = separation_penalty(Z)
    value.backward()
    x = distance**2
    assert Z.grad is not None
    assert value.item() == pytest.approx(1 / math.tanh(x), rel=1e-12)
    slope = 0.0 if x > 300 else -1 / math.sinh(x) ** 2
    assert Z.grad[1, 1].item() == pytest.approx(2 * distance * slope, rel=1e-9)


def test_separation_penalty_of_coincident_points_is_infinite() -> None:
    Z = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    value = separation_penalty(Z)
    assert value.item() == math.inf
    value.backward()
    assert Z.grad is not None
    assert bool(torch.isfinite(Z.grad).all())


def test_interpolation_with_separation_is_equation_15() -> None:
    Z, Y = points().requires_grad_(), regression_targets()
    plain, penalised = Interpolation(Y), Interpolation(Y, separation=0.3)
    value = penalised(gram_of(Z), points=Z)
    torch.testing.assert_close(value, plain(gram_of(Z)) + 0.3 * separation_penalty(Z))
    assert torch.autograd.gradcheck(lambda Z: penalised(gram_of(Z), points=Z), Z, rtol=1e-4)
    with pytest.raises(ValueError, match="pass points="):
        penalised(gram_of(Z))
    with pytest.raises(ValueError, match="separation must be finite"):
        Interpolation(Y, separation=-1.0)


def test_ridge_with_an_intercept_attains_its_value() -> None:
    """At the solution of the bordered system (W 1; 1ᵀ 0)(dual; b) = (Y; 0)."""
    K, Y = gram_of(points()), 5.0 + regression_targets()
    evaluation = Ridge(Y, alpha=ALPHA, intercept=True).evaluate(K)
    bordered = np.ones((N + 1, N + 1))
    bordered[:N, :N], bordered[N, N] = K.numpy() + N * ALPHA * np.eye(N), 0.0
    solution = torch.as_tensor(np.linalg.solve(bordered, np.vstack([Y.numpy(), np.zeros((1, 2))])))
    torch.testing.assert_close(evaluation.dual, solution[:N])
    torch.testing.assert_close(evaluation.intercept, solution[N])
    assert evaluation.dual is not None
    f = K @ evaluation.dual
    primal = (Y - f - evaluation.intercept).square().sum() / N + ALPHA * (evaluation.dual * f).sum()
    torch.testing.assert_close(evaluation.value, primal)


def test_ridge_with_an_intercept_is_a_kernel_plus_a_large_constant() -> None:
    K, Y = gram_of(points()), regression_targets()
    limit = Ridge(Y, alpha=ALPHA)(K + 1e8)
    torch.testing.assert_close(Ridge(Y, alpha=ALPHA, intercept=True)(K), limit, rtol=1e-6, atol=0.0)


def test_interpolation_with_an_intercept_interpolates_with_the_least_norm() -> None:
    K, Y = gram_of(points()), 5.0 + regression_targets()
    objective = Interpolation(Y, intercept=True)
    evaluation = objective.evaluate(K)
    assert evaluation.dual is not None
    torch.testing.assert_close(K @ evaluation.dual + evaluation.intercept, Y)
    torch.testing.assert_close(evaluation.value, (evaluation.dual * (K @ evaluation.dual)).sum())
    for b in (evaluation.intercept, evaluation.intercept + 1e-3, evaluation.intercept - 1e-3):
        assert Interpolation(Y - b)(K) >= evaluation.value * (1 - 1e-12)
    ridge = Ridge(Y, alpha=1e-12, intercept=True)(K) / 1e-12
    assert ridge.item() == pytest.approx(evaluation.value.item(), rel=1e-6)
    assert naive_intercept.interpolation(np.linalg.cholesky(K.numpy()), Y.numpy()) == pytest.approx(
        evaluation.value.item(), rel=1e-9
    )


def test_interpolation_with_an_intercept_names_contradictions() -> None:
    X, Y = points(), regression_targets()
    X[9] = X[4]
    with pytest.raises(ValueError, match="rows 4 and 9"):
        Interpolation(Y, intercept=True)(gram_of(X))


@pytest.mark.parametrize("intercept", [False, True])
def test_a_system_solves_the_same_before_and_after_its_inverse_is_known(intercept: bool) -> None:
    """Once the inverse is known, solutions are products with it."""
    K, Y = gram_of(points()), regression_targets()
    system = DenseSystem(K, K.new_tensor(0.1), intercept=intercept)
    before = system.solve(Y)
    P = system.unit_coefficients
    torch.testing.assert_close(P @ Y, before, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(system.solve(Y), before, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(system.diagonal(), P.diagonal())
