"""Two source trees on the same random learners, kernels, options and data: ``python -m benchmarks.differential``.

``--old SRC --new SRC --cases 300 --seed 0`` starts a worker for each tree. Both fit the same random cases. With all
numbers given, answers must agree to 1e-8 in units of the output; of a search, what it minimises may not be larger by
more than 1e-3. A case that differs is fitted by the old tree once more, with relative errors of 1e-13 in data and
arguments: a difference that such errors explain is listed apart. Arguments that were renamed are translated in
``tests/golden/vocabulary.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
TOLERANCE, WORSE = 1e-8, 1e-3
# Relative errors of the data that show how strongly a case depends on rounding, and the share that they explain.
JITTER, EXPLAINED = 1e-13, 100.0
SECONDS = 120.0

Spec = dict[str, Any]


# -- random cases -----------------------------------------------------------------------------------------------------
class Draw:
    """Random choices of one case; expressions are strings, so that each tree makes its own objects of them."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.searched = self.chance(0.25)

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return bool(self.rng.random() < probability)

    def one(self, *options: Any) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: float, high: float) -> float:
        """A number, evenly spread on the logarithmic scale."""
        return round(float(np.exp(self.rng.uniform(np.log(low), np.log(high)))), 4)

    def scale(self) -> Any:
        """A lengthscale: a number, or a word if something is searched."""
        return self.one("'auto'", "'median'") if self.searched and self.chance(0.6) else self.number(0.5, 2.0)

    def alpha(self, *, candidates: bool = False) -> str:
        """A weight of the norm; where the learner takes some, maybe several candidates."""
        if self.searched and self.chance(0.7):
            return "'auto'"
        if candidates and self.chance(0.3):
            return repr(sorted({self.number(1e-4, 1.0) for _ in range(4)}))
        return repr(self.number(1e-4, 1e-1))

    def vector_kernel(self) -> str:
        """A kernel of vectors."""
        simple = self.one(
            f"Gaussian({self.scale()})",
            f"Laplacian({self.scale()})",
            f"Matern({self.one(0.5, 1.5, 2.5)}, {self.scale()})",
            f"RationalQuadratic({self.scale()}, {self.number(0.5, 3.0)})",
            f"TensorMatern({self.one(1, 2)}, {self.scale()})",
            f"Polynomial({self.one(1, 2, 3)}, {self.number(0.2, 1.0)}, {self.number(0.3, 2.0)})",
            "Linear()",
            "'rbf'",
        )
        return simple if simple == "'rbf'" else self.composed(simple)

    def composed(self, kernel: str) -> str:
        """The kernel, or a composition of it."""
        return self.one(
            kernel,
            kernel,
            kernel,
            f"({kernel} + {self.number(0.1, 2.0)})",
            f"{self.number(0.3, 3.0)} * {kernel}",
            f"({kernel} * {kernel} + {self.number(0.2, 1.0)} * {kernel})",
            f"{kernel}.normalized()",
            f"{kernel}.centered()",
        )

    def kernel(self, kind: str) -> str:
        """A kernel of a kind of data."""
        objects: dict[str, tuple[str, ...]] = {
            "strings": (
                "Spectrum((1, 2))",
                "Spectrum(2)",
                "Mismatch(2, 1)",
                f"Subsequence(2, {self.number(0.3, 0.9)})",
                f"Edit({self.number(3.0, 9.0)})",
            ),
            "graphs": ("WeisfeilerLehman(2)", "ShortestPath()", "VertexHistogram()", "RandomWalk(0.02)"),
            "molecules": ("Molecule()", "Molecule(1, counts=True)"),
            "bags": (
                f"MeanMap(Gaussian({self.scale()}))",
                "MeanMap(Linear(), Gaussian(1.0))",
                "MeanMap(Linear())",
            ),
            "curves": (f"Functional(Gaussian({self.scale()}), interval='hull', domain='objects')",),
            "series": (f"GlobalAlignment({self.scale()})", "Signature(2, scale=0.7)"),
            "frame": (
                f"Columns({{'width': Gaussian({self.scale()}), 'colour': Delta()}})",
                "Columns({'name': Spectrum(1), ('width', 'height'): Gaussian(1.0)}, weights=[0.5, 2.0])",
                "Columns({'width': Gaussian(0.6), 'colour': Delta() + 0.5}, 'product')",
            ),
            "fingerprints": ("Tanimoto()", "MinMax()"),
        }
        if kind == "gram":
            return "'precomputed'"
        return self.composed(self.one(*objects[kind])) if kind in objects else self.vector_kernel()

    def kind(self) -> str:
        """A kind of data, half of the time vectors."""
        objects = [
            "strings",
            "graphs",
            "molecules",
            "bags",
            "curves",
            "series",
            "frame",
            "gram",
            "fingerprints",
        ]
        return "vectors" if self.chance(0.5) else self.one(*objects)

    def approximation(self, arguments: Spec, kind: str) -> str:
        """An approximation for the kernel of these arguments."""
        m = self.one(8, 12, 20)
        nystroem = f"Nystroem({m}, {self.one('uniform', 'uniform', 'leverage', 'pivots')!r})"
        if kind != "vectors":
            return nystroem
        choice = self.one("nystroem", "landmarks", "random", "sketch")
        if choice == "random":
            arguments["kernel"] = f"{self.one('Gaussian', 'Laplacian')}({self.scale()})"
            return f"RandomFeatures({self.one(30, 60)}, {self.chance(0.5)})"
        if choice == "sketch":
            arguments["kernel"] = f"Polynomial(2, {self.number(0.2, 1.0)})"
            return "TensorSketch(40)"
        return nystroem if choice == "nystroem" else f"Landmarks(data.X[:{m}])"

    def how(self, arguments: Spec, kind: str, *, batches: bool = True) -> str:
        """In memory, on Dask or by batches; only approximate fits of vectors have the choice."""
        if kind != "vectors" or "approximation" not in arguments:
            return "fit"
        return self.one("fit", "dask", "batches" if batches else "dask")


def _ridge(draw: Draw) -> Spec:
    kind = draw.kind()
    y = draw.one("y", "Y", "Y", "missing")
    arguments = {"kernel": draw.kernel(kind), "alpha": draw.alpha(candidates=True)}
    if y != "y" and draw.chance(0.6):
        operators = ["Dense([[1.0, 0.4], [0.4, 0.8]])", "Diagonal([1.0, 0.3])", "Identity()", "Covariance()"]
        arguments["operator"] = draw.one(*operators, *(["'learn'"] if draw.searched else []))
    if draw.chance(0.3):
        arguments["criterion"] = "'gcv'"
    if draw.chance(0.35):
        arguments["approximation"] = draw.approximation(arguments, kind)
    elif y != "y" and kind == "vectors" and draw.chance(0.3):
        arguments.pop("operator", None)
        one, two = draw.vector_kernel(), draw.vector_kernel()
        arguments["kernel"] = f"Separate([as_kernel({one}), as_kernel({two})])"
    how = draw.how(arguments, kind)
    return {"data": kind, "y": y, "arguments": arguments, "how": how, "weighted": draw.chance(0.3)}


def _layers(draw: Draw, kind: str) -> str:
    alpha = draw.number(1e-3, 1e-1)
    first = "Polynomial(1)" if kind == "vectors" and draw.chance(0.5) else f"as_kernel({draw.kernel(kind)})"
    return f"[Layer({first}, {draw.one(1, 2)}, alpha={alpha})]"


def _deep(draw: Draw, losses: tuple[str, ...]) -> Spec:
    kind, deep = draw.kind(), draw.chance(0.5)
    arguments = {
        "kernel": draw.kernel(kind),
        "layers": "[]",
        "alpha": draw.alpha(),
        "loss": repr(draw.one(*losses)),
    }
    if deep:
        arguments |= {
            "layers": _layers(draw, kind),
            "kernel": f"{draw.one('Laplacian', 'Matern')}(lengthscale=1.0)",
        }
        if draw.chance(0.3):
            arguments |= {"loss": "'squared'", "approximation": "Nystroem(14)"}
    if draw.chance(0.3):
        arguments["fit_intercept"] = "False"
    if draw.searched:
        arguments |= {"criterion": repr(draw.one("loo", "gcv", "validation")), "cv": "3"}
    arguments |= {"n_restarts": "1", "max_iter": "3" if not draw.searched else "30"}
    return {"data": kind, "arguments": arguments, "how": draw.how(arguments, kind, batches=False)}


def _regressor(draw: Draw) -> Spec:
    spec = _deep(draw, ("squared", "squared", "huber", "epsilon_insensitive"))
    return {**spec, "y": draw.one("y", "Y")}


def _classifier(draw: Draw) -> Spec:
    spec = _deep(draw, ("squared", "logistic", "hinge", "squared_hinge"))
    spec["arguments"]["calibrated"] = repr(draw.chance(0.3) and spec["arguments"]["layers"] == "[]")
    spec["arguments"]["cv"] = "3"
    return {**spec, "y": draw.one("labels", "pair")}


def _autoencoder(draw: Draw) -> Spec:
    draw.searched = False  # a search of its hyperparameters ends elsewhere after the smallest error
    kind = draw.kind()
    arguments = {
        "n_components": draw.one("1", "2", "[3, 1]"),
        "kernel": draw.kernel(kind),
        "decoder_kernel": draw.one("Laplacian(1.0)", "Gaussian(0.8)", "Matern(1.5, 1.0)"),
        "alpha": repr(draw.number(1e-3, 1e-1)),
        "encoder_alpha": repr(draw.number(1e-3, 1e-1)),
        "n_restarts": "1",
        "max_iter": "3",
    }
    if draw.chance(0.3):
        arguments["target"] = "'kernel'"
    if draw.chance(0.3):
        arguments["fit_intercept"] = "False"
    if draw.chance(0.3):
        arguments["approximation"] = "Nystroem(14)"
    supervised = draw.chance(0.2)
    if supervised:
        arguments["supervision"] = "1.5"
    y = draw.one("y", "labels") if supervised else None
    return {"data": kind, "arguments": arguments, "y": y, "how": draw.how(arguments, kind, batches=False)}


def _structured(draw: Draw) -> Spec:
    kind = draw.kind()
    y, output, decoder = draw.one(
        ("words", "Spectrum((1, 2)).normalized()", "'candidates'"),
        ("words", "Edit(5.0)", "'candidates'"),
        ("Y", "Gaussian(0.8)", "'candidates'"),
        ("Y", "'linear'", "'direct'"),
        ("sets", "'linear'", "LabelSet()"),
        ("sets", "Tanimoto()", "LabelSet(search='local')"),
        ("tags", "WeightedDegree()", "Sequence(lengths=5)"),
        ("labels", "'delta'", "'candidates'"),
        ("ranks", "'linear'", "'candidates'"),
    )
    arguments = {
        "kernel": draw.kernel(kind),
        "output_kernel": output,
        "decoder": decoder,
        "alpha": draw.alpha(candidates=True),
        "operator": repr(draw.one("identity", "identity", "kpca", "covariance", "conditional_covariance")),
        "center": repr(draw.chance(0.3)),
    }
    if not draw.searched:
        arguments |= {"epsilon": repr(draw.number(1e-2, 1.0)), "n_components": "2"}
    if arguments["operator"] != "'conditional_covariance'":
        arguments.pop("epsilon", None)
    if draw.chance(0.35):
        arguments["approximation"] = draw.one("Nystroem(12)", "(Nystroem(14), Nystroem(6))")
    how = draw.how(arguments, kind)
    return {
        "data": kind,
        "arguments": arguments,
        "y": y,
        "how": how if y in ("Y", "sets", "ranks") else "fit",
    }


def _conditional(draw: Draw) -> Spec:
    kind = draw.kind()
    y, output = draw.one(("y", "Gaussian(0.7)"), ("y", "'rbf'"), ("Y", "Gaussian(0.8)"), ("words", "Spectrum(2)"))
    arguments = {"kernel": draw.kernel(kind), "output_kernel": output, "alpha": draw.alpha()}
    arguments["fit_intercept"] = repr(draw.chance(0.7))
    arguments["criterion"] = repr(draw.one("loo", "validation")) if draw.searched else "None"
    if draw.chance(0.35):
        arguments["approximation"] = draw.approximation(arguments, kind)
    return {
        "data": kind,
        "arguments": arguments,
        "y": y,
        "how": draw.how(arguments, kind) if y != "words" else "fit",
    }


def _embedding(draw: Draw) -> Spec:
    kind = draw.kind()
    arguments = {"kernel": draw.kernel(kind), "alpha": draw.alpha(), "fit_intercept": repr(draw.chance(0.7))}
    arguments["calibration"] = draw.one("'loo'", "None")
    objectives = ("loo", "rademacher", "erm", "validation")
    arguments["objective"] = repr(draw.one(*objectives)) if draw.searched else "None"
    if draw.chance(0.35):
        arguments["approximation"] = draw.approximation(arguments, kind)
    how = draw.how(arguments, kind)
    return {"data": kind, "arguments": arguments, "y": draw.one("labels", "pair"), "how": how}


def _levels(draw: Draw) -> Spec:
    kind = draw.kind()
    first, upper = f"as_kernel({draw.kernel(kind)})", draw.one("'linear'", "Gaussian(1.0)", "Polynomial(2)")
    arguments = {
        "kernels": f"[{first}, {upper}]" if draw.chance(0.6) else f"[{first}]",
        "eta": repr(draw.one(1.0, 5.0, 20.0)),
        "center": repr(draw.chance(0.7)),
        "extension": repr(draw.one("exact", "exact", "smoother")),
    }
    arguments["n_components"] = "[3, 2]" if "," in arguments["kernels"] and upper in arguments["kernels"] else "[3]"
    if draw.searched:
        arguments |= {"solver": repr(draw.one("auto", "scf", "riemannian")), "eta": "1.0"}
    else:
        arguments |= {"tol": "1e-11"}
    if kind != "gram" and draw.chance(0.25):
        arguments["max_samples"] = "20"
    return {"data": kind, "arguments": arguments, "y": None, "how": "fit"}


def _features(draw: Draw) -> Spec:
    draw.searched = False
    kind = draw.kind()
    arguments = {"kernel": draw.kernel(kind)}
    arguments["approximation"] = draw.approximation(arguments, kind)
    return {"data": kind, "arguments": arguments, "y": None, "how": draw.how(arguments, kind, batches=False)}


LEARNERS: dict[str, Callable[[Draw], Spec]] = {
    "OperatorRidge": _ridge,
    "DeepKernelRegressor": _regressor,
    "DeepKernelClassifier": _classifier,
    "KernelAutoencoder": _autoencoder,
    "StructuredPredictor": _structured,
    "ConditionalMeanEmbedding": _conditional,
    "EmbeddingClassifier": _embedding,
    "DeepKernelPCA": _levels,
    "KernelFeatures": _features,
}
MINIMISED = {"EmbeddingClassifier": "objective_value_", "DeepKernelPCA": "-energy_"}
# Probabilities and ways back to the inputs end a search of their own.
LOOSE = {"predict_proba": 1e-6, "entropy": 1e-6, "reconstruct": 1e-5, "sample_": 1e-5, "traverse": 1e-5}


def random_case(seed: int, learners: list[str]) -> Spec:
    """A learner with arguments as expressions, its data and how it is fitted."""
    draw = Draw(seed)
    learner = draw.one(*learners)
    spec = LEARNERS[learner](draw)
    if learner != "DeepKernelPCA" or "max_samples" in spec["arguments"]:
        spec["arguments"]["random_state"] = str(draw.one(0, 1, 2))
    minimised = MINIMISED.get(learner, "criterion_value_") if draw.searched else None
    size = {"n": int(draw.rng.integers(24, 45)), "seed": int(draw.rng.integers(1000))}
    return {"case": seed, "learner": learner, **spec, **size, "minimised": minimised}


# -- workers ----------------------------------------------------------------------------------------------------------
def answer(spec: Spec, jitter: float = 0.0) -> Spec:
    """Fit one case in this process, and return its answers or its refusal."""
    from golden.cases import Case

    import representer
    from representer import approximation, kernels, operators, preimage

    scope: dict[str, Any] = {"np": np}
    for module in (representer, kernels, operators, approximation, preimage):
        scope |= {name: getattr(module, name) for name in module.__all__}

    def options(data: Any) -> dict[str, Any]:
        values = {name: eval(text, scope | {"data": data}) for name, text in spec["arguments"].items()}
        # Strings and graphs have no numbers that could be inexact; weights such as alpha have.
        return {n: v * (1.0 + jitter) if isinstance(v, float) else v for n, v in values.items()}

    fields = {name: spec[name] for name in ("learner", "data", "y", "how", "n", "seed", "minimised")}
    case = Case(**fields, options=options, weighted=spec.get("weighted", False), jitter=jitter)
    try:
        answers = case.run()
    except Exception as error:
        return {"refused": type(error).__name__, "message": str(error)[:300]}
    return {"answers": {name: {"shape": a.shape, "values": a.ravel().tolist()} for name, a in answers.items()}}


def work() -> None:
    """Answer requests, one JSON document a line, until there are no more."""
    replies, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        reply = answer(request["spec"], request["jitter"])
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


class Worker:
    """A process that fits with one source tree."""

    def __init__(self, source: Path, *, recorded_names: bool):
        if not (source / "representer" / "__init__.py").exists():
            raise SystemExit(f"{source} holds no package representer; give the folder src of a checkout.")
        paths = (str(source.resolve()), str(ROOT / "tests"), str(ROOT))
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        if recorded_names:
            self.environment["REPRESENTER_RECORDED_NAMES"] = "1"
        self.start()

    def start(self) -> None:
        """Begin the process."""
        command = [sys.executable, "-m", "benchmarks.differential", "--worker"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            cwd=ROOT,
            text=True,
        )

    def send(self, spec: Spec, jitter: float = 0.0) -> None:
        """Hand over a case."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"spec": spec, "jitter": jitter}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Spec:
        """The reply; a process that takes too long or dies is replaced."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.stop()
        self.start()
        reason = "ended" if ready else f"took more than {SECONDS:.0f} s"
        return {"refused": "Crash", "message": f"The process {reason}."}

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


# -- comparison -------------------------------------------------------------------------------------------------------
def difference(expected: np.ndarray, found: np.ndarray) -> float:
    """The largest difference in units of the output; infinite where shapes or missing numbers differ."""
    if expected.shape != found.shape or (np.isfinite(expected) != np.isfinite(found)).any():
        return np.inf
    known = np.isfinite(expected)
    if not known.any():
        return 0.0
    scale = max(1.0, float(np.abs(expected[known]).max()))
    return float(np.abs(expected[known] - found[known]).max()) / scale


def _arrays(reply: Spec) -> dict[str, np.ndarray]:
    return {n: np.array(a["values"], dtype=float).reshape(a["shape"]) for n, a in reply["answers"].items()}


def deviations(old: Spec, new: Spec) -> Iterator[tuple[str, float, float]]:
    """By answer, how far the new one is from the old one, and how far it may be."""
    expected, found = _arrays(old), _arrays(new)
    if "minimised" in expected and "minimised" in found:
        before, after = (float(answers["minimised"]) for answers in (expected, found))
        yield "minimised", (after - before) / max(abs(before), 1e-12), WORSE
        return
    for name, value in expected.items():
        allowed = next((loose for start, loose in LOOSE.items() if name.startswith(start)), TOLERANCE)
        yield name, difference(value, found[name]) if name in found else np.inf, allowed


def verdict(old: Spec, new: Spec, repeat: Callable[[], Spec]) -> tuple[str, str]:
    """What the two replies say about the case, and why; ``repeat`` asks the old tree with inexact data."""
    if "refused" in old:
        if "refused" not in new:
            return "answered now", old["message"]
        known = {"ValueError", "TypeError"}
        same = old["refused"] == new["refused"] or {old["refused"], new["refused"]} <= known
        return (
            ("both refuse", new["message"])
            if same
            else ("DIFFERS", f"{old['refused']} → {new['refused']}: {new['message']}")
        )
    if "refused" in new:
        return "DIFFERS", f"refused: {new['refused']}: {new['message']}"
    wrong = {name: (value, allowed) for name, value, allowed in deviations(old, new) if not value <= allowed}
    if not wrong:
        return "agree (search)" if "minimised" in old["answers"] else "agree", ""
    why = ", ".join(f"{name} {value:.1e} > {allowed:.0e}" for name, (value, allowed) in wrong.items())
    inexact = repeat()
    if "answers" in inexact:
        moved = {name: abs(value) for name, value, _ in deviations(old, inexact)}
        if all(value <= EXPLAINED * moved[name] for name, (value, _) in wrong.items()):
            return "rounding", why
    return "DIFFERS", why


def compare(old: Worker, new: Worker, specs: list[Spec], console: Console) -> list[tuple[Spec, str, str]]:
    """The verdicts of all cases, with a line for each that differs."""
    rows = []

    def repeat(spec: Spec) -> Spec:
        old.send(spec, JITTER)
        return old.receive()

    for spec in specs:
        for worker in (old, new):
            worker.send(spec)
        replies = old.receive(), new.receive()
        result, why = verdict(*replies, lambda spec=spec: repeat(spec))
        rows.append((spec, result, why))
        if result == "DIFFERS":
            console.print(f"case {spec['case']}: {json.dumps(spec)}\n    {why}", markup=False, highlight=False)
    return rows


def show(rows: list[tuple[Spec, str, str]], console: Console, *, refusals: bool) -> int:
    """Print what differs and a summary by learner; the number of cases that differ."""
    apart = [row for row in rows if row[1] in ("DIFFERS", "rounding", "answered now")]
    if apart:
        table = Table("case", "learner", "data", "fit", "arguments", "verdict", "why", title="Cases that differ")
        for spec, result, why in apart:
            arguments = ", ".join(f"{name}={text}" for name, text in spec["arguments"].items())
            cells = (str(spec["case"]), spec["learner"], spec["data"], spec["how"], arguments, result, why)
            table.add_row(*(cell.replace("[", r"\[") for cell in cells))
        console.print(table)
    if refusals:
        for spec, result, why in rows:
            if result == "both refuse":
                line = f"case {spec['case']}, {spec['learner']}: {why}"
                console.print(line, markup=False, highlight=False, overflow="ellipsis", no_wrap=True)
    results = ["agree", "agree (search)", "both refuse", "rounding", "answered now", "DIFFERS"]
    counts = Counter((spec["learner"], result) for spec, result, _ in rows)
    summary = Table("learner", *results, title="Summary")
    for learner in LEARNERS:
        summary.add_row(learner, *(str(counts[learner, result]) for result in results))
    totals = Counter(result for _, result, _ in rows)
    summary.add_section()
    summary.add_row("all", *(str(totals[result]) for result in results))
    console.print(summary)
    return totals["DIFFERS"]


def main() -> None:
    """Compare two trees on random cases; the exit status is 1 if some differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, help="folder src of the checkout to compare with")
    parser.add_argument("--new", type=Path, default=ROOT / "src", help="folder src of the other one")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case; each has its own")
    parser.add_argument("--learner", action="append", choices=list(LEARNERS), help="only these learners")
    parser.add_argument("--refusals", action="store_true", help="also say why cases were refused by both")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work()
    if arguments.old is None:
        parser.error("--old is needed: the folder src of the checkout to compare with.")
    console, began = Console(width=170), time.perf_counter()
    old, new = Worker(arguments.old, recorded_names=True), Worker(arguments.new, recorded_names=False)
    first, learners = arguments.seed, arguments.learner or list(LEARNERS)
    specs = [random_case(first + i, learners) for i in range(arguments.cases)]
    try:
        wrong = show(compare(old, new, specs, console), console, refusals=arguments.refusals)
    finally:
        old.stop()
        new.stop()
    console.print(f"{len(specs)} cases in {time.perf_counter() - began:.0f} s: {wrong} differ.")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
