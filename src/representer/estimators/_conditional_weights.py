"""The fitted weights of a conditional mean embedding: of the training samples, or of a few anchors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.estimators._embedding import EmbeddingEstimator
from representer.estimators._embedding_density import moments, proper
from representer.estimators._embedding_problem import EmbeddingProblem
from representer.estimators._lazy import lazily
from representer.estimators.validation import DTYPES, check_inputs, check_outputs
from representer.kernels import Kernel
from representer.operators.adapted import Adapted, silent_repairs, takes_sparse
from representer.systems.scalar import DenseSystem


class ConditionalWeights(EmbeddingEstimator):
    """A fitted embedding: w(x) = P k(X, x) + g, with P and g of the ridge system (g of the intercept).

    With an approximation w(x) = Θᵀφ(x) + b, the weights of the samples added up in cells around a few anchors.
    """

    output_kernel_: Kernel
    Y_fit_: Any
    alpha_: float
    fit_intercept: bool
    _flat: bool
    _seed: int
    output_landmarks_: Any = None
    _coefficients: np.ndarray  # with an approximation: Θ and b for cells, and for first and second moments
    _constants: np.ndarray
    _centre: np.ndarray | None  # of the moments, where targets are vectors
    _shares: np.ndarray  # of all samples in each cell
    _has_intercept: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def _anchors(self) -> Any:
        """The targets that weights belong to."""
        return self.Y_fit_ if self.output_landmarks_ is None else self.output_landmarks_

    # -- targets ------------------------------------------------------------------------------------------------------
    def _targets(self, kernel: Kernel, Y: Any) -> Any:
        numeric = kernel.domain in ("vectors", "gram")
        return kernel.prepare(self._represented.tensor(Y) if numeric else Y)

    def _output_adapted(self) -> Kernel:
        kernel = self.output_kernel_
        if kernel.domain == "vectors":
            return kernel
        return Adapted(kernel, DTYPES[self.dtype], self.device, repair=True)

    def _vectors(self, what: str) -> Tensor:
        """The training targets as a matrix; refused if they are no vectors."""
        check_is_fitted(self)
        numeric = (
            isinstance(self._anchors, np.ndarray)
            and self._anchors.dtype.kind in "biuf"
            and self._anchors.ndim == 2
        )
        if self.output_kernel_.domain == "gram" or not numeric:
            raise ValueError(
                f"{what} needs targets that are vectors; these are {self.output_kernel_.domain}. Use expect(g, X) with "
                "a function of them."
            )
        return self._represented.tensor(self._anchors)

    def _new_targets(self, y: Any) -> Any:
        """Targets of new inputs, of the kind and width of those that were fitted."""
        targets, _ = check_outputs(self.output_kernel_, y, reset=False)
        if self.output_kernel_.domain in ("vectors", "gram") and targets.shape[1] != self._anchors.shape[1]:
            raise ValueError(
                f"y has {targets.shape[1]} columns, but the targets that were fitted have {self._anchors.shape[1]}."
            )
        return targets

    # -- weights ------------------------------------------------------------------------------------------------------
    def _system(self, problem: EmbeddingProblem | None = None, kernel: Kernel | None = None) -> DenseSystem:
        """The factored system of the fit, made at first use and kept."""
        if "_cached_system" not in self.__dict__:
            if problem is None or kernel is None:
                kernel = self._adapted(self.kernel_)
                inputs = self._inputs(kernel, self.X_fit_)
                problem = self._problem(kernel, inputs)
                with silent_repairs():  # fit has said it
                    problem = problem.with_fixed_gram(kernel)
            else:
                problem = problem.with_fixed_gram(kernel)
            gram = problem.gram
            assert gram is not None
            shift = gram.new_tensor(len(gram) * self.alpha_)
            self._cached_kept = problem.kept
            self._cached_system = DenseSystem(gram, shift, intercept=bool(self.fit_intercept))
        return self._cached_system

    def _new_inputs(self, X: Any) -> Any:
        """New inputs as the kernel takes them."""
        check_is_fitted(self)
        X = check_inputs(self, X, self.kernel_.domain, reset=False, sparse=takes_sparse(self.kernel_))
        return self._inputs(self._adapted(self.kernel_), X)

    def _weights(self, X: Any) -> Tensor:
        inputs = self._new_inputs(X)
        if self._state is not None:
            return self._by_sums(inputs, slice(0, len(self._shares)))
        kernel, system = self._adapted(self.kernel_), self._system()
        anchors = self._inputs(kernel, self.X_fit_)
        with torch.no_grad():
            cross = kernel._gram(inputs, anchors)
            if self._cached_kept is not None:
                cross = (cross @ self._cached_kept) @ self._cached_kept.mT
            # P is symmetric, and annihilates constants: P k = W⁻¹(k − 1 gᵀk).
            weights = system.solve(cross.mT).mT
            return weights if system.g is None else weights + system.g[:, 0]

    @property
    def _total_is_one(self) -> bool:
        """Whether weights sum to one: those of a fit with an intercept, whatever ``fit_intercept`` is by now."""
        return self._system().g is not None if self._state is None else self._has_intercept

    def _cell_shares(self) -> Tensor | None:
        """The shares of all samples in the cells of an approximation."""
        return None if self._state is None else self._represented.tensor(self._shares)

    def _proper_weights(self, X: Any) -> Tensor:
        """In rows of sum one; where they have no positive sum, those of all targets."""
        return proper(self._weights(X), self._cell_shares())

    def _by_sums(self, inputs: Any, columns: slice) -> Tensor:
        """Some columns of Θᵀφ(x) + b."""
        tensor = self._represented.tensor
        known = tensor(self._coefficients[:, columns]), tensor(self._constants[columns])
        return self._apply(inputs, *known, by_features=True)

    def _moments(self, X: Any, what: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """c, E[Y − c], E[(Y − c)²] and E[1], with an approximation of all samples, not of cells.

        Beside an intercept E[1] is one exactly: c² would multiply its rounding error.
        """
        Y = self._vectors(what)
        if self._state is None:
            return moments(self._weights(X), Y, total_is_one=self._total_is_one)
        assert self._centre is not None  # as vectors have
        r, d = len(self._shares), len(self._centre)
        fitted = self._by_sums(self._new_inputs(X), slice(0, r + 2 * d))
        total = fitted[:, :r].sum(1, keepdim=True)
        total = torch.ones_like(total) if self._total_is_one else total
        return self._represented.tensor(self._centre), fitted[:, r : r + d], fitted[:, r + d :], total

    # -- Dask ---------------------------------------------------------------------------------------------------------
    def _width(self, what: str) -> int | None:
        """Of an array with one column for each output."""
        d = self._vectors(what).shape[1]
        return None if self._flat else d

    def _lazily(self, method: str, X: Any, width: int | None, **options: Any) -> Any:
        """A method over the chunks of a Dask collection."""
        check_is_fitted(self)
        return lazily(self, method, X, width, self.dtype, **options)
