"""Time whole fits, predictions and the import of two checkouts in turns: is the newer one slower?

    python -m benchmarks.two_commits --old OTHER_CHECKOUT/src --repeats 5 [--only NAME ...]

Each source tree has a process of its own; both run the same case one after the other, so that a busy machine slows
both. The table shows medians and their ratio (below 1, the newer one is faster).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1] / "src"


def regression(n: int, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a smooth function with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=n)


def classes(n: int, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Samples of three classes that overlap a little."""
    X, y = regression(n, d)
    return X, np.digitize(y, [-0.2, 0.7])


def fit_of(name: str, data: Callable[[int], tuple[np.ndarray, np.ndarray]], n: int, **arguments: Any) -> Any:
    """A function that fits a learner anew and answers for as many samples, and the same without the fit."""

    def prepared() -> Callable[[], None]:
        import representer

        X, y = data(n)
        supervised = name not in ("KernelAutoencoder", "DeepKernelPCA")
        answer = "predict" if supervised else "transform"
        settings = {key: value() if callable(value) else value for key, value in arguments.items()}

        def run() -> None:
            learner = getattr(representer, name)(**settings)
            if "random_state" in learner.get_params():
                learner.set_params(random_state=0)
            learner.fit(X, y) if supervised else learner.fit(X)
            getattr(learner, answer)(X[: min(n, 1000)])

        return run

    return prepared


def nystroem(m: int) -> Callable[[], Any]:
    """An approximation, made in the process that uses it."""

    def make() -> Any:
        from representer.approximation import Nystroem

        return Nystroem(m)

    return make


def gaussian() -> Any:
    """A kernel whose lengthscales are learned."""
    from representer.kernels import Gaussian

    return Gaussian("ard")


CASES: dict[str, Any] = {
    "ridge n=1000": fit_of("OperatorRidge", regression, 1000, kernel="rbf"),
    "ridge ARD n=500": fit_of("OperatorRidge", regression, 500, kernel=gaussian),
    "ridge n=100,000 m=1000": fit_of("OperatorRidge", regression, 100_000, kernel="rbf", approximation=nystroem(1000)),
    "classifier n=1000": fit_of("EmbeddingClassifier", classes, 1000, kernel="rbf"),
    "conditional n=1000": fit_of("ConditionalMeanEmbedding", regression, 1000, kernel="rbf"),
    "structured n=1000": fit_of("StructuredPredictor", regression, 1000, kernel="rbf"),
    "deep regressor n=300": fit_of("DeepKernelRegressor", regression, 300),
    "deep classifier n=300": fit_of("DeepKernelClassifier", classes, 300),
    "autoencoder n=300": fit_of("KernelAutoencoder", regression, 300),
    "deep PCA n=500": fit_of("DeepKernelPCA", regression, 500),
    "small ridge n=50": fit_of("OperatorRidge", regression, 50, kernel="rbf"),
}
LARGE: dict[str, Any] = {
    "ridge n=1,000,000 m=1000": fit_of(
        "OperatorRidge",
        lambda n: regression(n, 20),
        1_000_000,
        kernel="rbf",
        alpha=1e-6,
        approximation=nystroem(1000),
    ),
}


def work() -> None:
    """Answer the names of cases on standard input with seconds on standard output."""
    warnings.simplefilter("ignore")
    ready: dict[str, Callable[[], None]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = (CASES | LARGE)[name]()
            if name not in LARGE:
                ready[name]()  # once without the clock: imports and caches
        began = time.perf_counter()
        ready[name]()
        print(time.perf_counter() - began, flush=True)


IMPORTS = """
import time
import torch, sklearn.base, sklearn.callback, sklearn.svm, pandas, rich
began = time.perf_counter()
import representer
print(time.perf_counter() - began)
"""


def start(source: Path) -> subprocess.Popen[str]:
    """A process that imports the library from this source tree."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(HERE.parent)])}
    command = [sys.executable, "-m", "benchmarks.two_commits", "--work"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")


def ask(worker: subprocess.Popen[str], name: str) -> float:
    """The seconds that a worker takes for a case."""
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(name + "\n")
    worker.stdin.flush()
    return float(worker.stdout.readline() or "nan")


def import_seconds(source: Path) -> float:
    """The import of the library beyond torch and scikit-learn, in a fresh process."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    return float(subprocess.check_output([sys.executable, "-c", IMPORTS], env=environment, text=True, cwd="/"))


def main() -> None:
    """Print the table, and write it where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--new", type=Path, default=HERE)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--large", action="store_true", help="also a million samples")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work()
    rows = []
    pairs = [(import_seconds(arguments.old), import_seconds(arguments.new)) for _ in range(arguments.repeats)]
    timings = {"import": pairs}
    known = CASES | (LARGE if arguments.large else {})
    names = [name for name in known if not arguments.only or name in arguments.only]
    workers = start(arguments.old.resolve()), start(arguments.new.resolve())
    for name in names:
        repeats = 1 if name in LARGE else arguments.repeats
        timings[name] = [(ask(workers[0], name), ask(workers[1], name)) for _ in range(repeats)]
    for name, pairs in timings.items():
        old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
        rows.append({"what": name, "old": old, "new": new, "ratio": new / old})
        print(f"{name:28} old {old:8.3f} s   new {new:8.3f} s   ratio {new / old:6.2f}", flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for worker in workers:
        worker.kill()
    return None


if __name__ == "__main__":
    main()
