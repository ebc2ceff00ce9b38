"""Gram matrices block by block, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import joblib
import torch
from torch import Tensor

from representer.kernels.base import Columns, ExplicitFeatures, Kernel, Wrapped, is_searched
from representer.linalg import row_blocks
from representer.samples import Data, count
from representer.values import COUNT, Rule

BLOCK_SIZE = 256

Block = Callable[[Data, Data | None], Tensor]  # the matrix of two sets of samples; None stands for the first


class Parallel(Wrapped):
    """k(x, y), with Gram matrices computed block by block, several blocks at a time.

    It serves kernels that go through all pairs (``Edit``, ``Subsequence``, ``RandomWalk``, ``GlobalAlignment``,
    ``Match``, functions of Python), because matrix products use all processors anyway. The Gram matrix is the same,
    except for kernels of ``GraKeL`` that depend on the other graphs: their matrices have no blocks.

    Parameters
    ----------
    kernel : Kernel
        Any kernel but a precomputed one.
    n_jobs : int, optional
        As for joblib: None is 1 unless a ``joblib.parallel_config`` says otherwise, -1 all processors.
    block_size : int
        Samples in a block.
    processes : bool
        Threads serve kernels that spend their time in torch, NumPy or SciPy; one of pure Python, such as ``Callable``,
        needs processes, to which it and the data are sent. Processes give no gradients: a search for the kernel's
        hyperparameters uses threads.

    Examples
    --------
    >>> from representer.kernels import Edit, Parallel
    >>> k = Parallel(Edit(lengthscale=2.0), n_jobs=2)
    >>> k(["kitten", "mitten", "sitting"]).round(decimals=4).tolist()
    [[1.0, 0.6065, 0.2231], [0.6065, 1.0, 0.2231], [0.2231, 0.2231, 1.0]]
    """

    rules = {
        "kernel": Rule("a kernel that can be evaluated", lambda k: isinstance(k, Kernel) and k.domain != "gram"),
        "block_size": COUNT,
    }

    def __init__(
        self, kernel: Kernel, n_jobs: int | None = None, *, block_size: int = BLOCK_SIZE, processes: bool = False
    ):
        self.kernel = kernel
        self.n_jobs = n_jobs
        self.block_size = block_size
        self.processes = processes

    def features(self, X: Data) -> Tensor | None:
        """The features of the kernel inside."""
        return self.kernel.features(X)

    def _explicit_features(self, X: Data, columns: Columns | None) -> ExplicitFeatures:
        return self.kernel._explicit_features(X, columns)

    def _gram(self, X: Data, Y: Data | None) -> Tensor:
        return pairwise_blocks(
            self.kernel._gram,
            X,
            Y,
            block_size=int(self.block_size),
            n_jobs=self.n_jobs,
            processes=self.processes and not is_searched(self.kernel),
        )

    def _diag(self, X: Data) -> Tensor:
        return self.kernel._diag(X)


def pairwise_blocks(
    function: Block,
    X: Data,
    Y: Data | None = None,
    *,
    block_size: int = BLOCK_SIZE,
    n_jobs: int | None = None,
    processes: bool = False,
) -> Tensor:
    """The matrix of all pairs from ``function(rows, columns)``, a block of samples at a time.

    If Y is None, the lower blocks of the symmetric matrix are computed and mirrored; blocks on the diagonal are
    ``function(rows, None)``. A resolved kernel is such a function, so any Gram matrix can be computed this way.

    Parameters
    ----------
    function : callable
        Gives the tensor (..., rows, columns) of two slices of the data.
    X, Y : list, array or tensor
        Data that can be sliced by samples.
    block_size, n_jobs, processes
        As for ``Parallel``.

    Examples
    --------
    >>> from representer.kernels import Gaussian, pairwise_blocks
    >>> X = [[0.0], [1.0], [3.0]]
    >>> bool(pairwise_blocks(Gaussian(1.0), X, block_size=2, n_jobs=2).allclose(Gaussian(1.0)(X)))
    True
    """
    other = X if Y is None else Y
    rows, columns = (list(row_blocks(count(data), 1, block_size)) for data in (X, other))
    pairs = [(r, c) for r in rows for c in columns if Y is not None or c.start <= r.start]
    gradient = torch.is_grad_enabled()  # each thread has a switch of its own
    run = joblib.Parallel(n_jobs, prefer="processes" if processes else "threads", return_as="generator")
    blocks = run(
        joblib.delayed(_block)(function, _sliced(X, r), None if Y is None and r == c else _sliced(other, c), gradient)
        for r, c in pairs
    )
    return _assembled(zip(pairs, blocks, strict=True), count(X), count(other), symmetric=Y is None)


def _sliced(X: Data, samples: slice) -> Data:
    """A slice of the samples, which are the rows of a tensor after its batch dimensions."""
    return X[..., samples, :] if isinstance(X, Tensor) and X.ndim > 1 else X[samples]


def _block(function: Block, rows: Data, columns: Data | None, gradient: bool) -> Tensor:
    """One block, with gradients where the calling thread has them."""
    with torch.set_grad_enabled(gradient):
        return function(rows, columns)


def _assembled(blocks: Iterator[tuple[tuple[slice, slice], Tensor]], n: int, m: int, *, symmetric: bool) -> Tensor:
    """One matrix from its blocks; autograd follows writing into fresh memory, too."""
    gram: Tensor | None = None
    for (r, c), block in blocks:
        if gram is None:
            gram = block.new_empty((*block.shape[:-2], n, m))
        gram[..., r, c] = block
        if symmetric and r != c:
            gram[..., c, r] = block.mT
    assert gram is not None  # data have at least one sample
    return gram
