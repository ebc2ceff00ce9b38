"""Random cases: a learner with its arguments as code, data of some kind, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

import representer
from fuzz.data import make_data
from representer import approximation, kernels, operators, preimage

SCOPE: dict[str, Any] = {"np": np}
for _module in (representer, kernels, operators, approximation, preimage):
    SCOPE |= {name: getattr(_module, name) for name in _module.__all__}

# Powers of ten of the units of X and y; the last ones are beyond what squares survive.
USUAL_POWERS, LARGE_POWERS = (0, 0, 0, -3, 3), (-12, 12, -100, 100, -160, 160, 300)
N_QUERIES = 7
MOST_DEEP = 18  # samples of deep learners, whose cases take most of the time


@dataclass(frozen=True)
class Case:
    """One fit with its data; ``code`` says it in Python, so that a failure can be repeated by hand."""

    seed: int
    learner: str
    arguments: dict[str, str]
    kind: str = "vectors"
    target: str | None = "y"
    n: int = 24
    n_features: int = 2
    x_power: int = 0
    y_power: int = 0
    offset: float = 0.0
    blemishes: tuple[str, ...] = ()
    container: str = "array"
    weighted: bool = False
    grouped: bool = False
    noisy: bool = False
    questions: tuple[str, ...] = ()
    data: tuple[Any, Any, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _vectors(self) if self.kind == "vectors" else _objects(self))

    @property
    def code(self) -> str:
        """The learner as Python code."""
        arguments = ", ".join(f"{name}={text}" for name, text in self.arguments.items())
        return f"{self.learner}({arguments})"

    @property
    def is_given(self) -> bool:
        """Are all numbers given, and none of the samples drawn at random?"""
        text = self.code
        return not any(
            word in text for word in ("'auto'", "'median'", "'rbf'", "'ard'", "'learn'", "Nystroem", "Random", "Stack")
        )

    def model(self) -> Any:
        """The learner, not fitted."""
        return eval(self.code, SCOPE | {"X": self.data[0]})

    def keywords(self) -> dict[str, Any]:
        """Weights and groups of the samples."""
        rng = np.random.default_rng(self.seed + 1)
        found: dict[str, Any] = {}
        if self.weighted:
            found["sample_weight"] = rng.choice([0.0, 0.5, 1.0, 3.0], self.n, p=[0.1, 0.3, 0.4, 0.2])
        if self.grouped:
            found["groups"] = np.arange(self.n) // 3
        if self.noisy:
            found["noise"] = rng.uniform(0.05, 0.5, self.n) * 10.0**self.y_power
        return found

    def fitted(self, order: np.ndarray | None = None) -> Any:
        """The learner fitted to the samples, in some order; with ``warm_start`` it is fitted twice."""
        X, y, _ = self.data
        keywords = self.keywords()
        if order is not None:
            X = X[order][:, order] if self.kind == "gram" else take(X, order)
            y = None if y is None else take(y, order)
            keywords = {name: values[order] for name, values in keywords.items()}
        target = () if y is None else (y,)
        model = self.model().fit(contained(X, self.container), *target, **keywords)
        return model.fit(contained(X, self.container), *target, **keywords) if "warm_start" in self.arguments else model

    def fitted_by_batches(self) -> Any:
        """The learner fitted to one half of the samples, and then to the other."""
        (X, y, _), weights, model = self.data, self.keywords().get("sample_weight"), self.model()
        for i, rows in enumerate((slice(0, self.n // 2), slice(self.n // 2, None))):
            options = {} if weights is None else {"sample_weight": weights[rows]}
            if i == 0 and self.learner == "EmbeddingClassifier":
                options["classes"] = np.unique(y)
            model.partial_fit(contained(take(X, rows), self.container), take(y, rows), **options)
        return model

    def queries(self, rows: Any = slice(None)) -> Any:
        """The new samples, or some of them, as the user has them."""
        return contained(take(self.data[2], rows), self.container)


def take(data: Any, rows: Any) -> Any:
    """Some samples of an array, a frame, a list or sparse rows."""
    if hasattr(data, "iloc"):
        return data.iloc[rows]
    if isinstance(data, list):
        return data[rows] if isinstance(rows, slice) else [data[i] for i in rows]
    return data[rows]


def contained(X: Any, container: str) -> Any:
    """An array of numbers as a user may have it."""
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f" or container == "array":
        return X
    if container == "frame":
        return pd.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])])
    if container == "torch":
        return torch.from_numpy(X.copy())
    if container == "fortran":
        return np.asfortranarray(X)
    return X.tolist()


def _vectors(case: Case) -> tuple[Any, Any, Any]:
    """Points on a grid of 2⁻²⁰, so that offsets do not round them, and targets that depend on them."""
    rng = np.random.default_rng(case.seed)
    points = np.round(rng.normal(size=(case.n + N_QUERIES, case.n_features)) * 2**20) / 2**20
    if "duplicates" in case.blemishes:
        points[1], points[3] = points[0], points[2]
    if "constant column" in case.blemishes:
        points[:, 0] = 1.0
    if "constant" in case.blemishes:
        points[:] = 0.5
    if "outlier" in case.blemishes:
        points[0] *= 1e4
    if "gaps" in case.blemishes:
        points[rng.random(points.shape) < 0.15] = np.nan
    known = np.nan_to_num(points)
    clean = np.sin(2.0 * known[:, :1]) + 0.5 * known[:, -1:] ** 2
    Y = clean * [1.0, -0.5] + 0.1 * rng.normal(size=(len(points), 2))
    if "zero targets" in case.blemishes:
        Y[:] = 0.0
    X = (points + case.offset) * 10.0**case.x_power
    y = _target(case, Y[: case.n], clean[: case.n, 0], rng)
    return X[: case.n], y, X[case.n :]


def _target(case: Case, Y: np.ndarray, clean: np.ndarray, rng: np.random.Generator) -> Any:
    unit = 10.0**case.y_power
    if case.target is None:
        return None
    if case.target in ("missing", "gaps"):
        Y = np.where(rng.random(Y.shape) < 0.2, np.nan, Y)
        Y[0] = 1.0
    if case.target == "labels":
        return np.array(["low", "mid", "high"])[np.digitize(clean, np.quantile(clean, [0.3, 0.7]))]
    if case.target == "pair":
        return (clean > np.median(clean)).astype(int)
    if case.target == "words":
        return [["north", "east", "south", "west"][int(i)] for i in np.digitize(clean, [-0.5, 0.2, 0.8])]
    return Y[:, 0] * unit if case.target in ("y", "gaps") else Y * unit


def _objects(case: Case) -> tuple[Any, Any, Any]:
    made = make_data(case.kind, case.n, case.seed % 1000, 0.0)
    y = None if case.target is None else getattr(made, case.target)
    if isinstance(y, np.ndarray) and y.dtype.kind == "f":
        y = y * 10.0**case.y_power
    return made.X, y, made.Q


# -- random arguments -------------------------------------------------------------------------------------------------
class Draw:
    """The random choices of one case."""

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
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.3g}")

    def lengthscale(self, unit: float) -> str:
        """A lengthscale in the units of X."""
        if self.searched and self.chance(0.6):
            return self.one("'auto'", "'median'", "'ard'")
        return f"{self.number(0.3, 5.0) * unit:.6g}"

    def alpha(self) -> str:
        """The weight of the norm."""
        if self.searched and self.chance(0.7):
            return "'auto'"
        return repr(self.number(1e-9, 10.0) if self.chance(0.3) else self.number(1e-4, 1e-1))

    def vector_kernel(self, unit: float) -> str:
        """A kernel of vectors."""
        kernel = self.one(
            f"Gaussian({self.lengthscale(unit)})",
            f"Laplacian({self.lengthscale(unit)})",
            f"Matern({self.one(0.5, 1.5, 2.5)}, {self.lengthscale(unit)})",
            f"RationalQuadratic({self.lengthscale(unit)}, {self.number(0.5, 3.0)})",
            f"TensorMatern({self.one(1, 2)}, {self.lengthscale(unit)})",
            f"Polynomial({self.one(1, 2, 3)})",
            "Linear()",
        )
        return self.one(kernel, kernel, kernel, f"{kernel} + 0.5", f"2.0 * {kernel}", f"{kernel}.centered()")

    def stack(self, kernel: str, kind: str, unit: float) -> str:
        """Two kernels that are fitted by themselves, with learned or given weights; or the family for such data."""
        if kind in ("vectors", "strings", "graphs", "molecules", "bags", "fingerprints") and self.chance(0.2):
            return "'auto'"
        other = self.vector_kernel(unit) if kind == "vectors" else self.object_kernel(kind)
        weights = self.one("", ", weights=[0.25, 0.75]", ", alphas=[0.1, 0.001]")
        return f"Stack([{kernel}, {other}]{weights})"

    def object_kernel(self, kind: str) -> str:
        """A kernel of objects."""
        return self.one(
            *{
                "strings": ("Spectrum((1, 2))", "Mismatch(2, 1)", "Subsequence(2, 0.6)", "Edit(5.0)"),
                "graphs": ("WeisfeilerLehman(2)", "ShortestPath()", "VertexHistogram()"),
                "molecules": ("Molecule()", "Molecule(1, counts=True)"),
                "bags": ("MeanMap(Gaussian(0.8))", "MeanMap(Linear())"),
                "curves": ("Functional(Gaussian(0.7), domain='objects')",),
                "series": ("GlobalAlignment(1.0)", "Signature(2, scale=0.7)"),
                "frame": ("Columns({'width': Gaussian(0.6), 'colour': Delta()})",),
                "fingerprints": ("Tanimoto()", "MinMax()"),
                "records": ("'auto'",),
                "gram": ("'precomputed'",),
            }[kind]
        )

    def approximation(self) -> str:
        """An approximation of a kernel of vectors or objects."""
        m = self.one(1, 5, 12)
        return self.one(
            f"Nystroem({m})", f"Nystroem({m}, {self.one('leverage', 'pivots', 'kmeans')!r})", f"Landmarks(X[:{m}])"
        )


KINDS = ("strings", "graphs", "molecules", "bags", "curves", "series", "frame", "fingerprints", "gram")


# What else is asked of a fitted learner, and of how many cases in a hundred: the dear ones, of five fits, of fewer.
QUESTIONS = {"saved": 10, "explain": 10, "support": 7, "influence": 5, "interval": 2, "set": 2}
NUMBERS = ("OperatorRidge", "DeepKernelRegressor", "ConditionalMeanEmbedding", "StructuredPredictor")
WARM = ("DeepKernelRegressor", "DeepKernelClassifier", "KernelAutoencoder", "DeepKernelPCA")


def random_case(seed: int) -> Case:
    """A learner with random arguments, data, blemishes and questions."""
    draw = Draw(seed)
    kind = "vectors" if draw.chance(0.75) else draw.one(*KINDS)
    fields: dict[str, Any] = {"kind": kind, "n": int(draw.rng.integers(*draw.one((2, 6), (8, 30), (8, 30), (30, 45))))}
    if kind == "vectors":
        powers = LARGE_POWERS if draw.chance(0.2) else USUAL_POWERS
        fields |= {"x_power": draw.one(*powers), "y_power": draw.one(*powers), "n_features": draw.one(1, 2, 3)}
        fields["offset"] = draw.one(0.0, 0.0, 0.0, 10.0, 2.0**20)
        blemishes = ("duplicates", "constant column", "constant", "outlier", "zero targets")
        fields["blemishes"] = (draw.one(*blemishes),) if draw.chance(0.2) else ()
        fields["container"] = draw.one("array", "array", "frame", "torch", "fortran", "list")
    fields["grouped"] = draw.chance(0.15) and fields["n"] > 6
    fields["weighted"] = draw.chance(0.2) and fields["n"] > 6
    unit = 10.0 ** fields.get("x_power", 0)
    kernel = draw.vector_kernel(unit) if kind == "vectors" else draw.object_kernel(kind)
    learner = draw.one(*LEARNERS)
    if learner in ("OperatorRidge", "EmbeddingClassifier") and kind != "gram" and draw.chance(0.2):
        kernel = draw.stack(kernel, kind, unit)
    arguments, fields["target"] = LEARNERS[learner](draw, kernel, kind)
    if learner.startswith("Deep"):
        fields["n"] = min(fields["n"], MOST_DEEP)
    if learner in ("KernelAutoencoder", "DeepKernelPCA", "KernelFeatures"):
        fields["weighted"] = fields["grouped"] = False
    if learner != "KernelFeatures" and draw.chance(0.1):
        arguments["dtype"] = "'float32'"
    if learner != "KernelFeatures" and draw.chance(0.1):
        # No time at all ends every search at its first point, and an hour none: both are repeatable.
        arguments["max_time"] = draw.one("1e-9", "'1h'")
    arguments["random_state"] = "0"
    fields |= _rarities(draw, learner, arguments, fields)
    return Case(seed, learner, arguments, **fields)


def _rarities(draw: Draw, learner: str, arguments: dict[str, str], fields: dict[str, Any]) -> dict[str, Any]:
    """Mixed columns, gaps, noise that is known, second fits, and questions beside the usual ones."""
    rare: dict[str, Any] = {"questions": tuple(name for name, share in QUESTIONS.items() if draw.chance(share / 100))}
    if fields["kind"] == "frame" and draw.chance(0.7) and "approximation" not in arguments:
        rare["kind"] = "records"
        arguments["kernel"] = "'auto'" if learner != "DeepKernelPCA" else "['auto', 'linear']"
    if fields["kind"] == "vectors" and draw.chance(0.04):
        rare["blemishes"] = ("gaps",)
        if draw.chance(0.7):
            arguments["kernel"] = "'auto'" if learner != "DeepKernelPCA" else "['auto', 'linear']"
    if learner in NUMBERS and fields["target"] in ("y", "Y") and draw.chance(0.05):
        rare["target"] = {"y": "gaps", "Y": "missing"}[fields["target"]]
    if learner in NUMBERS[:2] and draw.chance(0.1):
        rare["noisy"] = True
    if learner in WARM and draw.chance(0.04):
        arguments["warm_start"] = "True"
    by_batches = "approximation" in arguments and arguments.get("solver") != "'cg'" and not rare.get("noisy")
    if by_batches and learner not in ("KernelFeatures", *WARM) and draw.chance(0.3):
        rare["questions"] += ("batches",)
    return rare


Drawn = tuple[dict[str, str], str | None]


def _ridge(draw: Draw, kernel: str, kind: str) -> Drawn:
    target = draw.one("y", "y", "Y", "missing")
    arguments = {"kernel": kernel, "alpha": draw.alpha(), "fit_intercept": repr(draw.chance(0.5))}
    if target != "y" and draw.chance(0.5):
        arguments["operator"] = draw.one("Dense([[1.0, 0.4], [0.4, 0.8]])", "Diagonal([1.0, 0.3])", "Covariance()")
    if draw.chance(0.3) and kind != "gram":
        arguments["approximation"] = draw.approximation()
        arguments["solver"] = draw.one("'auto'", "'auto'", "'cg'")
    return arguments, target


def _deep(draw: Draw, kernel: str, kind: str, losses: tuple[str, ...]) -> dict[str, str]:
    loss = draw.one(*losses)
    arguments = {"layers": "[]", "kernel": kernel, "alpha": draw.alpha(), "loss": repr(loss), "cv": "3"}
    if loss not in ("hinge", "epsilon_insensitive"):  # libsvm fits an intercept, always
        arguments["fit_intercept"] = repr(draw.chance(0.7))
    if draw.chance(0.5):
        arguments["layers"] = f"[Layer(as_kernel({kernel}), {draw.one(1, 2)}, alpha=0.01)]"
        arguments["kernel"] = draw.one("Laplacian(1.0)", "Matern(1.5, 1.0)", "'rbf'")
    return arguments | {"n_restarts": draw.one("1", "2"), "max_iter": "4"}


def _regressor(draw: Draw, kernel: str, kind: str) -> Drawn:
    return _deep(draw, kernel, kind, ("squared", "squared", "huber", "epsilon_insensitive")), draw.one("y", "Y")


def _classifier(draw: Draw, kernel: str, kind: str) -> Drawn:
    arguments = _deep(draw, kernel, kind, ("squared", "logistic", "hinge"))
    if draw.chance(0.6):  # it takes as many fits as there are folds
        arguments["calibration"] = "None"
    return arguments, draw.one("labels", "pair")


def _autoencoder(draw: Draw, kernel: str, kind: str) -> Drawn:
    arguments = {"n_components": draw.one("1", "2"), "kernel": kernel, "decoder_kernel": "Laplacian(1.0)"}
    arguments |= {"alpha": "0.01", "encoder_alpha": "0.01", "n_restarts": "1", "max_iter": "4"}
    return arguments, None


def _structured(draw: Draw, kernel: str, kind: str) -> Drawn:
    target, output, decoder = draw.one(
        ("words", "Spectrum((1, 2)).normalized()", "'candidates'"),
        ("Y", "Gaussian(0.8)", "'candidates'"),
        ("Y", "'linear'", "'direct'"),
        ("labels", "'delta'", "'candidates'"),
    )
    operator = draw.one("None", "None", "Covariance()", "ConditionalCovariance(0.1)")
    arguments = {"kernel": kernel, "output_kernel": output, "decoder": decoder, "alpha": draw.alpha()}
    return arguments | {"operator": operator, "fit_intercept": repr(draw.chance(0.5))}, target


def _conditional(draw: Draw, kernel: str, kind: str) -> Drawn:
    arguments = {"kernel": kernel, "alpha": draw.alpha(), "fit_intercept": repr(draw.chance(0.5))}
    if draw.chance(0.2) and kind != "gram":
        arguments["approximation"] = draw.approximation()
    return arguments, draw.one("y", "Y")


def _embedding(draw: Draw, kernel: str, kind: str) -> Drawn:
    arguments = {"kernel": kernel, "alpha": draw.alpha(), "fit_intercept": repr(draw.chance(0.5))}
    if draw.chance(0.2) and kind != "gram":
        arguments["approximation"] = draw.approximation()
    return arguments, draw.one("labels", "pair")


def _levels(draw: Draw, kernel: str, kind: str) -> Drawn:
    upper = draw.one("'linear'", "Gaussian(1.0)")
    arguments = {"n_components": "[2, 1]", "kernel": f"[as_kernel({kernel}), {upper}]", "max_iter": "30"}
    return arguments, None


def _features(draw: Draw, kernel: str, kind: str) -> Drawn:
    arguments = {"kernel": kernel}
    if kind != "gram":
        arguments["approximation"] = draw.approximation()
    return arguments, None


LEARNERS: dict[str, Callable[[Draw, str, str], Drawn]] = {
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
