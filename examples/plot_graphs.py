"""
Graphs
======

Rings with a tail: does the tail begin at a node with the label O? Labels alone do not tell; two rounds of
``WeisfeilerLehman`` refinement do. ``networkx`` graphs are taken as they are, and so are RDKit molecules.
"""

import networkx as nx
import numpy as np
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

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

for kernel in (VertexHistogram(), ShortestPath(), WeisfeilerLehman(2)):
    gram = kernel.normalized()(graphs)
    score = cross_val_score(SVC(C=100.0, kernel="precomputed"), gram, classes, cv=5).mean()
    print(f"{kernel!r:34} accuracy {score:.2f}")
