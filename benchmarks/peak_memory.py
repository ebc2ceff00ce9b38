"""Peak memory of a fit, in n × n matrices of doubles: ``python -m benchmarks.peak_memory``."""

from __future__ import annotations

import resource
import subprocess
import sys
import warnings

import numpy as np
from rich.console import Console
from rich.table import Table

from representer import DeepKernelPCA, OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import Gaussian
from representer.operators import CurlFree, Dense

N = 2400

CASES = {
    "fixed alpha": OperatorRidge(Gaussian(1.0), alpha=0.1),
    "alpha chosen": OperatorRidge(Gaussian(1.0)),
    "lengthscale and alpha learned": OperatorRidge(Gaussian("auto"), max_iter=2),
    "dense operator, fixed alpha": OperatorRidge(Gaussian(1.0), Dense(np.eye(3) + 1.0), alpha=0.1),
    "curl-free field, fixed alpha": OperatorRidge(CurlFree(1.0), alpha=0.1),
    "curl-free field, alpha chosen": OperatorRidge(CurlFree(1.0)),
    "curl-free field, lengthscale learned": OperatorRidge(CurlFree("auto"), max_iter=2),
    "deep kernel PCA, two RBF levels, s = (10, 10)": DeepKernelPCA([10, 10], ["rbf", Gaussian(1.0)]),
    "deep kernel PCA, small bandwidth": DeepKernelPCA([10, 10], ["rbf", Gaussian(0.1)], max_iter=2),
    "Nystroem(100), alpha chosen": OperatorRidge(Gaussian(1.0), approximation=Nystroem(100), random_state=0),
}


def peak(name: str) -> float:
    """What the fit of this process adds to its peak, with N coefficients in all; in units of N² doubles."""
    model = CASES[name]
    n = N // 3 if isinstance(getattr(model, "kernel", None), CurlFree) else N
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
    warnings.simplefilter("ignore")  # two iterations are enough for the peak
    OperatorRidge(Gaussian("auto"), max_iter=2).fit(X[:50], Y[:50])  # libraries load what they need
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.fit(X, Y)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (N * N * 8)


def main() -> None:
    """One process for each case, because a peak cannot be reset."""
    table = Table("fit", "peak (n² doubles)", title=f"n · p = {N:,} for fields, n = {N:,} elsewhere")
    for name in CASES:
        command = [sys.executable, "-m", "benchmarks.peak_memory", name]
        table.add_row(
            name, subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        )
    Console().print(table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"{peak(sys.argv[1]):.2f}")
    else:
        main()
