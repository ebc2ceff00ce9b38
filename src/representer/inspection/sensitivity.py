"""What a change of an input does to a function: gradients of vectors, removal of the parts of objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from representer.samples import plain


def gradients(function: Callable[[Tensor], Tensor], X: Tensor) -> np.ndarray:
    """∂f_j/∂x (n, d, p) at vectors (n, d), by automatic differentiation; rows of f depend on their own input only.

    Examples
    --------
    >>> import torch
    >>> from representer.inspection.sensitivity import gradients
    >>> gradients(lambda X: X**2, torch.tensor([[3.0], [4.0]])).tolist()
    [[[6.0]], [[8.0]]]
    """
    X = X.detach().clone().requires_grad_()
    values = function(X)
    columns = [torch.autograd.grad(values[:, j].sum(), X, retain_graph=True)[0] for j in range(values.shape[1])]
    return plain(torch.stack(columns, -1))


def removal_effects(answer: Callable[[Sequence[str]], np.ndarray], text: str) -> np.ndarray:
    """f(x) − f(x without its i-th character) for each of them, (length,) or (length, p).

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.sensitivity import removal_effects
    >>> removal_effects(lambda texts: np.array([text.count("a") for text in texts]), "banana").tolist()
    [0, 1, 0, 1, 0, 1]
    """
    without = [text[:i] + text[i + 1 :] for i in range(len(text))]
    values = answer([text, *without])
    return values[0] - values[1:]
