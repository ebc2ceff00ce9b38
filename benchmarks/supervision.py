"""``python -m benchmarks.supervision``: codes that serve labels, with weights that are given and one that is chosen.

The error is that of a linear ridge regression on the codes, for samples that no fit has seen, over the variance; beside
it stands the share of the variance of the inputs that reconstructions miss.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import scale

from representer import KernelAutoencoder
from representer.datasets.files import data_folder
from representer.kernels import Molecule

TRAINING, ROWS = 0.7, 400


def sets() -> Iterator[tuple[str, np.ndarray, np.ndarray, object, int]]:
    """Names, inputs, labels, kernels, and sizes of codes."""
    table = pd.read_csv(data_folder() / "freesolv.csv")
    yield "FreeSolv", table["smiles"].to_numpy(object), table["expt"].to_numpy(float), Molecule(2, counts=True), 50
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", scale(X), y, "auto", 2
    wine = load_wine()
    yield "wine (proline by the rest)", scale(np.delete(wine.data, 12, 1)), wine.data[:, 12], "auto", 2


def main() -> None:
    """Measure all sets."""
    for name, X, y, kernel, size in sets():
        order = np.random.default_rng(0).permutation(len(X))[:ROWS]
        train, test = np.split(order, [int(TRAINING * len(order))])
        for weight in (0.0, 1.0, 10.0, "auto"):
            start = time.process_time()
            model = KernelAutoencoder(size, kernel, supervision=weight, n_restarts=1, max_iter=60, random_state=0)
            model.fit(X[train], y[train])
            seconds = time.process_time() - start
            ridge = RidgeCV(np.logspace(-6, 6, 25)).fit(model.transform(X[train]), y[train])
            missed = np.mean((ridge.predict(model.transform(X[test])) - y[test]) ** 2) / y[test].var()
            lost = 1.0 - model.score(X[test])
            print(f"{name}, supervision={weight!r} ({model.supervision_}): labels {missed:.3f}, inputs {lost:.3f}, "
                  f"{seconds:.1f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
