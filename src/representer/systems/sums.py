"""Ridge regression on features from sums over the samples: normal equations, whatever the number of samples.

For features φ, targets y and weights w the sums S = Σ w φφᵀ, B = Σ w φyᵀ (and a few smaller ones) determine the fit for
every alpha: sums of parts add up, so that the parts may be blocks in memory, chunks on a cluster, or days. Where
targets are missing, every output has sums of its own, over the samples that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from representer.approximation import FeatureMap, LandmarkFeatures
from representer.kernels import Kernel
from representer.linalg import (
    Cholesky,
    Eigenpairs,
    eigh,
    empty_matrix,
    factorize,
    inverse_blocks,
    shifted,
    solve_blocks,
)
from representer.samples import Array, Block, Data, Step, count, take
from representer.samples import rows as limits
from representer.systems.base import group_members, relative_norm, whole_groups

# Solutions by eigenvectors are improved so many times at most; each time gains five digits at the least alpha.
REFINEMENTS = 5
# Up to so many distinct eigenvalues of the output operator, systems are factored, which costs less than eigenvectors of
# S and keeps more digits; those serve any number. So many factors are kept in memory.
FACTORED_SCALES, KEPT_FACTORS = 8, 2
# Eigenvalues that agree to this share of the largest are one.
EQUAL_SCALES = 1e-12
# A function of the features is nearly constant if its deviation is less than this share of its mean.
NEARLY_CONSTANT = 0.1
# Features are constant if what is left of their squares beside a constant is less than so many times their rounding.
CONSTANT = 16.0
# Rows of a panel of a Gram matrix of features: few, as half of each square on the diagonal is computed in vain.
PANEL = 128


# -- features beside a constant ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Frame:
    """ψ = Tᵀ(φ − a), the features as they are summed beside a constant; T is the identity, or has a column v.

    a is near the mean of φ, so that variances do not drown in the rounding of sums of squares. Where a wide kernel has
    functions vᵀφ that are nearly constant, S has hardly any curvature along v, and sums of φ know it to ε‖S‖ only. So
    one of the features is replaced by vᵀφ, whose sums are right to ε of its own small size.

    Parameters
    ----------
    middle : tensor or array (m,)
        a.
    direction : tensor or array (m,), or None for no such function
        v, with 1 at ``place``.
    place : int
        The feature that is replaced.
    """

    middle: Array
    direction: Array = None
    place: int = 0

    def map(self, change: Callable[[Array], Array]) -> Frame:
        """The frame with every array changed: tensors to NumPy and back."""
        direction = None if self.direction is None else change(self.direction)
        return replace(self, middle=change(self.middle), direction=direction)

    def __call__(self, phi: Tensor) -> Tensor:
        """ψ as rows, of φ as rows."""
        psi = torch.sub(phi, self.middle.to(phi), out=empty_matrix(phi.shape, phi))
        if self.direction is not None:
            psi[:, self.place] = psi @ self.direction.to(phi)
        return psi

    # -- T, the identity plus (v − e)eᵀ -------------------------------------------------------------------------------
    def _rest(self) -> Tensor:
        """The vector v − e: the direction with a zero in its place."""
        rest = self.direction.double().clone()
        rest[self.place] = 0.0
        return rest

    def turned(self, coefficients: Tensor) -> Tensor:
        """T η (m, p): the coefficients of φ, of those of ψ."""
        return torch.addr(coefficients, self._rest(), coefficients[self.place])

    def turned_back(self, coefficients: Tensor) -> Tensor:
        """T⁻¹ θ (m, p): the coefficients of ψ, of those of φ."""
        return torch.addr(coefficients, self._rest(), coefficients[self.place], alpha=-1.0)

    def rows_back(self, psi: Tensor) -> Tensor:
        """ψ T⁻¹ (n, m): features as rows, centred ones but in their own directions."""
        found = psi.clone()
        found[:, self.place] -= psi @ self._rest()
        return found

    def metric(self) -> Tensor:
        """The matrix TᵀT, with which ‖Tη‖² = ηᵀTᵀTη."""
        T = torch.eye(len(self.direction), dtype=torch.float64, device=self.direction.device)
        T[:, self.place] = self.direction
        return T.mT @ T


@dataclass(frozen=True)
class ChangedFeatures(FeatureMap):
    """A feature map that makes its features by another one."""

    features: FeatureMap

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The kernel that the features are of."""
        return self.features.kernel

    @property
    def n_features(self) -> int:
        """The number of features, which does not change."""
        return self.features.n_features

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features."""
        return self.features.dtype

    @property
    def state(self) -> Any:
        """The state of the features; there is no other."""
        return self.features.state


@dataclass(frozen=True)
class CentredFeatures(ChangedFeatures):
    """The features of another map, seen in a frame."""

    frame: Frame

    def __call__(self, X: Data) -> Tensor:
        return self.frame(self.features(X))


def frame_of(features: FeatureMap, X: Data) -> Frame:
    """The frame of features, by some samples; the middle by the landmarks, which batches of any size share."""
    phi = features(take(X, torch.from_numpy(limits.evenly_spaced(count(X), limits.MIDDLE_ROWS))))
    if not isinstance(features, LandmarkFeatures):
        return Frame(phi.mean(0))
    frame = Frame(features.factor.factor.mean(0))
    if features.dtype != torch.float64:
        return frame
    direction, place = features.constant()
    values = phi @ direction
    if not bool(values.std(correction=0) < NEARLY_CONSTANT * values.mean().abs()):
        return frame
    return replace(frame, direction=direction, place=place)


# -- sums over the samples --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class NormalSums:
    """What ridge regression on m features needs to know of the samples; of ``gram``, the lower triangle counts."""

    n: int  # samples of positive weight
    weight: float  # Σ w
    gram: Array  # Σ w φφᵀ, (m, m)
    cross: Array  # Σ w φyᵀ, (m, p)
    squares: Array  # Σ w yyᵀ, (p, p)
    feature_sum: Array  # Σ w φ, (m,)
    target_sum: Array  # Σ w y, (p,)

    def __add__(self, other: NormalSums) -> NormalSums:
        return NormalSums(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(NormalSums)})

    @classmethod
    def zeros(cls, m: int, p: int, *, like: Tensor) -> NormalSums:
        """The sums over no samples."""
        shapes = ((m, m), (m, p), (p, p), (m,), (p,))
        return cls(0, 0.0, *(like.new_zeros(shape, dtype=torch.float64) for shape in shapes))

    def combined(self, matrix: Tensor) -> NormalSums:
        """The sums for the targets Mᵀy, with M (p, q): combinations of the old ones."""
        return replace(
            self,
            cross=self.cross @ matrix,
            squares=matrix.mT @ self.squares @ matrix,
            target_sum=self.target_sum @ matrix,
        )

    def map(self, change: Callable[[Array], Array]) -> NormalSums:
        """The sums with every array changed: tensors to NumPy and back."""
        arrays = ("gram", "cross", "squares", "feature_sum", "target_sum")
        return replace(self, **{name: change(getattr(self, name)) for name in arrays})


@dataclass(frozen=True)
class NormalStep(Step):
    """Adds the samples of a block to the sums; blocks may be in single precision, sums are double."""

    features: FeatureMap
    targets: FeatureMap | None = None  # features of outputs that are no targets themselves

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """Columns, features, and a weighted copy of them."""
        return sum(
            2 * own.n_features * own.dtype.itemsize + own.bytes_per_row
            for own in (self.features, self.targets)
            if own is not None
        )

    def __call__(self, block: Block, total: NormalSums | None) -> NormalSums:
        B = self.features(block.X)
        Y = (block.Y if self.targets is None else self.targets(block.Y)).to(torch.float64)
        total = NormalSums.zeros(B.shape[1], Y.shape[1], like=Y) if total is None else total
        return add_rows(total, B, Y, block.weights)


def add_rows(total: NormalSums, B: Tensor, Y: Tensor, w: Tensor | None) -> NormalSums:
    """The sums with these rows of features and targets added to their arrays, in place."""
    n, weight, root = len(Y), float(len(Y)), Y.new_ones(len(Y), 1)
    if w is not None:
        n, weight, root = int((w > 0).sum()), float(w.double().sum()), w.double().sqrt()[:, None]
        B, Y = B * root.to(B), Y * root
    columns = torch.cat([Y, root], 1)
    small = columns.to(B).mT @ B  # a product of few rows is faster than one of few columns
    corner = columns.mT @ Y
    add_gram(total.gram, B)
    total.cross.add_(small[:-1].mT)
    total.feature_sum.add_(small[-1])
    total.squares.add_(corner[:-1])
    total.target_sum.add_(corner[-1])
    return replace(total, n=total.n + n, weight=total.weight + weight)


def add_gram(total: Tensor, B: Tensor) -> None:
    """Add BᵀB to the lower triangle of a double matrix, in panels of rows that end at the diagonal."""
    for first in range(0, len(total), PANEL):
        rows = slice(first, first + PANEL)
        panel, left, right = total[rows, : rows.stop], B[:, rows].mT, B[:, : rows.stop]
        if B.dtype == total.dtype:
            panel.addmm_(left, right)
        else:
            panel.add_(left @ right)


def symmetric(lower: Tensor) -> Tensor:
    """The symmetric matrix with this lower triangle, in new memory."""
    full = lower.tril()
    return full.add_(full.tril(-1).mT)


class NormalRidge:
    """min Σ w‖y − b − f(x)‖²/Σ w + alpha‖f‖² for f = φ(·)ᵀU A, with A = V diag(a) Vᵀ, from the sums.

    In the coordinates Vᵀy the outputs come apart: (a_j S + alpha Σ w) u_j = B_j. One eigendecomposition of S serves
    every alpha and every a_j.

    Parameters
    ----------
    sums : NormalSums
        Of tensors.
    scales : tensor (p,)
        The a_j.
    rotation : tensor (p, p) or None
        V; None for the identity.
    intercept : bool
        Is there a constant b?
    weight : float or None
        What alpha is multiplied by; None is the weight Σ w of the sums.
    frame : Frame or None
        That of the summed features ψ = Tᵀ(φ − a), if they are not φ itself. Coefficients are those of φ; features that
        are given are ψ.

    Examples
    --------
    >>> import torch
    >>> from representer.approximation import Landmarks
    >>> from representer.systems.sums import NormalRidge, NormalStep
    >>> from representer.samples import Block, InMemory
    >>> from representer.kernels import Linear
    >>> X, Y = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double()
    >>> features = Landmarks([[1.0]]).features(Linear(), X, seed=0)
    >>> ridge = NormalRidge(InMemory(Block(X, Y)).total(NormalStep(features)), torch.ones(1).double())
    >>> round(ridge.coefficients(alpha=2.5).item(), 4)  # xᵀy / (xᵀx + 5)
    0.5
    """

    def __init__(
        self,
        sums: NormalSums,
        scales: Tensor,
        rotation: Tensor | None = None,
        *,
        intercept: bool = False,
        weight: float | None = None,
        frame: Frame | None = None,
    ):
        self.sums = sums
        self.weight = sums.weight if weight is None else weight
        self.scales = scales
        self.rotation = rotation
        self.intercept = intercept
        self.frame = frame
        self._turn = None if frame is None or frame.direction is None else frame
        self._known: tuple[float, list[tuple[Tensor, Cholesky]]] | None = None
        W = sums.weight
        self.feature_mean = sums.feature_sum / W if intercept else torch.zeros_like(sums.feature_sum)
        self.target_mean = sums.target_sum / W if intercept else torch.zeros_like(sums.target_sum)
        cross = sums.cross - W * torch.outer(self.feature_mean, self.target_mean)
        squares = sums.squares - W * torch.outer(self.target_mean, self.target_mean)
        self._is_constant = intercept and bool(self._variance() <= self._rounding())
        self._summed_cross = self._rotated(torch.zeros_like(cross) if self._is_constant else cross)
        self.cross = self._unturned(self._summed_cross.mT).mT
        self.square = squares.diagonal() if rotation is None else ((squares @ rotation) * rotation).sum(0)

    # -- features that are constant -----------------------------------------------------------------------------------
    def _variance(self) -> Tensor:
        """The sum over features of their variances, by the sums, which may be negative by rounding."""
        return self.sums.gram.diagonal().sum() / self.sums.weight - self.feature_mean.square().sum()

    def _rounding(self) -> Tensor:
        """What variances of constant features may be by rounding: of the sums, and of the features before the frame."""
        squares = self.sums.gram.diagonal().sum() / self.sums.weight
        if self.frame is None:
            return CONSTANT * torch.finfo(squares.dtype).eps * squares
        eps, middle = torch.finfo(self.frame.middle.dtype).eps, self.frame.middle.to(squares)
        return CONSTANT * eps * (squares + CONSTANT * eps * len(middle) * middle.square().sum())

    def _centred(self, features: Tensor) -> Tensor:
        """Features from their mean; from a mean that all samples share, rounding is no difference."""
        centred = features.double() - self.feature_mean
        if self._is_constant:
            centred[centred.square().sum(1) <= self._rounding()] = 0.0
        return centred

    @property
    def trace(self) -> Tensor:
        """Σ w‖φ‖², centred where there is an intercept, unless features are constant: their own size is their scale."""
        if not self._is_constant:
            return self.spectrum.values.sum()
        mean = self._unturned(self.feature_mean[None])[0]
        mean = mean if self.frame is None else mean + self.frame.middle.to(mean)
        return self.sums.weight * mean.square().sum()

    def _rotated(self, values: Tensor) -> Tensor:
        return values if self.rotation is None else values @ self.rotation

    def _rotated_back(self, values: Tensor) -> Tensor:
        return values if self.rotation is None else values @ self.rotation.mT

    def _unturned(self, rows: Tensor) -> Tensor:
        """Rows in the directions of φ, of those in the directions of ψ."""
        return rows if self._turn is None else self._turn.rows_back(rows)

    def _summed_gram(self) -> Tensor:
        if self._is_constant:
            return torch.zeros_like(self.sums.gram)
        gram = symmetric(self.sums.gram)
        if self.intercept:
            gram.addr_(self.feature_mean, self.feature_mean, alpha=-self.sums.weight)
        return gram

    def _gram(self) -> Tensor:
        """The sums S of φ; a direction that stands alone in the sums is turned back."""
        return self._unturned(self._unturned(self._summed_gram()).mT)

    @cached_property
    def spectrum(self) -> Eigenpairs:
        """The spectrum of S, centred where there is an intercept."""
        # The sums are double, but blocks may have been single.
        return eigh(self._gram(), name="The Gram matrix of the features", overwrite=True, dtype=torch.float32)

    def _groups(self) -> list[tuple[Tensor, Tensor]]:
        """The distinct a_j, each with its outputs."""
        unit = EQUAL_SCALES * self.scales.abs().max().clamp(min=torch.finfo(self.scales.dtype).tiny)
        _, members = torch.unique((self.scales / unit).round(), return_inverse=True)
        outputs = [(members == g).nonzero()[:, 0] for g in range(int(members.max()) + 1)]
        return [(self.scales[some[0]], some) for some in outputs]

    # -- the fit ------------------------------------------------------------------------------------------------------
    def rotated_coefficients(self, alpha: float) -> Tensor:
        """The u_j as columns: by a Cholesky factor for each a_j, or by eigenvectors where there are many of them."""
        if len(self._groups()) > FACTORED_SCALES:
            shift = alpha * self.weight
            return self._refined(self._by_spectrum(self.cross, shift), shift)
        found = torch.zeros_like(self.cross)
        for outputs, factor in self._factors(alpha):
            found[:, outputs] = factor.solve(self._summed_cross[:, outputs])
        return found if self._turn is None else self._turn.turned(found)

    def _factors(self, alpha: float) -> Iterable[tuple[Tensor, Cholesky]]:
        """The outputs of every distinct a_j, and a factor of a_j S + alpha Σ w; few are kept until alpha changes."""
        groups, shift = self._groups(), alpha * self.weight
        name = "The normal equations plus n·alpha"
        factors = ((outputs, factorize(partial(self._shifted, scale, shift), name=name)) for scale, outputs in groups)
        if len(groups) > KEPT_FACTORS:
            return factors
        if self._known is None or self._known[0] != alpha:
            self._known = (alpha, list(factors))
        return self._known[1]

    def _by_spectrum(self, right: Tensor, shift: float) -> Tensor:
        inside = self.spectrum.vectors.mT @ right
        return self.spectrum.vectors @ (inside / (self.spectrum.values[:, None] * self.scales + shift))

    def _refined(self, found: Tensor, shift: float) -> Tensor:
        """The solution to the digits of S: eigenvectors are known to ε‖S‖, small features to ε of their size."""
        gram, size = self._gram(), float("inf")
        for _ in range(REFINEMENTS):
            residual = self.cross - (gram @ found) * self.scales - shift * found
            change = self._by_spectrum(residual, shift)
            last, size = size, float(torch.linalg.vector_norm(change))
            if not size < 0.5 * last:  # rounding is all that is left, or alpha is too small for it
                break
            found = found + change
        return found

    def _shifted(self, scale: Tensor, shift: float) -> Tensor:
        gram = self._summed_gram().mul_(scale)
        return shifted(gram, shift) if self._turn is None else gram.add_(self._turn.metric(), alpha=shift)

    def _of_sums(self, coefficients: Tensor) -> Tensor:
        """The coefficients of ψ, of those of φ."""
        return coefficients if self._turn is None else self._turn.turned_back(coefficients)

    def coefficients(self, alpha: float) -> Tensor:
        """U (m, p), with f(x) = φ(x)ᵀU A."""
        return self._rotated_back(self.rotated_coefficients(alpha))

    def weighted_coefficients(self, alpha: float) -> Tensor:
        """Θ = U A (m, p), with f(x) = φ(x)ᵀΘ; V may have some of A's eigenvectors only."""
        return self._rotated_back(self.rotated_coefficients(alpha) * self.scales)

    def intercepts(self, coefficients: Tensor) -> Tensor:
        """The constants b (p,) beside a function with these coefficients."""
        weighted = self._rotated_back(self._rotated(coefficients) * self.scales)
        b = self.target_mean - self.feature_mean @ self._of_sums(weighted)
        return b if self.frame is None else b - self.frame.middle.to(weighted) @ weighted

    def training_error(self, alpha: float) -> float:
        """Σ w‖y − b − f(x)‖²/Σ w at the fit, from the sums alone."""
        u, shift = self.rotated_coefficients(alpha), alpha * self.weight
        explained = self.scales * ((self.cross * u).sum(0) + shift * u.square().sum(0))
        return float((self.square - explained).sum().clamp(min=0.0) / self.weight)

    # -- its error ----------------------------------------------------------------------------------------------------
    def generalised(self, alphas: Tensor) -> Tensor:
        """The generalised cross-validation errors of many alphas, from the sums alone."""
        inside, s = self.spectrum.vectors.mT @ self.cross, self.spectrum.values
        errors = torch.zeros_like(alphas)
        for i, shift in enumerate(alphas * self.weight):
            filters = 1.0 / (s[:, None] * self.scales + shift)
            # Σ w(y − f)² = Σ w y² − a ΣB u − shift · a Σ u²
            explained = self.scales * (inside**2 * filters * (1.0 + shift * filters)).sum(0)
            residual = (self.square - explained).clamp(min=0.0) / self.weight
            freedom = (s[:, None] * self.scales * filters).sum(0) + float(self.intercept)
            errors[i] = (residual / (1.0 - freedom / self.sums.n) ** 2).sum()
        return errors

    def coordinates(self, features: Tensor) -> Tensor:
        """Features of samples in the eigenvectors of S, (n, m)."""
        return self._unturned(self._centred(features)) @ self.spectrum.vectors

    def left_out(self, coordinates: Tensor, block: Block, alphas: Tensor) -> Tensor:
        """y_i − f₋ₛ(x_i) (n, p, number of alphas) for samples of the fit, each without its group S or alone.

        In rotated coordinates; without i the shift alpha·Σ w stays what it is.
        """
        Y = self._rotated(block.Y.double() - self.target_mean)
        w = block.full_weights(Y)
        inside, squares = self.spectrum.vectors.mT @ self.cross, coordinates**2
        residuals = Y.new_empty(*Y.shape, len(alphas))
        base = 1.0 - (w / self.sums.weight if self.intercept else torch.zeros_like(w))
        for scale, outputs in self._groups():
            filters = scale / (scale * self.spectrum.values[:, None] + alphas * self.weight)
            kept = (base[:, None] - w[:, None] * (squares @ filters)).clamp(min=torch.finfo(Y.dtype).eps)
            for j in outputs:
                missed = Y[:, j, None] - coordinates @ (inside[:, j, None] * filters)
                residuals[:, j] = missed / kept if block.groups is None else missed
            if block.groups is not None:
                for a, values in enumerate(filters.mT):
                    rows = coordinates * values.clamp(min=0.0).sqrt()
                    for index, change in self._changes(rows, block):
                        places = index[:, :, None], outputs, a
                        residuals[places] = solve_blocks(change, residuals[places])
        return residuals

    def _changes(self, rows: Tensor, block: Block) -> Iterator[tuple[Tensor, Tensor]]:
        """The groups of each size, and the matrices I − H_SS diag(w_S) of their leverages.

        ``rows`` Z have the leverages w_i Z_iZ_iᵀ, but for constants.
        """
        assert block.groups is not None
        w = block.full_weights(rows)
        for index in group_members(block.groups):
            Z = rows[index]
            change = Z @ Z.mT + (1.0 / self.sums.weight if self.intercept else 0.0)
            yield index, torch.eye(index.shape[1], dtype=Z.dtype) - change * w[index][:, None, :]

    def leave_one_out(self, coordinates: Tensor, block: Block, alphas: Tensor, limit: int | None = None) -> Tensor:
        """The mean squared leave-one-out errors of many alphas, over some of the samples of the fit."""
        errors, weight = torch.zeros_like(alphas), 0.0
        size = 8 * (coordinates.shape[1] + 3 * len(self.scales) * len(alphas))
        for rows in whole_groups(block.groups, len(block), size, limit):
            part = block.rows(rows.numpy())
            residuals = self.left_out(coordinates[rows], part, alphas)
            w = part.full_weights(residuals)
            errors += torch.einsum("i,ija->a", w, residuals**2)
            weight += float(w.sum())
        return errors / weight

    def variance(self, features: Tensor, alpha: float) -> Tensor:
        """The diagonal of the covariance of f + b at new points, (n, p): alpha Σ w · a φᵀ(aS + alpha Σ w)⁻¹φ.

        b, which has a flat prior, adds alpha, and φ and S are then centred.
        """
        shift = alpha * self.weight
        rotated = shift * self._leverages(features, alpha)
        if self.intercept:
            rotated = rotated + shift / self.sums.weight
        return rotated if self.rotation is None else rotated @ (self.rotation**2).mT

    def _leverages(self, features: Tensor, alpha: float) -> Tensor:
        """a_j φᵀ(a_j S + alpha Σ w)⁻¹φ for every output, (n, p), φ centred where there is an intercept."""
        shift = alpha * self.weight
        if len(self._groups()) > FACTORED_SCALES:
            values = self.spectrum.values[:, None] * self.scales + shift
            return self.coordinates(features) ** 2 @ (self.scales / values)
        found = self.scales.new_empty(len(features), len(self.scales))
        for outputs, rows in self._rows(features, alpha):
            found[:, outputs] = rows.square().sum(1, keepdim=True)
        return found

    def _rows(self, features: Tensor, alpha: float) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs of equal scales, each with the rows Z of which ZZᵀ = a φᵀ(aS + alpha Σ w)⁻¹φ."""
        if len(self._groups()) <= FACTORED_SCALES:
            for outputs, factor in self._factors(alpha):
                rows = factor.half_solve_rows(self._centred(features))
                yield outputs, rows.mul_(self.scales[outputs[0]].sqrt())
            return
        coordinates = self.coordinates(features)
        for scale, outputs in self._groups():
            yield outputs, coordinates * (scale / (scale * self.spectrum.values + alpha * self.weight)).sqrt()

    def left_out_at(self, features: Tensor, block: Block, alpha: float) -> tuple[Tensor, Tensor]:
        """What ``left_out`` gives of one alpha, to more digits, from features; and 1 − h_i of leverages, (n, p) each.

        Of samples in groups, the second is what 1 − h_i stands for in the variance of y_i − f₋ₛ(x_i).
        """
        Y = self._rotated(block.Y.double() - self.target_mean)
        w = block.full_weights(Y)
        rest = 1.0 - w[:, None] * self._leverages(features, alpha)
        rest = (rest - (w[:, None] / self.sums.weight if self.intercept else 0.0)).clamp(min=torch.finfo(Y.dtype).eps)
        coefficients = self._of_sums(self.rotated_coefficients(alpha) * self.scales)
        missed = Y - self._centred(features) @ coefficients
        if block.groups is None:
            return missed / rest, rest
        found = torch.empty_like(missed)
        for outputs, rows in self._rows(features, alpha):
            for index, change in self._changes(rows, block):
                places = index[:, :, None], outputs
                found[places] = solve_blocks(change, missed[places])
                rest[places] = 1.0 / inverse_blocks(change).diagonal(dim1=-2, dim2=-1)[:, :, None]
        return found, rest

    def left_out_changes(self, features: Tensor, held: Tensor, block: Block, alpha: float) -> tuple[Tensor, Tensor]:
        """f(x) − f₋ₛ(x) (m, n, p) at new features without the group S of each sample, and how its variance grows.

        ``held`` are the features of the samples in ``block``.
        """
        shape = (len(features), len(held), len(self.scales))
        changes, added = self.cross.new_empty(shape), self.cross.new_empty(shape)
        w = block.full_weights(self.cross)
        constant = 1.0 / self.sums.weight if self.intercept else 0.0
        groups = block.groups if block.groups is not None else torch.arange(len(held))
        alone = replace(block, groups=groups)
        residuals = self.left_out_at(held, alone, alpha)[0]
        pairs = zip(self._rows(features, alpha), self._rows(held, alpha), strict=True)
        for (outputs, new), (_, rows) in pairs:
            influence = (new @ rows.mT + constant) * w
            for index, change in self._changes(rows, alone):
                g = influence[:, index]  # (m, groups, size)
                part = torch.einsum("mgs,gsq->mgq", g, residuals[:, outputs][index])
                # P_SS = W(I − HW)/shift, so that gᵀP_SS⁻¹g = shift·gᵀ(I − HW)⁻¹W⁻¹g
                solved = solve_blocks(change, (g / w[index]).permute(1, 2, 0)).permute(2, 0, 1)
                grown = alpha * self.weight * (g * solved).sum(-1)
                for j, output in enumerate(outputs.tolist()):
                    changes[:, index, output] = part[:, :, j, None]
                    added[:, index, output] = grown[:, :, None]
        if self.rotation is None:
            return changes, added
        return changes @ self.rotation.mT, added @ (self.rotation**2).mT

    def residual(self, alpha: float) -> float:
        """The norm of B − (aS + alpha Σ w)u, over that of B."""
        u = self.rotated_coefficients(alpha)
        return relative_norm(self.cross - (self._gram() @ u) * self.scales - alpha * self.weight * u, self.cross)


# -- outputs with sums of their own -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class SeparateSums:
    """The sums of each output over the samples that have it; ``weight`` is that of all samples."""

    weight: float
    parts: tuple[NormalSums, ...]

    def __add__(self, other: SeparateSums) -> SeparateSums:
        both = zip(self.parts, other.parts, strict=True)
        return SeparateSums(self.weight + other.weight, tuple(one + two for one, two in both))

    def map(self, change: Callable[[Array], Array]) -> SeparateSums:
        """The sums with every array changed: tensors to NumPy and back."""
        return SeparateSums(self.weight, tuple(part.map(change) for part in self.parts))

    @property
    def cross(self) -> Array:
        """The products Σ w φyᵀ of features and targets, (m, p)."""
        return torch.cat([torch.as_tensor(part.cross) for part in self.parts], 1)


@dataclass(frozen=True)
class SeparateStep(Step):
    """Adds the samples of a block to the sums; a target that is NaN does not count. Costs p·m² a sample."""

    features: FeatureMap

    @property
    def bytes_per_row(self) -> int:  # type: ignore[override]
        """Columns, features, and those of one output."""
        return 3 * self.features.n_features * self.features.dtype.itemsize + self.features.bytes_per_row

    def __call__(self, block: Block, total: SeparateSums | None) -> SeparateSums:
        B, Y = self.features(block.X), block.Y.to(torch.float64)
        w = block.full_weights(Y)
        if total is None:
            empty = (NormalSums.zeros(B.shape[1], 1, like=Y) for _ in range(Y.shape[1]))
            total = SeparateSums(0.0, tuple(empty))
        known = ~Y.isnan() & (w > 0)[:, None]
        outputs = zip(total.parts, Y.mT, known.mT, strict=True)
        parts = tuple(add_rows(part, B[rows], y[rows, None], w[rows]) for part, y, rows in outputs)
        return SeparateSums(total.weight + float(w.sum()), parts)


class SeparateRidge:
    """What ``NormalRidge`` is for complete targets, output by output; the operator is diagonal, diag(a).

    (a_j S_j + alpha Σ w) u_j = B_j, with the S_j of the samples that have output j, and the weight of all of them. The
    arguments are those of ``NormalRidge``.
    """

    rotation = None

    def __init__(self, sums: SeparateSums, scales: Tensor, *, intercept: bool = False, frame: Frame | None = None):
        self.sums = sums
        self.scales = scales
        self.weight = sums.weight
        self.intercept = intercept
        self.cross = sums.cross
        self.parts = [
            NormalRidge(part, scale[None], intercept=intercept, weight=sums.weight, frame=frame)
            for part, scale in zip(sums.parts, scales, strict=True)
        ]

    @property
    def trace(self) -> Tensor:
        """The trace of the output with the most samples."""
        return max(self.parts, key=lambda part: part.sums.n).trace

    def coefficients(self, alpha: float) -> Tensor:
        """U (m, p), with f(x) = φ(x)ᵀU A."""
        return torch.cat([part.coefficients(alpha) for part in self.parts], 1)

    def intercepts(self, coefficients: Tensor) -> Tensor:
        """The constants b (p,) beside a function with these coefficients."""
        columns = coefficients.mT[:, :, None]
        return torch.cat([part.intercepts(u) for part, u in zip(self.parts, columns, strict=True)])

    def coordinates(self, features: Tensor) -> Tensor:
        """The features, of which every output has coordinates of its own."""
        return features.double()

    def _blocks(self, block: Block) -> Iterator[tuple[NormalRidge, Block]]:
        """The samples as each output sees them: one without its target has weight zero."""
        Y = block.Y.double()
        w = block.full_weights(Y)
        for part, y in zip(self.parts, Y.mT, strict=True):
            known = ~y.isnan()
            yield part, Block(block.X, torch.where(known, y, 0.0)[:, None], known * w, block.groups)

    def left_out_at(self, features: Tensor, block: Block, alpha: float) -> tuple[Tensor, Tensor]:
        """What it is of ``NormalRidge``; where there is no target, −f₋ₛ(x_i) and 1."""
        found = [part.left_out_at(features, own, alpha) for part, own in self._blocks(block)]
        residuals, rest = zip(*found, strict=True)
        return torch.cat(residuals, 1), torch.cat(rest, 1)

    def leave_one_out(self, coordinates: Tensor, block: Block, alphas: Tensor, limit: int | None = None) -> Tensor:
        """The mean squared leave-one-out errors of many alphas, over the known targets of some samples of the fit."""
        total = float(block.full_weights(coordinates).sum())
        errors = torch.zeros_like(alphas)
        for part, own in self._blocks(block):
            assert own.weights is not None
            known = own.rows((own.weights > 0).nonzero()[:, 0].numpy())
            if not len(known):
                continue
            rows = coordinates[own.weights > 0]
            own_limit = None if limit is None else max(1, limit - rows.numel() * 8)
            found = part.leave_one_out(part.coordinates(rows), known, alphas, own_limit)
            errors += found * float(own.weights.sum()) / total
        return errors

    def generalised(self, alphas: Tensor) -> Tensor:
        """The generalised cross-validation errors of many alphas, from the sums alone."""
        return torch.stack([part.generalised(alphas) for part in self.parts]).sum(0)

    def variance(self, features: Tensor, alpha: float) -> Tensor:
        """The diagonal of the covariance of f + b at new points, (n, p)."""
        return torch.cat([part.variance(features, alpha) for part in self.parts], 1)

    def residual(self, alpha: float) -> float:
        """The largest backward error of an output."""
        return max(part.residual(alpha) for part in self.parts)
