"""Tonin, Tao, Patrinos, Suykens (2023): reconstructions by linear levels (figures 10, 11, B.5), and solvers (B.3)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from papers.claims import lower
from papers.results import Measurements, Verdict
from papers.runner import Claim, Experiment, Result, Run
from papers.tonin.levels import SEEDS, deep
from papers.tonin.tables import PAPER, split
from representer import CollapsedComponentWarning, plotting
from representer.datasets import IONOSPHERE, load_ionosphere, make_shapes, make_synth1, make_synth3
from representer.kernels import Gaussian, Linear
from representer.problems.levels import coupling

MSE = "test MSE"


# -- figures 10 and 11, table B.5 -------------------------------------------------------------------------------------
GRID = (2, 4, 16, 32, 64, 100)
B5 = (  # rows s₂, columns s₁
    (159, 160, 159, 163, 165, 166),
    (159, 153, 155, 162, 162, 164),
    (159, 153, 126, 138, 155, 159),
    (159, 153, 126, 108, 135, 144),
    (159, 153, 126, 108, 98, 119),
    (159, 153, 126, 108, 98, 97),
)


def linear_levels(X: np.ndarray, sizes: Sequence[int]) -> Any:
    """Fitted linear levels, also with more components than the data have directions, as the paper's figures do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapsedComponentWarning)
        return deep(sizes, [Linear() for _ in sizes]).fit(X)


def reconstruction(X: np.ndarray, T: np.ndarray, sizes: Sequence[int]) -> Result:
    """Mean squared errors of linear levels, from the last level back."""
    model = linear_levels(X, sizes)
    kept = 100.0 * float(np.sum(model.explained_variance_ratio_[0]))
    return {
        "training MSE": float(((X - model.reconstruct(X)) ** 2).mean()),
        MSE: float(((T - model.reconstruct(T)) ** 2).mean()),
        "% of variance, level 1": kept,
    }


def table_b5(run: Run) -> None:
    """Synth 3: 100 vectors to train on, 10000 to test."""
    grid = GRID[:3] if run.quick else GRID
    for seed in range(1 if run.quick else SEEDS):
        X = make_synth3(600 if run.quick else 10100, random_state=seed)
        for s2 in grid:
            for s1 in grid:
                run.part(f"s₂ = {s2}", f"s₁ = {s1}", seed, reconstruction, X[:100], X[100:], (s1, s2))


def smallest_decides(measurements: Measurements) -> tuple[Verdict, str]:
    """The error depends on min(s₁, s₂) only, and falls with it."""
    grid = [s for s in GRID if (f"s₂ = {s}", f"s₁ = {s}") in measurements]
    table = np.array([[measurements.mean(f"s₂ = {b}", f"s₁ = {a}", MSE) for a in grid] for b in grid])
    diagonal = table.diagonal()
    expected = np.array([[diagonal[min(i, j)] for i in range(len(grid))] for j in range(len(grid))])
    same, falls = np.allclose(table, expected, rtol=1e-6), bool((np.diff(diagonal) < 0).all())
    numbers = "diagonal " + ", ".join(f"{value:.0f}" for value in diagonal)
    return "reached" if same and falls else "not reached", numbers


def figure10(run: Run) -> None:
    """Synth 1: six components at level 1, one to six at level 2."""
    figure, axes = plotting.panels(1, 2, column_labels=["level 1", "reconstruction"])
    X = make_synth1(random_state=0)
    sizes = range(1, 7)
    errors = [run.part("Synth 1", f"s₂ = {s}", 0, reconstruction, X, X, (6, s))["training MSE"] for s in sizes]
    model = linear_levels(X, (6, 6))
    axes[0, 0].bar(sizes, 100.0 * model.explained_variance_ratio_[0])
    axes[0, 0].set(xlabel="component", ylabel="% of variance")
    axes[0, 1].plot(sizes, errors, "o-")
    axes[0, 1].set(xlabel="s₂", ylabel="training MSE")
    run.figure(
        "synth1",
        figure,
        "Left, the variance of each component of level 1; right, the training error against the components of level 2.",
    )


def figure11(run: Run) -> None:
    """Shapes in the place of 3DShapes: 480 pictures, as many components in both levels, up to all."""
    figure, axes = plotting.panels(1, 1, size=4.0)
    n = 100 if run.quick else 480
    X = make_shapes(n, random_state=0).data
    sizes = [s for s in (1, 2, 5, 10, 20, 50, 100, 200, 480) if s <= n]
    results = [run.part("shapes", f"s = {s}", 0, reconstruction, X, X, (s, s)) for s in sizes]
    axes[0, 0].semilogx(sizes, [r["% of variance, level 1"] for r in results], label="% of variance, level 1")
    axes[0, 0].semilogx(
        sizes,
        [100.0 * r["training MSE"] / results[0]["training MSE"] for r in results],
        label="error, % of s = 1",
    )
    axes[0, 0].set(xlabel="components of each level")
    axes[0, 0].legend()
    run.figure(
        "shapes",
        figure,
        "The variance that level 1 explains and the training error, against the number of components of each level.",
    )


def vanishes(case: str, method: str) -> Claim:
    """A full decomposition reconstructs exactly."""

    def judge(measurements: Measurements) -> tuple[Verdict, str]:
        last = method or list(measurements)[-1][1]
        value = measurements.mean(case, last, "training MSE")
        return "reached" if value < 1e-12 else "not reached", f"{value:.1g} ({last})"

    return Claim(f"{case}: the full decomposition reconstructs exactly", judge)


# -- table B.3 --------------------------------------------------------------------------------------------------------
SOLVERS = {"PGD": "projected_gradient", "Riemannian Adam": "riemannian_adam", "self-consistent field": "scf"}
COST, FEASIBILITY, SECONDS, SPECTRUM = "cost (9)", "feasibility", "seconds", "% of the leading spectrum"


def cost(model: Any, X: np.ndarray) -> float:
    """Equation (9) as printed: half the squared residual of the first level, plus those of the others."""
    hidden = [torch.as_tensor(H) for H in model.hidden_]
    total, inputs = 0.0, torch.as_tensor(X)
    for j, H in enumerate(hidden):
        left = model.kernel_[j](inputs) @ H / model.eta_[j]
        if j + 1 < len(hidden):
            left = left + coupling(model.kernel_[j + 1], H, hidden[j + 1]) / model.eta_[j + 1]
        residual = left - H * torch.as_tensor(model.eigenvalues_[j])
        total += (0.5 if j == 0 else 1.0) * float(residual.square().sum())
        inputs = H
    return total


def solved(X: np.ndarray, solver: str, seed: int, max_iter: int) -> Result:
    """One solver from one random start."""
    model = deep(
        [3, 2],
        [Gaussian(5.0), Gaussian(1.0)],
        solver=solver,
        init="random",
        random_state=seed,
        max_iter=max_iter,
        learning_rate=0.01,
    )
    start = time.process_time()
    model.fit(X)
    seconds = time.process_time() - start
    gram = model.kernel_[0](X).numpy()
    H = model.hidden_[0]
    leading = np.linalg.eigvalsh(gram)[::-1][: H.shape[1]].sum()
    return {
        COST: cost(model, X),
        FEASIBILITY: max(float(np.abs(H.T @ H - np.eye(H.shape[1])).max()) for H in model.hidden_),
        SECONDS: seconds,
        SPECTRUM: 100.0 * float(np.trace(H.T @ gram @ H)) / leading,
        "residual": model.residual_,
    }


def table_b3(run: Run) -> None:
    """Ionosphere, the training part of table 1."""
    bunch = load_ionosphere(folder=run.data)
    X = split(bunch.data, bunch.target, True, 0)[0]
    for seed in range(2 if run.quick else SEEDS):
        for name, solver in SOLVERS.items():
            limit = 200 if solver == "scf" else (300 if run.quick else 1000)
            run.part("ionosphere", name, seed, solved, X, solver, seed, limit)


EXPERIMENTS = (
    Experiment(
        "tonin-figure10",
        PAPER,
        "Figure 10: Synth 1",
        "100 points on a square, linear kernels, s₁ = 6. Published: the largest drop after two components, 0 with "
        "s₂ = 6.",
        (vanishes("Synth 1", "s₂ = 6"),),
        figure10,
    ),
    Experiment(
        "tonin-figure11",
        PAPER,
        "Figure 11, on shapes",
        "480 pictures of make_shapes (quick: 100) in the place of 3DShapes; linear kernels, s₁ = s₂.",
        (vanishes("shapes", ""),),
        figure11,
    ),
    Experiment(
        "tonin-table-b5",
        PAPER,
        "Table B.5: Synth 3",
        "100 vectors in 140 dimensions to train on, 10000 to test, linear kernels; reconstructed from the last level. "
        f"{SEEDS} draws (quick: one, and fewer sizes). Published (s₁ from left to right, s₂ downwards), ×100: "
        + "; ".join(", ".join(str(value / 100) for value in row) for row in B5)
        + ".",
        (Claim("the error is that of min(s₁, s₂) components, and falls with it", smallest_decides),),
        table_b5,
    ),
    Experiment(
        "tonin-table-b3",
        PAPER,
        "Table B.3: Ionosphere",
        f"The training part of table 1's first split, sizes 3 and 2, Gaussian kernels of width 5 and 1; {SEEDS} random "
        f"starts (quick: 2), at most 1000 iterations (quick: 300), processor seconds. "
        f"Published: PGD cost 0.44045, 1.03 s; Riemannian Adam 0.43938, 0.172 s.",
        (
            lower("cost below PGD", COST, "ionosphere", "self-consistent field", "PGD", 1e-6),
            lower(
                "cost below Riemannian Adam",
                COST,
                "ionosphere",
                "self-consistent field",
                "Riemannian Adam",
                1e-6,
            ),
            lower("faster than PGD", SECONDS, "ionosphere", "self-consistent field", "PGD"),
        ),
        table_b3,
        (IONOSPHERE,),
    ),
)
