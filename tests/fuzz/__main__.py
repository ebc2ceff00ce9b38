"""Run the fuzzer: ``python -m fuzz --cases 1000 --start 0``, or for as long as one likes with ``--minutes 30``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from fuzz.cases import random_case
from fuzz.judge import judge


def main() -> int:
    """Judge the cases, print the faults, and return how the process ends."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many cases to judge")
    parser.add_argument("--start", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    options = parser.parse_args()
    end, outcomes, faults, warned = time.perf_counter() + 60.0 * options.minutes, Counter[str](), 0, 0
    for seed in range(options.start, options.start + options.cases):
        if time.perf_counter() > end:
            break
        verdict = judge(random_case(seed))
        outcomes[verdict.outcome] += 1
        warned += verdict.warned
        if verdict.outcome not in ("answered", "refused"):
            faults += 1
            print(verdict, flush=True)
    total = sum(outcomes.values())
    print(f"{total} cases: {dict(outcomes)}; {warned} with a numerical warning; {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
