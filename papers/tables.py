"""Real tables: deep kernel machines beside tuned scikit-learn models, under one protocol.

Five outer folds, the same for every model; what a model tunes, it tunes on the training folds only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from papers.claims import not_worse
from papers.runner import Experiment, Result, Run
from representer import DeepKernelClassifier, DeepKernelRegressor, Morgan
from representer.datasets import (
    ESOL,
    SEGMENT,
    USPS,
    YACHT,
    Source,
    load_esol,
    load_segment,
    load_usps,
    load_yacht,
)
from representer.estimators import GaussianProcessKernel
from representer.kernels import Tanimoto

RMSE, ERROR = "RMSE", "error rate"
DEEP = "deep kernel machine"
FOLDS = 5
QUICK_ROWS, QUICK_FOLDS = 150, 3  # of a quick run


@dataclass(frozen=True)
class Task:
    """A table: its data, the deep model, and its rivals by name; ``models(X)`` makes them for these features."""

    source: Source
    load: Callable[[Run], tuple[np.ndarray, np.ndarray]]
    models: Callable[[np.ndarray, bool], dict[str, Any]]
    rivals: tuple[str, ...]
    classify: bool = False


# -- scikit-learn, tuned ----------------------------------------------------------------------------------------------
def grid(low: float, high: float, quick: bool, points: int = 5) -> np.ndarray:
    """Powers from one end to the other."""
    return np.geomspace(low, high, 3 if quick else points)


def tuned(model: Any, candidates: dict[str, Any], *, classify: bool = False) -> GridSearchCV:
    """The best candidate by 5-fold cross-validation on the training data."""
    scoring = "accuracy" if classify else "neg_mean_squared_error"
    folds = StratifiedKFold if classify else KFold
    return GridSearchCV(model, candidates, scoring=scoring, cv=folds(5, shuffle=True, random_state=1))


def standardised_target(model: Any) -> TransformedTargetRegressor:
    """C, epsilon and alpha then mean the same on every table."""
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def svr(width: float, quick: bool) -> Any:
    """SVR with a Gaussian kernel; gamma in multiples of 1 / width."""
    candidates = {
        "C": grid(1.0, 1000.0, quick, 4),
        "gamma": grid(0.03, 10.0, quick, 6) / width,
        "epsilon": [0.01, 0.1],
    }
    return standardised_target(make_pipeline(StandardScaler(), tuned(SVR(), candidates)))


def kernel_ridge(width: float, quick: bool) -> Any:
    """Kernel ridge with a Gaussian kernel; gamma in multiples of 1 / width."""
    candidates = {"alpha": grid(1e-6, 1.0, quick, 7), "gamma": grid(0.01, 10.0, quick, 7) / width}
    model = make_pipeline(StandardScaler(), tuned(KernelRidge(kernel="rbf"), candidates))
    return standardised_target(model)


def gaussian_process(lengthscales: np.ndarray | float, quick: bool) -> Any:
    """A Gaussian process by marginal likelihood, one lengthscale or one a feature."""
    bounds = (1e-2, 1e4)
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(lengthscales, bounds) + WhiteKernel(1e-2, (1e-8, 1e1))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=0 if quick else 3, random_state=0)
    return make_pipeline(StandardScaler(), model)


# -- the tables -------------------------------------------------------------------------------------------------------
GP, GP_ARD = "Gaussian process", "Gaussian process, ARD"
GP_TANIMOTO, SVR_TANIMOTO = "Gaussian process, Tanimoto", "SVR, Tanimoto"


def yacht(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Hull forms and speeds."""
    bunch = load_yacht(folder=run.data)
    return bunch.data, bunch.target


def yacht_models(X: np.ndarray, quick: bool) -> dict[str, Any]:
    """An affine inner layer: the metric is learned."""
    d = X.shape[1]
    deep = DeepKernelRegressor([d], "rbf", random_state=0)
    return {
        DEEP: standardised_target(make_pipeline(StandardScaler(), deep)),
        "SVR": svr(d, quick),
        "kernel ridge": kernel_ridge(d, quick),
        GP: gaussian_process(float(d) ** 0.5, quick),
        GP_ARD: gaussian_process(np.full(d, float(d) ** 0.5), quick),
    }


def esol(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Morgan fingerprints of radius 2 in 2048 bits."""
    bunch = load_esol(folder=run.data)
    return Morgan().fit_transform(bunch.data), bunch.target


def tanimoto(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The kernel for scikit-learn's SVR."""
    gram = Tanimoto()(X, Y)
    return gram.numpy()


def tanimoto_process() -> Any:
    """A Gaussian process with the Tanimoto kernel: amplitude and noise by marginal likelihood, from one start."""
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * GaussianProcessKernel(Tanimoto())
    return GaussianProcessRegressor(kernel + WhiteKernel(1e-1, (1e-8, 1e1)), normalize_y=True)


def esol_models(X: np.ndarray, quick: bool) -> dict[str, Any]:
    """A layer on the Tanimoto kernel; fingerprints are not standardised for it, nor for the rivals that share it."""
    deep = DeepKernelRegressor([(Tanimoto(), 10)], random_state=0)
    candidates = {"C": grid(1.0, 1000.0, quick, 4), "epsilon": [0.01, 0.1]}
    d = X.shape[1]
    return {
        DEEP: standardised_target(deep),
        SVR_TANIMOTO: standardised_target(tuned(SVR(kernel=tanimoto), candidates)),
        "kernel ridge": kernel_ridge(d, quick),
        GP_TANIMOTO: tanimoto_process(),
    }


def segment(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Regions of pictures, without the constant feature."""
    bunch = load_segment(folder=run.data)
    return bunch.data[:, np.ptp(bunch.data, axis=0) > 0], bunch.target


def segment_models(X: np.ndarray, quick: bool) -> dict[str, Any]:
    """An affine inner layer; probabilities are not asked for."""
    d = X.shape[1]
    deep = DeepKernelClassifier([d], "rbf", calibration=None, random_state=0)
    candidates = {"C": grid(1.0, 10000.0, quick), "gamma": grid(0.03, 10.0, quick, 6) / d}
    return {
        DEEP: make_pipeline(StandardScaler(), deep),
        "SVC": make_pipeline(StandardScaler(), tuned(SVC(), candidates, classify=True)),
    }


def usps(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """1,000 digits of the training set, as many of each class as there should be."""
    bunch = load_usps("train", folder=run.data)
    split = StratifiedShuffleSplit(1, train_size=1000, random_state=0)
    chosen, _ = next(split.split(bunch.data, bunch.target))
    return bunch.data[chosen], bunch.target[chosen]


def usps_models(X: np.ndarray, quick: bool) -> dict[str, Any]:
    """Grey values have one unit and are not standardised."""
    width = X.shape[1] * float(X.var())
    deep = DeepKernelClassifier([20], "rbf", calibration=None, random_state=0)
    candidates = {"C": grid(1.0, 1000.0, quick), "gamma": grid(0.03, 3.0, quick) / width}
    return {DEEP: deep, "SVC": tuned(SVC(), candidates, classify=True)}


TASKS = {
    "yacht": Task(YACHT, yacht, yacht_models, ("SVR", "kernel ridge", GP, GP_ARD)),
    "esol": Task(ESOL, esol, esol_models, (SVR_TANIMOTO, "kernel ridge", GP_TANIMOTO)),
    "segment": Task(SEGMENT, segment, segment_models, ("SVC",), classify=True),
    "usps": Task(USPS, usps, usps_models, ("SVC",), classify=True),
}


# -- the protocol -----------------------------------------------------------------------------------------------------
def fold_error(model: Any, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, classify: bool) -> Result:
    """The error on the test fold of a model that has seen the others."""
    predictions = model.fit(X[train], y[train]).predict(X[test])
    if classify:
        return {ERROR: float(np.mean(predictions != y[test]))}
    return {RMSE: float(np.sqrt(np.mean((predictions - y[test]) ** 2)))}


def compare(name: str) -> Callable[[Run], None]:
    """The experiment on one table."""
    task = TASKS[name]

    def function(run: Run) -> None:
        X, y = task.load(run)
        if run.quick:
            rows = np.random.default_rng(0).permutation(len(X))[:QUICK_ROWS]
            X, y = X[rows], y[rows]
        count = QUICK_FOLDS if run.quick else FOLDS
        folds = (StratifiedKFold if task.classify else KFold)(count, shuffle=True, random_state=0)
        splits = list(folds.split(X, y))
        for method, model in task.models(X, run.quick).items():
            for fold, (train, test) in enumerate(splits):
                run.part(name, method, fold, fold_error, model, X, y, train, test, task.classify)

    return function


EXPERIMENTS = tuple(
    Experiment(
        f"tables-{name}",
        "Real tables",
        name,
        f"{task.source.description} {task.load.__doc__} {FOLDS} outer folds, the same for all models (quick: "
        f"{QUICK_FOLDS} folds, {QUICK_ROWS} rows and coarser grids). SVR, SVC and kernel ridge: a grid search over C, "
        f"gamma, epsilon, alpha by 5-fold cross-validation within the training folds; Gaussian "
        f"processes: marginal likelihood; the deep kernel machine: whatever it learns by itself.",
        (
            not_worse(
                "not worse than the best tuned rival, within one standard error of the paired difference",
                ERROR if task.classify else RMSE,
                name,
                DEEP,
                task.rivals,
            ),
        ),
        compare(name),
        (task.source,),
        spread="standard error",
    )
    for name, task in TASKS.items()
)
