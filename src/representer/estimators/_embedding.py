"""What the conditional embeddings share: their kernels, their data, and how hyperparameters are searched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from representer.approximation import Approximation, FeatureMap, LandmarkFeatures
from representer.data import SparseRows, as_scipy, count, plain, take
from representer.estimators._callbacks import CallbackSupportMixin
from representer.estimators._embedding_problem import (
    EmbeddingProblem,
    explicit_features,
    on_device,
)
from representer.estimators.validation import (
    DTYPES,
    KernelEstimator,
    check_bare,
    check_counts,
    check_device,
    check_options,
)
from representer.kernels import Gaussian, Kernel, as_kernel
from representer.linalg.memory import as_bytes, row_blocks
from representer.operators.adapted import Adapted, Representation, original, silent_repairs, takes_sparse
from representer.parameters import is_real
from representer.systems.frames import CentredFeatures, Frame, frame_of
from representer.systems.sums import NormalRidge, NormalSums


class EmbeddingEstimator(CallbackSupportMixin, KernelEstimator):
    """A learner of conditional embeddings; ``"rbf"`` is a Gaussian kernel with one learned lengthscale a feature."""

    approximation: Any = None
    memory_limit: Any = None
    device: str | None
    dtype: str
    X_fit_: Any
    kernel_: Any
    landmarks_: Any = None
    fit_intercept: Any
    _state: Any = None  # of the features of an approximation
    _kept_frame: Frame | None = None  # of these features, of NumPy arrays

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
        as_bytes(self.memory_limit)
        tol: Any = getattr(self, "tol")  # noqa: B009
        if not (is_real(tol) and tol >= 0):
            raise ValueError(f"tol must be a number of at least 0; got {tol!r}.")
        given = self._input_approximation
        if given is not None and not isinstance(given, Approximation):
            raise ValueError(
                "approximation must be None, Nystroem(...), Landmarks(...), RandomFeatures(...) or TensorSketch(...); "
                f"got {self.approximation!r}."
            )
        check_bare(given)

    @property
    def _input_approximation(self) -> Any:
        """That of the inputs' kernel."""
        return self.approximation

    @property
    def _represented(self) -> Representation:
        sparse = any(isinstance(X, SparseRows) for X in (self.X_fit_, self._state))
        return Representation(DTYPES[self.dtype], self.device, sparse)

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

    def _keep_features(self, features: FeatureMap) -> None:
        """Remember what was chosen or drawn."""
        self._approximation, self._state = self._input_approximation, plain(features.state)
        self.landmarks_ = as_scipy(self._state) if isinstance(features, LandmarkFeatures) else None
        self._cached_features = features

    def _keep_frame(self, X: Any) -> None:
        """Beside a constant, sums count from near the mean of the features, at these samples."""
        self._kept_frame = frame_of(self._feature_map(), X).map(plain) if self.fit_intercept else None

    @property
    def _frame(self) -> Frame | None:
        return None if self._kept_frame is None else self._kept_frame.map(self._represented.tensor)

    def _summed_features(self) -> FeatureMap:
        """The features as they are summed: in their frame, if there is one."""
        features, frame = self._feature_map(), self._frame
        return features if frame is None else CentredFeatures(features, frame)

    def _ridge_of(self, sums: NormalSums) -> NormalRidge:
        """The regression of targets that have nothing in common, by their sums."""
        ones = torch.ones_like(sums.target_sum)
        return NormalRidge(sums, ones, intercept=bool(self.fit_intercept), frame=self._frame)

    def _feature_map(self) -> FeatureMap:
        """The features of an approximation, made again after unpickling."""
        if "_cached_features" not in self.__dict__:
            kernel = self._adapted(self.kernel_)
            with silent_repairs():  # fit has said it
                self._cached_features = self._approximation.restore(
                    kernel, self._state, lambda points: self._inputs(kernel, points)
                )
        return self._cached_features

    def _keep_kernel(self, kernel: Kernel) -> None:
        self.kernel_ = original(kernel)

    # -- the fitted function ------------------------------------------------------------------------------------------
    def _new_features(self, X: Any) -> Tensor:
        """Explicit features of new, prepared inputs, where the fit is by features."""
        features = explicit_features(self._adapted(self.kernel_), X)
        assert features is not None  # as in the fit
        return features

    def _apply(self, X: Any, coefficients: Tensor, constants: Tensor, *, by_features: bool) -> Tensor:
        """k(X, X_fit) C + b, or φ(X) Θ + b, for prepared inputs in blocks of rows: no n × n_fit matrix exists."""
        kernel = self._adapted(self.kernel_)
        width = len(coefficients) if by_features else count(self.X_fit_)
        anchors = None if by_features else self._inputs(kernel, self.X_fit_)
        found = None if self._state is None else self._feature_map()
        evaluated: Callable[[Any], Tensor] | None = None
        if found is not None:
            by_columns = not found.loses_digits(coefficients, constants)
            evaluated = found.columns if by_columns else found
            coefficients = found.coefficients(coefficients) if by_columns else coefficients
        parts = []
        with torch.no_grad():
            for rows in row_blocks(count(X), 2 * width * coefficients.element_size()):
                block = X[rows] if not isinstance(X, list) else take(X, torch.arange(count(X))[rows])
                if evaluated is not None:
                    parts.append(evaluated(block) @ coefficients)
                elif by_features:
                    parts.append(self._new_features(block) @ coefficients)
                else:
                    parts.append(kernel._product(block, anchors, coefficients))
        return torch.cat(parts) + constants
