"""Warnings that name the line of a user's own code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

PACKAGE = str(Path(__file__).parent)
# Frames of these packages stand between a user and a learner: its methods are wrapped, and pipelines call it.
BETWEEN = ("sklearn", "joblib")


class NumericalWarning(UserWarning):
    """An answer has fewer digits than usual, or a matrix needed help; the text says why and what to do."""


_notes: ContextVar[list[str] | None] = ContextVar("what was warned of", default=None)
_silent: ContextVar[tuple[type[Warning], ...]] = ContextVar("what nobody is warned of", default=())


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """The texts of the warnings inside, each once, for a record of them."""
    notes: list[str] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


@contextmanager
def silenced(category: type[Warning]) -> Iterator[None]:
    """Nobody is warned of this inside, and it is not noted: it is said later, or was said before."""
    token = _silent.set((*_silent.get(), category))
    try:
        yield
    finally:
        _silent.reset(token)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is neither this library's nor of a package that calls it for the user.

    What is noted is said once: the members of a stack, and the kernels of a choice, would say the same.
    """
    if issubclass(category, _silent.get()):
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_between(frame.f_code.co_filename, frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    notes = _notes.get()
    if notes is not None:
        if message in notes:
            return
        notes.append(message)
    warnings.warn(message, category, stacklevel=level)


def _is_between(filename: str, module: str) -> bool:
    return filename.startswith(PACKAGE) or module.partition(".")[0] in BETWEEN
