"""``python -m benchmarks.calibration``: what probabilities of classes are worth, before and after calibration.

Log loss, Brier score and expected calibration error of three learners for new rows of small tables. Before: estimates
of the probabilities, clipped at zero and divided by their sum. After: what ``predict_proba`` gives, far field included.
``StructuredPredictor`` has no probabilities; its estimates of labels are calibrated here, by the samples it left out.
With ``--sets`` how many new classes lie in the sets of ``predict_set(X, 0.9)``, and how many classes these sets have.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from rich.table import Table
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.defaults import Problem, classifications
from representer import DeepKernelClassifier, EmbeddingClassifier, StructuredPredictor
from representer.cli import console_for, print_json
from representer.metrics import brier, expected_calibration_error
from representer.preimage.probabilities import calibrate_embedding, class_estimates, clip_normalized
from runs.terminal import command, interrupted

Answers = dict[str, np.ndarray]


def of_embedding(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> Answers:
    """Those of ``EmbeddingClassifier()``."""
    model = EmbeddingClassifier(random_state=0).fit(X, y)
    return {"before": model.predict_proba(new, kind="clipped"), "after": model.predict_proba(new)}


def of_deep(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> Answers:
    """Those of ``DeepKernelClassifier()``, which estimates codes −1 and 1 of the classes."""
    model = DeepKernelClassifier(random_state=0).fit(X, y)
    decisions = torch.from_numpy(model.decision_function(new).reshape(len(new), -1))
    return {"before": clip_normalized(class_estimates(decisions).numpy()), "after": model.predict_proba(new)}


def of_structured(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> Answers:
    """Those of ``StructuredPredictor`` with a kernel that only tells labels apart."""
    model = StructuredPredictor("rbf", "delta", random_state=0).fit(X, y)
    classes, estimates = np.unique(y), (model.score_candidates(new, np.unique(y)) + 1.0) / 2.0
    outputs, weights = model.system_.left_out_sample()
    one_hot = torch.from_numpy(np.asarray(outputs).reshape(-1, 1) == classes).double()
    calibrated = calibrate_embedding(weights.double() @ one_hot, one_hot)
    return {"before": clip_normalized(estimates), "after": calibrated(estimates)}


LEARNERS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Answers]] = {
    "EmbeddingClassifier": of_embedding,
    "DeepKernelClassifier": of_deep,
    "StructuredPredictor": of_structured,
}


def split(problem: Problem, seed: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and new ones of the classes of the first, standardised by the first."""
    X, y = problem.read()
    order = np.random.default_rng(seed).permutation(len(X))
    train, new = np.split(order[: min(size, len(X) * 2 // 3) + 300], [min(size, len(X) * 2 // 3)])
    new = new[np.isin(y[new], y[train])]
    prepare = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    return prepare.fit_transform(X[train]), y[train], prepare.transform(X[new]), y[new]


def losses(problem: Problem, name: str, splits: int, size: int) -> dict[str, list[float]]:
    """Log loss, Brier score and calibration error before and after, means of splits into training and new rows."""
    rows: dict[str, list[list[float]]] = {}
    for seed in range(splits):
        X, y, new, labels = split(problem, seed, size)
        classes = np.unique(y)
        for kind, p in LEARNERS[name](X, y, new).items():
            p = np.clip(p, 1e-15, None) / np.clip(p, 1e-15, None).sum(1, keepdims=True)
            loss = float(log_loss(labels, p, labels=classes))
            rest = [brier(labels, p, classes), expected_calibration_error(labels, p, classes)]
            rows.setdefault(kind, []).append([loss, *rest])
    return {kind: np.mean(values, 0).tolist() for kind, values in rows.items()}


def sets(problem: Problem, splits: int, size: int, coverage: float = 0.9) -> dict[str, list[float]]:
    """The share of new classes in their sets, the mean size of a set, and the number of new rows, of all splits."""
    rows = []
    for seed in range(splits):
        X, y, new, labels = split(problem, seed, size)
        model = EmbeddingClassifier("rbf", random_state=0).fit(X, y)
        found = model.predict_set(new, coverage)
        inside = found[np.arange(len(new)), np.searchsorted(model.classes_, labels)]
        rows.append([float(inside.mean()), float(found.sum(1).mean()), float(len(new))])
    return dict(zip(("inside", "size", "new"), np.transpose(rows).tolist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command(
        "python -m benchmarks.calibration", "Measure probabilities of classes before and after calibration."
    )
    parser.add_argument("--quick", action="store_true", help="one split of two tables")
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--size", type=int, default=200, help="training rows of a table")
    parser.add_argument("--sets", action="store_true", help="sets of EmbeddingClassifier('rbf') instead")
    options = parser.parse_args(arguments)
    console, report = console_for(options.json_output), dict[str, Any]()
    problems = classifications()[: 2 if options.quick else None]
    splits = 1 if options.quick else options.splits
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if options.sets:
                report["sets"] = {p.name: sets(p, splits, options.size) for p in problems}
                console.print(table_of_sets(report["sets"]))
            for name in [] if options.sets else options.learners:
                report[name] = {p.name: losses(p, name, splits, options.size) for p in problems}
                console.print(table_of(name, report[name]))
    except KeyboardInterrupt:
        return interrupted(console, "What was measured is above.")
    if options.json_output:
        print_json(report)
    return 0


def table_of(name: str, results: dict[str, dict[str, list[float]]]) -> Table:
    """One row a table, and the means; log loss, Brier score and calibration error of each kind."""
    kinds = list(next(iter(results.values())))
    columns = (f"{kind}: {what}" for what in ("log loss", "Brier", "ECE") for kind in kinds)
    table = Table("table", *columns, title=name)
    everything = {**results, "mean": {k: np.mean([r[k] for r in results.values()], 0).tolist() for k in kinds}}
    for problem, result in everything.items():
        table.add_row(problem, *(f"{result[kind][i]:.3f}" for i in range(3) for kind in kinds))
    return table


def table_of_sets(results: dict[str, dict[str, list[float]]]) -> Table:
    """One row a table, the last pooled over all new rows."""
    table = Table("table", "inside", "classes in a set", title="predict_set(X, 0.9)")
    for problem, result in results.items():
        table.add_row(problem, *(f"{np.mean(result[what]):.3f}" for what in ("inside", "size")))
    new, values = (np.concatenate([r[what] for r in results.values()]) for what in ("new", "inside"))
    table.add_row("all", f"{np.average(values, weights=new):.3f}", "")
    return table


if __name__ == "__main__":
    sys.exit(main())
