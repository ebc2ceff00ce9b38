"""What kernels of graphs, molecules, strings and curves achieve: ``python -m benchmarks.any_data [names …]``.

Graphs and molecules are read from the folder that the environment variable REPRESENTER_DATA names (``mutag.npz``,
``nci1.npz``, ``esol.csv``, ``freesolv.csv``, ``bace.csv``); what is not there is left out. Strings and curves are
those of ``representer.datasets``. Prints the rows of a Markdown table.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import roc_auc_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from representer import Morgan, OperatorRidge
from representer.datasets import load_mutag, load_nci1, make_bumps, make_strings
from representer.kernels import (
    Edit,
    Functional,
    Gaussian,
    GlobalAlignment,
    Mismatch,
    Molecule,
    Signature,
    Spectrum,
    Subsequence,
    WeisfeilerLehman,
)

C = [0.1, 1.0, 10.0, 100.0, 1000.0]
Row = tuple[str, str, str]


# -- classification by a support vector machine ------------------------------------------------------------------------
def accuracies(grams: list[np.ndarray], classes: np.ndarray, *, repeats: int = 1, folds: int = 10) -> np.ndarray:
    """The accuracy in each fold; which Gram matrix and which C, by five folds of the training part."""
    inner = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = []
    for seed in range(repeats):
        for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(classes, classes):
            searches = [
                GridSearchCV(SVC(kernel="precomputed"), {"C": C}, cv=inner).fit(
                    gram[np.ix_(train, train)], classes[train]
                )
                for gram in grams
            ]
            best = int(np.argmax([search.best_score_ for search in searches]))
            scores.append(searches[best].score(grams[best][np.ix_(test, train)], classes[test]))
    return np.array(scores)


def classified(
    data: str, kernels: dict[str, list[Any]], X: Any, classes: np.ndarray, *, repeats: int = 1
) -> Iterator[Row]:
    """A row for each family of kernels."""
    for name, family in kernels.items():
        started = time.perf_counter()
        scores = accuracies([k(X).numpy() for k in family], classes, repeats=repeats)
        seconds = time.perf_counter() - started
        # The spread of means over shuffles where there are several, else that of the folds.
        spread = scores.reshape(repeats, -1).mean(1).std() if repeats > 1 else scores.std()
        yield data, name, f"{scores.mean():.1%} ± {spread:.1%} ({seconds:.0f} s)"


# -- graphs ------------------------------------------------------------------------------------------------------------
WL = {
    f"`WeisfeilerLehman(h, {form!r})`": [WeisfeilerLehman(h, form).normalized() for h in range(1, 6)]
    for form in ("subtree", "assignment")
}


def mutag() -> Iterator[Row]:
    """All 188 graphs, ten folds, five shuffles."""
    found = load_mutag()
    yield from classified("MUTAG, 188 graphs, accuracy", WL, found.data, found.target, repeats=5)


def nci1() -> Iterator[Row]:
    """A thousand of the 4,110 graphs, ten folds; and all of them, ten folds, nothing chosen."""
    graphs, classes = (found := load_nci1()).data, found.target
    some = np.random.default_rng(0).permutation(len(graphs))[:1000]
    yield from classified("NCI1, 1,000 graphs, accuracy", WL, [graphs[i] for i in some], classes[some])
    for name, family in WL.items():
        gram = family[-1](graphs).numpy()
        scores = []
        for train, test in StratifiedKFold(10, shuffle=True, random_state=0).split(classes, classes):
            model = SVC(kernel="precomputed", C=10.0).fit(gram[np.ix_(train, train)], classes[train])
            scores.append(model.score(gram[np.ix_(test, train)], classes[test]))
        data = "NCI1, all 4,110 graphs, h = 5 and C = 10, accuracy"
        yield data, name, f"{np.mean(scores):.1%} ± {np.std(scores):.1%}"


# -- molecules ---------------------------------------------------------------------------------------------------------
def table(name: str, target: str) -> tuple[list[str], np.ndarray]:
    """SMILES and targets of a CSV file."""
    with (Path(os.environ["REPRESENTER_DATA"]) / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["smiles"] for row in rows], np.array([float(row[target]) for row in rows])


def regression(data: str, name: str, target: str) -> Iterator[Row]:
    """Root mean squared errors on ten random fifths."""
    smiles, y = table(name, target)
    X = np.array(smiles, dtype=object)
    prints = Morgan(counts=True).fit_transform(smiles)

    def ridge(**options: Any) -> Any:
        return TransformedTargetRegressor(OperatorRidge(Molecule(**options)), transformer=StandardScaler())

    models: dict[str, tuple[Any, Any]] = {
        "ridge, `Molecule()` (Tanimoto on bits)": (ridge(), X),
        "ridge, `Molecule(counts=True)` (MinMax on counts)": (ridge(counts=True), X),
        "random forest, 300 trees, same counts": (
            RandomForestRegressor(300, max_features=1 / 3, random_state=0),
            prints,
        ),
    }
    splits = list(ShuffleSplit(10, test_size=0.2, random_state=0).split(y))
    yield from scored(f"{data}, {len(y):,} molecules, RMSE", models, y, splits, root_mean_squared_error, "predict")


def bace() -> Iterator[Row]:
    """Areas under the curve on ten random fifths; ridge regression on the classes ±1."""
    smiles, y = table("bace", "Class")
    X = np.array(smiles, dtype=object)
    models: dict[str, tuple[Any, Any]] = {
        "ridge, `Molecule()` (Tanimoto on bits)": (OperatorRidge(Molecule()), X),
        "ridge, `Molecule(counts=True)` (MinMax on counts)": (OperatorRidge(Molecule(counts=True)), X),
        "random forest, 300 trees, same counts": (
            RandomForestClassifier(300, random_state=0),
            Morgan(counts=True).fit_transform(smiles),
        ),
    }
    splits = list(StratifiedShuffleSplit(10, test_size=0.2, random_state=0).split(y, y))
    yield from scored(f"BACE, {len(y):,} molecules, ROC AUC", models, 2 * y - 1, splits, roc_auc_score, "decide")


def scored(
    data: str,
    models: dict[str, tuple[Any, Any]],
    y: np.ndarray,
    splits: list[tuple[np.ndarray, np.ndarray]],
    score: Callable[[np.ndarray, np.ndarray], float],
    output: str,
) -> Iterator[Row]:
    """A row for each model: mean and standard deviation over the splits."""
    for name, (model, X) in models.items():
        started = time.perf_counter()
        values = []
        for train, test in splits:
            model.fit(X[train], y[train])
            classifier = output == "decide" and hasattr(model, "predict_proba")
            found = model.predict_proba(X[test])[:, 1] if classifier else model.predict(X[test])
            values.append(score(y[test], found))
        seconds = time.perf_counter() - started
        yield data, name, f"{np.mean(values):.3f} ± {np.std(values):.3f} ({seconds:.0f} s)"


# -- strings -----------------------------------------------------------------------------------------------------------
def strings() -> Iterator[Row]:
    """400 strings of 60 letters, ten folds."""
    X, classes = make_strings(400, length=60, random_state=0)
    kernels = {
        "`Spectrum(k)`, k = 3 … 6": [Spectrum(k).normalized() for k in range(3, 7)],
        "`Mismatch(k, 1)`, k = 4 … 7": [Mismatch(k, 1, "ACGT").normalized() for k in range(4, 8)],
        "`Subsequence(k, λ)`, k = 4, 5, 6, λ = ¼, ½": [
            Subsequence(k, decay).normalized() for k in (4, 5, 6) for decay in (0.25, 0.5)
        ],
        "`Edit(ℓ)`, ℓ = 3, 10, 30": [Edit(scale) for scale in (3.0, 10.0, 30.0)],
    }
    yield from classified("strings with a hidden motif, accuracy", kernels, X, classes)


# -- curves ------------------------------------------------------------------------------------------------------------
def curves() -> Iterator[Row]:
    """200 curves, ten folds; the last two kernels see the sequence of values only."""
    X, classes = make_bumps(200, random_state=0)
    scales = (0.1, 0.2, 0.4, 0.8)
    families = {
        "`Functional(Gaussian(ℓ))`, integrals over irregular grids": [
            Functional(Gaussian(ℓ), interval=(0.0, 1.0), domain="objects") for ℓ in scales
        ],
    }
    yield from classified("warped bumps, accuracy", families, X, classes)
    families = {
        "`GlobalAlignment(ℓ)`": [GlobalAlignment(ℓ) for ℓ in (0.2, 0.5, 1.0, 2.0)],
        "`Signature(depth)`, depth = 2 … 5": [Signature(d, scale=1.0).normalized() for d in range(2, 6)],
    }
    yield from classified("warped bumps, accuracy", families, [values for _, values in X], classes)


SETS: dict[str, Callable[[], Iterator[Row]]] = {
    "mutag": mutag,
    "nci1": nci1,
    "esol": lambda: regression("ESOL", "esol", "log_solubility"),
    "freesolv": lambda: regression("FreeSolv", "freesolv", "expt"),
    "bace": bace,
    "strings": strings,
    "curves": curves,
}


def main(names: list[str]) -> None:
    """Run the named sets, or all that there are data for."""
    folder = Path(os.environ.get("REPRESENTER_DATA", ""))
    for name in names or list(SETS):
        files = [folder / f"{name}.{ending}" for ending in ("npz", "csv")]
        if name not in ("strings", "curves") and not any(map(Path.is_file, files)):
            print(f"{name}: not in the folder that REPRESENTER_DATA names", file=sys.stderr)
            continue
        for row in SETS[name]():
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
