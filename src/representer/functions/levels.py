"""Levels of hidden features: the function that deep kernel PCA finds, and its extension to new samples.

With the weights W_j of the training data, a new x has the h_1, …, h_L for which (A.1 of Tonin et al.)

    Λ_j h_j = H_jᵀ k_j(h_{j−1}) / η_j + Σ_n ∂k_{j+1}(h_j, h_{j,n})/∂h_j (h_{j+1,n}ᵀ h_{j+1}) / η_{j+1},

where k_j(h) holds the kernel of h with the training samples' hidden features, k_1(x) that of the data, and the second
term is missing at the last level. Where the features of level j are centred, k_j(h) minus its mean over the training
samples takes the place of k_j(h), and H_j minus its means that of H_j, in all products with either.

Training points solve the equations with their own hidden features, as far as a fit solves its equations. What is left
there is taken off the equations of the new points that are nearest to them, so that training points solve theirs to
rounding, and points near them have hidden features near theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from representer.functions.base import Function, Span
from representer.kernels import Centered, Gaussian, Kernel, Linear
from representer.linalg import (
    Limits,
    broyden,
    jacobian,
    levenberg_marquardt,
    power_of_two,
    require_gram,
    row_blocks,
)
from representer.operators import Decomposable, Projected, Representation, original, repaired_gram, silent_repairs
from representer.samples import Data, count, evenly_spaced, plain, take
from representer.values import number

# Hidden features that differ by less than this share of the largest are the same; in single precision it is √eps.
SAME = 1e-6
# Centring cancels if k(x, x) is so many times larger than what it leaves.
CANCELS = 100.0
# A solution has been found when a step moves no hidden feature by more than this share of the largest one.
ACCURACY = 1e-10
MAX_ITER = 50
# The rounding of a sum of N terms in units of √N eps: kernels of differences of large numbers have lost some digits.
ROUNDING = 16.0
# A solution that has strayed to features so many times the largest is one far from all samples: rounding has led there.
FARTHEST = 3.0
# A solution is determined if the rounding of its equations moves no hidden feature by more than eps to this power.
DETERMINED = 0.25
# An exported program cannot ask whether it has converged: it takes so many steps, a few more than most samples need.
EXPORTED_STEPS = 20
# A solution further from its start than so many Newton steps from there may belong to another sample.
REACH = 3.0
# A Gram matrix is divided by a unit where its size is not within so many powers of two of 1, and a level that outweighs
# another by more counts for as many: squares, and products of squares, of such sizes are in the range of numbers, and
# a share of as little is less than rounding.
POWERS = {torch.float64: 100, torch.float32: 30}


def unit_of(gram: Tensor) -> float:
    """What a Gram matrix is divided by so that squares of it are in range: 1, or a power of two, which rounds none."""
    return _unit_of_size(len(gram) * gram.abs().max())


def _unit_of_size(size: Tensor) -> float:
    powers = POWERS[size.dtype]
    return 1.0 if 2.0**-powers < size < 2.0**powers else power_of_two(size).item()


def weighed(etas: Sequence[float], unit: float, dtype: torch.dtype) -> tuple[float, ...]:
    """The η_j beside a Gram matrix K_1 that is divided by a unit: η_1 / unit, and those of the upper levels.

    Where K_1/η_1 outweighs the level above by more than rounding can tell, or is outweighed so, it is weighed as if by
    ``POWERS`` only. Hidden features do not depend on it: a level feels another one of so little weight as much as none.
    """
    above = abs(etas[1]) if len(etas) > 1 else 1.0
    apart, powers = math.log2(unit) + math.log2(above) - math.log2(abs(etas[0])), POWERS[dtype]
    if abs(apart) <= powers:
        return etas[0] / unit, *etas[1:]
    return math.copysign(above * 2.0 ** -math.copysign(powers, apart), etas[0]), *etas[1:]


def slope(kernel: Kernel, points: Tensor, anchors: Tensor, weights: Tensor, gram: Tensor | None = None) -> Tensor:
    """Σ_n w_in ∂k(h_i, a_n)/∂h_i for each point h_i and anchors a_n: (m, s). ``gram`` is k(points, anchors), if known.

    It takes two products for the Gaussian kernel, and autograd for any other.
    """
    if isinstance(kernel, Linear):
        return weights @ anchors
    if isinstance(kernel, Gaussian):
        gram = kernel._gram(points, anchors) if gram is None else gram
        M = weights * gram
        return (M @ anchors - M.sum(1, keepdim=True) * points) / number(kernel, "lengthscale", points) ** 2
    with torch.enable_grad():
        leaf = points.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad((kernel._gram(leaf, anchors) * weights).sum(), leaf)
    return gradient


def deviations(H: Tensor) -> Tensor:
    """C H = (I − 11ᵀ/N) H: every column minus its mean."""
    return H - H.mean(0)


# -- the level of the data --------------------------------------------------------------------------------------------
class LoadedData(NamedTuple):
    """The tensors of a ``DataLevel``."""

    kernel: Kernel  # in the precision of the data, and projected where the Gram matrix was repaired
    anchors: Data  # prepared
    means: Tensor | None
    diagonal: Tensor


@dataclass(frozen=True)
class DataLevel(Function):
    """The kernel of the data with the training samples, x ↦ (⟨φ(x) − m, φ(x_n) − m⟩)_n, where m = 0 if not centred.

    Products of points far from zero are as large as their squared offset, and cancel when they are centred: where
    points are their own features, their mean is taken off before they are multiplied. What below is called k(x, x_n),
    not centred, is then that of these differences.

    Values far from 1, as of data in small or large units, would have squares out of the range of numbers: they are
    divided by a power of two.
    """

    kernel: Kernel  # with numbers for all hyperparameters
    anchors: Data  # the training samples as they are stored
    representation: Representation
    means: np.ndarray | None  # the mean of each training column of k; None if features are not centred
    grand_mean: float  # the mean of the means
    diagonal: np.ndarray  # k(x_n, x_n), not centred
    vectors: np.ndarray | None  # the eigenvectors that stayed when an indefinite Gram matrix was repaired
    of_differences: bool = False  # Are products those of differences from the mean of the training samples?
    unit: float = 1.0  # what all values are divided by: the kernel's own and those that are kept here

    @classmethod
    def of(
        cls, kernel: Kernel, X: Data, representation: Representation, *, center: bool, weighs: bool = False
    ) -> tuple[DataLevel, Tensor]:
        """The level of training data, and their Gram matrix; refuse data that are all the same to the kernel.

        A kernel that weighs samples, in the smoother, is one of the points as they are.
        """
        data = representation.inputs(kernel, X)
        require_gram(count(data), count(data))
        adapted = representation.adapted(Decomposable(kernel), repair=True).resolve(data)
        assert isinstance(adapted, Decomposable)
        resolved = original(adapted.kernel)
        dense = isinstance(data, Tensor) and kernel.domain == "vectors"
        of_differences = center and not weighs and dense and resolved.features(data) is data
        gram, vectors = repaired_gram(Centered(resolved, data) if of_differences else adapted.kernel, data)
        diagonal, means = gram.diagonal().clone(), gram.mean(0) if center else None
        level = cls(
            resolved,
            plain(X, copy=True),
            representation,
            plain(means),
            0.0 if means is None else means.mean().item(),
            plain(diagonal),
            plain(vectors, copy=True),
            of_differences,
        )
        gram = level._centered(gram, means)
        largest, info = gram.abs().max().item(), torch.finfo(gram.dtype)
        if not len(gram) * largest < info.max:  # It may be NaN.
            raise ValueError(
                f"The Gram matrix of {resolved!r} is not finite, or its sums overflow. Scale the data, for example by "
                "StandardScaler, or choose another kernel."
            )
        if 0 < largest < info.tiny / info.eps:
            raise ValueError(
                f"The Gram matrix of {resolved!r} has no entry above {largest:.1e}, and numbers below "
                f"{info.tiny / info.eps:.1e} lose their digits. Scale the data, for example by StandardScaler."
            )
        if gram.max() - gram.min() <= len(gram) * torch.finfo(gram.dtype).eps * diagonal.abs().max():
            raise ValueError(
                f"{resolved!r} gives the same value for every pair of samples, to rounding: there is nothing to find "
                "components of. Check the data, or choose a kernel that depends on its input."
            )
        unit = unit_of(gram)
        return (level, gram) if unit == 1.0 else (level._in(unit), gram.div_(unit))

    def _in(self, unit: float) -> DataLevel:
        """The same level, divided by a unit."""
        means = None if self.means is None else self.means / unit
        return replace(self, means=means, grand_mean=self.grand_mean / unit, diagonal=self.diagonal / unit, unit=unit)

    def _divided(self, values: Tensor) -> Tensor:
        """Values of the kernel in the unit of the level."""
        return values if self.unit == 1.0 else values / self.unit

    @cached_property
    def loaded(self) -> LoadedData:
        """The tensors of the level."""
        how = self.representation
        adapted = how.adapted(Decomposable(self.kernel), repair=True)
        assert isinstance(adapted, Decomposable)
        kernel = adapted.kernel if self.vectors is None else Projected(adapted.kernel, how.tensor(self.vectors))
        anchors = how.inputs(self.kernel, self.anchors)
        kernel = Centered(kernel, anchors) if self.of_differences else kernel
        means = None if self.means is None else how.tensor(self.means)
        return LoadedData(kernel, anchors, means, how.tensor(self.diagonal))

    def inputs(self, X: Data) -> Data:
        """Checked inputs as the kernel takes them."""
        return self.representation.inputs(self.kernel, X)

    def __call__(self, X: Data) -> Tensor:
        """⟨φ(x) − m, φ(x_n) − m⟩, (m, n)."""
        return self.centered(self.rows(self.inputs(X)))

    def gram(self, *, center: bool = True) -> Tensor:
        """The Gram matrix of the training data, centred if that was asked for."""
        with silent_repairs():  # The fit has spoken of a repair.
            gram = self._divided(self.loaded.kernel._gram(self.loaded.anchors, None))
        return self._centered(gram, self.loaded.means) if center else gram

    def _centered(self, gram: Tensor, means: Tensor | None) -> Tensor:
        if means is None:
            return gram
        return gram.sub_(means).sub_(means[:, None]).add_(self.grand_mean)

    def rows(self, data: Data) -> Tensor:
        """k(x, x_n) of prepared data, not centred."""
        return self._divided(self.loaded.kernel._gram(data, self.loaded.anchors))

    def norms(self, data: Data) -> Tensor:
        """k(x, x) of prepared data, not centred."""
        return self._divided(self.loaded.kernel._diag(data))

    def magnitudes(self, data: Tensor) -> Tensor:
        """What the rounding of k(x, x) is relative to."""
        return self._divided(self.loaded.kernel._magnitudes(data, data).diagonal())

    def centered(self, rows: Tensor) -> Tensor:
        """⟨φ(x) − m, φ(x_n) − m⟩ from k(x, x_n)."""
        if self.loaded.means is None:
            return rows
        return rows - rows.mean(1, keepdim=True) - self.loaded.means + self.grand_mean

    def nearest(self, rows: Tensor) -> Tensor:
        """The training sample nearest to each new one, in feature space, from k(x, x_n)."""
        return (2.0 * rows - self.loaded.diagonal).argmax(1)

    def twins(self, gram: Tensor) -> Tensor:
        """For each training sample the one that is nearest to it as a new sample: itself, or one that is the same.

        Only samples that are close to another in the (centred) Gram matrix are looked at.
        """
        twins = torch.arange(len(gram), device=gram.device)
        norms, close = gram.diagonal(), torch.finfo(gram.dtype).eps ** 0.5 * self.loaded.diagonal.abs().max()
        for rows in row_blocks(len(gram), 2 * len(gram) * gram.element_size()):
            near = 2.0 * gram[rows] - norms >= norms[rows, None] - close
            numbers = twins[rows][near.sum(1) > 1]
            if len(numbers):
                twins[numbers] = self.nearest(self.rows(take(self.loaded.anchors, numbers)))
        return twins


class Recovery(NamedTuple):
    """How well samples are recovered from hidden features, as vectors or in the feature space of the first kernel."""

    errors: Tensor  # (n,) the squared distance of each sample from what is recovered, of huge or tiny ones in a unit
    variances: Tensor  # (n,) its squared distance from the mean of the training samples, in the same unit

    @property
    def share(self) -> float:
        """The share of the variance that is recovered."""
        variance = self.variances.sum().item()
        return 1.0 - self.errors.sum().item() / variance if variance > 0 else 0.0


def smoothed(rows: Tensor, values: Tensor, sharpness: float) -> Tensor:
    """Means of values (N, S), weighted by a power of kernels (m, N) with at least one positive entry in each row.

    The power is a width: of a Gaussian kernel, k^p has the lengthscale ℓ/√p.
    """
    weights = (rows / rows.amax(1, keepdim=True)).pow(sharpness)  # of the largest one, no power underflows
    return weights @ values / weights.sum(1, keepdim=True)


# -- all levels -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Levels(Function):
    """The hidden features of all levels side by side, x ↦ (h_1, …, h_L), from those of the training samples.

    New samples solve the equations that training samples solve, or with the smoother, their hidden features are a mean
    of the training samples' own, weighted by the first kernel.
    """

    data: DataLevel
    kernels: tuple[Kernel, ...]  # of the levels above the first
    etas: tuple[float, ...]
    hidden: tuple[np.ndarray, ...]  # H_j, (n, s_j)
    multipliers: tuple[np.ndarray, ...]  # Λ_j, with the η_j of the equations, as what follows
    variances: tuple[np.ndarray, ...]  # H_jᵀ K_j H_j / η_j
    forward: np.ndarray  # K_1 H_1 / η_1
    coupled: bool = True  # whether the levels feel those above them
    extension: str = "exact"  # or "smoother"
    center: bool = False  # Are the features of the levels above the first centred?
    sharpness: float = 1.0  # the power of the first kernel that weighs samples in the smoother

    @property
    def sizes(self) -> list[int]:
        """The number of components of each level."""
        return [H.shape[1] for H in self.hidden]

    @property
    def weights(self) -> tuple[float, ...]:
        """The η_j of the equations, where K_1 is in the unit of its level."""
        return weighed(self.etas, self.data.unit, self.data.representation.tensor(self.forward[:0]).dtype)

    @property
    def outweighs(self) -> float:
        """How many times larger the energy is than with the η_j of the equations, to rounding."""
        times = self.weights[0] / (self.etas[0] / self.data.unit)
        return times if len(self.etas) == 1 else max(1.0, times)

    @cached_property
    def equations(self) -> Extension:
        """The equations of new samples, as tensors."""
        tensor = self.data.representation.tensor
        arrays = (self.hidden, self.multipliers, self.variances)
        hidden, multipliers, variances = ([tensor(array) for array in level_arrays] for level_arrays in arrays)
        largest = self.data.loaded.diagonal.abs().max().item()
        forward = tensor(self.forward)
        weights = (self.kernels, self.weights, self.coupled, largest, self.center)
        return Extension(hidden, multipliers, variances, forward, *weights)

    def spans(self) -> list[Span]:
        """The training samples with the kernel of the data."""
        return [Span(self.data.kernel, self.data.anchors, self.data.representation)]

    def is_centered(self, level: int) -> bool:
        """Are the features that a level sees centred?"""
        return self.center if level else self.data.means is not None

    @property
    def feature_kernel(self) -> Kernel | None:
        """The kernel of the data, which is centred; None where points were centred before."""
        return None if self.data.of_differences else self.data.kernel

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """How many times larger what cancels in the kernel of the data is than what is left; 1 where nothing cancels.

        It is k(x, x), or larger numbers inside a centred kernel, beside the centred k(x, x); where that is much less,
        beside the variance along the weakest component, in which rounding is as large as in the strongest.
        """
        loaded = self.data.loaded
        largest = loaded.diagonal.abs().max()
        centred = largest
        if loaded.means is not None:
            centred = (loaded.diagonal - 2.0 * loaded.means + self.data.grand_mean).abs().max()
        if self.data.kernel.domain == "vectors" and isinstance(loaded.anchors, Tensor):
            points = take(loaded.anchors, torch.from_numpy(evenly_spaced(count(loaded.anchors), limit)))
            largest = torch.maximum(largest, self.data.magnitudes(points).max())
        if bool(largest == centred):
            return 1.0
        kept = centred if bool(largest < CANCELS * centred) else torch.minimum(centred, self._weakest_variance())
        return float(largest / kept)

    def _weakest_variance(self) -> Tensor:
        """The least variance hᵀ K h / (n hᵀ h) of the data along a component h of the first level that is not zero."""
        H, variances = self.equations.hidden[0], self.equations.variances[0]
        squares = H.square().sum(0)
        quotients = (self.weights[0] * variances.diagonal()).abs() / squares
        return quotients[squares > 0].amin() / len(H) if bool((squares > 0).any()) else H.new_tensor(torch.inf)

    def columns(self, level: int | None) -> slice:
        """Where a level stands among all of them; None: all of them."""
        if level is None:
            return slice(None)
        stop = sum(self.sizes[: level + 1])
        return slice(stop - self.sizes[level], stop)

    def draw(self, level: int, size: int, density: str, rng: np.random.Generator) -> np.ndarray:
        """Components from a density of those of the training samples: one Gaussian, or one around each ("kde")."""
        H = self.hidden[level]
        n, s = H.shape
        # A random combination of centred samples has their covariance: no factor of it is needed.
        noise = rng.standard_normal((size, n)) @ (H - H.mean(0)) / np.sqrt(n)
        if density == "gaussian":
            return np.asarray(H.mean(0) + noise)
        return np.asarray(H[rng.integers(0, n, size)] + n ** (-1.0 / (s + 4)) * noise)

    def __call__(self, X: Data) -> Tensor:
        """Hidden features (n, Σ s_j) of samples, in blocks of rows."""
        return self.extended(X)[0]

    def extended(self, X: Data) -> tuple[Tensor, Tensor]:
        """Hidden features of samples, and for which of them (n,) the equations were solved.

        The others have those of the training sample nearest to them.
        """
        data, H = self.data.inputs(X), self.equations.training
        # Blocks are written into one matrix: kept apart, they would pin the memory that each of them frees.
        values = H.new_empty(count(data), H.shape[1])
        solved = torch.ones(len(values), dtype=torch.bool, device=H.device)
        for rows in row_blocks(len(values), 8 * len(H) * (2 + 4 * len(self.hidden))):
            k = self.data.rows(take(data, torch.arange(rows.start, rows.stop)))
            if self.extension == "smoother":
                values[rows] = self._smoothed(k)
            else:
                values[rows], solved[rows] = self.equations(self.data.centered(k), self.data.nearest(k))
        return values, solved

    def recovery(self, X: Data, hidden: Tensor | None = None) -> Recovery:
        """How well the linear map that is best for the training samples recovers others from hidden features.

        Vectors are recovered as they are, other data in the feature space of the first kernel. ``hidden`` is f(X), if
        that is known.
        """
        data, Z = self.data.inputs(X), torch.cat(self.equations.hidden, 1)
        hidden = self(X) if hidden is None else hidden
        A = torch.linalg.pinv(Z - Z.mean(0)).mT  # (N, S): the map is φ(x) − m ≈ Σ_n (φ(x_n) − m) (A z)_n
        weights = (hidden - Z.mean(0)) @ A.mT
        if self.data.kernel.domain == "vectors" and isinstance(data, Tensor):
            train = self.data.loaded.anchors
            target, recovered = data - train.mean(0), weights @ (train - train.mean(0))
            unit = _unit_of_size(target.abs().max())  # squares of the differences in it are in range
            return Recovery(((target - recovered) / unit).square().sum(1), (target / unit).square().sum(1))
        gram = self.data.gram(center=False)
        weights = weights - weights.mean(1, keepdim=True)  # as (φ(x_n) − m) would do
        blocks = [
            self._feature_recovery(take(data, torch.arange(rows.start, rows.stop)), weights[rows], gram)
            for rows in row_blocks(count(data), 4 * 8 * len(gram))
        ]
        return Recovery(*map(torch.cat, zip(*blocks, strict=True)))

    def _feature_recovery(self, data: Data, weights: Tensor, gram: Tensor) -> Recovery:
        """‖φ(x) − m − Σ_n w_n (φ(x_n) − m)‖² and ‖φ(x) − m‖² of prepared data."""
        kernel, k, means = self.data.kernel, self.data.rows(data), gram.mean(0)
        if kernel.domain == "gram":
            same = k.shape == gram.shape and bool(torch.equal(k, gram))
            diagonal = gram.diagonal() if same else gram.diagonal().mean().expand(len(k))
        else:
            diagonal = self.data.norms(data)
        norms = diagonal - 2.0 * k.mean(1) + means.mean()
        cross = (weights * (k - means)).sum(1)
        return Recovery(norms - 2.0 * cross + (weights * (weights @ gram)).sum(1), norms)

    def contributions(self, X: Data) -> Tensor:
        """With the smoother, the terms (n, N, Σ s_j) of the mean of the training samples' hidden features."""
        if self.extension != "smoother":
            raise ValueError(
                "Components of new samples solve equations, and are no sum over training samples. Fit with "
                "extension='smoother': then they are a weighted mean of the training samples' own components."
            )
        H = torch.cat(self.equations.hidden, 1)
        rows = self.data.rows(self.data.inputs(X))
        self._smoothed(rows)  # which refuses what has no weights
        weights = smoothed(rows, torch.eye(len(H), dtype=H.dtype, device=H.device), self.sharpness)
        return weights[:, :, None] * H

    @property
    def terms_of(self) -> Data:
        """The training samples, to which the terms of the first level belong."""
        return self.data.anchors

    def network(self) -> LevelsNetwork:
        """The hidden features of vectors as a ``torch.nn.Module`` on the processor."""
        if self.data.kernel.domain != "vectors" or self.data.representation.sparse:
            raise ValueError(
                f"to_torch makes a network of dense vectors, and these levels see {self.data.kernel.domain}. Use "
                "transform, or save the model."
            )
        on_processor = replace(self.data.representation, device=None)
        return LevelsNetwork(replace(self, data=replace(self.data, representation=on_processor)))

    def _smoothed(self, rows: Tensor) -> Tensor:
        """The mean of the training samples' hidden features, weighted by a power of k(x, x_n)."""
        far = int((rows == 0).all(1).sum())
        if far:
            raise ValueError(
                f"extension='smoother' takes means weighted by the first kernel, which is 0, to rounding, between "
                f"{far} of {len(rows)} new samples and all training samples: they are too far away. Use a larger "
                "lengthscale, or extension='exact'."
            )
        if bool((rows < 0).any()):
            raise ValueError(
                "extension='smoother' takes means weighted by the first kernel, which is negative for some samples. "
                "Use a kernel that is not (rbf, laplacian), or extension='exact'."
            )
        return smoothed(rows, torch.cat(self.equations.hidden, 1), self.sharpness)


class LevelsNetwork(torch.nn.Module):
    """Hidden features of all levels as a ``torch.nn.Module``.

    Called, it solves the equations of new samples as the levels do. Where ``torch.export`` traces it, it takes a number
    of quasi-Newton steps that does not depend on the numbers, and nothing looks after samples that need more.
    """

    anchors: Tensor
    left_over: Tensor
    inverses: Tensor

    def __init__(self, levels: Levels):
        super().__init__()
        self.levels = levels
        equations = levels.equations
        if levels.extension != "smoother" and equations.coupled and not equations.is_linear:
            samples = torch.arange(len(equations.training))
            self.register_buffer("left_over", equations._within(equations.training, equations.forward))
            self.register_buffer("inverses", equations._inverse_jacobians(samples))
        self.register_buffer("anchors", levels.data.loaded.anchors)

    def forward(self, X: Tensor) -> Tensor:
        """The hidden features (n, Σ s_j)."""
        if not (torch.compiler.is_compiling() or X.requires_grad):
            return self.levels(X)
        if hasattr(self, "inverses") and not all(isinstance(k, Linear | Gaussian) for k in self.levels.kernels):
            raise ValueError(
                "Levels are differentiated, and exported, with Gaussian and linear kernels above the first; these are "
                f"{list(self.levels.kernels)}."
            )
        levels, equations = self.levels, self.levels.equations
        k = levels.data.rows(X.to(self.anchors))
        if levels.extension == "smoother":
            return smoothed(k, torch.cat(equations.hidden, 1), levels.sharpness)
        rows, nearest = levels.data.centered(k), levels.data.nearest(k)
        start = equations.training[nearest]
        change = rows @ equations.hidden[0] / equations.etas[0] - equations.forward[nearest]
        if not hasattr(self, "inverses"):
            return equations._following(change, start)
        return self._stepped(start, equations.forward[nearest] + change, nearest)

    def _stepped(self, x: Tensor, forward: Tensor, nearest: Tensor) -> Tensor:
        """Broyden's method from the nearest samples, whose inverse Jacobians are known."""
        within, left_over, B = self.levels.equations._within, self.left_over[nearest], self.inverses[nearest]
        F = within(x, forward) - left_over
        for _ in range(EXPORTED_STEPS):
            step = -(B @ F[:, :, None])[:, :, 0]
            new = within(x + step, forward) - left_over
            moved = (B @ (new - F)[:, :, None])[:, :, 0]
            size = (step * moved).sum(1)
            safe = size.abs() > torch.finfo(x.dtype).tiny
            factor = torch.where(safe, 1.0 / torch.where(safe, size, 1.0), 0.0)
            B = B + factor[:, None, None] * (step - moved)[:, :, None] * (step[:, None, :] @ B)
            x, F = x + step, new
        return x


@dataclass(frozen=True)
class Extension:
    """The equations of new points, for fitted levels."""

    hidden: list[Tensor]
    multipliers: list[Tensor]
    variances: list[Tensor]
    forward: Tensor
    kernels: Sequence[Kernel]
    etas: Sequence[float]
    coupled: bool  # False: each level only follows the one below
    largest: float  # the largest k_1(x, x), not centred: what centring has rounded
    center: bool = False  # Are the features of the levels above the first centred?

    @cached_property
    def around_means(self) -> list[Tensor]:
        """The hidden features minus their means at levels that are centred here."""
        return [deviations(H) if self.center and j else H for j, H in enumerate(self.hidden)]

    @cached_property
    def _gram_means(self) -> list[Tensor | float]:
        """The mean kernel of each training sample's hidden features with all of them, level by level; 0 if not centred.

        Columns of C H have mean zero, so that the grand mean of k_j cancels.
        """
        if not self.center:
            return [0.0] * len(self.kernels)
        return [_mean_gram(kernel, H) for kernel, H in zip(self.kernels, self.hidden, strict=False)]

    @property
    def sizes(self) -> list[int]:
        """The number of components of each level."""
        return [H.shape[1] for H in self.hidden]

    @cached_property
    def is_linear(self) -> bool:
        """Are all kernels above the first linear?"""
        return all(isinstance(kernel, Linear) for kernel in self.kernels)

    @cached_property
    def _weights(self) -> Sequence[Tensor]:
        """What h_j is multiplied by where it only follows the level below.

        It is Λ_j for levels that are not coupled. Between linear levels, H_{j+1} of a stationary point lies within the
        span of H_j or orthogonal to it; so the term of the level above takes off Λ_j what coupling has added, and the
        level's own variance is left. (Formed by subtraction, it would be rounding where the data are small.) Of a
        linear level, only what it has from directions with variance of the level below is variance.
        """
        if not self.is_linear:
            return self.multipliers
        weights = list(self.variances[:1])
        for below, H, eta in zip(self.hidden, self.hidden[1:], self.etas[1:], strict=False):
            cross = (deviations(H) if self.center else H).mT @ below @ _projection(weights[-1])
            weights.append(cross @ cross.mT / eta)
        return weights

    @cached_property
    def ranks(self) -> list[int]:
        """The number of components with variance of each level."""
        return [int(resolved(torch.linalg.eigvalsh(weight)).sum()) for weight in self._weights]

    @cached_property
    def _span(self) -> Tensor:
        """The projection on directions with variance, of all levels side by side."""
        return torch.block_diag(*(_projection(weight) for weight in self._weights))

    @cached_property
    def training(self) -> Tensor:
        """The extension to the training samples: their hidden features, but 0 in directions without variance."""
        hidden = torch.cat(self.hidden, 1)
        return hidden if self.ranks == self.sizes else hidden @ self._span

    def __call__(self, rows: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden features (m, Σ s_j) for k_1(x, x_n) (m, N), from those of the nearest samples; and which converged."""
        start = self.training[nearest]
        change = rows @ self.hidden[0] / self.etas[0] - self.forward[nearest]
        change[(change.abs() <= self._rounding * self._largest_forward).all(1)] = 0.0
        values, converged = self._following(change, start), torch.ones_like(nearest, dtype=torch.bool)
        if self.coupled and not self.is_linear:
            moved = change.any(1)
            values[moved], converged[moved] = self._solved(change[moved], nearest[moved], values[moved])
            values[~moved] = start[~moved]
        return values, converged

    def _solved(self, change: Tensor, nearest: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """The solutions near the nearest samples, by Broyden's method from their Jacobians, and which were found.

        Where that strays, or fails, steps that only descend begin there, at the features that follow, and at 0.
        """
        samples, number = nearest.unique(return_inverse=True)
        left_over = self._within(self.training[samples], self.forward[samples])[number]
        inverses = self._inverse_jacobians(samples)[number]
        start, forward = self.training[nearest], self.forward[nearest] + change
        tol = max(ACCURACY, 10.0 * torch.finfo(start.dtype).eps)
        limits = Limits(self._scale, tol, self._noise, MAX_ITER)

        def equations(h: Tensor, rows: Tensor) -> Tensor:
            return self._within(h, forward[rows]) - left_over[rows]

        values, converged = broyden(equations, start, inverses, limits)
        # At the start the equations are off by −change, at the first level.
        newton = (inverses[:, :, : change.shape[1]] @ change[:, :, None])[:, :, 0]
        near = (values - start).norm(dim=1) <= REACH * newton.norm(dim=1)
        open_ = ~(converged & near)
        for begin in (start, following, torch.zeros_like(start)):
            left = torch.nonzero(open_)[:, 0]
            if not len(left):
                break

            def equations_left(h: Tensor, rows: Tensor, left: Tensor = left) -> Tensor:
                return equations(h, left[rows])

            solutions, done = levenberg_marquardt(equations_left, begin[left], limits)
            values[left[done]], converged[left[done]] = solutions[done], True
            open_ = ~converged
        converged &= near | (values.abs().amax(1) <= FARTHEST * self._scale)
        converged[converged.clone()] = self._is_determined(values[converged], forward[converged])
        values[~converged] = start[~converged]
        return values, converged

    def _is_determined(self, h: Tensor, forward: Tensor) -> Tensor:
        """Which solutions (m, S) are more than rounding: |J⁻¹| times the noise of the equations is small beside them.

        Along a flat direction of the equations, where a solution ends is a matter of their last digits.
        """
        outside = torch.eye(h.shape[1], dtype=h.dtype, device=h.device) - self._span
        J = self._jacobians(h, forward) + outside
        usable = J.isfinite().all((1, 2))
        inverse, failed = torch.linalg.inv_ex(torch.where(usable[:, None, None], J, torch.eye(h.shape[1]).to(h)))
        moved = inverse.abs() @ self._noise
        return usable & (failed == 0) & (moved.amax(1) <= torch.finfo(h.dtype).eps ** DETERMINED * self._scale)

    def equations(self, h: Tensor, forward: Tensor) -> Tensor:
        """Left minus right side, for hidden features (m, Σ s_j) and H_1ᵀ k_1(x) / η_1 (m, s_1)."""
        features = list(h.split(self.sizes, 1))
        sides = []
        for j, own in enumerate(features):
            side = own @ self.multipliers[j] - forward
            if j + 1 < len(features):
                kernel, H, above, eta = self.kernels[j], self.hidden[j], self.around_means[j + 1], self.etas[j + 1]
                gram = kernel._gram(own, H)
                upper = features[j + 1] - self.hidden[j + 1].mean(0) if self.center else features[j + 1]
                side = side - slope(kernel, own, H, upper @ above.mT, gram) / eta
                forward = (gram - self._gram_means[j]) @ above / eta
            sides.append(side)
        return torch.cat(sides, 1)

    def _within(self, h: Tensor, forward: Tensor) -> Tensor:
        """The equations along directions with variance, for hidden features that are 0 along the others."""
        return self.equations(h @ self._span, forward) @ self._span

    def _following(self, change: Tensor, start: Tensor) -> Tensor:
        """Each level follows the one below, by as much as that differs from the nearest sample's."""
        features = list(start.split(self.sizes, 1))
        for j, (nearest, weight) in enumerate(zip(list(features), self._weights, strict=True)):
            features[j] = nearest + change @ _inverse(weight)
            if j + 1 < len(features):
                kernel, H, above = self.kernels[j], self.hidden[j], self.around_means[j + 1]
                change = (kernel._gram(features[j], H) - kernel._gram(nearest, H)) @ above / self.etas[j + 1]
        return torch.cat(features, 1)

    @cached_property
    def _scale(self) -> float:
        """The largest hidden feature."""
        return max(H.abs().max().item() for H in self.hidden)

    @cached_property
    def _rounding(self) -> float:
        """The rounding of sums over the samples, relative to their largest terms."""
        return float(ROUNDING * torch.finfo(self.forward.dtype).eps * len(self.forward) ** 0.5)

    @cached_property
    def _largest_forward(self) -> float:
        """The largest term of the first level's equations."""
        return max(self.forward.abs().max().item(), self.largest / abs(self.etas[0]))

    @cached_property
    def _noise(self) -> Tensor:
        """How far each equation may be off by rounding alone."""
        levels = zip(self.hidden, self.multipliers, strict=True)
        largest = [(H @ multiplier).abs().max().expand(H.shape[1]) for H, multiplier in levels]
        largest[0] = largest[0].clamp(min=self._largest_forward)
        return self._rounding * torch.cat(largest)

    def _jacobians(self, h: Tensor, forward: Tensor) -> Tensor:
        """The Jacobians (m, S, S) of the equations, along directions with variance."""

        def equations(h: Tensor, rows: Tensor) -> Tensor:
            return self._within(h, forward[rows])

        rows = torch.arange(len(h), device=h.device)
        return jacobian(equations, h, equations(h, rows), rows, self._scale)

    def _inverse_jacobians(self, samples: Tensor) -> Tensor:
        """The inverse Jacobians (m, S, S) of training samples' equations, in which every level has its own units."""
        J = self._jacobians(self.training[samples], self.forward[samples])
        sizes = [multiplier.abs().max().sqrt().expand(len(multiplier)) for multiplier in self.multipliers]
        units = torch.cat([torch.where(size > 0, size, 1.0) for size in sizes])
        return _inverse(J / units[:, None] / units) / units[:, None] / units


def _mean_gram(kernel: Kernel, H: Tensor) -> Tensor:
    """Σ_m k(h_n, h_m) / N for every n, in blocks of rows."""
    blocks = row_blocks(len(H), 2 * len(H) * H.element_size())
    return torch.cat([kernel._gram(H[rows], H).mean(1) for rows in blocks])


def _inverse(matrix: Tensor) -> Tensor:
    """The pseudo-inverse of symmetric matrices: directions without variance stay at zero."""
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    inverses = torch.where(resolved(values), 1.0 / values, 0.0)
    return (vectors * inverses[..., None, :]) @ vectors.mT


def _projection(matrix: Tensor) -> Tensor:
    """The projection on the directions with variance."""
    values, vectors = torch.linalg.eigh(matrix)
    basis = vectors[:, resolved(values)]
    return basis @ basis.mT


def resolved(values: Tensor) -> Tensor:
    """Which eigenvalues of matrices are more than rounding, beside the largest."""
    sizes = values.abs()
    return sizes > values.shape[-1] * torch.finfo(values.dtype).eps ** 0.75 * sizes.amax(-1, keepdim=True)


def same_share(H: np.ndarray) -> float:
    """The share of the largest hidden feature below which a difference means nothing."""
    return max(SAME, float(np.finfo(H.dtype).eps) ** 0.5)


def is_constant(H: np.ndarray) -> np.ndarray:
    """Which components are the same for all samples."""
    return np.asarray(np.ptp(H, axis=0) <= same_share(H) * np.abs(H).max(0))
