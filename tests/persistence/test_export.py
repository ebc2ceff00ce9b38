"""Fitted learners as torch modules: the same values, with and without the exporter of torch."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from tiers import tiers

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    OperatorRidge,
    StructuredPredictor,
)
from representer.approximation import Nystroem, RandomFeatures, TensorSketch
from representer.kernels import (
    Category,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Number,
    Polynomial,
    RationalQuadratic,
    Spectrum,
    Stack,
    Table,
)
from representer.operators import Dense

TABLE = Table(Gaussian(1.0), {"size": Number(), "colour": Category()})

rng = np.random.default_rng(0)
X, NEW = rng.normal(size=(30, 3)), rng.normal(size=(7, 3))
y = np.sin(X[:, 0]) + 0.3 * X[:, 1]
Y = np.stack([y, X[:, 2]], 1)
LABELS = np.digitize(y, [-0.2, 0.2])
QUICKLY = {"max_iter": 3, "n_restarts": 1, "random_state": 0}
GAUSSIAN = {"kernel": Gaussian(1.2), "alpha": 1e-2}

CASES = {
    "ridge": (OperatorRidge(**GAUSSIAN), y, "predict"),
    "outputs": (OperatorRidge(**GAUSSIAN, operator=Dense([[1.0, 0.4], [0.4, 0.8]])), Y, "predict"),
    "linear": (OperatorRidge(Linear(), alpha=1e-3), Y, "predict"),
    "default": (OperatorRidge(random_state=0), y, "predict"),
    "nystroem": (OperatorRidge(**GAUSSIAN, approximation=Nystroem(9), random_state=0), Y, "predict"),
    "random": (OperatorRidge(**GAUSSIAN, approximation=RandomFeatures(30), random_state=0), Y, "predict"),
    "sketch": (OperatorRidge(Polynomial(2), alpha=1e-2, approximation=TensorSketch(30), random_state=0), y, "predict"),
    "deep": (DeepKernelRegressor([2], **QUICKLY), Y, "predict"),
    "classifier": (DeepKernelClassifier([2], cv=2, **QUICKLY), LABELS, "decision_function"),
    "classes": (EmbeddingClassifier(**GAUSSIAN), LABELS, "embedding"),
    "autoencoder": (KernelAutoencoder(2, alpha=0.1, **QUICKLY), None, "transform"),
    "conditional": (ConditionalMeanEmbedding(**GAUSSIAN), Y, "predict"),
    "conditional without": (ConditionalMeanEmbedding(**GAUSSIAN, fit_intercept=False), Y, "predict"),
    "conditional cells": (
        ConditionalMeanEmbedding(**GAUSSIAN, approximation=Nystroem(9), random_state=0),
        Y,
        "predict",
    ),
    "features": (KernelFeatures(Gaussian(1.2), Nystroem(9), random_state=0), None, "transform"),
    "random features": (KernelFeatures(Gaussian(1.2), RandomFeatures(20), random_state=0), None, "transform"),
}


def fitted(model, target):
    return model.fit(X) if target is None else model.fit(X, target)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", tiers(list(CASES), lambda name: name not in ("deep", "default")))
def test_a_network_has_the_values_of_the_learner(name: str) -> None:
    model, target, method = CASES[name]
    model = fitted(model, target)
    expected = getattr(model, method)(NEW)
    with torch.no_grad():
        values = model.to_torch()(torch.from_numpy(NEW)).numpy()
    np.testing.assert_allclose(values, expected.reshape(values.shape), rtol=1e-10, atol=1e-10)


def test_a_structured_predictor_becomes_the_scores_of_its_candidates() -> None:
    model = StructuredPredictor(Gaussian(1.2), Gaussian(0.5), alpha=0.1, decoder="candidates").fit(X, Y)
    network, new = model.to_torch(), torch.from_numpy(NEW)
    candidates = model._candidates()
    scores = network(new).detach().numpy()
    np.testing.assert_allclose(scores, model.score_candidates(NEW, candidates), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(candidates[scores.argmax(1)], model.predict(NEW))
    few = model.to_torch(Y[:4])
    np.testing.assert_allclose(few(new).detach(), model.score_candidates(NEW, Y[:4]), rtol=1e-10, atol=1e-10)
    program = torch.export.export(few, (new,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},)).module()
    for rows in (new, torch.from_numpy(X)):
        np.testing.assert_allclose(program(rows).detach(), few(rows).detach(), rtol=1e-10, atol=1e-10)


LEVELS = {
    "one level": DeepKernelPCA([2], Gaussian(1.5)),
    "coupled": DeepKernelPCA([3, 2], [Gaussian(1.5), Gaussian(1.0)], eta=[1.0, 0.5]),
    "linear": DeepKernelPCA([3, 2], [Gaussian(1.5), "linear"]),
    "levelwise": DeepKernelPCA([3, 2], Gaussian(1.5), solver="levelwise"),
    "smoother": DeepKernelPCA([3, 2], Gaussian(1.5), extension="smoother"),
}


@pytest.mark.parametrize("name", tiers(list(LEVELS), lambda name: name not in ("coupled", "levelwise")))
def test_levels_become_a_network_that_is_exported(name: str) -> None:
    """An exported program takes steps of a fixed number: new samples near the others need no more."""
    model = LEVELS[name].fit(X)
    near = 0.9 * X[:9] + 0.1 * X[9:18]
    network, rows = model.to_torch(), torch.export.Dim("rows", min=2)
    np.testing.assert_allclose(network(torch.from_numpy(NEW)).detach(), model.transform(NEW), rtol=1e-10, atol=1e-10)
    program = torch.export.export(network, (torch.from_numpy(near),), dynamic_shapes=({0: rows},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    for new in (near, X):
        np.testing.assert_allclose(again(torch.from_numpy(new)).detach(), model.transform(new), atol=1e-10)


@pytest.mark.parametrize(
    "model",
    [
        OperatorRidge(TABLE, alpha=0.1),
        OperatorRidge(Stack([TABLE, 2.0 * TABLE], weights=[0.5, 0.5]), alpha=0.1),
        EmbeddingClassifier(TABLE, alpha=0.1),
        ConditionalMeanEmbedding(TABLE, Gaussian(1.0), alpha=0.1),
        StructuredPredictor(TABLE, Gaussian(1.0), alpha=0.1),
        KernelFeatures(TABLE, Nystroem(3)),
        KernelAutoencoder(1, kernel=TABLE, n_restarts=1, max_iter=2, tol=1.0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_records_are_no_tensors(model) -> None:
    records = [{"size": float(i % 4), "colour": "red" if i % 3 else "blue"} for i in range(8)]
    with pytest.raises(
        ValueError, match="to_torch needs a kernel of vectors, and this model finds columns by their names"
    ):
        model.fit(records, np.arange(8) % 2).to_torch()


def test_what_is_no_network_says_so() -> None:
    words = ["abc", "abd", "bcd", "cde", "aab"]
    with pytest.raises(ValueError, match="network of dense vectors"):
        DeepKernelPCA([2], Spectrum(2)).fit(words).to_torch()
    gram = np.exp(-0.5 * np.square(y[:, None] - y))
    with pytest.raises(ValueError, match="precomputed output kernel does not have"):
        StructuredPredictor(Gaussian(1.2), "precomputed", alpha=0.1).fit(X, gram).to_torch(gram[:2])


KERNELS = {
    "gaussian": Gaussian(1.2),
    "ard": Gaussian([0.8, 1.0, 2.0]),
    "laplacian": Laplacian(1.0),
    "matern": Matern(1.5, 1.0),
    "rational quadratic": RationalQuadratic(1.0, 1.5),
    "sum": 2.0 * Gaussian(1.0) + Polynomial(2) + 0.5,
}


@pytest.mark.parametrize("name", tiers(list(KERNELS), lambda name: name in ("sum", "matern", "ard")))
def test_exported_programs_have_the_values_of_the_learner(name: str) -> None:
    """What torch.export writes to a file runs for any number of rows, and without this library."""
    model = OperatorRidge(KERNELS[name], alpha=1e-2).fit(X, Y)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(model.to_torch(), (torch.from_numpy(NEW),), dynamic_shapes=({0: rows},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    for new in (NEW, X):
        np.testing.assert_allclose(again(torch.from_numpy(new)).detach(), model.predict(new), rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_deep_network_is_exported() -> None:
    model = DeepKernelRegressor([2], kernel=Matern(2.5, 1.0), alpha=1e-2, **QUICKLY).fit(X, Y)
    program = torch.export.export(model.to_torch(), (torch.from_numpy(NEW),)).module()
    np.testing.assert_allclose(program(torch.from_numpy(NEW)).detach(), model.predict(NEW), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KERNELS)
def test_onnx_programs_have_the_values_of_the_learner(name: str, tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = OperatorRidge(KERNELS[name], alpha=1e-2).fit(X, Y)
    shapes = ({0: torch.export.Dim("rows", min=2)},)
    program = torch.onnx.export(model.to_torch(), (torch.from_numpy(NEW),), dynamo=True, dynamic_shapes=shapes)
    program.save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    (values,) = session.run(None, {session.get_inputs()[0].name: X})
    np.testing.assert_allclose(values, model.predict(X), rtol=1e-10, atol=1e-10)
