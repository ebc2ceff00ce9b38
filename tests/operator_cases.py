"""Every operator-valued kernel with its definition and data of its kind: the table that several test files use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import naive_operators as no
import numpy as np
import torch

import naive
from representer.kernels import Callable, Delta, Gaussian, Linear, Matern, RationalQuadratic
from representer.operators import (
    ConditionalCovariance,
    Coordinatewise,
    Covariance,
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    DivergenceFree,
    Identity,
    OperatorKernel,
    OperatorSum,
    Patchwise,
    Separate,
    Transformable,
    diagonal_regularization,
)

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 3)), RNG.standard_normal((4, 3))
PLANE, PLANE_NEW = X[:, :2], Y[:, :2]
WORDS, NEW_WORDS = ["abba", "cab", "bccb", "a", "caca", "bb", "abc", "ccc"], ["acb", "baba", "c", ""]
LABELS, NEW_LABELS = list("abacabcb"), list("adb")
TARGETS = RNG.standard_normal((8, 3))


def _semidefinite(p: int, rank: int) -> np.ndarray:
    factor = RNG.standard_normal((p, rank))
    return factor @ factor.T


A, B, SINGULAR = _semidefinite(3, 3), _semidefinite(3, 3), _semidefinite(3, 1)
PAIR = _semidefinite(2, 2)
MAPS = [RNG.standard_normal((2, 3)) for _ in range(3)]
EPSILON = 0.3


def common_letters(x: str, y: str) -> int:
    """The inner product of letter counts."""
    return sum(x.count(letter) * y.count(letter) for letter in "abc")


def common_prefix(x: str, y: str) -> float:
    """1 for the same first letter."""
    return float(x[:1] == y[:1])


def first_two(x: Any) -> Any:
    return x[..., :2]


def last_two(x: Any) -> Any:
    return x[..., 1:] ** 2


@dataclass
class Case:
    """An operator-valued kernel, its definition, and data of its kind."""

    name: str
    kernel: OperatorKernel
    oracle: no.Matrixwise
    X: Any = None
    Y: Any = None
    p: int = 3

    def __post_init__(self) -> None:
        self.X = X if self.X is None else self.X
        self.Y = Y if self.Y is None else self.Y

    @property
    def data(self) -> Any:
        """The prepared inputs."""
        return self.kernel.prepare(self.X)

    @property
    def new(self) -> Any:
        """Prepared new points."""
        return self.kernel.prepare(self.Y)

    @property
    def targets(self) -> np.ndarray:
        return TARGETS[:, : self.p]

    @cached_property
    def block(self) -> np.ndarray:
        """The block matrix of the inputs, by the definition."""
        return no.block_matrix(self.oracle, self.X)

    @cached_property
    def cross(self) -> np.ndarray:
        """That of new points and the inputs."""
        return no.block_matrix(self.oracle, self.Y, self.X)

    @cached_property
    def new_block(self) -> np.ndarray:
        """That of the new points."""
        return no.block_matrix(self.oracle, self.Y)


gaussian, matern = naive.gaussian, naive.matern
SMOOTH = naive.rational_quadratic(1.5, 0.7)

CASES = [
    Case("identity", Decomposable(Gaussian(1.3)), no.decomposable(gaussian(1.3), np.eye(3))),
    Case("linear", Decomposable(Linear(), Identity()), no.decomposable(naive.linear(), np.eye(3))),
    Case(
        "diagonal",
        Decomposable(Gaussian([0.7, 1.0, 2.0]), Diagonal([1.0, 2.0, 1.0])),
        no.decomposable(gaussian([0.7, 1.0, 2.0]), np.diag([1.0, 2.0, 1.0])),
    ),
    Case(
        "diagonal with a zero",
        Decomposable(Gaussian(1.3), Diagonal([0.5, 0.0, 1.5])),
        no.decomposable(gaussian(1.3), np.diag([0.5, 0.0, 1.5])),
    ),
    Case("dense", Decomposable(Matern(1.5, 2.0), Dense(A)), no.decomposable(matern(1.5, 2.0), A)),
    Case("singular", Decomposable(Gaussian(1.3), Dense(SINGULAR)), no.decomposable(gaussian(1.3), SINGULAR)),
    Case("dense and linear", Decomposable(Linear(), Dense(A)), no.decomposable(naive.linear(), A)),
    Case(
        "covariance",
        Decomposable(Gaussian(1.3), Covariance().resolve(torch.from_numpy(TARGETS), None)),
        no.decomposable(gaussian(1.3), no.covariance(TARGETS)),
    ),
    Case(
        "conditional covariance",
        Decomposable(Linear(), ConditionalCovariance(EPSILON).resolve(torch.from_numpy(TARGETS), Linear()(X))),
        no.decomposable(naive.linear(), no.conditional_covariance(TARGETS, X, EPSILON)),
    ),
    Case(
        "separate",
        Separate([Gaussian(1.3), Matern(1.5, 2.0), Linear()]),
        no.separate(gaussian(1.3), matern(1.5, 2.0), naive.linear()),
    ),
    Case(
        "commuting sum",
        Decomposable(Gaussian(1.3), Dense(A)) + Decomposable(2.0 * Gaussian(3.0)),
        no.add(
            no.decomposable(gaussian(1.3), A),
            no.decomposable(naive.multiply(naive.constant(2.0), gaussian(3.0)), np.eye(3)),
        ),
    ),
    Case(
        "commuting sum of three",
        Decomposable(Gaussian(1.3), Dense(A)) + Decomposable(Linear(), Dense(A @ A)) + Decomposable(Matern()),
        no.add(
            no.decomposable(gaussian(1.3), A),
            no.decomposable(naive.linear(), A @ A),
            no.decomposable(matern(1.5, naive.median_distance(X, 2)), np.eye(3)),
        ),
    ),
    Case(
        "diagonal sum",
        Decomposable(Gaussian(1.3), Diagonal([1.0, 2.0, 0.5])) + Separate([Gaussian(2.0), Matern(1.5, 1.0), Linear()]),
        no.add(
            no.decomposable(gaussian(1.3), np.diag([1.0, 2.0, 0.5])),
            no.separate(gaussian(2.0), matern(1.5, 1.0), naive.linear()),
        ),
    ),
    Case(
        "sum that does not commute",
        Decomposable(Gaussian(1.3), Dense(A)) + Decomposable(RationalQuadratic(1.5, 0.7), Dense(B)),
        no.add(no.decomposable(gaussian(1.3), A), no.decomposable(SMOOTH, B)),
    ),
    Case(
        "nested sum",
        OperatorSum(
            [
                Decomposable(Gaussian(1.3), Dense(A)) + Separate([Gaussian(2.0), Linear(), Linear()]),
                Decomposable(RationalQuadratic(1.5, 0.7), Dense(B)),
            ]
        ),
        no.add(
            no.decomposable(gaussian(1.3), A),
            no.separate(gaussian(2.0), naive.linear(), naive.linear()),
            no.decomposable(SMOOTH, B),
        ),
    ),
    Case(
        "sum with fields",
        Decomposable(Gaussian(1.3), Dense(A)) + (CurlFree(1.2) + DivergenceFree(0.9)),
        no.add(no.decomposable(gaussian(1.3), A), no.curl_free(1.2), no.divergence_free(0.9)),
    ),
    Case(
        "maps by matrices",
        Transformable(Gaussian(1.3), MAPS),
        no.transformable(gaussian(1.3), [lambda x, S=S: S @ x for S in MAPS]),
    ),
    Case(
        "maps by functions",
        Transformable(Gaussian([1.3, 0.8]), [first_two, last_two]),
        no.transformable(gaussian([1.3, 0.8]), [first_two, last_two]),
        p=2,
    ),
    Case("curl-free in space", CurlFree(1.2), no.curl_free(1.2)),
    Case("divergence-free in space", DivergenceFree(0.9), no.divergence_free(0.9)),
    Case("curl-free in the plane", CurlFree(0.8), no.curl_free(0.8), PLANE, PLANE_NEW, p=2),
    Case("divergence-free in the plane", DivergenceFree(1.1), no.divergence_free(1.1), PLANE, PLANE_NEW, p=2),
    Case(
        "words",
        Decomposable(Callable(common_letters), Dense(PAIR)),
        no.decomposable(common_letters, PAIR),
        WORDS,
        NEW_WORDS,
        p=2,
    ),
    Case(
        "words, separately",
        Separate([Callable(common_letters), 0.5 * Callable(common_prefix)]),
        no.separate(common_letters, naive.multiply(naive.constant(0.5), common_prefix)),
        WORDS,
        NEW_WORDS,
        p=2,
    ),
    Case(
        "patchwise",
        Patchwise(Gaussian(0.8), [[0, 1], [1, 2]]),
        lambda x, y: (
            gaussian(0.8)(x[:2], y[:2]) * np.diag([1, 1, 0]) + gaussian(0.8)(x[1:], y[1:]) * np.diag([0, 1, 1])
        ),
    ),
    Case("coordinatewise", Coordinatewise(0.7), lambda x, y: 0.7 * np.diag(x * y)),
    Case(
        "diagonal regularisation",
        diagonal_regularization(Gaussian(1.3), 0.4),
        lambda x, y: 0.6 * gaussian(1.3)(x, y) * np.eye(3) + 0.4 * np.diag(x * y),
    ),
    Case(
        "labels",
        Decomposable(Delta(), Dense(PAIR)) + Decomposable(Delta() + 0.5, Diagonal([1.0, 3.0])),
        no.add(
            no.decomposable(naive.delta(), PAIR),
            no.decomposable(naive.add(naive.delta(), naive.constant(0.5)), np.diag([1.0, 3.0])),
        ),
        LABELS,
        NEW_LABELS,
        p=2,
    ),
]
for case in CASES:
    case.kernel = case.kernel.resolve(case.X)
