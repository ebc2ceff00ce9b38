"""Gram matrices, against the matrix product and exp they cannot avoid, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from benchmarks._timing import Row, compare, scaled
from representer.kernels import Gaussian, Kernel, Laplacian, Linear, Matern


def least_work(X: torch.Tensor, lengthscale: float) -> torch.Tensor:
    """One product of the size of the Gram matrix and one exp of it in place: what a Gaussian kernel costs at least."""
    scaled = X / lengthscale
    return torch.matmul(scaled, scaled.mT).exp_()


def rows() -> list[Row]:
    """The Gaussian kernel at the size of its goal, and others for information."""
    rng = np.random.default_rng(0)
    X, Y = (torch.from_numpy(rng.standard_normal((scaled(5000), 50))) for _ in range(2))
    lengthscale = 10.0  # the median distance of such data
    gaussian = Gaussian(lengthscale)
    size = f"{len(X):,} × 50"
    found = [
        compare(
            "Gaussian k(X), against product and exp",
            size,
            ours=lambda: gaussian(X),
            reference=lambda: least_work(X, lengthscale),
            goal=1.2,
            repeats=15,
            warmup=2,
        ),
        compare(
            "Gaussian k(X, Y), against product and exp",
            size,
            ours=lambda: gaussian(X, Y),
            reference=lambda: least_work(X, lengthscale),
            repeats=9,
        ),
        compare(
            "Linear k(X), against the product",
            size,
            ours=lambda: Linear()(X),
            reference=lambda: X @ X.mT,
            repeats=9,
        ),
    ]
    small = X[: scaled(2000)]
    peers = [
        ("Gaussian, against scikit-learn", gaussian, lambda A: rbf_kernel(A, gamma=0.5 / lengthscale**2)),
        ("Laplacian, against scikit-learn", Laplacian(40.0), lambda A: laplacian_kernel(A, gamma=1 / 40.0)),
        ("Matern 5/2, against scikit-learn", Matern(2.5, lengthscale), SklearnMatern(lengthscale, nu=2.5)),
        ("Matern 1/2, against scikit-learn", Matern(0.5, lengthscale), SklearnMatern(lengthscale, nu=0.5)),
    ]
    for what, ours, theirs in peers:
        found.append(_against(what, ours, theirs, small))
    return found


def _against(what: str, ours: Kernel, theirs: object, X: torch.Tensor) -> Row:
    array = X.numpy()
    np.testing.assert_allclose(ours(X), theirs(array), atol=1e-12)
    return compare(what, f"{len(X):,} × {X.shape[1]}", ours=lambda: ours(X), reference=lambda: theirs(array))
