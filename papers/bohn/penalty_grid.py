"""(Reg) of Bohn et al. for every pair (λ, μ) of a grid at once: one batch of two-layer problems on the same data.

The minima of such problems differ by orders of magnitude in value and in width, and a search from random coordinates
misses many of them. Pairs next to each other have similar minima: so each pair is searched from a few starts, and then
again from what its neighbours have found, until nobody gains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from representer import Layer
from representer.functions import Chain
from representer.kernels import Constant, Kernel
from representer.objectives import Ridge
from representer.optimize import lbfgs, with_gradient
from representer.problems.composition import flat, principal_start, random_starts

BLOCK = 64  # problems evaluated at a time
FIRST, MAX_ITER, TOL = 50, 200, 1e-5  # iterations of the first searches, whose ends are starts of the others
SWEEPS = 5  # over the neighbours
GAIN = 1e-2  # relative decrease of a value that neighbours are told of


class Problem(ABC):
    """J(θ; λ, μ), the least mean squared error + λ‖f‖² + μ‖g‖² of f ∘ g for given unknowns θ of the search.

    Parameters
    ----------
    X, y : array (n, d), (n,)
        The data.
    """

    size: int  # the number of unknowns

    def __init__(self, X: np.ndarray, y: np.ndarray):
        self.X, self.y = X, y
        self.ridge = Ridge(y, alpha=1.0)

    @abstractmethod
    def value(self, points: Tensor, penalties: Tensor) -> Tensor:
        """J (b,) of unknowns (b, m) and pairs (b, 2), differentiable in the unknowns."""

    @abstractmethod
    def starts(self, count: int, seed: int) -> Tensor:
        """Where a search may begin, (count, m)."""

    @abstractmethod
    def predict(self, point: Tensor, pair: Tensor, X: np.ndarray) -> np.ndarray:
        """f ∘ g at new inputs."""

    def values(self, points: Tensor, penalties: Tensor) -> Tensor:
        """J (b,) in blocks, without a gradient."""
        with torch.no_grad():
            blocks = zip(points.split(BLOCK), penalties.split(BLOCK), strict=True)
            return torch.cat([self.value(*block) for block in blocks])

    def minimise(
        self, starts: Tensor, penalties: Tensor, *, max_iter: int = MAX_ITER, race: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The best points and values that a search from each start (b, m) reaches for its own pair (b, 2).

        Penalties, and J at the start as the unit of J, are coordinates that have no gradient and never move.
        """
        unit = self.values(starts, penalties)[:, None]

        def relative(points: Tensor) -> Tensor:
            theta, fixed = points.split([self.size, 3], -1)
            return self.value(theta, fixed[:, :2].detach()) / fixed[:, 2].detach()

        points = torch.cat([starts, penalties, unit], -1)
        found = lbfgs(in_blocks(with_gradient(relative)), points, max_iter=max_iter, tol=TOL, race=race)
        assert found.points is not None
        return found.points[:, : self.size], found.values * unit[:, 0]

    def _outer(self, kernel: Kernel, alpha: float, Z: Tensor, new: Tensor) -> np.ndarray:
        """The ridge fit to y at points Z, at new ones."""
        dual = self.ridge.evaluate(kernel(Z), alpha=alpha, gradient=False).dual
        assert dual is not None
        return (kernel(new, Z) @ dual)[:, 0].numpy()


class TwoLayers(Problem):
    """The outer function is eliminated, θ are orthonormal coordinates of the inner one.

    Parameters
    ----------
    layer : Layer
        The inner function; its alpha is not used.
    kernel : Kernel
        The outer one.
    X, y : array (n, d), (n,)
        The data.
    """

    def __init__(self, layer: Layer, kernel: Kernel, X: np.ndarray, y: np.ndarray):
        super().__init__(X, y)
        self.kernel, self.chain = kernel, Chain([layer], X)
        self.size = self.chain.size

    def value(self, points: Tensor, penalties: Tensor) -> Tensor:
        theta, (outer, inner) = self.chain.split(points), penalties.unbind(-1)
        gram = self.kernel(self.chain.images(theta)[-1])
        return self.ridge(gram, outer) + inner * self.chain.squared_norms(theta).sum(-1)

    def starts(self, count: int, seed: int) -> Tensor:
        """Kernel PCA, and random coordinates."""
        generator = torch.Generator().manual_seed(seed)
        return random_starts(self.chain, flat(principal_start(self.chain, generator)), count, generator)

    def predict(self, point: Tensor, pair: Tensor, X: np.ndarray) -> np.ndarray:
        (inner,) = self.chain.expansions(self.chain.split(point))
        Z, new = (inner(torch.as_tensor(inputs)) for inputs in (self.X, X))
        return self._outer(self.kernel, float(pair[0]), Z, new)


class LinearOuter(Problem):
    """The outer kernel z·z' + 1 on a diagonal of inner kernels k_m: multiple kernel learning, with one unknown each.

    f ∘ g = Σ w_m g_m + b costs λ(‖w‖² + b²) + μ Σ‖g_m‖². Only h_m = w_m g_m matters to the loss, and the cheapest
    split costs 2√(λμ)‖h_m‖ = √(λμ) min_η (‖h_m‖²/η_m + η_m). So J = V(Σ η_m k_m + √(μ/λ)) + √(λμ) Σ η_m, where V is
    ridge regression with alpha = √(λμ): convex in η = θ², where the search over w and g is not.

    Parameters
    ----------
    kernels : sequence of Kernel
        The k_m.
    X, y : array (n, d), (n,)
        The data.
    """

    def __init__(self, kernels: Sequence[Kernel], X: np.ndarray, y: np.ndarray):
        super().__init__(X, y)
        self.kernels, self.size = list(kernels), len(kernels)
        self.grams = torch.stack([kernel(X) for kernel in kernels])

    def value(self, points: Tensor, penalties: Tensor) -> Tensor:
        outer, inner = penalties.unbind(-1)
        weights, alpha = points**2, (outer * inner).sqrt()
        gram = torch.einsum("bm,mij->bij", weights, self.grams) + (inner / outer).sqrt()[:, None, None]
        return self.ridge(gram, alpha) + alpha * weights.sum(-1)

    def starts(self, count: int, seed: int) -> Tensor:
        """Weights of about one."""
        generator = torch.Generator().manual_seed(seed)
        return torch.exp(0.7 * torch.randn(count, self.size, generator=generator, dtype=torch.float64))

    def predict(self, point: Tensor, pair: Tensor, X: np.ndarray) -> np.ndarray:
        outer, inner = pair.tolist()
        parts = [weight * kernel for weight, kernel in zip((point**2).tolist(), self.kernels, strict=True)]
        kernel = reduce(lambda a, b: a + b, parts, Constant((inner / outer) ** 0.5))
        return self._outer(kernel, (outer * inner) ** 0.5, torch.as_tensor(self.X), torch.as_tensor(X))


def in_blocks(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The same function of a batch, ``BLOCK`` members at a time."""

    def blocked(points: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = zip(*(function(block) for block in points.split(BLOCK)), strict=True)
        return torch.cat(values), torch.cat(gradients)

    return blocked


def all_pairs(penalties: Sequence[float], n: int) -> Tensor:
    """The grid λ × μ as rows of alphas (λ/n, μ/n): λ and μ stand beside a sum over n samples."""
    alphas = torch.tensor(penalties, dtype=torch.float64) / n
    return torch.cartesian_prod(alphas, alphas)


def solve_grid(
    problem: Problem, penalties: Sequence[float], starts: Tensor, *, first: int = FIRST, sweeps: int = SWEEPS
) -> tuple[Tensor, Tensor]:
    """The best points (p², m) and values (p²,) found for every pair of penalties, which are in falling order."""
    pairs = all_pairs(penalties, len(problem.y))
    found, values = problem.minimise(
        starts.repeat(len(pairs), 1), pairs.repeat_interleave(len(starts), 0), max_iter=first
    )
    values, best = values.reshape(len(pairs), -1).min(1)
    points = found.reshape(len(pairs), len(starts), -1)[torch.arange(len(pairs)), best]
    neighbours = _neighbours(len(penalties))
    width = (penalties[0] / penalties[1]) ** 0.5 if len(penalties) > 1 else 1.0
    changed = torch.ones(len(pairs), dtype=torch.bool)
    for _ in range(sweeps):
        told = (neighbours & changed).nonzero()  # (pair, a neighbour of it that has changed)
        if not len(told):
            break
        rows, begin = _best_offers(problem, points, pairs, told, (1.0 / width, 1.0, width))
        new, reached = problem.minimise(begin, pairs[rows])
        changed = torch.zeros_like(changed)
        changed[rows] = reached < (1.0 - GAIN) * values[rows]
        better = reached < values[rows]
        points[rows[better]], values[rows[better]] = new[better], reached[better]
    return points, values


def _best_offers(
    problem: Problem, points: Tensor, pairs: Tensor, told: Tensor, factors: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """The pairs that are told something, and for each the neighbour's point, scaled, where its own J is least."""
    rows, sources = told.repeat(len(factors), 1).unbind(1)
    scales = torch.tensor(factors, dtype=points.dtype).repeat_interleave(len(told))
    offers = scales[:, None] * points[sources]
    values = problem.values(offers, pairs[rows])
    values = torch.where(values.isfinite(), values, torch.inf)
    chosen = rows.unique()
    best = torch.stack([torch.where(rows == row, values, torch.inf).argmin() for row in chosen])
    return chosen, offers[best]


def _neighbours(size: int) -> Tensor:
    """Which of the size² pairs are next to which, also diagonally."""
    index = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    return (index[:, None] - index).abs().amax(-1) == 1


def cross_validated(
    make: Callable[[np.ndarray, np.ndarray], Problem],
    penalties: Sequence[float],
    splits: Sequence[tuple[np.ndarray, np.ndarray]],
    X: np.ndarray,
    y: np.ndarray,
    *,
    starts: int,
    final_starts: int,
    stop: int | None = None,
    seed: int = 0,
) -> tuple[Problem, Tensor, Tensor]:
    """The problem on all data, the best point found for the pair of least held-out squared error, and that pair.

    With ``stop``, no search has more iterations than that, and neighbours do not help each other.
    """
    effort = {} if stop is None else {"first": stop, "sweeps": 0}
    errors = np.zeros(len(penalties) ** 2)
    for train, test in splits:
        fold = make(X[train], y[train])
        points, _ = solve_grid(fold, penalties, fold.starts(starts, seed), **effort)
        pairs = all_pairs(penalties, len(train))
        for i, (point, pair) in enumerate(zip(points, pairs, strict=True)):
            errors[i] += ((fold.predict(point, pair, X[test]) - y[test]) ** 2).sum()
    chosen = int(np.argmin(errors))
    problem = make(X, y)
    begin, pair = problem.starts(final_starts, seed), all_pairs(penalties, len(y))[chosen]
    points, values = solve_grid(problem, penalties, begin[:starts], **effort)
    raced, reached = problem.minimise(begin, pair.expand(len(begin), 2), max_iter=stop or MAX_ITER, race=True)
    best = raced[reached.argmin()] if reached.min() < values[chosen] else points[chosen]
    return problem, best, pair
