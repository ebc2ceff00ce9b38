"""Objectives against one Cholesky factorisation, and 64 raced restarts against one run to its end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks._timing import Row, compare, scaled
from representer.functions import Chain, Layer
from representer.kernels import Gaussian, Kernel, Polynomial, TensorMatern
from representer.objectives import (
    GeneralizedCrossValidation,
    HeldOut,
    LeaveOneOut,
    Objective,
    RademacherBound,
    Ridge,
)
from representer.optimize import lbfgs, with_gradient

TENSOR_MATERN = TensorMatern(1, 1.0)


def rows() -> list[Row]:
    """Value and gradient of each objective in units of a Cholesky factorisation; then racing."""
    n = scaled(1000)
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 10, generator=generator, dtype=torch.float64)
    gram = Gaussian(4.0)(X)
    labels = torch.nn.functional.one_hot(torch.arange(n) % 3).to(torch.float64)
    objectives = {
        "ridge": Ridge(labels, alpha=1e-3),
        "leave-one-out": LeaveOneOut(labels, alpha=1e-3),
        "generalised cross-validation": GeneralizedCrossValidation(labels, alpha=1e-3),
        "held-out": HeldOut(labels, alpha=1e-3, validation=np.arange(0, n, 5)),
        "Rademacher bound": RademacherBound(labels, alpha=1e-3),
    }
    return [*(_in_choleskys(name, objective, gram) for name, objective in objectives.items()), racing()]


def _in_choleskys(name: str, objective: Objective, gram: Tensor) -> Row:
    W = gram + torch.eye(len(gram), dtype=gram.dtype)
    return compare(
        f"{name}, value and gradient, against one Cholesky",
        f"n = {len(gram)}, p = 3",
        ours=lambda: objective.evaluate(gram, dual=False),
        reference=lambda: torch.linalg.cholesky(W),
        repeats=9,
    )


def two_layers(
    degree: int = 1, outer: Kernel = TENSOR_MATERN
) -> tuple[Callable[[Tensor], tuple[Tensor, Tensor]], Callable[[int, int], Tensor]]:
    """The kink of Bohn et al. (section 4.2): 100 noisy points, a polynomial inner layer, an outer kernel."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100, 2))
    y = 1 / (0.1 + np.abs(X[:, 0] - X[:, 1])) + 0.01 * rng.normal(size=100)
    chain = Chain([Layer(Polynomial(degree), 2)], X)
    ridge = Ridge(y, alpha=1e-5)

    def objective(points: Tensor) -> Tensor:
        theta = chain.split(points)
        images = chain.images(theta)[-1]
        return ridge(outer(images)) + 1e-5 * chain.squared_norms(theta).sum(-1)

    def starts(count: int, seed: int = 1) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(count, chain.size, generator=generator, dtype=torch.float64)

    return with_gradient(objective), starts


def racing() -> Row:
    function, starts = two_layers()
    restarts = scaled(64, 4)
    return compare(
        f"two layers: {restarts} raced restarts, against one to its end",
        "n = 100, 6 unknowns",
        ours=lambda: lbfgs(function, starts(restarts)),
        reference=lambda: lbfgs(function, starts(1)),
        goal=8.0,
        repeats=3,
    )
