"""Time series of different lengths: what is checked, and the global alignment kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from representer.kernels.base import Domain, Kernel, with_derivative
from representer.kernels.heuristics import median_distance
from representer.kernels.parallel import Block, pairwise_blocks
from representer.linalg import row_blocks
from representer.samples import Data, as_list
from representer.values import Hyperparameter, Positive, Setting, Word, is_count, number, per_row

# Entries of one temporary of a block of pairs: about what the processor's cache holds.
BLOCK_ENTRIES = 2**15


Series = npt.ArrayLike | Tensor


# -- data -----------------------------------------------------------------------------------------------------------
def check_series(X: Data) -> list[Series]:
    """The series as a list, each checked to be numbers (length,) or (length, channels), of the same channels all."""
    series = as_list(X, "time series")
    pairs = [i for i, item in enumerate(series) if isinstance(item, tuple) and len(item) == 2 and np.ndim(item[0])]
    if pairs:
        raise ValueError(
            f"Series {pairs[0]} is a tuple of two sequences. If these are times and values, pass the values alone, or "
            "np.column_stack([times, values]); two observations of several channels are a list or an array."
        )
    channels = [_array(item, i).shape[1] for i, item in enumerate(series)]
    strangers = [i for i, d in enumerate(channels) if d != channels[0]]
    if strangers:
        raise ValueError(
            f"All series must have the same channels: series 0 has {channels[0]}, but series {strangers[:5]} have "
            f"{sorted({channels[i] for i in strangers})}."
        )
    return series


def _array(item: Series, place: int) -> np.ndarray:
    """One series as an array (length, channels)."""
    try:
        array = np.asarray(item.detach().cpu() if isinstance(item, Tensor) else item)
        if array.dtype.kind not in "biufO":
            raise ValueError(f"entries of type {array.dtype}")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Series {place} is not an array of real numbers, (length,) or (length, channels): got "
            f"{type(item).__name__} ({error})."
        ) from error
    if array.ndim not in (1, 2) or not array.size:
        raise ValueError(
            f"Series {place} has shape {array.shape}; expected (length,) or (length, channels), with at least one "
            "observation."
        )
    if not np.isfinite(array).all():
        when = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(
            f"Series {place} contains NaN or infinity, first at time {when}. Interpolate or leave out these times."
        )
    return array.reshape(len(array), -1)


def as_series(X: Sequence[Series]) -> list[Tensor]:
    """Checked series as tensors (length, channels)."""
    return [torch.from_numpy(_array(item, i)) for i, item in enumerate(X)]


def padded(series: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The series as one tensor (n, longest, channels), each held at its last value, and their lengths."""
    lengths = torch.tensor([len(item) for item in series])
    longest = int(lengths.max())
    held = [torch.cat([item, item[-1:].expand(longest - len(item), -1)]) for item in series]
    return torch.stack(held), lengths


def _same_channels(X: Sequence[Tensor], Y: Sequence[Tensor]) -> None:
    """Refuse two sets of series with different channels."""
    if X[0].shape[1] != Y[0].shape[1]:
        raise ValueError(
            f"X has series of {X[0].shape[1]} channels, but Y of {Y[0].shape[1]}: a kernel compares series with the "
            "same channels."
        )


def blocks_by_length(
    function: Block,
    X: Sequence[Tensor],
    Y: Sequence[Tensor] | None,
    entries: int,
) -> Tensor:
    """The matrix of ``pairwise_blocks`` with series of similar length beside each other, so that little is padded."""
    if Y is not None:
        _same_channels(X, Y)
    side = max(1, min(256, math.isqrt(BLOCK_ENTRIES // max(1, entries))))
    rows = sorted(range(len(X)), key=lambda i: len(X[i]))
    columns = rows if Y is None else sorted(range(len(Y)), key=lambda i: len(Y[i]))
    others = None if Y is None else [Y[i] for i in columns]
    gram = pairwise_blocks(function, [X[i] for i in rows], others, block_size=side)
    return gram[..., torch.tensor(rows).argsort(), :][..., torch.tensor(columns).argsort()]


# -- global alignment -----------------------------------------------------------------------------------------------
def _bandwidth(X: Sequence[Series]) -> Tensor:
    """Cuturi's advice: the median distance of observations times the root of the median length."""
    series = as_series(X)
    return median_distance(torch.cat(series)) * math.sqrt(float(np.median([len(item) for item in series])))


class GlobalAlignment(Kernel):
    """Σ_π Π_i κ(x_π₁(i), y_π₂(i)) over all alignments π of two series: every warping counts, not the best.

    The global alignment kernel of Cuturi (2011). An alignment goes from the first to the last observations by steps in
    one of the series or in both. κ = g/(2 − g) with g(a, b) = exp(−‖a − b‖²/(2ℓ²)), which makes the sum positive
    semi-definite; ``triangular=T`` multiplies g by (1 − |s − t|/T)₊ at positions s and t. It is computed in logarithms,
    along antidiagonals, for many pairs at a time.

    Parameters
    ----------
    lengthscale : float, "median" or "auto"
        ℓ. ``"median"``: the median distance of observations times the root of the median length; ``"auto"``: learned
        from there on.
    triangular : int, optional
        T: only alignments that stay within T − 1 positions of the diagonal count, in time O(T·length); series whose
        lengths differ by T or more have similarity 0.
    normalize : bool
        Divide by √(k(x, x) k(y, y)). The number of alignments grows as 5.8^length, so that without it long series
        overflow.

    Examples
    --------
    >>> from representer.kernels import GlobalAlignment
    >>> k = GlobalAlignment(lengthscale=1.0)
    >>> k([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0], [3.0, 3.0]]).round(decimals=3).tolist()
    [[1.0, 0.747, 0.0], [0.747, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    domain: Domain = "objects"
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "lengthscale": Hyperparameter(
            Positive(), {"median": Word(_bandwidth), "auto": Word(_bandwidth, learned=True)}, scalar=True
        )
    }

    def __init__(
        self,
        lengthscale: Setting = "median",
        triangular: int | None = None,
        *,
        normalize: bool = True,
    ):
        self.lengthscale = lengthscale
        self.triangular = triangular
        self.normalize = normalize

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible; the width of the band must be a positive integer."""
        if not (self.triangular is None or is_count(self.triangular)):
            raise ValueError(
                f"triangular of GlobalAlignment must be a positive integer or None; got {self.triangular!r}."
            )
        super().check_hyperparameters()

    def prepare(self, X: Data) -> list[Series]:
        """The series as a list, checked."""
        return check_series(X)

    def _log_diag(self, X: Sequence[Tensor]) -> Tensor:
        """The logarithms log k(x, x)."""
        step = max(1, BLOCK_ENTRIES // max(map(len, X)))

        def pairs(scale: float, slope: bool) -> Sequence[Tensor]:
            series = [X[rows] for rows in row_blocks(len(X), 1, step)]
            blocks = [log_alignments(block, None, scale, self.triangular, slope=slope) for block in series]
            return list(torch.cat(blocks, -1))

        return with_derivative(pairs, per_row(number(self, "lengthscale")))

    def _log_gram(self, X: Sequence[Tensor], Y: Sequence[Tensor] | None) -> Tensor:
        """The logarithms log k(x, y) of all pairs."""

        def pairs(scale: float, slope: bool) -> Sequence[Tensor]:
            def block(rows: Sequence[Tensor], columns: Sequence[Tensor] | None) -> Tensor:
                other = rows if columns is None else columns
                return log_alignments(rows, other, scale, self.triangular, slope=slope)

            antidiagonal = min(max(map(len, X)), self.triangular or math.inf)
            return list(blocks_by_length(block, X, Y, int(antidiagonal)))

        return with_derivative(pairs, number(self, "lengthscale"))

    def _gram(self, X: Sequence[Series], Y: Sequence[Series] | None) -> Tensor:
        left, right = as_series(X), None if Y is None else as_series(Y)
        logs = self._log_gram(left, right)
        if not self.normalize:
            return self._exponential(logs)
        rows = logs.diagonal(dim1=-2, dim2=-1) if right is None else self._log_diag(left)
        columns = rows if right is None else self._log_diag(right)
        return torch.exp(logs - 0.5 * (rows[..., :, None] + columns[..., None, :]))

    def _diag(self, X: Sequence[Series]) -> Tensor:
        if not self.normalize:
            return self._exponential(self._log_diag(as_series(X)))
        lengthscale = number(self, "lengthscale")
        return lengthscale.new_ones(*lengthscale.shape[:-2], len(X))

    def _exponential(self, logs: Tensor) -> Tensor:
        """The kernel of its logarithm, or an error where it leaves the range of numbers."""
        values = torch.exp(logs)
        if bool(torch.isinf(values).any()):
            raise ValueError(
                f"k(x, y) exceeds the floating-point range: there are too many alignments of these series (log k up to "
                f"{float(logs.detach().max()):.0f}). Use normalize=True, or a triangular band."
            )
        return values


def log_alignments(
    X: Sequence[Tensor],
    Y: Sequence[Tensor] | None,
    lengthscale: float,
    triangular: int | None = None,
    *,
    slope: bool = False,
) -> Tensor:
    """The sums log Σ_π Π κ for all pairs of X and Y, or with Y None for each series with itself.

    Returns a tensor (1, n, m) or (1, n); with ``slope`` (2, …), the second entry being the derivative in ℓ. The sums
    M[i, j] = κ(x_i, y_j) (M[i−1, j] + M[i, j−1] + M[i−1, j−1]) of one antidiagonal i + j = s are computed at once.
    """
    x, rows = _by_time(X, lengthscale)
    y, columns = (x, rows) if Y is None else _by_time(Y, lengthscale)
    if Y is not None:
        x, y, rows, columns = x[..., None], y[..., None, :], rows[:, None], columns[None, :]
    y = y.flip(1)  # then an antidiagonal is a slice of both
    rows, columns = torch.broadcast_tensors(rows, columns)
    n, m = x.shape[1], y.shape[1]
    band = n + m if triangular is None else int(triangular)
    # The last three antidiagonals, log M (and its derivative) of row i at i + 1; an alignment starts from (−1, −1).
    sums = [x.new_zeros(1 + slope, n + 1, *rows.shape) for _ in range(3)]
    for antidiagonal in sums:
        antidiagonal[0] = -math.inf
    sums[-2][0, 0] = 0.0
    result = torch.zeros_like(sums[0][:, 0])
    result[0] = -math.inf
    ends = torch.where((rows - columns).abs() < band, rows + columns - 2, -1)
    for s in range(int(ends.max()) + 1):
        low, high = _ends_of_antidiagonal(s, n, m, band)
        here, before = slice(low + 1, high + 2), slice(low, high + 1)
        first, second, new = sums[(s - 1) % 3], sums[(s - 2) % 3], sums[s % 3]
        # What later antidiagonals may read beside this one was written three antidiagonals ago.
        new[0, low : high + 3] = -math.inf
        if low <= high:
            reverse = slice(m - 1 - s + low, m - s + high)
            distance = (x[:, before] - y[:, reverse]).square_().sum(0)
            reached = _log_sum(first[:, before], first[:, here], second[:, before])
            new[:, here] = reached.add_(_local(distance, s, low, lengthscale, triangular, slope=slope))
        done: Any = (ends == s).nonzero(as_tuple=True)
        result[:, *done] = new[:, rows[done], *done]
    return result


def _log_sum(*steps: Tensor) -> Tensor:
    """The number log Σ e^a of three steps (a, ∂a), and its derivative if they have one."""
    top = torch.maximum(torch.maximum(steps[0][0], steps[1][0]), steps[2][0])
    top.clamp_(min=-1e300)  # not −∞ − −∞
    shares = [torch.sub(step[0], top).exp_() for step in steps]
    total = (shares[0] + shares[1]).add_(shares[2])
    logs = torch.log(total).add_(top)
    if len(steps[0]) == 1:
        return logs[None]
    moments = [share.mul_(step[1]) for share, step in zip(shares, steps, strict=True)]
    return torch.stack([logs, moments[0].add_(moments[1]).add_(moments[2]).div_(total.clamp_(min=1e-300))])


def _local(distance: Tensor, s: int, low: int, lengthscale: float, triangular: int | None, *, slope: bool) -> Tensor:
    """The logarithm log κ = log g − log(2 − g) for g = ω e^(−distance), with its derivative if asked.

    The derivative in ℓ is 4·distance / (ℓ (2 − g)).
    """
    g = torch.exp(-distance)
    logs = -distance
    if triangular is not None:  # ω = 1 − |i − j| / T on the antidiagonal i + j = s
        offset = 2.0 * torch.arange(low, low + len(g), dtype=g.dtype) - s
        weight = (1.0 - offset.abs() / triangular).reshape(-1, *(1,) * (g.ndim - 1))
        g.mul_(weight)
        logs.add_(weight.log())
    rest = g.neg_().add_(2.0)
    logs.sub_(rest.log())
    return torch.stack([logs, distance.div_(rest).mul_(4.0 / lengthscale)]) if slope else logs[None]


def _by_time(series: Sequence[Tensor], lengthscale: float) -> tuple[Tensor, Tensor]:
    """The series as (channels, longest, n), scaled so that squared differences are ‖·‖²/(2ℓ²), and their lengths."""
    values, lengths = padded(series)
    return (values / (math.sqrt(2.0) * lengthscale)).permute(2, 1, 0).contiguous(), lengths


def _ends_of_antidiagonal(s: int, n: int, m: int, band: int) -> tuple[int, int]:
    """The first and the last i of i + j = s in an n × m matrix with |i − j| < band."""
    return max(0, s - m + 1, (s - band) // 2 + 1), min(s, n - 1, (s + band + 1) // 2 - 1)
