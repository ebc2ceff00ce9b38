"""Losses with an inner solver: support vector machines, squared hinge, logistic; arguments they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from naive_objectives import ALPHA, N, binary_targets, gram_of, one_hot_targets, points, regression_targets
from sklearn.svm import SVC, SVR
from torch import Tensor

from representer.linalg import NotPositiveDefiniteError
from representer.objectives import (
    EpsilonInsensitive,
    HeldOut,
    Hinge,
    Huber,
    Logistic,
    NotConvergedError,
    Objective,
    RademacherBound,
    SquaredHinge,
    convex,
)


def test_support_vector_machines_predict_as_scikit_learn() -> None:
    K, Y, signs = gram_of(points()), regression_targets(), binary_targets()
    C = 1 / (2 * N * ALPHA)
    for objective, machine, target in (
        (EpsilonInsensitive(Y, alpha=ALPHA), SVR(kernel="precomputed", C=C, epsilon=0.1, tol=1e-10), Y),
        (Hinge(signs, alpha=ALPHA), SVC(kernel="precomputed", C=C, tol=1e-10), signs),
    ):
        evaluation = objective.evaluate(K)
        assert evaluation.dual is not None
        F = K @ evaluation.dual + evaluation.intercept
        for j in range(2):
            machine.fit(K.numpy(), target[:, j].numpy())
            predict = machine.decision_function if isinstance(machine, SVC) else machine.predict
            np.testing.assert_allclose(F[:, j].numpy(), predict(K.numpy()), atol=1e-5)


def test_a_failure_of_libsvm_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no start, so that a second attempt without one would take as long and fail as the first did."""
    objective, K, attempts = Hinge(binary_targets()[:, 0], alpha=ALPHA), gram_of(points()), []
    objective.evaluate(K)

    def failed(machine: SVC, gram: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        attempts.append(machine.max_iter)
        return torch.zeros_like(y), y.new_zeros(1)

    monkeypatch.setattr(convex, "_support_vectors", failed)
    with pytest.raises(NotConvergedError, match="duality gap"):
        objective.evaluate(K)
    assert len(attempts) == 1 and attempts[0] <= max(10 * N, 500_000_000 // N)


def test_support_vector_gradient_survives_an_ill_conditioned_gram() -> None:
    """libsvm rounds K to single precision, which without polishing costs the gradient its digits."""
    n = 40
    X = points(3, n)
    K = gram_of(X, 3.0) + 1e-6 * torch.eye(n)
    for objective in (
        EpsilonInsensitive(regression_targets(n), alpha=1e-5),
        Hinge(binary_targets(n), alpha=1e-4),
    ):
        gradient = objective.evaluate(K).gram_gradient
        assert gradient is not None
        D = torch.as_tensor(np.random.default_rng(1).normal(size=(n, n)))
        D = D @ D.mT
        h = 1e-8 / D.norm()
        numerical = (objective(K + h * D) - objective(K - h * D)) / (2 * h)
        assert numerical.item() == pytest.approx((gradient * D).sum().item(), rel=1e-6)


@pytest.mark.parametrize("create", [EpsilonInsensitive, Hinge], ids=["epsilon-insensitive", "hinge"])
def test_support_vector_machine_that_stops_early_says_so(create: Callable[..., Objective]) -> None:
    K = gram_of(points())
    objective = create(binary_targets(), alpha=1e-6, max_iter=2)
    with pytest.raises(NotConvergedError, match=r"duality gap.*Increase alpha"):
        objective(K)
    assert torch.isnan(objective(K[None])).all()


@pytest.mark.parametrize("create", [Hinge, SquaredHinge, EpsilonInsensitive])
def test_single_class_costs_nothing(create: Callable[..., Objective]) -> None:
    evaluation = create(-torch.ones(N), alpha=ALPHA).evaluate(gram_of(points()))
    assert evaluation.value.item() == pytest.approx(0.0, abs=1e-12)
    assert evaluation.dual is not None
    assert evaluation.intercept is not None
    assert evaluation.dual.abs().max().item() < 1e-12
    assert -1.1 - 1e-12 <= evaluation.intercept.item() <= -0.9 + 1e-12


def test_tube_that_holds_everything_costs_nothing() -> None:
    evaluation = EpsilonInsensitive(regression_targets(), alpha=ALPHA, epsilon=10.0).evaluate(gram_of(points()))
    assert evaluation.value.item() == 0.0
    assert evaluation.gram_gradient is not None
    assert not evaluation.gram_gradient.any()


def test_logistic_labels_and_softmax_agree() -> None:
    """0, 1 and −1, +1 are the same labels; two classes with a softmax are logistic with half the alpha."""
    K, y = gram_of(points()), binary_targets()[:, 0]
    value = Logistic(y, alpha=ALPHA)(K)
    torch.testing.assert_close(Logistic((y + 1) / 2, alpha=ALPHA)(K), value)
    pair = torch.stack([y == 1, y == -1], 1)
    torch.testing.assert_close(Logistic(pair, alpha=2 * ALPHA)(K), value)


@pytest.mark.parametrize("targets", [lambda: binary_targets()[:, 0], one_hot_targets], ids=["binary", "softmax"])
def test_logistic_dual_is_the_residual(targets: Callable[[], Tensor]) -> None:
    K, Y = gram_of(points()), targets()
    evaluation = Logistic(Y, alpha=ALPHA).evaluate(K)
    assert evaluation.dual is not None
    assert evaluation.intercept is not None
    F = K @ evaluation.dual + evaluation.intercept
    residual = Y - F.softmax(1) if Y.ndim == 2 else ((Y + 1) / 2)[:, None] - F.sigmoid()
    torch.testing.assert_close(evaluation.dual, residual / (2 * N * ALPHA), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(evaluation.dual.sum(0), torch.zeros_like(evaluation.intercept))


@pytest.mark.parametrize("alpha", [10.0, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("lengthscale", [0.3, 10.0])
def test_newton_converges_from_easy_to_nearly_separable(alpha: float, lengthscale: float) -> None:
    n = 30
    K = gram_of(points(1, n), lengthscale)
    for objective in (
        Logistic(binary_targets(n)[:, 0], alpha=alpha),
        Logistic(one_hot_targets(n), alpha=alpha),
        SquaredHinge(binary_targets(n), alpha=alpha),
    ):
        assert torch.isfinite(objective(K))


def test_newton_that_does_not_converge_says_so() -> None:
    K = gram_of(points())
    objective = Logistic(one_hot_targets(), alpha=1e-6, max_iter=2)
    with pytest.raises(NotConvergedError, match=r"after 2 steps.*Increase alpha"):
        objective(K)
    assert torch.isnan(objective(K[None])).all()


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Hinge([0, 1, 1], alpha=1.0), "labels −1 and \\+1"),
        (lambda: SquaredHinge([1, 2, 1], alpha=1.0), "labels −1 and \\+1"),
        (lambda: Logistic([0, 2, 1], alpha=1.0), "labels −1, \\+1 or 0, 1"),
        (lambda: Logistic([-1, 0, 1], alpha=1.0), "labels −1, \\+1 or 0, 1"),
        (lambda: Logistic([1, 1, 1], alpha=1.0), "no sample|labels"),
        (lambda: Logistic([0, 0, 0], alpha=1.0), "no sample"),
        (lambda: Logistic([[1, 0, 0], [0, 1, 0]], alpha=1.0), "no sample.*\\[1, 1, 0\\]"),
        (lambda: Logistic([[1, 1], [0, 1]], alpha=1.0), "one-hot"),
        (lambda: RademacherBound([0, 1, 1], alpha=1.0), "one-hot"),
        (lambda: RademacherBound([[0.5, 0.5]], alpha=1.0), "one-hot"),
        (lambda: RademacherBound([[0, 1], [1, 0]], alpha=1.0, clip=0.0), "clip"),
        (lambda: RademacherBound([[0, 1], [1, 0]], alpha=1.0, weight=-1.0), "weight"),
        (lambda: RademacherBound([[0, 1], [1, 0]], alpha=1.0, supremum=0.0), "supremum"),
        (lambda: EpsilonInsensitive([1.0, 2.0], alpha=1.0, epsilon=-0.1), "epsilon"),
        (lambda: EpsilonInsensitive([1.0, 2.0], alpha=1.0, tol=0.0), "tol"),
        (lambda: HeldOut([1.0, 2.0], alpha=1.0, validation=[]), "validation"),
        (lambda: HeldOut([1.0, 2.0], alpha=1.0, validation=[0, 1]), "At least one row"),
        (lambda: HeldOut([1.0, 2.0, 3.0], alpha=1.0, validation=[0, 0]), "different row numbers"),
        (lambda: HeldOut([1.0, 2.0, 3.0], alpha=1.0, validation=[3]), "from 0 to 2"),
        (lambda: HeldOut([1.0, 2.0, 3.0], alpha=1.0, validation=[True, False]), "boolean mask of length 3"),
        (lambda: HeldOut([1.0, 2.0, 3.0], alpha=1.0, validation=[0.5]), "row numbers or a boolean mask"),
    ],
)
def test_bad_arguments_are_refused(create: Callable[[], Objective], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create()


@pytest.mark.parametrize("objective", [Hinge, SquaredHinge, Logistic])
def test_an_indefinite_gram_matrix_is_noticed(objective) -> None:
    X = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.where(X[:, 0] > 0, 1.0, -1.0)
    with pytest.raises((NotPositiveDefiniteError, NotConvergedError)):
        objective(labels, alpha=0.05).evaluate(-torch.exp(-(torch.cdist(X, X) ** 2)))


def test_huber_takes_targets_that_are_far_larger_than_delta() -> None:
    """As in a fit to y·1e250, in whose units delta is tiny: f + b is about the median, and no stack of calls grows."""
    targets = regression_targets()
    evaluation = Huber(targets, alpha=ALPHA, delta=1e-250).evaluate(gram_of(points()))
    b, columns = evaluation.intercept, targets.reshape(len(targets), -1)
    assert b is not None and bool(evaluation.value.isfinite())
    assert bool(((columns.amin(0) <= b) & (b <= columns.amax(0))).all())
