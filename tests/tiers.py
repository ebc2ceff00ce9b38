"""The two tiers of a family of cases: some are tested at every run, the others only by continuous integration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest


def tiers(cases: Iterable[Any] | Mapping[str, Any], quick: Callable[..., bool]) -> list[Any]:
    """Parameters of a test, of which all but the quick ones are slow.

    A mapping gives its values, and names them; ``quick`` is then asked about names. A tuple is several parameters.
    """
    named = cases.items() if isinstance(cases, Mapping) else ((None, case) for case in cases)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=() if quick(case if name is None else name) else pytest.mark.slow,
        )
        for name, case in named
    ]
