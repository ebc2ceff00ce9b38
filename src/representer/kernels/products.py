"""Kernels of the inner product of numeric vectors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement
from typing import ClassVar

import torch
from torch import Tensor

from representer.kernels.base import FACTOR, Kernel
from representer.kernels.heuristics import inverse_size
from representer.linalg import combine
from representer.values import Hyperparameter, NonNegative, Positive, Setting, Word, number, per_row

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

    def _gram(self, X: Tensor, Y: Tensor | None) -> Tensor:
        return X @ (X if Y is None else Y).mT

    def _diag(self, X: Tensor) -> Tensor:
        return (X**2).sum(-1)

    def features(self, X: Tensor) -> Tensor:
        """The vectors themselves, which are their own features."""
        return X

    def _product(self, X: Tensor, Y: Tensor, coefficients: Tensor) -> Tensor:
        return X @ (Y.mT @ coefficients)


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

    hyperparameters: ClassVar[Mapping[str, Hyperparameter]] = {
        "gamma": Hyperparameter(
            Positive(), {"scale": Word(inverse_size), "auto": Word(inverse_size, learned=True)}, scalar=True
        ),
        "coef0": FACTOR,
    }

    positive_integers = ("degree",)

    def __init__(self, degree: int = 2, gamma: Setting = 1.0, coef0: Setting = 1.0):
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    def _own_specification(self, name: str) -> Hyperparameter:
        """The specification of a number that, while it is learned, stays so small that its power is in range."""
        constraint = NonNegative(self.degree) if name == "coef0" else Positive(self.degree)
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
