"""
Molecules, and the ones behind a prediction
===========================================

At what temperature does a compound boil that was never measured? ``Molecule`` reads SMILES by itself. Beside each new
compound stands the known one without which its prediction would change the most, which needs no refit. The data are
96 organic compounds; a forest on the same fingerprints is the rival.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdkit.Chem import Draw, MolFromSmiles
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from representer import Morgan, OperatorRidge
from representer.datasets import load_boiling_points
from representer.kernels import Molecule

table = load_boiling_points(as_frame=True)
X, X_new, y, y_new = train_test_split(table.data, table.target, test_size=6, random_state=3)
kernel = Molecule(counts=True)
forest = make_pipeline(Morgan(counts=True), RandomForestRegressor(random_state=0))
folds = KFold(5, shuffle=True, random_state=0)
for name, learner in (("OperatorRidge", OperatorRidge(kernel)), ("forest", forest)):
    scores = cross_val_score(learner, table.data["smiles"].tolist(), table.target, cv=folds)
    print(f"{name:13} R² = {scores.mean():.2f}, five folds")

model = OperatorRidge(kernel).fit(X["smiles"].tolist(), y)
mean, std = model.predict(X_new["smiles"].tolist(), return_std=True)
most = np.abs(model.influence(X_new["smiles"].tolist())).argmax(1)

figure, axes = plt.subplots(4, 3, figsize=(7.5, 9), layout="constrained")
for i, (new, known) in enumerate(zip(axes[::2].flat, axes[1::2].flat, strict=True)):
    new.imshow(Draw.MolToImage(MolFromSmiles(X_new["smiles"].iloc[i]), size=(300, 200)))
    new.set_title(f"{X_new['name'].iloc[i]}\n{mean[i]:.0f} ± {std[i]:.0f} °C, measured {y_new[i]:.0f}", fontsize=9)
    known.imshow(Draw.MolToImage(MolFromSmiles(X["smiles"].iloc[most[i]]), size=(300, 200)))
    known.set_title(f"most of all by {X['name'].iloc[most[i]]}", fontsize=8, color="0.35")
for ax in axes.flat:
    ax.axis("off")
figure.savefig("molecules.png")
