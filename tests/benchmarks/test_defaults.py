"""The comparison of defaults with tuned peers: halves, tables, errors and summaries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import log_loss

from benchmarks.defaults import (
    PEERS,
    EachOutput,
    Problem,
    classifications,
    halves,
    measure,
    read_outputs,
    read_table,
    regressions,
    several_outputs,
    summary,
    with_gaps,
)


@pytest.mark.parametrize("problems", [regressions(), classifications()])
def test_halves_share_no_table_and_are_the_same_every_time(problems: list[Problem]) -> None:
    both = halves(problems)
    names = [problem.name for half in both.values() for problem in half]
    assert sorted(names) == [problem.name for problem in problems] and len(set(names)) == len(names)
    assert names == [problem.name for half in halves(problems[:]).values() for problem in half]
    assert [problem.kind for problem in several_outputs()] == ["outputs", "outputs", "outputs", "gaps"]


def test_words_become_columns_and_gaps_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRESENTER_DATA", str(tmp_path))
    (tmp_path / "t.csv").write_text("sequence,a,word,y\np,1,u,2\nq,,v,3\nr,3,u,\n")
    X, y = read_table("t.csv", "y")
    np.testing.assert_array_equal(X, [[1.0, 1.0, 0.0], [np.nan, 0.0, 1.0]])
    assert y.tolist() == [2.0, 3.0]
    (tmp_path / "s.csv").write_text("a,y,z\n1,2,3\n4,5,6\n")
    inputs, outputs = read_outputs("s.csv", ["y", "z"])
    assert inputs.tolist() == [[1.0], [4.0]] and outputs.tolist() == [[2.0, 3.0], [5.0, 6.0]]


def test_errors_are_those_of_the_folds(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    problem = Problem("toy", lambda: (X, y), "regression")
    found = measure(problem, lambda d: DummyRegressor(), 50, 0)
    inputs, targets = problem.data(50)
    expected = [np.sqrt(np.mean((targets[b] - targets[a].mean()) ** 2)) for a, b in problem.folds(inputs, targets, 0)]
    np.testing.assert_allclose(found["error"], expected)
    several = Problem("toys", lambda: (X, np.c_[y, 3 * y]), "outputs")
    np.testing.assert_allclose(measure(several, lambda d: DummyRegressor(), 50, 0)["error"], 1.0)
    labels = (y > 0).astype(int)
    shares = measure(Problem("sides", lambda: (X, labels), "classification"), lambda d: DummyClassifier(), 50, 0)
    assert abs(np.mean(shares["error"]) - log_loss(labels, np.tile(np.bincount(labels) / 50, (50, 1)))) < 0.1


def test_gaps_leave_a_target_of_each_sample(rng: np.random.Generator) -> None:
    Y = rng.normal(size=(200, 3))
    holes = with_gaps(Y)
    missing = np.isnan(holes)
    assert not missing.all(1).any() and 0.1 < missing.mean() < 0.3 and (holes[~missing] == Y[~missing]).all()
    X = rng.normal(size=(200, 2))
    each = EachOutput(DummyRegressor()).fit(X, holes)
    np.testing.assert_allclose(each.predict(X)[0], np.nanmean(holes, 0))
    found = measure(Problem("toy", lambda: (X, Y), "gaps"), lambda d: EachOutput(DummyRegressor()), 200, 0)
    assert 0.95 < np.mean(found["error"]) < 1.05


def test_summaries_compare_with_the_best_peer_of_each_table() -> None:
    problems = [Problem("a", regressions()[0].read, "regression"), Problem("b", regressions()[0].read, "regression")]
    peers = list(PEERS["regression"])
    records = {f"{p.name}/{m}": {"error": [1.0 + i]} for p in problems for i, m in enumerate(peers)}
    records |= {"a/auto": {"error": [0.5]}, "b/auto": {"error": [2.0]}}
    ours = summary(records, problems, [*peers, "auto"], "error", 1)["auto"]
    margin = t.ppf(0.975, 1) * np.log(2)  # two logarithms of ±log 2 have a standard error of log 2
    expected = {"ratio": 1.0, "from": np.exp(-margin), "to": np.exp(margin), "worst": 2.0, "rank": 1.75}
    assert ours == {name: pytest.approx(value) for name, value in expected.items()}


def test_summaries_average_over_repeats(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    problem = Problem("toy", lambda: (X, y), "regression")
    (first, _), (second, _) = (problem.folds(X, y, repeat)[0] for repeat in (0, 1))
    assert set(first) != set(second)
    records = {f"toy/{m}{r}": {"error": [e]} for m in PEERS["regression"] for r, e in (("", 1.0), ("/1", 3.0))}
    records |= {"toy/auto": {"error": [1.0]}, "toy/auto/1": {"error": [1.0]}}
    assert summary(records, [problem], [*PEERS["regression"], "auto"], "error", 2)["auto"]["ratio"] == 0.5
