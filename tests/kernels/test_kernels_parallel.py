"""Gram matrices in blocks, in parallel, and on disk."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import joblib
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch

from representer import OperatorRidge
from representer.kernels import (
    Callable,
    Columns,
    Delta,
    Edit,
    Functional,
    Gaussian,
    GlobalAlignment,
    Graph,
    Kernel,
    Linear,
    Match,
    MeanMap,
    Mismatch,
    Parallel,
    Precomputed,
    RandomWalk,
    ShortestPath,
    Signature,
    Spectrum,
    Subsequence,
    Tanimoto,
    WeisfeilerLehman,
    pairwise_blocks,
)
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 3))
Y = RNG.standard_normal((4, 3))
WORDS = ["kernel", "graph", "ridge", "graph"]
CALLS: Counter[str] = Counter()


def common_letters(x: str, y: str) -> float:
    CALLS["common_letters"] += 1
    return float(len(set(x) & set(y)))


def common_nodes(x: nx.Graph, y: nx.Graph) -> float:
    CALLS["common_nodes"] += 1
    return float(len(set(x.adj) & set(y.adj)))


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


# -- blocks -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_blocks_make_the_whole(size: int, n_jobs: int | None) -> None:
    kernel = Gaussian(1.0)
    for data, other in ((X, Y), (torch.from_numpy(X), torch.from_numpy(Y)), (X.tolist(), Y.tolist())):
        gram = pairwise_blocks(kernel, data, block_size=size, n_jobs=n_jobs)
        torch.testing.assert_close(gram, kernel(X))
        cross = pairwise_blocks(kernel, data, other, block_size=size, n_jobs=n_jobs)
        torch.testing.assert_close(cross, kernel(X, Y))


def test_blocks_of_a_symmetric_matrix_are_computed_once() -> None:
    seen: list[tuple[int, int | None]] = []

    def block(rows: list[int], columns: list[int] | None) -> torch.Tensor:
        seen.append((rows[0], None if columns is None else columns[0]))
        return torch.zeros(len(rows), len(rows if columns is None else columns))

    pairwise_blocks(block, list(range(5)), block_size=2)
    assert seen == [(0, None), (2, 0), (2, None), (4, 0), (4, 2), (4, None)]


def test_blocks_carry_gradients_and_batches() -> None:
    scales = torch.tensor([0.5, 2.0], dtype=torch.float64).reshape(2, 1, 1).requires_grad_()
    kernel = Gaussian(scales)
    weights = torch.from_numpy(RNG.standard_normal((7, 7)))
    results = []
    for n_jobs in (None, 2):
        gram = pairwise_blocks(kernel._gram, torch.from_numpy(X), block_size=3, n_jobs=n_jobs)
        assert gram.shape == (2, 7, 7)
        results.append(torch.autograd.grad((weights * gram).sum(), scales)[0])
    expected = torch.autograd.grad((weights * kernel(X)).sum(), scales)[0]
    for result in results:
        torch.testing.assert_close(result, expected)
    with torch.no_grad():
        assert not pairwise_blocks(kernel._gram, torch.from_numpy(X), block_size=3, n_jobs=2).requires_grad


def test_threads() -> None:
    names = set()

    def block(rows: Any, columns: Any) -> torch.Tensor:
        names.add(threading.current_thread().name)
        return Linear()(rows, columns)

    with joblib.parallel_config("threading", n_jobs=2):  # what None means is for joblib to say
        pairwise_blocks(block, X, block_size=1)
    assert names != {threading.main_thread().name}


@pytest.mark.slow
def test_processes() -> None:
    words = pairwise_blocks(Callable(common_letters)._gram, WORDS, block_size=2, n_jobs=2, processes=True)
    assert CALLS["common_letters"] == 0  # elsewhere
    torch.testing.assert_close(words, Callable(common_letters)(WORDS))
    elsewhere = Parallel(Callable(common_letters), 2, block_size=2, processes=True)
    CALLS.clear()
    torch.testing.assert_close(elsewhere(WORDS, WORDS[:3]), words[:, :3])
    assert CALLS["common_letters"] == 0


STRINGS = ["abab", "ba", "aabb", "", "bbbab", "ab"]
GRAPHS = [Graph([(i, i + 1) for i in range(n)], ["C", "O", *["C"] * (n - 1)]) for n in (1, 3, 2, 5, 4)]
BAGS = [RNG.standard_normal((n, 2)) for n in (3, 1, 4, 2, 5)]
SERIES = [RNG.standard_normal(n) for n in (3, 5, 2, 4)]
SPARSE = scipy.sparse.csr_array((RNG.random((7, 12)) < 0.4).astype(float))
IN_BLOCKS = [
    (Edit(1.5), STRINGS),
    (Subsequence(2, 0.7), STRINGS),
    (Mismatch(2, 1, alphabet="ab"), STRINGS),
    (Spectrum((1, 2)), STRINGS),
    (WeisfeilerLehman(2), GRAPHS),
    (ShortestPath(), GRAPHS),
    (RandomWalk(0.05), GRAPHS),
    (Match(Gaussian(1.0)), BAGS),
    (MeanMap(Gaussian(1.0), Gaussian(1.0)), BAGS),
    (GlobalAlignment(1.0), SERIES),
    (Signature(2, scale=1.0), SERIES),
    (Functional(Gaussian(1.0)), X),
    (Tanimoto(), SPARSE),
    (Columns({"a": Gaussian(1.0), "b": Delta()}), {"a": [1.0, 2.0, 4.0, 4.5], "b": [1, 1, 2, 1]}),
    (2.0 * Gaussian(1.0) + Linear(), X),
]


@pytest.mark.parametrize(("kernel", "data"), IN_BLOCKS, ids=[repr(kernel)[:40] for kernel, _ in IN_BLOCKS])
def test_parallel_is_the_kernel_itself(kernel: Kernel, data: Any) -> None:
    for parallel in (Parallel(kernel, 2, block_size=2), Parallel(kernel)):
        torch.testing.assert_close(parallel(data), kernel(data))
        torch.testing.assert_close(parallel(data, data), kernel(data, data))
        torch.testing.assert_close(parallel.diag(data), kernel.diag(data))


def test_contract_of_parallel() -> None:
    check_kernel(Parallel("auto" * Gaussian("auto"), 2, block_size=3), X, Y)
    check_kernel(Parallel(Subsequence(2, "auto"), 2, block_size=4).normalized(), STRINGS)
    learned = Parallel(Callable(common_letters), processes=True) + Parallel(Edit("auto"), 2, processes=True)
    model = OperatorRidge(learned, alpha=0.1, max_iter=3, tol=1e-2).fit(WORDS[:3], [0.0, 1.0, 2.0])
    assert isinstance(model.kernel_.right.kernel.lengthscale, float)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Parallel(Precomputed()), "kernel of Parallel must be a kernel that can be evaluated"),
        (Parallel(Linear(), block_size=0), "block_size of Parallel must be a positive integer"),
    ],
)
def test_bad_arguments_of_parallel(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(X)
