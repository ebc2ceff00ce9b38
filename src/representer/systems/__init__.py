"""Ridge systems: (K + diag(noise))⁻¹ of a squared loss, with or without a constant beside f.

``ridge_system`` solves for vectors of targets, whatever the samples and their number, and gives the ``FittedSystem``
that a learner keeps: leave-one-out predictions, variances and more samples are asked of it. Under it stand the exact
systems of operator-valued kernels (``factor_system``), sums over samples, and Falkon. ``systems.scalar`` is for
objectives inside of a search: batches of Gram matrices, and gradients in them. ``systems.structured`` is for targets in
the space of an output kernel.
"""

from representer.systems.base import (
    Criterion,
    Groups,
    System,
    check_size,
    least_shift,
    linear_origin,
    refuse_lost_size,
    relative_norm,
    shift_range,
)
from representer.systems.composed import ComposedSystem, StackedSystem, interpolation_error
from representer.systems.exact import RidgeData, factor_system, has_few_features
from representer.systems.ridge import (
    AlphaRule,
    FittedSystem,
    LeftOutMoments,
    SummedSystem,
    ridge_system,
    robust_scale,
    summed_system,
)
from representer.systems.scope import Scope, goes_by_sums
from representer.systems.support import Support, least_doubt, trust

__all__ = [
    "AlphaRule",
    "ComposedSystem",
    "Criterion",
    "FittedSystem",
    "Groups",
    "LeftOutMoments",
    "RidgeData",
    "Scope",
    "StackedSystem",
    "SummedSystem",
    "Support",
    "System",
    "check_size",
    "factor_system",
    "goes_by_sums",
    "has_few_features",
    "interpolation_error",
    "least_doubt",
    "least_shift",
    "linear_origin",
    "refuse_lost_size",
    "relative_norm",
    "ridge_system",
    "robust_scale",
    "shift_range",
    "summed_system",
    "trust",
]
