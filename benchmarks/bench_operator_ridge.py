"""OperatorRidge against scikit-learn, and against the work that no exact fit can avoid."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.linalg
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.kernel_ridge import KernelRidge

from benchmarks._timing import Row, compare, scaled
from representer import OperatorRidge
from representer.kernels import Gaussian, Linear
from representer.operators import Decomposable, Dense, DivergenceFree
from representer.systems import RidgeData, factor_system
from representer.systems.exact import CoupledOutputs, IterativeOutputs


def rows() -> list[Row]:
    """The goals of the learner, then what structure saves."""
    return [fixed(), path(), learned(), dense_operator(), commuting_sum(), field()]


def _data(n: int, d: int, p: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
    return X, y if p is None else y[:, None] * rng.normal(size=p) + 0.1 * rng.normal(size=(n, p))


def fixed() -> Row:
    n, ell, alpha = scaled(2000), 4.0, 1e-3
    X, y = _data(n, 20)
    ours = OperatorRidge(Gaussian(ell), alpha=alpha, fit_intercept=False)
    theirs = KernelRidge(alpha=alpha * n, kernel="rbf", gamma=1 / (2 * ell**2))
    np.testing.assert_allclose(ours.fit(X, y).predict(X[:50]), theirs.fit(X, y).predict(X[:50]), atol=1e-10)
    return compare(
        "fit, fixed hyperparameters, against KernelRidge",
        f"n = {n}, d = 20",
        ours=lambda: ours.fit(X, y),
        reference=lambda: theirs.fit(X, y),
        goal=0.6,
        repeats=9,
    )


def path() -> Row:
    n = scaled(2000)
    X, y = _data(n, 20)
    model = OperatorRidge(Gaussian(4.0), alpha=np.logspace(-8, 1, 30), fit_intercept=False)
    gram = Gaussian(4.0)(X).numpy()
    return compare(
        "fit, 30 alphas by leave-one-out, against one eigendecomposition",
        f"n = {n}, d = 20",
        ours=lambda: model.fit(X, y),
        reference=lambda: scipy.linalg.eigh(gram, driver="evd", check_finite=False),
        goal=2.0,
    )


def learned() -> Row:
    n = scaled(500)
    X, y = _data(n, 5)
    ours = OperatorRidge(Gaussian("ard"), fit_intercept=False)
    theirs = GaussianProcessRegressor(RBF(np.ones(5)) + WhiteKernel(0.1), normalize_y=False)
    with warnings.catch_warnings():  # two features do not matter: their lengthscales go where bounds allow
        warnings.simplefilter("ignore", ConvergenceWarning)
        return compare(
            "fit, 5 lengthscales and alpha learned, against GaussianProcessRegressor",
            f"n = {n}, d = 5",
            ours=lambda: ours.fit(X, y),
            reference=lambda: theirs.fit(X, y),
            repeats=3,
        )


def _solve(kernel, X, Y, system):
    data = RidgeData(kernel, X, Y, torch.ones(len(Y), dtype=torch.float64))
    return system(data, 0.1 / len(Y)).coefficients()


def _structure(what: str, kernel, n: int, p: int, d: int) -> Row:
    X, Y = (torch.from_numpy(array) for array in _data(n, d, p))
    structured, dense = _solve(kernel, X, Y, factor_system), _solve(kernel, X, Y, CoupledOutputs)
    torch.testing.assert_close(structured, dense, rtol=1e-6, atol=1e-8)
    return compare(
        what,
        f"n = {n}, p = {p}",
        ours=lambda: _solve(kernel, X, Y, factor_system),
        reference=lambda: _solve(kernel, X, Y, CoupledOutputs),
        repeats=3,
    )


def _operator(p: int) -> Dense:
    factor = np.random.default_rng(1).normal(size=(p, p))
    return Dense(factor @ factor.T / p)


def dense_operator() -> Row:
    kernel = Decomposable(Gaussian(2.0), _operator(8))
    return _structure("K ⊗ A: two eigendecompositions, against the block matrix", kernel, scaled(400), 8, 4)


def commuting_sum() -> Row:
    kernel = Decomposable(Gaussian(2.0), _operator(8)) + Decomposable(Linear())
    return _structure("commuting sum: p factorisations, against the block matrix", kernel, scaled(400), 8, 4)


def field() -> Row:
    n = scaled(1000)
    X, Y = (torch.from_numpy(array) for array in _data(n, 3, 3))
    kernel = DivergenceFree(1.0)
    torch.testing.assert_close(
        _solve(kernel, X, Y, IterativeOutputs), _solve(kernel, X, Y, CoupledOutputs), rtol=1e-6, atol=1e-8
    )
    return compare(
        "divergence-free field: conjugate gradients, against the block matrix",
        f"n = {n}, p = 3",
        ours=lambda: _solve(kernel, X, Y, IterativeOutputs),
        reference=lambda: _solve(kernel, X, Y, CoupledOutputs),
        repeats=3,
    )
