"""``python -m benchmarks.intervals``: how many new targets lie in their intervals, how wide these are, what they cost.

Every table is split at random several times into a small training part and new rows. Beside the intervals of a learner
stand its standard deviations as Gaussian bands, and MAPIE's CV+ around the same model where MAPIE is installed. The
share inside is pooled over splits and tables; the widths are compared after each method's radii have been scaled, on
the new rows themselves, to the coverage that was asked for.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from scipy.special import ndtri
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.defaults import Problem, regressions
from representer import ConditionalMeanEmbedding, DeepKernelRegressor, OperatorRidge
from representer.cli import console_for, print_json
from representer.kernels import Gaussian
from runs.terminal import command, interrupted

METHODS: dict[str, Callable[[], Any]] = {
    "rbf": lambda: OperatorRidge("rbf", fit_intercept=True),
    "auto": lambda: OperatorRidge(Gaussian("auto"), fit_intercept=True),
    "ard": lambda: OperatorRidge(Gaussian("ard"), fit_intercept=True, random_state=0),
    "deep": lambda: DeepKernelRegressor(random_state=0, n_restarts=2, max_iter=50),
    "stack": lambda: OperatorRidge(random_state=0),
    "embedding": lambda: ConditionalMeanEmbedding(random_state=0),
}


def split(problem: Problem, seed: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and new ones, standardised by the first."""
    X, y = problem.read()
    order = np.random.default_rng(seed).permutation(len(X))
    train, new = order[: min(size, len(X) * 2 // 3)], order[min(size, len(X) * 2 // 3) :][:300]
    prepare = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    return prepare.fit_transform(X[train]), y[train].astype(float), prepare.transform(X[new]), y[new].astype(float)


def mapie_intervals(model: Any, X: np.ndarray, y: np.ndarray, new: np.ndarray, coverage: float) -> np.ndarray | None:
    """MAPIE's CV+ intervals around the same model, or None where MAPIE is not installed."""
    try:
        from mapie.regression import CrossConformalRegressor
    except ImportError:
        return None
    peer = CrossConformalRegressor(model, confidence_level=coverage, method="plus", cv=5)
    return peer.fit_conformalize(X, y).predict_interval(new)[1][:, :, 0]


def measure(
    problem: Problem, name: str, coverage: float, splits: int, size: int, *, alone: bool = False
) -> dict[str, Any]:
    """Shares of new targets inside, mean widths at equal coverage in deviations of y, and seconds; of each method."""
    inside: dict[str, list[float]] = {}
    width: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    counts = []
    for seed in range(splits):
        X, y, new, targets = split(problem, seed, size)
        counts.append(len(targets))
        model, start = METHODS[name](), time.perf_counter()
        model.fit(X, y)
        fitted = time.perf_counter()
        found = {"ours": model.predict_interval(new, coverage)}
        asked = time.perf_counter()
        found["bands"] = bands(model, new, coverage)
        before = time.perf_counter()
        peer = None if alone else mapie_intervals(METHODS[name](), X, y, new, coverage)
        if peer is not None:
            found["MAPIE"] = peer
            seconds.setdefault("MAPIE", []).append(time.perf_counter() - before)
        seconds.setdefault("fit", []).append(fitted - start)
        seconds.setdefault("ours", []).append(asked - fitted)
        for method, ends in found.items():
            inside.setdefault(method, []).append(float(np.mean((ends[:, 0] <= targets) & (targets <= ends[:, 1]))))
            width.setdefault(method, []).append(scaled_width(ends, targets, coverage) / y.std())
    return {"inside": inside, "width": width, "seconds": seconds, "new": counts}


def bands(model: Any, new: np.ndarray, coverage: float) -> np.ndarray:
    """Gaussian bands of the standard deviations, or between quantiles of whole distributions."""
    if isinstance(model, ConditionalMeanEmbedding):
        return model.quantile(new, [0.5 - coverage / 2, 0.5 + coverage / 2])
    mean, std = model.predict(new, return_std=True)
    radius = float(ndtri(0.5 + coverage / 2)) * std
    return np.stack([mean - radius, mean + radius], 1)


def scaled_width(ends: np.ndarray, targets: np.ndarray, coverage: float) -> float:
    """The mean width of intervals that are scaled about their middles until they contain the share asked for."""
    middle, radius = ends.mean(1), np.diff(ends)[:, 0] / 2
    factor = np.quantile(np.abs(targets - middle) / np.maximum(radius, 1e-300), coverage)
    return float(2 * factor * radius.mean())


def times(n: int = 200, refits: int = 20) -> dict[str, float]:
    """Seconds of a fit that learns a lengthscale, of 300 intervals, of jackknife+ by refits, and of five folds.

    Of the n refits, which take about as long as each other, so many are made.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n + 300, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n + 300)

    def seconds(rows: np.ndarray) -> tuple[float, Any]:
        start = time.perf_counter()
        model = METHODS["auto"]().fit(X[rows], y[rows])
        return time.perf_counter() - start, model

    everything = np.arange(n)
    seconds(everything)  # what is done once is not counted
    fit, model = seconds(everything)
    start = time.perf_counter()
    model.predict_interval(X[n:])
    asked = time.perf_counter() - start
    one = np.mean([seconds(np.delete(everything, i))[0] for i in range(refits)])
    folds = sum(seconds(everything[everything % 5 != k])[0] for k in range(5))
    return {"fit": fit, "intervals": asked, "refits": n * float(one), "five folds": folds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command("python -m benchmarks.intervals", "Measure the coverage of intervals on small tables.")
    parser.add_argument("--quick", action="store_true", help="two splits of three tables")
    parser.add_argument("--methods", nargs="*", default=["rbf", "auto", "ard"], choices=list(METHODS))
    parser.add_argument("--tables", nargs="*", help="the names of some tables")
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--size", type=int, default=100, help="training rows")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--times", action="store_true", help="seconds of intervals, of refits and of folds instead")
    parser.add_argument("--alone", action="store_true", help="without MAPIE")
    options = parser.parse_args(arguments)
    console, report = console_for(options.json_output), {}
    problems = [p for p in regressions() if not options.tables or p.name in options.tables]
    problems = problems[: 3 if options.quick else None]
    splits = 2 if options.quick else options.splits
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if options.times:
                report["times"] = times()
                console.print(report["times"])
            for name in [] if options.times else options.methods:
                asked = (name, options.coverage, splits, options.size)
                results = {p.name: measure(p, *asked, alone=options.alone) for p in problems}
                report[name] = results
                console.print(table_of(name, results, options.coverage))
    except KeyboardInterrupt:
        return interrupted(console, "What was measured is above.")
    if options.json_output:
        print_json(report)
    return 0


def table_of(name: str, results: dict[str, Any], coverage: float) -> Table:
    """One row a table, the last of all of them."""
    first = next(iter(results.values()))
    methods = list(first["inside"])
    columns = [f"{what} {method}" for what in ("inside", "width") for method in methods]
    table = Table("table", *columns, "± inside", *(f"s {what}" for what in first["seconds"]), title=name)
    for problem, result in results.items():
        error = np.std(result["inside"]["ours"]) / np.sqrt(len(result["new"]))
        values = [np.mean(result[what][method]) for what in ("inside", "width") for method in methods]
        times = [np.mean(values) for values in result["seconds"].values()]
        table.add_row(problem, *(f"{v:.3f}" for v in [*values, error, *times]))
    pooled = [
        np.average(
            np.concatenate([r["inside"][m] for r in results.values()]),
            weights=np.concatenate([r["new"] for r in results.values()]),
        )
        for m in methods
    ]
    ratios = [
        float(np.exp(np.mean([np.log(np.mean(r["width"][m]) / np.mean(r["width"]["ours"])) for r in results.values()])))
        for m in methods
    ]
    table.add_row("all", *(f"{v:.3f}" for v in [*pooled, *ratios]), "", *[""] * len(first["seconds"]))
    return table


if __name__ == "__main__":
    sys.exit(main())
