"""New samples of deep kernel PCA: their hidden features, all levels side by side or one of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.data import count, plain, take
from representer.estimators._deep_pca import CollapsedComponentWarning, FirstLevel, is_constant
from representer.estimators._lazy import lazily
from representer.estimators.validation import check_inputs, warn_unconverged
from representer.kernels import Kernel
from representer.linalg.memory import row_blocks
from representer.objectives.extension import Extension, resolved
from representer.objectives.multilevel import Stationarity
from representer.operators.adapted import Representation, takes_sparse
from representer.samples.on_dask import is_dask

# Hidden features that differ by less than this share of the largest are the same.
SAME = 1e-6


class NewSamples:
    """``transform`` of ``DeepKernelPCA``; here, and not in that class, because its output depends on the level."""

    extension: str
    center: bool
    solver_: str
    hidden_: list[np.ndarray]
    subset_: np.ndarray
    kernels_: list[Kernel]
    eta_: list[float]
    n_components_: list[int]
    _multipliers: list[np.ndarray]
    _variances: list[np.ndarray]
    _forward: np.ndarray
    _first: FirstLevel
    _form: Representation
    _first_kernel: Any
    get_feature_names_out: Any

    def transform(self, X: Any, level: int | None = None) -> Any:
        """Hidden features of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Data; with a precomputed kernel, k(X, X_train). For a Dask collection, so are the features: lazy.
        level : int, default=None
            Only those of one level, counted from 0; None: all levels side by side.

        Returns
        -------
        H : ndarray of shape (n_samples, n_components), or what ``set_output`` asks for
            Training samples get the rows of ``hidden_`` (with ``extension="exact"``), but 0 along directions without
            variance.
        """
        check_is_fitted(self)
        j = None if level is None else self._level(level)
        if is_dask(X):
            width = sum(self.n_components_) if j is None else self.n_components_[j]
            return lazily(self, "_features_of", X, width, np.float64, level=j)
        return _wrap_data_with_container("transform", self._features_of(X, j), X, _Output(self, j))

    def _features_of(self, X: Any, level: int | None) -> np.ndarray:
        """What ``transform`` puts into the container that ``set_output`` asks for."""
        H = plain(self._hidden(self._inputs(X)))
        return H if level is None else np.ascontiguousarray(H[:, self._columns(level)])

    def _columns(self, level: int | None) -> slice:
        """Where a level is among all of them."""
        if level is None:
            return slice(None)
        stop = sum(self.n_components_[: level + 1])
        return slice(stop - self.n_components_[level], stop)

    def _level(self, level: int | None) -> int:
        """The number of a level, the last by default."""
        last = len(self.hidden_) - 1
        if level is None:
            return last
        if isinstance(level, bool) or not (isinstance(level, int | np.integer) and 0 <= level <= last):
            raise ValueError(f"level must be None or an integer from 0 to {last}; got {level!r}.")
        return int(level)

    def _inputs(self, X: Any) -> Any:
        kernel = self._first.kernel
        X = check_inputs(self, X, kernel.domain, reset=False, sparse=takes_sparse(self._first_kernel()))
        return self._form.inputs(kernel, X)

    def _hidden(self, data: Any) -> Tensor:
        """Hidden features of prepared new data, all levels side by side, in blocks of rows."""
        extension = self._extension()
        n, parts, failed = len(self.hidden_[0]), [], 0
        for rows in row_blocks(count(data), 8 * n * (2 + 4 * len(self.hidden_))):
            gram = self._first.rows(take(data, torch.arange(rows.start, rows.stop)))
            if self.extension == "smoother":
                parts.append(self._smoothed(gram, extension))
                continue
            values, converged = extension(self._first.centered(gram), self._first.nearest(gram))
            failed += int((~converged).sum())
            parts.append(values)
        if failed:
            warn_unconverged(
                f"The equations of {failed} of {count(data)} new samples were not solved; these keep the hidden "
                "features of the training sample nearest to them. extension='smoother' needs no equations."
            )
        return torch.cat(parts)

    def _extension(self) -> Extension:
        hidden, multipliers, variances = (
            [self._form.tensor(a) for a in arrays]
            for arrays in (self.hidden_, self._multipliers, self._variances)
        )
        return Extension(
            hidden,
            multipliers,
            variances,
            self._form.tensor(self._forward),
            self.kernels_[1:],
            self.eta_,
            coupled=self.solver_ != "levelwise",
            largest=self._first.diagonal.abs().max().item(),
        )

    def _warn_of_collapse(self, state: Stationarity, coupled: bool) -> None:
        """Say which components mean less than they seem to."""
        extension = self._extension()
        known = plain(extension.known)
        away = np.abs(np.concatenate(self.hidden_, 1) - known).max(0) > SAME * np.abs(known).max()
        arbitrary = np.split(away, np.cumsum(self.n_components_)[:-1])
        self._has_null_directions = bool(away.any())
        own = [int(resolved(torch.linalg.eigvalsh(part)).sum()) for part in state.variances]
        ranks = np.minimum(own, extension.ranks)
        missing = np.asarray(self.n_components_) - ranks
        constant = is_constant(self.hidden_[0])
        outweighed = coupled and len(self.hidden_) > 1 and self.n_components_[0] < len(self.hidden_[0])
        if self.center and outweighed and constant.any() and missing[0] <= constant.sum():
            j = int(np.flatnonzero(constant)[0])
            zero = ", and 0 in transform" if arbitrary[0][j] else ""
            message = (
                f"Component {j} of level 0 is the same for all samples{zero}: the levels above outweigh it. Choose a "
                "larger eta or lengthscale for level 1, or fewer components for level 0."
            )
        elif (missing > 0).any():
            j = int(np.flatnonzero(missing > 0)[0])
            others = (
                "arbitrary in hidden_ and 0 in transform"
                if arbitrary[j].any()
                else "made by the levels above"
            )
            message = (
                f"Level {j} has only {ranks[j]} components with variance; the others are {others}, and levels above "
                f"may depend on them. Ask for fewer than n_components={self.n_components_[j]}."
            )
        else:
            return
        warnings.warn(message, CollapsedComponentWarning, stacklevel=6)

    def _tells_twins_apart(self, gram: Tensor) -> bool:
        """Whether hidden features differ between samples that are the same, which no function does; with a warning."""
        H, twins = plain(self._extension().known), plain(self._first.twins(gram))
        apart = np.abs(H - H[twins]).max(1) > SAME * np.abs(H).max()
        if apart.any():
            i = int(np.flatnonzero(apart)[0])
            warnings.warn(
                f"Samples {self.subset_[twins[i]]} and {self.subset_[i]} are the same to the first kernel, but have "
                f"different hidden_ ({apart.sum()} such samples): the levels above tell them apart. transform gives "
                "both the same. Leave duplicates out, or choose a larger lengthscale or |eta| for the upper levels.",
                CollapsedComponentWarning,
                stacklevel=6,
            )
        return bool(apart.any())

    def _smoothed(self, gram: Tensor, extension: Extension) -> Tensor:
        total = gram.sum(1, keepdim=True)
        far = int((gram == 0).all(1).sum())
        if far:
            raise ValueError(
                f"extension='smoother' takes means weighted by the first kernel, which is 0, to rounding, between "
                f"{far} of {len(gram)} new samples and all training samples: they are too far away. Use a larger "
                "lengthscale, or extension='exact'."
            )
        if bool((gram < 0).any()):
            raise ValueError(
                "extension='smoother' takes means weighted by the first kernel, which is negative for some samples. "
                "Use a kernel that is not (rbf, laplacian), or extension='exact'."
            )
        return gram @ torch.cat(list(extension.hidden), 1) / total


class _Output:
    """A model as scikit-learn sees it when it makes a container: the settings of ``set_output``, names of columns."""

    def __init__(self, model: Any, level: int | None) -> None:
        self._model, self._shown = model, level
        self._sklearn_auto_wrap_output_keys = model._sklearn_auto_wrap_output_keys
        self._sklearn_output_config = getattr(model, "_sklearn_output_config", {})

    def get_feature_names_out(self) -> Any:
        """Names of the columns that are shown."""
        return self._model.get_feature_names_out()[self._model._columns(self._shown)]
