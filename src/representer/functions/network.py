"""A composition of functions as a network: the view of section 3.3.1 in Bohn et al."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from representer.functions.expansion import Expansion
from representer.samples import Data


class CompositionNetwork(torch.nn.Module):
    """f_1 ∘ … ∘ f_L + b as a ``torch.nn.Module``: a layer's neurons are its anchors, its weights the coefficients.

    Parameters
    ----------
    functions : sequence of Expansion
        From the input on.
    intercept : tensor (p,), optional

    Examples
    --------
    >>> import torch
    >>> from representer.functions import Expansion, CompositionNetwork
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> double = Expansion(Decomposable(Linear()), torch.tensor([[1.0]]), torch.tensor([[2.0]]))
    >>> CompositionNetwork([double, double], intercept=torch.tensor([1.0]))(torch.tensor([[3.0]])).tolist()
    [[13.0]]
    """

    def __init__(self, functions: Sequence[Expansion], intercept: Tensor | None = None):
        super().__init__()
        self.kernels = [function.kernel for function in functions]
        self.objects: dict[int, Any] = {}  # anchors that are no tensors
        for i, function in enumerate(functions):
            if isinstance(function.anchors, Tensor):
                self.register_buffer(f"anchors_{i}", function.anchors.detach().clone())
            else:
                self.objects[i] = function.anchors
            self.register_parameter(f"coefficients_{i}", torch.nn.Parameter(function.coefficients.detach().clone()))
        self.intercept = None if intercept is None else torch.nn.Parameter(intercept.detach().clone())

    def forward(self, X: Data) -> Tensor:
        """The values (n, p)."""
        for i, kernel in enumerate(self.kernels):
            anchors = self.objects[i] if i in self.objects else getattr(self, f"anchors_{i}")
            X = Expansion(kernel, anchors, getattr(self, f"coefficients_{i}"))(X)
        return X if self.intercept is None else X + self.intercept

    def extra_repr(self) -> str:
        """The kernels, which no weight or buffer shows."""
        return ", ".join(map(repr, self.kernels))
