"""Deep kernel machines for any data, with the scikit-learn interface."""

from importlib.metadata import version

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
)
from representer.functions import Layer, herd, mean_embedding
from representer.metrics import mmd

__version__ = version("representer")

__all__ = [
    "MACCS",
    "AtomPairs",
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
    "mean_embedding",
    "metrics",
    "mmd",
    "operators",
    "plotting",
    "preimage",
]
