"""The features of an approximation as a transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import Approximation, FeatureMap, Nystroem, approximation_error
from representer.approximation.base import ERROR_ROWS, evenly_spaced
from representer.data import SparseRows, as_scipy, count, plain
from representer.estimators._large_parts import HEURISTIC_ROWS
from representer.estimators._lazy import keep_columns, lazily
from representer.estimators.validation import (
    DTYPES,
    KernelEstimator,
    check_bare,
    check_device,
    check_inputs,
    check_options,
    seed_of,
)
from representer.kernels import Kernel, as_kernel
from representer.operators.adapted import Adapted, Representation, original, silent_repairs, takes_sparse
from representer.samples.in_memory import Block, InMemory, Samples
from representer.samples.on_dask import OnDask, is_dask


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """Features φ with φ(x)ᵀφ(y) ≈ k(x, y): kernel machines by linear models, for data of any kind.

    What ``approximation=`` does inside of a learner, as a step of its own.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="rbf"
        Words in it are decided by the data: ``"rbf"`` is ``Gaussian("median")``.
    approximation : Nystroem, Landmarks, RandomFeatures or TensorSketch, default=None
        What the features are; None is ``Nystroem(100)``, with fewer landmarks if there are fewer samples.
    random_state : int, RandomState instance or None, default=None
        Seed of landmarks, frequencies and hash functions.
    device : str or None, default=None
        Where to compute, as in ``torch.device``.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the features.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with the numbers that were used.
    approximation_error_ : float
        ‖K − ΦΦᵀ‖/‖K‖ in the Frobenius norm, from sampled columns of the training samples' Gram matrix.
    landmarks_ : ndarray, list or None
        The landmarks, if there are some.
    n_features_in_ : int
        Number of features seen during fit (vectors).
    feature_names_in_ : ndarray of str
        Names of the features, if X had string names.

    See Also
    --------
    sklearn.kernel_approximation.Nystroem : The same for uniform sampling and scikit-learn's kernels.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from representer import KernelFeatures
    >>> from representer.approximation import Nystroem
    >>> X, y = load_digits(return_X_y=True)
    >>> features = KernelFeatures(approximation=Nystroem(300, sampling="leverage"), random_state=0)
    >>> model = make_pipeline(features, RidgeClassifier(alpha=1e-2)).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.97)
    True
    >>> bool(model[0].approximation_error_ < 0.05)
    True
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        approximation: Approximation | None = None,
        *,
        random_state: Any = None,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.approximation = approximation
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

    kernel_: Kernel
    _by_features = True
    _speaker: Any = None  # the approximation that is a transformer by this one: errors name it

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = takes_sparse(self.kernel)
        tags.input_tags.pairwise = False  # a Gram matrix has no approximation
        if self.dtype == "float32":
            tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose landmarks, or draw frequencies or hash functions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Samples, in memory or in a Dask array or DataFrame.
        y : None
            Not used.

        Returns
        -------
        self : KernelFeatures
            The fitted transformer.
        """
        check_options(self, {"dtype": tuple(DTYPES)})
        check_device(self.device)
        if not (self.approximation is None or isinstance(self.approximation, Approximation)):
            raise ValueError(
                "approximation must be None, Nystroem(...), Landmarks(...), RandomFeatures(...) or TensorSketch(...); "
                f"got {self.approximation!r}."
            )
        check_bare(self.approximation)
        given = as_kernel(self.kernel).__sklearn_clone__().numbers()
        seed = seed_of(self.random_state)
        source = self._source(given, X)
        self._approximation = self.approximation or Nystroem(min(100, source.n))
        regular, rows = evenly_spaced(source.n, HEURISTIC_ROWS), self._approximation.rows(source.n, seed)
        errors = evenly_spaced(source.n, ERROR_ROWS)
        source.read_ahead(regular, rows, errors)
        kernel = self._adapted(given).resolve(source.rows(regular).X)
        features = self._approximation.choose(kernel, source.rows(rows).X, seed)
        sample = source.rows(errors)
        self.approximation_error_ = approximation_error(features, sample.X)
        self.kernel_ = original(kernel)
        self._state = plain(features.state)
        self._cached_features = features
        self._n_features_out = features.n_features
        return self

    def _source(self, kernel: Kernel, X: Any) -> Samples:
        self._sparse = False
        if is_dask(X):
            source = OnDask(X, None, None, dtype=DTYPES[self.dtype])
            keep_columns(self, X, source)
            return source
        X = self._checked(kernel, X, reset=True)
        self._sparse = isinstance(X, SparseRows)
        inputs = self._represented.inputs(kernel, X)
        return InMemory(Block(inputs, torch.zeros(count(inputs), 0)))

    def _checked(self, kernel: Kernel, X: Any, *, reset: bool) -> Any:
        speaker = self if self._speaker is None else self._speaker
        if not reset:
            _copy_columns(self, speaker)
        X = check_inputs(speaker, X, kernel.domain, reset=reset, sparse=takes_sparse(kernel))
        if reset:
            _copy_columns(speaker, self)
        return X

    @property
    def landmarks_(self) -> Any:
        """The landmarks, or None where the approximation has none."""
        check_is_fitted(self)
        return as_scipy(self._state) if hasattr(self._features(), "landmarks") else None

    @property
    def _represented(self) -> Representation:
        return Representation(DTYPES[self.dtype], self.device, self._sparse)

    def _adapted(self, kernel: Kernel) -> Kernel:
        if kernel.domain == "vectors" and not self._sparse:
            return kernel
        return Adapted(kernel, DTYPES[self.dtype], self.device)

    def _features(self) -> FeatureMap:
        """The features, made again after unpickling."""
        if "_cached_features" not in self.__dict__:
            with silent_repairs():  # fit has said it
                self._cached_features = self._approximation.restore(
                    self._adapted(self.kernel_),
                    self._state,
                    lambda landmarks: self._represented.inputs(self.kernel_, landmarks),
                )
        return self._cached_features

    def transform(self, X: Any) -> np.ndarray:
        """The features of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Samples; for a Dask collection, the features are a Dask array.

        Returns
        -------
        features : ndarray of shape (n_samples, n_components)
            φ(x) as rows.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "transform", X, self._n_features_out, self.dtype)
        X = self._checked(self.kernel_, X, reset=False)
        with torch.no_grad():
            features: Tensor = self._features()(self._represented.inputs(self.kernel_, X))
        return plain(features)


def _copy_columns(one: Any, other: Any) -> None:
    """What one transformer knows of the columns of X, another one knows, too."""
    if one is not other:
        names = ("n_features_in_", "feature_names_in_")
        other.__dict__.update({name: one.__dict__[name] for name in names if name in one.__dict__})


# Approximations are transformers by this one; their room knows no validation of data.
Approximation.transformer = KernelFeatures
