"""``python -m benchmarks.frames``: raw frames, as a file holds them, against peers that need encoders.

21 tables with numbers, words and gaps are given to ``OperatorRidge()`` and ``EmbeddingClassifier()`` as they are. The
peers get what they need: ordinal codes and medians for a forest, native categories and gaps for boosted trees, one-hot
columns for a Gaussian process, skrub's ``tabular_pipeline`` where it is installed. What is measured goes to a file,
from which the same command continues.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from representer import EmbeddingClassifier, OperatorRidge
from representer.cli import console_for, print_json
from representer.datasets.files import data_folder, writable_folder
from runs.long_runs import write_json
from runs.terminal import command, interrupted

ROWS, FOLDS, FEWEST = 400, 5, 8
CLASSES = ("breast-cancer", "hypothyroid", "labor", "soybean", "vote")
NUMBERS = (
    *("autoMpg", "autoPrice", "baskball", "bodyfat", "breastTumor", "cloud", "cpu", "echoMonths", "fishcatch"),
    *("lowbwt", "meta", "pharynx", "pwLinear", "quake", "sensory", "servo"),
)


def read(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """At most ``ROWS`` random rows of a table, and its last column; classes of few samples are left out."""
    frame = pd.read_csv(data_folder() / "tables" / f"{name}.csv")
    target = frame.columns[-1]
    frame = frame[frame[target].notna()].sample(frac=1.0, random_state=0)[:ROWS]
    if name in CLASSES:
        frame = frame[frame[target].map(frame[target].value_counts()) >= FEWEST]
    frame = frame.reset_index(drop=True)
    return frame.drop(columns=target), frame[target].to_numpy()


def words_of(frame: pd.DataFrame) -> list[str]:
    """The columns that are not numbers."""
    return [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]


# -- methods ----------------------------------------------------------------------------------------------------------
def ours(frame: pd.DataFrame, classes: bool) -> Any:
    """The learner with its defaults."""
    return EmbeddingClassifier() if classes else OperatorRidge()


def forest(frame: pd.DataFrame, classes: bool) -> Any:
    """500 trees on ordinal codes."""
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
    trees = (RandomForestClassifier if classes else RandomForestRegressor)(500, random_state=0)
    encoder = make_column_transformer((codes, words_of(frame)), remainder="passthrough")
    return make_pipeline(encoder, SimpleImputer(strategy="median"), trees)


def boosting(frame: pd.DataFrame, classes: bool) -> Any:
    """Boosted trees with native categories and gaps, without columns of gaps alone, which they do not take."""
    codes, words = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan), words_of(frame)
    numbers = [name for name in frame if name not in words and frame[name].notna().any()]
    encoder = make_column_transformer((codes, words), ("passthrough", numbers))
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return make_pipeline(encoder, kind(categorical_features=np.arange(len(words_of(frame))), random_state=0))


def gaussian_process(frame: pd.DataFrame, classes: bool) -> Any:
    """A Gaussian process on one-hot columns, with a lengthscale for each column for numbers."""
    words = words_of(frame)
    numbers = [name for name in frame if name not in words]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), one_hot), words),
    )
    width = encoder.fit_transform(frame).shape[1]
    if classes:
        return make_pipeline(encoder, GaussianProcessClassifier(ConstantKernel() * RBF(width**0.5), random_state=0))
    kernel = ConstantKernel() * RBF(np.full(width, width**0.5)) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    return TransformedTargetRegressor(make_pipeline(encoder, process), transformer=StandardScaler())


def skrub_pipeline(frame: pd.DataFrame, classes: bool) -> Any:
    """skrub's pipeline for any table, with boosted trees."""
    from skrub import tabular_pipeline

    return tabular_pipeline("classification" if classes else "regression")


METHODS: dict[str, Callable[[pd.DataFrame, bool], Any]] = {
    "representer": ours,
    "forest of 500": forest,
    "HistGradientBoosting": boosting,
    "Gaussian process": gaussian_process,
    "skrub": skrub_pipeline,
}


# -- measuring --------------------------------------------------------------------------------------------------------
def errors(name: str, method: str, folds: int = FOLDS) -> dict[str, Any]:
    """The error of a method on each fold of a table (RMSE or log loss), and the seconds of all."""
    frame, y = read(name)
    classes, start, scores = name in CLASSES, time.perf_counter(), []
    kind = StratifiedKFold if classes else KFold
    for train, test in kind(folds, shuffle=True, random_state=0).split(frame, y):
        model = METHODS[method](frame.iloc[train], classes).fit(frame.iloc[train], y[train])
        if classes:
            p = np.clip(model.predict_proba(frame.iloc[test]), 1e-6, 1.0)
            scores.append(log_loss(y[test], p / p.sum(1, keepdims=True), labels=model.classes_))
        else:
            scores.append(float(np.sqrt(np.mean((model.predict(frame.iloc[test]) - y[test]) ** 2))))
    return {"errors": scores, "seconds": time.perf_counter() - start}


def summary(results: dict[str, dict[str, Any]]) -> Table:
    """For each method the geometric mean of its error over that of the best *other* one, its rank and its seconds."""
    means = {name: {m: np.mean(own["errors"]) for m, own in methods.items()} for name, methods in results.items()}
    methods = [m for m in METHODS if all(m in own for own in means.values())]
    table = Table("method", "error / best other", "mean rank", "worst", "seconds", title=f"{len(means)} raw tables")
    for method in methods:
        ratios = [own[method] / min(own[m] for m in methods if m != method) for own in means.values()]
        ranks = [1 + sum(own[m] < own[method] for m in methods) for own in means.values()]
        seconds = sum(own[method]["seconds"] for own in results.values())
        values = (np.exp(np.mean(np.log(ratios))), np.mean(ranks), max(ratios), seconds)
        table.add_row(method, *(f"{value:.3f}" for value in values[:1]), *(f"{value:.2f}" for value in values[1:]))
    return table


def measured(path: Path, names: list[str], methods: list[str], folds: int = FOLDS) -> dict[str, dict[str, Any]]:
    """All errors, those in the file included."""
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        for method in methods:
            if method not in results.setdefault(name, {}):
                results[name][method] = errors(name, method, folds)
                write_json(path, results)
                print(f"{name}, {method}: {np.mean(results[name][method]['errors']):.4g}", flush=True)
    return {name: results[name] for name in names}


def main() -> int:
    """Measure what is not measured yet, and print the summary."""
    parser = command("python -m benchmarks.frames", "Raw frames against peers that need encoders.")
    parser.add_argument("--quick", action="store_true", help="three small tables")
    parser.add_argument("--folds", type=int, default=FOLDS, help="folds of each table")
    parser.add_argument("--out", type=Path, default=Path("bench_output/frames.json"), help="where the results are kept")
    options = parser.parse_args()
    console = console_for(options.json_output)
    names = ["servo", "labor", "cloud"] if options.quick else [*NUMBERS, *CLASSES]
    methods = list(METHODS)
    try:
        import skrub  # noqa: F401
    except ModuleNotFoundError:
        methods.remove("skrub")
        console.print("skrub is not installed: pip install 'representer[bench]' has it.", markup=False)
    warnings.simplefilter("ignore")
    path = writable_folder(options.out.parent) / options.out.name
    if options.fresh:
        path.unlink(missing_ok=True)
    try:
        results = measured(path, names, methods, options.folds)
    except KeyboardInterrupt:
        return interrupted(console, f"What was measured is in {path}; the same command continues.")
    if options.json_output:
        print_json(results)
    else:
        console.print(summary(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
