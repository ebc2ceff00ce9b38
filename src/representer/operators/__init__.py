"""Output operators and operator-valued kernels."""

from representer.operators.base import Decomposable, OperatorKernel, OperatorSum, Separate
from representer.operators.fields import CurlFree, DivergenceFree, Transformable
from representer.operators.outputs import (
    ConditionalCovariance,
    Covariance,
    Dense,
    Diagonal,
    Identity,
    Operator,
    PrincipalComponents,
)
from representer.operators.systems import System, factor_system

__all__ = [
    "ConditionalCovariance",
    "Covariance",
    "CurlFree",
    "Decomposable",
    "Dense",
    "Diagonal",
    "DivergenceFree",
    "Identity",
    "Operator",
    "OperatorKernel",
    "OperatorSum",
    "PrincipalComponents",
    "Separate",
    "System",
    "Transformable",
    "factor_system",
]
