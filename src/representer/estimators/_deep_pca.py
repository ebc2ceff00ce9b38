"""What deep kernel PCA makes of its arguments and data: levels, the Gram matrix of the first one, new rows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from representer.data import count, take
from representer.kernels import Kernel, Linear, as_kernel
from representer.linalg.memory import require_gram, row_blocks
from representer.operators import Decomposable
from representer.operators.adapted import Projected, Representation, original, repaired_gram, takes_sparse
from representer.parameters import is_count, is_real

# Hidden features that vary by less than this share of their size are one number.
CONSTANT = 1e-6


class CollapsedComponentWarning(UserWarning):
    """A component explains nothing: it is constant, or there are more components than directions with variance."""


class KernelsPerLevel(BaseEstimator):
    """A learner with ``kernels``: one for all levels, or a list whose entries have nested names, too."""

    kernels: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, with ``deep`` also those of the kernels, as ``kernels__0__lengthscale``."""
        params = super().get_params(deep)
        if deep and isinstance(self.kernels, list | tuple):
            for j, kernel in enumerate(self.kernels):
                if isinstance(kernel, Kernel):
                    params |= {f"kernels__{j}__{name}": value for name, value in kernel.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of one level's kernel by ``kernels__0__lengthscale``, also where it is a name.

        If ``kernels`` is no list, it becomes one for this, with as many entries as there are levels.
        ``kernels__lengthscale`` is for one kernel of all levels.
        """
        given = params.get("kernels", self.kernels)
        nested = {name: v for name, v in params.items() if name.startswith("kernels__")}
        parts = {name: [*name.split("__", 2), ""][1:3] for name in nested}
        listed = isinstance(given, list | tuple)
        if not nested or not (listed or any(index.isdigit() for index, _ in parts.values())):
            if nested and isinstance(given, str):
                params["kernels"] = as_kernel(given)
            return super().set_params(**params)
        kernels = list(given) if listed else [given] * self._count_levels(params)
        changed: dict[int, Kernel] = {}
        for name, (index, rest) in parts.items():
            if not (index.isdigit() and int(index) < len(kernels)) or not rest:
                raise ValueError(
                    f"Invalid parameter {name!r} for DeepKernelPCA: the parameters of a kernel in a list are set by "
                    f"kernels__0__lengthscale and the like; kernels={given!r}, {len(kernels)} levels."
                )
            j = int(index)
            if j not in changed:
                changed[j] = _as_kernel_of(j, kernels[j])
            changed[j].set_params(**{rest: nested[name]})
        entries = [changed.get(j, kernel) for j, kernel in enumerate(kernels)]
        rest_of = {name: value for name, value in params.items() if name not in nested}
        return super().set_params(
            **{**rest_of, "kernels": tuple(entries) if isinstance(given, tuple) else entries}
        )

    def _count_levels(self, params: dict[str, Any]) -> int:
        """As many as the lists among the other arguments say."""
        for name in ("n_components", "eta"):
            value = params.get(name, getattr(self, name))
            if isinstance(value, list | tuple | np.ndarray):
                return len(value)
        return 1

    def _first_kernel(self) -> Kernel:
        given = self.kernels
        return as_kernel(given[0] if isinstance(given, list | tuple) and len(given) else given)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            first = self._first_kernel()
        except (ValueError, TypeError):  # fit will say what is wrong
            return tags
        tags.input_tags.pairwise = first.domain == "gram"
        tags.input_tags.sparse = takes_sparse(first)
        return tags


@dataclass(frozen=True)
class Levels:
    """The arguments of every level, from the data on."""

    sizes: list[int | float]  # components, or shares of the variance
    kernels: list[Kernel]
    etas: list[float]

    @staticmethod
    def of(n_components: Any, kernels: Any, eta: Any) -> Levels:
        """From lists with one entry a level; what is no list holds for all levels."""
        given = {"n_components": n_components, "kernels": kernels, "eta": eta}
        lists = {name: list(v) for name, v in given.items() if isinstance(v, list | tuple | np.ndarray)}
        counts = {name: len(entries) for name, entries in lists.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(
                "n_components, kernels and eta have one entry a level (or are no list: the same for all levels), but "
                f"there are {' and '.join(f'{count} {name}' for name, count in counts.items())}."
            )
        levels = next(iter(counts.values()), 1)
        if levels == 0:
            raise ValueError(f"{', '.join(lists)}: an empty list. There must be at least one level.")
        entries = {name: lists.get(name, [value] * levels) for name, value in given.items()}
        return Levels(
            [_size(j, entry) for j, entry in enumerate(entries["n_components"])],
            [_kernel(j, entry) for j, entry in enumerate(entries["kernels"])],
            [_eta(j, entry) for j, entry in enumerate(entries["eta"])],
        )

    def check_samples(self, n: int) -> None:
        """No level can have more orthonormal columns than there are samples, nor can nonlinear levels together.

        Of linear levels, each may have N: lemma 4.2 of Tonin et al. is about them.
        """
        for j, size in enumerate(self.sizes):
            if isinstance(size, int) and size > n:
                raise ValueError(
                    f"n_components of level {j} is {size}, but there are only {n} samples (n_samples = {n}): its "
                    "components are orthonormal vectors with one entry a sample."
                )
        total = sum(size for size in self.sizes if isinstance(size, int))
        if total > n and not all(isinstance(kernel, Linear) for kernel in self.kernels[1:]):
            raise ValueError(
                f"n_components are {total} in all levels together, but there are only {n} samples (n_samples = {n}): "
                "nonlinear levels then fit anything. Ask for fewer components or levels, or for linear upper levels."
            )


def _size(level: int, given: Any) -> int | float:
    if is_count(given):
        return int(given)
    if is_real(given) and not isinstance(given, int | np.integer) and 0.0 < given < 1.0:
        return float(given)
    raise ValueError(
        f"n_components of level {level} must be a positive integer or a share of the variance between 0 and 1; got "
        f"{given!r}."
    )


def _kernel(level: int, given: Any) -> Kernel:
    """A kernel with plain numbers. Names above the first level stand for a scale of 1, that of hidden features."""
    kernel = _as_kernel_of(level, given).numbers()
    if level == 0:
        return kernel
    if kernel.domain != "vectors":
        raise ValueError(
            f"The kernel of level {level}, {kernel!r}, takes data of the kind {kernel.domain!r}, but it gets hidden "
            "features, which are vectors. Only the first kernel sees the data themselves."
        )
    return kernel


def _as_kernel_of(level: int, given: Any) -> Kernel:
    """A copy of what is given, as a kernel; a word in a name above the first level stands for 1."""
    kernel = as_kernel(given).__sklearn_clone__()
    if level and isinstance(given, str):
        words = [name for name in kernel.hyperparameters if isinstance(getattr(kernel, name), str)]
        kernel = kernel.set_params(**dict.fromkeys(words, 1.0))
    return kernel


def _eta(level: int, given: Any) -> float:
    if not is_real(given) or not np.isfinite(given) or given == 0 or abs(given) < 1.0 / np.finfo(float).max:
        raise ValueError(
            f"eta of level {level} must be a finite number other than 0, and 1/eta, which weighs the level, must "
            f"be finite, too; got {given!r}."
        )
    return float(given)


@dataclass(frozen=True)
class FirstLevel:
    """The kernel of the data, with what is needed for new points: a repair, and centring."""

    kernel: Kernel  # resolved, adapted
    data: Any  # prepared training data
    means: Tensor | None  # of each training column of k, if features are centred
    grand_mean: float
    diagonal: Tensor  # k(x_n, x_n), not centred

    @staticmethod
    def of(kernel: Kernel, data: Any, form: Representation, *, center: bool) -> tuple[FirstLevel, Tensor]:
        """The first level of training data, and their Gram matrix."""
        require_gram(count(data), count(data))
        adapted = form.adapted(Decomposable(kernel), repair=True)
        assert isinstance(adapted, Decomposable)
        resolved = adapted.resolve(data).kernel
        gram, kept = repaired_gram(resolved, data)
        if kept is not None:
            resolved = Projected(resolved, kept)
        means = gram.mean(0) if center else None
        grand_mean = 0.0 if means is None else means.mean().item()
        first = FirstLevel(resolved, data, means, grand_mean, gram.diagonal().clone())
        return first, first._centered_gram(gram)

    def gram(self, *, center: bool = True) -> Tensor:
        """k of the training data, centred if that was asked for."""
        gram = self.kernel._gram(self.data, None)
        return self._centered_gram(gram) if center else gram

    def _centered_gram(self, gram: Tensor) -> Tensor:
        if self.means is None:
            return gram
        return gram.sub_(self.means).sub_(self.means[:, None]).add_(self.grand_mean)

    def rows(self, X: Any) -> Tensor:
        """k(x, x_n) for prepared new data, not centred."""
        return self.kernel._gram(X, self.data)

    def centered(self, rows: Tensor) -> Tensor:
        """⟨φ(x) − m, φ(x_n) − m⟩ from k(x, x_n)."""
        if self.means is None:
            return rows
        return rows - rows.mean(1, keepdim=True) - self.means + self.grand_mean

    def nearest(self, rows: Tensor) -> Tensor:
        """The training sample nearest to each new one, in feature space."""
        return (2.0 * rows - self.diagonal).argmax(1)

    def twins(self, gram: Tensor) -> Tensor:
        """For each training sample the one that is nearest to it as a new sample: itself, or one that is the same.

        Only samples that are close to another in the (centred) Gram matrix are looked at.
        """
        twins = torch.arange(len(gram), device=gram.device)
        norms, close = gram.diagonal(), torch.finfo(gram.dtype).eps ** 0.5 * self.diagonal.abs().max()
        for rows in row_blocks(len(gram), 2 * len(gram) * gram.element_size()):
            near = 2.0 * gram[rows] - norms >= norms[rows, None] - close
            numbers = twins[rows][near.sum(1) > 1]
            if len(numbers):
                twins[numbers] = self.nearest(self.rows(take(self.data, numbers)))
        return twins


def sample_count(max_samples: Any, n: int) -> int:
    """How many of n samples to fit to."""
    if max_samples is None:
        return n
    if is_count(max_samples) and max_samples > 1:
        return min(int(max_samples), n)
    if is_real(max_samples) and not isinstance(max_samples, int | np.integer) and 0.0 < max_samples <= 1.0:
        return max(2, round(float(max_samples) * n))
    raise ValueError(
        f"max_samples must be None, an integer of at least 2, or a share of the samples up to 1.0; got {max_samples!r}."
    )


def check_varies(gram: Tensor, first: FirstLevel) -> None:
    """Refuse data that are all the same to the first kernel, or beyond its range."""
    if not gram.abs().max() < torch.finfo(gram.dtype).max ** 0.5 / len(gram):  # also if it is NaN
        raise ValueError(
            f"The Gram matrix of {original(first.kernel)!r} is not finite, or sums of its squares overflow. "
            "Scale the data, or choose another kernel."
        )
    spread = gram.max() - gram.min()
    if spread <= len(gram) * torch.finfo(gram.dtype).eps * first.diagonal.abs().max():
        raise ValueError(
            f"{original(first.kernel)!r} gives the same value for every pair of samples, to rounding: there is nothing "
            "to find components of. Check the data, or choose a kernel that depends on its input."
        )


def is_constant(H: np.ndarray) -> np.ndarray:
    """Which components are the same for all samples."""
    return np.asarray(np.ptp(H, axis=0) <= CONSTANT * np.abs(H).max(0))


def shares(values: np.ndarray, total: float, n: int) -> np.ndarray:
    """Eigenvalues of an n × n matrix over their sum; NaN where those of both signs cancel to rounding."""
    if abs(total) <= n * np.finfo(values.dtype).eps * np.abs(values).sum():
        return np.full_like(values, np.nan)
    return values / total
