"""What racing costs and misses, in evaluations: ``python -m benchmarks.racing``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.bench_objectives import TENSOR_MATERN, two_layers
from representer.kernels import Gaussian
from representer.optimize import lbfgs

RESTARTS, SEEDS = 64, range(4)


def main() -> None:
    """64 raced restarts against the same 64 run to their ends, on four problems of two layers."""
    table = Table(
        "inner degree",
        "outer kernel",
        "seed",
        "evaluations / one run",
        "above the best of all",
        "median restart above it",
    )
    for degree in (1, 2):
        for outer in (TENSOR_MATERN, Gaussian(0.5)):
            function, starts = two_layers(degree, outer)
            for seed in SEEDS:
                raced = lbfgs(function, starts(RESTARTS, seed))
                unraced = lbfgs(function, starts(RESTARTS, seed), race=False)
                single = unraced.n_evaluations / RESTARTS
                excess, median = (
                    value / unraced.value - 1 for value in (raced.value, float(unraced.values.nanmedian()))
                )
                table.add_row(
                    str(degree),
                    repr(outer),
                    str(seed),
                    f"{raced.n_evaluations / single:.1f}",
                    f"{excess:.1%}",
                    f"{median:.1%}",
                )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
