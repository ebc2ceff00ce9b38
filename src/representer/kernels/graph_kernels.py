"""Kernels on labelled graphs that count what two graphs have in common: labels, subtrees, shortest paths, walks.

The data are sequences of graphs: ``Graph`` records, undirected networkx graphs or RDKit molecules, also mixed. An
unlabelled graph is one whose nodes (edges) all have the same label, None. A graph without nodes has no features: its
kernel with every graph is 0. All kernels are the same for isomorphic graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from scipy import sparse
from torch import Tensor

from representer.kernels.explicit import (
    CountingKernel,
    ExplicitKernel,
    inner_products,
    squared_norms,
)
from representer.kernels.features import Columns, ExplicitFeatures
from representer.kernels.graphs import Union, as_graph, check_graphs, runs, union
from representer.parameters import is_count, is_real

# The number of a feature: a new one if it has none, or a negative one if it may not get any.
Numbering = Callable[[Hashable], int]
# Packed codes stay below this, so that no product overflows.
MAX_CODE = 2**62
# About so many pairs of nodes are searched for shortest paths at once.
BLOCK_PAIRS = 2**22


class VertexHistogram(CountingKernel):
    """k(G, H) = Σ_a #{nodes of G with label a} · #{nodes of H with label a}; edges do not matter.

    An unlabelled graph has one label, so that k is the product of the numbers of nodes.

    Examples
    --------
    >>> from representer.kernels import VertexHistogram
    >>> from representer.kernels.graphs import Graph
    >>> ethanol = Graph([(0, 1), (1, 2)], node_labels=["C", "C", "O"])
    >>> water = Graph(node_labels=["O"])
    >>> VertexHistogram()([ethanol, water]).tolist()
    [[5.0, 1.0], [1.0, 1.0]]
    """

    def prepare(self, X: Any) -> list[Any]:
        """The graphs, as a list."""
        return check_graphs(X, "VertexHistogram")

    def _counts(self, X: Sequence[Any]) -> Iterable[Mapping[Hashable, float]]:
        return (Counter(as_graph(graph).node_labels) for graph in X)


@dataclass(frozen=True)
class Table:
    """Counts (n_graphs, q), and how their columns get the numbers that they have in other features."""

    matrix: sparse.csr_array
    numbers: Callable[[Numbering], list[int]]


class GraphFeatures(ExplicitKernel, ABC):
    """A kernel that counts in all graphs at once; a subclass gives the table of counts.

    Only ``explicit_features`` needs to say what a column means: the graphs of one Gram matrix are counted together, in
    columns that need no name.
    """

    @abstractmethod
    def _table(self, graphs: Union) -> Table:
        """The counts of these graphs."""

    def prepare(self, X: Any) -> list[Any]:
        """The graphs, as a list."""
        return check_graphs(X, type(self).__name__)

    def _explicit_features(self, X: Sequence[Any], columns: Columns | None = None) -> ExplicitFeatures:
        table = self._table(union(X))
        known = dict(columns or {})
        if columns is None:
            numbers = np.array(
                table.numbers(lambda feature: known.setdefault(feature, len(known))), dtype=int
            )
        else:
            numbers = np.array(table.numbers(lambda feature: known.get(feature, -1)), dtype=int)
        counts = table.matrix.tocoo()
        column = numbers[counts.col]
        kept = column >= 0
        matrix = sparse.csr_array(
            (counts.data[kept], (counts.row[kept], column[kept])), shape=(len(X), len(known))
        )
        return ExplicitFeatures(matrix, known)

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        matrix = self._table(union(X if Y is None else [*X, *Y])).matrix
        return inner_products(matrix[: len(X)], None if Y is None else matrix[len(X) :])

    def _diag(self, X: Any) -> Tensor:
        return squared_norms(self._table(union(X)).matrix)


def histogram(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    """How often each pair (row, column) occurs."""
    return sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=shape).tocsr()


# -- Weisfeiler-Lehman ------------------------------------------------------------------------------------------------
class WeisfeilerLehman(GraphFeatures):
    """k(G, H) = Σ_{h ≤ iterations} Σ_a c_{h,a}(G) · c_{h,a}(H); c_{h,a} counts nodes with the label a after h steps.

    In each step the new label of a node is its old one together with the multiset of the old labels of its neighbours,
    each with the label of the edge to it. So h steps tell the subtree patterns of height h apart (Shervashidze et al.
    2011). Unlabelled edges make it the usual kernel on node labels; after one step unlabelled nodes differ by degree.

    Parameters
    ----------
    iterations : int
        The number of steps, 0 or more. With 0 it is ``VertexHistogram``.
    form : "subtree" or "assignment"
        ``"assignment"`` has min(c_{h,a}(G), c_{h,a}(H)) in place of the product: the value of the best one-to-one
        assignment of nodes to nodes, where two nodes score once for each h at which they have the same label (Kriege et
        al. 2016).

    Examples
    --------
    >>> from representer.kernels import WeisfeilerLehman
    >>> from representer.kernels.graphs import Graph
    >>> path = Graph([(0, 1), (1, 2)])
    >>> triangle = Graph([(0, 1), (1, 2), (2, 0)])
    >>> WeisfeilerLehman(iterations=1)([path, triangle]).tolist()
    [[14.0, 12.0], [12.0, 18.0]]
    >>> WeisfeilerLehman(iterations=1, form="assignment")([path, triangle]).tolist()
    [[6.0, 4.0], [4.0, 6.0]]
    """

    def __init__(self, iterations: int = 5, form: Literal["subtree", "assignment"] = "subtree"):
        self.iterations = iterations
        self.form = form

    def check_hyperparameters(self) -> None:
        """Also the iterations and the form."""
        if not _is_whole(self.iterations):
            raise ValueError(
                f"iterations of WeisfeilerLehman must be an integer, 0 or more; got {self.iterations!r}."
            )
        if self.form not in ("subtree", "assignment"):
            raise ValueError(
                f"form of WeisfeilerLehman must be 'subtree' or 'assignment'; got {self.form!r}."
            )
        super().check_hyperparameters()

    def _table(self, graphs: Union) -> Table:
        levels, before, size = [graphs.nodes], 0, len(graphs.node_labels)
        for _ in range(int(self.iterations)):
            refined, distinct = refine(graphs, levels[-1] - before, size - before)
            levels.append(refined + size)  # numbers go on from one level to the next
            before, size = size, size + distinct
        rows = np.tile(graphs.graph, len(levels))
        matrix = histogram(rows, np.concatenate(levels), (graphs.n_graphs, size))
        table = Table(matrix, lambda numbering: _number_subtrees(graphs, levels, size, numbering))
        return _unary(table) if self.form == "assignment" else table


def _is_whole(value: object) -> bool:
    """Is it an integer, 0 or more (and not a truth value)?"""
    return is_count(value) or (isinstance(value, Integral) and is_real(value) and value == 0)


def refine(graphs: Union, labels: np.ndarray, n_labels: int) -> tuple[np.ndarray, int]:
    """New labels 0, 1, … that tell nodes apart by label and multiset of (edge label, neighbour's label); their number.

    Exact: no hashing. Nodes of one degree are the rows of a matrix, whose columns are packed into one number each as
    long as they fit, and replaced by their ranks when they do not.
    """
    base = n_labels * max(len(graphs.edge_labels), 1)
    around = graphs.arcs * n_labels + labels[graphs.targets]
    around = np.sort(graphs.sources * base + around) - graphs.sources * base  # sorted within each source
    degrees = np.bincount(graphs.sources, minlength=graphs.size)
    first = np.cumsum(degrees) - degrees
    refined, total = np.empty_like(labels), 0
    for degree in np.unique(degrees):
        nodes = np.flatnonzero(degrees == degree)
        packed, span = labels[nodes], n_labels
        for k in range(degree):
            if span > MAX_CODE // base:
                distinct, packed = np.unique(packed, return_inverse=True)
                span = len(distinct)
            packed = packed * base + around[first[nodes] + k]
            span *= base
        distinct, ranks = np.unique(packed, return_inverse=True)
        refined[nodes] = total + ranks
        total += len(distinct)
    return refined, total


def _number_subtrees(graphs: Union, levels: list[np.ndarray], size: int, numbering: Numbering) -> list[int]:
    """A subtree is named by the numbers of its root and branches one level before, which no other subtree shares."""
    numbers = [-1] * size
    sources, targets, arcs = graphs.sources, graphs.targets.tolist(), graphs.arcs.tolist()
    first = np.searchsorted(sources, np.arange(graphs.size + 1)).tolist()
    for h, labels in enumerate(levels):
        distinct, nodes = np.unique(labels, return_index=True)
        before = levels[h - 1].tolist()
        for code, node in zip(distinct.tolist(), nodes.tolist(), strict=True):
            if h == 0:
                numbers[code] = numbering((graphs.node_labels[graphs.nodes[node]],))
                continue
            branches = [
                (graphs.edge_labels[arcs[a]], numbers[before[targets[a]]])
                for a in range(first[node], first[node + 1])
            ]
            root = numbers[before[node]]
            if root >= 0 and all(number >= 0 for _, number in branches):
                numbers[code] = numbering((root, frozenset(Counter(branches).items())))
    return numbers


def _unary(table: Table) -> Table:
    """A count c as c features of value 1, so that the inner product of two is their minimum."""
    counts = table.matrix.tocoo()
    repeats = counts.data.astype(int)
    widths = np.zeros(table.matrix.shape[1], dtype=int)
    np.maximum.at(widths, counts.col, repeats)
    first = np.cumsum(widths) - widths
    ranks = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    columns = np.repeat(first[counts.col], repeats) + ranks
    matrix = histogram(np.repeat(counts.row, repeats), columns, (counts.shape[0], int(widths.sum())))

    def numbers(numbering: Numbering) -> list[int]:
        """The first unit of a feature has its name."""
        found = []
        for number, width in zip(table.numbers(numbering), widths.tolist(), strict=True):
            rest = (numbering((number, unit)) if number >= 0 else -1 for unit in range(1, width))
            found += [number, *rest]
        return found

    return Table(matrix, numbers)


# -- shortest paths ---------------------------------------------------------------------------------------------------
class ShortestPath(GraphFeatures):
    """k(G, H) = Σ_{a,b,d} c_{a,b,d}(G) · c_{a,b,d}(H); c counts the pairs of nodes with the labels a, b at distance d.

    The distance is the number of edges of a shortest path. Both orders of two nodes count, a node with itself and nodes
    without a path do not, and edge labels do not matter (Borgwardt & Kriegel 2005, counted as in GraKeL).

    Examples
    --------
    >>> from representer.kernels import ShortestPath
    >>> from representer.kernels.graphs import Graph
    >>> path = Graph([(0, 1), (1, 2)])
    >>> triangle = Graph([(0, 1), (1, 2), (2, 0)])
    >>> ShortestPath()([path, triangle]).tolist()
    [[20.0, 24.0], [24.0, 36.0]]
    """

    def _table(self, graphs: Union) -> Table:
        size = max(len(graphs.node_labels), 1)
        counts = [sparse.coo_array((graphs.n_graphs, 0))]
        for sources, targets, distance in _pairs_by_distance(graphs):
            codes = (distance * size + graphs.nodes[sources]) * size + graphs.nodes[targets]
            shape = (graphs.n_graphs, (distance + 1) * size**2)
            counts.append(histogram(graphs.graph[sources], codes, shape).tocoo())
        rows, codes, values = (
            np.concatenate([getattr(part, name) for part in counts]) for name in ("row", "col", "data")
        )
        distinct, columns = np.unique(codes, return_inverse=True)
        matrix = sparse.csr_array((values, (rows, columns)), shape=(graphs.n_graphs, len(distinct)))
        labels = graphs.node_labels

        def numbers(numbering: Numbering) -> list[int]:
            pairs, distances = distinct % size**2, distinct // size**2
            named = zip((pairs // size).tolist(), (pairs % size).tolist(), distances.tolist(), strict=True)
            return [numbering((labels[a], labels[b], distance)) for a, b, distance in named]

        return Table(matrix, numbers)


def _pairs_by_distance(graphs: Union) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Ordered pairs of nodes and their distance, 1 or more: breadth-first searches from many nodes at once."""
    adjacency, itself = graphs.adjacency(), sparse.eye_array(graphs.size, format="csr")
    sizes = np.bincount(graphs.graph, minlength=graphs.n_graphs)
    for first, last in runs(sizes[graphs.graph], BLOCK_PAIRS):
        distance, here = 0, itself[first:last]
        before = here * 0.0
        while here.nnz:
            # A step from distance d leads to d − 1, d or d + 1.
            reached = here @ adjacency
            reached.data[:] = 1.0
            before, here = here, reached - reached * (before + here)
            here.eliminate_zeros()
            distance += 1
            pairs = here.tocoo()
            yield first + pairs.row, pairs.col, distance
