"""What a classifier by embeddings can do once it is fitted: estimates, probabilities, entropy, a bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from representer.data import plain
from representer.estimators._embedding import EmbeddingEstimator
from representer.estimators._embedding_calibration import (
    EmbeddingCalibration,
    clip_normalized,
    embedding_entropy,
    entropy_of,
)
from representer.estimators._embedding_risk import feature_relevance
from representer.estimators._lazy import lazily
from representer.estimators.validation import check_inputs
from representer.operators.adapted import takes_sparse
from representer.parameters import is_real
from representer.samples.on_dask import is_dask

KINDS = ("calibrated", "clipped", "raw")


class ClassEmbedding(ClassifierMixin, EmbeddingEstimator):
    """A fitted embedding f + b of class labels."""

    classes_: np.ndarray
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    complexity_: float
    calibration_: EmbeddingCalibration | None
    loo_estimates_: np.ndarray | None
    _by_features: bool
    _training_loss: float | None
    _n_samples: int

    def embedding(self, X: Any) -> np.ndarray:
        """The raw estimates of the probabilities, equation (5): not clipped, and without an intercept not normalised.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        estimates : ndarray of shape (n_samples, n_classes)
            f(x) + b.
        """
        check_is_fitted(self)
        if is_dask(X):
            return self._lazily("embedding", X)
        X = check_inputs(self, X, self.kernel_.domain, reset=False, sparse=takes_sparse(self.kernel_))
        tensor = self._represented.tensor
        known = tensor(self.dual_coef_), tensor(self.intercept_)
        return plain(self._apply(self._inputs(self.kernel_, X), *known, by_features=self._by_features))

    def _lazily(self, method: str, X: Any, **options: Any) -> Any:
        return lazily(self, method, X, len(self.classes_), self.dual_coef_.dtype, **options)

    def decision_function(self, X: Any) -> np.ndarray:
        """The raw estimates, or their difference for two classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        decisions : ndarray of shape (n_samples,) for two classes, otherwise (n_samples, n_classes)
            For two classes, positive values speak for the second.
        """
        estimates = self.embedding(X)
        return estimates[:, 1] - estimates[:, 0] if len(self.classes_) == 2 else estimates

    def predict(self, X: Any) -> np.ndarray:
        """Predict class labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        y : ndarray of shape (n_samples,)
            The class of the largest estimate.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "predict", X, None, self.classes_.dtype)
        estimates = self.embedding(X)
        return self.classes_[estimates.argmax(1)]

    def predict_proba(self, X: Any, kind: str | None = None) -> np.ndarray:
        """Predict class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        kind : {"calibrated", "clipped", "raw"} or None, default=None
            Calibrated; clip-normalised, equation (6); or raw estimates, equation (5). None: calibrated if the model is.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        if is_dask(X):
            return self._lazily("predict_proba", X, kind=kind)
        estimates = self.embedding(X)
        if kind is None:
            kind = "clipped" if self.calibration_ is None else "calibrated"
        if kind not in KINDS:
            raise ValueError(f"kind must be None or one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
        if kind == "raw":
            return estimates
        if kind == "clipped":
            return clip_normalized(estimates)
        if self.calibration_ is None:
            raise ValueError("kind='calibrated' needs a model that was fitted with calibration='loo'.")
        return self.calibration_(estimates)

    def entropy(self, X: Any, kind: str | None = None) -> np.ndarray:
        """How uncertain the class of each input is, in nats.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        kind : {"calibrated", "clipped", "embedding"} or None, default=None
            The entropy of calibrated or clip-normalised probabilities, equation (33), or the expectation of the
            information by the embedding, equation (37). None: that of ``predict_proba``.

        Returns
        -------
        entropy : ndarray of shape (n_samples,)
            Between 0 and log(n_classes); with ``kind="embedding"`` at least 0, but it may exceed log(n_classes), as raw
            estimates need not sum to one.
        """
        if kind == "embedding":
            return embedding_entropy(self.embedding(X))
        if kind not in (None, "calibrated", "clipped"):
            raise ValueError(f"kind must be None, 'calibrated', 'clipped' or 'embedding'; got {kind!r}.")
        return entropy_of(self.predict_proba(X, kind))

    def risk_bound(self, beta: float = 0.05) -> float:
        """Theorem 4: with probability 1 − beta the expected cross entropy, clipped at epsilon < 1/e, is below this.

        Parameters
        ----------
        beta : float, default=0.05
            The risk of being wrong, between 0 and 1.

        Returns
        -------
        bound : float
            Training cross entropy + 4e·r + √(8 log(2/beta)/n): valid, and far above 1 on real data. It is for
            the problem of the paper, ``fit_intercept=False``.
        """
        check_is_fitted(self)
        if not (is_real(beta) and 0.0 < beta < 1.0):
            raise ValueError(f"beta must be a number between 0 and 1; got {beta!r}.")
        if self._training_loss is None:
            raise ValueError(
                "risk_bound needs the training loss, which a fit by batches does not have; use fit."
            )
        n = self._n_samples
        return (
            self._training_loss + 4.0 * math.e * self.complexity_ + math.sqrt(8.0 / n * math.log(2.0 / beta))
        )

    @property
    def feature_relevance_(self) -> np.ndarray:
        """Inverse lengthscales, one a feature: of the first part of a sum or product that has them, not of a network.

        A feature that was constant in training has the relevance 0.
        """
        check_is_fitted(self)
        return feature_relevance(self.kernel_, self.X_fit_, getattr(self, "n_features_in_", None))
