"""Gram matrices in blocks, in parallel, and on disk."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from representer import OperatorRidge
from representer.kernels import (
    Cached,
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
    Neural,
    Parallel,
    Precomputed,
    Pullback,
    RandomWalk,
    ShortestPath,
    Signature,
    Spectrum,
    Subsequence,
    Tanimoto,
    WeisfeilerLehman,
    pairwise_blocks,
)
from representer.kernels.cached import content_hash
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


def test_threads_and_processes() -> None:
    names = set()

    def block(rows: Any, columns: Any) -> torch.Tensor:
        names.add(threading.current_thread().name)
        return Linear()(rows, columns)

    with joblib.parallel_config("threading", n_jobs=2):  # what None means is for joblib to say
        pairwise_blocks(block, X, block_size=1)
    assert names != {threading.main_thread().name}
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


# -- on disk ----------------------------------------------------------------------------------------------------------
def test_a_gram_matrix_is_computed_once(tmp_path: Path) -> None:
    kernel = Cached(Callable(common_letters), str(tmp_path / "new" / "folder"))
    first, cross, diagonal = kernel(WORDS), kernel(WORDS, ["edge"]), kernel.diag(WORDS)
    calls = CALLS["common_letters"]
    assert calls == 10 + 4 + 4
    torch.testing.assert_close(first, Callable(common_letters)(WORDS))
    CALLS.clear()
    again = Cached(Callable(common_letters), str(tmp_path / "new" / "folder"))
    assert bool((again(list(WORDS)) == first).all())
    assert bool((again(WORDS, ["ed" + "ge"]) == cross).all())
    assert bool((again.diag(tuple(WORDS)) == diagonal).all())
    assert CALLS["common_letters"] == 0
    again(WORDS[::-1])
    assert CALLS["common_letters"] == 10
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 4


def test_results_may_be_overwritten(tmp_path: Path) -> None:
    kernel = Cached(Gaussian(1.0), str(tmp_path))
    expected = Gaussian(1.0)(X)
    for _ in range(3):
        gram = kernel(X)
        torch.testing.assert_close(gram, expected, rtol=0, atol=0)
        gram.zero_()


@pytest.mark.parametrize(
    ("kernel", "data"),
    [
        (Gaussian("auto") + 2.0, X),
        ("auto" * GlobalAlignment("auto"), [row[: i + 1] for i, row in enumerate(X[:3])]),
        (Columns({"age": Gaussian("auto")}, weights="auto"), [{"age": float(v)} for v in X[:, 0]]),
        (Delta(), WORDS),
        (Linear().centered(), X),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Kernel) else "",
)
def test_contract(kernel: Kernel, data: Any, tmp_path: Path) -> None:
    check_kernel(Cached(kernel, str(tmp_path)), data)
    check_kernel(Cached(kernel, str(tmp_path)), data)


def damaged(content: bytes) -> list[bytes]:
    flipped = bytearray(content)
    flipped[-3] ^= 1
    return [b"", content[:10], content[:-8], b"nonsense" * 30, bytes(flipped)]


@pytest.mark.parametrize("way", range(5))
def test_damaged_files_are_computed_again(way: int, tmp_path: Path) -> None:
    kernel = Cached(Gaussian(1.0), str(tmp_path))
    expected = kernel(X)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.write_bytes(damaged(content)[way])
    with pytest.warns(RuntimeWarning, match="cannot be used.*computed again"):
        assert bool((kernel(X) == expected).all())
    assert file.read_bytes() == content
    assert bool((kernel(X) == expected).all())


def test_nothing_is_left_of_an_interrupted_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Cached(Gaussian(1.0), str(tmp_path))(X)
    assert list(tmp_path.iterdir()) == []


def test_a_search_stores_nothing(tmp_path: Path) -> None:
    lengthscale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    Cached(Gaussian(lengthscale), str(tmp_path))(X).sum().backward()
    assert lengthscale.grad is not None
    points = torch.from_numpy(X).requires_grad_()
    assert Cached(Gaussian(1.0), str(tmp_path))(points).requires_grad
    assert list(tmp_path.iterdir()) == []


def test_learners(tmp_path: Path) -> None:
    y = X.sum(1)
    plain = OperatorRidge(Gaussian("auto"), alpha=1e-3).fit(X, y)
    model = OperatorRidge(Cached(Gaussian("auto"), str(tmp_path)), alpha=1e-3)
    fitted = clone(model).fit(X, y)
    np.testing.assert_allclose(fitted.predict(Y), plain.predict(Y), rtol=1e-6)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(fitted)).predict(Y), fitted.predict(Y))
    words = OperatorRidge(Cached(Callable(common_letters), str(tmp_path)), alpha=1e-3)
    search = GridSearchCV(words, {"alpha": [1e-3, 1e-2, 1e-1]}, cv=2).fit(WORDS * 2, np.arange(8.0))
    calls = CALLS["common_letters"]
    # Three alphas on the same folds: one Gram matrix (10) and one for predictions (16) a fold, and all of it (36).
    assert calls <= 2 * (10 + 16 + 10 + 16) + 36
    GridSearchCV(words, {"alpha": [1e-4, 1e-5]}, cv=2).fit(WORDS * 2, np.arange(8.0))
    assert CALLS["common_letters"] == calls
    assert search.best_score_ <= 1.0


# -- content ----------------------------------------------------------------------------------------------------------
@dataclass
class Molecule:
    atoms: list[str]
    charge: int = 0


def graph(edges: list[tuple[int, int]], label: str = "C") -> nx.Graph:
    made = nx.Graph(edges)
    nx.set_node_attributes(made, label, "label")
    return made


def scaled(factor: float) -> Any:
    return lambda data: factor * data


class Opaque:
    def __reduce__(self) -> Any:
        raise TypeError("no")


DISTINCT: list[Any] = [
    None, False, 0, 0.0, "0", b"0", [], (), {}, set(),
    ["ab", "c"], ["a", "bc"], ["abc"], [["a"], "bc"], ("ab", "c"),
    np.zeros(3), np.zeros(4), np.zeros((3, 1)), np.zeros(3, np.float32), np.array([0.0, 0.0, 1.0]),
    np.array(["a", "b"], dtype=object), torch.zeros(3), {"a": 1}, {"a": 2}, {"b": 1}, {1, 2}, {1, 3},
    Gaussian(1.0), Gaussian(2.0), Linear(), Gaussian(np.ones(2000)), Gaussian(np.full(2000, 2.0)),
    2.0 * Gaussian(1.0), Delta(), Columns({"a": Gaussian(1.0)}), Columns({"b": Gaussian(1.0)}),
    Callable(common_letters), Callable(common_nodes), Callable(lambda x, y: 1.0), Callable(lambda x, y: 2.0),
    Pullback(Linear(), scaled(1.0)), Pullback(Linear(), scaled(2.0)), Pullback(Linear(), torch.exp),
    Neural(torch.nn.Linear(1, 1), Linear()), Neural(torch.nn.Linear(1, 1), Linear()),
    graph([(0, 1)]), graph([(0, 2)]), graph([(0, 1)], "N"), nx.DiGraph([(0, 1)]),
    Molecule(["C"]), Molecule(["C"], 1), Path("a"), Path("b"),
]  # fmt: skip


def test_different_contents_have_different_names() -> None:
    assert len({content_hash(item) for item in DISTINCT}) == len(DISTINCT)


@pytest.mark.parametrize("item", DISTINCT, ids=lambda item: repr(item)[:30])
def test_equal_contents_have_equal_names(item: Any) -> None:
    assert content_hash(item) == content_hash(item)
    copied = clone(item) if isinstance(item, Kernel) else pickle.loads(pickle.dumps(item))
    assert content_hash([item, item]) == content_hash([item, copied])


def test_names_hold_in_another_process() -> None:
    script = (
        "from representer.kernels.cached import content_hash; from representer.kernels import Gaussian;"
        "print(content_hash([Gaussian(1.0), ['a', {'b', 'c', 'd'}, {'x': 1.5}]]))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == content_hash([Gaussian(1.0), ["a", {"b", "c", "d"}, {"x": 1.5}]])


def test_looking_at_a_graph_changes_nothing(tmp_path: Path) -> None:
    kernel = Cached(Callable(common_nodes), str(tmp_path))
    graphs = [graph([(0, 1)]), graph([(1, 2), (2, 3)])]
    kernel(graphs)
    calls = CALLS["common_nodes"]
    kernel(graphs)
    kernel([nx.Graph(item) for item in graphs])
    assert CALLS["common_nodes"] == calls


def test_what_cannot_be_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot name the content"):
        Cached(Callable(lambda x, y: 1.0), str(tmp_path))([Opaque(), Opaque()])
