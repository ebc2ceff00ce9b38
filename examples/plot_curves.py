"""
Curves
======

Each curve is measured at times of its own: pairs (times, values). Its frequency is what we ask for. ``Functional``
puts integrals in the place of inner products, ``GlobalAlignment`` and ``Signature`` compare the order of values.
"""

import numpy as np
from sklearn.model_selection import cross_val_score

from representer import OperatorRidge
from representer.kernels import Functional, Gaussian, GlobalAlignment, Signature

rng = np.random.default_rng(0)
frequency = rng.uniform(1, 3, 80)
times = [np.sort(np.r_[0.0, rng.uniform(0, 1, rng.integers(15, 30)), 1.0]) for _ in frequency]
values = [np.sin(2 * np.pi * f * t) + 0.1 * rng.normal(size=len(t)) for f, t in zip(frequency, times, strict=True)]
curves = list(zip(times, values, strict=True))
paths = [np.column_stack(curve) for curve in curves]  # series of two channels: the time is one of them

for kernel, data in (
    (Functional(Gaussian("auto"), domain="objects"), curves),
    (Functional(Gaussian("auto"), derivative=(0, 1), domain="objects"), curves),
    (GlobalAlignment() + 1.0, paths),
    (Signature(5, time=False).normalized(), paths),
):
    scores = cross_val_score(OperatorRidge(kernel), data, frequency, cv=5)
    print(f"R² = {scores.mean():.2f}   {kernel!r}")
