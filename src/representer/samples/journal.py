"""The journal of a long fit: its costly results, from which the same fit goes on after it was killed.

Data and arguments determine a fit, so that it asks the same questions in the same order. A journal keeps the answers
that took long. The fit that begins again reads them, until it comes to a question without an answer. So no loop need
know how to stop and go on.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import reduce
from typing import Any, TypeVar

import numpy as np

Answer = TypeVar("Answer")
Term = TypeVar("Term")


class Journal(ABC):
    """The answers of a fit under way, in their order."""

    @abstractmethod
    def answer(self, question: str, compute: Callable[[], Answer]) -> Answer:
        """The answer to the next question, from the journal or computed now.

        The journal has no answers of computations that ask questions themselves, only the answers to these.
        """

    @abstractmethod
    def sum_so_far(self, question: str) -> tuple[int, Any]:
        """The number of terms in the sum that was last written down, and that sum; 0 and None if there is none."""

    @abstractmethod
    def keep_sum(self, question: str, n_terms: int, value: object) -> None:
        """Write the unfinished sum down, unless that was done a short while ago."""


_journal: ContextVar[Journal | None] = ContextVar("the journal of a fit", default=None)


def open_journal(journal: Journal | None) -> Token[Journal | None]:
    """Begin to write down the results of this thread; ``close_journal`` ends that by the token."""
    return _journal.set(journal)


def has_journal() -> bool:
    """Are the results of this thread written down?"""
    return _journal.get() is not None


def close_journal(token: Token[Journal | None]) -> None:
    """End writing the results of this thread down."""
    _journal.reset(token)


@contextmanager
def without_journal() -> Iterator[None]:
    """A context whose results are parts of one answer, and are not written down by themselves."""
    token = open_journal(None)
    try:
        yield
    finally:
        close_journal(token)


def digest(array: np.ndarray) -> str:
    """A short hash that tells arrays apart."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def remembered(question: Callable[[], str], compute: Callable[[], Answer]) -> Answer:
    """The result of a costly computation, from the journal of the fit or computed now.

    The computation must have no other effect than its result, because a fit that begins again does not run it. If it
    asks further questions, the journal keeps their answers instead of its own.
    """
    journal = _journal.get()
    return compute() if journal is None else journal.answer(question(), compute)


def summed(question: str, terms: Sequence[Term], add: Callable[[Term, Any], Answer]) -> Answer | None:
    """The sum of many terms by ``add(term, sum so far)``, from None on or from the sum that the journal has."""
    journal = _journal.get()
    if journal is None:
        return reduce(lambda result, term: add(term, result), terms, None)

    def compute() -> Answer | None:
        result: Answer | None
        begin, result = journal.sum_so_far(question)
        for i, term in enumerate(terms[begin:], start=begin + 1):
            with without_journal():
                result = add(term, result)
            journal.keep_sum(question, i, result)
        return result

    return remembered(lambda: question, compute)
