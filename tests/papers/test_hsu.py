"""The experiments of Hsu et al.: their pieces, and a quick run of what needs no data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from papers import Results
from papers.hsu import mnist, objectives, table1, toys
from papers.results import Measurements
from papers.runner import run_experiment


def test_the_table_has_all_methods_of_the_paper() -> None:
    names = table1.methods(100, 4, 0, True)
    assert set(table1.METHODS) < set(names)
    assert {table1.DEFAULT, table1.SVC_PLATT, table1.GPC} < set(names)
    assert all(len(row) == len(table1.METHODS) for row in table1.PUBLISHED.values())
    assert set(table1.PUBLISHED) == set(table1.SOURCES) == set(table1.SPREAD)


def test_networks_are_those_of_the_paper() -> None:
    module = table1.network(5, (16, 32, 8), seed=3)
    assert [tuple(w.shape) for w in module.parameters() if w.ndim == 2] == [(16, 5), (32, 16), (8, 32)]
    again = table1.network(5, (16, 32, 8), seed=3)
    assert all(bool((a == b).all()) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    for features, (first, second) in ((32, (8, 16)), (256, (8, 16)), (1024, (32, 64))):
        module = mnist.convolutions(0, 0.5, features)
        shapes = [tuple(w.shape) for w in module.parameters() if w.ndim > 1]
        assert shapes == [(first, 1, 5, 5), (second, first, 5, 5), (features, second * 49)]
        assert [m.p for m in module if isinstance(m, torch.nn.Dropout)] == [0.5]
        assert module(torch.zeros(2, 1, 28, 28)).shape == (2, features)


@pytest.mark.parametrize(("error", "verdict"), [(2.0, "reached"), (3.5, "reached"), (30.0, "not reached")])
def test_the_published_error(error: float, verdict: str) -> None:
    values = {table1.ERROR: list(error + np.linspace(-1, 1, 10))}
    assert table1.published("wine").judge(Measurements({("wine", table1.GMCE): values}))[0] == verdict


@pytest.mark.parametrize("method", ["our default", "SVC, gamma='scale'", "GPC"])
def test_scores_by_training_size_are_those_of_loops(method: str, rng: np.random.Generator) -> None:
    A, B = rng.normal(size=(30, 2)), rng.normal(size=(15, 2))
    a, b = (np.where(X[:, 0] > 0, 7, 3) for X in (A, B))
    model = mnist.models(30)[method]
    scores = mnist.size_scores(model, A, B, a, b)
    wrong = sum(x != y for x, y in zip(model.predict(B), b, strict=True))
    assert scores[table1.ERROR] == pytest.approx(100.0 * wrong / 15)
    assert "GPC" in mnist.models(100) and "GPC" not in mnist.models(250)
    assert (table1.LOG_LOSS in scores) == hasattr(model, "predict_proba")
    if table1.LOG_LOSS in scores:
        p = model.predict_proba(B)
        losses = [-np.log(row[list(model.classes_).index(label)]) for row, label in zip(p, b, strict=True)]
        assert scores[table1.LOG_LOSS] == pytest.approx(np.mean(losses))


def test_probabilities_of_the_simulation_are_probabilities() -> None:
    p = toys.true_probabilities(np.linspace(-2, 2, 50)[:, None])
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert p.min() > 0.03
    assert toys.slope([1, 10, 100], [1.0, 0.1, 0.01]) == pytest.approx(-1.0)


def test_estimates_converge_in_a_quick_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (experiment,) = (e for e in toys.EXPERIMENTS if e.name == "hsu-theorem1")
    outcome = run_experiment(experiment, Results(tmp_path, quick=True))
    assert outcome.status == "finished", outcome.reason
    assert outcome.verdict == "reached"
    assert (tmp_path / next(iter(outcome.figures))).is_file()


@pytest.mark.parametrize(("loss", "verdict"), [(0.1, "reached"), (0.203, "reached"), (0.205, "not reached")])
def test_the_default_is_judged_on_the_tables_that_were_measured(loss: float, verdict: str) -> None:
    losses = {"wine": loss, "segment": 9.0}  # the second is not asked for
    measured = {
        (case, method): {table1.LOG_LOSS: [value if method == objectives.DEFAULT else 0.2]}
        for method in objectives.candidates(10)
        for case, value in losses.items()
    }
    claim = objectives.default_is_best(["wine", "bupa"], "the default is best")
    assert claim.judge(Measurements(measured))[0] == verdict
