"""The explorer, which asks a fitted learner for all that the page shows, as records of plain values."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from representer.estimators import DeepKernelPCA, KernelAutoencoder
from representer.explorer.charts import Chart, KernelComponents, RidgeInverse, nearest_samples
from representer.explorer.drawings import Drawing, Drawings, item_of
from representer.explorer.page import standalone
from representer.explorer.tuning import LeftOutTargets, Tuned, Tuning
from representer.inspection import (
    Explanation,
    as_text,
    class_misfits,
    kernel_of,
    kernel_words,
    points_of,
    representation_of,
)
from representer.kernels import Kernel, seen_inside
from representer.operators import Decomposable, Representation
from representer.samples import Data, TrainingSamples, count, evenly_spaced, take

# The numbers of points on the map and in a file, of terms and steps, and of cells on a side of a grid.
MOST_POINTS, EXPORTED = 20_000, 800
KEPT, TERMS, STEPS, GRID, COARSE = 40, 8, 7, 15, 9
THUMBNAILS, WALKS = 1500, 8
COVERAGE = 0.9

Answer = dict[str, object]


class Explorer:
    """A page on which a fitted learner is explored: live on this machine, or as one file.

    Parameters
    ----------
    model : fitted learner
        A learner of the library, shown with its training samples if it keeps them.
    X : data, optional
        Samples to show in place of the training samples.
    y : array-like, optional
        Their targets.
    shape : (int, int) or None, default=None
        Height and width, if rows of numbers are pictures. None: square pictures are recognised.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import OperatorRidge
    >>> from representer.explorer import Explorer
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> explorer = Explorer(OperatorRidge("rbf", alpha=0.1).fit(X, X[:, 0]))
    >>> explorer.overview()["map"]["words"]
    'kernel PCA of Gaussian'
    >>> sorted(explorer.overview()["colours"])
    ['error', 'support', 'target']
    """

    def __init__(self, model: Any, X: Data = None, y: Data = None, *, shape: tuple[int, int] | None = None) -> None:
        own = X is None
        samples, kept = _kept(model)
        inputs = kept if own else model._new_inputs(X)
        if inputs is None or (samples is not None and samples.pairwise and not own):
            raise ValueError(
                f"This {type(model).__name__} keeps no training samples that can be shown. Give some: --data file on "
                "the command line, or Explorer(model, X)."
            )
        targets = (None if samples is None else samples.y) if own else y
        self.total = count(inputs)
        rows = evenly_spaced(self.total, MOST_POINTS)
        self.own, self.n = own, len(rows)
        self.rows = rows
        self.X = inputs if len(rows) == self.total else take(inputs, torch.from_numpy(rows))
        self.y = _checked_targets(targets, self.total, rows)
        names = getattr(model, "feature_names_in_", None)
        self.model = copy.copy(model)
        if isinstance(inputs, np.ndarray):  # whose columns have no names any more
            self.model.__dict__.pop("feature_names_in_", None)
        self.pairwise = self._domain == "gram"
        numbers = Drawings("number")
        self.drawings = numbers if self.pairwise else Drawings.of(self.X, self._kernel, names, shape)

    # -- the model ----------------------------------------------------------------------------------------------------
    @property
    def _domain(self) -> str:
        return str(self.model._data_kernel().domain)

    @cached_property
    def _function(self) -> Any:
        return self.model.function_ if isinstance(self.model, DeepKernelPCA) else self.model._explained_function()

    @cached_property
    def _kernel(self) -> Kernel | None:
        """The scalar kernel of the data."""
        if isinstance(self.model, DeepKernelPCA):
            return _scalar(self.model.function_.data.kernel)
        kernel = kernel_of(self._function) if hasattr(self.model, "function_") else None
        return kernel if kernel is not None else _scalar(getattr(self.model, "kernel_", None))

    @cached_property
    def _how(self) -> Representation:
        try:
            return representation_of(self._function)
        except (AttributeError, AssertionError):
            how: Representation = self.model._representation()
            return how

    @cached_property
    def _anchors(self) -> Data:
        """The objects to which the terms of explanations belong; None if they are no samples."""
        try:
            return points_of(self._function, _kept(self.model)[1])
        except (AttributeError, ValueError):
            return None

    @cached_property
    def _shared(self) -> bool:
        """Are these objects the shown samples, in the same order?"""
        anchors = self._anchors
        same = anchors is not None and self.own and self.n == self.total
        return same and count(anchors) == self.n

    @cached_property
    def classes(self) -> tuple[str, ...] | None:
        """The names of classes, or None for numbers."""
        names = getattr(self.model, "classes_", None)
        return None if names is None else tuple(map(str, names))

    # -- the map ------------------------------------------------------------------------------------------------------
    @cached_property
    def chart(self) -> Chart:
        """The map of the samples."""
        model = self.model
        if isinstance(model, KernelAutoencoder):
            codes, words, back = (
                model.transform(self.X),
                "codes of the autoencoder",
                "what the decoder makes of this code",
            )
            return Chart(codes, words, model.transform, model.inverse_transform, back)
        if isinstance(model, DeepKernelPCA):
            return _levels_chart(model, self.X)
        if self._kernel is None:
            raise ValueError(f"{type(model).__name__} has no scalar kernel of its samples, so there is no map of them.")
        components = KernelComponents.of(self._kernel, self.X, self._how)
        codes = components(self.X)
        several = len(self._kernel.addends()) > 1
        name = "a sum of kernels" if several else type(seen_inside(self._kernel)[0]).__name__
        words = f"kernel PCA of {name}"
        if isinstance(self.X, np.ndarray) and self.X.dtype.kind in "biuf" and not self.pairwise:
            back = "ridge regression of the inputs on the components"
            return Chart(codes, words, components, RidgeInverse(codes, self.X), back)
        objects = list(range(self.n)) if self.pairwise else self.X
        return Chart(
            codes, words, components, partial(nearest_samples, codes, objects), "the nearest sample on the map"
        )

    def overview(self) -> Answer:
        """The first view of the page: the map and its colours."""
        return {
            "title": type(self.model).__name__,
            "kernel": self._words,
            "samples": "training samples" if self.own else "samples",
            "n": self.n,
            "total": self.total,
            "kind": self.drawings.kind,
            "map": {"codes": self.chart.codes, "words": self.chart.words, "back": self.chart.back},
            "colours": self.colours,
            "classes": self.classes,
            "supervised": self.supervised,
            "editable": self.editable,
            "interval": self._has_intervals,
            "shared": self._shared,
            "thumbnails": self._thumbnails(),
        }

    @property
    def _words(self) -> str:
        """The kernel as code, or the kernels of a stack by name."""
        tuned = _tuned(self.model, self._kernel)
        if len(tuned) > 1:
            return f"a stack of {', '.join(one.words for one in tuned)}"
        return kernel_words(tuned[0].kernel if tuned else getattr(self.model, "kernel_", self._kernel))[:200]

    @property
    def supervised(self) -> bool:
        """Does the model predict?"""
        return hasattr(self.model, "predict")

    @property
    def _has_intervals(self) -> bool:
        return hasattr(self.model, "predict_interval" if self.classes is None else "predict_set")

    @property
    def editable(self) -> bool:
        """Can an input be edited?"""
        return not self.pairwise and self.drawings.editable(item_of(self.X, 0)) is not None

    def _thumbnails(self) -> Answer | None:
        """Small pictures of some samples for the map."""
        if self.drawings.kind != "picture":
            return None
        rows = evenly_spaced(self.n, THUMBNAILS)
        return {"rows": rows, "ink": self.drawings.ink, "pictures": [self.drawings.thumbnail(self.X[i]) for i in rows]}

    @cached_property
    def colours(self) -> dict[str, Answer]:
        """The numbers or classes by which points can be coloured."""
        colours: dict[str, Answer] = {}
        if self.y is not None:
            colours["target"] = _colour(self.y)
        error = self._errors()
        if error is not None:
            colours["error"] = {"numbers": error[0], "words": error[1]}
        try:
            with quietly():
                colours["support"] = {"numbers": self.model.support(self.X), "words": "support by the training samples"}
        except (ValueError, AttributeError):  # Gram matrices, and functions without points, have no support
            pass
        return colours

    def _errors(self) -> tuple[np.ndarray, str] | None:
        """The errors of the model for all samples and their meaning; training samples have leave-one-out errors."""
        model = self.model
        if isinstance(model, KernelAutoencoder):
            return model.reconstruction_error(self.X), "squared error of the reconstruction"
        if self.y is None or not self.supervised:
            return None
        if self.own:
            if model._left_out_answers() is None:
                return None
            words = "−log p of the class" if self.classes else "error in standard deviations"
            return model.misfit_[self.rows], f"{words}, each sample left out"
        if self.classes is not None and hasattr(model, "predict_proba"):
            places = np.searchsorted(model.classes_, self.y).clip(max=len(model.classes_) - 1)
            return class_misfits(model.predict_proba(self.X), places), "−log p of the class"
        if self.y.dtype.kind not in "biuf":
            return None
        errors = np.abs(np.asarray(model.predict(self.X), float) - self.y)
        return errors.reshape(self.n, -1).max(1), "size of the error"

    def draw(self, i: int, *, anchor: bool = False) -> Drawing:
        """The drawing of a sample, or with ``anchor`` of an object to which a term of explanations belongs."""
        X = self._anchors if anchor and not self._shared else self.X
        if X is None or not 0 <= i < count(X):
            raise ValueError(f"There is no sample {i}.")
        return self.drawings.draw(i if self.pairwise else item_of(X, i))

    def decode(self, places: Sequence[Sequence[float]]) -> list[Drawing]:
        """Drawings of the objects at places of the map."""
        codes = np.asarray(places, float)
        if codes.ndim != 2 or codes.shape[1] != self.chart.codes.shape[1] or not np.isfinite(codes).all():
            raise ValueError(f"A place has {self.chart.codes.shape[1]} finite coordinates; got shape {codes.shape}.")
        objects = self.chart.decode(codes)
        return [self.drawings.draw(item_of(objects, k)) for k in range(len(codes))]

    def traverse(self, component: int, start: Sequence[float] | None) -> Answer:
        """Objects along one component."""
        if not 0 <= component < self.chart.codes.shape[1]:
            raise ValueError(f"There is no component {component}; there are {self.chart.codes.shape[1]}.")
        places = self.chart.along(component, None if start is None else np.asarray(start, float), STEPS)
        return {"places": places, "drawings": self.decode(places.tolist())}

    def sample(self, n: int, seed: int) -> Answer:
        """New objects from the density of the places."""
        if not 1 <= n <= 50:
            raise ValueError(f"Between 1 and 50 objects are drawn at once; got {n}.")
        places = self.chart.drawn(n, seed)
        return {"places": places, "drawings": self.decode(places.tolist())}

    # -- reasons ------------------------------------------------------------------------------------------------------
    def explain(self, i: int) -> Answer:
        """The reasons of the model for a sample, with the sample as a form if it can be edited."""
        answer = self._reasons(self._sample(i))[0]
        return answer | {"edit": None if self.pairwise else self.drawings.editable(item_of(self.X, i))}

    def ask(self, edited: object, like: int) -> Answer:
        """The reasons of the model for an edited sample, with its drawing and its place on the map."""
        if not 0 <= like < self.n or not self.editable:
            raise ValueError("There is no such sample, or it cannot be edited.")
        X = self.drawings.read(edited, item_of(self.X, like))
        checked = self.model._new_inputs(X)
        drawing = self.drawings.draw(item_of(checked, 0))
        return self._reasons(checked)[0] | {"drawing": drawing, "place": self.chart.place(checked)[0]}

    def interval(self, i: int) -> Answer:
        """A conformal interval, or the classes that cannot be excluded; the first call may fit five times."""
        return self._intervals(self._sample(i))[0]

    def _sample(self, i: int) -> Data:
        """The i-th sample as a collection of one."""
        if not 0 <= i < self.n:
            raise ValueError(f"There is no sample {i}; there are {self.n}.")
        return take(self.X, torch.tensor([i]))

    def _intervals(self, X: Data) -> list[Answer]:
        if not self._has_intervals:
            raise ValueError(f"{type(self.model).__name__} has no intervals.")
        if self.classes is not None:
            names = np.array(self.classes, dtype=object)
            with quietly():
                return [{"classes": names[row].tolist()} for row in self.model.predict_set(X, COVERAGE)]
        with quietly():
            ends = self.model.predict_interval(X, COVERAGE)
        return [{"ends": np.reshape(row, (-1, 2))[0]} for row in ends]

    def _reasons(self, X: Data) -> list[Answer]:
        """Predictions, contributions, neighbours and support of checked samples."""
        predicted = self._predictions(X)
        try:
            with quietly():
                why = self.model.explain(X, top=KEPT)
        except (ValueError, AttributeError) as error:
            return [prediction | {"silent": str(error)} for prediction in predicted]
        support = self._support(X)
        return [
            prediction | {"support": None if support is None else support[k], **self._terms(why, k)}
            for k, prediction in enumerate(predicted)
        ]

    def _support(self, X: Data) -> np.ndarray | None:
        if "support" not in self.colours:
            return None
        with quietly():
            support: np.ndarray = self.model.support(X)
        return support

    def _predictions(self, X: Data) -> list[Answer]:
        """The predictions as numbers or texts, with the probabilities of classes."""
        n = count(X)
        if not self.supervised:
            return [{} for _ in range(n)]
        if self.classes is not None and hasattr(self.model, "predict_proba"):
            p = self.model.predict_proba(X)
            return [{"prediction": self.classes[int(row.argmax())], "probabilities": row} for row in p]
        answers = self.model.predict(X)
        return [{"prediction": answers[k] if _is_number(answers[k]) else str(answers[k])[:200]} for k in range(n)]

    def _terms(self, why: Explanation, k: int) -> Answer:
        """The largest terms of one output, which is the predicted class or the first output."""
        assert why.numbers is not None
        several = why.prediction.ndim == 2
        output = int(why.prediction[k].argmax()) if several and self.classes is not None else 0
        values = why.contributions[k, :, output] if several else why.contributions[k]
        largest = np.argsort(-np.abs(values), kind="stable")[:TERMS]
        values, numbers = values[largest], why.numbers[k][largest]
        value = why.prediction[k, output] if several else why.prediction[k]
        baseline = why.baseline[output] if several else why.baseline
        labels = why.labels if why.labels is not None and why.labels.ndim == 1 else None
        return {
            "value": value,
            "output": None if why.outputs is None else why.outputs[output if several else 0],
            "baseline": baseline,
            "kind": why.terms,
            "terms": [
                {"i": int(i), "value": v, "label": None if labels is None else as_text(labels[i])}
                for i, v in zip(numbers, values, strict=True)
            ],
            "rest": value - baseline - values.sum(),
            "others": why.n_terms - len(values),
            "neighbours": [] if why.neighbours is None or self._anchors is None else why.neighbours[k],
            "std": None if why.std is None else np.reshape(why.std[k], -1)[output],
        }

    # -- the kernel ---------------------------------------------------------------------------------------------------
    @cached_property
    def tuning(self) -> Tuning | None:
        """The kernels with their Gram matrices, spectra and sliders; None without a scalar kernel."""
        tuned = _tuned(self.model, self._kernel)
        return None if not tuned else Tuning(tuned, self.X, self._how, self._targets())

    def _targets(self) -> LeftOutTargets | None:
        if self.y is None or not self.supervised or self.y.ndim > 2:
            return None
        options = self.model._training_samples.options if self.own else {}
        chosen = {name: None if options.get(option) is None else np.asarray(options[option])[self.rows]
                  for name, option in (("weights", "sample_weight"), ("groups", "groups"))}  # fmt: skip
        intercept = bool(getattr(self.model, "fit_intercept", True))
        if self.classes is not None:
            labels = np.searchsorted(self.model.classes_, self.y).clip(max=len(self.classes) - 1)
            return LeftOutTargets(np.eye(len(self.classes))[labels], self.classes, intercept=intercept, **chosen)
        if self.y.dtype.kind not in "biuf":
            return None
        return LeftOutTargets(np.asarray(self.y, float).reshape(self.n, -1), None, intercept=intercept, **chosen)

    def tune(self, which: int = 0, factors: Mapping[str, float] | None = None, alpha: float | None = None) -> Answer:
        """The Gram matrix, its spectrum and leave-one-out errors, for numbers of a kernel times these factors."""
        if self.tuning is None:
            raise ValueError(f"{type(self.model).__name__} has no scalar kernel of its samples.")
        return self.tuning.view(which, dict(factors or {}), alpha)

    # -- the page -----------------------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page that needs no server: one file, with a grid of decoded places and explanations of the points.

        Parameters
        ----------
        path : path
            The file, ``"page.html"`` for instance. It shows at most 800 samples, evenly spaced.

        Returns
        -------
        path : Path
            The file.
        """
        target = Path(path)
        target.write_text(standalone(self._everything()), encoding="utf-8")
        return target

    def _everything(self) -> Answer:
        """The data of a page without a server."""
        rows = evenly_spaced(self.n, EXPORTED)
        X, chart = take(self.X, torch.from_numpy(rows)), self.chart
        overview = self.overview() | self._thinned(rows)
        reasons = self._reasons(X)
        if overview["interval"]:
            pairs = zip(reasons, self._intervals(X), strict=True)
            reasons = [reason | {"interval": ends} for reason, ends in pairs]
        named = {int(t["i"]) for reason in reasons for t in reason.get("terms", [])}  # type: ignore[attr-defined]
        named |= {int(i) for reason in reasons for i in reason.get("neighbours", [])}  # type: ignore[attr-defined]
        whole = self._anchors is None or reasons[0].get("kind") == "features" or (self._shared and len(rows) == self.n)
        grid = chart.grid(GRID if self.drawings.kind in ("picture", "curve") else COARSE)
        axes = range(min(chart.codes.shape[1], WALKS))
        return {
            "overview": overview,
            "rows": rows,
            "drawings": [self.draw(int(i)) for i in rows],
            "anchors": {} if whole else {str(i): self.draw(i, anchor=True) for i in sorted(named)},
            "reasons": reasons,
            "grid": {"places": grid, "drawings": self.decode(grid.tolist())},
            "walks": [self.traverse(k, None) for k in axes],
            "drawn": self.sample(24, 0),
            "kernel": None if self.tuning is None else self.tune(),
        }

    def _thinned(self, rows: np.ndarray) -> Answer:
        """The map and its colours for some of the points."""
        places = {"codes": self.chart.codes[rows], "words": self.chart.words, "back": self.chart.back}
        colours = {name: c | {"numbers": np.asarray(c["numbers"])[rows]} for name, c in self.colours.items()}
        pictures = None
        if self.drawings.kind == "picture":
            small = [self.drawings.thumbnail(self.X[i]) for i in rows]
            pictures = {"rows": np.arange(len(rows)), "ink": self.drawings.ink, "pictures": small}
        return {"map": places, "colours": colours, "thumbnails": pictures}


@contextmanager
def quietly() -> Iterator[None]:
    """A context without warnings, for which a page has no place; it shows infinite intervals as such."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- parts of a model -------------------------------------------------------------------------------------------------
def _levels_chart(model: DeepKernelPCA, X: Data) -> Chart:
    """The chart of the components of the last level that has at least two, or else of the last level."""
    sizes = list(model.n_components_)
    level = next((j for j in reversed(range(len(sizes))) if sizes[j] > 1), len(sizes) - 1)

    def place(new: Data) -> np.ndarray:
        return np.asarray(model.transform(new, level))

    def decode(places: np.ndarray) -> Data:
        return model.inverse_transform(places, level)

    return Chart(place(X), f"components of level {level + 1} of {len(sizes)}", place, decode, "its pre-image")


def _kept(model: Any) -> tuple[TrainingSamples | None, Data]:
    """The training samples with their targets, and their inputs, if a model keeps them."""
    try:
        return model._training_samples, model._fitted_inputs()
    except ValueError:  # a light model keeps none
        return None, None


def _scalar(kernel: object) -> Kernel | None:
    """The scalar kernel in a decomposable kernel, or a scalar kernel itself; None for others."""
    kernel = kernel.kernel if isinstance(kernel, Decomposable) else kernel
    return kernel if isinstance(kernel, Kernel) else None


def _tuned(model: Any, kernel: Kernel | None) -> list[Tuned]:
    """The kernels of a stack with their weights, the heaviest first, or the only one."""
    members = [(_scalar(member.kernel), member) for member in getattr(model, "members_", ())]
    tuned = [
        Tuned(scalar, float(member.alpha), float(np.mean(member.weights)))
        for scalar, member in members
        if scalar is not None and np.any(member.weights)
    ]
    if tuned:
        return sorted(tuned, key=lambda one: -one.weight)
    single = _scalar(getattr(model, "kernel_", None)) or kernel
    alpha = float(np.mean(getattr(model, "alpha_", 1e-3)))
    return [] if single is None else [Tuned(single, alpha if alpha > 0 else 1e-3)]


def _checked_targets(y: Data, total: int, rows: np.ndarray) -> np.ndarray | None:
    """The targets of the shown samples; None if they are no array."""
    if y is None:
        return None
    try:
        values = np.asarray(y)
    except ValueError:  # objects of different lengths
        return None
    if len(values) != total:
        raise ValueError(f"X has {total} samples and y has {len(values)}.")
    return values[rows]


def _colour(y: np.ndarray) -> Answer:
    """Targets as colours: numbers, or classes with their names."""
    first = y if y.ndim == 1 else y.reshape(len(y), -1)[:, 0]
    whole = first.dtype.kind in "biu" or (first.dtype.kind == "f" and bool((first == np.round(first)).all()))
    names, numbers = np.unique(first.astype(str) if first.dtype.kind not in "biuf" else first, return_inverse=True)
    if first.dtype.kind in "fiu" and (not whole or len(names) > 12):
        return {"numbers": first.astype(float), "words": "target"}
    return {"numbers": numbers, "names": [as_text(name) for name in names], "words": "target"}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
