"""
Which atoms raise a boiling point?
==================================

A kernel on molecules learns boiling points from 96 organic compounds. What an atom adds to a prediction is the
prediction now minus that with an unknown atom in its place: blue atoms raise the boiling point, red ones lower it.
Chemists know the answer: groups that build hydrogen bonds, such as OH and COOH, raise it. :doc:`/explain` says more.
"""

import io

import matplotlib.pyplot as plt
import numpy as np

from representer import OperatorRidge
from representer.datasets import load_boiling_points
from representer.inspection.drawings import molecule_png
from representer.kernels import Molecule

table = load_boiling_points(as_frame=True)
smiles, degrees = table.data["smiles"].to_numpy(), table.target
model = OperatorRidge(Molecule(radius=1, counts=True)).fit(smiles, degrees)
print(f"R² by leave-one-out: {1 - np.mean((model.loo_predict_ - degrees) ** 2) / np.var(degrees):.2f}")

# %%
# Molecules that the fit has not seen, with what each of their atoms adds:
new = {
    "pentanol": "CCCCCO",
    "hexanoic acid": "CCCCCC(=O)O",
    "diethylamine": "CCNCC",
    "benzyl alcohol": "OCc1ccccc1",
    "2-hexanone": "CCCCC(C)=O",
    "chlorobutane": "CCCCCl",
}
why = model.explain(list(new.values()), parts=True)
figure, axes = plt.subplots(2, 3, figsize=(9.0, 5.4), layout="constrained")
for i, (ax, name) in enumerate(zip(axes.flat, new, strict=True)):
    ax.imshow(plt.imread(io.BytesIO(molecule_png(new[name], why.parts[i], 500))))
    ax.set_title(f"{name}: {why.prediction[i]:.0f} °C", fontsize=10)
    ax.axis("off")
figure.savefig("atoms.png", dpi=120)

# %%
# The oxygen of the alcohol and the carbon of the acid group add the most:
for i, name in enumerate(["pentanol", "hexanoic acid"]):
    print(name, np.round(why.parts[i]).astype(int).tolist())
