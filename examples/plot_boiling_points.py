"""
A mixed table, with what is not known said
==========================================

A chemist's table has molecules, words and numbers side by side. Each column is taken for what it is, and every
prediction says how sure it is: 96 organic compounds, half to learn from, the boiling points of the others to predict.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from representer import OperatorRidge
from representer.datasets import load_boiling_points
from representer.kernels import suggest

table = load_boiling_points(as_frame=True)
X, X_new, y, y_new = train_test_split(table.data, table.target, test_size=0.5, random_state=0)

# %%
# What the columns are taken for, why, and how much of the boiling points each explains by itself, linearly:
print("\n".join(repr(suggest(X, y)).splitlines()[:5]))

# %%
# The fit, in one line, and what it says of compounds that it has not seen:
model = OperatorRidge().fit(X, y)
mean, std = model.predict(X_new, return_std=True)
print(f"R² {model.score(X_new, y_new):.2f}")
for name, relevance in zip(X.columns, model.relevance_, strict=True):
    print(f"{name}: {relevance:.2f} of the variance of the predictions")

# %%
# Predictions with one standard deviation. The compounds that are farthest off are named.
figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
ax.axline((0, 0), slope=1, color="0.6", linewidth=1)
families = sorted(X_new["family"].unique())
colours = dict(zip(families, plt.get_cmap("tab20")(np.linspace(0, 1, len(families))), strict=True))
for family in families:
    rows = (X_new["family"] == family).to_numpy()
    ax.errorbar(y_new[rows], mean[rows], std[rows], fmt="o", color=colours[family], markersize=4, label=family)
for i in np.argsort(-np.abs(mean - y_new))[:3]:
    ax.annotate(X_new["name"].iloc[i], (y_new[i], mean[i]), xytext=(6, -10), textcoords="offset points", fontsize=8)
ax.set(xlabel="measured boiling point, °C", ylabel="predicted, °C")
ax.legend(fontsize=7, ncols=2, frameon=False)
figure.savefig("boiling_points.png")
