"""The settings of conjugate gradients for ridge regression on many landmarks."""

from __future__ import annotations

from representer.values import Value, is_count, is_real


class Falkon(Value):
    """Conjugate gradients for the normal equations of many landmarks (Rudi, Carratino & Rosasco, 2017).

    (a_j S + alpha Σ w) u_j = B_j is solved without the m × m matrix S = Σ w φφᵀ: each iteration passes over the
    samples once, for all outputs, in O(n m). In the place of S stands, in the preconditioner, what the landmarks say of
    it: LᵀL·n/m, with L the Cholesky factor of their Gram matrix.

    Parameters
    ----------
    tol : float
        Iterations end when the residual of every output is smaller than that of 0 by this factor. A larger value stops
        early, which regularises.
    max_iter : int
        Their largest number; if it is reached, a warning says so.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import OperatorRidge
    >>> from representer.approximation import Falkon, Nystroem
    >>> from representer.kernels import Gaussian
    >>> X = np.random.default_rng(0).uniform(-2, 2, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> options = {"alpha": 1e-4, "approximation": Nystroem(50), "random_state": 0}
    >>> direct = OperatorRidge(Gaussian(1.0), **options).fit(X, y).predict(X)
    >>> iterative = OperatorRidge(Gaussian(1.0), solver=Falkon(tol=1e-10), **options).fit(X, y).predict(X)
    >>> bool(np.abs(direct - iterative).max() < 1e-6)
    True
    """

    def __init__(self, tol: float = 1e-7, max_iter: int = 100):
        self.tol = tol
        self.max_iter = max_iter

    def check(self) -> None:
        """Refuse what is no tolerance, or no number of iterations."""
        if not (is_real(self.tol) and self.tol > 0):
            raise ValueError(f"tol of Falkon must be a positive number; got {self.tol!r}.")
        if not is_count(self.max_iter):
            raise ValueError(f"max_iter of Falkon must be a positive integer; got {self.max_iter!r}.")
