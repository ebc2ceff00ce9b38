"""Functions into the RKHS of an output kernel: answers in blocks, and errors against a dense computation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from representer import ConditionalMeanEmbedding, StructuredPredictor
from representer.approximation import Nystroem
from representer.functions.conditional import bandwidths, best_bandwidth
from representer.functions.embedding import scatter
from representer.kernels import Gaussian, Kernel, Linear, Polynomial, Spectrum
from representer.linalg import resources as memory
from representer.samples import rows as limits

ANSWERS: dict[str, dict[str, tuple[Any, ...]]] = {
    "StructuredPredictor": {
        "predict": (),
        "predict_topk": (3,),
        "score_candidates": (np.array([[0.1], [0.4]]),),
    },
    "ConditionalMeanEmbedding": {
        "predict": (),
        "var": (),
        "weights": (),
        "cdf": ((-0.5, 0.3),),
        "quantile": ((0.1, 0.9),),
        "density": ((-0.5, 0.3),),
        "sample": (4,),
    },
}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(40, 2))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=40), rng.normal(size=(37, 2))


@pytest.fixture
def small_blocks(monkeypatch):
    """A switch: from then on blocks hold few rows."""
    return lambda: monkeypatch.setattr(memory, "BLOCK_BYTES", 5 * 6 * 40 * 8)


def both(approximation: Any) -> list[Any]:
    options: dict[str, Any] = {"alpha": 1e-2, "approximation": approximation, "random_state": 0}
    return [
        StructuredPredictor(Gaussian(1.0), Gaussian(0.5), **options),
        ConditionalMeanEmbedding(Gaussian(1.0), Gaussian(0.5), fit_intercept=False, **options),
    ]


@pytest.mark.parametrize("approximation", [None, Nystroem(20)])
def test_answers_in_blocks_are_those_of_all_rows(data, small_blocks, approximation):
    X, y, new = data
    learners = [learner.fit(X, y) for learner in both(approximation)]

    def answers() -> list[Any]:
        found: list[Any] = [learner.score(new, y[:37]) for learner in learners]
        for learner in learners:
            for name, arguments in ANSWERS[type(learner).__name__].items():
                found.append(getattr(learner, name)(new, *arguments))
        return [*found, learners[1].expect(lambda y: y > 0, new), learners[1].sample(new, 3, "resampling")]

    whole = answers()
    small_blocks()
    for one, two in zip(whole, answers(), strict=True):
        for a, b in zip(one, two, strict=True) if isinstance(one, tuple) else [(one, two)]:
            np.testing.assert_allclose(a, b, atol=1e-10)


def test_lists_of_objects_in_blocks(data, small_blocks):
    X, y, new = data
    words = ["ab" if value < 0 else "abba" for value in y]
    model = StructuredPredictor(Gaussian(1.0), Spectrum(2), alpha=1e-2).fit(X, words)
    predicted, (best, _) = model.predict(new), model.predict_topk(new, 2)
    small_blocks()
    assert model.predict(new) == predicted and isinstance(predicted, list)
    assert [list(row) for row in model.predict_topk(new, 2)[0]] == [list(row) for row in best]


def test_errors_are_those_of_dense_weights(data):
    X, y, new = data
    model = both(None)[1].fit(X, y)
    W, L = model.weights(new), np.exp(-0.5 * ((y[:, None] - y) / 0.5) ** 2)
    cross = np.exp(-0.5 * ((y[:37, None] - y) / 0.5) ** 2)
    errors = 1.0 - 2.0 * (cross * W).sum(1) + ((W @ L) * W).sum(1)
    assert model.score(new, y[:37]) == pytest.approx(-errors.mean(), rel=1e-10)


@pytest.mark.parametrize("power", [-160, 160, 300])
def test_units_of_the_targets_are_those_of_a_bandwidth(power: int, rng: np.random.Generator) -> None:
    Y = torch.from_numpy(rng.standard_normal((12, 1)))
    weights = torch.from_numpy(rng.uniform(-0.2, 1.0, (12, 12)))
    weights, unit, rows = weights / weights.sum(1, keepdim=True), 10.0**power, torch.arange(12)
    (width, densities), (other, others) = (best_bandwidth(weights, values, rows) for values in (Y, unit * Y))
    assert other == pytest.approx(unit * width, rel=1e-9)
    torch.testing.assert_close(others, densities - math.log(unit))
    torch.testing.assert_close(bandwidths(weights, unit * Y) / unit, bandwidths(weights, Y))


@pytest.mark.parametrize("kernel", [Linear(), 2.0 * Polynomial(2), Gaussian(0.7)], ids=repr)
def test_the_scatter_of_outputs_is_that_of_their_gram_matrix(kernel: Kernel) -> None:
    Y = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 2)))
    gram = kernel._gram(Y, None)
    total, _ = scatter(kernel, Y)
    torch.testing.assert_close(total, gram.trace() - gram.mean() * len(Y))
    w = torch.from_numpy(np.random.default_rng(1).uniform(size=60))
    total, _ = scatter(kernel, Y, w)
    torch.testing.assert_close(total, w @ gram.diagonal() - w @ gram @ w / w.sum())


def test_the_scatter_of_linear_outputs_far_from_zero_does_not_cancel() -> None:
    Y = torch.from_numpy(np.random.default_rng(0).integers(0, 2**20, (60, 2)) / 2**20)
    total, rounding = scatter(Linear(), Y + 2.0**30)
    torch.testing.assert_close(total, scatter(Linear(), Y)[0], rtol=1e-7, atol=0.0)
    assert rounding < total


def test_the_scatter_of_many_outputs_takes_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    Y = torch.from_numpy(np.random.default_rng(0).normal(size=(2000, 2)))
    exact = scatter(Gaussian(0.7), Y)[0]
    monkeypatch.setattr(limits, "MEAN_ROWS", 200)
    entries = []
    whole = Gaussian._gram

    def counted(self: Gaussian, X: torch.Tensor, Z: torch.Tensor | None) -> torch.Tensor:
        gram = whole(self, X, Z)
        entries.append(gram.numel())
        return gram

    monkeypatch.setattr(Gaussian, "_gram", counted)
    torch.testing.assert_close(scatter(Gaussian(0.7), Y)[0], exact, rtol=2e-3, atol=0.0)
    assert sum(entries) <= 200 * 2200
    w = torch.from_numpy(np.random.default_rng(1).uniform(size=2000))
    gram = whole(Gaussian(0.7), Y, None)
    expected = w @ gram.diagonal() - w @ gram @ w / w.sum()
    torch.testing.assert_close(scatter(Gaussian(0.7), Y, w)[0], expected, rtol=2e-3, atol=0.0)
