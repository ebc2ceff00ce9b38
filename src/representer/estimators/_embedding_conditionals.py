"""What a conditional mean embedding can do once it is fitted: weights, expectations, distributions, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.data import plain, take
from representer.estimators._conditional_large import AtAnchors, OfFeatures, regressed
from representer.estimators._conditional_weights import ConditionalWeights
from representer.estimators._embedding_density import (
    bandwidths,
    check_numbers,
    check_points,
    densities,
    variance_of_moments,
)
from representer.estimators._lazy import lazily
from representer.functions import herd_rows
from representer.functions.embedding import Embedding, as_values, own_copy
from representer.linalg.memory import row_blocks
from representer.operators.adapted import repaired_gram, silent_repairs
from representer.parameters import is_count, is_real
from representer.samples.on_dask import is_dask


class Conditionals(ConditionalWeights):
    """The methods of a fitted embedding."""

    def weights(self, X: Any) -> np.ndarray:
        """The weights w_i(x) of the training samples, or of ``output_landmarks_``, in the distribution given x.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        weights : ndarray of shape (n_queries, n_samples) or (n_queries, n_anchors)
            Some may be negative; with an intercept they sum to one.
        """
        if is_dask(X):
            return self._lazily("weights", X, len(self._anchors))
        return plain(self._weights(X))

    def embedding(self, X: Any) -> Embedding:
        """The conditional mean embeddings as elements of the output RKHS.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        embedding : Embedding
            With inner products (``inner``), distances (``distance``, the MMD between conditional distributions), values
            and expectations.
        """
        weights = self._weights(X)
        return Embedding(self._output_adapted(), self._targets(self.output_kernel_, self._anchors), weights)

    def expect(self, g: Any, X: Any, samples: Any = None) -> np.ndarray:
        """E[g(Y) | X = x].

        Parameters
        ----------
        g : callable or array-like of shape (n_samples,) or (n_samples, p)
            A function of the training targets as a whole, as they were given, that returns one value or one vector for
            each; or these values. With an approximation, of ``output_landmarks_``: each stands for its cell.
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        samples : pair of inputs and targets, default=None
            With an approximation: samples to go through once more, in memory or on Dask, for an expectation without
            the error of cells. g, a function, is called with all targets, or with those of one chunk.

        Returns
        -------
        expectations : ndarray of shape (n_queries,) or (n_queries, p)
            One for each input.
        """
        check_is_fitted(self)
        found: AtAnchors | OfFeatures
        if samples is not None:
            found = regressed(self, g, samples)
        else:
            given = self._anchors[:, 0] if self._flat else self._anchors
            values = g(own_copy(given)) if callable(g) else g
            found = AtAnchors(plain(as_values(values, self._anchors, self._like)))
        if is_dask(X):
            return lazily(self, "_expectations", X, found.width, self.dtype, found)
        return self._expectations(found, X)

    def _expectations(self, g: AtAnchors | OfFeatures, X: Any) -> np.ndarray:
        """Of a function that is known at the anchors, or regressed on the features."""
        tensor = self._represented.tensor
        if isinstance(g, AtAnchors):
            values = tensor(g.values)
            # Weights of sum one: centred values, so that no large constant multiplies the rounding error of the sum.
            c = values.mean(0) if self._total_is_one else torch.zeros_like(values[0])
            c = torch.where(c.isfinite(), c, 0.0)
            return plain(c + self._weights(X) @ (values - c))
        known = tensor(g.coefficients), tensor(g.constants)
        fitted = self._apply(self._new_inputs(X), *known, by_features=True)
        return plain(fitted[:, 0] if g.width is None else fitted)

    def predict(self, X: Any) -> np.ndarray:
        """The conditional mean, for targets that are vectors: the same as ``mean``.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        mean : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            One for each input.
        """
        return self.mean(X)

    def score(self, X: Any, y: Any) -> float:
        """Minus the mean squared distance ‖l(y, ·) − μ_x‖² in the output RKHS (Grünewälder et al., 2012).

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : targets
            Their targets; with a precomputed output kernel l(Y, Y_train), and the terms l(y, y) are left out.

        Returns
        -------
        score : float
            The higher the better.
        """
        check_is_fitted(self)
        targets = self._new_targets(y)
        embedding, new = self.embedding(X), self._targets(self.output_kernel_, targets)
        if len(targets) != len(embedding):
            raise ValueError(
                f"X and y have inconsistent numbers of samples: {len(embedding)} and {len(targets)}."
            )
        kernel = self._output_adapted()
        cross = kernel._gram(new, embedding.anchors)
        own = cross.new_zeros(len(cross)) if kernel.domain == "gram" else kernel._diag(new)
        errors = own - 2.0 * (cross * embedding.weights).sum(-1) + embedding.squared_norms()
        return -float(errors.mean())

    # -- distributions of vectors -------------------------------------------------------------------------------------
    def mean(self, X: Any) -> np.ndarray:
        """E[Y | X = x].

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        mean : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            One for each input.
        """
        if is_dask(X):
            return self._lazily("mean", X, self._width("mean"))
        c, first, _, total = self._moments(X, "mean")
        values = first + c * total
        return plain(values[:, 0] if self._flat else values)

    def var(self, X: Any) -> np.ndarray:
        """Var[Y_j | X = x], clipped at zero.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        var : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            One for each input.
        """
        if is_dask(X):
            return self._lazily("var", X, self._width("var"))
        values = variance_of_moments(*self._moments(X, "var"))
        return plain(values[:, 0] if self._flat else values)

    def cdf(self, X: Any, y: Any) -> np.ndarray:
        """P[Y ≤ y | X = x], made monotone and between 0 and 1.

        Where the weights have no positive sum, far from all samples without an intercept, it is that of all targets.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : float or array-like of shape (m,)
            Where, for targets of one dimension.

        Returns
        -------
        probabilities : ndarray of shape (n_queries, m)
            One row for each input.
        """
        if is_dask(X):
            return self._lazily("cdf", X, np.size(y), y=y)
        levels, steps = self._steps(X, "cdf")
        index = np.searchsorted(levels, check_numbers(y, "y"), side="right")
        return np.concatenate([np.zeros((len(steps), 1)), steps], 1)[:, index]

    def quantile(self, X: Any, q: Any = (0.05, 0.5, 0.95)) -> np.ndarray:
        """The smallest y with P[Y ≤ y | X = x] ≥ q (see ``cdf``), among the training targets or anchors.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        q : float or array-like of shape (m,), default=(0.05, 0.5, 0.95)
            Probabilities.

        Returns
        -------
        quantiles : ndarray of shape (n_queries, m)
            One row for each input.
        """
        if is_dask(X):
            return self._lazily("quantile", X, np.size(q), q=q)
        levels, steps = self._steps(X, "quantile")
        q = check_numbers(q, "q")
        if not bool(((q >= 0) & (q <= 1)).all()):
            raise ValueError(f"q must lie between 0 and 1; got {q.tolist()}.")
        index = [np.minimum(np.searchsorted(row, q - 1e-12, side="left"), len(levels) - 1) for row in steps]
        return levels[np.array(index).reshape(len(steps), len(q))]

    def _steps(self, X: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
        """The distinct targets in order, and the distribution function at each of them: monotone, ending at one."""
        Y = plain(self._vectors(what))
        if Y.shape[1] != 1:
            raise ValueError(
                f"{what} needs targets of one dimension; these have {Y.shape[1]}. Use expect(g, X)."
            )
        order = np.argsort(Y[:, 0], kind="stable")
        levels = Y[order, 0]
        last = np.append(levels[1:] != levels[:-1], True)  # of those that are equal
        raw = plain(self._proper_weights(X))[:, order].cumsum(1)[:, last]
        # Negative weights make it fall in places: the mean of the least majorant and the greatest minorant is as near
        # to it as a monotone function can be, in the largest deviation.
        above = np.maximum.accumulate(raw, 1)
        below = np.minimum.accumulate(raw[:, ::-1], 1)[:, ::-1]
        steps = np.clip(0.5 * (above + below), 0.0, 1.0)
        steps[:, -1] = 1.0
        return levels[last], steps

    def density(self, X: Any, y: Any, bandwidth: float | None = None) -> np.ndarray:
        """The density of Y given X = x, smoothed by a Gaussian, clipped at zero and divided by its integral.

        With negative weights the integral is a numerical one, good to about three digits. Where the weights have no
        positive sum, far from all samples without an intercept, the density is that of all targets.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        y : array-like of shape (m,) or (m, n_outputs)
            Where; with several outputs also one point (n_outputs,).
        bandwidth : float or None, default=None
            Standard deviation of the Gaussian; None: Scott's rule for the conditional standard deviations and the
            effective number of samples 1/Σ_i w_i², at least a hundredth of the marginal standard deviations.

        Returns
        -------
        density : ndarray of shape (n_queries, m)
            One row for each input.
        """
        if bandwidth is not None and not (is_real(bandwidth) and 0 < bandwidth < np.inf):
            raise ValueError(f"bandwidth must be positive; got {bandwidth!r}.")
        weights, Y = self._proper_weights(X), self._vectors("density")
        points = self._represented.tensor(check_points(y, Y.shape[1]))
        scale = bandwidths(weights, Y)
        if bandwidth is not None:
            scale = torch.full_like(scale, bandwidth)
        return plain(densities(weights, Y, points, scale, self._seed))

    def sample(self, X: Any, n_samples: int = 1, method: str = "herding") -> Any:
        """Samples of Y given X = x, among the training targets or, with an approximation, the anchors.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).
        n_samples : int, default=1
            How many for each input.
        method : {"herding", "resampling"}, default="herding"
            Kernel herding: deterministic samples whose mean embedding approaches the conditional one. Or independent
            draws with the weights as probabilities, negative ones clipped; their seed is that of the fit
            (``random_state``), so that the same call gives the same draws.

        Returns
        -------
        samples : ndarray of shape (n_queries, n_samples) or (n_queries, n_samples, n_outputs), or list of lists
            One row for each input.
        """
        if not is_count(n_samples):
            raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
        weights = self._weights(X)
        if method == "herding":
            chosen = self._herd(weights, n_samples)
        elif method == "resampling":
            clipped = weights.clamp(min=0.0)
            shares = self._cell_shares()
            clipped = torch.where(
                clipped.sum(1, keepdim=True) > 0, clipped, 1.0 if shares is None else shares
            )
            generator = torch.Generator().manual_seed(self._seed)
            chosen = torch.multinomial(clipped.cpu(), n_samples, replacement=True, generator=generator)
        else:
            raise ValueError(f"method must be 'herding' or 'resampling'; got {method!r}.")
        if isinstance(self._anchors, np.ndarray):
            samples = self._anchors[plain(chosen)]
            return samples[..., 0] if self._flat else samples
        return [take(self._anchors, row) for row in chosen]

    def _herd(self, weights: Tensor, n_samples: int) -> Tensor:
        with silent_repairs():
            kernel = self._output_adapted()
            gram, _ = repaired_gram(kernel, self._targets(self.output_kernel_, self._anchors))
        blocks = row_blocks(len(weights), 4 * weights.shape[1] * weights.element_size())
        return torch.cat([herd_rows(weights[rows] @ gram, gram.__getitem__, n_samples) for rows in blocks])
