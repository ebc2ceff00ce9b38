"""``python -m benchmarks.suspects``: who finds wrong labels.

Five per cent of the labels of a table are flipped, and the first five per cent of the samples that look wrong are read
again: how many of the flipped ones are among them? ``suspects_`` of a classifier is compared with confident learning
(Northcutt, Jiang and Chuang, 2021) on probabilities of five folds, of the same classifier and of a random forest: by
cleanlab where that is installed, and otherwise by its formula.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from representer import EmbeddingClassifier, datasets
from representer.cli import console_for, print_json
from runs.terminal import command, interrupted

SIZE, SHARE, SEEDS = 300, 0.05, 2


def tables() -> dict[str, Any]:
    """The tables by name; those of the data folder where they are at hand."""
    found = {"digits": load_digits, "wine": load_wine}
    names = ("banknote", "segment", "robot", "ionosphere", "pima", "ecoli", "yeast")
    return found | {name: getattr(datasets, f"load_{name}") for name in names}


def confident_order(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The samples in the order of confident learning: those off the diagonal of the confident joint, by their margin.

    A sample counts for class j if its probability of j is at least the mean one of the samples that are labelled j.
    """
    n, classes = len(labels), probabilities.shape[1]
    thresholds = np.array([probabilities[labels == j, j].mean() for j in range(classes)])
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    issue = (confident.max(1) >= 0) & (confident.argmax(1) != labels)
    own = probabilities[np.arange(n), labels]
    others = probabilities.copy()
    others[np.arange(n), labels] = -1.0
    return np.lexsort((own - others.max(1), ~issue))


def confident_learning(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The samples in cleanlab's order: its issues by their normalised margin, and then the others."""
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
    except ModuleNotFoundError:
        return confident_order(labels, probabilities)
    issues = find_label_issues(labels, probabilities, return_indices_ranked_by="normalized_margin", n_jobs=1)
    scores = get_label_quality_scores(labels, probabilities, method="normalized_margin")
    return np.array([*issues, *(i for i in np.argsort(scores) if i not in set(issues))])


def found_shares(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    """The share of flipped labels among the first suspects, by who looks for them; and the accuracy of five folds."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(y))[:SIZE]
    rows = rows[np.isin(y[rows], np.flatnonzero(np.bincount(y[rows]) >= 10))]
    X, labels = X[rows], np.unique(y[rows], return_inverse=True)[1]
    n_classes, k = labels.max() + 1, max(1, round(SHARE * len(labels)))
    wrong, told = rng.permutation(len(labels))[:k], labels.copy()
    told[wrong] = (labels[wrong] + rng.integers(1, n_classes, k)) % n_classes
    folds, model = StratifiedKFold(5, shuffle=True, random_state=seed), EmbeddingClassifier(random_state=0)
    forest = RandomForestClassifier(200, random_state=0)
    own = cross_val_predict(model, X, told, cv=folds, method="predict_proba")
    orders = {
        "suspects_": clone(model).fit(X, told).suspects_,
        "confident learning, same model": confident_learning(told, own),
        "confident learning, forest": confident_learning(
            told, cross_val_predict(forest, X, told, cv=folds, method="predict_proba")
        ),
    }
    shares = {name: float(np.isin(wrong, order[:k]).mean()) for name, order in orders.items()}
    return {"accuracy": float((own.argmax(1) == labels).mean()), **shares}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command("python -m benchmarks.suspects", "Find labels that were flipped.")
    parser.add_argument("names", nargs="*", help="tables, all that are at hand by default")
    parser.add_argument("--quick", action="store_true", help="wine, once")
    options = parser.parse_args(arguments)
    names = ["wine"] if options.quick else options.names
    console, results = console_for(options.json_output), dict[str, dict[str, float]]()
    try:
        for name, load in tables().items():
            if names and name not in names:
                continue
            try:
                results[name] = measured(load(), 1 if options.quick else SEEDS)
            except datasets.MissingDataError:
                continue
            console.print(name, {key: round(value, 2) for key, value in results[name].items()}, style="dim")
    except KeyboardInterrupt:
        return interrupted(console, "What was measured is above.")
    if options.json_output:
        print_json(results)
    else:
        console.print(table_of(results))
    return 0


def measured(data: Any, seeds: int) -> dict[str, float]:
    """The means over some seeds of what is found in a table."""
    X, y = np.asarray(data.data, dtype=float), np.unique(data.target, return_inverse=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = [found_shares(X, y, seed) for seed in range(seeds)]
    return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}


def table_of(results: dict[str, dict[str, float]]) -> Table:
    """One row a table, one column a method."""
    table = Table("wrong labels found", *next(iter(results.values()), {}))
    for name, values in results.items():
        table.add_row(name, *(f"{value:.2f}" for value in values.values()))
    return table


if __name__ == "__main__":
    sys.exit(main())
