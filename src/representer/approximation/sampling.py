"""Which samples become landmarks: by chance, pivots, ridge leverage scores or entropy, or the centres of clusters."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from representer.kernels import Kernel, Scaled, Stationary
from representer.linalg import factorize, pivoted_cholesky, row_blocks, shifted
from representer.samples import Data, count, sample_rows, take
from representer.values import number

# Choices that look at every sample for each landmark look at this many random ones, or at four times as many as there
# are landmarks: beyond it their cost would be that of the fit, and they would need all data in one place.
CANDIDATES, CANDIDATES_PER_LANDMARK = 20_000, 4
LLOYD_STEPS = 10


def candidate_rows(n: int, m: int, seed: int) -> np.ndarray:
    """The rows among which m landmarks are chosen where a choice looks at every row for each landmark."""
    return sample_rows(n, max(CANDIDATES, CANDIDATES_PER_LANDMARK * m), seed)


def pivots(kernel: Kernel, X: Data, m: int) -> Tensor:
    """One by one, where the kernel is matched worst so far; fewer than m where the rank is less."""

    def column(index: int) -> Tensor:
        return kernel._gram(X, X[index : index + 1])[:, 0]

    return pivoted_cholesky(column, diagonal=kernel._diag(X), max_rank=m)[1]


def entropy_sample(kernel: Kernel, X: Data, m: int, seed: int) -> Tensor:
    """m rows, one after the other that with the least Σ k(x, chosen), so that −log mean k(chosen, chosen) stays large.

    Examples
    --------
    >>> import torch
    >>> from representer.approximation import entropy_sample
    >>> from representer.kernels import Gaussian
    >>> X = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
    >>> 3 in entropy_sample(Gaussian(1.0), X, 2, seed=0).tolist()
    True
    """
    chosen = [int(sample_rows(count(X), 1, seed)[0])]
    sums = kernel._diag(X).clone()
    for _ in range(m - 1):
        sums = sums + 2.0 * kernel._gram(X, take(X, torch.tensor(chosen[-1:])))[:, 0]
        sums[chosen[-1]] = torch.inf
        chosen.append(int(sums.argmin()))
    return torch.tensor(chosen).sort().values


# -- ridge leverage scores -------------------------------------------------------------------------------------------
def leverage_sample(kernel: Kernel, X: Data, m: int, seed: int) -> Tensor:
    """m rows drawn by recursive ridge leverage scores (Musco & Musco, 2017), in O(n m²) and without an n × n matrix.

    The scores [K(K + λI)⁻¹]_ii of the rows of a random half are estimated from rows drawn from a half of that half,
    and so on down to m rows; λ is where m rows suffice.
    """
    n = count(X)
    if m >= n:
        return torch.arange(n)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    oversampling = max(1.0, math.log(m))
    rank = max(1, math.ceil(m / (4.0 * oversampling)))
    sizes = [n]
    while sizes[-1] > m:
        sizes.append(-(-sizes[-1] // 2))
    chosen, weights = torch.arange(sizes[-1]), torch.ones(sizes[-1], dtype=torch.float64)
    for size in sizes[-2:0:-1]:
        scores = _leverage(kernel, X, order[:size], order[chosen], weights, rank)
        probabilities = (oversampling * scores).clamp(max=1.0)
        drawn = torch.rand(size, generator=generator, dtype=torch.float64) < probabilities
        chosen = drawn.nonzero()[:, 0]
        if not len(chosen):  # every score is rounding: the rows are all alike
            chosen = torch.arange(min(m, size))
            probabilities = torch.full((size,), len(chosen) / size, dtype=torch.float64)
        weights = probabilities[chosen].rsqrt()
    scores = _leverage(kernel, X, order, order[chosen], weights, rank)
    floor = torch.finfo(scores.dtype).eps * scores.max().clamp(min=torch.finfo(scores.dtype).tiny)
    # m draws without replacement by exponential clocks (Efraimidis & Spirakis, 2006).
    clocks = torch.empty(n, dtype=torch.float64).exponential_(generator=generator) / scores.clamp(min=floor)
    return order[clocks.argsort()[:m]].sort().values


def _leverage(kernel: Kernel, X: Data, rows: Tensor, chosen: Tensor, weights: Tensor, rank: int) -> Tensor:
    """(k(x, x) − k_xᵀ(K_SS + λ D⁻²)⁻¹ k_x)/λ for the rows x, with S chosen and D their weights."""
    anchors = take(X, chosen)
    gram = kernel._gram(anchors, None).double().cpu()
    weighted = gram * weights[:, None] * weights
    values = torch.linalg.eigvalsh(weighted).clamp(min=0.0)
    total = float(values.sum())
    tail = float(values[: max(0, len(values) - rank)].sum()) / rank
    ridge = max(tail, len(values) * torch.finfo(torch.float64).eps * max(total, 1e-300))
    factor = factorize(lambda: shifted(gram, ridge / weights**2), name="The Gram matrix of a sample of the rows")
    scores = torch.empty(len(rows), dtype=torch.float64)
    for block in row_blocks(len(rows), 3 * 8 * len(chosen)):
        part = take(X, rows[block])
        cross = kernel._gram(part, anchors).double().cpu()
        explained = factor.half_solve(cross.mT).square().sum(0)
        scores[block] = (kernel._diag(part).double().cpu() - explained).clamp(min=0.0) / ridge
    return scores.clamp(max=1.0)


# -- clusters --------------------------------------------------------------------------------------------------------
def cluster_centres(kernel: Kernel, X: Tensor, m: int, seed: int) -> Tensor:
    """The centres of m clusters by Lloyd's algorithm from m random samples, in the units of the lengthscales."""
    inner = kernel.kernel if isinstance(kernel, Scaled) else kernel
    units = number(inner, "lengthscale", X) if isinstance(inner, Stationary) else X.new_ones(())
    points = X / units
    centres = points[torch.from_numpy(sample_rows(len(points), m, seed))]
    for _ in range(LLOYD_STEPS):
        sums, sizes = torch.zeros_like(centres), centres.new_zeros(m)
        half = 0.5 * (centres**2).sum(1)
        for block in row_blocks(len(points), 2 * m * points.element_size()):
            nearest = (points[block] @ centres.mT).sub_(half).argmax(1)
            sums.index_add_(0, nearest, points[block])
            sizes += torch.bincount(nearest, minlength=m).to(sizes)
        # A cluster that lost all its members keeps its centre.
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1.0)[:, None], centres)
    return centres * units
