"""Reports on fitted models, each one page of HTML that needs no other file.

A report reads public attributes of a learner and asks questions that users may ask, too.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from representer import plotting
from representer.functions import Function
from representer.inspection.explanation import kernel_of, points_of, representation_of
from representer.kernels import Kernel, Stack, seen_inside
from representer.operators import OperatorKernel, Representation, replicates
from representer.samples import Data, TrainingSamples, count, evenly_spaced, plain, take

# The number of samples whose Gram matrix shows the spectrum.
SPECTRUM_ROWS = 500


@dataclass(frozen=True)
class Section:
    """A section of a report: sentences, pairs of facts, code, a figure (SVG), a table and warnings."""

    title: str
    texts: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    code: str = ""
    figure: str | None = None
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A page about a fitted model; its HTML escapes the texts of users.

    Examples
    --------
    >>> from representer.inspection.report import Report, Section
    >>> page = Report("<model>", "fitted today", (Section("Score", facts=(("R²", "0.9"),)),)).html()
    >>> "&lt;model&gt;" in page, "<model>" in page
    (True, False)
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]

    def html(self) -> str:
        """The page as one file for light and dark screens of any width, without scripts or addresses."""
        from jinja2 import Environment

        template = resources.files("representer.inspection").joinpath("report.html").read_text(encoding="utf-8")
        page = Environment(autoescape=True, trim_blocks=True).from_string(template)
        return page.render(title=self.title, subtitle=self.subtitle, sections=self.sections)

    def inline(self) -> str:
        """The texts, facts and tables as a piece of HTML that takes the style of the page around it."""
        pieces = []
        for section in self.sections:
            texts = "".join(f"<p>{escape(text)}</p>" for text in (*section.texts, *section.warnings))
            facts = "".join(f"<tr><td>{escape(a)}</td><td><b>{escape(b)}</b></td></tr>" for a, b in section.facts)
            rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in section.rows)
            code = f"<pre>{escape(section.code)}</pre>" if section.code else ""
            tables = "".join(f"<table>{table}</table>" for table in (facts, rows) if table)
            pieces.append(f"<h4>{escape(section.title)}</h4>{texts}{tables}{code}")
        return "".join(pieces)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file."""
        target = Path(path)
        target.write_text(self.html(), encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        """The page in a frame of a notebook, so that its style does not affect the notebook."""
        return f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:40rem;border:0" sandbox=""></iframe>'


# -- numbers ----------------------------------------------------------------------------------------------------------
def short(value: object) -> str:
    """A value in few characters."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def kernel_words(kernel: object) -> str:
    """A kernel as code with few digits, without the maps of columns, and with ranges in place of lists of numbers.

    Examples
    --------
    >>> from representer.inspection.report import kernel_words
    >>> from representer.kernels import Gaussian, Standardized
    >>> kernel_words(Standardized(Gaussian([1.23456, 2.0, 4.0, 3.0, 9.87654]), [0.0] * 5, [1.0] * 5))
    'Gaussian(lengthscale=[1.235 … 9.877])'
    """
    inner = seen_inside(kernel)[0] if isinstance(kernel, Kernel) else kernel
    text = re.sub(r"\d+\.\d+(e[+-]?\d+)?", lambda match: f"{float(match.group(0)):.4g}", repr(inner))

    def range_of(match: re.Match[str]) -> str:
        numbers = [float(number) for number in match.group(1).split(",")]
        return match.group(0) if len(numbers) < 4 else f"[{min(numbers):.4g} … {max(numbers):.4g}]"

    return re.sub(r"\[([-+.\de]+(?:, [-+.\de]+)*)\]", range_of, text)


def gram_spectrum(kernel: Kernel, points: Data, how: Representation) -> np.ndarray:
    """The eigenvalues of the Gram matrix of evenly spaced points, over their number, the largest first."""
    rows = evenly_spaced(count(points), SPECTRUM_ROWS)
    adapted = how.adapted(kernel, repair=False)
    with torch.no_grad():
        gram = adapted._gram(how.inputs(adapted, take(points, torch.from_numpy(rows))), None)
        values = torch.linalg.eigvalsh(gram.double()).flip(0).clamp(min=0.0)
    return plain(values) / len(rows)


def effective_dimension(spectrum: np.ndarray, alpha: float) -> float:
    """The effective dimension Σ λ / (λ + alpha), the number of directions of the kernel's space that a fit uses.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.inspection.report import effective_dimension
    >>> effective_dimension(np.array([1.0, 1.0, 0.0]), 1.0)
    1.0
    """
    return float((spectrum / (spectrum + alpha)).sum())


def confusion(labels: np.ndarray, answers: np.ndarray, n_classes: int) -> np.ndarray:
    """The confusion matrix: the number of samples of class i (row) that were answered as class j (column)."""
    counts = np.zeros((n_classes, n_classes), dtype=int)
    np.add.at(counts, (labels, answers), 1)
    return counts


def reliability(probabilities: np.ndarray, labels: np.ndarray, edges: Sequence[float]) -> list[tuple[str, ...]]:
    """A row for answers with a probability between two edges: their number, mean probability and accuracy."""
    top, right = probabilities.max(1), probabilities.argmax(1) == labels
    rows: list[tuple[str, ...]] = []
    for low, high in pairwise(edges):
        inside = (top >= low) & ((top < high) | (high == edges[-1]))
        if inside.any():
            numbers = f"{int(inside.sum())}", f"{top[inside].mean():.3f}", f"{right[inside].mean():.3f}"
            rows.append((f"{low:.2f} – {high:.2f}", *numbers))
    return rows


# -- a page about a learner -------------------------------------------------------------------------------------------
SHOWN = 10
EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
# Alpha over the largest eigenvalue: below LOWEST it is lost in rounding, above HIGHEST the fit learns nothing.
LOWEST, HIGHEST = 1e-12, 1e2


class Reported(Protocol):
    """The questions of a report to a fitted learner, beside attributes that only some learners have."""

    @property
    def misfit_(self) -> np.ndarray:
        """The misfit of each training sample by the fit without it."""

    @property
    def suspects_(self) -> np.ndarray:
        """The numbers of the training samples by their misfit."""

    @property
    def relevance_(self) -> np.ndarray:
        """The relevance of each column."""

    _record: Any  # what is known of the fit, or None

    def _explained_function(self) -> Function: ...
    def _fitted_inputs(self) -> Data: ...
    def _data_kernel(self) -> Kernel | OperatorKernel | Stack: ...
    def _left_out_answers(self) -> tuple[np.ndarray, np.ndarray] | None: ...
    @property
    def _training_samples(self) -> TrainingSamples | None: ...


def make_report(learner: Reported, X_test: Data = None, y_test: Data = None, *, light: bool = False) -> Report:
    """The report on a fitted learner, without sections that do not apply to it.

    The light report has only sections that need no computation.
    """
    record = learner._record
    subtitle = "" if record is None else f"fitted {record.began} in {record.seconds:.2f} s"
    sections = [_summary(learner, X_test, y_test), _model(learner), _steps(learner)]
    if not light:
        sections += [
            _spectrum(learner),
            _left_out(learner),
            _test(learner, X_test, y_test),
            _relevance(learner),
            _suspects(learner),
            _replicates(learner),
        ]
    sections.append(_reproduce(learner))
    present = tuple(section for section in sections if section is not None)
    return Report(f"{type(learner).__name__}: a report", subtitle, present)


def _summary(learner: Reported, X_test: Data, y_test: Data) -> Section:
    record = learner._record
    facts = [("learner", type(learner).__name__)]
    if record is not None:
        facts += [("samples", str(record.n_samples)), ("time of the fit", f"{record.seconds:.2f} s")]
        facts += [(name, short(value)) for name, value in record.inputs.items() if name in ("container", "dtype")]
    if hasattr(learner, "n_features_in_"):
        facts.append(("columns", str(learner.n_features_in_)))
    if hasattr(learner, "classes_"):
        facts.append(("classes", str(len(learner.classes_))))
    if X_test is not None and hasattr(learner, "score"):
        facts.append(("score on test data", f"{learner.score(X_test, y_test):.4f}"))
    return Section("What was fitted", facts=tuple(facts))


def _model(learner: Reported) -> Section:
    alpha = np.atleast_1d(np.asarray(getattr(learner, "alpha_", np.nan), dtype=float))
    facts = [] if np.isnan(alpha).all() else [("alpha", ", ".join(f"{a:.3g}" for a in alpha))]
    criterion = getattr(learner, "criterion_value_", None)
    if criterion is not None:
        facts.append(("criterion at the choice", f"{criterion:.4g}"))
    members = getattr(learner, "members_", ())
    weights = [", ".join(f"{w:.3f}" for w in np.atleast_1d(member.weights)) for member in members]
    rows = tuple(
        (kernel_words(m.kernel), w, short(m.alpha), f"{m.seconds:.2f} s") for m, w in zip(members, weights, strict=True)
    )
    code = "" if rows else kernel_words(getattr(learner, "kernel_", None))
    head = ("kernel", "weight", "alpha", "time")
    text = "Several kernels are fitted, and their weighted sum predicts." if rows else "The kernel with its numbers:"
    return Section("The model", (text,), tuple(facts), code=code, head=head if rows else (), rows=rows)


def _steps(learner: Reported) -> Section | None:
    """The steps of a fit with their time, its memory and its warnings."""
    record = learner._record
    if record is None:
        return None
    searches = {"search over hyperparameters": "search_history_", "search over inner layers": "history_"}
    if not hasattr(learner, "search_history_"):
        searches = {"search": "history_"}
    histories = {name: getattr(learner, attribute, None) for name, attribute in searches.items()}
    rows = [(name, h[-1].seconds, str(h[-1].iteration)) for name, h in histories.items() if h]
    left = record.seconds - sum(seconds for _, seconds, _ in rows)
    rows.append(("everything else" if rows else "the fit", max(left, 0.0), ""))
    memory = record.memory
    facts = () if memory is None else (("memory that the fit added", f"{memory / 2**20:.0f} MB"),)
    table = tuple((name, f"{seconds:.2f} s", iterations) for name, seconds, iterations in rows)
    head = ("step", "time", "iterations")
    warned = record.warnings
    return Section("Time, memory, warnings", facts=facts, head=head, rows=table, warnings=tuple(warned))


def _replicates(learner: Reported) -> Section | None:
    """Training samples with equal inputs, whose different targets no model of these inputs explains."""
    X, kernel, samples = learner._fitted_inputs(), learner._data_kernel(), learner._training_samples
    if X is None or kernel.domain == "gram" or samples is None:
        return None
    how = Representation(torch.float64, None, sparse=hasattr(X, "toarray"))
    numbers = replicates(kernel, how.inputs(kernel, X))
    if numbers is None:
        return None
    numbers = np.unique(numbers, return_inverse=True)[1]
    counts = np.bincount(numbers)
    facts = [("samples with a twin", str(int(counts[counts > 1].sum()))), ("most of one kind", str(int(counts.max())))]
    y = np.asarray(samples.y)
    if y.ndim == 1 and y.dtype.kind == "f" and np.isfinite(y).all() and np.ptp(y) > 0:
        centred = y - (np.bincount(numbers, y) / counts)[numbers]
        noise = float(np.sum(centred**2) / max(1, len(y) - len(counts)))
        facts.append(("deviation among twins", f"{noise**0.5:.4g}"))
        facts.append(("largest R² that inputs allow", f"{1.0 - noise / float(np.var(y)):.4f}"))
    elif y.ndim == 1 and y.dtype.kind != "f":
        labels = np.unique(y, return_inverse=True)[1]
        mixed = sum(len(np.unique(labels[numbers == i])) > 1 for i in np.flatnonzero(counts > 1))
        facts.append(("kinds of twins with different classes", str(mixed)))
    text = "Some training samples have equal inputs. They are left out together; their targets tell the noise."
    return Section("Replicates", (text,), tuple(facts))


def _spectrum(learner: Reported) -> Section | None:
    """The spectrum of the Gram matrix beside alpha."""
    function = learner._explained_function()
    points = points_of(function, learner._fitted_inputs())
    kernel = None if points is None else kernel_of(function)
    if kernel is None or count(points) < 2:
        return None
    spectrum = gram_spectrum(kernel, points, representation_of(function))
    alpha = float(np.mean(getattr(learner, "alpha_", np.nan)))
    if not (np.isfinite(alpha) and spectrum[0] > 0):
        return None
    place, warnings = alpha / spectrum[0], []
    if place < LOWEST:
        warnings.append("alpha is so small beside the kernel that rounding decides: give alpha a larger number.")
    if place > HIGHEST:
        warnings.append("alpha is so large that the fit is nearly constant: the kernel sees little of the target.")
    facts = (
        ("effective dimension", f"{effective_dimension(spectrum, alpha):.1f} of {len(spectrum)}"),
        ("largest eigenvalue / n", f"{spectrum[0]:.3g}"),
        ("alpha / largest eigenvalue", f"{place:.2g}"),
        (
            "place of alpha",
            f"{100 * np.log(max(place, LOWEST) / LOWEST) / np.log(HIGHEST / LOWEST):.0f} % of the way up",
        ),
    )
    text = (
        "Directions whose eigenvalue is above alpha are learned; those below it are shrunk to the mean. The way up, in "
        f"logarithm, is from {LOWEST:g} times the largest one, where rounding decides, to {HIGHEST:g}, a constant."
    )
    figure = plotting.figure_svg(lambda ax: plotting.spectrum_line(spectrum, alpha, ax=ax))
    return Section("The kernel's spectrum", (text,), facts, figure=figure, warnings=tuple(warnings))


def _left_out(learner: Reported) -> Section | None:
    """Leave-one-out predictions beside targets, or a confusion matrix."""
    left_out = learner._left_out_answers()
    if left_out is None:
        return None
    targets, answers = left_out
    if hasattr(learner, "classes_"):
        return _left_out_classes(learner, learner.classes_, targets, answers)
    targets, answers = (np.asarray(values, float).reshape(len(values), -1) for values in (targets, answers))
    errors = targets - answers
    share = 1.0 - np.nanmean(errors**2, 0) / np.nanvar(targets, 0)
    inside = float(np.nanmean(learner.misfit_ <= 1.645))
    facts = (
        ("R², leave-one-out", ", ".join(f"{value:.4f}" for value in share)),
        ("root mean squared error", ", ".join(f"{value:.4g}" for value in np.sqrt(np.nanmean(errors**2, 0)))),
        ("within 1.645 deviations", f"{100 * inside:.1f} % (90 % if errors are normal)"),
    )
    figure = plotting.figure_svg(lambda ax: plotting.prediction_scatter(targets[:, 0], answers[:, 0], ax=ax))
    text = "Each sample is predicted by the fit without it (and without samples of the same inputs or group)."
    return Section("Leave-one-out", (text,), facts, figure=figure)


def _left_out_classes(learner: Reported, classes: np.ndarray, labels: np.ndarray, probabilities: np.ndarray) -> Section:
    names, right = list(map(str, classes)), probabilities.argmax(1) == labels
    counts = confusion(labels, probabilities.argmax(1), len(names))
    facts = (
        ("accuracy, leave-one-out", f"{right.mean():.4f}"),
        ("log loss", f"{float(np.mean(learner.misfit_)):.4f}"),
        *(
            (f"probability {row[0]}", f"{row[3]} right of {row[1]}")
            for row in reliability(probabilities, labels, EDGES)
        ),
    )
    rows = tuple((name, *map(str, row)) for name, row in zip(names, counts, strict=True))
    text = "Rows are the classes of the samples, columns what the fit without each of them answers."
    return Section("Leave-one-out", (text,), facts, head=("", *names), rows=rows)


def _test(learner: Reported, X: Data, y: Data) -> Section | None:
    """The coverage of intervals on test data."""
    if X is None or y is None or not (hasattr(learner, "predict_interval") and hasattr(learner, "predict")):
        return None
    y = np.asarray(y, dtype=float)
    facts = []
    for coverage in (0.5, 0.9):
        ends = learner.predict_interval(X, coverage)
        inside = (y >= ends[..., 0]) & (y <= ends[..., 1])
        facts.append((f"intervals for {100 * coverage:.0f} %", f"contain {100 * inside.mean():.1f} %"))
    answers = learner.predict(X)
    first = (y if y.ndim == 1 else y[:, 0], answers if answers.ndim == 1 else answers[:, 0])
    figure = plotting.figure_svg(lambda ax: plotting.prediction_scatter(*first, ax=ax))
    return Section("Test data", (), tuple(facts), figure=figure)


def _relevance(learner: Reported) -> Section | None:
    """The relevance of columns; a Gram matrix has none."""
    if learner._data_kernel().domain == "gram":
        return None
    try:
        shares = learner.relevance_
    except (AttributeError, ValueError):  # objects have no columns
        return None
    names = getattr(learner, "feature_names_in_", None)
    names = [f"column {i}" for i in range(len(shares))] if names is None else list(map(str, names))
    order = np.argsort(-shares)[:SHOWN]
    text = "The share of the variance of the answers that is lost where a column is not known."
    rows = tuple((names[i], f"{shares[i]:.3f}") for i in order)
    shown, label = [names[i] for i in order], "share of the variance"
    figure = plotting.figure_svg(lambda ax: plotting.contribution_bars(shown, shares[order], label=label, ax=ax))
    return Section("What matters", (text,), head=("column", "share"), rows=rows, figure=figure)


def _suspects(learner: Reported) -> Section | None:
    """The samples with the largest misfits."""
    left_out = learner._left_out_answers()
    if left_out is None:
        return None
    targets, answers = left_out
    misfit, classes = learner.misfit_, getattr(learner, "classes_", None)
    rows = []
    for i in learner.suspects_[:SHOWN]:
        target, expected = targets[i], answers[i]
        if classes is not None:
            target, expected = classes[target], classes[expected.argmax()]
        rows.append((str(i), short(target), short(expected), f"{misfit[i]:.2f}"))
    unit = "−log p of its class" if classes is not None else "error in standard deviations"
    text = "Training samples that the fit without them expects the least: look whether their targets are right."
    return Section("Suspects", (text,), head=("sample", "target", "expected", unit), rows=tuple(rows))


def _reproduce(learner: Reported) -> Section:
    record = learner._record
    names = ("representer", "numpy", "scipy", "scikit-learn", "torch")
    facts = [("python", platform.python_version()), *((name, version(name)) for name in names)]
    marks = {} if record is None else record.fingerprints
    facts += [(f"fingerprint of {name}", mark[:16]) for name, mark in marks.items() if mark is not None]
    return Section("How to reproduce it", facts=tuple(facts), code=f"model = {learner!r}\nmodel.fit(X, y)")
