"""From components back to data: reconstructions, samples and traversals of deep kernel PCA."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer import preimage
from representer.approximation import Nystroem
from representer.data import plain
from representer.estimators._deep_pca import FirstLevel, Levels
from representer.estimators._deep_pca_fit import Settings
from representer.estimators._deep_pca_training import train
from representer.estimators.operator_ridge import OperatorRidge
from representer.estimators.validation import warn_unconverged
from representer.kernels import Gaussian, Kernel, Linear
from representer.operators.adapted import Representation
from representer.optimize import HistoryEntry
from representer.parameters import is_count, is_real

WORDS = ("auto", "direct", "ridge", "gradient", "weighted", "nearest")
# A learned map back is exact up to so many samples, and spanned by so many landmarks beyond.
EXACT_RIDGE, RIDGE_LANDMARKS = 2000, 1000


def check_preimage(given: Any) -> None:
    """A word, or a decoder."""
    if isinstance(given, preimage.Network):
        given.check()
    elif not (isinstance(given, str) and given in WORDS):
        raise ValueError(
            f"preimage must be one of {', '.join(map(repr, WORDS))} or a Network; got {given!r}."
        )


class Generation:
    """The way back through the levels, equation (10) of Tonin et al.

    Level j sees inputs z (the data, or h of the level below) as φ_j(z). Its components h stand for the element
    Σ_n ⟨h_n, h⟩ φ_j(z_n): for h = h_i and all N components that is φ_j(z_i). It is η_j W_j h of the paper, which has
    η_j = 1. The element becomes an input by a pre-image map, and that is what the level below stands for.
    """

    preimage: Any
    center: bool
    device: str | None
    hidden_: list[np.ndarray]
    kernels_: list[Kernel]
    n_components_: list[int]
    X_fit_: Any
    decoder_: Any  # the trained network of a Network, or None
    training_history_: list[HistoryEntry]
    _form: Representation
    _first: FirstLevel
    _features_of: Any
    _level: Any

    def __getstate__(self) -> dict[str, Any]:
        """What is only kept to save time is not stored."""
        state: Any = super().__getstate__()
        return {name: v for name, v in state.items() if not name.startswith("_cached")}

    # -- public -------------------------------------------------------------------------------------------------------
    def inverse_transform(self, H: Any, level: int | None = None) -> Any:
        """Data that have the given components.

        Parameters
        ----------
        H : array-like of shape (n_samples, n_components of the level)
            Components of one level. For the last level, also what ``transform`` returns of all levels side by side: its
            last columns count.
        level : int or None, default=None
            Whose components they are, from 0; None is the last.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), or list of objects
            Data; with a precomputed kernel, the row numbers of the training samples that come closest.
        """
        check_is_fitted(self)
        j, sizes = self._level(level), self.n_components_
        codes = check_array(plain(H), dtype=np.float64, input_name="H")
        if level is None and codes.shape[1] == sum(sizes):
            codes = codes[:, sum(sizes[:-1]) :]
        if codes.shape[1] != sizes[j]:
            raise ValueError(
                f"Level {j} has {sizes[j]} components; H has {codes.shape[1]} columns. The levels have {sizes} "
                "components: say with level= which of them H holds."
            )
        return self._generate(codes, j)

    def reconstruct(self, X: Any, level: int | None = None) -> Any:
        """What the components of one level keep of data: ``inverse_transform(transform(X, level), level)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Data; with a precomputed kernel, k(X, X_train).
        level : int or None, default=None
            Which; None is the last.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), or list of objects
            Reconstructions.
        """
        check_is_fitted(self)
        j = self._level(level)
        return self._generate(self._features_of(X, j), j)

    def sample(
        self,
        n_samples: int = 1,
        level: int | None = None,
        *,
        density: str = "gaussian",
        random_state: Any = None,
    ) -> Any:
        """New data: components drawn from a density fitted to those of the training samples, and their way back.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        level : int or None, default=None
            Whose components are drawn; None is the last.
        density : {"gaussian", "kde"}, default="gaussian"
            One normal distribution, or one around each training sample, its covariance scaled by Scott's rule.
        random_state : int, numpy.random.Generator or None, default=None
            The seed.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features), or list of objects
            New data.
        """
        check_is_fitted(self)
        if not is_count(n_samples):
            raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
        if density not in ("gaussian", "kde"):
            raise ValueError(f"density must be 'gaussian' or 'kde'; got {density!r}.")
        j = self._level(level)
        H, rng = self.hidden_[j], _generator(random_state)
        n, s = H.shape
        centred = H - H.mean(0)
        # A random combination of centred samples has their covariance: no factor of it is needed.
        noise = rng.standard_normal((n_samples, n)) @ centred / np.sqrt(n)
        if density == "gaussian":
            codes = H.mean(0) + noise
        else:
            codes = H[rng.integers(0, n, n_samples)] + n ** (-1.0 / (s + 4)) * noise
        return self._generate(codes, j)

    def traverse(
        self,
        component: int,
        level: int | None = None,
        steps: int = 7,
        *,
        span: float = 2.0,
        start: Any = None,
    ) -> Any:
        """Data along one component of a level, while its other components stay.

        Parameters
        ----------
        component : int
            Which, from 0.
        level : int or None, default=None
            Of which level; None is the last.
        steps : int, default=7
            How many, evenly spread; 1: the middle alone.
        span : float, default=2.0
            How far to each side, in standard deviations of the component over the training samples.
        start : array-like of shape (1, n_features), or list with one object, default=None
            The sample whose components are the middle; None is their mean over the training samples.

        Returns
        -------
        X : ndarray of shape (steps, n_features), or list of objects
            Data.
        """
        check_is_fitted(self)
        j = self._level(level)
        H = self.hidden_[j]
        if not (component == 0 or is_count(component)) or component >= H.shape[1]:
            raise ValueError(f"component must be from 0 to {H.shape[1] - 1} at level {j}; got {component!r}.")
        if not is_count(steps):
            raise ValueError(f"steps must be a positive integer; got {steps!r}.")
        if not (is_real(span) and 0 <= span < float("inf")):
            raise ValueError(f"span must be a finite number, at least 0; got {span!r}.")
        middle = H.mean(0, keepdims=True) if start is None else self._features_of(start, j)
        if len(middle) != 1:
            raise ValueError(f"start must be one sample; got {len(middle)}.")
        codes = np.repeat(middle, steps, axis=0)
        codes[:, component] += (np.linspace(-span, span, steps) if steps > 1 else 0.0) * H[:, component].std()
        return self._generate(codes, j)

    # -- fitting ------------------------------------------------------------------------------------------------------
    def _first_kernel_trained(self, levels: Levels, X: Any, settings: Settings) -> Kernel:
        """The first kernel, the network in it trained if there is a decoder to train it with."""
        for name in ("_cached_ridges", "_cached_features"):
            self.__dict__.pop(name, None)
        self.decoder_, self.training_history_ = None, []
        if not isinstance(self.preimage, preimage.Network):
            return levels.kernels[0]
        trained = train(levels, self.preimage, X, settings, center=self.center, device=self.device)
        self.decoder_, self.training_history_ = trained.decoder, trained.result.history
        if trained.result.interrupted:
            warn_unconverged(
                "The training of encoder and decoder was interrupted: the best pass so far is kept."
            )
        return trained.kernel

    # -- level by level -----------------------------------------------------------------------------------------------
    def _generate(self, codes: np.ndarray, level: int) -> Any:
        """Data for components of a level, through all levels below it."""
        inputs: Any = self._form.tensor(codes)
        for j in reversed(range(level + 1)):
            inputs = self._input_of(inputs, j)
        return plain(inputs)

    def _input_of(self, codes: Tensor, j: int) -> Any:
        """Inputs of level j that have the components, as nearly as its pre-image map can."""
        how = self._map_of(j)
        if how == "ridge":
            return self._form.tensor(self._ridge(j).predict(_unit_size(plain(codes), self.hidden_[j])))
        kernel, inputs = self._inputs_of(j)
        weights = codes @ self._form.tensor(self.hidden_[j]).mT
        if j == 0 and self.center:
            weights = weights - weights.mean(1, keepdim=True) + 1.0 / weights.shape[1]
        if how == "decoder":
            return self._decoded(weights @ self._features())
        if how == "direct":
            return weights @ inputs
        gram = inputs if kernel.domain == "gram" else kernel._gram(inputs, None)
        values = weights @ gram
        distances = (gram.diagonal() + (values * weights).sum(1, keepdim=True) - 2.0 * values).clamp(min=0.0)
        if how == "nearest":
            chosen = preimage.nearest(distances)
            if j:
                return inputs[chosen]
            return chosen if kernel.domain == "gram" else take_rows(self.X_fit_, plain(chosen))
        means = preimage.weighted(distances) @ inputs
        if how == "weighted":
            return means
        return preimage.refined(
            lambda X: kernel._diag(X) - 2.0 * (weights * kernel._gram(X, inputs)).sum(1), means
        )

    def _map_of(self, j: int) -> str:
        """How level j finds its inputs: by what was asked for, where its kernel allows it."""
        kernel = self.kernels_[j]
        asked = self.preimage
        if isinstance(asked, preimage.Network):
            if j == 0:
                return "decoder"
            asked = "auto"
        if asked == "auto":
            if isinstance(kernel, Linear):
                return "direct"
            return "ridge" if self._has_vectors(j) else "nearest"
        if asked == "direct" and not isinstance(kernel, Linear):
            raise ValueError(
                f"preimage='direct' is for linear kernels, whose features are their inputs; level {j} has {kernel!r}. "
                "Choose 'auto'."
            )
        if asked != "nearest" and not self._has_vectors(j):
            raise ValueError(
                f"preimage={asked!r} makes new vectors, but the data of {kernel!r} are none that can be averaged. "
                "Choose 'auto' or 'nearest': training samples."
            )
        return str(asked)

    def _has_vectors(self, j: int) -> bool:
        return j > 0 or (self.kernels_[0].domain == "vectors" and isinstance(self.X_fit_, np.ndarray))

    def _inputs_of(self, j: int) -> tuple[Kernel, Any]:
        """The kernel of a level and the inputs of the training samples."""
        if j == 0:
            return self._first.kernel, self._first.data
        return self.kernels_[j], self._form.tensor(self.hidden_[j - 1])

    def _ridge(self, j: int) -> OperatorRidge:
        """The function from components to inputs of least leave-one-out error, fitted when it is first needed."""
        known: dict[int, OperatorRidge] = self.__dict__.setdefault("_cached_ridges", {})
        if j not in known:
            H = self.hidden_[j]
            inputs = self.X_fit_ if j == 0 else self.hidden_[j - 1]
            landmarks = Nystroem(RIDGE_LANDMARKS) if len(H) > EXACT_RIDGE else None
            model = OperatorRidge(
                Gaussian("auto"), approximation=landmarks, random_state=0, device=self.device
            )
            known[j] = model.fit(_unit_size(H, H), inputs)
        return known[j]

    def _features(self) -> Tensor:
        """φ of the training samples, computed when it is first needed."""
        if "_cached_features" not in self.__dict__:
            kernel: Any = self.kernels_[0]
            with torch.no_grad():
                self._cached_features = self._form.tensor(plain(kernel._image(kernel.prepare(self.X_fit_))))
        return self._cached_features

    def _decoded(self, features: Tensor) -> Tensor:
        """ψ of features, as rows of the shape of the data."""
        weight = next(self.decoder_.parameters(), features)
        with torch.no_grad():
            images = self.decoder_(features.to(weight)).to(features)
        return images.reshape(len(features), *np.shape(self.X_fit_)[1:])


def _unit_size(codes: np.ndarray, H: np.ndarray) -> np.ndarray:
    """Components on a scale where those of the training samples have unit size."""
    return codes * len(H) ** 0.5


def _generator(random_state: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state must be an integer from 0, a numpy.random.Generator or None; got {random_state!r}."
        ) from error


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Samples by number, of an array or of a list."""
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows]
