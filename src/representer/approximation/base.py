"""The contract of approximations, values that make features φ of a kernel and data with k(x, y) ≈ φ(x)ᵀφ(y)."""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.kernels import NAMES, FeatureKind, Kernel, Table, as_kernel
from representer.samples import Data, count, is_dask, refuse_frames, take
from representer.samples import rows as limits
from representer.values import Value, all_values


class FeatureMap(ABC):
    """A feature map φ with k(x, y) ≈ φ(x)ᵀφ(y): called with n samples, it gives a tensor (n, m)."""

    kernel: Kernel
    is_explicit: bool = False  # is it a rotation of the kernel's own features, with digits of small ones beside large?

    @abstractmethod
    def __call__(self, X: Data) -> Tensor:
        """The features φ(x_i) as rows, (n, m)."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The number m of features."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The precision of the features."""

    @property
    @abstractmethod
    def state(self) -> Data:
        """The chosen landmarks or drawn numbers, from which ``Approximation.restore`` makes the features again."""

    @property
    def bytes_per_row(self) -> int:
        """The memory of a sample while its features are computed, and of the coordinates of a record."""
        tables = [value.bytes_per_row for value in all_values(self.kernel) if isinstance(value, Table)]
        return self.n_features * self.dtype.itemsize + max(tables, default=0)

    def columns(self, X: Data) -> Tensor:
        """Functions of x that span the features and are cheaper than these; by default the features themselves."""
        return self(X)

    def coefficients(self, theta: Tensor) -> Tensor:
        """The coefficients C of the columns with φ(x)ᵀΘ = columns(x)ᵀC."""
        return theta

    def lost_share(self, theta: Tensor, constant: Tensor | float = 0.0) -> float:
        """The share of φ(x)ᵀΘ + b that rounding may change if it is computed as columns(x)ᵀC + b."""
        return 0.0

    def loses_digits(self, theta: Tensor, constant: Tensor | float = 0.0) -> bool:
        """Does φ(x)ᵀΘ + b lose too many digits if it is computed as columns(x)ᵀC + b?"""
        return not self.lost_share(theta, constant) <= torch.finfo(self.dtype).eps ** EXPANSION_DIGITS

    def transposed(self, sums: Tensor) -> Tensor:
        """The sums Σ_i φ(x_i) v_iᵀ from Σ_i columns(x_i) v_iᵀ."""
        return sums

    def missed(self, X: Data, phi: Tensor) -> Tensor:
        """The residuals k(x, x) − ‖φ(x)‖² (n,) at prepared inputs with these features; never negative."""
        return (self.kernel._diag(X).double() - phi.double().square().sum(1)).clamp(min=0.0)

    def missed_rounding(self, X: Data) -> float:
        """The rounding error of ``missed`` at prepared inputs, a difference of numbers as large as k(x, x)."""
        return torch.finfo(self.dtype).eps * float(self.kernel._diag(X).max())


# A function is evaluated by coefficients on the landmarks, unless rounding would change more than ε to this power of
# its size, 4e-10 in double precision. Then it is evaluated by its features, at the cost of a triangular solve.
EXPANSION_DIGITS = 0.6
# The fitted attributes that an approximation copies from the transformer inside it.
FITTED = ("kernel_", "approximation_error_", "landmarks_", "n_features_in_", "feature_names_in_", "_n_features_out")


class Approximation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Value, BaseEstimator, ABC):
    """A way to replace a kernel by finitely many features: a value of ``approximation=``, and a transformer.

    The transformer has a ``kernel`` and a ``random_state``. The value of ``approximation=`` has neither, because the
    learner has both.
    """

    transformer: ClassVar[Callable[..., Any]]  # (kernel, approximation, *, random_state), set by ``estimators``
    default_kernel: ClassVar[str] = "rbf"
    needs: ClassVar[FeatureKind | None] = None  # the explicit features that a kernel must have
    kernel: Any
    random_state: Any = None
    any_kernel: ClassVar[bool] = False  # does every kernel have such features?
    moves: ClassVar[bool] = False  # do the features follow changes of the kernel, with the same random draws?

    # -- a transformer ------------------------------------------------------------------------------------------------
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
        self : Approximation
            The fitted transformer.
        """
        fitted = self._unfitted().fit(X)
        arguments = {name: value for name, value in vars(self).items() if name not in FITTED}
        attributes = {name: getattr(fitted, name) for name in FITTED if hasattr(fitted, name)}
        self.__dict__ = {**arguments, **attributes, "_fitted": fitted}
        return self

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
        check_is_fitted(self)
        if is_dask(X):
            refuse_frames(self)
        return self._fitted.transform(X)

    def _unfitted(self) -> Any:
        of_transformer = {"kernel", "random_state"} & set(self._argument_names())
        value = self.__sklearn_clone__().set_params(**dict.fromkeys(of_transformer))
        kernel = self.default_kernel if self.kernel is None else self.kernel
        if not hasattr(Approximation, "transformer"):  # the package imports the learners late, here
            getattr(sys.modules[__name__.partition(".")[0]], "KernelFeatures")  # noqa: B009
        unfitted = type(self).transformer(kernel, value, random_state=self.random_state)
        unfitted.speaker = copy.copy(value)
        return unfitted

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), self._unfitted().__sklearn_tags__()
        tags.input_tags, tags.transformer_tags = inner.input_tags, inner.transformer_tags
        return tags

    # -- a value ------------------------------------------------------------------------------------------------------
    def _rebuild(self, change: Callable[[str, Any], Any]) -> Self:
        """The value with changed arguments, without the attributes of a fit."""
        new = super()._rebuild(change)
        for name in (*FITTED, "_fitted"):
            new.__dict__.pop(name, None)
        return new

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; with ``deep``, also those of its kernel, which may be given by its name."""
        params = super().get_params(deep)
        if deep and isinstance(self.kernel, str) and self.kernel in NAMES:
            params |= {f"kernel__{name}": value for name, value in as_kernel(self.kernel).get_params().items()}
        return params

    def set_params(self, **params: object) -> Self:
        """Change arguments in place, ``kernel__lengthscale`` also where the kernel is None or given by its name."""
        if any(name.startswith("kernel__") for name in params):
            kernel = params.get("kernel", self.kernel)
            kernel = self.default_kernel if kernel is None else kernel
            params["kernel"] = as_kernel(kernel) if isinstance(kernel, str) else kernel
        return super().set_params(**params)

    @abstractmethod
    def size(self, n: int) -> int:
        """The number of features to expect for n samples; an error if there cannot be so many."""

    def sized(self, n: int) -> Approximation:
        """The approximation for n samples, with plain numbers in place of shares of n."""
        return self

    def capped(self, n: int) -> Approximation:
        """The approximation for n samples, with at most n landmarks."""
        return self

    def check(self, kernel: Kernel, n: int) -> None:
        """Refuse sizes that do not suit n samples, and kernels that are known to have no such features."""
        self.size(n)

    def moved(self, kernel: Kernel, X: Data, seed: int) -> Callable[[Kernel, Data], Tensor] | None:
        """The features as a function of kernel and data, with the same random draws; None unless ``moves``."""
        return None

    @abstractmethod
    def rows(self, n: int, seed: int) -> np.ndarray:
        """The numbers of the samples, out of n, that ``choose`` needs to see."""

    @abstractmethod
    def choose(self, kernel: Kernel, X: Data, seed: int) -> FeatureMap:
        """The features of a kernel with numbers, from the prepared samples that ``rows`` names."""

    @abstractmethod
    def restore(self, kernel: Kernel, state: Data, prepare: Callable[[Data], Data]) -> FeatureMap:
        """The features with a ``state`` of arrays that ``choose`` made before; ``prepare`` makes tensors of data."""

    def features(self, kernel: Kernel, X: Data, *, seed: int) -> Any:
        """The features of a kernel with numbers for all hyperparameters, from data in memory."""
        X = kernel.prepare(X)
        rows = self.rows(count(X), seed)
        return self.choose(kernel, X if len(rows) == count(X) else take(X, torch.from_numpy(rows)), seed)


def check_bare(approximation: object) -> None:
    """Refuse an approximation with a kernel of its own as an argument of a learner, which has the kernel.

    A ``random_state`` is not refused, because scikit-learn's ensembles set it wherever it exists; the learner's counts.
    """
    if getattr(approximation, "kernel", None) is not None:
        raise ValueError(
            f"approximation={approximation!r} has a kernel of its own, which is for the transformer. Give kernel= to "
            "the learner instead."
        )


def approximation_error(features: FeatureMap, X: Data) -> float:
    """The relative error ‖K − ΦΦᵀ‖/‖K‖ of features in the Frobenius norm, estimated from sampled columns.

    Parameters
    ----------
    features : FeatureMap
        The map φ, made by ``Nystroem(…).features(kernel, X, seed=…)`` or another approximation.
    X : data
        Samples; at most 500 evenly spaced ones count.

    Returns
    -------
    error : float
        The relative error.

    Examples
    --------
    >>> import numpy as np
    >>> from representer.approximation import Nystroem, approximation_error
    >>> from representer.kernels import Gaussian
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> errors = [approximation_error(Nystroem(m).features(Gaussian(1.0), X, seed=0), X) for m in (10, 100)]
    >>> errors[1] < 0.1 * errors[0]
    True
    """
    X = features.kernel.prepare(X)
    X = take(X, torch.from_numpy(limits.evenly_spaced(count(X), limits.ERROR_ROWS)))
    columns = max(limits.LEAST_COLUMNS, min(limits.ERROR_COLUMNS, features.n_features))
    sampled = torch.from_numpy(limits.evenly_spaced(count(X), columns))
    with torch.no_grad():
        exact = features.kernel._gram(X, take(X, sampled)).double()
        phi = features(X)
        approximate = (phi @ phi[sampled].mT).double()
        size = torch.linalg.vector_norm(exact)
        return float(torch.linalg.vector_norm(exact - approximate) / torch.where(size > 0, size, 1.0))
