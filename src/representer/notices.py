"""Warnings that name the line of a user's own code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

Answer = TypeVar("Answer")
PACKAGE = str(Path(__file__).parent)
# Frames of these packages stand between a user and a learner, because they wrap its methods or call it in pipelines.
BETWEEN = ("sklearn", "joblib")


class NumericalWarning(UserWarning):
    """An answer has fewer digits than usual, or a matrix needed help; the text says why and what to do."""


_notes: ContextVar[list[str] | None] = ContextVar("texts of warnings", default=None)
_silent: ContextVar[tuple[type[Warning], ...]] = ContextVar("silenced categories", default=())


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """A context that collects the texts of the warnings inside, each once."""
    notes: list[str] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


@contextmanager
def silenced(category: type[Warning]) -> Iterator[None]:
    """A context without warnings of a category, which are given before or after it; they are not noted, either."""
    token = _silent.set((*_silent.get(), category))
    try:
        yield
    finally:
        _silent.reset(token)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that belongs neither to this library nor to a package that calls it for the user.

    Inside of ``noted_warnings`` a text is given once, because the members of a stack would repeat it.
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


def relayed(question: Callable[[], Answer]) -> Answer:
    """The answer to a question to another package, whose warnings name the line of the user's own code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = question()
    for one in caught:
        warn(str(one.message), one.category)
    return answer


def _is_between(filename: str, module: str) -> bool:
    """Does a frame belong to this library, or to a package between it and the user?"""
    return filename.startswith(PACKAGE) or module.partition(".")[0] in BETWEEN
