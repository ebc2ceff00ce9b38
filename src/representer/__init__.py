"""Deep kernel machines for any data, with the scikit-learn interface."""

from importlib.metadata import version

from representer import approximation, kernels, operators
from representer.estimators import OperatorRidge

__version__ = version("representer")

__all__ = ["OperatorRidge", "__version__", "approximation", "kernels", "operators"]
