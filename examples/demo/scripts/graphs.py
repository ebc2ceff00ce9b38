"""Labelled graphs

Rings with a tail: does the tail begin at a node with the label O? Labels alone do not tell, nor do distances; two
rounds of `WeisfeilerLehman` refinement do. The same `EmbeddingClassifier` as above, on `networkx` graphs.
"""

import networkx as nx
import numpy as np
from sklearn.model_selection import cross_val_score

from representer import EmbeddingClassifier
from representer.kernels import ShortestPath, VertexHistogram, WeisfeilerLehman

rng = np.random.default_rng(0)
graphs, classes = [], []
for _ in range(120):
    graph = nx.cycle_graph(int(rng.integers(5, 9)))
    graph.add_edges_from(nx.path_graph([0, *range(10, 10 + int(rng.integers(1, 5)))]).edges)
    labels = rng.choice(["C", "O"], len(graph), p=[0.6, 0.4])
    nx.set_node_attributes(graph, dict(zip(graph, labels, strict=True)), "label")
    graphs.append(graph)
    classes.append(graph.nodes[0]["label"])

results = {}
for kernel in (VertexHistogram(), ShortestPath(), WeisfeilerLehman(2)):
    accuracy = cross_val_score(EmbeddingClassifier(kernel.normalized()), graphs, classes, cv=5).mean()
    results[f"{kernel!r}: accuracy, cross-validated"] = f"{accuracy:.0%}"
