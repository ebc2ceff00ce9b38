"""Does depth ever hurt? ``python -m benchmarks.depth`` compares deep learners with their own shallow form.

Both are untouched but for ``layers=[]``; the folds are the same, so that differences are paired.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.defaults import ROWS, Problem, classifications, regressions, several_outputs
from representer import DeepKernelClassifier, DeepKernelRegressor
from representer.cli import console_for, print_json
from representer.datasets import make_kink
from representer.datasets.files import data_folder, writable_folder
from runs.long_runs import write_json
from runs.terminal import command, interrupted

METHODS: dict[str, dict[str, Callable[[], BaseEstimator]]] = {
    "regression": {
        "shallow": lambda: DeepKernelRegressor([], random_state=0),
        "deep": lambda: DeepKernelRegressor(random_state=0),
    },
    "classification": {
        "shallow": lambda: DeepKernelClassifier([], random_state=0),
        "deep": lambda: DeepKernelClassifier(random_state=0),
    },
}
METHODS["outputs"] = METHODS["regression"]


def kink(noise: float) -> tuple[np.ndarray, np.ndarray]:
    """The function with a kink along a diagonal of Bohn et al., for which a rotation pays."""
    X, y = make_kink(150, noise=noise, random_state=0)
    return X, y


def problems() -> list[Problem]:
    """All tables whose targets are known, and the kink."""
    kinks = [Problem(f"kink_{noise}", partial(kink, noise), "regression") for noise in (0.01, 0.3)]
    outputs = [problem for problem in several_outputs() if problem.kind == "outputs"]
    return [*kinks, *outputs, *regressions(), *classifications()]


def measure(problem: Problem, rows: int) -> dict[str, dict[str, list[float]]]:
    """For each method the error of each fold, the share of wrong labels, and the seconds of the processor."""
    X, y = problem.data(rows)
    results: dict[str, dict[str, list[float]]] = {}
    for train, test in problem.folds(X, y, 0):
        prepare = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        own, new = prepare.fit_transform(X[train]), prepare.transform(X[test])
        for name, method in METHODS[problem.kind].items():
            model, start = method(), time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(own, y[train])  # type: ignore[attr-defined]
            seconds = time.process_time() - start
            result = results.setdefault(name, {"error": [], "wrong": [], "seconds": [], "layers": []})
            result["seconds"].append(seconds)
            result["layers"].append(float(len(model.layers_)))  # type: ignore[attr-defined]
            for measured, value in errors(problem, model, new, y[train], y[test]).items():
                result[measured].append(value)
    return results


def errors(problem: Problem, model: Any, X: np.ndarray, seen: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """RMSE over that of the training mean, the mean over outputs; or log loss and the share of wrong labels."""
    if problem.classes:
        p = np.clip(model.predict_proba(X), 1e-6, 1.0)
        p /= p.sum(1, keepdims=True)
        wrong = float(np.mean(model.classes_[p.argmax(1)] != y))
        return {"error": float(log_loss(y, p, labels=model.classes_)), "wrong": wrong}
    missed, unit = model.predict(X) - y, np.sqrt(np.mean((y - seen.mean(0)) ** 2, 0))
    return {"error": float(np.mean(np.sqrt(np.mean(missed**2, 0)) / unit))}


def summary(result: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Mean errors, the paired difference with its standard error, and how many times longer the deep fit took."""
    shallow, deep = (np.array(result[name]["error"]) for name in ("shallow", "deep"))
    difference = deep - shallow
    seconds = [float(np.mean(result[name]["seconds"])) for name in ("shallow", "deep")]
    return {
        "shallow": float(shallow.mean()),
        "deep": float(deep.mean()),
        "difference": float(difference.mean()),
        "standard error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
        "folds with layers": float(np.sum(result["deep"]["layers"])),
        "seconds": seconds[1],
        "times": seconds[1] / seconds[0],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command("python -m benchmarks.depth", "Compare deep learners with their own shallow form.")
    parser.add_argument("--quick", action="store_true", help="80 rows of one problem of each kind")
    parser.add_argument("--kind", choices=tuple(METHODS), help="one of them")
    parser.add_argument("--names", nargs="*", help="only these problems")
    parser.add_argument("--rows", type=int, default=ROWS, help="at most so many rows of a table")
    parser.add_argument("--out", type=Path, help="where the results are kept; default: in the user's cache")
    options = parser.parse_args(arguments)
    console = console_for(options.json_output)
    out = options.out or data_folder() / "results" / f"depth{'_quick' if options.quick else ''}.json"
    writable_folder(out.parent)
    records: dict[str, Any] = json.loads(out.read_text()) if out.exists() and not options.fresh else {}
    try:
        report = run(records, options, out, console)
    except KeyboardInterrupt:
        return interrupted(console, "The same command continues.")
    if options.json_output:
        print_json(report)
    return 0


def run(records: dict[str, Any], options: Any, out: Path, console: Any) -> dict[str, Any]:
    """Measure what is not measured yet, and show it."""
    report: dict[str, Any] = {}
    for kind in [options.kind] if options.kind else list(METHODS):
        some = [p for p in problems() if p.kind == kind and (not options.names or p.name in options.names)]
        for problem in some[:1] if options.quick else some:
            if problem.name not in records:
                records[problem.name] = measure(problem, 80 if options.quick else options.rows)
                write_json(out, records)
            report[problem.name] = shown = summary(records[problem.name])
            console.print(f"{problem.name}: " + ", ".join(f"{name} {value:.4g}" for name, value in shown.items()))
        own = {p.name: report[p.name] for p in some if p.name in report}
        table = Table("data", *next(iter(own.values())), title=kind)
        for name, row in own.items():
            table.add_row(name, *(f"{value:.3g}" for value in row.values()))
        console.print(table)
    return report


if __name__ == "__main__":
    sys.exit(main())
