"""What a case must satisfy: consistent, finite and right, or refused with advice; never a raw error, never a hang."""

from __future__ import annotations

import linecache
import pickle
import re
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

import representer
from fuzz.cases import N_QUERIES, Case, take
from fuzz.data import numbers
from fuzz.oracle import dense_answer
from representer.notices import NumericalWarning

SECONDS = 60
PACKAGE = str(Path(representer.__file__).parent)
VALIDATION = re.compile(r"sklearn/(utils|base)")
# How far answers that should be equal may be apart, in units of the largest answer, unless a warning was given: not at
# all if asked twice, pickled or fitted again, and somewhat row by row or from reordered samples. Without a warning six
# digits are promised, where alpha was learned five (``representer.inspection.rounding``), in single precision not quite
# three.
SAME, ROUNDED, LEARNED, SINGLE = 0.0, 1e-6, 2e-5, 5e-3
# Of deviations, which are differences of variances, four digits are promised, in single precision two.
DEVIATION, SINGLE_DEVIATION = 2e-4, 5e-2


class Hang(BaseException):
    """A case took longer than anybody waits."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended: answered, refused, or with a fault in words."""

    case: Case
    outcome: str
    message: str = ""
    warned: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        case = self.case
        data = {name: getattr(case, name) for name in ("kind", "n", "n_features", "x_power", "y_power", "offset")}
        data |= {name: getattr(case, name) for name in ("blemishes", "container", "target", "weighted", "grouped")}
        data |= {name: getattr(case, name) for name in ("noisy", "questions")}
        return f"seed {case.seed}: {self.outcome}: {self.message}\n    {case.code}\n    {data}"


class WrongAnswerError(Exception):
    """What is wrong with an answer."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise ``Hang`` inside if the time is up: that of the processor, whoever else keeps the machine busy."""

    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def judge(case: Case) -> Verdict:
    """Fit a case, ask it, and say what is wrong with its answers."""
    began, warned = time.perf_counter(), False
    try:
        with limited(SECONDS), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                _examine(case, lambda: any(issubclass(w.category, NumericalWarning) for w in caught))
            finally:
                warned = any(issubclass(w.category, NumericalWarning) for w in caught)
        outcome, message = "answered", ""
    except Hang:
        outcome, message = "hang", f"no end after {SECONDS} s"
    except WrongAnswerError as fault:
        outcome, message = "wrong", str(fault)
    except Exception as error:
        outcome = "refused" if is_advice(error) else "raw"
        message = f"{type(error).__name__}: {error}"
    return Verdict(case, outcome, message, warned, time.perf_counter() - began)


def is_advice(error: Exception) -> bool:
    """Is it raised on purpose, by this library or by scikit-learn's checks, with a sentence?"""
    if not isinstance(error, ValueError | TypeError | NotFittedError | MemoryError) or len(str(error).split()) < 4:
        return False
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback is not None
    file = traceback.tb_frame.f_code.co_filename
    line = linecache.getline(file, traceback.tb_lineno)
    own = file.startswith(PACKAGE) or VALIDATION.search(file) is not None
    return own and line.strip().startswith("raise")


def _examine(case: Case, is_warned: Callable[[], bool]) -> None:
    compare = partial(_compare, is_warned=is_warned, single="dtype" in case.arguments, lost=_lost(case))
    model = case.fitted()
    answers = _answers(case, model, case.queries())
    for name, values in answers.items():
        if not np.isfinite(values).all():
            raise WrongAnswerError(f"{name} is not finite: {values.ravel()[:5]}")
    _check_bounds(answers)
    if "explain" in answers and case.learner in ("OperatorRidge", "DeepKernelRegressor"):
        sums = {"predict": answers["explain"].reshape(answers["predict"].shape)}
        compare("explained", answers, sums, ROUNDED)
    dense = dense_answer(case)
    if dense is not None and not is_warned():
        predictions = answers["predict"].reshape(dense.predictions.shape)
        error = np.abs(predictions - dense.predictions).max()
        if not error <= dense.allowed:
            raise WrongAnswerError(
                f"predict is off by {error:.3g}, where {dense.allowed:.3g} is allowed: {predictions.ravel()[:5]}"
            )
    compare("asked twice", answers, _answers(case, model, case.queries()), SAME)
    copied = pickle.loads(pickle.dumps(model))
    compare("pickled", answers, _usual_answers(case, copied, case.queries()), SAME)
    if "saved" in case.questions:
        compare("saved", answers, _answers(case, _saved(model), case.queries()), SAME)
    if "batches" in case.questions:
        _check_batches(case, answers, compare)
    compare("fitted again", answers, _usual_answers(case, case.fitted(), case.queries()), SAME)
    if case.target not in ("words", "labels", "pair"):
        some = [0, 3, N_QUERIES - 2]
        rows = [_answers(case, model, case.queries([i])) for i in some]
        joined = {name: np.concatenate([row[name] for row in rows]) for name in answers}
        chosen = {name: take(values, some) for name, values in answers.items()}
        compare("row by row", chosen, joined, ROUNDED if case.is_given else LEARNED)
    if case.is_given and case.learner == "OperatorRidge":
        order = np.random.default_rng(case.seed).permutation(case.n)
        if case.kind != "gram":
            reordered = _usual_answers(case, case.fitted(order), case.queries())
            compare("reordered", answers, reordered, ROUNDED)


def _compare(
    what: str,
    answers: dict[str, np.ndarray],
    others: dict[str, np.ndarray],
    tolerance: float,
    is_warned: Callable[[], bool],
    *,
    single: bool,
    lost: float,
) -> None:
    """Refuse answers that are farther apart than rounding explains, unless a warning has said so.

    ``lost`` is what rounding of the targets takes from predictions.
    """
    if single and tolerance > SAME:
        tolerance = max(tolerance, SINGLE)
    for name in others:
        values = answers[name]
        if values.shape != others[name].shape:
            raise WrongAnswerError(f"{name}, {what}: shape {others[name].shape} instead of {values.shape}")
        size = np.abs(values).max(initial=0.0)
        gap = np.abs(values / (size or 1.0) - others[name] / (size or 1.0)).max(initial=0.0)
        if name == "deviation" and tolerance >= ROUNDED:
            tolerance = max(tolerance, SINGLE_DEVIATION if single else DEVIATION)
        rounding = lost / (size or 1.0) if name == "predict" and tolerance > SAME else 0.0
        if not gap <= max(tolerance, rounding) and not is_warned():
            raise WrongAnswerError(f"{name}, {what}: differs by {gap:.3g} of its size")


def _lost(case: Case) -> float:
    """The digits that the oracle, too, allows a ridge regression to lose: 100 roundings of the largest target."""
    if case.learner != "OperatorRidge":
        return 0.0
    largest = np.nanmax(np.abs(np.asarray(case.data[1], float)), initial=0.0)
    return float(largest * 100.0 * np.finfo(case.arguments.get("dtype", "float64").strip("'")).eps)


def _check_bounds(answers: dict[str, np.ndarray]) -> None:
    """Refuse support beyond its range, and intervals whose ends are in the wrong order."""
    support, interval = answers.get("support", np.zeros(1)), answers.get("interval", np.zeros((1, 2)))
    if support.min() < 0.0 or support.max() > 1.0:
        raise WrongAnswerError(f"support is not between 0 and 1: {support}")
    if (interval[..., 0] > interval[..., 1]).any():
        raise WrongAnswerError(f"interval ends before it begins: {interval}")


def _check_batches(case: Case, answers: dict[str, np.ndarray], compare: Callable[..., None]) -> None:
    """Batches say what all samples at once say, where nothing is left to the first of them."""
    model = _unless_refused(case.fitted_by_batches)
    if model is not None:
        usual = _usual_answers(case, model, case.queries())
        # The first batch decides where a centred kernel has its centre, and between which ends curves are integrated.
        decided = any(word in case.code for word in ("centered()", "Functional("))
        if case.is_given and "Landmarks" in case.code and not decided:
            compare("by batches", answers, usual, ROUNDED)


def _saved(model: Any) -> Any:
    """The learner that is read back from a file."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.rep")
        return representer.load(Path(folder) / "model.rep")


def _answers(case: Case, model: Any, Q: Any) -> dict[str, np.ndarray]:
    """The usual answers, and those to the questions of the case that are not refused."""
    answers = _usual_answers(case, model, Q)
    for name in case.questions:
        ask = QUESTIONS.get(name)
        values = None if ask is None else _unless_refused(lambda ask=ask: ask(model, Q))
        if values is not None:
            answers[name] = np.asarray(values, float)
    return answers


def _unless_refused(ask: Callable[[], Any]) -> Any:
    """An answer, or None where there is advice instead."""
    try:
        return ask()
    except Exception as error:
        if not is_advice(error):
            raise
        return None


def _interval(model: Any, Q: Any) -> np.ndarray | None:
    """The ends of intervals of half of the targets, where there are enough samples for them."""
    ends = model.predict_interval(Q, 0.5) if hasattr(model, "predict_interval") else np.array([np.inf])
    return None if np.isinf(ends).any() else ends


def _explained(model: Any, Q: Any) -> np.ndarray | None:
    """The sums of the terms of explanations, which are the predictions that they explain."""
    why = model.explain(Q)
    sums = why.contributions.sum(1) + why.rest + why.baseline
    size = np.abs(why.contributions).sum(1) + np.abs(why.baseline)
    if (np.abs(sums - why.prediction) > SINGLE * size).any():
        raise WrongAnswerError(f"contributions sum to {sums} instead of {why.prediction}")
    return None if hasattr(model, "decoder") else why.prediction  # scores of the outputs of all queries


QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "explain": _explained,
    "support": lambda model, Q: model.support(Q),
    "influence": lambda model, Q: model.influence(Q),
    "interval": _interval,
    "set": lambda model, Q: model.predict_set(Q, 0.5) if hasattr(model, "predict_set") else None,
}


def _usual_answers(case: Case, model: Any, Q: Any) -> dict[str, np.ndarray]:
    if case.learner in ("KernelAutoencoder", "DeepKernelPCA", "KernelFeatures"):
        return {"transform": np.asarray(model.transform(Q), float)}
    if case.learner in ("DeepKernelClassifier", "EmbeddingClassifier"):
        return {"decision_function": np.asarray(model.decision_function(Q), float)}
    if case.learner == "OperatorRidge" and case.kind != "gram" and "'cg'" not in case.code:
        mean, deviation = model.predict(Q, return_std=True)
        return {"predict": np.asarray(mean, float), "deviation": np.asarray(deviation, float)}
    return {"predict": numbers(model.predict(Q))}
