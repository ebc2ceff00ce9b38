"""What a long fit has computed so far, for the same fit that begins again after it was killed.

A fit is determined by its data and its arguments: it asks the same questions in the same order. A journal keeps the
answers that took long, and the fit that begins again gets them from there, until it comes to a question that nobody has
answered. So no loop need know how to stop and go on.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, TypeVar

import numpy as np

Answer = TypeVar("Answer")
Term = TypeVar("Term")


class Journal(ABC):
    """The answers of a fit under way, in their order."""

    @abstractmethod
    def answer(self, question: str, compute: Callable[[], Answer]) -> Answer:
        """The answer to the next question: the one that is written down, or the one that is computed now.

        A computation that asks questions itself is not written down: the answers to these are.
        """

    @abstractmethod
    def sum_so_far(self, question: str) -> tuple[int, Any]:
        """How many terms of a sum were added when it was last written down, and their sum; 0 and None if never."""

    @abstractmethod
    def keep_sum(self, question: str, n_terms: int, value: object) -> None:
        """Write a sum down that is under way, if that was not done for a while."""


_journal: ContextVar[Journal | None] = ContextVar("the journal of a fit", default=None)


def open_journal(journal: Journal | None) -> Token[Journal | None]:
    """From now on, what this thread computes is written down; the token ends it."""
    return _journal.set(journal)


def has_journal() -> bool:
    """Is what this thread computes written down?"""
    return _journal.get() is not None


def close_journal(token: Token[Journal | None]) -> None:
    """Nothing more is written down."""
    _journal.reset(token)


@contextmanager
def without_journal() -> Iterator[None]:
    """What is computed inside is a part of one answer, and not written down by itself."""
    token = open_journal(None)
    try:
        yield
    finally:
        close_journal(token)


def digest(array: np.ndarray) -> str:
    """A few letters that tell arrays apart."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def remembered(question: Callable[[], str], compute: Callable[[], Answer]) -> Answer:
    """The result of a costly computation: computed, or what the journal of the fit has of it.

    It must be all that the computation leaves behind, because a fit that begins again does not run it; unless it asks
    further questions, whose answers are then written down instead of its own.
    """
    journal = _journal.get()
    return compute() if journal is None else journal.answer(question(), compute)


def summed(question: str, terms: Sequence[Term], add: Callable[[Term, Any], Answer]) -> Answer | None:
    """The sum of many terms by ``add(term, sum so far)``, which begins with None and goes on where it was left."""
    journal = _journal.get()
    if journal is None:
        return _sum(terms, add)

    def compute() -> Answer | None:
        result: Answer | None
        begin, result = journal.sum_so_far(question)
        for i, term in enumerate(terms[begin:], start=begin + 1):
            with without_journal():
                result = add(term, result)
            journal.keep_sum(question, i, result)
        return result

    return remembered(lambda: question, compute)


def _sum(terms: Sequence[Term], add: Callable[[Term, Any], Answer]) -> Answer | None:
    result: Answer | None = None
    for term in terms:
        result = add(term, result)
    return result
