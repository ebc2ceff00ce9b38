"""Explanations of predictions as sums of terms, and misfits of samples, each judged by a fit that has not seen it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions import Composed, Expansion, FeatureFunction, Function, Stacked
from representer.inspection.drawings import Gallery
from representer.inspection.rounding import CANCELLATION
from representer.kernels import Kernel, unscaled
from representer.linalg import row_blocks
from representer.notices import NumericalWarning, warn
from representer.operators import Decomposable, Representation, Separate, silent_repairs
from representer.plotting import contribution_bars
from representer.samples import Data, count, plain
from representer.systems import FittedSystem, StackedSystem, robust_scale
from representer.values import is_count

# Smaller probabilities count as this one, so that misfits are finite.
LEAST_PROBABILITY = 1e-12


def class_misfits(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The misfits −log p (n,) of samples, with p the probability of a sample's class by a fit without it.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.explanation import class_misfits
    >>> class_misfits(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([1, 1])).round(2).tolist()
    [0.69, 2.3]
    """
    likelihoods = probabilities[np.arange(len(labels)), labels]
    return -np.log(np.maximum(likelihoods, LEAST_PROBABILITY))


def relative_errors(errors: Tensor, variances: Tensor | None = None) -> np.ndarray:
    """The largest size (n,) of errors (n, p) over outputs, in standard deviations; missing targets are NaN.

    Without variances (n, p), the deviation of an output is a robust one of its errors.
    """
    scale = robust_scale(errors**2) if variances is None else variances
    sizes = errors.abs() / scale.clamp(min=torch.finfo(errors.dtype).tiny).sqrt()
    largest = sizes.nan_to_num(-torch.inf).amax(1)
    return torch.where(largest.isinf(), torch.nan, largest).cpu().numpy()


def left_out_misfits(system: FittedSystem | StackedSystem) -> np.ndarray:
    """The sizes (n,) of leave-one-out errors in standard deviations; NaN for samples of weight zero."""
    samples = system.samples
    if samples is None:
        raise ValueError(
            "Misfits need the training samples, and a fit by batches or on Dask keeps none. Fit in memory."
        )
    left = system.with_all_samples().observed_left_out()
    errors = relative_errors((left.Y.to(left.mean) - left.mean).double(), left.variance.double())
    if samples.weights is None:
        return errors
    misfits = np.full(len(samples.Y), np.nan)
    misfits[samples.weights > 0] = errors
    return misfits


# Up to KEPT_NUMBERS numbers all contributions are kept; above, KEPT_TERMS terms of each prediction.
KEPT_NUMBERS, KEPT_TERMS = 20_000_000, 50
NEIGHBOURS = 5
# The numbers of queries and of terms that a notebook shows.
SHOWN_QUERIES, SHOWN_TERMS = 5, 6
# Contributions this many times as large as the prediction cancel, and are no reasons for it.
CANCELLING = 10.0


@dataclass(frozen=True, repr=False)
class Explanation:
    """Predictions as sums of ``baseline``, the ``contributions`` of training samples, and the ``rest``.

    q queries have n terms each, of which k are kept. The last axis is that of outputs, and is missing if there is only
    one.

    Parameters
    ----------
    prediction : ndarray of shape (q,) or (q, n_outputs)
        The explained values: predictions, decision values or raw estimates of classes, codes, scores of candidates.
    baseline : ndarray of shape () or (n_outputs,)
        The constant beside the terms.
    contributions : ndarray of shape (q, k) or (q, k, n_outputs)
        The signed terms. With ``baseline`` and ``rest`` they sum to ``prediction``.
    rest : ndarray like prediction
        The sum of the terms that are not kept; zero if all are.
    numbers : ndarray of shape (q, k) or None
        The numbers of the kept terms, the largest term first; None: all of them, in their order.
    n_terms : int
        The number of all terms.
    terms : {"samples", "landmarks", "features"}
        The kind of the objects to which the terms belong.
    outputs : tuple of str or None
        The names of several outputs, such as classes.
    labels : ndarray of shape (n_terms,) or (n_terms, n_outputs), or None
        The targets of the samples to which the terms belong, if they are known.
    members : dict of str to ndarray like prediction
        The contribution of each kernel of a stack, or of a sum: with ``baseline`` they sum to ``prediction``.
    neighbours : ndarray of shape (q, 5) or None
        The numbers of the nearest samples or landmarks in the space of the kernel, the nearest first.
    std : ndarray like prediction, or None
        The standard deviation of a new observation.
    interval : ndarray of shape (q, 2) or (q, n_outputs, 2), or None
        The conformal interval of a new observation, if a coverage was given.
    support : ndarray of shape (q,) or None
        The share of each query that the training samples explain, from 0 to 1.
    parts : tuple of q ndarrays of shape (n_parts,) or (n_parts, n_outputs), or None
        The effect of each part of a query, if it was asked for. For a string or a graph it is the prediction minus that
        without the character or node; for a molecule, minus that with an unknown atom in place of the atom. Vectors and
        records have the Shapley values of their columns, which with ``parts_baseline`` sum to the prediction.
    parts_baseline : ndarray of shape () or (n_outputs,), or None
        The mean prediction of the training samples that stand for unknown columns; None for parts of objects, which do
        not sum to the prediction.
    part_names : tuple of str or None
        The names of columns.
    gallery : Gallery or None
        The queries and samples that a notebook draws.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import OperatorRidge
    >>> X = np.arange(6.0)[:, None]
    >>> model = OperatorRidge("rbf", alpha=0.1).fit(X, X[:, 0])
    >>> why = model.explain([[2.2]])
    >>> bool(np.isclose(why.contributions.sum(1) + why.baseline, why.prediction)[0]), why.contributions.shape
    (True, (1, 6))
    """

    prediction: np.ndarray
    baseline: np.ndarray
    contributions: np.ndarray
    rest: np.ndarray
    numbers: np.ndarray | None
    n_terms: int
    terms: str
    outputs: tuple[str, ...] | None = None
    labels: np.ndarray | None = None
    members: dict[str, np.ndarray] | None = None
    neighbours: np.ndarray | None = None
    std: np.ndarray | None = None
    interval: np.ndarray | None = None
    support: np.ndarray | None = None
    parts: tuple[np.ndarray, ...] | None = None
    parts_baseline: np.ndarray | None = None
    part_names: tuple[str, ...] | None = None
    gallery: Gallery | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.prediction)

    def __getitem__(self, rows: Any) -> Explanation:
        """The explanations of some queries, by a slice or their numbers."""
        rows = [rows] if np.ndim(rows) == 0 and not isinstance(rows, slice) else rows
        shared = {"baseline", "n_terms", "terms", "outputs", "labels", "part_names", "parts", "parts_baseline"}
        by_query = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in shared}
        members = by_query.pop("members")
        taken: dict[str, Any] = {name: None if values is None else values[rows] for name, values in by_query.items()}
        if self.parts is not None:
            taken["parts"] = tuple(self.parts[int(i)] for i in np.arange(len(self))[rows])
        return replace(self, members=None if members is None else {k: v[rows] for k, v in members.items()}, **taken)

    def top(self, k: int) -> Explanation:
        """The explanation with the k largest contributions to each prediction; the others join the rest."""
        if not is_count(k):
            raise ValueError(f"k must be a positive integer, the number of terms to keep; got {k!r}.")
        values = self.contributions.reshape(*self.contributions.shape[:2], -1)
        order = np.argsort(-np.linalg.norm(values, axis=2), axis=1, kind="stable")[:, :k]
        largest = np.take_along_axis(values, order[:, :, None], 1).reshape(*order.shape, *self.contributions.shape[2:])
        numbers = order if self.numbers is None else np.take_along_axis(self.numbers, order, 1)
        rest = self.rest + self.contributions.sum(1) - largest.sum(1)
        return replace(self, contributions=largest, numbers=numbers, rest=rest)

    def by_label(self) -> dict[Any, np.ndarray]:
        """The sums of the kept contributions over the samples with each label, arrays like ``prediction``."""
        if self.labels is None or self.labels.ndim != 1:
            raise ValueError("The terms have no labels: they belong to features or landmarks, or targets are vectors.")
        numbers = np.arange(self.n_terms)[None] if self.numbers is None else self.numbers
        labels = np.broadcast_to(self.labels[numbers], self.contributions.shape[:2])
        shape = (*labels.shape, *[1] * (self.contributions.ndim - 2))
        masks = {label: (labels == label).reshape(shape) for label in np.unique(self.labels)}
        return {label: (self.contributions * mask).sum(1) for label, mask in masks.items()}

    def to_frame(self) -> Any:
        """The contributions as a data frame with a row for each query, term and output."""
        import pandas as pd

        q, k = self.contributions.shape[:2]
        numbers = np.broadcast_to(np.arange(self.n_terms), (q, k)) if self.numbers is None else self.numbers
        p = 1 if self.contributions.ndim == 2 else self.contributions.shape[2]
        columns: dict[str, Any] = {
            "query": np.repeat(np.arange(q), k * p),
            self.terms[:-1]: np.repeat(numbers.reshape(-1), p),
        }
        if self.contributions.ndim == 3:
            names = list(range(p)) if self.outputs is None else list(self.outputs)
            columns["output"] = np.tile(np.array(names, dtype=object), q * k)
        if self.labels is not None and self.labels.ndim == 1:
            columns["label"] = np.repeat(self.labels[numbers.reshape(-1)], p)
        columns["contribution"] = self.contributions.reshape(-1)
        return pd.DataFrame(columns)

    def _named_terms(self, query: int, k: int, output: int) -> tuple[list[str], np.ndarray]:
        """The names and the values of the k largest contributions to one output."""
        largest = self[query].top(k)
        assert largest.numbers is not None
        values = largest.contributions[0] if largest.contributions.ndim == 2 else largest.contributions[0, :, output]
        has_labels = self.labels is not None and self.labels.ndim == 1
        names = [
            f"{self.terms[:-1]} {i}" + (f" ({as_text(self.labels[i])})" if has_labels else "")  # type: ignore[index]
            for i in largest.numbers[0]
        ]
        return names, values

    def _shown_output(self, query: int) -> int:
        """The output that is shown, which is the one with the largest prediction."""
        return 0 if self.prediction.ndim == 1 else int(self.prediction[query].argmax())

    def _summary(self, query: int) -> list[tuple[str, str]]:
        """The facts about a prediction, as pairs of a name and a text."""
        output = self._shown_output(query)

        def one(values: np.ndarray) -> str:
            return f"{float(values[output] if values.ndim else values):.4g}"

        facts = [("prediction", one(self.prediction[query])), ("baseline", one(self.baseline))]
        if self.outputs is not None:
            facts.insert(0, ("output", self.outputs[output]))
        if self.std is not None:
            facts.append(("± std", one(self.std[query])))
        if self.interval is not None:
            low, high = self.interval[query].reshape(-1, 2)[output]
            facts.append(("interval", f"[{low:.4g}, {high:.4g}]"))
        if self.support is not None:
            facts.append(("support", f"{self.support[query]:.2f}"))
        return facts

    def __repr__(self) -> str:
        """The predictions and the largest terms of the first queries, each in a line."""
        lines = [f"Explanation of {len(self)} predictions by {self.n_terms} {self.terms}"]
        for query in range(min(SHOWN_QUERIES, len(self))):
            names, values = self._named_terms(query, 3, self._shown_output(query))
            facts = ", ".join(f"{word} {text}" for word, text in self._summary(query))
            largest = ", ".join(f"{name} {value:+.4g}" for name, value in zip(names, values, strict=True))
            lines.append(f"  {query}: {facts}; largest: {largest}")
        return "\n".join(lines + ["  …"] * (len(self) > SHOWN_QUERIES))

    def _repr_html_(self) -> str:
        """The first queries in a notebook, with their predictions, and the largest terms as bars."""
        queries = [self._query_html(query) for query in range(min(SHOWN_QUERIES, len(self)))]
        if len(self) > SHOWN_QUERIES:
            others = len(self) - SHOWN_QUERIES
            queries.append(f"<p>… and {others} more; <code>explanation[i]</code> is one of them.</p>")
        return "".join(queries)

    def _query_html(self, query: int) -> str:
        output = self._shown_output(query)
        names, values = self._named_terms(query, SHOWN_TERMS, output)
        largest = max(float(np.abs(values).max(initial=0.0)), np.finfo(float).tiny)
        facts = " · ".join(f"{escape(word)} <b>{escape(text)}</b>" for word, text in self._summary(query))
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td style='text-align:right'>{value:+.4g}</td><td style='width:12em'>"
            f"<div style='height:.7em;width:{100 * abs(value) / largest:.1f}%;"
            f"background:{'#0072b2' if value > 0 else '#d55e00'}'></div></td></tr>"
            for name, value in zip(names, values, strict=True)
        )
        others = self.prediction[query] - self.baseline
        others = float(others[output] if others.ndim else others) - float(values.sum())
        last = f"<tr><td>{self.n_terms - len(names)} others</td><td style='text-align:right'>{others:+.4g}</td></tr>"
        drawn = f"{self._parts_html(query, output)}{self._neighbours_html(query)}"
        return f"<p>query {query}: {facts}</p><table>{rows}{last}</table>{drawn}"

    def _neighbours_html(self, query: int) -> str:
        """Drawings of the query and its nearest samples."""
        if self.gallery is None or self.neighbours is None:
            return ""
        return self.gallery.html(query, self.neighbours[query].tolist())

    def _parts_html(self, query: int, output: int) -> str:
        """The query with its parts in colours, or the columns with the largest effects."""
        if self.parts is None:
            return ""
        values = self.parts[query] if self.parts[query].ndim == 1 else self.parts[query][:, output]
        if self.part_names is None:
            return "" if self.gallery is None else f"<p>{self.gallery.coloured(query, values)}</p>"
        order = np.argsort(-np.abs(values), kind="stable")[:SHOWN_TERMS]
        shares = (f"{escape(self.part_names[i])} <b>{values[i]:+.4g}</b>" for i in order)
        b = self.parts_baseline
        mean = "" if b is None else f"mean <b>{float(b[output] if b.ndim else b):.4g}</b> · "
        return f"<p>columns: {mean}{' · '.join(shares)}</p>"

    def plot(self, query: int = 0, k: int = 10, *, output: int | None = None, ax: Any = None) -> Any:
        """Draw the k largest contributions to one prediction as bars. Needs matplotlib (the extra ``plot``).

        Parameters
        ----------
        query : int, default=0
            The number of the query.
        k : int, default=10
            The number of terms.
        output : int or None, default=None
            The number of the output; None: the one with the largest prediction.
        ax : Axes or None, default=None
            The axes to draw on; None: the current axes of pyplot.

        Returns
        -------
        ax : Axes
            The axes with the bars.
        """
        output = self._shown_output(query) if output is None else output
        names, values = self._named_terms(query, k, output)
        size = float(np.abs(self.prediction[query].reshape(-1)[output]))
        cancel = float(np.abs(values).max(initial=0.0)) > CANCELLING * size
        label = "contribution (large ones cancel: see influence)" if cancel else "contribution"
        title = ", ".join(f"{word} {text}" for word, text in self._summary(query))
        return contribution_bars(names, values, title=title, label=label, ax=ax)


def as_text(value: object) -> str:
    """A number with four digits, or any other label as it is."""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


# -- terms ------------------------------------------------------------------------------------------------------------
def explain(function: Function, X: Data, top: int | None = None) -> Explanation:
    """The predictions of a function at checked inputs as sums of its terms, in blocks of rows.

    Without ``top`` all terms are kept, unless there are too many.
    """
    if top is not None and not is_count(top):
        raise ValueError(f"top must be None or a positive integer, the number of terms to keep; got {top!r}.")
    n = count(X)
    with torch.no_grad(), silent_repairs():
        first = function.contributions(X[:1])
    m, p = first.shape[1:]
    baseline = _constant(function, first)
    if top is None and n * m * p > KEPT_NUMBERS:
        top = KEPT_TERMS
    points = function.terms_of
    whole = Explanation(np.empty(0), plain(baseline), np.empty(0), np.empty(0), None, m, "samples")
    blocks, magnitudes = [], [0.0]
    for rows in row_blocks(n, 3 * m * p * first.element_size()):
        contributions = function.contributions(X[rows])
        magnitudes.append(float(contributions.abs().sum(1).max()))
        blocks.append(_block(whole, contributions, baseline, top))
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in ("prediction", "contributions", "rest")
    }
    if not np.isfinite(joined["prediction"]).all():
        raise ValueError(
            "The terms of these predictions leave the range of numbers: products of inputs are too large. Scale X, for "
            "example by StandardScaler, and fit again."
        )
    _warn_of_cancelling(max(magnitudes), float(np.abs(joined["prediction"]).max(initial=0.0)), first.dtype)
    numbers = None if blocks[0].numbers is None else np.concatenate([block.numbers for block in blocks])
    terms = "features" if points is None else "samples"
    return replace(whole, numbers=numbers, terms=terms, **joined)


def _warn_of_cancelling(magnitude: float, size: float, dtype: torch.dtype) -> None:
    """Warn where contributions are so much larger than the predictions that their sum has few digits."""
    eps = torch.finfo(dtype).eps
    if magnitude > eps**CANCELLATION * size:
        warn(
            f"Contributions of samples are up to {magnitude:.1e}, and the predictions that they sum to {size:.1e}, so "
            f"that rounding moves their sums by {eps * magnitude:.1e}. predict() has more digits, and influence() no "
            "such terms. Is X far from zero? Scale it, for example by StandardScaler, and fit again.",
            NumericalWarning,
        )


def explain_with_neighbours(function: Function, X: Data, top: int | None, fitted: Data) -> Explanation:
    """The explanation with the values of the members of a sum, and the nearest points of the function.

    ``fitted`` are the inputs of the fit, if they are known.
    """
    explanation, points = explain(function, X, top), points_of(function, fitted)
    kernel = None if points is None else kernel_of(function)
    neighbours = None if kernel is None else nearest(kernel, points, X, representation_of(function))
    gallery = None if kernel is None else Gallery.of(kernel, X, points)
    return replace(explanation, members=member_values(function, X) or None, neighbours=neighbours, gallery=gallery)


def _constant(function: Function, like: Tensor) -> Tensor:
    """The intercept (p,) of a function, which may be zero."""
    b = getattr(function, "intercept", None)
    zeros = like.new_zeros(like.shape[2])
    return zeros if b is None else zeros + torch.as_tensor(plain(b)).to(zeros)


def _block(whole: Explanation, terms: Tensor, baseline: Tensor, top: int | None) -> Explanation:
    """The explanation of a block of rows, with the ``top`` largest terms."""
    prediction = plain(terms.sum(1) + baseline)
    block = replace(whole, prediction=prediction, contributions=plain(terms), rest=np.zeros_like(prediction))
    return block if top is None else block.top(top)


def flat(explanation: Explanation) -> Explanation:
    """The explanation of one output without the axis of outputs."""
    changes = {name: getattr(explanation, name)[..., 0] for name in ("prediction", "baseline", "contributions", "rest")}
    members, parts, mean = explanation.members, explanation.parts, explanation.parts_baseline
    return replace(
        explanation,
        members=None if members is None else {k: v[..., 0] for k, v in members.items()},
        parts=None if parts is None else tuple(effects[..., 0] for effects in parts),
        parts_baseline=None if mean is None else mean[..., 0],
        **changes,
    )


# -- kernels that add -------------------------------------------------------------------------------------------------
def member_values(function: Function, X: Data) -> dict[str, np.ndarray]:
    """The contribution (n, p) of each member of a stack, or each kernel of a sum, to f(x) without the constant.

    It is exact where kernels add: f = Σ_m w_m f_m, and for k = Σ_t k_t, f = Σ_t Σ_j k_t(·, z_j) c_j. Other functions
    have no members.
    """
    if isinstance(function, Stacked):
        pairs = [(f, w) for f, w in zip(function.functions, function.weights, strict=True) if w.any()]
        names = _distinct([_name(f) for f, _ in pairs])
        return {name: w * _without_constant(f, X) for name, (f, w) in zip(names, pairs, strict=True)}
    outer = function.outer if isinstance(function, Composed) and not function.inner else function
    if not isinstance(outer, Expansion) or not isinstance(outer.kernel, Decomposable):
        return {}
    addends = outer.kernel.kernel.addends()
    if len(addends) < 2:
        return {}
    functions = [
        replace(outer, kernel=Decomposable(kernel, outer.kernel.operator), intercept=None, slopes=None)
        for _, kernel in addends
    ]
    names = _distinct([name for name, _ in addends])
    return {name: plain(f(X)) for name, f in zip(names, functions, strict=True)}


def _without_constant(function: Function, X: Data) -> np.ndarray:
    b = getattr(function, "intercept", None)
    values = plain(function(X))
    return values if b is None else values - plain(b)


def _name(function: Function) -> str:
    """A short name of a member, by its kernel or its layers."""
    if isinstance(function, Composed) and function.inner:
        return f"composition of {len(function.inner) + 1} layers"
    kernel: Any = function.kernel if hasattr(function, "kernel") else function.feature_kernel
    kernel = kernel.kernel if isinstance(kernel, Decomposable) else kernel
    if isinstance(kernel, Separate):
        inside = {_kernel_name(unscaled(own)[0]) for own in kernel.kernels}
        return f"{inside.pop()} of each output" if len(inside) == 1 else "Separate"
    return _kernel_name(kernel)


def _kernel_name(kernel: Any) -> str:
    """A short name of a kernel: the units in which it counts are left out."""
    while type(kernel).__name__ in ("Standardized", "Adapted", "Table") and hasattr(kernel, "kernel"):
        kernel = kernel.kernel
    return type(kernel).__name__


def _distinct(names: list[str]) -> list[str]:
    """The names, with numbers for a name that occurs more than once."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if names.count(name) == 1 else f"{name} {seen[name]}")
    return result


# -- the nearest samples ----------------------------------------------------------------------------------------------
def nearest(kernel: Kernel, points: Data, X: Data, how: Representation, k: int = NEIGHBOURS) -> np.ndarray:
    """The numbers (n, k) of the points of least k(x, x) − 2 k(x, z) + k(z, z), the nearest first."""
    adapted = how.adapted(kernel, repair=False)
    Z, inputs = how.inputs(adapted, points), how.inputs(adapted, X)
    k = min(k, count(Z))
    with torch.no_grad():
        halves = 0.5 * adapted._diag(Z)
        order = [
            (adapted._gram(inputs[rows], Z) - halves).topk(k, dim=1).indices
            for rows in row_blocks(count(inputs), 3 * count(Z) * halves.element_size())
        ]
    return plain(torch.cat(order))


def points_of(function: Function, X: Data) -> Data:
    """The inputs to which the terms of a function belong, or None if unknown; ``X`` are the inputs of the fit."""
    if isinstance(function, Composed) and function.inner:
        return X if X is not None and function.is_over(X) else None
    return function.terms_of


def kernel_of(function: Function) -> Kernel | None:
    """The scalar kernel of a function on the data, which decides what is near; None if there is none."""
    if isinstance(function, FeatureFunction):
        return function.feature_kernel
    if isinstance(function, Expansion):
        function = Composed((), function)
    if not isinstance(function, Composed | Stacked):
        return None
    if function.kernel.domain == "gram":
        return None
    try:
        return function.kernel_of_data()
    except AttributeError:  # an operator-valued layer has no scalar kernel
        return None


def representation_of(function: Function) -> Representation:
    """The representation in which the arrays of a function become tensors."""
    if isinstance(function, Stacked):
        return representation_of(function.functions[0])
    if isinstance(function, Composed):
        return representation_of(function.inner[0] if function.inner else function.outer)
    how = function.features.representation if isinstance(function, FeatureFunction) else function.representation  # type: ignore[attr-defined]
    assert isinstance(how, Representation)
    return how
