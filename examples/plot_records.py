"""
Records: what is each column worth
==================================

A row of this table has a molecule, a family and a weight. ``Columns`` gives each field the kernel of its kind;
``Table`` compares numbers and categories together. Which of them tell the boiling point, alone and with others? A sum
says that fields add up. A forest on the columns that it can read is the rival.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from representer import OperatorRidge
from representer.datasets import load_boiling_points
from representer.kernels import Category, Columns, Gaussian, Molecule, Number, Table

table = load_boiling_points(as_frame=True)
weight = Table(Gaussian("auto"), {"weight": Number()})
both = Table(Gaussian("auto"), {"family": Category(), "weight": Number()})
molecule = Columns({"smiles": Molecule(counts=True)})
columns = make_column_transformer((OneHotEncoder(), ["family"]), ("passthrough", ["weight"]))
forest = make_pipeline(columns, RandomForestRegressor(random_state=0))
models = {
    "weight": OperatorRidge(weight),
    "family and weight: a forest": forest,
    "family and weight": OperatorRidge(both),
    "molecule": OperatorRidge(molecule),
    "molecule + weight": OperatorRidge("auto" * molecule + weight),
    "molecule + (family and weight)": OperatorRidge("auto" * molecule + both),
}
folds = KFold(5, shuffle=True, random_state=0)
scores = {name: cross_val_score(model, table.data, table.target, cv=folds) for name, model in models.items()}
for name, score in scores.items():
    print(f"R² = {score.mean():.2f}   {name}")

figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
colours = ["tab:orange" if model is forest else "tab:blue" for model in models.values()]
means, deviations = ([measure(score) for score in scores.values()] for measure in (np.mean, np.std))
ax.barh(list(scores), means, xerr=deviations, color=colours, ecolor="0.3")
ax.invert_yaxis()
ax.set(xlabel="R² on compounds that were not seen, five folds", xlim=(0, 1))
figure.savefig("records.png")
