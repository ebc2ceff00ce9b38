"""Cross-validation errors of the ridge system of an operator-valued kernel, differentiable in all that shapes it.

Leaving sample i out changes its prediction by [Q_ii]⁻¹ c_i, Q = (K + n·alpha·I)⁻¹, where Q_ii is the p × p block of the
sample. Generalised cross-validation puts the mean block in the place of each. In the coordinates of a diagonal form the
blocks are diagonal and the error is a sum of scalar ones; otherwise the gradient is written out once for K ⊗ A, in the
eigenvectors of both, and once for a block matrix without structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from representer.data import take
from representer.linalg import Spectrum, eigh, factorize, shifted
from representer.objectives.base import symmetric_part
from representer.objectives.selection import GeneralizedCrossValidation, LeaveOneOut
from representer.operators.base import Decomposable, DiagonalForm, OperatorKernel
from representer.operators.outputs import clipped_spectrum
from representer.systems.diagonal import gram_spectrum, has_few_features, observation_patterns

Criterion = Literal["loo", "gcv"]

SCALAR = {"loo": LeaveOneOut, "gcv": GeneralizedCrossValidation}


class CrossValidation:
    """The mean squared leave-one-out (or generalised cross-validation) error of operator-valued ridge regression.

    Parameters
    ----------
    X : prepared data
        n inputs.
    Y : tensor (n, p)
        Targets; what stands in unobserved entries is not read.
    weights : tensor (n,), optional
        Sample weights of mean 1: the error is the weighted mean.
    observed : bool tensor (n, p), optional
        Which targets are known.
    criterion : {"loo", "gcv"}

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Constant
    >>> from representer.objectives.operator_valued import CrossValidation
    >>> from representer.operators import Decomposable
    >>> X, Y = torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])
    >>> error = CrossValidation(X, Y)  # without i, a constant fit shrinks the other target to (2/3) y_j
    >>> round(error(Decomposable(Constant(2.0)), alpha=torch.tensor(0.5)).item(), 4)
    3.2222
    """

    def __init__(
        self,
        X: Any,
        Y: Tensor,
        *,
        weights: Tensor | None = None,
        observed: Tensor | None = None,
        criterion: Criterion = "loo",
    ):
        self.X = X
        self.root = Y.new_ones(len(Y)) if weights is None else weights.sqrt()
        self.observed = None if observed is None or bool(observed.all()) else observed
        self.Y = self.root[:, None] * (Y if self.observed is None else torch.where(self.observed, Y, 0.0))
        self.criterion = criterion

    def __call__(self, kernel: OperatorKernel, alpha: Tensor, *, spectrum: Spectrum | None = None) -> Tensor:
        """The error (a scalar), with gradients in the kernel's hyperparameters and in alpha.

        A ``spectrum`` of the weighted Gram matrix, where only the output operator is learned, saves its computation.
        """
        if isinstance(kernel, Decomposable) and not kernel._operator.diagonal and self.observed is None:
            operator = kernel._operator.as_matrix(self.Y.shape[1], self.Y)
            gram = self._weighted(kernel.kernel._gram(self.X, None)) if spectrum is None else None
            return _Kronecker.apply(gram, operator, alpha, self.Y, self.criterion, spectrum)
        form = kernel.diagonal_form(self.Y.shape[1], self.Y)
        if form is None or (
            form.rotation is not None and (self.observed is not None or form.weights.requires_grad)
        ):
            return self._block(kernel, alpha)
        return self._separate(form, alpha)

    def _weighted(self, gram: Tensor, rows: Tensor | None = None) -> Tensor:
        root = self.root if rows is None else self.root[rows]
        return gram if bool((root == 1.0).all()) else gram * root[:, None] * root

    def _separate(self, form: DiagonalForm, alpha: Tensor) -> Tensor:
        """A sum of scalar errors, one for each group of outputs and pattern of observed rows."""
        n = len(self.Y)
        rotated = self.Y if form.rotation is None else self.Y @ form.rotation
        base = form.kernels[0]._gram(self.X, None) if len(form.kernels) == 1 else None
        total = self.Y.new_zeros(())
        for weights, outputs, rows in self._parts(form):
            gram = form.gram(weights, self.X) if base is None else base * weights[0]
            gram = gram if len(rows) == n else gram[rows[:, None], rows]
            share = len(rows) / n
            objective = SCALAR[self.criterion](rotated[rows[:, None], outputs], alpha=1.0)
            total = total + share * objective(self._weighted(gram, rows), alpha / share)
        return total

    def _parts(self, form: DiagonalForm) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Weights, outputs and rows of what makes a scalar error; outputs that are never observed make none."""
        for weights, members in form.groups():
            for outputs, rows in observation_patterns(self.observed, members, len(self.Y)):
                if len(rows):
                    yield weights, outputs, rows

    def _block(self, kernel: OperatorKernel, alpha: Tensor) -> Tensor:
        block = kernel.dense(self.X, None, self.Y.shape[1])
        scale = (self.root[:, None] * self._mask()).reshape(-1)
        return _Block.apply(block * scale[:, None] * scale, alpha, self.Y, self.criterion)

    def _mask(self) -> Tensor:
        if self.observed is None:
            return torch.ones_like(self.Y)
        if self.criterion == "gcv":
            raise ValueError(
                "criterion='gcv' needs all targets when outputs are coupled; use criterion='loo'."
            )
        return self.observed.to(self.Y.dtype)

    def path(
        self,
        kernel: OperatorKernel,
        alphas: Tensor,
        *,
        gram: Tensor | None = None,
        spectrum: Spectrum | None = None,
    ) -> tuple[Tensor, Spectrum | None]:
        """The errors for many values of alpha from one eigendecomposition (for each group of outputs).

        Also returns the spectrum of the weighted Gram matrix where there is just one, for the final fit.
        """
        n, p = self.Y.shape
        form = kernel.diagonal_form(p, self.Y)
        if form is None or (form.rotation is not None and self.observed is not None):
            return self._block_path(kernel, alphas), None
        rotated = self.Y if form.rotation is None else self.Y @ form.rotation
        if len(form.kernels) > 1 or self.observed is not None:
            spectrum = None
        elif spectrum is None:
            spectrum = gram_spectrum(form.kernels[0], self.X, self.root, gram)
        errors = torch.zeros_like(alphas)
        for weights, outputs, rows in self._parts(form):
            if spectrum is None:
                scaled = self._part_spectrum(form, weights, rows, gram)
            else:
                scaled = Spectrum(spectrum.vectors, weights[0] * spectrum.values)
            targets = rotated[rows[:, None], outputs]
            errors += _scalar_path(scaled, targets, n * alphas, self.criterion) / n
        return errors, spectrum

    def _part_spectrum(
        self, form: DiagonalForm, weights: Tensor, rows: Tensor, gram: Tensor | None
    ) -> Spectrum:
        """That of the weighted Gram matrix of some rows, for outputs with these weights."""
        if len(form.kernels) == 1 and has_few_features(form.kernels[0], self.X):
            thin = gram_spectrum(form.kernels[0], take(self.X, rows), self.root[rows])
            return Spectrum(thin.vectors, weights[0] * thin.values)
        matrix = form.gram(weights, self.X) if gram is None else gram * weights[0]
        matrix = self._weighted(matrix[rows[:, None], rows], rows)
        return eigh(matrix, name="The Gram matrix", overwrite=True)

    def _block_path(self, kernel: OperatorKernel, alphas: Tensor) -> Tensor:
        n, p = self.Y.shape
        scale = (self.root[:, None] * self._mask()).reshape(-1)
        spectrum = eigh(kernel.dense(self.X, None, p) * scale[:, None] * scale, name="The block Gram matrix")
        U = spectrum.vectors.reshape(n, p, -1)
        rotated = spectrum.vectors.mT @ (self._mask() * self.Y).reshape(-1)
        filters = 1.0 / (spectrum.values[:, None] + n * alphas)
        blocks = torch.stack(
            [torch.stack([(U[:, a] * U[:, b]) @ filters for b in range(p)], 1) for a in range(p)], 1
        )
        c = (spectrum.vectors @ (filters * rotated[:, None])).reshape(n, p, -1)
        if self.criterion == "gcv":
            blocks = blocks.mean(0, keepdim=True).expand_as(blocks)
        residuals = torch.linalg.solve(blocks.permute(3, 0, 1, 2), c.permute(2, 0, 1))
        return (residuals**2).sum((1, 2)) / n


def smallest_alpha(kernel: OperatorKernel, X: Any, Y: Tensor) -> Tensor:
    """Below this, n·alpha leaves fewer than a third of the digits of a solution, and the criterion is rounding.

    The trace of the Gram matrix bounds its largest eigenvalue; a condition number of eps^(−2/3) is allowed.
    """
    with torch.no_grad():
        traces = kernel.diag(X, Y.shape[1]).sum(0)
    info = torch.finfo(Y.dtype)
    return (traces.max() * info.eps ** (2 / 3) / len(Y)).clamp(min=info.tiny ** (1 / 2))


def alpha_grid(smallest: Tensor, size: int = 30) -> Tensor:
    """Values of alpha, evenly spaced in logarithm, from ``smallest`` to where it drowns the data."""
    largest = smallest * torch.finfo(smallest.dtype).eps ** (-2 / 3) * 10.0
    return log_spaced(smallest, largest, size)


def log_spaced(low: Tensor, high: Tensor, size: int) -> Tensor:
    """Numbers evenly spaced in logarithm, where the ends live."""
    return torch.logspace(low.log10().item(), high.log10().item(), size, dtype=low.dtype, device=low.device)


def _scalar_path(spectrum: Spectrum, Y: Tensor, shifts: Tensor, criterion: Criterion) -> Tensor:
    """Σ_i ‖c_i / Q_ii‖² for each shift: two products for all of them and each output."""
    diagonals = spectrum.inverse_diagonal(shifts)
    if criterion == "gcv":
        diagonals = diagonals.mean(1, keepdim=True)
    rotated = spectrum.vectors.mT @ Y
    outside = Y - spectrum.vectors @ rotated
    errors = torch.zeros_like(shifts)
    for j in range(Y.shape[1]):
        inside = spectrum.vectors @ (rotated[:, j, None] / (spectrum.values[:, None] + shifts))
        c = inside + outside[:, j, None] / shifts
        errors += ((c.mT / diagonals) ** 2).sum(1)
    return errors


class _Kronecker(torch.autograd.Function):
    """The error of K ⊗ A + n·alpha·I with closed-form gradients in K, A and alpha.

    All in the eigenvectors of K = U diag(e) Uᵀ and A = V diag(d) Vᵀ, where Q is diagonal with eigenvalues g: one
    eigendecomposition of each, O(n²p²) for the gradient in A, and a few products for the gradient in K.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gram: Tensor | None,
        operator: Tensor,
        alpha: Tensor,
        Y: Tensor,
        criterion: Criterion,
        spectrum: Spectrum | None,
    ) -> Tensor:
        n = len(Y)
        left = (
            eigh(gram.detach(), name="The Gram matrix") if spectrum is None and gram is not None else spectrum
        )
        assert left is not None  # gram or spectrum is given
        right = clipped_spectrum(operator.detach())
        (U, e), (V, d) = (left.vectors, left.values), (right.vectors, right.values)
        g = 1.0 / (e[:, None] * d + n * alpha.detach())
        Z = (U.mT @ (Y @ V)) * g
        C, squares = U @ Z, U**2
        S = squares @ g
        if criterion == "gcv":
            S = S.mean(0, keepdim=True).expand_as(S)
        R = C / S
        q = (2.0 / n) * R / S
        t = q * R if criterion == "loo" else (q * R).mean(0, keepdim=True).expand_as(R)
        # The differential is ⟨q, dC⟩ − Σ_i q_iᵀ dQ_ii r_i with dC = −Q dW C and dQ = −Q dW Q.
        Qq = (U.mT @ q) * g
        in_shift = ((squares.mT @ t) * g**2).sum() - (Qq * Z).sum()
        in_K = in_A = None
        if ctx.needs_input_grad[1]:
            M = _pair_moments(q, R, squares, criterion)
            in_A = (M * (e[:, None, None] * g[:, :, None] * g[:, None, :])).sum(0) - Qq.mT @ (e[:, None] * Z)
            in_A = symmetric_part(V @ in_A @ V.mT)
        if ctx.needs_input_grad[0]:
            H = _weighted_moments(U, t, e, d, g) - (Qq * d) @ Z.mT
            in_K = symmetric_part(U @ H @ U.mT)
        ctx.save_for_backward(in_K, in_A, n * in_shift)
        return (R**2).sum() / n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = weights
        gradients = [None if g is None else weight * g for g in ctx.saved_tensors]
        return *gradients, None, None, None


def _weighted_moments(U: Tensor, t: Tensor, e: Tensor, d: Tensor, g: Tensor) -> Tensor:
    """H_ab = Σ_i U_ia U_ib Σ_k t_ik d_k g_ak g_bk, (n, n), in O(n²p): the sum over k is a divided difference.

    g_ak = 1/(e_a d_k + s) gives d_k g_ak g_bk = (g_ak − g_bk) / (e_b − e_a). Where e_a and e_b are so close that the
    difference loses digits, the mean of the derivatives at both ends has as many.
    """
    scale = 1.0 / (d * g).max(-1).values  # on which g varies
    gap = e - e[:, None]
    close = gap.abs() <= torch.finfo(e.dtype).eps ** (1.0 / 3.0) * torch.minimum(scale, scale[:, None])
    ends = (U * (t @ g.mT)).mT @ U
    slopes = (U * (t @ (d * g**2).mT)).mT @ U
    divided = (ends - ends.mT) / torch.where(close, 1.0, gap)
    return torch.where(close, 0.5 * (slopes + slopes.mT), divided)


def _pair_moments(q: Tensor, R: Tensor, squares: Tensor, criterion: Criterion) -> Tensor:
    """Σ_i U_ia² q_ik r_il, (n, p, p); for generalised cross-validation the mean over i in the place of each."""
    n, p = q.shape
    if criterion == "gcv":
        return (q.mT @ R / n).expand(n, p, p)
    return (squares.mT @ (q[:, :, None] * R[:, None, :]).reshape(n, -1)).reshape(n, p, p)


class _Block(torch.autograd.Function):
    """The error of an (n·p) × (n·p) matrix M + n·alpha·I; rows of M that are not observed are zero."""

    @staticmethod
    def forward(ctx: Any, block: Tensor, alpha: Tensor, Y: Tensor, criterion: Criterion) -> Tensor:
        n, p = Y.shape
        W = partial(shifted, block.detach(), n * alpha.detach())
        Q = factorize(W, name="The block Gram matrix plus n·alpha").inverse()
        c = (Q @ Y.reshape(-1)).reshape(n, p)
        S = Q.reshape(n, p, n, p).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        if criterion == "gcv":
            S = S.mean(0, keepdim=True).expand(n, p, p)
        R = torch.linalg.solve(S, c)
        q = (2.0 / n) * torch.linalg.solve(S, R)
        outer = q[:, :, None] * R[:, None, :]
        if criterion == "gcv":
            outer = outer.mean(0, keepdim=True).expand(n, p, p)
        second = Q @ (outer @ Q.reshape(n, p, n * p)).reshape(n * p, n * p)
        first = torch.outer(Q @ q.reshape(-1), c.reshape(-1))
        in_block = symmetric_part(second - first)
        ctx.save_for_backward(in_block)
        ctx.n = n
        return (R**2).sum() / n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = weights
        (in_block,) = ctx.saved_tensors
        return weight * in_block, weight * ctx.n * in_block.diagonal().sum(), None, None
