"""Comparisons of a learner with simple rivals on held-out rows of a table: errors, scores and columns that matter."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from representer.estimators import DeepKernelClassifier, DeepKernelRegressor, EmbeddingClassifier, OperatorRidge

if TYPE_CHECKING:
    import pandas as pd

LEARNERS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (OperatorRidge, EmbeddingClassifier, DeepKernelRegressor, DeepKernelClassifier)
}
TREES = 200
# A column of texts says nothing to a rival about new rows if a smaller share of rows has an entry of another row.
SHARED_ROWS = 0.1
# The largest number of columns that are shuffled one by one, and of held-out rows of a fold where they are.
SHUFFLED_COLUMNS, SHUFFLED_ROWS = 50, 500


def learner_for(y: pd.Series[Any], name: str | None = None, max_time: float | None = None) -> Any:
    """The learner that suits a target of numbers, or of classes: words, truth values or two different numbers.

    Parameters
    ----------
    y : Series
        The target, without gaps.
    name : str or None
        The name of the learner, if the target should not decide.
    max_time : float or None
        The time of its search in seconds.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    n_values = y.nunique()
    if n_values < 2:
        raise ValueError(f"All {len(y)} known entries of {y.name!r} are {y.iloc[0]!r}: there is nothing to learn.")
    numeric = is_numeric_dtype(y) and not is_bool_dtype(y)
    if name is None:
        name = "OperatorRidge" if numeric and n_values > 2 else "EmbeddingClassifier"
    if name not in LEARNERS:
        raise ValueError(f"There is no learner {name!r} for tables; there are: {', '.join(LEARNERS)}.")
    learner = LEARNERS[name](max_time=max_time, random_state=0)
    if is_classifier(learner):
        _check_classes(y)
    elif not numeric:
        raise ValueError(f"{name} predicts numbers, but {y.name!r} has entries such as {y.iloc[0]!r}.")
    return learner


def _check_classes(y: pd.Series[Any]) -> None:
    """Refuse classes with a single row."""
    counts = y.value_counts()
    if counts.iloc[0] == 1:
        raise ValueError(f"All {len(y)} entries of {y.name!r} are different: they are no classes, and no numbers.")
    single = [label for label, count in counts.items() if count == 1]
    if single:
        raise ValueError(
            f"{len(single)} classes of {y.name!r} have one row each, such as {single[0]!r}; a class needs at least two "
            "rows. Delete these rows, or merge classes."
        )


# -- rivals -----------------------------------------------------------------------------------------------------------
def encoded(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that rivals can use: numbers, and texts with a word for gaps.

    Dates, objects, and texts that are nearly all different, such as names, are left out.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    columns: dict[Any, Any] = {}
    for name in frame.columns:
        column, present = frame[name], frame[name].dropna()
        if is_numeric_dtype(column) and not is_bool_dtype(column):
            columns[name] = column.astype(float)
        elif len(present) and present.map(lambda entry: isinstance(entry, str | bool)).all():
            words = column.astype(object).where(column.notna(), "(missing)").astype(str)
            if words.duplicated(keep=False).mean() >= SHARED_ROWS:
                columns[name] = words
    return frame[[]].assign(**{str(name): column for name, column in columns.items()})


def rivals(table: pd.DataFrame, classes: bool) -> dict[str, Any]:
    """The rivals for encoded columns: the mean or the shares, a linear model on one-hot columns, and a forest."""
    mean = {"shares of classes": DummyClassifier(strategy="prior")} if classes else {"mean": DummyRegressor()}
    if not len(table.columns):
        return mean
    numbers = [name for name in table.columns if table[name].dtype == float]
    words = [name for name in table.columns if name not in numbers]
    fill = SimpleImputer(strategy="median", keep_empty_features=True)
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    # Unknown words are NaN, which a forest sends to the larger branch; -1 would be a neighbour of the first word.
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    scaled = make_column_transformer((make_pipeline(fill, StandardScaler()), numbers), (one_hot, words))
    coded = make_column_transformer((fill, numbers), (codes, words))
    linear = LogisticRegression(max_iter=1000) if classes else RidgeCV(np.logspace(-3, 3, 13))
    forest = (RandomForestClassifier if classes else RandomForestRegressor)(TREES, random_state=0)
    name = "logistic regression on one-hot" if classes else "ridge on one-hot"
    return {**mean, name: make_pipeline(scaled, linear), f"forest of {TREES}": make_pipeline(coded, forest)}


# -- comparing --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Comparison:
    """The results of a learner and its rivals on held-out rows.

    Parameters
    ----------
    measures : tuple of str
        The error (less is better) and the score (more is better): RMSE and R², or log loss and accuracy.
    results : dict
        The error and the score of each method in each fold, (folds, 2); the learner is the first method.
    mattered : dict
        The mean relative growth of the learner's error if the entries of a column are shuffled.
    unseen : tuple of str
        The columns that the rivals do not get, because they cannot use them.
    """

    measures: tuple[str, str]
    results: dict[str, np.ndarray]
    mattered: dict[str, float]
    unseen: tuple[str, ...] = ()

    @property
    def means(self) -> dict[str, tuple[float, float]]:
        """The mean error and the mean score of each method over the folds."""
        return {name: (float(scores[:, 0].mean()), float(scores[:, 1].mean())) for name, scores in self.results.items()}


def compare(
    learner: object, frame: pd.DataFrame, y: pd.Series[Any], folds: int, announce: Callable[[str], None]
) -> Comparison:
    """Compare a learner with its rivals by predictions of each fold from fits to the others.

    Parameters
    ----------
    learner : estimator
        The learner, which is cloned for each fold.
    frame, y : DataFrame, Series
        The columns and the target.
    folds : int
        The number of folds, reduced to the rows of the smallest class.
    announce : callable
        A function that is called with a text before each fit of the learner, and before the rivals.
    """
    classes, targets = is_classifier(learner), y.to_numpy()
    table = encoded(frame)
    splits = _splits(targets, folds_for(learner, y, folds), classes)
    scores, shuffled = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows gives the same warnings
        for k, (train, test) in enumerate(splits):
            announce(f"fit without fold {k + 1} of {len(splits)}")
            model = clone(learner).fit(frame.iloc[train], targets[train])
            scores.append(_scores(model, frame.iloc[test], targets[test]))
            shuffled.append(_growth(model, frame.iloc[test], targets[test], seed=k))
        announce("rivals")
        others = {
            name: [_scores(clone(rival).fit(table.iloc[a], targets[a]), table.iloc[b], targets[b]) for a, b in splits]
            for name, rival in rivals(table, classes).items()
        }
    results = {name: np.array(pairs) for name, pairs in {type(learner).__name__: scores, **others}.items()}
    growth = {name: float(np.mean([fold[name] for fold in shuffled])) for name in shuffled[0]}
    mattered = dict(sorted(growth.items(), key=lambda item: -item[1]))
    unseen = tuple(str(name) for name in frame.columns if str(name) not in table.columns)
    return Comparison(("log loss", "accuracy") if classes else ("RMSE", "R²"), results, mattered, unseen)


def folds_for(learner: object, y: pd.Series[Any], folds: int) -> int:
    """The number of folds, at most the rows of the smallest class; an error if there are too few rows."""
    if is_classifier(learner):
        return min(folds, int(y.value_counts().min()))
    if len(y) < 2 * folds:
        raise ValueError(f"{len(y)} rows are too few for {folds} folds; at least {2 * folds} are needed.")
    return folds


def _splits(y: np.ndarray, folds: int, classes: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random folds, with classes in proportion."""
    kind = StratifiedKFold if classes else KFold
    return list(kind(folds, shuffle=True, random_state=0).split(y, y))


def _scores(model: Any, frame: pd.DataFrame, y: np.ndarray) -> tuple[float, float]:
    """The error and the score on held-out rows."""
    if not is_classifier(model):
        predictions = model.predict(frame)
        return root_mean_squared_error(y, predictions), r2_score(y, predictions)
    p = np.clip(model.predict_proba(frame), 1e-6, 1.0)
    p /= p.sum(1, keepdims=True)
    return log_loss(y, p, labels=model.classes_), accuracy_score(y, model.classes_[p.argmax(1)])


def _growth(model: object, frame: pd.DataFrame, y: np.ndarray, seed: int) -> dict[str, float]:
    """The relative growth of the error if one column is shuffled, for each column unless there are too many."""
    if len(frame.columns) > SHUFFLED_COLUMNS:
        return {}
    frame, y = frame[:SHUFFLED_ROWS].reset_index(drop=True), y[:SHUFFLED_ROWS]
    error, rng = max(_scores(model, frame, y)[0], np.finfo(float).tiny), np.random.default_rng(seed)
    growth = {}
    for name in frame.columns:
        order = rng.permutation(len(frame))
        changed = frame.assign(**{name: frame[name].take(order).reset_index(drop=True)})
        growth[str(name)] = _scores(model, changed, y)[0] / error - 1.0
    return growth
