"""Adam on sub-batches of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from representer.linalg import noted_rounding
from representer.optimize.search import (
    Best,
    Callback,
    Deadline,
    Monitor,
    OptimizeResult,
    StoppingRule,
    check_limits,
    checked_output,
    checked_starts,
    require,
)
from representer.samples import digest, remembered

BatchObjective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

BETAS = 0.9, 0.999  # the decay of the two moments


class DivergenceError(RuntimeError):
    """Adam met only non-finite values; ``result`` is the best of what came before, or None."""

    result: OptimizeResult | None = None


class _Adam:
    """The state of an Adam run: point, moments, rate, and the means over the epoch under way."""

    def __init__(self, function: BatchObjective, start: Tensor, rate: float) -> None:
        self.function, self.rate = function, rate
        self.point = self.safe = start  # safe: the last point where a batch was finite
        self.moments = torch.zeros_like(start), torch.zeros_like(start)
        self.n_steps = self.n_evaluations = self.n_skipped = self.n_failed = 0
        self.seen = 0  # samples in the means
        self.means = start.new_zeros(()), start, start  # value, gradient, point
        self.best: Best | None = None

    def batch(self, indices: Tensor) -> None:
        """Make one step along the gradient of one batch."""
        value, gradient = remembered(
            lambda: f"Adam at {digest(self.point.numpy(force=True))}",
            lambda: checked_output(self.function(self.point, indices), self.point),
        )
        self.n_evaluations += 1
        if not (value.isfinite() and gradient.isfinite().all()):
            return self._back_off()
        self.n_failed, self.safe = 0, self.point
        self.seen += len(indices)
        share = len(indices) / self.seen  # 1 for the first batch: the means begin anew
        value_mean, gradient_mean, point_mean = self.means
        self.means = (
            value_mean.lerp(value, share),
            gradient_mean.lerp(gradient, share),
            point_mean.lerp(self.point, share),
        )
        self._move(gradient)

    def _move(self, gradient: Tensor) -> None:
        """Make the step of Kingma and Ba (2015), algorithm 1."""
        self.n_steps += 1
        (b1, b2), (m, v) = BETAS, self.moments
        m, v = b1 * m + (1 - b1) * gradient, b2 * v + (1 - b2) * gradient**2
        self.moments = m, v
        m, v = m / (1 - b1**self.n_steps), v / (1 - b2**self.n_steps)
        self.point = self.point - self.rate * m / (v.sqrt() + 1e-8)

    def _back_off(self) -> None:
        """Take the last step back, which left the domain, and make shorter ones from now on."""
        self.point, self.rate = self.safe, self.rate / 2
        self.n_failed, self.n_skipped = self.n_failed + 1, self.n_skipped + 1
        if self.n_failed == 5:
            raise self.diverged()

    def diverged(self) -> DivergenceError:
        """The error of a run that shorter steps cannot save."""
        return DivergenceError(
            f"the objective or its gradient was not finite on {self.n_failed} batches in a row, although the "
            f"learning rate was halved each time (to {self.rate:g}); lower learning_rate, start from another "
            "point, or check the data for NaN"
        )

    def close_epoch(self) -> tuple[Tensor, Tensor] | None:
        """Mean value and gradient of the epoch, None if no batch was finite; remembers the best epoch."""
        if self.seen == 0:
            return None
        self.seen = 0
        value, gradient, point = self.means
        if self.best is None or float(value) < self.best[0]:
            self.best = (float(value), float(gradient.abs().max()), point)
        return value, gradient

    def salvage(self) -> bool:
        """Whether there is a best point; without a complete epoch, the batches so far must do."""
        if self.best is None:
            self.close_epoch()
        return self.best is not None

    def result(self, monitor: Monitor, converged: bool, message: str, interrupted: bool) -> OptimizeResult:
        """The best epoch as the result of the run."""
        if self.best is None:
            raise self.diverged()
        values = self.point.new_tensor([self.best[0]])
        return monitor.result(self.best, values, self.n_evaluations, converged, message, interrupted)


@noted_rounding()  # that of a search is no news
def adam(
    function: BatchObjective,
    start: Tensor,
    *,
    n_samples: int,
    batch_size: int | None = None,
    learning_rate: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    patience: int | None = None,
    random_state: int | None = None,
    callback: Callback | None = None,
    verbose: int = 0,
    description: str = "",
    deadline: Deadline | None = None,
) -> OptimizeResult:
    """Minimise the mean of a function over sub-batches of the data by Adam.

    The batch values of an epoch are measured at points that move. Their mean is the value of the epoch,
    and the mean of those points is its point: for a convex objective the value there is, in expectation,
    no higher (Jensen), and it is less noisy than the last iterate. With full batches both are exact. The
    epoch of lowest value wins.

    Parameters
    ----------
    function : callable
        ``(point (m,), indices (k,)) -> (value, gradient (m,))`` on the batch with those indices. The value
        should be a mean, not a sum, over the batch, because batches differ a little in size.
    start : Tensor of shape (m,)
        Start point; never modified.
    n_samples : int
        Indices run from 0 to ``n_samples - 1``.
    batch_size : int, optional
        Samples a batch, shuffled anew each epoch; None for all at once. A last batch of less than half
        that size, or of one sample, is merged into the one before: none is left out, and no gradient is wild.
    learning_rate : float
        Size of a step. A batch whose value or gradient is not finite is skipped, the step before it taken
        back, and the rate halved from then on; five of these in a row raise :class:`DivergenceError`.
    max_iter : int
        Most epochs, that is, passes over the data.
    tol : float
        See :class:`StoppingRule`.
    patience : int, optional
        Calm epochs before the run ends; by default 10, or more if that is less than 100 steps, because
        the momentum carries Adam past a minimum and back.
    random_state : int, optional
        Seed of the shuffling; None shuffles differently each time.
    callback : callable, optional
        Called with the :class:`HistoryEntry` of every epoch; True stops the run.
    verbose, description, deadline
        See :func:`lbfgs`.

    Returns
    -------
    OptimizeResult

    Examples
    --------
    >>> import torch
    >>> from representer.optimize import adam, with_gradient
    >>> data = torch.tensor([1.0, 2.0, 3.0, 6.0])
    >>> loss = with_gradient(lambda point, indices: ((point - data[indices]) ** 2).mean())
    >>> adam(loss, torch.zeros(1), n_samples=4, learning_rate=0.1, max_iter=500).point.round()
    tensor([3.])
    """
    starts = checked_starts(start)
    require(len(starts) == 1, f"adam takes one start of shape (m,), got {len(starts)}; call it for each")
    check_limits(max_iter, tol)
    require(learning_rate > 0, f"learning_rate must be positive, got {learning_rate!r}; try 0.01")
    size = n_samples if batch_size is None else batch_size
    require(
        1 <= size <= n_samples,
        f"batch_size must be from 1 to n_samples={n_samples}, got {size!r}; use None for all samples at once",
    )
    patience = max(10, -(-100 * size // n_samples)) if patience is None else patience
    require(patience >= 1, f"patience must be at least 1 epoch, got {patience!r}")
    generator = torch.Generator()  # our own: the global one stays untouched
    generator.seed() if random_state is None else generator.manual_seed(random_state)
    run = _Adam(function, starts[0], learning_rate)
    rule = StoppingRule(tol, patience)
    interrupted = False
    with Monitor(callback, verbose, max_iter, description, deadline) as monitor:
        try:
            epochs = (_batches(n_samples, size, generator) for _ in range(max_iter))
            converged, message = _epochs(run, epochs, rule, monitor)
        except KeyboardInterrupt:
            if not run.salvage():
                raise
            converged, message, interrupted = False, "", True
        except DivergenceError as error:
            if run.salvage():
                error.result = run.result(monitor, False, str(error), False)
            raise
    return run.result(monitor, converged, message, interrupted)


def _epochs(run: _Adam, epochs: Iterable[list[Tensor]], rule: StoppingRule, monitor: Monitor) -> tuple[bool, str]:
    """Run epochs until the rule, the callback or max_iter ends them: whether it was the rule, and why."""
    calm, reference = 0, None
    for epoch, batches in enumerate(epochs, start=1):
        for indices in batches:
            run.batch(indices.to(run.point.device))
            if run.seen or run.best is not None:
                monitor.deadline.check()
        means = run.close_epoch()
        if means is None:
            continue
        value, gradient = (mean.numpy(force=True) for mean in means)
        if reference is not None and rule.calm(reference, value):
            calm += 1
        else:
            calm, reference = 0, value
        skipped = f" ({run.n_skipped} batches skipped: not finite)" if run.n_skipped else ""
        if monitor(epoch, float(value), float(abs(gradient).max()), 1):
            return False, f"stopped by callback after {epoch} epochs{skipped}"
        if rule.stationary(value, gradient):
            return True, f"gradient below tol={rule.tol:g} after {epoch} epochs{skipped}"
        if calm >= rule.patience:
            return True, f"relative decrease below tol={rule.tol:g} after {epoch} epochs{skipped}"
    return False, f"max_iter={monitor.max_iter} epochs reached; increase max_iter, tol or learning_rate"


def _batches(n: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """The indices 0, ..., n - 1 of one epoch, shuffled if there is more than one batch."""
    if size == n:
        return [torch.arange(n)]
    batches = list(torch.split(torch.randperm(n, generator=generator), size))
    if 2 * len(batches[-1]) < size or len(batches[-1]) == 1 < size:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches
