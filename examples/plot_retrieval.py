"""
Which molecule gave this spectrum?
==================================

A mass spectrum shows the weight of a molecule and of the pieces into which it breaks. The molecule itself is looked for
among all known ones of about that weight. No spectrum of it was ever measured: there are only those of other molecules
to learn from, some of which are among its candidates. ``StructuredPredictor`` regresses features of formulas on spectra
and ranks the candidates of each input, as input-output kernel regression does for metabolites (Brouard et al., 2016;
the operators are those of Kadri et al.). The spectra are made: each bond outside rings of 96 organic compounds breaks,
and the heights of the peaks have noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdkit.Chem import Descriptors, Draw, FragmentOnBonds, GetMolFrags, MolFromSmiles
from sklearn.model_selection import KFold

from representer import StructuredPredictor
from representer.datasets import load_boiling_points
from representer.kernels import Gaussian, Spectrum
from representer.metrics import reciprocal_rank, top_k
from representer.preimage import Candidates

rng = np.random.default_rng(1)
smiles = np.array(load_boiling_points(as_frame=True).data["smiles"])
weights = np.array([Descriptors.MolWt(MolFromSmiles(s)) for s in smiles])


def spectrum(molecule):
    """The heights of peaks at the weights of pieces and of what they lack to the whole, and the weight of the whole."""
    peaks, whole = np.zeros((2, 200)), Descriptors.MolWt(molecule)
    for bond in (bond for bond in molecule.GetBonds() if not bond.IsInRing()):
        for piece in GetMolFrags(FragmentOnBonds(molecule, [bond.GetIdx()], addDummies=False), asMols=True):
            weight = round(Descriptors.MolWt(piece))
            peaks[[0, 1], [weight, max(round(whole) - weight, 0)]] += rng.lognormal(0.0, 0.5)
    return np.append(np.sqrt(peaks.ravel() / max(peaks.sum(), 1.0)), whole / 50.0)


X = np.array([spectrum(MolFromSmiles(s)) for s in smiles])
nearby = Candidates(lambda x: smiles[np.abs(weights - 50.0 * x[-1]) < 10.0].tolist())
ranked, by_chance = [None] * len(X), [None] * len(X)
for train, test in KFold(10, shuffle=True, random_state=1).split(X):
    model = StructuredPredictor(Gaussian("auto"), Spectrum((1, 3)).normalized(), decoder=nearby)
    model.fit(X[train], smiles[train].tolist())
    for i in test:
        candidates = smiles[np.abs(weights - weights[i]) < 10.0]
        ranked[i] = model.predict_topk(X[i : i + 1], len(candidates))[0][0]
        by_chance[i] = list(rng.permutation(candidates))
for name, lists in (("StructuredPredictor", ranked), ("by chance", by_chance)):
    first, mean = top_k(smiles, lists), reciprocal_rank(smiles, lists)
    print(f"{name:19} share of first ranks {first:.2f}, mean reciprocal rank {mean:.2f}")
print(f"{np.mean([len(row) for row in ranked]):.1f} candidates on average")

figure, axes = plt.subplots(3, 4, figsize=(9, 6), layout="constrained", width_ratios=[1.6, 1, 1, 1])
shown = rng.choice(np.flatnonzero(X[:, :200].max(1) > 0), 3, replace=False)  # rings have no peaks
for row, i in zip(axes, shown, strict=True):
    row[0].stem(np.arange(200), X[i, :200], markerfmt=" ", basefmt=" ")
    row[0].set(xlabel="weight of a piece", xlim=(0, weights[i] + 10), title=f"weight of the whole {weights[i]:.0f}")
    for ax, found in zip(row[1:], ranked[i], strict=False):
        ax.imshow(Draw.MolToImage(MolFromSmiles(found), size=(240, 180)))
        ax.set_title(*(("right", {"fontsize": 11}) if found == smiles[i] else ("wrong", {"fontsize": 8})))
        ax.axis("off")
figure.savefig("retrieval.png")
