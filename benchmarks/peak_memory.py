"""Peaks of memory, each in a process of its own, because a peak cannot be reset: the cases of ``bench_memory``."""

from __future__ import annotations

import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._timing import Row, scale, scaled
from representer import (
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Nystroem
from representer.kernels import Gaussian
from representer.operators import ConditionalCovariance, CurlFree, Dense

Task = Callable[[], Any]  # what is measured
N = 2400
SQUARES, GIGABYTES = "n² doubles", "GB"


@dataclass(frozen=True)
class Case:
    """n samples; ``prepare(n)`` makes the data and returns what is measured. ``whole``: the process, with its data."""

    n: int
    prepare: Callable[[int], Task]
    unit: str = SQUARES
    goal: float | None = None
    whole: bool = False


def normal(n: int, d: int, p: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Features, and p smooth functions of them with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, np.sin(X @ rng.standard_normal((d, p)) / d**0.5) + 0.1 * rng.standard_normal((n, p))


def fits(model: Any, d: int = 3, p: int = 3) -> Callable[[int], Task]:
    """A fit of p outputs on d features."""

    def prepare(n: int) -> Task:
        X, Y = normal(n // p if isinstance(getattr(model, "kernel", None), CurlFree) else n, d, p)
        OperatorRidge(Gaussian(1.0)).fit(X[:40], Y[:40])  # libraries load what they need
        return lambda: model.fit(X, Y[:, 0] if p == 1 else Y)

    return prepare


def gram(n: int) -> Task:
    """The Gram matrix of 50 features."""
    X, _ = normal(n, 50)
    Gaussian(10.0)(X[:50])
    return lambda: Gaussian(10.0)(X)


def predictions(n: int) -> Task:
    """Probabilities of 100 n points by a classifier of n anchors."""
    X, Y = normal(n, 24)
    model = EmbeddingClassifier(Gaussian(5.0), alpha=1e-3, calibration=None).fit(X, Y[:, 0] > 0)
    many, _ = normal(100 * n, 24)
    return lambda: model.predict_proba(many)


def million(n: int) -> Task:
    """Fit and prediction with alpha chosen on 1,000 landmarks."""
    X, y = normal(n, 20)
    model = OperatorRidge(Gaussian(5.0), approximation=Nystroem(1000), random_state=0)
    return lambda: model.fit(X, y[:, 0]).predict(X)


def autoencoder() -> KernelAutoencoder:
    """Batches of 2,000, 500 landmarks, numbers given."""
    return KernelAutoencoder(10, alpha=1e-4, encoder_alpha=1e-4, batch_size=2000, max_iter=20, random_state=0)


def structured() -> StructuredPredictor:
    """400 landmarks on both sides, numbers given."""
    landmarks = Nystroem(400)
    return StructuredPredictor(Gaussian(5.0), Gaussian(2.0), ConditionalCovariance(1e-2), 1e-4, approximation=landmarks)


LEVELS = ([10, 10], ["rbf", Gaussian(1.0)])
CASES: dict[str, Case] = {
    "Gaussian k(X)": Case(5000, gram, goal=1.2),
    "OperatorRidge, alpha given": Case(N, fits(OperatorRidge(Gaussian(1.0), alpha=0.1))),
    "OperatorRidge, alpha chosen": Case(N, fits(OperatorRidge(Gaussian(1.0)))),
    "OperatorRidge, lengthscale and alpha learned": Case(N, fits(OperatorRidge(Gaussian("auto"), max_iter=2))),
    "OperatorRidge, dense operator, alpha given": Case(
        N, fits(OperatorRidge(Gaussian(1.0), Dense(np.eye(3) + 1.0), alpha=0.1))
    ),
    "OperatorRidge, curl-free field (n·3 coefficients), alpha given": Case(
        N, fits(OperatorRidge(CurlFree(1.0), alpha=0.1))
    ),
    "OperatorRidge, curl-free field, alpha chosen": Case(N, fits(OperatorRidge(CurlFree(1.0)))),
    "OperatorRidge, curl-free field, lengthscale learned": Case(N, fits(OperatorRidge(CurlFree("auto"), max_iter=2))),
    "OperatorRidge, Nystroem(100), alpha chosen": Case(
        N, fits(OperatorRidge(Gaussian(1.0), approximation=Nystroem(100), random_state=0))
    ),
    "DeepKernelPCA, two RBF levels, s = (10, 10)": Case(N, fits(DeepKernelPCA(*LEVELS)), goal=4.0),
    "DeepKernelPCA, small bandwidth": Case(
        N, fits(DeepKernelPCA([10, 10], ["rbf", Gaussian(0.1)], max_iter=2)), goal=4.0
    ),
    # Bounded memory: less than the Gram matrix itself, or than the array of all kernel values.
    "DeepKernelRegressor, Nystroem(500)": Case(
        10_000,
        fits(DeepKernelRegressor([2], approximation=Nystroem(500), max_iter=5, random_state=0), p=1),
        goal=1.0,
    ),
    "KernelAutoencoder, batches of 2,000": Case(20_000, fits(autoencoder(), d=100), goal=1.0),
    "StructuredPredictor, Nystroem(400), conditional covariance": Case(20_000, fits(structured()), goal=1.0),
    "EmbeddingClassifier, predict_proba of 100 n points": Case(1000, predictions, GIGABYTES, 0.8),
    "OperatorRidge, Nystroem(1,000), fit + predict, data and libraries included": Case(
        1_000_000, million, GIGABYTES, 1.5, whole=True
    ),
}


def peak_so_far() -> int:
    """Of this process, in kB. The peak that ``getrusage`` tells is at least that of the process that started it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def peak(case: Case) -> float:
    """What the task of this process adds to its peak, or its whole peak."""
    n = scaled(case.n, 300)
    task = case.prepare(n)
    before = 0 if case.whole else peak_so_far()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations are enough for the peak
        task()
    found = (peak_so_far() - before) * 1024
    return found / (8 * n * n) if case.unit == SQUARES else found / 1e9


def row(name: str) -> Row:
    """Measured by another process; by this one where goals do not count, because a start takes seconds."""
    case = CASES[name]
    if scale() != 1:
        return Row(name, f"n = {scaled(case.n, 300):,}", peak(case), goal=case.goal, unit=case.unit)
    command = [sys.executable, "-m", "benchmarks.peak_memory", name]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return Row(name, f"n = {case.n:,}", float(done.stdout), goal=case.goal, unit=case.unit)


if __name__ == "__main__":
    print(peak(CASES[sys.argv[1]]))
