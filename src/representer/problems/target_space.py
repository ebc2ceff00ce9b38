"""Where an autoencoder's reconstructions live: ℝᵈ, or the RKHS of a kernel, in coordinates on the training data.

The span of φ(x_1), …, φ(x_n) is isometric to ℝʳ: with r pivots P among the samples and L Lᵀ = k(P, P), the coordinates
of (the projection of) φ(x) are L⁻¹ k(P, x). They keep ⟨φ(x), φ(x_i)⟩ for all training samples, to the tolerance of the
pivots; so the distortion ‖φ(x) − f(x)‖² = k(x, x) − 2⟨φ(x), f(x)⟩ + ‖f(x)‖² is that of appendix B.7 of Laforgue et al.,
and squared loss on the coordinates is squared loss in the RKHS.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions.chain import pivot_candidates
from representer.kernels import Functional, Kernel, Linear
from representer.linalg import Cholesky, factorize, pivoted_cholesky, row_blocks
from representer.operators import Representation
from representer.preimage import combination, is_linear
from representer.samples import Data, count, plain, take


@dataclass(frozen=True)
class FeatureSpace:
    """ℝᵈ: vectors are their own coordinates."""

    def coordinates(self, X: Tensor, gram: Tensor | None = None) -> Tensor:
        """The vectors X, which are their own coordinates."""
        return X

    def stored(self, representation: Representation) -> FeatureSpace:
        """The space as a learner keeps it."""
        return self

    def squared_norms(self, X: Tensor) -> Tensor:
        """The squared norms ‖x_i‖² of the vectors."""
        return X.square().sum(-1)

    def squared_distances(self, X: Tensor, values: Tensor, norms: Tensor) -> Tensor:
        """‖x − v‖², row by row, without cancellation."""
        return (X - values).square().sum(-1)


@dataclass(frozen=True)
class KernelSpace:
    """The RKHS of a kernel, as far as the training samples span it.

    Parameters
    ----------
    kernel : Kernel
        With numbers for all hyperparameters.
    pivots : tensor of int
        The samples that span it.
    points : prepared data
        Those samples; of Gram rows, all of them.
    cholesky : Cholesky
        Of k(P, P).
    of_gram : bool
        Was it made from a Gram matrix of objects that the encoder works with, too?
    """

    kernel: Kernel
    pivots: Tensor
    points: Data
    cholesky: Cholesky
    of_gram: bool = False

    def stored(self, representation: Representation) -> StoredSpace:
        """The space as a learner keeps it, in memory of its own."""
        points = plain(self.points, copy=True)
        pivots, factor = plain(self.pivots, copy=True), plain(self.cholesky.factor, copy=True)
        return StoredSpace(self.kernel, pivots, points, factor, representation)

    @classmethod
    def of(
        cls, kernel: Kernel, X: Data, like: Tensor, *, gram: Tensor | None = None, max_rank: int | None = None
    ) -> KernelSpace:
        """The span of prepared data; with ``max_rank`` of so many of them at most, and no n × n matrix is made.

        ``like`` has the precision and device of the coordinates, ``gram`` is k(X) if it is known.
        """
        rows = torch.arange(count(X))
        given = gram is not None
        if gram is None:
            rows = rows if kernel.domain == "gram" else pivot_candidates(rows, max_rank)
            gram = kernel._gram(X if len(rows) == count(X) else take(X, rows), None)
        gram = gram.to(like)
        rounding = len(gram) * torch.finfo(gram.dtype).eps
        _, chosen = pivoted_cholesky(gram, tol=rounding, max_rank=max_rank)
        if not len(chosen):
            raise ValueError(
                f"{kernel!r} is zero for all samples: in its RKHS there is nothing to reconstruct. Check the data, or "
                "choose another kernel."
            )
        cholesky = factorize(gram[chosen[:, None], chosen], name="The Gram matrix of the reconstruction space")
        pivots = rows[chosen]
        return cls(kernel, pivots, X if kernel.domain == "gram" else take(X, pivots), cholesky, given)

    def _cross(self, X: Data) -> Tensor:
        if self.kernel.domain == "gram":
            return X[:, self.pivots]
        return self.kernel._gram(X, self.points)

    def coordinates(self, X: Data, gram: Tensor | None = None) -> Tensor:
        """k(x, P) L⁻ᵀ, (n, r), block by block; of the training samples from k(X), if that is known (and repaired)."""
        like = self.cholesky.factor
        if gram is not None and self.of_gram:
            return self.cholesky.half_solve(gram[self.pivots].to(like)).mT
        values = like.new_empty(count(X), len(self.pivots))
        for rows in row_blocks(len(values), len(self.pivots) * like.element_size()):
            values[rows] = self.cholesky.half_solve(self._cross(X[rows]).to(like).mT).mT
        return values

    def squared_norms(self, X: Data) -> Tensor:
        """The squared norms k(x_i, x_i) of the images."""
        return self.kernel._diag(X).to(self.cholesky.factor)

    def squared_distances(self, X: Data, values: Tensor, norms: Tensor) -> Tensor:
        """‖φ(x) − v‖² of elements v with these coordinates, row by row; ``norms`` are k(x, x)."""
        cross = (self.coordinates(X) * values).sum(-1)
        return norms - 2.0 * cross + values.square().sum(-1)

    def weights(self, values: Tensor) -> Tensor:
        """The w of Σ_j w_j φ(p_j) that has these coordinates, (n, r)."""
        return torch.linalg.solve_triangular(self.cholesky.factor.mT, values.mT, upper=True).mT

    @property
    def is_linear(self) -> bool:
        """Has every element a pre-image?"""
        return is_linear(self.kernel)

    def combine(self, values: Tensor) -> Any:
        """The vectors, or curves with times of their own, Σ_j w_j p_j with these coordinates."""
        return combination(self.kernel, self.points, self.weights(values))


@dataclass(frozen=True)
class StoredSpace:
    """A ``KernelSpace`` of arrays; the tensors are made when they are first asked for."""

    kernel: Kernel
    pivots: np.ndarray
    points: Data
    factor: np.ndarray
    representation: Representation

    @cached_property
    def loaded(self) -> KernelSpace:
        """The space of tensors."""
        how = self.representation
        factor = how.tensor(self.factor)
        points = how.inputs(self.kernel, self.points)
        cholesky = Cholesky(factor, factor.new_zeros(()))
        return KernelSpace(self.kernel, torch.from_numpy(self.pivots), points, cholesky)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


TargetSpace = FeatureSpace | KernelSpace


@dataclass(frozen=True)
class TargetStatistics:
    """What is known of the training samples in the target space.

    Parameters
    ----------
    centre : array (r,)
        Their mean.
    mean_squared_norm : float
    constant_norm : float or None
        k(x, x), where all samples have the same.
    variance : float
        Their mean squared distance from the centre.
    """

    centre: np.ndarray
    mean_squared_norm: float
    constant_norm: float | None
    variance: float

    @classmethod
    def of(
        cls, space: TargetSpace, X: Data, coordinates: Tensor, norms: Tensor, weights: Tensor | None
    ) -> TargetStatistics:
        """The statistics of prepared data with weights of mean one."""
        w = torch.ones_like(norms) if weights is None else weights
        centre = (w[:, None] * coordinates).mean(0)
        mean = (w * norms).mean().item()
        spread = (norms.max() - norms.min()).item()
        constant = spread <= len(norms) * torch.finfo(norms.dtype).eps * abs(mean)
        variance = (w * space.squared_distances(X, centre[None], norms)).mean().item()
        return cls(plain(centre, copy=True), mean, mean if constant else None, variance)


def explained(distortion: float, variance: float, norm: float, dtype: torch.dtype) -> float:
    """1 − distortion / variance; where there is no variance beyond the rounding of squared norms, 1 or 0."""
    eps = torch.finfo(dtype).eps
    if variance <= eps * norm:
        return 1.0 if distortion <= eps**0.5 * norm else 0.0
    return 1.0 - distortion / variance


def components_for(coordinates: Tensor, share: float) -> int:
    """The least number of principal components that keep a share of the variance."""
    variances = torch.linalg.svdvals(coordinates - coordinates.mean(0)).square()
    kept = variances.cumsum(0) / variances.sum()
    return int((kept < share * (1.0 - torch.finfo(kept.dtype).eps * len(kept))).sum().item()) + 1


def kernel_of_target(target: Any, kernel: Kernel | None, *, sparse: bool) -> Kernel | None:
    """The kernel whose RKHS is meant by ``target``; None where vectors are reconstructed as they are."""
    if isinstance(target, Kernel):
        return target
    domain = "vectors" if kernel is None else kernel.domain
    dense = domain == "vectors" and not sparse
    if target == "features" or (target == "auto" and dense and not isinstance(kernel, Functional)):
        if not dense:
            raise ValueError(
                f"target='features' reconstructs dense vectors, but {kernel!r} takes "
                f"{'sparse ones' if sparse else repr(domain)}. Use target='kernel': reconstructions in its RKHS."
            )
        return None
    if kernel is None:
        raise ValueError(
            "target='kernel' is the RKHS of a scalar kernel; this one is operator-valued. Give the kernel of the "
            "reconstructions itself: target=Gaussian(…)."
        )
    if target == "auto" and isinstance(kernel, Functional):  # curves, with the inner product of L²
        return kernel.with_kernel(Linear())
    return kernel
