"""The ridge system of an operator-valued kernel at all samples, by the cheapest exact route that its structure allows.

``factor_system`` chooses: outputs that come apart have scalar systems, by a Cholesky factor, by a spectrum that several
of them share, or by few features; others have the block matrix, or conjugate gradients where that is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from representer.data import Data, count, take
from representer.kernels import Kernel, Linear
from representer.linalg import (
    Eigenpairs,
    conjugate_gradient,
    eigh,
    factorize,
    kronecker_solve,
    nearest_kronecker,
    pivoted_cholesky,
    spectrum_of_factor,
    woodbury,
)
from representer.linalg.memory import require, row_blocks
from representer.operators.base import Decomposable, DiagonalForm, OperatorKernel, OperatorSum
from representer.operators.outputs import clipped_spectrum
from representer.samples import rows as limits
from representer.systems.base import Criterion, System, group_members
from representer.systems.inverse import Constants, GramInverse, constants_of, spectral_path

Solver = Literal["auto", "dense", "iterative"]

# Rank of the pivoted Cholesky preconditioner: its cost stays below that of a few products with the kernel.
PRECONDITIONER_RANK = 200


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
    weights : tensor (n,)
        Sample weights of mean 1.
    observed : bool tensor (n, p) or None
        Which targets are known; None: all.
    groups : integer tensor (n,) or None
        What is left out together; None: every sample alone.
    intercept : bool
        Is there a constant b?
    gram : tensor (n, n) or None
        The Gram matrix of the only scalar kernel, if it is known already.
    """

    kernel: OperatorKernel
    X: Data
    Y: Tensor
    weights: Tensor
    observed: Tensor | None = None
    groups: Tensor | None = None
    intercept: bool = False
    gram: Tensor | None = None

    @cached_property
    def mask(self) -> Tensor | None:
        """Which targets are known; None where all are."""
        return None if self.observed is None or bool(self.observed.all()) else self.observed

    @cached_property
    def root(self) -> Tensor:
        """The square roots of the weights."""
        return self.weights.sqrt()

    @cached_property
    def form(self) -> DiagonalForm | None:
        """The form in which outputs come apart, or None if they are coupled here."""
        form = self.kernel.diagonal_form(self.Y.shape[1], self.Y)
        return form if form is None or self.mask is None or form.rotation is None else None

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


def gram_spectrum(
    kernel: Kernel, X: Data, root: Tensor, gram: Tensor | None = None, *, intercept: bool = False
) -> tuple[Eigenpairs, Constants | None]:
    """The spectrum of D k(X, X) D, centred where there is an intercept, and the constants beside it.

    It comes from the features if the kernel is linear and has fewer of them than samples.
    """
    constants = None
    if has_few_features(kernel, X):
        factor = root[:, None] * X
        if intercept:
            constants = constants_of(root, factor, factor=True)
            factor = constants.project(factor)
        return spectrum_of_factor(factor), constants
    gram = kernel._gram(X, None) if gram is None else gram.clone()
    return spectrum_beside_constants(gram, root, intercept=intercept)


def spectrum_beside_constants(
    gram: Tensor, root: Tensor, *, intercept: bool
) -> tuple[Eigenpairs, Constants | None]:
    """The spectrum of D G D, centred where there is an intercept, and the constants beside it; G is overwritten."""
    matrix = weighted(gram, root)
    constants = constants_of(root, matrix) if intercept else None
    matrix = matrix if constants is None else constants.centred(matrix)
    return eigh(matrix, name="The Gram matrix", overwrite=True), constants


# -- outputs that come apart ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ScalarPart:
    """Outputs (in rotated coordinates) that share a scalar system and the rows they are observed at."""

    weights: Tensor
    outputs: Tensor
    rows: Tensor
    inverse: GramInverse

    @property
    def index(self) -> tuple[Tensor, Tensor]:
        """Where the part stands in a matrix (n, p)."""
        return self.rows[:, None], self.outputs[None, :]


class SeparateOutputs(System):
    """The system of a kernel in diagonal form: one scalar system for each part of the outputs."""

    def __init__(
        self, data: RidgeData, alpha: float, known: tuple[Eigenpairs, Constants | None] | None = None
    ):
        assert data.form is not None
        self.data = data
        self.form = data.form
        self.shift = data.Y.new_tensor(len(data.Y) * alpha)
        self.parts = list(self._made(known))

    def _made(self, known: tuple[Eigenpairs, Constants | None] | None) -> Iterator[ScalarPart]:
        data, form = self.data, self.form
        single = len(form.kernels) == 1
        if data.mask is not None:
            known = None
        elif known is None and single and len(data.patterns) > 1:
            known = gram_spectrum(form.kernels[0], data.X, data.root, data.gram, intercept=data.intercept)
        for weights, outputs, rows in data.patterns:
            root, scale = data.root[rows], weights[0]
            found = known
            if found is None and single and has_few_features(form.kernels[0], data.X):
                found = gram_spectrum(form.kernels[0], take(data.X, rows), root, intercept=data.intercept)
            if found is None:
                inverse = self._by_cholesky(weights, rows, root)
            else:
                spectrum = Eigenpairs(found[0].vectors, scale * found[0].values)
                constants = None if found[1] is None else found[1].scaled(scale)
                inverse = GramInverse(spectrum, self.shift, root, constants)
            yield ScalarPart(weights, outputs, rows, inverse)

    def _by_cholesky(self, weights: Tensor, rows: Tensor, root: Tensor) -> GramInverse:
        constants: list[Constants] = []

        def build() -> Tensor:
            matrix = weighted(self._gram(weights, rows), root)
            if self.data.intercept:
                constants[:] = [constants_of(root, matrix)]
                matrix = constants[0].centred(matrix)
            matrix.diagonal().add_(self.shift)
            return matrix

        factor = factorize(build, name="The Gram matrix plus n·alpha")
        return GramInverse(factor, self.shift, root, constants[0] if constants else None)

    def _gram(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Σ_t w_t k_t(X, X) on some rows, in new memory."""
        known = self.data.gram
        matrix = self.form.gram(weights, self.data.X) if known is None else known * weights[0]
        return matrix if len(rows) == len(self.data.Y) else matrix[rows[:, None], rows]

    def _rotate(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ self.form.rotation

    def _rotate_back(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ self.form.rotation.mT

    def _variances_back(self, values: Tensor) -> Tensor:
        return values if self.form.rotation is None else values @ (self.form.rotation**2).mT

    @cached_property
    def _dual(self) -> Tensor:
        rotated = self._rotate(self.data.targets)
        dual = torch.zeros_like(rotated)
        for part in self.parts:
            dual[part.index] = part.inverse.solve(rotated[part.index])
        return dual

    def coefficients(self) -> Tensor:
        """C (n, p), zero where a target is missing."""
        return self._rotate_back(self._dual)

    @cached_property
    def _constant(self) -> Tensor | None:
        """The constant b in the rotated coordinates of the outputs."""
        if not self.data.intercept:
            return None
        b, rotated = self.data.Y.new_zeros(self.data.Y.shape[1]), self._rotate(self.data.targets)
        for part in self.parts:
            found = part.inverse.intercepts(rotated[part.index], self._dual[part.index])
            assert found is not None
            b[part.outputs] = found[0]
        return b

    def intercept(self) -> Tensor | None:
        """The constant b (p,), or None where there is none."""
        return None if self._constant is None else self._rotate_back(self._constant)

    def residual(self) -> float:
        """The norm of Y − KC − 1bᵀ − noise·C at the known targets, over that of Y."""
        rotated = self._rotate(self.data.targets)
        b = rotated.new_zeros(rotated.shape[1]) if self._constant is None else self._constant
        missed = torch.zeros_like(rotated)
        for part in self.parts:
            noise = (self.shift / part.inverse.root**2)[:, None]
            image = self._gram(part.weights, part.rows) @ self._dual[part.index]
            missed[part.index] = (
                rotated[part.index] - image - b[part.outputs] - noise * self._dual[part.index]
            )
        return float(missed.norm() / rotated.norm().clamp(min=torch.finfo(rotated.dtype).tiny))

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """y_i minus the residuals of what is left out; where a target is missing, f without the sample's group."""
        groups = self.data.groups if groups is None else groups
        data = replace(self.data, groups=groups)
        rotated, n = self._rotate(data.targets), len(data.Y)
        predictions = torch.zeros_like(rotated)
        for part in self.parts:
            blocks = data.blocks(part.rows)
            residuals = part.inverse.residuals(self._dual[part.index], blocks)
            predictions[part.index] = rotated[part.index] - residuals
            unseen = torch.ones(n, dtype=torch.bool, device=rotated.device)
            unseen[part.rows] = False
            if bool(unseen.any()):
                rows = unseen.nonzero()[:, 0]
                fitted = self._unseen(part, rows, None if blocks is None else groups, residuals)
                predictions[rows[:, None], part.outputs[None, :]] = fitted
        return self._rotate_back(predictions)

    def _unseen(self, part: ScalarPart, rows: Tensor, groups: Tensor | None, residuals: Tensor) -> Tensor:
        """Predictions for samples without these targets, by the fit without the other samples of their groups."""
        X, dual = take(self.data.X, rows), self._dual[:, part.outputs]
        fitted = self.form.product(part.weights, X, self.data.X, dual)
        if self._constant is not None:
            fitted = fitted + self._constant[part.outputs]
        if groups is None:
            return fitted
        inverse = part.inverse
        cross = self.form.gram(part.weights, X, self.data.X)[:, part.rows] * inverse.root
        together = (groups[part.rows][:, None] == groups[rows]).to(cross)
        constants = inverse.constants
        rooted = cross if constants is None else constants.centred_cross(cross)
        change = inverse.rooted(inverse._solved(rooted.mT))
        if constants is not None:
            change = change + inverse.root[:, None] ** 2 / constants.norm[0] ** 2
        return fitted - (change * together).mT @ residuals

    def left_out_variance(self) -> Tensor:
        """1 / P_ii in rotated coordinates; where a target is missing, the variance is not defined (NaN)."""
        variance = self.form.weights.new_full(self.data.Y.shape, torch.nan)
        for part in self.parts:
            variance[part.index] = 1.0 / part.inverse.diagonal[:, None]
        return self._variances_back(variance)

    def leverage(self) -> Tensor:
        """1 − noise_i P_ii in rotated coordinates; NaN where a target is missing."""
        leverage = self.form.weights.new_full(self.data.Y.shape, torch.nan)
        for part in self.parts:
            noise = self.shift / part.inverse.root**2
            leverage[part.index] = (1.0 - noise * part.inverse.diagonal)[:, None]
        return self._variances_back(leverage)

    def variance(self, X: Data) -> Tensor:
        """Scalar variances, rotated back; the cross-Gram matrix of a kernel that all parts share is computed once."""
        p = self.data.Y.shape[1]
        variances = self.form.weights.new_zeros(count(X), p)
        for weights, outputs in self.form.groups():  # outputs that nobody observed keep their prior
            variances[:, outputs] = self.form.diag(weights, X)[:, None]
        shared = self.form.kernels[0]._gram(X, self.data.X) if len(self.form.kernels) == 1 else None
        for part in self.parts:
            cross = (
                self.form.gram(part.weights, X, self.data.X) if shared is None else shared * part.weights[0]
            )
            cross = cross[:, part.rows] if len(part.rows) < cross.shape[1] else cross
            diagonal = self.form.diag(part.weights, X)
            inverse, constants = part.inverse, part.inverse.constants
            cross = cross if is_uniform(inverse.root) else cross * inverse.root
            if constants is not None:
                diagonal = constants.centred_diagonal(diagonal, cross, self.shift)
                cross = constants.centred_cross(cross)
            variances[:, part.outputs] = (diagonal - inverse.explained(cross)).clamp(min=0.0)[:, None]
        return self._variances_back(variances)


# -- coupled outputs, by the block matrix -----------------------------------------------------------------------------
class CoupledOutputs(System):
    """The block matrix of the observed entries, factored: a scalar system whose entries are pairs (sample, output)."""

    def __init__(self, data: RidgeData, alpha: float):
        n, p = data.Y.shape
        self.data = data
        self.shift = data.Y.new_tensor(n * alpha)
        mask = torch.ones(n, p, dtype=torch.bool) if data.mask is None else data.mask
        self.entries = mask.reshape(-1).nonzero()[:, 0]
        root = data.root.repeat_interleave(p)[self.entries]
        constants: list[Constants] = []

        def build() -> Tensor:
            matrix = weighted(block_gram(data.kernel, data.X, p, self.entries), root)
            if data.intercept:
                constants[:] = [constants_of(root, matrix, outputs=self.entries % p, count=p)]
                matrix = constants[0].centred(matrix)
            matrix.diagonal().add_(self.shift)
            return matrix

        factor = factorize(build, name="The block Gram matrix plus n·alpha")
        self.inverse = GramInverse(factor, self.shift, root, constants[0] if constants else None)

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
        """C (n, p), zero where a target is missing."""
        return self._unflat(self._dual)

    def intercept(self) -> Tensor | None:
        """The constant b (p,), or None where there is none."""
        found = self.inverse.intercepts(self._flat(self.data.Y), self._dual)
        return None if found is None else found[:, 0]

    def _fitted(self) -> Tensor:
        b = self.intercept()
        values = self.data.kernel.apply(self.data.X, self.data.X, self.coefficients())
        return values if b is None else values + b

    def residual(self) -> float:
        """The norm of Y − KC − 1bᵀ − noise·C at the known targets, over that of Y."""
        noise = (self.shift / self.data.weights)[:, None]
        missed = self._flat(self.data.targets - self._fitted() - noise * self.coefficients())
        size = self._flat(self.data.targets).norm().clamp(min=torch.finfo(missed.dtype).tiny)
        return float(missed.norm() / size)

    def _groups(self, groups: Tensor | None) -> Tensor:
        n, p = self.data.Y.shape
        groups = torch.arange(n) if groups is None else groups
        return groups.repeat_interleave(p)

    def left_out(self, groups: Tensor | None = None) -> Tensor:
        """f minus what the residuals of a sample's group change in it, for known and missing targets alike."""
        n, p = self.data.Y.shape
        own = self._groups(self.data.groups if groups is None else groups)
        blocks = group_members(own[self.entries])
        if blocks:
            refuse_one_group(blocks, len(self.entries), self.data.intercept)
        residuals = self.inverse.residuals(self._dual, blocks)
        predictions = self.data.targets - self._unflat(residuals)
        unseen = torch.ones(n * p, dtype=torch.bool)
        unseen[self.entries] = False
        if not bool(unseen.any()):
            return predictions
        places = unseen.nonzero()[:, 0]
        inverse, constants = self.inverse, self.inverse.constants
        cross = self.data.kernel.dense(self.data.X, None, p)[places][:, self.entries] * inverse.root
        rooted = cross if constants is None else constants.centred_cross(cross, places % p)
        change = inverse.rooted(inverse._solved(rooted.mT))
        if constants is not None:
            weights = constants.basis[:, places % p] / constants.norm[places % p]
            change = change + inverse.rooted(weights)
        together = (own[self.entries][:, None] == own[places]).to(cross)
        fitted = self._fitted().reshape(-1)[places] - ((change * together).mT @ residuals)[:, 0]
        flat = predictions.reshape(-1).clone()
        flat[places] = fitted
        return flat.reshape(n, p)

    def left_out_variance(self) -> Tensor:
        """The diagonals of the inverted blocks of samples; NaN where a target is missing."""
        found = torch.empty_like(self._dual)[:, 0]
        for index in group_members(self._groups(None)[self.entries]):
            found[index] = torch.linalg.inv(self.inverse.blocks(index)).diagonal(dim1=-2, dim2=-1)
        return self._unflat(found, torch.nan)

    def leverage(self) -> Tensor:
        """1 − noise_i P_ii; NaN where a target is missing."""
        return self._unflat(1.0 - self.shift / self.inverse.root**2 * self.inverse.diagonal, torch.nan)

    def variance(self, X: Data) -> Tensor:
        """From one triangular solve with the cross blocks."""
        p = self.data.Y.shape[1]
        cross = self.data.kernel.dense(X, self.data.X, p)[:, self.entries] * self.inverse.root
        diagonal, constants = self.data.kernel.diag(X, p).reshape(-1), self.inverse.constants
        if constants is not None:
            outputs = torch.arange(len(diagonal)) % p
            diagonal = constants.centred_diagonal(diagonal, cross, self.shift, outputs)
            cross = constants.centred_cross(cross, outputs)
        return (diagonal - self.inverse.explained(cross)).clamp(min=0.0).reshape(-1, p)


def block_gram(kernel: OperatorKernel, X: Data, p: int, entries: Tensor | None = None) -> Tensor:
    """The block matrix of the entries, in new memory."""
    block = kernel.dense(X, None, p)
    return block if entries is None or len(entries) == len(block) else block[entries[:, None], entries]


# -- coupled outputs, by the kernel's action --------------------------------------------------------------------------
class IterativeOutputs(System):
    """Preconditioned conjugate gradients on the implicit operator: nothing of size n·p squared exists."""

    def __init__(self, data: RidgeData, alpha: float):
        self.data = data
        self.noise = len(data.Y) * alpha / data.weights
        self.mask = torch.ones_like(data.Y) if data.mask is None else data.mask.to(data.Y.dtype)
        self.precondition = _preconditioner(data.kernel, data.X, self.noise, self.mask)

    def _matvec(self, coefficients: Tensor) -> Tensor:
        masked = self.mask * coefficients
        blocks = row_blocks(len(masked), masked.numel() * masked.element_size())
        X, kernel = self.data.X, self.data.kernel
        image = torch.cat([kernel.apply(X[rows], X, masked) for rows in blocks])
        return self.mask * image + self.noise[:, None] * coefficients

    def _solve(self, right: Tensor) -> Tensor:
        """W⁻¹ Y by conjugate gradients; entries that are not observed decouple and stay 0."""
        observed = torch.where(self.mask > 0, right, 0.0)
        name = "the operator-valued ridge system"
        return conjugate_gradient(self._matvec, observed, precondition=self.precondition, name=name)

    @cached_property
    def _ones(self) -> tuple[Tensor, Tensor]:
        """W⁻¹(1 ⊗ e_j) (p, n, p) for every output, and the matrix (1 ⊗ e_i)ᵀW⁻¹(1 ⊗ e_j)."""
        solved = torch.stack(
            [self._solve(self.mask * unit) for unit in torch.eye(self.mask.shape[1]).to(self.mask)]
        )
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
        """C (n, p), zero where a target is missing."""
        return self._solution[0]

    def intercept(self) -> Tensor | None:
        """The constant b (p,), or None where there is none."""
        return self._solution[1]

    def residual(self) -> float:
        """The norm of Y − KC − 1bᵀ − noise·C at the known targets, over that of Y."""
        dual, b = self._solution
        missed = self.data.targets - self._matvec(dual) - (0.0 if b is None else self.mask * b)
        return float(missed.norm() / self.data.targets.norm().clamp(min=torch.finfo(missed.dtype).tiny))

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


def _preconditioner(
    kernel: OperatorKernel, X: Data, noise: Tensor, mask: Tensor
) -> Callable[[Tensor], Tensor]:
    """The nearest Kronecker product for sums of them, and a pivoted Cholesky factor for any other kernel."""
    shift = noise.mean()
    n, p = mask.shape
    terms = _terms(kernel)
    products = [term for term in terms if isinstance(term, Decomposable)]
    if len(products) == len(terms):
        pairs = [(term.kernel._gram(X, None), term._operator.as_matrix(p, noise)) for term in products]
        gram, operator = nearest_kronecker(pairs)
        left, right = eigh(gram), clipped_spectrum(operator)
        return lambda residual: (
            mask * kronecker_solve(left, right, residual, shift) + (1 - mask) * residual / shift
        )

    flat_mask = mask.reshape(-1)

    def column(index: int) -> Tensor:
        sample, output = divmod(index, p)
        block = kernel.dense(X, X[sample : sample + 1], p)
        return flat_mask * block[:, output] * flat_mask[index]

    diagonal = kernel.diag(X, p) * mask
    rank = min(PRECONDITIONER_RANK, n * p)
    factor, _ = pivoted_cholesky(column, diagonal=diagonal.reshape(-1), max_rank=rank)
    inverse = woodbury(factor, shift.item())
    return lambda residual: inverse.solve(residual.reshape(-1, 1)).reshape(residual.shape)


def _terms(kernel: OperatorKernel) -> list[OperatorKernel]:
    """The terms of a sum, and of the sums in it."""
    return [t for term in kernel.terms for t in _terms(term)] if isinstance(kernel, OperatorSum) else [kernel]


# -- choices ----------------------------------------------------------------------------------------------------------
def factor_system(
    data: RidgeData,
    alpha: float,
    *,
    known: tuple[Eigenpairs, Constants | None] | None = None,
    solver: Solver = "auto",
) -> System:
    """Factor K + diag(n·alpha/weights) by the cheapest exact route that the kernel and the missing entries allow.

    Parameters
    ----------
    data : RidgeData
        The samples with their targets, and the kernel.
    alpha : float
        The weight of ‖f‖² beside the mean loss.
    known : (Eigenpairs, Constants or None), optional
        What ``gram_spectrum`` gives of the only scalar kernel, if it is known already.
    solver : {"auto", "dense", "iterative"}
        ``"auto"`` uses structure where there is some, the block matrix up to ``rows.DENSE_LIMIT``, and iterates above.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Linear
    >>> from representer.operators import Decomposable
    >>> from representer.systems import RidgeData, factor_system
    >>> X, Y = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [2.0]])
    >>> system = factor_system(RidgeData(Decomposable(Linear()), X, Y, torch.ones(2)), alpha=2.5)
    >>> (X.T @ system.coefficients()).tolist()  # the slope of ridge regression, xᵀy / (xᵀx + 2·2.5)
    [[0.5]]
    """
    if solver not in get_args(Solver):
        raise ValueError(f"solver must be one of {get_args(Solver)}; got {solver!r}.")
    p = data.Y.shape[1]
    expected = data.kernel.n_outputs(data.X)
    if expected not in (None, p):
        raise ValueError(
            f"{data.kernel!r} has {expected} outputs on these inputs, but there are {p} targets."
        )
    if solver == "auto" and data.form is not None:
        return SeparateOutputs(data, alpha, known)
    dense = solver == "dense" or (solver == "auto" and data.Y.numel() <= limits.DENSE_LIMIT)
    return (CoupledOutputs if dense else IterativeOutputs)(data, alpha)


def criterion_path(
    data: RidgeData,
    alphas: Tensor,
    criterion: Criterion,
    known: tuple[Eigenpairs, Constants | None] | None = None,
) -> tuple[Tensor, tuple[Eigenpairs, Constants | None] | None]:
    """The criterion for many values of alpha from one eigendecomposition (for each part of the outputs).

    Also returns the spectrum of the weighted Gram matrix where there is just one, for the final fit.
    """
    n = len(data.Y)
    shifts = n * alphas
    if data.form is None:
        return _coupled_path(data, shifts, criterion) / n, None
    form = data.form
    targets = data.root[:, None] * data.targets
    targets = targets if form.rotation is None else targets @ form.rotation
    single = len(form.kernels) == 1
    if not single or data.mask is not None:
        known = None
    elif known is None:
        known = gram_spectrum(form.kernels[0], data.X, data.root, data.gram, intercept=data.intercept)
    errors = torch.zeros_like(alphas)
    for weights, outputs, rows in data.patterns:
        own, scale = (
            (_part_spectrum(data, weights, rows), weights.new_ones(()))
            if known is None
            else (known, weights[0])
        )
        spectrum = Eigenpairs(own[0].vectors, scale * own[0].values)
        constants = None if own[1] is None else own[1].scaled(scale)
        blocks = data.blocks(rows) if criterion == "loo" else None
        part = targets[rows[:, None], outputs]
        errors += spectral_path(spectrum, part, shifts, criterion, constants=constants, blocks=blocks)
    return errors / n, known


def _part_spectrum(data: RidgeData, weights: Tensor, rows: Tensor) -> tuple[Eigenpairs, Constants | None]:
    """The spectrum of the weighted Gram matrix of some rows, for outputs with these weights."""
    assert data.form is not None
    form, root = data.form, data.root[rows]
    if len(form.kernels) == 1 and has_few_features(form.kernels[0], data.X):
        thin, constants = gram_spectrum(form.kernels[0], take(data.X, rows), root, intercept=data.intercept)
        scaled = None if constants is None else constants.scaled(weights[0])
        return Eigenpairs(thin.vectors, weights[0] * thin.values), scaled
    matrix = form.gram(weights, data.X) if data.gram is None else data.gram * weights[0]
    return spectrum_beside_constants(matrix[rows[:, None], rows], root, intercept=data.intercept)


def _coupled_path(data: RidgeData, shifts: Tensor, criterion: Criterion) -> Tensor:
    n, p = data.Y.shape
    refuse_missing(data.mask, criterion)
    mask = torch.ones(n, p, dtype=torch.bool) if data.mask is None else data.mask
    entries = mask.reshape(-1).nonzero()[:, 0]
    root = data.root.repeat_interleave(p)[entries]
    matrix = weighted(block_gram(data.kernel, data.X, p, entries), root)
    constants = None
    if data.intercept:
        constants = constants_of(root, matrix, outputs=entries % p, count=p)
        matrix = constants.centred(matrix)
    spectrum = eigh(matrix, name="The block Gram matrix", overwrite=True)
    own = torch.arange(n) if data.groups is None else data.groups
    blocks = group_members(own.repeat_interleave(p)[entries])
    refuse_one_group(blocks, len(entries), data.intercept)
    targets = root[:, None] * data.Y.reshape(-1)[entries, None]
    return spectral_path(spectrum, targets, shifts, criterion, constants=constants, blocks=blocks)


def refuse_missing(mask: Tensor | None, criterion: Criterion) -> None:
    """Refuse generalised cross-validation of coupled outputs where targets are missing."""
    if mask is not None and criterion == "gcv":
        raise ValueError("criterion='gcv' needs all targets when outputs are coupled; use criterion='loo'.")


def require_memory(data: RidgeData, *, learned: bool, searched: bool, undecided: bool) -> None:
    """Refuse an exact fit that does not fit, before anything of size n × n exists.

    ``learned`` says whether hyperparameters of the kernel are learned, ``searched`` whether alpha is, and ``undecided``
    whether the targets are yet to decide the operators, which then need not commute.
    """
    n, p = data.Y.shape
    form = None if undecided else data.form
    # Peaks that the memory benchmark measures, in matrices: a gradient's intermediates; the blocks of a kernel without
    # structure; eigenvectors and their workspace; a factor alone. Outputs with a Gram matrix of their own keep one.
    if form is None:
        elements = (10 if learned else 5) * min(n * p, limits.DENSE_LIMIT) ** 2
    elif not learned and len(form.kernels) == 1 and has_few_features(form.kernels[0], data.X):
        elements = 4 * data.X.numel()
    else:
        spectral = searched or form.weights.unique(dim=1).shape[1] > 1
        shared = len(form.kernels) == 1 and data.mask is None
        factors = 1 if shared else len(data.patterns)
        elements = ((10 if learned else 3 if spectral else 1) + factors - 1) * n**2
    elements += 3 * n**2 if data.kernel.domain == "gram" else 0
    require(
        elements * data.Y.element_size(),
        what=f"An exact fit to {n} samples",
        advice="Use approximation=Nystroem(m), fewer samples or dtype='float32'.",
    )
