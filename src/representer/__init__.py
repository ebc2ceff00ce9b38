"""Deep kernel machines for any data, with the scikit-learn interface."""

from representer import approximation, kernels, operators
from representer.estimators import OperatorRidge

__version__ = "0.1.0"

__all__ = ["OperatorRidge", "__version__", "approximation", "kernels", "operators"]
