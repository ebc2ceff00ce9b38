"""Time whole fits, predictions and the import of two checkouts in turns: is the newer one slower?

    python -m benchmarks.two_commits --old OTHER/src [--threads 1 2] [--repeats 7] [--only WORD ...] [--million]

Each source tree has a process of its own; both run the same case one after the other, so that a busy machine slows
both. The table shows medians of seconds, their ratio (below 1, the newer one is faster) and that of processor time. A
turn beside which other programs used more than a tenth of the processors is taken again, a few times; the last column
says how many turns of the row were disturbed nevertheless.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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


def task(
    name: str, data: Callable[[int], tuple[np.ndarray, np.ndarray]], n: int, *, rows: int = 0, **arguments: Any
) -> Any:
    """A function that fits a learner and answers for up to 1,000 samples, or with ``rows`` only answers for so many."""

    def prepared() -> Callable[[], None]:
        import representer

        X, y = data(n)
        supervised = name not in ("KernelAutoencoder", "DeepKernelPCA")
        settings = {key: value() if callable(value) else value for key, value in arguments.items()}

        def fitted() -> Any:
            learner = getattr(representer, name)(**settings)
            if "random_state" in learner.get_params():
                learner.set_params(random_state=0)
            return learner.fit(X, y) if supervised else learner.fit(X)

        def answer(learner: Any, X: np.ndarray) -> None:
            (learner.predict if supervised else learner.transform)(X)

        if rows:
            return partial(answer, fitted(), data(rows)[0])
        return lambda: answer(fitted(), X[:1000])

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
    "ridge n=50": task("OperatorRidge", regression, 50, kernel="rbf"),
    "ridge n=300": task("OperatorRidge", regression, 300, kernel="rbf"),
    "ridge n=1,000": task("OperatorRidge", regression, 1000, kernel="rbf"),
    "ridge n=2,000": task("OperatorRidge", regression, 2000, kernel="rbf"),
    "ridge ARD n=500": task("OperatorRidge", regression, 500, kernel=gaussian),
    "EmbeddingClassifier n=300": task("EmbeddingClassifier", classes, 300, kernel="rbf"),
    "EmbeddingClassifier n=1,000": task("EmbeddingClassifier", classes, 1000, kernel="rbf"),
    "ConditionalMeanEmbedding n=1,000": task("ConditionalMeanEmbedding", regression, 1000, kernel="rbf"),
    "StructuredPredictor n=1,000": task("StructuredPredictor", regression, 1000, kernel="rbf"),
    "deep regressor n=300": task("DeepKernelRegressor", regression, 300),
    "deep classifier n=300": task("DeepKernelClassifier", classes, 300),
    "autoencoder n=300": task("KernelAutoencoder", regression, 300),
    "deep PCA n=500": task("DeepKernelPCA", regression, 500),
    "ridge n=100,000 m=1,000": task("OperatorRidge", regression, 100_000, kernel="rbf", approximation=nystroem(1000)),
    "predict: ridge n=1,000": task("OperatorRidge", regression, 1000, rows=20_000, kernel="rbf"),
    "predict: EmbeddingClassifier n=1,000": task("EmbeddingClassifier", classes, 1000, rows=20_000, kernel="rbf"),
    "predict: ConditionalMeanEmbedding n=1,000": task(
        "ConditionalMeanEmbedding", regression, 1000, rows=20_000, kernel="rbf"
    ),
    "predict: StructuredPredictor n=1,000": task("StructuredPredictor", regression, 1000, rows=2_000, kernel="rbf"),
    "predict: deep regressor n=300": task("DeepKernelRegressor", regression, 300, rows=20_000),
}
# Defaults have come to do more: these have the same arguments, and solve the same problem, in both trees.
SAME = {"layers": [5], "kernel": "rbf", "n_restarts": 4}
CASES |= {
    "same deep regressor n=300": task("DeepKernelRegressor", regression, 300, **SAME),
    "same deep classifier n=300": task("DeepKernelClassifier", classes, 300, loss="logistic", **SAME),
    "same autoencoder n=300": task("KernelAutoencoder", regression, 300, kernel="rbf", decoder_kernel="rbf"),
    "same ConditionalMeanEmbedding n=1,000": task(
        "ConditionalMeanEmbedding", regression, 1000, kernel="rbf", output_kernel="rbf"
    ),
    "predict: same deep regressor n=300": task("DeepKernelRegressor", regression, 300, rows=20_000, **SAME),
}
MILLION = "ridge n=1,000,000 m=1,000"
LARGE: dict[str, Any] = {
    MILLION: task(
        "OperatorRidge",
        lambda n: regression(n, 20),
        1_000_000,
        kernel="rbf",
        alpha=1e-6,
        approximation=nystroem(1000),
    ),
}

LEAST_SECONDS = 0.3  # a shorter case is run several times in a turn
DISTURBED = 0.1  # the share of the processors that other programs may use in a turn
TRIES = 4  # so many times a disturbed turn is taken


def processor_seconds() -> float:
    """Processor time of this process and of those that it waited for."""
    times = os.times()  # in hundredths of a second, which are too coarse for a small fit
    return time.process_time() + times.children_user + times.children_system


def work() -> None:
    """Answer the names of cases on standard input with seconds and processor seconds of a run on standard output."""
    warnings.simplefilter("ignore")
    ready: dict[str, Callable[[], None]] = {}
    loops: dict[str, int] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = (CASES | LARGE)[name]()
            began = time.perf_counter()
            if name not in LARGE:
                ready[name]()  # once before the clock counts: imports and caches
            seconds = time.perf_counter() - began
            loops[name] = 1 if name in LARGE else max(1, min(100, round(LEAST_SECONDS / seconds)))
        began, used = time.perf_counter(), processor_seconds()
        for _ in range(loops[name]):
            ready[name]()
        spent = time.perf_counter() - began, processor_seconds() - used
        print(*(value / loops[name] for value in spent), loops[name], flush=True)


IMPORTS = """
import time
import torch, sklearn.base, sklearn.callback, sklearn.svm, pandas, rich
began, used = time.perf_counter(), time.process_time()
import representer
print(time.perf_counter() - began, time.process_time() - used)
"""


@dataclass(frozen=True)
class Turn:
    """Seconds and processor seconds of the older and of the newer tree, and whether other programs disturbed them."""

    seconds: tuple[float, float]
    used: tuple[float, float]
    disturbed: bool


def start(source: Path, threads: int) -> subprocess.Popen[str]:
    """A process that imports the library from this source tree."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(source), str(HERE.parent)]),
        "OMP_NUM_THREADS": str(threads),
    }
    command = [sys.executable, "-m", "benchmarks.two_commits", "--work"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")


def busy_seconds() -> float:
    """Processor time of the whole machine since it was started; zero where the system does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def asked(worker: subprocess.Popen[str], name: str) -> tuple[float, float, bool]:
    """The seconds and processor seconds that a worker takes for a case, and whether it was disturbed."""
    assert worker.stdin is not None and worker.stdout is not None
    began, busy = time.perf_counter(), busy_seconds()
    worker.stdin.write(name + "\n")
    worker.stdin.flush()
    answer = worker.stdout.readline().split()
    if not answer:
        raise SystemExit(f"The process of {name!r} ended without an answer; its error stands above.")
    seconds, used, loops = map(float, answer)
    others = busy_seconds() - busy - loops * used
    return seconds, used, others > DISTURBED * (os.cpu_count() or 1) * (time.perf_counter() - began)


def turn(workers: Sequence[subprocess.Popen[str]], name: str, tries: int) -> Turn:
    """Both trees one after the other, again where other programs disturbed them."""
    for _ in range(tries):
        (old, old_used, first), (new, new_used, second) = (asked(worker, name) for worker in workers)
        result = Turn((old, new), (old_used, new_used), first or second)
        if not result.disturbed:
            break
    return result


def imports(sources: Sequence[Path]) -> Turn:
    """The import of the library beyond torch and scikit-learn, in fresh processes."""
    seconds = []
    for source in sources:
        environment = os.environ | {"PYTHONPATH": str(source)}
        answer = subprocess.check_output([sys.executable, "-c", IMPORTS], env=environment, text=True, cwd="/")
        seconds.append(tuple(map(float, answer.split())))
    (old, old_used), (new, new_used) = seconds
    return Turn((old, new), (old_used, new_used), False)


def row(what: str, threads: int, turns: Sequence[Turn]) -> dict[str, Any]:
    """The medians of the turns of a case."""
    calm = [turn for turn in turns if not turn.disturbed]
    counted = calm if len(calm) >= 3 else turns
    old, new = (statistics.median(turn.seconds[i] for turn in counted) for i in (0, 1))
    old_used, new_used = (statistics.median(turn.used[i] for turn in counted) for i in (0, 1))
    return {
        "what": what,
        "threads": threads,
        "old": old,
        "new": new,
        "ratio": new / old,
        "processor ratio": new_used / old_used,
        "turns": len(turns),
        "disturbed": len(turns) - len(calm),
    }


def shown(row: dict[str, Any]) -> str:
    """A row of a table in Markdown."""
    return (
        f"| {row['what']} | {row['threads']} | {row['old']:.3f} s | {row['new']:.3f} s | **{row['ratio']:.2f}** "
        f"| {row['processor ratio']:.2f} | {row['disturbed']} of {row['turns']} |"
    )


def main() -> None:
    """Print the table, and write it where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required="--work" not in sys.argv)
    parser.add_argument("--new", type=Path, default=HERE)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="*", default=[], help="words of the cases to run")
    parser.add_argument("--million", action="store_true", help=f"only {MILLION}, once a tree")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work()
    sources = arguments.old.resolve(), arguments.new.resolve()
    print(
        "| what | threads | old | new | ratio | processor time | disturbed |\n|---|---|---|---|---|---|---|", flush=True
    )
    rows = []

    def add(what: str, threads: int, turns: Sequence[Turn]) -> None:
        rows.append(row(what, threads, turns))
        print(shown(rows[-1]), flush=True)

    wanted = [name for name in CASES if not arguments.only or any(word in name for word in arguments.only)]
    if not arguments.million and (not arguments.only or "import" in arguments.only):
        add("import", 1, [imports(sources) for _ in range(arguments.repeats)])
    for threads in arguments.threads:
        workers = [start(source, threads) for source in sources]
        for name in [MILLION] if arguments.million else wanted:
            repeats, tries = (1, 1) if arguments.million else (arguments.repeats, TRIES)
            add(name, threads, [turn(workers, name, tries) for _ in range(repeats)])
        for worker in workers:
            worker.kill()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
