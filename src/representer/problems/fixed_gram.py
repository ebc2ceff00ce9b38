"""Fits on objects as fits on their Gram matrix: computed once, repaired once, and led back to the objects.

Folds, restarts and subsets of a search then take parts of one matrix, where a kernel of strings or graphs would be
computed for each of them. And an indefinite kernel is repaired as a whole (see ``_adapted``), so that every part is
positive semi-definite, too. A kernel with hyperparameters to be learned has a Gram matrix for each of their values: it
stays what it is. It has to be positive semi-definite where the search starts, and where that ends it may be repaired.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from representer.functions import Expansion
from representer.kernels import Precomputed
from representer.linalg import IndefiniteGramWarning, NotPositiveDefiniteError, repair_gram
from representer.operators import Decomposable, OperatorKernel, Representation, original, repaired_gram
from representer.problems.composition import Composition
from representer.samples import Data, SparseRows, take

ADVICE = (
    "If the kernel that sees the data is indefinite, it is repaired where nothing of it is learned: give numbers (or "
    "'median') for its hyperparameters, or use OperatorRidge, which repairs while it learns."
)


@dataclass(frozen=True)
class Restore:
    """The way back from what a fit has worked with to the kernel and the data that it was given."""

    data: Data
    kernel: OperatorKernel | None = None  # the first one, where its Gram matrix was computed once
    kept: Tensor | None = None  # if that was repaired, the eigenvectors that have stayed
    learned: bool = False  # is it a scalar kernel of objects with hyperparameters that were searched?

    def composition(self, composition: Composition) -> Composition:
        """The composition with the kernel of the data in its place."""
        return _with_first(composition, original(composition.input_kernel if self.kernel is None else self.kernel))

    def functions(self, functions: Sequence[Expansion]) -> list[Expansion]:
        """The functions from the input on, the first one on the objects: its coefficients c are P c.

        Only objects with a coefficient are kept.
        """
        first, *later = functions
        if self.kernel is None:
            return [first, *later]
        c = first.coefficients
        c = c if self.kept is None else self.kept @ (self.kept.mT @ c)
        rows = torch.nonzero(c.abs().sum(1))[:, 0].cpu()
        rows = rows if len(rows) else torch.zeros(1, dtype=torch.long)
        return [Expansion(self.kernel, take(self.data, rows), c[rows.to(c.device)]), *later]

    def needs_repair(self, composition: Composition) -> bool:
        """Has a search over hyperparameters ended at an indefinite kernel?"""
        return self.learned and _is_indefinite(composition.input_kernel, self.data)

    @contextmanager
    def advice(self) -> Iterator[None]:
        """An indefinite Gram matrix of a kernel that is learned is reported with what can be done about it."""
        try:
            yield
        except NotPositiveDefiniteError as error:
            if not self.learned:
                raise
            raise NotPositiveDefiniteError(f"The search met an indefinite Gram matrix. {ADVICE}") from error


def precompute(
    composition: Composition, data: Data, like: Tensor, *, once: bool = True
) -> tuple[Composition, Any, Restore]:
    """The composition and the data that a fit works with, and the way back.

    If the first kernel is a scalar one of objects (or of sparse vectors) with nothing to be learned, these are the
    composition with ``Precomputed()`` in its place, and its Gram matrix, repaired if need be with an
    ``IndefiniteGramWarning``. Any other kernel of objects gets the precision of the learner.

    Parameters
    ----------
    composition : Composition
    data : prepared data
    like : tensor
        Of the precision and on the device of the learner.
    once : bool
        False: no n × n matrix, for a fit through landmarks.

    Returns
    -------
    composition, data, restore : Composition, prepared data, Restore
    """
    kernel = composition.input_kernel
    if kernel.domain in ("vectors", "gram") and not isinstance(data, SparseRows):
        return composition, data, Restore(data)
    scalar = once and isinstance(kernel, Decomposable)
    learned = scalar and bool(kernel.free())
    form = Representation(like.dtype, str(like.device), sparse=True)
    adapted: Any = form.adapted(kernel, repair=scalar and not learned)
    if learned and _is_indefinite(start := adapted.resolve(data), data):
        raise NotPositiveDefiniteError(
            f"The Gram matrix of {start.kernel!r}, where learning would start, is indefinite. {ADVICE}"
        )
    if learned or not scalar:
        return _with_first(composition, adapted), data, Restore(data, learned=learned)
    resolved = adapted.resolve(data)
    gram, kept = repaired_gram(resolved.kernel, data)
    fitted = _with_first(composition, Decomposable(Precomputed(), resolved.operator))
    return fitted, gram, Restore(data, resolved, kept)


def _with_first(composition: Composition, kernel: OperatorKernel) -> Composition:
    """The composition with another kernel for the data."""
    if not composition.layers:
        return Composition([], kernel, composition.alpha)
    first, *later = composition.layers
    layers = [first.replaced(kernel=kernel, operator=None), *later]
    return Composition(layers, composition.kernel, composition.alpha)


def _is_indefinite(kernel: Any, data: Data) -> bool:
    """Would the Gram matrix of a scalar kernel be repaired with a warning, or refused?"""
    with warnings.catch_warnings():
        warnings.simplefilter("error", IndefiniteGramWarning)
        try:
            repair_gram(kernel.kernel._gram(data, None))
        except (IndefiniteGramWarning, NotPositiveDefiniteError):
            return True
    return False
