"""Time series of different lengths: their checks, the global alignment kernel, and the signature kernel of paths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from representer.kernels.base import ONE, Columns, Domain, ExplicitFeatures, Kernel, is_searched, with_derivative
from representer.kernels.parallel import Block, pairwise_blocks
from representer.kernels.vectors import Linear, median_distance
from representer.linalg import combine, row_blocks
from representer.samples import Data, as_list
from representer.values import COUNT, NONE, Hyperparameter, Positive, Rule, Setting, Word, number, per_row

# The number of entries of a temporary for a block of pairs: about what the processor's cache holds.
BLOCK_ENTRIES = 2**15


Series = npt.ArrayLike | Tensor


# -- data -----------------------------------------------------------------------------------------------------------
def check_series(X: Data) -> list[Series]:
    """The series as a list, each checked to be numbers (length,) or (length, channels) with the same channels."""
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


def blocks_by_length(function: Block, X: Sequence[Tensor], Y: Sequence[Tensor] | None, entries: int) -> Tensor:
    """The matrix of ``pairwise_blocks`` with series of similar length beside each other, so that little is padded."""
    if Y is not None and X[0].shape[1] != Y[0].shape[1]:
        raise ValueError(
            f"X has series of {X[0].shape[1]} channels, but Y of {Y[0].shape[1]}: a kernel compares series with the "
            "same channels."
        )
    side = max(1, min(256, math.isqrt(BLOCK_ENTRIES // max(1, entries))))
    rows = sorted(range(len(X)), key=lambda i: len(X[i]))
    columns = rows if Y is None else sorted(range(len(Y)), key=lambda i: len(Y[i]))
    others = None if Y is None else [Y[i] for i in columns]
    gram = pairwise_blocks(function, [X[i] for i in rows], others, block_size=side)
    return gram[..., torch.tensor(rows).argsort(), :][..., torch.tensor(columns).argsort()]


# -- global alignment -----------------------------------------------------------------------------------------------
def _bandwidth(X: Sequence[Series]) -> Tensor:
    """The lengthscale that Cuturi advises: the median distance of observations times the root of the median length."""
    series = as_series(X)
    return median_distance(torch.cat(series)) * math.sqrt(float(np.median([len(item) for item in series])))


class GlobalAlignment(Kernel):
    """Σ_π Π_i κ(x_π₁(i), y_π₂(i)) over all alignments π of two series: every warping counts, not only the best.

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

    rules = {"triangular": COUNT | NONE}

    def __init__(self, lengthscale: Setting = "median", triangular: int | None = None, *, normalize: bool = True):
        self.lengthscale = lengthscale
        self.triangular = triangular
        self.normalize = normalize

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
        # Later antidiagonals also read one entry beyond each end, where values of three antidiagonals ago still stand.
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
    top.clamp_(min=-1e300)  # avoids −∞ − (−∞)
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


# -- signatures -----------------------------------------------------------------------------------------------------
# Up to this many iterated integrals a path, signatures are written out; above, pairs of paths are compared.
EXPLICIT_LIMIT = 20_000


class Signature(Kernel):
    """Σ_{m=0}^{depth} s^{2m} ⟨S_m(x), S_m(y)⟩ with the iterated integrals S_m(x) = ∫_{t₁<…<t_m} dx_{t₁} ⊗ … ⊗ dx_{t_m}.

    A series is the path that joins its points by straight lines, in the space of its channels, or with ``kernel`` in
    the feature space of that kernel (Király & Oberhauser 2019); its signature up to ``depth`` is exact. It does not
    depend on where a path starts nor how fast it is run through: ``basepoint`` and ``time`` change that.

    Parameters
    ----------
    depth : int
        The highest order of integrals.
    kernel : Kernel, optional
        A vector kernel of two points; None is their inner product. Its hyperparameters are learnable.
    scale : float, "median" or "auto"
        s, the factor of all paths. ``"median"``: the median path gets length 1; ``"auto"``: learned from there on.
    time : bool
        Add a channel that runs from 0 to 1 with the observations. A series of one channel needs it: without, only its
        first and last values count.
    basepoint : bool
        Let every path start at the origin.

    Examples
    --------
    >>> from representer.kernels import Signature
    >>> k = Signature(depth=2, scale=1.0, time=False)
    >>> k([[[0, 0], [1, 0], [1, 1]], [[5, 5], [6, 5], [6, 5], [6, 6]], [[0, 0], [0, 1], [1, 1]]]).tolist()
    [[4.5, 4.5, 3.5], [4.5, 4.5, 3.5], [3.5, 3.5, 4.5]]

    ``k.normalized()`` is the cosine, which long paths ask for.
    """

    domain: Domain = "objects"
    rules = {
        "kernel": Rule(
            "None or a kernel on vectors, the points of a path",
            lambda k: k is None or (isinstance(k, Kernel) and k.domain == "vectors"),
        ),
        "depth": COUNT,
    }
    # The words are given their numbers by ``_resolve``: the length of a path depends on the inner kernel.
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "scale": Hyperparameter(Positive(), {"median": Word(ONE.value), "auto": ONE}, scalar=True)
    }

    def __init__(
        self,
        depth: int = 3,
        kernel: Kernel | None = None,
        *,
        scale: Setting = "median",
        time: bool = True,
        basepoint: bool = False,
    ):
        self.depth = depth
        self.kernel = kernel
        self.scale = scale
        self.time = time
        self.basepoint = basepoint

    def _own_specification(self, name: str) -> Hyperparameter:
        """The specification of a scale that, while it is learned, stays so small that its power is in range."""
        specification = super()._own_specification(name)
        return Hyperparameter(Positive(2 * int(self.depth)), specification.words, scalar=True)

    def prepare(self, X: Data) -> list[Series]:
        """The series as a list, checked."""
        return check_series(X)

    def _resolve(self, X: Sequence[Series]) -> Self:
        paths = self._paths(X)
        kernel = self.kernel
        if kernel is not None:
            kernel = kernel._resolve(torch.cat(paths))
        scale = self.scale
        if isinstance(scale, str):
            lengths = torch.stack([_length(path, kernel or Linear()) for path in paths]).sort().values
            median = float(lengths[(len(lengths) - 1) // 2])
            scale = 1.0 / median if median > 0 else 1.0
        return self._with_arguments(kernel=kernel, scale=scale)

    # -- paths ------------------------------------------------------------------------------------------------------
    def _paths(self, X: Sequence[Series]) -> list[Tensor]:
        """The series as paths, with a channel for time if ``time``, and from the origin if ``basepoint``."""
        paths = as_series(X)
        if self.time:
            paths = [torch.cat([torch.linspace(0, 1, len(p), dtype=p.dtype)[:, None], p], 1) for p in paths]
        return [torch.cat([torch.zeros_like(p[:1]), p]) for p in paths] if self.basepoint else paths

    def _is_explicit(self, paths: Sequence[Tensor]) -> bool:
        """Are there so few iterated integrals that signatures are written out?"""
        channels = paths[0].shape[1]
        return self.kernel is None and sum(channels**m for m in range(1, int(self.depth) + 1)) <= EXPLICIT_LIMIT

    def _explicit_features(self, X: Sequence[Series], columns: Columns | None = None) -> ExplicitFeatures:
        """The iterated integrals (n, 1 + d + … + d^depth), scaled; a column is named by the channels of dx … dx."""
        if self.kernel is not None:
            raise ValueError(f"The paths have finitely many features only with kernel=None; got {self.kernel!r}.")
        paths, depth = self._paths(X), int(self.depth)
        scale = number(self, "scale", paths[0]).reshape(())
        scaled = [scale**m * level for m, level in enumerate(signatures(paths, depth), start=1)]
        matrix = torch.cat([paths[0].new_ones(len(paths), 1), *scaled], 1).numpy()
        channels = range(paths[0].shape[1])
        words = itertools.chain.from_iterable(itertools.product(channels, repeat=m) for m in range(depth + 1))
        names: dict[Hashable, int] = {word: i for i, word in enumerate(words)}
        if columns is not None and dict(columns) != names:
            raise ValueError(
                f"The columns are not those of series with {len(channels)} channels (time included) and depth {depth}."
            )
        return ExplicitFeatures(matrix, names)

    # -- Gram matrices ----------------------------------------------------------------------------------------------
    def _gram(self, X: Sequence[Series], Y: Sequence[Series] | None) -> Tensor:
        left, right = self._paths(X), None if Y is None else self._paths(Y)
        return self._total(self._level_grams(left, right), per_matrix=True)

    def _diag(self, X: Sequence[Series]) -> Tensor:
        paths = self._paths(X)
        if self._is_explicit(paths):
            squares = ((level**2).sum(1) for level in signatures(paths, int(self.depth)))
            return self._total(squares, per_matrix=False)
        levels = [self._levels(self._kernel._gram(path, None), 1, 1) for path in paths]
        return self._total(iter(torch.stack(levels, -1)[..., 0, 0, :]), per_matrix=False)

    def _total(self, levels: Iterator[Tensor], *, per_matrix: bool) -> Tensor:
        """The sum 1 + Σ_m s^{2m} ⟨S_m, S_m⟩ over the levels."""
        total: Tensor | None = None
        for m, level in enumerate(levels, start=1):
            scale = number(self, "scale", level)
            term = combine("mul", level, (scale if per_matrix else per_row(scale)) ** (2 * m))
            total = 1.0 + term if total is None else combine("add", total, term)
        assert total is not None  # the depth is positive
        return total

    def _level_grams(self, X: list[Tensor], Y: list[Tensor] | None) -> Iterator[Tensor]:
        """The Gram matrices ⟨S_m(x), S_m(y)⟩ of the levels 1 … depth."""
        if self._is_explicit(X) and (Y is None or Y[0].shape[1] == X[0].shape[1]):
            left = signatures(X, int(self.depth))
            right = left if Y is None else signatures(Y, int(self.depth))
            return (one @ two.mT for one, two in zip(left, right, strict=True))

        def block(rows: Sequence[Tensor], columns: Sequence[Tensor] | None) -> Tensor:
            one = padded(rows)[0]
            two = None if columns is None else padded(columns)[0].flatten(0, 1)
            gram = self._kernel._gram(one.flatten(0, 1), two)
            return self._levels(gram, len(rows), len(rows if columns is None else columns))

        def remembered(rows: Sequence[Tensor], columns: Sequence[Tensor] | None) -> Tensor:
            return checkpoint(block, rows, columns, use_reentrant=False)

        # Autograd would keep many times the size of a block; the block is computed again for the derivative instead.
        entries = max(map(len, X)) * max(map(len, X if Y is None else Y))
        function: Block = remembered if is_searched(self._kernel) else block
        return iter(blocks_by_length(function, X, Y, entries))

    @property
    def _kernel(self) -> Kernel:
        return Linear() if self.kernel is None else self.kernel

    def _levels(self, gram: Tensor, n: int, m: int) -> Tensor:
        """The products ⟨S_m(x), S_m(y)⟩ (depth, …, n, m) from the kernel of all points of n and of m paths."""
        points = gram.unflatten(-1, (m, -1)).unflatten(-3, (n, -1)).transpose(-3, -2)
        return torch.stack(iterated_sums(points.diff(dim=-1).diff(dim=-2), int(self.depth)))


def _length(path: Tensor, kernel: Kernel) -> Tensor:
    """The length of a path in the feature space of a kernel, from chord to chord."""
    gram = kernel._gram(path, None)
    diagonal = gram.diagonal()
    squares = diagonal[1:] + diagonal[:-1] - 2.0 * gram.diagonal(1)
    return squares.clamp(min=0.0).sqrt().sum()


def signatures(paths: Sequence[Tensor], depth: int) -> list[Tensor]:
    """The iterated integrals of each order 1 … depth of piecewise linear paths, each as (n, channels^order).

    Chen's identity, one piece of all paths at a time: S ← S ⊗ exp(Δ), by Horner's scheme
    S_m ← S_m + (S_{m−1} + … (S_1 + Δ/m) ⊗ Δ/(m−1) …) ⊗ Δ.
    """
    if len({path.shape[1] for path in paths}) != 1:
        raise ValueError("All paths must have the same channels.")
    values = padded(paths)[0]
    n, channels = len(values), values.shape[2]
    levels = [values.new_zeros(n, channels**m) for m in range(1, depth + 1)]
    for rows in row_blocks(n, 8 * 3 * channels**depth):
        block = [level[rows] for level in levels]  # views
        for step in values[rows].diff(dim=1).unbind(1):
            for m in range(depth, 0, -1):
                product = step / m
                for lower in range(1, m):
                    product = _outer(product + block[lower - 1], step / (m - lower))
                block[m - 1] += product
    return levels


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """The tensor product of two vectors a row, flattened."""
    return (left[:, :, None] * right[:, None, :]).flatten(1)


def iterated_sums(increments: Tensor, depth: int) -> list[Tensor]:
    """The products ⟨S_m(x), S_m(y)⟩ for m = 1 … depth from ⟨Δx_i, Δy_j⟩, (…, pieces of x, pieces of y).

    Király & Oberhauser's recursion, with the terms of exp(Δ) that make it exact for piecewise linear paths: R[r][q] at
    (i, j) sums what ends with r + 1 factors Δx_i/(r + 1)! and q + 1 factors Δy_j/(q + 1)!.
    """
    R = [[increments]]
    sums = [increments.sum((-2, -1))]
    for m in range(2, depth + 1):
        down = [_before(sum_of(R[r][q] for r in range(m - 1)), -2) for q in range(m - 1)]
        across = [_before(sum_of(R[r]), -1) for r in range(m - 1)]
        start = _before(sum_of(down), -1)
        new = [[increments * start, *(increments * down[q] / (q + 2) for q in range(m - 1))]]
        for r in range(m - 1):
            inner = [increments * R[r][q] / ((r + 2) * (q + 2)) for q in range(m - 1)]
            new.append([increments * across[r] / (r + 2), *inner])
        R = new
        sums.append(sum_of(itertools.chain(*R)).sum((-2, -1)))
    return sums


def sum_of(terms: Iterable[Tensor]) -> Tensor:
    """The sum of tensors, in their order."""
    return reduce(torch.Tensor.add, terms)


def _before(values: Tensor, axis: int) -> Tensor:
    """The sum over all positions before each position."""
    return values.cumsum(axis) - values
