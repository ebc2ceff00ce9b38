"""Both sides of a structured predictor: the inputs as a spectrum, the outputs as coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.approximation import LandmarkFeatures, Landmarks, Nystroem, landmark_features
from representer.data import count, is_single, plain, take
from representer.estimators._embedding_problem import explicit_features
from representer.kernels import Kernel, Linear
from representer.linalg import (
    Spectrum,
    eigh,
    factorize,
    pivoted_cholesky,
    repair_gram,
    shifted,
    spectrum_of_factor,
)
from representer.operators import Operator
from representer.operators.adapted import original, repaired_gram
from representer.systems.structured import DiagonalRegression, HeldOutputs, OutputRegression, Unexplained

FORMS = ("identity", "kpca", "covariance", "conditional_covariance")


def labelled_outputs(kernel: Kernel, Y: Any) -> tuple[Any, Tensor | None]:
    """The outputs without gaps, and the numbers of the samples that have one; None if all have.

    A gap is None, or among numbers a row of NaN (of a Gram matrix, with its column).
    """
    if Y is None or is_single(Y):
        return Y, None
    rows = plain(Y)
    rows = rows.to_numpy() if hasattr(rows, "to_numpy") else rows
    if hasattr(rows, "tocsr") or not len(rows) or getattr(rows, "size", 1) == 0:
        return Y, None
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub":
        numbers = rows.reshape(len(rows), -1)
        gap = np.asarray(np.isnan(numbers).all(1), dtype=bool)
    else:
        rows = rows if isinstance(rows, np.ndarray) else list(rows)
        gap = np.array(
            [item is None or (isinstance(item, float) and item != item) for item in rows], dtype=bool
        )
    if not gap.any():
        return Y, None
    if gap.all():
        raise ValueError(f"None of the {len(gap)} samples has an output: nothing can be learned.")
    labelled = np.flatnonzero(~gap)
    kept = rows[labelled] if isinstance(rows, np.ndarray) else [rows[i] for i in labelled]
    if kernel.domain == "gram" and isinstance(kept, np.ndarray):
        kept = kept[:, labelled]
    elif kernel.domain == "vectors" and not (isinstance(kept, np.ndarray) and kept.dtype != object):
        kept = [plain(item) for item in kept]
    return kept, torch.from_numpy(labelled)


def counted(Y: Any) -> np.dtype | None:
    """The type of outputs that are integers or truth values; None for others."""
    dtype = np.asarray(plain(Y)).dtype
    return dtype if dtype.kind in "iub" else None


# -- inputs -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Inputs:
    """The inputs of a fit: k at the n samples that have an output, in the form that the fit needs.

    Parameters
    ----------
    factor : tensor (N, m) or None
        B with k = B Bᵀ, where it has fewer columns than rows.
    gram : tensor (N, N) or None
        k otherwise.
    labelled : tensor of int or None
        The samples that have an output; None: all N.
    features : LandmarkFeatures or None
        Of an approximate fit: what makes B.
    kept : tensor or None
        Of a Gram matrix that was repaired: the eigenvectors that have stayed.
    """

    factor: Tensor | None = None
    gram: Tensor | None = None
    labelled: Tensor | None = None
    features: LandmarkFeatures | None = None
    kept: Tensor | None = None

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of k at the samples with an output."""
        if self.factor is not None:
            return spectrum_of_factor(self._rows(self.factor))
        assert self.gram is not None
        rows = self.labelled
        gram = self.gram.clone() if rows is None else self.gram[rows[:, None], rows]
        return eigh(gram, name="The Gram matrix", overwrite=True)

    @cached_property
    def unexplained(self) -> Unexplained | None:
        """What the conditional covariance needs, if some inputs have no output."""
        if self.labelled is None:
            return None
        if self.factor is not None:
            whole = spectrum_of_factor(self.factor)
        else:
            assert self.gram is not None
            whole = eigh(self.gram, name="The Gram matrix")
        return Unexplained(Spectrum(whole.vectors[self.labelled], whole.values), len(whole.vectors))

    def _rows(self, matrix: Tensor) -> Tensor:
        return matrix if self.labelled is None else matrix[self.labelled]

    def mean_diagonal(self) -> float:
        """The mean k(x, x): the scale of alpha."""
        if self.factor is not None:
            return float(self.factor.square().sum() / len(self.factor))
        assert self.gram is not None
        return float(self.gram.diagonal().mean())

    def place(self, coefficients: Tensor) -> Tensor:
        """Coefficients of k(·, x_i), x_i with an output, as coefficients of the anchors: all samples, or landmarks."""
        if self.features is not None:
            assert self.factor is not None
            return self.features.coefficients(self._rows(self.factor).mT @ coefficients)
        if self.labelled is not None:
            matrix = self.gram if self.gram is not None else self.factor
            assert matrix is not None
            everywhere = coefficients.new_zeros(len(matrix), coefficients.shape[1])
            everywhere[self.labelled] = coefficients
            coefficients = everywhere
        return coefficients if self.kept is None else self.kept @ (self.kept.mT @ coefficients)

    def solve(self, shift: float, right: Tensor | None = None) -> Tensor:
        """(k + shift)⁻¹ right by a Cholesky factor, the whole inverse without ``right``."""
        assert self.gram is not None
        rows = self.labelled
        gram = self.gram if rows is None else self.gram[rows[:, None], rows]
        cholesky = factorize(lambda: shifted(gram, shift), name="The Gram matrix plus n·alpha")
        return cholesky.inverse() if right is None else cholesky.solve(right)


def exact_inputs(kernel: Kernel, X: Any, labelled: Tensor | None) -> Inputs:
    """By few explicit features if the kernel has them, by its Gram matrix otherwise."""
    factor = explicit_features(kernel, X) if kernel.domain != "gram" else None
    if factor is not None and factor.shape[1] < len(factor):
        return Inputs(factor=factor.detach(), labelled=labelled)
    gram, kept = repaired_gram(kernel, X)
    return Inputs(gram=gram, labelled=labelled, kept=kept)


def landmark_inputs(
    kernel: Kernel, X: Any, nystroem: Nystroem | Landmarks, labelled: Tensor | None, seed: int
) -> Inputs:
    """By landmarks."""
    features = independent_landmarks(kernel, X, nystroem, seed)
    return Inputs(factor=features(X), labelled=labelled, features=features)


def independent_landmarks(
    kernel: Kernel, X: Any, nystroem: Nystroem | Landmarks, seed: int
) -> LandmarkFeatures:
    """Features of landmarks none of which is, to rounding, a combination of the others in the RKHS."""
    return independent(nystroem.features(kernel, X, seed=seed))


def independent(features: LandmarkFeatures) -> LandmarkFeatures:
    """The same without landmarks that are, to rounding, combinations of the others."""
    kernel = features.kernel
    gram = kernel._gram(features.landmarks, None)
    _, pivots = pivoted_cholesky(gram, tol=torch.finfo(gram.dtype).eps ** 0.75)
    if len(pivots) == len(gram):
        return features
    if not len(pivots):
        raise ValueError(f"{original(kernel)!r} is zero at all landmarks: there is nothing to learn from.")
    return landmark_features(kernel, take(features.landmarks, pivots.sort().values))


# -- outputs ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outputs:
    """The outputs of a fit as rows R (n, r) of coordinates, L = R Rᵀ, and what their sums are expressed in.

    Parameters
    ----------
    make : callable
        Makes R, and the eigenvectors that have stayed if L was repaired: called if they are needed.
    anchors : prepared data
        The outputs that embeddings are sums of.
    weigh : callable or None
        Coordinates (p, r) -> weights of the anchors (p, n_anchors); None: the anchors are the n outputs, and the
        regression gives their weights.
    centred : bool
        Are coordinates taken from the mean output?
    on_axes : bool
        Are the anchors the axes of the space of the outputs, and weights coordinates?
    """

    make: Callable[[], tuple[Tensor, Tensor | None]]
    anchors: Any
    weigh: Callable[[Tensor], Tensor] | None
    centred: bool
    on_axes: bool = False

    @cached_property
    def _made(self) -> tuple[Tensor, Tensor | None]:
        return self.make()

    @cached_property
    def coordinates(self) -> Tensor:
        """R, from the mean if centred."""
        R = self._made[0]
        return R - R.mean(0) if self.centred else R

    def offset(self, like: Tensor) -> Tensor | None:
        """The weights (n_anchors,) of the mean output."""
        if not self.centred:
            return None
        if self.weigh is None:
            n = count(self.anchors)
            return like.new_full((n,), 1.0 / n)
        return self.weigh(self._made[0].mean(0, keepdim=True))[0]

    def known(self, weights: Tensor) -> Tensor:
        """Weights (p, n) of the n outputs' features, as weights of the outputs."""
        if self.centred:
            weights = weights - weights.mean(1, keepdim=True)
        kept = None if self.weigh is not None else self._repair
        return weights if kept is None else (weights @ kept) @ kept.mT

    @property
    def _repair(self) -> Tensor | None:
        return self._made[1] if "_made" in self.__dict__ else None


def exact_outputs(kernel: Kernel, Y: Any, like: Tensor, *, centred: bool, on_axes: bool) -> Outputs:
    """The training outputs; with ``on_axes``, vectors in their own coordinates."""
    if on_axes:
        R = Y.to(like)
        axes = torch.eye(R.shape[1], dtype=like.dtype, device=like.device)
        return Outputs(lambda: (R, None), axes, lambda theta: theta, centred, on_axes=True)
    return Outputs(lambda: output_factor(kernel, Y, like), Y, None, centred)


def output_factor(kernel: Kernel, Y: Any, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """R with R Rᵀ = l(Y), and, if that took a repair, the eigenvectors that have stayed."""
    features = explicit_features(kernel, Y) if kernel.domain != "gram" else None
    if features is not None and 0 < features.shape[1] < len(features):
        return features.detach().to(like), None
    given = kernel._gram(Y, None).to(like)
    gram = given if kernel.domain == "vectors" else repair_gram(given, name="The Gram matrix of the outputs")
    rounding = len(gram) * torch.finfo(gram.dtype).eps
    if gram is given:
        factor, info = torch.linalg.cholesky_ex(gram)
        smallest = factor.diagonal().square().min()
        if not info.item() and smallest > rounding * gram.diagonal().max():
            return factor, None
        factor = pivoted_cholesky(gram, tol=rounding)[0].contiguous()
        return factor if factor.shape[1] else gram[:, :1] * 0.0, None  # all φ(y) = 0: one coordinate, zero
    spectrum = eigh(gram, name="The repaired Gram matrix of the outputs")
    stays = spectrum.values > rounding * spectrum.values[-1]
    vectors, values = spectrum.vectors[:, stays], spectrum.values[stays]
    return vectors * values.sqrt(), vectors


def landmark_outputs(
    kernel: Kernel, Y: Any, nystroem: Nystroem | Landmarks, seed: int, *, centred: bool
) -> Outputs:
    """By landmarks among the outputs."""
    features = independent_landmarks(kernel, Y, nystroem, seed)
    return Outputs(
        lambda: (features(Y), None),
        features.landmarks,
        lambda theta: features.coefficients(theta.mT).mT,
        centred,
    )


def has_axes(kernel: Kernel, Y: Any) -> bool:
    """Are outputs vectors whose features are the vectors themselves, fewer of these than samples?"""
    return isinstance(kernel, Linear) and isinstance(Y, Tensor) and Y.shape[1] <= len(Y)


# -- both -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Problem:
    """A fit but for its alpha, its epsilon and its number of components."""

    inputs: Inputs
    outputs: Outputs
    operator: str | Operator
    held: HeldOutputs | None = None

    @cached_property
    def regression(self) -> OutputRegression:
        """On the spectrum of the inputs."""
        conditional = self.operator == "conditional_covariance"
        return OutputRegression(
            self.inputs.spectrum,
            self.outputs.coordinates,
            self.inputs.unexplained if conditional else None,
            self.held,
            anchored=self.outputs.weigh is None,
        )

    def under(self, epsilon: float | None = None, n_components: int | None = None) -> DiagonalRegression:
        """With its operator."""
        if isinstance(self.operator, Operator):
            return self.regression.under(self.operator)
        if self.operator == "conditional_covariance":
            assert epsilon is not None
            return self.regression.conditional_covariance(epsilon)
        if self.operator == "kpca":
            components = self.regression.components()
            return components if n_components is None else components.leading(n_components)
        return self.regression.covariance() if self.operator == "covariance" else self.regression.identity()

    def dual(self, diagonal: DiagonalRegression, alpha: float) -> tuple[Tensor, Tensor | None]:
        """The D (anchors of inputs × anchors of outputs) of g(x) = Σ_ij k(x, x_i) D_ij φ(y_j).

        Where g is known better by features of x: the Θ of its coordinates φ(x)ᵀΘ, too.
        """
        if self.outputs.weigh is None:
            return self.inputs.place(self.outputs.known(diagonal.dual(alpha))), None
        return self.outputs.weigh(self.inputs.place(diagonal.coordinates(alpha))), None

    def plain_dual(self, alpha: float) -> Tensor:
        """The same for the identity operator, by a Cholesky factor instead of the spectrum."""
        if self.outputs.weigh is None:
            n = count(self.outputs.anchors)
            return self.inputs.place(self.outputs.known(self.inputs.solve(n * alpha)))
        R = self.outputs.coordinates
        return self.outputs.weigh(self.inputs.place(self.inputs.solve(len(R) * alpha, R)))

    def left_out(self, Y: Any) -> Any:
        """The outputs that leave-one-out predictions are made for."""
        return Y

    def loo_weights(self, diagonal: DiagonalRegression, alpha: float) -> Tensor:
        """The weights (n, anchors of outputs) of the leave-one-out predictions."""
        if self.outputs.weigh is None:
            weights = self.outputs.known(diagonal.loo_dual(alpha))
        else:
            weights = self.outputs.weigh(diagonal.loo_coordinates(alpha))
        offset = self.outputs.offset(weights)
        return weights if offset is None else weights + offset

    def operator_root(self, diagonal: DiagonalRegression) -> Tensor | None:
        """The F (anchors of outputs × s) with A = Σ_s f_s ⊗ f_s, f_s = Σ_j F_js φ(y_j); None if A is the identity."""
        if self.operator == "identity":
            return None
        a, Q = diagonal.values, diagonal.vectors
        if self.outputs.weigh is not None:
            assert Q is not None
            return self.outputs.weigh((Q * a.sqrt()).mT).mT
        assert diagonal.expand is not None
        known = a > len(a) * torch.finfo(a.dtype).eps * a.max()
        scale = torch.where(known, torch.where(known, a, 1.0).rsqrt(), 0.0)
        return self.outputs.known((diagonal.expand(diagonal) * scale).mT).mT
