"""Graphs: how many ways to stay connected

A network that keeps working when cables fail has many spanning trees. How many? Of the atlas of all graphs with seven
nodes, 200 are learned from and others predicted, from their shape alone. `WeisfeilerLehman` compares neighbourhoods; a
line through the number of edges is the rival.
"""

import networkx as nx
import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

from representer import OperatorRidge
from representer.kernels import WeisfeilerLehman

atlas = [graph for graph in nx.graph_atlas_g() if len(graph) == 7 and nx.is_connected(graph)]
graphs = [atlas[i] for i in np.random.default_rng(0).permutation(len(atlas))[:200]]
trees = np.array([round(nx.number_of_spanning_trees(graph)) for graph in graphs])

y = np.log(trees)
edges = np.array([[graph.number_of_edges()] for graph in graphs])
line = cross_val_predict(RidgeCV(), edges, y, cv=5)
learned = cross_val_predict(OperatorRidge(WeisfeilerLehman(2).normalized(), alpha=1e-3), graphs, y, cv=5)
results = {
    f"{name}: typical error of the number of trees": f"{np.exp(np.median(np.abs(y - predicted))) - 1:.0%}"
    for name, predicted in {"WeisfeilerLehman": learned, "a line through the edges": line}.items()
}
