"""P = (G + diag(noise))⁻¹ of a Gram matrix, beside constants at no cost if there is an intercept.

With root weights D and a common shift, diag(noise) = shift·D⁻², so that P = D (D G D + shift·I)⁻¹ D. Constants at no
cost are the limit c → ∞ of G + c·11ᵀ. There P = D (Π D G D Π + shift·Π)⁺ D, where Π projects onto what is orthogonal to
E, the root weights as unit vectors, one for each output: the Gram matrix is centred, and P knows nothing along E.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from representer.linalg import Cholesky, Eigenpairs
from representer.systems.base import Criterion


@dataclass(frozen=True)
class Constants:
    """The constant functions beside f, as unit vectors E of root weights, and what the Gram matrix does to them.

    Parameters
    ----------
    basis : tensor (N, q)
        E: column a has the root weights of the entries of output a over ``norm`` a.
    norm : tensor (q,)
        The norms of the root weights; 1 for an output without entries.
    image : tensor (N, q)
        The product D G D E.
    level : tensor ()
        What the centred matrix has for an eigenvalue along E, instead of zero: so its factor is well conditioned.
    """

    basis: Tensor
    norm: Tensor
    image: Tensor
    level: Tensor

    @property
    def inner(self) -> Tensor:
        """The matrix Eᵀ D G D E of the constants."""
        return self.basis.mT @ self.image

    def project(self, values: Tensor) -> Tensor:
        """The projection Π V of columns on what is orthogonal to the constants."""
        return values - self.basis @ (self.basis.mT @ values)

    def centred(self, gram: Tensor) -> Tensor:
        """Π G Π + level·EEᵀ of a rooted Gram matrix; in its place unless it has a gradient."""
        level = self.level * torch.eye(self.basis.shape[1], dtype=gram.dtype, device=gram.device)
        less = self.image - 0.5 * self.basis @ (self.inner + level)
        if gram.requires_grad:
            return gram - less @ self.basis.mT - self.basis @ less.mT
        return gram.addmm_(less, self.basis.mT, alpha=-1.0).addmm_(self.basis, less.mT, alpha=-1.0)

    def scaled(self, weight: Tensor) -> Constants:
        """The constants beside a multiple of the Gram matrix."""
        return replace(self, image=weight * self.image, level=weight * self.level)

    def means(self, targets: Tensor) -> Tensor:
        """The weighted means (q, p) of rooted targets."""
        return (self.basis.mT @ targets) / self.norm[:, None]

    def intercepts(self, targets: Tensor, dual: Tensor) -> Tensor:
        """b (q, p), of rooted targets and rooted coefficients."""
        return self.means(targets) - (self.image.mT @ dual) / self.norm[:, None]

    def centred_cross(self, cross: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Rooted k(x, X) of the centred kernel, rows x; ``outputs`` are those of the rows, if there are several."""
        away = self.project(self.image) / self.norm
        rows = away[:, 0] if outputs is None else away.mT[outputs]
        return cross - (cross @ self.basis) @ self.basis.mT - rows

    def centred_diagonal(
        self, diagonal: Tensor, cross: Tensor, shift: Tensor, outputs: Tensor | None = None
    ) -> Tensor:
        """k(x, x) of the centred kernel plus what the data leave open of b, shift/Σw."""
        means = (cross @ self.basis) / self.norm
        own = (self.inner.diagonal() + shift) / self.norm**2
        if outputs is None:
            return diagonal - 2.0 * means[:, 0] + own[0]
        return diagonal - 2.0 * means.gather(1, outputs[:, None])[:, 0] + own[outputs]


def constants_of(
    root: Tensor, gram: Tensor, *, outputs: Tensor | None = None, count: int = 1, factor: bool = False
) -> Constants:
    """The constants beside a rooted Gram matrix, or a rooted factor of it; ``outputs`` are those of the entries."""
    basis = root[:, None]
    if outputs is not None:
        basis = torch.zeros(len(root), count, dtype=root.dtype, device=root.device)
        basis[torch.arange(len(root)), outputs] = root
    norm = basis.norm(dim=0)
    norm = torch.where(norm > 0, norm, 1.0)
    basis = basis / norm
    if factor:
        return Constants(basis, norm, gram @ (gram.mT @ basis), root.new_zeros(()))
    level = gram.detach().diagonal().mean()
    return Constants(basis, norm, gram @ basis, torch.where(level > 0, level, 1.0))


@dataclass(frozen=True)
class GramInverse:
    """P by a Cholesky factor of the rooted (and centred) Gram matrix plus shift, or by the spectrum of that matrix."""

    solver: Cholesky | Eigenpairs
    shift: Tensor
    root: Tensor
    constants: Constants | None = None

    def _solved(self, right: Tensor) -> Tensor:
        return (
            self.solver.solve(right)
            if isinstance(self.solver, Cholesky)
            else self.solver.solve(right, self.shift)
        )

    def rooted(self, values: Tensor) -> Tensor:
        """The product D V: rows times the roots of their weights."""
        return self.root[:, None] * values

    def solve(self, right: Tensor) -> Tensor:
        """The product P Y of the inverse with targets."""
        rooted = self.rooted(right)
        return self.rooted(self._solved(rooted if self.constants is None else self.constants.project(rooted)))

    def intercepts(self, targets: Tensor, dual: Tensor) -> Tensor | None:
        """b (q, p) of the fit to targets with coefficients ``dual``; None without constants."""
        if self.constants is None:
            return None
        safe = torch.where(self.root > 0, self.root, 1.0)[:, None]
        return self.constants.intercepts(self.rooted(targets), dual / safe)

    def _along_constants(self) -> Tensor:
        """The eigenvalue along E of the inverse that the solver knows."""
        assert self.constants is not None
        return 1.0 / (self.shift + self.constants.level)

    @cached_property
    def _inverse(self) -> Tensor:
        assert isinstance(self.solver, Cholesky)
        return self.solver.inverse()

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal of P."""
        if isinstance(self.solver, Cholesky):
            found = self._inverse.diagonal().clone()
        else:
            found = self.solver.inverse_diagonal(self.shift.reshape(1))[0]
        if self.constants is not None:
            found = found - self.constants.basis.square().sum(1) * self._along_constants()
        return self.root**2 * found

    def blocks(self, index: Tensor) -> Tensor:
        """The blocks P_SS (g, b, b) of rows S (g, b)."""
        if isinstance(self.solver, Cholesky):
            found = self._inverse[index[:, :, None], index[:, None, :]]
        else:
            found = spectral_blocks(self.solver, index, self.shift)
        if self.constants is not None:
            E = self.constants.basis[index]
            found = found - (E @ E.mT) * self._along_constants()
        root = self.root[index]
        return root[:, :, None] * root[:, None, :] * found

    def residuals(self, dual: Tensor, blocks: list[Tensor] | None) -> Tensor:
        """y_i − f₋ₛ(x_i), from the coefficients; ``blocks`` are the groups, if samples are not left out one by one."""
        if blocks is None:
            return dual / self.diagonal[:, None]
        found = torch.zeros_like(dual)
        for index in blocks:
            found[index] = torch.linalg.solve(self.blocks(index), dual[index])
        return found

    def explained(self, cross: Tensor) -> Tensor:
        """k_xᵀ P k_x for rooted (and centred) rows k_x."""
        if isinstance(self.solver, Cholesky):
            return self.solver.half_solve(cross.mT).square().sum(0)
        return (cross.mT * self._solved(cross.mT)).sum(0)


def spectral_blocks(spectrum: Eigenpairs, index: Tensor, shift: Tensor) -> Tensor:
    """The blocks [(A + shift·I)⁻¹]_SS (g, b, b) of rows S (g, b)."""
    rest = torch.as_tensor(spectrum._complement(shift), dtype=spectrum.values.dtype)
    U = spectrum.vectors[index]
    found = (U * (1.0 / (spectrum.values + shift) - rest)) @ U.mT
    found.diagonal(dim1=-2, dim2=-1).add_(rest)
    return found


def spectral_path(
    spectrum: Eigenpairs,
    Y: Tensor,
    shifts: Tensor,
    criterion: Criterion,
    *,
    constants: Constants | None = None,
    blocks: list[Tensor] | None = None,
) -> Tensor:
    """Σ ‖y_i − f₋ₛ(x_i)‖² of rooted targets for each shift, from one spectrum: two products for all of them."""
    if constants is not None:
        Y = constants.project(Y)
    rotated = spectrum.vectors.mT @ Y
    outside = Y - spectrum.vectors @ rotated
    if blocks is not None:
        mean = criterion == "gcv"
        return torch.stack(
            [_grouped(spectrum, rotated, outside, shift, constants, blocks, mean=mean) for shift in shifts]
        )
    diagonals = spectrum.inverse_diagonal(shifts)
    if constants is not None:
        along = constants.basis.square().sum(1)
        diagonals = diagonals - along / (shifts[:, None] + constants.level)
    if criterion == "gcv":
        diagonals = diagonals.mean(1, keepdim=True)
    errors = torch.zeros_like(shifts)
    for j in range(Y.shape[1]):
        inside = spectrum.vectors @ (rotated[:, j, None] / (spectrum.values[:, None] + shifts))
        c = inside + outside[:, j, None] / shifts
        errors += ((c.mT / diagonals) ** 2).sum(1)
    return errors


def _grouped(
    spectrum: Eigenpairs,
    rotated: Tensor,
    outside: Tensor,
    shift: Tensor,
    constants: Constants | None,
    blocks: list[Tensor],
    *,
    mean: bool,
) -> Tensor:
    dual = spectrum.vectors @ (rotated / (spectrum.values[:, None] + shift)) + outside / shift
    total = shift.new_zeros(())
    for index in blocks:
        P = spectral_blocks(spectrum, index, shift)
        if constants is not None:
            E = constants.basis[index]
            P = P - (E @ E.mT) / (shift + constants.level)
        P = P.mean(0, keepdim=True).expand_as(P) if mean else P
        total = total + torch.linalg.solve(P, dual[index]).square().sum()
    return total
