"""What a fit and its search look at: all samples of an exact fit; some, and then blocks of all, of one by features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from representer.approximation import Approximation, Nystroem
from representer.kernels import Kernel
from representer.linalg import require
from representer.operators import Decomposable, Diagonal, Identity, OperatorKernel
from representer.samples import Data, Samples, count, plain
from representer.samples import rows as limits
from representer.systems.exact import RidgeData, require_memory, training_data


@dataclass(frozen=True)
class Scope:
    """What spans f, and which samples a fit and its search look at.

    Fits without and with an approximation are told apart here and by systems. A problem asks its scope.

    Parameters
    ----------
    approximation : Approximation or None
        For so many samples; None: f is spanned by all samples, whose Gram matrix is formed.
    by_sums : bool
        Is the fit a sum over blocks of samples, so that a search looks at random ones?
    """

    approximation: Approximation | None = None
    by_sums: bool = False

    @classmethod
    def of(
        cls,
        approximation: Approximation | tuple[Approximation, Approximation] | None,
        n: int,
        *,
        by_sums: bool = True,
    ) -> Scope:
        """The scope of a fit to n samples; of approximations of inputs and outputs, the first one counts."""
        first = approximation[0] if isinstance(approximation, tuple) else approximation
        return cls() if first is None else cls(first.sized(n), by_sums)

    @property
    def spans_all(self) -> bool:
        """Is f spanned by all samples, so that the alpha of a search is that of the fit?"""
        return self.approximation is None

    @property
    def repairs(self) -> bool:
        """Is a Gram matrix of all samples formed, and repaired where it is indefinite?"""
        return not self.by_sums

    @property
    def _nystroem(self) -> Nystroem:
        assert isinstance(self.approximation, Nystroem)  # where landmarks must be samples, learners take no other
        return self.approximation

    # -- samples of any fit -------------------------------------------------------------------------------------------
    def rows(self, samples: Samples, size: int, seed: int) -> np.ndarray:
        """The samples that a search may look at: all, or about ``size`` random ones where blocks are summed later."""
        return samples.random_rows(size, seed) if self.by_sums else np.arange(samples.n)

    def part(self, samples: Samples, size: int, seed: int) -> np.ndarray:
        """The samples of a cheaper search: about ``size`` where f is spanned by all, and all where it looks at few."""
        return samples.random_rows(size, seed) if self.spans_all else np.arange(samples.n)

    def read_ahead(self, samples: Samples, rows: np.ndarray, seed: int) -> None:
        """Read these samples in one pass with those that features are chosen from."""
        if self.approximation is not None:
            samples.read_ahead(rows, self.approximation.rows(samples.n, seed))

    def heuristic_rows(self, samples: Samples) -> np.ndarray:
        """The samples that decide words in a kernel: all, or evenly spaced ones."""
        return np.arange(samples.n) if self.spans_all else limits.evenly_spaced(samples.n, limits.HEURISTIC_ROWS)

    def search_size(self, n: int) -> int:
        """On how many of n samples that may be looked at a kernel is learned.

        These are as many as there are landmarks, but not too few, and all where features move with the kernel.
        """
        approximation = self.approximation
        if approximation is None or approximation.moves:
            return n
        return min(n, max(approximation.size(n), limits.SMALLEST_SEARCH))

    # -- what spans f -------------------------------------------------------------------------------------------------
    def subset(self, samples: Samples, kernel: Kernel, inputs: Callable[[Data], Data], seed: int) -> np.ndarray:
        """The numbers of the samples that stand for all: of landmarks, chosen by a look at some of them.

        ``inputs`` makes of samples what the kernel takes.
        """
        if self.spans_all:
            return np.arange(samples.n)
        nystroem = self._nystroem
        nystroem.check(kernel, samples.n)
        rows = nystroem.rows(samples.n, seed)
        if len(rows) <= nystroem.size(samples.n):
            return rows
        data = inputs(plain(samples.rows(rows).X))
        return rows[plain(nystroem.chosen(kernel.resolve(data), data, seed))]

    def max_rank(self, n: int) -> int | None:
        """How many functions of n samples may span f; None: all."""
        return None if self.spans_all else self._nystroem.at_most(n)

    def landmarks(self, kernel: OperatorKernel, X: Data, seed: int) -> Tensor | None:
        """The numbers of the rows of prepared data that span f, for a scalar kernel; None: all."""
        if self.spans_all:
            return None
        assert isinstance(kernel, Decomposable)
        return self._nystroem.capped(count(X)).samples(kernel.kernel, X, seed=seed)

    def moved(self, kernel: Kernel, X: Data, seed: int) -> Callable[[Kernel, Data], Tensor] | None:
        """The features as a function of kernel and data, where a search goes by them; None: it goes by k itself."""
        return None if self.approximation is None else self.approximation.moved(kernel, X, seed)

    # -- what is refused ----------------------------------------------------------------------------------------------
    def check(self, kernel: Kernel, n: int) -> None:
        """Refuse a kernel or a number of samples that cannot be approximated."""
        if self.approximation is not None:
            self.approximation.check(kernel, n)

    def require(self, holds: bool, message: str) -> None:
        """Refuse what an approximation cannot do, with a message."""
        if not (self.spans_all or holds):
            raise ValueError(message)

    def require_memory(self, n: int, searched: int, element_size: int, *, moved: int = 0) -> None:
        """Refuse a fit to n samples that does not fit, before anything of size n × n exists.

        ``searched`` is the number of samples whose Gram matrix a search looks at, which takes eight such matrices, and
        ``moved`` that of those whose features it looks at where these move with the kernel. An exact fit has three
        n × n matrices; one by features goes by blocks, which ask for themselves.
        """
        if self.approximation is None:
            fitted = 3 * n**2
            advice = "Use approximation=Nystroem(m) or RandomFeatures(m), a smaller batch_size, or fewer samples."
        else:
            fitted = 4 * moved * (self.approximation.size(n) if self.approximation.moves else 0)
            advice = "Use fewer components, or a smaller batch_size."
        require(max(8 * searched**2, fitted) * element_size, what=f"A fit to {n} samples", advice=advice)

    # -- ridge regression ---------------------------------------------------------------------------------------------
    def start(
        self, kernel: OperatorKernel, samples: Samples, seed: int, *, intercept: bool, learned: bool, searched: bool
    ) -> RidgeData:
        """Samples of positive weight that a search may look at, with the numbers in the kernel where it starts.

        ``learned`` says whether hyperparameters are learned, and ``searched`` whether alpha is. A fit that does not fit
        into memory is refused.
        """
        if self.by_sums:
            return self._drawn(kernel, samples, seed, intercept=intercept)
        data = training_data(kernel, samples.rows(np.arange(samples.n)), intercept=intercept)
        if self.approximation is None:
            require_memory(data, learned=learned, searched=searched)
        else:
            m = self.approximation.size(samples.n)
            needed = 4 * samples.n * m * data.Y.element_size()
            require(needed, what=f"A fit with {m} features", advice="Use fewer of them.")
        data = replace(data, kernel=kernel.resolve(data.X))
        return data.with_gram() if self.spans_all and not kernel.free() else data

    def _drawn(self, kernel: OperatorKernel, samples: Samples, seed: int, *, intercept: bool) -> RidgeData:
        """Random samples; those that the fit will ask for are read with them."""
        assert self.approximation is not None
        self.approximation.size(samples.n)
        regular = self.heuristic_rows(samples)
        drawn = self.approximation.rows(samples.n, seed)
        search = samples.random_rows(limits.SEARCH_ROWS, seed)
        samples.read_ahead(regular, drawn, search, samples.random_rows(limits.HELD_ROWS, seed))
        kernel = kernel.resolve(samples.rows(regular).X)
        return training_data(kernel, samples.rows(search).positive_part(), intercept=intercept)

    def searched(self, data: RidgeData, seed: int) -> RidgeData:
        """As many of these samples as a criterion looks at: can afford, or has features for."""
        if self.by_sums:
            return data
        n = len(data.Y)
        return data.subset(n if self.approximation is None else min(n, self.approximation.size(n)), seed)


def goes_by_sums(samples: Samples, kernel: OperatorKernel, *, learned: bool = False) -> bool:
    """Is a fit with features a sum over the samples? Coupled outputs with missing targets need all samples at once.

    ``learned`` says whether the output operator is, which couples the outputs.
    """
    if not isinstance(kernel, Decomposable):
        return False
    return samples.observed is None or (not learned and isinstance(kernel._operator, Identity | Diagonal))
