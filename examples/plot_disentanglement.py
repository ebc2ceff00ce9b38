"""
Disentanglement
===============

Which component answers to which factor? ``make_shapes`` draws small pictures of one shape with known position, size
and hue, and ``representer.metrics`` scores how far each component of ``DeepKernelPCA`` follows one factor only. All
scores are 1 for the factors themselves. Figures 7 and 8 of Tonin et al., on other pictures; :doc:`/reproductions`.
"""

import numpy as np

from representer import DeepKernelPCA, metrics, plotting
from representer.datasets import make_shapes

shapes = make_shapes(n_values={"orientation": 1, "shape": 1, "hue": 4})
rows = np.random.default_rng(0).choice(len(shapes.data), 100, replace=False)
model = DeepKernelPCA([4, 4], random_state=0).fit(shapes.data[rows])
codes = {"DeepKernelPCA": model.transform(shapes.data), "the factors": shapes.factors}
importance = {}
for name, values in codes.items():
    scores = metrics.dci(values, shapes.factors, n_trees=20, random_state=0)
    importance[name] = scores.importance
    print(
        f"{name}: IRS {metrics.irs(values, shapes.factors):.2f}, MIG {metrics.mig(values, shapes.factors):.2f}, "
        f"SAP {metrics.sap(values, shapes.factors):.2f}, DCI {scores.disentanglement:.2f}, factors predicted with R² "
        f"{scores.informativeness:.2f}"
    )

figure, axes = plotting.panels(1, 3, column_labels=["pictures", *(f"importance: {name}" for name in codes)])
few = shapes.images[rows[:36]].reshape(6, 6, 16, 16, 3)
axes[0, 0].imshow(few.transpose(0, 2, 1, 3, 4).reshape(96, 96, 3))
axes[0, 0].set(xticks=[], yticks=[])
for ax, values in zip(axes[0, 1:], importance.values(), strict=True):
    ax.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    ax.set_xticks(range(len(shapes.factor_names)), shapes.factor_names)
    ax.set(ylabel="code", yticks=range(len(values)))
figure.savefig("disentanglement.png")
