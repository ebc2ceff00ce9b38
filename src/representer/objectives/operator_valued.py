"""Cross-validation errors and the restricted likelihood of the ridge system of an operator-valued kernel,
differentiable in all that shapes it.

Leaving the samples S out changes their predictions by [P_SS]⁻¹ C_S, P = (K + n·alpha·I)⁻¹ or its limit beside
constants at no cost, where P_SS is the block of the samples and their outputs. Generalised cross-validation puts the
mean block in the place of each. In the coordinates of a diagonal form the error is a sum of scalar ones; otherwise the
gradient is written out once for K ⊗ A, in the eigenvectors of both, and once for a block matrix without structure.

The restricted likelihood is that of Gaussian processes whose outputs come apart, each with an amplitude of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from representer.linalg import Eigenpairs, eigh, factorize, shifted, solve_blocks, symmetric_products
from representer.objectives.base import symmetric_part
from representer.operators import Decomposable, DiagonalForm, clipped_spectrum
from representer.systems import Criterion
from representer.systems.exact import (
    Constants,
    Known,
    RidgeData,
    beside_constants,
    constants_of,
    refuse_missing,
    spectral_blocks,
    weighted,
)


def cross_validation(
    data: RidgeData, alpha: Tensor, criterion: Criterion = "loo", *, known: Known | None = None
) -> Tensor:
    """The mean squared leave-one-out (or generalised cross-validation) error of operator-valued ridge regression.

    Parameters
    ----------
    data : RidgeData
        The samples, and a kernel with numbers or differentiable tensors for all hyperparameters.
    alpha : tensor ()
    criterion : {"loo", "gcv"}
    known : (Eigenpairs, Constants or None), optional
        What ``gram_spectrum`` gives of the scalar kernel: it saves time where only the output operator is learned.

    Returns
    -------
    tensor ()
        The error, weighted as the samples are, with gradients in the kernel's hyperparameters and in alpha.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Constant
    >>> from representer.objectives.operator_valued import cross_validation
    >>> from representer.operators import Decomposable
    >>> from representer.systems import RidgeData
    >>> X, Y = torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])
    >>> data = RidgeData(Decomposable(Constant(2.0)), X, Y, torch.ones(2))
    >>> error = cross_validation(data, torch.tensor(0.5))  # a constant fit shrinks the other target to (2/3) y_j
    >>> round(error.item(), 4)
    3.2222
    """
    kernel, form = data.kernel, data.form
    if (
        isinstance(kernel, Decomposable)
        and not kernel._operator.diagonal
        and data.mask is None
        and data.weights.ndim == 1
    ):
        return _of_product(data, kernel, alpha, criterion, known)
    if form is None or (form.rotation is not None and form.weights.requires_grad):
        return _of_blocks(data, alpha, criterion)
    return _of_parts(data, form, alpha, criterion)


def _of_product(
    data: RidgeData, kernel: Decomposable, alpha: Tensor, criterion: Criterion, known: Known | None
) -> Tensor:
    """The error of K ⊗ A, where no target is missing."""
    operator = kernel._operator.as_matrix(data.Y.shape[1], data.Y)
    gram, spectrum = None, None
    if known is None:
        gram, constants = beside_constants(kernel.kernel._gram(data.X, None), data.root, intercept=data.intercept)
    else:
        spectrum, constants = known
    blocks = data.blocks(torch.arange(len(data.Y))) if criterion == "loo" else None
    layout = Layout(len(data.Y), criterion, constants, blocks)
    Y = _projected(data.root[:, None] * data.Y, constants)
    return _Kronecker.apply(gram, operator, alpha, Y, layout, spectrum)


def _of_parts(data: RidgeData, form: DiagonalForm, alpha: Tensor, criterion: Criterion) -> Tensor:
    """A sum of scalar errors, one for each part of the outputs and pattern of observed rows."""
    total = data.targets.new_zeros(())
    for gram, Y, constants, rows in _parts(data, form):
        layout = Layout(len(data.Y), criterion, constants, data.blocks(rows) if criterion == "loo" else None)
        total = total + _Gram.apply(gram, alpha, Y, layout)
    return total


def restricted_likelihood(data: RidgeData, alpha: Tensor) -> Tensor:
    """A mean square in the place of a cross-validation error: L^(−2/m) for the restricted likelihood L of the samples.

    Each output is a Gaussian process with covariance a(K + n·alpha·I) and a flat prior on its constant; L is that of
    what remains beside the constant, m numbers in all, where the amplitude a is the most likely one. Outputs must come
    apart, and samples in groups count as if they stood alone: ``RidgeData.merged`` makes one of equal inputs.

    Parameters
    ----------
    data : RidgeData
        The samples, and a kernel with numbers or differentiable tensors for all hyperparameters.
    alpha : tensor ()

    Returns
    -------
    tensor ()
        With gradients in the kernel's hyperparameters and in alpha.

    Examples
    --------
    >>> import torch
    >>> from representer.kernels import Constant
    >>> from representer.objectives.operator_valued import restricted_likelihood
    >>> from representer.operators import Decomposable
    >>> from representer.systems import RidgeData
    >>> X, Y = torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])
    >>> data = RidgeData(Decomposable(Constant(2.0)), X, Y, torch.ones(2), intercept=True)
    >>> error = restricted_likelihood(data, torch.tensor(0.5))  # the difference of the targets is noise of variance 2a
    >>> round(error.item(), 4)
    2.0
    """
    assert data.form is not None
    total, numbers = data.targets.new_zeros(()), 0
    for gram, Y, constants, _ in _parts(data, data.form):
        layout = Layout(len(data.Y), "loo", constants)
        if layout.remaining(Y) > 0:
            total, numbers = (
                total + _Likelihood.apply(gram, alpha, Y, layout),
                numbers + layout.remaining(Y) * Y.shape[1],
            )
    return (total / max(numbers, 1)).exp()


def _parts(data: RidgeData, form: DiagonalForm) -> Iterator[tuple[Tensor, Tensor, Constants | None, Tensor]]:
    """The rooted Gram matrix of each part of the outputs and pattern of observed rows, its rooted targets less what
    constants say of them, the constants, and the rows."""
    n = len(data.Y)
    targets = data.root[:, None] * data.targets
    rotated = targets if form.rotation is None else targets @ form.rotation
    base = form.kernels[0]._gram(data.X, None) if len(form.kernels) == 1 else None
    for weights, outputs, rows in data.patterns:
        if base is None:
            gram = form.gram(weights, data.X)
        else:  # a weight of one, as the identity has it, costs no product; without a gradient there is a copy
            one = base.requires_grad and not weights.requires_grad and float(weights[0]) == 1.0
            gram = base if one else base * weights[0]
        root = data.root[rows]
        gram = weighted(gram if len(rows) == n else gram[rows[:, None], rows], root)
        constants = constants_of(root, gram.detach()) if data.intercept else None
        yield gram, _projected(rotated[rows[:, None], outputs], constants), constants, rows


def _of_blocks(data: RidgeData, alpha: Tensor, criterion: Criterion) -> Tensor:
    """The error of a block matrix without structure."""
    refuse_missing(data.mask, criterion)
    gram = data.rooted_blocks()
    constants = data.block_constants(gram.detach())
    targets = data.entry_root[:, None] * data.Y.reshape(-1)[data.entries, None]
    layout = Layout(len(data.Y), criterion, constants, data.entry_blocks())
    return _Gram.apply(gram, alpha, _projected(targets, constants), layout)


def _projected(Y: Tensor, constants: Constants | None) -> Tensor:
    return Y if constants is None else constants.project(Y)


@dataclass(frozen=True)
class Layout:
    """How errors are put together: over n samples, beside constants, of blocks that are left out together."""

    n: int
    criterion: Criterion
    constants: Constants | None = None
    blocks: list[Tensor] | None = None

    def remaining(self, Y: Tensor) -> int:
        """How many numbers an output has beside its constant."""
        return len(Y) - int(self.constants is not None)

    def inverse(self, gram: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """The matrix P beside the constants, and the logarithm of the determinant of its inverse there."""
        constants = self.constants

        def build() -> Tensor:
            matrix = shifted(gram, shift)
            return matrix if constants is None else constants.centred(matrix)

        factor = factorize(build, name="The Gram matrix plus n·alpha")
        P, logdet = factor.inverse(), 2.0 * factor.factor.diagonal().log().sum()
        if constants is None:
            return P, logdet
        along = shift + constants.level
        return P.addmm_(constants.basis, constants.basis.mT, alpha=-1.0 / float(along)), logdet - along.log()


class _Gram(torch.autograd.Function):
    """The error of a rooted Gram matrix M + n·alpha·I beside constants, with closed-form gradients in M and alpha.

    P is orthogonal to the constants, so that the gradient in the centred matrix is that in M itself.
    """

    @staticmethod
    def forward(ctx: Any, gram: Tensor, alpha: Tensor, Y: Tensor, layout: Layout) -> Tensor:
        n = layout.n
        P, _ = layout.inverse(gram.detach(), n * alpha.detach())
        C = P @ Y
        # The differential is ⟨q, dC⟩ − Σ_S q_Sᵀ dP_SS R_S with dC = −P dM C and dP = −P dM P.
        if layout.blocks is None:
            s = P.diagonal()[:, None]
            s = s.mean().expand_as(s) if layout.criterion == "gcv" else s
            R = C / s
            q = (2.0 / n) * R / s
            t = (q * R).sum(1)
            t = t.mean().expand_as(t) if layout.criterion == "gcv" else t
            in_gram = symmetric_products(-0.5 * (P @ q), C, P, t)
        else:
            R, q, BP = torch.empty_like(C), torch.empty_like(C), torch.empty_like(P)
            for index in layout.blocks:
                S = P[index[:, :, None], index[:, None, :]]
                S = S.mean(0, keepdim=True).expand_as(S) if layout.criterion == "gcv" else S
                R[index] = solve_blocks(S, C[index])
                q[index] = (2.0 / n) * solve_blocks(S, R[index])
                outer = q[index] @ R[index].mT
                outer = outer.mean(0, keepdim=True).expand_as(outer) if layout.criterion == "gcv" else outer
                BP[index] = outer @ P[index]
            in_gram = symmetric_part(P @ BP - (P @ q) @ C.mT)
        ctx.save_for_backward(in_gram, n * in_gram.diagonal().sum())
        return (R**2).sum() / n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = weights
        in_gram, in_alpha = ctx.saved_tensors
        return weight * in_gram, weight * in_alpha, None, None


class _Likelihood(torch.autograd.Function):
    """Σ_j m log(y_jᵀPy_j/m) + log det P⁻¹ of the outputs j of a rooted Gram matrix M + n·alpha·I beside constants.

    The gradient in M is Σ_j P − m c_j c_jᵀ / y_jᵀc_j for c_j = P y_j.
    """

    @staticmethod
    def forward(ctx: Any, gram: Tensor, alpha: Tensor, Y: Tensor, layout: Layout) -> Tensor:
        m = layout.remaining(Y)
        P, logdet = layout.inverse(gram.detach(), layout.n * alpha.detach())
        C = P @ Y
        squares = (Y * C).sum(0).clamp(min=torch.finfo(Y.dtype).tiny)
        in_gram = P.mul_(Y.shape[1]).addmm_(C * (m / squares), C.mT, alpha=-1.0)
        ctx.save_for_backward(in_gram, layout.n * in_gram.diagonal().sum())
        return m * (squares / m).log().sum() + Y.shape[1] * logdet

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = weights
        in_gram, in_alpha = ctx.saved_tensors
        return weight * in_gram, weight * in_alpha, None, None


class _Kronecker(torch.autograd.Function):
    """The error of K ⊗ A + n·alpha·I with closed-form gradients in K, A and alpha.

    All in the eigenvectors of K = U diag(e) Uᵀ and A = V diag(d) Vᵀ, where P is diagonal with eigenvalues g: one
    eigendecomposition of each, O(n²p²) for the gradient in A, and a few products for the gradient in K. Beside
    constants K is centred, and what P would have along them is taken away.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gram: Tensor | None,
        operator: Tensor,
        alpha: Tensor,
        Y: Tensor,
        layout: Layout,
        spectrum: Eigenpairs | None,
    ) -> Tensor:
        n, criterion = len(Y), layout.criterion
        left = eigh(gram.detach(), name="The Gram matrix") if spectrum is None and gram is not None else spectrum
        assert left is not None  # gram or spectrum is given
        right = clipped_spectrum(operator.detach())
        (U, e), (V, d) = (left.vectors, left.values), (right.vectors, right.values)
        shift = n * alpha.detach()
        g = 1.0 / (e[:, None] * d + shift)
        Z = (U.mT @ (Y @ V)) * g
        C = U @ Z
        along, level = None, e.new_zeros(())
        if layout.constants is not None:
            along, level = layout.constants.basis.detach()[:, 0] ** 2, layout.constants.level
        h = 1.0 / (level * d + shift)  # the eigenvalues that P has not, along the constants
        blocks = layout.blocks
        if blocks is None:
            squares = U**2
            S = squares @ g
            S = S if along is None else S - along[:, None] * h
            S = S.mean(0, keepdim=True).expand_as(S) if criterion == "gcv" else S
            R = C / S
            q = (2.0 / n) * R / S
            M = _pair_moments(q, R, squares, criterion)
            lost = None if along is None else _pair_moments(q, R, along[:, None], criterion)[0]
        else:
            R, q, moments, M, lost = _grouped(layout, blocks, left, d, shift, C)
        # The differential is ⟨q, dC⟩ − Σ_S q_Sᵀ dP_SS R_S with dC = −P dW C and dP = −P dW P.
        Qq = (U.mT @ q) * g
        in_shift = (M.diagonal(dim1=1, dim2=2) * g**2).sum() - (Qq * Z).sum()
        if lost is not None:
            in_shift = in_shift - (lost.diagonal() * h**2).sum()
        in_K = in_A = None
        if ctx.needs_input_grad[1]:
            in_A = (M * (e[:, None, None] * g[:, :, None] * g[:, None, :])).sum(0) - Qq.mT @ (e[:, None] * Z)
            if lost is not None:
                in_A = in_A - lost * (level * h[:, None] * h)
            in_A = symmetric_part(V @ in_A @ V.mT)
        if ctx.needs_input_grad[0]:
            if blocks is None:
                t = q * R if criterion == "loo" else (q * R).mean(0, keepdim=True).expand_as(R)
                H = _weighted_moments(U, t, e, d, g)
            else:
                turned = torch.stack([one.mT @ two for one, two in zip(*(m.unbind(-1) for m in moments), strict=True)])
                H = (d[:, None, None] * g.mT[:, :, None] * g.mT[:, None, :] * turned).sum(0)
            H = H - (Qq * d) @ Z.mT
            in_K = symmetric_part(U @ H @ U.mT)
        ctx.save_for_backward(in_K, in_A, n * in_shift)
        return (R**2).sum() / n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = weights
        gradients = [None if g is None else weight * g for g in ctx.saved_tensors]
        return *gradients, None, None, None


def _grouped(
    layout: Layout, blocks: list[Tensor], left: Eigenpairs, d: Tensor, shift: Tensor, C: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], Tensor, Tensor | None]:
    """Residuals R, q = 2/n P_SS⁻¹R, their coordinates in U for each group, their moments there and along constants."""
    R, q = torch.empty_like(C), torch.empty_like(C)
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    basis = None if layout.constants is None else layout.constants.basis.detach()
    lost = None if basis is None else C.new_zeros(len(d), len(d))
    for index in blocks:
        for k in range(len(d)):
            S = spectral_blocks(Eigenpairs(left.vectors, d[k] * left.values), index, shift)
            if layout.constants is not None and basis is not None:
                E = basis[index]
                S = S - (E @ E.mT) / (layout.constants.level * d[k] + shift)
            R[index, k] = solve_blocks(S, C[index, k, None])[..., 0]
            q[index, k] = (2.0 / layout.n) * solve_blocks(S, R[index, k, None])[..., 0]
        U = left.vectors[index]
        sides[0].append(U.mT @ q[index])
        sides[1].append(U.mT @ R[index])
        if basis is not None and lost is not None:
            E = basis[index]
            lost += ((E.mT @ q[index]).mT @ (E.mT @ R[index])).sum(0)
    one, two = torch.cat(sides[0]), torch.cat(sides[1])
    return R, q, (one, two), torch.einsum("gak,gal->akl", one, two), lost


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
    return (squares.mT @ (q[:, :, None] * R[:, None, :]).reshape(n, -1)).reshape(-1, p, p)
