"""How many threads a fit uses.

Torch, NumPy and SciPy have threads of their own. Threads without work spin for a while and keep those of the other
library from a processor, and each operation waits for its latest thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

FEW_ROWS = 512  # up to so many samples all operations are short, and a fit runs on one thread
FACTORED_ROWS = 4000  # up to so many SciPy's factorisations and products are most of the work: torch has one thread

_limited = threading.Lock()  # the limit is the process's: the thread that has set it lifts it


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def threads_for(n_rows: int | None) -> Iterator[None]:
    """Limit the threads of a fit: one for few rows, one of torch's for more of them, the user's settings beyond.

    None is a number of rows that is not known, as on Dask: it limits nothing.
    """
    if n_rows is None or n_rows > FACTORED_ROWS or not _limited.acquire(blocking=False):
        yield
        return
    try:
        pools = _pools() if n_rows <= FEW_ROWS else _pools().select(user_api="openmp")
        with pools.limit(limits=1):
            yield
    finally:
        _limited.release()
