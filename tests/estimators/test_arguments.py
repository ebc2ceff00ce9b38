"""No argument is ignored under the default kernel: it changes the fit, is refused, or says what it is for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

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
from representer.approximation import Nystroem

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.column_stack([np.sin(2 * X[:, 0]) + X[:, 1], X[:, 0]]) + 0.3 * RNG.normal(size=(30, 2))
LABELS = np.where(Y[:, 0] > 0, "a", "b")
LEARNERS = {
    kind.__name__: kind
    for kind in (
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
}
OTHER: dict[str, Any] = {
    "alpha": 0.3,
    "approximation": Nystroem(4),
    "calibration": None,
    "class_weight": {"a": 5.0, "b": 1.0},
    "complexity_weight": 3.0,
    "criterion": "gcv",
    "decoder_kernel": "laplacian",
    "dtype": "float32",
    "encoder_alpha": 0.3,
    "eta": [1.0, 3.0],
    "extension": "smoother",
    "init": "random",
    "kernel": "laplacian",
    "layers": 1,
    "loss": "huber",
    "max_iter": 1,
    "norm_bounds": [2.0, 2.0],
    "operator": "learn",
    "output_kernel": "laplacian",
    "solver": "adam",
    "start": {"alpha": 10.0},
    "supervision": 0.5,
    "target": "kernel",
    "tol": 0.5,
    "trim": 0.2,
}
# Arguments of how long a search takes, what it prints and where it runs: they need not change what it finds.
PRACTICAL = ("device", "max_time", "memory_limit", "n_restarts", "random_state", "verbose", "warm_start")
# Arguments for another value of an argument, whose documentation names it.
FOR_OTHERS = {
    "batch_size": "adam|partial_fit",
    "clip": "cross entropy",
    "cv": "fold|split",
    "delta": "huber",
    "epsilon": "epsilon",
    "learning_rate": "adam",
    "penalty": "layers|penalty",
    "preimage": "reconstruct|invers|decod",
    "shrinkage": "lengthscale",
    "separation": "interpol|margin|hinge|separat",
    "task_loss": "task",
    "validation_fraction": "validation|held",
    "decoder": "candidates",
    "n_components": "component",
}


def asked(learner: Any) -> np.ndarray:
    """The answers of a fit and what it has chosen, as numbers."""
    learner.fit(X, LABELS if "Classifier" in type(learner).__name__ else Y)
    for question in ("predict_proba", "transform", "predict"):
        if hasattr(learner, question):
            chosen = [np.ravel(getattr(learner, name, 0.0)) for name in ("alpha_", "criterion_value_")]
            answers = np.ravel(getattr(learner, question)(X))
            return np.nan_to_num(np.concatenate([answers, *chosen]).astype(np.float64))
    raise AssertionError(learner)


def documentation(kind: type, argument: str) -> str:
    """What the class says of an argument."""
    found = re.search(
        rf"^    [\w, ]*\b{argument}\b[\w, ]* : .*\n((?:        .*\n|\n)+)", kind.__doc__ or "", re.MULTILINE
    )
    return found[0] if found else ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LEARNERS)
def test_every_argument_changes_the_fit_or_is_refused_or_is_for_another_one(name: str) -> None:
    kind = LEARNERS[name]
    torch.manual_seed(0)
    seeded = {"random_state": 0}
    expected, ignored = asked(kind(**seeded)), []
    for argument, default in kind(**seeded).get_params(deep=False).items():
        if argument in PRACTICAL:
            continue
        if argument in FOR_OTHERS:
            assert re.search(FOR_OTHERS[argument], documentation(kind, argument), re.IGNORECASE), argument
            continue
        try:
            other = not default if isinstance(default, bool) else OTHER[argument]
            answers = asked(kind(**seeded, **{argument: other}))
        except (AttributeError, TypeError, ValueError) as error:
            assert argument in str(error), (argument, str(error))
            continue
        if answers.shape == expected.shape and np.allclose(answers, expected, rtol=1e-9, atol=1e-12):
            ignored.append(argument)
    assert ignored == []
