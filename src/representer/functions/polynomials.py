"""Explicit features of polynomial kernels: a later layer with few of them needs no factor of its Gram matrix."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from representer.kernels import Kernel, Linear, Polynomial
from representer.values import number


def feature_count(kernel: Kernel | None, dimension: int) -> float:
    """How many features the kernel has on ℝ^dimension; infinitely many for all but linear and polynomial kernels."""
    if isinstance(kernel, Linear):
        return dimension
    return math.comb(dimension + kernel.degree, kernel.degree) if isinstance(kernel, Polynomial) else math.inf


def features(kernel: Kernel | None, Z: Tensor) -> Tensor:
    """φ(Z) (..., n, m) with k(x, y) = φ(x)ᵀφ(y), differentiable.

    With u = [√gamma·x, √coef0], (uᵀv)^degree is a sum over monomials of that degree, weighted by multinomials.
    """
    if not isinstance(kernel, Polynomial):
        return Z
    gamma, coef0 = number(kernel, "gamma", Z), number(kernel, "coef0", Z)
    u = torch.cat([gamma.sqrt() * Z, coef0.sqrt() * torch.ones_like(Z[..., :1])], -1)
    indices, weights = _monomials(u.shape[-1], int(kernel.degree))
    return u[..., indices.to(u.device)].prod(-1) * weights.to(u)


@cache
def _monomials(variables: int, degree: int) -> tuple[Tensor, Tensor]:
    """The variables of each monomial (m, degree), and the roots of the multinomial coefficients."""
    indices = list(combinations_with_replacement(range(variables), degree))
    counts = [math.prod(map(math.factorial, Counter(index).values())) for index in indices]
    weights = [math.sqrt(math.factorial(degree) / count) for count in counts]
    return torch.tensor(indices), torch.tensor(weights, dtype=torch.float64)
