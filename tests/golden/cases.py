"""The table of recorded cases: a learner with its arguments, its data, and how it is fitted.

``given`` cases have all numbers given, or chosen from a list: their answers are determined, and compared as they are.
``searched`` cases look for numbers: only what they minimise is compared, and may become smaller.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from golden.answers import Answers, ask
from golden.data import Data, make_data
from golden.vocabulary import attribute, make
from representer import Layer
from representer.approximation import Landmarks, Nystroem, RandomFeatures, TensorSketch
from representer.kernels import (
    Columns,
    Delta,
    Edit,
    Functional,
    Gaussian,
    GlobalAlignment,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    MeanMap,
    MinMax,
    Mismatch,
    Molecule,
    Neural,
    Polynomial,
    RandomWalk,
    RationalQuadratic,
    ShortestPath,
    Signature,
    Spectrum,
    Subsequence,
    Tanimoto,
    TensorMatern,
    WeightedDegree,
    WeisfeilerLehman,
)
from representer.operators import (
    ConditionalCovariance,
    Coordinatewise,
    Covariance,
    CurlFree,
    Decomposable,
    Dense,
    Diagonal,
    DivergenceFree,
    Identity,
    PrincipalComponents,
    Separate,
    Transformable,
    diagonal_regularization,
)
from representer.preimage import Candidates, FixedPoint, Gradient, LabelSet, Sequence

TOLERANCE = 1e-8

Options = dict[str, Any] | Callable[[Data], dict[str, Any]]

# Kernels with numbers, and with words that a search may decide, for each kind of data.
GIVEN: dict[str, Any] = {
    "vectors": Gaussian(0.9),
    "strings": Spectrum((1, 2)).normalized(),
    "graphs": WeisfeilerLehman(2).normalized(),
    "molecules": Molecule(),
    "bags": MeanMap(Gaussian(0.8)),
    "curves": Functional(Gaussian(0.7), domain="objects"),
    "series": GlobalAlignment(1.0),
    "frame": Columns({"width": Gaussian(0.6), "colour": Delta(), "name": Spectrum(1).normalized()}, weights=0.7),
    "gram": "precomputed",
    "fingerprints": Tanimoto(),
}
SEARCHED: dict[str, Any] = {
    "vectors": Gaussian("ard"),
    "strings": Edit("auto") + 0.5,
    "graphs": "auto" * WeisfeilerLehman(2).normalized() + 1.0,
    "molecules": "auto" * Molecule() + 0.5,
    "bags": MeanMap(Gaussian("auto")),
    "curves": Functional(Gaussian("auto"), domain="objects"),
    "series": GlobalAlignment("auto"),
    "frame": Columns({"width": Gaussian("auto"), "colour": Delta()}, weights="auto"),
    "gram": "precomputed",
    "fingerprints": "auto" * Tanimoto() + 0.5,
}


@dataclass(frozen=True)
class Case:
    """One fit: the attribute ``y`` of the data is the target, None if there is none."""

    learner: str
    data: str = "vectors"
    options: Options = dict
    y: str | None = "y"
    how: str = "fit"
    weighted: bool = False
    minimised: str | None = None
    # Answers that depend more strongly on rounding errors, by the beginning of their names; infinity: not compared.
    loose: Mapping[str, float] = field(default_factory=dict)
    n: int = 36
    seed: int = 0
    # Relative errors of the data, which show how strongly answers depend on rounding.
    jitter: float = 0.0

    def tolerance(self, answer: str) -> float:
        """How far an answer may be from the recorded one, in units of the output."""
        return next((value for name, value in self.loose.items() if answer.startswith(name)), TOLERANCE)

    def run(self) -> Answers:
        """Fit, and collect the answers; of a search, what it minimises and what it chose."""
        data = make_data(self.data, self.n, self.seed, self.jitter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, Q = self._fitted(data)
            if self.minimised is None:
                return ask(self.learner, model, Q, data)
            minimised = attribute(model, self.minimised.removeprefix("-"))
            if minimised is None:  # nothing was left to be searched
                return ask(self.learner, model, Q, data)
        answers = {"minimised": np.asarray(minimised, float) * (-1.0 if self.minimised.startswith("-") else 1.0)}
        alpha = attribute(model, "alpha_")
        return answers if alpha is None else answers | {"alpha_": np.asarray(alpha, float)}

    def _fitted(self, data: Data) -> tuple[Any, Any]:
        options = self.options(data) if callable(self.options) and self.options is not dict else dict(self.options)
        model = make(self.learner, options)
        target = () if self.y is None else (getattr(data, self.y),)
        keywords = {"sample_weight": data.weight} if self.weighted else {}
        if self.how == "batches":
            for i, rows in enumerate((slice(0, 15), slice(15, 22), slice(22, None))):
                part = {name: value[rows] for name, value in keywords.items()}
                if self.learner == "EmbeddingClassifier" and i == 0:
                    part["classes"] = np.unique(target[0])
                model.partial_fit(data.X[rows], *(t[rows] for t in target), **part)
            return model, data.Q
        if self.how == "dask":
            import dask.array as da

            X, Q = da.from_array(data.X, chunks=(13, -1)), da.from_array(data.Q, chunks=(4, -1))
            target = tuple(da.from_array(t, chunks=(17, *t.shape[1:])) for t in target)
            keywords = {name: da.from_array(value, chunks=13) for name, value in keywords.items()}
            return model.fit(X, *target, **keywords), Q
        return model.fit(data.X, *target, **keywords), data.Q


CASES: dict[str, Case] = {}


def _add(tier: str, learner: str, name: str, **fields: Any) -> None:
    key = f"{tier}/{learner}/{name}"
    assert key not in CASES, key
    CASES[key] = Case(learner, **fields)


def _given(learner: str, name: str, options: Options, **fields: Any) -> None:
    _add("given", learner, name, options=options, **fields)


def _searched(learner: str, name: str, options: Options, minimised: str = "criterion_value_", **fields: Any) -> None:
    _add("searched", learner, name, options=options, minimised=minimised, **fields)


def _landmarks(count: int = 10, **options: Any) -> Callable[[Data], dict[str, Any]]:
    """Options with the first inputs as landmarks."""
    return lambda data: {"approximation": Landmarks(data.X[:count]), **options}


VECTOR_KERNELS: dict[str, Kernel] = {
    "laplacian": Laplacian(1.1),
    "matern": Matern(2.5, 0.9),
    "rational_quadratic": RationalQuadratic(0.8, 1.5),
    "tensor_matern": TensorMatern(1, 1.2),
    "polynomial": Polynomial(3, 0.4, 0.7),
    "linear_plus_constant": Linear() + 1.0,
    "sum_of_products": 2.0 * Gaussian(0.7) * Linear() + 0.3 * Matern(1.5, 1.0),
    "centred": Gaussian(0.8).centered(),
    "normalised": Polynomial(2).normalized(),
    "ard": Gaussian([0.5, 1.0, 2.0]),
    "median": Gaussian("median"),
}
OBJECT_KERNELS: dict[str, tuple[str, Kernel]] = {
    "mismatch": ("strings", Mismatch(2, 1)),
    "subsequence": ("strings", Subsequence(2, 0.6).normalized()),
    "edit": ("strings", Edit(4.0)),
    "shortest_path": ("graphs", ShortestPath().normalized()),
    "random_walk": ("graphs", RandomWalk(0.02)),
    "optimal_assignment": ("graphs", WeisfeilerLehman(2, "assignment")),
    "signature": ("series", Signature(2, scale=0.7)),
    "derivatives": (
        "curves",
        Functional(Linear(), np.linspace(0, 1, 8), derivative=(0, 1), domain="objects"),
    ),
    "distributions": ("bags", MeanMap(Gaussian(0.8), Gaussian(0.5))),
    "product_of_columns": ("frame", Columns({"width": Gaussian(0.6), "colour": Delta() + 0.5}, "product")),
    "minmax": ("fingerprints", MinMax()),
    "molecule_counts": ("molecules", Molecule(1, counts=True)),
}
SENSIBLE = [[1.0, 0.4], [0.4, 0.8]]
ALPHAS = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
FIXED: dict[str, Any] = {"kernel": Gaussian(0.9), "alpha": 1e-2, "random_state": 0}


# -- OperatorRidge ----------------------------------------------------------------------------------------------------
def _ridge() -> None:
    learner = "OperatorRidge"
    for kind, kernel in GIVEN.items():
        _given(learner, f"{kind}", {"kernel": kernel, "alpha": 1e-2}, data=kind)
    for name, kernel in VECTOR_KERNELS.items():
        _given(learner, f"kernel_{name}", {"kernel": kernel, "alpha": 1e-2})
    for name, (kind, kernel) in OBJECT_KERNELS.items():
        _given(learner, f"kernel_{name}", {"kernel": kernel, "alpha": 1e-2}, data=kind)
    operators: dict[str, Any] = {
        "identity": Identity(),
        "dense": Dense(SENSIBLE),
        "diagonal": Diagonal([1.0, 0.3]),
        "covariance": Covariance(),
        "conditional_covariance": ConditionalCovariance(0.1),
        "principal_components": PrincipalComponents(1),
    }
    for name, operator in operators.items():
        options = {**FIXED, "operator": operator}
        _given(learner, f"operator_{name}", options, y="Y")
        _given(learner, f"operator_{name}_nystroem", {**options, "approximation": Nystroem(12)}, y="Y")
        if name in ("identity", "dense", "diagonal"):
            _given(learner, f"operator_{name}_missing", options, y="missing")
            _given(learner, f"operator_{name}_weights", options, y="Y", weighted=True)
            _given(learner, f"operator_{name}_missing_weights", options, y="missing", weighted=True)
            landmarks = {**options, "approximation": Nystroem(12)}
            _given(learner, f"operator_{name}_missing_nystroem", landmarks, y="missing")
            _given(learner, f"operator_{name}_missing_weights_nystroem", landmarks, y="missing", weighted=True)
    valued: dict[str, Any] = {
        "separate": Separate([Gaussian(0.8), Matern(1.5, 1.1)]),
        "sum": Decomposable(Gaussian(0.8), Dense(SENSIBLE)) + Decomposable(Linear()),
        "transformable": Transformable(Gaussian(1.0), [torch.sin, lambda x: 0.7 * x]),
    }
    for name, kernel in valued.items():
        _given(learner, f"operator_valued_{name}", {"kernel": kernel, "alpha": 1e-2}, y="Y")
        _given(learner, f"operator_valued_{name}_missing", {"kernel": kernel, "alpha": 1e-2}, y="missing")
        _given(
            learner,
            f"operator_valued_{name}_weights",
            {"kernel": kernel, "alpha": 1e-2},
            y="Y",
            weighted=True,
        )
    for name, kernel in {
        "curl_free": CurlFree(1.0),
        "divergence_free": DivergenceFree(1.0),
        "coordinatewise": Coordinatewise(1.0),
        "diagonal_regularization": diagonal_regularization(Gaussian(0.9), 0.3),
    }.items():
        _given(learner, f"operator_valued_{name}", {"kernel": kernel, "alpha": 1e-2}, data="plane", y="Y")
    for criterion in ("loo", "gcv"):
        options = {"kernel": Gaussian(0.9), "alpha": ALPHAS, "criterion": criterion, "random_state": 0}
        _given(learner, f"alphas_{criterion}", options, y="Y")
        _given(learner, f"alphas_{criterion}_dense", {**options, "operator": Dense(SENSIBLE)}, y="Y")
        _given(learner, f"alphas_{criterion}_missing", options, y="missing")
        _given(learner, f"alphas_{criterion}_weights", options, y="Y", weighted=True)
        _given(learner, f"alphas_{criterion}_nystroem", {**options, "approximation": Nystroem(12)}, y="Y")
        _given(learner, f"alphas_{criterion}_precomputed", {**options, "kernel": "precomputed"}, data="gram")
    for sampling in ("uniform", "leverage", "pivots", "kmeans"):
        _given(learner, f"nystroem_{sampling}", {**FIXED, "approximation": Nystroem(12, sampling)})
    for kind in ("strings", "graphs", "molecules", "bags", "curves", "series", "frame", "fingerprints"):
        _given(
            learner,
            f"nystroem_{kind}",
            {**FIXED, "kernel": GIVEN[kind], "approximation": Nystroem(12)},
            data=kind,
        )
    _given(learner, "nystroem_weights", {**FIXED, "approximation": Nystroem(12)}, weighted=True)
    _given(learner, "nystroem_cg", {**FIXED, "approximation": Nystroem(12), "solver": "cg"})
    _given(learner, "landmarks", _landmarks(**FIXED), y="Y")
    _given(learner, "random_features", {**FIXED, "approximation": RandomFeatures(40)}, y="Y")
    _given(learner, "random_features_iid", {**FIXED, "approximation": RandomFeatures(40, False)})
    _given(learner, "sketch", {**FIXED, "kernel": Polynomial(2), "approximation": TensorSketch(40)})
    for how in ("dask", "batches"):
        _given(learner, f"{how}_landmarks", _landmarks(**FIXED), y="Y", how=how)
        _given(learner, f"{how}_landmarks_weights", _landmarks(**FIXED), y="Y", how=how, weighted=True)
        _given(learner, f"{how}_landmarks_dense", _landmarks(**FIXED, operator=Dense(SENSIBLE)), y="Y", how=how)
        _given(learner, f"{how}_alphas", _landmarks(**{**FIXED, "alpha": ALPHAS}), y="Y", how=how)
        _given(learner, f"{how}_random_features", {**FIXED, "approximation": RandomFeatures(40)}, how=how)
        _given(learner, f"{how}_nystroem", {**FIXED, "approximation": Nystroem(12)}, how=how)
        sketch = {**FIXED, "kernel": Polynomial(2), "approximation": TensorSketch(40)}
        _given(learner, f"{how}_sketch", sketch, how=how)
    _given(learner, "float32", {**FIXED, "dtype": "float32"}, y="Y", loose={"": 1e-4})
    for kind, kernel in SEARCHED.items():
        _searched(learner, f"{kind}", {"kernel": kernel, "random_state": 0}, data=kind)
    for criterion in ("loo", "gcv"):
        options = {"kernel": Gaussian("auto"), "criterion": criterion, "random_state": 0}
        _searched(learner, f"{criterion}", options, y="Y")
        _searched(learner, f"{criterion}_missing", options, y="missing")
        _searched(learner, f"{criterion}_weights", options, y="Y", weighted=True)
    _searched(learner, "restarts", {"kernel": Gaussian("ard"), "n_restarts": 3, "random_state": 0})
    _searched(learner, "alpha_given", {"kernel": Gaussian("ard"), "alpha": 1e-2, "random_state": 0})
    _searched(learner, "curl_free", {"kernel": CurlFree("auto"), "random_state": 0}, data="plane", y="Y")
    _searched(learner, "separate", {"kernel": Separate([Gaussian("auto"), Matern(1.5, "auto")])}, y="Y")
    approximations: dict[str, Any] = {"nystroem": Nystroem(12), "random_features": RandomFeatures(40)}
    for name, approximation in approximations.items():
        options = {"kernel": Gaussian("auto"), "approximation": approximation, "random_state": 0}
        _searched(learner, name, options, y="Y")
        _searched(learner, f"{name}_dask", options, y="Y", how="dask")
        _searched(learner, f"{name}_batches", options, y="Y", how="batches")


# -- the deep learners ------------------------------------------------------------------------------------------------
AFFINE = (Polynomial(1), 1)
# A few steps from the first start: rounding errors have no time to grow.
# On few-dimensional images a rough outer kernel keeps the Gram matrix well conditioned.
ROUGH: dict[str, Any] = {"kernel": Laplacian(1.0), "alpha": 1e-2, "random_state": 0}
STEPS: dict[str, Any] = {"n_restarts": 1, "max_iter": 3, "random_state": 0}
SEARCH: dict[str, Any] = {"n_restarts": 2, "max_iter": 40, "tol": 1e-4, "random_state": 0}


def _absolute(F: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """A smooth loss of one's own."""
    return torch.sqrt(1.0 + (F - Y) ** 2).sum() / len(Y) - 1.0


def _root(squared_norm: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(1.0 + squared_norm)


def _deep_regressor() -> None:
    learner = "DeepKernelRegressor"
    for kind, kernel in GIVEN.items():
        _given(learner, f"single_{kind}", {"layers": [], "kernel": kernel, "alpha": 1e-2}, data=kind)
    losses: dict[str, tuple[Any, dict[str, Any]]] = {
        "squared": ("squared", {}),
        "interpolate": ("interpolate", {}),
        "epsilon": ("epsilon_insensitive", {"epsilon": 0.1}),
        "huber": ("huber", {"delta": 0.2}),
        "custom": (_absolute, {}),
    }
    for name, (loss, options) in losses.items():
        loose = {"": 1e-5} if name == "custom" else {}
        for intercept in (True,) if name == "epsilon" else (True, False):
            fields = {"layers": [], "loss": loss, "fit_intercept": intercept, **FIXED, **options}
            label = f"single_{name}" + ("" if intercept else "_without_intercept")
            _given(learner, label, fields, loose=loose)
            _given(learner, f"{label}_outputs", fields, y="Y", loose=loose)
        deep = {"layers": [Layer(Polynomial(1), 2, alpha=1e-2)], "loss": loss, **ROUGH, **options, **STEPS}
        _given(learner, f"deep_{name}", deep, y="Y", loose=loose)
    layers: dict[str, list[Any]] = {
        "gaussian": [Layer(Gaussian(1.5), 1, alpha=1e-2)],
        "three": [Layer(*AFFINE, alpha=1e-2), Layer(Gaussian(1.0), 2, alpha=1e-2)],
        "separate": [Layer(Separate([Gaussian(1.0), Linear()]), 2, alpha=1e-2)],
        "operator": [Layer(Gaussian(1.5), 2, alpha=1e-2, operator=Dense(SENSIBLE))],
        "penalty": [Layer(Gaussian(1.5), 1, alpha=1e-2, penalty=_root)],
    }
    for name, given in layers.items():
        loose = {"std": np.inf, "": 1e-5} if name == "three" else {}
        _given(learner, f"deep_{name}", {**FIXED, **STEPS, "layers": given}, loose=loose)
    inner = [Layer(*AFFINE, alpha=1e-2)]
    options = {**FIXED, **STEPS, "layers": inner}
    _given(learner, "deep_without_intercept", {**options, "fit_intercept": False})
    for how in ("fit", "dask"):
        rough = {**options, **ROUGH, "approximation": Nystroem(14)}
        _given(learner, f"deep_nystroem_{how}", rough, how=how)
    _given(learner, "single_penalty", {**FIXED, "layers": [], "penalty": _root})
    separated = {"loss": "interpolate", "separation": 1e-3}
    _given(learner, "deep_separation", {**options, **ROUGH, **separated})
    for kind in ("strings", "graphs", "bags", "frame", "gram", "fingerprints"):
        deep = {**FIXED, **STEPS, "layers": [Layer(GIVEN[kind], 2, alpha=1e-2)]}
        _given(learner, f"deep_{kind}", deep, data=kind)
    _searched(learner, "default", SEARCH)
    for criterion in ("loo", "gcv", "validation"):
        given = {**SEARCH, "layers": [AFFINE], "kernel": Gaussian("auto"), "criterion": criterion}
        _searched(learner, f"{criterion}", given)
        _searched(learner, f"single_{criterion}", {**given, "layers": []}, y="Y")
    for name in ("epsilon", "huber"):
        loss, extra = losses[name]
        _searched(learner, f"{name}", {**SEARCH, "layers": [], "loss": loss, "cv": 3, **extra})
    _searched(learner, "nystroem", {**SEARCH, "layers": [AFFINE], "approximation": Nystroem(14)})
    for kind in ("strings", "frame", "gram"):
        _searched(learner, f"single_{kind}", {**SEARCH, "layers": [], "kernel": SEARCHED[kind]}, data=kind)
    objective = {**FIXED, **SEARCH, "tol": 1e-7, "max_iter": 100}
    _searched(learner, "objective", {**objective, "layers": inner}, "objective_value_")
    _searched(learner, "objective_three", {**objective, "layers": layers["three"]}, "objective_value_")
    _searched(
        learner,
        "objective_interpolate",
        {**objective, **ROUGH, "layers": inner, **separated},
        "objective_value_",
    )


def _deep_classifier() -> None:
    learner = "DeepKernelClassifier"
    losses = ("squared", "logistic", "hinge", "squared_hinge")
    # The slope of the probabilities is searched.
    loose = {"predict_proba": 1e-6}
    for loss in losses:
        for labels in ("labels", "pair"):
            options = {**FIXED, "layers": [], "loss": loss, "cv": 3}
            _given(learner, f"single_{loss}_{labels}", options, y=labels, loose=loose)
            raw = {**options, "calibrated": False, "fit_intercept": loss == "hinge"}
            _given(learner, f"single_{loss}_{labels}_raw", raw, y=labels, loose=loose)
        deep = {**FIXED, **STEPS, "layers": [Layer(*AFFINE, alpha=1e-2)], "loss": loss, "calibrated": False}
        _given(learner, f"deep_{loss}", deep, y="labels")
    for kind, kernel in GIVEN.items():
        options = {
            "layers": [],
            "kernel": kernel,
            "loss": "squared",
            "alpha": 1e-2,
            "cv": 3,
            "random_state": 0,
        }
        _given(learner, f"single_{kind}", options, data=kind, y="labels", loose=loose)
    options = {**ROUGH, **STEPS, "loss": "squared", "cv": 3, "approximation": Nystroem(14)}
    layers = [Layer(*AFFINE, alpha=1e-2)]
    _given(learner, "deep_nystroem", {**options, "layers": layers}, y="labels", loose=loose)
    _given(learner, "deep_dask", {**options, "layers": layers}, y="pair", how="dask", loose=loose)
    _searched(learner, "default", {**SEARCH, "cv": 3}, y="labels")
    for loss in losses:
        _searched(learner, f"single_{loss}", {**SEARCH, "layers": [], "loss": loss, "cv": 3}, y="labels")
    for criterion in ("loo", "gcv", "validation"):
        given = {**SEARCH, "loss": "squared", "layers": [AFFINE], "criterion": criterion, "cv": 3}
        _searched(learner, f"{criterion}", given, y="pair")
    objective = {**FIXED, **SEARCH, "tol": 1e-7, "max_iter": 100, "layers": [Layer(*AFFINE, alpha=1e-2)]}
    _searched(learner, "objective", {**objective, "calibrated": False}, "objective_value_", y="pair")


def _autoencoder() -> None:
    learner = "KernelAutoencoder"
    fixed = {
        "n_components": 1,
        "alpha": 1e-2,
        "encoder_alpha": 1e-2,
        "decoder_kernel": Gaussian(0.8),
        **STEPS,
    }
    options = {**fixed, "kernel": Gaussian(0.9)}
    for kind, kernel in GIVEN.items():
        given = {**fixed, "kernel": kernel}
        _given(learner, f"{kind}", given, data=kind, y=None)
    variants: dict[str, dict[str, Any]] = {
        "two": {"n_components": 2},
        "share": {"n_components": 0.8},
        "layers": {"n_components": [3, 1, 2]},
        "own_layers": {
            "kernel": "auto",
            "n_components": [Layer(Gaussian(1.0), 2, alpha=1e-2, operator=Dense(SENSIBLE))],
        },
        "target_kernel": {"target": "kernel"},
        "target_kernel_weighted": {"target": "kernel", "preimage": "weighted"},
        "target_linear": {"kernel": "linear", "target": "kernel"},
        "target_other": {"target": Polynomial(2)},
        "without_intercept": {"fit_intercept": False},
        "nystroem": {"approximation": Nystroem(14)},
        "nystroem_kernel": {"approximation": Nystroem(14), "target": "kernel"},
        "operator": {"decoder_kernel": Decomposable(Gaussian(0.8), Diagonal([1.0, 0.5, 0.2]))},
        "batch": {"approximation": Nystroem(14), "batch_size": 18},
    }
    for name, extra in variants.items():
        _given(learner, f"variant_{name}", {**options, **extra}, y=None)
    _given(learner, "dask", {**options, "approximation": Nystroem(14)}, y=None, how="dask")
    for target in ("y", "labels"):
        _given(learner, f"supervision_{target}", {**options, "supervision": 2.0}, y=target)
    search = {**SEARCH, "n_components": 1, "max_iter": 20}
    _searched(learner, "default", search, y=None)
    for criterion in ("loo", "validation"):
        given = {**search, **ROUGH, "alpha": "auto", "encoder_alpha": 1e-2, "decoder_kernel": Laplacian(1.0)}
        _searched(learner, f"{criterion}", {**given, "criterion": criterion}, y=None)
    # Strings are not here: their criterion moves by a tenth when the first alpha changes by some hundredths.
    for kind in ("gram", "fingerprints"):
        _searched(learner, f"{kind}", {**search, "kernel": GIVEN[kind]}, data=kind, y=None)
    objective = {**options, **SEARCH, "tol": 1e-7, "max_iter": 100}
    _searched(learner, "objective", objective, "objective_value_", y=None)
    _searched(learner, "objective_kernel", {**objective, "target": "kernel"}, "objective_value_", y=None)


# -- StructuredPredictor ----------------------------------------------------------------------------------------------
def _nearest_training(embedding: Any, X: Any) -> list[int]:
    """A decoder of one's own: the training output of the largest weight."""
    return [int(row.argmax()) for row in embedding.weights]


def _wrong(y_true: Any, y_pred: Any) -> np.ndarray:
    return np.array([float(one != two) for one, two in zip(y_true, y_pred, strict=True)])


def _structured() -> None:
    learner = "StructuredPredictor"
    words = Spectrum((1, 2)).normalized()
    for kind, kernel in GIVEN.items():
        options = {"kernel": kernel, "output_kernel": words, "alpha": 1e-2}
        _given(learner, f"{kind}", options, data=kind, y="words")
    operators: dict[str, dict[str, Any]] = {
        "identity": {},
        "kpca": {"operator": "kpca", "n_components": 3},
        "covariance": {"operator": "covariance"},
        "conditional_covariance": {"operator": "conditional_covariance", "epsilon": 0.1},
    }
    for name, extra in operators.items():
        options = {**FIXED, "output_kernel": words, **extra}
        vectors = {**FIXED, "output_kernel": Gaussian(0.8), **extra}
        _given(learner, f"operator_{name}", options, y="words")
        _given(learner, f"operator_{name}_vectors", vectors, y="Y")
        _given(learner, f"operator_{name}_centred", {**options, "center": True}, y="words")
        _given(learner, f"operator_{name}_alphas", {**options, "alpha": ALPHAS}, y="words")
        pair = (Nystroem(14), Nystroem(6))
        _given(learner, f"operator_{name}_nystroem", {**options, "approximation": pair}, y="words")
        _given(
            learner,
            f"operator_{name}_nystroem_centred",
            {**vectors, "center": True, "approximation": pair},
            y="Y",
        )

        def landmarks(data: Data, options: dict[str, Any] = vectors) -> dict[str, Any]:
            return {**options, "approximation": (Landmarks(data.X[:12]), Landmarks(data.Y[:9]))}

        for how in ("fit", "batches", "dask"):
            _given(learner, f"operator_{name}_landmarks_{how}", landmarks, y="Y", how=how)
    partial = {**FIXED, "output_kernel": words, **operators["conditional_covariance"]}
    _given(learner, "operator_conditional_covariance_partial", partial, y="partial_words")
    _given(learner, "operator_dense", {**FIXED, "output_kernel": "linear", "operator": Dense(SENSIBLE)}, y="Y")
    decoders: dict[str, tuple[str, Any, Any]] = {
        "candidates": ("words", words, "candidates"),
        "some_candidates": ("words", words, Candidates(["north", "south", "east", "west"])),
        "custom": ("words", words, _nearest_training),
        "direct": ("Y", "linear", "direct"),
        "gradient": ("Y", Gaussian(0.8), Gradient()),
        "fixed_point": ("Y", Gaussian(0.8), FixedPoint()),
        "sequence": ("tags", WeightedDegree(), Sequence(lengths=5)),
        "sequence_windows": ("tags", WeightedDegree((1, 2)), "sequence"),
        "sequence_transitions": ("tags", WeightedDegree(), Sequence(transitions="training", weight=0.1)),
        "labels": ("sets", "linear", "labels"),
        "labels_threshold": ("sets", "linear", LabelSet(0.4)),
        "labels_auto": ("sets", "linear", LabelSet("auto")),
        "labels_hamming": ("sets", "linear", LabelSet("auto", measure="hamming")),
        "labels_tanimoto": ("sets", Tanimoto(), LabelSet(max_labels=3)),
        "labels_local": ("sets", Tanimoto(), LabelSet(search="local")),
        "ranks": ("ranks", "linear", "candidates"),
        "delta": ("labels", Delta(), "candidates"),
    }
    for name, (y, kernel, decoder) in decoders.items():
        loose = {"predict": 1e-6} if name in ("gradient", "fixed_point") else {}
        options = {**FIXED, "output_kernel": kernel, "decoder": decoder}
        _given(learner, f"decoder_{name}", options, y=y, loose=loose)
    validated = {**FIXED, "output_kernel": words, "criterion": "validation", "alpha": ALPHAS, "cv": 3}
    _given(learner, "validation", validated, y="words")
    _given(learner, "validation_task_loss", {**validated, "task_loss": _wrong}, y="words")
    _given(learner, "validation_kpca", {**validated, "operator": "kpca"}, y="words")
    options = {"output_kernel": words, "random_state": 0}
    for name, extra in operators.items():
        searched = {k: v for k, v in extra.items() if k == "operator"}
        _searched(learner, f"operator_{name}", {**options, **searched}, y="words")
        _searched(learner, f"learned_{name}", {**options, **searched, "kernel": Gaussian("ard")}, y="words")
    _searched(learner, "validation", {**options, "criterion": "validation", "cv": 3}, y="words")
    for kind, kernel in SEARCHED.items():
        _searched(learner, f"{kind}", {**options, "kernel": kernel}, data=kind, y="words")
    _searched(learner, "nystroem", {**options, "kernel": Gaussian("auto"), "approximation": Nystroem(12)}, y="words")


# -- embeddings -------------------------------------------------------------------------------------------------------
def _conditional() -> None:
    learner = "ConditionalMeanEmbedding"
    for kind, kernel in GIVEN.items():
        _given(learner, f"{kind}", {"kernel": kernel, "alpha": 1e-2, "random_state": 0}, data=kind)
    fixed = {**FIXED, "output_kernel": Gaussian(0.7)}
    for intercept in (True, False):
        label = "" if intercept else "_without_intercept"
        options = {**fixed, "fit_intercept": intercept}
        _given(learner, f"exact{label}", options)
        _given(learner, f"vectors{label}_outputs", options, y="Y")
        _given(learner, f"words{label}", {**options, "output_kernel": Spectrum(2)}, y="words")
        _given(learner, f"labels{label}", {**options, "output_kernel": "delta"}, y="labels")
        approximations: dict[str, Any] = {
            "nystroem": Nystroem(12),
            "pair": (Nystroem(12), Nystroem(6)),
            "random_features": RandomFeatures(40),
        }
        for name, approximation in approximations.items():
            _given(learner, f"{name}{label}", {**options, "approximation": approximation})
        sketch = {**options, "kernel": Polynomial(2), "approximation": TensorSketch(40)}
        _given(learner, f"sketch{label}", sketch)

        def landmarks(data: Data, options: dict[str, Any] = options) -> dict[str, Any]:
            return {**options, "approximation": (Landmarks(data.X[:12]), Landmarks(data.y[:9, None]))}

        for how in ("fit", "batches", "dask"):
            _given(learner, f"landmarks_{how}{label}", landmarks, how=how)
        for how in ("batches", "dask"):
            _given(learner, f"random_{how}{label}", {**options, "approximation": RandomFeatures(40)}, how=how)
    _given(learner, "nothing_learned", {"criterion": None, "random_state": 0})
    for kind in ("strings", "graphs", "frame", "fingerprints"):
        options = {"kernel": GIVEN[kind], "alpha": 1e-2, "random_state": 0, "approximation": Nystroem(12)}
        _given(learner, f"nystroem_{kind}", options, data=kind)
    _searched(learner, "default", {"random_state": 0})
    _searched(learner, "validation", {"criterion": "validation", "random_state": 0})
    _searched(learner, "without_intercept", {"fit_intercept": False, "random_state": 0})
    _searched(learner, "without_shrinkage", {"shrinkage": 0.0, "random_state": 0})
    _searched(learner, "restarts", {"n_restarts": 3, "random_state": 0})
    for kind, kernel in SEARCHED.items():
        _searched(learner, f"{kind}", {"kernel": kernel, "random_state": 0}, data=kind)
    for name, approximation in {"nystroem": Nystroem(12), "random_features": RandomFeatures(40)}.items():
        options = {"kernel": Gaussian("auto"), "approximation": approximation, "random_state": 0}
        for how in ("fit", "dask", "batches"):
            _searched(learner, f"{name}_{how}", options, how=how)


def _classifier() -> None:
    learner = "EmbeddingClassifier"
    for kind, kernel in GIVEN.items():
        _given(learner, f"{kind}", {"kernel": kernel, "alpha": 1e-2, "random_state": 0}, data=kind, y="labels")
    for intercept in (True, False):
        for calibration in ("loo", None):
            label = f"{'with' if intercept else 'without'}_intercept_{calibration}"
            options = {**FIXED, "fit_intercept": intercept, "calibration": calibration}
            _given(learner, f"exact_{label}", options, y="labels")
            _given(learner, f"pair_{label}", options, y="pair")
            for name, approximation in {
                "nystroem": Nystroem(12),
                "random_features": RandomFeatures(40),
            }.items():
                extra = {**options, "approximation": approximation}
                _given(learner, f"{name}_{label}", extra, y="labels")
            sketch = {**options, "kernel": Polynomial(2), "approximation": TensorSketch(40)}
            _given(learner, f"sketch_{label}", sketch, y="labels")
            for how in ("fit", "batches", "dask"):
                _given(learner, f"landmarks_{how}_{label}", _landmarks(**options), y="labels", how=how)
            random = {**options, "approximation": RandomFeatures(40)}
            for how in ("batches", "dask"):
                _given(learner, f"random_{how}_{label}", random, y="labels", how=how)
    _given(learner, "linear", {**FIXED, "kernel": Linear()}, y="labels")
    _given(learner, "nothing_learned", {"objective": None, "random_state": 0}, y="labels")
    for kind in ("strings", "graphs", "frame", "fingerprints"):
        options = {"kernel": GIVEN[kind], "alpha": 1e-2, "random_state": 0, "approximation": Nystroem(12)}
        _given(learner, f"nystroem_{kind}", options, data=kind, y="labels")
    for objective in ("loo", "rademacher", "erm", "validation"):
        options = {"objective": objective, "random_state": 0}
        _searched(learner, f"{objective}", options, "objective_value_", y="labels")
        _searched(learner, f"{objective}_pair", {**options, "fit_intercept": False}, "objective_value_", y="pair")
    paper = {"objective": "rademacher", "fit_intercept": False, "shrinkage": 0.0, "calibration": None}
    _searched(learner, "paper", {**paper, "random_state": 0}, "objective_value_", y="labels")
    start = {**paper, "start": {"lengthscale": 1.0, "alpha": 0.1}, "random_state": 0}
    _searched(learner, "paper_start", start, "objective_value_", y="labels")
    for kind, kernel in SEARCHED.items():
        _searched(
            learner,
            f"{kind}",
            {"kernel": kernel, "random_state": 0},
            "objective_value_",
            data=kind,
            y="labels",
        )

    def network(data: Data) -> dict[str, Any]:
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        return {**paper, "kernel": Neural(module.double(), Linear()), "random_state": 0, "max_iter": 60}

    _searched(learner, "network", network, "objective_value_", y="labels")
    adam = {"batch_size": 12, "max_iter": 10, "random_state": 0}
    _searched(learner, "adam", adam, "objective_value_", y="labels")
    for name, approximation in {"nystroem": Nystroem(12), "random_features": RandomFeatures(40)}.items():
        options = {"kernel": Gaussian("auto"), "approximation": approximation, "random_state": 0}
        for how in ("fit", "dask", "batches"):
            _searched(learner, f"{name}_{how}", options, "objective_value_", y="labels", how=how)


# -- DeepKernelPCA and KernelFeatures ---------------------------------------------------------------------------------
def _levels() -> None:
    learner = "DeepKernelPCA"
    # Ridge regression with a small ridge leads back to the inputs.
    loose = dict.fromkeys(("reconstruct", "sample", "traverse"), 1e-5)
    for kind, kernel in GIVEN.items():
        _given(learner, f"{kind}", {"n_components": 3, "kernels": kernel}, data=kind, y=None, loose=loose)
        options = {"n_components": [3, 2], "kernels": [kernel, "linear"]}
        _given(learner, f"{kind}_closed_form", options, data=kind, y=None, loose=loose)
    two = {"n_components": [3, 2], "kernels": [Gaussian(0.9), Gaussian(1.0)], "eta": [1.0, 5.0], "tol": 1e-11}
    variants: dict[str, dict[str, Any]] = {
        "two": {},
        "three": {
            "n_components": [3, 2, 2],
            "kernels": [Gaussian(0.9), Polynomial(2), Gaussian(1.0)],
            "eta": 5.0,
        },
        "not_centred": {"center": False},
        "scf": {"solver": "scf"},
        "riemannian": {"solver": "riemannian"},
        "levelwise": {"solver": "levelwise"},
        "negative": {"kernels": [Gaussian(0.9), "linear"], "eta": [1.0, -50.0]},
        "direct": {"kernels": ["linear", "linear"], "preimage": "direct"},
        "ridge": {"preimage": "ridge"},
        "weighted": {"preimage": "weighted"},
        "nearest": {"preimage": "nearest"},
        "subset": {"max_samples": 24, "random_state": 0},
        "subset_leverage": {"max_samples": 24, "sampling": "leverage", "random_state": 0},
        "subset_entropy": {"max_samples": 24, "sampling": "entropy", "random_state": 0},
        "shares": {"n_components": [0.7, 0.6]},
    }
    for name, extra in variants.items():
        # A saddle point has upper levels that rounding errors may turn into others of the same energy.
        unstable = dict.fromkeys(("inner_1", "eigenvalues_", "explained", "reconstruct", "sample", "traverse"), np.inf)
        _given(
            learner,
            f"variant_{name}",
            {**two, **extra},
            y=None,
            loose=unstable if name == "negative" else loose,
        )
    _given(learner, "dask", {**two, "max_samples": 24, "random_state": 0}, y=None, how="dask", loose=loose)
    for solver in ("auto", "riemannian", "projected_gradient", "riemannian_adam"):
        options = {**two, "eta": 1.0, "solver": solver, "max_iter": 60, "tol": 1e-6}
        _searched(learner, f"{solver}", options, "-energy_", y=None)
    _searched(learner, "random", {**two, "init": "random", "random_state": 0}, "-energy_", y=None)
    _searched(learner, "default", {}, "-energy_", y=None)


def _features() -> None:
    learner = "KernelFeatures"
    for kind in (
        "vectors",
        "strings",
        "graphs",
        "molecules",
        "bags",
        "curves",
        "series",
        "frame",
        "fingerprints",
    ):
        options = {"kernel": GIVEN[kind], "approximation": Nystroem(12), "random_state": 0}
        _given(learner, f"nystroem_{kind}", options, data=kind, y=None)
    approximations: dict[str, tuple[Kernel, Any]] = {
        "leverage": (Gaussian(0.9), Nystroem(12, "leverage")),
        "random_features": (Gaussian(0.9), RandomFeatures(20)),
        "random_matern": (Matern(1.5, 0.9), RandomFeatures(20)),
        "sketch": (Polynomial(2), TensorSketch(20)),
        "default": (Gaussian("median"), None),
    }
    for name, (kernel, approximation) in approximations.items():
        options = {"kernel": kernel, "approximation": approximation, "random_state": 0}
        _given(learner, name, options, y=None)
        _given(learner, f"{name}_dask", options, y=None, how="dask")


for _table in (
    _ridge,
    _deep_regressor,
    _deep_classifier,
    _autoencoder,
    _structured,
    _conditional,
    _classifier,
    _levels,
    _features,
):
    _table()
