"""What came out of experiments, and its folder: a file for each experiment, so that several processes can measure."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock, Timeout

from runs.long_runs import write_json

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")


Verdict = Literal["reached", "ordering kept", "not reached"]
VERDICTS: tuple[Verdict, ...] = ("reached", "ordering kept", "not reached")
Status = Literal["finished", "interrupted", "not run", "failed"]


class Measurements(dict[tuple[str, str], dict[str, list[float]]]):
    """The values of each measure over the repeats, by (case, method)."""

    def values_of(self, case: str, method: str, measure: str) -> np.ndarray:
        """One value a repeat."""
        return np.array(self[case, method][measure])

    def mean(self, case: str, method: str, measure: str) -> float:
        """The mean over the repeats."""
        return float(self.values_of(case, method, measure).mean())


@dataclass
class Outcome:
    """What is known about an experiment: how its run ended, its claims with their verdicts, its parts and figures."""

    status: Status = "not run"
    reason: str = ""
    claims: list[dict[str, str]] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)  # what they show, by file
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst verdict of its claims, or how its run ended."""
        if self.status != "finished":
            return self.status
        return max((claim["verdict"] for claim in self.claims), key=VERDICTS.index, default=self.status)

    @property
    def seconds(self) -> float:
        """What all parts took by the wall clock when they were measured."""
        return float(sum(part["seconds"] for part in self.parts.values()))

    @property
    def cpu_seconds(self) -> float | None:
        """What all parts took of processors, however busy the machine was; None if not all of them recorded it."""
        found = [part["cpu_seconds"] for part in self.parts.values() if "cpu_seconds" in part]
        return float(sum(found)) if len(found) == len(self.parts) else None

    @property
    def versions(self) -> list[str]:
        """The versions of the library that the parts were measured with."""
        return sorted({part["version"] for part in self.parts.values()})

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
        took = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}
        return {"verdict": self.verdict, **took, **vars(self), "measurements": rows}


class Results:
    """What was measured so far: ``experiments/<name>.json`` of a folder, and all of them in ``results.json``.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    quick : bool, default=False
        A folder holds a quick run or a full one, never both.
    fresh : collection of str, default=()
        Forget what is there of these experiments; and everything, if it is of the other kind of run.
    redo : str, default=""
        Forget the parts of which ``case | method | repeat`` contains this text.
    data : path or None, default=None
        The folder of the data files, for the loaders.
    say : callable, default=silent
        Told if another run has to be waited for before its results can be forgotten.

    Attributes
    ----------
    outcomes : dict of Outcome
        By the names of the experiments.
    chosen : list of str
        Those that this run was asked for.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        quick: bool = False,
        fresh: Collection[str] = (),
        redo: str = "",
        data: str | Path | None = None,
        say: Callable[[str], None] = lambda text: None,
    ):
        self.folder = Path(folder)
        self.quick = quick
        self.data = data
        self.outcomes: dict[str, Outcome] = {}
        self.chosen: list[str] = []
        for path in sorted((self.folder / "experiments").glob("*.json")):
            if path.stem in fresh or (fresh and _is_quick(path) != quick):
                with self.alone_with(path.stem, say):
                    path.unlink(missing_ok=True)
                continue
            outcome = self.load(path.stem)
            if redo and any(redo in key for key in outcome.parts):
                with self.alone_with(path.stem, say):
                    outcome = self.load(path.stem)
                    outcome.parts = {key: part for key, part in outcome.parts.items() if redo not in key}
                    self.save(path.stem)

    @contextmanager
    def alone_with(self, name: str, say: Callable[[str], None]) -> Iterator[None]:
        """Keep other processes from an experiment; ``say`` is told if one has to be waited for."""
        lock = FileLock(self.folder / "experiments" / f".{name}.lock")
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            say(f"{name}: waits for another run that measures it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def save(self, name: str) -> None:
        """Write what is known about one experiment, at once or not at all."""
        path = self.folder / "experiments" / f"{name}.json"
        write_json(path, {"quick": self.quick, **self.outcomes[name].as_dict()})

    def load(self, name: str) -> Outcome:
        """Read what is written about one experiment, maybe by another process; nothing, if there is no file."""
        path = self.folder / "experiments" / f"{name}.json"
        self.outcomes[name] = outcome = Outcome()
        if (stored := _read(path)) is not None:
            if stored["quick"] != self.quick:
                kind = "quick" if stored["quick"] else "full"
                raise ValueError(
                    f"{self.folder} holds the results of a {kind} run. Choose another folder, or start over with "
                    "fresh=True (--fresh), which forgets them."
                )
            if isinstance(stored["figures"], list):  # older versions did not say what is shown
                stored["figures"] = dict.fromkeys(stored["figures"], "")
            vars(outcome).update({name: stored[name] for name in vars(Outcome())})
        return outcome


def _is_quick(path: Path) -> bool | None:
    """Whether a quick run wrote the file; None if it is not there any more."""
    stored = _read(path)
    return None if stored is None else bool(stored["quick"])


def _read(path: Path) -> dict[str, Any] | None:
    """What ``Results.save`` wrote, or None if the file is not there: another run may have forgotten it."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        missing = {"quick", *vars(Outcome())} - set(stored)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        missing = {"JSON"}
    if missing:
        raise ValueError(
            f"{path} is damaged: {', '.join(sorted(missing))} cannot be read. Delete it, or start its experiment over "
            "with fresh=True (--fresh)."
        )
    return stored


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


@cache
def machine() -> dict[str, Any]:
    """Where the run took place, and with what."""
    here = {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    return here | {name: version(name) for name in LIBRARIES}
