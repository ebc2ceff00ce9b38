"""A string task

How often is a motif in a string, if one of its letters has changed each time? `Spectrum` compares substrings letter by
letter, `Mismatch` forgives one letter, `Subsequence` forgives gaps. The learner is the same.
"""

import numpy as np
from sklearn.model_selection import cross_val_predict

from representer import OperatorRidge
from representer.kernels import Mismatch, Spectrum, Subsequence

rng = np.random.default_rng(0)
strings, counts = [], rng.integers(0, 6, 100)
for count in counts:
    words = ["".join(rng.permutation([*"GATTAC"])) for _ in range(5 - count)]
    for place in rng.integers(0, 6, count):
        words.append("GATTAC"[:place] + rng.choice([*"ACGT"]) + "GATTAC"[place + 1 :])
    strings.append("".join(rng.permutation(words)))

predicted = {}
for kernel in (Spectrum(3), Subsequence(3, decay=0.5), Mismatch(4, 1)):
    predicted[repr(kernel)] = cross_val_predict(OperatorRidge(kernel.normalized()), strings, counts, cv=5)

results = {
    f"{name}: R², cross-validated": f"{1 - np.mean((counts - p) ** 2) / counts.var():.2f}"
    for name, p in predicted.items()
}
