"""The numbers of a structured predictor: alpha, epsilon, components, kernels; by leave-one-out or a task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from torch import Tensor

from representer.approximation import Nystroem
from representer.data import count, plain, take
from representer.estimators import _ridge as ridge
from representer.estimators._structured import Problem
from representer.estimators.validation import check_alpha, warn_unconverged
from representer.kernels import Kernel
from representer.objectives.operator_valued import alpha_grid, log_spaced
from representer.operators import Decomposable, Dense
from representer.optimize.runs import Monitor
from representer.parameters import Positive, is_count
from representer.systems.structured import DiagonalRegression

# Values of alpha on a first grid, and on a finer one between the neighbours of its best.
COARSE, FINE = 13, 9
# A search over a kernel starts where leave-one-out is best among its lengthscales divided by these.
FACTORS = (1.0, 2.0, 4.0)
# By a task's loss, lengthscales of the output kernel are compared with their heuristics divided by these.
OUTPUT_FACTORS = (4.0, 2.0, 1.0, 0.5, 0.25)
# Values of epsilon that are compared, in units of the mean k(x, x).
EPSILONS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class Choice:
    """Numbers, the criterion there, and the regression that they make."""

    alpha: float
    epsilon: float | None = None
    n_components: int | None = None
    value: float | None = None
    diagonal: DiagonalRegression | None = None
    partial: bool = False  # was the criterion interrupted?

    def better(self, other: Choice | None) -> bool:
        """Has it the lower criterion?"""
        return other is None or other.value is None or (self.value is not None and self.value < other.value)


def epsilon_grid(epsilon: float | None, problem: Problem) -> list[float | None]:
    """The values to compare: the given one, those of the grid for ``"auto"``, none for operators without epsilon."""
    if problem.operator != "conditional_covariance":
        return [None]
    unit = problem.inputs.mean_diagonal()
    return [epsilon] if epsilon is not None else [unit * factor for factor in EPSILONS]


def alphas_for(diagonal: DiagonalRegression, problem: Problem) -> Tensor:
    """From where rounding takes over to where nothing is fitted: alpha has the units of k(x, x) times those of A."""
    values = diagonal.values
    unit = problem.inputs.mean_diagonal() * float(values.max() if len(values) else 1.0)
    info = torch.finfo(values.dtype)
    return alpha_grid(values.new_tensor(max(unit * info.eps ** (2 / 3), info.tiny**0.5)), COARSE)


def choose(
    problem: Problem, alpha: float | np.ndarray | None, epsilon: float | None, n_components: int | None
) -> Choice:
    """The numbers of least leave-one-out error in the RKHS of the outputs; what is given stays.

    ``None`` is chosen: alpha on a grid that is refined, epsilon on one that is not, the number of components among all.
    """
    best: Choice | None = None
    for value in epsilon_grid(epsilon, problem):
        diagonal = problem.under(value)
        grid = (
            alphas_for(diagonal, problem)
            if alpha is None
            else diagonal.values.new_tensor(np.atleast_1d(alpha))
        )
        found = _best(problem, diagonal, value, grid, n_components)
        if found.better(best):
            best, whole, alphas = found, diagonal, grid
    assert best is not None
    if alpha is not None:
        return best
    near = int((alphas - best.alpha).abs().argmin())
    low, high = alphas[max(near - 1, 0)], alphas[min(near + 1, len(alphas) - 1)]
    fine = _best(problem, whole, best.epsilon, log_spaced(low, high, FINE), n_components)
    return fine if fine.better(best) else best


def _best(
    problem: Problem,
    diagonal: DiagonalRegression,
    epsilon: float | None,
    alphas: Tensor,
    n_components: int | None,
) -> Choice:
    best: Choice | None = None
    n = len(problem.outputs.coordinates)
    for alpha in alphas.tolist():
        errors = diagonal.errors(alpha)
        kept = n_components
        if problem.operator == "kpca":
            # Each component that is kept costs its error, each that is left out its variance.
            totals = (errors - diagonal.variances).cumsum(0)
            kept = kept if kept is not None else int(totals.argmin()) + 1
            error = float(totals[min(kept, len(totals)) - 1] + diagonal.variances.sum() + diagonal.missed) / n
        else:
            error = float(errors.sum() + diagonal.missed) / n
        found = Choice(alpha, epsilon, kept, error if np.isfinite(error) else np.inf, diagonal)
        if found.better(best):
            best = found
    assert best is not None
    if best.value == np.inf:
        raise ValueError("The criterion is not finite for any alpha; check the scale of X and y.")
    if problem.operator == "kpca":
        assert best.n_components is not None
        leading = diagonal.leading(best.n_components)
        return Choice(best.alpha, epsilon, best.n_components, best.value, leading)
    return best


# -- the kernel -------------------------------------------------------------------------------------------------------
def learn_kernel(
    learner: Any, kernel: Kernel, free: list[str], X: Any, Y: Any, seed: int, callback: Any
) -> ridge.Choice:
    """What is free in the input kernel, and alpha, by gradients of the leave-one-out error.

    The operator stays that of the kernel where the search starts; the fit computes it anew.
    """
    alpha = check_alpha(learner.alpha)
    _, epsilon, components = learner._form()
    best: Choice | None = None
    for candidate in rescaled(kernel, free, FACTORS):
        found = choose(learner._problem(candidate, X, Y, None, seed, exact=True), alpha, epsilon, components)
        if found.better(best):
            best, kernel = found, candidate
    assert best is not None and best.diagonal is not None
    diagonal = best.diagonal
    if learner._form()[0] == "kpca" and components is None:  # how many there are is decided after the search
        diagonal = diagonal.regression.identity()
    coordinates = diagonal.Z
    # As a matrix, because the coordinates of a diagonal operator would be searched one by one.
    operator = Dense(np.diag(plain(diagonal.values))) if len(diagonal.values) > 1 else None
    given = ridge.RidgeProblem(
        X, coordinates, coordinates.new_ones(len(coordinates)), None, kernel.domain == "gram"
    )
    search = ridge.lbfgs_search(learner, seed, callback)
    return ridge.learn(
        Decomposable(kernel, operator),
        [f"kernel__{name}" for name in free],
        given,
        alpha if alpha is None else best.alpha,  # of candidates, the one that is best where the search starts
        "loo",
        search,
    )


def rescaled(kernel: Kernel, free: list[str], factors: Sequence[float]) -> Iterator[Kernel]:
    """The kernel with what is free and positive divided by each of some factors; itself if nothing is."""
    packing, raw = kernel.packing(free)
    sizes = [packing.shapes[name].numel() for name in packing.shapes]
    positive = [isinstance(packing.constraints[name], Positive) for name in packing.shapes]
    shift = raw.new_tensor([float(p) for p, size in zip(positive, sizes, strict=True) for _ in range(size)])
    for factor in factors if bool(shift.any()) else (1.0,):
        yield kernel.replace(packing.unpack(raw - math.log(factor) * shift)).numbers()


# -- by the task ------------------------------------------------------------------------------------------------------
def validate(
    learner: Any,
    problem: Problem,
    alpha: float | np.ndarray | None,
    epsilon: float | None,
    n_components: int | None,
    labelled: Tensor | None,
    seed: int,
    *,
    keep_partial: bool,
) -> Choice:
    """The numbers of least task loss over the folds of ``cv``; components by leave-one-out for each alpha.

    An interrupt ends it: with ``keep_partial`` the folds so far decide, if there are any.
    """
    settings = []
    for value in epsilon_grid(epsilon, problem):
        diagonal = problem.under(value)
        alphas = alphas_for(diagonal, problem).tolist() if alpha is None else np.atleast_1d(alpha).tolist()
        for number in alphas:
            kept = n_components
            if problem.operator == "kpca" and kept is None:
                grid = diagonal.values.new_tensor([number])
                kept = _best(problem, diagonal, value, grid, None).n_components
            settings.append(Choice(number, value, kept))
    totals, seen, n = np.zeros(len(settings)), 0, len(learner.Y_fit_)
    splits = _splits(learner, n, seed)
    with Monitor(None, int(learner.verbose), len(splits) * len(settings), "task loss") as monitor:
        for train, test in splits:
            try:
                losses = _fold_losses(learner, settings, labelled, train, test, monitor)
            except KeyboardInterrupt:
                if not (seen and keep_partial):
                    raise
                warn_unconverged("The search by the task's loss was interrupted: the folds so far decide.")
                break
            totals += len(test) * losses
            seen += len(test)
    totals /= max(seen, 1)
    if not np.isfinite(totals).any():
        raise ValueError("task_loss is not finite for any alpha; check what it returns.")
    equal = np.flatnonzero(totals == np.nanmin(np.where(np.isfinite(totals), totals, np.nan)))
    best = int(equal[len(equal) // 2])  # losses of discrete objects tie: the middle of them is safest
    return replace(
        settings[best], value=float(totals[best]), partial=seen < sum(len(test) for _, test in splits)
    )


def _mean_loss(losses: Any) -> float:
    """Of what a task loss has returned."""
    try:
        return float(np.mean(np.asarray(plain(losses), dtype=np.float64)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"task_loss must return a number, or one for each sample; it returned {losses!r:.80}."
        ) from error


def _splits(learner: Any, n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    cv = learner.cv
    if is_count(cv):
        cv = KFold(min(int(cv), n), shuffle=True, random_state=seed) if cv > 1 else cv
    return list(check_cv(cv).split(np.zeros((n, 1))))


def _fold_losses(
    learner: Any,
    settings: list[Choice],
    labelled: Tensor | None,
    train: np.ndarray,
    test: np.ndarray,
    monitor: Monitor,
) -> np.ndarray:
    """The mean loss of each setting on one fold: one eigendecomposition for each epsilon."""
    rows = np.arange(count(learner.X_fit_))
    rows = rows if labelled is None else labelled.numpy()
    gram_in, gram_out = learner.kernel_.domain == "gram", learner.output_kernel_.domain == "gram"

    def part(data: Any, index: np.ndarray, columns: np.ndarray | None) -> Any:
        chosen = take(data, torch.from_numpy(index))
        return chosen if columns is None else chosen[:, columns]

    X_train = part(learner.X_fit_, rows[train], rows[train] if gram_in else None)
    X_test = part(learner.X_fit_, rows[test], rows[train] if gram_in else None)
    Y_train = part(learner.Y_fit_, train, train if gram_out else None)
    pair = learner._approximations()
    if pair is not None:  # a fold may have fewer samples than landmarks were asked for
        pair = tuple(
            Nystroem(a.at_most(len(train)), a.sampling) if isinstance(a, Nystroem) else a for a in pair
        )
    fold = clone(learner).set_params(
        kernel=learner.kernel_,
        output_kernel=learner.output_kernel_,
        criterion="loo",
        task_loss=None,
        approximation=pair,
        random_state=learner._seed,
    )
    kernel, inputs, _, seed = fold._prepare(X_train, Y_train, None)
    problem = fold._problem(kernel, inputs, fold._outputs(fold.output_kernel_, fold.Y_fit_), None, seed)
    true = test if gram_out else learner._shaped(part(learner.Y_fit_, test, None))
    loss = learner.loss if learner.task_loss is None else learner.task_loss
    losses, whole, epsilon = [], None, None
    for setting in settings:
        if whole is None or setting.epsilon != epsilon:
            whole, epsilon = problem.under(setting.epsilon), setting.epsilon
        diagonal = whole if setting.n_components is None else whole.leading(setting.n_components)
        fold._solve(problem, replace(setting, diagonal=diagonal))
        predicted = fold.predict(X_test)
        losses.append(_mean_loss(loss(true, train[predicted] if gram_out else predicted)))
        monitor(len(monitor.history) + 1, losses[-1], math.nan, 1)
    return np.array(losses)
