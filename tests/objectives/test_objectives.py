"""One battery for every objective: a new one needs an entry in CASES, and is then held to all of this."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import naive_objectives as naive
import numpy as np
import pytest
import torch
from naive_objectives import (
    ALPHA,
    HELD_OUT,
    Array,
    N,
    binary_targets,
    gram_of,
    one_hot_targets,
    points,
    regression_targets,
    symmetric_directions,
)
from sklearn.svm import SVC, SVR
from torch import Tensor

from representer import objectives
from representer.linalg import NotPositiveDefiniteError
from representer.objectives import (
    CustomLoss,
    EmbeddingBound,
    EpsilonInsensitive,
    GeneralizedCrossValidation,
    HeldOut,
    HeldOutLoss,
    HeldOutRisk,
    Hinge,
    Huber,
    Interpolation,
    LeaveOneOut,
    LeaveOneOutRisk,
    Logistic,
    Objective,
    RademacherBound,
    Ridge,
    SquaredHinge,
)


@dataclass(frozen=True)
class Case:
    """An objective, the targets it is made for, an oracle of its value and, for a fit, its loss."""

    make: Callable[[Tensor], Objective]
    targets: Callable[..., Tensor]
    oracle: Callable[[Array, Array, float], float]
    loss: Callable[[Array, Array], float] | None = None  # of (Y, F)


def squared_loss(Y: Array, F: Array) -> float:
    return float(np.sum((Y - F) ** 2)) / len(Y)


def by_minimisation(loss: Callable[[Array, Array], float]) -> Callable[[Array, Array, float], float]:
    def oracle(K: Array, Y: Array, alpha: float) -> float:
        return naive.primal_minimum(K, lambda F: loss(Y, F), alpha, n_columns=Y.shape[1])

    return oracle


def torch_joint_loss(F: Tensor, Y: Tensor) -> Tensor:
    errors = (Y - F).square().sum(1)
    return errors.logsumexp(0) - math.log(len(Y)) + (F.mean() - Y.mean()).square()


def svr_oracle(K: Array, Y: Array, alpha: float) -> float:
    return sum(
        _svm_primal(SVR(kernel="precomputed", C=1 / (2 * alpha * len(K)), epsilon=0.1, tol=1e-9), K, y, alpha)
        for y in Y.T
    )


def svc_oracle(K: Array, Y: Array, alpha: float) -> float:
    return sum(_svm_primal(SVC(kernel="precomputed", C=1 / (2 * alpha * len(K)), tol=1e-9), K, y, alpha) for y in Y.T)


def _svm_primal(machine: SVR | SVC, K: Array, y: Array, alpha: float) -> float:
    """Our primal objective at scikit-learn's solution."""
    machine.fit(K, y)
    beta = np.zeros(len(K))
    beta[machine.support_] = machine.dual_coef_[0]
    if isinstance(machine, SVC):
        return naive.hinge_loss(y, machine.decision_function(K)) + alpha * beta @ K @ beta
    return naive.epsilon_insensitive_loss(y, machine.predict(K), 0.1) + alpha * beta @ K @ beta


CASES = {
    "ridge": Case(lambda Y: Ridge(Y, alpha=ALPHA), regression_targets, naive.ridge, squared_loss),
    "ridge, target_gram": Case(lambda Y: Ridge(target_gram=Y @ Y.mT, alpha=ALPHA), regression_targets, naive.ridge),
    "interpolation": Case(
        Interpolation, regression_targets, lambda K, Y, alpha: float(np.trace(Y.T @ np.linalg.inv(K) @ Y))
    ),
    "epsilon-insensitive": Case(
        lambda Y: EpsilonInsensitive(Y, alpha=ALPHA, epsilon=0.1),
        regression_targets,
        svr_oracle,
        lambda Y, F: naive.epsilon_insensitive_loss(Y, F, 0.1),
    ),
    "hinge": Case(lambda Y: Hinge(Y, alpha=ALPHA), binary_targets, svc_oracle, naive.hinge_loss),
    "squared hinge": Case(
        lambda Y: SquaredHinge(Y, alpha=ALPHA),
        binary_targets,
        by_minimisation(naive.squared_hinge_loss),
        naive.squared_hinge_loss,
    ),
    "logistic": Case(
        lambda Y: Logistic(Y[:, :1], alpha=ALPHA),
        lambda n=N: binary_targets(n)[:, :1],
        by_minimisation(naive.logistic_loss),
        naive.logistic_loss,
    ),
    "softmax": Case(
        lambda Y: Logistic(Y, alpha=ALPHA),
        one_hot_targets,
        by_minimisation(naive.softmax_loss),
        naive.softmax_loss,
    ),
    "Huber": Case(
        lambda Y: Huber(Y, alpha=ALPHA, delta=0.3),
        regression_targets,
        by_minimisation(lambda Y, F: naive.huber_loss(Y, F, 0.3)),
        lambda Y, F: naive.huber_loss(Y, F, 0.3),
    ),
    "custom": Case(
        lambda Y: CustomLoss(torch_joint_loss, Y, penalty=ALPHA, intercept=True),
        regression_targets,
        by_minimisation(naive.joint_loss),
        naive.joint_loss,
    ),
    "custom, penalty": Case(
        lambda Y: CustomLoss(torch_joint_loss, Y, penalty=lambda s: ALPHA * (s + s**2)),
        regression_targets,
        lambda K, Y, alpha: naive.primal_minimum(
            K,
            lambda F: naive.joint_loss(Y, F),
            alpha,
            n_columns=2,
            intercept=False,
            penalty=lambda s: alpha * (s + s**2),
        ),
    ),
    "leave-one-out": Case(lambda Y: LeaveOneOut(Y, alpha=ALPHA), regression_targets, naive.leave_one_out),
    "generalized cross-validation": Case(
        lambda Y: GeneralizedCrossValidation(Y, alpha=ALPHA),
        regression_targets,
        naive.generalized_cross_validation,
    ),
    "held-out": Case(
        lambda Y: HeldOut(Y, alpha=ALPHA, validation=HELD_OUT),
        regression_targets,
        lambda K, Y, alpha: naive.held_out(K, Y, alpha, HELD_OUT),
    ),
    "held-out, penalized": Case(
        lambda Y: HeldOut(Y, alpha=ALPHA, validation=HELD_OUT, penalized=True),
        regression_targets,
        lambda K, Y, alpha: naive.penalized_held_out(K, Y, alpha, HELD_OUT),
    ),
    "held-out, penalized, intercept": Case(
        lambda Y: HeldOut(Y, alpha=ALPHA, validation=HELD_OUT, penalized=True, intercept=True),
        regression_targets,
        lambda K, Y, alpha: naive.penalized_held_out(K, Y, alpha, HELD_OUT, intercept=True),
    ),
    "embedding bound": Case(
        lambda Y: EmbeddingBound(Y, alpha=ALPHA),
        regression_targets,
        lambda K, Y, alpha: naive.embedding_bound(K, Y, alpha),
    ),
    "embedding bound, intercept": Case(
        lambda Y: EmbeddingBound(Y, alpha=ALPHA, weight=0.3, intercept=True),
        regression_targets,
        lambda K, Y, alpha: naive.embedding_bound(K, Y, alpha, weight=0.3, intercept=True),
    ),
    "held-out loss": Case(
        lambda Y: HeldOutLoss(Logistic(Y, alpha=ALPHA), validation=HELD_OUT),
        one_hot_targets,
        lambda K, Y, alpha: naive.held_out_softmax(K, Y, alpha, HELD_OUT),
    ),
    "Rademacher": Case(
        lambda Y: RademacherBound(Y, alpha=ALPHA),
        one_hot_targets,
        lambda K, Y, alpha: naive.rademacher_bound(K, Y, alpha, weight=4 * math.e / len(K), epsilon=1e-15),
    ),
    "Rademacher, supremum": Case(
        lambda Y: RademacherBound(Y, alpha=ALPHA, weight=0.7, supremum=2.0, clip=0.05),
        one_hot_targets,
        lambda K, Y, alpha: naive.rademacher_bound(K, Y, alpha, weight=0.7, epsilon=0.05, supremum=2.0),
    ),
    "Rademacher, intercept": Case(
        lambda Y: RademacherBound(Y, alpha=ALPHA, weight=0.3, intercept=True),
        one_hot_targets,
        lambda K, Y, alpha: naive.class_risk(K, Y, alpha, weight=0.3, intercept=True),
    ),
    "leave-one-out risk": Case(
        lambda Y: LeaveOneOutRisk(Y, alpha=ALPHA, weight=0.2),
        one_hot_targets,
        lambda K, Y, alpha: naive.class_risk(K, Y, alpha, weight=0.2, held_out="each"),
    ),
    "leave-one-out risk, intercept": Case(
        lambda Y: LeaveOneOutRisk(Y, alpha=ALPHA, intercept=True),
        one_hot_targets,
        lambda K, Y, alpha: naive.class_risk(K, Y, alpha, weight=0.0, held_out="each", intercept=True),
    ),
    "held-out risk": Case(
        lambda Y: HeldOutRisk(Y, alpha=ALPHA, weight=0.2, validation=HELD_OUT),
        one_hot_targets,
        lambda K, Y, alpha: naive.class_risk(K, Y, alpha, weight=0.2, held_out=HELD_OUT),
    ),
    "held-out risk, softmax, intercept": Case(
        lambda Y: HeldOutRisk(Y, alpha=ALPHA, weight=0.2, validation=HELD_OUT, loss="softmax", intercept=True),
        one_hot_targets,
        lambda K, Y, alpha: naive.class_risk(K, Y, alpha, weight=0.2, held_out=HELD_OUT, intercept=True, softmax=True),
    ),
}


def make(case: Case) -> Objective:
    return case.make(case.targets())


def cases(choose: Callable[[Case], bool]) -> pytest.MarkDecorator:
    chosen = {name: case for name, case in CASES.items() if choose(case)}
    return pytest.mark.parametrize("case", chosen.values(), ids=chosen)


SOLVED = (
    EpsilonInsensitive,
    Hinge,
    SquaredHinge,
    Logistic,
    Huber,
    HeldOutLoss,
)  # by an iteration, which may survive what Cholesky refuses
every_case = cases(lambda case: True)
every_fit = cases(lambda case: case.loss is not None)
every_closed_form = cases(lambda case: not isinstance(make(case), SOLVED))
every_case_with_alpha = cases(lambda case: make(case).alpha is not None)
every_homogeneous_case = cases(
    lambda case: make(case).alpha is not None and getattr(make(case), "supremum", None) is None
)


def test_every_public_objective_is_in_the_battery() -> None:
    public = {
        x
        for x in vars(objectives).values()
        if inspect.isclass(x) and issubclass(x, Objective) and not inspect.isabstract(x)
    }
    assert public == {type(make(case)) for case in CASES.values()}


@every_case
def test_value_equals_oracle(case: Case) -> None:
    K, Y = gram_of(points()), case.targets()
    expected = case.oracle(K.numpy(), Y.numpy(), ALPHA)
    rel = 1e-6 if case.oracle in (svr_oracle, svc_oracle) else 1e-8  # libsvm rounds K to single precision
    assert make(case).evaluate(K).value.item() == pytest.approx(expected, rel=rel)


@every_case
def test_gram_gradient_equals_finite_differences(case: Case) -> None:
    objective, K = make(case), gram_of(points())
    gradient = objective.evaluate(K).gram_gradient
    assert gradient is not None
    torch.testing.assert_close(gradient, gradient.mT, rtol=1e-12, atol=1e-14)
    for D in symmetric_directions(4):
        h = 1e-5 / D.norm()
        numerical = (objective.evaluate(K + h * D).value - objective.evaluate(K - h * D).value) / (2 * h)
        exact = (gradient * D).sum()
        assert abs(numerical - exact) <= 1e-6 * max(abs(exact), 0.01 * gradient.norm() * D.norm())


@every_case
def test_alpha_gradient_equals_finite_differences(case: Case) -> None:
    objective, K = make(case), gram_of(points())
    gradient = objective.evaluate(K).alpha_gradient
    if objective.alpha is None:
        assert gradient is None
        return
    assert gradient is not None
    h = 1e-5 * ALPHA
    above, below = (objective.evaluate(K, alpha=a).value for a in (ALPHA + h, ALPHA - h))
    assert gradient.item() == pytest.approx(((above - below) / (2 * h)).item(), rel=1e-6)


@every_case
def test_autograd_reaches_lengthscale_and_points(case: Case) -> None:
    objective, X = make(case), points().requires_grad_()
    lengthscale = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    objective(gram_of(X, lengthscale)).backward()

    def value(X: Tensor, lengthscale: float) -> float:
        return objective.evaluate(gram_of(X, lengthscale), gradient=False).value.item()

    h, Z = 1e-5, X.detach()
    expected = (value(Z, 0.9 + h) - value(Z, 0.9 - h)) / (2 * h)
    assert lengthscale.grad is not None
    assert X.grad is not None
    assert lengthscale.grad.item() == pytest.approx(expected, rel=1e-6)
    D = torch.zeros_like(Z)
    D[3, 1] = h
    assert X.grad[3, 1].item() == pytest.approx((value(Z + D, 0.9) - value(Z - D, 0.9)) / (2 * h), rel=1e-6)


@every_case_with_alpha
def test_autograd_reaches_alpha_of_every_shape(case: Case) -> None:
    objective = make(case)
    K = torch.stack([gram_of(points(seed)) for seed in range(3)])
    each = torch.tensor([0.02, 0.05, 0.1], dtype=torch.float64)
    gradient = objective.evaluate(K, alpha=each).alpha_gradient
    assert gradient is not None
    for shape in [(3,), (3, 1, 1)]:
        alpha = each.reshape(shape).requires_grad_()
        objective(K, alpha).sum().backward()
        assert alpha.grad is not None
        torch.testing.assert_close(alpha.grad, gradient.reshape(shape))
    shared = torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    objective(K, alpha=shared).sum().backward()
    total = objective.evaluate(K, alpha=0.05).alpha_gradient
    assert shared.grad is not None
    assert total is not None
    torch.testing.assert_close(shared.grad, total.sum())


@every_case
def test_backward_scales_with_the_incoming_gradient(case: Case) -> None:
    objective = make(case)
    K = torch.stack([gram_of(points(seed)) for seed in range(2)]).requires_grad_()
    alpha = None if objective.alpha is None else torch.full((2,), 0.05, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([2.0, -3.0], dtype=torch.float64)
    (objective(K, alpha) * weights).sum().backward()
    evaluation = objective.evaluate(K, alpha=alpha)
    assert evaluation.gram_gradient is not None
    assert K.grad is not None
    torch.testing.assert_close(K.grad, weights[:, None, None] * evaluation.gram_gradient)
    if alpha is not None:
        assert alpha.grad is not None
        torch.testing.assert_close(alpha.grad, weights * evaluation.alpha_gradient)


@every_case
def test_second_derivatives_are_refused(case: Case) -> None:
    K = gram_of(points()).requires_grad_()
    (first,) = torch.autograd.grad(make(case)(K), K, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        first.sum().backward()


@every_case
def test_batch_equals_loop(case: Case) -> None:
    objective = make(case)
    K = torch.stack([gram_of(points(seed)) for seed in range(6)]).reshape(2, 3, N, N)
    batch = objective.evaluate(K)
    assert batch.value.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        single = objective.evaluate(K[i, j])
        for field in ("value", "gram_gradient", "alpha_gradient", "dual", "intercept"):
            ours, theirs = getattr(batch, field), getattr(single, field)
            assert (ours is None) == (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours[i, j], theirs, rtol=1e-7, atol=1e-9)


@every_case
def test_nan_in_a_member_of_a_batch_is_nan_and_alone_it_raises(case: Case) -> None:
    check_bad_member(make(case), float("nan"))


@every_closed_form
def test_indefinite_member_of_a_batch_is_nan_and_alone_it_raises(case: Case) -> None:
    check_bad_member(make(case), -50.0)


def check_bad_member(objective: Objective, damage: float) -> None:
    K = torch.stack([gram_of(points(seed)) for seed in range(2)])
    alone = objective.evaluate(K[0])
    K[1, 3, 3] = damage
    batch = objective.evaluate(K)
    assert torch.isnan(batch.value[1])
    torch.testing.assert_close(batch.value[0], alone.value)
    assert batch.gram_gradient is not None
    assert alone.gram_gradient is not None
    torch.testing.assert_close(batch.gram_gradient[0], alone.gram_gradient, rtol=1e-7, atol=1e-9)
    with pytest.raises(NotPositiveDefiniteError):
        objective.evaluate(K[1])


@every_case_with_alpha
def test_bad_alpha_of_a_member_is_nan(case: Case) -> None:
    objective, K = make(case), torch.stack([gram_of(points(seed)) for seed in range(3)])
    value = objective(K, torch.tensor([0.05, 0.0, float("inf")], dtype=torch.float64))
    assert torch.isfinite(value).tolist() == [True, False, False]


@every_case
def test_order_of_samples_does_not_matter(case: Case) -> None:
    order = torch.arange(N)
    rest = [i for i in range(N) if i not in HELD_OUT]
    order[rest] = torch.tensor(np.random.default_rng(2).permutation(rest))  # held-out rows keep their numbers
    K, Y = gram_of(points()), case.targets()
    first, second = case.make(Y).evaluate(K), case.make(Y[order]).evaluate(K[order][:, order])
    assert first.gram_gradient is not None
    assert second.gram_gradient is not None
    torch.testing.assert_close(first.value, second.value)
    expected = first.gram_gradient[order][:, order]
    torch.testing.assert_close(second.gram_gradient, expected, rtol=1e-6, atol=1e-8)


@every_homogeneous_case
def test_scale_of_kernel_and_alpha_cancel(case: Case) -> None:
    """K → cK with α → cα is the same problem: by Euler's identity ⟨∂K, K⟩ + α ∂α = 0."""
    objective, K = make(case), gram_of(points())
    evaluation = objective.evaluate(K)
    assert evaluation.gram_gradient is not None
    assert evaluation.alpha_gradient is not None
    in_gram = (evaluation.gram_gradient * K).sum()
    torch.testing.assert_close(in_gram, -ALPHA * evaluation.alpha_gradient, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(objective(7.0 * K, 7.0 * ALPHA), evaluation.value)


@every_case
def test_parts_can_be_left_out(case: Case) -> None:
    objective, K = make(case), gram_of(points()).requires_grad_()
    full = objective.evaluate(K)
    small = objective.evaluate(K, gradient=False, dual=False)
    assert small.gram_gradient is None
    assert small.alpha_gradient is None
    torch.testing.assert_close(small.value, full.value)
    assert not full.value.requires_grad
    torch.testing.assert_close(objective(K), full.value)
    assert not objective(K.detach()).requires_grad


@every_case
def test_gram_is_not_changed(case: Case) -> None:
    K = gram_of(points())
    before = K.clone()
    make(case).evaluate(K)
    assert torch.equal(K, before)


@every_case
def test_precision_follows_the_gram_matrix(case: Case) -> None:
    objective, K = make(case), gram_of(points())
    single, double = objective.evaluate(K.float()), objective.evaluate(K)
    for field in ("value", "gram_gradient", "alpha_gradient", "dual", "intercept"):
        ours, theirs = getattr(single, field), getattr(double, field)
        if ours is not None:
            assert ours.dtype == torch.float32
            assert (ours.double() - theirs).norm() <= 2e-3 * theirs.norm() + 1e-6


@every_fit
def test_dual_attains_the_value(case: Case) -> None:
    """mean loss + α‖f‖² at K dual + intercept: where the value comes from the dual, a proof of optimality."""
    objective, K, Y = make(case), gram_of(points()), case.targets()
    evaluation = objective.evaluate(K)
    assert case.loss is not None
    assert evaluation.dual is not None
    F = K @ evaluation.dual
    norm = (evaluation.dual * F).sum()
    F = F if evaluation.intercept is None else F + evaluation.intercept
    primal = case.loss(Y.numpy(), F.numpy()) + ALPHA * norm.item()
    assert evaluation.value.item() == pytest.approx(primal, rel=1e-9)


@every_fit
def test_every_sample_twice_is_the_same_problem(case: Case) -> None:
    """alpha stands beside a mean loss, so that it keeps its meaning when n changes."""
    K, Y, twice = gram_of(points()), case.targets(), torch.arange(N).repeat(2)
    once = case.make(Y).evaluate(K)
    doubled = case.make(Y[twice]).evaluate(K[twice][:, twice])
    assert doubled.alpha_gradient is not None
    torch.testing.assert_close(doubled.value, once.value, rtol=1e-7, atol=0.0)
    torch.testing.assert_close(doubled.alpha_gradient, once.alpha_gradient, rtol=1e-5, atol=0.0)


@every_case
def test_wrong_gram_is_refused(case: Case) -> None:
    objective = make(case)
    with pytest.raises(ValueError, match=r"must be square.*\(14, 13\)"):
        objective(torch.zeros(N, N - 1))
    with pytest.raises(ValueError, match=r"13 × 13 but \w+ has 14 targets"):
        objective.evaluate(torch.eye(N - 1))


@every_case
def test_wrong_alpha_is_refused(case: Case) -> None:
    objective, K = make(case), gram_of(points())
    if objective.alpha is None:
        with pytest.raises(ValueError, match="has no alpha"):
            objective(K, 0.1)
        return
    for alpha in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="alpha > 0"):
            objective(K, alpha)
    with pytest.raises(ValueError, match=r"shape of the batch \(\)"):
        objective(K, torch.ones(2))


@every_case
def test_nan_targets_are_refused(case: Case) -> None:
    Y = case.targets()
    Y[4, 0] = float("nan")
    with pytest.raises(ValueError, match="must be finite"):
        case.make(Y)


@pytest.mark.parametrize(("n", "iterations"), [(10, 1_000_000), (5_000, 100_000), (50_000, 500_000)])
def test_libsvm_looks_at_samples_a_bounded_number_of_times(n, iterations):
    """No clock stops it: a solution that does not converge ends after seconds, not after minutes."""
    labels = np.where(np.arange(n) % 2, 1.0, -1.0)
    for loss in (Hinge(labels, alpha=1.0), EpsilonInsensitive(labels, alpha=1.0)):
        assert loss._machine(1.0).max_iter == iterations
    assert Hinge(labels, alpha=1.0, max_iter=7)._machine(1.0).max_iter == 7
