"""What a ridge system is: the squared-loss problem of some samples, solved, and what can be asked of its solution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Kernel, Linear, Scaled
from representer.linalg import power_of_two, row_blocks
from representer.operators import Adapted, original
from representer.samples import Data
from representer.samples import rows as limits

Criterion = Literal["loo", "gcv"]


class System(ABC):
    """min over f and b of Σ_i ‖y_i − f(x_i) − b‖²/noise_i + ‖f‖², with noise_i = alpha·Σw/w_i; b may be zero.

    Every system knows its coefficients and its backward error. What a kind of system cannot answer it refuses with a
    ``ValueError`` that says why. Criteria with gradients in what shapes the Gram matrix are objectives, not systems.
    """

    refinable = True  # does the criterion of more alphas cost no more than products?
    leaves_out = True  # are there predictions by fits without a sample?
    approximation_error: float | None = None  # that of the features, where there are some

    @abstractmethod
    def coefficients(self) -> Tensor:
        """C (n, p) of the samples, zero where a target is missing; or U (m, p) of the features, f(x) = φ(x)ᵀU A."""

    def intercept(self) -> Tensor | None:
        """The constant b (p,), or None where there is none."""
        return None

    def slopes(self) -> Tensor | None:
        """The sum Xᵀ C (d, p) of a linear kernel with fewer features than samples; None for any other kernel."""
        return None

    @abstractmethod
    def residual(self) -> float:
        """The backward error: the norm of what the equations miss at known targets, over that of their right side."""

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """f₋ₛ(x_i) (n, p): the prediction for each sample by the fit without its group, or without it alone."""
        raise self._unavailable("Leave-one-out predictions")

    def left_out_variance(self) -> Tensor:
        """The variance (n, p) of y_i − f₋ₛ(x_i), S the sample's group, in units of the prior's scale.

        NaN where a target is missing.
        """
        raise self._unavailable("Variances of left-out samples")

    def left_out_at(self, X: Data) -> tuple[Tensor, Tensor]:
        """f₋ₛ(x) (m, n, p) at new points by the fits without the group S of each sample, and the variances of f₋ₛ(x).

        Variances are in units of the prior's scale, and without the noise of an observation. ``X`` should be few.
        """
        raise self._unavailable("Predictions for new points without a sample")

    def influence(self, X: Data) -> Tensor:
        """f(x) − f₋ₛ(x) (m, n, p) at new points for the group S of each sample, or for it alone: what S does to f(x).

        Kernel, operator and n·alpha are held. It is Σ_{i∈S} ∂f(x)/∂y_i (y_i − f₋ₛ(x_i)). ``X`` should be few.
        """
        raise self._unavailable("Influences of samples")

    def variance(self, X: Data) -> Tensor:
        """The variance (m, p) of f + b at new points, in units of the prior's scale."""
        raise self._unavailable("Variances")

    def leverage(self) -> Tensor:
        """∂f(x_i)/∂y_i (n, p) at the training samples; NaN where a target is missing."""
        raise self._unavailable("Leverages")

    def alpha_range(self) -> tuple[Tensor, Tensor]:
        """The alphas that a criterion can tell apart: from where it is rounding to where nothing is fitted."""
        raise self._unavailable("Criteria")

    def alpha_unit(self) -> tuple[Tensor, float]:
        """The alpha with which a sample has as much noise as k(x, x) on average, and how many are left out in turn.

        What is left out is a sample or a group, so that a sample of twice the weight counts as it does twice.
        """
        raise self._unavailable("Criteria")

    def path(self, alphas: Tensor, criterion: Criterion = "loo") -> Tensor:
        """The criterion for many alphas, from one factorisation."""
        raise self._unavailable("Criteria of many alphas")

    def _unavailable(self, what: str) -> ValueError:
        return ValueError(f"{what} are not known to {type(self).__name__}.")


# A Gram matrix is known to eps of its trace, and a condition number of eps to this power leaves a third of the digits.
DIGITS = 2 / 3
# From a factor, eigenvalues are known to more digits than from the Gram matrix. The least shift is so much of them.
FITTED = 1e4


def least_shift(size: Tensor) -> float:
    """The least shift beside a Gram matrix of this size that leaves digits: of one that is zero, its square does."""
    info = torch.finfo(size.dtype)
    return info.tiny / info.eps if float(size.detach()) > info.tiny / info.eps else info.tiny**0.5


def shift_range(trace: Tensor, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The shifts of a Gram matrix between which a criterion is worth a look.

    Parameters
    ----------
    trace : tensor ()
        That of the Gram matrix, which bounds its largest eigenvalue.
    values : tensor (r,), optional
        The eigenvalues, where they come from a factor: then a shift may be small beside any of them that has digits,
        though some may be far larger, as those of points far from the origin are.

    Examples
    --------
    >>> import torch
    >>> from representer.systems.base import shift_range
    >>> trace = torch.tensor(1e12).double()
    >>> [f"{float(shift):.0e}" for shift in shift_range(trace)]
    ['4e+01', '1e+13']
    >>> [f"{float(shift):.0e}" for shift in shift_range(trace, torch.tensor([1e12, 1.0]).double())]
    ['4e-07', '1e+13']
    """
    share, least = torch.finfo(trace.dtype).eps ** DIGITS, least_shift(trace)
    low = trace * share
    values = None if values is None else values[values.isfinite()]  # beyond the range of numbers there are no digits
    if values is not None and bool((values > 0).any()):
        known = values[values > share**2 * values.max()]
        low = torch.minimum(low, known.min() * FITTED * share)
    return low.clamp(min=least), (10.0 * trace).clamp(min=10.0 * least / share)


def refuse_lost_size(kernel: Kernel, size: float) -> NoReturn:
    """Refuse a kernel whose mean k(x, x) on data, ``size``, is at an end of the range of numbers."""
    if not size < 1.0:  # or NaN
        raise ValueError(
            f"The kernel {original(kernel)!r} overflows on these data: the mean k(x, x) is {size:.3g}. Scale X, for "
            "example with StandardScaler."
        )
    raise ValueError(
        f"The kernel {original(kernel)!r} is zero on these data: the mean k(x, x) is {size:g}. Nothing can be learned "
        "from it. Check and scale X, add a constant (kernel + Constant(1.0)), or fix alpha."
    )


def check_size(kernel: Kernel, X: Data) -> None:
    """Refuse a kernel whose values on vectors leave the range of numbers in which alphas can be told apart.

    Vectors on which it is zero in any units stay: zeros, beside a linear kernel.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Linear
    >>> from representer.systems.base import check_size
    >>> check_size(Linear(), torch.zeros(2, 1))
    >>> check_size(Linear(), torch.tensor([[1e-30], [3e-30]]))
    Traceback (most recent call last):
    ValueError: The kernel Linear() is zero on these data: ...
    """
    if kernel.domain != "vectors" or not isinstance(X, Tensor):
        return
    with torch.no_grad():
        sizes = kernel._diag(X).abs()
        info, size = torch.finfo(sizes.dtype), float(sizes.mean())
        overflows = not math.isfinite(float(shift_range(sizes.sum())[1]))
        if not overflows and size > info.tiny / info.eps**1.5:  # half of the digits lie above the least shift
            return
        units = X.nan_to_num().abs().amax(0)
        if overflows or bool(kernel._diag(X / torch.where(units > 0, units, 1.0)).any()):
            refuse_lost_size(kernel, size)


def relative_norm(missed: Tensor, right: Tensor) -> float:
    """‖missed‖ / ‖right‖, in units in which squares are in range; what misses nothing of zero misses nothing.

    Examples
    --------
    >>> import torch
    >>> from representer.systems.base import relative_norm
    >>> relative_norm(torch.tensor([1e200], dtype=torch.float64), torch.tensor([2e200], dtype=torch.float64))
    0.5
    """
    unit = power_of_two(torch.maximum(missed.abs().amax(), right.abs().amax())) if missed.numel() else 1.0
    size = (right / unit).norm().clamp(min=torch.finfo(right.dtype).tiny)
    return float((missed / unit).norm() / size)


def probes(size: int, *, like: Tensor) -> Tensor:
    """Random signs (size, q), the same each time: products with them show a matrix at the cost of few columns.

    The mean of ‖M S‖² over S is q‖M‖².
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, (size, limits.PROBES), generator=generator).to(like).mul_(2.0).sub_(1.0)


# -- linear kernels ----------------------------------------------------------------------------------------------------
# Points differ if they are farther from their mean than so many times their rounding.
ROUNDED_POINTS = 8.0


def is_linear(kernel: Kernel) -> bool:
    """Is this a linear kernel, but for its scale?"""
    while isinstance(kernel, Scaled | Adapted):
        kernel = kernel.kernel
    return isinstance(kernel, Linear)


def linear_origin(kernel: Kernel, X: Data, weights: Tensor | None = None) -> Tensor | None:
    """The mean (d,) of points beside a linear kernel, weighted if need be; None for other kernels, or equal points.

    Beside a free constant xᵀy may be replaced by (x − c)ᵀ(y − c) with any c. With the mean it keeps the digits that
    products of points far from zero would lose, and its size is that of the differences, which alone tell points apart.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Linear
    >>> from representer.systems.base import linear_origin
    >>> linear_origin(2.0 * Linear(), torch.tensor([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [2.0, 5.0]
    """
    if not (isinstance(X, Tensor) and X.ndim == 2 and kernel.domain == "vectors" and is_linear(kernel)):
        return None
    shares = X.new_ones(len(X)) if weights is None else weights.to(X)
    mean = (shares / shares.sum()) @ X
    rounding = ROUNDED_POINTS * torch.finfo(X.dtype).eps * X.abs().amax()
    return mean if bool((X - mean).abs().amax() > rounding) else None


# -- samples that are left out together --------------------------------------------------------------------------------
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
    >>> from representer.systems import Groups
    >>> groups = Groups.of(["a", "b", "a", "c"])
    >>> [members.tolist() for members in groups.members]
    [[[1], [3]], [[0, 2]]]
    """

    members: tuple[Tensor, ...]

    @classmethod
    def of(cls, labels: object, device: torch.device | str | None = None) -> Groups:
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


def group_members(labels: Tensor) -> list[Tensor]:
    """The members of each group as row numbers: one tensor (number of groups, size) for every size of a group."""
    return list(Groups.of(labels.cpu().numpy(), labels.device).members)


def group_residuals(U: Tensor, filters: Tensor, diagonal: float | None, right: Tensor, groups: Tensor) -> Tensor:
    """(U_S diag(f_j) U_Sᵀ + d)⁻¹ r_Sj for every group S of rows and every column j; one f serves all columns."""
    residuals = torch.empty_like(right)
    for rows in (rows for stack in group_members(groups) for rows in stack):
        own = U[rows]
        per_column = len(rows) * (own.shape[1] + 2 * len(rows)) * own.element_size()
        for columns in row_blocks(filters.shape[1], per_column):
            blocks = (own * filters.mT[columns, None, :]) @ own.mT
            if diagonal is not None:
                blocks.diagonal(dim1=-2, dim2=-1).add_(diagonal)
            if filters.shape[1] == 1:
                residuals[rows] = torch.linalg.solve(blocks[0], right[rows])
            else:
                part = right[rows][:, columns].mT[:, :, None]
                residuals[rows, columns] = torch.linalg.solve(blocks, part)[:, :, 0].mT
    return residuals


def whole_groups(groups: Tensor | None, n: int, bytes_per_row: int, limit: int | None = None) -> Iterator[Tensor]:
    """Row numbers in blocks with about ``limit`` bytes of temporaries each; a group is never cut."""
    slices = row_blocks(n, bytes_per_row, limit)
    if groups is None:
        yield from (torch.arange(rows.start, rows.stop) for rows in slices)
        return
    _, members, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    order = torch.argsort(members, stable=True)
    ends, start = sizes.cumsum(0), 0
    for rows in slices:
        stop = int(ends[torch.searchsorted(ends, rows.stop)]) if rows.stop > start else start
        if stop > start:
            yield order[start:stop].sort().values
        start = stop
