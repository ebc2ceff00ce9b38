"""Units that are powers of two: a change of units rounds nothing, and keeps squares in range."""

from __future__ import annotations

import torch
from torch import Tensor


def power_of_two(sizes: Tensor) -> Tensor:
    """The powers of two next below positive sizes; 1 where a size is zero or not finite.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import power_of_two
    >>> power_of_two(torch.tensor([5.0, 0.3, 0.0])).tolist()
    [4.0, 0.25, 1.0]
    """
    _, exponents = torch.frexp(torch.where((sizes > 0) & sizes.isfinite(), sizes, 1.0).detach())
    return torch.ldexp(torch.ones_like(sizes), exponents - 1)
