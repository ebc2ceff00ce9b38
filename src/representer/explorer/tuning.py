"""What a kernel sees of samples, and what leave-one-out says of other numbers in it: one eigendecomposition each."""

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

from representer.explorer.charts import adapted
from representer.inspection.report import confusion, effective_dimension, kernel_words
from representer.kernels import Kernel, seen_inside
from representer.operators import Representation
from representer.samples import Data, count, evenly_spaced, plain, take
from representer.systems import Groups
from representer.systems.exact import GramInverse, Known, spectrum_beside_constants
from representer.values import Positive

# Samples that leave-one-out is computed for while a slider moves, and those in the picture of the Gram matrix.
ROWS, SHOWN_ROWS = 600, 240
# Decades to each side of the fitted alpha, and steps in each of them.
DECADES, STEPS = 5, 4
# Kernels with more numbers than these have a slider for the first ones.
MOST_SLIDERS = 6


@dataclass(frozen=True)
class Tuned:
    """One kernel of a model, with its own alpha."""

    kernel: Kernel
    alpha: float
    weight: float = 1.0

    @property
    def words(self) -> str:
        """Its name, and its weight in a stack."""
        name = type(seen_inside(self.kernel)[0]).__name__
        return name if self.weight >= 1.0 else f"{name}, weight {self.weight:.2f}"


@dataclass(frozen=True)
class LeftOutTargets:
    """What leave-one-out predicts: numbers (n, p), or indicators of classes, with the groups left out together."""

    Y: np.ndarray
    classes: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None
    intercept: bool = True

    def rows(self, index: np.ndarray) -> LeftOutTargets:
        """Those of some samples."""
        weights = None if self.weights is None else self.weights[index]
        groups = None if self.groups is None else self.groups[index]
        return LeftOutTargets(self.Y[index], self.classes, weights, groups, self.intercept)

    def error(self, predictions: np.ndarray) -> float:
        """The root mean squared error, or the share of samples whose class has not the largest value."""
        if self.classes is not None:
            return float(np.mean(predictions.argmax(1) != self.Y.argmax(1)))
        return float(np.sqrt(np.mean((predictions - self.Y) ** 2)))


@dataclass(frozen=True)
class Tuning:
    """The kernels of a model on samples: Gram matrix, spectrum, leave-one-out at other numbers.

    Parameters
    ----------
    tuned : sequence of Tuned
        The kernels; one, or those of a stack by their weights.
    X : data
        Samples, unprepared.
    how : Representation
        How arrays become tensors.
    targets : LeftOutTargets or None
        None: there is nothing to predict.
    """

    tuned: Sequence[Tuned]
    X: Data
    how: Representation
    targets: LeftOutTargets | None
    _memory: dict[str, tuple[object, Known, Tensor]] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The numbers of the samples that are looked at."""
        n = self.X.shape[0] if hasattr(self.X, "shape") else count(self.X)
        known = np.arange(n)
        if self.targets is not None:
            known = known[np.isfinite(self.targets.Y).all(1)]
        return known[evenly_spaced(len(known), ROWS)]

    @cached_property
    def _some(self) -> Data:
        return take(self.X, torch.from_numpy(self.numbers))

    @cached_property
    def _known(self) -> LeftOutTargets | None:
        return None if self.targets is None else self.targets.rows(self.numbers)

    @cached_property
    def order(self) -> np.ndarray:
        """Which samples are shown, in the order of a tree that joins those that the first kernel finds alike."""
        own = self.tuned[0]
        shown = evenly_spaced(len(self.numbers), SHOWN_ROWS)
        K = plain(self._gram(own.kernel).double())[np.ix_(shown, shown)]
        if len(shown) < 3:
            return shown
        root = np.sqrt(np.maximum(np.diag(K), np.finfo(float).tiny))
        distances = np.maximum(1.0 - K / root[:, None] / root, 0.0)
        np.fill_diagonal(distances, 0.0)
        tree = linkage(squareform(distances, checks=False), "average", optimal_ordering=True)
        return shown[leaves_list(tree)]

    def _gram(self, kernel: Kernel) -> Tensor:
        own = adapted(kernel, self.how)
        with torch.no_grad():
            return own._gram(self.how.inputs(own, self._some), None)

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
        """The spectrum of the rooted, centred Gram matrix, and that matrix itself; the last one is remembered."""
        key = (which, tuple(sorted(factors.items())))
        found = self._memory.get("last")
        if found is None or found[0] != key:
            gram = self._gram(self.changed(which, factors)).double()
            intercept = self._known is not None and self._known.intercept
            known = spectrum_beside_constants(gram.clone(), self._root(gram), intercept=intercept)
            found = self._memory["last"] = (key, known, gram)
        return found[1], found[2]

    def _root(self, like: Tensor) -> Tensor:
        """The roots of the weights, which have mean 1."""
        weights = None if self._known is None else self._known.weights
        if weights is None:
            return like.new_ones(len(like))
        own = torch.as_tensor(np.asarray(weights, float).reshape(len(like), -1)[:, 0], dtype=like.dtype)
        return (own / own.mean()).sqrt()

    def left_out(self, which: int, factors: Mapping[str, float], alphas: Sequence[float]) -> list[np.ndarray]:
        """What ridge regression without each sample, or its group, predicts of it, (n, p) for each alpha."""
        targets = self._known
        assert targets is not None
        (spectrum, constants), gram = self._spectrum(which, factors)
        Y = torch.as_tensor(targets.Y, dtype=gram.dtype)
        blocks = None if targets.groups is None else list(Groups.of(targets.groups, gram.device).members)
        root, found = self._root(gram), []
        for alpha in alphas:
            inverse = GramInverse(spectrum, gram.new_tensor(len(Y) * alpha), root, constants)
            found.append(plain(Y - inverse.residuals(inverse.solve(Y), blocks)))
        return found

    def alphas(self, which: int) -> np.ndarray:
        """The values of alpha that are offered."""
        return self.tuned[which].alpha * 10.0 ** (np.arange(-DECADES * STEPS, DECADES * STEPS + 1) / STEPS)

    def view(self, which: int, factors: Mapping[str, float], alpha: float | None = None) -> dict[str, object]:
        """What the page shows of a kernel with other numbers."""
        if not 0 <= which < len(self.tuned):
            raise ValueError(f"There is no kernel {which}; there are {len(self.tuned)}.")
        own = self.tuned[which]
        alpha = own.alpha if alpha is None else alpha
        if not (np.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha must be positive; got {alpha}.")
        kernel = self.changed(which, factors)
        known, gram = self._spectrum(which, factors)
        values = _eigenvalues(known) / len(gram)
        answer: dict[str, object] = {
            "kernels": [t.words for t in self.tuned],
            "which": which,
            "code": kernel_words(kernel),
            "sliders": self._numbers(which, kernel, factors),
            "alpha": alpha,
            "fitted_alpha": own.alpha,
            "rows": len(self.numbers),
            "of": self.X.shape[0] if hasattr(self.X, "shape") else count(self.X),
            "gram": _picture(plain(gram)[np.ix_(self.order, self.order)]),
            "order": self.numbers[self.order],
            "spectrum": values,
            "dimension": effective_dimension(values, alpha),
        }
        if self._known is not None:
            answer |= self._errors(which, factors, alpha)
        return answer

    def _numbers(self, which: int, kernel: Kernel, factors: Mapping[str, float]) -> list[dict[str, object]]:
        values = {name: plain(value).reshape(-1) for name, value in kernel.hyperparameter_values().items()}
        return [
            {"name": name, "factor": factors.get(name, 1.0), "low": values[name].min(), "high": values[name].max()}
            for name in self.sliders(which)
        ]

    def _errors(self, which: int, factors: Mapping[str, float], alpha: float) -> dict[str, object]:
        targets, alphas = self._known, self.alphas(which)
        assert targets is not None
        *path, here = self.left_out(which, factors, [*alphas, alpha])
        classes = targets.classes is not None
        return {
            "alphas": alphas,
            "errors": [targets.error(found) for found in path],
            "error": targets.error(here),
            "measure": "share of wrong classes" if classes else "root mean squared error",
            "targets": None if classes else targets.Y[:, 0],
            "answers": None if classes else here[:, 0],
            "confusion": confusion(targets.Y.argmax(1), here.argmax(1), targets.Y.shape[1]) if classes else None,
            "classes": targets.classes,
        }


def _eigenvalues(known: Known) -> np.ndarray:
    """The eigenvalues, the largest first, without the one that stands for constants beside a centred matrix."""
    spectrum, constants = known
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
