"""
Curves: how long is the pendulum
================================

Pendulums are watched at irregular moments, by eye, from different starts: how long is each one? A curve is a pair
(times, angles) with times of its own. ``Functional`` puts integrals in the place of inner products, ``Signature``
compares the order in which values come. The bars are one standard deviation.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import odeint
from sklearn.model_selection import cross_val_score

from representer import OperatorRidge
from representer.kernels import Functional, Gaussian, Signature

rng = np.random.default_rng(0)
lengths = rng.uniform(0.3, 2.0, 90)  # metres
curves = []
for length in lengths:
    times = np.sort(np.r_[0.0, rng.uniform(0, 4, rng.integers(25, 45)), 4.0])
    start = [rng.uniform(0.4, 0.9), 0.0]
    swing = odeint(lambda s, t, g: [s[1], -0.15 * s[1] - g * np.sin(s[0])], start, times, (9.81 / length,))
    curves.append((times, swing[:, 0] + 0.05 * rng.normal(size=len(times))))
paths = [np.column_stack(curve) for curve in curves]  # the same with the time as a channel

kernel = Functional(Gaussian("auto"), domain="objects")
for name, k, data in (("Functional", kernel, curves), ("Signature", Signature(4, time=False).normalized(), paths)):
    print(f"{name:10} R² = {cross_val_score(OperatorRidge(k), data, lengths, cv=5).mean():.2f}")

model = OperatorRidge(kernel).fit(curves[:60], lengths[:60])
mean, std = model.predict(curves[60:], return_std=True)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for i in np.argsort(lengths)[[5, 45, 85]]:
    left.plot(*curves[i], ".-", linewidth=0.8, label=f"{lengths[i]:.1f} m")
left.legend(loc="upper right")
left.set(xlabel="seconds", ylabel="angle", title="what was seen")
right.axline((1, 1), slope=1, color="0.7")
right.errorbar(lengths[60:], mean, std, fmt="o", markersize=4)
right.set(xlabel="length, m", ylabel="predicted, m", title="pendulums that the model has not seen")
figure.savefig("curves.png")
