"""Comparisons of learners with rivals: folds, scores against scikit-learn's, what is shuffled, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import KFold, cross_val_score

from representer import OperatorRidge
from representer.comparison import compare, encoded, folds_for, learner_for, rivals
from representer.kernels import Gaussian, Number, Table

pd = pytest.importorskip("pandas")


def homes(n: int = 40) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=n), "noise": rng.normal(size=n), "colour": ["red", None] * (n // 2)})
    return frame, pd.Series(3.0 * frame["size"] + 0.1 * rng.normal(size=n), name="price")


def test_scores_are_those_of_scikit_learn_and_the_column_that_matters_is_first() -> None:
    frame, y = homes()
    learner = OperatorRidge(Table(Gaussian(3.0), {"size": Number(), "noise": Number()}), alpha=1e-3)
    steps: list[str] = []
    found = compare(learner, frame, y, 4, steps.append)
    split = KFold(4, shuffle=True, random_state=0)
    for name, rival in {"OperatorRidge": learner, "mean": DummyRegressor()}.items():
        for j, measure in enumerate(("neg_root_mean_squared_error", "r2")):
            scores = cross_val_score(rival, frame, y.to_numpy(), cv=split, scoring=measure)
            np.testing.assert_allclose(found.results[name][:, j], scores if j else -scores, rtol=1e-10)
    assert list(found.results) == ["OperatorRidge", "mean", "ridge on one-hot", "forest of 200"]
    assert next(iter(found.mattered)) == "size" and found.mattered["size"] > 1.0
    assert found.mattered["colour"] == 0.0  # the kernel does not look at it
    assert steps == [*(f"fit without fold {k} of 4" for k in (1, 2, 3, 4)), "rivals"]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([1.0, 2.0, 3.0, 3.0], "OperatorRidge"),
        ([0, 1, 0, 1], "EmbeddingClassifier"),
        (["a", "b", "a", "b"], "EmbeddingClassifier"),
        ([True, False, True, False], "EmbeddingClassifier"),
    ],
)
def test_the_target_decides_the_learner(values: list[object], name: str) -> None:
    learner = learner_for(pd.Series(values), max_time=7.0)
    assert type(learner).__name__ == name and learner.max_time == 7.0


@pytest.mark.parametrize(
    ("values", "name", "message"),
    [
        (["a", "a"], None, "All 2 known entries of 'y' are 'a'"),
        (["a", "b", "c"], None, "they are no classes"),
        (["a", "a", "b"], None, "such as 'b'; a class needs at least two"),
        (["a", "b"], "OperatorRidge", "predicts numbers, but 'y' has entries such as 'a'"),
        ([1.0, 2.0], "Ridge", "There is no learner 'Ridge' for tables; there are: OperatorRidge"),
    ],
)
def test_targets_that_cannot_be_learned_are_named(values: list[object], name: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learner_for(pd.Series(values, name="y"), name)


def test_folds_are_at_most_the_rows_of_a_class() -> None:
    y = pd.Series(["a"] * 9 + ["b"] * 3)
    assert folds_for(learner_for(y), y, 5) == 3
    with pytest.raises(ValueError, match="9 rows are too few for 5 folds"):
        folds_for(OperatorRidge(), pd.Series(range(9)), 5)


def test_rivals_take_numbers_and_words() -> None:
    dates, objects = pd.to_datetime(["2020-01-01"] * 3), [[1], [2], [3]]
    frame = pd.DataFrame({"n": [1, None, 2], "w": ["a", None, "a"], "t": dates, "o": objects, "all": ["x", "y", "z"]})
    table = encoded(frame)
    assert list(table.columns) == ["n", "w"] and table["w"].tolist() == ["a", "(missing)", "a"]
    assert list(rivals(table[[]], True)) == ["shares of classes"]


def test_texts_that_all_differ_do_not_harm_rivals_and_neither_do_new_words() -> None:
    frame, y = homes()
    learner = OperatorRidge(Table(Gaussian(3.0), {"size": Number()}), alpha=1e-3)
    named = frame.assign(name=[f"house {i}" for i in range(len(frame))])
    with_names, without = (compare(learner, own, y, 4, lambda step: None) for own in (named, frame))
    assert with_names.unseen == ("name",) and without.unseen == ()
    for rival in ("ridge on one-hot", "forest of 200"):
        np.testing.assert_array_equal(with_names.results[rival], without.results[rival])
    words = pd.DataFrame({"w": ["a"] * 5 + ["b"] * 35})
    forest = rivals(words, False)["forest of 200"].fit(words, np.where(words["w"] == "a", -100.0, 1.0))
    assert forest.predict(pd.DataFrame({"w": ["new"]}))[0] > -1.0  # that of the many, not of the first word
