"""Deep kernel machines for any data, with the scikit-learn interface."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from representer import approximation, kernels, operators, preimage
from representer.estimators import (
    MACCS,
    AtomPairs,
    CollapsedComponentWarning,
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    Morgan,
    OperatorRidge,
    Paths,
    StructuredPredictor,
    Torsions,
    load,
)
from representer.functions import Layer, herd, mean_embedding
from representer.persistence import Checkpoint

if TYPE_CHECKING:
    from representer import datasets, metrics, plotting
    from representer.metrics import mmd

__version__ = version("representer")

__all__ = [
    "MACCS",
    "AtomPairs",
    "Checkpoint",
    "CollapsedComponentWarning",
    "ConditionalMeanEmbedding",
    "DeepKernelClassifier",
    "DeepKernelPCA",
    "DeepKernelRegressor",
    "EmbeddingClassifier",
    "KernelAutoencoder",
    "KernelFeatures",
    "Layer",
    "Morgan",
    "OperatorRidge",
    "Paths",
    "StructuredPredictor",
    "Torsions",
    "__version__",
    "approximation",
    "datasets",
    "herd",
    "kernels",
    "load",
    "mean_embedding",
    "metrics",
    "mmd",
    "operators",
    "plotting",
    "preimage",
]


def __getattr__(name: str) -> Any:
    """Import the rooms that only some programs need when they are first asked for."""
    if name == "datasets":
        return import_module("representer.datasets")
    if name == "plotting":
        return import_module("representer.plotting")
    if name in ("metrics", "mmd"):
        metrics = import_module("representer.metrics")
        return metrics.mmd if name == "mmd" else metrics
    raise AttributeError(f"module 'representer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
