"""Weighted sums of l(·, y_i) in the RKHS of an output kernel l: embeddings, samples of them, functions into it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from representer.functions.base import Expansion, Function, Span
from representer.functions.features import FeatureFunction, StoredFeatures
from representer.kernels import Kernel, as_kernel
from representer.linalg import row_blocks
from representer.operators import Representation
from representer.samples import Data, count, plain, same_features, take
from representer.samples import rows as limits
from representer.values import is_count

# l(y, y') of pairs is the diagonal of a Gram matrix of so many of them at once.
PAIRS = 64
# The rounding of a sum of squared differences from a mean, in squared units of that of the features.
ROUNDED_FEATURES = 64.0


@dataclass(frozen=True)
class Embedding:
    """q elements μ_a = Σ_i w_ai l(·, y_i) of the RKHS of l, such as the mean embeddings of q distributions.

    Parameters
    ----------
    kernel : Kernel
        l, with numbers for all hyperparameters.
    anchors : prepared data
        The n samples y_i that all elements share.
    weights : tensor (q, n)
        The w_ai.

    Examples
    --------
    >>> from representer import mean_embedding
    >>> from representer.kernels import Linear
    >>> one, two = mean_embedding([[1.0], [3.0]], Linear()), mean_embedding([[5.0]], Linear())
    >>> one([[10.0]]).item(), one.inner(two).item(), one.distance(two).item()
    (20.0, 10.0, 3.0)
    """

    kernel: Kernel
    anchors: Data
    weights: Tensor

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, rows: Any) -> Embedding:
        """The elements with these numbers."""
        return Embedding(self.kernel, self.anchors, self.weights[rows].reshape(-1, self.weights.shape[1]))

    def __call__(self, Y: Data) -> Tensor:
        """μ_a(y_j), (q, m): the expectations of l(y_j, ·)."""
        Y = self._prepared(Y)
        step = row_blocks(count(Y), self.weights.shape[1] * self.weights.element_size())
        return torch.cat([self.weights @ self._gram(Y[rows]) for rows in step], -1)

    def _prepared(self, Y: Data) -> Data:
        """Samples as the kernel takes them, in the precision of the weights."""
        Y = self.kernel.prepare(Y)
        if isinstance(Y, Tensor):
            if self.kernel.domain == "vectors":
                same_features(self.anchors, Y)
            Y = Y.to(self.weights)
        return Y

    def _gram(self, Y: Data) -> Tensor:
        return self.kernel._gram(self.anchors, Y).to(self.weights)

    def expect(self, g: object) -> Tensor:
        """Σ_i w_ai g(y_i), (q,) or (q, p): a function of the samples, or its values at them, (n,) or (n, p)."""
        return self.weights @ as_values(g, self.anchors, self.weights)

    def inner(self, other: Embedding | None = None) -> Tensor:
        """⟨μ_a, ν_b⟩, (q, r)."""
        other = self if other is None else self._fitting(other)
        return self(other.anchors) @ other.weights.mT

    def squared_norms(self) -> Tensor:
        """The squared norms ‖μ_a‖², (q,)."""
        return (self(self.anchors) * self.weights).sum(-1)

    def distance(self, other: Embedding | None = None) -> Tensor:
        """‖μ_a − ν_b‖, (q, r): the maximum mean discrepancies."""
        other = self if other is None else other
        squares = self.squared_norms()[:, None] + other.squared_norms() - 2.0 * self.inner(other)
        return squares.clamp(min=0.0).sqrt()

    def mixture(self, shares: object = None) -> Embedding:
        """Σ_a π_a μ_a, one element; shares (q,), None for equal ones: the sum rule, if μ_a are those given x_a."""
        if shares is None:
            return Embedding(self.kernel, self.anchors, self.weights.mean(0, keepdim=True))
        values = torch.as_tensor(np.asarray(shares, dtype=np.float64)).to(self.weights)
        if values.shape != (len(self),):
            raise ValueError(f"shares must have one entry for each of the {len(self)} elements; got {values.shape}.")
        return Embedding(self.kernel, self.anchors, values[None] @ self.weights)

    def _fitting(self, other: Embedding) -> Embedding:
        if other.kernel != self.kernel:
            raise ValueError(
                f"These embeddings live in different spaces: their kernels are {self.kernel!r} and {other.kernel!r}. "
                "Make both with the same kernel, with numbers for its hyperparameters."
            )
        return other


def squared_distances(kernel: Kernel, one: object, two: object) -> Tensor:
    """‖φ(y_i) − φ(y'_i)‖² of pairs of prepared samples, (n,)."""
    squares = kernel._diag(one) + kernel._diag(two)
    for start in range(0, count(one), PAIRS):
        rows = torch.arange(start, min(start + PAIRS, count(one)))
        squares[rows] -= 2.0 * kernel._gram(take(one, rows), take(two, rows)).diagonal()
    return squares.clamp_(min=0.0)


def scatter(kernel: Kernel, Y: Data, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sum Σ w_i‖φ(y_i) − mean‖² over prepared samples, and how much of it rounding may be.

    Explicit features have a mean. Otherwise ‖mean‖² is a double sum, over all pairs of up to ``rows.MEAN_ROWS``
    samples; the mean of more is that of as many random ones, which adds one part in so many to the sum on average, and
    that part is taken off again.
    """
    squares, n = kernel._diag(Y), count(Y)
    w = torch.ones_like(squares) if weights is None else weights.to(squares)
    norms, eps, m = w @ squares, torch.finfo(squares.dtype).eps, kernel.n_features(Y)
    if m is not None and m <= n:
        return _feature_scatter(kernel, Y, w, m).to(norms), ROUNDED_FEATURES * eps**2 * norms
    size = min(n, limits.MEAN_ROWS)
    index = torch.arange(n) if size == n else torch.from_numpy(limits.sample_rows(n, size, seed=0))
    some, shares = Y if size == n else take(Y, index), w[index] / w[index].sum()

    def similarities(Z: Data, v: Tensor) -> Tensor:
        """⟨Σ_i v_i φ(z_i), mean⟩, with the mean of some samples."""
        blocks = row_blocks(count(Z), 2 * size * norms.element_size())
        return sum((v[rows] @ kernel._gram(Z[rows], some).to(v) @ shares for rows in blocks), norms.new_zeros(()))

    inner = w.sum() * similarities(some, shares)
    total = norms - inner if size == n else norms - 2.0 * similarities(Y, w) + inner
    return total / (1.0 + shares.square().sum() * (1.0 - size / n)), n * eps * norms


def _feature_scatter(kernel: Kernel, Y: Data, w: Tensor, m: int) -> Tensor:
    """Σ w_i‖φ(y_i) − mean‖² of samples with m explicit features, from differences that do not cancel."""

    def features(Z: Data) -> Tensor:
        values = kernel.features(Z)
        assert values is not None  # the kernel has m
        return values

    origin = features(take(Y, torch.arange(1)))
    middle, total, w = torch.zeros_like(origin), origin.new_zeros(()), w.to(origin)
    shares = w / w.sum()
    blocks = list(row_blocks(count(Y), 4 * m * origin.element_size()))
    for rows in blocks:
        middle += shares[rows] @ (features(Y[rows]) - origin)
    for rows in blocks:
        total += w[rows] @ (features(Y[rows]) - origin - middle).square().sum(1)
    return total


def as_values(g: Any, samples: Any, like: Tensor) -> Tensor:
    """The values of a function at samples, or these values themselves, as a tensor (n,) or (n, p)."""
    if isinstance(g, Callable):  # type: ignore[arg-type]
        g = g(own_copy(samples))
    values = g.detach() if isinstance(g, Tensor) else torch.as_tensor(np.asarray(g, dtype=np.float64))
    if values.ndim not in (1, 2) or len(values) != count(samples):
        raise ValueError(
            f"g must give one value, or one vector, for each of the {count(samples)} samples of Y that were fitted: an "
            f"array of shape ({count(samples)},) or ({count(samples)}, p); got {tuple(values.shape)}."
        )
    return values.to(like)


def own_copy(samples: object) -> Data:
    """Samples to hand to a function of the user's, which may write into them."""
    if isinstance(samples, Tensor):
        return samples.detach().cpu().clone().numpy()
    return samples.copy() if hasattr(samples, "copy") else samples


def mean_embedding(Y: Data, kernel: object = "rbf", *, weights: Any | None = None) -> Embedding:
    """The mean embedding Σ_i w_i l(·, y_i) of a sample.

    Parameters
    ----------
    Y : data
        The sample: what the kernel takes.
    kernel : Kernel or str, default="rbf"
        l; a word in it (``"median"``) is given its number by Y.
    weights : array-like of shape (n_samples,), default=None
        The w_i; None: all 1/n.

    Returns
    -------
    embedding : Embedding
        One element.
    """
    given = as_kernel(kernel)
    Y = given.prepare(Y)
    given = given.resolve(Y)
    n = count(Y)
    like = Y if isinstance(Y, Tensor) else torch.zeros((), dtype=torch.float64)
    if weights is None:
        values = torch.full((1, n), 1.0 / n, dtype=like.dtype, device=like.device)
    else:
        values = torch.as_tensor(np.asarray(weights, dtype=np.float64)).to(like).reshape(1, -1)
        if values.shape[1] != n:
            raise ValueError(f"weights must have one entry for each of the {n} samples; got {values.shape[1]}.")
    return Embedding(given, Y, values)


# -- samples ----------------------------------------------------------------------------------------------------------
def herd(embedding: Embedding, n_samples: int = 10, *, candidates: Data | None = None) -> Data:
    """Samples that represent a distribution better than random ones: kernel herding (Chen, Welling & Smola, 2010).

    Chooses y_1, y_2, … one after the other, each where μ(y) − 1/(t + 1) Σ_{s≤t} l(y, y_s) is greatest: so the mean of
    the l(·, y_s) approaches μ in the RKHS of l.

    Parameters
    ----------
    embedding : Embedding
        One element μ: of ``mean_embedding``, or one row of ``ConditionalMeanEmbedding.embedding``.
    n_samples : int, default=10
        How many; a candidate may be chosen more than once.
    candidates : data, default=None
        Where to look; None: the samples that the embedding is made of.

    Returns
    -------
    samples : ndarray of shape (n_samples, n_features), or list
        Of the kind of the candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from representer import herd, mean_embedding
    >>> Y = np.random.default_rng(0).normal(size=(500, 1))
    >>> samples = herd(mean_embedding(Y), 20)
    >>> bool(abs(samples.mean()) < 0.1), bool(abs(samples.std() - 1) < 0.2)
    (True, True)
    """
    if len(embedding.weights) != 1:
        raise ValueError(
            f"herd takes one element; the embedding has {len(embedding.weights)}. Choose one: embedding[i]."
        )
    if not is_count(n_samples):
        raise ValueError(f"n_samples must be a positive integer; got {n_samples!r}.")
    kernel = embedding.kernel
    points = embedding.anchors if candidates is None else kernel.prepare(candidates)

    def similar(index: Tensor) -> Tensor:
        return kernel._gram(take(points, index), points)

    chosen = take(points, herd_rows(embedding(points), similar, n_samples)[0])
    return chosen.cpu().numpy() if isinstance(chosen, Tensor) else chosen


def herd_rows(values: Tensor, similar: Callable[[Tensor], Tensor], n_samples: int) -> Tensor:
    """Herding of q elements at once: the numbers (q, n_samples) of the candidates that are chosen.

    ``values`` (q, m) are the elements at the candidates; ``similar`` maps q numbers to their rows of the Gram matrix.
    """
    sums, chosen = torch.zeros_like(values), []
    for t in range(n_samples):
        best = ((t + 1) * values - sums).argmax(-1)
        chosen.append(best)
        sums = sums + similar(best).to(sums)
    return torch.stack(chosen, -1)


# -- functions with values in the RKHS --------------------------------------------------------------------------------
class OutputFunction(Function, ABC):
    """x ↦ Σ_j w_j(x) l(·, y_j) in the RKHS of an output kernel l; called, it gives the weights w(x) as rows."""

    kernel: Kernel  # l, with numbers for all hyperparameters
    anchors: Data  # the y_j as they are stored
    representation: Representation  # how stored arrays become tensors

    @property
    def output_kernel(self) -> Kernel:
        """The kernel l as it is evaluated."""
        return self.kernel

    @cached_property
    def prepared_anchors(self) -> Data:
        """The y_j as their kernel takes them."""
        return self.prepared(self.anchors)

    def prepared(self, Y: Data) -> Data:
        """Checked outputs as l takes them."""
        return replace(self.representation, sparse=False).inputs(self.kernel, Y)

    def embedding(self, X: Data) -> Embedding:
        """The values at x_i, as sums of anchors."""
        return self.element(self(X))

    def element(self, weights: Tensor) -> Embedding:
        """The elements with given weights (n, number of anchors)."""
        return Embedding(self.output_kernel, self.prepared_anchors, weights)

    def in_blocks(self, values: Callable[[slice], Any], X: Data) -> Any:
        """The answers ``values`` to blocks of the rows of checked inputs, whose weights are no large matrix, joined."""
        whole, n = None, X.shape[0] if hasattr(X, "shape") else len(X)
        for rows in row_blocks(n, 6 * count(self.prepared_anchors) * self.representation.dtype.itemsize):
            block = values(rows)
            whole = block if rows == slice(0, n) else written(whole, block, rows, n)
        return whole

    def answers(self, answer: Callable[[Embedding, Any], Any], X: Data) -> Any:
        """What ``answer`` makes of the elements and their inputs: arrays, lists, or tuples of them, in blocks."""
        return self.in_blocks(lambda rows: answer(self.embedding(X[rows]), X[rows]), X)

    def squared_errors(self, X: Data, Y: Data) -> Tensor:
        """‖l(·, y_i) − g(x_i)‖² for prepared outputs (n,), in blocks; without l(y, y) where that is not known."""
        kernel, anchors = self.output_kernel, self.prepared_anchors
        gram = kernel._gram(anchors, anchors)

        def errors(rows: slice) -> Tensor:
            embedding = self.embedding(X[rows])
            weights, own = embedding.weights, embedding._prepared(Y[rows])
            cross = kernel._gram(own, anchors).to(weights)
            squares = cross.new_zeros(len(cross)) if kernel.domain == "gram" else kernel._diag(own).to(weights)
            return squares - 2.0 * (cross * weights).sum(-1) + ((weights @ gram.to(weights)) * weights).sum(-1)

        return self.in_blocks(errors, X)

    def explained(self, X: Data, Y: Data, weights: np.ndarray | None = None) -> float:
        """R² in the RKHS: 1 − Σ w_i‖φ(y_i) − g(x_i)‖² / Σ w_i‖φ(y_i) − mean‖² for prepared outputs y_i of the x_i."""
        errors = self.squared_errors(X, Y)
        w = torch.ones_like(errors) if weights is None else torch.from_numpy(weights).to(errors)
        error, (total, rounding) = w @ errors, scatter(self.output_kernel, Y, w)
        return float(error <= rounding) if total <= rounding else 1.0 - float(error / total)


def written(whole: Any, block: Any, rows: slice, n: int) -> Any:
    """The answers to n rows with those of a block of them; ``whole`` are the ones before, None for the first.

    Numbers are written into one array: small arrays that live from block to block would pin the memory of each.
    """
    if isinstance(block, tuple):
        before = [None] * len(block) if whole is None else whole
        return tuple(written(one, other, rows, n) for one, other in zip(before, block, strict=True))
    if isinstance(block, Tensor) or (isinstance(block, np.ndarray) and block.dtype.kind in "biuf"):
        if whole is None:
            shape = (n, *block.shape[1:])
            whole = block.new_empty(shape) if isinstance(block, Tensor) else np.empty(shape, block.dtype)
        whole[rows] = block
        return whole
    if isinstance(block, np.ndarray):
        return block if whole is None else np.concatenate([whole, block])
    return [*([] if whole is None else whole), *block]


@dataclass(frozen=True)
class EmbeddingFunction(OutputFunction):
    """g(x) = Σ_j w_j(x) l(·, y_j), with values in the RKHS of l; called, it gives the weights w(x).

    Parameters
    ----------
    kernel : Kernel
        l, with numbers for all hyperparameters.
    anchors : data or None
        The y_j as they are stored; None: the axes of the vectors on which l is linear.
    coordinates : Expansion or FeatureFunction
        w; or, where outputs have features, the coordinates of g(x) in them.
    representation : Representation
        How stored outputs become tensors.
    features : StoredFeatures or None
        Those of outputs y_j that are landmarks: they turn coordinates into weights.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from representer.functions import EmbeddingFunction, Expansion
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> from representer.operators import Representation
    >>> how = Representation(torch.float64)
    >>> w = Expansion(Decomposable(Linear()), np.array([[1.0]]), np.array([[0.5, 0.0]]), None, how)
    >>> g = EmbeddingFunction(Linear(), np.array([[10.0], [20.0]]), w, how)
    >>> g(np.array([[2.0]])).tolist(), g.embedding(np.array([[2.0]]))([[3.0]]).item()
    ([[1.0, 0.0]], 30.0)
    """

    kernel: Kernel
    anchors: Data
    coordinates: Expansion | FeatureFunction
    representation: Representation
    features: StoredFeatures | None = None

    def __call__(self, X: Data) -> Tensor:
        """w(x_i), (n, number of anchors), in blocks of rows."""
        return self._weighed(self.coordinates(X))

    def spans(self) -> list[Span]:
        """The inputs, or landmarks of them, that the coordinates are functions of."""
        return self.coordinates.spans()

    def _weighed(self, coordinates: Tensor) -> Tensor:
        """Coordinates (n, r) as weights of the anchors."""
        if self.features is None:
            return coordinates
        return self.features.map.coefficients(coordinates.mT).mT

    @cached_property
    def prepared_anchors(self) -> Data:
        """The y_j as their kernel takes them; the axes of vectors where there are none."""
        if self.anchors is None:
            how = self.representation
            return torch.eye(self.coordinates.coefficients.shape[1], dtype=how.dtype, device=how.device)
        return self.prepared(self.anchors)

    def score_function(self, Y: Data) -> Expansion | FeatureFunction:
        """x ↦ 2⟨g(x), l(·, y)⟩ − l(y, y) for prepared candidates y: how well each fits, as an ordinary function."""
        how, inner = self.representation, self.coordinates
        kernel, anchors = self.output_kernel, self.prepared_anchors
        cross = 2.0 * kernel._gram(Y, anchors).mT.to(how.dtype)
        norms = kernel._diag(Y).to(how.dtype)
        theta = self._weighed(how.tensor(plain(inner.coefficients))) @ cross
        b = 0.0 if inner.intercept is None else self._weighed(how.tensor(plain(inner.intercept))[None])[0] @ cross
        changes = {"coefficients": plain(theta), "intercept": plain(b - norms)}
        if isinstance(inner, Expansion):
            return replace(inner, slopes=None, **changes)
        return replace(inner, **changes)

    @property
    def dual_coef(self) -> np.ndarray:
        """The D of w(x) = k(x, Z)ᵀ D + offset, (number of points z, number of anchors)."""
        inner = self.coordinates
        columns = inner.coefficients if isinstance(inner, Expansion) else inner.dual_coef
        return plain(self._weighed(self.representation.tensor(columns)))

    @property
    def offset(self) -> np.ndarray | None:
        """The weights of the constant part of g, (number of anchors,); None where there is none."""
        b = self.coordinates.intercept
        return None if b is None else plain(self._weighed(self.representation.tensor(b)[None])[0])

    def contributions(self, X: Data) -> Tensor:
        """The terms (n, number of points z, number of anchors) of w(x)."""
        terms = self.coordinates.contributions(X)
        return self._weighed(terms.flatten(0, 1)).unflatten(0, terms.shape[:2])

    def cancellation(self, limit: int = 16, size: float = 0.0) -> float:
        """That of w(x), or of the coordinates."""
        points = self.coordinates.own_points(limit)
        if points is None:
            return 1.0
        terms, values = self.coordinates.magnitudes(points).max(), self.coordinates(points).abs().max()
        return float(torch.where(terms == 0, 1.0, terms / values))
