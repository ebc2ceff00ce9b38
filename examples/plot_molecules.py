"""
Molecules
=========

From SMILES to a property, here the polar surface area that RDKit computes. ``Molecule`` reads the strings by itself;
in two steps it is a pipeline of fingerprints and ``Tanimoto``.
"""

import numpy as np
from rdkit.Chem import Descriptors, MolFromSmiles
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from representer import Morgan, OperatorRidge
from representer.kernels import Molecule, Tanimoto

rng = np.random.default_rng(0)
parts = ["C", "CC", "C(=O)", "N", "O", "C(O)", "c1ccccc1", "C(F)", "S", "C(C)C", "c1ccncc1", "C#C"]
smiles = ["C" + "".join(rng.choice(parts, rng.integers(2, 8))) + "C" for _ in range(200)]
polar = np.array([Descriptors.TPSA(MolFromSmiles(s)) for s in smiles])

models = {
    "Molecule, bits": OperatorRidge(Molecule()),
    "Molecule, counts": OperatorRidge(Molecule(counts=True)),
    "Morgan, then Tanimoto": make_pipeline(Morgan(output="sparse"), OperatorRidge(Tanimoto())),
}
for name, model in models.items():
    print(f"{name:22} R² = {cross_val_score(model, smiles, polar, cv=5).mean():.2f}")
