"""
Bags
====

A sample is a set of points, of any size: what is the spread of the distribution that they come from? ``MeanMap``
compares distributions, with a linear or a Gaussian kernel on top, whose lengthscale is learned here. ``Match``
compares each point with the most similar one of the other bag; it is not positive semi-definite, and repaired with a
warning.
"""

import warnings

import numpy as np
from sklearn.model_selection import cross_val_score

from representer import OperatorRidge
from representer.kernels import Gaussian, Match, MeanMap
from representer.linalg import IndefiniteGramWarning

rng = np.random.default_rng(0)
spread = rng.uniform(0.5, 2.0, 100)
bags = [rng.normal(rng.uniform(-1, 1), s, size=(rng.integers(10, 30), 1)) for s in spread]

warnings.simplefilter("ignore", IndefiniteGramWarning)
for kernel in (
    MeanMap(Gaussian(1.0)),
    MeanMap(Gaussian(1.0), outer=Gaussian("auto")),
    Match(Gaussian(0.3)),
):
    scores = cross_val_score(OperatorRidge(kernel), bags, spread, cv=5)
    print(f"R² = {scores.mean():.2f}   {kernel!r}")
