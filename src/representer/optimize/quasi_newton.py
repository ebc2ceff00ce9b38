"""Limited-memory BFGS with batched, raced restarts; Newton's method for the digits that it leaves open.

The unknowns are few where an evaluation is costly, so that all bookkeeping is on NumPy arrays, whose operations take a
fraction of the time that those on tensors take; only the objective sees tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from representer.linalg import noted_rounding, recycling
from representer.optimize.search import (
    Best,
    Callback,
    Deadline,
    Monitor,
    OptimizeResult,
    SearchSettings,
    StoppingRule,
    check_limits,
    checked_output,
    checked_starts,
    with_gradient,
)
from representer.samples import digest, remembered

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]

# By 35 sets of 64 starts on nine problems of two layers (`python -m benchmarks.racing` has other starts). With 18
# finalists 28 sets end within 1 % of the best of all 64, with 32 these are 32, with 48 no more. A tenfold smaller
# SETTLED costs a quarter more evaluations, a fourfold larger one misses five more sets. Of 32 starts, half
# ended within 0.7 % of where all do in 40 searches on nine tables, with 0.47 of the evaluations (8 finalists: three
# searches more than 1 % higher), and in six of eight sets on the kink, with 0.54 (two ended 1 and 3 % higher).
FEWEST_FINALISTS, MOST_FINALISTS = 8, 32
SETTLED = 0.005
PAIRS = 20  # of curvature, remembered for each restart


class _Evaluator:
    """Calls the objective on some of the restarts, checks and counts, and remembers the best ever seen."""

    def __init__(
        self, function: Objective, starts: Tensor, deadline: Deadline | None = None, *, batched: bool = True
    ) -> None:
        self.function, self.like, self.deadline, self.batched = function, starts, deadline, batched
        self.n_evaluations = 0
        self.starts: np.ndarray = starts.numpy(force=True)
        self.best_values = np.full(len(starts), np.inf, dtype=self.starts.dtype)
        self.best_points = self.starts.copy()
        self.best: tuple[float, float, np.ndarray] | None = None

    def __call__(self, points: np.ndarray, restarts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients; the value is NaN in the rows where either is not finite."""
        if self.batched or len(points) < 2:
            return self._at_once(points, restarts)
        each = [self._at_once(points[i : i + 1], restarts[i : i + 1]) for i in range(len(points))]
        values, gradients = zip(*each, strict=True)
        return np.concatenate(values), np.concatenate(gradients)

    def _at_once(self, points: np.ndarray, restarts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients by one call, after which the time may be over."""
        values, gradients = remembered(lambda: f"L-BFGS at {digest(points)}", lambda: self._evaluated(points))
        self.n_evaluations += len(points)
        usable = np.isfinite(values) & np.isfinite(gradients).all(-1)
        self._remember(points, np.where(usable, values, np.inf), gradients, restarts)
        if self.best is not None and self.deadline is not None:
            self.deadline.check()
        return np.where(usable, values, np.nan), gradients

    def _evaluated(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tensors = torch.from_numpy(points).to(self.like.device)
        output = self.function(tensors)
        if self.n_evaluations == 0:  # a function that keeps its promise once is believed
            output = checked_output(output, tensors)
        values, gradients = (tensor.numpy(force=True) for tensor in output)
        return values, gradients

    def _remember(self, points: np.ndarray, values: np.ndarray, gradients: np.ndarray, restarts: np.ndarray) -> None:
        lower = values < self.best_values[restarts]
        self.best_values[restarts[lower]], self.best_points[restarts[lower]] = values[lower], points[lower]
        row = int(values.argmin())
        value = float(values[row])
        if value < (self.best[0] if self.best else np.inf):
            self.best = (value, float(np.abs(gradients[row]).max()), points[row].copy())

    def winner(self) -> Best:
        if self.best is None:
            raise ValueError(
                f"the objective or its gradient is not finite at any of the {len(self.best_values)} starts; "
                "start inside its domain: scale X, y and sample_weight of extreme size, check them for NaN and the "
                "hyperparameters for overflow, or give numbers for what is learned"
            )
        value, gradient_norm, point = self.best
        return value, gradient_norm, self._tensor(point)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.like.device)

    def of_each(self) -> tuple[Tensor, Tensor]:
        """The best value of each restart, and the best point."""
        return self._tensor(self.best_values), self._tensor(self.best_points)


class _Curvature:
    """The limited-memory inverse Hessian of every restart: pairs of steps s and gradient changes y."""

    def __init__(self, gradients: np.ndarray) -> None:
        # s (b, m), y (b, m), 1/s'y (b,): 0 = no pair
        self.pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.scale = np.zeros_like(gradients[:, 0])  # s'y / y'y of the last pair: 0 = none yet

    @property
    def fresh(self) -> np.ndarray:
        """Rows that hold no pair."""
        return self.scale == 0

    def push(self, s: np.ndarray, y: np.ndarray) -> None:
        """Cautious update: a pair without safely positive curvature would spoil the inverse Hessian."""
        sy, yy = _inner(s, y), _inner(y, y)
        good = sy > np.finfo(s.dtype).eps * yy
        with np.errstate(divide="ignore", invalid="ignore"):
            self.scale = np.where(good, sy / yy, self.scale)
            self.pairs.append((s, y, np.where(good, 1 / sy, 0.0).astype(s.dtype)))
        del self.pairs[:-PAIRS]

    def direction(self, gradients: np.ndarray) -> np.ndarray:
        """The two-loop recursion; without any pair, the steepest descent direction of length one."""
        d = -gradients
        weights = []
        for s, y, inverse in reversed(self.pairs):
            weights.append(inverse * _inner(s, d))
            d = d - weights[-1][:, None] * y
        with np.errstate(divide="ignore"):
            d = d * np.where(self.fresh, 1 / np.sqrt(_inner(gradients, gradients)), self.scale)[:, None]
        for (s, y, inverse), weight in zip(self.pairs, reversed(weights), strict=True):
            d = d + (weight - inverse * _inner(y, d))[:, None] * s
        return d

    def forget(self, rows: np.ndarray) -> None:
        if rows.any():
            self.scale = np.where(rows, 0.0, self.scale).astype(self.scale.dtype)
            self.pairs = [(s, y, np.where(rows, 0.0, inverse).astype(s.dtype)) for s, y, inverse in self.pairs]

    def keep(self, rows: np.ndarray) -> None:
        self.scale = self.scale[rows]
        self.pairs = [(s[rows], y[rows], inverse[rows]) for s, y, inverse in self.pairs]


def _inner(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The inner product of each row."""
    return np.einsum("bm,bm->b", left, right)


def _line_search(
    evaluate: _Evaluator,
    ids: np.ndarray,
    points: np.ndarray,
    values: np.ndarray,
    gradients: np.ndarray,
    directions: np.ndarray,
    noise: float = 0.0,
    longest_step: float = np.inf,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weak Wolfe search of Lewis and Overton (2013) by row: new points, values, gradients, and who moved.

    Each row keeps a bracket of (step, value, slope): ``low`` fulfils the Armijo condition, ``high`` does
    not (or is not finite). Only rows that still search are evaluated. A step of the greatest length is not prolonged.
    """
    lengths = np.abs(directions).max(-1)
    slopes = _inner(gradients, directions)
    precision = max(noise, float(np.finfo(values.dtype).eps)) * np.abs(values)
    low = np.stack([np.zeros_like(values), values, slopes], -1)
    high = np.tile(np.array([np.inf, np.nan, np.nan], dtype=values.dtype), (len(low), 1))
    new_points, new_values, new_gradients = points.copy(), values.copy(), gradients.copy()
    steps, rows = np.ones_like(values), np.arange(len(values))
    for trial in range(30):
        t = steps[rows]
        tried = points[rows] + t[:, None] * directions[rows]
        f, g = evaluate(tried, ids[rows])
        trials = np.stack([t, f, _inner(g, directions[rows])], -1)
        lower = (f < values[rows]) & (f <= values[rows] + 1e-4 * t * slopes[rows])  # False for NaN
        moved = rows[lower]
        low[moved], high[rows[~lower]] = trials[lower], trials[~lower]
        new_points[moved], new_values[moved], new_gradients[moved] = tried[lower], f[lower], g[lower]
        ends = (trials[:, 2] >= 0.9 * slopes[rows]) | (t * lengths[rows] >= longest_step)
        done = lower & ends
        vanished = ~lower & (t * np.abs(slopes[rows]) <= precision[rows])  # beyond the objective's digits
        rows = rows[~(done | vanished)]
        if len(rows) == 0:
            break
        step = _next_step(low[rows], high[rows], bisect=trial % 3 == 2)
        with np.errstate(divide="ignore"):
            steps[rows] = np.minimum(step, longest_step / lengths[rows])
    return new_points, new_values, new_gradients, low[:, 0] > 0


def _next_step(low: np.ndarray, high: np.ndarray, *, bisect: bool) -> np.ndarray:
    """Grow while there is no upper end; then minimise the cubic through both ends, or take their middle."""
    (a, fa, sa), (c, fc, sc) = low.T, high.T
    with np.errstate(all="ignore"):  # an end at infinity has neither value nor slope
        width = c - a
        d1 = sa + sc - 3 * (fc - fa) / width
        d2 = np.sqrt(d1**2 - sa * sc)
        cubic = c - width * (sc + d2 - d1) / (sc - sa + 2 * d2)
        safe = np.minimum(np.maximum(cubic, a + 0.1 * width), c - 0.1 * width)
        inside = np.where(np.isfinite(cubic) & (not bisect), safe, a + 0.5 * width)
        return np.where(np.isinf(c), 4 * a, inside)


class _Restarts:
    """The restarts still alive, one row each, with the direction that each will search next."""

    def __init__(self, evaluate: _Evaluator, longest_step: float) -> None:
        self.evaluate, self.longest_step = evaluate, longest_step
        self.ids = np.arange(len(evaluate.starts))
        self.points = self.directions = evaluate.starts
        self.values, self.gradients = evaluate(self.points, self.ids)
        self.slopes = self.values
        self.calm = np.zeros_like(self.ids)
        self.curvature = _Curvature(self.gradients)
        self.outcomes: dict[int, tuple[bool, str]] = {}  # restart -> converged, why it ended
        self._keep(np.isfinite(self.values))

    def __len__(self) -> int:
        return len(self.ids)

    def _keep(self, rows: np.ndarray) -> None:
        if rows.all():
            return
        for name in ("ids", "points", "values", "gradients", "directions", "slopes", "calm"):
            setattr(self, name, getattr(self, name)[rows])
        self.curvature.keep(rows)

    def retire(self, verdicts: list[tuple[np.ndarray, bool, str]]) -> None:
        """End restarts by (rows, converged, why); the first verdict on a row counts."""
        for rows, converged, why in reversed(verdicts):
            self.outcomes.update((i, (converged, why)) for i in self.ids[rows].tolist())
        self._keep(~np.logical_or.reduce([rows for rows, _, _ in verdicts]))

    def aim(self) -> None:
        """Directions of descent, and the slopes along them: all negative."""
        if len(self) == 0:
            return
        self.directions = self.curvature.direction(self.gradients)
        self.slopes = _inner(self.directions, self.gradients)
        uphill = ~(self.slopes < 0)  # by rounding only: a cautious inverse Hessian is positive definite
        if uphill.any():
            self.curvature.forget(uphill)
            self.directions = self.curvature.direction(self.gradients)
        excess = np.maximum(np.abs(self.directions).max(-1, keepdims=True) / self.longest_step, 1.0)
        self.directions = (self.directions / excess).astype(self.points.dtype, copy=False)
        self.slopes = _inner(self.directions, self.gradients)

    def step(self, rule: StoppingRule, iteration: int) -> None:
        """Move every restart along its direction, end those that are done, and aim anew.

        Some find no lower value. If the quasi-Newton model promised no more than the objective's digits
        can show, that is convergence. Otherwise they forget their curvature and have a second chance
        along the steepest descent; those that fail there are stuck, unless ``tol=0`` asked for just that.
        """
        points, values, gradients, moved = _line_search(
            self.evaluate,
            self.ids,
            self.points,
            self.values,
            self.gradients,
            self.directions,
            rule.noise,
            self.longest_step,
        )
        digits = max(rule.noise, float(np.finfo(values.dtype).eps)) ** 0.5
        exhausted = ~moved & (-self.slopes <= digits * np.abs(values))
        stuck = ~moved & ~exhausted & self.curvature.fresh
        self.curvature.forget(~moved)
        self.curvature.push(points - self.points, gradients - self.gradients)
        self.calm = np.where(moved & rule.calm(self.values, values), self.calm + 1, 0)
        self.points, self.values, self.gradients = points, values, gradients
        when = f"after {iteration} iterations"
        self.retire(
            [
                (rule.stationary(values, gradients), True, f"gradient below tol={rule.tol:g} {when}"),
                (self.calm >= rule.patience, True, f"relative decrease below tol={rule.tol:g} {when}"),
                (exhausted, True, f"no lower value within the precision of the objective {when}"),
                (
                    stuck,
                    rule.tol == 0,
                    f"no lower value along the gradient {when}; check that it fits the values",
                ),
            ]
        )
        self.aim()

    def race(self) -> None:
        """Drop the restarts that are not worth running on; the best so far always stays.

        After the first iteration these are all but the half (8 to 32) of lowest *predicted* value f - |slope|/2, the
        minimum of the quasi-Newton model: fairer than f to a restart that is still on the slope of a lower valley.
        Later none is dropped for being behind, because the order changes late; but of restarts that settle at the same
        value only one stays, and none that would not beat a restart that has ended even by gaining twice what its model
        promises.
        """
        best_values = self.evaluate.best_values
        seen = best_values[np.isfinite(best_values)]
        predicted = self.values + 0.5 * self.slopes
        order = predicted.argsort(kind="stable")
        # Also relative to the spread of the restarts, lest a constant in the objective makes all values equal.
        near = SETTLED * np.minimum(np.abs(self.values[order]), seen.max() - seen.min())
        settled = -self.slopes[order] <= near
        gaps = np.diff(predicted[order], prepend=-np.inf)
        repeated = settled & np.roll(settled, 1) & (gaps <= near)
        keep = np.zeros(len(order), dtype=bool)
        finalists = max(FEWEST_FINALISTS, min(len(best_values) // 2, MOST_FINALISTS))
        keep[order[~repeated][:finalists]] = True
        if self.outcomes:
            keep &= self.values + self.slopes < best_values[list(self.outcomes)].min()
        self._keep(keep | (self.ids == best_values.argmin()))


@noted_rounding()  # that of a search is no news
def lbfgs(
    function: Objective,
    starts: Tensor,
    *,
    max_iter: int = 200,
    tol: float = 1e-8,
    race: bool = True,
    noise: float = 0.0,
    longest_step: float = np.inf,
    batched: bool = True,
    callback: Callback | None = None,
    verbose: int = 0,
    description: str = "",
    deadline: Deadline | None = None,
) -> OptimizeResult:
    """Minimise a smooth function from many starts at once by limited-memory BFGS.

    Parameters
    ----------
    function : callable
        ``points (b', m) -> (values (b',), gradients (b', m))``, each row by itself. The number of rows
        changes from call to call. A value or gradient that is not finite means that a step was too long;
        it is never accepted.
    starts : Tensor of shape (m,) or (b, m)
        Start points; never modified. Starts where the objective is not finite are left out.
    max_iter : int
        Most iterations of a restart.
    tol : float
        See :class:`StoppingRule`.
    race : bool
        Run on only the half of the restarts (8 to 32) that leads after the first iteration, and of those that settle
        at the same value only one. So 64 cost 10 to 25 times the evaluations of one and, as batches make each
        cheaper, 2 to 6 times the seconds. False runs each to its end: for minima that one start in 64 leads to.
    noise : float
        Relative accuracy of the values, where they are the result of a computation with a tolerance of its own: a step
        that promises less is not tried.
    longest_step : float
        The most that an unknown changes in one iteration: for functions with plateaus that a long step would end on.
    batched : bool
        Does a call with several points cost less than one call for each? If not, the function is given one at a time,
        and Ctrl-C or the deadline between two of them leaves the best of those before.
    callback : callable, optional
        Called with the :class:`HistoryEntry` of every iteration, first that of the starts; True stops
        the run.
    verbose : int
        1: a progress bar for runs over a second, or lines where there is no terminal. 2: also a line that says why the
        run stopped.
    description : str
        What the progress bar calls the run.
    deadline : Deadline, optional
        When the run must end; the evaluation at the start is always made.

    Returns
    -------
    OptimizeResult

    Examples
    --------
    >>> import torch
    >>> from representer.optimize import lbfgs, with_gradient
    >>> bowl = with_gradient(lambda points: ((points - 3.0) ** 2).sum(-1))
    >>> lbfgs(bowl, torch.zeros(2)).point
    tensor([3., 3.])
    """
    starts = checked_starts(starts)
    check_limits(max_iter, tol)
    if not longest_step > 0:
        raise ValueError(f"longest_step must be positive, got {longest_step!r}; inf is no limit")
    rule = StoppingRule(tol, patience=2, noise=noise)
    evaluate = _Evaluator(function, starts, deadline, batched=batched)
    outcomes: dict[int, tuple[bool, str]] = {}
    stopped, interrupted = "", False
    with Monitor(callback, verbose, max_iter, description, deadline) as monitor:
        try:
            alive = _Restarts(evaluate, longest_step)
            outcomes = alive.outcomes
            stopped = _descend(alive, rule, race, monitor)
        except KeyboardInterrupt:
            if evaluate.best is None:
                raise
            interrupted = True
    winner = int(evaluate.best_values.argmin())
    values, points = evaluate.of_each()
    converged, why = outcomes.get(winner, (False, f"max_iter={max_iter} reached; increase max_iter or tol"))
    return monitor.result(
        evaluate.winner(),
        values,
        evaluate.n_evaluations,
        converged,
        stopped or why,
        interrupted,
        points,
    )


def _descend(alive: _Restarts, rule: StoppingRule, race: bool, monitor: Monitor) -> str:
    """Iterate until every restart has ended, or max_iter; a reason if the callback ended the run."""
    alive.evaluate.winner()  # raises if no start is finite
    stationary = rule.stationary(alive.values, alive.gradients)
    alive.retire([(stationary, True, f"gradient below tol={rule.tol:g} at the start")])
    alive.aim()
    for iteration in range(monitor.max_iter + 1):
        if iteration > 0:
            alive.step(rule, iteration)
            if race and len(alive.evaluate.starts) > 1:
                alive.race()
        value, gradient_norm, _ = alive.evaluate.winner()
        if monitor(iteration, value, gradient_norm, len(alive)):
            return f"stopped by callback after {iteration} iterations"
        if len(alive) == 0:
            break
    return ""


Function = Callable[[Tensor], Tensor]


@noted_rounding()  # that of a search is no news
def newton(
    function: Function,
    start: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    tol: float = 1e-9,
    max_iter: int = 20,
) -> Tensor:
    """A local minimum between bounds, near a start: one column of second derivatives for each unknown.

    An eigenvalue of the Hessian counts by its size, so that every step leads downwards; it ends at the first bound in
    its way, and is halved while the value rises by more than rounding. What pushes against its bound stays there.

    Parameters
    ----------
    function : callable
        A twice differentiable function (m,) -> ().
    start, lower, upper : Tensor of shape (m,)
        Where to begin, and the bounds.
    tol : float
        The last step changes no unknown by more than this.
    max_iter : int
        Most steps.

    Returns
    -------
    point : Tensor of shape (m,)
        The last point; where the derivatives are not finite, the search ends.

    Examples
    --------
    >>> import torch
    >>> from representer.optimize.quasi_newton import newton
    >>> start, bounds = torch.zeros(2).double(), torch.ones(2).double()
    >>> newton(lambda x: x[0].cosh() - x[0] / 2 + (x[1] - 3 * x[0]).square(), start, -bounds, bounds)
    tensor([0.3418, 1.0000], dtype=torch.float64)
    """
    point = start.detach().clamp(lower, upper)
    for _ in range(max_iter):
        value, gradient, hessian = _derivatives(function, point)
        if not bool(value.isfinite() & gradient.isfinite().all() & hessian.isfinite().all()):
            break
        step = _step(gradient, hessian, point <= lower, point >= upper)
        new = _along(function, point, value, step, lower, upper)
        settled = (new - point).abs().amax() <= tol
        point = new
        if bool(settled):
            break
    return point


def _derivatives(function: Function, point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The value, the gradient and the Hessian of a function at a point."""
    value, gradient = with_gradient(function)(point)
    hessian: Tensor = torch.autograd.functional.hessian(function, point)
    return value, gradient, 0.5 * (hessian + hessian.mT)


def _step(gradient: Tensor, hessian: Tensor, at_lower: Tensor, at_upper: Tensor) -> Tensor:
    """The step downwards and into the bounds, of the unknowns that do not push against theirs."""
    free = ~((at_lower & (gradient > 0)) | (at_upper & (gradient < 0)))
    step = torch.zeros_like(gradient)
    while bool(free.any()):
        sizes, V = torch.linalg.eigh(hessian[free][:, free])
        least = torch.finfo(gradient.dtype).eps ** 0.75 * sizes.abs().amax()  # below it, all is rounding
        sizes = sizes.abs().clamp(min=torch.maximum(least, least.new_tensor(torch.finfo(least.dtype).tiny)))
        step = torch.zeros_like(gradient)
        step[free] = -V @ ((V.mT @ gradient[free]) / sizes)
        out = (at_lower & (step < 0)) | (at_upper & (step > 0))
        if not bool(out.any()):
            return step
        free, step = free & ~out, torch.zeros_like(gradient)
    return step


def _along(function: Function, point: Tensor, value: Tensor, step: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The end of a step, or of the first share of it that leads no higher; the point itself if none does."""
    bound = torch.where(step > 0, upper, lower)
    until = torch.where(step == 0, torch.inf, (bound - point) / step)
    share = until.amin().clamp(max=1.0)
    highest = value + 8 * torch.finfo(value.dtype).eps * value.abs()
    for _ in range(40):
        new = torch.where(until <= share, bound, point + share * step)
        with torch.no_grad():
            if bool(function(new) <= highest):
                return new
        share = 0.5 * share
    return point


def random_starts(start: Tensor, n_restarts: int, seed: int) -> Tensor:
    """The start, and ``n_restarts`` − 1 points around it at distance about one in every raw (logarithmic) direction."""
    noise = torch.randn(n_restarts, len(start), generator=torch.Generator().manual_seed(seed), dtype=start.dtype)
    noise[0] = 0.0
    return start + noise.to(start.device)


def minimise(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    settings: SearchSettings,
    *,
    batched: bool = True,
    description: str = "log criterion",
) -> OptimizeResult:
    """Minimise a function with gradients by L-BFGS from raced restarts around a start."""
    with recycling():  # every evaluation makes the same matrices again
        starts = random_starts(start, settings.n_restarts, settings.seed)
        return lbfgs(function, starts, batched=batched, **settings.limits(description))
