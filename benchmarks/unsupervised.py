"""Defaults of learners without a target, and of what they learn beside it: the tables of ``docs/defaults.md``.

``python -m benchmarks.unsupervised`` takes some minutes. Errors are shares of variance on samples that no fit has seen.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_wine, make_blobs, make_circles
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import scale

from representer import DeepKernelPCA, KernelAutoencoder, OperatorRidge
from representer.kernels import Gaussian

TRAINING = 0.6  # of the samples


def codes() -> Iterator[tuple[str, np.ndarray, int]]:
    """Data for autoencoders, and the size of the code."""
    for n, factor, noise, seed in ((300, 0.4, 0.05, 0), (250, 0.5, 0.05, 1), (250, 0.3, 0.1, 1)):
        yield f"circles ({factor}, {noise})", make_circles(n, noise=noise, factor=factor, random_state=seed)[0], 1
    yield "clusters", scale(make_blobs(300, centers=5, n_features=6, random_state=0)[0]), 2
    pictures, rng = load_digits().data[:500] / 16.0, np.random.default_rng(0)
    for size in (2, 5):
        yield "digits", pictures[rng.permutation(500)], size


def autoencoders() -> None:
    """Median widths against learned ones."""
    for name, X, size in codes():
        n = int(TRAINING * len(X))
        for kernel in ("rbf", "auto"):
            start = time.perf_counter()
            model = KernelAutoencoder(size, kernel, kernel, random_state=0).fit(X[:n])
            seconds = time.perf_counter() - start
            print(f"{name}, code of {size}, {kernel}: {1.0 - model.score(X[n:]):.3f} missed, {seconds:.1f} s")


def labelled() -> Iterator[tuple[str, np.ndarray, np.ndarray, list[int]]]:
    """Data for deep kernel PCA, their labels, and the sizes of levels."""
    digits, wine = load_digits(), load_wine()
    rows = np.random.default_rng(0).permutation(1797)[:500]
    yield "digits", digits.data[rows] / 16.0, digits.target[rows], [10, 5]
    rows = np.random.default_rng(0).permutation(178)
    yield "wine", scale(wine.data)[rows], wine.target[rows], [4, 2]
    yield "circles", *make_circles(400, noise=0.08, factor=0.4, random_state=0), [3, 2]


def levels() -> None:
    """Centred levels, learned widths, and the smoother, against what was before."""
    for name, X, y, sizes in labelled():
        n = int(TRAINING * len(X))
        former: dict[str, Any] = {"kernel": "rbf", "center": "data"}
        for options in (former, {"kernel": "rbf"}, {"kernel": "auto"}):
            model = DeepKernelPCA(sizes, **options, random_state=0).fit(X[:n])
            train, test = (model.transform(part, level=1) for part in (X[:n], X[n:]))
            accuracy = KNeighborsClassifier(5).fit(train, y[:n]).score(test, y[n:])
            print(f"{name}, {options}: recovered {model.score(X[n:]):.3f}, neighbours of level 1 {accuracy:.3f}")
        smoother = DeepKernelPCA(sizes, extension="smoother", random_state=0).fit(X[:n]).function_
        exact = replace(smoother, extension="exact")(X[n:])
        variance = (exact - exact.mean(0)).square().sum()
        for what, power in (("own width", smoother.sharpness), ("first kernel", 1.0)):
            missed = (replace(smoother, sharpness=power)(X[n:]) - exact).square().sum() / variance
            print(f"{name}, smoother, {what}: {missed:.3f} of the exact features missed")


def operators() -> None:
    """Separate outputs against a learned operator, with gaps: means of four draws."""
    results: dict[tuple[int, int, float, str | None], list[tuple[float, float]]] = {}
    for seed in (2, 3, 4, 5):
        rng = np.random.default_rng(seed)
        for n, p, gaps in ((400, 3, 0.2), (200, 6, 0.3), (200, 6, 0.6)):
            X = rng.normal(size=(n + 300, 4))
            common, other = np.sin(X[:, 0]), X[:, 1]
            causes = [common, common + 0.3 * other, 0.5 * other**2, *[common + 0.1 * X[:, 2]] * (p - 3)]
            truth = np.stack(causes, 1)
            Y = (truth + 0.5 * rng.normal(size=truth.shape))[:n]
            Y[rng.random(Y.shape) < gaps] = np.nan
            for operator in (None, "learn"):
                start = time.process_time()
                model = OperatorRidge(Gaussian("auto"), operator=operator, random_state=0).fit(X[:n], Y)
                seconds = time.process_time() - start
                error = np.sqrt(np.mean((model.predict(X[n:]) - truth[n:]) ** 2))
                results.setdefault((n, p, gaps, operator), []).append((float(error), seconds))
    for (n, p, gaps, operator), pairs in results.items():
        error, seconds = np.mean(pairs, 0)
        print(f"{n} × {p}, {gaps:.0%} missing, operator={operator!r}: {error:.3f}, {seconds:.1f} s")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in (operators, levels, autoencoders):
            part()
