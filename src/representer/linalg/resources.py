"""The resources of the machine for a fit: memory, which decides blocks of rows, and threads.

Torch, NumPy and SciPy have threads of their own. Idle threads of one library spin for a while and keep threads of
another from a processor, and each operation waits for its last thread.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from representer.notices import warn

# Rows are handled in blocks whose temporaries stay near this size.
BLOCK_BYTES = 64 * 2**20
# The size of a processor's caches: a larger batch is slower than its members one by one.
CACHED_BYTES = 8 * 2**20
# An exact computation that takes more than this share of the free memory is announced before it starts.
WARN_SHARE = 0.7


class MemoryWarning(RuntimeWarning):  # not a ResourceWarning, which Python hides unless asked
    """A computation will take most of the free memory."""


# The thread that may recycle matrices, and the matrices.
_RECYCLED: ContextVar[tuple[int, list[np.ndarray]] | None] = ContextVar("recycled matrices", default=None)


@contextmanager
def recycling() -> Iterator[None]:
    """A context in which a new Gram matrix, factor or inverse takes the memory of an earlier one that is free again.

    A search makes the same matrices at every step, and fresh pages of the system cost more than filling them.
    """
    # The first array has no holder but the list: free arrays have the same count of references.
    token = _RECYCLED.set((threading.get_ident(), [np.empty(0)]))
    try:
        yield
    finally:
        _RECYCLED.reset(token)


def empty_matrix(shape: Sequence[int], like: Tensor) -> Tensor:
    """A contiguous matrix of the type of ``like`` that is not initialised; ``recycling`` reuses its memory."""
    recycled = _RECYCLED.get()
    if recycled is None or recycled[0] != threading.get_ident() or like.device.type != "cpu":
        return like.new_empty(*shape)
    matrices = recycled[1]
    kind = like.new_empty(0).numpy().dtype
    matrices[1:] = [array for array in matrices[1:] if array.shape == tuple(shape) and array.dtype == kind]
    holders = [sys.getrefcount(array) for array in matrices]  # a tensor holds the array whose memory it uses
    for array, count in zip(matrices[1:], holders[1:], strict=True):
        if count == holders[0]:
            return torch.from_numpy(array)
    matrices.append(like.new_empty(*shape).numpy())
    return torch.from_numpy(matrices[-1])


def available_bytes() -> int | None:
    """The memory that is available without swapping, or None if the system does not tell."""
    sizes = [size for size in (_free_on_machine(), _free_in_container()) if size is not None]
    return min(sizes) if sizes else None


def peak_bytes() -> int | None:
    """The largest memory of this process so far, or None if the system does not tell."""
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _free_on_machine() -> int | None:
    """The memory that Linux calls available; on other systems, the whole memory."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _free_in_container() -> int | None:
    """The memory that the limit of a control group (version 2) leaves, or None without a limit."""
    group = Path("/sys/fs/cgroup")
    try:
        return int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or "max": no limit
        return None


def require(needed: int, *, what: str, advice: str, halved: str | None = None) -> None:
    """Raise MemoryError with the estimate if ``needed`` bytes are not free; warn if they nearly fill the memory.

    Less than a block is not worth the question. ``halved`` is the advice where half of the bytes are free.
    """
    free = available_bytes() if needed > BLOCK_BYTES else None
    if free is None or needed <= WARN_SHARE * free:
        return
    estimate = f"{what} needs about {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB are free."
    advice = halved if halved is not None and needed <= 2 * free else advice
    if needed > free:
        raise MemoryError(f"{estimate} {advice}")
    warn(f"{estimate} {advice}", MemoryWarning)


def require_gram(rows: int, columns: int) -> None:
    """Refuse a Gram matrix of doubles that does not fit into memory."""
    advice = "Compute it in blocks of rows, k(X[a:b], Y), or use representer.approximation."
    require(8 * rows * columns, what=f"A Gram matrix of {rows} × {columns} samples", advice=advice)


def cached_bytes(numbers: object) -> int | None:
    """A limit for ``row_blocks`` that fits the processor's caches; None, the default limit, on other devices."""
    on_processor = isinstance(numbers, Tensor) and numbers.device.type == "cpu"
    return min(CACHED_BYTES, BLOCK_BYTES) if on_processor else None


def row_blocks(n_rows: int, bytes_per_row: int, limit: int | None = None) -> Iterator[slice]:
    """Slices over the rows, each with about ``limit`` bytes of temporaries, ``BLOCK_BYTES`` by default.

    Examples
    --------
    >>> from representer.linalg import row_blocks
    >>> list(row_blocks(5, bytes_per_row=2**25))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, (BLOCK_BYTES if limit is None else limit) // max(1, bytes_per_row))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def by_rows(values: Callable[[slice], Tensor], n_rows: int, bytes_per_row: int, limit: int | None = None) -> Tensor:
    """The matrix (..., n, p) whose rows ``values`` computes block by block.

    Blocks are written into one matrix, because small results between large temporaries would pin the memory that each
    block frees: the process would grow with the number of blocks.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import by_rows
    >>> X = torch.arange(10.0).reshape(5, 2)
    >>> by_rows(lambda rows: X[rows].sum(1, keepdim=True), 5, bytes_per_row=2**25).mT.tolist()
    [[1.0, 5.0, 9.0, 13.0, 17.0]]
    """
    result: Tensor | None = None
    for rows in row_blocks(n_rows, bytes_per_row, limit):
        block = values(rows)
        if rows.stop == n_rows and rows.start == 0:
            return block
        if result is None:
            result = block.new_empty(*block.shape[:-2], n_rows, block.shape[-1])
        result[..., rows, :] = block
    return values(slice(0, 0)) if result is None else result


UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def as_bytes(limit: int | float | str | None) -> int | None:
    """A memory limit as a number of bytes, from a number, a text such as ``"2GB"``, or None for no limit.

    Examples
    --------
    >>> from representer.linalg import as_bytes
    >>> as_bytes("1.5GB"), as_bytes(4096)
    (1500000000, 4096)
    """
    if limit is None:
        return None
    number, unit = limit, "B"
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?B)\s*", limit.upper())
        number, unit = match.groups() if match else ("", "B")
    try:
        size = int(float(number) * UNITS[unit])
    except (TypeError, ValueError, OverflowError):
        size = 0
    if size < 1 or isinstance(limit, bool):
        raise ValueError(
            f"memory_limit must be a positive number of bytes, text such as '500MB' or '2GB', or None; got {limit!r}."
        )
    return size


def room_beside_sums(
    memory_limit: int | float | str | None, m: int, p: int, *, held: int, matrices: int = 5
) -> int | None:
    """The memory for blocks that a limit leaves beside the sums of m features for p outputs.

    ``held`` is the number of samples that are left out one by one: their coordinates stay while alpha is chosen.
    """
    limit = as_bytes(memory_limit)
    # The matrices are the factor of the features, S, its eigenvectors in place of a copy, and LAPACK's two work arrays.
    # Beside them there are twice the coefficients, the targets' squares, and the coordinates.
    sums = 8 * (matrices * m * m + 2 * m * p + p * p + held * m)
    if limit is None:
        require(sums + BLOCK_BYTES, what=f"A fit with {m} features", advice="Use fewer of them.")
        return None
    least = 64 * 3 * 8 * m
    if limit < sums + least:
        raise MemoryError(
            f"memory_limit={memory_limit!r} leaves no room for a fit with {m} features, which needs "
            f"{(sums + least) / 1e9:.3g} GB beside the data. Use fewer features, or a higher limit."
        )
    return limit - sums


def combine(operation: str, a: Tensor, b: Tensor) -> Tensor:
    """The sum, difference or product of a and b, in the memory of a if no gradient needs it and the shapes allow it."""
    fits = b.ndim <= a.ndim and all(m in (1, n) for n, m in zip(a.shape[::-1], b.shape[::-1], strict=False))
    inplace = fits and not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad))
    return getattr(a, operation + "_" if inplace else operation)(b)


FEW_ROWS = 512  # up to this many samples all operations are short, and a fit runs on one thread
FACTORED_ROWS = 4000  # up to this many samples SciPy's factorisations are most of the work, and torch has one thread

_limited = threading.Lock()  # the limit holds for the process: the thread that sets it lifts it


@cache
def _pools() -> ThreadpoolController:
    """The thread pools of the libraries that are loaded."""
    return ThreadpoolController()


@contextmanager
def threads_for(n_rows: int | None) -> Iterator[None]:
    """A context that limits threads: to one for few rows, to one of torch for more, and no limit beyond.

    None stands for an unknown number of rows, as on Dask, and limits nothing.
    """
    if n_rows is None or n_rows > FACTORED_ROWS or not _limited.acquire(blocking=False):
        yield
        return
    several: list[tuple[Any, int]] = []
    try:
        pools = [pool for pool in _pools().lib_controllers if n_rows <= FEW_ROWS or pool.user_api == "openmp"]
        several += [(pool, pool.num_threads) for pool in pools if pool.num_threads != 1]
        for pool, _ in several:
            pool.set_num_threads(1)
        yield
    finally:
        for pool, n_threads in several:
            pool.set_num_threads(n_threads)
        _limited.release()
