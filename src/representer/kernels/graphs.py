"""Labelled graphs, and kernels that count what two of them have in common: labels, subtrees, shortest paths, walks.

The data are sequences of graphs: ``Graph`` records, undirected networkx graphs or RDKit molecules, also mixed. An
unlabelled graph is one whose nodes (edges) all have the same label, None. A graph without nodes has no features: its
kernel with every graph is 0. All kernels are the same for isomorphic graphs.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.kernels.base import (
    Columns,
    CountingKernel,
    Domain,
    ExplicitFeatures,
    ExplicitKernel,
    Kernel,
    inner_products,
    squared_norms,
    with_derivative,
)
from representer.kernels.molecules import is_molecule
from representer.kernels.objects import as_label
from representer.linalg import conjugate_gradient
from representer.samples import Data, as_list, first_positions
from representer.values import (
    NONE,
    WHOLE,
    Below,
    Hyperparameter,
    Positive,
    Rule,
    Setting,
    Word,
    instance_of,
    is_real,
    number,
    one_of,
    per_row,
)

# A graph with more edges or nodes than this is summarised in its repr.
REPR_LIMIT = 1000
EXPECTED = "a Graph, an undirected networkx graph or an RDKit molecule"


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An undirected graph on the nodes 0, 1, …, n − 1, with labels on nodes and edges.

    Graphs are equal if their nodes, edges and labels are, node by node; whether they are isomorphic is not asked.

    Parameters
    ----------
    edges : sequence of pairs, or array of shape (m, 2)
        Each edge once or in both directions; (u, u) is a loop. Kept as an array, each edge once, in order.
    node_labels : sequence of hashables, optional
        One for each node, so that their number is the number of nodes. Without: every node has the same label, None,
        and there are as many nodes as ``edges`` mentions (1 + the largest).
    edge_labels : sequence of hashables, optional
        One for each entry of ``edges``. Without: every edge has the same label, None.

    Examples
    --------
    >>> from representer.kernels import Graph
    >>> ethanol = Graph([(0, 1), (2, 1)], node_labels=["C", "C", "O"])
    >>> ethanol
    Graph([(0, 1), (1, 2)], node_labels=['C', 'C', 'O'])
    >>> ethanol.n_nodes
    3
    """

    edges: Any = ()
    node_labels: Any = None
    edge_labels: Any = None

    def __post_init__(self) -> None:
        edges = _as_edges(self.edges)
        nodes = _as_labels(self.node_labels, "node_labels")
        n_nodes = int(edges.max(initial=-1)) + 1
        if nodes is None:
            nodes = (None,) * n_nodes
        if n_nodes > len(nodes):
            raise ValueError(
                f"An edge mentions node {n_nodes - 1}, but node_labels has {len(nodes)} labels, for the nodes 0 to "
                f"{len(nodes) - 1}. Give one label for each node."
            )
        edges, labels = _once(edges, _as_labels(self.edge_labels, "edge_labels"), len(nodes))
        edges.flags.writeable = False
        for name, value in (("edges", edges), ("node_labels", nodes), ("edge_labels", labels)):
            object.__setattr__(self, name, value)

    @property
    def n_nodes(self) -> int:
        """The number of nodes, isolated ones included."""
        return len(self.node_labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return (
            self.node_labels == other.node_labels
            and self.edge_labels == other.edge_labels
            and np.array_equal(self.edges, other.edges)
        )

    def __hash__(self) -> int:
        return hash((self.node_labels, self.edge_labels, self.edges.tobytes()))

    def __repr__(self) -> str:
        if max(self.n_nodes, len(self.edges)) > REPR_LIMIT:
            return f"<Graph of {self.n_nodes} nodes and {len(self.edges)} edges>"
        arguments = [str([tuple(edge) for edge in self.edges.tolist()])]
        if self.n_nodes != self.edges.max(initial=-1) + 1 or any(v is not None for v in self.node_labels):
            arguments.append(f"node_labels={list(self.node_labels)}")
        if any(label is not None for label in self.edge_labels):
            arguments.append(f"edge_labels={list(self.edge_labels)}")
        return f"Graph({', '.join(arguments)})"


def _as_edges(edges: object) -> np.ndarray:
    """The edges as pairs of node numbers (m, 2), the smaller first."""
    try:
        array = np.asarray(edges if hasattr(edges, "__array__") or not isinstance(edges, Iterable) else list(edges))
    except (TypeError, ValueError):
        array = np.empty(1)
    if array.shape == (0,):
        array = np.empty((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu" or (array < 0).any():
        raise ValueError(
            "edges must be pairs (u, v) of node numbers 0, 1, …, a sequence or an array of shape (m, 2); got "
            f"{str(edges)[:100]}. Number the nodes first, or give a networkx graph to as_graph, which does."
        )
    return np.sort(array.astype(np.int64), axis=1)


def _as_labels(labels: object, name: str) -> tuple[Hashable, ...] | None:
    """The labels as a tuple, checked; None stays."""
    if labels is None:
        return None
    if isinstance(labels, str | dict) or not isinstance(labels, Iterable):
        raise ValueError(f"{name} must be a sequence of labels, in order; got {labels!r}.")
    entries = labels.tolist() if isinstance(labels, np.ndarray) else labels
    try:
        return tuple(map(as_label, entries))
    except ValueError as error:
        raise ValueError(f"{name} of a Graph: {error}") from None


def _once(
    edges: np.ndarray, labels: tuple[Hashable, ...] | None, n_nodes: int
) -> tuple[np.ndarray, tuple[Hashable, ...]]:
    """The edges, each of them once, in order, with their labels."""
    if labels is not None and len(labels) != len(edges):
        raise ValueError(f"There are {len(edges)} edges, but {len(labels)} edge_labels. Give one for each.")
    keys, first, inverse = np.unique(edges[:, 0] * n_nodes + edges[:, 1], return_index=True, return_inverse=True)
    unique = np.stack([keys // max(n_nodes, 1), keys % max(n_nodes, 1)], axis=1)
    if labels is None:
        return unique, (None,) * len(unique)
    distinct = tuple(labels[i] for i in first.tolist())
    for place, index in enumerate(inverse.tolist()):
        if labels[place] != distinct[index]:
            raise ValueError(
                f"The edge {tuple(unique[index].tolist())} is given twice, with the labels {distinct[index]!r} and "
                f"{labels[place]!r}. Edges have no direction: give one label."
            )
    return unique, distinct


def as_graph(graph: Data, *, node_label: Hashable = "label", edge_label: Hashable = "label") -> Graph:
    """A ``Graph`` from a networkx graph, an RDKit molecule, or a ``Graph`` (itself).

    The nodes of a molecule are its atoms, labelled by their element; its edges are the bonds, labelled by their type
    (``"SINGLE"``, ``"AROMATIC"`` …). Hydrogens count if the molecule lists them.

    Parameters
    ----------
    graph : Graph, networkx.Graph or rdkit.Chem.Mol
        Undirected, at most one edge between two nodes.
    node_label, edge_label : str
        The attributes of a networkx graph that hold the labels. All nodes have it, or none (then they are unlabelled);
        the same for edges.

    Examples
    --------
    >>> import networkx
    >>> from representer.kernels import as_graph
    >>> path = networkx.path_graph(["x", "y", "z"])
    >>> networkx.set_node_attributes(path, {"x": "C", "y": "C", "z": "O"}, "atom")
    >>> as_graph(path, node_label="atom")
    Graph([(0, 1), (1, 2)], node_labels=['C', 'C', 'O'])
    """
    if isinstance(graph, Graph):
        return graph
    if _is_networkx(graph):
        return _from_networkx(graph, node_label, edge_label)
    if is_molecule(graph):
        bonds = list(graph.GetBonds())
        return Graph(
            [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds],
            [atom.GetSymbol() for atom in graph.GetAtoms()],
            [str(bond.GetBondType()) for bond in bonds],
        )
    raise ValueError(f"Expected {EXPECTED}; got {type(graph).__name__}.")


def is_graph(item: object) -> bool:
    """Is it a graph of a kind that ``as_graph`` takes?

    Examples
    --------
    >>> from representer.kernels import Graph, is_graph
    >>> is_graph(Graph([(0, 1)])), is_graph("C-C")
    (True, False)
    """
    return isinstance(item, Graph) or _is_networkx(item) or is_molecule(item)


# Whoever has an object of networkx has imported that package: there is nothing to import here.
def _is_networkx(item: object) -> bool:
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(item, networkx.Graph)


def _from_networkx(graph: Data, node_label: Hashable, edge_label: Hashable) -> Graph:
    """A networkx graph as a ``Graph``, its nodes numbered in the order in which networkx lists them."""
    if graph.is_directed() or graph.is_multigraph():
        raise ValueError(
            f"Expected an undirected graph with at most one edge between two nodes; got {type(graph).__name__}. "
            "Convert it first: networkx.Graph(graph)."
        )
    number = {node: i for i, node in enumerate(graph.nodes)}
    edges = list(graph.edges(data=True))
    return Graph(
        [(number[u], number[v]) for u, v, _ in edges],
        _attribute(list(graph.nodes(data=True)), node_label, "node") or [None] * len(number),
        _attribute([((u, v), data) for u, v, data in edges], edge_label, "edge"),
    )


def _attribute(items: list[tuple[Hashable, dict]], name: Hashable, kind: str) -> list[Hashable] | None:
    """The values of an attribute that all nodes or edges have, or None if none of them has it."""
    without = [item for item, data in items if name not in data]
    if without and len(without) < len(items):
        raise ValueError(
            f"Some {kind}s of the networkx graph have no attribute {name!r}: {str(without[:5])[1:-1]}"
            f"{' …' if len(without) > 5 else ''}. Give it to all of them, or to none (an unlabelled graph)."
        )
    return None if without else [data[name] for _, data in items]


def check_graphs(X: Data, who: str) -> list[Graph]:
    """A sequence of graphs, of any kind that ``as_graph`` takes, as a list of ``Graph`` records."""
    if is_graph(X):
        raise ValueError(f"{who} takes a sequence of graphs; got one {type(X).__name__}. Put it in a list.")
    items = as_list(X, "graphs", who)
    strangers = [i for i, item in enumerate(items) if not is_graph(item)]
    if strangers:
        kinds = ", ".join(sorted({type(items[i]).__name__ for i in strangers}))
        advice = "Leave them out, or convert them: Graph(edges, node_labels) makes a graph."
        if any(isinstance(items[i], str) for i in strangers):
            advice = "For SMILES there is Molecule(); rdkit.Chem.MolFromSmiles makes a graph of one (or None)."
        elif any(items[i] is None for i in strangers):
            advice = "Molecules come from rdkit.Chem.MolFromSmiles, which gives None where it cannot read the text."
        raise ValueError(
            f"{who} takes graphs, each {EXPECTED}; got {kinds} at position {first_positions(strangers)} "
            f"({len(strangers)} of {len(items)}). {advice}"
        )
    return [_at(i, item) for i, item in enumerate(items)]


def _at(i: int, item: Data) -> Graph:
    """One graph as a ``Graph``; an error names its position."""
    try:
        return as_graph(item)
    except ValueError as error:
        raise ValueError(f"Graph {i}: {error}") from error


# -- many graphs ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Union:
    """The disjoint union of graphs as arrays, so that a loop over nodes or edges runs over all graphs at once."""

    n_graphs: int
    graph: np.ndarray  # (N,), the graph of each node
    nodes: np.ndarray  # (N,), the label of each node, as its place in ``node_labels``
    sources: np.ndarray  # (M,), both directions of each edge (a loop has one), sorted by source
    targets: np.ndarray
    arcs: np.ndarray  # (M,), the label of each directed edge, as its place in ``edge_labels``
    node_labels: list[Hashable]  # the distinct labels
    edge_labels: list[Hashable]

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.graph)

    def between(self, first: int, last: int) -> Union:
        """The graphs first, …, last − 1, with the same numbers for labels."""
        begin, end = np.searchsorted(self.graph, [first, last])
        arcs = slice(*np.searchsorted(self.sources, [begin, end]))
        return Union(
            last - first,
            self.graph[begin:end] - first,
            self.nodes[begin:end],
            self.sources[arcs] - begin,
            self.targets[arcs] - begin,
            self.arcs[arcs],
            self.node_labels,
            self.edge_labels,
        )

    def adjacency(self, arcs: np.ndarray | slice = slice(None)) -> sparse.csr_array:
        """The adjacency matrix, or the one of a selection of arcs."""
        rows, columns = self.sources[arcs], self.targets[arcs]
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(self.size, self.size))


def union(graphs: Sequence[Data]) -> Union:
    """The disjoint union of graphs, of any kind that ``as_graph`` takes."""
    converted = [as_graph(graph) for graph in graphs]
    sizes = np.array([graph.n_nodes for graph in converted], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    edges = np.concatenate([graph.edges + start for graph, start in zip(converted, starts, strict=True)])
    nodes, node_labels = _codes(chain.from_iterable(graph.node_labels for graph in converted))
    labels, edge_labels = _codes(chain.from_iterable(graph.edge_labels for graph in converted))
    back = edges[:, 0] != edges[:, 1]
    sources = np.concatenate([edges[:, 0], edges[back, 1]])
    order = np.argsort(sources, kind="stable")
    return Union(
        len(converted),
        np.repeat(np.arange(len(converted)), sizes),
        nodes,
        sources[order],
        np.concatenate([edges[:, 1], edges[back, 0]])[order],
        np.concatenate([labels, labels[back]])[order],
        node_labels,
        edge_labels,
    )


def runs(weights: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Slices (first, end) of consecutive members that weigh about ``most`` together, of one member at least."""
    if not len(weights):
        return []
    block = (np.cumsum(weights) - weights) // max(1, most)
    return list(pairwise([0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(weights)]))


def _codes(labels: Iterable[Hashable]) -> tuple[np.ndarray, list[Hashable]]:
    """The labels as numbers in the order of their first appearance, and the distinct labels."""
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
    return codes, list(numbers)


# A function that numbers features: it gives a new feature the next number, or −1 where no new ones are allowed.
Numbering = Callable[[Hashable], int]
# Packed codes stay below this, so that no product overflows.
MAX_CODE = 2**62
# The number of pairs of nodes that are searched for shortest paths at once, about.
BLOCK_PAIRS = 2**22
# A learned decay stays below this share of the largest convergent one: above, conjugate gradients become slow.
SAFE_SHARE = 0.9
# A learned decay starts from this share of its limit.
START_SHARE = 0.5
# Pairs of nodes that are treated at once: a few vectors of them fit in the cache.
WALK_PAIRS = 2**17
ROUNDING = 1e-9


class GraphKernel(Kernel, ABC):
    """A kernel of graphs, of any kind that ``as_graph`` takes."""

    domain: Domain = "objects"

    def prepare(self, X: Data) -> list[Graph]:
        """The graphs as a list of ``Graph`` records."""
        return check_graphs(X, type(self).__name__)


class VertexHistogram(GraphKernel, CountingKernel):
    """k(G, H) = Σ_a #{nodes of G with label a} · #{nodes of H with label a}; edges do not matter.

    An unlabelled graph has one label, so that k is the product of the numbers of nodes.

    Examples
    --------
    >>> from representer.kernels import VertexHistogram
    >>> from representer.kernels import Graph
    >>> ethanol = Graph([(0, 1), (1, 2)], node_labels=["C", "C", "O"])
    >>> water = Graph(node_labels=["O"])
    >>> VertexHistogram()([ethanol, water]).tolist()
    [[5.0, 1.0], [1.0, 1.0]]
    """

    def _counts(self, X: Sequence[Graph]) -> Iterable[Mapping[Hashable, float]]:
        return (Counter(as_graph(graph).node_labels) for graph in X)


@dataclass(frozen=True)
class Counts:
    """Counts (n_graphs, q) of features, and the function that gives each column the number of its feature."""

    matrix: sparse.csr_array
    numbers: Callable[[Numbering], list[int]]


class GraphFeatures(GraphKernel, ExplicitKernel, ABC):
    """A kernel that counts in all graphs at once; a subclass gives the table of counts.

    The graphs of one Gram matrix are counted together, in columns without names; only ``explicit_features`` says what
    a column means.
    """

    @abstractmethod
    def _table(self, graphs: Union) -> Counts:
        """The table of counts of these graphs."""

    def _explicit_features(self, X: Sequence[Graph], columns: Columns | None = None) -> ExplicitFeatures:
        table = self._table(union(X))
        names = dict(columns or {})
        if columns is None:
            numbers = table.numbers(lambda feature: names.setdefault(feature, len(names)))
        else:
            numbers = table.numbers(lambda feature: names.get(feature, -1))
        counts = table.matrix.tocoo()
        column = np.array(numbers, dtype=int)[counts.col]
        named = column >= 0
        entries = counts.data[named], (counts.row[named], column[named])
        return ExplicitFeatures(sparse.csr_array(entries, shape=(len(X), len(names))), names)

    def _gram(self, X: Sequence[Graph], Y: Sequence[Graph] | None) -> Tensor:
        matrix = self._table(union(X if Y is None else [*X, *Y])).matrix
        return inner_products(matrix[: len(X)], None if Y is None else matrix[len(X) :])

    def _diag(self, X: Sequence[Graph]) -> Tensor:
        return squared_norms(self._table(union(X)).matrix)


def histogram(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    """The number of times that each pair (row, column) occurs."""
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
    >>> from representer.kernels import Graph
    >>> path = Graph([(0, 1), (1, 2)])
    >>> triangle = Graph([(0, 1), (1, 2), (2, 0)])
    >>> WeisfeilerLehman(iterations=1)([path, triangle]).tolist()
    [[14.0, 12.0], [12.0, 18.0]]
    >>> WeisfeilerLehman(iterations=1, form="assignment")([path, triangle]).tolist()
    [[6.0, 4.0], [4.0, 6.0]]
    """

    rules = {"iterations": WHOLE, "form": one_of("subtree") | one_of("assignment")}

    def __init__(self, iterations: int = 5, form: Literal["subtree", "assignment"] = "subtree"):
        self.iterations = iterations
        self.form = form

    def _table(self, graphs: Union) -> Counts:
        levels, before, size = [graphs.nodes], 0, len(graphs.node_labels)
        for _ in range(int(self.iterations)):
            refined, distinct = refine(graphs, levels[-1] - before, size - before)
            levels.append(refined + size)  # numbers go on from one level to the next
            before, size = size, size + distinct
        rows = np.tile(graphs.graph, len(levels))
        matrix = histogram(rows, np.concatenate(levels), (graphs.n_graphs, size))
        table = Counts(matrix, lambda numbering: _number_subtrees(graphs, levels, size, numbering))
        return _unary(table) if self.form == "assignment" else table


def refine(graphs: Union, labels: np.ndarray, n_labels: int) -> tuple[np.ndarray, int]:
    """New labels 0, 1, … that tell nodes apart by label and multiset of (edge, neighbour) labels; their number.

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
    """The numbers of subtrees; a subtree is named by the numbers of its root and branches one level before."""
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
                (graphs.edge_labels[arcs[a]], numbers[before[targets[a]]]) for a in range(first[node], first[node + 1])
            ]
            root = numbers[before[node]]
            if root >= 0 and all(number >= 0 for _, number in branches):
                numbers[code] = numbering((root, frozenset(Counter(branches).items())))
    return numbers


def _unary(table: Counts) -> Counts:
    """The table with c features of value 1 for a count c, so that the inner product of two is their minimum."""
    counts = table.matrix.tocoo()
    repeats = counts.data.astype(int)
    widths = np.zeros(table.matrix.shape[1], dtype=int)
    np.maximum.at(widths, counts.col, repeats)
    first = np.cumsum(widths) - widths
    ranks = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    columns = np.repeat(first[counts.col], repeats) + ranks
    matrix = histogram(np.repeat(counts.row, repeats), columns, (counts.shape[0], int(widths.sum())))

    def numbers(numbering: Numbering) -> list[int]:
        """The numbers of all units; the first unit of a feature has the name of the feature."""
        units = []
        for feature, width in zip(table.numbers(numbering), widths.tolist(), strict=True):
            rest = (numbering((feature, unit)) if feature >= 0 else -1 for unit in range(1, width))
            units += [feature, *rest]
        return units

    return Counts(matrix, numbers)


# -- shortest paths ---------------------------------------------------------------------------------------------------
class ShortestPath(GraphFeatures):
    """k(G, H) = Σ_{a,b,d} c_{a,b,d}(G) · c_{a,b,d}(H); c counts the pairs of nodes with the labels a, b at distance d.

    The distance is the number of edges of a shortest path. Both orders of two nodes count, a node with itself and nodes
    without a path do not, and edge labels do not matter (Borgwardt & Kriegel 2005, counted as in GraKeL).

    Examples
    --------
    >>> from representer.kernels import ShortestPath
    >>> from representer.kernels import Graph
    >>> path = Graph([(0, 1), (1, 2)])
    >>> triangle = Graph([(0, 1), (1, 2), (2, 0)])
    >>> ShortestPath()([path, triangle]).tolist()
    [[20.0, 24.0], [24.0, 36.0]]
    """

    def _table(self, graphs: Union) -> Counts:
        size = max(len(graphs.node_labels), 1)
        counts = [sparse.coo_array((graphs.n_graphs, 0))]
        for sources, targets, distance in _pairs_by_distance(graphs):
            codes = (distance * size + graphs.nodes[sources]) * size + graphs.nodes[targets]
            shape = (graphs.n_graphs, (distance + 1) * size**2)
            counts.append(histogram(graphs.graph[sources], codes, shape).tocoo())
        rows, codes, values = (
            np.concatenate([getattr(table, name) for table in counts]) for name in ("row", "col", "data")
        )
        distinct, columns = np.unique(codes, return_inverse=True)
        matrix = sparse.csr_array((values, (rows, columns)), shape=(graphs.n_graphs, len(distinct)))
        labels = graphs.node_labels

        def numbers(numbering: Numbering) -> list[int]:
            pairs, distances = distinct % size**2, distinct // size**2
            named = zip((pairs // size).tolist(), (pairs % size).tolist(), distances.tolist(), strict=True)
            return [numbering((labels[a], labels[b], distance)) for a, b, distance in named]

        return Counts(matrix, numbers)


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


# -- random walks ------------------------------------------------------------------------------------------------------
class RandomWalk(GraphKernel):
    """k(G, H) = 1ᵀ(I − decay·A)⁻¹1 = Σ_ℓ decay^ℓ · #{pairs of walks of length ℓ, in G and in H, with the same labels}.

    A is the adjacency matrix of the product graph: its nodes are the pairs of nodes of G and H with equal labels, and
    two pairs are adjacent if both their nodes are, by edges with equal labels. Walks may start and end anywhere and are
    not weighted (Gärtner et al. 2003). The sum must converge: decay · ρ(G) · ρ(H) < 1 with ρ the largest eigenvalue of
    a graph's adjacency matrix, which is at most its largest degree; otherwise a ValueError says what is allowed.

    Parameters
    ----------
    decay : float or "auto"
        The weight of a step. ``"auto"`` learns it, starting from half of the limit.
    limit : float, optional
        The upper bound of a learned decay. None: 0.9 / max ρ² over the graphs of the fit. If graphs with a larger ρ may
        come later, choose 1 / Δ², which allows all graphs whose nodes have at most Δ neighbours.

    Examples
    --------
    >>> from representer.kernels import RandomWalk
    >>> from representer.kernels import Graph
    >>> edge = Graph([(0, 1)], node_labels=["C", "O"])
    >>> RandomWalk(decay=0.5)([edge]).tolist()
    [[4.0]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "decay": Hyperparameter(
            Positive(), {"auto": Word(lambda X: torch.tensor(START_SHARE * _limit(X)), learned=True)}, scalar=True
        )
    }

    rules = {"limit": NONE | Rule("a positive number", lambda limit: is_real(limit) and 0 < limit < float("inf"))}

    def __init__(self, decay: Setting = "auto", limit: float | None = None):
        self.decay = decay
        self.limit = limit

    def _own_specification(self, name: str) -> Hyperparameter:
        """The specification of a decay that, while it is learned, stays below the limit."""
        decay = super()._own_specification(name)
        return decay if self.limit is None else replace(decay, constraint=Below(limit=float(self.limit)))

    def _resolve(self, X: Sequence[Graph]) -> Self:
        if not isinstance(self.decay, str):
            return super()._resolve(X)
        limit = _limit(X) if self.limit is None else self.limit
        return self._with_arguments(decay=START_SHARE * limit, limit=limit)

    def _gram(self, X: Sequence[Graph], Y: Sequence[Graph] | None) -> Tensor:
        graphs = union(X if Y is None else [*X, *Y])
        n, end = len(X), graphs.n_graphs
        sizes = np.bincount(graphs.graph, minlength=end)[:n]
        skipped = 0 if Y is None else n  # the graphs that are in rows only

        def walks(decay: float, slope: bool) -> list[Tensor]:
            grams = [torch.zeros(n, end - skipped, dtype=torch.float64) for _ in range(1 + slope)]
            for a, b in runs(sizes, WALK_PAIRS // max(1, graphs.size)):
                first = a if Y is None else n  # of k(X), one half is the mirror image of the other
                blocks = _common_walks(graphs.between(a, b), graphs.between(first, end), decay, slope)
                for gram, block in zip(grams, blocks, strict=True):
                    gram[a:b, first - skipped :] = block
                    if Y is None:
                        gram[a:, a:b] = block.mT
            return grams

        decay = number(self, "decay")
        _check_decay(float(decay.detach().max()), graphs, skipped)
        return with_derivative(walks, decay)

    def _diag(self, X: Sequence[Graph]) -> Tensor:
        graphs = union(X)

        def walks(decay: float, slope: bool) -> list[Tensor]:
            members = [graphs.between(i, i + 1) for i in range(len(X))]
            walks_within = [torch.cat(_common_walks(graph, graph, decay, slope)).reshape(-1) for graph in members]
            return list(torch.stack(walks_within, dim=-1))

        decay = per_row(number(self, "decay"))
        _check_decay(float(decay.detach().max()), graphs, 0)
        return with_derivative(walks, decay)


# -- the product graph ------------------------------------------------------------------------------------------------
def _common_walks(rows: Union, columns: Union, decay: float, slope: bool) -> list[Tensor]:
    """The kernel of all pairs of graphs, and with ``slope`` its derivative xᵀAx, where (I − decay·A) x = 1.

    It is one system for all pairs: x is a matrix over nodes of ``rows`` × nodes of ``columns``, zero where labels
    differ, and A x = Σ_e A_e x B_e over the edge labels e. Its eigenvalues are those of the systems of single pairs, so
    that conjugate gradients need no more steps.
    """
    equal = torch.from_numpy((rows.nodes[:, None] == columns.nodes[None, :]).astype(np.float64))
    shared = np.intersect1d(rows.arcs, columns.arcs)
    adjacencies = [(rows.adjacency(rows.arcs == e), columns.adjacency(columns.arcs == e)) for e in shared]

    def step(x: Tensor) -> Tensor:
        image = np.zeros(x.shape)
        for left, right in adjacencies:
            image += left @ (right @ x.numpy().T).T
        return torch.from_numpy(image).mul_(equal)

    # The derivative xᵀAx and the sum 1ᵀx have the error of x. With the residual r = 1 − (I − decay·A) x, the sum
    # xᵀ(1 + r) has only the square of that error.
    x = conjugate_gradient(
        lambda p: p - decay * step(p), equal, tol=1e-12 if slope else 1e-8, name="a random walk kernel"
    )
    image = step(x)
    residual = equal - x + decay * image
    sums = [x * (equal + residual), x * image] if slope else [x * (equal + residual)]
    return [_sums(matrix, rows, columns) for matrix in sums]


def _sums(matrix: Tensor, rows: Union, columns: Union) -> Tensor:
    """The sum over the nodes of each pair of graphs."""
    left, right = (
        sparse.csr_array((np.ones(u.size), (u.graph, np.arange(u.size))), shape=(u.n_graphs, u.size))
        for u in (rows, columns)
    )
    return torch.from_numpy((right @ (left @ matrix.numpy()).T).T.copy())


# -- convergence ------------------------------------------------------------------------------------------------------
def _radii(graphs: Union) -> np.ndarray:
    """The largest eigenvalue of each adjacency matrix, of all graphs of one size at once."""
    sizes = np.bincount(graphs.graph, minlength=graphs.n_graphs)
    starts = np.cumsum(sizes) - sizes
    owner = graphs.graph[graphs.sources]
    radii = np.zeros(graphs.n_graphs)
    for size in np.unique(sizes[sizes > 0]):
        members = np.flatnonzero(sizes == size)
        arcs = np.flatnonzero(sizes[owner] == size)
        place, shift = np.searchsorted(members, owner[arcs]), starts[owner[arcs]]
        dense = np.zeros((len(members), size, size))
        dense[place, graphs.sources[arcs] - shift, graphs.targets[arcs] - shift] = 1.0
        radii[members] = np.linalg.eigvalsh(dense)[:, -1]
    return radii


def _limit(X: Sequence[Graph]) -> float:
    """The upper bound of a decay that is learned on these graphs."""
    largest = float(_radii(union(X)).max())
    return SAFE_SHARE / max(largest, 1.0) ** 2


def _check_decay(decay: float, graphs: Union, split: int) -> None:
    """Refuse a decay for which the walks of some pair of graphs (before and from ``split`` on) have no finite sum."""
    degrees = np.bincount(graphs.sources, minlength=graphs.size)
    if decay * int(degrees.max(initial=0)) ** 2 < 1.0:
        return
    radii = _radii(graphs)
    left, right = (radii[:split], radii[split:]) if split else (radii, radii)
    if decay * left.max() * right.max() >= 1.0 - ROUNDING:
        i, j = int(left.argmax()), int(right.argmax())
        raise ValueError(
            f"decay={decay:.6g} of RandomWalk is too large: for graph {i} of X and graph {j} of {'Y' if split else 'X'}"
            f", whose adjacency matrices have the largest eigenvalues {left.max():.4g} and {right.max():.4g}, the sum "
            f"over walks converges only below 1 / (their product) = {1.0 / (left.max() * right.max()):.6g}. Choose a "
            "smaller decay, for all graphs with at most Δ neighbours below 1 / Δ²."
        )


class GraKeL(GraphKernel):
    """A graph kernel of the GraKeL library, by its name there; needs the extra ``graphs``.

    Prefer ``VertexHistogram``, ``WeisfeilerLehman``, ``ShortestPath`` and ``RandomWalk`` where one of them serves: they
    are faster and know edge labels. Not all kernels of GraKeL are fixed functions of two graphs: some draw samples
    (give a ``random_state`` among the options), others depend on the graphs that they are fitted to. An unlabelled
    graph has the label 0 everywhere.

    Parameters
    ----------
    name : str or list of str
        As in ``grakel.GraphKernel``: ``"propagation"``, ``"graphlet_sampling"``, ``"neighborhood_hash"`` …; a list ends
        with the base kernel of a framework, as ``["weisfeiler_lehman", "shortest_path"]``.
    options : dict, optional
        The arguments of that kernel (of the first, if ``name`` is a list). Not ``normalize``: that is
        ``GraKeL(…).normalized()``.

    Examples
    --------
    >>> from representer.kernels import GraKeL
    >>> GraKeL("graphlet_sampling", {"k": 3, "random_state": 0})
    GraKeL(name='graphlet_sampling', options={'k': 3, 'random_state': 0})
    """

    rules = {
        "name": Rule(
            "a str or a list of str",
            lambda names: (
                isinstance(names, str | list | tuple) and bool(names) and all(isinstance(n, str) for n in names)
            ),
        ),
        "options": instance_of("a dict", Mapping) | NONE,
    }

    def __init__(self, name: str | list[str], options: dict[str, object] | None = None):
        self.name = name
        self.options = options

    def check_hyperparameters(self) -> None:
        """Refuse a name or options of the wrong type; GraKeL itself refuses unknown ones."""
        super().check_hyperparameters()
        if "normalize" in (self.options or {}):
            raise ValueError("GraKeL takes no option 'normalize'. Write GraKeL(…).normalized().")

    def prepare(self, X: Data) -> list[Graph]:
        """The graphs as a list; GraKeL has no place for a graph without nodes."""
        items = super().prepare(X)
        empty = [i for i, item in enumerate(items) if item.n_nodes == 0]
        if empty:
            raise ValueError(
                f"GraKeL takes no graphs without nodes; got some at position {first_positions(empty)} ({len(empty)} of "
                f"{len(items)}). Leave them out."
            )
        return items

    def _kernel(self) -> Any:
        """A new kernel object of GraKeL, because such an object keeps the graphs that it was fitted to."""
        try:
            from grakel import GraphKernel
        except ImportError as error:
            raise ModuleNotFoundError(
                'GraKeL(…) needs the package grakel: pip install "representer[graphs]".', name="grakel"
            ) from error
        first, *rest = [self.name] if isinstance(self.name, str) else self.name
        return GraphKernel([{"name": first, **(self.options or {})}, *rest])

    def _gram(self, X: Sequence[Graph], Y: Sequence[Graph] | None) -> Tensor:
        with warnings.catch_warnings():  # some of its kernels change the filters for the whole process
            kernel = self._kernel()
            try:
                if Y is None:
                    gram = kernel.fit_transform(_translated(X))
                else:
                    gram = kernel.fit(_translated(Y)).transform(_translated(X))
            except Exception as error:  # whatever that library raises
                raise ValueError(
                    f"GraKeL's {self.name!r} failed on these graphs ({type(error).__name__}: {error}). Some of its "
                    "kernels take other labels than these (vectors, for graph_hopper and multiscale_laplacian), or "
                    "options: see its documentation."
                ) from error
        return torch.from_numpy(np.array(gram, dtype=np.float64))

    def _diag(self, X: Sequence[Graph]) -> Tensor:
        return self._gram(X, None).diagonal().clone()  # some of its kernels depend on the other graphs


def _translated(X: Sequence[Graph]) -> list[list[object]]:
    """The graphs as GraKeL takes them: neighbours, node labels, edge labels in both directions; 0 for no label."""
    translated: list[list[object]] = []
    for graph in X:
        neighbours: dict[int, dict[int, float]] = {node: {} for node in range(graph.n_nodes)}
        labels = {}
        for (u, v), label in zip(graph.edges.tolist(), graph.edge_labels, strict=True):
            neighbours[u][v] = neighbours[v][u] = 1.0
            labels[u, v] = labels[v, u] = 0 if label is None else label
        nodes = {node: 0 if label is None else label for node, label in enumerate(graph.node_labels)}
        translated.append([neighbours, nodes, labels])
    return translated
