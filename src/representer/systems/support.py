"""How far from the samples an input is: the share of k(x, x) that a fit's samples explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions import FieldState, Function, Span, Stacked
from representer.kernels import is_bounded
from representer.linalg import by_rows, cached_bytes, inverse_blocks
from representer.samples import Data, HeldSamples, count, plain, take
from representer.samples import rows as limits
from representer.systems.base import Groups
from representer.systems.scalar import SampleWeights

# At a sample all but this share of k(x, x) is explained, however noisy the targets: alpha may be large where they say
# little, and then only many neighbours would be support.
MOST_NOISE = 0.03
# Up to so many points the factor of a fit stays at hand for the first question; beyond, it is computed again.
KEPT_FACTOR = 2000


@dataclass(frozen=True)
class PointSupport(FieldState):
    """s(x) = k_xᵀ(K + N)⁻¹k_x / k(x, x) of points with the noise N: 1 − variance/k(x, x) of a Gaussian process.

    Parameters
    ----------
    weights : SampleWeights
        (K + N)⁻¹k_x, without a constant.
    inner : tuple of Function
        What inputs go through before the kernel sees them; the points have been there.
    groups : array (n,) or None
        The points that are left out together.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from representer.kernels import Gaussian
    >>> from representer.operators import Representation
    >>> from representer.systems.scalar import SampleWeights
    >>> from representer.systems.support import PointSupport
    >>> how = Representation(torch.float64)
    >>> support = PointSupport(SampleWeights(Gaussian(1.0), np.array([[0.0]]), 1.0, False, how))
    >>> support(np.array([[0.0], [9.0]])).round(decimals=6).tolist()
    [0.5, 0.0]
    """

    weights: SampleWeights
    inner: tuple[Function, ...] = ()
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.weights.anchors)

    def __call__(self, X: Data) -> Tensor:
        """The shares (m,) at checked inputs, in blocks."""
        return self._shares(X, self.weights.solved.system.explained)

    def at_least(self, X: Data) -> Tensor:
        """Bounds (m,) below the shares: what the one point explains that explains most."""
        system = self.weights.solved.system
        return self._shares(X, system.explained_by_one, cached_bytes(system.matrix))

    def _shares(self, X: Data, explained: Callable[[Tensor], Tensor], limit: int | None = None) -> Tensor:
        how, solved = self.weights.representation, self.weights.solved
        for f in self.inner:
            X = f(X)
        inputs = how.inputs(solved.kernel, X)

        def shares(rows: slice) -> Tensor:
            return _share(explained(solved.cross(inputs[rows])), solved.diagonal(inputs[rows]))[:, None]

        with torch.no_grad():
            return by_rows(shares, count(inputs), 3 * len(solved.system.matrix) * how.dtype.itemsize, limit)[:, 0]

    def left_out(self) -> Tensor:
        """The share (n,) of each point by all others, or by those of other groups; zero weights explain nothing."""
        system, w = self.weights.solved.system, self.weights.sample_weight
        diagonal, P = system.matrix.diagonal(), system.unit_coefficients
        positive = torch.ones_like(diagonal, dtype=torch.bool) if w is None else torch.from_numpy(w > 0)
        rows = positive.nonzero()[:, 0]
        labels = np.arange(len(rows)) if self.groups is None else self.groups[rows.numpy()]
        parts = Groups.of(labels, P.device)
        if any(members.shape[1] == len(rows) for members in parts.members):
            return torch.zeros_like(diagonal)  # all of them are left out together, and nothing explains anything
        own = [_inverse_diagonal(block)[..., None] for block in parts.blocks(P[rows][:, rows])]
        noise = system.shift if w is None else system.shift / torch.from_numpy(w[w > 0]).to(diagonal)
        variance = parts.joined(own, diagonal[rows, None])[:, 0] - noise
        shares = _share(diagonal[rows] - variance, diagonal[rows])
        if len(rows) == len(P):
            return shares
        everything = _share((system.matrix * (P @ system.matrix)).sum(0), diagonal)
        everything[rows] = shares
        return everything

    def some(self, size: int) -> PointSupport:
        """The support by evenly spaced points, at most so many, as that of a fit to them with the same alpha."""
        own, n = self.weights, len(self)
        if n <= size:
            return self
        rows, w = limits.evenly_spaced(n, size), own.sample_weight
        share = size / n if w is None else float(w[rows].sum() / w.sum())
        points = take(own.anchors, torch.from_numpy(rows))
        few = replace(own, anchors=points, shift=share * own.shift, sample_weight=None if w is None else w[rows])
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, weights=few, groups=groups)

    def at_rest(self) -> PointSupport:
        """The same without a large factor."""
        return self if len(self) <= KEPT_FACTOR else replace(self, weights=replace(self.weights))


def _inverse_diagonal(blocks: Tensor) -> Tensor:
    """The diagonals (g, s) of inverses (g, s, s); infinite where rounding has left a block singular."""
    diagonals = inverse_blocks(blocks).diagonal(dim1=-2, dim2=-1)
    return torch.where(diagonals.isfinite(), diagonals, torch.inf)


def _share(explained: Tensor, diagonal: Tensor) -> Tensor:
    """The quotient between 0 and 1; nothing is explained of k(x, x) = 0."""
    return torch.where(diagonal > 0, explained / torch.where(diagonal > 0, diagonal, 1.0), 0.0).clamp(0.0, 1.0)


@dataclass(frozen=True)
class Support(FieldState):
    """The support of inputs by the samples of a fit: of a stack by its weights, of layers the least of theirs.

    Parameters
    ----------
    parts : tuple of PointSupport or Support
        One for each kernel, or member of a stack, that counts.
    shares : tuple of float or None
        The weights of a stack's members, of sum one; None: the least counts.
    bounded : bool
        Is k(x, x) bounded, so that inputs far from all samples have no support?
    held : data or None
        Samples of the fit, where not all parts have them as their points; None: the points are the samples. Points
        that stand for many samples are not missed where one of these is left out.
    """

    parts: tuple[PointSupport | Support, ...]
    shares: tuple[float, ...] | None = None
    bounded: bool = True
    held: Data = None

    @classmethod
    def of(
        cls, function: Function, alpha: Any = None, samples: HeldSamples | None = None, held: HeldSamples | None = None
    ) -> Support:
        """The support of the samples behind a fitted function.

        Parameters
        ----------
        function : Function
            Whose ``spans`` say what the samples, or landmarks that stand for them, are.
        alpha : float, sequence or None
            The weight of ‖f‖², of each member of a stack; None: the mean k(x, x) over the number of points.
        samples, held : HeldSamples or None
            All samples of the fit, and some of those of a fit by sums, where they are known.
        """
        if isinstance(function, Stacked):
            return cls._of_stack(function, alpha, samples, held)
        spans = function.spans()
        alphas = [None] * (len(spans) - 1) + [alpha]  # alpha is that of the last layer
        layers = [(span, a) for span, a in zip(spans, alphas, strict=True) if is_bounded(span.kernel)]
        bounded, layers = bool(layers), layers or [(spans[-1], alpha)]
        drawn = any(span.points is None for span, _ in layers)
        parts = tuple(point_support(span, a, samples, held) for span, a in layers)
        return cls(parts, None, bounded, None if held is None or drawn else held.X)

    @classmethod
    def _of_stack(
        cls, stack: Stacked, alphas: object, samples: HeldSamples | None, held: HeldSamples | None
    ) -> Support:
        """The mean of the members' support by their weights; those that are not bounded count where no other does."""
        weights = stack.weights.mean(1).tolist()
        each = np.broadcast_to(np.asarray(alphas, dtype=float), len(weights)).tolist()
        members = [
            (cls.of(f, alpha, samples, held), w)
            for f, alpha, w in zip(stack.functions, each, weights, strict=True)
            if w > 0
        ]
        bounded = any(member.bounded for member, _ in members)
        members = [(member, w) for member, w in members if member.bounded or not bounded]
        total = sum(w for _, w in members)
        shares = tuple(w / total for _, w in members)
        return cls(tuple(member for member, _ in members), shares, bounded)

    def __len__(self) -> int:
        return len(self.parts[-1]) if self.held is None else len(self.held)

    def __call__(self, X: Data) -> Tensor:
        """The support (m,) of checked inputs, between 0 and 1."""
        return self._joint([part(X) for part in self.parts])

    def at_least(self, X: Data) -> Tensor:
        """Bounds (m,) below the support, for which no equations are solved."""
        return self._joint([part.at_least(X) for part in self.parts])

    def left_out(self) -> Tensor:
        """The support of samples by the others; it tells what to expect of new ones."""
        return self._left_out

    @cached_property
    def _left_out(self) -> Tensor:
        held = self.held
        if held is None:
            return self._joint([part.left_out() for part in self.parts if len(part) == len(self.parts[-1])])
        return self._joint([part.left_out() if len(part) == len(held) else part(held) for part in self.parts])

    def threshold(self, share: float) -> float:
        """The support that this share of the samples, each left out, does not reach."""
        return float(np.quantile(plain(self.left_out()), share))

    def _joint(self, values: Sequence[Tensor]) -> Tensor:
        stacked = torch.stack([value.double().cpu() for value in values])
        return stacked.amin(0) if self.shares is None else torch.tensor(self.shares, dtype=stacked.dtype) @ stacked

    def at_rest(self) -> Support:
        """The same without large matrices, which are computed again when they are needed."""
        return replace(self, parts=tuple(part.at_rest() for part in self.parts))


def point_support(
    span: Span,
    alpha: float | None,
    samples: HeldSamples | None,
    held: HeldSamples | None,
    *,
    intercept: bool = False,
    most_noise: float = MOST_NOISE,
) -> PointSupport:
    """The support of the points of a span, or of samples where it has none; the noise is at most a share of k(x, x)."""
    points, w, groups = span.points, span.weights, None
    if points is None:
        points, w, groups = _some_samples(held if held is not None else samples)
    elif samples is not None and held is None and len(samples.X) == len(points):
        w, groups = samples.weights if w is None else w, samples.groups
    n = len(points)
    total, scale = float(n if w is None else w.sum()), _mean_diagonal(span, points)
    shift = min(total * (scale / n if alpha is None else float(alpha)), most_noise * scale)
    weights = SampleWeights(span.kernel, points, shift, intercept, span.representation, w)
    return PointSupport(weights, span.inner, groups)


def _some_samples(samples: HeldSamples | None) -> tuple[Data, np.ndarray | None, np.ndarray | None]:
    """Samples that stand for all, or all, with their weights and groups."""
    if samples is None:
        raise ValueError(
            "The support of new inputs needs samples of the fit, and this one keeps neither samples nor landmarks. Use "
            "approximation=Nystroem(m)."
        )
    rows = limits.evenly_spaced(len(samples.X), limits.HELD_ROWS)
    w, groups = (None if a is None else a[rows] for a in (samples.weights, samples.groups))
    return take(samples.X, torch.from_numpy(rows)), w, groups


def _mean_diagonal(span: Span, points: Data) -> float:
    """The mean k(x, x) of the points."""
    how = span.representation
    kernel = how.adapted(span.kernel, repair=False)
    return float(kernel._diag(how.inputs(kernel, points)).mean())


# -- answers far from all samples --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Trust(Function):
    """t(x) = min(1, s(x)/reference)^power: how much an answer counts where the points support x by s(x).

    Parameters
    ----------
    support : PointSupport
        s.
    reference, power : float
        From which support on answers are what they are, and how fast they fade below it.
    """

    support: PointSupport
    reference: float
    power: float

    @classmethod
    def of(cls, support: PointSupport) -> Trust:
        """Full trust wherever an input has a hundredth of the support of any point that is left out."""
        left_out, w = support.left_out(), support.weights.sample_weight
        least = float((left_out if w is None else left_out[torch.from_numpy(w > 0)]).min())
        support = replace(support, groups=None)
        return cls(support, max(FAINT * least, float(torch.finfo(torch.float64).tiny)), POWERS[0])

    def __call__(self, X: Data) -> Tensor:
        """The trust (q, 1); equations are solved where a bound below the support leaves some doubt."""
        support = self.support.at_least(X)
        doubted = (support < self.reference).nonzero()[:, 0]
        if len(doubted):
            support[doubted] = self.support(take(X, doubted.cpu()))
        return trust(support, self.reference, self.power)[:, None]

    def faded_network(self, network: torch.nn.Module, far: Tensor) -> torch.nn.Module:
        """t f(x) + (1 − t) c of a network f and a constant c (p,)."""
        return FadingNetwork(self, network, far).cpu()


@dataclass(frozen=True)
class FadingWeights(Function):
    """t w(x) + (1 − t) π: the weights of all samples in the fit, π, where an input is not trusted.

    Parameters
    ----------
    weights : SampleWeights
        w.
    trust : Trust
        t.
    """

    weights: SampleWeights
    trust: Trust

    @property
    def anchors(self) -> Data:
        """The training inputs that the weights belong to."""
        return self.weights.anchors

    @property
    def shares(self) -> Tensor:
        """π (n,): the weights of the samples in the fit, with the sum one."""
        how, w = self.weights.representation, self.weights.sample_weight
        shares = torch.ones(len(self.weights.anchors), dtype=torch.float64) if w is None else torch.from_numpy(w)
        return how.tensor(shares / shares.sum())

    def __call__(self, X: Data) -> Tensor:
        """The weights of the training samples as rows, (q, n)."""
        t = self.trust(X)
        return t * self.weights(X) + (1.0 - t) * self.shares

    def combined(self, X: Data, values: Tensor) -> Tensor:
        """The combinations (q, p) of values (n, p) of the samples, in blocks: no q × n matrix exists."""
        t = self.trust(X)
        return t * self.weights.combined(X, values) + (1.0 - t) * (self.shares @ values)

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """That of the weights which fade."""
        return self.weights.cancellation(limit, size)

    def spans(self) -> list[Span]:
        """The training inputs, which span the weights."""
        return self.weights.spans()

    def faded_network(self, network: torch.nn.Module, Y: Tensor) -> torch.nn.Module:
        """A network of the values Yᵀw(x) of weights that do not fade, as the one of those that do."""
        return self.trust.faded_network(network, self.shares @ Y)


class FadingNetwork(torch.nn.Module):
    """t f(x) + (1 − t) c of a network f and a constant c, with the trust t."""

    inverse: Tensor
    far: Tensor

    def __init__(self, trust: Trust, network: torch.nn.Module, far: Tensor):
        super().__init__()
        self.solved, self.reference, self.power = trust.support.weights.solved, trust.reference, trust.power
        self.network = network
        system = self.solved.system
        self.register_buffer("inverse", system._solve(torch.eye(len(system.matrix)).to(system.matrix)).detach())
        self.register_buffer("far", far.detach().clone())

    def forward(self, X: Tensor) -> Tensor:
        """The values (n, p)."""
        inputs = X.to(self.inverse)
        cross = self.solved.cross(inputs)
        share = _share(((cross @ self.inverse) * cross).sum(1), self.solved.diagonal(inputs))
        t = trust(share, self.reference, self.power)[:, None]
        return t * self.network(X) + (1.0 - t) * self.far


def trust(support: Tensor, reference: float, power: float) -> Tensor:
    """min(1, s/reference)^power: how much an answer counts where the support is s."""
    share = (support.double() / reference).clamp(max=1.0)  # in single precision a small reference would be zero
    return (share**power).to(support)


# Inputs whose support is less than this share of that of any left-out sample have lost the weights of the fit.
FAINT = 0.01
# The shares of left-out samples that may lie below full trust, and the powers with which it fades, that are compared.
DOUBTED = (0.0, 0.01, 0.05)
POWERS = (0.25, 1.0, 4.0)


def least_doubt(left_out: Tensor, loss: Callable[[float, float], float] | None) -> tuple[float, float]:
    """The reference and the power of the least loss; that of no doubt, half of the least support, unless others win."""
    tiny = float(torch.finfo(torch.float64).tiny)
    levels = [max(float(left_out.double().quantile(share)), tiny) for share in DOUBTED]
    first = (max(levels[0] / 2.0, tiny), POWERS[0])
    if loss is None:
        return first
    candidates = [first, *((level, power) for level in levels[1:] for power in POWERS)]
    return min(candidates, key=lambda each: loss(*each))
