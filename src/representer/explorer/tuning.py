"""The Gram matrix and spectrum of a kernel, and leave-one-out errors with other numbers in it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from representer.inspection import confusion, effective_dimension, kernel_words
from representer.kernels import Kernel, seen_inside
from representer.operators import Representation
from representer.samples import Data, count, evenly_spaced, plain, take
from representer.systems import Groups
from representer.systems.exact import GramInverse, Known, spectrum_beside_constants
from representer.values import Positive

# The numbers of samples for leave-one-out while a slider moves, and in the picture of the Gram matrix.
ROWS, SHOWN_ROWS = 600, 240
# Decades to each side of the fitted alpha, and steps in each of them.
DECADES, STEPS = 5, 4
# Kernels with more numbers than this have sliders for the first ones.
MOST_SLIDERS = 6


@dataclass(frozen=True)
class Tuned:
    """One kernel of a model, with its own alpha."""

    kernel: Kernel
    alpha: float
    weight: float = 1.0

    @property
    def words(self) -> str:
        """The name of the kernel, and its weight in a stack."""
        name = type(seen_inside(self.kernel)[0]).__name__
        return name if self.weight >= 1.0 else f"{name}, weight {self.weight:.2f}"


@dataclass(frozen=True)
class LeftOutTargets:
    """The targets of leave-one-out, numbers (n, p) or indicators of classes, with the groups left out together."""

    Y: np.ndarray
    classes: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None
    intercept: bool = True

    def rows(self, index: np.ndarray) -> LeftOutTargets:
        """The targets of the samples with these numbers."""
        weights = None if self.weights is None else self.weights[index]
        groups = None if self.groups is None else self.groups[index]
        return LeftOutTargets(self.Y[index], self.classes, weights, groups, self.intercept)

    def error(self, predictions: np.ndarray) -> float:
        """The root mean squared error, or the share of samples for which another class has the largest value."""
        if self.classes is not None:
            return float(np.mean(predictions.argmax(1) != self.Y.argmax(1)))
        return float(np.sqrt(np.mean((predictions - self.Y) ** 2)))


@dataclass(frozen=True)
class Tuning:
    """The kernels of a model on samples, with Gram matrices, spectra, and leave-one-out errors at other numbers.

    Parameters
    ----------
    tuned : sequence of Tuned
        The kernel, or the kernels of a stack in the order of their weights.
    X : data
        Samples, unprepared.
    how : Representation
        The representation of arrays as tensors.
    targets : LeftOutTargets or None
        The targets; None if there is nothing to predict.
    """

    tuned: Sequence[Tuned]
    X: Data
    how: Representation
    targets: LeftOutTargets | None
    _memory: dict[str, tuple[object, Known, Tensor]] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The numbers of the samples that are used."""
        n = count(self.X)
        observed = np.arange(n)
        if self.targets is not None:
            observed = observed[np.isfinite(self.targets.Y).all(1)]
        return observed[evenly_spaced(len(observed), ROWS)]

    @cached_property
    def _used_samples(self) -> Data:
        return take(self.X, torch.from_numpy(self.numbers))

    @cached_property
    def _used_targets(self) -> LeftOutTargets | None:
        return None if self.targets is None else self.targets.rows(self.numbers)

    @cached_property
    def order(self) -> np.ndarray:
        """The samples that are shown, in the order of a tree that joins samples which the first kernel finds alike."""
        shown = evenly_spaced(len(self.numbers), SHOWN_ROWS)
        K = plain(self._gram(self.tuned[0].kernel).double())[np.ix_(shown, shown)]
        if len(shown) < 3:
            return shown
        root = np.sqrt(np.maximum(np.diag(K), np.finfo(float).tiny))
        distances = np.maximum(1.0 - K / root[:, None] / root, 0.0)
        np.fill_diagonal(distances, 0.0)
        tree = linkage(squareform(distances, checks=False), "average", optimal_ordering=True)
        return shown[leaves_list(tree)]

    def _gram(self, kernel: Kernel) -> Tensor:
        kernel = self.how.adapted(kernel, repair=False)
        with torch.no_grad():
            return kernel._gram(self.how.inputs(kernel, self._used_samples), None)

    def sliders(self, which: int) -> list[str]:
        """The positive numbers of a kernel that can be moved."""
        kernel = self.tuned[which].kernel
        constraints = kernel.constraints()
        return [name for name in kernel.hyperparameter_values() if isinstance(constraints[name], Positive)][
            :MOST_SLIDERS
        ]

    def changed(self, which: int, factors: Mapping[str, float]) -> Kernel:
        """A kernel whose numbers are multiplied by factors."""
        kernel, names = self.tuned[which].kernel, self.sliders(which)
        unknown = sorted(set(factors) - set(names))
        if unknown:
            raise ValueError(f"The kernel has no number {unknown[0]!r}; it has: {', '.join(names) or 'none'}.")
        if not all(np.isfinite(factor) and factor > 0 for factor in factors.values()):
            raise ValueError("Numbers of a kernel are multiplied by positive factors.")
        values = kernel.hyperparameter_values()
        new = kernel.replace({name: values[name] * factor for name, factor in factors.items()})
        new.check_hyperparameters()
        return new

    def _spectrum(self, which: int, factors: Mapping[str, float]) -> tuple[Known, Tensor]:
        """The spectrum of the weighted and centred Gram matrix, and the Gram matrix; the last pair is remembered."""
        key = (which, tuple(sorted(factors.items())))
        last = self._memory.get("last")
        if last is None or last[0] != key:
            gram = self._gram(self.changed(which, factors)).double()
            intercept = self._used_targets is not None and self._used_targets.intercept
            spectrum = spectrum_beside_constants(gram.clone(), self._root(gram), intercept=intercept)
            last = self._memory["last"] = (key, spectrum, gram)
        return last[1], last[2]

    def _root(self, like: Tensor) -> Tensor:
        """The roots of the weights, which have mean 1."""
        weights = None if self._used_targets is None else self._used_targets.weights
        if weights is None:
            return like.new_ones(len(like))
        column = torch.as_tensor(np.asarray(weights, float).reshape(len(like), -1)[:, 0], dtype=like.dtype)
        return (column / column.mean()).sqrt()

    def left_out(self, which: int, factors: Mapping[str, float], alphas: Sequence[float]) -> list[np.ndarray]:
        """The predictions (n, p) of ridge regression without each sample, or its group, for each alpha."""
        targets = self._used_targets
        assert targets is not None
        (spectrum, constants), gram = self._spectrum(which, factors)
        Y = torch.as_tensor(targets.Y, dtype=gram.dtype)
        blocks = None if targets.groups is None else list(Groups.of(targets.groups, gram.device).members)
        root, predictions = self._root(gram), []
        for alpha in alphas:
            inverse = GramInverse(spectrum, gram.new_tensor(len(Y) * alpha), root, constants)
            predictions.append(plain(Y - inverse.residuals(inverse.solve(Y), blocks)))
        return predictions

    def alphas(self, which: int) -> np.ndarray:
        """The values of alpha that are offered."""
        return self.tuned[which].alpha * 10.0 ** (np.arange(-DECADES * STEPS, DECADES * STEPS + 1) / STEPS)

    def view(self, which: int, factors: Mapping[str, float], alpha: float | None = None) -> dict[str, object]:
        """The view of a kernel with other numbers on the page."""
        if not 0 <= which < len(self.tuned):
            raise ValueError(f"There is no kernel {which}; there are {len(self.tuned)}.")
        tuned = self.tuned[which]
        alpha = tuned.alpha if alpha is None else alpha
        if not (np.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha must be positive; got {alpha}.")
        kernel = self.changed(which, factors)
        spectrum, gram = self._spectrum(which, factors)
        values = _eigenvalues(spectrum) / len(gram)
        answer: dict[str, object] = {
            "kernels": [t.words for t in self.tuned],
            "which": which,
            "code": kernel_words(kernel),
            "sliders": self._numbers(which, kernel, factors),
            "alpha": alpha,
            "fitted_alpha": tuned.alpha,
            "rows": len(self.numbers),
            "of": count(self.X),
            "gram": _picture(plain(gram)[np.ix_(self.order, self.order)]),
            "order": self.numbers[self.order],
            "spectrum": values,
            "dimension": effective_dimension(values, alpha),
        }
        if self._used_targets is not None:
            answer |= self._errors(which, factors, alpha)
        return answer

    def _numbers(self, which: int, kernel: Kernel, factors: Mapping[str, float]) -> list[dict[str, object]]:
        values = {name: plain(value).reshape(-1) for name, value in kernel.hyperparameter_values().items()}
        return [
            {"name": name, "factor": factors.get(name, 1.0), "low": values[name].min(), "high": values[name].max()}
            for name in self.sliders(which)
        ]

    def _errors(self, which: int, factors: Mapping[str, float], alpha: float) -> dict[str, object]:
        targets, alphas = self._used_targets, self.alphas(which)
        assert targets is not None
        *path, here = self.left_out(which, factors, [*alphas, alpha])
        classes = targets.classes is not None
        return {
            "alphas": alphas,
            "errors": [targets.error(predictions) for predictions in path],
            "error": targets.error(here),
            "measure": "share of wrong classes" if classes else "root mean squared error",
            "targets": None if classes else targets.Y[:, 0],
            "answers": None if classes else here[:, 0],
            "confusion": confusion(targets.Y.argmax(1), here.argmax(1), targets.Y.shape[1]) if classes else None,
            "classes": targets.classes,
        }


def _eigenvalues(spectrum_and_constants: Known) -> np.ndarray:
    """The eigenvalues, the largest first, without the one that stands for constants beside a centred matrix."""
    spectrum, constants = spectrum_and_constants
    values = plain(spectrum.values)
    if constants is not None and float(constants.level) > 0:
        values = np.delete(values, int((spectrum.vectors.mT @ constants.basis)[:, 0].abs().argmax()))
    return values[::-1].clip(0.0)


def _picture(K: np.ndarray) -> dict[str, object]:
    """A matrix as bytes between its least and its largest entry."""
    low, high = float(K.min()), float(K.max())
    share = (K - low) / (high - low) if high > low else np.zeros_like(K)
    bytes_ = (255.0 * share).round().astype(np.uint8).tobytes()
    return {"size": K.shape, "pixels": base64.b64encode(bytes_).decode("ascii"), "low": low, "high": high}
