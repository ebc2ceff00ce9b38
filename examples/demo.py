"""What representer does, on built-in data: four tasks, a table, four figures.

Run with ``python examples/demo.py --out demo_output``.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_diabetes, load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from representer import DeepKernelRegressor, OperatorRidge
from representer.datasets import kink, make_kink, square_grid
from representer.kernels import Gaussian, Linear, Polynomial, TensorMatern
from representer.operators import Covariance, CurlFree, DivergenceFree
from representer.plotting import error_map, grid_transformation


@dataclass
class Result:
    """One line of the table."""

    task: str
    model: str
    error: float
    seconds: float


def timed_fit(model: Any, X: np.ndarray, Y: np.ndarray) -> tuple[Any, float]:
    start = time.perf_counter()
    return model.fit(X, Y), time.perf_counter() - start


# -- a wind field without sources: the kernel knows that the divergence is zero --------------------------------------
def swirl(X: np.ndarray) -> np.ndarray:
    """(∂ψ/∂y, −∂ψ/∂x) of the stream function ψ = sin(2x) cos(2y) + x y / 2."""
    x, y = X.T
    return np.column_stack(
        [-2 * np.sin(2 * x) * np.sin(2 * y) + x / 2, -2 * np.cos(2 * x) * np.cos(2 * y) - y / 2]
    )


def vector_field(out: Path) -> list[Result]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, (60, 2))
    Y = swirl(X) + 0.2 * rng.normal(size=X.shape)
    side = np.linspace(-1.5, 1.5, 15)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    truth = swirl(grid)
    models = {
        "two outputs, unrelated": OperatorRidge(Gaussian("auto")),
        "curl-free (the wrong physics)": OperatorRidge(CurlFree("auto")),
        "divergence-free": OperatorRidge(DivergenceFree("auto")),
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharex=True, sharey=True, layout="constrained")
    results = []
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        model, seconds = timed_fit(model, X, Y)
        field = model.predict(grid)
        error = float(np.sqrt(np.mean((field - truth) ** 2) / np.mean(truth**2)))
        results.append(Result("wind from 60 noisy stations", name, error, seconds))
        ax.quiver(*grid.T, *truth.T, color="0.75", scale=45, width=0.006)
        ax.quiver(*grid.T, *field.T, color="C0", scale=45, width=0.004)
        ax.plot(*X.T, "k.", markersize=3)
        ax.set_title(f"{name}: {error:.0%} error")
    figure.suptitle("Wind from 60 noisy stations (dots): truth in grey, fit in blue")
    figure.savefig(out / "vector_field.png", dpi=120)
    return results


# -- a kink along the diagonal: the inner layer turns it into one along an axis --------------------------------------
def diagonal_kink(out: Path) -> list[Result]:
    X, y = make_kink(100, noise=0.01, random_state=0)
    grid = square_grid()
    truth = kink(grid)
    matern = TensorMatern(1, 1.0)
    models = {
        "one layer": DeepKernelRegressor([], matern),
        "two layers": DeepKernelRegressor([(Polynomial(1), 2)], matern, n_restarts=16, random_state=0),
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    results = []
    for ax, (name, model) in zip(axes, models.items(), strict=False):
        model, seconds = timed_fit(model, X, y)
        errors = np.abs(model.predict(grid) - truth) / truth.max()
        relative = float(np.sqrt(np.mean((errors * truth.max()) ** 2) / np.mean(truth**2)))
        results.append(Result("kink along a diagonal", name, relative, seconds))
        error_map(errors, points=X, ax=ax)
        ax.set_title(f"{name}: {relative:.0%} error")
    grid_transformation(model.transform_layers(grid)[0], truth, label="value", ax=axes[2])
    axes[2].set_title("the square under f₂")
    figure.savefig(out / "kink.png", dpi=120)
    return results


# -- outputs that belong together: the lower half of a digit from its upper half -------------------------------------
def half_digits(out: Path) -> list[Result]:
    images = load_digits().data / 16.0
    train, test = train_test_split(images, train_size=600, random_state=0)
    models = {
        "linear": OperatorRidge(Linear() + 1.0),
        "rbf": OperatorRidge("rbf"),
        "rbf, lengthscale learned": OperatorRidge(Gaussian("auto")),
        "rbf, covariance operator": OperatorRidge("rbf", operator=Covariance()),
    }
    results, pictures = [], {"truth": test}
    for name, model in models.items():
        model, seconds = timed_fit(model, train[:, :32], train[:, 32:])
        lower = model.predict(test[:, :32])
        error = float(np.sqrt(np.mean((lower - test[:, 32:]) ** 2)))
        results.append(Result("lower half of digits (32 outputs)", name, error, seconds))
        pictures[name] = np.hstack([test[:, :32], lower])
    figure, axes = plt.subplots(len(pictures), 10, figsize=(10, 5.4), layout="constrained")
    for row, (name, digits) in zip(axes, pictures.items(), strict=True):
        row[0].set_ylabel(name.replace(", ", ",\n"), rotation=0, ha="right", va="center")
        for ax, digit in zip(row, digits, strict=False):
            ax.imshow(digit.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
    figure.suptitle("The lower half of each digit is predicted from its upper half")
    figure.savefig(out / "half_digits.png", dpi=120)
    return results


# -- one output, nothing tuned by hand: against a grid search --------------------------------------------------------
def diabetes(out: Path) -> list[Result]:
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    y_train, y_test = y_train - y_train.mean(), y_test - y_train.mean()
    grid = {"kernelridge__alpha": np.logspace(-3, 2, 6), "kernelridge__gamma": np.logspace(-4, 0, 9)}
    models = {
        "KernelRidge, grid of 54": GridSearchCV(
            make_pipeline(StandardScaler(), KernelRidge(kernel="rbf")), grid, cv=5
        ),
        "OperatorRidge, untouched": make_pipeline(StandardScaler(), OperatorRidge()),
        "OperatorRidge, ℓ learned": make_pipeline(StandardScaler(), OperatorRidge(Gaussian("auto"))),
    }
    results, fitted = [], {}
    for name, model in models.items():
        fitted[name], seconds = timed_fit(model, X_train, y_train)
        error = float(np.sqrt(np.mean((fitted[name].predict(X_test) - y_test) ** 2)))
        results.append(Result("diabetes progression", name, error, seconds))
    mean, std = fitted["OperatorRidge, ℓ learned"].predict(X_test, return_std=True)
    inside = float(np.mean(np.abs(y_test - mean) < 1.96 * std))
    order = np.argsort(mean)
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    rank = np.arange(len(mean))
    ax.fill_between(
        rank, (mean - 1.96 * std)[order], (mean + 1.96 * std)[order], alpha=0.25, label="95 % interval"
    )
    ax.plot(rank, mean[order], label="prediction")
    ax.plot(rank, y_test[order], "k.", markersize=4, label="truth")
    ax.set(xlabel="test patients, by prediction", ylabel="disease progression (centred)")
    ax.set_title(f"Diabetes: {inside:.0%} of {len(mean)} unseen patients lie inside the 95 % interval")
    ax.legend()
    figure.savefig(out / "diabetes.png", dpi=120)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo_output"), help="folder for the figures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    tasks = {
        "a wind field": vector_field,
        "a kink": diagonal_kink,
        "half digits": half_digits,
        "diabetes": diabetes,
    }
    results: list[Result] = []
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=len(tasks))
        for name, task in tasks.items():
            progress.update(bar, description=name)
            results += task(out)
            progress.advance(bar)
    table = Table("task", "model", "test error", "fit (s)", title="representer on built-in data")
    for r in results:
        table.add_row(r.task, r.model, f"{r.error:.3f}", f"{r.seconds:.2f}")
    console.print(table)
    console.print("Test error: relative RMSE for the wind field and the kink, RMSE elsewhere.")
    for picture in sorted(out.glob("*.png")):
        console.print(f"wrote {picture}")


if __name__ == "__main__":
    main()
