"""Deep kernel machines for any data, with the scikit-learn interface."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from representer import approximation, datasets, kernels, metrics, operators, plotting, preimage
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
    from representer.metrics import mmd
    from representer.persistence import Checkpoint

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


# Where the public names that are no rooms themselves stand; all others are estimators.
HOMES = {
    "Checkpoint": "persistence",
    "Layer": "functions",
    "herd": "functions",
    "mean_embedding": "functions",
    "mmd": "metrics",
}
ROOMS = ("approximation", "datasets", "kernels", "metrics", "operators", "plotting", "preimage")


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is first asked for: the command answers without torch and scikit-learn."""
    if name in ROOMS:
        return import_module(f"representer.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'representer' has no attribute {name!r}")
    return getattr(import_module(f"representer.{HOMES.get(name, 'estimators')}"), name)


def __dir__() -> list[str]:
    return __all__
