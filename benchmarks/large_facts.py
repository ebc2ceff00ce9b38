"""What has no ratio: peak memory, accuracy on MNIST, and the cost model. ``python -m benchmarks.large_facts [names]``

``REPRESENTER_BENCH_SCALE=0.1`` runs it on a tenth of the samples; without it, in full.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.bench_large import D, M, accuracy, made, model, one_hot, real_data, scaled, seconds_of_sums
from representer import OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import Gaussian

LANDMARKS = 5000
PROJECTED = 10**8


def peak_memory() -> None:
    """A process of its own, with the data: a peak cannot be reset."""
    n = scaled(1_000_000, 20_000)
    X, y = made(n)
    fitted = model().fit(X, y)
    fitted.predict(X)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"n = {n:,}, d = {D}, m = {M:,}: peak {peak / 1e9:.2f} GB (goal < 1.5), of which data {X.nbytes / 1e9:.2f} GB"
    )


def mnist() -> None:
    """One-hot ridge regression on 5,000 landmarks; lengthscale and alpha are chosen on training data only."""
    data = real_data("mnist")
    if data is None:
        print("MNIST is not at hand (REPRESENTER_DATA).")
        return
    X, labels, new, new_labels = data
    m = min(LANDMARKS, len(X) // 2)
    Y = one_hot(labels) - 0.1
    part = np.random.default_rng(0).permutation(len(X))
    fit, check = part[: min(len(X) * 5 // 6, 12_000)], part[-min(len(X) // 6, 5000) :]
    median = float(Gaussian("median").resolve(X).lengthscale)
    scores = {}
    for factor in (0.35, 0.5, 0.7, 1.0):
        trial = OperatorRidge(
            Gaussian(factor * median), approximation=Nystroem(min(1500, len(fit) // 2)), random_state=0
        )
        scores[factor] = accuracy(trial.fit(X[fit], Y[fit]).predict(X[check]), labels[check])
    best = max(scores, key=scores.__getitem__)
    started = time.perf_counter()
    final = OperatorRidge(Gaussian(best * median), approximation=Nystroem(m), random_state=0).fit(X, Y)
    right = accuracy(final.predict(new), new_labels)
    print(
        f"MNIST, n = {len(X):,}, m = {m:,}: {100 * right:.2f} % right on the test set (goal ≥ 98.3), lengthscale "
        f"{best} medians of {scores}, alpha {final.alpha_:.2g}, {time.perf_counter() - started:.0f} s"
    )


def cost_model() -> None:
    """Bytes and flops of a sample, the rate of this machine, and what follows for many samples: a projection."""
    n = scaled(80_000, 20_000)
    seconds_of_sums(n // 4)
    rate = n / seconds_of_sums(n)
    kernel, solve, product = 2 * D * M + 10 * M, M * M, M * M
    table = Table(title=f"a sample of d = {D} features, m = {M:,} landmarks", title_justify="left")
    for heading in ("read", "kernel", "triangular solve", "symmetric product", "sum", "measured"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{8 * (D + 1)} bytes",
        f"{kernel:,} flops",
        f"{solve:,}",
        f"{product:,}",
        f"{kernel + solve + product:,}",
        f"{rate:,.0f} samples/s with {torch.get_num_threads()} threads",
    )
    console = Console(width=140)
    console.print(table)
    projection = Table(title=f"PROJECTION, not measured: {PROJECTED:,} samples", title_justify="left")
    for heading in ("workers like this one", "sums", "sent (m² doubles a worker)", "read by each"):
        projection.add_column(heading, justify="right")
    for k in (1, 8, 64, 512):
        hours = PROJECTED / rate / k / 3600
        projection.add_row(
            str(k),
            f"{hours:.2f} h",
            f"{8 * M * M / 1e6:.0f} MB",
            f"{8 * (D + 1) * PROJECTED / k / 1e9:.2f} GB",
        )
    console.print(projection)


FACTS = {"memory": peak_memory, "mnist": mnist, "cost": cost_model}


def main() -> None:
    """One process for each fact."""
    for name in sys.argv[1:] or FACTS:
        subprocess.run([sys.executable, "-m", "benchmarks.large_facts", "--run", name], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        FACTS[sys.argv[2]]()
    else:
        main()
