"""The signature kernel of paths: inner products of iterated integrals."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from representer.kernels.base import ONE, Columns, Domain, ExplicitFeatures, Kernel, is_searched
from representer.kernels.parallel import Block
from representer.kernels.products import Linear
from representer.kernels.time_series import Series, as_series, blocks_by_length, check_series, padded
from representer.linalg import combine, row_blocks
from representer.samples import Data
from representer.values import Hyperparameter, Positive, Setting, Word, number, per_row

# Up to this many iterated integrals a path, a signature is written out; else pairs of paths are compared.
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
    positive_integers = ("depth",)
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

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible; the inner kernel must take vectors."""
        if self.kernel is not None and not (isinstance(self.kernel, Kernel) and self.kernel.domain == "vectors"):
            raise ValueError(
                f"kernel of Signature must be None or a kernel on vectors, the points of a path; got {self.kernel!r}."
            )
        super().check_hyperparameters()

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
        new: dict[str, object] = {"kernel": kernel, "scale": scale}
        return self._rebuild(lambda name, argument: new.get(name, argument))

    # -- paths ------------------------------------------------------------------------------------------------------
    def _paths(self, X: Sequence[Series]) -> list[Tensor]:
        """The series as paths: with a channel for time, and from the origin, where that is asked."""
        paths = as_series(X)
        if self.time:
            paths = [torch.cat([torch.linspace(0, 1, len(p), dtype=p.dtype)[:, None], p], 1) for p in paths]
        return [torch.cat([torch.zeros_like(p[:1]), p]) for p in paths] if self.basepoint else paths

    def _is_explicit(self, paths: Sequence[Tensor]) -> bool:
        """Are there so few iterated integrals that signatures are written out?"""
        channels = paths[0].shape[1]
        return self.kernel is None and _n_integrals(channels, int(self.depth)) <= EXPLICIT_LIMIT

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
        each = [self._levels(self._kernel._gram(path, None), 1, 1) for path in paths]
        return self._total(iter(torch.stack(each, -1)[..., 0, 0, :]), per_matrix=False)

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

        # What autograd keeps of a block is many times its size: it is computed again for the derivative.
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


def _n_integrals(channels: int, depth: int) -> int:
    """The number of iterated integrals of the orders 1 … depth."""
    return sum(channels**m for m in range(1, depth + 1))


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
