"""Deep kernel PCA: a fit against one dense eigendecomposition, and against the projected gradient of the paper."""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks._timing import Row, compare, scaled
from representer import DeepKernelPCA
from representer.kernels import Gaussian

LEVELS = {"n_components": [10, 10], "kernel": ["rbf", Gaussian(1.0)]}  # σ² = 1 above, as in the paper
ITERATIONS = 2000  # more than a hundred times our seconds; the residual falls by 2 % in ten of them


def rows() -> list[Row]:
    """Two RBF levels of ten components on digits and on normal data."""
    return [
        against_eigh("digits", digits(scaled(1000, 100))),
        against_eigh("normal data, 50 features", normal(scaled(1000, 100), 50)),
        against_eigh("normal data, 10 features", normal(scaled(1000, 100), 10)),
        against_projected_gradient(digits(scaled(400, 100))),
    ]


def digits(n: int) -> np.ndarray:
    """Handwritten digits, 64 grey values in [0, 1]."""
    return np.asarray(load_digits().data[np.random.default_rng(0).permutation(1797)[:n]] / 16.0)


def normal(n: int, d: int) -> np.ndarray:
    """Correlated normal data."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) / d**0.5


def against_eigh(name: str, X: np.ndarray) -> Row:
    """A fit to a residual of 1e-8, its Gram matrix included, and all eigenvectors of one symmetric matrix."""
    gram = torch.as_tensor(Gaussian("median")(X))
    model = DeepKernelPCA(**LEVELS, tol=1e-8)
    residual = model.fit(X).residual_
    return compare(
        f"two levels on {name}: fit to a residual of 1e-8, against one eigendecomposition",
        f"n = {len(X)}",
        ours=lambda: model.fit(X),
        reference=lambda: torch.linalg.eigh(gram),
        goal=4.0,
        repeats=3,
        note=f"{model.solver_}, {model.n_iter_} iterations, residual {residual:.0e}",
    )


def against_projected_gradient(X: np.ndarray) -> Row:
    """A fit against so many iterations of Algorithm 1, which end at a larger residual."""
    iterations = scaled(ITERATIONS, 20)
    ours, theirs = (
        DeepKernelPCA(**LEVELS),
        DeepKernelPCA(**LEVELS, solver="projected_gradient", max_iter=iterations),
    )
    seconds = []
    for model in (ours, theirs):
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Algorithm 1 has not converged
            model.fit(X)
        seconds.append(time.perf_counter() - started)
    assert ours.residual_ < theirs.residual_
    what = f"two levels on digits: fit, against {iterations} iterations of Algorithm 1, at a larger residual"
    note = f"residuals {ours.residual_:.0e} and {theirs.residual_:.0e}"
    return Row(what, f"n = {len(X)}", *seconds, goal=1 / 100, note=note)
