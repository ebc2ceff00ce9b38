"""What a sample costs, the rate of this machine, and a projection to many: ``python -m benchmarks.cost_model``."""

from __future__ import annotations

import time

import torch
from rich.console import Console
from rich.table import Table

from benchmarks._timing import scaled
from benchmarks.bench_large import D, M, made, made_on_workers
from representer.approximation import Nystroem
from representer.kernels import Gaussian
from representer.samples.on_dask import OnDask
from representer.systems.sums import NormalStep

PROJECTED = 10**8


def seconds_of_sums(n: int) -> float:
    """The sums over n samples in memory-sized chunks of one process: the rate of the cost model."""
    X, y = made_on_workers(n, n // 4)
    source = OnDask(X, y, None, dtype=torch.float64)
    features = Nystroem(M).features(Gaussian(5.0), made(M)[0], seed=0)
    started = time.perf_counter()
    source.total(NormalStep(features))
    return time.perf_counter() - started


def main() -> None:
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


if __name__ == "__main__":
    main()
