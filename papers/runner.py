"""Experiments: what a paper claims, how it is measured again, and what came out.

An experiment measures in parts, each a method on one case and one repeat (a seed, a fold). Finished parts are kept
(``Results``): a run that is interrupted continues with the next part, and a rerun only draws and judges again.
"""

from __future__ import annotations

import io
import re
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from papers.clock import cpu_seconds
from papers.results import Measurements, Outcome, Results, Verdict
from representer.cli import stopped_by_interrupts
from representer.datasets import MissingDataError, Source
from representer.datasets.files import write_whole
from runs.page import Picture

Result = Mapping[str, Any]  # of a part: numbers by measure, and arrays that figures need


@dataclass(frozen=True)
class Claim:
    """A statement about the measurements; ``judge`` returns a verdict and the numbers behind it."""

    text: str
    judge: Callable[[Measurements], tuple[Verdict, str]]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper, to be measured again.

    Parameters
    ----------
    name : str
        What it is called on the command line; what stands before the first hyphen is its group.
    paper, place : str
        The paper, and the figure or table.
    protocol : str
        What is done, in words.
    claims : tuple of Claim
        What the paper says came out, or what we demand.
    function : callable
        ``function(run)`` measures through ``run.part`` and draws through ``run.figure``.
    data : tuple of Source, default=()
        The files that are needed.
    spread : {"standard deviation", "standard error"}, default="standard deviation"
        What stands after ± in the report.
    """

    name: str
    paper: str
    place: str
    protocol: str
    claims: tuple[Claim, ...]
    function: Callable[[Run], None]
    data: tuple[Source, ...] = ()
    spread: Literal["standard deviation", "standard error"] = "standard deviation"


class Run:
    """What an experiment is given: parts that are remembered, and a place for figures.

    Parameters
    ----------
    experiment : Experiment
        Whose run it is.
    results : Results
        Where parts are remembered.
    say : callable
        Told what is being done.

    Attributes
    ----------
    quick : bool
        Fewer repeats and restarts are asked for.
    data : path or None
        The folder of the data files, for the loaders.
    """

    def __init__(self, experiment: Experiment, results: Results, say: Callable[[str], None]):
        self.experiment = experiment
        self.results = results
        self.quick = results.quick
        self.data = results.data
        self._say = say
        self._outcome = results.outcomes.setdefault(experiment.name, Outcome())

    def part(self, case: str, method: str, repeat: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """Measure, or recall what was measured before.

        Parameters
        ----------
        case, method : str
            The row of the report.
        repeat : int
            The seed or fold.
        function : callable
            Returns numbers by measure; arrays among them are kept for the figures but do not count as measures.
        *arguments
            Of the function.

        Returns
        -------
        result : mapping
            What ``function`` returned.
        """
        key = f"{case} | {method} | {repeat}"
        slug = re.sub(r"[^\w.]+", "-", key)
        arrays = self.results.folder / "arrays" / self.experiment.name / f"{slug}.npz"
        known = self._outcome.parts.get(key)
        if known is not None and (not known["arrays"] or zipfile.is_zipfile(arrays)):
            stored = dict(np.load(arrays, allow_pickle=False)) if known["arrays"] else {}
            return {**known["values"], **stored}
        self._say(f"{self.experiment.name}: {key}")
        start, cpu_start = time.perf_counter(), cpu_seconds()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(*arguments)
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu_start
        kept = {name: value for name, value in result.items() if isinstance(value, np.ndarray)}
        if kept:
            stream = io.BytesIO()
            np.savez_compressed(stream, **kept)  # type: ignore[arg-type]
            write_whole(arrays, stream.getvalue())
        values = {name: float(value) for name, value in result.items() if name not in kept}
        self._outcome.parts[key] = {
            "case": case,
            "method": method,
            "repeat": repeat,
            "values": values,
            "arrays": bool(kept),
            "seconds": seconds,
            "cpu_seconds": cpu,
            "version": version("representer"),
            "warnings": sorted({str(warning.message) for warning in caught}),
        }
        self.results.save(self.experiment.name)
        return {**values, **kept}

    def figure(self, name: str, figure: Any, shows: str) -> None:
        """Save a matplotlib figure as a picture of the report; ``shows`` says in words what there is to see."""
        path = f"figures/{self.experiment.name}-{name}.png"
        write_whole(self.results.folder / path, Picture.of(figure, shows, dpi=150).png)
        self._outcome.figures[path] = shows


def run_experiment(experiment: Experiment, results: Results, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """Run one experiment; what is missing and what fails is part of the outcome, an interruption goes on.

    If another process runs it into the same folder, wait for that and take over what it has measured.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    results : Results
        What was measured before, and where to write.
    say : callable, default=silent
        Told what is being done.

    Returns
    -------
    outcome : Outcome
        Also stored in ``results``.
    """
    with results.alone_with(experiment.name, say):
        return _run(experiment, results, say)


def _run(experiment: Experiment, results: Results, say: Callable[[str], None]) -> Outcome:
    """Measure, judge and save, while no other process does."""
    outcome = results.load(experiment.name)
    outcome.status, outcome.reason, outcome.claims = "interrupted", "The same command continues it.", []
    try:
        with stopped_by_interrupts():
            experiment.function(Run(experiment, results, say))
        measurements = outcome.measurements()
        for claim in experiment.claims:
            verdict, measured = claim.judge(measurements)
            outcome.claims.append({"claim": claim.text, "verdict": verdict, "measured": measured})
        outcome.status, outcome.reason = "finished", ""
    except (MissingDataError, ModuleNotFoundError) as error:
        outcome.status, outcome.reason = "not run", str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        outcome.status = "failed"
        outcome.reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    finally:
        results.save(experiment.name)
    return outcome
