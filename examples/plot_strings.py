"""
Strings
=======

How often is a motif in a string, if one of its letters has changed each time? ``Spectrum`` compares substrings letter
by letter, ``Mismatch`` forgives one letter, ``Subsequence`` forgives gaps; how much these cost is learned.
"""

import numpy as np
from sklearn.model_selection import cross_val_score

from representer import OperatorRidge
from representer.kernels import Mismatch, Spectrum, Subsequence

rng = np.random.default_rng(0)
strings, counts = [], rng.integers(0, 6, 100)
for count in counts:
    motifs = ["".join(rng.permutation([*"GATTAC"])) for _ in range(5 - count)]
    for place in rng.integers(0, 6, count):
        motifs.append("GATTAC"[:place] + rng.choice([*"ACGT"]) + "GATTAC"[place + 1 :])
    strings.append("".join(rng.permutation(motifs)))

for kernel in (Spectrum(3), Mismatch(4, 1), Subsequence(3, decay="auto")):
    scores = cross_val_score(OperatorRidge(kernel.normalized()), strings, counts, cv=5)
    print(f"{kernel!r:34} R² = {scores.mean():.2f}")
