"""Ridge regression on many landmarks by conjugate gradients with the preconditioner of Falkon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from representer.approximation.base import FeatureMap
from representer.linalg import Cholesky, conjugate_gradient, factorize, shifted
from representer.parameters import is_count, is_real
from representer.samples.in_memory import Block, Samples, Step
from representer.values import Value


@dataclass(frozen=True)
class ProductStep(Step):
    """Σ w c(x) (c(x)ᵀV − y) for the columns c of the features (k(Z, x) for landmarks); without V, Σ w c(x) yᵀ."""

    features: FeatureMap
    coefficients: Tensor | None = None

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """The columns, and what the kernel needs to make them."""
        return 2 * self.features.n_features * self.features.dtype.itemsize

    def __call__(self, block: Block, total: Tensor | None) -> Tensor:
        columns = self.features.columns(block.X)
        values = block.Y.to(columns) if self.coefficients is None else columns @ self.coefficients.to(columns)
        if block.weights is not None:
            values = values * block.weights.to(values)[:, None]
        product = (columns.mT @ values).double()
        return product if total is None else total.add_(product)


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

    def solve(
        self,
        features: FeatureMap,
        source: Samples,
        preconditioner: Tensor,
        *,
        shift: float,
        weight: float,
        scales: Tensor,
        rotation: Tensor | None,
        limit: int | None = None,
    ) -> tuple[Tensor, str | None]:
        """U (m, p) as of ``NormalRidge.coefficients``, and what kept the iterations from the tolerance, if anything.

        ``preconditioner`` (r, m) are the features of samples that stand for all, ``weight`` is Σ w, and ``shift`` is
        alpha Σ w.
        """
        inner = (preconditioner.mT @ preconditioner).double() * (weight / len(preconditioner))
        factors: dict[float, Cholesky] = {}
        for scale in scales.tolist():
            if scale not in factors:
                factors[scale] = factorize(
                    partial(_shifted, inner, scale, shift), name="The preconditioner of Falkon"
                )
        members = {a: (scales == a).nonzero()[:, 0] for a in factors}

        def precondition(residual: Tensor) -> Tensor:
            solved = torch.empty_like(residual)
            for a, factor in factors.items():
                solved[:, members[a]] = factor.solve(residual[:, members[a]])
            return solved

        def product(coefficients: Tensor | None) -> Tensor:
            columns = None if coefficients is None else features.coefficients(coefficients.to(features.dtype))
            sums = source.total(ProductStep(features, columns), limit=limit)
            return features.transposed(sums.to(features.dtype)).double()

        right = product(None)
        right = right if rotation is None else right @ rotation
        iterations, curved = 0, True

        def apply(values: Tensor) -> Tensor:
            nonlocal iterations, curved
            iterations += 1
            image = scales * product(values) + shift * values
            curved = bool(((values * image).sum(0) >= 0).all())  # false also for NaN
            return image

        found = conjugate_gradient(
            apply,
            right,
            precondition=precondition,
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            name="the normal equations of the landmarks",
            strict=False,
            columnwise=True,
        )
        problem = None
        if not curved:
            problem = (
                f"met a direction without positive curvature in iteration {iterations}: rounding errors of the blocks "
                "outweigh alpha. Use dtype='float64' or a larger alpha"
            )
        elif iterations >= int(self.max_iter):
            problem = (
                f"have not reached {self!r} after {self.max_iter} iterations. Increase alpha, max_iter or tol"
            )
        return found if rotation is None else found @ rotation.mT, problem


def _shifted(inner: Tensor, scale: float, shift: float) -> Tensor:
    return shifted(scale * inner, shift)
