"""Deep kernel machines for any data, with the scikit-learn interface."""

from importlib.metadata import version

from representer import approximation, datasets, kernels, operators, plotting
from representer.estimators import (
    MACCS,
    AtomPairs,
    DeepKernelClassifier,
    DeepKernelRegressor,
    KernelAutoencoder,
    Morgan,
    OperatorRidge,
    Paths,
    Torsions,
)
from representer.expansions import Layer

__version__ = version("representer")

__all__ = [
    "MACCS",
    "AtomPairs",
    "DeepKernelClassifier",
    "DeepKernelRegressor",
    "KernelAutoencoder",
    "Layer",
    "Morgan",
    "OperatorRidge",
    "Paths",
    "Torsions",
    "__version__",
    "approximation",
    "datasets",
    "kernels",
    "operators",
    "plotting",
]
