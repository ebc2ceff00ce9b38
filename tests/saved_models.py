"""Fitted learners of all kinds, small, and what they answer: for tests that save them and load them again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    KernelFeatures,
    Layer,
    OperatorRidge,
    StructuredPredictor,
    __version__,
)
from representer.approximation import Nystroem, RandomFeatures, TensorSketch
from representer.kernels import (
    Columns,
    Delta,
    Functional,
    Gaussian,
    GlobalAlignment,
    Graph,
    Linear,
    Matern,
    MeanMap,
    Molecule,
    Neural,
    Polynomial,
    Pullback,
    Spectrum,
    Tanimoto,
    WeisfeilerLehman,
)
from representer.operators import Dense

N, NEW = 18, 5
TRUSTED = ["saved_models.squares", "saved_models.Hinges"]


def squares(X: Any) -> Any:
    """A user's own function."""
    return X**2


class Hinges(torch.nn.Module):
    """A user's own network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2).double()

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(X))


def _vectors(rng: np.random.Generator) -> Any:
    return rng.normal(size=(N + NEW, 3))


def _strings(rng: np.random.Generator) -> list[str]:
    return ["".join(rng.choice(list("abc"), rng.integers(2, 7))) for _ in range(N + NEW)]


def _graphs(rng: np.random.Generator) -> list[Any]:
    paths = [list(zip(range(n), range(1, n + 1), strict=True)) for n in rng.integers(1, 6, N + NEW)]
    return [Graph(edges, node_labels=rng.choice(list("CNO"), len(edges) + 1).tolist()) for edges in paths]


def _networks(rng: np.random.Generator) -> list[Any]:
    import networkx

    return [networkx.cycle_graph(int(n)) for n in rng.integers(3, 8, N + NEW)]


def _molecules(rng: np.random.Generator) -> list[Any]:
    from rdkit import Chem

    parts = ["C", "CC", "O", "N", "C(=O)", "C(C)", "c1ccccc1", "[C@H](N)"]
    return [Chem.MolFromSmiles("C" + "".join(rng.choice(parts, rng.integers(1, 4))) + "C") for _ in range(N + NEW)]


def _frame(rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame(
        {"width": rng.normal(size=N + NEW), "colour": rng.choice(["red", "blue"], N + NEW), "name": _strings(rng)}
    )


INPUTS: dict[str, tuple[Callable[[np.random.Generator], Any], Any]] = {
    "vectors": (_vectors, Gaussian(1.2)),
    "strings": (_strings, Spectrum((1, 2)).normalized()),
    "graphs": (_graphs, WeisfeilerLehman(2).normalized()),
    "networks": (_networks, WeisfeilerLehman(1) + 0.1),
    "molecules": (_molecules, Molecule()),
    "bags": (lambda rng: [rng.normal(size=(3, 2)) for _ in range(N + NEW)], MeanMap(Gaussian(0.8))),
    "curves": (
        lambda rng: [(np.linspace(0, 1, 8), v) for v in rng.normal(size=(N + NEW, 8))],
        Functional(Gaussian(0.7), domain="objects"),
    ),
    "series": (lambda rng: [rng.normal(size=(k, 2)) for k in rng.integers(3, 6, N + NEW)], GlobalAlignment(1.0)),
    "frame": (_frame, Columns({"width": Gaussian(0.6), "colour": Delta(), "name": Spectrum(1).normalized()})),
    "records": (
        lambda rng: [{"a": x} if x > 0 else {"a": x, "b": "word"} for x in rng.normal(size=N + NEW).tolist()],
        Columns({"a": Gaussian(0.6)}),
    ),
    "gram": (lambda rng: _vectors(rng) @ _vectors(np.random.default_rng(0))[:N].T, "precomputed"),
    "fingerprints": (lambda rng: sparse.csr_array(rng.integers(0, 2, (N + NEW, 12)).astype(float)), Tanimoto()),
}


def _rows(X: Any, rows: slice) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _data(kind: str) -> tuple[Any, np.ndarray, Any]:
    X = INPUTS[kind][0](np.random.default_rng(0))
    y = np.sin(np.arange(N)) + 0.01 * np.arange(N)
    return _rows(X, slice(0, N)), y, _rows(X, slice(N, None))


def _learners(kernel: Any) -> dict[str, tuple[Any, str | None]]:
    """One of each learner with a kernel, and the target that it is fitted to."""
    quick = {"max_iter": 3, "n_restarts": 1, "random_state": 0}
    inner = [Layer(kernel, 2, alpha=1e-2)] if not isinstance(kernel, str) else []
    outer = Matern(1.5, 1.0) if inner else kernel
    return {
        "OperatorRidge": (OperatorRidge(kernel, alpha=1e-2, random_state=0), "y"),
        "DeepKernelRegressor": (DeepKernelRegressor(inner, kernel=outer, alpha=1e-2, **quick), "y"),
        "DeepKernelClassifier": (
            DeepKernelClassifier([], kernel=kernel, alpha=1e-2, loss="squared", **quick),
            "labels",
        ),
        "KernelAutoencoder": (KernelAutoencoder(1, kernel=kernel, alpha=1e-2, encoder_alpha=1e-2, **quick), None),
        "StructuredPredictor": (
            StructuredPredictor(kernel, Spectrum(1).normalized(), alpha=1e-2, random_state=0),
            "words",
        ),
        "ConditionalMeanEmbedding": (ConditionalMeanEmbedding(kernel, alpha=1e-2, random_state=0), "y"),
        "EmbeddingClassifier": (EmbeddingClassifier(kernel, alpha=1e-2, random_state=0), "labels"),
        "DeepKernelPCA": (DeepKernelPCA([2, 1], kernel=[kernel, Gaussian(1.0)], max_iter=5, random_state=0), None),
        "KernelFeatures": (KernelFeatures(kernel, random_state=0), None),
    }


def _target(y: np.ndarray, name: str | None) -> Any:
    classes = np.digitize(y, [-0.4, 0.4])
    if name == "labels":
        return np.array(["low", "middle", "high"])[classes]
    if name == "words":
        return [["aab", "ab", "bba"][i] for i in classes]
    return y if name == "y" else np.stack([y, 1.0 - y**2], 1)


def _fit(model: Any, X: Any, y: np.ndarray, target: str | None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        return model.fit(X) if target is None else model.fit(X, _target(y, target))


def _on_dask(model: Any, X: Any, y: np.ndarray, target: str | None) -> Any:
    import dask.array as da

    values = None if target is None else _target(y, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chunks = da.from_array(X, chunks=(7, -1))
        return model.fit(chunks) if values is None else model.fit(chunks, values)


def _variants() -> dict[str, tuple[Any, str | None]]:
    """Learners on vectors with more of their arguments."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    searched = {"max_iter": 2, "random_state": 0}
    found = {
        "defaults": (OperatorRidge(random_state=0), "y"),
        "classes": (EmbeddingClassifier(random_state=0), "labels"),
        "searched": (OperatorRidge(Gaussian("ard"), max_iter=3, random_state=0), "y"),
        "outputs": (
            OperatorRidge(Gaussian(1.0), operator=Dense([[1.0, 0.4], [0.4, 0.8]]), alpha=1e-2, random_state=0),
            "Y",
        ),
        "centred": (OperatorRidge(Gaussian(1.0).centered(), alpha=1e-2, random_state=0), "y"),
        "float32": (OperatorRidge(Gaussian(1.0), alpha=1e-2, random_state=0, dtype="float32"), "y"),
        "generator": (OperatorRidge(Gaussian("auto"), max_iter=2, random_state=np.random.RandomState(3)), "y"),
        "neural": (OperatorRidge(Neural(network, Gaussian(1.0)), **searched), "y"),
        "own_network": (OperatorRidge(Neural(Hinges(), Gaussian(1.0)), **searched), "y"),
        "own_function": (OperatorRidge(Pullback(Linear() + 1.0, squares), alpha=1e-2, random_state=0), "y"),
        "logistic": (
            DeepKernelClassifier([], kernel=Gaussian(1.0), alpha=1e-2, loss="logistic", random_state=0),
            "labels",
        ),
        "calibrated": (EmbeddingClassifier(Gaussian(1.0), alpha=1e-2, calibration="loo", random_state=0), "labels"),
    }
    linear = ("OperatorRidge", "ConditionalMeanEmbedding", "EmbeddingClassifier", "KernelFeatures")
    for learner in (*linear, "DeepKernelRegressor", "KernelAutoencoder"):
        model, target = _learners(Gaussian(1.2))[learner]
        found[f"nystroem_{learner}"] = (model.set_params(approximation=Nystroem(8)), target)
    for learner in linear:
        model, target = _learners(Gaussian(1.2))[learner]
        found[f"random_{learner}"] = (model.set_params(approximation=RandomFeatures(20)), target)
    found["sketch"] = (OperatorRidge(Polynomial(2), alpha=1e-2, random_state=0, approximation=TensorSketch(20)), "y")
    return found


def models() -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """The name of each model, what fits it, and new inputs for it."""
    for kind, (_, kernel) in INPUTS.items():
        X, y, new = _data(kind)
        learners = _learners(kernel)
        if kind == "gram":
            del learners["KernelFeatures"]  # a Gram matrix has no landmarks
        for learner, (model, target) in learners.items():
            yield f"{learner}-{kind}", lambda m=model, X=X, y=y, t=target: _fit(m, X, y, t), new
    for kind in ("frame", "strings"):  # records and words by the kernels that the data suggest
        X, y, new = _data(kind)
        for learner in (OperatorRidge, EmbeddingClassifier, ConditionalMeanEmbedding, DeepKernelRegressor):
            target = "labels" if learner is EmbeddingClassifier else "y"
            model = learner(random_state=0)
            yield f"auto_{learner.__name__}_{kind}", lambda m=model, X=X, y=y, t=target: _fit(m, X, y, t), new
    X, y, new = _data("vectors")
    twice = np.concatenate([X[: N // 2]] * 2)  # replicates, whose noise is measured and which are left out together
    for learner in ("OperatorRidge", "DeepKernelRegressor", "EmbeddingClassifier", "ConditionalMeanEmbedding"):
        model, target = _learners(Gaussian(1.2))[learner]
        yield f"replicates_{learner}", lambda m=model, t=target: _fit(m, twice, y, t), new
    for name, (model, target) in _variants().items():
        yield name, lambda m=model, t=target: _fit(m, X, y, t), new
    on_dask = ("OperatorRidge", "EmbeddingClassifier", "ConditionalMeanEmbedding", "KernelFeatures", "DeepKernelPCA")
    for learner in (*on_dask, "DeepKernelRegressor", "KernelAutoencoder"):
        model, target = _learners(Gaussian(1.2))[learner]
        model.set_params(approximation=Nystroem(8))
        yield f"dask_{learner}", lambda m=model, t=target: _on_dask(m, X, y, t), new


QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda model, X: model.predict(X),
    "deviation": lambda model, X: model.predict(X, return_std=True)[1],
    "interval": lambda model, X: model.predict_interval(X),
    "probabilities": lambda model, X: model.predict_proba(X),
    "transform": lambda model, X: model.transform(X),
    "errors": lambda model, X: model.reconstruction_error(X),
    "quantiles": lambda model, X: model.quantile(X, (0.1, 0.9)),
    "densities": lambda model, X: model.density(X, np.linspace(-1.0, 1.0, 5)),
    "support": lambda model, X: model.support(X),
    "contributions": lambda model, X: model.explain(X).contributions,
    "influence": lambda model, X: model.influence(X),
    "left out": lambda model, X: model.loo_predict_,
    "system": lambda model, X: model.system_.left_out(),
    "norm": lambda model, X: model.function_.norm(),
}


def answers(model: Any, X: Any) -> dict[str, np.ndarray]:
    """What a model answers; a question that it refuses has no answer."""
    found = {}
    for name, question in QUESTIONS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # support by unbounded kernels
                answer = np.asarray(question(model, X))
        except (AttributeError, TypeError, ValueError, NotImplementedError):
            continue
        found[name] = answer.astype(str) if answer.dtype.kind in "OU" else answer
    return found


# The models whose files are kept for ever, with their answers; their new inputs are arrays.
GOLDEN = (
    *(f"{learner}-vectors" for learner in _learners(Gaussian(1.2))),
    *(
        "OperatorRidge-strings",
        "OperatorRidge-fingerprints",
        "nystroem_OperatorRidge",
        "random_OperatorRidge",
        "neural",
    ),
)


def record(folder: Path) -> None:
    """Write the files of this version and what their models answer, once, when the version is released."""
    recorded: dict[str, np.ndarray] = {}
    for name, fit, new in models():
        if name in GOLDEN:
            model = fit()
            model.save(folder / f"{name}.representer", compress=9)
            recorded[f"{name}/new"] = new.toarray() if sparse.issparse(new) else np.asarray(new)
            for question, answer in answers(model, new).items():
                recorded[f"{name}/{question}"] = answer
    np.savez_compressed(folder / "answers.npz", **recorded)  # type: ignore[arg-type]


if __name__ == "__main__":  # PYTHONPATH=tests python tests/saved_models.py
    record(Path(__file__).parent / "persistence" / "files" / __version__)
