"""Output operators and operator-valued kernels."""

from representer.operators.adapted import (
    Adapted,
    Projected,
    Representation,
    original,
    repaired_gram,
    replicates,
    searched,
    silent_repairs,
    takes_gaps,
    takes_sparse,
)
from representer.operators.adapted import left_out_together as left_out_together
from representer.operators.base import (
    ConditionalCovariance,
    Covariance,
    DataDriven,
    Decomposable,
    Dense,
    Diagonal,
    DiagonalForm,
    Identity,
    Operator,
    OperatorKernel,
    OperatorSum,
    PrincipalComponents,
    Separate,
    as_operator,
    clipped_spectrum,
)

# Names for the rooms below, which are no part of the room's pages.
from representer.operators.base import as_operator_kernel as as_operator_kernel
from representer.operators.base import kernel_domain as kernel_domain
from representer.operators.fields import CurlFree, DivergenceFree, Transformable
from representer.operators.joint import (
    Coordinatewise,
    Patchwise,
    diagonal_regularization,
    joint_kernel,
    mean_kernel,
    square_patches,
)

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
    "Patchwise",
    "PrincipalComponents",
    "Projected",
    "Representation",
    "Separate",
    "Transformable",
    "as_operator",
    "clipped_spectrum",
    "diagonal_regularization",
    "joint_kernel",
    "mean_kernel",
    "original",
    "repaired_gram",
    "replicates",
    "searched",
    "silent_repairs",
    "square_patches",
    "takes_gaps",
    "takes_sparse",
]
