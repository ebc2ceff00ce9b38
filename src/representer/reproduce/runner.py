"""Experiments: what a paper claims, how it is measured again, and what came out.

An experiment measures in parts, each a method on one case and one repeat (a seed, a fold). Finished parts are kept in
``results.json``: a run that is interrupted continues with the next part, and a rerun only draws and judges again.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from representer.datasets import MissingDataError, Source

Verdict = Literal["reached", "ordering kept", "not reached"]
VERDICTS: tuple[Verdict, ...] = ("reached", "ordering kept", "not reached")
Status = Literal["finished", "interrupted", "not run", "failed"]
Result = Mapping[str, Any]  # of a part: numbers by measure, and arrays that figures need


class Measurements(dict[tuple[str, str], dict[str, list[float]]]):
    """The values of each measure over the repeats, by (case, method)."""

    def values_of(self, case: str, method: str, measure: str) -> np.ndarray:
        """One value a repeat."""
        return np.array(self[case, method][measure])

    def mean(self, case: str, method: str, measure: str) -> float:
        """The mean over the repeats."""
        return float(self.values_of(case, method, measure).mean())


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


@dataclass
class Outcome:
    """What is known about an experiment: how its run ended, its claims with their verdicts, its parts and figures."""

    status: Status = "not run"
    reason: str = ""
    claims: list[dict[str, str]] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst verdict of its claims, or how its run ended."""
        if self.status != "finished":
            return self.status
        return max((claim["verdict"] for claim in self.claims), key=VERDICTS.index, default=self.status)

    @property
    def seconds(self) -> float:
        """What all parts took when they were measured."""
        return float(sum(part["seconds"] for part in self.parts.values()))

    def measurements(self) -> Measurements:
        """The parts, gathered over the repeats."""
        found = Measurements()
        for part in self.parts.values():
            row = found.setdefault((part["case"], part["method"]), {})
            for measure, value in part["values"].items():
                row.setdefault(measure, []).append(value)
        return found

    def as_dict(self) -> dict[str, Any]:
        """For ``results.json``: also what follows from the parts."""
        rows = [
            {"case": case, "method": method, "measure": measure, **summary(values)}
            for (case, method), row in self.measurements().items()
            for measure, values in row.items()
        ]
        return {"verdict": self.verdict, "seconds": self.seconds, **vars(self), "measurements": rows}


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

    def part(
        self, case: str, method: str, repeat: int, function: Callable[..., Result], *arguments: Any
    ) -> Result:
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
        if known is not None and (not known["arrays"] or arrays.is_file()):
            stored = dict(np.load(arrays, allow_pickle=False)) if known["arrays"] else {}
            return {**known["values"], **stored}
        self._say(f"{self.experiment.name}: {key}")
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(*arguments)
        seconds = time.perf_counter() - start
        kept = {name: value for name, value in result.items() if isinstance(value, np.ndarray)}
        if kept:
            arrays.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(arrays, **kept)  # type: ignore[arg-type]
        values = {name: float(value) for name, value in result.items() if name not in kept}
        self._outcome.parts[key] = {
            "case": case,
            "method": method,
            "repeat": repeat,
            "values": values,
            "arrays": bool(kept),
            "seconds": seconds,
            "warnings": sorted({str(warning.message) for warning in caught}),
        }
        self.results.save()
        return {**values, **kept}

    def figure(self, name: str, figure: Any) -> None:
        """Save a matplotlib figure as a picture of the report."""
        path = f"figures/{self.experiment.name}-{name}.png"
        (self.results.folder / "figures").mkdir(parents=True, exist_ok=True)
        figure.savefig(self.results.folder / path, dpi=150)
        if path not in self._outcome.figures:
            self._outcome.figures.append(path)


class Results:
    """What was measured so far, in ``results.json`` of a folder.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    quick : bool, default=False
        A folder holds a quick run or a full one, never both.
    fresh : bool, default=False
        Forget what is there.
    redo : str, default=""
        Forget the parts of which ``case | method | repeat`` contains this text.
    data : path or None, default=None
        The folder of the data files, for the loaders.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        quick: bool = False,
        fresh: bool = False,
        redo: str = "",
        data: str | Path | None = None,
    ):
        self.folder = Path(folder)
        self.quick = quick
        self.data = data
        self.outcomes: dict[str, Outcome] = {}
        if self.path.is_file() and not fresh:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["quick"] != quick:
                kind = "quick" if stored["quick"] else "full"
                raise ValueError(
                    f"{self.folder} holds the results of a {kind} run. Choose another folder, or start over with "
                    "fresh=True (--fresh), which forgets them."
                )
            for name, entry in stored["experiments"].items():
                outcome = Outcome(**{name: entry[name] for name in vars(Outcome())})
                outcome.parts = {
                    key: part for key, part in outcome.parts.items() if not redo or redo not in key
                }
                self.outcomes[name] = outcome

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "results.json"

    def save(self) -> None:
        """Write everything, at once or not at all."""
        experiments = {name: outcome.as_dict() for name, outcome in self.outcomes.items()}
        record = {"quick": self.quick, "machine": machine(), "experiments": experiments}
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        unfinished.replace(self.path)


def summary(values: Sequence[float]) -> dict[str, float | int | None]:
    """Mean, standard deviation, standard error of the mean (None of a single value) and number of values."""
    n = len(values)
    sd = float(np.std(values, ddof=1)) if n > 1 else None
    return {
        "mean": float(np.mean(values)),
        "standard deviation": sd,
        "standard error": None if sd is None else sd / n**0.5,
        "n": n,
    }


def machine() -> dict[str, Any]:
    """Where the run took place."""
    return {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}


def run_experiment(
    experiment: Experiment, results: Results, say: Callable[[str], None] = lambda text: None
) -> Outcome:
    """Run one experiment; what is missing and what fails is part of the outcome, an interruption goes on.

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
    outcome = results.outcomes.setdefault(experiment.name, Outcome())
    outcome.status, outcome.reason, outcome.claims = "interrupted", "The same command continues it.", []
    try:
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
        results.save()
    return outcome
