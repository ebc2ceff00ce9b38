"""Output operators and operator-valued kernels."""

from representer.operators.base import Decomposable, OperatorKernel, OperatorSum, Separate
from representer.operators.fields import CurlFree, DivergenceFree, Transformable
from representer.operators.joint import Coordinatewise, diagonal_regularization, joint_kernel
from representer.operators.outputs import (
    ConditionalCovariance,
    Covariance,
    Dense,
    Diagonal,
    Identity,
    Operator,
    PrincipalComponents,
)

__all__ = [
    "ConditionalCovariance",
    "Coordinatewise",
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
    "Transformable",
    "diagonal_regularization",
    "joint_kernel",
]
