"""Limited-memory BFGS with batched, raced restarts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from representer.optimize.runs import (
    Best,
    Callback,
    Monitor,
    OptimizeResult,
    StoppingRule,
    check_limits,
    checked_output,
    checked_starts,
    require,
)

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]

# By 35 sets of 64 starts on nine problems of two layers (`python -m benchmarks.racing` has other starts). With 18
# finalists 28 sets end within 1 % of the best of all 64, with 32 these are 32, with 48 no more. A tenfold smaller
# SETTLED costs a quarter more evaluations, a fourfold larger one misses five more sets.
FINALISTS = 32
SETTLED = 0.005
PAIRS = 10  # of curvature, remembered for each restart


class _Evaluator:
    """The objective on a subset of the restarts: it checks and counts, and remembers the best values ever seen."""

    def __init__(self, function: Objective, starts: Tensor) -> None:
        self.function = function
        self.n_evaluations = 0
        self.best_values = starts.new_full((len(starts),), torch.inf)
        self.best_points = starts.clone()
        self.best: Best | None = None

    def __call__(self, points: Tensor, restarts: Tensor) -> tuple[Tensor, Tensor]:
        """Values and gradients; the value is NaN in the rows where either is not finite."""
        values, gradients = checked_output(self.function(points), points)
        self.n_evaluations += len(points)
        usable = values.isfinite() & gradients.isfinite().all(-1)
        self._remember(points, values.where(usable, torch.inf), gradients, restarts)
        return values.where(usable, torch.nan), gradients

    def _remember(self, points: Tensor, values: Tensor, gradients: Tensor, restarts: Tensor) -> None:
        """Store the points that are lower than what their restarts have reached, and the lowest of all."""
        lower = values < self.best_values[restarts]
        self.best_values[restarts[lower]], self.best_points[restarts[lower]] = values[lower], points[lower]
        row = int(values.argmin())
        value = float(values[row])
        if value < (self.best[0] if self.best else torch.inf):
            self.best = (value, float(gradients[row].abs().max()), points[row].clone())

    def winner(self) -> Best:
        """The best value ever seen, with its gradient norm and its point."""
        if self.best is None:
            raise ValueError(
                f"the objective or its gradient is not finite at any of the {len(self.best_values)} starts; "
                "start inside its domain, and check the data for NaN and the hyperparameters for overflow"
            )
        return self.best


class _Curvature:
    """The limited-memory inverse Hessian of every restart: pairs of steps s and gradient changes y."""

    def __init__(self, gradients: Tensor) -> None:
        self.pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # s (b, m), y (b, m), 1/s'y (b,): 0 = no pair
        self.scale = gradients.new_zeros(len(gradients))  # s'y / y'y of the last pair: 0 = none yet

    @property
    def fresh(self) -> Tensor:
        """Which restarts have no pair yet."""
        return self.scale == 0

    def push(self, s: Tensor, y: Tensor) -> None:
        """Add a pair, cautiously: one without safely positive curvature would spoil the inverse Hessian."""
        sy, yy = (s * y).sum(-1), (y * y).sum(-1)
        good = sy > torch.finfo(s.dtype).eps * yy
        self.scale = torch.where(good, sy / yy, self.scale)
        self.pairs.append((s, y, torch.where(good, 1 / sy, 0.0)))
        del self.pairs[:-PAIRS]

    def direction(self, gradients: Tensor) -> Tensor:
        """The direction of the two-loop recursion; without any pair, that of the steepest descent with length one."""
        d = -gradients
        weights = []
        for s, y, inverse in reversed(self.pairs):
            weights.append(inverse * (s * d).sum(-1))
            d = d - weights[-1][:, None] * y
        d = d * torch.where(self.fresh, 1 / gradients.norm(dim=-1), self.scale)[:, None]
        for (s, y, inverse), weight in zip(self.pairs, reversed(weights), strict=True):
            d = d + (weight - inverse * (y * d).sum(-1))[:, None] * s
        return d

    def forget(self, rows: Tensor) -> None:
        """Drop the pairs of these restarts."""
        self.scale = self.scale.where(~rows, 0.0)
        self.pairs = [(s, y, inverse.where(~rows, 0.0)) for s, y, inverse in self.pairs]

    def keep(self, rows: Tensor) -> None:
        """Drop all restarts but these."""
        self.scale = self.scale[rows]
        self.pairs = [(s[rows], y[rows], inverse[rows]) for s, y, inverse in self.pairs]


def _line_search(
    evaluate: _Evaluator,
    ids: Tensor,
    points: Tensor,
    values: Tensor,
    gradients: Tensor,
    directions: Tensor,
    noise: float = 0.0,
    longest_step: float = torch.inf,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weak Wolfe search of Lewis and Overton (2013) by row: new points, values, gradients, and who moved.

    Each row keeps a bracket of (step, value, slope): ``low`` fulfils the Armijo condition, ``high`` does
    not (or is not finite). Only rows that still search are evaluated. A step of the greatest length is not prolonged.
    """
    lengths = directions.abs().amax(-1)
    slopes = (gradients * directions).sum(-1)
    precision = max(noise, torch.finfo(values.dtype).eps) * values.abs()
    low = torch.stack([torch.zeros_like(values), values, slopes], -1)
    high = torch.tensor([torch.inf, torch.nan, torch.nan]).to(low).repeat(len(low), 1)
    new_points, new_values, new_gradients = points.clone(), values.clone(), gradients.clone()
    steps, rows = torch.ones_like(values), torch.arange(len(values), device=values.device)
    for trial in range(30):
        t = steps[rows]
        tried = points[rows] + t[:, None] * directions[rows]
        f, g = evaluate(tried, ids[rows])
        ends = torch.stack([t, f, (g * directions[rows]).sum(-1)], -1)
        lower = (f < values[rows]) & (f <= values[rows] + 1e-4 * t * slopes[rows])  # False for NaN
        moved = rows[lower]
        low[moved], high[rows[~lower]] = ends[lower], ends[~lower]
        new_points[moved], new_values[moved], new_gradients[moved] = tried[lower], f[lower], g[lower]
        done = lower & ((ends[:, 2] >= 0.9 * slopes[rows]) | (t * lengths[rows] >= longest_step))
        vanished = ~lower & (t * slopes[rows].abs() <= precision[rows])  # beyond the objective's digits
        rows = rows[~(done | vanished)]
        if len(rows) == 0:
            break
        steps[rows] = _next_step(low[rows], high[rows], bisect=trial % 3 == 2).clamp(
            max=longest_step / lengths[rows]
        )
    return new_points, new_values, new_gradients, low[:, 0] > 0


def _next_step(low: Tensor, high: Tensor, *, bisect: bool) -> Tensor:
    """The next step: longer while no end is above, then the minimum of the cubic through both ends, or their middle."""
    (a, fa, sa), (c, fc, sc) = low.unbind(-1), high.unbind(-1)
    width = c - a
    d1 = sa + sc - 3 * (fc - fa) / width
    d2 = (d1**2 - sa * sc).sqrt()
    cubic = c - width * (sc + d2 - d1) / (sc - sa + 2 * d2)
    safe = torch.minimum(torch.maximum(cubic, a + 0.1 * width), c - 0.1 * width)
    inside = torch.where(cubic.isfinite() & (not bisect), safe, a + 0.5 * width)
    return torch.where(c.isinf(), 4 * a, inside)


class _Restarts:
    """The restarts still alive, one row each, with the direction that each will search next."""

    def __init__(self, evaluate: _Evaluator, starts: Tensor, longest_step: float) -> None:
        self.evaluate, self.longest_step = evaluate, longest_step
        self.ids = torch.arange(len(starts), device=starts.device)
        self.points = self.directions = starts
        self.values, self.gradients = evaluate(starts, self.ids)
        self.slopes = self.values
        self.calm = torch.zeros_like(self.ids)
        self.curvature = _Curvature(self.gradients)
        self.outcomes: dict[int, tuple[bool, str]] = {}  # restart -> converged, why it ended
        self._keep(self.values.isfinite())

    def __len__(self) -> int:
        return len(self.ids)

    def _keep(self, rows: Tensor) -> None:
        """Drop all restarts but these."""
        if rows.all():
            return
        for name in ("ids", "points", "values", "gradients", "directions", "slopes", "calm"):
            setattr(self, name, getattr(self, name)[rows])
        self.curvature.keep(rows)

    def retire(self, verdicts: list[tuple[Tensor, bool, str]]) -> None:
        """End restarts by (rows, converged, why); the first verdict on a row counts."""
        for rows, converged, why in reversed(verdicts):
            self.outcomes.update((i, (converged, why)) for i in self.ids[rows].tolist())
        self._keep(~torch.stack([rows for rows, _, _ in verdicts]).any(0))

    def aim(self) -> None:
        """Find directions of descent, and the slopes along them, which are all negative."""
        self.directions = self.curvature.direction(self.gradients)
        self.slopes = (self.directions * self.gradients).sum(-1)
        uphill = ~(self.slopes < 0)  # by rounding only: a cautious inverse Hessian is positive definite
        if uphill.any():
            self.curvature.forget(uphill)
            self.directions = self.curvature.direction(self.gradients)
        excess = (self.directions.abs().amax(-1, keepdim=True) / self.longest_step).clamp(min=1.0)
        self.directions = self.directions / excess
        self.slopes = (self.directions * self.gradients).sum(-1)

    def step(self, rule: StoppingRule, iteration: int) -> None:
        """Move every restart along its direction, end those that are done, and aim anew.

        Some find no lower value. If the quasi-Newton model promised no more than the objective's digits
        can show, that is convergence. Otherwise they forget their curvature and have a second chance
        along the steepest descent; those that fail there are stuck.
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
        digits = max(rule.noise, torch.finfo(values.dtype).eps) ** 0.5
        exhausted = ~moved & (-self.slopes <= digits * values.abs())
        stuck = ~moved & ~exhausted & self.curvature.fresh
        self.curvature.forget(~moved)
        self.curvature.push(points - self.points, gradients - self.gradients)
        self.calm = torch.where(moved & rule.calm(self.values, values), self.calm + 1, 0)
        self.points, self.values, self.gradients = points, values, gradients
        when = f"after {iteration} iterations"
        self.retire(
            [
                (rule.stationary(values, gradients), True, f"gradient below tol={rule.tol:g} {when}"),
                (self.calm >= rule.patience, True, f"relative decrease below tol={rule.tol:g} {when}"),
                (exhausted, True, f"no lower value within the precision of the objective {when}"),
                (stuck, False, f"no lower value along the gradient {when}; check that it fits the values"),
            ]
        )
        self.aim()

    def race(self) -> None:
        """Drop the restarts that are not worth running on; the best so far always stays.

        After the first iteration these are all but the ``FINALISTS`` of lowest *predicted* value f - |slope|/2,
        the minimum of the quasi-Newton model: fairer than f to a restart that is still on the slope of a lower
        valley. Later none is dropped for being behind, because the order changes late; but of restarts that
        settle at the same value only one stays, and none that would not beat a restart that has ended even by
        gaining twice what its model promises.
        """
        best_values = self.evaluate.best_values
        seen = best_values[best_values.isfinite()]
        predicted = self.values + 0.5 * self.slopes
        order = predicted.argsort(stable=True)
        # Also relative to the spread of the restarts, lest a constant in the objective makes all values equal.
        near = SETTLED * self.values[order].abs().clamp(max=seen.max() - seen.min())
        settled = -self.slopes[order] <= near
        gaps = predicted[order].diff(prepend=predicted.new_tensor([-torch.inf]))
        repeated = settled & settled.roll(1) & (gaps <= near)
        keep = torch.zeros_like(order, dtype=torch.bool)
        keep[order[~repeated][:FINALISTS]] = True
        if self.outcomes:
            keep &= self.values + self.slopes < best_values[list(self.outcomes)].min()
        self._keep(keep | (self.ids == best_values.argmin()))


def lbfgs(
    function: Objective,
    starts: Tensor,
    *,
    max_iter: int = 200,
    tol: float = 1e-8,
    race: bool = True,
    noise: float = 0.0,
    longest_step: float = torch.inf,
    callback: Callback | None = None,
    verbose: int = 0,
    description: str = "",
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
        Run on only the 32 restarts that lead after the first iteration, and of those that settle at the same
        value only one. So 64 cost 10 to 25 times the evaluations of one and, as batches make each cheaper, 2 to
        6 times the seconds. False runs each to its end: for minima that one start in 64 leads to.
    noise : float
        Relative accuracy of the values, where they are the result of a computation with a tolerance of its own: a step
        that promises less is not tried.
    longest_step : float
        The most that an unknown changes in one iteration: for functions with plateaus that a long step would end on.
    callback : callable, optional
        Called with the :class:`HistoryEntry` of every iteration, first that of the starts; True stops
        the run.
    verbose : int
        1: a progress bar for runs over a second. 2: also a line that says why the run stopped.
    description : str
        What the progress bar calls the run.

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
    require(longest_step > 0, f"longest_step must be positive, got {longest_step!r}; inf is no limit")
    rule = StoppingRule(tol, patience=2, noise=noise)
    evaluate = _Evaluator(function, starts)
    outcomes: dict[int, tuple[bool, str]] = {}
    stopped, interrupted = "", False
    with Monitor(callback, verbose, max_iter, description) as monitor:
        try:
            alive = _Restarts(evaluate, starts, longest_step)
            outcomes = alive.outcomes
            stopped = _descend(alive, rule, race, monitor)
        except KeyboardInterrupt:
            if evaluate.best is None:
                raise
            interrupted = True
    winner = int(evaluate.best_values.argmin())
    converged, why = outcomes.get(winner, (False, f"max_iter={max_iter} reached; increase max_iter or tol"))
    return monitor.result(
        evaluate.winner(),
        evaluate.best_values,
        evaluate.n_evaluations,
        converged,
        stopped or why,
        interrupted,
        evaluate.best_points,
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
            if race:
                alive.race()
        value, gradient_norm, _ = alive.evaluate.winner()
        if monitor(iteration, value, gradient_norm, len(alive)):
            return f"stopped by callback after {iteration} iterations"
        if len(alive) == 0:
            break
    return ""
