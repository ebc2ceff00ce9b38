"""The random walk kernel on labelled graphs, by conjugate gradients on product graphs that are never formed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.autograd.function import once_differentiable

from representer.kernels.base import Domain, Kernel, per_row
from representer.kernels.graphs import Union, check_graphs, runs, union
from representer.linalg import conjugate_gradient
from representer.parameters import Below, Hyperparameter, Positive, Word, is_real
from representer.values import number

# A learned decay stays below this share of what the graphs allow: beyond, conjugate gradients become slow.
SAFE_SHARE = 0.9
# A learned decay starts from this share of its limit.
START_SHARE = 0.5
# Pairs of nodes that are treated at once: a few vectors of them fit in the cache.
BLOCK_PAIRS = 2**17
ROUNDING = 1e-9
DOUBLE = torch.empty(0, dtype=torch.float64)


class RandomWalk(Kernel):
    """k(G, H) = 1ᵀ(I − decay·A)⁻¹1 = Σ_ℓ decay^ℓ · #{pairs of walks of length ℓ, in G and in H, with the same labels}.

    A is the adjacency matrix of the product graph: its nodes are the pairs of nodes of G and H with equal labels, and
    two pairs are adjacent if both their nodes are, by edges with equal labels. Walks may start and end anywhere and are
    not weighted (Gärtner et al. 2003). The sum must converge: decay · ρ(G) · ρ(H) < 1 with ρ the largest eigenvalue of
    a graph's adjacency matrix, which is at most its largest degree; otherwise a ValueError says what is allowed.

    Parameters
    ----------
    decay : float or "auto"
        The weight of a step. ``"auto"`` learns it, starting from half of the limit.
    limit : float, optional
        What a learned decay stays below. None: the graphs it is learned on decide it, 0.9 / max ρ². If graphs with a
        larger ρ may come later, choose 1 / Δ², which allows all graphs whose nodes have at most Δ neighbours.

    Examples
    --------
    >>> from representer.kernels import RandomWalk
    >>> from representer.kernels.graphs import Graph
    >>> edge = Graph([(0, 1)], node_labels=["C", "O"])
    >>> RandomWalk(decay=0.5)([edge]).tolist()
    [[4.0]]
    """

    domain: Domain = "objects"
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "decay": Hyperparameter(
            Positive(),
            {"auto": Word(lambda X: torch.tensor(START_SHARE * _limit(X)), learned=True)},
            scalar=True,
        )
    }

    def __init__(self, decay: Any = "auto", limit: float | None = None):
        self.decay = decay
        self.limit = limit

    def _own_specification(self, name: str) -> Hyperparameter:
        """What is learned stays below the limit."""
        own = super()._own_specification(name)
        return own if self.limit is None else replace(own, constraint=Below(limit=float(self.limit)))

    def check_hyperparameters(self) -> None:
        """Also the limit: None or a positive number."""
        if self.limit is not None and not (is_real(self.limit) and 0 < self.limit < float("inf")):
            raise ValueError(f"limit of RandomWalk must be None or a positive number; got {self.limit!r}.")
        super().check_hyperparameters()

    def _resolve(self, X: Any) -> Self:
        resolved = super()._resolve(X)
        if isinstance(self.decay, str):
            resolved.limit = _limit(X) if self.limit is None else self.limit
            resolved.decay = START_SHARE * resolved.limit
        return resolved

    def prepare(self, X: Any) -> list[Any]:
        """The graphs, as a list."""
        return check_graphs(X, "RandomWalk")

    def _gram(self, X: Any, Y: Any | None) -> Tensor:
        graphs = union(X if Y is None else [*X, *Y])
        n, end = len(X), graphs.n_graphs
        sizes = np.bincount(graphs.graph, minlength=end)[:n]
        skipped = 0 if Y is None else n  # the graphs that are in rows only

        def evaluate(decay: float, slope: bool) -> list[Tensor]:
            found = [torch.zeros(n, end - skipped, dtype=torch.float64) for _ in range(1 + slope)]
            for a, b in runs(sizes, BLOCK_PAIRS // max(1, graphs.size)):
                first = a if Y is None else n  # of k(X), one half is the mirror image of the other
                parts = _common_walks(graphs.part(a, b), graphs.part(first, end), decay, slope)
                for matrix, part in zip(found, parts, strict=True):
                    matrix[a:b, first - skipped :] = part
                    if Y is None:
                        matrix[a:, a:b] = part.mT
            return found

        return self._evaluate(evaluate, graphs, skipped, number(self, "decay", DOUBLE))

    def _diag(self, X: Any) -> Tensor:
        graphs = union(X)

        def evaluate(decay: float, slope: bool) -> list[Tensor]:
            parts = [graphs.part(i, i + 1) for i in range(len(X))]
            found = [torch.cat(_common_walks(part, part, decay, slope)).reshape(-1) for part in parts]
            return list(torch.stack(found, dim=-1))

        decay = per_row(number(self, "decay", DOUBLE))
        return self._evaluate(evaluate, graphs, 0, decay)

    def _evaluate(
        self, function: Callable[[float, bool], list[Tensor]], graphs: Union, split: int, decay: Tensor
    ) -> Tensor:
        """Values, with their derivative in decay, for one decay or a batch of them."""
        _check_decay(float(decay.detach().max()), graphs, split)
        learn = torch.is_grad_enabled() and decay.requires_grad
        each = [function(float(d), learn) for d in decay.detach().reshape(-1)]
        values, *slopes = (torch.stack(parts) for parts in zip(*each, strict=True))
        shape = (*decay.shape[: decay.ndim - values.ndim + 1], *values.shape[1:])
        values = values.reshape(shape)
        return _WithSlope.apply(decay, values, slopes[0].reshape(shape)) if learn else values


class _WithSlope(torch.autograd.Function):
    """Values that were computed outside of autograd, with their derivative in one number (or one a batch member)."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, values: Tensor, slopes: Tensor) -> Tensor:
        """The values."""
        ctx.save_for_backward(slopes)
        ctx.shape = decay.shape
        return values.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The chain rule."""
        (slopes,) = ctx.saved_tensors
        return (gradient * slopes).sum_to_size(ctx.shape), None, None


# -- the product graph ------------------------------------------------------------------------------------------------
def _common_walks(rows: Union, columns: Union, decay: float, slope: bool) -> list[Tensor]:
    """k of all pairs of graphs, and with ``slope`` its derivative xᵀAx, where (I − decay·A) x = 1.

    One system for all pairs: x is a matrix over nodes of ``rows`` × nodes of ``columns``, zero where labels differ, and
    A x = Σ_e A_e x B_e over the edge labels e. Its eigenvalues are those of the pairs', so that it takes no more steps.
    """
    equal = torch.from_numpy((rows.nodes[:, None] == columns.nodes[None, :]).astype(np.float64))
    shared = np.intersect1d(rows.arcs, columns.arcs)
    adjacencies = [(rows.adjacency(rows.arcs == e), columns.adjacency(columns.arcs == e)) for e in shared]

    def step(x: Tensor) -> Tensor:
        image = np.zeros(x.shape)
        for left, right in adjacencies:
            image += left @ (right @ x.numpy().T).T
        return torch.from_numpy(image).mul_(equal)

    # The derivative xᵀAx is off by the error of x. So is 1ᵀx; but with the residual r = 1 − (I − decay·A) x, the sum
    # xᵀ(1 + r) is off by the square of that error only.
    x = conjugate_gradient(
        lambda p: p - decay * step(p), equal, tol=1e-12 if slope else 1e-8, name="a random walk kernel"
    )
    image = step(x)
    residual = equal - x + decay * image
    sums = [x * (equal + residual), x * image] if slope else [x * (equal + residual)]
    return [_sums(matrix, rows, columns) for matrix in sums]


def _sums(matrix: Tensor, rows: Union, columns: Union) -> Tensor:
    """The sum over the nodes of each pair of graphs."""
    left, right = (
        sparse.csr_array((np.ones(u.size), (u.graph, np.arange(u.size))), shape=(u.n_graphs, u.size))
        for u in (rows, columns)
    )
    return torch.from_numpy((right @ (left @ matrix.numpy()).T).T.copy())


# -- convergence ------------------------------------------------------------------------------------------------------
def _radii(graphs: Union) -> np.ndarray:
    """The largest eigenvalue of each adjacency matrix: graphs of one size together."""
    sizes = np.bincount(graphs.graph, minlength=graphs.n_graphs)
    starts = np.cumsum(sizes) - sizes
    owner = graphs.graph[graphs.sources]
    radii = np.zeros(graphs.n_graphs)
    for size in np.unique(sizes[sizes > 0]):
        members = np.flatnonzero(sizes == size)
        arcs = np.flatnonzero(sizes[owner] == size)
        place, shift = np.searchsorted(members, owner[arcs]), starts[owner[arcs]]
        dense = np.zeros((len(members), size, size))
        dense[place, graphs.sources[arcs] - shift, graphs.targets[arcs] - shift] = 1.0
        radii[members] = np.linalg.eigvalsh(dense)[:, -1]
    return radii


def _limit(X: Any) -> float:
    """What a decay learned on these graphs stays below."""
    largest = float(_radii(union(X)).max())
    return SAFE_SHARE / max(largest, 1.0) ** 2


def _check_decay(decay: float, graphs: Union, split: int) -> None:
    """Refuse a decay for which the walks of some pair of graphs (before and from ``split`` on) have no finite sum."""
    degrees = np.bincount(graphs.sources, minlength=graphs.size)
    if decay * int(degrees.max(initial=0)) ** 2 < 1.0:
        return
    radii = _radii(graphs)
    left, right = (radii[:split], radii[split:]) if split else (radii, radii)
    if decay * left.max() * right.max() >= 1.0 - ROUNDING:
        i, j = int(left.argmax()), int(right.argmax())
        raise ValueError(
            f"decay={decay:.6g} of RandomWalk is too large: for graph {i} of X and graph {j} of {'Y' if split else 'X'}"
            f", whose adjacency matrices have the largest eigenvalues {left.max():.4g} and {right.max():.4g}, the sum "
            f"over walks converges only below 1 / (their product) = {1.0 / (left.max() * right.max()):.6g}. Choose a "
            "smaller decay, for all graphs with at most Δ neighbours below 1 / Δ²."
        )
