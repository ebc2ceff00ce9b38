"""Threads of torch and of BLAS: how they wait for work, and where one is better than several.

Fits alternate between torch, whose threads spin for some milliseconds after each operation, and SciPy's BLAS, which has
threads of its own and finds no free processor meanwhile. Threads that sleep instead cost torch some microseconds. That
is decided before torch is loaded, as it cannot be afterwards; what the user or another package has decided stays.

Threads of OpenBLAS, in turn, spin while they wait for each other, thousands of times in one factorisation. Beside other
work on the same processors each time may take a tick of the system's clock: seconds for milliseconds (decision 96).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Factorisations of so many rows are as fast with one thread of BLAS as with several, but for eigenvectors, which take
# 1.4 times as long.
FEW_ROWS = 512


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")  # those that are loaded: NumPy's and SciPy's


_ONE_THREAD = threading.Lock()  # held by who has set the limit


@contextmanager
def blas_threads_for(n_rows: int) -> Iterator[None]:
    """Inside it NumPy's and SciPy's BLAS use one thread if a matrix has few rows; torch's uses its own.

    The limit is the process's. Who finds it set, by another thread or around a nested call, leaves it to the first.

    Parameters
    ----------
    n_rows : int
        Of the square matrix that is factored.
    """
    if n_rows > FEW_ROWS or not _ONE_THREAD.acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _ONE_THREAD.release()
