"""Samples that belong together, and matrices with one block for each group of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """A partition of n rows into groups, which are left out together; groups of the same size are one batch.

    Parameters
    ----------
    members : tuple of tensors of int (g, s)
        The rows of g groups with s rows each, one tensor for each size s.

    Examples
    --------
    >>> import torch
    >>> from representer.systems.groups import Groups
    >>> groups = Groups.of(["a", "b", "a", "c"])
    >>> [members.tolist() for members in groups.members]
    [[[1], [3]], [[0, 2]]]
    """

    members: tuple[Tensor, ...]

    @classmethod
    def of(cls, labels: Any, device: torch.device | str | None = None) -> Groups:
        """The partition of rows by labels (n,), one for each row."""
        _, numbers, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
        rows = np.split(np.argsort(numbers, kind="stable"), np.cumsum(sizes)[:-1])
        stacks = [np.stack([group for group in rows if len(group) == size]) for size in np.unique(sizes)]
        return cls(tuple(torch.from_numpy(stack).to(device) for stack in stacks))

    def to(self, device: torch.device) -> Groups:
        """The same partition on another device."""
        return Groups(tuple(members.to(device) for members in self.members))

    def blocks(self, matrix: Tensor) -> list[Tensor]:
        """The diagonal blocks (..., g, s, s) of a matrix (..., n, n), one tensor for each size."""
        return [matrix[..., members[:, :, None], members[:, None, :]] for members in self.members]

    def parts(self, values: Tensor) -> list[Tensor]:
        """The rows (..., g, s, q) of values (..., n, q), one tensor for each size."""
        return [values[..., members, :] for members in self.members]

    def joined(self, parts: list[Tensor], like: Tensor) -> Tensor:
        """The values (..., n, q) of which ``parts`` are the rows."""
        result = torch.empty_like(like)
        for members, part in zip(self.members, parts, strict=True):
            result[..., members, :] = part
        return result


@dataclass(frozen=True)
class BlockDiagonal:
    """A symmetric matrix (..., n, n) with a block for each group and zeros elsewhere."""

    groups: Groups
    blocks: list[Tensor]

    def __matmul__(self, right: Tensor) -> Tensor:
        parts = zip(self.blocks, self.groups.parts(right), strict=True)
        return self.groups.joined([block @ part for block, part in parts], right)

    def inner(self, blocks: list[Tensor]) -> Tensor:
        """The inner product with a matrix of which the diagonal blocks are given."""
        products = [(own * other).sum((-3, -2, -1)) for own, other in zip(self.blocks, blocks, strict=True)]
        return torch.stack(products).sum(0)


@dataclass(frozen=True)
class LeftOut:
    """The errors y_i − f₋ᵢ(x_i) of samples that were left out, one by one or in groups, and their derivatives.

    With S the group of i, they are E_S = P_SS⁻¹ C_S. From dP = −P dW P and dC = −P dW C follows, for a function whose
    gradient in E is Γ and with Z_S = P_SS⁻¹ Γ_S, that its gradient in W is P B P − (PZCᵀ + CZᵀP)/2, where B is
    block-diagonal with the symmetric parts of E_S Z_Sᵀ.

    Parameters
    ----------
    errors : tensor (..., n, q)
        E.
    inverse : tensor (..., n, 1), or list of Cholesky factors (..., g, s, s)
        The diagonal of P, or the factors of its blocks.
    groups : Groups or None
        None: every sample is a group of its own.
    """

    errors: Tensor
    inverse: Any
    groups: Groups | None = None

    @classmethod
    def of(cls, dual: Tensor, diagonal: Tensor) -> LeftOut:
        """Leave samples out one by one; ``diagonal`` (..., n) is that of P."""
        return cls(dual / diagonal[..., None], diagonal[..., None])

    @classmethod
    def of_groups(cls, dual: Tensor, blocks: list[Tensor], groups: Groups) -> LeftOut:
        """Leave groups out; the ``blocks`` are those of P."""
        factors = [torch.linalg.cholesky_ex(block)[0] for block in blocks]
        return cls(_solved(groups, factors, dual), factors, groups)

    def pulled(self, slope: Tensor) -> tuple[Tensor, Tensor | BlockDiagonal]:
        """Z (..., n, q) and B, or its diagonal (..., n), for a gradient Γ in the errors."""
        if self.groups is None:
            Z = slope / self.inverse
            return Z, (self.errors * Z).sum(-1)
        Z = _solved(self.groups, self.inverse, slope)
        halves = [E @ part.mT for E, part in zip(self.groups.parts(self.errors), self.groups.parts(Z), strict=True)]
        return Z, BlockDiagonal(self.groups, [0.5 * (half + half.mT) for half in halves])


def _solved(groups: Groups, factors: list[Tensor], right: Tensor) -> Tensor:
    parts = zip(factors, groups.parts(right), strict=True)
    return groups.joined([torch.cholesky_solve(part, factor) for factor, part in parts], right)
