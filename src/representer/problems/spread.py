"""The spread of a new observation around a ridge fit with an intercept: a Gaussian process on the images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from representer.approximation import LandmarkFeatures, landmark_features
from representer.data import count
from representer.estimators._ridge import RidgeProblem, prior_scale, ridge_system
from representer.functions import Expansion
from representer.kernels import Linear
from representer.linalg.memory import row_blocks
from representer.operators import Decomposable, OperatorKernel
from representer.operators.adapted import silent_repairs
from representer.systems import System


class PredictiveSpread:
    """Standard deviations of f + b + noise: a Gaussian process of covariance s²K, and noise of variance s²·n·alpha.

    s², for each output, gives leave-one-out residuals the size they should have. An intercept has a flat prior: it adds
    what the data leave open of it. With landmarks, what they do not see of K(x, x) counts as uncertain.

    Parameters
    ----------
    kernel : OperatorKernel
    Z, Y : data, tensor (n, p)
        Images of the training samples, and their targets minus the intercept.
    alpha : float
    intercept : bool
    landmarks : data, optional
    residuals : tensor (n, p), optional
        Of predictions for samples that a fit has not seen, NaN where there are none; by default those of leaving one
        out, inner layers fixed.
    """

    def __init__(
        self,
        kernel: OperatorKernel,
        Z: Any,
        Y: Tensor,
        alpha: float,
        *,
        intercept: bool,
        landmarks: Any = None,
        residuals: Tensor | None = None,
    ):
        self.noise = alpha * len(Y)
        self.features: LandmarkFeatures | None = None
        weights = torch.ones(len(Y), dtype=Y.dtype, device=Y.device)
        problem = RidgeProblem(Z, Y, weights, None)
        self.inner: OperatorKernel = kernel
        if landmarks is not None:
            assert isinstance(kernel, Decomposable)
            self.features = landmark_features(kernel.kernel, landmarks)
            self.inner = Decomposable(Linear())
            problem = replace(problem, X=self.features(Z))
        elif isinstance(kernel, Decomposable):
            with silent_repairs():  # fit has said it
                problem = problem.with_fixed_gram(kernel.kernel)
        p = Y.shape[1]
        self.system: System = ridge_system(self.inner, problem, alpha)
        if residuals is None:
            self.scale = prior_scale(self.system, problem, self.system.solve(Y))
        else:
            self.scale = (residuals**2 / self.system.loo_variance()).nanmean(0)
        self.p, self.bytes_per_row = p, Y.numel() * Y.element_size()
        self.open = self._intercepts(problem) if intercept else []

    def _intercepts(self, problem: RidgeProblem) -> list[tuple[Tensor, Expansion, Tensor]]:
        """For each direction v in which outputs come apart: the function K·W⁻¹(1 ⊗ v), and vᵀ(1ᵀ W⁻¹ 1)v."""
        form = self.inner.diagonal_form(self.p, problem.Y)
        rotation = None if form is None else form.rotation
        directions = torch.eye(self.p).to(problem.Y) if rotation is None else rotation
        found = []
        for v in directions.mT:
            dual = self.system.solve(torch.ones_like(problem.Y[:, :1]) * v)
            explained = Expansion(self.inner, problem.X, problem.known(dual))
            found.append((v, explained, (dual.sum(0) * v).sum()))
        return found

    def __call__(self, Z: Any) -> Tensor:
        """Standard deviations (m, p) at the images Z."""
        return torch.cat([self._block(Z[rows]) for rows in row_blocks(count(Z), self.bytes_per_row)])

    def _block(self, Z: Any) -> Tensor:
        points = Z if self.features is None else self.features(Z)
        variance = self.system.variance(points)
        if self.features is not None:
            unseen = self.features.kernel._diag(Z) - (points**2).sum(1)
            variance = variance + unseen.clamp(min=0.0)[:, None]
        for v, explained, weight in self.open:
            variance = variance + (1.0 - explained(points) @ v)[:, None] ** 2 / weight * v**2
        return ((variance + self.noise) * self.scale).sqrt()
