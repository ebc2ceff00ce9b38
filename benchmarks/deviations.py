"""``python -m benchmarks.deviations``: standard deviations beside those of a Gaussian process with the same kernel.

On sets in which inputs repeat: molecules whose fingerprints are equal, and tables with equal rows. The process has a
constant mean; its scale, its noise and, of a Gaussian kernel, its lengthscale have the greatest marginal likelihood.
NLPD is the mean of −log N(y; mean, std²) over new samples.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from benchmarks.defaults import regressions
from representer import OperatorRidge
from representer.cli import console_for, print_json
from representer.datasets import load_esol, load_freesolv
from representer.kernels import Gaussian, Kernel, Molecule
from runs.terminal import command, interrupted

SETS = ("esol", "freesolv", "cpu", "breastTumor", "lowbwt", "autoPrice")
ROWS = 800  # training samples at most


def samples_of(name: str) -> tuple[Any, np.ndarray, Callable[[float], Kernel], Kernel]:
    """Inputs, targets, the kernel of a lengthscale, and what OperatorRidge is given."""
    if name in ("esol", "freesolv"):
        bunch = load_esol() if name == "esol" else load_freesolv()
        smiles = np.asarray(getattr(bunch, "smiles", bunch.data), dtype=object).ravel()
        return (
            smiles,
            np.asarray(bunch.target, dtype=float).ravel(),
            lambda _: Molecule(counts=True),
            Molecule(counts=True),
        )
    X, y = next(problem for problem in regressions() if problem.name == name).read()
    X = StandardScaler().fit_transform(SimpleImputer().fit_transform(X))
    return X, y.astype(float), Gaussian, Gaussian("auto")


def process(
    gram: Callable[[float], np.ndarray], cross: Callable[[float], np.ndarray], y: np.ndarray, start: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the process at new inputs; ``start`` is a lengthscale, if there is one."""
    ones = np.ones_like(y)

    def factored(point: np.ndarray) -> tuple[Any, float, np.ndarray]:
        scale, noise, lengthscale = np.exp([*point[:2], point[2] if start is not None else 0.0])
        factor = cho_factor(scale * gram(lengthscale) + noise * np.eye(len(y)), lower=True)
        solved = cho_solve(factor, ones)
        constant = float(solved @ y / (solved @ ones))
        return factor, constant, cho_solve(factor, y - constant)

    def loss(point: np.ndarray) -> float:
        try:
            factor, constant, dual = factored(point)
        except LinAlgError:
            return 1e10
        return float(0.5 * (y - constant) @ dual + np.log(np.diag(factor[0])).sum())

    starts = [
        [np.log(y.var()), np.log(share * y.var()), *([] if start is None else [np.log(start)])] for share in (0.1, 0.5)
    ]
    options = {"maxiter": 200, "xatol": 1e-2, "fatol": 1e-2}
    found = min((minimize(loss, s, method="Nelder-Mead", options=options) for s in starts), key=lambda r: r.fun).x
    factor, constant, dual = factored(found)
    scale, noise, lengthscale = np.exp([*found[:2], found[2] if start is not None else 0.0])
    new = scale * cross(lengthscale)
    variance = scale - (new * cho_solve(factor, new.T).T).sum(1) + noise
    return constant + new @ dual, np.sqrt(variance)


def measure(name: str, seed: int) -> dict[str, tuple[float, float]]:
    """NLPD and the share inside of 90 % bands, of one random split."""
    X, y, kernel, given = samples_of(name)
    order = np.random.default_rng(seed).permutation(len(y))
    train, new = order[: min(len(y) * 4 // 5, ROWS)], order[len(y) * 4 // 5 :]
    own, other = ([str(x) for x in X[train]], [str(x) for x in X[new]]) if X.dtype == object else (X[train], X[new])
    start = None
    if X.dtype != object:
        start = float(np.sqrt(np.median(((own[:, None] - own) ** 2).sum(-1))))
    found = {
        "ours": OperatorRidge(given, fit_intercept=True).fit(own, y[train]).predict(other, return_std=True),
        "process": process(
            lambda length: kernel(length)(own).numpy(),
            lambda length: kernel(length)(other, own).numpy(),
            y[train],
            start,
        ),
    }
    return {method: judged(y[new], *answer) for method, answer in found.items()}


def judged(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> tuple[float, float]:
    """NLPD, and the share inside of 90 % bands."""
    z = (y - mean) / std
    return float(np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi))), float(np.mean(np.abs(z) < 1.6449))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = command("python -m benchmarks.deviations", "Compare standard deviations with a Gaussian process's.")
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args(arguments)
    console, report = console_for(options.json_output), {}
    table = Table("set", "NLPD ours", "NLPD process", "inside ours", "inside process")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in options.sets:
                splits = [measure(name, seed) for seed in range(options.splits)]
                report[name] = {m: np.mean([split[m] for split in splits], 0).tolist() for m in ("ours", "process")}
                values = [report[name][m][k] for k in (0, 1) for m in ("ours", "process")]
                table.add_row(name, *(f"{value:.3f}" for value in values))
    except KeyboardInterrupt:
        return interrupted(console, "Nothing was measured.")
    console.print(table)
    if options.json_output:
        print_json(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
