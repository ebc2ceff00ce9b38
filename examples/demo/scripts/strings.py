"""DNA: the letters that switch a gene on

Half of these stretches of DNA hold a box TATAAT, as promoters of bacteria do, with one letter changed; the others hold
its letters in another order. `Mismatch` compares words of six letters and forgives one; `Spectrum`, which forgives
nothing, is the rival. What each letter adds is what is lost without it: the model points at the box.
"""

import numpy as np
from sklearn.model_selection import cross_val_predict

from representer import OperatorRidge
from representer.kernels import Mismatch, Spectrum

rng = np.random.default_rng(0)
genes, places, on = [], rng.integers(0, 21, 300), np.arange(300) % 2
for place, has_box in zip(places, on, strict=True):
    box, changed = "".join(rng.permutation([*"TATAAT"])), rng.integers(6)
    if has_box:
        box = "TATAAT"[:changed] + rng.choice([*"ACGT"]) + "TATAAT"[changed + 1 :]
    around = "".join(rng.choice([*"ACGT"], 20))
    genes.append(around[:place] + box + around[place:])

results = {}
for kernel in (Spectrum(3), Spectrum(6), Mismatch(6, 1)):
    predicted = cross_val_predict(OperatorRidge(kernel.normalized()), genes, 2.0 * on - 1, cv=5)
    results[f"{kernel!r}: stretches told right, five folds"] = f"{np.mean((predicted > 0) == on):.0%}"

model = OperatorRidge(kernel.normalized()).fit(genes[10:], 2.0 * on[10:] - 1)
added = [np.asarray(model.sensitivity([genes[i]])[0]).ravel() for i in (1, 3, 5, 7, 9)]  # five that it has not seen
