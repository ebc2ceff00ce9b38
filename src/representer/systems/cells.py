"""Outputs in cells around landmarks: a distribution of any number of samples as weights of a few."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from representer.approximation import FeatureMap
from representer.kernels import Kernel
from representer.linalg import row_blocks
from representer.samples import Block, Data, Step, count
from representer.systems.sums import NormalSums, add_gram


@dataclass(frozen=True)
class Cells:
    """Each output belongs to the landmark that is nearest to it in the RKHS of its kernel, the first of equals.

    Examples
    --------
    >>> import torch
    >>> from representer.systems.cells import Cells
    >>> from representer.kernels import Gaussian
    >>> cells = Cells(Gaussian(1.0), torch.tensor([[0.0], [10.0]]))
    >>> cells(torch.tensor([[1.0], [6.0], [-2.0], [500.0]])).tolist()
    [0, 1, 0, 1]
    """

    kernel: Kernel
    landmarks: Data  # prepared

    def __len__(self) -> int:
        return count(self.landmarks)

    @cached_property
    def _halves(self) -> Tensor:
        return 0.5 * self.kernel._diag(self.landmarks)

    def __call__(self, Y: Data) -> Tensor:
        """The number of its landmark for each of some prepared outputs, in blocks."""
        blocks = row_blocks(count(Y), 2 * self._halves.element_size() * len(self))
        return torch.cat([self._block(Y[rows]) for rows in blocks])

    def _block(self, Y: Data) -> Tensor:
        similar = self.kernel._gram(Y, self.landmarks)
        found = (similar - self._halves).argmax(1)  # of least l(y, y) − 2 l(y, z) + l(z, z)
        if isinstance(Y, Tensor):
            far = (similar == 0).all(1)  # too far for digits of the kernel
            if bool(far.any()):
                found[far] = torch.cdist(Y[far], self.landmarks).argmin(1)
        return found


@dataclass(frozen=True)
class CellStep(Step):
    """Adds to the sums of a ridge regression of cells, as columns of zeros and ones, and of the outputs' moments.

    The fit to the columns is the sum of the samples' weights in each cell, and that to y − c and (y − c)² is the mean
    and the variance of all samples: so the moments are exact, however large the cells.

    Parameters
    ----------
    features : FeatureMap
        Of the inputs.
    n_cells : int
    cells : Cells or None
        Of the outputs in blocks; None: blocks hold the numbers of cells.
    centre : tensor (d,) or None
        The c of the moments; None: there are no moments.
    """

    features: FeatureMap
    n_cells: int
    cells: Cells | None
    centre: Tensor | None

    @property
    def width(self) -> int:
        """How many columns the cells and the moments have together."""
        return self.n_cells + (0 if self.centre is None else 2 * len(self.centre))

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """Columns, features, those in double, and the similarities of outputs."""
        return 8 * (3 * self.features.n_features + 2 * self.width)

    def numbers(self, Y: Tensor) -> Tensor:
        """The number of the cell that each of some outputs falls into."""
        return Y[:, 0].long() if self.cells is None else self.cells(Y)

    def moments(self, Y: Tensor) -> Tensor:
        """y − c and (y − c)² of some outputs, (n, 2d)."""
        if self.centre is None:
            return Y.new_zeros(len(Y), 0, dtype=torch.float64)
        centred = Y.double() - self.centre.double()
        return torch.cat([centred, centred.square()], 1)

    def __call__(self, block: Block, total: NormalSums | None) -> NormalSums:
        B, moments = self.features(block.X), self.moments(block.Y)
        m, r, d = B.shape[1], self.n_cells, moments.shape[1]
        if total is None:
            total = NormalSums.zeros(m, r + d, like=moments)
        n, ones = len(B), moments.new_ones(len(B), 1)
        w = ones if block.weights is None else block.weights.double()[:, None]
        add_gram(total.gram, B if block.weights is None else B * w.sqrt().to(B))
        B = B.double()
        rows = torch.cat([B, moments, ones], 1)
        if block.weights is not None:
            n, rows = int((w > 0).sum()), w * rows
        sums = rows.new_zeros(r, m + d + 1).index_add_(0, self.numbers(block.Y), rows)
        weighted = rows[:, m : m + d]
        counts = sums[:, -1]
        total.cross[:, :r].add_(sums[:, :m].mT)
        total.cross[:, r:].add_(B.mT @ weighted)
        total.squares.diagonal()[:r].add_(counts)
        total.squares[:r, r:].add_(sums[:, m:-1])
        total.squares[r:, :r].add_(sums[:, m:-1].mT)
        total.squares[r:, r:].add_(moments.mT @ weighted)
        total.feature_sum.add_(rows[:, :m].sum(0))
        total.target_sum.add_(torch.cat([counts, weighted.sum(0)]))
        return replace(total, n=total.n + n, weight=total.weight + float(w.sum()))
