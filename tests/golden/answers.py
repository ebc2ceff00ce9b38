"""What is asked of a fitted learner, as named arrays of numbers."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from golden.data import N_QUERIES, Data
from golden.vocabulary import attribute
from representer.kernels import Graph

Answers = dict[str, np.ndarray]


def numbers(values: Any) -> np.ndarray:
    """Values as floats: numbers as they are, any other object as a number that tells it from others."""
    if hasattr(values, "compute"):
        values = values.compute()
    if isinstance(values, list | tuple) and all(isinstance(value, np.ndarray) for value in values):
        return np.concatenate([numbers(value).ravel() for value in values])
    if isinstance(values, list) and values and isinstance(values[0], str | Graph | tuple | list | dict):
        return np.array([_code(value) for value in values])
    array = np.asarray(values)
    if array.dtype.kind in "OUS":
        return np.array([_code(value) for value in array.ravel().tolist()]).reshape(array.shape)
    return np.asarray(array, dtype=float)


def _code(value: Any) -> float:
    return float(zlib.crc32(repr(value).encode()))


class Interview:
    """Collects answers; a question that the model refuses has none."""

    def __init__(self, model: Any):
        self.model = model
        self.answers: Answers = {}

    def ask(self, name: str, question: Callable[[], Any]) -> None:
        """Note the answer to a question, unless it is refused."""
        try:
            answer = question()
            if answer is not None:
                self.answers[name] = numbers(answer)
        except (ValueError, TypeError, AttributeError, NotImplementedError):
            return

    def call(self, method: str, *args: Any, **options: Any) -> None:
        """Note what a method returns."""
        self.ask(method, lambda: getattr(self.model, method)(*args, **options))

    def read(self, *names: str) -> None:
        """Note attributes."""
        for name in names:
            self.ask(name, lambda name=name: attribute(self.model, name))


def _regression(talk: Interview, Q: Any, data: Data) -> None:
    talk.call("predict", Q)
    talk.ask("std", lambda: talk.model.predict(data.Q, return_std=True)[1])
    talk.ask("deep_kernel", lambda: talk.model.deep_kernel_(data.Q))
    talk.read(
        "loo_predict_",
        "alpha_",
        "criterion_value_",
        "objective_value_",
        "layer_norms_",
        "approximation_error_",
    )


def _classification(talk: Interview, Q: Any, data: Data) -> None:
    for method in ("predict", "decision_function", "predict_proba", "entropy"):
        talk.call(method, Q)
    talk.read("alpha_", "criterion_value_", "objective_value_", "layer_norms_", "complexity_", "loo_estimates_")
    talk.read("feature_relevance_")
    talk.ask("risk_bound", lambda: talk.model._bound(0.05))  # also where its conditions do not hold


def _autoencoder(talk: Interview, Q: Any, data: Data) -> None:
    # Codes are compared up to the signs of their coordinates, by their distances.
    talk.ask("code_distances", lambda: _distances(talk.model.transform(Q)))
    talk.call("reconstruct", Q)
    talk.call("reconstruction_error", Q)
    talk.call("score", data.Q)
    talk.ask("bound", lambda: talk.model.generalization_bound()(1.0))
    talk.ask("deep_kernel", lambda: talk.model.deep_kernel_(data.Q))
    talk.read("alpha_", "criterion_value_", "objective_value_", "layer_norms_", "explained_variance_ratio_")


def _distances(codes: Any) -> np.ndarray:
    values = numbers(codes)
    return np.sqrt(((values[:, None] - values) ** 2).sum(-1))


def _structured(talk: Interview, Q: Any, data: Data) -> None:
    talk.call("predict", Q)
    talk.ask("topk", lambda: talk.model.predict_topk(data.Q, 3)[1])
    talk.ask("scores", lambda: talk.model.score_candidates(data.Q, _candidates(talk.model)))
    talk.ask("inner", lambda: talk.model.decision_embedding(data.Q).inner())
    pairs = (data.Q, getattr(talk.model, "Y_fit_", [])[:N_QUERIES])
    talk.ask("joint_kernel", lambda: talk.model.joint_kernel(*pairs, *pairs))
    talk.read("alpha_", "epsilon_", "n_components_", "criterion_value_")


def _candidates(model: Any) -> Any:
    outputs = model.Y_fit_
    return outputs[:8]


def _conditional(talk: Interview, Q: Any, data: Data) -> None:
    talk.call("weights", data.Q)
    talk.call("predict", Q)
    talk.call("mean", Q)
    talk.call("var", Q)
    talk.call("quantile", data.Q, (0.1, 0.5, 0.9))
    talk.call("cdf", data.Q, (-0.5, 0.3))
    talk.call("density", data.Q, (-0.5, 0.3))
    talk.call("sample", data.Q, 3)
    talk.ask("resampled", lambda: talk.model.sample(data.Q, 3, method="resampling"))
    talk.ask("expect", lambda: talk.model.expect(lambda y: np.abs(y) > 0.3, data.Q))
    talk.ask("inner", lambda: talk.model.embedding(data.Q).inner())
    talk.read("alpha_", "criterion_value_", "approximation_error_")


def _levels(talk: Interview, Q: Any, data: Data) -> None:
    model = talk.model
    talk.read("energy_", "eigenvalues_", "explained_variance_ratio_", "leading_", "n_components_")
    for level in range(len(model.n_components_)):
        talk.ask(f"inner_{level}", lambda level=level: _inner(model.transform(Q, level=level)))
        talk.ask(f"reconstruct_{level}", lambda level=level: model.reconstruct(data.Q, level=level))
    talk.call("score", data.Q)
    for density in ("gaussian", "kde"):
        talk.ask(f"sample_{density}", lambda density=density: model.sample(3, density=density, random_state=0))
    # The first level has simple eigenvalues; the direction of a component is arbitrary, and so is the order along it.
    talk.ask("traverse", lambda: np.sort(numbers(model.traverse(0, level=0, steps=3)), axis=0))
    talk.ask("eta", lambda: model.eta_for_explained_variance())
    talk.ask("bounds", lambda: list(model.approximation_bounds()))


def _inner(features: Any) -> np.ndarray:
    values = numbers(features)
    return values @ values.T


def _features(talk: Interview, Q: Any, data: Data) -> None:
    talk.ask("inner", lambda: _inner(talk.model.transform(Q)))
    talk.read("approximation_error_")


QUESTIONS: dict[str, Callable[[Interview, Any, Data], None]] = {
    "OperatorRidge": _regression,
    "DeepKernelRegressor": _regression,
    "DeepKernelClassifier": _classification,
    "KernelAutoencoder": _autoencoder,
    "StructuredPredictor": _structured,
    "ConditionalMeanEmbedding": _conditional,
    "EmbeddingClassifier": _classification,
    "DeepKernelPCA": _levels,
    "KernelFeatures": _features,
}


def ask(learner: str, model: Any, Q: Any, data: Data) -> Answers:
    """All answers of a fitted model; Q are the queries where a lazy collection may be given."""
    talk = Interview(model)
    QUESTIONS[learner](talk, Q, data)
    return talk.answers
