"""The system of a composition's outer function: its samples are images under inner functions that were learned."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from representer.functions import Composed, Expansion, Stacked
from representer.linalg import factorize
from representer.operators import Decomposable, repaired_gram, silent_repairs
from representer.samples import Block, Data, Samples
from representer.systems.ridge import FitReport, FittedSystem, LeftOutMoments, Loss


@dataclass(frozen=True, kw_only=True)
class ComposedSystem(FittedSystem):
    """What is known of f_L ∘ … ∘ f_1 + b from the system of f_L, and from refits that learned the inner functions anew.

    Leave-one-out of the outer system alone holds the inner functions fixed, which have seen the sample that is left
    out: here left-out predictions are those of refits without whole folds.

    Parameters
    ----------
    inner : tuple of Expansion
        f_1, …, f_{L−1} as they are stored.
    outer : FittedSystem
        That of f_L, on images of the samples.
    held_out : array (n, p)
        For each sample of positive weight, the prediction by a refit without its fold.
    """

    inner: tuple[Expansion, ...]
    outer: FittedSystem
    held_out: np.ndarray

    @property
    def weight(self) -> float:
        return self.outer.weight

    def _images(self, X: Data) -> Data:
        """The images of checked inputs under the inner functions."""
        return self.function().images(X)[-1]

    def function(self) -> Composed:  # type: ignore[override]
        outer = self.outer.function()
        assert isinstance(outer, Expansion)
        return Composed(self.inner, outer)

    def coefficients(self) -> Tensor:
        """C (n, p) of the images of the samples."""
        return self.outer.coefficients()

    def intercept(self) -> Tensor | None:
        return self.outer.intercept()

    def residual(self) -> float:
        return self.outer.residual()

    def norm(self) -> float:
        """‖f_L‖, the norm of the outer function in its RKHS."""
        return self.outer.norm()

    def report(self, samples: Samples, loss: Loss) -> FitReport:
        return self.outer.report(samples, loss)

    def leverage(self) -> Tensor:
        """∂f(x_i)/∂y_i (n, p) with the inner functions held fixed."""
        return self.outer.leverage()

    def _refitted(self, like: Tensor) -> Tensor:
        return torch.from_numpy(self.held_out).to(like)

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """The prediction (n, p) for each sample by a refit without its fold, in which whole groups are."""
        values = self.outer.left_out(groups).clone()
        weights = None if self.samples is None else self.samples.weights
        positive = slice(None) if weights is None else torch.from_numpy(weights > 0)
        values[positive] = self._refitted(values)
        return values

    def left_out_sample(self) -> tuple[Block, Tensor]:
        """All samples of positive weight, and the prediction for each by a refit without its fold."""
        block, values = self.outer.left_out_sample()
        return block, self._refitted(values)

    def left_out_moments(self) -> LeftOutMoments:
        """The same predictions with the variances of the outer system."""
        own = self.outer.left_out_moments()
        return LeftOutMoments(own.Y, self._refitted(own.mean), own.variance)

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f_L + b at the images of new points."""
        return self.outer.variance(self._images(X))

    def influence(self, X: Data) -> Tensor:
        """f(x) − f₋ₛ(x) (m, n, p) at new points with the inner functions held fixed."""
        return self.outer.influence(self._images(X))

    def at_rest(self) -> ComposedSystem:
        """The system as a learner keeps it, without matrices of all samples."""
        return replace(self, outer=self.outer.at_rest())


def interpolation_error(function: Composed | Stacked) -> float | None:
    """The mean squared leave-one-out error of an interpolant, inner layers fixed: residuals are c_i / [K⁻¹]_ii.

    None where the outer kernel is not a scalar one.
    """
    outer = function.outer_expansion().loaded if isinstance(function, Composed) else None
    if outer is None or not isinstance(outer.kernel, Decomposable) or outer.kernel.operator is not None:
        return None
    with torch.no_grad(), silent_repairs():
        gram, _ = repaired_gram(outer.kernel.kernel, outer.anchors)
        diagonal = factorize(gram, name="The Gram matrix of an interpolant").inverse_diagonal()
    return float((outer.coefficients / diagonal[:, None]).square().sum(1).mean())
