"""Kernels of numeric vectors: of their inner product, or of their distance (stationary kernels)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial, reduce
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from representer.kernels.base import FACTOR, ONE, Kernel
from representer.linalg import combine, empty_matrix, power_of_two
from representer.samples import Data, as_vectors
from representer.values import (
    COUNT,
    Constraint,
    Far,
    Hyperparameter,
    NonNegative,
    Positive,
    Rule,
    Setting,
    Word,
    as_tensor,
    is_real,
    number,
    per_row,
)

# Enough rows for a stable median; the heuristic is O(rows²).
MEDIAN_ROWS = 1000


def _evenly_spaced_rows(X: Tensor) -> Tensor:
    """At most ``MEDIAN_ROWS`` evenly spaced rows of X, in double precision."""
    flat = X.detach().reshape(-1, X.shape[-1]).to(torch.float64)
    if len(flat) <= MEDIAN_ROWS:
        return flat
    return flat[torch.linspace(0, len(flat) - 1, MEDIAN_ROWS, dtype=torch.float64).round().long()]


def median_of(distances: Tensor) -> Tensor:
    """The median of distances; the median of those above 0 if at least half of them are 0, and 1 if all are."""
    median = distances.median()
    if median > 0:
        return median
    apart = distances[distances > 0]
    return apart.median() if len(apart) else torch.ones((), dtype=torch.float64)


def _median_distance(X: Tensor, p: float) -> Tensor:
    """The median of the finite distances ‖x − y‖_p between samples, in a unit whose squares stay in range."""
    sample = _evenly_spaced_rows(X)
    sample = sample - _middle(sample)
    unit = power_of_two(median_of(sample.abs().reshape(-1)))
    distances = torch.nn.functional.pdist(sample / unit, p=p)
    distances = distances[distances.isfinite()]
    median = median_of(distances)
    return median * unit if bool((distances > 0).any()) else median


def median_distance(X: Tensor) -> Tensor:
    """The median Euclidean distance between samples."""
    return _median_distance(X, 2.0)


def _deviation(entries: Tensor, dim: tuple[int, ...], *, otherwise: float) -> Tensor:
    """The standard deviation, or ``otherwise`` where it is not finite, or no more than the rounding of the entries."""
    unit = power_of_two(entries.abs().amax(dim, keepdim=True))
    deviation = (entries / unit).std(dim, correction=0) * unit.squeeze(dim)
    rounding = 8.0 * torch.finfo(entries.dtype).eps * entries.abs().amax(dim)
    return torch.where((deviation > rounding) & deviation.isfinite(), deviation, otherwise)


def ard_lengthscales(X: Tensor) -> Tensor:
    """One lengthscale a feature: √(2d) standard deviations, the median heuristic on standardised features."""
    sample = _evenly_spaced_rows(X)
    return math.sqrt(2.0 * sample.shape[-1]) * _deviation(sample, (0,), otherwise=1.0)


def inverse_size(X: Tensor) -> Tensor:
    """The number 1 / (d · variance), scikit-learn's ``gamma="scale"``; 1 for constant data."""
    d = X.shape[-1]
    deviation = _deviation(X.detach().to(torch.float64), (), otherwise=d**-0.5)
    return 1.0 / (d * deviation.clamp(1e-150, 1e150) ** 2)


# A polynomial kernel with more monomials than this has too many features to write them down.
MONOMIALS = 10_000


class Linear(Kernel):
    """k(x, y) = xᵀy. ``Linear() + 1.0`` is the kernel of affine functions.

    Examples
    --------
    >>> from representer.kernels import Linear
    >>> Linear()([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[5.0, 11.0], [11.0, 25.0]]
    """

    of_products = True

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return X @ (X if Y is None else Y).mT

    def _diag(self, X: Tensor) -> Tensor:
        return (X**2).sum(-1)

    def features(self, X: Tensor) -> Tensor:
        """The vectors themselves, which are their own features."""
        return X

    def _product(self, X: Tensor, Y: Tensor, coefficients: Tensor, middle: Tensor | None = None) -> Tensor:
        return X @ ((Y if middle is None else Y - middle.mT @ Y).mT @ coefficients)


# If the absolute logarithm of gamma exceeds this number over the degree, gamma is in the units of data far from 1.
FAR_GAMMA = 80.0


class Polynomial(Kernel):
    """k(x, y) = (gamma·xᵀy + coef0)^degree.

    Parameters
    ----------
    degree : int
        At least 1.
    gamma : float, "scale" or "auto"
        ``"scale"`` is 1 / (n_features · variance); ``"auto"`` learns gamma, starting from there.
    coef0 : float or "auto"
        Not negative; ``"auto"`` learns it, starting from 1.

    Examples
    --------
    >>> from representer.kernels import Polynomial
    >>> Polynomial(degree=2)([[1.0], [2.0]]).tolist()
    [[4.0, 9.0], [9.0, 25.0]]
    """

    of_products = True
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "gamma": Hyperparameter(
            Positive(), {"scale": Word(inverse_size), "auto": Word(inverse_size, learned=True)}, scalar=True
        ),
        "coef0": FACTOR,
    }

    rules = {"degree": COUNT}

    def __init__(self, degree: int = 2, gamma: Setting = 1.0, coef0: Setting = 1.0):
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    def _own_specification(self, name: str) -> Hyperparameter:
        """The specification of a number that, while it is learned, stays so small that its power is in range.

        A gamma far from 1 is in units of 1/X² of such data, and its size says nothing of that of gamma·xᵀy.
        """
        constraint = NonNegative(self.degree) if name == "coef0" else Positive(self.degree)
        is_stated = name == "gamma" and not isinstance(self.gamma, str)
        if is_stated and super()._own_specification(name).problem(self.gamma) is None:
            far = torch.as_tensor(self.gamma, dtype=torch.float64).log().abs().max() > FAR_GAMMA / self.degree
            constraint = Positive(power=0.3) if bool(far) else constraint
        return replace(super()._own_specification(name), constraint=constraint)

    def _of(self, product: Tensor, gamma: Tensor, coef0: Tensor) -> Tensor:
        """The kernel of inner products, which may be overwritten."""
        base = combine("add", combine("mul", product, gamma), coef0)
        return base.pow(int(self.degree)) if base.requires_grad else base.pow_(int(self.degree))

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        product = X @ (X if Y is None else Y).mT
        return self._of(product, number(self, "gamma", X), number(self, "coef0", X))

    def _diag(self, X: Tensor) -> Tensor:
        gamma, coef0 = (per_row(number(self, name, X)) for name in ("gamma", "coef0"))
        return self._of((X**2).sum(-1), gamma, coef0)

    def n_features(self, X: Tensor) -> int | None:
        """The number of monomials up to the degree, if they are not too many."""
        size = math.comb(X.shape[-1] + int(self.degree), int(self.degree))
        return size if size <= MONOMIALS else None

    def features(self, X: Tensor) -> Tensor | None:
        """The monomials of u = [√gamma·x, √coef0], whose (uᵀv)^degree is a multinomial sum."""
        if self.n_features(X) is None:
            return None
        gamma, coef0 = number(self, "gamma", X), number(self, "coef0", X)
        scaled = gamma.sqrt() * X
        u = torch.cat([scaled, coef0.sqrt() * torch.ones_like(scaled[..., :1])], -1)
        if int(self.degree) == 1:
            return u
        indices, weights = _monomials(u.shape[-1], int(self.degree))
        return u[..., indices.to(u.device)].prod(-1) * weights.to(u)


@cache
def _monomials(variables: int, degree: int) -> tuple[Tensor, Tensor]:
    """The variables of each monomial (m, degree), and the roots of the multinomial coefficients."""
    indices = list(combinations_with_replacement(range(variables), degree))
    repetitions = [math.prod(map(math.factorial, Counter(index).values())) for index in indices]
    weights = [math.sqrt(math.factorial(degree) / number) for number in repetitions]
    return torch.tensor(indices), torch.tensor(weights, dtype=torch.float64)


# Rows computed at a time when no gradient is asked. Few large blocks lose least to waiting threads; a kernel whose
# formula needs temporaries of the block's size takes smaller ones, to stay small beside the Gram matrix.
LARGE_BLOCK, SMALL_BLOCK = 1024, 256
# The middle of points is the median of this many of them.
MIDDLE_ROWS = 64
# Two points whose half squared norms, in units of ℓ², exceed this get their distance from true differences.
FAR = 1e4


# Lengths have room for sums of single squares. One whose absolute logarithm exceeds this is in the units of data far
# from 1.
LENGTH_POWER, FAR_LENGTH = 0.6, 20.0


def _lengthscale(median: Word) -> Hyperparameter:
    """A lengthscale whose words start from a median distance."""
    words = {"median": median, "auto": Word(median.value, learned=True), "ard": Word(ard_lengthscales, learned=True)}
    return Hyperparameter(Positive(LENGTH_POWER), words)


EUCLIDEAN = _lengthscale(Word(median_distance))
MANHATTAN = _lengthscale(Word(partial(_median_distance, p=1.0)))


class Stationary(Kernel, ABC):
    """A function of the scaled difference (x − y) / ℓ with k(x, x) = 1; ℓ is one number, or one a feature.

    ``lengthscale="median"`` is the median heuristic; ``"auto"`` learns it from there; ``"ard"`` learns one a feature.
    """

    bounded = True
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"lengthscale": EUCLIDEAN}
    block_rows: ClassVar[int] = LARGE_BLOCK
    rounds_diagonal: ClassVar[bool] = False  # does k(x, x), from inner products, miss 1 by rounding?
    lengthscale: Setting

    def constraints(self) -> dict[str, Constraint]:
        """The constraint of every hyperparameter; that of a length far from 1 is around where it stands."""
        constraints = super().constraints()
        if not isinstance(self.lengthscale, str):
            logs = as_tensor(self.lengthscale).detach().log()
            first, last = logs.min().item(), logs.max().item()
            if max(-first, last) > FAR_LENGTH:
                constraints["lengthscale"] = Far(LENGTH_POWER, first, last)
        return constraints

    @abstractmethod
    def _pairs(self, left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
        """The kernel of all pairs of scaled points; may use the memory ``out``, given where no gradient is asked."""

    def _lengths(self, X: Tensor) -> Tensor | float:
        """The lengthscale ℓ for points, after a look at how many numbers it has."""
        lengthscale = self.lengthscale
        if type(lengthscale) is float and 0.0 < lengthscale < math.inf and not torch.compiler.is_compiling():
            return lengthscale  # other runtimes round a plain number to single precision
        lengthscale = number(self, "lengthscale", X)
        if lengthscale.ndim and lengthscale.shape[-1] not in (1, X.shape[-1]):
            raise ValueError(
                f"{type(self).__name__} has {lengthscale.shape[-1]} lengthscales, but the data have {X.shape[-1]} "
                "features: give one lengthscale, or one a feature."
            )
        if lengthscale.ndim > 1 and lengthscale.shape[-2] != 1:
            raise ValueError(
                f"lengthscale of {type(self).__name__} has shape {tuple(lengthscale.shape)}: give one number, one a "
                "feature, or a batch of shape (..., 1, 1) or (..., 1, n_features)."
            )
        return lengthscale

    def _around_middle(self, X: Tensor, Y: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The scaled points around the middle of the second ones, so that the first may come in any blocks.

        The middle is taken off before the points are divided by lengthscales: a division of points far from the origin
        would round them, and with them their differences.
        """
        centre, lengths = _middle((X if Y is None else Y).detach()), self._lengths(X)
        return (X - centre) / lengths, None if Y is None else (Y - centre) / lengths

    def _coordinates(self, X: Tensor, Y: Tensor | None) -> tuple[Tensor, Tensor]:
        """The points in the form that ``_pairs`` takes."""
        left, right = self._around_middle(X, Y)
        return left, left if right is None else right

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        left, right = self._coordinates(X, Y)
        if self._is_plain(left, right):
            return self._filled(left, right, symmetric=Y is None)
        gram = self._pairs(left, right, None)
        if Y is not None or not self.rounds_diagonal:
            return gram
        if gram.requires_grad:
            return gram.masked_fill(torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device), 1.0)
        gram.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return gram

    def _is_plain(self, left: Tensor, right: Tensor) -> bool:
        """Are these two single matrices without gradients, for which one buffer is enough?

        For torch's compiler they are not: it takes the number of rows for a symbol.
        """
        if torch.compiler.is_compiling():
            return False
        settings = [getattr(self, name) for name in self.hyperparameters]
        batched = left.ndim > 2 or right.ndim > 2 or any(np.ndim(value) > 1 for value in settings)
        return not batched and not self._learns(left, right)

    def _learns(self, *data: Tensor | None) -> bool:
        """Is a gradient asked, with respect to data or hyperparameters?"""
        settings = (getattr(self, name) for name in self.hyperparameters)
        return torch.is_grad_enabled() and any(isinstance(v, Tensor) and v.requires_grad for v in (*data, *settings))

    def _filled(self, left: Tensor, right: Tensor, *, symmetric: bool) -> Tensor:
        """The Gram matrix block by block in one buffer; half of a symmetric one is computed and mirrored."""
        gram = empty_matrix((len(left), len(right)), left)
        for start in range(0, len(left), self.block_rows):
            stop = min(start + self.block_rows, len(left))
            columns = stop if symmetric else len(right)
            block = gram[start:stop, :columns]
            block.copy_(self._pairs(left[start:stop], right[:columns], block))
            if symmetric:
                gram[:start, start:stop] = block[:, :start].mT
        if symmetric:
            gram.diagonal().fill_(1.0)
        return gram

    def _diag(self, X: Tensor) -> Tensor:
        return torch.ones(X.shape[:-1], dtype=X.dtype, device=X.device)


def _middle(points: Tensor) -> Tensor:
    """A point (..., 1, d) near the middle of points (..., n, d): the median of a few, in each coordinate."""
    if not points.shape[-2]:
        return points.new_zeros(*points.shape[:-2], 1, points.shape[-1])
    if torch.compiler.is_compiling():  # exported programs have no median in other runtimes
        return points.mean(-2, keepdim=True)
    step = max(1, points.shape[-2] // MIDDLE_ROWS)
    return points[..., ::step, :].median(-2, keepdim=True).values


class Radial(Stationary, ABC):
    """A function of t = −‖x − y‖²/(2ℓ²)."""

    rounds_diagonal = True

    @abstractmethod
    def _profile(self, t: Tensor) -> Tensor:
        """The kernel at t ≤ 0; may overwrite t if it carries no gradient."""

    def _coordinates(self, X: Tensor, Y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Points with two more coordinates, [x, −‖x‖²/2, 1] and [y, 1, −‖y‖²/2], whose inner product is t at once.

        The rounding error of t is relative to the squared norms, so that the points are taken around their middle,
        which an outlier does not move.
        """
        left, right = self._around_middle(X, Y)
        left_norms = -0.5 * (left**2).sum(-1, keepdim=True)
        right_norms = left_norms if right is None else -0.5 * (right**2).sum(-1, keepdim=True)
        right = left if right is None else right
        return (
            torch.cat([left, left_norms, torch.ones_like(left_norms)], -1),
            torch.cat([right, torch.ones_like(right_norms), right_norms], -1),
        )

    def _pairs(self, left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
        t = torch.matmul(left, right.mT, out=out)
        if t.requires_grad or torch.compiler.is_compiling():  # a compiler cannot branch on which points are far
            return self._profile(t.clamp(max=0.0))
        return self._profile(_mended(t, left, right).clamp_(max=0.0))

    def _centred(self, X: Tensor) -> tuple[Tensor, Tensor | float]:
        """The points around their mean in units of ℓ, and ℓ."""
        points, _ = self._around_middle(X, None)
        return points - points.mean(-2, keepdim=True), self._lengths(X)


def _mended(t: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Replace t, in place, by true differences where both points are far from the middle: there squares cancel."""
    if t.ndim > 2:
        return t
    rows, columns = (norms < -FAR for norms in (left[:, -2], right[:, -1]))
    if bool(rows.any()) and bool(columns.any()):
        far = torch.cdist(left[rows, :-2], right[columns, :-2], compute_mode="donot_use_mm_for_euclid_dist")
        t[rows.nonzero(), columns.nonzero()[:, 0]] = -0.5 * far**2
    return t


class Gaussian(Radial):
    """k(x, y) = exp(−‖x − y‖² / (2ℓ²)).

    Parameters
    ----------
    lengthscale : float, array (n_features,), "median", "auto" or "ard"
        ℓ: one number, or one a feature. ``"median"``: the median distance between samples; ``"auto"``: learned from
        there on; ``"ard"``: one a feature, learned.

    Examples
    --------
    >>> from representer.kernels import Gaussian
    >>> Gaussian(lengthscale=2.0)([[0.0], [2.0]]).round(decimals=4).tolist()
    [[1.0, 0.6065], [0.6065, 1.0]]
    >>> Gaussian("median").resolve([[0.0], [1.0], [5.0]])
    Gaussian(lengthscale=4.0)
    """

    def __init__(self, lengthscale: Setting = "median"):
        self.lengthscale = lengthscale

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        if not self._learns(X, Y):
            return super()._gram(X, Y)
        gram: Tensor = GaussianGram.apply(*self._around_middle(X, Y))
        return gram

    def tangent(self, X: Tensor) -> RadialTangent | None:
        """The Gram matrix with its derivatives in closed form; None for a subclass, which may be another function."""
        if type(self) is not Gaussian:
            return None
        points, lengthscale = self._centred(X)
        gram = _half_squares(points, None).exp_()
        return RadialTangent(points, lengthscale, gram, gram, lambda: 1.0)

    def _profile(self, t: Tensor) -> Tensor:
        return t.exp() if t.requires_grad else t.exp_()


class RationalQuadratic(Radial):
    """k(x, y) = (1 + ‖x − y‖² / (2·mixture·ℓ²))^(−mixture): Gaussians of many lengthscales.

    Parameters
    ----------
    lengthscale : float, array (n_features,), "median", "auto" or "ard"
        ℓ, as in ``Gaussian``.
    mixture : float or "auto"
        A small number mixes many lengthscales, a large one comes close to a Gaussian. ``"auto"``: learned, starting
        from 1.

    Examples
    --------
    >>> from representer.kernels import RationalQuadratic
    >>> RationalQuadratic(lengthscale=1.0, mixture=0.5)([[0.0], [2.0]]).round(decimals=4).tolist()
    [[1.0, 0.4472], [0.4472, 1.0]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "lengthscale": EUCLIDEAN,
        "mixture": Hyperparameter(Positive(), {"auto": ONE}, scalar=True),
    }

    def __init__(self, lengthscale: Setting = "median", mixture: Setting = 1.0):
        self.lengthscale = lengthscale
        self.mixture = mixture

    def _profile(self, t: Tensor) -> Tensor:
        mixture = number(self, "mixture", t)
        if t.requires_grad or mixture.requires_grad or mixture.ndim:
            return torch.exp(-mixture * torch.log1p(-t / mixture))
        return t.div_(-mixture).log1p_().mul_(-mixture).exp_()


def matern_profile(r: Tensor, order: int) -> Tensor:
    """The Matérn function e^(−r) · q(r) of smoothness ν = order − 1/2 with value 1 at r = 0, for unscaled r.

    May overwrite r if it carries no gradient. q(r) = Σ_i (p+i)!/(i!(p−i)!) · p!/(2p)! · (2r)^(p−i) with p = order − 1.
    """
    p = order - 1
    f = math.factorial
    coefficients = [f(p + i) * f(p) * 2 ** (p - i) / (f(i) * f(p - i) * f(2 * p)) for i in range(p + 1)]
    # Where e^(−r) is 0 in floating point, a polynomial of r must not become infinite.
    limit = -2.0 * math.log(torch.finfo(r.dtype).tiny)
    r = r.clamp(max=limit) if r.requires_grad else r.clamp_(max=limit)
    polynomial = torch.full_like(r, coefficients[0])
    for coefficient in coefficients[1:]:  # Horner, highest power first
        polynomial = combine("add", combine("mul", polynomial, r), r.new_tensor(coefficient))
    decay = torch.exp(-r) if r.requires_grad else r.neg_().exp_()
    return combine("mul", decay, polynomial) if p else decay


def _safe_sqrt(square: Tensor) -> Tensor:
    """The square root with derivative 0 at 0, where the kernels that use it have a maximum; in place without one."""
    if not square.requires_grad:
        return square.sqrt_()
    positive = square > 0
    return torch.where(positive, square, 1.0).sqrt() * positive


def _exponential(left: Tensor, right: Tensor, p: float) -> Tensor:
    """The kernel exp(−‖x − y‖_p), from true differences."""
    if p == 1.0 and (left.requires_grad or right.requires_grad):
        gram: Tensor = LaplacianGram.apply(left, None if right is left else right)
        return gram
    if torch.compiler.is_compiling():  # cdist has no counterpart in other runtimes
        return torch.exp(-torch.linalg.vector_norm(left[..., :, None, :] - right[..., None, :, :], p, dim=-1))
    distance = torch.cdist(left, right, p=p, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.exp(-distance) if distance.requires_grad else distance.neg_().exp_()


class Matern(Radial):
    """The Matérn kernel of smoothness nu = 1/2, 3/2, 5/2, … (half-integers), or inf (Gaussian).

    nu = 1/2 is exp(−‖x − y‖/ℓ); nu = 3/2 is (1 + √3 r) exp(−√3 r) with r = ‖x − y‖/ℓ.

    Parameters
    ----------
    nu : float
        The functions of its space are nu times differentiable (in the mean-square sense).
    lengthscale : float, array (n_features,), "median", "auto" or "ard"
        ℓ, as in ``Gaussian``.

    Examples
    --------
    >>> from representer.kernels import Matern
    >>> Matern(nu=2.5, lengthscale=1.0)([[0.0], [1.0]]).round(decimals=4).tolist()
    [[1.0, 0.524], [0.524, 1.0]]
    """

    rules = {
        "nu": Rule(
            "0.5, 1.5, 2.5, … or inf",
            lambda nu: is_real(nu) and nu > 0 and (math.isinf(nu) or nu % 1 == 0.5),
            " Between them choose the nearest: the functions of other nu have no closed form.",
        )
    }

    def __init__(self, nu: float = 1.5, lengthscale: Setting = "median"):
        self.nu = nu
        self.lengthscale = lengthscale

    # An error of √eps in a small distance reaches the kernel only for nu = 1/2: there, take true differences.
    def _coordinates(self, X: Tensor, Y: Tensor | None) -> tuple[Tensor, Tensor]:
        family = Stationary if self.nu == 0.5 else Radial
        return family._coordinates(self, X, Y)

    def _pairs(self, left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
        return _exponential(left, right, 2.0) if self.nu == 0.5 else super()._pairs(left, right, out)

    def _profile(self, t: Tensor) -> Tensor:
        if math.isinf(self.nu):
            return t.exp() if t.requires_grad else t.exp_()
        factor = -4.0 * self.nu  # (√(2ν) ‖x − y‖/ℓ)² = −4ν t
        r = _safe_sqrt(t * factor if t.requires_grad else t.mul_(factor))
        return matern_profile(r, int(self.nu + 0.5))

    def tangent(self, X: Tensor) -> RadialTangent | None:
        """The Gram matrix with its derivatives in closed form; points equal up to rounding do not move each other.

        With r² = −4νt, the derivative of the Matérn function m_ν in t is ν/(ν − 1) m_{ν−1}, or m_{1/2}/r of m_{1/2}.
        """
        if type(self) is not Matern or math.isinf(self.nu):
            return None
        nu, order = float(self.nu), int(self.nu + 0.5)
        points, lengthscale = self._centred(X)
        if order == 1:
            r = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            r = _half_squares(points, None).mul_(-4.0 * nu).sqrt_()
        gram = matern_profile(r.clone(), order)
        near = torch.where(r > torch.finfo(r.dtype).eps ** 0.5, 1.0 / r, 0.0) if order < 3 else r
        slope = gram * near if order == 1 else matern_profile(r.clone(), order - 1).mul_(nu / (nu - 1.0))

        def bend() -> Tensor:
            if order < 3:
                return 3.0 * near if order == 2 else near + near.square()
            below = matern_profile(r.clone(), order - 2).mul_(nu / (nu - 2.0) * nu / (nu - 1.0))
            return torch.where(slope > 0, below / slope, 0.0)

        return RadialTangent(points, lengthscale, gram, slope, bend)


class Laplacian(Stationary):
    """k(x, y) = exp(−‖x − y‖₁ / ℓ).

    Parameters
    ----------
    lengthscale : float, array (n_features,), "median", "auto" or "ard"
        ℓ, as in ``Gaussian``, with ℓ₁ distances.

    Examples
    --------
    >>> from representer.kernels import Laplacian
    >>> Laplacian(lengthscale=2.0)([[0.0, 0.0], [1.0, 1.0]]).round(decimals=4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"lengthscale": MANHATTAN}

    def __init__(self, lengthscale: Setting = "median"):
        self.lengthscale = lengthscale

    def _pairs(self, left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
        return _exponential(left, right, 1.0)


class Sigmoid(Kernel):
    """k(x, y) = tanh(gamma·xᵀy + coef0), which is not positive semi-definite: learners repair its Gram matrix.

    Parameters
    ----------
    gamma : float or "features"
        ``"features"`` is 1 / n_features.
    coef0 : float or "auto"
        Not negative; ``"auto"`` learns it, starting from 1.

    Examples
    --------
    >>> from representer.kernels import Sigmoid
    >>> Sigmoid(gamma=1.0, coef0=0.0)([[0.5]]).round(decimals=4).tolist()
    [[0.2449]]
    """

    of_products = True
    definite = False
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "gamma": Hyperparameter(
            Positive(), {"features": Word(lambda X: torch.tensor(1.0 / X.shape[-1], dtype=torch.float64))}, scalar=True
        ),
        "coef0": FACTOR,
    }

    def __init__(self, gamma: Setting = "features", coef0: Setting = 1.0):
        self.gamma = gamma
        self.coef0 = coef0

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        product = X @ (X if Y is None else Y).mT
        return (number(self, "gamma", X) * product + number(self, "coef0", X)).tanh()

    def _diag(self, X: Tensor) -> Tensor:
        gamma, coef0 = (per_row(number(self, name, X)) for name in ("gamma", "coef0"))
        return (gamma * (X**2).sum(-1) + coef0).tanh()


class AdditiveChi2(Kernel):
    """k(x, y) = −Σ_j (x_j − y_j)² / (x_j + y_j) of histograms, where 0/0 is 0.

    It is positive semi-definite only beside a constant (``fit_intercept=True``): learners repair its Gram matrix. Its
    exponential, ``Chi2``, is positive semi-definite by itself.

    Examples
    --------
    >>> from representer.kernels import AdditiveChi2
    >>> AdditiveChi2()([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[-0.0, -2.0], [-2.0, -0.0]]
    """

    definite = False

    def prepare(self, X: Data) -> Data:
        """Numbers that are not negative, as a tensor."""
        points = as_vectors(X)
        if bool((points < 0).any()):
            row = int((points < 0).any(-1).nonzero()[0, -1])
            raise ValueError(f"{type(self).__name__} takes histograms, without negative numbers; row {row} has some.")
        return points

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return -_chi_squared(X, X if Y is None else Y)

    def _diag(self, X: Tensor) -> Tensor:
        return X.new_zeros(X.shape[:-1])


class Chi2(AdditiveChi2):
    """k(x, y) = exp(−gamma Σ_j (x_j − y_j)² / (x_j + y_j)) of histograms, where 0/0 is 0.

    Parameters
    ----------
    gamma : float or "auto"
        ``"auto"``: learned, starting from 1.

    Examples
    --------
    >>> from representer.kernels import Chi2
    >>> Chi2()([[1.0, 0.0], [0.0, 1.0]]).round(decimals=3).tolist()
    [[1.0, 0.135], [0.135, 1.0]]
    """

    bounded = True
    definite = True
    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "gamma": Hyperparameter(Positive(), {"auto": ONE}, scalar=True)
    }

    def __init__(self, gamma: Setting = 1.0):
        self.gamma = gamma

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return (-number(self, "gamma", X) * _chi_squared(X, X if Y is None else Y)).exp()

    def _diag(self, X: Tensor) -> Tensor:
        return X.new_ones(X.shape[:-1])


def _chi_squared(X: Tensor, Y: Tensor) -> Tensor:
    """Σ_j (x_j − y_j)² / (x_j + y_j) of all pairs, column by column."""
    total = X.new_zeros(*torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2]), X.shape[-2], Y.shape[-2])
    for j in range(X.shape[-1]):
        left, right = X[..., :, None, j], Y[..., None, :, j]
        size = left + right
        total = total + torch.where(size > 0, (left - right) ** 2 / torch.where(size > 0, size, 1.0), 0.0)
    return total


class TensorMatern(Stationary):
    """Π_j m_s(|x_j − y_j| / ℓ_j), the kernel of the Sobolev space of dominating mixed smoothness of order s.

    m_s(r) ∝ κ_{s−1/2}(r) r^{s−1/2} with m_s(0) = 1 (κ: the modified Bessel function of the second kind); order 1 is
    exp(−‖x − y‖₁/ℓ).

    Parameters
    ----------
    order : int
        s: the weak derivatives up to this order in each coordinate are square integrable.
    lengthscale : float, array (n_features,), "median", "auto" or "ard"
        ℓ, as in ``Laplacian``.

    Examples
    --------
    >>> from representer.kernels import TensorMatern
    >>> TensorMatern(order=2, lengthscale=1.0)([[0.0, 0.0], [1.0, 1.0]]).round(decimals=4).tolist()
    [[1.0, 0.5413], [0.5413, 1.0]]
    """

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {"lengthscale": MANHATTAN}
    rules = {"order": COUNT}
    block_rows = SMALL_BLOCK

    def __init__(self, order: int = 1, lengthscale: Setting = "median"):
        self.order = order
        self.lengthscale = lengthscale

    def _pairs(self, left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
        if self.order == 1:
            return _exponential(left, right, 1.0)
        factors = (
            matern_profile((left[..., :, None, j] - right[..., None, :, j]).abs(), int(self.order))
            for j in range(left.shape[-1])
        )
        return reduce(lambda gram, factor: combine("mul", gram, factor), factors)


# -- Gram matrices with gradients of their own: autograd keeps several matrices more, and passes over each of them --
class RadialTangent:
    """K_ij = κ(−‖u_i − u_j‖²/2) of centred points u = x/ℓ with derivatives in x, for batches.

    For a symmetric G and M = G ∘ κ', the gradient of ⟨G, K⟩ in u is 2(M U − diag(M1) U).

    Parameters
    ----------
    points : tensor (..., n, d)
        u.
    lengthscale : tensor or float
        ℓ.
    gram, slope : tensor (..., n, n)
        κ and its derivative κ' at all pairs.
    bend : callable
        Returns κ''/κ', for second derivatives.
    """

    def __init__(
        self,
        points: Tensor,
        lengthscale: Tensor | float,
        gram: Tensor,
        slope: Tensor,
        bend: Callable[[], Tensor | float],
    ):
        self.points, self.lengthscale, self.gram, self.slope, self.bend = points, lengthscale, gram, slope, bend
        self.extended = torch.cat([points, torch.ones_like(points[..., :1])], -1)

    def pull(self, G: Tensor) -> Tensor:
        """The gradient of ⟨G, K⟩ in the points, for a symmetric G."""
        sums = (self.extended.mT @ (G * self.slope)).mT  # thin products are faster in this order
        return (sums[..., :-1] - sums[..., -1:] * self.points) * (2.0 / self.lengthscale)

    def push(self, dX: Tensor) -> Tensor:
        """dK = κ' ∘ (u_i·du_j + du_i·u_j − u_i·du_i − u_j·du_j)."""
        dU = dX / self.lengthscale
        norms = (self.points * dU).sum(-1, keepdim=True)
        cross = self.points @ dU.mT
        return (cross + cross.mT - norms - norms.mT).mul_(self.slope)

    def pull_change(self, G: Tensor, dG: Tensor, dX: Tensor, dK: Tensor) -> Tensor:
        """The change of ``pull(G)`` that follows changes of G and of the points; ``dK`` is ``push(dX)``."""
        U, dU = self.points, dX / self.lengthscale
        moved = (dG * self.slope).addcmul_(G, dK * self.bend()) @ self.extended
        still = (G * self.slope) @ torch.cat([dU, self.extended[..., -1:]], -1)
        change = moved[..., :-1] - moved[..., -1:] * U + still[..., :-1] - still[..., -1:] * dU
        return change * (2.0 / self.lengthscale)


def _half_squares(X: Tensor, Y: Tensor | None) -> Tensor:
    """t_ij = −‖x_i − y_j‖²/2 of points around zero; without Y, of X with itself."""
    left = 0.5 * X.square().sum(-1, keepdim=True)
    right = left if Y is None else 0.5 * Y.square().sum(-1, keepdim=True)
    t = (X @ (X if Y is None else Y).mT).sub_(left).sub_(right.mT).clamp_(max=0.0)
    if Y is None:
        t.diagonal(dim1=-2, dim2=-1).zero_()
    return t


class GaussianGram(torch.autograd.Function):
    """K_ij = exp(−‖x_i − y_j‖²/2) of points around zero, differentiable twice; without Y, of X with itself.

    For the gradient G in K: dX = M Y − diag(M1) X and dY = Mᵀ X − diag(Mᵀ1) Y with M = G ∘ K.
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, Y: Tensor | None) -> Tensor:
        K = _half_squares(X, Y).exp_()
        ctx.save_for_backward(X, Y, K)
        return K

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        X, Y, K = ctx.saved_tensors
        (G,) = gradients
        plain = G.ndim == 2 and not torch.is_grad_enabled()  # no second derivative will be asked for
        M = torch.mul(G, K, out=empty_matrix(K.shape, K)) if plain else G * K
        if Y is None:
            points = torch.cat([X, torch.ones_like(X[..., :1])], -1)
            sums = M @ points + M.mT @ points  # thin products are cheaper than M + Mᵀ
            return sums[..., :-1] - sums[..., -1:] * X, None
        in_X, in_Y = ctx.needs_input_grad
        return (
            _summed(M @ Y - M.sum(-1, keepdim=True) * X, X) if in_X else None,
            _summed(M.mT @ X - M.mT.sum(-1, keepdim=True) * Y, Y) if in_Y else None,
        )


class LaplacianGram(torch.autograd.Function):
    """K_ij = exp(−‖x_i − y_j‖₁), differentiable once; the second argument None means the first.

    For the gradient G in K: dx_i = −Σ_j M_ij sign(x_i − y_j) with M = G ∘ K, or M + Mᵀ for points with themselves.
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, Y: Tensor | None) -> Tensor:
        gram = torch.cdist(X, X if Y is None else Y, p=1.0).neg_().exp_()
        ctx.save_for_backward(X, Y, gram)
        return gram

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        X, Y, gram = ctx.saved_tensors
        M = gradients[0] * gram
        if Y is None:
            return _sign_sums(M + M.mT, X, X), None
        in_X, in_Y = ctx.needs_input_grad
        return (
            _summed(_sign_sums(M, X, Y), X) if in_X else None,
            _summed(_sign_sums(M.mT.contiguous(), Y, X), Y) if in_Y else None,
        )


def _sign_sums(M: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    """The sums −Σ_j M_ij sign(x_i − y_j), by the function that autograd calls for the distance ‖x − y‖₁."""
    X, Y = (points.expand(*M.shape[:-2], *points.shape[-2:]).contiguous() for points in (X, Y))
    sums: Tensor = torch.ops.aten._cdist_backward(M, X, Y, 1.0, M)
    return -sums


def _summed(gradient: Tensor, points: Tensor) -> Tensor:
    """The gradient of points that were broadcast over a batch."""
    return gradient.sum_to_size(points.shape) if gradient.shape != points.shape else gradient
