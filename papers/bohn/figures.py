"""Bohn, Griebel, Rieger: A representer theorem for deep kernel learning (JMLR 20, 2019), figures 1 and 3 to 6.

λ and μ of the paper stand beside a sum of losses: they are n·alpha here. ‖f‖² + ‖g‖² of an interpolation is what
alpha = 1 for both layers means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold

from papers.bohn.penalty_grid import LinearOuter, Problem, TwoLayers
from papers.bohn.penalty_grid import cross_validated as best_pair
from papers.claims import lower
from papers.runner import Experiment, Result, Run
from representer import DeepKernelRegressor, Layer, plotting
from representer.datasets import jump, kink, make_jump, make_kink, square_grid, straight_kink
from representer.kernels import Gaussian, Kernel, Polynomial, TensorMatern
from representer.operators import Separate

PAPER = "Bohn, Griebel, Rieger: A representer theorem for deep kernel learning"
GRID = square_grid()
TARGETS = {"h₁": (make_kink, kink), "h₂": (make_jump, jump)}
RMSE, SHARE = "RMSE / ‖h‖∞", "share of the square above 10 %"
SINGLE = "single layer"
DRAWS = 5  # of the data, for figures 4 and 5

Function = Callable[[np.ndarray], np.ndarray]
Method = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # predicts on GRID from X, y and the truth there


def two_layers(p: int) -> str:
    """The name of the method with an inner polynomial kernel of degree p."""
    return f"two layers, p = {p}"


def matern(dimension: int) -> Kernel:
    """K_TensorMatérn,1 as printed: √(π/2) exp(−|t|) in each coordinate, so that the weight of ‖f‖² is the paper's."""
    return (math.pi / 2) ** (dimension / 2) * TensorMatern(order=1, lengthscale=1.0)


def relative_error(prediction: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """|f − h| / ‖h‖∞ at each point."""
    return np.abs(prediction - truth) / np.abs(truth).max()


def judged(prediction: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """The relative error on the grid as two numbers."""
    error = relative_error(prediction, truth)
    return {RMSE: float(np.sqrt(np.mean(error**2))), SHARE: float(np.mean(error > 0.1))}


# -- figure 1 ---------------------------------------------------------------------------------------------------------
ROTATION = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2.0)  # by 45°


def figure1(run: Run) -> None:
    """Interpolation of a kink along an axis, along the diagonal, and along the diagonal after a rotation."""
    cases = {
        "(a) g₁, f ∈ H": (straight_kink, np.eye(2)),
        "(b) g₂, f ∈ H": (kink, np.eye(2)),
        "(c) g₂, f ∘ R": (kink, ROTATION),
    }

    def measure(function: Function, R: np.ndarray, X: np.ndarray) -> Result:
        surface = interpolant([]).fit(X @ R.T, function(X)).predict(GRID @ R.T)
        return {**judged(surface, function(GRID)), "surface": surface.astype(np.float32)}

    figure, axes = plotting.panels(1, 3, column_labels=list(cases))
    for seed in range(2 if run.quick else 10):
        X = np.random.default_rng(seed).uniform(-1.0, 1.0, (200, 2))
        for ax, (method, (function, R)) in zip(axes[0], cases.items(), strict=True):
            result = run.part("200 points", method, seed, measure, function, R, X)
            if seed == 0:
                last = ax is axes[0, -1]
                plotting.surface_map(result["surface"], limits=(0.0, 10.0), points=X, colorbar=last, ax=ax)
    run.figure(
        "interpolants",
        figure,
        "Interpolants of a kink through 200 points: along an axis, along the diagonal, and along it after a rotation.",
    )


# -- figures 3 and 6 --------------------------------------------------------------------------------------------------
def interpolant(layers: list[Layer]) -> DeepKernelRegressor:
    """(P) with the tensor Matérn kernel outside."""
    return DeepKernelRegressor(layers, kernel=matern(2), loss="interpolate", alpha=1.0, fit_intercept=False)


def interpolants() -> dict[str, DeepKernelRegressor]:
    """One layer, and two with the inner kernels of degree 1 and 2."""
    inner = {two_layers(p): interpolant([Layer(Polynomial(p), 2, alpha=1.0)]) for p in (1, 2)}
    return {SINGLE: interpolant([]), **inner}


def best_fit(model: DeepKernelRegressor, X: np.ndarray, y: np.ndarray, starts: int) -> DeepKernelRegressor:
    """The fit of least objective among so many starts, which race."""
    return clone(model).set_params(n_restarts=starts, random_state=0).fit(X, y)


def starts(run: Run) -> int:
    """How many starts: as many as in the paper in a full run."""
    return 16 if run.quick else 64


def compare(run: Run, methods: dict[str, Method], seeds: int, title: str) -> None:
    """Every method on both functions and all seeds of the data; the error maps of the first seed as a figure."""

    def measure(method: Method, X: np.ndarray, y: np.ndarray, truth: np.ndarray) -> Result:
        prediction = method(X, y, truth)
        return {**judged(prediction, truth), "error": relative_error(prediction, truth).astype(np.float32)}

    figure, axes = plotting.panels(2, len(methods), row_labels=list(TARGETS), column_labels=list(methods), title=title)
    for seed in range(seeds):
        for row, (case, (make, function)) in zip(axes, TARGETS.items(), strict=True):
            X, y = make(random_state=seed)
            for ax, (name, method) in zip(row, methods.items(), strict=True):
                result = run.part(case, name, seed, measure, method, X, y, function(GRID))
                if seed == 0:
                    plotting.error_map(result["error"], points=X, colorbar=ax is row[-1], ax=ax)
    run.figure(
        "errors",
        figure,
        f"Maps of the relative error on the square, of each method on both functions. {title}",
    )


def fitted(model: DeepKernelRegressor, starts: int) -> Method:
    """The method of ``compare`` that only fits a model."""
    return lambda X, y, truth: best_fit(model, X, y, starts).predict(GRID)


def figure3(run: Run) -> None:
    """Interpolation with one layer and with two."""
    methods = {name: fitted(model, starts(run)) for name, model in interpolants().items()}
    compare(run, methods, 2 if run.quick else 10, "Pointwise error of interpolation, outer tensor Matérn kernel")


UNEXPLAINED = "variance of h that no single coordinate explains"
ORIGINAL = "original grid"


def unexplained(images: np.ndarray, values: np.ndarray, bins: int = 100) -> float:
    """1 − max_j Var(E[h | g_j]) / Var(h), with the conditional mean taken in bins of equally many points.

    Zero if h is a function of one coordinate of g: its kink or jump is then parallel to an axis.
    """
    left = []
    for coordinate in images.T:
        parts = np.array_split(values[np.argsort(coordinate, kind="stable")], bins)
        within = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
        left.append(within / float(((values - values.mean()) ** 2).sum()))
    return min(left)


def figure6(run: Run) -> None:
    """Where the inner functions of figure 3 put the points of the domain."""
    points = square_grid(41)

    def measure(model: DeepKernelRegressor, X: np.ndarray, y: np.ndarray, function: Function) -> Result:
        inner = best_fit(model, X, y, starts(run)).transform_layers if model.layers else lambda T: [T]
        return {UNEXPLAINED: unexplained(inner(GRID)[-1], function(GRID)), "images": inner(points)[-1]}

    models = {name.replace(SINGLE, ORIGINAL): model for name, model in interpolants().items()}
    figure, axes = plotting.panels(
        2,
        3,
        row_labels=list(TARGETS),
        column_labels=list(models),
        title="The points of the domain after the inner function",
    )
    for row, (case, (make, function)) in zip(axes, TARGETS.items(), strict=True):
        for seed in range(2 if run.quick else 10):
            X, y = make(random_state=seed)
            for ax, (name, model) in zip(row, models.items(), strict=True):
                result = run.part(case, name, seed, measure, model, X, y, function)
                if seed == 0:
                    last = ax is row[-1]
                    plotting.grid_transformation(result["images"], function(points), label=case, colorbar=last, ax=ax)
    run.figure(
        "transformation",
        figure,
        "Where the inner function moves the points of the square, coloured by the kink or the jump.",
    )


# -- figures 4 and 5 --------------------------------------------------------------------------------------------------
def cross_validated(
    run: Run,
    make: Callable[[np.ndarray, np.ndarray], Problem],
    penalties: Sequence[float],
    first: int,
    stop: int | None = None,
) -> Method:
    """λ and μ of least 5-fold squared error over all pairs, then a fit on all data: section 4.2.2."""
    count, final = (2, 4) if run.quick else (5, starts(run))

    def method(X: np.ndarray, y: np.ndarray, truth: np.ndarray) -> np.ndarray:
        folds = list(KFold(count, shuffle=True, random_state=0).split(X))
        problem, point, pair = best_pair(make, penalties, folds, X, y, starts=first, final_starts=final, stop=stop)
        return problem.predict(point, pair, GRID)

    return method


def best_possible(kernel: Kernel, penalties: Sequence[float]) -> Method:
    """One layer with the λ of least error on the grid itself: "the best possible single-layer solution"."""

    def method(X: np.ndarray, y: np.ndarray, truth: np.ndarray) -> np.ndarray:
        predictions = [regressor([], kernel, penalty / len(X)).fit(X, y).predict(GRID) for penalty in penalties]
        return min(predictions, key=lambda prediction: judged(prediction, truth)[RMSE])

    return method


def regressor(layers: list[Layer], kernel: Kernel, alpha: Any) -> DeepKernelRegressor:
    """(Reg), without an intercept, from two starts."""
    return DeepKernelRegressor(layers, kernel=kernel, alpha=alpha, fit_intercept=False, n_restarts=2, random_state=0)


def figure4(run: Run) -> None:
    """Least squares with a Gaussian kernel that is too narrow for one layer."""
    penalties = [2.0 ** (1 - 2 * t) for t in ((2, 5, 8) if run.quick else range(1, 11))]
    kernel = Gaussian(0.1)

    def make(p: int) -> Callable[[np.ndarray, np.ndarray], Problem]:
        return lambda X, y: TwoLayers(Layer(Polynomial(p), 2, alpha=1.0), kernel, X, y)

    methods = {SINGLE: best_possible(kernel, penalties)}
    for p in (1, 2):
        methods[two_layers(p)] = cross_validated(run, make(p), penalties, 2)
    for p in (1, 2):
        learned = regressor([Layer(Polynomial(p), 2, alpha="auto")], kernel, "auto")
        methods[f"{two_layers(p)}, learned"] = fitted(learned, 16)
    title = "Pointwise error of least squares, outer Gaussian kernel, σ = 0.1"
    compare(run, methods, 1 if run.quick else DRAWS, title)


LINEAR, NONLINEAR = "setting (1): linear outer kernel", "setting (2): outer tensor Matérn"
SHORT = f"{NONLINEAR}, 10 iterations"


def figure5(run: Run) -> None:
    """Least squares with a mixture of five inner kernels, the outer kernel linear or not."""
    penalties = [10.0 ** (1 - 2 * t) for t in ((2, 4) if run.quick else range(1, 7))]
    mixture = [Gaussian(0.1), Gaussian(1.0), Gaussian(10.0), Polynomial(1), Polynomial(2)]
    layer = Layer(Separate(mixture), 5, alpha=1.0)

    def linear(X: np.ndarray, y: np.ndarray) -> Problem:
        return LinearOuter(mixture, X, y)

    def nonlinear(X: np.ndarray, y: np.ndarray) -> Problem:
        return TwoLayers(layer, matern(5), X, y)

    methods = {
        f"{SINGLE}, tensor Matérn": best_possible(matern(2), penalties),
        LINEAR: cross_validated(run, linear, penalties, 1),
        NONLINEAR: cross_validated(run, nonlinear, penalties, 1),
        SHORT: cross_validated(run, nonlinear, penalties, 1, stop=10),
    }
    title = "Pointwise error of least squares with five inner kernels, D = 5"
    compare(run, methods, 1 if run.quick else DRAWS, title)


DATA = (
    "Uniform points of [−1, 1]², Gaussian noise of standard deviation 0.01 on the values; errors on a grid of 101² "
    "points, relative to ‖h‖∞; every repeat draws new data."
)
ONE, TWO = two_layers(1), two_layers(2)

EXPERIMENTS = (
    Experiment(
        "bohn-figure1",
        PAPER,
        "Figure 1",
        "Interpolation in the tensor-product Matérn space H of order 1 from 200 uniform points without noise: g₁ has a "
        "kink along an axis and lies in H; g₂ has it along the diagonal and does not; g₂ ∘ R⁻¹ does, for the rotation "
        "R by 45°.",
        (
            lower("g₁ is interpolated better than g₂", RMSE, "200 points", "(a) g₁, f ∈ H", "(b) g₂, f ∈ H"),
            lower("a rotation repairs g₂", RMSE, "200 points", "(c) g₂, f ∘ R", "(b) g₂, f ∈ H"),
        ),
        figure1,
    ),
    Experiment(
        "bohn-figure3",
        PAPER,
        "Figure 3",
        f"Interpolation (uP-X) of N = 100 values, outer tensor Matérn kernel of order 1, inner polynomial kernel of "
        f"degree p, D = 2, best of 64 raced starts (quick: 16). {DATA}",
        (
            lower("h₁: p = 1 has at most 0.35 × the error of one layer", RMSE, "h₁", ONE, SINGLE, 0.35),
            lower("h₁: so has the share of points above 10 %", SHARE, "h₁", ONE, SINGLE, 0.35),
            lower("h₁: p = 2 is better than one layer", RMSE, "h₁", TWO, SINGLE),
            lower("h₂: p = 2 is better than one layer", RMSE, "h₂", TWO, SINGLE),
            lower("h₂: so is the share of points above 10 %", SHARE, "h₂", TWO, SINGLE),
            lower("h₂: p = 2 is more appropriate than p = 1", RMSE, "h₂", TWO, ONE),
        ),
        figure3,
    ),
    Experiment(
        "bohn-figure4",
        PAPER,
        "Figure 4",
        f"Least squares (Reg) of N = 100 values, outer Gaussian kernel of width 0.1, inner polynomial kernel of degree "
        f"p, D = 2; λ and μ by 5-fold cross-validation over 2^(1−2t), t = 1 … 10 (quick: 2 folds, t = 2, 5, 8), each "
        f"pair from 2 starts and from what its neighbours have found; the final fit is the best of these and of 64 "
        f'raced starts (quick: 4). Beside it, both are learned by alpha="auto" from 16 starts. The single layer has '
        f"the λ of least error on the test grid. {DATA}",
        tuple(
            lower(f"{case}: {name} is better than the best single layer", RMSE, case, name, SINGLE)
            for case in TARGETS
            for name in (ONE, TWO, f"{ONE}, learned", f"{TWO}, learned")
        ),
        figure4,
    ),
    Experiment(
        "bohn-figure5",
        PAPER,
        "Figure 5",
        f"Least squares (Reg) of N = 100 values, inner kernel diag(Gaussian 0.1, 1, 10, polynomial 1, 2), D = 5, with "
        f"a linear outer kernel (1), as in RLS2, or the tensor Matérn kernel (2); λ and μ by 5-fold cross-validation "
        f"over 10^(1−2t), t = 1 … 6 (quick: 2 folds, t = 2, 4), each pair from one start and from what its neighbours "
        f"have found; the final fit is the best of these and of 64 raced starts (quick: 4). (1) is solved as the "
        f"convex problem that it is; (2) also with searches that end after 10 iterations. {DATA}",
        (
            lower("h₁: a nonlinear outer kernel is better than a linear one", RMSE, "h₁", NONLINEAR, LINEAR),
            lower("h₁: and than one layer", RMSE, "h₁", NONLINEAR, f"{SINGLE}, tensor Matérn"),
            lower("h₂: a slight advantage of the nonlinear outer kernel", RMSE, "h₂", NONLINEAR, LINEAR),
            lower("h₂: the same, if searches end after 10 iterations", RMSE, "h₂", SHORT, LINEAR),
            lower("h₂: so has the share of points above 10 %", SHARE, "h₂", SHORT, LINEAR),
        ),
        figure5,
    ),
    Experiment(
        "bohn-figure6",
        PAPER,
        "Figure 6",
        f"The inner functions of Figure 3: where they put the points of the domain. Measured is the part of the "
        f"variance of h that no single coordinate explains, near 0 where the kink or jump is parallel to an "
        f"axis. {DATA}",
        (
            lower("h₁: p = 1 puts the kink parallel to an axis", UNEXPLAINED, "h₁", ONE, ORIGINAL, 0.35),
            lower("h₁: so does p = 2", UNEXPLAINED, "h₁", TWO, ORIGINAL, 0.35),
            lower("h₂: p = 2 puts the jump parallel to an axis", UNEXPLAINED, "h₂", TWO, ORIGINAL, 0.35),
            lower("h₂: p = 2 aligns more than p = 1", UNEXPLAINED, "h₂", TWO, ONE),
        ),
        figure6,
    ),
)
