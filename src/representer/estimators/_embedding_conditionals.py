"""What a conditional mean embedding can do once it is fitted: weights, expectations, distributions, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.approximation import herd_rows
from representer.data import take
from representer.estimators._adapted import Adapted, repaired_gram, silent_repairs, takes_sparse
from representer.estimators._embedding import EmbeddingEstimator
from representer.estimators._embedding_density import (
    bandwidths,
    check_numbers,
    check_points,
    densities,
    proper,
    variance,
)
from representer.estimators._embedding_problem import EmbeddingProblem
from representer.estimators._validation import (
    DTYPES,
    check_inputs,
    check_outputs,
    plain,
)
from representer.expansions.embedding import Embedding, as_values, own_copy
from representer.kernels import Kernel
from representer.memory import row_blocks
from representer.objectives.ridge_system import DenseSystem
from representer.parameters import is_count, is_real


class Conditionals(EmbeddingEstimator):
    """A fitted embedding: w(x) = P k(X, x) + g, with P and g of the ridge system (g of the intercept)."""

    output_kernel_: Kernel
    Y_fit_: Any
    alpha_: float
    fit_intercept: bool
    _flat: bool
    _seed: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

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
            isinstance(self.Y_fit_, np.ndarray) and self.Y_fit_.dtype.kind in "biuf" and self.Y_fit_.ndim == 2
        )
        if self.output_kernel_.domain == "gram" or not numeric:
            raise ValueError(
                f"{what} needs targets that are vectors; these are {self.output_kernel_.domain}. Use expect(g, X) with "
                "a function of them."
            )
        return self._represented.tensor(self.Y_fit_)

    def _new_targets(self, y: Any) -> Any:
        """Targets of new inputs, of the kind and width of those that were fitted."""
        targets, _ = check_outputs(self.output_kernel_, y, reset=False)
        if self.output_kernel_.domain in ("vectors", "gram") and targets.shape[1] != self.Y_fit_.shape[1]:
            raise ValueError(
                f"y has {targets.shape[1]} columns, but the targets that were fitted have {self.Y_fit_.shape[1]}."
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

    def _weights(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = check_inputs(self, X, self.kernel_.domain, reset=False, sparse=takes_sparse(self.kernel_))
        kernel, system = self._adapted(self.kernel_), self._system()
        inputs, anchors = self._inputs(kernel, X), self._inputs(kernel, self.X_fit_)
        with torch.no_grad():
            cross = kernel._gram(inputs, anchors)
            if self._cached_kept is not None:
                cross = (cross @ self._cached_kept) @ self._cached_kept.mT
            # P is symmetric, and annihilates constants: P k = W⁻¹(k − 1 gᵀk).
            weights = system.solve(cross.mT).mT
            return weights if system.g is None else weights + system.g[:, 0]

    def weights(self, X: Any) -> np.ndarray:
        """The weights w_i(x) of the training samples in the distribution given x.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        weights : ndarray of shape (n_queries, n_samples)
            Some may be negative; with an intercept they sum to one.
        """
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
        return Embedding(self._output_adapted(), self._targets(self.output_kernel_, self.Y_fit_), weights)

    def expect(self, g: Any, X: Any) -> np.ndarray:
        """E[g(Y) | X = x].

        Parameters
        ----------
        g : callable or array-like of shape (n_samples,) or (n_samples, p)
            A function of the training targets as a whole, as they were given, that returns one value or one vector for
            each; or these values.
        X : array-like of shape (n_queries, n_features), or a sequence of what the kernel takes
            Inputs; with a precomputed kernel, k(X, X_train).

        Returns
        -------
        expectations : ndarray of shape (n_queries,) or (n_queries, p)
            One for each input.
        """
        weights = self._weights(X)
        samples = self.Y_fit_[:, 0] if self._flat else self.Y_fit_
        values = g(own_copy(samples)) if callable(g) else g
        return plain(weights @ as_values(values, self.Y_fit_, weights))

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
        values = plain(self._weights(X) @ self._vectors("mean"))
        return values[:, 0] if self._flat else values

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
        weights, Y = self._weights(X), self._vectors("var")
        values = plain(variance(weights, Y))
        return values[:, 0] if self._flat else values

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
        levels, steps = self._steps(X, "cdf")
        index = np.searchsorted(levels, check_numbers(y, "y"), side="right")
        return np.concatenate([np.zeros((len(steps), 1)), steps], 1)[:, index]

    def quantile(self, X: Any, q: Any = (0.05, 0.5, 0.95)) -> np.ndarray:
        """The smallest y with P[Y ≤ y | X = x] ≥ q (see ``cdf``), among the training targets.

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
        levels, steps = self._steps(X, "quantile")
        q = check_numbers(q, "q")
        if not bool(((q >= 0) & (q <= 1)).all()):
            raise ValueError(f"q must lie between 0 and 1; got {q.tolist()}.")
        index = [np.minimum(np.searchsorted(row, q - 1e-12, side="left"), len(levels) - 1) for row in steps]
        return levels[np.array(index).reshape(len(steps), len(q))]

    def _steps(self, X: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
        """The sorted targets, and the distribution function after each of them: monotone, ending at one."""
        Y = plain(self._vectors(what))
        if Y.shape[1] != 1:
            raise ValueError(
                f"{what} needs targets of one dimension; these have {Y.shape[1]}. Use expect(g, X)."
            )
        order = np.argsort(Y[:, 0], kind="stable")
        raw = plain(proper(self._weights(X)))[:, order].cumsum(1)
        # Negative weights make it fall in places: the mean of the least majorant and the greatest minorant is as near
        # to it as a monotone function can be, in the largest deviation.
        above = np.maximum.accumulate(raw, 1)
        below = np.minimum.accumulate(raw[:, ::-1], 1)[:, ::-1]
        steps = np.clip(0.5 * (above + below), 0.0, 1.0)
        steps[:, -1] = 1.0
        return Y[order, 0], steps

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
        weights, Y = proper(self._weights(X)), self._vectors("density")
        points = self._represented.tensor(check_points(y, Y.shape[1]))
        scale = bandwidths(weights, Y)
        if bandwidth is not None:
            scale = torch.full_like(scale, bandwidth)
        return plain(densities(weights, Y, points, scale, self._seed))

    def sample(self, X: Any, n_samples: int = 1, method: str = "herding") -> Any:
        """Samples of Y given X = x, among the training targets.

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
            clipped = torch.where(clipped.sum(1, keepdim=True) > 0, clipped, 1.0)
            generator = torch.Generator().manual_seed(self._seed)
            chosen = torch.multinomial(clipped.cpu(), n_samples, replacement=True, generator=generator)
        else:
            raise ValueError(f"method must be 'herding' or 'resampling'; got {method!r}.")
        if isinstance(self.Y_fit_, np.ndarray):
            samples = self.Y_fit_[plain(chosen)]
            return samples[..., 0] if self._flat else samples
        return [take(self.Y_fit_, row) for row in chosen]

    def _herd(self, weights: Tensor, n_samples: int) -> Tensor:
        with silent_repairs():
            kernel = self._output_adapted()
            gram, _ = repaired_gram(kernel, self._targets(self.output_kernel_, self.Y_fit_))
        blocks = row_blocks(len(weights), 4 * weights.shape[1] * weights.element_size())
        return torch.cat([herd_rows(weights[rows] @ gram, gram.__getitem__, n_samples) for rows in blocks])
