"""No answer needs memory proportional to (rows asked for) × (training samples)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peak_memory import PeakMemory

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    Layer,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Nystroem, RandomFeatures
from representer.kernels import Gaussian, Laplacian, Polynomial
from representer.linalg import resources
from representer.operators import CurlFree

N_TRAIN = 400
rng = np.random.default_rng(0)
X = rng.normal(size=(N_TRAIN, 2))
y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2
labels = (y > np.median(y)).astype(int)
DEEP: dict[str, Any] = {"max_iter": 3, "n_restarts": 1, "random_state": 0}

MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any, np.ndarray], Any]]] = {
    "ridge": (lambda: OperatorRidge(Gaussian(1.0), alpha=1e-3).fit(X, y), lambda m, Q: m.predict(Q)),
    "ridge, deviation": (
        lambda: OperatorRidge(Gaussian(1.0), alpha=1e-3).fit(X, y),
        lambda m, Q: m.predict(Q, return_std=True),
    ),
    "ridge, landmarks": (
        lambda: OperatorRidge(Gaussian(1.0), alpha=1e-3, approximation=Nystroem(200), random_state=0).fit(X, y),
        lambda m, Q: m.predict(Q, return_std=True),
    ),
    "deep regressor": (
        lambda: DeepKernelRegressor([Layer(Polynomial(1), 2, alpha=1e-2)], Laplacian(1.0), alpha=1e-2, **DEEP).fit(
            X, y
        ),
        lambda m, Q: m.predict(Q, return_std=True),
    ),
    "deep classifier": (
        lambda: DeepKernelClassifier([], Gaussian(1.0), "squared", 1e-2, calibration=None).fit(X, labels),
        lambda m, Q: m.decision_function(Q),
    ),
    "embedding": (
        lambda: EmbeddingClassifier(Gaussian(1.0), None, 1e-2).fit(X, labels),
        lambda m, Q: (m.predict_proba(Q), m.entropy(Q)),
    ),
    "conditional": (
        lambda: ConditionalMeanEmbedding(Gaussian(1.0), Gaussian(0.5), 1e-2, criterion=None).fit(X, y),
        lambda m, Q: (m.predict(Q), m.expect(np.cos, Q), m.quantile(Q, [0.1, 0.9])),
    ),
    "structured": (
        lambda: StructuredPredictor(Gaussian(1.0), "linear", None, 1e-2, decoder="direct").fit(X, np.c_[y, -y]),
        lambda m, Q: m.predict(Q),
    ),
    "structured, candidates": (
        lambda: StructuredPredictor(Gaussian(1.0), Gaussian(0.5), None, 1e-2).fit(X, np.c_[y, -y]),
        lambda m, Q: m.predict(Q),
    ),
    "autoencoder": (
        lambda: KernelAutoencoder(1, Gaussian(2.0), Gaussian(1.0), alpha=1e-2, encoder_alpha=1e-2, **DEEP).fit(X),
        lambda m, Q: (m.transform(Q), m.reconstruct(Q)),
    ),
    "levels": (lambda: DeepKernelPCA([2, 1], ["rbf", "linear"]).fit(X), lambda m, Q: m.transform(Q)),
    "features": (
        lambda: KernelFeatures(Gaussian(1.0), Nystroem(4), random_state=0).fit(X),
        lambda m, Q: m.transform(Q),
    ),
}
# Gradients take longer than answers: these are asked about fewer rows only.
GRADIENTS: dict[str, tuple[Callable[[], Any], Callable[[Any, np.ndarray], Any]]] = {
    "ridge, sensitivity": (
        lambda: OperatorRidge(Gaussian(1.0), alpha=1e-3).fit(X, np.c_[y, -y]),
        lambda m, Q: m.sensitivity(Q),
    ),
    "coupled outputs, sensitivity": (
        lambda: OperatorRidge(CurlFree(1.0), alpha=1e-3, fit_intercept=False).fit(X, X),
        lambda m, Q: m.sensitivity(Q),
    ),
    "random features, sensitivity": (
        lambda: OperatorRidge(Gaussian(1.0), alpha=1e-3, approximation=RandomFeatures(400), random_state=0).fit(X, y),
        lambda m, Q: m.sensitivity(Q),
    ),
    "deep regressor, sensitivity": (
        lambda: DeepKernelRegressor([Layer(Gaussian(1.0), 2, alpha=1e-2)], Laplacian(1.0), alpha=1e-2, **DEEP).fit(
            X, y
        ),
        lambda m, Q: m.sensitivity(Q),
    ),
}


def _peak_above_now(task: Callable[[], Any]) -> float:
    """The megabytes that a task takes above what the process has, at its peak."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    except OSError:
        pytest.skip("This system does not let a process forget its peak of memory.")
    status = {line.split(":")[0]: line for line in Path("/proc/self/status").read_text().splitlines()}
    before = int(status["VmRSS"].split()[1])
    task()
    status = {line.split(":")[0]: line for line in Path("/proc/self/status").read_text().splitlines()}
    return (int(status["VmHWM"].split()[1]) - before) / 1024.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS | GRADIENTS)
def test_answers_take_less_than_a_matrix_of_all_rows(name, monkeypatch):
    make, ask = (MODELS | GRADIENTS)[name]
    model = make()
    ask(model, X[:50])  # what is computed once
    Q = np.random.default_rng(1).normal(size=(3000, 2))
    monkeypatch.setattr(resources, "BLOCK_BYTES", 2**20)
    with PeakMemory() as memory:
        ask(model, Q)
    assert 0 < memory.peak < 8 * len(Q) * N_TRAIN / 2


def test_sensitivities_of_blocks_are_those_of_the_whole(monkeypatch):
    model = OperatorRidge(Gaussian(1.0), alpha=1e-3).fit(X, np.c_[y, -y])
    expected = model.sensitivity(X[:50])
    monkeypatch.setattr(resources, "BLOCK_BYTES", 2**16)
    np.testing.assert_allclose(model.sensitivity(X[:50]), expected, rtol=1e-9, atol=1e-12)
    assert expected.shape == (50, 2, 2)


def test_losses_of_pairs_take_a_few_numbers_a_pair():
    model = StructuredPredictor(Gaussian(1.0), Gaussian(0.5), None, 1e-2).fit(X[:50], np.c_[y, -y][:50])
    Y = np.random.default_rng(1).normal(size=(20_000, 2))
    with PeakMemory() as memory:
        losses = model.loss(Y, Y + 0.1)
    np.testing.assert_allclose(losses, 2.0 - 2.0 * np.exp(-0.02 / (2 * 0.5**2)), rtol=1e-9)
    assert memory.peak < 8 * 16 * len(Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_answers_take_bounded_memory(name):
    make, ask = MODELS[name]
    model = make()
    ask(model, X[:50])  # what is computed once
    Q = np.random.default_rng(1).normal(size=(1_000_000, 2))
    assert _peak_above_now(lambda: ask(model, Q)) < 300.0
