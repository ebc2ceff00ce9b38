"""What the conditional embeddings share: their kernels, their data, and how hyperparameters are searched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from representer.approximation import Nystroem, RandomFeatures, landmark_features
from representer.data import SparseRows, count, take
from representer.estimators._adapted import Adapted, Representation, original, takes_sparse
from representer.estimators._callbacks import CallbackSupportMixin
from representer.estimators._embedding_problem import (
    EmbeddingProblem,
    explicit_features,
    fourier,
    landmarks,
    on_device,
)
from representer.estimators._validation import (
    DTYPES,
    KernelEstimator,
    check_counts,
    check_device,
    check_options,
    plain,
)
from representer.kernels import Gaussian, Kernel, as_kernel
from representer.memory import row_blocks
from representer.parameters import is_real


class EmbeddingEstimator(CallbackSupportMixin, KernelEstimator):
    """A learner of conditional embeddings; ``"rbf"`` is a Gaussian kernel with one learned lengthscale a feature."""

    approximation: Any = None
    device: str | None
    dtype: str
    X_fit_: Any
    kernel_: Any
    landmarks_: Any = None
    _frequencies: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.kernel)
        return tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, with ``deep`` also those of a kernel that is given by its name."""
        params = super().get_params(deep)
        if deep and isinstance(self.kernel, str) and self.kernel in ("rbf", "gaussian"):
            params["kernel__lengthscale"] = "ard"
        return params

    def _given_kernel(self) -> Kernel:
        """A copy of the kernel with plain numbers: nothing that happens to the arguments later reaches the learner."""
        rbf = isinstance(self.kernel, str) and self.kernel in ("rbf", "gaussian")
        kernel = Gaussian("ard") if rbf else as_kernel(self.kernel)
        return on_device(kernel.__sklearn_clone__().numbers(), self.device)

    def _check_common(self) -> None:
        check_options(self, {"dtype": tuple(DTYPES)})
        check_counts(self, {"max_iter": 1, "n_restarts": 1, "verbose": 0})
        check_device(self.device)
        tol: Any = getattr(self, "tol")  # noqa: B009
        if not (is_real(tol) and tol >= 0):
            raise ValueError(f"tol must be a number of at least 0; got {tol!r}.")
        if self.approximation is not None and not isinstance(self.approximation, Nystroem | RandomFeatures):
            raise ValueError(
                f"approximation must be None, Nystroem(...) or RandomFeatures(...); got {self.approximation!r}."
            )

    @property
    def _represented(self) -> Representation:
        return Representation(DTYPES[self.dtype], self.device, isinstance(self.X_fit_, SparseRows))

    @property
    def _like(self) -> Tensor:
        return torch.zeros((), dtype=DTYPES[self.dtype], device=self.device)

    def _adapted(self, kernel: Kernel) -> Kernel:
        """In the learner's precision; an indefinite kernel of objects is repaired."""
        if kernel.domain == "vectors" and not self._represented.sparse:
            return kernel
        return Adapted(kernel, DTYPES[self.dtype], self.device, repair=self.approximation is None)

    # -- the data -----------------------------------------------------------------------------------------------------
    def _inputs(self, kernel: Kernel, X: Any) -> Any:
        return self._represented.inputs(kernel, X)

    def _problem(self, kernel: Kernel, X: Any) -> EmbeddingProblem:
        return EmbeddingProblem(X, count(X), pairwise=kernel.domain == "gram")

    def _approximate(self, kernel: Kernel, problem: EmbeddingProblem, seed: int) -> EmbeddingProblem:
        """The problem with features of the approximation, for a kernel with numbers; remembers what was drawn."""
        self.landmarks_ = self._frequencies = None
        if isinstance(self.approximation, Nystroem):
            found = self.approximation.features(kernel, problem.X, seed=seed)
            self.landmarks_ = plain(found.landmarks)
            return EmbeddingProblem(problem.X, problem.n, features=landmarks(found))
        if isinstance(self.approximation, RandomFeatures):
            drawn = self.approximation.features(kernel, problem.X, seed=seed)
            self._frequencies = plain(drawn.frequencies)
            return EmbeddingProblem(problem.X, problem.n, features=fourier(drawn))
        return problem

    def _keep_kernel(self, kernel: Kernel) -> None:
        self.kernel_ = original(kernel)

    # -- the fitted function ------------------------------------------------------------------------------------------
    def _new_features(self, X: Any) -> Tensor:
        """Features of new, prepared inputs, where the fit is by features."""
        kernel = self._adapted(self.kernel_)
        if self.landmarks_ is not None:
            anchors = self._inputs(kernel, self.landmarks_)
            return landmark_features(kernel, anchors)(X)
        if self._frequencies is not None:
            from representer.approximation import FourierFeatures

            return FourierFeatures(kernel, self._represented.tensor(self._frequencies))(X)
        features = explicit_features(kernel, X)
        assert features is not None  # as in the fit
        return features

    def _apply(self, X: Any, coefficients: Tensor, *, by_features: bool) -> Tensor:
        """k(X, X_fit) C, or φ(X) Θ, for prepared inputs in blocks of rows: no n × n_fit matrix exists."""
        kernel = self._adapted(self.kernel_)
        width = len(coefficients) if by_features else count(self.X_fit_)
        anchors = None if by_features else self._inputs(kernel, self.X_fit_)
        parts = []
        with torch.no_grad():
            for rows in row_blocks(count(X), 2 * width * coefficients.element_size()):
                block = X[rows] if not isinstance(X, list) else take(X, torch.arange(count(X))[rows])
                if by_features:
                    parts.append(self._new_features(block) @ coefficients)
                else:
                    parts.append(kernel._product(block, anchors, coefficients))
        return torch.cat(parts)
