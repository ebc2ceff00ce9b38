"""Structured outputs: exact fits against eigendecompositions and the dense Kronecker system, leave-one-out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks._timing import Row, compare, scaled
from representer import StructuredPredictor
from representer.kernels import Gaussian
from representer.linalg import eigh
from representer.objectives.operator_valued import cross_validation
from representer.operators import ConditionalCovariance, Decomposable, Dense
from representer.systems import RidgeData

N, SMALL, D = 1000, 50, 10
ALPHA, EPSILON = 1e-4, 1e-2


def rows() -> list[Row]:
    """Fits of all forms, small and large; the leave-one-out error with its gradient."""
    return [
        *(against_eigendecomposition(operator) for operator in ("conditional_covariance", "covariance", "identity")),
        *(against_kronecker(operator) for operator in ("conditional_covariance", "covariance")),
        leave_one_out(),
    ]


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs whose Gram matrices have full rank: the worst case."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    return X, np.tanh(X @ rng.normal(size=(D, D)) / 3) + 0.5 * rng.normal(size=(n, D))


def learner(operator: str) -> StructuredPredictor:
    """With all numbers given."""
    values = {"identity": None, "conditional_covariance": ConditionalCovariance(EPSILON)}
    return StructuredPredictor(Gaussian(3.0), Gaussian(2.0), values.get(operator, operator), ALPHA)


def against_eigendecomposition(operator: str) -> Row:
    """A whole fit, Gram matrices and checks included, in units of one eigendecomposition of its size."""
    X, Y = sample(scaled(N))
    gram = Gaussian(3.0)(X)
    goal = 4.0 if operator == "conditional_covariance" else None
    return compare(
        f"fit, {operator}, against one eigendecomposition",
        f"n = {len(X)}",
        ours=lambda: learner(operator).fit(X, Y),
        reference=lambda: eigh(gram),
        goal=goal,
    )


def against_kronecker(operator: str) -> Row:
    """A whole fit against the solution of the n² × n² system of equation (8), its matrices given."""
    n = scaled(SMALL, 20)
    X, Y = sample(n)
    k, L = Gaussian(3.0)(X), Gaussian(2.0)(Y)
    identity = torch.eye(n, dtype=k.dtype)
    T = L if operator == "covariance" else n * EPSILON * torch.linalg.solve(k + n * EPSILON * identity, L)

    def dense() -> Tensor:
        system = torch.kron(k, T.contiguous())
        system.diagonal().add_(n * n * ALPHA)
        return torch.linalg.solve(system, identity.reshape(-1))

    weights = T @ dense().reshape(n, n).mT  # of the training outputs, for each k_x
    assert np.allclose(learner(operator).fit(X, Y).dual_coef_.T, weights, atol=1e-8)
    return compare(
        f"fit, {operator}, against the Kronecker system",
        f"n = {n}",
        ours=lambda: learner(operator).fit(X, Y),
        reference=dense,
        goal=0.01,
    )


def leave_one_out() -> Row:
    """Value and gradient in the Gram matrix of the leave-one-out error of 200 coupled coordinates."""
    n = scaled(400)
    X, _ = sample(n)
    data = torch.from_numpy(X)
    R = torch.from_numpy(np.random.default_rng(1).normal(size=(n, n // 2)))
    operator = Dense((R.mT @ R / n).numpy())

    def ours() -> Tensor:
        lengthscale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
        kernel = Decomposable(Gaussian(lengthscale), operator)
        error = cross_validation(RidgeData(kernel, data, R, torch.ones(n).double()), torch.tensor(ALPHA))
        return torch.autograd.grad(error, lengthscale)[0]

    return compare(
        "leave-one-out error and its gradient, against one eigendecomposition",
        f"n = {n}, r = {n // 2}",
        ours=ours,
        reference=lambda: eigh(Gaussian(3.0)(X)),
    )
