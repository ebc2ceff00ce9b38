"""Run the fuzzer: ``python -m fuzz --cases 1000 --start 0``, or for as long as one likes with ``--minutes 30``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from fuzz.cases import random_case
from fuzz.judge import judge

COUNT_EVERY = 30.0  # seconds from one line that counts to the next


def main() -> int:
    """Judge the cases, print the faults, and return how the process ends."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many cases to judge")
    parser.add_argument("--start", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    options = parser.parse_args()
    began = printed = time.perf_counter()
    outcomes, faults, warned = Counter[str](), 0, 0
    for seed in range(options.start, options.start + options.cases):
        now = time.perf_counter()
        if now - began > 60.0 * options.minutes:
            break
        if now - printed > COUNT_EVERY:
            printed = now
            print(f"{seed - options.start} cases, {faults} faults, {now - began:.0f} s", flush=True)
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
