"""``python -m benchmarks.defaults``: defaults that nobody tuned against tuned peers, on small public tables.

The tables are halved at random: members, shrinkage and weights of the defaults are settled on one half and confirmed on
the other. Every table is cut to a few hundred rows, standardised in a pipeline and split into five folds, the same for
all methods. What is measured goes to a file, from which the same command continues.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from scipy.stats import t
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from representer import DeepKernelClassifier, DeepKernelRegressor, EmbeddingClassifier, OperatorRidge
from representer.cli import console_for, print_json
from representer.datasets.files import data_folder, writable_folder
from representer.estimators import GaussianProcessKernel
from representer.estimators.fingerprints import Morgan
from representer.kernels import MinMax, Tanimoto
from runs.long_runs import write_json
from runs.terminal import command, interrupted

SEED = 23  # of the halves
ROWS = 400  # of a table
FOLDS = 5
LEVELS = 12  # a column of words with more of them names its rows, and is left out
FEWEST = 8  # samples of a class
HALVED = ("regression", "classification")  # what members and weights were settled on, and confirmed


# -- tables -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Problem:
    """A table: its name, and what reads it."""

    name: str
    read: Callable[[], tuple[np.ndarray, np.ndarray]]
    kind: str  # "regression", "classification", "outputs", "gaps", "molecules" or "molecules, classes"

    @property
    def classes(self) -> bool:
        """Are classes predicted?"""
        return self.kind.endswith(("classification", "classes"))

    @property
    def vectors(self) -> bool:
        """Are there columns of numbers?"""
        return not self.kind.startswith("molecules")

    def data(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """At most so many random rows."""
        X, y = self.read()
        if self.classes:
            y = np.unique(y.astype(str), return_inverse=True)[1]
        order = np.random.default_rng(0).permutation(len(X))[:rows]
        X, y = X[order], y[order]
        if self.classes:
            many = np.bincount(y)[y] >= FEWEST
            X, y = X[many], np.unique(y[many], return_inverse=True)[1]
        return X, y

    def folds(self, X: np.ndarray, y: np.ndarray, repeat: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The folds of one of the repeats."""
        kind = StratifiedKFold if self.classes else KFold
        return list(kind(FOLDS, shuffle=True, random_state=repeat).split(X, y))


def read_table(file: str, target: str, *, without: tuple[str, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as they are, words as columns of zeros and ones, gaps as NaN."""
    table = pd.read_csv(data_folder() / file)
    table = table[table[target].notna()]
    y = table.pop(target).to_numpy()
    table = table.drop(columns=[*without, *(name for name in ("sequence",) if name in table)])
    words = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    table = table.drop(columns=[name for name in words if table[name].nunique() > LEVELS])
    return pd.get_dummies(table, dtype=float).to_numpy(np.float64), y


def read_scikit(load: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    """A set of scikit-learn."""
    X, y = load(return_X_y=True)
    return X, y


def regressions() -> list[Problem]:
    """All tables with numbers to predict."""
    small = ["autoMpg", "autoPrice", "bodyfat", "breastTumor", "cpu", "echoMonths", "fishcatch", "lowbwt", "pharynx"]
    files = {name: (f"tables/{name}.csv", "class") for name in [*small, "meta", "pwLinear", "servo"]}
    files |= {
        "baskball": ("tables/baskball.csv", "points_per_minute"),
        "cloud": ("tables/cloud.csv", "TE"),
        "quake": ("tables/quake.csv", "richter"),
        "sensory": ("tables/sensory.csv", "score"),
        "yacht": ("yacht.csv", "resistance"),
        "cholesterol": ("cleveland_heart.csv", "chol"),
    }
    problems = [Problem(name, partial(read_table, *place), "regression") for name, place in files.items()]
    without = ("esol_predicted_log_sol", "name", "smiles")
    problems.append(Problem("esol", partial(read_table, "esol.csv", "log_solubility", without=without), "regression"))
    problems.append(Problem("diabetes", partial(read_scikit, load_diabetes), "regression"))
    return sorted(problems, key=lambda problem: problem.name)


def classifications() -> list[Problem]:
    """All tables with classes to predict."""
    names = ["banknote", "ecoli", "ionosphere", "pima", "segment", "wine", "yeast"]
    files = {name: (f"{name}.csv", "class") for name in names}
    files |= {
        "robot": ("wall_robot_24.csv", "class"),
        "heart": ("cleveland_heart.csv", "num"),
        "bupa": ("bupa_liver.csv", "selector"),
        "breast-cancer": ("tables/breast-cancer.csv", "Class"),
        "soybean": ("tables/soybean.csv", "class"),
        "vote": ("tables/vote.csv", "Class"),
    }
    problems = [Problem(name, partial(read_table, *place), "classification") for name, place in files.items()]
    loads = {"digits": load_digits, "iris": load_iris, "wdbc": load_breast_cancer}
    problems += [Problem(name, partial(read_scikit, load), "classification") for name, load in loads.items()]
    return sorted(problems, key=lambda problem: problem.name)


def read_outputs(file: str, targets: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """A table of numbers with several columns to predict."""
    table = pd.read_csv(data_folder() / file)
    return table.drop(columns=targets).to_numpy(np.float64), table[targets].to_numpy(np.float64)


def several_outputs() -> list[Problem]:
    """The tables with several numbers to predict, and two that are made of others: correlated columns, and gaps."""
    targets = {"several_enb": ["Y1", "Y2"], "several_jura": ["Cd", "Co", "Cu"]}
    places = {name: (f"tables/{name}.csv", own) for name, own in targets.items()}
    places["wine_columns"] = ("wine.csv", ["total_phenols", "flavanoids", "od280_od315"])
    places["jura_gaps"] = places["several_jura"]
    kinds = {name: "gaps" if name == "jura_gaps" else "outputs" for name in places}
    return [Problem(name, partial(read_outputs, *place), kinds[name]) for name, place in places.items()]


def with_gaps(Y: np.ndarray) -> np.ndarray:
    """Three of ten targets are not known, at random; of each sample one is."""
    rng = np.random.default_rng(0)
    missing = rng.random(Y.shape) < 0.3
    missing[np.arange(len(Y)), rng.integers(0, Y.shape[1], len(Y))] = False
    return np.where(missing, np.nan, Y)


# -- molecules --------------------------------------------------------------------------------------------------------
def read_molecules(file: str, target: str) -> tuple[np.ndarray, np.ndarray]:
    """SMILES strings, and what is measured of the molecules."""
    table = pd.read_csv(data_folder() / file)
    return table["smiles"].to_numpy(object), table[target].to_numpy()


def molecules() -> list[Problem]:
    """The sets of molecules with numbers to predict, and one with classes."""
    numbers = {"esol": ("esol.csv", "log_solubility"), "freesolv": ("freesolv.csv", "expt")}
    problems = [Problem(f"{n} (SMILES)", partial(read_molecules, *p), "molecules") for n, p in numbers.items()]
    classes = Problem("bace (SMILES)", partial(read_molecules, "bace.csv", "Class"), "molecules, classes")
    return [*problems, classes]


def halves(problems: list[Problem]) -> dict[str, list[Problem]]:
    """The tables, halved at random."""
    order = np.random.default_rng(SEED).permutation(len(problems))
    cut = len(problems) // 2
    return {
        "settling": [problems[i] for i in sorted(order[:cut])],
        "confirmation": [problems[i] for i in sorted(order[cut:])],
    }


# -- methods ----------------------------------------------------------------------------------------------------------
def gaussian_process(d: int) -> BaseEstimator:
    """Scikit-learn's process with a lengthscale for each feature, by marginal likelihood."""
    return GaussianProcessRegressor(ConstantKernel() * RBF(np.ones(d)) + WhiteKernel(), normalize_y=True)


def tuned_svr(d: int) -> BaseEstimator:
    """An ε-insensitive regression with C, gamma and ε by cross-validation."""
    grid = {"C": [0.1, 1, 10, 100, 1000], "gamma": list(np.array([0.01, 0.1, 1.0]) / d), "epsilon": [0.01, 0.1]}
    return TransformedTargetRegressor(GridSearchCV(SVR(), grid, cv=5), transformer=StandardScaler())


def tuned_svc(d: int) -> BaseEstimator:
    """A support vector classifier with C and gamma by cross-validation, and Platt's probabilities."""
    grid = {"C": [0.1, 1, 10, 100, 1000], "gamma": list(np.array([0.03, 0.1, 0.3, 1.0, 3.0]) / d)}
    search = GridSearchCV(SVC(), grid, cv=StratifiedKFold(5, shuffle=True, random_state=0))
    return CalibratedClassifierCV(search, cv=StratifiedKFold(3, shuffle=True, random_state=0), ensemble=False)


def light_boosting(d: int) -> BaseEstimator:
    """LightGBM's trees, with its defaults."""
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=0, n_jobs=1, verbose=-1)


def ordered_boosting(d: int) -> BaseEstimator:
    """CatBoost's trees, with its defaults."""
    from catboost import CatBoostRegressor

    return CatBoostRegressor(random_seed=0, thread_count=1, verbose=False, allow_writing_files=False)


def light_classes(d: int) -> BaseEstimator:
    """LightGBM's trees for classes, with its defaults."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=0, n_jobs=1, verbose=-1)


def ordered_classes(d: int) -> BaseEstimator:
    """CatBoost's trees for classes, with its defaults."""
    from catboost import CatBoostClassifier

    return CatBoostClassifier(random_seed=0, thread_count=1, verbose=False, allow_writing_files=False)


def tanimoto_process(*, counts: bool = False) -> BaseEstimator:
    """A Gaussian process on fingerprints, whose amplitude and noise are learned by marginal likelihood."""
    kernel = GaussianProcessKernel(MinMax() if counts else Tanimoto())
    return GaussianProcessRegressor(ConstantKernel() * kernel + WhiteKernel(), normalize_y=True)


class EachOutput(BaseEstimator):
    """A regression for each output, fitted to the samples of which it is known."""

    def __init__(self, estimator: BaseEstimator):
        self.estimator = estimator

    def fit(self, X: np.ndarray, Y: np.ndarray) -> EachOutput:
        """Fit to all outputs."""
        known = [~np.isnan(column) for column in Y.T]
        self.models_ = [clone(self.estimator).fit(X[k], y[k]) for k, y in zip(known, Y.T, strict=True)]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predict all outputs."""
        return np.column_stack([model.predict(X) for model in self.models_])


PEERS: dict[str, dict[str, Callable[[int], BaseEstimator]]] = {
    "regression": {
        "GP ARD": gaussian_process,
        "SVR": tuned_svr,
        "forest": lambda d: RandomForestRegressor(500, random_state=0),
        "boosting": lambda d: HistGradientBoostingRegressor(random_state=0),
        "LightGBM": light_boosting,
        "CatBoost": ordered_boosting,
    },
    "outputs": {
        "ridge": lambda d: RidgeCV(np.logspace(-3, 3, 13)),
        "forest": lambda d: RandomForestRegressor(500, random_state=0),
    },
    "gaps": {
        "ridge": lambda d: EachOutput(RidgeCV(np.logspace(-3, 3, 13))),
        "forest": lambda d: EachOutput(RandomForestRegressor(500, random_state=0)),
    },
    "molecules": {
        "forest": lambda d: make_pipeline(Morgan(counts=True), RandomForestRegressor(500, random_state=0)),
        "GP Tanimoto": lambda d: make_pipeline(Morgan(), tanimoto_process()),
        "GP MinMax": lambda d: make_pipeline(Morgan(counts=True), tanimoto_process(counts=True)),
    },
    "molecules, classes": {
        "forest": lambda d: make_pipeline(Morgan(counts=True), RandomForestClassifier(500, random_state=0)),
        "GP Tanimoto": lambda d: make_pipeline(
            Morgan(), GaussianProcessClassifier(ConstantKernel() * GaussianProcessKernel(Tanimoto()))
        ),
    },
    "classification": {
        "logistic": lambda d: LogisticRegressionCV(Cs=10, max_iter=2000, scoring="neg_log_loss"),
        "SVC": tuned_svc,
        "forest": lambda d: RandomForestClassifier(500, random_state=0),
        "boosting": lambda d: HistGradientBoostingClassifier(random_state=0),
        "LightGBM": light_classes,
        "CatBoost": ordered_classes,
    },
}
REGRESSORS: dict[str, Callable[[int], BaseEstimator]] = {
    "rbf": lambda d: OperatorRidge("rbf", fit_intercept=False),
    "auto": lambda d: OperatorRidge(),
}
OURS: dict[str, dict[str, Callable[[int], BaseEstimator]]] = {
    "regression": REGRESSORS,
    "outputs": {**REGRESSORS, "each": lambda d: EachOutput(OperatorRidge())},
    "gaps": {**REGRESSORS, "each": lambda d: EachOutput(OperatorRidge())},
    "molecules": {"auto": lambda d: OperatorRidge("molecules")},
    "molecules, classes": {"auto": lambda d: EmbeddingClassifier("molecules")},
    "classification": {"rbf": lambda d: EmbeddingClassifier("rbf"), "auto": lambda d: EmbeddingClassifier()},
}


# -- measuring --------------------------------------------------------------------------------------------------------
def measure(problem: Problem, method: Callable[[int], BaseEstimator], rows: int, repeat: int) -> dict[str, list[float]]:
    """The error of each fold and the seconds of its fit: RMSE, of several outputs their mean RMSE over that of the
    training mean, or log loss and the share of wrong labels."""
    X, y = problem.data(rows)
    results: dict[str, list[float]] = {"error": [], "wrong": [], "seconds": []}
    for train, test in problem.folds(X, y, repeat):
        own, new, known = X[train], X[test], with_gaps(y[train]) if problem.kind == "gaps" else y[train]
        if problem.vectors:
            prepare = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
            own, new = prepare.fit_transform(own), prepare.transform(new)
        model, start = method(own.shape[-1]), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(own, known)  # type: ignore[attr-defined]
        results["seconds"].append(time.perf_counter() - start)
        if problem.classes:
            p = np.clip(model.predict_proba(new), 1e-6, 1.0)  # type: ignore[attr-defined]
            p /= p.sum(1, keepdims=True)
            results["error"].append(float(log_loss(y[test], p, labels=model.classes_)))  # type: ignore[attr-defined]
            results["wrong"].append(float(np.mean(model.classes_[p.argmax(1)] != y[test])))  # type: ignore[attr-defined]
        else:
            missed = model.predict(new) - y[test]  # type: ignore[attr-defined]
            unit = np.sqrt(np.mean((y[test] - y[train].mean(0)) ** 2, 0)) if y.ndim == 2 else 1.0
            results["error"].append(float(np.mean(np.sqrt(np.mean(missed**2, 0)) / unit)))
    return results


def key_of(problem: Problem, method: str, repeat: int) -> str:
    """Where the results of a method on a table are kept, for one of the repeats."""
    return f"{problem.name}/{method}" + (f"/{repeat}" if repeat else "")


def summary(
    records: dict[str, Any], problems: list[Problem], methods: list[str], measured: str, repeats: int
) -> dict[str, Any]:
    """The geometric mean of the ratio to the best peer of each table, its worst, and the mean rank, of each method.

    The interval of 95 % around the geometric mean is that of Student's t over the tables.
    """
    kind = problems[0].kind
    cells = [[[records[key_of(p, m, r)][measured] for r in range(repeats)] for m in methods] for p in problems]
    errors = np.array([[np.mean(np.concatenate(cell)) for cell in row] for row in cells])
    errors = np.maximum(errors, 1e-3 if measured == "wrong" else 0.0)
    best = errors[:, [methods.index(m) for m in PEERS[kind]]].min(1)
    ratios = errors / best[:, None]
    ranks = pd.DataFrame(errors).rank(axis=1).to_numpy()
    logs, n = np.log(ratios), len(problems)
    margins = t.ppf(0.975, n - 1) * logs.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(methods), np.nan)
    return {
        method: {
            "ratio": float(np.exp(logs[:, i].mean())),
            "from": float(np.exp(logs[:, i].mean() - margins[i])),
            "to": float(np.exp(logs[:, i].mean() + margins[i])),
            "worst": float(ratios[:, i].max()),
            "rank": float(ranks[:, i].mean()),
        }
        for i, method in enumerate(methods)
    }


def processor_seconds(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """How long a whole fit takes."""
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def times(sizes: tuple[int, ...]) -> Table:
    """Whole fits to ten made features, beside a Gaussian process, a tuned SVC and the shallow form of deep learners."""
    table = Table("n", "fit", "seconds", "beside", "seconds", "ratio")
    for n in sizes:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 10))
        f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.abs(X[:, 3])
        y, labels = f + 0.3 * rng.normal(size=n), (f + 0.3 * rng.normal(size=n) > 0).astype(int) + (f > 1)
        pairs = [
            ("OperatorRidge()", OperatorRidge(), "GP ARD", gaussian_process(10), y),
            ("EmbeddingClassifier()", EmbeddingClassifier(), "SVC, tuned", tuned_svc(10), labels),
            ("DeepKernelRegressor()", DeepKernelRegressor(), "layers=[]", DeepKernelRegressor(layers=[]), y),
            ("DeepKernelClassifier()", DeepKernelClassifier(), "layers=[]", DeepKernelClassifier(layers=[]), labels),
        ]
        for name, ours, beside, other, target in pairs:
            own, theirs = processor_seconds(ours, X, target), processor_seconds(other, X, target)
            table.add_row(str(n), name, f"{own:.2f}", beside, f"{theirs:.2f}", f"{own / theirs:.2f}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command("python -m benchmarks.defaults", "Compare defaults that nobody tuned with tuned peers.")
    parser.add_argument("--quick", action="store_true", help="120 rows of three tables of each kind")
    parser.add_argument("--kind", choices=tuple(PEERS), help="one of them")
    parser.add_argument("--half", choices=("settling", "confirmation"), help="one of them")
    parser.add_argument("--methods", nargs="*", help="only these")
    parser.add_argument("--repeats", type=int, default=1, help="how often rows are split into five folds; default: 1")
    parser.add_argument("--times", nargs="*", type=int, metavar="N", help="only seconds of fits to so many samples")
    parser.add_argument("--out", type=Path, help="where the results are kept; default: in the user's cache")
    options = parser.parse_args(arguments)
    console = console_for(options.json_output)
    if options.times is not None:
        console.print(times(tuple(options.times) or (200, 500)))
        return 0
    out = options.out or data_folder() / "results" / f"defaults{'_quick' if options.quick else ''}.json"
    writable_folder(out.parent)
    records: dict[str, Any] = json.loads(out.read_text()) if out.exists() and not options.fresh else {}
    report: dict[str, Any] = {}
    try:
        everything = [*regressions(), *classifications(), *several_outputs(), *molecules()]
        for kind in PEERS:
            if options.kind in (None, kind):
                problems = [problem for problem in everything if problem.kind == kind]
                run(problems, records, report, options, out, console)
    except KeyboardInterrupt:
        return interrupted(console, "The same command continues.")
    if options.json_output:
        print_json(report)
    return 0


def run(
    problems: list[Problem],
    records: dict[str, Any],
    report: dict[str, Any],
    options: Any,
    out: Path,
    console: Any,
) -> None:
    """Measure what is not measured yet, and show both halves."""
    rows = 120 if options.quick else ROWS
    kind = problems[0].kind
    methods = {**PEERS[kind], **OURS[kind]}
    methods = {name: method for name, method in methods.items() if not options.methods or name in options.methods}
    for half, some in (halves(problems) if kind in HALVED else {"all": problems}).items():
        if options.half not in (None, half) and kind in HALVED:
            continue
        some = some[:3] if options.quick else some
        for problem in some:
            for name, method in methods.items():
                for repeat in range(options.repeats):
                    key = key_of(problem, name, repeat)
                    if key not in records:
                        result = measure(problem, method, rows, repeat)
                        if out.exists():  # another run of this command may have added to it
                            records.update(json.loads(out.read_text()))
                        records[key] = result
                        write_json(out, records)
                        console.print(f"{key}: {np.mean(result['error']):.4g} in {np.mean(result['seconds']):.2f} s")
        if not set(PEERS[kind]) <= set(methods):
            continue
        for measured in ("error", "wrong") if problems[0].classes else ("error",):
            shown = summary(records, some, list(methods), measured, options.repeats)
            report[f"{kind}, {half}, {measured}"] = shown
            headings = ("method", "ratio to the best peer", "from", "to", "worst", "mean rank")
            table = Table(*headings, title=f"{kind}, {half}: {measured}")
            for name, row in shown.items():
                table.add_row(name, *(f"{row[column]:.3f}" for column in ("ratio", "from", "to", "worst", "rank")))
            console.print(table)


if __name__ == "__main__":
    sys.exit(main())
