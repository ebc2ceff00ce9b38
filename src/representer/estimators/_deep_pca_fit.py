"""The solvers of deep kernel PCA: which one, from where, and what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from representer.kernels.base import Kernel
from representer.kernels.products import Linear
from representer.linalg import orthonormal
from representer.objectives.multilevel import Hidden, MultiLevel, Stationarity
from representer.optimize.residual_descent import projected_gradient, riemannian_adam
from representer.optimize.runs import Callback, HistoryEntry, Monitor
from representer.optimize.self_consistent import ManifoldResult, self_consistent
from representer.optimize.stiefel import newton, trust_region

# The levels' own eigenvectors are found to this accuracy where they are a start, and where they are the answer.
START_ACCURACY, EXACT = 1e-6, 1e-12
# To which a new sample is extended; a tenth of what is promised for those of the fit.
EXTENDED = 1e-7
INITS = ("levelwise", "random")


@dataclass(frozen=True)
class Settings:
    """How to search."""

    solver: str
    tol: float
    max_iter: int
    learning_rate: float
    seed: int
    verbose: int
    callback: Callback | None


@dataclass(frozen=True)
class Solution:
    """What was found, before signs and order are fixed."""

    state: Stationarity
    solver: str  # the one that found it
    converged: bool
    message: str
    n_iter: int
    history: list[HistoryEntry]
    interrupted: bool = False


def solve(problem: MultiLevel, sizes: Sequence[int | float], settings: Settings, init: Any) -> Solution:
    """The hidden features of all levels."""
    exact = settings.solver == "levelwise" or len(problem) == 1
    closed = settings.solver == "auto" and has_closed_form(problem)
    widest = max([int(size) for size in sizes if isinstance(size, int)], default=1)
    seed = torch.Generator().manual_seed(
        0
    )  # where eigenvectors are looked for first: their number decides nothing
    noise = torch.randn(len(problem.gram), widest, generator=seed, dtype=problem.gram.dtype).to(problem.gram)
    if closed:
        hidden = nested(problem, sizes, noise)
        return Solution(problem.at(hidden), "closed_form", True, "closed form", 1, [])
    start = problem.levelwise(sizes, noise, EXACT if exact else START_ACCURACY)
    if exact:
        name = "levelwise" if len(problem) > 1 else "closed_form"
        state = problem.at(start, coupled=False)
        return Solution(state, name, True, "one eigenvalue problem a level", 1, [])
    ascending = all(eta > 0 for eta in problem.etas)
    given = start if isinstance(init, str) and init == "levelwise" else initial(init, start, settings.seed)
    _check_range(problem)
    with Monitor(settings.callback, settings.verbose, settings.max_iter, "deep kernel PCA") as monitor:
        solution = _search(problem, given, settings, ascending, monitor)
        ours = settings.solver in ("auto", "scf", "riemannian")
        again = ours and given is not start and ascending and not solution.interrupted
        if again and solution.state.energy < problem.at(start).energy:
            solution = _search(problem, start, settings, ascending, monitor)
    return _with_exact_last_level(problem, solution, settings.tol) if ours else solution


def _with_exact_last_level(problem: MultiLevel, solution: Solution, tol: float) -> Solution:
    """The last level solved exactly where it has components of little variance.

    A residual is relative to its level: beside it, such a component may be wrong by λ_1/λ_s as much, and so would be
    its extension to new samples.
    """
    hidden, state = list(solution.state.hidden), solution.state
    values = state.multipliers[-1].diagonal().abs()
    if not state.residual * values.max() > EXTENDED * values.min():
        return solution
    last, H = len(hidden) - 1, hidden[-1]
    product = problem.field(last, problem.gram_of(last, hidden), H, None)
    hidden[-1] = problem.solve(last, product, H, H.shape[1], EXACT)
    state = problem.at(hidden)
    # Another solution than the one that was found would not be stationary with the levels below.
    return replace(solution, state=state) if state.residual <= max(tol, solution.state.residual) else solution


def _check_range(problem: MultiLevel) -> None:
    """A search multiplies squares of eigenvalues: they must leave room for that."""
    limit = torch.finfo(problem.gram.dtype).max ** 0.25
    for j, pairs in problem.ritz.items():
        largest = pairs.values.abs().max().item()
        if not largest < limit:
            raise ValueError(
                f"Level {j} has eigenvalues up to {largest:.1e} (divided by eta={problem.etas[j]!r}), too large for a "
                "search. Choose a larger |eta| or another kernel, or scale the data."
            )


def has_closed_form(problem: MultiLevel) -> bool:
    """With linear kernels above the first, Tr(P_j P_{j−1}) ≤ min(s_j, s_{j−1}): nested leading subspaces reach it."""
    linear = all(isinstance(kernel, Linear) for kernel in problem.kernels)
    return len(problem) > 1 and linear and all(eta > 0 for eta in problem.etas)


def nested(problem: MultiLevel, sizes: Sequence[int | float], noise: Tensor) -> Hidden:
    """H_j = the s_j leading eigenvectors of K_1."""
    hidden = problem.levelwise(sizes, noise, START_ACCURACY)
    counts = [H.shape[1] for H in hidden]
    product = problem.field(0, problem.gram, noise, None)
    # From the leading vectors found already: beside the guards of that search, others would seem to have converged.
    widest = problem.solve(0, product, hidden[0], max(counts), EXACT)
    return [widest[:, :s].contiguous() for s in counts]


def check_init(init: Any) -> None:
    """A word, or a list; what it holds is checked when the number of components is known."""
    if not (init in INITS if isinstance(init, str) else isinstance(init, list | tuple)):
        raise ValueError(
            f"init must be 'levelwise', 'random' or a list of arrays, one a level; got {init!r}."
        )


def initial(init: Any, like: Hidden, seed: int) -> Hidden:
    """Orthonormal columns: random ones, or those that are given."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(init, str):
        return [orthonormal(torch.randn(H.shape, generator=generator, dtype=H.dtype).to(H)) for H in like]
    if len(init) != len(like):
        raise ValueError(f"init must have one array a level, {len(like)}; got {len(init)}.")
    return [orthonormal(_given(j, part, H)) for j, (part, H) in enumerate(zip(init, like, strict=True))]


def _given(level: int, start: Any, like: Tensor) -> Tensor:
    """The start of one level, as independent columns."""
    try:
        start = torch.as_tensor(start).to(like)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"init of level {level} must be an array of numbers: {error}") from error
    if start.shape != like.shape:
        raise ValueError(
            f"init of level {level} must have one row a sample and one column a component, {tuple(like.shape)}; got "
            f"shape {tuple(start.shape)}."
        )
    if not bool(torch.isfinite(start).all()):
        raise ValueError(f"init of level {level} must not hold NaN or infinite numbers.")
    start = start / start.abs().max().clamp(min=torch.finfo(start.dtype).tiny)
    rank = int(torch.linalg.matrix_rank(start).item())
    if rank < start.shape[1]:
        raise ValueError(f"init of level {level} has {start.shape[1]} columns, but only rank {rank}.")
    return start


def _search(
    problem: MultiLevel, start: Hidden, settings: Settings, ascending: bool, monitor: Monitor
) -> Solution:
    limits: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "monitor": monitor}
    solver, before = settings.solver, None
    n_iter, messages = 0, []
    if solver in ("auto", "scf"):
        result = self_consistent(problem.sweep, start, ascending=ascending, **limits)
        n_iter, messages, start = result.n_iter, [f"scf: {result.message}"], result.state.hidden
        if result.converged or result.interrupted:
            return _solution(result, "scf", n_iter, messages, monitor)
        before = result
    if solver in ("projected_gradient", "riemannian_adam"):
        loss = problem.residual_objective
        if solver == "projected_gradient":
            result = projected_gradient(loss, problem.at, start, **limits)
        else:
            result = riemannian_adam(loss, problem.at, start, rate=settings.learning_rate, **limits)
        return _solution(result, solver, result.n_iter, [f"{solver}: {result.message}"], monitor)
    method = trust_region if ascending else newton
    result = method(problem.at, start, problem.preconditioner, **limits)
    n_iter += result.n_iter
    messages.append(f"riemannian: {result.message}")
    if before is not None and not ascending and before.state.residual < result.state.residual:
        kept = replace(
            before, interrupted=result.interrupted
        )  # no energy says which is better, only the residual
        return _solution(kept, "scf", n_iter, messages, monitor)
    return _solution(result, "riemannian", n_iter, messages, monitor)


def _solution(
    result: ManifoldResult, solver: str, n_iter: int, messages: list[str], monitor: Monitor
) -> Solution:
    state = result.state
    assert isinstance(state, Stationarity)
    return Solution(
        state, solver, result.converged, "; ".join(messages), n_iter, monitor.history, result.interrupted
    )


# -- order and signs --------------------------------------------------------------------------------------------------
def canonical(problem: MultiLevel, state: Stationarity, *, coupled: bool) -> Stationarity:
    """The same solution with diagonal Λ_j, leading components first, and in each column the largest entry positive.

    A kernel above that does not see a rotation or a sign allows it; another one (ARD, ℓ₁ distances) keeps its columns.
    """
    hidden = list(state.hidden)
    for j, H in enumerate(hidden):
        above = problem.kernels[j] if j < len(problem.kernels) else None
        sign = 1.0 if problem.etas[j] > 0 else -1.0
        vectors = torch.linalg.eigh(sign * state.multipliers[j]).eigenvectors
        hidden[j] = _if_unseen(above, H, H @ vectors.flip(1))
        H = hidden[j]
        peaks = H.gather(0, H.abs().argmax(0, keepdim=True)).sign()
        hidden[j] = _if_unseen(above, H, H * torch.where(peaks == 0, 1.0, peaks)).contiguous()
    return problem.at(hidden, coupled=coupled)


def _if_unseen(kernel: Kernel | None, before: Tensor, after: Tensor) -> Tensor:
    """The new columns, if the kernel of the next level is the same for them."""
    if kernel is None:
        return after
    for rows in (slice(0, 200), slice(-200, None)):
        old, new = kernel._gram(before[rows], before), kernel._gram(after[rows], after)
        if (old - new).abs().max() > torch.finfo(old.dtype).eps ** 0.75 * old.abs().max():
            return before
    return after
