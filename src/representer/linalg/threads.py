"""How many threads a computation uses: one for a small problem, for a large one as many as the user allows.

Torch, NumPy and SciPy have threads of their own, and each operation waits for all of its threads. With a few hundred
samples an operation takes less time than a thread that another program keeps from its processor is late: a fit on
several threads then takes many times as long as on one, and on an idle machine it is hardly faster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

# Up to so many samples a fit runs on one thread.
FEW_ROWS = 512

_limited = threading.Lock()  # the limit is the process's: the thread that has set it lifts it


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def threads_for(n_rows: float) -> Iterator[None]:
    """Inside it, a problem of few rows is computed by one thread; a larger one is left to the user's settings."""
    if n_rows > FEW_ROWS or not _limited.acquire(blocking=False):
        yield
        return
    try:
        with _pools().limit(limits=1):
            yield
    finally:
        _limited.release()
