"""Huber's loss, fits without an intercept, warm starts, custom losses and penalties, losses on held-out rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from itertools import pairwise

import naive_objectives as naive
import numpy as np
import pytest
import torch
from naive_objectives import (
    ALPHA,
    HELD_OUT,
    N,
    binary_targets,
    gram_of,
    one_hot_targets,
    points,
    regression_targets,
    symmetric_directions,
)
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from tiers import tiers
from torch import Tensor

from representer.objectives import (
    CustomLoss,
    EpsilonInsensitive,
    HeldOutLoss,
    Hinge,
    Huber,
    Logistic,
    NotConvergedError,
    Objective,
    Ridge,
    SquaredHinge,
)
from representer.objectives import convex as convex_module
from representer.objectives.convex import ConvexLoss
from representer.objectives.risk import SoftmaxCrossEntropy

SMOOTH: dict[str, Callable[..., ConvexLoss]] = {
    "huber": lambda **k: Huber(regression_targets(), alpha=ALPHA, delta=0.3, **k),
    "squared hinge": lambda **k: SquaredHinge(binary_targets(), alpha=ALPHA, **k),
    "logistic": lambda **k: Logistic(binary_targets()[:, 0], alpha=ALPHA, **k),
    "softmax": lambda **k: Logistic(one_hot_targets(), alpha=ALPHA, **k),
}
LOSSES = {
    **{f"{name}, intercept={b}": lambda f=f, b=b: f(intercept=b) for name, f in SMOOTH.items() for b in (True, False)},
    "hinge": lambda: Hinge(binary_targets(), alpha=ALPHA),
    "epsilon-insensitive": lambda: EpsilonInsensitive(regression_targets(), alpha=ALPHA),
}
every_smooth_loss = pytest.mark.parametrize("make", SMOOTH.values(), ids=SMOOTH)
every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)


def squared(F: Tensor, Y: Tensor) -> Tensor:
    return (F - Y).square().sum() / len(Y)


# --- without an intercept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "targets", "loss"),
    [
        ("huber", regression_targets, lambda Y, F: naive.huber_loss(Y, F, 0.3)),
        ("squared hinge", binary_targets, naive.squared_hinge_loss),
        ("logistic", lambda: binary_targets()[:, :1], naive.logistic_loss),
        ("softmax", one_hot_targets, naive.softmax_loss),
    ],
)
def test_fit_without_intercept_equals_oracle(
    name: str, targets: Callable[[], Tensor], loss: Callable[..., float]
) -> None:
    K, Y = gram_of(points()), targets().numpy()
    evaluation = SMOOTH[name](intercept=False).evaluate(K)
    expected = naive.primal_minimum(K.numpy(), lambda F: loss(Y, F), ALPHA, n_columns=Y.shape[1], intercept=False)
    assert evaluation.value.item() == pytest.approx(expected, rel=1e-8)
    assert evaluation.intercept is None


@pytest.mark.parametrize("create", [Hinge, EpsilonInsensitive])
def test_libsvm_cannot_leave_the_intercept_out(create: Callable[..., Objective]) -> None:
    with pytest.raises(ValueError, match=r"always fits an intercept.*squared_hinge.*huber"):
        create(binary_targets(), alpha=ALPHA, intercept=False)


def test_a_missing_class_needs_a_fit_without_intercept() -> None:
    Y = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0]])
    with pytest.raises(ValueError, match="intercept=False"):
        Logistic(Y, alpha=0.1)
    assert torch.isfinite(Logistic(Y, alpha=0.1, intercept=False)(torch.eye(3, dtype=torch.float64)))
    assert torch.isfinite(Logistic([1, 1, 1], alpha=0.1, intercept=False)(torch.eye(3, dtype=torch.float64)))


# --- Huber -----------------------------------------------------------------------------------------------------------


def test_wide_huber_is_ridge() -> None:
    K, Y = gram_of(points()), regression_targets()
    ours = Huber(Y, alpha=ALPHA, delta=1e3, intercept=False).evaluate(K)
    ridge = Ridge(Y, alpha=ALPHA).evaluate(K)
    torch.testing.assert_close(ours.value, ridge.value)
    torch.testing.assert_close(ours.dual, ridge.dual)


def test_huber_follows_shift_and_scale_of_the_targets() -> None:
    K, Y = gram_of(points()), regression_targets()
    fit = Huber(Y, alpha=ALPHA, delta=0.2).evaluate(K)
    moved = Huber(1e6 * Y + 1e8, alpha=ALPHA, delta=2e5).evaluate(K)
    assert fit.dual is not None
    assert fit.intercept is not None
    torch.testing.assert_close(moved.value, 1e12 * fit.value)
    torch.testing.assert_close(moved.dual, 1e6 * fit.dual, rtol=1e-6, atol=1e-2)
    torch.testing.assert_close(moved.intercept, 1e6 * fit.intercept + 1e8)


def test_an_outlier_has_bounded_influence() -> None:
    K, Y = gram_of(points()), regression_targets()[:, 0]
    fits = []
    for size in (1e2, 1e6):
        Y[3] = size
        fits.append(Huber(Y, alpha=ALPHA, delta=0.2).evaluate(K))
    torch.testing.assert_close(fits[0].dual, fits[1].dual)
    assert fits[0].dual is not None
    assert fits[0].dual[3].item() == pytest.approx(2 * 0.2 / (2 * N * ALPHA))


@pytest.mark.parametrize(
    ("alpha", "delta"),
    tiers(
        itertools.product([10.0, 1e-3, 1e-6, 1e-9], [1e-4, 1e-2, 1.0]),
        lambda case: case in ((10.0, 1.0), (1e-3, 1e-2), (1e-9, 1e-4)),
    ),
)
def test_huber_converges_from_absolute_to_squared_loss(alpha: float, delta: float) -> None:
    n = 60
    Y = 3 * regression_targets(n) + 100
    for lengthscale in (0.1, 1.0, 10.0):
        for intercept in (True, False):
            objective = Huber(Y, alpha=alpha, delta=delta, intercept=intercept)
            assert torch.isfinite(objective(gram_of(points(1, n), lengthscale)))


@pytest.mark.parametrize("y", [[0.0, 0.0, 5.0], [0.0, 5.0], [-4.0, 1.0, 1.1, 9.0]])
def test_huber_finds_the_constant_where_no_error_is_small(y: list[float]) -> None:
    """With a huge alpha only b is left: the value is that of the best constant."""
    constants = np.linspace(-5, 10, 150_001)[:, None]
    losses = [naive.huber_loss(np.array(y), np.full(len(y), b), 0.1) for b in constants[::50, 0]]
    value = Huber(y, alpha=1e9, delta=0.1)(torch.eye(len(y), dtype=torch.float64)).item()
    assert value == pytest.approx(min(losses), rel=1e-5)


@pytest.mark.parametrize("delta", [0.0, -1.0, math.inf, math.nan])
def test_bad_delta_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="units of the targets"):
        Huber([1.0, 2.0], alpha=1.0, delta=delta)


# --- warm starts -----------------------------------------------------------------------------------------------------


@pytest.fixture
def count_factorisations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of factorisations of each solve."""
    counts: list[int] = []
    solve = convex_module.damped_newton

    def counted(gram: Tensor, starts: list[tuple[Tensor, Tensor]], *, curvature: Callable[..., object], **rest):  # type: ignore[no-untyped-def]
        counts.append(0)

        def count(F: Tensor) -> object:
            counts[-1] += 1
            return curvature(F)

        return solve(gram, starts, curvature=count, **rest)

    monkeypatch.setattr(convex_module, "damped_newton", counted)
    return counts


@every_smooth_loss
def test_a_similar_problem_starts_warm(make: Callable[..., ConvexLoss], count_factorisations: list[int]) -> None:
    objective, X = make(), points()
    objective(gram_of(X))
    cold = sum(count_factorisations)
    count_factorisations.clear()
    objective(gram_of(X))
    assert sum(count_factorisations) == 0  # the same problem: nothing to do
    K = gram_of(X, 1.001)
    warm = objective.evaluate(K)
    assert sum(count_factorisations) < cold
    assert max(count_factorisations) <= 2
    fresh = make().evaluate(K)
    torch.testing.assert_close(warm.value, fresh.value, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(warm.dual, fresh.dual, rtol=1e-8, atol=1e-9)


@every_smooth_loss
def test_memory_of_another_problem_does_no_harm(make: Callable[..., ConvexLoss]) -> None:
    objective = make()
    problems = [(lengthscale, alpha) for lengthscale in (0.1, 10.0, 1.0) for alpha in (1e-6, 10.0, 1e-3)]
    for before, now in pairwise(problems):
        for lengthscale, alpha in (before, now):
            K = gram_of(points(), lengthscale)
            warm, cold = objective.evaluate(K, alpha=alpha), make().evaluate(K, alpha=alpha)
            torch.testing.assert_close(warm.value, cold.value, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(warm.dual, cold.dual, rtol=1e-5, atol=1e-9 / alpha)


def test_a_member_that_fails_leaves_no_trace() -> None:
    objective = Logistic(one_hot_targets(), alpha=ALPHA)
    K = torch.stack([gram_of(points()), gram_of(points(1))])
    good = objective(K)
    bad = K.clone()
    bad[0, 0, 0] = torch.nan
    assert torch.isnan(objective(bad)).tolist() == [True, False]
    torch.testing.assert_close(objective(K), good)


# --- held-out rows ---------------------------------------------------------------------------------------------------


@every_loss
def test_held_out_loss_equals_a_refit(make: Callable[[], ConvexLoss]) -> None:
    K, loss = gram_of(points()), make()
    train = torch.tensor([i for i in range(N) if i not in HELD_OUT])
    objective = HeldOutLoss(loss, validation=HELD_OUT)
    refit = loss.on_rows(train).evaluate(K[train][:, train])
    assert refit.dual is not None
    F = K[HELD_OUT][:, train] @ refit.dual + (0 if refit.intercept is None else refit.intercept)
    Y = loss.targets[HELD_OUT].numpy()
    expected = {
        Huber: lambda F: naive.huber_loss(Y, F, 0.3),
        SquaredHinge: lambda F: naive.squared_hinge_loss(Y, F),
        Hinge: lambda F: naive.hinge_loss(Y, F),
        EpsilonInsensitive: lambda F: naive.epsilon_insensitive_loss(Y, F, 0.1),
        Logistic: lambda F: naive.softmax_loss(Y, F) if Y.shape[1] > 1 else naive.logistic_loss(2 * Y - 1, F),
    }[type(loss)](F.numpy())
    evaluation = objective.evaluate(K)
    assert evaluation.value.item() == pytest.approx(expected, rel=1e-7)
    assert evaluation.dual is not None
    assert not evaluation.dual[HELD_OUT].any()
    torch.testing.assert_close(evaluation.dual[train], refit.dual, rtol=1e-7, atol=1e-8)
    assert (evaluation.intercept is None) == (refit.intercept is None)


@every_loss
def test_held_out_gradients_equal_finite_differences(make: Callable[[], ConvexLoss]) -> None:
    K, mask = gram_of(points()), torch.zeros(N, dtype=torch.bool)
    mask[HELD_OUT] = True
    objective = HeldOutLoss(make(), validation=mask)
    evaluation = objective.evaluate(K)
    assert evaluation.gram_gradient is not None
    assert evaluation.alpha_gradient is not None
    assert evaluation.gram_gradient.norm() > 0.01
    for D in symmetric_directions(4):
        h = 1e-5 / D.norm()
        numerical = (objective(K + h * D) - objective(K - h * D)) / (2 * h)
        exact = (evaluation.gram_gradient * D).sum()
        assert abs(numerical - exact) <= 1e-6 * max(abs(exact), 0.01 * evaluation.gram_gradient.norm() * D.norm())
    h = 1e-5 * ALPHA
    numerical = (objective(K, ALPHA + h) - objective(K, ALPHA - h)) / (2 * h)
    assert evaluation.alpha_gradient.item() == pytest.approx(numerical.item(), rel=1e-6)


def test_held_out_loss_of_a_fit_that_nothing_moves() -> None:
    """All errors in the tube: no support vector is free, and only the validation rows feel a change."""
    K = gram_of(points())
    evaluation = HeldOutLoss(
        EpsilonInsensitive(regression_targets(), alpha=ALPHA, epsilon=10.0), validation=HELD_OUT
    ).evaluate(K)
    assert evaluation.value.item() == 0.0
    assert evaluation.gram_gradient is not None
    assert not evaluation.gram_gradient.any()


def test_held_out_loss_refuses_what_it_cannot_hold_out() -> None:
    with pytest.raises(TypeError, match="use HeldOut"):
        HeldOutLoss(Ridge(regression_targets(), alpha=1.0), validation=[0])  # type: ignore[arg-type]
    loss = Logistic([0, 1, 1], alpha=1.0)
    with pytest.raises(ValueError, match=r"no sample.*stratify"):
        HeldOutLoss(loss, validation=[0])
    with pytest.raises(ValueError, match="row numbers"):
        HeldOutLoss(loss, validation=[3])


# --- custom losses ---------------------------------------------------------------------------------------------------


def test_custom_squared_loss_is_ridge() -> None:
    K, Y = gram_of(points()), regression_targets()
    ours, ridge = (f.evaluate(K) for f in (CustomLoss(squared, Y, penalty=ALPHA), Ridge(Y, alpha=ALPHA)))
    for field in ("value", "gram_gradient", "alpha_gradient", "dual"):
        torch.testing.assert_close(getattr(ours, field), getattr(ridge, field), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [1e-1, 1e-3, 1e-5])
def test_custom_cross_entropy_is_logistic(alpha: float) -> None:
    n = 40
    K, Y = gram_of(points(n=n)), one_hot_targets(n)
    custom = CustomLoss(
        lambda F, Y: torch.nn.functional.cross_entropy(F, Y), Y, penalty=alpha, intercept=True
    ).evaluate(K)
    newton = Logistic(Y, alpha=alpha).evaluate(K)
    torch.testing.assert_close(custom.value, newton.value)
    torch.testing.assert_close(custom.dual, newton.dual, rtol=1e-5, atol=1e-7 / alpha)
    assert custom.dual is not None
    assert custom.intercept is not None
    F = K @ custom.dual + custom.intercept
    assert newton.dual is not None
    expected = K @ newton.dual + newton.intercept
    torch.testing.assert_close(F - F.mean(1, keepdim=True), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("penalty", [lambda s: 0.1 * s**2, lambda s: torch.expm1(0.05 * s), lambda s: (1 + s).sqrt()])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_penalty_is_ridge_with_its_own_alpha(penalty: Callable[[Tensor], Tensor], intercept: bool) -> None:
    """Stationarity: the solution is that of Θ(s) = αs with α = Θ′(‖f‖²)."""
    K, Y = gram_of(points()), regression_targets()
    ours = CustomLoss(squared, Y, penalty=penalty, intercept=intercept).evaluate(K)
    assert ours.dual is not None
    assert ours.alpha_gradient is None
    s = (ours.dual * (K @ ours.dual)).sum().requires_grad_()
    (slope,) = torch.autograd.grad(penalty(s), s)
    ridge = Huber(Y, alpha=slope.item(), delta=1e3, intercept=intercept).evaluate(K)
    torch.testing.assert_close(ours.dual, ridge.dual, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(ours.intercept, ridge.intercept, rtol=1e-6, atol=1e-7)


def test_custom_gradient_knows_directions_outside_the_range_of_the_gram_matrix() -> None:
    X, Y = points(), regression_targets()
    K = X @ X.mT  # of rank 3
    objective = CustomLoss(squared, Y, penalty=lambda s: ALPHA * s**1.5, intercept=True)
    gradient = objective.evaluate(K).gram_gradient
    assert gradient is not None
    d = torch.as_tensor(np.random.default_rng(3).normal(size=(N, 1)))
    h = 1e-6
    one_sided = (-3 * objective(K) + 4 * objective(K + h * d @ d.mT) - objective(K + 2 * h * d @ d.mT)) / (2 * h)
    assert one_sided.item() == pytest.approx((gradient * (d @ d.mT)).sum().item(), rel=1e-5)


def test_a_constant_gram_matrix_and_zeros_leave_the_intercept() -> None:
    Y = regression_targets()
    for K in (torch.zeros(N, N, dtype=torch.float64), torch.ones(N, N, dtype=torch.float64)):
        evaluation = CustomLoss(squared, Y, penalty=ALPHA, intercept=True).evaluate(K)
        assert evaluation.value.item() == pytest.approx(((Y - Y.mean(0)) ** 2).sum().item() / N, rel=1e-9)


def test_zero_targets_give_the_zero_function_whatever_the_penalty() -> None:
    evaluation = CustomLoss(squared, torch.zeros(N), penalty=lambda s: s**2).evaluate(gram_of(points()))
    assert evaluation.dual is not None
    assert evaluation.gram_gradient is not None
    assert not evaluation.dual.any()
    assert not evaluation.gram_gradient.any()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda F, Y: ((F - Y) ** 2).sum() * math.nan, "at f = 0 is nan.*must be finite"),
        (lambda F, Y: (F - Y).sum() / F.sum(), "must be finite"),
        (lambda F, Y: F.square().sum().sqrt(), "largest derivative of nan"),
        (lambda F, Y: (F - Y) ** 2, r"one number, got shape \(14, 2\).*\.mean\(\)"),
        (lambda F, Y: 1.0, "got float"),
        (lambda F, Y: ((F.detach() - Y) ** 2).sum(), "does not depend on its argument"),
        (lambda F, Y: torch.tensor(((F - Y) ** 2).sum().item()), "no .item"),
    ],
)
def test_bad_custom_losses_are_refused(function: Callable[[Tensor, Tensor], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CustomLoss(function, regression_targets(), penalty=ALPHA)


@pytest.mark.parametrize(
    ("penalty", "message"),
    [
        (lambda s: -s, "must increase strictly"),
        (lambda s: 0.1 * s - s**2, "must increase strictly"),
        (lambda s: 0.0 * s, "must increase strictly"),
        (lambda s: s.sqrt(), "penalty at ‖f‖² = 0"),
        (lambda s: torch.stack([s, s]), "one number"),
        (lambda s: s.item(), "got float"),
        (0.0, "alpha > 0"),
        (-1.0, "alpha > 0"),
    ],
)
def test_bad_penalties_are_refused(penalty: float | Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CustomLoss(squared, regression_targets(), penalty=penalty)(gram_of(points()))


def test_a_custom_loss_without_minimum_says_so() -> None:
    objective = CustomLoss(lambda F, Y: -((F - Y) ** 2).sum(), regression_targets(), penalty=ALPHA)
    K = gram_of(points())
    with pytest.raises(NotConvergedError, match="not minimised"):
        objective(K)
    assert torch.isnan(objective(K[None])).all()


def test_a_custom_loss_that_breaks_on_the_way_is_stepped_around() -> None:
    """log F is NaN for F ≤ 0: a step too long, not an error."""
    K, Y = gram_of(points()), 2.0 + regression_targets().abs()
    evaluation = CustomLoss(lambda F, Y: (F - Y * torch.log(F + 0.1)).mean(), Y, penalty=ALPHA).evaluate(K)
    assert evaluation.dual is not None
    F = K @ evaluation.dual
    residual = -(1 - Y / (F + 0.1)) / F.numel()
    torch.testing.assert_close(2 * ALPHA * evaluation.dual, residual, rtol=1e-6, atol=1e-8)


# -- the softmax with a scale -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("gain", [0.0, 0.3, -1.0, 100.0])  # what decisions say of the labels: nothing, the opposite …
@pytest.mark.parametrize("k", [2, 5])
def test_softmax_cross_entropy_is_the_least_over_its_scale(gain: float, k: int) -> None:
    rng = np.random.default_rng(k)
    Y = np.eye(k)[rng.integers(k, size=40)]
    F = rng.standard_normal((40, k)) + gain * Y
    loss = SoftmaxCrossEntropy()
    targets = (40 * Y + 1) / (40 + k)

    def entropy(tau: float, F: np.ndarray = F) -> float:
        logits = tau * np.arcsinh(F / loss.delta)
        return float(np.mean(logsumexp(logits, axis=1) - (targets * logits).sum(1)))

    best = minimize_scalar(lambda log_tau: entropy(np.exp(log_tau)), bounds=(-30, 10), method="bounded")
    value, slope = loss(torch.from_numpy(F), torch.from_numpy(Y))
    assert value.item() <= best.fun + 1e-12
    tau = loss.scale(torch.from_numpy(F), torch.from_numpy(Y))
    assert value.item() == pytest.approx(entropy(tau), rel=1e-12)
    for i, j in ((0, 0), (7, 1), (39, k - 1)):  # the envelope theorem: at fixed tau
        step = np.zeros_like(F)
        step[i, j] = 1e-6
        difference = (entropy(tau, F + step) - entropy(tau, F - step)) / 2e-6
        assert slope[i, j].item() == pytest.approx(difference, abs=1e-8)


def test_softmax_cross_entropy_of_a_batch() -> None:
    rng = np.random.default_rng(0)
    Y = torch.from_numpy(np.eye(3)[rng.integers(3, size=10)])
    F = torch.from_numpy(rng.standard_normal((2, 4, 10, 3))).float()
    value, slope = SoftmaxCrossEntropy()(F, Y)
    assert value.shape == (2, 4) and slope.shape == F.shape and value.dtype == slope.dtype == torch.float32
    one, its_slope = SoftmaxCrossEntropy()(F[1, 2], Y)
    assert torch.equal(value[1, 2], one) and torch.equal(slope[1, 2], its_slope)


def test_softmax_cross_entropy_lets_nan_through() -> None:
    Y = torch.eye(3, dtype=torch.float64)
    value, slope = SoftmaxCrossEntropy()(Y.clone().fill_(torch.nan), Y)
    assert bool(value.isnan()) and bool(slope.isnan().all())


@pytest.mark.parametrize("size", [0.0, 1e-170, 1e-16])
def test_estimates_that_are_rounding_say_nothing(size: float) -> None:
    Y = torch.eye(3, dtype=torch.float64)[torch.arange(9) % 3]
    value, slope = SoftmaxCrossEntropy()(size * (Y - 0.5 * Y.roll(1, 0)), Y)
    assert value.item() == pytest.approx(math.log(3), rel=1e-15)
    assert not slope.any()
