"""The same models in himalaya and GPyTorch: kernel ridge regression and Gaussian processes."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import torch

from benchmarks._timing import Row, compare, not_run, scale, scaled
from representer import OperatorRidge
from representer.kernels import Gaussian

FIXED = "kernel ridge, fixed hyperparameters, fit, against himalaya's KernelRidge"
PATH = "kernel ridge, 20 alphas, fit: leave-one-out, against himalaya's KernelRidgeCV with 5 folds"
POSTERIOR = "Gaussian process, fixed hyperparameters, fit and mean ± std, against GPyTorch's ExactGP"
LEARNED = "5 lengthscales and noise learned: leave-one-out, against ExactGP, 100 steps of Adam"
ABSENT = '{} is not installed: pip install "representer[bench]"'


def rows() -> list[Row]:
    """Each peer's rows, or what to install."""
    found = []
    for package, measures in (
        ("himalaya", {FIXED: fixed, PATH: path}),
        ("gpytorch", {POSTERIOR: posterior, LEARNED: learned}),
    ):
        if importlib.util.find_spec(package) is None:
            found += [not_run(what, ABSENT.format(package)) for what in measures]
        else:
            found += [measure() for measure in measures.values()]
    return found


def sample(n: int, d: int, p: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Smooth functions of three of the features, with noise; one or p of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    signal = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    if p is None:
        return X, signal + 0.1 * rng.normal(size=n)
    return X, signal[:, None] * rng.normal(size=p) + 0.1 * rng.normal(size=(n, p))


# -- himalaya, on the same torch ---------------------------------------------------------------------------------------
def himalaya() -> Any:
    """Its kernel ridge regressions; it has a backend for all of a process."""
    import himalaya.backend
    import himalaya.kernel_ridge

    himalaya.backend.set_backend("torch")
    return himalaya.kernel_ridge


def fixed() -> Row:
    """The same predictions to 1e-8."""
    n, ell, alpha = scaled(2000), 4.0, 1e-3
    X, Y = sample(n, 20, 10)
    ours = OperatorRidge(Gaussian(ell), alpha=alpha, fit_intercept=False)
    # It scales alpha by nothing: n·alpha is its alpha.
    theirs = himalaya().KernelRidge(alpha * n, kernel="rbf", kernel_params={"gamma": 0.5 / ell**2})
    inputs, outputs = torch.from_numpy(X), torch.from_numpy(Y)
    theirs.fit(inputs, outputs)
    np.testing.assert_allclose(ours.fit(X, Y).predict(X[:50]), theirs.predict(inputs[:50]), atol=1e-8)
    return compare(
        FIXED,
        f"n = {n}, d = 20, 10 outputs",
        ours=lambda: ours.fit(X, Y),
        reference=lambda: theirs.fit(inputs, outputs),
    )


def path() -> Row:
    """Not the same criterion: the note has the errors on new data."""
    n, ell = scaled(1000), 4.0
    X, Y = sample(2 * n, 20, 10)
    alphas = np.logspace(-8, 0, 20)
    ours = OperatorRidge(Gaussian(ell), alpha=alphas, fit_intercept=False)
    theirs = himalaya().KernelRidgeCV(n * alphas, kernel="rbf", kernel_params={"gamma": 0.5 / ell**2}, cv=5)
    inputs, outputs = torch.from_numpy(X), torch.from_numpy(Y)

    def error(predictions: Any) -> float:
        return float(np.sqrt(np.mean((np.asarray(predictions) - Y[n:]) ** 2)))

    theirs.fit(inputs[:n], outputs[:n])
    errors = error(ours.fit(X[:n], Y[:n]).predict(X[n:])), error(theirs.predict(inputs[n:]))
    return compare(
        PATH,
        f"n = {n}, d = 20, 10 outputs",
        ours=lambda: ours.fit(X[:n], Y[:n]),
        reference=lambda: theirs.fit(inputs[:n], outputs[:n]),
        note=f"RMSE on new data {errors[0]:.4f} and {errors[1]:.4f}",
    )


# -- GPyTorch ----------------------------------------------------------------------------------------------------------
def exact_gp(X: torch.Tensor, y: torch.Tensor, lengthscale: float, noise: float) -> tuple[Any, Any]:
    """A process with one lengthscale a feature, in double precision, and its likelihood; by Cholesky factors."""
    import gpytorch

    class Process(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean = gpytorch.means.ZeroMean()
            self.kernel = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])

        def forward(self, points: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(points), self.kernel(points))

    model = Process().double()
    model.kernel.lengthscale = lengthscale
    model.likelihood.noise = noise
    return model, model.likelihood


def cholesky_only() -> Any:
    """No conjugate gradients: exact, and at these sizes faster."""
    import gpytorch

    return gpytorch.settings.max_cholesky_size(10_000)


def posterior() -> Row:
    """The same means to 1e-6; our deviations are scaled by leave-one-out residuals, theirs by the noise."""
    n, ell, alpha = scaled(2000), 4.0, 1e-3
    X, y = sample(n + n // 2, 20)
    inputs, targets, new = torch.from_numpy(X[:n]), torch.from_numpy(y[:n]), torch.from_numpy(X[n:])

    def ours() -> tuple[np.ndarray, np.ndarray]:
        return (
            OperatorRidge(Gaussian(ell), alpha=alpha, fit_intercept=False)
            .fit(X[:n], y[:n])
            .predict(X[n:], return_std=True)
        )

    def theirs() -> tuple[np.ndarray, np.ndarray]:
        model, _ = exact_gp(inputs, targets, ell, n * alpha)
        model.eval()
        with torch.no_grad(), cholesky_only():
            found = model(new)
            return found.mean.numpy(), found.stddev.numpy()

    np.testing.assert_allclose(ours()[0], theirs()[0], atol=1e-6)
    return compare(POSTERIOR, f"n = {n}, d = 20, {n // 2} new", ours=ours, reference=theirs, repeats=3)


def learned() -> Row:
    """The same kernel and noise, from the same start; not the same criterion: the note has the errors on new data."""
    n, d = scaled(800), 5
    steps = 100 if scale() == 1 else 10
    X, y = sample(2 * n, d)
    inputs, targets, new = torch.from_numpy(X[:n]), torch.from_numpy(y[:n]), torch.from_numpy(X[n:])

    def ours() -> np.ndarray:
        with warnings.catch_warnings():  # lengthscales of features that do not matter run to their bounds
            warnings.simplefilter("ignore")
            return OperatorRidge(Gaussian("ard"), fit_intercept=False).fit(X[:n], y[:n]).predict(X[n:])

    def theirs() -> np.ndarray:
        import gpytorch

        model, likelihood = exact_gp(inputs, targets, d**0.5, 0.1)
        model.train()
        likelihood.train()
        marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        search = torch.optim.Adam(model.parameters(), lr=0.1)
        with cholesky_only():
            for _ in range(steps):
                search.zero_grad()
                loss = -marginal(model(inputs), targets)
                loss.backward()
                search.step()
            model.eval()
            with torch.no_grad():
                return model(new).mean.numpy()

    errors = [root_mean_square(predict() - y[n:]) for predict in (ours, theirs)]
    return compare(
        LEARNED,
        f"n = {n}, d = {d}",
        ours=ours,
        reference=theirs,
        repeats=3,
        note=f"RMSE on new data {errors[0]:.4f} and {errors[1]:.4f}; the noise is 0.1",
    )


def root_mean_square(values: np.ndarray) -> float:
    """Of all values."""
    return float(np.sqrt(np.mean(values**2)))
