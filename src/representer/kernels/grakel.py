"""An adapter to the graph kernels of the GraKeL library."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel
from representer.kernels.graphs import Graph, check_graphs
from representer.samples import Data, first_positions


class GraKeL(Kernel):
    """A graph kernel of the GraKeL library, by its name there; needs the extra ``graphs``.

    Use ``VertexHistogram``, ``WeisfeilerLehman``, ``ShortestPath`` and ``RandomWalk`` where they do: they are faster,
    and know edge labels. Not all kernels of GraKeL are fixed functions of two graphs: some sample (give a
    ``random_state`` among the options), some depend on the graphs that they are fitted to. An unlabelled graph has the
    label 0 everywhere.

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

    domain: Domain = "objects"

    def __init__(self, name: str | list[str], options: dict[str, object] | None = None):
        self.name = name
        self.options = options

    def check_hyperparameters(self) -> None:
        """Refuse a name or options of the wrong type; GraKeL itself knows which there are."""
        names = [self.name] if isinstance(self.name, str) else self.name
        if not (isinstance(names, list | tuple) and names and all(isinstance(n, str) for n in names)):
            raise ValueError(f"name of GraKeL must be a str or a list of str; got {self.name!r}.")
        if self.options is not None and not isinstance(self.options, Mapping):
            raise ValueError(f"options of GraKeL must be a dict or None; got {self.options!r}.")
        if "normalize" in (self.options or {}):
            raise ValueError("GraKeL takes no option 'normalize'. Write GraKeL(…).normalized().")
        super().check_hyperparameters()

    def prepare(self, X: Data) -> list[Graph]:
        """The graphs as a list; GraKeL has no place for a graph without nodes."""
        items = check_graphs(X, "GraKeL")
        empty = [i for i, item in enumerate(items) if item.n_nodes == 0]
        if empty:
            raise ValueError(
                f"GraKeL takes no graphs without nodes; got some at position {first_positions(empty)} ({len(empty)} of "
                f"{len(items)}). Leave them out."
            )
        return items

    def _kernel(self) -> Any:
        """A new kernel of GraKeL, because each keeps what it was fitted to."""
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
