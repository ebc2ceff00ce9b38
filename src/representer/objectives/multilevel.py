"""The energy of deep kernel PCA (Tonin et al., 2023): its gradient, its fields, its stationarity.

Level j has orthonormal hidden features H_j (N × s_j) and K_j = k_j(H_{j−1}), K_1 the Gram matrix of the data. The
multi-level equations (6) of the paper,

    K_j H_j / η_j + G_j / η_{j+1} = H_j Λ_j,     G_j = ∇_{H_j} ½ Tr(H_{j+1}ᵀ K_{j+1}(H_j) H_{j+1}),

are the stationarity conditions of E = Σ_j Tr(H_jᵀ K_j H_j) / (2 η_j) on the product of Stiefel manifolds. Level j keeps
the leading eigenvectors of sign(η_j) M_j, where M_j is symmetric with M_j H_j equal to the left-hand side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from representer.kernels.base import Kernel
from representer.kernels.products import Linear
from representer.kernels.stationary import Gaussian
from representer.linalg import RitzPairs, leading
from representer.linalg.leading import Product
from representer.linalg.memory import row_blocks
from representer.values import number

Hidden = list[Tensor]

# Of the Ritz pairs in a preconditioner, and the smallest gap it divides by: as a share of the smallest eigenvalue, and
# of what coupling adds to it.
PRECONDITIONER_ACCURACY = 1e-6
SMALLEST_GAP = 1e-3
COUPLING_PART = 0.01
# To which eigenvalues that are kept and others are compared, relative to the largest one.
COMPARED = 1e-6
# How accurately a sweep solves an eigenvalue problem: to this share of the residual that its start has.
SHARE = 0.05
# Temporaries of the same size as a block of Gram rows, with autograd's own.
TEMPORARIES = 6
# Bytes of a block that is used at once, while it is in the processor's cache.
CACHED = 2**20


def slope(
    kernel: Kernel, points: Tensor, anchors: Tensor, weights: Tensor, gram: Tensor | None = None
) -> Tensor:
    """Σ_n w_in ∂k(h_i, a_n)/∂h_i for each point h_i and anchors a_n: (m, s). ``gram`` is k(points, anchors), if known.

    Two products for the Gaussian kernel; autograd for any other.
    """
    if isinstance(kernel, Linear):
        return weights @ anchors
    if isinstance(kernel, Gaussian):
        gram = kernel._gram(points, anchors) if gram is None else gram
        M = weights * gram
        return (M @ anchors - M.sum(1, keepdim=True) * points) / number(kernel, "lengthscale", points) ** 2
    with torch.enable_grad():
        leaf = points.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad((kernel._gram(leaf, anchors) * weights).sum(), leaf)
    return gradient


def coupling(kernel: Kernel, H: Tensor, above: Tensor, gram: Tensor | None = None) -> Tensor:
    """G_j of equation (7), for the kernel k_{j+1}, H_j and H_{j+1}, in blocks of rows."""
    if isinstance(kernel, Linear):
        return above @ (above.mT @ H)
    if isinstance(kernel, Gaussian) and gram is not None:
        return _gaussian_coupling(kernel, H, above, gram)
    G = torch.empty_like(H)
    for rows in row_blocks(len(H), TEMPORARIES * len(H) * H.element_size()):
        known = None if gram is None else gram[rows]
        G[rows] = slope(kernel, H[rows], H, above[rows] @ above.mT, known)
    return G


def _gaussian_coupling(kernel: Gaussian, H: Tensor, above: Tensor, gram: Tensor) -> Tensor:
    """The sums of ``slope`` for all points at once, by the symmetry of K ∘ H_{j+1}H_{j+1}ᵀ."""
    points = torch.cat([H, torch.ones_like(H[:, :1])], 1)
    sums = torch.zeros_like(points.mT)
    for rows in row_blocks(len(H), len(H) * H.element_size(), CACHED):
        sums.addmm_(points[rows].mT, (above[rows] @ above.mT).mul_(gram[rows]))
    return (sums[:-1].mT - sums[-1:].mT * H) / number(kernel, "lengthscale", H) ** 2


def times(gram: Tensor, V: Tensor) -> Tensor:
    """K V = (Vᵀ K)ᵀ, which is the faster one for few columns: 0.9 against 1.7 ms for ten of 1,000 rows."""
    return (V.mT @ gram).mT


@dataclass(frozen=True)
class Stationarity:
    """A point and how far it is from solving equations (6)."""

    hidden: Hidden
    gradients: list[Tensor]  # ∇_{H_j} E
    multipliers: list[Tensor]  # Λ_j: the symmetric part of H_jᵀ ∇_j
    energies: list[float]  # Tr(H_jᵀ K_j H_j) / (2 η_j)
    totals: list[float]  # Tr M_j: the sum of all eigenvalues of level j
    variances: list[Tensor]  # H_jᵀ K_j H_j / η_j: what the components hold of their own level
    forward: Tensor  # K_1 H_1 / η_1

    @property
    def energy(self) -> float:
        return sum(self.energies)

    def defects(self) -> list[Tensor]:
        """∇_j − H_j Λ_j."""
        parts = zip(self.hidden, self.gradients, self.multipliers, strict=True)
        return [gradient - H @ multiplier for H, gradient, multiplier in parts]

    @property
    def residual(self) -> float:
        """The largest ‖∇_j − H_j Λ_j‖ / ‖∇_j‖ of all levels."""
        tiny = torch.finfo(self.gradients[0].dtype).tiny
        shares = []
        for defect, gradient in zip(self.defects(), self.gradients, strict=True):
            scale = gradient.abs().max().clamp(min=tiny)  # squares of huge entries would overflow
            shares.append(((defect / scale).norm() / (gradient / scale).norm().clamp(min=tiny)).item())
        return max(shares)


@dataclass
class MultiLevel:
    """The problem for one Gram matrix of the data; it remembers the subspaces where it last found eigenvectors."""

    gram: Tensor  # K_1
    kernels: list[Kernel]  # k_2, …, k_L
    etas: Sequence[float]  # η_1, …, η_L
    ritz: dict[int, RitzPairs] = field(default_factory=dict)  # of each level's field
    own: dict[int, RitzPairs] = field(default_factory=dict)  # of K_j alone

    def __len__(self) -> int:
        return len(self.etas)

    def gram_of(self, level: int, hidden: Hidden) -> Tensor:
        """K_j; levels count from 0 here."""
        return self.gram if level == 0 else self.kernels[level - 1]._gram(hidden[level - 1], None)

    def at(self, hidden: Hidden, *, coupled: bool = True) -> Stationarity:
        """Energy, gradients and multipliers at a point; not ``coupled``: as if no level felt the one above."""
        return self._descend(hidden, None, coupled=coupled)[0]

    def sweep(self, hidden: Hidden, tol: float) -> tuple[Stationarity, Hidden]:
        """Where the last level is solved: the state there, and the leading eigenvectors of every level's field.

        They are only as accurate as a sweep deserves, and at most to ``tol``.
        """
        return self._descend(hidden, tol, solve_last=True)

    def _descend(
        self, hidden: Hidden, tol: float | None, *, solve_last: bool = False, coupled: bool = True
    ) -> tuple[Stationarity, Hidden]:
        """From the last level to the first: one Gram matrix beside that of the data is alive at a time."""
        hidden, proposals = list(hidden), list(hidden)
        gradients, energies, totals, variances = [], [], [], []
        G: Tensor | None = None
        for j in reversed(range(len(self))):
            K = self.gram_of(j, hidden)
            if tol is not None:
                proposals[j] = self.solve(
                    j, self.field(j, K, hidden[j], G), hidden[j], hidden[j].shape[1], tol, SHARE
                )
                if G is None and solve_last:
                    hidden[j] = proposals[j]
            H = hidden[j]
            own = times(K, H) / self.etas[j]
            backward = torch.zeros_like(own) if G is None else G / self.etas[j + 1]
            gradients.append(own + backward)
            variances.append(symmetric(H.mT @ own))
            energies.append(0.5 * (own * H).sum().item())
            totals.append(K.diagonal().sum().item() / self.etas[j] + (backward * H).sum().item())
            if j and coupled:
                G = coupling(self.kernels[j - 1], hidden[j - 1], H, K)
        gradients.reverse()
        multipliers = [symmetric(H.mT @ g) for H, g in zip(hidden, gradients, strict=True)]
        sums = energies[::-1], totals[::-1], variances[::-1]
        return Stationarity(hidden, gradients, multipliers, *sums, own), proposals

    def field(self, level: int, gram: Tensor, H: Tensor, G: Tensor | None) -> Product:
        """V ↦ sign(η_j) M_j V, M_j = K_j/η_j + (G_j H_jᵀ + H_j G_jᵀ − H_j sym(H_jᵀG_j) H_jᵀ)/η_{j+1}."""
        sign = 1.0 if self.etas[level] > 0 else -1.0
        scale = sign / self.etas[level]
        if G is None:
            return lambda V: scale * times(gram, V)
        left = (sign / self.etas[level + 1]) * G
        inner = symmetric(H.mT @ left)

        def product(V: Tensor) -> Tensor:
            inside = H.mT @ V
            return scale * times(gram, V) + left @ inside + H @ (left.mT @ V - inner @ inside)

        return product

    def solve(
        self, level: int, product: Product, H: Tensor, size: int, tol: float, share: float = 0.0
    ) -> Tensor:
        """Leading eigenvectors of a field, from where the last search for this level ended.

        To a residual of ``tol``, or the ``share`` of it that is left, whichever is larger.
        """
        start = torch.cat([H, self.ritz[level].vectors[:, H.shape[1] :]], 1) if level in self.ritz else H
        self.ritz[level] = leading(product, start, size, tol=tol, share=share)
        return self.ritz[level].vectors[:, :size]

    def levelwise(self, sizes: Sequence[int | float], start: Tensor, tol: float) -> Hidden:
        """Kernel PCA of each level after the one below (Deng et al., 2019); a fraction is a share of the trace.

        Kernels with words for hyperparameters are given their numbers by the hidden features found here.
        """
        hidden: Hidden = []
        for j, size in enumerate(sizes):
            if j:
                self.kernels[j - 1] = self.kernels[j - 1].resolve(hidden[-1])
            K = self.gram_of(j, hidden)
            if not bool(torch.isfinite(K.abs().max() / self.etas[j])):
                what = f"{self.kernels[j - 1]!r} gives" if j else "The kernel of the data gives"
                raise ValueError(
                    f"{what} values at level {j} that overflow, or do so when divided by eta={self.etas[j]!r}. Choose "
                    "another kernel or a larger |eta|, or scale the data."
                )
            spread = (K.max() - K.min()).item()
            if j and spread <= len(K) * torch.finfo(K.dtype).eps * K.diagonal().abs().max().item():
                raise ValueError(
                    f"Level {j} has collapsed: {self.kernels[j - 1]!r} gives the same value for every pair of the "
                    f"hidden features of level {j - 1}, to rounding. Choose a kernel that depends on its input, or a "
                    "smaller lengthscale."
                )
            n = size if isinstance(size, int) else components_for(K, size)
            columns = torch.cat([start, start.new_zeros(len(K), max(0, n - start.shape[1]))], 1)[:, :n]
            hidden.append(self.solve(j, self.field(j, K, columns, None), columns, n, tol))
        return hidden

    def are_leading(self, state: Stationarity, *, coupled: bool = True) -> list[bool]:
        """Of which levels no other eigenvalue of sign(η_j) M_j is larger than those that are kept."""
        found: list[bool] = []
        G: Tensor | None = None
        for j in reversed(range(len(self))):
            H, K = state.hidden[j], self.gram_of(j, state.hidden)
            product = self.field(j, K, H, G)
            sign = 1.0 if self.etas[j] > 0 else -1.0
            kept = torch.linalg.eigvalsh(sign * state.multipliers[j])
            scale = kept.abs().max().item() + abs(state.totals[j])
            others = leading(_deflated(product, H, scale), H.new_ones(len(H), 1), 1, tol=COMPARED)
            found.append(bool(others.values[0] <= kept[0] + COMPARED * kept.abs().max()))
            if j and coupled:
                G = coupling(self.kernels[j - 1], state.hidden[j - 1], H, K)
        return found[::-1]

    def residual_objective(self, hidden: Hidden, eigenvalues: Hidden) -> Tensor:
        """Equation (9), differentiable: ½ Σ_j ‖K_j H_j / η_j + G_j / η_{j+1} − H_j Λ_j‖² with diagonal Λ_j."""
        with torch.enable_grad():
            points = [H if H.requires_grad else H.detach().requires_grad_(True) for H in hidden]
            grams = [self.gram_of(j, points) for j in range(len(points))]
            total = points[0].new_zeros(())
            for j, (H, values) in enumerate(zip(points, eigenvalues, strict=True)):
                left = grams[j] @ H / self.etas[j]
                if j + 1 < len(points):
                    above = 0.5 * (grams[j + 1] * (points[j + 1] @ points[j + 1].mT)).sum()
                    left = left + torch.autograd.grad(above, H, create_graph=True)[0] / self.etas[j + 1]
                total = total + 0.5 * (left - H * values).square().sum()
        return total

    def preconditioner(self, state: Stationarity) -> Callable[[Hidden], Hidden]:
        """The inverse of V ↦ V Λ − K_j V / η_j, the Hessian of each level without coupling.

        Coupling adds to Λ_j what its second derivative takes away where levels move together, so it is left out; but
        no gap counts for less than a part of what coupling adds.
        """
        inverses = []
        for j, H in enumerate(state.hidden):
            if j or not self.own:  # K_1 stays
                product = self.field(j, self.gram_of(j, state.hidden), H, None)
                known = self.own.get(j, self.ritz.get(j))
                start = H if known is None else known.vectors
                self.own[j] = leading(product, start, H.shape[1], tol=PRECONDITIONER_ACCURACY)
            coupling_energy = state.multipliers[j].trace().item() - 2.0 * state.energies[j]
            inverses.append(_inverse_gaps(H, self.own[j], COUPLING_PART * abs(coupling_energy) / H.shape[1]))
        return lambda vectors: [inverse(V) for inverse, V in zip(inverses, vectors, strict=True)]


def _inverse_gaps(H: Tensor, pairs: RitzPairs, least: float) -> Callable[[Tensor], Tensor]:
    """Division by |λ_i − θ_a| on the Ritz vector a, and by |λ_i| outside of their span and within that of H."""
    Q, theta = pairs.vectors, pairs.values
    overlap = Q.mT @ H
    values, rotation = torch.linalg.eigh(symmetric(overlap.mT @ (theta[:, None] * overlap)))
    sizes = values.abs()
    floor = max(
        least, SMALLEST_GAP * max(sizes.min().item(), torch.finfo(H.dtype).eps ** 0.5 * theta[0].item())
    )
    gaps, sizes = (values - theta[:, None]).abs().clamp(min=floor), sizes.clamp(min=floor)
    Q = Q - H @ (H.mT @ Q)

    def inverse(V: Tensor) -> Tensor:
        V = V @ rotation
        within = H @ (H.mT @ V)
        V = V - within
        inside = Q.mT @ V
        result = Q @ (inside / gaps - inside / sizes) + V / sizes
        return (result - H @ (H.mT @ result) + within / sizes.mean()) @ rotation.mT

    return inverse


def _deflated(product: Product, H: Tensor, shift: float) -> Product:
    """The product on the complement of H, the span of H sent to −shift."""

    def deflated(V: Tensor) -> Tensor:
        within = H @ (H.mT @ V)
        image = product(V - within)
        return image - H @ (H.mT @ image) - shift * within

    return deflated


def symmetric(matrix: Tensor) -> Tensor:
    """½ (A + Aᵀ)."""
    return 0.5 * (matrix + matrix.mT)


def components_for(gram: Tensor, share: float) -> int:
    """The least number of eigenvectors that hold a share of the trace."""
    values = torch.linalg.eigvalsh(gram).flip(0)
    kept = values.cumsum(0) / values.sum()
    return int((kept < share * (1.0 - torch.finfo(kept.dtype).eps * len(kept))).sum().item()) + 1
