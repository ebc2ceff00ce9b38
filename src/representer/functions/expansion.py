"""Functions as sums over points: Σ_j K(·, z_j) c_j + b."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from representer.functions.base import Function
from representer.linalg import by_rows, row_blocks
from representer.operators import Decomposable, OperatorKernel, Representation, original
from representer.samples import Array, Data, count, plain, same_features


@dataclass(frozen=True)
class Expansion(Function):
    """f = Σ_j K(·, z_j) c_j + b.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    anchors : data
        The m points z_j: prepared, or with a ``representation`` as they are stored.
    coefficients : tensor or array (m, p)
        The c_j.
    intercept : tensor or array (p,), or None for zero
        b.
    representation : Representation or None
        How stored arrays become tensors; None: they are tensors.

    Examples
    --------
    >>> import torch
    >>> from representer.functions import Expansion
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> f = Expansion(Decomposable(Linear()), torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]]))
    >>> f([[1.0], [10.0]]).tolist(), f.norm()
    ([[3.0], [30.0]], 3.0)
    """

    kernel: OperatorKernel
    anchors: Data
    coefficients: Array
    intercept: Array = None
    representation: Representation | None = None

    def stored(self, representation: Representation) -> Expansion:
        """The same function as a learner keeps it, in memory of its own."""
        b = self.intercept
        return Expansion(
            original(self.kernel),
            plain(self.anchors, copy=True),
            plain(self.coefficients, copy=True),
            None if b is None else plain(b, copy=True),
            representation,
        )

    @cached_property
    def loaded(self) -> Expansion:
        """The same function of tensors and prepared anchors."""
        how = self.representation
        if how is None:
            return self
        kernel = how.adapted(self.kernel, repair=False)
        b = None if self.intercept is None else how.tensor(self.intercept)
        return Expansion(kernel, how.inputs(kernel, self.anchors), how.tensor(self.coefficients), b)

    def _inputs(self, X: Data) -> Any:
        """New inputs as the kernel takes them."""
        f = self.loaded
        X = f.kernel.prepare(X) if self.representation is None else self.representation.inputs(f.kernel, X)
        if isinstance(X, Tensor) and f.kernel.domain in ("vectors", "gram"):
            X = X.to(f.coefficients)
            if f.kernel.domain == "vectors" and isinstance(f.anchors, Tensor):
                same_features(X, f.anchors)
        return X

    def __call__(self, X: Data) -> Tensor:
        """f(x_i), (n, p), in blocks of rows: no n × m matrix exists unless a gradient needs it."""
        f, X = self.loaded, self._inputs(X)
        if isinstance(X, Tensor) and (X.requires_grad or X.ndim > 2):
            values = f.kernel.apply(X, f.anchors, f.coefficients)
        else:
            m, p = f.coefficients.shape[-2:]
            numbers = 2 * (m + p) if isinstance(f.kernel, Decomposable) else m * p
            bytes_per_row = numbers * f.coefficients.element_size()
            values = by_rows(lambda rows: f.kernel.apply(X[rows], f.anchors, f.coefficients), count(X), bytes_per_row)
        return values if f.intercept is None else values + f.intercept

    def contributions(self, X: Data) -> Tensor:
        """The terms K(x_i, z_j) c_j, (n, m, p), of the anchors, in blocks of rows."""
        f, X = self.loaded, self._inputs(X)
        m, p = f.coefficients.shape
        terms = f.coefficients.new_empty(count(X), m, p)
        with torch.no_grad():
            for rows in row_blocks(count(X), 2 * m * p * p * terms.element_size()):
                block = X[rows]
                if isinstance(f.kernel, Decomposable):
                    gram = f.kernel.kernel._gram(block, f.anchors)
                    terms[rows] = gram[:, :, None] * (f.coefficients @ f.kernel._matrix(f.coefficients))
                else:
                    blocks = f.kernel.dense(block, f.anchors, p).reshape(-1, p, m, p)
                    terms[rows] = torch.einsum("iajb,jb->ija", blocks, f.coefficients)
        return terms

    def squared_norm(self) -> Tensor:
        """‖f‖² = Σ_ij ⟨c_i, K(z_i, z_j) c_j⟩, differentiable."""
        return self.loaded.kernel.squared_norm(self.loaded.anchors, self.loaded.coefficients)

    def norm(self) -> float:
        """‖f‖, the square root of Σ_ij ⟨c_i, K(z_i, z_j) c_j⟩."""
        return float(self.squared_norm().clamp(min=0.0).sqrt())
