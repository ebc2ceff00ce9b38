"""One function in a reproducing kernel Hilbert space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from representer.data import count, same_features
from representer.linalg.memory import row_blocks
from representer.operators import OperatorKernel


@dataclass(frozen=True)
class Expansion:
    """f = Σ_j K(·, z_j) c_j.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    anchors : prepared data
        The m points z_j.
    coefficients : tensor (m, p)
        The c_j.

    Examples
    --------
    >>> import torch
    >>> from representer.functions import Expansion
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> f = Expansion(Decomposable(Linear()), torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]]))
    >>> f([[1.0], [10.0]]).tolist(), f.squared_norm().item()
    ([[3.0], [30.0]], 9.0)
    """

    kernel: OperatorKernel
    anchors: Any
    coefficients: Tensor

    def __call__(self, X: Any) -> Tensor:
        """f(x_i), (n, p), in blocks of rows: no n × m matrix exists unless a gradient needs it."""
        X = self.kernel.prepare(X)
        if isinstance(X, Tensor) and self.kernel.domain in ("vectors", "gram"):
            X = X.to(self.coefficients)
            if self.kernel.domain == "vectors" and isinstance(self.anchors, Tensor):
                same_features(X, self.anchors)
        if isinstance(X, Tensor) and (X.requires_grad or X.ndim > 2):
            return self.kernel.apply(X, self.anchors, self.coefficients)
        bytes_per_row = self.coefficients.numel() * self.coefficients.element_size()
        blocks = row_blocks(count(X), bytes_per_row)
        parts = [self.kernel.apply(X[rows], self.anchors, self.coefficients) for rows in blocks]
        return torch.cat(parts, dim=-2)  # coefficients may be a batch

    def squared_norm(self) -> Tensor:
        """‖f‖² = Σ_ij ⟨c_i, K(z_i, z_j) c_j⟩."""
        return self.kernel.squared_norm(self.anchors, self.coefficients)
