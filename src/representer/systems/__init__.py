"""Ridge systems: (K + diag(noise))⁻¹ of a squared loss, with or without a constant beside f.

``ridge_system`` solves for vectors of targets, whatever the samples and their number, and gives the ``FittedSystem``
that a learner keeps: leave-one-out predictions, variances and more samples are asked of it. Under it stand the exact
systems of operator-valued kernels (``factor_system``), sums over samples, and Falkon. ``systems.scalar`` is for
objectives inside of a search: batches of Gram matrices, and gradients in them. ``systems.structured`` is for targets in
the space of an output kernel.
"""

from representer.systems.base import Criterion, Groups, Scope, System
from representer.systems.composed import StackedSystem
from representer.systems.exact import RidgeData, factor_system
from representer.systems.ridge import FittedSystem, ridge_system

__all__ = [
    "Criterion",
    "FittedSystem",
    "Groups",
    "RidgeData",
    "Scope",
    "StackedSystem",
    "System",
    "factor_system",
    "ridge_system",
]
