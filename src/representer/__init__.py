"""Deep kernel machines for any data, with the scikit-learn interface."""

from importlib.metadata import version

from representer import approximation, datasets, kernels, operators, plotting
from representer.estimators import DeepKernelClassifier, DeepKernelRegressor, OperatorRidge
from representer.expansions import Layer

__version__ = version("representer")

__all__ = [
    "DeepKernelClassifier",
    "DeepKernelRegressor",
    "Layer",
    "OperatorRidge",
    "__version__",
    "approximation",
    "datasets",
    "kernels",
    "operators",
    "plotting",
]
