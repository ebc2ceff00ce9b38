"""Products of matrices whose rows do not depend on the rows that stand beside them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

# Rows of a product come in multiples of this, rows and columns have even lengths (or one entry). Otherwise the rounding
# of a row depends on where it stands (MKL), and the value of a function must not depend on the block that x comes in.
ALIGNED_ROWS = 8
# So many rows are copied at a time, where they have to be.
COPIED_ROWS = 1024


def row_product(left: Tensor, right: Tensor) -> Tensor:
    """A B, with rows that are the same to the last bit whatever the other rows of A are.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import row_product
    >>> A = torch.rand(13, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> torch.equal(row_product(A, A.mT)[3:5], row_product(A[3:5], A.mT))
    True
    """
    learned = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
    if learned or left.ndim != 2 or right.ndim != 2 or left.device.type != "cpu":
        return left @ right
    n, p = len(left), right.shape[1]
    odd, wider = left.shape[1] % 2, p % 2 if p > 1 else 0
    right = pad(right, (0, wider, 0, odd)) if odd or wider else right
    product = left.new_empty(n, p + wider)
    whole = 0 if odd else n - n % ALIGNED_ROWS
    if whole:
        torch.mm(left[:whole], right, out=product[:whole])
    for start in range(whole, n, COPIED_ROWS):
        rows = left[start : start + COPIED_ROWS]
        padded = pad(rows, (0, odd, 0, -len(rows) % ALIGNED_ROWS))
        product[start : start + len(rows)] = (padded @ right)[: len(rows)]
    return product[:, :p].contiguous()
