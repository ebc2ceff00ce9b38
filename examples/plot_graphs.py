"""
Graphs: how many ways to stay connected
=======================================

A network that keeps working when cables fail has many spanning trees. How many does a graph have? Of the atlas of all
graphs with seven nodes, 200 are learned from and others predicted, from nothing but the drawing: no attributes, no
labels. Counting edges is the rival; ``WeisfeilerLehman`` compares neighbourhoods and knows more.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

from representer import OperatorRidge
from representer.kernels import WeisfeilerLehman

atlas = [graph for graph in nx.graph_atlas_g() if len(graph) == 7 and nx.is_connected(graph)]
graphs = [atlas[i] for i in np.random.default_rng(0).permutation(len(atlas))[:200]]
trees = np.array([round(nx.number_of_spanning_trees(graph)) for graph in graphs])
y = np.log10(trees)

edges = np.array([[graph.number_of_edges()] for graph in graphs])
predictions = {"edges, a line": cross_val_predict(RidgeCV(), edges, y, cv=5)}
for kernel in (WeisfeilerLehman(2), WeisfeilerLehman(3)):
    predictions[repr(kernel)] = cross_val_predict(OperatorRidge(kernel.normalized(), alpha=1e-3), graphs, y, cv=5)
for name, predicted in predictions.items():
    print(f"R² = {1 - np.mean((y - predicted) ** 2) / y.var():.2f}   {name}")

figure, axes = plt.subplots(2, 4, figsize=(8, 4.4), layout="constrained")
for ax, i in zip(axes.flat, np.argsort(y)[:: len(y) // 7], strict=True):
    nx.draw_circular(graphs[i], ax=ax, node_size=45, node_color="tab:blue", edge_color="0.4")
    ax.set_title(f"{trees[i]} trees,\npredicted {10 ** predicted[i]:.0f}", fontsize=9)
figure.savefig("graphs.png")
