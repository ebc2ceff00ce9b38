"""The only optimisation loops: L-BFGS with batched, raced restarts, and Adam on sub-batches.

Both minimise a smooth function of a flat vector. They know nothing of kernels or data; they stop
by one :class:`StoppingRule`, report through one history, and return one :class:`OptimizeResult`.
An interrupted run (Ctrl-C, or a deadline) keeps the best point it has seen. :func:`newton` finds the last digits
of a few unknowns.
"""

from representer.optimize.quasi_newton import lbfgs, minimise, newton, random_starts
from representer.optimize.search import (
    LIKELY,
    OPTIMISM,
    Callback,
    Choice,
    Deadline,
    HistoryEntry,
    Monitor,
    OptimizeResult,
    OutOfTimeError,
    Problem,
    SearchSettings,
    StoppingRule,
    as_seconds,
    attraction,
    best_alpha,
    check_limits,
    in_squared_units,
    indifference,
    keep_going,
    learned_numbers,
    least,
    least_error,
    log_spaced,
    system_alpha,
    with_gradient,
)
from representer.optimize.stochastic import DivergenceError, adam

__all__ = [
    "LIKELY",
    "OPTIMISM",
    "Callback",
    "Choice",
    "Deadline",
    "DivergenceError",
    "HistoryEntry",
    "Monitor",
    "OptimizeResult",
    "OutOfTimeError",
    "Problem",
    "SearchSettings",
    "StoppingRule",
    "adam",
    "as_seconds",
    "attraction",
    "best_alpha",
    "check_limits",
    "in_squared_units",
    "indifference",
    "keep_going",
    "lbfgs",
    "learned_numbers",
    "least",
    "least_error",
    "log_spaced",
    "minimise",
    "newton",
    "random_starts",
    "system_alpha",
    "with_gradient",
]
