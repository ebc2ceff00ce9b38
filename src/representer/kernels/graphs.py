"""Labelled graphs: a light record, what converts to it, and many graphs as one set of arrays."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from representer.kernels.objects import as_label
from representer.samples import Data, as_list, first_positions

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
    own = tuple(labels[i] for i in first.tolist())
    for place, number in enumerate(inverse.tolist()):
        if labels[place] != own[number]:
            raise ValueError(
                f"The edge {tuple(unique[number].tolist())} is given twice, with the labels {own[number]!r} and "
                f"{labels[place]!r}. Edges have no direction: give one label."
            )
    return unique, own


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
    if _is_molecule(graph):
        bonds = list(graph.GetBonds())
        return Graph(
            [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds],
            [atom.GetSymbol() for atom in graph.GetAtoms()],
            [str(bond.GetBondType()) for bond in bonds],
        )
    raise ValueError(f"Expected {EXPECTED}; got {type(graph).__name__}.")


def is_graph(item: object) -> bool:
    """Is it a graph of a kind that ``as_graph`` takes?"""
    return isinstance(item, Graph) or _is_networkx(item) or _is_molecule(item)


# An object of a class can only exist where its module has been imported: there is nothing to import here.
def _is_networkx(item: object) -> bool:
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(item, networkx.Graph)


def _is_molecule(item: object) -> bool:
    chem = sys.modules.get("rdkit.Chem")
    return chem is not None and isinstance(item, chem.Mol)


def _from_networkx(graph: Data, node_label: Hashable, edge_label: Hashable) -> Graph:
    """A networkx graph with its nodes numbered in their order there."""
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
    """The graph at a position, which an error names."""
    try:
        return as_graph(item)
    except ValueError as error:
        raise ValueError(f"Graph {i}: {error}") from error


# -- many graphs ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Union:
    """The disjoint union of graphs as arrays: every loop over nodes or edges is one over all of them at once."""

    n_graphs: int
    graph: np.ndarray  # (N,), the graph of each node
    nodes: np.ndarray  # (N,), the label of each node, as its place in ``node_labels``
    sources: np.ndarray  # (M,), both directions of each edge (a loop has one), sorted by source
    targets: np.ndarray
    arcs: np.ndarray  # (M,), the label of each of them, as its place in ``edge_labels``
    node_labels: list[Hashable]  # the distinct labels
    edge_labels: list[Hashable]

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.graph)

    def between(self, first: int, last: int) -> Union:
        """The graphs from ``first`` up to ``last``, which is left out, with the same numbers for labels."""
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
    """Consecutive runs (first, last), the last left out, that weigh about ``most`` each, of one member at least."""
    if not len(weights):
        return []
    block = (np.cumsum(weights) - weights) // max(1, most)
    return list(pairwise([0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(weights)]))


def _codes(labels: Iterable[Hashable]) -> tuple[np.ndarray, list[Hashable]]:
    """The labels as numbers in the order of their first appearance, and the distinct ones."""
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
    return codes, list(numbers)
