"""What a fitted deep kernel PCA says of itself: score, bounds, the choice of η₂ and of the architecture."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer.data import count, take
from representer.estimators._deep_pca import CollapsedComponentWarning, FirstLevel, is_constant
from representer.kernels import Kernel, Linear
from representer.linalg.memory import row_blocks
from representer.objectives.multilevel import MultiLevel, coupling, symmetric
from representer.operators.adapted import Representation
from representer.parameters import is_count, is_real


class ApproximationBounds(NamedTuple):
    """‖K_1/η_1 − H_1 Λ_1 H_1ᵀ‖_F between its bounds."""

    lower: float
    error: float
    upper: float


class Architecture(NamedTuple):
    """Numbers of components, what they explain, and why there are no more levels."""

    n_components: list[int]
    explained_variance_ratio: list[np.ndarray]
    reason: str


class DeepPCAAnalysis:
    """Methods of ``DeepKernelPCA`` beside fit and transform."""

    hidden_: list[np.ndarray]
    solver_: str
    eigenvalues_: list[np.ndarray]
    explained_variance_ratio_: list[np.ndarray]
    kernels_: list[Kernel]
    eta_: list[float]
    n_components_: list[int]
    X_fit_: Any
    kernels: Any
    eta: Any
    _first: FirstLevel
    _form: Representation
    _inputs: Callable[[Any], Any]
    _hidden: Callable[[Any], Tensor]

    # -- how much of the data is kept ---------------------------------------------------------------------------------
    def score(self, X: Any, y: Any = None) -> float:
        """Share of the variance of X that a linear map recovers from the hidden features; higher is better.

        The map is fitted to the training samples by least squares. Vectors are recovered as they are, so that the score
        compares models with any kernels; other data are recovered in the feature space of the first kernel.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Data; with a precomputed kernel, k(X, X_train), where the training samples' mean of k(x, x) stands for that
            of new ones.
        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        score : float
            1 − squared error / squared distance from the training mean: 1 for what is recovered completely.
        """
        check_is_fitted(self)
        data = self._inputs(X)
        hidden = self._hidden(data)
        Z = self._form.tensor(np.concatenate(self.hidden_, 1))
        A = torch.linalg.pinv(Z - Z.mean(0)).mT  # (N, S): the map is φ(x) − m ≈ Σ_n (φ(x_n) − m) (A z)_n
        weights = (hidden - Z.mean(0)) @ A.mT
        kernel = self._first.kernel
        if kernel.domain == "vectors" and isinstance(data, Tensor):
            train = self._form.tensor(self.X_fit_)
            target, recovered = data - train.mean(0), weights @ (train - train.mean(0))
            error, variance = (target - recovered).square().sum().item(), target.square().sum().item()
        else:
            error, variance = self._feature_space_error(data, weights)
        return 1.0 - error / variance if variance > 0 else 0.0

    def _feature_space_error(self, data: Any, weights: Tensor) -> tuple[float, float]:
        """Σ ‖φ(x) − m − Σ_n w_n (φ(x_n) − m)‖² and Σ ‖φ(x) − m‖²."""
        kernel, gram = self._first.kernel, self._first.gram(center=False)
        means, error, variance = gram.mean(0), 0.0, 0.0
        weights = weights - weights.mean(1, keepdim=True)  # as (φ(x_n) − m) would do
        for rows in row_blocks(count(data), 4 * 8 * len(gram)):
            block = take(data, torch.arange(rows.start, rows.stop))
            k, w = self._first.rows(block), weights[rows]
            if kernel.domain == "gram":
                same = k.shape == gram.shape and bool(torch.equal(k, gram))
                diagonal = gram.diagonal() if same else gram.diagonal().mean().expand(len(k))
            else:
                diagonal = kernel._diag(block)
            norms = diagonal - 2.0 * k.mean(1) + means.mean()
            cross = (w * (k - means)).sum(1)
            variance += norms.sum().item()
            error += (norms - 2.0 * cross + (w * (w @ gram)).sum(1)).sum().item()
        return error, variance

    # -- order --------------------------------------------------------------------------------------------------------
    @property
    def leading_(self) -> list[bool]:
        """Of each level, whether the eigenvectors of sign(η_j) M_j that it keeps are the leading ones."""
        check_is_fitted(self)
        problem = MultiLevel(self._first.gram(), self.kernels_[1:], self.eta_)
        coupled = self.solver_ != "levelwise"
        state = problem.at([self._form.tensor(H) for H in self.hidden_], coupled=coupled)
        return problem.are_leading(state, coupled=coupled)

    # -- bounds -------------------------------------------------------------------------------------------------------
    def approximation_bounds(self) -> ApproximationBounds:
        """How well the first level approximates the Gram matrix of the data, and between which bounds (Lemma 4.1).

        M_1 = K_1/η_1 + B has the eigenvectors H_1, so ‖M_1 − H_1Λ_1H_1ᵀ‖_F = τ is known from the eigenvalues that are
        left out, and the error ‖K_1/η_1 − H_1Λ_1H_1ᵀ‖_F lies between τ ∓ ‖B‖_F. With two levels and a linear second
        one, B = H_2H_2ᵀ/η_2 and the upper bound is that of the lemma, with von Neumann's inequality for its last trace:
        sharper than the paper's for η_2 > 0, and valid for η_2 < 0 also if Λ_1 has negative entries.

        Returns
        -------
        bounds : ApproximationBounds
            ``lower``, ``error``, ``upper``.
        """
        check_is_fitted(self)
        K = self._first.gram() / self.eta_[0]
        H, values = (self._form.tensor(parts[0]) for parts in (self.hidden_, self.eigenvalues_))
        low_rank = (H * values) @ H.mT
        error = (K - low_rank).norm().item()
        if len(self.hidden_) == 1:
            return ApproximationBounds(error, error, error)
        above, eta, kernel = self._form.tensor(self.hidden_[1]), self.eta_[1], self.kernels_[1]
        lemma = len(self.hidden_) == 2 and isinstance(kernel, Linear)
        if lemma:
            B = above @ above.mT / eta
        else:
            G = coupling(kernel, H, above)
            B = (G @ H.mT + H @ G.mT - H @ symmetric(H.mT @ G) @ H.mT) / eta
        tail, size = (K + B - low_rank).norm().item(), B.norm().item()
        lower, upper = max(0.0, tail - size), tail + size
        if lemma:
            spectrum = torch.linalg.eigvalsh(K).flip(0)
            s2 = above.shape[1]
            if eta > 0:
                positive = values.clamp(min=0.0).sort(descending=True).values[:s2].sum()
                extra = (
                    2.0 / eta * (positive - spectrum[-s2:].sum().clamp(max=0.0)).item()
                )  # η_1 < 0: K is negative
            else:
                negative = (-values).clamp(min=0.0).sort(descending=True).values[:s2].sum()
                extra = -2.0 / eta * (spectrum[:s2].sum() + negative).item()
            upper = min(upper, max(0.0, tail**2 - s2 / eta**2 + extra) ** 0.5)
        return ApproximationBounds(lower, error, upper)

    def eta_for_explained_variance(
        self, n_components: int | None = None, ratio: float | None = None
    ) -> float:
        """The η_2 of a linear second level with which the first one explains more in fewer components (Lemma 4.2).

        With s components at both levels, a linear second level adds 1/η_2 to the s eigenvalues λ_i of K_1/η_1. If η_2
        is negative, the first n of them hold a larger share of their sum than in kernel PCA, for every n < s; they stay
        non-negative if η_2 ≤ −1/λ_s. The lemma is the case of s = n_samples.

        Parameters
        ----------
        n_components : int, default=None
            The n components that are to hold ``ratio``.
        ratio : float, default=None
            The share of the s eigenvalues' sum that they are to hold; None: as much as can be.

        Returns
        -------
        eta : float
            η_2; the largest negative one that is allowed, −1/λ_s, if no ratio is given.
        """
        check_is_fitted(self)
        if self.eta_[0] < 0:
            raise ValueError(
                f"eta of level 0 is {self.eta_[0]!r}: with a negative one all eigenvalues of K_1/η_1 are negative, and "
                "the lemma says nothing. Fit with a positive eta of level 0."
            )
        s = self.n_components_[0]
        values = (torch.linalg.eigvalsh(self._first.gram()).flip(0)[:s] / self.eta_[0]).cpu().numpy()
        if values[-1] <= len(self.hidden_[0]) * np.finfo(np.float64).eps * values[0]:
            raise ValueError(
                f"The Gram matrix of the data has no {s} positive eigenvalues, to rounding, so that no negative eta "
                "keeps all of them positive. Lower n_components (a centred Gram matrix has rank n_samples − 1)."
            )
        if ratio is None and n_components is None:
            return -1.0 / float(values[-1])
        if (
            n_components is None
            or ratio is None
            or not (is_count(n_components) and n_components < s and is_real(ratio) and 0 < ratio < 1)
        ):
            raise ValueError(
                f"Give both n_components, from 1 to {s - 1}, and ratio, between 0 and 1; got {n_components!r} and "
                f"{ratio!r}."
            )
        head, total = values[:n_components].sum(), values.sum()
        slope = ratio * total - head
        shift = slope / (n_components - ratio * s) if n_components != ratio * s else np.inf
        largest = (
            (head - n_components * values[-1]) / (total - s * values[-1]) if total > s * values[-1] else 1.0
        )
        if shift == 0:
            raise ValueError(f"Kernel PCA holds exactly {ratio} already: no finite eta is needed.")
        if (
            not np.isfinite(shift)
            or shift < -values[-1] * (1.0 + 1e-9)
            or (shift > 0 and ratio > head / total)
        ):
            raise ValueError(
                f"{n_components} components hold {head / total:.3f} in kernel PCA and {largest:.3f} with the largest "
                f"negative eta, {-1.0 / values[-1]:.3g}; ratio={ratio!r} is out of reach."
            )
        return float(1.0 / shift)

    # -- architecture -------------------------------------------------------------------------------------------------
    def suggest_architecture(
        self, X: Any, *, variance: float = 0.9, max_levels: int = 4, min_gain: float = 0.01
    ) -> Architecture:
        """Numbers of components and levels for data (section 5.2 of the paper), without labels.

        Each level gets as many components as hold a share of its variance: first in kernel PCA, then, fewer or more,
        once all levels are fitted together. Levels are added until the last one holds that share in its first
        component, or its first component holds no more than that of the level below.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a sequence of what the first kernel takes
            Data; with a precomputed kernel, their Gram matrix.
        variance : float, default=0.9
            The share of its variance that a level's components are to hold.
        max_levels : int, default=4
            Most levels. Those beyond the lists given to the constructor take their last kernel and eta.
        min_gain : float, default=0.01
            A level whose first component does not hold this share more than that of the level below is not added, and
            neither is one more component to a level if the one before it has not added as much.

        Returns
        -------
        architecture : Architecture
            ``n_components`` (for the constructor), ``explained_variance_ratio`` of each level, ``reason`` to stop.
        """
        if not (is_real(variance) and 0.0 < variance < 1.0):
            raise ValueError(f"variance must be a share between 0 and 1; got {variance!r}.")
        if not is_count(max_levels):
            raise ValueError(f"max_levels must be a positive integer; got {max_levels!r}.")
        if not (is_real(min_gain) and np.isfinite(min_gain)):
            raise ValueError(f"min_gain must be a finite number, a share of the variance; got {min_gain!r}.")
        found = self._fitted([float(variance)], X)
        reason = f"max_levels={max_levels}"
        while len(found.n_components_) < max_levels:
            before = float(found.explained_variance_ratio_[-1][0])
            deeper = self._adjusted(
                self._fitted([*found.n_components_, float(variance)], X), variance, min_gain, X
            )
            first = float(deeper.explained_variance_ratio_[-1][0])
            if first < before + min_gain:
                reason = (
                    f"the first component of one more level holds {first:.1%}, that of the last {before:.1%}"
                )
                break
            found = deeper
            if first >= variance:
                reason = f"the first component of the last level holds {first:.1%} of its variance"
                break
        return Architecture(list(found.n_components_), found.explained_variance_ratio_, reason)

    def _adjusted(self, model: Any, variance: float, min_gain: float, X: Any) -> Any:
        """The model with the components that its levels need together: those that hold the share, and vary.

        A level that holds less than its share (negative η take from the levels below) gets one component more, as long
        as that adds ``min_gain``; a level that has grown does not shrink again.
        """
        least = [1] * len(model.n_components_)
        held = [0.0] * len(least)  # when it last grew
        while True:
            needed = []
            for j, (ratios, H) in enumerate(zip(model.explained_variance_ratio_, model.hidden_, strict=True)):
                varying = ratios[~is_constant(H)] if j == 0 and model.center else ratios
                enough = int((varying.cumsum() < variance).sum()) + 1
                if enough > len(varying):
                    room = len(varying) == len(ratios) and sum(model.n_components_) < len(H)
                    grows = room and varying.sum() >= held[j] + min_gain
                    enough = max(1, len(varying) + int(grows))
                    if grows:
                        least[j], held[j] = enough, float(varying.sum())
                needed.append(max(enough, least[j]))
            if needed == model.n_components_:
                return model
            model = self._fitted(needed, X)

    def _fitted(self, n_components: Sequence[int | float], X: Any) -> Any:
        """A copy with so many levels, fitted."""
        levels = len(n_components)

        def extended(given: Any) -> Any:
            return (
                [*given, *[given[-1]] * levels][:levels]
                if isinstance(given, list | tuple | np.ndarray)
                else given
            )

        arguments = {"kernels": extended(self.kernels), "eta": extended(self.eta), "init": "levelwise"}
        model: Any = clone(self).set_params(n_components=list(n_components), **arguments)
        with warnings.catch_warnings():  # what collapses is left out
            warnings.simplefilter("ignore", CollapsedComponentWarning)
            return model.fit(X)
