"""Record the answers of all cases: ``PYTHONPATH=SOURCES:tests:. python -m golden.record``.

SOURCES are those to compare with; where nothing was renamed in them, ``REPRESENTER_RECORDED_NAMES=1`` says so.

One file for each learner holds the numbers of its cases in one array, and their names and shapes as JSON.
``--compare`` shows the differences from the recorded answers, largest first, and the slowest cases.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from benchmarks.differential import WORSE, difference
from golden.answers import Answers
from golden.cases import CASES, Case

FOLDER = Path(__file__).parent / "recorded"


def save(recorded: dict[str, Answers], folder: Path = FOLDER) -> None:
    """Write one file for each learner."""
    folder.mkdir(exist_ok=True)
    for learner in sorted({name.split("/")[1] for name in recorded}):
        index, values = {}, []
        for case, answers in recorded.items():
            if case.split("/")[1] == learner:
                index[case] = {name: array.shape for name, array in answers.items()}
                values += [array.ravel() for array in answers.values()]
        np.savez_compressed(folder / f"{learner}.npz", values=np.concatenate(values), index=json.dumps(index))


def load(folder: Path = FOLDER) -> dict[str, Answers]:
    """The recorded answers of all cases."""
    recorded: dict[str, Answers] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            values, index = file["values"], json.loads(str(file["index"]))
        position = 0
        for case, shapes in index.items():
            recorded[case] = {}
            for name, shape in shapes.items():
                size = int(np.prod(shape))
                recorded[case][name] = values[position : position + size].reshape(shape)
                position += size
    return recorded


def deviations(case: Case, expected: Answers, found: Answers) -> dict[str, tuple[float, float]]:
    """By answer, how far it is from the recorded one and how far it may be."""
    if case.minimised is not None:
        before, after = float(expected["minimised"]), float(found["minimised"])
        return {"minimised": ((after - before) / max(abs(before), 1e-12), case.loose.get("minimised", WORSE))}
    return {
        name: (difference(value, found[name]) if name in found else np.inf, case.tolerance(name))
        for name, value in expected.items()
    }


def main() -> None:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--only", default="", help="a part of the names of the cases")
    arguments = parser.parse_args()
    expected = load() if arguments.compare else {}
    found: dict[str, Answers] = {}
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name, case in CASES.items():
        if arguments.only in name:
            began = time.perf_counter()
            try:
                found[name] = case.run()
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
            seconds[name] = time.perf_counter() - began
    print(f"{len(found)} cases in {sum(seconds.values()):.1f} s, {len(failed)} failed")
    for name in sorted(seconds, key=lambda name: -seconds[name])[:12]:
        print(f"  {seconds[name]:6.2f} s  {name}")
    for name, message in failed.items():
        print(f"  failed: {name}: {message}")
    if arguments.compare:
        rows = [
            (value / allowed, value, allowed, f"{name}: {answer}")
            for name in found
            if name in expected
            for answer, (value, allowed) in deviations(CASES[name], expected[name], found[name]).items()
        ]
        for _, value, allowed, label in sorted(rows, reverse=True)[:40]:
            print(f"  {value:9.1e} of {allowed:7.1e}  {label}")
    elif failed:
        raise SystemExit("Nothing was recorded: some cases failed.")
    else:
        save(found)


if __name__ == "__main__":
    main()
