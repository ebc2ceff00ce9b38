"""Deep kernel machines for any data, with the scikit-learn interface."""

from importlib.metadata import version

from representer import approximation, kernels, operators
from representer.estimators import MACCS, AtomPairs, Morgan, OperatorRidge, Paths, Torsions

__version__ = version("representer")

__all__ = [
    "MACCS",
    "AtomPairs",
    "Morgan",
    "OperatorRidge",
    "Paths",
    "Torsions",
    "__version__",
    "approximation",
    "kernels",
    "operators",
]
