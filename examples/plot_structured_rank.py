"""
How many columns suffice
========================

``approximation=Nystroem(rank)`` replaces the Gram matrices of inputs and outputs by so many of their columns. All
samples still count: few columns of all digits predict bottom halves better than as many digits alone (figure 2 of
Kadri, Ghavamzadeh and Preux, on digits; :doc:`/structured` explains the operators, :doc:`/reproductions` has it on
faces).
"""

import numpy as np
from sklearn.datasets import load_digits

from representer import StructuredPredictor, plotting
from representer.approximation import Nystroem
from representer.kernels import Gaussian, Linear

digits = load_digits().data[np.random.default_rng(0).permutation(1797)] / 16.0
top, bottom = digits[:, :32], digits[:, 32:] - digits[:400, 32:].mean(0)
ranks = (10, 20, 50, 100, 200, 400)


def r2(rows, approximation):
    model = StructuredPredictor(
        Gaussian(1.5), Linear(), "conditional_covariance", decoder="direct", approximation=approximation
    )
    predicted = model.set_params(random_state=0).fit(top[:rows], bottom[:rows]).predict(top[1000:])
    return 1 - ((predicted - bottom[1000:]) ** 2).sum() / (bottom[1000:] ** 2).sum()


curves = {
    "so many columns of 400 digits": [r2(400, Nystroem(rank, sampling="pivots")) for rank in ranks],
    "so many digits": [r2(rank, None) for rank in ranks],
}
figure, axes = plotting.panels(1, 1, size=4.0)
for name, values in curves.items():
    print(f"{name}: R² {', '.join(f'{value:.2f}' for value in values)}")
    axes[0, 0].semilogx(ranks, values, "o-", label=name)
axes[0, 0].set(xlabel="columns, or digits", ylabel="R² of the pixels", xticks=ranks, xticklabels=ranks)
axes[0, 0].minorticks_off()
axes[0, 0].legend()
figure.savefig("structured_rank.png")
