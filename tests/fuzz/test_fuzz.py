"""Random learners on random data answer consistently and rightly, or refuse with advice (``make fuzz`` for more)."""

from __future__ import annotations

import pytest

from fuzz.cases import random_case
from fuzz.judge import judge

BLOCKS, CASES_A_BLOCK = 30, 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_answers_are_right_or_refused(block: int) -> None:
    """Of 300 cases none is wrong, hangs, or ends in an error that nobody wrote for its reader."""
    verdicts = [judge(random_case(CASES_A_BLOCK * block + i)) for i in range(CASES_A_BLOCK)]
    faults = [str(verdict) for verdict in verdicts if verdict.outcome not in ("answered", "refused")]
    assert not faults, "\n".join(faults)
