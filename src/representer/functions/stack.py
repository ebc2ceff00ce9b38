"""Averages of functions: Σ_m w_m f_m, with weights of the functions or of each function's outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from representer.functions.base import Function
from representer.functions.expansion import Expansion
from representer.functions.features import FeatureFunction
from representer.samples import Data
from representer.values import same


@dataclass(frozen=True)
class Stacked(Function):
    """Σ_m w_m f_m, output by output.

    Parameters
    ----------
    functions : tuple of functions
        The members f_m, each of an RKHS of its own.
    weights : array (m, p), or (m, 1) for all outputs
        The w_m.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from representer.functions import Expansion, Stacked
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> f, g = (Expansion(Decomposable(Linear()), torch.ones(1, 1), torch.tensor([[slope]])) for slope in (1.0, 3.0))
    >>> Stacked((f, g), np.array([[0.25], [0.75]]))([[2.0]]).tolist()
    [[5.0]]
    """

    functions: tuple[Expansion | FeatureFunction, ...]
    weights: np.ndarray

    def __call__(self, X: Data) -> Tensor:
        """The weighted sum of the members' values (n, p); a member of weight zero is not evaluated."""
        return self._sum([f(X) if w.any() else None for f, w in zip(self.functions, self.weights, strict=True)])

    def contributions(self, X: Data) -> Tensor:
        """The weighted sum of the members' terms (n, terms, p), where these belong to the same samples or landmarks."""
        anchors = [getattr(f, "anchors", None) for f in self.functions]
        if anchors[0] is None or not all(same(anchors[0], other) for other in anchors[1:]):
            raise ValueError(
                "The members of this stack are sums over different samples, landmarks or features, so their terms have "
                "no common sum. Ask each member: function.functions[i].contributions(X)."
            )
        return self._sum([f.contributions(X) for f in self.functions])

    def norm(self) -> float:
        """Σ_m w_m ‖f_m‖, with the largest w_m of the outputs: a bound of the norm in the sum of the members' spaces."""
        norms = [w.max() * f.norm() for f, w in zip(self.functions, self.weights, strict=True) if w.any()]
        return float(sum(norms))

    @property
    def intercept(self) -> np.ndarray | None:
        """The weighted sum of the members' constants (p,); None where none has one."""
        constants = [getattr(f, "intercept", None) for f in self.functions]
        if all(b is None for b in constants):
            return None
        return sum(w * (0.0 if b is None else b) for b, w in zip(constants, self.weights, strict=True))

    def in_units(self, unit: float) -> Stacked:
        """The function times a unit."""
        return replace(self, functions=tuple(f.in_units(unit) for f in self.functions))

    def _sum(self, values: list[Tensor | None]) -> Tensor:
        terms = [
            value * torch.as_tensor(w, dtype=value.dtype, device=value.device)
            for value, w in zip(values, self.weights, strict=True)
            if value is not None
        ]
        return torch.stack(terms).sum(0)
