"""Hsu, Nock, Ramos (2018): figure 1, and the rate of Theorem 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

from papers.hsu.table1 import PAPER, embedding
from papers.results import Measurements, Verdict
from papers.runner import Claim, Experiment, Result, Run
from representer import EmbeddingClassifier, plotting
from representer.kernels import Gaussian

# -- figure 1 ---------------------------------------------------------------------------------------------------------
STARTS = {
    "overfitted start": {"alpha": 1e-6, "lengthscale": 0.03},
    "underfitted start": {"alpha": 10.0, "lengthscale": 3.0},
}


def figure1(run: Run) -> None:
    """Two attributes of iris, from both ends of the range of complexity."""
    X, y = load_iris(return_X_y=True)
    X = MinMaxScaler().fit_transform(X[:, :2])

    def measure(start: dict[str, float], solver: str, A: Any, B: Any, a: Any, b: Any) -> Result:
        steps = {
            "solver": solver,
            "learning_rate": 0.05,
            "max_iter": 500,
            "tol": 0.0,
        }
        first = embedding(kernel=Gaussian(start["lengthscale"]), criterion=None, alpha=start["alpha"], start=None)
        last = embedding(kernel=Gaussian("auto"), start=start, **steps).fit(A, a)
        history = np.array([(e.value, e.complexity, e.accuracy, e.loss) for e in last.history_])
        before = first.fit(A, a)
        return {
            "objective": last.criterion_value_,
            "complexity": last.complexity_,
            "complexity at the start": before.complexity_,
            "test accuracy": 100.0 * last.score(B, b),
            "test accuracy at the start": 100.0 * before.score(B, b),
            "history": history,
        }

    figure, axes = plotting.panels(1, 3, column_labels=["objective", "complexity r", "training accuracy"])
    for seed in range(2 if run.quick else 10):
        parts = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
        for solver in ("adam", "lbfgs"):
            for case, start in STARTS.items():
                result = run.part(case, solver, seed, measure, start, solver, *parts)
                if seed == 0 and solver == "adam":
                    for ax, column in zip(axes[0], (0, 1, 2), strict=True):
                        ax.plot(result["history"][:, column], label=case)
    axes[0, 0].legend()
    run.figure("iris", figure, "Objective, complexity and training accuracy along the iterations, from each start.")


def same_end(measurements: Measurements) -> tuple[Verdict, str]:
    """From both starts the search ends at the same objective."""
    over, under = (measurements.values_of(case, "lbfgs", "objective") for case in STARTS)
    gap = float(np.abs(over - under).max())
    return ("reached" if gap < 1e-3 else "not reached"), f"largest difference {gap:.1g} of {over.mean():.4g}"


def iris_accuracy(measurements: Measurements) -> tuple[Verdict, str]:
    """The published test accuracy, 73.33 % on 30 samples."""
    value = measurements.mean("overfitted start", "lbfgs", "test accuracy")
    return ("reached" if value > 70.0 else "not reached"), f"{value:.1f} % (published: 73.3 % on one split of 30)"


# -- Theorem 1 --------------------------------------------------------------------------------------------------------
SIZES = (50, 100, 200, 400, 800, 1600, 3200)


MIXTURE = np.array([[0.4, -0.2, -0.1], [-0.2, 0.4, -0.2], [-0.2, -0.2, 0.3]])  # columns sum to zero


def true_probabilities(X: np.ndarray) -> np.ndarray:
    """Three classes on the line: a constant and a function in the space of the Gaussian kernel of lengthscale 0.7."""
    return 1.0 / 3.0 + Gaussian(0.7)(X, [[-1.0], [0.0], [1.0]]).numpy() @ MIXTURE.T


def convergence(n: int, seed: int) -> Result:
    """The error of the raw estimates with λ = 0.1 n^(−1/2), for which Theorem 1 grants O(n^(−1/4)); both entropies."""
    rng = np.random.default_rng(seed)
    X, grid = rng.uniform(-2.0, 2.0, (n, 1)), np.linspace(-1.9, 1.9, 400)[:, None]
    y = (true_probabilities(X).cumsum(1) < rng.random((n, 1))).sum(1)
    model = EmbeddingClassifier(Gaussian(0.7), None, 0.1 * n**-0.5, calibration=None).fit(X, y)
    truth = true_probabilities(grid)
    gap = np.zeros_like(truth)
    gap[:, model.classes_] = model.embedding(grid)
    gap -= truth
    entropy = -(truth * np.log(truth)).sum(1)
    clipped, expected = (model.entropy(grid, kind) for kind in ("clipped", "embedding"))
    return {
        "largest error": float(np.abs(gap).max()),
        "mean error": float(np.sqrt((gap**2).sum(1).mean())),
        "error of entropy (33)": float(np.abs(clipped - entropy).mean()),
        "error of entropy (37)": float(np.abs(expected - entropy).mean()),
        "difference of entropies": float(np.abs(clipped - expected).mean()),
    }


def theorem1(run: Run) -> None:
    """Estimates against known probabilities as n grows."""
    sizes = SIZES[:4] if run.quick else SIZES
    means: dict[str, list[float]] = {}
    for n in sizes:
        results = [run.part(f"n = {n}", "MCE", seed, convergence, n, seed) for seed in range(3 if run.quick else 10)]
        for measure in ("largest error", "mean error", "difference of entropies"):
            means.setdefault(measure, []).append(float(np.mean([r[measure] for r in results])))
    figure, axes = plotting.panels(1, 1)
    for measure, values in means.items():
        axes[0, 0].loglog(sizes, values, "o-", label=f"{measure}, slope {slope(sizes, values):.2f}")
    axes[0, 0].loglog(sizes, means["mean error"][0] * (np.array(sizes) / sizes[0]) ** -0.25, "k:", label="slope −1/4")
    axes[0, 0].set(xlabel="samples", ylabel="error")
    axes[0, 0].legend()
    run.figure(
        "rate",
        figure,
        "Errors of the estimated probabilities and entropies against the number of samples, beside a slope of −1/4.",
    )


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def at_the_rate(measurements: Measurements) -> tuple[Verdict, str]:
    """A slope of −1/4 or steeper."""
    sizes = [n for n in SIZES if (f"n = {n}", "MCE") in measurements]
    slopes = {
        m: slope(sizes, [measurements.mean(f"n = {n}", "MCE", m) for n in sizes])
        for m in ("mean error", "largest error")
    }
    numbers = ", ".join(f"{measure} n^{value:.2f}" for measure, value in slopes.items())
    return ("reached" if max(slopes.values()) <= -0.25 else "not reached"), numbers


EXPERIMENTS = (
    Experiment(
        "hsu-figure1",
        PAPER,
        "figure 1",
        "The first two attributes of iris, scaled to the unit range; 80 % for training, 10 random splits; an isotropic "
        "Gaussian kernel, from an overfitted and an underfitted start, by 500 steps of Adam (rate 0.05) and by L-BFGS.",
        (
            Claim("both starts end at the same objective", same_end),
            Claim("about the published accuracy", iris_accuracy),
        ),
        figure1,
    ),
    Experiment(
        "hsu-theorem1",
        PAPER,
        "theorem 1",
        "Three classes with known probabilities on [−2, 2], in the space of a fixed Gaussian kernel and constants; "
        "λ = 0.1 n^(−1/2), so that the "
        "rate of the theorem is n^(−1/4); raw estimates on a grid, 10 draws of the data.",
        (Claim("estimates converge at the rate of Theorem 1, or faster", at_the_rate),),
        theorem1,
    ),
)
