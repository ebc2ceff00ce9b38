"""The ridge system of an operator-valued kernel at all samples, by the cheapest exact route that its structure allows.

``factor_system`` chooses: outputs that come apart have scalar systems, by a Cholesky factor, by a spectrum that several
of them share, or by few features; others have the block matrix, or conjugate gradients where that is too large.

All of them know P = (G + diag(noise))⁻¹ of a Gram matrix, beside constants at no cost if there is an intercept. With
root weights D and a common shift, diag(noise) = shift·D⁻², so that P = D (D G D + shift·I)⁻¹ D. Constants at no cost
are the limit c → ∞ of G + c·11ᵀ. There P = D (Π D G D Π + shift·Π)⁺ D, where Π projects onto what is orthogonal to E,
the root weights as unit vectors, one for each output: the Gram matrix is centred, and P knows nothing along E.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from representer.approximation import FeatureMap
from representer.kernels import Kernel, Linear
from representer.linalg import (
    Cholesky,
    Eigenpairs,
    conjugate_gradient,
    eigh,
    factorize,
    factorize_products,
    inverse_blocks,
    kronecker_solve,
    nearest_kronecker,
    pivoted_cholesky,
    repair_gram,
    require,
    row_blocks,
    solve_blocks,
    spectrum_of_factor,
    thin_svd,
)
from representer.notices import warn
from representer.operators import (
    DataDriven,
    Decomposable,
    DiagonalForm,
    OperatorKernel,
    OperatorSum,
    Projected,
    clipped_spectrum,
    repaired_gram,
)
from representer.samples import Block, Data, count, take
from representer.samples import rows as limits
from representer.systems.base import (
    Criterion,
    System,
    group_members,
    is_linear,
    least_shift,
    relative_norm,
    shift_range,
)
from representer.values import Value

# Rank of the pivoted Cholesky preconditioner: its cost stays below that of a few products with the kernel.
PRECONDITIONER_RANK = 200


# -- the inverse of a Gram matrix plus noise --------------------------------------------------------------------------
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
        """b (q, p), of rooted targets and rooted coefficients.

        The coefficients are orthogonal to the constants, so that the image may be taken from them: a wide kernel has an
        image that is nearly constant, and coefficients that are large.
        """
        return self.means(targets) - (self.project(self.image).mT @ dual) / self.norm[:, None]

    def centred_cross(self, cross: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Rooted k(x, X) of the centred kernel, rows x; ``outputs`` are those of the rows, if there are several."""
        away = self.project(self.image) / self.norm
        rows = away[:, 0] if outputs is None else away.mT[outputs]
        return cross - (cross @ self.basis) @ self.basis.mT - rows

    def centred_diagonal(self, diagonal: Tensor, cross: Tensor, shift: Tensor, outputs: Tensor | None = None) -> Tensor:
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
        return self.solver.solve(right) if isinstance(self.solver, Cholesky) else self.solver.solve(right, self.shift)

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

    @property
    def leverage(self) -> Tensor:
        """∂f(x_i)/∂y_i = 1 − noise_i P_ii, (N,)."""
        return 1.0 - self.shift / self.root**2 * self.diagonal

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

    def residuals(self, dual: Tensor, blocks: list[Tensor] | None, *, mean: bool = False) -> Tensor:
        """y_i − f₋ₛ(x_i), from the coefficients; ``blocks`` are the groups, if samples are not left out one by one.

        With ``mean``, all blocks of one size are their mean, as in generalised cross-validation.
        """
        if blocks is None:
            return dual / self.diagonal[:, None]
        found = torch.zeros_like(dual)
        for index in blocks:
            if index.shape[1] == 1 and not mean:
                rows = index[:, 0]
                found[rows] = dual[rows] / self.diagonal[rows, None]
                continue
            P = self.blocks(index)
            P = P.mean(0, keepdim=True).expand_as(P) if mean else P
            found[index] = solve_blocks(P, dual[index])
        return found

    def left_out_variance(self, blocks: list[Tensor] | None) -> Tensor:
        """The diagonal (N,) of the inverted blocks P_SS of what is left out together; without ``blocks``, 1 / P_ii."""
        found = 1.0 / self.diagonal
        for index in [] if blocks is None else blocks:
            if index.shape[1] > 1:
                found[index] = inverse_blocks(self.blocks(index)).diagonal(dim1=-2, dim2=-1)
        return found

    def influence(self, cross: Tensor, outputs: Tensor | None = None) -> Tensor:
        """∂f(x)/∂y_i (N, m) for rooted rows k_x; ``outputs`` are those of the rows, if there are several."""
        constants = self.constants
        if constants is None:
            return self.rooted(self._solved(cross.mT))
        solved = self._solved(constants.centred_cross(cross, outputs).mT)
        own = constants.basis / constants.norm
        return self.rooted(solved + (own[:, :1] if outputs is None else own[:, outputs]))

    def left_out_changes(
        self, influence: Tensor, residuals: Tensor, blocks: list[Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """f(x) − f₋ₛ(x) (m, N, q) for the group S of each entry, and by how much the variance is larger, (m, N).

        Without S, f(x) changes by g_Sᵀr_S and its variance by g_SᵀP_SS⁻¹g_S, with g the influence and r the residuals
        of what is left out.
        """
        if blocks is None:
            blocks = [torch.arange(len(influence))[:, None]]
        m, (n, q) = influence.shape[1], residuals.shape
        changes, added = influence.new_empty(m, n, q), influence.new_empty(m, n)
        for index in blocks:
            g = influence[index]
            if index.shape[1] == 1:
                solved = g / self.diagonal[index][:, :, None]
            else:
                solved = solve_blocks(self.blocks(index), g)
            changes[:, index] = torch.einsum("gsm,gsq->mgq", g, residuals[index])[:, :, None]
            added[:, index] = (g * solved).sum(1).mT[:, :, None]
        return changes, added

    def variance(self, diagonal: Tensor, cross: Tensor, outputs: Tensor | None = None) -> Tensor:
        """The variance of f + b at points with the prior variance ``diagonal`` and rooted rows k_x.

        ``outputs`` are those of the rows, if there are several.
        """
        if self.constants is not None:
            diagonal = self.constants.centred_diagonal(diagonal, cross, self.shift, outputs)
            cross = self.constants.centred_cross(cross, outputs)
        if isinstance(self.solver, Cholesky):
            explained = self.solver.half_solve(cross.mT).square().sum(0)
        else:
            explained = (cross.mT * self._solved(cross.mT)).sum(0)
        return (diagonal - explained).clamp(min=0.0)


def factored(
    make: Callable[[], tuple[Tensor, Constants | None]], shift: Tensor, *, name: str
) -> tuple[Cholesky, Constants | None]:
    """A Cholesky factor of a matrix plus shift·I, and the constants beside it; ``make`` makes both, anew if need be."""
    kept: list[Constants | None] = []

    def build() -> Tensor:
        matrix, constants = make()
        kept[:] = [constants]
        matrix.diagonal().add_(shift)
        return matrix

    return factorize(build, name=name), kept[0]


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
    if blocks is not None:
        ones = torch.ones_like(Y[:, 0])
        inverses = [GramInverse(spectrum, shift, ones, constants) for shift in shifts]
        mean = criterion == "gcv"
        return torch.stack([P.residuals(P.solve(Y), blocks, mean=mean).square().sum() for P in inverses])
    if constants is not None:
        Y = constants.project(Y)
    rotated = spectrum.vectors.mT @ Y
    outside = Y - spectrum.vectors @ rotated
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


Known = tuple[Eigenpairs, Constants | None]


# -- samples ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RidgeData:
    """The samples of an exact system, as tensors.

    Parameters
    ----------
    kernel : OperatorKernel
        With numbers for all hyperparameters.
    X : prepared data
        The n training inputs.
    Y : tensor (n, p)
        Targets; what stands in unobserved entries is not read.
    weights : tensor (n,) or (n, p)
        Weights of the samples, or of their targets one by one, of mean 1.
    observed : bool tensor (n, p) or None
        Which targets are known; None: all.
    groups : integer tensor (n,) or None
        What is left out together; None: every sample alone.
    intercept : bool
        Is there a constant b?
    gram : tensor (n, n) or None
        The Gram matrix of the only scalar kernel, if it is known already.
    stayed : tensor (n, r) or None
        The eigenvectors that have stayed where the Gram matrix took a repair.
    """

    kernel: OperatorKernel
    X: Data
    Y: Tensor
    weights: Tensor
    observed: Tensor | None = None
    groups: Tensor | None = None
    intercept: bool = False
    gram: Tensor | None = None
    stayed: Tensor | None = None

    @cached_property
    def mask(self) -> Tensor | None:
        """Which targets are known; None where all are."""
        return None if self.observed is None or bool(self.observed.all()) else self.observed

    @cached_property
    def root(self) -> Tensor:
        """The square roots of the weights."""
        return self.weights.sqrt()

    @cached_property
    def diagonal(self) -> Tensor:
        """The variances K(x_i, x_i)_jj (n, p) of the prior, with the gradients of the kernel."""
        return self.kernel.diag(self.X, self.Y.shape[1])

    @cached_property
    def form(self) -> DiagonalForm | None:
        """The form in which outputs come apart, or None if they are coupled here."""
        if self.weights.ndim > 1:
            return None
        form = self.kernel.diagonal_form(self.Y.shape[1], self.Y)
        return form if form is None or self.mask is None or form.rotation is None else None

    @property
    def is_thin(self) -> bool:
        """Is there a single scalar kernel, that of few features?"""
        return self.form is not None and len(self.form.kernels) == 1 and has_few_features(self.form.kernels[0], self.X)

    @property
    def targets(self) -> Tensor:
        """Targets with zeros where they are not known."""
        return self.Y if self.mask is None else torch.where(self.mask, self.Y, 0.0)

    def blocks(self, rows: Tensor) -> list[Tensor] | None:
        """The groups of some of the samples, numbered among these; None where samples stand alone."""
        if self.groups is None:
            return None
        blocks = group_members(self.groups[rows])
        if len(blocks) == 1 and blocks[0].shape[1] == 1:
            return None
        refuse_one_group(blocks, len(rows), self.intercept)
        return blocks

    @cached_property
    def patterns(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Weights, outputs and rows of every scalar system; outputs that are never observed have none."""
        assert self.form is not None
        return [
            (weights, outputs, rows)
            for weights, members in self.form.groups()
            for outputs, rows in observation_patterns(self.mask, members, len(self.Y))
            if len(rows)
        ]

    def part_gram(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Σ_t w_t k_t(X, X) on some rows, in new memory."""
        assert self.form is not None
        matrix = self.form.gram(weights, self.X) if self.gram is None else self.gram * weights[0]
        return matrix if len(rows) == len(self.Y) else matrix[rows[:, None], rows]

    def cross_gram(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Some rows of Σ_t w_t k_t(X, X)."""
        assert self.form is not None
        if self.gram is not None:
            return self.gram[rows] * weights[0]
        everything = len(rows) == len(self.Y)
        return self.form.gram(weights, self.X) if everything else self.form.gram(weights, take(self.X, rows), self.X)

    @cached_property
    def entries(self) -> Tensor:
        """The known targets as numbers of a flat matrix (n·p): the entries of the block matrix of coupled outputs."""
        if self.mask is None:
            return torch.arange(self.Y.numel())
        return self.mask.reshape(-1).nonzero()[:, 0]

    @property
    def entry_root(self) -> Tensor:
        """The root weights of the entries."""
        return self.columns.sqrt().expand_as(self.Y).reshape(-1)[self.entries]

    @property
    def columns(self) -> Tensor:
        """The weights of targets as a matrix (n, p) or (n, 1)."""
        return self.weights if self.weights.ndim > 1 else self.weights[:, None]

    def noise(self, alpha: float) -> Tensor:
        """The noise n·alpha/w of the targets, (n, p) or (n, 1)."""
        return len(self.Y) * alpha / self.columns

    def entry_blocks(self) -> list[Tensor]:
        """The entries that are left out together: those of a group, or of a sample."""
        own = torch.arange(len(self.Y)) if self.groups is None else self.groups
        blocks = group_members(own.repeat_interleave(self.Y.shape[1])[self.entries])
        if blocks:
            refuse_one_group(blocks, len(self.entries), self.intercept)
        return blocks

    def rooted_blocks(self) -> Tensor:
        """The rooted block matrix of the entries."""
        block = self.kernel.dense(self.X, None, self.Y.shape[1])
        if len(self.entries) < len(block):
            block = block[self.entries[:, None], self.entries]
        return weighted(block, self.entry_root)

    def block_constants(self, block: Tensor) -> Constants | None:
        """The constants beside the rooted block matrix; None where there is no intercept."""
        p = self.Y.shape[1]
        return constants_of(self.entry_root, block, outputs=self.entries % p, count=p) if self.intercept else None

    def block_gram(self) -> tuple[Tensor, Constants | None]:
        """The rooted block matrix of the entries, centred where there is an intercept, and the constants beside it."""
        block = self.rooted_blocks()
        constants = self.block_constants(block)
        return block if constants is None else constants.centred(block), constants

    # -- samples that a criterion looks at -----------------------------------------------------------------------------
    def rows(self, index: Tensor) -> RidgeData:
        """The data of the system on some of the samples."""
        X, weights = take(self.X, index), self.weights[index]
        return replace(
            self,
            X=X[:, index] if self.kernel.domain == "gram" else X,
            Y=self.Y[index],
            weights=weights / weights.mean(),
            observed=None if self.observed is None else self.observed[index],
            groups=None if self.groups is None else self.groups[index],
            gram=None if self.gram is None else self.gram[index[:, None], index],
            stayed=None,
        )

    def merged(self) -> RidgeData:
        """Every group as one sample: the first of its inputs with the mean of its targets, and the sum of its weights.

        So repetitions count as weights do. All targets must be known, and the weights those of whole samples.
        """
        if self.groups is None:
            return self
        numbers, members = self.groups.unique(return_inverse=True)
        places = torch.arange(len(self.Y), device=self.Y.device)
        first = torch.full_like(numbers, len(self.Y)).scatter_reduce(0, members, places, "amin")
        sums = self.Y.new_zeros(len(numbers), self.Y.shape[1]).index_add_(0, members, self.weights[:, None] * self.Y)
        weights = self.Y.new_zeros(len(numbers)).index_add_(0, members, self.weights)
        return replace(self.rows(first), Y=sums / weights[:, None], weights=weights / weights.mean(), groups=None)

    def subset(self, limit: int, seed: int) -> RidgeData:
        """As many random samples as a criterion can afford; all of them where the outputs come apart."""
        n, p = self.Y.shape
        affordable = n if self.form is not None else max(1, limits.DENSE_LIMIT // p)
        limit, wanted = min(limit, affordable), min(limit, n)
        if limit >= n:
            return self
        if affordable < wanted:
            warn(
                f"The outputs of {type(self.kernel).__name__} do not come apart, and {n} samples of {p} outputs are "
                f"too many for its criterion: hyperparameters are chosen on {limit} random samples. Fix alpha and the "
                "kernel's numbers to avoid it, and random_state to make it repeatable."
            )
        return self.rows(limits.drawn_rows(n, limit, seed, self.groups))

    def path(self, alphas: Tensor, criterion: Criterion = "loo") -> Tensor:
        """The criterion for many alphas from one eigendecomposition (for each part of the outputs).

        The spectrum of the only scalar kernel stays at hand for later alphas and for the fit.
        """
        n = len(self.Y)
        if self.form is None:
            return self._coupled_path(n * alphas, criterion) / n
        rotation, targets = self.form.rotation, self.root[:, None] * self.targets
        targets = targets if rotation is None else targets @ rotation
        known = self.spectrum if self.refinable else None
        errors = torch.zeros_like(alphas)
        for weights, outputs, rows in self.patterns:
            spectrum, constants = part_spectrum(self, weights, rows, known)
            blocks = self.blocks(rows) if criterion == "loo" else None
            part = targets[rows[:, None], outputs]
            errors += spectral_path(spectrum, part, n * alphas, criterion, constants=constants, blocks=blocks)
        return errors / n

    def _coupled_path(self, shifts: Tensor, criterion: Criterion) -> Tensor:
        refuse_missing(self.mask, criterion)
        matrix, constants = self.block_gram()
        spectrum = eigh(matrix, name="The block Gram matrix", overwrite=True)
        targets = self.entry_root[:, None] * self.Y.reshape(-1)[self.entries, None]
        return spectral_path(spectrum, targets, shifts, criterion, constants=constants, blocks=self.entry_blocks())

    @cached_property
    def spectrum(self) -> Known:
        """The spectrum of the rooted Gram matrix of the only scalar kernel, and the constants beside it."""
        assert self.form is not None
        return gram_spectrum(self.form.kernels[0], self.X, self.root, self.gram, intercept=self.intercept)

    @property
    def refinable(self) -> bool:
        """Does one eigendecomposition serve all outputs, so that more alphas cost only products?"""
        return self.form is not None and len(self.form.kernels) == 1 and self.mask is None

    # -- kernels that may need a repair -------------------------------------------------------------------------------
    def with_gram(self) -> RidgeData:
        """The Gram matrix of a kernel that is costly, or that may need a repair, is computed once."""
        if self.gram is not None or not isinstance(self.kernel, Decomposable):
            return self
        if self.kernel.domain == "vectors" and isinstance(self.X, Tensor):
            return self
        gram, stayed = repaired_gram(self.kernel.kernel, self.X)
        return replace(self, gram=gram, stayed=stayed)

    def at_new_points(self, coefficients: Tensor) -> Tensor:
        """The coefficients of a function of the training points that means the same at new ones."""
        return coefficients if self.stayed is None else self.stayed @ (self.stayed.mT @ coefficients)

    def alpha_unit(self) -> tuple[Tensor, float]:
        """The alpha with which a sample has as much noise as k(x, x) on average, and how many are left out in turn.

        These are infinitely many for linear kernels, so that the data alone decide: k(x, x) is a matter of the origin.
        """
        n: float = len(self.Y) if self.groups is None else len(self.groups.unique())
        average = (self.diagonal * self.columns).mean(0).max()
        average = average.clamp(min=least_shift(average)) / n
        linear = self.form is not None and any(is_linear(kernel) for kernel in self.form.kernels)
        return average, math.inf if linear else n

    def alpha_range(self) -> tuple[Tensor, Tensor]:
        """The alphas that a criterion can tell apart; few features, whose factor is at hand, have smaller ones."""
        trace, values = self.diagonal.detach().sum(0).max(), None
        if self.form is not None and self.is_thin:
            values = self.spectrum[0].values * self.form.weights.detach().max()
        low, high = shift_range(trace, values)
        return low / len(self.Y), high / len(self.Y)


def training_data(
    kernel: OperatorKernel, block: Block, *, intercept: bool, features: FeatureMap | None = None
) -> RidgeData:
    """The samples of an exact fit with a kernel that is adapted to them; with features, those of a linear kernel."""
    Y, X, observed = block.Y, block.X, block.observed
    weights = Y.new_ones(len(Y)) if block.weights is None else (block.weights / block.weights.mean()).to(Y)
    if features is not None:
        X, operator = features(X), kernel.operator if isinstance(kernel, Decomposable) else None
        kernel = Decomposable(Linear(), operator)
    elif kernel.domain == "gram" and not isinstance(kernel, Decomposable):
        X = repair_gram(X)
    Y = Y if observed is None else torch.where(observed, Y, 0.0)
    return RidgeData(kernel, X, Y, weights, observed, block.groups, intercept)


def refuse_one_group(blocks: list[Tensor], n: int, intercept: bool) -> None:
    """Refuse to leave out all samples where a constant must be fitted to what is left."""
    if intercept and blocks[-1].shape[1] == n:
        raise ValueError(
            f"All {n} samples of an output are in one group: left out together, they leave nothing that an intercept "
            "could be fitted to. Give at least two groups, or fit_intercept=False."
        )


def has_few_features(kernel: Kernel, X: Data) -> bool:
    """Is the Gram matrix X Xᵀ with fewer features than samples, so that no n × n matrix is needed?"""
    return isinstance(kernel, Linear) and X.shape[-1] < X.shape[-2]


def observation_patterns(observed: Tensor | None, outputs: Tensor, n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs that are observed at the same rows, with those rows."""
    if observed is None:
        yield outputs, torch.arange(n)
        return
    columns, members = torch.unique(observed[:, outputs], dim=1, return_inverse=True)
    for g in range(columns.shape[1]):
        yield outputs[members == g], columns[:, g].nonzero()[:, 0]


def is_uniform(root: Tensor) -> bool:
    """Are all root weights one?"""
    return bool((root == 1.0).all())


def weighted(gram: Tensor, root: Tensor) -> Tensor:
    """D G D, in its place unless it has a gradient."""
    if is_uniform(root):
        return gram
    return gram * root[:, None] * root if gram.requires_grad else gram.mul_(root[:, None]).mul_(root)


def beside_constants(gram: Tensor, root: Tensor, *, intercept: bool) -> tuple[Tensor, Constants | None]:
    """D G D, centred where there is an intercept, and the constants beside it; overwrites G if it has no gradient."""
    matrix = weighted(gram, root)
    if not intercept:
        return matrix, None
    constants = constants_of(root, matrix)
    return constants.centred(matrix), constants


def gram_spectrum(
    kernel: Kernel, X: Data, root: Tensor, gram: Tensor | None = None, *, intercept: bool = False
) -> Known:
    """The spectrum of D k(X, X) D, centred where there is an intercept, and the constants beside it.

    It comes from the features if the kernel is linear and has fewer of them than samples.
    """
    constants = None
    if has_few_features(kernel, X):
        factor = root[:, None] * X
        if intercept:
            constants = constants_of(root, factor, factor=True)
            # Points less their mean are exact, even far from zero; what remains of the mean is projected away.
            factor = constants.project(root[:, None] * (X - weighted_mean(X, root)))
        return spectrum_of_factor(factor), constants
    gram = kernel._gram(X, None) if gram is None else gram.clone()
    return spectrum_beside_constants(gram, root, intercept=intercept)


def spectrum_beside_constants(gram: Tensor, root: Tensor, *, intercept: bool) -> Known:
    """The spectrum of D G D, centred where there is an intercept, and the constants beside it; G is overwritten."""
    matrix, constants = beside_constants(gram, root, intercept=intercept)
    return eigh(matrix, name="The Gram matrix", overwrite=True), constants


def part_spectrum(data: RidgeData, weights: Tensor, rows: Tensor, shared: Known | None) -> Known:
    """The spectrum of the rooted Gram matrix of some rows for outputs with these weights, and the constants beside it.

    ``shared`` is that of the only scalar kernel, if it is known already.
    """
    assert data.form is not None
    kernel, root = data.form.kernels[0], data.root[rows]
    if shared is None and data.is_thin:
        shared = gram_spectrum(kernel, take(data.X, rows), root, intercept=data.intercept)
    if shared is None:
        return spectrum_beside_constants(data.part_gram(weights, rows), root, intercept=data.intercept)
    spectrum, constants = shared
    scaled = None if constants is None else constants.scaled(weights[0])
    return Eigenpairs(spectrum.vectors, weights[0] * spectrum.values), scaled


# -- few features -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Slopes:
    """Ridge regression on few features, t·xᵀs + b, by the decomposition D(X − 1x̄ᵀ) = U diag(σ) Vᵀ; x̄ = 0 without b.

    A sum over samples of large coefficients that cancel would lose what the squared features have in digits beyond
    n·alpha; the slopes s = V diag(1 / (tσ + shift/σ)) UᵀDy lose none.
    """

    left: Tensor  # U
    values: Tensor  # σ, positive
    right: Tensor  # V
    middle: Tensor | None  # x̄
    root: Tensor  # the diagonal of D
    scale: Tensor  # t
    shift: Tensor

    @classmethod
    def of(cls, X: Tensor, root: Tensor, scale: Tensor, shift: Tensor, *, intercept: bool) -> Slopes:
        """The decomposition of features with root weights."""
        middle = weighted_mean(X, root) if intercept else None
        left, values, right = thin_svd(root[:, None] * (X if middle is None else X - middle))
        return cls(left, values, right, middle, root, scale, shift)

    def fit(self, Y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The slopes s (d, p) and the constants b (p,) of the fit to targets."""
        centre = None if self.middle is None else weighted_mean(Y, self.root)
        rooted = self.root[:, None] * (Y if centre is None else Y - centre)
        weights = 1.0 / (self.scale * self.values + self.shift / self.values)
        slopes = self.right @ (weights[:, None] * (self.left.mT @ rooted))
        if self.middle is None or centre is None:
            return slopes, None
        return slopes, centre - self.scale * (self.middle @ slopes)

    def residual(self, X: Tensor, Y: Tensor) -> float:
        """The norm of what the normal equations miss, over what their terms may round: ‖D(X − x̄)‖ ‖D(Y − ȳ)‖."""
        slopes = self.fit(Y)[0]
        if self.middle is not None:
            X, Y = X - self.middle, Y - weighted_mean(Y, self.root)
        X, targets = self.root[:, None] * X, self.root[:, None] * Y
        missed = X.mT @ (targets - self.scale * (X @ slopes)) - self.shift * slopes
        return relative_norm(missed, X.norm() * targets)

    def values_at(self, X: Tensor, Y: Tensor) -> Tensor:
        """The values (m, p) at new points of the fit to targets."""
        slopes, b = self.fit(Y)
        values = self.scale * (X @ slopes)
        return values if b is None else values + b

    def influence(self, X: Tensor) -> Tensor:
        """∂f(x)/∂y_i (n, m) at new points."""
        points = (X if self.middle is None else X - self.middle) @ self.right
        weights = self.scale / (self.scale * self.values + self.shift / self.values)
        own = 0.0 if self.middle is None else (self.root / self.root.square().sum())[:, None]
        return self.root[:, None] * ((self.left * weights) @ points.mT + own)

    def variance(self, X: Tensor) -> Tensor:
        """The variance (m,) of f + b at new points."""
        points = (X if self.middle is None else X - self.middle) @ self.right
        # The squares of large values may be out of range where their ratio is not.
        points = points * (
            (self.scale * self.shift).sqrt() / torch.hypot(self.scale.sqrt() * self.values, self.shift.sqrt())
        )
        own = 0.0 if self.middle is None else self.shift / self.root.square().sum()
        return points.square().sum(-1) + own


def weighted_mean(values: Tensor, root: Tensor) -> Tensor:
    """The mean of rows with the squares of ``root`` for weights."""
    weights = root.square()
    return (weights / weights.sum()) @ values


# -- outputs that come apart ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ScalarPart:
    """Outputs (in rotated coordinates) that share a scalar system and the rows they are observed at, and its fit.

    Parameters
    ----------
    data : RidgeData
    weights : tensor (number of kernels,)
        Of the scalar kernels.
    outputs, rows : integer tensors (q,) and (r,)
    inverse : GramInverse
        That of the rows.
    targets : tensor (r, q)
        Those of the outputs at the rows.
    """

    data: RidgeData
    weights: Tensor
    outputs: Tensor
    rows: Tensor
    inverse: GramInverse
    targets: Tensor

    @property
    def index(self) -> tuple[Tensor, Tensor]:
        """Where the part stands in a matrix (n, p)."""
        return self.rows[:, None], self.outputs[None, :]

    @property
    def _form(self) -> DiagonalForm:
        assert self.data.form is not None
        return self.data.form

    @cached_property
    def dual(self) -> Tensor:
        """The coefficients (r, q) of the rows."""
        return self.inverse.solve(self.targets).contiguous()

    @cached_property
    def slopes(self) -> Slopes:
        """The decomposition of few features; only of data that have few."""
        X, root = self.data.X[self.rows], self.inverse.root
        return Slopes.of(X, root, self.weights[0], self.inverse.shift, intercept=self.data.intercept)

    @cached_property
    def constant(self) -> Tensor:
        """The constants b (q,), zero without an intercept."""
        if not self.data.intercept:
            return self.targets.new_zeros(len(self.outputs))
        if self.data.is_thin:
            b = self.slopes.fit(self.targets)[1]
        else:
            found = self.inverse.intercepts(self.targets, self.dual)
            b = None if found is None else found[0]
        assert b is not None
        return b

    def missed(self, places: Tensor) -> Tensor:
        """What the equations of the rows at these places miss."""
        cross = self.data.cross_gram(self.weights, self.rows[places])[:, self.rows]
        noise = (self.inverse.shift / self.inverse.root[places] ** 2)[:, None]
        return self.targets[places] - cross @ self.dual - self.constant - noise * self.dual[places]

    # -- at new points ------------------------------------------------------------------------------------------------
    def cross(self, X: Data, gram: Tensor | None = None) -> Tensor:
        """Rooted rows (m, r) of Gram matrices with the samples; ``gram`` is that of the only kernel, if it is known."""
        gram = self._form.gram(self.weights, X, self.data.X) if gram is None else gram * self.weights[0]
        gram = gram[:, self.rows] if len(self.rows) < gram.shape[1] else gram
        return gram if is_uniform(self.inverse.root) else gram * self.inverse.root

    def summed(self, X: Data) -> Tensor:
        """The values (m, q) as sums over the samples."""
        dual = self.dual.new_zeros(len(self.data.Y), len(self.outputs))
        dual[self.rows] = self.dual
        return self._form.product(self.weights, X, self.data.X, dual) + self.constant

    def values_at(self, X: Data) -> Tensor:
        """The values (m, q), by slopes where there are few features."""
        return self.slopes.values_at(X, self.targets) if self.data.is_thin else self.summed(X)

    def influence(self, X: Data) -> Tensor:
        """The derivatives ∂f(x)/∂y_i of answers in the targets, (r, m)."""
        return self.slopes.influence(X) if self.data.is_thin else self.inverse.influence(self.cross(X))

    def variance(self, X: Data, gram: Tensor | None = None) -> Tensor:
        """The variance (m,) of f + b; ``gram`` is that of the only kernel with the samples, if it is known."""
        if self.data.is_thin:
            return self.slopes.variance(X)
        return self.inverse.variance(self._form.diag(self.weights, X), self.cross(X, gram))


class SeparateOutputs(System):
    """The system of a kernel in diagonal form: one scalar system for each part of the outputs."""

    def __init__(self, data: RidgeData, alpha: float, known: Known | None = None):
        assert data.form is not None
        self.data = data
        self.form = data.form
        self.shift = data.Y.new_tensor(len(data.Y) * alpha)
        self.targets = self._rotate(data.targets)
        self.parts = list(self._made(known))

    def _made(self, known: Known | None) -> Iterator[ScalarPart]:
        data, form = self.data, self.form
        if data.mask is not None:
            known = None
        elif known is None and len(form.kernels) == 1 and len(data.patterns) > 1:
            known = data.spectrum
        for weights, outputs, rows in data.patterns:
            solver: Cholesky | Eigenpairs
            if known is None and not data.is_thin:
                solver, constants = self._by_cholesky(weights, rows)
            else:
                solver, constants = part_spectrum(data, weights, rows, known)
            inverse = GramInverse(solver, self.shift, data.root[rows], constants)
            yield ScalarPart(data, weights, outputs, rows, inverse, self.targets[rows[:, None], outputs])

    def _by_cholesky(self, weights: Tensor, rows: Tensor) -> tuple[Cholesky, Constants | None]:
        data = self.data

        def make() -> tuple[Tensor, Constants | None]:
            return beside_constants(data.part_gram(weights, rows), data.root[rows], intercept=data.intercept)

        return factored(make, self.shift, name="The Gram matrix plus n·alpha")

    def _rotate(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ self.form.rotation

    def _rotate_back(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ self.form.rotation.mT

    def _variances_back(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ (self.form.rotation**2).mT

    def _joined(self, values: Callable[[ScalarPart], Tensor], rest: float = 0.0) -> Tensor:
        """The matrix (n, p) of what the parts say of their own rows and outputs."""
        everything = torch.full_like(self.targets, rest)
        for part in self.parts:
            everything[part.index] = values(part)
        return everything

    def coefficients(self) -> Tensor:
        return self._rotate_back(self._joined(lambda part: part.dual))

    def intercept(self) -> Tensor | None:
        if not self.data.intercept:
            return None
        b = self.targets.new_zeros(self.targets.shape[1])
        for part in self.parts:
            b[part.outputs] = part.constant
        return self._rotate_back(b)

    def slopes(self) -> Tensor | None:
        if not self.data.is_thin:
            return None
        slopes = self.targets.new_zeros(self.data.X.shape[1], self.targets.shape[1])
        for part in self.parts:
            slopes[:, part.outputs] = part.slopes.fit(part.targets)[0]
        return self._rotate_back(slopes)

    def residual(self) -> float:
        """That of the slopes of few features; else as some of the equations show that of all."""
        if self.data.is_thin:
            return max((p.slopes.residual(self.data.X[p.rows], p.targets) for p in self.parts), default=0.0)
        missed, right = [self.targets.new_zeros(0)], [self.targets.new_zeros(0)]
        for part in self.parts:
            places = torch.from_numpy(limits.evenly_spaced(len(part.rows), limits.RESIDUAL_ROWS))
            missed.append((len(part.rows) / len(places)) ** 0.5 * part.missed(places).flatten())
            right.append(part.targets.flatten())
        return relative_norm(torch.cat(missed), torch.cat(right))

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """y_i minus the residuals of what is left out; where a target is missing, f without the sample's group."""
        groups = self.data.groups if groups is None else groups
        data = replace(self.data, groups=groups)
        predictions = torch.zeros_like(self.targets)
        for part in self.parts:
            blocks = data.blocks(part.rows)
            residuals = part.inverse.residuals(part.dual, blocks)
            predictions[part.index] = part.targets - residuals
            unseen = torch.ones(len(data.Y), dtype=torch.bool, device=residuals.device)
            unseen[part.rows] = False
            if bool(unseen.any()):
                rows = unseen.nonzero()[:, 0]
                fitted = self._unseen(part, rows, None if blocks is None else groups, residuals)
                predictions[rows[:, None], part.outputs[None, :]] = fitted
        return self._rotate_back(predictions)

    def _unseen(self, part: ScalarPart, rows: Tensor, groups: Tensor | None, residuals: Tensor) -> Tensor:
        """Predictions for samples without these targets, by the fit without the other samples of their groups."""
        X = take(self.data.X, rows)
        fitted = part.summed(X)
        if groups is None:
            return fitted
        cross = part.cross(X)
        together = (groups[part.rows][:, None] == groups[rows]).to(cross)
        return fitted - (part.inverse.influence(cross) * together).mT @ residuals

    def _left_out_changes(self, X: Data) -> tuple[Tensor, Tensor]:
        """f(x) − f₋ₛ(x) and how its variance grows, (m, n, p), in rotated coordinates; zero where no target is."""
        changes, added = (self.form.weights.new_zeros(count(X), *self.targets.shape) for _ in range(2))
        for part in self.parts:
            blocks = self.data.blocks(part.rows)
            residuals = part.inverse.residuals(part.dual, blocks)
            own, larger = part.inverse.left_out_changes(part.influence(X), residuals, blocks)
            changes[:, part.index[0], part.index[1]] = own
            added[:, part.index[0], part.index[1]] = larger[:, :, None]
        return changes, added

    def influence(self, X: Data) -> Tensor:
        """Those of the scalar systems, rotated back."""
        return self._rotate_back(self._left_out_changes(X)[0])

    def left_out_at(self, X: Data) -> tuple[Tensor, Tensor]:
        """f minus the influence of the residuals of what is left out; samples without a target are not left out."""
        fitted = self.form.weights.new_zeros(count(X), self.targets.shape[1])
        for part in self.parts:
            fitted[:, part.outputs] = part.values_at(X)
        changes, added = self._left_out_changes(X)
        means, variances = fitted[:, None] - changes, self._rotated_variance(X)[:, None] + added
        return self._rotate_back(means), self._variances_back(variances)

    def left_out_variance(self) -> Tensor:
        """The diagonals of P_SS⁻¹ in rotated coordinates; where a target is missing, it is not defined (NaN)."""
        blocks = self.data.blocks
        own = self._joined(lambda p: p.inverse.left_out_variance(blocks(p.rows))[:, None], torch.nan)
        return self._variances_back(own)

    def leverage(self) -> Tensor:
        """Those of the scalar systems, rotated back; NaN where a target is missing."""
        return self._variances_back(self._joined(lambda p: p.inverse.leverage[:, None], torch.nan))

    def variance(self, X: Data) -> Tensor:
        """Scalar variances, rotated back; the cross-Gram matrix of a kernel that all parts share is computed once."""
        return self._variances_back(self._rotated_variance(X))

    def _rotated_variance(self, X: Data) -> Tensor:
        """Scalar variances in the rotated coordinates of the outputs."""
        variances = self.form.weights.new_zeros(count(X), self.targets.shape[1])
        for weights, outputs in self.form.groups():  # outputs that nobody observed keep their prior
            variances[:, outputs] = self.form.diag(weights, X)[:, None]
        shares = len(self.form.kernels) == 1 and not self.data.is_thin
        gram = self.form.kernels[0]._gram(X, self.data.X) if shares else None
        for part in self.parts:
            variances[:, part.outputs] = part.variance(X, gram)[:, None]
        return variances


# -- coupled outputs, by the block matrix -----------------------------------------------------------------------------
class CoupledOutputs(System):
    """The block matrix of the observed entries, factored: a scalar system whose entries are pairs (sample, output)."""

    def __init__(self, data: RidgeData, alpha: float):
        self.data = data
        self.shift = data.Y.new_tensor(len(data.Y) * alpha)
        self.entries = data.entries
        factor, constants = factored(data.block_gram, self.shift, name="The block Gram matrix plus n·alpha")
        self.inverse = GramInverse(factor, self.shift, data.entry_root, constants)

    def _flat(self, values: Tensor) -> Tensor:
        return values.reshape(-1)[self.entries, None]

    def _unflat(self, values: Tensor, rest: float = 0.0) -> Tensor:
        full = values.new_full((self.data.Y.numel(),), rest)
        full[self.entries] = values.reshape(-1)
        return full.reshape(self.data.Y.shape)

    @cached_property
    def _dual(self) -> Tensor:
        return self.inverse.solve(self._flat(self.data.Y))

    def coefficients(self) -> Tensor:
        return self._unflat(self._dual)

    def intercept(self) -> Tensor | None:
        found = self.inverse.intercepts(self._flat(self.data.Y), self._dual)
        return None if found is None else found[:, 0]

    def _values(self, X: Data) -> Tensor:
        """f(x_i) + b, (m, p)."""
        b = self.intercept()
        values = self.data.kernel.apply(X, self.data.X, self.coefficients())
        return values if b is None else values + b

    def _cross(self, X: Data) -> Tensor:
        """Rooted rows (m·p, N) of the block matrix with the entries."""
        return self.data.kernel.dense(X, self.data.X, self.data.Y.shape[1])[:, self.entries] * self.inverse.root

    def residual(self) -> float:
        noise = self.shift / self.data.columns
        missed = self.data.targets - self._values(self.data.X) - noise * self.coefficients()
        return relative_norm(self._flat(missed), self._flat(self.data.targets))

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """f minus what the residuals of a sample's group change in it, for known and missing targets alike."""
        n, p = self.data.Y.shape
        data = self.data if groups is None else replace(self.data, groups=groups)
        residuals = self.inverse.residuals(self._dual, data.entry_blocks())
        predictions = self.data.targets - self._unflat(residuals)
        unseen = torch.ones(n * p, dtype=torch.bool)
        unseen[self.entries] = False
        if not bool(unseen.any()):
            return predictions
        places = unseen.nonzero()[:, 0]
        cross = self.data.kernel.dense(self.data.X, None, p)[places][:, self.entries] * self.inverse.root
        change = self.inverse.influence(cross, places % p)
        own = torch.arange(n) if data.groups is None else data.groups
        together = (own[self.entries // p][:, None] == own[places // p]).to(cross)
        fitted = self._values(self.data.X).reshape(-1)[places] - ((change * together).mT @ residuals)[:, 0]
        flat = predictions.reshape(-1).clone()
        flat[places] = fitted
        return flat.reshape(n, p)

    def _left_out_changes(self, X: Data) -> tuple[Tensor, Tensor]:
        """f(x) − f₋ₛ(x) and how its variance grows, (m, n, p); NaN for samples without any target."""
        (n, p), m, blocks = self.data.Y.shape, count(X), self.data.entry_blocks()
        influence = self.inverse.influence(self._cross(X), torch.arange(m * p) % p)
        changes, added = self.inverse.left_out_changes(influence, self.inverse.residuals(self._dual, blocks), blocks)
        samples = changes.new_full((2, m * p, n), torch.nan)
        # Entries of one sample are left out together.
        samples[:, :, self.entries // p] = torch.stack([changes[:, :, 0], added])
        changes, added = samples.reshape(2, m, p, n).transpose(2, 3)
        return changes, added

    def influence(self, X: Data) -> Tensor:
        """From one solve with the cross blocks; zero for samples without any target."""
        return self._left_out_changes(X)[0].nan_to_num(0.0)

    def left_out_at(self, X: Data) -> tuple[Tensor, Tensor]:
        """f minus the influence of the residuals of what is left out; NaN for samples without any target."""
        changes, added = self._left_out_changes(X)
        return self._values(X)[:, None] - changes, self.variance(X)[:, None] + added

    def left_out_variance(self) -> Tensor:
        """The diagonals of the inverted blocks of samples, or groups; NaN where a target is missing."""
        return self._unflat(self.inverse.left_out_variance(self.data.entry_blocks()), torch.nan)

    def leverage(self) -> Tensor:
        """Those of the entries; NaN where a target is missing."""
        return self._unflat(self.inverse.leverage, torch.nan)

    def variance(self, X: Data) -> Tensor:
        """From one triangular solve with the cross blocks."""
        p = self.data.Y.shape[1]
        diagonal = self.data.kernel.diag(X, p).reshape(-1)
        return self.inverse.variance(diagonal, self._cross(X), torch.arange(len(diagonal)) % p).reshape(-1, p)


# -- coupled outputs, by the kernel's action --------------------------------------------------------------------------
class IterativeOutputs(System):
    """Preconditioned conjugate gradients on the implicit operator: nothing of size n·p squared exists."""

    def __init__(self, data: RidgeData, alpha: float):
        self.data = data
        self.noise = data.noise(alpha)
        self.mask = torch.ones_like(data.Y) if data.mask is None else data.mask.to(data.Y.dtype)
        self.precondition = _preconditioner(data.kernel, data.X, self.noise, self.mask)

    def _matvec(self, coefficients: Tensor) -> Tensor:
        masked = self.mask * coefficients
        blocks = row_blocks(len(masked), masked.numel() * masked.element_size())
        X, kernel = self.data.X, self.data.kernel
        image = torch.cat([kernel.apply(X[rows], X, masked) for rows in blocks])
        return self.mask * image + self.noise * coefficients

    def _solve(self, right: Tensor) -> Tensor:
        """W⁻¹ Y by conjugate gradients; entries that are not observed decouple and stay 0."""
        observed = torch.where(self.mask > 0, right, 0.0)
        name = "the operator-valued ridge system"
        return conjugate_gradient(self._matvec, observed, precondition=self.precondition, name=name)

    @cached_property
    def _ones(self) -> tuple[Tensor, Tensor]:
        """W⁻¹(1 ⊗ e_j) (p, n, p) for every output, and the matrix (1 ⊗ e_i)ᵀW⁻¹(1 ⊗ e_j)."""
        solved = torch.stack([self._solve(self.mask * unit) for unit in torch.eye(self.mask.shape[1]).to(self.mask)])
        return solved, (solved * self.mask).sum(1)

    @cached_property
    def _solution(self) -> tuple[Tensor, Tensor | None]:
        dual = self._solve(self.data.Y)
        if not self.data.intercept:
            return dual, None
        solved, inner = self._ones
        b = torch.linalg.solve(inner, dual.sum(0))
        return dual - torch.einsum("jnp,j->np", solved, b), b

    def coefficients(self) -> Tensor:
        return self._solution[0]

    def intercept(self) -> Tensor | None:
        return self._solution[1]

    def residual(self) -> float:
        dual, b = self._solution
        missed = self.data.targets - self._matvec(dual) - (0.0 if b is None else self.mask * b)
        return relative_norm(missed, self.data.targets)

    def _unavailable(self, what: str) -> ValueError:
        n, p = self.mask.shape
        return ValueError(
            f"{what} need the inverse of a {n * p} × {n * p} matrix, which the iterative solver avoids. Use "
            "cross_val_predict, fewer samples, or an operator that commutes (Identity, Diagonal)."
        )

    def variance(self, X: Data) -> Tensor:
        """One solve for each new point and output."""
        p = self.mask.shape[1]
        variance = self.data.kernel.diag(X, p)
        for i in range(count(X)):
            rows = self.data.kernel.dense(X[i : i + 1], self.data.X, p).reshape(p, -1, p)
            for a in range(p):
                solved = self._solve(rows[a])
                variance[i, a] -= (rows[a] * solved).sum()
                if self.data.intercept:
                    open_ = torch.eye(p).to(solved)[a] - solved.sum(0)
                    variance[i, a] += open_ @ torch.linalg.solve(self._ones[1], open_)
        return variance.clamp(min=0.0)


def _preconditioner(kernel: OperatorKernel, X: Data, noise: Tensor, mask: Tensor) -> Callable[[Tensor], Tensor]:
    """The nearest Kronecker product for sums of them, and a pivoted Cholesky factor for any other kernel."""
    shift = noise.mean()
    n, p = mask.shape
    terms = _terms(kernel, X)
    products = [(term, view) for term, view in terms if isinstance(term, Decomposable)]
    if len(products) == len(terms):
        pairs = [(term.kernel._gram(view, None), term._operator.as_matrix(p, noise)) for term, view in products]
        gram, operator = nearest_kronecker(pairs)
        left, right = eigh(gram), clipped_spectrum(operator)
        return lambda residual: mask * kronecker_solve(left, right, residual, shift) + (1 - mask) * residual / shift

    flat_mask = mask.reshape(-1)

    def column(index: int) -> Tensor:
        sample, output = divmod(index, p)
        block = kernel.dense(X, X[sample : sample + 1], p)
        return flat_mask * block[:, output] * flat_mask[index]

    diagonal = kernel.diag(X, p) * mask
    rank = min(PRECONDITIONER_RANK, n * p)
    factor, _ = pivoted_cholesky(column, diagonal=diagonal.reshape(-1), max_rank=rank)
    inner = factorize_products(factor, shift, name="The inner matrix of the preconditioner")

    def precondition(residual: Tensor) -> Tensor:
        """The product (B Bᵀ + shift·I)⁻¹ r by Woodbury's formula."""
        right = residual.reshape(-1, 1)
        return ((right - factor @ inner.solve(factor.mT @ right)) / shift).reshape(residual.shape)

    return precondition


def _terms(kernel: OperatorKernel, X: Data) -> list[tuple[OperatorKernel, Data]]:
    """The terms of a sum, and of the sums in it, each with the data as it takes them."""
    if not isinstance(kernel, OperatorSum):
        return [(kernel, X)]
    return [pair for term, view in zip(kernel.terms, kernel.views(X), strict=True) for pair in _terms(term, *view)]


# -- choices ----------------------------------------------------------------------------------------------------------
def factor_system(data: RidgeData, alpha: float) -> System:
    """Factor K + diag(n·alpha/weights) by the cheapest exact route that the kernel and the missing entries allow.

    That is one by structure where there is some, also by a spectrum that ``data.path`` has left at hand; the block
    matrix up to ``rows.DENSE_LIMIT`` entries; and conjugate gradients above.

    Parameters
    ----------
    data : RidgeData
        The samples with their targets, and the kernel.
    alpha : float
        The weight of ‖f‖² beside the mean loss.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> from representer.systems import RidgeData, factor_system
    >>> X, Y = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [2.0]])
    >>> system = factor_system(RidgeData(Decomposable(Linear()), X, Y, torch.ones(2)), alpha=2.5)
    >>> (X.T @ system.coefficients()).round(decimals=4).tolist()  # the slope of ridge regression, xᵀy / (xᵀx + 2·2.5)
    [[0.5]]
    """
    p, known = data.Y.shape[1], vars(data).get("spectrum")
    expected = data.kernel.n_outputs(data.X)
    if expected not in (None, p):
        raise ValueError(f"{data.kernel!r} has {expected} outputs on these inputs, but there are {p} targets.")
    if data.stayed is not None and isinstance(data.kernel, Decomposable):  # what the repair means for new points
        data = replace(data, kernel=Decomposable(Projected(data.kernel.kernel, data.stayed), data.kernel.operator))
    if data.form is not None:
        return SeparateOutputs(data, alpha, known)
    return (CoupledOutputs if data.Y.numel() <= limits.DENSE_LIMIT else IterativeOutputs)(data, alpha)


def refuse_missing(mask: Tensor | None, criterion: Criterion) -> None:
    """Refuse generalised cross-validation of coupled outputs where targets are missing."""
    if mask is not None and criterion == "gcv":
        raise ValueError("criterion='gcv' needs all targets when outputs are coupled; use criterion='loo'.")


def require_memory(data: RidgeData, *, learned: bool, searched: bool) -> None:
    """Refuse an exact fit that does not fit, before anything of size n × n exists.

    ``learned`` says whether hyperparameters of the kernel are learned, and ``searched`` whether alpha is.
    """
    n, p = data.Y.shape
    form = None if _is_undecided(data.kernel) else data.form
    # Peaks that the memory benchmark measures, in matrices: a gradient's intermediates; the blocks of a kernel without
    # structure; eigenvectors and their workspace; a factor alone. Outputs with a Gram matrix of their own keep one.
    if form is None:
        elements = (10 if learned else 5) * min(n * p, limits.DENSE_LIMIT) ** 2
    elif not learned and data.is_thin:
        elements = 4 * data.X.numel()
    else:
        spectral = searched or form.weights.unique(dim=1).shape[1] > 1
        shared = len(form.kernels) == 1 and data.mask is None
        factors = 1 if shared else len(data.patterns)
        elements = ((10 if learned else 3 if spectral else 1) + factors - 1) * n**2
    elements += 3 * n**2 if data.kernel.domain == "gram" else 0
    double, advice = data.Y.element_size() == 8, "Use approximation=Nystroem(m), "
    require(
        elements * data.Y.element_size(),
        what=f"An exact fit to {n} samples",
        advice=f"{advice}or fewer samples.",
        halved=f"{advice}fewer samples or dtype='float32'." if double else None,
    )


def _is_undecided(value: Value) -> bool:
    """Does a sum wait for operators that the targets decide? Such operators need not commute."""
    return isinstance(value, DataDriven) or any(_is_undecided(child) for _, child in value._children())
