"""Conditional distributions as weights of samples: expectations, distribution functions, densities, draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor

from representer.functions.base import Function, Span
from representer.functions.composed import function_network
from representer.functions.embedding import OutputFunction, herd_rows
from representer.functions.features import FeatureFunction
from representer.kernels import Kernel
from representer.linalg import power_of_two, row_blocks
from representer.operators import Adapted, Representation, repaired_gram, silent_repairs
from representer.samples import Data, plain, take

# The least bandwidth, as a share of the marginal standard deviation: the conditional one, of a difference, may be zero.
LEAST_BANDWIDTH = 0.01
# Points of the quasi-Monte Carlo integral of a clipped density; it is then good to about three digits.
INTEGRATION_POINTS = 4096
# On a line densities are sums over a lattice, so many points in a bandwidth and at most so many, up to so many
# bandwidths beyond the targets. Through eight of its points a Gaussian is known to 1e-8 of its peak.
POINTS_PER_BANDWIDTH, MOST_POINTS, TAIL, NODES = 8, 65536, 9.0, 8
# Bandwidths that are compared, each 1/√2 of the one before; the share of a uniform density that no sample ends at −∞.
N_BANDWIDTHS, DOUBT = 14, 0.01


@dataclass(frozen=True)
class Moments:
    """c, E[Z − c], E[(Z − c)²] and E[1] of conditional distributions of Y = u Z, whose squares are in range.

    All but c and the unit u are rows, one a distribution.
    """

    centre: Tensor
    first: Tensor
    second: Tensor
    total: Tensor
    unit: Tensor

    def mean(self) -> Tensor:
        """The means E[Y], one row a distribution; refused beyond the range of numbers."""
        return self._in_range(self.unit * (self.first + self.centre * self.total), "mean")

    def variance(self) -> Tensor:
        """E[Y²] − E[Y]², clipped at zero; refused beyond the range of numbers, on either side."""
        relative = self._variance()
        values, info = self.unit * (self.unit * relative), torch.finfo(relative.dtype)
        lost = (values < info.tiny) & (relative > info.eps)
        return self._in_range(torch.where(lost, torch.nan, values), "variance")

    def deviation(self) -> Tensor:
        """The standard deviations of Y, whose squares may be beyond the range of numbers."""
        return self.unit * self._variance().sqrt()

    def _variance(self) -> Tensor:
        """E[Z²] − E[Z]² through the centred targets, for the digits; clipped at zero."""
        c, s = self.centre, self.total
        centred = self.second - self.first.square()
        return (centred + (1.0 - s) * (2.0 * c * self.first + c.square() * s)).clamp(min=0.0)

    def _in_range(self, values: Tensor, name: str) -> Tensor:
        if not bool(values.isfinite().all()):
            raise ValueError(
                f"The {name} of targets whose largest is about {float(self.unit.max()):.0e} is beyond the range of "
                f"numbers of {values.element_size()} bytes. Scale y: divide it by its largest absolute value before "
                "the fit."
            )
        return values


@dataclass(frozen=True)
class ConditionalEmbedding(OutputFunction):
    """x ↦ μ_x = Σ_i w_i(x) l(y_i, ·), the embedding of a conditional distribution; called, it gives the weights.

    Parameters
    ----------
    weights : Function
        w: called with inputs, rows (q, n); ``combined(X, values)``, where it has that, gives Vᵀw(x) without these.
    kernel : Kernel
        l, with numbers for all hyperparameters.
    anchors : data
        The y_i as they are stored: training targets, or landmarks of cells of them.
    representation : Representation
        How stored arrays become tensors.
    total_is_one : bool
        Do the weights sum to one, but for rounding?
    flat : bool
        Is each target one number?
    seed : int
        That of random draws.
    shares : array (n,) or None for equal ones
        The weights of the distribution of all targets.
    moments : FeatureFunction or None
        Where the y_i stand for cells: E[Y − c] and E[(Y − c)²]/u of all samples, (2d,).
    centre : array (d,) or None
        That c.
    bandwidth : float or None
        The bandwidth of densities of targets of one dimension; None: Scott's rule for each distribution.
    unit : float
        The u of the moments, with which squares are in range.
    """

    weights: Any
    kernel: Kernel
    anchors: Data
    representation: Representation
    total_is_one: bool
    flat: bool = False
    seed: int = 0
    shares: np.ndarray | None = None
    moments: Function | None = None
    centre: np.ndarray | None = None
    bandwidth: float | None = None
    unit: float = 1.0

    def __call__(self, X: Data) -> Tensor:
        """w(x_i) as rows, (q, n)."""
        return self.weights(X)

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """That of the weights, which sum to about one."""
        return float(self.weights.cancellation(limit, max(size, 1.0)))

    def spans(self) -> list[Span]:
        """The inputs, or landmarks of them, that the weights are functions of."""
        return self.weights.spans()

    # -- targets ------------------------------------------------------------------------------------------------------
    @property
    def output_kernel(self) -> Kernel:
        """l in the precision of the function; an indefinite kernel of objects is repaired."""
        how = self.representation
        if self.kernel.domain == "vectors":
            return self.kernel
        return Adapted(self.kernel, how.dtype, how.device, repair=True)

    def vectors(self, what: str) -> Tensor:
        """The y_i as a matrix (n, d); ``what`` needs them to be vectors."""
        Y = self.anchors
        numeric = isinstance(Y, np.ndarray) and Y.dtype.kind in "biuf" and Y.ndim == 2
        if self.kernel.domain == "gram" or not numeric:
            raise ValueError(
                f"{what} needs targets that are vectors; these are {self.kernel.domain}. Use expect(g, X) with "
                "a function of them."
            )
        return self.representation.tensor(Y)

    # -- expectations -------------------------------------------------------------------------------------------------
    def expect(self, values: Tensor, X: Data) -> Tensor:
        """Σ_i w_i(x) g(y_i) for values g(y_i), (n,) or (n, p)."""
        # Weights of sum one: centred values, so that no large constant multiplies the rounding error of the sum.
        c = middle(values) if self.total_is_one else torch.zeros_like(values[0])
        return c + self._combined(X, values - c)

    def _combined(self, X: Data, values: Tensor) -> Tensor:
        columns = values[:, None] if values.ndim == 1 else values
        if hasattr(self.weights, "combined") and bool(columns.isfinite().all()):
            result = self.weights.combined(X, columns)
        else:
            result = self.in_blocks(lambda rows: self(X[rows]) @ columns, X)
        return result[:, 0] if values.ndim == 1 else result

    def mean_function(self) -> Function:
        """x ↦ E[Y | X = x] as a sum over the samples, or over the features where the y_i stand for cells of them."""
        Y = plain(self.vectors("explain"))
        if self.moments is None or self.centre is None:
            return WeightedMean(self.weights, Y)
        moments, d = self.moments, len(self.centre)
        assert isinstance(moments, FeatureFunction) and isinstance(self.weights, FeatureFunction)
        if self.total_is_one:
            return moments.part(d, self.centre)
        total = self.weights.coefficients.sum(1, keepdims=True) * self.centre
        b = self.weights.intercept
        first = moments.part(d, 0.0 * self.centre if b is None else b.sum() * self.centre)
        return replace(first, coefficients=first.coefficients + total)

    def distribution_moments(self, X: Data, what: str) -> Moments:
        """The moments; where the y_i stand for cells, of all samples.

        Where the weights sum to one E[1] is one exactly: c² would multiply its rounding error.
        """
        Y = self.vectors(what)
        if self.moments is None or self.centre is None:
            unit = power_of_two(Y.abs().amax(0))
            c = middle(Y / unit)
            both = self._combined(X, torch.cat([Y / unit - c, (Y / unit - c).square()], 1))
        else:
            unit = Y.new_tensor(self.unit)
            c, both = self.representation.tensor(self.centre) / unit, self.moments(X) / unit
        first, second = both[:, : len(c)], both[:, len(c) :]
        total = torch.ones_like(first[:, :1])
        if not self.total_is_one:
            total = self._combined(X, torch.ones_like(Y[:, :1]))
        return Moments(c, first, second, total, unit)

    def network(self) -> torch.nn.Module:
        """The conditional mean E[Y | X = x] of vectors Y as a ``torch.nn.Module``."""
        Y = self.vectors("to_torch")
        if isinstance(self.moments, FeatureFunction) and self.centre is not None and self.total_is_one:
            return function_network(self.moments.part(len(self.centre), self.centre))
        fading = self.weights if hasattr(self.weights, "faded_network") else None
        weights = self.weights if fading is None else fading.weights
        if not hasattr(weights, "expansion"):
            raise ValueError("With an approximation, to_torch needs fit_intercept=True, whose weights sum to one.")
        c = middle(Y) if self.total_is_one else torch.zeros_like(Y[0])
        f = weights.expansion(Y - c)
        network = function_network(replace(f, intercept=plain(c) if f.intercept is None else f.intercept + plain(c)))
        return network if fading is None else fading.faded_network(network, Y)

    def proper(self, X: Data) -> Tensor:
        """Weights in rows of sum one; where they have no positive sum, far from all samples, those of all targets."""
        return proper(self(X), self._marginal())

    def _marginal(self) -> Tensor | None:
        return None if self.shares is None else self.representation.tensor(self.shares)

    # -- distribution functions ---------------------------------------------------------------------------------------
    def cdf(self, X: Data, y: np.ndarray) -> np.ndarray:
        """P[Y ≤ y | X = x], (q, m)."""
        levels, order, last = self._levels("cdf")
        index = np.searchsorted(levels, y, side="right")
        return self.in_blocks(lambda rows: np.pad(self._steps(X[rows], order, last), ((0, 0), (1, 0)))[:, index], X)

    def quantile(self, X: Data, q: np.ndarray) -> np.ndarray:
        """The smallest y among the y_i with P[Y ≤ y | X = x] ≥ q, (q, m)."""
        levels, order, last = self._levels("quantile")

        def block(rows: slice) -> np.ndarray:
            steps = self._steps(X[rows], order, last)
            places = np.array([np.searchsorted(row, q - 1e-12, side="left") for row in steps])
            return levels[np.minimum(places, len(levels) - 1).reshape(len(steps), len(q)).astype(int)]

        return self.in_blocks(block, X)

    def _levels(self, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The distinct targets in order, the order of all, and which of them is the last of its equals."""
        Y = plain(self.vectors(what))
        if Y.shape[1] != 1:
            raise ValueError(f"{what} needs targets of one dimension; these have {Y.shape[1]}. Use expect(g, X).")
        order = np.argsort(Y[:, 0], kind="stable")
        levels = Y[order, 0]
        last = np.append(levels[1:] != levels[:-1], True)
        return levels[last], order, last

    def _steps(self, X: Data, order: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The distribution function at the distinct targets: monotone, ending at one."""
        raw = plain(self.proper(X))[:, order].cumsum(1)[:, last]
        # Negative weights make it fall in places: the mean of the least majorant and the greatest minorant is as near
        # to it as a monotone function can be, in the largest deviation.
        above = np.maximum.accumulate(raw, 1)
        below = np.minimum.accumulate(raw[:, ::-1], 1)[:, ::-1]
        steps = np.clip(0.5 * (above + below), 0.0, 1.0)
        steps[:, -1] = 1.0
        return steps

    def density(self, X: Data, points: np.ndarray, bandwidth: float | None) -> Tensor:
        """The density at points (m, d), smoothed by a Gaussian, clipped at zero and divided by its integral, (q, m)."""
        Y, where = self.vectors("density"), self.representation.tensor(points)

        def block(rows: slice) -> Tensor:
            weights = self.proper(X[rows])
            width = self.bandwidth if bandwidth is None else bandwidth
            scale = bandwidths(weights, Y) if width is None else weights.new_full((1, Y.shape[1]), width)
            return densities(weights, Y, where, scale.expand(len(weights), -1), self.seed)

        return self.in_blocks(block, X)

    # -- draws --------------------------------------------------------------------------------------------------------
    def herded(self, X: Data, n_samples: int) -> Tensor:
        """The numbers of targets that kernel herding chooses, (q, n_samples)."""
        with silent_repairs():
            gram, _ = repaired_gram(self.output_kernel, self.prepared_anchors)
        return self.in_blocks(lambda rows: herd_rows(self(X[rows]) @ gram, gram.__getitem__, n_samples), X)

    def drawn(self, X: Data, n_samples: int) -> Tensor:
        """The numbers of targets drawn with the weights as probabilities, negative ones clipped, (q, n_samples)."""
        generator, marginal = torch.Generator().manual_seed(self.seed), self._marginal()

        def block(rows: slice) -> Tensor:
            clipped = self(X[rows]).clamp(min=0.0)
            known = clipped.sum(1, keepdim=True) > 0
            clipped = torch.where(known, clipped, 1.0 if marginal is None else marginal)
            return torch.multinomial(clipped.cpu(), n_samples, replacement=True, generator=generator)

        return self.in_blocks(block, X)

    def chosen(self, numbers: Tensor) -> Any:
        """The targets with these numbers (q, m), as they were given."""
        if isinstance(self.anchors, np.ndarray):
            samples = self.anchors[plain(numbers)]
            return samples[..., 0] if self.flat else samples
        return [take(self.anchors, row) for row in numbers]


@dataclass(frozen=True)
class WeightedMean(Function):
    """x ↦ Σ_i w_i(x) y_i.

    Parameters
    ----------
    weights : Function
        w, a function of ``anchors``.
    values : array (n, d)
        The y_i.
    """

    weights: Any
    values: np.ndarray

    def __call__(self, X: Data) -> Tensor:
        """The means (q, d)."""
        return self.contributions(X).sum(1)

    def contributions(self, X: Data) -> Tensor:
        """The terms w_i(x) y_i, (q, n, d)."""
        w = self.weights(X)
        return w[:, :, None] * torch.from_numpy(self.values).to(w)

    @property
    def terms_of(self) -> Data:
        """The inputs of the samples."""
        return self.weights.anchors


def middle(values: Tensor) -> Tensor:
    """For each column of values (n,) or (n, p) the entry that is nearest to the mean, so that differences from it are
    as exact as the values; zero where the mean is not finite."""
    mean = values.mean(0)
    nearest = values.gather(0, (values - mean).abs().argmin(0, keepdim=True))[0]
    return torch.where(mean.isfinite(), nearest, 0.0)


# -- weights of vectors, some of which may be negative ----------------------------------------------------------------
def proper(weights: Tensor, shares: Tensor | None = None) -> Tensor:
    """Weights (q, n) in rows of sum one; ``shares``, or equal ones, where they have no positive sum: far from all."""
    total, size = weights.sum(1, keepdim=True), weights.abs().sum(1, keepdim=True)
    known = total > torch.finfo(weights.dtype).eps ** 0.5 * size  # else it is a rounding error, or nearly
    far = 1.0 / weights.shape[1] if shares is None else shares
    return torch.where(known, weights / torch.where(known, total, 1.0), far)


def bandwidths(weights: Tensor, Y: Tensor) -> Tensor:
    """Scott's rule (q, d) for proper weights; not below a share of the marginal standard deviations."""
    unit = power_of_two(Y.abs().amax(0))  # squares of the targets in it are in range
    Y = Y / unit
    d, eps, c = Y.shape[1], torch.finfo(Y.dtype).eps, Y.mean(0)
    effective = (1.0 / weights.square().sum(1)).clamp(1.0, len(Y))
    variance = (weights @ (Y - c).square() - (weights @ (Y - c)).square()).clamp(min=0.0)
    scale = variance.sqrt() * effective[:, None] ** (-1.0 / (d + 4))
    largest = Y.abs().amax(0)
    # What is constant to half the digits: as narrow as they can show.
    constant = eps**0.5 * torch.where(largest > 0, largest, 1.0)
    return unit * torch.maximum(scale, torch.maximum(LEAST_BANDWIDTH * Y.std(0, correction=0), constant))


def densities(weights: Tensor, Y: Tensor, points: Tensor, scale: Tensor, seed: int) -> Tensor:
    """max(0, Σ_i w_i N(y; y_i, scale²)) over its integral, (q, m), for proper weights (q, n) and scale (q, d)."""
    if not len(weights):
        return weights.new_zeros(0, len(points))
    if bool((scale == scale[:1]).all()):  # one matrix serves all distributions
        return _densities(weights, Y, points, scale[0], seed)
    return torch.cat([_densities(w[None], Y, points, h, seed) for w, h in zip(weights, scale, strict=True)])


def _densities(weights: Tensor, Y: Tensor, points: Tensor, h: Tensor, seed: int) -> Tensor:
    """Densities (q, m) with the same bandwidths h (d,)."""
    lattice = Lattice.of(Y, h) if len(h) == 1 else None
    if lattice is not None:
        return torch.cat([lattice.densities(weights[rows], Y, points) for rows in lattice.blocks(len(weights))])
    clipped = (weights @ _normal(points, Y, h).mT).clamp(min=0.0)
    return clipped / torch.stack([_mass(w, Y, h, seed) for w in weights])[:, None]


def _line_masses(weights: Tensor, Y: Tensor, h: Tensor) -> Tensor:
    """∫ max(0, p) (q,) of targets on a line; one where no weight is negative."""
    if not bool((weights < 0).any()):
        return weights.sum(1)
    lattice = Lattice.of(Y, h)
    if lattice is None:
        return torch.stack([_mass(w, Y, h, seed=0) for w in weights])
    blocks = lattice.blocks(len(weights))
    return torch.cat([lattice.masses(lattice.smoothed(weights[rows], Y)) for rows in blocks])


@dataclass(frozen=True)
class Lattice:
    """Equally spaced points on a line, on which sums of Gaussians around targets are convolutions.

    A Gaussian is so smooth that each target may be shared among the points near it, by the weights with which a
    polynomial through these points interpolates, and values between points are read off with the same weights.

    Parameters
    ----------
    low, step : float
        The first point, and the distance of neighbours.
    size : int
        How many points there are.
    h : float
        The standard deviation of the Gaussians.
    """

    low: float
    step: float
    size: int
    h: float

    @classmethod
    def of(cls, Y: Tensor, h: Tensor) -> Lattice | None:
        """The lattice around targets (n, 1); None where it would have too many points."""
        width, step = float(h), float(h) / POINTS_PER_BANDWIDTH
        low, high = float(Y.min()) - TAIL * width, float(Y.max()) + TAIL * width
        size = (high - low) / step + 2
        return cls(low, step, int(size), width) if size <= MOST_POINTS else None

    def blocks(self, n: int) -> Iterator[slice]:
        """So many distributions in blocks of bounded memory."""
        return row_blocks(n, 6 * 16 * self.size)

    def densities(self, weights: Tensor, Y: Tensor, points: Tensor) -> Tensor:
        """max(0, p) over its integral at points (m, 1), (q, m)."""
        sums = self.smoothed(weights, Y)
        return self.values(sums, points).clamp(min=0.0) / self.masses(sums)[:, None]

    def shares(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers of the lattice points near each of some points (m, 1), and their Lagrange weights, (m, nodes)."""
        places = (points[:, 0] - self.low) / self.step
        first = places.floor().clamp(NODES // 2 - 1, self.size - NODES // 2 - 1) - (NODES // 2 - 1)
        nodes = torch.arange(NODES, dtype=points.dtype, device=points.device)
        offsets = (places - first)[:, None] - nodes
        others = [torch.cat([nodes[:j], nodes[j + 1 :]]) for j in range(NODES)]
        columns = [offsets[:, own.long()].prod(1) / (j - own).prod() for j, own in enumerate(others)]
        return first[:, None].long() + nodes.long(), torch.stack(columns, 1)

    def smoothed(self, weights: Tensor, Y: Tensor) -> Tensor:
        """Σ_i w_i N(·; y_i, h²) at the lattice points, (q, size), for weights (q, n) of targets (n, 1)."""
        index, shares = self.shares(Y)
        columns = weights.mT.contiguous()  # whole rows are added up in memory
        spread = columns.new_zeros(self.size, len(weights))
        for j in range(NODES):
            spread.index_add_(0, index[:, j], columns * shares[:, j, None])
        # Targets lie so far from both ends that what goes around the circle is less than rounding.
        length = next_fast_len(self.size, real=True)
        places = torch.arange(length, dtype=Y.dtype, device=Y.device)
        reach = torch.minimum(places, length - places) * self.step / self.h
        gaussian = torch.exp(-0.5 * reach.square()) / (self.h * (2.0 * math.pi) ** 0.5)
        waves = torch.fft.rfft(spread.mT.contiguous(), length) * torch.fft.rfft(gaussian)
        return torch.fft.irfft(waves, length)[:, : self.size]

    def values(self, sums: Tensor, points: Tensor) -> Tensor:
        """What sums (q, size) at the lattice points are at points (m, 1) between them, (q, m); zero beyond them."""
        index, shares = self.shares(points)
        places = (points[:, 0] - self.low) / self.step
        inside = ((places >= 0) & (places <= self.size - 1)).to(sums)
        total = sums.new_zeros(len(sums), len(points))
        for j in range(NODES):
            total += sums[:, index[:, j]] * (shares[:, j] * inside).nan_to_num(0.0)
        return total

    def masses(self, sums: Tensor) -> Tensor:
        """∫ max(0, p) (q,) by the trapezoidal rule."""
        return (sums.clamp(min=0.0).sum(1) * self.step).clamp(min=torch.finfo(sums.dtype).eps)


def best_bandwidth(weights: Tensor, Y: Tensor, rows: Tensor) -> tuple[float, Tensor]:
    """The bandwidth of most log density for samples that were left out, of targets on a line, and their log densities.

    Parameters
    ----------
    weights : tensor (q, n)
        Proper weights of all samples for each of the left-out ones.
    Y : tensor (n, 1)
        The targets.
    rows : tensor of int (q,)
        The numbers of the left-out samples.
    """
    unit = power_of_two(Y.abs().max())  # squares of the targets in it are in range
    Y = Y / unit
    deviation, spread = Y.std(correction=0), Y.max() - Y.min()
    if not bool(deviation > 0):
        return float(unit * bandwidths(weights[:1], Y)[0, 0]), torch.zeros_like(weights[:, 0])

    squares = (Y[rows] - Y[:, 0]).square()

    def scores(inside: Tensor, mass: Tensor | float = 1.0) -> Tensor:
        return ((1.0 - DOUBT) * inside / mass + DOUBT / spread).log()

    widths = [deviation * 2.0 ** (-k / 2.0) for k in range(N_BANDWIDTHS)]
    inside = [(weights * _gaussian(squares, h)).sum(1).clamp(min=0.0) for h in widths]
    # Masses take the time, and are at least one: what has less log density even with one need not be looked at.
    best, log_densities = widths[0], torch.full_like(weights[:, 0], -torch.inf)
    bounds = torch.stack([scores(own).mean() for own in inside])
    for k in bounds.argsort(descending=True).tolist():
        if not bounds[k] > log_densities.mean():
            break
        own = scores(inside[k], _line_masses(weights, Y, widths[k][None]))
        if own.mean() > log_densities.mean():
            best, log_densities = widths[k], own
    return float(unit * best), log_densities - math.log(float(unit))


def _gaussian(squares: Tensor, h: Tensor) -> Tensor:
    """The density of a deviation h at the squares of distances on a line."""
    return torch.exp(-0.5 * squares / h.square()) / (h * (2.0 * math.pi) ** 0.5)


def _normal(points: Tensor, Y: Tensor, h: Tensor) -> Tensor:
    squares = torch.cdist(points / h, Y / h, compute_mode="donot_use_mm_for_euclid_dist").square()
    return torch.exp(-0.5 * squares) / (h * (2.0 * math.pi) ** 0.5).prod()


def _mass(w: Tensor, Y: Tensor, h: Tensor, seed: int) -> Tensor:
    """∫ max(0, p), p = Σ_i w_i N(·; y_i, h²): the mean of max(0, p)/p₊ under p₊, of the positive weights alone."""
    positive = w.clamp(min=0.0)
    total = positive.sum()
    if not bool((w < 0).any()):
        return total
    uniform = torch.quasirandom.SobolEngine(Y.shape[1] + 1, scramble=True, seed=seed).draw(
        INTEGRATION_POINTS, dtype=torch.float64
    )
    order = Y[:, 0].argsort()
    first = uniform[:, 0].to(w).contiguous()
    index = torch.searchsorted(positive[order].cumsum(0) / total, first).clamp(max=len(Y) - 1)
    noise = torch.special.ndtri(uniform[:, 1:].clamp(1e-12, 1.0 - 1e-12)).to(w)
    normal = _normal(Y[order[index]] + h * noise, Y, h)
    above = normal @ positive
    share = ((normal @ w).clamp(min=0.0) / above.clamp(min=torch.finfo(w.dtype).tiny)).mean()
    return total * share.clamp(min=torch.finfo(w.dtype).eps)
