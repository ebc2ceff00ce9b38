"""Optimisers against closed forms, scipy, finite differences, and themselves run one restart at a time."""

import math
import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tiers import tiers

from representer.kernels import Gaussian
from representer.optimize import (
    Choice,
    Deadline,
    DivergenceError,
    SearchSettings,
    StoppingRule,
    adam,
    as_seconds,
    lbfgs,
    least_error,
    newton,
    search,
    with_gradient,
)
from representer.optimize.quasi_newton import _Curvature, _Evaluator, _line_search, _next_step, _Restarts

SEEDS = st.integers(0, 10**6)
SHORT = settings(max_examples=12, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Threads only get in each other's way on matrices this small."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def quadratic(m, seed=0, condition=100.0, dtype=torch.float64):
    """½(x-c)'A(x-c) + 1 with a known minimiser c, gradient by hand."""
    Q, _ = torch.linalg.qr(normal(m, m, seed=seed))
    A = ((Q * torch.logspace(0, math.log10(condition), m, dtype=Q.dtype)) @ Q.T).to(dtype)
    c = normal(m, seed=seed + 1).to(dtype)

    def function(points):
        gradients = (points - c) @ A
        return 0.5 * (gradients * (points - c)).sum(-1) + 1.0, gradients

    return function, c


@with_gradient
def rosenbrock(points):
    x, y = points[:, :-1], points[:, 1:]
    return (100 * (y - x**2) ** 2 + (1 - x) ** 2).sum(-1)


def rosenbrock_of(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def autoencoder(n=25, alpha=1e-3, penalty=1e-4):
    """Two-layer kernel autoencoder of a spiral with a one-dimensional code: a dozen local minima."""
    t = 5 * torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X = torch.stack([t * t.cos(), t * t.sin()], 1) / 3
    eigenvalues, U = torch.linalg.eigh(torch.exp(-(torch.cdist(X, X) ** 2)))
    B = (U * eigenvalues.clamp(min=0).sqrt())[:, eigenvalues > 1e-3 * eigenvalues[-1]]

    @with_gradient
    def function(points):
        codes = points @ B.T
        W = torch.exp(-((codes[:, :, None] - codes[:, None, :]) ** 2) / 2) + n * alpha * torch.eye(n)
        solved = torch.linalg.solve_triangular(torch.linalg.cholesky(W), X.expand(len(points), n, 2), upper=False)
        return alpha * (solved**2).sum((1, 2)) + penalty * (points**2).sum(1)

    return function, B.shape[1]


# L-BFGS: solutions


@SHORT
@given(m=st.integers(1, 12), b=st.integers(1, 4), seed=SEEDS)
def test_quadratic_is_solved_from_every_start(m, b, seed):
    function, c = quadratic(m, seed)
    result = lbfgs(function, 3 * normal(b, m, seed=seed + 2), tol=1e-14, race=False)
    torch.testing.assert_close(result.point, c, rtol=0, atol=1e-6)
    torch.testing.assert_close(result.values, torch.ones(b, dtype=torch.float64), rtol=1e-12, atol=0)
    assert result.converged


@pytest.mark.parametrize("m", [2, 10])
def test_rosenbrock_agrees_with_scipy(m):
    start = normal(m, seed=4)

    def numpy_function(x):
        values, gradients = rosenbrock(torch.from_numpy(x)[None])
        return float(values[0]), gradients[0].numpy()

    expected = minimize(numpy_function, start.numpy(), jac=True, method="L-BFGS-B", options={"gtol": 1e-10, "ftol": 0})
    result = lbfgs(rosenbrock, start, tol=1e-12, max_iter=500)
    np.testing.assert_allclose(result.point.numpy(), expected.x, atol=1e-6)
    assert result.converged
    assert result.n_evaluations < 2 * expected.nfev  # no less frugal than scipy, up to a factor


def test_scale_of_the_objective_does_not_matter():
    c = normal(6)
    for scale in (1e-6, 1e6):
        scaled = with_gradient(lambda p, scale=scale: scale * ((p - c) ** 4).sum(-1) + scale)
        result = lbfgs(scaled, torch.zeros(6, dtype=torch.float64), tol=1e-12)
        assert result.value / scale == pytest.approx(1.0, abs=1e-5)


def test_batch_equals_each_restart_alone():
    starts = normal(6, 8, seed=3)
    together = lbfgs(rosenbrock, starts, race=False, tol=1e-12, max_iter=500)
    alone = [lbfgs(rosenbrock, start, tol=1e-12, max_iter=500) for start in starts]
    torch.testing.assert_close(together.values, torch.cat([r.values for r in alone]), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(together.points, torch.stack([r.point for r in alone]), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(rosenbrock(together.points)[0], together.values)
    assert together.n_iter == max(r.n_iter for r in alone)
    assert together.n_evaluations == sum(r.n_evaluations for r in alone)


def test_only_restarts_that_still_search_are_evaluated():
    sizes = []

    def function(points):
        sizes.append(len(points))
        return rosenbrock(points)

    result = lbfgs(function, normal(8, 4, seed=1), race=False)
    assert sum(sizes) == result.n_evaluations
    assert sizes[0] == 8
    assert min(sizes) < 8


@pytest.mark.parametrize("longest", [0.1, 0.5, 3.0])
def test_no_step_is_longer_than_allowed(longest):
    """A well with a plateau around it: what is tried in iteration i is no farther than i steps from the start."""
    start, reach, reaches = torch.tensor([[1.0, 2.5], [4.0, 4.0]], dtype=torch.float64), [0.0], []
    well = with_gradient(lambda points: 1.0 - torch.exp(-0.5 * (points - 3.0).square().sum(-1)))

    def function(points):
        distances = (points[:, None] - start).abs().amax(-1).amin(-1)
        reach[0] = max(reach[0], float(distances.max()))
        return well(points)

    def watch(entry):
        reaches.append((entry.iteration, reach[0]))
        return False

    result = lbfgs(function, start, longest_step=longest, tol=1e-12, callback=watch, race=False)
    assert all(distance <= iteration * longest + 1e-12 for iteration, distance in reaches)
    torch.testing.assert_close(result.point, torch.full((2,), 3.0, dtype=torch.float64), rtol=0.0, atol=1e-4)


@SHORT
@given(seed=SEEDS, m=st.integers(2, 6))
def test_value_never_increases(seed, m):
    result = lbfgs(rosenbrock, normal(3, m, seed=seed))
    history = [entry.value for entry in result.history]
    assert history == sorted(history, reverse=True)
    assert result.value == history[-1] == float(result.values.min())
    assert float(rosenbrock(result.point[None])[0]) == pytest.approx(result.value, rel=1e-12)


@pytest.mark.parametrize("outside", [math.nan, math.inf, -math.inf])
def test_points_outside_the_domain_are_never_accepted(outside):
    c = torch.tensor([3.0, -20.0, 0.5], dtype=torch.float64)
    inside_values = []

    def barrier(points):
        """c'x - Σ log(1 - x²), with a wall of non-finite values beyond the unit cube."""
        inside = (points.abs() < 1).all(-1)
        values = (c * points - (1 - points**2).log()).sum(-1).where(inside, outside)
        inside_values.extend(values[inside].tolist())
        return values, c + 2 * points / (1 - points**2)

    start = torch.tensor([0.999, 0.9, -0.999], dtype=torch.float64)
    result = lbfgs(barrier, start, tol=1e-13)
    torch.testing.assert_close(result.point, (1 - (1 + c**2).sqrt()) / c, rtol=0, atol=1e-6)  # root of the derivative
    assert result.value == min(inside_values)


def test_gradient_that_is_not_finite_is_never_accepted():
    def function(points):
        values, gradients = points[:, 0] ** 2, 2 * points
        return values, gradients.where(points > 0.5, math.nan)  # the minimiser itself is out of bounds

    result = lbfgs(function, torch.tensor([2.0], dtype=torch.float64))
    assert result.point > 0.5
    assert not result.converged


def test_wrong_gradient_is_named():
    function, _ = quadratic(3)
    result = lbfgs(lambda points: (function(points)[0], -function(points)[1]), normal(3, seed=9))
    assert not result.converged
    assert "check that it fits the values" in result.message


def test_transient_failure_gets_a_second_chance():
    calls = []

    def function(points):
        calls.append(None)
        values, gradients = rosenbrock(points)
        return (values * math.nan if 15 < len(calls) <= 45 else values), gradients  # one whole line search

    result = lbfgs(function, -torch.ones(4, dtype=torch.float64))
    assert len(calls) > 45
    assert result.converged
    assert result.value < 1e-8


def test_gradient_that_turns_wrong_ends_the_run():
    calls = []

    def function(points):
        calls.append(None)
        values, gradients = rosenbrock(points)
        return values, gradients if len(calls) <= 15 else -gradients

    result = lbfgs(function, -torch.ones(4, dtype=torch.float64), max_iter=1000)
    assert not result.converged
    assert result.n_iter < 30


@SHORT
@given(seed=SEEDS, exponent=st.integers(-6, 3))
def test_line_search_fulfils_the_weak_wolfe_conditions(seed, exponent):
    points, ids = normal(4, 3, seed=seed).numpy(), np.arange(4)
    evaluate = _Evaluator(rosenbrock, torch.from_numpy(points))
    values, gradients = evaluate(points, ids)
    directions = -(10.0**exponent) * gradients / np.linalg.norm(gradients, axis=-1, keepdims=True)
    slopes = (directions * gradients).sum(-1)
    new_points, new_values, new_gradients, moved = _line_search(evaluate, ids, points, values, gradients, directions)
    steps = ((new_points - points) * directions).sum(-1) / (directions**2).sum(-1)
    assert moved.all()
    assert (new_values <= values + 1e-4 * steps * slopes * (1 - 1e-6)).all()
    assert ((new_gradients * directions).sum(-1) >= 0.9 * slopes).all()
    assert evaluate.n_evaluations < 4 * 25


@SHORT
@given(seed=SEEDS)
def test_next_step_stays_well_inside_the_bracket(seed):
    low, high = normal(50, 3, seed=seed).numpy(), normal(50, 3, seed=seed + 1).numpy()
    low[:, 0], high[:, 0] = abs(low[:, 0]), abs(low[:, 0]) + abs(high[:, 0]) + 0.1
    low[:, 2] = -abs(low[:, 2])
    width = high[:, 0] - low[:, 0]
    for bisect in (False, True):
        share = (_next_step(low, high, bisect=bisect) - low[:, 0]) / width
        assert ((share >= 0.1 - 1e-9) & (share <= 0.9 + 1e-9)).all()
    np.testing.assert_allclose(share, 0.5)


def test_next_step_is_exact_for_cubics():
    """x³ - 3x has its minimum at 1."""
    low, high = (np.array([[x, x**3 - 3 * x, 3 * x**2 - 3]]) for x in (0.1, 1.7))
    assert float(_next_step(low, high, bisect=False)[0]) == pytest.approx(1.0)


@SHORT
@given(seed=SEEDS, n_pairs=st.integers(1, 6))
def test_directions_descend_whatever_the_pairs(seed, n_pairs):
    """Random pairs have negative curvature half of the time."""
    gradients = normal(20, 4, seed=seed).numpy()
    curvature = _Curvature(gradients)
    for i in range(n_pairs):
        curvature.push(normal(20, 4, seed=seed + 2 * i + 1).numpy(), normal(20, 4, seed=seed + 2 * i + 2).numpy())
    assert ((curvature.direction(gradients) * gradients).sum(-1) < 0).all()


def test_directions_equal_dense_bfgs():
    """The two-loop recursion against the update formula of the inverse Hessian."""
    s, y, g = (normal(*shape, seed=seed).numpy() for shape, seed in (((3, 5), 1), ((3, 5), 2), ((5,), 3)))
    y = y * np.sign((s * y).sum(-1, keepdims=True))  # positive curvature
    curvature = _Curvature(g[None])
    eye = np.eye(5)
    H = (s[-1] @ y[-1]) / (y[-1] @ y[-1]) * eye
    for si, yi in zip(s, y, strict=True):
        curvature.push(si[None], yi[None])
        V = eye - np.outer(yi, si) / (si @ yi)
        H = V.T @ H @ V + np.outer(si, si) / (si @ yi)
    np.testing.assert_allclose(curvature.direction(g[None])[0], -H @ g)


def test_float32():
    function, c = quadratic(5, condition=10.0, dtype=torch.float32)
    result = lbfgs(function, torch.zeros(3, 5))
    assert result.point.dtype == result.values.dtype == torch.float32
    torch.testing.assert_close(result.point, c, rtol=0, atol=2e-3)
    assert result.converged


# L-BFGS: racing


@pytest.mark.parametrize("seed", tiers([0, 1, 2], lambda seed: seed == 0))
def test_race_finds_the_best_of_all_restarts_for_the_price_of_a_few(seed):
    function, m = autoencoder()
    starts = normal(64, m, seed=seed)
    raced, unraced = lbfgs(function, starts), lbfgs(function, starts, race=False)
    assert raced.value == pytest.approx(unraced.value, rel=1e-4)
    assert float(unraced.values.median()) > 1.05 * unraced.value  # the problem is multimodal
    assert raced.n_evaluations <= 28 * unraced.n_evaluations / 64  # in batches: less than 8 times the seconds


def test_race_narrows_and_leaves_the_winner_alone():
    function, m = autoencoder()
    starts = normal(64, m, seed=5)
    result = lbfgs(function, starts)
    active = [entry.active for entry in result.history]
    assert active[0] == 64
    assert 32 <= active[1] <= 33  # with the leader
    assert active == sorted(active, reverse=True)
    alone = lbfgs(function, starts[int(result.values.argmin())])
    assert result.value == pytest.approx(alone.value, rel=1e-6)
    assert result.message == alone.message


def test_race_is_as_good_as_many_complete_runs():
    @with_gradient
    def styblinski_tang(points):  # 2^5 local minima
        return (points**4 - 16 * points**2 + 5 * points).sum(-1) / 2

    for seed in range(12):
        starts = 2 * normal(64, 5, seed=seed)
        ends = lbfgs(styblinski_tang, starts, race=False).values
        best_of_eight = ends.view(8, 8).amin(1).median()
        assert lbfgs(styblinski_tang, starts).value <= best_of_eight + 1e-5


def survivors(values, slopes, best_values, ended=()):
    """The restarts left after a race in this state."""
    function, _ = quadratic(2)
    starts = normal(len(values), 2)
    alive = _Restarts(_Evaluator(function, starts), longest_step=np.inf)
    state = np.array([values, slopes, best_values])
    alive.values, alive.slopes, alive.evaluate.best_values = state
    alive.outcomes.update((i, (True, "")) for i in ended)
    alive.race()
    return alive.ids.tolist()


def test_race_ranks_by_predicted_value_and_drops_the_hopeless():
    values = [float(i) for i in range(50)]
    slopes = [-0.9] * 49 + [-100.0]  # the last predicts -1, the others almost their value
    best = [50.0] * 40 + [-1.0] + [50.0] * 9  # restart 40 saw the best
    assert survivors(values, slopes, best) == [*range(24), 40, 49]  # half of them, and the best so far
    assert survivors(values, slopes, best, ended=[7]) == [*range(24), 40, 49]  # at 50, which all may still beat
    assert survivors(values, slopes, best, ended=[40]) == [40, 49]  # at -1, which only the last may beat


@pytest.mark.parametrize("constant", [0.0, 1e5])
def test_race_keeps_one_of_those_that_settle_at_the_same_value(constant):
    values = [constant + v for v in (1.0, 1.004, 1.5, 1.504, 9.0)]
    assert survivors(values, [-1e-3] * 5, values) == [0, 2, 4]
    assert survivors(values, [-1e-3, -0.5, -1e-3, -1e-3, -1e-3], values) == [0, 1, 2, 4]  # not settled yet
    assert survivors(values, [-1e-3, -1e-3, -1e-3, -0.5, -1e-3], values) == [0, 2, 3, 4]


def test_race_keeps_the_leader_among_equals():
    function, c = quadratic(4)
    result = lbfgs(function, torch.zeros(40, 4, dtype=torch.float64), tol=1e-12)
    torch.testing.assert_close(result.point, c, rtol=0, atol=1e-5)


def test_starts_outside_the_domain_are_left_out():
    function = with_gradient(lambda p: (p - p.log()).sum(-1))  # minimum 1 at 1, NaN below 0
    result = lbfgs(function, torch.tensor([[-1.0], [2.0], [-3.0]], dtype=torch.float64))
    assert result.value == pytest.approx(1.0)
    assert result.values.isinf().tolist() == [True, False, True]
    assert result.history[0].active == 1
    with pytest.raises(ValueError, match="not finite at any of the 2 starts"):
        lbfgs(function, -torch.ones(2, 1))


# L-BFGS: stopping


def test_stops_by_gradient_decrease_or_max_iter():
    function, c = quadratic(4)
    at_minimum = lbfgs(function, c)
    assert (at_minimum.converged, at_minimum.n_iter, at_minimum.n_evaluations) == (True, 0, 1)
    assert "at the start" in at_minimum.message
    steep = lbfgs(lambda p: (rosenbrock(1e3 * p)[0] + 100, 1e3 * rosenbrock(1e3 * p)[1]), normal(6), tol=1e-4)
    assert steep.converged
    assert steep.message == f"relative decrease below tol=0.0001 after {steep.n_iter} iterations"
    last = [entry.value for entry in steep.history][-4:]
    assert last[0] - last[1] > 1e-4 * last[0]
    assert max(last[1] - last[2], last[2] - last[3]) <= 1e-4 * last[1]
    short = lbfgs(rosenbrock, torch.zeros(6, dtype=torch.float64) - 1, max_iter=3)
    assert (short.converged, short.n_iter) == (False, 3)
    assert "increase max_iter" in short.message


def test_stopping_rule():
    rule = StoppingRule(tol=0.1, patience=2)
    before, after = np.array([1.0, 1.0, -1.0, 1.0, 0.0]), np.array([0.95, 0.8, -1.05, 2.0, 0.0])
    assert rule.calm(before, after).tolist() == [True, False, True, True, True]
    values, gradients = np.array([0.0, 0.0, -9.0]), np.array([[0.05, -0.1], [0.2, 0.0], [0.8, -0.9]])
    assert rule.stationary(values, gradients).tolist() == [True, False, True]


def test_callback_sees_history_and_stops():
    seen = []

    def callback(entry):
        seen.append(entry)
        return entry.iteration == 4

    result = lbfgs(rosenbrock, normal(5, 4), callback=callback)
    assert result.history == seen
    assert [entry.iteration for entry in seen] == [0, 1, 2, 3, 4]
    assert all(a.seconds <= b.seconds for a, b in pairwise(seen))
    assert (result.n_iter, result.converged, result.interrupted) == (4, False, False)
    assert result.stopped and result.message == "stopped by callback after 4 iterations"


@SHORT
@given(call=st.integers(1, 40), race=st.booleans())
def test_interruption_keeps_the_best_point_seen(call, race):
    values = []

    def function(points):
        if len(values) == call:
            raise KeyboardInterrupt
        output = rosenbrock(points)
        values.append(float(output[0].min()))
        return output

    result = lbfgs(function, 3 * normal(5, 6, seed=2), race=race)
    assert result.interrupted
    assert not result.converged
    assert "kept the best point so far" in result.message
    assert result.value == min(values)
    assert float(rosenbrock(result.point[None])[0]) == pytest.approx(min(values), rel=1e-12)


def test_interruption_in_the_callback_and_before_any_value():
    def interrupt(_):
        raise KeyboardInterrupt

    assert lbfgs(rosenbrock, normal(4), callback=interrupt).interrupted
    with pytest.raises(KeyboardInterrupt):
        lbfgs(interrupt, normal(4))


def test_between_points_that_are_evaluated_one_by_one_a_run_may_end(monkeypatch):
    starts, sizes = normal(5, 2, seed=2), []

    def function(points):
        sizes.append(len(points))
        if len(sizes) == stop:
            raise KeyboardInterrupt
        return rosenbrock(points)

    stop = None
    together, alone = lbfgs(rosenbrock, starts), lbfgs(function, starts, batched=False)
    assert set(sizes) == {1} and len(sizes) == together.n_evaluations
    torch.testing.assert_close(alone.values, together.values)
    stop = len(sizes) + 4
    result = lbfgs(function, starts, batched=False)
    assert result.interrupted and result.value == float(rosenbrock(starts)[0][:3].min())
    clock = iter(range(10**6))
    monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert lbfgs(rosenbrock, starts, batched=False, deadline=Deadline(1)).n_evaluations == 1


def test_an_interrupted_part_of_a_computation_interrupts_the_whole():
    def function(points):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lbfgs(rosenbrock, normal(4), callback=function).completed()
    assert lbfgs(rosenbrock, normal(4)).completed().converged


# -- several kernels --------------------------------------------------------------------------------------------------
def kernel_problem(value, calls, interrupted=False):
    """A problem with a kernel, whose choice is ready; None is an interrupt before there is one."""

    def choose(settings):
        calls.append(value)
        if value is None:
            raise KeyboardInterrupt
        return Choice(Gaussian(1.0), 1.0, value, interrupted=interrupted)

    samples = SimpleNamespace(positive_part=lambda pairwise: SimpleNamespace(n=10))
    return SimpleNamespace(choose=choose, free=[], samples=samples)


@pytest.mark.parametrize("value", [None, 5.0, 0.5])
def test_an_interrupt_ends_the_comparison_of_kernels(value):
    calls = []
    second = kernel_problem(value, calls, interrupted=True)
    problems = [kernel_problem(1.0, calls), second, kernel_problem(0.1, calls)]
    problem, choice = least_error(problems, SearchSettings())
    assert calls == [1.0, value] and problem is problems[value == 0.5]
    assert choice.interrupted and "kernels (2 of 3) was interrupted: the best so far" in choice.unconverged
    with pytest.raises(KeyboardInterrupt):
        least_error([kernel_problem(None, calls), *problems], SearchSettings())


def test_the_comparison_of_kernels_ends_with_its_time(monkeypatch):
    calls, looks = [], iter([False, True])

    def has_passed(self):
        self.was_missed = next(looks)
        return self.was_missed

    monkeypatch.setattr(Deadline, "has_passed", has_passed)
    problems = [kernel_problem(value, calls) for value in (3.0, 2.0, 1.0)]
    _, choice = least_error(problems, SearchSettings())
    assert calls == [3.0, 2.0] and choice.value == 2.0 and choice.unconverged is None  # the fit itself speaks of it


# Both: purity, reports, bad input


def least_squares(n=200, noise=0.1):
    A = normal(n, 3, seed=1)
    y = A @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + noise * normal(n, seed=2)

    @with_gradient
    def function(point, indices):
        return ((A[indices] @ point - y[indices]) ** 2).mean()

    return function, torch.linalg.lstsq(A, y[:, None]).solution[:, 0]


def test_runs_are_pure_and_reproducible():
    starts = normal(10, 4, seed=8)
    copy, state = starts.clone(), torch.get_rng_state()
    first, second = lbfgs(rosenbrock, starts), lbfgs(rosenbrock, starts)
    assert torch.equal(first.point, second.point)
    assert first.n_evaluations == second.n_evaluations
    function, _ = least_squares()
    runs = [adam(function, starts[0, :3], n_samples=200, batch_size=50, max_iter=3, random_state=r) for r in (0, 0, 1)]
    assert torch.equal(runs[0].point, runs[1].point)
    assert not torch.equal(runs[0].point, runs[2].point)
    assert torch.equal(starts, copy)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == torch.float32


@SHORT
@given(seed=SEEDS)
def test_with_gradient_agrees_with_finite_differences(seed):
    points, h = normal(3, 4, seed=seed), 1e-5

    def function(p):
        return torch.sin(p[:, 0] * p[:, 1]) + torch.exp(-(p**2).sum(-1)) + p[:, 2] ** 3 * p[:, 3]

    values, gradients = with_gradient(function)(points)
    torch.testing.assert_close(values, function(points), rtol=0, atol=0)
    for j in range(4):
        e = h * torch.eye(4, dtype=points.dtype)[j]
        torch.testing.assert_close(
            gradients[:, j], (function(points + e) - function(points - e)) / (2 * h), rtol=1e-6, atol=1e-7
        )
    with torch.no_grad():  # a caller may have switched autograd off
        assert torch.equal(with_gradient(function)(points)[1], gradients)


@pytest.mark.parametrize("run", ["lbfgs", "adam"])
def test_progress_bar_shows_only_if_asked_and_only_in_long_runs(run, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the captured stream for a terminal

    def output(verbose, seconds_a_look):
        clock = iter(seconds_a_look * i for i in range(10**6))
        monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
        if run == "lbfgs":
            lbfgs(rosenbrock, normal(4, 3), verbose=verbose, description="my run")
        else:
            function, _ = least_squares()
            adam(function, normal(3), n_samples=200, max_iter=20, verbose=verbose, description="my run")
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    assert output(0, seconds_a_look=0.3) == ""
    assert output(1, seconds_a_look=1e-6) == ""
    assert "my run" in (bar := output(1, seconds_a_look=0.3))
    assert "alive" in bar
    final = output(2, seconds_a_look=1e-6)
    assert final.startswith("my run: ")
    assert final.count("\n") == 1


def test_plain_lines_and_no_bar_in_log_files(monkeypatch, capsys):
    clock = iter(range(10**6))
    monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    result = lbfgs(rosenbrock, normal(4, 3), verbose=1)
    output = capsys.readouterr()
    lines = [
        re.fullmatch(r"minimising: (\d+) s, iteration (\d+) of 200, value \S+, \d alive", line)
        for line in output.err.splitlines()
    ]
    assert output.out == "" and 1 < len(lines) < result.n_iter and None not in lines
    assert all(int(b[1]) - int(a[1]) >= search.LINE_EVERY for a, b in pairwise(lines))
    lbfgs(rosenbrock, normal(4, 3))
    assert capsys.readouterr() == ("", "")


def test_a_run_ends_at_its_deadline_with_the_best_point(monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(search, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    free, limited = lbfgs(rosenbrock, normal(4, 3)), lbfgs(rosenbrock, normal(4, 3), deadline=Deadline(20))
    assert limited.interrupted and "max_time=20 reached" in limited.message and limited.n_iter < free.n_iter
    assert limited.value <= limited.history[-1].value
    torch.testing.assert_close(rosenbrock(limited.point[None])[0], torch.tensor([limited.value]).to(limited.point))
    at_once = lbfgs(rosenbrock, normal(4, 3), deadline=Deadline(1))
    assert at_once.n_evaluations == 4 and at_once.n_iter == 0  # the starts are evaluated in any case


@pytest.mark.parametrize(("max_time", "seconds"), [("90s", 90.0), ("5m", 300.0), (" 1.5 h ", 5400.0), (".5", 0.5)])
def test_times_are_seconds_or_texts(max_time, seconds):
    assert as_seconds(max_time) == seconds


@pytest.mark.parametrize(
    ("starts", "match"),
    [
        (torch.zeros(0), "non-empty"),
        (torch.zeros(2, 3, 4), r"got shape \(2, 3, 4\)"),
        (torch.tensor(1.0), "flatten"),
        (torch.zeros(3, dtype=torch.int64), "floating point, got torch.int64"),
        (torch.tensor([[0.0, math.nan], [math.inf, 1.0]]), "2 NaN or infinite of 4 entries"),
    ],
)
def test_bad_starts(starts, match):
    with pytest.raises(ValueError, match=match):
        lbfgs(rosenbrock, starts)
    with pytest.raises(ValueError, match=match):
        adam(lambda point, indices: (point.sum(), point), starts, n_samples=5)


@pytest.mark.parametrize(
    "function",
    [
        lambda p: (p**2).sum(-1),
        lambda p: ((p**2).sum(-1, keepdim=True), 2 * p),
        lambda p: ((p**2).sum(), 2 * p),
        lambda p: ((p**2).sum(-1), p[:, :2]),
        lambda p: None,
    ],
)
def test_bad_output(function):
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(2, 3\).*with_gradient"):
        lbfgs(function, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_iter", 0), ("tol", -1.0), ("patience", 0), ("learning_rate", 0.0),
        ("batch_size", 0), ("batch_size", 11),
    ],
)  # fmt: skip
def test_bad_options(name, value):
    with pytest.raises(ValueError, match=rf"{name} must .*got {value}"):
        adam(lambda point, indices: (point.sum(), point), torch.ones(3), n_samples=10, **{name: value})
    if name in ("max_iter", "tol"):
        with pytest.raises(ValueError, match=f"{name} must .*got {value}"):
            lbfgs(rosenbrock, torch.ones(3), **{name: value})


def test_other_bad_options():
    with pytest.raises(ValueError, match=r"longest_step must .*got 0"):
        lbfgs(rosenbrock, torch.ones(3), longest_step=0.0)
    with pytest.raises(ValueError, match="one start of shape"):
        adam(lambda point, indices: (point.sum(), point), torch.ones(2, 3), n_samples=10)


# Adam


def test_adam_on_batches_reaches_the_solution():
    function, solution = least_squares()
    result = adam(function, torch.zeros(3).double(), n_samples=200, batch_size=32, learning_rate=0.05, random_state=0)
    torch.testing.assert_close(result.point, solution, rtol=0, atol=0.02)
    assert result.converged
    assert result.n_evaluations == 6 * result.n_iter  # 200 = 5 * 32 + 40: the rest of 8 joins the last batch
    assert result.value == min(entry.value for entry in result.history)


def test_adam_on_all_samples_converges():
    function, solution = least_squares()
    result = adam(function, torch.zeros(3).double(), n_samples=200, learning_rate=0.05, max_iter=2000, tol=1e-9)
    torch.testing.assert_close(result.point, solution, rtol=0, atol=1e-3)
    assert result.converged
    assert result.value == pytest.approx(float(function(result.point, torch.arange(200))[0]), rel=1e-12)


def test_adam_step_agrees_with_torch():
    function, _ = least_squares()
    start, everything = normal(3, seed=6), torch.arange(200)
    theirs = start.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([theirs], lr=0.1)
    visited = []

    def spy(point, indices):
        visited.append(point)
        return function(point, indices)

    adam(spy, start, n_samples=200, learning_rate=0.1, max_iter=6)
    for point in visited:
        torch.testing.assert_close(point, theirs.detach())
        theirs.grad = function(theirs, everything)[1]
        optimiser.step()


@SHORT
@given(n=st.integers(1, 60), size=st.integers(1, 60), seed=SEEDS)
def test_every_epoch_is_a_permutation_in_batches_of_about_the_size(n, size, seed):
    size, seen = min(n, size), []

    def function(point, indices):
        seen.append(indices)
        return point.sum(), torch.ones_like(point)

    adam(function, torch.zeros(2), n_samples=n, batch_size=size, max_iter=2, random_state=seed)
    per_epoch = len(seen) // 2
    for epoch in (seen[:per_epoch], seen[per_epoch:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(n))
        assert all(size / 2 <= len(batch) < 1.5 * size + 1 for batch in epoch)


def test_epoch_mean_weighs_samples_equally():
    y = torch.arange(7.0)  # batches of 2, 2 and 3

    def function(point, indices):
        return y[indices].mean(), torch.ones_like(point)

    result = adam(function, torch.zeros(1), n_samples=7, batch_size=2 + 1, max_iter=1, random_state=0)
    assert result.value == pytest.approx(float(y.mean()))


def test_adam_backs_off_from_the_edge_of_the_domain():
    function = with_gradient(lambda point, indices: (point - point.log()).sum())  # minimum 1 at 1, NaN below 0
    start = torch.tensor([4.0], dtype=torch.float64)
    result = adam(function, start, n_samples=5, learning_rate=5.0, max_iter=500, patience=50)
    assert result.value == pytest.approx(1.0, abs=1e-2)
    assert "skipped: not finite" in result.message


def test_adam_that_diverges_says_so_and_keeps_the_best():
    values = iter([3.0, 1.0, 2.0] + 100 * [math.nan])
    visited = []

    def function(point, indices):
        visited.append(point)
        return torch.tensor(next(values)), torch.ones_like(point)

    with pytest.raises(DivergenceError, match=r"5 batches in a row.*lower learning_rate") as caught:
        adam(function, torch.zeros(2), n_samples=5)
    assert caught.value.result.value == 1.0
    assert torch.equal(caught.value.result.point, visited[1])
    with pytest.raises(RuntimeError, match="lower learning_rate") as caught:
        adam(lambda point, indices: (point.sum() * math.nan, point), torch.zeros(2), n_samples=5, max_iter=2)
    assert caught.value.result is None


@pytest.mark.parametrize("call", [1, 3, 4, 9])
def test_adam_interrupted_keeps_the_best(call):
    function, _ = least_squares()
    values = []

    def interrupted(point, indices):
        if len(values) == call:
            raise KeyboardInterrupt
        value, gradient = function(point, indices)
        values.append(float(value))
        return value, gradient

    result = adam(interrupted, torch.zeros(3).double(), n_samples=200, batch_size=50, random_state=0)
    assert result.interrupted
    complete = [np.mean(values[i : i + 4]) for i in range(0, call - 3, 4)]
    assert result.value == pytest.approx(min(complete, default=np.mean(values)))
    values.clear()
    call = 0
    with pytest.raises(KeyboardInterrupt):
        adam(interrupted, torch.zeros(3).double(), n_samples=200)


def test_adam_callback_and_max_iter():
    function, _ = least_squares()
    result = adam(function, torch.zeros(3).double(), n_samples=200, callback=lambda entry: entry.iteration == 5)
    assert result.stopped and (result.n_iter, result.message) == (5, "stopped by callback after 5 epochs")
    result = adam(function, torch.zeros(3).double(), n_samples=200, max_iter=7)
    assert (result.n_iter, result.converged) == (7, False)
    assert "increase max_iter" in result.message


# -- many small systems -----------------------------------------------------------------------------------------------


# Newton


@SHORT
@given(SEEDS)
def test_newton_finds_the_minimum_of_a_quadratic_between_bounds(seed):
    function, c = quadratic(3, seed, condition=1e6)
    bound = 0.5 * torch.ones(3, dtype=torch.float64)
    found = newton(lambda x: function(x[None])[0][0], normal(3, seed=seed + 2), -bound, bound)
    assert bool((found.abs() <= bound).all())
    slopes = function(found[None])[1][0]
    inside = found.abs() < bound
    assert slopes[inside].abs().amax() < 1e-9 if bool(inside.any()) else True
    assert bool((slopes * found.sign() <= 1e-9)[~inside].all())  # pushed against its bound
    free = newton(lambda x: function(x[None])[0][0], normal(3, seed=seed + 2), -1e3 * bound, 1e3 * bound)
    assert (free - c).abs().max() < 1e-9


def test_newton_goes_downwards_where_the_function_is_not_convex():
    far = torch.tensor([20.0, 20.0], dtype=torch.float64)
    start = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    found = newton(rosenbrock_of, start, -far, far, max_iter=50)
    assert (found - 1).abs().max() < 1e-12
    from_top = newton(lambda x: x[0].cos(), torch.tensor([0.1], dtype=torch.float64), -far[:1], far[:1])
    assert from_top.cos().item() == pytest.approx(-1.0, abs=1e-14)
    flat = newton(lambda x: 0.0 * x.sum(), start, -far, far)
    assert torch.equal(flat, start)
    undefined = newton(lambda x: x[0].log() * torch.nan, start, -far, far)
    assert torch.equal(undefined, start)


def test_newton_leaves_a_bound_that_it_began_at():
    low, high = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    centre = torch.tensor([0.5, 0.25], dtype=torch.float64)
    H = torch.tensor([[1.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
    for start in (low, high, torch.tensor([0.0, 1.0]).double(), torch.tensor([-3.0, 5.0]).double()):
        with torch.no_grad():  # as within a fit
            found = newton(lambda x: (x - centre) @ H @ (x - centre), start, low, high)
        assert (found - centre).abs().max() < 1e-12
