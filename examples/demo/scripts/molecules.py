"""A map of molecules, and the way back

Two numbers for each of 96 compounds, learned from SMILES alone: `KernelAutoencoder` puts molecules of one family
together, and a place on the map stands for a molecule again. Kernel PCA with the same kernel is the rival.
"""

import numpy as np
from sklearn.decomposition import KernelPCA
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from representer import KernelAutoencoder
from representer.datasets import load_boiling_points
from representer.explorer import Explorer
from representer.kernels import Molecule

table = load_boiling_points(as_frame=True).data
families = ["alcohol", "acid", "amine", "aromatic", "ester", "ketone"]
table = table[table["family"].isin(families)]
smiles, labels = table["smiles"].tolist(), table["family"].tolist()

kernel = Molecule(counts=True)
model = KernelAutoencoder(2, kernel, alpha=0.01, encoder_alpha=0.01, random_state=0)
codes = model.fit_transform(smiles)
components = KernelPCA(2, kernel="precomputed").fit_transform(kernel(smiles).numpy())
results = {}
for name, places in (("KernelAutoencoder", codes), ("kernel PCA", components)):
    accuracy = cross_val_score(KNeighborsClassifier(1), places, labels, cv=4).mean()
    results[f"{name}: family told by the nearest on the map"] = f"{accuracy:.0%}"
back = np.mean([found == truth for found, truth in zip(model.reconstruct(smiles), smiles, strict=True)])
results["molecules that are found again from their two numbers"] = f"{back:.0%}"
explorer = Explorer(model)  # explorer.save("map.html") is a page to walk on the map
