"""
When an operator on the outputs pays
====================================

``StructuredPredictor`` shrinks all directions of the output space alike (``operator=None``), or those more in
which the outputs vary less (``"covariance"``), or keeps only the leading ones (``"kpca"``). Twenty noisy mixtures of
two functions are the case for it: what the outputs have in common is signal, the rest is noise. For twenty functions
that have nothing in common but their noise it is the other way round. Everything is tuned by leave-one-out.
"""

import matplotlib.pyplot as plt
import numpy as np

from representer import StructuredPredictor
from representer.kernels import Gaussian, Linear


def sample(case, seed, n=40):
    """Inputs, noisy outputs, new inputs and the signal there."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n + 300, 2))
    k = 2 if case == "two factors" else 20
    signal = np.sqrt(2) * np.cos(X @ rng.normal(0, 2, (2, k)) + rng.uniform(0, 2 * np.pi, k))
    if case == "two factors":
        signal = signal @ rng.normal(size=(2, 20)) / np.sqrt(2)
        noise = rng.normal(size=signal.shape)
    else:
        noise = rng.normal(size=(len(X), 1)) @ rng.normal(size=(1, 20))
    return X[:n], (signal + noise)[:n], X[n:], signal[n:]


operators = [None, "kpca", "covariance", "conditional_covariance"]
figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
for ax, case in zip(axes, ("two factors", "noise in common"), strict=True):
    scores = np.empty((5, len(operators)))
    for seed, row in enumerate(scores):
        X, Y, new, signal = sample(case, seed)
        for i, operator in enumerate(operators):
            model = StructuredPredictor(Gaussian(0.8), Linear(), operator, decoder="direct").fit(X, Y)
            row[i] = 1 - ((model.predict(new) - signal) ** 2).sum() / ((signal - signal.mean(0)) ** 2).sum()
    for i, operator in enumerate(operators):
        error = scores[:, i].std(ddof=1) / np.sqrt(len(scores))
        print(f"{case:16} {operator or 'identity':23} R² of the signal = {scores[:, i].mean():.2f} ± {error:.2f}")
    ax.errorbar(range(4), scores.mean(0), scores.std(0, ddof=1) / np.sqrt(len(scores)), fmt="o", capsize=4)
    ax.set(title=case, xticks=range(4), xticklabels=["identity", "kpca", "cov.", "cond. cov."])
axes[0].set_ylabel("R² of the signal, ± standard error")
figure.savefig("structured_operators.png")
