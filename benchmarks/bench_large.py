"""Large data: fits by sums over blocks against the bare products, against scikit-learn, on two workers; MNIST.

``python -m benchmarks.cost_model`` projects the measured rate to more samples. Peaks of memory are in ``bench_memory``.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.ndimage import affine_transform
from sklearn.kernel_approximation import Nystroem as TheirNystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from benchmarks._timing import Row, compare, not_run, scaled
from representer import OperatorRidge
from representer.approximation import Nystroem
from representer.kernels import Gaussian

D, M, BLOCK = 20, 1000, 4096
LANDMARKS = 5000
ABSENT = "{} is not in the folder that REPRESENTER_DATA names"


def rows() -> list[Row]:
    """The goals of the fit, then against scikit-learn's, on Dask, and in accuracy."""
    return [million(), doubled(), *against_scikit_learn(), two_workers(), mnist()]


def made(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Data of 20 features, of which three matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, D))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def model(**options: Any) -> OperatorRidge:
    """The learner that is timed."""
    return OperatorRidge(Gaussian(5.0), approximation=Nystroem(M), random_state=0, **options)


def columns(X: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
    """k(X, Z) by one product and one exponential."""
    K = torch.addmm(-0.5 * (Z**2).sum(1), X, Z.mT)
    return K.sub_(0.5 * (X**2).sum(1, keepdim=True)).exp_()


def bare_products(X: np.ndarray) -> None:
    """What no fit and prediction by landmarks can avoid: K_nm for each, and K_nmᵀK_nm; NumPy computes half of that."""
    tensor = torch.from_numpy(X) / 5.0
    Z, total = tensor[:M], np.zeros((M, M))
    for start in range(0, len(X), BLOCK):
        K = columns(tensor[start : start + BLOCK], Z).numpy()
        total += K.T @ K
    weights = torch.ones(M, 1, dtype=torch.float64)
    for start in range(0, len(X), BLOCK):
        columns(tensor[start : start + BLOCK], Z) @ weights


def million() -> Row:
    """alpha is chosen, too, by leave-one-out."""
    n = scaled(1_000_000, 20_000)
    X, y = made(n)
    return compare(
        "fit + predict, against the bare block products",
        f"n = {n:,}, d = {D}, m = {M:,}",
        ours=lambda: model().fit(X, y).predict(X),
        reference=lambda: bare_products(X),
        goal=2.5,
        repeats=1,
        warmup=0,
    )


def doubled() -> Row:
    """Seconds of 2n over seconds of n."""
    n = scaled(500_000, 10_000)
    X, y = made(2 * n)
    return compare(
        "fit + predict of 2n, against n",
        f"n = {n:,}, d = {D}, m = {M:,}",
        ours=lambda: model().fit(X, y).predict(X),
        reference=lambda: model().fit(X[:n], y[:n]).predict(X[:n]),
        goal=2.2,
        repeats=1,
        warmup=0,
    )


# -- scikit-learn -----------------------------------------------------------------------------------------------------
def against_scikit_learn() -> list[Row]:
    """One-hot ridge regression on the same number of landmarks, with the same kernel and ridge."""
    found = []
    for name, m in (("mnist", 1000), ("robot", 500), ("segment", 500)):
        data, what = real_data(name), f"{name}, fit + predict, against Nystroem + Ridge"
        found.append(not_run(what, ABSENT.format(name), 1.0) if data is None else _side_by_side(what, m, *data))
    return found


def real_data(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Training inputs and labels, test inputs and labels; None where the files are not at hand."""
    from representer import datasets

    try:
        if name == "mnist":
            train, test = datasets.load_mnist("train"), datasets.load_mnist("test")
            n = scaled(len(train.data), 3000)
            return train.data[:n].astype(float), train.target[:n], test.data.astype(float), test.target
        found = datasets.load_robot() if name == "robot" else datasets.load_segment()
    except datasets.MissingDataError:
        return None
    X, labels = np.asarray(found.data, dtype=float), np.unique(found.target, return_inverse=True)[1]
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    order = np.random.default_rng(0).permutation(len(X))
    cut = len(X) * 4 // 5
    return X[order[:cut]], labels[order[:cut]], X[order[cut:]], labels[order[cut:]]


def one_hot(labels: np.ndarray) -> np.ndarray:
    """Ones and zeros."""
    return np.eye(int(labels.max()) + 1)[labels.astype(int)]


def accuracy(values: np.ndarray, labels: np.ndarray) -> float:
    """The share of largest values in the right place."""
    return float((values.argmax(1) == labels).mean())


def _side_by_side(what: str, m: int, X: np.ndarray, labels: np.ndarray, new: np.ndarray, new_labels: np.ndarray) -> Row:
    Y, n = one_hot(labels), len(X)
    m = min(m, n // 2)
    width = float(Gaussian("median").resolve(X).lengthscale)
    alpha = 1e-6
    ours = OperatorRidge(Gaussian(width), alpha=alpha, approximation=Nystroem(m), random_state=0, fit_intercept=False)
    features = TheirNystroem(kernel="rbf", gamma=0.5 / width**2, n_components=m, random_state=0)
    theirs = make_pipeline(features, Ridge(alpha=alpha * n, fit_intercept=False, solver="cholesky"))
    scores = [accuracy(learner.fit(X, Y).predict(new), new_labels) for learner in (ours, theirs)]
    # Landmarks differ: accuracies may, by what two draws do.
    deviation = 3.0 * math.sqrt(2.0 * scores[1] * (1.0 - scores[1]) / len(new_labels)) + 0.005
    assert scores[0] > scores[1] - deviation, f"{what}: {scores[0]:.4f} against {scores[1]:.4f}"
    return compare(
        what,
        f"n = {n:,}, m = {m:,}",
        ours=lambda: ours.fit(X, Y).predict(new),
        reference=lambda: theirs.fit(X, Y).predict(new),
        goal=1.0,
        repeats=3 if n > 10_000 else 5,
        warmup=0,
        note=f"{100 * scores[0]:.1f} and {100 * scores[1]:.1f} % right",
    )


# -- Dask -------------------------------------------------------------------------------------------------------------
def on_workers(count: int, wake_up: Callable[[], object], work: Callable[[], object]) -> float:
    """Seconds on a LocalCluster of processes with one thread each."""
    import dask
    from distributed import Client, LocalCluster

    single = {f"distributed.nanny.environ.{name}": "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    with (
        dask.config.set(single),
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster),
    ):
        wake_up()
        started = time.perf_counter()
        work()
        return time.perf_counter() - started


def made_on_workers(n: int, chunk: int) -> tuple[Any, Any]:
    """Data that the workers make themselves, as a file or a store would be read by them."""
    import dask.array as da

    X = da.random.default_rng(0).standard_normal((n, D), chunks=(chunk, D))
    return X, da.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def two_workers() -> Row:
    """The sums over the samples, which are the fit but for one m × m solve: two workers against one."""
    what = "fit on two one-thread workers, against one"
    if importlib.util.find_spec("distributed") is None:
        return not_run(what, 'Dask is not installed: pip install "representer[dask]"', 1 / 1.6)
    n = scaled(1_000_000, 40_000)

    def fit(size: int) -> object:
        return model(alpha=1e-4).fit(*made_on_workers(size, size // 16))

    seconds = [on_workers(count, lambda: fit(n // 20), lambda: fit(n)) for count in (2, 1)]
    return Row(what, f"n = {n:,}, m = {M:,}", *seconds, goal=1 / 1.6)


# -- MNIST ------------------------------------------------------------------------------------------------------------
def mnist() -> Row:
    """One-hot ridge regression on 5,000 landmarks; pixels or upright digits, lengthscale and alpha are chosen on
    training data only."""
    what = "MNIST, one-hot ridge on 5,000 landmarks: test digits that are right"
    data = real_data("mnist")
    if data is None:
        return not_run(what, ABSENT.format("mnist"), 98.3, unit="%", at_least=True)
    X, labels, new, new_labels = data
    m = min(LANDMARKS, len(X) // 2)
    Y = one_hot(labels) - 0.1
    part = np.random.default_rng(0).permutation(len(X))
    fit, check = part[: min(len(X) * 5 // 6, 12_000)], part[-min(len(X) // 6, 5000) :]
    forms: dict[str, Callable[[np.ndarray], np.ndarray]] = {"pixels": np.asarray, "upright digits": upright}
    scores = {}
    for form, change in forms.items():
        inputs, held_out = change(X[fit]), change(X[check])
        median = float(Gaussian("median").resolve(inputs).lengthscale)
        for factor in (0.35, 0.5, 0.7, 1.0):
            landmarks = Nystroem(min(1500, len(fit) // 2))
            trial = OperatorRidge(
                Gaussian(factor * median), approximation=landmarks, random_state=0, fit_intercept=False
            )
            right = accuracy(trial.fit(inputs, Y[fit]).predict(held_out), labels[check])
            scores[form, factor, factor * median] = right
    form, factor, lengthscale = max(scores, key=scores.__getitem__)
    started = time.perf_counter()
    X, new = forms[form](X), forms[form](new)
    final = OperatorRidge(Gaussian(lengthscale), approximation=Nystroem(m), random_state=0, fit_intercept=False).fit(
        X, Y
    )
    right = accuracy(final.predict(new), new_labels)
    seconds = time.perf_counter() - started
    note = f"{form}, lengthscale {factor} medians, alpha {final.alpha_:.2g}, fit and prediction {seconds:.0f} s"
    return Row(what, f"n = {len(X):,}, m = {m:,}", 100 * right, goal=98.3, unit="%", at_least=True, note=note)


def upright(digits: np.ndarray) -> np.ndarray:
    """Pictures in the rows, each sheared and shifted until its own second moments stand upright in the middle."""
    side = math.isqrt(digits.shape[1])
    down, across = np.divmod(np.arange(digits.shape[1]), side)
    weights = digits / np.maximum(digits.sum(1, keepdims=True), np.finfo(float).tiny)
    row, column = weights @ down, weights @ across
    height = weights @ down**2 - row**2
    slant = (weights @ (down * across) - row * column) / np.maximum(height, np.finfo(float).eps)
    middle = (side - 1) / 2
    found = np.empty_like(digits)
    for i, picture in enumerate(digits.reshape(-1, side, side)):
        shear = np.array([[1.0, 0.0], [slant[i], 1.0]])
        offset = np.array([row[i], column[i]]) - shear @ [middle, middle]
        found[i] = affine_transform(picture, shear, offset=offset, order=1).ravel()
    return found
