"""Graph kernels against GraKeL and against the sparse product they cannot avoid.

On MUTAG and NCI1 if the environment variable REPRESENTER_DATA names a folder that has them, otherwise on random graphs
of the same sizes. ``python -m benchmarks.any_data`` has the accuracies.
"""

from __future__ import annotations

import importlib.util
import os

import numpy as np

from benchmarks._timing import Row, compare, not_run, scaled
from representer.datasets import load_mutag, load_nci1
from representer.kernels import GraKeL, Graph, Kernel, RandomWalk, ShortestPath, WeisfeilerLehman
from representer.kernels.graphs import _translated


def molecules(rng: np.random.Generator, n_graphs: int, size: int) -> list[Graph]:
    """Random trees with a few rings, mostly of one label."""
    found = []
    for n in rng.integers(size // 2, 3 * size // 2, size=n_graphs).tolist():
        tree = [(v, int(rng.integers(max(0, v - 4), v))) for v in range(1, n)]
        rings = rng.integers(n, size=(n // 8, 2))
        labels = rng.choice(7, size=n, p=[0.7, 0.1, 0.1, 0.04, 0.03, 0.02, 0.01])
        found.append(Graph([*tree, *map(tuple, rings.tolist())], labels))
    return found


PEERS = tuple(
    f"{what}, against GraKeL" for what in ("subtrees (5)", "assignment (5)", "shortest paths", "random walks")
)


def rows() -> list[Row]:
    """Against GraKeL on the smaller set, against the sparse product on the larger one."""
    rng = np.random.default_rng(0)
    real = "REPRESENTER_DATA" in os.environ
    small = load_mutag().data if real else molecules(rng, 188, 18)
    large = load_nci1().data if real else molecules(rng, 4110, 30)
    names = ("MUTAG", "NCI1") if real else ("random", "random")
    small, large = small[: scaled(len(small))], large[: scaled(len(large))]
    size = f"{names[0]}, {len(small)} graphs"
    products = [
        _against_product(what, f"{names[1]}, {len(large)} graphs", kernel, large)
        for what, kernel in (
            ("subtrees (5), against the sparse product", WeisfeilerLehman(5)),
            ("assignment (5), against the sparse product", WeisfeilerLehman(5, "assignment")),
            ("shortest paths, against the sparse product", ShortestPath()),
        )
    ]
    if importlib.util.find_spec("grakel") is None:
        absent = 'grakel is not installed: pip install "representer[graphs]"'
        return [not_run(what, absent, 1.0) for what in PEERS] + products
    return [
        _against(PEERS[0], size, WeisfeilerLehman(5), "weisfeiler_lehman", small, n_iter=5),
        _against(
            PEERS[1],
            size,
            WeisfeilerLehman(5, "assignment"),
            "weisfeiler_lehman_optimal_assignment",
            small,
            n_iter=5,
        ),
        _against(PEERS[2], size, ShortestPath(), "shortest_path", small),
        _random_walks(f"{names[0]}, {scaled(60, 10)} graphs", [Graph(g.edges) for g in small[: scaled(60, 10)]]),
        *products,
    ]


def _against(what: str, size: str, kernel: Kernel, name: str, graphs: list[Graph], **options: object) -> Row:
    theirs = GraKeL(name, options)
    np.testing.assert_array_equal(kernel(graphs), theirs(graphs))
    given = _translated(graphs)
    return compare(
        what,
        size,
        ours=lambda: kernel(graphs),
        reference=lambda: theirs._kernel().fit_transform(given),
        goal=1.0,
    )


def _random_walks(size: str, graphs: list[Graph]) -> Row:
    """Unlabelled: what GraKeL sums over labelled walks is something else."""
    theirs = GraKeL("random_walk", {"lamda": 0.05})
    np.testing.assert_allclose(RandomWalk(0.05)(graphs), theirs(graphs), rtol=1e-4)
    given = _translated(graphs)
    return compare(
        PEERS[3],
        size,
        ours=lambda: RandomWalk(0.05)(graphs),
        reference=lambda: theirs._kernel().fit_transform(given),
        goal=1.0,
    )


def _against_product(what: str, size: str, kernel: Kernel, graphs: list[Graph]) -> Row:
    """The whole Gram matrix, against the product of features that are there already."""
    matrix = kernel.explicit_features(graphs).matrix
    np.testing.assert_array_equal(kernel(graphs), (matrix @ matrix.T).toarray())
    return compare(
        what,
        size,
        ours=lambda: kernel(graphs),
        reference=lambda: (matrix @ matrix.T).toarray(),
        goal=2.0,
        repeats=3,
    )
