"""Value <-> raw parameter: what an optimiser moves freely, and what a kernel may be given.

A hyperparameter has a constraint. Its raw form is unconstrained; ``value(raw)`` is always admissible, however far a
line search strays, so a kernel that is learned by gradient never goes out of range.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Real:
    """Any real number: raw and value are the same."""

    def value(self, raw: Tensor) -> Tensor:
        """The admissible value of a raw parameter."""
        return raw

    def raw(self, value: Tensor) -> Tensor:
        """The raw parameter of an admissible value."""
        return value

    def problem(self, value: Tensor) -> str | None:
        """What is wrong with a value, or None."""
        return None if bool(torch.isfinite(value).all()) else "must be finite"


@dataclass(frozen=True)
class Positive:
    """A positive number, by its logarithm.

    The logarithm is confined to a quarter of the floating-point range, so that squares, and products of two squares,
    of a value are still finite and positive. ``power`` leaves the same room to a value that is raised to that power.
    """

    power: int = 1

    def _limit(self, dtype: torch.dtype) -> float:
        return 0.99 * math.log(torch.finfo(dtype).max) / (4.0 * self.power)

    def value(self, raw: Tensor) -> Tensor:
        """The value exp(raw), which is never 0 or infinite."""
        limit = self._limit(raw.dtype)
        return raw.clamp(-limit, limit).exp()

    def raw(self, value: Tensor) -> Tensor:
        """The raw number log(value), which is finite even for 0."""
        limit = self._limit(value.dtype)
        return value.log().clamp(-limit, limit)

    def problem(self, value: Tensor) -> str | None:
        """What is wrong with a value, or None."""
        return None if bool(((value > 0) & torch.isfinite(value)).all()) else "must be positive and finite"


@dataclass(frozen=True)
class NonNegative(Positive):
    """Zero is allowed as a fixed value; what is learned is positive."""

    def problem(self, value: Tensor) -> str | None:
        """What is wrong with a value, or None."""
        admissible = bool(((value >= 0) & torch.isfinite(value)).all())
        return None if admissible else "must not be negative, and finite"


@dataclass(frozen=True)
class Below(Positive):
    """A number above 0 and at most ``limit``, by the logarithm of its odds; what is learned stays below the limit."""

    limit: float = 1.0

    def value(self, raw: Tensor) -> Tensor:
        """The number limit / (1 + exp(−raw)), never 0, and a ten-thousandth or more below the limit."""
        return self.limit * raw.clamp(-30.0, 9.0).sigmoid()

    def raw(self, value: Tensor) -> Tensor:
        """The logarithm log(value / (limit − value)); at both ends so far inside that a search can move."""
        return (value / self.limit).logit().clamp(-29.0, 8.0)

    def problem(self, value: Tensor) -> str | None:
        """What is wrong with a value, or None."""
        inside = bool(((value > 0) & (value <= self.limit)).all())
        return None if inside else f"must be above 0 and at most {self.limit:.6g}"


@dataclass(frozen=True)
class SemiDefinite:
    """A symmetric positive semi-definite p × p matrix F Fᵀ, by the factor F (p × p, raw)."""

    def value(self, raw: Tensor) -> Tensor:
        """The matrix F Fᵀ, which is never infinite."""
        limit = torch.finfo(raw.dtype).max ** 0.25
        raw = raw.clamp(-limit, limit)
        return raw @ raw.mT

    def raw(self, value: Tensor) -> Tensor:
        """The symmetric square root, which leaves no direction of a singular matrix behind."""
        values, vectors = torch.linalg.eigh(value)
        return (vectors * values.clamp(min=0.0).sqrt()[..., None, :]) @ vectors.mT

    def problem(self, value: Tensor) -> str | None:
        """What is wrong with a value, or None."""
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return "must be a square matrix"
        if not bool(torch.isfinite(value).all()):
            return "must be finite"
        scale = value.abs().max().clamp(min=torch.finfo(value.dtype).tiny)
        rounding = math.sqrt(torch.finfo(value.dtype).eps)
        if bool((value - value.mT).abs().max() > rounding * scale):
            return "must be symmetric"
        if bool(torch.linalg.eigvalsh(value).min() < -rounding * scale):
            return "must be positive semi-definite"
        return None


Constraint = Real | Positive | SemiDefinite


@dataclass(frozen=True)
class Packing:
    """One flat raw vector for a set of named, constrained values, and the way back.

    A batch of raw vectors (b, m) unpacks to values that broadcast over a batch of Gram matrices: a scalar becomes
    (b, 1, 1), a vector of length d becomes (b, 1, d).

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Gaussian
    >>> pack, raw = (2.0 * Gaussian([1.0, 3.0])).packing(["scale", "kernel__lengthscale"])
    >>> raw.round(decimals=2).tolist()
    [0.69, 0.0, 1.1]
    >>> {name: value.tolist() for name, value in pack.unpack(torch.zeros(3)).items()}
    {'scale': 1.0, 'kernel__lengthscale': [1.0, 1.0]}
    """

    constraints: Mapping[str, Constraint]
    shapes: Mapping[str, torch.Size]

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(shape.numel() for shape in self.shapes.values())

    def pack(self, values: Mapping[str, Tensor]) -> Tensor:
        """The flat raw vector of these values."""
        raw = [self.constraints[name].raw(values[name].detach()).reshape(-1) for name in self.shapes]
        return torch.cat(raw) if raw else torch.zeros(0, dtype=torch.float64)

    def unpack(self, raw: Tensor) -> dict[str, Tensor]:
        """The named values of a raw vector, or of a batch of them."""
        values = {}
        pieces = raw.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        for piece, (name, shape) in zip(pieces, self.shapes.items(), strict=True):
            batched = raw.ndim > 1 and len(shape) < 2
            own = piece[..., None, :] if batched else piece.reshape((*raw.shape[:-1], *shape))
            values[name] = self.constraints[name].value(own)
        return values


def packing(values: Mapping[str, Tensor], constraints: Mapping[str, Constraint]) -> Packing:
    """The packing of values in their order, each with its constraint."""
    return Packing({name: constraints[name] for name in values}, {name: v.shape for name, v in values.items()})


# A hyperparameter as a user writes it: a number, an array or a tensor of them, or a word that the data replace.
Setting = npt.ArrayLike | Tensor


def is_real(value: object) -> bool:
    """Is it one real number, of Python or NumPy (and not a truth value)?"""
    return type(value) is float or (isinstance(value, numbers.Real) and not isinstance(value, bool))


def is_scalar(value: object) -> bool:
    """Could it stand for one hyperparameter: a number, a tensor, an array of no dimension, or a word?"""
    array = isinstance(value, np.ndarray) and value.ndim == 0
    return is_real(value) or array or isinstance(value, Tensor | str)


def is_count(value: object) -> bool:
    """Is it a positive integer, of Python or NumPy?"""
    return isinstance(value, numbers.Integral) and is_real(value) and int(value) > 0


def is_whole(value: object) -> bool:
    """Is it an integer, 0 or more, of Python or NumPy?"""
    return isinstance(value, numbers.Integral) and is_real(value) and int(value) >= 0


def as_tensor(value: object) -> Tensor:
    """A number, list or array as a tensor of its own, in double precision if it held integers; a tensor as it is."""
    tensor = value if isinstance(value, Tensor) else torch.tensor(np.asarray(value, order="C"))
    is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    return tensor.to(torch.float64) if is_integer else tensor


@dataclass(frozen=True)
class Word:
    """A word that may stand for a number, such as ``lengthscale="median"``: how the data give it a value."""

    value: Callable[[Any], Tensor]  # of prepared data
    learned: bool = False  # is the value only where learning starts?


@functools.lru_cache(maxsize=1024)
def _problem_of(constraint: Constraint, value: float) -> str | None:
    """Why a plain number is not allowed, or None; it is asked with every Gram matrix, and so remembered."""
    return constraint.problem(torch.tensor(value, dtype=torch.float64))


@dataclass(frozen=True)
class Hyperparameter:
    """A continuous hyperparameter: what it may be, and the words that stand for a value.

    ``scalar``: one number, or a batch of them that broadcasts over Gram matrices (..., 1, 1); otherwise any shape.
    """

    constraint: Constraint
    words: Mapping[str, Word] = field(default_factory=dict)
    scalar: bool = False

    def problem(self, value: object) -> str | None:
        """What is wrong with a value or a word, or None."""
        if isinstance(value, str):
            words = f" or one of: {', '.join(map(repr, self.words))}" if self.words else ""
            return None if value in self.words else f"must be a number{words}"
        if type(value) is float:
            return _problem_of(self.constraint, value)
        try:
            tensor = as_tensor(value).detach()
        except (TypeError, ValueError, RuntimeError):
            return "must be a number, an array or a tensor"
        if tensor.dtype == torch.bool or tensor.is_complex():
            return "must be a real number, an array or a tensor"
        if not tensor.numel():
            return "must not be empty"
        if self.scalar and tensor.numel() > 1 and tensor.shape[-2:] != (1, 1):
            return f"must be one number (or a batch of shape (..., 1, 1)), not an array of shape {tuple(tensor.shape)}"
        return self.constraint.problem(tensor)
