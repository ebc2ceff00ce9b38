"""Sets of labelled graphs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from representer.datasets.files import Source, read_arrays
from representer.kernels.graphs import Graph

MUTAG = Source(
    "mutag.npz",
    "MUTAG: 188 nitro compounds as graphs of their atoms and bonds, mutagenic (1) or not (-1).",
    "A. Debnath et al. 1991, doi:10.1021/jm00106a046; 'MUTAG' in TUDataset",
)
NCI1 = Source(
    "nci1.npz",
    "NCI1: 4110 compounds as graphs of their atoms, active against lung cancer cells (1) or not (0).",
    "N. Wale, I. Watson and G. Karypis 2008, doi:10.1007/s10115-007-0103-5; 'NCI1' in TUDataset",
)


def load_mutag(*, edge_labels: bool = False, folder: str | Path | None = None) -> Bunch:
    """Load MUTAG, 188 compounds as graphs.

    Parameters
    ----------
    edge_labels : bool, default=False
        Label edges by the kind of the bond; published results of graph kernels have node labels only.
    folder : path or None, default=None
        Where ``mutag.npz`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data``, a list of 188 ``Graph``, ``target`` (188,) of -1 and 1, ``DESCR``, ``filename``.
    """
    return _load_graphs(MUTAG, folder, 188, edge_labels)


def load_nci1(*, folder: str | Path | None = None) -> Bunch:
    """Load NCI1, 4110 compounds as graphs.

    Parameters
    ----------
    folder : path or None, default=None
        Where ``nci1.npz`` lies; None is the folder that the environment variable REPRESENTER_DATA names.

    Returns
    -------
    bunch : Bunch
        ``data``, a list of 4110 ``Graph`` with node labels, ``target`` (4110,) of 0 and 1, ``DESCR``, ``filename``.
    """
    return _load_graphs(NCI1, folder, 4110, edge_labels=False)


def _load_graphs(source: Source, folder: str | Path | None, n_graphs: int, edge_labels: bool) -> Bunch:
    """All nodes and edges of the set, one graph after the other, as graphs."""
    names = ["edges", "graph_of_node", "node_label", "graph_label", *(["edge_label"] if edge_labels else [])]
    path, (edges, owner, labels, target, *bonds) = read_arrays(source, folder, names)
    if len(target) != n_graphs or np.any(np.diff(owner) < 0) or len(np.unique(owner)) != n_graphs:
        raise ValueError(
            f"{path}: {n_graphs} graphs were published, with their nodes one graph after the other; the file has "
            f"{len(target)} classes and nodes of {len(np.unique(owner))} graphs. "
            f"Get the whole set from {source.origin}."
        )
    order = np.argsort(owner[edges[:, 0]], kind="stable")
    edges, bonds = edges[order], [bond[order] for bond in bonds]
    ends = np.arange(n_graphs + 1)
    nodes, arcs = np.searchsorted(owner, ends), np.searchsorted(owner[edges[:, 0]], ends)
    graphs = [
        Graph(edges[a:b] - first, labels[first:last], *(bond[a:b] for bond in bonds))
        for (first, last), (a, b) in zip(pairwise(nodes), pairwise(arcs), strict=True)
    ]
    description = f"{source.description}\n\nSource: {source.origin}."
    return Bunch(data=graphs, target=target.astype(int), DESCR=description, filename=str(path))
