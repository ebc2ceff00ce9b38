"""
DNA: which letters switch a gene on
===================================

Half of these stretches of DNA hold a box TATAAT, as promoters of bacteria do, with one of its letters changed; the
others hold its letters in another order. ``Mismatch`` compares words of six letters and forgives one. What each letter
adds to a prediction is what is lost without it: the model points at the box, which nobody has shown it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import cross_val_predict

from representer import OperatorRidge
from representer.kernels import Mismatch, Spectrum

rng = np.random.default_rng(0)
genes, places, on = [], rng.integers(0, 21, 400), np.arange(400) % 2
for place, has_box in zip(places, on, strict=True):
    box = "".join(rng.permutation([*"TATAAT"]))
    if has_box:
        changed = rng.integers(6)
        box = "TATAAT"[:changed] + rng.choice([*"ACGT"]) + "TATAAT"[changed + 1 :]
    around = "".join(rng.choice([*"ACGT"], 20))
    genes.append(around[:place] + box + around[place:])

for kernel in (Spectrum(3), Mismatch(6, 1)):
    predicted = cross_val_predict(OperatorRidge(kernel.normalized()), genes, 2.0 * on - 1, cv=5)
    print(f"{kernel!r:42} accuracy {np.mean((predicted > 0) == on):.2f}")

model = OperatorRidge(kernel.normalized()).fit(genes[20:], 2.0 * on[20:] - 1)
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for row, i in enumerate([1, 3, 5, 7, 9]):  # stretches with a box, which the model has not seen
    added = np.asarray(model.sensitivity([genes[i]])[0]).ravel()
    for column, (letter, value) in enumerate(zip(genes[i], added, strict=True)):
        ax.text(column, -row, letter, ha="center", va="center", family="monospace", fontsize=11, zorder=2)
        ax.barh(-row, 0.9, 0.8, column - 0.45, color="tab:orange", alpha=float(np.clip(value / added.max(), 0, 1)))
    ax.plot([places[i] - 0.5, places[i] + 5.5], [-row - 0.45] * 2, color="tab:blue", linewidth=2)
ax.set(xlim=(-1, 26), ylim=(-4.8, 0.7), title="orange: what a letter adds; blue: where the box is")
ax.axis("off")
figure.savefig("strings.png")
