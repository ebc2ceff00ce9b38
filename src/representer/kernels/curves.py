"""Kernels of curves: functions of one variable that are known at finitely many times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from representer.kernels.base import Columns, Domain, ExplicitFeatures, Kernel
from representer.kernels.learned import Mapped
from representer.linalg import require
from representer.samples import Data, as_list
from representer.values import is_real, is_whole

Pair = tuple[np.ndarray, np.ndarray]


class Functional(Mapped):
    """A vector kernel of curves, with ⟨x, y⟩ = ∫ x(t) y(t) dt in the place of the inner product of vectors.

    ``Functional(Linear())`` is that integral, ``Functional(Gaussian(ℓ))`` is exp(−∫ (x − y)² dt / (2ℓ²)): curves are
    embedded isometrically as vectors √w·x of values and weights, so any kernel of inner products or Euclidean distances
    applies, with its hyperparameters. Curves come in two forms:

    - ``domain="vectors"``: rows of a matrix, values at the times of a common ``grid``; integrals by the trapezoid rule.
    - ``domain="objects"``: a list of pairs (times, values), each curve with times of its own. With ``grid`` the curves
      are interpolated there, linearly (beyond its own times a curve keeps its first and last value), and treated as
      rows. Without ``grid``, the piecewise linear interpolants are integrated exactly, on the union of all times: more
      points on the same polygon change nothing. The vectors then have two entries for each interval between
      distinct times in the data; with many curves whose times are all different, a ``grid`` costs far less.

    Parameters
    ----------
    kernel : Kernel
        A kernel on vectors.
    grid : array (n_times,), optional
        Increasing times. None: equidistant ones from 0 to 1, or over the ``interval`` (vectors); the union (objects).
    derivative : int or tuple of int
        The order of the derivative that is compared; (0, 1) is the Sobolev inner product ∫ xy + ∫ x′y′. Derivatives are
        difference quotients, constant from time to time.
    interval : (float, float) or "hull", optional
        The interval of integration. For pairs without a grid, None is where all curves are known, ``"hull"`` where any
        is; the data of the fit decide both. Beyond its own times a curve keeps its first and last value.
    domain : {"vectors", "objects"}
        Rows on a common grid, or pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.kernels import Functional, Linear
    >>> t = np.linspace(0, 1, 201)
    >>> curves = np.stack([np.ones_like(t), t])
    >>> Functional(Linear())(curves).round(decimals=4).tolist()
    [[1.0, 0.5], [0.5, 0.3333]]
    >>> Functional(Linear(), derivative=1)(curves).round(decimals=4).tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    >>> pairs = [([0.0, 1.0], [1.0, 1.0]), ([0.0, 0.3, 1.0], [0.0, 0.3, 1.0])]
    >>> Functional(Linear(), domain="objects")(pairs).round(decimals=4).tolist()
    [[1.0, 0.5], [0.5, 0.3333]]
    """

    def __init__(
        self,
        kernel: Kernel,
        grid: npt.ArrayLike | None = None,
        *,
        derivative: int | tuple[int, ...] = 0,
        interval: Sequence[float] | str | None = None,
        domain: Domain = "vectors",
    ):
        self.kernel = kernel
        self.grid = grid
        self.derivative = derivative
        self.interval = interval
        self.domain = domain

    def with_kernel(self, kernel: Kernel) -> Self:
        """The same space of curves with another kernel on it."""
        return self._with_arguments(kernel=kernel)

    # -- arguments and data -----------------------------------------------------------------------------------------
    @property
    def _orders(self) -> tuple[int, ...]:
        return tuple(self.derivative) if isinstance(self.derivative, tuple | list) else (self.derivative,)

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible: the grid, the interval or the orders of derivatives."""
        super().check_hyperparameters()
        if self.domain not in ("vectors", "objects") or self.kernel.domain != "vectors":
            raise ValueError(
                "Functional takes a kernel on vectors, and domain='vectors' (rows on a common grid) or 'objects' "
                f"(pairs of times and values); got kernel={self.kernel!r} and domain={self.domain!r}."
            )
        orders = self._orders
        if not orders or not all(map(is_whole, orders)):
            raise ValueError(
                f"derivative of Functional must be 0, 1, 2 … or a tuple of these; got {self.derivative!r}."
            )
        if self.grid is not None:
            _check_times(np.asarray(self.grid), "The grid of Functional", max(orders))
        self._check_interval()

    def _check_interval(self) -> None:
        """Refuse an interval that is none, or that contradicts the grid."""
        if self.interval is None:
            return
        if self.grid is not None:
            raise ValueError("Functional integrates over its grid: give a grid or an interval, not both.")
        if self.domain == "objects" and isinstance(self.interval, str) and self.interval == "hull":
            return
        ends = self.interval if isinstance(self.interval, tuple | list | np.ndarray) else ()
        if not (len(ends) == 2 and all(map(is_real, ends)) and -math.inf < ends[0] < ends[1] < math.inf):
            word = " or 'hull'" if self.domain == "objects" else ""
            raise ValueError(
                f"interval of Functional must be a pair of finite numbers (start, end){word}; got {self.interval!r}."
            )

    def prepare(self, X: Data) -> Data:
        """The curves as a tensor (..., n, n_times), or as a list of pairs, checked."""
        if self.domain == "objects":
            return check_curves(X, max(self._orders))
        try:
            vectors = super().prepare(X)
            if vectors.ndim > 2 and not isinstance(X, Tensor | np.ndarray):
                raise ValueError(f"Expected rows of values; got entries of shape {tuple(vectors.shape[1:])}.")
        except ValueError as error:
            raise ValueError(f"{error} For pairs (times, values), say Functional(…, domain='objects').") from error
        return vectors

    def _resolve(self, X: Data) -> Self:
        new = self
        if self.domain == "objects" and self.grid is None:
            interval = self.interval
            if interval is None or isinstance(interval, str):
                interval = _shared_interval([_pair(item) for item in X], hull=interval is not None)
            new = self._with_arguments(interval=interval)
        return new._with_arguments(kernel=self.kernel._resolve(new._images(X, None)[0]))

    def features(self, X: Data) -> Tensor | None:
        """The features of the inner kernel; pairs without a grid have none, as new curves would change them."""
        return None if self.domain == "objects" and self.grid is None else super().features(X)

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        if self.domain == "objects" and self.grid is None:
            raise ValueError(
                "The features of Functional are values at all times in the data, which new curves would change. Give "
                "it a grid."
            )
        return super()._explicit_features(X, columns)

    # -- vectors ----------------------------------------------------------------------------------------------------
    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        left, right = self._images(X, Y)
        return self.kernel._gram(left, right)

    def _image(self, X: Data) -> Tensor:
        return self._images(X, None)[0]

    def _images(self, X: Data, Y: Data | None) -> tuple[Tensor, Tensor | None]:
        """The vectors of the curves; those of X and Y have the same coordinates."""
        if self.domain == "objects" and self.grid is None:
            ends = self.interval
            if ends is None or isinstance(ends, str):
                raise ValueError(
                    "This Functional has no interval yet: the data decide it. Call kernel.resolve(X) with the training "
                    f"data first, or give interval=(start, end) (got {ends!r})."
                )
            interval = float(ends[0]), float(ends[1])
            curves = [[_pair(item) for item in data] for data in (X, Y or [])]
            for pairs in curves:
                _check_inside(pairs, *interval)
            both = embed_pairs([*curves[0], *curves[1]], self._orders, interval)
            return both[: len(X)], None if Y is None else both[len(X) :]
        left = self._on_grid(X)
        return left, None if Y is None else self._on_grid(Y)

    def _on_grid(self, X: Data) -> Tensor:
        """The vectors of curves on a common grid, on which pairs are interpolated."""
        if self.domain == "objects":
            grid = np.asarray(self.grid, dtype=np.float64)
            X = torch.from_numpy(np.stack([np.interp(grid, *_pair(item)) for item in X]))
        return embed_rows(X, self._times(X), self._orders)

    def _times(self, X: Tensor) -> Tensor:
        """The times at which rows hold the values of curves."""
        m = X.shape[-1]
        if m <= max(self._orders) or m < 2:
            raise ValueError(
                f"Curves of {m} time(s) have no integral or no derivative of order {max(self._orders)}: more times are "
                "needed."
            )
        if self.grid is None:
            start, end = (0.0, 1.0) if self.interval is None else map(float, self.interval)
            return torch.linspace(start, end, m, dtype=torch.float64, device=X.device)
        grid = torch.tensor(np.asarray(self.grid, dtype=np.float64), device=X.device)
        if len(grid) != m:
            raise ValueError(f"The curves have {m} values, but the grid of Functional has {len(grid)} times.")
        return grid


# -- data -----------------------------------------------------------------------------------------------------------
def check_curves(X: Data, order: int = 0) -> list[Data]:
    """The pairs (times, values) as a list, each checked to have times enough for derivatives of an order."""
    curves = as_list(X, "curves (times, values)")
    for i, item in enumerate(curves):
        try:
            times, values = _pair(item)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Curve {i} is not a pair (times, values) of real numbers ({error}). Rows of a matrix on a common grid "
                "are for Functional(…, domain='vectors')."
            ) from error
        _check_times(times, f"The times of curve {i}", order)
        if values.shape != times.shape:
            raise ValueError(f"Curve {i} has {times.shape} times, but {values.shape} values.")
        if not np.isfinite(values).all():
            when = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(
                f"Curve {i} contains NaN or infinity, first at position {when}. Leave these times out: a curve may "
                "have times of its own."
            )
    return curves


def _pair(item: Data) -> Pair:
    """The times and the values of a curve, as arrays."""
    times, values = item
    return _numbers(times), _numbers(values)


def _numbers(entries: Data) -> np.ndarray:
    """Real numbers as an array in double precision."""
    array = np.asarray(entries)
    if array.dtype.kind in "mM":
        raise ValueError(
            "dates have no unit in an integral: make them numbers, such as (t - t[0]) / np.timedelta64(1, 'D')"
        )
    if array.dtype.kind not in "biufO":
        raise ValueError(f"entries of type {array.dtype}")
    return array.astype(np.float64)


def _check_times(times: np.ndarray, what: str, order: int) -> None:
    """Refuse times that are too few, not finite or not increasing."""
    least = max(2, order + 1)
    if times.ndim != 1 or len(times) < least or times.dtype.kind not in "iuf":
        raise ValueError(f"{what} must be at least {least} numbers, one-dimensional; got shape {times.shape}.")
    if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
        raise ValueError(
            f"{what} must be finite and increase strictly. Sort them; of equal times keep one (or the mean of values)."
        )


def _shared_interval(curves: Sequence[Pair], *, hull: bool) -> tuple[float, float]:
    """The interval where all curves are known, or with ``hull`` where any is."""
    starts, ends = [float(t[0]) for t, _ in curves], [float(t[-1]) for t, _ in curves]
    if hull:
        return min(starts), max(ends)
    start, end = max(starts), min(ends)
    if start >= end:
        raise ValueError(
            f"There is no interval where all curves are known: curve {starts.index(start)} starts at {start:g}, and "
            f"curve {ends.index(end)} ends at {end:g}. Give interval=(start, end) or 'hull'."
        )
    return start, end


def _check_inside(curves: Sequence[Pair], start: float, end: float) -> None:
    """Refuse curves that are not known anywhere in the interval."""
    outside = [i for i, (t, _) in enumerate(curves) if t[-1] <= start or t[0] >= end]
    if outside:
        raise ValueError(f"Curves {outside[:5]} have no times within the interval ({start:g}, {end:g}).")


# -- isometric embeddings -------------------------------------------------------------------------------------------
def embed_rows(X: Tensor, times: Tensor, orders: Sequence[int]) -> Tensor:
    """The vectors √w·x of curves on common times: trapezoid weights for curves, lengths of steps for derivatives."""
    vectors = []
    for order in orders:
        edges, values = _derivative(times.to(X), X, order)
        steps = edges.diff()
        if order == 0:
            steps = 0.5 * (torch.nn.functional.pad(steps, (0, 1)) + torch.nn.functional.pad(steps, (1, 0)))
        vectors.append(values * steps.sqrt())
    return torch.cat(vectors, -1)


def _derivative(times: Tensor, X: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """The edges of the steps of an order's difference quotients, and the quotients; for order 0 the times and curves.

    The quotient of two neighbours belongs to the piece between them, and to its middle for the next order; the outer
    pieces reach to the ends.
    """
    edges = nodes = times
    for _ in range(order):
        X = X.diff(dim=-1) / nodes.diff()
        edges, nodes = nodes, 0.5 * (nodes[1:] + nodes[:-1])
    if order > 1:
        edges = torch.cat([times[:1], edges[1:-1], times[-1:]])
    return edges, X


def embed_pairs(curves: Sequence[Pair], orders: Sequence[int], interval: tuple[float, float]) -> Tensor:
    """The vectors √w·x whose inner products are the exact integrals of interpolants, or of steps, over an interval.

    Between two neighbouring times the product of two interpolants is a quadratic, for which Gauss's rule with two
    points is exact; for the product of two step functions one point is enough.
    """
    start, end = interval
    vectors = []
    for order in orders:
        steps = [_derivative(torch.from_numpy(t), torch.from_numpy(x), order) for t, x in curves]
        pieces = [(edges.numpy(), values.numpy()) for edges, values in steps]
        inner = np.unique(np.concatenate([edges for edges, _ in pieces]))
        cuts = np.concatenate([[start], inner[(inner > start) & (inner < end)], [end]])
        nodes, weights = _nodes(cuts, gauss=order == 0)
        require(
            8 * len(curves) * len(nodes),
            what=f"The union of the times of {len(curves)} curves ({len(nodes)} entries each)",
            advice="Give Functional a grid, on which curves are interpolated.",
        )
        rows = np.empty((len(curves), len(nodes)))
        for row, (edges, values) in zip(rows, pieces, strict=True):
            row[:] = np.interp(nodes, edges, values) if order == 0 else _step(nodes, edges, values)
        vectors.append(np.multiply(rows, np.sqrt(weights), out=rows))
    return torch.from_numpy(np.concatenate(vectors, 1) if len(vectors) > 1 else vectors[0])


def _nodes(cuts: np.ndarray, *, gauss: bool) -> Pair:
    """The nodes and weights of Gauss's rule with two points, or of the midpoint rule, between the cuts."""
    middle, half = 0.5 * (cuts[1:] + cuts[:-1]), 0.5 * np.diff(cuts)
    if not gauss:
        return middle, 2.0 * half
    offset = half / math.sqrt(3.0)
    return np.stack([middle - offset, middle + offset], 1).ravel(), np.repeat(half, 2)


def _step(nodes: np.ndarray, edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values of a step function; 0, the derivative of a constant, beyond its edges."""
    place = np.searchsorted(edges, nodes) - 1
    inside = (place >= 0) & (place < len(values))
    return np.where(inside, values[np.clip(place, 0, len(values) - 1)], 0.0)
