"""Structured outputs of many samples: sums over blocks, in memory or on Dask, and few rows that stand for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor

from representer.approximation import LandmarkFeatures, Landmarks, Nystroem
from representer.approximation.landmarks import EXPANSION_DIGITS
from representer.approximation.sampling import sample_rows, sampling_keys
from representer.data import is_single, plain, take
from representer.estimators._large_parts import HELD_ROWS, block_limit, chosen_of_both
from representer.estimators._lazy import keep_columns, source_on_dask
from representer.estimators._structured import Inputs, Outputs, Problem, independent, labelled_outputs
from representer.estimators._structured_search import Choice, choose
from representer.estimators.validation import (
    DTYPES,
    check_alpha,
    check_bare,
    check_inputs,
    check_outputs,
    seed_of,
)
from representer.kernels import Kernel, as_kernel
from representer.linalg import Spectrum, eigh
from representer.operators.adapted import takes_sparse
from representer.samples.in_memory import Block, InMemory, Samples
from representer.samples.on_dask import OnDask, as_rows, is_dask
from representer.systems.structured import DiagonalRegression, HeldOutputs
from representer.systems.sums import NormalRidge, NormalStep, NormalSums, symmetric

# With an approximation, kernels and decoders see so many random samples; up to it all, as in an exact fit.
KNOWN_ROWS = 20_000


def as_pair(given: Any) -> tuple[Any, Any] | None:
    """The approximations of inputs and outputs."""
    if given is None:
        return None
    pair, kinds = (given, given) if isinstance(given, Nystroem) else given, Nystroem | Landmarks
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(a, kinds) for a in pair)):
        raise ValueError(
            "approximation must be None, Nystroem(...), or a pair of Nystroem(...) or Landmarks(...), for inputs and "
            f"for outputs; got {given!r}."
        )
    check_bare(*pair)
    return pair[0], pair[1]


# -- the samples ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ManySamples:
    """All samples of a fit, of which the learner itself sees ``known``: inputs and outputs as they were given."""

    known: tuple[Any, Any]
    X: Any
    y: Any
    seed: int

    def source(self, learner: Any) -> Samples:
        """For sums, when the learner's kernels are known."""
        if is_dask(self.X):
            source = OnDask(self.X, self.y, None, dtype=DTYPES[learner.dtype])
            keep_columns(learner, self.X, source)
            return source
        return InMemory(
            Block(learner._inputs(learner.kernel_, self.X), learner._outputs(learner.output_kernel_, self.y))
        )


def many_samples(learner: Any, X: Any, y: Any) -> ManySamples | None:
    """The samples, if they are on Dask, or too many for the learner to see all of them."""
    given, output = (as_kernel(getattr(learner, name), argument=name) for name in ("kernel", "output_kernel"))
    seed = seed_of(learner.random_state)
    if is_dask(X) or is_dask(y):
        if output.domain != "vectors":
            raise ValueError(
                f"On Dask, outputs must be vectors, but {output!r} takes {output.domain}. Give explicit features of "
                "them with output_kernel='linear', or call X.compute() and y.compute() if they fit."
            )
        source = source_on_dask(learner, given, X, y, dtype=DTYPES[learner.dtype])
        rows = sample_rows(source.n, KNOWN_ROWS, seed)
        outputs = as_rows(y, "y")[rows].compute() if is_dask(y) else _safe_indexing(y, rows)
        return ManySamples((source.X[rows].compute(), outputs), X, y, seed)
    if learner.approximation is None or is_single(X):
        return None
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if n <= KNOWN_ROWS or labelled_outputs(output, y)[1] is not None:
        return None
    rows = sample_rows(n, KNOWN_ROWS, seed)
    checked = check_inputs(learner, X, given.domain, reset=True, sparse=takes_sparse(given))
    outputs, _ = check_outputs(output, y, reset=True)
    if len(outputs) != n:
        raise ValueError(f"X and y have inconsistent numbers of samples: {n} and {len(outputs)}.")
    return ManySamples((_safe_indexing(X, rows), _safe_indexing(y, rows)), checked, outputs, seed)


# -- the problem ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SummedInputs(Inputs):
    """Rows that stand for many: the first ``rank`` are orthogonal, the others zero."""

    rank: int = 0

    @cached_property
    def spectrum(self) -> Spectrum:
        """Known without a decomposition."""
        assert self.factor is not None
        vectors = torch.eye(len(self.factor), self.rank, dtype=self.factor.dtype, device=self.factor.device)
        return Spectrum(vectors, self.factor[: self.rank].square().sum(1))


@dataclass(frozen=True)
class SummedOutputs(Outputs):
    """Outputs whose rows stand for many: their mean is known from elsewhere."""

    mean: Tensor | None = None  # where they are centred

    def offset(self, like: Tensor) -> Tensor | None:
        """The weights of the mean output."""
        return None if self.mean is None or self.weigh is None else self.weigh(self.mean[None].to(like))[0]


@dataclass(frozen=True)
class SummedProblem(Problem):
    """A problem made from sums."""

    held_rows: np.ndarray | None = None  # those that are left out, among what the learner knows
    sums: NormalSums | None = None
    targets: LandmarkFeatures | None = None
    spectrum: Spectrum | None = None  # of S

    @property
    def features(self) -> tuple[LandmarkFeatures, LandmarkFeatures | None]:
        """Those of inputs, and those of outputs, unless these are vectors in their own coordinates."""
        assert self.inputs.features is not None
        return self.inputs.features, self.targets

    def dual(self, diagonal: DiagonalRegression, alpha: float) -> tuple[Tensor, Tensor | None]:
        """By the sums themselves, which have more digits than the rows that stand for them."""
        features, weigh = self.features[0], self.outputs.weigh
        assert self.sums is not None and weigh is not None and isinstance(self.outputs, SummedOutputs)
        sums, mean, Q = self.sums, self.outputs.mean, diagonal.vectors
        if mean is not None:
            sums = replace(sums, cross=sums.cross - torch.outer(sums.feature_sum, mean))
        scales = diagonal.values.double().expand(sums.cross.shape[1] if Q is None else Q.shape[1])
        ridge = NormalRidge(sums, scales, None if Q is None else Q.double())
        if len(diagonal.values) > 1 and self.spectrum is not None:
            ridge.spectrum = self.spectrum
        theta = ridge.weighted_coefficients(alpha).to(features.dtype)
        dual = weigh(features.coefficients(theta))
        return dual, theta if self._loses_digits(dual, theta, 0.0 if mean is None else mean) else None

    def _loses_digits(self, dual: Tensor, theta: Tensor, mean: Tensor | float) -> bool:
        """Is ε Σ_i |k(x, z_i) D_ij l(z_j, y)| too much beside ‖g‖, as where landmarks of either side nearly depend?

        Its norm over j, that is: weights of different outputs are rounded each in its own way.
        """
        (features, targets), eps = self.features, torch.finfo(theta.dtype).eps
        root = features.factor.factor.square().sum(1).sqrt()  # √k(z, z)
        sizes = dual.abs() if targets is None else dual.abs() * targets.factor.factor.square().sum(1).sqrt()
        values = (features.factor.factor @ theta + mean).square().sum(1).mean().sqrt()  # at the landmarks
        return bool(eps * root.max() * (root @ sizes).norm() > eps**EXPANSION_DIGITS * values)

    def left_out(self, Y: Any) -> Any:
        """Those that are held, of all that the learner knows."""
        return take(Y, torch.from_numpy(self.held_rows))


def summed_problem(
    learner: Any, kernel: Kernel, source: Samples, operator: Any, *, on_axes: bool, seed: int
) -> SummedProblem:
    """The regression of all samples on landmarks of inputs and outputs, from one pass over them."""
    _, pair, centred = learner._settings
    features = _chosen(kernel, pair[0], source, "X", seed)
    targets = None if on_axes else _chosen(learner._output_adapted(), pair[1], source, "Y", seed)
    held = sample_rows(source.n, HELD_ROWS, seed)
    sums = _sums(learner, source, features, targets)
    rows = np.searchsorted(sample_rows(source.n, KNOWN_ROWS, seed), held)
    return _problem(features, targets, sums, source.rows(held), operator, rows, centred=centred)


def _sums(
    learner: Any, source: Samples, features: LandmarkFeatures, targets: LandmarkFeatures | None
) -> NormalSums:
    width = source.rows(np.arange(1)).Y.shape[1] if targets is None else targets.n_features
    limit = block_limit(learner.memory_limit, features.n_features, width)
    total: NormalSums = source.total(NormalStep(features, targets), limit=limit)
    return total


def _chosen(kernel: Kernel, approximation: Any, source: Samples, side: str, seed: int) -> LandmarkFeatures:
    block = source.rows(approximation.rows(source.n, seed))
    return independent(approximation.choose(kernel, getattr(block, side), seed))


def _problem(
    features: LandmarkFeatures,
    targets: LandmarkFeatures | None,
    sums: NormalSums,
    sample: Block,
    operator: Any,
    held_rows: np.ndarray,
    *,
    centred: bool,
) -> SummedProblem:
    """From the sums, and the samples that are left out one by one."""
    mean = sums.target_sum / sums.weight if centred else torch.zeros_like(sums.target_sum)
    S = spectrum_of(sums)
    B, R, rank = standing_rows(sums, mean, S)
    B, R = B.to(features.dtype), R.to(features.dtype)
    with torch.no_grad():
        known = (sample.Y if targets is None else targets(sample.Y)).double() - mean
        held = HeldOutputs(features(sample.X) @ B.mT, known.to(features.dtype), len(R) / sums.n)
    if targets is None:
        axes = torch.eye(R.shape[1], dtype=R.dtype, device=R.device)
        anchors, weigh = axes, lambda theta: theta
    else:
        anchors, weigh = targets.landmarks, lambda theta: targets.coefficients(theta.mT).mT
    outputs = SummedOutputs(
        lambda: (R, None), anchors, weigh, False, on_axes=targets is None, mean=mean if centred else None
    )
    return SummedProblem(
        SummedInputs(B, features=features, rank=rank),
        outputs,
        operator,
        held,
        held_rows,
        sums,
        targets,
        None if operator in ("identity", "kpca") else S,
    )


def spectrum_of(sums: NormalSums) -> Spectrum:
    """Of S."""
    return eigh(
        symmetric(sums.gram), name="The inner products of the features", overwrite=True, dtype=torch.float32
    )


def standing_rows(sums: NormalSums, mean: Tensor, S: Spectrum) -> tuple[Tensor, Tensor, int]:
    """Few rows B (N, m) and R (N, r) with the mean products BᵀB/N = S/n, BᵀR/N, RᵀR/N of all samples, R from ``mean``.

    The first rows of B are orthogonal, the others zero: as many as the third value says. A ridge regression of R on B
    is that of all samples, for every alpha and operator; only who is left out is not seen.
    """
    cross = sums.cross - torch.outer(sums.feature_sum, mean)
    squares = sums.squares - sums.weight * torch.outer(mean, mean)
    eps = torch.finfo(S.values.dtype).eps
    known = S.values > len(S.values) * eps * S.values.max()
    vectors, root = S.vectors[:, known], S.values[known].sqrt()
    inside = (vectors.mT @ cross) / root[:, None]
    rest = squares - inside.mT @ inside  # what no function of the features explains
    values, directions = torch.linalg.eigh(0.5 * (rest + rest.mT))
    beyond = values > len(values) * eps * squares.diagonal().max()
    outside = (directions[:, beyond] * values[beyond].sqrt()).mT
    B = torch.cat([root[:, None] * vectors.mT, vectors.new_zeros(len(outside), len(vectors))])
    R = torch.cat([inside, outside])
    scale = (len(R) / sums.weight) ** 0.5
    return scale * B, scale * R, len(root)


# -- batches ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Batches:
    """What the next batch is added to: sums, and the keys of the samples that the learner knows."""

    sums: NormalSums  # of NumPy arrays
    keys: np.ndarray
    seen: int


def chosen_again(learner: Any, problem: Problem) -> Choice:
    """The numbers of a problem with more samples: by leave-one-out, or those of the first batch."""
    _, epsilon, components = learner._form()
    if learner.criterion == "loo" and learner._chooses():
        return choose(problem, check_alpha(learner.alpha), epsilon, components)
    return Choice(learner.alpha_, learner.epsilon_, learner.n_components_, learner.criterion_value_)


def first_batch(learner: Any, problem: Problem) -> Batches:
    """After a fit to the first one."""
    if not isinstance(problem, SummedProblem):
        raise ValueError(
            "partial_fit needs all outputs; some are None or NaN. Leave such samples out, or use fit."
        )
    assert problem.sums is not None
    n = problem.sums.n
    keys = sampling_keys(sample_rows(n, KNOWN_ROWS, learner._seed), learner._seed)
    return Batches(problem.sums.map(plain), keys, n)


def next_batch(learner: Any, X: Any, y: Any) -> tuple[SummedProblem, Batches]:
    """Sums with another batch, the problem that they make, and the samples that the learner knows from now on."""
    before: Batches = learner._batches
    kernel, output = learner._adapted(learner.kernel_, repair=False), learner.output_kernel_
    X = check_inputs(learner, X, kernel.domain, reset=False, sparse=takes_sparse(kernel))
    if labelled_outputs(output, y)[1] is not None:
        raise ValueError(
            "partial_fit needs all outputs; some are None or NaN. Leave such samples out, or use fit."
        )
    Y, flat = check_outputs(learner.output_kernel_, y, reset=False)
    if len(X) != len(Y) or flat != learner._flat:
        raise ValueError(
            f"X and y have {len(X)} and {len(Y)} samples, or y has other dimensions than before."
        )
    block = Block(learner._inputs(kernel, X), learner._new_outputs(y, "y"))
    features, targets = learner._feature_maps()
    sums = before.sums.map(torch.from_numpy) + _sums(learner, InMemory(block), features, targets)
    keys = np.concatenate([before.keys, sampling_keys(np.arange(before.seen, sums.n), learner._seed)])
    kept = np.sort(np.argsort(keys)[:KNOWN_ROWS])
    learner.X_fit_, learner.Y_fit_ = (
        chosen_of_both(old, new, kept) for old, new in ((learner.X_fit_, X), (learner.Y_fit_, Y))
    )
    held = np.sort(np.argsort(keys[kept])[:HELD_ROWS])
    some = torch.from_numpy(held)
    sample = Block(
        learner._inputs(kernel, take(learner.X_fit_, some)),
        learner._outputs(learner.output_kernel_, take(learner.Y_fit_, some)),
    )
    form, _, centred = learner._settings
    problem = _problem(features, targets, sums, sample, form, held, centred=centred)
    return problem, Batches(sums.map(plain), keys[kept], sums.n)
