"""Kernels on graphs against enumerations of subtrees, paths and walks, and against GraKeL; the graphs themselves."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections import deque
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline

import naive
from representer import OperatorRidge
from representer.datasets import load_mutag
from representer.kernels import Callable as FunctionKernel
from representer.kernels import Kernel, graphs
from representer.kernels.graphs import (
    GraKeL,
    Graph,
    RandomWalk,
    ShortestPath,
    VertexHistogram,
    WeisfeilerLehman,
    as_graph,
    union,
)
from representer.testing import check_kernel


def random_graph(
    rng: np.random.Generator, n: int, node_labels: Any = "abc", edge_labels: Any = (None,), share: float = 0.4
) -> Graph:
    edges = [(v, u) for v in range(n) for u in range(v) if rng.random() < share]
    choose = [
        [labels[i] for i in rng.integers(len(labels), size=m)]
        for labels, m in ((node_labels, n), (edge_labels, len(edges)))
    ]
    return Graph(edges, *choose)


def permuted(graph: Graph, rng: np.random.Generator) -> Graph:
    """An isomorphic graph: other numbers, other order and direction of the edges."""
    new = rng.permutation(graph.n_nodes)
    edges, order = new[graph.edges], rng.permutation(len(graph.edges))
    nodes = [graph.node_labels[i] for i in np.argsort(new)]
    return Graph(edges[order][:, ::-1], nodes, [graph.edge_labels[i] for i in order])


RNG = np.random.default_rng(0)
PLAIN = [random_graph(RNG, n) for n in (5, 6, 4, 7, 3, 6)]
LABELLED = [random_graph(RNG, n, ["C", ("N", 1), 3], [1, "double"]) for n in (5, 7, 4, 6, 8)]
BARE = [random_graph(RNG, n, [None], share=0.5) for n in (4, 6, 5, 7)]
# What is easily forgotten: no nodes, no edges, isolated nodes, loops, two components, labels seen nowhere else.
ODD = [
    Graph(),
    Graph(node_labels=["a"]),
    Graph([(0, 1)], ["a", "b", "c"]),
    Graph([(0, 0), (0, 1)], ["a", "b"]),
    Graph([(0, 1), (2, 3), (3, 4)], ["a", "b", "a", "b", "new"], [1, 1, None]),
]


# -- definitions ------------------------------------------------------------------------------------------------------
def neighbours(graph: Graph) -> list[list[tuple[int, Any]]]:
    found: list[list[tuple[int, Any]]] = [[] for _ in range(graph.n_nodes)]
    for (u, v), label in zip(graph.edges.tolist(), graph.edge_labels, strict=True):
        found[u].append((v, label))
        if u != v:
            found[v].append((u, label))
    return found


def subtree(graph: Graph, node: int, height: int) -> Any:
    """The tree of all walks from a node, unfolded: its label, and the trees below it in a canonical order."""
    label = graph.node_labels[node]
    if height == 0:
        return label
    below = [(edge, subtree(graph, other, height - 1)) for other, edge in neighbours(graph)[node]]
    return label, tuple(sorted(below, key=repr))


def agreements(g: Graph, h: Graph, height: int) -> np.ndarray:
    """For each pair of nodes, how many of their subtrees of height 0, …, height are the same."""
    return np.array(
        [
            [sum(subtree(g, u, i) == subtree(h, v, i) for i in range(height + 1)) for v in range(h.n_nodes)]
            for u in range(g.n_nodes)
        ]
    ).reshape(g.n_nodes, h.n_nodes)


def common_subtrees(height: int) -> naive.Pairwise:
    return lambda g, h: float(agreements(g, h, height).sum())


def best_assignment(height: int) -> naive.Pairwise:
    def k(g: Graph, h: Graph) -> float:
        scores = agreements(g, h, height)
        return float(scores[linear_sum_assignment(scores, maximize=True)].sum())

    return k


def distances(graph: Graph, start: int) -> dict[int, int]:
    found, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for other, _ in neighbours(graph)[node]:
            if other not in found:
                found[other] = found[node] + 1
                queue.append(other)
    return found


def common_shortest_paths(g: Graph, h: Graph) -> float:
    def triples(graph: Graph) -> list[Any]:
        return [
            (graph.node_labels[u], graph.node_labels[v], d)
            for u in range(graph.n_nodes)
            for v, d in distances(graph, u).items()
            if u != v
        ]

    return float(sum(a == b for a, b in product(triples(g), triples(h))))


def product_adjacency(g: Graph, h: Graph) -> np.ndarray:
    pairs = [(u, v) for u in range(g.n_nodes) for v in range(h.n_nodes) if g.node_labels[u] == h.node_labels[v]]
    steps = [dict(enumerate(map(dict, neighbours(graph)))) for graph in (g, h)]
    return np.array(
        [
            [
                float(u2 in steps[0][u1] and v2 in steps[1][v1] and steps[0][u1][u2] == steps[1][v1][v2])
                for u2, v2 in pairs
            ]
            for u1, v1 in pairs
        ]
    ).reshape(len(pairs), len(pairs))


def walk_sum(decay: float, slope: bool = False) -> naive.Pairwise:
    """Σ decay^ℓ 1ᵀAˡ1 by powers, or its derivative, up to rounding."""

    def k(g: Graph, h: Graph) -> float:
        A = decay * product_adjacency(g, h)
        total, reached = 0.0, np.ones(len(A))
        for length in range(400):
            total += reached.sum() * (length / decay if slope else 1.0)
            reached = A @ reached
        return total

    return k


def common_label_sequences(g: Graph, h: Graph, length: int) -> int:
    """Pairs of walks with the same labels of nodes and edges, written out."""

    def sequences(graph: Graph) -> list[Any]:
        walks = [([node], [graph.node_labels[node]]) for node in range(graph.n_nodes)]
        for _ in range(length):
            walks = [
                ([*nodes, other], [*labels, edge, graph.node_labels[other]])
                for nodes, labels in walks
                for other, edge in neighbours(graph)[nodes[-1]]
            ]
        return [labels for _, labels in walks]

    return sum(a == b for a, b in product(sequences(g), sequences(h)))


def test_the_powers_of_the_product_graph_count_common_walks() -> None:
    for g, h in product(LABELLED[:3], LABELLED[2:]):
        A = product_adjacency(g, h)
        for length in range(4):
            assert np.linalg.matrix_power(A, length).sum() == common_label_sequences(g, h, length)


CASES: list[tuple[Kernel, Callable[[Any, Any], float]]] = [
    (VertexHistogram(), common_subtrees(0)),
    (WeisfeilerLehman(0), common_subtrees(0)),
    (WeisfeilerLehman(1), common_subtrees(1)),
    (WeisfeilerLehman(3), common_subtrees(3)),
    (WeisfeilerLehman(0, "assignment"), best_assignment(0)),
    (WeisfeilerLehman(3, "assignment"), best_assignment(3)),
    (ShortestPath(), common_shortest_paths),
    (RandomWalk(0.02), walk_sum(0.02)),
]
SAMPLES = {
    "plain": (PLAIN, LABELLED),
    "labelled": (LABELLED, PLAIN),
    "bare": (BARE, PLAIN),
    "odd": (ODD, PLAIN),
}
every_case = pytest.mark.parametrize(("kernel", "oracle"), CASES, ids=[repr(kernel) for kernel, _ in CASES])
every_sample = pytest.mark.parametrize("sample", SAMPLES)


@every_sample
@every_case
def test_definition(kernel: Kernel, oracle: Callable[[Any, Any], float], sample: str) -> None:
    X, Y = SAMPLES[sample]
    np.testing.assert_allclose(kernel(X), naive.gram(oracle, X), rtol=1e-11)
    np.testing.assert_allclose(kernel(X, Y), naive.gram(oracle, X, Y), rtol=1e-11)
    np.testing.assert_allclose(kernel.diag(X), [oracle(x, x) for x in X], rtol=1e-11)


@every_sample
@every_case
def test_contract(kernel: Kernel, oracle: Any, sample: str) -> None:
    check_kernel(kernel, *SAMPLES[sample])


@pytest.mark.parametrize(
    "kernel",
    [
        RandomWalk(),
        RandomWalk("auto", limit=0.03),
        RandomWalk(0.02, limit=0.03),
        RandomWalk().normalized() * WeisfeilerLehman(2),
        "auto" * WeisfeilerLehman(1).normalized() + ShortestPath().centered(),
        WeisfeilerLehman(1) * FunctionKernel(lambda g, h: float(g.n_nodes * h.n_nodes)),
    ],
    ids=lambda kernel: " ".join(repr(kernel).split())[:50],
)
def test_contract_of_compositions_and_words(kernel: Kernel) -> None:
    check_kernel(kernel, LABELLED, PLAIN)


@every_case
def test_isomorphic_graphs_are_the_same(kernel: Kernel, oracle: Any) -> None:
    rng = np.random.default_rng(1)
    X = PLAIN + LABELLED + BARE + ODD
    others = [permuted(graph, rng) for graph in X]
    np.testing.assert_allclose(kernel(others), kernel(X), rtol=1e-11)
    np.testing.assert_allclose(kernel(others, X), kernel(X), rtol=1e-11)


def test_an_empty_graph_has_no_features() -> None:
    for kernel, _ in CASES:
        assert kernel([Graph(), PLAIN[0]])[0].tolist() == [0.0, 0.0]
        assert kernel([Graph()]).tolist() == [[0.0]]
        assert kernel.diag([Graph(), Graph()]).tolist() == [0.0, 0.0]


def test_unlabelled_is_one_label_for_all() -> None:
    named = [Graph(g.edges, ["same"] * g.n_nodes, ["edge"] * len(g.edges)) for g in BARE]
    for kernel, _ in CASES:
        np.testing.assert_allclose(kernel(named), kernel(BARE), rtol=1e-12)
    mixed = VertexHistogram()([BARE[0], named[0]])
    assert mixed[0, 1] == 0  # no label is not the label "same"


def test_edge_labels_refine() -> None:
    bonds = [Graph([(0, 1)], ["C", "C"], [bond]) for bond in ("single", "double", "single")]
    assert WeisfeilerLehman(1)(bonds)[0].tolist() == [8.0, 4.0, 8.0]
    assert RandomWalk(0.1)(bonds)[0, 1] == 4.0  # only walks of length 0
    assert ShortestPath()(bonds).unique().tolist() == [4.0]


# -- explicit features ------------------------------------------------------------------------------------------------
EXPLICIT = [VertexHistogram(), WeisfeilerLehman(3), WeisfeilerLehman(2, "assignment"), ShortestPath()]


@pytest.mark.parametrize("kernel", EXPLICIT, ids=repr)
def test_explicit_features_are_those_of_the_kernel_in_every_call(kernel: Any) -> None:
    X, Y = PLAIN + LABELLED, ODD + LABELLED[:2] + BARE
    features = kernel.explicit_features(X)
    assert features.matrix.shape == (len(X), len(features.columns))
    assert sorted(features.columns.values()) == list(range(len(features.columns)))
    np.testing.assert_allclose((features.matrix @ features.matrix.T).toarray(), kernel(X))
    before = dict(features.columns)
    for part in (Y, Y[::-1], Y[:1], X):  # alone or together, in any order: the same columns
        found = kernel.explicit_features(part, features.columns)
        assert found.matrix.shape[1] == len(before) and found.columns == before == features.columns
        np.testing.assert_allclose((found.matrix @ features.matrix.T).toarray(), kernel(part, X))
    again = kernel.explicit_features(X, pickle.loads(pickle.dumps(features.columns)))
    assert (again.matrix != features.matrix).nnz == 0


def test_refinement_does_not_depend_on_how_codes_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    X = [*LABELLED, *(random_graph(rng, 15, range(9), "xyz", share=0.9) for _ in range(3))]
    expected = WeisfeilerLehman(3)(X)
    monkeypatch.setattr(graphs, "MAX_CODE", 1000)
    assert torch.equal(WeisfeilerLehman(3)(X), expected)


def test_blocks_of_nodes_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    X = PLAIN + ODD + BARE
    expected = ShortestPath()(X)
    for size in (1, 20, 100):
        monkeypatch.setattr(graphs, "BLOCK_PAIRS", size)
        assert torch.equal(ShortestPath()(X), expected)


# -- random walks -----------------------------------------------------------------------------------------------------
def test_the_derivative_in_decay() -> None:
    for X in (PLAIN, LABELLED, ODD):
        decay = torch.tensor(0.03, dtype=torch.float64, requires_grad=True)
        gram = RandomWalk(decay)(X)
        slopes = [[torch.autograd.grad(value, decay, retain_graph=True)[0].item() for value in row] for row in gram]
        np.testing.assert_allclose(slopes, naive.gram(walk_sum(0.03, slope=True), X), rtol=1e-9, atol=1e-9)
    assert not RandomWalk(0.03)(PLAIN).requires_grad
    with torch.no_grad():
        assert not RandomWalk(decay)(PLAIN).requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):  # a second derivative is not silently 0
        (first,) = torch.autograd.grad(RandomWalk(decay)(PLAIN).sum(), decay, create_graph=True)
        first.backward()


def test_blocks_of_graphs_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = PLAIN + ODD, LABELLED
    expected = RandomWalk(0.02)(X), RandomWalk(0.02)(X, Y)
    for size in (1, 300, 900):
        monkeypatch.setattr(graphs, "WALK_PAIRS", size)
        np.testing.assert_allclose(RandomWalk(0.02)(X), expected[0], rtol=1e-11)
        np.testing.assert_allclose(RandomWalk(0.02)(X, Y), expected[1], rtol=1e-11)


def test_a_decay_for_which_walks_have_no_finite_sum_is_refused() -> None:
    star, triangle = Graph([(0, i) for i in range(1, 5)]), Graph([(0, 1), (1, 2), (2, 0)])  # ρ = 2 for both
    edge = Graph([(0, 1)])
    assert graphs._radii(union([star, edge, Graph(), triangle])).round(12).tolist() == [2, 1, 0, 2]
    np.testing.assert_allclose(RandomWalk(0.24)([star]), naive.gram(walk_sum(0.24), [star]), rtol=1e-6)
    for decay, X, Y, bound in ((0.25, [edge, star], None, "0.25"), (0.5, [edge], [edge, triangle], "0.5")):
        with pytest.raises(ValueError, match=rf"graph 1 of .* = {bound}\. Choose a smaller decay"):
            RandomWalk(decay)(X, Y)
    with pytest.raises(ValueError, match="too large"):
        RandomWalk(0.25).diag([star])
    assert RandomWalk(0.49)([edge], [edge, triangle]).shape == (
        1,
        2,
    )  # k(triangle, triangle) is not asked for


def test_a_learned_decay_stays_below_its_limit() -> None:
    resolved = RandomWalk().resolve(PLAIN)
    largest = max(np.linalg.eigvalsh(union([g]).adjacency().toarray())[-1] for g in PLAIN)
    assert resolved.limit == pytest.approx(0.9 / largest**2)
    assert resolved.decay == pytest.approx(resolved.limit / 2)
    assert RandomWalk(limit=0.01).resolve(PLAIN) == RandomWalk(0.005, 0.01)
    assert RandomWalk(0.02).resolve(PLAIN) == RandomWalk(0.02)
    pack, raw = resolved.packing(["decay"])
    for extreme in (-1e9, -3.0, 0.0, 3.0, 1e9):
        decay = pack.unpack(torch.full_like(raw, extreme))["decay"]
        assert 0 < decay < resolved.limit
        assert torch.isfinite(resolved.replace({"decay": decay})(PLAIN)).all()
    fitted = OperatorRidge(kernel=RandomWalk()).fit(PLAIN, RNG.standard_normal(len(PLAIN))).kernel_
    assert 0 < fitted.decay < fitted.limit == resolved.limit


# -- GraKeL -----------------------------------------------------------------------------------------------------------
def ordered(graphs: list[Graph]) -> list[Graph]:
    """Labels that GraKeL can sort."""
    names = sorted({repr(label) for g in graphs for label in g.node_labels})
    return [Graph(g.edges, [names.index(repr(v)) for v in g.node_labels]) for g in graphs]


PEERS = [
    (VertexHistogram(), "vertex_histogram", {}),
    (WeisfeilerLehman(1), "weisfeiler_lehman", {"n_iter": 1}),
    (WeisfeilerLehman(5), "weisfeiler_lehman", {"n_iter": 5}),
    (WeisfeilerLehman(5, "assignment"), "weisfeiler_lehman_optimal_assignment", {"n_iter": 5}),
    (ShortestPath(), "shortest_path", {}),
]
every_peer = pytest.mark.parametrize(("kernel", "name", "options"), PEERS)


@every_peer
def test_equal_to_grakel(kernel: Kernel, name: str, options: dict) -> None:
    pytest.importorskip("grakel")
    rng = np.random.default_rng(3)
    X, Y = (ordered([random_graph(rng, n, range(3), share=0.3) for n in sizes]) for sizes in ((9, 5, 12), (7, 4)))
    np.testing.assert_allclose(kernel(X), GraKeL(name, options)(X), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, Y), GraKeL(name, options)(X, Y), rtol=1e-12)


def test_random_walks_equal_to_grakel() -> None:
    pytest.importorskip("grakel")
    options = {"lamda": 0.01, "method_type": "baseline"}
    np.testing.assert_allclose(RandomWalk(0.01)(BARE), GraKeL("random_walk", options)(BARE), rtol=1e-10)
    X = ordered(PLAIN)
    theirs = GraKeL("random_walk", {**options, "with_labels": True})(X)
    sizes = torch.tensor([g.n_nodes for g in X], dtype=torch.float64)
    unequal = torch.outer(sizes, sizes) - VertexHistogram()(X)  # walks of length 0 there need no equal labels
    np.testing.assert_allclose(RandomWalk(0.01)(X), theirs - unequal, rtol=1e-10)


@every_peer
def test_equal_to_grakel_on_mutag(kernel: Kernel, name: str, options: dict) -> None:
    pytest.importorskip("grakel")
    if not os.environ.get("REPRESENTER_DATA"):
        pytest.skip("REPRESENTER_DATA names no folder with real data")
    X = load_mutag().data
    assert len(X) == 188 and sum(g.n_nodes for g in X) == 3371
    np.testing.assert_array_equal(kernel(X), GraKeL(name, options)(X))
    np.testing.assert_array_equal(kernel(X[:30], X[30:]), GraKeL(name, options)(X[:30], X[30:]))


@pytest.mark.parametrize(
    "kernel",
    [
        GraKeL("propagation", {"random_state": 0}),
        GraKeL("pyramid_match"),
        GraKeL(["weisfeiler_lehman", "shortest_path"], {"n_iter": 2}),
        GraKeL("neighborhood_hash", {"random_state": 0}).normalized(),
    ],
    ids=repr,
)
def test_contract_of_the_adapter(kernel: Kernel) -> None:
    pytest.importorskip("grakel")
    check_kernel(kernel, ordered(PLAIN), ordered(PLAIN)[1:4])


def test_the_adapter_takes_unlabelled_graphs_and_leaves_warnings_alone() -> None:
    pytest.importorskip("grakel")
    before = list(warnings.filters)
    np.testing.assert_allclose(GraKeL("shortest_path")(BARE), ShortestPath()(BARE))
    GraKeL("random_walk", {"lamda": 0.01})(BARE)
    assert warnings.filters == before


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (GraKeL(3), "name of GraKeL must be a str"),  # type: ignore[arg-type]
        (GraKeL([]), "name of GraKeL must be a str"),
        (GraKeL("shortest_path", ["normalize"]), "options of GraKeL must be a dict"),  # type: ignore[arg-type]
        (GraKeL("shortest_path", {"normalize": True}), r"Write GraKeL\(…\)\.normalized\(\)"),
    ],
)
def test_what_the_adapter_refuses(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(PLAIN)


def test_the_adapter_names_its_extra_and_refuses_empty_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"without nodes; got some at position 1 \(1 of 2\)"):
        GraKeL("shortest_path")([PLAIN[0], Graph()])
    monkeypatch.setitem(sys.modules, "grakel", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"representer\[graphs\]\""):
        GraKeL("shortest_path")(PLAIN)


# -- the record -------------------------------------------------------------------------------------------------------
def test_a_graph_is_the_same_however_its_edges_are_given() -> None:
    graph = Graph([(0, 1), (1, 2), (2, 0)], ["C", "C", "O"], [1, 2, 3])
    for other in (
        Graph(((2, 1), (0, 2), (1, 0)), ("C", "C", "O"), (2, 3, 1)),
        Graph([(0, 1), (1, 0), (2, 1), (1, 2), (0, 2)], np.array(["C", "C", "O"]), [1, 1, 2, 2, 3]),
        Graph(np.array([[0, 1], [1, 2], [2, 0]], dtype=np.uint8), ["C", "C", "O"], np.array([1, 2, 3])),
        pickle.loads(pickle.dumps(graph)),
        eval(repr(graph)),
    ):
        assert other == graph and hash(other) == hash(graph) and repr(other) == repr(graph)
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]] and graph.edge_labels == (1, 3, 2)
    for other in (
        Graph(graph.edges, ["C", "C", "N"], graph.edge_labels),
        Graph(graph.edges, graph.node_labels),
        Graph([(0, 1)], graph.node_labels, [1]),
        "graph",
    ):
        assert graph != other
    with pytest.raises(ValueError, match="read-only"):
        graph.edges[0] = 2
    with pytest.raises(AttributeError):
        graph.edges = []  # type: ignore[misc]


@pytest.mark.parametrize("graph", [*PLAIN[:2], *LABELLED[:2], *BARE[:2], *ODD], ids=repr)
def test_a_graph_prints_as_the_code_that_makes_it(graph: Graph) -> None:
    assert eval(repr(graph)) == graph


def test_graphs_without_labels() -> None:
    graph = Graph([(0, 3)])
    assert graph.n_nodes == 4 and graph.node_labels == (None,) * 4 and graph.edge_labels == (None,)
    assert graph == Graph([(3, 0)], [None] * 4) != Graph([(3, 0)], [None] * 5)
    assert Graph().n_nodes == 0 and Graph() == Graph([], []) == Graph(np.empty((0, 2), dtype=int))
    assert repr(Graph([(0, 2000)])) == "<Graph of 2001 nodes and 1 edges>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([(0, 1, 2)],), "edges must be pairs"),
        (([0, 1],), "edges must be pairs"),
        (([(0, 1), (2,)],), "edges must be pairs"),
        (([("a", "b")],), "networkx graph to as_graph"),
        (([(0.0, 1.0)],), "edges must be pairs"),
        (([(0, -1)],), "edges must be pairs"),
        ((7,), "edges must be pairs"),
        (([(0, 3)], ["a", "b"]), "mentions node 3, but node_labels has 2 labels"),
        (([(0, 1)], "ab"), "node_labels must be a sequence"),
        (([(0, 1)], {0: "a", 1: "b"}), "node_labels must be a sequence"),
        (([(0, 1)], [0.0, float("nan")]), "node_labels of a Graph: .*NaN"),
        (([(0, 1)], [{}, {}]), "node_labels of a Graph: .*hashable"),
        (([(0, 1)], None, ["x", "y"]), "There are 1 edges, but 2 edge_labels"),
        (
            ([(0, 1), (1, 0)], None, ["x", "y"]),
            r"The edge \(0, 1\) is given twice, with the labels 'x' and 'y'",
        ),
    ],
)
def test_what_is_not_a_graph(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph(*arguments)


# -- other kinds of graphs --------------------------------------------------------------------------------------------
def test_networkx_graphs() -> None:
    networkx = pytest.importorskip("networkx")
    ring = networkx.cycle_graph(["x", "y", "z"])
    ring.add_node("alone")
    assert as_graph(ring) == Graph([(0, 1), (1, 2), (2, 0)], [None] * 4)
    networkx.set_node_attributes(ring, {"x": "C", "y": "N", "z": "C", "alone": "O"}, "label")
    networkx.set_edge_attributes(ring, {("x", "y"): 1, ("y", "z"): 2, ("z", "x"): 3}, "bond")
    expected = Graph([(0, 1), (1, 2), (2, 0)], ["C", "N", "C", "O"], [1, 2, 3])
    assert as_graph(ring, edge_label="bond") == expected
    assert as_graph(ring) == Graph(expected.edges, expected.node_labels)
    assert as_graph(networkx.Graph()) == Graph()
    np.testing.assert_allclose(WeisfeilerLehman(2)([ring], PLAIN), WeisfeilerLehman(2)([as_graph(ring)], PLAIN))
    ring.add_node("new")
    with pytest.raises(ValueError, match="Some nodes of the networkx graph have no attribute 'label': 'new'"):
        WeisfeilerLehman(2)([ring])
    for kind in (networkx.DiGraph, networkx.MultiGraph):
        with pytest.raises(ValueError, match=rf"got {kind.__name__}.*networkx\.Graph\(graph\)"):
            as_graph(kind())


def test_molecules() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    acid = chem.MolFromSmiles("CC(=O)O")
    expected = Graph([(0, 1), (1, 2), (1, 3)], ["C", "C", "O", "O"], ["SINGLE", "DOUBLE", "SINGLE"])
    assert as_graph(acid) == expected
    mixed = [acid, expected, chem.MolFromSmiles("c1ccccc1"), chem.MolFromSmiles("")]
    gram = WeisfeilerLehman(2)(mixed)
    assert gram[0].tolist() == gram[1].tolist() and gram[0, 0] == gram[0, 1] and gram[3].tolist() == [0.0] * 4
    same = WeisfeilerLehman(3)([chem.MolFromSmiles("OCC"), chem.MolFromSmiles("C(O)C")])
    assert same.unique().numel() == 1
    with pytest.raises(ValueError, match=r"got NoneType at position 1 \(1 of 2\)\. .*MolFromSmiles"):
        WeisfeilerLehman(2)([acid, None])


@pytest.mark.parametrize("kernel", [k for k, _ in CASES[::3]] + [RandomWalk(), GraKeL("shortest_path")], ids=repr)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "Found 0 graphs"),
        (PLAIN[0], "got one Graph. Put it in a list"),
        ("CCO", "takes a sequence of graphs; got str"),
        (3, "takes a sequence of graphs; got int"),
        ([PLAIN[0], "CCO", PLAIN[1], None], r"got NoneType, str at position 1, 3 \(2 of 4\)"),
        ([[(0, 1)]] * 9, r"got list at position 0, 1, 2, 3, 4 … \(9 of 9\)\. .*Graph\(edges, node_labels\)"),
        (np.eye(2), "got ndarray at position 0, 1"),
    ],
)
def test_what_is_not_a_list_of_graphs(kernel: Kernel, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(X)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (WeisfeilerLehman(-1), "iterations of WeisfeilerLehman must be an integer, 0 or more; got -1"),
        (WeisfeilerLehman(2.0), "iterations"),  # type: ignore[arg-type]
        (WeisfeilerLehman(0.0), "iterations"),  # type: ignore[arg-type]
        (WeisfeilerLehman(True), "iterations"),
        (WeisfeilerLehman(False), "iterations"),
        (WeisfeilerLehman("two"), "iterations"),  # type: ignore[arg-type]
        (WeisfeilerLehman(2, "best"), "form of WeisfeilerLehman must be 'subtree' or 'assignment'"),  # type: ignore[arg-type]
        (RandomWalk(0.0), "decay of RandomWalk must be positive"),
        (RandomWalk("large"), "decay of RandomWalk must be a number or one of: 'auto'"),
        (RandomWalk([0.1, 0.2]), "decay of RandomWalk must be one number"),
        (RandomWalk(limit=-1.0), "limit of RandomWalk must be None or a positive number"),
        (RandomWalk(0.2, limit=0.1), r"decay of RandomWalk must be above 0 and at most 0\.1"),
    ],
    ids=repr,
)
def test_what_hyperparameters_may_not_be(kernel: Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(PLAIN)
    with pytest.raises(ValueError, match=message):
        kernel.diag(PLAIN)


# -- learners ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def problem() -> tuple[list[Graph], np.ndarray]:
    """How many nodes with the label a have a neighbour with the label b?"""
    rng = np.random.default_rng(5)
    X = [random_graph(rng, int(rng.integers(4, 9)), share=0.3) for _ in range(40)]

    def count(g: Graph) -> int:
        found = [{g.node_labels[v] for v, _ in around} for around in neighbours(g)]
        return sum(label == "a" and "b" in around for label, around in zip(g.node_labels, found, strict=True))

    return X, np.array([count(g) for g in X], dtype=float)


@pytest.mark.parametrize("kernel", [k for k, _ in CASES] + [RandomWalk()], ids=repr)
def test_learners_take_lists_of_graphs(kernel: Kernel, problem: tuple[list[Graph], np.ndarray]) -> None:
    X, y = problem
    model = OperatorRidge(kernel=kernel, alpha=1e-2, fit_intercept=False).fit(X[:30], y[:30])
    predicted = model.predict(X[30:])
    gram, cross = (model.kernel_(X[:30]).numpy(), model.kernel_(X[30:], X[:30]).numpy())
    expected = cross @ np.linalg.solve(gram + 30 * model.alpha_ * np.eye(30), y[:30])
    np.testing.assert_allclose(predicted, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict(X[30:]), predicted)
    np.testing.assert_allclose(clone(model).fit(X[:30], y[:30]).predict(X[30:]), predicted)
    array = np.empty(len(X), dtype=object)
    array[:] = X
    np.testing.assert_allclose(clone(model).fit(array[:30], y[:30]).predict(array[30:]), predicted)


def test_grid_search_and_pipelines(problem: tuple[list[Graph], np.ndarray]) -> None:
    X, y = problem
    grid = {"operatorridge__kernel__iterations": [0, 1, 2]}
    search = GridSearchCV(make_pipeline(OperatorRidge(kernel=WeisfeilerLehman(), alpha=1e-2)), grid, cv=4)
    assert search.fit(X, y).best_params_["operatorridge__kernel__iterations"] > 0
    predicted = cross_val_predict(search.best_estimator_, X, y, cv=4)
    assert np.corrcoef(predicted, y)[0, 1] > 0.6


def test_a_graph_that_cannot_be_read_is_named_by_its_position() -> None:
    networkx = pytest.importorskip("networkx")
    good, partly, nan = (networkx.path_graph(3) for _ in range(3))
    partly.nodes[0]["label"] = "C"
    networkx.set_node_attributes(nan, float("nan"), "label")
    for bad, message in (
        (partly, "Graph 1: Some nodes"),
        (nan, "Graph 1: .*NaN"),
        (networkx.DiGraph([(0, 1)]), "Graph 1: Expected an undirected graph"),
    ):
        for kernel in (WeisfeilerLehman(1), VertexHistogram(), RandomWalk(0.05), GraKeL("vertex_histogram")):
            with pytest.raises(ValueError, match=message):
                kernel([good, bad])


def test_smiles_are_led_to_the_kernel_of_molecules() -> None:
    with pytest.raises(ValueError, match=r"got str at position 0 \(1 of 1\)\. For SMILES there is Molecule\(\)"):
        WeisfeilerLehman()(["CCO"])


def test_what_grakel_raises_is_explained() -> None:
    pytest.importorskip("grakel")
    graphs = [Graph([(0, 1)], ["C", "O"]), Graph([(0, 1), (1, 2)], ["C", "O", "C"])]
    for name in ("graph_hopper", "nonsense"):
        with pytest.raises(ValueError, match=f"GraKeL's '{name}' failed on these graphs"):
            GraKeL(name)(graphs)
