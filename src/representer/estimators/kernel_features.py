"""The features of an approximation as a transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from representer.approximation import Approximation, Nystroem, approximation_error
from representer.estimators.base import KernelLearner, KernelLike, RandomState, fitting
from representer.estimators.validation import DTYPES, check_inputs, seed_of
from representer.functions import FeatureFunction, FeatureNetwork, StoredFeatures
from representer.kernels import Kernel, as_kernel, one_kernel, single_kernel
from representer.operators import Adapted, Representation, original, takes_sparse
from representer.samples import Block, Data, InMemory, OnDask, Samples, count, is_dask, plain
from representer.samples import rows as limits


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelLearner):
    """Features φ with φ(x)ᵀφ(y) ≈ k(x, y): kernel machines by linear models, for data of any kind.

    What ``approximation=`` does inside of a learner, as a step of its own.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="auto"
        Words in it are decided by the data: ``"rbf"`` is ``Gaussian("median")``, and so is ``"auto"``, because features
        have no score of their own: the wider a kernel, the smaller the ``approximation_error_``. For gaps, frames and
        objects ``"auto"`` is what ``kernels.suggest(X).single`` says.
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
    features_ : StoredFeatures
        The feature map φ as it is stored.
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
        kernel: KernelLike = "auto",
        approximation: Approximation | None = None,
        *,
        random_state: RandomState = None,
        device: str | None = None,
        dtype: str = "float64",
    ):
        self.kernel = kernel
        self.approximation = approximation
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

    def named_kernel(self, name: str) -> Kernel:
        """The kernel that a short name means here."""
        return as_kernel(one_kernel(name, "median"))

    @property
    def _any_kernel(self) -> bool:
        """Does the approximation take any kernel? What is suggested for sparse rows and gaps has no other features."""
        return getattr(self.approximation, "any_kernel", True)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = False  # a Gram matrix has no approximation
        if isinstance(self.kernel, str):
            decided = self.kernel == "auto" and not self._any_kernel  # a kernel of complete, dense vectors
            tags.input_tags.sparse = takes_sparse(self.kernel) and not decided
            tags.input_tags.allow_nan = tags.input_tags.allow_nan and not decided
        if self.dtype == "float32":
            tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @fitting
    def fit(self, X: Data, y: Data = None) -> Self:
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
        self._check()
        stated = single_kernel(self.kernel, X, incomplete=self._any_kernel)
        kernel = self._own_kernel(stated)
        seed = seed_of(self.random_state)
        samples, representation = self._samples(kernel, X)
        approximation = (self.approximation or Nystroem(min(100, samples.n))).sized(samples.n)
        regular = limits.evenly_spaced(samples.n, limits.HEURISTIC_ROWS)
        rows = approximation.rows(samples.n, seed)
        errors = limits.evenly_spaced(samples.n, limits.ERROR_ROWS)
        samples.read_ahead(regular, rows, errors)
        if kernel.domain != "vectors" or representation.sparse:
            kernel = Adapted(kernel, representation.dtype, representation.device)
        kernel = kernel.resolve(samples.rows(regular).X)
        features = approximation.choose(kernel, samples.rows(rows).X, seed)
        self.approximation_error_ = approximation_error(features, samples.rows(errors).X)
        self.kernel_: Kernel = original(kernel)
        self.features_ = StoredFeatures.of(approximation, features, representation, factored=True)
        self._n_features_out = features.n_features
        return self

    def _samples(self, kernel: Kernel, X: Data) -> tuple[Samples, Representation]:
        """The samples without targets, and how arrays become tensors."""
        if is_dask(X):
            samples = OnDask(X, None, None, dtype=DTYPES[self.dtype])
            self._keep_columns(X)
            return samples, self._representation()
        speaker = self if kernel.domain == "records" else self._speaker  # records keep the names of their columns here
        X = check_inputs(speaker, X, kernel, reset=True)
        _copy_columns(speaker, self)
        representation = self._representation(X)
        inputs = representation.inputs(kernel, X)
        return InMemory(Block(inputs, torch.zeros(count(inputs), 0))), representation

    @property
    def _speaker(self) -> Any:
        """The approximation that is a transformer by this one, whose name errors give; or this one."""
        return vars(self).get("speaker", self)

    @property
    def landmarks_(self) -> Data:
        """The landmarks, or None where the approximation has none."""
        check_is_fitted(self)
        return self.features_.landmarks

    def _network(self) -> torch.nn.Module:
        """The network of the feature map."""
        return FeatureNetwork(self.features_.map)

    def _supported_function(self) -> FeatureFunction:
        return FeatureFunction(self.features_, np.zeros((self._n_features_out, 1)))

    def transform(self, X: Data) -> np.ndarray:
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
        if is_dask(X):
            return self._lazily("transform", X, self._n_features_out)
        _copy_columns(self, self._speaker)
        X = check_inputs(self._speaker, X, self.kernel_, reset=False, means=self._column_means)
        with torch.no_grad():
            return plain(self.features_.map(self.features_.inputs(X)))


def _copy_columns(one: object, other: object) -> None:
    """What one transformer knows of the columns of X, another one knows, too."""
    if one is not other:
        names = ("n_features_in_", "feature_names_in_")
        other.__dict__.update({name: one.__dict__[name] for name in names if name in one.__dict__})


# Approximations are transformers by this one; their room knows no validation of data.
Approximation.transformer = KernelFeatures
