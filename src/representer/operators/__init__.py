"""Output operators and operator-valued kernels."""

from representer.operators.adapted import (
    Adapted,
    Projected,
    Representation,
    original,
    repaired_gram,
    searched,
    silent_repairs,
    takes_sparse,
)
from representer.operators.base import Decomposable, DiagonalForm, OperatorKernel, OperatorSum, Separate
from representer.operators.fields import CurlFree, DivergenceFree, Transformable
from representer.operators.joint import Coordinatewise, diagonal_regularization, joint_kernel
from representer.operators.outputs import (
    ConditionalCovariance,
    Covariance,
    DataDriven,
    Dense,
    Diagonal,
    Identity,
    Operator,
    PrincipalComponents,
    as_operator,
    clipped_spectrum,
)
from representer.operators.replicates import replicates

__all__ = [
    "Adapted",
    "ConditionalCovariance",
    "Coordinatewise",
    "Covariance",
    "CurlFree",
    "DataDriven",
    "Decomposable",
    "Dense",
    "Diagonal",
    "DiagonalForm",
    "DivergenceFree",
    "Identity",
    "Operator",
    "OperatorKernel",
    "OperatorSum",
    "PrincipalComponents",
    "Projected",
    "Representation",
    "Separate",
    "Transformable",
    "as_operator",
    "clipped_spectrum",
    "diagonal_regularization",
    "joint_kernel",
    "original",
    "repaired_gram",
    "replicates",
    "searched",
    "silent_repairs",
    "takes_sparse",
]
