"""How the solution of a convex loss follows a change: the inverse that Newton steps and derivatives share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from representer.linalg import factorize
from representer.objectives.base import factorize_shifted


class Curvature(ABC):
    """E = (cI + DK)⁻¹D, which is (K + c D⁻¹)⁻¹ where D, the Hessian of the summed loss Σℓ in F, is regular.

    The solution obeys c β = −∂Σℓ/∂F at F = Kβ + 1bᵀ, c = 2nα. If F changes by Φ at fixed β and b, then β follows
    by −E(Φ + 1Δbᵀ), where Δb keeps Σ_i β_i = 0. Also (cI + DK)⁻¹ = (I − EK)/c: nothing is divided by D.
    """

    @abstractmethod
    def apply(self, right: Tensor) -> Tensor:
        """E times (n, p)."""

    @abstractmethod
    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """The solution less E 1Δbᵀ, and the Δb (p,) that gives its columns these sums."""

    def newton_step(
        self, gram: Tensor, beta: Tensor, R: Tensor, c: float, *, intercept: bool
    ) -> tuple[Tensor, Tensor]:
        """Δβ, Δb: c(β + Δβ) = R − D(KΔβ + 1Δbᵀ) with R = −∂Σℓ/∂F, and 1ᵀ(β + Δβ) = 0 or Δb = 0."""
        rho = R - c * beta
        change = (rho - self.apply(gram @ rho)) / c
        return self.balance(change, -beta.sum(0)) if intercept else (change, beta.new_zeros(beta.shape[1]))

    def adjoint(self, right: Tensor, sums: Tensor, *, intercept: bool) -> Tensor:
        """The a (n, p) with ⟨right, Δβ⟩ + ⟨sums, Δb⟩ = −⟨a, Φ⟩ for every change Φ."""
        solution = self.apply(right)
        return self.balance(solution, sums)[0] if intercept else solution


class DiagonalCurvature(Curvature):
    """D = diag(w) for one column: E = w^½(w^½Kw^½ + cI)⁻¹w^½ on the rows with w > 0, and zero elsewhere.

    c = 0 means that D is infinite where w > 0: E is the inverse of K on these rows.
    """

    def __init__(self, gram: Tensor, weights: Tensor, c: float) -> None:
        self.n = len(gram)
        self.rows = torch.nonzero(weights)[:, 0]
        self.root = weights[self.rows].sqrt()[:, None]
        block = gram if len(self.rows) == self.n else gram[self.rows[:, None], self.rows]
        self.cholesky = factorize_shifted(self.root * block * self.root.mT, gram.new_tensor(c))

    def apply(self, right: Tensor) -> Tensor:
        result = torch.zeros_like(right)
        result[self.rows] = self.root * self.cholesky.solve(self.root * right[self.rows])
        return result

    @cached_property
    def _h(self) -> Tensor:
        """E 1."""
        return self.apply(self.root.new_ones(self.n, 1))

    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        if len(self.rows) == 0:  # nothing depends on b
            return solution, torch.zeros_like(sums)
        b = (solution.sum(0) - sums) / self._h.sum()
        return solution - self._h * b, b


class SoftmaxCurvature(Curvature):
    """D = diag(p_i) − p_i p_iᵀ for each sample: E_jl = δ_jl E_j − E_j M⁻¹E_l, M = Σ_j E_j, E_j = (K + c diag(p_j)⁻¹)⁻¹.

    M stands for the direction in which the Hessian vanishes (Rasmussen & Williams, Algorithm 3.3). Costs k inverses
    and one factorisation, and memory for k matrices.
    """

    def __init__(self, gram: Tensor, P: Tensor, c: float) -> None:
        root = P.mT.sqrt()[:, :, None]
        H = factorize_shifted(root * gram * root.mT, gram.new_full((P.shape[1],), c))
        self.E = H.inverse().mul_(root).mul_(root.mT)
        self.M = factorize(self.E.sum(0), name="The Hessian of the softmax")
        self.h = self.E.sum(-1).mT  # E_j 1

    @cached_property
    def _v(self) -> Tensor:
        """M⁻¹E_j 1."""
        return self.M.solve(self.h)

    def _each(self, right: Tensor) -> Tensor:
        """E_j times column j, or times the only column."""
        return (self.E @ right.mT[:, :, None])[..., 0].mT

    def apply(self, right: Tensor) -> Tensor:
        separate = self._each(right)
        return separate - self._each(self.M.solve(separate.sum(1, keepdim=True)))

    def balance(self, solution: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        schur = torch.diag(self.h.sum(0)) - self.h.mT @ self._v
        # b is known up to a constant; the same number in every entry makes the system regular and picks Σ_j b_j = 0.
        b = torch.linalg.solve(schur + schur.diagonal().mean(), solution.sum(0) - sums)
        return solution - self.h * b + self._each((self._v @ b)[:, None]), b
