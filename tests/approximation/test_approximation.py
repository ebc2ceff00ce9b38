"""Nyström features: exact with all samples, better with pivots, in blocks, on any data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from operator_cases import WORDS, common_letters
from sklearn.base import clone

from representer.approximation import LandmarkFeatures, Nystroem, landmark_features
from representer.kernels import Callable, Delta, Gaussian, Kernel, Linear, Matern, Polynomial, Precomputed
from representer.linalg import resources as memory

SAMPLINGS: Any = ["uniform", "pivots", "entropy"]


def error(features: LandmarkFeatures, kernel: Kernel, X: Any) -> float:
    B = features(X)
    return float((B @ B.T - kernel(X)).abs().max())


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kernel", [Gaussian(0.5), Matern(0.5, 1.0), Linear(), 2.0 * Polynomial(3) + 1.0], ids=repr)
def test_all_samples_are_exact(kernel: Kernel, sampling: Any, rng: np.random.Generator) -> None:
    X = rng.standard_normal((20, 2))
    features = Nystroem(20, sampling).features(kernel, X, seed=0)
    assert error(features, kernel, X) <= 1e-6 * float(kernel(X).max())
    # At new points it is k(x, Z) k(Z, Z)⁻¹ k(Z, y), which is k(x, y) when one of them is a landmark.
    new = rng.standard_normal((5, 2))
    torch.testing.assert_close(features(new) @ features(X).T, kernel(new, X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_is_the_nystroem_formula(sampling: Any, rng: np.random.Generator) -> None:
    X, new = rng.standard_normal((20, 2)), rng.standard_normal((5, 2))
    kernel = Matern(1.5, 1.0)
    features = Nystroem(6, sampling).features(kernel, X, seed=3)
    Z = features.landmarks
    assert Z.shape == (6, 2)
    assert all(any(np.array_equal(z, x) for x in X) for z in Z.numpy())
    assert len({tuple(z.tolist()) for z in Z}) == 6
    expected = kernel(new, Z) @ torch.linalg.solve(kernel(Z), kernel(Z, X))
    torch.testing.assert_close(features(new) @ features(X).T, expected, rtol=1e-9, atol=1e-10)
    gap = torch.linalg.eigvalsh(kernel(X) - features(X) @ features(X).T)
    assert gap.min() > -1e-10  # never more than the kernel


def test_pivots_find_what_uniform_samples_miss(rng: np.random.Generator) -> None:
    """Nine tenths of the samples in one place."""
    X = np.concatenate([0.01 * rng.standard_normal((180, 2)), rng.uniform(-3, 3, (20, 2))])
    kernel = Gaussian(1.0)
    chosen = error(Nystroem(15, "pivots").features(kernel, X, seed=0), kernel, X)
    drawn = [error(Nystroem(15, "uniform").features(kernel, X, seed=seed), kernel, X) for seed in range(5)]
    assert chosen < 0.5 * min(drawn)


def test_pivots_stop_at_the_rank(rng: np.random.Generator) -> None:
    X = rng.standard_normal((30, 3))
    features = Nystroem(10, "pivots").features(Linear(), X, seed=0)
    assert len(features.landmarks) == 3
    assert error(features, Linear(), X) < 1e-12


def test_seeds() -> None:
    X = np.arange(50.0)[:, None]

    def landmarks(seed: int) -> list[float]:
        return Nystroem(5).features(Gaussian(1.0), X, seed=seed).landmarks[:, 0].tolist()

    assert landmarks(0) == landmarks(0) == sorted(landmarks(0))
    assert landmarks(0) != landmarks(1)


def test_blocks_equal_one_go(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X = rng.standard_normal((20, 2))
    features = Nystroem(6).features(Gaussian(1.0), X, seed=0)
    whole = features(X)
    seen: list[int] = []
    gram = Gaussian._gram

    def counted(self: Any, left: Any, right: Any) -> Any:
        seen.append(len(left))
        return gram(self, left, right)

    monkeypatch.setattr(Gaussian, "_gram", counted)
    monkeypatch.setattr(memory, "BLOCK_BYTES", 7 * 6 * 8)
    torch.testing.assert_close(features(X), whole, rtol=0, atol=1e-13)  # solves round block by block
    assert seen == [7, 7, 6]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    ("kernel", "data"),
    [
        (Callable(common_letters), WORDS),
        (Delta(), list("abacabcb")),
        (Delta() + 0.5, np.array(list("aabbccdd"))),
    ],
    ids=["words", "labels", "array of labels"],
)
def test_objects(kernel: Kernel, data: Any, sampling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BLOCK_BYTES", 3 * 8 * 8)
    features = Nystroem(8, sampling).features(kernel, data, seed=0)
    B = features(data)
    torch.testing.assert_close(B @ B.T, kernel(data), rtol=1e-6, atol=1e-6)


def test_precision_follows_the_landmarks() -> None:
    X = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    features = Nystroem(5).features(Gaussian(1.0), X, seed=0)
    assert features(X).dtype == torch.float32
    assert features(X.double().numpy()).dtype == torch.float32


@pytest.mark.parametrize("wrong", [0, -1, 11, 2.5, "all", None, True])
def test_bad_numbers_of_landmarks(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"an integer from 1 to the number of samples, 10; got .*Choose at most 10"):
        Nystroem(wrong).features(Gaussian(1.0), np.ones((10, 1)), seed=0)


def test_numpy_integers_are_integers() -> None:
    features = Nystroem(np.int64(3)).features(Gaussian(1.0), np.arange(10.0)[:, None], seed=0)  # type: ignore[arg-type]
    assert len(features.landmarks) == 3


def test_other_bad_input() -> None:
    X = np.arange(10.0)[:, None]
    with pytest.raises(ValueError, match=r"sampling of Nystroem must be one of 'uniform', .*; got 'best'"):
        Nystroem(3, "best").features(Gaussian(1.0), X, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a precomputed Gram matrix is already n × n"):
        Nystroem(3).features(Precomputed(), np.eye(10), seed=0)
    features = Nystroem(3).features(Gaussian(1.0), X, seed=0)
    with pytest.raises(ValueError, match="X has 2 features, but Y has 1"):
        features(np.ones((4, 2)))
    with pytest.raises(ValueError, match="NaN or infinity"):
        features([[np.nan]])


def test_duplicates_are_survived() -> None:
    X = np.zeros((10, 1))
    features = landmark_features(Gaussian(1.0), torch.zeros(4, 1, dtype=torch.float64))
    torch.testing.assert_close(
        features(X) @ features(X).T, torch.ones(10, 10, dtype=torch.float64), rtol=1e-5, atol=1e-5
    )


def test_is_a_value() -> None:
    approximation = Nystroem(20, sampling="pivots")
    assert eval(repr(approximation)) == approximation == clone(approximation)
    assert approximation != Nystroem(20)
    own = {"kernel": None, "random_state": None}
    assert approximation.get_params() == {"n_components": 20, "sampling": "pivots", **own}
    assert clone(approximation).set_params(n_components=5) == Nystroem(5, "pivots")


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("kernel", [Linear(), 2.0 * Linear() + 1.0], ids=repr)
def test_what_landmarks_miss_of_points_far_from_zero(kernel: Kernel, m: int, rng: np.random.Generator) -> None:
    """k(x, x) − ‖φ(x)‖² is a difference of numbers of 10¹²; extended precision says what it should be."""
    X = np.round(rng.standard_normal((20, 3)) * 2**10) / 2**10 + 2.0**20
    features = landmark_features(kernel, kernel.prepare(X[:m]))
    points = kernel.prepare(X[m:])
    missed = features.missed(points, features(points))
    explicit = np.asarray(kernel.features(kernel.prepare(X)), np.longdouble)
    basis = explicit[:m].copy()
    for _ in range(2):  # Gram and Schmidt, twice, is as good as orthogonal
        for i in range(m):
            basis[i] -= basis[:i].T @ (basis[:i] @ basis[i])
            basis[i] /= np.sqrt(basis[i] @ basis[i])
    rest = explicit[m:] - (explicit[m:] @ basis.T) @ basis
    if m >= explicit.shape[1]:
        assert float(missed.max()) <= 1e-6
    else:
        np.testing.assert_allclose(missed, np.asarray((rest**2).sum(1), float), rtol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 10.0])
@pytest.mark.parametrize("kernel", [Linear(), 2.0 * Linear() + 1.0, Polynomial(2)], ids=repr)
def test_features_of_landmarks_by_explicit_features_are_those_by_their_gram_matrix(
    kernel: Kernel, offset: float, rng: np.random.Generator
) -> None:
    X = kernel.prepare(rng.standard_normal((20, 3)) + offset)
    features = landmark_features(kernel, X[:2])
    assert features.is_explicit
    by_gram = torch.linalg.solve_triangular(torch.linalg.cholesky(kernel(X[:2])), kernel(X[:2], X), upper=False).mT
    torch.testing.assert_close(features(X), by_gram, rtol=1e-8, atol=1e-12 * (1.0 + offset) ** 2)
    L = features.factor.factor
    torch.testing.assert_close(L @ L.mT, kernel(X[:2]))
