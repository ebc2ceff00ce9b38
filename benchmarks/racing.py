"""What racing costs and misses: ``python -m benchmarks.racing``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.bench_objectives import TENSOR_MATERN, two_layers
from representer.kernels import Gaussian
from representer.optimize import OptimizeResult, lbfgs

RESTARTS, SEEDS, ALONE = 64, range(4), 4


def timed(function: Callable[..., OptimizeResult], *args: Any, **options: Any) -> tuple[OptimizeResult, float]:
    began = time.perf_counter()
    return function(*args, **options), time.perf_counter() - began


def main() -> None:
    """64 raced restarts against the same 64 run to their ends, on four problems of two layers.

    The seconds of one run are those of an evaluation in a few runs alone, times the mean number of evaluations.
    """
    table = Table(
        "inner degree",
        "outer kernel",
        "seed",
        "evaluations / one run",
        "seconds / one run",
        "above the best of all",
        "median restart above it",
    )
    for degree in (1, 2):
        for outer in (TENSOR_MATERN, Gaussian(0.5)):
            function, starts = two_layers(degree, outer)
            for seed in SEEDS:
                points = starts(RESTARTS, seed)
                raced, seconds = timed(lbfgs, function, points)
                alone = [timed(lbfgs, function, point) for point in points[:ALONE]]
                pace = sum(s for _, s in alone) / sum(run.n_evaluations for run, _ in alone)
                unraced = lbfgs(function, points, race=False)
                single = unraced.n_evaluations / RESTARTS
                median = float(unraced.values.nanmedian())
                table.add_row(
                    str(degree),
                    repr(outer),
                    str(seed),
                    f"{raced.n_evaluations / single:.1f}",
                    f"{seconds / (pace * single):.1f}",
                    f"{raced.value / unraced.value - 1:.1%}",
                    f"{median / unraced.value - 1:.1%}",
                )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
