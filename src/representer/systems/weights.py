"""The weights of the training samples in the answer of a ridge system, as a function of the input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions.base import Function
from representer.kernels import Kernel
from representer.linalg import row_blocks
from representer.operators import Adapted, Representation, repaired_gram, silent_repairs
from representer.samples import Data, count
from representer.systems.scalar import DenseSystem


@dataclass(frozen=True)
class Solved:
    """A kernel, prepared training inputs, and their factored system."""

    kernel: Kernel
    anchors: Data
    system: DenseSystem
    kept: Tensor | None  # if the Gram matrix was repaired, the eigenvectors that have stayed

    def cross(self, X: Data) -> Tensor:
        """k(X, X_train), projected where the Gram matrix was repaired."""
        cross = self.kernel._gram(X, self.anchors)
        return cross if self.kept is None else (cross @ self.kept) @ self.kept.mT


@dataclass(frozen=True)
class SampleWeights(Function):
    """w(x) = P k(X, x) + g: the fit to any targets Y takes the value Yᵀw(x), with P and g of the ridge system.

    The system is factored when it is first asked for; what is stored are the training inputs.

    Parameters
    ----------
    kernel : Kernel
        With numbers for all hyperparameters.
    anchors : data
        The training inputs X as they are stored.
    shift : float
        n·alpha, or alpha times the sum of the samples' weights.
    intercept : bool
        Do the weights sum to one?
    representation : Representation
        How stored arrays become tensors.
    sample_weight : array (n,) or None for ones
        The weights of the samples in the fit; zero leaves a sample out.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from representer.kernels import Gaussian
    >>> from representer.operators import Representation
    >>> from representer.systems.weights import SampleWeights
    >>> w = SampleWeights(Gaussian(1.0), np.array([[0.0], [9.0]]), 1e-9, True, Representation(torch.float64))
    >>> w(np.array([[0.0], [9.0]])).round(decimals=6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    kernel: Kernel
    anchors: Data
    shift: float
    intercept: bool
    representation: Representation
    sample_weight: np.ndarray | None = None

    @cached_property
    def solved(self) -> Solved:
        """The system, factored when it is first asked for."""
        with silent_repairs():  # the fit has said it
            return self._solve(self._adapted)

    def with_system(self, kernel: Kernel) -> SampleWeights:
        """The same function with its system factored, for a kernel that is adapted; a repair is announced."""
        function = replace(self)
        vars(function)["solved"] = self._solve(kernel)
        return function

    def _solve(self, kernel: Kernel) -> Solved:
        how = self.representation
        anchors = how.inputs(kernel, self.anchors)
        gram, kept = repaired_gram(kernel, anchors)
        weights = None if self.sample_weight is None else how.tensor(self.sample_weight)
        shift = gram.new_tensor(self.shift)
        system = DenseSystem(gram, shift, intercept=self.intercept, sample_weight=weights)
        return Solved(kernel, anchors, system, kept)

    @property
    def _adapted(self) -> Kernel:
        how = self.representation
        if self.kernel.domain == "vectors" and not how.sparse:
            return self.kernel
        return Adapted(self.kernel, how.dtype, how.device, repair=True)

    def _inputs(self, X: Data) -> Any:
        return self.representation.inputs(self.solved.kernel, X)

    def __call__(self, X: Data) -> Tensor:
        """The weights w(x_i) of the training samples as rows, (q, n)."""
        solved = self.solved
        with torch.no_grad():
            # P is symmetric, and annihilates constants: P k = W⁻¹(k − 1 gᵀk).
            weights = solved.system.solve(solved.cross(self._inputs(X)).mT).mT
            return weights if solved.system.g is None else weights + solved.system.g[:, 0]

    def combined(self, X: Data, values: Tensor) -> Tensor:
        """w(x_i)ᵀV (q, p) for values V (n, p) of the samples, in blocks: no q × n matrix exists."""
        solved, inputs = self.solved, self._inputs(X)
        with torch.no_grad():
            dual = solved.system.solve(values)
            constant = 0.0 if solved.system.g is None else solved.system.g.mT @ values
            blocks = row_blocks(count(inputs), 2 * len(dual) * dual.element_size())
            return torch.cat([solved.cross(inputs[rows]) @ dual for rows in blocks]) + constant
