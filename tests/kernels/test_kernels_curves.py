"""Kernels of curves against quadrature, refinement, and the contract."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.interpolate import PPoly
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from representer import OperatorRidge
from representer.kernels import Gaussian, Kernel, Linear, Matern, Polynomial
from representer.kernels.curves import Functional
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
GRID = np.sort(np.concatenate([[0.0, 2.0], RNG.uniform(0.0, 2.0, 9)]))
ROWS = RNG.standard_normal((6, len(GRID)))
Pair = tuple[np.ndarray, np.ndarray]


def random_curve(rng: np.random.Generator, m: int) -> Pair:
    return np.sort(rng.uniform(-0.1, 2.1, m)), rng.standard_normal(m)


CURVES = [
    (np.concatenate([[-0.2], t, [2.2]]), np.concatenate([[0.5], x, [-0.5]]))
    for t, x in (random_curve(RNG, m) for m in (3, 7, 5, 6, 4))
]


def interpolant(curve: Pair) -> PPoly:
    """The piecewise linear function through the points of a curve."""
    t, x = curve
    return PPoly(np.stack([np.diff(x) / np.diff(t), x[:-1]]), t)


def integral(f: PPoly, g: PPoly, start: float, end: float) -> float:
    """∫ f g, by adaptive quadrature between all breaks."""
    breaks = np.unique(np.concatenate([f.x, g.x]))
    cuts = [start, *breaks[(breaks > start) & (breaks < end)], end]
    return sum(quad(lambda t: float(f(t)) * float(g(t)), a, b)[0] for a, b in itertools.pairwise(cuts))


# -- common grids -----------------------------------------------------------------------------------------------------
def trapezoid(x: np.ndarray, y: np.ndarray, t: np.ndarray) -> float:
    """The trapezoid rule for ∫ xy, as a loop."""
    return sum((t[i + 1] - t[i]) * (x[i] * y[i] + x[i + 1] * y[i + 1]) / 2.0 for i in range(len(t) - 1))


def test_rows_are_integrated_by_the_trapezoid_rule() -> None:
    expected = np.array([[trapezoid(x, y, GRID) for y in ROWS] for x in ROWS])
    np.testing.assert_allclose(Functional(Linear(), GRID)(ROWS), expected, rtol=1e-12)
    distances = np.array([[trapezoid(x - y, x - y, GRID) for y in ROWS] for x in ROWS])
    np.testing.assert_allclose(Functional(Gaussian(0.7), GRID)(ROWS), np.exp(-distances / (2 * 0.7**2)), rtol=1e-10)
    np.testing.assert_allclose(
        Functional(Polynomial(3), GRID)(ROWS, ROWS[:2]), (expected[:, :2] + 1.0) ** 3, rtol=1e-10
    )


def test_without_a_grid_times_are_equidistant() -> None:
    uniform = np.linspace(0.0, 1.0, ROWS.shape[1])
    torch.testing.assert_close(Functional(Linear())(ROWS), Functional(Linear(), uniform)(ROWS))
    torch.testing.assert_close(Functional(Linear(), interval=(1.0, 4.0))(ROWS), 3.0 * Functional(Linear())(ROWS))


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_smooth_curves_converge_to_their_integrals(order: int) -> None:
    """d^k/dt^k of sin(at) and cos(bt), on finer and finer irregular grids: an error of second order."""

    def derivative(a: float, shift: float, t: float) -> float:
        return float(a**order * np.sin(a * t + shift + order * np.pi / 2))

    waves = [(1.0, 0.0), (2.0, np.pi / 2), (3.0, 0.4)]
    expected = np.array(
        [[quad(lambda t, v=v, w=w: derivative(*v, t) * derivative(*w, t), 0.0, 2.0)[0] for w in waves] for v in waves]
    )
    errors = []
    for m in (200, 400):
        t = np.linspace(0.0, 1.0, m)
        t = 2.0 * (t + 0.1 * np.sin(2 * np.pi * t) / (2 * np.pi))
        rows = np.stack([np.sin(a * t + shift) for a, shift in waves])
        gram = Functional(Linear(), t, derivative=order)(rows).numpy()
        errors.append(np.abs(gram - expected).max() / np.abs(expected).max())
    assert errors[1] < 2e-3
    assert errors[0] / errors[1] > 3.0


def test_sobolev_is_the_sum_of_its_orders() -> None:
    both = Functional(Linear(), GRID, derivative=(0, 2))(ROWS)
    each = [Functional(Linear(), GRID, derivative=order)(ROWS) for order in (0, 2)]
    torch.testing.assert_close(both, each[0] + each[1])


@pytest.mark.parametrize(
    "kernel",
    [
        Functional(Linear(), GRID),
        Functional(Gaussian(1.3), GRID, derivative=1),
        Functional("auto" * Gaussian("auto") + Matern(2.5), derivative=(0, 1)),
        Functional(Gaussian("ard"), interval=(0.0, 3.0)) + 1.0,
        Functional(Gaussian()) * Gaussian(),
    ],
    ids=repr,
)
def test_contract_of_rows(kernel: Kernel) -> None:
    check_kernel(kernel, ROWS, ROWS[:3] + 0.3)


# -- irregular grids --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [0, 1])
def test_pairs_have_the_integrals_of_their_interpolants(order: int) -> None:
    start, end = 0.1, 1.9
    pieces = [interpolant(curve).derivative(order) if order else interpolant(curve) for curve in CURVES]
    expected = np.array([[integral(f, g, start, end) for g in pieces] for f in pieces])
    kernel = Functional(Linear(), derivative=order, interval=(start, end), domain="objects")
    np.testing.assert_allclose(kernel(CURVES), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(kernel(CURVES[:2], CURVES[2:]), expected[:2, 2:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(CURVES), expected.diagonal(), rtol=1e-9)


def refined(curve: Pair, rng: np.random.Generator) -> Pair:
    """The same function with more points on it."""
    t, x = curve
    more = np.unique(np.concatenate([t, rng.uniform(t[0], t[-1], 10)]))
    return more, np.interp(more, t, x)


@pytest.mark.parametrize("order", [0, 1, (0, 1)])
def test_refining_a_curve_changes_nothing(order: Any) -> None:
    kernel = Functional(Gaussian(0.8), derivative=order, interval=(0.0, 2.0), domain="objects")
    finer = [refined(curve, RNG) for curve in CURVES]
    torch.testing.assert_close(kernel(finer), kernel(CURVES), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(kernel(finer, CURVES), kernel(CURVES, CURVES), rtol=1e-9, atol=1e-9)


def test_derivatives_of_pairs_on_one_grid_are_those_of_rows() -> None:
    pairs = [(GRID, row) for row in ROWS]
    for order in (1, 2, 3, (1, 2)):
        rows = Functional(Gaussian(2.0), GRID, derivative=order)(ROWS)
        torch.testing.assert_close(Functional(Gaussian(2.0), derivative=order, domain="objects")(pairs), rows)


def test_pairs_on_a_given_grid_are_interpolated() -> None:
    grid = np.linspace(0.0, 2.0, 40)
    rows = np.stack([np.interp(grid, t, x) for t, x in CURVES])
    torch.testing.assert_close(
        Functional(Gaussian(1.0), grid, domain="objects")(CURVES, CURVES[:2]),
        Functional(Gaussian(1.0), grid)(rows, rows[:2]),
    )


def test_the_interval_is_decided_by_the_data() -> None:
    curves = [([0.0, 1.0, 3.0], [1.0, 2.0, 1.0]), ([0.5, 4.0], [1.0, 1.0])]
    assert Functional(Linear(), domain="objects").resolve(curves).interval == (0.5, 3.0)
    hull = Functional(Linear(), interval="hull", domain="objects").resolve(curves)
    assert hull.interval == (0.0, 4.0)
    assert float(hull(curves)[1, 1]) == pytest.approx(4.0)  # its first value is held from 0 to 0.5
    with pytest.raises(ValueError, match=r"no interval yet.*resolve\(X\)"):
        Functional(Linear(), domain="objects")(curves, curves)
    with pytest.raises(ValueError, match=r"curve 1 starts at 5, and curve 0 ends at 3.*'hull'"):
        Functional(Linear(), domain="objects")([curves[0], ([5.0, 6.0], [0.0, 0.0])])
    with pytest.raises(ValueError, match=r"Curves \[1\] have no times within"):
        Functional(Linear(), interval=(0, 2), domain="objects")([curves[0], ([5.0, 6.0], [0.0, 0.0])])


@pytest.mark.parametrize(
    "kernel",
    [
        Functional(Linear(), domain="objects"),
        Functional("auto" * Gaussian("auto"), domain="objects", interval="hull"),
        Functional(Gaussian(), GRID, domain="objects"),
        Functional(Matern(), derivative=(0, 1), domain="objects") + Functional(Linear(), domain="objects"),
    ],
    ids=repr,
)
def test_contract_of_pairs(kernel: Kernel) -> None:
    check_kernel(kernel, CURVES, CURVES[::-1][:3])


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([], "Found 0 curves"),
        ("abc", r"sequence of curves \(times, values\)"),
        ([CURVES[0], ([0.0, 1.0], [np.nan, 0.0])], "Curve 1 contains NaN.*position 0"),
        ([([0.0, 0.0], [1.0, 2.0])], "times of curve 0 must be finite and increase strictly"),
        ([([0.0, np.nan], [1.0, 2.0])], "times of curve 0 must be finite"),
        ([([0.0], [1.0])], "times of curve 0 must be at least 2"),
        ([([0.0, 1.0], [1.0, 2.0, 3.0])], r"Curve 0 has \(2,\) times, but \(3,\) values"),
        ([CURVES[0], "ab"], "Curve 1 is not a pair"),
        (ROWS, "Curve 0 is not a pair.*domain='vectors'"),
    ],
)
def test_bad_pairs(curves: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Functional(Linear(), domain="objects")(curves)


def test_bad_rows() -> None:
    with pytest.raises(ValueError, match="row 1, column 2"):
        Functional(Linear())([[1.0, 2.0, 3.0], [1.0, 2.0, np.nan]])
    with pytest.raises(ValueError, match="domain='objects'"):
        Functional(Linear())(CURVES)
    with pytest.raises(ValueError, match=r"curves have 5 values.*grid of Functional has 11"):
        Functional(Linear(), GRID)(ROWS[:, :5])
    with pytest.raises(ValueError, match="order 2"):
        Functional(Linear(), derivative=2)(ROWS[:, :2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grid": [0.0, 2.0, 1.0]}, "grid of Functional must be finite and increase"),
        ({"grid": [[0.0, 1.0]]}, "grid of Functional must be at least 2"),
        ({"derivative": -1}, "derivative of Functional"),
        ({"derivative": 0.5}, "derivative of Functional"),
        ({"derivative": ()}, "derivative of Functional"),
        ({"interval": (1.0, 0.0)}, "interval of Functional"),
        ({"interval": "hull"}, "interval of Functional"),
        ({"interval": (0.0, 1.0), "grid": GRID}, "not both"),
        ({"domain": "labels"}, "domain='labels'"),
        ({"kernel": Functional(Linear(), domain="objects")}, "takes a kernel on vectors"),
        ({"kernel": "rbf"}, "must be a kernel object"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Functional(**{"kernel": Linear(), **arguments})(ROWS)


# -- learners ---------------------------------------------------------------------------------------------------------
def noisy_waves(n: int) -> tuple[list[Pair], np.ndarray]:
    rng = np.random.default_rng(1)
    frequency = rng.uniform(1.0, 3.0, n)
    times = [np.sort(np.concatenate([[0.0, 1.0], rng.uniform(0.0, 1.0, 12)])) for _ in range(n)]
    return [(t, np.sin(np.pi * f * t)) for t, f in zip(times, frequency, strict=True)], frequency


def test_learners_take_pairs() -> None:
    curves, y = noisy_waves(40)
    model = OperatorRidge(Functional(Gaussian("auto"), domain="objects"), alpha=1e-6)
    fitted = clone(model).fit(curves[:30], y[:30])
    assert np.abs(fitted.predict(curves[30:]) - y[30:]).mean() < 0.1
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(again.predict(curves[30:]), fitted.predict(curves[30:]))
    grid = GridSearchCV(
        OperatorRidge(Functional(Gaussian(), domain="objects"), alpha=1e-6),
        {"kernel__kernel__lengthscale": [0.001, 0.3], "kernel__derivative": [0, 1]},
        cv=3,
    ).fit(curves, y)
    assert grid.best_params_["kernel__kernel__lengthscale"] == 0.3


def test_learners_take_rows_in_pipelines() -> None:
    curves, y = noisy_waves(40)
    t = np.linspace(0.0, 1.0, 30)
    rows = np.stack([np.interp(t, *curve) for curve in curves])
    model = make_pipeline(StandardScaler(with_std=False), OperatorRidge(Functional(Gaussian("auto"))))
    assert np.corrcoef(cross_val_predict(model, rows, y, cv=4), y)[0, 1] > 0.95


def test_pairs_are_not_read_as_rows() -> None:
    pairs = [([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])] * 4
    with pytest.raises(ValueError, match="domain='objects'"):
        Functional(Linear())(pairs)
    assert Functional(Linear())(np.ones((4, 2, 3))).shape == (4, 2, 2)  # a batch, said by an array


def test_dates_are_no_times() -> None:
    days = np.array(["2024-01-01", "2024-01-03"], dtype="datetime64[D]")
    kernel = Functional(Linear(), domain="objects")
    for times in (days, days.astype(object)):
        with pytest.raises(ValueError, match="Curve 0 is not a pair"):
            kernel([(times, [0.0, 1.0])])
    with pytest.raises(ValueError, match="timedelta64"):
        kernel([(days, [0.0, 1.0])])


def test_beyond_its_times_a_curve_keeps_its_values_on_a_grid() -> None:
    kernel = Functional(Linear(), [0.0, 1.0, 2.0], domain="objects")
    assert kernel([([0.5, 1.0], [3.0, 3.0])]).item() == pytest.approx(9.0 * 2.0)
