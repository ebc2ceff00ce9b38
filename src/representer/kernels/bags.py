"""Kernels of bags of points: sets of any size, with or without weights, seen as distributions or matched."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from representer.kernels.base import Columns, Domain, ExplicitFeatures, Kernel
from representer.kernels.named import as_kernel
from representer.kernels.vectors import Linear, Radial
from representer.linalg import BLOCK_BYTES, NotPositiveDefiniteError, combine, require_gram
from representer.samples import Data, as_list, evenly_spaced, is_single, same_features, take
from representer.values import Rule, number, same

# Points whose Gram matrix is one block.
BLOCK_POINTS = math.isqrt(BLOCK_BYTES // 8)
# Bags are gathered to about this many points where only pairs within a bag are needed: more would be wasted work.
DIAGONAL_POINTS = 256
# Enough bags for a stable median distance between them.
MEDIAN_BAGS = 300
# Squared distances of mean features are known to eps of their squared norms: this leaves half of the digits.
DIGITS = torch.finfo(torch.float64).eps ** 0.5


@dataclass(frozen=True)
class Bags:
    """The points of all bags in one collection, their weights (of sum 1 in each bag), and the size of each bag."""

    points: Data
    weights: Tensor
    sizes: list[int]

    def members(self) -> Tensor:
        """The number of the bag of each point."""
        return torch.repeat_interleave(torch.tensor(self.sizes)).to(self.weights.device)

    def groups(self, limit: int) -> Iterator[Bags]:
        """Consecutive bags of up to ``limit`` points together, at least one bag each."""
        first, start, total = 0, 0, 0
        for i, size in enumerate([*self.sizes, limit + 1]):
            if total + size > limit and i > first:
                stop = start + total
                yield Bags(self.points[start:stop], self.weights[start:stop], self.sizes[first:i])
                first, start, total = i, stop, 0
            total += size


class OnBags(Kernel, ABC):
    """A kernel of bags from a kernel of points.

    A bag is an array (n_points, n_features), or a list of the objects that the inner kernel takes; with weights, a
    tuple (points, weights). Weights are not negative and count relative to their sum; without, all points count the
    same, and points of weight 0 are left out.
    """

    domain: Domain = "objects"
    noun: ClassVar[str] = "bag"  # what errors call a sample
    most_points: ClassVar[float] = math.inf  # points that are compared with as many others at a time
    rules = {"kernel": Rule("a kernel of points", lambda k: isinstance(k, Kernel) and k.domain != "gram")}
    kernel: Kernel

    @abstractmethod
    def _block(self, left: Bags, right: Bags) -> Tensor:
        """The kernel of all pairs of bags, in one block; ``right`` may be ``left`` itself."""

    def prepare(self, X: Data) -> list[Data]:
        """The bags as a list, after the inner kernel has checked the points of each."""
        if sparse.issparse(X):
            raise ValueError(f"{type(self).__name__} takes a sequence of {self.noun}s; got {type(X).__name__}.")
        bags = as_list(X, f"{self.noun}s", type(self).__name__)
        self._gathered(bags)
        return bags

    def _gathered(self, X: Sequence[Data]) -> Bags:
        """The bags, checked one by one, in one collection."""
        points, weights = zip(*(self._checked(i, bag) for i, bag in enumerate(X)), strict=True)
        return Bags(_joined(points, self.noun), torch.cat(weights), [len(weight) for weight in weights])

    def _checked(self, i: int, bag: Data) -> tuple[Data, Tensor]:
        """The prepared points of a bag, and weights of sum 1."""
        name = f"{self.noun.capitalize()} {i}"
        if isinstance(bag, tuple) and len(bag) != 2:
            raise ValueError(f"{name} is a tuple of {len(bag)}: give a list of points, or (points, weights).")
        points, weights = bag if isinstance(bag, tuple) else (bag, None)
        if is_single(points) or not hasattr(points, "__len__"):
            raise ValueError(f"{name} must be an array or a list of points; got {type(points).__name__}.")
        if sparse.issparse(points):
            raise ValueError(f"{name} is a sparse matrix, where a dense one is expected. Pass points.toarray().")
        if not len(points):
            raise ValueError(f"{name} is empty: a {self.noun} needs at least one point. Remove it.")
        try:
            points = self.kernel.prepare(points)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if isinstance(points, Tensor) and points.ndim != 2:
            raise ValueError(f"{name} must be an array (n_points, n_features); got shape {tuple(points.shape)}.")
        dtype = points.dtype if isinstance(points, Tensor) else torch.float64
        if weights is None:
            return points, torch.full((len(points),), 1.0 / len(points), dtype=dtype)
        weights = np.asarray(weights)
        if weights.dtype.kind not in "biuf":
            raise ValueError(f"The weights of {self.noun} {i} must be numbers; got {weights.tolist()!r:.60}.")
        weights = torch.as_tensor(weights, dtype=dtype)
        if weights.shape != (len(points),):
            raise ValueError(f"{name} has {len(points)} points, but weights of shape {tuple(weights.shape)}.")
        if not bool((weights >= 0).all() and torch.isfinite(weights).all() and weights.sum() > 0):
            raise ValueError(f"The weights of {self.noun} {i} must be finite and not negative, and not all zero.")
        positive = weights.nonzero()[:, 0]
        return take(points, positive), weights[positive] / weights.sum()

    def _resolve(self, X: Sequence[Data]) -> Self:
        return self._with_arguments(kernel=self.kernel._resolve(self._gathered(X).points))

    def _between(self, left: Bags, right: Bags | None) -> Tensor:
        """The kernel of all pairs of bags, block by block; of a symmetric matrix, half is computed."""
        limit = int(min(BLOCK_POINTS, self.most_points))
        rows = list(left.groups(limit))
        columns = rows if right is None else list(right.groups(limit))
        grid: list[list[Tensor]] = []
        for i, group in enumerate(rows):
            done = [strip[i].mT for strip in grid] if right is None else []
            grid.append(done + [self._block(group, other) for other in columns[len(done) :]])
        return torch.cat([torch.cat(strip, -1) for strip in grid], -2)

    def _point_gram(self, left: Bags, right: Bags) -> Tensor:
        """The kernel of all pairs of points of a block, in memory that may be overwritten."""
        require_gram(sum(left.sizes), sum(right.sizes))
        if right is left:
            return self.kernel._gram(left.points, None)
        if self.kernel.domain == "vectors":
            return self.kernel._gram(*same_features(left.points, right.points))
        return self.kernel._gram(left.points, right.points)

    def _within(self, bags: Bags) -> Tensor:
        """The kernel of each bag with itself."""
        blocks = (self._block(group, group) for group in bags.groups(DIAGONAL_POINTS))
        return torch.cat([block.diagonal(dim1=-2, dim2=-1) for block in blocks], -1)

    def _gram(self, X: Sequence[Data], Y: Sequence[Data] | None) -> Tensor:
        return self._between(self._gathered(X), None if Y is None else self._gathered(Y))

    def _diag(self, X: Sequence[Data]) -> Tensor:
        return self._within(self._gathered(X))


class MeanMap(OnBags):
    """Bags as distributions P = Σ_i p_i δ(x_i), by their mean features: k(P, Q) = Σ_ij p_i q_j k(x_i, y_j).

    With a radial kernel on top it is a function of the distance of the mean features, the maximum mean discrepancy
    MMD: ``Gaussian`` gives exp(−MMD(P, Q)² / (2ℓ²)).

    Parameters
    ----------
    kernel : Kernel
        The kernel of points, vectors or other objects.
    outer : "linear", or a radial kernel such as Gaussian(...)
        The kernel of mean features. ``Gaussian("median")`` takes the median MMD between bags, ``Gaussian("auto")``
        learns ℓ from there.

    Notes
    -----
    A bag is an array (n_points, n_features), or a list of the objects that ``kernel`` takes; with weights, a tuple
    (points, weights). Weights are divided by their sum; points of weight 0 are left out.

    Examples
    --------
    >>> from representer.kernels import Gaussian, Linear, MeanMap
    >>> bags = [[[0.0], [2.0]], [[1.0]], ([[0.0], [4.0]], [3, 1])]
    >>> MeanMap(Linear())(bags).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    >>> MeanMap(Gaussian(1.0), outer=Gaussian(1.0))(bags).round(decimals=3).tolist()
    [[1.0, 0.838, 0.858], [0.838, 1.0, 0.701], [0.858, 0.701, 1.0]]
    """

    def __init__(self, kernel: Kernel, outer: Kernel | str = "linear"):
        self.kernel = kernel
        self.outer = outer

    def check_hyperparameters(self) -> None:
        """Refuse what is inadmissible; the outer kernel must be linear, or radial with one lengthscale."""
        outer = as_kernel(self.outer)
        if not isinstance(outer, Linear | Radial):
            raise ValueError(
                f"outer of MeanMap must be 'linear' or a radial kernel such as Gaussian; got {self.outer!r}."
            )
        if isinstance(outer, Radial) and (
            np.shape(outer.lengthscale)[-1:] not in ((), (1,)) or same(outer.lengthscale, "ard")
        ):
            raise ValueError(
                f"outer of MeanMap must have one lengthscale, as mean features have no coordinates; got {outer!r}."
            )
        super().check_hyperparameters()

    def _resolve(self, X: Sequence[Data]) -> Self:
        new = super()._resolve(X)
        outer = as_kernel(self.outer)
        if any(isinstance(getattr(outer, name), str) for name in outer.hyperparameters):
            index = evenly_spaced(len(X), MEDIAN_BAGS)
            with torch.no_grad():
                gram = new._between(self._gathered([X[i] for i in index]), None)
                values, vectors = torch.linalg.eigh(gram)
            points = vectors * values.clamp(min=0.0).sqrt()  # their inner products are those of the bags
            new.outer = outer._resolve(points)
        return new

    def _explicit_features(self, X: Sequence[Data], columns: Columns | None = None) -> ExplicitFeatures:
        """The mean of the points' features."""
        if not isinstance(as_kernel(self.outer), Linear):
            raise ValueError(f"MeanMap has explicit features only with outer='linear'; got {self.outer!r}.")
        bags = self._gathered(X)
        points = self.kernel._explicit_features(bags.points, columns)
        n, members = len(bags.weights), bags.members().numpy()
        means = sparse.csr_array((bags.weights.numpy(), (members, np.arange(n))), shape=(len(X), n))
        return ExplicitFeatures(means @ points.matrix, points.columns)

    def _block(self, left: Bags, right: Bags) -> Tensor:
        return _weighted_sums(_weighted_sums(self._point_gram(left, right), left, -2), right, -1)

    def _gram(self, X: Sequence[Data], Y: Sequence[Data] | None) -> Tensor:
        outer = as_kernel(self.outer)
        left = self._gathered(X)
        right = None if Y is None else self._gathered(Y)
        product = self._between(left, right)
        if not isinstance(outer, Radial):
            return product
        rows = product.diagonal(dim1=-2, dim2=-1) if right is None else self._within(left)
        columns = rows if right is None else self._within(right)
        squares = rows[..., :, None] + columns[..., None, :] - 2.0 * product
        lengthscale = number(outer, "lengthscale", product)
        if bool((lengthscale**2 < DIGITS * rows.max()).any()):
            raise NotPositiveDefiniteError(
                f"{self!r} compares bags by distances that are lost in rounding beside the norms of their mean "
                "features. Use a shorter lengthscale of the points, or a longer outer one."
            )
        t = squares.clamp(min=0.0) / (-2.0 * lengthscale**2)
        return outer._profile(t)

    def _diag(self, X: Sequence[Data]) -> Tensor:
        if isinstance(as_kernel(self.outer), Radial):
            return torch.ones(len(X), dtype=torch.float64)
        return super()._diag(X)


class Match(OnBags):
    """The similarity of best matches: ½ Σ_i p_i max_j k(x_i, y_j) + ½ Σ_j q_j max_i k(x_i, y_j).

    Unlike ``MeanMap``, it is not diluted by points that have no counterpart: two large bags with a few kinds of points
    each are alike if they have the same kinds. Proposed by Wallraven, Caputo & Graf (2003), it is not positive
    semi-definite in general (Lyu, 2005). Learners set the negative eigenvalues of its Gram matrix to zero, with an
    ``IndefiniteGramWarning`` where these matter, and refuse it if they hold more than a tenth of the spectrum. The
    smooth relative ``MeanMap(k * k * k)``, which weights good matches more, is positive semi-definite.

    Parameters
    ----------
    kernel : Kernel
        The kernel of points, vectors or other objects.

    Notes
    -----
    Bags have the form that ``MeanMap`` takes.

    Examples
    --------
    >>> from representer.kernels import Gaussian, Match
    >>> bags = [[[0.0], [3.0], [9.0]], [[9.0], [0.0], [3.0], [3.0]], [[5.0]]]
    >>> Match(Gaussian(1.0))(bags).round(decimals=3).tolist()
    [[1.0, 1.0, 0.09], [1.0, 1.0, 0.102], [0.09, 0.102, 1.0]]
    """

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def _block(self, left: Bags, right: Bags) -> Tensor:
        gram = self._point_gram(left, right)
        of_left = _weighted_sums(_largest(gram, right, -1), left, -2)
        of_right = _weighted_sums(_largest(gram, left, -2), right, -1)
        return combine("mul", combine("add", of_left, of_right), gram.new_tensor(0.5))


# -- one number for the points of a bag -------------------------------------------------------------------------------
def _weighted_sums(gram: Tensor, bags: Bags, dim: int) -> Tensor:
    """The sums Σ_i p_i gram_i over the rows (dim −2) or columns (−1) of each bag; may overwrite the matrix."""
    weights = bags.weights.to(gram.dtype)
    shape = list(gram.shape)
    shape[dim] = len(bags.sizes)
    weighted = combine("mul", gram, weights if dim == -1 else weights[:, None])
    return gram.new_zeros(shape).index_add(dim, bags.members(), weighted)


def _largest(gram: Tensor, bags: Bags, dim: int) -> Tensor:
    """The largest entry among the rows (dim −2) or columns (−1) of each bag."""
    members = bags.members()
    shape = list(gram.shape)
    shape[dim] = len(bags.sizes)
    index = (members if dim == -1 else members[:, None]).expand(gram.shape)
    return gram.new_zeros(shape).scatter_reduce(dim, index, gram, "amax", include_self=False)


def _joined(points: tuple[Data, ...], noun: str) -> Data:
    """The points of all bags in one collection of their kind."""
    if isinstance(points[0], Tensor):
        features = [item.shape[1] for item in points]
        odd = next((i for i, d in enumerate(features) if d != features[0]), None)
        if odd is not None:
            raise ValueError(
                f"The points of {noun} {odd} have {features[odd]} features, those of {noun} 0 have {features[0]}: they "
                "must be the same."
            )
        return torch.cat(points)
    return np.concatenate(points) if isinstance(points[0], np.ndarray) else list(chain.from_iterable(points))
