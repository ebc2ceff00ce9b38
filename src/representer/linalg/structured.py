"""Matrices with structure: symmetric and Kronecker products, small blocks, and matrices known by their action only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from scipy.linalg import get_blas_funcs
from torch import Tensor

from representer.linalg.cholesky import mirrored, power_of_two
from representer.linalg.resources import empty_matrix
from representer.linalg.spectral import Eigenpairs, eigh


def symmetric_products(
    left: Tensor, right: Tensor, rows: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """The matrix A Bᵀ + B Aᵀ + Σ_i w_i r_i r_iᵀ from A and B (..., m, p) and rows r_i (..., n, m).

    The symmetric product of BLAS, which torch lacks, takes half the work of a general one.
    """
    if rows is None or weights is None or not rows.numel():
        half = left @ right.mT
        return half + half.mT
    if left.ndim > 2 or left.device.type != "cpu" or left.requires_grad or rows.requires_grad:
        half = left @ right.mT
        return half + half.mT + rows.mT @ (weights[..., None] * rows)
    syrk, syr2k = get_blas_funcs(("syrk", "syr2k"), (rows.numpy(),))
    # Read in the order of Fortran, rows are columns, and the lower triangle is the upper one.
    A, B = left.contiguous().numpy().T, right.contiguous().numpy().T
    total = empty_matrix((len(left), len(left)), left).numpy().T
    syr2k(1.0, A, B, trans=1, lower=True, c=total, overwrite_c=True)
    for sign, members in ((1.0, weights > 0), (-1.0, ~(weights > 0))):
        root = weights[members].abs().sqrt()[:, None]
        if not len(root):
            continue
        if len(root) == len(rows):  # all rows: the memory of an earlier product serves
            scaled = torch.mul(rows, root, out=empty_matrix(rows.shape, rows))
        else:
            scaled = rows[members].mul_(root)
        syrk(sign, scaled.numpy().T, lower=True, beta=1.0, c=total, overwrite_c=True)
    return mirrored(torch.from_numpy(total.T))


def kronecker_solve(left: Eigenpairs, right: Eigenpairs, rhs: Tensor, shift: Tensor | float) -> Tensor:
    """The solution C of A C B + shift·C = R for PSD A and B, U [(Uᵀ R V) / (e dᵀ + shift)] Vᵀ, from their spectra."""
    rotated = left.vectors.mT @ rhs @ right.vectors
    weights = 1.0 / (left.values[..., :, None] * right.values[..., None, :] + shift)
    if all(s.vectors.shape[-1] == s.vectors.shape[-2] for s in (left, right)):
        return left.vectors @ (rotated * weights) @ right.vectors.mT
    return left.vectors @ (rotated * (weights - 1.0 / shift)) @ right.vectors.mT + rhs / shift


def nearest_kronecker(terms: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """K and A that minimise ‖Σ_q K_q ⊗ A_q − K ⊗ A‖_F (Van Loan & Pitsianis); they are PSD if all terms are.

    The rearranged sum Σ_q vec(K_q) vec(A_q)ᵀ has rank at most q, so its leading singular pair follows from the
    q × q matrices of inner products.
    """
    left = torch.stack([torch.stack([(a * b).sum() for b, _ in terms]) for a, _ in terms])
    right = torch.stack([torch.stack([(a * b).sum() for _, b in terms]) for _, a in terms])
    root = eigh(left).root()
    spectrum = eigh(root.mT @ right @ root)
    inner = root @ spectrum.vectors[:, -1]  # ⟨K_q, K⟩ up to scale, the weights of the A_q
    inner = inner if inner.sum() >= 0 else -inner  # by Perron, no weight is negative if all terms are PSD
    outer = right @ inner
    gram = sum((w * k for w, (k, _) in zip(outer, terms, strict=True)), torch.zeros_like(terms[0][0]))
    operator = sum((w * a for w, (_, a) in zip(inner, terms, strict=True)), torch.zeros_like(terms[0][1]))
    # ‖K‖²‖A‖² fixes the scale: the best multiple of K ⊗ A is ⟨S, K ⊗ A⟩ / ‖K ⊗ A‖².
    overlap = torch.stack([(k * gram).sum() * (a * operator).sum() for k, a in terms]).sum()
    size = (gram**2).sum() * (operator**2).sum()
    return gram * (overlap / torch.where(size > 0, size, 1.0)), operator


def conjugate_gradient(
    apply: Callable[[Tensor], Tensor],
    rhs: Tensor,
    *,
    precondition: Callable[[Tensor], Tensor] = lambda x: x,
    tol: float = 1e-12,
    max_iter: int | None = None,
    name: str = "the linear system",
    strict: bool = True,
    columnwise: bool = False,
) -> Tensor:
    """Solve A x = b for a symmetric positive definite A that is known by its action; b of any shape is one vector.

    With ``columnwise``, the columns of a matrix b are systems of their own, which ``apply`` treats at once. Iterations
    end when ‖A x − b‖ ≤ tol·‖b‖, for every column. If they run out, or a direction has no positive curvature, an error
    gives the residual; without ``strict``, the latest solution is returned (truncated conjugate gradients).
    """
    limit = 10 * rhs.numel() if max_iter is None else max_iter  # in exact arithmetic, numel iterations suffice
    dim = -2 if columnwise else tuple(range(rhs.ndim))

    def inner(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim, keepdim=True)

    if not rhs.numel():
        return torch.zeros_like(rhs)
    unit = power_of_two(rhs.abs().amax(dim, keepdim=True))  # Squares of huge or tiny right sides would leave the range.
    rhs = rhs / unit
    x = torch.zeros_like(rhs)
    residual = rhs.clone()
    size = inner(rhs, rhs).sqrt()
    z = precondition(residual)
    direction = z.clone()
    rz = inner(residual, z)
    steps = 0
    while bool((~((norm := inner(residual, residual).sqrt()) <= tol * size)).any()):
        image = apply(direction)
        curvature = inner(direction, image)
        ended = norm <= tol * size
        if steps == limit or not bool(((curvature > 0) | ended).all()):
            if not strict:
                break
            reason = "Increase alpha (a better conditioned problem), max_iter or tol."
            if steps < limit:
                reason = (
                    f"The system is not positive definite: a direction has the curvature {curvature.min().item():.2g}."
                )
            raise RuntimeError(
                f"Conjugate gradients on {name} stopped after {steps} iterations at a relative residual of "
                f"{(norm / size).nan_to_num(0.0).max().item():.2g} (wanted {tol:.2g}). {reason}"
            )
        step = torch.where(ended, 0.0, rz / curvature)  # a solved column stays as it is
        x = x + step * direction
        residual = residual - step * image
        z = precondition(residual)
        rz, previous = inner(residual, z), rz
        direction = z + torch.where(ended, 0.0, rz / previous) * direction
        steps += 1
    return x * unit


# -- small blocks -----------------------------------------------------------------------------------------------------
def solve_blocks(blocks: Tensor, right: Tensor) -> Tensor:
    """The solutions (..., s, q) of many small systems (..., s, s); NaN for a singular block.

    Examples
    --------
    >>> import torch
    >>> from representer.linalg import solve_blocks
    >>> solve_blocks(torch.tensor([[[2.0]], [[0.0]]]), torch.ones(2, 1, 1))[:, 0, 0].tolist()
    [0.5, nan]
    """
    size = _sizes(blocks)
    solution, info = torch.linalg.solve_ex(blocks / size, right / size)
    return torch.where((info > 0)[..., None, None], torch.nan, solution)


def inverse_blocks(blocks: Tensor) -> Tensor:
    """The inverses (..., s, s) of many small matrices; NaN for a singular one."""
    size = _sizes(blocks)
    inverse, info = torch.linalg.inv_ex(blocks / size)
    return torch.where((info > 0)[..., None, None], torch.nan, inverse / size)


def _sizes(blocks: Tensor) -> Tensor:
    """The largest entries (..., 1, 1) of blocks, by which they are divided first; one for a block of zeros."""
    sizes = blocks.abs().amax((-2, -1), keepdim=True)
    return torch.where(sizes > 0, sizes, 1.0)
