"""Bohn, Griebel, Rieger (2019): the printed kernel, the measures of figures 1 to 6, and starts."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.special import kv

from papers import reproduce
from papers.bohn import figures
from representer.datasets import jump, kink, make_jump, square_grid


def test_the_kernel_is_the_printed_one(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(4, 5)), rng.normal(size=(3, 5))
    distance = np.abs(X[:, None] - Y[None])
    printed = np.prod(kv(0.5, distance) * distance**0.5, axis=-1)
    assert np.allclose(figures.matern(5)(X, Y).numpy(), printed, rtol=1e-12)


def test_errors_are_relative_to_the_largest_value() -> None:
    truth = np.array([0.0, -10.0, 5.0, 0.0])
    prediction = truth + np.array([1.0, 1.1, 0.0, -3.0])
    found = figures.judged(prediction, truth)
    assert found[figures.SHARE] == 0.5
    assert found[figures.RMSE] == pytest.approx(math.sqrt((0.01 + 0.0121 + 0.09) / 4))


def test_unexplained_variance() -> None:
    grid = square_grid()
    x, y = grid.T
    rotated = grid @ figures.ROTATION.T
    assert np.allclose(rotated[:, 0], (x - y) / math.sqrt(2))
    assert figures.unexplained(rotated, kink(grid)) < 0.01
    assert figures.unexplained(grid, kink(grid)) > 0.8
    # One bin of 100 holds both values: at most 0.01 · ¼ of a variance of 0.19 is left.
    assert figures.unexplained(np.column_stack([x, x * y]), jump(grid)) < 0.0025 / jump(grid).var()
    assert figures.unexplained(grid, jump(grid)) > 0.5


def test_more_starts_are_not_worse() -> None:
    X, y = make_jump(30, random_state=0)
    model = figures.interpolants()[figures.two_layers(2)].set_params(max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 20 iterations are few
        one, eight = (figures.best_fit(model, X, y, starts).objective_value_ for starts in (1, 8))
    assert eight <= one
    assert not hasattr(model, "objective_value_")


def test_figure_1_in_full_on_few_seeds(tmp_path: Path) -> None:
    results = reproduce(["bohn-figure1"], tmp_path, quick=True, console=Console(file=io.StringIO()))
    outcome = results.outcomes["bohn-figure1"]
    assert outcome.verdict == "reached", outcome.reason
    assert (tmp_path / next(iter(outcome.figures))).is_file()
