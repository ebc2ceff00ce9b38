"""Sequences against loops over positions, alignments and subsequences; learning; saving; what is no sequence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import naive
import representer
from representer import OperatorRidge
from representer.kernels import (
    Delta,
    Gaussian,
    GlobalAlignment,
    Kernel,
    Linear,
    Polynomial,
    Positionwise,
    SoftAlignment,
    SoftSubsequence,
    Spectrum,
    Subsequence,
    WeightedDegree,
    bags,
)
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
VECTORS: list[Any] = [RNG.standard_normal((m, 2)) for m in (3, 1, 4, 2, 5)]
WORDS = ["cat", "cart", "at", "tac", "c"]
PHRASES = [["cat", "cart"], ["art"], ["tar", "cat", "cat"]]
ANCHORS = [RNG.standard_normal((m, 2)) for m in (2, 3, 1)]


# -- definitions ------------------------------------------------------------------------------------------------------
def positionwise(k: naive.Pairwise) -> naive.Pairwise:
    return lambda x, y: sum(k(a, b) for a, b in zip(x, y, strict=False))


def anchored(k: naive.Pairwise, anchors: list[Any]) -> naive.Pairwise:
    """The inner product of the features of Kadri et al. (2013), section 6.2."""

    def features(x: Any) -> list[float]:
        return [k(c, x[v]) if v < len(x) else 0.0 for word in anchors for v, c in enumerate(word)]

    return lambda x, y: float(np.dot(features(x), features(y)))


def alignments(n: int, m: int) -> Iterator[list[tuple[int, int]]]:
    """All paths from (0, 0) to (n − 1, m − 1) by steps in one coordinate or in both."""
    if n == m == 1:
        yield [(0, 0)]
    for a, b in ((1, 0), (0, 1), (1, 1)):
        if n - a > 0 and m - b > 0:
            for path in alignments(n - a, m - b):
                yield [*path, (n - 1, m - 1)]


def aligned(k: naive.Pairwise) -> naive.Pairwise:
    def total(x: Any, y: Any) -> float:
        local = [[k(a, b) / (2.0 - k(a, b)) for b in y] for a in x]
        return sum(float(np.prod([local[i][j] for i, j in path])) for path in alignments(len(x), len(y)))

    return naive.normalized(total)


def subsequences(k: naive.Pairwise, n: int, decay: float) -> naive.Pairwise:
    def total(x: Any, y: Any) -> float:
        return sum(
            decay ** (i[-1] - i[0] + j[-1] - j[0] + 2)
            * float(np.prod([k(x[s], y[t]) for s, t in zip(i, j, strict=True)]))
            for i in itertools.combinations(range(len(x)), n)
            for j in itertools.combinations(range(len(y)), n)
        )

    return total


def spectrum(x: str, y: str) -> float:
    return float(sum(a == b for a in x for b in y))


gauss = naive.gaussian(1.3)
CASES: list[tuple[Kernel, naive.Pairwise, list[Any]]] = [
    (Positionwise(Gaussian(1.3)), positionwise(gauss), VECTORS),
    (Positionwise(Delta()), positionwise(naive.delta()), WORDS),
    (Positionwise(Spectrum(1)), positionwise(spectrum), PHRASES),
    (Positionwise(Polynomial(3), ANCHORS), anchored(naive.polynomial(3, 1.0, 1.0), ANCHORS), VECTORS),
    (SoftAlignment(Gaussian(1.3)), aligned(gauss), VECTORS),
    (SoftAlignment(Spectrum(1).normalized()), aligned(naive.normalized(spectrum)), PHRASES),
    (SoftSubsequence(Gaussian(1.3), 2, 0.7), subsequences(gauss, 2, 0.7), VECTORS),
    (SoftSubsequence(Linear(), 3, 0.4), subsequences(naive.linear(), 3, 0.4), VECTORS),
    (SoftSubsequence(Spectrum(1), 1), subsequences(spectrum, 1, 0.5), PHRASES),
]


@pytest.mark.parametrize("points", [10**6, 4, 1])
@pytest.mark.parametrize(("kernel", "oracle", "data"), CASES, ids=[repr(case[0])[:60] for case in CASES])
def test_definition(
    kernel: Kernel, oracle: naive.Pairwise, data: list[Any], points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags, "BLOCK_POINTS", points)  # in one block, in several, one by one
    np.testing.assert_allclose(kernel(data), naive.gram(oracle, data), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(kernel(data, data[1:3]), naive.gram(oracle, data, data[1:3]), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(kernel.diag(data), [oracle(x, x) for x in data], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(("kernel", "data"), [(kernel, data) for kernel, _, data in CASES], ids=lambda v: repr(v)[:60])
def test_contract(kernel: Kernel, data: list[Any]) -> None:
    check_kernel(kernel, data)


@pytest.mark.parametrize(
    "kernel",
    [
        Positionwise(Gaussian("auto"), "data"),
        "auto" * Positionwise(Gaussian("ard")) + SoftAlignment(Gaussian("auto")),
        SoftSubsequence(Gaussian("auto"), 2, "auto").normalized() * Positionwise(Polynomial(2, "auto", "auto")),
    ],
    ids=lambda kernel: " ".join(repr(kernel).split())[:60],
)
def test_contract_with_words(kernel: Kernel) -> None:
    longer = [np.vstack([x, x + 0.1]) for x in VECTORS]
    check_kernel(kernel, longer, longer[:2])


# -- relatives --------------------------------------------------------------------------------------------------------
def test_special_cases() -> None:
    series = [x[:, 0] for x in VECTORS]
    torch.testing.assert_close(SoftAlignment(Gaussian(0.8))(series), GlobalAlignment(0.8)(series))
    torch.testing.assert_close(SoftAlignment(Gaussian(0.8))(VECTORS), GlobalAlignment(0.8)(VECTORS))
    torch.testing.assert_close(SoftSubsequence(Delta(), 2, 0.6)(WORDS), Subsequence(2, 0.6)(WORDS))
    torch.testing.assert_close(Positionwise(Delta())(WORDS), WeightedDegree(1)(WORDS))


def test_long_sequences_stay_in_range() -> None:
    long = [RNG.standard_normal((m, 1)) for m in (300, 320)]
    gram = SoftAlignment(Gaussian(1.0))(long)
    torch.testing.assert_close(gram, GlobalAlignment(1.0)(long))
    assert 0 < gram[0, 1] < 1


# -- learners ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kernel",
    [Positionwise(Gaussian("auto"), "data"), SoftAlignment(Gaussian("auto")), SoftSubsequence(Gaussian(1.0), 1)],
    ids=repr,
)
def test_learned_saved_and_read(kernel: Kernel, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = [rng.standard_normal((m, 2)) for m in rng.integers(1, 4, 20)]
    y = [float(x.sum()) for x in X]
    model = OperatorRidge(kernel).fit(X, y)
    assert model.score(X, y) > 0.5
    model.save(tmp_path / "model.rep")
    np.testing.assert_array_equal(representer.load(tmp_path / "model.rep").predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("kernel", "data", "message"),
    [
        (Positionwise("rbf"), VECTORS, "kernel of Positionwise must be a kernel of symbols"),
        (Positionwise(Linear(), "all"), VECTORS, "anchors of Positionwise must be None, 'data' or sequences"),
        (Positionwise(Linear(), "data"), VECTORS, None),
        (Positionwise(Linear()), [VECTORS[0], []], "Sequence 1 is empty"),
        (Positionwise(Linear()), [VECTORS[0], np.ones((2, 3))], "points of sequence 1 have 3 features"),
        (Positionwise(Linear()), sum, "Positionwise takes a sequence of sequences"),
        (SoftAlignment(Linear()), VECTORS, "must have values between 0 and 1"),
        (SoftSubsequence(Delta(), 0), WORDS, "length of SoftSubsequence"),
        (SoftSubsequence(Delta(), 2, 1.5), WORDS, "decay of SoftSubsequence"),
    ],
)
def test_refused(kernel: Kernel, data: Any, message: str | None) -> None:
    if message is None:
        assert kernel(data).shape == (5, 5)  # called with data, the kernel resolves itself
        with pytest.raises(ValueError, match="no anchors yet"):
            kernel._gram(data, None)
        return
    with pytest.raises(ValueError, match=message):
        kernel(data)
