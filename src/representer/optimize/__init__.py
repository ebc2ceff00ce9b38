"""The only optimisation loops: L-BFGS with batched, raced restarts, and Adam on sub-batches.

Both minimise a smooth function of a flat vector. They know nothing of kernels or data; they stop
by one :class:`StoppingRule`, report through one history, and return one :class:`OptimizeResult`.
An interrupted run (Ctrl-C) keeps the best point it has seen. :func:`newton` finds the last digits
of a few unknowns.
"""

from representer.optimize.newton import newton
from representer.optimize.quasi_newton import lbfgs
from representer.optimize.runs import Callback, HistoryEntry, OptimizeResult, StoppingRule, with_gradient
from representer.optimize.stochastic import DivergenceError, adam

__all__ = [
    "Callback",
    "DivergenceError",
    "HistoryEntry",
    "OptimizeResult",
    "StoppingRule",
    "adam",
    "lbfgs",
    "newton",
    "with_gradient",
]
