"""Model cards in Markdown, for people who are handed a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from representer.persistence.files import installed, library_version
from representer.samples import Data, n_passed

COVERAGE = 0.9


def model_card(model: Any, X: Data = None, y: Data = None) -> str:
    """The card of a fitted learner: its data, its scores on new samples, the coverage of intervals, its limits."""
    record = model._record
    parameters = {name: repr(value) for name, value in model.get_params(deep=False).items()}
    sections: dict[str, Mapping[str, object]] = {
        "Model": {"learner": type(model).__name__, "library": f"representer {library_version()}", **parameters},
        "Training data": {} if record is None else _data(record),
        "Scores on the samples given here": {} if X is None else _scores(model, X, y),
        "Limits": _limits(model, X),
        "Made with": installed(),
    }
    paragraphs = [f"# {type(model).__name__}\n"]
    for title, entries in sections.items():
        rows = [f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in entries.items()]
        paragraphs.append("\n".join([f"## {title}\n", "| | |", "| --- | --- |", *rows, ""]) if rows else "")
    return "\n".join(filter(None, paragraphs))


def _data(record: Any) -> dict[str, object]:
    """The training data by the record of the fit."""
    marks = {f"fingerprint of {name}": mark for name, mark in record.fingerprints.items() if mark}
    return {
        "samples": record.n_samples,
        "inputs": record.inputs,
        "fitted": f"{record.began}, in {record.seconds:.3g} s",
        **marks,
    }


def _scores(model: Any, X: Data, y: Data) -> dict[str, object]:
    """The scores of a model on samples that it has not seen; those that it cannot give are left out."""
    scores: dict[str, object] = {"samples": n_passed(X)}
    if hasattr(model, "score"):
        scores["score"] = f"{model.score(X) if y is None else model.score(X, y):.4g}"
    covered = _asked(lambda: _coverage(model.predict_interval(X, COVERAGE), y)) if y is not None else None
    if covered is not None:
        scores[f"share within {COVERAGE:.0%} intervals"] = f"{covered:.1%}"
    return scores


def _coverage(intervals: np.ndarray, y: object) -> float:
    """The share of the observed targets that lie in their intervals."""
    (low, high), observed = np.moveaxis(np.asarray(intervals), -1, 0), np.asarray(y, dtype=float)
    return float(np.mean(((low <= observed) & (observed <= high))[~np.isnan(observed)]))


def _limits(model: Any, X: Data) -> dict[str, object]:
    """The limits of a model: the support by its training samples, and its compression."""
    threshold = _asked(lambda: model.support_threshold_)
    limits: dict[str, object] = {}
    if threshold is not None:
        limits["support below which inputs are unlike the training data"] = f"{threshold:.3g}"
        support = None if X is None else _asked(lambda: model.support(X))
        if support is not None:
            limits["share of the samples given here below it"] = f"{np.mean(support < threshold):.1%}"
    compression = getattr(model, "compression_", None)
    if compression is not None:
        left = f"{compression.anchors} of {compression.anchors_before} anchors"
        limits["compressed"] = f"{left}, error {compression.error:.1e} of the largest value"
    return limits


def _asked(question: Any) -> Data:
    """The answer to a question; None if the model does not answer it."""
    try:
        return question()
    except (AttributeError, TypeError, ValueError):
        return None
